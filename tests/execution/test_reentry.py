"""Products in the middle of others of the same thread: a handler of signals or of the log, or a finalizer, computes one.

Each is computed in a thread of its own, which is waited for so long and no longer: what waits for itself is found, and the run
goes on.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

import gemmport as gp
from absences import beyond
from gemmport.api import plans
from gemmport.backends import _improvement
from gemmport.backends._improvement import Improvement
from gemmport.execution import links, selection
from gemmport.runtime import cache

SECONDS = 60.0
"""For what takes one or two: other tests may be at work."""


def computed(work: Callable[[], Any]) -> Any:
    """What a function gives in a thread of its own, which comes to an end."""
    (result,) = computed_together(work)
    return result


def computed_together(*works: Callable[[], Any]) -> list[Any]:
    """What functions give, each in a thread of its own, which comes to an end."""
    given: dict[int, Any] = {}

    def run(number: int, work: Callable[[], Any]) -> None:
        given[number] = work()

    threads = [threading.Thread(target=run, args=each, daemon=True) for each in enumerate(works)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
    assert not any(thread.is_alive() for thread in threads), "it waits for itself, or each for the other"
    return [given[number] for number in range(len(works))]


def numbers(seed: int, *shape: int) -> np.ndarray:
    """Small whole numbers, whose products are exact."""
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(np.float32)


@pytest.fixture
def kernel(fresh_backend: gp.Backend) -> str:
    """One that has scratch memory on this device."""
    for name in ("packed", "simt", "reduce"):
        with suppress(gp.GemmportError):
            if gp.plan(gp.GemmProblem.create(64, 64, 4096), fresh_backend.device, kernel=name).scratch:
                return name
    pytest.skip(beyond(fresh_backend.device, "no kernel has scratch memory there"))


class Interruption:
    """Something that comes once, in the middle of what a method of a device does."""

    def __init__(self, backend: gp.Backend, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
        self.work: Callable[[], Any] | None = None
        method = getattr(backend, name)

        def interrupted(*given: Any, **options: Any) -> Any:
            result = method(*given, **options)
            work, self.work = self.work, None
            if work is not None:
                work()
            return result

        monkeypatch.setattr(backend, name, interrupted)


@pytest.fixture(params=["launch", "_allocate"])
def interruption(
    request: pytest.FixtureRequest, fresh_backend: gp.Backend, monkeypatch: pytest.MonkeyPatch
) -> Interruption:
    """Between the launches of a product, which are made in Python, and where it takes scratch memory."""
    monkeypatch.setattr(type(fresh_backend), "launcher", gp.Backend.launcher)
    return Interruption(fresh_backend, monkeypatch, request.param)


@pytest.mark.every_value("again", [False, True])
@pytest.mark.every_value("k", [4096, 2048])
def test_both_are_right(
    fresh_backend: gp.Backend, kernel: str, interruption: Interruption, k: int, *, again: bool
) -> None:
    """The inner one's scratch memory is not the outer one's, nor left behind; also where calls are prepared already."""
    a, b, x, y = numbers(1, 64, 4096), numbers(2, 4096, 64), numbers(3, 64, k), numbers(4, k, 64)
    on_device = [fresh_backend.asarray(each) for each in (a, b, x, y)]
    out, inner = fresh_backend.zeros((64, 64), np.float32), []

    def outer() -> np.ndarray:
        if again:
            gp.gemm(on_device[0], on_device[1], out=out, kernel=kernel)
            fresh_backend.release_workspaces()
        interruption.work = lambda: inner.append(gp.gemm(on_device[2], on_device[3], kernel=kernel).get())
        found: np.ndarray = gp.gemm(on_device[0], on_device[1], out=out, kernel=kernel).get()
        return found

    np.testing.assert_array_equal(computed(outer), a @ b)
    assert len(inner) == 1
    np.testing.assert_array_equal(inner[0], x @ y)
    blocks = fresh_backend.workspace().blocks
    for _ in range(2):  # what was bound within finds the queue's
        for left, right, wanted in ((0, 1, a @ b), (2, 3, x @ y)):
            np.testing.assert_array_equal(gp.gemm(on_device[left], on_device[right], kernel=kernel).get(), wanted)
    assert fresh_backend.workspace().blocks == blocks


def test_scratch_memory_in_use_is_not_given_back_within(
    fresh_backend: gp.Backend, kernel: str, interruption: Interruption
) -> None:
    a, b = numbers(1, 64, 4096), numbers(2, 4096, 64)
    x, y, out = fresh_backend.asarray(a), fresh_backend.asarray(b), fresh_backend.zeros((64, 64), np.float32)

    def outer() -> np.ndarray:
        interruption.work = fresh_backend.release_workspaces
        found: np.ndarray = gp.gemm(x, y, out=out, kernel=kernel).get()
        return found

    fresh_backend.workspace().for_now(fresh_backend, [2**16])
    (held,) = fresh_backend.workspace().blocks
    np.testing.assert_array_equal(computed(outer), a @ b)
    assert interruption.work is None
    assert fresh_backend.workspace().blocks
    fresh_backend.release_workspaces()
    assert held.released
    assert fresh_backend.workspace().blocks == ()


@pytest.mark.every_value("within", ["product", "release"])
def test_two_threads_in_the_middle_of_products_on_two_queues_do_not_wait_for_each_other(
    fresh_backend: gp.Backend, kernel: str, monkeypatch: pytest.MonkeyPatch, within: str
) -> None:
    """Each comes to the other's queue: with a product, or to give scratch memory back."""
    monkeypatch.setattr(type(fresh_backend), "launcher", gp.Backend.launcher)
    own, both = threading.local(), threading.Barrier(2)
    launch = fresh_backend.launch

    def interrupted(*given: Any, **options: Any) -> Any:
        result = launch(*given, **options)
        work, own.work = getattr(own, "work", None), None
        if work is not None:
            both.wait(SECONDS / 2)
            work()
        return result

    monkeypatch.setattr(fresh_backend, "launch", interrupted)
    a, b = numbers(1, 64, 4096), numbers(2, 4096, 64)
    queues = [fresh_backend.new_queue() for _ in range(2)]
    if queues[0] is None:
        pytest.skip(beyond(fresh_backend.device, "it has one queue alone"))
    on_device = [[fresh_backend.asarray(each) for each in (a, b)] for _ in range(4)]
    fresh_backend.synchronize()

    def product(number: int, queue: Any) -> np.ndarray:
        found: np.ndarray = gp.gemm(*on_device[number], kernel=kernel, queue=queue).get()
        return found

    for number in range(4):
        product(number, queues[number % 2])

    def outer(number: int) -> Callable[[], list[np.ndarray]]:
        def work() -> list[np.ndarray]:
            inner: list[np.ndarray] = []
            own.work = {
                "product": lambda: inner.append(product(2 + number, queues[1 - number])),
                "release": fresh_backend.release_workspaces,
            }[within]
            found = product(number, queues[number])
            assert own.work is None
            return [found, *inner]

        return work

    for each in computed_together(outer(0), outer(1)):
        assert len(each) == (2 if within == "product" else 1)
        for found in each:
            np.testing.assert_array_equal(found, a @ b)


