"""What the matrix unit of an NVIDIA GPU of compute capability 9.0 delivers in float64, with all numbers in registers.

    python benchmarks/matrix_unit.py --output benchmarks/results/h200/study/matrix-unit.json

Each warp adds up 16 independent products by `mma` of m16n8k4, k8 or k16, with one group on each multiprocessor, and one warp
or two for each of its schedulers; first on a cool device, then after LOAD_SECONDS. `gemmport.contracts.gpu_model` has its
constants from it. Takes seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from statistics import median

import click
import document
import numpy as np

from gemmport.backends.base import Backend
from gemmport.bench.environment import gpu_state
from gemmport.execution.selection import get_backend, select_device

ARCHITECTURE = "sm_90"

ROWS, COLUMNS = 16, 8
"""Of an instruction's sums: four numbers of each work-item."""

TERMS = (4, 8, 16)
"""Of its variants."""

SUMS = 16
"""Independent ones of a warp, so that none waits for the one before."""

PASSES = 2000

SCHEDULERS, WARP = 4, 32

REPEAT = 5

LOAD_SECONDS = 1.2


def source(terms: int) -> str:
    """A kernel that does nothing else than the instruction."""
    a, b = terms // 2, terms // 4  # numbers of a work-item
    sums, left, right = (
        ", ".join(f"%{start + i}" for i in range(count)) for start, count in ((0, 4), (4, a), (4 + a, b))
    )
    operands = ", ".join([*(f'"d"(a[{i}])' for i in range(a)), *(f'"d"(b[{i}])' for i in range(b))])
    results = ", ".join(f'"+d"(sums[sum][{i}])' for i in range(4))
    return f"""
extern "C" __global__ void unit(double *out, int passes) {{
    double sums[{SUMS}][4], a[{a}], b[{b}];
    for (int i = 0; i < {a}; ++i) a[i] = (threadIdx.x + i) * 1e-3 - 0.06;
    for (int i = 0; i < {b}; ++i) b[i] = 0.05 - (threadIdx.x + i) * 1e-3;
    for (int sum = 0; sum < {SUMS}; ++sum)
        for (int i = 0; i < 4; ++i) sums[sum][i] = sum + i;
#pragma unroll 1
    for (int pass = 0; pass < passes; ++pass)
#pragma unroll
        for (int sum = 0; sum < {SUMS}; ++sum)
            asm volatile("mma.sync.aligned.m{ROWS}n{COLUMNS}k{terms}.row.col.f64.f64.f64.f64 "
                         "{{{sums}}}, {{{left}}}, {{{right}}}, {{{sums}}};" : {results} : {operands});
    double all = 0;
    for (int sum = 0; sum < {SUMS}; ++sum)
        for (int i = 0; i < 4; ++i) all += sums[sum][i];
    out[blockIdx.x * blockDim.x + threadIdx.x] = all;
}}
"""


def seconds(backend: Backend, enqueue: Callable[[], None], calls: int = 1) -> float:
    """Device time of a launch, of so many behind each other."""
    backend.synchronize()
    first = backend.record()
    for _ in range(calls):
        enqueue()
    return backend.elapsed(first, backend.record()) / calls


def measured(backend: Backend, terms: int, warps: int) -> dict[str, object]:
    """TFLOPS of the instruction with so many warps for each scheduler, first and under load."""
    groups, items = backend.device.compute_units, warps * SCHEDULERS * WARP
    with backend.allocate(groups * items * 8) as memory:
        program = backend.compile(source(terms))
        call = backend.prepare(program, "unit", (groups, 1, 1), (items, 1, 1), [memory, np.int32(PASSES)])

        def enqueue() -> None:
            backend.launch(call)

        seconds(backend, enqueue)
        first = median(seconds(backend, enqueue) for _ in range(REPEAT))
        under_load = max(1, round(LOAD_SECONDS / first))
        loaded = seconds(backend, enqueue, under_load)
        for _ in range(under_load):
            enqueue()
        clocks = gpu_state(backend)
        backend.synchronize()
    operations = 2 * ROWS * COLUMNS * terms * SUMS * PASSES * groups * warps * SCHEDULERS
    return {
        "warps_per_scheduler": warps,
        "instruction": f"m{ROWS}n{COLUMNS}k{terms}",
        "tflops_first": round(operations / first * 1e-12, 2),
        "tflops_loaded": round(operations / loaded * 1e-12, 2),
        "clocks": clocks,
    }


@click.command()
@click.option("--device", default=None, metavar="PLATFORM[:DEVICE]", help="As in gemmport run, under CUDA.")
@click.option("--output", type=click.Path(path_type=Path), help="Write JSON to this file, and not to standard output.")
def main(device: str | None, output: Path | None) -> None:
    """Measures the instructions."""
    target = select_device(device, "cuda")
    if target.architecture != ARCHITECTURE:
        raise click.UsageError(f"the device must be of {ARCHITECTURE}; got {target.label}, {target.architecture}")
    backend = get_backend(device=target)
    found = []
    for warps in (1, 2):
        for terms in TERMS:
            found.append(measured(backend, terms, warps))
            click.echo(f"{found[-1]}", err=True)
    document.write(output, [backend], instructions=found)


if __name__ == "__main__":
    main()
