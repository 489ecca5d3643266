"""Whether a result is right. Three checks, each of which is shown in the tests to fail on its planted fault.

- exact: operands of small integers, whose products and sums every order of summation computes without rounding; the
  result is compared bit for bit. Finds every fault of indexing.
- statistical: N(0, 1) operands against a more precise reference, with a bound that a product in TF32, or one that drops a
  single term, does not keep. Finds every fault of precision.
- untouched: D's memory is filled with NaN beforehand. An element that is not written, or a write into the gaps between rows or
  beyond the ends, shows.

The statistical bound
---------------------
For independent operands of random sign, the partial sums of a dot product are a random walk: |s_l| ≈ √l · rms(a) · rms(b). Each
addition rounds by at most u |s_l|, independently, so that the error has the standard deviation

    u / √3 · √(Σ s_l²) ≈ 0.41 · u · ‖a‖₂ ‖b‖₂,

without a factor √k (the step from worst case to probable error is that of Higham & Mary, SIAM J. Sci. Comput. 41, 2019). The
bound is LAMBDA · u · |alpha| · ‖a‖₂ ‖b‖₂, twenty standard deviations; for k ≤ LAMBDA it even holds for certain. The bound
c · √k · u · (|A||B|) is valid for data of any sign, but too weak to judge by: from k ≈ 11,000 on, it lets TF32 pass for FP32.
To it are added the roundings of alpha · sum + beta · C, that of the output, and underflow.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gemmport.layout import matrices
from gemmport.problem import GemmProblem, Layout, Operand

HostArray = npt.NDArray[Any]
Matrices = Mapping[Operand, HostArray]
"""Operands as (batch, rows, columns), as they are stored (before their op)."""

LAMBDA = 8.0

POISON = 0xFF
"""Every byte of it: a NaN in each floating-point type."""

FULL_REFERENCE_FLOPS = 2.5e12
"""Larger products are checked by whole sampled rows and Freivalds' method instead of element by element."""

SAMPLED_ROWS = 24

SAMPLED_ENTRIES = 192
"""Entries of a float64 product that are compared with exactly summed ones, beside its corners."""


@dataclass(frozen=True)
class Check:
    """The outcome of one check.

    Attributes:
        name: "exact", "statistical", "untouched" or "freivalds".
        error, bound: of the worst element: its error, and what was allowed there.
        detail: what is wrong and where, for people; empty where the check passed.
    """

    name: str
    passed: bool
    error: float
    bound: float
    detail: str = ""

    @property
    def error_over_bound(self) -> float:
        """Error of the worst element in units of its bound; ≤ 1 passes."""
        if self.bound > 0:
            return self.error / self.bound
        return 0.0 if self.error == 0 else math.inf


def inputs(problem: GemmProblem) -> tuple[Operand, ...]:
    """The operands that a problem reads: C only where beta is not 0."""
    return ("a", "b") if problem.beta == 0 else ("a", "b", "c")


def random_operands(problem: GemmProblem, seed: int) -> dict[Operand, HostArray]:
    """N(0, 1) operands."""
    rng = np.random.default_rng(seed)
    return {
        operand: rng.standard_normal(_shape(problem, operand), dtype=problem.element_type(operand).name)  # type: ignore[call-overload]
        for operand in inputs(problem)
    }


def exact_scalars(problem: GemmProblem) -> tuple[float, float]:
    """Alpha and beta that keep `exact_operands` exact, and are 0 or 1 where the problem's are."""
    alpha = problem.alpha if problem.alpha in (0, 1) else 2.0
    return alpha, problem.beta if problem.beta in (0, 1) else -1.0


def exact_operands(problem: GemmProblem, seed: int) -> dict[Operand, HostArray]:
    """Whole numbers of both signs, so small that no sum of products needs rounding; for problems with `exact_scalars`.

    Raises:
        ValueError: so many terms that even −1, 0, 1 may need rounding (k > 2²³ in float32).
    """
    rng = np.random.default_rng(seed)
    scale = max(1.0, abs(problem.alpha)) + abs(problem.beta)
    room = 2.0 ** (problem.accumulator.precision - 1) / scale
    largest = min(8, math.isqrt(int(room / max(problem.k, 1))))
    if largest < 1:
        raise ValueError(f"k = {problem.k} terms cannot be summed exactly in {problem.accumulator}")
    return {
        operand: rng.integers(-largest, largest, _shape(problem, operand), endpoint=True).astype(
            problem.element_type(operand).numpy
        )
        for operand in inputs(problem)
    }


def reference(problem: GemmProblem, operands: Matrices) -> HostArray:
    """D in float64, (batch, m, n): more precise than any product of ≤ 32 bits, and exact for `exact_operands`."""
    left, right = _op(operands["a"], problem.trans_a), _op(operands["b"], problem.trans_b)
    d = np.zeros((problem.batch, problem.m, problem.n))
    if problem.effective_k:
        np.matmul(left.astype(np.float64, copy=False), right.astype(np.float64, copy=False), out=d)
        if problem.alpha != 1:
            d *= problem.alpha
    if problem.beta != 0:
        d += problem.beta * operands["c"].astype(np.float64)
    return d


