"""SIGINT and SIGTERM end a command, with folders removed and processes ended on the way out, and what was measured told."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Generic, TypeVar

from gemmport.runtime.child_processes import remove_scratch_folders

log = logging.getLogger(__name__)

EXIT_INTERRUPTED = 130  # 128 + SIGINT, as of a shell
EXIT_TERMINATED = 143  # 128 + SIGTERM

GRACE = 10.0
"""Seconds until a process ends without cleaning up, where a driver does not come back."""

PATIENCE = 60.0
"""Seconds beyond GRACE for a command that is telling what it measured."""

SHOWN_CURSOR = b"\x1b[?25h\r\n"
"""Shows a terminal's cursor, which rich hides while something is in progress, on a line of its own."""

Found = TypeVar("Found")


class Terminated(KeyboardInterrupt):
    """SIGTERM has come."""


@dataclass
class _State:
    """What signals and the command know of each other.

    Attributes:
        came: of the first signal; None where none has come.
        held: whether a signal is noted alone, for what was measured is being told.
        last_resort: tells what was measured where the main thread does not come back; None where there is nothing to tell.
        telling: held by the thread that tells.
    """

    came: KeyboardInterrupt | None = None
    held: bool = False
    last_resort: Callable[[], object] | None = None
    telling: threading.Lock = field(default_factory=threading.Lock)


_state = _State()


def exit_status(interrupt: BaseException) -> int:
    """Of a command that this ended: KeyboardInterrupt, or what was raised of it."""
    return EXIT_TERMINATED if isinstance(interrupt.__cause__ or interrupt, Terminated) else EXIT_INTERRUPTED


def end_on_signals() -> None:
    """Has SIGINT raise KeyboardInterrupt and SIGTERM Terminated in the main thread, from now on.

    What comes behind the first changes nothing: `timeout` sends its signal to the process and to its group, and the second
    would end what the first left to tell. SIGINT stays ignored where it was, as of a job in the background of a script.
    """
    signal.signal(signal.SIGTERM, _end)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)
    if os.name == "posix":
        # Python's handler waits until the main thread comes back from C. The number of a signal is in this pipe at once.
        told, telling = os.pipe()
        os.set_blocking(telling, False)
        signal.set_wakeup_fd(telling, warn_on_full_buffer=False)
        threading.Thread(target=_end_in_time, args=(told,), daemon=True).start()


def leave() -> None:
    """Has nothing end the process from now on but its own end, where a signal has come: Python gives its handlers back while it
    ends, and the second signal of `timeout` would change the exit status then.
    """
    if _state.came is not None:
        for each in (signal.SIGINT, signal.SIGTERM):
            signal.signal(each, signal.SIG_IGN)


def _end(number: int, _: FrameType | None) -> None:
    if _state.came is not None:
        return
    _state.came = Terminated() if number == signal.SIGTERM else KeyboardInterrupt()
    if not _state.held:
        raise _state.came


def _take_again() -> None:
    """Takes the signals back from a runtime. LLVM, which CPU runtimes of OpenCL have, puts handlers of its own in our place,
    which are gone for a moment as a signal comes (SA_RESETHAND): the second signal of `timeout` would end the process then.
    """
    for each in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(each) is _end:
            signal.signal(each, _end)


@dataclass
class Gathered(Generic[Found]):
    """What came until the end, or until a signal.

    Attributes:
        interrupt: what ended it early; None where it came to its end.
    """

    found: list[Found] = field(default_factory=list)
    interrupt: KeyboardInterrupt | None = None


@contextmanager
def gathered(
    coming: Generator[Found, None, None], last_resort: Callable[[Sequence[Found]], object] | None = None
) -> Iterator[Gathered[Found]]:
    """Takes what comes, until a signal; the block tells it, whatever signals come meanwhile. Then what ended it is raised.

    Args:
        last_resort: tells it from another thread, where the main thread does not come back from a driver in time.

    Raises:
        KeyboardInterrupt: a signal has come, before the block was left.
    """
    result: Gathered[Found] = Gathered()
    if last_resort is not None:
        _state.last_resort = lambda: last_resort(tuple(result.found))
    _take_again()
    try:
        try:
            with closing(coming):
                for one in coming:
                    result.found.append(one)
                    _take_again()
                    if _state.came is not None:  # it was raised where exceptions are lost, such as in a finalizer
                        break
            _state.held = True
        except (KeyboardInterrupt, Exception) as error:
            result.interrupt = _interrupt(error)
            if result.interrupt is None:
                raise
        result.interrupt = result.interrupt or _state.came
        with _state.telling:
            yield result
        if ended := result.interrupt or _state.came:
            raise ended
    finally:
        _state.held, _state.last_resort = False, None


@contextmanager
def telling(tell: Callable[[], object]) -> Iterator[None]:
    """Calls a function where a signal ends the block; from another thread where the main one does not leave it in time.

    Raises:
        KeyboardInterrupt: a signal has come in the block.
    """
    _state.last_resort = tell
    try:
        yield
    except (KeyboardInterrupt, Exception) as error:
        interrupt = _interrupt(error)
        if interrupt is None:
            raise
        with _state.telling:
            tell()
        raise interrupt from None
    finally:
        _state.last_resort = None


def _interrupt(error: BaseException) -> KeyboardInterrupt | None:
    """The signal that ended a block, whatever else was raised on the way out; None where no signal has come."""
    if isinstance(error, KeyboardInterrupt):
        return error
    if _state.came is not None:
        log.debug("on the way out of an interruption", exc_info=error)
    return _state.came


def _end_in_time(told: int) -> None:
    number = 0
    while number not in (signal.SIGINT, signal.SIGTERM):
        number = os.read(told, 1)[0]
    time.sleep(GRACE)
    if _state.telling.acquire(blocking=False):
        if _state.last_resort is not None:
            try:
                _state.last_resort()
            except Exception:
                log.exception("what was measured could not be told")
    else:
        _state.telling.acquire(timeout=PATIENCE)
    remove_scratch_folders()
    for stream in (1, 2):
        if os.isatty(stream):
            os.write(stream, SHOWN_CURSOR)
    os._exit(128 + number)
