"""benchmarks/tuning.py: a tuner that is killed loses nothing, and what is summed up of unseen products."""

from __future__ import annotations

import importlib.util
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

import gemmport as gp
from gemmport.bench.standings import Workload
from gemmport.cli.shapes import read_shapes
from gemmport.core.problem import GemmProblem
from gemmport.tuning.crew import Outcome
from gemmport.tuning.study import Tried
from made_up_devices import DEVICES

FILE = Path(__file__).parents[2] / "benchmarks" / "tuning.py"
sys.path.insert(0, str(FILE.parent))  # it imports a module that stands beside it
SPEC = importlib.util.spec_from_file_location("tuning_script", FILE)
script = importlib.util.module_from_spec(SPEC)
sys.modules["tuning_script"] = script  # dataclasses look there
SPEC.loader.exec_module(script)
sys.path.remove(str(FILE.parent))


def test_half_of_the_products_are_unseen_and_none_is_seen_too():
    workloads = read_shapes(script.SHAPES, GemmProblem.create)
    seen, unseen = ({w.problem for w in workloads if w.source == source} for source in (script.SEEN, script.UNSEEN))
    assert (len(workloads), len(seen), len(unseen)) == (40, 20, 20)
    assert not seen & unseen


def test_ratios_are_summed_up_and_what_failed_is_not_counted():
    measured = [{"tuned": {"ratio": ratio}, "model": {"ratio": 1.0}} for ratio in (0.5, 2.0, 1.0)]
    found = script.summary([*measured, {"error": "it hung"}])
    assert (found["products"], found["measured"]) == (4, 3)
    assert found["tuned"] == {"geometric mean": pytest.approx(1.0), "worst": 0.5}


def test_regrets_and_predictions_are_summed_up():
    times = [(1.0, 1.0, 1.2), (1.02, 1.0, 1.3), (1.5, 1.0, 0.5), (1.0, 1.0, 0.81)]
    measured = [
        {"tuned": {"ratio": 1.0, "regret": regret, "seconds": seconds, "predicted": predicted}}
        for regret, seconds, predicted in times
    ]
    found = script.summary(measured)["tuned"]
    assert (found["median regret"], found["worst regret"]) == (pytest.approx(1.01), 1.5)
    assert found["predicted"] == 0.5


@pytest.mark.parametrize("source", ["seen", "unseen"])
def test_a_file_may_have_products_of_one_source_alone(source: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    report = SimpleNamespace(entries=(), candidates=3, replaced=0)
    monkeypatch.setattr(script, "opened", lambda options: nullcontext(SimpleNamespace(run=lambda tell: report)))
    monkeypatch.setattr(script, "Crew", lambda device: nullcontext())
    monkeypatch.setattr(script, "_compile", lambda device, plans: None)
    monkeypatch.setattr(script, "beside", lambda *given: {"tuned": {"ratio": 2.0}})
    found = {"results": []}
    workloads = [Workload(GemmProblem.create(64, 64, 64), "one", source)]
    device, configurations = DEVICES["CPU under PoCL"], script.untuned([])
    stages = list(script._stages(device, workloads, configurations, 1.0, None, float("inf"), tmp_path, found))
    assert [stage.split(" ")[0] for stage in stages] == ["tuned", "unseen:", "seen:"]
    measured = {each: found["summary"][each]["measured"] for each in ("seen", "unseen")}
    assert measured == {"seen": 0, "unseen": 0, source: 1}


def test_nothing_that_is_shipped_counts_where_nothing_is_shipped(tmp_path: Path):
    own = tmp_path / "model.yaml"
    own.write_text("schema: 1\nmodels:\n  - {name: mine, match: {}, launch: 1.0e-6}\n")
    found = script.untuned([own])
    assert list(found) == list(script.CHOICES)
    assert [loaded.model.name for loaded in found["calibrated"].models] == ["mine"]
    assert found["calibrated"].entries == found["model"].entries == ()
    assert found["shipped"].entries
    assert found["model"].models == found["shipped"].models
    assert "mine" not in [loaded.model.name for loaded in found["shipped"].models]


def tried(seconds: float, fate: str = "timed") -> Tried:
    return Tried("naive", {}, Outcome(fate, seconds), "model")  # type: ignore[arg-type]


def test_the_best_is_of_those_that_were_timed():
    assert script.best([tried(2.0), tried(1.0), tried(0.5, "slow")]) == 1.0
    assert script.best([]) == float("inf")


@pytest.mark.processes
def test_a_tuner_that_is_killed_again_and_again_loses_no_trial(best_backend: gp.Backend, tmp_path: Path):
    runs = list(script.killed_runs(best_backend.device, 3, tmp_path, seed=1, most=1.0))
    assert all((run.lost, run.worse) == (0, 0) for run in runs)
    assert all(run.after > run.before for run in runs)
    assert [run.before for run in runs] == [0, *(run.after for run in runs[:-1])]


def test_what_is_wrong_is_not_looked_at_but_told(best_backend: gp.Backend, capsys: pytest.CaptureFixture[str]) -> None:
    problem = GemmProblem.create(19, 13, 11)
    plans = [gp.plan(problem, best_backend.device, kernel="tiled", params={"TS": size}) for size in (4, 8)]
    with script.Bench(problem, best_backend) as bench:
        real, faults = bench.fault, iter(["", "it is wrong"])
        bench.fault = lambda bound: real(bound) or next(faults)
        (found,) = script.looked_at(bench, plans)
    assert found["parameters"] == plans[0].values
    assert script.LEAST_LOOKS <= len(found["calls"]) <= script.MOST_LOOKS
    assert len(found["samples"]) == script.SAMPLES
    assert "is left out: it is wrong" in capsys.readouterr().err
