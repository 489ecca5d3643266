"""`split_k`: the sum over k in parts, each a launch of its own into scratch memory, and a reduction that adds them up."""

from __future__ import annotations

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
from gemmport.core.plan import Argument, Buffer, Integer, Launch, Scalar, Scratch
from gemmport.core.problem import GemmProblem, Operand

FOLDER = str(Path(__file__).parent)
PARTS = "parts"


class SumParts(Pass):
    """D = alpha · (part 0 + part 1 + …) + beta · C, always in this order, so that equal inputs give equal bits."""

    name = "sum_parts"
    summary = "adds up the parts of a sum that was split along k"
    folder = FOLDER

    def launch(self, problem: GemmProblem, parts: int, ts: int) -> Launch:
        """The launch that reads `parts` dense batches of m × n from scratch memory."""
        return Launch(
            self.source({"TS": ts, **problem_defines(problem)}),
            groups=(groups(problem, ts), 1, 1),
            work_group=(ts, ts, 1),
            arguments=(
                Buffer(PARTS), Integer(parts, bits=32),
                *operand(problem, "c"), *operand(problem, "d"),
                *(Scalar(value, problem.accumulator.name) for value in (problem.alpha, problem.beta)),
                Integer(problem.m, bits=32), Integer(problem.n, bits=32), Integer(problem.batch, bits=32),
            ),
        )  # fmt: skip


class SplitK(KernelVariant):
    """Each part is computed by one launch, an element by one work-item."""

    name = "split_k"
    summary = "the sum over k in parts, and their reduction"
    folder = FOLDER
    parameters = (
        Parameter("SPLITS", 4, "parts of the sum", maximum=64),
        Parameter("TS", 8, "work-items of a group per dimension", maximum=16),
    )
    reduction = SumParts()

    def tile(self, parameters: Parameters) -> Tile:
        return Tile(int(parameters["TS"]), int(parameters["TS"]), 1)

    def work_group(self, parameters: Parameters) -> tuple[int, int, int]:
        return int(parameters["TS"]), int(parameters["TS"]), 1

    def steps(self, problem: GemmProblem, device: DeviceInfo, parameters: Parameters) -> Steps:
        splits, ts = int(parameters["SPLITS"]), int(parameters["TS"])
        kernel = self.source({"TS": ts, **problem_defines(problem)})
        step = ceil_div(problem.effective_k, splits)
        products = [
            Launch(
                kernel,
                groups=(groups(problem, ts), 1, 1),
                work_group=(ts, ts, 1),
                arguments=(
                    *operand(problem, "a"), *operand(problem, "b"),
                    Buffer(PARTS), Integer(part * problem.batch * problem.m * problem.n),
                    Integer(problem.m, bits=32), Integer(problem.n, bits=32),
                    Integer(min(part * step, problem.effective_k), bits=32),
                    Integer(min((part + 1) * step, problem.effective_k), bits=32),
                ),
            )
            for part in range(splits)
        ]  # fmt: skip
        nbytes = splits * problem.batch * problem.m * problem.n * problem.accumulator.itemsize
        return Steps([*products, self.reduction.launch(problem, splits, ts)], [Scratch(PARTS, nbytes)])


def groups(problem: GemmProblem, ts: int) -> int:
    """Groups that cover D, with one work-item per element."""
    return ceil_div(problem.m, ts) * ceil_div(problem.n, ts) * problem.batch


def operand(problem: GemmProblem, name: Operand) -> tuple[Argument, ...]:
    """An operand's memory and layout, as the preludes' macros take them."""
    layout = problem.layout(name)
    return Buffer(name), Integer(layout.offset), Integer(layout.ld), Integer(layout.batch_stride)
