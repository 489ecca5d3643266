"""Problems of every kernel: sizes, types, ops, scalars, layouts and parameters at random, run in poisoned memory."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gemmport import kernels
from gemmport.api import plan
from gemmport.backends.base import Backend
from gemmport.device import DeviceInfo
from gemmport.dtypes import DTYPES
from gemmport.errors import GemmportError
from gemmport.fuzz.case import (
    Data,
    Facts,
    draw_data,
    draw_scalar,
    draw_sizes,
    fault_of,
    operands_of,
    refusal,
    shortened,
)
from gemmport.fuzz.specialization import Specialization
from gemmport.planner import AUTO
from gemmport.problem import OPERANDS, GemmProblem, Layout, Operand, transposes
from gemmport.trial import try_plan


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
            "whole tiles": self.specialization.whole,
            "batch": problem.batch > 1,
            "shared operand": problem.batch > 1 and any(layout.batch_stride == 0 for layout in layouts.values()),
            "gaps": any(layouts[name].ld > max(problem.stored_shape(name)[1], 1) for name in layouts),
            "offsets": any(layout.offset for layout in layouts.values()),
            "in place": self.in_place,
            "alpha = 0": problem.alpha == 0,
            "beta ≠ 0": problem.beta != 0,
            self.data: True,
        }
        specialization = self.specialization
        features = tuple(name for name, is_so in told.items() if is_so)
        return Facts("plan", specialization.kernel, str(specialization.types), problem.ops, features)

    def refusal(self, device: DeviceInfo) -> type[GemmportError] | None:
        return refusal(self.problem, device, self.specialization.kernel, dict(self.specialization.params))

    def judge(self, backend: Backend) -> str:
        chosen = self.specialization
        made = plan(self.problem, backend.device, kernel=chosen.kernel, params=dict(chosen.params))
        operands = operands_of(self.problem, self.data, self.seed)
        for name, values in operands.items():
            if self.problem.layout(name).batch_stride == 0:
                operands[name] = np.broadcast_to(values[:1], values.shape)
        trial = try_plan(backend, made, operands, in_place=self.in_place)
        return trial.stray or fault_of(self.problem, operands, self.data, trial.d)

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


def draw_plan_case(rng: np.random.Generator, specialization: Specialization) -> PlanCase:
    """A problem of a specialization."""
    types, ops = specialization.types, specialization.ops
    batch = int(rng.choice((0, 1, 2, 3, 5), p=(0.02, 0.6, 0.18, 0.12, 0.08)))
    tile = (16, 16, 16)
    if specialization.kernel != AUTO:
        variant = kernels.variant(specialization.kernel)
        tile = variant.tile(variant.complete(dict(specialization.params)))
    m, n, k = draw_sizes(rng, tile, whole=specialization.whole, batch=batch)
    k = shortened(k, types.accumulator)
    kind = DTYPES[types.accumulator].kind
    in_place = bool(rng.random() < 0.2)
    shapes: dict[Operand, tuple[int, int]] = {
        "a": (k, m) if transposes(ops[0]) else (m, k),
        "b": (n, k) if transposes(ops[1]) else (k, n),
        "c": (m, n),
        "d": (m, n),
    }
    plain = rng.random() < 0.3
    layouts = {
        name: _dense(shape) if plain else _draw_layout(rng, name, shape, batch) for name, shape in shapes.items()
    }
    if in_place:
        layouts["c"] = layouts["d"]
    problem = GemmProblem.create(
        m, n, k, batch=batch, dtype=types.dtype, output=types.output, accumulator=types.accumulator,
        trans_a=ops[0], trans_b=ops[1], alpha=draw_scalar(rng, kind, none=0.08), beta=draw_scalar(rng, kind, none=0.35),
        **{str(name): layout for name, layout in layouts.items()},
    )  # fmt: skip
    return PlanCase(problem, specialization, in_place, draw_data(rng, problem), int(rng.integers(2**31)))


def _dense(shape: tuple[int, int]) -> Layout:
    return Layout(max(shape[1], 1), shape[0] * shape[1])


def _draw_layout(rng: np.random.Generator, name: Operand, shape: tuple[int, int], batch: int) -> Layout:
    """Gaps between rows and between matrices, an offset; one matrix for the whole batch; or matrices side by side."""
    rows, columns = shape
    ld = max(columns, 1) + int(rng.choice((0, 1, 3, 4, 9)))
    offset = int(rng.choice((0, 0, 1, 4, 13, 32)))
    chance = rng.random()
    if name != "d" and chance < 0.15:
        return Layout(ld, 0, offset)
    if chance > 0.9 and columns:
        return Layout(ld + (batch - 1) * columns if batch else ld, columns, offset)
    return Layout(ld, rows * ld + int(rng.choice((0, 0, 1, 7))), offset)
