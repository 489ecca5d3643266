"""What AMD's architectures offer to the groups of a kernel, and how many of these fit on a compute unit at once.

A compute unit is what holds a group: a CU of GCN and CDNA, a work-group processor (two CUs) of RDNA. It has four SIMDs.
"""

from __future__ import annotations

from dataclasses import dataclass

from gemmport.contracts.occupancy import Occupancy, round_up
from gemmport.core.device import DeviceInfo

SIMDS = 4
"""Of a compute unit."""

MAX_WORK_GROUP = 256
"""Work-items of a group that AMD's OpenCL allows where the kernel does not say how many it has."""

_LOCAL_MEMORY = 65_536
_LOCAL_UNIT = 512
"""Bytes of local memory that a group has at most, and by how many it gets them."""

# Scalar registers of a SIMD, and by how many a wave gets them: up to CDNA. RDNA gives each wave all that it can name.
_SCALARS, _SCALAR_UNIT = 800, 16


@dataclass(frozen=True)
class Architecture:
    """Limits of a compute unit.

    Attributes:
        wave: work-items of a wavefront, of those the one that the compiler takes.
        waves: resident on a SIMD at once, at most.
        registers: 32-bit vector registers of a SIMD for each of the wave's work-items; `unit`: by how many a wave gets them.
        groups: of several waves, resident at once, at most.
        local_memory: bytes that its groups share.
        scalars: whether waves share the scalar registers.
    """

    wave: int
    waves: int
    registers: int
    unit: int
    groups: int = 16
    local_memory: int = _LOCAL_MEMORY
    scalars: bool = True

    @property
    def all_registers(self) -> int:
        """32-bit registers of the compute unit."""
        return self.registers * self.wave * SIMDS


# LLVM, AMDGPUUsage and the target's occupancy rules (AMDGPUBaseInfo.cpp); AMD's ISA guides of the generations.
_GCN5 = Architecture(wave=64, waves=10, registers=256, unit=4)
_CDNA2 = Architecture(wave=64, waves=8, registers=512, unit=8)
_RDNA1 = Architecture(
    wave=32, waves=20, registers=1024, unit=8, groups=32, local_memory=2 * _LOCAL_MEMORY, scalars=False
)
_RDNA2 = Architecture(
    wave=32, waves=16, registers=1024, unit=16, groups=32, local_memory=2 * _LOCAL_MEMORY, scalars=False
)
_RDNA3 = Architecture(
    wave=32, waves=16, registers=1536, unit=24, groups=32, local_memory=2 * _LOCAL_MEMORY, scalars=False
)

_ARCHITECTURES: dict[str, Architecture] = {
    **dict.fromkeys(("gfx900", "gfx902", "gfx904", "gfx906", "gfx908", "gfx909", "gfx90c"), _GCN5),
    **dict.fromkeys(("gfx90a", "gfx942"), _CDNA2),
    **dict.fromkeys(("gfx1010", "gfx1011", "gfx1012", "gfx1013"), _RDNA1),
    **dict.fromkeys((f"gfx103{number}" for number in range(7)), _RDNA2),
    **dict.fromkeys(("gfx1102", "gfx1103", "gfx1150", "gfx1152"), _RDNA2),
    **dict.fromkeys(("gfx1100", "gfx1101", "gfx1151", "gfx1200", "gfx1201"), _RDNA3),
}

ARCHITECTURES = tuple(_ARCHITECTURES)

_CDNA = ("gfx90a", "gfx942")

MATRIX_CORES = "v_mfma"
"""Instructions, by the name under which another device may have them among its `extensions`."""


def architecture(name: str) -> Architecture | None:
    """The limits of an architecture, "gfx90a"; None where they are not known."""
    return _ARCHITECTURES.get(name)


def has_matrix_cores(device: DeviceInfo) -> bool:
    """Whether the device has products of 16 × 4 and 4 × 16 numbers, of float32 and of float64, as one instruction of a wave:
    AMD's CDNA 2 and 3 (MI200 and MI300 ISA guides, `v_mfma_f32_16x16x4` and `v_mfma_f64_16x16x4`), whose OpenCL takes clang's
    words for them; and others that name them.
    """
    return MATRIX_CORES in device.extensions or (device.vendor == "amd" and device.architecture in _CDNA)


def device_of(name: str) -> DeviceInfo:
    """An OpenCL device of an architecture that need not be here: what a plan must know of it.

    Args:
        name: one of ARCHITECTURES.
    """
    limits = _ARCHITECTURES[name]
    return DeviceInfo(
        backend="opencl",
        name=f"any {name}",
        platform="amd",
        platform_name="AMD Accelerated Parallel Processing",
        vendor="amd",
        architecture=name,
        memory=2**40,
        max_allocation=2**40,
        max_work_group=MAX_WORK_GROUP,
        max_work_item_sizes=(1024, 1024, 1024),
        local_memory=_LOCAL_MEMORY,
        sub_group=limits.wave,
        registers=limits.all_registers,
        computes=frozenset({"float16", "float32", "float64"}),
        extensions=frozenset({"cl_khr_fp16", "cl_khr_fp64"}),
    )


def occupancy(
    limits: Architecture, *, work_items: int, registers: int, scalars: int | None, local_bytes: int
) -> Occupancy:
    """The occupancy of a kernel; where the waves of a group are not a multiple of four, as if they filled all SIMDs evenly.

    Args:
        work_items: of a group. registers: 32-bit vector registers of a work-item, those for matrix instructions included.
        scalars: 32-bit scalar registers of a wave; None: not known. local_bytes: of a group.
    """
    waves = -(-work_items // limits.wave)
    allowed = {
        "waves": limits.waves * SIMDS // waves,
        "registers": limits.registers // round_up(max(registers, 1), limits.unit) * SIMDS // waves,
    }
    if waves > 1:
        allowed["groups"] = limits.groups
    if limits.scalars and scalars:
        allowed["scalar registers"] = _SCALARS // round_up(scalars, _SCALAR_UNIT) * SIMDS // waves
    if local_bytes:
        allowed["local memory"] = limits.local_memory // round_up(local_bytes, _LOCAL_UNIT)
    return Occupancy.of(allowed, warps=waves, most_warps=limits.waves * SIMDS, schedulers=SIMDS)
