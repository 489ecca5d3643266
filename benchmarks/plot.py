"""GFLOPS over size, of a kernel and of the baselines beside it, from results of `gemmport run --format json`: one picture.

python benchmarks/plot.py benchmarks/results/run-intel-packed-float32.json … --output docs/cpu.svg
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import click


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option("--output", required=True, type=click.Path(path_type=Path, dir_okay=False), help="SVG, PNG or PDF.")
def main(files: tuple[Path, ...], output: Path) -> None:
    """Draws one panel for each file, in rows of three."""
    import matplotlib as mpl  # noqa: PLC0415

    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "gemmport"  # the same picture for the same results
    from matplotlib import pyplot as plt  # noqa: PLC0415

    columns = min(3, len(files))
    rows = math.ceil(len(files) / columns)
    figure, panels = plt.subplots(rows, columns, figsize=(4 * columns, 3.2 * rows), squeeze=False, layout="constrained")
    for panel, file in zip(panels.flat, files, strict=False):
        results = [result for result in json.loads(file.read_text("utf-8"))["results"] if result["seconds"]]
        for name, points in lines_of(results).items():
            panel.plot(*zip(*sorted(points.items()), strict=True), marker="o", markersize=3, label=name)
        panel.set_title(
            f"{results[0]['device']['platform']} {results[0]['device']['platform_version']}, {results[0]['dtype']}"
        )
        panel.set_xscale("log", base=2)
        panel.set_xticks(sizes := sorted({result["m"] for result in results}), map(str, sizes))
        panel.set_xlabel("m = n = k")
        panel.set_ylabel("GFLOPS")
        panel.set_ylim(bottom=0)
        panel.grid(alpha=0.3)
        panel.legend(fontsize="small")
    for panel in panels.flat[len(files) :]:
        panel.set_axis_off()
    figure.savefig(output, metadata={"Date": None} if output.suffix == ".svg" else None)


def lines_of(results: list[dict[str, Any]]) -> dict[str, dict[int, float]]:
    """Contestant → size → GFLOPS."""
    lines: dict[str, dict[int, float]] = {"gemmport": {}}
    for result in results:
        lines["gemmport"][result["m"]] = result["gflops"]
        for name, baseline in result["baselines"].items():
            if baseline.get("gflops"):
                lines.setdefault(name, {})[result["m"]] = baseline["gflops"]
    return lines


if __name__ == "__main__":
    main()
