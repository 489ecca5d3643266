"""`gemmport run`: verified, timed products beside their baselines."""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from gemmport.api.arguments import Types
from gemmport.api.product import Choice
from gemmport.api.scales import check_types
from gemmport.bench.products import Options, Result, compile_products, run_benchmark
from gemmport.bench.standings import Measured, Workload, standings
from gemmport.bench.streamed import StreamedResult, run_streamed
from gemmport.checking.scales import random_scales
from gemmport.cli import completion, options, streams
from gemmport.cli.kept import Task, keep
from gemmport.cli.output import (
    Column,
    Conditions,
    ProgramMeter,
    Sheet,
    bytes_on_terminal,
    drawn,
    duration,
    exit_status,
    number,
    progress_on_terminal,
    to_csv,
    to_json,
    troubles,
    tunings,
    unmet,
    verdict,
    write,
)
from gemmport.core.device import DeviceInfo
from gemmport.core.problem import MAX_EXTENT, GemmProblem
from gemmport.core.units import quantity, span
from gemmport.planning.lookup import load_configuration
from gemmport.planning.planner import AUTO

if TYPE_CHECKING:
    from gemmport.cli.comparison import Committed
    from gemmport.multidevice.outlook import Placement

MOST_SIZES = 10_000

Row: TypeAlias = "list[tuple[Measured, dict[str, Any]]]"
"""What came of a product on a device: the result of each kernel, with its data for JSON."""


