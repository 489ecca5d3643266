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


def candidates(kernel: str, device_type: str) -> Iterator[Candidate]:
    """Tile sizes worth a try: on a CPU few work-items with much work each, on a GPU 64 to 256 with 16 to 128 sums each."""
    if kernel == "naive":
        yield from ({"TS": ts} for ts in (4, 8, 16, 32))
    elif kernel == "tiled":
        yield from ({"TS": ts, "PAD": pad} for ts, pad in itertools.product((8, 16, 32), (0, 1)))
    elif device_type == "cpu":
        # Runtimes vectorize across work-items side by side: 16 of them, or one that holds whole vectors.
        for items, (wptm, wptn), tsk in itertools.product(
            ((16, 1), (16, 4), (16, 8), (32, 4)), ((4, 1), (4, 2), (4, 4), (8, 2)), (16, 32)
        ):
            yield {"TSM": wptm * items[1], "TSN": wptn * items[0], "TSK": tsk, "WPTM": wptm, "WPTN": wptn, "PAD": 0}
        for wptm, wptn in ((4, 16), (4, 32), (8, 16)):
            yield {"TSM": wptm, "TSN": wptn, "TSK": 64, "WPTM": wptm, "WPTN": wptn, "ARRANGE": "contiguous", "PAD": 0}
    else:
        tiles = ((64, 64), (128, 64), (64, 128), (128, 128), (256, 128), (128, 256))
        for (tsm, tsn), tsk, wptm, wptn in itertools.product(tiles, (8, 16, 32), (4, 8, 16), (4, 8, 16)):
            if 64 <= (tsm // wptm) * (tsn // wptn) <= 256 and wptm * wptn <= 128:
                for arrange, pad in (("strided", 1), ("quads", 4)):
                    tile = {"TSM": tsm, "TSN": tsn, "TSK": tsk}
                    yield {**tile, "WPTM": wptm, "WPTN": wptn, "ARRANGE": arrange, "PAD": pad}


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
