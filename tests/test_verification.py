"""The checks pass what is right and fail what is wrong, each on its own planted fault."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemmport import verification as verify
from gemmport.layout import matrices
from gemmport.problem import GemmProblem, Layout
from gemmport.reference import applied, reference


def product(problem, operands, dtype=None):
    """D as a plain, sequential product in one precision: the largest error an honest kernel makes."""
    kind = dtype or problem.accumulator.numpy
    left = applied(operands["a"], problem.trans_a).astype(kind)
    right = applied(operands["b"], problem.trans_b).astype(kind)
    total = np.zeros((problem.batch, problem.m, problem.n), kind)
    for p in range(problem.effective_k):
        total += left[:, :, p, None] * right[:, p, None, :]
    scaled = kind.type(problem.alpha) * total
    if problem.beta != 0:
        scaled += kind.type(problem.beta) * operands["c"]
    return scaled.astype(problem.output.numpy)


def rounded_to(x, bits):
    """x with its significand rounded to so many bits: 11 for TF32, 8 for bfloat16."""
    scaled, exponent = np.frexp(x.astype(np.float64))
    return np.ldexp(np.round(scaled * 2.0**bits) / 2.0**bits, exponent).astype(x.dtype)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize(("m", "n", "k"), [(1, 1, 1), (7, 5, 3), (33, 17, 100), (16, 24, 2000)])
@pytest.mark.parametrize(("alpha", "beta"), [(1.0, 0.0), (-2.5, 0.75)])
def test_an_honest_product_is_well_within_the_statistical_bound(dtype, m, n, k, alpha, beta):
    if dtype.startswith("complex") and beta:
        alpha, beta = 1.5 - 2j, 0.5j
    problem = GemmProblem.create(m, n, k, batch=2, dtype=dtype, trans_a="C", alpha=alpha, beta=beta)
    operands = verify.random_operands(problem, 1)
    check = verify.check_random(problem, operands, product(problem, operands))
    assert check.passed
    if problem.output.precision == problem.accumulator.precision:  # else the bound is the rounding of the output
        assert check.error_over_bound < 0.7


@pytest.mark.parametrize(("dtype", "wide"), [("float32", "float64"), ("complex64", "complex128")])
def test_the_relative_error_is_in_the_frobenius_norm(dtype, wide):
    problem = GemmProblem.create(3, 2, 40, batch=2, dtype=dtype)
    operands = verify.random_operands(problem, 3)
    exact = product(problem, operands, np.dtype(wide))
    d = exact.astype(problem.output.numpy)
    d[0, 0, 1] += 0.25
    d[1, 2, 0] -= 0.5
    norm = np.sqrt(np.sum(np.abs(exact) ** 2))
    assert verify.check_random(problem, operands, d).relative == pytest.approx(np.hypot(0.25, 0.5) / norm, rel=1e-5)


def test_a_relative_error_that_is_no_number_is_none():
    problem = GemmProblem.create(3, 2, 4, alpha=0.0)
    operands = verify.random_operands(problem, 3)
    assert verify.check_random(problem, operands, np.zeros((1, 3, 2), np.float32)).relative is None
    problem = GemmProblem.create(3, 2, 4)
    assert verify.check_random(problem, operands, np.full((1, 3, 2), np.inf, np.float32)).relative is None


@pytest.mark.parametrize("k", [1, 32, 1000, 20000])
@pytest.mark.parametrize("bits", [pytest.param(11, id="TF32"), pytest.param(8, id="bfloat16")])
def test_a_product_of_rounded_inputs_fails_as_float32(k, bits):
    problem = GemmProblem.create(24, 24, k)
    operands = verify.random_operands(problem, 2)
    low = {name: rounded_to(x, bits) for name, x in operands.items()}
    assert not verify.check_random(problem, operands, reference(problem, low).astype(np.float32)).passed


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("k", [2, 100, 20000])
def test_a_dropped_last_term_fails(dtype, k):
    problem = GemmProblem.create(16, 16, k, dtype=dtype)
    operands = verify.random_operands(problem, 3)
    without = {**operands, "a": operands["a"].copy()}
    without["a"][:, :, -1] = 0
    wrong = reference(problem, without).astype(dtype)
    assert not verify.check_random(problem, operands, wrong).passed


def test_a_float32_product_fails_as_float64():
    problem = GemmProblem.create(20, 20, 50, dtype="float64")
    operands = verify.random_operands(problem, 4)
    assert not verify.check_random(problem, operands, product(problem, operands, np.dtype("float32"))).passed


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_an_element_that_is_no_number_fails(value):
    problem = GemmProblem.create(8, 8, 8)
    operands = verify.random_operands(problem, 5)
    d = product(problem, operands)
    d[0, 3, 4] = value
    check = verify.check_random(problem, operands, d)
    assert not check.passed
    assert "row 3 column 4" in check.detail
    assert verify.check_exact(reference(problem, operands), d).error == math.inf


@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 60), st.sampled_from("NT"), st.sampled_from("NT"))
@settings(max_examples=30)
def test_exact_operands_need_no_rounding_in_any_order(m, n, k, trans_a, trans_b):
    problem = GemmProblem.create(m, n, k, trans_a=trans_a, trans_b=trans_b, alpha=2.0, beta=-1.0)
    operands = verify.exact_operands(problem, 7)
    assert verify.check_exact(reference(problem, operands), product(problem, operands)).passed
    reversed_terms = {
        "a": np.flip(operands["a"], 2 if trans_a == "N" else 1),
        "b": np.flip(operands["b"], 1 if trans_b == "N" else 2),
        "c": operands["c"],
    }
    assert verify.check_exact(reference(problem, operands), product(problem, reversed_terms)).passed


@pytest.mark.parametrize("dtype", ["uint8", "uint64", "int16", "bool"])
def test_exact_operands_of_integers_are_small_in_every_type(dtype):
    problem = GemmProblem.create(20, 20, 50, dtype=dtype, output="float32")
    operands = verify.exact_operands(problem, 7)
    assert np.abs(operands["a"].astype(float)).max() <= 8
    assert verify.check_exact(reference(problem, operands), product(problem, operands)).passed


def test_exact_operands_refuse_sums_that_could_round():
    with pytest.raises(ValueError, match=r"16777217 terms"):
        verify.exact_operands(GemmProblem.create(1, 1, 2**24 + 1), 0)


@pytest.mark.parametrize(
    "fault",
    [
        lambda d: np.roll(d, 1, axis=1),
        lambda d: np.roll(d, 1, axis=2),
        lambda d: np.swapaxes(d, 1, 2),
        lambda d: d + (np.arange(d.size).reshape(d.shape) == d.size - 1),
    ],
    ids=["row shifted", "column shifted", "transposed", "one element off by one"],
)
def test_every_fault_of_indexing_fails_the_exact_check(fault):
    problem = GemmProblem.create(12, 12, 9)
    operands = verify.exact_operands(problem, 8)
    expected = reference(problem, operands)
    check = verify.check_exact(expected, fault(expected).astype(np.float32))
    assert not check.passed
    assert "differ; the first" in check.detail


@pytest.fixture
def padded():
    problem = GemmProblem.create(5, 7, 3, batch=2, d=Layout(ld=10, batch_stride=60, offset=8))
    before = verify.poisoned(problem, 8)
    flat = before.copy()
    matrices(flat, problem.d, 5, 7, 2)[...] = 1.0
    return problem, before, flat


def test_memory_around_d_that_is_as_it_was_passes(padded):
    assert verify.check_untouched(*padded).passed


@pytest.mark.parametrize("where", [0, 7, 8 + 7, 8 + 10 + 9, 8 + 50, -1], ids=str)
def test_a_write_outside_d_fails(padded, where):
    problem, before, flat = padded
    flat[where] = 1.0
    check = verify.check_untouched(problem, before, flat)
    assert not check.passed
    assert "outside D" in check.detail


def test_another_nan_than_the_poison_outside_d_is_a_write_too(padded):
    problem, before, flat = padded
    flat[3] = np.nan
    assert not verify.check_untouched(problem, before, flat).passed


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "complex64", "complex128"])
def test_the_poison_of_d_is_nan_and_another_one_each_time_and_than_that_of_operands(dtype):
    problem = GemmProblem.create(5, 7, 3, dtype=dtype)
    first, second = verify.poisoned(problem, 8), verify.poisoned(problem, 8)
    operands = verify.poison(first.size, problem.output)
    assert np.isnan(first.real).all()
    for other in (second, operands):
        assert (first.view(np.uint8) != other.view(np.uint8)).reshape(first.size, -1).any(axis=1).all()


def test_an_element_that_was_not_written_fails(padded):
    problem, before, flat = padded
    flat[8 + 60 + 3] = before[8 + 60 + 3]
    check = verify.check_untouched(problem, before, flat)
    assert not check.passed
    assert "not written" in check.detail


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_freivalds_passes_an_honest_product(dtype):
    problem = GemmProblem.create(300, 200, 400, dtype=dtype, trans_b="T", alpha=-2, beta=0.5)
    operands = verify.random_operands(problem, 9)
    check = verify.check_freivalds(problem, operands, product(problem, operands), 0)
    assert check.passed
    assert check.error_over_bound < 0.5
    exact = verify.exact_operands(problem, 9)
    assert verify.check_freivalds(problem, exact, product(problem, exact), 0, exact=True).passed


def test_freivalds_finds_one_wrong_element_among_many():
    problem = GemmProblem.create(2000, 1500, 64)
    exact = verify.exact_operands(problem, 10)
    d = reference(problem, exact).astype(np.float32)
    d[0, 1234, 567] += 1
    check = verify.check_freivalds(problem, exact, d, 0, exact=True)
    assert not check.passed
    assert "row 1234" in check.detail


def test_freivalds_finds_a_dropped_term_and_a_tf32_product():
    problem = GemmProblem.create(200, 300, 1000)
    operands = verify.random_operands(problem, 11)
    low = {name: rounded_to(x, 11) for name, x in operands.items()}
    assert not verify.check_freivalds(problem, operands, reference(problem, low), 0).passed
    without = {**operands, "a": operands["a"].copy()}
    without["a"][:, :, -1] = 0
    assert not verify.check_freivalds(problem, operands, reference(problem, without), 0).passed


def test_very_large_products_are_checked_in_rows(monkeypatch):
    monkeypatch.setattr(verify, "FULL_REFERENCE_FLOPS", 0)
    problem = GemmProblem.create(90, 40, 30, trans_a="T", beta=1.0)
    operands = verify.random_operands(problem, 12)
    d = product(problem, operands)
    assert verify.check_random(problem, operands, d).passed
    d[0, -1, -1] += 0.01
    assert not verify.check_random(problem, operands, d).passed


@pytest.mark.parametrize("accumulator", ["float32", "float16"])
def test_half_sums_fail_where_single_ones_are_promised(accumulator):
    problem = GemmProblem.create(24, 24, 400, dtype="float16", output="float16", accumulator=accumulator)
    operands = verify.random_operands(problem, 13)
    half = product(problem, operands, np.dtype("float16"))
    assert verify.check_random(problem, operands, half).passed == (accumulator == "float16")


def test_a_conjugate_of_the_wrong_operand_fails():
    problem = GemmProblem.create(9, 8, 7, dtype="complex64", trans_a="C")
    operands = verify.random_operands(problem, 14)
    wrong = GemmProblem.create(9, 8, 7, dtype="complex64", trans_a="T", trans_b="R")
    assert not verify.check_random(problem, operands, reference(wrong, operands).astype(np.complex64)).passed


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_exact_operands_are_exact_for_complex_scalars_too(dtype):
    problem = GemmProblem.create(9, 8, 70, dtype=dtype, trans_b="C", alpha=0.5 + 1j, beta=1j)
    problem = problem.with_scalars(*verify.exact_scalars(problem))
    operands = verify.exact_operands(problem, 15)
    assert np.iscomplexobj(operands["a"])
    assert verify.check_exact(reference(problem, operands), product(problem, operands)).passed


@pytest.mark.parametrize("dtype", ["int8", "uint16", "int32", "uint64", "int64", "bool"])
def test_a_single_wrong_integer_fails(dtype):
    problem = GemmProblem.create(9, 8, 70, dtype=dtype, trans_a="T", beta=1)
    operands = verify.random_operands(problem, 16)
    d = reference(problem, operands)
    assert verify.check_random(problem, operands, d).passed
    d[0, 4, 5] ^= 1
    check = verify.check_random(problem, operands, d)
    assert not check.passed
    assert "row 4 column 5" in check.detail


def test_half_of_a_random_product_of_truth_values_is_true():
    problem = GemmProblem.create(100, 100, 50, dtype="bool")
    assert 0.4 < reference(problem, verify.random_operands(problem, 17)).mean() < 0.6


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "uint64"])
def test_freivalds_of_integers_is_exact(dtype):
    problem = GemmProblem.create(60, 50, 40, batch=2, dtype=dtype, trans_b="T", alpha=3, beta=-2)
    operands = verify.random_operands(problem, 18)
    d = reference(problem, operands)
    assert verify.check_freivalds(problem, operands, d, 0).passed
    d[1, 59, 49] ^= 1
    check = verify.check_freivalds(problem, operands, d, 0)
    assert not check.passed
    assert "batch 1 row 59" in check.detail


def test_freivalds_of_complex_numbers_finds_a_wrong_conjugate():
    problem = GemmProblem.create(60, 50, 40, dtype="complex64", trans_a="R", alpha=2 - 1j)
    operands = verify.random_operands(problem, 19)
    assert verify.check_freivalds(problem, operands, product(problem, operands), 0).passed
    operands["a"] = operands["a"].conj()
    assert not verify.check_freivalds(problem, operands, product(problem, operands).conj(), 0).passed


def test_truth_values_have_no_freivalds():
    problem = GemmProblem.create(2, 2, 2, dtype="bool")
    operands = verify.random_operands(problem, 20)
    with pytest.raises(ValueError, match="ring"):
        verify.check_freivalds(problem, operands, reference(problem, operands), 0)
