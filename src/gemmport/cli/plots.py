"""Pictures: products over their sizes, a ladder as bars, calls beside the libraries' own, a roofline. matplotlib draws them."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gemmport.bench.call_times import Way
from gemmport.bench.calls import SHOWN, Called
from gemmport.bench.calls import Result as CallResult
from gemmport.bench.ladder import Climb, Step
from gemmport.bench.results import Outcome
from gemmport.bench.standings import Measured
from gemmport.bench.timing import Timing
from gemmport.cli import options
from gemmport.planning.explanation import Explanation

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

SUFFIXES = (".png", ".svg", ".pdf")

OWN = "gemmport"

STYLES = {OWN: ("#d9480f", "o"), "numpy": ("#3b82f6", "s"), "clblast": ("#2f9e44", "^"), "clblas": ("#a855f7", "v")}
"""Color and marker; the colors stand out from white and from black."""

OTHER_STYLES = (
    ("#767676", "d"),
    ("#0891b2", "P"),
    ("#ca8a04", "X"),
    ("#be185d", "*"),
    ("#1e3a8a", "<"),
    ("#4d7c0f", ">"),
)
"""Of what has none of its own, in its order."""

WIDTH_OF_ALL_BARS = 0.8
"""Of the bars of one step together; the steps are 1 apart."""

LINE_STYLES = ("--", ":", "-.", (0, (1, 4)))
"""Of what the steps are compared with, in its order."""

DARK = 0.6
"""How bright a line is beside the bars of its device, on which it must show."""


def check_plot(path: Path | None) -> None:
    """Fails before the work, not after it.

    Raises:
        UsageError: a kind of file that is not drawn, one that cannot be written, or matplotlib is missing.
    """
    if path is None:
        return
    if path.suffix.lower() not in SUFFIXES:
        raise click.UsageError(f"--plot {path}: the name must end in {', '.join(SUFFIXES)}")
    if importlib.util.find_spec("matplotlib") is None:
        raise click.UsageError("--plot takes matplotlib, which is not installed: pip install 'gemmport[plot]'")
    options.check_writable("--plot", path)


# Products over their sizes


@dataclass
class Panel:
    """What is drawn together: rates, and ratios to the baselines, by line and place.

    Attributes:
        title: type and device.
    """

    title: str
    rates: dict[str, dict[int, float]] = field(default_factory=dict)
    ratios: dict[str, dict[int, float]] = field(default_factory=dict)


@dataclass(frozen=True)
class Places:
    """Where problems stand on the axis: at their size where all are square and of one size each, else one after the other.

    Attributes:
        names: of the problems, where they have no sizes.
    """

    of: Mapping[str, int]
    names: Sequence[str] = ()

    @classmethod
    def among(cls, measured: Sequence[Measured]) -> Places:
        """Those of all problems."""
        problems = {one.workload.name: one.workload.problem for one in measured}
        sizes = {name: p.m for name, p in problems.items() if p.m == p.n == p.k}
        if len(sizes) == len(problems) and len({(p.m, p.dtype) for p in problems.values()}) == len(problems):
            return cls(sizes)
        names = list(problems)
        return cls({name: place for place, name in enumerate(names)}, names)

    def label(self, axes: Axes, points: Iterable[int]) -> None:
        """Writes them below a panel."""
        if self.names:
            axes.set_xticks(range(len(self.names)), self.names, rotation=30, ha="right", rotation_mode="anchor")
        else:
            by_size(axes, points)
            axes.set_xlabel("m = n = k")


def panels(measured: Sequence[Measured], places: Places) -> list[Panel]:
    """A panel for each type and device. One kernel for each problem is one line, called gemmport; of several each has one.

    What is wrong, or was not timed, is not drawn.
    """
    timed = [one for one in measured if one.result.status == "ok" and one.result.timing]
    asked = [(one.workload.name, one.result.device) for one in measured]
    several = len(set(asked)) < len(asked)
    found: dict[tuple[str, Any], Panel] = {}
    for one in timed:
        result, place = one.result, places.of[one.workload.name]
        dtype = str(one.workload.problem.dtype)
        panel = found.setdefault((dtype, result.device), Panel(f"{dtype}, {result.device.label}"))
        own = result.kernel if several else OWN
        panel.rates.setdefault(own, {})[place] = result.rate(result.timing) or 0.0
        for baseline in result.baselines:
            rate, ratio = result.rate(baseline.timing), result.ratio(baseline)
            if rate is not None and ratio is not None:
                panel.rates.setdefault(baseline.name, {}).setdefault(place, rate)
                line = f"{own} ÷ {baseline.name}" if several else f"÷ {baseline.name}"
                panel.ratios.setdefault(line, {})[place] = ratio
    return list(found.values())


def plot_run(measured: Sequence[Measured], path: Path) -> None:
    """Draws GFLOPS, and below them ratios to the baselines, over the problems, and writes the picture."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - takes a second, and is not always installed

    places = Places.among(measured)
    found = panels(measured, places)
    rows = 2 if any(panel.ratios for panel in found) else 1
    columns = max(len(found), 1)
    width = max(4.6, 1.5 + 0.35 * len(places.names)) * columns
    figure = Figure(figsize=(width, 3.2 * rows + 0.6), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False, sharex=True)
    shown: dict[str, Line2D] = {}
    for column, panel in enumerate(found):
        for row, lines in zip(grid[:, column], (panel.rates, panel.ratios), strict=False):
            for name, line in draw_lines(row, lines).items():
                shown.setdefault(name, line)
            row.grid(alpha=0.3)
            row.set_ylim(bottom=0)
        grid[0, column].set_title(panel.title, fontsize="small")
        places.label(grid[-1, column], (place for points in panel.rates.values() for place in points))
    grid[0, 0].set_ylabel("GFLOPS")
    if rows == 2:
        grid[1, 0].set_ylabel("ratio")
        for axes in grid[1]:
            axes.axhline(1, color="gray", linewidth=0.8, linestyle="--")
    if shown:
        figure.legend(shown.values(), shown, loc="outside lower center", ncols=3, fontsize="small", frameon=False)
    figure.savefig(path, dpi=150)


