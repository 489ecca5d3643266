"""Processes that gemmport starts: how they are spoken with, and that nothing of them is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

import gemmport as gp
from gemmport.runtime.child_processes import Conversation, remove_scratch_folders, scratch_folder, session


class TestConversations:
    ECHO = (
        "from gemmport.runtime.child_processes import Channel\n"
        "channel = Channel()\nprint('noise', end='', flush=True)\n"
        "while (told := channel.hear()) is not None:\n    channel.tell({'heard': told})\n"
    )

    def started(self, program: str) -> Conversation:
        return Conversation([sys.executable, "-c", program])

    def test_go_back_and_forth_past_what_is_printed(self) -> None:
        with self.started(self.ECHO) as other:
            for message in ({"a": 1}, {"b": "ü\n" * 50_000}):
                other.tell(message)
                assert other.hear(60) == {"heard": message}
            with pytest.raises(TimeoutError):
                other.hear(0.1)

    def test_tell_how_the_other_ended(self) -> None:
        with self.started("import os, sys; print('last', file=sys.stderr, flush=True); os.abort()") as other:
            assert other.hear(60) is None
            assert other.hear(60) is None
            other.tell({"are you": "there"})
            assert other.last_words() == "the process ended with status -6 (SIGABRT): last"

    def test_are_over_when_another_thread_ends_them(self) -> None:
        with self.started("import time; time.sleep(1000)") as other:
            threading.Timer(0.3, other.end).start()
            assert other.hear(60) is None

    def test_may_be_over_before_they_are_ended_again(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with self.started("pass") as other:
            other._process.wait(60)
            monkeypatch.setattr(other._process, "poll", lambda: None)  # as while another thread waits for it
            other.end()

    def test_do_not_begin_without_a_program(self) -> None:
        with pytest.raises(gp.LaunchError, match="no/such/program"):
            Conversation(["no/such/program"])


class TestScratchFolders:
    def test_are_gone_with_what_is_in_them(self) -> None:
        with scratch_folder("gemmport-test-") as name:
            Path(name, "inside").mkdir()
            Path(name, "inside", "file").touch()
        assert not Path(name).exists()

    def test_are_gone_after_an_error(self) -> None:
        with pytest.raises(KeyboardInterrupt), scratch_folder("gemmport-test-") as name:
            raise KeyboardInterrupt
        assert not Path(name).exists()

    def test_are_gone_also_where_something_was_written_once_more(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """As by a process that was killed and has not ended yet."""
        monkeypatch.setattr(tempfile.TemporaryDirectory, "cleanup", lambda self: Path(self.name, "late").touch())
        with scratch_folder("gemmport-test-") as name:
            pass
        assert not Path(name).exists()

    def test_are_removed_by_who_ends_at_once(self) -> None:
        with scratch_folder("gemmport-test-") as name:
            remove_scratch_folders()
            assert not Path(name).exists()


class TestSessions:
    def test_are_ended_after_the_block(self) -> None:
        with session([sys.executable, "-c", "import time; time.sleep(1000)"]) as process:
            assert process.poll() is None
        assert process.returncode == -signal.SIGKILL

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=str)
    def test_are_ended_where_a_signal_came_while_they_were_started(
        self, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
    ) -> None:
        started: list[subprocess.Popen[bytes]] = []

        class Slow(subprocess.Popen):  # type: ignore[type-arg]
            """The signal comes when the process is there, and nobody knows it yet."""

            def __init__(self, *given: object, **how: object) -> None:
                super().__init__(*given, **how)  # type: ignore[call-overload]
                started.append(self)
                os.kill(os.getpid(), number)
                time.sleep(0.01)

        monkeypatch.setattr(subprocess, "Popen", Slow)
        before = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
        command = [sys.executable, "-c", "import time; time.sleep(1000)"]
        try:
            signal.signal(signal.SIGTERM, signal.default_int_handler)
            with pytest.raises(KeyboardInterrupt), session(command):
                pytest.fail("the block must not begin")
            with pytest.raises(KeyboardInterrupt), Conversation(command):
                pytest.fail("the block must not begin")
            assert signal.getsignal(signal.SIGINT) is before[signal.SIGINT]
            assert signal.getsignal(signal.SIGTERM) is signal.default_int_handler
        finally:
            signal.signal(signal.SIGTERM, before[signal.SIGTERM])
        assert [process.wait(10) for process in started] == [-signal.SIGKILL] * 2
