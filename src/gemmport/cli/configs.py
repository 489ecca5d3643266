"""`gemmport configs`: which file and entry serve a device and a problem, and why; and whether a file is right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click

from gemmport import kernels
from gemmport.cli import options, streams
from gemmport.core.device import DeviceInfo
from gemmport.core.errors import ConfigError, ParameterError, UnsupportedError
from gemmport.core.plan import Plan
from gemmport.core.problem import GemmProblem
from gemmport.execution.selection import select_device
from gemmport.planning.lookup import Configuration, check_file, load_configuration
from gemmport.planning.planner import make_plan
from gemmport.planning.precedence import precedence
from gemmport.planning.schema import LoadedEntry


@click.command(short_help="Show which configuration serves a product.")
@options.one_device
@click.option("-m", "m", type=int, default=1024, show_default=True)
@click.option("-n", "n", type=int, default=1024, show_default=True)
@click.option("-k", "k", type=int, default=1024, show_default=True)
@options.dtype
@options.precision
@options.transpositions
@options.config_files
@click.option(
    "--check",
    "checked",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Only say whether this file is right; repeatable.",
)
@click.option("--explain", is_flag=True, help="Say of every entry why it serves, lost, or does not match.")
def configs(
    backend: str | None, device: str | None, m: int, n: int, k: int, dtype: str, precision: str | None,
    trans_a: str, trans_b: str, config_files: tuple[Path, ...], checked: tuple[Path, ...], explain: bool,
) -> None:  # fmt: skip
    """Show which configuration serves a device and a problem, and why.

    Exit status: 0 all well; 2 a file is not right, of which all faults are told.
    """
    tell = streams.Prose(indent=6)
    if checked:
        _check(checked, tell)
        return
    configuration = load_configuration(config_files)
    target = select_device(device, backend)
    problem = options.make_problem(
        m=m,
        n=n,
        k=k,
        dtype=dtype,
        precision=precision,
        default=configuration.precision,
        trans_a=trans_a,
        trans_b=trans_b,
    )
    tell(f"{problem} ({problem.shape_class}) on {target.label}")
    if explain:
        _explain(make_plan(problem, target, configuration), configuration, tell)
        return
    tell("entries that match, in the order in which they are tried:")
    for loaded in configuration.matching(target, problem):
        _show(loaded, problem, target, configuration, tell)
    tell("chosen:", style="bold")
    tell(str(make_plan(problem, target, configuration)))


def _show(
    loaded: LoadedEntry, problem: GemmProblem, device: DeviceInfo, configuration: Configuration, tell: streams.Prose,
    chosen: str = "",
) -> None:  # fmt: skip
    """An entry that matches, and its kernels: what each is given, why it is passed over, and which was chosen."""
    alone = replace(configuration, entries=(loaded,))
    tell(f"  {loaded.origin}  ({loaded.entry.provenance.how}; matches {_conditions(loaded)})", style="bold")
    for kernel, tilings in loaded.entry.kernels.items():
        verdict = "  ← chosen" if kernel == chosen else _verdict(alone, kernel, problem, device)
        for values in tilings:
            told = " ".join(f"{key}={value}" for key, value in values.items())
            tell(f"    {kernel} {told}{verdict}")


def _explain(plan: Plan, configuration: Configuration, tell: streams.Prose) -> None:
    """Which entry serves the plan, and why every other one does not."""
    found = precedence(plan, configuration)
    if found.winner is None:
        tell(f"no entry serves, but {plan.entry}", style="bold")
    else:
        tell("the winner:", style="bold")
        _show(found.winner, plan.problem, plan.device, configuration, tell, chosen=plan.variant)
    tell(f"the device's model: {configuration.model(plan.device).origin}")
    if found.passed_over:
        tell("tried before it, and none of its kernels fits:", style="bold")
        for standing in found.passed_over:
            _show(standing.loaded, plan.problem, plan.device, configuration, tell)
    if found.behind:
        tell("match too, and lost:", style="bold")
        for standing in found.behind:
            tell(f"  {standing.loaded.origin}  (matches {_conditions(standing.loaded)})  {standing.lost}")
    if found.others:
        tell("do not match:", style="bold")
        for standing in found.others:
            tell(f"  {standing.loaded.origin}: {'; '.join(map(str, standing.unmet))}")


def _check(files: Sequence[Path], tell: streams.Prose) -> None:
    """Tells of each file how many entries it has, and what is doubtful in them.

    Raises:
        ConfigError: files have faults; the message tells those of all of them.
    """
    faults = []
    for file in files:
        try:
            loaded, doubts = check_file(file)
        except ConfigError as error:
            faults.append(str(error))
        else:
            for doubt in doubts:
                tell(f"warning: {doubt}")
            told = [_counted(len(loaded.entries), "entry", "entries")] if loaded.entries or not loaded.models else []
            told += [_counted(len(loaded.models), "model", "models")] if loaded.models else []
            tell(f"{file}: {', '.join(told)}, no fault")
    if faults:
        raise ConfigError("\n".join(faults))


def _counted(number: int, one: str, several: str) -> str:
    return f"{number} {one if number == 1 else several}"


def _conditions(loaded: LoadedEntry) -> str:
    stated = loaded.entry.match.stated
    told = (f"{key} {value if isinstance(value, str) else ' or '.join(value)}" for key, value in stated.items())
    return ", ".join(told) or "everything"


def _verdict(alone: Configuration, kernel: str, problem: GemmProblem, device: DeviceInfo) -> str:
    """Why a kernel of the only entry would be passed over; empty where it would not."""
    if reason := kernels.variant(kernel).declined(problem, device, alone.model(device)):
        return f"  ✗ {reason}"
    try:
        make_plan(problem, device, alone, kernel=kernel)
    except (ParameterError, UnsupportedError) as error:
        return f"  ✗ {error}"
    return ""
