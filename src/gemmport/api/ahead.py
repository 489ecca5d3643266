"""Programs made ahead by several processes: compilers and Python use one core in each."""

from __future__ import annotations

import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

from gemmport.api.prepare import prepare
from gemmport.backends.base import Backend
from gemmport.backends.objects import ProgramCounts
from gemmport.core.device import DeviceInfo
from gemmport.core.errors import DeviceMemoryError, GemmportError, LaunchError
from gemmport.core.problem import GemmProblem
from gemmport.execution.selection import get_backend
from gemmport.runtime.cache import check_writable
from gemmport.runtime.child_processes import Conversation
from gemmport.runtime.host_cpu import usable_cores

LIMIT = 600.0
"""Seconds for one answer of a process."""

FEW = 4
"""Products or programs for which no process is started: that takes half a second on a CPU, and one or two on a GPU."""

_Waiting: TypeAlias = "tuple[int, Mapping[str, Any]]"
"""Its number, and what a process is told."""


@dataclass(frozen=True)
class Preparation:
    """What came of `prepare` of a problem on a device.

    Attributes:
        kernels: that compute it.
        programs: how it came to the programs of these.
        refusal: why it is not prepared; empty where it is.
        short: whether the device's memory was too small for it.
    """

    kernels: Sequence[str]
    programs: ProgramCounts
    seconds: float
    refusal: str = ""
    short: bool = False

    @classmethod
    def of(cls, problem: GemmProblem, device: DeviceInfo) -> Preparation:
        """Prepares a problem in this process; what is refused is told."""
        start = time.perf_counter()
        counts = get_backend(device=device).program_counts
        before = ProgramCounts(**asdict(counts))
        kernels: Sequence[str] = ()
        refusal, short = "", False
        try:
            kernels = list(dict.fromkeys(plan.variant for plan in prepare(problem, device)))
        except GemmportError as error:
            refusal, short = str(error), isinstance(error, DeviceMemoryError)
        return cls(kernels, counts - before, time.perf_counter() - start, refusal, short)


