"""`mma`: products of halves, of bytes, of FP8 and of TF32 by the matrix unit of NVIDIA's GPUs (mma.sync)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import ClassVar, NamedTuple

from gemmport.contracts.device_model import DeviceModel, Prediction
from gemmport.contracts.gpu_model import WARP, sharing_of
from gemmport.contracts.kernel import (
    Constraint,
    Cut,
    KernelVariant,
    Parameter,
    Parameters,
    Predictor,
    Steps,
    Tile,
    ceil_div,
    gemm_arguments,
    stored_runs_defines,
)
from gemmport.contracts.nvidia import (
    begins_launches_early,
    cut_of_float32_sums,
    cuts_sums_of_float8,
    multiplies_float8_matrices,
    multiplies_matrices_by_warps,
    rounds_to_tf32,
    why_not_multiplied,
)
from gemmport.core.device import DeviceInfo
from gemmport.core.dtypes import DTYPES, FLOAT8S, DType
from gemmport.core.plan import Buffer, Integer, Launch, ParameterValue, Scratch
from gemmport.core.precision import FULL
from gemmport.core.problem import GemmProblem, Operand, transposed, transposes
from gemmport.kernels import _mma_tilings, convert, relayout, transpose

PIECE_BYTES = 16
"""What is copied, and read as a line of a matrix, at once."""

AT_ONCE_BYTES = 32
"""Of a line, that the unit adds up at once, of any type (PTX ISA, `mma.m16n8k16` with `.f16`, `mma.m16n8k32` with `.s8`)."""

LINES = 16
"""Rows of A, or columns of B, that a warp reads at once."""

TF32 = "tf32"


class _Unit(NamedTuple):
    """What the matrix unit does with operands of a type.

    Attributes:
        name: of the instruction's type: the end of a macro WARP_MUL_ADD_….
        sums: the type in which it adds up.
        precision: to which the product must ask that operands are rounded.
    """

    name: str
    sums: DType
    precision: str = FULL


BETWEEN_BYTES = 32
"""Of local memory, between terms of a tile of 4-byte elements that lie across k: without them, reads of several terms would
meet in one bank."""

_UNITS = {
    "float16": _Unit("F16", DTYPES["float32"]),
    "bfloat16": _Unit("BF16", DTYPES["float32"]),
    "float32": _Unit("TF32", DTYPES["float32"], TF32),
    "float8_e4m3fn": _Unit("E4M3", DTYPES["float32"]),
    "float8_e5m2": _Unit("E5M2", DTYPES["float32"]),
    "int8": _Unit("S8", DTYPES["int32"]),
    "uint8": _Unit("U8", DTYPES["int32"]),
}
"""By type of the operands. Their sizes, and where registers lie in the unit's matrices, follow from that of the elements."""

FLOAT8_CUT = Cut(digits=14, terms=AT_ONCE_BYTES)
"""What the unit of compute capability 8.9 keeps of a sum of FP8 (`cuts_sums_of_float8`). The kernel has it add up no more terms
than one instruction multiplies, and adds such sums in float32: that needs the fewest registers, too.
"""

PROMOTED = 16
"""Registers for what the unit made and nobody added yet: of four products, so that none waits (ptxas 13.0 for sm_89)."""

_TURNED_AS_READ = (2, 4)
"""Bytes of elements that the kernel reads where they lie across k, by ldmatrix or one by one."""


