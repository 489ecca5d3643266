"""What is kept: for the next time, in dictionaries that hold so much at most, and in lists of what nobody is using; and what is
kept for good.
"""

from __future__ import annotations

import ctypes
from collections.abc import Hashable
from typing import Any, TypeVar

T = TypeVar("T")

MOST = 1024
"""Values of one dictionary, where whoever keeps them does not say."""


def keep(known: dict[Any, Any], key: Hashable, value: Any, most: int | None = None) -> None:
    """Remembers a value under a key, in the place of the oldest where there are so many; None: `MOST`."""
    while len(known) >= (most or MOST):
        known.pop(next(iter(tuple(known)), None), None)  # a copy: other threads keep and forget meanwhile
    known[key] = value


def last(idle: list[T]) -> T | None:
    """One that nobody is using, which is the caller's from now on; None where there is none."""
    try:
        return idle.pop()
    except IndexError:  # also where another thread was faster
        return None


def keep_for_good(kept: object) -> None:
    """Keeps something as long as the process is there. Nothing releases it, not even the end of the process."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(kept))
