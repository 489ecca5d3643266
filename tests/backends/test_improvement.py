"""Better programs, made in the background: who waits for them, who takes them, and what happens where they do not come."""

from __future__ import annotations

import json
import logging
import math
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gemmport as gp
from absences import CUDA_COMPILER, needs
from gemmport.backends import _improvement, _programs, _rescheduler, _sass
from gemmport.backends._improvement import Improvement, Left
from gemmport.backends._nvrtc import compile_cuda
from gemmport.backends._programs import Programs
from gemmport.backends._rescheduler import Rescheduler
from gemmport.backends.objects import Program
from gemmport.bench import calls, libraries
from gemmport.bench.standings import Workload
from gemmport.core.errors import CompileError, LaunchError
from gemmport.core.plan import Launch
from gemmport.execution.executor import BoundPlan, bind, sources_of
from gemmport.execution.prepared import Prepared
from gemmport.execution.selection import share_backend
from gemmport.kernels import simt
from gemmport.runtime import cache, locks
from test_sass import compiled
from test_strangers import DEVICE, Stranger

PTX = b"// PTX"  # which is no cubin, and stays as it is


def comes(key: str) -> bool:
    """Whether a program is in the cache after a while."""
    end = time.monotonic() + 60
    while cache.load_program(key) is None and time.monotonic() < end:
        time.sleep(0.05)
    return cache.load_program(key) is not None


