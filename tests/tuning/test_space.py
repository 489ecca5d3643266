"""Which candidates there are: points of a search that break a rule stand for the nearest that do not."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemmport import kernels
from gemmport.core.problem import GemmProblem
from gemmport.tuning import space
from gemmport.tuning.space import Space, grid
from made_up_devices import DEVICES

PROBLEM = GemmProblem.create(512, 512, 512)
CPU, GPU = DEVICES["CPU under PoCL"], DEVICES["NVIDIA sm_90 under CUDA"]


@pytest.mark.parametrize("variant", kernels.variants(), ids=lambda variant: variant.name)
def test_a_grid_has_the_default_and_nothing_that_is_not_allowed(variant: kernels.KernelVariant) -> None:
    for parameter in variant.parameters:
        values = grid(parameter)
        assert parameter.default in values
        assert all(parameter.check(value) == value for value in values)
        assert len(values) == len(set(values)) <= 64


def test_kernels_that_do_not_serve_the_product_are_left_out() -> None:
    assert "packed" in Space(PROBLEM, CPU).kernels
    assert "packed" not in Space(PROBLEM, GPU).kernels
    assert "gemv" not in Space(PROBLEM, CPU).kernels
    assert "gemv" in Space(GemmProblem.create(1, 512, 512), CPU).kernels
    assert Space(PROBLEM, CPU, ["packed", "gemv"]).kernels == ("packed",)


def points(kernel: str) -> st.SearchStrategy[dict[str, Any]]:
    """Values of each parameter of a kernel, which may break its rules."""
    each = {
        parameter.name: st.sampled_from(parameter.choices)
        if parameter.choices
        else st.integers(parameter.minimum, parameter.maximum)
        for parameter in kernels.variant(kernel).parameters
    }
    return st.fixed_dictionaries(each)


@pytest.mark.parametrize("kernel", ["direct", "packed", "register_tiled"])
@settings(max_examples=10)
@given(data=st.data())
def test_the_nearest_candidate_is_allowed_and_near(kernel: str, data: st.DataObject) -> None:
    own, point = Space(PROBLEM, CPU), data.draw(points(kernel))
    plan = own.nearest(kernel, point)
    if plan is None:
        return
    on_grid = {parameter.name: grid(parameter) for parameter in kernels.variant(kernel).parameters}
    assert all(value in on_grid[name] for name, value in plan.values.items())
    again = own.nearest(kernel, plan.values)
    assert again is not None
    assert again.values == plan.values


def test_a_candidate_is_planned_once() -> None:
    own = Space(PROBLEM, CPU)
    plan = own.plan("wpt", {"TS": 32, "WPT": 4})
    assert plan is not None
    assert own.plan("wpt", {"WPT": 4, "TS": 32}) is plan
    assert own.plan("wpt", {"WPT": 4, "TS": 16}) is not plan


def test_a_rule_is_kept_by_moving_as_little_as_that_takes() -> None:
    plan = Space(PROBLEM, CPU).nearest("wpt", {"TS": 32, "WPT": 5, "PAD": 1})
    assert plan is not None
    assert plan.values == {"TS": 32, "WPT": 4, "PAD": 1}


def test_a_limit_of_the_device_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    small = DEVICES["16 KB of local memory"]
    plan = Space(PROBLEM, small).nearest("tiled", {"TS": 64, "PAD": 8})
    assert plan is not None
    assert plan.launches[0].local_bytes <= small.local_memory


def test_nothing_near_is_no_candidate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(space, "MOST_NEIGHBOURS", 1)
    assert Space(PROBLEM, CPU).nearest("wpt", {"TS": 32, "WPT": 5, "PAD": 1}) is None


def test_the_fingerprint_differs_where_a_rule_does(monkeypatch: pytest.MonkeyPatch) -> None:
    before = space.fingerprint(["wpt"])
    assert space.fingerprint(["wpt", "tiled"]) != before
    variant = kernels.variant("wpt")
    monkeypatch.setattr(type(variant), "constraints", ())
    assert space.fingerprint(["wpt"]) != before
