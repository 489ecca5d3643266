"""The checks pass what is right and fail what is wrong, each on its own planted fault."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemmport.checking import verification as verify
from gemmport.checking.reference import applied, reference, wide_type
from gemmport.contracts.kernel import Cut
from gemmport.core.dtypes import FLOAT64, as_dtype
from gemmport.core.layout import matrices
from gemmport.core.problem import GemmProblem, Layout


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


# What is drawn


def test_what_is_drawn_depends_on_the_seed_alone(monkeypatch):
    seen, real = [], np.random.default_rng
    monkeypatch.setattr("numpy.random.default_rng", lambda seed=None: seen.append(seed) or real(seed))
    problem = GemmProblem.create(90, 40, 3)
    for draw in (verify.random_operands, verify.exact_operands):
        first, same, other = draw(problem, 5), draw(problem, 5), draw(problem, 6)
        assert np.array_equal(first["a"], same["a"])
        assert not np.array_equal(first["a"], other["a"])
    assert set(verify.random_signs(100, 5).tolist()) == {-1, 1}
    operands = verify.random_operands(problem, 1)
    assert verify._check_rows(problem, operands, reference(problem, operands)).passed
    verify._sampled_entries(problem)
    assert None not in seen


def test_freivalds_takes_the_signs_of_its_seed(monkeypatch):
    seen = []
    monkeypatch.setattr(verify, "random_signs", lambda count, seed: seen.append((count, seed)) or np.ones(count))
    problem = GemmProblem.create(2, 3, 4)
    operands = verify.exact_operands(problem, 1)
    verify.check_freivalds(problem, operands, reference(problem, operands), 7, exact=True)
    assert seen == [(3, 7)]


def test_an_operand_is_drawn_if_it_is_read_and_in_its_own_type():
    problem = GemmProblem.create(2, 3, 4, dtype="float16", output="float32")
    assert verify.inputs(problem) == ("a", "b")
    problem = problem.with_scalars(1, 2)
    for draw in (verify.random_operands, verify.exact_operands):
        types = {name: str(x.dtype) for name, x in draw(problem, 1).items()}
        assert types == {"a": "float16", "b": "float16", "c": "float32"}


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_random_integers_are_of_the_whole_range(dtype):
    drawn = verify.random_numbers(np.random.default_rng(1), (5000,), as_dtype(dtype))
    limits = np.iinfo(dtype)
    assert (drawn.dtype, drawn.min(), drawn.max()) == (dtype, limits.min, limits.max)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_random_numbers_are_normal_in_their_own_type(dtype):
    drawn = verify.random_numbers(np.random.default_rng(1), (50,), as_dtype(dtype))
    assert drawn.dtype == dtype
    assert np.array_equal(drawn, np.random.default_rng(1).standard_normal(50, dtype=dtype))


def test_half_of_the_truth_values_are_true_also_of_products_of_one_term():
    drawn = verify.random_numbers(np.random.default_rng(1), (1000,), as_dtype("bool"))
    assert 0.4 < drawn.mean() < 0.6
    operands = verify.random_operands(GemmProblem.create(1000, 1000, 1, dtype="bool"), 1)
    assert 0.4 < operands["a"].mean() * operands["b"].mean() < 0.6


@pytest.mark.parametrize(
    ("alpha", "beta", "expected"),
    [(0, 1, (0, 1)), (1, 0, (1, 0)), (0.5, 3, (2, -1)), (1j, 2j, (2 + 4j, -1 - 2j)), (0.5 + 1j, 0.5, (2 + 4j, -1))],
)
def test_exact_scalars_are_small_and_of_the_same_kind(alpha, beta, expected):
    problem = GemmProblem.create(2, 2, 2, dtype="complex64", alpha=alpha, beta=beta)
    assert verify.exact_scalars(problem) == expected


@pytest.mark.parametrize(
    ("dtype", "output", "alpha", "beta", "n", "k", "divisor"),
    [
        ("float64", "float64", 1, 0, 4, 1, 4),
        ("float64", "float64", 1, 0, 1, 16, 16),
        ("float64", "float64", 2, -1, 4, 16, 3 * 4 * 16),
        ("complex128", "complex128", 1, 0, 4, 16, 2 * 4 * 16),
        ("complex128", "complex128", 2 + 4j, 0, 4, 16, 6 * 2 * 4 * 16),
    ],
)
def test_wide_exact_operands_are_as_large_as_may_be(dtype, output, alpha, beta, n, k, divisor):
    problem = GemmProblem.create(2000, n, k, dtype=dtype, output=output, alpha=alpha, beta=beta)
    largest = min(2**26, math.isqrt(2**52 // divisor))
    a = verify.exact_operands(problem, 1)["a"]
    for part in (a.real, a.imag) if np.iscomplexobj(a) else (a,):
        assert 0.99 * largest < part.max() <= largest
        assert 0.99 * largest < -part.min() <= largest


@pytest.mark.parametrize(
    ("dtype", "output", "least", "most"),
    [
        ("float32", "float32", -8, 8), ("float16", "float16", -8, 8), ("complex64", "complex64", -8, 8),
        ("uint8", "float32", 0, 8), ("int16", "float32", -8, 8), ("int8", "float64", -127, 127),
    ],
)  # fmt: skip
def test_exact_operands_reach_both_ends_of_their_range(dtype, output, least, most):
    a = verify.exact_operands(GemmProblem.create(300, 3, 20, dtype=dtype, output=output), 1)["a"]
    assert a.dtype == dtype
    for part in (a.real, a.imag) if np.iscomplexobj(a) else (a,):
        assert (part.min(), part.max()) == (least, most)


def test_inputs_of_wide_sums_are_numbers_that_their_type_has():
    a = verify.exact_operands(GemmProblem.create(300, 3, 20, dtype="float16", output="float64"), 1)["a"]
    assert 2000 < a.max() <= 2048


def test_exact_operands_of_as_many_terms_as_may_be_are_ones():
    problem = GemmProblem.create(3, 3, 512, dtype="float16", output="float16", accumulator="float16")
    assert set(np.unique(verify.exact_operands(problem, 1)["a"]).tolist()) == {-1, 0, 1}


# What is told


def test_d_moves_behind_its_guard():
    problem = GemmProblem.create(5, 7, 3, batch=2, d=Layout(ld=10, batch_stride=60, offset=8, base_alignment=4))
    assert verify.guarded(problem, 16) == Layout(10, 60, 24, 4)


@pytest.mark.parametrize(("dtype", "byte"), [("int16", 0xFD), ("bool", 0xFD), ("float16", 0xFF), ("complex64", 0xFF)])
def test_poison_is_of_the_type(dtype, byte):
    flat = verify.poison(3, dtype)
    assert (flat.dtype, flat.shape, set(flat.tobytes())) == (dtype, (3,), {byte})


@pytest.mark.parametrize(("stride", "matrices_there"), [(15, 2), (0, 1)])
def test_operands_lie_where_the_layout_says_and_poison_lies_around_them(stride, matrices_there):
    problem = GemmProblem.create(
        2, 3, 4, batch=2, dtype="int32", output="int64", a=Layout(ld=6, batch_stride=stride, offset=2)
    )
    values = np.arange(16, dtype=np.int32).reshape(2, 2, 4)
    flat = verify.laid_out(problem, "a", values, 5)
    assert (flat.dtype, flat.size) == ("int32", problem.span("a") + 5)
    inside = np.zeros(flat.size, bool)
    for number in range(matrices_there):
        for row in range(2):
            start = 2 + number * stride + row * 6
            assert flat[start : start + 4].tolist() == values[number, row].tolist()
            inside[start : start + 4] = True
    assert set(flat[~inside].tobytes()) == {0xFD}
    assert verify.laid_out(problem, "a", values).tolist() == flat[:-5].tolist()
    assert set(verify.laid_out(problem, "a", None, 1).tobytes()) == {0xFD}


def test_what_is_untouched_is_told_in_numbers(padded):
    problem, before, flat = padded
    assert verify.check_untouched(problem, before, flat) == verify.Check("untouched", True, 0.0, 0.0)
    flat[8 : 8 + 2] = before[8 : 8 + 2]
    check = verify.check_untouched(problem, before, flat)
    assert (check.name, check.passed, check.error, check.bound) == ("untouched", False, 2.0, 0.0)
    flat[3] = 1.0
    assert verify.check_untouched(problem, before, flat).error == 3.0


def test_integers_may_be_what_the_poison_is_but_stray_writes_show():
    problem = GemmProblem.create(2, 3, 4, dtype="int32")
    before = verify.poisoned(problem, 4)
    flat = before.copy()
    assert verify.check_untouched(problem, before, flat).passed
    flat[-1] = 1
    check = verify.check_untouched(problem, before, flat)
    assert (check.passed, check.error) == (False, 1.0)


def test_untouched_memory_of_wide_elements():
    problem = GemmProblem.create(2, 3, 4, dtype="complex128")
    before = verify.poisoned(problem, 4)
    flat = before.copy()
    flat[:6] = 1
    assert verify.check_untouched(problem, before, flat).passed
    flat[7] = 1j
    assert "the first at element 7 " in verify.check_untouched(problem, before, flat).detail


def test_what_is_exact_is_told_in_numbers():
    wanted = np.array([[[1, 2j]]], np.complex128)
    assert verify.check_exact(wanted, wanted.astype(np.complex64)) == verify.Check("exact", True, 0.0, 0.0)
    check = verify.check_exact(wanted, (wanted + np.array([0, 3 + 4j])).astype(np.complex64))
    assert (check.name, check.passed, check.error, check.bound) == ("exact", False, 5.0, 0.0)


def judged(error, bound):
    error, bound = np.array([error], float), np.array([bound], float)
    return verify.judged("name", error, bound, error, np.ones_like(error))


def test_the_worst_element_is_told():
    nothing = np.zeros((1, 0))
    assert verify.judged("name", nothing, nothing, nothing, nothing) == verify.Check("name", True, 0.0, 0.0)
    check = judged([0.0, 0.5, 1.0], [1.0, 1.0, 4.0])
    assert (check.name, check.passed, check.error, check.bound, check.detail) == ("name", True, 0.5, 1.0, "")
    assert judged([1.0], [1.0]).passed
    check = judged([1.0, 3.0], [1.0, 1.0])
    assert (check.name, check.passed, check.error) == ("name", False, 3.0)
    assert check.detail.startswith("1 of 2 elements")
    assert judged([0.0, math.nan], [1.0, 1.0]).error == math.inf


def test_each_check_has_its_name():
    problem = GemmProblem.create(3, 2, 4)
    operands = verify.random_operands(problem, 1)
    d = product(problem, operands)
    assert verify.check_random(problem, operands, d).name == "statistical"
    assert verify.check_freivalds(problem, operands, d, 0).name == "freivalds"
    integers = GemmProblem.create(3, 2, 4, dtype="uint8")
    operands = verify.random_operands(integers, 1)
    assert verify.check_freivalds(integers, operands, reference(integers, operands), 0).name == "freivalds"
    double = GemmProblem.create(3, 2, 4, dtype="float64")
    operands = verify.random_operands(double, 1)
    assert verify.check_random(double, operands, product(double, operands)).name == "statistical"
    empty = GemmProblem.create(0, 2, 4, dtype="float64")
    operands = verify.random_operands(empty, 1)
    check = verify.check_random(empty, operands, product(empty, operands))
    assert check == verify.Check("statistical", True, 0.0, 0.0)
    assert verify._check_entries(empty, operands, product(empty, operands)) == check


def test_integers_are_compared_with_a_sign():
    problem = GemmProblem.create(1, 1, 1, dtype="uint8")
    assert verify.judged_integers(problem, np.array([-1]), np.array([0])).error == 1.0


def test_of_integers_each_wrong_row_counts_once():
    problem = GemmProblem.create(6, 5, 4, dtype="int32")
    operands = verify.random_operands(problem, 1)
    d = reference(problem, operands)
    d[0, 2, 3] ^= 1
    assert verify.check_freivalds(problem, operands, d, 0).detail.startswith("1 of 6 elements")


# Which check, and against what


def refuse(*arguments, **options):
    raise AssertionError("this check was not due")


def test_what_is_given_as_expected_is_what_counts():
    problem = GemmProblem.create(3, 2, 4)
    operands = verify.random_operands(problem, 1)
    d = product(problem, operands)
    assert not verify.check_random(problem, operands, d, reference(problem, operands) + 1).passed


def test_products_in_float32_up_to_the_limit_are_checked_as_a_whole(monkeypatch):
    problem = GemmProblem.create(3, 2, 4)
    operands = verify.random_operands(problem, 1)
    for name in ("_check_entries", "_check_rows"):
        monkeypatch.setattr(verify, name, refuse)
    monkeypatch.setattr(verify, "FULL_REFERENCE_FLOPS", problem.flops)
    assert verify.check_random(problem, operands, product(problem, operands)).passed


def test_of_products_in_float64_the_check_by_exact_sums_is_told(monkeypatch):
    problem = GemmProblem.create(3, 2, 4, dtype="float64")
    operands = verify.random_operands(problem, 1)
    exactly_summed = verify.Check("statistical", True, 0.125, 1.0)
    monkeypatch.setattr(verify, "_check_entries", lambda *arguments: exactly_summed)
    d = product(problem, operands)
    assert verify.check_random(problem, operands, d) is exactly_summed
    d[0, 0, 0] += 1
    assert not verify.check_random(problem, operands, d).passed


def test_the_first_row_of_a_very_large_product_is_checked_with_its_alpha():
    problem = GemmProblem.create(777, 4, 3, alpha=2.0)
    operands = verify.random_operands(problem, 12)
    d = product(problem, operands)
    assert verify._check_rows(problem, operands, d).passed
    d[0, 0, 0] += 0.01
    assert not verify._check_rows(problem, operands, d).passed


def test_all_entries_of_few_are_exactly_summed_and_of_many_all_corners():
    assert verify._sampled_entries(GemmProblem.create(8, 24, 3)).tolist() == [
        [0, i, j] for i in range(8) for j in range(24)
    ]
    sample = {tuple(at) for at in verify._sampled_entries(GemmProblem.create(500, 400, 3, batch=50)).tolist()}
    assert set(itertools.product((0, 49), (0, 499), (0, 399))) <= sample
    assert len(sample) <= 8 + 192


def test_without_a_product_a_is_not_looked_at():
    problem = GemmProblem.create(3, 2, 4, alpha=0.0, beta=0.3)
    operands = verify.random_operands(problem, 1)
    operands["a"][...] = np.nan
    d = (np.float32(0.3) * operands["c"]).astype(np.float32)
    check = verify.check_random(problem, operands, d)
    assert check.passed
    assert check.error > 0
    d[0, 1, 1] += 1
    assert verify.check_random(problem, operands, d).detail.startswith("1 of 6 elements")


# Bounds, by hand

CUT = Cut(digits=14, terms=32)


def bound_by_hand(problem, norms, expected, c, of_sums, of_steps):
    """As the module's docstring has it."""
    unit, output = problem.accumulator.unit_roundoff, problem.output.unit_roundoff
    terms = (
        8 * (unit + of_sums) * abs(problem.alpha) * norms,
        (2 * (unit + of_steps) + output) * abs(expected),
        2 * (unit + of_steps) * abs(problem.beta) * abs(c),
        (problem.k + 2) * problem.accumulator.smallest_subnormal + problem.output.smallest_subnormal,
    )
    return sum(terms) * (2**0.5 if problem.accumulator.kind == "complex" else 1)


