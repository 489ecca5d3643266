"""Contracts of kernels: parameters, rules, and that what they say of a kernel is what its sources say."""

from __future__ import annotations

import itertools
import math
import random
import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemmport import kernels
from gemmport.contracts.kernel import (
    Constraint,
    KernelVariant,
    Parameter,
    Tile,
    ceil_div,
    parameter_defines,
    problem_defines,
    run_defines,
)
from gemmport.core.device import DeviceInfo
from gemmport.core.dtypes import DTYPES
from gemmport.core.errors import ParameterError, UnknownNameError
from gemmport.core.plan import Buffer, Integer, KernelSource, ParameterValue, Scalar
from gemmport.core.problem import GemmProblem, Layout, Operand
from gemmport.runtime.sources import PRELUDE, assemble

VARIANTS = tuple(variant for variant in kernels.variants() if variant.name not in ("wgmma", "sub_group_mma"))
"""Those that both languages have, and that declare their local memory;
test_wgmma.py and test_sub_group_mma.py have what holds for the others."""

FOLDERS = {"cuda": "__shared__", "opencl": "__local"}
MOST_SAMPLES = 120

each_variant = pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.name)
TILED = [variant for variant in VARIANTS if variant.name != "gemv"]
"""Whose groups compute tiles of one size: those of gemv have as many rows as ops, types and alignment allow."""

EVEN = [variant for variant in TILED if variant.name != "batched"]
"""Whose work-items have tiles to share evenly: in batched, the last of a row or column may have less."""

each_tiled = pytest.mark.parametrize("variant", TILED, ids=lambda variant: variant.name)
each_folder = pytest.mark.parametrize("folder", FOLDERS)


MOST_COMBINATIONS = 200_000
"""Beyond them, two parameters at a time differ from the defaults."""


@cache
def samples(variant: KernelVariant) -> list[dict[str, ParameterValue]]:
    """Valid parameters of a variant: combinations of the ends of the ranges, the defaults and small numbers between."""
    values = [
        p.choices or sorted({p.minimum, int(p.default), p.maximum, *(x for x in (2, 8) if x <= p.maximum)})
        for p in variant.parameters
    ]
    names = [p.name for p in variant.parameters]
    found = []
    combinations: Iterable[tuple[ParameterValue, ...]] = itertools.product(*values)
    if math.prod(map(len, values)) > MOST_COMBINATIONS:
        defaults = tuple(p.default for p in variant.parameters)
        pairs = itertools.combinations(range(len(names)), 2)
        combinations = {
            tuple({i: x, j: y}.get(at, default) for at, default in enumerate(defaults))
            for i, j in pairs
            for x, y in itertools.product(values[i], values[j])
        }
        combinations = sorted(combinations, key=str)
    for combination in combinations:
        try:
            found.append(variant.complete(dict(zip(names, combination, strict=True))))
        except ParameterError:
            continue
    return found if len(found) <= MOST_SAMPLES else random.Random(0).sample(found, MOST_SAMPLES)


def test_there_are_variants_and_their_names_are_unlike() -> None:
    assert len({variant.name for variant in VARIANTS}) == len(VARIANTS) > 0


# Parameters


@pytest.mark.parametrize("value", [1, 16, 32])
def test_a_whole_number_in_its_range_is_taken(value: int) -> None:
    assert Parameter("TS", 16, "tile", maximum=32).check(value) == value


@pytest.mark.parametrize("value", [0, 33, -1, "16", 16.0, True, None, [16]])
def test_a_value_out_of_its_range_is_named_with_the_range_and_the_meaning(value: object) -> None:
    with pytest.raises(ParameterError) as caught:
        Parameter("TS", 16, "rows of the tile", maximum=32).check(value)
    assert str(caught.value) == f"TS = {value!r} is not allowed: it is a whole number from 1 to 32 (rows of the tile)"


@pytest.mark.parametrize("value", ["diagonal", "", 1, "STRIDED"])
def test_a_value_that_is_no_choice_is_named_with_the_choices(value: object) -> None:
    with pytest.raises(ParameterError, match=rf"ARRANGE = {value!r} is not allowed: it is one of strided, quads"):
        Parameter("ARRANGE", "strided", "order", choices=("strided", "quads")).check(value)


def test_a_bool_is_no_choice_of_a_number() -> None:
    with pytest.raises(ParameterError, match="one of 1, 2"):
        Parameter("WIDTH", 1, "width", choices=(1, 2)).check(True)


BUILT_IN = {
    "abs_diff", "any", "barrier", "clamp", "cross", "degrees", "distance", "dot", "exp", "floor", "fma", "fract",
    "length", "log", "mad", "max", "min", "mix", "mod", "normalize", "pow", "prefetch", "printf", "radians",
    "remainder", "rotate", "round", "select", "shuffle", "shuffle2", "sign", "step", "trunc", "upsample",
}  # fmt: skip
"""Functions of OpenCL C that are named by words which might be a kernel's (OpenCL C 3.0, 6.15)."""


