"""The reference is right: against Python's own integers and rational numbers."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemmport import reference as ref
from gemmport.dtypes import DTYPES
from gemmport.problem import GemmProblem

INTEGERS = [name for name, dtype in DTYPES.items() if dtype.kind == "integer"]


def by_hand(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> list[list[int]]:
    """The product in Python's integers."""
    return [[sum(int(x) * int(y) for x, y in zip(row, column, strict=True)) for column in b.T] for row in a]


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("output", ["int8", "int32", "int64", "uint64"])
def test_integers_are_exact_modulo_the_size_of_the_output(dtype: str, output: str) -> None:
    rng = np.random.default_rng(0)
    limits = np.iinfo(dtype)
    problem = GemmProblem.create(3, 4, 50, dtype=dtype, output=output, alpha=-3, beta=5)
    a, b = (rng.integers(limits.min, limits.max, shape, dtype, endpoint=True) for shape in ((3, 50), (50, 4)))
    c = rng.integers(0, 100, (3, 4)).astype(output)
    wanted = np.array(by_hand(a, b), object) * -3 + c.astype(object) * 5
    got = ref.reference(problem, {"a": a[None], "b": b[None], "c": c[None]})[0]
    assert got.dtype == output
    assert (got.astype(object) - wanted).tolist() == [
        [((x - y) // 2 ** (8 * got.itemsize)) * 2 ** (8 * got.itemsize) for x, y in zip(*rows, strict=True)]
        for rows in zip(got.astype(object), wanted, strict=True)
    ]


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_agree_with_numpy(dtype: str) -> None:
    rng = np.random.default_rng(1)
    limits = np.iinfo(dtype)
    a, b = (rng.integers(limits.min, limits.max, shape, dtype, endpoint=True) for shape in ((2, 7, 30), (2, 30, 5)))
    got = ref.reference(GemmProblem.create(7, 5, 30, batch=2, dtype=dtype), {"a": a, "b": b})
    np.testing.assert_array_equal(got, a @ b)


def test_truth_values_are_the_or_of_ands() -> None:
    rng = np.random.default_rng(2)
    a, b, c = rng.random((1, 9, 6)) < 0.3, rng.random((1, 6, 8)) < 0.3, rng.random((1, 9, 8)) < 0.3
    problem = GemmProblem.create(9, 8, 6, dtype="bool", beta=1)
    np.testing.assert_array_equal(ref.reference(problem, {"a": a, "b": b, "c": c}), (a @ b) | c)


def test_long_sums_of_integers_are_cut_into_pieces_that_stay_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    a, b = rng.integers(-(2**31), 2**31, (2, 100)), rng.integers(-(2**31), 2**31, (100, 3))
    whole = ref.wrapped_product(a, b, bits=64)
    monkeypatch.setattr(ref, "_TERMS", 7)
    np.testing.assert_array_equal(ref.wrapped_product(a, b, bits=64), whole)
    assert whole.tolist() == [[x % 2**64 for x in row] for row in by_hand(a, b)]


@settings(max_examples=30)
@given(st.integers(0, 2**32 - 1), st.integers(1, 60))
def test_dot_products_round_once(seed: int, terms: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = rng.standard_normal((2, 1, terms)) * 2.0 ** rng.integers(-40, 40, (2, 1, terms))
    exact = sum(Fraction(x) * Fraction(y) for x, y in zip(a[0], b[0], strict=True))
    assert ref.exact_dots(a, b).tolist() == [float(exact)]


def test_dot_products_of_complex_numbers_round_each_part_once() -> None:
    rng = np.random.default_rng(4)
    a, b = (rng.standard_normal((1, 50)) + 1j * rng.standard_normal((1, 50)) for _ in range(2))
    pairs = [tuple(map(Fraction, (x.real, x.imag, y.real, y.imag))) for x, y in zip(a[0], b[0], strict=True)]
    real = float(sum(p * r - q * s for p, q, r, s in pairs))
    imaginary = float(sum(p * s + q * r for p, q, r, s in pairs))
    assert ref.exact_dots(a, b).tolist() == [complex(real, imaginary)]


@pytest.mark.parametrize(
    ("op", "wanted"), [("N", [[1j, 2]]), ("T", [[1j], [2]]), ("C", [[-1j], [2]]), ("R", [[-1j, 2]])]
)
def test_ops(op: Any, wanted: list[list[complex]]) -> None:
    assert ref.applied(np.array([[1j, 2]]), op).tolist() == wanted
