"""Memory in several allocations, for an array that is larger than one may be; and arrays in it as arrays in one."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import numpy.typing as npt

from gemmport.backends.objects import Memory
from gemmport.core.errors import UnsupportedError
from gemmport.core.segments import cuts, spans

if TYPE_CHECKING:
    from gemmport.backends.array import DeviceArray


class SegmentedMemory(Memory):
    """Blocks of device memory, one after another. It has no address: whatever takes one is refused by name.

    Attributes:
        segments: the blocks. All have one `access`, so that who waits for one waits for all.
        borders: bytes before each of them, and all bytes.
    """

    def __init__(self, segments: Sequence[Memory]) -> None:
        # Not what makes a block: `native` and `handle` stay away, for `__getattr__` to refuse.
        self.segments = tuple(segments)
        self.borders = tuple(accumulate((block.nbytes for block in self.segments), initial=0))
        self.nbytes = self.borders[-1]
        self.access = self.segments[0].access
        self.alignment = min(block.alignment for block in self.segments)
        self.keeper = None
        self.read_only = any(block.read_only for block in self.segments)
        self.located = None

    def __getattr__(self, name: str) -> NoReturn:
        if name not in ("native", "handle"):
            raise AttributeError(f"a memory in several allocations has no {name}")
        raise UnsupportedError(
            f"{self.nbytes:,} bytes must be in one allocation to have an address; they are in {len(self.segments)}: take a "
            "view that lies in one of them, or copy it to the host with get()"
        )

    def __repr__(self) -> str:
        return f"<SegmentedMemory of {self.nbytes:,} bytes in {len(self.segments)} allocations>"

    @property
    def released(self) -> bool:
        """Whether it was given back."""
        return not self.nbytes

    def release(self) -> None:
        """Gives all of it back."""
        for block in self.segments:
            block.release()
        self.nbytes, self.located = 0, None

    def pieces(self, offset: int, nbytes: int) -> Iterator[tuple[Memory, int, slice]]:
        """The parts of some bytes that lie in one block each: the block, where in it a part begins, and which bytes it is."""
        for block, (first, last) in zip(self.segments, pairwise(self.borders), strict=True):
            low, high = max(first, offset), min(last, offset + nbytes)
            if low < high:
                yield block, low - first, slice(low - offset, high - offset)


def is_segmented(x: object) -> bool:
    """Whether something is an array on a device whose memory is several allocations, in whichever of them it lies."""
    return isinstance(getattr(x, "memory", None), SegmentedMemory)


def within_one(array: DeviceArray) -> DeviceArray | None:
    """The same elements as an array of the one allocation in which they all lie; None where there are several."""
    memory, size = array.memory, array.dtype.itemsize
    if not isinstance(memory, SegmentedMemory):
        return array
    low, high = (size * at for at in array.reach)
    number = min(bisect_right(memory.borders, low), len(memory.segments)) - 1
    if high > memory.borders[number + 1]:
        return None
    return replace(array, memory=memory.segments[number], offset=array.offset - memory.borders[number] // size)


def allocations(array: DeviceArray) -> int:
    """In how many allocations the elements of an array lie, or what is between them."""
    memory, size = array.memory, array.dtype.itemsize
    if not isinstance(memory, SegmentedMemory):
        return 1
    low, high = (size * at for at in array.reach)
    inner = memory.borders[1:-1]
    return bisect_right(inner, max(high - 1, low)) - bisect_right(inner, low) + 1


def cuts_of(array: DeviceArray, axis: int) -> list[int]:
    """`gemmport.core.segments.cuts` of an array."""
    if not isinstance(array.memory, SegmentedMemory):
        return []
    borders = [border // array.dtype.itemsize for border in array.memory.borders[1:-1]]
    return cuts(array.shape, array.strides, array.offset, borders, axis)


def pieces(*arrays: DeviceArray) -> Iterator[tuple[DeviceArray, ...]]:
    """Arrays of one shape, cut alike into parts of which each lies in one allocation."""
    straddling = next((array for array in arrays if within_one(array) is None), None)
    if straddling is None:
        yield tuple(found for array in arrays if (found := within_one(array)) is not None)
        return
    by_stride = sorted(range(straddling.ndim), key=lambda axis: -abs(straddling.strides[axis]))
    axis, places = next(((axis, at) for axis in by_stride if (at := cuts_of(straddling, axis))), (0, []))
    if not places:  # each index of each dimension is on both sides of a border
        axis = max(by_stride, key=lambda axis: straddling.shape[axis])
        places = [straddling.shape[axis] // 2]
    for first, last in spans(straddling.shape[axis], places):
        key = (*[slice(None)] * axis, slice(first, last))
        yield from pieces(*(array[key] for array in arrays))


def as_bytes(data: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """The bytes of a C-contiguous array of the host's."""
    return data.reshape(-1).view(np.uint8)
