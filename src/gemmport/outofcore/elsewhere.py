"""Operands and results that lie on a device: blocks of them travel from there to another device, and back.

What travels has a queue of its own on the device where the array lies, so that it waits for no product there. It goes directly
between devices that a backend can copy between, else through the host. Each copy is awaited by who asks for it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from gemmport.backends.array import DeviceArray, is_dense
from gemmport.backends.base import Backend
from gemmport.backends.objects import Access, Event, Memory
from gemmport.backends.segments import SegmentedMemory, is_segmented, pieces
from gemmport.core.errors import ArrayLostError, DeviceMemoryError, GemmportError
from gemmport.core.layout import readable_in_place
from gemmport.execution.copies import copy_strided

BUFFER = 2**25
"""Bytes that travel at a time. With twice as many a link of 25 GB/s is as busy, as each takes more than a millisecond."""

_WIDEST = 16
"""Bytes of the widest type."""


class Elsewhere(ABC):
    """An array on a device or several, or a part of it, of which one thread brings blocks to a device or takes some there."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Sizes."""

    @property
    @abstractmethod
    def dtype(self) -> np.dtype[Any]:
        """Of the elements."""

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    @abstractmethod
    def is_column_major(self) -> bool:
        """Whether columns lie as rows usually do."""

    @abstractmethod
    def part(self, key: tuple[slice, ...]) -> Elsewhere:
        """The array between some bounds, one slice with a start and a stop for each dimension."""

    @abstractmethod
    def turned(self) -> Elsewhere:
        """The array with its last two dimensions exchanged."""

    @abstractmethod
    def read(
        self, key: tuple[Any, ...], target: DeviceArray, staging: npt.NDArray[Any], queue: Any
    ) -> Iterator[int]:  # fmt: skip
        """Brings a block to the user's device, and waits for it; gives the bytes of each of its parts.

        Args:
            key: of a matrix, slices with a start and a stop; of a batch with the number of a matrix before.
            target: of the block's shape; its rows lie one after another.
            staging: bytes of the host's memory, for a row at least.
            queue: of the user's, on which the target is written.

        Raises:
            ArrayLostError: a device on which the block lies has failed.
        """

    @abstractmethod
    def write(
        self, key: tuple[Any, ...], source: DeviceArray, staging: npt.NDArray[Any], queue: Any,
        wait_for: Sequence[Event] = (),
    ) -> Iterator[int]:  # fmt: skip
        """Takes a block from the user's device, and waits for it; as `read`.

        Args:
            wait_for: events of the user's device, after which the source is what is to be taken.
        """


