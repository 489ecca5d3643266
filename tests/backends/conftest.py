"""CUDA's backend where no GPU need be."""

from __future__ import annotations

import ctypes
import gc
import importlib
import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from gemmport import backends
from gemmport.backends import _cudadriver, _fork
from made_up_cuda import Block, Context, Driver, Error
from made_up_devices import DEVICES

OF_PYCUDA = ("cuda", "_cudacontext", "_cudadiscovery")
"""The modules that import it."""


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    found = Driver()
    monkeypatch.setattr(_cudadriver, "driver", lambda: found)
    return found


@pytest.fixture
def cuda(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """CUDA's backend, opened on devices of the stand-ins."""
    Context.opened = driver
    pool = SimpleNamespace(
        stop_holding=lambda: driver.cuMemFree_v2(ctypes.c_uint64(0)), allocate=lambda nbytes: Block(driver)
    )  # fmt: skip
    device = SimpleNamespace(retain_primary_context=Context)
    names = {
        "Error": Error, "MemoryError": Error, "Context": Context, "Event": type("Event", (), {}), "init": lambda: None,
        "Device": type("Device", (), {"__new__": lambda *_: device, "count": lambda: 1}),
    }  # fmt: skip
    made = {name: ModuleType(name) for name in ("pycuda", "pycuda.driver", "pycuda.tools")}
    vars(made["pycuda.driver"]).update(names)
    vars(made["pycuda.tools"]).update(DeviceMemoryPool=lambda: pool)
    vars(made["pycuda"]).update(driver=made["pycuda.driver"], tools=made["pycuda.tools"])
    for name, module in made.items():
        monkeypatch.setitem(sys.modules, name, module)
    for name in OF_PYCUDA:  # they may be here with the real one
        monkeypatch.delitem(sys.modules, f"gemmport.backends.{name}", raising=False)
        monkeypatch.delattr(backends, name, raising=False)
    monkeypatch.setattr(_fork, "started", lambda _: None)
    monkeypatch.setattr(_fork, "opened", lambda _: None)
    opened = importlib.import_module("gemmport.backends.cuda").CUDA(DEVICES["NVIDIA sm_90 under CUDA"])
    yield opened
    opened.close()
    opened._draining.detach()  # of a device that was lost, whose pool is full
    del opened
    gc.collect()
    for name in OF_PYCUDA:
        del sys.modules[f"gemmport.backends.{name}"]
        delattr(backends, name)
