"""Calls as a picture: for each way to call, the ratio to the library's own product over the problems."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gemmport.bench.call_times import Way
from gemmport.bench.calls import SHOWN, Called, Result

Points = tuple[list[int], list[float]]
"""Numbers of problems, and the ratios there."""


def ratio_lines(measured: Sequence[Called], way: Way, results: Sequence[Result]) -> dict[str, Points]:
    """The lines of one way to call, by library and device; those without a ratio are left out.

    Args:
        results: of which the first counts that was measured.
    """
    names = problem_names(measured)
    lines: dict[str, Points] = {}
    for one in measured:
        result = one.first_of(results)
        ratio = one.ratio(way, result) if result else None
        if ratio is not None and one.beside is not None:
            places, ratios = lines.setdefault(f"{one.arrays} ÷ {one.beside.name}, {one.device.label}", ([], []))
            places.append(names.index(one.workload.name))
            ratios.append(ratio)
    return lines


def problem_names(measured: Sequence[Called]) -> list[str]:
    """The problems in the order in which they were measured."""
    return list(dict.fromkeys(one.workload.name for one in measured))


def plot_calls(measured: Sequence[Called], path: Path) -> None:
    """Draws a panel for each way to call and writes the picture."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - takes a second, and is not always installed

    names = problem_names(measured)
    colors: dict[str, str] = {}
    figure = Figure(figsize=(max(7.6, 2.0 + 0.8 * len(names)), 2.6 * len(SHOWN)), layout="constrained")
    handles = {}
    panels = figure.subplots(len(SHOWN), 1, sharex=True)
    for axes, (heading, way, results) in zip(panels, SHOWN, strict=True):
        axes.axhline(1, color="gray", linewidth=0.8, linestyle="--")
        for label, points in ratio_lines(measured, way, results).items():
            color = colors.setdefault(label, f"C{len(colors)}")
            (handles[label],) = axes.plot(*points, color=color, marker="o", markersize=3)
        axes.set_ylim(bottom=0)
        axes.set_ylabel("ratio")
        axes.set_title(heading, fontsize="medium")
        axes.grid(alpha=0.3)
    panels[-1].set_xticks(range(len(names)), names, rotation=30, ha="right", rotation_mode="anchor")
    figure.suptitle("gemmport calls")
    if handles:
        figure.legend(handles.values(), handles, loc="outside lower center", fontsize="small", frameon=False)
    figure.savefig(path, dpi=150)
