"""Whether a result is right. Three checks, each of which is shown in the tests to fail on its planted fault.

- exact: operands of whole numbers, whose products and sums every order of summation computes without rounding; the
  result is compared bit for bit. Finds every fault of indexing, and sums of float64 that are kept in float32. Products of
  integers and bool are exact for all operands, so that theirs are random ones of the whole range.
- statistical: N(0, 1) operands against a more precise reference, with a bound that a product in TF32, or one that drops a
  single term, does not keep. Finds every fault of precision.
- untouched: D's memory is filled with NaN beforehand. An element that is not written, or a write into the gaps between rows or
  beyond the ends, shows.

The statistical bound
---------------------
With u the unit roundoff of the sums, every order of summation of k terms keeps, for certain,

    |error| ≤ γₖ · |a|ᵀ|b|,  γₖ = k·u / (1 − k·u)

(Higham, Accuracy and Stability of Numerical Algorithms, 2nd edition, section 3.1), and with a probability that hardly depends
on k even λ·√k·u · |a|ᵀ|b| (Higham & Mary, SIAM J. Sci. Comput. 41(5), 2019, theorem 3.1). Both are valid for data of any sign,
and too weak to judge by: from k ≈ 11,000 on, the latter lets TF32 pass for FP32. For independent operands of random sign, as
here, partial sums are a random walk, |s_l| ≈ √l · rms(a) · rms(b), and the bound loses its growth with k (Higham & Mary, SIAM
J. Sci. Comput. 42(5), 2020: sharper bounds for random data of zero mean). Each addition rounds by at most u |s_l|,
independently, so that the error has the standard deviation

    u / √3 · √(Σ s_l²) ≈ 0.41 · u · ‖a‖₂ ‖b‖₂.

The bound is LAMBDA · u · |alpha| · ‖a‖₂ ‖b‖₂, twenty standard deviations; for k ≤ LAMBDA it is above γₖ and holds for certain.
To it are added the roundings of alpha · sum + beta · C, that of the output, and underflow. Each part of a complex sum is a
real one of 2k terms with the same norms, so that the modulus of the error is at most √2 times as large.

Where the plan says that a matrix unit cuts sums (`contracts.kernel.Cut`), their error is larger: `unit_of_cut` is added to
LAMBDA · u.

What float32 sums, or a result rounded to float32, are off by is 10⁷ of a bound of float64: those fail for any k.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from gemmport import kernels
from gemmport.checking.reference import (
    Matrices,
    applied,
    as_multiplied,
    exact_dots,
    reference,
    wide_type,
    wrapped_product,
)
from gemmport.contracts.kernel import Cut
from gemmport.core.device import DeviceInfo
from gemmport.core.dtypes import FLOAT32, FLOAT64, DType, as_dtype
from gemmport.core.layout import matrices
from gemmport.core.plan import Plan
from gemmport.core.precision import FORMATS, FULL, Format
from gemmport.core.problem import GemmProblem, Layout, Operand, Scalar, transposes
from gemmport.runtime.side_by_side import in_blocks

HostArray = npt.NDArray[Any]

LAMBDA = 8.0

POISON = {"real": 0xFF, "complex": 0xFF, "integer": 0xFD, "bool": 0xFD}
"""Every byte of it: a NaN where there are any, else a number that is seldom a result."""

FULL_REFERENCE_FLOPS = 2.5e12
"""Larger products are checked by whole sampled rows and Freivalds' method instead of element by element."""

SAMPLED_ROWS = 24

SAMPLED_ENTRIES = 192
"""Entries of a product in float64 or complex128 that are compared with exactly summed ones, beside its corners; all of a
product that has no more."""

LARGEST = 8
"""Of the whole numbers of `exact_operands`, where sums have no more room than float32."""

LARGEST_WIDE = 2**26
"""Where they have."""

_BLOCK = 2**22
"""Elements that a thread draws, widens or compares at a time."""


@dataclass(frozen=True)
class Check:
    """The outcome of one check.

    Attributes:
        name: "exact", "statistical", "untouched" or "freivalds".
        error, bound: of the worst element: its error, and what was allowed there.
        detail: what is wrong and where, for people; empty where the check passed.
        relative: ‖error‖ / ‖reference‖ in the Frobenius norm, of all that was compared within a bound; None where that is
            NaN or infinite, or the check is bit for bit.
    """

    name: str
    passed: bool
    error: float
    bound: float
    detail: str = ""
    relative: float | None = None

    @property
    def error_over_bound(self) -> float:
        """Error of the worst element in units of its bound; ≤ 1 passes."""
        if self.bound > 0:
            return self.error / self.bound
        return 0.0 if self.error == 0 else math.inf


