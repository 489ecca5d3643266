"""Options that several commands have, told once, and what their texts mean."""

from __future__ import annotations

import importlib
import math
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
import numpy as np
from click.core import ParameterSource

from gemmport import baselines as known_baselines
from gemmport import kernels as known_kernels
from gemmport.cli import completion
from gemmport.core.device import DeviceInfo
from gemmport.core.dtypes import FLOAT32, INPUTS, as_dtype
from gemmport.core.errors import BackendUnavailableError, DeviceNotFoundError, ParameterError, UnknownNameError
from gemmport.core.names import did_you_mean
from gemmport.core.plan import ParameterValue
from gemmport.core.precision import FORMATS, FULL, default_for
from gemmport.core.problem import GemmProblem
from gemmport.core.units import as_bytes
from gemmport.execution.selection import (
    ALL,
    BACKEND_VARIABLE,
    backend_status,
    of_environment,
    parse_backends,
    select_device,
)
from gemmport.execution.selection import devices as known_devices
from gemmport.planning.planner import AUTO

DEFAULT_SIZE = 1024
"""Of m, n and k."""

Decorated = TypeVar("Decorated", bound=Callable[..., Any])
Decorator = Callable[[Decorated], Decorated]


class _Positive(click.FloatRange):
    """A number above 0. click's own range takes NaN, which no time comes up to."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number: float = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"it must be a number above 0; got {value}", param, ctx)
        return number


POSITIVE = _Positive(min=0, min_open=True)


def together(*options: Decorator[Any]) -> Decorator[Any]:
    """Several options as one decorator; a command's help lists them in this order."""

    def decorate(command: Any) -> Any:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


one_device = together(
    click.option(
        "--backend",
        default=None,
        metavar="NAME",
        shell_complete=completion.backends,
        help="opencl, cuda or auto. Default: GEMMPORT_BACKEND, or auto.",
    ),
    click.option(
        "--device",
        default=None,
        metavar="NAME",
        shell_complete=completion.devices,
        help="PLATFORM[:DEVICE], by index or words of the name, or their beginnings; or gpu or cpu: the best of these. "
        "Default: GEMMPORT_DEVICE, or the best.",
    ),
)

devices = together(
    click.option(
        "--backend",
        default=None,
        metavar="NAME",
        shell_complete=completion.backends,
        help="opencl, cuda, auto (that of the best device) or all (side by side). Default: GEMMPORT_BACKEND, or auto.",
    ),
    click.option(
        "--device",
        multiple=True,
        metavar="NAME[,NAME]",
        shell_complete=completion.devices,
        help="PLATFORM[:DEVICE], by index or words of the name, or their beginnings; or gpu or cpu: the best of these; or "
        "all (every device of --backend); repeatable. Default: GEMMPORT_DEVICE, or the best.",
    ),
)

together_devices = click.option(
    "--devices",
    "devices_together",
    multiple=True,
    metavar="NAME[,NAME]",
    shell_complete=completion.devices,
    help="Several devices that compute each product together, as --device names them, or all (each chip once); repeatable.",
)

placement = click.option(
    "--placement",
    type=click.Choice(["host", "first", "rows", "columns"]),
    default="host",
    metavar="WHERE",
    help="With --devices, where A, B and C are: in the host's memory (host, the default), on the first device (first), or in "
    "shards on all (rows, columns).",
)


def check_alone(placement: str) -> None:
    """Raises UsageError where a placement is asked for without several devices."""
    if placement != "host":
        raise click.UsageError("--placement is for several devices together: name them with --devices")


extents = together(
    click.option("-m", "m", type=int, help="Rows of op(A) and C."),
    click.option("-n", "n", type=int, help="Columns of op(B) and C."),
    click.option("-k", "k", type=int, help="Columns of op(A), rows of op(B)."),
    click.option("--size", type=int, help=f"m, n and k, where they are not given. Default: {DEFAULT_SIZE}."),
)

dtype = click.option(
    "--dtype",
    default="float32",
    show_default=True,
    metavar="TYPE",
    shell_complete=completion.dtypes,
    help=f"Of what is read (A and B): {', '.join(INPUTS)}.",
)

precision = click.option(
    "--precision",
    metavar="NAME",
    shell_complete=completion.precisions,
    help=f"To which float32 and complex64 are rounded before they are multiplied: {', '.join(FORMATS)}, or full (not at all). "
    "Default: as the configuration says, or full.",
)

transpositions = together(
    click.option(
        "--trans-a",
        default="N",
        is_flag=False,
        flag_value="T",
        metavar="[N|T|C|R]",
        help="op(A): as it is, transposed, conjugate-transposed, conjugated; T where no value is given.",
    ),
    click.option("--trans-b", default="N", is_flag=False, flag_value="T", metavar="[N|T|C|R]", help="op(B), likewise."),
)

config_files = click.option(
    "--config",
    "config_files",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="A configuration that goes before all others; repeatable.",
)


if TYPE_CHECKING:
    _ParamType = click.ParamType[int]
