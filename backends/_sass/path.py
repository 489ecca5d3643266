"""In which order the products of one term of the inner product are computed: a path through the thread's tile.

Two of its rows go together, column by column: their numbers are in different banks, so that both are kept, and a column's is
read once for the two. Or one goes after the other, to and fro, with that row's number kept (see `ports`).
"""

from __future__ import annotations

from bisect import insort
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from gemmport.backends._sass import encoding as sass
from gemmport.backends._sass.loop import FFMA_LATENCY, Body, NotUnderstoodError, Value
from gemmport.backends._sass.ports import DEPTH, Ports, issue

_BEAM = 4  # paths through the tile that are followed at a time


@dataclass(frozen=True)
class Product:
    """An FFMA of the loop.

    Attributes:
        index: its place in the body as compiled.
        row, column: its factors, in the places A and B.
        home: the register of its sum.
    """

    index: int
    row: Value
    column: Value
    home: int


_Strip = tuple[int, ...]
"""Rows of the tile along which a path goes together, by their numbers."""

_Place = tuple[_Strip, tuple[_Strip, ...], tuple[int, ...]]
"""A strip, those to which a path has not come, and the columns of the first to which it has not come."""


class _Step(NamedTuple):
    """A product of the tile, as a path sees it.

    Attributes:
        row, column: the numbers of its factors.
        row_kept, column_kept: where in `_Walk.kept` they are.
        home: the bank of its sum.
    """

    product: Product
    row: int
    column: int
    row_kept: int
    column_kept: int
    home: int


class _Walk(NamedTuple):
    """A path through a part of the tile, and the part that is left.

    Attributes:
        cycles, waited: that it takes, and the reads that waited in them.
        even, odd: reads that wait at its end.
        kept: the factors read last: in place A of the even bank and of the odd one, and so in place B; -1 for none.
        strip: where it is; strips: those to which it has not come.
        column: where it is, or -1; columns: those of its strip to which it has not come.
        here: the products of its strip and column that are left.
        last: its last product; before: the path up to that.
    """

    cycles: int
    waited: int
    even: int
    odd: int
    kept: Sequence[int]
    strip: _Strip
    strips: tuple[_Strip, ...]
    column: int
    columns: tuple[int, ...]
    here: tuple[_Step, ...] = ()
    last: Product | None = None
    before: _Walk | None = None


def _issues(even: int, odd: int) -> list[Ports]:
    """What each product makes of reads that wait at the banks: by the bank of its sum (1), and whether it reads a factor from
    the even bank (2) and from the odd one (4) in place A, and so in place B (8, 16).
    """
    return [
        issue(even, odd, (kind >> 1 & 1) + (kind >> 3 & 1) + 1 - (kind & 1), (kind >> 2 & 1) + (kind >> 4) + (kind & 1))
        for kind in range(32)
    ]


_ISSUES = {(even, odd): _issues(even, odd) for even in range(DEPTH + 1) for odd in range(DEPTH + 1)}


def path(body: Body, step: Sequence[Product], before: Sequence[Product], height: int) -> list[Product]:
    """The products of a step in an order in which few factors are read, and those from both banks alike.

    It does not begin with sums to which those before it have just been added, and which are not there yet.

    Args:
        body: the loop's body.
        step: the products of one term: of each number of a column with each of a row.
        before: the products of the terms before, in their order.
        height: rows that go together, 1 or 2.

    Raises:
        NotUnderstoodError: the step has other products.
    """
    rows, columns = _sides(step)
    walks = [_walk(body, step, before, *sides, height) for sides in ((rows, columns), (columns, rows))]
    products = []
    at: _Walk | None = min(walks, key=lambda walk: (walk.cycles, walk.waited))
    while at and at.last:
        products.append(at.last)
        at = at.before
    return products[::-1]


