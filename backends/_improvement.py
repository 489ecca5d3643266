"""Better machine code for programs that are in use already: made one after another, by one thread that waits for others.

The thread is there while there is something to do, and a while longer. What it does in a runtime, the runtime does without
Python's lock; what takes Python long is done by another process (`_rescheduler`). Python's `threading` alone would hold up the
program's own threads, and `multiprocessing` run its main module once more.
"""

from __future__ import annotations

import atexit
import logging
import os
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from gemmport.core.errors import GemmportError, LaunchError
from gemmport.runtime.kept import keep_for_good

if TYPE_CHECKING:
    from gemmport.backends._rescheduler import Rescheduler

log = logging.getLogger(__name__)

_IDLE_SECONDS = 20.0
"""After which the thread ends, and the process with it."""

_MOST_SECONDS = 10.0
"""That the end of this process waits for what the thread does in a runtime."""


class Left(NamedTuple):
    """What another process needs to make a better program, when this one has ended.

    Attributes:
        compiled, better: keys of what the compiler made, and of what is missing, in the cache of programs.
        groups: as of `gemmport.backends._sass.rescheduled`; 0: nothing is rescheduled.
        source, architecture: what is to be compiled first; empty where that has been done.
    """

    compiled: str
    better: str
    groups: int
    source: str = ""
    architecture: str = ""


@dataclass(eq=False)
class Improvement:
    """A program that is in use, and what puts a better one in its place.

    Attributes:
        carry_out: does it; raises whatever it likes.
        left: what another process would need to do it. None where it takes a device.
        done: when it is done, or will not be.
    """

    carry_out: Callable[[], None]
    left: Left | None = None
    done: threading.Event = field(default_factory=threading.Event)


class _Improver:
    """The thread, the process, and what waits for them."""

    def __init__(self) -> None:
        self.rescheduler: Rescheduler | None = None
        self._lock = threading.RLock()
        self._waiting: queue.SimpleQueue[Improvement | None] = queue.SimpleQueue()
        self.unfinished: dict[Improvement, None] = {}
        self._thread: threading.Thread | None = None
        self._ended = False
        self._has_failed = False

    def submit(self, improvement: Improvement) -> bool:
        """Has it carried out, some time; never, which is told, where this process is at its end."""
        with self._lock:
            if not self._ended and self._is_running():
                self.unfinished[improvement] = None
                self._waiting.put(improvement)
                return True
        improvement.done.set()
        return False

    def _is_running(self) -> bool:
        """Starts the thread, unless it is there."""
        if self._thread is None:
            self.rescheduler = self.rescheduler or _new_rescheduler()
            thread = threading.Thread(target=self._work, name="gemmport improves programs", daemon=True)
            self._thread = thread  # first: a handler of signals may submit another while it starts
            try:
                thread.start()
            except RuntimeError:  # Python is at its end, or there are no more threads
                self._thread = None
                return False
        return True

    def end(self) -> None:
        """Stops, for good, and leaves to another process what that can do."""
        with self._lock:
            self._ended = True
            self._waiting.put(None)
            thread = self._thread
        if self.rescheduler is not None:
            self.rescheduler.end(for_good=True)
        if thread is not None:
            thread.join(_MOST_SECONDS)
        unfinished = list(self.unfinished)
        for improvement in unfinished:  # nobody is to wait any more
            improvement.done.set()
        if left := [one.left for one in unfinished if one.left is not None]:
            from gemmport.backends import _rescheduler  # noqa: PLC0415 - as below

            try:
                _rescheduler.leave(left)
            except (LaunchError, OSError, RuntimeError) as error:  # the last from Python at its end
                log.debug("programs stay as they were compiled: %s", error)

    @property
    def has_ended(self) -> bool:
        """Whether it carries out nothing more."""
        return self._ended

    def _work(self) -> None:
        while True:
            try:
                improvement = self._waiting.get(timeout=_IDLE_SECONDS)
            except queue.Empty:
                with self._lock:
                    if self._waiting.empty():
                        self._thread = None
                        if self.rescheduler is not None:
                            self.rescheduler.end()
                        return
                continue
            if improvement is None or self._ended:
                return
            self._carry_out(improvement)

    def _carry_out(self, improvement: Improvement) -> None:
        try:
            improvement.carry_out()
        except (GemmportError, OSError) as error:
            if self._ended:  # by which it was stopped: another process may do it
                return
            level = logging.DEBUG if self._has_failed else logging.WARNING
            log.log(level, "a program stays as it was compiled, and so may others: %s", error)
            self._has_failed = True
        except Exception:  # whatever it is, the next can still be improved
            log.exception("a program stays as it was compiled")
        with self._lock:
            self.unfinished.pop(improvement, None)
        improvement.done.set()


def _new_rescheduler() -> Rescheduler:
    from gemmport.backends._rescheduler import Rescheduler  # noqa: PLC0415 - most processes have no use for it

    return Rescheduler()


_improver = _Improver()


def submit(improvement: Improvement) -> bool:
    """Has a program improved, some time; never, which is told, where this process is at its end."""
    return _improver.submit(improvement)


def has_ended() -> bool:
    """Whether no program is improved any more: this process is at its end."""
    return _improver.has_ended


def rescheduled(cubin: bytes, groups: int) -> bytes:
    """As `gemmport.backends._sass.rescheduled`, by the other process; for `Improvement.carry_out` alone.

    Raises:
        LaunchError: that failed.
    """
    return _other_process().rescheduled(cubin, groups)


def compiled(source: str, architecture: str) -> bytes:
    """As `gemmport.backends._nvrtc.compile_cuda`, likewise."""
    return _other_process().compiled(source, architecture)


def _other_process() -> Rescheduler:
    if _improver.rescheduler is None:
        raise LaunchError("the thread that improves programs alone speaks with the other process")
    return _improver.rescheduler


def _after_in_child() -> None:
    """The thread did not come along; the process is the parent's, and so are the pipes, which must not even be flushed."""
    global _improver
    inherited, _improver = _improver, _Improver()
    for improvement in list(inherited.unfinished):
        improvement.done = threading.Event()  # the lock of the other, too, a thread may hold that is not here
        improvement.done.set()
    keep_for_good(inherited)


def _end() -> None:
    _improver.end()


# Before devices are closed, and behind what a program registered after it imported gemmport: see `_ending`.
atexit.register(_end)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_in_child)
