"""Arrays that are spread over devices: each device has a shard, some rows, columns or matrices of the whole."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from gemmport.backends.array import DeviceArray, as_numpy, check_unmasked
from gemmport.backends.base import Backend
from gemmport.core.device import DeviceInfo
from gemmport.core.errors import ArrayError, DeviceNotFoundError, DtypeError, ShapeError
from gemmport.execution.adapters import library_of
from gemmport.execution.selection import get_backend


class ShardedArray:
    """A matrix, or a batch of them, as shards that lie each on a device and follow one another along one dimension.

    It is what PyTorch's DTensor is under the placement `Shard(axis)`, with one process for all devices. `gemm` and `matmul`
    take it as operand and as `out`. Shards may be of unequal sizes, of size 0, and several on one device; nothing is copied.

    Attributes:
        shards: as they were given: `DeviceArray`s, or device arrays of another library.
        axis: along which they follow one another; 0 is the first dimension.
        shape: of the whole.
    """

    __array_ufunc__ = None  # NumPy's operators do not know it

    def __init__(self, shards: Sequence[Any], axis: int = 0) -> None:
        """Of shards in their order.

        Args:
            shards: at least one, of two or three dimensions and one type, alike in all sizes but that of the axis.
            axis: of the shards; negative counts from the last.

        Raises:
            ShapeError: the shards do not make one array. DtypeError: they differ in type.
            ArrayError: a shard is not on a device.
        """
        if not isinstance(shards, list | tuple) or not shards:
            raise ShapeError(f"shards must be a list of one array or more; got {type(shards).__name__} {shards!r:.60}")
        for number, shard in enumerate(shards):
            library = library_of(shard)
            if not isinstance(shard, DeviceArray) and (library is None or library.on_host(shard)):
                raise ArrayError(
                    f"shards must be arrays on devices; got {type(shard).__name__} for shards[{number}]: copy it to one with "
                    "Backend.asarray, or make shards of a host array with ShardedArray.distribute"
                )
        shapes = [tuple(int(size) for size in shard.shape) for shard in shards]
        first = shapes[0]
        if len(first) not in (2, 3):
            raise ShapeError(f"shards must be matrices, or batches of them; got shape {first}")
        self.axis = _axis(axis, len(first))
        for number, shape in enumerate(shapes):
            if len(shape) != len(first) or _others(shape, self.axis) != _others(first, self.axis):
                raise ShapeError(
                    f"shards must be alike in all sizes but that of axis {self.axis}; got {first} and, for shards[{number}], "
                    f"{shape}"
                )
            if shards[number].dtype != shards[0].dtype:
                raise DtypeError(
                    f"shards must be of one type; got {shards[0].dtype} and, for shards[{number}], {shards[number].dtype}: "
                    "convert them"
                )
        self.shards = tuple(shards)
        lines = sum(shape[self.axis] for shape in shapes)
        self.shape = (*first[: self.axis], lines, *first[self.axis + 1 :])

    @classmethod
    def distribute(cls, array: Any, devices: Sequence[str | int | DeviceInfo | Backend], axis: int = 0) -> ShardedArray:
        """Shards of an array in the host's memory, copied to devices, one on each.

        Sizes differ by one at most, as those of `numpy.array_split`.

        Args:
            array: of two or three dimensions.
            devices: what `get_backend` takes for `device`, and open backends.

        Raises:
            ShapeError: the array is no matrix or batch, or has no such axis. DeviceNotFoundError: no device is named.
            Others as `get_backend` and `Backend.asarray`.
        """
        check_unmasked("array", array)
        host = as_numpy("array", array)
        if host.ndim not in (2, 3):
            raise ShapeError(f"an array in shards must be a matrix, or a batch of them; got shape {host.shape}")
        if isinstance(devices, str) or not devices:
            raise DeviceNotFoundError(f"devices must be a list of one device or more; got {devices!r}")
        axis = _axis(axis, host.ndim)
        opened = [each if isinstance(each, Backend) else get_backend(device=each) for each in devices]
        parts = np.array_split(host, len(opened), axis)
        return cls([backend.asarray(part) for backend, part in zip(opened, parts, strict=True)], axis)

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def dtype(self) -> Any:
        """Of the elements, as the shards' library has it."""
        return self.shards[0].dtype

    @property
    def T(self) -> ShardedArray:  # noqa: N802 - NumPy's name
        """The matrix with its dimensions exchanged, over the same memory.

        Raises:
            ShapeError: it is a batch.
        """
        if self.ndim != 2:
            raise ShapeError(
                f"an array in shards must be a matrix to have T; got shape {self.shape}: use trans_a, trans_b"
            )
        return ShardedArray([shard.T for shard in self.shards], 1 - self.axis)

    def astype(self, dtype: npt.DTypeLike) -> ShardedArray:
        """A copy in another type; each shard is converted on its device, of our arrays."""
        return ShardedArray([shard.astype(dtype) for shard in self.shards], self.axis)

    def get(self) -> npt.NDArray[Any]:
        """A copy of the whole on the host, after everything that was enqueued to write it.

        Raises:
            ArrayError: a shard is another library's: copy that with the library.
        """
        for shard in self.shards:
            if not isinstance(shard, DeviceArray):
                raise ArrayError(
                    f"shards must be DeviceArrays for get(); got {type(shard).__name__}: copy each with its library"
                )
        return np.concatenate([shard.get() for shard in self.shards], self.axis)

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> npt.NDArray[Any]:
        """A copy on the host, as `DeviceArray` has it.

        Raises:
            ValueError: with `copy=False`, since the numbers are not in NumPy's reach.
        """
        if copy is False:
            raise ValueError("an array in shards must be copied to be NumPy's: leave out copy=False")
        whole = self.get()
        return whole if dtype is None else whole.astype(dtype)

    def __repr__(self) -> str:
        sizes = ", ".join(str(shard.shape[self.axis]) for shard in self.shards)
        return f"<ShardedArray shape={self.shape} dtype={self.dtype} axis={self.axis} of {sizes}>"


def _axis(axis: int, ndim: int) -> int:
    """Of so many dimensions, counted from the first."""
    try:
        number = operator.index(axis)
    except TypeError:
        raise ShapeError(f"axis must be an integer; got {axis!r}") from None
    if not -ndim <= number < ndim:
        raise ShapeError(f"axis must be one of {ndim} dimensions; got {number}")
    return number % ndim


def _others(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return shape[:axis] + shape[axis + 1 :]
