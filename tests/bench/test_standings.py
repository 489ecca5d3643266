"""What is said of a suite: the geometric mean, the worst, what falls short, and what has no ratio."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemmport.bench.products import Result
from gemmport.bench.results import BaselineResult
from gemmport.bench.standings import Measured, Workload, standings
from gemmport.bench.timing import Timing
from gemmport.core.problem import GemmProblem
from made_up_devices import DEVICES

CUDA = replace(DEVICES["NVIDIA sm_90 under CUDA"], index=(0, 0))
OPENCL = DEVICES["NVIDIA sm_90 under OpenCL"]


def timing(seconds):
    return Timing((seconds,), 1)


def library(seconds, name="blas", **fields):
    return BaselineResult(name, timing=timing(seconds), verified=True, **fields)


def measured(workload, *baselines, device=CUDA, kernel="tiled", status="ok", seconds=1.0, reason=""):
    return Measured(
        workload, Result(workload.problem, device, kernel, status, reason, None, timing(seconds), (), baselines)
    )


def workloads(*names):
    return [Workload(GemmProblem.create(4, 4, 4), name) for name in names]


@given(st.lists(st.floats(1e-3, 1e3), min_size=2, max_size=20), st.floats(1e-3, 1e3))
def test_mean_worst_and_count_are_those_of_the_ratios(ratios, threshold):
    suite = workloads(*(f"number {i}" for i in range(len(ratios))))
    (found,) = standings([measured(w, library(r)) for w, r in zip(suite, ratios, strict=True)], ("auto",))
    assert math.log(found.geometric_mean) == pytest.approx(sum(map(math.log, ratios)) / len(ratios), abs=1e-9)
    assert [ratio for _, ratio in found.ratios] == sorted(ratios)
    assert found.ratios[0][0] == f"number {ratios.index(min(ratios))}"
    assert found.below(threshold) == len([ratio for ratio in ratios if ratio < threshold])
    assert found.to_dict(threshold)["worst"] == {"name": found.ratios[0][0], "ratio": min(ratios)}


def test_equal_problems_without_labels_are_told_apart():
    suite = workloads("", "")
    (found,) = standings([measured(suite[0], library(2.0)), measured(suite[1], library(3.0))], ("auto",))
    assert found.ratios == (("float32 NN 4×4×4", 2.0), ("float32 NN 4×4×4", 3.0))


def test_auto_is_one_kernel_whatever_it_chose_and_named_kernels_are_several():
    a, b = workloads("a", "b")
    one = [measured(a, library(2.0), kernel="naive"), measured(b, library(3.0), kernel="tiled")]
    (found,) = standings(one, ("auto",))
    assert (found.kernel, len(found.ratios)) == ("auto", 2)
    several = [measured(w, library(2.0), kernel=kernel) for w in (a, b) for kernel in ("naive", "tiled")]
    assert [found.kernel for found in standings(several, ("naive", "tiled"))] == ["naive", "tiled"]


def test_every_baseline_has_a_standing_of_its_own():
    suite = workloads("a", "b")
    found = standings([measured(w, library(2.0), library(4.0, "other")) for w in suite], ("auto",))
    assert [(one.baseline, one.geometric_mean) for one in found] == [("blas", 2.0), ("other", pytest.approx(4.0))]


def test_what_has_no_ratio_is_missing_with_its_reason_and_does_not_count():
    right, failed, absent, wrong, none = suite = workloads("right", "failed", "absent", "wrong", "none")
    outcomes = {
        "right": measured(right, library(2.0)),
        "failed": measured(failed, library(9.0), status="failed", reason="exact: 1 is 2"),
        "absent": measured(absent, BaselineResult("blas", "no batches")),
        "wrong": measured(wrong, BaselineResult("blas", "blas is wrong: 1 is 2", "", timing(9.0), False)),
        "none": measured(none),
    }
    (found,) = standings([outcomes[w.label] for w in suite], ("auto",))
    assert found.ratios == (("right", 2.0),)
    assert dict(found.missing) == {
        "failed": "failed: exact: 1 is 2",
        "absent": "no batches",
        "wrong": "blas is wrong: 1 is 2",
        "none": "nothing was timed",
    }
    told = found.told(3.0)
    assert "geometric mean 2.000 over 1 of 5 problems, worst 2.000 (right), 1 below 3" in told
    assert "no ratio for absent: no batches" in told


def test_a_baseline_that_was_never_timed_has_no_standing():
    suite = workloads("a", "b")
    assert standings([measured(w, BaselineResult("blas", "not installed")) for w in suite], ("auto",)) == []


def test_a_library_of_the_other_backend_is_compared_on_the_same_chip_alone():
    suite = workloads("a", "b")
    cpu = DEVICES["CPU under PoCL"]
    rows = []
    for workload in suite:
        rows.append(measured(workload, library(2.0, "cublas")))
        rows.append(measured(workload, library(3.0, "clblast"), device=OPENCL, seconds=0.5))
        rows.append(measured(workload, device=cpu))
    found = {(one.device, one.baseline): one for one in standings(rows, ("auto",))}
    assert set(found) == {(CUDA, "cublas"), (CUDA, "clblast"), (OPENCL, "cublas"), (OPENCL, "clblast")}
    beside = found[OPENCL, "cublas"]
    assert beside.geometric_mean == pytest.approx(4.0)
    assert beside.timed_on == CUDA
    assert "× cublas under cuda, auto on" in beside.told(1.0)
    assert "× clblast, auto on" in found[OPENCL, "clblast"].told(1.0)


def test_a_baseline_of_the_devices_own_goes_before_that_of_another():
    suite = workloads("a", "b")
    rows = [
        measured(workload, library(seconds), device=device)
        for workload in suite
        for device, seconds in ((CUDA, 2.0), (OPENCL, 3.0))
    ]
    found = {one.device: one for one in standings(rows, ("auto",))}
    assert {device: one.geometric_mean for device, one in found.items()} == {CUDA: 2.0, OPENCL: pytest.approx(3.0)}
