"""Launches that a test can see."""

from __future__ import annotations

import pytest

import gemmport as gp
from gemmport.execution import repeated


def launch_one_by_one(backend: gp.Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    """Has products on a device made by `Backend.launch`, kernel by kernel, where a backend may have a shorter way; those, too,
    that were prepared before.
    """
    monkeypatch.setattr(type(backend), "launcher", gp.Backend.launcher)
    for known in (backend.prepared, backend.kept, repeated._known, repeated._known_of_libraries):
        known.clear()
