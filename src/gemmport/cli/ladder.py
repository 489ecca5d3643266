"""`gemmport ladder`: every step of a ladder, verified, timed, and set beside the step before it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from gemmport import kernels as family
from gemmport.bench.environment import host_environment
from gemmport.bench.ladder import Climb, Step, climb_gemm, climb_passes
from gemmport.bench.pass_jobs import PassJob, Reduction, Transposition
from gemmport.bench.passes import BASELINES, PassOptions
from gemmport.bench.products import Options
from gemmport.cli import options, plots
from gemmport.cli.groups import Group
from gemmport.cli.output import (
    Column,
    Conditions,
    ProgramMeter,
    Sheet,
    drawn,
    duration,
    exit_status,
    number,
    progress_on_terminal,
    short_names,
    to_csv,
    to_json,
    to_markdown,
    troubles,
    tunings,
    unmet,
    verdict,
    write,
)
from gemmport.core.device import DeviceInfo
from gemmport.core.dtypes import as_dtype
from gemmport.core.problem import MAX_EXTENT
from gemmport.planning.lookup import load_configuration

DEFAULT_SIDE = 4096
"""Rows and columns of the matrix that is transposed: those of the published ladders."""

DEFAULT_COUNT = 2**26
"""Numbers that are added up: so many that starting a kernel takes no time beside reading them."""

extent = click.IntRange(1, MAX_EXTENT)

results_options = options.together(
    options.measurement,
    options.report("table", "markdown", "json", "csv"),
    options.plot("the ladder"),
)  # fmt: skip

pass_baseline = click.option(
    "--baseline", default="auto", show_default=True,
    help="auto (numpy, where the device is the host's CPU), none, or numpy. The runtime's own copy is always there.",
)  # fmt: skip


@click.group(cls=Group)
def ladder() -> None:
    """Climb a ladder: each step adds one idea to the one before it.

    Every step is verified, and timed in turn with all others and with the baselines. --backend all and --device all set
    devices side by side. Exit status: as of gemmport run.
    """


@ladder.command()
@options.devices
@options.extents
@options.dtype
@options.transpositions
@options.config_files
@options.settings
@options.baseline
@results_options
def gemm(
    backend: str | None, device: tuple[str, ...], m: int | None, n: int | None, k: int | None, size: int | None, dtype: str,
    trans_a: str, trans_b: str, config_files: tuple[Path, ...], settings: tuple[str, ...], baseline: str, verify: bool,
    repeat: int, seed: int, form: str, output: Path | None, plot_file: Path | None,
) -> int:  # fmt: skip
    """The kernels of products, from naive on.

    Each takes its parameters from the configuration; --set changes those of every kernel that has them.
    """
    each = options.DEFAULT_SIZE if size is None else size
    sizes: dict[str, Any] = {name: each if given is None else given for name, given in (("m", m), ("n", n), ("k", k))}
    problem = options.make_problem(**sizes, dtype=dtype, trans_a=trans_a, trans_b=trans_b)
    chosen = Options(
        configuration=load_configuration(config_files),
        params=options.chosen_parameters(settings, "all"),
        params_origin="--set",
        baselines=options.chosen_baselines(baseline),
        verify=verify,
        repeat=repeat,
        seed=seed,
    )
    report = _Report("gemm", form, output, plot_file)
    return _climb(
        backend, device, report, lambda devices, tell: climb_gemm(problem, devices, chosen, progress=tell), chosen.baselines
    )  # fmt: skip


@ladder.command()
@options.devices
@click.option("--rows", type=extent, help="Of the source.")
@click.option("--columns", type=extent, help="Of the source.")
@click.option("--size", type=extent, default=DEFAULT_SIDE, show_default=True, help="Rows and columns not given.")
@options.dtype
@pass_baseline
@results_options
def transpose(
    backend: str | None, device: tuple[str, ...], rows: int | None, columns: int | None, size: int, dtype: str,
    baseline: str, verify: bool, repeat: int, seed: int, form: str, output: Path | None, plot_file: Path | None,
) -> int:  # fmt: skip
    """Copies and transpositions of a matrix.

    In GB/s read and written, and percent of the runtime's own copy.
    """
    job = Transposition(rows or size, columns or size, as_dtype(dtype))
    chosen = PassOptions(options.chosen_baselines(baseline, BASELINES), verify, repeat, seed)
    return _climb_passes(backend, device, job, chosen, _Report("transpose", form, output, plot_file))


@ladder.command()
@options.devices
@click.option("--size", type=click.IntRange(min=1), default=DEFAULT_COUNT, show_default=True, help="How many numbers.")
@options.dtype
@pass_baseline
@results_options
def reduce(
    backend: str | None, device: tuple[str, ...], size: int, dtype: str,
    baseline: str, verify: bool, repeat: int, seed: int, form: str, output: Path | None, plot_file: Path | None,
) -> int:  # fmt: skip
    """Sums of many numbers.

    In GB/s read, and percent of the bandwidth, read and written, of the runtime's own copy.
    """
    job = Reduction(size, as_dtype(dtype))
    chosen = PassOptions(options.chosen_baselines(baseline, BASELINES), verify, repeat, seed)
    return _climb_passes(backend, device, job, chosen, _Report("reduce", form, output, plot_file))


@dataclass(frozen=True)
class _Report:
    """What is told of a ladder, and where."""

    ladder: str
    form: str
    output: Path | None
    plot_file: Path | None

    def check(self) -> None:
        """Fails before the work, not after it."""
        if self.output is not None:
            options.check_writable("--output", self.output)
        plots.check_plot(self.plot_file)

    def tell(self, found: Sequence[Climb], conditions: Conditions) -> None:
        write(self._text(found, conditions), self.output)
        if self.plot_file is not None:
            plots.plot_ladder(found, f"gemmport ladder {self.ladder}", self.plot_file)

    def _text(self, found: Sequence[Climb], conditions: Conditions) -> str:
        steps = [step.to_dict() for climb in found for step in climb.steps]
        if self.form == "csv":
            return to_csv(steps)
        if self.form == "json":
            return to_json({"ladder": self.ladder, "results": steps}, conditions)
        sheet = _sheet(found, conditions)
        return to_markdown(sheet) if self.form == "markdown" else drawn(sheet, to_terminal=self.output is None)


def _climb(
    backend: str | None, device: tuple[str, ...], report: _Report,
    work: Callable[[Sequence[DeviceInfo], Callable[[str], None]], list[Climb]], named: Sequence[str] = (),
) -> int:  # fmt: skip
    """Chooses the devices, does the work on them, and reports it.

    Args:
        named: the baselines of products, which the exit status depends on where they are not here.
    """
    devices, unavailable = options.chosen_devices(backend, device)
    report.check()
    meter = ProgramMeter(devices)
    with progress_on_terminal() as tell:
        found = work(devices, tell)
    taken = options.told_choice(backend, device, devices)
    report.tell(found, Conditions(devices, unavailable, meter.counts(), taken))
    missing = unmet(named, devices)
    return exit_status(step.result for climb in found for step in climb.steps) or missing


def _climb_passes(
    backend: str | None, device: tuple[str, ...], job: PassJob, chosen: PassOptions, report: _Report
) -> int:
    rungs = family.ladders()[report.ladder]
    return _climb(
        backend, device, report, lambda devices, tell: climb_passes(job, rungs, devices, chosen, progress=tell)
    )  # fmt: skip


def _sheet(found: Sequence[Climb], conditions: Conditions) -> Sheet:
    """A row for each step, and side by side in it what each device made of it."""
    names_of = short_names([climb.device for climb in found])
    labels = [f"{names_of[climb.device]} " if len(found) > 1 else "" for climb in found]
    columns = [Column("step"), Column("parameters", dispensable=6)]
    rows = [
        [steps[0].result.name, _parameters(steps, labels)] for steps in zip(*(c.steps for c in found), strict=True)
    ]  # fmt: skip
    for climb, label in zip(found, labels, strict=True):
        names = list(dict.fromkeys(b.name for step in climb.steps for b in step.result.baselines if b.timing))
        kind = climb.steps[0].result
        told = {
            "time": 3, kind.unit: 0, f"% {kind.yardstick}": 5, **{f"% {name}": 4 for name in names}, "gain": 2,
        }  # fmt: skip
        columns += [
            Column(f"{label}{heading}", numbers=True, dispensable=rank, group=label) for heading, rank in told.items()
        ]
        columns.append(Column(f"{label}result", dispensable=1, group=label))
        for row, step in zip(rows, climb.steps, strict=True):
            row.extend(_cells(step, names))
    results = [step.result for climb in found for step in climb.steps]
    return Sheet(columns, rows, [*_circumstances(found), *conditions.notes(), *tunings(results), *troubles(results)])


def _parameters(steps: Sequence[Step], labels: Sequence[str]) -> str:
    """Of one step on all devices: once where they are the same."""
    texts = [" ".join(f"{name}={value}" for name, value in step.result.values.items()) for step in steps]
    if len(set(texts)) == 1:
        return texts[0]
    return "\n".join(f"{label.strip()}: {text}" for label, text in zip(labels, texts, strict=True) if text)


def _cells(step: Step, baselines: Sequence[str]) -> list[str]:
    result = step.result
    ratios = {baseline.name: result.ratio(baseline) for baseline in result.baselines}
    shares = [None if ratio is None else 100 * ratio for ratio in map(ratios.get, baselines)]
    return [
        duration(result.timing),
        number(result.rate(result.timing), 1),
        number(result.percent, 1),
        *(number(share, 1) for share in shares),
        "" if step.gain is None else f"{step.gain:.2f}×",
        verdict(result),
    ]


def _circumstances(found: Sequence[Climb]) -> list[str]:
    """What was done on which devices, what the percentages are of, and with which versions."""
    lines, host = [], host_environment()
    versions = {name: host[name] for name in ("gemmport", "python", "numpy")}
    for climb in found:
        results = [step.result for step in climb.steps]
        lines.append(f"{results[0].task} on {climb.device.label}, driver {climb.device.driver or 'unknown'}")
        lines += [result.about_yardstick for result in results if result.about_yardstick][:1]
        versions |= {b.name: b.version for result in results for b in result.baselines if b.timing}
    told = ", ".join(f"{name} {version}" for name, version in versions.items())
    return [*lines, f"{told}; {host['date']}"]
