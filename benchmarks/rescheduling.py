"""Times the pass that puts machine code in another order, today's and that of earlier commits, in turns (docs/ports.md).

    python benchmarks/rescheduling.py --before 8524ddb^ --before 396202f^ --turns 5 --output \
        benchmarks/results/sm_90/study/rescheduling.json

Compiles `simt` for compute capability 9.0 with the tilings that plans for an H200 have, and has each code put the same programs
in another order, each time in a process of its own. Takes minutes, needs git, and NVRTC or nvcc, but no GPU.
"""

from __future__ import annotations

import gc
import hashlib
import io
import json
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from statistics import median
from types import ModuleType
from typing import Any

import click
import document
from loop_costs import ARCHITECTURE, as_compiled, of_loop
from loop_costs import H200 as NEARLY

from gemmport.backends import _nvrtc, _sass
from gemmport.core.problem import GemmProblem
from gemmport.planning.lookup import load_configuration
from gemmport.planning.planner import make_plan
from gemmport.runtime.sources import assemble

ROOT = Path(__file__).resolve().parent.parent

FOLDER = "backends/_sass"
"""The pass, which imports nothing beside itself."""

TODAY = "HEAD"

H200 = replace(NEARLY, clock_mhz=1980, memory=150109880320, max_allocation=150109880320, registers=65536)
"""As far as the choice of tilings depends on it."""

PRODUCTS = (
    ("float32", 1000, "NN"), ("float32", 1280, "NN"), ("float32", 2187, "NN"), ("float32", 4096, "NN"),
    ("float32", 4096, "NT"), ("float32", 4095, "TN"), ("complex64", 1024, "NN"), ("complex64", 4096, "NN"),
)  # fmt: skip
"""Types, extents and ops."""


def programs() -> Iterator[tuple[dict[str, Any], str, int]]:
    """What each program is of, its source, and its work-groups for a multiprocessor; each source once."""
    seen = set()
    for dtype, size, ops in PRODUCTS:
        problem = GemmProblem.create(size, size, size, dtype=dtype, trans_a=ops[0], trans_b=ops[1])
        plan = make_plan(problem, H200, load_configuration(), kernel="simt")
        chosen = dict(plan.parameters)
        for launch in plan.launches:
            source = assemble(launch.kernel, "cuda")
            groups = _sass.asked_for(source)
            if groups and source not in seen:
                seen.add(source)
                tile = [chosen[name].value for name in ("TSM", "TSN", "TSK")]
                shared = bool(int(dict(launch.kernel.defines)["SHARES"]))
                yield {"dtype": dtype, "m": size, "ops": ops, "tile": tile, "shared": shared}, source, groups


def named(commit: str) -> str:
    """The short name of a commit, which says the same tomorrow."""
    command = ["git", "rev-parse", "--short=7", commit]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def extract(commit: str, folder: Path) -> None:
    """Puts the pass of a commit into a folder."""
    packed = subprocess.run(["git", "archive", commit, FOLDER], cwd=ROOT, check=True, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(folder, filter="data")


def once(folder: Path, program: Path, groups: int) -> dict[str, Any]:
    """One time of the pass in a process of its own: seconds, and what came of it."""
    command = [sys.executable, __file__, "--worker", str(folder), str(program), str(groups)]
    return dict(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))


def worker(folder: Path, program: Path, groups: int) -> None:
    """Does the pass once, by the code in a folder, as its process does: without collection of garbage."""
    for name in [each for each in sys.modules if each.startswith("gemmport.backends._sass")]:
        del sys.modules[name]
    package = ModuleType("gemmport.backends._sass")  # without what its __init__ imports
    package.__path__ = [str(folder / FOLDER)]
    sys.modules[package.__name__] = package
    rescheduled = import_module("gemmport.backends._sass.reschedule").rescheduled
    binary = program.read_bytes()
    gc.disable()
    wall, cpu = time.perf_counter(), time.process_time()
    better = rescheduled(binary, groups)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    told = {"cpu": cpu, "wall": wall, "sha256": hashlib.sha256(better).hexdigest(), "cycles": of_loop(better).cycles}
    sys.stdout.write(json.dumps({**told, "changed": better != binary}))


def times(source: str, groups: int, codes: Sequence[tuple[str, Path]], turns: int, folder: Path) -> dict[str, Any]:
    """Each code's seconds of one program, in turns."""
    binary = _nvrtc.compile_cuda(as_compiled(source), ARCHITECTURE)
    program = folder / "program.cubin"
    program.write_bytes(binary)
    found = [{commit: once(path, program, groups) for commit, path in codes} for _ in range(turns)]
    told = {}
    for commit, _ in codes:
        (what,) = {(each[commit]["sha256"], each[commit]["cycles"], each[commit]["changed"]) for each in found}
        samples = {clock: [each[commit][clock] for each in found] for clock in ("wall", "cpu")}
        seconds = {clock: {"median": median(each), "samples": each} for clock, each in samples.items()}
        told[commit] = {"seconds": seconds, **dict(zip(("sha256", "cycles", "changed"), what, strict=True))}
    return {"bytes": len(binary), "groups": groups, "cycles as compiled": of_loop(binary).cycles, "codes": told}


@click.command()
@click.option("--before", multiple=True, help="An earlier commit; several times: several.")
@click.option("--turns", default=3, show_default=True, help="Times of each code and program.")
@click.option("--output", type=click.Path(path_type=Path), help="Write JSON to this file, and not to standard output.")
def main(before: tuple[str, ...], turns: int, output: Path | None) -> None:
    """Times the pass."""
    results = []
    with tempfile.TemporaryDirectory() as name:
        codes = []
        for commit in map(named, (*before, TODAY)):
            codes.append((commit, Path(name) / commit))
            extract(*codes[-1])
        for what, source, groups in programs():
            results.append({**what, **times(source, groups, codes, turns, Path(name))})
            click.echo(f"{what}: {results[-1]['codes']}", err=True)
    document.write(output, compiler=_nvrtc.compiler(), codes=[commit for commit, _ in codes], results=results)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        worker(Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4]))
    else:
        main()
