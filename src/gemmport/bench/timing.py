"""How long things take: warmed up, interleaved, repeated, and summarized by the median with its spread."""

from __future__ import annotations

import logging
import math
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Literal

from gemmport.backends.base import Backend

log = logging.getLogger(__name__)

MAX_CALLS_PER_SAMPLE = 1000
"""So many are enqueued at a time at most."""

LEAST_SAMPLES = 3
"""Of each contestant, however long they take: a median of fewer says nothing."""

SLOW_SECONDS = 0.1
"""Work that takes so long is not warmed up before each sample: its beginning does not count."""

QUIET_SHARE = 0.25
"""Of one core: where a process uses less, its threads sleep."""

QUIET_WINDOW_SECONDS = 10e-3
"""So long a process is watched at a time."""

MAX_WAIT_SECONDS = 1.0
"""Threads that never sleep are not waited for any longer."""

LEAD_BYTES = 2**28
"""Of memory that is filled in front of a GPU's samples: some 60 µs on the fastest."""

LEAD_FILLS = 8
"""So many are timed together."""

LEAD_MARGIN = 2.0
"""The work in front of a sample takes so many times what the host takes to enqueue the sample."""

LOAD_SECONDS = 0.05
"""Of work that a GPU is given at a time while its clocks and power are read."""


@dataclass(frozen=True)
class Pace:
    """How a turn goes on a kind of device.

    Attributes:
        sample_seconds: a sample repeats its work until it takes so long, so that neither the clock's resolution nor a queue's
            start counts.
        warm_up_seconds: so long work runs untimed before a sample, once at least.
        waits: whether a turn begins only when the process's other threads sleep.
    """

    sample_seconds: float
    warm_up_seconds: float
    waits: bool

    def calls(self, once: float) -> tuple[int, int]:
        """How many calls of so many seconds warm up, and how many make a sample."""
        warm_up, sample = (_calls_of(once, seconds) for seconds in (self.warm_up_seconds, self.sample_seconds))
        return (0 if once >= SLOW_SECONDS else warm_up), sample


GPU_PACE = Pace(sample_seconds=2e-3, warm_up_seconds=0.0, waits=False)

CPU_PACE = Pace(sample_seconds=40e-3, warm_up_seconds=100e-3, waits=True)
"""All contestants share the cores. OpenBLAS's threads spin for 2²⁸ ticks of the processor's clock after their work: for a tenth
of a second a kernel has one core less. PoCL's threads, when they wake, may share one core while another idles, until they have
worked for a while."""


def _calls_of(once: float, seconds: float) -> int:
    """How many calls, of `once` seconds each, take so many seconds: one at least, and no more than are enqueued at a time."""
    return max(1, min(MAX_CALLS_PER_SAMPLE, round(seconds / max(once, 1e-9))))


@dataclass(frozen=True)
class Contestant:
    """Something to time.

    Attributes:
        enqueue: does the work once; may return before it is done.
        clock: "device": timed by events on the backend's queue; "host": by the host's clock, done when it returns.
    """

    name: str
    enqueue: Callable[[], None]
    clock: Literal["device", "host"] = "device"


@dataclass(frozen=True)
class Timing:
    """Seconds per call, one figure for each sample."""

    samples: tuple[float, ...]
    calls_per_sample: int

    @property
    def median(self) -> float:
        """The median sample, in seconds."""
        return statistics.median(self.samples)

    @property
    def quartiles(self) -> tuple[float, float]:
        """First and third quartile, in seconds."""
        if len(self.samples) < 2:
            return self.samples[0], self.samples[0]
        first, _, third = statistics.quantiles(self.samples, n=4, method="inclusive")
        return first, third

    @property
    def spread(self) -> float:
        """Half the distance between the quartiles, as a fraction of the median."""
        first, third = self.quartiles
        return (third - first) / 2 / self.median if self.median else 0.0


