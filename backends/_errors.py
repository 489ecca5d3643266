"""A runtime's errors, raised as gemmport's."""

from __future__ import annotations

from types import TracebackType

from gemmport.core.device import DeviceInfo
from gemmport.core.errors import DeviceMemoryError, LaunchError


class RuntimeErrors:
    """Raises the errors of a device's runtime as gemmport's at the end of a `with`; others pass.

    It is a class and not a generator: it stands around every launch.
    """

    def __init__(self, device: DeviceInfo, error: type[Exception], memory_error: type[Exception]) -> None:
        """Takes the device, what its runtime raises, and what that raises where memory is short."""
        self.device, self.error, self.memory_errors = device, error, (memory_error, MemoryError)

    def translate(self, error: BaseException | None) -> None:
        """Raises an error of the runtime as gemmport's.

        Raises:
            DeviceMemoryError: the device has too little memory. LaunchError: the runtime refused something else.
        """
        device = self.device
        if isinstance(error, self.memory_errors):
            raise DeviceMemoryError(
                f"{device.label} is out of memory ({device.memory:,} bytes in all): use smaller or fewer arrays; {error}"
            ) from error
        if isinstance(error, self.error):
            raise LaunchError(f"{device.label}: {error}") from error

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self.translate(error)