@click.command(
    short_help="Compute products, verify and time them.",
    epilog="""\b
Examples:
  gemmport run --size 4096
  gemmport run --device all --kernel all --sizes 256:2048:256
  gemmport run --devices nvidia:0,nvidia:1 --size 32768
  gemmport run --shapes shapes.csv --format json --output now.json
  gemmport run --shapes shapes.csv --compare now.json""",
)
@options.devices
@options.together_devices
@options.placement
@click.option(
    "--kernel",
    default=AUTO,
    show_default=True,
    metavar="NAME[,NAME]",
    shell_complete=completion.kernels,
    help="auto (as the configuration says), all, or NAME[,NAME].",
)
@options.extents
@click.option("--sizes", metavar="START:STOP:STEP", help="Several sizes, STOP included.")
@click.option(
    "--shapes",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Shapes from a YAML or CSV file: m, n, k, and any of batch, dtype, output_dtype, accumulator, precision, trans_a, "
    "trans_b, alpha, beta, and label and source for people.",
)
@options.dtype
@click.option(
    "--output-dtype",
    metavar="TYPE",
    shell_complete=completion.dtypes,
    help="Of C and D. Default: that of A and B; integers wrap.",
)
@click.option(
    "--accumulator",
    metavar="TYPE",
    shell_complete=completion.dtypes,
    help="Of the sums: float16 for arithmetic in halves. Default: float32 or wider, int32 or int64.",
)
@options.precision
@options.transpositions
@click.option("--alpha", type=complex, default="1", show_default=True, help="A number: 2, 0.5, 1+2j.")
@click.option("--beta", type=complex, default="0", show_default=True, help="Likewise.")
@click.option("--batch", type=int, default=1, show_default=True, help="Products in one launch.")
@click.option(
    "--scales",
    type=click.Choice(["tensor", "rows"]),
    help="Random scales: a number for A and one for B, which alpha takes, or one for each row of op(A) and column of op(B).",
)
@options.config_files
@options.settings
@options.device_memory
@click.option(
    "--mapped",
    type=click.Path(path_type=Path, exists=True, file_okay=False, writable=True),
    metavar="FOLDER",
    help="With --device-memory: read A, B and C from memory maps of files there, for the time being.",
)
@options.baseline
@options.measurement
@click.option(
    "--threshold",
    type=options.POSITIVE,
    default=1.0,
    show_default=True,
    help="Over several problems: count those whose ratio to a baseline is less.",
)
@click.option(
    "--compare",
    "committed",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Set each ratio beside that of a JSON document of an earlier run on such a device.",
)
@options.report("table", "json", "csv")
@options.plot("GFLOPS and ratios over the problems")
def run(
    backend: str | None, device: tuple[str, ...], devices_together: tuple[str, ...], placement: Placement, kernel: str,
    m: int | None,
    n: int | None, k: int | None, size: int | None, sizes: str | None, shapes: Path | None, dtype: str,
    output_dtype: str | None, accumulator: str | None, precision: str | None, trans_a: str, trans_b: str, alpha: complex,
    beta: complex, batch: int, scales: str | None,
    config_files: tuple[Path, ...], settings: tuple[str, ...], device_memory: int | None, mapped: Path | None,
    baseline: str, verify: bool, repeat: int, seed: int, threshold: float, committed: Path | None, form: str,
    output: Path | None, plot_file: Path | None,
) -> int:  # fmt: skip
    """Compute products, verify them, and time them beside the baselines.

    Over several problems, the ratios to each baseline are summed up: geometric mean, worst, and how many are below
    --threshold.

    With --compare, each ratio to a baseline is set beside that of the file: worse and better are beyond the spread of
    both.

    With --device-memory, arrays on the host pass through the device in tiles; time is that of the whole call, without
    baselines.

    With --devices, several devices compute each product together, from arrays in the host's memory; beside it stands what the
    first device of each kind takes alone, in turns. With --placement they are on the devices. --device measures devices one
    after another.

    What is interrupted tells what was measured by then.

    With --device-memory or --devices, products that take seconds are timed three times, or for 15 s, unless --repeat is given.

    Exit status: 0 all verified; 1 a result failed verification, or a ratio is worse than in the file of --compare;
    2 bad usage or configuration, or a file that this run cannot be compared with; 3 the backend or device, or a baseline that
    --baseline names, is not usable here.
    """
    configuration = load_configuration(config_files)
    then: Committed | None = None
    if committed is not None:
        from gemmport.cli.comparison import Committed  # noqa: PLC0415 - which takes pydantic

        if form == "csv":
            raise click.UsageError("--compare prints a second table: use --format table or json")
        then = Committed(committed)
    workloads = _with_scales(
        _workloads(
            {"batch": batch, "dtype": dtype, "output": output_dtype, "accumulator": accumulator, "precision": precision,
             "default": configuration.precision, "trans_a": trans_a, "trans_b": trans_b, "alpha": alpha, "beta": beta},
            m, n, k, size, sizes, shapes,
        ),
        scales, seed, {"devices": devices_together, "device-memory": device_memory, "compare": committed},
    )  # fmt: skip
    if devices_together:
        return _together(
            workloads, devices_together, placement, backend, kernel, settings, config_files,
            {"device": device, "compare": committed, "plot": plot_file, "mapped": mapped,
             "baseline": baseline not in (AUTO, "none")},
            verify=verify, repeat=repeat, seed=seed, device_memory=device_memory, form=form, output=output,
        )  # fmt: skip
    options.check_alone(placement)
    chosen = Options(
        configuration=configuration,
        kernels=options.chosen_kernels(kernel),
        params=options.chosen_parameters(settings, kernel),
        params_origin="--set",
        baselines=options.chosen_baselines(baseline),
        verify=verify,
        repeat=repeat,
        seed=seed,
        scales=scales == "rows",
    )
    devices, unavailable = options.chosen_devices(backend, device)
    if output is not None:
        options.check_writable("--output", output)
    if plot_file is not None:
        from gemmport.cli.plots import check_plot, plot_run  # noqa: PLC0415 - which take the other commands' results

        check_plot(plot_file)
    if then is not None:
        then.check(Conditions(devices, unavailable, {}))  # refused before anything is measured
    if device_memory is not None:
        if form == "csv" or kernel == "all" or "," in kernel or any((then, plot_file, baseline not in (AUTO, "none"))):
            raise click.UsageError(
                "--device-memory takes one kernel, and --format table or json: leave out --baseline, --compare and --plot"
            )
        here = Conditions(devices, unavailable, {}, options.told_choice(backend, device, devices))
        return _in_tiles(workloads, here, chosen, kernel, config_files, device_memory, mapped, form=form, output=output)
    if mapped is not None:
        raise click.UsageError("--mapped says nothing without --device-memory: add it, or leave --mapped out")
    meter = ProgramMeter(devices)

    def tell(rows: Sequence[Row], left: dict[str, Any]) -> int:
        measured, dicts = [one for row in rows for one, _ in row], [told for row in rows for _, told in row]
        results = [one.result for one in measured]
        stand = standings(measured, chosen.kernels)
        conditions = Conditions(devices, unavailable, meter.counts(), options.told_choice(backend, device, devices))
        if then is not None:
            then.compare({"results": dicts}, conditions)
        if form == "csv":
            text = to_csv(dicts)
        elif form == "json":
            content = {
                "results": dicts,
                "standings": [one.to_dict(threshold) for one in stand],
                **({} if then is None else {"comparison": then.comparison.to_dict()}),
                **left,
            }
            text = to_json(content, conditions)
        else:
            sheets = [products_sheet(measured, [one.told(threshold) for one in stand], conditions)]
            sheets += [] if then is None else [then.sheet()]
            text = "\n".join(drawn(sheet, to_terminal=output is None) for sheet in sheets)
        write(text, output)
        if plot_file is not None:
            plot_run(measured, plot_file)
        for line in slower_than_numpy(results):
            streams.tell(f"warning: {line}")
        missing = unmet(chosen.baselines, devices)
        return exit_status(results) or missing or (0 if then is None or left else then.status())

    digested = form != "table" or then is not None
    return keep(_tasks(workloads, devices), _measured(workloads, devices, chosen, digested), tell)


