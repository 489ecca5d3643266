"""`sub_group_mma`: products of halves and of bytes by the matrix instructions of AMD's and Intel's GPUs (MFMA, WMMA, dpas)."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from gemmport.contracts.device_model import DeviceModel, Prediction, clock, usual_matrix_products
from gemmport.contracts.kernel import (
    Constraint,
    Form,
    KernelVariant,
    Parameter,
    Parameters,
    Rankings,
    Steps,
    Tile,
    run_defines,
)
from gemmport.contracts.matrix_instructions import WORD, MatrixInstruction, instruction_of
from gemmport.contracts.prediction import of_tiles
from gemmport.core.device import DeviceInfo
from gemmport.core.dtypes import DTYPES
from gemmport.core.errors import ParameterError
from gemmport.core.plan import ParameterValue
from gemmport.core.problem import GemmProblem

PIECE_BYTES = 16
"""What is brought, and read, at once; and what parts two lines of a tile, and each eight of them again."""

SUM_BYTES = 4
"""Of all types of sums."""

_SUMS = {
    "float16": DTYPES["float32"],
    "bfloat16": DTYPES["float32"],
    "int8": DTYPES["int32"],
    "uint8": DTYPES["int32"],
}
"""By type of A and B, that in which the instructions add up."""

_EXTENTS = (16, 32, 64, 128)

_MOST_ITEMS = 256

_MOST_SUMS = {8: 32, 16: 16, 32: 64, 64: 64}
"""Of a work-item, by the lanes of its sub-group, and pieces that it has on their way, that leave room in registers for what is
read: with them clang 19 spills nothing for gfx90a and gfx1100, and Intel's compiler next to nothing for dg2 and pvc.
"""
_MOST_PIECES = 4


class SubGroupMma(KernelVariant):
    """A group computes TSM × TSN of D, a sub-group WM × WN of them, stepping along k by TSK.

    Tiles lie in local memory line by line, each with its terms side by side; operands that lie across k are turned on their way
    there. Which products a sub-group's instruction makes, and where numbers lie in it, is in
    `gemmport.contracts.matrix_instructions`.

    It was compiled and simulated, but never run on such a GPU: it is chosen where `gemmport doctor` has found it right.
    """

    name = "sub_group_mma"
    summary = (
        "by the matrix instructions of AMD's and Intel's GPUs (MFMA, WMMA, dpas): halves and bytes, in OpenCL alone"
    )
    dtypes = frozenset(_SUMS)
    narrow_precisions = frozenset({"float16", "bfloat16"})
    parameters = (
        Parameter("TSM", 32, "rows of the tile", choices=(16, 32, 64, 128, 256)),
        Parameter("TSN", 32, "columns of the tile", choices=(16, 32, 64, 128, 256)),
        Parameter("TSK", 64, "depth of the tile: terms of the sum per step", choices=(16, 32, 64, 128)),
        Parameter("WM", 16, "rows of a sub-group's tile", choices=(16, 32, 64, 128)),
        Parameter("WN", 16, "columns of a sub-group's tile", choices=(16, 32, 64, 128)),
        Parameter("LANES", 32, "work-items of a sub-group, as the instruction asks for them", choices=(8, 16, 32, 64)),
        Parameter("RASTER", 8, "rows of tiles that are computed side by side", maximum=64),
    )
    constants: ClassVar = {
        **KernelVariant.constants,
        "products": "multiply-adds of 2-byte numbers that a compute unit does per clock, as OpenCL counts units, by the matrix "
        "instruction",
        "products_of_bytes": "likewise of 1-byte numbers",
    }
    constraints = (
        Constraint("WM ≤ TSM, whole tiles of sub-groups along rows", lambda TSM, WM: WM <= TSM),
        Constraint("WN ≤ TSN, whole tiles of sub-groups along columns", lambda TSN, WN: WN <= TSN),
        Constraint("WM · WN ≤ 8192, the sums of a sub-group", lambda WM, WN: WM * WN <= 8192),
        Constraint(
            "TSM / WM · TSN / WN · LANES ≤ 1024, the work-items of a group",
            lambda TSM, TSN, WM, WN, LANES: TSM // WM * (TSN // WN) * LANES <= 1024,
        ),
    )

    def tile(self, parameters: Parameters) -> Tile:
        return Tile(int(parameters["TSM"]), int(parameters["TSN"]), int(parameters["TSK"]))

    def work_group(self, parameters: Parameters) -> tuple[int, int, int]:
        return _sub_groups(parameters) * int(parameters["LANES"]), 1, 1

    def local_bytes(self, parameters: Parameters, problem: GemmProblem) -> int:
        """Two stages; or, in their place, sums on their way to D: of each sub-group as many rows as its instruction has."""
        tile, unit_rows = self.tile(parameters), 16 if int(parameters["LANES"]) >= 32 else 8
        line = tile.depth * problem.dtype.itemsize + PIECE_BYTES
        stage = sum(lines * line + lines // 8 * PIECE_BYTES for lines in (tile.rows, tile.columns))
        return max(2 * stage, _sub_groups(parameters) * unit_rows * (int(parameters["WN"]) + 8) * SUM_BYTES)

    def registers(self, parameters: Parameters, problem: GemmProblem) -> int:
        """Of sums, and of the rows and columns of a turn, 4 for each 16 of them."""
        rows, columns = int(parameters["WM"]), int(parameters["WN"])
        return rows * columns // int(parameters["LANES"]) + (rows + columns) // 4

    def unsupported(self, problem: GemmProblem, device: DeviceInfo) -> str | None:
        if reason := super().unsupported(problem, device):
            return reason
        if problem.accumulator != _SUMS[problem.dtype.name]:
            return (
                f"its instructions add up {problem.dtype} in {_SUMS[problem.dtype.name]}, not in {problem.accumulator}"
            )
        if instruction_of(problem.dtype, device) is None:
            found = device.architecture or device.name
            return (
                "AMD's GPUs from CDNA 2 and RDNA 3 on, and Intel's with cl_intel_subgroup_matrix_multiply_accumulate, have "
                f"instructions for it under OpenCL; this is {found} under {device.backend}, with {problem.dtype}"
            )
        return None

    def declined(
        self, problem: GemmProblem, device: DeviceInfo, model: DeviceModel, rankings: Rankings | None = None
    ) -> str | None:
        if model.has_verified(self.name, problem.dtype.name):
            return None
        return f"it is modelled, and for {problem.dtype} not verified on this device: gemmport doctor does that"

    def forms(self, device: DeviceInfo) -> Sequence[Form]:
        """One for each type that the device has an instruction for."""
        return [
            Form(
                self.name, dtype, dtype, sums.name,
                {"TSK": max(64 // DTYPES[dtype].itemsize, _turn_terms(own)), "LANES": own.lanes}, own.mnemonic,
            )
            for dtype, sums in _SUMS.items()
            if (own := instruction_of(DTYPES[dtype], device)) is not None
        ]  # fmt: skip

    def unfit(self, parameters: Parameters, problem: GemmProblem, device: DeviceInfo) -> str | None:
        own = _instruction(problem, device)
        if problem.empty:  # nothing is launched
            return None
        if parameters["LANES"] != own.lanes:
            return f"LANES must be {own.lanes}, the sub-group of {own.mnemonic}; got {parameters['LANES']}"
        if (turn := _turn_terms(own)) > int(parameters["TSK"]):
            least = f"{turn}, the terms of {problem.dtype} that a turn of {own.mnemonic} has"
            return f"TSK must be at least {least}; got {parameters['TSK']}"
        return None

    def considered(self, problem: GemmProblem, device: DeviceInfo, model: DeviceModel) -> Sequence[Parameters]:
        """Those that fit, the fastest by the prediction first; none where the device has no instruction for the type."""
        if instruction_of(problem.dtype, device) is None:
            return ()
        stated = model.tilings.get(self.name)
        return self.ranked(stated or self._tilings(problem, device), problem, device, model)

    def _tilings(self, problem: GemmProblem, device: DeviceInfo) -> list[Parameters]:
        own = _instruction(problem, device)
        found: list[Parameters] = []
        for rows, columns, m, n in itertools.product(_EXTENTS, _EXTENTS, _EXTENTS[:3], _EXTENTS[:3]):
            tiling = {
                "TSM": rows, "TSN": columns, "TSK": max(64 // problem.dtype.itemsize, _turn_terms(own)), "WM": m, "WN": n,
                "LANES": own.lanes,
            }  # fmt: skip
            try:
                values = self.complete(tiling)
            except ParameterError:
                continue
            items = self.work_group(values)[0]
            if (
                m * n <= _MOST_SUMS[own.lanes] * own.lanes
                and (rows + columns) * self.tile(values).depth * own.element_bytes <= _MOST_PIECES * PIECE_BYTES * items
                and 4 * own.lanes <= items <= min(_MOST_ITEMS, device.max_work_group)
                and self.local_bytes(values, problem) <= device.local_memory
                and not self.unfit(values, problem, device)
            ):
                found.append(tiling)
        return found

    def unit_rate(self, problem: GemmProblem, device: DeviceInfo, model: DeviceModel, parameters: Parameters) -> float:
        usual = usual_matrix_products(device, model)
        stated = {"products": usual, "products_of_bytes": 2 * usual, **model.constants(self.name)}
        products = stated["products" if _instruction(problem, device).element_bytes > 1 else "products_of_bytes"]
        return products * max(device.compute_units, 1) * clock(device)

    def predicted(
        self, problem: GemmProblem, device: DeviceInfo, model: DeviceModel, parameters: Parameters
    ) -> Prediction:
        """As of any tiles, at the rate of the matrix instruction; a sub-group reads its rows and columns once, but for lanes
        that have what others have.
        """
        own, stated = _instruction(problem, device), {"share": 1.0, **model.constants(self.name)}
        rate = self.unit_rate(problem, device, model, parameters)
        lines = (int(parameters["WM"]) + int(parameters["WN"])) * _sub_groups(parameters)
        return of_tiles(
            problem, device, replace(model, multiply_adds={**model.multiply_adds, "float32": rate, "int32": rate}),
            tile=self.tile(parameters), work_group=self.work_group(parameters), local=True,
            share=stated["share"],
            term_reads=lines * own.element_bytes * own.lanes // (own.columns * own.groups),
        )  # fmt: skip

    def defines(self, parameters: Parameters, problem: GemmProblem) -> dict[str, ParameterValue]:
        width = max(min(PIECE_BYTES // problem.output.itemsize, 8), 1)
        return {
            **super().defines(parameters, problem),
            **run_defines(problem, width),
            "WIDTH": width,
            "ELEMENT_BYTES": problem.dtype.itemsize,
            "WHOLE_PIECES_A": int(problem.alignment("a") % PIECE_BYTES == 0),
            "WHOLE_PIECES_B": int(problem.alignment("b") % PIECE_BYTES == 0),
        }

    def steps(self, problem: GemmProblem, device: DeviceInfo, parameters: Parameters) -> Steps:
        launch = self.product(problem, parameters)
        defines = {**self.defines(parameters, problem), **_defines_of(_instruction(problem, device), device)}
        return Steps([replace(launch, kernel=self.source(defines))])


def _sub_groups(parameters: Parameters) -> int:
    """Of a group."""
    p = {name: int(parameters[name]) for name in ("TSM", "TSN", "WM", "WN")}
    return p["TSM"] // p["WM"] * (p["TSN"] // p["WN"])


def _instruction(problem: GemmProblem, device: DeviceInfo) -> MatrixInstruction:
    """What the device has for a problem that it supports."""
    found = instruction_of(problem.dtype, device)
    assert found is not None
    return found


def _turn_terms(own: MatrixInstruction) -> int:
    """Terms of a turn, in which a lane reads at least a piece."""
    return own.groups * max(own.words_of_b * WORD, PIECE_BYTES) // own.element_bytes


def _defines_of(own: MatrixInstruction, device: DeviceInfo) -> dict[str, ParameterValue]:
    """Macros by which the source knows the instruction."""
    return {
        "INSTRUCTION": own.name,
        "UNIT_ROWS": own.rows,
        "UNIT_COLUMNS": own.columns,
        "UNIT_SUMS": own.sums,
        "WORDS_OF_A": own.words_of_a,
        "WORDS_OF_B": own.words_of_b,
        "TERM_GROUPS": own.groups,
        "SUM_STEP": own.sum_step,
        "LANE_STEP": own.lane_step,
        "SPREADS_ROWS": int(own.spreads_rows),
        **({} if device.vendor == "amd" else {"SUB_GROUPS_OF_INTEL": 1}),
    }


VARIANT = SubGroupMma()
