"""How an array lies in several allocations, its segments: where one ends and the next begins, and what lies in one of them.

Segments follow each other as if they were one memory: strides and offsets are those of any array, and views are made as always.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise

_GRAIN = 128
"""Rows of a macro-tile: segments of many rows are whole tiles of the usual kernels."""

Span = tuple[int, int]


def segment_sizes(shape: Sequence[int], most: int) -> list[int]:
    """The elements of each segment of a C-contiguous array.

    The outermost dimension of which one index fits is cut, and the same way each time: a segment has whole matrices of a batch,
    or else whole rows of one, or else elements of a row.

    Args:
        most: elements of the largest segment, one at least.
    """
    if 0 in shape:
        return [0]
    axis, inner = len(shape), 1
    while axis > 0 and inner * shape[axis - 1] <= most:
        axis -= 1
        inner *= shape[axis]
    if axis == 0:
        return [inner]
    extent, at_most = shape[axis - 1], most // inner
    each = math.ceil(extent / math.ceil(extent / at_most))
    whole = math.ceil(each / _GRAIN) * _GRAIN
    if each >= 8 * _GRAIN and whole <= at_most:
        each = whole
    line = [(min(first + each, extent) - first) * inner for first in range(0, extent, each)]
    return line * math.prod(shape[: axis - 1])


def cuts(shape: Sequence[int], strides: Sequence[int], offset: int, borders: Sequence[int], axis: int) -> list[int]:
    """The indices of a dimension at which an array is cut so that what it has on both sides of a border is as little as can be.

    Args:
        strides, offset: in elements.
        borders: the first element of each segment, ascending.

    Returns:
        Ascending indices beyond the first. Between two of these the elements of all indices are in one segment, or else those
        of each index are in several.
    """
    size, step = shape[axis], strides[axis]
    if size < 2 or step == 0 or 0 in shape:
        return []
    axis %= len(shape)
    reaches = [(n - 1) * s for i, (n, s) in enumerate(zip(shape, strides, strict=True)) if i != axis]
    start = offset + min((size - 1) * step, 0)
    low, high = start + sum(r for r in reaches if r < 0), start + sum(r for r in reaches if r > 0)
    ascending, found = abs(step), set()
    for border in borders[bisect_right(borders, low) : bisect_right(borders, high + (size - 1) * ascending)]:
        # The first index with an element beyond the border, and the first with no other.
        found |= {-((high - border) // ascending), -((low - border) // ascending)}
    inside = {index for index in found if 0 < index < size}
    return sorted(inside if step > 0 else {size - index for index in inside})


def spans(size: int, found: Sequence[int]) -> list[Span]:
    """The spans of a dimension between some cuts."""
    return list(pairwise([0, *found, size]))
