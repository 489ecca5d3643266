"""How an H100's matrix unit adds up TF32, to the last bit, and the bound that products by it are held to."""

from __future__ import annotations

from fractions import Fraction
from math import frexp

import numpy as np
import pytest

from gemmport.checking import verification as verify
from gemmport.checking.reference import as_multiplied
from gemmport.contracts.kernel import Cut
from gemmport.contracts.nvidia import cut_of_float32_sums
from gemmport.core.device import DeviceInfo
from gemmport.core.problem import GemmProblem

KEPT = 25
"""Binary places of the terms of a sum, below the largest of them (P. Xie et al., "MMA-Sim", arXiv 2511.10909, 2025)."""


def cut(number: Fraction, place: int) -> Fraction:
    """What is left of a number above 2^place."""
    scaled = number / Fraction(2) ** place
    return int(scaled) * Fraction(2) ** place  # int() goes to zero


def place_of(number: Fraction) -> int:
    """That of its first digit."""
    return frexp(float(number))[1] - 1


def added(total: Fraction, left: np.ndarray, right: np.ndarray) -> Fraction:
    """A sum and some products, as the unit adds them up: cut where the largest one's 25th place is, the sum to float32."""
    pairs = [(Fraction(float(x)), Fraction(float(y))) for x, y in zip(left, right, strict=True) if x and y]
    places = [place_of(x) + place_of(y) for x, y in pairs] + ([place_of(total)] if total else [])
    lowest = max(places) - KEPT
    found = sum((cut(each, lowest) for each in [total, *(x * y for x, y in pairs)]), Fraction(0))
    return cut(found, place_of(found) - 23) if found else found


@pytest.mark.parametrize(
    ("sizes", "at", "on_an_h100"),
    [((512, 768, 1024), (465, 174), -133.68844604492188), ((517, 389, 1043), (362, 226), 128.0841522216797)],
)
def test_an_h100_adds_up_eight_products_of_tf32_and_cuts(
    sizes: tuple[int, int, int], at: tuple[int, int], on_an_h100: float
) -> None:
    """Two elements of D, as `mma` and `wgmma` gave them, each of some 2 · 10⁵ the farthest from its exact value."""
    problem = GemmProblem.create(*sizes, precision="tf32", trans_a="T", beta=-1.0)
    operands = verify.random_operands(problem, 0)
    _, multiplied = as_multiplied(problem, operands)
    left, right = multiplied["a"][0, :, at[0]], multiplied["b"][0, :, at[1]]
    c = np.float32(operands["c"][0][at])
    total = Fraction(0)
    for p in range(0, problem.k, 8):
        total = added(total, left[p : p + 8], right[p : p + 8])
    assert np.float32(float(total)) - c == on_an_h100
    exactly = float(sum(Fraction(float(x)) * Fraction(float(y)) for x, y in zip(left, right, strict=True))) - float(c)
    norms = np.linalg.norm(left.astype(float)) * np.linalg.norm(right.astype(float))
    h100 = DeviceInfo("cuda", "NVIDIA H100", "nvidia", vendor="nvidia", architecture="sm_90")
    allowed = {}
    for unit in (None, cut_of_float32_sums(problem, h100)):
        rows, columns = np.array([[norms]]), np.ones((1, 1))
        bound = verify.element_bound(
            problem, rows, columns, np.full((1, 1, 1), exactly), np.full((1, 1, 1), c), cut=unit
        )
        allowed[unit is None] = bound.item()
    assert allowed[False] / 3 < abs(on_an_h100 - exactly) < allowed[False]
    assert abs(on_an_h100 - exactly) > allowed[True]


@pytest.mark.parametrize(
    ("architecture", "dtype", "precision", "terms"),
    [
        ("sm_80", "float16", "full", 8), ("sm_89", "bfloat16", "full", 8), ("sm_80", "float32", "tf32", 4),
        ("sm_90", "float16", "full", 16), ("sm_90", "float32", "tf32", 8), ("sm_90", "float32", "bfloat16", 16),
        ("sm_90", "float32", "full", None), ("sm_90", "int8", "full", None), ("sm_90", "float8_e5m2", "full", None),
        ("gfx942", "float16", "full", None),
    ],
)  # fmt: skip
def test_the_unit_of_a_device_cuts_after_so_many_terms(
    architecture: str, dtype: str, precision: str, terms: int | None
) -> None:
    vendor = "nvidia" if architecture.startswith("sm") else "amd"
    device = DeviceInfo("opencl", "GPU", vendor, vendor=vendor, architecture=architecture)
    output = "int32" if dtype == "int8" else "float32"
    found = cut_of_float32_sums(GemmProblem.create(2, 3, 4, dtype=dtype, output=output, precision=precision), device)
    assert (found.terms if found else None) == terms
    assert found is None or (found.digits, found.promoted) == (24, False)


def test_of_kernels_that_may_have_computed_the_coarsest_cut_counts() -> None:
    h100 = DeviceInfo("cuda", "NVIDIA H100", "nvidia", vendor="nvidia", architecture="sm_90", type="gpu")
    cpu = DeviceInfo("opencl", "CPU", "intel", vendor="intel", type="cpu")
    halves = GemmProblem.create(2, 3, 4096, dtype="float16", output="float32")
    bytes_ = GemmProblem.create(2, 3, 4096, dtype="float8_e4m3fn", output="float32")
    assert verify.cut_on(halves, cpu, h100) == Cut(24, 16, promoted=False)
    assert verify.cut_on(bytes_, h100) == Cut(14, 128)
    assert verify.cut_on(halves, cpu) is None
    assert verify.cut_on(GemmProblem.create(2, 3, 4096), h100) is None