class OnDevice(Elsewhere):
    """An array on one device.

    Attributes:
        array: as it is used on the queue: what was enqueued to write it is waited for, there.
        is_local: whether it is on the very device that it is brought to, or taken from.
    """

    def __init__(
        self, array: DeviceArray, user: Backend, name: str, *, written: bool = False, buffer: int = BUFFER
    ) -> None:
        """Of a device that uses the array.

        Args:
            name: of the operand. Each user has a queue for each, which is kept as long as the array's device is open.
            written: whether blocks are taken there; else they are brought from there.
            buffer: bytes of the array's device, and of the user's, in which rows are packed that do not lie one after another,
                from when there are such; a row at least.
        """
        backend = array.backend
        kept, key = backend.kept, ("queue of what travels", user.device, name)
        if key not in kept:
            kept[key] = backend.as_queue(backend.new_queue())
        queue = kept[key]
        self.is_local = backend is user
        reads, writes = ([], [array.memory]) if written else ([array.memory], [])
        with backend.ordered(queue, reads=reads, writes=writes):
            pass
        row = max(array.shape[-2:], default=1) * _WIDEST
        self._at_once = max(min(buffer, array.size * _WIDEST), row)
        self._there, self._here = _Buffer(backend, self._at_once), _Buffer(user, self._at_once)
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
    def is_column_major(self) -> bool:
        """Whether columns lie as rows usually do."""
        down, across = (abs(step) for step in self.array.strides[-2:])
        return down < across and self.shape[-2] > 1

    def part(self, key: tuple[slice, ...]) -> OnDevice:
        """The array between some bounds."""
        return self._of(self.array[key])

    def turned(self) -> OnDevice:
        """The array with its last two dimensions exchanged."""
        return self._of(self.array.mT)

    def _of(self, array: DeviceArray) -> OnDevice:
        found = copy(self)
        found.array = array
        return found

    @property
    def is_readable(self) -> bool:
        """Whether products on its device read it as it lies, row by row."""
        array = self.array
        if is_segmented(array):
            return False
        found = readable_in_place(array.shape, array.strides, array.offset, base_alignment=array.memory.alignment)
        return found is not None and not found[1] and (array.shape[-1] <= 1 or array.strides[-1] == 1)

    def read(
        self, key: tuple[Any, ...], target: DeviceArray, staging: npt.NDArray[Any], queue: Any
    ) -> Iterator[int]:  # fmt: skip
        """As `Elsewhere.read`."""
        source = self.array[key]
        if self.is_local:
            copy_strided(source, target, queue=queue)
            await_queue(target.memory, target.backend, queue)
            yield target.nbytes
            return
        if self._goes_at_once(source, self.queue, target, queue):
            yield target.nbytes
            return
        for first, last in self._spans(source.shape, target.dtype, staging):
            part, place = source[first:last], target[first:last]
            if not is_dense(part) or part.dtype != target.dtype:
                with self._in_reach():
                    packed = self._there.dense(part.shape, target.dtype, self.queue)
                    copy_strided(part, packed, queue=self.queue)
                part = packed
            arrived = place if is_dense(place) else self._here.dense(place.shape, place.dtype, queue)
            self._travel(part, self.queue, arrived, queue, staging)
            if arrived is not place:
                copy_strided(arrived, place, queue=queue)
                await_queue(place.memory, place.backend, queue)
            yield place.nbytes

    def write(
        self, key: tuple[Any, ...], source: DeviceArray, staging: npt.NDArray[Any], queue: Any,
        wait_for: Sequence[Event] = (),
    ) -> Iterator[int]:  # fmt: skip
        """As `Elsewhere.write`."""
        target = self.array[key]
        if self.is_local:
            copy_strided(source, target, queue=self.queue, wait_for=wait_for)
            await_queue(target.memory, target.backend, self.queue)
            yield source.nbytes
            return
        source.backend.wait(wait_for, queue=queue)
        if self._goes_at_once(source, queue, target, self.queue):
            yield source.nbytes
            return
        for first, last in self._spans(source.shape, source.dtype, staging):
            part, place = source[first:last], target[first:last]
            if not is_dense(part):
                packed = self._here.dense(part.shape, part.dtype, queue)
                copy_strided(part, packed, queue=queue)
                part = packed
            dense = is_dense(place) and place.dtype == source.dtype
            with self._in_reach():
                arrived = place if dense else self._there.dense(place.shape, source.dtype, self.queue)
            self._travel(part, queue, arrived, self.queue, staging)
            if arrived is not place:
                with self._in_reach():
                    copy_strided(arrived, place, queue=self.queue)
                    await_queue(place.memory, place.backend, self.queue)
            yield part.nbytes

    def _spans(
        self, shape: tuple[int, ...], dtype: np.dtype[Any], staging: npt.NDArray[Any]
    ) -> Iterator[tuple[int, int]]:
        """Rows that travel at a time."""
        row = shape[1] * dtype.itemsize
        at_once = max(min(self._at_once, staging.nbytes) // max(row, 1), 1)
        for first in range(0, shape[0] if row else 0, at_once):
            yield first, min(first + at_once, shape[0])

    @contextmanager
    def _in_reach(self) -> Iterator[None]:
        """Says of what fails on the array's device that the array is lost, where another device asked."""
        try:
            yield
        except DeviceMemoryError:
            raise
        except GemmportError as error:
            if self.is_local:
                raise
            raise gone(self.array.backend, error) from error

    def _goes_at_once(self, source: DeviceArray, sender: Any, target: DeviceArray, receiver: Any) -> bool:
        """Copies an array to another device in one copy, which the host waits for; whether there is such a copy of it."""
        if any(map(is_segmented, (source, target))) or source.dtype != target.dtype:
            return False
        if not (is_dense(source) and is_dense(target)):
            return False
        with self._in_reach():
            self.array.backend.check_open()
        size = source.dtype.itemsize
        if not target.backend.copy_from(
            source.backend, source.memory, target.memory, source.nbytes, source_offset=source.offset * size,
            offset=target.offset * size, sender=sender, queue=receiver,
        ):  # fmt: skip
            return False
        await_queue(target.memory, target.backend, receiver)
        return True

    def _travel(
        self, source: DeviceArray, sender: Any, target: DeviceArray, receiver: Any, staging: npt.NDArray[Any]
    ) -> None:  # fmt: skip
        """Copies a dense array to a dense one of another device, and waits for it; each on a queue of its own device."""
        if is_segmented(source) or is_segmented(target):
            for part, arrived in pieces(source, target):
                self._travel(part, sender, arrived, receiver, staging)
            return
        if self._goes_at_once(source, sender, target, receiver):
            return
        size = source.dtype.itemsize
        begins, place = source.offset * size, target.offset * size
        there = self._in_reach
        of_source, of_target = (there, nullcontext) if source.backend is self.array.backend else (nullcontext, there)
        view = staging[: source.nbytes]
        with of_source():
            source.backend.download(source.memory, view, offset=begins, queue=sender)
        with of_target():
            target.backend.upload(target.memory, view, offset=place, queue=receiver)


def gone(backend: Backend, error: Exception) -> ArrayLostError:
    """The error where a device has failed on which an array lies."""
    return ArrayLostError(f"{backend.device.label} must give and take what lies there; it failed: {error}")


class OnDevices(Elsewhere):
    """An array in shards, each on one device, along one dimension."""

    def __init__(self, shards: Sequence[OnDevice], axis: int) -> None:
        """Of shards that fit together.

        Args:
            axis: counted from the last dimension: -1, -2 or -3.
        """
        self.shards, self.axis = shards, axis

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the whole."""
        sizes = self.shards[0].shape
        lines = sum(shard.shape[self.axis] for shard in self.shards)
        return tuple(lines if dim - len(sizes) == self.axis else size for dim, size in enumerate(sizes))

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the elements."""
        return self.shards[0].dtype

    @property
    def is_column_major(self) -> bool:
        """Whether columns lie as rows usually do, in every shard."""
        return all(shard.is_column_major for shard in self.shards)

    def part(self, key: tuple[slice, ...]) -> Elsewhere:
        """The array between some bounds: of one shard, where they are within it."""
        found = [shard.part(inner) for shard, inner, _ in self._within(key)]
        if not found:
            return self.shards[0].part(_with(key, len(key) + self.axis, slice(0, 0)))
        return found[0] if len(found) == 1 else OnDevices(found, self.axis)

    def turned(self) -> OnDevices:
        """The array with its last two dimensions exchanged."""
        return OnDevices([shard.turned() for shard in self.shards], {-1: -2, -2: -1}.get(self.axis, self.axis))

    def read(
        self, key: tuple[Any, ...], target: DeviceArray, staging: npt.NDArray[Any], queue: Any
    ) -> Iterator[int]:  # fmt: skip
        """As `Elsewhere.read`."""
        for shard, inner, outer in self._within(key):
            yield from shard.read(inner, target[outer], staging, queue)

    def write(
        self, key: tuple[Any, ...], source: DeviceArray, staging: npt.NDArray[Any], queue: Any,
        wait_for: Sequence[Event] = (),
    ) -> Iterator[int]:  # fmt: skip
        """As `Elsewhere.write`."""
        for shard, inner, outer in self._within(key):
            yield from shard.write(inner, source[outer], staging, queue, wait_for)

    def _within(self, key: tuple[Any, ...]) -> Iterator[tuple[OnDevice, tuple[Any, ...], tuple[slice, ...]]]:
        """The shards that a key reaches, its part of each, and where in the block of the key that is."""
        place, start = len(key) + self.axis, 0
        asked = key[place]
        for shard in self.shards:
            stop = start + shard.shape[self.axis]
            if isinstance(asked, slice):
                first, last = max(asked.start, start), min(asked.stop, stop)
                if first < last:
                    yield (
                        shard,
                        _with(key, place, slice(first - start, last - start)),
                        tuple(
                            slice(first - asked.start, last - asked.start) if number == place else slice(None)
                            for number in range(len(key))
                        )[-2:],
                    )
            elif start <= asked < stop:
                yield shard, _with(key, place, asked - start), ()
            start = stop


def _with(key: tuple[Any, ...], place: int, value: Any) -> tuple[Any, ...]:
    return (*key[:place], value, *key[place + 1 :])


class _Buffer:
    """Memory of a device in which rows are packed, from when it is first needed on."""

    def __init__(self, backend: Backend, nbytes: int) -> None:
        self.backend, self.nbytes = backend, nbytes
        self.memory: Memory | None = None

    def dense(self, shape: tuple[int, ...], dtype: np.dtype[Any], queue: Any) -> DeviceArray:
        """An array in it, as it is used on a queue; what was done to it before must be done.

        Raises:
            DeviceMemoryError: the device has no room for it.
        """
        if self.memory is None:
            self.memory = self.backend.allocate(self.nbytes)
            with self.backend.ordered(queue, writes=[self.memory]):
                pass
        return DeviceArray.dense(self.backend, on_queue(self.memory, queue), shape, dtype)


def await_queue(memory: Memory, backend: Backend, queue: Any) -> None:
    """Waits for what is enqueued on a queue, by a byte of a memory that comes after it."""
    if memory.nbytes:
        backend.download(memory, np.empty(1, np.uint8), queue=queue)


def on_queue(block: Memory, queue: Any) -> Memory:
    """A block as one queue uses it: in its own order."""
    return _in_order(block, Access(home=queue, writer=queue))


def _in_order(block: Memory, access: Access) -> Memory:
    if isinstance(block, SegmentedMemory):
        return SegmentedMemory([_in_order(segment, access) for segment in block.segments])
    return Memory(
        block.native, block.handle, block.nbytes, alignment=block.alignment, keeper=block, read_only=block.read_only,
        access=access,
    )  # fmt: skip
