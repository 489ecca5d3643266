"""Results as a table for people, JSON for programs and CSV for spreadsheets; and progress while they come."""

from __future__ import annotations

import csv
import io
import json
import shlex
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import click
from rich.console import JustifyMethod
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.table import Table
from rich.text import Text

from gemmport import baselines as known_baselines
from gemmport.backends.objects import ProgramCounts
from gemmport.bench.environment import host_environment
from gemmport.bench.results import Outcome, Status
from gemmport.bench.timing import Timing
from gemmport.cli import fitting, once, streams
from gemmport.core.device import DeviceInfo
from gemmport.core.errors import BaselineUnavailableError
from gemmport.core.units import quantity, span
from gemmport.execution.selection import get_backend
from gemmport.outofcore.progress import Progress as Moved
from gemmport.planning.planner import AUTO
from gemmport.runtime import files

SCHEMA = 1
"""Of the JSON document; docs/results.md describes it."""

WIDTH_OF_A_FILE = 220
"""Columns of a table that is not written to a terminal."""


LINE_SECONDS = 5.0
"""Between two lines of progress where standard error goes elsewhere than to a terminal: what is done sooner writes none."""


@contextmanager
def _in_lines(told: Callable[[], str]) -> Iterator[None]:
    """Tells what is being done on standard error, now and then, from a thread."""
    begun, done = time.monotonic(), threading.Event()

    def tell() -> None:
        while not done.wait(LINE_SECONDS):
            streams.echo(f"{time.monotonic() - begun:.0f} s: {told()}", err=True)

    thread = threading.Thread(target=tell, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


@contextmanager
def progress_on_terminal() -> Iterator[Callable[[str], None]]:
    """Tells what is being done on standard error: in one line where that is a terminal, else in a line now and then."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    console = streams.console(stderr=True)
    if not console.is_terminal:
        told = ["starting"]
        with _in_lines(lambda: told[-1]):
            yield lambda text: told.__setitem__(0, text)
        return
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("starting", total=None)
        yield lambda text: progress.update(task, description=text)


@contextmanager
def bytes_on_terminal() -> Iterator[Callable[[Moved], None]]:
    """Tells bytes, rate and time left of a product that passes through a device, likewise."""
    columns = (
        TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn(),
    )  # fmt: skip
    console = streams.console(stderr=True)
    if not console.is_terminal:
        last = ["drawing operands"]

        def note(moved: Moved) -> None:
            last[0] = (
                f"{moved.tiles} of {moved.all_tiles} tiles, {quantity(moved.moved, 'B')} of {quantity(moved.total, 'B')}"
            )

        with _in_lines(lambda: last[0]):
            yield note
        return
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=None)

        def tell(moved: Moved) -> None:
            if moved.moved < progress.tasks[0].completed:  # the next product
                progress.reset(task)
            told = f"{moved.tiles} of {moved.all_tiles} tiles"
            progress.update(task, total=moved.total, completed=moved.moved, description=told)

        yield tell


class ProgramMeter:
    """Counts the programs that devices get from when it is made."""

    def __init__(self, devices: Iterable[DeviceInfo]) -> None:
        self._before = {device: replace(get_backend(device=device).program_counts) for device in devices}

    def counts(self) -> dict[DeviceInfo, ProgramCounts]:
        """How many came since, and from where."""
        return {device: get_backend(device=device).program_counts - before for device, before in self._before.items()}


def labels(devices: Sequence[DeviceInfo]) -> dict[DeviceInfo, str]:
    """The label of each device; of those that are alike, with what selects it."""
    count = Counter(device.label for device in devices)
    return {
        device: device.label if count[device.label] == 1 else f"{device.label} {device.selector}" for device in devices
    }


def short_names(devices: Sequence[DeviceInfo]) -> dict[DeviceInfo, str]:
    """The least of each device that tells it from the others: its backend, or its runtime, or all."""
    named = {device: device.backend for device in devices}
    if len(set(named.values())) == len(named):
        return named
    whole = labels(devices)
    short = {device: (device.platform, f"{device.platform} {device.platform_version}") for device in devices}
    count = Counter(name for names in short.values() for name in dict.fromkeys(names))
    return {device: next((name for name in short[device] if count[name] == 1), whole[device]) for device in devices}


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
            name: {**device.to_dict(), "runtime": get_backend(device=device).environment()}
            for device, name in labels(self.devices).items()
        }
        return {**host_environment(), "devices": devices}

    def notes(self) -> list[str]:
        """Lines below a table."""
        names = labels(self.devices)
        programs = [
            f"programs on {names[device]}: {counts.compiled} compiled, {counts.from_disk} from the cache on disk"
            for device, counts in self.programs.items()
        ]
        missing = {f"backend {name}": reason for name, reason in self.unavailable.items()}
        return [*filter(None, [self.taken]), *once.news(missing), *programs]


def document_of(content: dict[str, Any], conditions: Conditions) -> dict[str, Any]:
    """The document that docs/results.md describes, around its content."""
    return {
        "schema": SCHEMA,
        "command": command_line(),
        "environment": conditions.environment(),
        "unavailable": conditions.unavailable,
        "programs": {
            labels(conditions.devices)[device]: asdict(counts) for device, counts in conditions.programs.items()
        },
        **content,
    }


def command_line() -> str:
    """The command as it was given, without where its output goes; of files that are named in full, their names alone."""
    given = iter(sys.argv[1:])
    told = ["gemmport"]
    for word in given:
        if word in ("-o", "--output"):
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
    """A column of a table.

    Attributes:
        numbers: its cells are numbers, which are never broken.
        dispensable: 0: it is always shown; of the others, the highest is left out first where a terminal is narrow.
        group: columns of one group stand together; where there is no room for all groups, they stand below each other, each
            with the columns of no group.
    """

    heading: str
    numbers: bool = False
    dispensable: int = 0
    group: str = ""


@dataclass(frozen=True)
class Sheet:
    """A table before it is drawn, and the notes below it. A cell may have several lines."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = ()

    def filled(self) -> list[fitting.Filled]:
        """The columns with their cells, which hold no control characters."""
        cells = [[streams.shown(cell) for cell in row] for row in self.rows]
        return [
            fitting.Filled(
                place,
                column.heading,
                tuple(row[place] for row in cells),
                column.numbers,
                column.dispensable,
                column.group,
            )
            for place, column in enumerate(self.columns)
        ]


def drawn(sheet: Sheet, *, to_terminal: bool) -> str:
    """The table as text. On a terminal it is as wide as that; elsewhere each row is whole, and in one line."""
    columns = sheet.filled()
    console = streams.page(to_terminal=to_terminal)
    width = streams.terminal_width() if to_terminal else None
    blocks = [fitting.whole(columns)] if width is None else fitting.fitted(columns, width)
    with console.capture() as capture:
        for number, block in enumerate(blocks):
            if number:
                console.print()
            console.print(grid(block))
        for note in [*_left_out(columns, blocks), *sheet.notes]:
            streams.print_lines(console, note, width)
    return "\n".join(line.rstrip() for line in capture.get().splitlines()) + "\n"


def grid(block: fitting.Block) -> Table:
    """The table that a block says, for a console of rich's."""
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, fitting.GAP, 0, 0))
    for column, width in zip(block.columns, block.widths, strict=True):
        heading = Text(column.wrapped_heading(width))
        justify: JustifyMethod = "right" if column.numbers else "left"
        table.add_column(heading, justify=justify, vertical="top", min_width=width, max_width=width, no_wrap=True)
    for number in range(len(block.columns[0].cells)):
        cells = zip(block.columns, block.widths, strict=True)
        table.add_row(*(Text(column.wrapped(column.cells[number], width)) for column, width in cells))
    return table


