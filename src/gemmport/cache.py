"""Compiled programs on disk, under a key of everything that went into them.

An entry carries its own key and checksum: one that is damaged, cut short or not ours is treated as absent, because drivers may
crash on a damaged binary. Entries are written to a temporary file and renamed, so that processes that write at once do
no harm.
"""

from __future__ import annotations

import hashlib
import logging
import os
import tempfile
from contextlib import suppress
from pathlib import Path

import platformdirs

log = logging.getLogger(__name__)

_MAGIC = b"gemmport program 1\n"


def cache_folder() -> Path:
    """The folder for everything cached: GEMMPORT_CACHE_DIR, or the user's cache folder of this platform."""
    return Path(os.environ.get("GEMMPORT_CACHE_DIR") or platformdirs.user_cache_dir("gemmport"))


def program_key(*parts: str) -> str:
    """A key that differs whenever any part does."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode()
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()


def load_program(key: str) -> bytes | None:
    """The program stored under a key; None where there is none, or it is damaged."""
    path = _path(key)
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        log.warning("cannot read the program cache %s: %s", path, error)
        return None
    head = _MAGIC + key.encode()
    payload = data[len(head) + 32 :]
    if data.startswith(head) and hashlib.sha256(payload).digest() == data[len(head) : len(head) + 32]:
        return payload
    log.warning("the cached program %s is damaged: compiling again", path)
    return None


def store_program(key: str, payload: bytes) -> None:
    """Stores a program under its key. A folder that cannot be written to is logged, not an error."""
    path = _path(key)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(_MAGIC + key.encode() + hashlib.sha256(payload).digest() + payload)
            os.replace(temporary, path)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary)
            raise
    except OSError as error:
        log.warning("cannot write the program cache %s: %s", path, error)


def _path(key: str) -> Path:
    return cache_folder() / "programs" / key[:2] / key
