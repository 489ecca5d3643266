"""Commands write to any standard output: of an encoding that lacks their characters, closed, or a terminal that obeys what it
is told, by whoever wrote a file.
"""

from __future__ import annotations

import io
import json
import logging
import os
import re
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import click
import pytest

import gemmport as gp
from gemmport.cli import output, streams
from gemmport.diagnose.doctor import Diagnosis, Finding
from gemmport.outofcore.progress import Progress

COMMAND = [sys.executable, "-c", "from gemmport.cli import main; main()"]
ASCII = {"PYTHONIOENCODING": "ascii"}
POSIX = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
LATIN = {"PYTHONIOENCODING": "latin-1"}


@contextmanager
def prepared(encoding: str) -> Iterator[io.BytesIO]:
    """Standard output and error in an encoding: what is written to the first."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("stdout", "stderr"):
            patch.setattr(sys, name, io.TextIOWrapper(io.BytesIO(), encoding=encoding))
        streams.prepare()
        yield cast("io.BytesIO", sys.stdout.buffer)
        sys.stdout.flush()


@pytest.mark.parametrize(
    ("encoding", "expected"),
    [
        ("ascii", "+ x - 2 x 3 u2 -> e ? ?"),
        ("latin-1", "+ x - 2 × 3 µ² -> é ? ?"),
        ("cp1252", "+ x – 2 × 3 µ² -> é ? ?"),
        ("utf-8", "✓ ✗ – 2 × 3 µ² → é 📐 ?"),
    ],
)
def test_what_an_encoding_lacks_is_written_in_what_it_has(encoding: str, expected: str) -> None:
    text = "✓ ✗ – 2 × 3 µ² → é 📐 \udcff"
    with prepared(encoding) as written:
        click.echo(text)
        streams.echo(text)
        streams.console().print(text)
        output.write(f"{text}\n", None)
        sys.stdout.flush()
        assert written.getvalue().decode(encoding).splitlines() == 4 * [expected]


CONTROLS = "a\x1b[31mb\x07\x9b1m\x7f\r\tc"
SHOWN = r"a\x1b[31mb\x07\x9b1m\x7f\x0d" + "\tc"


def test_control_characters_are_shown_and_not_obeyed() -> None:
    with prepared("utf-8") as written:
        streams.echo(f"{CONTROLS}\nd")
        streams.console(soft_wrap=True, markup=False).print(CONTROLS)
        sys.stdout.flush()
        lines = written.getvalue().decode().splitlines()
    assert lines[:2] == [SHOWN, "d"]
    assert lines[2] == r"a\x1b[31mb\x9b1m\x7f        c"  # rich leaves others out
    terminal = io.StringIO()
    colours: dict[str, Any] = {"force_terminal": True, "color_system": "standard", "highlight": False}
    streams.console(file=terminal, **colours).print("\x1b[2J", style="red")
    assert terminal.getvalue() == "\x1b[31m\\x1b[2J\x1b[0m\n"  # rich's own colours are obeyed
    sheet = output.Sheet([output.Column("x")], [["\x1b[31m"]], ["\x1b[2J"])
    for text in (output.drawn(sheet, to_terminal=False), output.to_markdown(sheet), output.to_csv([{"x": "\x1b[31m"}])):
        assert "\x1b" not in text
        assert r"\x1b[31m" in text
    record = logging.LogRecord("x", logging.INFO, "", 0, "of %s", ("\x1b",), None)
    assert streams.Formatter("%(message)s").format(record) == r"of \x1b"


def test_a_name_between_colons_is_no_picture() -> None:
    written = io.StringIO()
    streams.print_lines(streams.console(file=written), "mine:cat:.yaml", None)
    assert written.getvalue() == "mine:cat:.yaml\n"


def test_what_doctor_finds_is_told_in_any_encoding() -> None:
    findings = (
        Finding("ok", "settings", "here", "2 × 3"),
        Finding("warning", "cache", "a\x1b[31mb", "gone", "make – it"),
        Finding("problem", "devices", "there", "wrong"),
    )
    with prepared("ascii") as written:
        import_module("gemmport.cli.doctor")._print(Diagnosis(findings, ("opencl 0:0",), (), "opencl 0:0"))
        sys.stdout.flush()
        told = written.getvalue().decode("ascii")
    for line in ("+ here  2 x 3", r"- a\x1b[31mb  gone", "  -> make - it", "x there  wrong"):
        assert line in told.splitlines()


def run(arguments: list[str], environment: dict[str, str], redirection: str = "") -> tuple[int, bytes, bytes]:
    line = f"{shlex.join([*COMMAND, *arguments])} {redirection}"
    done = subprocess.run(["sh", "-c", line], env={**os.environ, **environment}, capture_output=True, check=False)
    assert b"Traceback" not in done.stderr
    return done.returncode, done.stdout, done.stderr


def small(backend: gp.Backend) -> list[str]:
    device = ["--backend", backend.name, "--device", backend.device.selector]
    return ["run", "--size", "8", "--repeat", "1", "--baseline", "none", "--kernel", "naive", *device]


def test_a_command_ends_well_whatever_the_encoding() -> None:
    status, out, err = run(["kernels"], ASCII)
    assert (status, err) == (0, b"")
    assert b"TSM % WPTM = 0" in out
    assert out.isascii()


@pytest.mark.processes
@pytest.mark.every_value("environment", [ASCII, POSIX, LATIN])
@pytest.mark.every_value("command", ["run", "kernels", "doctor --help", "devices", "configs", "no such command"])
def test_every_command_ends_well_whatever_the_encoding(
    best_backend: gp.Backend, environment: dict[str, str], command: str
) -> None:
    arguments = small(best_backend) if command == "run" else shlex.split(command)
    status, out, err = run(arguments, environment)
    assert status == (2 if "such" in command else 0), err
    assert (out + err).decode("latin-1" if environment is LATIN else "ascii")


def test_what_is_written_to_a_closed_standard_output_goes_nowhere() -> None:
    assert run(["kernels"], {}, ">&-") == (0, b"", b"")


@pytest.mark.processes
@pytest.mark.parametrize("closed", [">&-", ">&- <&-", "2>&- >/dev/null", ">&- 2>&- <&-"])
def test_every_command_ends_well_whatever_is_closed(best_backend: gp.Backend, tmp_path: Path, closed: str) -> None:
    file = tmp_path / "results.json"
    for arguments in ([*small(best_backend), "--format", "json", "--output", str(file)], small(best_backend)):
        begun = time.monotonic()
        status, out, err = run(arguments, {}, closed)
        progress = rb"(\d+ s: [^\n]*\n)*" if time.monotonic() - begun > output.LINE_SECONDS else b""  # is due by then
        assert (status, out) == (0, b"")
        assert re.fullmatch(progress, err), err
    assert json.loads(file.read_text())["results"]
    assert run(["no", "such"], {}, closed)[0] == 2


@pytest.mark.processes
def test_what_a_file_is_called_is_shown_on_a_terminal(tmp_path: Path) -> None:
    """In a message and a log."""
    (tmp_path / "\x1b[31mx.yaml").write_text("schema: 1\n")
    settings = {"GEMMPORT_CONFIG_PATH": str(tmp_path), "TERM": "dumb"}
    for arguments in (["configs"], ["-v", "configs"]):
        status, out, err = run(arguments, settings)
        assert status == 2
        assert rb"\x1b[31mx.yaml: entries is missing" in out + err
        assert b"\x1b" not in out + err


def test_progress_is_told_in_lines_where_there_is_no_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also while one thing takes long; what ends before a line is due writes none."""
    with output.progress_on_terminal() as tell:
        tell("soon done")
    assert not capsys.readouterr().err
    monkeypatch.setattr(output, "LINE_SECONDS", 0.01)
    for progress, news, told in (
        (output.progress_on_terminal, "sieving", "0 s: sieving"),
        (output.bytes_on_terminal, Progress(10**9, 3 * 10**9, 1, 4), "0 s: 1 of 4 tiles, 1 GB of 3 GB"),
    ):
        with progress() as tell:
            tell(news)
            threading.Event().wait(0.2)
        lines = capsys.readouterr().err.splitlines()
        assert lines.count(told) > 1
