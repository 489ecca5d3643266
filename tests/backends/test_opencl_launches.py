"""What OpenCL's GPUs need at a launch: here on every device of OpenCL."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gemmport as gp
from absences import beyond
from gemmport.backends import _programs
from gemmport.backends.objects import Event, Program
from test_backend_contract import (
    check_elapsed,
    check_order_of_queues,
    download,
    second_queue,
    source_of_probe,
    upload,
)

cl = pytest.importorskip("pyopencl")

opencl = pytest.importorskip("gemmport.backends.opencl")


@pytest.fixture
def device(backend: gp.Backend) -> Iterator[gp.Backend]:
    """A device of OpenCL, opened as if it were a GPU."""
    if backend.name != "opencl":
        pytest.skip(beyond(backend.device, "it is OpenCL's launches that have events"))
    with opencl.OpenCL(replace(backend.device, type="gpu")) as opened:
        yield opened


@pytest.fixture
def probe(device: gp.Backend) -> Program:
    return device.program(source_of_probe(device))


@pytest.fixture
def no_event(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyOpenCL's launch, which makes an event, fails the test."""

    def refuse(*_: Any, **__: Any) -> None:
        pytest.fail("a launch made an event")

    monkeypatch.setattr(cl, "enqueue_nd_range_kernel", refuse)


@pytest.mark.usefixtures("no_event")
class TestWithoutAnEvent:
    def test_all_of_the_grid_runs(self, device: gp.Backend, probe: Program) -> None:
        memory = upload(device, np.full(24 * 8 + 1, -1, np.int32))
        device.launch(device.prepare(probe, "geometry", (2, 3, 4), (4, 2, 1), [memory]))
        expected = [g * 1000 + i for g in range(24) for i in range(8)]
        assert download(device, memory, np.int32, 24 * 8 + 1).tolist() == [*expected, -1]

    def test_a_product_is_right_whatever_memory_it_is_given(self, device: gp.Backend) -> None:
        for number in range(1, 5):  # from the second on with the kernel that is kept, in other memory
            a = np.full((40, 30), number, np.float32)
            c = device.empty((40, 40), np.float32)
            gp.gemm(device.asarray(a), device.asarray(a), trans_b="T", out=c)
            assert (c.get() == 30 * number**2).all()

    def test_a_launch_goes_to_the_queue_that_is_given(self, device: gp.Backend, probe: Program) -> None:
        other, gate = second_queue(device), cl.UserEvent(device.context)
        data = upload(device, np.array([1], np.int32))
        call = device.prepare(probe, "scale_add", (1, 1, 1), (1, 1, 1), [data, np.int32(0), np.int32(2)])
        cl.enqueue_barrier(other, wait_for=[gate])
        device.launch(call, queue=other)
        before = download(device, data, np.int32, 1).tolist()
        gate.set_status(cl.command_execution_status.COMPLETE)
        other.finish()
        assert (before, download(device, data, np.int32, 1).tolist()) == ([1], [2])

    def test_queues_wait_for_each_other(self, device: gp.Backend, probe: Program) -> None:
        check_order_of_queues(device, probe)

    def test_markers_have_the_time_of_what_lies_between(self, device: gp.Backend, probe: Program) -> None:
        check_elapsed(device, probe)


def test_a_kernel_is_used_again_once_its_call_is_gone(device: gp.Backend, probe: Program) -> None:
    memory = upload(device, np.ones(1, np.int32))

    def prepared(*arguments: Any) -> Any:
        return device.prepare(probe, "scale_add", (1, 1, 1), (1, 1, 1), [memory, *arguments])

    first, second = prepared(np.int32(2), np.int32(1)), prepared(np.int32(2), np.int32(1))
    kernel = first.native
    assert second.native is not kernel
    del first
    assert prepared(np.int32(2)).native is not kernel  # whose other argument would be an older call's
    third, fourth = prepared(np.int32(3), np.int32(1)), prepared(np.int32(3), np.int32(1))
    assert third.native is kernel
    assert kernel not in (second.native, fourth.native)


def test_what_was_enqueued_keeps_its_arguments_when_its_kernel_is_used_again(
    device: gp.Backend, probe: Program
) -> None:
    other, gate = second_queue(device), cl.UserEvent(device.context)
    blocks = [upload(device, np.array([number], np.int32)) for number in range(20)]
    cl.enqueue_barrier(other, wait_for=[gate])
    for number, memory in enumerate(blocks):
        arguments = [memory, np.int32(100), np.int32(number)]
        device.launch(device.prepare(probe, "scale_add", (1, 1, 1), (1, 1, 1), arguments), queue=other)
    gate.set_status(cl.command_execution_status.COMPLETE)
    other.finish()
    expected = [100 * number + number for number in range(20)]
    assert [download(device, memory, np.int32, 1).tolist()[0] for memory in blocks] == expected


