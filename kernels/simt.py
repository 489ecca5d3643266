"""`simt`: what a GPU's multiply-add units ask for: asynchronous copies, warp tiles, registers read ahead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from gemmport.contracts.amd import has_matrix_cores
from gemmport.contracts.device_model import DeviceModel, Prediction
from gemmport.contracts.gpu_model import FITTED, WARP, matrix_rate, sharing_of
from gemmport.contracts.kernel import (
    Constraint,
    Form,
    KernelVariant,
    Parameter,
    Parameters,
    Steps,
    Tile,
    ceil_div,
    gemm_arguments,
    run_defines,
)
from gemmport.contracts.nvidia import copies_asynchronously, float64_matrix_rows
from gemmport.contracts.register_tiles import FEW_SUMS, WHOLE_BLOCKS, padding
from gemmport.core.device import DeviceInfo
from gemmport.core.dtypes import FLOAT32, FLOAT64
from gemmport.core.plan import Buffer, Integer, Launch, ParameterValue, Scratch
from gemmport.core.problem import GemmProblem, Operand
from gemmport.kernels import _simt_tilings
from gemmport.kernels._simt_tilings import RUN_BYTES

WAVE = 64
"""Work-items of what multiplies with AMD's matrix cores."""

PARTS_READ = 16
"""Parts of a shared tile that are read at once, where a tile has more than so many. It takes registers, so that fewer
work-items add up at one time: tiles of eight parts were slower by it (docs/simt.md).
"""

SUMS_SOON_COMPILED = 64
"""Of a work-item: half as many as those of the tiles that are fastest in float32 (docs/startup.md)."""


