"""What a call takes with NumPy's arrays that lie in other ways than one row after another, beside NumPy's own product.

    python benchmarks/host_operands.py --device intel --size 64 --output host-operands.json

Each call is timed alone, after some that are not, in turns with NumPy's. Takes some seconds.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click
import document
import numpy as np

import gemmport as gp
from gemmport.execution.selection import get_backend

Operands = tuple[Any, Any, Any]
"""A, B, and the result, or None."""

TURNS, CALLS, BEFORE = 5, 40, 5

CASES: Mapping[str, Callable[[np.ndarray, np.ndarray], Operands]] = {
    "rows one after another": lambda a, b: (a, b, None),
    "columns with steps": lambda a, b: (np.repeat(a, 2, axis=1)[:, ::2], b, None),
    "columns backwards": lambda a, b: (a[:, ::-1], b, None),
    "float64 and float32": lambda a, b: (a.astype(np.float64), b, None),
    "the other byte order": lambda a, b: (a.astype(a.dtype.newbyteorder()), b, None),
    "a result in float64": lambda a, b: (a, b, np.empty(a.shape, np.float64)),
    "a result with steps": lambda a, b: (a, b, np.empty((*a.shape, 2), a.dtype)[..., 0]),
    "vectors": lambda a, b: (a[0], np.ascontiguousarray(b[:, 0]), None),
    "lists": lambda a, b: (a.tolist(), b.tolist(), None),
    "no rows": lambda a, b: (a[:0], b, None),
}


def seconds_of(product: Callable[..., Any], operands: Operands) -> float:
    """The median of some calls."""
    a, b, out = operands
    taken = []
    for number in range(BEFORE + CALLS):
        begun = time.perf_counter()
        product(a, b, out=out)
        if number >= BEFORE:
            taken.append(time.perf_counter() - begun)
    return statistics.median(taken)


@click.command()
@click.option("--backend", default="opencl", show_default=True)
@click.option("--device", default="intel", show_default=True)
@click.option("--size", type=click.IntRange(1), default=64, show_default=True, help="Rows, columns and terms.")
@click.option("--output", type=click.Path(path_type=Path), default=None)
def main(backend: str, device: str, size: int, output: Path | None) -> None:
    """Times calls with NumPy's arrays."""
    chosen = get_backend(backend, device)
    random = np.random.default_rng(0)
    a, b = (random.uniform(-1, 1, (size, size)).astype(np.float32) for _ in range(2))

    def product(a: Any, b: Any, out: Any) -> Any:
        return gp.matmul(a, b, out=out, device=chosen.device)

    results = []
    for name, case in CASES.items():
        operands = case(a, b)
        expected, found = np.matmul(operands[0], operands[1]), product(*operands)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
        turns = [(seconds_of(product, operands), seconds_of(np.matmul, operands)) for _ in range(TURNS)]
        own, numpys = (statistics.median(taken) for taken in zip(*turns, strict=True))
        click.echo(f"{name:24}{1e6 * own:9.1f} µs   NumPy {1e6 * numpys:9.1f} µs")
        results.append({"case": name, "size": size, "seconds": own, "numpy": numpys, "turns": turns})
    if output is not None:
        document.write(output, [chosen], results=results)


if __name__ == "__main__":
    main()
