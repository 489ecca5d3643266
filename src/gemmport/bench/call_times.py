"""How long calls take their caller: until they return, one after the other without a wait, and each with one.

Several callers take turns, so that what disturbs one disturbs all. A turn measures all three ways, and is one sample of each:
the median of what was timed in it.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeVar, get_args

from gemmport.bench.timing import Timing, wait_until_quiet

Way = Literal["host", "back_to_back", "awaited"]
"""host: until a call returns; back_to_back: a call's part of many that are awaited together; awaited: call and wait."""

WAYS: tuple[Way, ...] = get_args(Way)

Name = TypeVar("Name", bound=Hashable)

ROUND = 32
"""At most so many calls are timed one by one before a wait, so that no queue is full."""

RUN = 100
"""At most so many calls are timed together, back to back."""


@dataclass(frozen=True)
class Caller:
    """Something to time.

    Attributes:
        call: may return before its work is done.
        wait: takes what the last call returned, and waits for all calls.
    """

    call: Callable[..., Any]
    wait: Callable[[Any], None]


@dataclass(frozen=True)
class CallPace:
    """How a turn goes on a kind of device.

    Attributes:
        warm_up_seconds: so long calls are made untimed.
        seconds: so long each way is timed, once at least.
        waits: whether a turn begins only when the process's other threads sleep.
        run_seconds: calls back to back are fewer where they would take longer.
    """

    warm_up_seconds: float
    seconds: float
    waits: bool
    run_seconds: float = 1.0


GPU_CALLS = CallPace(warm_up_seconds=0.01, seconds=0.02, waits=False)

CPU_CALLS = CallPace(warm_up_seconds=0.1, seconds=0.07, waits=True)
"""As `timing.CPU_PACE`: all callers share the cores, on which OpenBLAS's threads spin and PoCL's gather."""


def measure_calls(callers: Mapping[Name, Caller], pace: CallPace, turns: int) -> dict[Name, dict[Way, Timing]]:
    """Times all callers in turn.

    Args:
        turns: of each that count, one at least; the first is one more, and warms up.

    Returns:
        For each caller and way the seconds per call, one figure for each turn.
    """
    counts = {name: _counts(caller, pace) for name, caller in callers.items()}
    medians: dict[Name, dict[Way, list[float]]] = {name: {way: [] for way in WAYS} for name in callers}
    for turn in range(turns + 1):
        for name, caller in callers.items():
            found = _turn(caller, pace, counts[name])
            for way in WAYS if turn else ():
                medians[name][way].append(found[way])
    return {
        name: {way: Timing(tuple(own[way]), counts[name][way]) for way in WAYS} for name, own in medians.items()
    }  # fmt: skip


def run(caller: Caller, calls: int) -> None:
    """Makes so many calls back to back, and waits for them."""
    _back_to_back(caller, calls)


def _counts(caller: Caller, pace: CallPace) -> dict[Way, int]:
    """How many calls there are before a wait; the first call compiles and loads, the second says how long one takes."""
    caller.wait(caller.call())
    once = max(_awaited(caller, 1)[0], 1e-9)

    def fitting(seconds: float, most: int) -> int:
        return max(1, min(most, round(seconds / once)))

    return {"host": fitting(pace.seconds, ROUND), "back_to_back": fitting(pace.run_seconds, RUN), "awaited": 1}


def _turn(caller: Caller, pace: CallPace, counts: Mapping[Way, int]) -> dict[Way, float]:
    if pace.waits:
        wait_until_quiet()
    _repeated(pace.warm_up_seconds, partial(_awaited, caller, 1))
    return {
        way: statistics.median(_repeated(pace.seconds, partial(sample, caller, counts[way])))
        for way, sample in _SAMPLES.items()
    }


def _repeated(seconds: float, sample: Callable[[], list[float]]) -> list[float]:
    """Samples for so many seconds; one at least."""
    found = sample()
    start = time.perf_counter()
    while time.perf_counter() - start < seconds:
        found += sample()
    return found


def _host(caller: Caller, calls: int) -> list[float]:
    """Seconds until each call returned."""
    seconds: list[float] = []
    start = time.perf_counter()
    for _ in range(calls):
        result = caller.call()
        now = time.perf_counter()
        seconds.append(now - start)
        start = now
    caller.wait(result)
    return seconds


def _back_to_back(caller: Caller, calls: int) -> list[float]:
    """Seconds of each call, of many that are awaited together."""
    start = time.perf_counter()
    for _ in range(calls):
        result = caller.call()
    caller.wait(result)
    return [(time.perf_counter() - start) / calls]


def _awaited(caller: Caller, calls: int) -> list[float]:
    """Seconds of each call with its wait."""
    seconds: list[float] = []
    for _ in range(calls):
        start = time.perf_counter()
        caller.wait(caller.call())
        seconds.append(time.perf_counter() - start)
    return seconds


_SAMPLES: dict[Way, Callable[[Caller, int], list[float]]] = {
    "host": _host,
    "back_to_back": _back_to_back,
    "awaited": _awaited,
}
