"""A candidate that crashes, hangs or compiles for too long costs itself: another process tries the next one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import gemmport as gp
from gemmport.core.errors import LaunchError
from gemmport.core.problem import GemmProblem
from gemmport.tuning import crew as crew_module
from gemmport.tuning.crew import Crew, Outcome
from import_path import import_path
from made_up_devices import DEVICES

PROBLEM = GemmProblem.create(9, 8, 7)


@pytest.fixture
def crew(monkeypatch: pytest.MonkeyPatch) -> Iterator[Crew]:
    """One whose process does what a candidate's parameter FATE says."""
    monkeypatch.setenv("PYTHONPATH", import_path(Path(__file__).parent))
    monkeypatch.setattr(crew_module, "RUN_SECONDS", 0.3)
    with Crew(DEVICES["CPU under PoCL"], module="broken_worker") as found:
        assert found.open() == {"name": "made up"}
        yield found


def tried(crew: Crew, fate: str, *, slow: bool = False, compile_seconds: float = 30.0) -> Outcome:
    return crew.try_candidate(
        PROBLEM, ("made up", {"FATE": fate}), repeat=3, compile_seconds=compile_seconds, expected=0.001,
        is_slow=lambda look: slow,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("candidate", "fate", "reason"),
    [
        ("crashes", "crash", "the process ended with status 7"),
        ("hangs", "hang", "no result after 0 s"),
        ("compiles for ever", "cut off", "its share of the budget"),
    ],
)
def test_a_process_that_is_lost_is_replaced(crew: Crew, candidate: str, fate: str, reason: str) -> None:
    found = tried(crew, candidate, compile_seconds=0.3 if candidate == "compiles for ever" else 30.0)
    assert (found.fate, found.seconds, found.verified) == (fate, None, None)
    assert reason in found.reason
    assert found.took > 0
    assert crew.replaced == 1
    assert tried(crew, "is timed").fate == "timed"
    assert crew.replaced == 1


def test_what_is_timed_has_the_median_of_its_samples(crew: Crew) -> None:
    found = tried(crew, "is timed")
    assert (found.fate, found.seconds, found.samples, found.verified) == ("timed", 2.0, (3.0, 1.0, 2.0), True)


def test_what_is_slow_at_first_sight_is_left_there(crew: Crew) -> None:
    found = tried(crew, "is timed", slow=True)
    assert (found.fate, found.seconds, found.samples, found.verified) == ("slow", 0.5, (0.5,), True)
    assert tried(crew, "is timed").fate == "timed"


def test_what_is_wrong_is_not_timed(crew: Crew) -> None:
    found = tried(crew, "wrong")
    assert (found.fate, found.seconds, found.verified) == ("wrong", None, False)
    assert found.reason == "freivalds: 3 of 5"


@pytest.mark.processes
def test_a_device_that_does_not_open_is_an_error() -> None:
    with Crew(DEVICES["AMD gfx90a"], ["no_such_module_of_a_test"]) as crew, pytest.raises(LaunchError) as caught:
        crew.open()
    assert "does not open in a process of its own" in str(caught.value)
    assert "no_such_module_of_a_test" in str(caught.value)


def test_candidates_of_a_real_device_are_timed_and_take_turns(best_backend: gp.Backend) -> None:
    with Crew(best_backend.device) as crew:
        found = crew.try_candidate(
            PROBLEM, ("tiled", {"TS": 4}), repeat=2, compile_seconds=60, expected=1.0, is_slow=lambda look: False
        )
        assert found.fate == "timed"
        assert len(found.samples) == 2
        refused = crew.try_candidate(
            PROBLEM, ("tiled", {"TS": 99}), repeat=2, compile_seconds=60, expected=1.0, is_slow=lambda look: False
        )
        assert refused.fate == "rule"
        turns = crew.in_turns(PROBLEM, [("tiled", {"TS": 4}), ("naive", {"TS": 8})], repeat=3, seconds=120)
        assert [len(samples) for samples in turns] == [3, 3]
        with pytest.raises(LaunchError, match="TS = 99"):
            crew.in_turns(PROBLEM, [("tiled", {"TS": 99})], repeat=3, seconds=120)
        assert crew.replaced == 0
