"""Which tilings an entry keeps: few, of which for each product one is about as fast as the best that there is for it.

The products are those that were tuned, and others nearby, of which nothing was tried: what is kept shall serve them, too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from gemmport.core.plan import ParameterValue
from gemmport.core.problem import GemmProblem

WORTH_A_TILING = 0.002
"""Of the time, in the mean over all products, that one more tiling must save."""

MOST_TILINGS = 16
"""That are kept because they save something: planners compare all of them."""

UNTRIED = 4.0
"""Times the best time: what a product is taken to need as long as no tiling that is kept has a time for it."""

NEARBY = (0.8, 1.25)
"""Times the extents of a product: those of products near it, for which tilings are kept, too."""

LEAST_EXTENT = 16
"""Extents below it stay: they are a class of their own."""

Tiling = tuple[str, tuple[tuple[str, ParameterValue], ...]]
"""A kernel, and parameters in the order of its contract: none of them for what its model suggests."""


def tiling_of(kernel: str, values: Mapping[str, ParameterValue]) -> Tiling:
    """A candidate as a key."""
    return kernel, tuple(values.items())


@dataclass
class Times:
    """What tilings took for a product.

    Attributes:
        seconds: by tiling, where it was tried.
        expected: by tiling, where it was not tried.
    """

    problem: GemmProblem
    seconds: dict[Tiling, float] = field(default_factory=dict)
    expected: dict[Tiling, float] = field(default_factory=dict)

    @property
    def best(self) -> float:
        """The least of those that were measured; of a product without any, the least that is expected."""
        return min(self.seconds.values()) if self.seconds else min(self.expected.values())

    def loss(self, tiling: Tiling) -> float:
        """The logarithm of its time over the best one, which no expectation is below; infinite where there is none."""
        known = self.seconds.get(tiling) or self.expected.get(tiling)
        return math.inf if known is None else max(math.log(known / self.best), 0.0)


def nearby(problem: GemmProblem) -> Iterator[GemmProblem]:
    """Products near one, in the same layouts."""
    for times in NEARBY:
        m, n, k = (
            round(extent * times) if extent >= LEAST_EXTENT else extent for extent in (problem.m, problem.n, problem.k)
        )
        if (m, n, k) != (problem.m, problem.n, problem.k):
            yield GemmProblem.create(
                m, n, k, batch=problem.batch, dtype=problem.dtype.name, trans_a=problem.trans_a, trans_b=problem.trans_b
            )


def chosen_tilings(table: Sequence[Times], needed: Iterable[Tiling] = ()) -> list[Tiling]:
    """Tilings that are to be kept, the one first that saves most: greedily, until another saves too little.

    Args:
        table: of products that have a time each.
        needed: tilings that are kept in any case.
    """
    needed = [*dict.fromkeys(needed)]
    kept: list[Tiling] = []
    known = dict.fromkeys(tiling for times in table for tiling in times.seconds)
    losses = {tiling: [times.loss(tiling) for times in table] for tiling in known}
    lost = [math.log(UNTRIED)] * len(table)
    while known and len(kept) < MOST_TILINGS:
        left = {tiling: [*map(min, lost, each)] for tiling, each in losses.items() if tiling not in kept}
        best = min(left, key=lambda tiling: sum(left[tiling]), default=None)
        if best is None or sum(lost) - sum(left[best]) < WORTH_A_TILING * len(table):
            break
        lost = left[best]
        kept.append(best)
    return [*kept, *(tiling for tiling in needed if tiling not in kept)]