def test_no_kernel_has_the_name_of_a_function_that_opencl_has() -> None:
    """PoCL makes macros of these names from 5.0 on: a kernel is then called otherwise than its source says."""
    sources = Path(kernels.__file__).parent / "opencl"
    kernel = re.compile(r"^__kernel\b.*?\bvoid (\w+)\(", re.MULTILINE | re.DOTALL)
    names = {name for path in sources.glob("*.cl") for name in kernel.findall(path.read_text("utf-8"))}
    assert {"shuffling", "prefetched", "simt"} <= names
    assert not names & BUILT_IN


@each_variant
def test_the_defaults_of_a_shipped_variant_are_valid(variant: KernelVariant) -> None:
    assert variant.complete({}) == {parameter.name: parameter.default for parameter in variant.parameters}


@each_variant
def test_given_values_replace_defaults(variant: KernelVariant) -> None:
    for values in samples(variant):
        assert variant.complete(values) == values


@each_variant
def test_an_unknown_parameter_is_named_with_the_known_ones(variant: KernelVariant) -> None:
    with pytest.raises(UnknownNameError) as caught:
        variant.complete({"SPEED": 11})
    known = ", ".join(parameter.name for parameter in variant.parameters)
    assert str(caught.value) == f"{variant.name} has no parameter SPEED: it has {known}"


@each_variant
def test_every_parameter_says_what_it_means(variant: KernelVariant) -> None:
    assert variant.summary
    assert all(parameter.meaning for parameter in variant.parameters)


# Constraints


@pytest.mark.parametrize(
    ("values", "numbers", "rule"),
    [
        ({"TSM": 100, "WPTM": 8}, "TSM = 100, WPTM = 8", "TSM % WPTM = 0"),
        ({"TSN": 30, "WPTN": 4}, "TSN = 30, WPTN = 4", "TSN % WPTN = 0"),
        (
            {"ARRANGE": "quads", "WPTM": 2},
            "ARRANGE = quads, WPTM = 2, WPTN = 4",
            "WPTM % 4 = 0 and WPTN % 4 = 0 with ARRANGE = quads",
        ),
        (
            {"ARRANGE": "quads", "WPTN": 2},
            "ARRANGE = quads, WPTM = 4, WPTN = 2",
            "WPTM % 4 = 0 and WPTN % 4 = 0 with ARRANGE = quads",
        ),
        ({"WPTM": 32, "WPTN": 16}, "WPTM = 32, WPTN = 16", "WPTM · WPTN ≤ 256, the sums of one work-item"),
    ],
)
def test_a_broken_constraint_prints_the_numbers_and_the_rule(
    values: Mapping[str, ParameterValue], numbers: str, rule: str
) -> None:
    with pytest.raises(ParameterError) as caught:
        kernels.variant("register_tiled").complete(values)
    assert str(caught.value) == f"register_tiled: {numbers}: the rule is {rule}"


@pytest.mark.parametrize(
    ("values", "numbers", "rule"),
    [
        ({"TSM": 62}, "TSM = 62, WPTM = 4", "TSM % WPTM = 0"),
        ({"TSN": 62}, "TSN = 62, WPTN = 4", "TSN % WPTN = 0"),
        ({"WPTN": 2}, "TSN = 64, WPTN = 2", "16 % (TSN / WPTN) = 0: a team lies in one sub-group, however wide"),
        (
            {"TSM": 4},
            "TSM = 4, TSN = 64, WPTM = 4, WPTN = 4",
            "(TSM / WPTM) · (TSN / WPTN) % 32 = 0: sub-groups are full, however wide",
        ),
        (
            {"TSK": 2},
            "TSN = 64, TSK = 2, WPTM = 4, WPTN = 4",
            "WPTM · TSK % (TSN / WPTN) = 0: a team's elements of A are shared out evenly",
        ),
        (
            {"TSN": 4, "TSK": 64, "TSM": 256},
            "TSN = 4, TSK = 64, WPTM = 4, WPTN = 4",
            "WPTM · WPTN + WPTM · TSK / (TSN / WPTN) ≤ 256, the sums and elements of A of one work-item",
        ),
        (
            {"TSM": 128, "TSN": 128, "TSK": 128, "WPTM": 8, "WPTN": 8},
            "TSK = 128, WPTM = 8, WPTN = 8",
            "WPTM · WPTN · TSK ≤ 4096, the multiply-adds of a step, which are written out",
        ),
    ],
)
def test_a_broken_constraint_of_shuffle_prints_the_numbers_and_the_rule(
    values: Mapping[str, ParameterValue], numbers: str, rule: str
) -> None:
    with pytest.raises(ParameterError) as caught:
        kernels.variant("shuffle").complete(values)
    assert str(caught.value) == f"shuffle: {numbers}: the rule is {rule}"


