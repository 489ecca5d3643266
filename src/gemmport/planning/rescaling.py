"""The plan of a product whose rows and columns have scales: the plan of its sums, and the pass that scales them and adds C."""

from __future__ import annotations

from dataclasses import replace

from gemmport.core.dtypes import FLOAT32
from gemmport.core.plan import Buffer, Launch, Plan, Scratch, TensorMap
from gemmport.core.problem import GemmProblem
from gemmport.kernels import rescale

SUMS = "sums"

ScaleSteps = tuple[rescale.Steps | None, rescale.Steps | None]
"""Where the scales of D's rows lie, and those of its columns; None: there are none."""


def sums_bytes(problem: GemmProblem) -> int:
    """Bytes of the sums that scales multiply."""
    return problem.batch * problem.m * problem.n * FLOAT32.itemsize


def scaled(of_sums: Plan, problem: GemmProblem, steps: ScaleSteps) -> Plan:
    """The plan of a product with scales, "row_scales" and "column_scales" among its operands.

    Args:
        of_sums: the plan of `rescale.unscaled(problem)`.
        problem: with alpha, beta, C and D of the whole product.
    """
    if problem.empty:
        return replace(of_sums, problem=problem)
    last = rescale.PASS.launch(problem, *steps, of_sums.device.max_work_group)
    return replace(
        of_sums,
        problem=problem,
        launches=(*map(_of_sums, of_sums.launches), last),
        scratch=(*of_sums.scratch, Scratch(SUMS, sums_bytes(problem))),
        meanwhile=(*map(_of_sums, of_sums.meanwhile), last) if of_sums.meanwhile else (),
    )


def _of_sums(launch: Launch) -> Launch:
    """A launch that writes the sums where it wrote D."""
    arguments = tuple(
        replace(argument, name=SUMS)
        if isinstance(argument, Buffer | TensorMap) and argument.name in ("c", "d")
        else argument
        for argument in launch.arguments
    )
    return replace(launch, arguments=arguments)
