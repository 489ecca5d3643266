"""`rescale`: sums in scratch memory, times the scales of their row and their column, plus beta · C, rounded once."""

from __future__ import annotations

from dataclasses import replace

from gemmport.contracts.kernel import Pass, ceil_div, type_defines
from gemmport.contracts.scales import ScaleLayouts, scale_arguments, scale_defines
from gemmport.core.dtypes import FLOAT32
from gemmport.core.plan import Argument, Buffer, Integer, Launch, Scalar
from gemmport.core.problem import GemmProblem, Layout, Operand

ITEMS = 256
"""Work-items of a group at most."""

EACH = 4
"""Elements of a work-item, each as far from the one before as the group is wide."""

LONG_ROW = 64
"""Elements of a row from which on a group takes a part of one row: shorter ones would leave most of a group idle."""


class Rescale(Pass):
    """A group takes elements of D side by side: of one row where rows are long, else of several."""

    name = "rescale"
    summary = "sums times the scales of their rows and columns, plus beta · C"

    def launch(self, problem: GemmProblem, layouts: ScaleLayouts, max_work_group: int, sums_offset: int = 0) -> Launch:
        """The launch that makes D of "sums", what `unscaled(problem)` has computed.

        Args:
            problem: with alpha, beta, C and D of the whole product; D has elements.
            layouts: where "row_scales" and "column_scales" lie.
            max_work_group: work-items that a group of the device may have.
            sums_offset: elements before the first of the sums.
        """
        items = min(ITEMS, max_work_group)
        lines, share = problem.m * problem.batch, items * EACH
        groups = lines * ceil_div(problem.n, share) if problem.n >= LONG_ROW else ceil_div(lines * problem.n, share)
        arguments: list[Argument] = [Buffer("sums"), Integer(sums_offset)]
        operands: tuple[Operand, ...] = ("c", "d")
        for operand in operands:
            layout = problem.layout(operand)
            arguments += [Buffer(operand), *map(Integer, (layout.offset, layout.ld, layout.batch_stride))]
        arguments += [Scalar(value, FLOAT32.name) for value in (problem.alpha, problem.beta)]
        arguments += [*map(Integer, (problem.m, lines, problem.n)), *scale_arguments(layouts)]
        defines = {
            **type_defines(FLOAT32, FLOAT32, problem.output),
            **scale_defines(layouts),
            "ITEMS": items,
            "EACH": EACH,
            "LONG_ROW": LONG_ROW,
        }
        return Launch(self.source(defines), (groups, 1, 1), (items, 1, 1), tuple(arguments))


def unscaled(problem: GemmProblem) -> GemmProblem:
    """The product whose result is the sums of a problem: in float32, one row after another."""
    dense = Layout(max(problem.n, 1), problem.m * problem.n)
    return replace(problem, output=FLOAT32, alpha=1.0, beta=0.0, c=dense, d=dense)


PASS = Rescale()