@pytest.mark.parametrize(
    ("kernel", "values", "numbers", "rule"),
    [
        ("wpt", {"TS": 30, "WPT": 4}, "TS = 30, WPT = 4", "TS % WPT = 0"),
        ("vectorized", {"TS": 30, "WIDTH": 4}, "TS = 30, WIDTH = 4", "TS % WIDTH = 0"),
    ],
)
def test_a_broken_rule_of_another_kernel_does_too(
    kernel: str, values: Mapping[str, ParameterValue], numbers: str, rule: str
) -> None:
    with pytest.raises(ParameterError) as caught:
        kernels.variant(kernel).complete(values)
    assert str(caught.value) == f"{kernel}: {numbers}: the rule is {rule}"


@pytest.mark.parametrize(
    ("values", "numbers", "rule"),
    [
        ({"TSM": 100, "WPTM": 8}, "TSM = 100, WPTM = 8", "TSM % WPTM = 0"),
        ({"TSN": 30, "WPTN": 4}, "TSN = 30, WPTN = 4", "TSN % WPTN = 0"),
        ({"WPTM": 2}, "WPTM = 2, WIDTH = 4", "WPTM % WIDTH = 0, whole runs of rows"),
        ({"WPTN": 2}, "WPTN = 2, WIDTH = 4", "WPTN % WIDTH = 0, whole runs of columns"),
        ({"TSK": 6}, "TSK = 6, WIDTH = 4", "TSK % WIDTH = 0, whole runs of terms"),
        ({"PAD": 1}, "PAD = 1, WIDTH = 4", "PAD % WIDTH = 0, so that rows stay aligned"),
        ({"WPTM": 32, "WPTN": 16}, "WPTM = 32, WPTN = 16", "WPTM · WPTN ≤ 256, the sums of one work-item"),
    ],
)
def test_a_broken_rule_of_runs_says_what_must_be_whole(
    values: Mapping[str, ParameterValue], numbers: str, rule: str
) -> None:
    with pytest.raises(ParameterError) as caught:
        kernels.variant("register_tiled_vectorized").complete(values)
    assert str(caught.value) == f"register_tiled_vectorized: {numbers}: the rule is {rule}"


@each_variant
def test_constraints_read_parameters_that_exist(variant: KernelVariant) -> None:
    known = {parameter.name for parameter in variant.parameters}
    assert all(set(constraint.reads) <= known for constraint in variant.constraints)


@pytest.mark.parametrize(
    ("kernel", "values", "numbers", "rule"),
    [
        ("prefetch", {"TSM": 100}, "TSM = 100, WPTM = 8", "TSM % WPTM = 0"),
        ("prefetch", {"TSN": 30}, "TSN = 30, WPTN = 4", "TSN % WPTN = 0"),
        ("prefetch", {"WPTM": 2}, "WPTM = 2, WIDTH = 4", "WPTM % WIDTH = 0, whole runs of rows"),
        ("prefetch", {"WPTN": 2}, "WPTN = 2, WIDTH = 4", "WPTN % WIDTH = 0, whole runs of columns"),
        ("prefetch", {"TSK": 6}, "TSK = 6, WIDTH = 4", "TSK % WIDTH = 0, whole runs of terms"),
        ("prefetch", {"PAD": 2}, "PAD = 2, WIDTH = 4", "PAD % WIDTH = 0, so that rows stay aligned"),
        (
            "prefetch",
            {"WPTM": 32, "WPTN": 16},
            "WPTM = 32, WPTN = 16",
            "WPTM · WPTN ≤ 256, the sums of one work-item",
        ),
        (
            "prefetch",
            {"WPTM": 16, "WPTN": 16, "TSK": 16},
            "TSK = 16, WPTM = 16, WPTN = 16",
            "TSK · WPTM · WPTN ≤ 2048, the multiply-adds that a step is written out to",
        ),
        (
            "prefetch",
            {"TSM": 512, "TSN": 8, "WPTN": 8, "TSK": 20},
            "TSM = 512, TSN = 8, TSK = 20, WPTM = 8, WPTN = 8",
            "TSK · (TSM + TSN) ≤ 128 · TSM / WPTM · TSN / WPTN, the elements of the next tiles that one work-item holds",
        ),
        ("packed", {"MC": 20}, "MC = 20, MR = 14", "MC % MR = 0, whole micro-tiles of rows"),
        (
            "packed",
            {"NR": 3, "NC": 64},
            "NC = 64, NR = 3",
            "NC % (16 · NR) = 0, whole micro-tiles of columns of any type",
        ),
        ("direct", {"RX": 6}, "RX = 6, WIDTH = 4", "RX % WIDTH = 0, whole runs of columns"),
        ("direct", {"RY": 6}, "RY = 6, WIDTH = 4", "RY % WIDTH = 0, whole runs of rows"),
        ("direct", {"RK": 6}, "RK = 6, WIDTH = 4", "RK % WIDTH = 0, whole runs of terms"),
        (
            "direct",
            {"RX": 16, "RY": 16, "RK": 8},
            "RX = 16, RY = 16, RK = 8",
            "RX · RY · RK ≤ 1024, the multiply-adds that a step is written out to",
        ),
    ],
)
def test_a_broken_rule_of_prefetch_and_of_direct_prints_them_too(
    kernel: str, values: Mapping[str, ParameterValue], numbers: str, rule: str
) -> None:
    with pytest.raises(ParameterError) as caught:
        kernels.variant(kernel).complete(values)
    assert str(caught.value) == f"{kernel}: {numbers}: the rule is {rule}"


