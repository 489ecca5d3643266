"""Who gets which tile, under a made-up clock."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from gemmport.core.errors import DeviceMemoryError, LaunchError
from gemmport.multidevice.deal import SHORTEST, Deal, Member
from gemmport.multidevice.homes import Home, Lines
from gemmport.multidevice.tiles import GRAIN, Needs, Room, Span, Tile
from made_up_clock import AMPLE, NEEDS, WHOLE, MadeUp, of, run

SECOND = float(WHOLE.size)
"""The speed of a device that takes a second for it all."""


@pytest.mark.parametrize("ratio", [1, 2, 10, 100])
def test_devices_end_at_about_the_same_time(ratio: int) -> None:
    found = run([MadeUp(of(SECOND)), MadeUp(of(SECOND / ratio))])
    assert (found.computed == 1).all()
    ideal = 1 / (1 + 1 / ratio)
    assert found.seconds <= ideal + 2.5 * SHORTEST


def test_devices_of_one_kind_begin_with_their_shares() -> None:
    """But for a sixteenth of what takes long, which goes to who is free; others begin with an eighth of theirs."""
    short, long = SECOND, SECOND / 8
    for kinds, speed, rows in (
        (("one", "one"), short, [2048, 2048]), (("one", "one"), long, [1920, 1920]), (("one", "other"), short, [256, 256]),
        ((None, None), short, [256, 256]),
    ):  # fmt: skip
        members = [Member(f"device {n}", speed, AMPLE, kind=kind) for n, kind in enumerate(kinds)]
        deal = Deal(WHOLE, members, NEEDS)
        tiles = [deal.take(member, 0.0) for member in members]
        assert [tile.rows.size for tile in tiles if isinstance(tile, Tile)] == rows


def test_four_of_one_kind_read_halves_of_both_operands() -> None:
    """Of a square. Strips of the longer side where they read as little, of what lies on devices, and of batches."""

    def shapes(
        count: int, whole: Tile, along: Lines | None = None, parts: Sequence[Home] = ()
    ) -> list[tuple[int, int]]:
        members = [Member(f"device {n}", 10.0 * whole.size, AMPLE, kind="one") for n in range(count)]
        deal = Deal(whole, members, NEEDS, along, parts)
        tiles = [tile for member in members if isinstance(tile := deal.take(member, 0.0), Tile)]
        assert sum(tile.size for tile in tiles) == whole.size
        return [(tile.rows.size, tile.columns.size) for tile in tiles]

    assert shapes(4, WHOLE) == [(2048, 2048)] * 4
    assert shapes(2, WHOLE) == [(2048, 4096)] * 2
    assert shapes(3, WHOLE)[0][1] == 4096
    assert shapes(8, WHOLE) == [(1024, 2048)] * 8
    assert shapes(4, Tile.whole(1, 40_960, 4096)) == [(10_240, 4096)] * 4
    assert shapes(4, Tile.whole(1, 4096, 40_960)) == [(4096, 10_240)] * 4
    assert shapes(4, Tile.whole(1, 4100, 4000)) == [(2048, 2048), (2112, 1952), (2052, 2048), (1988, 1952)]
    assert shapes(4, Tile.whole(4, 1024, 4096)) == [(1024, 4096)] * 4
    homes = [Home(Tile(Span(0, 1), Span(n * 1024, n * 1024 + 1024), Span(0, 4096)), n) for n in range(4)]
    assert shapes(4, WHOLE, "rows", homes) == [(1024, 4096)] * 4


@pytest.mark.parametrize("count", [2, 3, 4, 6, 8])
@pytest.mark.parametrize("room", [AMPLE, Room(2**23, 2**22), Room(2**20, 2**20)], ids=["ample", "less", "little"])
@pytest.mark.parametrize(
    "whole", [WHOLE, Tile.whole(1, 100, 5000), Tile.whole(1, 3000, 70), Tile.whole(3, 500, 501)], ids=str
)
def test_devices_of_one_kind_compute_every_element_once(count: int, room: Room, whole: Tile) -> None:
    """Also where one is slower than the others, and where tiles are as small as memory is."""
    speeds = [whole.size * 2.0, *[whole.size * 4.0] * (count - 1)]
    needs = Needs(4096, 4096, 4)
    found = run([MadeUp(of(speed), room=room, kind="one") for speed in speeds], whole, needs)
    assert (found.computed == 1).all()
    assert all(room.takes(tile, needs) for _, tile in found.begun)


def test_a_device_that_would_end_last_leaves_the_tile_to_the_others() -> None:
    found = run([MadeUp(of(SECOND)), MadeUp(of(SECOND / 1000))])
    assert found.members[1].elements == 0
    assert found.seconds == pytest.approx(1.0)


@pytest.mark.parametrize("wrong", [1 / 8, 1 / 3, 3, 8])
def test_a_wrong_prediction_is_corrected_by_what_is_measured(wrong: float) -> None:
    found = run([MadeUp(of(SECOND)), MadeUp(of(SECOND / 2), predicted=SECOND / 2 * wrong)])
    assert (found.computed == 1).all()
    assert found.seconds <= 2 / 3 + 3 * SHORTEST


def test_a_device_that_slows_down_gets_less() -> None:
    steady = MadeUp(of(SECOND))
    slowing = MadeUp(lambda now: SECOND if now < 0.1 else SECOND / 10)
    found = run([steady, slowing])
    assert (found.computed == 1).all()
    # Halves that were fixed before would end after 0.1 + 0.4 · 10 s. The tile that it has is not taken away from it.
    assert found.seconds <= 1.3
    assert [name for name, _ in found.begun[4:]].count("device 1") <= 2


def test_a_device_that_does_not_end_is_not_counted_on() -> None:
    """The slow device takes all that is left then: it waits for nobody."""
    found = run([MadeUp(lambda now: SECOND if now < 0.1 else SECOND * 1e-9), MadeUp(of(SECOND / 50))])
    (stuck,) = [tile for name, tile in found.begun if name == "device 0"][-1:]
    others = found.members[1].elements
    assert others + sum(tile.size for tile in found.members[0].tiles) == WHOLE.size
    assert others > WHOLE.size / 4
    assert found.begun[-1][0] == "device 1"
    assert stuck.size < WHOLE.size / 2


def test_tiles_of_a_device_that_dies_go_to_the_others() -> None:
    dying = MadeUp(of(SECOND), fault=lambda number, tile, now: LaunchError("gone") if number >= 2 else None)
    found = run([dying, MadeUp(of(SECOND))])
    assert (found.computed == 1).all()
    assert str(found.members[0].fault) == "gone"
    assert len(found.members[0].tiles) == 2
    assert found.members[1].elements == WHOLE.size - found.members[0].elements


def test_a_device_that_was_left_out_as_too_slow_takes_over_when_the_fast_one_dies() -> None:
    dying = MadeUp(of(SECOND), fault=lambda number, tile, now: LaunchError("gone") if now > 0.5 else None)
    found = run([dying, MadeUp(of(SECOND / 1000))])
    assert (found.computed == 1).all()
    assert found.members[1].elements > 0


def test_a_device_short_of_memory_gets_smaller_tiles() -> None:
    most = WHOLE.size // 100

    def short(number: int, tile: Tile, now: float) -> MemoryError | None:
        return DeviceMemoryError("full") if tile.size > most else None

    found = run([MadeUp(of(SECOND), fault=short), MadeUp(of(SECOND))])
    assert (found.computed == 1).all()
    assert found.members[0].fault is None
    assert found.members[0].elements > WHOLE.size / 4


def test_a_device_without_any_memory_is_given_up_and_the_rest_computed() -> None:
    found = run([MadeUp(of(SECOND), fault=lambda *_: DeviceMemoryError("full")), MadeUp(of(SECOND))])
    assert (found.computed == 1).all()
    assert str(found.members[0].fault) == "full"
    tried = [tile.size for name, tile in found.begun if name == "device 0"]
    assert tried == sorted(tried, reverse=True)
    assert tried[-1] <= GRAIN * GRAIN


def test_nothing_is_left_over_but_what_failed_where_all_die() -> None:
    found = run([MadeUp(of(SECOND), fault=lambda *_: LaunchError("gone"))] * 2)
    assert not found.deal.done
    assert all(member.fault is not None for member in found.members)
    assert sum(box.size for box in found.deal.free) == WHOLE.size


def test_no_tile_is_larger_than_its_device_has_room_for() -> None:
    room = Room(2**22, 2**20)
    found = run([MadeUp(of(SECOND), room=room), MadeUp(of(SECOND))])
    assert (found.computed == 1).all()
    own = [tile for name, tile in found.begun if name == "device 0"]
    assert own
    assert all(room.takes(tile, NEEDS) for tile in own)


def test_a_device_goes_on_beside_the_panel_that_it_holds() -> None:
    """As wide as there is room for, all strips beside each other are read against one panel of B."""
    room = Room(4096 * 4 * 512 * 2, 2**40)
    found = run([MadeUp(of(SECOND), room=room)])
    columns = [tile.columns for _, tile in found.begun]
    assert len(columns) > 16
    assert (
        len(list(dict.fromkeys(columns))) == sum(a != b for a, b in zip(columns, [None, *columns], strict=False)) == 8
    )


def test_a_device_that_cannot_hold_a_row_and_a_column_says_so() -> None:
    found = run([MadeUp(of(SECOND), room=Room(1000, 1000)), MadeUp(of(SECOND))])
    assert isinstance(found.members[0].fault, DeviceMemoryError)
    assert "32,768 bytes" in str(found.members[0].fault)
    assert (found.computed == 1).all()


@pytest.mark.parametrize(
    "whole", [Tile.whole(1, 1, 1), Tile.whole(1, 1, 5000), Tile.whole(1, 4099, 3), Tile.whole(37, 61, 67)]
)
def test_every_element_is_computed_once(whole: Tile) -> None:
    devices = [MadeUp(of(whole.size * ratio)) for ratio in (1.0, 0.3, 0.1)]
    found = run(devices, whole, Needs(4, 4, 4, batched_a=True))
    assert (found.computed == 1).all()


def test_tiles_shrink() -> None:
    found = run([MadeUp(of(SECOND)), MadeUp(of(SECOND))])
    sizes = [tile.size for _, tile in found.begun][2:]
    assert sizes[0] > 4 * sizes[-1]
    assert len(sizes) < 8 * math.ceil(math.log2(1 / SHORTEST))
