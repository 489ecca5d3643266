"""Tiles of a result, how they are cut, and what they take of a device's memory."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

Axis = Literal["rows", "columns"]

GRAIN = 64
"""Rows or columns that a tile is cut at multiples of, where it may be: kernels' tiles divide it, and starts keep their
alignment."""


CLOSE = 0.1
"""By what a tile may be larger than is wanted, to be one of few sizes: measured speeds differ by as much from tile to tile."""


class Span(NamedTuple):
    """From `start` to before `stop`."""

    start: int
    stop: int

    @property
    def size(self) -> int:
        """How many there are."""
        return self.stop - self.start

    @property
    def slice(self) -> slice:
        """As an index."""
        return slice(self.start, self.stop)

    def has(self, other: Span) -> bool:
        """Whether all of the other is in it."""
        return self.start <= other.start and other.stop <= self.stop

    def cut(self, size: int) -> tuple[Span, Span]:
        """Its first `size`, and the rest."""
        return Span(self.start, self.start + size), Span(self.start + size, self.stop)


@dataclass(frozen=True)
class Tile:
    """Some rows and columns of some matrices of a result."""

    matrices: Span
    rows: Span
    columns: Span

    @classmethod
    def whole(cls, matrices: int, rows: int, columns: int) -> Tile:
        """All of a result."""
        return cls(Span(0, matrices), Span(0, rows), Span(0, columns))

    @property
    def size(self) -> int:
        """Elements of the result."""
        return self.matrices.size * self.rows.size * self.columns.size

    def __str__(self) -> str:
        told = f"rows {self.rows.start}–{self.rows.stop}, columns {self.columns.start}–{self.columns.stop}"
        if self.matrices == (0, 1):
            return told
        return f"matrices {self.matrices.start}–{self.matrices.stop}, {told}"


@dataclass(frozen=True)
class Needs:
    """What tiles of a product take of a device's memory; the sums are never split.

    Attributes:
        row: bytes of a row of op(A). column: of a column of op(B). element: of an element of the result, and of C where it is
            read.
        batched_a, batched_b: whether each matrix of the result has an A, and a B, of its own.
    """

    row: int
    column: int
    element: int
    batched_a: bool = False
    batched_b: bool = False

    def panel_a(self, tile: Tile) -> int:
        """Bytes of the rows of A that a tile reads."""
        return self.row * tile.rows.size * (tile.matrices.size if self.batched_a else 1)

    def panel_b(self, tile: Tile) -> int:
        """Bytes of the columns of B that a tile reads."""
        return self.column * tile.columns.size * (tile.matrices.size if self.batched_b else 1)

    def parts(self, tile: Tile) -> tuple[int, int, int]:
        """Bytes of both panels and of the result."""
        return self.panel_a(tile), self.panel_b(tile), self.element * tile.size


@dataclass(frozen=True)
class Room:
    """A device's memory that tiles may take: bytes in all, and in one allocation."""

    memory: int
    allocation: int

    def takes(self, tile: Tile, needs: Needs) -> bool:
        """Whether there is room for a tile."""
        parts = needs.parts(tile)
        return sum(parts) <= self.memory and max(parts) <= self.allocation

    def below(self, tile: Tile, needs: Needs) -> Room:
        """That of a device which had no memory for a tile: half of what it took."""
        parts = needs.parts(tile)
        return Room(min(self.memory, sum(parts) // 2), min(self.allocation, max(max(parts) // 2, 1)))


def cut(
    box: Tile, wanted: int, along: Axis, room: Room, needs: Needs, *, exactly: bool = False
) -> tuple[Tile, list[Tile]] | None:  # fmt: skip
    """A tile of about `wanted` elements, and the boxes that are left of where it was cut out.

    Whole matrices of a batch are taken first. Of one matrix, strips are cut along an axis, as wide as there is room for: so the
    next strip reads the same panel of the other operand. They are as long as few others are, so that a device plans and binds
    products of few kinds.

    Args:
        exactly: whether a strip is as long as is wanted, or longer by less than the grain.

    Returns:
        None where there is no room for a single element.
    """
    left: list[Tile] = []
    one = box.rows.size * box.columns.size
    if box.matrices.size > 1:
        number = max(min(wanted // one, box.matrices.size), 1)
        while number > 1 and not room.takes(replace(box, matrices=box.matrices.cut(number)[0]), needs):
            number //= 2
        box = _without(box, "matrices", number, left)
        if number > 1:
            return box, left
    across: Axis = "columns" if along == "rows" else "rows"
    # Half of the memory is for the panel that stays, the other for those that change.
    line = needs.column if across == "columns" else needs.row
    width: int = getattr(box, across).size
    width = _at_grain(min(width, min(room.memory // 2, room.allocation) // max(line, 1)), width)
    if width == 0:
        return None
    box = _without(box, across, width, left)
    length: int = getattr(box, along).size
    height = -(-wanted // (width * GRAIN)) * GRAIN if exactly else _like_others(max(wanted // width, GRAIN))
    height = _at_grain(height, length)
    if length - height < GRAIN:  # no sliver is left
        height = length
    while height > 0 and not room.takes(_first(box, along, height), needs):
        height = _at_grain(height // 2, length)
    return (_without(box, along, height, left), left) if height else None


def side_by_side(whole: Tile, count: int, along: Axis, needs: Needs) -> list[Tile]:
    """The boxes in which so many equal tiles of one matrix, strips along an axis, read the fewest bytes of both operands.

    Four strips of a square read a quarter of A each, and all of B; two strips in each of two boxes read halves of both.
    """
    across: Axis = "columns" if along == "rows" else "rows"
    lines = {"rows": needs.row * whole.rows.size, "columns": needs.column * whole.columns.size}
    fitting = [n for n in range(1, count + 1) if count % n == 0 and getattr(whole, across).size >= n * n * GRAIN]
    number = min(fitting, key=lambda n: lines[along] * n / count + lines[across] / n, default=1)
    boxes: list[Tile] = []
    box = whole
    for left in range(number, 1, -1):
        rest: list[Tile] = []
        size: int = getattr(box, across).size
        boxes.append(_without(box, across, _at_grain(-(-size // left) + GRAIN - 1, size), rest))
        (box,) = rest
    return [*boxes, box]


def _at_grain(size: int, whole: int) -> int:
    """Of a whole, about `size`: all, or a multiple of the grain, or less than that."""
    if size >= whole:
        return whole
    return size // GRAIN * GRAIN or size


def _like_others(size: int) -> int:
    """About so many rows or columns, the grain at least: the grain times a power of two, or one and a half of it."""
    most = size * (1 + CLOSE) / GRAIN
    power = 2 ** int(math.log2(most))
    return int(GRAIN * (1.5 * power if 1.5 * power <= most and power > 1 else power))


def _first(box: Tile, name: str, size: int) -> Tile:
    return replace(box, **{name: getattr(box, name).cut(size)[0]})


def _without(box: Tile, name: str, size: int, left: list[Tile]) -> Tile:
    """The first part of a box; the rest is added to what is left."""
    first, rest = getattr(box, name).cut(size)
    if rest.size:
        left.append(replace(box, **{name: rest}))
    return replace(box, **{name: first})