class Mma(KernelVariant):
    """A group computes TSM × TSN of D, a warp WM × WN of them, stepping along k by TSK.

    STAGES tiles of A and B are in local memory: one is multiplied, the others are on their way (cp.async). They lie as the
    operands do, and are turned as they are read: elements of two bytes by ldmatrix, those of four one by one. Operands of one
    byte that lie across k are transposed beforehand, in scratch memory.

    Float32 is multiplied as TF32 where, and only where, precision="tf32" asks for it: rounded to nearest as it is read, or, on
    devices without the instruction for that, by the pass `convert` beforehand.

    Sums of FP8 are promoted: the unit, which may keep too few of their digits, adds up one turn, and what it made is added in
    float32.

    With ANEW, operands whose rows are not aligned to 16 bytes are laid out anew beforehand, so that they are; else they are
    copied in shorter pieces.

    With EARLY, under CUDA, groups begin while the launch before still runs, and wait.

    With SHARE > 0, as many groups per compute unit share the tiles that do not fill a round of all groups, as in `simt`.
    """

    name = "mma"
    summary = "by the matrix unit (mma.sync): halves, bytes, FP8 and TF32, asynchronous copies, no bank conflicts"
    dtypes = frozenset(_UNITS)
    precisions = frozenset({TF32})
    narrow_precisions = frozenset({"float16", "bfloat16"})
    parameters = (
        Parameter("TSM", 64, "rows of the tile", choices=(16, 32, 64, 128, 256)),
        Parameter("TSN", 64, "columns of the tile", choices=(16, 32, 64, 128, 256)),
        Parameter("TSK", 32, "depth of the tile: terms of the sum per step", choices=(16, 32, 64, 128, 256)),
        Parameter("WM", 32, "rows of a warp's tile", choices=(16, 32, 64, 128)),
        Parameter("WN", 32, "columns of a warp's tile", choices=(16, 32, 64, 128)),
        Parameter("STAGES", 2, "tiles of A and of B in local memory at once", minimum=2, maximum=8),
        Parameter("RASTER", 8, "rows of tiles that are computed side by side", maximum=64),
        Parameter("GROUPS", 1, "groups per compute unit that registers shall suffice for", maximum=8),
        Parameter(
            "SHARE",
            0,
            "groups per compute unit that share the last tiles; 0: each is one group's",
            minimum=0,
            maximum=8,
        ),
        Parameter("ANEW", 0, "1: operands whose rows are not aligned are laid out anew beforehand", choices=(0, 1)),
        Parameter("EARLY", 0, "whether groups begin, and wait, while the launch before still runs", choices=(0, 1)),
    )
    constants: ClassVar = {**KernelVariant.constants, **_mma_tilings.FITTED}
    constraints = (
        Constraint("WM ≤ TSM, whole warp tiles of rows", lambda TSM, WM: WM <= TSM),
        Constraint("WN ≤ TSN, whole warp tiles of columns", lambda TSN, WN: WN <= TSN),
        Constraint("WM · WN ≤ 8192, the sums of a warp", lambda WM, WN: WM * WN <= 8192),
        Constraint(
            "TSM / WM · TSN / WN ≤ 32, the warps of a group", lambda TSM, TSN, WM, WN: TSM // WM * (TSN // WN) <= 32
        ),
        Constraint(
            "TSM and TSN ≤ 128 · TSM / WM · TSN / WN, so that each piece of a row of the tile is somebody's",
            lambda TSM, TSN, WM, WN: max(TSM, TSN) <= 128 * (TSM // WM * (TSN // WN)),
        ),
    )

    def tile(self, parameters: Parameters) -> Tile:
        return Tile(int(parameters["TSM"]), int(parameters["TSN"]), int(parameters["TSK"]))

    def work_group(self, parameters: Parameters) -> tuple[int, int, int]:
        return _warps(parameters) * WARP, 1, 1

    def local_bytes(self, parameters: Parameters, problem: GemmProblem) -> int:
        tile = self.tile(parameters)
        stage = tile.depth * (tile.rows + tile.columns) * problem.dtype.itemsize
        if problem.dtype.itemsize == 4:
            stage += sum(_across(problem).values()) * tile.depth * BETWEEN_BYTES
        tiles = int(parameters["STAGES"]) * stage
        return max(tiles, _staged(parameters) * problem.accumulator.sum_bytes)

    def most_local_bytes(self, device: DeviceInfo) -> int:
        return device.most_local_memory

    def registers(self, parameters: Parameters, problem: GemmProblem) -> int:
        """Of sums, and of two turns' rows and columns: 4 for each 16 of them; and of sums on their way to be promoted."""
        rows, columns = int(parameters["WM"]), int(parameters["WN"])
        read = 2 * 4 * (rows + columns) // LINES
        promoted = PROMOTED if problem.dtype in FLOAT8S else 0
        return (rows * columns // WARP + read + promoted) * ceil_div(problem.accumulator.sum_bytes, 4)

    def unsupported(self, problem: GemmProblem, device: DeviceInfo) -> str | None:
        if reason := super().unsupported(problem, device):
            return reason
        if not multiplies_matrices_by_warps(device):
            found = device.architecture or device.name
            return f"NVIDIA's GPUs have the matrix unit's instructions from sm_80 on, this is {found}"
        if problem.dtype in FLOAT8S and not multiplies_float8_matrices(device):
            return f"NVIDIA's matrix unit multiplies {problem.dtype} from sm_89 on, this is {device.architecture}"
        unit = _UNITS[problem.dtype.name]
        return why_not_multiplied(problem, precision=unit.precision, sums=unit.sums)

    def cut(self, problem: GemmProblem, device: DeviceInfo) -> Cut | None:
        if problem.dtype in FLOAT8S:
            return FLOAT8_CUT if cuts_sums_of_float8(device) else None
        return cut_of_float32_sums(problem, device)

    def unit_rate(self, problem: GemmProblem, device: DeviceInfo, model: DeviceModel, parameters: Parameters) -> float:
        return _mma_tilings.unit_rate(problem, device, model)

    def considered(self, problem: GemmProblem, device: DeviceInfo, model: DeviceModel) -> Sequence[Parameters]:
        """The tilings that fit, shared or not, by the time that `_mma_tilings.predictor` expects of them."""
        return _mma_tilings.considered(self, problem, device, model)

    def predicted(
        self, problem: GemmProblem, device: DeviceInfo, model: DeviceModel, parameters: Parameters
    ) -> Prediction:
        return self.predictor(problem, device, model)(parameters)

    def predictor(self, problem: GemmProblem, device: DeviceInfo, model: DeviceModel) -> Predictor:
        taken = _taken(problem, device)

        @cache
        def passes(anew: ParameterValue) -> _mma_tilings.Passes:
            laid_out, made = _laid_out(taken, {"ANEW": anew})
            count, seconds = len(made), relayout.expected_seconds(made.values(), taken, device, model)
            if taken is not problem:
                count, seconds = count + 1, seconds + convert.moved_bytes(problem) / model.copy_bandwidth
            size = taken.dtype.itemsize
            return _mma_tilings.Passes(count, seconds, (laid_out.layout("a").ld * size, laid_out.layout("b").ld * size))

        return _mma_tilings.predictor(self, taken, device, model, passes)

    def unfit(self, parameters: Parameters, problem: GemmProblem, device: DeviceInfo) -> str | None:
        depth = int(parameters["TSK"]) * problem.dtype.itemsize
        if depth % AT_ONCE_BYTES:
            return f"TSK must be whole turns of the unit, {AT_ONCE_BYTES // problem.dtype.itemsize} terms of {problem.dtype}"
        if parameters["EARLY"] and not begins_launches_early(device):
            return "launches begin early under CUDA alone, from sm_90 on: EARLY must be 0"
        return None

    def defines(self, parameters: Parameters, problem: GemmProblem) -> dict[str, ParameterValue]:
        own = {name: value for name, value in parameters.items() if name not in ("SHARE", "ANEW", "EARLY")}
        tile = self.tile(parameters)
        terms = problem.effective_k
        return {
            **super().defines(own, problem),
            **stored_runs_defines(
                problem,
                _mma_tilings.width(problem),
                int(parameters["WN"]),
                apart=_mma_tilings.stores_neighbours(parameters),
            ),
            **({"PROMOTES": 1} if problem.dtype in FLOAT8S else {}),
            **({"EARLY": 1} if parameters["EARLY"] else {}),
            "ELEMENT_BYTES": problem.dtype.itemsize,
            "SUM_BYTES": problem.accumulator.sum_bytes,
            "UNIT_TYPE": _UNITS[problem.dtype.name].name if problem.dtype.name in _UNITS else "NONE",
            "ROUNDS_AS_READ": int(problem.precision == TF32),
            "ALIGNMENT_A": min(problem.alignment("a"), PIECE_BYTES),
            "ALIGNMENT_B": min(problem.alignment("b"), PIECE_BYTES),
            "WHOLE_ROWS": int(problem.m % tile.rows == 0),
            "WHOLE_COLUMNS": int(problem.n % tile.columns == 0),
            "WHOLE_TERMS": int(terms > 0 and terms % tile.depth == 0),
        }

    def steps(self, problem: GemmProblem, device: DeviceInfo, parameters: Parameters) -> Steps:
        taken = _taken(problem, device)
        laid_out, made = _laid_out(taken, parameters)
        names = {operand: each.scratch.name for operand, each in made.items()}
        product = self._product(laid_out, device, parameters, names)
        steps = Steps(
            [*(each.launch for each in made.values()), *product.launches],
            [*(each.scratch for each in made.values()), *product.scratch],
        )
        return steps if taken is problem else convert.PASS.before(problem, steps, device.max_work_group)

    def _product(
        self, problem: GemmProblem, device: DeviceInfo, parameters: Parameters, prepared: Mapping[Operand, str]
    ) -> Steps:
        """The launches of the product itself.

        Args:
            prepared: as `product`.
        """
        tile, items = self.tile(parameters), self.work_group(parameters)[0]
        tiles = ceil_div(problem.m, tile.rows) * ceil_div(problem.n, tile.columns) * problem.batch
        depth = max(ceil_div(problem.effective_k, tile.depth), 1)
        shared, sharers = sharing_of(tiles, depth, int(parameters["SHARE"]) * device.compute_units)
        whole = tiles - shared
        nbytes = self.local_bytes(parameters, problem)
        given = nbytes > device.local_memory and device.language == "cuda"
        defines = {**self.defines(parameters, problem), "GIVEN": int(given)}
        sharing = tuple(Integer(x, bits=32) for x in (whole, shared, sharers))

        def launch(
            groups: int, *, shares: int, function: str = "", nbytes: int = nbytes, given: bool = given
        ) -> Launch:
            parts = Buffer("parts" if shares else "d")  # an argument must name some memory
            return Launch(
                self.source({**defines, "SHARES": shares}, function=function),
                groups=(groups, 1, 1),
                work_group=(items, 1, 1),
                arguments=(*gemm_arguments(problem, prepared), parts, *sharing),
                local_bytes=0 if given else nbytes,
                dynamic_local_bytes=nbytes if given else 0,
            )

        launches = [launch(whole, shares=0)] if whole else []
        if not shared:
            return Steps(launches)
        launches.append(launch(sharers, shares=1))
        blocks = int(parameters["WM"]) // LINES
        added = _staged(parameters) * problem.accumulator.sum_bytes
        launches.append(launch(shared * blocks, shares=1, function="combine", nbytes=added, given=False))
        parts = Scratch("parts", 2 * sharers * tile.rows * tile.columns * problem.accumulator.sum_bytes)
        return Steps(launches, [parts])


def _staged(parameters: Parameters) -> int:
    """Sums on their way to D, in local memory: 16 rows of each warp, and 8 numbers between two rows."""
    return _warps(parameters) * LINES * (int(parameters["WN"]) + 8)


def _warps(parameters: Parameters) -> int:
    """Of a group."""
    p = {name: int(parameters[name]) for name in ("TSM", "TSN", "WM", "WN")}
    return p["TSM"] // p["WM"] * (p["TSN"] // p["WN"])


def _across(problem: GemmProblem) -> dict[Operand, bool]:
    """Which operands lie across k."""
    return {"a": transposes(problem.trans_a), "b": not transposes(problem.trans_b)}


def _taken(problem: GemmProblem, device: DeviceInfo) -> GemmProblem:
    """The product as the kernel reads it: of rounded operands where the device does not round them as they are read."""
    return problem if problem.precision == FULL or rounds_to_tf32(device) else convert.converted(problem)


def _laid_out(problem: GemmProblem, parameters: Parameters) -> tuple[GemmProblem, dict[Operand, transpose.Prepared]]:
    """The product of operands that the kernel reads as they lie, and those that are laid out anew for it: across k, of elements
    of one byte; and, with ANEW, those whose rows are not aligned.
    """
    made: dict[Operand, transpose.Prepared] = {}
    for operand, lies_across in _across(problem).items():
        turned = lies_across and problem.dtype.itemsize not in _TURNED_AS_READ
        unaligned = bool(parameters["ANEW"]) and problem.alignment(operand) % PIECE_BYTES != 0
        if not (turned or unaligned) or problem.empty:
            continue
        if problem.effective_k:
            stored = problem.stored_shape(operand)
            rows, columns = reversed(stored) if turned else stored
            padded = (rows, relayout.whole_columns(columns, problem.dtype.itemsize))
            made[operand] = relayout.prepare(problem, operand, f"{operand}_anew", turned=turned, padded=padded)
        layout = made[operand].layout if operand in made else problem.layout(operand)  # of which nothing is read
        if operand == "a":
            op = transposed(problem.trans_a) if turned else problem.trans_a
            problem = replace(problem, a=layout, trans_a=op)
        else:
            op = transposed(problem.trans_b) if turned else problem.trans_b
            problem = replace(problem, b=layout, trans_b=op)
    return problem, made


VARIANT = Mma()
