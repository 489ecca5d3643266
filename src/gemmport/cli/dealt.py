"""`gemmport run --devices`: products that several devices compute together."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

import click

from gemmport.bench.dealt import DealtOptions, DealtResult, run_dealt
from gemmport.bench.standings import Workload
from gemmport.cli import options
from gemmport.cli.kept import Task, keep
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
    to_csv,
    to_json,
    write,
)
from gemmport.execution.selection import ALL
from gemmport.multidevice.selection import Devices, chosen_backends


def described(told: Sequence[str]) -> Devices:
    """The devices of --devices, which may be repeated, and have commas in it."""
    names = options.device_names(told, "--devices")
    return ALL if options.means_all(names, "--devices") else list(names)


def refuse_beside_devices(**given: Any) -> None:
    """Raises UsageError where options are given that say nothing of several devices together."""
    for name, value in given.items():
        if value:
            raise click.UsageError(
                f"--devices must stand without --{name.replace('_', '-')}; got both: leave one of them out"
            )


def run_on_devices(
    workloads: Sequence[Workload], told: Sequence[str], backend: str | None, how: DealtOptions, *, form: str,
    output: Path | None,
) -> int:  # fmt: skip
    """Computes, verifies, times and tells; the exit status."""
    backends = chosen_backends(described(told), backend)
    meter = ProgramMeter([each.device for each in backends])

    def dealt() -> Generator[tuple[Workload, DealtResult], None, None]:
        with progress_on_terminal() as progress:
            for workload in workloads:
                yield workload, run_dealt(workload.problem, backends, how, progress=progress)

    def tell(found: Sequence[tuple[Workload, DealtResult]], left: dict[str, Any]) -> int:
        conditions = Conditions([each.device for each in backends], {}, meter.counts())
        content = [
            {"label": workload.label, "source": workload.source, **result.to_dict()} for workload, result in found
        ]
        if form == "csv":
            text = to_csv(content)
        elif form == "json":
            text = to_json({"dealt": content, **left}, conditions)
        else:
            text = drawn(_sheet(found, conditions), to_terminal=output is None)
        write(text, output)
        return exit_status(result for _, result in found)

    where = {"devices": [each.device.label for each in backends]}
    return keep([Task(workload.name, where) for workload in workloads], dealt(), tell)


def _sheet(found: Sequence[tuple[Workload, DealtResult]], conditions: Conditions) -> Sheet:
    columns = (
        Column("problem"), Column("devices"), Column("share", numbers=True), Column("tiles", numbers=True, dispensable=3),
        Column("alone", numbers=True, dispensable=2), Column("together", numbers=True), Column("GFLOPS", numbers=True),
        Column("× fastest alone", numbers=True, dispensable=1), Column("error/bound", numbers=True, dispensable=4),
        Column("result"),
    )  # fmt: skip
    rows = [_cells(workload, result) for workload, result in found]
    notes = [f"{workload.name}: {result.status}: {result.reason}" for workload, result in found if result.reason]
    notes += [
        f"{workload.name}: {part.name} is wrong: {part.wrong}" for workload, result in found for part in result.parts
        if part.wrong
    ]  # fmt: skip
    notes += [
        f"{workload.name} is not dealt: {result.parts[0].name} computes it alone: {result.not_dealt}"
        for workload, result in found
        if result.not_dealt and len(conditions.devices) > 1
    ]
    return Sheet(columns, rows, [*notes, *conditions.notes()])


def _cells(workload: Workload, result: DealtResult) -> list[str]:
    worst = max((check.error_over_bound for check in result.checks), default=None)
    passed = "not verified" if result.verified is None else "PASS"
    return [
        f"{workload.label}\n{result.problem}".strip(),
        "\n".join(part.name for part in result.parts),
        "\n".join(f"{100 * part.share:.1f}%" for part in result.parts),
        "\n".join(str(part.tiles) for part in result.parts),
        "\n".join(duration(part.alone) for part in result.parts),
        duration(result.together),
        number(result.gflops, 1),
        number(result.speedup, 3),
        "" if worst is None else f"{worst:.2g}",
        {"ok": passed, "failed": "FAIL"}.get(result.status, result.status),
    ]
