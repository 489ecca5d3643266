"""`wgmma` on the CPU, by Hopper's units as the PTX ISA has them (hopper.cpp): exact in every order of turns; faults show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

import gemmport as gp
from absences import CXX, needs
from exact import Sizes, check, check_plan, problem_of, run_plan
from gemmport import kernels
from gemmport.checking.guarded_run import try_plan
from gemmport.checking.reference import reference
from gemmport.checking.verification import check_exact, check_random, cut_of, exact_operands, random_operands
from gemmport.contracts.kernel import Parameters
from gemmport.core.dtypes import as_dtype
from gemmport.core.problem import transposes
from host import ORDERS, Host
from mutations import OF_WGMMA, Edit, Mutation, planted
from on_device import check_scales_of_kernel
from on_host import fault, in_every_order, opened, product
from test_kernels import BASE, STRUCTURES

pytestmark = needs(CXX)

TYPES: tuple[dict[str, str], ...] = (
    *({"dtype": dtype, "output": output} for dtype in ("float16", "bfloat16") for output in (dtype, "float32")),
    *({"dtype": dtype, "output": output} for dtype in ("int8", "uint8") for output in (dtype, "int32")),
    {"dtype": "float32", "precision": "tf32"},
    {"dtype": "float8_e4m3fn", "output": "float32"},
    {"dtype": "float8_e5m2", "output": "bfloat16"},
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


@pytest.mark.sample(beta=[0.0], dtype=["bfloat16"])
@pytest.mark.parametrize("dtype", ["bfloat16", "int8", "float32", "float8_e4m3fn"])
@pytest.mark.parametrize("beta", [0.0, 0.5])
def test_what_is_launched_meanwhile_writes_the_same_bits(cpu: Host, beta: float, dtype: str) -> None:
    """Loops that are not written out, and nothing that reads C where it is poison; parts of shared tiles, too."""
    ops = "NN" if dtype == "bfloat16" else "NT"
    more = {"int8": {"beta": 2 * beta, "output": "int32"}, "float32": {"beta": beta, "precision": "tf32"}}
    problem = addressable(Sizes(67, 131, 201), ops, dtype, multiple=16, **more.get(dtype, {"beta": beta}))
    own = gp.plan(problem, cpu.device, kernel="wgmma", params={**ALONE, "SHARE": 1})
    soon = replace(own, launches=own.meanwhile)
    assert [launch.kernel.function for launch in soon.launches] == [launch.kernel.function for launch in own.launches]
    assert all(dict(launch.kernel.defines)["SOON"] == 1 for launch in soon.launches if launch.kernel.stem == "wgmma")
    check_plan(cpu, soon)
    values = random_operands(problem, 5)
    np.testing.assert_array_equal(run_plan(cpu, soon, values), run_plan(cpu, own, values))


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
    """Tiles that groups share along k, behind others that they do not; tiles that are all shared, by clusters too."""
    base = {**BASE["wgmma"], "TSN": 128}
    for sizes, more, launches in (
        (Sizes(190, 400, 500), {}, ["wgmma", "wgmma", "combine"]),
        (Sizes(100, 200, 1100), {}, ["wgmma", "combine"]),
        (Sizes(200, 200, 1100), {"TSM": 128, "CLUSTER": "a"}, ["wgmma", "combine"]),
        (Sizes(100, 200, 1100), {"CLUSTER": "b"}, ["wgmma", "combine"]),
    ):
        params = {**base, **more}
        problem = addressable(sizes, ops, "float16", alpha=2.0, beta=-1.0)
        plan = gp.plan(problem, cpu.device, kernel="wgmma", params=params)
        assert [launch.kernel.function for launch in plan.launches] == launches
        in_every_order(cpu, partial(check, cpu, problem, "wgmma", params))


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
) | st.fixed_dictionaries(
    {
        **{name: st.sampled_from([64, 128]) for name in ("TSM", "TSN")},
        "STAGES": st.integers(2, 4),
        "RASTER": st.integers(1, 4),
        "CLUSTER": st.sampled_from(["a", "b", "d"]),
        "EARLY": st.sampled_from([0, 1]),
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
    problem = problem_of(sizes, ops, **types, **more)
    wgmma = kernels.variant("wgmma")
    hypothesis.assume(wgmma.unfit(wgmma.complete(params), problem, cpu.device) is None)
    cpu.order, cpu.seconds = order, 60.0
    check(cpu, problem, "wgmma", params)


# Other types, which lie along k

ALONG_K: Mapping[str, dict[str, str]] = {
    "int8": {"output": "int32"},
    "uint8": {"output": "int32"},
    "float8_e4m3fn": {"output": "float32"},
    "float8_e5m2": {"output": "bfloat16"},
}
"""By type of the operands, what else a product says."""


@pytest.mark.sample(dtype=["int8", "float8_e4m3fn"], ops=["TN"])
@pytest.mark.parametrize("dtype", ALONG_K)
@pytest.mark.parametrize("ops", ["NN", "NT", "TN", "TT"])
def test_products_of_bytes_are_exact_in_every_order(cpu: Host, dtype: str, ops: str) -> None:
    """With edges, scaled, of a batch: rows that are transposed, or laid out anew, or aligned."""
    for multiple in (1, 16):
        problem = addressable(
            Sizes(67, 131, 301), ops, dtype, multiple=multiple, batch=2, alpha=2.0, beta=-1.0, **ALONG_K[dtype]
        )
        in_every_order(cpu, lambda problem=problem: check(cpu, problem, "wgmma", ALONE))


@pytest.mark.parametrize("dtype", ["int8", "float8_e4m3fn"])
def test_shared_tiles_of_bytes_are_exact(cpu: Host, dtype: str) -> None:
    problem = addressable(Sizes(190, 400, 1000), "NT", dtype, multiple=16, alpha=2.0, beta=-1.0, **ALONG_K[dtype])
    params = {**BASE["wgmma"], "TSN": 128}
    assert len(gp.plan(problem, cpu.device, kernel="wgmma", params=params).launches) == 3
    in_every_order(cpu, lambda: check(cpu, problem, "wgmma", params))


@pytest.mark.sample(number=[1])
@pytest.mark.parametrize("number", range(len(OWN_STRUCTURES)))
def test_tiles_of_bytes_of_any_shape_are_exact(cpu: Host, number: int) -> None:
    """8-bit floats, of which registers hold two sums, in tiles of half as many columns."""
    params = OWN_STRUCTURES[number]
    for dtype, columns in (("int8", int(params["TSN"])), ("float8_e5m2", min(int(params["TSN"]), 64))):
        sizes = Sizes(int(params["TSM"]) + 1, columns + 9, 300)
        problem = addressable(sizes, "NT", dtype, multiple=16, beta=1.0, **ALONG_K[dtype])
        check(cpu, problem, "wgmma", {**params, "TSN": columns})


def check_tf32(cpu: Host, ops: str = "TN") -> None:
    """Operands that show each fault of rounding (docs/verification.md), and nothing but D is written."""
    problem = problem_of(Sizes(67, 70, 133), ops, "float32", batch=2, alpha=2.0, beta=-1.0, precision="tf32")
    plan = gp.plan(problem, cpu.device, kernel="wgmma", params=ALONE)
    operands = exact_operands(problem, 1)
    trial = try_plan(cpu, plan, operands)
    assert not trial.stray
    found = check_exact(reference(problem, operands), trial.d)
    assert found.passed, f"wrong: {found.detail}"


@pytest.mark.sample(ops=["TN"])
@pytest.mark.parametrize("ops", ["NN", "NT", "TN", "TT"])
def test_products_of_tf32_are_those_of_rounded_operands(cpu: Host, ops: str) -> None:
    in_every_order(cpu, lambda: check_tf32(cpu, ops))


def check_many_terms(cpu: Host, dtype: str = "float8_e4m3fn", terms: int = 4111) -> None:
    """Sums of 9 · 4111: the simulated unit keeps 14 bits, which hold those of 128 terms, and not those of 2,048 and more."""
    a, b = (np.full(shape, 3, as_dtype(dtype).numpy) for shape in ((3, terms), (5, terms)))
    plan = gp.plan(
        gp.GemmProblem.create(3, 5, terms, dtype=dtype, trans_b="T"), cpu.device, kernel="wgmma", params=ALONE
    )
    got = try_plan(cpu, plan, {"a": a[np.newaxis], "b": b[np.newaxis]}).d
    assert (got == 9 * terms).all(), f"wrong: {got[0, 0, 0]}, not {9 * terms}"


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2"])
def test_sums_of_8_bit_floats_are_those_of_float32_step_by_step(cpu: Host, dtype: str) -> None:
    check_many_terms(cpu, dtype)


def check_statistically(cpu: Host, dtype: str, terms: int = 4111) -> None:
    """Random numbers, by the bound for a unit that cuts."""
    problem = gp.GemmProblem.create(64, 64, terms, dtype=dtype, trans_b="T")
    plan = gp.plan(problem, cpu.device, kernel="wgmma", params=ALONE)
    operands = random_operands(problem, 1)
    found = check_random(problem, operands, try_plan(cpu, plan, operands).d, cut=cut_of(plan))
    assert found.passed, f"wrong: {found.detail}"


@pytest.mark.sample(dtype=["float8_e4m3fn"])
@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2"])
@pytest.mark.parametrize("terms", [32, 128, 4111])
def test_promoted_sums_are_within_the_bound_of_what_is_cut(cpu: Host, dtype: str, terms: int) -> None:
    check_statistically(cpu, dtype, terms)


# Scales

SCALED_TYPES: Mapping[str, dict[str, str]] = {
    "float8_e4m3fn": {"output": "bfloat16"},
    "float8_e5m2": {"output": "float32"},
    "bfloat16": {},
    "float32": {"precision": "tf32"},
}


SHARED: Parameters = {**BASE["wgmma"], "TSN": 128}


def check_scales(cpu: Host, dtype: str = "float8_e4m3fn", scaled: str = "rows, columns", **more: object) -> None:
    """With edges, of a batch, which scales differ in; D has gaps."""
    own: dict[str, object] = {"batch": 3, "alpha": 2.0, "beta": -1.0, "params": ALONE, **more}
    params = own.pop("params")
    sizes = Sizes(190, 400, 1000) if params is SHARED else Sizes(67, 131, 201)
    d = gp.Layout(sizes.n + 8, (sizes.n + 8) * (sizes.m + 3), 5)
    problem = addressable(sizes, "NT", dtype, multiple=16, d=d, **SCALED_TYPES[dtype], **own)
    functions = [
        launch.kernel.function for launch in gp.plan(problem, cpu.device, kernel="wgmma", params=params).launches
    ]
    assert ("combine" in functions) == (params is SHARED)
    for cpu.order in ORDERS if params is ALONE else ["shuffled"]:
        check_scales_of_kernel(cpu, "wgmma", problem, params, scaled)


@pytest.mark.sample(dtype=["float8_e4m3fn"])
@pytest.mark.parametrize("dtype", SCALED_TYPES)
def test_sums_are_scaled_as_they_are_stored(cpu: Host, dtype: str) -> None:
    check_scales(cpu, dtype)


@pytest.mark.parametrize("scaled", ["rows", "columns"])
def test_rows_or_columns_alone_are_scaled(cpu: Host, scaled: str) -> None:
    check_scales(cpu, scaled=scaled, beta=0.0)


@pytest.mark.parametrize(
    "params",
    [SHARED, {**ALONE, "EARLY": 1}, {**ALONE, "CLUSTER": "d"}],
    ids=["shared", "early", "cluster"],
)
def test_sums_in_parts_of_launches_that_begin_early_and_of_clusters_are_scaled(cpu: Host, params: Parameters) -> None:
    check_scales(cpu, params=params)


def test_whole_tiles_are_scaled(cpu: Host) -> None:
    """Whose kernel asks of no row whether it is there."""
    problem = gp.GemmProblem.create(128, 128, 256, dtype="float8_e4m3fn", output="bfloat16", trans_b="T")
    check_scales_of_kernel(cpu, "wgmma", problem, {**ALONE, "TSM": 64, "TSN": 64})


SCALE_FAULTS = (
    ("the scale of the row above", r"row_scale\(scales, below\)", "row_scale(scales, below > 0 ? below - 1 : 1)"),
    ("one column's scale for a run", r"column_scale\(scales, column \+ w \* APART\)", "column_scale(scales, column)"),
    ("the first matrix's scales", r"(AWAIT_BEFORE\(\)\n +const scales_t scales = SCALES_OF)\(tile\.batch\)", r"\1(0)"),
    (
        "the first matrix's scales of shared tiles",
        r"(ranked_tile\(whole.*\n +const scales_t scales = SCALES_OF)\(tile\.batch\)",
        r"\1(0)",
    ),
    ("no scale of columns", r" \* ELEMENT\(of_columns, w\)", ""),
    ("twice the scale of the row", r"\* of_row \*", "* of_row * of_row *"),
    (
        "scales that C has, too",
        r"sums, alpha, beta, 0, PRESENT\(below",
        "sums, alpha, beta * row_scale(scales, min(below, m - 1)), 0, PRESENT(below",
    ),
)


@pytest.mark.planted_fault
@pytest.mark.sample(name=["the scale of the row above"])
@pytest.mark.parametrize(("name", "pattern", "replacement"), SCALE_FAULTS, ids=[name for name, *_ in SCALE_FAULTS])
def test_each_fault_of_scales_shows(cpu: Host, name: str, pattern: str, replacement: str) -> None:
    mutation = Mutation(name, (Edit(pattern, replacement),), ("wgmma",))
    told = r"wrong|outside"
    with planted(mutation, "wgmma"), pytest.raises((AssertionError, gp.LaunchError), match=told):
        check_scales(cpu, params=SHARED if "shared" in name else ALONE)


# Faults

FAULTS_ALONG_K: Mapping[str, tuple[str, tuple[tuple[str, str], ...]]] = {
    "the unit adds up all steps": (
        "promotion",
        ((r"1\), turn > 0, 0, 0\)", "1), turn > 0 || step > part.first, 0, 0)"), (r"sum_of\(sum\[r\]\[s\], few", "(few")),
    ),
    "the unit's sums are not begun anew": ("promotion", ((r"1\), turn > 0, 0, 0\)", "1), 1, 0, 0)"),)),
    "the last step alone": ("promotion", ((r"sum_of\(sum\[r\]\[s\], few", "(few"),)),
    "sums of the tile before": (
        "float8_e4m3fn",
        ((r"= ACC_ZERO;\n( +)for \(int step", r"+= ACC_ZERO;\n\1for (int step"),),
    ),
    "sums that are not awaited": ("float8_e4m3fn", ((r"GROUP_WAIT\(0\);\n( +if \(r ==)", r"\1"),)),
    "a stage that stays taken": (
        "float8_e4m3fn", ((r"\n +if \(r == .*\n +TELL_FREE\(free \+ stage\.number\);", ""),),
    ),
    "no fence of sums": (
        "float8_e4m3fn",
        ((r"GROUP_FENCE\(\);(\n(?:.*\n){1,7}? +MUL_ADD\(few)", r"\1"),),
    ),
    **{
        name: ("tf32", ((pattern, replacement),))
        for name, pattern, replacement in (
            ("A is cut", r"ROUND_TO_TF32\(.*\);", ";"),
            ("A is overwritten while it is read", r"multiply_stage\(sum, odd,", "multiply_stage(sum, even,"),
            ("A that the unit was not let see", r"GROUP_FENCE\(\);(\n +#pragma unroll\n.*\n +MUL_ADD_LINES)", r"\1"),
            ("lines of A exchanged", r"w % 2 \* 8, term", "(1 - w % 2) * 8, term"),
            ("terms of A exchanged", r"w / 2 \* 4;", "(1 - w / 2) * 4;"),
            ("pieces of A where they were", r"\(piece\) \^ \(row\) % 8", "(piece)"),
            ("A of the first 32 lines", r"\(line\) / TSK \* ACROSS_BYTES \+", ""),
            ("sums of every second step", r"turn > 0 \|\| adds", "turn > 0"),
        )
    },
    **{
        f"{name} of {dtype}": (dtype, ((pattern, replacement),))
        for dtype in ("int8", "float8_e4m3fn", "tf32")
        for name, pattern, replacement in (
            ("the distance of eight lines", r"EIGHT_BYTES \(8 \* ROW_BYTES\)", "EIGHT_BYTES (4 * ROW_BYTES)"),
            ("the terms of each turn", r"\(along_k\) \? TURN_BYTES", "(along_k) ? TURN_BYTES / 2"),
            ("the swizzle", r"BLOCK_BYTES, EIGHT_BYTES\)", "BLOCK_BYTES, EIGHT_BYTES) & ~(3ull << 62)"),
            ("the terms of each step", r"x_b, y_b, tile\.column, TERM_OF\(step\)", "x_b, y_b, tile.column, TERM_OF(step) / 2"),
            ("places of staged sums", r"STAGED_AT\(lane / 4 \+ h \* 8", "STAGED_AT(lane / 4 * 2 + h"),
        )
    },
}  # fmt: skip
"""Of what other types do otherwise: who shall notice, and the edits."""


@pytest.mark.planted_fault
@pytest.mark.sample(name=["the unit adds up all steps"])
@pytest.mark.parametrize("name", FAULTS_ALONG_K)
def test_each_fault_of_other_types_shows(cpu: Host, name: str) -> None:
    noticed_by, edits = FAULTS_ALONG_K[name]
    mutation = Mutation(name, tuple(Edit(*each) for each in edits), ("wgmma",))
    told = r"wrong|waits in line|lacks GROUP_FENCE|were touched|not awaited|product|outside|copy"
    with planted(mutation, "wgmma"), pytest.raises((AssertionError, gp.LaunchError), match=told):
        check_type(cpu, noticed_by)


def check_type(cpu: Host, noticed_by: str) -> None:
    if noticed_by == "promotion":
        check_many_terms(cpu)
    elif noticed_by == "tf32":
        check_tf32(cpu)
    else:
        more = {"batch": 3, "beta": -1.0, **ALONG_K[noticed_by]}
        problem = addressable(Sizes(130, 131, 330), "NT", noticed_by, multiple=16, **more)
        in_every_order(cpu, lambda: check(cpu, problem, "wgmma", ALONE))


@pytest.mark.planted_fault
@pytest.mark.parametrize("ops", ["NT", "TN"])
def test_the_unit_cuts_what_is_not_rounded(cpu: Host, ops: str) -> None:
    """The pass rounds B. Along k (NT) it does nothing else, and across it transposes as well (TN)."""
    unrounded = fault(r"TAKEN\(x\) __float_as_uint.*", "TAKEN(x) (x)", "relayout")
    with planted(unrounded, "relayout"), pytest.raises(AssertionError, match="wrong"):
        check_tf32(cpu, ops)


def check_packed(cpu: Host, dtype: str, params: Parameters = ALONE) -> None:
    """Numbers that are rounded before they are staged: D has aligned rows, gaps, and edges within runs, and C is not read."""
    d = gp.Layout(152, 152 * 70, 8)
    problem = addressable(Sizes(67, 131, 201), "NT", dtype, batch=2, alpha=2.0, c=d, d=d)
    in_every_order(cpu, lambda: check(cpu, problem, "wgmma", params))


@pytest.mark.sample(dtype=["bfloat16"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_numbers_are_rounded_before_they_are_staged(cpu: Host, dtype: str) -> None:
    check_packed(cpu, dtype)


PACKED_FAULTS = (
    ("other rows", r"PACKED_AT\(lane / 4 \+ h \* 8", "PACKED_AT(lane / 4 * 2 + h"),
    (
        "a pair exchanged",
        r"\(pair, scaled\(alpha, (.*?)\), scaled\(alpha, (.*?)\)\);",
        r"(pair, scaled(alpha, \2), scaled(alpha, \1));",
    ),
    ("pairs exchanged", r"x\) \* 4 \+ lane % 4\]", "x) * 4 + 3 - lane % 4]"),
    ("not scaled", r"scaled\(alpha, sum\[x \* 4 \+ h \* 2\]\)", "sum[x * 4 + h * 2]"),
    ("runs where they were", r"PACKED_AT\(lane / RUNS_N \+ r \* STEP, lane % RUNS_N\)", "lane + r * WARP"),
    (
        "numbers beyond the edge",
        r"if \(w < present\)\n( +)d\[w\] = RUN_ELEMENT\(const out_t, run, w\);",
        r"if (w < present + (present > 0))\n\1d[w] = RUN_ELEMENT(const out_t, run, w);",
    ),
    (
        "rows that are not complete",
        r"__syncwarp\(\); // the rows are complete\n( +const int i = row \+ \(int\))",
        r"\1",
    ),
)


@pytest.mark.planted_fault
@pytest.mark.sample(name=["other rows"])
@pytest.mark.parametrize(("name", "pattern", "replacement"), PACKED_FAULTS, ids=[name for name, *_ in PACKED_FAULTS])
def test_each_fault_of_packed_numbers_shows(cpu: Host, name: str, pattern: str, replacement: str) -> None:
    mutation = Mutation(name, (Edit(pattern, replacement),), ("wgmma",))
    with planted(mutation, "wgmma"), pytest.raises((AssertionError, gp.LaunchError), match=r"wrong|outside"):
        check_packed(cpu, "bfloat16")


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
