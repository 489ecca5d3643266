"""Where a kernel, as compiled, runs in smaller groups only, another is chosen; what was asked for is refused."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import gemmport as gp
from gemmport.bench.products import Options, run_benchmark
from gemmport.planning.lookup import load_configuration
from launched import put_on

pytestmark = pytest.mark.every_runtime

A = np.ones((48, 128), np.float32)
PROBLEM = gp.GemmProblem.create(48, 48, 128, trans_b="T")


class Limits:
    """How large groups compiled kernels run in, and what was prepared within that: the kernel's name and its work-items."""

    def __init__(self) -> None:
        self.of: Callable[[str, int], int] = lambda function, items: items
        self.accepted: list[tuple[str, int]] = []
        self.refused: list[tuple[str, int]] = []


def limited(backend: gp.Backend, monkeypatch: pytest.MonkeyPatch) -> Limits:
    """The limits of a device, on which every kernel runs in all groups until they say otherwise."""
    limits, check = Limits(), backend.check_work_group

    def checked(function: str, work_group: tuple[int, int, int], most: int) -> None:
        items = math.prod(work_group)
        told = min(most, limits.of(function, items))
        (limits.accepted if items <= told else limits.refused).append((function, items))
        check(function, work_group, told)

    put_on(monkeypatch, backend, "check_work_group", checked)
    return limits


@pytest.fixture
def limits(fresh_backend: gp.Backend, monkeypatch: pytest.MonkeyPatch) -> Limits:
    return limited(fresh_backend, monkeypatch)


def asking_for_tiled(folder: Path) -> Path:
    """A configuration file whose one entry lists `tiled`, in groups of 64."""
    file = folder / "mine.yaml"
    file.write_text(
        "schema: 1\ndescription: of a test\nentries:\n"
        "- {name: mine, kernels: {tiled: {TS: 8}}, provenance: {tuned: false}}\n"
    )
    return file


def product(backend: gp.Backend, **how: object) -> None:
    a = backend.asarray(A)
    assert (gp.gemm(a, a, trans_b="T", **how).get() == 128).all()


def refuse_the_first_choice(limits: Limits, device: gp.DeviceInfo, problem: gp.GemmProblem) -> int:
    """Lets what is chosen first for a device run in smaller groups only, or, where its groups have one work-item, in none.

    Returns:
        The most work-items of such a group.
    """
    launches = gp.plan(problem, device).launches
    most = max(math.prod(launch.work_group) for launch in launches) - 1
    refused = {launch.kernel.function for launch in launches}
    limits.of = lambda function, items: most if most or function in refused else items
    return most


def test_another_kernel_is_chosen_and_the_reason_logged(
    fresh_backend: gp.Backend, limits: Limits, caplog: pytest.LogCaptureFixture
) -> None:
    most = refuse_the_first_choice(limits, fresh_backend.device, PROBLEM)
    first = gp.plan(PROBLEM, fresh_backend.device).variant
    with caplog.at_level(logging.INFO, "gemmport.execution.executor"):
        product(fresh_backend)
    assert limits.refused
    assert limits.accepted[-1][1] <= most or not most
    (told,) = (record.getMessage() for record in caplog.records)
    assert told.startswith(f"passed over {first}: ")
    assert f"at most {most} work-items per group" in told


