"""What `gemmport tune` finds where nothing is shipped, and whether it survives being killed.

    gemmport calibrate --device intel -o model.yaml
    python benchmarks/tuning.py unseen --device intel --budget 5m --config model.yaml --search 5m --output FILE
    python benchmarks/tuning.py kills --device intel --kills 20 --output FILE
    python benchmarks/tuning.py looks --device intel --limit 100s --output FILE

`unseen` tunes the products of a file that it calls "seen", as if no configuration were shipped: neither entries nor models. For
those that it calls "unseen", and then for the others, the choices of `CHOICES` are measured in turns. --search looks for the
best trial of each unseen product, which takes turns with them: the time of a choice over the least of all is its regret.

`kills` ends `gemmport tune` with SIGKILL at random moments and goes on; it exits with 1 where a finished trial is lost, or the
best of a product becomes worse.

`looks` verifies candidates, then calls each several times in a row, then measures it in samples. The file has the seconds of
each call and of each sample.
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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
import document

import gemmport as gp
from gemmport.api.ahead import compile_ahead
from gemmport.bench.digest import launches_digests
from gemmport.bench.standings import Workload
from gemmport.cli.shapes import read_shapes
from gemmport.cli.tune import duration
from gemmport.core.device import DeviceInfo
from gemmport.core.errors import GemmportError, LaunchError
from gemmport.core.plan import Plan
from gemmport.core.problem import GemmProblem
from gemmport.execution.executor import sources_of
from gemmport.execution.selection import get_backend, select_device
from gemmport.planning.lookup import Configuration, load_configuration
from gemmport.planning.planner import candidates, make_plan
from gemmport.planning.schema import LoadedEntry
from gemmport.tuning import journal
from gemmport.tuning.crew import Candidate, Crew
from gemmport.tuning.measuring import Bench
from gemmport.tuning.session import SAMPLES, Step, search
from gemmport.tuning.study import Tried, tried_in
from gemmport.tuning.suite import Task
from gemmport.tuning.tuner import Options, opened

SHAPES = Path(__file__).parent / "shapes" / "tuning.csv"

SEEN, UNSEEN = "seen", "unseen"
"""The sources of products in a file of shapes."""

CHOICES = {
    "shipped": "by the shipped entries and models",
    "tuned": "by what the tuner found, with nothing shipped",
    "calibrated": "by the model of --config alone, with nothing shipped: neither entries nor models",
    "model": "by the shipped models alone, without any entry",
}
"""What is set side by side, with its meaning."""

BEST = "best"
"""The best trial of the search for an unseen product."""

WITHIN = 1.25
"""The factor within which a time shall lie of what was predicted."""

TURNS = 5
"""Samples of each choice, in turns."""

TURN_SECONDS = 300.0

SEARCH_SHARE = 0.4
"""Of the time that is left, that --search takes at most."""

LEFT_SECONDS = 8.0
"""Of the time, in which the file is written."""

MOST_SECONDS = 5.0
"""Between a trial that a tuner has added and its end, which comes while it compiles, verifies, times or writes."""

LOOKED_SECONDS, MOST_LOOKS, LEAST_LOOKS = 0.3, 30, 4
"""So long a candidate is called, so often at most, and at least."""

CANDIDATES = 3
"""Of a kernel and a product, that are looked at."""

MOST_PRODUCTS = 6e8
"""Multiply-adds of a product whose candidates are looked at."""

EXTENTS = ((64, 64, 64), (96, 200, 50), (256, 256, 256))
"""m, n, k of the products whose tuner is killed."""


@click.group()
def main() -> None:
    """What `gemmport tune` finds, and survives."""


@main.command()
@click.option("--backend", default=None)
@click.option("--device", default=None)
@click.option("--shapes", type=click.Path(path_type=Path), default=SHAPES, show_default=True)
@click.option("--budget", type=duration, default="5m", show_default=True, help="Of the tuner.")
@click.option(
    "--search", "look", type=duration, default=None, help="For the best trials of unseen products: without it, none."
)
@click.option("--limit", type=duration, default=None, help="For all of it: what is not measured by then is left out.")
@click.option("--config", "files", multiple=True, type=click.Path(path_type=Path), help="E.g. a calibrated model.")
@click.option("--output", type=click.Path(path_type=Path), default=None)
def unseen(
    backend: str | None, device: str | None, shapes: Path, budget: float, look: float | None, limit: float | None,
    files: tuple[Path, ...], output: Path | None,
) -> None:  # fmt: skip
    """Tunes some products as if nothing were shipped, and measures others beside the shipped choice.

    SIGTERM ends it early; the file is written with what there is.
    """
    end = time.monotonic() + (limit or float("inf")) - LEFT_SECONDS
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    os.environ["GEMMPORT_CONFIG_PATH"] = ""
    target = select_device(device, backend)
    workloads = read_shapes(shapes, GemmProblem.create)
    configurations = untuned(files)
    found: dict[str, Any] = {"choices": CHOICES, "budget": budget, "results": []}
    try:
        with tempfile.TemporaryDirectory() as folder:
            for stage in _stages(target, workloads, configurations, budget, look, end, Path(folder), found):
                sys.stderr.write(f"{target.label}: {stage}\n")
                if output is not None:
                    _write(output, target, found)
    except KeyboardInterrupt:
        found["interrupted"] = True
    _write(output, target, found)


def untuned(files: Sequence[Path]) -> dict[str, Configuration]:
    """The configurations of `CHOICES` before anything was tuned: "tuned" is what "calibrated" is."""
    everything, shipped = load_configuration(files), load_configuration()
    own = tuple(loaded for loaded in everything.models if loaded.source != "shipped")
    blank = replace(everything.without("shipped"), models=own)
    return {"shipped": shipped, "tuned": blank, "calibrated": blank, "model": shipped.of_models()}


def _stages(
    device: DeviceInfo, workloads: Sequence[Workload], configurations: dict[str, Configuration], budget: float,
    look: float | None, end: float, folder: Path, found: dict[str, Any],
) -> Iterator[str]:  # fmt: skip
    """Does one after the other, fills `found` with what comes of it, and tells each that is worth writing."""
    tasks = {source: [Task(one) for one in workloads if one.source == source] for source in (SEEN, UNSEEN)}
    blank = configurations["calibrated"]
    start = time.monotonic()
    options = Options(device, blank, tasks[SEEN], seconds=budget, journal=folder / "tuning.journal")
    with opened(options) as tuner:
        report = tuner.run(_tell)
    configurations["tuned"] = blank.with_first(
        *(LoadedEntry(entry, "what was found", "call") for entry in report.entries)
    )
    found |= {
        "took": time.monotonic() - start, "candidates": report.candidates, "replaced": report.replaced,
        "entries": [entry.to_dict() for entry in report.entries],
    }  # fmt: skip
    yield f"tuned in {found['took']:.0f} s"
    plans = {one.problem: plans_of(one.problem, device, configurations) for one in workloads}
    best: dict[GemmProblem, Candidate] = {}
    if look is not None:
        options = Options(device, configurations["tuned"], tasks[UNSEEN], journal=folder / "unseen.journal")
        with opened(options) as tuner:
            seconds = min(look, SEARCH_SHARE * (end - time.monotonic()))
            for _ in search(tuner.studies, tuner.crew, seconds):
                pass
            found |= {"searched": tuner.tried, "search": look}
            best = {study.workload.problem: study.best.candidate for study in tuner.studies if study.best is not None}
    found["summary"] = summaries([])  # a file may have products of one source alone
    with Crew(device) as crew:
        for source in (UNSEEN, SEEN):
            _compile(device, [plan for task in tasks[source] for plan in plans[task.workload.problem].values()])
            for task in tasks[source]:
                if time.monotonic() > end:
                    found["left_out"] = len(workloads) - len(found["results"])
                    return
                problem = task.workload.problem
                seconds = min(TURN_SECONDS, end - time.monotonic() + LEFT_SECONDS / 2)
                one = beside(crew, problem, plans[problem], configurations, best.get(problem), seconds)
                found["results"].append({"source": source, **one})
                found["summary"] = summaries(found["results"])
            yield f"{source}: {found['summary'][source]}"


def _compile(device: DeviceInfo, plans: Sequence[Plan]) -> None:
    """Has the programs of plans compiled side by side, and kept on disk."""
    backend = get_backend(device=device)
    compile_ahead(backend, [source for plan in plans for source in sources_of(plan, backend)], lambda _: None)


def _write(output: Path | None, device: DeviceInfo, found: Mapping[str, Any]) -> None:
    document.write(output, [get_backend(device=device)], **found)


def _tell(step: Step) -> None:
    if step.better:
        tried = step.tried
        sys.stderr.write(f"{step.share:.0%} {step.study.workload.name}: {tried.kernel} {tried.outcome.seconds:.3g} s\n")


def plans_of(problem: GemmProblem, device: DeviceInfo, configurations: Mapping[str, Configuration]) -> dict[str, Plan]:
    """The choice of each configuration for a product."""
    return {name: make_plan(problem, device, configuration) for name, configuration in configurations.items()}


def expected(plan: Plan, configuration: Configuration) -> float | None:
    """Seconds that a plan is expected to take by the configuration that chose it: as `gemmport explain` tells them."""
    for one in candidates(plan.problem, plan.device, configuration):
        if one.prediction is not None and (one.kernel, one.parameters) == (plan.variant, plan.values):
            return one.prediction.seconds * one.factor
    return None


def beside(
    crew: Crew,
    problem: GemmProblem,
    plans: Mapping[str, Plan],
    configurations: Mapping[str, Configuration],
    best: Candidate | None,
    seconds: float,
) -> dict[str, Any]:
    """The choices for a product, and the best trial that there is, in turns: what each took and was expected to take, and its
    speed over that of the shipped choice; the regret of each.
    """
    found: dict[str, Any] = {"problem": problem.to_dict(), "name": str(problem)}
    names: dict[str, tuple[object, Candidate]] = {}
    for name, plan in plans.items():
        names[name] = plan.launches, (plan.variant, plan.values)
        found[name] = {
            "kernel": plan.variant, "parameters": plan.values, "launches": launches_digests(plan.launches, plan.device),
            "predicted": expected(plan, configurations[name]),
        }  # fmt: skip
    if best is not None:
        plan = make_plan(problem, plans["shipped"].device, Configuration(()), kernel=best[0], params=best[1])
        names[BEST] = plan.launches, best
        found[BEST] = {"kernel": plan.variant, "parameters": plan.values}
    each = dict(names.values())
    try:
        samples = crew.in_turns(problem, list(each.values()), repeat=TURNS, seconds=seconds)
    except LaunchError as error:
        return {**found, "error": str(error)}
    medians = dict(zip(each, map(statistics.median, samples), strict=True))
    least, shipped = min(medians.values()), medians[names["shipped"][0]]
    for name, (launches, _) in names.items():
        took = medians[launches]
        found[name] |= {"seconds": took, "ratio": shipped / took}
        if best is not None:
            found[name]["regret"] = took / least
    return found


def summaries(results: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """The summary of each source's products."""
    return {source: summary([one for one in results if one["source"] == source]) for source in (UNSEEN, SEEN)}


