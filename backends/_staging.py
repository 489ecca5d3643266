"""Large copies between a device and pageable memory of the host, by way of blocks of pinned memory.

NVIDIA's driver copies from and to pageable memory by one thread, at a tenth of what the link sends from pinned memory. Here
several threads together copy to a pinned block (`gemmport.runtime.copying`) while the block before is sent, or from one while
the next is received. Blocks stay with their device for the next copy.
"""

from __future__ import annotations

import logging
import math
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from gemmport.backends.segments import as_bytes
from gemmport.core.errors import DeviceMemoryError
from gemmport.runtime.copying import convert, copy_rows, copy_shared
from gemmport.runtime.kept import last

log = logging.getLogger(__name__)

LEAST = 2**22
"""Bytes of a copy that passes through pinned blocks; of smaller ones the driver's own copies cost less."""

BLOCK, LEAST_PART = 2**22, 2**20
"""Bytes of a pinned block, and of what passes through one at least, but for the last."""

RING = 4
"""Blocks of one copy."""

MOST_BLOCKS = 2 * RING
"""Of a device. Copies that find none go without."""

HostArray: TypeAlias = npt.NDArray[Any]

Bytes: TypeAlias = npt.NDArray[np.uint8]

Pin: TypeAlias = Callable[[int], HostArray]
"""Gives pinned memory of so many bytes."""

Wait: TypeAlias = Callable[[], object]

Begin: TypeAlias = Callable[[Bytes, int], Wait]
"""Enqueues a copy between memory of the host and the device, there from a byte on; what it gives waits for that."""


class Staging:
    """The pinned blocks of a device."""

    def __init__(self) -> None:
        self._idle: list[Bytes] = []
        self._count, self._most = 0, MOST_BLOCKS
        self._lock = threading.RLock()

    def upload(self, data: HostArray, dtype: np.dtype[Any], begin: Begin, pin: Pin) -> None:
        """Has elements of an array in pageable memory sent in their (C) order, and waits for it.

        Args:
            data: of `splits`. dtype: that they are converted to on their way.
        """
        size = _row_bytes(data, dtype)
        coming: deque[Wait] = deque()
        with self._ring(pin) as blocks:
            if not blocks:
                dense = np.empty(data.shape, dtype)
                convert(data, dense)
                begin(as_bytes(dense), 0)()  # which is there until that is done
                return
            for number, rows in enumerate(_parts(len(data), size)):
                if number >= len(blocks):
                    coming.popleft()()
                block = blocks[number % len(blocks)][: (rows.stop - rows.start) * size]
                _lay_out(data[rows], block, dtype)
                coming.append(begin(block, rows.start * size))
            for wait in coming:
                wait()

    def download(self, out: Bytes, begin: Begin, pin: Pin) -> None:
        """Has bytes of pageable memory filled, and waits for it."""
        coming: deque[tuple[Wait, Bytes, Bytes]] = deque()

        def land() -> None:
            wait, block, target = coming.popleft()
            wait()
            copy_shared(block, target)

        with self._ring(pin) as blocks:
            if not blocks:
                begin(out, 0)()
                return
            for number, part in enumerate(_parts(out.nbytes, 1)):
                if number >= len(blocks):
                    land()
                block = blocks[number % len(blocks)][: part.stop - part.start]
                coming.append((begin(block, part.start), block, out[part]))
            while coming:
                land()

    def release(self) -> bool:
        """Gives the blocks back that no copy is at; the next copy pins its own.

        Returns:
            Whether there were some.
        """
        with self._lock:
            idle, self._idle = self._idle, []
            self._count -= len(idle)
            self._most = MOST_BLOCKS
        return bool(idle)

    @contextmanager
    def _ring(self, pin: Pin) -> Iterator[Sequence[Bytes]]:
        """Blocks that no other copy has meanwhile: none where others have all, or none can be pinned.

        After an error something may still be on its way, and they are given up: to free pinned memory waits for the device.
        """
        blocks: list[Bytes] = []
        try:
            while len(blocks) < RING and (block := self._take(pin)) is not None:
                blocks.append(block)
            yield blocks
        except BaseException:
            with self._lock:
                self._count -= len(blocks)
            raise
        with self._lock:
            self._idle += blocks

    def _take(self, pin: Pin) -> Bytes | None:
        with self._lock:
            if (block := last(self._idle)) is not None:
                return block
            if self._count >= self._most:
                return None
            self._count += 1
        try:
            return pin(BLOCK)
        except DeviceMemoryError as error:
            with self._lock:
                self._count -= 1
                self._most = self._count
            log.info("copies pass through %d pinned blocks: %s", self._most, error)
            return None
        except BaseException:
            with self._lock:
                self._count -= 1
            raise


def splits(data: HostArray, dtype: np.dtype[Any]) -> bool:
    """Whether an array's rows, of the first dimension and converted to a type, have room in a block each."""
    return data.ndim > 0 and _row_bytes(data, dtype) <= BLOCK


def _row_bytes(data: HostArray, dtype: np.dtype[Any]) -> int:
    return math.prod(data.shape[1:]) * dtype.itemsize


def _parts(count: int, row_bytes: int) -> Iterator[slice]:
    """Rows that pass at a time, of so many."""
    size = min(max(count * row_bytes // RING, LEAST_PART), BLOCK)
    each = max(size // row_bytes, 1)
    return (slice(start, min(start + each, count)) for start in range(0, count, each))


def _lay_out(source: HostArray, block: Bytes, dtype: np.dtype[Any]) -> None:
    """Copies an array to a block of its size, converted to a type."""
    if source.dtype == dtype and source.flags.c_contiguous:
        copy_shared(as_bytes(source), block)
        return
    copy_rows(source, block.view(dtype).reshape(source.shape))
