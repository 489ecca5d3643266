"""Launches in C, with functions of the tests in the place of the runtimes': what they are given, and what comes of errors."""

from __future__ import annotations

import ctypes
import re
import subprocess
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import gemmport as gp
from absences import COMPILED_CALLS, LINUX, OBJDUMP, beyond, needs, skip_without
from gemmport.backends import _cudadriver, _cudamodules, _cudastreams, _scripts
from gemmport.backends._cudamodules import Launch
from gemmport.execution import adapters
from gemmport.execution.executor import bind

pytestmark = needs(COMPILED_CALLS)

CONTEXT, EVENT = 0x5000, 0x6000

Config = _cudamodules._Config


class Driver:
    """Of CUDA, whose kernels do nothing.

    Attributes:
        current: the context. launched: of each launch the kernel, its groups, its stream and its arguments.
        attributes: of each launch, the bytes of its attributes, of 72 each (cuda.h, CUlaunchAttribute).
        results: of launches, by their number; 0 of others.
    """

    def __init__(self) -> None:
        self.current, self.launched, self.attributes, self.results = CONTEXT, [], [], {}
        u64, pointer = ctypes.c_uint64, ctypes.POINTER
        launch = ctypes.CFUNCTYPE(
            ctypes.c_int, pointer(Config), ctypes.c_void_p, pointer(pointer(u64)), ctypes.c_void_p
        )
        self.cuLaunchKernelEx = launch(self._launch)
        self.cuCtxGetCurrent = ctypes.CFUNCTYPE(ctypes.c_int, pointer(ctypes.c_void_p))(self._current)
        self.cuStreamGetId = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, pointer(u64))(self._number)

    def __getitem__(self, name: str) -> Any:
        return getattr(self, name)

    def _launch(self, config: Any, kernel: int, parameters: Any, extra: int) -> int:
        told = config[0]
        self.launched.append((kernel, tuple(told.groups), told.stream, [parameters[i][0] for i in range(3)]))
        number = told.number_of_attributes
        self.attributes.append(ctypes.string_at(told.attributes, 72 * number) if number else b"")
        return int(self.results.get(len(self.launched) - 1, 0))

    def _current(self, out: Any) -> int:
        out[0] = self.current
        return 0

    def _number(self, stream: int, out: Any) -> int:
        out[0] = 2**40 + stream
        return 400 if stream == 13 else 0


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    found = Driver()
    monkeypatch.setattr(_cudadriver, "driver", lambda: found)
    return found


def launches(*kernels: int, early: bool = False) -> list[Launch]:
    """Of three arguments of 64 bits."""
    made = []
    for kernel in kernels:
        function: Any = SimpleNamespace(handle=ctypes.c_void_p(kernel))
        words = bytearray(np.array([1, 2, 3], np.uint64).tobytes())
        made.append(Launch(function, (kernel, 1, 1), (32, 1, 1), words, [0, 8, 16], 0, early=early))
    return made


def cuda(made: list[Launch], places: list[list[tuple[int, int]]]) -> Callable[[int, tuple[int, ...]], int]:
    script = _cudamodules.script(list(zip(made, places, strict=True)), CONTEXT)
    assert _scripts.launching is not None
    run = _scripts.launching.cuda

    def launch(stream: int, operands: tuple[int, ...]) -> int:
        assert made  # the script refers to them
        return run(script, stream, operands)  # type: ignore[no-any-return]

    return launch


def test_kernels_are_launched_in_order_with_memory_in_its_places(driver: Driver) -> None:
    run = cuda(launches(7, 9), [[(0, 0), (2, 3)], [(1, 1)]])
    assert run(0x66, (100, 101, 102, 103)) == 0
    assert run(0, (200, 201, 202, 2**64 - 1)) == 0
    assert driver.launched == [
        (7, (7, 1, 1), 0x66, [100, 2, 103]), (9, (9, 1, 1), 0x66, [1, 101, 3]),
        (7, (7, 1, 1), None, [200, 2, 2**64 - 1]), (9, (9, 1, 1), None, [1, 201, 3]),
    ]  # fmt: skip