def inputs(problem: GemmProblem) -> tuple[Operand, ...]:
    """The operands that a problem reads: C only where beta is not 0."""
    return ("a", "b") if problem.beta == 0 else ("a", "b", "c")


def rounds(problem: GemmProblem) -> bool:
    """Whether the product rounds: that of integers and of bool does not."""
    return problem.accumulator.precision > 0


def narrows(problem: GemmProblem) -> bool:
    """Whether an element of D has fewer bits than its sum, so that exact sums are rounded once."""
    return problem.output.precision < problem.accumulator.precision


def random_operands(problem: GemmProblem, seed: int) -> dict[Operand, HostArray]:
    """N(0, 1) numbers, complex ones in each part; integers of the whole range; truth values of which a product is half true."""
    rng = np.random.default_rng(seed)
    both = 1 - 0.5 ** (1 / max(problem.k, 1))  # the chance that a term is true, of which half of the sums are
    return {
        operand: random_numbers(rng, _shape(problem, operand), problem.element_type(operand), chance=math.sqrt(both))
        for operand in inputs(problem)
    }


def random_numbers(
    rng: np.random.Generator, shape: tuple[int, ...], dtype: DType, *, chance: float = 0.5
) -> HostArray:  # fmt: skip
    """N(0, 1) numbers, complex ones in each part; integers of the whole range; truth values, true by chance."""

    def numbers(rng: np.random.Generator, place: slice) -> HostArray:
        count = place.stop - place.start
        if dtype.kind == "integer":
            limits = np.iinfo(dtype.numpy)
            whole: HostArray = rng.integers(limits.min, limits.max, count, dtype.numpy, endpoint=True)
            return whole
        if dtype.kind == "bool":
            true: HostArray = rng.random(count) < chance
            return true
        if dtype.kind == "complex":
            parts: HostArray = rng.standard_normal((count, 2), dtype=f"float{dtype.part_bits}")  # type: ignore[call-overload]
            return parts.view(dtype.numpy)[..., 0]
        native = dtype.name if dtype.name in ("float32", "float64") else "float32"
        normal: HostArray = rng.standard_normal(count, dtype=native)  # type: ignore[call-overload]
        return normal

    return drawn(rng, shape, dtype, numbers)


