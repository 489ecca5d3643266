"""The work behind `gemmport bench`: suites of products on several devices, the cheapest first, in a budget of time."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from gemmport.bench.calls import Called, run_calls
from gemmport.bench.forecast import Budget, Forecast
from gemmport.bench.libraries import Library
from gemmport.bench.products import Options, run_benchmark
from gemmport.bench.standings import Measured, Standing, Workload, standings
from gemmport.core.device import DeviceInfo
from gemmport.core.problem import GemmProblem

MOST_OF_MEMORY = 0.8
"""Of a device's memory: larger operands are left out. Packed copies, and the runtime, need some of it."""

Found = TypeVar("Found")


@dataclass(frozen=True)
class Task:
    """A workload of a suite on a device.

    Attributes:
        suite: its name. place: of the workload in its suite, from 0 on.
        arrays: the library whose arrays are multiplied, where products are measured as they are called; else empty.
    """

    suite: str
    place: int
    workload: Workload
    device: DeviceInfo
    arrays: str = ""

    @property
    def kind(self) -> Hashable:
        """Tasks of one kind take the longer the more they compute."""
        return self.device, self.arrays, self.workload.problem.dtype.name

    def __str__(self) -> str:
        of = f", arrays of {self.arrays}" if self.arrays else ""
        return f"{self.suite}: {self.workload.name}{of} on {self.device.label}"


@dataclass(frozen=True)
class Done(Generic[Found]):
    """What came of a task: results, one for each kernel."""

    task: Task
    results: tuple[Found, ...]


