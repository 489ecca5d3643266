"""`gemmport cache`: where compiled programs are kept, what they take, emptying it, and filling it ahead."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import click

from gemmport.api.prepare import prepare
from gemmport.backends.objects import ProgramCounts
from gemmport.bench.standings import Workload
from gemmport.cli import options, streams
from gemmport.cli.groups import Group
from gemmport.cli.output import Column, Conditions, ProgramMeter, Sheet, drawn, progress_on_terminal, write
from gemmport.core.device import DeviceInfo
from gemmport.core.errors import GemmportError
from gemmport.core.units import span
from gemmport.runtime.cache import CacheUse, cache_folder, cache_use, check_writable, clear_cache


@click.group(cls=Group, invoke_without_command=True)
@click.pass_context
def cache(context: click.Context) -> None:
    """Show, empty or fill the cache of compiled programs.

    Programs are kept on disk, so that only the first process compiles them: in GEMMPORT_CACHE_DIR, or the user's cache folder.
    Nothing is lost by emptying it: what is missing is compiled again.
    """
    if context.invoked_subcommand is None:
        context.invoke(info)


@cache.command()
def info() -> None:
    """Show where the programs are, how many, and how large.

    `gemmport cache` alone does the same.
    """
    with _usable("read"):
        streams.echo(f"{cache_folder()}: {_told(cache_use())}")


@cache.command()
def clear() -> None:
    """Remove all compiled programs, and say what was freed.

    Safe while other processes use the cache. Nothing in the folder but gemmport's own programs is removed.
    """
    with _usable("read"):
        removed, refused = clear_cache()
    streams.echo(f"{cache_folder()}: removed {_told(removed)}")
    if refused:
        raise click.ClickException(f"{refused} could not be removed: see the warnings above")


@cache.command()
@options.devices
@click.option(
    "--shapes",
    required=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Shapes from a YAML or CSV file, as for gemmport run.",
)
@options.dtype
def warm(backend: str | None, device: tuple[str, ...], shapes: Path, dtype: str) -> int:
    """Compile ahead what the products of a file of shapes need.

    Each product is computed once, of zeros: of arrays on the device and, where the device reads the host's memory in place, on
    the host. The first call of another process then finds its programs.

    Exit status: 0 all were prepared; 1 some were refused, each of which is told by its name; 2 bad usage or a cache that
    cannot be written; 3 the backend or device is not usable here.
    """
    from gemmport.cli.shapes import read_shapes  # noqa: PLC0415 - which takes pydantic

    workloads = read_shapes(shapes, lambda **shape: options.make_problem(**{"dtype": dtype, **shape}))
    devices, unavailable = options.chosen_devices(backend, device)
    with _usable("written"):
        check_writable()
    meter = ProgramMeter(devices)
    with progress_on_terminal() as tell:
        prepared = []
        for workload in workloads:
            for each in devices:
                tell(f"{workload.name} on {each.label}")
                prepared.append(_prepare(workload, each))
    conditions = Conditions(devices, unavailable, meter.counts(), options.told_choice(backend, device, devices))
    write(drawn(_sheet(prepared, conditions), to_terminal=True), None)
    return 1 if any(one.refusal for one in prepared) else 0


@dataclass(frozen=True)
class _Prepared:
    """What came of a workload on a device.

    Attributes:
        kernels: that compute it.
        programs: how it came to the programs of these.
        refusal: why it is not prepared; empty where it is.
    """

    workload: Workload
    device: DeviceInfo
    kernels: Sequence[str]
    programs: ProgramCounts
    seconds: float
    refusal: str = ""


def _prepare(workload: Workload, device: DeviceInfo) -> _Prepared:
    meter, start = ProgramMeter([device]), time.perf_counter()
    kernels: Sequence[str] = ()
    refusal = ""
    try:
        kernels = list(dict.fromkeys(plan.variant for plan in prepare(workload.problem, device)))
    except GemmportError as error:
        refusal = f"{workload.name} on {device.label} is not prepared: {error}"
    return _Prepared(workload, device, kernels, meter.counts()[device], time.perf_counter() - start, refusal)


def _sheet(prepared: Sequence[_Prepared], conditions: Conditions) -> Sheet:
    columns = (
        Column("device", dispensable=2), Column("shape"), Column("kernel", dispensable=1),
        Column("compiled now", numbers=True, dispensable=3), Column("was there", numbers=True, dispensable=4),
        Column("time", numbers=True, dispensable=5), Column("result"),
    )  # fmt: skip
    rows = [
        [
            one.device.label,
            one.workload.name,
            ", ".join(one.kernels),
            str(one.programs.compiled),
            str(one.programs.from_disk + one.programs.from_memory),
            span(one.seconds),
            "refused" if one.refusal else "prepared",
        ]
        for one in prepared
    ]
    return Sheet(columns, rows, [*conditions.notes(), *(one.refusal for one in prepared if one.refusal)])


@contextmanager
def _usable(done: str) -> Iterator[None]:
    """Turns the errors of what is done to the cache's folder into one that names the way out."""
    try:
        yield
    except OSError as error:
        raise click.ClickException(
            f"the cache cannot be {done}: {error}; set GEMMPORT_CACHE_DIR to another folder"
        ) from error


def _told(use: CacheUse) -> str:
    return f"{use.programs} program{'' if use.programs == 1 else 's'}, {use.nbytes / 1e6:.1f} MB"
