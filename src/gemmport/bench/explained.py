"""An explanation of a plan beside what the plan takes: verified and timed as by `gemmport run`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from gemmport.bench.products import Options, run_benchmark
from gemmport.core.errors import LaunchError
from gemmport.planning.explanation import Explanation, Measured


def measured(
    explanation: Explanation, options: Options, *, progress: Callable[[str], None] = lambda _: None
) -> Explanation:
    """The explanation with what its product took on the device.

    Args:
        options: those with which the explanation was made, of one kernel and without baselines.

    Raises:
        LaunchError: the device refused. Others as `gemmport.bench.products.run_benchmark`.
    """
    (result,) = run_benchmark([explanation.problem], [explanation.device], options, progress=progress)
    if result.status not in ("ok", "failed") or result.plan is None:
        raise LaunchError(f"{result.name} on {explanation.device.label}: {result.reason}")
    if result.timing is None:  # nothing to compute
        return explanation
    timing = result.timing
    return replace(explanation, measured=Measured(timing.median, timing.spread, result.verified, result.plan))