class TestTheProcess:
    @pytest.fixture
    def rescheduler(self) -> Iterator[Rescheduler]:
        found = Rescheduler()
        yield found
        found.end()

    @needs(CUDA_COMPILER)
    @pytest.mark.machine_code
    def test_reschedules_as_this_one_would(self, rescheduler: Rescheduler) -> None:
        assert rescheduler.rescheduled(compiled(), 1) == _sass.rescheduled(compiled(), 1)

    @needs(CUDA_COMPILER)
    @pytest.mark.machine_code
    def test_compiles_as_this_one_would(self, rescheduler: Rescheduler) -> None:
        source = 'extern "C" __global__ void f(int *x) { x[0] = 1; }'
        cubin = rescheduler.compiled(source, "sm_90")
        assert _sass.is_cubin(cubin)
        assert len(cubin) == len(compile_cuda(source, "sm_90"))  # which holds the time
        with pytest.raises(LaunchError, match="CompileError"):
            rescheduler.compiled("no C", "sm_90")

    def test_is_one_for_all_programs_and_ends_when_it_is_not_needed(self, rescheduler: Rescheduler) -> None:
        assert rescheduler.rescheduled(PTX, 1) == PTX
        process = rescheduler._conversation._process
        assert rescheduler.rescheduled(PTX + b"2", 1) == PTX + b"2"
        assert rescheduler._conversation._process is process
        rescheduler.end()
        assert process.poll() is not None

    @pytest.mark.skipif(not hasattr(os, "nice"), reason="this system has no priorities")
    def test_lets_others_go_first(self, rescheduler: Rescheduler) -> None:
        rescheduler.rescheduled(PTX, 1)
        assert os.getpriority(os.PRIO_PROCESS, rescheduler._conversation._process.pid) >= min(os.nice(0) + 10, 19)

    @pytest.mark.parametrize(
        ("program", "told"),
        [
            ("import os; os.abort()", "SIGABRT"),
            ("raise SystemExit('no')", "status 1: no"),
            ("import time; time.sleep(60)", "TimeoutError"),
            ("print('not JSON', flush=True); import time; time.sleep(60)", "TimeoutError"),
            ("print(5)", "TypeError"),
            ("print('{}')", "KeyError"),
            ('print(\'{"cubin": "!"}\')', "Error"),
            ('print(\'{"cubin": "AAAA"}\')', "6 bytes; got 3"),
        ],
        ids=["crash", "end", "hang", "noise", "number", "nothing", "no base64", "short"],
    )
    def test_may_fail_and_the_next_is_another(
        self, rescheduler: Rescheduler, monkeypatch: pytest.MonkeyPatch, program: str, told: str
    ) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(_rescheduler, "LIMIT", 1.0)
            patch.setattr(_rescheduler, "command", lambda: [sys.executable, "-c", program])
            with pytest.raises(LaunchError, match=told):
                rescheduler.rescheduled(PTX, 1)
            rescheduler.end()
        assert rescheduler.rescheduled(PTX, 1) == PTX

    def test_imports_nothing_from_where_it_is_started(
        self, rescheduler: Rescheduler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "numpy.py").write_text("raise SystemExit('of the folder')")
        monkeypatch.chdir(tmp_path)
        assert rescheduler.rescheduled(PTX, 1) == PTX

    @pytest.mark.parametrize("program", ["", "/usr/bin/uwsgi"])
    def test_is_pythons_own_program(self, monkeypatch: pytest.MonkeyPatch, program: str) -> None:
        monkeypatch.setattr(sys, "executable", program)
        with pytest.raises(LaunchError, match=r"sys\.executable must be Python's"):
            _rescheduler.command()

    def test_is_no_frozen_program(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Which would run the user's own main module."""
        monkeypatch.setattr(sys, "frozen", True, raising=False)
        with pytest.raises(LaunchError):
            _rescheduler.command()

    def test_is_not_started_any_more_at_the_end(self, rescheduler: Rescheduler) -> None:
        rescheduler.end(for_good=True)
        with pytest.raises(LaunchError, match="ended"):
            rescheduler.rescheduled(PTX, 1)
        assert rescheduler._conversation is None


class TestWhatIsLeft:
    @pytest.fixture
    def folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.setenv("GEMMPORT_CACHE_DIR", str(tmp_path))
        return tmp_path

    def test_goes_to_a_process_that_finds_it_in_the_cache(self, folder: Path) -> None:
        keys = [cache.program_key(name) for name in "abcd"]
        cache.store_program(keys[0], PTX)
        _rescheduler.leave([Left(keys[3], keys[2], 1), Left(keys[0], keys[1], 1)])  # of the first, nothing is there
        assert comes(keys[1])
        assert cache.load_program(keys[1]) == PTX
        assert cache.load_program(keys[2]) is None

    def test_is_done_after_the_end_of_the_process(self, folder: Path) -> None:
        compiled, better = cache.program_key("a"), cache.program_key("b")
        cache.store_program(compiled, PTX)
        script = (
            "import sys\n"
            "from gemmport.backends import _improvement\n"
            "from gemmport.backends._improvement import Improvement, Left\n"
            "work = lambda: _improvement.rescheduled(b'// PTX', 1)\n"  # of which the process sees no end
            "_improvement.submit(Improvement(work, Left(*sys.argv[1:], 1)))\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", script, compiled, better], capture_output=True, text=True, check=False, timeout=60
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert comes(better)

    @needs(CUDA_COMPILER)
    @pytest.mark.machine_code
    def test_may_have_to_be_compiled_first(self, folder: Path) -> None:
        keys = [cache.program_key(name) for name in "abc"]
        source, text = 'extern "C" __global__ void f(int *x) { x[0] = 1; }', "// " + "long " * 50_000
        plain, asked = Left(keys[0], keys[0], 0, source, "sm_90"), Left(keys[1], keys[2], 1, source + text, "sm_90")
        _rescheduler.leave([plain, asked])
        assert comes(keys[2])
        assert all(_sass.is_cubin(cache.load_program(key) or b"") for key in keys)

    def test_is_found_in_a_relative_folder(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(folder.parent)
        monkeypatch.setenv("GEMMPORT_CACHE_DIR", folder.name)
        cache.store_program(cache.program_key("a"), PTX)
        _rescheduler.leave([Left(cache.program_key("a"), cache.program_key("b"), 1)])
        assert comes(cache.program_key("b"))

    def test_is_what_was_not_done_when_the_process_ends(self, monkeypatch: pytest.MonkeyPatch) -> None:
        left: list[Any] = []
        monkeypatch.setattr(_rescheduler, "leave", left.extend)
        improver, started, going = _improvement._Improver(), threading.Event(), threading.Event()

        def hangs() -> None:
            started.set()
            going.wait(60)
            raise LaunchError("stopped")

        done = Improvement(lambda: None, Left("done", "", 1))
        at_work, waiting = Improvement(hangs, Left("at work", "", 1)), Improvement(lambda: None, Left("waiting", "", 2))
        on_a_device = Improvement(lambda: None)
        for one in (done, at_work, waiting, on_a_device):
            improver.submit(one)
        assert started.wait(60)
        monkeypatch.setattr(improver.rescheduler, "end", lambda **_: going.set())
        improver.end()
        assert left == [at_work.left, waiting.left]
        late = Improvement(lambda: None)
        improver.submit(late)
        assert all(one.done.is_set() for one in (done, at_work, waiting, on_a_device, late))
        assert not improver._thread.is_alive()

    def test_nothing_is_done_twice(self, folder: Path) -> None:
        compiled, better = cache.program_key("a"), cache.program_key("b")
        cache.store_program(compiled, PTX)
        cache.store_program(better, b"better")
        subprocess.run(
            [*_rescheduler.command(), _rescheduler.LEFT],
            input=json.dumps([(compiled, better, 1)]), text=True, check=True, timeout=60, env=_rescheduler.environment(),
        )  # fmt: skip
        assert cache.load_program(better) == b"better"


def test_where_no_thread_starts_nobody_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """As at the end of Python."""

    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    improver, one = _improvement._Improver(), Improvement(lambda: None)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        improver.submit(one)
    assert one.done.is_set()


def test_the_thread_ends_when_there_is_nothing_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_improvement, "_IDLE_SECONDS", 0.05)
    improver = _improvement._Improver()
    for _ in range(2):
        one = Improvement(lambda: None)
        improver.submit(one)
        assert one.done.wait(60)
        thread = improver._thread
        if thread is not None:
            thread.join(60)
        assert improver._thread is None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_process_that_is_forked_off_has_a_thread_of_its_own() -> None:
    script = (
        "import os, threading\n"
        "from gemmport.backends import _improvement\n"
        "from gemmport.backends._improvement import Improvement\n"
        "gate = threading.Event()\n"
        "first, second = Improvement(lambda: gate.wait(60)), Improvement(lambda: None)\n"
        "_improvement.submit(first)\n"
        "pid = os.fork()\n"
        "if pid == 0:\n"
        "    assert first.done.is_set()\n"  # nobody waits for what the parent does
        "    _improvement.submit(second)\n"
        "    os._exit(0 if second.done.wait(60) else 1)\n"
        "assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0\n"
        "assert not first.done.is_set()\n"
        "gate.set()\n"
        "assert first.done.wait(60)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr


# A device whose programs have better ones: the same with one kernel more, which are made when a gate opens.

BETTER = {
    "opencl": "\n__kernel void better(__global int *x) { x[0] = 1; }\n",
    "cuda": '\nextern "C" __global__ void better(int *x) { x[0] = 1; }\n',
}


@pytest.fixture
def improving(best_backend: gp.Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], Any]]:
    """Opens such a device; its cache is empty at first."""
    monkeypatch.setenv("GEMMPORT_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(_improvement, "_improver", _improvement._Improver())
    Base: Any = type(best_backend)
    opened: list[Any] = []

    class Improving(Base):  # type: ignore[misc]
        def __init__(self, device: gp.DeviceInfo) -> None:
            super().__init__(device)
            self.gate, self.fault, self.made = threading.Event(), None, 0

        def _keeps_programs(self) -> bool:
            return False

        def _rework(self, source: str) -> tuple[str, ...]:
            return ("better",)

        def _reworked(self, program: Program) -> bytes:
            assert self.gate.wait(60)
            self.made += 1
            if self.fault is not None:
                raise self.fault
            binary: bytes = self.compile(program.source + BETTER[self.language]).binary
            return binary

        def _left(self, *_: object) -> None:
            return None

    def open_one() -> Any:
        opened.append(Improving(best_backend.device))
        return opened[-1]

    yield open_one
    for each in opened:
        each.gate.set()
        each.settle_programs()
        each.close()
    _improvement._improver.end()


def numbers() -> np.ndarray:
    return np.random.default_rng(3).integers(-4, 5, (40, 40)).astype(np.float32)


def prepared_on(backend: Any) -> Prepared:
    (found,) = backend.prepared.values()
    assert isinstance(found, Prepared)
    return found


def programs_of(found: Prepared) -> list[Program]:
    return [call.program for bound in found.idle for call in bound.calls]


def settle(backend: Any) -> None:
    """As `settle_programs`, and what failed has been logged, which comes after."""
    backend.settle_programs()
    until_at_rest()


def until_at_rest() -> None:
    """Returns when nothing is compiled or improved beside callers, on any device."""
    end = time.monotonic() + 60
    while _improvement._improver.unfinished and time.monotonic() < end:
        time.sleep(0.01)
    assert not _improvement._improver.unfinished


def is_better(program: Program, backend: Any) -> bool:
    return program is not None and program is backend.program(program.source, at_once=True)


def test_the_first_product_does_not_wait_and_the_next_has_the_better_program(improving: Callable[[], Any]) -> None:
    backend = improving()
    a = backend.asarray(numbers())
    first = gp.matmul(a, a, kernel="naive").get()  # the gate is shut
    as_compiled = programs_of(prepared_on(backend))
    assert as_compiled
    assert backend.made == 0
    backend.gate.set()
    backend.settle_programs()
    assert not programs_of(prepared_on(backend))  # it binds anew
    out = backend.empty((40, 40), np.float32)
    np.testing.assert_array_equal(gp.matmul(a, a, out=out, kernel="naive").get(), first)
    better = programs_of(prepared_on(backend))
    assert len(better) == len(as_compiled)
    assert not set(map(id, better)) & set(map(id, as_compiled))
    assert all(is_better(program, backend) for program in better)
    np.testing.assert_array_equal(first, numbers() @ numbers())


def test_who_waits_for_some_programs_does_not_wait_for_others(improving: Callable[[], Any]) -> None:
    backend = improving()
    a = backend.asarray(numbers())
    gp.matmul(a, a, kernel="naive")
    (source, *_) = (program.source for program in programs_of(prepared_on(backend)))
    assert not backend.has_best(source)
    backend.settle_programs(["another"])  # the gate is shut
    assert backend.made == 0
    backend.gate.set()
    backend.settle_programs([source])
    assert backend.made >= 1
    assert backend.has_best(source)


def test_both_are_on_disk_and_the_next_process_takes_the_better(improving: Callable[[], Any]) -> None:
    backend = improving()
    a = backend.asarray(numbers())
    gp.matmul(a, a, kernel="naive")
    (as_compiled, *_) = programs_of(prepared_on(backend))
    # While there is no better one yet, another process finds what the compiler made, and does not compile.
    early = improving()
    early.program(as_compiled.source, at_once=True)
    assert (early.program_counts.compiled, early.program_counts.from_disk) == (0, 1)
    backend.gate.set()
    backend.settle_programs()
    early.gate.set()
    early.settle_programs()
    assert early.made == 0  # who was first did it
    later = improving()
    found = later.program(as_compiled.source)
    assert (later.program_counts.compiled, later.program_counts.from_disk) == (0, 1)
    assert found.binary == backend.program(as_compiled.source).binary != as_compiled.binary
    assert not later._programs.pending


def test_who_binds_a_plan_waits(improving: Callable[[], Any]) -> None:
    """As all do that measure or verify a kernel."""
    backend = improving()
    a = backend.asarray(numbers())
    plan = gp.plan(gp.GemmProblem.create(40, 40, 40), backend.device, kernel="naive")
    memory: Any = {"a": a.memory, "b": a.memory, "d": backend.empty((40, 40), np.float32).memory}
    bound: list[Any] = []
    thread = threading.Thread(target=lambda: bound.append(bind(plan, backend, memory)))
    thread.start()
    thread.join(0.5)
    assert not bound
    backend.gate.set()
    thread.join(60)
    assert all(is_better(call.program, backend) for call in bound[0].calls)
    assert backend.made == len({call.program.source for call in bound[0].calls})
    assert not backend._programs.pending


def test_what_is_at_work_does_not_come_back(improving: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    backend = improving()
    a = backend.asarray(numbers())
    gp.matmul(a, a, kernel="naive")
    found = prepared_on(backend)
    (bound,) = found.idle
    old = bound.calls[0].program
    relaunch = type(bound).relaunch

    def meanwhile(self: Any, *given: Any, **options: Any) -> None:
        backend.gate.set()
        backend.settle_programs()
        relaunch(self, *given, **options)

    with monkeypatch.context() as patch:
        patch.setattr(type(bound), "relaunch", meanwhile)
        gp.matmul(a, a, kernel="naive")
    gp.matmul(a, a, kernel="naive")
    assert programs_of(found)
    assert old not in programs_of(found)


def test_a_better_program_may_come_during_the_first_call(
    improving: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """When it has bound the other one, and is not known yet."""
    backend = improving()
    a = backend.asarray(numbers())
    relaunch = BoundPlan.relaunch

    def meanwhile(self: Any, *given: Any, **options: Any) -> None:
        backend.gate.set()
        backend.settle_programs()
        relaunch(self, *given, **options)

    with monkeypatch.context() as patch:
        patch.setattr(BoundPlan, "relaunch", meanwhile)
        gp.matmul(a, a, kernel="naive")
    gp.matmul(a, a, kernel="naive")
    programs = programs_of(prepared_on(backend))
    assert programs
    assert all(is_better(program, backend) for program in programs)


@pytest.mark.parametrize(
    "fault", [LaunchError("no"), OSError("no"), RuntimeError("no")], ids=lambda x: type(x).__name__
)
def test_where_none_comes_the_compilers_stays(
    improving: Callable[[], Any], caplog: pytest.LogCaptureFixture, fault: Exception
) -> None:
    backend = improving()
    backend.fault = fault
    backend.gate.set()
    a = backend.asarray(numbers())
    with caplog.at_level(logging.WARNING, "gemmport"):
        np.testing.assert_array_equal(gp.matmul(a, a, kernel="naive").get(), numbers() @ numbers())
        settle(backend)
        gp.matmul(a, a, kernel="naive")
        sources = [program.source for program in programs_of(prepared_on(backend))]
        for dtype in (np.float64, np.int32):
            small = backend.asarray(np.ones((8, 8), dtype))
            gp.matmul(small, small, kernel="naive")
        settle(backend)
    assert sources
    told = [record for record in caplog.records if "stays as it was compiled" in record.message]
    assert len(told) == (3 if type(fault) is RuntimeError else 1)  # which nobody expects
    again = improving()  # which tries again
    again.gate.set()
    program = again.program(sources[0])
    assert (again.program_counts.from_disk, again.made) == (1, 1)
    assert program.binary


def test_where_the_runtime_refuses_it_the_compilers_stays(
    improving: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = improving()
    a = backend.asarray(numbers())
    gp.matmul(a, a, kernel="naive")
    (old, *_) = programs_of(prepared_on(backend))

    def refuse(*_: object) -> None:
        raise CompileError("no")

    monkeypatch.setattr(backend, "load", refuse)
    backend.gate.set()
    assert backend.program(old.source) is old
    assert cache.cache_use().programs == 1  # no other process finds what this one could not load
    np.testing.assert_array_equal(gp.matmul(a, a, kernel="naive").get(), numbers() @ numbers())


def test_where_the_runtime_gives_no_binary_nothing_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither what is made beside the caller, nor what is done to it: the next device compiles, and is told of no fault."""
    monkeypatch.setenv("GEMMPORT_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(_improvement, "_improver", _improvement._Improver())
    monkeypatch.setattr(Stranger, "compiles_beside", True)
    monkeypatch.setattr(Stranger, "_rework", lambda *_: ("better",))
    monkeypatch.setattr(Stranger, "_compiled_beside", Stranger.compile)
    for make in (lambda device: device.make_later(["source"]), lambda device: device.program("source")):
        with Stranger(DEVICE) as first, Stranger(DEVICE) as second:
            make(first)
            settle(first)
            assert first.program_counts.compiled == 1
            assert [path for path in tmp_path.rglob("*") if path.is_file() and path.name != "lock"] == []
            assert second.program("source").source == "source"
            settle(second)
    assert caplog.text == ""
    _improvement._improver.end()


def test_closing_a_device_does_not_wait_for_better_programs(improving: Callable[[], Any]) -> None:
    backend = improving()
    a = backend.asarray(numbers())
    gp.matmul(a, a, kernel="naive")
    start = time.monotonic()
    backend.close()
    assert time.monotonic() - start < 30  # the gate waits for 60 s
    backend.gate.set()
    backend.settle_programs()
    with pytest.raises(LaunchError, match="closed"):
        gp.matmul(a, a, kernel="naive")


@pytest.fixture
def shared(improving: Callable[[], Any], best_backend: gp.Backend) -> Iterator[Any]:
    """Such a device, in the place of the one that all others take."""
    backend = improving()
    share_backend(backend)
    yield backend
    share_backend(best_backend)


def test_prepare_waits(shared: Any) -> None:
    threading.Timer(0.3, shared.gate.set).start()
    gp.prepare(gp.GemmProblem.create(40, 40, 40), shared.device, kernel="naive")
    assert shared.made
    assert not shared._programs.pending


def test_calls_are_timed_and_verified_with_the_better_program(shared: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    threading.Timer(0.3, shared.gate.set).start()
    judged: list[int] = []

    def check(self: Any, name: str, result: np.ndarray) -> Any:
        judged.append(len(shared._programs.pending))
        return judge(self, name, result)

    judge = calls._Product.check
    monkeypatch.setattr(calls._Product, "check", check)
    workload = Workload(gp.GemmProblem.create(40, 40, 40), "")
    (called,) = calls.run_calls([workload], [libraries.load("device", shared)], turns=1, seed=0)
    assert (called.status, called.reason) == ("ok", "")
    assert judged == [0] * len(judged)
    assert judged
    assert all(is_better(program, shared) for found in shared.prepared.values() for program in programs_of(found))


# Where programs can be made beside the caller, the first call takes programs that compile sooner.


@pytest.fixture
def hurrying(improving: Callable[[], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Such a device, whose plans have launches for the time being. What is made beside the caller waits for another gate."""
    monkeypatch.setattr(simt, "SUMS_SOON_COMPILED", 16)
    told = "TSM: 32, TSN: 32, TSK: 8, WM: 32, WN: 32, WPTM: 8, WPTN: 4, STAGES: 2"
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "tiles.yaml").write_text(
        f"schema: 1\ndescription: large tiles\nentries:\n  - name: all\n    match: {{}}\n    kernels:\n      simt: {{{told}}}\n"
    )
    monkeypatch.setenv("GEMMPORT_CONFIG_PATH", str(tmp_path / "own"))
    backend = improving()
    backend.gate.set()
    backend.compile_gate, backend.compile_fault, backend.beside = threading.Event(), None, []

    def beside(source: str) -> Any:
        assert backend.compile_gate.wait(60)
        if backend.compile_fault is not None:
            raise backend.compile_fault
        backend.beside.append(source)
        return backend.compile(source)

    monkeypatch.setattr(type(backend), "compiles_beside", True)
    monkeypatch.setattr(backend, "_compiled_beside", beside)
    yield backend
    backend.compile_gate.set()


def product_of(backend: Any, **more: Any) -> np.ndarray:
    a = backend.asarray(numbers())
    found: np.ndarray = gp.gemm(a, a, kernel="simt", **more).get()
    return found


def launches_of(found: Prepared) -> list[Sequence[Launch]]:
    return [bound.launches for bound in found.idle]


def test_the_first_product_takes_programs_that_compile_sooner(hurrying: Any) -> None:
    first = product_of(hurrying)  # both gates matter to what is to come alone
    found = prepared_on(hurrying)
    assert launches_of(found) == [found.plan.meanwhile]
    assert not hurrying.beside
    product_of(hurrying)
    assert launches_of(found) == [found.plan.meanwhile]
    hurrying.compile_gate.set()
    settle(hurrying)
    assert set(hurrying.beside) == set(sources_of(found.plan, hurrying))
    np.testing.assert_array_equal(product_of(hurrying), first)
    assert launches_of(found) == [found.plan.launches]
    assert all(is_better(program, hurrying) for program in programs_of(found))
    np.testing.assert_array_equal(first, numbers() @ numbers())


def test_a_product_that_reads_c_takes_no_program_without(hurrying: Any) -> None:
    """Before, while and after the program of both is made, in whichever order products come; -0.0 adds nothing, either."""
    c = np.full((40, 40), 3, np.float32)
    poison = np.full((40, 40), np.nan, np.float32)
    on_device = {"c": hurrying.asarray(c), "poison": hurrying.asarray(poison)}
    for _ in range(2):
        for name, beta in (("poison", 0.0), ("c", 2.0), ("poison", -0.0), ("c", 0.5)):
            wanted = numbers() @ numbers() + (beta * c if beta else 0)
            np.testing.assert_array_equal(product_of(hurrying, beta=beta, c=on_device[name]), wanted)
        hurrying.compile_gate.set()
        settle(hurrying)


def test_what_another_process_fails_to_compile_is_compiled_here(
    hurrying: Any, caplog: pytest.LogCaptureFixture
) -> None:
    hurrying.compile_fault = LaunchError("no")
    hurrying.compile_gate.set()
    first = product_of(hurrying)
    settle(hurrying)
    found = prepared_on(hurrying)
    np.testing.assert_array_equal(product_of(hurrying), first)
    assert launches_of(found) == [found.plan.launches]
    assert "stays as it was compiled" in caplog.text


def test_who_does_not_hurry_compiles_nothing_for_the_time_being(hurrying: Any, best_backend: gp.Backend) -> None:
    share_backend(hurrying)
    try:
        gp.prepare(gp.GemmProblem.create(40, 40, 40), hurrying.device, kernel="simt")
    finally:
        share_backend(best_backend)
    every = {source for found in hurrying.prepared.values() for source in sources_of(found.plan, hurrying)}
    assert hurrying.program_counts.compiled == len(every)
    assert not hurrying._programs.failed


def test_the_next_process_compiles_nothing_for_the_time_being(hurrying: Any, improving: Callable[[], Any]) -> None:
    hurrying.compile_gate.set()
    product_of(hurrying)
    settle(hurrying)
    later = improving()
    product_of(later)
    found = prepared_on(later)
    assert launches_of(found) == [found.plan.launches]
    assert later.program_counts.compiled == 0


# Some runtimes compile for callers more slowly while they compile beside them, which waits therefore.


class Clock:
    """Stands for the module `time`. Time passes where it is waited for, and nowhere else."""

    def __init__(self) -> None:
        self.now = 0.0
        self.due: list[tuple[float, Callable[[], object]]] = []
        """When, and what happens then; the earliest first."""

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        while self.due and self.due[0][0] <= self.now:
            self.due.pop(0)[1]()

    def seconds_of(self, work: Callable[[], object]) -> float:
        begun = self.now
        work()
        return self.now - begun


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    until_at_rest()  # what other tests left at work would move this clock, too
    made = Clock()
    monkeypatch.setattr(_programs, "time", made)
    return made


@pytest.fixture
def programs(clock: Clock) -> Programs:
    """Those of a device whose callers have compiled nothing for long."""
    return Programs(last_for_caller=-math.inf)


def about(seconds: float) -> Any:
    return pytest.approx(seconds, abs=2 * _programs._LOOKS_AGAIN)


def test_what_is_compiled_beside_callers_waits_until_they_have_launched(programs: Programs, clock: Clock) -> None:
    assert clock.seconds_of(programs._await_callers) == 0
    with ExitStack() as caller:
        caller.enter_context(programs._for_caller())
        clock.due = [(3.0, caller.close)]
        assert clock.seconds_of(programs._await_callers) == about(3.0 + _programs._PAUSE)
    programs.last_for_caller = clock.now
    assert clock.seconds_of(programs._await_callers) == about(_programs._PAUSE)
    programs.last_for_caller, programs.awaited = clock.now, 1
    assert clock.seconds_of(programs._await_callers) == 0


def test_callers_that_go_on_compiling_are_not_waited_for_without_end(programs: Programs, clock: Clock) -> None:
    with programs._for_caller():
        assert clock.seconds_of(programs._await_callers) == about(_programs._LONGEST_PAUSE)


def test_the_end_of_the_process_ends_the_pause(programs: Programs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_improvement._improver, "_ended", True)
    with programs._for_caller(), pytest.raises(LaunchError, match="at its end"):
        programs._await_callers()


def test_other_processes_do_not_wait_for_the_pause(hurrying: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lock between processes is taken when it is over."""
    order, taken = [], locks.exclusive
    monkeypatch.setattr(type(hurrying), "_compiles_after_callers", True)
    monkeypatch.setattr(Programs, "_await_callers", lambda self: order.append("pause"))

    @contextmanager
    def exclusive(*where: Any) -> Iterator[None]:
        order.append("lock")
        with taken(*where):
            yield

    monkeypatch.setattr(_programs.locks, "exclusive", exclusive)
    hurrying.compile_gate.set()
    product_of(hurrying)
    settle(hurrying)
    assert order[:2] == ["pause", "lock"]
