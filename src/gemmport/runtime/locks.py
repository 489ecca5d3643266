"""What one process at a time does, of those that share a folder. A lock ends with the process that holds it, in any case."""

from __future__ import annotations

import hashlib
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from gemmport.runtime import trust

_FILE = "lock"
"""Of a folder: each name has one byte of it, which need not be there."""

_PAUSE = 0.05
"""Seconds between two looks at a lock that another process holds."""


@contextmanager
def exclusive(folder: Path, name: str, seconds: float = 60.0) -> Iterator[bool]:
    """Keeps other processes out of blocks of this folder and name.

    It is for work that may be done twice, but had better not: the block is entered in any case.

    Args:
        folder: as `trust.make_folder` takes it.
        seconds: that another process is waited for.

    Returns:
        Whether others are kept out: not where they did not end in time, or the file system has no locks.
    """
    try:
        path = trust.make_folder(folder) / _FILE
        handle = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600)
    except OSError:
        yield False
        return
    place = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "little") >> 1
    try:
        yield _is_locked(handle, place, time.monotonic() + seconds)
    finally:
        os.close(handle)  # which ends it


def _is_locked(handle: int, place: int, latest: float) -> bool:
    while not _try(handle, place):
        if time.monotonic() >= latest:
            return False
        time.sleep(_PAUSE)
    return True


def _try(handle: int, place: int) -> bool:
    with suppress(OSError):
        if sys.platform == "win32":
            import msvcrt  # noqa: PLC0415 - on Windows alone

            os.lseek(handle, place, os.SEEK_SET)
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl  # noqa: PLC0415 - not on Windows

            fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, place)
        return True
    return False
