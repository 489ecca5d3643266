"""Suites on devices: the order of what is measured, how long it will take, and what does not fit."""

from __future__ import annotations

from dataclasses import replace

import pytest

import gemmport as gp
from gemmport.bench import suites
from gemmport.bench.forecast import Budget, Forecast
from gemmport.bench.standings import Workload
from gemmport.bench.suites import Done, Left, State, in_order, tasks_of, too_large
from made_up_devices import DEVICES

GPU, CPU = DEVICES["NVIDIA sm_90 under CUDA"], DEVICES["CPU under PoCL"]


def workloads(*sizes: int) -> list[Workload]:
    return [Workload(gp.GemmProblem.create(size, size, size)) for size in sizes]


def test_the_cheapest_comes_first_and_devices_take_turns():
    tasks = tasks_of({"one": workloads(64, 8), "two": workloads(16)}, [GPU, CPU], {})
    assert [(task.suite, task.workload.problem.m, task.device) for task in tasks] == [
        (suite, size, device) for suite, size in (("one", 8), ("two", 16), ("one", 64)) for device in (GPU, CPU)
    ]
    called = tasks_of({"one": workloads(8)}, [GPU, CPU], {GPU: ["numpy", "torch"]})
    assert [(task.device, task.arrays) for task in called] == [(GPU, "numpy"), (GPU, "torch"), (CPU, "")]


def test_what_is_done_is_put_back_into_the_order_of_the_suites():
    tasks = tasks_of({"one": workloads(64, 8), "two": workloads(16)}, [GPU], {})
    found = in_order([Done(task, (task.workload,)) for task in tasks], ["one", "two"])
    assert [one.results[0].problem.m for one in found] == [64, 8, 16]


def test_a_forecast_has_a_part_that_grows_and_one_that_does_not():
    forecast = Forecast()
    assert forecast.seconds("a", 1.0) is None
    assert forecast.total([("a", 1.0)]) is None
    forecast.add("a", 100.0, 3.0, 1.0)
    assert forecast.seconds("a", 100.0) == pytest.approx(3.0)
    assert forecast.seconds("a", 1000.0) == pytest.approx(2.0 + 10.0)
    assert forecast.seconds("b", 100.0) is None
    assert forecast.total([("a", 100.0), ("a", 1000.0), ("b", 1.0)]) == pytest.approx(15.0)
    forecast.add("a", 0.0, 1.0, 0.0)  # a product without terms
    assert forecast.seconds("a", 1000.0) == pytest.approx(12.0)


def test_a_budget_has_room_for_what_ends_in_time():
    now = [100.0]
    budget = Budget(10.0, clock=lambda: now[0])
    assert budget.has_room(10.0)
    assert budget.has_room(None)
    now[0] = 104.0
    assert budget.left == 6.0
    assert not budget.has_room(6.5)
    now[0] = 110.0
    assert not budget.has_room(None)
    assert Budget(float("inf")).has_room(1e9)


@pytest.mark.parametrize(
    ("memory", "allocation", "told"),
    [(2**30, 2**30, ""), (2**22, 2**22, "its operands take"), (2**30, 2**20, "an operand takes")],
)
def test_what_a_device_has_no_memory_for_is_left_out(memory: int, allocation: int, told: str):
    device = replace(GPU, memory=memory, max_allocation=allocation)
    reason = too_large(gp.GemmProblem.create(700, 700, 700), device)
    assert reason.startswith(told)
    assert bool(reason) == bool(told)


def test_progress_tells_how_much_is_behind_and_how_long_it_will_take(monkeypatch):
    tasks = tasks_of({"one": workloads(8, 16, 64)}, [replace(GPU, memory=2**14, max_allocation=2**13)], {})
    monkeypatch.setattr(suites, "run_benchmark", lambda problems, devices, options, progress: iter(()))
    states: list[State] = []
    found = list(suites.run_products(tasks, None, Budget(float("inf")), states.append))
    assert [type(one) for one in found] == [Done, Done, Left]
    assert [state.done for state in states] == sorted(state.done for state in states)
    assert states[0].seconds is None
    assert states[1].seconds is not None
    assert states[-1] == State(3, 3, "done", 0.0)
