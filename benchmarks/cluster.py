"""Products of Dask arrays on clusters of processes on this machine: workers that are killed, and what a second process costs.

    python benchmarks/cluster.py kills --number 20 --output FILE
    python benchmarks/cluster.py ratio --size 4096 --chunk 1024 --output FILE
    python benchmarks/cluster.py scaling --workers 1,2,4,8 --cores 8 --size 8192 --chunk 2048 --output FILE
    python benchmarks/cluster.py scaling --cupy --workers 1,2 --size 32768 --chunk 8192 --output FILE

Exits with 1 where a result is wrong, or a killed worker cost more than the tiles that it held. Needs gemmport[dask], and --cupy
CuPy and Dask-CUDA.
"""

from __future__ import annotations

import os
import signal
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import dask
import dask.array as da
import document
import numpy as np
from distributed import Client, LocalCluster, SchedulerPlugin, WorkerPlugin, wait

import gemmport as gp
import gemmport.dask
from gemmport.core.problem import GemmProblem
from gemmport.dask import chunking
from gemmport.execution.selection import get_backend
from gemmport.planning.cluster import Cluster, explain_cluster
from gemmport.planning.lookup import load_configuration
from gemmport.runtime.host_cpu import usable_cores

OURS = "gemmport-"


@contextmanager
def cluster(workers: int, threads: int, kind: Callable[..., Any] = LocalCluster, **options: Any) -> Iterator[Client]:
    """A client of a cluster of processes, all of which are gone in the end, whatever happens.

    Args:
        kind: what starts it: LocalCluster, or LocalCUDACluster of Dask-CUDA.
    """
    pids: set[int] = set()
    with ExitStack() as ending, tempfile.TemporaryDirectory() as folder:
        ending.callback(lambda: [end(pid) for pid in pids])
        # A worker that happens to be restarting so long after it was lost before is closed for good; here one after another is.
        ending.enter_context(dask.config.set({"distributed.deploy.lost-worker-timeout": "1h"}))
        local = ending.enter_context(
            kind(
                n_workers=workers, threads_per_worker=threads, processes=True, dashboard_address=None,
                local_directory=folder, **options,
            )
        )  # fmt: skip
        client = ending.enter_context(Client(local))
        client.wait_for_workers(workers, timeout=120)
        pids |= set(client.run(os.getpid).values())
        yield client


def end(pid: int) -> None:
    """Kills a process, which may be gone."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def whole_numbers(seed: int, shape: tuple[int, int], chunk: int) -> da.Array:
    """From -3 to 3, as float32: workers draw them, and draw the same ones again where they were lost."""
    return da.random.default_rng(seed).integers(-3, 4, shape, chunks=chunk).astype(np.float32)


def on_gpus(x: da.Array) -> da.Array:
    """The same numbers in chunks of CuPy's: each is sent to the GPU of its worker."""
    cupy = import_module("cupy")
    return x.map_blocks(cupy.asarray, dtype=x.dtype, meta=cupy.empty((0,) * x.ndim, x.dtype))


def end_of_work() -> None:
    """On a worker: waits for its GPU. A task of CuPy's chunks ends when its work is enqueued."""
    import_module("cupy").cuda.Device().synchronize()


class Kill(SchedulerPlugin):  # type: ignore[misc]
    """Kills a worker when so many tasks of products have begun or ended, and counts what is computed.

    Attributes:
        computed: how often each task has been. lost: tiles of which the killed worker had computed or was computing something.
    """

    name = "kill"

    def __init__(self, scheduler: Any, pids: dict[str, int], moment: int, victim: str) -> None:
        self.scheduler, self.pids, self.moment, self.victim = scheduler, pids, moment, victim
        self.computed: Counter[Any] = Counter()
        self.events, self.killed = 0, False
        self.lost: set[tuple[int, ...]] = set()

    def transition(self, key: Any, start: str, finish: str, *args: Any, worker: str | None = None, **more: Any) -> None:
        """Called by the scheduler for every change of a task's state."""
        if not (isinstance(key, tuple) and key[0].startswith(OURS)) or finish not in ("processing", "memory"):
            return
        task = self.scheduler.tasks[key]
        where = worker or (task.processing_on.address if task.processing_on else None)
        if where == self.victim:
            self.lost.add(tile(key))
        if start == "processing" and finish == "memory":
            self.computed[key] += 1
        self.events += 1
        if self.events > self.moment and not self.killed:
            self.killed = True
            end(self.pids[self.victim])

    @property
    def again(self) -> dict[Any, int]:
        """Tasks that were computed more than once."""
        return {key: count - 1 for key, count in self.computed.items() if count > 1}


def tile(key: tuple[Any, ...]) -> tuple[int, ...]:
    """Of the result, that a task belongs to."""
    return key[1:3]


