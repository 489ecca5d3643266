"""Operands in the host's memory, in files that are mapped, and in what gives NumPy arrays when it is sliced, such as Zarr's."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from copy import copy
from typing import Any, Protocol, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from gemmport.backends.array import DeviceArray
from gemmport.core.errors import ArrayError, DtypeError
from gemmport.core.problem import Op, transposed
from gemmport.outofcore.elsewhere import Elsewhere

HostArray: TypeAlias = npt.NDArray[Any]
Span: TypeAlias = "tuple[int, int]"


class Sliceable(Protocol):
    """What is read, and written, in slices that are NumPy arrays: arrays of Zarr and h5py, and your own."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes."""

    @property
    def dtype(self) -> Any:
        """Of the elements, as NumPy takes it."""

    def __getitem__(self, key: Any, /) -> Any:
        """The elements of a tuple of slices, and integers."""


def is_sliced(value: object) -> bool:
    """Whether something is read in slices: no array of numbers in memory, but what has shape, type and slices.

    Zarr's and h5py's arrays tell how they lie in chunks; of others, those that NumPy makes no array of as a whole.
    """
    if isinstance(value, np.ndarray | list | tuple | str | bytes | dict):
        return False
    kind = type(value)
    if not all(hasattr(kind, name) for name in ("shape", "dtype", "__getitem__")):
        return False
    others = (
        "__array_interface__", "__dlpack__", "__cuda_array_interface__", "__array_ufunc__", "__dask_graph__",
        "todense",  # sparse, and refused by name
    )  # fmt: skip
    if any(hasattr(kind, name) for name in others):
        return False
    return hasattr(kind, "chunks") or not hasattr(kind, "__array__")


def is_hdf5(value: object) -> bool:
    """Whether something is a dataset of h5py."""
    return type(value).__module__.partition(".")[0] == "h5py"


class Sliced:
    """An array that is read in slices, with what the calls ask of NumPy's.

    Attributes:
        value: what was passed.
        chunks: rows and columns of what it is stored in; None where it does not tell.
        start: of what was passed, where a part of it begins.
    """

    def __init__(self, value: Sliceable) -> None:
        self.value = value
        self.shape = tuple(int(size) for size in value.shape)
        self.start = (0,) * len(self.shape)
        # To write a part of a chunk is to read and write all of it, so that threads take turns; parts share this.
        self._turn = threading.Lock()
        try:
            self.dtype: np.dtype[Any] = np.dtype(value.dtype)
        except TypeError:
            raise DtypeError(f"an array in slices must have a type of NumPy's; got {value.dtype!r}") from None
        chunks = getattr(value, "shards", None) or getattr(value, "chunks", None)
        self.chunks = tuple(chunks) if isinstance(chunks, tuple) and len(chunks) == len(self.shape) else None

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return int(np.prod(self.shape, dtype=object))

    def astype(self, dtype: np.dtype[Any]) -> Sliced:
        """The same array, of which slices are converted as they are read."""
        converted = copy(self)
        converted.dtype = dtype
        return converted

    def part(self, key: tuple[slice, ...]) -> Sliced:
        """The array between some bounds, one slice with a start and a stop for each dimension."""
        found = copy(self)
        found.start = tuple(begin + each.start for begin, each in zip(self.start, key, strict=True))
        found.shape = tuple(each.stop - each.start for each in key)
        return found

    def _placed(self, key: Any) -> Any:
        """A key of a part as one of what was passed."""
        if not any(self.start) and self.shape == tuple(self.value.shape):
            return key
        keys = key if isinstance(key, tuple) else (key,)
        keys += (slice(None),) * (self.ndim - len(keys))
        placed = []
        for each, begin, size in zip(keys, self.start, self.shape, strict=True):
            if isinstance(each, slice):
                first, last, _ = each.indices(size)
                placed.append(slice(begin + first, begin + max(last, first)))
            else:
                placed.append(begin + each)
        return tuple(placed)

    def __getitem__(self, key: Any) -> HostArray:
        with np.errstate(all="ignore"):
            return np.asarray(self.value[self._placed(key)]).astype(self.dtype, copy=False)

    def __setitem__(self, key: Any, values: HostArray) -> None:
        if not hasattr(type(self.value), "__setitem__"):
            raise ArrayError(f"out is a {type(self.value).__name__}, which cannot be written: use another array")
        with self._turn:
            cast("Any", self.value)[self._placed(key)] = values


