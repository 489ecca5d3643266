"""Infinities, NaN, signed zeros, subnormal numbers, roundings, wrapping around: what docs/semantics.md says, on every device.

Results are compared with a model of IEEE 754 in NumPy, in float32 or float64, that does one operation after another.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import gemmport as gp
from absences import beyond
from exact import WIDEST_RUN, Sizes, problem_of, run_plan
from gemmport import kernels
from gemmport.core.dtypes import DTYPES, DType, as_dtype
from gemmport.core.problem import Operand
from test_kernels import OPS, VARIANTS, WIDE, parameters, tile

Array = npt.NDArray[Any]
Types = tuple[str, str, str | None]

HALVES = ("float16", "bfloat16")


def compute(backend: gp.Backend, kernel: str, problem: gp.GemmProblem, **values: Array) -> Array:
    """D, (m, n), of operands as they are stored, in memory that is NaN everywhere else."""
    if reason := kernels.variant(kernel).unsupported(problem, backend.device):
        pytest.skip(beyond(backend.device, reason))
    plan = gp.plan(problem, backend.device, kernel=kernel, params=parameters(kernel))
    operands: dict[Operand, Array] = {operand: values[operand] for operand in ("a", "b", "c") if operand in values}
    return run_plan(backend, plan, operands)[0]


def assert_same(got: Array, wanted: Array, told: object) -> None:
    """Asserts the same numbers, NaN in the same places, and the same signs of zeros; of complex numbers, part by part."""
    if np.iscomplexobj(got):
        assert_same(got.real, wanted.real, f"real part of {told}")
        assert_same(got.imag, wanted.imag, f"imaginary part of {told}")
        return
    got, wanted = got.astype(np.float64), wanted.astype(np.float64)
    same = np.where(np.isnan(wanted), np.isnan(got), (got == wanted) & (np.signbit(got) == np.signbit(wanted)))
    wrong = np.argwhere(~same)
    assert wrong.size == 0, (
        f"{told}: {len(wrong)} of {got.size} elements are wrong, the first at {wrong[0].tolist()}: "
        f"{got[tuple(wrong[0])]!r}, not {wanted[tuple(wrong[0])]!r}"
    )


def needs(backend: gp.Backend, *types: str) -> None:
    """Skips where the device does not compute in a type."""
    for dtype in types:
        arithmetic = DTYPES[dtype].arithmetic if dtype not in HALVES else ""
        if arithmetic and arithmetic not in backend.device.computes:
            pytest.skip(beyond(backend.device, f"it does not compute in {arithmetic}"))


def keeps_subnormals(backend: gp.Backend, dtype: str) -> bool:
    """Whether the device promises to: every CUDA device does; OpenCL's by CL_FP_DENORM, of each type."""
    if backend.name != "opencl":
        return True
    config = backend._device.double_fp_config if dtype == "float64" else backend._device.single_fp_config  # type: ignore[attr-defined]
    return bool(config & 1)


# The model


def real_product(a: Array, b: Array, *, alpha: float = 1, beta: float = 0, c: Array | None = None) -> Array:
    """alpha · (0 + a₀b₀ + a₁b₁ + …) + beta · C, each operation by itself, in the type of the operands."""
    number = a.dtype.type
    with np.errstate(all="ignore"):
        total = np.zeros((a.shape[0], b.shape[1]), a.dtype)
        for p in range(a.shape[1]):
            total = total + a[:, p, np.newaxis] * b[p]
        value = number(alpha) * total
        return value + number(beta) * c if beta != 0 and c is not None else value


