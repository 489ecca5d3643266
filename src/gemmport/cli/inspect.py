"""`gemmport inspect`: what is inside a kernel, or what two of them differ in."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click
from rich.table import Table
from rich.text import Text

from gemmport import kernels as known_kernels
from gemmport.backends.base import Backend
from gemmport.cli import options, streams
from gemmport.cli.output import WIDTH_OF_A_FILE, write
from gemmport.contracts.named_devices import device_of
from gemmport.core.device import DeviceInfo
from gemmport.core.errors import BackendUnavailableError, UnsupportedError
from gemmport.core.plan import ParameterValue
from gemmport.core.problem import GemmProblem
from gemmport.execution.selection import backend_name, get_backend, select_device
from gemmport.inspection.comparison import Row, Value, compare, headings, to_dict
from gemmport.inspection.report import Inspection, inspect
from gemmport.planning.lookup import Configuration, load_configuration
from gemmport.planning.planner import AUTO, make_plan

SCHEMA = 1
"""Of the JSON document; docs/inspect.md describes it."""

NOTE = (
    "Instructions are counted in the text, not in a run: a loop that was unrolled counts as often as it was written out. The "
    "loop is the one with the most multiply-adds, without the loops inside of it."
)

_LANGUAGES = {"ptx": "PTX", "sass": "SASS"}


@dataclass(frozen=True)
class _Side:
    """What is inspected: the first, or the second, of all values that came in twos.

    Attributes:
        arch: where something compiles for what need not be here.
    """

    kernel: str
    backend: str | None
    device: str | None
    arch: str | None
    dtype: str
    params: dict[str, ParameterValue]


@click.command("inspect", short_help="Show what is inside compiled kernels.")
@click.argument("kernel_names", metavar="KERNEL [KERNEL]", nargs=-1, required=True)
@options.one_device
@click.option(
    "--arch",
    default=None,
    metavar="NAME",
    help="Compile for this architecture, which need not be here: sm_90 by CUDA; gfx90a, gfx1100, dg2, pvc by OpenCL.",
)
@options.extents
@options.dtype
@options.transpositions
@options.config_files
@options.settings
@click.option("--launch", "number", type=int, help="Of the plan, from 1. Default: the last of the kernel's own.")
@click.option(
    "--show",
    type=click.Choice(["source", "ptx", "sass", "asm", "loop"]),
    help="Print this text instead: the specialized source, PTX, SASS, what is nearest to the machine, or its loop with the "
    "most multiply-adds.",
)
@options.report("table", "markdown", "json")
@click.pass_context
def inspect_command(
    context: click.Context, kernel_names: tuple[str, ...], backend: str | None, device: str | None, arch: str | None,
    m: int | None, n: int | None, k: int | None, size: int | None, dtype: str, trans_a: str, trans_b: str,
    config_files: tuple[Path, ...], settings: tuple[str, ...], number: int | None, show: str | None, form: str,
    output: Path | None,
) -> None:  # fmt: skip
    """Show what is inside a compiled kernel: registers, spills, memory, occupancy, and its instructions by kind.

    Two kernels are set side by side. So is one kernel with itself, where an option has two values: --backend cuda,opencl,
    --device intel,pocl, --arch sm_80,sm_90, --dtype float32,float64, --set TSK=8,16. The left takes the first of all values
    that come in twos, the right the second.
    """
    if show is not None and context.get_parameter_source("form") is click.core.ParameterSource.COMMANDLINE:
        raise click.UsageError("--show prints a text, which has no --format: leave one of them out")
    if output is not None:
        options.check_writable("--output", output)
    edge = options.DEFAULT_SIZE if size is None else size
    configuration = load_configuration(config_files)
    inspections = []
    for side in _sides(kernel_names, backend, device, arch, dtype, settings):
        problem = GemmProblem.create(
            edge if m is None else m, edge if n is None else n, edge if k is None else k,
            dtype=side.dtype, trans_a=trans_a, trans_b=trans_b,
        )  # fmt: skip
        inspections.append(_inspect(side, problem, configuration, number))
    text = _texts(inspections, show) if show is not None else _FORMS[form](inspections)
    if show is None and form == "table" and output is None:
        streams.Prose(indent=2)(text.rstrip("\n"))
    else:
        write(text, output)


def _sides(
    kernels: Sequence[str],
    backend: str | None,
    device: str | None,
    arch: str | None,
    dtype: str,
    settings: Sequence[str],
) -> list[_Side]:
    if len(kernels) > 2:
        raise click.UsageError(f"at most two kernels are set side by side, not {len(kernels)}")
    options_told = {"--backend": backend, "--device": device, "--arch": arch, "--dtype": dtype}
    told = {
        "KERNEL": list(kernels),
        **{name: text.split(",") for name, text in options_told.items() if text is not None},
    }
    for setting in settings:
        name, equals, text = setting.partition("=")
        told[f"--set {name}{equals}"] = text.split(",")
    for name, values in told.items():
        if len(values) > 2:
            raise click.UsageError(f"{name} has {len(values)} values: at most two are set side by side")
    sides = []
    for number in range(max(map(len, told.values()))):
        own = {name: values[min(number, len(values) - 1)] for name, values in told.items()}
        chosen = [name.removeprefix("--set ") + value for name, value in own.items() if name.startswith("--set ")]
        params = _known(options.chosen_parameters(chosen, ",".join(kernels)), own["KERNEL"])
        one, other, architecture = (own.get(name) for name in ("--backend", "--device", "--arch"))
        one = one and backend_name(one)
        if architecture is not None and one not in (None, AUTO, device_of(architecture).backend):
            architecture = None
        sides.append(_Side(own["KERNEL"], one, other, architecture, own["--dtype"], params))
    if arch is not None and all(side.arch is None for side in sides):
        its = " and ".join(dict.fromkeys(device_of(name).backend for name in arch.split(",")))
        raise click.UsageError(f"--arch {arch} is of {its}: leave it out, or choose --backend {its}")
    if device is not None and all(side.arch is not None for side in sides):
        raise click.UsageError("--arch compiles for a device that need not be here: leave out --device")
    return sides


def _known(params: dict[str, ParameterValue], kernel: str) -> dict[str, ParameterValue]:
    """Those of the parameters that a kernel has, where they are told for two."""
    if kernel == AUTO:
        return params
    names = {parameter.name for parameter in known_kernels.variant(kernel).parameters}
    return {name: value for name, value in params.items() if name in names}


def _inspect(side: _Side, problem: GemmProblem, configuration: Configuration, number: int | None) -> Inspection:
    device, backend = _target(side)
    plan = make_plan(problem, device, configuration, kernel=side.kernel, params=side.params, params_origin="--set")
    return inspect(plan, backend=backend, number=number)


def _target(side: _Side) -> tuple[DeviceInfo, Backend | None]:
    """The device, open where it is one of this machine."""
    if side.arch is not None:
        return device_of(side.arch), None
    try:
        device = select_device(side.device, side.backend)
    except BackendUnavailableError as error:
        if side.backend != "cuda":
            raise
        raise BackendUnavailableError(f"{error}; or compile without a GPU: --arch sm_90") from error
    return device, get_backend(device=device)


def _texts(inspections: Sequence[Inspection], show: str) -> str:
    texts = [_text(inspection, show).rstrip("\n") + "\n" for inspection in inspections]
    if len(texts) == 1:
        return texts[0]
    return "\n".join(f"==> {name} <==\n{text}" for name, text in zip(headings(inspections), texts, strict=True))


def _text(inspection: Inspection, show: str) -> str:
    if show == "source":
        return inspection.source
    if show == "loop":
        code = inspection.codes[-1] if inspection.codes else None
        if code and code.loop:
            return "\n".join(instruction.text for instruction in code.loop)
    else:
        wanted = [own for own in inspection.listings if show == "asm" or own.language == _LANGUAGES[show]]
        if texts := [own.text for own in wanted if own.text]:
            return texts[-1]
    reasons = "; ".join(inspection.notes) or "it is another language on this device"
    raise UnsupportedError(
        f"{inspection.plan.variant} on {inspection.plan.device.label} has no {show} to show: {reasons}"
    )


def _to_json(inspections: Sequence[Inspection]) -> str:
    document = {"schema": SCHEMA, "inspections": [to_dict(inspection) for inspection in inspections]}
    return json.dumps(document, indent=2, allow_nan=False, ensure_ascii=False) + "\n"


def _to_table(inspections: Sequence[Inspection]) -> str:
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("")
    for name in _columns(inspections):
        table.add_column(name, justify="right", overflow="fold")
    section = ""
    for row in compare(inspections):
        if row.section != section:
            section = row.section
            table.add_row(Text(section, "bold underline"))
        table.add_row(f"  {row.name}", *_cells(row))
    console = streams.console(file=io.StringIO(), width=WIDTH_OF_A_FILE)
    with console.capture() as capture:
        console.print(table)
    lines = [
        *_titles(inspections),
        "",
        *(line.rstrip() for line in capture.get().splitlines()),
        "",
        *_notes(inspections),
    ]
    return "\n".join(lines) + "\n"


def _to_markdown(inspections: Sequence[Inspection]) -> str:
    lines = [f"- {title}" for title in _titles(inspections)]
    columns = _columns(inspections)
    section = ""
    for row in compare(inspections):
        if row.section != section:
            section = row.section
            lines += ["", f"| {' | '.join([section, *columns])} |", f"|---|{'--:|' * len(columns)}"]
        lines.append(f"| {' | '.join([row.name.strip(), *_cells(row)])} |")
    return "\n".join([*lines, "", *_notes(inspections)]) + "\n"


def _columns(inspections: Sequence[Inspection]) -> list[str]:
    return [*headings(inspections), *(["difference"] if len(inspections) == 2 else [])]


def _cells(row: Row) -> list[str]:
    cells = [_cell(value) for value in row.values]
    if len(row.values) == 2:
        difference = row.difference
        cells.append("" if difference is None else "=" if difference == 0 else _cell(difference, sign="+"))
    return cells


def _cell(value: Value, sign: str = "") -> str:
    match value:
        case None:
            return "–"
        case float():
            return f"{value:{sign},.2f}"
        case int():
            return f"{value:{sign},}"
    return value


def _titles(inspections: Sequence[Inspection]) -> list[str]:
    lines = []
    for inspection in inspections:
        plan = inspection.plan
        parameters = " ".join(f"{name}={value}" for name, value in plan.values.items())
        launch = f"launch {inspection.number} of {len(plan.launches)}"
        lines.append(f"{plan.variant} {parameters} ({plan.entry}), {launch} for {plan.problem} on {plan.device.label}")
    return lines


def _notes(inspections: Sequence[Inspection]) -> list[str]:
    return [NOTE, *dict.fromkeys(note for inspection in inspections for note in inspection.notes)]


_FORMS = {"table": _to_table, "markdown": _to_markdown, "json": _to_json}
