"""The work behind the ladders of passes: verify each step, and time it beside the runtime's own copy of as many bytes.

What limits a pass is memory, so that nothing may come from a cache: several sources and targets take turns, and are
PAST_CACHES bytes in all. The copy takes the same turns in the same run; percentages are of its bandwidth, and so tell how much
of the memory's speed on this device a pass reaches, whatever its vendor claims.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from gemmport.backends.base import Backend
from gemmport.backends.objects import Call, Memory
from gemmport.bench.environment import gpu_state
from gemmport.bench.pass_jobs import HostArray, PassJob
from gemmport.bench.results import BaselineResult, Outcome, Status, seconds_to_dict
from gemmport.bench.timing import Contestant, Timing, load, measure
from gemmport.checking.guarded_run import same_bits
from gemmport.checking.verification import Check, poison
from gemmport.contracts.kernel import Rung, Steps, ceil_div
from gemmport.core.device import DeviceInfo
from gemmport.core.errors import CompileError, DeviceMemoryError, LaunchError, ParameterError, UnsupportedError
from gemmport.core.plan import Launch, ParameterValue
from gemmport.core.units import quantity
from gemmport.execution.executor import prepare_launch
from gemmport.execution.selection import get_backend
from gemmport.planning.planner import AUTO

PAST_CACHES = 2**29
"""Bytes of all buffers that take turns: twice the largest cache known to us in front of a GPU's memory, the 256 MB of AMD's
MI300X (CDNA 3 white paper, 2023), and ten times that of NVIDIA's H100 and H200 (50 MB; H100 white paper, 2022)."""

MOST_TURNS = 64
"""Buffers that take turns at most: more small ones take longer to prepare than to measure."""

GUARD_BYTES = 4096
"""Poison behind each target: as much as a tile that reaches over its end may write."""

COPY = "copy of the runtime"

BASELINES = ("numpy",)
"""What can be asked for beside the copy, which is always there."""


@dataclass(frozen=True)
class PassOptions:
    """How to run a ladder of passes.

    Attributes:
        baselines: names among BASELINES, or "auto" alone for those that belong to the device; empty for none.
        repeat: samples per measurement.
        seed: of the random elements.
    """

    baselines: tuple[str, ...] = (AUTO,)
    verify: bool = True
    repeat: int = 10
    seed: int = 0


@dataclass(frozen=True)
class PassResult(Outcome):
    """A step of a ladder on a device; see `Outcome`.

    Attributes:
        copy: the runtime's copy of the source, from the same interleaved measurement.
        turns: buffers that took turns.
        launched: what a call of it launches.
    """

    job: PassJob
    rung: Rung
    device: DeviceInfo
    status: Status
    reason: str = ""
    timing: Timing | None = None
    checks: tuple[Check, ...] = ()
    baselines: tuple[BaselineResult, ...] = ()
    clocks: dict[str, str] = field(default_factory=dict)
    copy: Timing | None = None
    turns: int = 0
    launched: tuple[Launch, ...] = ()

    unit = "GB/s"
    rate_key = "gb_per_second"
    yardstick = "copy"

    @property
    def name(self) -> str:
        """The step."""
        return self.rung.name

    @property
    def task(self) -> str:
        """What was moved or reduced, for people."""
        return str(self.job)

    @property
    def values(self) -> dict[str, ParameterValue]:
        """Parameters of the pass by name."""
        return self.rung.own.complete(self.rung.parameters)

    @property
    def launches(self) -> tuple[Launch, ...]:
        """Those of the step."""
        return self.launched

    @property
    def work(self) -> int:
        """Bytes read and written."""
        return self.job.work

    @property
    def copy_rate(self) -> float | None:
        """GB/s of the copy: it reads and writes what the pass reads."""
        return 2 * self.job.source_bytes / self.copy.median * 1e-9 if self.copy else None

    @property
    def percent(self) -> float | None:
        """Percent of the bandwidth of the runtime's copy."""
        own, copy = self.rate(self.timing), self.copy_rate
        return 100 * own / copy if own is not None and copy is not None else None

    @property
    def about_yardstick(self) -> str:
        """The bandwidth of the copy, and what it was measured with."""
        if self.copy is None:
            return ""
        in_all = self.turns * (self.job.source_bytes + self.job.target_bytes)
        text = f"copy on {self.device.label}: {self.copy_rate:,.1f} GB/s ±{100 * self.copy.spread:.1f}%; {self.turns} pairs "
        text += f"of buffers in turn, {quantity(in_all, 'B')}"
        return text if in_all >= PAST_CACHES // 2 else f"{text}, which a cache may hold: choose a larger --size"

    def compared_with(self) -> dict[str, float]:
        """The rate of the copy, and of the baselines, by name."""
        own = {COPY: self.copy_rate} if self.copy_rate is not None else {}
        return {**own, **super().compared_with()}

    def to_dict(self) -> dict[str, Any]:
        """The result as docs/results.md describes it."""
        return {
            **self._where(),
            "pass": self.rung.own.name,
            "parameters": {name: {"value": value, "origin": self._origin(name)} for name, value in self.values.items()},
            **self.job.extents,
            "dtype": self.job.dtype.name,
            **self._what_came(),
            "copy": {"seconds": seconds_to_dict(self.copy), "gb_per_second": self.copy_rate},
            "turns": self.turns,
        }

    def _origin(self, parameter: str) -> str:
        return self.rung.name if parameter in self.rung.parameters else f"the defaults of {self.rung.own.name}"


