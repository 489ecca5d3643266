"""The few calls of CUDA's driver that PyCUDA does not make: on streams that are another library's, known by a number alone; and
that which compiles what OpenCL's driver has made.

PyCUDA 2026.1 has no object for such a stream (its `Stream` always creates one, and takes no handle), and does not tell an
`Event`'s handle. These calls are made straight into the driver, which PyCUDA has loaded by then.
"""

from __future__ import annotations

import ctypes
import sys
from functools import cache

from gemmport.core.errors import LaunchError

LEGACY = 0
"""The stream that CUDA programs use by default. It is PyTorch's, CuPy's and PyCUDA's current stream unless they are told
another."""

_DISABLE_TIMING = 2
_ATTRIBUTE_CONTEXT, _ATTRIBUTE_ORDINAL = 1, 9
_ATTRIBUTES_CAPABILITY = 75, 76
_INPUT_PTX = 1


class StreamEvent:
    """A point in a stream, for other streams to wait for."""

    def __init__(self, handle: int) -> None:
        self.handle = handle

    def __del__(self) -> None:
        _driver().cuEventDestroy_v2(ctypes.c_void_p(self.handle))  # after the work it stands for, if that is not done


def record(stream: int) -> StreamEvent:
    """The point in a stream after everything enqueued so far. The stream's context must be current.

    Raises:
        LaunchError: the driver refuses.
    """
    handle = ctypes.c_void_p()
    _check("cuEventCreate", ctypes.byref(handle), ctypes.c_uint(_DISABLE_TIMING))
    event = StreamEvent(handle.value or 0)
    _check("cuEventRecord", handle, ctypes.c_void_p(stream))
    return event


def wait(stream: int, event: int) -> None:
    """Makes a stream wait, on the device, for an event of any stream.

    Raises:
        LaunchError: the driver refuses.
    """
    _check("cuStreamWaitEvent", ctypes.c_void_p(stream), ctypes.c_void_p(event), ctypes.c_uint(0))


def join(stream: int, other: int) -> None:
    """Makes a stream wait, on the device, for everything enqueued on another so far.

    Raises:
        LaunchError: the driver refuses.
    """
    if stream != other:
        event = record(other)  # kept until the driver has taken note of it
        wait(stream, event.handle)


def is_capturing(stream: int) -> bool:
    """Whether a stream, which is not the legacy one, captures a graph.

    Raises:
        LaunchError: the driver refuses.
    """
    status = ctypes.c_int()
    _check("cuStreamIsCapturing", ctypes.c_void_p(stream), ctypes.byref(status))
    return status.value != 0


def pointer_device(pointer: int) -> int:
    """The number of the device whose memory a pointer points to.

    Raises:
        LaunchError: the driver knows no such pointer.
    """
    number = ctypes.c_int()
    _check("cuPointerGetAttribute", ctypes.byref(number), ctypes.c_int(_ATTRIBUTE_ORDINAL), ctypes.c_uint64(pointer))
    return number.value


def pointer_context(pointer: int) -> int:
    """The handle of the context that a pointer belongs to; 0 where it belongs to none, as that of an asynchronous allocation.

    Raises:
        LaunchError: the driver knows no such pointer.
    """
    handle = ctypes.c_void_p()
    _check("cuPointerGetAttribute", ctypes.byref(handle), ctypes.c_int(_ATTRIBUTE_CONTEXT), ctypes.c_uint64(pointer))
    return handle.value or 0


def linked(ptx: bytes, compute_capability: int) -> bytes:
    """PTX compiled by the driver to a cubin, as it would be when it is loaded. It takes a device's primary context for a while.

    Args:
        ptx: the text.
        compute_capability: of the devices for which it shall be, times ten. One must be there.

    Raises:
        LaunchError: the driver refuses, or knows no such device.
    """
    _check("cuInit", ctypes.c_uint(0))
    device, context, state = _device_of(compute_capability), ctypes.c_void_p(), ctypes.c_void_p()
    _check("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    try:
        _check("cuCtxPushCurrent_v2", context)
        try:
            _check("cuLinkCreate_v2", ctypes.c_uint(0), None, None, ctypes.byref(state))
            try:
                text, cubin, size = ptx.rstrip(b"\0") + b"\0", ctypes.c_void_p(), ctypes.c_size_t()
                _check(
                    "cuLinkAddData_v2", state, ctypes.c_int(_INPUT_PTX), text, ctypes.c_size_t(len(text)), b"program",
                    ctypes.c_uint(0), None, None,
                )  # fmt: skip
                _check("cuLinkComplete", state, ctypes.byref(cubin), ctypes.byref(size))
                return ctypes.string_at(cubin.value or 0, size.value)
            finally:
                _driver().cuLinkDestroy(state)
        finally:
            _driver().cuCtxPopCurrent_v2(ctypes.byref(context))
    finally:
        _driver().cuDevicePrimaryCtxRelease_v2(device)


def _device_of(compute_capability: int) -> ctypes.c_int:
    """A device of a compute capability."""
    number, device = ctypes.c_int(), ctypes.c_int()
    _check("cuDeviceGetCount", ctypes.byref(number))
    for ordinal in range(number.value):
        _check("cuDeviceGet", ctypes.byref(device), ctypes.c_int(ordinal))
        digits = []
        for attribute in _ATTRIBUTES_CAPABILITY:
            value = ctypes.c_int()
            _check("cuDeviceGetAttribute", ctypes.byref(value), ctypes.c_int(attribute), device)
            digits.append(value.value)
        if digits[0] * 10 + digits[1] == compute_capability:
            return device
    raise LaunchError(f"CUDA's driver has no device of compute capability {compute_capability / 10}")


def _check(name: str, *arguments: object) -> None:
    result = getattr(_driver(), name)(*arguments)
    if result != 0:
        text = ctypes.c_char_p()
        _driver().cuGetErrorName(ctypes.c_int(result), ctypes.byref(text))
        raise LaunchError(f"{name}: {(text.value or b'').decode() or result}")


@cache
def _driver() -> ctypes.CDLL:
    return ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
