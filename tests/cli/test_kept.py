"""What a command measured before SIGINT or SIGTERM is told: in the form that was asked for, with what is missing."""

from __future__ import annotations

import csv
import ctypes
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import ExitStack
from importlib import import_module
from typing import Any

import pytest

import gemmport as gp
from absences import MATPLOTLIB, skip_without
from gemmport.cli import termination

STOPPED = """
import hashlib, sys, time
from importlib import import_module
from gemmport.cli import main, termination

module, name, wait = import_module(sys.argv.pop(1)), sys.argv.pop(1), sys.argv.pop(1)
measure, begun = getattr(module, name), []

def stopped(work, *given, **how):
    for one in measure(work, *given, **how):
        begun.append(one)
        if len(begun) > 2:
            print("begun", file=sys.stderr, flush=True)
            if wait == "driver":  # C code that runs for minutes
                hashlib.pbkdf2_hmac("sha256", b"", b"", 2**31 - 1)
            time.sleep(60)
        yield one

setattr(module, name, stopped)
termination.GRACE = 0.5 if wait == "driver" else termination.GRACE
main()
"""
"""The command, in a process that says so and waits when it has begun the third product."""

COMMANDS = {
    "run": ("run_benchmark", ["--sizes", "8:32:8", "--repeat", "1", "--baseline", "none"]),
    "calls": ("run_calls", ["--sizes", "8,16,24,32", "--turns", "1", "--arrays", "device"]),
}
STATUS = {signal.SIGINT: 130, signal.SIGTERM: 143}

Stopped = Callable[..., "tuple[int, str, str]"]


@pytest.fixture
def stopped(best_backend: gp.Backend) -> Stopped:
    """Runs a command on the best device, and ends it by signals in its third product; (exit status, output, errors)."""
    device = best_backend.device
    settings = {**os.environ, "GEMMPORT_BACKEND": device.backend, "GEMMPORT_DEVICE": device.selector}

    def end(command: str, wait: str, *signals: signal.Signals) -> tuple[int, str, str]:
        name, words = COMMANDS[command]
        script = [sys.executable, "-c", STOPPED, f"gemmport.cli.{command}", name, wait]
        with subprocess.Popen(
            [*script, command, *words, "--format", "json"], env=settings, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True,
        ) as process:  # fmt: skip
            assert process.stderr is not None
            try:
                assert any(line == "begun\n" for line in process.stderr)
                for each in signals:
                    process.send_signal(each)
                out, err = process.communicate(timeout=60)
            finally:
                process.kill()
        assert "Traceback" not in err
        return process.returncode, out, err

    return end


@pytest.mark.processes
@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("command", COMMANDS)
def test_the_finished_products_are_told(stopped: Stopped, command: str, end: signal.Signals) -> None:
    status, out, err = stopped(command, "sleep", end, end)  # twice, as `timeout` does
    assert status == STATUS[end]
    assert "interrupted: 2 of 4 products are missing" in err
    document = json.loads(out)
    assert [one["m"] for one in document["results"]] == [8, 16]
    assert [(one["name"].split()[-1], one["reason"]) for one in document["left"]] == [
        ("24×24×24", "interrupted"), ("32×32×32", "interrupted"),
    ]  # fmt: skip


@pytest.mark.processes
@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
def test_they_are_told_where_a_driver_does_not_come_back(stopped: Stopped, end: signal.Signals) -> None:
    status, out, err = stopped("run", "driver", end)
    assert status == STATUS[end]
    assert "interrupted: 2 of 4 products are missing" in err
    assert [one["m"] for one in json.loads(out)["results"]] == [8, 16]


# In this process: forms and options


