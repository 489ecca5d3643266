"""`prepare`: which plans it carries out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import gemmport as gp
from absences import beyond
from gemmport.api import plans
from gemmport.planning import lookup
from launched import put_on

PROBLEMS = {
    "dense": gp.GemmProblem.create(5, 6, 7, batch=2, beta=1),
    "apart": gp.GemmProblem.create(
        5, 6, 7, batch=2, trans_b="T", beta=0.5,
        a=gp.Layout(9, 50, 3), b=gp.Layout(7, 0, 1), c=gp.Layout(6, 30), d=gp.Layout(8, 48, 2),
    ),
    "without terms": gp.GemmProblem.create(5, 6, 0, batch=2),
    "empty": gp.GemmProblem.create(5, 0, 7, batch=2),
}  # fmt: skip


def on_host(problem: gp.GemmProblem) -> gp.GemmProblem:
    """The problem of host arrays, which begin at their first element, and are aligned to their elements."""

    def layout(it: gp.Layout) -> gp.Layout:
        return replace(it, offset=0, base_alignment=problem.dtype.itemsize)

    return replace(problem, a=layout(problem.a), b=layout(problem.b), c=layout(problem.c), d=layout(problem.d))


@pytest.mark.parametrize("name", PROBLEMS)
def test_arrays_lie_as_the_problem_says(backend: gp.Backend, name: str) -> None:
    problem = PROBLEMS[name]
    *of_host, of_device = gp.prepare(problem, backend.device, kernel="naive")
    shares = backend.borrow(np.zeros(1)) is not None
    assert len(of_host) == shares
    if problem.empty:  # how nothing lies does not matter
        assert not of_device.launches
        return
    wanted = problem if problem.beta != 0 else replace(problem, c=problem.d)
    if problem.effective_k:
        assert of_device.problem == wanted
        assert [plan.problem for plan in of_host] == [on_host(wanted)] * shares
    assert {plan.variant for plan in (*of_host, of_device)} == {"naive"}


def test_a_batch_of_one_is_prepared_as_the_matrices_that_gemm_is_given(backend: gp.Backend) -> None:
    plans = gp.prepare(gp.GemmProblem.create(5, 6, 7), backend.device, kernel="naive")
    assert {plan.problem.a.batch_stride for plan in plans} == {0}


def test_what_does_not_fit_is_refused_before_memory_is_taken(best_backend: gp.Backend) -> None:
    with pytest.raises(gp.DeviceMemoryError, match="in one allocation"):
        gp.prepare(gp.GemmProblem.create(2_000_000, 2_000_000, 1, batch=9), best_backend.device)


def test_memory_of_the_host_is_waited_for(best_backend: gp.Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    if best_backend.borrow(np.zeros(1)) is None:
        pytest.skip(beyond(best_backend.device, "it does not read the host's memory"))
    given_back = []
    put_on(monkeypatch, best_backend, "give_back", given_back.append)
    gp.prepare(gp.GemmProblem.create(5, 6, 7), best_backend.device, kernel="naive")
    assert [memory.keeper.shape for memory in given_back] == [(5, 6)]


def test_explaining_a_plan_does_not_bring_in_a_folder_that_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, best_backend: gp.Backend
) -> None:
    """An empty GEMMPORT_CONFIG_PATH leaves out the user's own folder, one that is not set does not."""
    text = "schema: 1\nentries: [{name: own, kernels: {naive: {TS: 4}}}]\n"
    (tmp_path / "gemmport").mkdir()
    (tmp_path / "gemmport" / "own.yaml").write_text(text, encoding="utf-8")
    monkeypatch.setattr(lookup, "user_config_folder", lambda name: tmp_path / name)
    plans._configuration.cache_clear()
    problem = gp.GemmProblem.create(37, 41, 43)
    monkeypatch.delenv("GEMMPORT_CONFIG_PATH", raising=False)
    assert "own.yaml" in gp.explain(problem, best_backend.device).plan.entry
    monkeypatch.setenv("GEMMPORT_CONFIG_PATH", "")
    assert "own.yaml" not in gp.explain(problem, best_backend.device).plan.entry
    assert "own.yaml" not in gp.plan(problem, best_backend.device).entry
    plans._configuration.cache_clear()


PROBLEM = gp.GemmProblem.create(4, 5, 6)


@pytest.mark.parametrize("sizes", [(4, 5, 6), None, "4,5,6"], ids=str)
@pytest.mark.parametrize("function", [gp.plan, gp.prepare])
def test_what_is_no_problem_is_refused_with_what_makes_one(function, sizes, best_backend):
    with pytest.raises(gp.ShapeError, match=r"problem must be a GemmProblem; got .*: make it by GemmProblem\.create"):
        function(sizes, best_backend.device)


@pytest.mark.parametrize("device", ["intel", 0, None])
@pytest.mark.parametrize("function", [gp.plan, gp.prepare])
def test_what_is_no_device_is_refused_with_what_gives_one(function, device):
    with pytest.raises(
        gp.DeviceNotFoundError, match=r"device must be a DeviceInfo; got .*: take one of gemmport\.devices"
    ):
        function(PROBLEM, device)


def test_arrays_in_the_place_of_a_plan_are_refused():
    with pytest.raises(gp.ArrayError, match=r"plan must be what gemmport\.plan gives; got a ndarray"):
        gp.run(np.eye(2), np.eye(2), np.eye(2))


@pytest.mark.parametrize("sizes", [None, 3, (4, 5)], ids=str)
def test_sizes_that_are_not_three_are_refused_in_an_explanation(sizes):
    with pytest.raises(gp.ShapeError, match="problem must be a GemmProblem or its sizes"):
        gp.explain(sizes)
