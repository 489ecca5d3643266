"""What results of products and of passes have in common: a status, checks, a timing, and baselines beside it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np

from gemmport.bench.digest import launches_digests
from gemmport.bench.timing import Timing
from gemmport.checking.verification import Check
from gemmport.core.device import DeviceInfo
from gemmport.core.plan import Launch, ParameterValue
from gemmport.core.problem import Scalar

Status = Literal["ok", "failed", "unsupported", "error"]


@dataclass(frozen=True)
class BaselineResult:
    """A baseline beside a kernel. Where it could not be measured, `reason` says why and what to do.

    Attributes:
        is_missing: nobody named it, and it is not installed.
        tuning: parameters that it was given for this device, by its kernels; empty where it has its own.
        relative_error: `Check.relative` of its result.
    """

    name: str
    reason: str = ""
    version: str = ""
    timing: Timing | None = None
    verified: bool | None = None
    tuning: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    relative_error: float | None = None
    is_missing: bool = False


class Outcome(ABC):
    """Something that was verified and timed on a device, or the reason why not.

    Attributes:
        status: "ok"; "failed" where a check failed; "unsupported" where the kernel cannot do it here; "error" where the device
            or its compiler refused.
        reason: why the status is not "ok".
        clocks: of the GPU just after the measurement, under load.
    """

    device: DeviceInfo
    status: Status
    reason: str
    timing: Timing | None
    checks: tuple[Check, ...]
    baselines: tuple[BaselineResult, ...]
    clocks: dict[str, str]

    unit: ClassVar[str]
    """Of `rate`: 10⁹ of what `work` counts, per second."""

    rate_key: ClassVar[str]
    """What `rate` is called in JSON."""

    yardstick: ClassVar[str]
    """What `percent` is a percentage of."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The kernel, or the step of a ladder of passes."""

    @property
    @abstractmethod
    def task(self) -> str:
        """What was computed, for people."""

    @property
    @abstractmethod
    def values(self) -> dict[str, ParameterValue]:
        """Parameters of the kernel by name."""

    @property
    @abstractmethod
    def launches(self) -> tuple[Launch, ...]:
        """Those of one call, in order; empty where it did not come to that."""

    @property
    @abstractmethod
    def work(self) -> int:
        """Floating-point operations, or bytes read and written, of one call."""

    @property
    @abstractmethod
    def percent(self) -> float | None:
        """Percent of the yardstick; None where that is not known."""

    @property
    @abstractmethod
    def about_yardstick(self) -> str:
        """What `percent` is a percentage of, with its figure, for people; empty where that is not known."""

    @property
    def verified(self) -> bool | None:
        """Whether every check passed; None where none was made."""
        return all(check.passed for check in self.checks) if self.checks else None

    def rate(self, timing: Timing | None) -> float | None:
        """10⁹ units of work per second of a timing of the same work."""
        return self.work / timing.median * 1e-9 if timing else None

    def ratio(self, baseline: BaselineResult) -> float | None:
        """Our speed over the baseline's, from the same interleaved measurement."""
        return baseline.timing.median / self.timing.median if baseline.timing and self.timing else None

    def compared_with(self) -> dict[str, float]:
        """The rate of everything that was measured beside it, by name."""
        rates = {baseline.name: self.rate(baseline.timing) for baseline in self.baselines}
        return {name: rate for name, rate in rates.items() if rate is not None}

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """The result as docs/results.md describes it."""

    def _where(self) -> dict[str, Any]:
        return {
            "backend": self.device.backend,
            "device": self.device.name,
            "platform": f"{self.device.platform} {self.device.platform_version}".strip(),
            "selector": self.device.selector,
        }

    def _what_came(self) -> dict[str, Any]:
        return {
            "launches": launches_digests(self.launches, self.device),
            "status": self.status,
            "reason": self.reason,
            "verified": self.verified,
            "checks": checks_to_dict(self.checks),
            "seconds": seconds_to_dict(self.timing),
            self.rate_key: self.rate(self.timing),
            f"{self.yardstick}_percent": self.percent,
            "baselines": {
                baseline.name: {
                    "available": baseline.timing is not None,
                    "reason": baseline.reason,
                    "version": baseline.version,
                    "verified": baseline.verified,
                    "relative_error": baseline.relative_error,
                    "tuning": baseline.tuning,
                    "seconds": seconds_to_dict(baseline.timing),
                    self.rate_key: self.rate(baseline.timing),
                    "ratio": self.ratio(baseline),
                }
                for baseline in self.baselines
            },
            "clocks": self.clocks,
        }


def checks_to_dict(checks: Sequence[Check]) -> dict[str, Any]:
    """Checks as docs/results.md describes them."""
    return {
        check.name: {
            "passed": check.passed,
            "error": check.error if np.isfinite(check.error) else None,  # JSON knows no infinity
            "bound": check.bound,
            "detail": check.detail,
            "relative": check.relative,
        }
        for check in checks
    }


def plain(value: Scalar) -> float | list[float]:
    """Alpha or beta for JSON, which knows no complex numbers: real and imaginary part."""
    return [value.real, value.imag] if isinstance(value, complex) else value


def seconds_to_dict(timing: Timing | None) -> dict[str, Any] | None:
    """A timing as docs/results.md describes it."""
    if timing is None:
        return None
    first, third = timing.quartiles
    return {
        "median": timing.median, "first_quartile": first, "third_quartile": third, "minimum": min(timing.samples),
        "samples": len(timing.samples), "calls_per_sample": timing.calls_per_sample,
    }  # fmt: skip
