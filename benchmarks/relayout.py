"""How fast the pass `relayout` lays operands out anew by each of its tiles, beside other passes and a copy of as many bytes.

    python benchmarks/relayout.py --backend cuda --output relayout.json

Each is compared with NumPy, bit for bit, and then timed by device events, in turn with the others; sources and targets take
turns, and are PAST_CACHES bytes in all. Percentages are of the copy's speed. Takes two minutes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import document
import numpy as np
import numpy.typing as npt

from gemmport.backends.base import Backend
from gemmport.backends.objects import Call, Memory
from gemmport.bench.digest import launch_digest
from gemmport.bench.passes import COPY
from gemmport.bench.timing import Contestant, measure
from gemmport.checking.reference import rounded
from gemmport.contracts.kernel import Parameters, Steps, ceil_div
from gemmport.core.dtypes import DType, as_dtype
from gemmport.core.errors import CompileError, LaunchError, ParameterError
from gemmport.core.plan import Launch
from gemmport.core.precision import FORMATS, FULL
from gemmport.core.problem import GemmProblem, Layout
from gemmport.execution.executor import prepare_launch
from gemmport.execution.selection import get_backend
from gemmport.kernels import convert, relayout, transpose
from gemmport.kernels.transpose import Matrices

PAST_CACHES = 2**28
"""Bytes of all sources and targets: five times the largest cache of Hopper's."""

POISON = 0xA5

BY_ELEMENTS = "transpose"
"""The pass that moves one element at a time. Beside it stands `convert` where rounded rows stay as they are."""

CASES = (
    "int8 4096 T", "int8 8192 T", "int8 4095 T", "float32 4096 T tf32", "float32 8192 T tf32", "float32 4095 T tf32",
    "float16 2047", "float16 4095", "float16 8191", "int8 4095", "float32 4096 tf32",
)  # fmt: skip
"""Type, rows and columns, T where rows become columns, and to what is rounded."""

TILES = {
    "T": ("1 256 4", "1 128 8", "1 256 8", "2 256 4", "2 256 8", "2 512 4", "2 128 8", "1 512 4"),
    "": ("4 256 4", "4 128 4", "2 128 4", "8 256 4", "4 256 2", "4 256 8", "4 128 8", "4 512 2"),
}
"""ALONG, ITEMS and EACH; those that a type has not are left out."""


