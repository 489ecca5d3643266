"""`gemmport calls`: what a product costs as a user calls it, of arrays of each library, beside the library's own."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Generator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click

from gemmport.bench import libraries
from gemmport.bench.calls import SHOWN, Called, Result, Summary, check_called, floor_of, reaching, run_calls, summaries
from gemmport.bench.generated import generated
from gemmport.bench.libraries import Library
from gemmport.bench.results import seconds_to_dict
from gemmport.bench.standings import Workload
from gemmport.bench.timing import Timing
from gemmport.cli import completion, once, options, plots, streams
from gemmport.cli.kept import Task, keep
from gemmport.cli.output import (
    Column,
    Conditions,
    ProgramMeter,
    Sheet,
    drawn,
    exit_status,
    number,
    progress_on_terminal,
    to_json,
    write,
)
from gemmport.core.device import DeviceInfo
from gemmport.core.errors import LibraryUnavailableError
from gemmport.core.problem import GemmProblem
from gemmport.core.units import span
from gemmport.execution.selection import get_backend

SCHEMA = 3
"""Of the JSON document. That of benchmarks/calls.py, which this command replaces, was 2."""

SIZES = "64,128,256,512,1024"


@click.command(short_help="Measure what calls from Python cost.")
@click.option(
    "--arrays",
    metavar="NAME[,NAME]",
    help=f"{', '.join(libraries.names())} (gemmport's own are device). Default: all that are installed and reach the device.",
)
@options.devices
@click.option("--sizes", metavar="SIZE[,SIZE]", help=f"m = n = k. Default: {SIZES}.")
@click.option(
    "--shapes",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Shapes from a YAML or CSV file: m, n, k, and any of batch, dtype, trans_a, trans_b, label and source.",
)
@click.option(
    "--generate",
    "count",
    type=click.IntRange(min=1, max=10_000),
    metavar="COUNT",
    help="So many products that stand in no file, drawn from --seed: decoding, attention, Gram matrices, primes, ...",
)
@click.option(
    "--dtype",
    "dtypes",
    default="float32",
    show_default=True,
    metavar="TYPE[,TYPE]",
    shell_complete=completion.dtypes,
    help="Of the arrays.",
)
@click.option(
    "--result",
    "results",
    type=click.Choice(["out", "new"]),
    multiple=True,
    default=("out", "new"),
    help="Only with out=, or only with a new result. Default: both.",
)
@click.option("--turns", type=click.IntRange(min=1), default=7, show_default=True, help="Samples of each measurement.")
@options.precision
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    help="Of the random operands, and of --generate. Default: 0; with --generate another each time, which is told.",
)
@options.report("table", "json")
@options.plot("the ratios")
def calls(
    arrays: str | None, backend: str | None, device: tuple[str, ...], sizes: str | None, shapes: Path | None,
    count: int | None, dtypes: str, results: Sequence[Result], turns: int, precision: str | None, seed: int | None,
    form: str, output: Path | None, plot_file: Path | None,
) -> int:  # fmt: skip
    """Measure calls of matmul with arrays of each library, beside the library's own product.

    Three ways: until a call returns (with out= and with a new result), call after call with one wait for all, and each call
    with a wait. Results are verified first. With --precision tf32 PyTorch on a GPU computes float32 in TF32, too; no other
    library's product stands beside one that is rounded. PyTorch's product stands beside gemmport's own arrays and PyOpenCL's,
    where it runs on the same GPU; beside NumPy's there it copies them to the GPU and the product back.
    What is interrupted tells what was measured by then.

    Exit status: 0 all verified; 1 a result is wrong; 2 bad usage; 3 a device, or a library that --arrays names, is not
    usable here.
    """
    seed = seed if seed is not None else secrets.randbelow(2**31) if count else 0
    problem = partial(_problem, precision=precision)
    workloads = _workloads(sizes, shapes, count, seed, parts(dtypes), problem)
    devices, unavailable = options.chosen_devices(backend, device)
    found = libraries_of(devices, None if arrays is None else parts(arrays))
    if output is not None:
        options.check_writable("--output", output)
    plots.check_plot(plot_file)
    meter = ProgramMeter(devices)
    floors: dict[DeviceInfo, Timing] = {}

    def measured() -> Generator[tuple[Called, dict[str, Any]], None, None]:
        with progress_on_terminal() as progress:
            progress("the floor")
            floors.update({device: floor_of(get_backend(device=device), turns) for device in devices})
            for one in run_calls(workloads, found, turns=turns, seed=seed, results=results, progress=progress):
                yield one, one.to_dict() if form == "json" else {}  # digests take long where all are made in the end

    def tell(pairs: Sequence[tuple[Called, dict[str, Any]]], left: dict[str, Any]) -> int:
        came = [one for one, _ in pairs]
        conditions = Conditions(devices, unavailable, meter.counts(), options.told_choice(backend, device, devices))
        if form == "json":
            content = {
                "schema": SCHEMA,
                "seed": seed,
                "libraries": versions_of(found),
                "floors": {device.label: seconds_to_dict(floor) for device, floor in floors.items()},
                "results": [told for _, told in pairs],
                "summaries": [one.to_dict() for one in summaries(came)],
                **left,
            }
            text = to_json(content, conditions)
        else:
            text = drawn(calls_sheet(came, floors, conditions, seed if count else None), to_terminal=output is None)
        write(text, output)
        if plot_file is not None:
            plots.plot_calls(came, plot_file)
        return exit_status(came)

    tasks = [
        Task(workload.name, {"device": library.backend.device.label, "arrays": library.name})
        for workload in workloads
        for library in found
    ]
    return keep(tasks, measured(), tell)


def parts(text: str) -> list[str]:
    """What stands between commas, each once."""
    return list(dict.fromkeys(part.strip() for part in text.split(",")))


def _workloads(
    sizes: str | None, shapes: Path | None, count: int | None, seed: int, dtypes: Sequence[str],
    problem: Callable[..., GemmProblem],
) -> list[Workload]:  # fmt: skip
    if count is not None:
        if sizes is not None or shapes is not None:
            raise click.UsageError("--generate draws all sizes: leave out --sizes and --shapes")
        return [one for dtype in dtypes for one in generated(count, seed, partial(problem, dtype))]
    if shapes is None:
        return [Workload(problem(dtype, m=s, n=s, k=s)) for dtype in dtypes for s in _sizes(sizes or SIZES)]
    if sizes is not None:
        raise click.UsageError("--shapes gives all sizes: leave out --sizes")
    from gemmport.cli.shapes import read_shapes  # noqa: PLC0415 - which takes pydantic

    found = (one for dtype in dtypes for one in read_shapes(shapes, partial(problem, dtype)))
    return list(dict.fromkeys(found))  # a row that gives its type is there once


def _problem(usual: str, /, *, precision: str | None = None, **shape: Any) -> GemmProblem:
    """The problem of a shape that may leave its type out."""
    return check_called(options.make_problem(**{"dtype": usual, "precision": precision, **shape}))


def _sizes(text: str) -> list[int]:
    if not re.fullmatch(r"[0-9]{1,10}(,[0-9]{1,10})*", text):
        raise click.UsageError(f"--sizes {text!r}: write sizes with commas between, e.g. {SIZES}")
    return [int(size) for size in parts(text)]


def libraries_of(devices: Sequence[DeviceInfo], asked: Sequence[str] | None) -> list[Library]:
    """The libraries that are measured, each with its device. Those that are not are told on standard error.

    Raises:
        LibraryUnavailableError: one that was asked for is missing.
    """
    found: list[Library] = []
    left_out: dict[str, str] = {}
    for device in devices:
        here, missing = reaching(get_backend(device=device), libraries.names() if asked is None else asked)
        if asked is not None and missing:
            raise LibraryUnavailableError("; ".join(missing.values()))
        left_out |= {f"{name} is left out": reason for name, reason in missing.items()}
        found += here
    for line in once.news(left_out):
        streams.tell(line)
    return found


def versions_of(found: Sequence[Library]) -> dict[str, str]:
    """The version of each library that has one."""
    return {library.name: library.version for library in found if library.version}


def calls_sheet(
    measured: Sequence[Called], floors: dict[DeviceInfo, Timing], conditions: Conditions, seed: int | None
) -> Sheet:
    """A row for each result; under them the geometric mean and the worst of each ratio, floors, the seed, what went wrong."""
    columns = [Column("device", dispensable=2), Column("arrays"), Column("problem")]
    for heading, _, _ in SHOWN:
        columns += [Column(heading, numbers=True, dispensable=3), Column(f"× {heading}", numbers=True, dispensable=1)]
    columns += [Column("beside", dispensable=4), Column("result")]
    shown = {(one.arrays, way, one.first_of(results)) for one in measured for _, way, results in SHOWN}
    told = [_told(one) for one in summaries(measured) if (one.arrays, one.way, one.result) in shown]
    told += [
        f"{device.label}: a kernel that does nothing is launched and awaited in {span(floor.median)}"
        for device, floor in floors.items()
    ]
    told += [] if seed is None else [f"shapes and numbers are drawn from --seed {seed}"]
    return Sheet(columns, [_cells(one) for one in measured], [*told, *conditions.notes(), *_troubles(measured)])


def _cells(one: Called) -> list[str]:
    times: list[str] = []
    for _, way, results in SHOWN:
        result = one.first_of(results)
        times += [span(one.times[result][way].median), number(one.ratio(way, result), 2)] if result else ["", ""]
    device = one.device
    return [
        f"{device.name}\n{device.backend} {device.platform} {device.platform_version}",
        one.arrays,
        f"{one.workload.label}\n{one.workload.problem}".strip(),
        *times,
        one.beside.name if one.beside else "",
        {"ok": "PASS", "failed": "FAIL"}.get(one.status, one.status),
    ]


def _told(summary: Summary) -> str:
    """One line for people."""
    name, ratio = summary.ratios[0]
    way = summary.way.replace("_", " ")
    result = "out" if summary.result == "out" else "a new result"
    many = "s" * (len(summary.ratios) != 1)
    return (
        f"× {summary.baseline}, arrays of {summary.arrays} on {summary.device.label}, {way} with {result}: geometric mean "
        f"{summary.geometric_mean:.3f} over {len(summary.ratios)} problem{many}, worst {ratio:.3f} ({name})"
    )


def _troubles(measured: Sequence[Called]) -> list[str]:
    """Why results are wrong or missing, of either side, each once."""
    notes = [f"{one.arrays}, {one.workload.name}: {one.status}: {one.reason}" for one in measured if one.reason]
    notes += [
        f"{one.beside.name}, {one.workload.name}: {one.beside.reason}"
        for one in measured
        if one.beside and one.beside.reason
    ]
    return list(dict.fromkeys(notes))
