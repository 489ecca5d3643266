"""What Intel's GPUs offer to the groups of a kernel, by the names of Intel's compiler."""

from __future__ import annotations

from dataclasses import dataclass

from gemmport.contracts.matrix_instructions import DPAS, SMALLEST_SUB_GROUP
from gemmport.core.device import DeviceInfo


@dataclass(frozen=True)
class Architecture:
    """Limits of a GPU.

    Attributes:
        title: of the products.
        assembler: its name in Intel's assembler.
        register_bytes: of one register of a hardware thread, which has 128 of them, or half as many threads 256.
        work_group: work-items of a group, at most. local_memory: bytes of a group, at most.
        double: whether it computes in float64.
        matrix_lanes: of the sub-groups that multiply matrices (dpas); 0: it does not.
    """

    title: str
    assembler: str
    register_bytes: int
    work_group: int
    local_memory: int
    double: bool
    matrix_lanes: int = 0


# Intel's oneAPI GPU Optimization Guide, "Xe GPU Architecture"; work-groups as Intel's driver tells them.
ARCHITECTURES: dict[str, Architecture] = {
    "tgllp": Architecture("Xe-LP of Tiger Lake", "12p1", 32, 512, 65_536, double=False),
    "dg2": Architecture("Xe-HPG: Arc A", "12p71", 32, 1024, 65_536, double=False, matrix_lanes=8),
    "pvc": Architecture("Xe-HPC: Data Center GPU Max", "12p72", 64, 1024, 131_072, double=True, matrix_lanes=16),
}


def device_of(name: str) -> DeviceInfo:
    """An OpenCL device that need not be here: what a plan must know of it.

    Args:
        name: one of ARCHITECTURES.
    """
    limits = ARCHITECTURES[name]
    return DeviceInfo(
        backend="opencl",
        name=f"any {name}",
        platform="intel",
        platform_name="Intel(R) OpenCL Graphics",
        vendor="intel",
        architecture=name,
        memory=2**40,
        max_allocation=2**40,
        max_work_group=limits.work_group,
        max_work_item_sizes=(limits.work_group,) * 3,
        local_memory=limits.local_memory,
        sub_group=32,
        computes=frozenset({"float16", "float32", *(["float64"] if limits.double else [])}),
        extensions=frozenset(
            {
                "cl_intel_required_subgroup_size",
                "cl_intel_subgroups",
                "cl_khr_fp16",
                *(["cl_khr_fp64"] if limits.double else []),
                *([DPAS, f"{SMALLEST_SUB_GROUP}{limits.matrix_lanes}"] if limits.matrix_lanes else []),
            }
        ),
    )
