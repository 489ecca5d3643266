"""In which order the products of one term of the inner product are computed: a path through the thread's tile.

Two of its rows go together, column by column: their numbers are in different banks, so that both are kept, and a column's is
read once for the two. Or one goes after the other, to and fro, with that row's number kept (see `ports`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from gemmport.backends._sass import encoding as sass
from gemmport.backends._sass.loop import FFMA_LATENCY, Body, NotUnderstoodError, Value
from gemmport.backends._sass.ports import Ports

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


_Strip = tuple[Value, ...]
"""Rows of the tile along which a path goes together."""


@dataclass(frozen=True)
class _Walk:
    """A path through a part of the tile, and the part that is left.

    Attributes:
        cost: cycles, and the reads that waited in them.
        ports: what waits at its end.
        kept: the factors read last, by place and bank.
        strip: where it is; strips: those to which it has not come.
        column: where it is; columns: those of its strip to which it has not come.
        here: the products of its strip and column that are left.
        last: its last product; before: the path up to that.
    """

    strips: tuple[_Strip, ...]
    cost: tuple[int, int] = (0, 0)
    ports: Ports = field(default_factory=Ports)
    kept: Mapping[tuple[int, int], Value] = field(default_factory=dict)
    strip: _Strip = ()
    column: Value | None = None
    columns: tuple[Value, ...] = ()
    here: tuple[Product, ...] = ()
    last: Product | None = None
    before: _Walk | None = None


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
    at: _Walk | None = min(walks, key=lambda walk: walk.cost)
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
    tile = {
        (a, b): Product(p.index, a, b, p.home)
        for p in step
        for a, b in ((p.row, p.column), (p.column, p.row))
        if a in rows
    }
    if len(tile) != len(rows) * len(columns):
        raise NotUnderstoodError("the products of a step are not those of a column and a row")

    def moved(walk: _Walk, to: Product) -> _Walk:
        factors = {(place, body.bank(v) & 1): v for place, v in ((sass.A.at, to.row), (sass.B.at, to.column))}
        kept = walk.kept if height > 1 else {}  # with one row what the product just before has is counted on alone
        reads = [body.bank(v) for place, v in factors.items() if walk.kept.get(place) != v]
        ports = walk.ports.after([*reads, to.home])
        cost = ports.cycles, walk.cost[1] + max(ports.even, ports.odd)
        here = tuple(p for p in walk.here if p != to)
        return replace(walk, cost=cost, ports=ports, kept={**kept, **factors}, here=here, last=to, before=walk)

    def alike(value: Value) -> int:
        """What tells factors apart: which they are; with two rows, for which there are twice as many ways, only their banks."""
        return body.bank(value) & 1 if height > 1 else body.bank(value)

    def entered(walk: _Walk, column: Value) -> list[_Walk]:
        """The walks that go on in a column of the strip, by any of its rows."""
        left = tuple(c for c in walk.columns if c != column)
        here = tuple(tile[row, column] for row in walk.strip)
        return [moved(replace(walk, column=column, columns=left, here=here), to) for to in here]

    def turned(walk: _Walk) -> list[_Walk]:
        """The walk on its way into another strip, one of each kind (see `alike`)."""
        kinds = {tuple(map(alike, strip)): strip for strip in reversed(walk.strips)}
        return [
            replace(walk, strip=strip, strips=tuple(s for s in walk.strips if s != strip), columns=tuple(columns))
            for strip in kinds.values()
        ]

    def ahead(walk: _Walk, at: int) -> list[Value]:
        """The next columns, one of each kind (see `alike`): those of a kind have their sums in the same banks, too.

        Those whose sums are there for the product at this place, if there are any.
        """
        late = {product.home for product in before[at - FFMA_LATENCY :]} if at < FFMA_LATENCY else set()
        there = [c for c in walk.columns if all(tile[row, c].home not in late for row in walk.strip)]
        kinds = {(alike(c), *(tile[row, c].home & 1 for row in walk.strip)): c for c in reversed(there or walk.columns)}
        return list(kinds.values())

    def onward(walk: _Walk, at: int) -> list[_Walk]:
        if walk.here:
            return [moved(walk, to) for to in walk.here]
        if walk.columns:
            return [way for c in ahead(walk, at) for way in entered(walk, c)]
        return [
            way for w in turned(walk) for c in ([walk.column] if walk.column else ahead(w, at)) for way in entered(w, c)
        ]

    walks = [_Walk(_strips(body, rows, height))]
    for at in range(len(tile)):
        walks = sorted((way for walk in walks for way in onward(walk, at)), key=lambda walk: walk.cost)[:_BEAM]
    return walks[0]


def _strips(body: Body, rows: Sequence[Value], height: int) -> tuple[_Strip, ...]:
    """Each row alone; or in pairs of one from each bank, both of which are kept, and what is left of one bank alone."""
    if height == 1:
        return tuple((row,) for row in rows)
    even, odd = ([row for row in rows if body.bank(row) & 1 == bank] for bank in (0, 1))
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
