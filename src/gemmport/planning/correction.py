"""What trials say of a prediction: how many times as long as a model predicts a candidate takes for a product.

The logarithms of these ratios are taken for a random field over products and tilings, and the factor of a candidate is the
field's best linear unbiased prediction: ordinary kriging (G. Matheron, "Principles of geostatistics", 1963). What the trials of
a kernel have in common counts everywhere; what those of one tiling have in common counts for tilings like it; what is known of
products counts for products nearby; and a product that was tried has the time that was measured. Distances are counted in
doublings, of sizes and of parameters.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from gemmport.core.plan import ParameterValue
from gemmport.core.problem import GemmProblem

LEAST_DISTANCE = 0.05
"""At which a trial stands for the product itself: sizes within some percent."""

OTHER_OPS, OTHER_TYPE = 1.6, 3.0
"""Doublings of a size that such a difference counts as."""

REACH, TILING_REACH = 3.0, 2.0
"""Doublings of sizes, and of parameters, in which a covariance falls to a half (Matérn's of 3/2)."""

BY_KERNEL, BY_PRODUCT, BY_TILING, BY_BOTH = 0.5, 0.1, 0.1, 0.08
"""Standard deviations of a logarithm: of what all trials of a kernel have in common in one type; of what changes from product
to product; from tiling to tiling; and from product to product with each tiling in its own way. So an H200's times of `simt` lie
beside a calibrated model (simt-regret-float32.jsonl, simt-workloads-float32.jsonl in benchmarks/results/h200/sweep). Choices
hardly depend on them.
"""

BY_ANY = 0.05
"""Likewise of what changes from product to product with all kernels alike."""

IN_ANY_TYPE = 0.3
"""Of the variance that a kernel's trials have in common, the part that they have in common with those in another type."""

NOISE = 0.02
"""Of a time that was measured."""

DOUBT = 0.5
"""Standard deviations by which a candidate must be ahead to be chosen: a choice is not to be an experiment."""

AT_ONCE = 16
"""More new trials than these are not taken into account one by one."""

Floats: TypeAlias = npt.NDArray[np.float64]


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
class Ratio:
    """A trial: what a candidate took for a product, over what was predicted.

    Attributes:
        tiling: all parameters, also where the kernel's model suggested them.
    """

    place: Place
    kernel: str
    tiling: Mapping[str, ParameterValue]
    ratio: float


@dataclass(frozen=True)
class Corrected:
    """What trials say of a candidate.

    Attributes:
        factor: by what its prediction is to be multiplied; 1 where there are no trials.
        doubt: by what else, where a choice is not to be an experiment: the farther from all trials, the more.
    """

    factor: float = 1.0
    doubt: float = 1.0


class Correction:
    """What trials say of predictions."""

    def __init__(self, trials: Iterable[Ratio] = ()) -> None:
        self._trials: list[Ratio] = []
        self._points = _Points()
        self._codes: dict[str, int] = {}
        self._inverse: Floats = np.zeros((0, 0))
        self._weights: Floats = np.zeros(0)
        self._mean = 0.0
        for trial in trials:
            self.add(trial)

    def add(self, trial: Ratio) -> None:
        """Takes one more trial into account."""
        self._trials.append(trial)

    def corrected(
        self, place: Place, candidates: Sequence[tuple[str, Mapping[str, ParameterValue]]]
    ) -> list[Corrected]:
        """What is said of candidates for one product.

        Args:
            candidates: kernels, with all parameters.
        """
        if not self._trials or not candidates:
            return [Corrected() for _ in candidates]
        self._take()
        asked = self._described([(place, kernel, tiling) for kernel, tiling in candidates], self._points)
        shared = _covariance(asked, self._points)
        logarithms = self._mean + shared @ self._weights
        variances = asked.variances - (shared @ self._inverse * shared).sum(axis=1)
        doubts = np.exp(DOUBT * np.sqrt(np.maximum(variances, 0.0)))
        exactly = [trial for trial in self._trials if place.squared_distance(trial.place) <= LEAST_DISTANCE**2]
        found = []
        for (kernel, tiling), factor, doubt in zip(candidates, np.exp(logarithms), doubts, strict=True):
            known = [trial.ratio for trial in exactly if trial.kernel == kernel and trial.tiling == tiling]
            found.append(Corrected(known[-1]) if known else Corrected(float(factor), float(doubt)))
        return found

    def factor(self, place: Place, kernel: str, tiling: Mapping[str, ParameterValue]) -> float:
        """By what the prediction of one candidate is to be multiplied."""
        return self.corrected(place, [(kernel, tiling)])[0].factor

    def _take(self) -> None:
        """Takes trials into account that were added since the last time."""
        known = len(self._inverse)
        if known == len(self._trials):
            return
        new = self._described(
            [(trial.place, trial.kernel, trial.tiling) for trial in self._trials[known:]], self._points
        )
        own = _covariance(new, new) + NOISE**2 * np.eye(len(new.kernels))
        if 0 < len(new.kernels) <= AT_ONCE and known:
            # The inverse of a matrix with some more rows and columns, by Schur's complement.
            shared = _covariance(self._points, new)
            left = self._inverse @ shared
            schur: Floats = np.asarray(np.linalg.inv(own - shared.T @ left), dtype=np.float64)
            corner = -left @ schur
            self._inverse = np.asarray(np.block([[self._inverse + left @ schur @ left.T, corner], [corner.T, schur]]))
            self._points = self._points.with_more(new)
        else:
            self._points = self._points.with_more(new)
            whole = _covariance(self._points, self._points) + NOISE**2 * np.eye(len(self._trials))
            self._inverse = np.asarray(np.linalg.inv(whole), dtype=np.float64)
        logarithms = np.log([trial.ratio for trial in self._trials])
        rows = self._inverse.sum(axis=1)
        self._mean = float(rows @ logarithms / rows.sum())
        self._weights = self._inverse @ (logarithms - self._mean)

    def _described(
        self, candidates: Sequence[tuple[Place, str, Mapping[str, ParameterValue]]], others: _Points
    ) -> _Points:
        """Candidates as numbers, with as many columns as others have, and more where they have parameters of their own."""
        columns = others.columns
        for _, _, tiling in candidates:
            for name in _coordinates(tiling):
                columns.setdefault(name, len(columns))
        tilings = np.zeros((len(candidates), len(columns)))
        for row, (_, _, tiling) in enumerate(candidates):
            for name, value in _coordinates(tiling).items():
                tilings[row, columns[name]] = value
        code = self._codes.setdefault
        return _Points(
            np.array([place.sizes for place, _, _ in candidates]).reshape(-1, 4),
            np.array([code(f"ops {place.ops}", len(self._codes)) for place, _, _ in candidates], dtype=np.int64),
            np.array([code(f"type {place.dtype}", len(self._codes)) for place, _, _ in candidates], dtype=np.int64),
            np.array([code(f"kernel {kernel}", len(self._codes)) for _, kernel, _ in candidates], dtype=np.int64),
            tilings,
            columns,
        )


def _coordinates(tiling: Mapping[str, ParameterValue]) -> dict[str, float]:
    """Parameters as numbers, in doublings; words, of which each is one doubling from each other."""
    return {
        f"{name} {value}" if isinstance(value, str) else name: 0.5**0.5
        if isinstance(value, str)
        else math.log2(1 + value)
        for name, value in tiling.items()
    }


class _Points:
    """Candidates for products, as numbers: a row each."""

    def __init__(
        self, sizes: Floats | None = None, ops: npt.NDArray[np.int64] | None = None,
        types: npt.NDArray[np.int64] | None = None, kernels: npt.NDArray[np.int64] | None = None,
        tilings: Floats | None = None, columns: dict[str, int] | None = None,
    ) -> None:  # fmt: skip
        none = np.zeros(0, dtype=np.int64)
        self.sizes: Floats = np.zeros((0, 4)) if sizes is None else sizes
        self.ops = none if ops is None else ops
        self.types = none if types is None else types
        self.kernels = none if kernels is None else kernels
        self.tilings: Floats = np.zeros((0, 0)) if tilings is None else tilings
        self.columns: dict[str, int] = {} if columns is None else columns

    @property
    def variances(self) -> Floats:
        """Of each, without any trial."""
        return np.full(len(self.kernels), BY_ANY**2 + BY_KERNEL**2 + BY_PRODUCT**2 + BY_TILING**2 + BY_BOTH**2)

    def with_more(self, others: _Points) -> _Points:
        """These, and others behind them."""
        wide = np.pad(self.tilings, ((0, 0), (0, others.tilings.shape[1] - self.tilings.shape[1])))
        return _Points(
            np.concatenate([self.sizes, others.sizes]), np.concatenate([self.ops, others.ops]),
            np.concatenate([self.types, others.types]), np.concatenate([self.kernels, others.kernels]),
            np.concatenate([wide, others.tilings]), others.columns,
        )  # fmt: skip


def _covariance(one: _Points, other: _Points) -> Floats:
    """Of each candidate with each of others."""
    same_type = one.types[:, None] == other.types
    apart = _squared_distances(one.sizes, other.sizes)
    apart = apart + OTHER_OPS**2 * (one.ops[:, None] != other.ops) + OTHER_TYPE**2 * ~same_type
    width = max(one.tilings.shape[1], other.tilings.shape[1])
    wide = [np.pad(each.tilings, ((0, 0), (0, width - each.tilings.shape[1]))) for each in (one, other)]
    near = _matern(apart / REACH**2)
    alike = _matern(_squared_distances(*wide) / TILING_REACH**2)
    of_kernel = np.where(same_type, 1.0, IN_ANY_TYPE) * BY_KERNEL**2
    of_kernel = of_kernel + BY_PRODUCT**2 * near + BY_TILING**2 * alike + BY_BOTH**2 * near * alike
    return BY_ANY**2 * near + np.where(one.kernels[:, None] == other.kernels, of_kernel, 0.0)


def _squared_distances(one: Floats, other: Floats) -> Floats:
    found = (one**2).sum(axis=1)[:, None] + (other**2).sum(axis=1) - 2 * one @ other.T
    return np.asarray(np.maximum(found, 0.0))


def _matern(squared: Floats) -> Floats:
    """The correlation at distances, of a field that is smooth, but not very: (1 + √3 d) exp(−√3 d)."""
    distances = np.sqrt(3 * squared)
    return np.asarray((1 + distances) * np.exp(-distances))
