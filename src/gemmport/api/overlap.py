"""Whether arrays share memory, on a device and on the host."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from gemmport.api.arguments import HostArray
from gemmport.backends.array import DeviceArray
from gemmport.backends.segments import is_segmented, pieces


def is_same(x: DeviceArray, y: DeviceArray) -> bool:
    """Whether two arrays are one, whatever objects stand for it."""
    (block_x, start_x), (block_y, start_y) = _start(x), _start(y)
    return (block_x, start_x, x.dtype, x.strides) == (block_y, start_y, y.dtype, y.strides)


def _start(x: DeviceArray) -> tuple[int, int]:
    """The block of memory of an array, and the address of its first element in it."""
    block, start = x.backend.address(x.memory)
    return block, start + x.offset * x.dtype.itemsize


_MOST_WORK = 10_000
"""Of `numpy.shares_memory`, in candidates; what takes more counts as overlapping."""


def overlap(x: DeviceArray, y: DeviceArray) -> bool:
    """Whether two arrays have an element's memory in common."""
    if x.size == 0 or y.size == 0:
        return False
    if x.memory is not y.memory and x.memory.pooled and y.memory.pooled:  # whatever their handles are
        return False
    if (is_segmented(x) or is_segmented(y)) and x.memory is not y.memory:
        return any(overlap(part, other) for (part,) in pieces(x) for (other,) in pieces(y))
    if _start(x)[0] != _start(y)[0]:
        return False
    try:
        return np.shares_memory(np.asarray(_StandIn(x)), np.asarray(_StandIn(y)), max_work=cast("Any", _MOST_WORK))
    except RuntimeError:  # too hard to tell
        return True


class _StandIn:
    """A device array as NumPy sees one; its elements are never touched."""

    def __init__(self, x: DeviceArray) -> None:
        size = x.dtype.itemsize
        self.__array_interface__ = {
            "shape": x.shape,
            "typestr": f"|V{size}",
            "data": (_start(x)[1] + 2**20, False),  # never a null pointer, which NumPy takes for none
            "strides": tuple(s * size for s in x.strides),
            "version": 3,
        }


def is_same_on_host(x: HostArray, y: HostArray) -> bool:
    """Whether two host arrays are one, whatever objects stand for it."""
    starts = (x.__array_interface__["data"][0], y.__array_interface__["data"][0])
    return starts[0] == starts[1] and (x.dtype, x.shape, x.strides) == (y.dtype, y.shape, y.strides)
