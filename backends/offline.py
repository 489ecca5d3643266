"""Code for devices that are not here: CUDA's, by NVIDIA's compiler; of OpenCL AMD's and Intel's GPUs, by LLVM's and Intel's."""

from __future__ import annotations

from gemmport.backends import _amdgpu, _compilation, _intelgpu, _nvrtc
from gemmport.backends.objects import Disassembly, LoopBound
from gemmport.contracts import intel
from gemmport.core.device import DeviceInfo
from gemmport.core.errors import BackendUnavailableError


def disassemble(device: DeviceInfo, source: str, function: str) -> Disassembly:
    """What `Backend.disassemble` tells, for a device by its description.

    Raises:
        BackendUnavailableError: the device's runtime compiles on the device alone.
        ToolUnavailableError: the compiler is not installed.
        CompileError: as `Backend.compile`.
    """
    if device.backend == "cuda":
        return _nvrtc.disassemble(source, device.architecture, function)
    if _is_amds(device):
        return _amdgpu.disassemble(device, source, function, _compilation.options(device))
    if _is_intels(device):
        return _intelgpu.disassemble(device, source, function, _compilation.options(device))
    raise BackendUnavailableError(
        f"CUDA, and OpenCL for AMD's and Intel's GPUs, compile for a device that is not here; got {device.label}; compile on it"
    )


def loop_bound(device: DeviceInfo, code: str) -> LoopBound | str | None:
    """A model's bound for a round of a loop, or why there is none; None for devices that nobody models.

    Args:
        code: the loop's instructions as `disassemble` told them, one a line.
    """
    return _amdgpu.loop_bound(device, code) if _is_amds(device) else None


def _is_amds(device: DeviceInfo) -> bool:
    return device.backend == "opencl" and device.vendor == "amd" and device.architecture.startswith("gfx")


def _is_intels(device: DeviceInfo) -> bool:
    return device.backend == "opencl" and device.vendor == "intel" and device.architecture in intel.ARCHITECTURES
