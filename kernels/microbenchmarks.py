"""`microbenchmarks`: what a device takes for the parts of a product, each by itself; `gemmport.calibration` measures them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from gemmport.contracts.kernel import Parameter, Parameters, Pass, parameter_defines, type_defines
from gemmport.contracts.nvidia import float64_matrix_rows, multiplies_matrices_by_warps
from gemmport.core.device import DeviceInfo
from gemmport.core.dtypes import DTYPES, FLOAT32, FLOAT64, DType
from gemmport.core.plan import Argument, Buffer, Integer, Launch, ParameterValue

Function = Literal[
    "multiply_adds", "multiply_matrices", "read_global", "copy_global", "read_local", "chase", "start", "pass_round"
]

UNROLL = 8
"""Multiply-adds of each sum between two looks at the counter: `steps` of `multiply_adds` is a multiple of it."""

STRIDE = 8
"""Runs of local memory that a work-item goes on by in a step; told at the launch, so that no compiler foresees what is read."""

ROOM = 256
"""Runs of local memory among which a work-item's first one goes round: as many as a group has work-items at most, and a power
of two, so that nothing is divided."""

WORD_BYTES = 4
"""Of what `chase`, `start` and `pass_round` read and write."""


WARP = 32


@dataclass(frozen=True)
class MatrixUnit:
    """An instruction of NVIDIA's matrix unit, by which a warp adds the product of rows × terms numbers and terms × 8 to its
    sums (PTX ISA, "Matrix Fragments for mma").

    Lane 4 · g + t has of A, in register r, those of row g + 8 · (r mod rows / 8) from term packed · (t + 4 · (r div rows / 8))
    on; of B, in register r, those of column g from term packed · (t + 4 · r) on; and of the sums, as s, that of row
    g + 8 · (s div 2) and column 2 · t + s mod 2.

    Attributes:
        name: of its macro in the source, MULTIPLY_….
        numbers: type of A's and B's. words: type of a register of them. sums: type of the sums.
        rows: 8 or 16. packed: numbers of a register. runs: registers of a line of B.
    """

    name: str
    numbers: DType
    words: DType
    sums: DType
    rows: int
    packed: int
    runs: int

    columns = 8

    @property
    def terms(self) -> int:
        """That are added up at once."""
        return 4 * self.packed * self.runs

    @property
    def registers_of_a(self) -> int:
        """Of a lane."""
        return self.rows // 8 * self.runs

    @property
    def registers_of_b(self) -> int:
        """Of a lane."""
        return self.runs

    @property
    def sums_of_lane(self) -> int:
        """Of one product."""
        return self.rows // 8 * 2


F64_16 = MatrixUnit("F64_16", FLOAT64, FLOAT64, FLOAT64, rows=16, packed=1, runs=1)
F64_8 = MatrixUnit("F64_8", FLOAT64, FLOAT64, FLOAT64, rows=8, packed=1, runs=1)
F16 = MatrixUnit("F16", DTYPES["float16"], DTYPES["uint32"], FLOAT32, rows=16, packed=2, runs=2)
"""mma.m16n8k4 and mma.m8n8k4 with .f64, which `simt` multiplies by; mma.m16n8k16 with .f16, as `mma` does."""


def matrix_units(device: DeviceInfo) -> Mapping[str, MatrixUnit]:
    """The instructions that kernels multiply by on a device, by the type of what is multiplied: float64, float16."""
    found = {}
    if (rows := float64_matrix_rows(device)) and "float64" in device.computes:
        found["float64"] = F64_16 if rows == F64_16.rows else F64_8
    if multiplies_matrices_by_warps(device):
        found["float16"] = F16
    return found


class Microbenchmarks(Pass):
    """Eight functions of one source, each of which does `steps` of one thing.

    Elements are read and written as runs of WIDTH: an item of a GPU has the usual 16 bytes, one of a CPU a whole vector.
    """

    name = "microbenchmarks"
    summary = "rates, bandwidths and delays of a device, each by itself"
    parameters = (
        Parameter("ITEMS", 256, "work-items of a group", maximum=256),
        Parameter("WIDTH", 1, "elements of a run", choices=(1, 2, 4, 8, 16)),
        Parameter("CHAINS", 8, "sums of a work-item that do not wait for each other", maximum=16),
    )

    def launch(
        self,
        function: Function,
        dtype: DType,
        parameters: Parameters,
        groups: int,
        steps: int,
        unit: MatrixUnit | None = None,
    ) -> Launch:
        """The launch of a function. With I, W and C for ITEMS, WIDTH and CHAINS:

        - `multiply_adds`: s = s·a + b, `steps` times, for the runs s = source[2 + c, item], a = source[0, item] and
          b = source[1, item], of all c < C; they come to target[group, c, item];
        - `multiply_matrices`: each warp adds A · B to its sums of all c < C, `steps` times. What an item has of A, of B and of
          sums is in source[r, item], for one register r after the other; its sums come to target[group, c · sums + s, item];
        - `read_global`: the sum of the runs source[group, :, item] of (groups, steps · C, I) comes to target[group, item];
        - `copy_global`: the same runs are copied to the same places;
        - `read_local`: a group copies ROOM + (C − 1) · I runs to local memory, and of each work-item the sum of the runs
          (item + step · STRIDE) mod ROOM + c · I, of all steps and c, comes to target[group, item];
        - `chase`: the word target[0] becomes source[target[0]], `steps` times, by one work-item;
        - `start`: target[group] = 2 · group + steps;
        - `pass_round`: the words source[item] go `steps` places down a group, a barrier for each, to target[group, item].

        Args:
            dtype: of what is computed; of no account to the last three, which move unsigned words of 32 bits.
            parameters: what is left out is its default.
            steps: of `multiply_adds` and `multiply_matrices`, a multiple of UNROLL.
            unit: of `multiply_matrices`; it says all types, and ITEMS must be whole warps.
        """
        values = self.complete(parameters)
        items, width = int(values["ITEMS"]), int(values["WIDTH"])
        read, summed = (unit.words, unit.sums) if unit is not None else (dtype, dtype)
        run = width * read.itemsize
        local = {
            "read_local": local_runs(values) * run,
            "pass_round": 2 * items * WORD_BYTES,
        }
        source = (Buffer("source"),) * {"start": 0, "multiply_matrices": 2}.get(function, 1)
        stride: tuple[Argument, ...] = (Integer(STRIDE, bits=32),) if function == "read_local" else ()
        return Launch(
            self.source(
                {
                    **parameter_defines(values), **type_defines(read, summed, summed), "UNROLL": UNROLL,
                    "ROOM": ROOM, "IN_RUN_BYTES": run, "OUT_RUN_BYTES": run, "SUM_LANES": width,
                    "LOADS_SUMS": int(bool(read.precision)), **(_unit_defines(unit) if unit is not None else {}),
                },
                function=function,
            ),
            groups=(groups, 1, 1),
            work_group=(items, 1, 1),
            arguments=(*source, Buffer("target"), Integer(steps, bits=32), *stride),
            local_bytes=local.get(function, 0),
        )  # fmt: skip


def _unit_defines(unit: MatrixUnit) -> dict[str, ParameterValue]:
    return {
        "UNIT": unit.name,
        "REGISTERS_OF_A": unit.registers_of_a,
        "REGISTERS_OF_B": unit.registers_of_b,
        "SUMS": unit.sums_of_lane,
    }


def local_runs(parameters: Parameters) -> int:
    """Runs of local memory of `read_local`."""
    return ROOM + (int(parameters["CHAINS"]) - 1) * int(parameters["ITEMS"])


PASS = Microbenchmarks()
