"""Whether a product with scales is right: beside a reference in float64, with the bound of its sums, scaled as they are.

    D = alpha · rows · (op(A) · op(B)) · columns + beta · C

The sums keep the bound of `gemmport.checking.verification`, times the scales. Three products, a sum and beta · C round in the
accumulator after that, and the output rounds once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gemmport.checking.reference import Matrices, applied, as_multiplied, reference
from gemmport.checking.verification import LAMBDA, Check, HostArray, judged, unit_of_cut
from gemmport.contracts.kernel import Cut
from gemmport.core.dtypes import FLOAT64
from gemmport.core.problem import GemmProblem, Operand, transposes


@dataclass(frozen=True)
class Scales:
    """Numbers of float32 for each row of each matrix, (batch, m), and for each column, (batch, n)."""

    rows: HostArray
    columns: HostArray

    @property
    def factors(self) -> HostArray:
        """Of each element, (batch, m, n), in float64."""
        rows, columns = (x.astype(np.float64) for x in (self.rows, self.columns))
        both: HostArray = rows[:, :, np.newaxis] * columns[:, np.newaxis, :]
        return both


def random_scales(problem: GemmProblem, seed: int) -> Scales:
    """2ˣ with x of any size from −4 to 4: neighbours differ, and so do a scale and its square."""
    rng = np.random.default_rng(seed)
    rows, columns = (
        np.exp2(rng.uniform(-4, 4, (problem.batch, size))).astype(np.float32) for size in (problem.m, problem.n)
    )
    return Scales(rows, columns)


def scaled_reference(problem: GemmProblem, operands: Matrices, scales: Scales) -> HostArray:
    """D, (batch, m, n), in float64.

    Args:
        problem: of real numbers, with alpha and beta.
    """
    d = reference(replace(problem, beta=0.0), operands) * scales.factors
    return d if problem.beta == 0 else d + problem.beta * operands["c"].astype(np.float64)


def check_scaled(
    problem: GemmProblem, operands: Matrices, scales: Scales, d: HostArray, cut: Cut | None = None
) -> Check:
    """That a result of `random_operands` or `exact_operands` is within its bound of the reference, element by element.

    Args:
        problem: of real numbers, which is summed in less than float64.
        cut: as in `check_random`.
    """
    expected = scaled_reference(problem, operands, scales)
    bound = scaled_bound(problem, operands, scales, expected, cut)
    with np.errstate(over="ignore", invalid="ignore"):
        largest = (expected + np.copysign(bound, expected)).astype(problem.output.numpy)
        error = np.abs(d.astype(np.float64) - expected)
    error[np.isinf(largest.astype(np.float64)) & (d == largest)] = (
        0  # what is too large for the output's type is infinite
    )
    return judged("statistical", error, bound, d, expected)


SAMPLED_ROWS = 16
"""Rows of each matrix that `check_scaled_rows` looks at."""


def check_scaled_rows(
    problem: GemmProblem, operands: Matrices, scales: Scales, d: HostArray, seed: int, cut: Cut | None = None
) -> Check:
    """As `check_scaled`, of some rows of each matrix, which the seed chooses: of products that are too large for the host."""
    rows = np.sort(np.random.default_rng(seed).permutation(problem.m)[:SAMPLED_ROWS])
    part = replace(problem, m=len(rows))
    a = operands["a"]
    own: dict[Operand, HostArray] = {
        "a": a[:, :, rows] if transposes(problem.trans_a) else a[:, rows],
        "b": operands["b"],
    }
    if problem.beta != 0:
        own["c"] = operands["c"][:, rows]
    return check_scaled(part, own, Scales(scales.rows[:, rows], scales.columns), d[:, rows], cut)


def scaled_bound(
    problem: GemmProblem, operands: Matrices, scales: Scales, expected: HostArray, cut: Cut | None = None
) -> HostArray:
    """The largest allowed error of each element.

    Args:
        expected: of `scaled_reference`.
        cut: as in `check_random`.
    """
    problem, operands = as_multiplied(problem, operands)
    own, sums, output = FLOAT64.unit_roundoff, problem.accumulator, problem.output
    unit, alpha, factors = sums.unit_roundoff + own, abs(problem.alpha), np.abs(scales.factors)
    c = abs(problem.beta) * np.abs(operands["c"]).astype(np.float64) if problem.beta != 0 else np.zeros_like(expected)
    bound = np.zeros_like(expected)
    if problem.effective_k:
        rows = np.linalg.norm(applied(operands["a"], problem.trans_a).astype(np.float64), axis=2)
        columns = np.linalg.norm(applied(operands["b"], problem.trans_b).astype(np.float64), axis=1)
        of_sums = LAMBDA * unit + unit_of_cut(problem, cut)
        bound += of_sums * alpha * factors * rows[:, :, np.newaxis] * columns[:, np.newaxis, :]
    bound += (4 * unit + output.unit_roundoff) * np.abs(expected) + 4 * unit * c
    # A term that underflows is scaled with its sum; a sum that does when it has been scaled, by the scales that follow.
    by_columns = np.abs(scales.columns.astype(np.float64))[:, np.newaxis, :]
    bound += sums.smallest_subnormal * (problem.k * alpha * factors + alpha * by_columns + alpha + 2)
    return bound + output.smallest_subnormal
