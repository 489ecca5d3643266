"""The work behind `gemmport calls`: products as a user calls them, of arrays of each library, beside the library's own."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from gemmport.api import product
from gemmport.api.ahead import compile_ahead
from gemmport.api.gemm import gemm
from gemmport.api.matmul import matmul
from gemmport.api.plans import plan as make_plan
from gemmport.backends.base import Backend
from gemmport.bench import libraries
from gemmport.bench.call_times import CPU_CALLS, GPU_CALLS, WAYS, Caller, CallPace, Way, measure_calls, run
from gemmport.bench.digest import call_path_digest, launches_digests
from gemmport.bench.environment import gpu_state
from gemmport.bench.libraries import Library
from gemmport.bench.results import Status, checks_to_dict, plain, seconds_to_dict
from gemmport.bench.standings import Workload
from gemmport.bench.timing import Timing
from gemmport.checking import verification as verify
from gemmport.checking.reference import reference
from gemmport.checking.verification import Check
from gemmport.core.device import DeviceInfo
from gemmport.core.errors import DtypeError, GemmportError, LibraryUnavailableError, ShapeError, UnsupportedError
from gemmport.core.plan import Plan
from gemmport.core.precision import FULL
from gemmport.core.problem import GemmProblem
from gemmport.execution.executor import bind_or_choose, sources_of

HostArray = npt.NDArray[Any]

Result = Literal["out", "new"]
"""out: written to an array of the caller's; new: to one that the call makes."""

Times = Mapping[Result, Mapping[Way, Timing]]

SHOWN: tuple[tuple[str, Way, Sequence[Result]], ...] = (
    ("host, out", "host", ("out",)),
    ("host, new", "host", ("new",)),
    ("back to back", "back_to_back", ("out", "new")),
    ("awaited", "awaited", ("out", "new")),
)
"""What people are shown of all times: heading, way, and results, of which the first counts that was measured."""

_REFUSALS = (RuntimeError, TypeError, ValueError, MemoryError)
"""What libraries raise for types and sizes that they do not take; gemmport's errors are among them."""


@dataclass(frozen=True)
class Beside:
    """A library's own product beside gemmport's.

    Attributes:
        name: of the product, with its library.
        verified: whether its result is right in the type of the arrays; None where there is none.
        reason: why there are no times, or no ratios; empty where there are.
    """

    name: str
    version: str
    verified: bool | None = None
    reason: str = ""
    times: Times = field(default_factory=dict)


@dataclass(frozen=True)
class Called:
    """What came of calls with arrays of one library on one device.

    Attributes:
        arrays: the library, by its name on the command line.
        status, reason: as of `gemmport.bench.results.Outcome`.
        plan: of the call with `out`, where the library's arrays are written.
        times: empty where the result is wrong, or there is none.
        beside: None where no library has a product of such arrays.
        clocks: of the GPU just after the measurement, under load.
    """

    workload: Workload
    device: DeviceInfo
    arrays: str
    status: Status
    reason: str = ""
    checks: tuple[Check, ...] = ()
    plan: Plan | None = None
    times: Times = field(default_factory=dict)
    beside: Beside | None = None
    clocks: Mapping[str, str] = field(default_factory=dict)

    def first_of(self, results: Sequence[Result]) -> Result | None:
        """The first of some results that was measured; None where none was."""
        return next((result for result in results if result in self.times), None)

    def ratio(self, way: Way, result: Result) -> float | None:
        """Our speed over that of the product beside it; None where one of them was not measured, or is wrong."""
        if self.beside is None or not self.beside.verified:
            return None
        own, other = (times.get(result, {}).get(way) for times in (self.times, self.beside.times))
        return other.median / own.median if own and other else None

    def to_dict(self) -> dict[str, Any]:
        """The result as docs/results.md describes it."""
        problem, plan, beside = self.workload.problem, self.plan, self.beside
        return {
            "label": self.workload.label,
            "source": self.workload.source,
            "device": self.device.label,
            "arrays": self.arrays,
            "m": problem.m,
            "n": problem.n,
            "k": problem.k,
            "batch": problem.batch,
            "dtype": problem.dtype.name,
            "trans_a": problem.trans_a,
            "trans_b": problem.trans_b,
            "alpha": plain(problem.alpha),
            "beta": plain(problem.beta),
            "asked": {"kernel": "auto", "parameters": {}, "problem": plan.problem.to_dict()} if plan else None,
            "launches": launches_digests(plan.launches, plan.device) if plan else [],
            "call_path": call_path_digest(self.device.backend),
            "status": self.status,
            "reason": self.reason,
            "verified": all(check.passed for check in self.checks) if self.checks else None,
            "checks": checks_to_dict(self.checks),
            "seconds": _times_to_dict(self.times),
            "baselines": {}
            if beside is None
            else {
                beside.name: {
                    "version": beside.version,
                    "verified": beside.verified,
                    "reason": beside.reason,
                    "seconds": _times_to_dict(beside.times),
                    "ratios": {result: {way: self.ratio(way, result) for way in WAYS} for result in beside.times},
                }
            },
            "clocks": dict(self.clocks),
        }


