"""Who reads on from `gp.matmul`, call by call, is at the launch after at most ten files, and never comes back to one."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from itertools import groupby
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import gemmport as gp
from absences import beyond
from gemmport.backends import _scripts
from gemmport.execution import repeated
from launched import put_on
from test_architecture import PLACES

MOST = 10

Product = Callable[[], Any]


def files_to(frame: FrameType) -> list[str]:
    """Files of gemmport from `matmul` to a frame, one for each function on the way."""
    found, reached = [], [frame]
    while reached[-1].f_back is not None:
        reached.append(reached[-1].f_back)
    functions = [each.f_code for each in reversed(reached)]
    begin = next(number for number, code in enumerate(functions) if code is gp.matmul.__code__)
    for code in functions[begin:]:
        path = Path(code.co_filename)
        found += [str(path.relative_to(place)) for place in PLACES.values() if path.is_relative_to(place)][:1]
    return found


@pytest.fixture
def ways(backend: gp.Backend, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Those to each launch in a test, in C or by the runtime's binding; no product was computed before."""
    found: list[list[str]] = []
    for holder, name in (
        (backend, "kept"),
        (backend, "prepared"),
        (repeated, "_known"),
        (repeated, "_known_of_libraries"),
    ):
        monkeypatch.setattr(holder, name, {})

    def told(launch: Callable[..., Any], *further: str) -> Callable[..., Any]:
        def noted(*given: Any, **options: Any) -> Any:
            way = [*files_to(sys._getframe(1)), *further]
            found.append([name for name, _ in groupby(way)])
            return launch(*given, **options)

        return noted

    if (real := _scripts.launching) is not None:
        names = {name: told(getattr(real, name), "_launching.c") for name in ("cuda", "opencl")}
        monkeypatch.setattr(_scripts, "launching", SimpleNamespace(asked=real.asked, **names))
    put_on(monkeypatch, backend, "launch", told(backend.launch, f"{backend.name}.py"))
    return found


def numbers(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


def of_arrays(backend: gp.Backend) -> Product:
    a, b = backend.asarray(numbers(5, 6)), backend.asarray(numbers(6, 7))
    return lambda: gp.matmul(a, b, kernel="naive").get()


def of_host_arrays(backend: gp.Backend) -> Product:
    return lambda: gp.matmul(numbers(5, 6), numbers(6, 7), kernel="naive", device=backend.device)


def of_pyopencl(backend: gp.Backend) -> Product:
    if backend.name != "opencl":
        pytest.skip(beyond(backend.device, "PyOpenCL's arrays are not there"))
    cla = pytest.importorskip("pyopencl.array")
    a, b = (cla.to_device(backend.queue, numbers(*shape)) for shape in ((5, 6), (6, 7)))
    return lambda: gp.matmul(a, b, kernel="naive").get()


def with_scratch(backend: gp.Backend) -> Product:
    for name in ("packed", "simt"):
        with suppress(gp.GemmportError):
            if gp.plan(gp.GemmProblem.create(64, 64, 4096), backend.device, kernel=name).scratch:
                a, b = backend.asarray(numbers(64, 4096)), backend.asarray(numbers(4096, 64))
                return lambda: gp.matmul(a, b, kernel=name).get()
    pytest.skip(beyond(backend.device, "no kernel has scratch memory there"))


@pytest.mark.parametrize("of", [of_arrays, of_host_arrays, of_pyopencl, with_scratch])
def test_the_way_to_a_launch_is_short_and_straight(
    backend: gp.Backend, ways: list[list[str]], of: Callable[[gp.Backend], Product]
) -> None:
    """Of the first product of a kind, and of the next."""
    product = of(backend)
    for _ in range(2):
        ways.clear()
        assert (product() == product().flat[0]).all()
        assert ways
        for way in ways:
            assert way[0] == "api/matmul.py"
            assert len(way) <= MOST, way
            assert len(set(way)) == len(way), way
