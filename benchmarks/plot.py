"""GFLOPS over size, ours and each baseline's, from results of `gemmport run --format json`: a panel for each runtime and type.

python benchmarks/plot.py benchmarks/results/{intel,pocl31,pocl30}/run/*squares-float*.json --output docs/cpu.svg
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gemmport.cli.plots import OWN, by_size, draw_lines

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TEXT = "#767676"
"""A gray that stands out from white and from black."""


@dataclass
class Panel:
    """What is drawn together.

    Attributes:
        lines: contestant → m = n = k → GFLOPS.
        files: m = n = k → the file that our figure is from.
    """

    lines: dict[str, dict[int, float]] = field(default_factory=lambda: {OWN: {}})
    files: dict[int, Path] = field(default_factory=dict)


Key = tuple[str, str]
"""Type and runtime: a panel's row and column."""


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--output", required=True, type=click.Path(dir_okay=False, path_type=Path), help="An .svg, .png or .pdf file."
)
def main(files: tuple[Path, ...], output: Path) -> None:
    """Draws the square products of FILES, with a row of panels for each type and a column for each runtime."""
    save(figure_of(panels(files)), output)


def panels(files: tuple[Path, ...]) -> dict[Key, Panel]:
    """What the files say of square products that were timed.

    Raises:
        ClickException: a file is not such JSON, has no figure of a square product, or has one that another has, too.
    """
    found: dict[Key, Panel] = {}
    for file in files:
        try:
            results = json.loads(file.read_text(encoding="utf-8"))["results"]
            squares = [r for r in results if r["m"] == r["n"] == r["k"] and r["gflops"] is not None]
        except (ValueError, KeyError, TypeError) as error:
            raise click.ClickException(f"{file}: no result of `gemmport run --format json`: {error!r}") from error
        if not squares:
            raise click.ClickException(f"{file}: no figure of a square product: none was timed (see its `status`)")
        for result in squares:
            panel = found.setdefault((result["dtype"], result["platform"]), Panel())
            _add(panel, result, file)
    return found


def _add(panel: Panel, result: Mapping[str, Any], file: Path) -> None:
    size = result["m"]
    if size in panel.files:
        task = f"{size}³ in {result['dtype']} on {result['platform']}"
        raise click.ClickException(
            f"{task} is in {panel.files[size]} and in {file}: give one figure for each (--kernel auto)"
        )
    panel.files[size] = file
    panel.lines[OWN][size] = result["gflops"]
    for name, baseline in result["baselines"].items():
        if baseline["gflops"] is not None:
            panel.lines.setdefault(name, {})[size] = baseline["gflops"]


def figure_of(found: Mapping[Key, Panel]) -> Figure:
    """The picture, for a page of any color.

    Raises:
        ClickException: matplotlib is missing.
    """
    try:
        import matplotlib as mpl  # noqa: PLC0415 - not always installed
        from matplotlib.figure import Figure  # noqa: PLC0415
    except ImportError as error:
        raise click.ClickException("matplotlib is not installed: pip install 'gemmport[plot]'") from error
    colors = dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), TEXT)
    types, runtimes = (list(dict.fromkeys(key[part] for key in found)) for part in range(2))
    with mpl.rc_context({**colors, "font.size": 9}):
        figure = Figure(figsize=(3.4 * len(runtimes), 2.6 * len(types) + 0.4), layout="constrained")
        grid = figure.subplots(len(types), len(runtimes), squeeze=False, sharey="row")
        shown: dict[str, Any] = {}
        for row, dtype in zip(grid, types, strict=True):
            for axes, runtime in zip(row, runtimes, strict=True):
                if (dtype, runtime) not in found:
                    axes.set_axis_off()
                    continue
                panel = found[dtype, runtime]
                shown |= {name: line for name, line in draw_lines(axes, panel.lines).items() if name not in shown}
                axes.set_title(f"{runtime}, {dtype}", fontsize="medium")
                by_size(axes, panel.files)
                axes.grid(alpha=0.3)
            row[0].set_ylim(bottom=0)
            row[0].set_ylabel("GFLOPS")
        for axes in grid[-1]:
            axes.set_xlabel("m = n = k")
        figure.legend(shown.values(), shown, loc="outside lower center", ncols=len(shown), frameon=False)
    return figure


def save(figure: Figure, output: Path) -> None:
    """Writes the picture: the same bytes for the same figures."""
    from matplotlib import rc_context  # noqa: PLC0415

    with rc_context({"svg.fonttype": "none", "svg.hashsalt": OWN}):
        figure.savefig(output, transparent=True, metadata={"Date": None} if output.suffix.lower() == ".svg" else None)


if __name__ == "__main__":
    main()
