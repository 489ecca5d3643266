"""How many groups of a kernel fit on a compute unit at once; and what NVIDIA's architectures offer to them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gemmport.core.device import DeviceInfo

WARP = 32

REGISTERS = 65_536
"""32-bit registers of a multiprocessor, on every architecture below."""

# Of CUDA's cuda_occupancy.h: registers are given to warps by 256, in four parts of the multiprocessor.
_REGISTER_UNIT = 256
_PARTITIONS = 4

_DECLARED_LOCAL_MEMORY = 49_152


@dataclass(frozen=True)
class Architecture:
    """Limits of a multiprocessor.

    Attributes:
        threads, groups: resident at once, at most.
        local_memory: bytes that its groups share.
        local_unit: bytes by which local memory is given to a group.
        reserved: bytes of local memory that the system takes for each group.
    """

    threads: int
    groups: int
    local_memory: int
    local_unit: int = 128
    reserved: int = 1024


# CUDA C++ Programming Guide, "Technical Specifications per Compute Capability"; units and reserved bytes: cuda_occupancy.h.
_ARCHITECTURES: dict[int, Architecture] = {
    70: Architecture(2048, 32, 96 * 1024, 256, 0),
    75: Architecture(1024, 16, 64 * 1024, 256, 0),
    80: Architecture(2048, 32, 164 * 1024),
    86: Architecture(1536, 16, 100 * 1024),
    87: Architecture(1536, 16, 164 * 1024),
    88: Architecture(1536, 16, 100 * 1024),
    89: Architecture(1536, 24, 100 * 1024),
    90: Architecture(2048, 32, 228 * 1024),
    100: Architecture(2048, 32, 228 * 1024),
    103: Architecture(2048, 32, 228 * 1024),
    110: Architecture(1536, 24, 228 * 1024),
    120: Architecture(1536, 24, 100 * 1024),
    121: Architecture(1536, 24, 100 * 1024),
}


def architecture(name: str) -> Architecture | None:
    """The limits of an architecture, "sm_90" or "sm_90a"; None where they are not known."""
    digits = name.removeprefix("sm_").rstrip("af")
    return _ARCHITECTURES.get(int(digits)) if name.startswith("sm_") and digits.isdigit() else None


def local_memory_of(device: DeviceInfo, *, specific: bool) -> int:
    """Bytes of local memory per group that a program may declare.

    Args:
        specific: whether it has instructions of one compute capability alone. In OpenCL such a program declares local memory in
            PTX (kernels/opencl/prelude/hopper.cl): all that a group may have, of which NVIDIA's OpenCL tells 48 KB.
    """
    limits = architecture(device.architecture) if device.platform == "nvidia" else None
    if specific and limits is not None and device.language == "opencl":
        return max(limits.local_memory - limits.reserved, device.local_memory)
    return device.local_memory


ARCHITECTURES = tuple(f"sm_{number}" for number in _ARCHITECTURES)


def device_of(name: str, limits: Architecture) -> DeviceInfo:
    """A CUDA device of an architecture that need not be here: what a plan must know of it."""
    return DeviceInfo(
        backend="cuda",
        name=f"any {name}",
        platform="nvidia",
        platform_name="NVIDIA CUDA",
        vendor="nvidia",
        architecture=name,
        memory=2**40,
        max_allocation=2**40,
        max_work_group=1024,
        max_work_item_sizes=(1024, 1024, 64),
        local_memory=_DECLARED_LOCAL_MEMORY,
        dynamic_local_memory=limits.local_memory - limits.reserved,
        sub_group=WARP,
        registers=REGISTERS,
        computes=frozenset({"float16", "float32", "float64"}),
    )


@dataclass(frozen=True)
class Occupancy:
    """How many groups of a kernel a compute unit holds at once.

    Attributes:
        groups: of the kernel, at once.
        warps: of these groups, which AMD calls waves. most_warps: that the compute unit can hold.
        schedulers: of the compute unit, among which its warps are spread; AMD's SIMDs.
        limited_by: what allows no more: "threads" or "waves", "registers", "scalar registers", "local memory" or "groups";
            several where they agree.
    """

    groups: int
    warps: int
    most_warps: int
    schedulers: int
    limited_by: tuple[str, ...]

    @classmethod
    def of(cls, allowed: Mapping[str, int], *, warps: int, most_warps: int, schedulers: int) -> Occupancy:
        """As many groups as each limit allows.

        Args:
            allowed: groups, by what allows no more of them. warps: of a group.
        """
        groups = min(allowed.values())
        limited_by = tuple(name for name, most in allowed.items() if most == groups)
        return cls(groups, groups * warps, most_warps, schedulers, limited_by)

    @property
    def per_scheduler(self) -> float:
        """Warps of a scheduler at once."""
        return self.warps / self.schedulers

    @property
    def percent(self) -> float:
        """Warps that are held, in percent of those that could be."""
        return 100.0 * self.warps / self.most_warps


def occupancy(limits: Architecture, *, work_items: int, registers: int, local_bytes: int) -> Occupancy:
    """The occupancy of a kernel, as CUDA's own calculator gives it, where all of the memory is given to local memory.

    Args:
        work_items: of a group. registers: 32-bit, of a work-item. local_bytes: of a group, declared and given at launch.
    """
    warps = -(-work_items // WARP)
    per_warp = round_up(max(registers, 1) * WARP, _REGISTER_UNIT)
    register_warps = REGISTERS // _PARTITIONS // per_warp * _PARTITIONS
    local = round_up(local_bytes + limits.reserved, limits.local_unit)
    allowed = {
        "threads": limits.threads // WARP // warps,
        "registers": register_warps // warps,
        "groups": limits.groups,
    }
    if local:
        allowed["local memory"] = limits.local_memory // local
    return Occupancy.of(allowed, warps=warps, most_warps=limits.threads // WARP, schedulers=_PARTITIONS)


def round_up(value: int, unit: int) -> int:
    """The least multiple of a unit that is not below a value."""
    return -(-value // unit) * unit
