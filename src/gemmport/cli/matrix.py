"""`gemmport matrix`: every kernel, type, op, shape and scalar on every device of every runtime, and what came of each."""

from __future__ import annotations

import datetime as dt
import json
import os
import re
import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import click
from rich.live import Live
from rich.table import Table

from gemmport import backends
from gemmport.bench.environment import host_environment
from gemmport.cli import completion, fitting, once, streams, termination
from gemmport.cli.groups import Group
from gemmport.cli.options import (
    POSITIVE,
    asked_backend,
    check_writable,
    device_names,
    import_modules,
    imported_modules,
    means_all,
    together,
)
from gemmport.cli.output import Column, Sheet, drawn, grid
from gemmport.core.device import DeviceInfo
from gemmport.core.errors import DeviceNotFoundError
from gemmport.execution.selection import (
    ALL,
    AUTO,
    DEVICE_VARIABLE,
    backend_status,
    devices,
    match_devices,
    of_environment,
    parse_backends,
)
from gemmport.matrix import simulator
from gemmport.matrix.campaign import CELL_LIMIT, DECISIVE, Lane, Options, Told, lanes, run
from gemmport.matrix.cells import SHAPES, Cell, Choice, cells, parse_types, precision_of
from gemmport.matrix.record import FAILED, Header, Journal, Record, Verdict, merge, read
from gemmport.matrix.summary import Summary, exit_status, summarize
from gemmport.runtime import files

MOST_TOLD = 50
"""Failed cells that are listed for a device; all are in the files."""

EXIT_LEFT = 4

_file = click.Path(path_type=Path, dir_okay=False)

reports = together(
    click.option("--html", type=_file, metavar="FILE", help="Write a page: one file, to be read without a network."),
    click.option("--junit", type=_file, metavar="FILE", help="Write JUnit XML."),
    click.option("--json", "as_json", type=_file, metavar="FILE", help="Write all as one JSON document."),
)


def _shard(_: click.Context, __: click.Parameter, text: str) -> tuple[int, int]:
    match = re.fullmatch(r"([0-9]+)/([0-9]+)", text)
    if not match or not 1 <= int(match[1]) <= int(match[2]):
        raise click.BadParameter(f"{text!r} is not I/N with I from 1 to N, e.g. 2/4")
    return int(match[1]), int(match[2])


