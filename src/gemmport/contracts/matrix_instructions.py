"""Products of small matrices that a sub-group computes by one instruction: AMD's MFMA and WMMA, Intel's dpas.

What they multiply is spread over the lanes of the sub-group. The table says how, in one place for the kernel, which reads and
stores by it, and for the tests, which simulate the instructions by it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from gemmport.core.device import DeviceInfo
from gemmport.core.dtypes import DType

WORD = 4
"""Bytes of a register of a lane."""

SMALLEST_SUB_GROUP = "smallest sub-group: "
"""Behind it, among a device's `extensions`, a backend tells the lanes of the smallest sub-group of one of Intel's GPUs."""

DPAS = "cl_intel_subgroup_matrix_multiply_accumulate"


@dataclass(frozen=True)
class MatrixInstruction:
    """D = A · B + C for a matrix A of rows × terms, a B of terms × columns and a C of rows × columns.

    Attributes:
        name: "WMMA_F16": what the part `matrix_instructions` of the prelude calls it. mnemonic: what its vendor does.
        lanes: of the sub-group.
        rows, columns, terms: of the matrices.
        element_bytes: of A and B.
        groups: of lanes: those of a group have other lines and the same terms; lanes of all groups have the same lines. What is
            over is there twice.
        run: neighbouring terms of a line that a lane has in a row; those of the other groups lie between two runs.
        sum_step, lane_step: rows from one sum of a lane to its next, and from a sum of one group of as many lanes as there are
            columns to that of the next.
        spreads_rows: each lane has its part of the terms of every row of A: not a line of its own.
        source: of where numbers lie.
    """

    name: str
    mnemonic: str
    lanes: int
    rows: int
    columns: int
    terms: int
    element_bytes: int
    groups: int
    run: int
    sum_step: int
    lane_step: int
    spreads_rows: bool
    source: str

    @property
    def words_of_a(self) -> int:
        """Registers of a lane that hold A."""
        if self.spreads_rows:
            return self.rows * self.terms * self.element_bytes // (self.lanes * WORD)
        return self.words_of_b

    @property
    def words_of_b(self) -> int:
        """Registers of a lane that hold B."""
        return self.terms * self.element_bytes // (self.groups * WORD)

    @property
    def sums(self) -> int:
        """Registers of a lane that hold C, and D."""
        return self.rows * self.columns // self.lanes

    def place_of_a(self, lane: int, number: int) -> tuple[int, int]:
        """Row and term of A of the number-th element of a lane, counted from the lowest bits of its first register on."""
        if self.spreads_rows:
            each = self.terms // self.lanes
            return number // each, lane * each + number % each
        return lane % self.rows, self._term(lane, number)

    def place_of_b(self, lane: int, number: int) -> tuple[int, int]:
        """Term and column of B, likewise."""
        return self._term(lane, number), lane % self.columns

    def place_of_sum(self, lane: int, number: int) -> tuple[int, int]:
        """Row and column of C, and of D, likewise."""
        return number * self.sum_step + lane // self.columns * self.lane_step, lane % self.columns

    def _term(self, lane: int, number: int) -> int:
        group = lane // self.columns % self.groups
        return number // self.run * self.run * self.groups + group * self.run + number % self.run


_CALCULATOR = "AMD Matrix Instruction Calculator, github.com/ROCm/amd_matrix_instruction_calculator at 2ef9189"

# MI200 and MI300, waves of 64: 4 groups of 16 lanes. Of bytes, MI200 has 16 terms and MI300 32.
_MFMA = MatrixInstruction(
    name="MFMA_F16", mnemonic="v_mfma_f32_16x16x16f16", lanes=64, rows=16, columns=16, terms=16, element_bytes=2, groups=4,
    run=4, sum_step=1, lane_step=4, spreads_rows=False, source=_CALCULATOR,
)  # fmt: skip
_CDNA2 = {
    "float16": _MFMA,
    "bfloat16": replace(_MFMA, name="MFMA_BF16", mnemonic="v_mfma_f32_16x16x16bf16_1k"),
    "int8": replace(_MFMA, name="MFMA_S8", mnemonic="v_mfma_i32_16x16x16i8", element_bytes=1),
}
_CDNA3 = {
    "float16": replace(_MFMA, mnemonic="v_mfma_f32_16x16x16_f16"),
    "bfloat16": replace(_MFMA, name="MFMA_BF16", mnemonic="v_mfma_f32_16x16x16_bf16"),
    "int8": replace(_MFMA, name="MFMA_LONG_S8", mnemonic="v_mfma_i32_16x16x32_i8", terms=32, element_bytes=1, run=8),
}

# RDNA 3, waves of 32: lanes 16 to 31 have what lanes 0 to 15 have.
_WMMA = MatrixInstruction(
    name="WMMA_F16", mnemonic="v_wmma_f32_16x16x16_f16", lanes=32, rows=16, columns=16, terms=16, element_bytes=2, groups=1,
    run=16, sum_step=2, lane_step=1, spreads_rows=False, source=_CALCULATOR,
)  # fmt: skip
_RDNA3 = {
    "float16": _WMMA,
    "bfloat16": replace(_WMMA, name="WMMA_BF16", mnemonic="v_wmma_f32_16x16x16_bf16"),
    "int8": replace(_WMMA, name="WMMA_S8", mnemonic="v_wmma_i32_16x16x16_iu8", element_bytes=1),
    "uint8": replace(_WMMA, name="WMMA_U8", mnemonic="v_wmma_i32_16x16x16_iu8", element_bytes=1),
}

# RDNA 4, waves of 32: 2 groups of 16 lanes.
_RDNA4 = {
    "float16": replace(_WMMA, name="WMMA_GFX12_F16", groups=2, run=4, sum_step=1, lane_step=8),
    "bfloat16": replace(_RDNA3["bfloat16"], name="WMMA_GFX12_BF16", groups=2, run=4, sum_step=1, lane_step=8),
    "int8": replace(_RDNA3["int8"], name="WMMA_GFX12_S8", groups=2, run=8, sum_step=1, lane_step=8),
    "uint8": replace(_RDNA3["uint8"], name="WMMA_GFX12_U8", groups=2, run=8, sum_step=1, lane_step=8),
}

# Xe-HPG has sub-groups of 8 lanes for it, Xe-HPC of 16.
_DPAS_8 = MatrixInstruction(
    name="DPAS_8_F16", mnemonic="dpas.8x8", lanes=8, rows=8, columns=8, terms=16, element_bytes=2, groups=1,
    run=16, sum_step=1, lane_step=0, spreads_rows=True,
    source="Khronos OpenCL registry, cl_intel_subgroup_matrix_multiply_accumulate, revision 1.1.0",
)  # fmt: skip


def _with_all_types(halves: MatrixInstruction) -> dict[str, MatrixInstruction]:
    stem = halves.name.removesuffix("F16")
    of_bytes = replace(halves, terms=32, element_bytes=1, run=32)
    return {
        "float16": halves,
        "bfloat16": replace(halves, name=f"{stem}BF16"),
        "int8": replace(of_bytes, name=f"{stem}S8"),
        "uint8": replace(of_bytes, name=f"{stem}U8"),
    }


FAMILIES: dict[str, dict[str, MatrixInstruction]] = {
    "gfx90a": _CDNA2,
    "gfx942": _CDNA3,
    "gfx11": _RDNA3,
    "gfx12": _RDNA4,
    "dpas of 8 lanes": _with_all_types(_DPAS_8),
    "dpas of 16 lanes": _with_all_types(replace(_DPAS_8, name="DPAS_16_F16", lanes=16, columns=16)),
}
"""By type of A and B. AMD's are named by the start of the architecture. Sums are float32, and int32 of bytes."""


def family_of(device: DeviceInfo) -> str:
    """The one of FAMILIES that a device has, as OpenCL reaches it; empty where it has none."""
    if device.language != "opencl":
        return ""
    if named := next((name for name in FAMILIES if name in device.extensions), ""):
        return named
    if device.vendor == "amd":
        return next((name for name in FAMILIES if device.architecture.startswith(name)), "")
    if DPAS in device.extensions:
        lanes = next((name for name in device.extensions if name.startswith(SMALLEST_SUB_GROUP)), "")
        name = f"dpas of {lanes.removeprefix(SMALLEST_SUB_GROUP)} lanes"
        return name if name in FAMILIES else ""
    return ""


def instruction_of(dtype: DType, device: DeviceInfo) -> MatrixInstruction | None:
    """What multiplies matrices of a type on a device; None where it has no instruction for it.

    Waves of AMD's must have the lanes that the instruction asks for: RDNA's may have 64, which is another form of it.
    """
    found = FAMILIES.get(family_of(device), {}).get(dtype.name)
    if found is not None and device.vendor == "amd" and device.sub_group not in (0, found.lanes):
        return None
    return found