def complex_product(a: Array, b: Array, alpha: complex = 1) -> Array:
    """By the plain formula, without the recovery of infinities that C's Annex G has; a real alpha scales both parts."""
    with np.errstate(all="ignore"):
        real = np.zeros((a.shape[0], b.shape[1]), a.real.dtype)
        imaginary = real.copy()
        for p in range(a.shape[1]):
            x, y = a[:, p, np.newaxis], b[p]
            real = real + x.real * y.real - x.imag * y.imag
            imaginary = imaginary + x.real * y.imag + x.imag * y.real
        s = a.dtype.type(alpha)
        d = np.empty(real.shape, a.dtype)
        d.real = s.real * real - (s.imag * imaginary if s.imag != 0 else 0)
        d.imag = s.real * imaginary + (s.imag * real if s.imag != 0 else 0)
        return d


def nearest(x: Array, dtype: DType) -> Array:
    """float64 numbers rounded once to a narrower type: to nearest, ties to even; too large is infinite; as float64."""
    least = round(math.log2(dtype.smallest_subnormal))
    _, exponent = np.frexp(x)
    unit = np.maximum(exponent - dtype.precision, least)
    with np.errstate(all="ignore"):
        rounded = np.ldexp(np.rint(np.ldexp(x, -unit)), unit)
        largest = 2.0 ** (2 - least - dtype.precision) * (2 - 2.0 ** (1 - dtype.precision))
        rounded = np.where(np.abs(rounded) > largest, np.copysign(np.inf, x), rounded)
    return np.copysign(rounded, x)


# Infinities and NaN


def with_specials(rows: int, columns: int, seed: int, dtype: Any = np.float64) -> Array:
    """Whole numbers from -2 to 2, and at the corners, beside the edges and inside, what is special."""
    rng = np.random.default_rng(seed)
    matrix = rng.integers(-2, 3, (rows, columns)).astype(dtype)
    specials = (np.inf, -np.inf, np.nan, -0.0)
    corners = [(0, 0), (rows - 1, 0), (0, columns - 1), (rows - 1, columns - 1)]
    inside = [(int(rng.integers(rows)), int(rng.integers(columns))) for _ in range(3)]
    for number, place in enumerate(corners + inside):
        matrix[place] = specials[(number + seed) % len(specials)]
    return matrix


def stored(matrix: Array, op: str) -> Array:
    return matrix.T if op in "TC" else matrix


def sizes_of(kernel: str) -> tuple[Sizes, ...]:
    """Edges along every dimension; one row, column and term in a tile of their own; whole tiles."""
    t = tile(kernel, parameters(kernel))
    return Sizes(17, 31, 13), Sizes(t.m + 1, t.n + 1, t.k + 1), Sizes(2 * t.m, 2 * t.n, 2 * t.k)


@pytest.mark.sample(kernel=["tiled", "packed"], ops=["NN"])
@pytest.mark.every_pair("ops", OPS)
@pytest.mark.every_pair("kernel", VARIANTS)
def test_infinities_and_nan_go_where_ieee_says(backend: gp.Backend, dtype: str, kernel: str, ops: str) -> None:
    """No further: what pads a tile is not multiplied by them in another row or column."""
    multiples = (1, WIDEST_RUN) if kernel in WIDE else (1,)
    cases = zip(sizes_of(kernel), ((1, 0), (-1, 1), (2, -1)), strict=True)
    for (sizes, (alpha, beta)), multiple in itertools.product(cases, multiples):
        a, b = with_specials(sizes.m, sizes.k, 1, dtype), with_specials(sizes.k, sizes.n, 2, dtype)
        c = with_specials(sizes.m, sizes.n, 3, dtype)
        problem = problem_of(sizes, ops, dtype, alpha=alpha, beta=beta, multiple=multiple)
        got = compute(backend, kernel, problem, a=stored(a, ops[0]), b=stored(b, ops[1]), **({"c": c} if beta else {}))
        assert_same(got, real_product(a, b, alpha=alpha, beta=beta, c=c), f"{kernel} on {problem}")


