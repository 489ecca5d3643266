"""The work behind `gemmport ladder`: all steps of a ladder on each device, and what each gains over the one before it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gemmport import kernels
from gemmport.bench.pass_jobs import PassJob
from gemmport.bench.passes import PassOptions, run_passes
from gemmport.bench.products import Options, run_benchmark
from gemmport.bench.results import Outcome
from gemmport.contracts.kernel import Rung
from gemmport.core.device import DeviceInfo
from gemmport.core.problem import GemmProblem


@dataclass(frozen=True)
class Step:
    """A step of a ladder on a device.

    Attributes:
        adds: its idea, in a few words.
        gain: its speed over that of the last step below it that was timed and not found wrong; None where there is none, and
            where this one is not such a step itself.
    """

    result: Outcome
    adds: str
    gain: float | None

    def to_dict(self) -> dict[str, Any]:
        """The result as docs/results.md describes it, as a step."""
        return {"step": self.result.name, "adds": self.adds, **self.result.to_dict(), "gain": self.gain}


@dataclass(frozen=True)
class Climb:
    """A ladder on a device, from its first step to its last."""

    device: DeviceInfo
    steps: tuple[Step, ...]


def climb_gemm(
    problem: GemmProblem,
    devices: Sequence[DeviceInfo],
    options: Options,
    *,
    progress: Callable[[str], None] = lambda _: None,
) -> list[Climb]:
    """All steps of the ladder on a problem, in their order, beside the baselines.

    Args:
        options: whose `kernels` are not read.

    Raises:
        GemmportError: as `run_benchmark`.
    """
    ideas = {variant.name: variant.summary for variant in kernels.ladder()}
    chosen = replace(options, kernels=tuple(ideas))
    return climbs(run_benchmark([problem], devices, chosen, progress=progress), ideas)


def climb_passes(
    job: PassJob,
    rungs: Sequence[Rung],
    devices: Sequence[DeviceInfo],
    options: PassOptions,
    *,
    progress: Callable[[str], None] = lambda _: None,
) -> list[Climb]:
    """A ladder of passes, all of which do the same job.

    Raises:
        GemmportError: as `run_passes`.
    """
    ideas = {rung.name: rung.adds for rung in rungs}
    return climbs(run_passes(job, rungs, devices, options, progress=progress), ideas)


def climbs(results: Iterable[Outcome], ideas: Mapping[str, str]) -> list[Climb]:
    """Results in any order as ladders, one for each device. Of several results of a step, the first counts.

    Args:
        ideas: what each step adds, in their order.
    """
    by_device: dict[DeviceInfo, dict[str, Outcome]] = {}
    for result in results:
        by_device.setdefault(result.device, {}).setdefault(result.name, result)
    return [
        Climb(device, tuple(_with_gains([own[name] for name in ideas], ideas))) for device, own in by_device.items()
    ]  # fmt: skip


def _with_gains(results: Sequence[Outcome], ideas: Mapping[str, str]) -> Iterable[Step]:
    below = None
    for result in results:
        stands = result.timing if result.status == "ok" else None
        yield Step(result, ideas[result.name], below.median / stands.median if below and stands else None)
        below = stands or below