def _walk(
    body: Body,
    step: Sequence[Product],
    before: Sequence[Product],
    rows: Sequence[Value],
    columns: Sequence[Value],
    height: int,
) -> _Walk:
    """Such an order that goes along strips of so many rows, column by column."""
    values = [*rows, *columns]  # by their numbers
    number = {value: i for i, value in enumerate(values)}
    banks = [body.bank(value) for value in values]
    tile: dict[tuple[int, int], _Step] = {}
    for p in step:
        for a, b in ((p.row, p.column), (p.column, p.row)):
            if (i := number[a]) < len(rows):
                j = number[b]
                tile[i, j] = _Step(Product(p.index, a, b, p.home), i, j, banks[i] & 1, 2 + (banks[j] & 1), p.home & 1)
    if len(tile) != len(rows) * len(columns):
        raise NotUnderstoodError("the products of a step are not those of a column and a row")
    across = tuple(range(len(rows), len(values)))
    # What tells factors apart: which they are; with two rows, for which there are twice as many ways, only their banks.
    alike = [bank & 1 for bank in banks] if height > 1 else banks

    def moved(walk: _Walk, place: _Place, column: int, here: Sequence[_Step], to: _Step, ports: Ports) -> _Walk:
        # With one row what the product just before has is counted on alone.
        kept = list(walk.kept) if height > 1 else [-1] * 4
        kept[to.row_kept], kept[to.column_kept] = to.row, to.column
        strip, strips, columns = place
        return tuple.__new__(_Walk, (  # as `_Walk` does it, in two thirds of the time
            walk.cycles + ports.cycles, walk.waited + max(ports.even, ports.odd), ports.even, ports.odd, kept,
            strip, strips, column, columns if walk.here else without(columns, column),
            tuple([x for x in here if x is not to]) if len(here) > 1 else (), to.product, walk,
        ))  # fmt: skip

    @cache
    def without(columns: tuple[int, ...], column: int) -> tuple[int, ...]:
        return tuple([c for c in columns if c != column])

    @cache
    def turns(strips: tuple[_Strip, ...]) -> list[_Place]:
        """The strips into which a path can go, one of each kind (see `alike`)."""
        kinds = {tuple([alike[row] for row in strip]): strip for strip in reversed(strips)}
        return [(strip, tuple([s for s in strips if s != strip]), across) for strip in kinds.values()]

    @cache
    def ahead(strip: _Strip, columns: tuple[int, ...], at: int) -> list[int]:
        """The next columns, one of each kind (see `alike`): those of a kind have their sums in the same banks, too.

        Those whose sums are there for the product at this place, if there are any.
        """
        late = {product.home for product in before[at - FFMA_LATENCY :]} if at < FFMA_LATENCY else set()
        there = [c for c in columns if all(tile[row, c].product.home not in late for row in strip)] if late else []
        return list({kind(strip, c): c for c in reversed(there or columns)}.values())

    @cache
    def kind(strip: _Strip, column: int) -> tuple[int, ...]:
        return alike[column], *[tile[row, column].home for row in strip]

    @cache
    def cell(strip: _Strip, column: int) -> tuple[_Step, ...]:
        return tuple([tile[row, column] for row in strip])

    def onward(walk: _Walk, at: int) -> Iterable[tuple[_Place, int, Sequence[_Step]]]:
        """Where a walk can go on, and the products there; where it is at an end of its strip, in others."""
        place, column = (walk.strip, walk.strips, walk.columns), walk.column
        if walk.here:
            return ((place, column, walk.here),)
        late = min(at, FFMA_LATENCY)
        if walk.columns:
            return [(place, c, cell(walk.strip, c)) for c in ahead(walk.strip, walk.columns, late)]
        # Into another strip it goes where it is.
        return [
            (place, c, cell(place[0], c))
            for place in turns(walk.strips)
            for c in ([column] if column >= 0 else ahead(place[0], place[2], late))
        ]

    walks = [_Walk(0, 0, 0, 0, [-1] * 4, (), _strips(banks[: len(rows)], height), -1, ())]
    for at in range(len(tile)):
        # The best so far, in order; of those that cost the same, the first.
        best: list[tuple[int, int, int, tuple[_Walk, _Place, int, Sequence[_Step], _Step, Ports]]] = []
        seen = 0
        for walk in walks:
            cycles, waited, issues, kept = walk.cycles, walk.waited, _ISSUES[walk.even, walk.odd], walk.kept
            for place, column, here in onward(walk, at):
                for to in here:
                    reads = to.home
                    if kept[to.row_kept] != to.row:
                        reads |= 2 << to.row_kept
                    if kept[to.column_kept] != to.column:
                        reads |= 2 << to.column_kept
                    ports = issues[reads]
                    after, waiting = (
                        cycles + ports.cycles,
                        waited + (ports.even if ports.even > ports.odd else ports.odd),
                    )
                    if seen >= _BEAM and (after, waiting) >= best[-1][:2]:
                        continue
                    insort(best, (after, waiting, seen, (walk, place, column, here, to, ports)))
                    seen += 1
                    del best[_BEAM:]
        walks = [moved(*way) for *_, way in best]
    return walks[0]


def _strips(banks: Sequence[int], height: int) -> tuple[_Strip, ...]:
    """Each row alone; or in pairs of one from each bank, both of which are kept, and what is left of one bank alone.

    Args:
        banks: of the rows.
    """
    if height == 1:
        return tuple((row,) for row in range(len(banks)))
    even, odd = ([row for row, bank in enumerate(banks) if bank & 1 == which] for which in (0, 1))
    pairs = min(len(even), len(odd))
    return *zip(even, odd, strict=False), *((row,) for row in even[pairs:] + odd[pairs:])


def in_one_bank(body: Body, product: Product) -> bool:
    """Whether all three operands of a product are in one bank."""
    return len({register & 1 for register in (body.bank(product.row), body.bank(product.column), product.home)}) == 1


def _sides(step: Sequence[Product]) -> tuple[list[Value], list[Value]]:
    """The factors of a step on two sides, so that a product has one of each."""
    partners: dict[Value, set[Value]] = defaultdict(set)
    for product in step:
        partners[product.row].add(product.column)
        partners[product.column].add(product.row)
    side = {step[0].row: 0}
    reached = [step[0].row]
    for value in reached:
        for other in partners[value] - side.keys():
            side[other] = 1 - side[value]
            reached.append(other)
    if len(side) != len(partners) or any(side[p.row] == side[p.column] for p in step):
        raise NotUnderstoodError("the factors of a step are not those of one column and one row")
    return [value for value in partners if not side[value]], [value for value in partners if side[value]]


def marks(body: Body, order: Sequence[Product]) -> list[int]:
    """The marks for reuse of each product, in their order: of factors that are also the next of their bank in their place."""
    following: dict[tuple[int, int], Value] = {}
    found = []
    for product in reversed(order):
        mark = 0
        for flag, value in ((sass.REUSE_A, product.row), (sass.REUSE_B, product.column)):
            place = flag, body.bank(value) & 1
            mark |= flag * (following.get(place) == value)
            following[place] = value
        found.append(mark)
    return found[::-1]
