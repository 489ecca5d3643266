"""OpenCL's errors, and how a device that is lost shows in them.

OpenCL has no error for it. After a kernel that wrote where nothing is, NVIDIA's runtime on an H200 took launches and markers
as if all were well. Who waited got CL_INVALID_COMMAND_QUEUE, who copied CL_OUT_OF_RESOURCES; a flush gave -9999, which OpenCL
does not know. It was so on all queues, and no new context could be made. So after any error our own queue is asked, by a flush,
whether it still takes work: it is valid as long as the backend is open.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import pyopencl as cl

from gemmport.backends._errors import RuntimeErrors
from gemmport.core.device import DeviceInfo
from gemmport.core.errors import DeviceLostError


class Current(RuntimeErrors):
    """The runtime's errors as ours; OpenCL's context is current nowhere."""

    def __init__(self, device: DeviceInfo, queue: Any, lose: Callable[[DeviceLostError], object]) -> None:
        """Of a device.

        Args:
            queue: the backend's own. lose: is called with the error where the device is lost; it raises.
        """
        super().__init__(device, cl.Error, cl.MemoryError)
        self._queue, self._lose = queue, weakref.WeakMethod(lose)

    def translate(self, error: BaseException | None) -> None:
        """As for any runtime, and what was made of an error of the runtime inside, such as a CompileError.

        Raises:
            DeviceLostError: the device is lost; the backend is closed. Others as for any runtime.
        """
        cause = error if error is None or isinstance(error, cl.Error) else error.__cause__
        if isinstance(cause, cl.Error) and self._is_lost(cause) and (lose := self._lose()) is not None:
            lose(DeviceLostError(str(cause)))
        super().translate(error)

    def _is_lost(self, error: cl.Error) -> bool:
        """Whether the device is lost. The runtime may say so. Else our queue is flushed. If that fails, the device is lost,
        unless memory is short.
        """
        if getattr(error, "code", None) == cl.status_code.DEVICE_NOT_AVAILABLE:
            return True
        try:
            self._queue.flush()
        except cl.MemoryError:
            return False
        except cl.Error:
            return True
        return False
