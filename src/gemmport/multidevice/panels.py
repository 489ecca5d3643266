"""In which panels what others have comes to a device: each is multiplied while the next is on its way.

Nothing here runs or waits: it is decided by expected seconds, which a test makes up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

GRAIN = 256
"""Lines of which a panel has a whole multiple, but for the last: kernels' tiles divide it."""

MOST = 8
"""Panels at most."""

ANOTHER = 1e-5
"""Seconds that a device loses with another panel: the next product begins when the one before has ended."""

ENQUEUED = 5e-5
"""Seconds that the host takes for a panel of one device: it is packed, sent, awaited and multiplied by calls of its own."""


def panels(lines: int, line: float, product: Callable[[int], float], devices: int) -> list[int]:
    """The sizes of the panels that are expected to be multiplied first: as many lines in all, in order.

    Args:
        lines: of what comes. line: seconds in which one of them does.
        product: seconds of the product of so many of them.
        devices: for which the host enqueues panels, in turns.
    """
    known: dict[int, float] = {}

    def multiplied(size: int) -> float:
        if size not in known:
            known[size] = product(size)
        return known[size]

    return min(_choices(lines), key=lambda sizes: _ends(sizes, line, multiplied, devices * ENQUEUED))


def _ends(sizes: Sequence[int], line: float, product: Callable[[int], float], enqueued: float) -> float:
    """Seconds until the last panel is multiplied: each is enqueued, and comes, after the one before, and is multiplied when it
    has come and the product before is done.
    """
    told = come = done = 0.0
    for size in sizes:
        told += enqueued
        come = max(come, told) + size * line
        done = max(done, come) + product(size) + ANOTHER
    return done


def _choices(lines: int) -> Iterator[list[int]]:
    """One panel; a small one before the rest, where a product takes longer than what it needs; or equal ones, where not."""
    yield [lines]
    for number in range(1, MOST + 1):
        first = _whole(lines * number // (2 * MOST))
        if 0 < first < lines:
            yield [first, lines - first]
    for count in range(3, MOST + 1):
        size = _whole(-(-lines // count))
        last = lines - size * (count - 1)
        if last > 0:
            yield [*[size] * (count - 1), last]


def _whole(size: int) -> int:
    return -(-size // GRAIN) * GRAIN
