"""Times kernels with other parameters than the planner's beside what it chooses, in turns with a baseline, in one run.

    python benchmarks/parameters.py --device nvidia --kernel simt --trial ACROSS=0 --trial ACROSS=1 --baseline cublas
    python benchmarks/parameters.py --device intel --kernel packed --trial MOVES=struct --trial MOVES=vload --baseline numpy

Each trial states some parameters of the kernels that have them; the others stay as they are chosen for the product. So the
constants by which kernels choose can be measured again. With --in-turns, products take turns, too. Every result is checked on
the device before it is timed.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import document
import numpy as np

import gemmport as gp
from gemmport import baselines, kernels
from gemmport.backends.base import Backend
from gemmport.backends.objects import Memory
from gemmport.baselines.base import BoundBaseline
from gemmport.bench.digest import launches_digests
from gemmport.bench.environment import gpu_state
from gemmport.bench.results import seconds_to_dict
from gemmport.bench.standings import Workload
from gemmport.bench.timing import Contestant, load, measure
from gemmport.checking import verification
from gemmport.cli.options import chosen_devices
from gemmport.cli.shapes import read_shapes
from gemmport.core.device import DeviceInfo
from gemmport.core.layout import matrices
from gemmport.core.plan import ParameterValue, Plan
from gemmport.core.problem import GemmProblem, Operand
from gemmport.execution.executor import bind
from gemmport.execution.selection import get_backend
from gemmport.tuning.measuring import fault_of, random_operands

Settings = Mapping[str, ParameterValue]


@dataclass(frozen=True)
class Setting:
    """A kernel with parameters.

    Attributes:
        settings: what it has in the place of what is chosen; empty for what the planner takes.
    """

    settings: Settings
    plan: Plan


def trials(
    problem: GemmProblem, device: DeviceInfo, names: Sequence[str], each: Sequence[Settings]
) -> Iterator[Setting]:
    """What the planner takes of each kernel that can compute the product, and that with the settings that it has and allows."""
    for name in names:
        try:
            chosen = gp.plan(problem, device, kernel=name)
        except gp.UnsupportedError:
            continue
        yield Setting({}, chosen)
        known = {parameter.name for parameter in kernels.variant(name).parameters}
        for settings in each:
            if settings.keys() <= known:
                try:
                    yield Setting(settings, gp.plan(problem, device, kernel=name, params={**chosen.values, **settings}))
                except (gp.ParameterError, gp.UnsupportedError) as error:
                    sys.stderr.write(f"{problem}: {name} {dict(settings)} is left out: {error}\n")


def settings_of(text: str) -> Settings:
    """NAME=VALUE[,NAME=VALUE] as parameters.

    Raises:
        UsageError: it is written otherwise, or no kernel has such a parameter.
    """
    found: dict[str, ParameterValue] = {}
    known = {parameter.name for variant in kernels.family().values() for parameter in variant.parameters}
    for setting in text.split(","):
        name, _, value = setting.partition("=")
        if name not in known or not value:
            raise click.UsageError(f"--trial must be NAME=VALUE[,NAME=VALUE] of parameters of kernels; got {setting!r}")
        found[name] = int(value) if re.fullmatch(r"-?\d+", value) else value
    return found


def bound_baseline(
    name: str, problem: GemmProblem, backend: Backend, memory: Mapping[Operand, Memory]
) -> BoundBaseline | None:
    """A baseline on the same operands; None where it is not for such devices, or cannot compute this product.

    Raises:
        BaselineUnavailableError: it is not installed.
    """
    if name not in ("numpy", *baselines.for_device(backend.device)):
        return None
    library = baselines.load(name)
    if library.unsupported(problem):
        return None
    host: dict[Operand, Any] = {}
    for operand in () if library.backends else verification.inputs(problem):
        flat = np.empty(problem.span(operand), problem.element_type(operand).numpy)
        backend.download(memory[operand], flat)
        host[operand] = matrices(flat, problem.layout(operand), *problem.stored_shape(operand), problem.batch)
    return library.bind(problem, backend, memory, host)


def compared(
    products: Sequence[tuple[Workload, Sequence[Setting]]], backend: Backend, names: Sequence[str], repeat: int
) -> list[dict[str, Any]]:
    """What the trials of workloads and their baselines take, all in turns; those of a workload on the same operands."""
    with ExitStack() as stack:
        contestants: list[Contestant] = []
        verified: dict[str, bool] = {}
        beside: list[dict[str, BoundBaseline]] = []
        for place, (workload, found) in enumerate(products):
            memory = random_operands(workload.problem, backend, stack)
            kernels_of = []
            for number, trial in enumerate(found):
                bound = bind(trial.plan, backend, memory)
                name = f"{place} {number}"
                verified[name] = not fault_of(bound, memory)
                kernels_of.append(Contestant(name, bound.enqueue))
            own = {name: x for name in names if (x := bound_baseline(name, workload.problem, backend, memory))}
            contestants += [Contestant(f"{place} {name}", x.enqueue, x.clock) for name, x in own.items()]
            contestants += kernels_of
            beside.append(own)
        timings = measure(backend, contestants, repeat=repeat)
        clocks = gpu_state(backend, load(backend, contestants[-1].enqueue, timings[contestants[-1].name]))
        backend.synchronize()
        for own in beside:
            for library in own.values():
                library.close()
    return [
        {
            "backend": backend.name,
            "device": backend.device.name,
            "label": workload.label,
            **{name: getattr(workload.problem, name) for name in ("m", "n", "k", "batch", "trans_a", "trans_b")},
            "dtype": workload.problem.dtype.name,
            "trials": [
                {
                    "kernel": trial.plan.variant,
                    "set": dict(trial.settings),
                    "parameters": trial.plan.values,
                    "verified": verified[f"{place} {number}"],
                    "seconds": seconds_to_dict(timings[f"{place} {number}"]),
                }
                for number, trial in enumerate(found)
            ],
            "launches": [told for trial in found for told in launches_digests(trial.plan.launches, backend.device)],
            "baselines": {
                name: {
                    "version": baselines.load(name).version, "seconds": seconds_to_dict(timings[f"{place} {name}"])
                }
                for name in beside[place]
            },
            "clocks": clocks,
        }
        for place, (workload, found) in enumerate(products)
    ]  # fmt: skip


def told(result: Mapping[str, Any]) -> Iterator[str]:
    """A line for each trial, with its ratio to each baseline."""
    product = f"{result['dtype']} {result['trans_a']}{result['trans_b']} {result['m']}×{result['n']}×{result['k']}"
    for trial in result["trials"]:
        seconds = trial["seconds"]["median"]
        ratios = "".join(
            f", {own['seconds']['median'] / seconds:.3f} × {name}" for name, own in result["baselines"].items()
        )
        stated = " ".join(f"{name}={value}" for name, value in trial["set"].items()) or "as chosen"
        wrong = "" if trial["verified"] else ", WRONG"
        yield f"{result['backend']} {product}: {trial['kernel']} {stated}: {seconds * 1e6:.2f} µs{ratios}{wrong}\n"


def workloads(shapes: Path | None, sizes: str, ops: str, dtype: str) -> list[Workload]:
    """The products of the command line, in each type."""
    found: list[Workload] = []
    for name in dtype.split(","):
        if shapes is not None:
            found += read_shapes(shapes, lambda name=name, **shape: GemmProblem.create(**{"dtype": name, **shape}))
        else:
            found += [
                Workload(GemmProblem.create(size, size, size, dtype=name, trans_a=a, trans_b=b))
                for size in map(int, sizes.split(","))
                for a, b in ops.split(",")
            ]
    return found


@click.command()
@click.option("--backend", default=None, help="cuda, opencl, or all.")
@click.option("--device", multiple=True, metavar="PLATFORM[:DEVICE]", help="Repeatable; all: every one.")
@click.option("--kernel", required=True, help="NAME[,NAME]")
@click.option("--trial", "stated", multiple=True, metavar="NAME=VALUE[,NAME=VALUE]", help="Parameters of a trial.")
@click.option("--dtype", default="float32", show_default=True, help="NAME[,NAME]")
@click.option("--sizes", default="1024", show_default=True, help="SIZE[,SIZE]: of square products.")
@click.option("--ops", default="NN", show_default=True, help="NN[,NT]: of these.")
@click.option("--shapes", type=click.Path(path_type=Path), help="A file of shapes instead of --sizes and --ops.")
@click.option("--baseline", default="", help="NAME[,NAME]: those that compute on the device's backend.")
@click.option("--repeat", type=click.IntRange(1), default=7, show_default=True, help="Samples of each.")
@click.option("--in-turns", is_flag=True, help="All products at once, in turns: to set types side by side.")
@click.option("--output", type=click.Path(path_type=Path), help="Write JSON to this file, too.")
def main(
    backend: str | None, device: tuple[str, ...], kernel: str, stated: tuple[str, ...], dtype: str, sizes: str, ops: str,
    shapes: Path | None, baseline: str, repeat: int, output: Path | None, *, in_turns: bool,
) -> None:  # fmt: skip
    """Times the trials; exit status 1 where a result is wrong."""
    each = [settings_of(text) for text in stated]
    opened = [get_backend(device=target) for target in chosen_devices(backend, device)[0]]
    with document.kept(output, opened) as results:
        asked = workloads(shapes, sizes, ops, dtype)
        for together in [asked] if in_turns else [[workload] for workload in asked]:
            for one in opened:
                each_found = [(x, list(trials(x.problem, one.device, kernel.split(","), each))) for x in together]
                if products := [(workload, found) for workload, found in each_found if found]:
                    for result in compared(products, one, baseline.split(",") if baseline else (), repeat):
                        results.append(result)
                        sys.stdout.writelines(told(result))
                    sys.stdout.flush()
    sys.exit(any(not trial["verified"] for result in results for trial in result["trials"]))


if __name__ == "__main__":
    main()
