"""What the contracts of kernels have in common whose work-items compute a block of sums each in registers."""

from __future__ import annotations

from gemmport.contracts.kernel import Constraint, KernelVariant, Parameter, Parameters, Tile, ceil_div, run_defines
from gemmport.core.plan import ParameterValue
from gemmport.core.problem import GemmProblem

WIDTH = Parameter("WIDTH", 4, "elements moved and computed at once", choices=(1, 2, 4, 8))

WHOLE_BLOCKS = (
    Constraint("TSM % WPTM = 0", lambda TSM, WPTM: TSM % WPTM == 0),
    Constraint("TSN % WPTN = 0", lambda TSN, WPTN: TSN % WPTN == 0),
)

FEW_SUMS = Constraint("WPTM · WPTN ≤ 256, the sums of one work-item", lambda WPTM, WPTN: WPTM * WPTN <= 256)

# That TSM and TSN are divisible by WIDTH follows; TSK must be, because an operand may run along k.
WHOLE_RUNS = (
    Constraint("WPTM % WIDTH = 0, whole runs of rows", lambda WPTM, WIDTH: WPTM % WIDTH == 0),
    Constraint("WPTN % WIDTH = 0, whole runs of columns", lambda WPTN, WIDTH: WPTN % WIDTH == 0),
    Constraint("TSK % WIDTH = 0, whole runs of terms", lambda TSK, WIDTH: TSK % WIDTH == 0),
    Constraint("PAD % WIDTH = 0, so that rows stay aligned", lambda PAD, WIDTH: PAD % WIDTH == 0),
)


def tile_parameters(*, depth: int = 16, rows: int = 4, columns: int = 4) -> tuple[Parameter, ...]:
    """TSM, TSN, TSK, WPTM and WPTN, with defaults of the last three."""
    return (
        Parameter("TSM", 64, "rows of the tile", maximum=512),
        Parameter("TSN", 64, "columns of the tile", maximum=512),
        Parameter("TSK", depth, "depth of the tile: terms of the sum per step", maximum=128),
        Parameter("WPTM", rows, "rows per work-item", maximum=32),
        Parameter("WPTN", columns, "columns per work-item", maximum=32),
    )


def padding(elements: int = 0) -> Parameter:
    """PAD, with its default."""
    meaning = "elements added to each row in local memory, against bank conflicts"
    return Parameter("PAD", elements, meaning, minimum=0, maximum=8)


class RegisterTiles(KernelVariant):
    """A group computes TSM × TSN of D, a work-item WPTM × WPTN of them, stepping along k by TSK; tiles of both operands, with
    rows that are PAD elements longer, lie in local memory.
    """

    def tile(self, parameters: Parameters) -> Tile:
        return Tile(int(parameters["TSM"]), int(parameters["TSN"]), int(parameters["TSK"]))

    def work_group(self, parameters: Parameters) -> tuple[int, int, int]:
        p = {name: int(parameters[name]) for name in ("TSM", "TSN", "WPTM", "WPTN")}
        return p["TSN"] // p["WPTN"], p["TSM"] // p["WPTM"], 1

    def local_bytes(self, parameters: Parameters, problem: GemmProblem) -> int:
        tile, pad = self.tile(parameters), int(parameters.get("PAD", 0))
        return tile.depth * (tile.rows + tile.columns + 2 * pad) * problem.accumulator.sum_bytes

    def registers(self, parameters: Parameters, problem: GemmProblem) -> int:
        rows, columns = int(parameters["WPTM"]), int(parameters["WPTN"])
        return ceil_div((rows * columns + rows + columns) * problem.accumulator.sum_bytes, 4)


class RegisterTilesOfRuns(RegisterTiles):
    """`RegisterTiles` of which everything moves in runs of WIDTH neighbours."""

    def defines(self, parameters: Parameters, problem: GemmProblem) -> dict[str, ParameterValue]:
        return {**super().defines(parameters, problem), **run_defines(problem, int(parameters["WIDTH"]))}
