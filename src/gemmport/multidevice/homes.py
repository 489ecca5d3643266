"""Which device has which part of a result: where its rows or columns, and those of the operands that make them, lie."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from gemmport.multidevice.tiles import CLOSE, Span, Tile

Lines: TypeAlias = Literal["matrices", "rows", "columns"]
"""What of a result shards follow one another along."""


@dataclass(frozen=True)
class Cut:
    """How an array that a product reads or writes line by line is spread over devices.

    Attributes:
        along: rows of the result, for op(A) cut into rows, say.
        sizes: lines of each shard. owners: the number of the device that has it; None for one that takes no part.
        line: bytes of a line.
    """

    along: Lines
    sizes: Sequence[int]
    owners: Sequence[int | None]
    line: int

    def bytes_of(self, lines: Span) -> dict[int | None, int]:
        """Bytes of some lines that each device has."""
        found: dict[int | None, int] = {}
        start = 0
        for size, owner in zip(self.sizes, self.owners, strict=True):
            common = min(start + size, lines.stop) - max(start, lines.start)
            if common > 0:
                found[owner] = found.get(owner, 0) + common * self.line
            start += size
        return found


@dataclass(frozen=True)
class Home:
    """A part of the result, and the number of the device that has the most of what it is made of; None where none has."""

    tile: Tile
    owner: int | None


def homes(whole: Tile, cuts: Sequence[Cut]) -> tuple[Lines | None, list[Home]]:
    """The parts of a result by where they lie, along the lines along which most bytes are spread.

    Returns:
        These lines, and the parts, which make up the whole; None, and the whole, where nothing is spread.
    """
    spread = {along: sum(cut.line * sum(cut.sizes) for cut in cuts if cut.along == along) for along in _LINES}
    along = max(_LINES, key=lambda name: spread[name])
    own = [cut for cut in cuts if cut.along == along]
    if not own:
        return None, [Home(whole, None)]
    stops = {getattr(whole, along).stop}
    for cut in own:
        stop = 0
        for size in cut.sizes:
            stop += size
            stops.add(stop)
    found, start = [], 0
    for stop in sorted(stops - {0}):
        lines = Span(start, stop)
        found.append(Home(replace(whole, **{along: lines}), _owner(own, lines)))
        start = stop
    return along, found


def are_even(parts: Sequence[Home], kinds: Sequence[Hashable]) -> bool:
    """Whether devices end at about the same time where each computes the parts that have their home there, and no more.

    Args:
        kinds: of each device, what it has in common with devices that are as fast; None for nothing that is known.
    """
    if len(set(kinds)) > 1 or None in kinds or any(part.owner is None and part.tile.size for part in parts):
        return False
    sizes = [sum(part.tile.size for part in parts if part.owner == number) for number in range(len(kinds))]
    return max(sizes) * len(sizes) <= sum(sizes) * (1 + CLOSE)


_LINES: tuple[Lines, ...] = ("rows", "columns", "matrices")


def _owner(cuts: Sequence[Cut], lines: Span) -> int | None:
    """The device that has most bytes of some lines; of equals the first that a cut names."""
    held: dict[int, int] = {}
    for cut in cuts:
        for owner, nbytes in cut.bytes_of(lines).items():
            if owner is not None:
                held[owner] = held.get(owner, 0) + nbytes
    return max(held, key=lambda owner: held[owner], default=None)
