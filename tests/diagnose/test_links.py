"""Links between devices and the host, of devices that are made up; the real ones are measured where there are several."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest

import gemmport as gp
from gemmport.backends.objects import Memory
from gemmport.core.device import DeviceInfo
from gemmport.diagnose import child, doctor, links
from gemmport.diagnose.links import Link, Reach, measured, told_between

FIRST = DeviceInfo("cuda", "NVIDIA H200", "nvidia", (0, 0), vendor="nvidia")
SECOND = replace(FIRST, index=(0, 1))
CPU = DeviceInfo("opencl", "AMD EPYC", "intel", (0, 0), type="cpu")
POCL = replace(CPU, platform="pocl", index=(1, 0))


class MadeUp:
    """A backend that takes the time of a made-up link."""

    device = FIRST

    def __init__(self, clock: Any, up: float, down: float) -> None:
        self.clock, self.up, self.down = clock, up, down

    def allocate(self, nbytes: int) -> Memory:
        return Memory(None, 0, nbytes)

    def upload(self, memory: Memory, data: np.ndarray) -> None:
        self.clock.now += data.nbytes / self.up

    def download(self, memory: Memory, out: np.ndarray) -> None:
        self.clock.now += out.nbytes / self.down

    def synchronize(self) -> None:
        pass

    def borrow(self, data: np.ndarray) -> None:
        return None

    def reaches(self, other: DeviceInfo) -> bool:
        return other.index == (0, 1)


class Clock:
    now = 100.0

    def perf_counter(self) -> float:
        return self.now


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch) -> MadeUp:
    clock = Clock()
    monkeypatch.setattr(links, "time", clock)
    return MadeUp(clock, up=4e9, down=2e9)


def test_both_ways_of_a_link_are_measured(made_up: MadeUp) -> None:
    found = measured(made_up)
    assert (found.up, found.down) == pytest.approx((4e9, 2e9))
    assert str(found) == "4 GB/s from the host, 2 GB/s to it"


def test_a_real_device_has_a_link(best_backend: gp.Backend) -> None:
    found = measured(best_backend)
    assert found.up > 1e6
    assert found.down > 1e6
    assert found.in_place == (best_backend.borrow(np.zeros(1)) is not None)
    assert best_backend.reaches(replace(best_backend.device, backend="another")) is None


def test_the_probe_answers_with_the_link_and_each_other_device(
    made_up: MadeUp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child, "get_backend", lambda backend, selector: made_up)
    monkeypatch.setattr(child, "measured_between", lambda sender, receiver: 400e9)
    monkeypatch.setattr(child, "select_device", lambda selector, backend: replace(FIRST, index=(0, int(selector[2:]))))
    link, *others = child._link(["cuda", "0:0", "0:1", "0:2"])
    assert link == pytest.approx({"up": 4e9, "down": 2e9, "in_place": False})
    assert others == [{"reaches": True, "rate": 400e9}, {"reaches": False, "rate": None}]


def examined(answers: dict[str, list[dict[str, Any]]], *found: DeviceInfo, fault: str = "") -> list[doctor.Finding]:
    """The findings about links of devices that all compute right."""
    examination = doctor._Examination(1.0, lambda _: None)
    examination.right = [f"{device.backend} {device.selector}" for device in found]

    def ask(command: str, backend: str, selector: str, *others: str) -> doctor._Answer:
        assert command == "link"
        lines = answers[f"{backend} {selector}"]
        return doctor._Answer(lines, fault if not lines else "", hangs=False)

    examination._ask = ask
    return list(examination._links(found))


def test_two_devices_are_told_with_what_lies_between_them() -> None:
    fast, slow = asdict(Link(24e9, 24e9, in_place=False)), asdict(Link(6e9, 12e9, in_place=False))
    answers = {
        "cuda 0:0": [fast, {"reaches": True, "rate": 380e9}],
        "cuda 0:1": [slow, {"reaches": True, "rate": 400e9}],
        "opencl 0:0": [asdict(Link(8e9, 8e9, in_place=True))],
    }
    found = {finding.subject: finding for finding in examined(answers, FIRST, SECOND, CPU)}
    assert found["cuda 0:0"].detail == "24 GB/s from the host, 24 GB/s to it"
    assert "in place" in found["opencl 0:0"].detail
    assert found["cuda 0:0 – cuda 0:1"].detail == (
        "4.8 GB/s there and 8 GB/s back through the host; each reaches the other's memory (peer access): "
        "400 GB/s there and 380 GB/s back directly"
    )
    assert found["cuda 0:0 – opencl 0:0"].detail == "6 GB/s there and 6 GB/s back through the host"
    assert {finding.area for finding in found.values()} == {"links"}


@pytest.mark.parametrize(("there", "back", "told"), [(True, False, "only the first"), (False, True, "only the second"),
                                                     (False, False, "no peer access"), (None, True, "host")])  # fmt: skip
def test_peer_access_may_go_one_way(there: bool | None, back: bool | None, told: str) -> None:
    link = Link(1e9, 1e9, in_place=False)
    assert told in told_between(link, link, Reach(there), Reach(back))


def test_runtimes_of_one_cpu_have_nothing_between_them() -> None:
    answers = {f"opencl {number}:0": [asdict(Link(8e9, 8e9, in_place=True))] for number in (0, 1)}
    assert [finding.subject for finding in examined(answers, CPU, POCL)] == ["opencl 0:0", "opencl 1:0"]


def test_one_device_is_asked_nothing() -> None:
    assert examined({}, FIRST) == []


def test_a_probe_that_falls_is_a_finding() -> None:
    answers = {"cuda 0:0": [], "cuda 0:1": [asdict(Link(1e9, 1e9, in_place=False)), {"reaches": False}]}
    found = examined(answers, FIRST, SECOND, fault="was ended by SIGSEGV")
    assert [(finding.status, finding.subject) for finding in found] == [("warning", "cuda 0:0"), ("ok", "cuda 0:1")]
    assert "SIGSEGV" in found[0].detail
