"""The plan of a product whose rows and columns have scales: that of a kernel which multiplies by them as it stores its sums, or
that of the sums, with a pass behind it that scales them and adds C.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from gemmport import kernels
from gemmport.contracts.scales import ScaleLayouts, with_scales
from gemmport.core.dtypes import FLOAT32
from gemmport.core.errors import UnsupportedError
from gemmport.core.plan import Buffer, Launch, Plan, Scratch, TensorMap
from gemmport.core.problem import GemmProblem
from gemmport.kernels import rescale

SUMS = "sums"


def sums_bytes(problem: GemmProblem) -> int:
    """Bytes of the sums that a pass multiplies by scales."""
    return problem.batch * problem.m * problem.n * FLOAT32.itemsize


def scaled(make: Callable[[GemmProblem], Plan], problem: GemmProblem, layouts: ScaleLayouts) -> Plan:
    """The plan of a product with scales, "row_scales" and "column_scales" among its operands.

    Args:
        make: makes the plan of a product without scales.
        problem: with alpha, beta, C and D of the whole product.

    Raises:
        UnsupportedError: one allocation of the device has no room for the sums. What `make` raises.
    """
    of_sums = make(rescale.unscaled(problem))
    if problem.empty:
        return replace(of_sums, problem=problem)
    if _takes_scales(of_sums) and (whole := _scaled_by_its_kernel(make, problem, layouts)) is not None:
        return whole
    if of_sums.device.max_allocation < sums_bytes(problem):
        raise UnsupportedError(
            f"the sums that scales multiply must fit one allocation of {of_sums.device.max_allocation:,} bytes on "
            f"{of_sums.device.label}; they take {sums_bytes(problem):,}: multiply fewer rows or columns at a time"
        )
    last = rescale.PASS.launch(problem, layouts, of_sums.device.max_work_group)
    return replace(
        of_sums,
        problem=problem,
        launches=(*map(_of_sums, of_sums.launches), last),
        scratch=(*of_sums.scratch, Scratch(SUMS, sums_bytes(problem))),
        meanwhile=(*map(_of_sums, of_sums.meanwhile), last) if of_sums.meanwhile else (),
    )


def _takes_scales(plan: Plan) -> bool:
    return kernels.variant(plan.variant).takes_scales


def _scaled_by_its_kernel(
    make: Callable[[GemmProblem], Plan], problem: GemmProblem, layouts: ScaleLayouts
) -> Plan | None:
    """The plan of a kernel that takes scales; None where none is chosen, or can be, for D as it is. What comes before the
    kernel's own launches, such as passes over A and B, has none.
    """
    try:
        plan = make(problem)
    except UnsupportedError:
        return None
    if not _takes_scales(plan):
        return None

    def given(launches: tuple[Launch, ...]) -> tuple[Launch, ...]:
        return tuple(with_scales(each, layouts) if each.kernel.stem == plan.variant else each for each in launches)

    if given(plan.launches) == plan.launches:  # it has other sources here
        return None
    return replace(plan, launches=given(plan.launches), meanwhile=given(plan.meanwhile))


def _of_sums(launch: Launch) -> Launch:
    """A launch that writes the sums where it wrote D."""
    arguments = tuple(
        replace(argument, name=SUMS)
        if isinstance(argument, Buffer | TensorMap) and argument.name in ("c", "d")
        else argument
        for argument in launch.arguments
    )
    return replace(launch, arguments=arguments)
