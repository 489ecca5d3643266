"""`register_tiled_vectorized`: as `register_tiled`, in vectors: wide accesses of global and of local memory."""

from __future__ import annotations

from gemmport.plan import ParameterValue
from gemmport.problem import GemmProblem
from gemmport.variant import Constraint, KernelVariant, Parameter, Parameters, Tile, ceil_div, run_defines


class RegisterTiledVectorized(KernelVariant):
    """A group computes TSM × TSN of D, a work-item WPTM × WPTN of them, stepping along k by TSK; all of it moves in runs of
    WIDTH neighbours.

    Global memory is read and written a run at a time where rows are aligned to runs. Both tiles are stored by term, so that a
    run of rows of A or of columns of B is one access of local memory; an operand that runs along k is transposed on its way
    there, element by element. A work-item's runs are strided, so that work-items side by side read runs side by side.

    Runs are dealt out one after another and need not come out even, so that myGEMM's rules for that (TSK · WPTM · WPTN
    divisible by TSN · WIDTH and by TSM · WIDTH) are not needed. That TSM and TSN are divisible by WIDTH follows from the rules
    below; TSK must be, because an operand may run along k.
    """

    name = "register_tiled_vectorized"
    summary = "register tiles with wide accesses of global and local memory"
    parameters = (
        Parameter("TSM", 64, "rows of the tile", maximum=512),
        Parameter("TSN", 64, "columns of the tile", maximum=512),
        Parameter("TSK", 16, "depth of the tile: terms of the sum per step", maximum=128),
        Parameter("WPTM", 4, "rows per work-item", maximum=32),
        Parameter("WPTN", 4, "columns per work-item", maximum=32),
        Parameter("WIDTH", 4, "elements moved and computed at once", choices=(1, 2, 4, 8)),
        Parameter("PAD", 0, "elements added to each row in local memory, against bank conflicts", minimum=0, maximum=8),
    )
    constraints = (
        Constraint("TSM % WPTM = 0", lambda TSM, WPTM: TSM % WPTM == 0),
        Constraint("TSN % WPTN = 0", lambda TSN, WPTN: TSN % WPTN == 0),
        Constraint("WPTM % WIDTH = 0, whole runs of rows", lambda WPTM, WIDTH: WPTM % WIDTH == 0),
        Constraint("WPTN % WIDTH = 0, whole runs of columns", lambda WPTN, WIDTH: WPTN % WIDTH == 0),
        Constraint("TSK % WIDTH = 0, whole runs of terms", lambda TSK, WIDTH: TSK % WIDTH == 0),
        Constraint("PAD % WIDTH = 0, so that rows stay aligned", lambda PAD, WIDTH: PAD % WIDTH == 0),
        Constraint("WPTM · WPTN ≤ 256, the sums of one work-item", lambda WPTM, WPTN: WPTM * WPTN <= 256),
    )

    def tile(self, parameters: Parameters) -> Tile:
        return Tile(int(parameters["TSM"]), int(parameters["TSN"]), int(parameters["TSK"]))

    def work_group(self, parameters: Parameters) -> tuple[int, int, int]:
        p = {name: int(parameters[name]) for name in ("TSM", "TSN", "WPTM", "WPTN")}
        return p["TSN"] // p["WPTN"], p["TSM"] // p["WPTM"], 1

    def local_bytes(self, parameters: Parameters, problem: GemmProblem) -> int:
        p = {name: int(parameters[name]) for name in ("TSM", "TSN", "TSK", "PAD")}
        return p["TSK"] * (p["TSM"] + p["TSN"] + 2 * p["PAD"]) * problem.accumulator.itemsize

    def registers(self, parameters: Parameters, problem: GemmProblem) -> int:
        rows, columns = int(parameters["WPTM"]), int(parameters["WPTN"])
        return ceil_div((rows * columns + rows + columns) * problem.accumulator.itemsize, 4)

    def defines(self, parameters: Parameters, problem: GemmProblem) -> dict[str, ParameterValue]:
        return {**super().defines(parameters, problem), **run_defines(problem, int(parameters["WIDTH"]))}


VARIANT = RegisterTiledVectorized()
