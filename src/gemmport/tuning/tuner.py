"""All of a tuner's run: the search, what it found beside the current choice in turns, and the entries worth writing."""

from __future__ import annotations

import logging
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from gemmport import kernels
from gemmport.bench.environment import host_environment
from gemmport.bench.standings import Workload
from gemmport.bench.sweeps import header
from gemmport.contracts.kernel import Rankings
from gemmport.core.device import DeviceInfo
from gemmport.core.errors import LaunchError, ParameterError, UnsupportedError
from gemmport.core.plan import Plan
from gemmport.planning.lookup import Configuration
from gemmport.planning.planner import make_plan
from gemmport.planning.schema import Entry, LoadedEntry
from gemmport.tuning import journal, space
from gemmport.tuning.crew import Candidate, Crew
from gemmport.tuning.entries import entry_of
from gemmport.tuning.outlook import Outlook
from gemmport.tuning.session import LEAST_COMPILE_SECONDS, Step, search, try_asked
from gemmport.tuning.study import HOPELESS, Study
from gemmport.tuning.suite import Task
from gemmport.tuning.tilings import Tiling, Times, chosen_tilings, tiling_of

log = logging.getLogger(__name__)

SEARCH_SHARE, COMPARED_SHARE = 0.8, 0.08
"""Of the budget: for the search, and for choices that are measured in turns at its end. In between, what is kept is tried for
the products that it was not tried for.
"""

TURNS = 5
"""Samples of each, in turns."""

TURN_SECONDS = 120.0
"""In which two choices must be measured in turns."""

ROUNDS = 3
"""In which choices are tried that were not: each trial may change the next choice."""

BETTER = 1.01
"""Times as fast as the current choice, in turns: what is not is not better."""

CLEAR = 4.0
"""Times the time of the new choice: a current one that took so long in the search is not measured once more."""

NEAR_BEST = 1.5
"""Times the best time of some product: a tiling that never was so near is not asked for others."""


@dataclass(frozen=True)
class Options:
    """What is tuned, and how.

    Attributes:
        configuration: by which the current choice is made.
        kernels: names of those that are tried; none for all.
        seconds: the budget.
        journal: its file; None for the default.
        imports: modules that register kernels.
    """

    device: DeviceInfo
    configuration: Configuration
    tasks: Sequence[Task]
    kernels: Sequence[str] = ()
    seconds: float = 300.0
    journal: Path | None = None
    imports: Sequence[str] = ()
    seed: int = 0

    @cached_property
    def rankings(self) -> Rankings:
        """What kernels consider by the configuration's models, which no entry changes: to rank a product may take a second."""
        return Rankings(self.device, self.configuration.model(self.device))


@dataclass(frozen=True)
class Compared:
    """The choice for a product before and after.

    Attributes:
        seconds: of both, in turns; None where the choice is the same, or there was no current one.
        reason: why there is no ratio; empty where there is one.
    """

    workload: Workload
    current: Candidate | None
    tuned: Candidate
    seconds: tuple[float, float] | None = None
    reason: str = ""

    @property
    def ratio(self) -> float | None:
        """The speed of the new choice over the current one's."""
        return self.seconds[0] / self.seconds[1] if self.seconds else None

    @property
    def is_better(self) -> bool:
        """Whether the new choice is the faster one. Where it is not, the current one is kept."""
        return self.current is None or (self.ratio is not None and self.ratio >= BETTER)


@dataclass(frozen=True)
class Report:
    """What came of a run.

    Attributes:
        compared: one for each product.
        entries: those that are worth writing.
        candidates: how many were tried, in this run and before it.
        replaced: processes that crashed, hung or compiled for too long.
    """

    device: DeviceInfo
    compared: tuple[Compared, ...]
    entries: tuple[Entry, ...]
    candidates: int
    replaced: int

    @property
    def geometric_mean(self) -> float | None:
        """Of the ratios of all choices that there are in the end; one that did not change has 1."""
        ratios = [one.ratio if one.ratio and one.is_better else 1.0 for one in self.compared if not one.reason]
        return statistics.geometric_mean(ratios) if ratios else None


