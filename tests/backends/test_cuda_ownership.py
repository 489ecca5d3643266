"""What CUDA's backend makes is given back whichever thread drops it last, by a stand-in for the driver, and one for PyCUDA."""

from __future__ import annotations

import ctypes
import gc
import sys
import threading
import weakref
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import gemmport as gp
from gemmport.backends import _cudadriver, _cudahost, _cudamodules, _cudastreams, _scripts
from gemmport.backends.objects import Memory
from gemmport.core import dlpack
from gemmport.core.dtypes import as_dtype
from gemmport.execution.xla import GPUArray
from made_up_cuda import CONTEXT, Context, Driver


def dropped_elsewhere(kept: list[Any]) -> int:
    """Drops what is in a list in a thread of its own, and tells which."""
    thread = threading.Thread(target=kept.clear)
    thread.start()
    thread.join()
    return thread.ident or 0


@pytest.mark.parametrize(
    ("make", "name", "handle"),
    [
        (lambda driver: _cudastreams.created(CONTEXT), "cuStreamDestroy_v2", lambda driver: 0x57),
        (lambda driver: _cudahost.pinned(64, CONTEXT), "cuMemFreeHost", lambda driver: ctypes.addressof(driver.memory)),
        (lambda driver: _cudamodules.Module(b"", CONTEXT), "cuModuleUnload", lambda driver: 0x30D),
    ],
    ids=["stream", "pinned memory", "module"],
)
class TestWhatIsDropped:
    def test_is_given_back_in_its_context_by_whichever_thread(
        self, driver: Driver, make: Any, name: str, handle: Any
    ) -> None:
        kept = [make(driver)]
        assert driver.given_back == []
        thread = dropped_elsewhere(kept)
        assert driver.given_back == [(name, handle(driver), [CONTEXT.handle], True, thread)]
        assert driver.contexts == {thread: []}
        assert driver.modes[thread] == 0

    @pytest.mark.parametrize("failing", ["cuCtxPushCurrent_v2", "cuThreadExchangeStreamCaptureMode"])
    def test_is_left_where_nothing_can_be_given_back(
        self, driver: Driver, monkeypatch: pytest.MonkeyPatch, make: Any, name: str, handle: Any, failing: str
    ) -> None:
        """The process is a fork, or the device is lost."""
        raised: list[Any] = []
        monkeypatch.setattr(sys, "unraisablehook", raised.append)
        kept = [make(driver)]
        driver.results[failing] = 3
        thread = dropped_elsewhere(kept)
        assert (driver.given_back, raised, driver.contexts.get(thread, [])) == ([], [], [])


def test_pinned_memory_stays_as_long_as_an_array_over_it(driver: Driver) -> None:
    array = _cudahost.pinned(64, CONTEXT)
    view = array[8:16].view(np.float32)
    view[:] = 1.5
    del array
    assert driver.given_back == []
    assert driver.memory.raw[8:16] == np.full(2, 1.5, np.float32).tobytes()
    del view
    assert len(driver.given_back) == 1


def test_a_stream_stays_as_long_as_what_stands_for_it(driver: Driver) -> None:
    stream = _cudastreams.created(CONTEXT)
    assert (stream.handle, stream.number, stream.__cuda_stream__()) == (0x57, 7, (0, 0x57))
    readers = [stream]
    del stream
    assert driver.given_back == []
    readers.clear()
    assert len(driver.given_back) == 1


def test_what_loads_a_kernel_breaks_no_capture_off(driver: Driver) -> None:
    kernel = _cudamodules.Module(b"", CONTEXT).function("f")
    kernel.allow_shared(50_000)
    kernel.attribute(_cudamodules.REGISTERS)
    assert driver.loading == [
        (name, True) for name in ("cuModuleGetFunction", "cuFuncSetAttribute", "cuFuncGetAttribute")
    ]
    assert driver.modes[threading.get_ident()] == 0


def test_a_launch_into_a_capture_that_was_broken_off_says_what_allows_it(driver: Driver) -> None:
    for result, told in ((900, "^cuLaunchKernelEx: 900$"), (901, 'cuLaunchKernelEx: 901; .*="thread_local"')):
        with pytest.raises(gp.LaunchError, match=told):
            _cudadriver.fail("cuLaunchKernelEx", result)


