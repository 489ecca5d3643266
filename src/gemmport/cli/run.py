"""`gemmport run`: verified, timed products beside their baselines."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.console import Console

from gemmport import baselines as known_baselines
from gemmport import kernels as known_kernels
from gemmport.benchmark import Options, Result, run_benchmark
from gemmport.cli.output import progress_on_terminal, slower_than_numpy, to_csv, to_json, to_table
from gemmport.cli.shapes import read_shapes
from gemmport.config import load_configuration
from gemmport.device import DeviceInfo
from gemmport.dtypes import DTYPES
from gemmport.environment import host_environment
from gemmport.errors import BackendUnavailableError, DeviceNotFoundError, UnknownNameError
from gemmport.plan import ParameterValue
from gemmport.planner import AUTO
from gemmport.problem import MAX_EXTENT, GemmProblem
from gemmport.selection import get_backend, parse_backends, select_device

DEFAULT_SIZE = 1024
MOST_SIZES = 10_000


@click.command()
@click.option(
    "--backend",
    default=None,
    help="opencl, cuda, auto (that of the best device) or all (side by side). Default: GEMMPORT_BACKEND, or auto.",
)
@click.option(
    "--device",
    default=None,
    help="PLATFORM[:DEVICE], by index or part of the name. Default: GEMMPORT_DEVICE, or the best.",
)
@click.option(
    "--kernel", default=AUTO, show_default=True, help="auto (as the configuration says), all, or NAME[,NAME]."
)
@click.option("-m", "m", type=int, help="Rows of op(A) and C.")
@click.option("-n", "n", type=int, help="Columns of op(B) and C.")
@click.option("-k", "k", type=int, help="Columns of op(A), rows of op(B).")
@click.option("--size", type=int, help=f"m, n and k, where they are not given. Default: {DEFAULT_SIZE}.")
@click.option("--sizes", metavar="START:STOP:STEP", help="Several sizes, STOP included.")
@click.option(
    "--shapes",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Shapes from a YAML or CSV file: m, n, k, and any of batch, dtype, output_dtype, accumulator, trans_a, trans_b, "
    "alpha, beta.",
)
@click.option("--dtype", default="float32", show_default=True, help=f"Of A and B: {', '.join(DTYPES)}.")
@click.option("--output-dtype", help="Of C and D. Default: that of A and B; integers wrap.")
@click.option(
    "--accumulator", help="Of the sums: float16 for arithmetic in halves. Default: float32 or wider, int32 or int64."
)
@click.option(
    "--trans-a",
    default="N",
    is_flag=False,
    flag_value="T",
    metavar="[N|T|C|R]",
    help="op(A): as it is, transposed, conjugate-transposed, conjugated; T where no value is given.",
)
@click.option("--trans-b", default="N", is_flag=False, flag_value="T", metavar="[N|T|C|R]", help="op(B), likewise.")
@click.option("--alpha", type=complex, default="1", show_default=True, help="A number: 2, 0.5, 1+2j.")
@click.option("--beta", type=complex, default="0", show_default=True, help="Likewise.")
@click.option("--batch", type=int, default=1, show_default=True, help="Products in one launch.")
@click.option(
    "--config",
    "config_files",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="A configuration that goes before all others; repeatable.",
)
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="A parameter of the kernel; repeatable.")
@click.option(
    "--baseline", default=AUTO, show_default=True, help="auto (those that belong to the device), none, or NAME[,NAME]."
)
@click.option("--verify/--no-verify", default=True, show_default=True)
@click.option(
    "--repeat", type=click.IntRange(min=1), default=10, show_default=True, help="Samples of each measurement."
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of the random operands.")
@click.option("--format", "form", type=click.Choice(["table", "json", "csv"]), default="table", show_default=True)
@click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write there instead of standard output.",
)
def run(
    backend: str | None, device: str | None, kernel: str, m: int | None, n: int | None, k: int | None, size: int | None,
    sizes: str | None, shapes: Path | None, dtype: str, output_dtype: str | None, accumulator: str | None, trans_a: str,
    trans_b: str, alpha: complex, beta: complex, batch: int, config_files: tuple[Path, ...], settings: tuple[str, ...],
    baseline: str, verify: bool, repeat: int, seed: int, form: str, output: Path | None,
) -> int:  # fmt: skip
    """Compute products, verify them, and time them beside the baselines.

    Exit status: 0 all verified; 1 a result failed verification; 2 bad usage or configuration; 3 the backend or device
    is not usable here.
    """
    defaults: dict[str, Any] = {
        "batch": batch, "dtype": dtype, "output": output_dtype, "accumulator": accumulator,
        "trans_a": trans_a, "trans_b": trans_b, "alpha": alpha, "beta": beta,
    }  # fmt: skip
    problems = _problems(defaults, m, n, k, size, sizes, shapes)
    options = Options(
        configuration=load_configuration(config_files),
        kernels=_kernels(kernel),
        params=_settings(settings, kernel),
        params_origin="--set",
        baselines=_baselines(baseline),
        verify=verify,
        repeat=repeat,
        seed=seed,
    )
    devices, unavailable = _devices(backend, device)
    if output is not None:
        _check_writable(output)
    with progress_on_terminal() as tell:
        results = list(run_benchmark(problems, devices, options, progress=tell))
    _write(_format(form, results, devices, unavailable, to_stdout=output is None), output)
    for line in slower_than_numpy(results):
        click.echo(f"warning: {line}", err=True)
    return _status(results)


def _problems(
    defaults: dict[str, Any], m: int | None, n: int | None, k: int | None, size: int | None, sizes: str | None,
    shapes: Path | None,
) -> list[GemmProblem]:  # fmt: skip
    if shapes is not None:
        if any(option is not None for option in (m, n, k, size, sizes)):
            raise click.UsageError("--shapes gives all sizes: leave out -m, -n, -k, --size and --sizes")
        return read_shapes(shapes, lambda **shape: _problem(**{**defaults, **shape}))
    if size is not None and sizes is not None:
        raise click.UsageError("--size and --sizes exclude each other")
    each = _parse_sizes(sizes) if sizes is not None else [DEFAULT_SIZE if size is None else size]
    return [
        _problem(m=s if m is None else m, n=s if n is None else n, k=s if k is None else k, **defaults) for s in each
    ]


def _problem(**fields: Any) -> GemmProblem:
    """A problem whose results can be compared: its scalars are finite in the type of the product too."""
    problem = GemmProblem.create(**fields)
    with np.errstate(over="ignore"):
        for name, value in (("alpha", problem.alpha), ("beta", problem.beta)):
            if not np.isfinite(problem.accumulator.numpy.type(value)):
                raise click.UsageError(f"{name} = {value} is no finite number in {problem.accumulator}")
    return problem


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


def _kernels(text: str) -> tuple[str, ...]:
    if text == "all":
        return tuple(variant.name for variant in known_kernels.variants())
    if text == AUTO:
        return (AUTO,)
    return tuple(known_kernels.variant(name.strip()).name for name in text.split(","))


def _settings(settings: Sequence[str], kernel: str) -> dict[str, ParameterValue]:
    params: dict[str, ParameterValue] = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals or not name or not value:
            raise click.UsageError(f"--set {setting!r}: write NAME=VALUE, e.g. TSM=64")
        params[name] = int(value) if re.fullmatch(r"-?[0-9]{1,18}", value) else value
    if kernel != AUTO:
        names = _kernels(kernel)
        known = {parameter.name for name in names for parameter in known_kernels.variant(name).parameters}
        for name in params:
            if name not in known:
                raise UnknownNameError(f"--set {name}: {kernel} has no such parameter, only {', '.join(sorted(known))}")
    return params


def _baselines(text: str) -> tuple[str, ...]:
    if text in (AUTO, "none"):
        return (AUTO,) if text == AUTO else ()
    names = tuple(name.strip() for name in text.split(","))
    for name in names:
        if name not in known_baselines.names():
            raise UnknownNameError(
                f"no baseline {name!r}: there are {', '.join(known_baselines.names())}, auto and none"
            )
    return names


def _devices(backend: str | None, description: str | None) -> tuple[list[DeviceInfo], dict[str, str]]:
    """The devices to run on, and with --backend all, why a backend is not among them."""
    backend = backend or os.environ.get("GEMMPORT_BACKEND")
    if backend != "all":
        if backend is not None and backend != AUTO:
            parse_backends(backend)  # an unknown name is said to be unknown, with what there is
        return [select_device(description, backend)], {}
    devices, unavailable = [], {}
    for name in parse_backends("all"):
        try:
            devices.append(select_device(description, name))
        except (BackendUnavailableError, DeviceNotFoundError) as error:
            unavailable[name] = str(error)
    if not devices:
        raise BackendUnavailableError("no backend is usable here: " + "; ".join(unavailable.values()))
    return devices, unavailable


def _format(
    form: str, results: Sequence[Result], devices: Sequence[DeviceInfo], unavailable: dict[str, str], *, to_stdout: bool
) -> str:
    if form == "csv":
        return to_csv(results)
    if form == "json":
        environment: dict[str, Any] = {**host_environment(), "devices": {}}
        for device in devices:
            environment["devices"][device.label] = {
                **device.to_dict(),
                "runtime": get_backend(device=device).environment(),
            }
        return to_json(results, environment, unavailable)
    return to_table(results, unavailable, console=Console() if to_stdout else None)


def _check_writable(path: Path) -> None:
    """Fails before the work, not after it."""
    existed = path.exists()
    try:
        with path.open("a", encoding="utf-8"):
            pass
        if not existed:
            path.unlink()
    except OSError as error:
        raise click.UsageError(f"--output {path}: {error.strerror}") from error


def _write(text: str, output: Path | None) -> None:
    if output is None:
        sys.stdout.write(text)
        sys.stdout.flush()
    else:
        output.write_text(text, encoding="utf-8")


def _status(results: Sequence[Result]) -> int:
    statuses = {result.status for result in results}
    if "failed" in statuses:
        return 1
    return 3 if "error" in statuses or "ok" not in statuses else 0