@dataclass
class Tuner:
    """Studies of all products on one device, with the process in which candidates are tried."""

    options: Options
    crew: Crew
    journal: Path
    studies: list[Study] = field(default_factory=list)

    def run(self, told: Callable[[Step], None]) -> Report:
        """Searches, compares, and says what is worth writing.

        Args:
            told: of each candidate.

        Raises:
            LaunchError: no process opens the device any more.
        """
        seconds = self.options.seconds
        end = time.monotonic() + (1 - COMPARED_SHARE) * seconds
        with closing(search(self.studies, self.crew, SEARCH_SHARE * seconds)) as steps:
            for step in steps:
                told(step)
        self._complete(end)
        return self.finish()

    def _complete(self, end: float) -> None:
        """Tries what entries keep for products that it was not tried for, until the time is up: of such a product the planner
        knows what others tell. What is expected to be the fastest beside the product's best comes first.
        """
        for _ in range(ROUNDS):
            missing = [
                (study.times_the_best(plan), at, study, plan)
                for at, (study, entry) in enumerate(self._with_entries())
                for kernel, tilings in entry.kernels.items()
                for tiling in tilings
                if tiling and (plan := study.space.plan(kernel, tiling)) is not None and study.is_new(plan)
            ]
            hopeful = sorted((one for one in missing if one[0] <= HOPELESS), key=lambda one: one[:2])
            if not hopeful:
                return
            for _, _, study, plan in hopeful:
                if time.monotonic() > end:
                    return
                self._try(study, plan)

    def finish(self) -> Report:
        """Tries what the planner would choose and was not tried, and sets its choices beside the current ones, in turns."""
        for _ in range(ROUNDS):
            if not self._try_choices(self._entries()):
                break
        compared = [self._compared(study, entry) for study, entry in self._with_entries()]
        better = {one.workload.problem.dtype.name for one in compared if one.is_better}
        found = tuple(entry for dtype, entry in self._entries().items() if dtype in better)
        return Report(self.options.device, tuple(compared), found, self.tried, self.crew.replaced)

    @property
    def tried(self) -> int:
        """How many candidates were tried, in this run and before it."""
        return sum(len(study.tried) for study in self.studies)

    def trials(self) -> str:
        """All trials, as the file of a sweep."""
        lines = [study.swept().to_line() for study in self.studies if study.best is not None]
        return header(self.options.device, host_environment()) + "".join(lines)

    def _searched(self) -> list[Study]:
        """Studies of products that planners choose for."""
        return [study for study in self.studies if not study.alone and study.best is not None]

    def _entries(self) -> dict[str, Entry]:
        """An entry for each type, by its name."""
        found = {}
        for dtype in dict.fromkeys(study.workload.problem.dtype.name for study in self.studies):
            studies = [study for study in self._searched() if study.workload.problem.dtype.name == dtype]
            alone = [study for study in self.studies if study.alone and study.workload.problem.dtype.name == dtype]
            table = table_of(studies)
            needed = [tiling_of(*study.best.candidate) for study in alone if study.best is not None]
            kept = chosen_tilings(table, needed)
            tried = sum(len(study.tried) for study in (*studies, *alone))
            if kept:
                found[dtype] = entry_of(self.options.device, dtype, [*table, *table_of(alone)], kept, tried)
        return found

    def _with_entries(self) -> Iterator[tuple[Study, Entry]]:
        """Studies of products that planners choose for, each with the entry of its type."""
        entries = self._entries()
        for study in self._searched():
            if entry := entries.get(study.workload.problem.dtype.name):
                yield study, entry

    def _try_choices(self, entries: Mapping[str, Entry]) -> bool:
        """Tries what the planner would choose by these entries where it was not tried; whether there was any."""
        found = False
        for study, entry in self._with_entries():
            found = self._try(study, self._choice(study, entry)) or found
        return found

    def _try(self, study: Study, plan: Plan) -> bool:
        """Tries a candidate that is named; whether it was new."""
        asked = study.ask_for(plan)
        if asked is not None:
            try_asked(study, asked, self.crew, LEAST_COMPILE_SECONDS)
        return asked is not None

    def _choice(self, study: Study, entry: Entry) -> Plan:
        """What the planner chooses with an entry before all others."""
        with_entry = self.options.configuration.with_first(LoadedEntry(entry, "what was found", "call"))
        return make_plan(study.workload.problem, self.options.device, with_entry, rankings=self.options.rankings)

    def _compared(self, study: Study, entry: Entry) -> Compared:
        problem, workload = study.workload.problem, study.workload
        tuned = self._choice(study, entry)
        current = current_choice(workload, self.options)
        candidate = (tuned.variant, tuned.values)
        if current is None:
            return Compared(workload, None, candidate, reason="there is no current choice")
        before = (current.variant, current.values)
        if current.launches == tuned.launches:
            return Compared(workload, before, candidate)
        then, now = study.seconds_of(before), study.seconds_of(candidate)
        if then is not None and now is not None and then > CLEAR * now:
            return Compared(workload, before, candidate, (then, now))
        try:
            samples = self.crew.in_turns(problem, (before, candidate), repeat=TURNS, seconds=TURN_SECONDS)
        except LaunchError as error:
            return Compared(workload, before, candidate, reason=str(error))
        one, other = map(statistics.median, samples)
        # What the two took in turns counts; beside other candidates, the new choice took what it did in the search.
        searched = study.seconds_of(candidate) or other
        study.correct(candidate, searched)
        study.correct(before, searched * one / other)
        return Compared(workload, before, candidate, (one, other))


