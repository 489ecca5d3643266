"""Tests of gemmport.torch, on tensors in the host's memory, or on CUDA under `--backend cuda`: they skip where PyTorch is not
installed.

The folder is not called torch: Python would take it for the library where that is missing.
"""

from __future__ import annotations

import importlib

import pytest

import gemmport as gp
from absences import TORCH, skip_without


@pytest.fixture(autouse=True)
def torch_on_the_best_device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Operators of PyTorch take no device: the environment says which one serves the CPU's tensors."""
    if request.module.__name__ == "test_without_torch":
        return
    skip_without(TORCH)
    backend: gp.Backend = request.getfixturevalue("best_backend")
    monkeypatch.setenv("GEMMPORT_DEVICE", backend.device.selector)
    monkeypatch.setenv("GEMMPORT_BACKEND", backend.device.backend)
    # Neither can be imported where PyTorch is not installed.
    tensors, torch = importlib.import_module("tensors"), importlib.import_module("torch")
    monkeypatch.setattr(tensors, "place", "cuda" if backend.name == "cuda" and torch.cuda.is_available() else "cpu")
