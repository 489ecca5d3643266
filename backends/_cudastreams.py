"""Streams as places to enqueue on: a context that is current, and PyCUDA's stream in it, or one beside another library's."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

import pycuda.driver as cu

from gemmport.backends import _cudadriver
from gemmport.backends._errors import RuntimeErrors
from gemmport.core.device import DeviceInfo
from gemmport.core.errors import LaunchError


@dataclass(frozen=True)
class Stream:
    """Another library's stream.

    PyCUDA has no object for it, except for the legacy stream. So work goes to a stream of ours beside it, and events join the
    two.

    Attributes:
        handle: the CUstream.
        beside: PyCUDA's stream beside it; None for the legacy stream, as PyCUDA calls it.
        keeper: the library's own object, which keeps the stream alive.
    """

    handle: int
    beside: Any = field(default=None, compare=False)
    keeper: object = field(default=None, compare=False, repr=False)


LEGACY = Stream(_cudadriver.LEGACY)
"""The stream of those who name none, such as PyTorch and CuPy."""


class Current(RuntimeErrors):
    """A context as this thread's current one, with PyCUDA's stream to enqueue on, and the runtime's errors as ours."""

    def __init__(self, device: DeviceInfo, context: Any, stream: Any = None) -> None:
        super().__init__(device, cu.Error, cu.MemoryError)
        self.context, self.stream = context, stream

    def __enter__(self) -> Any:
        try:
            self.context.push()
        except cu.Error as error:
            self.translate(error)
        return self.stream

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            cu.Context.pop()
        except cu.Error as failed:
            error = error or failed
        if error is not None:
            self.translate(error)


class Beside(Current):
    """The stream beside another library's, which it joins at both ends."""

    def __init__(self, device: DeviceInfo, context: Any, foreign: Stream) -> None:
        super().__init__(device, context, foreign.beside)
        self.foreign = foreign

    def __enter__(self) -> Any:
        super().__enter__()
        if self.stream is not None:
            try:
                _cudadriver.join(int(self.stream.handle), self.foreign.handle)
            except BaseException as error:
                super().__exit__(type(error), error, None)
                raise
        return self.stream

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None and self.stream is not None:
                _cudadriver.join(self.foreign.handle, int(self.stream.handle))
        finally:
            super().__exit__(kind, error, trace)


def synchronize(stream: Any) -> None:
    """Waits for what is enqueued on PyCUDA's stream, of which None is the legacy one."""
    if stream is None:
        cu.Event().record().synchronize()
    else:
        stream.synchronize()


def stream_handle(queue: Any) -> int | None:
    """The CUstream of a number, an object of CUDA's stream protocol, PyTorch's or CuPy's; None of anything else."""
    if isinstance(queue, int) and not isinstance(queue, bool):
        return queue
    if hasattr(queue, "__cuda_stream__"):
        protocol = queue.__cuda_stream__
        return int((protocol() if callable(protocol) else protocol)[1])
    handle = getattr(queue, "cuda_stream", getattr(queue, "ptr", None))
    return None if handle is None else int(handle)


def event_handle(event: Any) -> int:
    """The CUevent of `_cudadriver.StreamEvent`, PyTorch's or CuPy's event. No number: the driver would read what lies there.

    Raises:
        LaunchError: it is none of these.
    """
    for name in ("handle", "cuda_event", "ptr"):
        if (handle := getattr(event, name, None)) is not None:
            return int(handle)
    raise LaunchError(f"event must be one of gemmport, PyCUDA, PyTorch or CuPy; got {event!r}")