def draw_lines(axes: Axes, lines: Mapping[str, Mapping[int, float]]) -> dict[str, Line2D]:
    """Draws each line, name → place → value, in the style of its name, and gives them by name."""
    drawn, others = {}, 0
    for name, points in lines.items():
        style = STYLES.get(name.removeprefix("÷ "))
        if style is None:
            style, others = OTHER_STYLES[others % len(OTHER_STYLES)], others + 1
        color, marker = style
        (drawn[name],) = axes.plot(*zip(*sorted(points.items()), strict=True), color=color, marker=marker, markersize=3)
    return drawn


def by_size(axes: Axes, sizes: Iterable[int]) -> None:
    """Makes the axis one of sizes that double, with marks at powers of two, or at all where there are none."""
    from matplotlib.ticker import NullLocator  # noqa: PLC0415

    known = sorted(set(sizes))
    ticks = [size for size in known if size & (size - 1) == 0] or known
    axes.set_xscale("log", base=2)
    axes.set_xticks(ticks, list(map(str, ticks)))
    axes.xaxis.set_minor_locator(NullLocator())


# A ladder


def plot_ladder(found: Sequence[Climb], title: str, path: Path) -> None:
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


# Calls

Points = tuple[list[int], list[float]]
"""Numbers of problems, and the ratios there."""


def ratio_lines(measured: Sequence[Called], way: Way, results: Sequence[CallResult]) -> dict[str, Points]:
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


# A roofline

ROOFLINE_REACH = 8.0
"""The axis goes so many times beyond the product and the ridge."""


def plot_roofline(found: Explanation, path: Path) -> None:
    """Draws the roof with the product: what is attainable, what is predicted, and what was measured; writes the picture."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - takes a second, and is not always installed

    roof = found.roofline
    intensity = roof.intensity or roof.ridge
    low, high = min(intensity, roof.ridge) / ROOFLINE_REACH, max(intensity, roof.ridge) * ROOFLINE_REACH
    figure = Figure(figsize=(7.2, 5.0), layout="constrained")
    axes = figure.add_subplot()
    corners = [low, roof.ridge, high]
    axes.plot(corners, [roof.attainable(x) * 1e-9 for x in corners], color="black", label="roof")
    axes.axvline(intensity, color="gray", linestyle=":", linewidth=1)
    for name, rate, marker in _under_the_roof(found):
        axes.plot([intensity], [rate * 1e-9], marker, markersize=9, label=f"{name}: {rate * 1e-9:,.4g} GFLOPS")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_xlabel("FLOP per byte, each operand moved once")
    axes.set_ylabel("GFLOPS")
    axes.grid(which="major", alpha=0.3)
    axes.set_title(f"{found.problem}, {found.plan.variant}\n{found.device.label}", fontsize="medium")
    axes.legend(loc="lower right", fontsize="small", frameon=False)
    figure.savefig(path, dpi=150)


def _under_the_roof(found: Explanation) -> list[tuple[str, float, str]]:
    """Name, rate in operations per second, and marker of what there is."""
    operations = found.roofline.operations
    if not operations:
        return []
    points = [("attainable", found.roofline.attainable(found.roofline.intensity), "_")]
    if found.prediction and found.prediction.seconds:
        points.append(("predicted", operations / found.prediction.seconds, "o"))
    if found.measured:
        points.append(("measured", operations / found.measured.seconds, "*"))
    return points
