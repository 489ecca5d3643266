"""What a call costs: of NumPy arrays the whole of it, beside NumPy's own; of device arrays the host's part.

python benchmarks/calls.py --device intel --device "pocl 3.1" --sizes 64,128,256,512,1024 --output calls.json
python benchmarks/calls.py --arrays device --device nvidia --sizes 64,512

NumPy arrays: `gemmport.matmul(a, b, out=c)` and `numpy.matmul(a, b, out=c)` take turns on the same arrays; a ratio is the
quotient of the two medians. A turn begins when the threads of whoever had the turn before sleep (OpenBLAS's spin for a tenth of
a second), and its first WARM_UP_SECONDS are not counted. `kernels` are those of the same plan, on memory of the device, each
product awaited. `floor` is what the runtime itself takes to launch a kernel of one work-item that does nothing, and to wait for
it.

Device arrays: the time until `gemmport.gemm(a, b, out=c)`, and `gemmport.gemm(a, b)`, which allocates its result, return. ROUND
calls are enqueued and timed one by one, then the device is waited for, so that its queue is never full.
"""

from __future__ import annotations

import json
import shlex
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import click
import numpy as np
import numpy.typing as npt

import gemmport as gp
from gemmport.api import product
from gemmport.bench.digest import call_path_digest, launches_digests
from gemmport.bench.environment import host_environment
from gemmport.bench.timing import wait_until_quiet
from gemmport.core.plan import Plan
from gemmport.execution.executor import bind, bind_or_choose
from gemmport.execution.selection import select_device

SCHEMA = 2

RNG = np.random.default_rng(0)

TURN, WARM_UP_SECONDS = 0.2, 0.1
"""Seconds of a turn that are counted, and before them."""

ROUND, ROUNDS, WARM_UP = 32, 60, 5
"""Calls that are enqueued before the device is waited for, how often, and how often before that."""


@click.command()
@click.option("--arrays", type=click.Choice(["numpy", "device"]), default="numpy", show_default=True)
@click.option("--backend", help="cuda or opencl. Default: whichever reaches the device.")
@click.option("--device", "devices", multiple=True, help="PLATFORM[:DEVICE]; repeatable. Default: the best.")
@click.option("--sizes", default="64,128,256,512,1024,2048", show_default=True, help="m = n = k, with commas.")
@click.option("--dtype", type=click.Choice(["float32", "float64"]), default="float32", show_default=True)
@click.option("--turns", default=7, show_default=True, help="Turns of each, with NumPy arrays.")
@click.option("--output", type=click.Path(path_type=Path, dir_okay=False), help="Write JSON there, too.")
def main(
    arrays: str, backend: str | None, devices: tuple[str, ...], sizes: str, dtype: str, turns: int, output: Path | None
) -> None:
    """Measures calls and prints a line for each device and size."""
    results: list[dict[str, Any]] = []
    environment: dict[str, Any] = {**host_environment(), "devices": {}}
    for description in devices or (None,):
        opened = gp.get_backend(device=select_device(description, backend))
        environment["devices"][opened.device.label] = {**opened.device.to_dict(), "runtime": opened.environment()}
        for size in map(int, sizes.split(",")):
            measured = of_numpy(opened, size, dtype, turns) if arrays == "numpy" else of_device(opened, size, dtype)
            about = {"device": opened.device.label, "arrays": arrays, "m": size, "n": size, "k": size, "dtype": dtype}
            results.append({**about, **measured, "call_path": call_path_digest(opened.name)})
    if output is not None:
        command = shlex.join(["python", "benchmarks/calls.py", *without_output(sys.argv[1:])])
        document = {"schema": SCHEMA, "command": command, "environment": environment, "results": results}
        output.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def of_numpy(backend: gp.Backend, size: int, dtype: str, turns: int) -> dict[str, Any]:
    """Calls of NumPy arrays beside NumPy's."""
    device = backend.device
    a, b = (RNG.standard_normal((size, size)).astype(dtype) for _ in range(2))
    c = np.empty_like(a)
    nothing = empty_launch(backend)
    plan = plan_of(lambda: gp.matmul(a, b, out=c, device=device))
    own, other, kernels, floor = timed(
        [
            lambda: gp.matmul(a, b, out=c, device=device),
            lambda: np.matmul(a, b, out=c),
            kernels_of(plan, backend),
            nothing,
        ],
        turns,
    )
    check(gp.matmul(a, b, device=device), a, b)
    ratio = other["median"] / own["median"]
    click.echo(
        f"{device.label}  {dtype} {size}³: {own['median'] * 1e6:,.1f} µs ({2 * size**3 / own['median'] * 1e-9:,.0f} GFLOPS), "
        f"NumPy {other['median'] * 1e6:,.1f} µs: {ratio:.2f}; kernels {kernels['median'] * 1e6:,.1f} µs, "
        f"floor {floor['median'] * 1e6:,.1f} µs"
    )
    seconds = {"seconds": own, "numpy_seconds": other, "kernel_seconds": kernels, "floor_seconds": floor}
    return {**seconds, "ratio": ratio, **told(plan)}