@pytest.mark.parametrize(
    ("dtype", "accumulator", "size"),
    [
        ("float16", "float16", 1e-3), ("float16", "float32", 1e-3), ("float32", "float32", 1.0),
        ("float64", "float64", 1.0), ("complex64", "complex64", 1.0), ("complex128", "complex128", 1.0),
        ("float16", "float16", 1e-6),
    ],
)  # fmt: skip
def test_the_bound_of_an_element_is_the_sum_of_its_roundings(dtype, accumulator, size):
    problem = GemmProblem.create(
        1, 1, 9, dtype=dtype, output=dtype, accumulator=accumulator, alpha=-3, beta=0.25
    )  # fmt: skip
    row, column, expected, c = (size * number for number in (1.5, 2.5, -0.75, -7.0))
    arrays = np.array([[row]]), np.array([[column]]), np.array([[[expected]]]), np.array([[[c]]])
    own = problem.accumulator.unit_roundoff / 4
    found = verify.element_bound(problem, *arrays, own)
    assert found.item() == pytest.approx(bound_by_hand(problem, row * column, expected, c, own, own), rel=1e-12, abs=0)
    found = verify.element_bound(problem, *arrays)
    assert found.item() == pytest.approx(bound_by_hand(problem, row * column, expected, c, 0, 0), rel=1e-12, abs=0)


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_what_is_compared_is_within_that_bound(dtype):
    problem = GemmProblem.create(1, 1, 9, dtype=dtype, alpha=-3, beta=0.25)
    operands = verify.random_operands(problem, 3)
    operands["c"] *= 1000
    expected = reference(problem, operands)
    norms = np.linalg.norm(operands["a"]) * np.linalg.norm(operands["b"])
    told = expected.item(), operands["c"].item()
    unit = FLOAT64.unit_roundoff
    wrong = expected + 1
    found = verify._compare(problem, operands, wrong, expected)
    assert found.bound == pytest.approx(bound_by_hand(problem, norms, *told, unit, unit), rel=1e-9, abs=0)
    found = verify._check_entries(problem, operands, wrong)
    assert found.bound == pytest.approx(bound_by_hand(problem, norms, *told, 0, 2 * unit), rel=1e-9, abs=0)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "complex64"])
