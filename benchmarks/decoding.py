"""How near products of a few rows come to a kernel that only reads the same bytes, as when a language model decodes.

    python benchmarks/decoding.py --device nvidia --output decoding.json
    python benchmarks/decoding.py --device nvidia --kernel gemv,mma --candidates benchmarks/candidates/decoding.yaml --jobs 14

B, the weights, is what counts: of it there are so many copies that no cache has them, which take turns, for the product as the
planner chooses it and for `read_global` of `microbenchmarks` alike. The reader is the fastest of several numbers of groups.
Results are verified before anything is timed; all that is compared is timed in turns. Takes a minute or two.

With --kernel, the candidates of a file, or else what the kernels' models choose among, are timed beside the choice; those that
take far longer in a few calls are not timed any further.
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
import sweep

import gemmport as gp
from gemmport.backends.base import Backend
from gemmport.backends.objects import Memory
from gemmport.bench.digest import launches_digests
from gemmport.bench.environment import gpu_state
from gemmport.bench.results import seconds_to_dict
from gemmport.bench.timing import Contestant, measure
from gemmport.cli.options import chosen_devices
from gemmport.core.dtypes import FLOAT32
from gemmport.core.plan import Plan
from gemmport.core.problem import GemmProblem
from gemmport.execution.executor import BoundPlan, bind, prepare_launch
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

LOOKS, FAR = 3, 1.3
"""Calls of a candidate, the fastest of which says whether it is timed: where no other candidate's is FAR times as fast."""

BEST = 5
"""Candidates that are printed."""

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


def look(backend: Backend, each: Sequence[BoundPlan]) -> float:
    """Seconds of a call, without its event's, about: the fastest of a few, each of the next copy."""
    seconds = []
    for bound, _ in zip(itertools.cycle(each), range(LOOKS), strict=False):
        first = backend.record()
        bound.enqueue()
        seconds.append(backend.elapsed(first, backend.record()))
    return min(seconds)


def compared(problem: GemmProblem, backend: Backend, plans: Sequence[Plan], repeat: int) -> dict[str, Any]:
    """What plans of a product take, the first of which is the planner's, and what reading B takes, in turns."""
    nbytes = problem.span("b") * problem.dtype.itemsize
    with ExitStack() as stack:
        memory = random_operands(problem, backend, stack)
        more = min(max(math.ceil(PAST_CACHES / nbytes), 2), MOST_COPIES) - 1
        copies = [memory["b"]]
        for _ in range(more):
            copies.append(stack.enter_context(backend.allocate(nbytes)))
            backend.copy(memory["b"], copies[-1], nbytes)
        found: dict[str, list[BoundPlan]] = {}
        faults: dict[str, str] = {}
        for number, plan in enumerate(plans):
            try:
                each = [bind(plan, backend, {**memory, "b": copy}) for copy in copies]
                faults[str(number)] = fault_of(each[-1], {**memory, "b": copies[-1]})
            except (gp.CompileError, gp.LaunchError, gp.DeviceMemoryError) as error:
                if not number:
                    raise
                sys.stderr.write(f"{problem}: {plan.variant} {plan.values}: {error}\n")
                continue
            found[str(number)] = each
        looks = {name: look(backend, each) for name, each in found.items()}
        near = [name for name in found if name == "0" or looks[name] <= FAR * min(looks.values())]
        products = [Turns([each.enqueue for each in found[name]]).contestant(name) for name in near]
        others = [turns.contestant(name) for name, turns in readers(backend, copies, nbytes, stack).items()]
        timings = measure(backend, [*products, *others], repeat=repeat)
        clocks = gpu_state(backend) if backend.device.type == "gpu" else {}
        backend.synchronize()
    reading = {name: timings[name] for name in (each.name for each in others)}
    fastest = min(reading, key=lambda name: reading[name].median)

    def told_of(name: str) -> dict[str, Any]:
        plan = plans[int(name)]
        return {
            "kernel": plan.variant,
            "parameters": plan.values,
            "launches": launches_digests(plan.launches, backend.device),
            "fault": faults[name],
            "seconds": seconds_to_dict(timings[name]),
            "ratio": reading[fastest].median / timings[name].median,
        }

    return {
        "backend": backend.name,
        "device": backend.device.name,
        **{name: getattr(problem, name) for name in ("m", "n", "k", "batch", "trans_a", "trans_b")},
        "dtype": problem.dtype.name,
        "bytes": problem.bytes,
        "copies": len(copies),
        **told_of("0"),
        "reader": fastest,
        "reading": {name: seconds_to_dict(timing) for name, timing in reading.items()},
        "clocks": clocks,
        **({"candidates": [told_of(name) for name in near if name != "0"]} if len(plans) > 1 else {}),
        **({"looks": _far(plans, looks, near, faults)} if len(plans) > 1 else {}),
    }