@given(st.integers(1, 99), st.integers(1, 99))
def test_a_constraint_raises_exactly_where_its_predicate_is_false(x: int, y: int) -> None:
    constraint = Constraint("X < Y", lambda X, Y: X < Y)
    if x < y:
        constraint.check({"X": x, "Y": y, "Z": 0})
    else:
        with pytest.raises(ParameterError, match=f"^X = {x}, Y = {y}: the rule is X < Y$"):
            constraint.check({"X": x, "Y": y, "Z": 0})


# Specialization


def test_a_number_is_a_macro_with_its_value_and_a_word_is_a_macro_of_its_own() -> None:
    assert parameter_defines({"TSM": 64, "ARRANGE": "quads"}) == {"TSM": 64, "ARRANGE_QUADS": 1}


def test_types_and_ops_are_macros() -> None:
    problem = GemmProblem.create(1, 1, 1, dtype="float16", output="float64", trans_b="C")
    types = {"IN": "float16", "ACC": "float64", "OUT": "float64", "REAL_ARITHMETIC": 1, "COMPLEX_INPUT": 0}
    ops = {"TRANSPOSE_A": 0, "CONJUGATE_A": 0, "TRANSPOSE_B": 1, "CONJUGATE_B": 0}
    assert problem_defines(problem) == types | ops


@pytest.mark.parametrize(("op", "transpose", "conjugate"), [("N", 0, 0), ("T", 1, 0), ("C", 1, 1), ("R", 0, 1)])
def test_complex_operands_are_conjugated_where_their_op_says_so(op: str, transpose: int, conjugate: int) -> None:
    defines = problem_defines(GemmProblem.create(1, 1, 1, dtype="complex64", trans_a=op))
    assert (defines["TRANSPOSE_A"], defines["CONJUGATE_A"]) == (transpose, conjugate)
    assert (defines["TRANSPOSE_B"], defines["CONJUGATE_B"]) == (0, 0)


@each_tiled
@pytest.mark.parametrize(
    ("beyond", "edges"), [((0, 0, 0), 0), ((1, 0, 0), 1), ((0, -1, 0), 1)], ids=["whole", "rows", "columns"]
)
def test_edges_are_checked_where_a_tile_crosses_one(
    variant: KernelVariant, beyond: tuple[int, int, int], edges: int
) -> None:
    values = variant.complete({})
    tile = variant.tile(values)
    problem = GemmProblem.create(*(2 * extent + more for extent, more in zip(tile, beyond, strict=True)))
    defines = variant.defines(values, problem)
    assert defines["EDGES"] + defines.get("OVERLAP", 0) == edges


@pytest.mark.parametrize("name", ["tiled", "wpt", "vectorized", "register_tiled", "register_tiled_vectorized"])
@pytest.mark.parametrize(("k", "alpha", "edges"), [(17, 1, 1), (64, 1, 0), (64, 0, 1), (0, 1, 1)])
def test_an_incomplete_last_step_along_k_is_an_edge_and_so_is_a_sum_of_nothing(
    name: str, k: int, alpha: float, edges: int
) -> None:
    """Without terms, tiles are brought once all the same, of which nothing may be read."""
    variant = kernels.variant(name)
    problem = GemmProblem.create(64, 64, k, alpha=alpha)
    assert variant.defines(variant.complete({}), problem)["EDGES"] == edges


@pytest.mark.parametrize(
    ("operand", "layout", "width", "dtype", "aligned"),
    [
        ("a", Layout(64), 4, "float32", True),
        ("a", Layout(64), 8, "complex128", True),
        ("a", Layout(65), 1, "float64", True),
        ("a", Layout(66), 4, "float32", False),
        ("a", Layout(66), 2, "float32", True),
        ("a", Layout(68), 8, "int8", False),
        ("a", Layout(72), 8, "int8", True),
        ("b", Layout(64, offset=2), 4, "float32", False),
        ("b", Layout(64, offset=4), 4, "float32", True),
        ("b", Layout(64, batch_stride=6402), 4, "float32", False),
        ("b", Layout(64, batch_stride=0), 4, "float32", True),
        ("b", Layout(64, base_alignment=8), 4, "float32", False),
        ("b", Layout(64, base_alignment=16), 4, "float32", True),
        ("c", Layout(66), 4, "float32", False),
        ("d", Layout(66, 6600), 4, "float32", False),
        ("d", Layout(64, 6400, offset=8), 8, "float32", True),
    ],
)
def test_runs_are_aligned_where_every_one_of_the_operand_is(
    operand: Operand, layout: Layout, width: int, dtype: str, aligned: bool
) -> None:
    """C and D are stored together; the others of this problem are aligned to anything."""
    problem = GemmProblem.create(64, 64, 64, batch=2, dtype=dtype, **{operand: layout})
    defines = run_defines(problem, width)
    told = "D" if operand == "c" else operand.upper()
    assert {x: defines[f"ALIGNED_{x}"] for x in "ABD"} == {x: int(aligned or x != told) for x in "ABD"}


