"""Which tiles AMD's GPUs should like, by what the compiler makes of them: no GPU is measured, and none is needed.

    python benchmarks/modelled_tiles.py --output benchmarks/results/amdgcn/study/modelled-tiles.json

Each choice of parameters is compiled for each architecture (`gemmport inspect --arch`). One that spills registers is out. Of
the others, a round of the main loop takes a SIMD, with as many waves as fit, as many clocks as the greatest of these says:

- how long its vector unit works for all of these waves, by llvm-mca, float64 at its own rate;
- what local memory takes to bring what they read and write: 128 bytes a clock for the SIMDs that share it;
- what the second-level cache takes to bring what they load: 32 bytes a clock and compute unit, which is an assumption;
- what one wave takes that is alone: fewer waves hide less.

`share` is the multiply-adds of such a round by those that the SIMD could do in that time. The model knows no bank conflicts:
PAD is not among what is chosen.
"""

from __future__ import annotations

import itertools
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click
import document

import gemmport as gp
from gemmport.backends import _amdgpu
from gemmport.contracts import amd
from gemmport.contracts.named_devices import device_of
from gemmport.core.errors import CompileError, ParameterError, UnsupportedError
from gemmport.core.plan import ParameterValue, Plan
from gemmport.core.problem import GemmProblem
from gemmport.inspection.instructions import Instruction
from gemmport.inspection.report import Inspection, inspect
from gemmport.kernels import _simt_tilings
from gemmport.planning.lookup import load_configuration
from gemmport.planning.planner import make_plan

SIZE = 4096
"""Of the square product for which each is compiled: whole tiles."""

LOCAL_BYTES, CACHE_BYTES = 128, 32
"""A clock, of local memory for the SIMDs that share it, and of the second-level cache for a compute unit."""

Parameters = Mapping[str, ParameterValue]

