"""Copies between the host's arrays and a device's memory: by the runtime itself, or, of large ones, by way of pinned blocks
(`_staging`); block by block where the memory is in several allocations.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from gemmport.backends import _staging
from gemmport.backends._staging import HostArray
from gemmport.backends.segments import SegmentedMemory, as_bytes
from gemmport.core.errors import ArrayError
from gemmport.core.layout import strided
from gemmport.runtime import copying

if TYPE_CHECKING:
    from gemmport.backends.base import Backend
    from gemmport.backends.objects import Memory

_BYTE, _PAGEABLE = np.dtype(np.uint8), np.empty(1, np.uint8)
"""Of what bytes are, and memory as NumPy makes it."""


def upload(
    backend: Backend, memory: Memory, data: HostArray, offset: int, queue: Any, dtype: np.dtype[Any] | None
) -> None:  # fmt: skip
    """`Backend.upload`."""
    staged: tuple[HostArray, np.dtype[Any]] | None = None
    if dtype is not None and (data.dtype != dtype or not data.flags.c_contiguous):
        if _stages(backend, data.size * dtype.itemsize, _PAGEABLE, queue) and _staging.splits(data, dtype):
            staged = data, dtype
        else:
            with np.errstate(all="ignore"):
                data = np.ascontiguousarray(data, dtype)
    if staged is None and _stages(backend, data.nbytes, data, queue):
        staged = as_bytes(data), _BYTE
    with backend.ordered(queue, writes=[memory]):
        if staged is not None:
            begin = partial(_begun, backend._begin_upload, memory, offset, queue)
            backend._staging.upload(*staged, begin, backend.host_buffer)
        elif not isinstance(memory, SegmentedMemory):
            backend._upload(memory, data, offset, queue)
        else:
            for block, start, part in memory.pieces(offset, data.nbytes):
                backend._upload(block, as_bytes(data)[part], start, queue)


def download(backend: Backend, memory: Memory, out: HostArray, offset: int, queue: Any) -> None:
    """`Backend.download`."""
    if not out.flags.writeable:  # which C would not see
        raise ArrayError(f"out of shape {out.shape} is read-only: use another array")
    with backend.ordered(queue, reads=[memory]):
        if _stages(backend, out.nbytes, out, queue):
            begin = partial(_begun, backend._begin_download, memory, offset, queue)
            backend._staging.download(as_bytes(out), begin, backend.host_buffer)
        elif not isinstance(memory, SegmentedMemory):
            backend._download(memory, out, offset, queue)
        else:
            for block, start, part in memory.pieces(offset, out.nbytes):
                backend._download(block, as_bytes(out)[part], start, queue)


def _stages(backend: Backend, nbytes: int, data: HostArray, queue: Any) -> bool:
    """Whether a copy of so many bytes passes through pinned blocks.

    Args:
        data: contiguous, in the host's memory that is read or written.
    """
    if nbytes < _staging.LEAST or copying.threads() < 2:
        return False
    return backend._is_pageable(data) and not backend.is_captured(backend.as_queue(queue))


def _begun(
    begin: Callable[[Memory, HostArray, int, Any], _staging.Wait], memory: Memory, offset: int, queue: Any, data: HostArray,
    start: int,
) -> _staging.Wait:  # fmt: skip
    """Enqueues a copy between the host's memory and a memory, there from `offset + start` on.

    Args:
        begin: `Backend._begin_upload` or `_begin_download`.
    """
    if not isinstance(memory, SegmentedMemory):
        return begin(memory, data, offset + start, queue)
    pieces = memory.pieces(offset + start, data.nbytes)
    waits = [begin(block, data[part], first, queue) for block, first, part in pieces]
    return lambda: [wait() for wait in waits]


def in_one_piece(data: HostArray) -> HostArray | None:
    """The elements of an array, and what lies between them, as one contiguous array over the same memory; None where that is
    not possible.
    """
    kind, size = data.dtype, data.itemsize
    if not data.size or not data.flags.aligned or not kind.isnative:
        return None
    # NumPy aligns a complex number to its parts, kernels to its size.
    if kind.alignment < size and data.__array_interface__["data"][0] % size:
        return None
    if not data.flags.forc:
        if any(step < 0 or step % size for step in data.strides):
            return None
        reach = sum((extent - 1) * step for extent, step in zip(data.shape, data.strides, strict=True)) // size + 1
        data = strided(data, (reach,), (size,))
    return data