def test_runs_are_as_long_as_their_elements() -> None:
    problem = GemmProblem.create(8, 8, 8, dtype="float16", output="complex64")
    defines = run_defines(problem, 4)
    assert (defines["IN_RUN_BYTES"], defines["OUT_RUN_BYTES"], defines["SUM_LANES"]) == (8, 32, 8)


@each_variant
def test_the_same_problem_is_specialized_the_same_way_in_whatever_order_parameters_are_given(
    variant: KernelVariant,
) -> None:
    values = variant.complete({})
    backwards = dict(reversed(values.items()))
    problem = GemmProblem.create(9, 9, 9)
    assert variant.product(problem, values) == variant.product(problem, backwards)


def test_arguments_are_those_of_the_preludes_in_their_order() -> None:
    layouts = {name: Layout(ld=90 + i, batch_stride=9000 + i, offset=i) for i, name in enumerate("abcd")}
    problem = GemmProblem.create(3, 4, 5, batch=2, dtype="float64", alpha=2.0, beta=3.0, **layouts)
    variant = kernels.variant("naive")
    expected: list[object] = []
    for i, name in enumerate("abcd"):
        expected += [Buffer(name), Integer(i), Integer(90 + i), Integer(9000 + i)]
    expected += [Scalar(2.0, "float64"), Scalar(3.0, "float64"), *(Integer(size, 32) for size in (3, 4, 5))]
    assert list(variant.product(problem, variant.complete({})).arguments) == expected


@each_variant
def test_where_alpha_is_zero_no_term_is_summed(variant: KernelVariant) -> None:
    launch = variant.product(GemmProblem.create(4, 3, 5, alpha=0.0, beta=1.0), variant.complete({}))
    assert launch.arguments[18:21] == (Integer(4, 32), Integer(3, 32), Integer(0, 32))


@each_folder
def test_the_preludes_declare_as_many_arguments_as_a_launch_passes(folder: str) -> None:
    text = assemble(KernelSource("naive", "naive"), folder).replace("\\\n", " ")
    declared = re.search(r"#define GEMM_ARGUMENTS(.*)", text)
    variant = kernels.variant("naive")
    passed = variant.product(GemmProblem.create(1, 1, 1), variant.complete({})).arguments
    kinds = ["*" if isinstance(x, Buffer) else "acc_t" if isinstance(x, Scalar) else x.bits for x in passed]
    words = [part.split() for part in declared[1].split(",")]
    names = {"index_t": 64, "int": 32, "acc_t": "acc_t"}
    assert kinds == ["*" if any("*" in word for word in part) else names[part[-2]] for part in words]


def test_a_dtype_that_the_kernel_lacks_is_a_reason() -> None:
    class SingleOnly(type(kernels.variant("naive"))):
        dtypes = frozenset({"float32"})

    device = DeviceInfo("opencl", "any", "any")
    reason = SingleOnly().unsupported(GemmProblem.create(1, 1, 1, dtype="float64"), device)
    assert reason == "naive computes float32, not float64"
    assert SingleOnly().unsupported(GemmProblem.create(1, 1, 1), device) is None


@given(st.integers(0, 10**12), st.integers(1, 10**6))
def test_ceil_div_is_the_least_number_of_pieces_that_covers(value: int, by: int) -> None:
    pieces = ceil_div(value, by)
    assert pieces * by >= value > (pieces - 1) * by


# What the contract says of the sources


def _function_macros(text: str, defines: Mapping[str, ParameterValue]) -> dict[str, str]:
    """Macros without arguments that are expressions of numbers: those of the source, then those of the specialization."""
    found = dict(re.findall(r"^#define (\w+) (.+?)(?://.*)?$", text, flags=re.MULTILINE))
    return {**found, **{name: str(value) for name, value in defines.items()}}


def _evaluate(expression: str, macros: Mapping[str, str]) -> int:
    """The value of a C expression of whole numbers and macros, of which MOST is the larger of two."""
    while names := re.findall(r"\b(?!MOST\b)[A-Za-z_]\w*", expression):
        for name in names:
            expression = re.sub(rf"\b{name}\b", f"({macros[name]})", expression)
    assert re.fullmatch(r"(?:[\d\s()+*/%,-]|MOST)+", expression), f"{expression} is more than this test reads"
    return int(eval(expression.replace("/", "//"), {"MOST": max}))  # digits and operators only


def chosen(source: str, defines: Mapping[str, ParameterValue]) -> str:
    """A source without what its `#if NAME`, `#if !NAME`, `#if NAME == 4` and `#else` leave out, where NAME is one of the
    specialization.
    """

    kept: list[str] = []
    conditions: list[bool | None] = []  # those that are open: whether they hold; None where that is not known here
    for line in source.splitlines():
        match line.split():
            case ["#if", name, "==", number, *_] if name in defines:
                conditions.append(str(defines[name]) == number)
                continue
            case ["#if", name, *_] if (macro := name.removeprefix("!")) in defines:
                conditions.append(bool(defines[macro]) == (macro == name))
                continue
            case [("#if" | "#ifdef" | "#ifndef"), *_]:
                conditions.append(None)
            case ["#else", *_] if conditions[-1] is not None:
                conditions[-1] = not conditions[-1]
                continue
            case ["#endif", *_] if conditions.pop() is not None:
                continue
        if all(holds is not False for holds in conditions):
            kept.append(line)
    return "\n".join(kept)


