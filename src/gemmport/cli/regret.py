"""`gemmport regret`: what the planner's choices cost beside the best candidates of a sweep."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import click

from gemmport.bench.environment import host_environment
from gemmport.bench.regret import Choice, Regret, judge
from gemmport.bench.sweeps import read_sweep
from gemmport.cli import options
from gemmport.cli.output import SCHEMA, Column, Sheet, drawn, number, write
from gemmport.core.plan import ParameterValue
from gemmport.core.units import span
from gemmport.planning.lookup import load_configuration


@click.command(short_help="Judge the planner by a sweep.")
@click.argument("file", type=click.Path(path_type=Path))
@options.config_files
@options.report("table", "json")
def regret(file: Path, config_files: tuple[Path, ...], form: str, output: Path | None) -> int:
    """Judge the planner by the sweep in FILE, which benchmarks/sweep.py or gemmport tune wrote.

    For every workload, the time that the sweep recorded for the planner's choice over that of the best candidate:
    median, 90th percentile and worst. Nothing is run, and the device of the sweep need not be there.

    Exit status: 0; 2 bad usage, configuration or file.
    """
    found = judge(read_sweep(file), load_configuration(config_files))
    if output is not None:
        options.check_writable("--output", output)
    if form == "json":
        document = {"schema": SCHEMA, "environment": host_environment(), "sweep": str(file), **found.to_dict()}
        text = json.dumps(document, indent=2, allow_nan=False) + "\n"
    else:
        text = drawn(_sheet(found), to_terminal=output is None)
    write(text, output)
    return 0


def _sheet(found: Regret) -> Sheet:
    """A row for each workload, the worst first and those whose regret is not known behind them."""
    columns = (
        Column("problem"), Column("choice", dispensable=3), Column("time", numbers=True, dispensable=2),
        Column("best", dispensable=4), Column("best time", numbers=True, dispensable=1), Column("regret", numbers=True),
    )  # fmt: skip
    rows = [_cells(choice) for choice in (*(choice for _, choice in found.ranked), *found.unknown)]
    notes = [f"{choice.workload.name}: {choice.reason}" for choice in found.unknown]
    return Sheet(columns, rows, [found.told(), *notes])


def _cells(choice: Choice) -> list[str]:
    plan, recorded, best = choice.plan, choice.recorded, choice.best
    return [
        f"{choice.workload.label}\n{choice.workload.problem}".strip(),
        _candidate(plan.variant, plan.values) if plan else "",
        span(recorded.seconds) if recorded else "",
        _candidate(best.kernel, best.parameters) if best and best != recorded else "",
        span(best.seconds) if best else "",
        number(choice.regret, 3),
    ]


def _candidate(kernel: str, parameters: Mapping[str, ParameterValue]) -> str:
    return " ".join([kernel, *(f"{name}={value}" for name, value in parameters.items())])
