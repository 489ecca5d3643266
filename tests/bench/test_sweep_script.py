"""benchmarks/sweep.py: which candidates it tries, that it finds wrong ones, and that `gemmport regret` reads what it writes."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

import gemmport as gp
from gemmport import kernels
from gemmport.bench.standings import Workload
from gemmport.bench.sweeps import read_sweep
from gemmport.bench.timing import Timing
from gemmport.cli import cli
from gemmport.core.problem import GemmProblem
from gemmport.tuning import measuring
from made_up_devices import DEVICES
from models import HOPPER, TILINGS
from mutations import NAIVE, planted

FILE = Path(__file__).parents[2] / "benchmarks" / "sweep.py"
SPEC = importlib.util.spec_from_file_location("sweep_script", FILE)
script = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(script)

SHAPES = "label,m,n,k,trans_b,beta\nfirst,9,8,7,T,\nsecond,33,20,5,,0.5\n"


def test_every_combination_of_factors_is_a_candidate():
    factors = [{"A": [1, 2], "B": 3}, [{"C": "x", "D": [4, 5]}, {"C": "y"}]]
    assert list(script.combinations(factors)) == [
        {"A": a, "B": 3, **rest}
        for a in (1, 2)
        for rest in ({"C": "x", "D": 4}, {"C": "x", "D": 5}, {"C": "y"})
    ]  # fmt: skip


@pytest.mark.parametrize(("name", "device"), [("gpu", "NVIDIA sm_90 under CUDA"), ("cpu", "CPU under PoCL")])
def test_each_kernel_has_candidates_that_its_devices_can_run(name, device):
    problem, device = GemmProblem.create(512, 512, 512), DEVICES[device]
    own = gp.plan(problem, device)
    for kernel, candidates in script.read_candidates(script.CANDIDATES / f"{name}.yaml").items():
        variant = kernels.variant(kernel)
        known = {parameter.name for parameter in variant.parameters}
        assert all(candidate.keys() <= known for candidate in candidates)
        found = {plan.variant for plan in script.plans(problem, device, {kernel: candidates})}
        assert found == {own.variant, *(() if variant.unsupported(problem, device) else (kernel,))}


def test_the_planners_choice_is_the_first_and_nothing_is_tried_twice():
    problem, device = GemmProblem.create(512, 512, 512), DEVICES["CPU under PoCL"]
    own = gp.plan(problem, device)
    found = script.plans(problem, device, {own.variant: [own.values, own.values], "naive": [{"TS": 8}, {"TS": 99}]})
    assert [(plan.variant, plan.values) for plan in found] == [(own.variant, own.values), ("naive", {"TS": 8})]


@pytest.mark.parametrize(("sizes", "shared", "across"), [((512, 512, 512), True, 1), ((16, 16, 16), False, 0)])
def test_all_that_a_model_considers_is_tried_and_the_same_launches_once(sizes, shared, across):
    problem, device = GemmProblem.create(*sizes), DEVICES["NVIDIA sm_90 under CUDA"]
    found = script.plans(problem, device, {"simt": []})
    assert found[0] == gp.plan(problem, device)
    each = kernels.variant("simt").considered(problem, device, HOPPER)
    considered = [gp.plan(problem, device, kernel="simt", params=parameters) for parameters in each]
    assert considered[0].values == found[0].values
    both = sum("SHARE" not in tiling for tiling in TILINGS)  # are there twice: shared and not
    # Of enough terms, the best of them is there with operands across, too.
    assert len(considered) == len(TILINGS) + both + across
    launches = {plan.launches for plan in considered}  # the same ones where too few steps are there to be shared
    assert len(found) == len(launches) == len(TILINGS) + shared * both + across
    assert {plan.launches for plan in found} == launches


def test_a_kernel_with_a_model_needs_no_candidates():
    workload, device = Workload(GemmProblem.create(512, 512, 512)), DEVICES["NVIDIA sm_90 under CUDA"]
    assert script.has_model("simt", [workload], device)
    assert not script.has_model("tiled", [workload], device)


def test_a_wrong_candidate_is_found_and_no_best(best_backend):
    problem = GemmProblem.create(19, 13, 11, beta=0.5)
    with planted("drops the last term", NAIVE):
        found = [gp.plan(problem, best_backend.device, kernel=name) for name in ("tiled", NAIVE)]
        swept = script.sweep(Workload(problem, "w"), best_backend, found, repeat=1)
    assert {one.kernel: one.verified for one in swept.timed} == {"tiled": True, NAIVE: False}
    assert swept.best.kernel == "tiled"
    assert any("WRONG" in line and NAIVE in line for line in script.told(swept))


def test_every_candidate_is_verified_and_the_fastest_is_the_first(best_backend, monkeypatch):
    problem = GemmProblem.create(19, 13, 11)
    found = [gp.plan(problem, best_backend.device, kernel="tiled", params={"TS": ts}) for ts in (1, 2, 4)]
    seconds = iter([5.0, 2.0, 3.0])
    monkeypatch.setattr(measuring, "measure", lambda *_, **__: {"": Timing((next(seconds),), 1)})
    swept = script.sweep(Workload(problem, "w"), best_backend, found, repeat=1)
    assert [(one.parameters["TS"], one.seconds, one.verified) for one in swept.timed] == [
        (2, 2.0, True), (4, 3.0, True), (1, 5.0, True)
    ]  # fmt: skip


@pytest.mark.processes
def test_a_sweep_over_a_file_of_shapes_is_judged(best_backend, tmp_path):
    (tmp_path / "s.csv").write_text(SHAPES)
    (tmp_path / "c.yaml").write_text("naive:\n  - {TS: [4, 8]}\ntiled:\n  - {TS: 8}\n  - {PAD: [0, 1]}\n")
    device = best_backend.device
    kinds = [kind for kind in ("float32", "float64") if kind in device.computes]
    arguments = [
        "--backend", device.backend, "--device", device.selector, "--shapes", tmp_path / "s.csv",
        "--candidates", tmp_path / "c.yaml", "--dtype", ",".join(kinds), "--repeat", 1, "--output", tmp_path / "s.jsonl",
    ]  # fmt: skip
    done = CliRunner().invoke(script.main, list(map(str, arguments)), catch_exceptions=False)
    assert done.exit_code == 0
    assert "first: naive TS=" in done.output
    sweep = read_sweep(tmp_path / "s.jsonl")
    assert sweep.device == device
    assert [(one.workload.label, one.workload.problem.m, one.workload.problem.dtype.name) for one in sweep.swept] == [
        (label, m, kind) for kind in kinds for label, m in (("first", 9), ("second", 33))
    ]
    for swept in sweep.swept:
        own = gp.plan(swept.workload.problem, device)
        tried = [(one.kernel, dict(one.parameters)) for one in swept.timed]
        assert (own.variant, own.values) in tried
        assert {("naive", 4), ("naive", 8)} <= {(kernel, values.get("TS")) for kernel, values in tried}
        assert all(one.verified for one in swept.timed)

    judge = ["regret", str(tmp_path / "s.jsonl")]
    told = CliRunner().invoke(cli, judge, catch_exceptions=False).output
    count = len(sweep.swept)
    assert f"over {count} of {count} workloads: median" in told
    document = json.loads(CliRunner().invoke(cli, [*judge, "--format", "json"], catch_exceptions=False).output)
    assert (document["workloads"], document["known"]) == (count, count)
    for choice, swept in zip(document["choices"], sweep.swept, strict=True):
        best = min(one.seconds for one in swept.timed)
        assert choice["regret"] == pytest.approx(choice["seconds"] / best)
        assert choice["best"]["seconds"] == best


@pytest.mark.processes
@pytest.mark.parametrize(("kind", "told"), [("complex64", "complex64 NN 9×9×9: naive TS=4"), ("float128", "float128")])
def test_a_named_type_is_swept_or_told(best_backend, tmp_path, kind, told):
    (tmp_path / "c.yaml").write_text("naive:\n  - {TS: 4}\n")
    device = best_backend.device
    arguments = ["--backend", device.backend, "--device", device.selector, "--candidates", str(tmp_path / "c.yaml")]
    done = CliRunner().invoke(script.main, [*arguments, "--dtype", kind, "--sizes", "9", "--repeat", "1"])
    assert told in f"{done.output}{done.exception}"


@pytest.mark.parametrize("kernel", ["wpt", "no_such"])
def test_a_kernel_without_candidates_is_refused(tmp_path, kernel):
    (tmp_path / "c.yaml").write_text("naive:\n  - {TS: 4}\n")
    done = CliRunner().invoke(script.main, ["--candidates", str(tmp_path / "c.yaml"), "--kernel", kernel])
    assert done.exit_code == 2
    assert f"no candidates for {kernel}: the file has naive" in done.output
