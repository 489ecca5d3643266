"""The search for one product: in which order candidates are asked for, and that none is tried twice, also by later runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from gemmport.bench.standings import Workload
from gemmport.core.plan import Plan
from gemmport.core.problem import GemmProblem
from gemmport.tuning import journal
from gemmport.tuning.crew import Candidate, Outcome
from gemmport.tuning.outlook import Outlook
from gemmport.tuning.space import Space
from gemmport.tuning.study import AHEAD, BEHIND, HOPELESS, WORTH_A_TRY, Asked, Study, tried_in
from made_up_devices import DEVICES

PROBLEM = GemmProblem.create(96, 96, 96)
OWN = Space(PROBLEM, DEVICES["CPU under PoCL"], ["naive", "tiled"])


def plan(kernel: str, **values: int) -> Plan:
    found = OWN.plan(kernel, values)
    assert found is not None
    return found


class Told(Outlook):
    """Expects what it is told to."""

    def __init__(self, modelled: Sequence[Plan], expected: Callable[[Plan], float]) -> None:
        self._told, self._expected, self.unknown, self.learned = modelled, expected, "", 0

    def modelled(self, space: Space) -> list[Plan]:
        return list(self._told)

    def seconds(self, plan: Plan) -> float:
        return self._expected(plan)

    def knows(self, kernel: str) -> bool:
        return kernel != self.unknown

    def learn(self, plan: Plan, seconds: float) -> None:
        self.learned += 1

    def learn_failure(self, plan: Plan) -> None:
        self.learned += 1


@contextmanager
def study_of(
    path: Path, first: Plan | None = None, modelled: Sequence[Plan] = (),
    expected: Callable[[Plan], float] = lambda plan: 0.0, own: Space = OWN,
) -> Iterator[Study]:  # fmt: skip
    with journal.opened(path) as storage:
        yield Study(Workload(PROBLEM), own, storage, first, Told(modelled, expected), seed=0)


def timed(seconds: float) -> Outcome:
    return Outcome("timed", seconds, (seconds,), took=0.5)


def asked(study: Study, elsewhere: Sequence[Candidate] = ()) -> Asked:
    found = study.ask(elsewhere)
    assert found is not None
    return found


def test_the_current_choice_is_first_then_that_of_which_most_is_expected_then_optuna(tmp_path: Path) -> None:
    elsewhere: list[Candidate] = [("tiled", {"TS": 8, "PAD": 0}), ("naive", {"TS": 4})]
    seconds = {8: 0.3, 4: 0.1, 16: 0.2}
    with study_of(
        tmp_path / "j", plan("naive", TS=8), [plan("naive", TS=8), plan("tiled", TS=16)],
        lambda one: seconds.get(int(one.values["TS"]), 0.4),
    ) as study:  # fmt: skip
        found = []
        for _ in range(5):
            one = asked(study, elsewhere)
            found.append((one.origin, one.plan.variant, one.plan.values["TS"]))
            study.tell(one, timed(1.0))
        assert found[:4] == [
            ("current", "naive", 8), ("elsewhere", "naive", 4), ("model", "tiled", 16), ("elsewhere", "tiled", 8)
        ]  # fmt: skip
        assert found[4][0] == "optuna"
        assert study.spent == 2.5


def test_what_the_model_expects_to_be_slow_is_not_tried(tmp_path: Path) -> None:
    seconds = {8: 1.0, 16: 1.0 * WORTH_A_TRY + 0.01, 4: 1.0 * HOPELESS + 0.01}
    with study_of(
        tmp_path / "j", plan("naive", TS=8), [plan("naive", TS=16), plan("naive", TS=4)],
        lambda one: seconds.get(int(one.values["TS"]), 9.0 if one.variant == "tiled" else 1.0),
    ) as study:  # fmt: skip
        study.tell(asked(study), timed(1.0))
        for _ in range(20):
            one = study.ask([("naive", {"TS": 4})])
            if one is None:
                break
            assert one.origin == "optuna"
            assert one.plan.variant == "naive"
            assert one.plan.values["TS"] != 4
            study.tell(one, timed(2.0))


def test_a_kernel_of_which_nothing_is_known_is_tried_whatever_is_expected(tmp_path: Path) -> None:
    outlook = Told([plan("naive", TS=16), plan("tiled", TS=8), plan("tiled", TS=16)], lambda one: 9.0)
    outlook.unknown = "tiled"
    with journal.opened(tmp_path / "j") as storage:
        study = Study(Workload(PROBLEM), OWN, storage, plan("naive", TS=8), outlook, seed=0)
        study.tell(asked(study), timed(1.0))
        one = asked(study)
        assert (one.origin, one.plan.variant) == ("model", "tiled")
        study.tell(one, timed(9.0))
        outlook.unknown = ""
        assert study.ask([]) is None


def test_one_that_is_ready_goes_first_where_it_comes_soon(tmp_path: Path) -> None:
    plans = [plan("naive", TS=side) for side in range(1, AHEAD + 2)]
    with study_of(tmp_path / "j", None, plans, lambda one: float(one.values["TS"])) as study:
        assert study.upcoming([], 3) == plans[:3]
        assert study.ask([], lambda one: one is plans[AHEAD]) is None
        assert not study.at_end
        one = study.ask([], lambda one: one in (plans[2], plans[3]))
        assert one is not None
        assert one.plan is plans[2]
        study.tell(one, timed(100.0))
        assert study.upcoming([], 3) == [plans[0], plans[1], plans[3]]


def test_what_optuna_asks_for_is_kept_until_it_is_ready(tmp_path: Path) -> None:
    with study_of(tmp_path / "j") as study:
        assert study.ask([], lambda _: False) is None
        (one,) = study.upcoming([], 3)
        assert study.ask([], lambda _: False) is None
        assert study.upcoming([], 3) == [one]
        found = asked(study)
        assert (found.origin, found.plan) == ("optuna", one)
        study.tell(found, timed(1.0))
        assert study.upcoming([], 3) == []


def test_what_optuna_asked_for_is_not_tried_once_more(tmp_path: Path) -> None:
    with study_of(tmp_path / "j") as study:
        assert study.ask([], lambda _: False) is None
        (one,) = study.upcoming([], 1)
        elsewhere = study.ask_for(one)
        assert elsewhere is not None
        study.tell(elsewhere, timed(1.0))
        assert study.upcoming([], 1) == [one]
        assert asked(study).plan is not one
        assert len(study.tried) == 1


def test_no_candidate_is_tried_twice_and_the_search_ends(tmp_path: Path) -> None:
    naive = Space(PROBLEM, DEVICES["CPU under PoCL"], ["naive"])
    with study_of(tmp_path / "j", own=naive) as study:
        seen = []
        while (one := study.ask([])) is not None:
            seen.append(one.plan.values["TS"])
            study.tell(one, timed(1.0 / int(one.plan.values["TS"])))
        assert study.at_end
        assert len(seen) == len(set(seen)) > 5
        assert study.best is not None
        assert study.best.parameters["TS"] == max(seen)


@pytest.mark.parametrize("fate", ["wrong", "crash", "hang", "cut off", "compiler"])
def test_what_was_not_timed_is_no_best_and_is_not_asked_for_again(tmp_path: Path, fate: str) -> None:
    for _ in range(2):
        with study_of(tmp_path / "j", plan("naive", TS=8), [plan("naive", TS=8)]) as study:
            one = study.ask([("naive", {"TS": 8})])
            if one is not None and one.origin != "optuna":
                study.tell(one, Outcome(fate))  # type: ignore[arg-type]
            assert study.best is None
            assert [found.outcome.fate for found in study.tried] == [fate]
            assert study.swept().timed == ()


def test_a_later_run_knows_what_was_tried(tmp_path: Path) -> None:
    path = tmp_path / "j"
    with study_of(path, plan("naive", TS=8), [plan("tiled", TS=16)]) as study:
        study.tell(asked(study), timed(2.0))
        study.tell(asked(study), timed(1.0))
        asked(study)  # its process dies
        before = list(study.tried)
    with study_of(path, plan("naive", TS=8), [plan("tiled", TS=16)]) as study:
        assert study.tried == before
        assert study.best == before[1]
        assert study.spent == 0.0
        assert asked(study).origin == "optuna"
    with journal.opened(path) as storage:
        assert list(tried_in(storage).values()) == [before]


def test_a_trial_whose_process_died_before_optuna_was_told_is_not_lost(tmp_path: Path) -> None:
    path = tmp_path / "j"
    with study_of(path, plan("naive", TS=8)) as study:
        study._close = lambda trial, outcome: None  # type: ignore[method-assign]
        study.tell(asked(study), timed(2.0))
    with study_of(path) as study:
        assert [one.outcome.seconds for one in study.tried] == [2.0]


def test_the_trials_are_those_of_a_sweep(tmp_path: Path) -> None:
    with study_of(tmp_path / "j", plan("naive", TS=8), [plan("tiled", TS=16), plan("tiled", TS=8)]) as study:
        for outcome in (timed(2.0), timed(1.0), Outcome("slow", 9.0, (9.0,))):
            study.tell(asked(study), outcome)
        assert [(one.kernel, one.seconds, one.verified) for one in study.swept().timed] == [
            ("tiled", 1.0, True), ("naive", 2.0, True), ("tiled", 9.0, True)
        ]  # fmt: skip


def test_a_kernel_that_is_not_searched_is_tried_as_the_current_choice_alone(tmp_path: Path) -> None:
    everything = Space(PROBLEM, DEVICES["CPU under PoCL"])
    current = everything.plan("wpt", {})
    with study_of(tmp_path / "j", current) as study:
        one = asked(study)
        assert (one.origin, one.plan.variant) == ("current", "wpt")
        study.tell(one, timed(1.0))
        for _ in range(10):
            one = asked(study)
            assert one.plan.variant in ("naive", "tiled")
            study.tell(one, timed(2.0))


def test_a_first_call_far_behind_the_best_is_slow(tmp_path: Path) -> None:
    with study_of(tmp_path / "j", plan("naive", TS=8), [plan("tiled", TS=16)]) as study:
        one = asked(study)
        assert not one.is_slow(100.0)
        study.tell(one, timed(1.0))
        one = asked(study)
        assert one.is_slow(BEHIND + 0.1)


def test_a_first_call_near_the_best_is_not_slow(tmp_path: Path) -> None:
    with study_of(tmp_path / "j", plan("naive", TS=8), [plan("tiled", TS=16)]) as study:
        study.tell(asked(study), timed(1.0))
        assert not asked(study).is_slow(1.1)


def test_optunas_pruner_leaves_what_is_behind_most_others(tmp_path: Path) -> None:
    each = [plan("tiled", TS=ts) for ts in (4, 8, 16, 32)]
    with study_of(tmp_path / "j", plan("naive", TS=8), each) as study:
        for _ in range(4):
            one = asked(study)
            assert not one.is_slow(1.0)
            study.tell(one, timed(1.0))
        assert asked(study).is_slow(1.5)
