"""Which tilings an entry keeps: few, of which for each product one is about as fast as the best that was tried for it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from gemmport.core.plan import ParameterValue
from gemmport.core.problem import GemmProblem

WORTH_A_TILING = 0.002
"""Of the time, in the mean over all products, that one more tiling must save."""

UNTRIED = 4.0
"""Times the best time: what a product is taken to need as long as no tiling that is kept was tried for it."""

Tiling = tuple[str, tuple[tuple[str, ParameterValue], ...]]
"""A kernel, and parameters in the order of its contract: none of them for what its model suggests."""


def tiling_of(kernel: str, values: Mapping[str, ParameterValue]) -> Tiling:
    """A candidate as a key."""
    return kernel, tuple(values.items())


@dataclass
class Times:
    """What tilings took for a product.

    Attributes:
        seconds: by tiling.
    """

    problem: GemmProblem
    seconds: dict[Tiling, float] = field(default_factory=dict)

    @property
    def best(self) -> float:
        """The least."""
        return min(self.seconds.values())


def chosen_tilings(table: Sequence[Times], needed: Iterable[Tiling] = ()) -> list[Tiling]:
    """Tilings that are to be kept, the one first that saves most: greedily, until another saves too little.

    Args:
        table: of products that have a time each.
        needed: tilings that are kept in any case.
    """
    needed = [*dict.fromkeys(needed)]
    kept: list[Tiling] = []
    known = dict.fromkeys(tiling for times in table for tiling in times.seconds)
    losses = [math.log(UNTRIED)] * len(table)

    def after(tiling: Tiling) -> list[float]:
        return [
            min(loss, math.log(times.seconds[tiling] / times.best)) if tiling in times.seconds else loss
            for loss, times in zip(losses, table, strict=True)
        ]

    while table:
        left = [tiling for tiling in known if tiling not in kept]
        best = min(left, key=lambda tiling: sum(after(tiling)), default=None)
        if best is None or sum(losses) - sum(after(best)) < WORTH_A_TILING * len(table):
            break
        losses = after(best)
        kept.append(best)
    return [*kept, *(tiling for tiling in needed if tiling not in kept)]