def _tasks(workloads: Sequence[Workload], devices: Sequence[DeviceInfo]) -> list[Task]:
    return [Task(workload.name, {"device": device.label}) for workload in workloads for device in devices]


def _in_tiles(
    workloads: Sequence[Workload], here: Conditions, chosen: Options, kernel: str, config_files: Sequence[Path], memory: int,
    mapped: Path | None, *, form: str, output: Path | None,
) -> int:  # fmt: skip
    """What --device-memory does, on one device after another."""

    def streamed() -> Generator[StreamedResult, None, None]:
        with bytes_on_terminal() as told:
            for workload in workloads:
                for each in here.devices:
                    yield run_streamed(
                        workload.problem, each, memory, kernel=kernel, params=chosen.params, config=config_files,
                        verify=chosen.verify, repeat=chosen.repeat, seed=chosen.seed, mapped=mapped,
                        patience=options.patience(), progress=told,
                    )  # fmt: skip

    def tell(found: Sequence[StreamedResult], left: dict[str, Any]) -> int:
        if form == "json":
            write(to_json({"results": [one.to_dict() for one in found], **left}, here), output)
        else:
            write(drawn(streamed_sheet(found, here), to_terminal=output is None), output)
        return int(any(one.verified is False for one in found))

    return keep(_tasks(workloads, here.devices), streamed(), tell)


def _measured(
    workloads: Sequence[Workload], devices: Sequence[DeviceInfo], chosen: Options, digested: bool
) -> Generator[Row, None, None]:
    """What came of each workload on each device, as it is there.

    Args:
        digested: whether it is made data for JSON at once: digests take long where all are made in the end.
    """
    with progress_on_terminal() as tell:
        compile_products([workload.problem for workload in workloads], devices, chosen, tell)
        for workload in workloads:
            for device in devices:
                results = run_benchmark([workload.problem], [device], chosen, progress=tell)
                found = [Measured(workload, result) for result in results]
                yield [(one, one.to_dict() if digested else {}) for one in found]


