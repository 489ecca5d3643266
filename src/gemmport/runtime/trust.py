"""Folders and files that nobody but root and the user may change, and how they are made, read and written.

What stands in a folder may decide what is run: a compiled program, the name of a library. It is judged by the rules of OpenSSH
(safe_path in its misc.c): the folder and every folder above it must be owned by root or by the user of this process, and
writable by nobody else. Two exceptions: folders with the sticky bit, such as /tmp, in which everybody may make files but only
their owners may replace them, so that what stands in them is judged alone; and writing by a group that has no member but the
user, which Debian, Ubuntu and Fedora make for each user. Links on the way must have such owners too. A file is judged after it
was opened, so that it cannot be another one by then.

On Windows, where os.geteuid is missing, owners and permissions are not judged, nor is a link in the place of a file noticed.
The rest holds: files must be regular and of a bounded size, and what is written is complete or not there.
"""

from __future__ import annotations

import atexit
import errno
import os
import shutil
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

from gemmport.core.errors import UntrustedError

_HAS_OWNERS = hasattr(os, "geteuid")

_MOST_LINKS = 40
"""Links on the way to a file, as on Linux (path_resolution(7))."""

# The kind of a file is asked after opening: a FIFO must not wait for its writer, nor a terminal become the process's own.
_READ = os.O_RDONLY
for _name in ("O_NOFOLLOW", "O_NONBLOCK", "O_NOCTTY", "O_CLOEXEC", "O_BINARY"):
    _READ |= getattr(os, _name, 0)

_ACCESS_LIST = "system.posix_acl_access"


def real_path(path: str | Path) -> Path:
    """A path without links. Every folder and every link on the way is trusted; what the path ends in is not judged.

    Raises:
        UntrustedError: a folder or a link on the way is not trusted.
        OSError: there is no such file, or it cannot be reached.
    """
    if not _HAS_OWNERS:
        return Path(path).resolve(strict=True)
    at, links = Path("/"), 0
    waiting = _names(os.path.join("" if os.path.isabs(path) else os.getcwd(), path))
    while waiting:
        _check_folder(at)
        name = waiting.pop()
        if name == "..":
            at = at.parent
            continue
        found = at / name
        status = os.lstat(found)
        if not stat.S_ISLNK(status.st_mode):
            at = found
            continue
        links += 1
        if links > _MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
        if not _is_owner(status):
            raise _untrusted(found, status, "remove it")
        target = os.readlink(found)
        waiting += _names(target)
        if os.path.isabs(target):
            at = Path("/")
    return at


def check_folder(folder: str | Path, *below: str) -> Path:
    """The real path of a trusted folder, or of one below it.

    Args:
        below: names of folders, each in that before it. None of them may be a link.

    Raises:
        UntrustedError: somebody else may change what stands in it, or one of `below` is a link.
        OSError: there is no such folder, or it cannot be reached.
    """
    at = real_path(folder)
    _check_folder(at)
    for name in below:
        at = at / name
        _check_folder(at)
    return at


def make_folder(folder: str | Path, *below: str) -> Path:
    """As `check_folder`. Folders that are missing are made, for the user alone (mode 0700).

    Raises:
        UntrustedError: as `check_folder`.
        OSError: a folder cannot be made or reached.
    """
    at = _made(Path(folder))
    for name in below:
        at = at / name
        with suppress(FileExistsError):
            os.mkdir(at, 0o700)
        _check_folder(at)
    return at


def writable_folder(folder: str | Path, *below: str) -> Path:
    """As `make_folder`; a file can be made in the folder, which was tried.

    Raises:
        UntrustedError: as `check_folder`.
        OSError: a folder cannot be made, reached, or written to.
    """
    at = make_folder(folder, *below)
    with tempfile.TemporaryFile(dir=at):
        pass
    return at


def exclusive_folder(folder: str | Path, *below: str) -> Path:
    """As `writable_folder`; nor may others make files in it, as in one with the sticky bit: for programs that judge nothing.

    Raises:
        UntrustedError: as `check_folder`, and where others may make files in it.
        OSError: as `writable_folder`.
    """
    at = writable_folder(folder, *below)
    status = os.lstat(at)
    if _others_write(status, at):
        raise _untrusted(at, status, "choose a folder of your own")
    return at


def temporary_folder(prefix: str) -> Path:
    """A new folder for the user alone, which is removed when this process ends.

    Raises:
        UntrustedError: somebody else may change the folder of temporary files (TMPDIR).
        OSError: no folder can be written to.
    """
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    atexit.register(_remove, folder, os.getpid())
    return check_folder(folder)


