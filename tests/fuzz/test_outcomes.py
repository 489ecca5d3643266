"""What may come of a random problem on a device, by gemmport's rules as the fuzz campaign works them out for itself."""

from __future__ import annotations

from dataclasses import replace

import gemmport as gp
from gemmport import kernels
from gemmport.fuzz.case import _arrangements, outcomes_of_call, refusal
from gemmport.fuzz.specialization import Specialization, Types
from made_up_devices import DEVICES


def test_a_plan_is_refused_where_the_rules_say() -> None:
    poor, small = DEVICES["wavefronts of 64 without float64"], DEVICES["16 KB of local memory"]
    single = gp.GemmProblem.create(3, 3, 3)
    assert refusal(gp.GemmProblem.create(3, 3, 3, dtype="float64"), poor) is gp.DtypeError
    assert refusal(single, poor) is None
    assert refusal(single, replace(poor, max_terms=2)) is gp.UnsupportedError
    assert refusal(single, replace(poor, max_terms=3)) is None
    assert refusal(single, poor, "naive", {"TS": 17}) is gp.ParameterError
    assert refusal(single, poor, "naive", {"TS": 16}) is None
    for pad, expected in ((0, None), (1, gp.ParameterError)):
        tile = {"TSM": 64, "TSN": 64, "TSK": 32, "WPTM": 4, "WPTN": 4, "ARRANGE": "strided", "PAD": pad}
        assert refusal(single, small, "register_tiled", tile) is expected
    for use_ldg, expected in ((0, None), (1, gp.ParameterError)):
        values = {**kernels.variant("shuffle").complete({}), "USE_LDG": use_ldg}
        assert refusal(single, DEVICES["Intel GPU"], "shuffle", values) is expected
        assert refusal(single, small, "shuffle", values) is gp.UnsupportedError


def test_limits_may_be_met_exactly() -> None:
    """`tiled` has groups of TS × TS work-items, and two tiles with a column more in local memory."""
    problem, params = gp.GemmProblem.create(9, 9, 9), {"TS": 8, "PAD": 1}
    least = replace(
        DEVICES["16 KB of local memory"], max_work_group=64, max_work_item_sizes=(8, 8, 1), local_memory=2 * 8 * 9 * 4
    )
    assert refusal(problem, least, "tiled", params) is None
    for less in (
        replace(least, max_work_group=63),
        replace(least, max_work_item_sizes=(7, 8, 1)),
        replace(least, max_work_item_sizes=(8, 7, 1)),
        replace(least, local_memory=2 * 8 * 9 * 4 - 1),
    ):
        assert refusal(problem, less, "tiled", params) is gp.ParameterError
        assert refusal(replace(problem, m=0), less, "tiled", params) is None


def test_a_call_may_be_refused_where_some_way_to_plan_it_does_not_fit() -> None:
    """gemv keeps more rows where they lie across memory, and reads single elements where they are unaligned."""
    gpu = replace(DEVICES["NVIDIA sm_70"], registers=65536)
    wide = gp.GemmProblem.create(48, 16, 64, batch=2, trans_b="T", dtype="uint32", output="complex64")
    column = gp.GemmProblem.create(5, 1, 15, trans_a="T", dtype="uint32", output="complex64")
    row = gp.GemmProblem.create(1, 5, 15, dtype="uint32", output="complex64")
    values = {**kernels.variant("gemv").complete({}), "ITEMS": 512, "SIDE": 64, "RUN": 32, "RUNS": 8, "UNROLL": 4}
    types = Types("uint32", "complex64", "complex64")
    for problem, kernel, params, device, expected in (
        (wide, "gemv", values, gpu, {None, gp.ParameterError}),
        (row, "gemv", values, gpu, {None, gp.ParameterError}),
        (column, "gemv", values, gpu, {None, gp.ParameterError}),
        (wide, "gemv", values, replace(gpu, registers=10**6, local_memory=2**20), {None}),
        (wide, "gemv", values, replace(gpu, registers=10**4), {gp.ParameterError}),
        (wide, "gemv", {}, replace(gpu, computes=()), {gp.DtypeError}),
        (wide, "naive", {"TS": 16}, gpu, {None}),
        (wide, "naive", {"TS": 64}, gpu, {gp.ParameterError}),
    ):
        specialization = Specialization(kernel, tuple(params.items()), types, ("N", "T"), whole=False)
        assert outcomes_of_call(problem, device, specialization) == expected, (problem, kernel, params)


def test_without_parameters_only_types_and_lengths_refuse_a_call() -> None:
    chosen = Specialization("simt", (), Types("float32", "float32", "float32"), ("N", "N"), whole=False)
    problem, device = gp.GemmProblem.create(3, 3, 3), DEVICES["16 KB of local memory"]
    assert outcomes_of_call(problem, device, chosen) == {None}
    assert outcomes_of_call(problem, replace(device, max_terms=2), chosen) == {gp.UnsupportedError}


def test_a_call_may_be_planned_transposed_or_not_aligned_or_not() -> None:
    problem = gp.GemmProblem.create(3, 5, 200, trans_b="C", dtype="complex64", alpha=2, beta=3)
    ways = list(_arrangements(problem))
    lies = [(0, 0), (1, 0), (0, 1)]  # aligned to 128 elements, offset
    assert [(way.trans_a, way.trans_b, way.a.ld, way.b.ld, way.a.offset, way.b.offset) for way in ways] == [
        (op_of_a, op_of_b, wide_a if aligned else a, wide_b if aligned else b, offset, offset)
        for op_of_a, a, wide_a in (("N", 200, 256), ("T", 3, 128))
        for op_of_b, b, wide_b in (("C", 200, 256), ("R", 5, 128))
        for aligned, offset in lies
    ]
    as_drawn = {"trans_a": problem.trans_a, "trans_b": problem.trans_b, "a": problem.a, "b": problem.b}
    assert all(replace(way, **as_drawn) == problem for way in ways)  # type: ignore[arg-type]
    nothing = next(iter(_arrangements(gp.GemmProblem.create(0, 1, 0))))
    assert (nothing.a.ld, nothing.b.ld) == (1, 1)
