"""SIGTERM ends a command as Ctrl-C does, with folders removed and processes ended on the way out, and a status of its own."""

from __future__ import annotations

import os
import signal
import threading
import time
from types import FrameType
from typing import NoReturn

from gemmport.runtime.child_processes import remove_scratch_folders

EXIT_INTERRUPTED = 130  # 128 + SIGINT, as of a shell
EXIT_TERMINATED = 143  # 128 + SIGTERM

GRACE = 10.0
"""Seconds until a process ends without cleaning up, where a driver does not come back."""

SHOWN_CURSOR = b"\x1b[?25h\r\n"
"""Shows a terminal's cursor, which rich hides while something is in progress, on a line of its own."""


class Terminated(KeyboardInterrupt):
    """SIGTERM has come."""


def exit_status(interrupt: BaseException) -> int:
    """Of a command that this ended: KeyboardInterrupt, or what was raised of it."""
    return EXIT_TERMINATED if isinstance(interrupt.__cause__ or interrupt, Terminated) else EXIT_INTERRUPTED


def end_on_sigterm() -> None:
    """Has SIGTERM raise Terminated in the main thread, from now on; a second one changes nothing."""
    signal.signal(signal.SIGTERM, _terminate)
    if os.name == "posix":
        # Python's handler waits until the main thread comes back from C. The number of a signal is in this pipe at once.
        told, telling = os.pipe()
        os.set_blocking(telling, False)
        signal.set_wakeup_fd(telling, warn_on_full_buffer=False)
        threading.Thread(target=_end_in_time, args=(told,), daemon=True).start()


def _terminate(_: int, __: FrameType | None) -> NoReturn:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise Terminated


def _end_in_time(told: int) -> None:
    while os.read(told, 1) != bytes([signal.SIGTERM]):
        pass
    time.sleep(GRACE)
    remove_scratch_folders()
    for stream in (1, 2):
        if os.isatty(stream):
            os.write(stream, SHOWN_CURSOR)
    os._exit(EXIT_TERMINATED)
