"""The reference is right: against Python's own integers and rational numbers."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemmport.checking import reference as ref
from gemmport.core.dtypes import DTYPES
from gemmport.core.precision import FORMATS
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


# Operands that are rounded


def bits(precision: str) -> np.ndarray:
    """Numbers of every sign and exponent, with significands around those that the format has, and around the ties between."""
    kept = FORMATS[precision].precision - 1
    step = 1 << (23 - kept)
    rng = np.random.default_rng(5)
    heads = np.unique([0, 1, 2, 3, (1 << kept) - 2, (1 << kept) - 1, *rng.integers(0, 1 << kept, 20)])
    tails = np.array([0, 1, step // 4, step // 2 - 1, step // 2, step // 2 + 1, step - 1])
    significands = (heads[:, np.newaxis] * step + tails).reshape(-1)
    numbers = (np.arange(512)[:, np.newaxis] << 23 | significands).reshape(-1)
    return numbers.astype(np.uint32)


def by_definition(x: np.ndarray, precision: str) -> np.ndarray:
    """Rounded by NumPy, ml_dtypes, or, to TF32, by a float64 of which the last bits are made zero."""
    if precision == "tf32":
        # Adding and subtracting a large number rounds to its last bit: 2⁵²⁺ᵉ⁻¹⁰ for numbers from 2ᵉ on.
        wide = x.astype(np.float64)
        exponent = np.maximum(np.frexp(wide)[1] - 1, -126)
        large = np.copysign(np.ldexp(1.5, 42 + exponent), wide)
        return np.where(np.isfinite(x), np.copysign((wide + large) - large, wide), wide).astype(np.float32)
    return x.astype({"float16": np.float16, "bfloat16": ml_dtypes.bfloat16}[precision]).astype(np.float32)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("precision", FORMATS)
def test_the_reference_rounds_every_bit_as_well(precision: str) -> None:
    numbers = bits(precision).view(np.float32)
    got, wanted = ref.rounded(numbers, FORMATS[precision]), by_definition(numbers, precision)
    assert np.array_equal(got, wanted, equal_nan=True)
    assert np.array_equal(np.signbit(got), np.signbit(wanted))
    pairs = ref.rounded(numbers.view(np.complex64), FORMATS[precision])
    assert np.array_equal(pairs.view(np.float32), wanted, equal_nan=True)


def test_rounding_keeps_the_type_the_shape_and_the_operands() -> None:
    turned = np.arange(24, dtype=np.float32).reshape(4, 6).T
    before = turned.copy()
    found = ref.rounded(turned, FORMATS["bfloat16"])
    assert (found.dtype, found.shape) == (turned.dtype, turned.shape)
    assert np.array_equal(found, turned)
    assert np.array_equal(
        ref.rounded(turned / np.float32(3), FORMATS["tf32"]),
        ref.rounded(turned.copy() / np.float32(3), FORMATS["tf32"]),
    )
    assert np.array_equal(turned, before)
    assert ref.rounded(np.zeros((2, 0, 3), np.complex64), FORMATS["tf32"]).shape == (2, 0, 3)


def test_many_numbers_are_rounded_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = np.random.default_rng(9).standard_normal((7, 11)).astype(np.float32)
    whole = ref.rounded(numbers, FORMATS["float16"])
    monkeypatch.setattr(ref, "_BLOCK", 5)
    assert np.array_equal(ref.rounded(numbers, FORMATS["float16"]), whole)


def test_the_reference_is_of_rounded_factors_and_of_c_as_it_is() -> None:
    problem = GemmProblem.create(3, 4, 5, precision="bfloat16", beta=2.0)
    rng = np.random.default_rng(10)
    shapes = {"a": (1, 3, 5), "b": (1, 5, 4), "c": (1, 3, 4)}
    operands = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    halves = {name: x.astype(ml_dtypes.bfloat16).astype(np.float64) for name, x in operands.items()}
    wanted = halves["a"] @ halves["b"] + 2 * operands["c"].astype(np.float64)
    assert np.allclose(ref.reference(problem, operands), wanted, rtol=1e-14, atol=0)
    plain, given = ref.as_multiplied(problem, operands)
    assert (plain.precision, given["c"] is operands["c"]) == ("full", True)
    assert ref.as_multiplied(plain, operands) == (plain, operands)
