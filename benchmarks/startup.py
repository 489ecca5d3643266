"""How long a fresh process takes to its first verified product, with empty caches and with warm ones.

python benchmarks/startup.py --device intel --device "pocl 3.1" --output startup.json

Each figure is the wall time of a whole process, from its start to its end, the imports included: it multiplies two matrices of
small whole numbers and compares the product with NumPy's, bit for bit. Python's own bytecode is there already. The caches are
gemmport's (compiled programs, the configuration as it was read) and the runtimes' (PoCL's kernels, what PyOpenCL and the
drivers keep); each is empty or warm, whatever the other is. Beside them stands the floor: a process that imports NumPy and
PyOpenCL, finds the runtimes, opens the device and ends; and one that also builds and runs a kernel of one line, which is in no
cache.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click

from gemmport.bench.environment import host_environment
from gemmport.execution.selection import get_backend, select_device

SCHEMA = 1

GIVEN = dict(os.environ)
"""The environment before gemmport, in this process, told the OpenCL loader of runtimes that pip installed."""

PRODUCT = """
import time; start = time.perf_counter()
import sys, json
import numpy as np; numpy = time.perf_counter()
import gemmport as gp; imported = time.perf_counter()
n = int(sys.argv[2])
a = (np.arange(n * n, dtype=np.int64) * 7 % 13 - 6).astype(np.float32).reshape(n, n)
b = a[::-1].T.copy(); made = time.perf_counter()
c = gp.matmul(a, b, backend="opencl", device=sys.argv[1]); multiplied = time.perf_counter()
right = bool(np.array_equal(c, a @ b)); checked = time.perf_counter()
print(json.dumps({"right": right, "import numpy": numpy - start, "import gemmport": imported - numpy,
                  "product": multiplied - made, "check": checked - multiplied}))
"""

# As gemmport opens a device, without gemmport: the environment names the runtimes, the numbers the device.
FLOOR = """
import sys, json
import numpy as np, pyopencl as cl
platform, device = map(int, sys.argv[1].split(":"))
device = cl.get_platforms()[platform].get_devices()[device]
context = cl.Context([device])
queue = cl.CommandQueue(context)
if sys.argv[2] == "build":
    program = cl.Program(context, "kernel void one(global float *x) { x[get_global_id(0)] = 1; }")
    kernel = cl.Kernel(program.build(cache_dir=False), "one")
    buffer = cl.Buffer(context, cl.mem_flags.READ_WRITE, 256)
    kernel.set_arg(0, buffer)
    cl.enqueue_nd_range_kernel(queue, kernel, (64,), (16,))
    queue.finish()
