"""Results as a table for people, JSON for programs and CSV for spreadsheets; and progress while they come."""

from __future__ import annotations

import csv
import io
import json
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from gemmport.backends.objects import ProgramCounts
from gemmport.bench.environment import host_environment
from gemmport.bench.results import Outcome, Status
from gemmport.bench.timing import Timing
from gemmport.cli import streams
from gemmport.core.device import DeviceInfo
from gemmport.core.units import span
from gemmport.execution.selection import get_backend
from gemmport.runtime import files

SCHEMA = 1
"""Of the JSON document; docs/results.md describes it."""

WIDTH_OF_A_FILE = 220
"""Columns of a table that is not written to a terminal."""


@contextmanager
def progress_on_terminal() -> Iterator[Callable[[str], None]]:
    """Tells what is being done on standard error, where that is a terminal."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    console = streams.console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("starting", total=None)
        yield lambda text: progress.update(task, description=text)


class ProgramMeter:
    """Counts the programs that devices get from when it is made."""

    def __init__(self, devices: Iterable[DeviceInfo]) -> None:
        self._before = {device: replace(get_backend(device=device).program_counts) for device in devices}

    def counts(self) -> dict[DeviceInfo, ProgramCounts]:
        """How many came since, and from where."""
        return {device: get_backend(device=device).program_counts - before for device, before in self._before.items()}


@dataclass(frozen=True)
class Conditions:
    """What all results of a command have in common.

    Attributes:
        unavailable: with --backend all, why a backend is not among them.
        programs: that were compiled for them, or came from a cache.
        taken: which device was taken before which others, where the user named none.
    """

    devices: Sequence[DeviceInfo]
    unavailable: Mapping[str, str]
    programs: Mapping[DeviceInfo, ProgramCounts]
    taken: str = ""

    def environment(self) -> dict[str, Any]:
        """Versions and hardware of the host and of every device."""
        devices = {
            device.label: {**device.to_dict(), "runtime": get_backend(device=device).environment()}
            for device in self.devices
        }
        return {**host_environment(), "devices": devices}

    def notes(self) -> list[str]:
        """Lines below a table."""
        programs = [
            f"programs on {device.label}: {counts.compiled} compiled, {counts.from_disk} from the cache on disk"
            for device, counts in self.programs.items()
        ]
        missing = [f"backend {name}: {reason}" for name, reason in self.unavailable.items()]
        return [*filter(None, [self.taken]), *missing, *programs]


def document_of(content: dict[str, Any], conditions: Conditions) -> dict[str, Any]:
    """The document that docs/results.md describes, around its content."""
    return {
        "schema": SCHEMA,
        "command": command_line(),
        "environment": conditions.environment(),
        "unavailable": conditions.unavailable,
        "programs": {device.label: asdict(counts) for device, counts in conditions.programs.items()},
        **content,
    }


def command_line() -> str:
    """The command as it was given, without where its output goes; of files that are named in full, their names alone."""
    given = iter(sys.argv[1:])
    told = ["gemmport"]
    for word in given:
        if word == "--output":
            next(given, None)
        elif not word.startswith("--output="):
            told.append(Path(word).name if Path(word).is_absolute() else word)
    return shlex.join(told)


def to_json(content: dict[str, Any], conditions: Conditions) -> str:
    """That document as text."""
    return json.dumps(document_of(content, conditions), indent=2, allow_nan=False) + "\n"


def to_csv(results: Iterable[dict[str, Any]]) -> str:
    """One line for each result; nested values become columns like "baselines.numpy.ratio"."""
    rows = [_flat(result) for result in results]
    columns = list(dict.fromkeys(column for row in rows for column in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return streams.shown(text.getvalue())


def _flat(value: Any, prefix: str = "") -> dict[str, Any]:
    if not isinstance(value, dict):
        return {prefix: value}
    flat: dict[str, Any] = {}
    for key, inner in value.items():
        flat |= _flat(inner, f"{prefix}.{key}" if prefix else key)
    return flat


@dataclass(frozen=True)
class Column:
    """A column of a table."""

    heading: str
    numbers: bool = False


@dataclass(frozen=True)
class Sheet:
    """A table before it is drawn, and the notes below it."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str]


def drawn(sheet: Sheet, *, to_terminal: bool) -> str:
    """The table as text, as wide as the terminal where it goes to one."""
    table = Table(box=None, header_style="bold", pad_edge=False, collapse_padding=True)
    for column in sheet.columns:
        table.add_column(column.heading, justify="right" if column.numbers else "left", overflow="fold")
    for row in sheet.rows:
        table.add_row(*row)
    console = streams.console()
    if not to_terminal or not console.is_terminal:
        console = streams.console(file=io.StringIO(), width=WIDTH_OF_A_FILE)
    with console.capture() as capture:
        console.print(table)
        for note in sheet.notes:
            console.print(note, highlight=False, markup=False, soft_wrap=True)
    return "\n".join(line.rstrip() for line in capture.get().splitlines()) + "\n"


def to_markdown(sheet: Sheet) -> str:
    """The table in Markdown, its notes as paragraphs below it."""
    rows = [[column.heading for column in sheet.columns], *sheet.rows]
    rows = [[cell.replace("|", "\\|").replace("\n", "<br>") for cell in row] for row in rows]
    rules = ["---:" if column.numbers else "---" for column in sheet.columns]
    lines = ["| " + " | ".join(row) + " |" for row in (rows[0], rules, *rows[1:])]
    return streams.shown("\n".join([*lines, *(f"\n{note}" for note in sheet.notes)]) + "\n")


def verdict(result: Outcome) -> str:
    """The status of a result in a cell of a table."""
    if result.status == "ok":
        return "not verified" if result.verified is None else "PASS"
    return {"failed": "FAIL"}.get(result.status, result.status)


def duration(timing: Timing | None) -> str:
    """The median and its spread in a cell of a table."""
    if timing is None:
        return ""
    return f"{span(timing.median)} ±{100 * timing.spread:.1f}%"


def number(value: float | None, digits: int) -> str:
    """A number in a cell of a table; empty where there is none."""
    return "" if value is None else f"{value:.{digits}f}"


def troubles(results: Iterable[Outcome]) -> list[str]:
    """Why results are not verified and baselines are not there, each once."""
    notes = []
    for result in results:
        if result.reason:
            notes.append(f"{result.name}, {result.task}: {result.status}: {result.reason}")
        notes += [f"baseline {b.name}: {b.reason}" for b in result.baselines if b.reason]
    return list(dict.fromkeys(notes))


def tunings(results: Iterable[Outcome]) -> list[str]:
    """Which baselines were given parameters for their kernels, each once."""
    notes = [
        f"baseline {b.name} on {result.device.label}: with what its tuner found for {', '.join(b.tuning)}"
        for result in results
        for b in result.baselines
        if b.tuning
    ]
    return list(dict.fromkeys(notes))


def write(text: str, output: Path | None) -> None:
    """To the file, or to standard output."""
    if output is None:
        sys.stdout.write(text)
        sys.stdout.flush()
    else:
        files.write_text(output, text)


class Judged(Protocol):
    """What has a status."""

    @property
    def status(self) -> Status:
        """See `Outcome`."""


def exit_status(results: Iterable[Judged]) -> int:
    """0: something ran, and all that ran was verified, where that was asked for; 1: a check failed; 3: a device refused, or
    nothing ran.
    """
    statuses = {result.status for result in results}
    if "failed" in statuses:
        return 1
    return 3 if "error" in statuses or "ok" not in statuses else 0
