"""`gemmport tune`: searches for the fastest tile sizes on a device, and writes them as a configuration."""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from gemmport.bench.standings import Workload
from gemmport.cli import completion, options, streams, termination
from gemmport.cli.output import Column, Sheet, drawn, number, write
from gemmport.cli.shapes import read_shapes
from gemmport.core.device import DeviceInfo
from gemmport.core.precision import FULL
from gemmport.core.units import span
from gemmport.execution.selection import select_device
from gemmport.planning.lookup import load_configuration
from gemmport.runtime import files
from gemmport.tuning import suite as suites
from gemmport.tuning import tuner as tuning
from gemmport.tuning.crew import Candidate
from gemmport.tuning.entries import check_installable, to_yaml
from gemmport.tuning.entries import install as install_entries
from gemmport.tuning.journal import import_optuna
from gemmport.tuning.session import Step
from gemmport.tuning.space import told
from gemmport.tuning.suite import Task

UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}
"""Seconds of a unit of --budget."""


def duration(text: str) -> float:
    """Seconds, written as 90, 90s, 5m or 1.5h.

    Raises:
        BadParameter: it must be a time above 0.
    """
    found = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)([smh]?)", text)
    seconds = float(found.group(1)) * UNITS[found.group(2)] if found else 0.0
    if seconds <= 0:
        raise click.BadParameter(f"a time must be a number above 0 with s, m or h, such as 5m; got {text!r}")
    return seconds


@click.command(short_help="Search for the fastest tile sizes.")
@options.one_device
@click.option(
    "--kernel", metavar="NAME[,NAME]", shell_complete=completion.kernel_names,
    help="Try these. Default: all that compute the product on the device.",
)  # fmt: skip
@click.option(
    "--dtype", default="float32", show_default=True, metavar="NAME[,NAME]", shell_complete=completion.dtypes,
    help="Of products that do not say theirs.",
)  # fmt: skip
@click.option(
    "--shapes", type=click.Path(path_type=Path), metavar="FILE",
    help="Products from a YAML or CSV file, as of gemmport run. Default: some of each shape class.",
)  # fmt: skip
@click.option("--suite", is_flag=True, help="All that the device needs: each type and shape class, and every kernel.")
@click.option(
    "--budget", type=duration, metavar="TIME", default="5m", show_default=True, help="Time for all of it: 90s, 5m, 1h."
)
@click.option(
    "-o", "--output", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Write the entries there."
)
@click.option("--install", is_flag=True, help="Put the entries into your own folder, which is read by default.")
@options.config_files
@options.imported_modules
def tune(
    backend: str | None, device: str | None, kernel: str | None, dtype: str, shapes: Path | None, suite: bool, budget: float,
    output: Path | None, install: bool, config_files: tuple[Path, ...], imports: tuple[str, ...],
) -> int:  # fmt: skip
    """Search for the fastest kernels and tile sizes on a device.

    Each candidate is compiled, verified and timed in a process of its own: first what the kernels' models expect to be
    fast, then what Optuna asks for. What was found is measured beside the current choice, in turns, and what is better
    is written as entries of a configuration, with the trials in a file that gemmport regret reads.

    A run that was interrupted or killed loses no finished trial: the same command goes on.

    Exit status: 0; 2 bad usage, configuration or file; 3 no such device, it does not open, or Optuna is not installed.
    """
    import_optuna()
    if shapes is not None and suite:
        raise click.UsageError("--shapes and --suite exclude each other")
    options.import_modules(imports)
    names = options.chosen_kernels(kernel) if kernel is not None else ()
    target = select_device(device, backend)
    tasks = _tasks(target, dtype.split(","), shapes, suite)
    if output is not None:
        options.check_writable("--output", output)
    if install:
        check_installable()
    chosen = tuning.Options(
        target, load_configuration(config_files), tasks, names, budget,
        None if output is None else output.with_name(f"{output.stem}-{tuning.key_of(target)}.journal"), imports,
    )  # fmt: skip
    with tuning.opened(chosen) as tuner:
        trials = tuner.journal.with_suffix(".jsonl") if output is None else output.with_suffix(".jsonl")

        def keep() -> None:
            files.write_text(trials, tuner.trials())

        def tell_what_is_kept() -> None:
            """Writes, too: where another thread calls this, the process ends without leaving the block."""
            streams.echo(f"{tuner.tried} candidates are kept in {tuner.journal}; the same command goes on", err=True)
            keep()

        try:
            with termination.telling(tell_what_is_kept), _progress(target) as tell:
                report = tuner.run(tell)
        finally:
            keep()
    _write(report, output, trials, to_folder=install)
    return 0


