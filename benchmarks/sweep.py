"""Times many tile sizes of the family on one device: where the figures of configs/*.yaml come from.

    python benchmarks/sweep.py --device intel --sizes 512,1024 --output benchmarks/results/NAME.csv

Prints the best of each kernel, type and size; writes all of them, verified. Candidates that break a rule of the kernel or a
limit of the device are left out.
"""

from __future__ import annotations

import csv
import itertools
import sys
from collections.abc import Iterator
from pathlib import Path

import click

import gemmport as gp
from gemmport import kernels
from gemmport.benchmark import Options, run_benchmark
from gemmport.config import load_configuration
from gemmport.plan import ParameterValue
from gemmport.selection import select_device

Candidate = dict[str, ParameterValue]


# Tile sizes worth a try: on a CPU few work-items with much work each (runtimes vectorize across those side by side), on a GPU
# 64 to 256 with 16 to 128 sums each.
_GPU_TILES = (
    "TSM, TSN = 64, 64; 64, 128; 128, 64; 128, 128; 128, 256; 256, 128",
    "WPTM, WPTN = 4, 4; 4, 8; 8, 4; 8, 8; 8, 16; 16, 8",
)
_CPU_TILES = (
    "TSM, TSN, WPTM, WPTN = 4, 16, 4, 16; 8, 16, 8, 16; 4, 32, 4, 32; 8, 32, 8, 4; 8, 64, 8, 4; 16, 64, 4, 4; 32, 32, 4, 8",
)
_GRIDS: dict[str, dict[str, tuple[str, ...]]] = {
    "gpu": {
        "naive": ("TS = 8; 16; 32",),
        "tiled": ("TS = 8; 16; 32", "PAD = 0; 1"),
        "wpt": ("TS = 16; 32; 64", "WPT = 2; 4; 8; 16", "PAD = 0; 1"),
        "vectorized": ("TS = 16; 32; 64", "WIDTH = 2; 4; 8"),
        "transposed_b": ("TS = 16; 32", "WPT = 2; 4; 8", "TSDK = 8; 16; 32; 64", "PAD = 0; 1"),
        "register_tiled": (*_GPU_TILES, "TSK = 8; 16; 32", "ARRANGE, PAD = strided, 1; quads, 4"),
        "register_tiled_vectorized": (*_GPU_TILES, "TSK = 8; 16; 32", "WIDTH = 2; 4", "PAD = 0; 4"),
        "shuffle": (),
        "prefetch": (*_GPU_TILES, "TSK = 8; 16", "WIDTH = 4", "STAGES = 1; 2", "REG_PREFETCH = 0; 1", "PAD = 0; 1"),
        "padded": (*_GPU_TILES, "TSK = 8; 16; 32"),
        "direct": (
            "THREADSX, THREADSY = 8, 8; 16, 8; 16, 16; 32, 8",
            "RX, RY = 4, 4; 4, 8; 8, 4; 8, 8",
            "RK = 4; 8",
            "WIDTH = 2; 4",
        ),
    },
    "cpu": {
        "naive": ("TS = 4; 8; 16; 32",),
        "tiled": ("TS = 8; 16; 32", "PAD = 0; 1"),
        "wpt": ("TS = 8; 16; 32", "WPT = 2; 4; 8", "PAD = 0"),
        "vectorized": ("TS = 8; 16; 32; 64", "WIDTH = 4; 8"),
        "transposed_b": ("TS = 8; 16; 32", "WPT = 2; 4; 8", "TSDK = 8; 16", "PAD = 0"),
        "register_tiled": (*_CPU_TILES, "TSK = 8; 16", "ARRANGE = strided; contiguous"),
        "register_tiled_vectorized": (*_CPU_TILES, "TSK = 8; 16", "WIDTH = 4; 8"),
        "shuffle": (),
        "prefetch": (*_CPU_TILES, "TSK = 8", "WIDTH = 4; 8", "STAGES = 1; 2", "REG_PREFETCH = 0"),
        "padded": (*_CPU_TILES, "TSK = 8; 16"),
        "direct": (
            "THREADSX, THREADSY = 1, 1; 2, 2; 4, 4; 16, 1",
            "RX, RY = 8, 8; 16, 4; 16, 8",
            "RK = 4; 8",
            "WIDTH = 4; 8",
        ),
    },
}
"""By type of device and kernel: values of one or several parameters, of which every combination is tried."""


def candidates(kernel: str, device_type: str) -> Iterator[Candidate]:
    """The combinations of a kernel's grid; those that break a rule among them are refused by the kernel."""
    for chosen in itertools.product(*map(_choices, _GRIDS[device_type][kernel])):
        yield {name: value for part in chosen for name, value in part.items()}


def _choices(text: str) -> list[Candidate]:
    names, _, values = text.partition(" = ")
    return [
        {
            name: int(value) if value.isdecimal() else value
            for name, value in zip(names.split(", "), row.split(", "), strict=True)
        }
        for row in values.split("; ")
    ]


@click.command()
@click.option("--backend", default=None)
@click.option("--device", default=None)
@click.option("--kernel", default="naive,tiled,register_tiled", show_default=True)
@click.option("--dtype", default="float32,float64", show_default=True)
@click.option("--sizes", default="1024", show_default=True)
@click.option("--repeat", default=3, show_default=True)
@click.option("--verify/--no-verify", default=True, show_default=True)
@click.option("--output", type=click.Path(path_type=Path), default=None)
def main(
    backend: str | None, device: str | None, kernel: str, dtype: str, sizes: str, repeat: int, verify: bool,
    output: Path | None,
) -> None:  # fmt: skip
    """Times candidates and prints the best."""
    target, configuration = select_device(device, backend), load_configuration()
    rows: list[dict[str, object]] = []
    for name, kind, size in itertools.product(kernel.split(","), dtype.split(","), map(int, sizes.split(","))):
        if kind not in target.computes:
            continue
        problem = gp.GemmProblem.create(size, size, size, dtype=kind)
        found: list[dict[str, object]] = []
        for candidate in candidates(name, target.type):
            try:
                kernels.variant(name).complete(candidate)
                options = Options(configuration, (name,), candidate, baselines=(), verify=verify, repeat=repeat)
                (result,) = run_benchmark([problem], [target], options)
            except gp.ParameterError:
                continue
            row = {"kernel": name, "dtype": kind, "size": size, "gflops": round(result.gflops(result.timing) or 0, 2)}
            found.append(
                {**row, "verified": result.verified, "parameters": " ".join(f"{k}={v}" for k, v in candidate.items())}
            )
        found.sort(key=lambda row: -float(str(row["gflops"])))
        for row in found[:3]:
            sys.stdout.write(f"{row}\n")
            sys.stdout.flush()
        rows += found
    if output is not None:
        with output.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(
                file, ["kernel", "dtype", "size", "gflops", "verified", "parameters"], lineterminator="\n"
            )
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
