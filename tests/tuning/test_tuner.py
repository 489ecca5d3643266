"""A whole run on a device that does not exist, whose times are a formula: what is shared, compared, and worth writing."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from gemmport.bench.regret import judge
from gemmport.bench.standings import Workload
from gemmport.bench.sweeps import read_sweep
from gemmport.core.errors import DtypeError, LaunchError
from gemmport.core.plan import ParameterValue
from gemmport.core.problem import GemmProblem
from gemmport.planning import parser
from gemmport.planning.lookup import Configuration
from gemmport.planning.planner import make_plan
from gemmport.planning.schema import LoadedEntry
from gemmport.tuning import session, study, suite, tuner
from gemmport.tuning.crew import Candidate, Outcome
from gemmport.tuning.session import Step
from gemmport.tuning.suite import Task
from gemmport.tuning.tuner import Options, Report, Tuner
from made_up_devices import DEVICES

DEVICE = DEVICES["CPU under PoCL"]
SMALL, MIDDLE, LARGE = (GemmProblem.create(size, size, size) for size in (64, 256, 1024))
CURRENT = Configuration(
    parser.parse(
        "schema: 1\ndescription: x\nentries:\n- {name: slow, kernels: {naive: {TS: 1}}, provenance: {tuned: false}}\n",
        "slow.yaml", "call",
    ).entries
)  # fmt: skip

Seconds = Callable[[GemmProblem, str, Mapping[str, ParameterValue]], float]


def formula(problem: GemmProblem, kernel: str, values: Mapping[str, ParameterValue]) -> float:
    """The best TS of tiled is 8 for small products and 32 for large ones; naive is slow."""
    if kernel == "naive":
        return 1e-10 * problem.flops * (2 + 1 / int(values["TS"]))
    wanted = math.log2(problem.m) / 2
    return 1e-10 * problem.flops * (1 + abs(math.log2(int(values["TS"])) - wanted))


class FormulaCrew:
    """Times by a formula."""

    def __init__(self, seconds: Seconds) -> None:
        self.seconds, self.asked, self.turns, self.replaced = seconds, [], [], 0  # type: ignore[var-annotated]

    def try_candidate(self, problem: GemmProblem, candidate: Candidate, **how: Any) -> Outcome:
        self.asked.append((problem.m, candidate[0], dict(candidate[1])))
        seconds = self.seconds(problem, *candidate)
        if how["is_slow"](seconds):
            return Outcome("slow", seconds, (seconds,), took=0.01)
        return Outcome("timed", seconds, (seconds,), took=0.01)

    def in_turns(self, problem: GemmProblem, each: Sequence[Candidate], **how: Any) -> list[list[float]]:
        self.turns.append((problem.m, *each))
        return [[self.seconds(problem, *candidate)] * 3 for candidate in each]


@contextmanager
def opened(
    path: Path, problems: Sequence[GemmProblem] = (SMALL, MIDDLE, LARGE), seconds: Seconds = formula,
    kernels: Sequence[str] = ("naive", "tiled"), candidates: int = 15, tasks: Sequence[Task] = (),
) -> Iterator[tuple[Tuner, FormulaCrew]]:  # fmt: skip
    """A tuner that searches until so many candidates were tried, however fast the machine is."""
    asked = tasks or [Task(Workload(problem)) for problem in problems]
    options = Options(DEVICE, CURRENT, asked, kernels, 600.0, path / "t.journal")
    crew = FormulaCrew(seconds)

    def search(*given: Any) -> Iterator[Step]:
        yield from itertools.islice(session.search(*given), candidates)

    with ExitStack() as stack:
        stack.enter_context(pytest.MonkeyPatch.context()).setattr(tuner, "search", search)
        yield stack.enter_context(tuner.opened_with(options, crew)), crew  # type: ignore[arg-type]


def run(path: Path, **how: Any) -> tuple[Report, list[Step], FormulaCrew]:
    steps: list[Step] = []
    with opened(path, **how) as (found, crew):
        report = found.run(steps.append)
        (path / "t.jsonl").write_text(found.trials())
    return report, steps, crew


def test_the_best_that_was_tried_is_chosen_by_the_planner_and_near_it_for_products_nearby(tmp_path: Path) -> None:
    report, _, crew = run(tmp_path)
    (entry,) = report.entries
    tuned = CURRENT.with_first(LoadedEntry(entry, "tuned.yaml", "call"))
    for problem in (SMALL, MIDDLE, LARGE):
        plan = make_plan(problem, DEVICE, tuned)
        tried = [formula(problem, kernel, values) for m, kernel, values in crew.asked if m == problem.m]
        assert formula(problem, plan.variant, plan.values) == pytest.approx(min(tried), rel=0.01)
    unseen = make_plan(GemmProblem.create(1008, 1040, 1024), DEVICE, tuned)  # the tile divides it, too
    assert unseen.values == make_plan(LARGE, DEVICE, tuned).values


def test_what_is_kept_is_tried_for_every_product_that_it_may_serve(tmp_path: Path) -> None:
    with opened(tmp_path) as (found, crew):
        list(itertools.islice(session.search(found.studies, crew, 600.0), 15))  # type: ignore[arg-type]

        def missing() -> list[tuple[float, int]]:
            (kept,) = found._entries().values()
            plans = [
                (each, each.space.plan(kernel, tiling))
                for each in found.studies for kernel, tilings in kept.kernels.items() for tiling in tilings
            ]  # fmt: skip
            return [
                (each.times_the_best(plan), plan.problem.m)
                for each, plan in plans
                if plan is not None and each.is_new(plan)
            ]

        before = missing()
        found._complete(math.inf)
        assert min(before)[0] <= study.HOPELESS
        assert all(times > study.HOPELESS for times, _ in missing())


def test_what_is_kept_is_tried_only_as_long_as_there_is_time(tmp_path: Path) -> None:
    with opened(tmp_path) as (found, crew):
        list(itertools.islice(session.search(found.studies, crew, 600.0), 15))  # type: ignore[arg-type]
        before = len(crew.asked)
        found._complete(-math.inf)
        assert len(crew.asked) == before


def test_the_products_share_the_time(tmp_path: Path) -> None:
    _, steps, _ = run(tmp_path)
    names = [step.study.workload.name for step in steps]
    counts = [names.count(name) for name in dict.fromkeys(names)]
    assert len(counts) == 3
    assert max(counts) <= min(counts) + 2
    assert all(0 < step.share <= 1 for step in steps)
    better = [step for step in steps if step.better]
    assert {step.study.workload.name for step in better} == set(names)


def test_what_is_best_for_one_product_is_tried_for_the_others(tmp_path: Path) -> None:
    """The same tiling is the best for both, and it is not the default."""
    near = GemmProblem.create(1000, 1000, 1000)
    _, steps, _ = run(tmp_path, problems=(LARGE, near), kernels=("tiled",), candidates=24)
    assert any(step.tried.origin == "elsewhere" for step in steps)


def test_the_report_has_both_choices_with_the_ratio_of_their_speeds(tmp_path: Path) -> None:
    report, _, crew = run(tmp_path)
    assert len(report.compared) == len(crew.turns) == 3
    for one in report.compared:
        assert one.current == ("naive", {"TS": 1})
        assert one.ratio == pytest.approx(
            formula(one.workload.problem, *one.current) / formula(one.workload.problem, *one.tuned)
        )
        assert one.is_better
    assert report.geometric_mean is not None
    assert report.geometric_mean > 2
    assert report.candidates == len(crew.asked)


def test_a_current_choice_that_is_far_behind_is_not_measured_again(tmp_path: Path) -> None:
    def seconds(problem: GemmProblem, kernel: str, values: Mapping[str, ParameterValue]) -> float:
        return 100 * formula(problem, kernel, values) if kernel == "naive" else formula(problem, kernel, values)

    report, _, crew = run(tmp_path, seconds=seconds)
    assert crew.turns == []
    assert all(one.is_better for one in report.compared)
    assert len(report.entries) == 1


def test_what_is_not_better_in_turns_is_not_taken(tmp_path: Path) -> None:
    """The search finds tiled twice as fast; in turns it is half as fast."""
    with opened(tmp_path) as (found, crew):
        real = crew.in_turns
        crew.in_turns = lambda problem, each, **how: [real(problem, each)[1], [2 * x for x in real(problem, each)[1]]]  # type: ignore[method-assign]
        report = found.run(lambda step: None)
    assert report.entries == ()
    assert not any(one.is_better for one in report.compared)
    assert report.geometric_mean == 1.0


def test_the_current_choice_is_kept_for_the_product_it_is_better_for(tmp_path: Path) -> None:
    with opened(tmp_path) as (found, crew):
        real = crew.in_turns

        def in_turns(problem: GemmProblem, each: Sequence[Candidate], **how: Any) -> list[list[float]]:
            samples = real(problem, each)
            return samples[::-1] if problem.m == LARGE.m else samples

        crew.in_turns = in_turns  # type: ignore[method-assign]
        report = found.run(lambda step: None)
    (entry,) = report.entries
    tuned = CURRENT.with_first(LoadedEntry(entry, "tuned.yaml", "call"))
    assert make_plan(LARGE, DEVICE, tuned).variant == "naive"
    assert make_plan(SMALL, DEVICE, tuned).variant == "tiled"


def test_a_comparison_that_fails_is_told_and_the_others_go_on(tmp_path: Path) -> None:
    with opened(tmp_path) as (found, crew):
        real = crew.in_turns

        def in_turns(problem: GemmProblem, each: Sequence[Candidate], **how: Any) -> list[list[float]]:
            if problem.m == LARGE.m:
                raise LaunchError("it crashed")
            return real(problem, each)

        crew.in_turns = in_turns  # type: ignore[method-assign]
        report = found.run(lambda step: None)
    assert [one.reason for one in report.compared] == ["", "", "it crashed"]
    assert report.compared[2].ratio is None
    assert len(report.entries) == 1


def test_the_file_of_trials_is_a_sweep_that_has_the_choices(tmp_path: Path) -> None:
    report, _, crew = run(tmp_path)
    sweep = read_sweep(tmp_path / "t.jsonl")
    assert sweep.device == DEVICE
    assert sum(len(one.timed) for one in sweep.swept) == len(crew.asked)
    (entry,) = report.entries
    regret = judge(sweep, CURRENT.with_first(LoadedEntry(entry, "tuned.yaml", "call")))
    assert len(regret.ranked) == 3
    assert regret.ranked[0][0] == pytest.approx(1.0, abs=0.01)


def test_a_later_run_tries_nothing_again(tmp_path: Path) -> None:
    _, _, first = run(tmp_path)
    report, _, second = run(tmp_path)
    tried = [json.dumps(one) for one in (*first.asked, *second.asked)]
    assert len(tried) == len(set(tried))
    assert report.candidates == len(tried)


def test_of_each_type_there_is_an_entry(tmp_path: Path) -> None:
    double = GemmProblem.create(64, 64, 64, dtype="float64")
    report, _, _ = run(tmp_path, problems=(SMALL, double))
    assert [entry.match.dtype for entry in report.entries] == [("float32",), ("float64",)]


def test_a_kernel_that_is_tuned_for_itself_is_in_the_entry_and_no_choice(tmp_path: Path) -> None:
    tasks = [Task(Workload(SMALL)), Task(Workload(MIDDLE), ("wpt",))]

    def seconds(problem: GemmProblem, kernel: str, values: Mapping[str, ParameterValue]) -> float:
        return 1.0 / int(values["TS"]) + 10 if kernel == "wpt" else formula(problem, kernel, values)

    report, _, _ = run(tmp_path, tasks=tasks, seconds=seconds, candidates=24)
    (entry,) = report.entries
    assert [one.workload.problem for one in report.compared] == [SMALL]
    assert list(entry.kernels)[-1] == "wpt"
    tuned = CURRENT.with_first(LoadedEntry(entry, "tuned.yaml", "call"))
    assert make_plan(SMALL, DEVICE, tuned).variant == "tiled"
    (tiling,) = entry.kernels["wpt"]
    assert make_plan(MIDDLE, DEVICE, tuned, kernel="wpt").values == tiling


def test_the_search_ends_where_nothing_is_left(tmp_path: Path) -> None:
    _, steps, _ = run(tmp_path, problems=(SMALL,), kernels=("naive",), candidates=1000)
    assert 5 < len(steps) < 33


def test_compiling_has_a_share_of_the_budget(tmp_path: Path) -> None:
    shares = []
    with opened(tmp_path, problems=(SMALL,), kernels=("naive",)) as (found, crew):
        real = crew.try_candidate

        def try_candidate(problem: GemmProblem, candidate: Candidate, **how: Any) -> Outcome:
            shares.append(how["compile_seconds"])
            return real(problem, candidate, **how)

        crew.try_candidate = try_candidate  # type: ignore[method-assign]
        list(session.search(found.studies, crew, 1000.0))  # type: ignore[arg-type]
    assert shares
    assert set(shares) == {session.COMPILE_SHARE * 1000.0}


def test_a_type_that_the_device_does_not_compute_in_is_refused(tmp_path: Path) -> None:
    device = next(device for device in DEVICES.values() if "float64" not in device.computes)
    options = Options(
        device, CURRENT, [Task(Workload(GemmProblem.create(8, 8, 8, dtype="float64")))], journal=tmp_path / "j"
    )
    with pytest.raises(DtypeError, match="float64"), tuner.opened_with(options, FormulaCrew(formula)):  # type: ignore[arg-type]
        pass


@pytest.mark.parametrize("name", ["CPU under PoCL", "NVIDIA sm_90 under CUDA", "AMD gfx90a"])
def test_a_suite_has_each_shape_class_type_and_kernel(name: str) -> None:
    device = DEVICES[name]
    tasks = list(suite.suite(device))
    types = {task.workload.problem.dtype.name for task in tasks}
    assert types == {"float32", "float64"} & device.computes
    for dtype in types:
        classes = {
            task.workload.problem.shape_class for task in tasks
            if not task.only and task.workload.problem.dtype.name == dtype
        }  # fmt: skip
        assert classes == {"vector", "small", "skinny", "medium", "large"}
    alone = {task.only[0] for task in tasks if task.only}
    assert {"naive", "tiled", "register_tiled", "direct"} <= alone
    assert ("packed" in alone) == (device.type == "cpu")