@pytest.mark.sample(kernel=["tiled", "packed"])
@pytest.mark.every_value("dtype_of_halves", HALVES)
@pytest.mark.every_value("kernel", VARIANTS)
def test_infinities_and_nan_of_halves_do_too(backend: gp.Backend, kernel: str, dtype_of_halves: str) -> None:
    sizes = Sizes(17, 31, 13)
    a, b = (with_specials(*shape, seed, np.float32) for seed, shape in ((1, (17, 13)), (2, (13, 31))))
    for output in (dtype_of_halves, "float32"):
        problem = problem_of(sizes, "NN", dtype_of_halves, output=output)
        got = compute(backend, kernel, problem, a=a, b=b)
        assert_same(got, real_product(a, b), f"{kernel} on {problem}")


@pytest.mark.every_value("kernel", VARIANTS)
def test_one_infinity_reaches_its_row_and_no_other(backend: gp.Backend, kernel: str) -> None:
    sizes = sizes_of(kernel)[1]
    for p in range(sizes.k):
        a, b = np.ones((sizes.m, sizes.k), np.float32), np.ones((sizes.k, sizes.n), np.float32)
        a[-1, p] = np.inf
        b[p, -1] = 0
        got = compute(backend, kernel, problem_of(sizes, "NN", "float32"), a=a, b=b)
        assert np.isfinite(got[:-1]).all()
        assert np.isposinf(got[-1, :-1]).all()
        assert np.isnan(got[-1, -1])


# Complex numbers


@pytest.mark.sample(kernel=["tiled", "packed"])
@pytest.mark.every_value("kernel", VARIANTS)
@pytest.mark.every_value("complex_type", ["complex64", "complex128"])
def test_complex_infinities_follow_the_plain_formula(backend: gp.Backend, kernel: str, complex_type: str) -> None:
    needs(backend, complex_type)
    check_complex(backend, kernel, complex_type)


def check_complex(backend: gp.Backend, kernel: str, dtype: str) -> None:
    """A real alpha leaves infinite parts infinite and finite parts finite; a complex one is multiplied by the formula."""
    for sizes in sizes_of(kernel):
        a, b = np.ones((sizes.m, sizes.k), dtype), np.full((sizes.k, sizes.n), 2 - 1j, dtype)
        a[0, 0], a[-1, -1], a[-1, 0] = complex(np.inf, 0), complex(1, np.inf), complex(np.nan, 1)
        b[0, -1], b[-1, 0], b[0, 0] = 0, complex(0, -np.inf), 1j
        for alpha in (1, -2, 1j, 2 - 1j):
            problem = problem_of(sizes, "NN", dtype, alpha=alpha)
            assert_same(
                compute(backend, kernel, problem, a=a, b=b), complex_product(a, b, alpha), f"{kernel} on {problem}"
            )
    for alpha in (1, -2, 0.5):  # an infinite real part and a finite imaginary one, times a real number
        problem = gp.GemmProblem.create(1, 1, 0, dtype=dtype, alpha=alpha, beta=alpha)
        c = np.array([[complex(np.inf, 3)]], dtype)
        (element,) = compute(backend, kernel, problem, c=c).ravel()
        assert element.real == alpha * np.inf, f"{kernel}: alpha · C is wrong: {element}"
        assert element.imag == alpha * 3, f"{kernel}: alpha · C is wrong: {element}"


# Signed zeros, and what is not read


@pytest.mark.every_value("kernel", VARIANTS)
def test_sums_begin_at_positive_zero(backend: gp.Backend, dtype: str, kernel: str) -> None:
    for sizes in (Sizes(9, 17, 1), Sizes(9, 17, 5), Sizes(9, 17, 0)):
        a, b = np.full((sizes.m, sizes.k), -0.0, dtype), np.ones((sizes.k, sizes.n), dtype)
        for alpha, sign in ((1.0, 1), (-1.0, -1)):
            problem = problem_of(sizes, "NN", dtype, alpha=alpha)
            got = compute(backend, kernel, problem, a=a, b=b)
            assert_same(got, np.full((9, 17), sign * 0.0), f"{kernel} on {problem}")