@dataclass(frozen=True)
class Case:
    """A square matrix that is laid out anew, its rows padded to whole lines of 128 bytes."""

    dtype: DType
    size: int
    turned: bool
    precision: str

    @classmethod
    def of(cls, text: str) -> Case:
        """From the words of CASES."""
        name, size, *more = text.split()
        rounds = [word for word in more if word != "T"]
        return cls(as_dtype(name), int(size), "T" in more, rounds[0] if rounds else FULL)

    @property
    def ld(self) -> int:
        """Elements between rows of the target."""
        line = relayout.LINE_BYTES // self.dtype.itemsize
        return ceil_div(self.size, line) * line

    @property
    def source_bytes(self) -> int:
        return self.size**2 * self.dtype.itemsize

    @property
    def target_bytes(self) -> int:
        return self.size * self.ld * self.dtype.itemsize

    def launch(self, own: transpose.Transpose, parameters: Parameters) -> Launch:
        """The launch from "source" to "target"."""
        size, ld = self.size, self.ld
        return own.launch(
            Matrices("source", Layout(size, size**2)),
            Matrices("target", Layout(ld, size * ld)),
            size,
            size,
            self.dtype,
            own.complete({**parameters, "TRANSPOSE": int(self.turned)}),
            padded=(ld, size) if self.turned else (size, ld),
            precision=self.precision,
        )

    def launches(self) -> Iterator[tuple[str, Launch]]:
        """Of the other passes, and of all tiles that the type has, by name."""
        yield BY_ELEMENTS, self.launch(transpose.PASS, {})
        if self.precision != FULL and not self.turned and self.ld == self.size:
            problem = GemmProblem.create(self.size, 1, self.size, precision=self.precision)
            (launch,) = convert.PASS.before(problem, Steps([]), convert.ITEMS).launches
            yield convert.PASS.name, launch
        for tile in TILES["T" if self.turned else ""]:
            along, items, each = map(int, tile.split())
            try:
                yield tile, self.launch(relayout.PASS, {"ALONG": along, "ITEMS": items, "EACH": each})
            except ParameterError:
                continue

    def random(self) -> npt.NDArray[Any]:
        """Bits at random; floats that are rounded, of N(0, 1)."""
        rng = np.random.default_rng(self.size)
        shape = (self.size, self.size)
        if self.precision != FULL:
            return rng.standard_normal(shape, np.float32)
        return np.frombuffer(rng.bytes(self.source_bytes), f"u{self.dtype.itemsize}").reshape(shape)

    def wanted(self, source: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """What the target must be."""
        moved = source if self.precision == FULL else rounded(source, FORMATS[self.precision])
        padded = np.zeros((self.size, self.ld), source.dtype)
        padded[:, : self.size] = moved.T if self.turned else moved
        return padded


def fault(backend: Backend, call: Call, target: Memory, wanted: npt.NDArray[Any]) -> str:
    """What is wrong with the target of a call; empty where nothing is."""
    backend.fill(target, POISON)
    backend.launch(call)
    got = np.empty(target.nbytes, np.uint8)
    backend.download(target, got)
    bad = np.count_nonzero(got[: wanted.nbytes] != wanted.reshape(-1).view(np.uint8))
    beyond = np.count_nonzero(got[wanted.nbytes :] != POISON)
    return f"{bad:,} bytes are wrong, {beyond:,} beyond the end" if bad or beyond else ""


def run(case: Case, backend: Backend, repeat: int) -> Iterator[dict[str, Any]]:
    """Verifies and times one case: a result for the copy, the other passes, and each tile."""
    source, guard = case.random(), 4096
    turns = max(2, ceil_div(PAST_CACHES, case.source_bytes + case.target_bytes))
    sources = [backend.allocate(case.source_bytes) for _ in range(turns)]
    targets = [backend.allocate(case.target_bytes + guard) for _ in range(turns)]
    column = backend.allocate(case.size * case.dtype.itemsize)
    try:
        backend.upload(sources[0], source)
        for other in sources[1:]:
            backend.copy(sources[0], other, case.source_bytes)
        wanted = case.wanted(source)
        contestants, digests, faults = [], {}, {}
        pairs = itertools.cycle(list(zip(sources, targets, strict=True)))
        contestants.append(Contestant(COPY, lambda: backend.copy(*next(pairs), case.source_bytes)))
        for name, launch in case.launches():
            digests[name] = launch_digest(launch, backend.device)
            try:
                calls = [
                    prepare_launch(launch, backend, _named(one, other, column))
                    for one, other in zip(sources, targets, strict=True)
                ]
                told = fault(backend, calls[0], targets[0], wanted)
            except (CompileError, LaunchError) as error:
                told = str(error).splitlines()[0]
            if told:
                faults[name] = told
                continue
            contestants.append(Contestant(name, _in_turn(backend, calls)))
        timings = measure(backend, contestants, repeat=repeat)
    finally:
        backend.synchronize()
        for memory in (*sources, *targets, column):
            memory.release()
    speed = {name: _moved(case, name) / timing.median for name, timing in timings.items()}
    for name, timing in timings.items():
        yield {
            **_told(case, name),
            "digest": digests.get(name),
            "seconds": timing.median,
            "spread": timing.spread,
            "tb_per_second": speed[name] * 1e-12,
            "percent": 100 * speed[name] / speed[COPY],
        }
    for name, told in faults.items():
        yield {**_told(case, name), "digest": digests[name], "fault": told}


def _in_turn(backend: Backend, calls: Sequence[Call]) -> Callable[[], None]:
    """Enqueues one call after the other, over and over."""
    turns = itertools.cycle(calls)
    return lambda: backend.launch(next(turns))


def _named(source: Memory, target: Memory, column: Memory) -> dict[str, Memory]:
    """By the names of buffers, of `convert` too, which has a matrix and a column to convert."""
    return {"source": source, "target": target, "a": source, "b": source, "a_converted": target, "b_converted": column}


def _moved(case: Case, name: str) -> int:
    """Bytes read and written."""
    return 2 * case.source_bytes if name == COPY else case.source_bytes + case.target_bytes


def _told(case: Case, name: str) -> dict[str, Any]:
    return {
        "dtype": case.dtype.name, "size": case.size, "transposed": case.turned, "precision": case.precision, "name": name,
    }  # fmt: skip


@click.command()
@click.option("--backend", default=None, help="As in gemmport run.")
@click.option("--device", default=None, metavar="PLATFORM[:DEVICE]", help="As in gemmport run.")
@click.option("--cases", default=",".join(CASES), show_default=True, help="Separated by commas.")
@click.option("--repeat", default=10, show_default=True, help="Samples of each.")
@click.option("--output", type=click.Path(path_type=Path), help="Write JSON to this file.")
def main(backend: str | None, device: str | None, cases: str, repeat: int, output: Path | None) -> None:
    """Prints a table of each case, the fastest first."""
    opened = get_backend(backend, device=device)
    wrong = False
    with document.kept(output, [opened]) as kept:
        for text in cases.split(","):
            found = list(run(Case.of(text), opened, repeat))
            kept.extend(found)
            click.echo(f"\n{text} on {opened.device.label}: ALONG, ITEMS and EACH of relayout")
            for each in sorted(found, key=lambda one: one.get("seconds", 0.0)):
                if "fault" in each:
                    wrong = True
                    click.echo(f"  {each['name']:20} WRONG: {each['fault']}")
                    continue
                click.echo(
                    f"  {each['name']:20}{1e6 * each['seconds']:9.1f} µs ±{100 * each['spread']:.1f} %"
                    f"{each['tb_per_second']:7.2f} TB/s{each['percent']:6.0f} %"
                )
    if wrong:
        raise click.ClickException("some results are wrong")


if __name__ == "__main__":
    main()
