"""Measures files of benchmarks/results again: runs their commands one after another, each within its time.

    python benchmarks/renew.py h200/study/machine-code.json h200/calls/*.json --seconds 400 --folder build/renewed

A device is often to be had for half an hour only. So all that is to be measured there goes into one call, in the order given.
What takes too long is interrupted, and keeps what it has where its command does so; the next has its time. Nothing on file is
touched: whoever has looked at the new files moves them, and tells the pages their commit.
"""

from __future__ import annotations

import fnmatch
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click
from figures import ROOT
from manifest import recorded
from rich.console import Console
from rich.table import Table

GRACE = 20.0
"""Seconds that an interrupted command has to write down what it has."""


@dataclass(frozen=True)
class Renewal:
    """How a command ended.

    Attributes:
        file: that it wrote, below the folder.
        seconds: that it took.
        outcome: "renewed"; "interrupted", with what it had by then or nothing; or its exit status and last line.
    """

    file: str
    seconds: float
    outcome: str


def named(patterns: Sequence[str], root: Path = ROOT) -> dict[str, str]:
    """File → command, in the order of patterns of files of the manifest.

    Raises:
        ClickException: a pattern is that of no file.
    """
    known = recorded(root)
    found: dict[str, str] = {}
    for pattern in patterns:
        names = fnmatch.filter(known, pattern)
        if not names:
            raise click.ClickException(f"FILES must be of benchmarks/results/manifest.json; got {pattern!r}; see there")
        found |= {name: known[name]["command"] for name in names}
    return found


def renew(file: str, command: str, folder: Path, limit: float, root: Path = ROOT) -> Renewal:
    """Runs a command that writes JSON, with its document in `folder / file`.

    Args:
        limit: seconds, after which it is interrupted, as by Ctrl-C; after GRACE it is killed.
    """
    target = folder / file
    target.parent.mkdir(parents=True, exist_ok=True)
    printed = "--format json" in command
    words = command if printed else f"{command} --output {shlex.quote(str(target.resolve()))}"
    log = target.with_name(f"{target.name}.log")
    words = re.sub(r"(?<!\S)python (?=benchmarks/)", f"{shlex.quote(sys.executable)} ", words)
    # Where PYTHONSAFEPATH is set, a program does not find its neighbours by itself.
    paths = [str(root / "benchmarks"), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    start = time.monotonic()
    with log.open("wb") as told, (target if printed else log).open("wb" if printed else "ab") as written:
        # A session of its own: the interrupt reaches the command, and not the shell that runs it alone.
        process = subprocess.Popen(
            ["bash", "-c", f"exec env {words}"],
            cwd=root, env=environment, stdout=written, stderr=told, start_new_session=True,
        )  # fmt: skip
        try:
            status: int | None = process.wait(limit)
        except subprocess.TimeoutExpired:
            status = None
            os.killpg(process.pid, signal.SIGINT)
            try:
                process.wait(GRACE)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    seconds = time.monotonic() - start
    there = target.exists() and target.stat().st_size > 0
    if status is None:
        outcome = "interrupted, with what it had" if there else "interrupted, with nothing"
    elif status:
        lines = log.read_text("utf-8", "replace").split("\n")
        outcome = f"exit {status}: {next((line for line in reversed(lines) if line.strip()), 'no word')}"
    else:
        outcome = "renewed" if there else "exit 0, with nothing"
    return Renewal(file, seconds, outcome)


@click.command()
@click.argument("files", nargs=-1, required=True)
@click.option("--folder", type=click.Path(path_type=Path), default=Path("build/renewed"), show_default=True)
@click.option("--seconds", default=540.0, show_default=True, help="After which a command is interrupted.")
@click.option("--all-seconds", default=float("inf"), help="After which none begins.  [default: none]")
def main(files: tuple[str, ...], folder: Path, seconds: float, all_seconds: float) -> None:
    """Runs the commands of FILES of benchmarks/results again, which may be patterns as h200/study/*."""
    start = time.monotonic()
    table = Table("file", "seconds", "outcome", box=None)
    renewals = []
    for file, command in named(files).items():
        left = all_seconds - (time.monotonic() - start)
        renewal = (
            renew(file, command, folder, min(seconds, left)) if left > 0 else Renewal(file, 0.0, "no time was left")
        )
        table.add_row(file, f"{renewal.seconds:.0f}", renewal.outcome)
        renewals.append(renewal)
    Console(soft_wrap=True).print(table)
    sys.exit(any(renewal.outcome != "renewed" for renewal in renewals))


if __name__ == "__main__":
    main()