def _together(
    workloads: Sequence[Workload], told: Sequence[str], placement: Placement, backend: str | None, kernel: str,
    settings: Sequence[str],
    config_files: Sequence[Path], refused: Mapping[str, object], *, verify: bool, repeat: int, seed: int,
    device_memory: int | None, form: str, output: Path | None,
) -> int:  # fmt: skip
    """What --devices does.

    Args:
        refused: options that say nothing of several devices together, by name.
    """
    from gemmport.bench.dealt import DealtOptions  # noqa: PLC0415 - which takes what deals
    from gemmport.cli.dealt import refuse_beside_devices, run_on_devices  # noqa: PLC0415 - likewise

    refuse_beside_devices(**refused)
    if len(options.chosen_kernels(kernel)) > 1:
        raise click.UsageError("--devices takes one kernel, or auto: name it with --kernel")
    if output is not None:
        options.check_writable("--output", output)
    files = [str(file) for file in config_files]
    choice = Choice(kernel, options.chosen_parameters(settings, kernel) or None, files or None)
    return run_on_devices(
        workloads, told, backend, DealtOptions(choice, verify, repeat, seed, device_memory, placement, options.patience()),
        form=form, output=output,
    )  # fmt: skip


def _workloads(
    defaults: dict[str, Any], m: int | None, n: int | None, k: int | None, size: int | None, sizes: str | None,
    shapes: Path | None,
) -> list[Workload]:  # fmt: skip
    if shapes is not None:
        if any(option is not None for option in (m, n, k, size, sizes)):
            raise click.UsageError("--shapes gives all sizes: leave out -m, -n, -k, --size and --sizes")
        from gemmport.cli.shapes import read_shapes  # noqa: PLC0415 - which takes pydantic

        return read_shapes(shapes, lambda **shape: options.make_problem(**{**defaults, **shape}))
    if size is not None and sizes is not None:
        raise click.UsageError("--size and --sizes exclude each other")
    each = _parse_sizes(sizes) if sizes is not None else [options.DEFAULT_SIZE if size is None else size]
    return [
        Workload(
            options.make_problem(m=s if m is None else m, n=s if n is None else n, k=s if k is None else k, **defaults)
        )
        for s in each
    ]


def _with_scales(
    workloads: list[Workload], scales: str | None, seed: int, others: Mapping[str, object]
) -> list[Workload]:  # fmt: skip
    """What --scales says, as far as problems tell it: numbers of whole matrices multiply alpha.

    Args:
        others: options that it does not go with, by name.

    Raises:
        UsageError: one of these is given. DtypeError: such products have no scales.
    """
    if scales is None:
        return workloads
    if told := [name for name, value in others.items() if value]:
        raise click.UsageError(f"--scales must stand without --{told[0]}; got both: leave one of them out")
    found = []
    for workload in workloads:
        problem = workload.problem
        check_types(Types(problem.dtype.numpy, problem.output.numpy), problem.accumulator.numpy)
        both = random_scales(replace(problem, m=1, n=1, batch=1), seed).factors.item() if scales == "tensor" else 1.0
        found.append(replace(workload, problem=problem.with_scalars(problem.alpha * both, problem.beta)))
    return found


def _parse_sizes(text: str) -> list[int]:
    found = re.fullmatch(r"([0-9]{1,10}):([0-9]{1,10}):([0-9]{1,10})", text)
    start, stop, step = map(int, found.groups()) if found else (0, 0, 0)
    if not found or step == 0 or stop < start:
        raise click.UsageError(
            f"--sizes {text!r}: write START:STOP:STEP with STOP ≥ START and STEP ≥ 1, e.g. 128:1024:128"
        )
    if stop > MAX_EXTENT or (stop - start) // step >= MOST_SIZES:
        raise click.UsageError(f"--sizes {text!r}: at most {MOST_SIZES} sizes of at most {MAX_EXTENT}")
    return list(range(start, stop + 1, step))


