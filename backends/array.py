"""A strided array in device memory: to carry numbers in, out and into a product, to slice and to convert them."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from types import EllipsisType, TracebackType
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import numpy.typing as npt
from numpy.lib.mixins import NDArrayOperatorsMixin

from gemmport.backends._operations import operations
from gemmport.backends.segments import allocations, within_one
from gemmport.core import dlpack
from gemmport.core.dtypes import as_dtype, is_named_by_ml_dtypes
from gemmport.core.errors import ArrayError, DtypeError, ShapeError, UnsupportedError
from gemmport.core.layout import strided

if TYPE_CHECKING:
    from gemmport.backends.base import Backend
    from gemmport.backends.objects import Event, Memory
    from gemmport.core.device import DeviceInfo


_LYING: dict[tuple[object, ...], object] = {}
_MOST_LYING = 2**14


@dataclass(frozen=True, eq=False, repr=False)
class DeviceArray(NDArrayOperatorsMixin):
    """An array on one device. Of operators it has `@`; the others are refused by the names of NumPy's functions.

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

    @cached_property
    def lies(self) -> object:
        """How it lies in its memory: one object for all arrays that lie alike, and so can be read by one plan."""
        memory = self.memory
        lying = self.dtype, self.shape, self.strides, self.offset, memory.alignment, memory.nbytes, type(memory)
        if len(_LYING) >= _MOST_LYING:
            _LYING.clear()
        return _LYING.setdefault(lying, object())

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of its elements."""
        return self.size * self.dtype.itemsize

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return self.dtype.itemsize

    @property
    def allocations(self) -> int:
        """In how many allocations it lies: several where the device does not allow one so large."""
        return allocations(self)

    @property
    def device(self) -> DeviceInfo:
        """The device it is on."""
        return self.backend.device

    @property
    def T(self) -> DeviceArray:  # noqa: N802 - NumPy's name
        """The array with its dimensions reversed, over the same memory."""
        return self._view(self.shape[::-1], self.strides[::-1])

    @property
    def mT(self) -> DeviceArray:  # noqa: N802 - the array API standard's name
        """The array with its last two dimensions exchanged, over the same memory.

        Raises:
            ShapeError: it has fewer than two dimensions.
        """
        if self.ndim < 2:
            raise ShapeError(f"an array must have two dimensions or more to have mT; got shape {self.shape}")
        return self.transpose(*range(self.ndim - 2), -1, -2)

    def transpose(self, *axes: Any) -> DeviceArray:
        """The array with its dimensions in another order, as `numpy.transpose`, over the same memory.

        Raises:
            ShapeError: the axes are not each of its dimensions once.
        """
        order = axes[0] if len(axes) == 1 and not isinstance(axes[0], int | np.integer) else axes or None
        try:
            stand_in = np.transpose(np.broadcast_to(np.int8(0), self.shape), order)
        except ValueError as error:
            raise ShapeError(f"axes {order} do not fit an array of shape {self.shape}: {error}") from None
        steps = range(self.ndim)[::-1] if order is None else [operator.index(axis) for axis in order]
        return self._view(stand_in.shape, tuple(self.strides[axis] for axis in steps))

    @property
    def queue(self) -> Any:
        """The queue or stream on which it was last written: PyOpenCL's, or with `__cuda_stream__`, CUDA's protocol."""
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
            TypeError: the array has no dimensions.
        """
        return (self[number] for number in range(len(self)))

    def __getitem__(self, key: Any) -> DeviceArray:
        """A view over the same memory: integers, slices and new axes, as in NumPy. One element is an array of no dimensions.

        Raises:
            IndexError: out of range, or an index of another kind.
        """
        keys = key if isinstance(key, tuple) else (key,)
        if not all(isinstance(k, _INDICES) and not isinstance(k, bool) for k in keys):
            raise IndexError("device arrays are indexed by integers, slices, None and ...; copy with get() for others")
        # NumPy works the indexing out, on a stand-in of the same strides whose elements are never touched. The ellipsis makes
        # it give an array where no dimension is left.
        base = np.zeros(1, np.int8)
        whole = keys if Ellipsis in keys else (*keys, Ellipsis)
        view = np.lib.stride_tricks.as_strided(base, self.shape, self.strides)[whole]
        moved = view.__array_interface__["data"][0] - base.__array_interface__["data"][0]
        return self._view(view.shape, view.strides, moved)

    def __setitem__(self, key: Any, values: Any) -> None:
        """Writes numbers to a view, as `set`."""
        self[key].set(values)

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
        view = strided(span[self.offset - low :], self.shape, byte_strides)
        return view if self.strides == dense_strides(self.shape) else view.copy()

    def item(self) -> Any:
        """The one element of an array, as Python's number.

        Raises:
            ShapeError: it has more elements, or none.
        """
        if self.size != 1:
            raise ShapeError(f"an array must have one element to be a number; got shape {self.shape}")
        return self.get().item()

    def tolist(self) -> Any:
        """Its numbers as Python's, in lists."""
        return self.get().tolist()

    def __bool__(self) -> bool:
        return bool(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __float__(self) -> float:
        return float(self.item())

    def __complex__(self) -> complex:
        return complex(self.item())

    def set(self, values: Any) -> None:
        """Copies numbers into the array, broadcast and cast within a kind as by `numpy.copyto`.

        From the host, each piece of contiguous elements is one transfer: fast where the array is dense. From an array of this
        device, which may overlap this one, nothing is awaited.

        Raises:
            ShapeError: the shape does not broadcast to the array's. DtypeError: the type is not cast to the array's, or a whole
                number of Python's is none of its type.
            ArrayError: an element is masked, or the array was released.
        """
        self.check_held()
        if isinstance(values, DeviceArray):
            values.check_held()
            self._check_cast(values.dtype)
            source = values._broadcast_to(self.shape)
            if source is None:
                raise ShapeError(f"an array of shape {self.shape} is not set from one of shape {values.shape}")
            operations().assign(source, self)
            return
        check_plain("values", values)
        host = as_numpy("values", values)
        # A number of Python's is of any type that holds it, as in NumPy.
        if isinstance(values, int) and self.dtype.kind in "iu":
            least, most = np.iinfo(self.dtype).min, np.iinfo(self.dtype).max
            if not least <= values <= most:
                raise DtypeError(f"a number of an array of {self.dtype} must be from {least} to {most}; got {values}")
        self._check_cast(host.dtype if hasattr(values, "dtype") or host.ndim else np.min_scalar_type(values))
        try:
            host = np.broadcast_to(host, self.shape)
        except ValueError:
            raise ShapeError(f"an array of shape {self.shape} is not set from one of shape {host.shape}") from None
        if self.size == 0:
            return
        dense = self.ndim  # the dimensions from here on lie densely
        while dense > 0 and self.strides[dense - 1 :] == dense_strides(self.shape[dense - 1 :]):
            dense -= 1
        for index in np.ndindex(*self.shape[:dense]):
            start = self.offset + sum(i * s for i, s in zip(index, self.strides, strict=False))
            piece = np.atleast_1d(host[(*index, ...)])
            self.backend.upload(
                self.memory, piece, offset=start * self.dtype.itemsize, queue=self.queue, dtype=self.dtype
            )

    def _check_cast(self, dtype: np.dtype[Any]) -> None:
        if not np.can_cast(dtype, self.dtype, "same_kind"):
            raise DtypeError(f"an array of {self.dtype} is not set from {dtype}: convert it first")

    def _broadcast_to(self, shape: tuple[int, ...]) -> DeviceArray | None:
        own = self.shape[max(self.ndim - len(shape), 0) :] if self.size == 1 else self.shape
        try:
            fits = np.broadcast_shapes(own, shape) == shape
        except ValueError:
            fits = False
        if not fits:
            return None
        steps = [0 if n == 1 else step for n, step in zip(own, self.strides[self.ndim - len(own) :], strict=True)]
        return self._view(shape, (*(0,) * (len(shape) - len(own)), *steps))

    def fill(self, value: Any) -> None:
        """Sets every element to a number; errors as `set`."""
        one = self.backend.empty((), self.dtype)
        one.set(value)
        self.set(one)

    def copy(self) -> DeviceArray:
        """A row-major copy on the device, enqueued and not awaited."""
        return self.astype(self.dtype)

    def astype(self, dtype: npt.DTypeLike, *, copy: bool = True) -> DeviceArray:
        """A row-major copy in another type, on the device, converted as by `numpy.astype`.

        It is not awaited, but where numbers lose their kind, such as parts after the point: NumPy converts those on the host.

        Args:
            copy: with False the array itself, where it has the type.

        Raises:
            DtypeError: a type that gemmport does not know. ArrayError: the array was released.
        """
        self.check_held()
        kind = element_type(dtype)
        if not copy and kind == self.dtype:
            return self
        target = self.backend.empty(self.shape, kind)
        operations().assign(self, target)
        return target

    def to_device(self, device: Any, /, *, stream: Any = None) -> Any:
        """The array on another device, through the host; the array itself where it is there. The array API standard's name.

        Args:
            device: "cpu" for NumPy's array in the host's memory; another open `Backend`, or an array's `device`.
            stream: must be None.

        Raises:
            ArrayError: no such device is open. UnsupportedError: a stream is given.
        """
        if stream is not None:
            raise UnsupportedError(f"stream must be None, for a copy to another device is awaited; got {stream!r}")
        if isinstance(device, str) and device == "cpu":
            return self.get()
        if device in (self.backend, self.device):
            return self
        if hasattr(device, "asarray"):
            return device.asarray(self.get())
        raise ArrayError(f"device must be 'cpu' or an open backend; got {device!r}: see gemmport.get_backend")

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

    # What NumPy and Python ask of arrays. What is not computed here is refused by name: nothing is silently something else.

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> npt.NDArray[Any]:
        """A copy on the host, so that what reads NumPy's arrays reads these: plots, files, a user's tests.

        Raises:
            ValueError: with `copy=False`, since the numbers are not in NumPy's reach.
        """
        if copy is False:
            raise ArrayError(
                f"copy must not be False: an array of {self.device.label} is in NumPy's reach only as a copy"
            )
        host = self.get()
        return host if dtype is None else host.astype(dtype, copy=False)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        return operations().ufunc(ufunc, method, inputs, options)

    def __array_function__(
        self, function: Callable[..., Any], _types: Any, arguments: tuple[Any, ...], options: Mapping[str, Any]
    ) -> Any:
        return operations().function(function, arguments, options)

    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        """The functions of the array API standard that device arrays have: `gemmport.api.array_api`."""
        del api_version  # what is here is the same in all versions
        return operations().namespace()

    def __matmul__(self, other: Any) -> Any:
        return operations().matmul(self, other) if is_operand(other) else NotImplemented

    def __rmatmul__(self, other: Any) -> Any:
        return operations().matmul(other, self) if is_operand(other) else NotImplemented

    def __imatmul__(self, _other: Any) -> Any:
        return NotImplemented  # so that `x @= y` is `x = x @ y`, of which the shape and type may be others

    def _not_compared(self, _other: object) -> NoReturn:
        raise UnsupportedError("device arrays are not compared: use numpy.array_equal(x.get(), y.get()), or `is`")

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _not_compared
    __hash__ = object.__hash__

    def __copy__(self) -> DeviceArray:
        return self.copy()

    def __deepcopy__(self, _memo: object) -> DeviceArray:
        return self.copy()

    def __reduce__(self) -> NoReturn:
        raise ArrayError("an array on a device is not pickled: pickle get(), and make an array of it with asarray")

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
        lying = within_one(self)
        if lying is None:
            raise BufferError(f"{self!r} has no address that DLPack could tell: {_IN_ONE}")
        self.backend.share(lying.memory, stream)
        return dlpack.write(lying._address, device, self.dtype, self.shape, self.strides, lying)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        if (
            self.backend.dlpack_device is None
            or self.backend.dlpack_device[0] != dlpack.CUDA
            or self.dtype.kind not in "biufc"
            or self.dtype.isbuiltin != 1
        ):
            raise AttributeError(f"{self!r} has no __cuda_array_interface__")
        lying = within_one(self)
        if lying is None:
            raise AttributeError(f"{self!r} has no __cuda_array_interface__, for it has no address: {_IN_ONE}")
        size = self.dtype.itemsize
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (lying._address if self.size else 0, False),
            "strides": tuple(s * size for s in self.strides),
            "stream": self.backend.share(lying.memory, -1),
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
        return f"<DeviceArray {self._told}>"

    def _repr_html_(self) -> str:
        """One line for notebooks; numbers are not fetched from a device unasked."""
        return f"<code>DeviceArray</code> {escape(self._told)}, {self.nbytes:,} bytes"

    @property
    def _told(self) -> str:
        strides = "" if self.strides == dense_strides(self.shape) else f" strides={self.strides}"
        several = f", in {self.allocations} allocations" if self.allocations > 1 else ""
        return f"{self.shape} {self.dtype}{strides} on {self.device.backend} {self.device.platform}{several}"


_IN_ONE = "take a view that lies in one allocation, such as some of its rows, or copy it with get()"

_INDICES = (int, np.integer, slice, EllipsisType, type(None))


def is_operand(value: object) -> bool:
    """Whether a product may take it; other objects decide themselves."""
    return is_array(value, "shape") or isinstance(value, list | tuple)


def is_array(value: object, *attributes: str) -> bool:
    """Whether a value has the attributes of an array."""
    try:
        return all(hasattr(value, name) for name in attributes)
    except RuntimeError:  # a nested tensor of PyTorch has a shape, and refuses to tell it
        return True


def as_numpy(name: str, value: Any) -> npt.NDArray[Any]:
    """What NumPy makes of an array, or of lists.

    Raises:
        ShapeError: lists of unlike lengths. ArrayError: an array that does not become NumPy's, in its library's words.
    """
    try:
        return np.asarray(value)
    except ValueError as error:
        raise ShapeError(f"{name} must be an array, or a list of arrays of one shape: {error}") from None
    except (TypeError, RuntimeError) as error:
        if isinstance(error, NotImplementedError) and not is_array(value, "shape"):
            raise  # of an object's own __array__, which NumPy lets through
        raise ArrayError(
            f"{name} must be an array that NumPy reads; got a {type(value).__name__}: {str(error).rstrip('.')}"
        ) from error


def _is_numeric(dtype: np.dtype[Any]) -> bool:
    """Whether elements are numbers: not text, dates, records or Python's objects."""
    return dtype.kind in "biufc" or (dtype.kind == "V" and dtype.names is None and dtype.type is not np.void)


def element_type(dtype: npt.DTypeLike) -> np.dtype[Any]:
    """A type of numbers by NumPy's words for it, or ml_dtypes'.

    Raises:
        DtypeError: it is not a type of numbers.
    """
    try:
        kind = as_dtype(dtype).numpy if is_named_by_ml_dtypes(dtype) else np.dtype(dtype)
    except (TypeError, ValueError, SyntaxError) as error:  # NumPy's, for texts that name no type
        raise DtypeError(f"dtype must be one of NumPy's; got {str(dtype)[:100]}: {error}") from None
    if not _is_numeric(kind):
        raise DtypeError(f"elements must be numbers; got {kind}: convert them first")
    return kind


_PLAIN = {bool, int, float, complex}
"""Types of Python's numbers."""


def check_plain(name: str, value: Any) -> None:
    """Raises ArrayError where an array, or one in lists, has masked elements (`numpy.ma`) or is sparse: numbers alone are read,
    and all of them.
    """
    if isinstance(value, list | tuple):
        if _PLAIN.issuperset(map(type, value)):  # as most lists are, which are rows
            return
        for item in value:
            check_plain(name, item)
    elif np.ma.is_masked(value):
        mask = np.ma.getmaskarray(value)
        raise ArrayError(
            f"{name} must have no masked elements; {np.count_nonzero(mask)} of {mask.size} are: pass {name}.filled(0), or "
            f"{name}.data for the numbers under the mask"
        )
    elif not isinstance(value, np.ndarray | DeviceArray) and hasattr(type(value), "todense"):  # of SciPy, CuPy, sparse
        raise ArrayError(f"{name} must be dense; got a sparse {type(value).__name__}: pass {name}.todense()")


def sizes_of(shape: int | Sequence[int]) -> tuple[int, ...]:
    """A shape as a tuple of sizes.

    Raises:
        ShapeError: one is negative or not a whole number.
    """
    given = shape if isinstance(shape, Sequence) else (shape,)
    try:
        sizes = tuple(operator.index(size) for size in given)
    except (TypeError, NotImplementedError):  # of a memoryview of several dimensions
        raise ShapeError(f"shape {shape!r} is not made of whole numbers") from None
    if any(size < 0 for size in sizes):
        raise ShapeError(f"shape {shape!r} has a negative size")
    return sizes


def dense_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Element strides of a C-contiguous array."""
    strides: list[int] = []
    step = 1
    for extent in reversed(shape):
        strides.append(step)
        step *= max(extent, 1)
    return tuple(reversed(strides))


def is_dense(array: DeviceArray) -> bool:
    """Whether elements lie one after another in their (C) order."""
    return array.strides == dense_strides(array.shape) or array.size <= 1


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