def test_the_tolerance_of_freivalds_is_that_of_a_row(dtype):
    problem = GemmProblem.create(1, 2, 9, dtype=dtype, alpha=-3)
    unit, own = problem.accumulator.unit_roundoff, problem.accumulator.unit_roundoff / 4
    rows, columns, rows_of_d = np.array([[1.5]]), np.array([[3.0, 4.0]]), np.array([[0.75]])
    wanted = 8 * (unit + 2 * own) * 3 * 1.5 * 5 + 8 * (2 * unit + problem.output.unit_roundoff + own) * 0.75
    wanted *= 2**0.5 if dtype == "complex64" else 1
    found = verify.freivalds_tolerance(problem, rows, columns, rows_of_d, own)
    assert found.item() == pytest.approx(wanted, rel=1e-12, abs=0)


@pytest.mark.parametrize(
    ("k", "wanted"),
    [(0, 2.0**-12), (1, 2.0**-12), (32, 2.0**-12), (128, 2.0**-13), (2**15, 2.0**-17), (64, 2.0**-12.5)],
)
def test_sums_that_a_unit_cuts_are_allowed_two_of_their_steps_less_the_more_they_are(k, wanted):
    problem = GemmProblem.create(2, 3, k, dtype="float8_e4m3fn", alpha=-2, beta=4)
    assert verify.unit_of_cut(problem, None) == 0
    assert verify.unit_of_cut(problem, CUT) == pytest.approx(wanted, rel=1e-12)
    rows, columns, expected, c = (
        np.full((1, 2), 3.0),
        np.full((1, 3), 5.0),
        np.full((1, 2, 3), 7.0),
        np.full((1, 2, 3), 9.0),
    )
    more = verify.element_bound(problem, rows, columns, expected, c, 2.0**-20, CUT)
    more -= verify.element_bound(problem, rows, columns, expected, c, 2.0**-20)
    np.testing.assert_allclose(more, 2 * wanted * 15, rtol=1e-9)
    more = verify.freivalds_tolerance(problem, rows, columns, rows, 2.0**-20, CUT)
    more -= verify.freivalds_tolerance(problem, rows, columns, rows, 2.0**-20)
    np.testing.assert_allclose(more, 2 * wanted * 15 * 3**0.5, rtol=1e-9)


