"""Markdown tables from results of `gemmport run --format json`: what README.md quotes.

python benchmarks/table.py benchmarks/results/run-h200-4096-float32.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option("--size", type=int, default=None, help="Only rows of this m.")
def main(files: tuple[Path, ...], size: int | None) -> None:
    """Prints one table over all files."""
    results: list[dict[str, Any]] = [r for file in files for r in json.loads(file.read_text("utf-8"))["results"]]
    rows = [r for r in results if r["seconds"] and size in (None, r["m"])]
    names = list(dict.fromkeys(name for r in rows for name, b in r["baselines"].items() if b["available"]))
    head = [
        "device",
        "m = n = k",
        "type",
        "kernel",
        "GFLOPS",
        "% of peak",
        *(f"× {name}" for name in names),
        "verified",
    ]
    lines = [head, ["---"] * 4 + ["--:"] * (2 + len(names)) + ["---"]]
    for r in rows:
        ratios = [r["baselines"].get(name, {}).get("ratio") for name in names]
        peak = f"{r['peak_percent']:.1f}" if r["peak_percent"] is not None else ""
        lines.append(
            [
                f"{r['device']}, {r['backend']} ({r['platform']})", str(r["m"]), r["dtype"], f"`{r['kernel']}`",
                f"{r['gflops']:,.1f}" if r["gflops"] < 100 else f"{r['gflops']:,.0f}", peak,
                *("" if ratio is None else f"{ratio:.2f}" for ratio in ratios), "yes" if r["verified"] else "NO",
            ]
        )  # fmt: skip
    sys.stdout.writelines("| " + " | ".join(line) + " |\n" for line in lines)


if __name__ == "__main__":
    main()
