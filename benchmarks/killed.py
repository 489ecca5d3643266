"""Kills a product with a checkpoint at random moments, has the same call go on, and counts what became of it.

    python benchmarks/killed.py --kills 30 --size 1500

Each run is a product of random whole numbers in memory maps. Its process is killed (SIGKILL) again and again, somewhere between
its start and its end, until it comes to its end; then the result is compared with NumPy's, element by element, and the journal
is searched for tiles that were written twice. Runs follow each other until there were enough kills. Prints the counts as JSON;
exits with 1 if a result is wrong, or a tile was computed twice.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

import gemmport as gp

EARLY = 0.2
"""Of kills, as many come before the product begins: while its process starts, or compares what is on record."""


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


def started(options: argparse.Namespace, folder: Path) -> subprocess.Popen[str]:
    command = [sys.executable, __file__, "--folder", str(folder), "--memory", options.memory]
    command += ["--device", options.device] if options.device else []
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def tiles(folder: Path) -> list[tuple[int, ...]]:
    """All tiles in the journal."""
    path = folder / "state" / "journal.jsonl"
    lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    return [tuple(line["tile"]) for line in map(json.loads, lines) if "tile" in line]


def run(options: argparse.Namespace, chance: random.Random, seconds: float, counts: Counter[str], kills: int) -> float:
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
                    counts["with some tiles finished"] += bool(tiles(folder))
                    continue
                if process.wait() != 0:
                    raise SystemExit("a process failed by itself")
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


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kills", type=int, default=30, help="default: 30")
    parser.add_argument("--size", type=int, default=1500, help="m, n and k; default: 1500")
    parser.add_argument("--memory", default="500kB", help="of the device; default: 500kB")
    parser.add_argument("--device", help="as of gemmport run")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.folder is not None:
        product(options.folder, options.memory, options.device)
        return 0
    counts: Counter[str] = Counter({"killed": 0, "right": 0, "computed_twice": 0})
    chance = random.Random(options.seed)
    seconds = run(options, chance, 0.0, counts, 0)
    while counts["killed"] < options.kills:
        # A few kills for each run: so that products come to their end in between.
        run(options, chance, seconds, counts, min(options.kills, counts["killed"] + chance.randint(1, 5)))
    sys.stdout.write(json.dumps(counts, indent=2) + "\n")
    return 0 if counts["right"] == counts["runs"] and not counts["computed_twice"] else 1


if __name__ == "__main__":
    raise SystemExit(main())
