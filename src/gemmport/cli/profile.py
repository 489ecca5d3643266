"""`gemmport profile`: what the counters of an NVIDIA GPU say of kernels, side by side."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import click

from gemmport import kernels as family
from gemmport.bench.environment import host_environment
from gemmport.cli import completion, options, streams
from gemmport.cli.output import Column, Sheet, drawn, progress_on_terminal, write
from gemmport.core.device import DeviceInfo
from gemmport.core.errors import UnsupportedError
from gemmport.core.plan import ParameterValue, Plan
from gemmport.core.problem import GemmProblem
from gemmport.execution.selection import select_device
from gemmport.planning.lookup import Configuration, load_configuration
from gemmport.planning.planner import AUTO, make_plan
from gemmport.profiling.explain import top_stalls
from gemmport.profiling.metrics import STALLS, Unit, fma_share, metrics_for
from gemmport.profiling.ncu import find_ncu, version
from gemmport.profiling.profile import TIMEOUT, Profile, check_profiled, profile_plans

SCHEMA = 1
"""Of the JSON document; docs/profile.md describes it."""

STALLS_SHOWN = 3
"""Reasons of stalls of each launch that a table shows; JSON has them all."""


@click.command(short_help="Say what bounds kernels, by a GPU's counters.")
@click.argument("names", metavar="KERNEL...", nargs=-1, required=True, shell_complete=completion.kernels)
@options.one_device
@options.extents
@options.dtype
@options.config_files
@options.settings
@click.option(
    "--timeout", type=options.POSITIVE, default=TIMEOUT, show_default=True, metavar="SECONDS",
    help="The longest that profiling may take.",
)  # fmt: skip
@options.report("table", "markdown", "json")
def profile(
    names: tuple[str, ...], backend: str | None, device: str | None, m: int | None, n: int | None, k: int | None,
    size: int | None, dtype: str, config_files: tuple[Path, ...], settings: tuple[str, ...], timeout: float, form: str,
    output: Path | None,
) -> int:  # fmt: skip
    """Say what bounds each KERNEL, by the counters of an NVIDIA GPU under CUDA, which Nsight Compute (ncu) reads.

    KERNEL is a name, auto or all. A kernel of several launches has a column for each. docs/profile.md says how to read the
    figures.

    Exit status: 0 profiled; 2 bad usage or configuration; 3 no such device, ncu is missing or may not read the counters.
    """
    if output is not None:
        options.check_writable("--output", output)
    text = ",".join(names)
    kernels, params = options.chosen_kernels(text), options.chosen_parameters(settings, text)
    whole = options.DEFAULT_SIZE if size is None else size
    problem = GemmProblem.create(*(whole if given is None else given for given in (m, n, k)), dtype=dtype)
    chosen = select_device(device, backend or (None if os.environ.get("GEMMPORT_BACKEND") else "cuda"))
    check_profiled(chosen)
    plans, refused = _plans(problem, chosen, load_configuration(config_files), kernels, params)
    ncu = find_ncu()
    with progress_on_terminal() as tell:
        tell(f"{problem} on {chosen.label}: {', '.join(kernels)}")
        profiles = profile_plans(plans, ncu, timeout=timeout)
    told = (problem, chosen, profiles, refused, version(ncu))
    write(_to_table(*told, to_terminal=output is None) if form == "table" else _FORMATS[form](*told), output)
    return 0


def _plans(
    problem: GemmProblem, device: DeviceInfo, configuration: Configuration, kernels: Sequence[str],
    params: Mapping[str, ParameterValue],
) -> tuple[list[Plan], dict[str, str]]:  # fmt: skip
    """A plan for each kernel, with those of the parameters that it has; and of several, why there is none for some."""
    plans: list[Plan] = []
    refused: dict[str, str] = {}
    for name in kernels:
        known = params.keys() if name == AUTO else {parameter.name for parameter in family.variant(name).parameters}
        own = {key: value for key, value in params.items() if key in known}
        try:
            plans.append(make_plan(problem, device, configuration, kernel=name, params=own, params_origin="--set"))
        except UnsupportedError as error:
            refused[name] = str(error)
    if not plans:
        raise UnsupportedError("; ".join(refused.values()))
    return plans, refused


def _to_json(
    problem: GemmProblem, device: DeviceInfo, profiles: Sequence[Profile], refused: dict[str, str], ncu: str
) -> str:
    document = {
        "schema": SCHEMA,
        "environment": {**host_environment(), "ncu": ncu, "device": device.to_dict()},
        "problem": problem.to_dict(),
        "metrics": {
            metric.key: {"counter": metric.counter, "unit": metric.unit, "meaning": metric.meaning}
            for metric in metrics_for(problem.accumulator.arithmetic)
        },
        "unsupported": refused,
        "launches": [profile.to_dict() for profile in profiles],
    }
    return json.dumps(document, indent=2, allow_nan=False) + "\n"


def _to_table(
    problem: GemmProblem, device: DeviceInfo, profiles: Sequence[Profile], refused: dict[str, str], ncu: str, *,
    to_terminal: bool,
) -> str:  # fmt: skip
    sheet = Sheet(
        [Column(""), *(Column(profile.title, numbers=True, group=str(i)) for i, profile in enumerate(profiles, 1))],
        list(_rows(problem, profiles)),
        [f"{subject}: {line}" for subject, line in _notes(problem, profiles, refused)],
    )
    return f"{streams.shown(_heading(problem, device, ncu))}\n{drawn(sheet, to_terminal=to_terminal)}"


def _to_markdown(
    problem: GemmProblem, device: DeviceInfo, profiles: Sequence[Profile], refused: dict[str, str], ncu: str
) -> str:
    lines = [
        _heading(problem, device, ncu),
        "",
        f"| | {' | '.join(profile.title for profile in profiles)} |",
        f"|---|{'---:|' * len(profiles)}",
        *(f"| {' | '.join(row)} |" for row in _rows(problem, profiles)),
        "",
        *(f"- **{subject}**: {line}" for subject, line in _notes(problem, profiles, refused)),
    ]
    return "\n".join(lines) + "\n"


_FORMATS: dict[str, Callable[[GemmProblem, DeviceInfo, Sequence[Profile], dict[str, str], str], str]] = {
    "markdown": _to_markdown,
    "json": _to_json,
}


def _heading(problem: GemmProblem, device: DeviceInfo, ncu: str) -> str:
    return f"{problem} on {device.label}, by Nsight Compute {ncu}".rstrip()


def _rows(problem: GemmProblem, profiles: Sequence[Profile]) -> Iterator[list[str]]:
    """A label and a cell for each launch; without figures that no launch has, and stalls that are frequent in none."""
    shown = {stall.key for profile in profiles for stall in top_stalls(profile.figures, STALLS_SHOWN)}
    hidden = {stall.key for stall in STALLS} - shown
    for metric in metrics_for(problem.accumulator.arithmetic):
        values = [profile.figures[metric.key] for profile in profiles]
        if metric.key not in hidden and any(value is not None for value in values):
            yield [metric.label, *(_cell(value, metric.unit) for value in values)]
        if metric.key == "fma" and any(shares := [fma_share(profile.figures) for profile in profiles]):
            yield ["FMA among instructions", *(_cell(share, "%") for share in shares)]


def _notes(problem: GemmProblem, profiles: Sequence[Profile], refused: dict[str, str]) -> Iterator[tuple[str, str]]:
    """What bounds each launch; which kernels there are no plans for, and which counters no launch has."""
    yield from ((profile.title, profile.bound) for profile in profiles)
    yield from refused.items()
    missing = [
        metric.counter
        for metric in metrics_for(problem.accumulator.arithmetic)
        if all(profile.figures[metric.key] is None for profile in profiles)
    ]
    if missing:
        yield "n/a on this device, or with this version of Nsight Compute", ", ".join(missing)


def _cell(value: float | None, unit: Unit) -> str:
    """A figure with its unit, as people read it."""
    if value is None:
        return "n/a"
    match unit:
        case "s":
            scale, name = next((s, u) for s, u in ((1.0, "s"), (1e3, "ms"), (1e6, "µs")) if value * s >= 1 or u == "µs")
            return f"{value * scale:.4g} {name}"
        case "byte/s":
            return f"{value * 1e-9:,.1f} GB/s"
        case "%":
            return f"{value:.1f} %"
        case "warps":
            return f"{value:.2f}"
        case _:
            return f"{value:,.0f}"
