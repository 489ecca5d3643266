"""What each device is expected to take for a product alone, and whether it pays to deal it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gemmport import kernels
from gemmport.core.device import DeviceInfo
from gemmport.core.plan import Plan
from gemmport.core.problem import GemmProblem
from gemmport.core.units import span
from gemmport.multidevice.deal import SHORTEST
from gemmport.planning import preparation
from gemmport.planning.lookup import Configuration
from gemmport.runtime.host_cpu import usable_cores

HOST_LINK = 10e9
"""Bytes per second between the host and a device with a memory of its own, until tiles were measured: PCI Express 3.0 carries
16 GB/s in 16 lanes, 4.0 twice as much (PCI-SIG), and copies of memory that is not pinned reach about half."""

PEER_LINK = 20e9
"""Likewise between two devices that reach each other: PCI Express 4.0 carries 32 GB/s in 16 lanes (PCI-SIG), NVLink more."""


@dataclass(frozen=True)
class Expected:
    """What a device is expected to take for the whole product.

    Attributes:
        plan: by which it would compute it alone.
        seconds: of the product. transfers: of the operands and the result between the host and the device.
    """

    plan: Plan
    seconds: float
    transfers: float

    @property
    def device(self) -> DeviceInfo:
        """Which one."""
        return self.plan.device

    @property
    def total(self) -> float:
        """Seconds of both; never 0."""
        return max(self.seconds + self.transfers, 1e-9)


@dataclass(frozen=True)
class Passing:
    """How the first tile of a device passes through it.

    Attributes:
        rows, columns: of the tile.
        panels, depth: in how many panels one operand passes by, and terms of each.
        stays: the other operand, "a" or "b", whose part stays for the next tile.
    """

    rows: int
    columns: int
    panels: int
    depth: int
    stays: str

    def __str__(self) -> str:
        passing = "op(A)" if self.stays == "b" else "op(B)"
        number = f"{self.panels} panel{'s' * (self.panels > 1)} of {self.depth:,} terms"
        return (
            f"first {self.rows:,} × {self.columns:,}: {passing} passes by in {number}, op({self.stays.upper()}) stays"
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {"tile": [self.rows, self.columns], "panels": self.panels, "depth": self.depth, "stays": self.stays}


@dataclass(frozen=True)
class Outlook:
    """What devices are expected to take for a product, in the order in which they were given.

    Attributes:
        cores: of the host, which runtimes for CPUs share: what has more threads in all is slower for it.
        passing: of each device, how tiles pass through it; None of one that reads the host's memory in place, or gets none.
            Empty where nobody asked.
    """

    problem: GemmProblem
    expected: tuple[Expected, ...]
    cores: int
    passing: tuple[Passing | None, ...] = ()

    @property
    def fastest(self) -> Expected:
        """The device that would end first alone."""
        return min(self.expected, key=lambda each: each.total)

    @property
    def rates(self) -> tuple[float, ...]:
        """Products per second of each device beside the others."""
        threads = sum(each.device.compute_units for each in self.expected if each.device.type == "cpu")
        left = min(1.0, self.cores / threads) if threads else 1.0
        return tuple((left if each.device.type == "cpu" else 1.0) / each.total for each in self.expected)

    @property
    def shares(self) -> tuple[float, ...]:
        """Of the result, by which each is expected to end at the same time."""
        return tuple(rate / sum(self.rates) for rate in self.rates)

    @property
    def together(self) -> float:
        """Seconds of all together, at those shares."""
        return 1 / sum(self.rates)

    @property
    def pays(self) -> bool:
        """Whether all together are expected to gain more over the fastest than the last tile may take longer."""
        return self.fastest.total - self.together > 2 * SHORTEST

    @property
    def reason(self) -> str:
        """Why the fastest computes alone, for people; empty where it does not."""
        if self.pays:
            return ""
        if len(self.expected) == 1:
            return "it is the only device"
        if self.fastest.total - 1 / sum(1 / each.total for each in self.expected) > 2 * SHORTEST:
            return f"the runtimes share the {self.cores} cores of the CPU, on which all together gain nothing"
        gained = max(self.fastest.total - self.together, 0.0)
        return f"all together would gain {span(gained)}, and must gain {span(2 * SHORTEST)} for it"

    def __str__(self) -> str:
        number = len(self.expected)
        lines = [f"{self.problem} by {number} device{'s' * (number > 1)}, of arrays in the host's memory", ""]
        width = max(len(each.device.label) for each in self.expected)
        for each, share in zip(self.expected, self.shares, strict=True):
            sent = f", {span(each.transfers)} of it to send" if each.transfers else ""
            dealt = f"{100 * share:5.1f} %  " if self.pays else ""
            lines.append(f"{each.device.label:{width}}  {dealt}{span(each.total)} alone{sent}, by {each.plan.variant}")
        fastest = self.fastest.device.label
        if self.reason:
            return "\n".join([*lines, "", f"not dealt: {fastest} computes it alone: {self.reason}"])
        for each, how in zip(self.expected, self.passing, strict=bool(self.passing)):
            if how is not None:
                lines.append(f"{each.device.label:{width}}  {how}")
        faster = self.fastest.total / self.together
        lines += ["", f"dealt: {span(self.together)} together, {faster:.2f} times as fast as {fastest}"]
        return "\n".join([*lines, "shares are what the models predict; they are corrected while the devices compute"])

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; docs/explain.md describes it."""
        return {
            "problem": self.problem.to_dict(),
            "dealt": self.pays,
            "reason": self.reason,
            "together": self.together,
            "devices": [
                {
                    "device": each.device.to_dict(),
                    "kernel": each.plan.variant,
                    "seconds": each.seconds,
                    "transfers": each.transfers,
                    "share": share if self.pays else float(each is self.fastest),
                    "passing": how.to_dict() if how is not None and self.pays else None,
                }
                for each, share, how in zip(
                    self.expected, self.shares, self.passing or (None,) * len(self.expected), strict=True
                )
            ],
        }


def outlook(
    problem: GemmProblem, plans: Sequence[Plan], configuration: Configuration, transfers: Sequence[float] | None = None
) -> Outlook:
    """What each of some devices is expected to take.

    Args:
        transfers: seconds, of each plan; default: of operands and result between the host and the device.
        problem: with elements.
        plans: of the problem, one of each device.
        configuration: with the devices' models.
    """
    expected = []
    for number, plan in enumerate(plans):
        device = plan.device
        variant, model = kernels.variant(plan.variant), configuration.model(device)
        predicted = preparation.predicted(variant, problem, device, model, plan.values)
        sent = 0.0 if device.type == "cpu" else problem.bytes / HOST_LINK
        expected.append(Expected(plan, predicted.seconds, sent if transfers is None else transfers[number]))
    return Outlook(problem, tuple(expected), usable_cores())
