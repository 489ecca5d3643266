"""Sub-groups: work-items that run side by side and can read each other's registers. CUDA's warps, AMD's wavefronts."""

from __future__ import annotations

from gemmport.core.device import DeviceInfo

INTEL_WIDTH = 16
"""Lanes that are asked for where the kernel has the choice.

Intel's GPUs take 8, 16 and 32 or, later ones, 16 and 32 (oneAPI GPU Optimization Guide, "Sub-Groups and SIMD Vectorization");
its CPU runtime took 4 to 64 when tried (2026.22.10).
"""

_INTEL = frozenset({"cl_intel_subgroups", "cl_intel_required_subgroup_size"})


def unsupported(device: DeviceInfo) -> str | None:
    """Why work-items cannot exchange registers on the device; None where they can."""
    if _way(device):
        return None
    missing = " and ".join(sorted(_INTEL - device.extensions))
    return f"its work-items cannot exchange registers: the runtime does not announce {missing}"


def shuffle_defines(device: DeviceInfo) -> dict[str, int]:
    """Macros by which the preludes offer the vocabulary of sub-groups: SUB_GROUP, the number of lanes, and in what way they
    exchange registers.

    Raises:
        ValueError: the device has none; `unsupported` says why.
    """
    way = _way(device)
    if way is None:
        raise ValueError(f"{device.label}: {unsupported(device)}")
    return {"SUB_GROUP": INTEL_WIDTH if way == "SHUFFLE_INTEL" else device.sub_group, way: 1}


def _way(device: DeviceInfo) -> str | None:
    if device.sub_group and device.language == "cuda":
        return "SHUFFLE_CUDA"
    if device.sub_group and device.platform == "nvidia":
        return "SHUFFLE_PTX"  # NVIDIA's OpenCL has no sub-groups, but takes its instructions
    if device.language == "opencl" and device.extensions >= _INTEL:
        return "SHUFFLE_INTEL"
    return None
