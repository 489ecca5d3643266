"""Files of results: read within a bound, and written whole or not at all."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

MOST_BYTES = 2**30
"""Of a file that is read. A record of the whole matrix on four devices has 150 MB."""

_NO_ROOM_BESIDE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENAMETOOLONG, errno.EEXIST)
"""Why there may be no new file in the folder of one that may be written."""


def read_bytes(path: Path) -> bytes:
    """What a file holds, which may be a device or a pipe.

    Raises:
        OSError: it cannot be read, or holds more than `MOST_BYTES`.
    """
    with path.open("rb") as file:
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise OSError(errno.EFBIG, f"it must have at most {MOST_BYTES:,} bytes", str(path))
    return content


def write_text(path: Path, text: str) -> None:
    """Writes a file in UTF-8. Whoever reads it, and a process that is ended meanwhile, leaves it as it was or whole.

    A device or a pipe is written as it is, and so is a file in a folder that takes no new ones.

    Raises:
        OSError: it cannot be written.
    """
    target = path.resolve()
    if target.exists() and not target.is_file():
        target.write_text(text, encoding="utf-8")
        return
    beside = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        file = beside.open("x", encoding="utf-8")  # a link that another user put there is not followed
    except OSError as error:
        if error.errno not in _NO_ROOM_BESIDE:
            raise
        target.write_text(text, encoding="utf-8")
        return
    try:
        with file:
            file.write(text)
        if target.exists():
            shutil.copymode(target, beside)
        beside.replace(target)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
