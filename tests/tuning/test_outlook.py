"""What is expected of candidates: by the model at first, then in the light of what was tried."""

from __future__ import annotations

import pytest

from gemmport.core.plan import Plan
from gemmport.core.problem import GemmProblem
from gemmport.planning.lookup import Configuration
from gemmport.tuning.outlook import Outlook
from gemmport.tuning.space import Space
from made_up_devices import DEVICES

PROBLEM = GemmProblem.create(512, 512, 512)


def plan(device: str, kernel: str, problem: GemmProblem = PROBLEM) -> Plan:
    found = Space(problem, DEVICES[device]).plan(kernel, {})
    assert found is not None
    return found


@pytest.mark.parametrize("name", ["CPU under PoCL", "NVIDIA sm_90 under CUDA", "AMD gfx90a"])
def test_the_model_has_every_kernel_in_the_order_of_its_predictions(name: str) -> None:
    device = DEVICES[name]
    outlook, own = Outlook(device, Configuration(())), Space(PROBLEM, device)
    found = list(outlook.modelled(own))
    assert {one.variant for one in found} == set(own.kernels)
    seconds = [outlook.seconds(one) for one in found]
    assert seconds == sorted(seconds)
    assert [one.variant for one in outlook.modelled(Space(PROBLEM, device, ["tiled"]))] == ["tiled"]


def test_what_was_tried_corrects_what_is_expected() -> None:
    outlook = Outlook(DEVICES["AMD gfx90a"], Configuration(()))
    tiled, near = plan("AMD gfx90a", "tiled"), plan("AMD gfx90a", "tiled", GemmProblem.create(600, 500, 512))
    before = outlook.seconds(tiled), outlook.seconds(near)
    assert not outlook.knows("tiled")
    outlook.learn(tiled, 3 * before[0])
    assert outlook.knows("tiled")
    assert outlook.seconds(tiled) == pytest.approx(3 * before[0])
    assert outlook.seconds(near) == pytest.approx(3 * before[1])


def test_less_is_expected_of_what_is_like_a_failure() -> None:
    outlook = Outlook(DEVICES["AMD gfx90a"], Configuration(()))
    tiled, other = plan("AMD gfx90a", "tiled"), plan("AMD gfx90a", "naive")
    before = outlook.seconds(tiled) / outlook.seconds(other)
    outlook.learn(other, outlook.seconds(other))
    outlook.learn_failure(tiled)
    assert outlook.seconds(tiled) / outlook.seconds(other) > 4 * before


def test_an_empty_product_takes_no_time() -> None:
    assert Outlook(DEVICES["AMD gfx90a"], Configuration(())).seconds(
        plan("AMD gfx90a", "tiled", GemmProblem.create(0, 8, 8))
    ) == 0.0  # fmt: skip
