"""Devices at work whose caller is interrupted."""

from __future__ import annotations

import signal
import sys
import threading
import time
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


@pytest.mark.skipif(sys.platform == "win32", reason="no thread is interrupted there")
def test_an_interrupted_wait_for_other_devices_ends_them_after_their_tile() -> None:
    room = Room(2**40, 2**40)
    deal = Deal(WHOLE, [Member("steady", 1e6, room), Member("failing", 1e6, room)], NEEDS)
    failed, goes_on, begun = threading.Event(), threading.Event(), list[Tile]()
    at_work: list[int] = []
    main = threading.get_ident()

    def steady(tile: Tile) -> float:
        begun.append(tile)
        at_work.append(threading.get_ident())
        failed.wait(30)
        while len(begun) == 1 and not is_joining(main):
            time.sleep(0.001)
        if len(begun) == 1:
            signal.pthread_kill(main, signal.SIGINT)
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
