"""Whether the checks notice a broken kernel: each fault of mutations.py, planted in each kernel that it can be planted in.

What the device must show is tried on the best device of each backend; the text of both languages is tried everywhere.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeVar

import pytest

import gemmport as gp
import test_batched
import test_kernels
import test_mma
import test_simt
import test_special_values
from absences import CUDA_COMPILER, beyond, needs
from exact import check
from gemmport.backends import _nvrtc
from gemmport.bench.products import Options, run_benchmark
from gemmport.core.plan import KernelSource
from gemmport.matrix.cells import Cell
from gemmport.matrix.judge import judge
from gemmport.planning.lookup import load_configuration
from gemmport.planning.planner import make_plan
from gemmport.runtime.sources import assemble, languages
from mutations import (
    BFLOAT16_LOAD,
    EQUIVALENT,
    IN_SINGLE_PRECISION,
    KERNELS,
    MUTATIONS,
    OF_FEW_PROBLEMS,
    OF_PACK,
    OF_SUB_GROUP_MMA,
    OF_WGMMA,
    TF32_LOAD,
    Edit,
    Mutation,
    planted,
)
from test_cuda_compile import H200, compiles, device_for, is_cubin
from test_dtypes import problems
from test_kernels import SPAN, VARIANTS, check_many_groups, check_spans, check_structure, narrowest, parameters

T = TypeVar("T", bound=Callable[..., None])

best_of_each_backend = pytest.mark.best_of_each_backend
planted_fault = pytest.mark.planted_fault
a_handful = pytest.mark.sample(
    kernel=["tiled"], mutation=[each for each in MUTATIONS if not each.prelude and each.noticed_by == "exact"]
)


def cases(mutations: tuple[Mutation, ...]) -> Callable[[T], T]:
    """Each mutation in one of the kernels that it is for, each kernel with one; with --exhaustive and on GPUs, in all."""

    def marked(test: T) -> T:
        each_kernel = pytest.mark.every_value(
            "kernel", [*VARIANTS], where=lambda row: row["kernel"] in row["mutation"].kernels
        )
        return each_kernel(pytest.mark.every_value("mutation", mutations)(test))

    return marked


Trial = Callable[[], None]
"""A part of a check: one product, or one shape of tiles."""


def exact_trials(backend: gp.Backend, kernel: str, mutation: Mutation) -> Iterator[Trial]:
    for problem in problems(kernel, mutation.types, mutation.ops):
        yield partial(check, backend, problem, kernel, parameters(kernel))


def structure_trials(backend: gp.Backend, kernel: str, mutation: Mutation) -> Iterator[Trial]:
    """Every shape of tiles, that which the mutation names first."""
    own = [params for each, params in test_kernels.STRUCTURES if each == kernel]
    shown = own[mutation.structure]
    for params in (shown, *(params for params in own if params != shown)):
        yield partial(check_structure, backend, kernel, params)


def check_exact(backend: gp.Backend, kernel: str, mutation: Mutation) -> None:
    for trial in exact_trials(backend, kernel, mutation):
        trial()


def check_own_columns(backend: gp.Backend, kernel: str, mutation: Mutation) -> None:
    """A low D, whose macro-tiles lay out several panels of B themselves."""
    sizes = test_kernels.Sizes(11, 131, 77)
    test_kernels.test_long_operands_are_laid_out_by_macro_tiles(backend, kernel, sizes, "B", "float32", mutation.ops)


def check_statistics(backend: gp.Backend, kernel: str, mutation: Mutation, k: int = 1000) -> None:
    """What `gemmport run` says of the kernel."""
    dtype, output, accumulator = mutation.types
    problem = gp.GemmProblem.create(24, 24, k, dtype=dtype, output=output, accumulator=accumulator)
    options = Options(load_configuration(), kernels=(kernel,), params=parameters(kernel), baselines=(), repeat=1)
    (result,) = run_benchmark([problem], [backend.device], options)
    assert result.status in ("ok", "failed"), result.reason
    assert result.status == "ok", result.reason


CHECKS: dict[str, Callable[[gp.Backend, str, Mutation], None]] = {
    "own columns": check_own_columns,
    "statistics": check_statistics,
    "spans": lambda backend, kernel, mutation: check_spans(backend, kernel),
    "groups": lambda backend, kernel, mutation: check_many_groups(backend, kernel),
    "special values": lambda backend, kernel, mutation: test_special_values.check(backend, kernel, mutation.types),
    "shared tiles": lambda backend, kernel, mutation: {"simt": test_simt, "mma": test_mma}[kernel].check_shared(
        backend
    ),
    "batches": lambda backend, kernel, mutation: test_batched.check_batches(backend),
}


def trials(backend: gp.Backend, kernel: str, mutation: Mutation) -> Iterator[Trial]:
    """The check that must notice a mutation, in parts."""
    if mutation.noticed_by == "exact":
        yield from exact_trials(backend, kernel, mutation)
    elif mutation.noticed_by == "structures":
        yield from structure_trials(backend, kernel, mutation)
    else:
        yield partial(CHECKS[mutation.noticed_by], backend, kernel, mutation)


def first_that_fails(parts: Iterator[Trial]) -> Trial:
    """The first part of a check that a broken kernel does not pass."""
    for trial in parts:
        try:
            trial()
        except AssertionError as error:
            if not re.search(r"wrong|written outside|elements", str(error)):
                raise
            return trial
    pytest.fail("the check notices nothing")


AHEAD = ("wpt", "transposed_b", "shuffle", "prefetch")
"""Kernels whose warps must run a whole step ahead of others before they overwrite what these read."""


def skip_unless_shown(backend: gp.Backend, kernel: str, mutation: Mutation) -> None:
    """Skips where the device cannot show the fault: it lacks the type or the memory, or waits without being told."""
    dtype, output, accumulator = mutation.types
    arithmetic = gp.GemmProblem.create(
        1, 1, 1, dtype=dtype, output=output, accumulator=accumulator
    ).accumulator.arithmetic
    if arithmetic and arithmetic not in backend.device.computes:
        pytest.skip(beyond(backend.device, f"it does not compute in {arithmetic}"))
    if mutation.name.startswith("overwrites tiles in use") and backend.device.platform == "pocl":
        pytest.skip(
            beyond(backend.device, "PoCL adds a barrier to the end of a loop that has one (Oclgrind notices the race)")
        )
    if mutation.noticed_by == "groups" and (backend.name, backend.device.platform) == ("opencl", "nvidia"):
        pytest.skip(
            beyond(
                backend.device, "the few warps of a group run in step (CUDA, with more of them, and Oclgrind notice it)"
            )
        )
    on_nvidia = backend.name == "cuda" or backend.device.platform == "nvidia"
    if on_nvidia and mutation.name.startswith("overwrites") and kernel in AHEAD:
        pytest.skip(beyond(backend.device, "warps do not run so far ahead that the race shows (Oclgrind notices it)"))
    if mutation.noticed_by == "spans" and backend.device.max_allocation < SPAN * narrowest(kernel).itemsize:
        pytest.skip(beyond(backend.device, f"it allows {backend.device.max_allocation:,} bytes in one allocation"))


@best_of_each_backend
@planted_fault
@a_handful
@cases(tuple(mutation for mutation in MUTATIONS if mutation.noticed_by != "oclgrind"))
def test_a_broken_kernel_is_noticed(backend: gp.Backend, kernel: str, mutation: Mutation) -> None:
    """What the shipped kernel passes, the broken one does not: it fails because of its fault."""
    skip_unless_shown(backend, kernel, mutation)
    with planted(mutation, kernel):
        failing = first_that_fails(trials(backend, kernel, mutation))
    failing()


@best_of_each_backend
@planted_fault
@pytest.mark.every_value("mutation", OF_PACK)
def test_a_broken_pack_is_noticed(backend: gp.Backend, mutation: Mutation) -> None:
    if backend.device.type != "cpu":
        pytest.skip(beyond(backend.device, "its panels are for CPUs"))

    def products() -> None:
        for ops in test_kernels.OPS:
            test_kernels.test_long_panels_are_packed_in_pieces(backend, "packed", "float32", ops)

    products()
    with planted(mutation, "pack"), pytest.raises(AssertionError, match=r"wrong|elements"):
        products()


@best_of_each_backend
@planted_fault
@cases(EQUIVALENT)
def test_what_changes_no_result_passes(backend: gp.Backend, kernel: str, mutation: Mutation) -> None:
    assert mutation.why
    with planted(mutation, kernel):
        check_exact(backend, kernel, mutation)


@best_of_each_backend
@planted_fault
@pytest.mark.every_value("k", [1, 2, 17, 400, 4097, 20_000])
@pytest.mark.every_value("mutation", [TF32_LOAD, BFLOAT16_LOAD])
@pytest.mark.every_value("kernel", KERNELS)
def test_a_product_of_rounded_operands_is_no_float32(
    backend: gp.Backend, kernel: str, mutation: Mutation, k: int
) -> None:
    check_statistics(backend, kernel, mutation, k)
    with planted(mutation, kernel), pytest.raises(AssertionError, match="statistical"):
        check_statistics(backend, kernel, mutation, k)


@best_of_each_backend
@planted_fault
@pytest.mark.sample(mutation=[each for each in IN_SINGLE_PRECISION if each.name.startswith("rounds")])
@pytest.mark.every_value("mutation", IN_SINGLE_PRECISION)
def test_doubles_as_float32_has_them_are_noticed_by_every_check(backend: gp.Backend, mutation: Mutation) -> None:
    """By the kernels' own tests, both checks of `gemmport run`, and the matrix, of random operands and of whole numbers."""
    skip_unless_shown(backend, "naive", mutation)
    dtype = mutation.types[0]
    problem = gp.GemmProblem.create(24, 24, 16, dtype=dtype)
    options = Options(load_configuration(), kernels=("naive",), baselines=(), repeat=1)
    cells = [Cell.of("naive", dtype, "NN", "odd", scalars) for scalars in ("a1b0", "a2b-1", "random")]
    check_exact(backend, "naive", mutation)
    assert {judge(cell, backend).status for cell in cells} == {"verified"}
    with planted(mutation, "naive"):
        with pytest.raises(AssertionError, match="elements are wrong"):
            check_exact(backend, "naive", mutation)
        (result,) = run_benchmark([problem], [backend.device], options)
        assert {check.name for check in result.checks if not check.passed} == {"exact", "statistical"}
        assert {judge(cell, backend).status for cell in cells} == {"wrong"}


