"""The process that Nsight Compute watches: it runs plans on random data, and launches nothing else.

python -m gemmport.profiling.target FILE…        each the JSON of a plan, all of one problem and device
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from gemmport.backends.base import Backend
from gemmport.backends.objects import Memory
from gemmport.checking.verification import random_operands
from gemmport.core.errors import GemmportError
from gemmport.core.layout import matrices
from gemmport.core.plan import Plan
from gemmport.core.problem import GemmProblem, Operand
from gemmport.execution.executor import bind
from gemmport.execution.selection import get_backend

WARM_UPS = 2
"""Runs of every plan before those that are watched: the first one loads its programs."""


def run_plans(backend: Backend, plans: Sequence[Plan]) -> None:
    """Runs all plans `WARM_UPS` times, then each once more; their launches in order are what a report is matched with.

    Raises:
        As `gemmport.execution.executor.bind`, and LaunchError.
    """
    memory = _random_memory(backend, plans[0].problem)
    bound = [bind(plan, backend, memory) for plan in plans]
    for _ in range(WARM_UPS + 1):
        for plan in bound:
            plan.enqueue()
    backend.synchronize()


def _random_memory(backend: Backend, problem: GemmProblem) -> dict[Operand, Memory]:
    """Memory of the operands: N(0, 1) numbers, on which a GPU takes the power that it takes in use, unlike on zeros."""
    memory: dict[Operand, Memory] = {"d": backend.allocate(problem.span("d") * problem.output.itemsize)}
    for operand, values in random_operands(problem, seed=0).items():
        flat = np.zeros(problem.span(operand), problem.element_type(operand).numpy)
        matrices(flat, problem.layout(operand), *problem.stored_shape(operand), problem.batch)[...] = values
        memory[operand] = backend.allocate(flat.nbytes)
        if flat.size:
            backend.upload(memory[operand], flat)
    return memory


def main() -> None:
    """Runs the plans of the command line."""
    plans = [Plan.from_json(Path(name).read_text(encoding="utf-8")) for name in sys.argv[1:]]
    try:
        run_plans(get_backend(device=plans[0].device), plans)
    except GemmportError as error:
        sys.exit(f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    main()
