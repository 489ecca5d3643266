"""Problems of every kernel: sizes, types, ops, scalars, layouts and parameters at random, run in poisoned memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np

from gemmport import kernels
from gemmport.api.plans import plan
from gemmport.backends.base import Backend
from gemmport.checking.guarded_run import try_plan
from gemmport.checking.verification import cut_of
from gemmport.core.device import DeviceInfo
from gemmport.core.dtypes import DTYPES, INPUTS
from gemmport.core.precision import FORMATS, FULL, default_for
from gemmport.core.problem import OPERANDS, GemmProblem, Layout, Operand, transposes
from gemmport.fuzz.case import (
    Data,
    Factor,
    Facts,
    Outcomes,
    draw_data,
    draw_factor,
    fault_of,
    judgeable,
    operands_of,
    refusal,
    scalar_of,
    shortened,
)
from gemmport.fuzz.sizes import BATCH_SHARES, Batch, Extents, draw_batch, draw_extent, draw_sizes, is_cheap
from gemmport.fuzz.specialization import Specialization
from gemmport.planning.planner import AUTO

LayoutKind = Literal["dense", "gaps", "offsets", "gaps and offsets", "shared", "side by side", "mixed"]
"""How operands lie: gaps between rows and between matrices; offsets; one matrix for the whole batch; matrices side by side;
each in another way."""

LAYOUTS: tuple[LayoutKind, ...] = get_args(LayoutKind)

_WITH_GAPS = ("gaps", "gaps and offsets", "shared")
_WITH_OFFSETS = ("offsets", "gaps and offsets", "side by side")


@dataclass(frozen=True)
class Levels:
    """What a problem is like: the levels of the factors of a test design.

    Attributes:
        in_place: D is the memory of C.
    """

    extents: Extents
    batch: Batch
    layout: LayoutKind
    in_place: bool
    alpha: Factor
    beta: Factor
    data: Data

    @property
    def dear(self) -> bool:
        """Whether the tile of a kernel decides if it is computed in milliseconds."""
        return self.batch == "many" or "long" in self.extents


@dataclass(frozen=True)
class PlanCase:
    """A problem with layouts of its own, on a kernel with parameters of its own."""

    problem: GemmProblem
    specialization: Specialization
    in_place: bool
    data: Data
    seed: int

    @property
    def facts(self) -> Facts:
        problem = self.problem
        layouts = {name: problem.layout(name) for name in OPERANDS}
        told = {
            "no elements": problem.empty,
            "no terms": problem.k == 0,
            "vectors": 1 in (problem.m, problem.n),
            "long": max(problem.m, problem.n) > 2**16 or problem.k > 2**15,
            "whole tiles": self.specialization.whole,
            "batch": problem.batch > 1,
            "batch beyond 2¹⁶": problem.batch > 2**16,
            "shared operand": problem.batch > 1 and any(layout.batch_stride == 0 for layout in layouts.values()),
            "gaps": any(layouts[name].ld > max(problem.stored_shape(name)[1], 1) for name in layouts),
            "offsets": any(layout.offset for layout in layouts.values()),
            "in place": self.in_place,
            "alpha = 0": problem.alpha == 0,
            "beta ≠ 0": problem.beta != 0,
            f"rounded to {problem.precision}": problem.precision != FULL,
            self.data: True,
        }
        specialization = self.specialization
        features = tuple(name for name, is_so in told.items() if is_so)
        return Facts("plan", specialization.kernel, str(specialization.types), problem.ops, features)

    def outcomes(self, device: DeviceInfo) -> Outcomes:
        return frozenset({refusal(self.problem, device, self.specialization.kernel, dict(self.specialization.params))})

    def judge(self, backend: Backend) -> str:
        chosen = self.specialization
        made = plan(self.problem, backend.device, kernel=chosen.kernel, params=dict(chosen.params))
        operands = operands_of(self.problem, self.data, self.seed)
        for name, values in operands.items():
            if self.problem.layout(name).batch_stride == 0:
                operands[name] = np.broadcast_to(values[:1], values.shape)
        trial = try_plan(backend, made, operands, in_place=self.in_place)
        return trial.stray or fault_of(self.problem, operands, self.data, trial.d, cut_of(made))

    def __str__(self) -> str:
        problem = self.problem
        lies = ", ".join(
            f"{name}: ld {layout.ld} stride {layout.batch_stride} offset {layout.offset}"
            for name, layout in ((name, problem.layout(name)) for name in OPERANDS)
        )
        return (
            f"{self.specialization} on {problem}, alpha = {problem.alpha}, beta = {problem.beta}, "
            f"{self.data}{', in place' if self.in_place else ''}; {lies}"
        )


def draw_levels(rng: np.random.Generator, specialization: Specialization) -> Levels:
    """Any problem of a specialization, dear ones seldom."""
    batch = get_args(Batch)[int(rng.choice(len(BATCH_SHARES), p=list(BATCH_SHARES.values())))]
    extents: Extents = (draw_extent(rng), draw_extent(rng), draw_extent(rng))
    if specialization.whole:
        extents = ("whole", "whole", "whole")
    layout = LAYOUTS[int(rng.integers(len(LAYOUTS)))]
    return Levels(
        extents, batch, layout, bool(rng.random() < 0.2), draw_factor(rng, none=0.08), draw_factor(rng, none=0.35),
        draw_data(rng, INPUTS[specialization.types.dtype]),
    )  # fmt: skip


def draw_plan_case(rng: np.random.Generator, specialization: Specialization, levels: Levels | None = None) -> PlanCase:
    """A problem of a specialization.

    Args:
        levels: what it is like; drawn, where they are not given, and then never dear.
    """
    types, ops = specialization.types, specialization.ops
    tile = tile_of(specialization)
    asked = levels or draw_levels(rng, specialization)
    batch = draw_batch(rng, asked.batch)
    m, n, k = draw_sizes(rng, asked.extents, tile, batch=batch)
    if asked.dear and levels is None and not is_cheap(tile, m, n, k, batch):
        batch = draw_batch(rng, "one")
        m, n, k = draw_sizes(rng, ("any", "any", "any"), tile, batch=batch)
    k = shortened(k, types.accumulator)
    kind = DTYPES[types.accumulator].kind
    shapes: dict[Operand, tuple[int, int]] = {
        "a": (k, m) if transposes(ops[0]) else (m, k),
        "b": (n, k) if transposes(ops[1]) else (k, n),
        "c": (m, n),
        "d": (m, n),
    }
    layouts = _draw_layouts(rng, asked.layout, shapes, batch)
    if asked.in_place:
        layouts["c"] = layouts["d"]
    problem = GemmProblem.create(
        m, n, k, batch=batch, dtype=types.dtype, output=types.output, accumulator=types.accumulator,
        trans_a=ops[0], trans_b=ops[1], alpha=scalar_of(rng, asked.alpha, kind), beta=scalar_of(rng, asked.beta, kind),
        **{str(name): layout for name, layout in layouts.items()},
    )  # fmt: skip
    data, seed = judgeable(asked.data, problem), int(rng.integers(2**31))
    problem = replace(problem, precision=_precision_of(problem, seed))
    return PlanCase(problem, specialization, asked.in_place, data, seed)


def tile_of(specialization: Specialization) -> tuple[int, int, int]:
    """The tile that edges are of; one element where the configuration chooses the kernel."""
    if specialization.kernel == AUTO:
        return (1, 1, 1)
    variant = kernels.variant(specialization.kernel)
    return variant.tile(variant.complete(dict(specialization.params)))


def _draw_layouts(
    rng: np.random.Generator, asked: LayoutKind, shapes: Mapping[Operand, tuple[int, int]], batch: int
) -> dict[Operand, Layout]:
    shared = (("a",), ("b",), ("a", "c"), ("b", "c"))[int(rng.integers(4))]
    layouts = {}
    for name, (rows, columns) in shapes.items():
        which = LAYOUTS[int(rng.integers(len(LAYOUTS) - 1))] if asked == "mixed" else asked
        gap = _one(rng, (1, 3, 4, 9)) if which in _WITH_GAPS else 0
        offset = _one(rng, (1, 4, 13, 32)) if which in _WITH_OFFSETS else 0
        ld = max(columns, 1) + gap
        stride = rows * ld + (_one(rng, (0, 0, 1, 7)) if gap else 0)
        if which == "shared" and name in shared:
            stride = 0
        if which == "side by side" and columns:
            ld, stride = ld + max(batch - 1, 0) * columns, columns
        layouts[name] = Layout(ld, stride, offset)
    return layouts


def _precision_of(problem: GemmProblem, seed: int) -> str:
    """Half of the problems of what may be rounded are, to each format as often. The seed of the numbers decides, so that no
    random number is taken that something else was decided by.
    """
    names = (FULL,) * len(FORMATS) + tuple(FORMATS)
    return default_for(names[seed % len(names)], problem.dtype)


def _one(rng: np.random.Generator, values: Sequence[int]) -> int:
    return values[int(rng.integers(len(values)))]