def read_file(path: Path, most: int) -> bytes:
    """What stands in a file. Its folder must have been judged.

    Args:
        path: as `check_folder` or `real_path` gave it; no link.
        most: bytes that the file may have.

    Raises:
        UntrustedError: it is not a regular file, is longer, grows meanwhile, or somebody else may change it.
        OSError: it cannot be read.
    """
    try:
        handle = os.open(path, _READ)
    except OSError as error:
        if error.errno == errno.ELOOP or path.is_symlink():
            raise UntrustedError(f"{path} must be a regular file; got a symbolic link; remove it") from error
        raise
    try:
        size = _checked_size(path, handle, most)
        with os.fdopen(handle, "rb", closefd=False) as file:
            # Python makes room for all that it is asked for: `most` may be more than there is.
            data = file.read(size + 1)
        if len(data) > size:
            raise UntrustedError(f"{path} must not grow while it is read; got more than {size:,} bytes; read it again")
        return data
    finally:
        os.close(handle)


def write_file(path: Path, data: bytes) -> None:
    """Puts a file in the place of what stands there, as a whole or not at all. Its folder must have been judged.

    Raises:
        OSError: it cannot be written.
    """
    handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise


def _names(path: str) -> list[str]:
    """The names that a path consists of, the last one first."""
    return [name for name in reversed(path.split("/")) if name not in ("", ".")]


def _made(folder: Path) -> Path:
    try:
        return check_folder(folder)
    except FileNotFoundError:
        if folder == folder.parent:
            raise
    _made(folder.parent)
    with suppress(FileExistsError):  # another process was faster
        os.mkdir(folder, 0o700)
    return check_folder(folder)


def _remove(folder: Path, maker: int) -> None:
    if os.getpid() == maker:  # a process that was forked off does not take it away from its parent
        shutil.rmtree(folder, ignore_errors=True)


def _check_folder(folder: Path) -> None:
    """Raises an error where a path is a link, no folder, or a folder that somebody else may change."""
    status = os.lstat(folder)
    if stat.S_ISLNK(status.st_mode):
        raise UntrustedError(f"{folder} must be a folder; got a symbolic link; remove it")
    if not stat.S_ISDIR(status.st_mode):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder))
    if not _is_owner(status):
        raise _untrusted(folder, status, "choose a folder of your own")
    if not status.st_mode & stat.S_ISVTX and _others_write(status, folder):
        raise _untrusted(folder, status, f"run chmod go-w {folder}, or choose another folder")


def _checked_size(path: Path, handle: int, most: int) -> int:
    """The bytes of what was opened, which must be a regular file, of `most` bytes at most, that nobody else may change."""
    status = os.fstat(handle)
    if not stat.S_ISREG(status.st_mode):
        raise UntrustedError(f"{path} must be a regular file; got {stat.filemode(status.st_mode)}; remove it")
    if status.st_size > most:
        raise UntrustedError(f"{path} must have {most:,} bytes at most; got {status.st_size:,}; remove it")
    if not _is_owner(status):
        raise _untrusted(path, status, "remove it")
    if _others_write(status, handle):
        raise _untrusted(path, status, f"run chmod go-w {path}")
    return status.st_size


def _is_owner(status: os.stat_result) -> bool:
    return not _HAS_OWNERS or status.st_uid in (0, os.geteuid())


def _others_write(status: os.stat_result, place: Path | int) -> bool:
    """Whether the permissions of a file or folder let somebody write who is neither root nor the user."""
    if not _HAS_OWNERS:
        return False
    if status.st_mode & stat.S_IWGRP and (_has_access_list(place) or not _is_private(status.st_gid)):
        return True
    return bool(status.st_mode & stat.S_IWOTH)


def _has_access_list(place: Path | int) -> bool:
    """Whether others may be named beside owner and group; their permissions then show as the group's (acl(5))."""
    try:
        return _ACCESS_LIST in os.listxattr(place)
    except (AttributeError, OSError):  # this system has none, or this file system
        return False


def _is_private(group: int) -> bool:
    """Whether a group is the user's own: of the same number and name, and without other members. By the same rule pam_umask(8)
    gives users, but not root, a umask of 002.
    """
    import grp  # noqa: PLC0415 - not on Windows
    import pwd  # noqa: PLC0415

    try:
        user, found = pwd.getpwuid(os.geteuid()), grp.getgrgid(group)
    except KeyError:
        return False
    same = user.pw_uid != 0 and (user.pw_uid, user.pw_name) == (found.gr_gid, found.gr_name)
    return same and set(found.gr_mem) <= {user.pw_name}


def _untrusted(path: Path, status: os.stat_result, remedy: str) -> UntrustedError:
    return UntrustedError(
        f"{path} must be owned by root or by you (user {os.geteuid()}), and writable by nobody else; got owner "
        f"{status.st_uid} and mode {stat.S_IMODE(status.st_mode):04o}; {remedy}"
    )
