"""A device is lost. The call that finds it out raises `DeviceLostError`, which names it, and so does each call after it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import gemmport as gp
from absences import beyond
from gemmport.backends import _cudamodules, _scripts
from gemmport.backends.objects import Memory
from made_up_cuda import CONTEXT, Driver

FAULT = 719
"""Of CUDA's driver: CUDA_ERROR_LAUNCH_FAILED."""


class TestUnderCUDA:
    @pytest.fixture
    def launch(self, cuda: Any) -> _cudamodules.Launch:
        function = _cudamodules.Module(b"", CONTEXT).function("f")
        return _cudamodules.Launch(function, (1, 1, 1), (1, 1, 1), bytearray(8), [0], 0)

    @pytest.mark.parametrize("how", ["in C", "in Python", "wait", "copy"])
    def test_what_finds_it_closes_the_backend(
        self, cuda: Any, driver: Driver, monkeypatch: pytest.MonkeyPatch, launch: _cudamodules.Launch, how: str
    ) -> None:
        """A launch that fails itself, and what comes after one that failed on the device."""
        monkeypatch.setattr(_cudamodules, "script", lambda *_: b"")
        monkeypatch.setattr(_scripts, "launching", SimpleNamespace(cuda=lambda *_: FAULT, asked=lambda *_: 0))
        call = SimpleNamespace(enqueue=launch)
        in_c = cuda.launcher([(call, [])])
        names = {"in Python": "cuLaunchKernelEx", "wait": "cuStreamSynchronize", "copy": "cuMemcpyDtoHAsync_v2"}
        if how in names:
            driver.results[names[how]] = FAULT
        finds: dict[str, Callable[[], Any]] = {
            "in C": lambda: in_c((), None, False),
            "in Python": lambda: cuda.launch(call),
            "wait": cuda.synchronize,
            "copy": lambda: cuda._download(Memory(None, 0x100, 64), np.zeros(64, np.uint8), 0, None),
        }
        with pytest.raises(gp.DeviceLostError, match="is lost, and nothing runs on it any more"):
            finds[how]()
        assert cuda.closed
        driver.results.clear()
        for use in finds.values():
            with pytest.raises(gp.DeviceLostError, match=f"{names.get(how, 'cuLaunchKernelEx')}: {FAULT}"):
                use()

    def test_a_launch_that_is_refused_leaves_the_queue_usable(
        self, cuda: Any, driver: Driver, launch: _cudamodules.Launch
    ) -> None:
        call = SimpleNamespace(enqueue=launch)
        driver.results["cuLaunchKernelEx"] = 701  # CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES
        with pytest.raises(gp.LaunchError, match="cuLaunchKernelEx: 701") as told:
            cuda.launch(call)
        assert type(told.value) is gp.LaunchError
        driver.results.clear()
        cuda.launch(call)
        cuda.synchronize()


