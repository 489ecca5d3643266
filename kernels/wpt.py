"""`wpt`: as `tiled`, but a work-item computes WPT rows of D, so that a number of B is read once for all of them."""

from __future__ import annotations

from gemmport.contracts.kernel import Constraint, KernelVariant, Parameter, Parameters, Tile, ceil_div
from gemmport.core.problem import GemmProblem


class WorkPerThread(KernelVariant):
    """A group of TS × TS / WPT work-items computes TS × TS elements, stepping along k by TS.

    A work-item takes WPT rows of one column, TS / WPT apart. Rows, because memory runs along columns here: work-items side by
    side still read and write side by side. Per term it reads one number of B into a register and one of A for each of its rows,
    where all work-items of a row read the same one: 1 + WPT reads of local memory for WPT multiply-adds instead of 2 · WPT.
    """

    name = "wpt"
    summary = "more work per thread: WPT rows of D per work-item"
    parameters = (
        Parameter("TS", 32, "rows, columns and depth of the tile", maximum=64),
        Parameter("WPT", 8, "rows of D per work-item", maximum=32),
        Parameter("PAD", 1, "elements added to each row in local memory, against bank conflicts", minimum=0, maximum=8),
    )
    constraints = (Constraint("TS % WPT = 0", lambda TS, WPT: TS % WPT == 0),)

    def tile(self, parameters: Parameters) -> Tile:
        return Tile(int(parameters["TS"]), int(parameters["TS"]), int(parameters["TS"]))

    def work_group(self, parameters: Parameters) -> tuple[int, int, int]:
        return int(parameters["TS"]), int(parameters["TS"]) // int(parameters["WPT"]), 1

    def local_bytes(self, parameters: Parameters, problem: GemmProblem) -> int:
        tile, pad = int(parameters["TS"]), int(parameters["PAD"])
        return 2 * tile * (tile + pad) * problem.accumulator.sum_bytes

    def registers(self, parameters: Parameters, problem: GemmProblem) -> int:
        return ceil_div((int(parameters["WPT"]) + 2) * problem.accumulator.sum_bytes, 4)


VARIANT = WorkPerThread()
