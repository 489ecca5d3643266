"""The problem of a seed and an index: first those that meet every pair of what problems may be, then any."""

from __future__ import annotations

import numpy as np

from gemmport.fuzz.arrays import draw_gemm_case, draw_matmul_case
from gemmport.fuzz.case import Case
from gemmport.fuzz.first import first_problem, first_rows
from gemmport.fuzz.plans import draw_plan_case
from gemmport.fuzz.specialization import BLOCK, Specialization, pool

_EVERY = 10
"""Of the first problems, every tenth goes through a public function."""


def first_count(seed: int, kernels: tuple[str, ...], dtypes: tuple[str, ...] = ()) -> int:
    """How many first problems a seed has, each of which is compiled for itself."""
    return len(first_rows(seed, kernels, dtypes)) * _EVERY // (_EVERY - 1)


def draw(seed: int, index: int, kernels: tuple[str, ...], dtypes: tuple[str, ...] = ()) -> Case:
    """The problem; the same for the same arguments, wherever it is drawn.

    Args:
        kernels: names of those to draw from; "auto" may be one. dtypes: names of those of A and B; none for all.
    """
    rng = np.random.default_rng([seed, index])
    if index < BLOCK and index < first_count(seed, kernels, dtypes):
        number = index - index // _EVERY
        is_call = index % _EVERY == _EVERY - 1
        specialization, levels = first_problem(seed, number - is_call, kernels, dtypes)
        return _draw_call(rng, rng.random(), specialization) if is_call else draw_plan_case(rng, specialization, levels)
    shared = pool(seed, index // BLOCK, kernels, dtypes)
    chance = rng.random()
    if chance < 0.7:
        return draw_plan_case(rng, shared[int(rng.integers(len(shared)))])
    return _draw_call(rng, (chance - 0.7) / 0.3, shared[0])


def _draw_call(rng: np.random.Generator, chance: float, specialization: Specialization) -> Case:
    if chance < 0.4:
        return draw_gemm_case(rng, specialization, on_device=False)
    if chance < 0.73:
        return draw_matmul_case(rng, specialization)
    return draw_gemm_case(rng, specialization, on_device=True)