# The backend


def test_queues_and_host_buffers_of_a_backend_are_given_back_elsewhere(cuda: Any, driver: Driver) -> None:
    kept = [cuda.new_queue(), cuda.host_buffer(10)]
    assert cuda.as_queue(kept[0]) is kept[0]
    assert kept[1].nbytes == 10
    thread = dropped_elsewhere(kept)
    told = [(name, contexts, own) for name, _, contexts, _, own in driver.given_back]
    context = [CONTEXT.handle]
    assert sorted(told) == [("cuMemFreeHost", context, thread), ("cuStreamDestroy_v2", context, thread)]


@pytest.mark.parametrize(
    ("wait", "told"),
    [
        (lambda cuda, memory, data: cuda.synchronize(), ["cuStreamSynchronize"]),
        (lambda cuda, memory, data: cuda._finish(), ["cuCtxSynchronize"]),
        (lambda cuda, memory, data: cuda.elapsed(cuda.record(), cuda.record()), ["cuEventSynchronize"]),
        (
            lambda cuda, memory, data: cuda._upload(memory, data, 0, None),
            ["cuMemcpyHtoDAsync_v2", "cuStreamSynchronize"],
        ),
        (
            lambda cuda, memory, data: cuda._download(memory, data, 0, None),
            ["cuMemcpyDtoHAsync_v2", "cuStreamSynchronize"],
        ),
        (lambda cuda, memory, data: cuda._begin_upload(memory, data, 0, None)(), ["cuEventSynchronize"]),
        (lambda cuda, memory, data: cuda._begin_download(memory, data, 0, None)(), ["cuEventSynchronize"]),
    ],
    ids=["queue", "device", "events", "upload", "download", "pinned upload", "pinned download"],
)
def test_who_waits_breaks_no_graph_that_another_thread_captures(
    cuda: Any, driver: Driver, wait: Any, told: list[str]
) -> None:
    """In CUDA's default mode a capture forbids waiting to all threads of the process, but to those that say they know."""
    wait(cuda, Memory(None, 0x100, 64), np.zeros(64, np.uint8))
    assert [(name, relaxed) for name, relaxed in driver.waited if name in told] == [(name, True) for name in told]
    assert driver.modes[threading.get_ident()] == 0


@pytest.mark.parametrize("closed", [False, True], ids=["open", "closed"])
def test_memory_that_is_freed_breaks_no_graph(cuda: Any, driver: Driver, closed: bool) -> None:
    """Where the pool holds it, as of a device that is open, the driver has no part in that."""
    memory = cuda.allocate(64)
    if closed:
        cuda.close()
        assert [(name, relaxed) for name, _, _, relaxed, _ in driver.given_back] == [("cuMemFree_v2", True)]
        driver.given_back.clear()
    memory.release()
    own = threading.get_ident()
    assert driver.given_back == [("cuMemFree_v2", 0x1000, [CONTEXT.handle], closed, own)]
    assert driver.modes.get(own, 0) == 0


def test_the_pool_of_a_backend_that_is_garbage_breaks_no_graph(cuda: Any, driver: Driver) -> None:
    drain = sys.modules["gemmport.backends.cuda"]._drain  # type: ignore[attr-defined]
    drain(Context(), SimpleNamespace(stop_holding=lambda: driver.cuMemFree_v2(ctypes.c_uint64(0))))
    assert driver.given_back == [("cuMemFree_v2", 0, [CONTEXT.handle], True, threading.get_ident())]


def test_a_backend_that_is_collected_leaves_the_thread_its_context(cuda: Any, driver: Driver) -> None:
    """Else what is made there next lies on another GPU, such as the queue of a backend that is being opened."""
    other = type(cuda)(cuda.device)
    other.close()
    with cuda.current():
        del other
        gc.collect()
        assert driver.current == [CONTEXT.handle]
    assert driver.current == []


