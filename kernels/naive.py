"""`naive`: one work-item per element of D. The first rung, and the simplest thing that is right."""

from __future__ import annotations

from gemmport.contracts.kernel import KernelVariant, Parameter, Parameters, Tile


class Naive(KernelVariant):
    """One work-item computes one element; a group covers TS × TS of them."""

    name = "naive"
    summary = "one work-item per element of D, straight from global memory"
    parameters = (Parameter("TS", 16, "work-items of a group per dimension", maximum=32),)

    def tile(self, parameters: Parameters) -> Tile:
        return Tile(int(parameters["TS"]), int(parameters["TS"]), 1)

    def work_group(self, parameters: Parameters) -> tuple[int, int, int]:
        return int(parameters["TS"]), int(parameters["TS"]), 1


VARIANT = Naive()
