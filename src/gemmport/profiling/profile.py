"""Plans → what the counters of the device say of each of their launches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from gemmport.core.device import DeviceInfo
from gemmport.core.errors import ProfileError, UnsupportedError
from gemmport.core.plan import Plan
from gemmport.profiling.explain import explain
from gemmport.profiling.metrics import metrics_for
from gemmport.profiling.ncu import run_ncu
from gemmport.profiling.report import parse_report

TIMEOUT = 600.0
"""Seconds: counters that do not fit into one pass are read in several, each of which runs the launch again."""


@dataclass(frozen=True)
class Profile:
    """One launch of a plan.

    Attributes:
        number: of the launch in the plan, from 1.
        figures: by the keys of `gemmport.profiling.metrics.METRICS`, in their units; None where the chip has no such counter.
    """

    plan: Plan
    number: int
    figures: dict[str, float | None]

    @property
    def function(self) -> str:
        """The kernel's name in its source."""
        return self.plan.launches[self.number - 1].kernel.function

    @property
    def title(self) -> str:
        """The kernel of the plan, and which of its launches, where it has several."""
        several = len(self.plan.launches) > 1
        return self.plan.variant + (f" {self.number}/{len(self.plan.launches)} {self.function}" if several else "")

    @cached_property
    def bound(self) -> str:
        """What bounds it, by the rules of `explain`."""
        return explain(self.figures)

    def to_dict(self) -> dict[str, Any]:
        """The launch as docs/profile.md describes it."""
        launch = self.plan.launches[self.number - 1]
        return {
            "kernel": self.plan.variant,
            "parameters": {name: {"value": c.value, "origin": c.origin} for name, c in self.plan.parameters},
            "entry": self.plan.entry,
            "launch": self.number,
            "launches": len(self.plan.launches),
            "function": self.function,
            "groups": launch.groups,
            "work_group": launch.work_group,
            "figures": self.figures,
            "bound": self.bound,
        }


def check_profiled(device: DeviceInfo) -> None:
    """Raises UnsupportedError where kernels cannot be profiled on a device."""
    if device.backend != "cuda":
        raise UnsupportedError(
            f"kernels cannot be profiled on {device.label}: Nsight Compute reads the counters of CUDA "
            "kernels only; on an NVIDIA GPU, profile the same kernel under CUDA (backend cuda)"
        )


def profile_plans(plans: Sequence[Plan], ncu: Path, *, timeout: float = TIMEOUT) -> list[Profile]:
    """Profiles plans of one problem on one device: every launch of every plan, in order.

    Raises:
        UnsupportedError: the device is not reached by CUDA, or the plans launch nothing.
        ToolUnavailableError: the user may not read the device's counters.
        ProfileError: Nsight Compute failed, or reports other launches than those of the plans.
    """
    problem, device = plans[0].problem, plans[0].device
    check_profiled(device)
    launches = [(plan, number) for plan in plans for number in range(1, len(plan.launches) + 1)]
    if not launches:
        raise UnsupportedError(f"{problem} is empty: there is nothing to profile")
    metrics = metrics_for(problem.accumulator.arithmetic)
    rows = parse_report(run_ncu(ncu, plans, metrics, timeout=timeout), metrics)
    expected = [plan.launches[number - 1].kernel.function for plan, number in launches]
    reported = [row.function for row in rows]
    if reported != expected:
        raise ProfileError(
            f"Nsight Compute reports launches of {', '.join(reported) or 'nothing'}; the plans launch {', '.join(expected)}"
        )
    return [Profile(plan, number, row.figures) for (plan, number), row in zip(launches, rows, strict=True)]