print(json.dumps({"right": True}))
"""


@dataclass(frozen=True)
class Figure:
    """One row of the result.

    Attributes:
        process: "product", or one of the floors.
        gemmport_cache, runtime_cache: "empty" or "warm".
        seconds: median of `samples`, the wall times of the processes.
        parts: medians of what the process itself measured.
    """

    device: str
    process: str
    gemmport_cache: str
    runtime_cache: str
    seconds: float
    samples: tuple[float, ...]
    parts: dict[str, float]


class Caches:
    """The folders of all caches of a measured process, and what is in them."""

    def __init__(self, root: Path) -> None:
        self.ours, self.theirs = root / "gemmport", root / "runtime"

    def environment(self) -> dict[str, str]:
        """Of a process that uses these caches, and no others."""
        inherited = {name: value for name, value in GIVEN.items() if name != "PYTHONDONTWRITEBYTECODE"}
        folders = {"GEMMPORT_CACHE_DIR": self.ours, "XDG_CACHE_HOME": self.theirs, "POCL_CACHE_DIR": self.theirs / "pocl",
                   "CUDA_CACHE_PATH": self.theirs / "cuda"}  # fmt: skip
        return {**inherited, **{name: str(folder) for name, folder in folders.items()}}

    def empty(self, *folders: Path) -> None:
        """Removes what is in these."""
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)
        (self.theirs / "pocl").mkdir(parents=True, exist_ok=True)  # PoCL 3.0 makes no folder within one that is absent


def run_process(program: str, arguments: list[str], environment: dict[str, str]) -> tuple[float, dict[str, Any]]:
    """The wall time of a fresh process in seconds, and what it printed.

    Raises:
        ClickException: it failed, or its product was wrong.
    """
    command = [sys.executable, "-W", "ignore", "-c", program, *arguments]
    start = time.perf_counter()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - start
    if done.returncode != 0:
        raise click.ClickException(f"a measured process failed:\n{done.stderr}")
    told = json.loads(done.stdout.splitlines()[-1])
    if not told.pop("right"):
        raise click.ClickException("the product of a measured process is wrong")
    return seconds, told


def measured(
    device: str, process: str, state: tuple[str, str], sample: Callable[[], tuple[float, dict[str, Any]]], repeat: int
) -> Figure:
    """The figure of a kind of process from so many samples."""
    found = [sample() for _ in range(repeat)]
    seconds = tuple(round(time_, 4) for time_, _ in found)
    parts = {name: round(statistics.median(told[name] for _, told in found), 4) for name in found[0][1]}
    return Figure(device, process, *state, statistics.median(seconds), seconds, parts)


def figures_of(description: str, size: int, repeat: int, root: Path) -> Iterator[Figure]:
    """All figures of a device."""
    device = select_device(description, "opencl")
    caches = Caches(root)
    product, floor = [device.selector, str(size)], [device.selector]
    caches.empty(caches.ours, caches.theirs)
    run_process(PRODUCT, product, caches.environment())  # whose bytecode and files the others find in memory
    for ours, theirs in (("empty", "empty"), ("warm", "empty"), ("empty", "warm"), ("warm", "warm")):
        cold = [folder for state, folder in ((ours, caches.ours), (theirs, caches.theirs)) if state == "empty"]

        def sample(cold: list[Path] = cold) -> tuple[float, dict[str, Any]]:
            caches.empty(*cold)  # what is not among these is warm: the process before filled it
            return run_process(PRODUCT, product, caches.environment())

        yield measured(device.label, "product", (ours, theirs), sample, repeat)
    for process, choice in (("floor: device opened", "open"), ("floor: one-line kernel built", "build")):

        def bare(choice: str = choice) -> tuple[float, dict[str, Any]]:
            caches.empty(caches.theirs)
            runtimes = {name: os.environ[name] for name in ("OCL_ICD_VENDORS",) if name in os.environ}
            return run_process(FLOOR, [*floor, choice], {**caches.environment(), **runtimes})

        yield measured(device.label, process, ("unused", "empty"), bare, repeat)


@click.command()
@click.option(
    "--device", "devices", multiple=True, required=True, metavar="PLATFORM[:DEVICE]", help="As in gemmport run."
)
@click.option("--size", type=click.IntRange(1), default=512, show_default=True, help="Of m, n and k.")
@click.option("--repeat", type=click.IntRange(1), default=5, show_default=True, help="Processes per figure.")
@click.option("--output", type=click.Path(path_type=Path), help="Write JSON to this file, and not to standard output.")
def main(devices: tuple[str, ...], size: int, repeat: int, output: Path | None) -> None:
    """Measure the start of fresh processes."""
    opened = {description: get_backend("opencl", description) for description in devices}  # also sets OCL_ICD_VENDORS
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory(prefix="gemmport-startup-") as root:
        for description in devices:
            for figure in figures_of(description, size, repeat, Path(root)):
                caches = f"gemmport's cache {figure.gemmport_cache}, the runtime's {figure.runtime_cache}"
                click.echo(f"{figure.device}: {figure.process}, {caches}: {figure.seconds:.3f} s", err=True)
                figures.append(figure)
    runtimes = {backend.device.label: backend.environment() for backend in opened.values()}
    document = {
        "schema": SCHEMA,
        "environment": {**host_environment(), "devices": runtimes},
        "problem": {"m": size, "n": size, "k": size, "dtype": "float32"},
        "figures": [asdict(figure) for figure in figures],
    }
    text = json.dumps(document, indent=2) + "\n"
    if output is None:
        click.echo(text, nl=False)
    else:
        output.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