@pytest.mark.parametrize("kernel", VARIANTS)
def test_every_kernel_is_broken_in_more_than_ten_ways_of_its_own(kernel: str) -> None:
    every = (*MUTATIONS, *OF_WGMMA, *OF_SUB_GROUP_MMA)
    own = {mutation.name for mutation in every if kernel in mutation.kernels and not mutation.prelude}
    assert len(own) > 10


def test_every_name_is_used_once() -> None:
    names = [mutation.name for mutation in (*MUTATIONS, *OF_WGMMA, *OF_SUB_GROUP_MMA, *EQUIVALENT, *OF_FEW_PROBLEMS)]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    "mutation", [*MUTATIONS, *EQUIVALENT, *OF_FEW_PROBLEMS], ids=lambda mutation: mutation.name.replace(" ", "-")
)
def test_faults_are_planted_in_both_languages(mutation: Mutation) -> None:
    """In the product of every kernel that the fault is for: passes come before it."""
    for kernel in mutation.kernels:
        source = product_of(kernel, mutation)
        shipped = {language: assemble(source, language) for language in languages()}
        with planted(mutation, kernel):
            assert all(assemble(source, language) != text for language, text in shipped.items()), kernel


@needs(CUDA_COMPILER)
@planted_fault
@a_handful
@cases((*MUTATIONS, *EQUIVALENT, *OF_FEW_PROBLEMS))
def test_what_is_planted_compiles(kernel: str, mutation: Mutation) -> None:
    """A fault that does not would be noticed for the wrong reason."""
    source = product_of(kernel, mutation)
    with planted(mutation, kernel):
        assert compiles(assemble(source, "cuda"))


