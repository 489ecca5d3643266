"""What trials say of a prediction: how many times as long nearby products took as a model predicted of them.

The factor of a candidate is the weighted mean of the logarithms of these ratios, by inverse distance (D. Shepard, "A
two-dimensional interpolation function for irregularly-spaced data", 1968). Distances are counted in doublings of a size; a
trial of another tiling, kernel, type or op counts as so many doublings further away, and so does one whose tiles crossed an
edge of D where the product's do not, or the other way round. A model that is wrong by a constant is
right behind it, and a product that was tried has the time that was measured.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gemmport import kernels
from gemmport.core.plan import ParameterValue
from gemmport.core.problem import GemmProblem

POWER = 4.0
"""Of the distance by which weights fall: in so many dimensions, five, far trials would else outweigh near ones by number."""

LEAST_DISTANCE = 0.05
"""At which a trial stands for the product itself: sizes within some percent."""

UNTRIED = 1.1
"""As many times as long is expected of a tiling that was not tried within `OTHER_TILING` of a product: one that was, and is as
good by the model, goes before it.
"""

OTHER_TILING, OTHER_KERNEL, OTHER_OPS, OTHER_TYPE = 1.5, 4.0, 1.0, 3.0
"""Doublings that such a difference counts as."""

OTHER_EDGE = 0.7
"""Doublings that it counts as where one of two products is whole tiles along the rows or columns of D, and the other is not.
By the choices for 374 products on CPUs, each without its own trial: docs/tuning-studies.md, "Trials at edges".
"""


@dataclass(frozen=True)
class Place:
    """Where a product lies among others."""

    sizes: tuple[float, float, float, float]
    ops: str
    dtype: str

    @classmethod
    def of(cls, problem: GemmProblem) -> Place:
        """That of a problem."""
        return cls.at(problem.m, problem.n, problem.k, problem.batch, problem.ops, problem.dtype.name)

    @classmethod
    def at(cls, m: int, n: int, k: int, batch: int, ops: str, dtype: str) -> Place:
        """That of a product of these sizes."""
        m, n, k, batch = (max(size, 1) for size in (m, n, k, batch))
        return cls((math.log2(m), math.log2(n), math.log2(k), math.log2(batch)), ops, dtype)

    def squared_distance(self, other: Place) -> float:
        """In doublings."""
        found = sum((one - two) ** 2 for one, two in zip(self.sizes, other.sizes, strict=True))
        found += (self.ops != other.ops) * OTHER_OPS**2
        return found + (self.dtype != other.dtype) * OTHER_TYPE**2


@dataclass(frozen=True)
class Way:
    """How a product is computed.

    Attributes:
        whole: whether D is whole tiles along its rows, and along its columns.
    """

    kernel: str
    tiling: Mapping[str, ParameterValue]
    whole: tuple[bool, bool]

    @classmethod
    def of(cls, kernel: str, tiling: Mapping[str, ParameterValue], problem: GemmProblem) -> Way:
        """That of a problem by a kernel with all of its parameters."""
        tile = kernels.variant(kernel).tile(tiling)
        return cls(kernel, tiling, (problem.m % tile.rows == 0, problem.n % tile.columns == 0))

    def squared_distance(self, other: Way) -> float:
        """In doublings."""
        if self.kernel != other.kernel:
            return OTHER_KERNEL**2
        edges = sum(one != two for one, two in zip(self.whole, other.whole, strict=True))
        return (self.tiling != other.tiling) * OTHER_TILING**2 + edges * OTHER_EDGE**2


@dataclass(frozen=True)
class Ratio:
    """A trial: what a way took for a product, over what was predicted."""

    place: Place
    way: Way
    ratio: float


class Correction:
    """What trials say of predictions."""

    def __init__(self, trials: Iterable[Ratio] = ()) -> None:
        self._trials = list(trials)
        self._distances: dict[Place, list[float]] = {}

    def add(self, trial: Ratio) -> None:
        """Takes one more trial into account."""
        self._trials.append(trial)

    def factor(self, place: Place, way: Way) -> float:
        """By what the prediction of a way for a product is to be multiplied; 1 where there are no trials."""
        total = weights = 0.0
        for trial, squared in zip(self._trials, self._squared_distances(place), strict=True):
            distance = squared + way.squared_distance(trial.way)
            weight = max(distance, LEAST_DISTANCE**2) ** (-POWER / 2)
            total += weight * math.log(trial.ratio)
            weights += weight
        return math.exp(total / weights) if weights else 1.0

    def doubt(self, place: Place, way: Way) -> float:
        """By what the corrected prediction is to be multiplied, too, where a choice is not to be an experiment."""
        tried = any(
            trial.way.kernel == way.kernel and trial.way.tiling == way.tiling and squared <= OTHER_TILING**2
            for trial, squared in zip(self._trials, self._squared_distances(place), strict=True)
        )
        return 1.0 if tried or not self._trials else UNTRIED

    def _squared_distances(self, place: Place) -> list[float]:
        """Of each trial; many candidates are asked for at one place."""
        found = self._distances.setdefault(place, [])
        found += [place.squared_distance(trial.place) for trial in self._trials[len(found) :]]
        return found
