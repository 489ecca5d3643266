"""Devices at work whose caller is interrupted."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType

import pytest

from gemmport.core.errors import LaunchError
from gemmport.multidevice.crew import compute
from gemmport.multidevice.deal import Deal, Member
from gemmport.multidevice.tiles import Room, Tile
from made_up_clock import NEEDS, WHOLE


def is_joining(thread: int) -> bool:
    """Whether a thread waits for the end of another."""
    frame: FrameType | None = sys._current_frames()[thread]
    while frame is not None and frame.f_code.co_name != "join":
        frame = frame.f_back
    return frame is not None


@pytest.fixture
def interrupt() -> Iterator[Callable[[], bool]]:
    """Interrupts this thread once it waits for the end of another, and tells whether that is done: to be called until it is.

    Of a signal that comes just before a thread waits for a lock, Python hears when the wait is over. Any wait, if a library has
    had a handler of its own restart it: a handler that Python sets ends that.
    """
    interrupted, main = threading.Event(), threading.get_ident()

    def raise_once(*_: object) -> None:
        if not interrupted.is_set():
            interrupted.set()
            raise KeyboardInterrupt

    def interrupt() -> bool:
        if not interrupted.is_set() and is_joining(main):
            signal.pthread_kill(main, signal.SIGINT)
        return interrupted.is_set()

    before = signal.signal(signal.SIGINT, raise_once)
    yield interrupt
    signal.signal(signal.SIGINT, before)


@pytest.mark.skipif(sys.platform == "win32", reason="no thread is interrupted there")
def test_an_interrupted_wait_for_other_devices_ends_them_after_their_tile(interrupt: Callable[[], bool]) -> None:
    room = Room(2**40, 2**40)
    deal = Deal(WHOLE, [Member("steady", 1e6, room), Member("failing", 1e6, room)], NEEDS)
    failed, goes_on, begun = threading.Event(), threading.Event(), list[Tile]()
    at_work: list[int] = []

    def steady(tile: Tile) -> float:
        begun.append(tile)
        at_work.append(threading.get_ident())
        failed.wait(30)
        while len(begun) == 1 and not interrupt():
            time.sleep(0.001)
        goes_on.wait(30)
        return 1e-3

    def failing(_: Tile) -> float:
        failed.set()
        raise LaunchError("it is broken")

    with pytest.raises(KeyboardInterrupt):
        compute(deal, [steady, failing])
    goes_on.set()
    while at_work[0] in sys._current_frames():  # a thread whose join was interrupted may say that it ended
        time.sleep(0.001)
    assert len(begun) == 1
