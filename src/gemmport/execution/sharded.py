"""Arrays that are spread over devices: each device has a shard, some rows, columns or matrices of the whole."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator, Sequence
from html import escape
from typing import Any

import numpy as np
import numpy.typing as npt

from gemmport.backends._operations import operations
from gemmport.backends.array import DeviceArray, as_numpy, check_plain, is_operand
from gemmport.backends.base import Backend
from gemmport.core.device import DeviceInfo
from gemmport.core.errors import ArrayError, DeviceNotFoundError, DtypeError, ShapeError
from gemmport.execution.adapters import library_of
from gemmport.execution.selection import get_backend


class ShardedArray:
    """A vector, a matrix, or a batch of these, as shards that lie each on a device and follow one another along one dimension.

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
            shards: at least one, of one to three dimensions and one type, alike in all sizes but that of the axis.
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
        if len(first) not in (1, 2, 3):
            raise ShapeError(f"shards must be vectors, matrices, or batches of them; got shape {first}")
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
            array: of one to three dimensions.
            devices: what `get_backend` takes for `device`, and open backends.

        Raises:
            ShapeError: the array has more dimensions, or none, or no such axis. DeviceNotFoundError: no device is named.
            Others as `get_backend` and `Backend.asarray`.
        """
        check_plain("array", array)
        host = as_numpy("array", array)
        if host.ndim not in (1, 2, 3):
            raise ShapeError(
                f"an array in shards must be a vector, a matrix, or a batch of them; got shape {host.shape}"
            )
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
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def dtype(self) -> Any:
        """Of the elements, as the shards' library has it."""
        return self.shards[0].dtype

    @property
    def nbytes(self) -> int:
        """Bytes of the elements, on all devices."""
        return sum(int(shard.nbytes) for shard in self.shards)

    def __len__(self) -> int:
        """The first size."""
        return self.shape[0]

    def __iter__(self) -> Iterator[Any]:
        """Views along the first dimension."""
        return (self[number] for number in range(len(self)))

    def __getitem__(self, key: Any) -> Any:
        """A view over the same memory, by integers and slices with steps of 1 or more.

        Returns:
            A `ShardedArray` of the shards that have something of it; with an integer along `axis`, the view of the one shard.

        Raises:
            IndexError: out of range, an index of another kind, or a slice of `axis` that goes backwards.
        """
        keys = _expanded(key, self.ndim)
        here = keys[self.axis]
        if not isinstance(here, slice):
            size = self.shape[self.axis]
            if not -size <= here < size:
                raise IndexError(f"an index of axis {self.axis} must be from {-size} to {size - 1}; got {here}")
            number = here % size
            for shard, lines in self._lines():
                if number in lines:
                    return shard[(*keys[: self.axis], number - lines.start, *keys[self.axis + 1 :])]
        wanted, cut = range(self.shape[self.axis])[here], []
        if wanted.step < 1:
            raise IndexError(
                f"slices of axis {self.axis}, that of the shards, must have steps of 1 or more; got {here}"
            )
        for shard, lines in self._lines():
            first = wanted.start + max(0, -(-(lines.start - wanted.start) // wanted.step)) * wanted.step
            part = slice(first - lines.start, max(min(wanted.stop, lines.stop), first) - lines.start, wanted.step)
            cut.append(shard[(*keys[: self.axis], part, *keys[self.axis + 1 :])])
        axis = self.axis - sum(not isinstance(each, slice) for each in keys[: self.axis])
        return ShardedArray([shard for shard in cut if shard.shape[axis]] or cut[:1], axis)

    def _lines(self) -> Iterator[tuple[Any, range]]:
        """Each shard, and what it has of the whole along the axis."""
        start = 0
        for shard in self.shards:
            yield shard, range(start, start + int(shard.shape[self.axis]))
            start += int(shard.shape[self.axis])

    def __matmul__(self, other: Any) -> Any:
        return operations().matmul(self, other) if is_operand(other) else NotImplemented

    def __rmatmul__(self, other: Any) -> Any:
        return operations().matmul(other, self) if is_operand(other) else NotImplemented

    @property
    def T(self) -> ShardedArray:  # noqa: N802 - NumPy's name
        """The matrix with its dimensions exchanged, over the same memory; a vector as it is.

        Raises:
            ShapeError: it is a batch.
        """
        if self.ndim > 2:
            raise ShapeError(
                f"an array in shards must be a matrix to have T; got shape {self.shape}: use trans_a, trans_b"
            )
        return ShardedArray([shard.T for shard in self.shards], self.ndim - 1 - self.axis)

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
        return f"<ShardedArray {self._told}>"

    def _repr_html_(self) -> str:
        """One line for notebooks; numbers are not fetched from devices unasked."""
        return f"<code>ShardedArray</code> {escape(self._told)}, {self.nbytes:,} bytes"

    @property
    def _told(self) -> str:
        lines = "elements" if self.ndim == 1 else ("matrices", "rows", "columns")[self.axis + 3 - self.ndim]
        sizes = ", ".join(
            f"{shard.shape[self.axis]} on {shard.device.backend} {shard.device.selector}"
            if isinstance(shard, DeviceArray) else str(shard.shape[self.axis])
            for shard in self.shards
        )  # fmt: skip
        return f"{self.shape} {self.dtype} in shards of {lines}: {sizes}"


def _axis(axis: int, ndim: int) -> int:
    """Of so many dimensions, counted from the first."""
    try:
        number = operator.index(axis)
    except TypeError:
        raise ShapeError(f"axis must be an integer; got {axis!r}") from None
    if not -ndim <= number < ndim:
        raise ShapeError(f"axis must be one of {ndim} dimensions; got {number}")
    return number % ndim


def _expanded(key: Any, ndim: int) -> tuple[Any, ...]:
    """An integer or a slice for each dimension."""
    keys = key if isinstance(key, tuple) else (key,)
    left = ndim - sum(each is not Ellipsis for each in keys)
    if left < 0 or sum(each is Ellipsis for each in keys) > 1:
        raise IndexError(f"an array in shards of {ndim} dimensions is not indexed by {key!r}")
    at = next((number for number, each in enumerate(keys) if each is Ellipsis), len(keys))
    keys = (*keys[:at], *[slice(None)] * left, *keys[at + 1 :])
    if not all(isinstance(each, int | np.integer | slice) and not isinstance(each, bool) for each in keys):
        raise IndexError("arrays in shards are indexed by integers, slices and ...; copy with get() for others")
    return keys


def _others(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return shape[:axis] + shape[axis + 1 :]
