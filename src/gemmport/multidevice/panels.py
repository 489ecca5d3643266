"""Panels of operands that a device holds, so that its next tile need not send them again."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy.typing as npt

from gemmport.backends.array import DeviceArray
from gemmport.multidevice.tiles import Span

HostArray = npt.NDArray[Any]


class _Key(NamedTuple):
    """Of a panel: which operand, which of its matrices (None: it has one), and lines along which of its axes."""

    operand: str
    matrices: Span | None
    axis: int
    lines: Span


class Panels:
    """Those that one device holds in its memory; those that were used least lately go first.

    Attributes:
        seconds: by operand, what it took to send panels of it.
    """

    def __init__(self, send: Callable[[HostArray], DeviceArray]) -> None:
        """An empty device.

        Args:
            send: copies an array of the host to the device, and waits for it.
        """
        self._send = send
        self._held: OrderedDict[_Key, DeviceArray] = OrderedDict()
        self.seconds: dict[str, float] = {}

    @property
    def nbytes(self) -> int:
        """Bytes of the device's memory that they take."""
        return sum(panel.nbytes for panel in self._held.values())

    def get(
        self, operand: str, host: HostArray, *, matrices: Span | None, axis: int, lines: Span, memory: int
    ) -> DeviceArray:  # fmt: skip
        """A panel on the device: as it is held, a part of one that is held, or sent now.

        Args:
            host: the operand.
            matrices: of a batch, the first dimension; None where the operand has two dimensions.
            axis: -2 or -1, along which the lines are.
            memory: bytes that panels may take, this one and that which was asked for before it included.

        Raises:
            DeviceMemoryError: the device has no room for it.
        """
        wanted = _Key(operand, matrices, axis, lines)
        for key, panel in self._held.items():
            if key[:1] + key[2:3] == wanted[:1] + wanted[2:3] and _has(key.matrices, matrices) and key.lines.has(lines):
                self._held.move_to_end(key)
                return _part(panel, key, wanted)
        view = host if matrices is None else host[matrices.slice]
        view = view[..., lines.slice, :] if axis == -2 else view[..., lines.slice]
        # The last one is the other operand's panel of this tile.
        while len(self._held) > 1 and self.nbytes + view.nbytes > memory:
            self._held.popitem(last=False)
        started = time.perf_counter()
        panel = self._held[wanted] = self._send(view)
        self.seconds[operand] = self.seconds.get(operand, 0.0) + time.perf_counter() - started
        return panel

    def clear(self) -> None:
        """Gives the memory back."""
        self._held.clear()


def _has(held: Span | None, wanted: Span | None) -> bool:
    return held == wanted if held is None or wanted is None else held.has(wanted)


def _part(panel: DeviceArray, key: _Key, wanted: _Key) -> DeviceArray:
    """What is wanted of a panel that has it."""
    if key.matrices is not None and wanted.matrices is not None:
        start = key.matrices.start
        panel = panel[wanted.matrices.start - start : wanted.matrices.stop - start]
    lines = slice(wanted.lines.start - key.lines.start, wanted.lines.stop - key.lines.start)
    return panel[..., lines, :] if wanted.axis == -2 else panel[..., lines]
