"""`convert`: A and B of a product in scratch memory, rounded to the precision that was asked for.

They stay in their own type, or are stored in the narrower type of the precision, which has all of the numbers, as the kernel
behind the pass takes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gemmport.contracts.kernel import Pass, Steps, ceil_div, type_defines
from gemmport.core.dtypes import FLOAT32, DType
from gemmport.core.plan import Argument, Buffer, Integer, Launch, Scratch, TensorMap
from gemmport.core.precision import FULL
from gemmport.core.problem import GemmProblem, Layout, Operand

CONVERTED: dict[Operand, str] = {"a": "a_converted", "b": "b_converted"}
"""Names of the scratch memory that holds an operand."""

ITEMS = 256
"""Work-items of a group at most."""

EACH = 4
"""Elements of a work-item, each as far from the one before as the group is wide."""

LONG_LINE = 64
"""Elements of a line from which on groups take parts of one line each: shorter ones would leave most of a group idle."""

_RUN = 32
"""Elements to a multiple of which the lines in scratch memory are spaced, where that adds little: kernels then read them in
vectors."""


_RUN_BYTES = 16
"""Likewise where lines are shorter."""


@dataclass(frozen=True)
class _Side:
    """One operand as lines of numbers that lie side by side.

    Attributes:
        rows: lines of one matrix; lines: of all. columns: numbers of a line.
        source, target: where they lie, in numbers.
    """

    rows: int
    lines: int
    columns: int
    source: Layout
    target: Layout

    def arguments(self, operand: Operand, buffer: str) -> tuple[Argument, ...]:
        """As the kernel takes them."""
        source, target = self.source, self.target
        numbers = (source.offset, source.ld, source.batch_stride)
        return (
            Buffer(operand), *map(Integer, numbers), Buffer(buffer), Integer(target.ld), Integer(target.batch_stride),
            Integer(self.rows), Integer(self.lines), Integer(self.columns),
        )  # fmt: skip


class Convert(Pass):
    """A group converts numbers side by side: of one line where lines are long, else of several. The first groups are A's."""

    name = "convert"
    summary = "A and B rounded to the precision that was asked for"

    def before(self, problem: GemmProblem, product: Steps, max_work_group: int, stored: DType | None = None) -> Steps:
        """The steps of a product of operands that were converted, with what converts them in front.

        Args:
            product: the steps of `converted(problem, stored)`.
            max_work_group: work-items that a group of the device may have.
            stored: as `converted`.
        """
        if not converts(problem):
            return product
        items = min(ITEMS, max_work_group)
        sides = {operand: _side(problem, operand, stored) for operand in CONVERTED}
        groups = {operand: _groups(side, items * EACH) for operand, side in sides.items()}
        arguments = [x for operand, side in sides.items() for x in side.arguments(operand, CONVERTED[operand])]
        launch = Launch(
            self.source(
                {
                    **type_defines(FLOAT32, FLOAT32, stored or FLOAT32),
                    **({"STORES_NARROW": 1} if stored else {}),
                    f"ROUNDS_TO_{problem.precision.upper()}": 1,
                    "ITEMS": items,
                    "EACH": EACH,
                    "LONG_LINE": LONG_LINE,
                }
            ),
            groups=(sum(groups.values()), 1, 1),
            work_group=(items, 1, 1),
            arguments=(*arguments, Integer(groups["a"])),
        )
        taken = converted(problem, stored)
        scratch = [Scratch(CONVERTED[operand], taken.span(operand) * taken.dtype.itemsize) for operand in sides]
        return Steps(
            [launch, *(_of_converted(each) for each in product.launches)], [*scratch, *product.scratch]
        )  # fmt: skip


def converts(problem: GemmProblem) -> bool:
    """Whether operands of a problem are converted first: where they are read."""
    return problem.precision != FULL and not problem.empty and problem.effective_k > 0


def converted(problem: GemmProblem, stored: DType | None = None) -> GemmProblem:
    """The product of the operands of a problem as they are in scratch memory; the same where none is converted.

    Args:
        stored: the type of the precision, in which operands of float32 are stored; None: they stay in theirs.
    """
    if problem.precision == FULL:
        return problem
    if not converts(problem):
        return replace(problem, precision=FULL)
    a, b = (_layout(problem, operand, stored) for operand in CONVERTED)
    return replace(problem, precision=FULL, a=a, b=b, dtype=stored or problem.dtype)


def moved_bytes(problem: GemmProblem, stored: DType | None = None) -> int:
    """Bytes that are read and written to convert the operands of a problem.

    Args:
        stored: as `converted`.
    """
    if not converts(problem):
        return 0
    of_number = problem.dtype.itemsize + (stored or problem.dtype).itemsize
    return of_number * sum(_count(problem, operand) for operand in CONVERTED)


def _count(problem: GemmProblem, operand: Operand) -> int:
    rows, columns = problem.stored_shape(operand)
    return rows * columns * (problem.batch if problem.layout(operand).batch_stride else 1)


def _layout(problem: GemmProblem, operand: Operand, stored: DType | None) -> Layout:
    """Of an operand in scratch memory; a matrix that the batch shares is there once."""
    rows, columns = problem.stored_shape(operand)
    few = _RUN_BYTES // (stored or FLOAT32).itemsize
    run = _RUN if columns >= 8 * _RUN else few if columns >= 32 else 1
    ld = ceil_div(columns, run) * run
    return Layout(ld, rows * ld if problem.layout(operand).batch_stride else 0)


def _side(problem: GemmProblem, operand: Operand, stored: DType | None) -> _Side:
    """An operand in as few and as long lines as it lies in; a complex number is two."""
    rows, columns = problem.stored_shape(operand)
    source, target = problem.layout(operand), _layout(problem, operand, stored)
    batch = problem.batch if source.batch_stride else 1
    if source.ld == target.ld == columns or rows == 1:  # without gaps: a matrix is one line
        rows, columns = 1, rows * columns
        if batch > 1 and source.batch_stride == target.batch_stride == columns:
            batch, columns = 1, batch * columns
    parts = 2 if problem.dtype.kind == "complex" else 1
    return _Side(rows, rows * batch, parts * columns, *(_times(layout, parts) for layout in (source, target)))


def _times(layout: Layout, parts: int) -> Layout:
    return replace(
        layout, ld=parts * layout.ld, batch_stride=parts * layout.batch_stride, offset=parts * layout.offset
    )  # fmt: skip


def _groups(side: _Side, share: int) -> int:
    """Groups that convert so many numbers each at most."""
    if side.columns >= LONG_LINE:
        return side.lines * ceil_div(side.columns, share)
    return ceil_div(side.lines * side.columns, share)


def _of_converted(launch: Launch) -> Launch:
    """A launch that reads what was converted instead of A and B."""
    return replace(launch, arguments=_renamed(launch.arguments))


def _renamed(arguments: Sequence[Argument]) -> tuple[Argument, ...]:
    names = {str(operand): buffer for operand, buffer in CONVERTED.items()}
    return tuple(
        replace(x, name=names.get(x.name, x.name)) if isinstance(x, Buffer | TensorMap) else x for x in arguments
    )


PASS = Convert()
