"""Results as a table for people, JSON for programs and CSV for spreadsheets; and progress while they come."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from gemmport.benchmark import Result
from gemmport.device import DeviceInfo
from gemmport.measurement import Timing
from gemmport.problem import GemmProblem

SCHEMA = 1
"""Of the JSON document; docs/results.md describes it."""

WIDTH_OF_A_FILE = 220
"""Columns of a table that is not written to a terminal."""


@contextmanager
def progress_on_terminal() -> Iterator[Callable[[str], None]]:
    """Tells what is being done on standard error, where that is a terminal."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("starting", total=None)
        yield lambda text: progress.update(task, description=text)


def to_json(results: Sequence[Result], environment: dict[str, Any], unavailable: dict[str, str]) -> str:
    """The document that docs/results.md describes."""
    document = {
        "schema": SCHEMA,
        "environment": environment,
        "unavailable": unavailable,
        "results": [result.to_dict() for result in results],
    }
    return json.dumps(document, indent=2, allow_nan=False) + "\n"


def to_csv(results: Sequence[Result]) -> str:
    """One line for each result; nested values become columns like "baselines.numpy.ratio"."""
    rows = [_flat(result.to_dict()) for result in results]
    columns = list(dict.fromkeys(column for row in rows for column in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _flat(value: Any, prefix: str = "") -> dict[str, Any]:
    if not isinstance(value, dict):
        return {prefix: value}
    flat: dict[str, Any] = {}
    for key, inner in value.items():
        flat |= _flat(inner, f"{prefix}.{key}" if prefix else key)
    return flat


def to_table(results: Sequence[Result], unavailable: dict[str, str], *, console: Console | None = None) -> str:
    """A table, and under it what is missing and what went wrong, each once."""
    names = list(dict.fromkeys(baseline.name for result in results for baseline in result.baselines if baseline.timing))
    table = Table(box=None, header_style="bold", pad_edge=False, collapse_padding=True)
    for heading, justify in (
        ("device", "left"), ("problem", "left"), ("kernel", "left"), ("parameters", "left"), ("time", "right"),
        ("GFLOPS", "right"), ("% peak", "right"), *((f"× {name}", "right") for name in names),
        ("error/bound", "right"), ("result", "left"),
    ):  # fmt: skip
        table.add_column(heading, justify=justify, overflow="fold")  # type: ignore[arg-type]  # a literal, widened by the loop
    for result in results:
        table.add_row(*_cells(result, names))
    if console is None or not console.is_terminal:
        console = Console(file=io.StringIO(), width=WIDTH_OF_A_FILE)
    with console.capture() as capture:
        console.print(table)
        for note in _notes(results, unavailable):
            console.print(note, highlight=False, markup=False, soft_wrap=True)
    return "\n".join(line.rstrip() for line in capture.get().splitlines()) + "\n"


def _cells(result: Result, baselines: Sequence[str]) -> list[str]:
    plan, timing = result.plan, result.timing
    ratios = {baseline.name: result.ratio(baseline) for baseline in result.baselines}
    parameters = " ".join(f"{name}={choice.value}" for name, choice in plan.parameters) if plan else ""
    changed = {c.origin for _, c in plan.parameters if c.origin != plan.entry} if plan else set()
    origin = ", ".join(filter(None, (plan.entry if plan else "", *sorted(changed))))
    worst = max((check.error_over_bound for check in result.checks), default=None)
    return [
        f"{result.device.name}\n{result.device.backend} {result.device.platform} {result.device.platform_version}",
        str(result.problem),
        result.kernel,
        f"{parameters}\n{origin}" if plan else "",
        _duration(timing),
        _number(result.gflops(timing), 1),
        _number(result.peak_percent, 1),
        *(_number(ratios.get(name), 3) for name in baselines),
        "" if worst is None else f"{worst:.2g}",
        _verdict(result),
    ]


def _verdict(result: Result) -> str:
    if result.status == "ok":
        return "not verified" if result.verified is None else "PASS"
    return {"failed": "FAIL"}.get(result.status, result.status)


def _duration(timing: Timing | None) -> str:
    if timing is None:
        return ""
    scale, unit = next((s, u) for s, u in ((1.0, "s"), (1e3, "ms"), (1e6, "µs")) if timing.median * s >= 1 or u == "µs")
    return f"{timing.median * scale:.3g} {unit} ±{100 * timing.spread:.1f}%"


def _number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"


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


def _notes(results: Sequence[Result], unavailable: dict[str, str]) -> list[str]:
    notes = [f"backend {name}: {reason}" for name, reason in unavailable.items()]
    for result in results:
        if result.reason:
            notes.append(f"{result.kernel}, {result.problem}: {result.status}: {result.reason}")
        notes += [f"baseline {b.name}: {b.reason}" for b in result.baselines if b.reason]
    return list(dict.fromkeys(notes))
