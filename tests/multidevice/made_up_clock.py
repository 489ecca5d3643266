"""Devices whose clock is made up: what a deal would make of them is known in no time, and to the second."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count

import numpy as np

from gemmport.core.errors import ArrayLostError, GemmportError
from gemmport.multidevice.deal import Deal, Member, Wait
from gemmport.multidevice.homes import Home, Lines
from gemmport.multidevice.tiles import Needs, Room, Tile

WHOLE = Tile.whole(1, 4096, 4096)
NEEDS = Needs(row=4096 * 4, column=4096 * 4, element=4)
AMPLE = Room(2**40, 2**40)

Fault = Callable[[int, Tile, float], "GemmportError | MemoryError | None"]
"""Is given the number of a device's tile, the tile and the time; what the device fails with."""


@dataclass
class MadeUp:
    """A device.

    Attributes:
        speed: elements of the result per second, at a time.
        predicted: what it is taken for before it was measured; default: what it has at first.
        kind: what it has in common with devices that are as fast.
    """

    speed: Callable[[float], float]
    predicted: float = 0.0
    room: Room = AMPLE
    fault: Fault = lambda number, tile, now: None
    abroad: float = 0.0
    kind: str | None = None


@dataclass
class Run:
    """What came of it: the seconds that it took, how often each element was computed, and what each member did."""

    seconds: float
    computed: np.ndarray
    members: Sequence[Member]
    deal: Deal
    begun: list[tuple[str, Tile]] = field(default_factory=list)


def of(speed: float) -> Callable[[float], float]:
    """A device that keeps its speed."""
    return lambda now: speed


def run(
    devices: Sequence[MadeUp], whole: Tile = WHOLE, needs: Needs = NEEDS, along: Lines | None = None, parts: Sequence[Home] = ()
) -> Run:  # fmt: skip
    """A deal under a made-up clock, to its end or until no device is left."""
    members = [
        Member(f"device {n}", d.predicted or d.speed(0.0), d.room, d.abroad, d.kind) for n, d in enumerate(devices)
    ]
    deal = Deal(whole, members, needs, along, parts)
    computed = np.zeros((whole.matrices.size, whole.rows.size, whole.columns.size), np.uint8)
    found = Run(0.0, computed, members, deal)
    order = count()
    events: list[tuple[float, int, int]] = [(0.0, next(order), n) for n in range(len(devices))]
    idle: set[int] = set()
    while events:
        now, _, number = heapq.heappop(events)
        member, device = members[number], devices[number]
        if member.tile is not None:
            fault = device.fault(len(member.tiles), member.tile, now)
            if isinstance(fault, ArrayLostError):
                deal.unreachable(member, fault)
            elif fault is None:
                tile = member.tile
                deal.finished(member, now, now - member.since)
                computed[tile.matrices.slice, tile.rows.slice, tile.columns.slice] += 1
                found.seconds = now
            else:
                deal.lost(member, fault)
            for other in idle:
                heapq.heappush(events, (now, next(order), other))
            idle.clear()
        if member.tile is not None or number in idle:
            continue
        taken = deal.take(member, now)
        if isinstance(taken, Tile):
            found.begun.append((member.name, taken))
            owner = next((part.owner for part in parts if part.tile.rows.has(taken.rows)), number)
            seconds = taken.size / device.speed(now) + (0.0 if owner == number else taken.size * device.abroad)
            heapq.heappush(events, (now + seconds, next(order), number))
        elif isinstance(taken, Wait):
            if taken.seconds < float("inf"):
                heapq.heappush(events, (now + taken.seconds, next(order), number))
            else:
                idle.add(number)
    return found