def streamed_sheet(results: Sequence[StreamedResult], conditions: Conditions) -> Sheet:
    """A row for each product that passed through a device in tiles."""
    columns = (
        Column("device", dispensable=2), Column("problem"), Column("tiles"), Column("terms", numbers=True, dispensable=3),
        Column("moved", numbers=True), Column("× 2mnk/√M", numbers=True), Column("time", numbers=True),
        Column("GFLOPS", numbers=True), Column("result"),
    )  # fmt: skip
    verdicts = {True: "PASS", False: "FAIL", None: "not verified"}
    rows = [
        [
            one.device.label,
            str(one.problem),
            f"{one.schedule.count} of {one.schedule.rows}×{one.schedule.columns}",
            str(one.schedule.depth),
            quantity(one.schedule.moved_bytes, "B"),
            number(one.schedule.traffic.elements / one.schedule.bound, 2) if one.schedule.bound else "",
            span(one.seconds),
            number(one.gflops, 1),
            verdicts[one.verified],
        ]
        for one in results
    ]
    return Sheet(columns, rows, [*conditions.notes()])


def products_sheet(measured: Sequence[Measured], told: Sequence[str], conditions: Conditions) -> Sheet:
    """A row for each result, and under them what is told of them all, what is missing and what went wrong."""
    results = [one.result for one in measured]
    names = list(dict.fromkeys(baseline.name for result in results for baseline in result.baselines if baseline.timing))
    columns = (
        Column("device", dispensable=2), Column("problem"), Column("kernel"), Column("parameters", dispensable=6),
        Column("time", numbers=True, dispensable=3), Column("GFLOPS", numbers=True),
        Column("% peak", numbers=True, dispensable=4), *(Column(f"× {name}", numbers=True, dispensable=1) for name in names),
        Column("error/bound", numbers=True, dispensable=5), Column("result"),
    )  # fmt: skip
    rows = [_cells(one, names) for one in measured]
    return Sheet(columns, rows, [*told, *conditions.notes(), *tunings(results), *troubles(results)])


def _cells(measured: Measured, baselines: Sequence[str]) -> list[str]:
    workload, result = measured.workload, measured.result
    plan, timing = result.plan, result.timing
    ratios = {baseline.name: result.ratio(baseline) for baseline in result.baselines}
    parameters = " ".join(f"{name}={choice.value}" for name, choice in plan.parameters) if plan else ""
    changed = {c.origin for _, c in plan.parameters if c.origin != plan.entry} if plan else set()
    origin = ", ".join(filter(None, (plan.entry if plan else "", *sorted(changed))))
    worst = max((check.error_over_bound for check in result.checks), default=None)
    return [
        f"{result.device.name}\n{result.device.backend} {result.device.platform} {result.device.platform_version}",
        f"{workload.label}\n{result.task}".strip(),
        result.kernel,
        f"{parameters}\n{origin}" if plan else "",
        duration(timing),
        number(result.rate(timing), 1),
        number(result.percent, 1),
        *(number(ratios.get(name), 3) for name in baselines),
        "" if worst is None else f"{worst:.2g}",
        verdict(result),
    ]


def slower_than_numpy(results: Sequence[Result]) -> list[str]:
    """A line for each device on which NumPy, on the host, was faster than the best kernel of some problem."""
    best: dict[DeviceInfo, dict[GemmProblem, float]] = {}
    for result in results:
        for ratio in (result.ratio(baseline) for baseline in result.baselines if baseline.name == "numpy"):
            if ratio is not None:
                ratios = best.setdefault(result.device, {})
                ratios[result.problem] = max(ratio, ratios.get(result.problem, 0.0))
    lines = []
    for device, ratios in best.items():
        slow = sorted(ratio for ratio in ratios.values() if ratio < 1)
        if slow:
            lines.append(
                f"{device.label} is slower than NumPy on this host at {len(slow)} of {len(ratios)} problems, at worst "
                f"{slow[0]:.2g} of its speed: use numpy there, or another device=… (gemmport devices lists them)"
            )
    return lines
