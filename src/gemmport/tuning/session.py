"""A run of the tuner: studies of several products share a budget and a process; what is best for one is tried for others."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gemmport.core.plan import Plan
from gemmport.planning.correction import Place
from gemmport.tuning.ahead import Ahead
from gemmport.tuning.crew import Candidate, Crew
from gemmport.tuning.study import Asked, Study, Tried

SAMPLES = 3
"""Of a candidate's time."""

COMPILE_SHARE, LEAST_COMPILE_SECONDS = 0.05, 5.0
"""Of the budget, that a candidate may compile at most; and what it may in any case."""

FIRST_EXPECTED = 1.0
"""Seconds of a call, as long as nothing is known of a product."""


@dataclass(frozen=True)
class Step:
    """What came of one candidate.

    Attributes:
        better: whether it is the best so far for its product.
        share: of the budget that is spent.
    """

    study: Study
    tried: Tried
    better: bool
    share: float


def search(studies: Sequence[Study], crew: Crew, seconds: float, ahead: Ahead | None = None) -> Iterator[Step]:
    """Tries candidates until the time is up or nothing is left to try, the product first on which the least time was spent.

    Args:
        ahead: compiles what is tried next; None: each program is compiled as it is tried.

    Raises:
        LaunchError: no process opens the device any more.
    """
    start = time.monotonic()
    while (spent := time.monotonic() - start) < seconds:
        waiting = [study for study in studies if not study.at_end]
        if not waiting:
            return
        study = min(waiting, key=lambda one: one.spent)
        asked = study.ask(_elsewhere(study, studies))
        if asked is None:
            continue
        limit = max(min(COMPILE_SHARE * seconds, seconds - spent), LEAST_COMPILE_SECONDS)
        if ahead is not None and ahead.misses(asked.plan):
            ahead.compile([asked.plan, *_upcoming(waiting, ahead.size)], limit)
        tried = try_asked(study, asked, crew, limit)
        yield Step(study, tried, tried is study.best, min((time.monotonic() - start) / seconds, 1.0))


def try_asked(study: Study, asked: Asked, crew: Crew, compile_seconds: float) -> Tried:
    """Tries one candidate, and keeps what came of it.

    Raises:
        LaunchError: no process opens the device any more.
    """
    outcome = crew.try_candidate(
        study.workload.problem, asked.candidate, repeat=SAMPLES, compile_seconds=compile_seconds,
        expected=asked.best or FIRST_EXPECTED, is_slow=asked.is_slow,
    )  # fmt: skip
    return study.tell(asked, outcome)


def _upcoming(studies: Sequence[Study], count: int) -> Iterator[Plan]:
    """What studies ask for next, about so many candidates of all of them."""
    for study in studies:
        yield from study.upcoming(_elsewhere(study, studies), max(count // len(studies), 1))


def _elsewhere(study: Study, studies: Sequence[Study]) -> Iterator[Candidate]:
    """The best candidates of other products, the nearest first."""
    place = Place.of(study.workload.problem)
    others = [other for other in studies if other is not study and not other.alone and other.best is not None]
    others.sort(key=lambda other: place.squared_distance(Place.of(other.workload.problem)))
    seen: list[Candidate] = []
    for other in others:
        best = other.best
        if best is not None and best.candidate not in seen:
            seen.append(best.candidate)
            yield best.candidate
