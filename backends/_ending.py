"""The end of a process: what its devices still own is released, and no other thread is in a runtime any more.

Python stops a daemon thread where it next runs Python code. One that is in a runtime goes on there while the process takes its
libraries down: 2 of 6 processes whose daemon thread multiplied ended with a segmentation fault (Intel's runtime, PoCL 3.1). So
threads are held where they come to a device, and those that are at work there are waited for.

This happens behind what a program registered with `atexit` after it imported gemmport, which may still compute.
"""

from __future__ import annotations

import atexit
import sys
import threading
import time
from dataclasses import dataclass, field
from types import FrameType

from gemmport.backends import _fork
from gemmport.backends._ownership import release_all

_MOST_SECONDS = 10.0
"""That threads are held, and waited for: none is stopped for good in a process that does not end after all."""

_PACKAGE = __name__.rpartition(".")[0]


@dataclass
class _End:
    """What is known of the end of this process.

    Attributes:
        thread: that ends it; None until then.
        held: threads that came to a device since.
    """

    thread: int | None = None
    held: set[int] = field(default_factory=set)


_end = _End()


def hold() -> None:
    """Stops a thread that comes to a device while another ends the process."""
    own = threading.get_ident()
    if _end.thread in (None, own):
        return
    _end.held.add(own)
    time.sleep(_MOST_SECONDS)
    _end.held.discard(own)


def _others_at_work() -> bool:
    own = threading.get_ident()
    frames = sys._current_frames()
    return any(_is_at_work(at) for thread, at in frames.items() if thread != own and thread not in _end.held)


def _is_at_work(frame: FrameType | None) -> bool:
    """Whether a thread is in this package, without which none is in a runtime."""
    while frame is not None:
        if str(frame.f_globals.get("__name__", "")).startswith(_PACKAGE):
            return True
        frame = frame.f_back
    return False


def _close_all() -> None:
    _end.thread = threading.get_ident()
    for device in _fork.known():
        device.closed = True  # by which other threads come to `hold`
    latest = time.monotonic() + _MOST_SECONDS
    while _others_at_work() and time.monotonic() < latest:
        time.sleep(1e-3)
    release_all()


atexit.register(_close_all)
