"""`wgmma` on the CPU, by Hopper's units as the PTX ISA has them (hopper.cpp): exact in every order of turns; faults show."""

from __future__ import annotations

from collections.abc import Mapping

import hypothesis
import hypothesis.strategies as st
import pytest

import gemmport as gp
from absences import CXX, needs
from exact import Sizes, check, problem_of
from gemmport import kernels
from gemmport.contracts.kernel import Parameters
from gemmport.core.problem import transposes
from host import ORDERS, Host
from mutations import OF_WGMMA, Mutation, planted
from on_host import in_every_order, opened, product
from test_kernels import BASE, STRUCTURES

pytestmark = needs(CXX)

TYPES: tuple[dict[str, str], ...] = tuple(
    {"dtype": dtype, "output": output} for dtype in ("float16", "bfloat16") for output in (dtype, "float32")
)
"""Of operands and results."""

ALONE: Parameters = {**BASE["wgmma"], "SHARE": 0}


@pytest.fixture(scope="module")
def cpu() -> Host:
    return opened()


def addressable(sizes: Sizes, ops: str, dtype: str, *, multiple: int = 8, **more: object) -> gp.GemmProblem:
    """A product that the copy engine reads as it lies: matrices begin at row 3, column 8 of their memory, and have gaps."""
    layouts = {}
    for name, op, shape in (("a", ops[0], (sizes.m, sizes.k)), ("b", ops[1], (sizes.k, sizes.n))):
        rows, columns = reversed(shape) if transposes(op) else shape
        ld = -(-columns // multiple) * multiple + 2 * multiple
        layouts[name] = gp.Layout(ld, ld * (rows + 5), 3 * ld + multiple)
    return gp.GemmProblem.create(
        sizes.m, sizes.n, sizes.k, dtype=dtype, trans_a=ops[0], trans_b=ops[1], **layouts, **more
    )


@pytest.mark.sample(dtype=["bfloat16"], ops=["NT", "TN"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("ops", ["NN", "NT", "TN", "TT"])
def test_products_are_exact_in_every_order(cpu: Host, dtype: str, ops: str) -> None:
    """With edges, scaled, of a batch; more tiles than the stages hold steps of."""
    problem = addressable(Sizes(67, 131, 201), ops, dtype, batch=2, alpha=2.0, beta=-1.0)
    assert not gp.plan(problem, cpu.device, kernel="wgmma", params=ALONE).scratch
    in_every_order(cpu, lambda: check(cpu, problem, "wgmma", ALONE))


@pytest.mark.sample(ops=["NN"])
@pytest.mark.parametrize("ops", ["NN", "NT", "TN", "TT"])
def test_what_is_laid_out_anew_is_exact(cpu: Host, ops: str) -> None:
    product(cpu, "wgmma", ops, ALONE)


def test_one_matrix_may_be_multiplied_by_many(cpu: Host) -> None:
    check(cpu, problem_of(Sizes(65, 70, 72), "NN", "float16", batch=3, share_a=True, multiple=8), "wgmma", ALONE)


@pytest.mark.parametrize("sizes", [Sizes(1, 1, 1), Sizes(64, 64, 64), Sizes(70, 70, 0), Sizes(1, 200, 65)], ids=str)
def test_products_of_any_size_are_exact(cpu: Host, sizes: Sizes) -> None:
    for beta in (0.0, 2.0):
        check(cpu, problem_of(sizes, "NN", "float16", beta=beta), "wgmma", ALONE)
    check(cpu, problem_of(sizes, "NN", "float16", alpha=0.0, beta=2.0), "wgmma", ALONE)


def test_d_may_be_c(cpu: Host) -> None:
    problem = problem_of(Sizes(65, 130, 72), "NT", "float16", in_place=True, alpha=2.0, beta=3.0, output="float32")
    check(cpu, problem, "wgmma", ALONE, in_place=True)


@pytest.mark.sample(ops=["TN"])
@pytest.mark.parametrize("ops", ["NN", "NT", "TN", "TT"])
def test_shared_tiles_are_exact(cpu: Host, ops: str) -> None:
    check_shared(cpu, ops)


def check_shared(cpu: Host, ops: str) -> None:
    """Tiles that groups share along k, behind others that they do not."""
    problem = addressable(Sizes(190, 400, 500), ops, "float16", alpha=2.0, beta=-1.0)
    params = {**BASE["wgmma"], "TSN": 128}
    plan = gp.plan(problem, cpu.device, kernel="wgmma", params=params)
    assert [launch.kernel.function for launch in plan.launches] == ["wgmma", "wgmma", "combine"]
    in_every_order(cpu, lambda: check(cpu, problem, "wgmma", params))


OWN_STRUCTURES = [params for kernel, params in STRUCTURES if kernel == "wgmma"]


@pytest.mark.sample(number=[1])
@pytest.mark.parametrize("number", range(len(OWN_STRUCTURES)))
def test_tiles_of_any_shape_are_exact_here(cpu: Host, number: int) -> None:
    params = OWN_STRUCTURES[number]
    rows, columns = int(params["TSM"]), int(params["TSN"])
    for ops, sizes in (("TN", Sizes(rows + 1, columns + 9, 129)), ("NT", Sizes(2 * rows - 1, columns, 200))):
        check(cpu, addressable(sizes, ops, "bfloat16", beta=1.0, output="float32"), "wgmma", params)


PARAMETERS = st.fixed_dictionaries(
    {
        **{name: st.sampled_from([64, 128, 192, 256]) for name in ("TSM", "TSN")},
        "WM": st.sampled_from([64, 128]),
        "STAGES": st.integers(2, 4),
        "RASTER": st.integers(1, 4),
        "GROUPS": st.sampled_from([1, 2]),
        "SHARE": st.integers(0, 2),
    }
)


def is_allowed(params: Parameters) -> bool:
    try:
        kernels.variant("wgmma").complete(params)
    except gp.ParameterError:
        return False
    return True


@pytest.mark.many_draws
@hypothesis.settings(max_examples=40)
@hypothesis.given(
    params=PARAMETERS.filter(is_allowed),
    sizes=st.builds(Sizes, st.integers(1, 300), st.integers(1, 300), st.integers(0, 400)),
    ops=st.sampled_from(["NN", "NT", "TN", "TT"]),
    types=st.sampled_from(TYPES),
    more=st.fixed_dictionaries(
        {
            "batch": st.integers(1, 3),
            "alpha": st.sampled_from([1.0, 2.0, 0.0]),
            "beta": st.sampled_from([0.0, -1.0]),
            "multiple": st.sampled_from([1, 8, 16]),
        }
    ),
    order=st.sampled_from([*ORDERS, "shuffled 5"]),
)
def test_products_of_random_sizes_and_parameters_are_exact_and_end(
    cpu: Host, params: Parameters, sizes: Sizes, ops: str, types: Mapping[str, str], more: dict[str, object], order: str
) -> None:
    """A launch that does not end in a minute of the processor's time fails."""
    cpu.order, cpu.seconds = order, 60.0
    check(cpu, problem_of(sizes, ops, **types, **more), "wgmma", params)


# Faults

OF_TWO_GROUPS: Parameters = {**ALONE, "TSM": 128, "TSN": 128}
"""Warp groups, that is; and columns of which 64 lie apart."""


@pytest.mark.planted_fault
@pytest.mark.sample(mutation=[each for each in OF_WGMMA if each.name == "frees a stage that is being read"])
@pytest.mark.parametrize("mutation", OF_WGMMA, ids=lambda mutation: mutation.name.replace(" ", "-"))
def test_each_fault_shows(cpu: Host, mutation: Mutation) -> None:
    told = r"wrong|written outside|elements|waits in line|arrive|product|copy|copies|barrier|work-item"
    with planted(mutation, "wgmma"), pytest.raises((AssertionError, gp.LaunchError), match=told):
        check_against(cpu, mutation)


def check_against(cpu: Host, mutation: Mutation) -> None:
    """The check that must notice it."""
    if mutation.noticed_by == "shared tiles":
        check_shared(cpu, mutation.ops)
    problem = addressable(Sizes(130, 131, 330), mutation.ops, "float16", batch=3, beta=-1.0)
    in_every_order(cpu, lambda: check(cpu, problem, "wgmma", OF_TWO_GROUPS))
