"""The search for one product: what the planner chooses first, what the model expects to be fast, what was best elsewhere, and
what Optuna asks for.

Optuna is told of every trial, wherever the candidate came from. It knows a point of the search by the parameters of a kernel; a
point that breaks a rule stands for the nearest candidate that does not, and has that candidate's time.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal

from gemmport import kernels
from gemmport.bench.standings import Workload
from gemmport.bench.sweeps import Swept, Timed
from gemmport.core.plan import Launch, ParameterValue, Plan
from gemmport.runtime.child_processes import signals_held
from gemmport.runtime.fingerprint import of_texts
from gemmport.tuning.crew import Candidate, Outcome
from gemmport.tuning.outlook import Outlook
from gemmport.tuning.space import Space

if TYPE_CHECKING:
    import optuna

Origin = Literal["current", "model", "elsewhere", "optuna"]
"""Where a candidate comes from: the planner's choice as things are; the models; the best for another product; Optuna."""

MOST_KNOWN, MOST_HOPELESS = 20, 60
"""Points in a row that Optuna asks for and that were tried, or that are not worth it: then the search is at its end."""

LOOKS_BEFORE_PRUNING, KEPT_PERCENT = 3, 75.0
"""Of Optuna's pruner: after so many whole trials, a candidate is left that is not among the fastest at first sight, of so many
percent."""

HOPELESS = 4.0
"""Times the best time: a candidate that is expected to take so long is not tried."""

BEHIND = 2.0
"""Times the best time: a candidate that takes so long at first sight is not timed any further."""

WORTH_A_TRY = 1.5
"""Times the best time: candidates that are expected to take longer are left to Optuna."""

AHEAD = 4
"""Candidates of which one that is ready goes before those that are not yet: further ones are expected to be too slow."""

_TRIED, _ORIGIN, _KERNELS = "tried", "origin", "kernels"


@dataclass(frozen=True)
class Tried:
    """A candidate and what came of it."""

    kernel: str
    parameters: Mapping[str, ParameterValue]
    outcome: Outcome
    origin: Origin

    @property
    def candidate(self) -> Candidate:
        """The kernel and its parameters."""
        return self.kernel, self.parameters

    def to_dict(self) -> dict[str, Any]:
        """Plain data for the journal; `of` reads it back."""
        outcome = self.outcome
        return {
            "kernel": self.kernel, "parameters": dict(self.parameters), "origin": self.origin, "fate": outcome.fate,
            "seconds": outcome.seconds, "samples": list(outcome.samples), "reason": outcome.reason[:500], "took": outcome.took,
        }  # fmt: skip

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Tried:
        """The trial that `to_dict` told."""
        outcome = Outcome(data["fate"], data["seconds"], tuple(data["samples"]), data["reason"], data["took"])
        return cls(data["kernel"], data["parameters"], outcome, data["origin"])


@dataclass(frozen=True)
class Asked:
    """A candidate to be tried.

    Attributes:
        best: seconds of the best so far; None where there is none.
    """

    plan: Plan
    origin: Origin
    trial: optuna.Trial
    best: float | None

    @property
    def candidate(self) -> Candidate:
        """The kernel and its parameters."""
        return self.plan.variant, self.plan.values

    def is_slow(self, look: float) -> bool:
        """Whether it is left that takes so many seconds at first sight: far behind the best, or by Optuna's pruner."""
        with signals_held():
            self.trial.report(look, 0)
            return (self.best is not None and look > BEHIND * self.best) or self.trial.should_prune()