def test_threads_that_open_a_device_together_have_one_context(cuda: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two, one would be collected."""
    module: Any = sys.modules["gemmport.backends._cudacontext"]
    made: list[Context] = []

    def retain() -> Context:
        made.append(Context())
        threading.Event().wait(0.02)  # so that the others come meanwhile
        return made[-1]

    monkeypatch.setattr(module.cu, "Device", lambda _: SimpleNamespace(retain_primary_context=retain))
    threads = [threading.Thread(target=module.primary, args=(7,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made == [module.primary(7)]


class TestWhileAGraphIsCaptured:
    """Memory that its stream used, or that another library has, is given back later: to wait would break the capture."""

    STREAM = 0x57A

    @pytest.fixture(autouse=True)
    def capturing(self, cuda: Any, driver: Driver, monkeypatch: pytest.MonkeyPatch) -> set[int]:
        captured: set[int] = set()

        def is_capturing(stream: Any, told: Any) -> int:
            told._obj.value = stream.value in captured
            return 0

        monkeypatch.setattr(driver, "cuStreamIsCapturing", is_capturing, raising=False)
        monkeypatch.setattr(_scripts, "launching", None)
        torch = SimpleNamespace(
            is_initialized=lambda: True, current_stream=lambda: SimpleNamespace(cuda_stream=self.STREAM)
        )  # fmt: skip
        monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=torch))
        monkeypatch.setitem(sys.modules, "cupy", None)
        return captured

    @pytest.fixture(params=["used", "shared"])
    def memory(self, cuda: Any, request: pytest.FixtureRequest) -> Memory:
        found: Memory = cuda.allocate(64)
        if request.param == "shared":
            found.access.shared = True
        else:
            with cuda.ordered(self.STREAM, writes=[found]):
                pass
        return found

    def test_it_is_given_back_at_an_allocation_after_that(
        self, cuda: Any, driver: Driver, capturing: set[int], memory: Memory
    ) -> None:
        capturing.add(self.STREAM)
        memory.release()
        kept = [cuda.allocate(64)]
        assert driver.given_back == []
        assert ("cuCtxSynchronize", True) not in driver.waited
        capturing.clear()
        kept.append(cuda.allocate(64))
        assert len(driver.given_back) == 1
        assert len(kept) == 2

    def test_it_is_given_back_when_the_device_is_closed(
        self, cuda: Any, driver: Driver, capturing: set[int], memory: Memory
    ) -> None:
        capturing.add(self.STREAM)
        memory.release()
        cuda.close()
        assert [handle for _, handle, *_ in driver.given_back] == [0, 0x1000]

    def test_it_is_given_back_at_once_else(
        self, cuda: Any, driver: Driver, capturing: set[int], memory: Memory
    ) -> None:
        capturing.add(self.STREAM + 1)
        memory.release()
        assert len(driver.given_back) == 1


@pytest.mark.parametrize(("known", "result", "pageable"), [
    ("all", 0, False), ("begin", 0, True), ("end", 0, True), ("nothing", 0, True), ("all", 3, True),
])  # fmt: skip
def test_memory_of_which_the_driver_knows_both_ends_is_pinned(
    driver: Driver, monkeypatch: pytest.MonkeyPatch, known: str, result: int, pageable: bool
) -> None:
    data = np.zeros(64, np.uint8)
    begin, end = data.ctypes.data, data.ctypes.data + 63
    pinned = {"all": {begin, end}, "begin": {begin}, "end": {end}, "nothing": set()}[known]

    def attributes(count: Any, attribute: Any, places: Any, address: Any) -> int:
        assert (count.value, attribute._obj.value) == (1, 2)
        ctypes.cast(places._obj, ctypes.POINTER(ctypes.c_uint))[0] = 1 if address.value in pinned else 0
        return result

    monkeypatch.setattr(driver, "cuPointerGetAttributes", attributes, raising=False)
    assert _cudahost.is_pageable(data) == pageable


class Used:
    """Something that a graph uses."""


class TestWhatAGraphUses:
    """The driver tells when a graph is gone by a function in C, to which it gives what belongs to the graph's user object."""

    STREAM = 0x57A

    @pytest.fixture
    def ends(self, driver: Driver, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
        """What ends each graph that had something kept, in turn: one graph for each."""
        made: list[Any] = []
        ends: list[Any] = []

        def info(stream: Any, status: Any, number: Any, graph: Any, *_: Any) -> int:
            assert stream.value == self.STREAM
            graph._obj.value = 0x6AF
            return 0

        def create(held: Any, word: Any, function: Any, references: Any, flags: Any) -> int:
            made.append(lambda: ctypes.CFUNCTYPE(None, ctypes.c_void_p)(function.value)(word.value))
            held._obj.value = len(made)
            assert (references.value, flags.value) == (1, 1)
            return 0

        def retain(graph: Any, held: Any, references: Any, flags: Any) -> int:
            assert (graph.value, held.value, references.value, flags.value) == (0x6AF, len(made), 1, 1)
            ends.append(made[-1])
            return driver.results.get("cuGraphRetainUserObject", 0)

        for function, name in (
            (info, "cuStreamGetCaptureInfo_v2"), (create, "cuUserObjectCreate"), (retain, "cuGraphRetainUserObject"),
        ):  # fmt: skip
            monkeypatch.setattr(driver, name, function, raising=False)
        return ends

    def kept(self, cuda: Any) -> weakref.ref[Used]:
        used = Used()
        cuda.keep_for_graph(self.STREAM, used)
        return weakref.ref(used)

    def test_is_kept_until_the_graph_is_gone(self, cuda: Any, ends: list[Any]) -> None:
        first, second = self.kept(cuda), self.kept(cuda)
        cuda.release_workspaces()
        assert first()
        assert second()
        ends[1]()
        cuda.release_workspaces()
        assert first()
        assert not second()
        third = self.kept(cuda)
        ends[0]()
        fourth = self.kept(cuda)  # a later capture
        assert not first()
        assert third()
        assert fourth()

    def test_is_let_go_where_an_allocation_fails(
        self, cuda: Any, ends: list[Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        failed: list[int] = []
        allocate = cuda._allocate

        def fails_once(nbytes: int) -> Memory:
            if not failed:
                failed.append(nbytes)
                raise gp.DeviceMemoryError("full")
            return allocate(nbytes)

        monkeypatch.setattr(cuda, "_allocate", fails_once)
        used = self.kept(cuda)
        with pytest.raises(gp.DeviceMemoryError):
            cuda.allocate(64)
        assert used()
        ends[0]()
        failed.clear()
        cuda.allocate(64)
        assert failed
        assert not used()

    def test_is_let_go_when_the_device_is_closed(self, cuda: Any, ends: list[Any]) -> None:
        used = self.kept(cuda)
        cuda.close()
        assert not used()
        ends[0]()  # the driver may still write

    def test_is_kept_until_then_in_a_pure_installation(self, cuda: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(_scripts, "launching", None)
        used = self.kept(cuda)
        cuda.release_workspaces()
        assert used()
        cuda.close()
        assert not used()

    def test_is_an_error_where_the_driver_refuses(
        self, cuda: Any, driver: Driver, ends: list[Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        released: list[tuple[int, int]] = []

        def release(held: Any, references: Any) -> int:
            released.append((held.value, references.value))
            return 0

        monkeypatch.setattr(driver, "cuUserObjectRelease", release, raising=False)
        driver.results["cuGraphRetainUserObject"] = 801
        with pytest.raises(gp.LaunchError, match="cuGraphRetainUserObject"):
            self.kept(cuda)
        assert released == [(1, 1)]


class TestAProgram:
    def test_that_the_driver_refuses_is_no_program(self, cuda: Any, driver: Driver) -> None:
        driver.results["cuModuleLoadData"] = 218
        with pytest.raises(gp.CompileError, match="the CUDA driver refuses"):
            cuda.load(b"", "source")

    def test_of_a_backend_that_is_closed_is_an_error_of_that(self, cuda: Any) -> None:
        cuda.close()
        with pytest.raises(gp.LaunchError, match="was closed"):
            cuda.load(b"", "source")

    def test_of_a_device_that_is_lost_is_an_error_of_that(self, cuda: Any, driver: Driver) -> None:
        driver.results["cuModuleLoadData"] = 719
        for _ in range(2):
            with pytest.raises(gp.DeviceLostError):
                cuda.load(b"", "source")


def test_a_program_that_is_linked_breaks_no_graph_that_another_thread_captures(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CUDA lets a thread do so only in relaxed mode; linked are OpenCL's programs, beside the caller."""
    found: list[int] = []

    def link(*_: Any) -> int:
        found.append(driver.modes.get(threading.get_ident(), 0))
        return 0

    monkeypatch.setattr(_cudadriver, "_device_of", lambda capability, place: ctypes.c_int(0))
    links = ("cuLinkCreate_v2", "cuLinkAddData_v2", "cuLinkComplete", "cuLinkDestroy")
    for name in ("cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRelease_v2", *links):
        monkeypatch.setattr(driver, name, link, raising=False)
    context = _cudadriver.PrimaryContext(90, "")
    for _ in range(2):  # the context is made once
        _cudadriver.linked(b"ptx", context)
    assert found == [2] * 9
    context.release()
    _cudadriver.linked(b"ptx", context)
    assert found == [2] * 15
    assert driver.modes[threading.get_ident()] == 0


def test_a_launcher_keeps_what_its_script_reads(cuda: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody else need: those of copies and of products in shards are held by their launcher alone."""

    class Enqueued:
        pass

    monkeypatch.setattr(_cudamodules, "script", lambda *_: b"")
    monkeypatch.setattr(_scripts, "launching", SimpleNamespace(cuda=lambda *_: 0))
    launched = Enqueued()
    seen = weakref.ref(launched)
    kept = [cuda.launcher([(SimpleNamespace(enqueue=launched), [])])]
    del launched
    gc.collect()
    assert seen() is not None
    kept.clear()
    gc.collect()
    assert seen() is None


@pytest.mark.parametrize(("place", "expected"), [("0000:02:00.0", 2), ("0000:00:00.0", 1), ("", 1)])
def test_opencls_context_is_that_of_its_own_gpu(monkeypatch: pytest.MonkeyPatch, place: str, expected: int) -> None:
    # Three GPUs: the first is of another capability, which no program for the others may come from.
    places = {"0000:00:00.0": 0, "0000:01:00.0": 1, "0000:02:00.0": 2}

    class Driver:
        def cuDeviceGetByPCIBusId(self, device: Any, text: bytes) -> int:  # noqa: N802 - the driver's name
            number = places.get(text.decode())
            device._obj.value = -1 if number is None else number
            return 101 if number is None else 0

        def cuDeviceGetCount(self, number: Any) -> int:  # noqa: N802 - the driver's name
            number._obj.value = len(places)
            return 0

        def cuDeviceGet(self, device: Any, ordinal: ctypes.c_int) -> int:  # noqa: N802 - the driver's name
            device._obj.value = ordinal.value
            return 0

        def cuDeviceGetAttribute(self, value: Any, attribute: ctypes.c_int, device: ctypes.c_int) -> int:  # noqa: N802 - as above
            major = 8 if device.value == 0 else 9
            value._obj.value = major if attribute.value == 75 else 0
            return 0

    monkeypatch.setattr(_cudadriver, "driver", Driver)
    assert _cudadriver._device_of(90, place).value == expected


class _Untold:
    """An array on a GPU of a library that has DLPack alone."""

    def __dlpack_device__(self) -> tuple[int, int]:
        return dlpack.CUDA, 0

    def __dlpack__(self, *, stream: int) -> object:
        return dlpack.write(4096, (dlpack.CUDA, 0), np.dtype(np.float32), (4, 4), (4, 1), self)


@pytest.mark.parametrize("home", [None, 0x77], ids=["no stream", "a stream"])
def test_memory_of_an_unknown_stream_is_given_back_when_the_device_is_idle(
    cuda: Any, driver: Driver, monkeypatch: pytest.MonkeyPatch, home: int | None
) -> None:
    """Its owner may use it again on any stream. Of a stream that is told nobody waits."""
    monkeypatch.setattr(_scripts, "launching", None)  # which asks the real driver
    array = cuda.adopt(_Untold(), home)
    driver.waited.clear()
    del array
    assert ("cuCtxSynchronize" in [name for name, _ in driver.waited]) == (home is None)


def test_what_xla_hands_over_is_read_as_it_says(cuda: Any) -> None:
    given = GPUArray(4096, (3, 5), as_dtype("bfloat16").numpy, (5, 1), 0x77)
    array = cuda.adopt(given.mT, given.stream)
    assert (array.shape, array.strides, array.dtype, array.memory.handle) == ((5, 3), (1, 5), given.dtype, 4096)
    access = array.memory.access
    assert access.home is access.writer
    assert access.home.handle == 0x77
