"""What `gemmport tune` finds where nothing is shipped, and whether it survives being killed.

    python benchmarks/tuning.py unseen --device intel --budget 5m --output FILE
    python benchmarks/tuning.py kills --device intel --kills 20 --output FILE

`unseen` tunes the products of a file that it calls "seen". It leaves out the shipped entries, but not the shipped models.
What the planner then chooses for those that it calls "unseen" is set beside the shipped choice, in turns. `kills` ends
`gemmport tune` with SIGKILL at random moments and goes on; it exits with 1 where a finished trial is lost, or the best of a
product becomes worse.
"""

from __future__ import annotations

import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import document

import gemmport as gp
from gemmport.bench.digest import launches_digests
from gemmport.bench.standings import Workload
from gemmport.cli.shapes import read_shapes
from gemmport.cli.tune import duration
from gemmport.core.device import DeviceInfo
from gemmport.core.errors import LaunchError
from gemmport.core.plan import Plan
from gemmport.core.problem import GemmProblem
from gemmport.execution.selection import get_backend, select_device
from gemmport.planning.lookup import Configuration, load_configuration
from gemmport.planning.planner import make_plan
from gemmport.planning.schema import LoadedEntry
from gemmport.tuning import journal
from gemmport.tuning.crew import Crew
from gemmport.tuning.session import Step
from gemmport.tuning.study import Tried, tried_in
from gemmport.tuning.suite import Task
from gemmport.tuning.tuner import Options, opened

SHAPES = Path(__file__).parent / "shapes" / "tuning.csv"

SEEN, UNSEEN = "seen", "unseen"
"""The sources of products in a file of shapes."""

TURNS = 5
"""Samples of each of two choices, in turns."""

TURN_SECONDS = 300.0

LEAST_SECONDS, MOST_SECONDS = 2.0, 15.0
"""Between which a tuner is killed after its start: while it imports, compiles, verifies, times and writes."""

EXTENTS = ((64, 64, 64), (96, 200, 50), (256, 256, 256))
"""m, n, k of the products whose tuner is killed."""


@click.group()
def main() -> None:
    """What `gemmport tune` finds, and survives."""


@main.command()
@click.option("--backend", default=None)
@click.option("--device", default=None)
@click.option("--shapes", type=click.Path(path_type=Path), default=SHAPES, show_default=True)
@click.option("--budget", type=duration, default="5m", show_default=True)
@click.option("--config", "files", multiple=True, type=click.Path(path_type=Path), help="E.g. a calibrated model.")
@click.option("--output", type=click.Path(path_type=Path), default=None)
def unseen(
    backend: str | None, device: str | None, shapes: Path, budget: float, files: tuple[Path, ...], output: Path | None
) -> None:
    """Tunes some products without a shipped configuration, and measures others beside the shipped choice."""
    os.environ["GEMMPORT_CONFIG_PATH"] = ""
    target = select_device(device, backend)
    workloads = read_shapes(shapes, GemmProblem.create)
    shipped = load_configuration()
    blank = load_configuration(files).without("shipped")
    seen = [workload for workload in workloads if workload.source == SEEN]
    with tempfile.TemporaryDirectory() as folder:
        options = Options(target, blank, list(map(Task, seen)), seconds=budget, journal=Path(folder) / "tuning.journal")
        start = time.monotonic()
        with opened(options) as tuner:
            report = tuner.run(_tell)
        took = time.monotonic() - start
    tuned = blank.with_first(*(LoadedEntry(entry, "what was found", "call") for entry in report.entries))
    with Crew(target) as crew:
        measured = [
            {"source": workload.source, **beside(crew, target, workload, shipped, tuned, blank)}
            for workload in workloads
        ]
    found = {source: summary([one for one in measured if one["source"] == source]) for source in (SEEN, UNSEEN)}
    for source, values in found.items():
        sys.stderr.write(f"{target.label}, {source}: {values}\n")
    document.write(
        output, [get_backend(device=target)], budget=budget, took=took, candidates=report.candidates,
        replaced=report.replaced, summary=found, results=measured,
        entries=[entry.to_dict() for entry in report.entries],
    )  # fmt: skip


def _tell(step: Step) -> None:
    if step.better:
        tried = step.tried
        sys.stderr.write(f"{step.share:.0%} {step.study.workload.name}: {tried.kernel} {tried.outcome.seconds:.3g} s\n")


