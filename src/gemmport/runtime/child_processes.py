"""Processes that gemmport starts, and ends with all that they started; how it speaks with those that run modules of its own."""

from __future__ import annotations

import ctypes
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import IO, Any

from gemmport.core.errors import LaunchError

LAST_WORDS = 2000
"""Characters of a process's standard error that are told after its end."""


def end_with_parent() -> None:
    """Has this process end when the thread that started it does, however that ends; on Linux only."""
    if sys.platform == "linux":
        set_signal = 1  # PR_SET_PDEATHSIG of prctl(2)
        ctypes.CDLL(None).prctl(set_signal, signal.SIGKILL)


def kill_session(process: subprocess.Popen[Any]) -> None:
    """Has a process that leads a session end, with what it started. Nobody waits for that."""
    if process.poll() is None:
        if hasattr(os, "killpg"):
            # Another thread may have ended it and be waiting for it: then it is gone, and `poll` cannot tell yet.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()


def end_session(process: subprocess.Popen[Any]) -> None:
    """Ends a process that leads a session, with what it started; one that hangs in its driver is left behind."""
    kill_session(process)
    with suppress(subprocess.TimeoutExpired):
        process.wait(5)


@contextmanager
def session(command: Sequence[str], **how: Any) -> Iterator[subprocess.Popen[Any]]:
    """A process that leads a session, ended after the block with all that it started.

    Args:
        how: of `subprocess.Popen`.

    Raises:
        OSError: the program does not exist, or the user may not run it.
    """
    with signals_held() as release:
        process = subprocess.Popen(command, start_new_session=True, **how)
        try:
            release()
            yield process
        finally:
            end_session(process)


@contextmanager
def signals_held() -> Iterator[Callable[[], None]]:
    """SIGINT and SIGTERM wait until the function that is given is called, or for the end of the block.

    What Python's handlers raise while a process or a thread starts would leave nobody who knows that it is there.
    """
    handlers: dict[int, Callable[[int, FrameType | None], Any]] = {}
    waiting: list[tuple[int, FrameType | None]] = []

    def release() -> None:
        held = dict(handlers)
        handlers.clear()
        for each, handler in held.items():
            signal.signal(each, handler)
        while waiting:
            number, frame = waiting.pop(0)
            held[number](number, frame)

    if threading.current_thread() is threading.main_thread():  # which alone handles them
        for number in (signal.SIGINT, signal.SIGTERM):
            handler = signal.getsignal(number)
            if callable(handler):
                handlers[number] = handler
    try:
        for each in list(handlers):
            signal.signal(each, lambda *given: waiting.append(given))
        yield release
    finally:
        release()


def scratch_file() -> IO[bytes]:
    """A file without a name, for reading and writing. On Linux it is in memory, and needs no folder that can be written to.

    Raises:
        OSError: elsewhere, there is no such folder.
    """
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("gemmport"), "w+b")
    return tempfile.TemporaryFile()


_scratch_folders: set[str] = set()


def remove_scratch_folders() -> None:
    """Removes those that there are, for a process that ends without leaving its blocks."""
    for name in tuple(_scratch_folders):
        shutil.rmtree(name, ignore_errors=True)


@contextmanager
def scratch_folder(prefix: str) -> Iterator[str]:
    """A folder that is gone after the block, with all in it.

    Raises:
        OSError: the system has no folder for temporary files that the user may write to.
    """
    folder = tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True)
    _scratch_folders.add(folder.name)
    try:
        with folder as name:
            yield name
    finally:
        # Processes that were ended write for a moment longer.
        end = time.monotonic() + 2
        while os.path.exists(folder.name) and time.monotonic() < end:
            time.sleep(0.02)
            shutil.rmtree(folder.name, ignore_errors=True)
        _scratch_folders.discard(folder.name)


class Conversation:
    """A process that may crash or hang, spoken with in lines of JSON; it speaks through a `Channel`. Leaving the block ends it.

    One thread may speak with it; any may end it, after which it has nothing more to say.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        """Starts the process.

        Args:
            environment: variables; those of this process where none are given.

        Raises:
            LaunchError: there is no such program, or it may not be run.
        """
        self._errors = scratch_file()
        with signals_held() as release:
            try:
                self._process = subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, env=environment,
                    text=True, encoding="utf-8", errors="replace", start_new_session=True,
                )  # fmt: skip
            except OSError as error:
                self._errors.close()
                raise LaunchError(f"{command[0]} does not start: {error}") from error
            self._said: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
            self._reader = threading.Thread(target=self._read, daemon=True)
            self._reader.start()
            try:
                release()
            except BaseException:
                self.close()
                raise

    def tell(self, message: Mapping[str, Any]) -> None:
        """Says something. That the process has ended is not noticed here, but by `hear`."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError, ValueError):  # ended, or closed by `end` in another thread
            self._process.stdin.write(json.dumps(message) + "\n")
            self._process.stdin.flush()

    def hear(self, timeout: float) -> dict[str, Any] | None:
        """The next message; None where the process has ended and has said no more.

        Raises:
            TimeoutError: there was none for so many seconds.
        """
        try:
            message = self._said.get(timeout=timeout)
        except queue.Empty:
            raise TimeoutError(f"no message for {timeout:g} s") from None
        if message is None:
            self._said.put(None)
        return message

    def last_words(self) -> str:
        """How the process ended, with the end of what it wrote to standard error. To be asked once `hear` says that it has."""
        status = self._process.wait()
        name = f" ({signal.Signals(-status).name})" if -status in set(signal.Signals) else ""
        self._errors.seek(0)
        told = self._errors.read().decode("utf-8", errors="replace").strip()[-LAST_WORDS:]
        return f"the process ended with status {status}{name}" + (f": {told}" if told else "")

    def kill(self) -> None:
        """Has the process end, with all that it started, and does not wait for that."""
        kill_session(self._process)

    def end(self) -> None:
        """Ends the process, with all that it started."""
        end_session(self._process)

    def __enter__(self) -> Conversation:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the process, and lets go of what belongs to it."""
        self.end()
        self._reader.join(5)  # what hangs in its driver holds its end of the pipe
        for stream in (
            self._process.stdin,
            self._process.stdout if not self._reader.is_alive() else None,
            self._errors,
        ):
            if stream is not None:
                with suppress(BrokenPipeError):
                    stream.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with suppress(ValueError):  # a line that its end cut short
                self._said.put(json.loads(line))
        self._said.put(None)


class Channel:
    """The other end of a `Conversation`: what the process that was started says and is told. The process ends with its parent.

    Runtimes print what they like on standard output: messages go where it went, and it goes to standard error from now on.
    """

    def __init__(self) -> None:
        end_with_parent()
        self._out = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)

    def tell(self, message: Mapping[str, Any]) -> None:
        """Says something."""
        self._out.write(json.dumps(message) + "\n")
        self._out.flush()

    def hear(self) -> dict[str, Any] | None:
        """What is said next; None where nothing ever will be, since the other process has ended."""
        line = sys.stdin.readline()
        return json.loads(line) if line else None
