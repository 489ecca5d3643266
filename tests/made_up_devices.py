"""Devices that nobody here owns, by the limits that published device databases and vendors' documents state for them.

The planner reads nothing but a `DeviceInfo`, so it is tested over these as over real ones.
"""

from __future__ import annotations

from gemmport.core.device import DeviceInfo

SINGLE_ONLY = frozenset({"float32"})
NVIDIA_SIZES = (1024, 1024, 64)

DEVICES: dict[str, DeviceInfo] = {
    "work-groups of 256": DeviceInfo("opencl", "Plain GPU", "plain", platform_version="1.2", vendor="plain"),
    "16 KB of local memory": DeviceInfo(
        "opencl", "Small GPU", "plain", platform_version="1.2", vendor="plain", local_memory=16384
    ),
    "wavefronts of 64 without float64": DeviceInfo(
        "opencl", "Juniper", "amd", platform_name="AMD Accelerated Parallel Processing", platform_version="1.2",
        vendor="amd", architecture="juniper", sub_group=64, computes=SINGLE_ONLY, max_work_item_sizes=(256, 256, 256),
    ),
    "narrow second dimension": DeviceInfo(
        "opencl", "Slim GPU", "plain", platform_version="1.2", max_work_group=256, max_work_item_sizes=(256, 16, 1)
    ),
    "few work-groups": DeviceInfo("opencl", "Old GPU", "plain", platform_version="1.1", max_groups=65_535),
    "Arm Mali": DeviceInfo(
        "opencl", "Mali-G610", "arm", platform_name="ARM Platform", platform_version="3.0", vendor="arm",
        architecture="valhall", compute_units=4, max_work_group=512, max_work_item_sizes=(512, 512, 512),
        local_memory_is_dedicated=False, sub_group=16, computes=SINGLE_ONLY, vector_width=4,
    ),
    "AMD gfx90a": DeviceInfo(
        "opencl", "gfx90a:sramecc+:xnack-", "amd", platform_name="AMD Accelerated Parallel Processing",
        platform_version="3.6", vendor="amd", architecture="gfx90a", compute_units=104, clock_mhz=1700, memory=2**36,
        max_allocation=2**35, max_work_item_sizes=(1024, 1024, 1024), local_memory=65536, sub_group=64,
    ),
    "Intel GPU": DeviceInfo(
        "opencl", "Intel(R) Arc(TM) A770 Graphics", "intel", index=(1, 0), platform_name="Intel(R) OpenCL Graphics",
        platform_version="3.0", vendor="intel", architecture="xe_hpg", compute_units=512, clock_mhz=2400,
        max_work_group=1024, max_work_item_sizes=(1024, 1024, 1024), local_memory=65536, sub_group=32,
        computes=SINGLE_ONLY, extensions=frozenset({"cl_intel_subgroups", "cl_intel_required_subgroup_size"}),
    ),
    "NVIDIA sm_70": DeviceInfo(
        "cuda", "Tesla V100-SXM2-16GB", "nvidia", platform_name="NVIDIA CUDA", platform_version="11.4", vendor="nvidia",
        architecture="sm_70", compute_units=80, clock_mhz=1530, memory=2**34, max_allocation=2**34, max_work_group=1024,
        max_work_item_sizes=NVIDIA_SIZES, local_memory=49152, sub_group=32, registers=65536,
    ),
    "NVIDIA sm_90 under CUDA": DeviceInfo(
        "cuda", "NVIDIA H100 PCIe", "nvidia", platform_name="NVIDIA CUDA", platform_version="13.0", vendor="nvidia",
        architecture="sm_90", compute_units=114, clock_mhz=1755, memory=80 * 2**30, max_allocation=80 * 2**30,
        max_work_group=1024, max_work_item_sizes=NVIDIA_SIZES, local_memory=49152, sub_group=32, registers=65536,
        dynamic_local_memory=232_448,
    ),
    "NVIDIA sm_90 under OpenCL": DeviceInfo(
        "opencl", "NVIDIA H100 PCIe", "nvidia", platform_name="NVIDIA CUDA", platform_version="3.0", vendor="nvidia",
        architecture="sm_90", compute_units=114, clock_mhz=1755, memory=80 * 2**30, max_allocation=20 * 2**30,
        max_work_group=1024, max_work_item_sizes=NVIDIA_SIZES, local_memory=49152, sub_group=32,
    ),
    "Apple": DeviceInfo(
        "opencl", "Apple M2 Pro", "apple", platform_name="Apple", platform_version="1.2", vendor="apple",
        compute_units=19, clock_mhz=1000, sub_group=32, computes=SINGLE_ONLY,
    ),
    "CPU under PoCL": DeviceInfo(
        "opencl", "cpu-znver4-AMD EPYC 9654", "pocl", index=(2, 0), platform_name="Portable Computing Language",
        platform_version="6.0", vendor="amd", architecture="znver4", type="cpu", compute_units=16, clock_mhz=3700,
        max_work_group=4096, max_work_item_sizes=(4096, 4096, 4096), local_memory=524288,
        local_memory_is_dedicated=False, vector_width=16, caches=(2**15, 2**20, 2**22),
    ),
}  # fmt: skip