class Simt(KernelVariant):
    """A group computes TSM × TSN of D, a warp WM × WN of them, a work-item WPTM × WPTN, stepping along k by TSK.

    STAGES tiles of A and B are in local memory: one is multiplied, the others are on their way. On NVIDIA's GPUs from Ampere on
    they are copied asynchronously (cp.async), in CUDA and OpenCL alike; elsewhere work-items copy them.

    With MMA = 1, a warp's float64 products go through NVIDIA's matrix unit, 16 × 8 sums and 4 terms at a time, at twice the
    rate; a product of complex128 is four of these. Before Hopper, products have 8 × 8 sums. With MMA = 2, products of float32
    and float64 go through AMD's matrix cores, 16 × 16 sums and 4 terms at a time; a warp is a wave of 64 work-items then. These
    two were simulated, and have not run on a GPU: they are chosen where `gemmport doctor` has found them right.

    With LINES, float64 by NVIDIA's unit copies an operand that lies along k in runs of two terms, and holds it so.

    With ACROSS, operands that lie along k are transposed beforehand, in scratch memory: all copies are of runs then.

    With SHARE > 0, as many groups per compute unit share the tiles that do not fill a round of all groups (stream-K: M. Osama
    et al., PPoPP 2023): the steps of these tiles in one row are cut into parts of one length, and a second launch adds up what
    belongs to one tile, in its order, so that the bits are the same in every run.
    """

    name = "simt"
    summary = "asynchronous copies, warp tiles, registers read ahead, last tiles shared along k"
    dtypes = frozenset({"float32", "float64", "complex64", "complex128"})
    parameters = (
        Parameter("TSM", 64, "rows of the tile", maximum=512),
        Parameter("TSN", 64, "columns of the tile", maximum=512),
        Parameter("TSK", 8, "depth of the tile: terms of the sum per step", choices=(8, 16, 32)),
        Parameter("WM", 32, "rows of a warp's tile", maximum=256),
        Parameter("WN", 32, "columns of a warp's tile", maximum=256),
        Parameter("WPTM", 8, "rows per work-item", maximum=32),
        Parameter("WPTN", 4, "columns per work-item", maximum=32),
        Parameter("SLICES", 1, "sets of warps that share the terms of a step", choices=(1, 2, 4)),
        Parameter("STAGES", 3, "tiles of A and of B in local memory at once", minimum=2, maximum=8),
        Parameter("RASTER", 8, "rows of tiles that are computed side by side", maximum=64),
        Parameter("GROUPS", 1, "groups per compute unit that registers shall suffice for", maximum=8),
        Parameter(
            "SHARE",
            0,
            "groups per compute unit that share the last tiles; 0: each is one group's",
            minimum=0,
            maximum=8,
        ),
        Parameter("PORTS", 0, "1: machine code in the order that the register file's ports like best", choices=(0, 1)),
        Parameter(
            "MMA",
            0,
            "by the matrix unit: 1: float64 and complex128 on NVIDIA's GPUs from Ampere on; 2: float32 and float64 on AMD's "
            "from CDNA 2 on",
            choices=(0, 1, 2),
        ),
        Parameter("ACROSS", 0, "1: operands that lie along k are transposed beforehand", choices=(0, 1)),
        Parameter(
            "LINES",
            0,
            "1: float64 by NVIDIA's matrix unit copies the operand of the unit's columns along k, in runs of 16 bytes. This is "
            "B; where WM = 4 · WPTM and WN = 8 · WPTN it is A. 2: the other operand, too, and the unit adds up 8 terms at once",
            choices=(0, 1, 2),
        ),
        padding(4),
    )
    constants: ClassVar = {**KernelVariant.constants, **FITTED, **_simt_tilings.FITTED}
    constraints = (
        *WHOLE_BLOCKS,
        FEW_SUMS,
        Constraint("TSM % WM = 0, whole warp tiles of rows", lambda TSM, WM: TSM % WM == 0),
        Constraint("TSN % WN = 0, whole warp tiles of columns", lambda TSN, WN: TSN % WN == 0),
        Constraint(
            "WM % WPTM = 0, WN % WPTN = 0 and WM / WPTM · WN / WPTN = 32, the work-items of a warp; with MMA = 2, 64 of a wave",
            lambda WM, WN, WPTM, WPTN, MMA: (
                WM % WPTM == 0 and WN % WPTN == 0 and WM // WPTM * (WN // WPTN) in ((WAVE,) if MMA == 2 else (WARP,))
            ),
        ),
        Constraint(
            "WPTM % 4 = 0 and WPTN % 4 = 0, whole runs of every type",
            lambda WPTM, WPTN: WPTM % 4 == 0 and WPTN % 4 == 0,
        ),
        Constraint("TSK / SLICES ≥ 4, terms of a step for each slice", lambda TSK, SLICES: TSK // SLICES >= 4),
        Constraint(
            "SLICES = 1 or TSM · TSN ≤ STAGES · TSK · (TSM + TSN), so that a slice's sums fit where the tiles were",
            lambda TSM, TSN, TSK, STAGES, SLICES: SLICES == 1 or TSM * TSN <= STAGES * TSK * (TSM + TSN),
        ),
        Constraint("PAD % 4 = 0, so that rows stay aligned", lambda PAD: PAD % 4 == 0),
        Constraint(
            "MMA ≠ 1, or WM = 8 · WPTM and WN = 4 · WPTN, which is how the matrix unit spreads a tile over a warp; with LINES "
            "≠ 0, or WM = 4 · WPTM and WN = 8 · WPTN",
            lambda MMA, LINES, WM, WN, WPTM, WPTN: (
                MMA != 1 or (WM == 8 * WPTM and WN == 4 * WPTN) or (LINES > 0 and WM == 4 * WPTM and WN == 8 * WPTN)
            ),
        ),
        Constraint(
            "LINES = 0 or MMA = 1 and ACROSS = 0", lambda LINES, MMA, ACROSS: not LINES or (MMA == 1 and not ACROSS)
        ),
        Constraint(
            "LINES ≠ 2 or TSK / SLICES % 16 = 0, pairs of eight terms",
            lambda LINES, TSK, SLICES: LINES != 2 or TSK // SLICES % 16 == 0,
        ),
        Constraint(
            "MMA ≠ 2, or WM = 4 · WPTM and WN = 16 · WPTN, which is how matrix cores spread a tile over a wave",
            lambda MMA, WM, WN, WPTM, WPTN: MMA != 2 or (WM == 4 * WPTM and WN == 16 * WPTN),
        ),
        Constraint(
            "MMA = 0 or TSK / SLICES % 8 = 0, pairs of the matrix unit's 4 terms",
            lambda MMA, TSK, SLICES: not MMA or TSK // SLICES % 8 == 0,
        ),
        Constraint("MMA ≠ 1 or PAD = 0: lines are turned instead", lambda MMA, PAD: MMA != 1 or PAD == 0),
        Constraint(
            "TSK / SLICES · WPTM · WPTN ≤ 2048, the multiply-adds that a step is written out to",
            lambda TSK, SLICES, WPTM, WPTN: TSK // SLICES * WPTM * WPTN <= 2048,
        ),
    )

    def tile(self, parameters: Parameters) -> Tile:
        return Tile(int(parameters["TSM"]), int(parameters["TSN"]), int(parameters["TSK"]))

    def work_group(self, parameters: Parameters) -> tuple[int, int, int]:
        return _slice(parameters) * int(parameters["SLICES"]), 1, 1

    def local_bytes(self, parameters: Parameters, problem: GemmProblem) -> int:
        tile, stages, pad = self.tile(parameters), int(parameters["STAGES"]), int(parameters["PAD"])
        return stages * tile.depth * (tile.rows + tile.columns + 2 * pad) * problem.accumulator.sum_bytes

    def most_local_bytes(self, device: DeviceInfo) -> int:
        return device.most_local_memory

    def registers(self, parameters: Parameters, problem: GemmProblem) -> int:
        """Of sums, and of two terms of rows and columns; the matrix unit's columns are spread over twice as many work-items,
        and the rows of matrix cores over four times as many. What LINES has read in runs is of two terms each.
        """
        rows, columns = int(parameters["WPTM"]), int(parameters["WPTN"])
        read = {0: rows + columns, 1: rows + columns // 2, 2: rows // 4 + columns}[int(parameters["MMA"])]
        if parameters["LINES"]:
            across = columns if _simt_tilings.of_columns(parameters) == "a" else rows  # of the unit's rows
            both = _simt_tilings.by_line(parameters, problem) == "ab"  # numbers change places on their way
            read = rows + columns + (across if parameters["LINES"] == 2 else 0) + (across if both else 0)
        return ceil_div((rows * columns + 2 * read) * problem.accumulator.sum_bytes, 4)

    def unsupported(self, problem: GemmProblem, device: DeviceInfo) -> str | None:
        if reason := super().unsupported(problem, device):
            return reason
        if problem.dtype != problem.accumulator:
            return f"tiles are copied as they are: {problem.dtype} is not what is summed, {problem.accumulator}"
        return None

    def forms(self, device: DeviceInfo) -> Sequence[Form]:
        """float32 and float64 by AMD's matrix cores; float64 and complex128 by the unit of NVIDIA's GPUs before Hopper."""
        if float64_matrix_rows(device) == _simt_tilings.MATRIX_ROWS // 2 and "float64" in device.computes:
            tried, told = _simt_tilings.TRIED_BY_8_ROWS, "mma.m8n8k4.f64"
            return [
                Form(self.name, _simt_tilings.by_8_rows(dtype), dtype, dtype, tried, told)
                for dtype in ("float64", "complex128")
            ]
        if not has_matrix_cores(device):
            return ()
        return [
            Form(self.name, _simt_tilings.by_cores(dtype), dtype, dtype, tilings[0], f"v_mfma_f{dtype[5:]}_16x16x4")
            for dtype, tilings in _simt_tilings.FOR_CORES.items()
            if dtype in device.computes
        ]

    def considered(self, problem: GemmProblem, device: DeviceInfo, model: DeviceModel) -> Sequence[Parameters]:
        """The tilings that fit, shared or not, by the time that `gemmport.contracts.gpu_model` expects of them."""
        return [choice for _, choice in _simt_tilings.considered(self, problem, device, model)]

    def predicted(
        self, problem: GemmProblem, device: DeviceInfo, model: DeviceModel, parameters: Parameters
    ) -> Prediction:
        if device.type == "cpu":  # which has no waves of work-items, and nothing that copies beside them
            return super().predicted(problem, device, model, parameters)
        return _simt_tilings.predicted(problem, device, model, parameters)

    def unit_rate(self, problem: GemmProblem, device: DeviceInfo, model: DeviceModel, parameters: Parameters) -> float:
        if not parameters["MMA"]:
            return 0.0
        return matrix_rate(problem, model)

    def unfit(self, parameters: Parameters, problem: GemmProblem, device: DeviceInfo) -> str | None:
        if not parameters["MMA"]:
            return None
        if parameters["MMA"] == 2:
            return _unfit_for_cores(int(parameters["WPTM"]), problem, device)
        if problem.accumulator.precision != FLOAT64.precision:
            return (
                f"MMA = 1: the matrix unit multiplies float64 and complex128, not {problem.accumulator}; MMA must be 0"
            )
        if not float64_matrix_rows(device):
            found = device.architecture or device.name
            return f"MMA = 1: NVIDIA's GPUs have the instruction from sm_80 on, this is {found}; MMA must be 0"
        return self._unfit_for_lines(parameters, problem) if parameters["LINES"] else None

    def _unfit_for_lines(self, parameters: Parameters, problem: GemmProblem) -> str | None:
        """Why the operand of the matrix unit's columns cannot be copied in runs along k; None where it can."""
        told = f"LINES = {parameters['LINES']}"
        if problem.accumulator != FLOAT64:
            return f"{told}: float64 alone is held by line, not {problem.accumulator}; LINES must be 0"
        operand = _simt_tilings.of_columns(parameters)
        if operand in _simt_tilings.by_line(parameters, problem):
            return None
        return (
            f"{told}: {operand.upper()} must lie along k, with an even number of terms in rows aligned to {RUN_BYTES} bytes; "
            f"it is of {problem}; LINES must be 0"
        )

    def defines(self, parameters: Parameters, problem: GemmProblem) -> dict[str, ParameterValue]:
        own = {name: value for name, value in parameters.items() if name not in ("SHARE", "PORTS", "ACROSS", "LINES")}
        by_line = _simt_tilings.by_line(parameters, problem)
        tile = self.tile(parameters)
        width = RUN_BYTES // problem.dtype.itemsize
        defines = {**super().defines(own, problem), **run_defines(problem, width), "WIDTH": width}
        edges = problem.m % tile.rows != 0 or problem.n % tile.columns != 0
        # Runs along m and n that are aligned, as the operands lie, have to be so from where the last tiles begin, too.
        shifted = (
            problem.m >= tile.rows
            and problem.n >= tile.columns
            and (problem.m % width == 0 or not defines["TRANSPOSE_A"] or not defines["ALIGNED_A"])
            and (problem.n % width == 0 or defines["TRANSPOSE_B"] or not defines["ALIGNED_B"])
            and (problem.n % width == 0 or not defines["ALIGNED_D"])
        )
        return {
            **defines,
            "EDGES": int(edges and not shifted),
            "WHOLE_ROWS": int(shifted or problem.m % tile.rows == 0),
            "WHOLE_COLUMNS": int(shifted or problem.n % tile.columns == 0),
            "OVERLAP": int(edges and shifted),
            "APART": self._apart(parameters, defines, width),
            **{f"LINES_{operand.upper()}": int(operand in by_line) for operand in _simt_tilings.INPUTS},
        }

    def _apart(self, parameters: Parameters, defines: Mapping[str, ParameterValue], width: int) -> int:
        """Columns from one element of a run of D to the next: as many as a warp has work-items side by side where rows of D
        are not aligned, so that neighbours store neighbouring elements; else 1, and so where the tile cannot have its columns
        in that order: they are the matrix unit's, or copied in runs, or by so many work-items that a copy is not as far from
        the next for all of them.
        """
        if defines["ALIGNED_D"] or parameters["MMA"] or (defines["ALIGNED_B"] and not defines["TRANSPOSE_B"]):
            return 1
        items, depth, columns = self.work_group(parameters)[0], int(parameters["TSK"]), int(parameters["TSN"])
        side_by_side = int(parameters["WN"]) // int(parameters["WPTN"])
        step = items // depth if defines["TRANSPOSE_B"] else min(columns // width, max(items // depth, 8)) * width
        return side_by_side if step & (step - 1) == 0 or step % (side_by_side * width) == 0 else 1

    def sooner(self, parameters: Parameters, device: DeviceInfo) -> Parameters:
        """The same tiles by more work-items, of few enough sums each: what is compiled is written out for each of these. An
        element's terms are added up in the same order, whichever work-item does it. Loops that need not be written out are
        not: SOON, which nobody may set.
        """
        found = {**parameters, "PORTS": 0}
        while int(found["WPTM"]) * int(found["WPTN"]) > SUMS_SOON_COMPILED:
            long, warp = ("WPTM", "WM") if int(found["WPTM"]) > int(found["WPTN"]) else ("WPTN", "WN")
            found |= {long: int(found[long]) // 2, warp: int(found[warp]) // 2}
        fewer = int(found["WPTM"]) * int(found["WPTN"]) < int(parameters["WPTM"]) * int(parameters["WPTN"])
        if (
            parameters["MMA"]
            or not fewer
            or any(self.faults(found))
            or self.work_group(found)[0] > device.max_work_group
        ):
            return {}
        return {**found, "SOON": 1}

    def steps(self, problem: GemmProblem, device: DeviceInfo, parameters: Parameters) -> Steps:
        if not parameters["ACROSS"]:
            return self._product(problem, device, parameters)
        turned, made = _simt_tilings.across(problem)
        product = self._product(
            turned, device, parameters, {operand: each.scratch.name for operand, each in made.items()}
        )
        return Steps(
            [*(each.launch for each in made.values()), *product.launches],
            [*(each.scratch for each in made.values()), *product.scratch],
        )

    def _product(
        self,
        problem: GemmProblem,
        device: DeviceInfo,
        parameters: Parameters,
        prepared: Mapping[Operand, str] | None = None,
    ) -> Steps:
        """The launches of the product itself.

        Args:
            prepared: as `product`.
        """
        tile, items = self.tile(parameters), self.work_group(parameters)[0]
        tiles = ceil_div(problem.m, tile.rows) * ceil_div(problem.n, tile.columns) * problem.batch
        depth = max(ceil_div(problem.effective_k, tile.depth), 1)
        round_of_all = int(parameters["SHARE"]) * device.compute_units
        shared, sharers = sharing_of(tiles, depth, round_of_all)
        whole = tiles - shared
        nbytes = self.local_bytes(parameters, problem)
        given = nbytes > device.local_memory and device.language == "cuda"
        defines = {
            **self.defines(parameters, problem),
            "ASYNC_COPIES": int(copies_asynchronously(device)),
            "GIVEN": int(given),
        }
        if (
            parameters["PORTS"]
            and _simt_tilings.has_known_ports(device)
            and problem.accumulator.precision == FLOAT32.precision
        ):
            defines["SCHEDULE_FOR_PORTS"] = parameters["GROUPS"]
        if parameters["MMA"] == 1:
            defines["UNIT_ROWS"] = float64_matrix_rows(device)
            defines["UNIT_TERMS"] = 8 if parameters["LINES"] == 2 else 4
            if device.language == "opencl":
                defines["LINKED"] = 1  # as under CUDA
        sharing = tuple(Integer(x, bits=32) for x in (whole, shared, sharers))
        many = sharers > PARTS_READ * shared and not parameters.get("SOON")
        of_parts = {"SHARES": 1, "PARTS_READ": PARTS_READ if many else 1}

        def launch(groups: int, items: int, *, shares: int, function: str = "", nbytes: int = 0) -> Launch:
            parts = Buffer("parts" if shares else "d")  # an argument must name some memory
            return Launch(
                self.source({**defines, **(of_parts if shares else {"SHARES": 0})}, function=function),
                groups=(groups, 1, 1),
                work_group=(items, 1, 1),
                arguments=(*gemm_arguments(problem, prepared), parts, *sharing),
                local_bytes=0 if given else nbytes,
                dynamic_local_bytes=nbytes if given else 0,
            )

        launches = [launch(whole, items, shares=0, nbytes=nbytes)] if whole else []
        if not shared:
            return Steps(launches)
        runs = int(parameters["WPTM"]) * int(parameters["WPTN"]) * problem.dtype.itemsize // RUN_BYTES
        launches.append(launch(sharers, items, shares=1, nbytes=nbytes))
        launches.append(launch(shared * runs, _slice(parameters), shares=1, function="combine"))
        parts = Scratch("parts", 2 * sharers * tile.rows * tile.columns * problem.dtype.itemsize)
        return Steps(launches, [parts])


def _unfit_for_cores(rows: int, problem: GemmProblem, device: DeviceInfo) -> str | None:
    """Why AMD's matrix cores cannot do it, with so many rows per work-item; None where they can."""
    if problem.accumulator not in (FLOAT32, FLOAT64):
        return f"MMA = 2: matrix cores multiply float32 and float64, not {problem.accumulator}; MMA must be 0"
    if not has_matrix_cores(device):
        found = device.architecture or device.name
        return f"MMA = 2: AMD's GPUs have the instructions from CDNA 2 on (gfx90a), this is {found}; MMA must be 0"
    if rows % (least := 4 * RUN_BYTES // problem.dtype.itemsize):
        return f"MMA = 2: WPTM must be a multiple of {least}, the rows of four runs; got {rows}"
    return None


def _slice(parameters: Parameters) -> int:
    """Work-items of a slice."""
    p = {name: int(parameters[name]) for name in ("TSM", "TSN", "WPTM", "WPTN")}
    return p["TSM"] // p["WPTM"] * (p["TSN"] // p["WPTN"])


VARIANT = Simt()