def run_passes(
    job: PassJob,
    rungs: Sequence[Rung],
    devices: Sequence[DeviceInfo],
    options: PassOptions,
    *,
    progress: Callable[[str], None] = lambda _: None,
) -> Iterator[PassResult]:
    """Runs all steps on every device, in turn with the runtime's copy; yields their results in the steps' order.

    Args:
        progress: told what is being done.

    Raises:
        GemmportError: a device cannot be opened. One that refuses a step is a result of status "error".
    """
    for device in devices:
        try:
            with _Workspace(job, get_backend(device=device), options) as workspace:
                results = workspace.run(rungs, progress)
        except MemoryError as error:  # the device's, or the host's, which holds the elements too
            told = (
                str(error) if isinstance(error, DeviceMemoryError) else f"the host is out of memory for {job}: {error}"
            )
            results = [PassResult(job, rung, device, "error", told) for rung in rungs]
        yield from results


class _Bound:
    """A step, compiled, and bound to each pair of buffers in turn."""

    def __init__(
        self, steps: Steps, backend: Backend, sources: Sequence[Memory], targets: Sequence[Memory]
    ) -> None:  # fmt: skip
        self.backend = backend
        self.scratch = {scratch.name: backend.allocate(scratch.nbytes) for scratch in steps.scratch}
        self.turns: list[list[Call]] = []
        for source, target in zip(sources, targets, strict=True):
            memory: Mapping[str, Memory] = {"source": source, "target": target, **self.scratch}
            self.turns.append([prepare_launch(launch, backend, memory) for launch in steps.launches])
        self._cycle = itertools.cycle(self.turns)

    def enqueue(self, turn: int | None = None) -> None:
        """Enqueues the launches over the pair whose turn it is, or over a certain one."""
        for call in next(self._cycle) if turn is None else self.turns[turn]:
            self.backend.launch(call)

    def release(self) -> None:
        """Gives the scratch memory back."""
        for memory in self.scratch.values():
            memory.release()