@click.group(cls=Group, invoke_without_command=True)
@click.option(
    "--quick", "scope", flag_value="quick", default=True, help="A covering choice, within two minutes. Default."
)
@click.option("--full", "scope", flag_value="full", help="Every combination: for the night.")
@click.option(
    "--backend", default=None, shell_complete=completion.backends,
    help="opencl, cuda or all. Default: GEMMPORT_BACKEND, or all.",
)  # fmt: skip
@click.option(
    "--device", "descriptions", multiple=True, metavar="NAME[,NAME]", shell_complete=completion.devices,
    help="PLATFORM[:DEVICE], or gpu or cpu: all that answer to it; or all; repeatable. Default: GEMMPORT_DEVICE, or all.",
)  # fmt: skip
@click.option(
    "--kernel",
    "kernels",
    multiple=True,
    metavar="NAME",
    shell_complete=completion.kernel_names,
    help="Only these; repeatable, as the next three.",
)
@click.option("--dtype", "types", multiple=True, metavar="TYPES", help="DTYPE[-OUTPUT[-ACCUMULATOR]][-as-PRECISION].")
@click.option("--shape", "shapes", multiple=True, type=click.Choice(SHAPES), metavar="NAME", help=", ".join(SHAPES))
@click.option("--ops", "ops", multiple=True, metavar="OPS", help="NN, NT, …: two of N, T, C, R.")
@click.option("--cell", "named", multiple=True, metavar="ID", help="Only this cell; repeatable.")
@click.option("--shard", default="1/1", show_default=True, metavar="I/N", callback=_shard, help="Part I of N.")
@click.option("--jobs", type=click.IntRange(min=1), help="Devices side by side. Default: one per core.")
@click.option(
    "--cell-limit", type=POSITIVE, default=CELL_LIMIT, show_default=True, metavar="SECONDS",
    help="A cell that takes longer hangs.",
)  # fmt: skip
@click.option(
    "--time-limit", type=POSITIVE, metavar="SECONDS", help="Stop after so long; go on later."
)  # fmt: skip
@click.option(
    "--output", type=_file, metavar="FILE", help="Keep results there, line by line; go on with what is there."
)
@imported_modules
@reports
@click.pass_context
def matrix(
    context: click.Context, scope: str, backend: str | None, descriptions: tuple[str, ...], kernels: tuple[str, ...],
    types: tuple[str, ...], shapes: tuple[str, ...], ops: tuple[str, ...], named: tuple[str, ...], shard: tuple[int, int],
    jobs: int | None, cell_limit: float, time_limit: float | None, output: Path | None, imports: tuple[str, ...],
    html: Path | None, junit: Path | None, as_json: Path | None,
) -> int:  # fmt: skip
    """Prove every kernel on every device of every runtime.

    A cell is a kernel, types, ops, a shape and scalars; each is compared bit for bit with a reference, or statistically.
    One that hangs or kills its process costs only itself. With --output, what is interrupted goes on where it stopped.

    Exit status: 0 all judged cells are right; 1 a cell failed; 2 bad usage; 3 no device; 4 the time ran out; 130 interrupted;
    143 terminated.
    """
    if context.invoked_subcommand is not None:
        return 0
    import_modules(imports)
    choice = _choice(kernels, types, ops, shapes)
    only = [Cell.parse(text) for text in named]
    narrowed = {"kernels": kernels, "types": types, "ops": ops, "shapes": shapes, "cells": named, "imports": imports}
    environment = host_environment()
    header = Header(
        environment["gemmport"], "cells" if only else scope, shard,
        dt.datetime.now(dt.timezone.utc).isoformat(timespec="seconds"), environment,
        {name: list(values) for name, values in narrowed.items() if values},
    )  # fmt: skip
    writer = _Writer(html, junit, as_json)
    if output is not None:
        check_writable("--output", output)
    found = _devices(asked_backend(backend), descriptions)
    journal = Journal(header, output)

    def due(device: DeviceInfo) -> Sequence[Cell]:
        return only or cells(device, scope, choice, shard)

    try:
        work = lanes(found, due, journal, imports)
        options = Options(min(jobs or int(environment["cores"]), len(work)), cell_limit, time_limit, imports)
        with _watched(work) as told:
            run(work, journal, options, told)
    except KeyboardInterrupt as interrupt:
        _say_how_to_go_on("interrupted", work, output)
        return termination.exit_status(interrupt)
    finally:
        journal.close()
    return writer.tell(journal.record, work, output)


@matrix.command("merge")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--output", type=_file, metavar="FILE", help="Write the merged record there.")
@reports
def merge_command(
    files: tuple[Path, ...], output: Path | None, html: Path | None, junit: Path | None, as_json: Path | None
) -> int:
    """Make one record of those of shards, machines and runs.

    Of two verdicts on a cell, the worse stays. Exit status: as of gemmport matrix.
    """
    writer = _Writer(html, junit, as_json)
    merged = merge([read(path) for path in files])
    if output is not None:
        merged.write(output)
    return writer.tell(merged)


@matrix.command("report")
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@reports
def report_command(file: Path, html: Path | None, junit: Path | None, as_json: Path | None) -> int:
    """Tell what is in a record.

    Exit status: as of gemmport matrix.
    """
    return _Writer(html, junit, as_json).tell(read(file))


def _choice(
    kernels: Sequence[str], types: Sequence[str], ops: Sequence[str], shapes: Sequence[str]
) -> Choice:  # fmt: skip
    for kernel in kernels or ("naive",):
        for each in types or ("float32",):
            for pair in ops or ("NN",):
                Cell.of(kernel, each, pair, "odd", "a1b0")  # refuses what is not a name
    return Choice(kernels or None, [_usual(each) for each in types] or None, ops or None, shapes or None)


def _usual(types: str) -> str:
    """The name of types that a cell has: "int8" for "int8-int8"."""
    dtype, output, accumulator = parse_types(types)
    return Cell("", dtype.name, output.name, accumulator.name, "", "", "", precision_of(types)).types


