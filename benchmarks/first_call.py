"""How long the first call of a new kind of product takes, with empty caches, on a device that is open.

    python benchmarks/first_call.py --backend cuda --device nvidia --output first-call.json

Each process has caches of its own, all empty, opens the device, makes operands there and multiplies two kinds of products, one
after the other: so each kind is once the first product of its process and once a later one. Told are the first call of the kind
until its result is there, the second one, and how long the programs that are made meanwhile took to settle. Results are
compared with NumPy's, bit for bit: operands are small whole numbers.
"""

from __future__ import annotations

import json
import statistics
import tempfile
from collections import defaultdict
from dataclasses import asdict, dataclass
from pathlib import Path

import click
import document
from startup import Caches, run_process

from gemmport.execution.selection import get_backend, select_device

KINDS = (
    (512, "N", "N", "float32"),
    (1000, "N", "N", "float32"),
    (2187, "N", "N", "float32"),
    (4096, "N", "T", "float32"),
    (1024, "N", "N", "float64"),
    (2048, "N", "N", "float16"),
)
"""m = n = k, op of A, op of B, type."""

PRODUCTS = """
import time; start = time.perf_counter()
import sys, json
import numpy as np
import gemmport as gp
backend = gp.get_backend(sys.argv[1], sys.argv[2])
told = {"open": time.perf_counter() - start, "right": True}
for place, (n, trans_a, trans_b, dtype) in enumerate(json.loads(sys.argv[3])):
    a = (np.arange(n * n) * 7 % 13 - 6).astype(dtype).reshape(n, n)
    b = (np.arange(n * n) * 5 % 7 - 3).astype(dtype).reshape(n, n)
    on = [backend.asarray(x) for x in (a, b)]
    out = backend.empty((n, n), dtype)
    x, y = (z.T if op == "T" else z for z, op in zip(on, (trans_a, trans_b)))
    for call in ("first", "second"):
        backend.synchronize()
        before = time.perf_counter()
        gp.matmul(x, y, out=out)
        backend.synchronize()
        told[f"{place} {call}"] = time.perf_counter() - before
    before = time.perf_counter()
    backend.settle_programs()
    told[f"{place} settled"] = time.perf_counter() - before
    gp.matmul(x, y, out=out)
    right = np.float64(a.T if trans_a == "T" else a) @ np.float64(b.T if trans_b == "T" else b)
    told["right"] &= bool(np.array_equal(out.get(), right.astype(dtype)))
print(json.dumps(told))
"""


@dataclass(frozen=True)
class FirstCall:
    """The first call of a kind.

    Attributes:
        place: "first" of its process, or "later".
        first, second: medians of the samples, in seconds: until the result of the first and of the second call is there.
        settled: median of the seconds from then until the better programs are loaded.
        samples: of `first`.
    """

    device: str
    n: int
    ops: str
    dtype: str
    place: str
    first: float
    second: float
    settled: float
    samples: tuple[float, ...]


def first_calls(backend: str, description: str, repeat: int) -> list[FirstCall]:
    """Of all kinds, each in both places.

    Raises:
        ClickException: a process failed, or a product was wrong.
    """
    device = select_device(description, backend)
    found: dict[tuple[int, str], list[dict[str, float]]] = defaultdict(list)
    with tempfile.TemporaryDirectory(prefix="gemmport-first-call-") as root:
        caches = Caches(Path(root))
        for _ in range(repeat):
            for at in range(len(KINDS)):
                pair = [at, (at + 1) % len(KINDS)]
                caches.empty(caches.ours, caches.theirs)
                arguments = [backend, device.selector, json.dumps([KINDS[kind] for kind in pair])]
                _, told = run_process(PRODUCTS, arguments, caches.environment())
                for number, (kind, place) in enumerate(zip(pair, ("first", "later"), strict=True)):
                    found[kind, place].append(
                        {name: told[f"{number} {name}"] for name in ("first", "second", "settled")}
                    )
    rows = []
    for (kind, place), samples in sorted(found.items()):
        n, trans_a, trans_b, dtype = KINDS[kind]
        first, second, settled = (
            round(statistics.median(sample[name] for sample in samples), 4) for name in ("first", "second", "settled")
        )
        all_first = tuple(round(sample["first"], 4) for sample in samples)
        rows.append(FirstCall(device.label, n, trans_a + trans_b, dtype, place, first, second, settled, all_first))
    return rows


@click.command()
@click.option("--backend", required=True)
@click.option("--device", required=True, metavar="PLATFORM[:DEVICE]", help="As in gemmport run.")
@click.option("--repeat", type=click.IntRange(1), default=3, show_default=True, help="Processes per kind.")
@click.option("--output", type=click.Path(path_type=Path), help="Write JSON to this file, and not to standard output.")
def main(backend: str, device: str, repeat: int, output: Path | None) -> None:
    """Measure first calls of new kinds of products."""
    opened = get_backend(backend, device)
    rows = first_calls(backend, device, repeat)
    for row in rows:
        calls = f"{row.first:.3f} s, second {row.second:.3f}, settled {row.settled:.2f}"
        click.echo(f"{row.dtype} {row.n} {row.ops}, {row.place}: {calls}", err=True)
    document.write(output, [opened], results=[asdict(row) for row in rows])


if __name__ == "__main__":
    main()
