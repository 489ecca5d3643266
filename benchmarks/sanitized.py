"""Products on the way of a call, for NVIDIA's compute-sanitizer. Each must be exact.

    compute-sanitizer --tool memcheck python benchmarks/sanitized.py

PyTorch's tensors, gemmport's own, CuPy's and NumPy's arrays; with a result and without; on another stream; captured in graphs,
with scratch memory of PyTorch's and of gemmport's.
"""

from __future__ import annotations

from typing import Any

import click
import numpy as np
import torch

import gemmport as gp

SIZES = (
    (64, 64, 64), (64, 64, 8192), (300, 300, 300), (1280, 1280, 1280), (61, 61, 4733), (1, 700, 512), (250, 250, 62),
)  # fmt: skip
"""m, n and k: one group, parts along k, tiles that are cut off, `packed`, odd rows, a vector, few terms."""


def numbers(*shape: int) -> torch.Tensor:
    """Small whole numbers, whose products are exact."""
    return torch.randint(-3, 4, shape, device="cuda").float()


def check(found: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> None:
    """Raises AssertionError where a product is not exact."""
    torch.cuda.synchronize()
    if not torch.equal(found.double(), x.double() @ y.double()):
        raise AssertionError(f"the product of {tuple(x.shape)} and {tuple(y.shape)} is wrong")


def captured(x: torch.Tensor, y: torch.Tensor, out: torch.Tensor, stream: torch.cuda.Stream, **given: Any) -> None:
    """A product in a graph, which is replayed once."""
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        gp.gemm(x, y, out=out, **given)
    out.zero_()
    graph.replay()
    check(out, x, y)
    graph.reset()


@click.command()
def main() -> None:
    """Multiplies all."""
    import cupy  # noqa: PLC0415 - where there is PyTorch alone, this file can be read

    backend = gp.get_backend("cuda")
    for m, n, k in SIZES:
        x, y, out = numbers(m, k), numbers(k, n), torch.empty(m, n, device="cuda")
        for _ in range(3):
            gp.matmul(x, y, out=out)
        check(out, x, y)
        check(gp.matmul(x, y), x, y)
        stream = torch.cuda.Stream()
        torch.cuda.synchronize()
        for _ in range(2):
            elsewhere = gp.gemm(x, y, queue=stream)
        check(elsewhere, x, y)
        with torch.cuda.stream(stream):
            gp.matmul(x, y, out=out)
        captured(x, y, out, stream)
        captured(x, y, out, stream, queue=stream)
        backend.release_workspaces()
        left, right = x.cpu().numpy(), y.cpu().numpy()
        expected = left.astype(np.float64) @ right
        for _ in range(2):
            on_host = gp.matmul(left, right, device=backend.device)
            own = backend.asarray(left) @ backend.asarray(right)
            of_cupy = gp.matmul(cupy.asarray(left), cupy.asarray(right))
            for found in (on_host, own.get(), of_cupy.get()):
                np.testing.assert_array_equal(found, expected)
    click.echo("all exact")


if __name__ == "__main__":
    main()