@pytest.fixture
def after(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Has a function of a module raise KeyboardInterrupt after so many calls."""

    def prepare(module: str, name: str, count: int) -> None:
        where = import_module(module)
        measure, begun = getattr(where, name), []

        def interrupted(*given: Any, **how: Any) -> Any:
            begun.append(1)
            if len(begun) > count:
                raise KeyboardInterrupt
            return measure(*given, **how)

        monkeypatch.setattr(where, name, interrupted)

    return prepare


RUN = ("run", "--sizes", "8:24:8", "--repeat", 1, "--baseline", "none")


@pytest.mark.parametrize("form", ["csv", "table"])
def test_csv_and_the_table_have_what_was_measured(gemmport_command, after, tmp_path, form) -> None:
    after("gemmport.cli.run", "run_benchmark", 1)
    file = tmp_path / form
    status, out, err = gemmport_command(*RUN, "--format", form, "--output", file)
    assert (status, out) == (130, "")
    assert "2 of 3 products are missing" in err
    if form == "csv":
        assert [row["m"] for row in csv.DictReader(io.StringIO(file.read_text()))] == ["8"]
    else:
        assert file.read_text().count("PASS") == 1


def test_nothing_is_written_before_a_product_was_measured(gemmport_command, after, tmp_path) -> None:
    after("gemmport.cli.run", "run_benchmark", 0)
    file = tmp_path / "now.json"
    status, _, err = gemmport_command(*RUN, "--format", "json", "--output", file)
    assert (status, file.exists()) == (130, False)
    assert "before a product was measured" in err


def test_what_was_measured_is_compared_and_drawn(gemmport_command, after, tmp_path) -> None:
    skip_without(MATPLOTLIB)
    then, plot = tmp_path / "then.json", tmp_path / "plot.svg"
    words = (*RUN[:-1], "numpy", "--format", "json")
    assert gemmport_command(*words, "--output", then)[0] == 0
    after("gemmport.cli.run", "run_benchmark", 1)
    status, out, _ = gemmport_command(*words, "--compare", then, "--plot", plot)
    assert status == 130
    verdicts = [row["verdict"] for row in json.loads(out)["comparison"]["rows"]]
    assert (len(verdicts), verdicts.count("missing")) == (3, 2)
    assert "<svg" in plot.read_text()


def test_products_of_several_devices_and_in_tiles_are_kept(gemmport_command, after, best_backend) -> None:
    for module, name, key, words in (
        ("gemmport.cli.dealt", "run_dealt", "dealt", ("--devices", best_backend.device.selector)),
        ("gemmport.cli.run", "run_streamed", "results", ("--device-memory", "1MiB")),
    ):
        after(module, name, 1)
        status, out, _ = gemmport_command("run", "--sizes", "8:16:8", "--repeat", 1, *words, "--format", "json")
        assert status == 130
        document = json.loads(out)
        assert (len(document[key]), len(document["left"])) == (1, 1)


# The mechanism


@pytest.fixture
def handled(monkeypatch: pytest.MonkeyPatch) -> Generator[None, None, None]:
    """The command's handlers of signals, until the end of a test."""
    monkeypatch.setattr(termination, "_state", termination._State())
    before = {each: signal.getsignal(each) for each in STATUS}
    for each in STATUS:
        signal.signal(each, termination._end)
    yield
    for each, handler in before.items():
        signal.signal(each, handler)


def interrupted_in_a_finalizer() -> Generator[int, None, None]:
    class Dying:
        def __del__(self) -> None:
            signal.raise_signal(signal.SIGINT)

    yield 1
    Dying()  # Python prints what is raised there, and goes on
    yield 2
    yield 3


def interrupted_on_the_way_out() -> Generator[int, None, None]:
    yield 1
    try:
        signal.raise_signal(signal.SIGINT)
    finally:
        raise RuntimeError("the device does not answer any more")


def interrupted_again() -> Generator[int, None, None]:
    yield 1
    try:
        signal.raise_signal(signal.SIGINT)
    finally:
        signal.raise_signal(signal.SIGTERM)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    ("coming", "kept"),
    [(interrupted_in_a_finalizer, [1, 2]), (interrupted_on_the_way_out, [1]), (interrupted_again, [1])],
)
def test_wherever_a_signal_is_raised_what_came_is_told(handled: None, coming: Any, kept: list[int]) -> None:
    told: list[int] = []
    with pytest.raises(KeyboardInterrupt) as raised, termination.gathered(coming()) as came:
        told += came.found
    assert told == kept
    assert termination.exit_status(raised.value) == 130


class Action(ctypes.Structure):
    """`struct sigaction` of Linux."""

    _fields_ = (
        ("handler", ctypes.c_void_p), ("mask", ctypes.c_ubyte * 128), ("flags", ctypes.c_int), ("restorer", ctypes.c_void_p)
    )  # fmt: skip


@pytest.mark.skipif(sys.platform != "linux", reason="how signals are handled is read as Linux tells it")
def test_signals_are_taken_back_from_a_runtime(handled: None) -> None:
    """LLVM's handlers reset themselves as a signal comes, and a second one would end the process."""
    resets, libc, action = 0x80000000, ctypes.CDLL(None), Action()

    def flags() -> int:
        libc.sigaction(signal.SIGTERM, None, ctypes.byref(action))
        return action.flags & 0xFFFFFFFF

    def coming() -> Generator[int, None, None]:
        flags()
        action.flags |= resets - 2**32
        libc.sigaction(signal.SIGTERM, ctypes.byref(action), None)
        assert flags() & resets
        yield 1
        assert not flags() & resets
        yield 2

    with termination.gathered(coming()) as came:
        assert came.found == [1, 2]


def test_a_signal_while_all_is_told_waits_for_its_end(handled: None) -> None:
    told: list[int] = []

    def interrupted() -> None:
        signal.raise_signal(signal.SIGTERM)
        told.append(2)

    with pytest.raises(termination.Terminated), termination.gathered(one for one in (1, 2)):
        interrupted()
    assert told == [2]


def test_an_error_without_a_signal_is_raised(handled: None) -> None:
    def failing() -> Generator[int, None, None]:
        yield 1
        raise RuntimeError("internal")

    with pytest.raises(RuntimeError, match="internal"), termination.gathered(failing()):
        pytest.fail("was told")


@pytest.mark.parametrize(("comes", "told"), [(interrupted_on_the_way_out, 1), (interrupted_again, 1), (None, 0)])
def test_a_block_tells_once_where_a_signal_ends_it(handled: None, comes: Any, told: int) -> None:
    """Whatever else is raised on the way out."""
    times: list[int] = []
    with ExitStack() as stack:
        if comes is not None:
            stack.enter_context(pytest.raises(KeyboardInterrupt))
        stack.enter_context(termination.telling(lambda: times.append(1)))
        for _ in comes() if comes is not None else ():
            pass
    assert len(times) == told


def test_a_block_that_an_error_ends_tells_nothing(handled: None) -> None:
    with pytest.raises(RuntimeError, match="internal"), termination.telling(lambda: pytest.fail("was told")):
        raise RuntimeError("internal")
