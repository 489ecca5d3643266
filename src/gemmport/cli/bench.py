"""`gemmport bench`: suites of products, verified and timed beside the baselines, as a table, as JSON and as a page."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

import click
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TextColumn, TimeElapsedColumn
from rich.progress import Task as ProgressTask
from rich.text import Text

from gemmport.bench.calls import Called, check_called, floor_of, summaries
from gemmport.bench.ceilings import Ceilings, ceilings_of
from gemmport.bench.forecast import Budget
from gemmport.bench.page import render
from gemmport.bench.products import Options
from gemmport.bench.results import seconds_to_dict
from gemmport.bench.standings import Measured, Workload
from gemmport.bench.suites import (
    Done,
    Left,
    State,
    Task,
    Watcher,
    in_order,
    run_as_called,
    run_products,
    suite_standings,
    tasks_of,
)  # fmt: skip
from gemmport.cli import completion, options, streams, termination
from gemmport.cli.calls import SCHEMA as CALLS_SCHEMA
from gemmport.cli.calls import calls_sheet, libraries_of, parts, versions_of
from gemmport.cli.comparison import Committed
from gemmport.cli.durations import Duration
from gemmport.cli.output import (
    Column,
    Conditions,
    ProgramMeter,
    Sheet,
    document_of,
    drawn,
    exit_status,
    to_json,
    unmet,
    write,
)  # fmt: skip
from gemmport.cli.run import products_sheet
from gemmport.cli.suites import Suite, known_suites, suite_of
from gemmport.core.device import DeviceInfo
from gemmport.core.errors import LibraryUnavailableError
from gemmport.core.problem import GemmProblem
from gemmport.execution.selection import ALL, get_backend
from gemmport.planning.lookup import load_configuration
from gemmport.planning.planner import AUTO
from gemmport.runtime import files

BUDGET = "5m"

REPEAT, TURNS = 10, 7
"""Samples of products, and of products as they are called, where --repeat does not tell."""

Found = TypeVar("Found", Measured, Called)


@dataclass
class _Collected(Generic[Found]):
    """What came of tasks by the time that it was asked for.

    Attributes:
        done: in the order of the suites.
    """

    done: list[Done[Found]] = field(default_factory=list)
    left: list[Left] = field(default_factory=list)

    @property
    def results(self) -> list[Found]:
        """All results."""
        return [result for one in self.done for result in one.results]

    def named(self) -> list[dict[str, Any]]:
        """The results for JSON, each with the name of its suite."""
        return [{"suite": one.task.suite, **result.to_dict()} for one in self.done for result in one.results]


@dataclass(frozen=True)
class _Report:
    """What a run ends with.

    Attributes:
        content: of the JSON document. sheet: the table. judged: what the exit status depends on.
    """

    content: dict[str, Any]
    sheet: Sheet
    judged: Sequence[Any]


@click.command()
@click.argument("suites", nargs=-1, required=True, metavar="SUITE...")
@options.devices
@click.option(
    "--kernel",
    default=AUTO,
    show_default=True,
    metavar="NAME[,NAME]",
    shell_complete=completion.kernels,
    help="auto (as the configuration says), all, or NAME[,NAME].",
)
@click.option(
    "--dtype",
    "dtypes",
    default="float32",
    show_default=True,
    metavar="TYPE[,TYPE]",
    shell_complete=completion.dtypes,
    help="Of A and B.",
)
@options.config_files
@options.baseline
@click.option(
    "--budget",
    type=Duration(endless=True),
    default=BUDGET,
    show_default=True,
    help="Begin nothing that would not end in so much time: 90s, 5m, 1h, or none.",
)
@click.option(
    "--repeat", type=click.IntRange(min=1), help=f"Samples of each measurement. Default: {REPEAT}; of calls {TURNS}."
)
@click.option("--verify/--no-verify", default=True, show_default=True)
@click.option(
    "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of the random operands."
)  # fmt: skip
@click.option(
    "--threshold",
    type=options.POSITIVE,
    default=1.0,
    show_default=True,
    help="Count the problems whose ratio to a baseline is less.",
)
@click.option(
    "--compare",
    "committed",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Set each ratio beside that of a JSON document of an earlier run on such a device.",
)
@options.report("table", "json")
@click.option(
    "--html",
    "page",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write a page, too: a summary, plots, and a table that sorts and filters. It needs no network.",
)
def bench(
    suites: tuple[str, ...], backend: str | None, device: tuple[str, ...], kernel: str, dtypes: str,
    config_files: tuple[Path, ...], baseline: str, budget: float, repeat: int | None, verify: bool, seed: int,
    threshold: float, committed: Path | None, form: str, output: Path | None, page: Path | None,
) -> int:  # fmt: skip
    """Measure suites of products beside the baselines.

    SUITE is squares, odd, skinny, workloads, batches or calls (products as a user calls them, beside each library's own), all
    (all but calls), or a file of shapes as of `gemmport run`.

    Products go from the cheapest to the dearest, as far as --budget goes; what is left out is told. What is interrupted tells
    what was measured by then.

    Exit status: 0 all verified; 1 a result failed verification, or a ratio is worse than in the file of --compare;
    2 bad usage or configuration, or a file that this run cannot be compared with; 3 a backend or device, or a baseline that
    --baseline names, is not usable here.
    """
    chosen = _suites(suites)
    as_called = chosen[0].as_called
    if as_called and (kernel, baseline, verify) != (AUTO, AUTO, True):
        raise click.UsageError(
            f"{chosen[0].name} measures products as they are called, with the kernels that are chosen then, verified, and "
            "beside each library's own: leave out --kernel, --baseline and --no-verify"
        )
    limit = Budget(budget)
    then = None if committed is None else Committed(committed)
    workloads = {suite.name: _workloads(suite, parts(dtypes)) for suite in chosen}
    devices, unavailable = options.chosen_devices(backend, device)
    for option, path in (("--output", output), ("--html", page)):
        if path is not None:
            options.check_writable(option, path)
    if then is not None:
        then.check(Conditions(devices, unavailable, {}), {"schema": CALLS_SCHEMA} if as_called else {})
    about = [_about(suite, workloads[suite.name]) for suite in chosen]
    taken = options.told_choice(backend, device, devices)
    meter = ProgramMeter(devices)

    def conditions() -> Conditions:
        return Conditions(devices, unavailable, meter.counts(), taken)

    with ExitStack() as told:
        if as_called:
            came = _as_called(workloads, about, devices, limit, repeat or TURNS, seed, conditions, told)
        else:
            asked = Options(
                configuration=load_configuration(config_files),
                kernels=options.chosen_kernels(kernel),
                baselines=options.chosen_baselines(baseline),
                verify=verify,
                repeat=repeat or REPEAT,
                seed=seed,
            )
            came = _products(workloads, about, devices, asked, limit, threshold, conditions, told)
        content = came.content
        if then is not None:
            then.compare(content, conditions())
            content = {**content, "comparison": then.comparison.to_dict()}
        if form == "json":
            text = to_json(content, conditions())
        else:
            sheets = [came.sheet, *([] if then is None else [then.sheet()])]
            text = "\n".join(drawn(sheet, to_terminal=output is None) for sheet in sheets)
        write(text, output)
        if page is not None:
            files.write_text(page, render(document_of(content, conditions())))
    missing = unmet(options.chosen_baselines(baseline), devices)
    return exit_status(came.judged) or missing or (0 if then is None else then.status())


def _products(
    workloads: dict[str, list[Workload]], about: Sequence[dict[str, Any]], devices: Sequence[DeviceInfo], asked: Options,
    limit: Budget, threshold: float, conditions: Callable[[], Conditions], told: ExitStack,
) -> _Report:  # fmt: skip
    tasks = tasks_of(workloads, devices, {})
    with _progress(len(tasks)) as watch:
        ceilings = _ceilings(devices, watch, len(tasks))
        came: _Collected[Measured] = _collected(tasks, run_products(tasks, asked, limit, watch), [*workloads], told)
    stand = suite_standings(came.done, asked.kernels)
    content = {
        "suites": about,
        "left": [one.to_dict() for one in came.left],
        "ceilings": {device.label: own.to_dict() for device, own in ceilings.items()},
        "results": came.named(),
        "standings": [one.to_dict(threshold) for one in stand],
    }
    lines = [*(one.told(threshold) for one in stand), *_told_left(came.left)]
    sheet = products_sheet(came.results, lines, conditions())
    return _Report(content, _with_suites(sheet, came), [one.result for one in came.results])


def _as_called(
    workloads: dict[str, list[Workload]], about: Sequence[dict[str, Any]], devices: Sequence[DeviceInfo], limit: Budget,
    turns: int, seed: int, conditions: Callable[[], Conditions], told: ExitStack,
) -> _Report:  # fmt: skip
    found = libraries_of(devices, None)
    if not found:
        raise LibraryUnavailableError(
            "a library whose arrays reach the devices must be installed; got none; see gemmport calls"
        )
    arrays = {device: [one.name for one in found if one.backend.device == device] for device in devices}
    tasks = tasks_of(workloads, devices, arrays)
    with _progress(len(tasks)) as watch:
        floors = {device: floor_of(get_backend(device=device), turns) for device in devices}
        coming = run_as_called(tasks, found, limit, watch, turns=turns, seed=seed)
        came: _Collected[Called] = _collected(tasks, coming, [*workloads], told)
    content = {
        "schema": CALLS_SCHEMA,
        "seed": seed,
        "libraries": versions_of(found),
        "floors": {device.label: seconds_to_dict(floor) for device, floor in floors.items()},
        "suites": about,
        "left": [one.to_dict() for one in came.left],
        "results": came.named(),
        "summaries": [one.to_dict() for one in summaries(came.results)],
    }
    sheet = calls_sheet(came.results, floors, conditions(), None)
    sheet = replace(sheet, notes=[*_told_left(came.left), *sheet.notes])
    return _Report(content, _with_suites(sheet, came), came.results)


def _suites(names: Sequence[str]) -> list[Suite]:
    """The suites, each once.

    Raises:
        UsageError: products as they are called are asked for together with others.
        UnknownNameError: there is no such suite.
    """
    known = [suite.name for suite in known_suites().values() if not suite.as_called]
    wanted = dict.fromkeys(one for name in names for one in (known if name == ALL else [name]))
    found = [suite_of(name) for name in wanted]
    if len({suite.as_called for suite in found}) > 1 or len({suite.name for suite in found}) < len(found):
        together = ", ".join(suite.name for suite in found)
        raise click.UsageError(
            f"suites must have names of their own, and calls stands alone: its figures are of another kind; got {together}"
        )
    return found


def _workloads(suite: Suite, dtypes: Sequence[str]) -> list[Workload]:
    """The suite's products in each type; those that tell their type are there once."""
    found = (one for dtype in dtypes for one in suite.workloads(partial(_problem, suite.as_called, dtype)))
    return list(dict.fromkeys(found))


def _problem(as_called: bool, usual: str, /, **shape: Any) -> GemmProblem:
    """The problem of a shape that may leave its type out."""
    problem = options.make_problem(**{"dtype": usual, **shape})
    return check_called(problem) if as_called else problem


def _ceilings(devices: Sequence[DeviceInfo], watch: Watcher, total: int) -> dict[DeviceInfo, Ceilings]:
    found = {}
    for device in devices:
        watch(State(0, total, f"the bandwidth of {device.label}", None))
        found[device] = ceilings_of(get_backend(device=device))
    return found


def _collected(
    tasks: Sequence[Task], coming: Iterator[Done[Found] | Left], suites: Sequence[str], told: ExitStack
) -> _Collected[Found]:  # fmt: skip
    """What comes until the end, or until a signal; with nothing measured, that ends the command.

    Args:
        told: left when what came is told; that raises what ended the run early.
    """
    came: _Collected[Found] = _Collected()
    gathered = told.enter_context(termination.gathered(one for one in coming))
    for one in gathered.found:
        if isinstance(one, Left):
            came.left.append(one)
        else:
            came.done.append(one)
    if gathered.interrupt is not None:
        if not came.done:
            raise gathered.interrupt
        came.left += [Left(task, "interrupted") for task in tasks[len(gathered.found) :]]
    came.done = in_order(came.done, suites)
    return came


@contextmanager
def _progress(total: int) -> Iterator[Watcher]:
    """Shows how far a run is on standard error, where that is a terminal."""
    columns = (
        BarColumn(bar_width=24), MofNCompleteColumn(), TimeElapsedColumn(), _TimeLeft(), TextColumn("{task.description}"),
    )  # fmt: skip
    console = streams.console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        bar = progress.add_task("starting", total=total, end=None)

        def watch(state: State) -> None:
            end = None if state.seconds is None else time.monotonic() + state.seconds
            progress.update(bar, completed=state.done, description=state.text, end=end)

        yield watch


class _TimeLeft(ProgressColumn):
    """The time until `end`, a moment of the monotonic clock, where it is known."""

    def render(self, task: ProgressTask) -> Text:
        """Minutes and seconds."""
        if task.fields["end"] is None:
            return Text()
        minutes, seconds = divmod(max(0, round(task.fields["end"] - time.monotonic())), 60)
        return Text(f"{minutes}:{seconds:02} left")


def _about(suite: Suite, workloads: Sequence[Workload]) -> dict[str, Any]:
    return {"name": suite.name, "about": suite.about, "problems": len(workloads)}


def _told_left(left: Sequence[Left]) -> list[str]:
    """What was left out, by suite, device and reason; with the names of a few, and the number of many."""
    groups: dict[tuple[str, str, str], list[str]] = {}
    for one in left:
        reason = re.sub(
            r"it would take some [\d,]+ s, and (the budget of [\d,]+ s) has .*", r"\1 has no room for more", one.reason
        )
        groups.setdefault((one.task.suite, one.task.device.label, reason), []).append(one.task.workload.name)
    return [
        f"{suite}: {', '.join(names) if len(names) <= 3 else f'{len(names)} problems'} left out on {device}: {reason}"
        for (suite, device, reason), names in groups.items()
    ]


def _with_suites(sheet: Sheet, came: _Collected[Any]) -> Sheet:
    """The table with the name of the suite in front, where there are several."""
    names = [one.task.suite for one in came.done for _ in one.results]
    if len(set(names)) < 2:
        return sheet
    rows = [[name, *row] for name, row in zip(names, sheet.rows, strict=True)]
    return replace(sheet, columns=[Column("suite"), *sheet.columns], rows=rows)
