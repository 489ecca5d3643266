"""Times many tile sizes of the family on one device: where the figures of configs/*.yaml come from.

    python benchmarks/sweep.py --device intel --sizes 512,1024 --output benchmarks/results/NAME.csv

Prints the best of each kernel, type and size, which are verified; writes all of them. Candidates that break a rule of the
kernel or a limit of the device are left out. With --jobs, so many processes compile beforehand, into the cache on disk.
"""

from __future__ import annotations

import csv
import itertools
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import click

import gemmport as gp
from gemmport import verification
from gemmport.backends.base import Memory
from gemmport.benchmark import Options, run_benchmark
from gemmport.config import load_configuration
from gemmport.device import DeviceInfo
from gemmport.executor import bind
from gemmport.measurement import Contestant, measure
from gemmport.plan import ParameterValue, Plan
from gemmport.problem import GemmProblem, Operand
from gemmport.selection import get_backend, select_device
from gemmport.sources import assemble

Candidate = dict[str, ParameterValue]

BEST = 3
"""Candidates of each kernel, type and size that are verified and printed."""

# Tile sizes worth a try: on a CPU few work-items with much work each (runtimes vectorize across those side by side), on a GPU
# 64 to 256 with 16 to 128 sums each.
_GPU_TILES = (
    (
        "TSM, TSN, WPTM, WPTN = 64, 64, 4, 4; 64, 64, 8, 4; 64, 64, 8, 8; 64, 128, 8, 4; 64, 128, 8, 8; 128, 64, 8, 8; "
        "128, 128, 8, 8; 128, 128, 16, 8; 128, 128, 8, 16; 128, 256, 16, 8; 128, 256, 8, 16; 256, 128, 16, 8"
    ),
)
_CPU_TILES = (
    "TSM, TSN, WPTM, WPTN = 4, 16, 4, 16; 8, 16, 8, 16; 4, 32, 4, 32; 8, 32, 8, 4; 8, 64, 8, 4; 16, 64, 4, 4; 32, 32, 4, 8",
)
_GRIDS: dict[str, dict[str, tuple[str, ...]]] = {
    "gpu": {
        "naive": ("TS = 8; 16; 32",),
        "tiled": ("TS = 8; 16; 32", "PAD = 0; 1"),
        "wpt": ("TS = 16; 32; 64", "WPT = 2; 4; 8; 16", "PAD = 0; 1"),
        "vectorized": ("TS = 16; 32; 64", "WIDTH = 2; 4; 8"),
        "transposed_b": ("TS = 16; 32", "WPT = 2; 4; 8", "TSDK = 8; 16; 32; 64", "PAD = 0; 1"),
        "register_tiled": (*_GPU_TILES, "TSK = 8; 16; 32", "ARRANGE, PAD = strided, 1; quads, 4"),
        "register_tiled_vectorized": (*_GPU_TILES, "TSK = 8; 16; 32", "WIDTH = 2; 4", "PAD = 0; 4"),
        "shuffle": (
            "TSM, TSN, WPTM, WPTN = 64, 64, 4, 4; 64, 64, 8, 4; 128, 64, 8, 4; 128, 64, 8, 8; 64, 128, 8, 8; 128, 128, 8, 8",
            "TSK = 8; 16",
            "USE_LDG = 0; 1",
        ),
        "prefetch": (*_GPU_TILES, "TSK = 8; 16", "WIDTH = 4", "STAGES = 1; 2", "REG_PREFETCH = 0; 1", "PAD = 0; 1"),
        "padded": (*_GPU_TILES, "TSK = 8; 16; 32"),
        "direct": (
            "THREADSX, THREADSY = 8, 8; 16, 8; 16, 16; 32, 8",
            "RX, RY = 4, 4; 4, 8; 8, 4; 8, 8",
            "RK = 4; 8",
            "WIDTH = 2; 4",
        ),
    },
    "cpu": {
        "naive": ("TS = 4; 8; 16; 32",),
        "tiled": ("TS = 8; 16; 32", "PAD = 0; 1"),
        "wpt": ("TS = 8; 16; 32", "WPT = 2; 4; 8", "PAD = 0"),
        "vectorized": ("TS = 8; 16; 32; 64", "WIDTH = 4; 8"),
        "transposed_b": ("TS = 8; 16; 32", "WPT = 2; 4; 8", "TSDK = 8; 16", "PAD = 0"),
        "register_tiled": (*_CPU_TILES, "TSK = 8; 16", "ARRANGE = strided; contiguous"),
        "register_tiled_vectorized": (*_CPU_TILES, "TSK = 8; 16", "WIDTH = 4; 8"),
        "shuffle": (
            "TSM, TSN, WPTM, WPTN = 64, 64, 4, 4; 64, 64, 8, 4; 128, 32, 4, 4; 32, 128, 4, 8; 128, 16, 4, 1",
            "TSK = 8; 16",
        ),
        "prefetch": (*_CPU_TILES, "TSK = 8", "WIDTH = 4; 8", "STAGES = 1; 2", "REG_PREFETCH = 0"),
        "padded": (*_CPU_TILES, "TSK = 8; 16"),
        "packed": (
            "MR, NR, VECTOR, MC = 14, 2, 64, 224; 12, 2, 64, 192; 8, 3, 64, 256; 6, 4, 64, 192; 6, 2, 32, 192; 4, 3, 32, 256",
            "NC = 192; 384",
            "KC = 256; 1024; 4096",
        ),
        "direct": (
            "THREADSX, THREADSY = 1, 1; 2, 2; 4, 4; 16, 1",
            "RX, RY = 8, 8; 16, 4; 16, 8",
            "RK = 4; 8",
            "WIDTH = 4; 8",
        ),
    },
}
"""By type of device and kernel: values of one or several parameters, of which every combination is tried."""