@pytest.mark.every_value("kernel", VARIANTS)
@pytest.mark.every_value("alpha", [0.0, 1.0, -1.0])
def test_negative_zeros_of_c_are_added_like_any_number(
    backend: gp.Backend, dtype: str, kernel: str, alpha: float
) -> None:
    """alpha · 0 + 1 · (-0): negative where both are."""
    sizes = Sizes(9, 17, 3)
    zeros = {"a": np.zeros((9, 3), dtype), "b": np.zeros((3, 17), dtype)} if alpha else {}
    problem = problem_of(sizes, "NN", dtype, alpha=alpha, beta=1)
    got = compute(backend, kernel, problem, c=np.full((9, 17), -0.0, dtype), **zeros)
    assert_same(got, np.full((9, 17), -0.0 if alpha < 0 else 0.0), f"{kernel} on {problem}")


@pytest.mark.every_value("kernel", VARIANTS)
def test_an_infinite_alpha_times_no_terms_is_nan(backend: gp.Backend, dtype: str, kernel: str) -> None:
    got = compute(backend, kernel, problem_of(Sizes(9, 17, 0), "NN", dtype, alpha=math.inf))
    assert np.isnan(got).all()


@pytest.mark.every_value("kernel", VARIANTS)
def test_ones_scale_nothing(backend: gp.Backend, dtype: str, kernel: str) -> None:
    """The largest numbers and infinities come through alpha = 1 and beta = 1 as they are."""
    largest = np.finfo(dtype).max
    a, b = np.array([[largest, 1], [np.inf, 1]], dtype), np.array([[1, 0.5], [0, 0]], dtype)
    c = np.array([[0, largest], [-1, 1]], dtype)
    problem = problem_of(Sizes(2, 2, 2), "NN", dtype, alpha=1, beta=1)
    got = compute(backend, kernel, problem, a=a, b=b, c=c)
    assert_same(got, np.array([[largest, np.inf], [np.inf, np.inf]]), f"{kernel} on {problem}")


@pytest.mark.every_value("kernel", VARIANTS)
def test_what_zeros_cancel_is_not_read(backend: gp.Backend, dtype: str, kernel: str) -> None:
    """What is not given to `compute` is NaN."""
    c = np.ones((9, 17), dtype)
    assert_same(
        compute(backend, kernel, problem_of(Sizes(9, 17, 3), "NN", dtype, alpha=0, beta=2), c=c), 2 * c, "alpha = 0"
    )
    assert_same(compute(backend, kernel, problem_of(Sizes(9, 17, 3), "NN", dtype, alpha=0)), 0 * c, "alpha = beta = 0")
    a, b = np.ones((9, 3), dtype), np.ones((3, 17), dtype)
    assert_same(compute(backend, kernel, problem_of(Sizes(9, 17, 3), "NN", dtype), a=a, b=b), 3 * c, "beta = 0")


# Subnormal numbers


@pytest.mark.every_value("kernel", VARIANTS)
def test_subnormal_numbers_are_kept_where_the_device_says_so(backend: gp.Backend, dtype: str, kernel: str) -> None:
    """As a factor, a product, a sum, an element of C; elsewhere each is what it should be, or zero."""
    least, tiny = np.finfo(dtype).smallest_subnormal, np.finfo(dtype).tiny
    a = np.array([[3 * least, 0], [tiny, 0], [1.5 * tiny, tiny], [least, least]], dtype)
    b = np.array([[1, 0.5], [-1, 0.25]], dtype)
    a[3] = 0, 7 * least
    c = np.full((4, 2), 5 * least, dtype)
    problem = problem_of(Sizes(4, 2, 2), "NN", dtype)
    for got, wanted in (
        (compute(backend, kernel, problem, a=a, b=b), real_product(a, b)),
        (compute(backend, kernel, problem.with_scalars(0, 1), c=c), c),
    ):
        if keeps_subnormals(backend, dtype):
            assert_same(got, wanted, f"{kernel} on {problem}")
        else:
            assert ((got == wanted) | ((got == 0) & (np.abs(wanted) < tiny))).all()


