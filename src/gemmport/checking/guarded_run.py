"""One run of a plan in poisoned memory: what it computed, and whether it touched what is not its own.

Everything that is not to be read is poison, and everything that is not to be written must stay what it was.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from gemmport.backends.base import Backend
from gemmport.backends.objects import Memory
from gemmport.checking.operands import upload_operand
from gemmport.checking.reference import Matrices
from gemmport.checking.verification import differing, poisoned
from gemmport.core.layout import matrices
from gemmport.core.plan import Plan
from gemmport.core.problem import GemmProblem, Operand
from gemmport.execution.executor import bind

HostArray = npt.NDArray[Any]

DEFAULT_GUARD = 1031
"""Elements after the last of every operand: so many that, in small products, a tile's rows beyond an edge lie there and not in
someone else's memory. Those before the first are its layout's offset."""


SCRATCH_GUARD_BYTES = 4
"""Bytes after scratch memory for each element of the guard."""


@dataclass(frozen=True)
class GuardedRun:
    """What came of a run.

    Attributes:
        d: the result, (batch, m, n), in the output's type; poison where it was not written.
        stray: what was written that is not D, for people; empty where nothing was.
    """

    d: HostArray
    stray: str


def same_bits(x: HostArray, y: HostArray) -> bool:
    """Whether two flat arrays are equal bit for bit."""
    return bool(np.array_equal(x.view(np.uint8), y.view(np.uint8)))


def changed(before: HostArray, after: HostArray) -> list[int]:
    """The first elements of two flat arrays of one type that differ in any bit; at most eight."""
    return [int(x) for x in differing(before, after)[:8]]


def try_plan(
    backend: Backend, plan: Plan, operands: Matrices, *, in_place: bool = False, guard: int | None = None
) -> GuardedRun:  # fmt: skip
    """Runs a plan on operands that lie in poison, as its problem says: gaps, guards, what is not read, and D itself.

    Args:
        operands: as they are stored, (batch, rows, columns); all matrices alike where the batch stride is 0. One that is
            not there is poison, as are those that the problem does not read.
        in_place: D is the memory of C; the problem's layouts of both must be equal.
        guard: elements after the last of every operand; default `DEFAULT_GUARD`.

    Raises:
        As `gemmport.execution.executor.bind`, and LaunchError.
    """
    problem = plan.problem
    guard = DEFAULT_GUARD if guard is None else guard
    before: dict[Operand, HostArray] = {}
    memory: dict[Operand, Memory] = {}
    for operand in ("a", "b", "c"):
        memory[operand] = backend.allocate((problem.span(operand) + guard) * problem.element_type(operand).itemsize)
        values = operands.get(operand) if problem.reads(operand) else None
        before[operand] = upload_operand(backend, memory[operand], problem, operand, values, guard)
    if in_place:
        memory["d"], before["d"] = memory["c"], before["c"]
    else:
        before["d"] = poisoned(problem, guard)
        memory["d"] = backend.allocate(before["d"].nbytes)
        backend.upload(memory["d"], before["d"])
    beyond = guard * SCRATCH_GUARD_BYTES
    bound = bind(
        replace(plan, scratch=tuple(replace(x, nbytes=x.nbytes + beyond) for x in plan.scratch)),
        backend,
        memory,
        allocate=backend.allocate,
    )
    for scratch in plan.scratch:
        # NaN in every type; not backend.fill, see oclgrind-filled-memory
        backend.upload(bound.memory[scratch.name], np.full(scratch.nbytes + beyond, 0xFF, np.uint8))
    bound.enqueue()
    trial = _judged(problem, backend, memory, before, in_place=in_place)
    for scratch in plan.scratch:
        tail = np.zeros(beyond, np.uint8)
        backend.download(bound.memory[scratch.name], tail, offset=scratch.nbytes)
        if (tail != 0xFF).any():
            at = int(np.flatnonzero(tail != 0xFF)[0])
            trial = replace(
                trial, stray=f"written beyond the {scratch.nbytes:,} bytes of {scratch.name}, at byte {at} behind them"
            )
    return trial


def _judged(
    problem: GemmProblem, backend: Backend, memory: dict[Operand, Memory], before: dict[Operand, HostArray], *, in_place: bool
) -> GuardedRun:  # fmt: skip
    stray = ""
    for operand in ("a", "b", *(() if in_place else ("c",))):
        after = np.empty_like(before[operand])
        backend.download(memory[operand], after)
        if not same_bits(before[operand], after):
            stray = f"{operand} was changed, at elements {changed(before[operand], after)}"
    after = np.empty_like(before["d"])
    backend.download(memory["d"], after)
    view = _view(problem, "d", after)
    d = view.copy()
    view[...] = _view(problem, "d", before["d"])
    if not same_bits(before["d"], after):
        stray = f"written outside of D, at elements {changed(before['d'], after)} of its memory"
    return GuardedRun(d, stray)


def _view(problem: GemmProblem, operand: Operand, flat: HostArray) -> HostArray:
    return matrices(flat, problem.layout(operand), *problem.stored_shape(operand), problem.batch)
