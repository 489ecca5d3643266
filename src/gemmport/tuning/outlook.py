"""What is expected of candidates before they are tried: the model's prediction, corrected by all trials of the run."""

from __future__ import annotations

from collections.abc import Hashable

from gemmport import kernels
from gemmport.contracts.kernel import Rankings
from gemmport.core.device import DeviceInfo
from gemmport.core.errors import DtypeError, UnsupportedError
from gemmport.core.plan import Plan
from gemmport.core.problem import GemmProblem
from gemmport.planning import preparation
from gemmport.planning.correction import Correction, Place, Ratio, Way
from gemmport.planning.lookup import Configuration
from gemmport.planning.planner import candidates
from gemmport.tuning.space import Space

FAILURE = 8.0
"""Times what was expected, that a candidate counts as which was refused, wrong, or compiled for too long."""


class Outlook:
    """Predictions for one device, which trials of any product correct.

    Attributes:
        learned: how many trials.
    """

    def __init__(self, device: DeviceInfo, configuration: Configuration, rankings: Rankings | None = None) -> None:
        """Args:
        configuration: of which the models count, and no entry.
        rankings: by these models; None: there are none yet.
        """
        self._device, self._bare = device, configuration.of_models()
        self._rankings = rankings or Rankings(device, self._bare.model(device))
        self._correction = Correction()
        self._tried: set[str] = set()
        self.learned = 0
        self._known: dict[tuple[GemmProblem, str, Hashable], float] = {}

    def modelled(self, space: Space) -> list[Plan]:
        """The plans of all that kernels consider for a product, in the order of what the model expects of them."""
        try:
            found = candidates(space.problem, self._device, self._bare, self._rankings)
        except (DtypeError, UnsupportedError):
            return []
        known = [(one.prediction.seconds, one) for one in found if one.prediction is not None and not one.reason]
        ordered = [one for _, one in sorted(known, key=lambda pair: pair[0]) if one.kernel in space.kernels]
        plans = (space.plan(one.kernel, one.parameters) for one in ordered)
        return [plan for plan in plans if plan is not None]

    def seconds(self, plan: Plan) -> float:
        """What a candidate is expected to take, in the light of what was tried."""
        return self._predicted(plan) * self._correction.factor(Place.of(plan.problem), _way(plan))

    def knows(self, kernel: str) -> bool:
        """Whether a candidate of a kernel was tried."""
        return kernel in self._tried

    def learn(self, plan: Plan, seconds: float) -> None:
        """Takes note of what a candidate took."""
        self._tried.add(plan.variant)
        self.learned += 1
        predicted = self._predicted(plan)
        if predicted > 0:
            self._correction.add(Ratio(Place.of(plan.problem), _way(plan), seconds / predicted))

    def learn_failure(self, plan: Plan) -> None:
        """Takes note that a candidate has no time: less is expected of those that are like it."""
        self.learn(plan, FAILURE * self.seconds(plan))

    def _predicted(self, plan: Plan) -> float:
        if plan.problem.empty:
            return 0.0
        key = plan.problem, plan.variant, tuple(plan.values.items())
        if key not in self._known:  # all candidates are asked for before each trial
            variant = kernels.variant(plan.variant)
            found = preparation.predicted(variant, plan.problem, self._device, self._rankings.model, plan.values)
            self._known[key] = found.seconds
        return self._known[key]


def _way(plan: Plan) -> Way:
    return Way.of(plan.variant, plan.values, plan.problem)
