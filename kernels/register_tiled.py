"""`register_tiled`: tiles in local memory, and a WPTM × WPTN block of sums in each work-item's registers."""

from __future__ import annotations

from gemmport.problem import GemmProblem
from gemmport.variant import Constraint, KernelVariant, Parameter, Parameters, Tile, ceil_div


class RegisterTiled(KernelVariant):
    """A group computes TSM × TSN of D, a work-item WPTM × WPTN of them, stepping along k by TSK.

    With WPTM + WPTN loads from local memory a work-item does WPTM · WPTN multiply-adds. ARRANGE says which rows and columns are
    its own: strided ones (neighbours stay neighbours), contiguous ones, or quads of four contiguous ones.
    """

    name = "register_tiled"
    summary = "local tiles, and a two-dimensional block of sums in registers"
    parameters = (
        Parameter("TSM", 64, "rows of the tile", maximum=512),
        Parameter("TSN", 64, "columns of the tile", maximum=512),
        Parameter("TSK", 16, "depth of the tile: terms of the sum per step", maximum=128),
        Parameter("WPTM", 4, "rows per work-item", maximum=32),
        Parameter("WPTN", 4, "columns per work-item", maximum=32),
        Parameter(
            "ARRANGE", "strided", "which rows and columns a work-item takes", choices=("strided", "contiguous", "quads")
        ),
        Parameter("PAD", 0, "elements added to each row in local memory, against bank conflicts", minimum=0, maximum=8),
    )
    constraints = (
        Constraint("TSM % WPTM = 0", lambda TSM, WPTM: TSM % WPTM == 0),
        Constraint("TSN % WPTN = 0", lambda TSN, WPTN: TSN % WPTN == 0),
        Constraint(
            "WPTM % 4 = 0 and WPTN % 4 = 0 with ARRANGE = quads",
            lambda ARRANGE, WPTM, WPTN: ARRANGE != "quads" or (WPTM % 4 == 0 and WPTN % 4 == 0),
        ),
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


VARIANT = RegisterTiled()