@contextmanager
def opened(options: Options) -> Iterator[Tuner]:
    """A tuner with what earlier runs found, and its process.

    Raises:
        LibraryUnavailableError: Optuna is not installed. RecordError: as `gemmport.tuning.journal.opened`.
        LaunchError: the device does not open. DtypeError: it does not compute in the type of a product.
        UnsupportedError: no kernel of those that are tried computes any product there.
    """
    journal.import_optuna()
    with Crew(options.device, options.imports) as crew:
        crew.open()
        with opened_with(options, crew) as tuner:
            yield tuner


@contextmanager
def opened_with(options: Options, crew: Crew) -> Iterator[Tuner]:
    """A tuner with what earlier runs found.

    Raises:
        As `opened`.
    """
    path = options.journal or journal.default_path(key_of(options.device))
    with journal.opened(path) as storage:
        tuner = Tuner(options, crew, path)
        bare = options.configuration.of_models()
        outlook = Outlook(options.device, bare, options.rankings)
        for number, task in enumerate(options.tasks):
            only = task.only or options.kernels
            own = space.Space(task.workload.problem, options.device, only, bare, options.rankings)
            first = None if task.only else current_choice(task.workload, options)
            study = Study(task.workload, own, storage, first, outlook, options.seed + number, alone=bool(task.only))
            tuner.studies.append(study)
        if options.kernels and not any(study.space.kernels for study in tuner.studies):
            raise UnsupportedError(
                f"kernels must compute one of the products on {options.device.label}; got {', '.join(options.kernels)}: name "
                "others, which gemmport configs lists"
            )
        yield tuner


def key_of(device: DeviceInfo) -> str:
    """As `gemmport.tuning.journal.key_of`, of all kernels that there are."""
    return journal.key_of(device, space.fingerprint([variant.name for variant in kernels.variants()]))


def current_choice(workload: Workload, options: Options) -> Plan | None:
    """What the planner chooses as things are; None where it finds nothing.

    Raises:
        DtypeError: the device does not compute in the product's type.
    """
    try:
        return make_plan(workload.problem, options.device, options.configuration, rankings=options.rankings)
    except (ParameterError, UnsupportedError) as error:
        log.info("no current choice for %s: %s", workload.name, error)
        return None


def table_of(studies: Sequence[Study]) -> list[Times]:
    """What tilings took for each product, also those that were tried as another one with the same launches."""
    near = dict.fromkeys(tiling for study in studies for tiling in _near_best(study))
    kernel_names = dict.fromkeys(kernel for kernel, _ in near)
    models: list[Tiling] = [
        (kernel, ()) for kernel in kernel_names if any(study.space.suggests(kernel) for study in studies)
    ]
    table = []
    for study in studies:
        times = Times(study.workload.problem)
        for kernel, values in (*models, *near):
            seconds = study.seconds_of((kernel, dict(values)))
            if seconds is not None:
                times.seconds[kernel, values] = seconds
        table.append(times)
    return table


def _near_best(study: Study) -> list[Tiling]:
    """Tilings that are about as fast as the best of a product."""
    times = {
        tiling_of(*one.candidate): seconds
        for one in study.tried
        if one.outcome.fate == "timed" and (seconds := study.seconds_of(one.candidate)) is not None
    }
    return [tiling for tiling, seconds in times.items() if seconds <= NEAR_BEST * min(times.values())]
