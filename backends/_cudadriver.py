"""CUDA's driver, called without PyCUDA: for what that does not do, and for what is known by a handle alone.

PyCUDA 2026.1 has no object for another library's stream (its `Stream` always creates one, and takes no handle), and tells
neither an `Event`'s nor a `Function`'s handle. What a thread drops last that is not the one which opened the device, it cannot
give back: it warns, and that is lost. So modules, launches (`_cudamodules`), streams, copies, events (`_cudastreams`) and
pinned memory (`_cudahost`) are the driver's own, which PyCUDA has loaded by then. Here stands what they share; and that which
compiles what OpenCL's driver has made.
"""

from __future__ import annotations

import ctypes
import sys
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, NoReturn

from gemmport.core.errors import DeviceLostError, DeviceMemoryError, LaunchError

_ATTRIBUTE_CONTEXT, _ATTRIBUTE_ORDINAL = 1, 9
_ATTRIBUTES_CAPABILITY = 75, 76
_INPUT_PTX = 1
_OUT_OF_MEMORY = 2
_CAPTURE_RELAXED = 2

_CAPTURE_BROKEN_OFF = 901
_CAPTURE_ADVICE = (
    "; a call of another thread, such as JAX's, or of Python's garbage collector has broken the capture of the graph off; call "
    'gc.collect() before you capture, and capture by torch.cuda.graph(..., capture_error_mode="thread_local")'
)
"""Which allows such calls to other threads: docs/interchange.md."""

_LOST = frozenset({214, 220, 700, 702, 710, 714, 715, 716, 717, 718, 719})
"""Results after which the context gives the same to all that is asked of it: of these the driver's documentation says that the
process must be terminated and relaunched.
"""


def pointer_device(pointer: int) -> int:
    """The number of the device whose memory a pointer points to.

    Raises:
        LaunchError: the driver knows no such pointer.
    """
    number = ctypes.c_int()
    check("cuPointerGetAttribute", ctypes.byref(number), ctypes.c_int(_ATTRIBUTE_ORDINAL), ctypes.c_uint64(pointer))
    return number.value


def pointer_context(pointer: int) -> int:
    """The handle of the context that a pointer belongs to; 0 where it belongs to none, as that of an asynchronous allocation.

    Raises:
        LaunchError: the driver knows no such pointer.
    """
    handle = ctypes.c_void_p()
    check("cuPointerGetAttribute", ctypes.byref(handle), ctypes.c_int(_ATTRIBUTE_CONTEXT), ctypes.c_uint64(pointer))
    return handle.value or 0


def linked(ptx: bytes, context: PrimaryContext) -> bytes:
    """PTX compiled by the driver to a cubin, as it would be when it is loaded.

    Args:
        ptx: the text.
        context: of a device of the compute capability for which it shall be.

    Raises:
        OSError: CUDA's driver is not installed.
        LaunchError: the driver refuses the program, or has no device of that compute capability.
    """
    state = ctypes.c_void_p()
    with context.current():
        check("cuLinkCreate_v2", ctypes.c_uint(0), None, None, ctypes.byref(state))
        try:
            text, cubin, size = ptx.rstrip(b"\0") + b"\0", ctypes.c_void_p(), ctypes.c_size_t()
            check(
                "cuLinkAddData_v2", state, ctypes.c_int(_INPUT_PTX), text, ctypes.c_size_t(len(text)), b"program",
                ctypes.c_uint(0), None, None,
            )  # fmt: skip
            check("cuLinkComplete", state, ctypes.byref(cubin), ctypes.byref(size))
            return ctypes.string_at(cubin.value or 0, size.value)
        finally:
            driver().cuLinkDestroy(state)


class PrimaryContext:
    """CUDA's primary context of a GPU that the process uses by OpenCL. It takes longer to make than what is done there. It is
    made when it is first needed, and kept until it is given back.

    It is that of the GPU at a place on PCI; where CUDA does not find it there, that of the first GPU of its compute capability,
    whose programs and tensor maps are the same.

    Attributes:
        compute_capability: times ten.
        place: as `Backend.bus_id`.
    """

    def __init__(self, compute_capability: int, place: str) -> None:
        self.compute_capability, self.place = compute_capability, place
        self._device: ctypes.c_int | None = None
        self._handle = ctypes.c_void_p()
        self._lock = threading.Lock()

    @contextmanager
    def current(self) -> Iterator[None]:
        """Makes it this thread's for a while. What is done there breaks no graph that another thread captures meanwhile.

        Raises:
            OSError: CUDA's driver is not installed.
            LaunchError: the driver refuses a context, or has no device of that compute capability.
        """
        check("cuInit", ctypes.c_uint(0))
        with Relaxed():
            with self._lock:
                if self._device is None:
                    device = _device_of(self.compute_capability, self.place)
                    check("cuDevicePrimaryCtxRetain", ctypes.byref(self._handle), device)
                    self._device = device
            check("cuCtxPushCurrent_v2", self._handle)
            try:
                yield
            finally:
                driver().cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p()))

    def release(self) -> None:
        """Gives it back, where nobody is in it. It is made anew where it is needed again."""
        with self._lock:
            device, self._device = self._device, None
        if device is not None:
            with Relaxed():
                driver().cuDevicePrimaryCtxRelease_v2(device)