else:
    _ParamType = click.ParamType  # generic in newer versions of click alone


class _Bytes(_ParamType):
    """A number of bytes."""

    name = "bytes"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            return as_bytes("it", value)
        except ParameterError as error:
            self.fail(str(error), param, ctx)


device_memory = click.option(
    "--device-memory",
    type=_Bytes(),
    metavar="SIZE",
    help="Bytes that a product of arrays on the host may take on the device, through which it passes in tiles: 1GiB.",
)

settings = click.option(
    "--set", "settings", multiple=True, metavar="NAME=VALUE", help="A parameter of the kernel; repeatable."
)

baseline = click.option(
    "--baseline",
    default=AUTO,
    show_default=True,
    metavar="NAME[,NAME]",
    shell_complete=completion.baselines,
    help="auto (those that belong to the device), none, or NAME[,NAME].",
)

measurement = together(
    click.option(
        "--verify/--no-verify", default=True, show_default=True, help="Whether results are checked, before they are timed."
    ),
    click.option(
        "--repeat", type=click.IntRange(min=1), default=10, show_default=True, help="Samples of each measurement."
    ),
    click.option(
        "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of the random operands."
    ),
)  # fmt: skip


PATIENCE_SECONDS = 15.0
"""Of turns of products that take seconds, where --repeat is not given."""


def patience() -> float:
    """Seconds after which measurements by the host's clock end, when there are a few: for ever where --repeat is given."""
    given = click.get_current_context().get_parameter_source("repeat")
    return PATIENCE_SECONDS if given is ParameterSource.DEFAULT else math.inf


_ENDINGS = {"json": "json", "csv": "csv", "md": "markdown"}
"""Of files → their form."""


def report(*forms: str) -> Decorator[Any]:
    """--output, and --format: by default what the ending of that file says, else the first of `forms`."""

    def form_of(context: click.Context, _: click.Parameter, given: str | None) -> str:
        output: Path | None = context.params.get("output")
        ending = None if output is None else _ENDINGS.get(output.suffix.lower().removeprefix("."))
        return given or (ending if ending in forms else forms[0])

    return together(
        click.option(
            "-o",
            "--output",
            type=click.Path(path_type=Path, dir_okay=False),
            metavar="FILE",
            is_eager=True,  # before --format, which depends on it
            help="Write there instead of standard output.",
        ),
        click.option(
            "--format",
            "form",
            type=click.Choice(forms),
            callback=form_of,
            help=f"What is written: tables are for people. Default: as the ending of --output says, or {forms[0]}.",
        ),
    )


def plot(what: str) -> Decorator[Any]:
    """--plot, of what is drawn."""
    return click.option(
        "--plot",
        "plot_file",
        type=click.Path(path_type=Path, dir_okay=False),
        metavar="FILE",
        help=f"Draw {what} too: .png, .svg or .pdf. Takes matplotlib.",
    )


def make_problem(*, precision: str | None = None, default: str = FULL, **fields: Any) -> GemmProblem:
    """A problem whose results can be compared: its scalars are finite in the type of the product too.

    Args:
        precision: what was asked for. default: of the configuration, for what it is of use to.

    Raises:
        UsageError: they are not. GemmportError: as `GemmProblem.create`.
    """
    if precision is None:
        precision = default_for(default, as_dtype(fields.get("dtype", FLOAT32)))
    problem = GemmProblem.create(**fields, precision=precision)
    with np.errstate(over="ignore"):
        for name, value in (("alpha", problem.alpha), ("beta", problem.beta)):
            if not np.isfinite(problem.accumulator.numpy.type(value)):
                raise click.UsageError(f"{name} must be finite in {problem.accumulator}; got {value}")
    return problem


def chosen_kernels(text: str) -> tuple[str, ...]:
    """The kernels of "auto", "all" or NAME[,NAME]."""
    if text == "all":
        return tuple(variant.name for variant in known_kernels.variants())
    if text == AUTO:
        return (AUTO,)
    return tuple(known_kernels.variant(name.strip()).name for name in text.split(","))


def chosen_parameters(settings: Sequence[str], kernel: str) -> dict[str, ParameterValue]:
    """What --set says, of which each name must be a parameter of one of the kernels."""
    params: dict[str, ParameterValue] = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals or not name or not value:
            raise click.UsageError(f"--set {setting!r}: write NAME=VALUE, e.g. TSM=64")
        params[name] = int(value) if re.fullmatch(r"-?[0-9]{1,18}", value) else value
    if kernel != AUTO:
        names = chosen_kernels(kernel)
        known = {parameter.name for name in names for parameter in known_kernels.variant(name).parameters}
        for name in params:
            if name not in known:
                hint = did_you_mean(name, known)
                raise UnknownNameError(
                    f"--set {name}: {kernel} has no such parameter, only {', '.join(sorted(known))}{hint}"
                )  # fmt: skip
    return params


