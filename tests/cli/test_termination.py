"""SIGTERM ends a command with status 143, and nothing that it made or started is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import gemmport as gp
from terminals import in_terminal

pytestmark = pytest.mark.skipif(
    not Path("/proc").exists(), reason="this system has no /proc, in which processes are seen"
)

HIDES_CURSOR, SHOWS_CURSOR = "\x1b[?25l", "\x1b[?25h"
COMMAND = [sys.executable, "-c", "from gemmport.cli import main; main()"]


def descendants(pid: int) -> set[int]:
    """Processes that a process started, and those that they did, as long as it is there."""
    found: set[int] = set()
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, task.read_text().split()):
            found |= {child, *descendants(child)}
    return found


def is_running(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"


def wait_until(is_so: Callable[[], object]) -> None:
    for _ in range(600):
        if is_so():
            return
        time.sleep(0.05)
    pytest.fail("it was never so")


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts a command whose temporary folders are in tmp_path."""
    processes: list[subprocess.Popen[str]] = []

    def start(*arguments: str, command: list[str] = COMMAND) -> subprocess.Popen[str]:
        settings = {**os.environ, "TMPDIR": str(tmp_path)}
        process = subprocess.Popen(
            [*command, *arguments], env=settings, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )  # fmt: skip
        processes.append(process)
        return process

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def check_end(process: subprocess.Popen[str], folder: Path, end: signal.Signals = signal.SIGTERM) -> None:
    """Ends a command that has started processes and made folders."""
    wait_until(lambda: list(folder.iterdir()) and descendants(process.pid))
    begun = descendants(process.pid)
    process.send_signal(end)
    _, errors = process.communicate(timeout=60)
    assert "Traceback" not in errors
    wait_until(lambda: not any(map(is_running, begun)))
    if end != signal.SIGKILL:
        assert process.returncode == (143 if end == signal.SIGTERM else 130)
        assert list(folder.iterdir()) == []


def test_ends_the_probes_of_doctor(started: Callable[..., subprocess.Popen[str]], tmp_path: Path) -> None:
    check_end(started("doctor"), tmp_path)


@pytest.mark.processes
@pytest.mark.parametrize(
    ("command", "end"),
    [
        *((command, signal.SIGTERM) for command in ("doctor", "fuzz", "matrix")),
        ("fuzz", signal.SIGINT),
        ("matrix", signal.SIGKILL),
    ],
)
def test_ends_all_that_a_command_started(
    started: Callable[..., subprocess.Popen[str]],
    tmp_path: Path,
    best_backend: gp.Backend,
    command: str,
    end: signal.Signals,
) -> None:
    device = [] if command == "doctor" else ["--backend", best_backend.name, "--device", best_backend.device.selector]
    check_end(started(command, *device), tmp_path, end)


@pytest.mark.processes
@pytest.mark.parametrize(("end", "expected"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_what_comes_while_python_ends_changes_no_exit_status(
    started: Callable[..., subprocess.Popen[str]], end: signal.Signals, expected: int
) -> None:
    """As the second signal of `timeout` may, on a busy machine."""
    script = """
import os, sys
from gemmport import cli

class Late:
    kill, own, number = os.kill, os.getpid(), int(sys.argv.pop())

    def __del__(self):  # when modules are taken apart, after handlers
        self.kill(self.own, self.number)

cli.late = Late()

@cli.cli.command("end")
def end():
    os.kill(os.getpid(), Late.number)

cli.main()
"""
    process = started("end", str(int(end)), command=[sys.executable, "-c", script])
    _, errors = process.communicate(timeout=60)
    assert errors.strip() == "gemmport: interrupted"
    assert process.returncode == expected


@pytest.mark.processes
def test_ends_a_command_whose_driver_does_not_come_back(
    started: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    """C code that runs for minutes, and would be waited for."""
    script = """
import hashlib
from gemmport.cli import termination
from gemmport.runtime.child_processes import scratch_folder

def compute():
    hashlib.pbkdf2_hmac("sha256", b"", b"", 2**31 - 1)

termination.GRACE = 0.5
termination.end_on_signals()
with scratch_folder("gemmport-test-"):
    try:
        print("begun", flush=True)
        compute()
    except BaseException:  # the signal came before the computation
        compute()
"""
    process = started(command=[sys.executable, "-c", script])
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 143
    assert list(tmp_path.iterdir()) == []


@pytest.mark.processes
def test_tells_what_there_is_where_the_way_out_takes_too_long(started: Callable[..., subprocess.Popen[str]]) -> None:
    """As where many processes are ended on a busy machine."""
    script = """
import time
from gemmport.cli import termination

termination.GRACE = 0.5
termination.end_on_signals()
with termination.telling(lambda: print("told", flush=True)):
    try:
        print("begun", flush=True)
        time.sleep(60)
    finally:
        time.sleep(60)
"""
    process = started(command=[sys.executable, "-c", script])
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 143
    assert process.stdout.read() == "told\n"


@pytest.mark.processes
def test_shows_the_cursor_again_where_a_driver_does_not_come_back() -> None:
    script = """
import os, signal, time
from rich.console import Console
from gemmport.cli import termination

termination.GRACE = 0.2
termination.end_on_signals()
with Console(force_terminal=True).status("measuring"):
    try:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(60)
    except BaseException:
        time.sleep(60)
"""
    status, said = in_terminal([sys.executable, "-c", script], 80)
    assert status == 143
    assert said.rindex(HIDES_CURSOR) < said.rindex(SHOWS_CURSOR)