def beside(
    crew: Crew,
    device: DeviceInfo,
    workload: Workload,
    shipped: Configuration,
    tuned: Configuration,
    blank: Configuration,
) -> dict[str, Any]:
    """The choices for a product: what is shipped, what was tuned, and what the model alone chooses; with the speed of the
    latter two over that of the first.
    """
    problem = workload.problem
    plans = {
        name: make_plan(problem, device, configuration)
        for name, configuration in (("shipped", shipped), ("tuned", tuned), ("model", blank))
    }
    each: list[Plan] = []
    for plan in plans.values():
        if all(plan.launches != other.launches for other in each):
            each.append(plan)
    found: dict[str, Any] = {"problem": problem.to_dict(), "name": str(problem)}
    for name, plan in plans.items():
        digests = launches_digests(plan.launches, device)
        found[name] = {"kernel": plan.variant, "parameters": plan.values, "launches": digests}
    if len(each) > 1:
        try:
            samples = crew.in_turns(
                problem, [(plan.variant, plan.values) for plan in each], repeat=TURNS, seconds=TURN_SECONDS
            )
        except LaunchError as error:
            return {**found, "error": str(error)}
    else:
        samples = [[1.0]]
    medians = [statistics.median(times) for times in samples]
    seconds = {
        name: medians[next(at for at, one in enumerate(each) if one.launches == plan.launches)]
        for name, plan in plans.items()
    }
    for name in plans:
        found[name] |= {"ratio": seconds["shipped"] / seconds[name]}
        if len(each) > 1:
            found[name] |= {"seconds": seconds[name]}
    return found


def summary(measured: list[dict[str, Any]]) -> dict[str, Any]:
    """Geometric means and the worst of the ratios to what is shipped."""
    right = [one for one in measured if "error" not in one]
    told: dict[str, Any] = {"products": len(measured), "measured": len(right)}
    for name in ("tuned", "model"):
        ratios = [one[name]["ratio"] for one in right]
        told[name] = {"geometric mean": statistics.geometric_mean(ratios), "worst": min(ratios)} if ratios else None
    return told


@dataclass(frozen=True)
class Killed:
    """A run that was killed after so many seconds: trials in its journal before and after, and of each product the best."""

    seconds: float
    before: int
    after: int
    lost: int
    worse: int


def killed_runs(device: DeviceInfo, kills: int, folder: Path, seed: int, least: float, most: float) -> Iterator[Killed]:
    """Starts `gemmport tune` again and again with the same journal, and kills it at random moments."""
    draw = random.Random(seed)
    shapes, output = folder / "shapes.csv", folder / "tuned.yaml"
    shapes.write_text("m,n,k\n" + "".join(f"{m},{n},{k}\n" for m, n, k in EXTENTS))
    command = [
        sys.executable, "-m", "gemmport", "tune", "--backend", device.backend, "--device", device.selector,
        "--shapes", str(shapes), "--kernel", "direct,tiled,naive", "--budget", "10m", "-o", str(output),
    ]  # fmt: skip
    before = finished(folder)
    for _ in range(kills):
        seconds = draw.uniform(least, most)
        with subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True
        ) as process:
            try:
                process.wait(seconds)
                assert process.stderr is not None
                raise RuntimeError(f"gemmport tune ended by itself: {process.stderr.read().decode(errors='replace')}")
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
        after = finished(folder)
        lost = sum(one not in after.get(name, []) for name, each in before.items() for one in each)
        worse = sum(best(after.get(name, [])) > best(each) for name, each in before.items())
        yield Killed(seconds, sum(map(len, before.values())), sum(map(len, after.values())), lost, worse)
        before = after


def finished(folder: Path) -> Mapping[str, list[Tried]]:
    """The finished trials of the journal in a folder, by the names of their studies."""
    for path in folder.glob("*.journal"):
        with journal.opened(path) as storage:
            return tried_in(storage)
    return {}


def best(tried: list[Tried]) -> float:
    """The least time of those that were timed."""
    times = [one.outcome.seconds for one in tried if one.outcome.fate == "timed" and one.outcome.seconds is not None]
    return min(times, default=float("inf"))


@main.command()
@click.option("--backend", default=None)
@click.option("--device", default=None)
@click.option("--kills", default=20, show_default=True)
@click.option("--seed", default=0, show_default=True)
@click.option("--output", type=click.Path(path_type=Path), default=None)
def kills(backend: str | None, device: str | None, kills: int, seed: int, output: Path | None) -> None:
    """Kills a tuner at random moments, and goes on."""
    target = select_device(device, backend)
    runs = []
    with tempfile.TemporaryDirectory() as folder:
        for run in killed_runs(target, kills, Path(folder), seed, LEAST_SECONDS, MOST_SECONDS):
            sys.stderr.write(f"{run}\n")
            runs.append(run)
    lost, worse = sum(run.lost for run in runs), sum(run.worse for run in runs)
    content = {
        "lost": lost,
        "worse": worse,
        "trials": runs[-1].after if runs else 0,
        "runs": [vars(run) for run in runs],
    }
    document.write(output, [gp.get_backend(device=target)], **content)
    sys.exit(1 if lost or worse else 0)


if __name__ == "__main__":
    main()
