"""Prepared calls in great numbers: from many threads that share streams, and of so many kinds that nearly all of them are kept.

    python benchmarks/endurance.py threads --backend cuda --arrays torch --output FILE
    python benchmarks/endurance.py kinds --backend cuda --arrays torch --output FILE

Exits with 1 where a result is wrong, or where the process takes more and more. On an H200 each takes a minute or two.
"""

from __future__ import annotations

import itertools
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
import document
import numpy as np
import numpy.typing as npt

import gemmport as gp
from gemmport.backends.base import Backend
from gemmport.execution.selection import get_backend, select_device
from gemmport.fuzz.soak import ALLOWED, Sample

HostArray = npt.NDArray[Any]

KINDS = ((64, 64, 64), (33, 17, 65), (64, 64, 8192), (256, 256, 256), (96, 80, 4096), (1, 512, 512), (7, 1, 900))
"""m, n, k: plans with scratch memory and without, and of one row and one column."""

RING = 64
"""Results of one thread that are judged together, so that a call is followed by others at once."""

CYCLES = 3
"""In which everything is compiled, and pools fill up, before anything is judged."""

SAMPLES = 10


class Arrays(ABC):
    """Arrays of one library on a device."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend

    @abstractmethod
    def array(self, host: HostArray) -> Any:
        """A host array on the device."""

    def results(self, shape: tuple[int, int]) -> Sequence[Any]:
        """RING arrays that are judged together, full of NaN."""
        return [self.array(np.full(shape, np.nan, np.float32)) for _ in range(RING)]

    @abstractmethod
    def streams(self, count: int) -> Sequence[Any]:
        """New streams or queues."""

    @abstractmethod
    def multiply(self, a: Any, b: Any, out: Any, stream: Any) -> None:
        """A product, enqueued on a stream."""

    @abstractmethod
    def wrong(self, results: Any, expected: Any, stream: Any) -> int:
        """How many of several results differ, once they are there; they are full of NaN after that."""

    @abstractmethod
    def to_host(self, array: Any) -> HostArray:
        """Its numbers, once they are there."""

    @abstractmethod
    def wait(self) -> None:
        """For all that is enqueued."""

    def device_bytes(self) -> int:
        """Of the device's memory that are in use; 0 where nobody tells."""
        return 0


class Own(Arrays):
    """gemmport's own."""

    def array(self, host: HostArray) -> Any:
        return self.backend.asarray(host)

    def streams(self, count: int) -> Sequence[Any]:
        return [self.backend.new_queue() for _ in range(count)]

    def multiply(self, a: Any, b: Any, out: Any, stream: Any) -> None:
        gp.gemm(a, b, out=out, queue=stream)

    def wrong(self, results: Any, expected: Any, stream: Any) -> int:
        right = expected.get()
        found = sum(not np.array_equal(result.get(), right) for result in results)
        for result in results:
            result.fill(np.nan)
        return found

    def to_host(self, array: Any) -> HostArray:
        host: HostArray = array.get()
        return host

    def wait(self) -> None:
        self.backend.synchronize()


class Torch(Arrays):
    """PyTorch's, on its current stream."""

    def __init__(self, backend: Backend) -> None:
        import torch  # noqa: PLC0415 - only where it is asked for

        super().__init__(backend)
        self.torch, self.device = torch, torch.device("cuda", backend.device.index[1])

    def array(self, host: HostArray) -> Any:
        return self.torch.from_numpy(host).to(self.device)

    def streams(self, count: int) -> Sequence[Any]:
        self.torch.cuda.synchronize(self.device)  # the operands are there
        return [self.torch.cuda.Stream(self.device) for _ in range(count)]

    def _on(self, stream: Any) -> AbstractContextManager[object]:
        return nullcontext() if stream is None else self.torch.cuda.stream(stream)

    def multiply(self, a: Any, b: Any, out: Any, stream: Any) -> None:
        with self._on(stream):
            gp.matmul(a, b, out=out)

    def results(self, shape: tuple[int, int]) -> Any:
        return self.array(np.full((RING, *shape), np.nan, np.float32))

    def wrong(self, results: Any, expected: Any, stream: Any) -> int:
        with self._on(stream):
            found = results.ne(expected).flatten(1).any(1).sum()
            results.fill_(float("nan"))
            return int(found)

    def to_host(self, array: Any) -> HostArray:
        host: HostArray = array.cpu().numpy()
        return host

    def wait(self) -> None:
        self.torch.cuda.synchronize(self.device)

    def device_bytes(self) -> int:
        free, total = self.torch.cuda.mem_get_info(self.device)
        return int(total - free)


ARRAYS: dict[str, type[Arrays]] = {"device": Own, "torch": Torch}


def whole_numbers(rng: np.random.Generator, *shape: int) -> HostArray:
    """Whose products, and sums of 8192 of them, are exact in float32."""
    return rng.integers(-3, 4, shape).astype(np.float32)


