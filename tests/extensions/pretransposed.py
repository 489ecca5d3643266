"""`pretransposed`: where op(B) does not run along k, a pass lays it out so beforehand, in scratch memory."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from gemmport.contracts.kernel import (
    KernelVariant,
    Parameter,
    Parameters,
    Pass,
    Steps,
    Tile,
    ceil_div,
    problem_defines,
)
from gemmport.core.device import DeviceInfo
from gemmport.core.plan import Buffer, Integer, Launch, Scratch
from gemmport.core.problem import GemmProblem, Layout

FOLDER = str(Path(__file__).parent)
B_TRANSPOSED = Buffer("b_transposed")


class Transpose(Pass):
    """A batch of matrices, each transposed; the result is dense."""

    name = "transpose"
    summary = "one work-item per element"
    folder = FOLDER

    def launch(self, problem: GemmProblem, ts: int) -> Launch:
        """The launch that transposes the k × n matrices B into n × k."""
        return Launch(
            self.source({"TS": ts, **problem_defines(problem)}),
            groups=(ceil_div(problem.k, ts) * ceil_div(problem.n, ts) * problem.batch, 1, 1),
            work_group=(ts, ts, 1),
            arguments=(
                Buffer("b"), Integer(problem.b.offset), Integer(problem.b.ld), Integer(problem.b.batch_stride),
                B_TRANSPOSED, Integer(problem.k, bits=32), Integer(problem.n, bits=32),
            ),
        )  # fmt: skip


class Pretransposed(KernelVariant):
    """The product reads B along k, whichever way it came."""

    name = "pretransposed"
    summary = "B transposed beforehand where it must be"
    folder = FOLDER
    parameters = (Parameter("TS", 8, "work-items of a group per dimension", maximum=16),)
    preparation = Transpose()

    def tile(self, parameters: Parameters) -> Tile:
        return Tile(int(parameters["TS"]), int(parameters["TS"]), 1)

    def work_group(self, parameters: Parameters) -> tuple[int, int, int]:
        return int(parameters["TS"]), int(parameters["TS"]), 1

    def steps(self, problem: GemmProblem, device: DeviceInfo, parameters: Parameters) -> Steps:
        if problem.trans_b != "N" or problem.effective_k == 0:  # it runs along k already, or is not read
            return super().steps(problem, device, parameters)
        n, k = problem.n, problem.k
        turned = replace(problem, trans_b="T", b=Layout(ld=k, batch_stride=n * k))
        product = self.product(turned, parameters, {"b": B_TRANSPOSED.name})
        nbytes = problem.batch * n * k * problem.dtype.itemsize
        return Steps(
            [self.preparation.launch(problem, int(parameters["TS"])), product], [Scratch(B_TRANSPOSED.name, nbytes)]
        )
