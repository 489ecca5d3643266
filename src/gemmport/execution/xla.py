"""What XLA, the compiler of JAX, hands to others' functions, and takes from them: its arrays, its stream, and errors.

The structures of its C interface are those of xla/ffi/api/c_api.h, which stands in `jax.ffi.include_dir()`: version 0.1 of an
interface that XLA keeps stable. Later versions add fields behind these.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from gemmport.backends.array import dense_strides
from gemmport.core.dtypes import as_dtype
from gemmport.core.errors import DtypeError, GemmportError
from gemmport.runtime.kept import keep_for_good

_VERSION = 0, 1
_METADATA = 1  # XLA_FFI_Extension_Metadata

_INTERNAL, _INVALID, _UNIMPLEMENTED = 13, 3, 12  # of XLA_FFI_Error_Code

_TYPES = {
    1: "bool", 2: "int8", 3: "int16", 4: "int32", 5: "int64", 6: "uint8", 7: "uint16", 8: "uint32", 9: "uint64",
    10: "float16", 11: "float32", 12: "float64", 15: "complex64", 16: "bfloat16", 18: "complex128", 19: "float8_e5m2",
    20: "float8_e4m3fn",
}  # fmt: skip
"""Of XLA_FFI_DataType."""

_size, _pointer = ctypes.c_size_t, ctypes.c_void_p
_HEAD = (("struct_size", _size), ("extension", _pointer))


class _Extension(ctypes.Structure):
    _fields_ = (("struct_size", _size), ("type", ctypes.c_int), ("next", _pointer))


class _Version(ctypes.Structure):
    _fields_ = (*_HEAD, ("major", ctypes.c_int), ("minor", ctypes.c_int))


class _Metadata(ctypes.Structure):
    _fields_ = (("struct_size", _size), ("version", _Version), ("traits", ctypes.c_uint32))


class _MetadataExtension(ctypes.Structure):
    _fields_ = (("base", _Extension), ("metadata", ctypes.POINTER(_Metadata)))


class _Buffer(ctypes.Structure):
    _fields_ = (
        *_HEAD,
        ("dtype", ctypes.c_int),
        ("data", _pointer),
        ("rank", ctypes.c_int64),
        ("dims", ctypes.POINTER(ctypes.c_int64)),
    )


class _Text(ctypes.Structure):
    _fields_ = (("start", _pointer), ("length", _size))


class _Buffers(ctypes.Structure):
    _fields_ = (
        *_HEAD,
        ("count", ctypes.c_int64),
        ("types", _pointer),
        ("values", ctypes.POINTER(ctypes.POINTER(_Buffer))),
    )


class _Attributes(ctypes.Structure):
    _fields_ = (
        *_HEAD,
        ("count", ctypes.c_int64),
        ("types", _pointer),
        ("names", _pointer),
        ("values", ctypes.POINTER(ctypes.POINTER(_Text))),
    )


class _Api(ctypes.Structure):
    _fields_ = (
        *_HEAD,
        ("version", _Version),
        ("internal", _pointer),
        ("create_error", _pointer),
        ("message_of_error", _pointer),
        ("destroy_error", _pointer),
        ("register_handler", _pointer),
        ("stream", _pointer),
    )


class _Frame(ctypes.Structure):
    _fields_ = (
        *_HEAD,
        ("api", ctypes.POINTER(_Api)),
        ("context", _pointer),
        ("stage", ctypes.c_int),
        ("arguments", _Buffers),
        ("results", _Buffers),
        ("attributes", _Attributes),
    )


class _ErrorArguments(ctypes.Structure):
    _fields_ = (*_HEAD, ("message", ctypes.c_char_p), ("code", ctypes.c_int))


class _StreamArguments(ctypes.Structure):
    _fields_ = (*_HEAD, ("context", _pointer), ("stream", _pointer))


_Function = ctypes.CFUNCTYPE(_pointer, _pointer)
"""Of the interface's functions, and of those that it calls: one structure in, an error or NULL out."""


@cache
def _numpy(number: int) -> np.dtype[Any]:
    name = _TYPES.get(number)
    if name is None:
        raise DtypeError(f"arrays must be of a type that gemmport has; got XLA's number {number}")
    return as_dtype(name).numpy


