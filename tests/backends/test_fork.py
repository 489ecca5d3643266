"""A process that is forked off one that used a device computes right or says that it cannot; it never hangs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass, field

import pytest

import gemmport as gp
from gemmport.backends import _fork

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")

FORKING = """
import gc, multiprocessing, os, signal, sys, threading, time
import numpy as np
import gemmport as gp

backend = gp.get_backend(sys.argv[1], sys.argv[2])
a = np.ones((64, 64), np.float32)
x, y = backend.asarray(a), backend.asarray(a)
backend.synchronize()

def product():
    assert (gp.matmul(a, a, kernel="naive", device=backend.device) == 64).all()

def numbers():
    assert (x.get() == 1).all()

def new_array():
    backend.asarray(a).get()

def opened_again():
    backend.close()
    gp.get_backend(sys.argv[1], sys.argv[2]).asarray(a).get()

def closed():
    x.release()
    backend.close()

def collected():
    global x, y, backend
    del x, y, backend
    gc.collect()

def child(work, leave=os._exit):
    pid = os.fork()
    if pid == 0:
        signal.alarm(20)
        try:
            work()
        except gp.ForkError as error:
            print(error)
            sys.stdout.flush()
            leave(3)
        leave(0)
    print(work.__name__, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)

def busy():
    while True:
        backend.asarray(a).get()
"""


def told_by(script: str, backend: gp.Backend) -> dict[str, int]:
    """The exit status of each child of a script, by what it did; 3 is ForkError, and -14 one that hung."""
    command = [sys.executable, "-c", FORKING + script, backend.name, backend.device.selector]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 0, done.stderr
    lines = [line.rpartition(" ") for line in done.stdout.splitlines()]
    errors = [line for line in done.stdout.splitlines() if "must not be used in this process" in line]
    statuses = {name: int(status) for name, _, status in lines if name.isidentifier()}
    assert len(errors) == sum(status == "3" for _, _, status in lines)
    assert all("get_context('spawn') or 'forkserver'" in error for error in errors)
    return statuses


@pytest.mark.every_runtime
def test_a_child_of_a_process_at_rest_goes_on_or_says_that_it_cannot(backend: gp.Backend) -> None:
    """It goes on where that was seen to work (`_fork`); what it inherits is closed and collected without a word."""
    script = """
if backend.survives_forks:
    large = backend.asarray(np.ones((300, 300), np.float32))
    enqueued = [gp.gemm(large, large, kernel="naive") for _ in range(20)]
for work in (numbers, new_array, opened_again, closed, collected):
    child(work)
child(collected, leave=sys.exit)
"""
    status = 0 if backend.survives_forks else 3
    assert told_by(script, backend) == {
        "numbers": status, "new_array": status, "opened_again": status, "closed": 0, "collected": 0
    }  # fmt: skip


@pytest.mark.processes
@pytest.mark.every_runtime
def test_a_child_of_a_process_with_a_thread_at_work_says_that_it_cannot(backend: gp.Backend) -> None:
    script = """
threading.Thread(target=busy, daemon=True).start()
for _ in range(3):
    time.sleep(0.01)
    for work in (numbers, opened_again, closed, collected):
        child(work)
os._exit(0)
"""
    assert told_by(script, backend) == {"numbers": 3, "opened_again": 3, "closed": 0, "collected": 0}


@pytest.mark.processes
@pytest.mark.every_runtime
def test_products_are_computed_or_refused_in_children(backend: gp.Backend) -> None:
    script = """
product()
child(product)
with multiprocessing.get_context("fork").Pool(2) as pool:
    try:
        pool.apply(product)
        print("pool 0")
    except gp.ForkError as error:
        print(error)
        print("pool 3")
"""
    status = 0 if backend.survives_forks else 3
    assert told_by(script, backend) == {"product": status, "pool": status}


@pytest.mark.processes
@pytest.mark.every_runtime
def test_a_child_of_a_process_that_used_nothing_uses_what_it_likes(backend: gp.Backend) -> None:
    script = """
import gemmport as gp
import os, signal, sys
import numpy as np
pid = os.fork()
if pid == 0:
    signal.alarm(60)
    backend = gp.get_backend(sys.argv[1], sys.argv[2])
    os._exit(0 if (backend.asarray(np.ones(5)).get() == 1).all() else 1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""
    command = [sys.executable, "-c", script, backend.name, backend.device.selector]
    assert subprocess.run(command, check=False, timeout=100).returncode == 0


@dataclass(eq=False)
class Device:
    """A device of no runtime, and what became of it."""

    survives_forks: bool
    name: str = "made-up"
    closed: bool = False
    did: list[str] = field(default_factory=list)

    def synchronize(self) -> None:
        self.did.append("waited")

    def leave(self) -> object:
        self.closed = True
        return self


@pytest.mark.parametrize(("survives", "thread_at_work"), [(True, False), (True, True), (False, False)])
def test_who_goes_on(monkeypatch: pytest.MonkeyPatch, survives: bool, thread_at_work: bool) -> None:
    """The same of any backend, as CUDA, whose runtime never survives."""
    monkeypatch.setattr(_fork, "_process", _fork._Process())
    waiting = threading.Event()
    if thread_at_work:
        scope = {"__name__": "gemmport.of_a_test"}
        exec("def work(event): event.wait()", scope)  # a frame of a module of ours
        thread = threading.Thread(target=scope["work"], args=(waiting,), daemon=True)  # type: ignore[arg-type]
        thread.start()
    device, closed = Device(survives), Device(survives, closed=True)
    for one in (device, closed):
        _fork.opened(one)
    _fork.started("made-up")
    _fork.check("made-up", "it", survives=survives)
    _fork._before()
    waiting.set()
    _fork._after_in_child()
    goes_on = survives and not thread_at_work
    assert (device.closed, _fork.is_inherited("made-up")) == (not goes_on, True)
    assert (device.did, closed.did) == (["waited"] if survives else [], [])
    if goes_on:
        _fork.check("made-up", "it", survives=True)
        _fork.started("made-up")
        return
    with pytest.raises(gp.ForkError, match=r"^it must not be used in this process; it was forked off one in which"):
        _fork.check("made-up", "it", survives=survives)
    _fork.check("another", "it", survives=False)


def test_a_process_that_is_forked_off_twice_keeps_what_it_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_fork, "_process", _fork._Process(at_rest=False))
    _fork.started("made-up")
    _fork._after_in_child()
    for again in ("made-up", "another"):
        if again == "another":
            _fork._process.started.add(again)
        _fork._before()
        _fork._after_in_child()
        with pytest.raises(gp.ForkError, match="while another thread was at work there"):
            _fork.started(again)


@pytest.mark.processes
def test_a_child_that_hangs_would_be_seen() -> None:
    imports, _, rest = FORKING.partition("backend = ")
    script = imports + rest[rest.index("def child") :].replace("alarm(20)", "alarm(1)")
    done = subprocess.run(
        [sys.executable, "-c", script + "child(lambda: time.sleep(60))"], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"<lambda> {-signal.SIGALRM}\n"
