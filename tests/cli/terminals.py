"""The command in a terminal of a width, as a user sees it."""

from __future__ import annotations

import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Mapping
from fcntl import ioctl

COMMAND = [sys.executable, "-c", "from gemmport.cli import main; main()"]

_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def shown(arguments: list[str], width: int, environment: Mapping[str, str] | None = None) -> tuple[int, str]:
    """The exit status, and what standard output of the command says in a terminal; standard error goes nowhere."""
    return in_terminal([*COMMAND, *arguments], width, environment)


def in_terminal(words: list[str], width: int, environment: Mapping[str, str] | None = None) -> tuple[int, str]:
    """Likewise, of any process."""
    leader, follower = pty.openpty()
    ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 50, width, 0, 0))
    own = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
    with subprocess.Popen(
        words, stdin=follower, stdout=follower, stderr=subprocess.DEVNULL,
        env={**own, "TERM": "xterm", **(environment or {})},
    ) as process:  # fmt: skip
        os.close(follower)
        written = b""
        while True:
            try:
                part = os.read(leader, 1 << 16)
            except OSError:  # the other end is closed
                break
            if not part:
                break
            written += part
    os.close(leader)
    return process.returncode, written.decode().replace("\r\n", "\n")


def without_colours(text: str) -> str:
    """The text alone."""
    return _CONTROL.sub("", text)
