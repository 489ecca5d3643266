"""What NVIDIA's GPUs can do, by their compute capability, under CUDA and OpenCL alike."""

from __future__ import annotations

import re

from gemmport.contracts.kernel import Cut
from gemmport.core.device import DeviceInfo
from gemmport.core.dtypes import DTYPES, FLOAT32, HALVES, DType
from gemmport.core.problem import GemmProblem


def is_hopper(device: DeviceInfo) -> bool:
    """Whether the device is of compute capability 9.0, for which models and orders of instructions were measured."""
    return device.platform == "nvidia" and re.match(r"sm_90\b|sm_90a", device.architecture) is not None


MOST_REGISTERS = 255
"""Of a work-item (CUDA C++ Programming Guide, "Technical Specifications per Compute Capability")."""

ASYNC_COPIES, READ_ONLY_LOADS = "cp.async", "ld.global.nc"
MATRIX_UNIT, MATRIX_UNIT_OF_8_ROWS = "mma.m16n8k4.f64", "mma.m8n8k4.f64"
WARP_PRODUCTS, WARP_GROUP_PRODUCTS = "mma.sync", "wgmma"
TF32_ROUNDING = "cvt.rn.tf32.f32"
BYTE_PRODUCTS, EARLY_LAUNCHES = "dp4a", "griddepcontrol"
FLOAT8_PRODUCTS, CUT_FLOAT8_SUMS = "mma.m16n8k32.e4m3", "mma.m16n8k32.e4m3 with sums of 14 digits"
"""Instructions, by the names under which another device may have them among its `extensions`."""


def copies_asynchronously(device: DeviceInfo) -> bool:
    """Whether the device copies from global to local memory by itself: NVIDIA's GPUs from compute capability 8.0 on (PTX ISA,
    `cp.async`), whose OpenCL takes the instruction too; and others that name it.
    """
    return ASYNC_COPIES in device.extensions or _compute_capability(device) >= 80


def float64_matrix_rows(device: DeviceInfo) -> int:
    """Rows of what the device multiplies by 4 × 8 float64 as one instruction, each of 4 terms: 16 on NVIDIA's GPUs from compute
    capability 9.0 on (PTX ISA, `mma.m16n8k4` with `.f64`), 8 from 8.0 on (`mma.m8n8k4`), whose OpenCL takes the instruction
    too, and on others that name one; 0 where there is none.
    """
    if MATRIX_UNIT in device.extensions or _compute_capability(device) >= 90:
        return 16
    return 8 if MATRIX_UNIT_OF_8_ROWS in device.extensions or _compute_capability(device) >= 80 else 0


def multiplies_matrices_by_warps(device: DeviceInfo) -> bool:
    """Whether the device has products of 16 × 32 by 32 × 8 bytes (halves, bfloat16, TF32, bytes) as one instruction of a warp:
    NVIDIA's GPUs from compute capability 8.0 on (PTX ISA, `mma.m16n8k16`, `mma.m16n8k32`), whose OpenCL takes the instructions
    too; and others that name it. These have `ldmatrix` and `cp.async`, too.
    """
    return WARP_PRODUCTS in device.extensions or _compute_capability(device) >= 80


def multiplies_float8_matrices(device: DeviceInfo) -> bool:
    """Whether `multiplies_matrices_by_warps` holds of FP8, too: NVIDIA's GPUs from compute capability 8.9 on (PTX ISA 8.4,
    `mma.m16n8k32` with `.e4m3` and `.e5m2`), whose OpenCL takes the instruction too; and others that name it.
    """
    return FLOAT8_PRODUCTS in device.extensions or _compute_capability(device) >= 89


def has_float8_unit(device: DeviceInfo) -> bool:
    """Whether the instruction for that is one of the machine's, too: where it is not, ptxas makes two products of halves of it
    (ptxas 13.0 makes one instruction for sm_89, sm_120 and sm_121, two for sm_90, sm_100 and sm_103). Others that name it have
    it.
    """
    capability = _compute_capability(device)
    return FLOAT8_PRODUCTS in device.extensions or capability == 89 or capability >= 120


def cuts_sums_of_float8(device: DeviceInfo) -> bool:
    """Whether the unit that multiplies FP8 for a warp keeps 14 digits of each sum: NVIDIA's GPUs of compute capability 8.9 (P.
    Xie et al., "MMA-Sim", arXiv 2511.10909, 2025); and others that name it. Those of 12.x keep as many as of products of
    halves.
    """
    return CUT_FLOAT8_SUMS in device.extensions or _compute_capability(device) == 89


