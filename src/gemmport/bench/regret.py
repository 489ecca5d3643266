"""How good the planner's choices are: what each took in a sweep over what the best candidate of that sweep took."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from gemmport import kernels
from gemmport.bench.standings import Workload
from gemmport.bench.sweeps import Sweep, Swept, Timed
from gemmport.core.device import DeviceInfo
from gemmport.core.errors import DtypeError, ParameterError, UnknownNameError, UnsupportedError
from gemmport.core.plan import Plan
from gemmport.planning.lookup import Configuration
from gemmport.planning.planner import make_plan


@dataclass(frozen=True)
class Choice:
    """What the planner chose for a workload, beside the best that was recorded.

    Attributes:
        plan: None where the planner found none.
        recorded: what the choice took; None where the sweep did not try it, or found it wrong.
        best: the fastest candidate of the sweep.
        reason: why there is no regret; empty where there is one.
    """

    workload: Workload
    plan: Plan | None
    recorded: Timed | None
    best: Timed | None
    reason: str = ""

    @property
    def regret(self) -> float | None:
        """The time of the choice over that of the best: 1 where no candidate was faster; None where it is not known."""
        return self.recorded.seconds / self.best.seconds if self.recorded and self.best else None

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON, as docs/shapes.md describes it."""
        return {
            "label": self.workload.label,
            "problem": self.workload.problem.to_dict(),
            "chosen": {"kernel": self.plan.variant, "parameters": self.plan.values} if self.plan else None,
            "seconds": self.recorded.seconds if self.recorded else None,
            "best": _told(self.best) if self.best else None,
            "regret": self.regret,
            "reason": self.reason,
        }


@dataclass(frozen=True)
class Regret:
    """The planner's choices over a sweep.

    Attributes:
        choices: one for each workload, in the order of the sweep.
    """

    device: DeviceInfo
    choices: tuple[Choice, ...]

    @cached_property
    def ranked(self) -> tuple[tuple[float, Choice], ...]:
        """The choices whose regret is known, the worst first."""
        known = [(choice.regret, choice) for choice in self.choices if choice.regret is not None]
        return tuple(sorted(known, key=lambda pair: -pair[0]))

    @property
    def unknown(self) -> tuple[Choice, ...]:
        """The choices whose regret is not known."""
        return tuple(choice for choice in self.choices if choice.regret is None)

    @property
    def median(self) -> float | None:
        """Of the known regrets; None where there are none."""
        return statistics.median(regret for regret, _ in self.ranked) if self.ranked else None

    @property
    def percentile_90(self) -> float | None:
        """The least regret that nine tenths of the known ones do not exceed; None where there are none."""
        return self.ranked[len(self.ranked) // 10][0] if self.ranked else None

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON, as docs/shapes.md describes it."""
        worst = {"name": self.ranked[0][1].workload.name, "regret": self.ranked[0][0]} if self.ranked else None
        return {
            "device": self.device.to_dict(),
            "workloads": len(self.choices),
            "known": len(self.ranked),
            "median": self.median,
            "percentile_90": self.percentile_90,
            "worst": worst,
            "choices": [choice.to_dict() for choice in self.choices],
        }

    def told(self) -> str:
        """One line for people."""
        if not self.ranked:
            return f"regret on {self.device.label}: not known for any of {len(self.choices)} workloads"
        regret, worst = self.ranked[0]
        return (
            f"regret on {self.device.label} over {len(self.ranked)} of {len(self.choices)} workloads: median "
            f"{self.median:.3f}, nine in ten at most {self.percentile_90:.3f}, worst {regret:.3f} ({worst.workload.name})"
        )


def judge(sweep: Sweep, configuration: Configuration) -> Regret:
    """Asks the planner for its choice on every workload of a sweep, for the device that the sweep was made on.

    The device need not be there: nothing is run.
    """
    return Regret(sweep.device, tuple(_choice(swept, sweep.device, configuration) for swept in sweep.swept))


def _choice(swept: Swept, device: DeviceInfo, configuration: Configuration) -> Choice:
    workload, best = swept.workload, swept.best
    try:
        plan = make_plan(workload.problem, device, configuration)
    except (DtypeError, ParameterError, UnsupportedError) as error:
        return Choice(workload, None, None, best, f"no plan: {error}")
    tried = _tried(plan, swept.timed)
    if not tried:
        return Choice(workload, plan, None, best, "the sweep did not try the choice")
    right = [one for one in tried if one.verified is not False]
    return Choice(
        workload, plan, right[-1] if right else None, best, "" if right else "the sweep found the choice wrong"
    )


def _tried(plan: Plan, timed: Sequence[Timed]) -> list[Timed]:
    """The candidates that are what the plan is. Parameters that a kernel has gained since then are at their defaults."""
    variant = kernels.variant(plan.variant)
    found = []
    for one in timed:
        if one.kernel == plan.variant:
            try:
                values = variant.complete(one.parameters)
            except (ParameterError, UnknownNameError):  # of a kernel that has changed
                continue
            if values == plan.values:
                found.append(one)
    return found


def _told(timed: Timed) -> dict[str, Any]:
    return {"kernel": timed.kernel, "parameters": dict(timed.parameters), "seconds": timed.seconds}