def _device_of(compute_capability: int, place: str) -> ctypes.c_int:
    """The device at a place on PCI if it is of a compute capability; else the first one that is."""
    number, device = ctypes.c_int(), ctypes.c_int()
    found = driver().cuDeviceGetByPCIBusId(ctypes.byref(device), place.encode()) == 0
    if found and _capability_of(device) == compute_capability:
        return device
    check("cuDeviceGetCount", ctypes.byref(number))
    for ordinal in range(number.value):
        check("cuDeviceGet", ctypes.byref(device), ctypes.c_int(ordinal))
        if _capability_of(device) == compute_capability:
            return device
    raise LaunchError(f"CUDA's driver has no device of compute capability {compute_capability / 10}")


def _capability_of(device: ctypes.c_int) -> int:
    """A device's compute capability, times ten."""
    digits = []
    for attribute in _ATTRIBUTES_CAPABILITY:
        value = ctypes.c_int()
        check("cuDeviceGetAttribute", ctypes.byref(value), ctypes.c_int(attribute), device)
        digits.append(value.value)
    return digits[0] * 10 + digits[1]


def check(name: str, *arguments: object) -> None:
    """Calls the driver.

    Raises:
        DeviceMemoryError: the device has too little memory. DeviceLostError: a kernel failed, and the context with it.
        LaunchError: the driver refuses something else.
    """
    result = getattr(driver(), name)(*arguments)
    if result != 0:
        fail(name, result)


def fail(name: str, result: int) -> NoReturn:
    """Raises what a result of a call of the driver means, which is not 0.

    Raises:
        DeviceMemoryError, DeviceLostError, LaunchError: always one of these.
    """
    text = ctypes.c_char_p()
    driver().cuGetErrorName(ctypes.c_int(result), ctypes.byref(text))
    told = f"{name}: {(text.value or b'').decode() or result}"
    if result == _CAPTURE_BROKEN_OFF:
        told += _CAPTURE_ADVICE
    if result in _LOST:
        raise DeviceLostError(told)
    raise DeviceMemoryError(told) if result == _OUT_OF_MEMORY else LaunchError(told)


class Relaxed:
    """Inside, the thread may allocate, load and wait while a stream captures a graph. The graph has no part in that.

    Outside, a capture of CUDA's default mode, as PyTorch's and CuPy's, is broken off where any thread of the process does so.

    No generator: it stands around every allocation.
    """

    __slots__ = ("_mode",)

    def __enter__(self) -> None:
        self._mode = ctypes.c_int(_CAPTURE_RELAXED)
        self._exchange()

    def __exit__(self, *_: object) -> None:
        self._exchange()

    def _exchange(self) -> None:
        result = driver().cuThreadExchangeStreamCaptureMode(ctypes.byref(self._mode))
        if result != 0:
            fail("cuThreadExchangeStreamCaptureMode", result)


def given_back(owner: object, context: Any, name: str, handle: ctypes.c_void_p) -> Any:
    """Has a function of the driver give a handle back when its owner is gone: in its context, in whichever thread that is.

    At the end of the process nothing is: the context goes, and everything in it.

    Args:
        context: of PyCUDA, which stays as long as the owner does. name: of the function.

    Returns:
        The finalizer, whose `detach` has the handle stay until the process ends.
    """
    finalizer = weakref.finalize(owner, _give_back, driver(), context, name, handle)
    finalizer.atexit = False
    return finalizer


def _give_back(library: Any, context: Any, name: str, handle: ctypes.c_void_p) -> None:
    """As `given_back`. Nothing is where the device is lost, or this process only inherited it."""
    before = ctypes.c_void_p()
    mode, exchange = ctypes.c_int(_CAPTURE_RELAXED), library.cuThreadExchangeStreamCaptureMode
    if library.cuCtxPushCurrent_v2(ctypes.c_void_p(int(context.handle))) == 0:
        if exchange(ctypes.byref(mode)) == 0:  # the thread, or another, may capture a graph just now
            getattr(library, name)(handle)
            exchange(ctypes.byref(mode))
        library.cuCtxPopCurrent_v2(ctypes.byref(before))


@cache
def driver() -> ctypes.CDLL:
    """CUDA's driver as a library."""
    return ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
