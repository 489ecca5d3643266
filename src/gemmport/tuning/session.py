"""A run of the tuner: studies of several products share a budget and a process; what is best for one is tried for others."""

from __future__ import annotations

import itertools
import time
from collections.abc import Generator, Iterator, Sequence
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


def search(studies: Sequence[Study], crew: Crew, seconds: float) -> Generator[Step, None, None]:
    """Tries candidates until the time is up or nothing is left to try, the product first on which the least time was spent and
    that has a candidate whose programs are compiled. Closing it ends the processes that compile.

    Raises:
        LaunchError: no process opens the device any more.
    """
    if not studies:
        return
    start = time.monotonic()
    most = max(COMPILE_SHARE * seconds, LEAST_COMPILE_SECONDS)
    with Ahead(studies[0].space.device, most) as ahead:
        while (spent := time.monotonic() - start) < seconds:
            waiting = sorted((study for study in studies if not study.at_end), key=lambda one: one.spent)
            if not waiting:
                return
            if ahead.room:
                ahead.ask(_upcoming(waiting, studies, ahead.room))
            found = next(filter(None, (_asked(study, studies, ahead) for study in waiting)), None)
            if found is None:  # either nothing is left of a product, or it is what Optuna asks for
                ahead.wait(seconds - spent)
                continue
            study, asked = found
            limit = max(min(most, seconds - spent), LEAST_COMPILE_SECONDS)
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


def _asked(study: Study, studies: Sequence[Study], ahead: Ahead) -> tuple[Study, Asked] | None:
    """A product with its next candidate whose programs are compiled; None where there is none yet, or none is left."""
    asked = study.ask(_elsewhere(study, studies), ahead.has)
    return None if asked is None else (study, asked)


def _upcoming(waiting: Sequence[Study], studies: Sequence[Study], count: int) -> Iterator[Plan]:
    """What products are to ask for next, about so many candidates of them all: the first of each before the second of any."""
    share = -(-count // len(waiting))
    each = [study.upcoming(_elsewhere(study, studies), share) for study in waiting]
    for plans in itertools.zip_longest(*each):
        yield from filter(None, plans)


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
