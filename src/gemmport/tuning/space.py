"""What may be tried for a product on a device: every kernel's parameters, on a grid where they are whole numbers of a range.

A point of the search that breaks a rule of the kernel or a limit of the device stands for the nearest one that does not.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from gemmport import kernels
from gemmport.contracts.kernel import KernelVariant, Parameter, Parameters, Rankings
from gemmport.core.device import DeviceInfo
from gemmport.core.errors import DtypeError, ParameterError, UnsupportedError
from gemmport.core.plan import ParameterValue, Plan
from gemmport.core.problem import GemmProblem
from gemmport.planning import preparation
from gemmport.planning.lookup import Configuration
from gemmport.planning.planner import make_plan
from gemmport.runtime.fingerprint import of_texts

FORM = "3"
"""Counts the ways in which points of a search were made candidates, and in which candidates were timed."""

MOST_NEIGHBOURS = 3000
"""Points around one that breaks a rule that are looked at: enough for kernels with a dozen rules."""

OTHER_WORD = 3.0
"""How far two words are from each other, in doublings: nearer than a number eight times as large."""


def grid(parameter: Parameter) -> tuple[ParameterValue, ...]:
    """Values worth a try: the choices; of a range the powers of two, three times those, and the default doubled and halved."""
    if parameter.choices:
        return parameter.choices
    bases = [1, 3]
    default = int(parameter.default)
    while default and default % 2 == 0:
        default //= 2
    bases += [default] if default else []
    found = {base << shift for base in bases for shift in range(parameter.maximum.bit_length())}
    return tuple(sorted(x for x in {0, *found} if parameter.minimum <= x <= parameter.maximum))


class Space:
    """The candidates for a product on a device.

    Attributes:
        kernels: names of those that compute it there and that the planner may choose.
    """

    def __init__(
        self, problem: GemmProblem, device: DeviceInfo, only: Collection[str] = (), models: Configuration | None = None,
        rankings: Rankings | None = None,
    ) -> None:  # fmt: skip
        """Args:
        only: names of kernels; none for all.
        models: of which the models count, and no entry; None for what the device tells.
        rankings: by these models, where other products' candidates are asked for, too; None: there are none yet.
        """
        self.problem, self.device = problem, device
        self._bare = Configuration(()) if models is None else models.of_models()
        self._rankings = rankings or Rankings(device, self._bare.model(device))
        self._plans: dict[Hashable, Plan | None] = {}
        self.kernels = tuple(
            variant.name for variant in kernels.variants()
            if (not only or variant.name in only) and self._may_serve(variant)
        )  # fmt: skip

    def plan(self, kernel: str, values: Parameters) -> Plan | None:
        """How a candidate computes the product; None where a rule or a limit forbids it."""
        key = kernel, *sorted(values.items())
        if key not in self._plans:
            self._plans[key] = self._plan(kernel, values)
        return self._plans[key]

    def _plan(self, kernel: str, values: Parameters) -> Plan | None:
        how: dict[str, Any] = {"kernel": kernel, "params": values, "rankings": self._rankings}
        try:
            return make_plan(self.problem, self.device, self._bare, **how)
        except (DtypeError, ParameterError, UnsupportedError):
            return None

    def suggests(self, kernel: str) -> bool:
        """Whether a kernel's model has parameters to suggest for the product."""
        variant = kernels.variant(kernel)
        return bool(self._rankings.suggested(variant, preparation.as_taken(variant, self.problem)))

    def nearest(self, kernel: str, values: Parameters) -> Plan | None:
        """The plan of the allowed candidate on the grid that is nearest to the values of all parameters, by the sum of squared
        distances in doublings; None where there is none near.
        """
        variant = kernels.variant(kernel)
        ordered = [_by_distance(parameter, values[parameter.name]) for parameter in variant.parameters]
        for point in _nearest_first(ordered):
            candidate = dict(zip(values_names(kernel), point, strict=True))
            try:
                variant.complete(candidate)
            except ParameterError:
                continue
            plan = self.plan(kernel, candidate)
            if plan is not None:
                return plan
        return None

    def _may_serve(self, variant: KernelVariant) -> bool:
        problem, device = preparation.as_taken(variant, self.problem), self.device
        declined = variant.declined(problem, device, self._rankings.model, self._rankings)
        return not (variant.unsupported(problem, device) or declined)


@cache
def values_names(kernel: str) -> tuple[str, ...]:
    """Names of a kernel's parameters, in the order of its contract."""
    return tuple(parameter.name for parameter in kernels.variant(kernel).parameters)


def fingerprint(names: Sequence[str]) -> str:
    """A text that differs where parameters, ranges or rules of any of these kernels do, or what `FORM` counts."""
    said = [FORM]
    for name in sorted(names):
        variant = kernels.variant(name)
        said += [name, *map(repr, variant.parameters), *(constraint.rule for constraint in variant.constraints)]
    return of_texts(*said)


def _by_distance(parameter: Parameter, value: ParameterValue) -> list[tuple[float, ParameterValue]]:
    """The values of a grid with their squared distances, the nearest first."""
    return sorted(((_distance(value, other) ** 2, other) for other in grid(parameter)), key=lambda pair: pair[0])


def _distance(one: ParameterValue, other: ParameterValue) -> float:
    if isinstance(one, str) or isinstance(other, str):
        return 0.0 if one == other else OTHER_WORD
    return abs(math.log2((one + 1) / (other + 1))) if 0 in (one, other) else abs(math.log2(one / other))


def _nearest_first(ordered: Sequence[Sequence[tuple[float, ParameterValue]]]) -> Iterator[tuple[ParameterValue, ...]]:
    """Combinations of one of each, by the sum of their distances: the nearest `MOST_NEIGHBOURS`."""

    def entry(at: tuple[int, ...]) -> tuple[float, tuple[int, ...]]:
        return sum(each[place][0] for each, place in zip(ordered, at, strict=True)), at

    first = (0,) * len(ordered)
    waiting, seen = [entry(first)], {first}
    for _ in range(MOST_NEIGHBOURS):
        if not waiting:
            return
        _, at = heapq.heappop(waiting)
        yield tuple(each[place][1] for each, place in zip(ordered, at, strict=True))
        for axis, place in enumerate(at):
            following = (*at[:axis], place + 1, *at[axis + 1 :])
            if place + 1 < len(ordered[axis]) and following not in seen:
                seen.add(following)
                heapq.heappush(waiting, entry(following))


def told(kernel: str, values: Mapping[str, ParameterValue]) -> str:
    """A candidate in one line."""
    return " ".join([kernel, *(f"{name}={value}" for name, value in values.items())])
