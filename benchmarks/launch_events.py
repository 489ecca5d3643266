"""What an event for each launch costs in OpenCL: PyOpenCL asks the runtime for one and drops it; on GPUs gemmport does without.

    python benchmarks/launch_events.py --device nvidia --output benchmarks/results/h200/study/launch-events.json

A kernel of one work-item is launched many times behind each other, by PyOpenCL and by the same function of the runtime without
an event, in turns, on a queue that takes times, as gemmport's are. Takes seconds.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import click
import document
import pyopencl as cl

from gemmport.execution.selection import get_backend, select_device

LAUNCHES = 200

REPEAT = 21

SOURCE = "kernel void one(global float *x) { x[get_global_id(0)] = 1; }"


def without_event(queue: Any, kernel: Any) -> Callable[[], object]:
    """Launches the kernel by the loader's own function, past PyOpenCL."""
    function = ctypes.PyDLL(str(cl._cl.__file__))["clEnqueueNDRangeKernel"]
    one, nothing = (ctypes.c_size_t * 1)(1), ctypes.c_void_p()
    handles = ctypes.c_void_p(queue.int_ptr), ctypes.c_void_p(kernel.int_ptr)
    arguments = (*handles, ctypes.c_uint(1), nothing, one, one, ctypes.c_uint(0), nothing, nothing)

    def launch() -> None:
        if (status := function(*arguments)) != 0:
            raise click.ClickException(f"clEnqueueNDRangeKernel must succeed; got status {status}")

    return launch


def times(queue: Any, launch: Callable[[], object]) -> tuple[float, float]:
    """Seconds of the host, and of the device, for each of LAUNCHES in a row."""
    queue.finish()
    first = cl.enqueue_marker(queue)
    start = time.perf_counter()
    for _ in range(LAUNCHES):
        launch()
    host = (time.perf_counter() - start) / LAUNCHES
    last = cl.enqueue_marker(queue)
    queue.finish()
    return host, (last.profile.end - first.profile.end) * 1e-9 / LAUNCHES


@click.command()
@click.option("--device", default=None, metavar="PLATFORM[:DEVICE]", help="As in gemmport run, in OpenCL.")
@click.option("--output", type=click.Path(path_type=Path), help="Write JSON to this file, and not to standard output.")
def main(device: str | None, output: Path | None) -> None:
    """Measures launches with an event and without."""
    target = select_device(device, "opencl")
    backend = get_backend(device=target)
    native = cl.get_platforms()[target.index[0]].get_devices()[target.index[1]]
    context = cl.Context([native])
    queue = cl.CommandQueue(context, properties=cl.command_queue_properties.PROFILING_ENABLE)
    kernel = cl.Kernel(cl.Program(context, SOURCE).build(), "one")
    memory = cl.Buffer(context, cl.mem_flags.READ_WRITE, 4)
    kernel.set_arg(0, memory)
    ways: dict[str, Callable[[], object]] = {
        "with an event": lambda: cl.enqueue_nd_range_kernel(queue, kernel, (1,), (1,)),
        "without": without_event(queue, kernel),
    }
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for _ in range(REPEAT):
        for name, launch in ways.items():
            found[name].append(times(queue, launch))
    launches = {}
    for name, each in found.items():
        host, on_device = (median(column) for column in zip(*each, strict=True))
        launches[name] = {"host_us": round(host * 1e6, 2), "device_us": round(on_device * 1e6, 2)}
        click.echo(f"{name}: {launches[name]}", err=True)
    document.write(output, [backend], launches=launches)


if __name__ == "__main__":
    main()
