"""What is done to compiled code, and what it brings: `simt` as compiled and in each order, on the same operands in turns.

    python benchmarks/machine_code.py --backend cuda --device nvidia --output benchmarks/results/h200/study/machine-code.json

Under CUDA the loops of float32 run as compiled, with one row of a work-item's sums at a time, with two (docs/ports.md), and as
they are taken; in OpenCL programs run as the runtime makes them, and as they are taken, float64 linked by CUDA's linker
(docs/simt.md). D must have the same bits each time. The plan is the planner's; where operands go across in it, the product is
measured with operands as they lie, too. For NVIDIA's GPUs of compute capability 9.0.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

import click
import document
import numpy as np
from loop_costs import ROWS, as_compiled, reordered
from parameters import bound_baseline, workloads

import gemmport as gp
from gemmport.backends import _compilation, _nvrtc, _sass
from gemmport.backends.base import Backend
from gemmport.backends.objects import Memory, Program
from gemmport.bench.environment import gpu_state
from gemmport.core.errors import GemmportError
from gemmport.core.plan import Plan
from gemmport.core.problem import GemmProblem, Operand
from gemmport.execution.executor import BoundPlan, bind
from gemmport.execution.selection import get_backend, select_device
from gemmport.tuning.measuring import random_operands

COMPILED, TAKEN = "as compiled", "as taken"

Way = Callable[[str], Program]
"""A source's program, with something done to its code."""


def ways(backend: Backend) -> dict[str, Way]:
    """How a backend's programs can be made, by name."""
    taken = backend.program  # which waits for what takes the place of the compiler's
    found: dict[str, Way] = {
        COMPILED: lambda source: backend.compile(as_compiled(source).replace(_compilation.LINKED, "")),
        TAKEN: taken,
    }

    def in_order(rows: int) -> Way:
        def made(source: str) -> Program:
            if not _sass.asked_for(source):
                return taken(source)
            return backend.load(compiled_in_order(source, backend.device.architecture, rows), source)

        return made

    if backend.name == "cuda":
        found |= {name: in_order(rows) for name, rows in ROWS.items()}
    return found


@cache
def compiled_in_order(source: str, architecture: str, rows: int) -> bytes:
    """The cubin of a source that asks for an order, in that of so many rows: products of many sizes have one source."""
    return reordered(_nvrtc.compile_cuda(as_compiled(source), architecture), _sass.asked_for(source), rows)


def bound(plan: Plan, backend: Backend, memory: Mapping[Operand, Memory], way: Way) -> BoundPlan:
    """A plan with programs that are made in a way.

    Raises:
        GemmportError: as `bind`, or the plan took its programs from elsewhere.
    """
    with patch.object(backend, "program", side_effect=lambda source, **_: way(source)) as program:
        made = bind(plan, backend, memory)
    if program.call_count != len(plan.launches):
        raise GemmportError(
            f"each launch must have a program made for it; got {program.call_count} of {len(plan.launches)}"
        )
    return made


def plans(problem: GemmProblem, backend: Backend) -> Iterator[Plan]:
    """The planner's, and with operands as they lie where it has them across."""
    plan = gp.plan(problem, backend.device, kernel="simt")
    yield plan
    if plan.values["ACROSS"]:
        yield gp.plan(problem, backend.device, kernel="simt", params={**plan.values, "ACROSS": 0})


def compared(plan: Plan, backend: Backend, turn: float, repeat: int) -> dict[str, Any]:
    """What a plan takes in each way, and cuBLAS where that is there, in turns of so many seconds.

    Raises:
        GemmportError: the bits of D differ.
    """
    problem = plan.problem
    with ExitStack() as stack:
        memory = random_operands(problem, backend, stack)
        enqueue = {}
        results = []
        for name, way in ways(backend).items():
            made = bound(plan, backend, memory, way)
            made.enqueue()
            results.append(np.empty(problem.span("d"), problem.output.numpy))
            backend.download(memory["d"], results[-1])
            enqueue[name] = made.enqueue
        if any(result.tobytes() != results[0].tobytes() for result in results):
            raise GemmportError(f"{problem} must have the same bits as compiled and in each order; they differ")
        if (library := bound_baseline("cublas", problem, backend, memory)) is not None:
            enqueue["cublas"] = library.enqueue
            stack.callback(library.close)
        once = {name: seconds(backend, each, 3) for name, each in enqueue.items()}
        turns: dict[str, list[float]] = {name: [] for name in enqueue}
        for _ in range(repeat):
            for name, each in enqueue.items():
                turns[name].append(seconds(backend, each, max(1, round(turn / once[name]))))
        clocks = gpu_state(backend)
    return {
        "backend": backend.name,
        "device": backend.device.name,
        **{name: getattr(problem, name) for name in ("m", "n", "k", "trans_a", "trans_b")},
        "dtype": problem.dtype.name,
        "across": plan.values["ACROSS"],
        "parameters": plan.values,
        "turn_seconds": turn,
        "seconds": {name: {"median": median(each), "samples": each} for name, each in turns.items()},
        "clocks": clocks,
    }


def seconds(backend: Backend, enqueue: Callable[[], None], calls: int) -> float:
    """Device time of a call, of so many behind each other."""
    backend.synchronize()
    first = backend.record()
    for _ in range(calls):
        enqueue()
    return backend.elapsed(first, backend.record()) / calls


@click.command()
@click.option("--backend", type=click.Choice(["cuda", "opencl"]), default="cuda", show_default=True)
@click.option("--device", default="nvidia", show_default=True, metavar="PLATFORM[:DEVICE]")
@click.option("--dtype", type=click.Choice(["float32", "float64"]), default="float32", show_default=True)
@click.option(
    "--sizes", default="1000,1024,2048,4095,4096,8192", show_default=True, help="SIZE[,SIZE]: of square products."
)
@click.option("--ops", default="NN,NT,TN,TT", show_default=True, help="NN[,NT]: of these.")
@click.option("--turn", default=0.06, show_default=True, metavar="SECONDS", help="The longer, the warmer the device.")
@click.option("--repeat", type=click.IntRange(1), default=5, show_default=True, help="Turns of each.")
@click.option("--output", type=click.Path(path_type=Path), help="Write JSON to this file, too.")
def main(
    backend: str, device: str, dtype: str, sizes: str, ops: str, turn: float, repeat: int, output: Path | None
) -> None:
    """Measures products in each way."""
    opened = get_backend(device=select_device(device, backend))
    with document.kept(output, [opened]) as results:
        for workload in workloads(None, sizes, ops, dtype):
            for plan in plans(workload.problem, opened):
                found = compared(plan, opened, turn, repeat)
                results.append(found)
                told = ", ".join(f"{name} {each['median'] * 1e6:.1f}" for name, each in found["seconds"].items())
                sys.stdout.write(f"{workload.problem}, across {found['across']}: {told} µs\n")
                sys.stdout.flush()


if __name__ == "__main__":
    main()
