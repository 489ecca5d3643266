"""How long pieces of work will take, from those that are done, and whether a budget of time has room for them."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass

LOOKED_BACK = 3
"""The slowest of so many pieces that were done last counts: rates change with the size of the work."""


@dataclass(frozen=True)
class _Piece:
    rate: float
    fixed: float


class Forecast:
    """Seconds of a piece of work: a part that is the same for all, and one that grows with the work, of each kind its own.

    Pieces are best done from the smallest on: the next one is then little larger than those that are known.
    """

    def __init__(self) -> None:
        self._done: dict[Hashable, list[_Piece]] = {}

    def add(self, kind: Hashable, work: float, seconds: float, growing: float) -> None:
        """Takes note of a piece that is done.

        Args:
            growing: seconds, of all `seconds`, that grow in proportion to the work.
        """
        piece = _Piece(growing / work if work else 0.0, max(seconds - growing, 0.0))
        self._done.setdefault(kind, []).append(piece)

    def seconds(self, kind: Hashable, work: float) -> float | None:
        """What a piece will take; None where none of its kind is done."""
        done = self._done.get(kind)
        if not done:
            return None
        last = done[-LOOKED_BACK:]
        return max(piece.fixed for piece in last) + max(piece.rate for piece in last) * work

    def total(self, pieces: Iterable[tuple[Hashable, float]]) -> float | None:
        """What several pieces will take together; None where no kind of theirs is known. Those of other kinds count nothing."""
        known = [seconds for kind, work in pieces if (seconds := self.seconds(kind, work)) is not None]
        return sum(known) if known else None


class Budget:
    """Seconds that may be used from now on, or infinity."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.seconds = seconds
        self._clock = clock
        self._start = clock()

    @property
    def left(self) -> float:
        """Seconds that are not used yet."""
        return self.seconds - (self._clock() - self._start)

    def has_room(self, seconds: float | None) -> bool:
        """Whether work of so many seconds ends in time; of unknown work, whether it may begin."""
        left = self.left
        return left > 0 and (seconds or 0.0) <= left
