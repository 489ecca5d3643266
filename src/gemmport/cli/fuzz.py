"""`gemmport fuzz`: random problems over everything that gemmport promises, and what came of each."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from gemmport import kernels as family
from gemmport.cli import completion, streams
from gemmport.cli.options import POSITIVE, check_writable, import_modules, imported_modules, one_device, report
from gemmport.cli.output import write
from gemmport.core.device import DeviceInfo
from gemmport.core.dtypes import INPUTS
from gemmport.execution.selection import select_device
from gemmport.fuzz.campaign import TIME_LIMIT, Options, Report, run_campaign
from gemmport.fuzz.soak import SoakOptions, SoakReport, run_soak
from gemmport.planning.planner import AUTO
from gemmport.runtime.host_cpu import usable_cores

PROBLEMS = 1000
"""Problems of a campaign that says neither how many nor how long."""

MOST_WORKERS = 8
"""Processes that a device serves side by side where nobody says how many: each holds a queue and what it compiled."""


@click.command(short_help="Judge random problems, or soak for hours.")
@one_device
@click.option("--problems", type=click.IntRange(min=1), help=f"How many. Default: {PROBLEMS}, or what --seconds allow.")
@click.option("--seconds", type=POSITIVE, help="Stop after so long.")
@click.option("--minutes", type=POSITIVE, help="Soak for so long instead; see below.")
@click.option("--hours", type=POSITIVE, help="Likewise.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of all problems.")
@click.option(
    "--from", "first", type=click.IntRange(min=0), default=0, show_default=True, help="Number of the first problem."
)
@click.option(
    "--kernel",
    "names",
    multiple=True,
    metavar="NAME",
    shell_complete=completion.kernel_names,
    help="Only these; repeatable. Default: all, and auto.",
)
@click.option(
    "--dtype",
    "dtypes",
    type=click.Choice(list(INPUTS)),
    multiple=True,
    metavar="TYPE",
    help="Only A and B of these; repeatable. Default: all.",
)
@imported_modules
@click.option(
    "--workers",
    type=click.IntRange(min=1),
    help=f"Processes side by side. Default: one per core, at most {MOST_WORKERS}.",
)
@click.option(
    "--time-limit", type=POSITIVE, default=TIME_LIMIT, show_default=True, metavar="SECONDS",
    help="A problem that takes longer hangs.",
)  # fmt: skip
@report("table", "json")
def fuzz(
    backend: str | None, device: str | None, problems: int | None, seconds: float | None, minutes: float | None,
    hours: float | None, seed: int, first: int,
    names: tuple[str, ...], dtypes: tuple[str, ...], imports: tuple[str, ...], workers: int | None, time_limit: float,
    form: str, output: Path | None,
) -> int:  # fmt: skip
    """Judge random problems: every kernel, data type, op, layout and stride.

    A problem is decided by --seed and its number alone. One that is wrong, raises what no rule explains, crashes the runtime or
    hangs is told with the command that judges it again. Exit status: 0 none is; 1 some are, or none was judged; 2 bad usage;
    3 no such device.

    --minutes and --hours compute the same few products all the time, by several threads, from host and device arrays and on
    several queues, while allocations, compilations, launches and copies fail on purpose. Each failure must be an exception of
    gemmport's, and leave the next product right; memory, file descriptors and threads must not grow. Exit status: 1 where that
    is not so, or nothing was computed.
    """
    if output is not None:
        check_writable("--output", output)
    if minutes is not None or hours is not None:
        if problems is not None or seconds is not None or first or names or dtypes or imports:
            raise click.UsageError(
                "--minutes and --hours go with --backend, --device, --seed, --format and --output alone"
            )
        return _soak(select_device(device, backend), (minutes or 0) * 60 + (hours or 0) * 3600, seed, form, output)
    import_modules(imports)
    chosen = tuple(name if name == AUTO else family.variant(name).name for name in names)
    if problems is None and seconds is None:
        problems = PROBLEMS
    workers = min(workers or min(usable_cores(), MOST_WORKERS), problems or MOST_WORKERS)
    options = Options(seed, first, problems, seconds, time_limit, workers, chosen, imports, dtypes)
    with _progress(problems) as tell:
        found = run_campaign(select_device(device, backend), options, tell)
    write(json.dumps(found.to_dict(), indent=2) + "\n" if form == "json" else to_text(found, _width(output)), output)
    return 0 if found.passed else 1


def _soak(device: DeviceInfo, seconds: float, seed: int, form: str, output: Path | None) -> int:
    with _bar("soaking", seconds) as (bar, task):
        found = run_soak(device, SoakOptions(seconds, seed), lambda so_far: bar.update(task, completed=so_far.seconds))
    write(
        json.dumps(found.to_dict(), indent=2) + "\n" if form == "json" else soak_to_text(found, _width(output)), output
    )
    return 0 if found.passed else 1


def _width(output: Path | None) -> int:
    """Columns of what the text goes to."""
    return (streams.terminal_width() if output is None else None) or streams.UNLIMITED


def soak_to_text(report: SoakReport, width: int = streams.UNLIMITED) -> str:
    """The report of a soak for people: what was computed and raised, what grew, the faults."""
    console = streams.console(highlight=False, markup=False, width=width)
    with console.capture() as capture:
        console.print(f"{report.device.label}, seed {report.seed}")
        console.print(
            f"{sum(report.ways.values()):,} right products in {report.seconds:,.0f} s; faults: {len(report.faults)}"
        )
        console.print("products: " + "; ".join(f"{way} {count:,}" for way, count in report.ways.most_common()))
        for operation, counter in report.raised.items():
            told = "; ".join(f"{name} {count:,}" for name, count in counter.most_common())
            console.print(f"{operation} failed, the caller got: {told}")
        for name, each in report.growth.items():
            verdict = "GROWS" if each.grows else "flat"
            console.print(f"{name}: {verdict}, {each.first:,.0f} → {each.last:,.0f}; allowed: {each.allowed:,.0f} more")
        if not report.growth:
            console.print("too few samples to tell whether anything grows")
        for fault in report.faults:
            console.print(f"\n{fault.kind}: {fault.reason}", soft_wrap=True)
    return capture.get()


def to_text(report: Report, width: int = streams.UNLIMITED) -> str:
    """The report for people: what was judged, the faults, and how many problems had each feature."""
    console = streams.console(highlight=False, markup=False, width=width)
    speed = report.problems / report.seconds if report.seconds else 0.0
    refused = ", ".join(f"{count} {name}" for name, count in report.refused.most_common()) or "none"
    with console.capture() as capture:
        console.print(f"{report.device.label}, seed {report.seed}")
        console.print(
            f"{report.problems:,} problems in {report.seconds:,.0f} s ({speed:,.0f} per second), {report.programs:,} programs: "
            f"{report.right:,} right; refused by rule: {refused}; faults: {len(report.faults)}"
        )
        if not report.problems:
            console.print("none was judged: give more --seconds")
        for name, counter in report.counts.items():
            told = "; ".join(f"{what} {count:,}" for what, count in counter.most_common())
            console.print(f"{name}: {told}")
        for fault in report.faults:
            told = f"\n{fault.kind}: problem {fault.index}: {fault.case}\n  {fault.reason}\n  {fault.reproducer}"
            console.print(told, soft_wrap=True)  # a command is copied in one piece
    return capture.get()


@contextmanager
def _progress(problems: int | None) -> Iterator[Callable[[Report], None]]:
    """Tells how far the campaign is."""
    with _bar("judging", problems) as (bar, task):
        yield lambda found: bar.update(task, completed=found.problems, description=f"faults: {len(found.faults)}")


@contextmanager
def _bar(what: str, total: float | None) -> Iterator[tuple[Progress, TaskID]]:
    """A bar on standard error, where that is a terminal."""
    console = streams.console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        yield progress, progress.add_task(what, total=total)
