"""What device arrays have of the array API standard: the namespace that `DeviceArray.__array_namespace__` gives.

Products, views, copies and new arrays. What is not here is not computed by gemmport. https://data-apis.org/array-api/
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gemmport.api.contractions import tensordot as _tensordot
from gemmport.api.contractions import vecdot as _vecdot
from gemmport.api.matmul import matmul as _matmul
from gemmport.api.views import moved as _moved
from gemmport.backends.array import DeviceArray
from gemmport.core.device import DeviceInfo
from gemmport.core.errors import ArrayError
from gemmport.execution.selection import get_backend

__array_api_version__ = "2024.12"

bool = np.dtype("bool")  # noqa: A001  # the standard's name
int8, int16, int32, int64 = (np.dtype(f"int{bits}") for bits in (8, 16, 32, 64))
uint8, uint16, uint32, uint64 = (np.dtype(f"uint{bits}") for bits in (8, 16, 32, 64))
float32, float64 = np.dtype("float32"), np.dtype("float64")
complex64, complex128 = np.dtype("complex64"), np.dtype("complex128")

Shape = int | Sequence[int]
Device = DeviceInfo | str | None


def asarray(obj: Any, /, *, dtype: Any = None, device: Device = None, copy: Any = None) -> DeviceArray:
    """An array on a device: numbers of the host, or an array that is there already.

    Raises:
        ArrayError: with `copy=False`, where a copy is needed. Others as `Backend.asarray`.
    """
    backend = obj.backend if isinstance(obj, DeviceArray) and device is None else get_backend(device=device)
    made = backend.asarray(obj, dtype)
    shares = isinstance(obj, DeviceArray) and made.memory is obj.memory
    if copy is False and not shares:
        raise ArrayError(
            f"copy must not be False: {type(obj).__name__} becomes an array of {backend.device.label} by a copy"
        )
    return made.copy() if copy and shares else made


def empty(shape: Shape, *, dtype: Any = None, device: Device = None) -> DeviceArray:
    """An uninitialized array, of float32 where no type is asked for."""
    return get_backend(device=device).empty(shape, dtype or float32)


def zeros(shape: Shape, *, dtype: Any = None, device: Device = None) -> DeviceArray:
    """An array of zeros, of float32 where no type is asked for."""
    return get_backend(device=device).zeros(shape, dtype or float32)


def ones(shape: Shape, *, dtype: Any = None, device: Device = None) -> DeviceArray:
    """An array of ones, of float32 where no type is asked for."""
    return get_backend(device=device).ones(shape, dtype or float32)


def full(shape: Shape, fill_value: Any, *, dtype: Any = None, device: Device = None) -> DeviceArray:
    """An array of one number, of float32 where no type is asked for."""
    return get_backend(device=device).full(shape, fill_value, dtype or float32)


def _like(make: Callable[..., DeviceArray]) -> Callable[..., DeviceArray]:
    def made(x: DeviceArray, /, *, dtype: Any = None, device: Device = None) -> DeviceArray:
        return make(x.shape, dtype=dtype or x.dtype, device=device or x.device)

    return made


empty_like, zeros_like, ones_like = _like(empty), _like(zeros), _like(ones)


def full_like(x: DeviceArray, /, fill_value: Any, *, dtype: Any = None, device: Device = None) -> DeviceArray:
    """An array of one number, of an array's shape."""
    return full(x.shape, fill_value, dtype=dtype or x.dtype, device=device or x.device)


def astype(x: DeviceArray, dtype: Any, /, *, copy: Any = True, device: Device = None) -> DeviceArray:
    """The numbers in another type; see `DeviceArray.astype`."""
    found = x.astype(dtype, copy=copy)
    return found if device is None else asarray(found.to_device(get_backend(device=device)))


def result_type(*arrays_and_dtypes: Any) -> Any:
    """The type that holds the numbers of all."""
    return np.result_type(*(x.dtype if isinstance(x, DeviceArray) else x for x in arrays_and_dtypes))


def matmul(x1: DeviceArray, x2: DeviceArray, /) -> Any:
    """The matrix product; see `gemmport.matmul`."""
    return _matmul(x1, x2)


def tensordot(x1: DeviceArray, x2: DeviceArray, /, *, axes: Any = 2) -> Any:
    """The sums of products over pairs of dimensions."""
    return _tensordot(x1, x2, axes)


def vecdot(x1: DeviceArray, x2: DeviceArray, /, *, axis: int = -1) -> Any:
    """The sums of products along a dimension, the first operand's conjugates."""
    return _vecdot(x1, x2, axis=axis)


def matrix_transpose(x: DeviceArray, /) -> DeviceArray:
    """The array with its last two dimensions exchanged."""
    return x.mT


def permute_dims(x: DeviceArray, /, axes: Sequence[int]) -> DeviceArray:
    """The array with its dimensions in another order."""
    return x.transpose(tuple(axes))


def moveaxis(x: DeviceArray, source: int | Sequence[int], destination: int | Sequence[int], /) -> Any:
    """The array with some dimensions at other places."""
    return _moved(x, *([axes] if isinstance(axes, int) else axes for axes in (source, destination)))


def expand_dims(x: DeviceArray, /, axis: int) -> DeviceArray:
    """The array with one more dimension, of size 1."""
    return x[(*(slice(None),) * (axis % (x.ndim + 1)), None)]


def reshape(x: DeviceArray, /, shape: Sequence[int], *, copy: Any = None) -> DeviceArray:
    """The elements in another shape.

    Raises:
        ArrayError: with `copy=False`, where no view has that shape. ShapeError: the sizes do not fit.
    """
    if copy:
        return x.copy().reshape(tuple(shape))
    try:
        return x.reshape(tuple(shape))
    except ArrayError:
        if copy is False:
            raise
        return x.copy().reshape(tuple(shape))
