"""A strided array in device memory: enough to carry data in, out and into a product, and to slice it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import EllipsisType, TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from gemmport.core import dlpack
from gemmport.core.errors import ArrayError, DtypeError, ShapeError

if TYPE_CHECKING:
    from gemmport.backends.base import Backend
    from gemmport.backends.objects import Event, Memory


@dataclass(frozen=True, eq=False, repr=False)
class DeviceArray:
    """An array on one device.

    Other libraries read it in place through DLPack and, on CUDA, `__cuda_array_interface__`. At the end of a `with` its memory
    is released; otherwise it is when nothing refers to it or to a view of it.

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
        return self._view(self.shape[::-1], self.strides[::-1])

    @property
    def queue(self) -> Any:
        """The queue or stream on which it was last written, in the runtime's type."""
        return self.backend.queue_of(self.memory)

    @property
    def ready(self) -> Event:
        """The point in its `queue` after everything enqueued so far: what waits for this event sees the array's contents."""
        return self.backend.mark(queue=self.queue)

    def __len__(self) -> int:
        """The first size.

        Raises:
            TypeError: the array has no dimensions.
        """
        if not self.shape:
            raise TypeError("len() of an array without dimensions")
        return self.shape[0]

    def __iter__(self) -> Iterator[DeviceArray]:
        """Views along the first dimension.

        Raises:
            ArrayError: the array has fewer than two dimensions, so that its elements are no arrays.
        """
        if self.ndim < 2:
            raise ArrayError(
                f"an array of shape {self.shape} has no views of one element: copy it to the host with get()"
            )
        return (self[number] for number in range(len(self)))

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> npt.NDArray[Any]:
        """Refuses NumPy, which would else take the array for a sequence of sequences without numbers.

        Raises:
            ArrayError: always.
        """
        raise ArrayError(f"NumPy reads no array of {self.backend.device.label}: copy it to the host with get()")

    def __getitem__(self, key: Any) -> DeviceArray:
        """A view over the same memory: integers and slices, as in NumPy.

        Raises:
            IndexError: out of range, or an index of another kind.
        """
        keys = key if isinstance(key, tuple) else (key,)
        if not all(isinstance(k, int | np.integer | slice | EllipsisType) and not isinstance(k, bool) for k in keys):
            raise IndexError("device arrays are indexed by integers and slices")
        if sum(isinstance(k, int | np.integer) for k in keys) == self.ndim:
            raise IndexError("an index that leaves no dimension is not a view; use a slice, or get() first")
        # NumPy works the indexing out, on a stand-in of the same strides whose elements are never touched.
        base = np.zeros(1, np.int8)
        view = np.lib.stride_tricks.as_strided(base, self.shape, self.strides)[key]
        moved = view.__array_interface__["data"][0] - base.__array_interface__["data"][0]
        return self._view(view.shape, view.strides, moved)

    def reshape(self, *shape: Any) -> DeviceArray:
        """A view of another shape with the elements in the same (C) order; one size may be -1.

        Raises:
            ShapeError: the shape has another number of elements.
            ArrayError: the elements do not lie so that a view can have that shape.
        """
        wanted = tuple(shape[0]) if len(shape) == 1 and isinstance(shape[0], Sequence) else shape
        try:
            full = np.broadcast_to(np.int8(0), self.shape).reshape(wanted).shape
        except (TypeError, ValueError) as error:
            raise ShapeError(f"an array of shape {self.shape} cannot have the shape {wanted}: {error}") from None
        strides = _reshaped_strides(self.shape, self.strides, full)
        if strides is None:
            raise ArrayError(
                f"an array of shape {self.shape} and strides {self.strides} has no view of shape {full}: only a copy has"
            )
        return self._view(full, strides)

    def get(self) -> npt.NDArray[Any]:
        """A copy on the host, after everything that was enqueued to write it.

        Raises:
            ArrayError: the array was released.
        """
        self.check_held()
        if self.size == 0:
            return np.empty(self.shape, self.dtype)
        low, high = self.reach
        span = np.empty(high - low, self.dtype)
        self.backend.download(self.memory, span, offset=low * self.dtype.itemsize, queue=self.queue)
        byte_strides = [s * self.dtype.itemsize for s in self.strides]
        view = np.lib.stride_tricks.as_strided(span[self.offset - low :], self.shape, byte_strides)
        return view if self.strides == dense_strides(self.shape) else view.copy()

    def set(self, host: npt.ArrayLike) -> None:
        """Copies numbers from the host into the array, broadcast and cast within a kind as by `numpy.copyto`.

        Each piece of contiguous elements is one transfer: fast where the array is dense.

        Raises:
            ShapeError: the shape does not broadcast to the array's. DtypeError: the type is not cast to the array's.
            ArrayError: an element is masked, or the array was released.
        """
        self.check_held()
        check_unmasked("host", host)
        values = as_numpy("host", host)
        if not np.can_cast(values.dtype, self.dtype, "same_kind"):
            raise DtypeError(f"an array of {self.dtype} is not set from {values.dtype}: convert it first")
        try:
            with np.errstate(all="ignore"):
                values = np.ascontiguousarray(np.broadcast_to(values, self.shape), self.dtype).reshape(self.shape)
        except ValueError:
            raise ShapeError(f"an array of shape {self.shape} is not set from one of shape {values.shape}") from None
        if self.size == 0:
            return
        dense = self.ndim  # the dimensions from here on lie densely
        while dense > 0 and self.strides[dense - 1 :] == dense_strides(self.shape[dense - 1 :]):
            dense -= 1
        for index in np.ndindex(*self.shape[:dense]):
            start = self.offset + sum(i * s for i, s in zip(index, self.strides, strict=False))
            self.backend.upload(
                self.memory, values[index].reshape(-1), offset=start * self.dtype.itemsize, queue=self.queue
            )

    def release(self) -> None:
        """Gives the memory back, for all views of it. Work that is already enqueued is not disturbed."""
        self.memory.release()

    def check_held(self) -> None:
        """Raises ArrayError where the memory was released."""
        if self.memory.released:
            raise ArrayError(f"an array of shape {self.shape} must not be used after it was released: make another")

    @property
    def reach(self) -> tuple[int, int]:
        """The first element of the memory that the array touches and the one after the last, as offsets in elements."""
        if self.size == 0:
            return self.offset, self.offset
        steps = [(n - 1) * s for n, s in zip(self.shape, self.strides, strict=True)]
        return self.offset + sum(s for s in steps if s < 0), self.offset + sum(s for s in steps if s > 0) + 1

    def __dlpack_device__(self) -> tuple[int, int]:
        """The device in DLPack's numbers.

        Raises:
            BufferError: DLPack's consumers do not reach this device.
        """
        device = self.backend.dlpack_device
        if device is None:
            raise BufferError(f"{self.backend.device.label} is not reached through DLPack: copy with get()")
        return device

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> object:
        """A DLPack capsule over the same memory; the consumer's stream waits for the array, the host does not.

        Raises:
            BufferError: a copy, or another device, is asked for, or the device is not reached through DLPack.
        """
        device = self.__dlpack_device__()
        if copy or dl_device not in (None, device):
            raise BufferError("device arrays are handed over in place, on their own device")
        self.backend.share(self.memory, stream)
        return dlpack.write(self._address, device, self.dtype, self.shape, self.strides, self)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        if (
            self.backend.dlpack_device is None
            or self.backend.dlpack_device[0] != dlpack.CUDA
            or self.dtype.kind not in "biufc"
        ):
            raise AttributeError(f"{self!r} has no __cuda_array_interface__")
        size = self.dtype.itemsize
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self._address if self.size else 0, False),
            "strides": tuple(s * size for s in self.strides),
            "stream": self.backend.share(self.memory, -1),
            "version": 3,
        }

    @property
    def _address(self) -> int:
        return self.memory.handle + self.offset * self.dtype.itemsize

    def _view(self, shape: tuple[int, ...], strides: tuple[int, ...], moved: int = 0) -> DeviceArray:
        return DeviceArray(self.backend, self.memory, shape, self.dtype, strides, self.offset + moved)

    def __enter__(self) -> DeviceArray:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def __repr__(self) -> str:
        strides = "" if self.strides == dense_strides(self.shape) else f", strides={self.strides}"
        return f"<DeviceArray shape={self.shape}, dtype={self.dtype}{strides}, on {self.backend.device.label}>"


