"""`gemmport cache`: where compiled programs are kept, what they take, emptying it, and filling it ahead."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import click

from gemmport.api.ahead import Preparation, prepare_all
from gemmport.backends.objects import ProgramCounts
from gemmport.bench.standings import Workload
from gemmport.cli import options, streams
from gemmport.cli.groups import Group
from gemmport.cli.output import Column, Conditions, Sheet, drawn, progress_on_terminal, write
from gemmport.core.device import DeviceInfo
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
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    help="Processes at a time. Default: one for each core, if each has some products.",
)
def warm(backend: str | None, device: tuple[str, ...], shapes: Path, dtype: str, jobs: int | None) -> int:
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
    tasks = [(workload, each) for workload in workloads for each in devices]
    with progress_on_terminal() as tell:
        tell(f"0 of {len(tasks)}")
        found = prepare_all(
            [(workload.problem, each) for workload, each in tasks], jobs, lambda done: tell(f"{done} of {len(tasks)}")
        )
    prepared = [(*task, one) for task, one in zip(tasks, found, strict=True)]
    counts = {
        each: sum((one.programs for _, where, one in prepared if where is each), ProgramCounts()) for each in devices
    }
    conditions = Conditions(devices, unavailable, counts, options.told_choice(backend, device, devices))
    write(drawn(_sheet(prepared, conditions), to_terminal=True), None)
    return 1 if any(one.refusal for one in found) else 0


def _sheet(prepared: Sequence[tuple[Workload, DeviceInfo, Preparation]], conditions: Conditions) -> Sheet:
    columns = (
        Column("device", dispensable=2), Column("shape"), Column("kernel", dispensable=1),
        Column("compiled now", numbers=True, dispensable=3), Column("was there", numbers=True, dispensable=4),
        Column("time", numbers=True, dispensable=5), Column("result"),
    )  # fmt: skip
    rows = [
        [
            device.label,
            workload.name,
            ", ".join(one.kernels),
            str(one.programs.compiled),
            str(one.programs.from_disk + one.programs.from_memory),
            span(one.seconds),
            "refused" if one.refusal else "prepared",
        ]
        for workload, device, one in prepared
    ]
    refusals = [
        f"{workload.name} on {device.label} is not prepared: {one.refusal}"
        for workload, device, one in prepared
        if one.refusal
    ]
    return Sheet(columns, rows, [*conditions.notes(), *refusals])


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
