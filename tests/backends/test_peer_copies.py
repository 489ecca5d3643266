"""Copies between CUDA's devices: what the driver is asked for, by a stand-in for it; and what comes of it, on two devices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gemmport as gp
from absences import TWO_GPUS, skip_without
from gemmport.backends import _cudadriver, _cudastreams
from gemmport.core.errors import LaunchError


class Driver:
    """Notes what is asked of it."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, list[int | None]]] = []
        self.results: dict[str, int] = {}

    def __getattr__(self, name: str) -> Any:
        def answer(*arguments: Any) -> int:
            if name in ("cuGetErrorName", "cuThreadExchangeStreamCaptureMode"):
                return 0
            self.asked.append((name, [each.value for each in arguments]))
            return self.results.get(name, 0)

        return answer


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    found = Driver()
    monkeypatch.setattr(_cudadriver, "driver", lambda: found)
    return found


def test_a_copy_names_both_contexts_and_is_not_awaited(driver: Driver) -> None:
    _cudastreams.copy_between(0x100, 0xA, 0x200, 0xB, 2**33, 0x77)
    assert driver.asked == [("cuMemcpyPeerAsync", [0x200, 0xB, 0x100, 0xA, 2**33, 0x77])]


def test_a_copy_that_is_refused_is_an_error(driver: Driver) -> None:
    driver.results["cuMemcpyPeerAsync"] = 1
    with pytest.raises(LaunchError, match="cuMemcpyPeerAsync"):
        _cudastreams.copy_between(0x100, 0xA, 0x200, 0xB, 8, 0)


@pytest.mark.parametrize("result", [0, 704, 217, 711], ids=["done", "done before", "never", "too many"])
def test_where_a_device_is_not_reached_the_driver_copies_all_the_same(driver: Driver, result: int) -> None:
    driver.results["cuCtxEnablePeerAccess"] = result
    _cudastreams.let_reach(0xA)
    assert driver.asked == [("cuCtxEnablePeerAccess", [0xA, 0])]


def test_bytes_travel_between_two_devices() -> None:
    skip_without(TWO_GPUS)
    one, other = (gp.get_backend(device=device) for device in gp.devices("cuda")[:2])
    values = np.arange(1000, dtype=np.float32)
    source, target = other.asarray(values), one.zeros(1000, "float32")
    assert one.copy_from(other, source.memory, target.memory, 400, source_offset=40, offset=80)
    expected = np.zeros(1000, np.float32)
    expected[20:120] = values[10:110]
    np.testing.assert_array_equal(target.get(), expected)


def test_a_product_of_arrays_on_two_devices() -> None:
    skip_without(TWO_GPUS)
    one, other = (gp.get_backend(device=device) for device in gp.devices("cuda")[:2])
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-3, 4, (3000, 3000)).astype(np.float32) for _ in range(2))
    found = gp.matmul(one.asarray(a), other.asarray(b), devices=[one, other])
    assert found.backend is one
    np.testing.assert_array_equal(found.get(), a @ b)
