"""Who closes a device, when its memory is released, what of it may be copied, and that a process which used one ends without
a word.
"""

from __future__ import annotations

import copy
import ctypes
import gc
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import gemmport as gp
from absences import beyond
from gemmport.backends import _cudadriver, _ending, _fork
from gemmport.backends._ownership import owned
from gemmport.backends.objects import Memory
from gemmport.execution.executor import bind


def numbers(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(-4, 5, (40, 40)).astype(np.float32)


def at_once(work: Callable[[int], object], count: int = 4) -> list[BaseException]:
    """What is raised in threads that do the same."""
    raised: list[BaseException] = []

    def tell(number: int) -> None:
        try:
            work(number)
        except BaseException as error:  # noqa: BLE001 - whatever it is, the test says whether it may be
            raised.append(error)

    threads = [threading.Thread(target=tell, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return raised


class TestAWith:
    @pytest.mark.every_runtime
    def test_leaves_a_shared_backend_to_the_others(self, backend: gp.Backend) -> None:
        a = numbers()
        kept = backend.asarray(a)

        def work(number: int) -> None:
            for _ in range(10):
                if number == 0:
                    with gp.get_backend(device=backend.device) as shared:
                        assert shared is backend
                        np.testing.assert_array_equal(gp.gemm(shared.asarray(a), kept).get(), a @ a)
                else:
                    np.testing.assert_array_equal(gp.matmul(a, a, device=backend.device), a @ a)
                    np.testing.assert_array_equal(gp.gemm(kept, kept).get(), a @ a)

        assert at_once(work) == []
        assert not backend.closed

    def test_of_a_shared_backend_waits_for_its_queue(
        self, best_backend: gp.Backend, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        waited: list[gp.Backend] = []
        monkeypatch.setattr(type(best_backend), "synchronize", lambda opened: waited.extend([opened]))
        with best_backend:
            assert waited == []
        assert waited == [best_backend]
        with pytest.raises(ZeroDivisionError), best_backend:
            raise ZeroDivisionError
        assert waited == [best_backend]

    def test_may_close_a_shared_backend_within(self, best_backend: gp.Backend, monkeypatch: pytest.MonkeyPatch) -> None:
        with type(best_backend)(best_backend.device) as opened:
            monkeypatch.setattr(opened, "shared", True)
            opened.close()
        assert opened.closed

    def test_closes_a_backend_of_ones_own(self, backend: gp.Backend) -> None:
        a = numbers()
        with gp.open_backend(device=backend.device) as own:
            assert own is not backend
            assert gp.get_backend(device=backend.device) is backend
            x = own.asarray(a)
            product = gp.gemm(x, x)
            assert product.backend is own
            np.testing.assert_array_equal(product.get(), a @ a)
            with gp.open_backend(own.name, own.device.selector) as another:
                assert another is not own
            assert not own.closed
        with pytest.raises(gp.LaunchError, match="was closed"):
            x.get()
        assert not backend.closed


class TestClosing:
    @pytest.mark.every_runtime
    def test_ends_calls_of_other_threads_by_a_launch_error_or_lets_them_finish(self, backend: gp.Backend) -> None:
        """Never by an AttributeError, nor by a crash, for what they work with is gone."""
        a = numbers()
        for round_ in range(4):
            own, started = gp.open_backend(device=backend.device), threading.Barrier(4)
            x = own.asarray(a)
            works: list[Callable[[], Any]] = [
                lambda own=own, x=x: gp.gemm(own.asarray(a), x).get(),
                lambda x=x: gp.gemm(x, x),
                lambda own=own: own.zeros((50, 50), np.float32).get(),
            ]

            def work(number: int, own: gp.Backend = own, started: Any = started, works: Any = works) -> None:
                if number == 3:
                    started.wait()
                    threading.Event().wait(0.005 * (round_ + 1))  # noqa: B023 - it ends within the round
                    own.close()
                    return
                works[number]()
                started.wait()
                while True:
                    works[number]()

            raised = at_once(work)
            assert [type(error) for error in raised] == [gp.LaunchError] * 3, raised
            assert all("was closed" in str(error) for error in raised)

    def test_leaves_a_thread_the_context_that_it_had(self, backend: gp.Backend) -> None:
        """Also where the last reference goes: with two GPUs, what the thread made next would lie on the wrong one."""
        if backend.name != "cuda":
            pytest.skip(beyond(backend.device, "OpenCL makes no context a thread's current one"))
        found: list[int | None] = []

        def look() -> None:
            context = ctypes.c_void_p()
            _cudadriver.check("cuCtxGetCurrent", ctypes.byref(context))
            found.append(context.value)

        def work(_: int) -> None:
            look()
            own = gp.open_backend(device=backend.device)
            own.close()
            del own
            gc.collect()
            look()

        assert at_once(work, 1) == []
        assert found == [None, None]

    def test_is_what_a_program_is_told_that_could_not_be_made_for_it(
        self, fresh_backend: gp.Backend, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refused(source: str) -> None:
            fresh_backend.close()
            raise gp.CompileError("refused", source=source)

        monkeypatch.setattr(fresh_backend, "compile", refused)
        with pytest.raises(gp.LaunchError, match="was closed"):
            fresh_backend.program("/* of a test */")

    def test_closes_once(self, fresh_backend: gp.Backend, monkeypatch: pytest.MonkeyPatch) -> None:
        closed: list[gp.Backend] = []
        close = type(fresh_backend)._close
        monkeypatch.setattr(type(fresh_backend), "_close", lambda opened: (closed.append(opened), close(opened)))
        assert at_once(lambda _: fresh_backend.close()) == []
        assert closed == [fresh_backend]

    def test_is_said_before_anything_is_freed(self, fresh_backend: gp.Backend, monkeypatch: pytest.MonkeyPatch) -> None:
        """`get_backend` would else give a backend that another thread is closing."""
        told: list[bool] = []
        monkeypatch.setattr(type(fresh_backend), "_close", lambda opened: told.append(opened.closed))
        fresh_backend.close()
        assert told == [True]

    def test_memory_that_is_released_later_says_nothing(
        self, backend: gp.Backend, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Another queue used it: while the device is open, that one is waited for."""
        with gp.open_backend(device=backend.device) as own:
            x = own.asarray(numbers())
            x.memory.access.readers.append(own.new_queue())
            own._settle = lambda access: own.close() or own.synchronize()  # type: ignore[method-assign, func-returns-value]
            x.release()
        assert caplog.messages == []


class TestARelease:
    def test_that_is_interrupted_is_made_up_for_by_a_later_allocation(
        self, fresh_backend: gp.Backend, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What used the memory may not be done, and whoever drops it last may not be able to free it."""

        def interrupted(_: object) -> None:
            raise KeyboardInterrupt

        memory = fresh_backend.allocate(1024)
        memory.access.shared = True
        monkeypatch.setattr(type(fresh_backend), "_finish", interrupted)
        with pytest.raises(KeyboardInterrupt):
            memory.release()
        monkeypatch.undo()
        assert self.blocks(fresh_backend) == 1
        other = fresh_backend.allocate(1024)
        assert self.blocks(fresh_backend) == 1
        other.release()
        assert self.blocks(fresh_backend) == 0

    @staticmethod
    def blocks(backend: gp.Backend) -> int:
        """That a device still has."""
        return sum(owner is backend for owner, _ in owned.values())


HOWS: dict[str, Callable[[Any], object]] = {
    "copy": copy.copy, "deepcopy": copy.deepcopy, "pickle": lambda x: pickle.loads(pickle.dumps(x)),
}  # fmt: skip


class TestCopies:
    @pytest.fixture
    def made(self, backend: gp.Backend) -> dict[str, Any]:
        """One of each."""
        x = backend.asarray(numbers())
        plan = gp.plan(gp.GemmProblem.create(40, 40, 40), backend.device)
        bound = bind(plan, backend, {"a": x.memory, "b": x.memory, "d": backend.empty((40, 40), np.float32).memory})
        return {
            "backend": backend, "memory": x.memory, "bound plan": bound, "call": bound.calls[0],
            "program": bound.calls[0].program, "event": backend.record(), "plan": plan, "device": backend.device,
        }  # fmt: skip

    @pytest.mark.parametrize(
        ("name", "advice"),
        [
            ("backend", "open_backend"), ("memory", "Backend.copy"), ("bound plan", "bind its plan again"),
            ("call", "Backend.prepare"), ("program", "Backend.program"), ("event", "Backend.record"),
        ],
    )  # fmt: skip
    @pytest.mark.parametrize("how", HOWS)
    def test_of_what_is_on_a_device_are_refused_with_advice(
        self, made: dict[str, Any], name: str, advice: str, how: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        unraisable: list[Any] = []
        monkeypatch.setattr(sys, "unraisablehook", unraisable.append)
        with pytest.raises(gp.CopyError, match=f"must not be copied or pickled.*{advice}"):
            HOWS[how](made[name])
        gc.collect()
        assert unraisable == []

    @pytest.mark.parametrize("name", ["plan", "device"])
    @pytest.mark.parametrize("how", HOWS)
    def test_of_what_is_told_of_a_device_are_made(self, made: dict[str, Any], name: str, how: str) -> None:
        assert HOWS[how](made[name]) == made[name]

    def test_are_refused_as_python_refuses_them(self) -> None:
        assert issubclass(gp.CopyError, TypeError)


ENDING = """
import atexit, sys, threading, time
import numpy as np

def late():
    print((gp.matmul(a, a, device=device) == 64).all(), (gp.gemm(x, x).get() == 64).all())

def closed():
    try:
        x.get()
    except gp.LaunchError as error:
        print("was closed" in str(error))

atexit.register(closed)
import gemmport as gp
device = gp.get_backend(sys.argv[1], sys.argv[2]).device
a = np.ones((64, 64), np.float32)
x = gp.get_backend(device=device).asarray(a)
atexit.register(late)
alive = [gp.gemm(x, x) for _ in range(20)]
cycle = [x, gp.open_backend(device=device).asarray(a)]
cycle.append(cycle)

def work(product):
    product()
    ready.release()
    while True:
        product()

ready = threading.Semaphore(0)
works = (lambda: gp.gemm(x, x), lambda: gp.matmul(a, a, device=device)) if sys.argv[3] == "threads" else ()
for each in works:
    threading.Thread(target=work, args=(each,), daemon=True).start()
for _ in works:
    ready.acquire()
time.sleep(0.05 if works else 0)
print("end")
"""


class TestTheEndOfAProcess:
    """It is quiet with arrays, cycles of them and backends, and handlers that multiply then."""

    def ends(self, backend: gp.Backend, kind: str) -> None:
        command = [
            sys.executable,
            "-X",
            "dev",
            "-W",
            "error",
            "-c",
            ENDING,
            backend.name,
            backend.device.selector,
            kind,
        ]
        ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
        assert (ran.returncode, ran.stderr) == (0, "")
        assert ran.stdout.split("\n") == ["end", "True True", "True", ""]

    def test_alone(self, best_backend: gp.Backend) -> None:
        self.ends(best_backend, "alone")

    @pytest.mark.every_runtime
    def test_with_daemon_threads_that_multiply(self, backend: gp.Backend) -> None:
        self.ends(backend, "threads")


class Device:
    """A device of no runtime."""

    closed = False


class TestOtherThreads:
    """While one ends the process; without a device."""

    @pytest.fixture(autouse=True)
    def process(self, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
        """One whose end this test plays: its devices."""
        devices: list[Any] = [Device()]
        monkeypatch.setattr(_ending, "_end", _ending._End())
        monkeypatch.setattr(_fork, "known", lambda: devices)
        monkeypatch.setattr(_ending, "release_all", lambda: devices.append("released"))
        monkeypatch.setattr(_ending, "_MOST_SECONDS", 0.2)
        # Threads that other tests left are in this package, too: that which improves programs is for a while.
        others = {*sys._current_frames()}
        own = SimpleNamespace(
            _current_frames=lambda: {at: frame for at, frame in sys._current_frames().items() if at not in others}
        )
        monkeypatch.setattr(_ending, "sys", own)
        return devices

    @staticmethod
    def started(work: str, **names: Any) -> threading.Thread:
        """A thread in a function of this package's, as far as its frame tells."""
        scope = {"__name__": "gemmport.backends.of_a_test", **names}
        exec(f"def work():\n    {work}", scope)
        thread = threading.Thread(target=scope["work"], daemon=True)
        thread.start()
        return thread

    def test_go_on_until_then(self) -> None:
        _ending.hold()
        thread = self.started("hold()", hold=_ending.hold)
        thread.join(0.1)
        assert not thread.is_alive()

    def test_are_held_where_they_come_to_a_device_but_for_that_which_ends_it(self, process: list[Any]) -> None:
        _ending._close_all()
        assert (process[0].closed, process[1:]) == (True, ["released"])
        _ending.hold()
        thread = self.started("hold()", hold=_ending.hold)
        thread.join(0.05)
        assert thread.is_alive()
        thread.join()  # not for good: a handler of the program's may wait for the thread
        assert _ending._end.held == set()

    def test_that_are_at_work_are_waited_for(self, process: list[Any]) -> None:
        done: list[int] = []
        waiting = threading.Event()
        thread = self.started(
            "waiting.wait(0.1); done.append(len(devices))", waiting=waiting, done=done, devices=process
        )
        _ending._close_all()
        thread.join()
        assert (done, process[1:]) == ([1], ["released"])

    def test_that_are_held_are_not_waited_for(self, process: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(_ending, "_MOST_SECONDS", 5.0)
        coming = threading.Event()
        thread = self.started("coming.wait(); hold()", coming=coming, hold=_ending.hold)
        slept: list[float] = []

        def sleep(seconds: float) -> None:
            slept.append(seconds)
            coming.set()
            threading.Event().wait(seconds if seconds == 1e-3 else 0.3)

        monkeypatch.setattr(_ending.time, "sleep", sleep)
        _ending._close_all()
        assert process[1:] == ["released"]
        assert slept.count(1e-3) < 200
        thread.join()

    def test_that_stay_at_work_are_left(self, process: list[Any]) -> None:
        ended = threading.Event()
        self.started("ended.wait()", ended=ended)
        _ending._close_all()
        ended.set()
        assert process[1:] == ["released"]


def test_what_is_left_is_released_whatever_fails(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from gemmport.backends import _ownership  # noqa: PLC0415 - which is no interface

    released: list[str] = []
    memory = [Memory(None, 0, 0) for _ in range(3)]
    actions: list[Callable[[], object]] = [
        lambda: released.append("first"),
        lambda: 1 / 0,
        lambda: released.append("last"),
    ]
    import weakref  # noqa: PLC0415

    known = {weakref.ref(one): ("a device", action) for one, action in zip(memory, actions, strict=True)}
    monkeypatch.setattr(_ownership, "owned", known)
    _ownership.release_all()
    assert (released, known) == (["first", "last"], {})
    assert caplog.messages == ["memory of a device is not released"]
