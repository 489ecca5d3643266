"""The devices of OpenCL's platforms, described. Runtimes that pip installed are made known first (`_runtimes`)."""

from __future__ import annotations

import ctypes
import os
import re
from dataclasses import replace
from functools import cache
from pathlib import Path

import pyopencl as cl

from gemmport.backends import _fork, _runtimes
from gemmport.backends.objects import Discovery
from gemmport.contracts.matrix_instructions import DPAS, SMALLEST_SUB_GROUP
from gemmport.core.device import DeviceInfo, DeviceType
from gemmport.core.errors import BackendUnavailableError
from gemmport.core.names import PLATFORMS, VENDORS
from gemmport.core.quirks import quirk, within_limits
from gemmport.runtime.cache import OWN_ICD
from gemmport.runtime.host_cpu import data_caches

HOW_TO_GET_A_RUNTIME = (
    "install one, e.g. pip install 'gemmport[intel]' (any x86-64 CPU) or 'gemmport[pocl]' (no AMD CPU from Zen 5 on), "
    "Debian's pocl-opencl-icd, or the OpenCL driver of your GPU"
)

_UNKNOWN_CPU = quirk("pocl-unknown-cpu")

# float32 lanes of the instruction sets that Intel's runtime for CPUs can be held to (OpenCL Developer Guide for Intel Core and
# Intel Xeon Processors, "Targeting a Different CPU Architecture").
_INTEL_LANES = {"core-avx2": 8, "corei7-avx": 8, "corei7": 4}


def discover() -> Discovery:
    """All devices of all platforms that start, but those whose compiler refuses every program.

    Raises:
        BackendUnavailableError: no OpenCL runtime is installed.
    """
    devices: list[DeviceInfo] = []
    found_platforms = platforms()
    refused = _runtimes.prepare()
    notes = list(refused.values())
    for p, platform in enumerate(found_platforms):
        if _alias(platform) in refused:
            continue
        try:
            found = platform.get_devices()
        except cl.Error as error:
            notes.append(f"platform {platform.name} does not start: {error}")
            continue
        for d, device in enumerate(found):
            told = _describe(platform, device, (p, d))
            if _UNKNOWN_CPU.applies_to(told):
                notes.append(
                    f"{told.label} compiles nothing: its LLVM does not know this processor ({_UNKNOWN_CPU.mark}); "
                    "use another runtime: pip install 'gemmport[intel]', or a later PoCL"
                )
            else:
                devices.append(told)
        if not found:
            hint = "; to use it on the CPU: export RUSTICL_ENABLE=llvmpipe" if _alias(platform) == "rusticl" else ""
            notes.append(f"platform {platform.name} has no device{hint}")
    return Discovery(tuple(devices), tuple(notes))


def platforms() -> list[cl.Platform]:
    """OpenCL's platforms, of which this process is known to use the runtimes from now on.

    Raises:
        BackendUnavailableError: there is none, or none where OCL_ICD_VENDORS of the user's says.
    """
    _fork.started("opencl")
    _runtimes.prepare()
    try:
        return cl.get_platforms()
    except cl.Error as error:  # what the loader raises where there is no ICD
        if chosen := _chosen_by_user():
            raise BackendUnavailableError(
                f"OpenCL's loader finds no runtime where OCL_ICD_VENDORS={chosen!r} says ({error}); unset OCL_ICD_VENDORS"
            ) from error
        raise BackendUnavailableError(f"no OpenCL runtime is installed ({error}); {HOW_TO_GET_A_RUNTIME}") from error


def _chosen_by_user() -> str:
    """OCL_ICD_VENDORS, where gemmport has not set it itself; empty where it has, or nobody has."""
    chosen = os.environ.get("OCL_ICD_VENDORS", "")
    return "" if Path(chosen, OWN_ICD).exists() else chosen


def _alias(platform: cl.Platform) -> str:
    name = platform.name.lower()
    return next((alias for start, alias in PLATFORMS.items() if name.startswith(start)), name)


@cache
def described(device: cl.Device) -> DeviceInfo:
    """The description of a device of any context. One that its platform does not list, such as a part of one, has no number."""
    number = platforms().index(device.platform)
    devices = device.platform.get_devices()
    return _describe(device.platform, device, (number, devices.index(device) if device in devices else len(devices)))


def _describe(platform: cl.Platform, device: cl.Device, index: tuple[int, int]) -> DeviceInfo:
    extensions = frozenset(device.extensions.split())
    items = device.max_work_item_sizes
    kind: DeviceType = "accelerator"
    if device.type & cl.device_type.GPU:
        kind = "gpu"
    elif device.type & cl.device_type.CPU:
        kind = "cpu"
    computes = {"float32"}
    if "cl_khr_fp64" in extensions and device.double_fp_config:
        computes.add("float64")
    if "cl_khr_fp16" in extensions:
        computes.add("float16")
    if DPAS in extensions and (sizes := sub_group_sizes(device)):
        extensions |= {f"{SMALLEST_SUB_GROUP}{min(sizes)}"}
    told = DeviceInfo(
        backend="opencl",
        index=index,
        name=device.name.strip(),
        platform=_alias(platform),
        platform_name=platform.name.strip(),
        platform_version=_version(platform, device),
        driver=device.driver_version,
        vendor=_vendor(device),
        architecture=_architecture(device),
        type=kind,
        compute_units=device.max_compute_units,
        clock_mhz=device.max_clock_frequency or (_host_clock_mhz() if kind == "cpu" else 0),
        memory=device.global_mem_size,
        max_allocation=device.max_mem_alloc_size,
        max_work_group=device.max_work_group_size,
        max_work_item_sizes=(items[0], items[1], items[2]),
        max_groups=2**31 - 1 if device.address_bits == 64 else 2**24,
        local_memory=device.local_mem_size,
        local_memory_is_dedicated=device.local_mem_type == cl.device_local_mem_type.LOCAL,
        sub_group=optional(device, "warp_size_nv", "wavefront_width_amd"),
        registers=optional(device, "registers_per_block_nv"),
        computes=frozenset(computes),
        vector_width=device.native_vector_width_float if kind == "cpu" else 1,
        caches=data_caches() if kind == "cpu" else (),
        extensions=extensions,
    )
    return within_limits(lowered(told))