class Study:
    """The trials of one product, those of earlier runs first.

    Attributes:
        tried: in order, each candidate once.
        spent: seconds of this run.
        alone: whether it is of kernels that the planner need not choose, for who names them.
        at_end: whether Optuna knows nothing new to ask for.
    """

    def __init__(
        self, workload: Workload, space: Space, storage: optuna.storages.BaseStorage, first: Plan | None,
        outlook: Outlook, seed: int, *, alone: bool = False,
    ) -> None:  # fmt: skip
        """Args:
        first: the planner's choice as things are; None where it makes none.
        """
        import optuna  # noqa: PLC0415 - of an extra

        self.workload, self.space, self.alone = workload, space, alone
        self.tried: list[Tried] = []
        self.spent = 0.0
        self.at_end = False
        self._first, self._modelled, self._outlook = first, list(outlook.modelled(space)), outlook
        self._known: dict[tuple[Launch, ...], Tried] = {}
        self._in_turns: dict[tuple[Launch, ...], float] = {}
        self._expected: list[tuple[Plan, Origin]] | None = None
        self._learned = 0
        self._of_optuna: Asked | None = None
        self._optuna = optuna
        with signals_held():
            self._study = optuna.create_study(
                storage=storage,
                study_name=name_of(workload, space),
                sampler=optuna.samplers.TPESampler(seed=seed, multivariate=True, group=True),
                pruner=optuna.pruners.PercentilePruner(KEPT_PERCENT, n_startup_trials=LOOKS_BEFORE_PRUNING),
                load_if_exists=True,
            )
            stored = self._study.user_attrs.get(_KERNELS)
            if stored is None:  # Optuna's choices are those of its first trial for ever
                stored = list(dict.fromkeys((*space.kernels, *([first.variant] if first else []))))
                self._study.set_user_attr(_KERNELS, stored)
        self._kernels: tuple[str, ...] = tuple(stored)
        for one in _tried_of(self._study.get_trials(deepcopy=False)):
            self._remember(one)

    @property
    def best(self) -> Tried | None:
        """The fastest that was timed and is right."""
        timed = [one for one in self.tried if one.outcome.fate == "timed"]
        return min(timed, key=lambda one: one.outcome.seconds or 0.0, default=None)

    def seconds_of(self, candidate: Candidate) -> float | None:
        """What a candidate took; None where it was not tried, or has no time."""
        plan = self.space.plan(*candidate)
        if plan is None:
            return None
        if plan.launches in self._in_turns:
            return self._in_turns[plan.launches]
        known = self._known.get(plan.launches)
        return known.outcome.seconds if known is not None and known.outcome.verified else None

    def correct(self, candidate: Candidate, seconds: float) -> None:
        """Has a candidate take as long as it did beside another, in turns."""
        plan = self.space.plan(*candidate)
        if plan is not None:
            self._in_turns[plan.launches] = seconds

    def swept(self) -> Swept:
        """The trials that have a time, the fastest first."""
        timed = [
            Timed(one.kernel, one.parameters, one.outcome.seconds, one.outcome.verified)
            for one in self.tried
            if one.outcome.seconds is not None
        ]
        return Swept(self.workload, tuple(sorted(timed, key=lambda one: one.seconds)))

    def ask(self, elsewhere: Iterable[Candidate], is_ready: Callable[[Plan], bool] = lambda _: True) -> Asked | None:
        """The next candidate, or one that comes soon and is ready; None where none is, or, `at_end`, where none is left.

        Args:
            elsewhere: the best of other products, the nearest of them first.
            is_ready: whether a candidate may be tried: what it needs is there.
        """
        if self._expected is not None and self._learned != self._outlook.learned:
            self._expected = None  # what was tried since may have changed their order
        found = self._next(elsewhere)
        for plan, origin in found[:AHEAD]:
            if is_ready(plan):
                return self._enqueued(plan, origin)
        if found:
            return None
        asked, self._of_optuna = self._of_optuna, None
        if asked is not None and not self.is_new(asked.plan):  # it was the best elsewhere meanwhile
            with signals_held():
                self._close(asked.trial, self._known[asked.plan.launches].outcome)
            asked = None
        asked = asked or self._from_optuna()
        if asked is None or is_ready(asked.plan):
            return asked
        self._of_optuna = asked
        return None

    def upcoming(self, elsewhere: Iterable[Candidate], count: int) -> list[Plan]:
        """What `ask` gives next, so many candidates at most; of what Optuna asks for, the next one is known at most.

        Args:
            elsewhere: as `ask`.
        """
        found = [plan for plan, _ in islice(self._next(elsewhere), count)]
        return found or [asked.plan for asked in (self._of_optuna,) if asked is not None]

    def ask_for(self, plan: Plan) -> Asked | None:
        """A candidate that somebody names; None where it was tried, or is of a kernel that is not searched."""
        return self._enqueued(plan, "elsewhere") if self.is_new(plan) else None

    def tell(self, asked: Asked, outcome: Outcome) -> Tried:
        """Keeps what came of a candidate."""
        kernel, parameters = asked.candidate
        tried = Tried(kernel, parameters, outcome, asked.origin)
        self.spent += outcome.took
        with signals_held():
            asked.trial.set_user_attr(_TRIED, tried.to_dict())
            self._remember(tried)
            self._close(asked.trial, outcome)
        return tried

    def _remember(self, tried: Tried) -> None:
        plan = self.space.plan(*tried.candidate)
        if plan is not None and plan.launches not in self._known:
            self._known[plan.launches] = tried
            self.tried.append(tried)
            if tried.outcome.seconds is not None:
                self._outlook.learn(plan, tried.outcome.seconds)
            else:
                self._outlook.learn_failure(plan)

    def is_new(self, plan: Plan) -> bool:
        """Whether a plan was not tried, and is of a kernel that is searched."""
        return plan.launches not in self._known and plan.variant in self._kernels

    def _next(self, elsewhere: Iterable[Candidate]) -> list[tuple[Plan, Origin]]:
        """The candidates that were not tried, in the order in which they are to be: what the planner chooses as things are, and
        what is worth a try.
        """
        if self._expected is None:
            self._expected, self._learned = self._expected_first(elsewhere), self._outlook.learned
        first: list[tuple[Plan, Origin]] = [] if self._first is None else [(self._first, "current")]
        return [(plan, origin) for plan, origin in (*first, *self._expected) if self.is_new(plan)]

    def _expected_first(self, elsewhere: Iterable[Candidate]) -> list[tuple[Plan, Origin]]:
        """What the model considers and what is best elsewhere, as far as it is worth a try, of which most is expected first.

        Kernels of which nothing was tried for any product come before all others: a model may be wrong about one.
        """
        plans: list[tuple[Plan, Origin]] = [(plan, "model") for plan in self._modelled if self.is_new(plan)]
        self._modelled = [plan for plan, _ in plans]
        for kernel, values in elsewhere:
            plan = self.space.plan(kernel, values) if kernel in self._kernels else None
            if plan is not None:
                plans.append((plan, "elsewhere"))
        best = self.best
        most = float("inf") if best is None else WORTH_A_TRY * (best.outcome.seconds or 0.0)
        expected = [
            (self._outlook.knows(plan.variant), self._outlook.seconds(plan), at) for at, (plan, _) in enumerate(plans)
        ]
        return [plans[at] for known, seconds, at in sorted(expected) if not known or seconds <= most]

    def times_the_best(self, plan: Plan) -> float:
        """What a plan is expected to take, over the best time; 0 where there is none."""
        best = self.best
        return self._outlook.seconds(plan) / best.outcome.seconds if best is not None and best.outcome.seconds else 0.0

    def _enqueued(self, plan: Plan, origin: Origin) -> Asked:
        """A trial of Optuna's for a candidate that it did not choose."""
        names = {f"{plan.variant}.{name}": value for name, value in plan.values.items()}
        with signals_held():
            self._study.enqueue_trial({"kernel": plan.variant, **names}, user_attrs={_ORIGIN: origin})
            trial = self._study.ask()
            self._suggested(trial)
        return self._asked(plan, origin, trial)

    def _asked(self, plan: Plan, origin: Origin, trial: optuna.Trial) -> Asked:
        return Asked(plan, origin, trial, self.best.outcome.seconds if self.best else None)

    def _from_optuna(self) -> Asked | None:
        known = hopeless = 0
        while known < MOST_KNOWN and hopeless < MOST_HOPELESS and self._kernels:
            with signals_held():
                trial = self._study.ask()
                kernel, values = self._suggested(trial)
            plan = self.space.nearest(kernel, values) if kernel in self.space.kernels else None
            outcome = Outcome("rule", reason="no candidate near it is allowed")
            if plan is not None:
                tried = self._known.get(plan.launches)
                if tried is None and self.times_the_best(plan) <= HOPELESS:
                    return self._asked(plan, "optuna", trial)
                outcome = Outcome("hopeless", reason="expected to be slow") if tried is None else tried.outcome
            with signals_held():
                self._close(trial, outcome)
            hopeless += outcome.fate in ("hopeless", "rule")
            known += outcome.fate not in ("hopeless", "rule")
        self.at_end = True
        return None

    def _suggested(self, trial: optuna.Trial) -> Candidate:
        """A point of the search: a kernel, and a value of each of its parameters."""
        kernel = trial.suggest_categorical("kernel", self._kernels)
        values: dict[str, ParameterValue] = {}
        for parameter in kernels.variant(kernel).parameters:
            name = f"{kernel}.{parameter.name}"
            if parameter.choices:
                chosen = trial.suggest_categorical(name, parameter.choices)
                assert isinstance(chosen, int | str)  # as they are
                values[parameter.name] = chosen
            else:
                low, high = parameter.minimum, parameter.maximum
                values[parameter.name] = trial.suggest_int(name, low, high, log=low > 0)
        return kernel, values

    def _close(self, trial: optuna.Trial, outcome: Outcome) -> None:
        """Ends a trial of Optuna's: what was not timed to the end is pruned, and worse than all that were."""
        if outcome.fate == "timed":
            self._study.tell(trial, outcome.seconds)
        else:
            self._study.tell(trial, state=self._optuna.trial.TrialState.PRUNED)


def tried_in(storage: optuna.storages.BaseStorage) -> dict[str, list[Tried]]:
    """All candidates that a journal has, by the names of their studies."""
    studies = storage.get_all_studies()
    return {study.study_name: _tried_of(storage.get_all_trials(study._study_id, deepcopy=False)) for study in studies}


def _tried_of(trials: Iterable[optuna.trial.FrozenTrial]) -> list[Tried]:
    """What came of candidates, also of one after which the process died before Optuna was told."""
    return [Tried.of(trial.user_attrs[_TRIED]) for trial in trials if _TRIED in trial.user_attrs]


def name_of(workload: Workload, space: Space) -> str:
    """A study's name: the product, and what tells it from others with layouts, scalars or kernels of their own."""
    problem = workload.problem
    return f"{problem} {of_texts(json.dumps(problem.to_dict(), sort_keys=True), *space.kernels)}"
