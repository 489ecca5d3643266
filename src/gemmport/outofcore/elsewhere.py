"""Operands and results that lie on a device: blocks of them travel from there to another device, and back.

What travels has a queue of its own on the device where the array lies, so that it waits for no product there. It goes directly
between devices that a backend can copy between, else through the host. Each copy is awaited by who asks for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from gemmport.backends.array import DeviceArray, dense_strides
from gemmport.backends.base import Backend
from gemmport.backends.objects import Access, Event, Memory
from gemmport.core.layout import readable_in_place
from gemmport.execution.copies import copy_strided

BUFFER = 2**25
"""Bytes that travel at a time. With twice as many a link of 25 GB/s is as busy, as each takes more than a millisecond."""

_WIDEST = 16
"""Bytes of the widest type."""


class Elsewhere:
    """An array on a device, or a part of it, as one thread brings blocks of it to one device, or takes blocks there.

    Attributes:
        array: as it is used on the queue: what was enqueued to write it is waited for, there.
        is_local: whether it is on the very device that it is brought to, or taken from.
    """

    def __init__(self, array: DeviceArray, user: Backend, name: str, *, written: bool = False) -> None:
        """Of a device that uses the array.

        Args:
            name: of the operand. Each user has a queue for each, which is kept as long as the array's device is open.
            written: whether blocks are taken there; else they are brought from there.

        Raises:
            DeviceMemoryError: the array's device has no room for the buffer in which rows are packed.
        """
        backend = array.backend
        kept, key = backend.kept, ("queue of what travels", user.device, name)
        if key not in kept:
            kept[key] = backend.as_queue(backend.new_queue())
        queue = kept[key]
        self.is_local = backend is user
        row = max(array.shape[-2:], default=1) * _WIDEST
        self._owned = backend.allocate(0 if self.is_local else max(min(BUFFER, array.size * _WIDEST), row))
        written_to = [self._owned, *([array.memory] if written else [])]
        with backend.ordered(queue, reads=[] if written else [array.memory], writes=written_to):
            pass
        self._buffer = on_queue(self._owned, queue)
        self.array = replace(array, memory=on_queue(array.memory, queue))
        self.queue = queue

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes."""
        return self.array.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the elements."""
        return self.array.dtype

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return self.array.ndim

    def part(self, key: tuple[slice, ...]) -> Elsewhere:
        """The array between some bounds."""
        return self._of(self.array[key])

    def turned(self) -> Elsewhere:
        """The array with its last two dimensions exchanged."""
        return self._of(self.array.mT)

    def _of(self, array: DeviceArray) -> Elsewhere:
        found = copy(self)
        found.array = array
        return found

    @property
    def is_readable(self) -> bool:
        """Whether products on its device read it as it lies, row by row."""
        array = self.array
        found = readable_in_place(array.shape, array.strides, array.offset, base_alignment=array.memory.alignment)
        return found is not None and not found[1] and (array.shape[-1] <= 1 or array.strides[-1] == 1)

    def read(
        self, key: tuple[Any, ...], target: DeviceArray, staging: npt.NDArray[Any], queue: Any
    ) -> Iterator[int]:  # fmt: skip
        """Brings a block to the user's device, and waits for it; gives the bytes of each of its parts.

        Args:
            key: of a matrix. target: of the block's shape; its rows lie one after another.
            staging: bytes of the host's memory, for a row at least.
            queue: of the user's, on which the target is written.
        """
        source = self.array[key]
        for first, last in self._spans(source.shape, target.dtype, staging):
            part, place = source[first:last], target[first:last]
            if self.is_local:
                copy_strided(part, place, queue=queue)
                _await(place, queue)
            else:
                if not _is_dense(part) or part.dtype != target.dtype:
                    packed = DeviceArray.dense(part.backend, self._buffer, part.shape, target.dtype)
                    copy_strided(part, packed, queue=self.queue)
                    part = packed
                _travel(part, self.queue, place, queue, staging)
            yield place.nbytes

    def write(
        self, key: tuple[Any, ...], source: DeviceArray, staging: npt.NDArray[Any], queue: Any,
        wait_for: Sequence[Event] = (),
    ) -> Iterator[int]:  # fmt: skip
        """Takes a block from the user's device, and waits for it; as `read`.

        Args:
            wait_for: events of the user's device, after which the source is what is to be taken.
        """
        target = self.array[key]
        if self.is_local:
            copy_strided(source, target, queue=self.queue, wait_for=wait_for)
            _await(target, self.queue)
            yield source.nbytes
            return
        source.backend.wait(wait_for, queue=queue)
        for first, last in self._spans(source.shape, source.dtype, staging):
            part, place = source[first:last], target[first:last]
            dense = _is_dense(place) and place.dtype == source.dtype
            arrived = place if dense else DeviceArray.dense(place.backend, self._buffer, place.shape, source.dtype)
            _travel(part, queue, arrived, self.queue, staging)
            if not dense:
                copy_strided(arrived, place, queue=self.queue)
                _await(place, self.queue)
            yield part.nbytes

    def _spans(
        self, shape: tuple[int, ...], dtype: np.dtype[Any], staging: npt.NDArray[Any]
    ) -> Iterator[tuple[int, int]]:
        """Rows that travel at a time."""
        row = shape[1] * dtype.itemsize
        at_once = max(min(self._buffer.nbytes, staging.nbytes) // max(row, 1), 1)
        for first in range(0, shape[0] if row else 0, at_once):
            yield first, min(first + at_once, shape[0])


def _travel(
    source: DeviceArray, sender: Any, target: DeviceArray, receiver: Any, staging: npt.NDArray[Any]
) -> None:  # fmt: skip
    """Copies a dense array to a dense one of another device, and waits for it; each on a queue of its own device."""
    size = source.dtype.itemsize
    begins, place = source.offset * size, target.offset * size
    if target.backend.copy_from(
        source.backend, source.memory, target.memory, source.nbytes, source_offset=begins, offset=place, sender=sender,
        queue=receiver,
    ):  # fmt: skip
        return
    view = staging[: source.nbytes]
    source.backend.download(source.memory, view, offset=begins, queue=sender)
    target.backend.upload(target.memory, view, offset=place, queue=receiver)


def _await(array: DeviceArray, queue: Any) -> None:
    """Waits for what is enqueued on a queue, by a byte that comes after it."""
    if array.size:
        array.backend.download(array.memory, np.empty(1, np.uint8), queue=queue)


def _is_dense(array: DeviceArray) -> bool:
    return array.strides == dense_strides(array.shape) or array.size <= 1


def on_queue(block: Memory, queue: Any) -> Memory:
    """A block as one queue uses it: in its own order."""
    return Memory(
        block.native, block.handle, block.nbytes, alignment=block.alignment, keeper=block, read_only=block.read_only,
        access=Access(home=queue, writer=queue),
    )  # fmt: skip