def guarded(problem: GemmProblem, guard: int) -> Layout:
    """The layout of D moved `guard` elements into its memory, so that writes before its start show too."""
    d = problem.d
    return Layout(d.ld, d.batch_stride, d.offset + guard, d.base_alignment)


def poisoned(problem: GemmProblem, guard: int) -> HostArray:
    """Memory for D as a flat host array full of poison, with `guard` elements behind its span."""
    flat = np.empty(problem.span("d") + guard, problem.output.numpy)
    flat.view(np.uint8)[:] = POISON
    return flat


def check_untouched(problem: GemmProblem, flat: HostArray) -> Check:
    """That nothing of D's memory outside D changed, and everything in D did."""
    bits = flat.view(f"u{flat.itemsize}")
    poison = int.from_bytes(bytes([POISON] * flat.itemsize), "little")
    outside = np.ones(flat.size, bool)
    inside = matrices(outside, problem.d, problem.m, problem.n, problem.batch)
    inside[...] = False
    strays = np.flatnonzero(outside & (bits != poison))
    missing = np.flatnonzero(~outside & (bits == poison))
    detail = ""
    if strays.size:
        detail = f"{strays.size} writes outside D, the first at element {strays[0]} of its memory"
    elif missing.size:
        detail = f"{missing.size} elements of D were not written, the first at element {missing[0]} of its memory"
    return Check("untouched", not detail, float(strays.size + missing.size), 0.0, detail)


def check_exact(expected: HostArray, d: HostArray) -> Check:
    """That the result of `exact_operands` has the bits of the reference (−0 and 0 are the same number)."""
    wrong = np.argwhere(~(d == expected.astype(d.dtype)))
    if not wrong.size:
        return Check("exact", True, 0.0, 0.0)
    at = tuple(int(x) for x in wrong[0])
    error = float(np.max(np.nan_to_num(np.abs(d - expected), nan=np.inf, posinf=np.inf)))
    detail = (
        f"{len(wrong)} of {d.size} elements differ; the first, {_place(at)}, is {d[at]} and should be {expected[at]:g}"
    )
    return Check("exact", False, error, 0.0, detail)


def check_statistical(
    problem: GemmProblem, operands: Matrices, d: HostArray, expected: HostArray | None = None
) -> Check:
    """That a result of `random_operands` is within the bound of a more precise reference.

    Products of at most 32 bits are compared with `expected` (default: `reference`) in every element; float64 products in their
    corners and a sample, with exactly summed entries; very large ones in sampled rows.
    """
    if problem.output.precision > 24:
        return _check_entries(problem, operands, d)
    if problem.flops > FULL_REFERENCE_FLOPS:
        return _check_rows(problem, operands, d)
    if expected is None:
        expected = reference(problem, operands)
    return _worst("statistical", np.abs(d - expected), _bound(problem, operands, expected), d, expected)


def check_freivalds(problem: GemmProblem, operands: Matrices, d: HostArray, seed: int, *, exact: bool = False) -> Check:
    """Freivalds' check: D · x = alpha · op(A) · (op(B) · x) + beta · C · x for a random x of ±1, in m·n + n·k + m·k operations.

    For `exact_operands` nothing is tolerated, and a single wrong element always shows (Freivalds, 1977). For
    `random_operands` the errors of a row add up like a random walk too, so that its tolerance is that of the elements
    with the norm of all of op(B) for that of a column.
    """
    x = np.random.default_rng(seed).choice(np.array([-1.0, 1.0]), problem.n)
    left, right = _op(operands["a"], problem.trans_a), _op(operands["b"], problem.trans_b)
    expected = np.zeros((problem.batch, problem.m))
    if problem.effective_k:
        expected += problem.alpha * _times_vector(left, _times_vector(right, x))
    if problem.beta != 0:
        expected += problem.beta * _times_vector(operands["c"], x)
    found = _times_vector(d, x)
    tolerance = np.zeros_like(found)
    if not exact:
        unit = problem.accumulator.unit_roundoff
        norm_of_right = np.sqrt(np.einsum("bij,bij->b", right, right, dtype=np.float64))
        tolerance += LAMBDA * unit * abs(problem.alpha) * _norms(left, 2) * norm_of_right[:, np.newaxis]
        tolerance += LAMBDA * (2 * unit + problem.output.unit_roundoff) * _norms(d, 2)
    return _worst("freivalds", np.abs(found - expected), tolerance, found, expected)


def _bound(problem: GemmProblem, operands: Matrices, expected: HostArray) -> HostArray:
    """The largest allowed error of each element; see the top of this module."""
    left, right = _op(operands["a"], problem.trans_a), _op(operands["b"], problem.trans_b)
    unit = problem.accumulator.unit_roundoff
    rows, columns = _norms(left, 2) if problem.effective_k else np.zeros((1, problem.m)), _norms(right, 1)
    bound: HostArray = rows[:, :, np.newaxis] * columns[:, np.newaxis, :]
    bound *= LAMBDA * unit * abs(problem.alpha)
    bound += (2 * unit + problem.output.unit_roundoff) * np.abs(expected)
    if problem.beta != 0:
        bound += 2 * unit * abs(problem.beta) * np.abs(operands["c"])
    bound += (problem.k + 2) * problem.output.smallest_subnormal
    return bound


