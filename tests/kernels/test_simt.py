"""What is `simt`'s own: tiles that groups share along k, the tilings among which the model chooses, and the model."""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gemmport as gp
from absences import CUDA_COMPILER, beyond, needs
from exact import Sizes, check_plan, problem_of, read_by, run_plan
from gemmport import kernels
from gemmport.backends import _machinecode, _nvrtc
from gemmport.backends._compilation import CUDA_OPTIONS
from gemmport.contracts import gpu_model
from gemmport.contracts.device_model import derived
from gemmport.contracts.gpu_model import (
    MIN_STEPS,
    NEIGHBOURS,
    RUN_BYTES,
    RUNS_READ,
    WARP,
    Constants,
    Tiling,
    phases,
    sharing_of,
)
from gemmport.core.plan import Plan
from gemmport.kernels import _simt_tilings
from gemmport.kernels._simt_tilings import SMALLEST, USUAL, generated, tiling_of
from gemmport.planning.planner import candidates
from gemmport.runtime.sources import assemble
from made_up_devices import DEVICES
from models import HOPPER, MATRIX_TILINGS, TILINGS, model_of
from test_backend_contract import download, run
from test_kernels import BASE
from test_planner import SHIPPED

pytestmark = pytest.mark.best_of_each_backend
"""It is made for GPUs: `tiers.OF_GPUS`."""

SIMT = kernels.variant("simt")
SHARED = Sizes(33, 67, 131)
"""27 tiles in 3 matrices: fewer than the groups that share tiles on most devices, and with edges along all dimensions."""

GPUS = {name: device for name, device in DEVICES.items() if device.type == "gpu"}
DTYPES = ("float32", "float64", "complex64", "complex128")
GPU = DEVICES["NVIDIA sm_90 under CUDA"]
CONSTANTS = Constants.of(GPU, HOPPER)
EVERY_TILING = [*TILINGS, *generated()]


def clocks(problem: gp.GemmProblem, device: gp.DeviceInfo, tiling: Tiling) -> float:
    return gpu_model.clocks(problem, Constants.of(device, model_of(device)), tiling)


def shared_plan(backend: gp.Backend, problem: gp.GemmProblem) -> Plan:
    """A plan in which groups share tiles: the second launch adds up the parts."""
    plan = gp.plan(problem, backend.device, kernel="simt", params=BASE["simt"])
    assert [launch.kernel.function for launch in plan.launches][-1] == "combine"
    return plan


def check_shared(backend: gp.Backend) -> None:
    """Shared tiles of a batch, with scalars and edges; rows and columns are read along k and across."""
    for ops in ("NT", "TN"):
        problem = problem_of(SHARED, ops, "float32", alpha=2.0, beta=-1.0, batch=3)
        check_plan(backend, shared_plan(backend, problem))
    check_many_sharers(backend)


def check_many_sharers(backend: gp.Backend) -> None:
    """A tile of 40 groups, as on a device with so many units: 39 parts are added to the first, 16 and then 4 at once, and 3."""
    problem = problem_of(Sizes(11, 13, 40 * MIN_STEPS * BASE["simt"]["TSK"] - 5), "TN", "float32", alpha=2.0, beta=-1.0)
    larger = replace(backend.device, compute_units=40)
    plan = gp.plan(problem, larger, kernel="simt", params={**BASE["simt"], "SHARE": 1})
    assert dict(plan.launches[-1].kernel.defines)["PARTS_READ"] == 16
    check_plan(backend, plan)


def test_shared_tiles_are_exact(backend: gp.Backend) -> None:
    check_shared(backend)


@pytest.mark.sample(dtype=["complex64"])
@pytest.mark.every_value("dtype", DTYPES[1:])
def test_shared_tiles_of_every_type_are_exact(backend: gp.Backend, dtype: str) -> None:
    arithmetic = gp.GemmProblem.create(1, 1, 1, dtype=dtype).accumulator.arithmetic
    if arithmetic and arithmetic not in backend.device.computes:
        pytest.skip(beyond(backend.device, f"it does not compute in {arithmetic}"))
    check_plan(backend, shared_plan(backend, problem_of(SHARED, "NT", dtype, batch=3)))


def test_shared_tiles_have_the_same_bits_in_every_run(backend: gp.Backend) -> None:
    """Random reals, whose sums are rounded: parts are added up in the order of their terms."""
    rng = np.random.default_rng(3)
    m, n, k = SHARED.m, SHARED.n, SHARED.k
    problem = gp.GemmProblem.create(m, n, k)
    shared_plan(backend, problem)
    a = backend.asarray(rng.standard_normal((m, k)).astype(np.float32))
    b = backend.asarray(rng.standard_normal((k, n)).astype(np.float32))
    results = [gp.gemm(a, b, kernel="simt", params=BASE["simt"]).get() for _ in range(5)]
    assert all(np.array_equal(result, results[0]) for result in results)


def test_sharing_changes_no_integer(backend: gp.Backend) -> None:
    rng = np.random.default_rng(4)
    a = backend.asarray(rng.integers(-3, 4, (SHARED.m, SHARED.k)).astype(np.float32))
    b = backend.asarray(rng.integers(-3, 4, (SHARED.k, SHARED.n)).astype(np.float32))
    whole, *shared = (
        gp.gemm(a, b, kernel="simt", params={**BASE["simt"], "SHARE": share}).get() for share in (0, 1, 2, 8)
    )
    assert all(np.array_equal(result, whole) for result in shared)


