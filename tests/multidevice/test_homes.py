"""Parts of a result that lie on devices: whose they are, and who computes them."""

from __future__ import annotations

from itertools import pairwise

import pytest

from gemmport.core.errors import ArrayLostError, LaunchError
from gemmport.multidevice.deal import Deal, Member
from gemmport.multidevice.homes import Cut, Home, are_even, homes
from gemmport.multidevice.tiles import Room, Span, Tile
from made_up_clock import NEEDS, WHOLE, MadeUp, Run, of, run

SECOND = float(WHOLE.size)


def halves(*stops: int) -> list[Home]:
    """Rows up to each stop, of one device after the other."""
    bounds = [0, *stops, WHOLE.rows.stop]
    return [Home(Tile(WHOLE.matrices, Span(*rows), WHOLE.columns), n) for n, rows in enumerate(pairwise(bounds))]


def at_home(found: Run, parts: list[Home], number: int) -> int:
    """Elements that a device computed of its own."""
    own = [part.tile for part in parts if part.owner == number]
    return sum(tile.size for tile in found.members[number].tiles if any(each.rows.has(tile.rows) for each in own))


def test_a_part_is_whose_bytes_are_most() -> None:
    whole = Tile.whole(1, 10, 5)
    cuts = [Cut("rows", (4, 6), (0, 1), 8), Cut("rows", (7, 3), (1, None), 20), Cut("columns", (2, 3), (0, 1), 9)]
    along, parts = homes(whole, cuts)
    assert along == "rows"
    assert [(part.tile.rows, part.owner) for part in parts] == [((0, 4), 1), ((4, 7), 1), ((7, 10), 1)]
    along, parts = homes(whole, [cuts[2]])
    assert (along, [part.tile.columns for part in parts]) == ("columns", [(0, 2), (2, 5)])
    along, parts = homes(whole, [Cut("rows", (0, 10, 0), (0, 1, 0), 1)])
    assert [(part.tile, part.owner) for part in parts] == [(whole, 1)]
    assert homes(whole, []) == (None, [Home(whole, None)])


def test_parts_that_were_computed_at_home_took_their_device_one_time() -> None:
    parts = halves(1024, 3072)
    members = [Member(str(n), 1.0, Room(2**40, 2**40)) for n in range(3)]
    deal = Deal(WHOLE, members, NEEDS, "rows", parts)
    deal.at_home(members[1], [parts[1].tile, parts[2].tile], 2.0)
    assert (members[1].seconds, members[1].elements) == (2.0, WHOLE.size * 3 // 4)
    assert deal.free == [parts[0].tile]


def test_alike_devices_stay_at_home() -> None:
    parts = halves(2048)
    found = run([MadeUp(of(SECOND), abroad=2e-8)] * 2, along="rows", parts=parts)
    assert (found.computed == 1).all()
    assert [at_home(found, parts, n) for n in range(2)] == [WHOLE.size // 2] * 2


@pytest.mark.parametrize("abroad", [0.0, 1e-8, 1.0])
def test_a_device_that_is_done_at_home_helps_where_that_gains(abroad: float) -> None:
    """Of a device of a tenth of its speed, whose half would take five seconds."""
    parts = halves(2048)
    found = run([MadeUp(of(SECOND), abroad=abroad), MadeUp(of(SECOND / 10))], along="rows", parts=parts)
    assert (found.computed == 1).all()
    assert at_home(found, parts, 0) >= WHOLE.size // 2 - 64 * 4096
    if abroad == 1.0:
        assert found.members[0].elements == WHOLE.size // 2
    else:
        assert found.seconds < (1.1 if abroad == 0.0 else 1.4)


def test_the_home_of_one_that_fails_is_computed_by_the_others() -> None:
    dying = MadeUp(of(SECOND), fault=lambda number, tile, now: LaunchError("gone") if number else None, abroad=1e-8)
    found = run([dying, MadeUp(of(SECOND), abroad=1e-8)], along="rows", parts=halves(2048))
    assert (found.computed == 1).all()


def test_what_is_lost_with_a_device_is_known_and_all_else_computed() -> None:
    parts = halves(2048)
    lost = ArrayLostError("it lay there")
    other = MadeUp(of(SECOND), fault=lambda number, tile, now: lost if tile.rows.start >= 2048 else None)
    found = run([other, MadeUp(of(SECOND), fault=lambda *_: LaunchError("gone"))], along="rows", parts=parts)
    assert (found.computed[:, :2048] == 1).all()
    assert not found.computed[:, 2048:].any()
    assert sum(tile.size for tile, _ in found.deal.missing) == WHOLE.size // 2
    assert found.members[0].fault is None
    assert found.deal.done


def test_a_narrow_whole_is_dealt_along_its_shards() -> None:
    whole = Tile.whole(1, 64, 4096)
    parts = [Home(Tile(whole.matrices, Span(first, first + 32), whole.columns), first // 32) for first in (0, 32)]
    found = run([MadeUp(of(SECOND))] * 2, whole, NEEDS, "rows", parts)
    assert (found.computed == 1).all()
    assert found.deal.along == "rows"


def test_what_lies_evenly_on_devices_of_one_kind_is_told() -> None:
    for kinds, sizes, owners, expected in (
        ("aa", (2048, 2048), (0, 1), True), ("aa", (2176, 1920), (0, 1), True), ("aa", (3072, 1024), (0, 1), False),
        ("ab", (2048, 2048), (0, 1), False), ("aa", (2048, 2048), (0, None), False), ("aa", (4096, 0), (0, None), False),
        ("aaa", (2048, 2048), (0, 1), False), ("aa", (1024, 1024, 1024, 1024), (0, 1, 0, 1), True),
    ):  # fmt: skip
        _, parts = homes(WHOLE, [Cut("rows", sizes, owners, 1)])
        assert are_even(parts, [*kinds]) == expected, (kinds, sizes, owners)
    assert not are_even(parts, [None] * 2)