def _tasks(target: DeviceInfo, dtypes: list[str], shapes: Path | None, suite: bool) -> list[Task]:
    if suite:
        return list(suites.suite(target))
    if shapes is None:
        return [Task(workload) for dtype in dtypes for workload in suites.usual(target, dtype)]
    found: dict[object, Workload] = {}
    for dtype in dtypes:
        for workload in read_shapes(
            shapes, lambda dtype=dtype, **shape: options.make_problem(**{"dtype": dtype, **shape})
        ):
            if workload.problem.precision != FULL:
                raise click.UsageError(
                    f"{shapes}: shapes to tune must be of precision {FULL}; got {workload.problem}: entries are made for what "
                    "follows the rounding"
                )
            found.setdefault(workload.problem, workload)  # one that says its type comes once for each of --dtype
    return [Task(workload) for workload in found.values()]


def _write(report: tuning.Report, output: Path | None, trials: Path, *, to_folder: bool) -> None:
    """Tells what came of it, and writes what is better."""
    write(drawn(_sheet(report), to_terminal=True), None)
    streams.echo(f"trials: {trials}; gemmport regret reads them")
    if not report.entries:
        streams.echo("nothing was better than the current choice in turns: no entry is written")
        return
    description = f"What gemmport tune found for {report.device.label}."
    text = to_yaml(report.entries, description)
    if output is not None:
        files.write_text(output, text)
        streams.echo(f"entries: {output}")
    if to_folder:
        streams.echo(f"installed: {install_entries(report.entries, report.device, description)}")
    if output is None and not to_folder:
        streams.echo(text.rstrip("\n"))


def _sheet(report: tuning.Report) -> Sheet:
    """A row for each product: the current choice, what was found, and the ratio of their speeds in turns."""
    columns = (
        Column("problem"), Column("current", dispensable=4), Column("time", numbers=True, dispensable=2),
        Column("tuned", dispensable=3), Column("tuned time", numbers=True, dispensable=1), Column("ratio", numbers=True),
    )  # fmt: skip
    rows = [_cells(one) for one in report.compared]
    notes = [f"{one.workload.name}: no ratio: {one.reason}" for one in report.compared if one.reason]
    mean = report.geometric_mean
    ratios = [one.ratio for one in report.compared if one.ratio is not None]
    if mean is not None:
        told_mean = (
            f"geometric mean {mean:.3f} over {len(report.compared)} products, {len(ratios)} of them with another choice"
        )
        notes.append(told_mean + (f": median {statistics.median(ratios):.3f}" if ratios else ""))
    replaced = f"; {report.replaced} of them ended their process" if report.replaced else ""
    notes.append(f"{report.candidates:,} candidates on {report.device.label}{replaced}")
    return Sheet(columns, rows, notes)


def _cells(one: tuning.Compared) -> list[str]:
    before, after = one.seconds or (None, None)
    return [
        f"{one.workload.label}\n{one.workload.problem}".strip(),
        _short(one.current),
        span(before) if before else "",
        "the same" if not one.seconds and not one.reason else _short(one.tuned),
        span(after) if after else "",
        number(one.ratio, 3) + ("" if one.is_better or not one.seconds else ", not taken"),
    ]


def _short(candidate: Candidate | None) -> str:
    return "" if candidate is None else told(*candidate)


@contextmanager
def _progress(device: DeviceInfo) -> Iterator[Callable[[Step], None]]:
    """Tells how much of the budget is spent, and the best so far, on standard error where that is a terminal."""
    console = streams.console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        bar = progress.add_task(f"tuning {device.name}", total=1.0)
        count = 0

        def tell(step: Step) -> None:
            nonlocal count
            count += 1
            progress.update(bar, completed=step.share, description=f"tuning {device.name}: {count} candidates")
            if step.better:
                progress.console.print(best_so_far(step), highlight=False, markup=False, soft_wrap=True)

        yield tell


def best_so_far(step: Step) -> str:
    """A line for a candidate that is the best of its product."""
    seconds = step.tried.outcome.seconds or 0.0
    flops = step.study.workload.problem.flops
    rate = f", {flops / seconds * 1e-9:,.1f} GFLOPS" if seconds and flops else ""
    return f"{step.study.workload.name}: {span(seconds)}{rate}: {told(*step.tried.candidate)}"