@pytest.mark.parametrize(("k", "wanted"), [(0, 0.0), (1, 2.0**-25), (64, 2.0**-22), (2**14, 2.0**-18)])
def test_sums_that_a_unit_goes_on_from_are_allowed_the_more_the_longer_they_are(k, wanted):
    unit = Cut(digits=24, terms=8, promoted=False)
    assert verify.unit_of_cut(GemmProblem.create(2, 3, k, dtype="float16"), unit) == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize("huge", [False, True])
def test_what_a_unit_cut_passes_where_the_plan_says_so(huge, monkeypatch):
    problem = GemmProblem.create(4, 5, 64, dtype="float8_e5m2")
    operands = verify.random_operands(problem, 2)
    monkeypatch.setattr(verify, "FULL_REFERENCE_FLOPS", 0 if huge else math.inf)
    rows, columns = (np.linalg.norm(operands[x].astype(float), axis=axis) for x, axis in (("a", 2), ("b", 1)))
    step = verify.unit_of_cut(problem, CUT) * rows[:, :, np.newaxis] * columns[:, np.newaxis]
    exactly = reference(problem, operands)
    near, far = ((exactly + factor * step).astype(np.float32) for factor in (0.9, 1.2))
    assert verify.check_random(problem, operands, near, cut=CUT).passed
    assert not verify.check_random(problem, operands, near).passed
    assert not verify.check_random(problem, operands, far, cut=CUT).passed


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64", "complex128"])
def test_norms_are_those_of_rows_and_columns_in_float64(dtype):
    kind = as_dtype(dtype).numpy
    large = 1e100 if kind.itemsize >= 8 else 1.0
    x = np.array([[[3, 4], [5, 12]]], kind) * kind.type(large)
    assert verify._norms(x, 2).tolist() == [pytest.approx([5 * large, 13 * large], rel=1e-12)]
    assert verify._norms(x, 1).tolist() == [pytest.approx([34**0.5 * large, 160**0.5 * large], rel=1e-12)]


