"""CUDA's devices, described."""

from __future__ import annotations

from functools import cache

import pycuda.driver as cu

from gemmport.backends import _fork
from gemmport.backends.objects import Discovery
from gemmport.core.device import DeviceInfo
from gemmport.core.errors import BackendUnavailableError

HOW_TO_GET_A_DEVICE = "this needs an NVIDIA GPU and its driver"


def discover() -> Discovery:
    """All devices that CUDA has.

    Raises:
        BackendUnavailableError: CUDA does not start.
    """
    initialize()
    devices = tuple(described(number) for number in range(cu.Device.count()))
    return Discovery(devices, () if devices else (f"CUDA has no device; {HOW_TO_GET_A_DEVICE}",))


def initialize() -> None:
    """Starts CUDA, which this process is known to use from now on.

    Raises:
        BackendUnavailableError: CUDA does not start.
    """
    _fork.started("cuda")
    try:
        cu.init()
    except cu.Error as error:
        raise BackendUnavailableError(f"CUDA does not start: {error}; {HOW_TO_GET_A_DEVICE}") from error


@cache
def described(number: int) -> DeviceInfo:
    """The device of that number."""
    device = cu.Device(number)

    def attribute(name: str) -> int:
        return int(device.get_attribute(getattr(cu.device_attribute, name)))

    major, minor = device.compute_capability()
    driver = cu.get_driver_version()
    limits = ("MAX_BLOCK_DIM_X", "MAX_BLOCK_DIM_Y", "MAX_BLOCK_DIM_Z")
    return DeviceInfo(
        backend="cuda",
        index=(0, number),
        name=device.name(),
        platform="nvidia",
        platform_name="NVIDIA CUDA",
        platform_version=f"{driver // 1000}.{driver % 1000 // 10}",
        driver=_kernel_driver() or str(driver),
        vendor="nvidia",
        architecture=f"sm_{major}{minor}",
        type="gpu",
        compute_units=attribute("MULTIPROCESSOR_COUNT"),
        clock_mhz=attribute("CLOCK_RATE") // 1000,
        memory=device.total_memory(),
        max_allocation=device.total_memory(),
        max_work_group=attribute("MAX_THREADS_PER_BLOCK"),
        max_work_item_sizes=(attribute(limits[0]), attribute(limits[1]), attribute(limits[2])),
        max_groups=attribute("MAX_GRID_DIM_X"),
        local_memory=attribute("MAX_SHARED_MEMORY_PER_BLOCK"),
        dynamic_local_memory=attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
        local_memory_is_dedicated=True,
        sub_group=attribute("WARP_SIZE"),
        registers=attribute("MAX_REGISTERS_PER_MULTIPROCESSOR"),
        computes=frozenset({"float16", "float32", "float64"}),
    )


def _kernel_driver() -> str:
    """The version of NVIDIA's kernel driver as it tells it on Linux; empty elsewhere."""
    try:
        with open("/proc/driver/nvidia/version", encoding="ascii", errors="replace") as file:
            words = file.readline().split()
    except OSError:
        return ""
    return next((word for word in words if word[:1].isdigit() and "." in word), "")
