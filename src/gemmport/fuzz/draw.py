"""The problem of a seed and an index."""

from __future__ import annotations

import numpy as np

from gemmport.fuzz.arrays import draw_gemm_case, draw_matmul_case
from gemmport.fuzz.case import Case
from gemmport.fuzz.plans import draw_plan_case
from gemmport.fuzz.specialization import BLOCK, pool


def draw(seed: int, index: int, kernels: tuple[str, ...]) -> Case:
    """The problem; the same for the same arguments, wherever it is drawn.

    Args:
        kernels: names of those to draw from; "auto" may be one.
    """
    rng = np.random.default_rng([seed, index])
    shared = pool(seed, index // BLOCK, kernels)
    chance = rng.random()
    if chance < 0.7:
        return draw_plan_case(rng, shared[int(rng.integers(len(shared)))])
    if chance < 0.82:
        return draw_gemm_case(rng, shared[0], on_device=False)
    if chance < 0.92:
        return draw_matmul_case(rng, shared[0])
    return draw_gemm_case(rng, shared[0], on_device=True)
