"""Where arrays in several allocations are cut: checked against the indices of every element."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from gemmport.core.segments import cuts, segment_sizes, spans


@pytest.mark.parametrize(
    ("shape", "most", "sizes"),
    [
        ((10, 7), 70, [70]),
        ((10, 7), 69, [35, 35]),  # whole rows, evenly many
        ((10, 7), 27, [21, 21, 21, 7]),
        ((2, 7), 5, [4, 3, 4, 3]),  # each row alike
        ((5, 10, 7), 150, [140, 140, 70]),  # whole matrices
        ((2, 10, 7), 50, [35, 35, 35, 35]),  # each matrix alike
        ((3000, 1), 2900, [1536, 1464]),  # whole macro-tiles
        ((), 1, [1]),
        ((0, 7), 1, [0]),
    ],
)
def test_sizes(shape: tuple[int, ...], most: int, sizes: list[int]) -> None:
    assert segment_sizes(shape, most) == sizes


def test_cuts_separate_segments_as_far_as_indices_can() -> None:
    rng = np.random.default_rng(5)
    cut = 0
    for _ in range(300):
        shape = tuple(int(n) for n in rng.integers(1, 6, rng.integers(1, 4)))
        strides = tuple(int(s) for s in rng.integers(-9, 20, len(shape)))
        offset = sum(-(n - 1) * s for n, s in zip(shape, strides, strict=True) if s < 0) + int(rng.integers(3))
        borders = sorted({int(b) for b in rng.integers(1, 40, rng.integers(1, 5))})
        place = offset + sum(np.indices(shape)[i] * s for i, s in enumerate(strides))
        segment = np.searchsorted(borders, place, side="right")
        for axis in range(len(shape)):
            lines = np.moveaxis(segment, axis, 0).reshape(shape[axis], -1)
            found = cuts(shape, strides, offset, borders, axis)
            cut += len(found)
            assert cuts(shape, strides, offset, borders, axis - len(shape)) == found
            for first, last in spans(shape[axis], found):
                part = lines[first:last]
                assert len({*part.flat}) == 1 or all(len({*line}) > 1 for line in part)
            # No cut is between two indices whose elements are all in one segment.
            assert not [i for i in found if len({*lines[i - 1 : i + 1].flat}) == 1]
    assert cut > 300


def test_spans_cover_a_dimension() -> None:
    assert spans(5, [2, 3]) == [(0, 2), (2, 3), (3, 5)]
    assert spans(0, []) == [(0, 0)]
    assert [*itertools.chain(*spans(4, [1]))] == [0, 1, 1, 4]
