"""Which columns of a table a terminal has room for, how wide each is, and where the lines in its cells end.

Words are broken at blanks, and behind the marks that part names and paths; a number is never broken.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby

from rich.cells import cell_len, chop_cells

COMFORTABLE = 16
"""Characters of a line of words that are read without effort: columns are left out before lines are shorter."""

GAP = 1
"""Blanks between columns."""

# A line may end behind these: blanks, the marks in paths, names and lists, and a hyphen before a letter (1e-5 is a number).
_WORDS = re.compile(r"(?<=\s)(?=\S)|(?<=[_/=,])(?=[A-Za-z])|(?<=[A-Za-z0-9]-)(?=[A-Za-z])")
_NUMBERS = re.compile(r"(?<=\s)(?=±)")
_HEADING = re.compile(r"(?<=\s)(?=\S)|(?<=[a-z]{3}/)(?=[a-z]{3})")


@dataclass(frozen=True)
class Filled:
    """A column with its cells.

    Attributes:
        place: its number in the table.
        numbers: its cells are numbers.
        dispensable: 0: it is always shown; of the others, the highest is left out first.
        group: see `Column`.
    """

    place: int
    heading: str
    cells: tuple[str, ...]
    numbers: bool
    dispensable: int
    group: str

    @property
    def is_alike(self) -> bool:
        """Whether a line below the table can say it of all rows."""
        return len(set(self.cells)) == 1

    @cached_property
    def most(self) -> int:
        """The width at which no line is broken."""
        return max(cell_len(line) for text in (self.heading, *self.cells) for line in text.split("\n"))

    @cached_property
    def least(self) -> int:
        """The width at which no word is broken."""
        lines = [line for text in self.cells for line in text.split("\n")]
        parts = [*_HEADING.split(self.heading), *(part for line in lines for part in self._ends.split(line))]
        return max(cell_len(part.rstrip()) for part in parts)

    @property
    def comfortable(self) -> int:
        """The least width at which it is easily read."""
        return self.least if self.numbers else max(self.least, min(self.most, COMFORTABLE))

    @property
    def _ends(self) -> re.Pattern[str]:
        """Where a line of a cell may end."""
        return _NUMBERS if self.numbers else _WORDS

    def wrapped_heading(self, width: int) -> str:
        """The heading in lines of that width."""
        return _wrapped(_HEADING.split(self.heading), width)

    def wrapped(self, cell: str, width: int) -> str:
        """A cell in lines of that width."""
        return "\n".join(_wrapped(self._ends.split(line), width) for line in cell.split("\n"))


@dataclass(frozen=True)
class Block:
    """What is drawn as one table: columns and the width of each; and those that there is no room for."""

    columns: tuple[Filled, ...]
    widths: tuple[int, ...]
    left_out: tuple[Filled, ...] = ()


def whole(columns: Sequence[Filled]) -> Block:
    """All columns, and each row in one line, for programs that read line by line."""
    joined = [replace(column, cells=tuple(", ".join(text.split("\n")) for text in column.cells)) for column in columns]
    return Block(tuple(joined), tuple(column.most for column in joined))


def fitted(columns: Sequence[Filled], width: int) -> list[Block]:
    """The columns in a width: side by side where they have room; else groups below each other, and in each what is
    dispensable left out.

    What is alike in all rows is left out first, for a line below the table says it.
    """
    return [_fitted(block, width) for block in _blocks(columns, width)]


def needed(columns: Sequence[Filled]) -> int:
    """The width at which nothing is left out."""
    return _total([column.comfortable for column in columns])


def _blocks(columns: Sequence[Filled], width: int) -> list[list[Filled]]:
    """The columns of no group, with those of as many groups as have room, over and over."""
    common = [column for column in columns if not column.group]
    groups = [list(own) for group, own in groupby(columns, lambda column: column.group) if group]
    if not groups:
        return [common]
    blocks = [[*common, *groups[0]]]
    for group in groups[1:]:
        if needed([*blocks[-1], *group]) <= width:
            blocks[-1] += group
        else:
            blocks.append([*common, *group])
    return blocks


def _fitted(columns: Sequence[Filled], width: int) -> Block:
    kept = list(columns)
    order = sorted(kept, key=lambda c: (not c.is_alike, -c.dispensable, -c.place))
    for column in (column for column in order if column.dispensable):
        if needed(kept) <= width:
            break
        kept.remove(column)
    left_out = tuple(column for column in columns if column not in kept)
    return Block(tuple(kept), tuple(_widths(kept, width)), left_out)


def _widths(columns: Sequence[Filled], width: int) -> list[int]:
    """What each column is wide, of what is there: the widest give way first, words are broken last, and numbers never."""
    for least in (
        [column.comfortable for column in columns],
        [column.least for column in columns],
        [column.least if column.numbers else 1 for column in columns],
    ):
        if _total(least) <= width:
            break
    most = [column.most for column in columns]
    limit = next(
        limit for limit in range(max(most), -1, -1) if _total(_limited(least, most, limit)) <= width or not limit
    )
    widths = _limited(least, most, limit)
    for place in range(len(widths)):  # what is left after the last column that was cut alike
        if widths[place] < most[place] and _total(widths) < width:
            widths[place] += 1
    return widths


def _limited(least: Sequence[int], most: Sequence[int], limit: int) -> list[int]:
    return [max(low, min(high, limit)) for low, high in zip(least, most, strict=True)]


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + GAP * (len(widths) - 1)


def _wrapped(parts: Sequence[str], width: int) -> str:
    """Lines of that width out of what stays together, with the blanks behind it; what is wider is broken."""
    lines = [""]
    for part in parts:
        word = part.rstrip()
        if cell_len(lines[-1] + word) <= width:
            lines[-1] += part
        else:
            *whole, last = chop_cells(word, width) or [""]
            lines += [*whole, last + part[len(word) :]]
    return "\n".join(line.rstrip() for line in lines if line.strip())
