"""Tests of gemmport.dask: they skip where Dask is not installed.

The folder is not called dask: Python would take it for the library where that is missing.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import gemmport as gp
from absences import DASK, DISTRIBUTED, skip_without

FILE = Path(__file__).parents[2] / "benchmarks" / "cluster.py"


@pytest.fixture(scope="session")
def script() -> Iterator[Any]:
    """benchmarks/cluster.py, whose clusters tests start."""
    skip_without(DASK, DISTRIBUTED)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(FILE.parent))
        spec = importlib.util.spec_from_file_location("cluster_script", FILE)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        yield module


@pytest.fixture(autouse=True)
def dask_on_the_best_device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment says which device tasks take, in processes too."""
    if request.module.__name__ == "test_without_dask":
        return
    skip_without(DASK)
    backend: gp.Backend = request.getfixturevalue("best_backend")
    monkeypatch.setenv("GEMMPORT_DEVICE", backend.device.selector)
    monkeypatch.setenv("GEMMPORT_BACKEND", backend.device.backend)