class _Workspace:
    """Pairs of a source and a target on a device, over which steps and the runtime's copy take turns."""

    def __init__(self, job: PassJob, backend: Backend, options: PassOptions) -> None:
        self.job, self.backend, self.options = job, backend, options
        pair = job.source_bytes + job.target_bytes
        least = job.yardstick_turns
        if least * pair > backend.device.memory:
            raise DeviceMemoryError(
                f"{backend.device.label}: {least} × {pair:,} bytes for {job}; the device has {backend.device.memory:,} in "
                "all: choose a smaller size"
            )
        fitting = backend.device.memory // 2 // pair
        count = max(least, min(ceil_div(PAST_CACHES, pair), MOST_TURNS, fitting))
        self.sources = [backend.allocate(job.source_bytes) for _ in range(count)]
        self.targets = [backend.allocate(job.target_bytes + GUARD_BYTES) for _ in range(count)]
        self.random = job.random_source(options.seed)
        self.trials = list(job.trials(self.random, options.seed)) if options.verify else []
        self._bound: list[_Bound] = []

    def __enter__(self) -> _Workspace:
        return self

    def __exit__(self, *_: object) -> None:
        self.backend.synchronize()
        for bound in self._bound:
            bound.release()
        for memory in (*self.sources, *self.targets):
            memory.release()

    def run(self, rungs: Sequence[Rung], progress: Callable[[str], None]) -> list[PassResult]:
        """Verifies and times the steps, the copy and the baselines."""
        job, device = self.job, self.backend.device
        results: dict[str, PassResult] = {}
        ready: dict[str, _Bound] = {}
        for rung in rungs:
            progress(f"{job} on {device.label}: {rung.name}")
            try:
                steps = job.steps(rung, device)
                bound = _Bound(steps, self.backend, self.sources, self.targets)
                self._bound.append(bound)
                checks = self._checks(rung, steps, bound)
            except (UnsupportedError, ParameterError) as error:
                results[rung.name] = PassResult(job, rung, device, "unsupported", str(error))
            except (CompileError, LaunchError) as error:
                results[rung.name] = PassResult(job, rung, device, "error", str(error))
            else:
                ready[rung.name] = bound
                wrong = [f"{check.name}: {check.detail}" for check in checks if not check.passed]
                results[rung.name] = PassResult(
                    job, rung, device, "failed" if wrong else "ok", "; ".join(wrong), checks=checks,
                    launched=tuple(steps.launches),
                )  # fmt: skip
        if ready:
            progress(f"{job} on {device.label}: measuring")
            self._time(results, ready)
        return list(results.values())

    def _checks(self, rung: Rung, steps: Steps, bound: _Bound) -> tuple[Check, ...]:
        """What comes of each trial, and whether nothing but the target was written; none without verification."""
        checks, strays = [], ""
        for trial in self.trials:
            target, stray = self._compute(trial.source, bound)
            checks.append(trial.check(target, rung, steps))
            strays = strays or stray
        if checks:
            checks.insert(0, Check("untouched", not strays, float(bool(strays)), 0.0, strays))
        merged: dict[str, Check] = {}
        for check in checks:  # of several of a kind, one that failed
            if check.name not in merged or not check.passed:
                merged[check.name] = check
        return tuple(merged.values())

    def _compute(self, source: HostArray, bound: _Bound) -> tuple[HostArray, str]:
        """The target of the first pair, which was poison; and what else was written, for people, empty where nothing was."""
        job, backend = self.job, self.backend
        backend.upload(self.sources[0], source)
        flat = poison(job.target_bytes + GUARD_BYTES, np.uint8)
        guard = flat[job.target_bytes :].copy()
        backend.upload(self.targets[0], flat)
        for scratch in bound.scratch.values():
            backend.fill(scratch, int(flat[0]))
        bound.enqueue(0)
        backend.download(self.targets[0], flat)
        after = np.empty_like(source)
        backend.download(self.sources[0], after)
        stray = "" if same_bits(source, after) else "the source was changed"
        if not np.array_equal(guard, flat[job.target_bytes :]):
            stray = "written beyond the end of the target"
        return flat[: job.target_bytes].view(job.target_type), stray

    def _time(self, results: dict[str, PassResult], ready: Mapping[str, _Bound]) -> None:
        """Measures what is ready, beside the copy and the baselines, and completes its results."""
        job, backend, options = self.job, self.backend, self.options
        backend.upload(self.sources[0], self.random)
        for other in self.sources[1:]:
            backend.copy(self.sources[0], other, job.source_bytes)
        for target in self.targets:  # memory that was never written may not be there yet
            backend.fill(target, 0)
        automatic = BASELINES if backend.device.type == "cpu" else ()
        baselines = automatic if options.baselines == (AUTO,) else options.baselines
        contestants = [Contestant(COPY, self._copy())]
        contestants += [Contestant(name, self._on_host(), clock="host") for name in baselines]
        contestants += [Contestant(name, bound.enqueue) for name, bound in ready.items()]
        timings = measure(backend, contestants, repeat=options.repeat)
        clocks = gpu_state(backend, load(backend, contestants[-1].enqueue, timings[contestants[-1].name]))
        backend.synchronize()
        beside = tuple(BaselineResult(name, version=np.__version__, timing=timings[name]) for name in baselines)
        for name in ready:
            results[name] = replace(
                results[name], timing=timings[name], baselines=beside, clocks=clocks,
                copy=timings[COPY], turns=len(self.sources),
            )  # fmt: skip

    def _copy(self) -> Callable[[], None]:
        """Copies a source to its target or, where that is smaller, to the next source: all hold the same."""
        job = self.job
        others = self.targets if job.target_bytes >= job.source_bytes else [*self.sources[1:], self.sources[0]]
        turns = itertools.cycle(zip(self.sources, others, strict=True))

        def enqueue() -> None:
            source, target = next(turns)
            self.backend.copy(source, target, job.source_bytes)

        return enqueue

    def _on_host(self) -> Callable[[], None]:
        """The same work in NumPy, over as many arrays in turn."""
        works = [self.job.on_host(self.random.copy()) for _ in self.sources]
        for work in works:  # memory that was never written may not be there yet
            work()
        turns = itertools.cycle(works)

        def enqueue() -> None:
            next(turns)()

        return enqueue
