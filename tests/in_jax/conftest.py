"""Tests of gemmport.jax: they skip where JAX is not installed. Its arrays are in the host's memory, but for tests of a CUDA
device with a JAX that has CUDA: there they are the GPU's.

The folder is not called jax: Python would take it for the library where that is missing.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import gemmport as gp
from absences import JAX_ON_CPUS, skip_without


@pytest.fixture(autouse=True)
def jax_on_the_best_device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The environment says which device computes for JAX, whose processes of a test's own have the host's memory alone."""
    if request.module.__name__ == "test_without_jax":
        yield
        return
    skip_without(JAX_ON_CPUS)
    import jax  # noqa: PLC0415 - it may be missing

    backend: gp.Backend = request.getfixturevalue("best_backend")
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    monkeypatch.setenv("GEMMPORT_DEVICE", backend.device.selector)
    monkeypatch.setenv("GEMMPORT_BACKEND", backend.device.backend)
    if backend.name != "cuda":
        jax.config.update("jax_default_device", jax.devices("cpu")[0])
    try:
        yield
    finally:
        jax.config.update("jax_default_device", None)
