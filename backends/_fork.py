"""Processes that are forked off one that uses a runtime.

A fork copies memory, but of the threads only the one that forks. What waits for a runtime's thread in the child then waits for
ever: so do PoCL's products once its devices were listed before the fork (seen on 3.0 and 3.1). CUDA refuses every call with
CUDA_ERROR_NOT_INITIALIZED once the parent has called cuInit (seen on an H200). Neither OpenCL nor any runtime promises more.
Intel's runtime for CPUs was seen to go on where it was at rest (2026.2: of 100 children none hung), and not where work was
enqueued and not awaited (5 of 6 hung), or another thread computed (12 of 20).

So a child may use what ran in its parent where the runtime is known to go on and was at rest, for which the parent waits before
it forks; else the use is an error. What the child inherits and cannot use is never released: that, too, may wait for a thread.
"""

from __future__ import annotations

import os
import sys
import threading
import weakref
from contextlib import suppress
from dataclasses import dataclass, field
from types import FrameType
from typing import Protocol

from gemmport.core.errors import ForkError, GemmportError
from gemmport.runtime.kept import keep_for_good


class Opened(Protocol):
    """A device that a process may inherit."""

    closed: bool

    @property
    def survives_forks(self) -> bool:
        """Whether its runtime goes on in a child of a process in which it was at rest."""

    def synchronize(self) -> None:
        """Waits for what was enqueued."""

    def leave(self) -> object:
        """Closes it without a word to its runtime; what is given must never be released."""


@dataclass
class _Process:
    """What is known of this process.

    Attributes:
        started: backends whose runtimes run in it. inherited: those whose runtimes ran in one that it was forked off.
        opened: devices, those that it inherited included.
        at_rest: whether no other thread was in a runtime at the last fork. always_at_rest: at every one that led to it.
    """

    started: set[str] = field(default_factory=set)
    inherited: set[str] = field(default_factory=set)
    opened: weakref.WeakSet[Opened] = field(default_factory=weakref.WeakSet)
    at_rest: bool = True
    always_at_rest: bool = True


_process = _Process()


def started(name: str) -> None:
    """Tells that a backend's runtimes run in this process from now on.

    Raises:
        ForkError: they did in the one that this was forked off, and were not at rest.
    """
    check(name, f"backend {name}", survives=True)
    _process.started.add(name)


def opened(device: Opened) -> None:
    """Tells that a device is open."""
    _process.opened.add(device)


def known() -> list[Opened]:
    """Every device that was opened, and is not forgotten."""
    return list(_process.opened)


def check(name: str, what: str, *, survives: bool) -> None:
    """Raises ForkError where a backend's runtimes ran in the process that this was forked off, and do not go on here.

    Args:
        what: cannot be used then, for the message.
        survives: see `Opened.survives_forks`.
    """
    if name not in _process.inherited or (survives and _process.always_at_rest):
        return
    why = "while another thread was at work there" if survives else "and it does not survive a fork"
    raise ForkError(
        f"{what} must not be used in this process; it was forked off one in which the runtime ran, {why}: start processes with "
        "multiprocessing.get_context('spawn') or 'forkserver', or fork before gemmport is used"
    )


def is_inherited(name: str) -> bool:
    """Whether a backend's runtimes ran in a process that this one was forked off."""
    return name in _process.inherited


def _before() -> None:
    if not _process.started:
        return
    for device in list(_process.opened):
        if device.survives_forks and not device.closed:
            with suppress(GemmportError):
                device.synchronize()
    own = threading.get_ident()
    _process.at_rest = not any(_is_at_work(at) for thread, at in sys._current_frames().items() if thread != own)


_WAITING = ("gemmport.backends._improvement", "gemmport.runtime.child_processes")
"""Modules in which threads wait for other threads and processes, in no runtime and with no lock of a device."""


def _is_at_work(frame: FrameType | None) -> bool:
    """Whether a thread is in gemmport or a binding of a runtime. A thread that holds a lock of ours is in gemmport."""
    while frame is not None:
        name = str(frame.f_globals.get("__name__", ""))
        if name.partition(".")[0] in ("gemmport", "pyopencl", "pycuda"):
            return name not in _WAITING
        frame = frame.f_back
    return False


def _after_in_child() -> None:
    if not _process.started:
        return
    _process.inherited.update(_process.started)
    _process.started.clear()
    _process.always_at_rest = _process.always_at_rest and _process.at_rest
    goes_on = _process.always_at_rest
    kept = [device.leave() for device in list(_process.opened) if not (device.survives_forks and goes_on)]
    keep_for_good(kept)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_child=_after_in_child)
