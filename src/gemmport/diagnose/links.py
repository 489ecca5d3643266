"""How fast a device and the host send each other numbers, and what lies between two devices."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from gemmport.backends.base import Backend
from gemmport.core.units import quantity

SENT = 2**26
"""Bytes that are sent at a time: enough for a link's full speed, and little enough for any device."""

ROUNDS = 3
"""The fastest counts: the first finds memory that nobody has touched."""


@dataclass(frozen=True)
class Link:
    """Between a device and the host, through memory that is not pinned.

    Attributes:
        up, down: bytes per second to the device, and from it.
        in_place: whether the device reads the host's memory where it lies.
    """

    up: float
    down: float
    in_place: bool

    def __str__(self) -> str:
        told = f"{quantity(self.up, 'B/s')} from the host, {quantity(self.down, 'B/s')} to it"
        return f"{told}; products read the host's memory in place" if self.in_place else told

    def onward(self, other: Link) -> float:
        """Bytes per second to another device, through the host."""
        return 1 / (1 / self.down + 1 / other.up)


def measured(backend: Backend) -> Link:
    """The link of a device, by the host's clock.

    Raises:
        DeviceMemoryError: the device has no room for what is sent.
    """
    data = np.zeros(SENT, np.uint8)
    memory = backend.allocate(SENT)
    up, down = [], []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        backend.upload(memory, data)
        backend.synchronize()
        up.append(time.perf_counter() - start)
        start = time.perf_counter()
        backend.download(memory, data)
        down.append(time.perf_counter() - start)
    memory.release()
    return Link(SENT / min(up), SENT / min(down), backend.borrow(np.zeros(1)) is not None)


@dataclass(frozen=True)
class Reach:
    """From a device to another's memory.

    Attributes:
        reaches: whether it reads that itself; None where that is not told.
        rate: bytes per second at which it comes from there; None where none was measured.
    """

    reaches: bool | None = None
    rate: float | None = None


def told_between(first: Link, second: Link, there: Reach, back: Reach) -> str:
    """What lies between two devices, for people.

    Args:
        there: from the first to the second's memory. back: the other way.
    """
    through = f"{quantity(first.onward(second), 'B/s')} there and {quantity(second.onward(first), 'B/s')} back through the host"
    ways = {
        (True, True): "each reaches the other's memory (peer access)",
        (True, False): "only the first reaches the other's memory (peer access)",
        (False, True): "only the second reaches the other's memory (peer access)",
        (False, False): "neither reaches the other's memory: no peer access",
    }
    if there.reaches is None or back.reaches is None:
        return through
    told = f"{through}; {ways[there.reaches, back.reaches]}"
    if there.rate and back.rate:  # what one reads, the other sends
        told += f": {quantity(back.rate, 'B/s')} there and {quantity(there.rate, 'B/s')} back directly"
    return told
