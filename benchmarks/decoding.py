"""How near products of a few rows come to a kernel that only reads the same bytes, as when a language model decodes.

    python benchmarks/decoding.py --device nvidia --output decoding.json

B, the weights, is what counts: of it there are so many copies that no cache has them, which take turns, for the product as the
planner chooses it and for `read_global` of `microbenchmarks` alike. The reader is the fastest of several numbers of groups.
Results are verified before anything is timed; all that is compared is timed in turns. Takes a minute or two.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import document

import gemmport as gp
from gemmport.backends.base import Backend
from gemmport.backends.objects import Memory
from gemmport.bench.digest import launches_digests
from gemmport.bench.environment import gpu_state
from gemmport.bench.results import seconds_to_dict
from gemmport.bench.timing import Contestant, measure
from gemmport.cli.options import chosen_devices
from gemmport.core.dtypes import FLOAT32
from gemmport.core.problem import GemmProblem
from gemmport.execution.executor import bind, prepare_launch
from gemmport.execution.selection import get_backend
from gemmport.kernels.microbenchmarks import PASS as MICROBENCHMARKS
from gemmport.tuning.measuring import fault_of, random_operands

PAST_CACHES = 2**29
"""Bytes of all copies of B: those of benchmarks of passes (`gemmport.bench.passes`)."""

MOST_COPIES = 64

FORM = {"ITEMS": 256, "WIDTH": 4, "CHAINS": 8}
"""Of the reader: 16 bytes at a time, eight of which a work-item has on their way."""

STEP_BYTES = 256 * 4 * 8 * 4
"""That a group of the reader reads in a step."""

STEPS = (1, 2, 4, 8, 16)
"""Of the reader's groups."""

LAYERS = ((14336, 4096), (4096, 14336), (4096, 4096))
"""Columns and terms: the layers of a model of 8 billion parameters (A. Grattafiori et al., "The Llama 3 Herd of Models",
arXiv:2407.21783, 2024, table 3).
"""


@dataclass(frozen=True)
class Turns:
    """Something that is done to one copy after the other."""

    each: Sequence[Callable[[], None]]

    def contestant(self, name: str) -> Contestant:
        """To be timed: a call is of the next copy."""
        ways = itertools.cycle(self.each)

        def enqueue() -> None:
            next(ways)()

        return Contestant(name, enqueue)


def readers(backend: Backend, copies: Sequence[Memory], nbytes: int, stack: ExitStack) -> dict[str, Turns]:
    """What reads so many bytes of each copy, by how many steps a group has; the rest of a last step is left out."""
    found = {}
    for steps in STEPS:
        groups = nbytes // (STEP_BYTES * steps)
        if not groups:
            continue
        launch = MICROBENCHMARKS.launch("read_global", FLOAT32, FORM, groups, steps)
        target = stack.enter_context(backend.allocate(groups * FORM["ITEMS"] * FORM["WIDTH"] * FLOAT32.itemsize))
        calls = [prepare_launch(launch, backend, {"source": copy, "target": target}) for copy in copies]
        found[f"read, {steps} steps"] = Turns([lambda call=call: backend.launch(call) for call in calls])
    return found


def compared(problem: GemmProblem, backend: Backend, repeat: int) -> dict[str, Any]:
    """What a product takes, and what reading B takes, in turns."""
    plan = gp.plan(problem, backend.device)
    nbytes = problem.span("b") * problem.dtype.itemsize
    with ExitStack() as stack:
        memory = random_operands(problem, backend, stack)
        more = min(max(math.ceil(PAST_CACHES / nbytes), 2), MOST_COPIES) - 1
        copies = [memory["b"]]
        for _ in range(more):
            copies.append(stack.enter_context(backend.allocate(nbytes)))
            backend.copy(memory["b"], copies[-1], nbytes)
        bound = [bind(plan, backend, {**memory, "b": copy}) for copy in copies]
        fault = fault_of(bound[-1], {**memory, "b": copies[-1]})
        product = Turns([each.enqueue for each in bound]).contestant("product")
        others = [turns.contestant(name) for name, turns in readers(backend, copies, nbytes, stack).items()]
        timings = measure(backend, [product, *others], repeat=repeat)
        clocks = gpu_state(backend.device) if backend.device.type == "gpu" else {}
        backend.synchronize()
    reading = {name: timings[name] for name in (each.name for each in others)}
    fastest = min(reading, key=lambda name: reading[name].median)
    return {
        "backend": backend.name,
        "device": backend.device.name,
        **{name: getattr(problem, name) for name in ("m", "n", "k", "batch", "trans_a", "trans_b")},
        "dtype": problem.dtype.name,
        "kernel": plan.variant,
        "parameters": plan.values,
        "launches": launches_digests(plan.launches, backend.device),
        "fault": fault,
        "bytes": problem.bytes,
        "copies": len(copies),
        "seconds": seconds_to_dict(timings["product"]),
        "reader": fastest,
        "reading": {name: seconds_to_dict(timing) for name, timing in reading.items()},
        "ratio": reading[fastest].median / timings["product"].median,
        "clocks": clocks,
    }


def told(own: Mapping[str, Any]) -> str:
    """A line."""
    product = f"{own['dtype']} {own['trans_a']}{own['trans_b']} {own['m']}×{own['n']}×{own['k']}"
    seconds = own["seconds"]["median"]
    speed = own["bytes"] / seconds * 1e-9
    wrong = f", WRONG: {own['fault']}" if own["fault"] else ""
    return (
        f"{own['backend']} {product}: {own['kernel']} {seconds * 1e6:.2f} µs, {speed:,.0f} GB/s, "
        f"{own['ratio']:.3f} × {own['reader']}{wrong}\n"
    )


@click.command()
@click.option("--backend", default="all", show_default=True, help="cuda, opencl, or all.")
@click.option("--device", multiple=True, metavar="PLATFORM[:DEVICE]", help="Repeatable.")
@click.option("--rows", default="1,4,16,64", show_default=True, help="M[,M]")
@click.option("--layers", default=",".join(f"{n}x{k}" for n, k in LAYERS), show_default=True, help="NxK[,NxK]")
@click.option("--dtype", default="float16,int8", show_default=True, help="NAME[,NAME]")
@click.option("--ops", default="NT", show_default=True, help="NT[,NN]: of these.")
@click.option("--repeat", type=click.IntRange(1), default=11, show_default=True, help="Samples of each.")
@click.option("--output", type=click.Path(path_type=Path), help="Write JSON to this file, too.")
def main(
    backend: str,
    device: tuple[str, ...],
    rows: str,
    layers: str,
    dtype: str,
    ops: str,
    repeat: int,
    output: Path | None,
) -> None:
    """Times products of few rows beside reading; exit status 1 where a result is wrong."""
    opened = [get_backend(device=target) for target in chosen_devices(backend, device)[0]]
    extents = [tuple(map(int, layer.split("x"))) for layer in layers.split(",")]
    with document.kept(output, opened) as results:
        for name, (n, k), m, (a, b) in itertools.product(dtype.split(","), extents, rows.split(","), ops.split(",")):
            sums = "int32" if name in ("int8", "uint8") else None
            problem = GemmProblem.create(int(m), n, k, dtype=name, output=sums, trans_a=a, trans_b=b)
            for one in opened:
                results.append(compared(problem, one, repeat))
                sys.stdout.write(told(results[-1]))
                sys.stdout.flush()
    sys.exit(any(own["fault"] for own in results))


if __name__ == "__main__":
    main()
