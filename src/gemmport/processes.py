"""Processes that gemmport starts, and ends with all that they started."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress


def end_session(process: subprocess.Popen[bytes]) -> None:
    """Ends a process that leads a session, with what it started; one that hangs in its driver is left behind."""
    if process.poll() is None:
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
        with suppress(subprocess.TimeoutExpired):
            process.wait(5)
