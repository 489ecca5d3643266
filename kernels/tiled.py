"""`tiled`: square tiles of A and B staged in local memory, so that each element is read from global memory once per tile."""

from __future__ import annotations

from gemmport.contracts.kernel import KernelVariant, Parameter, Parameters, Tile, ceil_div
from gemmport.core.problem import GemmProblem


class Tiled(KernelVariant):
    """A group of TS × TS work-items computes as many elements, stepping along k by TS."""

    name = "tiled"
    summary = "square tiles of A and B in local memory"
    parameters = (
        Parameter("TS", 16, "rows, columns and depth of the tile, and work-items of a group per dimension", maximum=32),
        Parameter("PAD", 1, "elements added to each row in local memory, against bank conflicts", minimum=0, maximum=8),
    )

    def tile(self, parameters: Parameters) -> Tile:
        return Tile(int(parameters["TS"]), int(parameters["TS"]), int(parameters["TS"]))

    def work_group(self, parameters: Parameters) -> tuple[int, int, int]:
        return int(parameters["TS"]), int(parameters["TS"]), 1

    def local_bytes(self, parameters: Parameters, problem: GemmProblem) -> int:
        tile, pad = int(parameters["TS"]), int(parameters["PAD"])
        return 2 * tile * (tile + pad) * problem.accumulator.sum_bytes

    def registers(self, parameters: Parameters, problem: GemmProblem) -> int:
        return ceil_div(3 * problem.accumulator.sum_bytes, 4)


VARIANT = Tiled()
