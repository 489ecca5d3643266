"""A CUDA context as this thread's current one."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from types import TracebackType
from typing import Any

import pycuda.driver as cu

from gemmport.backends._errors import RuntimeErrors
from gemmport.core.device import DeviceInfo
from gemmport.core.errors import DeviceLostError


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
