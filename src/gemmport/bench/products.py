"""The work behind `gemmport run`: plan, verify and time kernels beside their baselines, one problem after another."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from gemmport import baselines, kernels
from gemmport.api.ahead import compile_ahead
from gemmport.backends.base import Backend
from gemmport.backends.objects import Memory
from gemmport.baselines.base import Baseline, BoundBaseline
from gemmport.bench.environment import gpu_state
from gemmport.bench.results import BaselineResult, Outcome, Status, plain
from gemmport.bench.timing import Contestant, Timing, load, measure
from gemmport.checking import verification as verify
from gemmport.checking.device_check import check_freivalds_on, check_rows_on
from gemmport.checking.operands import upload_operand
from gemmport.checking.reference import Matrices, reference
from gemmport.checking.scales import check_scaled, check_scaled_rows, random_scales
from gemmport.checking.verification import Check, HostArray
from gemmport.contracts.kernel import Cut, Parameters
from gemmport.contracts.scales import ScaleLayout
from gemmport.core.device import DeviceInfo
from gemmport.core.errors import (
    BaselineUnavailableError,
    CompileError,
    DeviceMemoryError,
    GemmportError,
    LaunchError,
    UnsupportedError,
)
from gemmport.core.layout import matrices
from gemmport.core.plan import SCALES, Launch, ParameterValue, Plan
from gemmport.core.problem import GemmProblem, Operand
from gemmport.execution.executor import BoundPlan, bind, bind_or_choose, sources_of
from gemmport.execution.selection import get_backend
from gemmport.planning.explanation import peak_by_unit
from gemmport.planning.lookup import Configuration
from gemmport.planning.planner import AUTO, make_plan
from gemmport.planning.rescaling import scaled

log = logging.getLogger(__name__)

GUARD_ELEMENTS = 64
"""Elements of poison before and behind D; a multiple of every vector width, so that D keeps its alignment."""


@dataclass(frozen=True)
class Options:
    """What to run, and how.

    Attributes:
        kernels: names of kernels, or "auto" alone.
        params: parameters that go before any configuration; with several kernels, each takes those it has.
        baselines: names, or "auto" alone for those that belong to the device; empty for none.
        repeat: samples per measurement.
        seed: of the random operands.
        scales: whether rows of op(A) and columns of op(B) have scales.
    """

    configuration: Configuration
    kernels: tuple[str, ...] = (AUTO,)
    params: Parameters = field(default_factory=dict)
    params_origin: str = "params="
    baselines: tuple[str, ...] = (AUTO,)
    verify: bool = True
    repeat: int = 10
    seed: int = 0
    scales: bool = False


@dataclass(frozen=True)
class Asked:
    """What a plan was asked to be: with the problem, the device and the configuration, enough to make it again.

    Attributes:
        kernel: a name, or "auto".
        parameters: the user's own. Where the first plan did not run, those of the plan that took its place, and its kernel.
    """

    kernel: str = AUTO
    parameters: Parameters = field(default_factory=dict)


@dataclass(frozen=True)
class Result(Outcome):
    """A kernel on a problem on a device; see `Outcome`.

    Attributes:
        unit_gflops: 10⁹ flops per second of the device's matrix unit, by its model, where the kernel multiplies by it; else 0.
    """

    problem: GemmProblem
    device: DeviceInfo
    kernel: str
    status: Status
    reason: str = ""
    plan: Plan | None = None
    timing: Timing | None = None
    checks: tuple[Check, ...] = ()
    baselines: tuple[BaselineResult, ...] = ()
    clocks: dict[str, str] = field(default_factory=dict)
    asked: Asked = Asked()
    unit_gflops: float = 0.0

    unit = "GFLOPS"
    rate_key = "gflops"
    yardstick = "peak"

    @property
    def name(self) -> str:
        """The kernel."""
        return self.plan.variant if self.plan else self.kernel

    @property
    def task(self) -> str:
        """The problem, for people."""
        return f"{self.problem}{', scales of rows' if self.scaled else ''}"

    @property
    def scaled(self) -> bool:
        """Whether rows of op(A) and columns of op(B) had scales."""
        return self.plan is not None and "row_scales" in self.plan.operands

    @property
    def values(self) -> dict[str, ParameterValue]:
        """Parameters of the kernel by name."""
        return self.plan.values if self.plan else {}

    @property
    def launches(self) -> tuple[Launch, ...]:
        """Those of the plan."""
        return self.plan.launches if self.plan else ()

    @property
    def work(self) -> int:
        """Floating-point operations of the product."""
        return self.problem.flops

    @property
    def percent(self) -> float | None:
        """Percent of the device's estimated peak: of its matrix unit's, where that multiplies."""
        own = self.rate(self.timing)
        return 100 * own / self._peak if own is not None and self._peak else None

    @property
    def about_yardstick(self) -> str:
        """The estimated peak."""
        by_unit = " by the matrix unit" if self.unit_gflops else ""
        return f"peak of {self.device.label}: {self._peak:,.0f} GFLOPS{by_unit}, estimated" if self._peak else ""

    @property
    def _peak(self) -> float | None:
        return self.unit_gflops or self.device.peak_gflops(self.problem.accumulator.arithmetic)

    def to_dict(self) -> dict[str, Any]:
        """The result as docs/results.md describes it."""
        problem, plan = self.problem, self.plan
        return {
            **self._where(),
            "kernel": self.name,
            "parameters": {name: {"value": c.value, "origin": c.origin} for name, c in plan.parameters} if plan else {},
            "entry": plan.entry if plan else None,
            "asked": {"kernel": self.asked.kernel, "parameters": dict(self.asked.parameters)},
            "m": problem.m,
            "n": problem.n,
            "k": problem.k,
            "batch": problem.batch,
            "dtype": problem.dtype.name,
            "output": problem.output.name,
            "accumulator": problem.accumulator.name,
            "precision": problem.precision,
            "trans_a": problem.trans_a,
            "trans_b": problem.trans_b,
            "alpha": plain(problem.alpha),
            "beta": plain(problem.beta),
            **({"scales": "rows"} if self.scaled else {}),
            **self._what_came(),
        }


def run_benchmark(
    problems: Sequence[GemmProblem],
    devices: Sequence[DeviceInfo],
    options: Options,
    *,
    progress: Callable[[str], None] = lambda _: None,
) -> Iterator[Result]:
    """Runs every kernel on every problem on every device; yields each result as it is there.

    Args:
        progress: told what is being done.

    Raises:
        GemmportError: what the user asked for is wrong. A device that refuses one problem is a result of status "error".
    """
    for problem in problems:
        for device in devices:
            yield from _run_problem(problem, device, options, progress)


def compile_products(
    problems: Sequence[GemmProblem],
    devices: Sequence[DeviceInfo],
    options: Options,
    progress: Callable[[str], None] = lambda _: None,
) -> None:
    """Has the programs of `run_benchmark` on GPUs made by several processes, where there are many to make."""
    for device in devices:
        if device.type != "gpu":  # whose compilers take longer than the start of a process
            continue
        progress(f"planning for {device.label}")
        backend = get_backend(device=device)
        sources: list[str] = []
        for problem in problems:
            with suppress(GemmportError):  # its measurement will tell
                _, plans = _plans(_guarded(problem), device, options)
                sources += [source for plan in plans.values() for source in sources_of(plan, backend)]
        compile_ahead(backend, sources, progress)


def _guarded(problem: GemmProblem) -> GemmProblem:
    return replace(problem, d=verify.guarded(problem, GUARD_ELEMENTS))


def _run_problem(
    problem: GemmProblem, device: DeviceInfo, options: Options, progress: Callable[[str], None]
) -> Iterator[Result]:
    problem = _guarded(problem)
    refused, plans = _plans(problem, device, options)
    yield from refused
    if not plans:
        return
    try:
        with _Workspace(problem, get_backend(device=device), options) as workspace:
            yield from workspace.run(plans, progress)
    except MemoryError as error:  # the device's, or the host's, which holds the operands and their reference too
        reason = (
            str(error) if isinstance(error, DeviceMemoryError) else f"the host is out of memory for {problem}: {error}"
        )
        yield from (
            Result(problem, device, plan.variant, "error", reason, plan, asked=_asked(options, name))
            for name, plan in plans.items()
        )


def _plans(problem: GemmProblem, device: DeviceInfo, options: Options) -> tuple[list[Result], dict[str, Plan]]:
    """A plan for each kernel by its name, or the result that says why there is none."""
    refused: list[Result] = []
    plans: dict[str, Plan] = {}
    for name in options.kernels:
        try:
            plans[name] = _plan(problem, options, name, device)
        except UnsupportedError as error:  # what the user asked for and cannot be is a ParameterError, and not caught
            if len(options.kernels) == 1:
                raise
            refused.append(Result(problem, device, name, "unsupported", str(error), asked=_asked(options, name)))
    return refused, plans


def _plan(problem: GemmProblem, options: Options, name: str, device: DeviceInfo, without: Collection[str] = ()) -> Plan:
    """The plan for a kernel by name, or "auto"."""
    asked = _asked(options, name)

    def make(multiplied: GemmProblem) -> Plan:
        return make_plan(
            multiplied, device, options.configuration, kernel=asked.kernel, params=asked.parameters,
            params_origin=options.params_origin, without=without,
        )  # fmt: skip

    if not options.scales:
        return make(problem)
    return scaled(make, problem, (ScaleLayout(0, 1, problem.m), ScaleLayout(0, 1, problem.n)))


def _asked(options: Options, name: str) -> Asked:
    """What the options ask of a kernel by name, or "auto"."""
    params = options.params
    if len(options.kernels) > 1:
        known = {parameter.name for parameter in kernels.variant(name).parameters}
        params = {key: value for key, value in params.items() if key in known}
    return Asked(name, params)


class _Workspace:
    """Operands of one problem on one device, on which kernels and baselines take turns."""

    def __init__(self, problem: GemmProblem, backend: Backend, options: Options) -> None:
        self.problem = problem
        self.backend = backend
        self.options = options
        self.memory: dict[Operand, Memory] = {
            operand: backend.allocate(problem.span(operand) * problem.element_type(operand).itemsize)
            for operand in verify.inputs(problem)
        }
        self.memory["d"] = backend.allocate((problem.span("d") + GUARD_ELEMENTS) * problem.output.itemsize)
        self.scales = random_scales(problem, options.seed) if options.scales else None
        self.bound_to: dict[str, Memory] = {str(name): block for name, block in self.memory.items()}
        if self.scales is not None:
            placed = zip(SCALES, (self.scales.rows, self.scales.columns), strict=True)
            self.bound_to |= {name: backend.asarray(x).memory for name, x in placed}
        self.poison = verify.poisoned(problem, GUARD_ELEMENTS)
        self.random = verify.random_operands(problem, options.seed)
        self._expected: HostArray | None = None
        self._open: list[BoundBaseline] = []

    def __enter__(self) -> _Workspace:
        return self

    def __exit__(self, *_: object) -> None:
        self.backend.synchronize()
        for bound in self._open:
            bound.close()
        for memory in self.bound_to.values():
            memory.release()

    def run(self, plans: Mapping[str, Plan], progress: Callable[[str], None]) -> Iterator[Result]:
        """Verifies and times the plans, and the baselines once beside them all."""
        problem, device = self.problem, self.backend.device
        bound: list[tuple[Asked, BoundPlan, tuple[Check, ...]]] = []
        for name, plan in plans.items():
            progress(f"{problem} on {device.label}: {plan.variant}")
            asked = _asked(self.options, name)
            try:
                ready = bind_or_choose(plan, partial(_plan, problem, self.options, name), self.backend, self.bound_to)
                asked = asked if ready.plan is plan else Asked(ready.plan.variant, ready.plan.values)
                bound.append((asked, ready, self._checks(ready) if self.options.verify else ()))
            except (CompileError, LaunchError, DeviceMemoryError) as error:
                yield Result(problem, device, plan.variant, "error", str(error), plan, asked=asked)
        if not bound:
            return
        self._load(self.random)
        states, contestants = self._baselines(progress)
        contestants += [Contestant(ready.plan.variant, ready.enqueue) for _, ready, _ in bound]
        progress(f"{problem} on {device.label}: measuring")
        timings: dict[str, Timing] = {}
        clocks: dict[str, str] = {}
        if problem.flops:
            timings = measure(self.backend, contestants, repeat=self.options.repeat)
            clocks = gpu_state(self.backend, load(self.backend, contestants[-1].enqueue, timings[contestants[-1].name]))
        self.backend.synchronize()
        beside = tuple(replace(state, timing=timings.get(state.name)) for state in states)
        model = self.options.configuration.model(device)
        for asked, ready, checks in bound:
            plan, failed = ready.plan, [check for check in checks if not check.passed]
            yield Result(
                problem, device, plan.variant, "failed" if failed else "ok",
                "; ".join(f"{check.name}: {check.detail}" for check in failed),
                plan, timings.get(plan.variant), checks, beside, clocks, asked, peak_by_unit(plan, model) / 1e9,
            )  # fmt: skip

    def _checks(self, ready: BoundPlan) -> tuple[Check, ...]:
        """Stray-write, exact and statistical checks of one bound plan."""
        problem, cut = self.problem, verify.cut_of(ready.plan)
        huge = problem.flops > verify.FULL_REFERENCE_FLOPS
        if self.scales is not None:
            d, untouched = self._compute(self.random, ready.enqueue)
            return (untouched, self._check_scaled(d, cut))
        exact = self._exact_checks(ready.plan)
        d, untouched = self._compute(self.random, ready.enqueue)
        if not huge:
            return (untouched, *exact, verify.check_random(problem, self.random, d, self._reference(), cut))
        checks = [untouched, *exact, check_rows_on(self.backend, problem, self.memory, self.options.seed, cut=cut)]
        if problem.output.kind != "bool":
            checks.append(check_freivalds_on(self.backend, problem, self.memory, self.options.seed, cut=cut))
        return tuple(checks)

    def _exact_checks(self, plan: Plan) -> list[Check]:
        """The exact check, of the same programs with scalars that keep it exact; none where the sums are too long for it, or
        where nothing rounds, so that the check of random operands is exact.
        """
        if not verify.rounds(plan.problem):
            return []
        problem = plan.problem.with_scalars(*verify.exact_scalars(plan.problem))
        try:
            operands = verify.exact_operands(problem, self.options.seed)
        except ValueError as error:
            log.info("%s: no exact check: %s", problem, error)
            return []
        configuration = self.options.configuration
        twin = make_plan(problem, plan.device, configuration, kernel=plan.variant, params=plan.values)
        d, untouched = self._compute(operands, bind(twin, self.backend, self.memory).enqueue)
        if not untouched.passed:
            return [replace(untouched, name="exact")]
        if problem.flops > verify.FULL_REFERENCE_FLOPS:
            # Freivalds' check adds up elements of D, and knows nothing of what each lost when it was rounded to a narrow type.
            check = check_rows_on if verify.narrows(problem) else check_freivalds_on
            return [replace(check(self.backend, problem, self.memory, self.options.seed, exact=True), name="exact")]
        return [verify.check_exact(reference(problem, operands), d)]

    def _reference(self) -> HostArray | None:
        """The reference of the random operands, computed once; None where the check takes samples instead."""
        if self.problem.flops > verify.FULL_REFERENCE_FLOPS:
            return None
        if self._expected is None:
            self._expected = reference(self.problem, self.random)
        return self._expected

    def _compute(
        self, operands: Matrices, enqueue: Callable[[], None], *, c_in_d: bool = False
    ) -> tuple[HostArray, Check]:
        """D of the given operands in poisoned memory, and whether nothing else was written.

        Args:
            c_in_d: puts C into D first, for baselines, which update in place.
        """
        problem = self.problem
        self._load(operands)
        flat = verify.copied(self.poison)
        if c_in_d:
            matrices(flat, problem.d, problem.m, problem.n, problem.batch)[...] = operands["c"]
        self.backend.upload(self.memory["d"], flat)
        enqueue()
        self.backend.download(self.memory["d"], flat)
        d = matrices(flat, problem.d, problem.m, problem.n, problem.batch)
        return d, verify.check_untouched(problem, self.poison, flat)

    def _load(self, operands: Matrices) -> None:
        """Uploads A, B and C."""
        for operand in verify.inputs(self.problem):
            upload_operand(self.backend, self.memory[operand], self.problem, operand, operands[operand])

    def _baselines(self, progress: Callable[[str], None]) -> tuple[list[BaselineResult], list[Contestant]]:
        """Each baseline, checked on the random operands, and what to time of those that are there."""
        device = self.backend.device
        wanted = self.options.baselines
        names = baselines.for_device(device) if wanted == (AUTO,) else wanted
        states: list[BaselineResult] = []
        contestants: list[Contestant] = []
        for name in names:
            progress(f"{self.problem} on {device.label}: baseline {name}")
            try:
                library = baselines.load(name)
            except BaselineUnavailableError as error:
                states.append(BaselineResult(name, reason=str(error), is_missing=wanted == (AUTO,)))
                continue
            try:
                if library.backends and device.backend not in library.backends:
                    raise BaselineUnavailableError(f"{name} does not compute on {device.backend} memory")
                if reason := library.unsupported(self.problem) or (
                    "nothing to compute" if not self.problem.flops
                    else library.unsupported_scales(self.problem) if self.options.scales else None
                ):  # fmt: skip
                    raise BaselineUnavailableError(f"{name} cannot compute this problem: {reason}")
                bound = self._bound(library)
                self._open.append(bound)
                judged = self.options.verify and not library.rounds_by_itself(self.problem)
                check = self._check_baseline(bound, library.cut(self.problem, device)) if judged else None
            except GemmportError as error:
                states.append(BaselineResult(name, reason=str(error)))
                continue
            reason = f"{name} is wrong: {check.detail}" if check and not check.passed else ""
            verified, relative = (check.passed, check.relative) if check else (None, None)
            state = BaselineResult(
                name, reason, library.version, verified=verified, tuning=bound.tuning, relative_error=relative
            )
            states.append(state)
            contestants.append(Contestant(name, bound.enqueue, bound.clock))
        return states, contestants

    def _bound(self, library: Baseline) -> BoundBaseline:
        if self.scales is None:
            return library.bind(self.problem, self.backend, self.memory, self.random)
        rows, columns = (self.bound_to[name] for name in SCALES)
        return library.bind_scaled(self.problem, self.backend, self.memory, rows, columns)

    def _check_baseline(self, bound: BoundBaseline, cut: Cut | None) -> Check:
        if bound.result is None:
            d, untouched = self._compute(self.random, bound.enqueue, c_in_d=self.problem.beta != 0)
            if not untouched.passed:
                return untouched
        else:
            bound.enqueue()
            d = bound.result
        if self.scales is not None:
            return self._check_scaled(d, cut)
        return verify.check_random(self.problem, self.random, d, self._reference(), cut)

    def _check_scaled(self, d: HostArray, cut: Cut | None) -> Check:
        """Of a D of the random operands and their scales: of a large one, some rows."""
        assert self.scales is not None
        if self.problem.flops > verify.FULL_REFERENCE_FLOPS:
            return check_scaled_rows(self.problem, self.random, self.scales, d, self.options.seed, cut)
        return check_scaled(self.problem, self.random, self.scales, d, cut)
