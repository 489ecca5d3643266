"""Code for devices that are not here: CUDA alone has a compiler that needs none."""

from __future__ import annotations

from gemmport.backends import _nvrtc
from gemmport.backends.objects import Disassembly
from gemmport.core.device import DeviceInfo
from gemmport.core.errors import BackendUnavailableError


def disassemble(device: DeviceInfo, source: str, function: str) -> Disassembly:
    """What `Backend.disassemble` tells, for a device by its description; the most work-items of a group are not known.

    Raises:
        BackendUnavailableError: the device's backend compiles on the device alone.
        CompileError: as `Backend.compile`.
    """
    if device.backend != "cuda":
        raise BackendUnavailableError(f"only CUDA compiles for a device that is not here, not {device.backend}")
    return _nvrtc.disassemble(source, device.architecture, function)