def test_of_a_source_is_read_what_the_specialization_leaves() -> None:
    source = "#if A // why\na\n#define X\n#else\nb\n#if !C\nc\n#endif\n#endif\n#if defined(A)\nd\n#else\ne\n#endif"
    rest = "#if defined(A)\nd\n#else\ne\n#endif"
    assert chosen(source, {"A": 1, "C": 0}) == f"a\n#define X\n{rest}"
    assert chosen(source, {"A": 0, "C": 0}) == f"b\nc\n{rest}"
    assert chosen(source, {"A": 0, "C": 1}) == f"b\n{rest}"
    assert chosen(source, {}) == source
    assert chosen("#if A == 4\na\n#else\nb\n#endif", {"A": 4}) == "a"
    assert chosen("#if A == 4\na\n#else\nb\n#endif", {"A": 2}) == "b"


def declared_local_bytes(source: str, qualifier: str, defines: Mapping[str, ParameterValue]) -> int:
    """Bytes of all arrays that a source declares in local memory."""
    source = chosen(source, defines)
    itemsize = DTYPES[str(defines["ACC"])].itemsize
    macros = _function_macros(source, defines)
    total = 0
    arrays = (
        rf"^\s*{qualifier}\s+(?:__align__\(\d+\) )?(?!const)(\w+)\s+(\w.*?)(?: __attribute__.*)?;"  # pointers are none
    )
    declarations = re.findall(arrays, source, flags=re.MULTILINE)
    for element_type, declarators in declarations:
        assert element_type in ("acc_t", "wide_t"), f"a local array of {element_type} is more than this test reads"
        width = int(defines["WIDTH"]) if element_type == "wide_t" else 1
        for declarator in re.sub(r"^\s*\w+", "", declarators).split(","):
            elements = 1
            for extent in re.findall(r"\[(.+?)\]", declarator):
                elements *= _evaluate(extent, macros)
            total += elements * width * itemsize
    return total


def own_source(variant: KernelVariant, folder: str) -> str:
    """The source of a variant without its prelude."""
    (path,) = Path(kernels.__path__[0], folder).glob(f"{variant.name}.*")
    return path.read_text(encoding="utf-8")


def first_function(source: str) -> str:
    """A source as far as the second of its kernels, which another launch runs."""
    head, first, *_ = re.split(r"^(?=extern|__kernel)", source, flags=re.MULTILINE)
    return head + first


@each_variant
@each_folder
@pytest.mark.parametrize("dtype", ["int8", "float16", "float32", "float64", "complex128"])
def test_local_bytes_are_what_the_source_declares(variant: KernelVariant, folder: str, dtype: str) -> None:
    if (variant.name, dtype) == ("mma", "float32"):
        dtype = "uint8"  # tiles of TF32 follow the ops, which the prelude tells, and which this test does not read
    problem = GemmProblem.create(5, 5, 5, dtype=dtype)
    source = first_function(own_source(variant, folder))
    own = ({}, {"OWN": "a"}, {"OWN": "b"}) if variant.name == "packed" else ({},)
    for values in ({**sample, **more} for sample in samples(variant) for more in own):
        defines = variant.defines(values, problem)
        along = (
            {"A_RUNS_ALONG_K": 1 - int(defines["TRANSPOSE_A"])} if variant.name == "gemv" else {}
        )  # as the prelude has it
        declared = declared_local_bytes(source, FOLDERS[folder], {**defines, **along})
        assert variant.local_bytes(values, problem) == declared, values
        assert bool(declared) or "OWN" not in values


@each_variant
def test_the_work_group_is_what_the_source_requires(variant: KernelVariant) -> None:
    """OpenCL states all three dimensions, CUDA their product."""
    problem = GemmProblem.create(5, 5, 5)
    resident = re.search(r"RESIDENT\((.+?), .+?\)", own_source(variant, "opencl"))
    opencl = re.search(r"reqd_work_group_size\((.+?), (.+?), (.+?)\)\)", own_source(variant, "opencl"))
    cuda = re.search(r"(?:__launch_bounds__|RESIDENT)\((.+?)(?:, \w+)?\)(?:\s|$)", own_source(variant, "cuda"))
    for values in samples(variant):
        defines = variant.defines(values, problem)
        x, y, z = variant.work_group(values)
        macros = _function_macros(own_source(variant, "opencl"), defines)
        extents = (resident[1], "1", "1") if resident else opencl.groups()
        assert [_evaluate(extent, macros) for extent in extents] == [x, y, z], values
        macros = _function_macros(own_source(variant, "cuda"), defines)
        assert _evaluate(cuda[1], macros) == x * y * z, values


