"""The regret of the planner, from sweeps that are made up: what its choice took over what the best took."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import gemmport as gp
from gemmport import kernels
from gemmport.bench.regret import Choice, Regret, judge
from gemmport.bench.standings import Workload
from gemmport.bench.sweeps import Sweep, Swept, Timed
from gemmport.core.problem import GemmProblem
from gemmport.planning.lookup import load_configuration
from made_up_devices import DEVICES

DEVICE = DEVICES["NVIDIA sm_90 under CUDA"]
PROBLEM = GemmProblem.create(1024, 1024, 1024)
CHOSEN = gp.plan(PROBLEM, DEVICE)


def chosen(seconds, **changes):
    return Timed(CHOSEN.variant, {**CHOSEN.values, **changes}, seconds)


def other(seconds, verified=None):
    return Timed("tiled", {"TS": 16, "PAD": 0}, seconds, verified)


def judged(*timed, problem=PROBLEM, device=DEVICE):
    return judge(Sweep(device, {}, (Swept(Workload(problem, "w"), timed),)), load_configuration())


def test_it_is_the_time_of_the_choice_over_that_of_the_best():
    found = judged(other(4.0), chosen(3.0), other(2.0))
    assert found.ranked[0][0] == 1.5
    assert (found.choices[0].plan.variant, found.choices[0].best) == (CHOSEN.variant, other(2.0))


@given(st.floats(1e-6, 1e3), st.lists(st.floats(1e-6, 1e3), max_size=5))
def test_it_is_at_least_one(own, others):
    (choice,) = judged(chosen(own), *map(other, others)).choices
    assert choice.regret == pytest.approx(own / min([own, *others]))
    assert choice.regret >= 1


def test_a_candidate_that_was_found_wrong_is_not_the_best():
    assert judged(chosen(3.0), other(1.0, verified=False)).ranked[0][0] == 1.0


@pytest.mark.parametrize(
    ("timed", "reason"),
    [
        ([other(1.0)], "the sweep did not try the choice"),
        ([Timed(CHOSEN.variant, CHOSEN.values, 1.0, False), other(2.0)], "the sweep found the choice wrong"),
        ([Timed("tiled", CHOSEN.values, 1.0)], "the sweep did not try the choice"),
        ([Timed(CHOSEN.variant, {"NO_SUCH": 1}, 1.0)], "the sweep did not try the choice"),
        ([], "the sweep did not try the choice"),
    ],
)
def test_a_choice_without_a_trial_is_named_with_the_reason(timed, reason):
    found = judged(*timed)
    assert found.ranked == ()
    assert [choice.reason for choice in found.unknown] == [reason]
    assert (found.median, found.percentile_90) == (None, None)
    assert "not known for any of 1 workloads" in found.told()


def test_a_trial_with_other_parameters_is_not_the_choice():
    (parameter, value) = next(iter(CHOSEN.values.items()))
    found = judged(chosen(1.0, **{parameter: 2 * value}))
    assert found.choices[0].reason == "the sweep did not try the choice"


def test_parameters_that_the_record_lacks_are_at_their_defaults():
    problem = GemmProblem.create(64, 64, 64)
    device = DEVICES["16 KB of local memory"]
    plan = gp.plan(problem, device)
    (variant,) = (variant for variant in kernels.variants() if variant.name == plan.variant)
    stated = {p.name: plan.values[p.name] for p in variant.parameters if plan.values[p.name] != p.default}
    assert len(stated) < len(plan.values)
    found = judged(Timed(plan.variant, stated, 2.0), other(1.0), problem=problem, device=device)
    assert found.ranked[0][0] == 2.0


def test_a_workload_that_cannot_be_planned_says_why():
    found = judged(other(1.0), problem=GemmProblem.create(8, 8, 8, dtype="float64"), device=DEVICES["Apple"])
    assert found.choices[0].plan is None
    assert "does not compute in float64" in found.choices[0].reason


def of(regrets):
    return Regret(DEVICE, tuple(Choice(Workload(PROBLEM), CHOSEN, other(r), other(1.0)) for r in regrets))


@pytest.mark.parametrize(("count", "nine_in_ten"), [(1, 1), (9, 9), (10, 9), (11, 10), (20, 18), (95, 86)])
def test_nine_in_ten_do_not_exceed_the_percentile_and_fewer_anything_less(count, nine_in_ten):
    assert of(range(1, count + 1)).percentile_90 == nine_in_ten


@given(st.lists(st.floats(1.0, 100.0), min_size=1, max_size=40))
def test_median_percentile_and_worst_of_many(regrets):
    found = of(regrets)
    in_order = sorted(regrets)
    middle = len(regrets) // 2
    assert found.median == pytest.approx((in_order[middle] + in_order[-1 - middle]) / 2)
    assert sum(r <= found.percentile_90 for r in regrets) >= 0.9 * len(regrets)
    assert found.ranked[0][0] == max(regrets)
    assert found.to_dict()["worst"]["regret"] == max(regrets)
