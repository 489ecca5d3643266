"""A ladder as a picture: a bar for each step and device, and what they are compared with as lines across."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path

import click

from gemmport.bench.ladder import Climb, Step
from gemmport.bench.results import Outcome
from gemmport.bench.timing import Timing

SUFFIXES = (".png", ".svg", ".pdf")

WIDTH_OF_ALL_BARS = 0.8
"""Of the bars of one step together; the steps are 1 apart."""

LINE_STYLES = ("--", ":", "-.", (0, (1, 4)))
"""Of what the steps are compared with, in its order."""

DARK = 0.6
"""How bright a line is beside the bars of its device, on which it must show."""


def check_plottable(path: Path) -> None:
    """Fails before the work, not after it.

    Raises:
        UsageError: a kind of file that is not drawn, or matplotlib is missing.
    """
    if path.suffix.lower() not in SUFFIXES:
        raise click.UsageError(f"--plot {path}: the name must end in {', '.join(SUFFIXES)}")
    if importlib.util.find_spec("matplotlib") is None:
        raise click.UsageError("--plot takes matplotlib, which is not installed: pip install 'gemmport[plot]'")


def plot(found: Sequence[Climb], title: str, path: Path) -> None:
    """Draws the medians as bars with whiskers from quartile to quartile, and writes the picture.

    A step that a device did not run has its status in the place of a bar; one that is wrong is hatched.
    """
    from matplotlib.colors import to_rgb  # noqa: PLC0415 - takes a second, and is not always installed
    from matplotlib.figure import Figure  # noqa: PLC0415

    names = [step.result.name for step in found[0].steps]
    result = found[0].steps[0].result
    figure = Figure(figsize=(max(6.4, 2.0 + 0.9 * len(names)), 5.4), layout="constrained")
    axes = figure.add_subplot()
    width = WIDTH_OF_ALL_BARS / len(found)
    for number, climb in enumerate(found):
        color = f"C{number}"
        places = [at - WIDTH_OF_ALL_BARS / 2 + width * (number + 0.5) for at in range(len(names))]
        rates = [step.result.rate(step.result.timing) or 0.0 for step in climb.steps]
        bars = axes.bar(places, rates, 0.94 * width, color=color, label=climb.device.label)
        axes.errorbar(places, rates, yerr=_whiskers(climb.steps), fmt="none", ecolor="black", capsize=2, linewidth=1)
        for bar, place, step in zip(bars, places, climb.steps, strict=True):
            if step.result.status == "failed":
                bar.set_hatch("xx")
            if step.result.status != "ok":
                axes.annotate(
                    step.result.status, (place, 0), (0, 4), textcoords="offset points", rotation=90, ha="center",
                    va="bottom", fontsize="small", bbox={"color": "white", "pad": 1},
                )  # fmt: skip
        dark = tuple(DARK * part for part in to_rgb(color))
        beside = f" beside {climb.device.backend}" if len(found) > 1 else ""
        for style, (name, rate) in zip(LINE_STYLES, _lines(climb).items(), strict=False):
            axes.axhline(rate, color=dark, linestyle=style, label=f"{name}{beside}")
    axes.set_xticks(range(len(names)), names, rotation=30, ha="right", rotation_mode="anchor")
    axes.set_ylabel(result.unit)
    axes.set_ylim(bottom=0)
    axes.grid(axis="y", alpha=0.3)
    axes.set_axisbelow(True)
    axes.set_title(f"{title}: {result.task}")
    figure.legend(loc="outside lower center", ncols=2, fontsize="small", frameon=False)
    figure.savefig(path, dpi=150)


def _whiskers(steps: Sequence[Step]) -> tuple[list[float], list[float]]:
    """From each median down to the rate of the slower quartile, and up to that of the faster one."""
    down, up = [], []
    for step in steps:
        result, timing = step.result, step.result.timing
        median = result.rate(timing) or 0.0
        fast, slow = (_rate_at(result, seconds) for seconds in timing.quartiles) if timing else (0.0, 0.0)
        down.append(max(median - slow, 0.0))
        up.append(max(fast - median, 0.0))
    return down, up


def _rate_at(result: Outcome, seconds: float) -> float:
    return result.rate(Timing((seconds,), 1)) or 0.0


def _lines(climb: Climb) -> dict[str, float]:
    """What the steps are compared with, where it was measured: the rate of each."""
    rates: dict[str, float] = {}
    for step in climb.steps:
        rates |= step.result.compared_with()
    return rates
