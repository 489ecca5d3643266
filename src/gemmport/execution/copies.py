"""Copies of strided arrays on a device: enqueued and not awaited, where no numbers lose their kind."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np

from gemmport.backends.array import DeviceArray, is_dense, merged
from gemmport.backends.base import Launcher
from gemmport.backends.objects import Event, Memory
from gemmport.backends.segments import is_segmented, pieces
from gemmport.core.dtypes import KINDS, as_dtype
from gemmport.core.errors import DtypeError
from gemmport.core.plan import Launch
from gemmport.execution.executor import bound_launches, enqueue_launches
from gemmport.kernels import copy_strided as kernel

log = logging.getLogger(__name__)


def copy_strided(
    source: DeviceArray, target: DeviceArray, *, queue: Any = None, wait_for: Sequence[Event] = ()
) -> None:
    """Enqueues a copy between arrays of one shape and device, converting elements as `numpy.astype` does.

    Args:
        target: its elements must not overlap each other, nor the source.

    Raises:
        DtypeError: a type that gemmport does not compute in, or one whose numbers the target's kind does not hold: parts after
            the point, imaginary parts, counts. `assign` converts those on the host.
        CompileError, LaunchError: as the backend.
    """
    backend = source.backend
    if source.size == 0:
        return
    if _loses_kind(source, target):
        raise DtypeError(f"a copy on a device must keep the kind of its numbers; got {source.dtype} to {target.dtype}")
    backend.wait(wait_for, queue=queue)
    if is_segmented(source) or is_segmented(target):
        for part, place in pieces(source, target):
            _copy(part, place, queue)
    else:
        _copy(source, target, queue)


def _copy(source: DeviceArray, target: DeviceArray, queue: Any) -> None:
    """A copy between arrays that lie in one allocation each."""
    memory = {"source": source.memory, "target": target.memory}
    launches = _launches(source, target)
    enqueue_launches(launches, source.backend, memory, writes=("target",), queue=queue, keeps=True)


def _launches(source: DeviceArray, target: DeviceArray) -> list[Launch]:
    shape, read, written = merged(source.shape, source.strides, target.strides)
    found = kernel.PASS.launches(
        shape,
        kernel.Strided(read, source.offset),
        kernel.Strided(written, target.offset),
        as_dtype(source.dtype),
        as_dtype(target.dtype),
        source.backend.device.max_work_group,
    )
    return [*found]


class PreparedCopy:
    """A copy as of `copy_strided`, worked out once for arrays that lie alike in whatever memory; for one thread at a time."""

    def __init__(self, source: DeviceArray, target: DeviceArray) -> None:
        """Of arrays in one allocation each, and of such kinds as `copy_strided` takes; their memory may be a stand-in."""
        self.source, self.target = source, target
        self._is_dense = source.dtype == target.dtype and is_dense(source) and is_dense(target)
        self._launch: Launcher | None = None

    def enqueue(self, source: Memory, target: Memory, *, queue: Any = None) -> None:
        """Enqueues it between memory of these arrays.

        Raises:
            CompileError, LaunchError: as the backend.
        """
        backend = self.source.backend
        if not self.source.size:
            return
        if self._is_dense:
            parts = [
                backend.part(x, like.offset * like.itemsize)
                for x, like in ((source, self.source), (target, self.target))
            ]
            if parts[0] is not None and parts[1] is not None:
                backend.copy(parts[0], parts[1], self.source.nbytes, queue=queue)
                return
        with backend.ordered(queue, reads=[source], writes=[target]):
            if self._launch is None:
                memory = {"source": source, "target": target}
                self._launch = bound_launches(_launches(self.source, self.target), backend, memory)
            self._launch((backend.argument(source), backend.argument(target)), backend.as_queue(queue), False)


def _loses_kind(source: DeviceArray, target: DeviceArray) -> bool:
    kinds = [KINDS.index(as_dtype(x.dtype).kind) for x in (source, target)]
    return kinds[0] > kinds[1]


def assign(source: DeviceArray, target: DeviceArray, *, queue: Any = None) -> None:
    """Copies between arrays of one shape and device, of any types, converting elements as `numpy.astype` does.

    It is enqueued and not awaited, but where numbers lose their kind: NumPy converts those on the host.

    Raises:
        As `copy_strided`.
    """
    if source.size == 0 or not _loses_kind(source, target):
        copy_strided(source, target, queue=queue)
        return
    log.info("an array of %s is converted to %s on the host", source.dtype, target.dtype)
    with np.errstate(all="ignore"):
        target.set(source.get().astype(target.dtype))


def dense_copy(source: DeviceArray, dtype: np.dtype[Any], *, queue: Any = None) -> DeviceArray:
    """A C-contiguous copy in a type; as `assign`."""
    target = source.backend.empty(source.shape, dtype)
    assign(source, target, queue=queue)
    return target


def stacked(arrays: Sequence[DeviceArray], dtype: np.dtype[Any], *, queue: Any = None) -> DeviceArray:
    """Arrays of one shape and device as one, along a new first dimension; errors as `copy_strided`."""
    first = arrays[0]
    target = first.backend.empty((len(arrays), *first.shape), dtype)
    for number, array in enumerate(arrays):
        copy_strided(array, target[number], queue=queue)
    return target
