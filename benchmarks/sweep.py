"""Times many tile sizes of the family on one device: where the figures of configs/*.yaml and the planner's regret come from.

    python benchmarks/sweep.py --device intel --sizes 512,1024 --output trials.jsonl
    python benchmarks/sweep.py --kernel simt --shapes benchmarks/shapes/workloads.csv --jobs 14 --output NAME.jsonl
    gemmport regret NAME.jsonl

Tries what the planner chooses, what the kernels' models choose among, and the candidates of a file (default: that of
candidates/ for GPUs or CPUs), which tells its form; those that break a rule of the kernel or a limit of the device are left
out. Each is verified on the device, then timed. Prints the best of each kernel; writes all of them, a line for each workload
as it is done (docs/shapes.md). With --jobs, so many processes compile beforehand, into the cache on disk.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import click
import yaml

import gemmport as gp
from gemmport import kernels
from gemmport.backends.base import Backend
from gemmport.bench.environment import host_environment
from gemmport.bench.standings import Workload
from gemmport.bench.sweeps import Swept, Timed, header
from gemmport.cli.shapes import read_shapes
from gemmport.contracts.kernel import Parameters
from gemmport.core.device import DeviceInfo
from gemmport.core.dtypes import as_dtype
from gemmport.core.plan import Launch, ParameterValue, Plan
from gemmport.core.problem import GemmProblem
from gemmport.execution.selection import get_backend, select_device
from gemmport.planning.lookup import load_configuration
from gemmport.runtime.sources import assemble
from gemmport.tuning.measuring import Bench

Candidate = dict[str, ParameterValue]

BEST = 3
"""Candidates of each kernel and workload that are printed."""

CANDIDATES = Path(__file__).parent / "candidates"


def read_candidates(path: Path) -> dict[str, list[Candidate]]:
    """By kernel, every combination of its factors."""
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    return {kernel: list(combinations(factors)) for kernel, factors in content.items()}


def combinations(factors: Iterable[Any]) -> Iterator[Candidate]:
    """One alternative of each factor, merged: a factor is a mapping, or a list of mappings."""
    for chosen in itertools.product(*map(_alternatives, factors)):
        yield {name: value for part in chosen for name, value in part.items()}


def _alternatives(factor: Any) -> list[Candidate]:
    mappings = factor if isinstance(factor, list) else [factor]
    return [
        dict(zip(mapping, values, strict=True))
        for mapping in mappings
        for values in itertools.product(*(v if isinstance(v, list) else [v] for v in mapping.values()))
    ]


def plans(
    problem: GemmProblem, target: DeviceInfo, candidates: Mapping[str, Sequence[Candidate]], *, modelled: bool = True
) -> list[Plan]:
    """What the planner chooses, and what the device can run of what the kernels' models considered and of the candidates; what
    comes to the same launches is there once.

    Args:
        modelled: whether what the models considered is there.
    """
    found = [gp.plan(problem, target)]
    for kernel, each in candidates.items():
        for candidate in (*(considered(kernel, problem, target) if modelled else ()), *each):
            try:
                found.append(gp.plan(problem, target, kernel=kernel, params=candidate))
            except (gp.ParameterError, gp.UnsupportedError):
                continue
    each: dict[tuple[Launch, ...], Plan] = {}
    for plan in found:
        each.setdefault(plan.launches, plan)
    return [*each.values()]


def considered(kernel: str, problem: GemmProblem, target: DeviceInfo) -> Sequence[Parameters]:
    """What a kernel chooses among for a problem, by the model of the device."""
    return kernels.variant(kernel).considered(problem, target, load_configuration().model(target))


def has_model(kernel: str, workloads: Iterable[Workload], target: DeviceInfo) -> bool:
    """Whether there is such a kernel, and it has parameters to suggest for a workload."""
    return kernel in kernels.family() and any(considered(kernel, each.problem, target) for each in workloads)


def compile_only(device: DeviceInfo, sources: Sequence[str]) -> None:
    """Leaves programs in the cache on disk."""
    for source in sources:
        try:
            get_backend(device=device).program(source)
        except gp.GemmportError:
            continue


def compile_beforehand(target: DeviceInfo, found: Iterable[Plan], jobs: int) -> None:
    """Compiles all plans in so many processes."""
    sources = [*dict.fromkeys(assemble(launch.kernel, target.backend) for plan in found for launch in plan.launches)]
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        list(pool.map(compile_only, [target] * jobs, [sources[job::jobs] for job in range(jobs)]))


def sweep(workload: Workload, backend: Backend, found: Sequence[Plan], repeat: int) -> Swept:
    """Verifies and times the plans of a workload on random operands; the fastest first. Of what is wrong, one call is timed."""
    timed: list[Timed] = []
    with Bench(workload.problem, backend) as bench:
        for plan in found:
            try:
                bound = bench.bind(plan)
                wrong = bool(bench.fault(bound))
                seconds = bench.look(bound) if wrong else bench.times([bound], repeat)[0].median
            except (gp.CompileError, gp.LaunchError, gp.DeviceMemoryError) as error:
                sys.stderr.write(f"{workload.name}: {plan.variant} {plan.values}: {error}\n")
                continue
            timed.append(Timed(plan.variant, plan.values, seconds, verified=not wrong))
    return Swept(workload, tuple(sorted(timed, key=lambda one: one.seconds)))


def told(swept: Swept) -> Iterator[str]:
    """A line for each of the best of each kernel."""
    flops = swept.workload.problem.flops
    for kernel in dict.fromkeys(one.kernel for one in swept.timed):
        right = [one for one in swept.timed if one.kernel == kernel and one.verified]
        for one in right[:BEST]:
            values = " ".join(f"{name}={value}" for name, value in one.parameters.items())
            yield f"{swept.workload.name}: {kernel} {values}: {flops / one.seconds * 1e-9:.1f} GFLOPS\n"
    wrong = [one for one in swept.timed if one.verified is False]
    yield from (f"{swept.workload.name}: {one.kernel} {dict(one.parameters)}: WRONG\n" for one in wrong)


@click.command()
@click.option("--backend", default=None)
@click.option("--device", default=None)
@click.option(
    "--kernel", default=None, help="NAME[,NAME]: of the file of candidates (default: all of them), or with a model."
)
@click.option("--candidates", "candidates_file", type=click.Path(exists=True, path_type=Path), default=None)
@click.option(
    "--dtype", default="float32,float64", show_default=True, help="NAME[,NAME]: those that the device computes in."
)
@click.option("--sizes", default="1024", show_default=True, help="SIZE[,SIZE]: of square products.")
@click.option("--shapes", type=click.Path(path_type=Path), default=None, help="A file of shapes instead of --sizes.")
@click.option("--repeat", default=3, show_default=True)
@click.option("--jobs", default=1, show_default=True)
@click.option("--output", type=click.Path(path_type=Path), default=None)
def main(
    backend: str | None,
    device: str | None,
    kernel: str | None,
    candidates_file: Path | None,
    dtype: str,
    sizes: str,
    shapes: Path | None,
    repeat: int,
    jobs: int,
    output: Path | None,
) -> None:
    """Times candidates and prints the best."""
    target = select_device(device, backend)
    known = read_candidates(candidates_file or CANDIDATES / ("cpu.yaml" if target.type == "cpu" else "gpu.yaml"))
    names = list(known) if kernel is None else kernel.split(",")
    workloads: list[Workload] = []
    for kind in dtype.split(","):
        if (arithmetic := as_dtype(kind).arithmetic) and arithmetic not in target.computes:
            sys.stderr.write(f"{kind}: {target.label} does not compute in {arithmetic}\n")
            continue
        if shapes is not None:
            workloads += read_shapes(shapes, lambda kind=kind, **shape: GemmProblem.create(**{"dtype": kind, **shape}))
        else:
            each = (GemmProblem.create(size, size, size, dtype=kind) for size in map(int, sizes.split(",")))
            workloads += map(Workload, each)
    if missing := [name for name in names if name not in known and not has_model(name, workloads, target)]:
        raise click.UsageError(f"no candidates for {', '.join(missing)}: the file has {', '.join(known)}")
    found = [plans(workload.problem, target, {name: known.get(name, []) for name in names}) for workload in workloads]
    if jobs > 1:
        compile_beforehand(target, itertools.chain.from_iterable(found), jobs)
    with ExitStack() as stack:
        file = stack.enter_context(output.open("w", encoding="utf-8")) if output is not None else None
        if file is not None:
            file.write(header(target, host_environment()))
        for workload, each_plan in zip(workloads, found, strict=True):
            swept = sweep(workload, get_backend(device=target), each_plan, repeat)
            sys.stdout.writelines(told(swept))
            sys.stdout.flush()
            if file is not None:
                file.write(swept.to_line())
                file.flush()


if __name__ == "__main__":
    main()
