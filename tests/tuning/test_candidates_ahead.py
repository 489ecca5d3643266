"""Programs of candidates are compiled before these are tried, each once, and for GPUs alone; what is compiled goes first."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gemmport.bench.standings import Workload
from gemmport.core.device import DeviceInfo
from gemmport.core.errors import LaunchError
from gemmport.core.plan import Plan
from gemmport.core.problem import GemmProblem
from gemmport.planning.lookup import Configuration
from gemmport.planning.planner import make_plan
from gemmport.runtime.sources import assemble
from gemmport.tuning import ahead, tuner
from gemmport.tuning.crew import Candidate, Outcome
from gemmport.tuning.session import Step, search
from gemmport.tuning.suite import Task
from gemmport.tuning.tuner import Options
from made_up_devices import DEVICES

GPU, CPU = DEVICES["NVIDIA sm_90 under CUDA"], DEVICES["CPU under PoCL"]
SMALL, LARGE = (GemmProblem.create(size, size, size) for size in (100, 300))


class Compilers:
    """Stands in for `Pool`: has done what it was asked for first, as soon as it is listened to, but for what it never does."""

    def __init__(self, never: Callable[[str], bool] = lambda _: False) -> None:
        self.sources: list[str] = []
        self.done: list[str] = []
        self.closed, self.never = False, never

    def ask(self, task: Mapping[str, Any]) -> int:
        self.sources.append(task["source"])
        return len(self.sources) - 1

    def hear(self, seconds: float | None) -> tuple[int, dict[str, Any]] | None:
        for number, source in enumerate(self.sources):
            if source not in self.done and not self.never(source):
                self.done.append(source)
                return number, {"refusal": ""}
        return None

    def close(self) -> None:
        self.closed = True


class Tries:
    """A crew that notes whether the programs of what it tries were compiled before."""

    def __init__(self, device: DeviceInfo, compilers: Compilers) -> None:
        self.device, self.compilers, self.replaced = device, compilers, 0
        self.were_there: list[bool] = []

    def try_candidate(self, problem: GemmProblem, candidate: Candidate, **_: Any) -> Outcome:
        plan = make_plan(problem, self.device, Configuration(()), kernel=candidate[0], params=candidate[1])
        self.were_there.append(set(self.compilers.done) >= set(sources(plan)))
        return Outcome("timed", 1e-5 * (1 + len(self.were_there)), (1e-5,), took=0.01)


def sources(plan: Plan) -> list[str]:
    return [assemble(launch.kernel, plan.device.language) for launch in plan.launches]


@contextmanager
def searched(
    device: DeviceInfo, compilers: Compilers, path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float = 600.0
) -> Iterator[tuple[Generator[Step, None, None], Tries]]:
    monkeypatch.setattr(ahead, "usable_cores", lambda: 4)
    monkeypatch.setattr(ahead, "Pool", lambda _jobs, _seconds: compilers)
    crew, tasks = Tries(device, compilers), [Task(Workload(problem)) for problem in (SMALL, LARGE)]
    options = Options(device, Configuration(()), tasks, ("simt",) if device is GPU else ("tiled",), 600.0, path / "j")
    with tuner.opened_with(options, crew) as opened:  # type: ignore[arg-type]
        yield search(opened.studies, crew, seconds), crew  # type: ignore[arg-type]


@pytest.mark.parametrize("device", [GPU, CPU], ids=["GPU", "CPU"])
def test_what_is_tried_on_a_gpu_was_compiled_before_and_once(
    device: DeviceInfo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compilers = Compilers()
    with searched(device, compilers, tmp_path, monkeypatch) as (steps, crew):
        for _ in range(12):
            next(steps)
        assert compilers.closed is False
        steps.close()
    assert len(compilers.sources) == len(set(compilers.sources))
    if device is GPU:
        assert all(crew.were_there)
        assert len(compilers.sources) > 8
        assert compilers.closed
    else:
        assert compilers.sources == []


def test_what_is_compiled_goes_before_what_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The compilers never come back from the program of which most is expected for the first product."""
    compilers = Compilers()
    compilers.never = lambda source: source == compilers.sources[0]
    with searched(GPU, compilers, tmp_path, monkeypatch) as (steps, crew):
        found = [next(steps) for _ in range(6)]
    assert all(crew.were_there)
    assert {step.study.workload.problem for step in found} == {SMALL, LARGE}
    assert compilers.sources[0] not in compilers.done


def test_where_no_process_starts_each_candidate_compiles_as_it_is_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise LaunchError("Python does not start")

    compilers = Compilers()
    with searched(GPU, compilers, tmp_path, monkeypatch) as (steps, crew):
        monkeypatch.setattr(ahead, "Pool", refuse)
        for _ in range(3):
            next(steps)
    assert crew.were_there == [False] * 3


def test_compilers_that_never_come_back_cost_the_time_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with searched(GPU, Compilers(lambda _: True), tmp_path, monkeypatch, seconds=0.5) as (steps, crew):
        assert list(steps) == []
    assert crew.were_there == []
