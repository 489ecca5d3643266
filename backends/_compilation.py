"""What becomes of a source on a device, by the device's description alone: the compiler's options, the macros that it defines
by itself, and what its code is put through afterwards. Needs neither the device nor its runtime.
"""

from __future__ import annotations

import re
from functools import cache

from gemmport.core.device import DeviceInfo
from gemmport.core.quirks import quirks_of

LINKED = "#define LINKED 1\n"
"""What a source has that asks to be linked as under CUDA. Of float64 by the matrix unit OpenCL's own linker makes code that
runs on an H200 at 0.91 of the speed of what CUDA's makes of the same PTX (driver 580.159.04, docs/simt.md).
"""

SPECIFIC = "#define ARCHITECTURE_SPECIFIC 1\n"
"""What a source has that uses instructions of one compute capability alone: it is compiled for sm_90a, say."""

CUDA_OPTIONS = ("--std=c++17", "--generate-line-info")


@cache  # it is asked at each launch of what is not kept
def options(device: DeviceInfo) -> tuple[str, ...]:
    """Options for the compiler of a device."""
    if device.backend == "cuda":
        return CUDA_OPTIONS
    return _opencl_options(device) if device.backend == "opencl" else ()


def predefined(device: DeviceInfo) -> dict[str, str]:
    """Macros that the compiler of a device defines, of which kernels may ask: name → value."""
    if device.language == "cuda":
        return _cuda_macros(device)
    return _opencl_macros(device) if device.language == "opencl" else {}


def rework(device: DeviceInfo, source: str) -> tuple[str, ...]:
    """What is done to the code that the compiler made of a source, with the version of what does it; empty: nothing."""
    if device.platform != "nvidia":
        return ()
    from gemmport.backends import _sass  # noqa: PLC0415 - for NVIDIA's devices alone

    groups = _sass.asked_for(source)
    linked = ("linked",) if device.backend == "opencl" else ()
    if groups and device.architecture == f"sm_{_sass.COMPUTE_CAPABILITY}":
        return (*linked, "rescheduled", str(groups), residency(source), _sass.VERSION)
    return linked if LINKED in source else ()


def residency(source: str) -> str:
    """How many groups a compute unit shall hold, as the source says: GROUPS, for RESIDENT of the prelude; or empty."""
    found = re.search(r"^#define GROUPS (\d+)$", source, flags=re.MULTILINE)
    return found.group(1) if found else ""


def begins_early(source: str) -> bool:
    """Whether a launch may begin before the one before it in its stream has ended, as the source says: EARLY. It then waits."""
    return re.search(r"^#define EARLY 1$", source, flags=re.MULTILINE) is not None


def _opencl_options(device: DeviceInfo) -> tuple[str, ...]:
    known = {quirk.id for quirk in quirks_of(device)}
    return ("-cl-std=CL1.2", *(["-cl-opt-disable"] if "oclgrind-optimized-code" in known else []))


def _opencl_macros(device: DeviceInfo) -> dict[str, str]:
    macros = {"__OPENCL_VERSION__": "120", "__OPENCL_C_VERSION__": "120", **dict.fromkeys(device.extensions, "1")}
    if device.platform == "pocl":
        macros["POCL_DEVICE_ADDRESS_BITS"] = "64"
    if "pocl-vector-stores" in {quirk.id for quirk in quirks_of(device)}:
        macros["__clang_major__"] = "14"  # which the prelude looks for
    return macros


def _cuda_macros(device: DeviceInfo) -> dict[str, str]:
    number = re.search(r"\d+", device.architecture)
    return {"__CUDACC__": "1", **({"__CUDA_ARCH__": f"{number.group()}0"} if number else {})}
