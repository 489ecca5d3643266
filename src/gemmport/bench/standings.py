"""A suite: problems with names, and what a run over all of them says: geometric mean, worst, and which fall short."""

from __future__ import annotations

import statistics
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gemmport.bench.products import Result
from gemmport.bench.results import BaselineResult
from gemmport.core.device import DeviceInfo
from gemmport.core.problem import GemmProblem


@dataclass(frozen=True)
class Workload:
    """A problem, and where it comes from.

    Attributes:
        label: its name in tables and files; empty where it has none.
        source: the program or publication that it is from.
    """

    problem: GemmProblem
    label: str = ""
    source: str = ""

    @property
    def name(self) -> str:
        """The label, or else the problem itself."""
        return self.label or str(self.problem)


@dataclass(frozen=True)
class Measured:
    """What came of a workload with one kernel on one device."""

    workload: Workload
    result: Result

    def to_dict(self) -> dict[str, Any]:
        """The result as docs/results.md describes it."""
        return {"label": self.workload.label, "source": self.workload.source, **self.result.to_dict()}


@dataclass(frozen=True)
class Standing:
    """How a kernel stands beside a baseline on a device, over several workloads.

    Attributes:
        kernel: as it was asked for: a name, or "auto" for whichever the configuration chose.
        timed_on: the device whose memory the baseline computed on: this one, in turn with the kernel; or the same chip under
            another backend, in the same run but not in turn, for a library that this backend cannot call.
        ratios: name of the workload and our speed over the baseline's, the slowest first; at least one.
        missing: name of the workload and why it has no ratio: it is not verified, or the baseline is absent or wrong.
    """

    device: DeviceInfo
    kernel: str
    baseline: str
    timed_on: DeviceInfo
    ratios: tuple[tuple[str, float], ...]
    missing: tuple[tuple[str, str], ...]

    @property
    def geometric_mean(self) -> float:
        """Of all ratios."""
        return statistics.geometric_mean(ratio for _, ratio in self.ratios)

    def below(self, threshold: float) -> int:
        """How many ratios are less."""
        return sum(ratio < threshold for _, ratio in self.ratios)

    def to_dict(self, threshold: float) -> dict[str, Any]:
        """Plain data for JSON, as docs/results.md describes it."""
        name, ratio = self.ratios[0]
        return {
            "device": self.device.label,
            "kernel": self.kernel,
            "baseline": self.baseline,
            "timed_on": self.timed_on.label,
            "geometric_mean": self.geometric_mean,
            "worst": {"name": name, "ratio": ratio},
            "threshold": threshold,
            "below": self.below(threshold),
            "ratios": dict(self.ratios),
            "missing": dict(self.missing),
        }

    def told(self, threshold: float) -> str:
        """One line for people."""
        name, ratio = self.ratios[0]
        under = f" under {self.timed_on.backend}" if self.timed_on != self.device else ""
        of = f" of {len(self.ratios) + len(self.missing)}" if self.missing else ""
        line = (
            f"× {self.baseline}{under}, {self.kernel} on {self.device.label}: geometric mean {self.geometric_mean:.3f} over "
            f"{len(self.ratios)}{of} problems, worst {ratio:.3f} ({name}), {self.below(threshold)} below {threshold:g}"
        )
        return line + "".join(f"; no ratio for {name}: {reason}" for name, reason in self.missing)


def standings(measured: Sequence[Measured], kernels: Sequence[str]) -> list[Standing]:
    """How each kernel stands on each device beside each baseline, over more than one workload.

    Args:
        measured: in the order of the workloads.
        kernels: that were asked for: with several, each stands for itself; one may be "auto", for several kernels.
    """
    groups: dict[tuple[DeviceInfo, str], list[Measured]] = {}
    timed: dict[tuple[str, DeviceInfo], dict[int, BaselineResult]] = {}  # int: id of a workload; two may be equal
    for one in measured:
        kernel = one.result.kernel if len(kernels) > 1 else kernels[0]
        groups.setdefault((one.result.device, kernel), []).append(one)
        for beside in one.result.baselines:
            if beside.timing:
                timed.setdefault((beside.name, one.result.device), {})[id(one.workload)] = beside
    return [
        standing
        for (device, kernel), group in groups.items()
        for (name, timed_on), baseline in timed.items()
        if len(group) > 1 and _serves(name, timed_on, device, timed)
        for standing in _standing(device, kernel, name, timed_on, group, baseline)
    ]


def _serves(name: str, timed_on: DeviceInfo, device: DeviceInfo, timed: Container[tuple[str, DeviceInfo]]) -> bool:
    """Whether a device is compared with a baseline that was timed on a device: its own, or one of the same chip where it has
    none of its own.
    """
    return timed_on == device or (timed_on.name == device.name and (name, device) not in timed)


def _standing(
    device: DeviceInfo, kernel: str, name: str, timed_on: DeviceInfo, group: Sequence[Measured],
    baseline: Mapping[int, BaselineResult],
) -> Iterator[Standing]:  # fmt: skip
    """One, or none where no workload has a ratio."""
    ratios, missing = [], []
    for one in group:
        ratio, reason = _ratio(one, name, baseline.get(id(one.workload)))
        if ratio is None:
            missing.append((one.workload.name, reason))
        else:
            ratios.append((one.workload.name, ratio))
    if ratios:
        ratios.sort(key=lambda pair: pair[1])
        yield Standing(device, kernel, name, timed_on, tuple(ratios), tuple(missing))


def _ratio(one: Measured, name: str, beside: BaselineResult | None) -> tuple[float | None, str]:
    """Our speed over the baseline's, or why it is not known."""
    if one.result.status != "ok":
        return None, f"{one.result.status}: {one.result.reason}"
    if beside is None:
        reasons = [baseline.reason for baseline in one.result.baselines if baseline.name == name]
        return None, "".join(reasons) or "nothing was timed"
    if beside.verified is False:
        return None, beside.reason
    return one.result.ratio(beside), "nothing was timed"