# A kernel behind simt's source that tells how it cuts the row of shared steps.
_CUT = """
{
    out[4 * s] = first_tile(s, sharers, shared);
    out[4 * s + 1] = first_step(s, sharers, shared, steps);
    out[4 * s + 2] = first_sharer(s % shared, sharers, shared, steps);
    out[4 * s + 3] = last_sharer(s % shared, sharers, shared);
}
"""
_CUT_BY = {
    "opencl": f"""
inline void cut(__global int *out, int s, int sharers, int shared, int steps) {_CUT}
__kernel void tell(__global int *out, int sharers, int shared, int steps)
{{
    cut(out, (int)get_group_id(0), sharers, shared, steps);
}}
""",
    "cuda": f"""
__device__ inline void cut(int *out, int s, int sharers, int shared, int steps) {_CUT}
extern "C" __global__ void tell(int *out, int sharers, int shared, int steps)
{{
    cut(out, (int)blockIdx.x, sharers, shared, steps);
}}
""",
}


def test_the_row_of_shared_steps_is_cut_into_parts_of_one_length(backend: gp.Backend) -> None:
    """Also where no product fits in 32 bits, and where there are fewer steps than sharers."""
    plan = shared_plan(backend, problem_of(SHARED, "NN", "float32", batch=3))
    program = backend.program(
        assemble(plan.launches[-1].kernel, backend.language, backend.overrides) + _CUT_BY[backend.language]
    )
    for sharers, shared, steps in (
        (132, 116, 512), (5, 3, 7), (132, 131, 5), (40, 3, 55), (264, 1, 1056), (3168, 3167, 2**28 - 1), (7, 5, 2**28 - 1),
    ):  # fmt: skip
        out = backend.allocate(16 * (sharers + 1))
        run(backend, program, "tell", out, *map(np.int32, (sharers, shared, steps)), groups=sharers + 1)
        told = download(backend, out, np.int32, 4 * (sharers + 1)).reshape(-1, 4).tolist()
        begins = [s * shared * steps // sharers for s in range(sharers + 1)]
        assert [tile * steps + step for tile, step, _, _ in told] == begins
        assert all(0 <= step < steps for _, step, _, _ in told)
        owners = [
            (bisect_right(begins, t * steps) - 1, bisect_left(begins, (t + 1) * steps) - 1) for t in range(shared)
        ]
        assert [(begin, end) for _, _, begin, end in told[:shared]] == owners


def test_nvidias_opencl_reads_the_next_terms_before_the_last_are_multiplied(backend: gp.Backend) -> None:
    """Behind the loop's barrier, not in front of the next round's first products, which would have to wait for them."""
    if (backend.name, backend.device.platform) != ("opencl", "nvidia"):
        pytest.skip(beyond(backend.device, "it is NVIDIA's OpenCL compiler that joins these reads"))
    params = {**TILINGS[0], "SHARE": 0, "PORTS": 0}
    plan = gp.plan(gp.GemmProblem.create(1024, 1024, 1024), backend.device, kernel="simt", params=params)
    ptx = backend.compile(assemble(plan.launches[0].kernel, "opencl")).binary.decode()
    behind = ptx[ptx.rindex("cp.async.wait_group") :]
    runs = (params["WPTM"] + params["WPTN"]) // 4
    assert behind[: behind.index("bra")].count("ld.shared.v4.f32") == runs


def is_for(row: Mapping[str, Any]) -> bool:
    """Every tiling is for GPUs. CPUs take seconds to compile one: they have one in six, of those with few sums."""
    tiling = row["tiling"]
    few = tiling["WPTM"] * tiling["WPTN"] <= 32
    return row["backend"].type != "cpu" or (few and EVERY_TILING.index(tiling) % 6 == 0)


@pytest.mark.sample(tiling=EVERY_TILING[:1])
@pytest.mark.every_value("tiling", EVERY_TILING, where=is_for)
def test_every_tiling_is_exact(backend: gp.Backend, tiling: dict[str, int]) -> None:
    device = backend.device
    sizes = Sizes(tiling["TSM"] + 3, tiling["TSN"] - 1, 2 * tiling["TSK"] + 5)
    problem = problem_of(sizes, "NT", "float32", beta=1.0)
    fitted = _simt_tilings.fit(SIMT, tiling, problem, device, {**USUAL, "most_registers": 255})
    if not fitted:
        pytest.skip(beyond(device, f"it has no room for {tiling}"))
    check_plan(backend, gp.plan(problem, device, kernel="simt", params=fitted))


SPREAD = [
    (dict(zip(("TSM", "TSN", "TSK", "WM", "WN", "WPTM", "WPTN", "SLICES"), tiling, strict=True)), ops, apart)
    for tiling, ops, apart in (
        # Every number of work-items side by side; copies of fewer lines at once than those, of as many, and of more.
        ((128, 4, 8, 128, 4, 4, 4, 1), "NT", 1),
        ((64, 8, 8, 64, 8, 4, 4, 1), "NT", 2),
        ((32, 16, 16, 32, 16, 4, 4, 1), "NT", 4),
        ((64, 16, 8, 32, 16, 4, 4, 2), "TT", 4),
        ((16, 64, 8, 16, 64, 4, 8, 1), "NT", 8),
        ((16, 32, 32, 16, 32, 4, 4, 1), "TT", 8),
        ((8, 64, 8, 8, 64, 4, 4, 1), "TT", 16),
        ((4, 128, 8, 4, 128, 4, 4, 1), "NT", 32),
        ((64, 16, 8, 32, 16, 4, 4, 2), "NN", 4),
        ((16, 64, 8, 16, 64, 4, 8, 1), "TN", 8),
        ((4, 128, 8, 4, 128, 4, 4, 1), "NN", 32),
        # 12 lines at once along k, of which the bits are in those of others; across there are 32.
        ((48, 32, 8, 16, 32, 4, 4, 1), "NT", 1),
        ((48, 32, 8, 16, 32, 4, 4, 1), "NN", 8),
    )
]


def apart_of(plan: Plan) -> int:
    """Columns from one element of a run of D to the next."""
    return int(dict(plan.launches[0].kernel.defines)["APART"])


@pytest.mark.sample(apart=[4], ops=["TT"])
@pytest.mark.every_value(("params", "ops", "apart"), SPREAD)
def test_columns_apart_are_exact(backend: gp.Backend, params: dict[str, int], ops: str, apart: int) -> None:
    """Rows that are not aligned, of tiles that overlap and of tiles with edges; with C, where D is and elsewhere."""
    t = Sizes(params["TSM"], params["TSN"], params["TSK"])
    overlapping, with_edges = Sizes(t.m + 3, 2 * t.n + 5, 2 * t.k + 1), Sizes(t.m + 1, t.n - 1, t.k)
    for sizes, in_place in ((overlapping, True), (with_edges, False)):
        problem = problem_of(sizes, ops, "float32", alpha=2.0, beta=-1.0, batch=2, in_place=in_place)
        plan = gp.plan(problem, backend.device, kernel="simt", params={**params, "STAGES": 2})
        assert apart_of(plan) == apart
        check_plan(backend, plan, in_place=in_place)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("ops", ["NN", "NT", "TN", "TT"])
def test_columns_lie_apart_where_rows_are_not_aligned(dtype: str, ops: str) -> None:
    """Not of runs of one element, of B in runs, which are copied as they are, nor of the matrix unit."""

    def apart(params: dict[str, int] | None = None, **layouts: gp.Layout) -> int:
        problem = gp.GemmProblem.create(64, 63, 8, dtype=dtype, trans_a=ops[0], trans_b=ops[1], **layouts)
        return apart_of(gp.plan(problem, GPU, kernel="simt", params={"STAGES": 2, **(params or {})}))

    aligned = gp.Layout(ld=64)
    side_by_side = 1 if dtype == "complex128" else 8
    assert apart() == side_by_side
    assert apart({"WPTN": 8, "WN": 64, "WM": 32}) == side_by_side
    assert apart(c=aligned, d=aligned) == 1
    assert apart(b=aligned) == (side_by_side if ops[1] == "T" else 1)
    if dtype == "float64":
        assert apart({"WM": 32, "WN": 32, "WPTM": 4, "WPTN": 8, "MMA": 1, "PAD": 0}) == 1


OPS_ACROSS = {"NN": ("a",), "NT": ("a", "b"), "TN": (), "TT": ("b",), "RC": ("a", "b"), "CR": ()}
"""Of some ops the operands that lie along k."""


@pytest.mark.sample(ops=["NT"])
@pytest.mark.every_value(("ops", "share"), [*itertools.product(OPS_ACROSS, (0, 3))])
def test_operands_across_are_exact(backend: gp.Backend, ops: str, share: int) -> None:
    """Rows with gaps, a batch that shares A, conjugates, C in D; none is transposed that lies across already."""
    complex_ops = not set(ops) <= set("NT")
    for sizes, own in ((SHARED, True), (Sizes(64, 32, 40), False)):
        problem = problem_of(
            sizes, ops, "complex64" if complex_ops else "float32", alpha=2.0, beta=-1.0, batch=3, share_a=not own,
            multiple=1 if own else 4, in_place=own,
        )  # fmt: skip
        params = {**BASE["simt"], "SHARE": share, "ACROSS": 1}
        if complex_ops:  # no more is written out than must be: a slow compiler takes half a minute for it
            params["STAGES"] = 2
        plan = gp.plan(problem, backend.device, kernel="simt", params=params)
        turned = [f"{operand}_across" for operand in OPS_ACROSS[ops]]
        assert [scratch.name for scratch in plan.scratch if scratch.name != "parts"] == turned
        functions = [launch.kernel.function for launch in plan.launches]
        assert functions.count("transpose") == len(turned)
        if own:
            assert ("combine" in functions) == bool(share)
        assert all(dict(launch.kernel.defines).get("TRANSPOSE_A", 1) for launch in plan.launches)
        assert not any(dict(launch.kernel.defines).get("TRANSPOSE_B", 0) for launch in plan.launches)
        check_plan(backend, plan, in_place=own)


@pytest.mark.parametrize("scale", [0.0, 2.0])
def test_a_shared_b_across_is_exact(backend: gp.Backend, scale: float) -> None:
    """One matrix of B for the whole batch is transposed once; none of them is of no products."""
    problem = problem_of(Sizes(33, 20, 29), "TT", "float32", alpha=scale, beta=1.0, batch=3)
    problem = replace(problem, b=replace(problem.b, batch_stride=0))
    plan = gp.plan(problem, backend.device, kernel="simt", params={**BASE["simt"], "SHARE": 0, "ACROSS": 1})
    assert [scratch.nbytes for scratch in plan.scratch] == ([20 * 29 * 4] if scale else [])
    check_plan(backend, plan)


def test_nothing_is_transposed_of_no_terms(backend: gp.Backend) -> None:
    plan = gp.plan(
        problem_of(Sizes(9, 5, 0), "NT", "float32", beta=2.0), backend.device, kernel="simt", params={"ACROSS": 1}
    )
    assert not any(scratch.name.endswith("across") for scratch in plan.scratch)
    check_plan(backend, plan)


def across(problem: gp.GemmProblem, device: gp.DeviceInfo = GPU) -> int:
    return int(SIMT.suggested(problem, device, model_of(device))["ACROSS"])


@pytest.mark.parametrize(("ops", "least"), [("NN", 8192), ("NT", 4096), ("TT", 4096), ("TN", None)])
def test_large_operands_are_transposed_where_they_lie_along_k(ops: str, least: int | None) -> None:
    for n in (256, 512, 1024, 2048, 4096, 8192, 16384):
        found = across(gp.GemmProblem.create(n, n, n, trans_a=ops[0], trans_b=ops[1]))
        if least is None or n <= least // 4:
            assert not found, n
        elif n >= least:
            assert found, n


def test_operands_are_transposed_only_where_there_is_room() -> None:
    """Of memory, of one allocation, and of groups."""
    problem = gp.GemmProblem.create(8192, 8192, 8192, trans_b="T")
    nbytes = 8192 * 8192 * 4
    assert across(problem, replace(GPU, memory=2 * 16 * nbytes, max_allocation=nbytes))
    for less in (
        {"memory": 2 * 16 * nbytes - 1},
        {"max_allocation": nbytes - 1},
        {"max_groups": 8192 * 8192 // 1024 - 1},
    ):
        assert not across(problem, replace(GPU, **less))


def test_operands_are_transposed_only_where_that_was_measured() -> None:
    large, thin = gp.GemmProblem.create(8192, 8192, 8192, trans_b="T"), gp.GemmProblem.create(11520, 8000, 24)
    assert across(large)
    assert not across(large, replace(GPU, architecture="sm_89"))
    assert not across(large, DEVICES["AMD gfx90a"])
    assert across(thin)
    assert not across(replace(thin, k=23))


MANY_SUMS = {"TSM": 64, "TSN": 128, "TSK": 8, "WM": 32, "WN": 128, "WPTM": 8, "WPTN": 16, "SHARE": 1}
"""Of a work-item: 128, as in the tiles that are fastest in float32 on Hopper."""


@pytest.mark.sample(ops=["NT"], more=[{}])
@pytest.mark.parametrize("ops", ["NT", "TN"])
@pytest.mark.parametrize("beta", [0.0, 0.5])
@pytest.mark.parametrize("more", [{}, {"STAGES": 2}, {"TSK": 16, "SLICES": 2}], ids=["", "two stages", "slices"])
def test_what_is_launched_meanwhile_writes_the_same_bits(
    backend: gp.Backend, ops: str, beta: float, more: dict[str, int]
) -> None:
    """C is poison where beta is 0; parts of shared tiles, too, are of the same terms."""
    problem = problem_of(Sizes(129, 120, 165), ops, "float32", alpha=1.25, beta=beta)
    own = gp.plan(problem, backend.device, kernel="simt", params={**MANY_SUMS, **more})
    meanwhile = replace(own, launches=own.meanwhile)
    assert own.launches[-1].kernel.function == own.meanwhile[-1].kernel.function == "combine"
    assert [launch.work_group[0] for launch in own.meanwhile[:-1]] == [
        2 * launch.work_group[0] for launch in own.launches[:-1]
    ]
    check_plan(backend, meanwhile)
    rng = np.random.default_rng(5)
    shapes = {operand: (1, *problem.stored_shape(operand)) for operand in read_by(problem)}
    values = {operand: rng.standard_normal(shape, np.float32) for operand, shape in shapes.items()}
    np.testing.assert_array_equal(run_plan(backend, meanwhile, values), run_plan(backend, own, values))


def test_parts_that_are_read_at_once_are_added_in_the_order_of_single_ones(backend: gp.Backend) -> None:
    """Random reals, whose sums are rounded, in a tile of 40 groups: the launches meanwhile read one part after the other."""
    problem = problem_of(Sizes(61, 67, 40 * MIN_STEPS * MANY_SUMS["TSK"]), "TN", "float32")
    own = gp.plan(problem, replace(backend.device, compute_units=40), kernel="simt", params=MANY_SUMS)
    meanwhile = replace(own, launches=own.meanwhile)
    assert [dict(plan.launches[-1].kernel.defines)["PARTS_READ"] for plan in (own, meanwhile)] == [16, 1]
    rng = np.random.default_rng(6)
    values = {x: rng.standard_normal((1, *problem.stored_shape(x)), np.float32) for x in read_by(problem)}
    np.testing.assert_array_equal(run_plan(backend, meanwhile, values), run_plan(backend, own, values))


def test_loops_that_are_not_written_out_are_those_of_launches_for_the_time_being_alone() -> None:
    plan = gp.plan(problem_of(Sizes(129, 120, 85), "NN", "float32"), GPU, kernel="simt", params=MANY_SUMS)
    assert all(dict(launch.kernel.defines)["SOON"] == 1 for launch in plan.meanwhile)
    assert not any("SOON" in dict(launch.kernel.defines) for launch in plan.launches)


@needs(CUDA_COMPILER)
@pytest.mark.sample(ops=["TT"], size=[1001])
@pytest.mark.parametrize("ops", ["NN", "NT", "TN", "TT"])
@pytest.mark.parametrize("size", [1001, 4096])
@pytest.mark.parametrize("beta", [0.0, 0.5])
def test_what_is_launched_meanwhile_keeps_its_sums_in_registers(ops: str, size: int, beta: float) -> None:
    """Of which 512 work-items have 128 each. What is to compile soon is so much shorter."""
    problem = gp.GemmProblem.create(size, size, size, trans_a=ops[0], trans_b=ops[1], beta=beta)
    tiles = {"TSM": 128, "TSN": 256, "TSK": 8, "WM": 32, "WN": 128, "WPTM": 8, "WPTN": 16, "SHARE": 1}
    plan = gp.plan(problem, GPU, kernel="simt", params=tiles)
    options = (*CUDA_OPTIONS, *_nvrtc._verbose())
    for own, soon in zip(plan.launches, plan.meanwhile, strict=True):
        if own.kernel.function == "simt":
            long, short = (_nvrtc._compile(assemble(each.kernel, "cuda"), "sm_90", options) for each in (own, soon))
            taken = _machinecode.ptxas_resources(short.log, "simt")
            assert taken.registers is not None
            assert taken.registers <= 128
            assert (taken.spill_loads, taken.spill_stores) == (0, 0)
            assert short.ptx.count("fma.rn.f32") < long.ptx.count("fma.rn.f32") / 8


def test_a_program_without_c_is_launched_where_c_is_not_read_alone(backend: gp.Backend) -> None:
    for beta in (0.0, -0.0, 0.5):
        problem = problem_of(Sizes(70, 131, 21), "NN", "float32", beta=beta)
        plan = gp.plan(problem, backend.device, kernel="simt", params=MANY_SUMS)
        assert plan.meanwhile
        for launch in plan.meanwhile:
            assert dict(launch.kernel.defines).get("READS_C") == (None if beta else 0)
        assert not any("READS_C" in dict(launch.kernel.defines) for launch in plan.launches)
    without = [
        replace(launch, kernel=replace(launch.kernel, defines=(*launch.kernel.defines, ("READS_C", 0))))
        for launch in plan.launches
    ]
    with pytest.raises(AssertionError, match="elements are wrong"):  # the last problem reads C
        check_plan(backend, replace(plan, launches=tuple(without)))


@pytest.mark.parametrize(
    "params",
    [{"WPTN": 8, "WN": 64}, {"TSM": 256, "TSN": 512, "STAGES": 2}],
    ids=["few sums", "groups would be too large"],
)
def test_nothing_is_launched_meanwhile_where_there_is_nothing_to_gain(params: dict[str, int]) -> None:
    assert not SIMT.sooner(SIMT.complete({**MANY_SUMS, **params}), replace(GPU, max_work_group=1024))


def test_tilings_are_all_different() -> None:
    for each in (TILINGS, MATRIX_TILINGS, generated()):
        assert len({tuple(sorted(tiling.items())) for tiling in each}) == len(each)


@pytest.mark.parametrize(
    ("problem", "tiling"),
    [
        # Where these were missing, an H100's tuned choices took 1.1 to 1.3 times as long as the shipped ones.
        (
            gp.GemmProblem.create(1536, 1536, 1536),
            {"TSM": 128, "TSN": 256, "WPTM": 8, "WPTN": 16, "GROUPS": 1, "PORTS": 1},
        ),
        (
            gp.GemmProblem.create(1000, 1000, 1000),
            {"TSM": 64, "TSN": 128, "WPTM": 8, "WPTN": 8, "SLICES": 2, "GROUPS": 1, "PORTS": 1},
        ),
        (gp.GemmProblem.create(500, 500, 500), {"TSM": 32, "TSN": 64, "WPTM": 8, "WPTN": 4, "SLICES": 2, "STAGES": 4}),
        (
            gp.GemmProblem.create(1111, 1111, 1111, dtype="float64"),
            {"TSM": 128, "TSN": 128, "WPTM": 8, "WPTN": 8, "GROUPS": 1, "MMA": 1},
        ),
        (
            gp.GemmProblem.create(1024, 1024, 1024, dtype="float64"),
            {"TSM": 64, "TSN": 128, "WPTM": 4, "WPTN": 8, "STAGES": 4, "GROUPS": 2, "MMA": 1},
        ),
    ],
    ids=str,
)
def test_a_hopper_gpu_without_a_model_considers_what_won_there(problem: gp.GemmProblem, tiling: dict[str, int]) -> None:
    assert any(tiling.items() <= {**each}.items() for each in SIMT.considered(problem, GPU, derived(GPU)))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", GPUS)
@pytest.mark.parametrize(("m", "n", "k"), [(1, 1, 1), (64, 64, 4096), (1000, 1000, 1000), (4096, 512, 99), (9, 9, 0)])
def test_what_is_suggested_fits(name: str, dtype: str, m: int, n: int, k: int) -> None:
    device = GPUS[name]
    problem = gp.GemmProblem.create(m, n, k, dtype=dtype)
    if problem.accumulator.arithmetic and problem.accumulator.arithmetic not in device.computes:
        device = replace(device, computes=device.computes | {problem.accumulator.arithmetic})
    suggested = SIMT.suggested(problem, device, model_of(device))
    assert suggested, f"no tiling fits {name}"
    full = SIMT.complete(suggested)
    assert SIMT.local_bytes(full, problem) <= SIMT.most_local_bytes(device)
    assert SIMT.work_group(full)[0] <= min(device.max_work_group, device.max_work_item_sizes[0])
    assert SIMT.unfit(full, problem, device) is None
    assert full["MMA"] == 0 or (dtype in ("float64", "complex128") and device.architecture == "sm_90")
    assert full["SHARE"] in (0, full["GROUPS"])
    gp.plan(problem, device, kernel="simt", params=suggested)


def test_a_model_may_state_every_constant_and_what_it_does_not_comes_from_its_rates() -> None:
    names = [field.name for field in fields(Constants) if field.name not in ("units", "lanes", "matrix_lanes")]
    assert names == [name for name in gpu_model.FITTED if name != "matrix_rate"]
    plain, stated = derived(GPU), {name: 3.0 + index for index, name in enumerate(names)}
    found = Constants.of(GPU, plain.over({"fitted": {"simt": {**stated, "matrix_rate": 5.0}}}, ""))
    assert {name: getattr(found, name) for name in names} == stated
    assert found.matrix_lanes == pytest.approx({name: 5 * lanes for name, lanes in found.lanes.items()})
    slower = plain.over({"launch": 2 * plain.launch, "latency": 3 * plain.latency}, "")
    before, after = Constants.of(GPU, plain), Constants.of(GPU, slower)
    assert after.launch_clocks == 2 * before.launch_clocks
    assert after.far_clocks == pytest.approx(3 * before.far_clocks)
    assert (before.units, before.lanes["float32"]) == (114, pytest.approx(128))


@pytest.mark.parametrize("width", [0, 8, 16, 32, 64])
def test_generated_tilings_are_whole_wavefronts(width: int) -> None:
    found = generated(width)
    items = [SIMT.work_group(SIMT.complete(tiling))[0] for tiling in found]
    assert all(number % max(width, 1) == 0 and number <= 256 for number in items)
    assert {32, 64, 128, 256} - {32 if width == 64 else 0} == set(items)
    assert {(tiling["TSM"], tiling["TSN"]) for tiling in found} >= {(128, 128), (32, 128), (128, 32), (64, 64)}


def test_generated_tilings_leave_room_for_fewer_groups_that_share() -> None:
    groups: dict[tuple[int, ...], set[int]] = {}
    for tiling in generated():
        form = tuple(tiling[name] for name in ("TSM", "TSN", "WPTM", "WPTN", "SLICES"))
        groups.setdefault(form, set()).add(tiling["GROUPS"])
    assert groups[64, 128, 8, 8, 2] == {1, 2}
    assert all(max(each) == 1 or len(each) == 2 for each in groups.values())


def test_generated_tilings_with_many_sums_have_large_groups_and_no_slices() -> None:
    """Others took up to 1.9 times as long as expected (docs/tuning-studies.md)."""
    found = [tiling for tiling in generated() if tiling["WPTM"] * tiling["WPTN"] >= _simt_tilings.MANY_SUMS]
    assert {(tiling["TSM"], tiling["TSN"]) for tiling in found} >= {(128, 128), (128, 256)}
    for tiling in found:
        assert tiling["SLICES"] == 1
        assert SIMT.work_group(SIMT.complete(tiling))[0] >= 128


def test_what_a_tiling_of_a_model_does_not_state_is_as_usual() -> None:
    model = derived(GPU).over({"tilings": {"simt": ({"TSM": 64, "TSN": 64},)}}, "")
    problem = gp.GemmProblem.create(512, 512, 512)
    usual = SIMT.complete({"TSM": 64, "TSN": 64})
    assert SIMT.considered(problem, GPU, model)
    for each in SIMT.considered(problem, GPU, model):
        assert {**usual, **each, "SHARE": 0} == usual


def test_tiles_are_not_shared_where_a_tiling_says_so() -> None:
    problem = gp.GemmProblem.create(512, 512, 512)
    for stated, shares in (({}, {0, 2}), ({"SHARE": 0}, {0})):
        model = derived(GPU).over({"tilings": {"simt": ({"TSM": 64, "TSN": 64, "GROUPS": 2, **stated},)}}, "")
        assert {each["SHARE"] for each in SIMT.considered(problem, GPU, model)} == shares


@pytest.mark.parametrize("ops", ["NN", "NT", "TN"])
def test_three_groups_are_on_a_unit_where_two_leave_the_last_tiles_to_few(ops: str) -> None:
    """384 tiles of 128 × 96 on 132 units: two groups have 264 at once, and three all. An H200 took 57.4, not 85.2 µs, in NN."""
    problem = gp.GemmProblem.create(1531, 3067, 251, trans_a=ops[0], trans_b=ops[1])
    device = replace(GPU, compute_units=132, clock_mhz=1980)
    chosen = SIMT.suggested(problem, device, model_of(device))
    assert {name: chosen[name] for name in ("TSM", "TSN", "GROUPS", "SHARE")} == {
        "TSM": 128, "TSN": 96, "GROUPS": 3, "SHARE": 0,
    }  # fmt: skip


def test_nvidias_gpus_have_more_registers_than_others() -> None:
    """Without a file that says so: large tiles of float64 are for them alone."""
    problem = gp.GemmProblem.create(4096, 4096, 4096, dtype="float64")
    for device, most in ((GPU, 64), (DEVICES["AMD gfx90a"], 16)):
        found = SIMT.considered(problem, replace(device, computes=device.computes | {"float64"}), derived(device))
        assert max(each["WPTM"] * each["WPTN"] for each in found if not each.get("MMA")) == most


def test_a_wavefront_of_64_gets_no_group_of_32() -> None:
    wide = DEVICES["AMD gfx90a"]
    for problem in (gp.GemmProblem.create(16, 32, 64), gp.GemmProblem.create(1000, 999, 77)):
        for each in SIMT.considered(problem, wide, model_of(wide)):
            assert SIMT.work_group(SIMT.complete(each))[0] % 64 == 0


@pytest.mark.parametrize("name", GPUS)
def test_it_is_a_candidate_on_every_gpu(name: str) -> None:
    """In its portable form: nothing of PTX, and nothing that takes a warp for granted."""
    device = GPUS[name]
    found = [one for one in candidates(gp.GemmProblem.create(512, 512, 512), device, SHIPPED) if one.kernel == "simt"]
    assert any(not one.reason for one in found)
    if device.platform != "nvidia":
        plan = gp.plan(gp.GemmProblem.create(512, 512, 512), device, kernel="simt")
        assert all(dict(launch.kernel.defines)["ASYNC_COPIES"] == 0 for launch in plan.launches)


def test_a_prediction_is_what_the_choice_is_made_by() -> None:
    problem = gp.GemmProblem.create(4096, 4096, 4096, trans_b="T")
    considered = SIMT.considered(problem, GPU, HOPPER)
    expected = [SIMT.predicted(problem, GPU, HOPPER, SIMT.complete(each)) for each in considered]
    seconds = [each.seconds for each in expected if not each.parts["passes"]]
    assert seconds == sorted(seconds)
    best = expected[0]
    assert best.facts["multiply-adds"] == 4096**3
    assert 0 < best.facts["tail"] < 1
    assert max(best.parts.values()) < best.seconds < sum(best.parts.values())


def test_what_waits_for_memory_reads_whole_lines_of_rows() -> None:
    """Of two tilings that both wait for it, on an H100 the one with 128 bytes of each row took 513 µs, with 64 it took 612."""
    problem = gp.GemmProblem.create(16, 512, 500_000, trans_b="T")
    suggested = SIMT.suggested(problem, GPU, HOPPER)
    assert (suggested["TSK"], suggested["SLICES"]) == (32, 4)
    whole, pieces = (SIMT.complete({**suggested, "TSK": depth, "SLICES": depth // 8}) for depth in (32, 16))
    reads = [SIMT.predicted(problem, GPU, HOPPER, each).parts["global memory"] for each in (pieces, whole)]
    assert reads[0] / reads[1] == pytest.approx(1 / 0.85, rel=1e-3)


def test_where_there_is_no_room_nothing_is_suggested() -> None:
    tiny = replace(GPUS["work-groups of 256"], max_work_group=WARP // 2)
    assert SIMT.suggested(gp.GemmProblem.create(64, 64, 64), tiny, model_of(tiny)) == {}


tilings = st.sampled_from(TILINGS)
sizes = st.integers(1, 5000)


def whole_tiles(tiling: Mapping[str, int]) -> Tiling:
    return tiling_of({**tiling, "SHARE": 0})


@pytest.mark.parametrize("n", [1024, 4096])
def test_results_take_time_on_their_way_out_and_more_where_rows_are_not_aligned(n: int) -> None:
    # A work-item of more sums would store late for another reason.
    tiling = replace(whole_tiles(TILINGS[0]), item_rows=8, item_columns=8)
    few, more = (clocks(gp.GemmProblem.create(n, n, k), GPU, tiling) for k in (8, 16))
    assert few > more - few  # a step adds little to what the results take
    aligned, apart = (clocks(gp.GemmProblem.create(n, n + extra, 8), GPU, tiling) for extra in (4, 1))
    assert apart - CONSTANTS.launch_clocks > 1.4 * (aligned - CONSTANTS.launch_clocks)  # one by one, in as many tiles
    if n > 1024:  # where the launch is little beside
        assert apart > 1.4 * aligned


def test_float64_outside_the_matrix_unit_takes_longer() -> None:
    """As many times as is stated; float32, and products of the unit, do not."""
    tiling = whole_tiles(TILINGS[4])
    plain, doubled = (replace(CONSTANTS, double_issue=times, ports_issue=1.0) for times in (1.0, 1.5))

    def times(dtype: str, *, matrix: bool) -> float:
        problem = gp.GemmProblem.create(4096, 4096, 4096, dtype=dtype)
        first, second = (
            phases(problem, constants, replace(tiling, matrix=matrix))[1].multiply_adds
            for constants in (plain, doubled)
        )
        return second / first

    found = [times("float64", matrix=False), times("complex128", matrix=False)]
    assert found == pytest.approx([1.5, 1.5])
    assert times("float64", matrix=True) == times("float32", matrix=False) == 1.0


def test_the_matrix_unit_waits_for_local_memory_once_for_the_terms_that_it_takes_at_once() -> None:
    problem = gp.GemmProblem.create(4096, 4096, 4096, dtype="float64")
    constants = replace(CONSTANTS, far_clocks=0.0)
    tiling = replace(whole_tiles(TILINGS[4]), depth=16)
    plain, four, eight = (
        phases(problem, constants, replace(tiling, matrix=matrix, eight_terms=more))[1].latency
        for matrix, more in ((False, False), (True, False), (True, True))
    )
    assert plain == 4 * four == 8 * eight > 0


def test_few_work_items_side_by_side_store_late() -> None:
    """Where rows are not aligned, and where the matrix unit's runs are."""
    lost = {}
    for matrix, extra in ((False, 0), (True, 0), (False, 1)):
        wide = replace(whole_tiles(TILINGS[4]), matrix=matrix)
        narrow = replace(wide, side_by_side=NEIGHBOURS // 2)
        problem = gp.GemmProblem.create(4096, 4096 + extra, 10, dtype="float64" if matrix else "float32")
        lost[matrix, extra] = clocks(problem, GPU, narrow) / clocks(problem, GPU, wide)
    assert lost[False, 0] == 1 < lost[True, 0]
    assert lost[False, 1] > 1.1


def test_work_items_of_many_sums_store_late_where_steps_are_few() -> None:
    many, few = whole_tiles(TILINGS[2]), whole_tiles(TILINGS[3])
    assert (many.rows, many.columns, many.resident) == (few.rows, few.columns, few.resident)
    short, long = (
        [phases(gp.GemmProblem.create(4096, 4096, k), CONSTANTS, tiling)[1].others["results"] for tiling in (many, few)]
        for k in (8, 4096)
    )
    assert short[0] > 1.5 * short[1]
    assert long[0] == pytest.approx(long[1], rel=0.01)


def test_two_groups_in_step_leave_their_places_to_two() -> None:
    """Each with a warp for every scheduler: in few waves, two tiles more take a wave; else, what one takes alone."""
    pair = Tiling(rows=128, columns=128, depth=8, item_rows=16, item_columns=8, resident=2, stages=4)

    def last(tiling: Tiling, waves: int, more: int = 2) -> int:
        """Groups on the fullest unit of the last wave."""
        tiles = tiling.resident * CONSTANTS.units * waves + more
        return phases(gp.GemmProblem.create(tiling.rows * tiles, tiling.columns, 512), CONSTANTS, tiling)[-1].groups

    few = int(CONSTANTS.in_step)
    assert [last(pair, waves) for waves in (1, few, few + 1)] == [2, 2, 1]
    assert last(pair, 1, more=1) == 1
    others = {"item_rows": 8}, {"slices": 2}, {"matrix": True}, {"resident": 3}
    assert [last(replace(pair, **other), 1) for other in others] == [1] * len(others)


def test_loops_with_more_conditions_than_registers_are_not_in_order() -> None:
    """Where a product has fewer rows or columns than a tile, most loops of shared tiles were left as they were compiled for an
    H200, and those of three groups.
    """
    large = Tiling(rows=128, columns=256, depth=8, item_rows=8, item_columns=16, resident=1, stages=3, share=1)

    def in_order(tiling: Tiling, m: int, n: int, trans_b: str = "N") -> bool:
        """Whether the order makes a difference to the loop that is told first."""
        problem = gp.GemmProblem.create(m, n, 3067, trans_b=trans_b)
        with_order, without = (
            phases(problem, CONSTANTS, replace(tiling, in_order=each))[1].multiply_adds for each in (True, False)
        )
        return with_order < without

    assert not in_order(large, 2039, 251)  # 4 conditions for A and 8 for B
    assert not in_order(large, 2048, 252, "T")  # 8 for B
    assert in_order(large, 100, 2048, "T")  # 4 for A, and none for B, of which all columns are there
    assert in_order(large, 2048, 252)  # runs of B
    assert in_order(large, 2039, 257)  # no tile is wider
    assert in_order(replace(large, share=0), 2039, 251)
    assert not in_order(replace(large, share=0, resident=3), 2039, 251)
    assert in_order(replace(large, rows=64, columns=128, item_columns=8), 2039, 101)  # fewer sums


@pytest.mark.parametrize("tiling", TILINGS, ids=str)
def test_reading_c_takes_time_for_every_few_of_its_runs(tiling: dict[str, int]) -> None:
    """A work-item reads some runs of C, waits for them, and reads on."""
    short = gp.GemmProblem.create(4096, 4096, 32)
    without, read = (clocks(problem, GPU, whole_tiles(tiling)) for problem in (short, short.with_scalars(1, 1)))
    rounds = -(-tiling["WPTM"] * tiling["WPTN"] * 4 // (RUN_BYTES * RUNS_READ))
    tiles = (4096 // tiling["TSM"]) * -(-4096 // tiling["TSN"])
    waves = -(-tiles // (GPU.compute_units * tiling["GROUPS"]))
    assert read - without == pytest.approx(rounds * waves * CONSTANTS.read_clocks)


@settings(max_examples=100)
@given(tiling=tilings, m=sizes, n=sizes, k=sizes, stages=st.integers(2, 7), dtype=st.sampled_from(DTYPES))
def test_one_more_tile_on_its_way_is_never_estimated_to_be_slower(
    tiling: dict[str, int], m: int, n: int, k: int, stages: int, dtype: str
) -> None:
    problem = gp.GemmProblem.create(m, n, k, dtype=dtype)
    fewer, more = (replace(whole_tiles(tiling), stages=number) for number in (stages, stages + 1))
    assert clocks(problem, GPU, more) <= clocks(problem, GPU, fewer)


def test_two_tiles_are_too_few_for_what_comes_from_far() -> None:
    """Where one group with few products for each step is on a unit, which no other's work fills."""
    problem = gp.GemmProblem.create(16, 32, 4096)
    two, four = (clocks(problem, GPU, replace(whole_tiles(SMALLEST), stages=stages)) for stages in (2, 4))
    assert two > 1.2 * four


@settings(max_examples=200)
@given(
    tiling=tilings,
    m=sizes,
    n=sizes,
    k=sizes,
    more=st.tuples(*[st.integers(0, 750)] * 3),
    dtype=st.sampled_from(DTYPES),
)
def test_more_work_is_never_estimated_to_be_faster(
    tiling: dict[str, int], m: int, n: int, k: int, more: tuple[int, int, int], dtype: str
) -> None:
    """Of one tiling that nobody shares, for where tiles are shared, a round that comes out even is faster than others; and of
    rows that are aligned, whole runs of every type, for others may be slower than longer ones.
    """
    sizes = [4 * size for size in (m, n, k)]
    less = gp.GemmProblem.create(*sizes, dtype=dtype)
    larger = gp.GemmProblem.create(*(size + 4 * added for size, added in zip(sizes, more, strict=True)), dtype=dtype)
    assert clocks(less, GPU, whole_tiles(tiling)) <= clocks(larger, GPU, whole_tiles(tiling))


@settings(max_examples=100)
@given(tiling=tilings, m=sizes, n=sizes, k=sizes, batch=st.integers(1, 9))
def test_more_units_are_never_estimated_to_be_slower(
    tiling: dict[str, int], m: int, n: int, k: int, batch: int
) -> None:
    problem = gp.GemmProblem.create(m, n, k, batch=batch)
    larger = replace(GPU, compute_units=2 * GPU.compute_units)
    assert clocks(problem, larger, whole_tiles(tiling)) <= clocks(problem, GPU, whole_tiles(tiling))


def test_ptx_says_how_many_groups_a_multiprocessor_shall_hold() -> None:
    opencl = pytest.importorskip("gemmport.backends.opencl")
    ptx = b".entry simt(\n)\n.reqntid 256, 1, 1\n{\n}"
    told = opencl._with_residency(ptx, "#define GROUPS 2\nkernel")
    assert told == b".entry simt(\n)\n.reqntid 256, 1, 1\n.minnctapersm 2\n{\n}"
    assert opencl._with_residency(ptx, "kernel") == ptx


@given(tiles=st.integers(0, 10**6), steps=st.integers(1, 10**6), groups=st.integers(0, 2000))
def test_who_shares_has_less_to_do_than_a_tile_and_enough(tiles: int, steps: int, groups: int) -> None:
    shared, sharers = sharing_of(tiles, steps, groups)
    if shared == 0:
        assert sharers == 0
    else:
        assert shared < sharers <= groups
        assert (tiles - shared) % groups == 0
        assert MIN_STEPS * sharers <= shared * steps
