"""--devices-only leaves out what uses no device, and nothing else."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import devices_only
import gemmport as gp
from devices_only import ROOMS, told, uses_no_device
from made_up_devices import DEVICES

TESTS = Path(__file__).parent


def item(place: str, *fixtures: str, **parameters: Any) -> Any:
    """A test, as pytest collects it."""
    return SimpleNamespace(
        path=TESTS / place,
        fixturenames=["request", *fixtures],
        callspec=SimpleNamespace(params=parameters),
        config=None,
    )


@pytest.mark.parametrize("place", ["planning/test_planner.py", "backends/test_sass.py", "test_tiers.py"])
def test_a_test_that_takes_no_device_is_left_out_of_these_rooms(best_backend: gp.Backend, place: str) -> None:
    assert uses_no_device(item(place))
    assert uses_no_device(item(place, device=DEVICES["Apple"]))
    assert not uses_no_device(item(place, "best_backend"))
    assert not uses_no_device(item(place, device=best_backend.device))


@pytest.mark.parametrize("place", ["api/test_api.py", "backends/test_fork.py", "pytorch/test_torch_mode.py"])
def test_a_test_of_another_room_stays(place: str) -> None:
    assert not uses_no_device(item(place))


def test_rooms_are_there_and_told() -> None:
    for room in ROOMS:
        assert (TESTS / room).exists()
        assert room in told().rpartition(":")[2]


@pytest.mark.parametrize(
    ("place", "loaded", "fails"),
    [("planning/test_planner.py", 1, True), ("planning/test_planner.py", 0, False), ("api/test_api.py", 1, False)],
)
def test_one_that_would_be_left_out_must_load_no_program(
    monkeypatch: pytest.MonkeyPatch, place: str, loaded: int, fails: bool
) -> None:
    counts = iter((7, 7 + loaded))
    with monkeypatch.context() as patch:  # whose end the hook around this test sees
        patch.setattr(devices_only, "programs_used", lambda config: next(counts))
        call = devices_only.pytest_pyfunc_call(item(place))
        next(call)
        with pytest.raises(pytest.fail.Exception, match="take best_backend") if fails else nullcontext():
            next(call, None)


def test_programs_of_devices_that_are_tested_are_counted(
    best_backend: gp.Backend, request: pytest.FixtureRequest
) -> None:
    before = devices_only.programs_used(request.config)
    gp.gemm([[2.0]], [[3.0]], device=best_backend.device, kernel="naive", params={"TS": 4})
    assert devices_only.programs_used(request.config) > before
