"""`vectorized`: as `tiled`, in vectors: wide loads, and WIDTH neighbouring columns of D for each work-item."""

from __future__ import annotations

from gemmport.contracts.kernel import Constraint, KernelVariant, Parameter, Parameters, Tile, ceil_div, run_defines
from gemmport.core.plan import ParameterValue
from gemmport.core.problem import GemmProblem


class Vectorized(KernelVariant):
    """A group of TS / WIDTH × TS work-items computes TS × TS elements. A work-item brings one run of WIDTH neighbours of A and
    one of B per tile, in one access each where rows are aligned to it, and multiplies a number of A by a vector of B.
    """

    name = "vectorized"
    summary = "wide loads and vector arithmetic: WIDTH columns of D per work-item"
    parameters = (
        Parameter("TS", 32, "rows, columns and depth of the tile", maximum=64),
        Parameter("WIDTH", 4, "elements moved and computed at once", choices=(1, 2, 4, 8)),
    )
    constraints = (Constraint("TS % WIDTH = 0", lambda TS, WIDTH: TS % WIDTH == 0),)

    def tile(self, parameters: Parameters) -> Tile:
        return Tile(int(parameters["TS"]), int(parameters["TS"]), int(parameters["TS"]))

    def work_group(self, parameters: Parameters) -> tuple[int, int, int]:
        return int(parameters["TS"]) // int(parameters["WIDTH"]), int(parameters["TS"]), 1

    def local_bytes(self, parameters: Parameters, problem: GemmProblem) -> int:
        return 2 * int(parameters["TS"]) ** 2 * problem.accumulator.sum_bytes

    def registers(self, parameters: Parameters, problem: GemmProblem) -> int:
        return ceil_div((2 * int(parameters["WIDTH"]) + 1) * problem.accumulator.sum_bytes, 4)

    def defines(self, parameters: Parameters, problem: GemmProblem) -> dict[str, ParameterValue]:
        return {**super().defines(parameters, problem), **run_defines(problem, int(parameters["WIDTH"]))}


VARIANT = Vectorized()
