"""Copies within the host's memory, which threads share: one alone moves a part of what the memory does.

The helpers wait in C (`_copying.c`): threads that each take the interpreter's lock for a part of some megabytes wait longer for
it than they copy.
"""

from __future__ import annotations

import logging
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from gemmport.runtime.host_cpu import usable_cores

in_c: ModuleType | None
try:
    from gemmport.runtime import _copying as in_c
except ImportError:  # where gemmport was installed there was no compiler, or no Linux, or GEMMPORT_PURE was set
    in_c = None

log = logging.getLogger(__name__)

MOST_THREADS = 16
"""That share one copy: more of them gain little."""

MOST_HELPERS = 31
"""Of a process, whose callers copy at the same time, as for several devices: more share the host's memory in vain."""

_CORES = 2
"""For each thread: the program has others."""

_LEAST = 2**18
"""Bytes that are shared: of less the helpers come too late."""

_LEAST_CONVERTED = 2**22
"""Likewise of what threads of Python share: what takes one a millisecond or so."""

_CONVERTERS = 4
"""Such threads, where there are four cores for each."""


def copy_shared(source: npt.NDArray[Any], target: npt.NDArray[Any]) -> None:
    """Copies the bytes of a C-contiguous array to another of as many, by as many threads as `threads` says."""
    if in_c is None:
        np.copyto(target.reshape(-1).view(np.uint8), source.reshape(-1).view(np.uint8))
    else:
        in_c.copy(target.ctypes.data, source.ctypes.data, source.nbytes, 1, 0, 0, helpers())


def copy_rows(source: npt.NDArray[Any], target: npt.NDArray[Any]) -> None:
    """Copies the elements of an array to another of its shape, in memory that does not overlap, converted as by `numpy.astype`.

    Threads that wait in C share matrices of one type whose rows, or columns, are dense; threads of Python what else is large.
    """
    if (
        in_c is not None
        and source.dtype == target.dtype
        and target.nbytes >= _LEAST
        and source.ndim == target.ndim == 2
    ):
        for a, b in ((source, target), (source.T, target.T)):
            steps = a.strides[0], b.strides[0]
            if a.strides[1] == b.strides[1] == a.itemsize and min(steps) >= 0:
                rows, columns = a.shape
                in_c.copy(b.ctypes.data, a.ctypes.data, columns * a.itemsize, rows, steps[1], steps[0], helpers())
                return
    converters = _converters() if target.nbytes >= _LEAST_CONVERTED else None
    if converters is None:
        convert(source, target)
        return
    each = -(-len(target) // _CONVERTERS)
    parts = [slice(first, first + each) for first in range(0, len(target), each)]
    list(converters.map(lambda part: convert(source[part], target[part]), parts))


def convert(source: npt.NDArray[Any], target: npt.NDArray[Any]) -> None:
    """Copies the elements of an array to another of its shape, converted as by `numpy.astype`, by the caller's thread."""
    with np.errstate(all="ignore"):
        np.copyto(target, source, casting="unsafe")


def threads() -> int:
    """That copy together, the caller's included: one on hosts with few cores."""
    return 1 if in_c is None else max(min(usable_cores() // _CORES, MOST_THREADS), 1)


def helpers() -> int:
    """Threads that help one caller. Those of this process wait in C, and never leave."""
    with _starting:
        return _started()


_starting = threading.Lock()


@cache
def _started() -> int:
    count = 0
    if in_c is None:
        return count
    try:
        for number in range(max(min(usable_cores() // _CORES - 1, MOST_HELPERS), threads() - 1)):
            threading.Thread(target=in_c.serve, name=f"gemmport-copy-{number}", daemon=True).start()
            count += 1
    except RuntimeError as error:  # Python is at its end, or there are no more threads
        log.info("%d threads help with copies: %s", count, error)
    return min(count, threads() - 1)


def _converters() -> ThreadPoolExecutor | None:
    """None on hosts with few cores."""
    with _starting:
        return _pool() if usable_cores() >= 2 * _CONVERTERS else None


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(min(usable_cores() // _CONVERTERS, _CONVERTERS), "gemmport-convert")


def _after_in_child() -> None:
    """A fork leaves the helpers behind, and a lock that another thread has."""
    global _starting  # noqa: PLW0603 - a child begins anew
    _starting = threading.Lock()
    if in_c is not None:
        in_c.forget()
    _started.cache_clear()
    _pool.cache_clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_in_child)
