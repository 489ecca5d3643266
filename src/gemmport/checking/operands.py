"""Operands in a device's memory, where all that is not theirs is poison: a read of it shows in the result."""

from __future__ import annotations

from gemmport.backends.base import Backend
from gemmport.backends.objects import Memory
from gemmport.checking.verification import HostArray, laid_out
from gemmport.core.problem import GemmProblem, Operand


def upload_operand(
    backend: Backend, memory: Memory, problem: GemmProblem, operand: Operand, values: HostArray | None, guard: int = 0
) -> HostArray:  # fmt: skip
    """Fills the memory of an operand as `gemmport.checking.verification.laid_out` says.

    Args:
        memory: of the operand's span and the guard.

    Returns:
        What the memory holds now.
    """
    flat = laid_out(problem, operand, values, guard)
    if flat.size:
        backend.upload(memory, flat)
    return flat