def _devices(backend: str, descriptions: Sequence[str]) -> list[DeviceInfo]:
    """What answers to any of the descriptions, of the backends that are usable here, and what is simulated.

    Raises:
        DeviceNotFoundError: nothing answers to one of them.
    """
    names = backends.names() if backend.lower() in (ALL, AUTO) else parse_backends(backend)
    missing = {f"backend {name}": error for name in names if (error := backend_status(name).error)}
    by_name = len(names) == 1
    for line in [f"{name}: {why}" for name, why in missing.items()] if by_name else once.news(missing):
        streams.tell(line)
    candidates = [device for name in names for device in devices(name)]
    of_variable = () if descriptions else (DEVICE_VARIABLE,)
    descriptions = device_names(descriptions or tuple(filter(None, (os.environ.get(DEVICE_VARIABLE),))))
    if means_all(descriptions):
        descriptions = ()
    if "opencl" in names and not any(device.platform == "oclgrind" for device in candidates):
        candidates += _simulated(descriptions)
    if not candidates:
        raise DeviceNotFoundError("no device: gemmport doctor says what is missing")
    if not descriptions:
        return candidates
    found: dict[DeviceInfo, None] = {}
    for text in descriptions:
        answering = match_devices(text, candidates)
        if not answering:
            listed = "; ".join(device.label for device in candidates)
            with of_environment(*of_variable):
                raise DeviceNotFoundError(f"no device {text!r}; there are {listed}")
        found |= dict.fromkeys(answering)
    return list(found)


def _simulated(descriptions: Sequence[str]) -> list[DeviceInfo]:
    """The simulator's device, where all are meant or it is named: it has no number among the others."""
    named = any("oclgrind" in text.lower() for text in descriptions)
    return simulator.devices() if named or not descriptions else []


@contextmanager
def _watched(work: Sequence[Lane]) -> Iterator[Told]:
    """Shows how far the devices are: a live table on a terminal, elsewhere a line per failure and per finished device."""
    console = streams.console(stderr=True)
    if console.is_terminal:
        with Live(
            get_renderable=lambda: _progress(work, console.width), console=console, refresh_per_second=4, transient=True
        ):
            yield lambda *_: None
        return

    def told(lane: Lane, verdict: Verdict) -> None:
        if verdict.failed:
            streams.echo(f"{lane.id}: {verdict.cell}: {verdict.status}: {_first_line(verdict.reason)}", err=True)
        if lane.done + 1 == lane.due:
            streams.echo(f"{lane.id}: {_counts(lane)}", err=True)

    for lane in work:
        streams.echo(f"{lane.id}: {lane.due:,} cells, {lane.done:,} of them judged before", err=True)
    yield told


def _counts(lane: Lane) -> str:
    return ", ".join(f"{count:,} {status}" for status, count in lane.counts.most_common())


def _progress(work: Sequence[Lane], width: int) -> Table:
    columns = (
        Column("runtime"), Column("done", numbers=True), Column("verified", numbers=True, dispensable=3),
        Column("failed", numbers=True), Column("unsupported", numbers=True, dispensable=4),
        Column("cells/s", numbers=True, dispensable=5), Column("remaining", numbers=True, dispensable=1),
        Column("cell in hand", dispensable=2),
    )  # fmt: skip
    rows = []
    for lane in work:
        rate = lane.rate if lane.state == "running" else None
        remaining = "" if rate is None else str(dt.timedelta(seconds=round(len(lane.todo) / rate)))
        in_hand = f"{lane.cell} {time.monotonic() - lane.since:.0f} s" if lane.cell else lane.state
        rows.append((
            f"{lane.device.platform} {lane.device.platform_version} ({lane.device.backend})",
            f"{lane.done:,}/{lane.due:,}", f"{lane.counts['verified']:,}", f"{lane.failed:,}",
            f"{lane.counts['unsupported']:,}", "" if rate is None else f"{rate:.1f}", remaining, in_hand,
        ))  # fmt: skip
    (block,) = fitting.fitted(Sheet(columns, rows).filled(), width)
    return grid(block)


class _Writer:
    """The files that a record is told in, and the exit status."""

    def __init__(self, html: Path | None, junit: Path | None, as_json: Path | None) -> None:
        self._html = html
        self._junit = junit
        self._json = as_json
        for option, path in (("--html", html), ("--junit", junit), ("--json", as_json)):
            if path is not None:
                check_writable(option, path)  # before the work, not after it

    def tell(self, record: Record, work: Sequence[Lane] = (), output: Path | None = None) -> int:
        """Writes the files and prints the summary; the exit status."""
        if self._json is not None:
            files.write_text(self._json, json.dumps(record.to_dict(), indent=1) + "\n")
        if self._junit is not None:
            from gemmport.matrix import junit  # noqa: PLC0415 - which most runs do not need

            files.write_text(self._junit, junit.render(record))
        if self._html is not None:
            from gemmport.matrix import page  # noqa: PLC0415 - likewise

            files.write_text(self._html, page.render(record))
        summaries = summarize(record)
        sys.stdout.write(to_text(record, summaries))
        sys.stdout.flush()
        status = exit_status(summaries)
        if any(lane.todo and lane.state != "lost" for lane in work):
            _say_how_to_go_on("the time is up", work, output)
            return status or EXIT_LEFT  # a device that was not even opened is in no summary
        return status