def _far(
    plans: Sequence[Plan], looks: Mapping[str, float], near: Sequence[str], faults: Mapping[str, str]
) -> list[dict[str, Any]]:
    """The candidates that were not timed."""
    return [
        {
            "kernel": plans[int(name)].variant,
            "parameters": plans[int(name)].values,
            "look": seconds,
            "fault": faults[name],
        }
        for name, seconds in looks.items()
        if name not in near
    ]


def told(own: Mapping[str, Any]) -> str:
    """A line, and one for each of the best candidates."""
    product = f"{own['dtype']} {own['trans_a']}{own['trans_b']} {own['m']}×{own['n']}×{own['k']}"
    seconds = own["seconds"]["median"]
    speed = own["bytes"] / seconds * 1e-9
    wrong = f", WRONG: {own['fault']}" if own["fault"] else ""
    best = sorted(own.get("candidates", ()), key=lambda one: float(one["seconds"]["median"]))[:BEST]
    return (
        f"{own['backend']} {product}: {own['kernel']} {seconds * 1e6:.2f} µs, {speed:,.0f} GB/s, "
        f"{own['ratio']:.3f} × {own['reader']}{wrong}\n"
    ) + "".join(
        f"  {one['ratio']:.3f}: {one['kernel']} "
        + " ".join(f"{name}={value}" for name, value in one["parameters"].items())
        + (f", WRONG: {one['fault']}" if one["fault"] else "")
        + "\n"
        for one in best
    )


@click.command()
@click.option("--backend", default="all", show_default=True, help="cuda, opencl, or all.")
@click.option("--device", multiple=True, metavar="PLATFORM[:DEVICE]", help="Repeatable.")
@click.option("--rows", default="1,4,16,64", show_default=True, help="M[,M]")
@click.option("--layers", default=",".join(f"{n}x{k}" for n, k in LAYERS), show_default=True, help="NxK[,NxK]")
@click.option("--dtype", default="float16,int8", show_default=True, help="NAME[,NAME]")
@click.option("--ops", default="NT", show_default=True, help="NT[,NN]: of these.")
@click.option("--kernel", default="", metavar="NAME[,NAME]", help="Whose candidates are timed beside the choice.")
@click.option("--candidates", type=click.Path(exists=True, path_type=Path), help="A file of them: as for sweep.py.")
@click.option("--jobs", type=click.IntRange(1), default=1, show_default=True, help="Processes that compile beforehand.")
@click.option("--repeat", type=click.IntRange(1), default=11, show_default=True, help="Samples of each.")
@click.option("--output", type=click.Path(path_type=Path), help="Write JSON to this file, too.")
def main(
    backend: str,
    device: tuple[str, ...],
    rows: str,
    layers: str,
    dtype: str,
    ops: str,
    kernel: str,
    candidates: Path | None,
    jobs: int,
    repeat: int,
    output: Path | None,
) -> None:
    """Times products of few rows beside reading; exit status 1 where a result is wrong."""
    opened = [get_backend(device=target) for target in chosen_devices(backend, device)[0]]
    extents = [tuple(map(int, layer.split("x"))) for layer in layers.split(",")]
    known = sweep.read_candidates(candidates) if candidates is not None else {}
    tried = {name: known.get(name, []) for name in kernel.split(",") if name}
    problems = [
        GemmProblem.create(
            int(m), n, k, dtype=name, output="int32" if name in ("int8", "uint8") else None, trans_a=a, trans_b=b
        )
        for name, (n, k), m, (a, b) in itertools.product(dtype.split(","), extents, rows.split(","), ops.split(","))
    ]
    plans = {
        one.name: [sweep.plans(problem, one.device, tried, modelled=candidates is None) for problem in problems]
        for one in opened
    }
    if jobs > 1:
        for one in opened:
            sweep.compile_beforehand(one.device, itertools.chain.from_iterable(plans[one.name]), jobs)
    wrong = False
    with document.kept(output, opened) as results:
        for number, problem in enumerate(problems):
            for one in opened:
                own = compared(problem, one, plans[one.name][number], repeat)
                results.append(own)
                wrong |= any(each["fault"] for each in (own, *own.get("candidates", ()), *own.get("looks", ())))
                sys.stdout.write(told(own))
                sys.stdout.flush()
    sys.exit(wrong)


if __name__ == "__main__":
    main()