def product_of(kernel: str, mutation: Mutation) -> KernelSource:
    """The source of the product on which a mutation shows."""
    dtype, output, accumulator = mutation.types
    problem = gp.GemmProblem.create(
        61, 61, 61, dtype=dtype, output=output, accumulator=accumulator, trans_a=mutation.ops[0], trans_b=mutation.ops[1]
    )  # fmt: skip
    plan = make_plan(problem, device_for(kernel), load_configuration(), kernel=kernel, params=parameters(kernel))
    return plan.launches[-1].kernel


@planted_fault
@pytest.mark.parametrize("mutation", OF_PACK, ids=lambda mutation: mutation.name.replace(" ", "-"))
def test_faults_of_pack_are_planted_in_both_languages(mutation: Mutation) -> None:
    plan = make_plan(gp.GemmProblem.create(9, 9, 9), device_for("packed"), load_configuration(), kernel="packed")
    source = plan.launches[0].kernel
    with planted(mutation, "pack"):
        broken = {language: assemble(source, language) for language in languages()}
    assert all(broken[language] != assemble(source, language) for language in broken)
    if _nvrtc.nvrtc() is not None:
        assert is_cubin(_nvrtc.compile_cuda(broken["cuda"], "sm_90"))


@pytest.mark.parametrize("prelude", [False, True])
def test_a_fault_whose_place_is_gone_is_told(prelude: bool) -> None:
    stale = Mutation("stale", (Edit("no such text", ""),), prelude=prelude)
    problem = gp.GemmProblem.create(8, 8, 8)
    source = make_plan(problem, H200, load_configuration(), kernel="naive").launches[0].kernel
    with planted(stale, "naive"), pytest.raises(AssertionError, match="'no such text' is 0 times"):
        assemble(source, "cuda")