def summary(measured: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Of each choice: geometric mean and least of the ratios to what is shipped, median and worst regret, and the share of
    products whose time was predicted within a factor of `WITHIN`.
    """
    right = [one for one in measured if "error" not in one]
    told: dict[str, Any] = {"products": len(measured), "measured": len(right)}
    for name in CHOICES:
        each = [one[name] for one in right if name in one]
        if not each:
            continue
        ratios = [one["ratio"] for one in each]
        told[name] = {"geometric mean": statistics.geometric_mean(ratios), "worst": min(ratios)}
        if regrets := [one["regret"] for one in each if "regret" in one]:
            told[name] |= {"median regret": statistics.median(regrets), "worst regret": max(regrets)}
        if off := [one["predicted"] / one["seconds"] for one in each if one.get("predicted")]:
            told[name]["predicted"] = sum(1 / WITHIN <= ratio <= WITHIN for ratio in off) / len(off)
    return told


@dataclass(frozen=True)
class Killed:
    """A run that was killed after so many seconds: trials in its journal before and after, and of each product the best."""

    seconds: float
    before: int
    after: int
    lost: int
    worse: int


def killed_runs(device: DeviceInfo, kills: int, folder: Path, seed: int, most: float) -> Iterator[Killed]:
    """Starts `gemmport tune` again and again with the same journal. Each is killed after it has added a trial.

    Args:
        most: seconds, of which a random part goes by between that trial and the end.
    """
    draw = random.Random(seed)
    shapes, output = folder / "shapes.csv", folder / "tuned.yaml"
    shapes.write_text("m,n,k\n" + "".join(f"{m},{n},{k}\n" for m, n, k in EXTENTS))
    command = [
        sys.executable, "-m", "gemmport", "tune", "--backend", device.backend, "--device", device.selector,
        "--shapes", str(shapes), "--kernel", "direct,tiled,naive", "--budget", "10m", "-o", str(output),
    ]  # fmt: skip
    before = finished(folder)
    for _ in range(kills):
        begun, rest = time.monotonic(), draw.uniform(0, most)
        with subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True
        ) as process:
            while process.poll() is None and _written(folder) <= _count(before):
                time.sleep(0.1)
            try:
                process.wait(rest)
                assert process.stderr is not None
                raise RuntimeError(f"gemmport tune ended by itself: {process.stderr.read().decode(errors='replace')}")
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
        seconds, after = time.monotonic() - begun, finished(folder)
        lost = sum(one not in after.get(name, []) for name, each in before.items() for one in each)
        worse = sum(best(after.get(name, [])) > best(each) for name, each in before.items())
        yield Killed(seconds, _count(before), _count(after), lost, worse)
        before = after


def _count(tried: Mapping[str, list[Tried]]) -> int:
    return sum(map(len, tried.values()))


def _written(folder: Path) -> int:
    """Finished trials in the lines of a journal that another process may have open."""
    lines = b"".join(path.read_bytes() for path in folder.glob("*.journal")).split(b"\n")[:-1]
    return sum(b'"user_attr":{"tried":' in line for line in lines)


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
        for run in killed_runs(target, kills, Path(folder), seed, MOST_SECONDS):
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


@main.command()
@click.option("--backend", default=None)
@click.option("--device", default=None)
@click.option("--shapes", type=click.Path(path_type=Path), default=SHAPES, show_default=True)
@click.option("--limit", type=duration, default="100s", show_default=True, help="After it, no product is begun.")
@click.option("--output", type=click.Path(path_type=Path), default=None)
def looks(backend: str | None, device: str | None, shapes: Path, limit: float, output: Path | None) -> None:
    """Calls the first candidates of each kernel for products, one call after the other, and then measures them in samples."""
    end, configuration = time.monotonic() + limit, load_configuration()
    target = get_backend(device=select_device(device, backend))
    results: list[dict[str, Any]] = []
    for workload in read_shapes(shapes, GemmProblem.create):
        problem = workload.problem
        if problem.m * problem.n * problem.k > MOST_PRODUCTS:
            continue
        if time.monotonic() > end:
            sys.stderr.write(f"the time is up: {problem} and what comes behind it are left out\n")
            break
        with Bench(problem, target) as bench:
            results.extend(looked_at(bench, _some_candidates(problem, target.device, configuration)))
    document.write(output, [target], results=results)


def _some_candidates(problem: GemmProblem, device: DeviceInfo, configuration: Configuration) -> Iterator[Plan]:
    """Of each kernel that computes a product, what the planner would take first, with different launches each."""
    known: dict[str, set[object]] = {}
    for one in candidates(problem, device, configuration):
        launches = known.setdefault(one.kernel, set())
        if one.reason or one.kernel in ("naive", "tiled") or len(launches) == CANDIDATES:
            continue
        plan = make_plan(problem, device, Configuration(()), kernel=one.kernel, params=one.parameters)
        if plan.launches not in launches:
            launches.add(plan.launches)
            yield plan


def looked_at(bench: Bench, plans: Iterable[Plan]) -> Iterator[dict[str, Any]]:
    """Seconds of the calls that follow a candidate's check, and samples of it."""
    for plan in plans:
        try:
            bound = bench.bind(plan)
            fault = bench.fault(bound)
        except GemmportError as error:
            fault = str(error)
        if fault:
            sys.stderr.write(f"{plan.variant} for {plan.problem} is left out: {fault}\n")
            continue
        calls: list[float] = []
        while len(calls) < MOST_LOOKS and (len(calls) < LEAST_LOOKS or sum(calls) < LOOKED_SECONDS):
            calls.append(bench.call_seconds(bound))
        (timing,) = bench.times([bound], SAMPLES)
        yield {
            "problem": plan.problem.to_dict(), "kernel": plan.variant, "parameters": plan.values, "calls": calls,
            "samples": timing.samples,
        }  # fmt: skip


if __name__ == "__main__":
    main()
