"""Candidates on operands that lie on the device: what is wrong is found, whatever lies in D before."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

import gemmport as gp
from gemmport.bench.timing import MAX_CALLS_PER_SAMPLE
from gemmport.checking import verification
from gemmport.contracts.kernel import Cut
from gemmport.core.problem import GemmProblem
from gemmport.tuning import measuring
from gemmport.tuning.measuring import Bench
from mutations import NAIVE, planted
from test_timing import Queue


@pytest.mark.parametrize("dtype", ["float32", "int32", "bool", "complex64", "float8_e4m3fn"])
def test_a_right_plan_has_no_fault_and_a_wrong_one_has(best_backend: gp.Backend, dtype: str) -> None:
    problem = GemmProblem.create(19, 13, 11, dtype=dtype)
    with Bench(problem, best_backend) as bench:
        right = bench.bind(gp.plan(problem, best_backend.device, kernel="tiled"))
        assert bench.fault(right) == ""
        assert bench.look(right) > 0
        (timing,) = bench.times([right], 2)
        assert len(timing.samples) == 2
        if dtype != "bool":  # one term less does not change an "or" of as many
            with planted("drops the last term", NAIVE):
                assert bench.fault(bench.bind(gp.plan(problem, best_backend.device, kernel=NAIVE)))


def test_a_plan_is_judged_by_what_its_unit_keeps_of_sums(
    best_backend: gp.Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Terms of which 8 digits are left fail as float32, and pass where the contract says that the unit cuts so many."""
    problem = GemmProblem.create(64, 64, 512)
    with Bench(problem, best_backend) as bench:
        rounding = bench.bind(gp.plan(GemmProblem.create(64, 64, 512, precision="bfloat16"), best_backend.device))
        plan = gp.plan(problem, best_backend.device)
        rough: Any = SimpleNamespace(plan=plan, backend=best_backend, enqueue=rounding.enqueue)
        assert bench.fault(rough)
        monkeypatch.setattr(verification, "cut_of", lambda plan: Cut(digits=8, terms=512))
        assert bench.fault(rough) == ""


def test_a_plan_that_writes_nothing_does_not_pass_by_what_another_left(
    best_backend: gp.Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = GemmProblem.create(19, 13, 11)
    with Bench(problem, best_backend) as bench:
        first = bench.bind(gp.plan(problem, best_backend.device, kernel="tiled", params={"TS": 4}))
        idle = bench.bind(gp.plan(problem, best_backend.device, kernel="tiled", params={"TS": 8}))
        monkeypatch.setattr(idle, "enqueue", lambda: None)
        assert bench.fault(first) == ""
        assert bench.fault(idle)


def test_operands_are_freed(best_backend: gp.Backend) -> None:
    bench = Bench(GemmProblem.create(19, 13, 11, beta=0.5), best_backend)
    memory = dict(bench._memory)
    assert set(memory) == {"a", "b", "c", "d"}
    assert not any(block.released for block in memory.values())
    bench.close()
    assert all(block.released for block in memory.values())


@pytest.mark.parametrize(("seconds", "calls"), [(5e-6, None), (5e-3, 1)])
def test_a_gpu_is_not_looked_at_while_it_waits_for_the_host(
    monkeypatch: pytest.MonkeyPatch, seconds: float, calls: int | None
) -> None:
    """The host takes six times as long to enqueue the short one as it runs; a long one is called once."""
    queue: Any = Queue()
    monkeypatch.setattr("gemmport.bench.timing.time.perf_counter", lambda: queue.host)
    monkeypatch.setattr(measuring, "random_operands", lambda *_: {})
    enqueued: list[float] = []

    def enqueue() -> None:
        enqueued.append(seconds)
        queue.put(seconds)

    bound: Any = SimpleNamespace(enqueue=enqueue)
    with Bench(GemmProblem.create(96, 96, 96), queue) as bench:
        assert bench.look(bound) == pytest.approx(seconds, rel=0.01)
    assert calls in (None, len(enqueued))


@pytest.mark.parametrize(
    ("takes", "looked", "calls"),
    [
        ([4e-3, 1e-3, *[2e-3] * 20], 1e-3, 10),  # the first while the second core wakes
        ([30e-3, 1e-3], 30e-3, 1),
        ([0.0] * 2000, 0.0, MAX_CALLS_PER_SAMPLE),
    ],
)
def test_a_cpu_is_looked_at_by_the_least_of_its_calls(
    monkeypatch: pytest.MonkeyPatch, takes: list[float], looked: float, calls: int
) -> None:
    left, now = iter(takes), [0.0]
    device = SimpleNamespace(type="cpu")
    queue: Any = SimpleNamespace(device=device, record=lambda: now[0], elapsed=lambda first, last: last - first)
    enqueued: list[float] = []

    def enqueue() -> None:
        enqueued.append(next(left))
        now[0] = sum(enqueued)

    monkeypatch.setattr(measuring, "random_operands", lambda *_: {})
    with Bench(GemmProblem.create(96, 96, 96), queue) as bench:
        assert bench.look(SimpleNamespace(enqueue=enqueue)) == pytest.approx(looked)  # type: ignore[arg-type]
    assert len(enqueued) == calls