def chosen_baselines(text: str, known: Sequence[str] | None = None) -> tuple[str, ...]:
    """What --baseline says, of the `known` ones (default: all of products)."""
    if text in (AUTO, "none"):
        return (AUTO,) if text == AUTO else ()
    known = known_baselines.names() if known is None else known
    names = tuple(name.strip() for name in text.split(","))
    for name in names:
        if name not in known:
            hint = did_you_mean(name, known)
            raise UnknownNameError(f"no baseline {name!r}: there are {', '.join(known)}, auto and none{hint}")
    return names


def device_names(told: Sequence[str], option: str = "--device") -> tuple[str, ...]:
    """The descriptions of devices in what an option says, which may be repeated, and have commas in it."""
    names = tuple(dict.fromkeys(name.strip() for text in told for name in text.split(",")))
    if "" in names:
        raise click.UsageError(f"{option} {','.join(told)!r}: write PLATFORM[:DEVICE] with commas between, or all")
    return names


def means_all(names: Sequence[str], option: str = "--device") -> bool:
    """Whether an option asks for every device.

    Raises:
        UsageError: and for others beside.
    """
    found = ALL in map(str.lower, names)
    if found and len(names) > 1:
        raise click.UsageError(f"{option} all is every device: leave out the others")
    return found


def asked_backend(backend: str | None) -> str:
    """What --backend says, or else GEMMPORT_BACKEND: a name, "auto" or "all".

    Raises:
        UnknownNameError: there is no such backend. The message names the variable that has its name.
    """
    asked = backend or os.environ.get(BACKEND_VARIABLE) or AUTO
    if asked.lower() not in (AUTO, ALL):
        with of_environment(*(() if backend else (BACKEND_VARIABLE,))):
            parse_backends(asked)
    return asked


def chosen_devices(backend: str | None, told: Sequence[str]) -> tuple[list[DeviceInfo], dict[str, str]]:
    """The devices to run on, and of several backends, why one is not among them.

    Args:
        told: what --device says.
    """
    given, backend = backend, asked_backend(backend)
    names = device_names(told)
    if means_all(names):
        return _every_device(backend)
    if backend.lower() != ALL:
        chosen = [select_device(name, given) for name in names or (None,)]
        return list(dict.fromkeys(chosen)), {}
    devices: list[DeviceInfo] = []
    unavailable: dict[str, str] = {}
    for name in names or (None,):
        found = len(devices)
        for each in parse_backends(ALL):
            try:
                devices.append(select_device(name, each))
            except (BackendUnavailableError, DeviceNotFoundError) as error:
                unavailable[each] = str(error)
        if len(devices) == found:
            wanted = "is usable here" if name is None else f"has a device {name!r}"
            raise BackendUnavailableError(f"no backend {wanted}: {'; '.join(unavailable.values())}")
    served = {device.backend for device in devices}
    return list(dict.fromkeys(devices)), {each: why for each, why in unavailable.items() if each not in served}


def _every_device(backend: str) -> tuple[list[DeviceInfo], dict[str, str]]:
    """Every device of a backend, or of all, the best first; and why a backend has none."""
    names = parse_backends(ALL if backend.lower() == AUTO else backend)
    statuses = [backend_status(name) for name in names]
    unavailable = {status.name: status.error for status in statuses if status.error}
    devices = [device for device in known_devices() if device.backend in names]
    if not devices:
        raise BackendUnavailableError(
            "; ".join(unavailable.values()) or "no device: gemmport doctor says what is missing"
        )
    return devices, unavailable


def told_choice(backend: str | None, told: Sequence[str], chosen: Sequence[DeviceInfo]) -> str:
    """Which device was taken where the user named none and there are several; empty else."""
    backend = backend or os.environ.get("GEMMPORT_BACKEND") or AUTO
    if told or os.environ.get("GEMMPORT_DEVICE") or backend.lower() == ALL:
        return ""
    others = [device.label for device in known_devices(backend)]
    others.remove(chosen[0].label)
    return f"{chosen[0].label} is taken before {', '.join(others)}; --device takes another" if others else ""


imported_modules = click.option(
    "--import",
    "imports",
    multiple=True,
    metavar="MODULE",
    help="Import first: registers kernels and backends of your own.",
)


def import_modules(names: Sequence[str]) -> None:
    """Imports what `imported_modules` names.

    Raises:
        UsageError: one is not there, or fails.
    """
    for name in names:
        try:
            importlib.import_module(name)
        except Exception as error:
            # A command, unlike python -m, does not look for modules in the folder that it runs in.
            hint = "; PYTHONPATH must have its folder" if isinstance(error, ModuleNotFoundError) else ""
            raise click.UsageError(f"--import {name!r}: {type(error).__name__}: {error}{hint}") from error


def check_writable(option: str, path: Path) -> None:
    """Fails before the work, not after it.

    Raises:
        UsageError: the file that the option names cannot be written.
    """
    existed = path.exists()
    try:
        with path.open("a", encoding="utf-8"):
            pass
        if not existed:
            path.unlink()
    except OSError as error:
        raise click.UsageError(f"{option} {path}: {error.strerror}") from error
