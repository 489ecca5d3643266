"""A strided array in device memory: enough to carry data in, out and into a product, and to slice it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from types import EllipsisType
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from gemmport.backends.base import Backend, Memory


@dataclass(frozen=True)
class DeviceArray:
    """An array on one device.

    Attributes:
        backend: the device it is on.
        memory: where its elements lie.
        shape, dtype: as in NumPy.
        strides: per dimension, in elements (not bytes); 0 repeats.
        offset: of its first element from the start of the memory, in elements.
    """

    backend: Backend
    memory: Memory
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    strides: tuple[int, ...]
    offset: int = 0

    @classmethod
    def dense(cls, backend: Backend, memory: Memory, shape: tuple[int, ...], dtype: np.dtype[Any]) -> DeviceArray:
        """The C-contiguous array at the start of a memory."""
        return cls(backend, memory, shape, dtype, dense_strides(shape))

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def T(self) -> DeviceArray:  # noqa: N802 - NumPy's name
        """The array with its dimensions reversed, over the same memory."""
        return DeviceArray(self.backend, self.memory, self.shape[::-1], self.dtype, self.strides[::-1], self.offset)

    def __getitem__(self, key: Any) -> DeviceArray:
        """A view over the same memory: integers and slices, as in NumPy.

        Raises:
            IndexError: out of range, or an index of another kind.
        """
        keys = key if isinstance(key, tuple) else (key,)
        if not all(isinstance(k, int | np.integer | slice | EllipsisType) for k in keys):
            raise IndexError("device arrays are indexed by integers and slices")
        if sum(isinstance(k, int | np.integer) for k in keys) == self.ndim:
            raise IndexError("an index that leaves no dimension is not a view; use a slice, or get() first")
        # NumPy works the indexing out, on a stand-in of the same strides whose elements are never touched.
        base = np.zeros(1, np.int8)
        view = np.lib.stride_tricks.as_strided(base, self.shape, self.strides)[key]
        moved = view.__array_interface__["data"][0] - base.__array_interface__["data"][0]
        return DeviceArray(self.backend, self.memory, view.shape, self.dtype, view.strides, self.offset + moved)

    def get(self) -> npt.NDArray[Any]:
        """A copy on the host, after everything enqueued before it."""
        if self.size == 0:
            return np.empty(self.shape, self.dtype)
        low = sum((n - 1) * s for n, s in zip(self.shape, self.strides, strict=True) if s < 0)
        high = sum((n - 1) * s for n, s in zip(self.shape, self.strides, strict=True) if s > 0)
        span = np.empty(high - low + 1, self.dtype)
        self.backend.download(self.memory, span, offset=(self.offset + low) * self.dtype.itemsize)
        byte_strides = [s * self.dtype.itemsize for s in self.strides]
        view = np.lib.stride_tricks.as_strided(span[-low:], self.shape, byte_strides)
        return view if self.strides == dense_strides(self.shape) else view.copy()

    def __repr__(self) -> str:
        return f"<DeviceArray {self.shape} {self.dtype} on {self.backend.device.label}>"


def dense_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Element strides of a C-contiguous array."""
    strides: list[int] = []
    step = 1
    for extent in reversed(shape):
        strides.append(step)
        step *= max(extent, 1)
    return tuple(reversed(strides))
