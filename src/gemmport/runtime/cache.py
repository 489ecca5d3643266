"""Compiled programs on disk, under a key of everything that went into them.

An entry carries its own key and checksum: one that is damaged, cut short or not ours is treated as absent, because drivers may
crash on a damaged binary. Entries are written to a temporary file and renamed, so that processes that write at once do
no harm; nor does clearing the cache while they do.

A checksum keeps nobody from forging an entry: folders and entries must be trusted (`gemmport.runtime.trust`). Where they are
not, or cannot be written to, everything goes on without a cache.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from gemmport.runtime import trust

log = logging.getLogger(__name__)

_MAGIC = b"gemmport program 1\n"

_MOST_BYTES = 2**28
"""Of an entry. Programs have a few megabytes at most."""

_ABANDONED_SECONDS = 3600.0
"""A temporary file of this age has no writer any more: it was killed."""

OWN_ICD = "gemmport-intel.icd"
"""The file that names Intel's runtime from PyPI to the OpenCL loader, in a folder that gemmport sets OCL_ICD_VENDORS to."""


@dataclass(frozen=True)
class CacheUse:
    """What compiled programs take on disk: how many they are, and their bytes."""

    programs: int = 0
    nbytes: int = 0


def cache_folder() -> Path:
    """The folder for everything cached: GEMMPORT_CACHE_DIR, or the user's cache folder of this platform."""
    return Path(os.environ.get("GEMMPORT_CACHE_DIR") or user_cache_folder("gemmport"))


def user_cache_folder(application: str) -> Path:
    """The folder in which an application keeps its cache by default; for a user without a home, one that cannot be made."""
    return _of_user(platformdirs.user_cache_dir, application)


def user_config_folder(application: str) -> Path:
    """The folder in which a user configures an application by default; for a user without a home, one that cannot be made."""
    return _of_user(platformdirs.user_config_dir, application)


def _of_user(folder_of: Callable[[str, str], str], application: str) -> Path:
    try:
        folder = Path(folder_of(application, application))
    except RuntimeError:  # newer versions raise it where the user has no home; older ones return a path with "~"
        folder = Path("~")
    return folder if folder.is_absolute() else Path(os.devnull, application)


def program_key(*parts: str) -> str:
    """A key that differs whenever any part does."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode()
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()


def load_program(key: str) -> bytes | None:
    """The program stored under a key; None where there is none, or it is damaged."""
    return _load(("programs", key[:2]), key, key)


def store_program(key: str, payload: bytes) -> None:
    """Stores a program under its key. A folder that cannot be written to, or is not trusted, is logged, once, and no error."""
    _store(("programs", key[:2]), key, key, payload)


def load_text(name: str, key: str) -> str | None:
    """The text stored under a name, if it was made of what the key stands for; None where there is none, or it is damaged.

    There is one text of a name: the next one that is stored takes its place.
    """
    payload = _load((), name, key, replaced=True)
    return None if payload is None else payload.decode()


def store_text(name: str, key: str, text: str) -> None:
    """Stores a text under a name; what cannot be written is skipped, as with programs."""
    _store((), name, key, text.encode())


def _load(folders: Sequence[str], name: str, key: str, *, replaced: bool = False) -> bytes | None:
    """The payload of a file; None where it is absent or damaged, or `replaced` may be: where it has another key.

    Args:
        folders: in which it is, below that of the cache.
    """
    path = cache_folder().joinpath(*folders, name)
    try:
        data = trust.read_file(trust.check_folder(cache_folder(), *folders) / name, _MOST_BYTES)
    except FileNotFoundError:
        return None
    except OSError as error:
        warn_once("cannot read the program cache %s: %s", path, error)
        return None
    head = _MAGIC + key.encode()
    if replaced and data.startswith(_MAGIC) and not data.startswith(head):
        return None
    payload = data[len(head) + 32 :]
    # A runtime may crash on what it does not know (rusticl-unknown-binary).
    if data.startswith(head) and hashlib.sha256(payload).digest() == data[len(head) : len(head) + 32]:
        return payload
    log.warning("the cached program %s is damaged: compiling again", path)
    return None


def _store(folders: Sequence[str], name: str, key: str, payload: bytes) -> None:
    try:
        data = _MAGIC + key.encode() + hashlib.sha256(payload).digest() + payload
        trust.write_file(trust.make_folder(cache_folder(), *folders) / name, data)
    except OSError as error:
        warn_once("cannot write the program cache %s: %s", cache_folder().joinpath(*folders, name), error)


def cache_use() -> CacheUse:
    """What the compiled programs in the cache take.

    Raises:
        UntrustedError: somebody else may change what stands in the folder.
        OSError: it cannot be read.
    """
    sizes = [size for path in _programs() if (size := _size(path)) is not None]
    return CacheUse(len(sizes), sum(sizes))


def clear_cache() -> tuple[CacheUse, int]:
    """Removes all compiled programs, and what writers that were killed left behind; safe while other processes use them.

    Nothing else in the folder is touched, so that a GEMMPORT_CACHE_DIR that names the wrong folder does no harm.

    Returns:
        What was removed, and how many programs could not be; each of those is logged.

    Raises:
        UntrustedError: somebody else may change what stands in the folder.
        OSError: it cannot be read.
    """
    freed: list[int] = []
    refused = 0
    for path in _programs():
        size = _size(path)
        try:
            path.unlink()
        except FileNotFoundError:  # another process was faster
            continue
        except OSError as error:
            log.warning("cannot remove %s: %s", path, error)
            refused += 1
        else:
            freed.append(size or 0)
    for path in _files(r"tmp\w+\.tmp"):  # a younger one has a writer, who is about to rename it
        with suppress(OSError):
            if time.time() - path.lstat().st_mtime > _ABANDONED_SECONDS:
                path.unlink()
    return CacheUse(len(freed), sum(freed)), refused


def check_writable() -> None:
    """Makes the cache folder where it is missing, and writes to it.

    Raises:
        UntrustedError: somebody else may change what stands in it.
        OSError: that is not possible.
    """
    trust.writable_folder(cache_folder())


def _programs() -> Iterator[Path]:
    return (path for path in _files(r"[0-9a-f]{64}") if path.name.startswith(path.parent.name))


def _files(name: str) -> Iterator[Path]:
    """Files of a name (a regular expression) where programs are put. Links are passed over."""
    try:
        root = trust.check_folder(cache_folder(), "programs")
    except FileNotFoundError:
        return
    for folder in os.scandir(root):
        if re.fullmatch(r"[0-9a-f]{2}", folder.name) and folder.is_dir(follow_symlinks=False):
            files = (file for file in os.scandir(folder) if re.fullmatch(name, file.name))
            yield from (Path(file) for file in files if file.is_file(follow_symlinks=False))


def _size(path: Path) -> int | None:
    """Bytes of a file; None where another process removed it meanwhile."""
    try:
        return path.lstat().st_size
    except FileNotFoundError:
        return None


_warned: set[Path] = set()
_warned_lock = threading.RLock()


def warn_once(message: str, path: Path, error: OSError) -> None:
    """Warns of an unusable cache at its first fault; those that follow, one for each program, are for debugging.

    Args:
        message: has places for the path and the error.
    """
    folder = cache_folder()
    with _warned_lock:
        first = folder not in _warned
        _warned.add(folder)
    if first:
        log.warning(message + "; without it each process compiles anew: set GEMMPORT_CACHE_DIR", path, error)
    else:
        log.debug(message, path, error)
