"""What a process leaves said where a driver ends it: one that aborts as it is loaded takes the process along, without a word.

Nothing is said but by the command, which leaves its words behind; a program that uses the library leaves none.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_words = ""


def leave(words: str) -> None:
    """From now on, has these words written to standard error where the process ends inside of `if_it_ends`."""
    global _words  # noqa: PLW0603 - of the process, as its end is
    _words = words


@contextmanager
def if_it_ends() -> Iterator[None]:
    """Has a shell say the words that were left, if there are any, where the process ends in the block, however it does.

    The shell waits for a line, and reads the end of its input instead. A handler of SIGABRT could not say them: it runs Python
    in a process that has just found its memory, or a lock, in disorder.
    """
    shell: subprocess.Popen[bytes] | None = None
    if _words and os.name == "posix":
        with suppress(OSError):  # there is no shell, and nothing is said
            shell = subprocess.Popen(
                ("/bin/sh", "-c", 'read -r line || echo "$0" >&2', _words),
                stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
            )  # fmt: skip
    try:
        yield
    finally:
        if shell is not None:
            with suppress(BrokenPipeError):  # Ctrl-C has ended it
                shell.communicate(b"it goes on\n")
