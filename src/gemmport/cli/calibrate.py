"""`gemmport calibrate`: measures what a device takes for the parts of a product, and writes it as a device model."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from gemmport.bench.environment import host_environment
from gemmport.calibration.entry import file_name, file_text, model_entry
from gemmport.calibration.figures import Figure, is_multiply_adds, is_rate
from gemmport.calibration.measuring import Measured, calibrate
from gemmport.calibration.suite import OF_MATRICES
from gemmport.cli import options, streams
from gemmport.cli.output import (
    Column,
    Conditions,
    ProgramMeter,
    Sheet,
    drawn,
    progress_on_terminal,
    to_json,
    write,
)
from gemmport.contracts.device_model import DeviceModel
from gemmport.core.errors import CalibrationError
from gemmport.execution.selection import get_backend, select_device
from gemmport.planning.lookup import load_configuration, user_folder
from gemmport.runtime import files

DISTURBED = 0.1
"""Spread of a number above which the machine is said to have done something else."""


@click.command("calibrate")
@options.one_device
@click.option(
    "-o", "--output", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
    help="Write the model there, as a configuration for --config.",
)  # fmt: skip
@click.option("--install", is_flag=True, help="Write it into your configuration folder, which is read from then on.")
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table", show_default=True)
def calibrate_command(
    backend: str | None, device: str | None, output: Path | None, install: bool, form: str
) -> int:  # fmt: skip
    """Measure a device's model, in a minute at most.

    Multiply-adds per second of each type and of matrix units, bandwidths, delays: by micro-benchmarks, of which each is
    verified, and which take turns. The model says how long a kernel takes with which tiles, and so which are chosen. Let
    nothing else run meanwhile.

    Exit status: 0; 1 a benchmark computes wrongly, or leaves work out, and nothing is written; 2 bad usage or configuration;
    3 a device refuses, or is not usable.
    """
    info = select_device(device, backend)
    target = _target(output, install, file_name(info))
    before = load_configuration().model(info)
    meter = ProgramMeter([info])
    opened = get_backend(device=info)
    start = time.monotonic()
    with progress_on_terminal() as tell:
        try:
            measured = calibrate(opened, progress=lambda text: tell(f"{info.label}: {text}"))
        except CalibrationError as error:
            streams.echo(f"gemmport: {error}", err=True)
            return 1
    if target is not None and measured.figures:
        files.write_text(target, file_text(measured))
    taken = options.told_choice(backend, [device] if device else [], [info])
    conditions = Conditions([info], {}, meter.counts(), taken)
    if form == "json":
        write(to_json(_document(measured, target), conditions), None)
    else:
        notes = [*_told(measured, before, target, time.monotonic() - start), *conditions.notes()]
        write(drawn(_sheet(measured, before, notes), to_terminal=True), None)
    return 0 if measured.figures else 3


def _target(output: Path | None, install: bool, name: str) -> Path | None:
    """Where the model goes; fails before the work, not after it."""
    if output is not None and install:
        raise click.UsageError("-o FILE and --install are two places for one model: name one of them")
    if install:
        folder = user_folder()
        if folder is None:
            raise click.UsageError(
                "--install: an empty GEMMPORT_CONFIG_PATH leaves your configuration folder out; unset it"
            )
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise click.UsageError(f"--install: {folder}: {error.strerror}") from error
        output = folder / name
    if output is not None:
        options.check_writable("--install" if install else "--output", output)
    return output


def _sheet(measured: Measured, before: DeviceModel, notes: Sequence[str]) -> Sheet:
    """A row for each number, beside what held before."""
    columns = (
        Column("number"), Column("measured", numbers=True), Column("spread", numbers=True), Column("before", numbers=True),
        Column("by", dispensable=1),
    )  # fmt: skip
    rows = []
    for figure in measured.figures:
        benchmark = measured.forms[figure.name]
        form = " ".join(f"{name}={value}" for name, value in benchmark.form.items())
        rows.append([
            figure.name.replace("_", " "), _in_units(figure.name, figure.value), f"±{100 * figure.spread:.1f}%",
            "" if (held := _before(figure, before)) is None else _in_units(figure.name, held),
            f"{benchmark.function} {form}",
        ])  # fmt: skip
    return Sheet(columns, rows, notes)


def _before(figure: Figure, model: DeviceModel) -> float | None:
    """None where kernels took the rate of other units, or times of their own."""
    if not is_multiply_adds(figure.name):
        return float(getattr(model, figure.name))
    dtype = figure.name.split()[-1]
    return (model.matrix_multiply_adds if figure.name.startswith(OF_MATRICES) else model.multiply_adds).get(dtype)


def _in_units(name: str, value: float) -> str:
    """A number of a model for people."""
    if is_rate(name):
        return f"{value * 1e-9:,.4g} G/s" if is_multiply_adds(name) else f"{value * 1e-9:,.4g} GB/s"
    return f"{value * 1e6:,.3g} µs" if value >= 1e-6 else f"{value * 1e9:,.3g} ns"


def _told(measured: Measured, before: DeviceModel, target: Path | None, seconds: float) -> list[str]:
    device = measured.device
    disturbed = [figure.name for figure in measured.figures if figure.spread > DISTURBED]
    lines = [
        f"{device.label}, driver {device.driver or 'unknown'}, in {seconds:.0f} s; before: {before.origin}",
        *([f"disturbed: {', '.join(disturbed)}; let nothing else run, and measure again"] if disturbed else []),
        *(f"{name} is left out, and derived: {reason}" for name, reason in measured.left_out.items()),
    ]
    if not measured.figures:
        return [*lines, "nothing was measured, and nothing is written"]
    return [*lines, f"written to {target}" if target else "written nowhere: -o FILE or --install keeps it"]


def _document(measured: Measured, target: Path | None) -> dict[str, Any]:
    """What docs/tuning.md says of the JSON."""
    entry = model_entry(measured, host_environment())
    entry["provenance"] = {**entry["provenance"], "date": entry["provenance"]["date"].isoformat()}
    return {
        "model": entry,
        "figures": [
            {
                **asdict(figure), "median": figure.value, "spread": figure.spread,
                "function": (benchmark := measured.forms[figure.name]).function, "parameters": dict(benchmark.form),
                "groups": benchmark.groups, "steps": benchmark.steps, "amount": benchmark.amount,
            }
            for figure in measured.figures
        ],
        "left_out": dict(measured.left_out),
        "seconds": measured.seconds,
        "written_to": None if target is None else str(target),
    }  # fmt: skip
