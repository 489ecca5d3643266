"""`transposed_b`: B transposed beforehand where it must be, so that A and B are read alike, through rectangular tiles."""

from __future__ import annotations

from dataclasses import replace

from gemmport.contracts.kernel import Constraint, KernelVariant, Parameter, Parameters, Steps, Tile, ceil_div
from gemmport.core.device import DeviceInfo
from gemmport.core.problem import GemmProblem, transposed, transposes
from gemmport.kernels import transpose


class TransposedB(KernelVariant):
    """A group computes TS × TS of D, a work-item WPT rows of one column, stepping along k by TSDK.

    The kernel reads op(B) along k, as row-major op(A) is read. Where op(B) is not stored so, `transpose` lays it out in
    scratch memory first, in groups of the product's shape; a B that the batch shares, once.
    """

    name = "transposed_b"
    summary = "B transposed beforehand, tiles as deep as you like"
    parameters = (
        Parameter("TS", 32, "rows and columns of the tile", maximum=32),
        Parameter("WPT", 4, "rows per work-item", maximum=32),
        Parameter("TSDK", 16, "depth of the tile: terms of the sum per step", maximum=128),
        Parameter("PAD", 1, "elements added to each row in local memory, against bank conflicts", minimum=0, maximum=8),
    )
    constraints = (Constraint("TS % WPT = 0", lambda TS, WPT: TS % WPT == 0),)

    def tile(self, parameters: Parameters) -> Tile:
        return Tile(int(parameters["TS"]), int(parameters["TS"]), int(parameters["TSDK"]))

    def work_group(self, parameters: Parameters) -> tuple[int, int, int]:
        return int(parameters["TS"]), int(parameters["TS"]) // int(parameters["WPT"]), 1

    def local_bytes(self, parameters: Parameters, problem: GemmProblem) -> int:
        p = {name: int(parameters[name]) for name in ("TS", "TSDK", "PAD")}
        return 2 * p["TS"] * (p["TSDK"] + p["PAD"]) * problem.accumulator.sum_bytes

    def registers(self, parameters: Parameters, problem: GemmProblem) -> int:
        return ceil_div((int(parameters["WPT"]) + 2) * problem.accumulator.sum_bytes, 4)

    def steps(self, problem: GemmProblem, device: DeviceInfo, parameters: Parameters) -> Steps:
        if transposes(problem.trans_b) or problem.effective_k == 0:  # it runs along k already, or is not read
            return super().steps(problem, device, parameters)
        across, down, _ = self.work_group(parameters)
        made = transpose.prepare(problem, "b", "b_transposed", {"TS": across, "ROWS": down})
        turned = replace(problem, trans_b=transposed(problem.trans_b), b=made.layout)
        product = self.product(turned, parameters, {"b": made.scratch.name})
        return Steps([made.launch, product], [made.scratch])


VARIANT = TransposedB()
