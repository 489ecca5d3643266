"""What `gemmport run` does: a wrong kernel or baseline is called wrong, one that cannot run says why."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gemmport import baselines
from gemmport.baselines.base import Baseline, BoundBaseline
from gemmport.bench import products
from gemmport.bench.products import GUARD_ELEMENTS, Options, run_benchmark
from gemmport.checking import verification as verify
from gemmport.core.errors import BaselineUnavailableError, ParameterError
from gemmport.core.problem import GemmProblem, Layout
from gemmport.planning.lookup import load_configuration
from mutations import NAIVE, planted


def run(problem, backend, **options):
    options = {"baselines": (), "repeat": 1, **options}
    return list(run_benchmark([problem], [backend.device], Options(load_configuration(), **options)))


FAULTS = (
    "drops the last term",
    "ignores beta",
    "skips the last row",
    "writes beyond the edge",
    "reads the wrong column",
)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_broken_kernel_fails_and_says_how(backend, fault):
    with planted(fault, NAIVE):
        problem = GemmProblem.create(19, 13, 11, beta=0.5, d=Layout(ld=15))
        (result,) = run(problem, backend, kernels=(NAIVE,))
    assert result.status == "failed"
    assert result.verified is False
    assert any(check.name in result.reason for check in result.checks if not check.passed)


def test_a_kernel_that_does_not_compile_is_an_error_with_numbered_source(backend):
    with planted("does not compile", NAIVE):
        (result,) = run(GemmProblem.create(8, 8, 8), backend, kernels=(NAIVE,))
    assert result.status == "error"
    assert "no_such_type sum" in result.reason


def test_every_kernel_is_verified_and_timed(backend):
    problem = GemmProblem.create(65, 33, 47, batch=2, trans_a="T", alpha=2, beta=-0.5)
    results = run(problem, backend, kernels=("naive", "tiled", "register_tiled"), repeat=2)
    assert [result.kernel for result in results] == ["naive", "tiled", "register_tiled"]
    for result in results:
        assert result.status == "ok"
        assert {check.name for check in result.checks} == {"untouched", "exact", "statistical"}
        assert len(result.timing.samples) == 2
        assert result.to_dict()["gflops"] == pytest.approx(problem.flops / result.timing.median * 1e-9)


@pytest.mark.parametrize(("m", "n", "k", "batch"), [(0, 4, 4, 1), (4, 0, 4, 1), (4, 4, 0, 1), (4, 4, 4, 0)])
def test_products_without_elements_or_terms_are_verified_but_not_timed(best_backend, m, n, k, batch):
    (result,) = run(GemmProblem.create(m, n, k, batch=batch, beta=2.0), best_backend, kernels=("tiled",))
    assert result.status == "ok"
    assert result.verified is True
    assert result.timing is None


def test_without_verification_a_result_is_not_called_verified(best_backend):
    (result,) = run(GemmProblem.create(8, 8, 8), best_backend, verify=False)
    assert result.verified is None


@pytest.mark.parametrize("chosen", [("register_tiled",), ("naive", "register_tiled")])
def test_bad_parameters_are_an_error_among_several_kernels_too(best_backend, chosen):
    problem = GemmProblem.create(8, 8, 8)
    too_large = {"TSM": 512, "TSN": 512, "TSK": 128, "WPTM": 16, "WPTN": 16}
    with pytest.raises(ParameterError, match=r"TSM = 512.*bytes of local memory"):
        run(problem, best_backend, kernels=chosen, params=too_large)


@pytest.mark.parametrize(("alpha", "beta"), [(0.1, 0.0), (-1.7, 0.3), (1e30, 1e-6), (1e-30, 1e6), (0.0, 0.1)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_scalars_that_round_are_verified_too(best_backend, alpha, beta, dtype):
    problem = GemmProblem.create(33, 65, 40, dtype=dtype, alpha=alpha, beta=beta)
    for result in run(problem, best_backend, kernels=("naive", "tiled", "register_tiled")):
        assert result.status == "ok", result.reason
        assert {check.name for check in result.checks} == {"untouched", "exact", "statistical"}


@pytest.mark.large
def test_sums_too_long_for_the_exact_check_have_the_others(best_backend):
    (result,) = run(GemmProblem.create(2, 2, 9_000_000), best_backend, kernels=("tiled",))
    assert result.status == "ok"
    assert {check.name for check in result.checks} == {"untouched", "statistical"}


@pytest.mark.parametrize(
    ("element", "checks"),
    [
        ("float32", {"exact", "statistical", "freivalds"}),
        ("complex64", {"exact", "statistical", "freivalds"}),
        ("int8", {"exact", "freivalds"}),
        ("bool", {"exact"}),
    ],
)
def test_products_too_large_for_the_host_are_checked_on_the_device(backend, monkeypatch, element, checks):
    monkeypatch.setattr(verify, "FULL_REFERENCE_FLOPS", 0)
    problem = GemmProblem.create(65, 33, 47, batch=2, dtype=element, trans_a="T", beta=1)
    (result,) = run(problem, backend, kernels=("tiled",))
    assert result.status == "ok", result.reason
    assert {check.name for check in result.checks} == {"untouched", *checks}


def test_exact_sums_that_a_narrow_type_rounds_are_judged_on_the_device_by_row(backend, monkeypatch):
    monkeypatch.setattr(verify, "FULL_REFERENCE_FLOPS", 0)
    problem = GemmProblem.create(3, 130, 5000, dtype="float16")
    (result,) = run(problem, backend, kernels=("tiled",))
    assert result.status == "ok", result.reason
    assert {check.name for check in result.checks} == {"untouched", "exact", "statistical", "freivalds"}
    with planted(FAULTS[0], NAIVE):
        (broken,) = run(problem, backend, kernels=(NAIVE,))
    assert "exact" in {check.name for check in broken.checks if not check.passed}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_broken_kernel_fails_on_the_device_too(backend, monkeypatch, fault):
    monkeypatch.setattr(verify, "FULL_REFERENCE_FLOPS", 0)
    with planted(fault, NAIVE):
        (result,) = run(GemmProblem.create(19, 13, 11, beta=0.5, d=Layout(ld=15)), backend, kernels=(NAIVE,))
    failed = {check.name for check in result.checks if not check.passed}
    beyond = {"writes beyond the edge": {"untouched", "exact"}}
    assert failed >= beyond.get(fault, {"exact", "statistical", "freivalds"})


class Twice(Baseline):
    """A library that computes twice the product."""

    name, backends, how_to_get, version, factor = "twice", frozenset(), "", "1", 2.0

    def bind(self, problem, backend, operands, host):
        result = np.empty((problem.batch, problem.m, problem.n), problem.output.numpy)

        def enqueue():
            np.multiply(host["a"] @ host["b"], self.factor, out=result)

        return BoundBaseline(self.name, enqueue, "host", result)


@pytest.mark.parametrize(("factor", "verified"), [(2.0, False), (1.0, True)])
def test_a_baseline_is_itself_checked(best_backend, monkeypatch, factor, verified):
    monkeypatch.setattr(Twice, "factor", factor)
    monkeypatch.setattr(baselines, "load", lambda name: Twice())
    (result,) = run(GemmProblem.create(16, 16, 16), best_backend, baselines=("twice",))
    (baseline,) = result.baselines
    assert baseline.verified is verified
    assert baseline.relative_error == pytest.approx(factor - 1, abs=1e-6)
    assert ("twice is wrong" in baseline.reason) is not verified
    assert result.ratio(baseline) > 0


def test_a_baseline_that_rounds_operands_in_its_own_way_is_timed_and_not_judged(best_backend, monkeypatch):
    monkeypatch.setattr(baselines, "load", lambda name: Twice())
    monkeypatch.setattr(Twice, "rounds_by_itself", lambda self, problem: problem.precision == "tf32")
    (result,) = run(GemmProblem.create(16, 16, 16, precision="tf32"), best_backend, baselines=("twice",))
    (baseline,) = result.baselines
    assert (result.status, baseline.verified, baseline.reason) == ("ok", None, "")
    assert result.ratio(baseline) > 0


def test_the_errors_of_a_kernel_and_of_a_baseline_stand_side_by_side(best_backend, monkeypatch):
    monkeypatch.setattr(Twice, "factor", 1.0)
    monkeypatch.setattr(baselines, "load", lambda name: Twice())
    (result,) = run(GemmProblem.create(64, 64, 64), best_backend, baselines=("twice",))
    told = result.to_dict()
    assert 1e-9 < told["checks"]["statistical"]["relative"] < 1e-6
    assert 1e-9 < told["baselines"]["twice"]["relative_error"] < 1e-6
    assert told["checks"]["exact"]["relative"] is None


def test_an_absent_baseline_is_named_with_how_to_get_it(best_backend, monkeypatch):
    def absent(name):
        raise BaselineUnavailableError(f"{name} is not installed: apt install lib{name}")

    monkeypatch.setattr(baselines, "load", absent)
    (result,) = run(GemmProblem.create(16, 16, 16), best_backend, baselines=("clblast",))
    told = result.to_dict()["baselines"]["clblast"]
    assert told["available"] is False
    assert told["reason"] == "clblast is not installed: apt install libclblast"
    assert told["gflops"] is None
    assert told["ratio"] is None


def test_a_problem_that_the_device_cannot_hold_is_an_error_that_names_the_numbers(best_backend):
    (result,) = run(GemmProblem.create(2**20, 2**20, 1), best_backend)
    assert result.status == "error"
    assert f"{4 * (2**40 + 2 * GUARD_ELEMENTS):,} bytes" in result.reason


@pytest.mark.sample(full=[True])
@pytest.mark.parametrize("full", [True, False], ids=["all", "samples"])
def test_products_with_scales_are_verified(best_backend, full, monkeypatch):
    """Each element beside its bound, or some rows; scales of other rows and matrices, and scales left out, are noticed."""
    if not full:
        monkeypatch.setattr(verify, "FULL_REFERENCE_FLOPS", 0)
    problem = GemmProblem.create(33, 70, 40, batch=2, dtype="float8_e4m3fn", output="bfloat16", beta=2.0, trans_a="T")
    (result,) = run(problem, best_backend, kernels=("naive",), baselines=("numpy",), scales=True)
    assert result.status == "ok"
    assert [check.passed for check in result.checks] == [True, True]
    assert result.to_dict()["scales"] == "rows"
    assert "scales" in result.baselines[0].reason
    made = products.scaled
    for wrong in (
        lambda rows, columns: (replace(rows, step=0), columns),
        lambda rows, columns: (rows, None),
        lambda rows, columns: (replace(rows, batch_stride=0), columns),
    ):
        monkeypatch.setattr(
            products, "scaled", lambda make, problem, layouts, wrong=wrong: made(make, problem, wrong(*layouts))
        )
        (result,) = run(problem, best_backend, kernels=("naive",), baselines=(), scales=True)
        assert result.status == "failed"
