"""Each precision is told from its neighbours: what another, or a fault of rounding, would give fails; the right passes.

Products are computed on the host here, in every way that a device might compute them wrongly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from gemmport.checking import verification as verify
from gemmport.checking.reference import applied, reference
from gemmport.checking.verification import Check
from gemmport.contracts.kernel import Cut
from gemmport.core.precision import FORMATS
from gemmport.core.problem import GemmProblem, Operand

Array = np.ndarray
Rounding = Callable[[Array], Array]


def dropped(bits: int) -> Rounding:
    """Cut off: what the units of GPUs do to the operands that they are given."""
    mask = np.uint32(0xFFFFFFFF << bits & 0xFFFFFFFF)
    return lambda x: (x.view(np.uint32) & mask).view(np.float32)


def ties_away(bits: int) -> Rounding:
    """To nearest, ties away from zero."""
    return lambda x: dropped(bits)((x.view(np.uint32) + np.uint32(1 << (bits - 1))).view(np.float32))


def ties_to_even(bits: int) -> Rounding:
    """To nearest, ties to even."""

    def rounding(x: Array) -> Array:
        whole = x.view(np.uint32)
        half = np.uint32((1 << (bits - 1)) - 1)
        return dropped(bits)((whole + half + (whole >> np.uint32(bits) & np.uint32(1))).view(np.float32))

    return rounding


def through(dtype: type) -> Rounding:
    return lambda x: x.astype(dtype).astype(np.float32)


def flushed(x: Array) -> Array:
    """To float16 on a unit that takes its subnormal numbers for zeros."""
    halves = through(np.float16)(x)
    return np.where(np.abs(halves) < 2.0**-14, np.float32(0), halves)


ROUNDINGS: Mapping[str, Rounding] = {
    "float32": lambda x: x,
    "tf32": ties_to_even(13),
    "float16": through(np.float16),
    "bfloat16": through(ml_dtypes.bfloat16),
    "cut off to tf32": dropped(13),
    "cut off to float16": lambda x: through(np.float16)(dropped(13)(x)),
    "cut off to bfloat16": dropped(16),
    "ties away to tf32": ties_away(13),
    "ties away to float16": lambda x: through(np.float16)(ties_away(13)(x)),
    "ties away to bfloat16": ties_away(16),
    "float16 flushed": flushed,
}

RIGHT = {"full": "float32", "tf32": "tf32", "float16": "float16", "bfloat16": "bfloat16"}


def made_of(
    problem: GemmProblem, operands: Mapping[Operand, Array], rounding: Rounding, sums: type = np.float32
) -> Array:
    """A product of operands that were rounded so, summed in a type."""

    def factor(operand: Operand) -> Array:
        x = np.ascontiguousarray(operands[operand])
        with np.errstate(over="ignore"):
            return rounding(x.view(np.float32)).view(x.dtype)

    with np.errstate(all="ignore"):
        left, right = applied(factor("a"), problem.trans_a), applied(factor("b"), problem.trans_b)
        if sums is not np.float32:
            total = np.zeros((problem.batch, problem.m, problem.n), sums)
            for p in range(problem.k):
                total = (total + (left[:, :, p, np.newaxis] * right[:, np.newaxis, p]).astype(sums)).astype(sums)
            return total.astype(np.float32)
        return np.matmul(left, right)


def judged(
    problem: GemmProblem, rounding: Rounding, sums: type = np.float32, cut: Cut | None = None
) -> tuple[Check, Check]:
    """The exact and the statistical check of what a device would give that rounds so."""
    whole, random = verify.exact_operands(problem, 3), verify.random_operands(problem, 3)
    exact = verify.check_exact(reference(problem, whole), made_of(problem, whole, rounding, sums))
    return exact, verify.check_random(problem, random, made_of(problem, random, rounding, sums), cut=cut)


def problem_of(precision: str, k: int = 96, dtype: str = "float32") -> GemmProblem:
    return GemmProblem.create(24, 20, k, dtype=dtype, precision=precision, trans_b="T")


@pytest.mark.parametrize("dtype", ["float32", "complex64"])
@pytest.mark.parametrize("k", [1, 96, 4096])
@pytest.mark.parametrize("precision", RIGHT)
def test_the_right_rounding_passes_both_checks(precision: str, k: int, dtype: str) -> None:
    exact, statistical = judged(problem_of(precision, k, dtype), ROUNDINGS[RIGHT[precision]])
    assert exact.passed, exact.detail
    assert statistical.passed, statistical.detail
    assert statistical.error_over_bound < 0.7


CUT = Cut(digits=24, terms=4, promoted=False)
"""Of all units that are known, that which cuts most often."""


def cut(x: Array) -> Array:
    """Numbers of float32, of which no magnitude is larger than that of the number given."""
    near = x.astype(np.float32)
    return np.where(np.abs(near.astype(np.float64)) > np.abs(x), np.nextafter(near, np.float32(0)), near)


@pytest.mark.parametrize(("k", "passes"), [(100, True), (16384, False)])
@pytest.mark.parametrize("precision", ["tf32", "float16", "bfloat16"])
def test_long_sums_that_are_cut_to_float32_pass_where_the_plan_says_so(precision: str, k: int, passes: bool) -> None:
    """As a matrix unit adds up: four products exactly, and the sum cut instead of rounded. docs/verification.md tells it."""
    problem = problem_of(precision, k)
    operands = verify.random_operands(problem, 3)
    left, right = (ROUNDINGS[precision](operands[x]).astype(np.float64) for x in ("a", "b"))
    total = np.zeros((1, problem.m, problem.n), np.float32)
    for p in range(0, k, 4):
        total = cut(total + left[:, :, p : p + 4] @ right[:, :, p : p + 4].transpose(0, 2, 1))
    assert verify.check_random(problem, operands, total).passed == passes
    assert verify.check_random(problem, operands, total, cut=CUT).error_over_bound < 0.7


OTHERS = [(precision, other) for precision, right in RIGHT.items() for other in ROUNDINGS if other != right]


@pytest.mark.parametrize("dtype", ["float32", "complex64"])
@pytest.mark.parametrize(("precision", "other"), OTHERS)
def test_any_other_rounding_fails(precision: str, other: str, dtype: str) -> None:
    """In the exact check, however long the sums are. Where the statistical one alone can tell: precision full, which rounds
    nothing, and numbers of fewer digits, which the whole ones of the exact check are among.
    """
    exact, statistical = judged(problem_of(precision, dtype=dtype), ROUNDINGS[other])
    coarser = precision in ("tf32", "float16") and other in ("bfloat16", "ties away to bfloat16")
    assert not (statistical if precision == "full" or coarser else exact).passed


FAR = [
    ("tf32", "float32"), ("tf32", "bfloat16"), ("tf32", "cut off to tf32"), ("float16", "float32"), ("float16", "bfloat16"),
    ("float16", "cut off to float16"), ("bfloat16", "float16"), ("bfloat16", "tf32"), ("bfloat16", "cut off to bfloat16"),
    ("bfloat16", "float32"), ("full", "tf32"), ("full", "bfloat16"), ("full", "float16"),
]  # fmt: skip
"""Roundings that differ for most numbers, so that random operands show them too."""


@pytest.mark.parametrize("k", [16, 4096])
@pytest.mark.parametrize(("precision", "other"), FAR)
def test_a_rounding_that_differs_for_most_numbers_is_three_times_beyond_the_bound(
    precision: str, other: str, k: int
) -> None:
    for unit in (None, CUT) if precision != "full" else (None,):
        _, statistical = judged(problem_of(precision, k), ROUNDINGS[other], cut=unit)
        assert statistical.error_over_bound > 3


@pytest.mark.parametrize("k", [64, 1024, 16384])
@pytest.mark.parametrize("sums", [np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("precision", ["tf32", "float16", "bfloat16"])
def test_sums_in_halves_fail(precision: str, sums: type, k: int) -> None:
    """However long they are: what a unit's cut may add to the bound grows with k, but stays far below."""
    problem = problem_of(precision, k)
    random = verify.random_operands(problem, 3)
    found = made_of(problem, random, ROUNDINGS[RIGHT[precision]], sums)
    assert verify.check_random(problem, random, found, cut=CUT).error_over_bound > 3


