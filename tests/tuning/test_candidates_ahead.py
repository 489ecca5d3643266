"""Programs of candidates are compiled before these are tried, each once, and for GPUs alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import gemmport as gp
from gemmport.api.ahead import compile_without
from gemmport.bench.standings import Workload
from gemmport.core.device import DeviceInfo
from gemmport.core.plan import Plan
from gemmport.core.problem import GemmProblem
from gemmport.execution.executor import sources_of
from gemmport.planning.lookup import Configuration
from gemmport.planning.planner import make_plan
from gemmport.runtime.sources import assemble
from gemmport.tuning import ahead, tuner
from gemmport.tuning.ahead import Ahead
from gemmport.tuning.crew import Candidate, Outcome
from gemmport.tuning.session import search
from gemmport.tuning.suite import Task
from gemmport.tuning.tuner import Options
from made_up_devices import DEVICES

GPU = DEVICES["NVIDIA sm_90 under CUDA"]


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The sources that other processes were to compile."""
    found: list[str] = []
    monkeypatch.setattr(ahead, "usable_cores", lambda: 4)
    monkeypatch.setattr(ahead, "compile_without", lambda _device, sources, _seconds: found.extend(sources))
    return found


def sources(plan: Plan) -> list[str]:
    return [assemble(launch.kernel, plan.device.language) for launch in plan.launches]


class Tries:
    """A crew that notes whether the programs of what it tries were compiled before."""

    def __init__(self, device: DeviceInfo, compiled: Sequence[str]) -> None:
        self.device, self.compiled, self.replaced = device, compiled, 0
        self.were_there: list[bool] = []

    def try_candidate(self, problem: GemmProblem, candidate: Candidate, **_: Any) -> Outcome:
        plan = make_plan(problem, self.device, Configuration(()), kernel=candidate[0], params=candidate[1])
        self.were_there.append(set(self.compiled) >= set(sources(plan)))
        return Outcome("timed", 1e-5 * (1 + len(self.were_there)), (1e-5,), took=0.01)


@pytest.mark.parametrize("name", ["NVIDIA sm_90 under CUDA", "CPU under PoCL"])
def test_what_is_tried_on_a_gpu_was_compiled_before_and_once(name: str, compiled: list[str], tmp_path: Path) -> None:
    device, problems = DEVICES[name], [GemmProblem.create(size, size, size) for size in (100, 300)]
    tasks = [Task(Workload(problem)) for problem in problems]
    crew = Tries(device, compiled)
    options = Options(
        device, Configuration(()), tasks, ("simt",) if device is GPU else ("tiled",), 600.0, tmp_path / "j"
    )
    with tuner.opened_with(options, crew) as opened:  # type: ignore[arg-type]
        steps = search(opened.studies, crew, 600.0, Ahead(device))  # type: ignore[arg-type]
        for _ in range(12):
            next(steps)
    assert len(compiled) == len(set(compiled))
    if device is GPU:
        assert all(crew.were_there)
        assert len(compiled) > 8
    else:
        assert compiled == []


def test_programs_are_on_disk_where_nobody_opened_the_device(best_backend: gp.Backend) -> None:
    problem = GemmProblem.create(33, 35, 37)
    plans = [gp.plan(problem, best_backend.device, kernel="naive", params={"TS": side}) for side in (1, 2, 4, 8, 16)]
    wanted = [source for plan in plans for source in sources_of(plan, best_backend)]
    compile_without(best_backend.device, wanted, 0.0)
    before = [best_backend.has_best(source) for source in wanted]
    compile_without(best_backend.device, wanted, 120.0)
    assert not all(before)
    assert all(best_backend.has_best(source) for source in wanted)