def drawn(
    rng: np.random.Generator,
    shape: tuple[int, ...],
    dtype: DType,
    draw: Callable[[np.random.Generator, slice], HostArray],
) -> HostArray:
    """An array whose blocks are drawn side by side, each by a generator of its own, which the given one seeds: how many threads
    draw changes nothing. What is a single block is drawn by the given one.

    Args:
        draw: makes elements of the flat array, (stop − start,).
    """
    flat = np.empty(math.prod(shape), dtype.numpy)
    single = flat.size <= _BLOCK
    seeds = () if single else rng.integers(2**63, size=-(-flat.size // _BLOCK))

    def fill(place: slice) -> None:
        own = rng if single else np.random.default_rng(int(seeds[place.start // _BLOCK]))
        flat[place] = draw(own, place)

    in_blocks(fill, flat.size, _BLOCK)
    return flat.reshape(shape)


def exact_scalars(problem: GemmProblem) -> tuple[Scalar, Scalar]:
    """Alpha and beta that keep `exact_operands` exact, and are 0 or 1, or real, where the problem's are."""

    def simple(value: Scalar, other: Scalar) -> Scalar:
        if value in (0, 1):
            return value
        return other * (1 + 2j) if value.imag != 0 else other

    return simple(problem.alpha, 2), simple(problem.beta, -1)


def exact_operands(problem: GemmProblem, seed: int) -> dict[Operand, HostArray]:
    """Whole numbers, of both signs where the type has them, so small that no sum of products needs rounding; for problems
    with `exact_scalars`. A narrow output is rounded once.

    Where sums and output are wider than float32, the numbers are as large as they may be for Freivalds' check to be exact too:
    products then have more bits than float32 holds.

    Where A and B are rounded before they are multiplied, they are such numbers when they were: see `_before_rounding`.

    Raises:
        ValueError: so many terms that even −1, 0, 1 may need rounding (k > 2²³ in float32).
    """
    rng = np.random.default_rng(seed)
    scale = max(1.0, _parts(problem.alpha)) + _parts(problem.beta)
    parts = 2 if problem.accumulator.kind == "complex" else 1  # products that a term adds to each part
    room = 2.0 ** (problem.accumulator.precision - 1) / scale / parts / max(problem.k, 1)
    largest = min(LARGEST, math.isqrt(int(room)))
    if min(problem.accumulator.precision, problem.output.precision) > FLOAT32.precision:
        largest = max(largest, min(LARGEST_WIDE, math.isqrt(int(room / max(problem.n, 1)))))
    if largest < 1:
        raise ValueError(f"k = {problem.k} terms cannot be summed exactly in {problem.accumulator}")

    def whole(operand: Operand) -> HostArray:
        dtype, shape = problem.element_type(operand), _shape(problem, operand)
        most = min(largest, _largest_whole(dtype))
        form = FORMATS[problem.precision] if problem.precision != FULL and operand != "c" else None
        if form is not None:
            most = min(most, 2 ** (form.precision - 1))
        least = 0 if dtype.numpy.kind == "u" else -most  # −1 would become the largest number there is
        native = np.int8 if most <= np.iinfo(np.int8).max else np.int64

        def numbers(rng: np.random.Generator, place: slice) -> HostArray:
            parts = 2 if dtype.kind == "complex" else 1
            values: HostArray = rng.integers(least, most, (place.stop - place.start, parts), native, endpoint=True)
            if form is not None:
                others = _terms(problem, operand, place) % 2 == 1
                values = _before_rounding(rng, values.astype(np.float64), form, operand, others[:, np.newaxis])
            if dtype.kind == "complex":
                values = values.astype(f"float{dtype.part_bits}").view(dtype.numpy)
            return values[:, 0]

        return drawn(rng, shape, dtype, numbers)

    return {operand: whole(operand) for operand in inputs(problem)}


def _terms(problem: GemmProblem, operand: Operand, place: slice) -> HostArray:
    """Which terms of the sums elements of A or B are factors of; the elements are counted through its matrices as stored."""
    rows, columns = problem.stored_shape(operand)
    at = np.arange(place.start, place.stop)
    along_rows = (operand == "a") != transposes(problem.trans_a if operand == "a" else problem.trans_b)
    return at % columns if along_rows else at // columns % rows


def _before_rounding(
    rng: np.random.Generator, whole: HostArray, form: Format, operand: Operand, others: HostArray
) -> HostArray:
    """Numbers that rounding to nearest, ties to even, makes of A or B what has whole products.

    They are larger than that by a quarter of the distance to the next, or by half, a tie, or smaller by an eighth: they come
    out otherwise where they are not rounded, cut off, or rounded with ties away from zero. The factors of every other term are
    moved away from 1, against each other: beyond the exponents of float16, or, in float16, to where its numbers are subnormal.

    Args:
        others: which are factors of these other terms.
    """
    if form.exponent_bits > FORMATS["float16"].exponent_bits:
        shift = 20
    else:
        shift = -15
        whole = np.where(others & (operand == "b"), np.sign(whole), whole)  # else it would be infinite
    whole = np.where(others, np.ldexp(whole, shift if operand == "a" else -shift), whole)
    exponent = np.maximum(np.frexp(whole)[1] - 1, form.least_exponent)
    step = np.ldexp(np.sign(whole), exponent - form.precision + 1)
    numbers: HostArray = whole + step * rng.choice([0, 0.25, 0.5, -0.125], whole.shape)
    return numbers


def _largest_whole(dtype: DType) -> int:
    """The number up to which a type has all whole ones; of truth values, any."""
    if dtype.kind == "integer":
        return int(np.iinfo(dtype.numpy).max)
    return 2**dtype.precision if dtype.precision else LARGEST


def _parts(value: Scalar) -> float:
    return abs(value.real) + abs(value.imag)


def guarded(problem: GemmProblem, guard: int) -> Layout:
    """The layout of D moved `guard` elements into its memory, so that writes before its start show too."""
    d = problem.d
    return Layout(d.ld, d.batch_stride, d.offset + guard, d.base_alignment)


def poison(elements: int, dtype: object, first: int | None = None) -> HostArray:
    """A flat host array full of poison.

    Args:
        first: the first byte of each element, where it is to be another.
    """
    kind = as_dtype(dtype)
    flat = np.empty(elements, kind.numpy)
    one = np.full(flat.itemsize, POISON[kind.kind], np.uint8)
    one[:1] = one[0] if first is None else first
    words = flat.view(np.uint8).reshape(elements, flat.itemsize)
    word = f"u{min(flat.itemsize, 8)}"

    def fill(place: slice) -> None:
        words[place].view(word)[...] = one.view(word)

    in_blocks(fill, elements, _BLOCK)
    return flat


def laid_out(problem: GemmProblem, operand: Operand, values: HostArray | None, guard: int = 0) -> HostArray:
    """The memory of an operand: its matrices where the layout says, poison between them and behind them; `values` themselves
    where they lie just so.

    Args:
        values: (batch, rows, columns) as stored; all matrices alike where the batch stride is 0. None: poison alone.
        guard: elements behind the span.
    """
    layout = problem.layout(operand)
    rows, columns = problem.stored_shape(operand)
    dense = (
        layout.ld == columns and layout.offset == 0 and (problem.batch == 1 or layout.batch_stride == rows * columns)
    )
    if values is not None and values.flags.c_contiguous and dense and not guard:
        return values.reshape(-1)
    flat = poison(problem.span(operand) + guard, problem.element_type(operand))
    if values is not None:
        view = matrices(flat, layout, *problem.stored_shape(operand), problem.batch)
        view[...] = values[: 1 if layout.batch_stride == 0 else None]
    return flat


_payloads = itertools.cycle(range(0x81, 0xFF))


def poisoned(problem: GemmProblem, guard: int) -> HostArray:
    """Memory for D full of poison, with `guard` elements behind its span.

    Each time it is another NaN than that of the operands, and than the last time: processors carry a NaN's bits from what is
    read into what is computed, and a stray write of them must show.
    """
    return poison(problem.span("d") + guard, problem.output, next(_payloads) if rounds(problem) else None)


def copied(flat: HostArray) -> HostArray:
    """A copy of a flat array."""
    copy = np.empty_like(flat)

    def fill(place: slice) -> None:
        copy[place] = flat[place]

    in_blocks(fill, flat.size, _BLOCK)
    return copy


def differing(before: HostArray, after: HostArray) -> HostArray:
    """Where two flat arrays of one type differ in any bit: the indices of these elements."""

    def found(place: slice) -> HostArray:
        places: HostArray = np.flatnonzero(_differ(before[place], after[place])) + place.start
        return places

    return np.concatenate([np.empty(0, np.intp), *in_blocks(found, after.size, _BLOCK)])


def _differ(before: HostArray, after: HostArray) -> HostArray:
    word = min(after.itemsize, 8)
    words: HostArray = before.view(f"u{word}") != after.view(f"u{word}")
    return words if word == after.itemsize else np.logical_or(words[0::2], words[1::2])


def check_untouched(problem: GemmProblem, before: HostArray, flat: HostArray) -> Check:
    """That nothing of D's memory outside D changed, and everything in D did (integers may be what the poison is).

    Args:
        before, flat: D's memory as `poisoned` made it, and after the product.
    """
    inside = np.zeros(flat.size, bool)
    matrices(inside, problem.d, problem.m, problem.n, problem.batch)[...] = True

    def found(place: slice) -> tuple[HostArray, HostArray]:
        differs = _differ(before[place], flat[place])
        stray = np.flatnonzero(differs & ~inside[place])
        missed = np.flatnonzero(~differs & inside[place]) if rounds(problem) else stray[:0]
        return stray + place.start, missed + place.start

    each = in_blocks(found, flat.size, _BLOCK)
    strays, missing = (np.concatenate([np.empty(0, np.intp), *parts]) for parts in zip(*each, strict=True))
    detail = ""
    if strays.size:
        detail = f"{strays.size} writes outside D, the first at element {strays[0]} of its memory"
    elif missing.size:
        detail = f"{missing.size} elements of D were not written, the first at element {missing[0]} of its memory"
    return Check("untouched", not detail, float(strays.size + missing.size), 0.0, detail)


def check_exact(expected: HostArray, d: HostArray) -> Check:
    """That a result has the bits of the reference, rounded once to its type (−0 and 0 are the same number)."""
    with np.errstate(over="ignore"):  # a narrow output may be infinite
        wanted = expected.astype(d.dtype)
    wrong = np.argwhere(~(d == wanted))
    if not wrong.size:
        return Check("exact", True, 0.0, 0.0)
    at = tuple(int(x) for x in wrong[0])
    wide = np.dtype(np.complex128 if np.iscomplexobj(d) else np.float64)
    error = float(np.max(np.nan_to_num(np.abs(d.astype(wide) - wanted.astype(wide)), nan=np.inf, posinf=np.inf)))
    detail = f"{len(wrong)} of {d.size} elements differ; the first, {_place(at)}, is {d[at]} and should be {wanted[at]}"
    return Check("exact", False, error, 0.0, detail)


def check_random(
    problem: GemmProblem,
    operands: Matrices,
    d: HostArray,
    expected: HostArray | None = None,
    cut: Cut | None = None,
) -> Check:
    """That a result of `random_operands` is the reference, or, where it rounds, within the bound of a more precise one.

    Every element is compared with `expected` (default: `reference`); of very large products, those of sampled rows. Products in
    float64 and complex128, for which the reference is no more precise than they are, are also compared in their corners and a
    sample, with exactly summed entries: that is the check that is returned, unless another element fails.

    Args:
        cut: what a matrix unit kept of the sums, where the plan says so (`cut_of`), or may have kept (`cut_on`).
    """
    problem, operands = as_multiplied(problem, operands)
    exactly_summed = None
    if problem.accumulator.precision > FLOAT32.precision:
        exactly_summed = _check_entries(problem, operands, d)
        if not exactly_summed.passed:
            return exactly_summed
    if problem.flops > FULL_REFERENCE_FLOPS:
        check = _check_rows(problem, operands, d, cut)
    else:
        check = _compare(problem, operands, d, reference(problem, operands) if expected is None else expected, cut)
    return check if exactly_summed is None or not check.passed else exactly_summed


def _compare(
    problem: GemmProblem, operands: Matrices, d: HostArray, expected: HostArray, cut: Cut | None = None
) -> Check:
    if not rounds(problem):
        return check_exact(expected, d)
    error = np.abs(d.astype(expected.dtype, copy=False) - expected)
    left, right = applied(operands["a"], problem.trans_a), applied(operands["b"], problem.trans_b)
    rows, columns = _norms(left, 2) if problem.effective_k else np.zeros((1, problem.m)), _norms(right, 1)
    c, own = operands["c"] if problem.beta != 0 else None, FLOAT64.unit_roundoff
    bound = element_bound(problem, rows, columns, expected, c, own, cut)
    return judged("statistical", error, bound, d, expected)


def check_freivalds(problem: GemmProblem, operands: Matrices, d: HostArray, seed: int, *, exact: bool = False) -> Check:
    """Freivalds' check: D · x = alpha · op(A) · (op(B) · x) + beta · C · x for a random x of ±1, in m·n + n·k + m·k operations.

    For `exact_operands` and for integers nothing is tolerated, and a single wrong element always shows (Freivalds, 1977). For
    `random_operands` the errors of a row add up like a random walk too, so that its tolerance is that of the elements
    with the norm of all of op(B) for that of a column.

    Raises:
        ValueError: the product is of bool, which has no subtraction.
    """
    if problem.output.kind == "bool":
        raise ValueError("Freivalds' check needs a ring, and truth values are none")
    problem, operands = as_multiplied(problem, operands)
    signs = random_signs(problem.n, seed)
    left, right = applied(operands["a"], problem.trans_a), applied(operands["b"], problem.trans_b)
    if not rounds(problem):
        return _freivalds_of_integers(problem, left, right, operands, d, signs)
    wide = wide_type(problem)
    expected = np.zeros((problem.batch, problem.m), wide)
    if problem.effective_k:
        expected += problem.alpha * _times_vector(left, _times_vector(right, signs, wide), wide)
    if problem.beta != 0:
        expected += problem.beta * _times_vector(operands["c"], signs, wide)
    found = _times_vector(d, signs, wide)
    tolerance = np.zeros(found.shape)
    if not exact:
        own = FLOAT64.unit_roundoff
        tolerance = freivalds_tolerance(problem, _norms(left, 2), _norms(right, 1), _norms(d, 2), own)
    return judged("freivalds", np.abs(found - expected), tolerance, found, expected)


def random_signs(count: int, seed: int) -> HostArray:
    """So many random numbers 1 and −1."""
    signs: HostArray = np.random.default_rng(seed).choice([-1, 1], count)
    return signs


def freivalds_tolerance(
    problem: GemmProblem,
    rows: HostArray,
    columns: HostArray,
    rows_of_d: HostArray,
    own: float,
    cut: Cut | None = None,
) -> HostArray:
    """What D · x may be off by in each row.

    Args:
        rows, columns, rows_of_d: norms of the rows of op(A), (batch, m), of the columns of op(B), (batch, n), and of the rows
            of D, (batch, m).
        own: unit roundoff of the sums of the check itself: twice in op(A) · (op(B) · x), once in D · x.
        cut: as in `check_random`.
    """
    unit = problem.accumulator.unit_roundoff
    norm_of_right = np.sqrt((columns**2).sum(axis=1))[:, np.newaxis]
    of_sums = LAMBDA * (unit + 2 * own) + unit_of_cut(problem, cut)
    tolerance: HostArray = of_sums * abs(problem.alpha) * rows * norm_of_right
    tolerance += LAMBDA * (2 * unit + problem.output.unit_roundoff + own) * rows_of_d
    tolerance *= _modulus(problem)
    return tolerance


def _freivalds_of_integers(
    problem: GemmProblem, left: HostArray, right: HostArray, operands: Matrices, d: HostArray, signs: HostArray
) -> Check:
    column = signs[:, np.newaxis]
    terms = GemmProblem.create(
        problem.m, 1, problem.k, batch=problem.batch, dtype="int64", alpha=problem.alpha, beta=problem.beta
    )
    part: dict[Operand, HostArray] = {
        "a": left.astype(np.int64),
        "b": wrapped_product(right, column, bits=64).view(np.int64),
    }
    if problem.beta != 0:
        part["c"] = wrapped_product(operands["c"], column, bits=64).view(np.int64)
    expected = reference(terms, part)
    found = wrapped_product(d, column, bits=64)
    return judged_integers(problem, found, expected)


def judged_integers(problem: GemmProblem, found: HostArray, expected: HostArray) -> Check:
    """Freivalds' check of integers: both sides, known modulo 2⁶⁴, must agree modulo the size of the output."""
    signed = problem.output.numpy.str.replace("u", "i")
    return replace(check_exact(expected.astype(signed), found.astype(signed)), name="freivalds")


def element_bound(
    problem: GemmProblem,
    rows: HostArray,
    columns: HostArray,
    expected: HostArray,
    c: HostArray | None,
    own: float = 0.0,
    cut: Cut | None = None,
) -> HostArray:
    """The largest allowed error of each element; see the top of this module.

    Args:
        rows, columns: norms of the rows of op(A), (batch, rows), and of the columns of op(B), (batch, columns).
        expected, c: what D should be and the C that it read, (batch, rows, columns); c is None where beta is 0.
        own: unit roundoff in which `expected` itself was computed; 0 where that is negligible beside the accumulator's.
        cut: as in `check_random`.
    """
    norms = rows[:, :, np.newaxis] * columns[:, np.newaxis, :]
    return _bound(problem, norms, expected, c, of_sums=own + unit_of_cut(problem, cut) / LAMBDA, of_steps=own)


def unit_of_cut(problem: GemmProblem, cut: Cut | None) -> float:
    """What a matrix unit that cuts sums adds to LAMBDA · u of the bound; 0 where none does.

    With v the distance of two numbers next to 1 of so many digits, a sum of the unit's is off by up to v · ‖a‖₂ ‖b‖₂ on N(0, 1)
    operands, and is allowed twice as much. The k / terms sums of a product are cut independently of each other, which takes the
    square root of their number off where they are promoted. Where the unit goes on from what it kept, all its cuts point to
    zero, and what is lost is 0.36 v (k / terms) times the mean of the partial sums, whose standard deviation is
    ‖a‖₂ ‖b‖₂ / √(3k). Allowed is 2 v (√k / terms) ‖a‖₂ ‖b‖₂: 9.6 of them.
    """
    if cut is None:
        return 0.0
    step = 2 * math.ldexp(1.0, 1 - cut.digits)
    if not cut.promoted:
        return step * math.sqrt(problem.k) / cut.terms
    return step * math.sqrt(min(1.0, cut.terms / max(problem.k, 1)))


def cut_of(plan: Plan) -> Cut | None:
    """What a matrix unit keeps of a plan's sums; None where it rounds each addition, or none makes them."""
    return kernels.variant(plan.variant).cut(plan.problem, plan.device)


def cut_on(problem: GemmProblem, *devices: DeviceInfo) -> Cut | None:
    """What matrix units of some devices may have kept of a product's sums: the coarsest cut of the kernels that compute it.

    For results of which nobody tells the kernel, such as those of a call or of a library.
    """
    able = (
        (each, device) for each in kernels.variants() for device in devices if not each.unsupported(problem, device)
    )
    cuts = filter(None, (each.cut(problem, device) for each, device in able))
    return max(cuts, key=partial(unit_of_cut, problem), default=None)


def _bound(
    problem: GemmProblem, norms: HostArray, expected: HostArray, c: HostArray | None, *, of_sums: float, of_steps: float
) -> HostArray:
    """The bound of some elements.

    Args:
        norms: of each element, that of its row of op(A) times that of its column of op(B).
        of_sums, of_steps: unit roundoff of the sums of `expected`, and of scaling them by alpha and adding beta · C.
    """
    unit = problem.accumulator.unit_roundoff
    bound: HostArray = LAMBDA * (unit + of_sums) * abs(problem.alpha) * norms
    bound += (2 * (unit + of_steps) + problem.output.unit_roundoff) * np.abs(expected)
    if c is not None:
        bound += 2 * (unit + of_steps) * abs(problem.beta) * np.abs(c).astype(np.float64)
    bound += (problem.k + 2) * problem.accumulator.smallest_subnormal + problem.output.smallest_subnormal
    bound *= _modulus(problem)
    return bound


def _modulus(problem: GemmProblem) -> float:
    return math.sqrt(2) if problem.accumulator.kind == "complex" else 1.0


def judged(
    name: str, error: HostArray, bound: HostArray, d: HostArray, expected: HostArray, places: HostArray | None = None
) -> Check:
    """The check of the element whose error is largest in units of its bound; NaN is never within it.

    Args:
        places: batch, row and column of each element, where the arrays are a sample.
    """
    if not error.size:
        return Check(name, True, 0.0, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(np.isfinite(error), np.where(error == 0, 0.0, error / bound), np.inf)
    at = np.unravel_index(int(np.argmax(ratio)), ratio.shape)
    passed = bool(ratio[at] <= 1)
    detail = ""
    if not passed:
        detail = (
            f"{int(np.count_nonzero(ratio > 1))} of {ratio.size} elements are beyond their bound; the worst, "
            f"{_place(at if places is None else places[at])}, is {d[at]} and should be {expected[at]} ± {bound[at]:.2g}"
        )
    worst = float(error[at])
    worst = worst if math.isfinite(worst) else math.inf
    return Check(name, passed, worst, float(bound[at]), detail, _relative(error, expected))


def _relative(error: HostArray, expected: HostArray) -> float | None:
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        relative = float(np.linalg.norm(error) / np.linalg.norm(expected))
    return relative if math.isfinite(relative) else None


def _check_rows(problem: GemmProblem, operands: Matrices, d: HostArray, cut: Cut | None = None) -> Check:
    rng = np.random.default_rng(problem.m)
    rows = np.unique(np.concatenate([[0, problem.m - 1], rng.integers(0, problem.m, SAMPLED_ROWS)]))
    part: dict[Operand, HostArray] = {"a": applied(operands["a"], problem.trans_a)[:, rows], "b": operands["b"]}
    if problem.beta != 0:
        part["c"] = operands["c"][:, rows]
    small = GemmProblem.create(
        len(rows), problem.n, problem.k, batch=problem.batch, dtype=problem.dtype, output=problem.output,
        accumulator=problem.accumulator, trans_b=problem.trans_b, alpha=problem.alpha, beta=problem.beta,
    )  # fmt: skip

    def of_columns(place: slice) -> HostArray:
        lines = (slice(None), place) if transposes(problem.trans_b) else (slice(None), slice(None), place)
        own: dict[Operand, HostArray] = {**part, "b": part["b"][lines]}
        if "c" in part:
            own["c"] = part["c"][..., place]
        return reference(replace(small, n=place.stop - place.start), own)

    expected = in_blocks(of_columns, problem.n, _lines(problem.batch * problem.k))
    return _compare(small, part, d[:, rows], np.concatenate(expected, axis=2), cut)


def _check_entries(problem: GemmProblem, operands: Matrices, d: HostArray) -> Check:
    """Corners and a sample of a product in float64 or complex128, against sums of which only the last step rounds."""
    if problem.empty:
        return Check("statistical", True, 0.0, 0.0)
    sample = _sampled_entries(problem)
    x, i, j = sample.T
    wide = wide_type(problem)
    left = applied(operands["a"], problem.trans_a)[x, i].astype(wide)
    right = np.swapaxes(applied(operands["b"], problem.trans_b), 1, 2)[x, j].astype(wide)
    expected = np.zeros(len(sample), wide)
    if problem.effective_k:
        expected += problem.alpha * exact_dots(left, right)
    c = operands["c"][x, i, j].astype(wide) if problem.beta != 0 else None
    if c is not None:
        expected += problem.beta * c
    norms = np.linalg.norm(left, axis=1) * np.linalg.norm(right, axis=1)
    # The exact sum is rounded once, as alpha · sum is.
    bound = _bound(problem, norms, expected, c, of_sums=0.0, of_steps=2 * FLOAT64.unit_roundoff)
    error = np.abs(d[x, i, j].astype(wide) - expected)
    return judged("statistical", error, bound, d[x, i, j], expected, places=sample)


def _sampled_entries(problem: GemmProblem) -> HostArray:
    """Batch, row and column of the corners and of a sample of D's elements, or of all of few."""
    shape = (problem.batch, problem.m, problem.n)
    if math.prod(shape) <= SAMPLED_ENTRIES:
        return np.argwhere(np.ones(shape, bool))
    rng = np.random.default_rng(problem.m)
    corners = [(x, i, j) for x in (0, problem.batch - 1) for i in (0, problem.m - 1) for j in (0, problem.n - 1)]
    return np.unique([*corners, *rng.integers(0, shape, (SAMPLED_ENTRIES, 3))], axis=0)


def _shape(problem: GemmProblem, operand: Operand) -> tuple[int, int, int]:
    return (problem.batch, *problem.stored_shape(operand))


def _norms(x: HostArray, axis: int) -> HostArray:
    """Euclidean norms of all rows (axis 2) or columns (axis 1), in float64."""
    if np.iscomplexobj(x):
        modulus: HostArray = np.hypot(_norms(x.real, axis), _norms(x.imag, axis))
        return modulus
    other = "bij,bij->bi" if axis == 2 else "bij,bij->bj"

    def squares(place: slice) -> HostArray:
        part = x[:, place]
        native = part if part.dtype.kind == "f" else part.astype(np.float32)  # einsum does not know bfloat16
        sums: HostArray = np.einsum(other, native, native, dtype=np.float64)
        return sums

    parts = in_blocks(squares, x.shape[1], _lines(x.shape[0] * x.shape[2]))
    if not parts:
        return np.zeros((x.shape[0], x.shape[3 - axis]))
    norms: HostArray = np.sqrt(np.concatenate(parts, axis=1) if axis == 2 else sum(parts))
    return norms


def _times_vector(x: HostArray, vector: HostArray, wide: np.dtype[Any]) -> HostArray:
    """Each matrix times a vector, or times its own vector of a batch, in a wide type, by blocks that stay small."""
    out = np.empty(x.shape[:2], wide)
    for batch in range(x.shape[0]):
        own = vector if vector.ndim == 1 else vector[batch]

        def multiply(place: slice, batch: int = batch, own: HostArray = own) -> None:
            out[batch, place] = x[batch, place].astype(wide) @ own

        in_blocks(multiply, x.shape[1], _lines(x.shape[2]))
    return out


def _lines(elements: int) -> int:
    """Rows or columns of so many elements each that make a block."""
    return max(1, _BLOCK // max(elements, 1))


def _place(at: Iterable[Any]) -> str:
    names = ("batch", "row", "column")
    return " ".join(f"{name} {index}" for name, index in zip(names, at, strict=False))