class Worker(threading.Thread):
    """A thread that multiplies on all streams, in an order of its own, and judges every result.

    Attributes:
        wrong: of its results. error: what ended it.
    """

    def __init__(self, arrays: Arrays, streams: Sequence[Any], products: int, seed: int) -> None:
        super().__init__()
        self.arrays, self.streams, self.products, self.rng = arrays, streams, products, np.random.default_rng(seed)
        self.wrong, self.error = 0, ""
        self.given = [self._operands(*kind) for kind in KINDS]

    def _operands(self, m: int, n: int, k: int) -> tuple[Any, ...]:
        a, b = whole_numbers(self.rng, m, k), whole_numbers(self.rng, k, n)
        results = self.arrays.results((m, n))
        return (*map(self.arrays.array, (a, b, a @ b)), results, list(results))

    def run(self) -> None:
        try:
            for _ in range(self.products // RING):
                a, b, expected, results, each = self.given[self.rng.integers(len(KINDS))]
                stream = self.streams[self.rng.integers(len(self.streams))]
                for out in each:
                    self.arrays.multiply(a, b, out, stream)
                self.wrong += self.arrays.wrong(results, expected, stream)
        except Exception as error:  # noqa: BLE001 - whatever it is, the others go on, and it is told
            self.error = f"{type(error).__name__}: {error}"


def of_device(backend: str | None, device: str | None, arrays: str) -> Arrays:
    """Arrays on the device that the command line names."""
    return ARRAYS[arrays](get_backend(device=select_device(device, backend)))


_place = (
    click.option("--backend", help="As in gemmport run."),
    click.option("--device", metavar="PLATFORM[:DEVICE]", help="As in gemmport run."),
    click.option("--arrays", type=click.Choice([*ARRAYS]), default="device", show_default=True),
    click.option(
        "--output", type=click.Path(path_type=Path), help="Write JSON to this file, and not to standard output."
    ),
)


def placed(command: Any) -> Any:
    """Adds the options that say where."""
    for option in reversed(_place):
        command = option(command)
    return command


@click.group()
def main() -> None:
    """Prepared calls in great numbers."""


@main.command()
@placed
@click.option("--threads", default=8, show_default=True)
@click.option("--streams", default=2, show_default=True, help="That all threads share.")
@click.option("--products", default=100_000, show_default=True, help="Of each thread.")
def threads(
    backend: str | None, device: str | None, arrays: str, output: Path | None, threads: int, streams: int, products: int
) -> None:
    """Threads that multiply on the same streams, with scratch memory and without."""
    given = of_device(backend, device, arrays)
    workers = [Worker(given, [], products, seed) for seed in range(threads)]
    shared = given.streams(streams)
    start = time.perf_counter()
    for worker in workers:
        worker.streams = shared
        worker.start()
    for worker in workers:
        worker.join()
    seconds = time.perf_counter() - start
    wrong, errors = sum(worker.wrong for worker in workers), [worker.error for worker in workers if worker.error]
    count = threads * (products // RING) * RING
    click.echo(
        f"{count:,} products in {seconds:.0f} s by {threads} threads on {streams} streams: {wrong} wrong", err=True
    )
    document.write(
        output, [given.backend], arrays=arrays, kinds=KINDS, threads=threads, streams=streams, products=count,
        seconds=round(seconds, 1), wrong=wrong, errors=errors,
    )  # fmt: skip
    sys.exit(bool(wrong or errors))


@main.command()
@placed
@click.option("--kinds", default=1000, show_default=True, help="Of products, by their sizes.")
@click.option("--calls", default=1_000_000, show_default=True)
@click.option("--seed", default=0, show_default=True)
def kinds(
    backend: str | None, device: str | None, arrays: str, output: Path | None, kinds: int, calls: int, seed: int
) -> None:
    """Calls of many kinds, and what the process takes meanwhile."""
    given, rng = of_device(backend, device, arrays), np.random.default_rng(seed)
    shapes: dict[tuple[int, ...], None] = {}
    while len(shapes) < kinds:
        shapes[tuple(int(x) for x in rng.integers(1, 129, 3))] = None
    products, wrong = [], 0
    for m, n, k in shapes:
        a, b = whole_numbers(rng, m, k), whole_numbers(rng, k, n)
        x, y, out = map(given.array, (a, b, np.full((m, n), np.nan, np.float32)))
        given.multiply(x, y, out, None)
        wrong += not np.array_equal(given.to_host(out), a @ b)
        products.append((x, y, out))
    turns = itertools.cycle(products)
    for x, y, out in itertools.islice(turns, CYCLES * kinds):
        given.multiply(x, y, out, None)
    start, samples = time.perf_counter(), []
    for made in range(0, calls + 1, max(calls // SAMPLES, 1)):
        given.wait()
        sample = Sample.now(time.perf_counter() - start, made)
        samples.append({**asdict(sample), "device_bytes": given.device_bytes()})
        for x, y, out in itertools.islice(turns, max(calls // SAMPLES, 1) if made < calls else 0):
            given.multiply(x, y, out, None)
    grown = {
        name: samples[-1][name] - samples[0][name]
        for name in (*ALLOWED, "device_bytes")
        if samples[-1][name] > samples[0][name] + max(ALLOWED[name][0] if name in ALLOWED else 0, 0)
    }
    seconds = samples[-1]["seconds"]
    click.echo(
        f"{calls:,} calls of {kinds} kinds in {seconds:.0f} s: {wrong} wrong; grown: {grown or 'nothing'}", err=True
    )
    document.write(
        output, [given.backend], arrays=arrays, kinds=kinds, calls=calls, wrong=wrong, samples=samples, grown=grown,
        us_per_call=round(seconds / calls * 1e6, 2),
    )  # fmt: skip
    sys.exit(bool(wrong or grown))


if __name__ == "__main__":
    main()
