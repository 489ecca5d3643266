"""The devices of a deal at work, each in a thread of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

from gemmport.core.errors import ArrayLostError, CompileError, DevicesFailedError, GemmportError, LaunchError
from gemmport.multidevice.deal import Deal, Member, Wait
from gemmport.multidevice.tiles import Tile
from gemmport.runtime.side_by_side import side_by_side

Work: TypeAlias = Callable[[Tile], "float | None"]
"""Computes a tile on one device, to its end. Returns the seconds that another tile of the size would take, None where the time
that this one took says nothing of that. Raises GemmportError or MemoryError where the device fails; the tile's part of the
result may hold anything then, but what is read must be as it was. Raises ArrayLostError where another device has failed, on
which an array lies."""


FAILURES = (MemoryError, LaunchError, CompileError)
"""What a device fails with, and another may not: all other errors are of what was asked for."""


def compute(deal: Deal, works: Sequence[Work]) -> None:
    """Computes all tiles of a deal, each once, but those at which a device failed.

    Args:
        works: of each member, in order.

    Raises:
        ArrayLostError: a device has failed on which an array lies; all tiles that do without it are computed.
        DevicesFailedError: each device has failed. What a work raises beside its device's failures ends all; tiles that others
            have begun are awaited.
    """
    crew = _Crew(deal)
    try:
        side_by_side(crew.work, [*zip(deal.members, works, strict=True)])
    except BaseException:
        crew.stop()  # which an interrupted wait for the others has not told them yet
        raise
    if deal.missing:
        (_, error), *_ = deal.missing
        raise lost([tile for tile, _ in deal.missing], error) from error
    if not deal.done:
        raise failed({member.name: member.fault for member in deal.members if member.fault is not None})


def lost(parts: Iterable[Tile], error: Exception) -> ArrayLostError:
    """The error where parts of a result were not computed, since a device has failed on which an array lies."""
    return ArrayLostError(
        f"arrays must stay on their devices until a product is done; {error}. These parts of the result were not computed: "
        f"{'; '.join(map(str, parts))}; all others are right"
    )


def failed(reasons: Mapping[str, Exception]) -> DevicesFailedError:
    """The error where each device has failed, each for its reason."""
    told = "; ".join(f"{name}: {reason}" for name, reason in reasons.items())
    return DevicesFailedError(f"one of the devices must compute the product; each failed: {told}", reasons=reasons)


class _Crew:
    def __init__(self, deal: Deal) -> None:
        self.deal = deal
        self.changed = threading.Condition()
        self.stopped = False

    def work(self, pair: tuple[Member, Work]) -> None:
        """What a device's thread does: computes its tiles one after another."""
        member, work = pair
        try:
            while (tile := self._next(member)) is not None:
                self._compute(member, tile, work)
        except BaseException:
            self.stop()
            raise
        finally:
            with self.changed:
                self.changed.notify_all()

    def stop(self) -> None:
        """Has nobody begin another tile."""
        with self.changed:
            self.stopped = True
            self.changed.notify_all()

    def _compute(self, member: Member, tile: Tile, work: Work) -> None:
        fault, seconds, lost = None, None, None
        try:
            seconds = work(tile)
        except ArrayLostError as error:
            lost = error
        except (GemmportError, MemoryError) as error:
            fault = error
        with self.changed:
            if lost is not None:
                self.deal.unreachable(member, lost)
            elif fault is None:
                self.deal.finished(member, time.perf_counter(), seconds)
            else:
                self.deal.lost(member, fault)
            self.changed.notify_all()

    def _next(self, member: Member) -> Tile | None:
        with self.changed:
            while not self.stopped:
                found = self.deal.take(member, time.perf_counter())
                if not isinstance(found, Wait):
                    return found
                self.changed.wait(min(found.seconds, threading.TIMEOUT_MAX))
        return None