class Matrix:
    """A stored operand, of which panels are read and tiles are written: one matrix, or a batch of them.

    Attributes:
        op: what makes op(A) of it as it is stored here.
    """

    def __init__(self, name: str, array: HostArray | Sliced | Elsewhere, op: Op | None = None) -> None:
        """Of A and B the op says what is read of them; without one, rows and columns are those of the result."""
        self.name, self.array, self.op = name, array, op or "N"
        if op is not None and isinstance(array, Elsewhere) and array.is_column_major:
            self.array, self.op = array.turned(), transposed(op)
        if op is not None and isinstance(array, np.ndarray) and _is_column_major(array):  # read as it lies
            self.array, self.op = array.swapaxes(-1, -2), transposed(op)

    def block(self, batch: int, rows: Span, columns: Span) -> HostArray:
        """Stored rows and columns of a matrix of a batch, in the operand's own type."""
        assert not isinstance(self.array, Elsewhere)
        return self.array[self.key(batch, rows, columns)]

    def key(self, batch: int, rows: Span, columns: Span) -> tuple[Any, ...]:
        """The index of stored rows and columns of a matrix of a batch."""
        key = (slice(*rows), slice(*columns))
        return (batch, *key) if self.array.ndim == 3 else key

    def write(
        self, batch: int, rows: Span, columns: Span, values: HostArray, copy: Callable[[HostArray, HostArray], object]
    ) -> None:
        """Writes stored rows and columns, converted to the operand's type.

        Args:
            copy: copies them to where they lie, in an array of NumPy's.
        """
        key = self.key(batch, rows, columns)
        if isinstance(self.array, np.ndarray):
            copy(values, self.array[key])
        elif isinstance(self.array, Sliced):
            with np.errstate(all="ignore"):
                self.array[key] = values.astype(self.array.dtype, copy=False)

    @property
    def multiple(self) -> tuple[int, int]:
        """Rows and columns that are best read and written together."""
        chunks = self.array.chunks if isinstance(self.array, Sliced) else None
        return (int(chunks[-2]), int(chunks[-1])) if chunks else (1, 1)


def _is_column_major(x: HostArray) -> bool:
    down, across = (abs(step) for step in x.strides[-2:])
    return bool(down < across and x.shape[-2] > 1)


def map_of(x: object) -> np.memmap[Any, Any] | None:
    """The memory map in which an array lies, if there is one."""
    while x is not None and not isinstance(x, np.memmap):
        x = getattr(x, "base", None)
    while isinstance(x, np.memmap) and isinstance(x.base, np.memmap):
        x = x.base
    return x


Operand: TypeAlias = "HostArray | Sliced | Elsewhere | DeviceArray"


def may_share(x: Operand, y: Operand) -> bool:
    """Whether two arrays may have elements in common, in the host's memory or in a file."""
    if isinstance(x, DeviceArray | Elsewhere) or isinstance(y, DeviceArray | Elsewhere):
        return False
    if isinstance(x, Sliced) or isinstance(y, Sliced):
        return isinstance(x, Sliced) and isinstance(y, Sliced) and (x.value is y.value or _place(x) == _place(y))
    if np.may_share_memory(x, y):
        return True
    first, second = map_of(x), map_of(y)
    if first is None or second is None or first is second or first.filename is None or second.filename is None:
        return False
    try:
        return os.path.samefile(first.filename, second.filename)
    except OSError:
        return False


def _place(x: Sliced) -> object:
    store, path = getattr(x.value, "store", None), getattr(x.value, "path", None)
    return (str(store), path) if store is not None else id(x.value)
