"""How long things take: warmed up, interleaved, repeated, and summarized by the median with its spread."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from gemmport.backends.base import Backend

MIN_SAMPLE_SECONDS = 2e-3
"""A sample repeats its work until it takes so long, so that neither the clock's resolution nor a queue's start counts."""

MAX_CALLS_PER_SAMPLE = 1000

SETTLE_SECONDS = 0.1
"""Before each sample of something faster than this, it runs once untimed: the threads of whoever was measured before it spin
for a while after their work, and on a CPU they take its cores."""


LOAD_SECONDS = 0.3
"""Work in the queue while a GPU's clocks and power are read: nvidia-smi takes a tenth of a second and averages power over as
long."""


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


def measure(backend: Backend, contestants: Sequence[Contestant], *, repeat: int) -> dict[str, Timing]:
    """Times all contestants in turn, `repeat` times over, so that what disturbs one disturbs all.

    Args:
        repeat: samples of each; at least 1.
    """
    calls, settle = {}, {}
    for contestant in contestants:  # the first call warms up, the second says how many make a sample
        _sample(backend, contestant, 1)
        once = _sample(backend, contestant, 1)
        settle[contestant.name] = once < SETTLE_SECONDS
        calls[contestant.name] = max(1, min(MAX_CALLS_PER_SAMPLE, round(MIN_SAMPLE_SECONDS / max(once, 1e-9))))
    samples: dict[str, list[float]] = {contestant.name: [] for contestant in contestants}
    for _ in range(repeat):
        for contestant in contestants:
            if settle[contestant.name]:
                contestant.enqueue()
            samples[contestant.name].append(_sample(backend, contestant, calls[contestant.name]))
    return {name: Timing(tuple(times), calls[name]) for name, times in samples.items()}


def enqueue_load(enqueue: Callable[[], None], timing: Timing) -> None:
    """Enqueues so much of what was timed that a device is busy for LOAD_SECONDS."""
    for _ in range(min(max(1, round(LOAD_SECONDS / timing.median)), MAX_CALLS_PER_SAMPLE)):
        enqueue()


def _sample(backend: Backend, contestant: Contestant, calls: int) -> float:
    backend.synchronize()
    if contestant.clock == "host":
        start = time.perf_counter()
        for _ in range(calls):
            contestant.enqueue()
        return (time.perf_counter() - start) / calls
    first = backend.record()
    for _ in range(calls):
        contestant.enqueue()
    return backend.elapsed(first, backend.record()) / calls
