"""Reads and writes DLPack capsules, by which array libraries hand each other memory without copying it.

The structures are those of DLPack's include/dlpack/dlpack.h (https://github.com/dmlc/dlpack): `DLManagedTensor` of version 0.8,
which is read and written, and `DLManagedTensorVersioned` of version 1, which is read.
"""

from __future__ import annotations

import ctypes
import math
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from gemmport.core.dtypes import as_dtype
from gemmport.core.errors import ArrayError, DtypeError

CPU = 1
CUDA = 2
CUDA_HOST = 3
CUDA_MANAGED = 13
"""Types of devices (DLDeviceType)."""

_READ_ONLY = 1
_NAME, _USED = b"dltensor", b"used_dltensor"
_NAME_1, _USED_1 = b"dltensor_versioned", b"used_dltensor_versioned"

# Codes of DLDataTypeCode, by NumPy's kinds of types.
_CODES = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}
_CODES_OF_NAMES = {"bfloat16": 4, "float8_e4m3fn": 10, "float8_e5m2": 12}
"""Of types that NumPy does not have itself, from DLPack 1.1 on; each is of one size."""


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _Managed(ctypes.Structure):
    _fields_ = (("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


class _ManagedVersioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    )


_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_IsValid", ctypes.pythonapi))
_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)
_rename = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_SetName", ctypes.pythonapi))


class _Owner:
    """Stands for the producer's memory: the producer's deleter runs when this is collected."""


@dataclass(frozen=True)
class Tensor:
    """What a capsule tells of an array.

    Attributes:
        pointer: address of the first element.
        device: DLPack's number of the kind of device, and that of the device.
        shape, strides: strides in elements.
        owner: the memory is the producer's again when nothing refers to this any more.
        read_only: whether the producer forbids writing.
    """

    pointer: int
    device: tuple[int, int]
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    owner: object
    read_only: bool = False


def device_of(array: Any) -> tuple[int, int]:
    """The type and number of the device on which another library's array lies.

    (0, 0), which no device has, where the array does not speak DLPack, or is on a device that DLPack has no number for.
    PyTorch raises ValueError for a tensor without memory.
    """
    try:
        kind, number = array.__dlpack_device__()
    except (AttributeError, ValueError, BufferError):
        return 0, 0
    return int(kind), int(number)


def read(capsule: object) -> Tensor:
    """Takes over the array in a capsule, which cannot be read a second time.

    Raises:
        ArrayError: it is not a DLPack capsule of a known version, or was read before.
        DtypeError: NumPy has no such data type.
    """
    managed: _Managed | _ManagedVersioned
    if _is_valid(capsule, _NAME):
        managed, used = _Managed.from_address(_pointer(capsule, _NAME)), _USED
    elif _is_valid(capsule, _NAME_1):
        managed, used = _ManagedVersioned.from_address(_pointer(capsule, _NAME_1)), _USED_1
        if managed.major != 1:
            raise ArrayError(f"the array is given in DLPack {managed.major}.{managed.minor}: only 0 and 1 are read")
    else:
        raise ArrayError(f"a DLPack capsule that nobody has read must be given; got {capsule!r}")
    told = managed.tensor
    dtype = _dtype(told.code, told.bits, told.lanes)
    shape = tuple(told.shape[: told.ndim])
    strides = tuple(told.strides[: told.ndim]) if told.strides else _dense(shape)
    owner = _Owner()
    _rename(capsule, used)
    if managed.deleter:
        finalizer = weakref.finalize(owner, _Deleter(managed.deleter), ctypes.addressof(managed))
        finalizer.atexit = False  # the producer may be gone by then, and the memory goes with the process
    return Tensor(
        (told.data or 0) + told.byte_offset, (told.device_type, told.device_id), dtype, shape, strides, owner,
        read_only=isinstance(managed, _ManagedVersioned) and bool(managed.flags & _READ_ONLY),
    )  # fmt: skip


