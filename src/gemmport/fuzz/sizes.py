"""How large random problems are: at the edges of tiles, beyond what 15 and 16 bits count, thin, or nothing at all. They stay
cheap: where one size is large, the others are small.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np

from gemmport.contracts.kernel import Tile, ceil_div

Extent = Literal["none", "one", "any", "before", "whole", "after", "long"]
"""How long a dimension is. before, whole, after: one less than some tiles, as many, one more. long: m and n beyond 2¹⁶, k
beyond 2¹⁵ or 2¹⁶. any: a prime, a thin matrix's length, or any up to 300."""

Batch = Literal["none", "one", "few", "many"]
"""many: beyond 2¹⁶."""

Extents = tuple[Extent, Extent, Extent]

SHARES: dict[Extent, float] = {
    "none": 0.02, "one": 0.06, "any": 0.39, "before": 0.2, "whole": 0.15, "after": 0.17, "long": 0.01
}  # fmt: skip
"""How often a dimension is which."""

BATCH_SHARES: dict[Batch, float] = {"none": 0.02, "one": 0.6, "few": 0.375, "many": 0.005}

MOST_WORK = 5e7
"""Multiplications, with those of tiles that lie beyond the edges, of a problem with a long dimension or many matrices: a CPU
does them in some tenths of a second."""

_MOST_TERMS = 3e6
"""Of all sums together, whatever tiles are: what NumPy takes some tenths of a second to compare."""

_PRIMES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 53, 67, 83, 97, 101, 127, 131, 151, 197, 251, 257, 293)

_MACRO_TILE = 256
"""Tiles with longer sides are of several smaller ones, of which those beyond the edges are left out."""


def draw_extent(rng: np.random.Generator) -> Extent:
    """Any, by `SHARES`."""
    return get_args(Extent)[int(rng.choice(len(SHARES), p=list(SHARES.values())))]  # type: ignore[no-any-return]


def draw_batch(rng: np.random.Generator, which: Batch) -> int:
    """How many matrices."""
    match which:
        case "none":
            return 0
        case "one":
            return 1
        case "few":
            return int(rng.choice((2, 3, 5), p=(0.5, 0.3, 0.2)))
    return 2**16 + int(rng.integers(1, 300))


def draw_sizes(
    rng: np.random.Generator, extents: Extents, tile: tuple[int, int, int], *, batch: int
) -> tuple[int, int, int]:
    """m, n and k, mostly so small that they are computed in milliseconds.

    Args:
        tile: what "before", "whole" and "after" are of.
    """
    most = (1e5, 1e6, 1e7)[int(rng.choice(3, p=(0.85, 0.13, 0.02)))]
    if "long" in extents or batch > 2**16:
        most = 1e6
    choices = [_lengths(rng, extent, side, along_k=number == 2)
               for number, (extent, side) in enumerate(zip(extents, tile, strict=True))]  # fmt: skip
    _shorten(choices, most / max(batch, 1))
    # Tiles of macro-tiles, or of many matrices: edges are of no use where they take seconds.
    choices = [
        lengths if extent == "long" else _halved(lengths[0]) for lengths, extent in zip(choices, extents, strict=True)
    ]
    _shorten(choices, _MOST_TERMS / max(batch, 1))
    m, n, k = (lengths[0] for lengths in choices)
    return m, n, k


def _shorten(choices: Sequence[list[int]], most: float) -> None:
    """Shortens the longest dimension, again and again, until the product of all is small. Each keeps one length at least."""
    while math.prod(max(lengths[0], 1) for lengths in choices) > most:
        shorter = [lengths for lengths in choices if len(lengths) > 1]
        if not shorter:
            break
        max(shorter, key=lambda lengths: lengths[0]).pop(0)


def is_cheap(tile: Tile | tuple[int, int, int], m: int, n: int, k: int, batch: int) -> bool:
    """Whether so many products take little, even with what their tiles compute beyond the edges. Without terms, the elements
    of the result still count.
    """
    sizes = (max(m, 1), max(n, 1), max(k, 1))
    padded = (ceil_div(x, side) * side if side <= _MACRO_TILE else x for x, side in zip(sizes, tile, strict=True))
    return math.prod(padded) * batch <= MOST_WORK


def _lengths(rng: np.random.Generator, extent: Extent, side: int, *, along_k: bool) -> list[int]:
    """Lengths that are such an extent, the one that was drawn first, and shorter ones for where that is too long."""
    match extent:
        case "none":
            return [0]
        case "one":
            return [1]
        case "long":
            return [2 ** (15 + int(rng.integers(2)) if along_k else 16) + int(rng.integers(1, 3000))]
        case "any":
            return _halved(_any_length(rng))
    beside = {"before": -1, "whole": 0, "after": 1}[extent]
    return [times * side + beside for times in range(int(rng.integers(1, 4)), 0, -1)]


def _any_length(rng: np.random.Generator) -> int:
    chance = rng.random()
    if chance < 0.4:
        return _PRIMES[int(rng.integers(len(_PRIMES)))]
    if chance < 0.5:  # long and thin
        return int(rng.integers(300, 2000))
    return int(math.exp(rng.uniform(0, math.log(300))))


def _halved(length: int) -> list[int]:
    lengths = [length]
    while lengths[-1] > 1:
        lengths.append((lengths[-1] + 1) // 2)
    return lengths