def of_device(backend: gp.Backend, size: int, dtype: str) -> dict[str, Any]:
    """The host's part of calls of device arrays."""
    host = [RNG.standard_normal((size, size)).astype(dtype) for _ in range(2)]
    a, b = (backend.asarray(x) for x in host)
    c = backend.empty((size, size), dtype)
    plan = plan_of(lambda: gp.gemm(a, b, out=c))
    given = quartiles(enqueued(backend, lambda: gp.gemm(a, b, out=c)))
    new = quartiles(enqueued(backend, lambda: gp.gemm(a, b)))
    check(c.get(), *host)
    times = [
        f"{x['median'] * 1e6:.1f} µs ({x['first_quartile'] * 1e6:.1f} to {x['third_quartile'] * 1e6:.1f})"
        for x in (given, new)
    ]
    click.echo(f"{backend.device.label}  {dtype} {size}³: out given {times[0]}, new result {times[1]}")
    return {"host_seconds": {"out": given, "new": new}, **told(plan)}


def plan_of(call: Callable[[], object]) -> Plan:
    """The plan of a call that is the first of its kind: those that follow have the same."""
    plans: list[Plan] = []

    def bound(*arguments: Any) -> Any:
        found = bind_or_choose(*arguments)
        plans.append(found.plan)
        return found

    with patch.object(product, "bind_or_choose", bound):
        call()
    return plans[0]


def told(plan: Plan) -> dict[str, Any]:
    """What was asked for, and what was launched, as docs/results.md describes it."""
    asked = {"kernel": "auto", "parameters": {}, "problem": plan.problem.to_dict()}
    return {"asked": asked, "launches": launches_digests(plan.launches, plan.device)}


def without_output(arguments: Sequence[str]) -> list[str]:
    """Arguments but for where the output goes."""
    places = [number for number, word in enumerate(arguments) if word == "--output"]
    hidden = {*places, *(number + 1 for number in places)}
    return [word for number, word in enumerate(arguments) if number not in hidden and not word.startswith("--output=")]


def enqueued(backend: gp.Backend, call: Callable[[], object]) -> list[float]:
    """Seconds until each call returned."""
    seconds: list[float] = []
    for number in range(WARM_UP + ROUNDS):
        start = time.perf_counter()
        for _ in range(ROUND):
            call()
            now = time.perf_counter()
            if number >= WARM_UP:
                seconds.append(now - start)
            start = now
        backend.synchronize()
    return seconds


def kernels_of(plan: Plan, backend: gp.Backend) -> Callable[[], object]:
    """Launches the kernels of a plan on memory of the device, of random numbers, and waits for them."""
    problem = plan.problem
    operands = {
        name: backend.asarray(RNG.standard_normal(problem.span(name)).astype(problem.dtype.numpy)) for name in "abd"
    }
    bound = bind(plan, backend, {name: array.memory for name, array in operands.items()})

    def launch() -> None:
        bound.enqueue()
        backend.synchronize()

    return launch


def empty_launch(backend: gp.Backend) -> Callable[[], object]:
    """Launches one work-item that does nothing, and waits for it: through the backend, which adds 1 to 2 µs of Python."""
    qualifier = "__kernel" if backend.name == "opencl" else 'extern "C" __global__'
    program = backend.program(f"{qualifier} void nothing(const int unused) {{}}\n")
    call = backend.prepare(program, "nothing", (1, 1, 1), (1, 1, 1), [np.int32(0)])

    def launch() -> None:
        backend.launch(call)
        backend.synchronize()

    return launch


def timed(calls: Sequence[Callable[[], object]], turns: int) -> list[dict[str, float]]:
    """Seconds per call of each: quartiles over its turns of the median call."""
    medians: list[list[float]] = [[] for _ in calls]
    for _ in range(turns + 1):
        for own, call in zip(medians, calls, strict=True):
            own.append(statistics.median(turn_of(call)))
    return [quartiles(own[1:]) for own in medians]  # the first turn warms up


def quartiles(seconds: Sequence[float]) -> dict[str, float]:
    """The median and the quartiles about it."""
    found = statistics.quantiles(seconds, n=4)
    return dict(zip(("first_quartile", "median", "third_quartile"), found, strict=True))


def turn_of(call: Callable[[], object]) -> list[float]:
    """Seconds of each call of a turn, but for those that warm up; of one call at least."""
    wait_until_quiet()
    seconds: list[float] = []
    start = time.perf_counter()
    while (now := time.perf_counter()) - start < WARM_UP_SECONDS + TURN or not seconds:
        call()
        if now - start >= WARM_UP_SECONDS:
            seconds.append(time.perf_counter() - now)
    return seconds


def check(product: npt.NDArray[Any], a: npt.NDArray[Any], b: npt.NDArray[Any]) -> None:
    """Raises SystemExit where a product is far from NumPy's in float64: the tests judge it more closely."""
    wide = a.astype(np.float64), b.astype(np.float64)
    bound = 8 * np.finfo(a.dtype).eps * np.sqrt(a.shape[1]) * np.matmul(np.abs(wide[0]), np.abs(wide[1]))
    if not np.all(np.abs(product - np.matmul(*wide)) <= bound + np.finfo(a.dtype).tiny):
        raise SystemExit(f"wrong: {a.shape[0]}³ {a.dtype}")


if __name__ == "__main__":
    main()