def test_other_tilings_are_chosen_of_ever_smaller_groups(backend: gp.Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a kernel that was named, on a device for which large groups are chosen first."""
    with type(backend)(replace(backend.device, type="gpu")) as device:
        limits = limited(device, monkeypatch)
        limits.of = lambda function, items: items - 1 if items > 32 else items
        a, x = (device.asarray(np.ones(shape, np.float32)) for shape in ((600, 900), (900, 1)))
        assert (gp.gemm(a, x, kernel="gemv").get() == 900).all()
    assert [items for function, items in limits.refused if function == "gemv"] == [256, 128, 64]
    assert ("gemv", 32) in limits.accepted


def test_what_was_chosen_anew_is_kept(fresh_backend: gp.Backend, limits: Limits) -> None:
    refuse_the_first_choice(limits, fresh_backend.device, PROBLEM)
    a, out = fresh_backend.asarray(A), fresh_backend.empty((48, 48), np.float32)
    for _ in range(3):
        gp.gemm(a, a, trans_b="T", out=out)
    assert len(limits.refused) == 1
    assert (out.get() == 128).all()


@pytest.mark.parametrize("how", ["params", "config"])
def test_parameters_that_were_asked_for_are_refused(
    fresh_backend: gp.Backend, limits: Limits, how: str, tmp_path: Path
) -> None:
    limits.of = lambda function, items: 16
    asked: dict[str, object] = {"kernel": "tiled", "params": {"TS": 8}}
    if how == "config":
        asked = {"config": asking_for_tiled(tmp_path)}
    told = "tiled was compiled to run with at most 16 work-items per group, not 64"
    with pytest.raises(gp.WorkGroupError, match=told) as caught:
        product(fresh_backend, **asked)
    assert isinstance(caught.value, gp.LaunchError)
    assert isinstance(caught.value.__cause__, gp.ParameterError)
    assert limits.refused == [("tiled", 64)]


def test_the_first_refusal_is_told_where_nothing_is_left(fresh_backend: gp.Backend, limits: Limits) -> None:
    limits.of = lambda function, items: items // 4
    with pytest.raises(gp.WorkGroupError) as caught:
        product(fresh_backend)
    function, items = limits.refused[0]
    assert f"{function} was compiled to run with at most {items // 4} work-items per group, not {items}" in str(
        caught.value
    )


def test_a_kernel_that_runs_in_no_group_is_passed_over(
    fresh_backend: gp.Backend, limits: Limits, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is chosen first on a device, groups of one work-item included."""
    first = gp.plan(PROBLEM, fresh_backend.device)
    functions = {launch.kernel.function for launch in first.launches}
    limits.of = lambda function, items: 0 if function in functions else items
    product(fresh_backend)
    assert [function for function, _ in limits.refused] == [first.launches[0].kernel.function]
    assert functions.isdisjoint(function for function, _ in limits.accepted)


def test_a_configuration_that_asks_for_a_kernel_that_runs_in_no_group_is_refused(
    fresh_backend: gp.Backend, limits: Limits, tmp_path: Path
) -> None:
    limits.of = lambda function, items: 0
    with pytest.raises(gp.WorkGroupError, match="tiled was compiled to run with at most 0 work-items") as caught:
        product(fresh_backend, config=asking_for_tiled(tmp_path))
    assert "mine asks for tiled" in str(caught.value.__cause__)
    assert limits.refused == [("tiled", 64)]


def test_nothing_else_is_tried_where_a_named_kernel_runs_in_no_group(
    backend: gp.Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    with type(backend)(replace(backend.device, type="gpu")) as device:
        limits = limited(device, monkeypatch)
        limits.of = lambda function, items: 0
        a, x = (device.asarray(np.ones(shape, np.float32)) for shape in ((60, 90), (90, 1)))
        with pytest.raises(gp.WorkGroupError, match="at most 0 work-items"):
            gp.gemm(a, x, kernel="gemv")
    assert len(limits.refused) == 1


def test_a_run_times_what_was_chosen_anew(
    fresh_backend: gp.Backend, limits: Limits, monkeypatch: pytest.MonkeyPatch
) -> None:
    most = refuse_the_first_choice(limits, fresh_backend.device, PROBLEM)
    monkeypatch.setattr("gemmport.bench.products.get_backend", lambda device: fresh_backend)
    options = Options(load_configuration(), baselines=(), repeat=1)
    (result,) = run_benchmark([PROBLEM], [fresh_backend.device], options)
    assert result.status == "ok", result.reason
    assert limits.refused
    assert result.plan is not None
    assert all(math.prod(launch.work_group) <= most or not most for launch in result.plan.launches)
    assert result.timing is not None
