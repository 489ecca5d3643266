"""Tests of gemmport.jax, on arrays in the host's memory: they skip where JAX is not installed.

The folder is not called jax: Python would take it for the library where that is missing.
"""

from __future__ import annotations

import pytest

import gemmport as gp
from absences import JAX_ON_CPUS, skip_without


@pytest.fixture(autouse=True)
def jax_on_the_best_device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment says which device computes for JAX."""
    if request.module.__name__ == "test_without_jax":
        return
    skip_without(JAX_ON_CPUS)
    backend: gp.Backend = request.getfixturevalue("best_backend")
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    monkeypatch.setenv("GEMMPORT_DEVICE", backend.device.selector)
    monkeypatch.setenv("GEMMPORT_BACKEND", backend.device.backend)
