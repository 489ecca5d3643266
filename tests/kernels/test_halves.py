"""float16 and bfloat16 on CPUs: runs are converted at once, every number right, and nothing is rounded between blocks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import gemmport as gp
from absences import beyond
from exact import Sizes, check_plan, problem_of, run_plan
from gemmport import kernels
from gemmport.contracts.kernel import half_defines
from gemmport.core.dtypes import as_dtype
from gemmport.core.plan import Plan
from gemmport.core.problem import Operand
from gemmport.planning.lookup import load_configuration
from gemmport.planning.planner import make_plan
from made_up_devices import DEVICES

HALVES = ("float16", "bfloat16")
COUNT = 2**16
KERNELS = ("packed", "direct", "gemv")

BLOCKS: dict[str, int | str] = {"MR": 4, "NR": 1, "VECTOR": 32, "MC": 8, "NC": 16, "KC": 16}
"""Sums of 40 terms are made in three blocks."""

each_half = pytest.mark.every_pair("dtype", HALVES)
each_kernel = pytest.mark.every_pair("kernel", KERNELS)


def plan(backend: gp.Backend, kernel: str, problem: gp.GemmProblem, **params: int | str) -> Plan:
    """That of a kernel which a device can run; on CPUs, with the vectors that the planner takes."""
    if reason := kernels.variant(kernel).unsupported(problem, backend.device):
        pytest.skip(beyond(backend.device, reason))
    if kernel == "direct" and not params:
        params = {"THREADSX": 4, "THREADSY": 4, "RX": 8, "RY": 8, "RK": 8, "WIDTH": 8}
    return gp.plan(problem, backend.device, kernel=kernel, params=params)


def row_of_problem(kernel: str, **rest: Any) -> gp.GemmProblem:
    """A product that is B's first row, in whole tiles of `direct`, whose edges are long in compiling."""
    m, k = (32, 8) if kernel == "direct" else (1, 1)
    return gp.GemmProblem.create(m, COUNT, k, **rest)


def computed(
    backend: gp.Backend, made: Plan, row: npt.NDArray[Any], c: npt.NDArray[Any] | None = None
) -> npt.NDArray[Any]:
    """The first row of D, where that is the first row of B, or of C, whose others are zero."""
    problem = made.problem
    a = np.zeros((1, problem.m, problem.k), row.dtype)
    a[..., 0] = 1
    b = np.zeros((1, problem.k, COUNT), row.dtype)
    b[:, 0] = row
    values = {"a": a, "b": b}
    if c is not None:
        values["c"] = np.zeros((1, problem.m, COUNT), c.dtype)
        values["c"][:, 0] = c
    operands: dict[Operand, npt.NDArray[Any]] = {
        operand: values[operand] for operand in ("a", "b", "c") if operand in values
    }
    return run_plan(backend, made, operands)[0, 0]


def patterns(dtype: str) -> npt.NDArray[Any]:
    """All that 16 bits may be."""
    return np.arange(COUNT, dtype=np.uint16).view(as_dtype(dtype).numpy)


@each_kernel
@each_half
def test_every_half_becomes_its_float(backend: gp.Backend, dtype: str, kernel: str) -> None:
    """In runs, as B and as C; subnormal numbers, infinities and NaN among them."""
    row = patterns(dtype)
    wanted = row.astype(np.float32)
    read = plan(backend, kernel, row_of_problem(kernel, dtype=dtype, output="float32"))
    np.testing.assert_array_equal(computed(backend, read, row), wanted)
    added = plan(backend, kernel, row_of_problem(kernel, dtype=dtype, beta=1.0))
    got = computed(backend, added, np.zeros_like(row), row)
    np.testing.assert_array_equal(got.astype(np.float32), wanted)


