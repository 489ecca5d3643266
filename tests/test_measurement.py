"""Timings are interleaved, repeated, and summarized by the median with its spread."""

from __future__ import annotations

import pytest

from gemmport import measurement
from gemmport.measurement import Contestant, Timing, measure


class Clock:
    """Stands in for a device: every piece of work takes the time it says, and a list keeps the order."""

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


def test_each_contestant_has_its_own_time_and_as_many_samples_as_asked():
    clock = Clock()
    timings = measure(clock, [clock.work("slow", 0.5), clock.work("fast", 1e-4)], repeat=7)
    assert timings["slow"].median == pytest.approx(0.5)
    assert timings["fast"].median == pytest.approx(1e-4)
    assert {len(timing.samples) for timing in timings.values()} == {7}


def test_short_work_is_repeated_within_a_sample_and_long_work_is_not():
    clock = Clock()
    timings = measure(clock, [clock.work("slow", 0.5), clock.work("fast", 1e-4)], repeat=1)
    assert timings["slow"].calls_per_sample == 1
    assert timings["fast"].calls_per_sample == round(measurement.MIN_SAMPLE_SECONDS / 1e-4)


def test_contestants_take_turns():
    clock = Clock()
    measure(clock, [clock.work("a", 1.0), clock.work("b", 1.0)], repeat=3)
    assert clock.order == ["a", "a", "b", "b", *(["a", "b"] * 3)]  # two calls each to warm up, then in turn


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
