"""Which streams are one: handles are used again, and one handle stands for the default stream of each thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

import gemmport as gp
from absences import beyond
from gemmport.backends import _cudastreams, _scripts
from made_up_cuda import PER_THREAD, Driver

HANDLE = 0x5A


def in_a_thread(work: Callable[[], Any]) -> Any:
    """What a thread of its own finds, which is gone then."""
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(work()))
    thread.start()
    thread.join()
    (result,) = found
    return result


@pytest.fixture(params=["in C", "in Python"])
def asked(request: pytest.FixtureRequest, driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """How the driver is asked which stream it is."""

    def told(name: str, stream: int) -> int:
        number = SimpleNamespace(_obj=SimpleNamespace(value=0))
        getattr(driver, name)(SimpleNamespace(value=stream), number)
        return number._obj.value

    monkeypatch.setattr(_cudastreams, "_address", lambda name: name)
    monkeypatch.setattr(_scripts, "launching", SimpleNamespace(asked=told) if request.param == "in C" else None)


@pytest.mark.usefixtures("asked")
class TestStreamsOfOneHandle:
    @pytest.mark.parametrize("given", ["number", "object"])
    def test_are_two_queues_where_one_was_destroyed(self, cuda: Any, driver: Driver, given: str) -> None:
        queue = HANDLE if given == "number" else SimpleNamespace(__cuda_stream__=(0, HANDLE))
        driver.numbers[HANDLE] = 11
        before = cuda.as_queue(queue)
        assert cuda.workspace(cuda.as_queue(queue)) is cuda.workspace(before)
        driver.numbers[HANDLE] = 12
        after = cuda.as_queue(queue)
        assert after != before
        assert cuda.workspace(after) is not cuda.workspace(before)
        assert cuda.workspace(cuda.as_queue(queue)) is cuda.workspace(after)

    def test_are_two_queues_where_they_are_two_threads_own(self, cuda: Any) -> None:
        found: dict[str, list[Any]] = {"one": [], "other": []}
        turns = threading.Barrier(2, timeout=60)

        def ask(whose: list[Any]) -> None:
            for _ in range(3):
                turns.wait()  # so that each comes between two questions of the other's
                whose.append(cuda.as_queue(PER_THREAD))

        threads = [threading.Thread(target=ask, args=(whose,)) for whose in found.values()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [len(set(whose)) for whose in found.values()] == [1, 1]
        (one, *_), (other, *_) = found.values()
        assert one != other
        assert cuda.workspace(one) is not cuda.workspace(other)

    def test_are_put_in_order_by_way_of_the_legacy_stream_where_they_are_two_threads_own(
        self, cuda: Any, driver: Driver, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """No thread reaches another's. The legacy stream waits for all of them, and they for it."""
        recorded: list[int] = []
        awaiting: list[int] = []

        def record(event: Any, stream: Any) -> int:
            recorded.append(stream.value or 0)
            return 0

        def wait(stream: Any, event: Any, flags: Any) -> int:
            awaiting.append(stream.value or 0)
            return 0

        monkeypatch.setattr(driver, "cuEventRecord", record, raising=False)
        monkeypatch.setattr(driver, "cuStreamWaitEvent", wait, raising=False)
        memory = cuda.allocate(64)

        def use() -> None:
            with cuda.ordered(PER_THREAD, writes=[memory]):
                pass

        use()
        assert (recorded, awaiting) == ([0x57], [PER_THREAD])
        in_a_thread(use)
        assert (recorded, awaiting) == ([0x57, _cudastreams.LEGACY_HANDLE], [PER_THREAD] * 2)


@pytest.fixture
def gpu(fresh_backend: gp.Backend) -> gp.Backend:
    if fresh_backend.name != "cuda":
        pytest.skip(beyond(fresh_backend.device, "it is CUDA's streams that are known by their handles"))
    return fresh_backend


class TestOnADevice:
    def test_a_stream_with_the_handle_of_one_that_is_gone_is_another_queue(self, gpu: gp.Backend) -> None:
        known: dict[int, Any] = {}
        for _ in range(64):
            stream = gpu.new_queue()
            handle = stream.handle
            queue = gpu.as_queue(handle)  # as PyTorch's and CuPy's are told
            if (before := known.setdefault(handle, queue)) is not queue:
                break
            del stream
        else:
            pytest.skip("the driver has used no handle again")
        assert queue != before
        assert gpu.workspace(queue) is not gpu.workspace(before)

    def test_each_thread_has_a_workspace_for_its_default_stream(self, gpu: gp.Backend) -> None:
        own = gpu.workspace(gpu.as_queue(PER_THREAD))
        assert gpu.workspace(gpu.as_queue(PER_THREAD)) is own
        assert in_a_thread(lambda: gpu.workspace(gpu.as_queue(PER_THREAD))) is not own