def candidates(kernel: str, device_type: str) -> Iterator[Candidate]:
    """The combinations of a kernel's grid; those that break a rule among them are refused by the kernel."""
    for chosen in itertools.product(*map(_choices, _GRIDS[device_type][kernel])):
        yield {name: value for part in chosen for name, value in part.items()}


def _choices(text: str) -> list[Candidate]:
    names, _, values = text.partition(" = ")
    return [
        {
            name: int(value) if value.isdecimal() else value
            for name, value in zip(names.split(", "), row.split(", "), strict=True)
        }
        for row in values.split("; ")
    ]


def plans(problem: GemmProblem, target: DeviceInfo, kernel: str) -> Iterator[tuple[Candidate, Plan]]:
    """What the device can run of the kernel's grid."""
    for candidate in candidates(kernel, target.type):
        try:
            yield candidate, gp.plan(problem, target, kernel=kernel, params=candidate)
        except gp.ParameterError:
            continue


def compile_only(device: DeviceInfo, sources: Sequence[str]) -> None:
    """Leaves programs in the cache on disk."""
    for source in sources:
        try:
            get_backend(device=device).program(source)
        except gp.GemmportError:
            continue


def sweep(problem: GemmProblem, target: DeviceInfo, kernel: str, repeat: int, jobs: int) -> list[dict[str, object]]:
    """A row for each candidate, the fastest first."""
    found = list(plans(problem, target, kernel))
    if jobs > 1:
        sources = {assemble(launch.kernel, target.backend): None for _, plan in found for launch in plan.launches}
        with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
            list(pool.map(compile_only, [target] * jobs, [[*sources][job::jobs] for job in range(jobs)]))
    backend = get_backend(device=target)
    memory: dict[Operand, Memory] = {
        operand: backend.allocate(problem.span(operand) * problem.element_type(operand).itemsize)
        for operand in ("a", "b", "d")
    }
    for operand, values in verification.random_operands(problem, 0).items():
        backend.upload(memory[operand], values)
    rows: list[dict[str, object]] = []
    for candidate, plan in found:
        try:
            bound = bind(plan, backend, memory)
            (timing,) = measure(backend, [Contestant(kernel, bound.enqueue)], repeat=repeat).values()
        except (gp.CompileError, gp.LaunchError) as error:
            sys.stderr.write(f"{kernel} {candidate}: {error}\n")
            continue
        told = " ".join(f"{name}={value}" for name, value in candidate.items())
        row = {"kernel": kernel, "dtype": problem.dtype.name, "size": problem.m}
        rows.append(
            {**row, "gflops": round(problem.flops / timing.median * 1e-9, 2), "verified": None, "parameters": told}
        )
    rows.sort(key=lambda row: -float(str(row["gflops"])))
    by_text = {" ".join(f"{name}={value}" for name, value in candidate.items()): candidate for candidate, _ in found}
    for row in rows[:BEST]:
        options = Options(load_configuration(), (kernel,), by_text[str(row["parameters"])], baselines=(), repeat=1)
        (result,) = run_benchmark([problem], [target], options)
        row["verified"] = result.verified
    return rows


@click.command()
@click.option("--backend", default=None)
@click.option("--device", default=None)
@click.option("--kernel", default=",".join(_GRIDS["gpu"]), show_default=True)
@click.option("--dtype", default="float32,float64", show_default=True)
@click.option("--sizes", default="1024", show_default=True)
@click.option("--repeat", default=3, show_default=True)
@click.option("--jobs", default=1, show_default=True)
@click.option("--output", type=click.Path(path_type=Path), default=None)
def main(
    backend: str | None,
    device: str | None,
    kernel: str,
    dtype: str,
    sizes: str,
    repeat: int,
    jobs: int,
    output: Path | None,
) -> None:
    """Times candidates and prints the best."""
    target = select_device(device, backend)
    rows: list[dict[str, object]] = []
    for name, kind, size in itertools.product(kernel.split(","), dtype.split(","), map(int, sizes.split(","))):
        if kind not in target.computes:
            continue
        try:
            found = sweep(GemmProblem.create(size, size, size, dtype=kind), target, name, repeat, jobs)
        except gp.UnsupportedError as error:
            sys.stdout.write(f"{name}: {error}\n")
            continue
        for row in found[:BEST]:
            sys.stdout.write(f"{row}\n")
            sys.stdout.flush()
        rows += found
    if output is not None:
        with output.open("w", newline="", encoding="utf-8") as file:
            columns = ["kernel", "dtype", "size", "gflops", "verified", "parameters"]
            writer = csv.DictWriter(file, columns, lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