def as_numpy(name: str, value: Any) -> npt.NDArray[Any]:
    """What NumPy makes of an array, or of lists.

    Raises:
        ShapeError: lists of unlike lengths.
    """
    try:
        return np.asarray(value)
    except ValueError as error:
        raise ShapeError(f"{name} must be an array, or a list of arrays of one shape: {error}") from None


def check_unmasked(name: str, value: Any) -> None:
    """Raises ArrayError where an element of an array, or of arrays in lists, is masked (`numpy.ma`): numbers alone are read."""
    if isinstance(value, list | tuple):
        for item in value:
            check_unmasked(name, item)
    elif np.ma.is_masked(value):
        mask = np.ma.getmaskarray(value)
        raise ArrayError(
            f"{name} must have no masked elements; {np.count_nonzero(mask)} of {mask.size} are: pass {name}.filled(0), or "
            f"{name}.data for the numbers under the mask"
        )


def dense_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Element strides of a C-contiguous array."""
    strides: list[int] = []
    step = 1
    for extent in reversed(shape):
        strides.append(step)
        step *= max(extent, 1)
    return tuple(reversed(strides))


def merged(shape: Sequence[int], *strides: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """The fewest dimensions that visit the same elements in the same order, through each of several sets of strides.

    Dimensions of size 1 are dropped, neighbours joined where the outer one continues the inner one.

    Returns:
        The shape, and as many sets of strides as were given.
    """
    kept: list[tuple[int, tuple[int, ...]]] = []
    for extent, steps in zip(shape, zip(*strides, strict=True), strict=True):
        if extent == 1:
            continue
        if kept and all(outer == extent * inner for outer, inner in zip(kept[-1][1], steps, strict=True)):
            kept[-1] = (kept[-1][0] * extent, steps)
        else:
            kept.append((extent, steps))
    return tuple(n for n, _ in kept), *(tuple(steps[i] for _, steps in kept) for i in range(len(strides)))


def _reshaped_strides(shape: tuple[int, ...], strides: tuple[int, ...], new: tuple[int, ...]) -> tuple[int, ...] | None:
    """Strides by which the elements are visited in the same order in another shape of the same size; None where none do."""
    if 0 in shape:
        return dense_strides(new)
    pieces: Iterator[tuple[int, int]] = zip(*merged(shape, strides), strict=True)
    found: list[int] = []
    left, step = 1, 0  # of the present piece: how often it still divides, and the step of what is left
    for extent in (n for n in new if n != 1):
        if left == 1:
            size, inner = next(pieces)
            left, step = size, inner * size
        if left % extent:
            return None
        left, step = left // extent, step // extent
        found.append(step)
    # A dimension of size 1 gets the stride that it has in a dense array.
    full: list[int] = []
    for i in reversed(range(len(new))):
        follows = full[-1] * new[i + 1] if full else 1
        full.append(found.pop() if new[i] != 1 else follows)
    return tuple(reversed(full))
