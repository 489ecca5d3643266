"""What an explained plan takes is measured as `gemmport run` measures it."""

from __future__ import annotations

import pytest

import gemmport as gp
from gemmport.bench import explained
from gemmport.bench.products import Options, Result
from gemmport.core.errors import LaunchError
from gemmport.planning.explanation import explain
from gemmport.planning.lookup import load_configuration

CONFIGURATION = load_configuration()
OPTIONS = Options(CONFIGURATION, ("naive",), {"TS": 4}, baselines=(), repeat=2)


def test_the_plan_that_was_explained_is_what_is_measured(best_backend: gp.Backend) -> None:
    problem = gp.GemmProblem.create(20, 30, 40)
    found = explain(problem, best_backend.device, CONFIGURATION, kernel="naive", params={"TS": 4})
    measured = explained.measured(found, OPTIONS).measured
    assert measured is not None
    assert measured.verified is True
    assert measured.seconds > 0
    assert (measured.plan.variant, measured.plan.values) == (found.plan.variant, found.plan.values)


def test_what_a_device_refuses_is_raised(best_backend: gp.Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = gp.GemmProblem.create(20, 30, 40)
    found = explain(problem, best_backend.device, CONFIGURATION)
    refused = Result(problem, best_backend.device, "naive", "error", "no room for it")
    monkeypatch.setattr(explained, "run_benchmark", lambda *_, **__: iter([refused]))
    with pytest.raises(LaunchError, match="no room for it"):
        explained.measured(found, OPTIONS)