class TestInOpenCL:
    """By NVIDIA's numbers: see `_openclcontext`."""

    @pytest.fixture
    def device(self, backend: gp.Backend, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
        if backend.name != "opencl":
            pytest.skip(beyond(backend.device, "it is OpenCL's errors that do not tell"))
        monkeypatch.setattr(_scripts, "launching", None)  # launches are PyOpenCL's
        with type(backend)(backend.device) as opened:
            opened._launches_without_events = False  # type: ignore[attr-defined]
            yield opened

    @pytest.fixture
    def x(self, device: Any) -> gp.DeviceArray:
        found: gp.DeviceArray = device.asarray(np.eye(8, dtype=np.float32))
        gp.matmul(found, found, kernel="naive")
        return found

    def failing(self, kind: str, code: int) -> Callable[..., Any]:
        """What raises an error of PyOpenCL's."""
        cl = pytest.importorskip("pyopencl")

        def fail(*_: Any, **__: Any) -> Any:
            raise getattr(cl, kind)(cl._cl._ErrorRecord("planted", code, ""))

        return fail

    def take_no_work(self, device: Any, monkeypatch: pytest.MonkeyPatch, kind: str, code: int) -> None:
        """Has the device's own queue refuse a flush."""
        monkeypatch.setattr(device._current, "_queue", SimpleNamespace(flush=self.failing(kind, code)))

    @pytest.mark.parametrize(
        ("where", "kind", "code", "find"),
        [
            ("enqueue_nd_range_kernel", "LogicError", -36, lambda x: gp.matmul(x, x, kernel="naive")),
            ("enqueue_copy", "MemoryError", -5, lambda x: x.get()),
            ("enqueue_marker", "RuntimeError", -9999, lambda x: x.backend.mark()),
            ("CommandQueue.finish", "LogicError", -36, lambda x: x.backend.synchronize()),
            ("CommandQueue.finish", "LogicError", -36, lambda x: x.backend.close()),
            ("Kernel", "MemoryError", -5, lambda x: gp.matmul(x[:7], x, kernel="naive")),
            ("_cl._Program", "LogicError", -34, lambda x: x.backend.load(b"", "source")),
        ],
        ids=["launch", "copy", "mark", "wait", "close", "kernel", "program"],
    )
    def test_what_finds_it_closes_the_backend(
        self, device: Any, x: gp.DeviceArray, monkeypatch: pytest.MonkeyPatch, where: str, kind: str, code: int,
        find: Callable[[gp.DeviceArray], Any],
    ) -> None:  # fmt: skip
        with monkeypatch.context() as planted:
            planted.setattr(f"pyopencl.{where}", self.failing(kind, code))
            self.take_no_work(device, planted, "RuntimeError", -9999)
            with pytest.raises(gp.DeviceLostError, match=r"is lost, and nothing runs on it any more .*planted failed"):
                find(x)
        assert device.closed
        for use in (lambda: gp.matmul(x, x, kernel="naive"), x.get, device.synchronize, lambda: device.asarray([1.0])):
            with pytest.raises(gp.DeviceLostError, match="planted failed"):
                use()

    def test_a_runtime_that_says_so_is_believed(
        self, device: Any, x: gp.DeviceArray, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with monkeypatch.context() as planted:
            planted.setattr("pyopencl.enqueue_copy", self.failing("RuntimeError", -2))
            with pytest.raises(gp.DeviceLostError, match="DEVICE_NOT_AVAILABLE"):
                x.get()
        assert device.closed

    @pytest.mark.parametrize("queue", ["takes work", "is short of memory"])
    @pytest.mark.parametrize(
        ("kind", "code", "error"),
        [("LogicError", -36, gp.LaunchError), ("MemoryError", -5, gp.DeviceMemoryError)],
        ids=["refused", "out of resources"],
    )
    def test_any_other_error_leaves_the_queue_usable(
        self, device: Any, x: gp.DeviceArray, monkeypatch: pytest.MonkeyPatch, queue: str, kind: str, code: int,
        error: type[Exception],
    ) -> None:  # fmt: skip
        with monkeypatch.context() as planted:
            planted.setattr("pyopencl.enqueue_nd_range_kernel", self.failing(kind, code))
            if queue == "is short of memory":
                self.take_no_work(device, planted, "MemoryError", -5)
            with pytest.raises(error, match="planted failed") as told:
                gp.matmul(x, x, kernel="naive", out=device.zeros((8, 8), np.float32))
        assert type(told.value) is error
        np.testing.assert_array_equal(gp.matmul(x, x, kernel="naive").get(), np.eye(8))


LOSING = """
import sys
import numpy as np
import gemmport as gp

WILD = {
    "cuda": 'extern "C" __global__ void wild(int *p, long long at) { *(volatile int *)at = 1; }',
    "opencl": "kernel void wild(global int *p, long at) { *(volatile global int *)at = 1; }",
}
backend = gp.get_backend(sys.argv[1], sys.argv[2])
x = backend.asarray(np.ones((8, 8), np.float32))
program = backend.program(WILD[backend.language])
backend.launch(backend.prepare(program, "wild", (1, 1, 1), (1, 1, 1), [x.memory, np.int64(16)]))
for use in (backend.synchronize, lambda: gp.matmul(x, x), x.get):
    try:
        use()
    except gp.DeviceLostError as error:
        print(error)
"""


def test_a_kernel_that_writes_where_nothing_is_loses_a_gpu(backend: gp.Backend) -> None:
    device = backend.device
    if device.platform != "nvidia" and backend.name != "cuda":
        pytest.skip(beyond(device, "such a kernel ends the process, or is not noticed"))
    ran = subprocess.run(
        [sys.executable, "-c", LOSING, backend.name, device.selector],
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    told = ran.stdout.splitlines()
    assert len(told) == 3, ran.stderr
    assert len(set(told)) == 1
    assert "is lost, and nothing runs on it any more" in told[0]
