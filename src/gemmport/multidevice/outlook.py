"""What each device is expected to take for a product alone, and whether it pays to deal it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gemmport import kernels
from gemmport.core.device import DeviceInfo
from gemmport.core.plan import Plan
from gemmport.core.problem import GemmProblem
from gemmport.multidevice.deal import SHORTEST
from gemmport.planning import preparation
from gemmport.planning.lookup import Configuration

HOST_LINK = 10e9
"""Bytes per second between the host and a device with a memory of its own, until tiles were measured: PCI Express 3.0 carries
16 GB/s in 16 lanes, 4.0 twice as much (PCI-SIG), and copies of memory that is not pinned reach about half."""


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
class Outlook:
    """What devices are expected to take for a product, in the order in which they were given."""

    problem: GemmProblem
    expected: tuple[Expected, ...]

    @property
    def fastest(self) -> Expected:
        """The device that would end first alone."""
        return min(self.expected, key=lambda each: each.total)

    @property
    def shares(self) -> tuple[float, ...]:
        """Of the result, by which each is expected to end at the same time."""
        rates = [1 / each.total for each in self.expected]
        return tuple(rate / sum(rates) for rate in rates)

    @property
    def together(self) -> float:
        """Seconds of all together, at those shares."""
        return 1 / sum(1 / each.total for each in self.expected)

    @property
    def pays(self) -> bool:
        """Whether all together are expected to gain more over the fastest than the last tile may take longer."""
        return self.fastest.total - self.together > 2 * SHORTEST


def outlook(problem: GemmProblem, plans: Sequence[Plan], configuration: Configuration) -> Outlook:
    """What each of some devices is expected to take.

    Args:
        problem: with elements.
        plans: of the problem, one of each device.
        configuration: with the devices' models.
    """
    expected = []
    for plan in plans:
        device = plan.device
        variant, model = kernels.variant(plan.variant), configuration.model(device)
        predicted = preparation.predicted(variant, problem, device, model, plan.values)
        transfers = 0.0 if device.type == "cpu" else problem.bytes / HOST_LINK
        expected.append(Expected(plan, predicted.seconds, transfers))
    return Outlook(problem, tuple(expected))