def test_a_matrix_is_widened_by_blocks(monkeypatch):
    monkeypatch.setattr(verify, "_BLOCK", 7)
    x, vector = np.arange(42.0).reshape(2, 7, 3), np.array([1.0, -1, 1])
    wide = wide_type(GemmProblem.create(1, 1, 1))
    assert np.array_equal(verify._times_vector(x, vector, wide), x @ vector)


@pytest.mark.parametrize(
    "kind", [{"dtype": "complex64", "beta": 1j}, {"precision": "tf32", "beta": 2.0}, {"dtype": "int16"}]
)
def test_what_is_checked_in_blocks_is_what_is_checked_at_once(monkeypatch, kind):
    problem = GemmProblem.create(31, 29, 23, batch=2, trans_a="T", **kind)
    problem = replace(problem, d=verify.guarded(problem, 3))
    monkeypatch.setattr(verify, "_BLOCK", 40)
    draws = [
        verify.exact_operands(problem, 1) if verify.rounds(problem) else verify.random_operands(problem, 1)
        for _ in "12"
    ]
    operands = draws[0]
    assert all((operands[name] == draws[1][name]).all() for name in operands), "however many threads draw"
    assert len(np.unique(verify.random_numbers(np.random.default_rng(1), (10, 10), FLOAT64))) == 100, (
        "every block its own"
    )
    for axis in (1, 2):
        norms = verify._norms(operands["a"], axis)
        assert norms == pytest.approx(np.linalg.norm(operands["a"].astype(wide_type(problem)), axis=axis))
    before = verify.poisoned(problem, 5)
    expected = reference(problem, operands)

    def checks():
        flat = verify.copied(before)
        d = matrices(flat, problem.d, 31, 29, 2)
        d[...] = expected
        yield flat, d
        yield flat, [verify.check_untouched(problem, before, flat), verify.check_random(problem, operands, d),
                     verify.check_freivalds(problem, operands, d, 1, exact=True)]  # fmt: skip

    for limit in (math.inf, 0):
        monkeypatch.setattr(verify, "FULL_REFERENCE_FLOPS", limit)
        for fault, failing in (
            (None, []),
            ("element", ["exact", "freivalds", "statistical"]),
            ("stray", ["untouched"]),
        ):
            looked = checks()
            flat, d = next(looked)
            if fault == "element":
                d[1, 30, 28] += 1
            if fault == "stray":
                flat[-1] = 1
            failed = [check.name for check in next(looked)[1] if not check.passed]
            assert bool(failed) == bool(failing)
            assert set(failed) <= set(failing)