@pytest.mark.parametrize("k", [64, 1024, 16384])
@pytest.mark.parametrize("sums", [np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_narrow_types_of_which_a_unit_keeps_sums_in_halves_fail(dtype: str, sums: type, k: int) -> None:
    """A unit that adds up 16 products exactly, and keeps a half of their sum."""
    problem = GemmProblem.create(24, 20, k, dtype=dtype, output="float32", trans_b="T")
    operands = verify.random_operands(problem, 3)
    left, right = (operands[x].astype(np.float32) for x in ("a", "b"))
    total = np.zeros((1, problem.m, problem.n), sums)
    for p in range(0, k, 16):
        part = left[:, :, p : p + 16] @ right[:, :, p : p + 16].transpose(0, 2, 1)
        total = (total.astype(np.float32) + part).astype(sums)
    assert verify.check_random(problem, operands, total.astype(np.float32)).error_over_bound > 3
    assert verify.check_random(problem, operands, left @ right.transpose(0, 2, 1)).passed


@pytest.mark.parametrize("k", [64, 16384])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_a_dropped_term_of_narrow_types_fails(dtype: str, k: int) -> None:
    for output in ("float32", "float16" if dtype.startswith("float8") else dtype):
        problem = GemmProblem.create(24, 20, k, dtype=dtype, output=output, trans_b="T")
        operands = verify.random_operands(problem, 3)
        left, right = (operands[x].astype(np.float32) for x in ("a", "b"))
        short = (left[:, :, :-1] @ right[:, :, :-1].transpose(0, 2, 1)).astype(problem.output.numpy)
        assert verify.check_random(problem, operands, short).error_over_bound > 3


@pytest.mark.parametrize("precision", FORMATS)
def test_a_dropped_term_of_a_long_sum_fails(precision: str) -> None:
    problem = problem_of(precision, k=65536)
    operands = verify.random_operands(problem, 3)
    short: dict[Operand, Array] = {name: x.copy() for name, x in operands.items()}
    short["a"][:, :, -1] = 0
    check = verify.check_random(problem, operands, made_of(problem, short, ROUNDINGS[RIGHT[precision]]))
    assert not check.passed


@pytest.mark.parametrize("precision", RIGHT)
def test_a_dropped_term_and_a_wrong_scale_fail(precision: str) -> None:
    problem = problem_of(precision, k=1024)
    operands = verify.random_operands(problem, 4)
    rounding = ROUNDINGS[RIGHT[precision]]
    right = made_of(problem, operands, rounding)
    short: dict[Operand, Array] = {name: x.copy() for name, x in operands.items()}
    short["a"][:, :, -1] = 0
    assert verify.check_random(problem, operands, made_of(problem, short, rounding)).error_over_bound > 3
    assert verify.check_random(problem, operands, right * np.float32(1 + 2.0**-11)).error_over_bound > 3
    once = replace(problem, alpha=2.0)
    assert verify.check_random(once, operands, right).error_over_bound > 3


@pytest.mark.parametrize("precision", FORMATS)
def test_freivalds_check_tells_a_rounding_too(precision: str) -> None:
    problem = problem_of(precision, k=256)
    operands = verify.random_operands(problem, 5)
    for name, passes in ((RIGHT[precision], True), ("float32", False), (f"cut off to {precision}", False)):
        check = verify.check_freivalds(problem, operands, made_of(problem, operands, ROUNDINGS[name]), 6)
        assert check.passed == passes, name
        if not passes:
            assert check.error_over_bound > 3


@pytest.mark.parametrize("ops", ["NN", "NT", "TN", "TT"])
@pytest.mark.parametrize("precision", FORMATS)
def test_operands_of_the_exact_check_are_rounded_each_and_to_whole_products(precision: str, ops: str) -> None:
    k = 1000
    problem = GemmProblem.create(24, 20, k, precision=precision, trans_a=ops[0], trans_b=ops[1])
    operands = verify.exact_operands(problem, 7)
    rounded = {name: ROUNDINGS[precision](operands[name]) for name in ("a", "b")}
    assert all(0.5 < (rounded[name] != operands[name]).mean() < 0.8 for name in rounded)
    expected = reference(problem, operands)
    assert np.array_equal(expected, np.rint(expected))
    assert 8 < np.abs(expected).max() <= verify.LARGEST**2 * k
    left, right = applied(rounded["a"], ops[0])[0], applied(rounded["b"], ops[1])[0]  # type: ignore[arg-type]
    assert np.abs(left[:, ::2]).max() == verify.LARGEST
    assert np.abs(right[::2]).max() == verify.LARGEST, "the first term, and every other, is of numbers as they are"
    far = {"float16": (verify.LARGEST * 2.0**-15, 2.0**15)}.get(
        precision, (verify.LARGEST * 2.0**20, verify.LARGEST * 2.0**-20)
    )
    assert (np.abs(left[:, 1::2]).max(), np.abs(right[1::2]).max()) == far


@pytest.mark.parametrize("precision", FORMATS)
def test_sums_in_float64_are_exact_too(precision: str) -> None:
    problem = GemmProblem.create(9, 7, 33, precision=precision, output="float64")
    operands = verify.exact_operands(problem, 8)
    left, right = (ROUNDINGS[precision](operands[name]).astype(np.float64) for name in ("a", "b"))
    check = verify.check_exact(reference(problem, operands), np.matmul(left, right))
    assert check.passed, check.detail
    assert np.abs(left).max() > 8
