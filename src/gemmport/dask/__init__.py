"""gemmport on a cluster: products of Dask arrays, whose tasks are products of chunks.

    import gemmport.dask

    d = gemmport.dask.matmul(a, b)  # a Dask array; nothing is computed yet
    d = gemmport.dask.tensordot(a, b, axes=2)
    chunks_a, chunks_b = gemmport.dask.chunks(a.shape, b.shape, a.dtype)  # that suit a device

`gemmport.matmul` of Dask arrays is this `matmul`. docs/scale.md leads to a cluster.
"""

from contextlib import suppress
from importlib import import_module
from typing import Any

from gemmport.core.errors import LibraryUnavailableError

try:
    import dask.array as _array  # noqa: F401  # whether it is there, before any module below imports it
except ImportError as error:
    raise LibraryUnavailableError(
        f"gemmport.dask needs Dask's arrays ({error}): pip install 'gemmport[dask]'"
    ) from error

from gemmport.dask.chunking import chunks
from gemmport.dask.functions import matmul, tensordot

with suppress(ImportError):  # without Dask's scheduler nothing travels
    import_module("gemmport.dask.travel")

TITLE = "Dask arrays"
"""What `gemmport.api.collections` calls what this room multiplies."""

__all__ = ["WorkerDevice", "chunks", "matmul", "tensordot"]


def __getattr__(name: str) -> Any:
    """`WorkerDevice`, which needs Dask's scheduler; Dask's arrays do without it."""
    if name == "WorkerDevice":
        from gemmport.dask.workers import WorkerDevice  # noqa: PLC0415  # see above

        return WorkerDevice
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