@each_kernel
@each_half
def test_floats_are_rounded_to_nearest_even(backend: gp.Backend, dtype: str, kernel: str) -> None:
    """What lies between two halves, at a tie and beside it; what overflows; any bits."""
    halves = patterns(dtype)[: COUNT // 4].astype(np.float64)
    with np.errstate(invalid="ignore"):
        ties = ((halves + np.roll(halves, -1)) / 2).astype(np.float32)
    rng = np.random.default_rng(0)
    anything = rng.integers(0, 2**32, COUNT // 4, np.uint32).view(np.float32)
    row = np.concatenate([ties, -np.nextafter(ties, np.float32(0)), np.nextafter(ties, np.float32(np.inf)), anything])
    made = plan(backend, kernel, row_of_problem(kernel, dtype="float32", output=dtype))
    got = computed(backend, made, row)
    with np.errstate(over="ignore", invalid="ignore"):
        wanted = row.astype(as_dtype(dtype).numpy)
    np.testing.assert_array_equal(got.astype(np.float32), wanted.astype(np.float32))


@pytest.mark.parametrize("sizes", [Sizes(9, 19, 40), Sizes(40, 33, 41), Sizes(5, 70, 48)], ids=str)
@each_half
def test_sums_of_blocks_are_kept_as_floats(backend: gp.Backend, dtype: str, sizes: Sizes) -> None:
    for ops in ("NN", "TT"):
        problem = problem_of(sizes, ops, dtype, batch=2, alpha=2.0, beta=-1.0)
        made = plan(backend, "packed", problem, **BLOCKS)
        assert "sums" in {scratch.name for scratch in made.scratch}
        check_plan(backend, made)


@each_half
def test_nothing_is_rounded_between_blocks(backend: gp.Backend, dtype: str) -> None:
    """4097 has 13 bits, more than either half; less 4096 of the next block, it is 1, and a half of 4097 is 4096."""
    a, b = np.zeros((1, 9, 40), as_dtype(dtype).numpy), np.ones((1, 40, 19), as_dtype(dtype).numpy)
    a[..., 0], a[..., 1], a[..., 20] = 4096, 1, -4096
    made = plan(backend, "packed", gp.GemmProblem.create(9, 19, 40, dtype=dtype), **BLOCKS)
    assert (run_plan(backend, made, {"a": a, "b": b}).astype(np.float32) == 1).all()


def test_sums_that_the_device_has_no_room_for_are_made_at_once() -> None:
    device = DEVICES["CPU under PoCL"]
    problem = gp.GemmProblem.create(512, 512, 64, dtype="float16")
    configuration = load_configuration(())

    def scratch(most: int) -> set[str]:
        made = make_plan(problem, replace(device, max_allocation=most), configuration, kernel="packed", params=BLOCKS)
        return {scratch.name for scratch in made.scratch}

    assert scratch(512 * 512 * 4) == {"a_panels", "b_panels", "sums"}
    assert scratch(512 * 512 * 4 - 1) == {"a_panels", "b_panels"}


def test_what_keeps_its_sums_in_d_needs_no_other_memory() -> None:
    problem = gp.GemmProblem.create(512, 512, 64, dtype="float16", output="float32")
    made = make_plan(problem, DEVICES["CPU under PoCL"], load_configuration(()), kernel="packed", params=BLOCKS)
    assert {scratch.name for scratch in made.scratch} == {"a_panels", "b_panels"}


@pytest.mark.parametrize(
    ("dtype", "output", "accumulator", "width", "told"),
    [
        ("float16", None, None, 8, {"LOADS_HALVES", "STORES_HALVES"}),
        ("bfloat16", "float32", None, 8, {"LOADS_HALVES"}),
        ("float32", "bfloat16", None, 8, {"STORES_HALVES"}),
        ("float16", None, None, 1, set()),
        ("float16", None, "float64", 8, set()),
        ("float32", None, None, 8, set()),
    ],
)
def test_vectors_are_asked_for_where_halves_meet_floats(
    dtype: str, output: str | None, accumulator: str | None, width: int, told: set[str]
) -> None:
    problem = gp.GemmProblem.create(8, 8, 8, dtype=dtype, output=output, accumulator=accumulator)
    assert half_defines(problem, width).keys() == told


@pytest.mark.parametrize(
    ("m", "n", "k", "kernel"),
    [(64, 64, 64, "direct"), (64, 64, 63, "packed"), (96, 96, 96, "packed"), (4096, 1, 4096, "gemv")],
)
@each_half
def test_what_is_chosen_for_halves_on_cpus(dtype: str, m: int, n: int, k: int, kernel: str) -> None:
    device = replace(DEVICES["CPU under PoCL"], platform="pocl", platform_version="3.1")
    assert make_plan(gp.GemmProblem.create(m, n, k, dtype=dtype), device, load_configuration(())).variant == kernel
