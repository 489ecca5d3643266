"""What an explanation tells of products that pass through a device in tiles."""

from __future__ import annotations

import re

import pytest

import gemmport as gp
from gemmport.planning.schedule import usual_memory
from made_up_devices import DEVICES

GPU = DEVICES["NVIDIA sm_90 under CUDA"]


def test_traffic_stands_beside_the_bound() -> None:
    found = gp.explain((40_000, 40_000, 40_000), GPU, device_memory="64MiB")
    assert found.schedule is not None
    assert found.schedule.device_bytes <= 2**26
    told = re.search(r": ([\d.]+) of that is moved", " ".join(str(found).split()))
    assert told is not None
    assert 1 < float(told[1]) <= 1.3
    assert float(told[1]) == pytest.approx(found.schedule.traffic.elements / (2 * 40_000**3 / (2**24) ** 0.5), abs=0.01)
    assert found.to_dict()["schedule"]["memory"] == 2**26


def test_what_fits_is_told_nothing_of_tiles() -> None:
    found = gp.explain((512, 512, 512), GPU)
    assert found.schedule is None
    assert "in tiles" not in str(found)


def test_what_does_not_fit_is_told_of_unasked() -> None:
    size = int((GPU.memory / 4) ** 0.5)
    found = gp.explain((size, size, size), GPU)
    assert found.schedule is not None
    assert found.schedule.memory == usual_memory(GPU)