TF32 = "tf32"

SUMMED_BYTES, SUMMED_BYTES_OF_HOPPER = 16, 32
"""Of each operand, that the unit multiplies and adds up at once: 4 terms of TF32 and 8 of halves; 8 and 16 from compute
capability 9.0 on (P. Xie et al., "MMA-Sim", arXiv 2511.10909, 2025; an H100's TF32 sums are these to the last bit,
tests/checking/test_matrix_unit_sums.py).
"""


def cut_of_float32_sums(problem: GemmProblem, device: DeviceInfo) -> Cut | None:
    """What the matrix unit keeps of sums of halves and TF32: the 24 digits of float32, below which it cuts off (M. Fasi et al.,
    "Numerical behavior of NVIDIA tensor cores", PeerJ Computer Science 7:e330, 2021). None for other sums.
    """
    multiplied = DTYPES.get(problem.precision, problem.dtype)  # that of TF32 is float32
    by_unit = multiplied in HALVES or problem.precision == TF32
    if device.platform != "nvidia" or problem.accumulator != FLOAT32 or not by_unit:
        return None
    at_once = SUMMED_BYTES_OF_HOPPER if _compute_capability(device) >= 90 else SUMMED_BYTES
    return Cut(digits=FLOAT32.precision, terms=at_once // multiplied.itemsize, promoted=False)


def multiplies_bytes(device: DeviceInfo) -> bool:
    """Whether the device multiplies four bytes by four, and adds them up, as one instruction: NVIDIA's GPUs from compute
    capability 6.1 on (PTX ISA, `dp4a`), whose OpenCL takes the instruction too; and others that name it.
    """
    return BYTE_PRODUCTS in device.extensions or _compute_capability(device) >= 61


def begins_launches_early(device: DeviceInfo) -> bool:
    """Whether a launch may begin before the one before it has ended: NVIDIA's GPUs from compute capability 9.0 on, under CUDA
    (PTX ISA, `griddepcontrol`); and others that name it.
    """
    return EARLY_LAUNCHES in device.extensions or (device.language == "cuda" and _compute_capability(device) >= 90)


def multiplies_matrices_by_warp_groups(device: DeviceInfo) -> bool:
    """Whether the device has products of matrices in local memory as one instruction of four warps, and an engine that copies
    tiles there: NVIDIA's GPUs of compute capability 9.0 alone (PTX ISA, `wgmma.mma_async`, `cp.async.bulk.tensor`), whose
    OpenCL comes to the instructions by way of the program's PTX; and others that name it.
    """
    return WARP_GROUP_PRODUCTS in device.extensions or is_hopper(device)


def why_not_multiplied(problem: GemmProblem, *, precision: str, sums: DType) -> str | None:
    """Why a matrix unit does not multiply the numbers of a problem; None where it does.

    Args:
        precision: to which the product must ask that these are rounded. sums: the type in which the unit adds them up.
    """
    if problem.precision != precision:
        return f"the matrix unit multiplies {problem.dtype} as {precision}: precision must say so; it is {problem.precision}"
    if problem.accumulator != sums:
        return f"the matrix unit adds up {problem.dtype} in {sums}, not in {problem.accumulator}"
    return None


def rounds_to_tf32(device: DeviceInfo) -> bool:
    """Whether the device rounds float32 to TF32, to nearest and ties to even, by one instruction: NVIDIA's GPUs from compute
    capability 9.0 on (PTX ISA, `cvt.rn.tf32.f32`), whose OpenCL takes the instruction too; and others that name it. Those from
    8.0 on have another alone, which rounds ties away from zero.
    """
    return TF32_ROUNDING in device.extensions or _compute_capability(device) >= 90


def loads_read_only(device: DeviceInfo) -> bool:
    """Whether the device has a path for data that nobody writes: NVIDIA's GPUs (PTX ISA, `ld.global.nc`), whose OpenCL takes
    the instruction too; and others that name it.
    """
    return READ_ONLY_LOADS in device.extensions or device.platform == "nvidia"


def _compute_capability(device: DeviceInfo) -> int:
    """Ten times that of an NVIDIA GPU; 0 for other devices."""
    found = re.match(r"sm_(\d+)", device.architecture)
    return int(found.group(1)) if device.platform == "nvidia" and found else 0