def _worst(name: str, error: HostArray, bound: HostArray, d: HostArray, expected: HostArray) -> Check:
    """The check of the element whose error is largest in units of its bound; NaN is never within it."""
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
            f"{_place(tuple(int(x) for x in at))}, is {d[at]} and should be {expected[at]} ± {bound[at]:.2g}"
        )
    worst = float(error[at])
    return Check(name, passed, worst if math.isfinite(worst) else math.inf, float(bound[at]), detail)


def _check_rows(problem: GemmProblem, operands: Matrices, d: HostArray) -> Check:
    rng = np.random.default_rng(problem.m)
    rows = np.unique(np.concatenate([[0, problem.m - 1], rng.integers(0, problem.m, SAMPLED_ROWS)]))
    left = _op(operands["a"], problem.trans_a)[:, rows]
    part: dict[Operand, HostArray] = {"a": left, "b": operands["b"]}
    if problem.beta != 0:
        part["c"] = operands["c"][:, rows]
    small = GemmProblem.create(
        len(rows), problem.n, problem.k, batch=problem.batch, dtype=problem.dtype, trans_b=problem.trans_b,
        alpha=problem.alpha, beta=problem.beta,
    )  # fmt: skip
    expected = reference(small, part)
    return _worst("statistical", np.abs(d[:, rows] - expected), _bound(small, part, expected), d[:, rows], expected)


def _check_entries(problem: GemmProblem, operands: Matrices, d: HostArray) -> Check:
    """Corners and a sample of a float64 product, against sums of which only the last step rounds."""
    if problem.empty:
        return Check("statistical", True, 0.0, 0.0)
    rng = np.random.default_rng(problem.m)
    corners = [(x, i, j) for x in (0, problem.batch - 1) for i in (0, problem.m - 1) for j in (0, problem.n - 1)]
    sample = np.array([*corners, *rng.integers(0, (problem.batch, problem.m, problem.n), (SAMPLED_ENTRIES, 3))])
    x, i, j = sample.T
    left = _op(operands["a"], problem.trans_a)[x, i]
    right = np.swapaxes(_op(operands["b"], problem.trans_b), 1, 2)[x, j]
    scaled_c = problem.beta * operands["c"][x, i, j] if problem.beta != 0 else np.zeros(len(sample))
    sums = np.array([_exact_dot(a, b) if problem.effective_k else 0.0 for a, b in zip(left, right, strict=True)])
    expected = problem.alpha * sums + scaled_c
    unit = problem.accumulator.unit_roundoff
    bound = LAMBDA * unit * abs(problem.alpha) * np.linalg.norm(left, axis=1) * np.linalg.norm(right, axis=1)
    # Each side rounds alpha · sum, beta · c and their sum once.
    bound += (
        6 * unit * (np.abs(problem.alpha * sums) + np.abs(scaled_c))
        + (problem.k + 2) * problem.output.smallest_subnormal
    )
    return _worst("statistical", np.abs(d[x, i, j] - expected), bound, d[x, i, j], expected)


def _exact_dot(a: HostArray, b: HostArray) -> float:
    """The dot product of float64 vectors, rounded once: each product split without error (Dekker 1971), the parts summed
    exactly (`math.fsum`).
    """
    product = a * b
    a_high, b_high = _high_half(a), _high_half(b)
    a_low, b_low = a - a_high, b - b_high
    error = ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low
    return math.fsum(np.concatenate([product, error]))


def _high_half(x: HostArray) -> HostArray:
    """The upper 26 bits of each significand (Veltkamp's splitting)."""
    scaled = x * (2.0**27 + 1)
    high: HostArray = scaled - (scaled - x)
    return high


def _shape(problem: GemmProblem, operand: Operand) -> tuple[int, int, int]:
    return (problem.batch, *problem.stored_shape(operand))


def _op(stored: HostArray, op: str) -> HostArray:
    return stored if op == "N" else np.swapaxes(stored, 1, 2)


def _norms(x: HostArray, axis: int) -> HostArray:
    other = "bij,bij->bi" if axis == 2 else "bij,bij->bj"
    norms: HostArray = np.sqrt(np.einsum(other, x, x, dtype=np.float64))
    return norms


def _times_vector(x: HostArray, vector: HostArray) -> HostArray:
    """Each matrix times a vector, or times its own vector of a batch, in float64, by blocks that stay small."""
    out = np.empty(x.shape[:2])
    rows = max(1, 2**24 // max(x.shape[2], 1))
    for batch in range(x.shape[0]):
        own = vector if vector.ndim == 1 else vector[batch]
        for start in range(0, x.shape[1], rows):
            block = slice(start, start + rows)
            out[batch, block] = x[batch, block].astype(np.float64) @ own
    return out


def _place(at: tuple[int, ...]) -> str:
    names = ("batch", "row", "column")
    return " ".join(f"{name} {index}" for name, index in zip(names, at, strict=False))