def test_a_launch_that_begins_early_says_so_to_the_driver(driver: Driver) -> None:
    """By programmaticStreamSerializationAllowed = 1, at byte 8 of attribute 6."""
    for made in (launches(7, early=True), launches(9)):
        assert cuda(made, [[]])(0x66, ()) == 0
    assert driver.attributes == [(6).to_bytes(8, "little") + (1).to_bytes(64, "little"), b""]


def test_what_follows_a_launch_that_is_refused_is_not_launched(driver: Driver) -> None:
    run = cuda(launches(7, 8, 9), [[], [], []])
    driver.results[1] = 719
    assert run(1, ()) == 719
    assert [kernel for kernel, *_ in driver.launched] == [7, 8]


def test_nothing_is_launched_in_another_context(driver: Driver) -> None:
    run = cuda(launches(7), [[(0, 0)]])
    driver.current = CONTEXT + 1
    assert run(1, (5,)) == _scripts.ELSEWHERE
    assert driver.launched == []


@pytest.mark.parametrize("given", [(), (b"", 0), ("", 0, ()), (b"", "", ()), (b"", 0, []), (b"", 0, (0,) * 9)], ids=str)
def test_what_is_no_script_is_refused(given: tuple[Any, ...]) -> None:
    assert _scripts.launching is not None
    for run in (_scripts.launching.cuda, _scripts.launching.opencl):
        with pytest.raises(TypeError):
            run(*given)


def test_streams_are_asked_whatever_context_is_current(driver: Driver) -> None:
    _cudastreams._address.cache_clear()
    try:
        assert _cudastreams.asked_at_once("cuStreamGetId", 12) == 2**40 + 12
        assert _cudastreams.asked_at_once("cuStreamGetId", 13) is None
    finally:
        _cudastreams._address.cache_clear()


@pytest.mark.skipif(sys.platform != "linux", reason=LINUX.missing)
def test_the_modules_run_on_every_linux_that_their_wheel_names() -> None:
    """manylinux_2_17: they ask for no function of the C library that is newer than that."""
    skip_without(OBJDUMP)
    for module in (_scripts.launching, adapters.in_c):
        told = subprocess.run(
            ["objdump", "-T", str(module.__file__)], capture_output=True, text=True, check=True
        ).stdout
        versions = re.findall(r"GLIBC_(\d+)\.(\d+)", told)
        assert "PyInit_" in told
        assert all((int(major), int(minor)) <= (2, 17) for major, minor in versions)
        assert "libpython" not in told


class Runtime:
    """Of OpenCL, whose kernels do nothing.

    Attributes:
        seen: what it was asked for. refuse: of that, what it refuses.
    """

    def __init__(self) -> None:
        self.seen: list[tuple[Any, ...]] = []
        self.refuse: tuple[Any, ...] = ()
        i32, u32, size, pointer = ctypes.c_int32, ctypes.c_uint32, ctypes.c_size_t, ctypes.c_void_p
        sizes = ctypes.POINTER(size)
        self.functions = (
            ctypes.PYFUNCTYPE(i32, pointer, u32, size, ctypes.POINTER(pointer))(self._memory),
            ctypes.PYFUNCTYPE(i32, pointer, u32, pointer)(self._address),
            ctypes.PYFUNCTYPE(i32, pointer, pointer, u32, pointer, sizes, sizes, u32, pointer, ctypes.POINTER(pointer))(
                self._enqueue
            ),
            ctypes.PYFUNCTYPE(i32, pointer)(self._release),
        )

    def _note(self, *what: Any) -> int:
        self.seen.append(what)
        return -38 if what == self.refuse else 0

    def _memory(self, kernel: int, number: int, size: int, value: Any) -> int:
        assert size == ctypes.sizeof(ctypes.c_void_p)
        return self._note("memory", kernel, number, value[0])

    def _address(self, kernel: int, number: int, value: int) -> int:
        return self._note("address", kernel, number, value)

    def _enqueue(
        self, queue: int, kernel: int, dimensions: int, offset: Any, extent: Any, group: Any, *waits: Any
    ) -> int:
        *waits, event = waits
        assert (dimensions, offset, waits) == (3, None, [0, None])
        status = self._note("launch", kernel, queue, extent[:3], group[:3])
        if event and not status:
            event[0] = EVENT + kernel
        return status

    def _release(self, event: int) -> int:
        return self._note("release", event)


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> Runtime:
    opencl = pytest.importorskip("gemmport.backends._opencldriver")
    found = Runtime()
    monkeypatch.setattr(opencl, "_FUNCTIONS", list(found.functions))
    return found


