"""What is expected of candidates before they are tried: the model's prediction, corrected by all trials of the run."""

from __future__ import annotations

from collections.abc import Sequence

from gemmport.contracts.device_model import DeviceModel
from gemmport.contracts.kernel import Parameters, Rankings
from gemmport.core.device import DeviceInfo
from gemmport.core.errors import DtypeError, UnsupportedError
from gemmport.core.plan import Plan
from gemmport.core.problem import GemmProblem
from gemmport.planning import expectation
from gemmport.planning.correction import Corrected, Correction, Place, Ratio
from gemmport.planning.lookup import Configuration
from gemmport.planning.planner import candidates
from gemmport.tuning.space import Space
from gemmport.tuning.tilings import Tiling, tiling_of

HOPELESS = 4.0
"""Times the best time: a candidate that is expected to take so long is not tried."""

FAILURE = 8.0
"""Times what was expected, that a candidate counts as which was refused, wrong, or compiled for too long."""


class Outlook:
    """Predictions for one device, which trials of any product correct."""

    def __init__(self, device: DeviceInfo, configuration: Configuration) -> None:
        """Args:
        configuration: of which the models count, and no entry.
        """
        self._device, self._bare = device, configuration.of_models()
        model: DeviceModel = configuration.model(device)
        self._rankings = Rankings(device, model)
        self._correction = Correction()
        self._tried: set[str] = set()
        self._predictions: dict[tuple[GemmProblem, Tiling], float] = {}

    def modelled(self, space: Space) -> list[Plan]:
        """The plans of what kernels consider for a product, in the order of what the model expects of them: the best of each
        kernel, and what is not hopeless beside the best of all.
        """
        try:
            found = candidates(space.problem, self._device, self._bare)
        except (DtypeError, UnsupportedError):
            return []
        known = [(one.prediction.seconds, one) for one in found if one.prediction is not None and not one.reason]
        ordered = [pair for pair in sorted(known, key=lambda pair: pair[0]) if pair[1].kernel in space.kernels]
        seen: set[str] = set()
        plans = []
        for seconds, one in ordered:
            if one.kernel not in seen or seconds <= HOPELESS * ordered[0][0]:
                plans.append(space.plan(one.kernel, one.parameters))
            seen.add(one.kernel)
        return [plan for plan in plans if plan is not None]

    def seconds(self, plan: Plan) -> float:
        """What a candidate is expected to take, in the light of what was tried."""
        return self.each([plan])[0]

    def each(self, plans: Sequence[Plan]) -> list[float]:
        """`seconds` of candidates for one product."""
        if not plans:
            return []
        problem = plans[0].problem
        said = self._said(problem, [(plan.variant, plan.values) for plan in plans])
        return [
            self.predicted(problem, plan.variant, plan.values) * one.factor
            for plan, one in zip(plans, said, strict=True)
        ]

    def likely(self, problem: GemmProblem, tilings: Sequence[Tiling]) -> dict[Tiling, float]:
        """Seconds by which planners will choose among tilings for a product, for which nothing of them may have been tried.

        Those that cannot compute it are left out. Those without parameters stand for what the model suggests.
        """
        resolved = {
            tiling: values
            for tiling in tilings
            if (values := expectation.resolved(tiling[0], dict(tiling[1]), problem, self._rankings)) is not None
        }
        said = self._said(problem, [(kernel, values) for (kernel, _), values in resolved.items()])
        return {
            tiling: self.predicted(problem, tiling[0], values) * one.factor * one.doubt
            for (tiling, values), one in zip(resolved.items(), said, strict=True)
        }

    def knows(self, kernel: str) -> bool:
        """Whether a candidate of a kernel was tried."""
        return kernel in self._tried

    def learn(self, plan: Plan, seconds: float) -> None:
        """Takes note of what a candidate took."""
        self._tried.add(plan.variant)
        predicted = self.predicted(plan.problem, plan.variant, plan.values)
        if predicted > 0:
            self._correction.add(Ratio(Place.of(plan.problem), plan.variant, plan.values, seconds / predicted))

    def learn_failure(self, plan: Plan) -> None:
        """Takes note that a candidate has no time: less is expected of those that are like it."""
        self.learn(plan, FAILURE * self.seconds(plan))

    def predicted(self, problem: GemmProblem, kernel: str, values: Parameters) -> float:
        """Seconds by the model alone."""
        if problem.empty:
            return 0.0
        key = problem, tiling_of(kernel, values)
        if key not in self._predictions:
            self._predictions[key] = expectation.predicted(kernel, values, problem, self._rankings)
        return self._predictions[key]

    def _said(self, problem: GemmProblem, candidates: Sequence[tuple[str, Parameters]]) -> list[Corrected]:
        return self._correction.corrected(Place.of(problem), candidates)