# Roundings of the output


def around_every(output: DType, dtype: str) -> Array:
    """Every number of a 16-bit type, the middles between neighbours, and the next numbers of `dtype` on both sides of each."""
    with np.errstate(invalid="ignore"):
        finite = np.arange(2**16, dtype=np.uint16).view(output.numpy).astype(np.float64)
    finite = np.unique(finite[np.isfinite(finite)])
    beyond = finite[-1] + (finite[-1] - finite[-2]) / 2  # from here on, infinite
    middles = (finite[1:] + finite[:-1]) / 2
    exact = np.concatenate([finite, middles, [beyond, -beyond, 4 * beyond, np.inf, -np.inf, np.nan]])
    with np.errstate(over="ignore"):
        narrow = exact.astype(dtype)
        both = [np.nextafter(narrow, narrow.dtype.type(side)) for side in (-np.inf, np.inf)]
    return np.concatenate([narrow, *both])


NANS = {
    "float32": np.array([0x7FC00000, 0x7F800001, 0x7FFFFFFF, 0xFFFFFFFF, 0xFF800001], np.uint32).view(np.float32),
    "float64": np.array([0x7FF8 << 48, (0x7FF0 << 48) + 1, 2**63 - 1, 2**64 - 1], np.uint64).view(np.float64),
}


@pytest.mark.sample(kernel=["tiled", "packed"])
@pytest.mark.every_value("output", HALVES)
@pytest.mark.every_value("kernel", VARIANTS)
def test_halves_are_rounded_once_to_nearest_even(backend: gp.Backend, dtype: str, kernel: str, output: str) -> None:
    check_roundings(backend, kernel, dtype, output)


def check_roundings(backend: gp.Backend, kernel: str, dtype: str, output: str) -> None:
    """1 · x for all x about which rounding could err: ties, subnormal halves, overflow, NaN of any payload."""
    x = np.concatenate([around_every(DTYPES[output], dtype), NANS[dtype]])
    problem = gp.GemmProblem.create(x.size, 1, 1, dtype=dtype, output=output)
    got = compute(backend, kernel, problem, a=x[:, np.newaxis], b=np.ones((1, 1), dtype))[:, 0].astype(np.float64)
    with np.errstate(invalid="ignore"):  # signalling NaN become quiet
        wide = x.astype(np.float64)
    wanted = nearest(wide, DTYPES[output])
    wanted[wide == 0] = 0.0  # the sum began at +0
    if not keeps_subnormals(backend, "float32"):
        lost = (np.abs(wide) < np.finfo(np.float32).tiny) & (got == 0)
        wanted[lost] = got[lost]
    assert_same(got, wanted, f"{kernel}, {dtype} → {output}")


@pytest.mark.every_value("dtype_of_halves", HALVES)
@pytest.mark.every_value("kernel", VARIANTS)
def test_every_half_is_read_as_it_is(backend: gp.Backend, kernel: str, dtype_of_halves: str) -> None:
    x = np.arange(2**16, dtype=np.uint16).view(DTYPES[dtype_of_halves].numpy)
    problem = gp.GemmProblem.create(x.size, 1, 1, dtype=dtype_of_halves, output="float32")
    got = compute(backend, kernel, problem, a=x[:, np.newaxis], b=np.ones((1, 1), x.dtype))[:, 0]
    with np.errstate(invalid="ignore"):
        wanted = x.astype(np.float32) + np.float32(0)
    if not keeps_subnormals(backend, "float32"):
        lost = (np.abs(wanted) < np.finfo(np.float32).tiny) & (got == 0)
        wanted[lost] = got[lost]
    assert_same(got, wanted, f"{kernel}, {dtype_of_halves}")


