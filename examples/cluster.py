"""The third step: arrays that no worker holds whole, multiplied by a cluster.

    python examples/cluster.py --size 20000                                   # a cluster of processes on this machine
    python examples/cluster.py --size 200000 --scheduler tcp://head:8786      # one that runs already

Needs gemmport[dask]. docs/scale.md says how to start a cluster elsewhere.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import click
import dask.array as da
import numpy as np
from distributed import Client, LocalCluster

import gemmport as gp
import gemmport.dask


@click.command()
@click.option("--size", default=4000, show_default=True)
@click.option("--chunk", default=0, help="Of both operands; default: what suits this machine's best device.")
@click.option("--workers", default=2, show_default=True, help="Of a cluster on this machine.")
@click.option("--scheduler", help="The address of a cluster that runs already.")
def main(size: int, chunk: int, workers: int, scheduler: str | None) -> None:
    """Multiplies two arrays of random whole numbers, and checks a few rows."""
    with ExitStack() as running:
        if scheduler is None:
            local = running.enter_context(LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None))
        client = running.enter_context(Client(local if scheduler is None else scheduler))
        client.register_plugin(
            gemmport.dask.WorkerDevice()
        )  # opens each worker's device now, and those of later workers
        count = len(client.scheduler_info(n_workers=-1)["workers"])
        of_a, of_b = gemmport.dask.chunks((size, size), (size, size), "float32", workers=count)
        a, b = (whole_numbers(seed, size, chunk or own) for seed, own in enumerate((of_a, of_b)))
        # Workers keep the operands and the result; without persist each use would compute them again.
        a, b = client.persist([a, b])
        c = client.persist(gp.matmul(a, b))
        is_right = da.all(c[:2] == da.dot(a[:2], b)).compute()  # Dask's own product of two rows
        click.echo(f"{size} × {size} in {c.npartitions} tiles by {count} workers: {'right' if is_right else 'WRONG'}")


def whole_numbers(seed: int, size: int, chunks: Any) -> da.Array:
    """From -3 to 3, whose products have exact sums in float32; drawn by the workers."""
    return da.random.default_rng(seed).integers(-3, 4, (size, size), chunks=chunks).astype(np.float32)


if __name__ == "__main__":
    main()
