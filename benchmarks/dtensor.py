"""Times products of arrays whose rows are spread over devices beside those of PyTorch's DTensor, in turns.

    python benchmarks/dtensor.py --sizes 8192,16384 --dtypes float32,float16
    python benchmarks/dtensor.py --devices intel,"pocl 3.1" --torch cpu --sizes 512     # a trial without GPUs

A, B and C are `Shard(0)` in both: of gemmport `ShardedArray`s in this process, of PyTorch DTensors in one process per device,
by NCCL on GPUs and gloo on CPUs. Each turn is one call of either, awaited, as a program makes it after the first: DTensor's
after a barrier, its seconds those of its slowest process. gemmport's product is verified first, as by `gemmport run --devices
… --placement rows`. Neither rounds float32 to TF32. What is being done is told on standard error. Turns of a product end after
--patience seconds, once there are three.

Prints JSON: medians, their ratio (over 1: gemmport is the faster) and its extremes over the turns, and each device's share.
Exits with 1 where gemmport's product is wrong, or the last has other bits than the first.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import socket
import statistics
import sys
import time
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import click
import numpy as np

import gemmport as gp
from gemmport.api.gemm import computed
from gemmport.api.product import Choice
from gemmport.bench.dealt import DealtOptions, run_dealt
from gemmport.bench.timing import LEAST_SAMPLES
from gemmport.checking.verification import random_operands
from gemmport.multidevice.selection import chosen_backends

BEGUN = time.perf_counter()


class Turns(NamedTuple):
    """How a product is timed: turns before those that count, turns at most, seconds of turns after which no other begins."""

    warm: int
    repeat: int
    patience: float


def dtensor(rank: int, count: int, port: int, kind: str, orders: Connection) -> None:
    """One process of PyTorch's: makes operands as it is told, and times a product at each further word."""
    import torch  # noqa: PLC0415 - in this process alone
    from torch import distributed  # noqa: PLC0415
    from torch.distributed.device_mesh import init_device_mesh  # noqa: PLC0415
    from torch.distributed.tensor import DTensor, Shard  # noqa: PLC0415

    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "RANK": str(rank), "WORLD_SIZE": str(count)}
    if kind == "cuda":
        torch.cuda.set_device(rank)
    distributed.init_process_group("nccl" if kind == "cuda" else "gloo", rank=rank, world_size=count)
    mesh = init_device_mesh(kind, (count,))
    a = b = None
    while (order := orders.recv()) is not None:
        if order != "go":
            size, dtype = order
            rows = size // count
            a, b = (
                DTensor.from_local(torch.randn(rows, size, device=kind).to(getattr(torch, dtype)), mesh, [Shard(0)])
                for _ in range(2)
            )
            orders.send(torch.__version__)
            continue
        distributed.barrier()
        if kind == "cuda":
            torch.cuda.synchronize()
        begun = time.perf_counter()
        c = (a @ b).redistribute(placements=[Shard(0)]).to_local()
        if kind == "cuda":
            torch.cuda.synchronize()
        orders.send(time.perf_counter() - begun)
        del c
    distributed.destroy_process_group()


