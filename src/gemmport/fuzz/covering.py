"""Few of many combinations, among which every value, or every pair of values, still comes up."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Hashable, Mapping, Sequence

EACH_VALUE, EACH_PAIR = 1, 2


def covering(rows: Sequence[Mapping[str, Hashable]], strength: int) -> list[int]:
    """Numbers of rows, among which is every combination of `strength` values that any row has: the most telling row first.

    Greedy (the idea of AETG: Cohen et al., IEEE Trans. Softw. Eng. 23, 1997): the next row is the one with the most
    combinations that are still missing, and of several the first. The same rows always give the same choice. Where a row has
    fewer values than `strength`, they are one combination.
    """
    combinations = [
        frozenset(itertools.combinations(sorted(row.items(), key=lambda pair: pair[0]), min(strength, len(row))))
        for row in rows
    ]
    missing = {each for combined in combinations for each in combined}
    waiting = [(-len(combined), number) for number, combined in enumerate(combinations)]
    heapq.heapify(waiting)
    chosen: list[int] = []
    while missing:
        promised, number = heapq.heappop(waiting)
        new = combinations[number] & missing
        if len(new) == -promised:  # no other row brings more: what was promised only becomes less
            chosen.append(number)
            missing -= new
        elif new:
            heapq.heappush(waiting, (-len(new), number))
    return chosen