@each_tiled
@each_folder
def test_the_tile_is_what_the_source_steps_by(variant: KernelVariant, folder: str) -> None:
    problem = GemmProblem.create(5, 5, 5)
    source = own_source(variant, folder)
    found = re.search(r"this_tile\((.+?), (.+?), m, n\)", source)
    (part,) = Path(kernels.__path__[0], folder, PRELUDE).glob("shares.*")  # of simt and mma
    bands = re.search(r"tile.row = .+ \* (\w+);\n +tile.column = .+ \* (\w+);", part.read_text("utf-8"))
    rows, columns = (found or bands).groups()
    depth = re.search(r"start \+= (\w+)|(TSK) - missing|k - first \* (TSK)", source)
    for values in samples(variant):
        macros = _function_macros(source, variant.defines(values, problem))
        step = _evaluate(depth[1] or depth[2] or depth[3], macros) if depth else 1
        assert variant.tile(values) == Tile(_evaluate(rows, macros), _evaluate(columns, macros), step), values


# Parameters whose product is the elements of D that a work-item computes; without any, it is one.
WORK = {
    "wpt": ("WPT",),
    "vectorized": ("WIDTH",),
    "transposed_b": ("WPT",),
    "register_tiled": ("WPTM", "WPTN"),
    "register_tiled_vectorized": ("WPTM", "WPTN"),
    "shuffle": ("WPTM", "WPTN"),
    "prefetch": ("WPTM", "WPTN"),
    "padded": ("WPTM", "WPTN"),
    "direct": ("RX", "RY"),
    "packed": ("MC", "NC"),
    "simt": ("WPTM", "WPTN"),
    "batched": ("WPTM", "WPTN"),
    "mma": ("WM", "WN"),
}


def sums_per_item(variant: KernelVariant, values: Mapping[str, ParameterValue]) -> int:
    items = 32 if variant.name == "mma" else 1  # whose parameters are those of a warp
    return math.prod(int(values[name]) for name in WORK.get(variant.name, ())) // items


@pytest.mark.parametrize("variant", EVEN, ids=lambda variant: variant.name)
def test_the_work_items_of_a_group_cover_its_tile_exactly(variant: KernelVariant) -> None:
    """Sums per work-item, which `registers` counts first, times work-items are the elements of the tile."""
    for values in samples(variant):
        tile, (x, y, z) = variant.tile(values), variant.work_group(values)
        items = x * y * z // int(values.get("SLICES", 1))  # each slice has sums of the whole tile
        assert items * sums_per_item(variant, values) == tile.rows * tile.columns, values


def test_the_vectors_of_packed_and_of_one_line_of_b_fit_the_registers_of_every_device() -> None:
    """AVX-512 has 32 vector registers of 64 bytes, other instructions 16: one more holds a number of A."""
    variant, problem = kernels.variant("packed"), GemmProblem.create(5, 5, 5)
    for values, lanes in itertools.product(samples(variant), (1, 4, 8, 16)):
        device = DeviceInfo("opencl", "a CPU", "pocl", type="cpu", vector_width=lanes)
        fitted = variant.fitted(values, problem, device)
        vector, least = int(fitted["VECTOR"]), values["NR"] * 3 + 1 > 16
        assert vector <= max(4 * lanes, 16)
        assert least or variant.registers(fitted, problem) * 4 <= vector * (32 if vector == 64 else 16)


@each_folder
@pytest.mark.parametrize(
    ("macro", "items", "per_item"), [("ROW_OF", "RTSM", "WPTM"), ("COLUMN_OF", "RTSN", "WPTN")], ids=["rows", "columns"]
)
@pytest.mark.parametrize("arrange", ["STRIDED", "CONTIGUOUS", "QUADS"])
def test_every_arrangement_takes_each_row_and_column_of_a_tile_once(
    folder: str, macro: str, items: str, per_item: str, arrange: str
) -> None:
    source = own_source(kernels.variant("register_tiled"), folder)
    branch = re.search(rf"if defined\(ARRANGE_{arrange}\)(.*?)(?=#e)", source, flags=re.DOTALL)[1]
    place, work, expression = re.search(rf"#define {macro}\((\w), (\w)\) (.+)", branch).groups()
    for count, each in itertools.product([1, 2, 3, 8], [4, 8, 12]):
        macros = {items: str(count), per_item: str(each)}
        taken = [
            _evaluate(expression, {**macros, place: str(y), work: str(w)}) for y in range(count) for w in range(each)
        ]
        assert sorted(taken) == list(range(count * each))


@each_folder
@pytest.mark.parametrize(
    ("macro", "items"), [("ROW_RUN_OF", "RTSM"), ("COLUMN_RUN_OF", "RTSN")], ids=["rows", "columns"]
)
def test_every_run_of_a_tile_is_taken_once(folder: str, macro: str, items: str) -> None:
    source = own_source(kernels.variant("register_tiled_vectorized"), folder)
    place, number, expression = re.search(rf"#define {macro}\((\w), (\w)\) (.+)", source).groups()
    for count, runs in itertools.product([1, 2, 3, 8], [1, 2, 3]):
        macros = {items: str(count)}
        taken = [
            _evaluate(expression, {**macros, place: str(y), number: str(r)}) for y in range(count) for r in range(runs)
        ]
        assert sorted(taken) == list(range(count * runs))


