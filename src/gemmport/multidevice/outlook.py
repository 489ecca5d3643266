"""What each device is expected to take for a product alone, and whether it pays to deal it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, TypeAlias, get_args

from gemmport import kernels
from gemmport.core.device import DeviceInfo
from gemmport.core.errors import UnknownNameError
from gemmport.core.plan import Plan
from gemmport.core.problem import GemmProblem
from gemmport.core.units import quantity, span
from gemmport.execution.links import Between
from gemmport.multidevice.deal import SHORTEST
from gemmport.multidevice.homes import Cut, Home, Lines, homes
from gemmport.multidevice.tiles import Tile
from gemmport.planning import preparation
from gemmport.planning.lookup import Configuration
from gemmport.runtime.host_cpu import usable_cores

Placement: TypeAlias = Literal["host", "first", "rows", "columns"]
"""Where A, B, C and the result are: in the host's memory, on the first device, or in shards of like sizes on all devices:
rows, or columns, of op(A), op(B), C and the result."""

PLACEMENTS: tuple[Placement, ...] = get_args(Placement)

_TOLD = {
    "host": "in the host's memory", "first": "on the first of them", "rows": "in shards of rows on them",
    "columns": "in shards of columns on them",
}  # fmt: skip


@dataclass(frozen=True)
class Expected:
    """What a device is expected to take for the whole product.

    Attributes:
        plan: by which it would compute it alone.
        seconds: of the product. transfers: of the operands and the result from where they are to the device, and back.
        always: of the transfers, those of an operand that it needs whatever its share is.
        home: the share of the result that it has at home, for which nothing else travels.
    """

    plan: Plan
    seconds: float
    transfers: float
    always: float = 0.0
    home: float = 0.0

    @property
    def device(self) -> DeviceInfo:
        """Which one."""
        return self.plan.device

    @property
    def total(self) -> float:
        """Seconds of both; never 0."""
        return max(self.seconds + self.transfers, 1e-9)

    @property
    def in_proportion(self) -> float:
        """Seconds of a whole result that grow with its share; never 0."""
        return max(self.seconds + (0.0 if self.home else self.transfers - self.always), 1e-9)


@dataclass(frozen=True)
class Links:
    """Bytes that are expected to come to a device, and to leave it, over its links to the others."""

    come: int
    leave: int


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
        between: of each device, the slowest link to another, where the arrays are on devices; None of a single one.
        placement: where the arrays are.
    """

    problem: GemmProblem
    expected: tuple[Expected, ...]
    cores: int
    passing: tuple[Passing | None, ...] = ()
    between: tuple[Between | None, ...] = ()
    placement: Placement = "host"

    @property
    def fastest(self) -> Expected:
        """The device that would end first alone."""
        return min(self.expected, key=lambda each: each.total)

    @property
    def rates(self) -> tuple[float, ...]:
        """Products per second of each device beside the others."""
        threads = sum(each.device.compute_units for each in self.expected if each.device.type == "cpu")
        left = min(1.0, self.cores / threads) if threads else 1.0
        return tuple((left if each.device.type == "cpu" else 1.0) / each.in_proportion for each in self.expected)

    @property
    def shares(self) -> tuple[float, ...]:
        """Of the result, by which each is expected to end at the same time."""
        end = self.together
        return tuple(max(end - each.always, 0.0) * rate for each, rate in zip(self.expected, self.rates, strict=True))

    @property
    def together(self) -> float:
        """Seconds of all together, at those shares: of those that end before the operand that they need has come none."""
        taking = sorted(zip((each.always for each in self.expected), self.rates, strict=True))
        end = 0.0
        for number in range(1, len(taking) + 1):
            if number > 1 and taking[number - 1][0] >= end:
                break
            some = taking[:number]
            end = (1 + sum(always * rate for always, rate in some)) / sum(rate for _, rate in some)
        return end

    @property
    def links(self) -> tuple[Links, ...]:
        """Of each device what is expected to travel at those shares, where the arrays are on devices; else nothing is told."""
        if self.placement == "host":
            return ()
        sizes = _sizes(self.problem)
        stays, lines = ("a", "b") if self.placement == "columns" else ("b", "a")
        away = [
            max(share - each.home, 0.0) if share else 0.0
            for each, share in zip(self.expected, self.shares, strict=True)
        ]
        found = []
        for number, (each, share) in enumerate(zip(self.expected, self.shares, strict=True)):
            given = min(sum(away) - away[number], max(each.home - share, 0.0))  # of its home, to the others
            readers = sum(1 for place, other in enumerate(self.shares) if place != number and other)
            come = sizes[stays] * (1 - each.home) * bool(share) + away[number] * (sizes[lines] + sizes["c"])
            leave = sizes[stays] * each.home * readers + given * (sizes[lines] + sizes["c"])
            found.append(Links(round(come + given * sizes["d"]), round(leave + away[number] * sizes["d"])))
        return tuple(found)

    @property
    def pays(self) -> bool:
        """Whether all together are expected to gain more over the fastest than the last tile may take longer; of shards, which
        nobody has all of, always.
        """
        return self.placement in ("rows", "columns") or self.fastest.total - self.together > 2 * SHORTEST

    @property
    def overlaps(self) -> bool:
        """Whether a device that computes alone gains where numbers travel to it, and back, beside its work."""
        return self.placement == "host" and self.fastest.transfers > 2 * SHORTEST

    @property
    def reason(self) -> str:
        """Why the fastest computes alone, for people; empty where it does not."""
        if self.pays:
            return ""
        if len(self.expected) == 1:
            return "it is the only device"
        if self.placement == "host" and (
            self.fastest.total - 1 / sum(1 / each.total for each in self.expected) > 2 * SHORTEST
        ):
            return f"the runtimes share the {self.cores} cores of the CPU, on which all together gain nothing"
        gained = max(self.fastest.total - self.together, 0.0)
        return f"all together would gain {span(gained)}, and must gain {span(2 * SHORTEST)} for it"

    def __str__(self) -> str:
        number = len(self.expected)
        lines = [f"{self.problem} by {number} device{'s' * (number > 1)}, of arrays {_TOLD[self.placement]}", ""]
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
        for each, link, way in zip(self.expected, self.links, self.between, strict=bool(self.links)):
            at = f", at {way}" if way is not None else ""
            lines.append(
                f"{each.device.label:{width}}  {quantity(link.come, 'B')} come over links, {quantity(link.leave, 'B')} leave"
                + at
            )
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
            "placement": self.placement,
            "devices": [
                {
                    "device": each.device.to_dict(),
                    "kernel": each.plan.variant,
                    "seconds": each.seconds,
                    "transfers": each.transfers,
                    "share": share if self.pays else float(each is self.fastest),
                    "passing": how.to_dict() if how is not None and self.pays else None,
                    "links": {"come": link.come, "leave": link.leave} if link is not None and self.pays else None,
                    "between": None if way is None else asdict(way),
                }
                for each, share, how, link, way in zip(
                    self.expected,
                    self.shares,
                    self.passing or (None,) * len(self.expected),
                    self.links or (None,) * len(self.expected),
                    self.between or (None,) * len(self.expected),
                    strict=True,
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
        sent = 0.0 if device.type == "cpu" else problem.bytes / configuration.model(device).link_bandwidth
        seconds = expected_seconds(problem, plan, configuration)
        expected.append(Expected(plan, seconds, sent if transfers is None else transfers[number]))
    return Outlook(problem, tuple(expected), usable_cores())


def expected_seconds(problem: GemmProblem, plan: Plan, configuration: Configuration) -> float:
    """Seconds that a product with elements is expected to take by the kernel and the parameters of a plan, on its device."""
    variant, model = kernels.variant(plan.variant), configuration.model(plan.device)
    return preparation.predicted(variant, problem, plan.device, model, plan.values).seconds


def placed(found: Outlook, placement: Placement, between: Callable[[DeviceInfo, DeviceInfo], Between]) -> Outlook:
    """What the devices are expected to take where the arrays are on devices.

    Args:
        between: what lies between two of them.
    """
    sizes, number = _sizes(found.problem), len(found.expected)
    stays = "a" if placement == "columns" else "b"
    whole = sum(sizes.values())
    expected, ways = [], []
    for place, each in enumerate(found.expected):
        links = [between(one.device, each.device) for one in found.expected if one is not each]
        ways.append(min(links, key=lambda link: link.rate, default=None))
        link = ways[-1].rate if ways[-1] else math.inf
        has = (1.0 if place == 0 else 0.0) if placement == "first" else part_of(found.problem, placement, number, place)
        away = 1.0 - has
        expected.append(replace(each, transfers=away * whole / link, always=away * sizes[stays] / link, home=has))
    return replace(found, expected=tuple(expected), between=tuple(ways), placement=placement)


def checked(placement: str) -> Placement:
    """A placement by its name.

    Raises:
        UnknownNameError: there is none of it.
    """
    if placement not in PLACEMENTS:
        raise UnknownNameError(f"placement must be one of {', '.join(PLACEMENTS)}; got {placement!r}")
    return placement


def part_of(problem: GemmProblem, placement: Placement, number: int, place: int) -> float:
    """The share of the rows, or columns, that a device has of so many."""
    lines = problem.n if placement == "columns" else problem.m
    return (lines // number + (place < lines % number)) / lines


def home_parts(problem: GemmProblem, placement: Placement, number: int) -> tuple[Lines | None, list[Home]]:
    """The parts of the result by the devices that have them, as of `gemmport.multidevice.homes.homes`."""
    whole = Tile.whole(problem.batch, problem.m, problem.n)
    if placement not in ("rows", "columns"):
        return None, []
    lines = problem.n if placement == "columns" else problem.m
    sizes = [lines // number + (place < lines % number) for place in range(number)]
    return homes(whole, [Cut("columns" if placement == "columns" else "rows", sizes, range(number), 1)])


def _sizes(problem: GemmProblem) -> dict[str, int]:
    """Bytes of A, B, C where it is read, and D."""
    batch = problem.batch
    shared = {name: 1 if batch > 1 and problem.layout(name).batch_stride == 0 else batch for name in ("a", "b")}
    item, output = problem.dtype.itemsize, problem.output.itemsize
    d = batch * problem.m * problem.n * output
    return {
        "a": shared["a"] * problem.m * problem.k * item, "b": shared["b"] * problem.k * problem.n * item,
        "c": d if problem.reads("c") else 0, "d": d,
    }  # fmt: skip
