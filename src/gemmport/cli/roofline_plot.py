"""A roofline as a picture: the roof of a device, and a product under it."""

from __future__ import annotations

from pathlib import Path

from gemmport.planning.explanation import Explanation

REACH = 8.0
"""The axis goes so many times beyond the product and the ridge."""


def plot(found: Explanation, path: Path) -> None:
    """Draws the roof with the product: what is attainable, what is predicted, and what was measured; writes the picture."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - takes a second, and is not always installed

    roof = found.roofline
    intensity = roof.intensity or roof.ridge
    low, high = min(intensity, roof.ridge) / REACH, max(intensity, roof.ridge) * REACH
    figure = Figure(figsize=(7.2, 5.0), layout="constrained")
    axes = figure.add_subplot()
    corners = [low, roof.ridge, high]
    axes.plot(corners, [roof.attainable(x) * 1e-9 for x in corners], color="black", label="roof")
    axes.axvline(intensity, color="gray", linestyle=":", linewidth=1)
    for name, rate, marker in _points(found):
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


def _points(found: Explanation) -> list[tuple[str, float, str]]:
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
