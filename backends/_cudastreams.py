"""CUDA's streams, known by their handles: which they are, what is copied on them, events, and graphs.

What is enqueued needs the stream's context to be current.
"""

from __future__ import annotations

import ctypes
import logging
import sys
from contextlib import suppress
from functools import cache
from typing import Any

import numpy.typing as npt

from gemmport.backends import _cudadriver, _scripts
from gemmport.backends._cudadriver import Relaxed
from gemmport.core.errors import LaunchError

log = logging.getLogger(__name__)

LEGACY_HANDLE = 0
"""Of the stream that CUDA programs use by default. It is PyTorch's, CuPy's and PyCUDA's current stream unless they are told
another."""

PER_THREAD_HANDLE = 2
"""Of the default stream of the thread that uses it. No other thread reaches that one."""

CAPTURED = -1
"""The number of a stream that captures a graph, whichever it is."""

_DISABLE_TIMING = 2
_OUT_OF_PEERS = 711

_u64, _size, _pointer = ctypes.c_uint64, ctypes.c_size_t, ctypes.c_void_p

Data = npt.NDArray[Any]


class Stream:
    """A stream, ours or another library's. Two are equal where they are one stream, whatever objects stand for it.

    Attributes:
        handle: the CUstream.
        number: which no other stream of this process ever has; handles are used again, and one handle stands for the default
            stream of each thread. `CAPTURED` of a stream that captures a graph: its handle is its own as long as it does.
        keeper: what keeps the stream alive, such as the library's own object; None where a number alone is known.
    """

    __slots__ = ("_hash", "handle", "keeper", "number")

    def __init__(self, handle: int, keeper: object = None) -> None:
        self.handle, self.keeper = handle, keeper
        self.number = identity(handle) if handle else 0
        self._hash = hash((self.handle, self.number))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and self.number == other.number and self.handle == other.handle

    def __hash__(self) -> int:
        return self._hash

    def __cuda_stream__(self) -> tuple[int, int]:
        """Version and handle, by CUDA's stream protocol."""
        return 0, self.handle

    def __repr__(self) -> str:
        return f"<stream {self.handle:#x}>"


LEGACY = Stream(LEGACY_HANDLE)


class _Own:
    """Keeps a stream that is new, and is destroyed with it: what was enqueued by then is done all the same."""

    def __init__(self, context: Any) -> None:
        handle = ctypes.c_void_p()
        with Relaxed():
            _cudadriver.check("cuStreamCreate", ctypes.byref(handle), ctypes.c_uint(0))
        self.handle = handle.value or 0
        _cudadriver.given_back(self, context, "cuStreamDestroy_v2", handle)


def created(context: Any) -> Stream:
    """A new stream in the current context, which is given, too, as PyCUDA has it.

    Raises:
        LaunchError: the driver refuses.
    """
    own = _Own(context)
    return Stream(own.handle, own)


def stream_handle(queue: Any) -> int | None:
    """The CUstream of a number, an object of CUDA's stream protocol, PyTorch's, CuPy's or PyCUDA's; None of anything else."""
    if isinstance(queue, int) and not isinstance(queue, bool):
        return queue
    if hasattr(queue, "__cuda_stream__"):
        protocol = queue.__cuda_stream__
        return int((protocol() if callable(protocol) else protocol)[1])
    for name in ("cuda_stream", "ptr", "handle"):
        if (handle := getattr(queue, name, None)) is not None:
            return int(handle)
    return None


def current_of_libraries() -> list[int]:
    """The handles of the streams on which this thread works with PyTorch and CuPy now, as far as the process has these."""
    found: list[int] = []
    torch, cupy = (getattr(sys.modules.get(name), "cuda", None) for name in ("torch", "cupy"))
    with suppress(AttributeError):  # of a library that is being imported
        if torch is not None and torch.is_initialized():
            found.append(int(torch.current_stream().cuda_stream))
        if cupy is not None:
            found.append(int(cupy.get_current_stream().ptr))
    return found


def is_on_legacy(array: Any) -> bool:
    """Whether an array is PyTorch's, which works on it on the legacy stream now."""
    torch = sys.modules.get("torch")
    tensor = getattr(torch, "Tensor", None)  # a library that is being imported has none yet
    if torch is None or tensor is None or not isinstance(array, tensor):
        return False
    return bool(torch.cuda.current_stream(array.device).cuda_stream == LEGACY_HANDLE)


def event_handle(event: Any) -> int:
    """The CUevent of `_cudadriver.StreamEvent`, PyTorch's or CuPy's event. No number: the driver would read what lies there.

    Raises:
        LaunchError: it must be one of these.
    """
    for name in ("handle", "cuda_event", "ptr"):
        if (handle := getattr(event, name, None)) is not None:
            return int(handle)
    raise LaunchError(f"event must be one of gemmport, PyCUDA, PyTorch or CuPy; got {event!r}")


# Copies


def upload(target: int, data: Data, stream: int) -> None:
    """Copies a contiguous host array to a device pointer, and waits for it."""
    with Relaxed():
        enqueue_upload(target, data, stream)
        synchronize(stream)


def enqueue_upload(target: int, data: Data, stream: int) -> None:
    """Copies a contiguous host array to a device pointer; a pinned one must stay as it is until that is done."""
    _cudadriver.check(
        "cuMemcpyHtoDAsync_v2", _u64(target), ctypes.c_void_p(data.ctypes.data), _size(data.nbytes), _pointer(stream)
    )