# Integers and truth values


@pytest.mark.every_value(
    ("types", "x", "y", "k"),
    [
        (("int32", "int32"), -(2**31), -1, 1),
        (("int32", "int32"), 2**31 - 1, 2**31 - 1, 3),
        (("uint8", "uint8"), 255, 255, 300),
        (("uint8", "int32"), 255, 255, 300),
        (("int8", "int32"), -128, -128, 300),
        (("int8", "int8"), -128, -128, 3),
        (("int64", "int64"), -(2**63), -1, 1),
        (("int64", "int64"), 2**63 - 1, -(2**63), 2),
        (("uint64", "uint64"), 2**64 - 1, 2**64 - 1, 5),
        (("uint32", "int64"), 2**32 - 1, 2**32 - 1, 3),
        (("int16", "int64"), -(2**15), 2**15 - 1, 7),
    ],
)
@pytest.mark.every_value("kernel", VARIANTS)
def test_integers_wrap_around(backend: gp.Backend, kernel: str, types: tuple[str, str], x: int, y: int, k: int) -> None:
    dtype, output = types
    problem = problem_of(Sizes(9, 17, k), "NN", dtype, output=output, alpha=-3, beta=7)
    limits = np.iinfo(output)
    c = np.full((9, 17), limits.min, output)
    got = compute(backend, kernel, problem, a=np.full((9, k), x, dtype), b=np.full((k, 17), y, dtype), c=c)
    bits = as_dtype(output).itemsize * 8
    wanted = (-3 * x * y * k + 7 * int(limits.min)) % 2**bits
    assert {int(value) % 2**bits for value in got.ravel()} == {wanted}


@pytest.mark.every_value("kernel", VARIANTS)
def test_truth_values_are_ors_of_ands(backend: gp.Backend, kernel: str) -> None:
    """Any byte but zero is true, and true is stored as 1."""
    rng = np.random.default_rng(4)
    a, b, c = (rng.choice(np.array([0, 0, 0, 1, 2, 255], np.uint8), shape) for shape in ((17, 13), (13, 31), (17, 31)))
    for beta in (0, 1):
        problem = problem_of(Sizes(17, 31, 13), "NN", "bool", beta=beta)
        read = {"c": c.view(bool)} if beta else {}
        got = compute(backend, kernel, problem, a=a.view(bool), b=b.view(bool), **read)
        wanted = (a[:, :, np.newaxis].astype(bool) & b.astype(bool)).any(axis=1) | (bool(beta) & c.astype(bool))
        assert np.ascontiguousarray(got).view(np.uint8).tolist() == wanted.astype(np.uint8).tolist()


def check(backend: gp.Backend, kernel: str, types: Types) -> None:
    """The checks of a product of these types, for test_mutations."""
    dtype, output, _ = types
    if DTYPES[dtype].kind == "complex":
        check_complex(backend, kernel, dtype)
    else:
        check_roundings(backend, kernel, dtype, output)


@pytest.mark.parametrize(
    ("dtype", "alpha"),
    [("int8", 2**40 + 3), ("uint8", -1), ("int16", -(2**31) - 1), ("int32", 2**32 + 5), ("int64", 2**64 + 7)],
    ids=str,
)
def test_whole_scalars_wrap(best_backend: gp.Backend, dtype: str, alpha: int) -> None:
    """As NumPy's integers do: what counts are the lowest bits."""
    a = np.arange(6).reshape(2, 3).astype(dtype)
    wanted = (alpha * (a.astype(object) @ a.T.astype(object))) % 2 ** (8 * a.itemsize)
    product = gp.gemm(a, a, trans_b="T", alpha=alpha, device=best_backend.device)
    np.testing.assert_array_equal(product.view(f"u{a.itemsize}"), wanted.astype(f"u{a.itemsize}"))