@dataclass(frozen=True)
class Buffer:
    """An array of XLA's: row-major, and there as long as the call lasts.

    Attributes:
        pointer: of its first element.
    """

    pointer: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def nbytes(self) -> int:
        """Bytes of its elements."""
        return math.prod(self.shape) * self.dtype.itemsize

    def on_host(self) -> npt.NDArray[Any]:
        """The array, in the host's memory, as NumPy's."""
        nbytes = self.nbytes
        if not nbytes:  # there may be no memory
            return np.empty(self.shape, self.dtype)
        memory: Any = (ctypes.c_char * nbytes).from_address(self.pointer)
        return np.ndarray(self.shape, self.dtype, memory)

    def on_gpu(self, stream: int) -> GPUArray:
        """The array, on a GPU, where it is worked on by a stream."""
        return GPUArray(self.pointer, self.shape, self.dtype, dense_strides(self.shape), stream)


@dataclass(eq=False, slots=True)
class GPUArray:
    """An array of XLA's on a GPU, which is there as long as the call lasts that XLA makes.

    Attributes:
        pointer: of its first element.
        strides: per dimension, in elements.
        stream: the CUstream on which XLA wants the work.
    """

    pointer: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    strides: tuple[int, ...]
    stream: int

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def mT(self) -> GPUArray:  # noqa: N802 - the array API standard's name
        """The array with its last two dimensions exchanged, over the same memory."""
        shape, strides = ((*x[:-2], x[-1], x[-2]) for x in (self.shape, self.strides))
        return GPUArray(self.pointer, shape, self.dtype, strides, self.stream)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        # A type that is none of NumPy's has no other name there: NumPy knows it by its own, once ml_dtypes is imported.
        typestr = self.dtype.str if self.dtype.isbuiltin == 1 else self.dtype.name
        size = self.dtype.itemsize
        strides = tuple(step * size for step in self.strides)
        return {
            "version": 3,
            "shape": self.shape,
            "typestr": typestr,
            "data": (self.pointer, False),
            "strides": strides,
        }


class Call:
    """One call by XLA. What it has is there until it returns."""

    def __init__(self, frame: _Frame) -> None:
        self._frame = frame

    @property
    def attribute(self) -> bytes:
        """The text that the call was compiled with."""
        text = self._frame.attributes.values[0].contents
        return ctypes.string_at(text.start, text.length)

    @property
    def pointers(self) -> list[int]:
        """Of the first element of each operand, and of the result. An array without elements lies where the result does."""
        found = [each.data or 0 for each in self._described()]
        return [each or found[-1] for each in found]

    @property
    def arrays(self) -> list[Buffer]:
        """The operands, and the result; they lie at `pointers`."""
        return [
            Buffer(pointer, tuple(each.dims[: each.rank]), _numpy(each.dtype))
            for pointer, each in zip(self.pointers, self._described(), strict=True)
        ]

    def _described(self) -> list[_Buffer]:
        given, made = self._frame.arguments, self._frame.results
        return [each.contents for each in (*given.values[: given.count], made.values[0])]

    @property
    def stream(self) -> int:
        """The CUstream on which XLA wants the work.

        Raises:
            GemmportError: XLA does not tell.
        """
        given = _StreamArguments(struct_size=ctypes.sizeof(_StreamArguments), context=self._frame.context)
        if _Function(self._frame.api.contents.stream)(ctypes.addressof(given)):
            raise GemmportError("XLA must tell the stream of a call; it does not")
        return given.stream or 0


def handler(work: Callable[[Call], None]) -> int:
    """The address of a function that XLA calls, from any of its threads, and that does some work with the interpreter's lock
    held. It stays until the process ends. What the work raises is an error of XLA's, with the message.
    """

    def called(address: int) -> int | None:
        frame = _Frame.from_address(address)
        if frame.extension and _Extension.from_address(frame.extension).type == _METADATA:
            told = _MetadataExtension.from_address(frame.extension).metadata.contents
            told.version.major, told.version.minor = _VERSION
            told.traits = 0  # among them none that would have XLA capture the call in a graph
            return None
        try:
            work(Call(frame))
        except BaseException as error:  # noqa: BLE001 - XLA would take what is not told for success
            return _error(frame, error)
        return None

    function = _Function(called)
    keep_for_good(function)  # XLA's threads may outlive this module
    return ctypes.cast(function, _pointer).value or 0


def _error(frame: _Frame, error: BaseException) -> int | None:
    code = _INVALID if isinstance(error, ValueError | TypeError) else _INTERNAL
    if isinstance(error, NotImplementedError):
        code = _UNIMPLEMENTED
    message = f"{type(error).__name__}: {error}".encode(errors="replace").replace(b"\0", b" ")
    given = _ErrorArguments(struct_size=ctypes.sizeof(_ErrorArguments), message=message, code=code)
    made: int | None = _Function(frame.api.contents.create_error)(ctypes.addressof(given))
    return made