def _times_to_dict(times: Times) -> dict[str, Any]:
    return {result: {way: seconds_to_dict(own[way]) for way in WAYS} for result, own in times.items()}


@dataclass(frozen=True)
class Summary:
    """All ratios of one way to call, with arrays of one library on one device.

    Attributes:
        ratios: name of the workload and the ratio, the slowest first; at least one.
    """

    device: DeviceInfo
    arrays: str
    baseline: str
    way: Way
    result: Result
    ratios: tuple[tuple[str, float], ...]

    @property
    def geometric_mean(self) -> float:
        """Of all ratios."""
        return statistics.geometric_mean(ratio for _, ratio in self.ratios)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON, as docs/results.md describes it."""
        name, ratio = self.ratios[0]
        return {
            "device": self.device.label,
            "arrays": self.arrays,
            "baseline": self.baseline,
            "way": self.way,
            "result": self.result,
            "geometric_mean": self.geometric_mean,
            "worst": {"name": name, "ratio": ratio},
            "count": len(self.ratios),
        }


def summaries(found: Sequence[Called]) -> list[Summary]:
    """The ratios of each device, library, way and result; those of which there is none are left out."""
    groups: dict[tuple[DeviceInfo, str, str, Result, Way], list[tuple[str, float]]] = {}
    for one in found:
        for result in one.beside.times if one.beside else ():
            for way in WAYS:
                if one.beside and (ratio := one.ratio(way, result)) is not None:
                    key = (one.device, one.arrays, one.beside.name, result, way)
                    groups.setdefault(key, []).append((one.workload.name, ratio))
    return [
        Summary(device, arrays, baseline, way, result, tuple(sorted(ratios, key=lambda pair: pair[1])))
        for (device, arrays, baseline, result, way), ratios in groups.items()
    ]


def check_called(problem: GemmProblem) -> GemmProblem:
    """The problem, which `matmul`, or `gemm` where it has alpha and beta, computes of arrays and transposed arrays.

    Raises:
        UnsupportedError: it does not.
    """
    usual = GemmProblem.create(problem.m, problem.n, problem.k, batch=problem.batch, dtype=problem.dtype)
    types = (problem.output, problem.accumulator)
    if {problem.trans_a, problem.trans_b} <= {"N", "T"} and types == (usual.output, usual.accumulator):
        return problem
    raise UnsupportedError(
        f"{problem} must be a product with N or T and of one type, to be called; it is not: measure it by gemmport run"
    )


def reaching(backend: Backend, wanted: Collection[str]) -> tuple[list[Library], dict[str, str]]:
    """Those of some libraries whose arrays reach a device, and why the others do not.

    Raises:
        UnknownNameError: there is no such library.
    """
    found, missing = [], {}
    for name in wanted:
        try:
            found.append(libraries.load(name, backend))
        except LibraryUnavailableError as error:
            missing[name] = str(error)
    return found, missing


def pace_of(device: DeviceInfo) -> CallPace:
    """How turns go on a device."""
    return CPU_CALLS if device.type == "cpu" else GPU_CALLS


def floor_of(backend: Backend, turns: int) -> Timing:
    """Seconds in which one work-item that does nothing is launched and awaited: through the backend, which adds some
    microseconds of Python.
    """
    qualifier = "__kernel" if backend.language == "opencl" else 'extern "C" __global__'
    program = backend.program(f"{qualifier} void nothing(const int unused) {{}}\n")
    call = backend.prepare(program, "nothing", (1, 1, 1), (1, 1, 1), [np.int32(0)])
    caller = Caller(partial(backend.launch, call), lambda _: backend.synchronize())
    return measure_calls({"floor": caller}, pace_of(backend.device), turns)["floor"]["awaited"]


def run_calls(
    workloads: Sequence[Workload],
    found: Sequence[Library],
    *,
    turns: int,
    seed: int,
    results: Collection[Result] = ("out", "new"),
    progress: Callable[[str], None] = lambda _: None,
) -> Iterator[Called]:
    """Verifies and times calls with arrays of each library; yields each result as it is there.

    Args:
        workloads: of `check_called`.
        found: libraries, each with its device.
        turns: of each caller, at least one.
        seed: of the random operands.
        results: that are measured; of libraries whose arrays are not written, new ones in any case.
        progress: told what is being done.
    """
    for backend in {id(library.backend): library.backend for library in found}.values():
        if backend.device.type == "gpu":  # CPUs read the host's arrays, for which other programs are compiled
            _compile_ahead(workloads, backend, progress)
    for workload in workloads:
        try:
            task = _Product(workload.problem, seed, {library.backend.device for library in found})
        except MemoryError as error:
            reason = f"the host is out of memory for {workload.problem}: {error}"
            yield from (Called(workload, one.backend.device, one.name, "error", reason) for one in found)
            continue
        for library in found:
            progress(f"{workload.name}, arrays of {library.name} on {library.backend.device.label}")
            yield _called(workload, task, library, turns, results)


def _compile_ahead(workloads: Sequence[Workload], backend: Backend, progress: Callable[[str], None]) -> None:
    """Has the programs of all products made by several processes, where there are many to make."""
    progress(f"planning for {backend.device.label}")
    sources: list[str] = []
    for workload in workloads:
        with suppress(GemmportError):  # its measurement will tell
            sources += sources_of(make_plan(workload.problem, backend.device), backend)
    compile_ahead(backend, sources, progress)


class _Product:
    """The operands of a product on some devices, and what it should be."""

    def __init__(self, problem: GemmProblem, seed: int, devices: Iterable[DeviceInfo]) -> None:
        self.problem = problem
        self._cut = verify.cut_on(problem, *devices)
        self.operands = verify.random_operands(problem, seed)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the result: of two dimensions where there is no batch."""
        problem = self.problem
        return (problem.m, problem.n) if problem.batch == 1 else (problem.batch, problem.m, problem.n)

    @cached_property
    def _expected(self) -> HostArray | None:
        """The reference; None where the check takes samples instead."""
        large = self.problem.flops > verify.FULL_REFERENCE_FLOPS
        return None if large else reference(self.problem, self.operands)

    def check(self, name: str, result: HostArray) -> Check:
        """Judges a result.

        Raises:
            ShapeError: it is of another shape. DtypeError: it is of another type.
        """
        problem = self.problem
        if result.shape != self.shape:
            raise ShapeError(f"the result must have shape {self.shape}; got {result.shape}")
        if result.dtype != problem.output.numpy:
            raise DtypeError(f"the result must be {problem.output}; got {result.dtype}")
        d = result.reshape(problem.batch, problem.m, problem.n)
        check = verify.check_random(problem, self.operands, d, self._expected, self._cut)
        return Check(name, check.passed, check.error, check.bound, check.detail, check.relative)