def download(source: int, out: Data, stream: int) -> None:
    """Fills a contiguous host array from a device pointer, and waits for it."""
    with Relaxed():
        enqueue_download(source, out, stream)
        synchronize(stream)


def enqueue_download(source: int, out: Data, stream: int) -> None:
    """Fills a contiguous host array from a device pointer; a pinned one holds it when that is done."""
    _cudadriver.check(
        "cuMemcpyDtoHAsync_v2", ctypes.c_void_p(out.ctypes.data), _u64(source), _size(out.nbytes), _pointer(stream)
    )


def copy(source: int, target: int, nbytes: int, stream: int) -> None:
    """Copies bytes from one device pointer to another."""
    _cudadriver.check("cuMemcpyDtoDAsync_v2", _u64(target), _u64(source), _size(nbytes), _pointer(stream))


def copy_between(source: int, of: int, target: int, to: int, nbytes: int, stream: int) -> None:
    """Copies bytes from a pointer of one context to one of another, of another device.

    Args:
        of, to: the contexts. stream: of one of them, which is current.
    """
    _cudadriver.check(
        "cuMemcpyPeerAsync", _u64(target), _pointer(to), _u64(source), _pointer(of), _size(nbytes), _pointer(stream)
    )


def let_reach(context: int) -> None:
    """Has the device whose context is current reach another one's memory itself, if it can; else the driver copies by the
    host.
    """
    with Relaxed():
        result = _cudadriver.driver().cuCtxEnablePeerAccess(_pointer(context), ctypes.c_uint(0))
    if result == _OUT_OF_PEERS:
        log.info("a device reaches no more others: the driver copies by way of the host")


def fill(target: int, byte: int, nbytes: int, stream: int) -> None:
    """Sets bytes at a device pointer."""
    _cudadriver.check("cuMemsetD8Async", _u64(target), ctypes.c_ubyte(byte), _size(nbytes), _pointer(stream))


def synchronize(stream: int) -> None:
    """Waits for what is enqueued on a stream.

    Raises:
        LaunchError: something of it failed.
    """
    with Relaxed():
        _cudadriver.check("cuStreamSynchronize", _pointer(stream))


# Events


class StreamEvent:
    """A point in a stream, for other streams to wait for."""

    def __init__(self, handle: int) -> None:
        self.handle = handle

    def __del__(self) -> None:
        _cudadriver.driver().cuEventDestroy_v2(
            ctypes.c_void_p(self.handle)
        )  # after the work it stands for, if that is not done


def record(stream: int, *, timed: bool = False) -> StreamEvent:
    """The point in a stream after everything enqueued so far. The stream's context must be current.

    Raises:
        LaunchError: the driver refuses.
    """
    handle = ctypes.c_void_p()
    _cudadriver.check("cuEventCreate", ctypes.byref(handle), ctypes.c_uint(0 if timed else _DISABLE_TIMING))
    event = StreamEvent(handle.value or 0)
    _cudadriver.check("cuEventRecord", handle, ctypes.c_void_p(stream))
    return event


def await_event(event: StreamEvent) -> None:
    """Has the host wait for an event.

    Raises:
        LaunchError: something before it failed.
    """
    with Relaxed():
        _cudadriver.check("cuEventSynchronize", ctypes.c_void_p(event.handle))


def elapsed(start: StreamEvent, end: StreamEvent) -> float:
    """Seconds between two timed events; waits for the second."""
    milliseconds = ctypes.c_float()
    await_event(end)
    with Relaxed():
        _cudadriver.check(
            "cuEventElapsedTime", ctypes.byref(milliseconds), ctypes.c_void_p(start.handle), ctypes.c_void_p(end.handle)
        )
    return milliseconds.value * 1e-3


def wait(stream: int, event: int) -> None:
    """Makes a stream wait, on the device, for an event of any stream.

    Raises:
        LaunchError: the driver refuses.
    """
    _cudadriver.check("cuStreamWaitEvent", ctypes.c_void_p(stream), ctypes.c_void_p(event), ctypes.c_uint(0))


def join(stream: int, other: int) -> None:
    """Makes a stream wait, on the device, for everything enqueued on another so far.

    Raises:
        LaunchError: the driver refuses.
    """
    if stream != other:
        event = record(other)  # kept until the driver has taken note of it
        wait(stream, event.handle)


# Streams


IDENTITY, CAPTURING = "cuStreamGetId", "cuStreamIsCapturing"


def identity(stream: int) -> int:
    """The number of a stream, which is never used again, while handles are. That of the per-thread stream is the thread's.

    The driver refuses to tell that of a stream that captures a graph, and the question ends the capture: that has `CAPTURED`.

    Raises:
        LaunchError: the driver knows no such stream.
    """
    return CAPTURED if is_capturing(stream) else _told(IDENTITY, stream)


def is_capturing(stream: int) -> bool:
    """Whether a stream, which is not the legacy one, captures a graph.

    Raises:
        LaunchError: the driver refuses.
    """
    return _told(CAPTURING, stream) != 0


def asked_at_once(name: str, stream: int) -> int | None:
    """The answer of one of the driver's functions about a stream, in whichever context; None where the driver refuses, or
    `_launching` is missing.
    """
    return None if _scripts.launching is None else _scripts.launching.asked(_address(name), stream)


@cache
def _address(name: str) -> int:
    return _scripts.address_of(_cudadriver.driver()[name])


def _told(name: str, stream: int) -> int:
    number = ctypes.c_ulonglong()
    _cudadriver.check(name, ctypes.c_void_p(stream), ctypes.byref(number))
    return number.value