@dataclass(frozen=True)
class Left:
    """A task that was not begun, and why not."""

    task: Task
    reason: str

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON, as docs/results.md describes it."""
        task = self.task
        told = {"suite": task.suite, "name": task.workload.name, "device": task.device.label}
        return {**told, **({"arrays": task.arrays} if task.arrays else {}), "reason": self.reason}


@dataclass(frozen=True)
class State:
    """How far a run is.

    Attributes:
        done: tasks that are behind, left out or not. text: what is being done.
        seconds: until all is done; None where that is not known yet.
    """

    done: int
    total: int
    text: str
    seconds: float | None


Watcher = Callable[[State], None]


def tasks_of(
    suites: Mapping[str, Sequence[Workload]], devices: Sequence[DeviceInfo], arrays: Mapping[DeviceInfo, Sequence[str]]
) -> list[Task]:
    """Every workload of every suite on every device, from the cheapest to the dearest, so that a budget of time reaches as many
    as it can; devices take turns.

    Args:
        arrays: libraries whose arrays are multiplied, of the devices that have some.
    """
    found = [
        Task(suite, place, workload, device, library)
        for suite, workloads in suites.items()
        for place, workload in enumerate(workloads)
        for device in devices
        for library in arrays.get(device, ("",))
    ]
    return sorted(found, key=lambda task: task.workload.problem.flops)


def run_products(
    tasks: Sequence[Task], options: Options, budget: Budget, watch: Watcher = lambda _: None
) -> Iterator[Done[Measured] | Left]:
    """Verifies and times products beside their baselines, as `gemmport run` does; yields what comes of each task.

    Raises:
        GemmportError: as `run_benchmark`.
    """

    def run(task: Task, progress: Callable[[str], None]) -> Iterator[Measured]:
        for result in run_benchmark([task.workload.problem], [task.device], options, progress=progress):
            yield Measured(task.workload, result)

    return _run(tasks, run, _once_each, budget, watch)


def run_as_called(
    tasks: Sequence[Task], found: Sequence[Library], budget: Budget, watch: Watcher = lambda _: None, *, turns: int, seed: int
) -> Iterator[Done[Called] | Left]:  # fmt: skip
    """Verifies and times products as they are called, as `gemmport calls` does; yields what comes of each task.

    Args:
        found: the libraries that tasks name, each with its device.
        turns, seed: as of `run_calls`.
    """
    libraries = {(one.backend.device, one.name): one for one in found}

    def run(task: Task, progress: Callable[[str], None]) -> Iterator[Called]:
        library = libraries[task.device, task.arrays]
        return run_calls([task.workload], [library], turns=turns, seed=seed, progress=progress)

    return _run(tasks, run, _each_call_once, budget, watch)


def _once_each(results: Sequence[Measured]) -> float:
    """Seconds of the samples of kernels and baselines, if each sample were one call: what grows with the product."""
    timings = [one.result.timing for one in results]
    timings += [beside.timing for one in results[:1] for beside in one.result.baselines]
    return sum((timing.median * len(timing.samples) for timing in timings if timing), 0.0)


def _each_call_once(results: Sequence[Called]) -> float:
    """The same of calls."""
    sides = [times for one in results for times in (one.times, *((one.beside.times,) if one.beside else ()))]
    timings = [timing for times in sides for ways in times.values() for timing in ways.values()]
    return sum((timing.median * len(timing.samples) for timing in timings), 0.0)


def _run(
    tasks: Sequence[Task],
    run: Callable[[Task, Callable[[str], None]], Iterator[Found]],
    growing: Callable[[Sequence[Found]], float],
    budget: Budget,
    watch: Watcher,
) -> Iterator[Done[Found] | Left]:
    forecast = Forecast()
    for done, task in enumerate(tasks):
        work = float(task.workload.problem.flops)
        expected = forecast.seconds(task.kind, work)
        if reason := too_large(task.workload.problem, task.device):
            yield Left(task, reason)
            continue
        if not budget.has_room(expected):
            yield Left(task, _beyond(budget, expected))
            continue
        coming = forecast.total((other.kind, float(other.workload.problem.flops)) for other in tasks[done:])
        if coming is not None:
            coming = min(coming, budget.left)

        start = time.monotonic()

        def progress(text: str, done: int = done, coming: float | None = coming, start: float = start) -> None:
            left = None if coming is None else max(0.0, coming - (time.monotonic() - start))
            watch(State(done, len(tasks), text, left))

        progress(str(task))
        results = tuple(run(task, progress))
        forecast.add(task.kind, work, time.monotonic() - start, growing(results))
        yield Done(task, results)
    watch(State(len(tasks), len(tasks), "done", 0.0))


def too_large(problem: GemmProblem, device: DeviceInfo) -> str:
    """Why the operands do not fit a device; empty where they do."""
    spans = {o: problem.span(o) * problem.element_type(o).itemsize for o in ("a", "b", "d")}
    largest, total = max(spans.values()), sum(spans.values())
    if largest > device.max_allocation:
        return f"an operand takes {_size(largest)}; one allocation of the device has at most {_size(device.max_allocation)}"
    if total > MOST_OF_MEMORY * device.memory:
        return f"its operands take {_size(total)} of the device's {_size(device.memory)}"
    return ""


def _beyond(budget: Budget, expected: float | None) -> str:
    seconds = f"{budget.seconds:,.0f} s"
    if expected is None or budget.left <= 0:
        return f"the budget of {seconds} was used up"
    return f"it would take some {expected:,.0f} s, and the budget of {seconds} has {budget.left:,.0f} s left"


def _size(nbytes: float) -> str:
    return f"{nbytes / 2**30:,.2f} GiB"


def in_order(done: Sequence[Done[Found]], suites: Sequence[str]) -> list[Done[Found]]:
    """What is done, suite after suite, each in its own order."""
    return sorted(done, key=lambda one: (suites.index(one.task.suite), one.task.place))


@dataclass(frozen=True)
class SuiteStanding:
    """How a kernel stands beside a baseline over a suite, in one type: `Standing` with where it belongs."""

    suite: str
    dtype: str
    standing: Standing

    def to_dict(self, threshold: float) -> dict[str, Any]:
        """Plain data for JSON, as docs/results.md describes it."""
        return {"suite": self.suite, "dtype": self.dtype, **self.standing.to_dict(threshold)}

    def told(self, threshold: float) -> str:
        """One line for people."""
        return f"{self.suite}, {self.dtype}: {self.standing.told(threshold)}"


def suite_standings(done: Sequence[Done[Measured]], kernels: Sequence[str]) -> list[SuiteStanding]:
    """The standings of each suite, and of each type by itself, in which names of workloads differ."""
    groups: dict[tuple[str, str], list[Measured]] = {}
    for one in done:
        key = one.task.suite, one.task.workload.problem.dtype.name
        groups.setdefault(key, []).extend(one.results)
    return [
        SuiteStanding(suite, dtype, standing)
        for (suite, dtype), group in groups.items()
        for standing in standings(group, kernels)
    ]