def lowered(told: DeviceInfo) -> DeviceInfo:
    """A device as it is where CL_CONFIG_CPU_TARGET_ARCH lowers the instruction set that Intel's runtime for CPUs compiles to:
    that goes on telling the vectors of the processor, which are then several of the compiler's.
    """
    target = os.environ.get("CL_CONFIG_CPU_TARGET_ARCH", "")
    if told.platform != "intel" or told.type != "cpu" or target not in _INTEL_LANES:
        return told
    return replace(told, architecture=target, vector_width=min(told.vector_width, _INTEL_LANES[target]))


def optional(device: cl.Device, *names: str) -> int:
    """A number that only some vendors' devices tell; 0 where it is not told."""
    for name in names:
        try:
            return int(getattr(device, name))
        except (AttributeError, cl.Error):
            continue
    return 0


_PCI_BUS_INFO, _SUB_GROUP_SIZES = 0x410F, 0x4108
"""CL_DEVICE_PCI_BUS_INFO_KHR, of cl_khr_pci_bus_info, and CL_DEVICE_SUB_GROUP_SIZES_INTEL, of
cl_intel_required_subgroup_size, which PyOpenCL does not ask for.
"""


def bus_id(device: cl.Device) -> str:
    """Where a GPU is on PCI, as `Backend.bus_id`. NVIDIA's own extension tells a slot, which is not device and function in one
    byte, as clinfo reads it: of GPUs that are devices of one bus, 9 was device 9.
    """
    told = _numbers(device, _PCI_BUS_INFO, ctypes.c_uint, 4)
    return "{:04x}:{:02x}:{:02x}.{}".format(*told) if len(told) == 4 else ""


def sub_group_sizes(device: cl.Device) -> tuple[int, ...]:
    """Lanes that sub-groups may have, by Intel's extension; empty where the device does not tell."""
    return _numbers(device, _SUB_GROUP_SIZES, ctypes.c_size_t, 16)


def _numbers(device: cl.Device, what: int, kind: type[ctypes.c_uint | ctypes.c_size_t], most: int) -> tuple[int, ...]:
    """The numbers that a device answers with, `most` at most, each of a C type; none where it does not know the question."""
    ask = ctypes.CDLL(cl._cl.__file__).clGetDeviceInfo  # of the OpenCL library that PyOpenCL uses
    ask.argtypes = (ctypes.c_void_p, ctypes.c_uint, ctypes.c_size_t, ctypes.c_void_p, ctypes.POINTER(ctypes.c_size_t))
    told, nbytes = (kind * most)(), ctypes.c_size_t()
    fault = ask(device.int_ptr, what, ctypes.sizeof(told), told, ctypes.byref(nbytes))
    return () if fault else tuple(told[: nbytes.value // ctypes.sizeof(kind)])


def _version(platform: cl.Platform, device: cl.Device) -> str:
    """The runtime's own version: "3.1" of PoCL, "22.3.6" of Mesa, "580.65.6" of NVIDIA's driver."""
    told = re.search(r"PoCL (\S+)|\(Oclgrind (\S+)\)", platform.version)
    text = next(filter(None, told.groups())) if told else device.driver_version
    number = re.search(r"\d+(\.\d+)*(-?rc\d+)?", text)
    return number.group() if number else ""


def _vendor(device: cl.Device) -> str:
    # Both the vendor and the device are read: PoCL names itself or the CPU's maker as vendor, and the CPU as device.
    text = f"{device.vendor} {device.name}".lower()
    return next((vendor for word, vendor in VENDORS.items() if word in text), "")


def _architecture(device: cl.Device) -> str:
    if major := optional(device, "compute_capability_major_nv"):
        return f"sm_{major}{optional(device, 'compute_capability_minor_nv')}"
    # AMD's device name is its architecture ("gfx90a:sramecc+"); PoCL's device version ends in it ("…-linux-gnu-znver3").
    if found := re.match(r"gfx\w+", device.name):
        return found.group()
    if found := re.search(r"PoCL .*-linux-gnu-(\S+)$", device.version):
        return found.group(1)
    return ""


def _host_clock_mhz() -> int:
    """The host's clock as Linux tells it, for CPU runtimes that tell none; 0 where it is not known."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace")
    except OSError:
        return 0
    found = re.search(r"cpu MHz\s*:\s*(\d+)", text)
    return int(found.group(1)) if found else 0
