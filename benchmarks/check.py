"""The CPU runtimes' headline rows beside those on file, in about two minutes; `make bench-check` runs it.

python benchmarks/check.py             # exit status 1 where a ratio to NumPy is worse beyond both spreads
python benchmarks/check.py --record    # measures the files anew

Each runtime has a process of its own, as when the files were measured. One that is not here is named and passed over.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click

from gemmport.core.errors import BackendUnavailableError, DeviceNotFoundError
from gemmport.execution.selection import select_device

HERE = Path(__file__).parent

RUNTIMES = {"intel": "intel", "pocl31": "pocl 3.1", "pocl30": "pocl 3.0"}
"""The ending of the file's name, and what --device takes."""

REPEAT = 17
"""Samples of each of four products on three runtimes: two minutes on two cores."""


@click.command()
@click.option("--record", is_flag=True, help="Write the files instead of comparing with them.")
def main(*, record: bool) -> None:
    """Measures each runtime that is here; exits with the highest status of them all, or with 3 where none is here."""
    statuses = []
    for name, device in RUNTIMES.items():
        try:
            select_device(device, "opencl")
        except (BackendUnavailableError, DeviceNotFoundError) as error:
            click.echo(f"{device} is left out: {error}", err=True)
            continue
        file = str(HERE / "results" / name / "run" / "headline.json")
        statuses.append(measured(device, ["--format", "json", "--output", file] if record else ["--compare", file]))
    sys.exit(max(statuses, default=3))


def measured(device: str, options: list[str]) -> int:
    """The exit status of `gemmport run` over the headline shapes."""
    command = [
        Path(sys.executable).with_name("gemmport"), "run", "--backend", "opencl", "--device", device, "--baseline", "numpy",
        "--shapes", HERE / "shapes" / "headline.csv", "--repeat", str(REPEAT), *options,
    ]  # fmt: skip
    return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    main()
