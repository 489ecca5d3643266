"""README's picture: the ratio to the vendor's library on a GPU, and to NumPy as called on a CPU, over the size of squares.

benchmarks/tables.py draws it. A GPU's kernels are those of `gemmport run`, under CUDA and in OpenCL, beside cuBLAS under CUDA
in the same run. A CPU's products are those of `gemmport calls`, awaited, beside NumPy's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click
from plot import TEXT

from gemmport.cli.plots import OWN, STYLES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

VENDOR, HOST = "cuBLAS", "NumPy"
"""Panels, by what the ratio is to."""

COLORS = [color for color, _ in STYLES.values()]
MARKERS = [marker for _, marker in STYLES.values()]

Ratios = Mapping[str, Mapping[str, Mapping[int, float]]]
"""Panel → line → m = n = k → ratio."""


def ratios(documents: Sequence[Sequence[Mapping[str, Any]]]) -> Ratios:
    """What documents say of squares. OpenCL cannot call cuBLAS: its ratio is to the time under CUDA in the same document."""
    found: dict[str, dict[str, dict[int, float]]] = {VENDOR: {}, HOST: {}}
    for results in documents:
        squares = [result for result in results if result["m"] == result["n"] == result["k"]]
        vendor = {
            result["m"]: rate
            for result in squares
            if (rate := result.get("baselines", {}).get("cublas", {}).get("gflops")) is not None
        }
        for result in squares:
            size = result["m"]
            if "numpy_seconds" in result:
                runtime = result["device"].partition("(opencl, ")[2].rstrip(")")
                found[HOST].setdefault(runtime, {})[size] = result["ratio"]
            elif size in vendor and result["gflops"] is not None:
                found[VENDOR].setdefault(result["backend"], {})[size] = result["gflops"] / vendor[size]
    return found


def figure_of(found: Ratios) -> Figure:
    """The picture, for a page of any color.

    Raises:
        ClickException: matplotlib is missing.
    """
    try:
        import matplotlib as mpl  # noqa: PLC0415 - not always installed
        from matplotlib.figure import Figure  # noqa: PLC0415
        from matplotlib.ticker import NullLocator  # noqa: PLC0415
    except ImportError as error:
        raise click.ClickException("matplotlib is not installed: pip install 'gemmport[plot]'") from error
    colors = dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), TEXT)
    with mpl.rc_context({**colors, "font.size": 9}):
        figure = Figure(figsize=(7.6, 2.6), layout="constrained")
        for axes, (baseline, lines) in zip(figure.subplots(1, len(found)), found.items(), strict=True):
            axes.axhline(1, color=TEXT, linewidth=0.8, linestyle="--")
            for (name, points), color, marker in zip(lines.items(), COLORS, MARKERS, strict=False):
                axes.plot(
                    *zip(*sorted(points.items()), strict=True), color=color, marker=marker, markersize=3, label=name
                )
            sizes = sorted({size for points in lines.values() for size in points})
            axes.set_xscale("log", base=2)
            axes.set_xticks(sizes, map(str, sizes))
            axes.xaxis.set_minor_locator(NullLocator())
            axes.set_ylim(bottom=0)
            axes.set_xlabel("m = n = k")
            axes.set_title(f"{OWN} ÷ {baseline}, float32", fontsize="medium")
            axes.legend(frameon=False, fontsize="small", loc="lower right")
            axes.grid(alpha=0.3)
    return figure