def opencl(*kernels: tuple[int, list[tuple[int, int]]], events: bool = False) -> Callable[[tuple[Any, ...]], int]:
    from gemmport.backends import _opencldriver  # noqa: PLC0415 - imports PyOpenCL

    made: Any = [(SimpleNamespace(int_ptr=kernel), (8, 2, 1), (4, 1, 1), places) for kernel, places in kernels]
    script = _opencldriver.script(made, events=events)
    assert _scripts.launching is not None
    run = _scripts.launching.opencl
    return lambda operands: run(script, 0x99, operands, False)[0]


def test_buffers_and_addresses_are_given_to_kernels_each_in_its_way(runtime: Runtime) -> None:
    buffer: Any = SimpleNamespace(int_ptr=0x123)
    assert opencl((7, [(0, 0), (3, 1)]), (8, [(1, 1)]))((buffer, 0x456)) == 2
    assert runtime.seen == [
        ("memory", 7, 0, 0x123), ("address", 7, 3, 0x456), ("launch", 7, 0x99, [8, 2, 1], [4, 1, 1]),
        ("address", 8, 1, 0x456), ("launch", 8, 0x99, [8, 2, 1], [4, 1, 1]),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "refused", [("launch", 8, 0x99, [8, 2, 1], [4, 1, 1]), ("address", 8, 1, 0x456)], ids=["launch", "argument"]
)
def test_the_launches_before_one_that_is_refused_are_told(runtime: Runtime, refused: tuple[Any, ...]) -> None:
    runtime.refuse = refused
    assert opencl((7, []), (8, [(1, 0), (2, 0)]), (9, []))((0x456,)) == 1
    assert [what[1] for what in runtime.seen if what[0] == "launch" and what != refused] == [7]


def test_launches_that_have_events_drop_them(runtime: Runtime) -> None:
    runtime.refuse = ("launch", 9, 0x99, [8, 2, 1], [4, 1, 1])
    assert opencl((7, []), (8, []), (9, []), events=True)(()) == 2
    assert [what for what in runtime.seen if what[0] == "release"] == [("release", EVENT + 7), ("release", EVENT + 8)]


def test_what_is_neither_buffer_nor_address_is_refused(runtime: Runtime) -> None:
    with pytest.raises(AttributeError):
        opencl((7, [(0, 0)]))(("text",))
    assert runtime.seen == []


@pytest.mark.parametrize("made", [0, 1])
def test_what_is_refused_is_tried_as_pyopencl_does_and_nothing_before_it(
    best_backend: gp.Backend, monkeypatch: pytest.MonkeyPatch, made: int
) -> None:
    """A kernel that adds to its result must not run twice."""
    if best_backend.name != "opencl":
        pytest.skip(beyond(best_backend.device, "only OpenCL's launches are tried again"))
    monkeypatch.setattr(_scripts, "launching", SimpleNamespace(opencl=lambda *_: (made, 0)))
    tried: list[str] = []
    monkeypatch.setattr(type(best_backend), "launch", lambda self, call, **how: tried.append(call.function))
    x = best_backend.ones((16, 16), np.float32)
    problem = gp.GemmProblem.create(16, 16, 16)
    plan = gp.plan(problem, best_backend.device, kernel="transposed_b")
    bound = bind(plan, best_backend, {"a": x.memory, "b": x.memory, "d": x.memory})
    tried.clear()
    bound.enqueue()
    assert tried == [launch.kernel.function for launch in plan.launches][made:]
    assert len(plan.launches) > 1
