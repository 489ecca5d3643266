"""Links between devices: measured once for each pair and way, by copies of a backend that is made up."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from gemmport.core.errors import DeviceMemoryError
from gemmport.execution import links
from gemmport.planning.lookup import load_configuration
from made_up_devices import DEVICES

GPU = replace(DEVICES["NVIDIA sm_90 under CUDA"], index=(0, 0))
CONFIGURATION = load_configuration()


class MadeUp:
    """A device whose first copy from another takes a second more."""

    def __init__(self, number: int, clock: Any, *, full: bool = False) -> None:
        self.device, self.clock, self.full = replace(GPU, index=(0, number)), clock, full
        self.kept: dict[Any, Any] = {}
        self.copies = self.held = 0

    def reaches(self, other: Any) -> bool:
        return other.backend == "cuda"

    def allocate(self, nbytes: int) -> Any:
        if self.full:
            raise DeviceMemoryError("full")
        self.held += 1

        def release() -> None:
            self.held -= 1

        return SimpleNamespace(release=release)

    def copy_from(self, other: MadeUp, source: Any, target: Any, nbytes: int) -> bool:
        self.clock.now += nbytes / (400e9 if other.device.index[1] == 0 else 300e9) + (not self.copies)
        self.copies += 1
        self.awaited = False
        return True

    def synchronize(self) -> None:
        self.awaited = True


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Any:
    made_up = SimpleNamespace(now=1.0)
    monkeypatch.setattr(links, "time", SimpleNamespace(perf_counter=lambda: made_up.now))
    return made_up


def test_a_link_is_measured_once_each_way(clock: Any) -> None:
    one, other = MadeUp(0, clock), MadeUp(1, clock)
    for _ in "twice":
        found = links.between(one, other, CONFIGURATION)
        assert (found.rate, found.directly, found.measured) == (pytest.approx(400e9), True, True)
        assert links.between(other, one, CONFIGURATION).rate == pytest.approx(300e9)
    assert str(found) == "400 GB/s directly, measured"
    assert (one.copies, other.copies, one.awaited) == (links.ROUNDS, links.ROUNDS, True)
    assert (one.held, other.held) == (0, 0)


def test_what_cannot_be_measured_goes_through_the_host(clock: Any) -> None:
    one, full = MadeUp(0, clock), MadeUp(1, clock, full=True)
    host = CONFIGURATION.model(GPU).link_bandwidth
    found = links.between(one, full, CONFIGURATION)
    assert (found.rate, found.directly, found.measured) == (pytest.approx(host / 2), False, False)
    assert (one.held, full.copies) == (0, 0)
    cpu = DEVICES["CPU under PoCL"]
    slow = CONFIGURATION.model(cpu).link_bandwidth
    assert links.expected_between(GPU, cpu, CONFIGURATION).rate == pytest.approx(1 / (1 / host + 1 / slow))
    assert links.expected_between(GPU, replace(GPU, index=(0, 1)), CONFIGURATION).rate == host
