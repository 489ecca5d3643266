"""Kills a product with a checkpoint at random moments, has the same call go on, and counts what became of it.

    python benchmarks/killed.py --kills 30 --size 1500 --output FILE

Each run is a product of random whole numbers in memory maps. Its process is killed (SIGKILL) again and again, somewhere between
its start and its end, until it comes to its end; then the result is compared with NumPy's, element by element, and the journal
is searched for tiles that were written twice. Runs follow each other until there were enough kills. Writes the counts as JSON;
exits with 1 if a result is wrong, or a tile was computed twice.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import document
import numpy as np

import gemmport as gp
from gemmport.execution.selection import get_backend

EARLY = 0.2
"""Of kills, as many come before the product begins: while its process starts, or compares what is on record."""


@dataclass(frozen=True)
class Options:
    """Of each product: `size` is m, n and k; `memory` and `device` are as of `gemmport run`."""

    size: int
    memory: str
    device: str | None


def product(folder: Path, memory: str, device: str | None) -> None:
    """The call, in a process of its own. It says when it begins."""
    a, b = (np.load(folder / f"{name}.npy", mmap_mode="r") for name in "ab")
    begun = False

    def tell(_: Any) -> None:
        nonlocal begun
        if not begun:
            sys.stdout.write("begun\n")
            sys.stdout.flush()
        begun = True

    gp.matmul(a, b, device=device, device_memory=memory, checkpoint=folder / "state", progress=tell)


def started(options: Options, folder: Path) -> subprocess.Popen[str]:
    command = [sys.executable, __file__, "--folder", str(folder), "--memory", options.memory]
    command += ["--device", options.device] if options.device else []
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def tiles(folder: Path) -> list[tuple[int, ...]]:
    """All tiles in the journal."""
    path = folder / "state" / "journal.jsonl"
    lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    return [tuple(line["tile"]) for line in map(json.loads, lines) if "tile" in line]


def run(options: Options, chance: random.Random, seconds: float, counts: Counter[str], kills: int) -> float:
    """One product, killed again and again; gives how long its last process was at work."""
    rng = np.random.default_rng(chance.randrange(2**32))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        a, b = (rng.integers(-3, 4, (options.size, options.size)).astype(np.float32) for _ in range(2))
        np.save(folder / "a.npy", a)
        np.save(folder / "b.npy", b)
        while True:
            process = started(options, folder)
            with process:
                begin = time.monotonic()
                if counts["killed"] < kills and chance.random() < EARLY:
                    time.sleep(chance.uniform(0, 2))
                else:
                    process.stdout.readline()  # type: ignore[union-attr]
                    begin = time.monotonic()
                    if counts["killed"] < kills:
                        time.sleep(chance.uniform(0, seconds))
                if counts["killed"] < kills and process.poll() is None:
                    process.kill()
                    process.wait()
                    counts["killed"] += 1
                    counts["with_tiles_finished"] += bool(tiles(folder))
                    continue
                if process.wait() != 0:
                    raise click.ClickException(
                        "a process must end well where it is not killed; got one that failed by itself"
                    )
                seconds = time.monotonic() - begin
            break
        written = tiles(folder)
        counts["runs"] += 1
        counts["tiles"] += len(set(written))
        counts["computed_twice"] += len(written) - len(set(written))
        counts["right"] += bool(
            np.array_equal(np.load(folder / "state" / "result.npy"), a.astype(float) @ b.astype(float))
        )
    return seconds


@click.command()
@click.option("--kills", default=30, show_default=True)
@click.option("--size", default=1500, show_default=True, help="m, n and k.")
@click.option("--memory", default="500kB", show_default=True, help="Of the device.")
@click.option("--device", help="PLATFORM[:DEVICE]. Default: the best.")
@click.option("--seed", default=0, show_default=True)
@click.option("--output", type=click.Path(path_type=Path), help="Write JSON to this file, and not to standard output.")
@click.option("--folder", type=click.Path(path_type=Path), hidden=True)
def main(
    kills: int, size: int, memory: str, device: str | None, seed: int, output: Path | None, folder: Path | None
) -> None:  # fmt: skip
    """Kills a product with a checkpoint at random moments, has the same call go on, and counts what became of it."""
    if folder is not None:
        product(folder, memory, device)
        return
    options, chance = Options(size, memory, device), random.Random(seed)
    counts = Counter(dict.fromkeys(("killed", "with_tiles_finished", "runs", "right", "tiles", "computed_twice"), 0))
    seconds = run(options, chance, 0.0, counts, 0)
    while counts["killed"] < kills:
        # A few kills for each run: so that products come to their end in between.
        run(options, chance, seconds, counts, min(kills, counts["killed"] + chance.randint(1, 5)))
    document.write(output, [get_backend(device=device)], size=size, memory=memory, seed=seed, **counts)
    sys.exit(counts["right"] < counts["runs"] or bool(counts["computed_twice"]))


if __name__ == "__main__":
    main()
