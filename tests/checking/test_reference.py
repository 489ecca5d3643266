"""The reference is right: against Python's own integers and rational numbers."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemmport.checking import reference as ref
from gemmport.core.dtypes import DTYPES
from gemmport.core.problem import GemmProblem

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


@pytest.mark.parametrize(
    ("dtype", "alpha", "beta"),
    [
        ("float16", 1, 0), ("float32", 2, 1), ("float64", 0.5, 3), ("float32", 0, 2), ("complex64", 1, 1),
        ("complex64", 2 - 1j, 0), ("complex128", 0.5j, 1 + 3j),
    ],
)  # fmt: skip
@pytest.mark.parametrize(("trans_a", "trans_b"), [("N", "N"), ("T", "C"), ("R", "T")])
def test_real_and_complex_products_are_those_of_whole_numbers(
    dtype: str, alpha: Any, beta: Any, trans_a: Any, trans_b: Any
) -> None:
    rng = np.random.default_rng(5)
    problem = GemmProblem.create(
        3, 4, 5, batch=2, dtype=dtype, trans_a=trans_a, trans_b=trans_b, alpha=alpha, beta=beta
    )
    wide = np.complex128 if dtype.startswith("complex") else np.float64

    def drawn(*shape: int) -> npt.NDArray[Any]:
        parts = rng.integers(-9, 10, (2, 2, *shape))
        return (parts[0] + 1j * parts[1] if wide == np.complex128 else parts[0]).astype(dtype)

    operands: Any = {"a": drawn(*problem.stored_shape("a")), "b": drawn(*problem.stored_shape("b")), "c": drawn(3, 4)}
    left, right = operands["a"].astype(wide), operands["b"].astype(wide)
    left = {"N": left, "T": left.transpose(0, 2, 1), "R": left.conj()}[trans_a]
    right = {"N": right, "T": right.transpose(0, 2, 1), "C": right.conj().transpose(0, 2, 1)}[trans_b]
    wanted = alpha * np.einsum("xip,xpj->xij", left, right) + beta * operands["c"].astype(wide)
    found = ref.reference(problem, operands)
    assert ref.wide_type(problem) == found.dtype == wide
    assert np.array_equal(found, wanted)
    if alpha == 0:
        operands["a"] = operands["a"] * np.nan
        assert np.array_equal(ref.reference(problem, operands), wanted)
    if beta == 0:
        del operands["c"]
        assert np.array_equal(ref.reference(problem, operands), wanted)


def test_what_float32_cannot_hold_is_in_the_reference() -> None:
    operands: Any = {name: np.full((1, 1, 1), 1 + 2.0**-20, np.float32) for name in ("a", "b", "c")}
    problem = GemmProblem.create(1, 1, 1, beta=1 + 2.0**-20)
    assert ref.reference(problem, operands).item() == 2 * (1 + 2.0**-20) ** 2
    narrow: Any = {name: x.astype(np.float16) for name, x in operands.items()}
    half = GemmProblem.create(1, 1, 1, dtype="float16", output="float16", beta=1 / 3)
    assert ref.reference(half, narrow).item() == 1 + 1 / 3


def test_integers_are_multiplied_after_their_ops() -> None:
    rng = np.random.default_rng(6)
    a, b = rng.integers(-9, 9, (2, 5, 3), np.int32), rng.integers(-9, 9, (2, 4, 5), np.int32)
    problem = GemmProblem.create(3, 4, 5, batch=2, dtype="int32", trans_a="T", trans_b="T")
    assert np.array_equal(ref.reference(problem, {"a": a, "b": b}), a.transpose(0, 2, 1) @ b.transpose(0, 2, 1))


def test_a_matrix_may_serve_all_products_of_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ref, "_TERMS", 7)
    rng = np.random.default_rng(7)
    a, b = rng.integers(0, 9, (2, 3, 40)), rng.integers(0, 9, (2, 40, 5))
    for left, right in ((a, b), (a, b[0]), (a[0], b)):
        assert np.array_equal(ref.wrapped_product(left, right, bits=32), (left @ right).astype(np.uint64))


def test_dot_products_of_complex_with_real_numbers() -> None:
    a, b = np.array([[1 + 2j, 3j]]), np.array([[2.0, 5.0]])
    assert ref.exact_dots(a, b).tolist() == ref.exact_dots(b, a).tolist() == [2 + 19j]


def test_a_significand_is_split_into_halves_of_26_bits() -> None:
    x = np.random.default_rng(8).uniform(0.5, 1, 2000)
    high = ref._high_half(x)
    low = x - high
    assert np.array_equal(high * 2.0**26, np.round(high * 2.0**26))
    assert np.abs(low).max() <= 2.0**-27
