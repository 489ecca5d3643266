"""What a product of NumPy arrays takes, the call included, beside NumPy's own.

python benchmarks/calls.py --device intel --device "pocl 3.1" --sizes 64,128,256,512,1024 --output benchmarks/results/calls.json

`gemmport.matmul(a, b, out=c)` and `numpy.matmul(a, b, out=c)` take turns on the same arrays; a ratio is the quotient of the
two medians. A turn lasts TURN seconds, of which the first tenth is not counted: the threads of whoever had the turn before
spin for a while, and take the cores.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np
import numpy.typing as npt

import gemmport as gp
from gemmport.environment import host_environment
from gemmport.selection import select_device

SCHEMA = 1

TURN = 0.2
"""Seconds."""


@click.command()
@click.option("--device", "devices", multiple=True, help="PLATFORM[:DEVICE]; repeatable. Default: the best.")
@click.option("--sizes", default="64,128,256,512,1024,2048", show_default=True, help="m = n = k, with commas.")
@click.option("--dtype", type=click.Choice(["float32", "float64"]), default="float32", show_default=True)
@click.option("--turns", default=7, show_default=True, help="Turns of each.")
@click.option("--output", type=click.Path(path_type=Path, dir_okay=False), help="Write JSON there, too.")
def main(devices: tuple[str, ...], sizes: str, dtype: str, turns: int, output: Path | None) -> None:
    """Measures calls and prints a line for each device and size."""
    rng = np.random.default_rng(0)
    results: list[dict[str, Any]] = []
    for description in devices or (None,):
        device = select_device(description)
        for size in map(int, sizes.split(",")):
            a, b = (rng.standard_normal((size, size)).astype(dtype) for _ in range(2))
            c = np.empty_like(a)
            own, other = timed(
                lambda a=a, b=b, c=c, device=device: gp.matmul(a, b, out=c, device=device),
                lambda a=a, b=b, c=c: np.matmul(a, b, out=c),
                turns,
            )
            check(gp.matmul(a, b, device=device), a, b)
            result = {
                "device": device.label, "m": size, "n": size, "k": size, "dtype": dtype,
                "seconds": own, "numpy_seconds": other, "ratio": other["median"] / own["median"],
            }  # fmt: skip
            results.append(result)
            click.echo(
                f"{device.label}  {dtype} {size}³: {own['median'] * 1e6:,.1f} µs ({2 * size**3 / own['median'] * 1e-9:,.0f} "
                f"GFLOPS), NumPy {other['median'] * 1e6:,.1f} µs: {result['ratio']:.2f}"
            )
    if output is not None:
        document = {"schema": SCHEMA, "environment": host_environment(), "results": results}
        output.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def timed(first: Callable[[], object], second: Callable[[], object], turns: int) -> list[dict[str, float]]:
    """Seconds per call of each: quartiles over its turns of the median call."""
    medians: list[list[float]] = [[], []]
    for _ in range(turns + 1):
        for number, call in enumerate((first, second)):
            medians[number].append(statistics.median(turn_of(call)))
    return [
        dict(zip(("first_quartile", "median", "third_quartile"), statistics.quantiles(own[1:], n=4), strict=True))
        for own in medians  # the first turn warms up
    ]


def turn_of(call: Callable[[], object]) -> list[float]:
    """Seconds of each call of a turn, but for those of its first tenth; of one call at least."""
    seconds: list[float] = []
    start = time.perf_counter()
    while (now := time.perf_counter()) - start < TURN or not seconds:
        call()
        if now - start >= TURN / 10:
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
