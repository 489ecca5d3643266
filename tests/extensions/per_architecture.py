"""`per_architecture`: another source for an architecture that has one of its own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from gemmport.contracts.kernel import KernelVariant, Parameter, Parameters, Steps, Tile
from gemmport.core.device import DeviceInfo
from gemmport.core.problem import GemmProblem

OWN_SOURCES = ("sm_90",)


class PerArchitecture(KernelVariant):
    """Both sources have one contract, and a function of the same name."""

    name = "per_architecture"
    summary = "a source for each architecture that deserves one"
    folder = str(Path(__file__).parent)
    parameters = (Parameter("TS", 8, "work-items of a group per dimension", maximum=16),)

    def tile(self, parameters: Parameters) -> Tile:
        return Tile(int(parameters["TS"]), int(parameters["TS"]), 1)

    def work_group(self, parameters: Parameters) -> tuple[int, int, int]:
        return int(parameters["TS"]), int(parameters["TS"]), 1

    def steps(self, problem: GemmProblem, device: DeviceInfo, parameters: Parameters) -> Steps:
        launch = self.product(problem, parameters)
        if device.architecture in OWN_SOURCES:
            stem = f"{self.name}_{device.architecture}"
            launch = replace(launch, kernel=self.source(self.defines(parameters, problem), stem=stem))
        return Steps([launch])