def started(count: int, kind: str) -> list[tuple[Any, Connection]]:
    """PyTorch's processes, and what each is told by."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = multiprocessing.get_context("spawn")
    found = []
    for rank in range(count):
        here, there = context.Pipe()
        process = context.Process(target=dtensor, args=(rank, count, port, kind, there), daemon=True)
        process.start()
        there.close()  # so that the end of a process is noticed
        found.append((process, here))
    return found


def told(workers: list[tuple[Any, Connection]], word: object) -> list[Any]:
    """What each process answers to a word."""
    for _, orders in workers:
        orders.send(word)
    return [orders.recv() for _, orders in workers]


def compared(
    size: int,
    dtype: str,
    backends: list[gp.Backend],
    workers: list[tuple[Any, Connection]],
    turns: Turns,
) -> dict[str, Any]:
    """One product, verified and timed in turns."""
    problem = gp.GemmProblem.create(size, size, size, dtype=dtype)
    tell(f"{problem}: verifying")
    checked = run_dealt(problem, backends, DealtOptions(repeat=0, placement="rows"), progress=tell)
    if checked.verified is not True:
        return {"size": size, "dtype": dtype, "status": checked.status, "reason": checked.reason}
    tell(f"{problem}: drawing operands")
    a, b = (gp.ShardedArray.distribute(x[0], backends) for x in random_operands(problem, 0).values())
    first = gp.matmul(a, b)
    c = gp.ShardedArray.distribute(np.zeros((size, size), first.dtype), backends)
    dealt = computed(a, b, None, c, devices=backends, choice=Choice()).dealt
    version, *_ = told(workers, (size, dtype))
    ours: list[float] = []
    theirs: list[float] = []
    for turn in range(turns.warm + turns.repeat):
        if len(ours) >= LEAST_SAMPLES and sum(ours) + sum(theirs) > turns.patience:
            break
        tell(f"{problem}: turn {turn + 1} of {turns.warm + turns.repeat}")
        begun = time.perf_counter()
        gp.matmul(a, b, c)
        seconds = time.perf_counter() - begun
        other = max(told(workers, "go"))
        if turn >= turns.warm:
            ours.append(seconds)
            theirs.append(other)
    assert dealt is not None
    if not np.array_equal(c.get(), first.get()):
        return {
            "size": size,
            "dtype": dtype,
            "status": "failed",
            "reason": "the last product has other bits than the first",
        }
    ratios = sorted(other / own for own, other in zip(ours, theirs, strict=True))
    own, other = statistics.median(ours), statistics.median(theirs)
    return {
        "size": size, "dtype": dtype, "status": "ok", "torch": version, "gemmport_seconds": own, "dtensor_seconds": other,
        "gemmport_tflops": problem.flops / own * 1e-12, "dtensor_tflops": problem.flops / other * 1e-12,
        "ratio": other / own, "ratio_of_turns": [ratios[0], ratios[-1]], "turns": len(ours),
        "shares": {
            member.name: {"share": member.elements / size**2, "tiles": len(member.tiles)} for member in dealt.members
        },
    }  # fmt: skip


def tell(what: str) -> None:
    """Says on standard error what is being done, and when."""
    sys.stderr.write(f"{time.perf_counter() - BEGUN:.1f} s: {what}\n")
    sys.stderr.flush()


@click.command()
@click.option("--devices", default="nvidia:0,nvidia:1", show_default=True, help="As many as PyTorch has processes.")
@click.option("--torch", "kind", type=click.Choice(["cuda", "cpu"]), default="cuda", help="Where PyTorch computes.")
@click.option("--sizes", default="8192,16384", show_default=True, help="Multiples of the number of devices.")
@click.option("--dtypes", default="float32,float16", show_default=True)
@click.option("--warm", default=2, show_default=True, help="Turns before those that count.")
@click.option("--repeat", default=11, show_default=True, help="Turns, at most.")
@click.option("--patience", default=5.0, show_default=True, help="Seconds of turns of a product.")
def main(devices: str, kind: str, sizes: str, dtypes: str, warm: int, repeat: int, patience: float) -> None:
    """Compare products of sharded arrays with those of PyTorch's DTensor, in turns."""
    backends = chosen_backends(devices.split(","))
    extents = [int(size) for size in sizes.split(",")]
    if uneven := [size for size in extents if size % len(backends)]:
        raise click.UsageError(f"sizes must be multiples of {len(backends)}, the number of devices; got {uneven[0]}")
    turns = Turns(warm, repeat, patience)
    workers = started(len(backends), kind)
    results = []
    for dtype in dtypes.split(","):
        for size in extents:
            results.append(compared(size, dtype, backends, workers, turns))
            tell(json.dumps(results[-1]))  # so that a run which is ended early has told it
    for _, orders in workers:
        orders.send(None)
    for process, _ in workers:
        process.join(60)
    computed_on = [backend.device.to_dict() for backend in backends]
    click.echo(json.dumps({"devices": computed_on, "gemmport": gp.__version__, "results": results}, indent=2))
    sys.exit(any(result["status"] != "ok" for result in results))


if __name__ == "__main__":
    main()
