"""A CUDA context as this thread's current one."""

from __future__ import annotations

from types import TracebackType
from typing import Any

import pycuda.driver as cu

from gemmport.backends._errors import RuntimeErrors
from gemmport.core.device import DeviceInfo


class Current(RuntimeErrors):
    """A context, current inside of a `with`, and the runtime's errors as ours."""

    def __init__(self, device: DeviceInfo, context: Any) -> None:
        super().__init__(device, cu.Error, cu.MemoryError)
        self.context = context

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
        if error is not None:
            self.translate(error)
