"""Timings are interleaved, repeated, and summarized by the median with its spread."""

from __future__ import annotations

import itertools

import pytest

from gemmport.bench import timing
from gemmport.bench.timing import CPU_PACE, GPU_PACE, LEAST_SAMPLES, MAX_WAIT_SECONDS, Contestant, Timing, load, measure
from gemmport.core.device import DeviceInfo


class Clock:
    """Stands in for a GPU: every piece of work takes the time it says, and a list keeps the order."""

    device = DeviceInfo("opencl", "made up", "made up", type="gpu")

    def __init__(self):
        self.now, self.order = 0.0, []

    def work(self, name, seconds):
        def enqueue():
            self.now += seconds
            self.order.append(name)

        return Contestant(name, enqueue)

    def record(self):
        return self.now

    def elapsed(self, start, end):
        return end - start

    def synchronize(self):
        pass

    def allocate(self, nbytes):
        return Block()

    def fill(self, memory, byte):
        pass


class Block:
    """Stands in for memory."""

    def release(self):
        pass


def test_each_contestant_has_its_own_time_and_as_many_samples_as_asked():
    clock = Clock()
    timings = measure(clock, [clock.work("slow", 0.5), clock.work("fast", 1e-4)], repeat=7)
    assert timings["slow"].median == pytest.approx(0.5)
    assert timings["fast"].median == pytest.approx(1e-4)
    assert {len(timing.samples) for timing in timings.values()} == {7}


def test_turns_end_with_patience_but_not_before_there_are_a_few():
    clock = Clock()
    assert len(measure(clock, [clock.work("slow", 0.5)], repeat=7, patience=1.0)["slow"].samples) == LEAST_SAMPLES
    assert len(measure(clock, [clock.work("slow", 0.5)], repeat=2, patience=0.0)["slow"].samples) == 2


def test_short_work_is_repeated_within_a_sample_and_long_work_is_not():
    clock = Clock()
    timings = measure(clock, [clock.work("slow", 0.5), clock.work("fast", 1e-4)], repeat=1)
    assert timings["slow"].calls_per_sample == 1
    assert timings["fast"].calls_per_sample == round(GPU_PACE.sample_seconds / 1e-4)


def test_contestants_take_turns():
    clock = Clock()
    measure(clock, [clock.work("a", 1.0), clock.work("b", 1.0)], repeat=3)
    assert clock.order == ["a", "b"] * 4  # a call each to warm up
    clock = Clock()
    measure(clock, [clock.work("a", 1e-2), clock.work("b", 1.0)], repeat=3)
    assert [name for name, _ in itertools.groupby(clock.order)] == ["a", "b"] * 5  # two calls each, as one is fast


class Queue(Clock):
    """Stands in for a GPU that runs faster than the host enqueues; `host` is the host's clock."""

    enqueuing, filling = 30e-6, 40e-6

    def __init__(self):
        super().__init__()
        self.host = 0.0

    def put(self, seconds):
        self.host += self.enqueuing
        self.now = max(self.now, self.host) + seconds

    def work(self, name, seconds):
        return Contestant(name, lambda: self.put(seconds))

    def fill(self, memory, byte):
        self.put(self.filling)

    def synchronize(self):
        self.host = self.now = max(self.host, self.now)


def test_a_gpu_that_waits_for_the_host_is_not_timed_waiting(monkeypatch):
    queue = Queue()
    monkeypatch.setattr(timing.time, "perf_counter", lambda: queue.host)
    timings = measure(queue, [queue.work("short", 5e-6), queue.work("long", 1e-3)], repeat=5)
    assert timings["short"].median == pytest.approx(5e-6)
    assert timings["long"].median == pytest.approx(1e-3)


class Cores(Clock):
    """Stands in for two cores, of which a thread of `spinning` work keeps one for a while; and for the host's clock."""

    device = DeviceInfo("opencl", "made up", "made up", type="cpu")

    def __init__(self, spins):
        super().__init__()
        self.spins, self.until, self.used = spins, 0.0, 0.0

    def advance(self, seconds):
        self.used += min(seconds, max(0.0, self.until - self.now))
        self.now += seconds

    def work(self, name, seconds):
        def enqueue():
            self.advance(seconds if self.now >= self.until else 2 * seconds)
            self.order.append(name)

        return Contestant(name, enqueue)

    def spinning(self, name, seconds):
        def enqueue():
            self.advance(seconds)
            self.until = self.now + self.spins
            self.order.append(name)

        return Contestant(name, enqueue, clock="host")

    sleep = advance

    def perf_counter(self):
        return self.now

    def process_time(self):
        return self.used


def cores(monkeypatch, *, spins):
    made_up = Cores(spins)
    monkeypatch.setattr(timing, "time", made_up)
    return made_up


def test_on_a_cpu_nobody_is_timed_while_threads_of_another_spin(monkeypatch):
    machine = cores(monkeypatch, spins=0.5)
    contestants = [machine.spinning("blas", 1e-3), machine.work("fast", 2e-3), machine.work("slow", 0.2)]
    timings = measure(machine, contestants, repeat=3)
    assert timings["blas"].samples == pytest.approx([1e-3] * 3)
    assert timings["fast"].samples == pytest.approx([2e-3] * 3)
    assert timings["slow"].samples == pytest.approx([0.2] * 3)


def test_on_a_cpu_a_turn_warms_up_what_is_fast_and_lasts_longer(monkeypatch):
    machine = cores(monkeypatch, spins=0.0)
    timings = measure(machine, [machine.work("fast", 1e-3), machine.work("slow", 0.5)], repeat=1)
    assert timings["fast"].calls_per_sample == round(CPU_PACE.sample_seconds / 1e-3)
    turn = round((CPU_PACE.warm_up_seconds + CPU_PACE.sample_seconds) / 1e-3)
    assert machine.order == ["fast", "slow", "fast", "slow", *(["fast"] * turn), "slow"]


def test_threads_that_never_sleep_are_not_waited_for_forever(monkeypatch):
    machine = cores(monkeypatch, spins=float("inf"))
    timings = measure(machine, [machine.spinning("blas", 0.2)], repeat=2)
    assert len(timings["blas"].samples) == 2
    assert machine.now <= 4 * 0.2 + 2 * (MAX_WAIT_SECONDS + 0.1)


def test_host_work_is_timed_by_the_host():
    clock = Clock()
    timings = measure(clock, [Contestant("host", lambda: sum(range(200_000)), clock="host")], repeat=3)
    assert timings["host"].median > 1e-4
    assert clock.now == 0.0


def test_the_median_ignores_one_disturbed_sample_and_the_spread_is_half_the_quartiles_distance():
    timing = Timing((1.0, 2.0, 3.0, 4.0, 100.0), 1)
    assert timing.median == 3.0
    assert timing.quartiles == (2.0, 4.0)
    assert timing.spread == pytest.approx(1 / 3)
    assert Timing((2.0,), 1).spread == 0.0


@pytest.mark.parametrize(
    ("median", "calls"),
    [
        (timing.LOAD_SECONDS / 5, 5),
        (10 * timing.LOAD_SECONDS, 1),
        (1e-6, timing.MAX_CALLS_PER_SAMPLE),
        (0.0, timing.MAX_CALLS_PER_SAMPLE),
    ],
)
def test_a_device_is_kept_at_work_for_a_moment_by_no_more_calls_than_a_sample_has(median: float, calls: int) -> None:
    clock = Clock()
    keep_busy = load(clock, clock.work("work", median).enqueue, Timing((median,), 1))
    assert not clock.order, "a device whose clocks are not read computes nothing"
    keep_busy()
    assert len(clock.order) == calls
