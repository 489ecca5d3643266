"""Tensor maps: what the driver is asked for, by a stand-in for it, and what comes of its refusals."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gemmport as gp
from absences import CXX, needs
from gemmport import kernels
from gemmport.backends import _compilation, _cudadriver, _tensormaps
from gemmport.backends.objects import Program
from gemmport.core.plan import TensorMap
from gemmport.planning import planner
from host import Host
from on_host import opened

TOLD = TensorMap("a", "bfloat16", (2056, 1003, 3), (4128, 4128 * 1010), (64, 128))

INVALID, LOST = 1, 719


class Driver:
    """Makes maps in which the address stands at a word, and a few of the numbers behind it."""

    def __init__(self, result: int = 0, word: int = 0) -> None:
        self.result, self.word = result, word
        self.asked: list[Any] = []

    def cuGetErrorName(self, result: Any, name: Any) -> int:  # noqa: N802 - the driver's
        ctypes.cast(name, ctypes.POINTER(ctypes.c_char_p))[0] = b"CUDA_ERROR_OF_A_KIND"
        return 0

    def cuTensorMapEncodeTiled(self, made: Any, dtype: Any, rank: Any, address: Any, *rest: Any) -> int:  # noqa: N802
        self.asked = [dtype.value, rank.value, *(list(x) for x in rest[:4]), *(x.value for x in rest[4:])]
        words = (ctypes.c_uint64 * 16).from_address(ctypes.addressof(made._obj))
        assert ctypes.addressof(words) % 64 == 0
        words[1 - self.word] = 0x5EED
        words[self.word] = address.value
        return self.result


def driven(monkeypatch: pytest.MonkeyPatch, driver: object) -> None:
    monkeypatch.setattr(_cudadriver, "driver", lambda: driver)


def test_a_map_is_what_the_driver_makes_with_the_address_in_front(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver()
    driven(monkeypatch, driver)
    made = _tensormaps.encoded(TOLD, 0x1230)
    assert made == (0x1230).to_bytes(8, "little") + (0x5EED).to_bytes(8, "little") + bytes(112)
    assert driver.asked == [9, 3, [2056, 1003, 3], [4128, 4128 * 1010], [64, 128, 1], [1, 1, 1], 0, 3, 3, 0]


@pytest.mark.parametrize(
    ("driver", "told"),
    [
        (
            Driver(INVALID),
            r"refuses the tensor map of a: .*CUDA_ERROR_OF_A_KIND; bfloat16, sizes \(2056, 1003, 3\), strides",
        ),
        (Driver(word=1), "do not begin with the address"),
        (object(), "need a driver of CUDA 12.0 or newer"),
    ],
    ids=["refused", "the address elsewhere", "too old"],
)
def test_a_map_that_cannot_be_had_is_a_typed_error(monkeypatch: pytest.MonkeyPatch, driver: object, told: str) -> None:
    driven(monkeypatch, driver)
    with pytest.raises(gp.TensorMapError, match=told):
        _tensormaps.encoded(TOLD, 0x1230)


def test_a_lost_device_is_no_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    driven(monkeypatch, Driver(LOST))
    with pytest.raises(gp.DeviceLostError):
        _tensormaps.encoded(TOLD, 0x1230)


# What becomes of a product


class Refused(Host):
    """A GPU whose driver refuses each map."""

    def tensor_map(self, told: TensorMap, memory: Any) -> np.void:
        return np.void(_tensormaps.encoded(told, memory.handle))


class Unreached(Host):
    """A GPU whose compiler does not reach the instructions of sm_90a."""

    def compile(self, source: str) -> Program:
        if _compilation.SPECIFIC in source:
            raise gp.InstructionsError("they are not reached", source=source)
        return super().compile(source)


@pytest.fixture(params=[Refused, Unreached])
def refused(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Host:
    """On which `wgmma` is tried first, and nothing has been compiled."""
    monkeypatch.setenv("GEMMPORT_CACHE_DIR", str(tmp_path))
    driven(monkeypatch, Driver(INVALID if request.param is Refused else 0))
    wgmma, others = kernels.variant("wgmma"), planner._candidates
    monkeypatch.setattr(type(wgmma), "declined", lambda *_: None)

    def candidates(*arguments: Any) -> Iterator[Any]:
        yield planner._Candidate(wgmma, None, parameters={"TSM": 64, "TSN": 64, "STAGES": 2})
        yield from others(*arguments)

    monkeypatch.setattr(planner, "_candidates", candidates)
    return request.param(opened().device)


@needs(CXX)
def test_where_a_driver_refuses_a_kernel_another_is_taken_unless_it_was_named(refused: Host) -> None:
    a = np.arange(64 * 64, dtype=np.float32).reshape(64, 64) % 5
    x = refused.asarray(a.astype(np.float16))
    assert gp.plan(gp.GemmProblem.create(64, 64, 64, dtype="float16"), refused.device).variant == "wgmma"
    assert np.array_equal(gp.matmul(x, x).get(), (a @ a).astype(np.float16))
    told = {
        Refused: (gp.TensorMapError, r"the driver refuses the tensor map of a: .*CUDA_ERROR_OF_A_KIND"),
        Unreached: (gp.InstructionsError, "they are not reached"),
    }
    error, message = told[type(refused)]
    with pytest.raises(error, match=message):
        gp.matmul(x, x, kernel="wgmma")
