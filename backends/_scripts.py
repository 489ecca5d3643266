"""Scripts, by which launches are made in C (`_launching.c`): written here, and read there."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np

launching: ModuleType | None
try:
    from gemmport.backends import _launching as launching
except ImportError:  # where gemmport was installed there was no compiler, or GEMMPORT_PURE was set
    launching = None

ELSEWHERE = -1
"""What `_launching.cuda` returns where another context is current."""


def address_of(function: Any) -> int:
    """Where a C function of ctypes is."""
    return ctypes.cast(function, ctypes.c_void_p).value or 0


def written(words: Sequence[int]) -> bytes:
    """A script of 64-bit words."""
    return np.array(words, np.uint64).tobytes()