TILES = [
    {"TSM": m, "TSN": n, "TSK": k, "WPTM": rows, "WPTN": columns}
    for m, n in ((64, 64), (64, 128), (128, 64), (128, 128))
    for k in (8, 16)
    for rows, columns in ((4, 4), (8, 4), (8, 8))
    if (m // rows) * (n // columns) <= amd.MAX_WORK_GROUP
]

GRIDS: dict[str, list[Parameters]] = {
    "tiled": [{"TS": size} for size in (8, 16)],
    "wpt": [{"TS": size, "WPT": rows} for size in (32, 64) for rows in (8, 16) if size * size // rows <= 256],
    "vectorized": [{"TS": 32, "WIDTH": width} for width in (4, 8)],
    "transposed_b": [{"TS": 32, "WPT": 8, "TSDK": depth} for depth in (8, 16)],
    "register_tiled": [{**tile, "ARRANGE": order} for tile in TILES for order in ("strided", "contiguous")],
    "register_tiled_vectorized": [{**tile, "WIDTH": 4, "PAD": 4} for tile in TILES],
    "prefetch": [
        {**tile, "WIDTH": 4, "PAD": 4, "STAGES": stages, "REG_PREFETCH": ahead}
        for tile in TILES
        for stages, ahead in ((1, 0), (2, 1))
    ],
    "padded": [{**tile, "PADDINGX": 16, "PADDINGY": 4} for tile in TILES],
    "direct": [
        {"THREADSX": x, "THREADSY": y, "RX": 8, "RY": 8, "RK": 4, "WIDTH": 4} for x, y in ((8, 8), (16, 4), (16, 8))
    ],
}
"""By kernel; `simt` has its tilings elsewhere."""


@dataclass(frozen=True)
class Found:
    """What came of one choice.

    Attributes:
        groups: on a compute unit at once. waves: of a SIMD.
        share: of the SIMD's multiply-adds; None where registers are spilled.
        limit: what the round's time is that of.
    """

    parameters: dict[str, ParameterValue]
    registers: int
    groups: int
    waves: float
    spills: int
    share: float | None
    limit: str
    clocks: dict[str, float]


def choices(kernel: str) -> Sequence[Parameters]:
    """All that are tried of a kernel: a grid; of `simt` the tilings that it chooses among on Hopper and elsewhere, with two
    stages, and with three where these are one slice.
    """
    if kernel != "simt":
        return GRIDS[kernel]
    known = load_configuration().model(device_of("sm_90")).tilings["simt"]
    tilings = [{**each, "PORTS": 0, "GROUPS": 1} for each in (*known, *_simt_tilings.generated())]
    staged = [{**each, "STAGES": stages} for each in tilings for stages in (2, 3) if stages == 2 or each["SLICES"] == 1]
    return list({tuple(each.items()): each for each in staged}.values())


def found(kernel: str, parameters: Parameters, architecture: str, dtype: str) -> Found | None:
    """What the compiler and the model say of a choice; None where it does not fit the device or the problem."""
    problem = GemmProblem.create(SIZE, SIZE, SIZE, dtype=dtype)
    try:
        plan = planned(problem, device_of(architecture), kernel, parameters)
        own = inspect(plan)
    except (ParameterError, UnsupportedError, CompileError):
        return None
    if own.bound is None or own.occupancy is None or not own.occupancy.groups:
        return None
    spills = int(own.resources.spill_stores or 0) + int(own.resources.scalar_spills or 0)
    clocks = clocks_of(own)
    limit = max(clocks, key=lambda name: clocks[name])
    done = own.occupancy.per_scheduler * multiply_adds(own.codes[-1].loop) * plan.device.sub_group
    return Found(
        dict(plan.values), int(own.resources.registers or 0), own.occupancy.groups, own.occupancy.per_scheduler, spills,
        None if spills else done / (clocks[limit] * rate(architecture, dtype)), limit, clocks,
    )  # fmt: skip


def planned(problem: GemmProblem, device: gp.DeviceInfo, kernel: str, parameters: Parameters) -> Plan:
    """A plan with these parameters."""
    return make_plan(problem, device, load_configuration(), kernel=kernel, params=parameters)


def clocks_of(own: Inspection) -> dict[str, float]:
    """Clocks of a SIMD for a round of the loop of all of its waves, by what takes them."""
    assert own.bound is not None
    assert own.occupancy is not None
    device = own.plan.device
    cdna = device.architecture.startswith("gfx9")
    a_cycle = 4 if cdna else 1  # in clocks: 64 work-items on 16 lanes, or 32 on 32
    waves, loop = own.occupancy.per_scheduler, own.codes[-1].loop
    double = sum(bool(re.match(r"v_\w*_f64", instruction.text)) for instruction in loop)
    slow = rate(device.architecture, "float32") / rate(device.architecture, "float64") if not cdna else 1
    local, loaded = (
        sum(access.bits for instruction in loop for access in instruction.accesses if access.space == space)
        * device.sub_group / 8
        for space in ("local", "global")
    )  # fmt: skip
    sharing = 4 if cdna else 2
    return {
        "vector unit": waves * a_cycle * (own.bound.units.get("HWVALU", 0.0) + double * (slow - 1)),
        "local memory": waves * local / LOCAL_BYTES * sharing,
        "cache": waves * loaded / CACHE_BYTES * amd.SIMDS,
        "one wave": a_cycle * own.bound.alone,
    }


def multiply_adds(loop: Sequence[Instruction]) -> int:
    """Of a work-item in a round: two of an instruction on packed numbers, one of each half of a pair."""
    names = [half.split()[0] for instruction in loop for half in instruction.text.split("::")]
    return sum(
        1 + name.startswith("v_pk_")
        for name in names
        if re.match(r"v_(pk_|dual_)?(fma|fmac|mac|mad)\w*_f(32|64)", name)
    )


def rate(architecture: str, dtype: str) -> float:
    """Multiply-adds of a SIMD and clock outside the matrix unit, by AMD's white papers: of float32 twice as many as lanes where
    there are packed (CDNA 2) or paired (RDNA 3) instructions.
    """
    if architecture in ("gfx90a", "gfx942"):
        return 32 if dtype == "float32" else 16
    if architecture.startswith("gfx10"):
        return 32 if dtype == "float32" else 2
    return 64 if dtype == "float32" else 1


def best(all_found: Sequence[Found]) -> Found | None:
    """The one of the greatest share; among those within a hundredth of it, that which loads least, then of fewest registers."""
    good = [own for own in all_found if own.share is not None]
    if not good:
        return None
    most = max(own.share or 0.0 for own in good)
    near = [own for own in good if (own.share or 0.0) >= 0.99 * most]
    return min(near, key=lambda own: (own.clocks["cache"] / own.waves / (own.share or 1.0), own.registers))


def study(architecture: str, dtype: str, kernel: str, pool: ProcessPoolExecutor) -> dict[str, Any]:
    """All choices of a kernel, the best first."""
    tried = list(filter(None, pool.map(partial(_found, kernel, architecture, dtype), choices(kernel))))
    chosen = best(tried)
    ranked = sorted(tried, key=lambda own: -(own.share or 0.0))
    return {
        "architecture": architecture,
        "dtype": dtype,
        "kernel": kernel,
        "tried": len(tried),
        "spilled": sum(own.spills > 0 for own in tried),
        "best": chosen and vars(chosen),
        "next": [vars(own) for own in ranked[:5]],
        "tiles": [vars(own) for own in of_each_tile(ranked)] if kernel == "simt" else [],
    }


def of_each_tile(ranked: Sequence[Found]) -> Iterator[Found]:
    """The first of each size of tiles and number of slices, without spills: what suits other sizes of products."""
    seen: set[tuple[ParameterValue, ...]] = set()
    for own in ranked:
        tile = tuple(own.parameters[name] for name in ("TSM", "TSN", "SLICES"))
        if own.share is not None and tile not in seen:
            seen.add(tile)
            yield own


def _found(kernel: str, architecture: str, dtype: str, parameters: Parameters) -> Found | None:
    return found(kernel, parameters, architecture, dtype)


def table(results: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """A line for each result."""
    for own in results:
        if (chosen := own["best"]) is None:
            yield f"{own['architecture']} {own['dtype']} {own['kernel']}: none of {own['tried']} without spills"
            continue
        told = " ".join(f"{name}={value}" for name, value in chosen["parameters"].items())
        yield (
            f"{own['architecture']} {own['dtype']} {own['kernel']} {told}: {100 * chosen['share']:.0f} % by {chosen['limit']}, "
            f"{chosen['registers']} registers, {chosen['waves']:g} waves"
        )


@click.command()
@click.option(
    "--targets",
    default="gfx90a:float32,gfx90a:float64,gfx1030:float32,gfx1100:float32",
    show_default=True,
    help="ARCHITECTURE:DTYPE[,ARCHITECTURE:DTYPE]",
)
@click.option("--kernel", default=",".join((*GRIDS, "simt")), show_default=True, help="NAME[,NAME]")
@click.option("--output", type=click.Path(path_type=Path), help="Write JSON to this file, too.")
def main(targets: str, kernel: str, output: Path | None) -> None:
    """Compiles all choices, and tells the best of each kernel."""
    results = []
    with ProcessPoolExecutor(min(os.cpu_count() or 1, 8)) as pool:
        for target, own in itertools.product(targets.split(","), kernel.split(",")):
            architecture, _, dtype = target.partition(":")
            results.append(study(architecture, dtype, own, pool))
            sys.stdout.write("".join(f"{line}\n" for line in table(results[-1:])))
            sys.stdout.flush()
    if output is not None:
        document.write(output, compiler=_amdgpu.compiler().name, size=SIZE, results=results)


if __name__ == "__main__":
    main()