def test_what_fails_is_tried_as_pyopencl_does(
    device: gp.Backend, probe: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = upload(device, np.ones(1, np.int32))
    call = device.prepare(probe, "scale_add", (1, 1, 1), (1, 1, 1), [memory, np.int32(2), np.int32(1)])
    monkeypatch.setattr(opencl._opencldriver, "enqueue", lambda *_: opencl._opencldriver.SUCCESS - 5)
    device.launch(call)
    assert download(device, memory, np.int32, 1).tolist() == [3]


def test_what_the_runtime_refuses_is_told_in_its_words(device: gp.Backend, probe: Program) -> None:
    memory = upload(device, np.ones(1, np.int32))
    call = device.prepare(probe, "scale_add", (1, 1, 1), (1, 1, 1), [memory, np.int32(2), np.int32(1)])
    with pytest.raises(gp.LaunchError, match=r"WORK_(GROUP|ITEM)_SIZE"):
        device.launch(replace(call, work_group=(2 * device.device.max_work_group, 1, 1)))


class TestACpuThatIsBehind:
    """It is waited for at each fifth product."""

    @pytest.fixture
    def cpu(self, backend: gp.Backend, monkeypatch: pytest.MonkeyPatch) -> Iterator[gp.Backend]:
        if backend.name != "opencl" or backend.device.type != "cpu":
            pytest.skip(beyond(backend.device, "it is OpenCL's CPUs that are outrun"))
        if opencl._scripts.launching is None:
            pytest.skip("launches are made in Python here, which outrun nobody")
        monkeypatch.setattr(opencl, "_MOST_AHEAD", 4)
        monkeypatch.setattr(opencl, "_LONGEST_WAIT", 0.3)
        with opencl.OpenCL(backend.device) as opened:
            yield opened

    @pytest.fixture
    def products(self, cpu: gp.Backend) -> Callable[..., float]:
        """Enqueues five of them, and tells how long the host took."""
        x, out = cpu.asarray(np.full((8, 8), 2, np.float32)), cpu.empty((8, 8), np.float32)
        gp.matmul(x, x, out=out)
        np.testing.assert_array_equal(out.get(), np.full((8, 8), 32))

        def enqueue(queue: Any = None) -> float:
            cpu._ahead, begun = 0, time.monotonic()  # type: ignore[attr-defined]
            for _ in range(5):
                gp.gemm(x, x, out=out, queue=queue)
            return time.monotonic() - begun

        enqueue()
        return enqueue

    def test_is_waited_for_on_our_queue_until_it_is_done(self, cpu: gp.Backend, products: Callable[..., float]) -> None:
        gate, took = cl.UserEvent(cpu.context), []
        cl.enqueue_marker(cpu.queue, wait_for=[gate])  # stands for work that takes long
        caller = threading.Thread(target=lambda: took.append(products()), daemon=True)
        caller.start()
        caller.join(1.0)
        waits = caller.is_alive()
        gate.set_status(cl.command_execution_status.COMPLETE)
        caller.join(60)
        assert waits
        assert len(took) == 1

    @pytest.mark.parametrize("whose", ["ours", "a caller's"])
    def test_that_waits_for_the_caller_is_not_waited_for_for_ever(
        self, cpu: gp.Backend, products: Callable[..., float], whose: str
    ) -> None:
        gate, queue = cl.UserEvent(cpu.context), None
        if whose == "ours":
            cpu.wait([Event(gate)])
        else:
            queue = cl.CommandQueue(cpu.context)
            cl.enqueue_marker(queue, wait_for=[gate])
        took: list[float] = []
        caller = threading.Thread(target=lambda: took.append(products(queue)), daemon=True)
        caller.start()
        caller.join(30)
        waits = caller.is_alive()
        gate.set_status(cl.command_execution_status.COMPLETE)
        caller.join(60)
        (queue or cpu.queue).finish()
        assert not waits
        assert took[0] >= 0.3

    def test_forgets_the_events_that_came(self, cpu: gp.Backend) -> None:
        for _ in range(20):
            gate = cl.UserEvent(cpu.context)
            cpu.wait([Event(gate)])
            gate.set_status(cl.command_execution_status.COMPLETE)
        assert len(cpu._from_outside) < 10  # type: ignore[attr-defined]


def test_nvidias_programs_are_made_beside_the_caller(
    device: gp.Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its driver in another thread; others' are not, whose first calls wait."""
    monkeypatch.setenv("GEMMPORT_CACHE_DIR", str(tmp_path))  # not an earlier run's program
    source = f"// {device.device.name}\n{source_of_probe(device)}"
    monkeypatch.setattr(device, "device", replace(device.device, platform="another"))
    assert not device.make_later([source])
    monkeypatch.setattr(device, "device", replace(device.device, platform="nvidia"))
    callers = threading.get_ident()
    compile_it, threads = device.compile, []

    def compiled(given: str) -> Program:
        threads.append(threading.get_ident())
        return compile_it(given)

    monkeypatch.setattr(device, "compile", compiled)
    assert device.make_later([source])
    device.settle_programs()
    assert threads
    assert callers not in threads
    memory = upload(device, np.ones(1, np.int32))
    call = device.prepare(device.program(source), "scale_add", (1, 1, 1), (1, 1, 1), [memory, np.int32(2), np.int32(1)])
    device.launch(call)
    assert download(device, memory, np.int32, 1).tolist() == [3]
    assert len(threads) == 1


def test_what_is_made_beside_a_caller_begins_when_the_caller_has_its_programs(
    device: gp.Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NVIDIA's driver holds a caller up that compiles, loads or launches meanwhile."""
    monkeypatch.setenv("GEMMPORT_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(device, "device", replace(device.device, platform="nvidia"))
    beside, own = (f"// {name} of {device.device.name}\n{source_of_probe(device)}" for name in ("beside", "own"))
    monkeypatch.setattr(_programs, "_PAUSE", _programs._LONGEST_PAUSE)  # for a busy machine; to settle ends it
    compile_it, order = device.compile, []

    def compiled(given: str) -> Program:
        order.append(("begins", given))
        made = compile_it(given)
        order.append(("ends", given))
        return made

    monkeypatch.setattr(device, "compile", compiled)
    assert device.make_later([beside])
    time.sleep(0.1)  # in which what does not wait begins
    device.program(own)
    order.append(("is there", own))
    device.settle_programs()
    assert order == [("begins", own), ("ends", own), ("is there", own), ("begins", beside), ("ends", beside)]


def test_a_loader_that_is_not_found_costs_only_the_event(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(path: str) -> None:
        raise OSError(path)

    monkeypatch.setattr(opencl._opencldriver.ctypes, "PyDLL", missing)
    assert opencl._opencldriver._loaded("clEnqueueNDRangeKernel") is None


class _Told:
    """What a runtime tells of a kernel."""

    def __init__(self, largest: int, multiple: int, required: list[int]) -> None:
        ask = cl.kernel_work_group_info
        self.answers = {
            ask.WORK_GROUP_SIZE: largest,
            ask.PREFERRED_WORK_GROUP_SIZE_MULTIPLE: multiple,
            ask.COMPILE_WORK_GROUP_SIZE: required,
        }

    def get_work_group_info(self, param: int, device: object) -> Any:
        return self.answers[param]


@pytest.mark.parametrize(
    ("quirk", "told", "most"),
    [
        ("none", _Told(256, 32, [32, 32, 1]), 256),
        ("nvidia-groups-of-256", _Told(256, 32, [32, 32, 1]), 1024),
        ("nvidia-groups-of-256", _Told(256, 32, [64, 1, 1]), 256),
        ("nvidia-groups-of-256", _Told(256, 32, [0, 0, 0]), 256),
        ("rusticl-group-limit", _Told(8, 8, [0, 0, 0]), 4096),
        ("rusticl-group-limit", _Told(64, 8, [0, 0, 0]), 64),
    ],
)
def test_what_is_told_of_groups_is_mended(
    device: gp.Backend, monkeypatch: pytest.MonkeyPatch, quirk: str, told: _Told, most: int
) -> None:
    monkeypatch.setattr(device, "_quirks", {quirk})
    monkeypatch.setattr(device, "device", replace(device.device, max_work_group=4096))
    assert device._most_work_items(told) == most


def test_a_kernel_runs_in_the_group_that_it_requires(device: gp.Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    """Although a smaller one is told, which counts where it is not known to be wrong."""
    told = cl.Kernel.get_work_group_info

    def told_small(kernel: Any, param: int, at: Any) -> Any:
        return 8 if param == cl.kernel_work_group_info.WORK_GROUP_SIZE else told(kernel, param, at)

    monkeypatch.setattr(cl.Kernel, "get_work_group_info", told_small)
    a = np.ones((20, 20), np.float32)
    arrays = [device.asarray(a), device.asarray(a)]
    monkeypatch.setattr(device, "_quirks", set())
    with pytest.raises(gp.LaunchError, match="at most 8 work-items per group, not 64"):
        gp.gemm(*arrays, kernel="tiled", params={"TS": 8})
    monkeypatch.setattr(device, "_quirks", {"nvidia-groups-of-256"})
    assert (gp.gemm(*arrays, kernel="tiled", params={"TS": 8}).get() == 20).all()
