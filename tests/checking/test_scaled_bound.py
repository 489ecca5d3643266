"""Products with scales: a right one is within the bound, and each that is computed otherwise is beyond it.

They are computed on the host here, in each way that a device might compute them wrongly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import pytest

from gemmport.checking.reference import reference
from gemmport.checking.scales import (
    SAMPLED_ROWS,
    Scales,
    check_scaled,
    check_scaled_rows,
    random_scales,
    scaled_bound,
    scaled_reference,
)
from gemmport.checking.verification import Check, random_operands, unit_of_cut
from gemmport.contracts.kernel import Cut
from gemmport.core.dtypes import DTYPES
from gemmport.core.problem import GemmProblem

Array = np.ndarray

OUTPUTS = ("float32", "float16", "bfloat16")
each_output = pytest.mark.parametrize("output", OUTPUTS)


def problem_of(output: str = "float32", **more: object) -> GemmProblem:
    given = {
        "m": 40,
        "n": 40,
        "k": 96,
        "batch": 2,
        "dtype": "float8_e4m3fn",
        "output": output,
        "alpha": 1.5,
        "beta": -3.0,
    }
    return GemmProblem.create(**{**given, **more})


def checked(problem: GemmProblem, computed: Callable[[Array, Array, Array, Array], Array]) -> Check:
    """The check of what is made in float32 of sums, (batch, m, n), scales, (batch, m, 1) and (batch, 1, n), and C."""
    operands, scales = random_operands(problem, 5), random_scales(problem, 7)
    sums = reference(replace(problem, alpha=1.0, beta=0.0), operands).astype(np.float32)
    c = operands["c"].astype(np.float32)
    with np.errstate(over="ignore"):
        d = computed(sums, scales.rows[:, :, np.newaxis], scales.columns[:, np.newaxis, :], c)
        return check_scaled(problem, operands, scales, d.astype(problem.output.numpy))


ALPHA, BETA = np.float32(1.5), np.float32(-3)

RIGHT: Mapping[str, Callable[[Array, Array, Array, Array], Array]] = {
    "rows first": lambda s, r, q, c: ALPHA * (s * r * q) + BETA * c,
    "columns first": lambda s, r, q, c: ALPHA * (s * q * r) + BETA * c,
    "scales multiplied first": lambda s, r, q, c: s * (ALPHA * r * q) + BETA * c,
}

WRONG: Mapping[str, Callable[[Array, Array, Array, Array], Array]] = {
    "rows scaled as columns": lambda s, r, q, c: ALPHA * s * np.swapaxes(r, 1, 2) * np.swapaxes(q, 1, 2) + BETA * c,
    "the scale of the next row": lambda s, r, q, c: ALPHA * s * np.roll(r, 1, axis=1) * q + BETA * c,
    "the scale of the next column": lambda s, r, q, c: ALPHA * s * r * np.roll(q, 1, axis=2) + BETA * c,
    "scales of the next matrix": lambda s, r, q, c: ALPHA * s * r[::-1] * q[::-1] + BETA * c,
    "the scale of the first row": lambda s, r, q, c: ALPHA * s * r[:, :1] * q + BETA * c,
    "a scale squared": lambda s, r, q, c: ALPHA * s * r * r * q + BETA * c,
    "no scales of rows": lambda s, r, q, c: ALPHA * s * q + BETA * c,
    "no scales of columns": lambda s, r, q, c: ALPHA * s * r + BETA * c,
    "divided by a scale": lambda s, r, q, c: ALPHA * s / r * q + BETA * c,
    "C scaled, too": lambda s, r, q, c: (ALPHA * s + BETA * c) * r * q,
    "no alpha": lambda s, r, q, c: s * r * q + BETA * c,
    "no C": lambda s, r, q, c: ALPHA * s * r * q,
}  # fmt: skip


@each_output
@pytest.mark.parametrize("how", RIGHT)
def test_right_products_are_within_the_bound(output: str, how: str) -> None:
    check = checked(problem_of(output), RIGHT[how])
    assert check.passed, check.detail


@each_output
@pytest.mark.parametrize("how", WRONG)
def test_wrong_ones_are_beyond_three_times_the_bound(output: str, how: str) -> None:
    assert checked(problem_of(output), WRONG[how]).error_over_bound > 3


@pytest.mark.parametrize("output", ["float16", "bfloat16"])
def test_what_is_rounded_twice_fails(output: str) -> None:
    """Before it is scaled, and before C is added."""
    narrow = DTYPES[output].numpy
    for computed in (
        lambda s, r, q, c: ALPHA * (s.astype(narrow).astype(np.float32) * r * q) + BETA * c,
        lambda s, r, q, c: ALPHA * (s * r).astype(narrow).astype(np.float32) * q + BETA * c,
        lambda s, r, q, c: (ALPHA * (s * r * q)).astype(narrow).astype(np.float32) + BETA * c,
    ):
        assert not checked(problem_of(output), computed).passed


def test_sums_in_fewer_digits_fail() -> None:
    """A relative error of 2⁻¹⁷ of each sum."""
    assert (
        checked(
            problem_of(), lambda s, r, q, c: ALPHA * (s * np.float32(1 + 2**-17) * r * q) + BETA * c
        ).error_over_bound
        > 3
    )


def test_a_scale_rounded_to_a_half_fails() -> None:
    def computed(s: Array, r: Array, q: Array, c: Array) -> Array:
        return ALPHA * (s * r.astype(np.float16).astype(np.float32) * q) + BETA * c

    assert checked(problem_of(), computed).error_over_bound > 3


def test_the_bound_in_numbers() -> None:
    """Of one element, of which every part is known."""
    problem = GemmProblem.create(1, 1, 2, dtype="float8_e5m2", output="float16", alpha=2, beta=3)
    operands = {"a": np.array([[[3.0, 4.0]]]), "b": np.array([[[5.0], [12.0]]]), "c": np.array([[[7.0]]])}
    scales = Scales(np.array([[4.0]], np.float32), np.array([[0.5]], np.float32))
    expected = scaled_reference(problem, operands, scales)
    assert expected.tolist() == [[[2 * 4 * 0.5 * 63 + 3 * 7]]]
    unit, least = 2.0**-24 + 2.0**-53, 2.0**-149
    wanted = 8 * unit * 2 * 2 * 5 * 13 + (4 * unit + 2.0**-11) * 273 + 4 * unit * 21
    wanted += least * (2 * 2 * 2 + 2 * 0.5 + 2 + 2) + 2.0**-24
    assert scaled_bound(problem, operands, scales, expected).item() == pytest.approx(wanted, rel=1e-12, abs=0)


def test_what_underflow_may_cost_in_numbers() -> None:
    """Each term, scaled with its sum; the sum, by alpha, then by the row's scale, then by the column's; and the output."""
    problem = GemmProblem.create(1, 1, 3, dtype="float8_e5m2", alpha=2)
    operands = {"a": np.zeros((1, 1, 3)), "b": np.zeros((1, 3, 1))}
    scales = Scales(np.array([[4.0]], np.float32), np.array([[0.5]], np.float32))
    bound = scaled_bound(problem, operands, scales, np.zeros((1, 1, 1)))
    assert bound.item() == 2.0**-149 * (3 * 2 * 4 * 0.5 + 2 * 0.5 + 2 + 2 + 1)


def test_rows_and_columns_are_those_of_op() -> None:
    problem = GemmProblem.create(3, 5, 7, dtype="float8_e5m2", trans_a="T", trans_b="T")
    operands, scales = random_operands(problem, 1), random_scales(problem, 2)
    d = scaled_reference(problem, operands, scales)
    check = check_scaled(problem, operands, scales, d.astype(np.float32))
    assert check.passed, check.detail
    assert check.name == "statistical"


def test_without_terms_or_c_nothing_is_allowed_for_them() -> None:
    problem = GemmProblem.create(2, 3, 0, dtype="float8_e5m2")
    operands = {"a": np.zeros((1, 2, 0)), "b": np.zeros((1, 0, 3))}
    scales = random_scales(problem, 0)
    zero = np.zeros((1, 2, 3), np.float32)
    assert check_scaled(problem, operands, scales, zero).passed
    assert not check_scaled(problem, operands, scales, zero + np.float32(1e-30)).passed


def test_scales_have_neighbours_of_other_sizes() -> None:
    scales = random_scales(problem_of(), 3)
    assert scales.rows.shape == scales.columns.shape == (2, 40)
    for each in (scales.rows, scales.columns):
        assert each.dtype == np.float32
        assert np.unique(each).size == each.size
        assert 1 / 16 <= each.min() < 1 / 4
        assert 4 < each.max() <= 16
    np.testing.assert_array_equal(scales.rows, random_scales(problem_of(), 3).rows)


@pytest.mark.parametrize("largest", [np.inf, 65504.0])
def test_what_is_too_large_for_the_output_is_infinite(largest: float) -> None:
    problem = problem_of("float16", batch=1, beta=0.0)
    operands = random_operands(problem, 5)
    scales = Scales(np.full((1, 40), 2.0**12, np.float32), np.ones((1, 40), np.float32))
    expected = scaled_reference(problem, operands, scales)
    with np.errstate(over="ignore"):
        d = expected.astype(np.float16)
    assert np.isinf(d).any()
    d[np.isinf(d)] = np.copysign(largest, expected[np.isinf(d)])
    assert check_scaled(problem, operands, scales, d).passed == np.isinf(largest)
    assert not check_scaled(problem, operands, scales, -d).passed


def rows_of(problem: GemmProblem, seed: int) -> Array:
    """Those that are looked at."""
    return np.sort(np.random.default_rng(seed).permutation(problem.m)[:SAMPLED_ROWS])


@pytest.mark.parametrize("trans_a", ["N", "T"])
@pytest.mark.parametrize("beta", [0.0, -3.0])
def test_rows_that_are_looked_at_are_judged_as_all_are(trans_a: str, beta: float) -> None:
    """Of a result with an error in each row, of which a part is as large as a bound that a unit's cut widens."""
    problem, cut = problem_of(trans_a=trans_a, beta=beta), Cut(14, 32)
    operands, scales, seed = random_operands(problem, 5), random_scales(problem, 7), 11
    expected, rows = scaled_reference(problem, operands, scales), rows_of(problem, 11)
    d = (expected + 0.5 * scaled_bound(problem, operands, scales, expected, cut)).astype(np.float32)
    for given in (None, cut):
        whole = check_scaled(problem, operands, scales, d, given)
        found = check_scaled_rows(problem, operands, scales, d, seed, given)
        assert (found.name, found.passed, whole.passed) == ("statistical", given is not None, given is not None)
        a = operands["a"][:, :, rows] if trans_a == "T" else operands["a"][:, rows]
        own = {"a": a, "b": operands["b"], **({"c": operands["c"][:, rows]} if beta else {})}
        part = check_scaled(
            replace(problem, m=SAMPLED_ROWS), own, Scales(scales.rows[:, rows], scales.columns), d[:, rows], given
        )
        assert (found.error, found.bound, found.detail) == (part.error, part.bound, part.detail)


