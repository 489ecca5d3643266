"""The process in which candidates are compiled, verified and timed: whatever a runtime does to it, the tuner goes on.

It is told {"device": …, "imports": […]}, opens the device and tells {"runtime": …}. Then it is told what to do, again and
again, until nothing more is said:

- {"problem": …, "candidate": [kernel, parameters], "repeat": n}: it tells {"built": seconds}, {"right": true} and
  {"look": seconds}, each as soon as it is known. It is told {"sample": true or false}, and where it is to sample, tells
  {"samples": […]}.
- {"problem": …, "turns": [[kernel, parameters], …], "repeat": n}: these are verified, and timed in turns; it tells
  {"samples": [[…], …]}.

What is wrong, or refused, is told as {"refused": kind, "reason": …} instead.
"""

from __future__ import annotations

import importlib
import logging
import time
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

from gemmport.backends.base import Backend
from gemmport.core.device import DeviceInfo
from gemmport.core.errors import CompileError, DeviceMemoryError, GemmportError, LaunchError
from gemmport.core.plan import Plan
from gemmport.core.problem import GemmProblem
from gemmport.execution.executor import BoundPlan
from gemmport.execution.selection import get_backend
from gemmport.planning.lookup import Configuration
from gemmport.planning.planner import make_plan
from gemmport.runtime.child_processes import Channel
from gemmport.tuning.measuring import Bench


class _RefusedError(Exception):
    """A candidate is not timed.

    Attributes:
        kind: "wrong"; "compiler", "launch" or "memory" refused it.
    """

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind


class _Worker:
    """The device, and the operands of the product that was asked for last."""

    def __init__(self, backend: Backend, channel: Channel, stack: ExitStack) -> None:
        self._backend, self._channel, self._stack = backend, channel, stack
        self._bench: Bench | None = None

    def answer(self, asked: Mapping[str, Any]) -> None:
        """Does what it is told to, and tells what comes of it."""
        problem = GemmProblem.from_dict(asked["problem"])
        try:
            bench = self._bench_of(problem)
            if "turns" in asked:
                each = [self._verified(bench, problem, kernel, values) for kernel, values in asked["turns"]]
                self._channel.tell({"samples": [timing.samples for timing in bench.times(each, asked["repeat"])]})
            else:
                self._try(bench, problem, asked)
        except (_RefusedError, GemmportError) as error:
            self._channel.tell({"refused": _kind(error), "reason": str(error)})

    def _try(self, bench: Bench, problem: GemmProblem, asked: Mapping[str, Any]) -> None:
        kernel, values = asked["candidate"]
        bound = self._verified(bench, problem, kernel, values, tell=self._channel.tell)
        self._channel.tell({"look": bench.look(bound)})
        answer = self._channel.hear()
        if answer is not None and answer["sample"]:
            (timing,) = bench.times([bound], asked["repeat"])
            self._channel.tell({"samples": timing.samples})

    def _verified(
        self, bench: Bench, problem: GemmProblem, kernel: str, values: Mapping[str, Any], tell: Any = lambda _: None
    ) -> BoundPlan:
        """A candidate, compiled and right.

        Raises:
            _RefusedError: it is wrong. GemmportError: it is refused.
        """
        start = time.perf_counter()
        bound = bench.bind(self._plan(problem, kernel, values))
        tell({"built": time.perf_counter() - start})
        if fault := bench.fault(bound):
            raise _RefusedError("wrong", fault)
        tell({"right": True})
        return bound

    def _plan(self, problem: GemmProblem, kernel: str, values: Mapping[str, Any]) -> Plan:
        return make_plan(problem, self._backend.device, Configuration(()), kernel=kernel, params=values)

    def _bench_of(self, problem: GemmProblem) -> Bench:
        if self._bench is None or self._bench.problem != problem:
            if self._bench is not None:
                self._bench.close()
            self._bench = None  # what follows may fail
            self._bench = self._stack.enter_context(Bench(problem, self._backend))
        return self._bench


def _kind(error: Exception) -> str:
    if isinstance(error, _RefusedError):
        return error.kind
    kinds = ((CompileError, "compiler"), (DeviceMemoryError, "memory"), (LaunchError, "launch"))
    return next((kind for each, kind in kinds if isinstance(error, each)), "rule")


def main() -> None:
    """Does what it is told to."""
    logging.basicConfig(level=logging.ERROR)
    channel = Channel()
    job = channel.hear()
    if job is None:
        return
    for module in job["imports"]:
        importlib.import_module(module)
    backend = get_backend(device=DeviceInfo.from_dict(job["device"]))
    channel.tell({"runtime": backend.environment()})
    with ExitStack() as stack:
        worker = _Worker(backend, channel, stack)
        while (asked := channel.hear()) is not None:
            worker.answer(asked)


if __name__ == "__main__":
    main()
