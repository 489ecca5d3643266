"""Exact checks: integers, small ones where sums may round and all there are where they wrap, against NumPy, bit for bit.

Everything that is not to be read is poison, and everything that is not to be written must stay what it was.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import gemmport as gp
from gemmport import kernels
from gemmport.checking.guarded_run import try_plan
from gemmport.checking.reference import reference
from gemmport.core.dtypes import as_dtype
from gemmport.core.plan import Plan
from gemmport.core.problem import OPERANDS, Operand, as_op, transposes
from gemmport.planning.planner import AUTO


def integers(shape: tuple[int, ...], dtype: npt.DTypeLike, rng: np.random.Generator | None = None) -> npt.NDArray[Any]:
    """Random integers from -3 to 3 (complex ones in each part; truth values of which one in four is true). Sums of 900,000 of
    their products are exact in float32.
    """
    rng, kind = rng or np.random.default_rng(0), as_dtype(dtype)
    if kind.kind == "bool":
        return rng.integers(0, 4, shape) == 0
    values = rng.integers(0 if kind.numpy.kind == "u" else -3, 4, shape)
    return (values + 1j * rng.integers(-3, 4, shape) if kind.kind == "complex" else values).astype(kind.numpy)


WIDE = 2**12 + 1
"""What the numbers of A and B are multiplied by where sums are in float64: WIDE² takes 25 bits and is odd, so that no sum of
their products but zero fits float32."""


def fills(problem: gp.GemmProblem, operand: Operand) -> int:
    """What `integers` are multiplied by so that sums, and what C adds, have more bits than float32 where they may."""
    types = problem.dtype, problem.accumulator, problem.output
    if min(each.precision for each in types) < 24 or min(each.precision for each in types[1:]) < 53:
        return 1
    return WIDE**2 if operand == "c" else WIDE


def whole_range(shape: tuple[int, ...], dtype: npt.DTypeLike, rng: np.random.Generator) -> npt.NDArray[Any]:
    """Random integers of the whole range, for products that wrap around; truth values as `integers`."""
    kind = as_dtype(dtype)
    if kind.kind == "bool":
        return integers(shape, dtype, rng)
    limits = np.iinfo(kind.numpy)
    return rng.integers(limits.min, limits.max, shape, kind.numpy, endpoint=True)


@dataclass(frozen=True)
class Sizes:
    """m, n and k."""

    m: int
    n: int
    k: int

    def __str__(self) -> str:
        return f"{self.m}×{self.n}×{self.k}"


WIDEST_RUN = 8
"""Elements that kernels move at once at most (WIDTH): rows that begin at multiples of it are aligned to all runs."""


def layout(rows: int, columns: int, *, gap: int = 0, offset: int = 0, between: int = 0, multiple: int = 1) -> gp.Layout:
    """Rows `gap` elements apart, matrices `between`; with a multiple, all of it so many times, and rows begin at multiples."""
    ld = (-(-max(columns, 1) // multiple) + gap) * multiple
    return gp.Layout(ld=ld, batch_stride=rows * ld + between * multiple, offset=offset * multiple)


def spread(
    m: int, n: int, k: int, trans_a: str, trans_b: str, *, share_a: bool = False, gap: int = 1, multiple: int = 1
) -> dict[str, gp.Layout]:
    """Layouts with gaps everywhere, and no two alike. With `share_a`, all matrices of the batch are one A."""
    a_shape = (k, m) if transposes(as_op(trans_a)) else (m, k)
    b_shape = (n, k) if transposes(as_op(trans_b)) else (k, n)
    a = layout(*a_shape, gap=3 * gap, offset=5, between=2, multiple=multiple)
    b = layout(*b_shape, gap=gap, offset=11, between=7, multiple=multiple)
    c = layout(m, n, gap=4 * gap, offset=3, between=1, multiple=multiple)
    d = layout(m, n, gap=2 * gap, offset=13, between=5, multiple=multiple)
    return {"a": gp.Layout(a.ld, 0, a.offset) if share_a else a, "b": b, "c": c, "d": d}


def problem_of(
    sizes: Sizes,
    ops: str,
    dtype: str,
    *,
    in_place: bool = False,
    gap: int = 1,
    share_a: bool = False,
    multiple: int = 1,
    **rest: Any,
) -> gp.GemmProblem:
    """A problem whose operands lie `spread`, or, where the update is in place, with C where D is."""
    layouts = spread(sizes.m, sizes.n, sizes.k, ops[0], ops[1], gap=gap, share_a=share_a, multiple=multiple)
    if in_place:
        layouts["c"] = layouts["d"]
    return gp.GemmProblem.create(
        sizes.m, sizes.n, sizes.k, dtype=dtype, trans_a=ops[0], trans_b=ops[1], **layouts, **rest
    )


def check_plan(backend: gp.Backend, plan: Plan, *, in_place: bool = False, seed: int = 0) -> None:
    """Runs a plan on integers in poisoned memory and asserts that D is exact and everything else untouched.

    A and B are NaN where alpha is 0, C where beta is 0; so are all gaps, guards and D itself (unless D is C, `in_place`).
    """
    problem = plan.problem
    rng = np.random.default_rng(seed)
    shapes = {operand: (problem.batch, *problem.stored_shape(operand)) for operand in OPERANDS}
    values = {operand: np.zeros(shape, problem.element_type(operand).numpy) for operand, shape in shapes.items()}
    read = read_by(problem)
    wraps = problem.accumulator.kind == "integer"
    for operand in read:
        matrix = (whole_range if wraps else integers)(shapes[operand], problem.element_type(operand), rng)
        if not wraps and (factor := fills(problem, operand)) != 1:
            matrix *= factor
        values[operand][...] = matrix[:1] if problem.layout(operand).batch_stride == 0 else matrix
    wanted = reference(problem, values).astype(problem.output.numpy)
    got = run_plan(backend, plan, {operand: values[operand] for operand in read}, in_place=in_place)
    wrong = np.argwhere(got != wanted)  # NaN, which D was before, differs from everything
    assert wrong.size == 0, (
        f"{_told(plan)}: {len(wrong)} of {got.size} elements are wrong, the first at [matrix, row, column] "
        f"{wrong[0].tolist()}: {got[tuple(wrong[0])]}, not {wanted[tuple(wrong[0])]}"
    )


def read_by(problem: gp.GemmProblem) -> tuple[Operand, ...]:
    """What a product may read: A and B unless alpha is 0, C unless beta is 0."""
    return tuple(operand for operand in ("a", "b", "c") if problem.reads(operand))


def run_plan(
    backend: gp.Backend, plan: Plan, values: Mapping[Operand, npt.NDArray[Any]], *, in_place: bool = False
) -> npt.NDArray[Any]:
    """D, (batch, m, n), of operands as they are stored; asserts that nothing else is written. What is not read is poison."""
    trial = try_plan(backend, plan, values, in_place=in_place)
    assert not trial.stray, f"{_told(plan)}: {trial.stray}"
    return trial.d


def _told(plan: Plan) -> str:
    problem = plan.problem
    values = ", ".join(f"{name} = {value}" for name, value in plan.values.items())
    return f"{plan.variant} ({values}) on {problem}, alpha = {problem.alpha}, beta = {problem.beta}"


def check(
    backend: gp.Backend,
    problem: gp.GemmProblem,
    kernel: str,
    params: Mapping[str, int | str] | None = None,
    *,
    in_place: bool = False,
    seed: int = 0,
) -> None:
    """`check_plan` of a kernel with its parameters; of types that it does not compute, that it refuses them by name."""
    if kernel != AUTO and kernels.variant(kernel).unsupported(problem, backend.device):
        with pytest.raises(gp.UnsupportedError, match=f"^{kernel} on "):
            gp.plan(problem, backend.device, kernel=kernel, params=params)
        return
    check_plan(backend, gp.plan(problem, backend.device, kernel=kernel, params=params), in_place=in_place, seed=seed)
