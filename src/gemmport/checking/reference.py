"""What a product should be, on the host: in float64 for what is narrower, exactly for integers, and entry by entry beyond."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from gemmport.core.precision import FORMATS, FULL, Format
from gemmport.core.problem import GemmProblem, Op, Operand, transposes
from gemmport.runtime.side_by_side import in_blocks

HostArray = npt.NDArray[Any]
Matrices = Mapping[Operand, HostArray]
"""Operands as (batch, rows, columns), as they are stored (before their op)."""

_LIMB = 16
"""Bits of the pieces that integers are multiplied in: 2²⁰ products of two pieces sum up exactly in float64."""

_TERMS = 2**20

_BLOCK = 2**20
"""Numbers that a thread rounds at a time."""

_EXPONENT = np.uint64(0x7FF << 52)
"""The bits of a float64 that are its exponent: alone they are the power of two that is not above it."""


def reference(problem: GemmProblem, operands: Matrices) -> HostArray:
    """D, (batch, m, n): in float64 or complex128 for products of real and complex numbers, which is more precise than any
    of at most 32 bits; in the output's type, exactly, for integers and bool. Of operands as they are multiplied: rounded, where
    the problem says so.
    """
    problem, operands = as_multiplied(problem, operands)
    if problem.accumulator.kind in ("integer", "bool"):
        return _whole(problem, operands)
    left, right = applied(operands["a"], problem.trans_a), applied(operands["b"], problem.trans_b)
    wide = wide_type(problem)
    d = np.zeros((problem.batch, problem.m, problem.n), wide)
    if problem.effective_k:
        np.matmul(left.astype(wide, copy=False), right.astype(wide, copy=False), out=d)
        if problem.alpha != 1:
            d *= problem.alpha
    if problem.beta != 0:
        d += problem.beta * operands["c"].astype(wide)
    return d


def as_multiplied(problem: GemmProblem, operands: Matrices) -> tuple[GemmProblem, Matrices]:
    """The product of operands that are rounded already, and those: the same where none is to be rounded."""
    if problem.precision == FULL:
        return problem, operands
    both: dict[Operand, HostArray] = {
        operand: rounded(operands[operand], FORMATS[problem.precision]) for operand in ("a", "b") if operand in operands
    }
    return replace(problem, precision=FULL), {**operands, **both}


def rounded(x: HostArray, form: Format) -> HostArray:
    """Numbers of float32, or parts of complex64, rounded to those of a format, to nearest, ties to even, in their own type.

    What is larger than its largest number by half a step or more becomes infinite (IEEE 754-2019, section 4.3.1).
    """
    if np.iscomplexobj(x):
        return rounded(np.ascontiguousarray(x).view(np.float32), form).view(x.dtype)
    out = np.array(x, order="C")
    flat = out.reshape(-1)

    def round_block(place: slice) -> None:
        wide = flat[place].astype(np.float64)
        # Numbers of 2⁵² to 2⁵³ steps have a unit of one step: a sum among them is rounded to whole steps.
        power = np.maximum((wide.view(np.uint64) & _EXPONENT).view(np.float64), np.ldexp(1.0, form.least_exponent))
        with np.errstate(over="ignore", invalid="ignore"):
            middle = power * (1.5 * 2.0 ** (53 - form.precision))
            nearest = np.abs(wide + middle - middle)
            nearest[nearest >= np.ldexp(1.0, 2 - form.least_exponent)] = np.inf
            flat[place] = np.where(np.isfinite(wide), np.copysign(nearest, wide), wide)

    in_blocks(round_block, flat.size, _BLOCK)
    return out


def wide_type(problem: GemmProblem) -> np.dtype[Any]:
    """The type of a reference of real or complex numbers."""
    return np.dtype(np.complex128 if problem.accumulator.kind == "complex" else np.float64)


def applied(stored: HostArray, op: Op) -> HostArray:
    """op(X) for matrices as they are stored."""
    matrix = np.swapaxes(stored, -1, -2) if transposes(op) else stored
    return matrix.conj() if op in ("C", "R") and np.iscomplexobj(matrix) else matrix


def _whole(problem: GemmProblem, operands: Matrices) -> HostArray:
    """D of integers, modulo 2⁶⁴ and then in the output's type; or of truth values."""
    left, right = applied(operands["a"], problem.trans_a), applied(operands["b"], problem.trans_b)
    d = np.zeros((problem.batch, problem.m, problem.n), np.uint64)
    if problem.effective_k:
        d += _modular(problem.alpha) * wrapped_product(left, right, bits=problem.accumulator.itemsize * 8)
    if problem.beta != 0:
        d += _modular(problem.beta) * _unsigned(operands["c"])
    return (d != 0) if problem.output.kind == "bool" else d.astype(problem.output.numpy)


def wrapped_product(left: HostArray, right: HostArray, *, bits: int) -> HostArray:
    """The product of integers modulo 2 to the `bits` (at least): sums of products of 16-bit limbs, each exact in float64.

    NumPy's own product of integers uses no BLAS and takes minutes where this takes seconds.
    """
    limbs = max(1, bits // _LIMB)
    result = np.zeros(
        (*np.broadcast_shapes(left.shape[:-2], right.shape[:-2]), left.shape[-2], right.shape[-1]), np.uint64
    )
    for start in range(0, left.shape[-1], _TERMS):
        a = _limbs(left[..., start : start + _TERMS], limbs)
        b = _limbs(right[..., start : start + _TERMS, :], limbs)
        for i in range(limbs):
            for j in range(limbs - i):
                result += np.matmul(a[i], b[j]).astype(np.uint64) << np.uint64(_LIMB * (i + j))
    return result


def _limbs(x: HostArray, count: int) -> list[HostArray]:
    bits = _unsigned(x)
    return [((bits >> np.uint64(_LIMB * i)) & np.uint64(2**_LIMB - 1)).astype(np.float64) for i in range(count)]


def _unsigned(x: HostArray) -> HostArray:
    """Integers modulo 2⁶⁴."""
    return x if x.dtype == np.uint64 else x.astype(np.int64).view(np.uint64)


def _modular(value: object) -> np.uint64:
    return np.uint64(int(value) % 2**64)  # type: ignore[call-overload]  # an int, since the product is of integers


def exact_dots(left: HostArray, right: HostArray) -> HostArray:
    """Dot products of the rows of two (count, k) arrays of float64 or complex128, each part of each rounded once."""
    if not np.iscomplexobj(left) and not np.iscomplexobj(right):
        return np.array([_exact_dot(a, b) for a, b in zip(left, right, strict=True)])
    real = exact_dots(np.hstack([left.real, -left.imag]), np.hstack([right.real, right.imag]))
    imaginary = exact_dots(np.hstack([left.real, left.imag]), np.hstack([right.imag, right.real]))
    dots: HostArray = real + 1j * imaginary
    return dots


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
