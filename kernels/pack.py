"""`pack`: operands of a product laid out in panels, term by term, as the micro-kernel of `packed` reads them."""

from __future__ import annotations

from collections.abc import Collection

from gemmport.contracts.kernel import (
    Constraint,
    Parameter,
    Parameters,
    Pass,
    Steps,
    ceil_div,
    half_defines,
    parameter_defines,
    problem_defines,
    run_defines,
)
from gemmport.core.plan import Argument, Buffer, Integer, Launch, Scratch
from gemmport.core.problem import GemmProblem, Layout, Operand

PANELS: dict[Operand, str] = {"a": "a_panels", "b": "b_panels"}
"""Names of the scratch memory that holds the panels of an operand."""

MOVES = Parameter("MOVES", "vload", "how OpenCL C moves runs that may lie anywhere", choices=("vload", "struct"))
"""By `vload` and `vstore`, or through a packed struct. Intel's runtime makes faster code of the first; PoCL compiles the other
sooner (docs/cpu.md). Programs in CUDA C++ move elements one by one.
"""


class Pack(Pass):
    """A group of one work-item writes DEPTH terms of a panel: ROWS rows of op(A), or COLUMNS columns of op(B).

    Panels hold elements of the type of the sums, whatever the operands' type, op and strides are, and zeros beyond the edges.
    """

    name = "pack"
    summary = "A and B in panels, term by term, as sums"
    parameters = (
        Parameter("ROWS", 4, "rows of A in a panel"),
        Parameter("COLUMNS", 8, "columns of B in a panel"),
        Parameter("WIDTH", 4, "elements moved at once", choices=(1, 2, 4, 8, 16)),
        Parameter("DEPTH", 256, "terms that a group writes", maximum=65536),
        MOVES,
    )
    constraints = (
        Constraint("COLUMNS % WIDTH = 0, whole runs of columns", lambda COLUMNS, WIDTH: COLUMNS % WIDTH == 0),
        Constraint("DEPTH % WIDTH = 0, whole runs of terms", lambda DEPTH, WIDTH: DEPTH % WIDTH == 0),
    )

    def steps(self, problem: GemmProblem, parameters: Parameters, operands: Collection[Operand] = ("a", "b")) -> Steps:
        """The launch that packs op(A), op(B) or both of a problem with terms, and the scratch memory that it fills.

        A matrix that the batch shares is packed once.
        """
        values = self.complete(parameters)
        pieces = ceil_div(problem.k, int(values["DEPTH"]))
        arguments: list[Argument] = []
        groups: dict[Operand, int] = {}
        scratch = []
        for operand, name in PANELS.items():
            stored, panels = problem.layout(operand), layout(problem, operand, values)
            arguments += [Buffer(operand), Integer(stored.offset), Integer(stored.ld), Integer(stored.batch_stride)]
            groups[operand] = 0
            if operand not in operands:
                continue
            count = _count(problem, operand, values) * (problem.batch if panels.batch_stride else 1)
            groups[operand] = count * pieces
            scratch.append(Scratch(name, count * panels.ld * problem.accumulator.sum_bytes))
        launch = Launch(
            self.source(
                {
                    **parameter_defines(values),
                    **problem_defines(problem),
                    **run_defines(problem, int(values["WIDTH"])),
                    **half_defines(problem, int(values["WIDTH"])),
                }
            ),
            groups=(sum(groups.values()), 1, 1),
            work_group=(1, 1, 1),
            arguments=(
                *arguments,
                # What is not packed has no panels: no group writes there.
                *(Buffer(name if operand in operands else scratch[0].name) for operand, name in PANELS.items()),
                *(Integer(size, bits=32) for size in (problem.m, problem.n, problem.k, groups["a"])),
            ),
        )
        return Steps([launch], scratch)


def layout(problem: GemmProblem, operand: Operand, parameters: Parameters) -> Layout:
    """Where the panels of an operand lie, in elements: `ld` from one to the next, `batch_stride` from matrix to matrix (0: the
    batch shares one).
    """
    lines = lines_of(parameters) if operand == "a" else int(parameters["COLUMNS"])
    ld = problem.k * lines
    shared = problem.layout(operand).batch_stride == 0
    return Layout(ld, 0 if shared else ld * _count(problem, operand, parameters))


def lines_of(parameters: Parameters, rows: int = 0) -> int:
    """Elements that the panels of so many rows of A, or one panel, take for each term: each is stored in whole runs."""
    panel, width = int(parameters["ROWS"]), int(parameters["WIDTH"])
    return ceil_div(rows or panel, panel) * ceil_div(panel, width) * width


def _count(problem: GemmProblem, operand: Operand, parameters: Parameters) -> int:
    """Panels of one matrix."""
    if operand == "a":
        return ceil_div(problem.m, int(parameters["ROWS"]))
    return ceil_div(problem.n, int(parameters["COLUMNS"]))


PASS = Pack()