@each_variant
def test_registers_hold_at_least_the_sums_and_double_with_float64(variant: KernelVariant) -> None:
    single, double = (GemmProblem.create(5, 5, 5, dtype=dtype) for dtype in ("float32", "float64"))
    if variant.name == "packed":  # its registers are vectors, and its tile is computed part by part
        return
    for values in samples(variant):
        assert variant.registers(values, single) >= sums_per_item(variant, values)
        if variant.name == "gemv" and values["ITEMS"] == 1:  # whose runs have as many bytes of either
            continue
        assert variant.registers(values, double) == 2 * variant.registers(values, single)


@each_folder
@pytest.mark.parametrize(
    ("kernel", "macro", "items", "runs"),
    [
        ("prefetch", "ROW_RUN_OF", "RTSM", False),
        ("prefetch", "COLUMN_RUN_OF", "RTSN", False),
        ("direct", "ROW_OF", "THREADSY", True),
        ("direct", "COLUMN_OF", "THREADSX", True),
    ],
)
def test_every_run_of_prefetch_and_every_line_of_direct_is_taken_once(
    folder: str, kernel: str, macro: str, items: str, runs: bool
) -> None:
    source = own_source(kernels.variant(kernel), folder)
    place, number, expression = re.search(rf"#define {macro}\((\w), (\w)\) (.+)", source).groups()
    for count, each, width in itertools.product([1, 2, 3, 8], [4, 8, 12], [1, 2, 4] if runs else [1]):
        macros = {items: str(count), "WIDTH": str(width)}
        taken = [
            _evaluate(expression, {**macros, place: str(y), number: str(w)}) for y in range(count) for w in range(each)
        ]
        assert sorted(taken) == list(range(count * each))
        assert all(b == a + 1 for a, b in itertools.pairwise(taken) if b % width)  # runs are of neighbours


@each_variant
@each_folder
def test_the_function_that_is_launched_is_that_of_the_source(variant: KernelVariant, folder: str) -> None:
    launched = variant.product(GemmProblem.create(1, 1, 1), variant.complete({})).kernel
    assert re.findall(r"^void (\w+)\(GEMM_ARGUMENTS\b", own_source(variant, folder), re.MULTILINE)[:1] == [
        launched.function
    ]


@pytest.mark.parametrize("folder", FOLDERS)
@pytest.mark.parametrize("variant", kernels.variants(), ids=lambda variant: variant.name)
def test_scales_are_taken_where_the_source_has_arguments_for_them(variant: KernelVariant, folder: str) -> None:
    path = Path(kernels.__file__).parent / folder / f"{variant.name}.{'cu' if folder == 'cuda' else 'cl'}"
    if path.exists() or variant.takes_scales:
        text = path.read_text(encoding="utf-8")
        functions = len(re.findall(r"^(?:extern \"C\" __global__|__kernel)", text, re.MULTILINE))
        assert text.count(" SCALE_ARGUMENTS)") == (functions if variant.takes_scales else 0)


def test_stages_multiply_local_memory_and_what_is_read_ahead_takes_registers() -> None:
    variant, problem = kernels.variant("prefetch"), GemmProblem.create(9, 9, 9, dtype="float64")
    # Tiles of 48 × 8 and 80 × 8, of which each of 60 work-items holds runs of 4: two of A, three of B.
    values = {
        "TSM": 48,
        "TSN": 80,
        "TSK": 8,
        "WPTM": 8,
        "WPTN": 8,
        "WIDTH": 4,
        "PAD": 4,
        "STAGES": 1,
        "REG_PREFETCH": 0,
    }
    one, two = (variant.complete({**values, "STAGES": stages}) for stages in (1, 2))
    assert variant.local_bytes(one, problem) == 8 * (48 + 4 + 80 + 4) * 8
    assert variant.local_bytes(two, problem) == 2 * variant.local_bytes(one, problem)
    assert variant.registers(one, problem) == 2 * (64 + 16 + 5 * 4)
    assert variant.registers(variant.complete({**values, "REG_PREFETCH": 1}), problem) == 2 * (64 + 2 * 16 + 5 * 4)


# The family


def test_an_unknown_kernel_is_named_with_the_known_ones() -> None:
    with pytest.raises(UnknownNameError) as caught:
        kernels.variant("fastest")
    assert str(caught.value) == f"no kernel 'fastest': there are {', '.join(v.name for v in kernels.variants())}"


def test_a_registered_variant_joins_the_family_last(monkeypatch: pytest.MonkeyPatch) -> None:
    class Mine(type(kernels.variant("naive"))):
        name = "mine"

    monkeypatch.setattr(kernels, "_FAMILY", {**kernels._FAMILY})
    mine = Mine()
    kernels.register(mine)
    assert kernels.variant("mine") is mine
    assert kernels.variants()[-1] == mine
