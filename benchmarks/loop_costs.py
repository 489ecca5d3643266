"""What the model of the register file's ports makes of `simt`'s main loop, as compiled and in each order (docs/ports.md).

    python benchmarks/loop_costs.py --output benchmarks/results/sm_90/study/loop-costs.json

Compiles float32 with the largest tile for compute capability 9.0, and counts. Takes a minute, and needs NVRTC or nvcc, but no
GPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import click
import document

from gemmport.backends import _nvrtc, _sass
from gemmport.backends._sass import reschedule
from gemmport.backends._sass.cubin import Code
from gemmport.backends._sass.loop import main_loop
from gemmport.backends._sass.ports import Cost, cost
from gemmport.contracts.kernel import Parameters
from gemmport.core.device import DeviceInfo
from gemmport.core.plan import Launch
from gemmport.core.problem import GemmProblem
from gemmport.planning.lookup import load_configuration
from gemmport.planning.planner import make_plan
from gemmport.runtime.sources import assemble

ARCHITECTURE = f"sm_{_sass.COMPUTE_CAPABILITY}"

H200 = DeviceInfo(
    backend="cuda", name="NVIDIA H200", platform="nvidia", vendor="nvidia", architecture=ARCHITECTURE, compute_units=132,
    max_work_group=1024, max_work_item_sizes=(1024, 1024, 64), local_memory=49152, dynamic_local_memory=232448, sub_group=32,
)  # fmt: skip
"""As far as a plan depends on it."""

OPS = ("NN", "TN", "NT", "TT")

SIZES = {"whole tiles": 4096, "rows that are not aligned": 4095}
"""Kind of products → an extent of such ones."""

ROWS = {"one row": 1, "two rows": 2}
"""Order → how many rows of a work-item's sums go together."""


def as_compiled(source: str) -> str:
    """The source without its wish that its loop be put into another order."""
    return source.replace(f"#define SCHEDULE_FOR_PORTS {_sass.asked_for(source)}\n", "#define SCHEDULE_FOR_PORTS 0\n")


def reordered(binary: bytes, groups: int, rows: int) -> bytes:
    """A cubin with its loop in the order in which so many rows go together, whatever would be taken otherwise.

    Args:
        groups: work-groups for which a multiprocessor's registers shall suffice.
    """
    with patch.object(reschedule, "in_one_bank", return_value=rows == 1):
        return _sass.rescheduled(binary, groups)


def loops() -> Iterator[tuple[str, str, Launch]]:
    """The products, their ops, and the launch with the loop."""
    tiling = load_configuration(()).model(H200).tilings["simt"][0]
    for kind, size in SIZES.items():
        for ops in OPS:
            yield kind, ops, _launches(size, ops, {**tiling, "SHARE": 0})[0]
    for ops in OPS[:2]:
        yield "shared tiles", ops, _launches(SIZES["whole tiles"], ops, {**tiling, "SHARE": 1})[-2]


def _launches(size: int, ops: str, values: Parameters) -> tuple[Launch, ...]:
    problem = GemmProblem.create(size, size, size, trans_a=ops[0], trans_b=ops[1])
    return make_plan(problem, H200, load_configuration(()), kernel="simt", params=values).launches


def costs(launch: Launch) -> dict[str, Any]:
    """What the loop takes as compiled and in each order, and which of them is taken."""
    source = assemble(launch.kernel, "cuda")
    groups = _sass.asked_for(source)
    binary = _nvrtc.compile_cuda(as_compiled(source), ARCHITECTURE)
    told = {"as compiled": binary, **{name: reordered(binary, groups, rows) for name, rows in ROWS.items()}}
    found = {name: of_loop(each) for name, each in told.items()}
    plain = found["as compiled"]
    return {
        "instructions": plain.instructions,
        "ffma": plain.ffma,
        **{name: {"cycles": each.cycles, "reads": each.reads} for name, each in found.items()},
        "taken": next(name for name in ROWS if told[name] == _sass.rescheduled(binary, groups)),
    }


def of_loop(binary: bytes) -> Cost:
    """What a pass of the main loop of a cubin takes."""
    words = Code(binary, "simt").words
    loop = main_loop(words)
    return cost(words[loop.first : loop.last + 1])


@click.command()
@click.option("--output", type=click.Path(path_type=Path), help="Write JSON to this file, and not to standard output.")
def main(output: Path | None) -> None:
    """Counts the loops."""
    found = []
    for kind, ops, launch in loops():
        found.append({"products": kind, "ops": ops, **costs(launch)})
        click.echo(f"{kind}, {ops}: {found[-1]}", err=True)
    document.write(output, compiler=_nvrtc.compiler(), loops=found)


if __name__ == "__main__":
    main()
