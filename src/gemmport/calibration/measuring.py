"""Measures a device: of each micro-benchmark the fastest form, verified, made long enough, and timed in turn with others."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np

from gemmport.backends.base import Backend
from gemmport.bench.timing import SLOW_SECONDS, Contestant, measure
from gemmport.calibration.benchmarks import Benchmark
from gemmport.calibration.bound import Bound
from gemmport.calibration.figures import Figure, figures, is_counted
from gemmport.calibration.suite import absent, suite
from gemmport.core.device import DeviceInfo
from gemmport.core.errors import CalibrationError, CompileError, DeviceMemoryError, LaunchError, ParameterError

log = logging.getLogger(__name__)

LIMIT_SECONDS = 55.0
"""Of all of it: then what is there counts."""

SHARE_OF_PREPARATION = 0.7
"""Of the limit; what is not prepared by then is left out."""

ROUNDS = 10
"""Samples of each benchmark."""

TARGET_SECONDS = {"cpu": 4e-3, "gpu": 0.5e-3, "accelerator": 4e-3}
"""So long a launch takes, at least, so that its own start does not count."""

MOST_GROUPS, MOST_STEPS, MOST_TARGET_BYTES = 2**20, 2**14, 2**27
"""Of a launch, and of what it writes. Rusticl leaves loops after 65,535 rounds without a word (quirk rusticl-loop-rounds)."""

TRIES = 3
"""Times that are taken of a form, of which the least counts."""

COUNTED_TRIES = (8, 16, 32)
"""Times that are taken of half the work and of all of it, where one seemed to take as long as the other by fewer: a busy
machine disturbs some, but what takes SLOW_SECONDS less, so that there TRIES may do."""

LONGER = 8
"""Times as much a launch does where half of it took as long as all of it."""


@dataclass(frozen=True)
class Measured:
    """What was measured of a device.

    Attributes:
        figures: the numbers of its model, in the order of the suite.
        forms: of each, what was launched.
        left_out: why a number is not there, by its name.
        seconds: that it took.
    """

    device: DeviceInfo
    figures: tuple[Figure, ...]
    forms: Mapping[str, Benchmark]
    left_out: Mapping[str, str]
    seconds: float


def calibrate(
    backend: Backend,
    *,
    progress: Callable[[str], None] = lambda _: None,
    limit: float = LIMIT_SECONDS,
    rounds: int = ROUNDS,
    seed: int = 0,
    clock: Callable[[], float] = time.monotonic,
) -> Measured:
    """Measures what a device's model states.

    Args:
        progress: told what is being done.
        limit: seconds, after which no further round begins; what is being done then is done to its end.
        rounds: samples of each number, at most; there is one at least.
        seed: of what is read.
        clock: tells seconds.

    Raises:
        CalibrationError: a benchmark computes wrongly, or leaves work out.
        LaunchError, DeviceMemoryError: the device fails.
    """
    start = clock()
    chosen: dict[str, Bound] = {}
    left_out = absent(backend.device)
    every = suite(backend.device)
    with ExitStack() as stack:
        for number, (name, candidates) in enumerate(every.items(), 1):
            if clock() - start > SHARE_OF_PREPARATION * limit and chosen:
                left_out[name] = f"no time was left of {limit:g} s"
                continue
            progress(f"preparing {name} ({number} of {len(every)})")
            try:
                chosen[name] = stack.enter_context(_fastest(name, candidates, backend, seed))
            except (CompileError, LaunchError, ParameterError, DeviceMemoryError) as error:
                log.info("%s is left out: %s", name, error)
                left_out[name] = str(error)
        seconds = _times(backend, chosen, rounds, lambda: clock() - start < limit, progress)
    forms = {name: bound.benchmark for name, bound in chosen.items()}
    found = figures(backend.device, {name: (form, seconds[name]) for name, form in forms.items()})
    return Measured(backend.device, tuple(found), forms, left_out, clock() - start)


def _fastest(name: str, forms: Sequence[Benchmark], backend: Backend, seed: int) -> Bound:
    """The form that does most in a second, verified and as long as it is to be timed.

    Raises:
        CalibrationError: one computes wrongly, or leaves work out.
        CompileError, LaunchError, ParameterError, DeviceMemoryError: the device takes none; what it says of the last.
    """
    best, most, refused = None, 0.0, None
    for form in forms:
        try:
            with _bound(name, form, backend, seed) as bound:
                seconds = min(bound.seconds() for _ in range(TRIES))
        except (CompileError, LaunchError, ParameterError, DeviceMemoryError) as error:
            log.info("%s: a form is passed over: %s", name, error)
            refused = error
            continue
        log.debug("%s: %s takes %.3g s", name, dict(form.form), seconds)
        if best is None or form.amount / seconds > most:
            best, most = form, form.amount / seconds
            times = _times_as_much(form, seconds, backend.device)
    if best is None:
        assert refused is not None
        raise refused
    if best.amount == 1:  # of one group, there is no half
        return _bound(name, best, backend, seed)
    return _counted(name, best, times, backend, seed)


def _counted(name: str, form: Benchmark, times: int, backend: Backend, seed: int) -> Bound:
    """The form, so long that half of it takes clearly less than all of it: the start of a launch takes long on a busy machine.

    Raises:
        CalibrationError: it takes as long however long it is made.
    """
    longest = _times_as_much(form, 0.0, backend.device)
    while True:
        bound = _bound(name, form.grown(times), backend, seed)
        try:
            _check_counted(name, bound)
        except CalibrationError as error:
            bound.release()
            if times >= longest:
                raise
            log.info("%s is made longer: %s", name, error)
            times = min(LONGER * times, longest)
        except BaseException:
            bound.release()
            raise
        else:
            return bound


def _bound(name: str, form: Benchmark, backend: Backend, seed: int) -> Bound:
    bound = Bound(form, backend, np.random.default_rng(seed))
    try:
        bound.check(name)
    except BaseException:
        bound.release()
        raise
    return bound


def _times_as_much(form: Benchmark, seconds: float, device: DeviceInfo) -> int:
    """How often as much a launch does, to take as long as it shall."""
    if not form.grows or form.amount == 1:
        return 1
    wanted = int(TARGET_SECONDS[device.type] / max(seconds, 1e-9)) + 1
    room = (MOST_STEPS // form.steps,) if form.grows == "steps" else (
        min(MOST_GROUPS, device.max_groups) // form.groups, MOST_TARGET_BYTES // max(form.target_bytes, 1)
    )  # fmt: skip
    return max(min(wanted, *room), 1)


def _check_counted(name: str, bound: Bound) -> None:
    """Raises CalibrationError where half of the work takes as long as all of it: somebody found out how to leave it out.

    On a busy machine chance alone makes half of nothing take less than all of it, now and then: it must do so twice.
    """
    half: list[float] = []
    whole: list[float] = []

    def take(tries: int) -> None:
        while len(whole) < tries:
            whole.append(bound.seconds())
            half.append(bound.seconds(half=True))

    rounds = (TRIES, *COUNTED_TRIES) if bound.seconds() >= SLOW_SECONDS else COUNTED_TRIES
    for tries in rounds:
        take(tries)
        if is_counted(half, whole):
            take(tries + rounds[0])
            if is_counted(half[tries:], whole[tries:]):
                return
    raise CalibrationError(
        f"{name} on {bound.backend.device.label} must take longer with more to do; half of it took {min(half):.3g} s, and all "
        f"of it {min(whole):.3g} s: a compiler, or the clock, leaves something out; nothing is kept of it"
    )


def _times(
    backend: Backend, benchmarks: Mapping[str, Bound], rounds: int, is_time: Callable[[], bool],
    progress: Callable[[str], None],
) -> dict[str, list[float]]:  # fmt: skip
    """Seconds of a launch of each, by each round."""
    contestants = [Contestant(name, bound.enqueue) for name, bound in benchmarks.items()]
    seconds: dict[str, list[float]] = {name: [] for name in benchmarks}
    for number in _while(rounds, is_time):
        progress(f"measuring, round {number} of {rounds}")
        for name, timing in measure(backend, contestants, repeat=1).items():
            seconds[name].append(timing.median)
    return seconds


def _while(rounds: int, is_time: Callable[[], bool]) -> Iterator[int]:
    """Counts rounds, as long as there is time, from 1."""
    yield 1
    for number in range(2, rounds + 1):
        if not is_time():
            return
        yield number