class Multiplying(logging.Handler):
    """Computes a product for each message that it gets outside of one."""

    def __init__(self, product: Callable[[], Any]) -> None:
        super().__init__()
        self.product, self.products, self.inside = product, 0, False

    def emit(self, record: logging.LogRecord) -> None:
        if not self.inside:
            self.inside = True
            self.product()
            self.products += 1
            self.inside = False


@pytest.fixture
def told() -> Iterator[Callable[[Callable[[], Any]], Multiplying]]:
    """Has products computed as gemmport tells its log something."""
    log, added = logging.getLogger("gemmport"), []
    level = log.level

    def add(product: Callable[[], Any]) -> Multiplying:
        added.append(Multiplying(product))
        log.addHandler(added[-1])
        log.setLevel(logging.DEBUG)
        return added[-1]

    yield add
    for handler in added:
        log.removeHandler(handler)
    log.setLevel(level)


def test_a_handler_of_the_log_may_multiply(
    fresh_backend: gp.Backend, kernel: str, told: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log is told of memory that was short as a product takes its scratch memory."""
    a, b = numbers(1, 64, 4096), numbers(2, 4096, 64)
    x, y, out = fresh_backend.asarray(a), fresh_backend.asarray(b), fresh_backend.zeros((64, 64), np.float32)
    inner: list[np.ndarray] = []
    gp.gemm(x, y, out=out, kernel=kernel)
    fresh_backend.release_workspaces()
    fresh_backend._workspaces.of("another queue").blocks = (held := fresh_backend.allocate(64),)
    allocate = type(fresh_backend)._allocate

    def short(backend: gp.Backend, nbytes: int) -> Any:
        if not held.released:
            raise gp.DeviceMemoryError("no room")
        return allocate(backend, nbytes)

    monkeypatch.setattr(type(fresh_backend), "_allocate", short)
    handler = told(lambda: inner.append(gp.gemm(x, y, kernel=kernel).get()))
    np.testing.assert_array_equal(computed(lambda: gp.gemm(x, y, out=out, kernel=kernel).get()), a @ b)
    assert handler.products == len(inner) > 0
    for each in inner:
        np.testing.assert_array_equal(each, a @ b)


LOCKS: dict[str, Callable[[gp.Backend], Any]] = {
    "access": lambda backend: backend._access_lock,
    "workspace": lambda backend: backend.workspace().lock,
    "workspaces": lambda backend: backend._workspaces._lock,
    "staging": lambda backend: backend._staging._lock,
    "programs": lambda backend: backend._programs.lock,
    "pool": lambda backend: getattr(backend, "_pool_lock", threading.RLock()),
    "open devices": lambda backend: selection._lock,
    "plans": lambda backend: plans._planning[-1],
    "improver": lambda backend: _improvement._improver._lock,
    "links": lambda backend: links._measuring,
    "warnings": lambda backend: cache._warned_lock,
}


@pytest.mark.parametrize("lock", [pytest.param(lock, id=name) for name, lock in LOCKS.items()])
def test_no_lock_on_the_way_is_waited_for_by_the_thread_that_holds_it(
    fresh_backend: gp.Backend, kernel: str, lock: Callable[[gp.Backend], Any]
) -> None:
    a, b = numbers(1, 64, 4096), numbers(2, 4096, 64)

    def work() -> np.ndarray:
        with lock(fresh_backend), lock(fresh_backend):
            x, y = fresh_backend.asarray(a), fresh_backend.asarray(b)
            found: np.ndarray = gp.gemm(x, y, kernel=kernel).get()
            return found

    np.testing.assert_array_equal(computed(work), a @ b)


def test_a_program_may_be_left_for_later_while_the_thread_for_that_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    improver, start = _improvement._Improver(), threading.Thread.start
    one, other = Improvement(lambda: None), Improvement(lambda: None)
    before = set(threading.enumerate())  # that of other tests may be among them

    def interrupted(thread: threading.Thread) -> None:
        if thread.name == "gemmport improves programs" and other not in improver.unfinished:
            assert improver.submit(other)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    assert computed(lambda: improver.submit(one))
    assert one.done.wait(SECONDS)
    assert other.done.wait(SECONDS)
    begun = [thread for thread in threading.enumerate() if thread not in before]
    assert [thread.name for thread in begun].count("gemmport improves programs") <= 1
    improver.end()