def killed_run(client: Client, product: da.Array, rng: np.random.Generator) -> tuple[Any, Kill, float]:
    """A product during which a worker is killed at a random moment.

    Returns:
        The result, what was counted, and the moment as a share of all beginnings and ends.
    """
    tasks = sum(key[0].startswith(OURS) for key in product.__dask_graph__() if isinstance(key, tuple))
    pids = client.run(os.getpid)
    moment, victim = int(rng.integers(2 * tasks)), str(rng.choice(sorted(pids)))
    scheduler = client.cluster.scheduler
    plugin = Kill(scheduler, pids, moment, victim)
    scheduler.add_plugin(plugin)
    try:
        held = client.persist(product)
        wait(held)
        result = held.compute()
    finally:
        scheduler.remove_plugin(plugin.name)
    return result, plugin, moment / (2 * tasks)


@click.group()
def main() -> None:
    """Products of Dask arrays on clusters of processes."""


@main.command()
@click.option("--number", default=20, show_default=True, help="Of runs in each of which one worker is killed.")
@click.option("--size", default=600, show_default=True)
@click.option("--chunk", default=100, show_default=True)
@click.option("--workers", default=2, show_default=True)
@click.option("--seed", default=0, show_default=True)
@click.option("--output", type=click.Path(path_type=Path), help="Write JSON to this file, and not to standard output.")
def kills(number: int, size: int, chunk: int, workers: int, seed: int, output: Path | None) -> None:
    """Kills a worker at random moments: the result must be right, and tiles that others held must not be computed again.

    In every other run a task takes one panel, and a tile is a chain of tasks.
    """
    rng, runs, usual = np.random.default_rng(seed), [], chunking.TASK_BYTES
    with cluster(workers, 1) as client:
        client.register_plugin(gp.dask.WorkerDevice())
        for run in range(number):
            chunking.TASK_BYTES = 1 if run % 2 else usual
            a, b = (whole_numbers(1000 * seed + 2 * run + i, (size, size), chunk) for i in range(2))
            wanted = np.matmul(*dask.compute(a, b, scheduler="threads"))
            client.wait_for_workers(workers, timeout=120)
            result, counted, moment = killed_run(client, gp.matmul(a, b), rng)
            again = counted.again
            runs.append({
                "moment": round(moment, 3), "tasks": len(counted.computed), "again": sum(again.values()),
                "tiles_again": len({*map(tile, again)}), "tiles_lost": len(counted.lost),
                "right": bool(np.array_equal(result, wanted)), "killed": counted.killed,
                "others_again": len({*map(tile, again)} - counted.lost),
            })  # fmt: skip
            click.echo(f"{run + 1}: {runs[-1]}", err=True)
    right, others = sum(run["right"] and run["killed"] for run in runs), sum(run["others_again"] for run in runs)
    click.echo(f"{right} right results of {number}; {others} tiles of others were computed again", err=True)
    document.write(output, [get_backend()], size=size, chunk=chunk, workers=workers, runs=runs, right=right)
    sys.exit(right < number or bool(others))


@main.command()
@click.option("--size", default=4096, show_default=True)
@click.option("--chunk", default=1024, show_default=True)
@click.option("--rounds", default=9, show_default=True)
@click.option("--output", type=click.Path(path_type=Path), help="Write JSON to this file, and not to standard output.")
def ratio(size: int, chunk: int, rounds: int, output: Path | None) -> None:
    """Two workers with one thread each beside one with two, in turns: what it costs that chunks travel between processes."""
    kinds = {"1 worker, 2 threads": (1, 2), "2 workers, 1 thread": (2, 1)}
    with ExitStack() as running:
        turns = {}
        for name, (workers, threads) in kinds.items():
            client = running.enter_context(cluster(workers, threads))
            client.register_plugin(gp.dask.WorkerDevice())
            operands = [client.persist(whole_numbers(seed, (size, size), chunk)) for seed in range(2)]
            wait(operands)
            turns[name] = client, operands
        seconds: dict[str, list[float]] = {name: [] for name in turns}
        for _ in range(rounds + 1):
            for name, (client, (a, b)) in turns.items():
                start = time.perf_counter()
                wait(client.persist(gp.matmul(a, b)))
                seconds[name].append(time.perf_counter() - start)
    told = {}
    for name, each in seconds.items():
        each[:] = each[1:]  # the first compiles
        told[name] = {"median": statistics.median(each), "rounds": each}
    one, two = (seconds[name] for name in kinds)
    ratios = [x / y for x, y in zip(one, two, strict=True)]
    click.echo(
        f"speed of 2 × 1 over 1 × 2: {statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})", err=True
    )
    document.write(
        output,
        [get_backend()],
        size=size,
        chunk=chunk,
        seconds=told,
        ratio=round(statistics.median(ratios), 3),
        ratios=ratios,
    )