class _Arrays:
    """The arrays of one library that are multiplied."""

    def __init__(self, library: Library, task: _Product, results: Collection[Result]) -> None:
        self.library, self.results = library, results
        problem = self.problem = task.problem
        self.a = self._operand(task.operands["a"], problem.trans_a)
        self.b = self._operand(task.operands["b"], problem.trans_b)
        self.c = self._operand(task.operands["c"], "N") if problem.reads("c") else None
        # Poison, of which an element that is not written shows.
        poison = verify.poison(problem.m * problem.n * problem.batch, problem.output).reshape(task.shape)
        self.out = library.array(poison) if library.writes and "out" in results else None

    def _operand(self, stored: HostArray, op: str) -> Any:
        array = self.library.array(stored[0] if len(stored) == 1 else stored)
        return self.library.transposed(array) if op == "T" else array

    @property
    def targets(self) -> dict[Result, Any]:
        """What is given as `out` for each kind of result."""
        new: dict[Result, Any] = {} if self.out is not None and "new" not in self.results else {"new": None}
        return new if self.out is None else {"out": self.out, **new}

    def ours(self) -> dict[Result, Caller]:
        """gemmport's product of them."""
        options = dict(self.library.options)
        if self.problem.precision != FULL:
            options["precision"] = self.problem.precision
        multiply = partial(matmul, self.a, self.b, **options)
        if self._is_update:
            scalars = {"alpha": self.problem.alpha, "beta": self.problem.beta}
            multiply = partial(gemm, self.a, self.b, c=self.c, **scalars, **options)
        return {result: Caller(partial(multiply, out=out), self.library.wait) for result, out in self.targets.items()}

    def own(self) -> dict[Result, Caller]:
        """The library's product of them."""
        multiply = partial(self.library.product, self.a, self.b)
        if self._is_update:
            multiply = partial(
                self.library.update, self.a, self.b, self.c, alpha=self.problem.alpha, beta=self.problem.beta
            )
        return {result: Caller(partial(multiply, out=out), self.library.wait) for result, out in self.targets.items()}

    @property
    def _is_update(self) -> bool:
        """Whether another function than `matmul` computes it."""
        return (self.problem.alpha, self.problem.beta) != (1, 0)

    def checks(self, task: _Product, callers: Mapping[Result, Caller]) -> list[Check]:
        """Judges what each caller gives."""
        return [task.check(result, self._result_of(caller)) for result, caller in callers.items()]

    def _result_of(self, caller: Caller) -> HostArray:
        found = caller.call()
        caller.wait(found)
        return self.library.to_host(found)


