"""Who computes which tile, decided while they compute: guided self-scheduling, weighted by measured speeds.

A device that is free takes a part of what is left of its share: tiles shrink, so that all end at about the same time
(C. D. Polychronopoulos and D. J. Kuck, "Guided Self-Scheduling", IEEE Transactions on Computers C-36(12), 1987). Shares are as
speeds are, and a tile is half a share (S. F. Hummel, J. Schmidt, R. N. Uma and J. Wein, "Load-Sharing in Heterogeneous Systems
via Weighted Factoring", SPAA 1996). Speeds are predicted first, and measured with each tile.

Where rows of the result, and the operands' that make them, lie on devices, these parts are dealt first to the device that has
them, and then to who is free: what it computes of another's it takes longer for.

Nothing here runs or waits: `Deal` is told what happens and when, by threads (`gemmport.multidevice.crew`) or by a test's clock.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

from gemmport.core.errors import ArrayLostError, DeviceMemoryError, GemmportError
from gemmport.multidevice.homes import Home, Lines
from gemmport.multidevice.tiles import GRAIN, Axis, Needs, Room, Tile, cut, side_by_side

log = logging.getLogger(__name__)

UNSEEN = 8
"""A device whose speed is only predicted takes its share over this much, beside devices of another kind: a prediction may be
wrong by as much before the device is the last to end."""

FACTOR = 2
"""A device whose speed was measured takes its share over this: half of it, as in factoring."""

HELD = 16
"""Devices of one kind take their shares at once, each in one tile (`side_by_side`), but for this part of it, which goes to who
is free: so much one of them may be slower than the other. No tile is worth it that takes less than `WORTH`."""

WORTH = 0.1
"""Seconds: several times what it costs to begin another tile, whose first panels come before it computes."""

SHORTEST = 0.02
"""Seconds that a tile takes at least, where there is so much to do: to plan, launch and hand over a tile takes about a
millisecond."""


@dataclass
class Member:
    """A device that takes part.

    Attributes:
        name: for people.
        speed: elements of the result per second: predicted, until a tile was measured.
        room: memory for its tiles.
        abroad: seconds per element that a tile of another's home takes longer: what lies there comes from there, and goes back.
        kind: what it has in common with devices that are as fast; None for nothing that is known.
        measured: whether the speed is.
        tile: that it computes now; since when, in the clock's seconds.
        last: tile that it computed, whose panels it may hold.
        fault: why it computes no more.
        tiles, seconds: that it computed, and took for them.
    """

    name: str
    speed: float
    room: Room
    abroad: float = 0.0
    kind: Hashable = None
    measured: bool = False
    tile: Tile | None = None
    since: float = 0.0
    last: Tile | None = None
    fault: GemmportError | MemoryError | None = None
    tiles: list[Tile] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def elements(self) -> int:
        """Of the result, that it computed."""
        return sum(tile.size for tile in self.tiles)


@dataclass(frozen=True)
class Wait:
    """Nothing is to be taken now: ask again when something happened, or after so many seconds."""

    seconds: float = math.inf


class Deal:
    """The tiles of one product and who has them. Not thread-safe by itself.

    Attributes:
        missing: tiles that nobody can compute, since a device has failed on which an array lies, and what was said of it.
    """

    def __init__(
        self, whole: Tile, members: Sequence[Member], needs: Needs, along: Lines | None = None, parts: Sequence[Home] = ()
    ) -> None:  # fmt: skip
        """Of a whole result.

        Args:
            along, parts: of `gemmport.multidevice.homes.homes`; owners are numbers of members.
        """
        self.whole = whole
        self.members = members
        self.needs = needs
        # Where a prediction is wrong by one factor for all, shares are right.
        kinds = {member.kind for member in members}
        self.alike = len(kinds) == 1 and None not in kinds
        self.along: Axis = "rows" if whole.rows.size >= whole.columns.size else "columns"
        if along in {"rows", "columns"}:
            self.along = along
        self.homes = [(part.tile, None if part.owner is None else members[part.owner]) for part in parts]
        self.free = [tile for tile, _ in self.homes if tile.size] if self.homes else [whole]
        if self.alike and not self.homes and whole.matrices.size == 1:
            self.free = side_by_side(whole, len(members), self.along, needs)
        self.missing: list[tuple[Tile, ArrayLostError]] = []

    @property
    def done(self) -> bool:
        """Whether every tile was computed."""
        return not self.free and not any(member.tile for member in self.members)

    @property
    def standing(self) -> list[Member]:
        """The devices that still compute."""
        return [member for member in self.members if member.fault is None]

    def at_home(self, member: Member, tiles: Sequence[Tile], seconds: float) -> None:
        """A device has computed what has its home there, before anything was dealt: all of it in so many seconds."""
        for tile in tiles:
            self.free.remove(tile)
        member.tiles += tiles
        member.seconds += seconds

    def take(self, member: Member, now: float) -> Tile | Wait | None:
        """What a device that is free computes next; None where it has nothing more to do.

        Args:
            now: seconds on any clock that only goes on.
        """
        if member.fault is not None or self.done:
            return None
        if not self.free:  # a device that fails brings something back
            return Wait()
        box = self._box(member)
        found = cut(
            box, self._wanted(member), self.along, member.room, self.needs, exactly=self._takes_its_share(member)
        )
        if found is None:
            member.fault = DeviceMemoryError(
                f"{member.name} must have room for a row of op(A) and a column of op(B), which take "
                f"{self.needs.row + self.needs.column:,} bytes; no sum is split over tiles: use another device"
            )
            return None
        tile, left = found
        patience = self._patience(member, tile, now)
        if patience is not None:
            return Wait(patience)
        self.free.remove(box)
        self.free += left
        member.tile, member.since = tile, now
        return tile

    def finished(self, member: Member, now: float, seconds: float | None = None) -> None:
        """A device has computed its tile.

        Args:
            seconds: that another tile of the size would take; None where the time says nothing of that.
        """
        tile = self._given_up(member)
        member.last = tile
        member.tiles.append(tile)
        member.seconds += now - member.since
        if seconds is not None and self._extra(member, tile) < seconds:
            speed = tile.size / max(seconds - self._extra(member, tile), 1e-9)
            member.speed = (member.speed + speed) / 2 if member.measured else speed
            member.measured = True

    def lost(self, member: Member, error: GemmportError | MemoryError) -> None:
        """A device has failed at its tile: for want of memory it gets a smaller one, else none any more. Others take it."""
        tile = self._given_up(member)
        self.free.append(tile)
        if isinstance(error, MemoryError) and tile.size > GRAIN * GRAIN:
            member.room = member.room.below(tile, self.needs)
            log.warning("%s has no memory for %s, and gets smaller tiles: %s", member.name, tile, error)
            return
        member.fault = error
        log.warning("%s failed at %s, which others compute: %s", member.name, tile, error)

    def unreachable(self, member: Member, error: ArrayLostError) -> None:
        """A device cannot compute its tile, nor can another: an array that it takes is lost."""
        tile = self._given_up(member)
        self.missing.append((tile, error))
        log.warning("%s is computed by nobody: %s", tile, error)

    def _given_up(self, member: Member) -> Tile:
        tile, member.tile = member.tile, None
        assert tile is not None
        return tile

    def _box(self, member: Member) -> Tile:
        """Where a device goes on: at home, then where nobody is. Beside its last tile, whose panel it may hold; else where most
        is left.
        """
        last, across = member.last, "columns" if self.along == "rows" else "rows"
        nearest = min(self._distance(member, box) for box in self.free)
        boxes = [box for box in self.free if self._distance(member, box) == nearest]
        for box in boxes:
            if last is not None and box.matrices == last.matrices and getattr(last, across).has(getattr(box, across)):
                return box
        return max(boxes, key=lambda box: box.size)

    def _distance(self, member: Member, box: Tile) -> int:
        """0 for what is a device's own, 1 for what is nobody's, or of one that has failed, 2 for another's."""
        owner = self._owner(box)
        if owner is member:
            return 0
        return 1 if owner is None or owner.fault is not None else 2

    def _owner(self, box: Tile) -> Member | None:
        for tile, owner in self.homes:
            if all(getattr(tile, name).has(getattr(box, name)) for name in ("matrices", "rows", "columns")):
                return owner
        return None

    def _extra(self, member: Member, tile: Tile) -> float:
        """Seconds that a device takes longer for a tile since it lies elsewhere."""
        owner = self._owner(tile)
        return 0.0 if owner is None or owner is member else tile.size * member.abroad

    def _takes_its_share(self, member: Member) -> bool:
        """Whether the next tile of a device is the first of one of several of a kind."""
        return self.alike and not member.tiles and len(self.standing) == len(self.members) > 1

    def _wanted(self, member: Member) -> int:
        """Elements of a device's next tile: all there is where no other computes."""
        left = sum(box.size for box in self.free)
        if len(self.standing) == 1:
            return left
        weight = member.speed / sum(each.speed for each in self.standing)
        if self._takes_its_share(member):
            share = self.whole.size * weight
            return math.ceil(share - share / HELD if share / HELD > WORTH * member.speed else share)
        return int(max(left * weight / (FACTOR if member.measured else UNSEEN), SHORTEST * member.speed, 1))

    def _patience(self, member: Member, tile: Tile, now: float) -> float | None:
        """Seconds for which a device leaves a tile to the others, who would end all there is before it would end this one.

        None where it is to take it.
        """
        others = [each for each in self.standing if each is not member and not _is_late(each, now)]
        if not others:
            return None
        own = tile.size / member.speed + self._extra(member, tile)
        left = {each.name: _left(each, now) for each in others}
        rest = sum(box.size for box in self.free) + sum(left.values())
        if own <= rest / sum(each.speed for each in others):
            return None
        ends = {each.name: (left[each.name] + tile.size) / each.speed + self._extra(each, tile) for each in others}
        best = min(others, key=lambda each: ends[each.name])
        if own <= ends[best.name]:
            return None
        return max(left[best.name] / best.speed, SHORTEST)


def _left(member: Member, now: float) -> float:
    """Elements of its tile that a device has still to compute, if it keeps its speed."""
    return max(member.tile.size - (now - member.since) * member.speed, 0.0) if member.tile else 0.0


def _is_late(member: Member, now: float) -> bool:
    """Whether a tile takes a device so much longer than expected that nobody should count on it."""
    return member.tile is not None and now - member.since > 2 * member.tile.size / member.speed