def test_a_wrong_row_is_found_where_it_is_looked_at() -> None:
    problem = problem_of()
    operands, scales = random_operands(problem, 5), random_scales(problem, 7)
    right = scaled_reference(problem, operands, scales).astype(np.float32)
    looked_at = rows_of(problem, 3)
    assert (len(looked_at), len({*looked_at})) == (SAMPLED_ROWS, SAMPLED_ROWS)
    for row in range(problem.m):
        d = right.copy()
        d[1, row, 5] += 100
        assert check_scaled_rows(problem, operands, scales, d, 3).passed == (row not in looked_at)


def test_a_cut_widens_the_bound_by_its_unit() -> None:
    problem, cut = GemmProblem.create(1, 1, 2, dtype="float8_e5m2", alpha=2), Cut(14, 32)
    operands = {"a": np.array([[[3.0, 4.0]]]), "b": np.array([[[5.0], [12.0]]])}
    scales = Scales(np.array([[4.0]], np.float32), np.array([[0.5]], np.float32))
    expected = scaled_reference(problem, operands, scales)
    with_cut, without = (scaled_bound(problem, operands, scales, expected, each).item() for each in (cut, None))
    assert with_cut - without == pytest.approx(unit_of_cut(problem, cut) * 2 * 2 * 5 * 13, rel=1e-9)
    assert unit_of_cut(problem, cut) > 0
