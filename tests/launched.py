"""What a backend does, so that a test can see it."""

from __future__ import annotations

from typing import Any

import pytest

import gemmport as gp
from gemmport.execution import repeated


def put_on(monkeypatch: pytest.MonkeyPatch, backend: gp.Backend, name: str, value: Any) -> None:
    """Gives one backend another method until the test ends.

    `monkeypatch.setattr` of pytest 8 would leave the old one on the backend, where it hides its class's from later tests.
    """
    monkeypatch.setitem(vars(backend), name, value)


def launch_one_by_one(backend: gp.Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    """Has products on a device made by `Backend.launch`, kernel by kernel, where a backend may have a shorter way; those, too,
    that were prepared before.
    """
    monkeypatch.setattr(type(backend), "launcher", gp.Backend.launcher)
    for known in (backend.prepared, backend.kept, repeated._known, repeated._known_of_libraries):
        known.clear()
