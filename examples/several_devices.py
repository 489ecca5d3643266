"""The second step: one product that several devices of this machine compute together.

python examples/several_devices.py --size 8192                                # every chip of this machine
python examples/several_devices.py --size 8192 --device nvidia --device intel # a GPU beside the CPU
python examples/several_devices.py --device nvidia:0 --device nvidia:1 --on-devices  # of arrays that lie there
"""

from __future__ import annotations

import logging
import time

import click
import numpy as np

import gemmport as gp


@click.command()
@click.option("--size", default=4096, show_default=True)
@click.option("--on-devices", is_flag=True, help="A and the result lie on the first device, B on the last.")
@click.option("--device", "names", multiple=True, help="PLATFORM[:DEVICE]; repeatable. Default: every chip.")
def main(size: int, names: tuple[str, ...], *, on_devices: bool) -> None:
    """Multiplies two matrices of whole numbers by several devices, tells what each did, and checks some rows."""
    logging.basicConfig(format="%(message)s")
    logging.getLogger("gemmport.api.dealt").setLevel(logging.INFO)  # which tells each device's share
    devices = list(names) or "all"
    if not on_devices:  # it is of arrays in the host's memory
        click.echo(f"{gp.explain((size, size, size), devices=devices)}\n")
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-3, 4, (size, size)).astype(np.float32) for _ in range(2))
    x, y, out = a, b, np.empty((size, size), np.float32)
    if on_devices:
        there = [gp.get_backend(device=name) for name in names] or [gp.get_backend()]
        x, y, out = there[0].asarray(a), there[-1].asarray(b), there[0].empty((size, size), np.float32)
    gp.matmul(x, y, out, devices=devices)  # compiles
    start = time.perf_counter()
    gp.matmul(x, y, out, devices=devices)
    seconds = time.perf_counter() - start
    result = out.get() if on_devices else out
    rows = rng.integers(0, size, 8)
    if not np.array_equal(result[rows], a[rows] @ b):  # sums of so small whole numbers are exact
        raise SystemExit("the result is wrong")
    click.echo(f"{seconds:.3g} s, {2 * size**3 / seconds * 1e-9:,.0f} GFLOPS; the rows that were checked are right")


if __name__ == "__main__":
    main()
