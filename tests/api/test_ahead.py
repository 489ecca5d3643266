"""Programs that are made ahead by several processes: what they make, and what becomes of one that crashes or is interrupted."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import gemmport as gp
from gemmport.api import ahead
from gemmport.runtime.child_processes import Conversation

TASKS = [gp.GemmProblem.create(8, n, 3, dtype="float32") for n in (5, 7)]

TOO_LARGE = gp.GemmProblem.create(2_000_000, 2_000_000, 1, batch=9)


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of gemmport, to which PoCL leaves its programs, too."""
    monkeypatch.setenv("GEMMPORT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("POCL_KERNEL_CACHE", "0")


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Conversation]:
    """The processes that are started."""
    found: list[Conversation] = []
    new = ahead._Worker._new
    monkeypatch.setattr(ahead._Worker, "_new", staticmethod(lambda: found.append(new()) or found[-1]))
    return found


def test_problems_are_prepared_in_other_processes_and_told_in_order(best_backend: gp.Backend, started: Any) -> None:
    device = best_backend.device
    before = replace(best_backend.program_counts)
    told: list[int] = []
    one, refused, other = ahead.prepare_all([(p, device) for p in (TASKS[0], TOO_LARGE, TASKS[1])], 2, told.append)
    assert best_backend.program_counts == before
    assert (len(started), told[:3]) == (2, [1, 2, 3])
    assert (bool(refused.refusal), one.refusal, other.refusal) == (True, "", "")
    assert list(one.kernels) == [gp.plan(TASKS[0], device).variant]
    assert one.programs.compiled + other.programs.compiled > 0
    assert all(process._process.poll() is not None for process in started)


def test_one_that_crashes_is_replaced(best_backend: gp.Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    new, started = ahead._Worker._new, []

    def crashing() -> Conversation:
        started.append(None)
        return Conversation([sys.executable, "-c", "input(); exit(7)"]) if len(started) < 3 else new()

    monkeypatch.setattr(ahead._Worker, "_new", staticmethod(crashing))
    found = ahead.prepare_all([(problem, best_backend.device) for problem in (*TASKS, *TASKS)], 2)
    assert sorted(bool(one.refusal) for one in found) == [False, False, True, True]
    assert all("status 7" in one.refusal for one in found if one.refusal)


def test_an_interruption_ends_the_processes(best_backend: gp.Backend, started: list[Conversation]) -> None:
    def interrupt(_: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ahead.prepare_all([(problem, best_backend.device) for problem in (*TASKS, *TASKS)], 2, interrupt)
    assert [process._process.poll() is not None for process in started] == [True, True]


def test_all_are_ended_before_one_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU's driver takes a third of a second to let go of a process, and a pool may have one for each core."""
    calls: list[str] = []
    for name in ("kill", "end"):
        method = getattr(Conversation, name)
        monkeypatch.setattr(
            Conversation, name, lambda self, name=name, method=method: (calls.append(name), method(self))
        )
    with ahead.Pool(3):
        pass
    assert calls[:3] == ["kill"] * 3
    assert calls.count("end") >= 3


def test_an_interruption_leaves_who_hears_of_it_in_peace(
    best_backend: gp.Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    last_words, told = Conversation.last_words, []

    def slow(process: Conversation) -> str:
        time.sleep(0.2)
        told.append(last_words(process))
        return told[-1]

    def interrupt(_: int) -> None:
        raise KeyboardInterrupt

    problems = [replace(TASKS[0], alpha=number) for number in range(2, 12)]
    monkeypatch.setattr(Conversation, "last_words", slow)
    for _ in range(9):  # a process that is between two problems has no last words
        with pytest.raises(KeyboardInterrupt):
            ahead.prepare_all([(problem, best_backend.device) for problem in problems], 2, interrupt)
        if told:
            break
    assert told
    assert all("SIGKILL" in one for one in told)


@pytest.mark.parametrize("count", [ahead.FEW, ahead.FEW + 1])
def test_programs_are_compiled_into_the_cache_where_many_are_missing(
    best_backend: gp.Backend, started: list[Conversation], count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ahead, "usable_cores", lambda: 2)
    qualifier = "kernel" if best_backend.language == "opencl" else 'extern "C" __global__'
    sources = [f"{qualifier} void number_{number}(const int unused) {{}}\n" for number in range(count)]
    sources[-1] = "this does not compile"
    told: list[str] = []
    ahead.compile_ahead(best_backend, [*sources, *sources], told.append)
    assert [best_backend.has_best(source) for source in sources] == [count > ahead.FEW] * (count - 1) + [False]
    progress = [f"compiling for {best_backend.device.label}: {done} of {count}" for done in range(count + 1)]
    assert told == (progress if count > ahead.FEW else [])
    assert len(started) == (2 if count > ahead.FEW else 0)
    with pytest.raises(gp.CompileError):
        best_backend.program(sources[-1])