def _say_how_to_go_on(why: str, work: Sequence[Lane], output: Path | None) -> None:
    left = sum(len(lane.todo) for lane in work)
    how = "name a file with --output to keep what is done, and to go on with it"
    if output is not None:
        settings = [f"{name}={shlex.quote(os.environ[name])}" for name in DECISIVE if os.environ.get(name)]
        how = f"{output} has what is done; to go on: {' '.join([*settings, shlex.join(['gemmport', *sys.argv[1:]])])}"
    streams.echo(f"gemmport: {why}; {left:,} cells are left: {how}", err=True)


def to_text(record: Record, summaries: Sequence[Summary]) -> str:
    """The record for people: counts by device, what failed and how to see it again, what is unsupported and why, and speeds."""
    header = record.header
    scope = streams.shown(f"gemmport {header.gemmport}, {_scope(header)}, begun {header.started}\n")
    parts = [scope, _table_of_counts(summaries)]
    rates = _table_of_rates(summaries)
    for summary in summaries:
        parts += map(streams.shown, _told_of(summary))
    return "\n".join([*parts, *([rates] if rates else [])])


def _scope(header: Header) -> str:
    if header.sources:
        return f"{len(header.sources)} records"
    return header.part


def _table_of_counts(summaries: Sequence[Summary]) -> str:
    columns = [
        Column("device", dispensable=3), Column("runtime"),
        *(Column(name, numbers=True, dispensable=rank) for name, rank in _COUNTED), Column("result"),
    ]  # fmt: skip
    rows = []
    for summary in summaries:
        device, counts = summary.tested.device, summary.counts
        numbers = [counts["verified"], counts["unsupported"], *(counts[status] for status in FAILED), summary.left]
        runtime = f"{device.platform} {device.platform_version} ({device.backend})"
        rows.append([device.name, runtime, *(f"{number:,}" for number in numbers), summary.verdict])
    return drawn(Sheet(columns, rows, []), to_terminal=True)


_COUNTED = (("verified", 1), ("unsupported", 2), *((status, 0) for status in FAILED), ("left", 4))
"""What is counted, and how dispensable each count is."""


def _told_of(summary: Summary) -> list[str]:
    """What is to be said of a device beside its counts."""
    tested, lines = summary.tested, list[str]()
    if tested.lost:
        lines.append(f"lost: {tested.lost}\n  {tested.command}")
    for verdict in summary.failures[:MOST_TOLD]:
        lines.append(f"{verdict.status}: {verdict.cell}\n  {_first_line(verdict.reason)}\n  {verdict.command}")
    if len(summary.failures) > MOST_TOLD:
        lines.append(f"and {len(summary.failures) - MOST_TOLD:,} more failed cells")
    if summary.retried:
        lines.append(
            f"{len(summary.retried):,} cells only right in a process of their own, e.g. {summary.retried[0].cell}"
        )
    lines += [f"unsupported, {count:,} cells: {reason}" for reason, count in summary.unsupported]
    return [f"{tested.label}\n" + "".join(f"{line}\n" for line in lines)] if lines else []


def _first_line(reason: str) -> str:
    lines = reason.strip().splitlines()
    if lines and lines[0].startswith("Traceback"):
        return lines[-1]
    return lines[0] if lines else ""


def _table_of_rates(summaries: Sequence[Summary]) -> str:
    names = list(dict.fromkeys(name for summary in summaries for rate in summary.rates for name in rate.ratios))
    columns = [
        Column("runtime"), Column("kernel"), Column("product", dispensable=2), Column("GFLOPS", numbers=True),
        *(Column(f"% {name}", numbers=True, dispensable=1) for name in names),
    ]  # fmt: skip
    rows = [
        [
            f"{summary.tested.device.platform} {summary.tested.device.platform_version}", rate.kernel,
            f"{rate.types} {rate.ops} {rate.m}×{rate.n}×{rate.k}", f"{rate.gflops:,.1f}",
            *("" if rate.ratios.get(name) is None else f"{100 * rate.ratios[name]:.1f}" for name in names),
        ]
        for summary in summaries
        for rate in summary.rates
    ]  # fmt: skip
    return drawn(Sheet(columns, rows, []), to_terminal=True) if rows else ""
