"""Copies of strided arrays on a device, enqueued and not awaited; nothing passes through the host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gemmport.backends.array import DeviceArray, merged
from gemmport.backends.objects import Event
from gemmport.core.dtypes import as_dtype
from gemmport.execution.executor import enqueue_launches
from gemmport.kernels import copy_strided as kernel


def copy_strided(
    source: DeviceArray, target: DeviceArray, *, queue: Any = None, wait_for: Sequence[Event] = ()
) -> None:
    """Enqueues a copy between arrays of one shape and device, converting elements as `numpy.astype` does.

    Args:
        target: its elements must not overlap each other, nor the source.

    Raises:
        DtypeError: a type that gemmport does not compute in.
        CompileError, LaunchError: as the backend.
    """
    backend = source.backend
    if source.size == 0:
        return
    shape, read, written = merged(source.shape, source.strides, target.strides)
    launches = kernel.PASS.launches(
        shape,
        kernel.Strided(read, source.offset),
        kernel.Strided(written, target.offset),
        as_dtype(source.dtype),
        as_dtype(target.dtype),
        backend.device.max_work_group,
    )
    memory = {"source": source.memory, "target": target.memory}
    backend.wait(wait_for, queue=queue)
    enqueue_launches(launches, backend, memory, writes=("target",), queue=queue)


def dense_copy(source: DeviceArray, dtype: np.dtype[Any], *, queue: Any = None) -> DeviceArray:
    """A C-contiguous copy in a type, enqueued and not awaited; errors as `copy_strided`."""
    target = source.backend.empty(source.shape, dtype)
    copy_strided(source, target, queue=queue)
    return target


def stacked(arrays: Sequence[DeviceArray], dtype: np.dtype[Any], *, queue: Any = None) -> DeviceArray:
    """Arrays of one shape and device as one, along a new first dimension; errors as `copy_strided`."""
    first = arrays[0]
    target = first.backend.empty((len(arrays), *first.shape), dtype)
    for number, array in enumerate(arrays):
        copy_strided(array, target[number], queue=queue)
    return target