class OwnCores(WorkerPlugin):  # type: ignore[misc]
    """Keeps each worker of a LocalCluster to some cores, before it opens a device: its own, where there are enough."""

    name = "own-cores"

    def __init__(self, cores: int) -> None:
        self.cores = cores

    def setup(self, worker: Any) -> None:
        """Called by the worker as it begins."""
        own = sorted(os.sched_getaffinity(0))
        first = int(worker.name) * self.cores
        os.sched_setaffinity(0, {own[(first + x) % len(own)] for x in range(self.cores)})
        os.environ["POCL_MAX_PTHREAD_COUNT"] = str(self.cores)  # which counts all cores of the machine


SENT = 2**26
"""Bytes of an array by which it is measured how many a worker receives per second."""


def received(client: Client, ones: Callable[[int], Any]) -> float:
    """Bytes per second that one worker receives from another; the median of a few arrays, which `ones` makes."""
    first, second = sorted(client.scheduler_info()["workers"])[:2]
    rates = []
    for _ in range(7):
        block = client.submit(ones, SENT // 8, workers=[first], pure=False)
        wait(block)
        start = time.perf_counter()
        wait(client.submit(len, block, workers=[second], pure=False))
        rates.append(SENT / (time.perf_counter() - start))
    return statistics.median(rates)


@main.command()
@click.option("--workers", default="1,2", show_default=True, help="NUMBER[,NUMBER]; the first is 1.")
@click.option("--cores", default=1, show_default=True, help="Of each worker.")
@click.option("--size", default=4096, show_default=True)
@click.option("--chunk", default=1024, show_default=True)
@click.option("--rounds", default=5, show_default=True)
@click.option("--device", help="PLATFORM[:DEVICE] of each worker. Default: the best, with --cupy its first.")
@click.option("--cupy", "of_cupy", is_flag=True, help="Workers of Dask-CUDA, one for each GPU, and CuPy's chunks.")
@click.option("--output", type=click.Path(path_type=Path), help="Write JSON to this file, and not to standard output.")
def scaling(
    workers: str, cores: int, size: int, chunk: int, rounds: int, device: str | None, of_cupy: bool, output: Path | None
) -> None:  # fmt: skip
    """What a product takes with more and more workers, beside what `gemmport.explain_cluster` predicts of it.

    A worker's speed is that of one alone, or its part of that where workers share cores, and what it receives per second is
    measured between two.
    """
    if workers.partition(",")[0] != "1":
        raise click.BadParameter(f"the first of --workers must be 1, beside which the others stand; got {workers}")
    cupy = import_module("cupy") if of_cupy else None
    kind = import_module("dask_cuda").LocalCUDACluster if of_cupy else LocalCluster
    name, device = ("cuda", device or "nvidia:0") if of_cupy else (None, device)
    problem, backend = GemmProblem.create(size, size, size), get_backend(name, device)
    found: list[dict[str, Any]] = []
    net = 0.0
    for number in map(int, workers.split(",")):
        with cluster(number, 1, kind) as client:
            if not of_cupy:  # Dask-CUDA keeps a worker to the cores that are next to its GPU
                client.register_plugin(OwnCores(cores))
            client.register_plugin(gp.dask.WorkerDevice(device, name))
            seconds = []
            for turn in range(rounds + 1):  # of new operands: what was computed before is not computed again
                drawn = [whole_numbers(2 * turn + x, (size, size), chunk) for x in range(2)]
                a, b = operands = [client.persist(on_gpus(x) if of_cupy else x) for x in drawn]
                wait(operands)
                if of_cupy:
                    client.run(end_of_work)
                start = time.perf_counter()
                held = client.persist(gp.matmul(a, b))
                wait(held)
                if of_cupy:
                    client.run(end_of_work)
                seconds.append(time.perf_counter() - start)
            if not (cupy or np).array_equal(held.compute(), (cupy or np).matmul(*dask.compute(a, b))):
                raise click.ClickException(f"{number} workers must compute what NumPy does; got other numbers")
            if number > 1:
                net = net or received(client, cupy.ones if cupy else np.ones)
        took = statistics.median(seconds[1:])  # the first compiles
        alone = found[0]["seconds"] if found else took
        schedule = explain_cluster(
            problem, Cluster(number, net=net or 1.0), backend.device, load_configuration()
        ).best  # fmt: skip
        computing = alone / (number if of_cupy else min(number, max(usable_cores() // cores, 1)))
        predicted = max(computing, schedule.moving) + schedule.filling + schedule.adding
        found.append({
            "workers": number, "seconds": took, "rounds": seconds[1:], "predicted": predicted, "computing": computing,
            "moving": schedule.moving, "grid": str(schedule.grid), "speedup": alone / took,
        })  # fmt: skip
        click.echo(f"{number} workers: {took:.3f} s, {alone / took:.2f} of one; predicted {predicted:.3f} s", err=True)
    document.write(output, [backend], size=size, chunk=chunk, cores=cores, net=net, results=found)


if __name__ == "__main__":
    main()