def test_operands_that_are_rounded_have_their_places_in_every_block(monkeypatch):
    for ops in ("NN", "TT"):
        problem = GemmProblem.create(6, 5, 64, precision="tf32", trans_a=ops[0], trans_b=ops[1])
        monkeypatch.setattr(verify, "_BLOCK", 7)
        operands = verify.exact_operands(problem, 1)
        for name, op in zip("ab", ops, strict=True):
            x = applied(operands[name][0], op)
            large = np.abs(x if name == "b" else x.T).astype(np.float64)
            moved = np.log2(np.where(large == 0, np.nan, large))
            assert (np.nanmedian(moved[1::2], axis=1) > 10).all() or (np.nanmedian(moved[1::2], axis=1) < -10).all()
            assert (np.abs(np.nanmedian(moved[::2], axis=1)) < 10).all()


@pytest.mark.parametrize("dtype", ["uint8", "float16", "float32", "complex64", "complex128"])
def test_where_two_arrays_differ_is_told_by_index_across_blocks(dtype, monkeypatch):
    monkeypatch.setattr(verify, "_BLOCK", 4)
    before = np.zeros(11, dtype)
    for places in ([], [0], [3, 4], [2, 8, 10]):
        after = before.copy()
        for number, place in enumerate(places):
            after.view(np.uint8)[place * after.itemsize + number % after.itemsize] = 1
            if dtype == "complex128" and number == 1:  # in its imaginary part alone
                after[place] = 1j
        found = verify.differing(before, after)
        assert found.dtype == np.intp
        assert found.tolist() == places


def test_only_an_output_of_fewer_bits_than_its_sums_rounds_them() -> None:
    told = {"float16": True, "bfloat16": True, "float32": False, "float64": False, "int8": False}
    assert {name: verify.narrows(GemmProblem.create(2, 2, 2, dtype=name)) for name in told} == told
