"""What is `batched`'s own: matrices that follow each other in memory, groups that are not full, and what it is chosen for."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gemmport as gp
from absences import beyond
from exact import Sizes, check, check_plan
from gemmport import kernels
from gemmport.core.plan import Plan
from gemmport.core.problem import OPERANDS
from gemmport.kernels.batched import ALIGNED_FROM
from gemmport.planning.planner import make_plan
from made_up_devices import DEVICES
from models import HOPPER, model_of
from test_kernels import OPS
from test_planner import NOTHING, SHIPPED, write

best_of_each_backend = pytest.mark.best_of_each_backend

BATCHED = kernels.variant("batched")
GPU = DEVICES["NVIDIA sm_90 under CUDA"]

SIZES = {Sizes(5, 13, 7): 4, Sizes(6, 8, 4): 3, Sizes(5, 3, 7): 3, Sizes(1, 1, 1): 4}
"""Matrices, and products of a group: rows whose runs go on in the next row; rows of whole runs; elements; one element."""

TYPES = ("float64", "complex64", "complex128", "float16", "int8", "bool")
"""Runs of 2, 2, 1, 4, 4 and 4 numbers."""


def whole_plan(backend: gp.Backend, problem: gp.GemmProblem, **params: int) -> Plan:
    """A plan with tiles of the size of the matrices."""
    tiles = {"TSM": problem.m, "TSN": problem.n, "TSK": problem.k, "PRODUCTS": 4}
    return gp.plan(problem, backend.device, kernel="batched", params={**tiles, **params})


def flat(plan: Plan) -> dict[str, int]:
    """Elements that are moved at once of each operand that lies without gaps."""
    defines = dict(plan.launches[0].kernel.defines)
    return {operand: int(defines[f"RUN_{operand}"]) for operand in "ABD" if defines[f"FLAT_{operand}"]}


def check_batches(backend: gp.Backend) -> None:
    """Dense matrices, whole, in groups of which the last is not full, with scalars; each operand lies along k and across."""
    for (sizes, products), ops in zip(SIZES.items(), ("NN", "TT", "NT", "TN"), strict=True):
        problem = gp.GemmProblem.create(
            sizes.m, sizes.n, sizes.k, batch=7, trans_a=ops[0], trans_b=ops[1], alpha=2.0, beta=-1.0
        )
        check_plan(backend, whole_plan(backend, problem, PRODUCTS=products))


@best_of_each_backend
def test_dense_batches_are_exact(backend: gp.Backend) -> None:
    check_batches(backend)


@best_of_each_backend
@pytest.mark.parametrize("ops", OPS)
def test_dense_matrices_are_moved_as_one_row(backend: gp.Backend, ops: str) -> None:
    """In runs, where four products of any size make whole ones, or the matrices do; element by element elsewhere."""
    odd = gp.GemmProblem.create(5, 13, 7, batch=9, trans_a=ops[0], trans_b=ops[1], beta=1.0)
    for products, run in ((4, 4), (2, 1)):
        plan = whole_plan(backend, odd, PRODUCTS=products)
        assert flat(plan) == {"A": run, "B": run, "D": run}
        check_plan(backend, plan)


@best_of_each_backend
@pytest.mark.parametrize("operand", OPERANDS)
@pytest.mark.parametrize("field", ["ld", "batch_stride", "offset"])
def test_gaps_and_offsets_are_kept(backend: gp.Backend, operand: str, field: str) -> None:
    """One operand at a time has longer rows, lies apart, or begins at an odd element."""
    problem = gp.GemmProblem.create(4, 8, 4, batch=7, alpha=2.0, beta=-1.0)
    lies = problem.layout(operand)
    rows = problem.stored_shape(operand)[0]
    moved = {field: getattr(lies, field) + 1}
    if field == "ld":
        moved["batch_stride"] = lies.batch_stride + rows
    problem = replace(problem, **{operand: replace(lies, **moved)})
    plan = whole_plan(backend, problem)
    own = "D" if operand == "c" else operand.upper()
    expected = {"A": 4, "B": 4, "D": 4, own: 1}
    if field != "offset":
        del expected[own]
    assert flat(plan) == expected
    check_plan(backend, plan)


def test_matrices_that_are_as_far_apart_as_dense_ones_may_have_longer_rows() -> None:
    """Neighbours of A overlap then."""
    problem = gp.GemmProblem.create(4, 8, 4, batch=7, a=gp.Layout(ld=5, batch_stride=16))
    plan = gp.plan(problem, GPU, kernel="batched", params={"TSM": 4, "TSN": 8, "TSK": 4})
    assert "A" not in flat(plan)


@best_of_each_backend
@pytest.mark.parametrize("dtype", TYPES)
def test_dense_batches_of_every_type_are_exact(backend: gp.Backend, dtype: str) -> None:
    ops = "CT" if dtype.startswith("complex") else "NT"
    one = dtype == "bool"
    problem = gp.GemmProblem.create(
        5, 6, 7, batch=9, dtype=dtype, trans_a=ops[0], trans_b=ops[1], alpha=1 if one else 2, beta=1 if one else -1
    )
    arithmetic = problem.accumulator.arithmetic
    if arithmetic and arithmetic not in backend.device.computes:
        pytest.skip(beyond(backend.device, f"it does not compute in {arithmetic}"))
    check_plan(backend, whole_plan(backend, problem))


@best_of_each_backend
@pytest.mark.parametrize("batch", [0, 1, 2, 100])
def test_batches_of_any_length_are_exact(backend: gp.Backend, batch: int) -> None:
    """As it is suggested: fewer than a group, none, and several groups."""
    check(backend, gp.GemmProblem.create(7, 3, 5, batch=batch, beta=1.0), "batched")


@best_of_each_backend
def test_a_matrix_that_is_not_read_may_be_anything(backend: gp.Backend) -> None:
    """With alpha = 0, though tiles are of the size of A and B; and without terms."""
    for alpha, k in ((0.0, 7), (2.0, 0)):
        problem = gp.GemmProblem.create(5, 13, k, batch=7, alpha=alpha, beta=2.0)
        check_plan(backend, whole_plan(backend, problem, TSK=7))


@best_of_each_backend
def test_one_matrix_may_be_multiplied_by_many(backend: gp.Backend) -> None:
    plan = whole_plan(backend, gp.GemmProblem.create(5, 13, 7, batch=7, a=gp.Layout(ld=7, batch_stride=0)))
    assert "A" not in flat(plan)
    check_plan(backend, plan)


@best_of_each_backend
def test_batches_are_updated_in_place(backend: gp.Backend) -> None:
    problem = gp.GemmProblem.create(5, 13, 7, batch=7, beta=0.5)
    check_plan(backend, whole_plan(backend, problem), in_place=True)


@best_of_each_backend
def test_arrays_that_are_views_are_multiplied(backend: gp.Backend) -> None:
    """Every other matrix of a batch, and columns that begin at an odd element."""
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-3, 4, (20, 6, 9)).astype(np.float32) for _ in range(2))
    got = gp.gemm(
        backend.asarray(a)[::2, :, 1:8], backend.asarray(b)[1::2, :, 2:9], trans_b="T", kernel="batched", beta=0.0
    )
    assert np.array_equal(got.get(), a[::2, :, 1:8] @ b[1::2, :, 2:9].transpose(0, 2, 1))


OWN = {name: int(value) for name, value in HOPPER.fitted["batched"].items()}
sizes = st.integers(1, 2 * OWN["most_extent"])


@settings(max_examples=200)
@given(
    m=sizes,
    n=sizes,
    k=st.one_of(sizes, st.integers(0, 2000)),
    batch=st.integers(1, 100_000),
    dtype=st.sampled_from(("float32", *TYPES)),
    ops=st.sampled_from(OPS),
    device=st.sampled_from([device for device in DEVICES.values() if device.type == "gpu"]),
)
def test_what_is_suggested_fits_and_what_is_for_it_is_whole(
    m: int, n: int, k: int, batch: int, dtype: str, ops: str, device: gp.DeviceInfo
) -> None:
    problem = gp.GemmProblem.create(m, n, k, batch=batch, dtype=dtype, trans_a=ops[0], trans_b=ops[1])
    suggested = BATCHED.suggested(problem, device, model_of(device))
    full = BATCHED.complete(suggested)
    items, products = BATCHED.work_group(full)[0], int(full["PRODUCTS"])
    if suggested:
        assert items <= min(device.max_work_group, device.max_work_item_sizes[0], OWN["most_items"])
        assert BATCHED.local_bytes(full, problem) <= min(device.local_memory, OWN["most_bytes"])
        assert products <= ALIGNED_FROM or products * device.compute_units <= batch
        assert BATCHED.product(problem, full).groups[0] == -(-batch // products)
    if BATCHED.declined(problem, device, model_of(device)) is None:
        assert max(m, n, k) <= OWN["most_extent"]
        assert batch >= OWN["least_per_unit"] * device.compute_units
        assert m * k + k * n + m * n <= OWN["most_numbers"]
        assert BATCHED.tile(full) == (m, n, max(k, 1))
        assert products >= ALIGNED_FROM


@pytest.mark.parametrize(
    ("m", "n", "k", "batch", "dtype", "reason"),
    [
        (5, 13, 5, 30_000, "float32", ""),
        (5, 13, 5, 684, "float32", ""),
        (16, 16, 16, 684, "float32", ""),
        (16, 16, 16, 684, "float64", ""),
        (16, 16, 16, 684, "complex128", ""),
        (
            5,
            13,
            5,
            683,
            "float32",
            "684 products or more, 6 for each compute unit, of at most 32 rows, columns and terms, and these are 683 of 5 × 13",
        ),
        (33, 5, 5, 30_000, "float32", "and these are 30000 of 33 × 5 × 5$"),
        (5, 33, 5, 30_000, "float32", "and these are 30000 of 5 × 33 × 5$"),
        (5, 5, 33, 30_000, "float32", "and these are 30000 of 5 × 5 × 33$"),
        (23, 23, 23, 30_000, "float32", "at most 768 numbers in A, B and D, and those of 23 × 23 × 23 have 1,587$"),
        (16, 16, 17, 30_000, "float32", "and those of 16 × 16 × 17 have 800$"),
        (13, 17, 19, 30_000, "float64", "and those of 13 × 17 × 19 have 791$"),
    ],
)
def test_it_is_chosen_for_batches_of_small_products_and_computes_anything_by_name(
    m: int, n: int, k: int, batch: int, dtype: str, reason: str, tmp_path: Path
) -> None:
    """An entry may list it first for all products; what it declines, the next kernel takes."""
    problem = gp.GemmProblem.create(m, n, k, batch=batch, dtype=dtype)
    told = BATCHED.declined(problem, GPU, HOPPER)
    assert (told is None) == (not reason)
    assert re.search(reason, told or "")
    first = write(tmp_path / "mine.yaml", "batched", {})
    assert (make_plan(problem, GPU, first).variant == "batched") == (not reason)
    assert make_plan(problem, GPU, NOTHING, kernel="batched").variant == "batched"


@pytest.mark.parametrize(
    ("m", "n", "k", "batch", "expected"),
    [
        (5, 13, 5, 30_000, "batched"),
        (4, 4, 4, 30_000, "batched"),
        (12, 1, 12, 30_000, "batched"),
        (23, 23, 23, 30_000, "simt"),
        (5, 13, 5, 3, "simt"),
        (64, 1, 64, 30_000, "gemv"),
        (4, 4096, 512, 30_000, "gemv"),
        (12, 1, 12, 3, "gemv"),
    ],
)
def test_nvidias_gpus_take_it_for_batches_alone(m: int, n: int, k: int, batch: int, expected: str) -> None:
    """Though a product of a batch may be a matrix and a few vectors; larger ones are `gemv`'s, as they are without a batch."""
    for name, device in DEVICES.items():
        if device.platform == "nvidia":
            for dtype in ("float32", "float64"):
                wanted = gp.GemmProblem.create(m, n, k, batch=batch, dtype=dtype)
                assert make_plan(wanted, device, SHIPPED).variant == expected, (name, dtype)


def test_a_group_is_not_so_large_that_units_have_none() -> None:
    groups = {
        batch: BATCHED.suggested(gp.GemmProblem.create(8, 8, 8, batch=batch), GPU, HOPPER)["PRODUCTS"]
        for batch in (300, 2000, 65_536)
    }
    assert groups == {300: 4, 2000: 16, 65_536: 32}


@pytest.mark.parametrize(
    ("params", "told"),
    [
        (
            {"TSM": 128, "TSN": 128, "PRODUCTS": 4},
            "PRODUCTS = 4: the rule is ⌈TSM / WPTM⌉ · ⌈TSN / WPTN⌉ · PRODUCTS ≤ 1024",
        ),
        ({"WPTM": 2}, "WPTM = 2 is not allowed: it is one of 4, 8"),
        ({"TSM": 64, "TSN": 64, "TSK": 64}, "bytes of local memory per group; .* allows 49,152"),
    ],
)
def test_parameters_beyond_a_limit_are_refused_with_the_numbers(params: dict[str, int], told: str) -> None:
    with pytest.raises(gp.ParameterError, match=told):
        gp.plan(gp.GemmProblem.create(9, 9, 9, batch=9), GPU, kernel="batched", params=params)