def measure(
    backend: Backend, contestants: Sequence[Contestant], *, repeat: int, patience: float = math.inf
) -> dict[str, Timing]:
    """Times all contestants in turn, `repeat` times over, so that what disturbs one disturbs all.

    On a GPU turns are short, and other work is in front of what is enqueued faster than it runs, so that a sample holds no
    waiting for the host. On a CPU each turn begins when the threads of the one before it sleep: see `CPU_PACE`.

    Each is called twice beforehand. Where all take so long that a sample is a call, the second calls are the first turn.

    Args:
        repeat: samples of each; at least 1.
        patience: seconds of samples after which no turn begins, once there are `LEAST_SAMPLES` of each.
    """
    pace = CPU_PACE if backend.device.type == "cpu" else GPU_PACE
    warm_up, calls, hosts = {}, {}, {}
    second: dict[str, float] = {}
    for contestant in contestants:  # the first call compiles and loads
        _sample(backend, contestant, 1)
    for contestant in contestants:  # the second says how many make a sample
        if pace.waits:
            wait_until_quiet()
        hosts[contestant.name], second[contestant.name] = _sample(backend, contestant, 1)
        warm_up[contestant.name], calls[contestant.name] = pace.calls(second[contestant.name])
    are_slow = all(calls[name] == 1 and not warm_up[name] for name in second)
    samples = {name: [seconds] if are_slow else [] for name, seconds in second.items()}
    with _Lead(backend) if pace is GPU_PACE and max(calls.values(), default=1) > 1 else nullcontext() as lead:
        spent = sum(map(sum, samples.values()))
        for turn in range(int(are_slow), repeat):
            if turn >= LEAST_SAMPLES and spent > patience:
                break
            for contestant in contestants:
                name = contestant.name
                if pace.waits:
                    wait_until_quiet()
                for _ in range(warm_up[name]):
                    contestant.enqueue()
                ahead = LEAD_MARGIN * calls[name] * hosts[name] if calls[name] > 1 else 0.0
                hosts[name], seconds = _sample(backend, contestant, calls[name], lead, ahead)
                samples[name].append(seconds)
                spent += seconds * calls[name]
    return {name: Timing(tuple(times), calls[name]) for name, times in samples.items()}


def load(backend: Backend, enqueue: Callable[[], None], timing: Timing) -> Callable[[], None]:
    """What keeps a device at work for LOAD_SECONDS, by what was timed; shorter where that is more than MAX_CALLS_PER_SAMPLE."""

    def keep_busy() -> None:
        for _ in range(_calls_of(timing.median, LOAD_SECONDS)):  # here, for only GPUs are kept at work
            enqueue()
        backend.synchronize()

    return keep_busy


def wait_until_quiet() -> None:
    """Returns when this process's other threads sleep, or after MAX_WAIT_SECONDS."""
    end = time.perf_counter() + MAX_WAIT_SECONDS
    while (start := time.perf_counter()) < end:
        used = time.process_time()
        time.sleep(QUIET_WINDOW_SECONDS)
        if time.process_time() - used < QUIET_SHARE * (time.perf_counter() - start):
            return
    log.debug("threads of this process still run after %g s: they share the cores with what is timed", MAX_WAIT_SECONDS)


class _Lead:
    """Work that is enqueued in front of a sample, so that all of the sample is enqueued when it begins."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._memory = backend.allocate(LEAD_BYTES)
        self._fill()
        backend.synchronize()
        start, first = time.perf_counter(), backend.record()
        for _ in range(LEAD_FILLS):
            self._fill()
        host, last = (time.perf_counter() - start) / LEAD_FILLS, backend.record()
        # What one gains: the device's time without the host's, which the first of them is waited for.
        self._seconds = max((backend.elapsed(first, last) - host) / LEAD_FILLS - host, 1e-6)

    def __enter__(self) -> _Lead:
        return self

    def __exit__(self, *_: object) -> None:
        self._backend.synchronize()
        self._memory.release()

    def enqueue(self, seconds: float) -> None:
        """Enqueues work that keeps the device busy so long after it is enqueued."""
        for _ in range(math.ceil(seconds / self._seconds)):
            self._fill()

    def _fill(self) -> None:
        self._backend.fill(self._memory, 0)


def _sample(
    backend: Backend, contestant: Contestant, calls: int, lead: _Lead | None = None, ahead: float = 0.0
) -> tuple[float, float]:
    """Seconds of the host, and of the work itself, per call; the work has `ahead` seconds of others' in front of it."""
    backend.synchronize()
    if contestant.clock == "host":
        start = time.perf_counter()
        for _ in range(calls):
            contestant.enqueue()
        seconds = (time.perf_counter() - start) / calls
        return seconds, seconds
    if lead is not None:
        lead.enqueue(ahead)
    first = backend.record()
    start = time.perf_counter()
    for _ in range(calls):
        contestant.enqueue()
    host = (time.perf_counter() - start) / calls
    return host, backend.elapsed(first, backend.record()) / calls
