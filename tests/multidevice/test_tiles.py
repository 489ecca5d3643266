"""How tiles are cut."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gemmport.multidevice.tiles import GRAIN, Needs, Room, Tile, cut

SIZES = st.integers(1, 300)


@given(
    st.integers(1, 5), SIZES, SIZES, st.integers(1, 10**6), st.sampled_from(["rows", "columns"]), st.integers(10, 10**5)
)
def test_a_tile_and_what_is_left_are_the_box(batch: int, m: int, n: int, wanted: int, along: str, memory: int) -> None:
    box = Tile.whole(batch, m, n)
    needs, room = Needs(40, 44, 8, batched_b=True), Room(memory, memory // 2)
    found = cut(box, wanted, along, room, needs)
    if found is None:
        least = Tile.whole(1, 1, 1)
        assert memory < 4 * sum(needs.parts(least))
        return
    tile, left = found
    assert room.takes(tile, needs)
    assert tile.size > 0
    covered = np.zeros((batch, m, n), np.uint8)
    for part in (tile, *left):
        covered[part.matrices.slice, part.rows.slice, part.columns.slice] += 1
    assert (covered == 1).all()


def test_tiles_are_cut_at_the_grain_and_leave_no_sliver() -> None:
    ample = Room(2**40, 2**40)
    tile, left = cut(Tile.whole(1, 1000, 500), 100_000, "rows", ample, Needs(4, 4, 4))
    assert tile.rows == (0, 3 * GRAIN)
    assert tile.columns == (0, 500)
    assert [box.rows for box in left] == [(3 * GRAIN, 1000)]
    tile, left = cut(Tile.whole(1, 1000, 500), 499_000, "rows", ample, Needs(4, 4, 4))
    assert (tile.size, left) == (500_000, [])


def test_tiles_are_of_few_sizes() -> None:
    sizes = set()
    for wanted in range(100, 10_000, 7):
        tile, _ = cut(Tile.whole(1, 2**20, 1), wanted, "rows", Room(2**40, 2**40), Needs(4, 4, 4))
        assert wanted / 2 < tile.rows.size <= 1.1 * wanted
        sizes.add(tile.rows.size)
    assert len(sizes) <= 2 * 7


def test_whole_matrices_of_a_batch_go_first() -> None:
    tile, left = cut(Tile.whole(10, 100, 100), 35_000, "rows", Room(2**40, 2**40), Needs(4, 4, 4, batched_a=True))
    assert tile == Tile.whole(3, 100, 100)
    assert [box.matrices for box in left] == [(3, 10)]