def prepare_all(
    tasks: Sequence[tuple[GemmProblem, DeviceInfo]], jobs: int | None = None, progress: Callable[[int], None] = lambda _: None
) -> list[Preparation]:  # fmt: skip
    """`prepare` of many problems, by several processes at once: what they compile, later processes find on disk.

    A process that crashes is replaced, and its problem is refused. What had too little memory beside others is tried again
    alone.

    Args:
        jobs: processes; None for one for each core, as long as each has some problems. One is this process.
        progress: told how many are done.
    """
    jobs = min(usable_cores(), len(tasks) // FEW) if jobs is None else min(jobs, len(tasks))
    found: dict[int, Preparation] = {}
    if jobs > 1:
        told = [{"device": device.to_dict(), "problem": problem.to_dict()} for problem, device in tasks]
        for number, answer in _answers(told, jobs):
            found[number] = Preparation(
                answer.get("kernels", ()), ProgramCounts(**answer.get("programs", {})), answer.get("seconds", 0.0),
                answer.get("refusal", ""), answer.get("short", False),
            )  # fmt: skip
            progress(len(found))
    for number, task in enumerate(tasks):
        if number not in found or found[number].short:
            found[number] = Preparation.of(*task)
            progress(len(found))
    return [found[number] for number in range(len(tasks))]


def compile_ahead(backend: Backend, sources: Sequence[str], progress: Callable[[str], None]) -> None:
    """Has other processes compile the programs of sources that are neither in memory nor on disk; better ones are waited for.

    Where there are few of them, or the cache cannot be written, nothing is done. What a process refuses is left to whoever uses
    it.

    Args:
        progress: gets a text that says what is being done.
    """
    missing = [source for source in dict.fromkeys(sources) if not backend.has_best(source)]
    jobs = min(usable_cores(), len(missing))
    if len(missing) <= FEW or jobs < 2:
        return
    try:
        check_writable()
    except (GemmportError, OSError):
        return

    def tell(done: int) -> None:
        progress(f"compiling for {backend.device.label}: {done} of {len(missing)}")

    told = [{"device": backend.device.to_dict(), "source": source} for source in missing]
    tell(0)
    with suppress(LaunchError):  # it can be done without
        for done, _ in enumerate(_answers(told, jobs), 1):
            tell(done)


def _answers(tasks: Sequence[Mapping[str, Any]], jobs: int) -> Iterator[tuple[int, dict[str, Any]]]:
    """What processes answer to tasks, with the number of the task, as they are done. Leaving it ends the processes.

    Raises:
        LaunchError: Python does not start.
    """
    with Pool(jobs) as pool:
        for task in tasks:
            pool.ask(task)
        for _ in tasks:
            answer = pool.hear(None)
            assert answer is not None  # it waits for ever
            yield answer


class Pool:
    """Processes of `gemmport.api.ahead_worker`, which answer tasks as they come. Leaving the block ends them."""

    def __init__(self, jobs: int, limit: float = LIMIT) -> None:
        """Starts the processes.

        Args:
            limit: seconds for one answer.

        Raises:
            LaunchError: Python does not start.
        """
        self._waiting: queue.SimpleQueue[_Waiting | None] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[tuple[int, dict[str, Any]]] = queue.SimpleQueue()
        self._asked = 0
        self._workers: list[_Worker] = []
        try:
            for _ in range(jobs):
                self._workers.append(_Worker(self._waiting, self._done, limit))
                self._workers[-1].start()
        except BaseException:
            self.close()
            raise

    def ask(self, task: Mapping[str, Any]) -> int:
        """Gives them one more task; its number, counted from 0."""
        self._waiting.put((self._asked, task))
        self._asked += 1
        return self._asked - 1

    def hear(self, seconds: float | None) -> tuple[int, dict[str, Any]] | None:
        """The number of a task that is done, and the answer; None where none is for so many seconds. None waits for ever."""
        try:
            return self._done.get(timeout=seconds)
        except queue.Empty:
            return None

    def close(self) -> None:
        """Ends the processes, whatever they are at."""
        for _ in self._workers:
            self._waiting.put(None)
        for worker in self._workers:  # all, before one is waited for: a GPU's driver takes long to let go of a process
            worker.kill()
        for worker in self._workers:
            worker.end()

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Worker(threading.Thread):
    """A thread that has tasks done by a process of its own, and by another where that crashes."""

    def __init__(
        self,
        waiting: queue.SimpleQueue[_Waiting | None],
        done: queue.SimpleQueue[tuple[int, dict[str, Any]]],
        limit: float,
    ) -> None:
        super().__init__(daemon=True)
        self._waiting, self._done, self._limit = waiting, done, limit
        self._lock = threading.Lock()
        self._ended = False
        self._process: Conversation | None = self._new()

    def run(self) -> None:
        while not self._ended and (asked := self._waiting.get()) is not None:
            number, task = asked
            self._done.put((number, self._answer(task)))

    def kill(self) -> None:
        """Has the process end, whatever it is at, and does not wait for that."""
        with self._lock:
            self._ended = True
            if self._process is not None:
                self._process.kill()

    def end(self) -> None:
        """Ends the process, whatever it is at."""
        self.kill()
        with self._lock:
            process, self._process = self._process, None
        if process is not None:
            process.end()
        if self.is_alive():
            self.join(5)  # it may be asking how the process ended
        if process is not None:
            process.close()

    def _answer(self, task: Mapping[str, Any]) -> dict[str, Any]:
        try:
            with self._lock:
                if self._process is None and not self._ended:
                    self._process = self._new()
                process = self._process
            if process is None:
                return {"refusal": "interrupted"}
            process.tell(task)
            answer = process.hear(self._limit)
            if answer is not None:
                return answer
            raise LaunchError(process.last_words())
        except (GemmportError, TimeoutError, OSError) as error:
            with self._lock:
                process, self._process = self._process, None
            if process is not None:
                process.close()
            return {"refusal": str(error)}

    @staticmethod
    def _new() -> Conversation:
        # Nothing is imported from where the user stands.
        command = [sys.executable, "-m", "gemmport.api.ahead_worker"]
        return Conversation(command, {**os.environ, "PYTHONSAFEPATH": "1"})
