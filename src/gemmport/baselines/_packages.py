"""What baselines of Python packages share: how they are imported, and the operands as arrays on the device."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from gemmport.backends.array import DeviceArray
from gemmport.backends.base import Backend
from gemmport.backends.objects import Memory
from gemmport.core.errors import BaselineUnavailableError
from gemmport.core.problem import GemmProblem, Operand, transposes


def imported(package: str, title: str, how_to_get: str) -> Any:
    """A package by its name.

    Raises:
        BaselineUnavailableError: it is not installed, or does not start.
    """
    try:
        return importlib.import_module(package)
    except (ImportError, OSError, RuntimeError) as error:
        raise BaselineUnavailableError(f"{title} is not installed: {error}; {how_to_get}") from error


def on_device(
    problem: GemmProblem, backend: Backend, operands: Mapping[Operand, Memory]
) -> dict[Operand, DeviceArray]:  # fmt: skip
    """A and B after op, where that does not conjugate, and D, each where it lies: (rows, columns), or (batch, rows, columns).

    Other libraries read and write them through DLPack.
    """
    found: dict[Operand, DeviceArray] = {}
    ops = {"a": problem.trans_a, "b": problem.trans_b}
    for operand, memory in operands.items():
        layout, kind = problem.layout(operand), problem.element_type(operand).numpy
        batch, step = ((problem.batch,), (layout.batch_stride,)) if problem.batch > 1 else ((), ())
        shape, strides = (*batch, *problem.stored_shape(operand)), (*step, layout.ld, 1)
        array = DeviceArray(backend, memory, shape, kind, strides, layout.offset)
        found[operand] = array.mT if operand in ops and transposes(ops[operand]) else array
    return found


def conjugates(problem: GemmProblem) -> bool:
    """Whether an operand is conjugated: in real types nothing is."""
    return problem.dtype.kind == "complex" and any(op in "CR" for op in problem.ops)
