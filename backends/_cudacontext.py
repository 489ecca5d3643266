"""CUDA's contexts: those of devices, and one as this thread's current one."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from types import TracebackType
from typing import Any

import pycuda.driver as cu

from gemmport.backends._cudadriver import Relaxed
from gemmport.backends._errors import RuntimeErrors
from gemmport.core.device import DeviceInfo
from gemmport.core.errors import DeviceLostError
from gemmport.runtime.kept import keep_for_good

_primary: dict[int, Any] = {}
"""Contexts by the number of their device."""

_retaining = threading.Lock()


def primary(number: int) -> Any:
    """The primary context of a device as PyCUDA has it. The process keeps it until it ends, as PyTorch, CuPy and JAX do.

    PyCUDA must never collect one. It would make the context the thread's current one, and leave it there (`context::detach` in
    its `cuda.hpp`, 2026.1). What the thread makes next then lies on that device, such as CuPy's arrays and the queue of a
    backend that is being opened.

    Raises:
        pycuda.driver.Error: the driver refuses a context.
    """
    with _retaining:
        if number not in _primary:
            with Relaxed():
                made = _primary[number] = cu.Device(number).retain_primary_context()
            keep_for_good(made)  # the end of the process would give it back, too
        return _primary[number]


class Current(RuntimeErrors):
    """A context, current inside of a `with`, and the runtime's errors as ours."""

    def __init__(self, device: DeviceInfo, context: Any, lose: Callable[[DeviceLostError], object]) -> None:
        """Takes also what is told when the device is lost, and raises then."""
        super().__init__(device, cu.Error, cu.MemoryError)
        self.context, self._lose = context, weakref.WeakMethod(lose)

    def __enter__(self) -> None:
        try:
            self.context.push()
        except cu.Error as error:
            self.translate(error)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            cu.Context.pop()
        except cu.Error as failed:
            error = error or failed
        if isinstance(error, DeviceLostError) and (lose := self._lose()) is not None:
            lose(error)
        if error is not None:
            self.translate(error)
