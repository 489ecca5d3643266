"""Tests of gemmport.dask: they skip where Dask is not installed.

The folder is not called dask: Python would take it for the library where that is missing.
"""

from __future__ import annotations

import pytest

import gemmport as gp
from absences import DASK, skip_without


@pytest.fixture(autouse=True)
def dask_on_the_best_device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment says which device tasks take, in processes too."""
    if request.module.__name__ == "test_without_dask":
        return
    skip_without(DASK)
    backend: gp.Backend = request.getfixturevalue("best_backend")
    monkeypatch.setenv("GEMMPORT_DEVICE", backend.device.selector)
    monkeypatch.setenv("GEMMPORT_BACKEND", backend.device.backend)