def _called(workload: Workload, task: _Product, library: Library, turns: int, results: Collection[Result]) -> Called:
    device = library.backend.device
    beside = library.beside
    with ExitStack() as settings:
        for each in {id(x): x for x in (library, beside) if x is not None}.values():
            settings.enter_context(each.precise(task.problem.precision))
        try:
            arrays = _Arrays(library, task, results)
            plan = _plan_of(arrays)
            library.backend.settle_programs(sources_of(plan, library.backend))
            checks = tuple(arrays.checks(task, arrays.ours()))
        except _REFUSALS as error:
            unsupported = isinstance(error, DtypeError | UnsupportedError)
            return Called(workload, device, library.name, "unsupported" if unsupported else "error", str(error))
        if failed := [check for check in checks if not check.passed]:
            reason = "; ".join(f"{check.name}: {check.detail}" for check in failed)
            return Called(workload, device, library.name, "failed", reason, checks, plan)
        other, others = _beside(task, beside, arrays)
        ours = arrays.ours()
        callers = {("ours", result): caller for result, caller in ours.items()}
        callers |= {("own", result): caller for result, caller in others.items()}
        times = measure_calls(callers, pace_of(device), turns)
        shown = next(iter(ours))
        together = times["ours", shown]["back_to_back"].calls_per_sample
        clocks = gpu_state(library.backend, partial(run, ours[shown], together))
        found = {who: {result: own for (x, result), own in times.items() if x == who} for who in ("ours", "own")}
    if other is not None:
        other = Beside(other.name, other.version, other.verified, other.reason, found["own"])
    return Called(workload, device, library.name, "ok", "", checks, plan, found["ours"], other, clocks)


def _beside(
    task: _Product, library: Library | None, arrays: _Arrays
) -> tuple[Beside | None, Mapping[Result, Caller]]:  # fmt: skip
    """A library's own product, judged, and its callers: of the same arrays where they are the library's."""
    if library is None:
        return None, {}
    if (precision := task.problem.precision) not in library.precisions:
        return Beside(library.product_name, library.version, reason=f"it cannot round float32 to {precision}"), {}
    try:
        own = arrays if library is arrays.library else _Arrays(library, task, arrays.results)
        failed = [check for check in own.checks(task, own.own()) if not check.passed]
    except _REFUSALS as error:
        return Beside(library.product_name, library.version, reason=f"{type(error).__name__}: {error}"), {}
    reason = "; ".join(f"{check.name}: {check.detail}" for check in failed)
    return Beside(library.product_name, library.version, not failed, reason), own.own()


def _plan_of(arrays: _Arrays) -> Plan:
    """The plan of a call, as gemmport finds it on the way; `params={}` says nothing, but is planned anew each time."""
    # Imported where it is asked for: it takes tens of milliseconds, and every command would wait for it.
    from unittest.mock import patch  # noqa: PLC0415

    plans: list[Plan] = []

    def watched(*arguments: Any, **options: Any) -> Any:
        bound = bind_or_choose(*arguments, **options)
        plans.append(bound.plan)
        return bound

    with patch.object(product, "bind_or_choose", watched):
        arrays.ours()["out" if arrays.out is not None else "new"].call(params={})
    return plans[0]