def _left_out(columns: Sequence[fitting.Filled], blocks: Sequence[fitting.Block]) -> list[str]:
    """What the columns say that there was no room for, where it is the same in all rows; the others by name, and what shows
    them.
    """
    left_out = list(dict.fromkeys(column for block in blocks for column in block.left_out))
    alike = [column for column in left_out if column.is_alike]
    told = [
        f"{column.heading}: {', '.join(column.cells[0].split(chr(10)))}" for column in alike if column.cells[0].strip()
    ]
    if hidden := [column.heading for column in left_out if not column.is_alike]:
        width = fitting.needed(columns)
        ways = [
            f"a terminal of {width} columns (or COLUMNS={width})",
            "a pipe",
            *(f"--format {form}" for form in _formats()),
        ]
        told.append(f"no room for {', '.join(hidden)}: {', '.join(ways[:-1])} or {ways[-1]} shows all")
    return told


def _formats() -> tuple[str, ...]:
    """Those for programs, of the command that is running."""
    context = click.get_current_context(silent=True)
    for option in context.command.params if context else ():
        if option.name == "form" and isinstance(option.type, click.Choice):
            return tuple(form for form in ("csv", "json") if form in option.type.choices)
    return ()


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
    """Why results are not verified and baselines are not there, each once; of those that nobody named, once on a machine."""
    notes = []
    missing: dict[str, str] = {}
    for result in results:
        if result.reason:
            notes.append(f"{result.name}, {result.task}: {result.status}: {result.reason}")
        notes += [
            f"baseline {b.name}: {elsewhere(b.name, [result.device]) or b.reason}"
            for b in result.baselines
            if b.reason and not b.is_missing
        ]
        missing |= {f"baseline {b.name}": b.reason for b in result.baselines if b.is_missing}
    return [*dict.fromkeys(notes), *once.news(missing)]


def elsewhere(name: str, devices: Sequence[DeviceInfo]) -> str:
    """Why a baseline has nothing to do with devices, whether it is installed or not; empty where it has."""
    reached = known_baselines.backends_of(name) if name in known_baselines.names() else frozenset()
    if not reached or any(device.backend in reached for device in devices):
        return ""
    return f"it computes on devices of backend {' or '.join(sorted(reached))} alone"


def unmet(names: Sequence[str], devices: Sequence[DeviceInfo]) -> int:
    """The exit status for baselines that were named: 3 where one is of no use on any of the devices, else 0.

    Standard error names that one and says what to do. A baseline that cannot compute one problem does not count: a note beside
    the result says so.
    """
    found = {name: _useless(name, devices) for name in names if name != AUTO}
    for name, reason in found.items():
        if reason:
            streams.tell(f"error: baseline {name} was named, and there is none here: {reason}")
    return 3 if any(found.values()) else 0


def _useless(name: str, devices: Sequence[DeviceInfo]) -> str:
    """Why a baseline is of no use on the devices, and what to do; empty where it is of use."""
    if reason := elsewhere(name, devices):
        usual = dict.fromkeys(other for device in devices for other in known_baselines.for_device(device))
        return f"{reason}; choose such a device, or name others: --baseline {','.join(usual)}"
    try:
        known_baselines.load(name)
    except BaselineUnavailableError as error:
        return str(error)
    return ""


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