def write(
    pointer: int,
    device: tuple[int, int],
    dtype: np.dtype[Any],
    shape: Sequence[int],
    strides: Sequence[int],
    keeper: object,
) -> object:
    """A capsule of an array.

    Args:
        pointer: address of the first element. strides: in elements.
        keeper: kept until the consumer has done with the memory, or the capsule is dropped unread.

    Raises:
        DtypeError: DLPack has no such data type.
    """
    code = _CODES_OF_NAMES.get(dtype.name) or _CODES.get(dtype.kind)
    if code is None:
        raise DtypeError(f"dtype {dtype} has no DLPack type: bool, integers, floats and complex numbers do")
    lent = np.asarray(_Lent(pointer, tuple(shape), tuple(strides), keeper))
    capsule: object = lent.__dlpack__()
    told = _Managed.from_address(_pointer(capsule, _NAME)).tensor
    told.data, (told.device_type, told.device_id) = pointer, device
    told.code, told.bits = code, dtype.itemsize * 8
    return capsule


class _Lent:
    """Memory that NumPy takes for an array of bytes, of the shape and strides of ours, to make a capsule of it.

    A capsule's deleter must be C code. Consumers call it from any thread, and while an exception is raised: a deleter in Python
    would lose the exception, or end the process. NumPy's deleter lets go of NumPy's array, which refers to this object.
    Devices, and types that NumPy does not have, are written to the capsule afterwards.
    """

    def __init__(self, pointer: int, shape: tuple[int, ...], strides: tuple[int, ...], keeper: object) -> None:
        self.keeper = keeper
        # Before 2.4, NumPy refused a null pointer, which an empty array may have.
        data = (pointer or 1, False)
        self.__array_interface__ = {"version": 3, "typestr": "|u1", "data": data, "shape": shape, "strides": strides}


def as_numpy(array: Any) -> npt.NDArray[Any]:
    """The NumPy view of an array of another library in the host's memory, of types too that only DLPack hands over.

    Raises:
        ArrayError: it is in another memory.
    """
    told = read(array.__dlpack__())
    if told.device[0] not in (CPU, CUDA_HOST):
        raise ArrayError(
            f"this {type(array).__name__} is on a device of DLPack's kind {told.device[0]}, not on the host"
        )
    size = told.dtype.itemsize
    steps = [(n - 1) * s * size for n, s in zip(told.shape, told.strides, strict=True) if n > 0]
    low, high = sum(s for s in steps if s < 0), sum(s for s in steps if s > 0)
    nbytes = 0 if 0 in told.shape else high - low + size
    if nbytes == 0:
        return np.empty(told.shape, told.dtype)
    raw = (ctypes.c_char * nbytes).from_address(told.pointer + low)
    raw.owner = told.owner  # type: ignore[attr-defined]  # kept with the buffer that the view refers to
    strides = [s * size for s in told.strides]
    view: npt.NDArray[Any] = np.ndarray(told.shape, told.dtype, cast("Any", raw), offset=-low, strides=strides)
    view.flags.writeable = view.flags.writeable and not told.read_only
    return view


def _dtype(code: int, bits: int, lanes: int) -> np.dtype[Any]:
    named = next((name for name, known in _CODES_OF_NAMES.items() if known == code), None)
    if named is not None and lanes == 1 and bits == as_dtype(named).itemsize * 8:
        return as_dtype(named).numpy
    kind = next((kind for kind, known in _CODES.items() if known == code), None)
    if lanes != 1 or kind is None or bits % 8:
        raise DtypeError(f"NumPy has no type for DLPack's code {code} with {bits} bits and {lanes} lanes")
    try:
        return np.dtype(f"{kind}{bits // 8}")
    except TypeError:
        raise DtypeError(f"NumPy has no type for DLPack's code {code} with {bits} bits") from None


def _dense(shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(math.prod(max(n, 1) for n in shape[i + 1 :]) for i in range(len(shape)))
