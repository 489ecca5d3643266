"""`mma`: who has the instructions, what is laid out anew for them, what is compiled, and that shared tiles are exact."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

import gemmport as gp
import opencl_for_nvidia
from absences import CUDA_COMPILER, needs
from compiled_for import FROM_SM_80, any_of
from exact import Sizes, check_plan, problem_of
from gemmport import kernels
from gemmport.backends import _nvrtc
from gemmport.checking.verification import cut_of
from gemmport.contracts.kernel import Parameters, ceil_div
from gemmport.contracts.named_devices import device_of
from gemmport.core.dtypes import INPUTS
from gemmport.core.plan import Plan
from gemmport.inspection import sass
from gemmport.inspection.loops import hot_loop
from gemmport.kernels import _mma_tilings
from gemmport.runtime.sources import assemble
from made_up_devices import DEVICES
from models import model_of
from test_kernels import BASE

MMA = kernels.variant("mma")
CUDA = replace(DEVICES["NVIDIA sm_90 under CUDA"], dynamic_local_memory=232_448)
OPENCL = DEVICES["NVIDIA sm_90 under OpenCL"]
FLOAT8S = ("float8_e4m3fn", "float8_e5m2")
TYPES = ("float16", "bfloat16", *FLOAT8S, "int8", "uint8")
TF32 = {"dtype": "float32", "precision": "tf32"}


def square(size: int, dtype: str = "float16", ops: str = "NN", **more: object) -> gp.GemmProblem:
    return gp.GemmProblem.create(size, size, size, dtype=dtype, trans_a=ops[0], trans_b=ops[1], **more)


# Who takes it


@pytest.mark.parametrize(
    ("device", "types", "reason"),
    [
        (CUDA, {"dtype": "float32"}, "multiplies float32 as tf32: precision must say so; it is full"),
        (
            CUDA,
            {"dtype": "float32", "precision": "tf32", "accumulator": "float64"},
            "adds up float32 in float32, not in",
        ),
        (CUDA, {"dtype": "complex64", "precision": "tf32"}, "mma computes .*, not complex64"),
        (
            CUDA,
            {"dtype": "float64"},
            "mma computes bfloat16, float16, float32, float8_e4m3fn, float8_e5m2, int8, uint8, not float64",
        ),
        (replace(CUDA, architecture="sm_75"), TF32, "from sm_80 on, this is sm_75"),
        (device_of("sm_80"), {"dtype": "float8_e5m2"}, "multiplies float8_e5m2 from sm_89 on, this is sm_80"),
        (device_of("sm_86"), {"dtype": "float8_e4m3fn"}, "multiplies float8_e4m3fn from sm_89 on, this is sm_86"),
        (CUDA, {"dtype": "float16", "accumulator": "float16"}, "adds up float16 in float32, not in float16"),
        (CUDA, {"dtype": "int8", "output": "int64"}, "adds up int8 in int32, not in int64"),
        (CUDA, {"dtype": "float16", "output": "float64"}, "adds up float16 in float32, not in float64"),
        (replace(CUDA, architecture="sm_75"), {"dtype": "float16"}, "from sm_80 on, this is sm_75"),
        (DEVICES["AMD gfx90a"], {"dtype": "float16"}, "from sm_80 on, this is gfx90a"),
        (DEVICES["CPU under PoCL"], {"dtype": "int8"}, "from sm_80 on, this is znver4"),
    ],
)
def test_who_cannot_take_it_says_why(device: gp.DeviceInfo, types: Mapping[str, str], reason: str) -> None:
    device = replace(device, computes=device.computes | {"float16", "float32", "float64"})
    with pytest.raises(gp.UnsupportedError, match=rf"^mma on .*{reason}"):
        gp.plan(gp.GemmProblem.create(64, 64, 64, **types), device, kernel="mma")


@pytest.mark.parametrize("dtype", FLOAT8S)
def test_of_fp8_the_unit_s_sums_are_promoted_and_judged_by_the_digits_that_it_keeps(dtype: str) -> None:
    """14 on sm_89 alone: sm_90 and sm_100 multiply halves instead, and sm_120 keeps more."""
    for architecture in ("sm_89", "sm_90", "sm_100", "sm_120"):
        plan = gp.plan(square(512, dtype), device_of(architecture), kernel="mma")
        assert dict(plan.launches[-1].kernel.defines)["PROMOTES"] == 1
        assert cut_of(plan) == ((14, 32, True) if architecture == "sm_89" else None)
        chosen = gp.plan(square(512, dtype), device_of(architecture)).variant
        assert chosen == ("wgmma" if architecture == "sm_90" else "mma")
    for other in (square(64), square(64, "int8"), square(64, "float32", precision="tf32")):
        plan = gp.plan(other, device_of("sm_89"), kernel="mma")
        assert "PROMOTES" not in dict(plan.launches[-1].kernel.defines)
        cut = cut_of(plan)
        assert (
            cut is None if other.dtype.name == "int8" else cut is not None and (cut.digits, cut.promoted) == (24, False)
        )


@pytest.mark.parametrize("device", [CUDA, OPENCL, device_of("sm_80")], ids=["cuda", "opencl", "sm_80"])
def test_float32_is_tf32_only_where_it_is_asked_for(device: gp.DeviceInfo) -> None:
    """And there by the matrix unit, on Hopper by `wgmma` where that is expected to be faster."""
    for size in (256, 4096):
        plain, asked = square(size, "float32"), square(size, **TF32)
        assert gp.plan(plain, device).variant == "simt"
        assert gp.plan(asked, device).variant == ("wgmma" if device in (CUDA, OPENCL) and size == 4096 else "mma")
        for variant in kernels.variants():
            if variant.name != "mma" and not variant.unsupported(plain, device):
                plan = gp.plan(plain, device, kernel=variant.name)
                assert not any("TF32" in str(dict(launch.kernel.defines)) for launch in plan.launches)


@pytest.mark.parametrize("ops", ["NN", "NT", "TN", "TT"])
def test_tf32_is_rounded_as_it_is_read_or_beforehand_where_the_device_cannot(ops: str) -> None:
    problem = square(1001, ops=ops, **TF32)
    (launch,) = gp.plan(problem, CUDA, kernel="mma", params={"TSK": 32}).launches
    assert dict(launch.kernel.defines)["ROUNDS_AS_READ"] == 1
    rounds, product = gp.plan(problem, replace(CUDA, architecture="sm_86"), kernel="mma", params={"TSK": 32}).launches
    assert rounds.kernel.stem == "convert"
    assert dict(rounds.kernel.defines)["ROUNDS_TO_TF32"] == 1
    defines = dict(product.kernel.defines)
    assert (defines["ROUNDS_AS_READ"], defines["ALIGNMENT_A"], defines["ALIGNMENT_B"]) == (0, 16, 16)


@pytest.mark.parametrize(
    ("params", "told"),
    [
        ({"WM": 128, "TSM": 64}, "WM ≤ TSM, whole warp tiles of rows"),
        ({"WN": 128, "TSN": 64}, "WN ≤ TSN, whole warp tiles of columns"),
        ({"TSM": 128, "TSN": 128, "WM": 128, "WN": 128}, "WM · WN ≤ 8192, the sums of a warp"),
        ({"TSM": 256, "TSN": 256, "WM": 16, "WN": 16}, "TSM / WM · TSN / WN ≤ 32, the warps of a group"),
        ({"TSM": 16, "TSN": 256, "WM": 16, "WN": 256}, "WN = 256 is not allowed"),
        ({"TSM": 128, "TSN": 256, "WM": 128, "WN": 128}, "WM · WN ≤ 8192"),
    ],
)
def test_a_rule_that_is_broken_is_told(params: Parameters, told: str) -> None:
    with pytest.raises(gp.ParameterError, match=re.escape(told)):
        MMA.complete(params)


def test_steps_must_be_whole_turns_of_the_unit() -> None:
    with pytest.raises(gp.ParameterError, match=r"mma on .*: TSK must be whole turns of the unit, 32 terms of int8"):
        gp.plan(square(64, "int8"), CUDA, kernel="mma", params={"TSK": 16})


# What is laid out anew


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("ops", ["NN", "NT", "TN", "TT"])
@pytest.mark.parametrize("anew", [0, 1])
@pytest.mark.parametrize("size", [256, 250])
def test_operands_are_laid_out_anew_where_and_only_where_they_must_be(
    dtype: str, ops: str, anew: int, size: int
) -> None:
    """Bytes that lie across k, since only halves are turned as they are read; and, where it is asked for, unaligned rows."""
    plan = gp.plan(square(size, dtype, ops), CUDA, kernel="mma", params={"TSK": 32, "ANEW": anew})
    across = {"a": ops[0] == "T", "b": ops[1] == "N"}
    unaligned = bool(anew) and size % 16 != 0
    wanted = {x for x, lies in across.items() if unaligned or (lies and INPUTS[dtype].itemsize == 1)}
    assert {each.name for each in plan.scratch} == {f"{x}_anew" for x in wanted}
    assert [launch.kernel.stem for launch in plan.launches] == ["relayout"] * len(wanted) + ["mma"]
    defines = dict(plan.launches[-1].kernel.defines)
    for operand in wanted:
        assert defines[f"ALIGNMENT_{operand.upper()}"] == 16
    if INPUTS[dtype].itemsize == 1:
        assert (defines["TRANSPOSE_A"], defines["TRANSPOSE_B"]) == (0, 1)


def test_without_terms_nothing_is_laid_out() -> None:
    for problem in (square(64, "int8", "TN", alpha=0.0, beta=2.0), gp.GemmProblem.create(64, 64, 0, dtype="int8")):
        plan = gp.plan(problem, CUDA, kernel="mma", params={"ANEW": 1})
        assert [launch.kernel.stem for launch in plan.launches] == ["mma"]


def test_more_shared_memory_than_can_be_declared_is_brought_by_the_launch() -> None:
    params = {"TSM": 128, "TSN": 256, "WM": 64, "WN": 64, "STAGES": 4}
    (launch,) = gp.plan(square(1024), CUDA, kernel="mma", params=params).launches
    assert (launch.local_bytes, launch.dynamic_local_bytes) == (0, 4 * 384 * 64)
    assert dict(launch.kernel.defines)["GIVEN"] == 1
    with pytest.raises(gp.ParameterError, match="98,304 bytes of local memory"):
        gp.plan(square(1024), OPENCL, kernel="mma", params=params)


# What is considered


@pytest.mark.parametrize(
    ("device", "dtype"),
    [
        *itertools.product((CUDA, OPENCL, device_of("sm_86")), ("float16", "bfloat16", "int8", "uint8")),
        *itertools.product((CUDA, OPENCL, device_of("sm_89")), FLOAT8S),
    ],
    ids=lambda value: value if isinstance(value, str) else f"{value.backend}-{value.architecture}",
)
@pytest.mark.parametrize("size", [1, 100, 1001, 8192])
def test_what_is_considered_fits_and_the_first_is_expected_to_be_the_fastest(
    device: gp.DeviceInfo, dtype: str, size: int
) -> None:
    problem, model = square(size, dtype), model_of(device)
    found = MMA.considered(problem, device, model)
    seconds = [MMA.predicted(problem, device, model, MMA.complete(each)).seconds for each in found]
    assert seconds == sorted(seconds)
    assert 0 < seconds[0] < 2  # on one unit of sm_86
    for each in found:
        gp.plan(problem, device, kernel="mma", params=each)
    assert {each["ANEW"] for each in found} == ({0, 1} if size % 16 else {0})


def test_small_tiles_are_expected_of_small_products_and_large_ones_of_large_products() -> None:
    model = model_of(CUDA)
    small, large = (MMA.suggested(square(size), CUDA, model) for size in (256, 8192))
    assert small["TSM"] * small["TSN"] < large["TSM"] * large["TSN"]


# What is compiled


LISTED = (*model_of(device_of("sm_90")).tilings["mma"], _mma_tilings.SMALLEST)
"""The tilings of NVIDIA's GPUs, for elements of two bytes."""


def fitted(device: gp.DeviceInfo, problem: gp.GemmProblem) -> list[Parameters]:
    """The tilings of the device's model, as they serve a problem."""
    assert (*model_of(device).tilings["mma"], _mma_tilings.SMALLEST) == LISTED
    own = _mma_tilings.constants(device, model_of(device))
    return [values for each in LISTED if (values := _mma_tilings.fit(MMA, each, problem, device, own))]


def test_a_product_of_few_steps_has_no_more_stages_than_it_fills() -> None:
    """Of 262144 × 8 × 8, whose one step needs two, a unit has as many groups under CUDA as in OpenCL, which has less local
    memory: it took 22.9 and 15.9 µs on an H100 (docs/calls.md).
    """
    cuda, opencl = (DEVICES[f"NVIDIA sm_90 under {language}"] for language in ("CUDA", "OpenCL"))
    chosen = [gp.plan(gp.GemmProblem.create(2**18, 8, 8, dtype="bfloat16", trans_b="T"), x) for x in (cuda, opencl)]
    assert chosen[0].variant == "mma"
    assert chosen[0].values == chosen[1].values
    assert chosen[0].values["STAGES"] == 2
    for terms, most in ((0, 2), (32, 2), (33, 3), (64, 3), (65, 4), (300, 6)):
        found = fitted(cuda, gp.GemmProblem.create(512, 512, terms, dtype="bfloat16"))
        assert max(int(each["STAGES"]) for each in found) == most
        assert all(int(each["STAGES"]) <= max(ceil_div(terms, int(each["TSK"])), 1) + 1 for each in found)


@pytest.mark.parametrize(("terms", "waits_alike"), [(1, True), (64, True), (65, False), (128, False)])
def test_stages_that_a_product_does_not_fill_are_not_missed_in_predictions(terms: int, waits_alike: bool) -> None:
    """Two stages hold all of one step of 64 terms, and not all of two."""
    device = DEVICES["NVIDIA sm_90 under CUDA"]
    asked = gp.GemmProblem.create(512, 512, terms, dtype="bfloat16")
    two, four = (
        MMA.predicted(asked, device, model_of(device), MMA.complete({**BASE["mma"], "TSK": 64, "STAGES": stages}))
        for stages in (2, 4)
    )
    assert (two.parts["latency"] == four.parts["latency"]) == waits_alike


def are_as_deep(dtype: str) -> int:
    """How many of the listed tilings there are of a type: steps have as many bytes, and so many terms at most."""
    (deepest,) = (max(each.choices) for each in MMA.parameters if each.name == "TSK")
    return sum(each["TSK"] * 2 // INPUTS[dtype].itemsize <= deepest for each in LISTED)


def product_of(problem: gp.GemmProblem, device: gp.DeviceInfo, params: Parameters) -> str:
    """The source of the product itself."""
    plan = gp.plan(problem, device, kernel="mma", params={**params, "SHARE": 0})
    return assemble(plan.launches[-1].kernel, device.language)


INSTRUCTIONS = {
    "float32": "m16n8k8.row.col.f32.tf32.tf32.f32",
    "float16": "m16n8k16.row.col.f32.f16.f16.f32",
    "bfloat16": "m16n8k16.row.col.f32.bf16.bf16.f32",
    "float8_e4m3fn": "m16n8k32.row.col.f32.e4m3.e4m3.f32",
    "float8_e5m2": "m16n8k32.row.col.f32.e5m2.e5m2.f32",
    "int8": "m16n8k32.row.col.s32.s8.s8.s32",
    "uint8": "m16n8k32.row.col.s32.u8.u8.s32",
}


@needs(CUDA_COMPILER)
@pytest.mark.parametrize("dtype", [*TYPES, "float32"])
def test_products_are_the_matrix_unit_s(dtype: str) -> None:
    """And come through cp.async and ldmatrix, which turns halves that lie across k; nothing goes by a thread's own memory. TF32
    is rounded once, and read across k by ordinary loads. Of FP8 each sum is added.
    """
    params = {"TSM": 128, "TSN": 64, "TSK": 64, "WM": 32, "WN": 32, "STAGES": 3}
    precision = "tf32" if dtype == "float32" else "full"
    ptx = _nvrtc.compile_cuda(product_of(square(256, dtype, precision=precision), CUDA, params), "sm_999").decode()
    loop = ptx[ptx.index("mma.sync") : ptx.rindex("mma.sync")]
    turns = 64 * INPUTS[dtype].itemsize // 32
    assert ptx.count(f"mma.sync.aligned.{INSTRUCTIONS[dtype]}") == turns * 2 * 4
    assert ptx.count("mma.sync") == turns * 2 * 4
    turned = "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16" in loop
    assert turned == (INPUTS[dtype].itemsize == 2)
    assert "cp.async.cg.shared.global" in ptx
    assert not re.search(r"ld\.local|st\.local|fma\.rn\.f32", loop)
    assert loop.count("add.rn.f32") + loop.count("add.f32") == (turns * 2 * 4 * 4 - 4 if dtype in FLOAT8S else 0)
    assert ptx.count("cvt.rn.tf32.f32") == (turns * (2 + 2) * 4 if dtype == "float32" else 0)


PLACES = [("NN", 1024), ("TT", 1000), ("NT", 1001)]
"""Ops and sizes: whole tiles; edges, with rows that are aligned to 8 bytes; and rows that are not aligned."""


@needs(CUDA_COMPILER)
@pytest.mark.every_value("architecture", FROM_SM_80)
@pytest.mark.every_value("dtype", (*TYPES, "float32"))
@pytest.mark.every_value(("ops", "size"), PLACES)
def test_the_largest_tiling_has_room_in_registers(architecture: str, dtype: str, ops: str, size: int) -> None:
    check_room(architecture, dtype, ops, size, LARGEST)


@needs(CUDA_COMPILER)
@pytest.mark.machine_code
@pytest.mark.every_pair("architecture", FROM_SM_80)
@pytest.mark.every_pair("dtype", (*TYPES, "float32"))
@pytest.mark.every_pair(("ops", "size"), PLACES)
@pytest.mark.every_pair("number", range(len(LISTED)))
def test_every_listed_tiling_has_room_in_registers(
    architecture: str, dtype: str, ops: str, size: int, number: int
) -> None:
    check_room(architecture, dtype, ops, size, number)


LARGEST = max(range(len(LISTED)), key=lambda number: LISTED[number]["WM"] * LISTED[number]["WN"])


def check_room(architecture: str, dtype: str, ops: str, size: int, number: int) -> None:
    """That a tiling, by its number among those that fit, spills nothing.

    The tilings were found with NVRTC 13.5, which spills none. Of warps' tiles of 64 × 64, 13.0 spills up to 9 words, at most 7
    accesses to which stand among the 128 products of a step.
    """
    device = any_of(architecture)
    precision = "tf32" if dtype == "float32" else "full"
    if dtype in FLOAT8S and int(architecture.removeprefix("sm_")) < 89:
        assert "from sm_89 on" in str(MMA.unsupported(square(1, dtype), device))
        return
    integers = dtype in ("int8", "uint8")
    output = "int32" if integers else "float32" if dtype in FLOAT8S else dtype
    problem = square(size, dtype, ops, output=output, precision=precision, beta=1.0)
    tilings = fitted(device, problem)
    without_room = (1 + (ops == "NT")) * integers  # `_mma_tilings._more_registers` says which
    assert len(tilings) == are_as_deep(dtype) - without_room or dtype in ("float32", *FLOAT8S)
    tiling = tilings[number % len(tilings)]
    told = _nvrtc.disassemble(product_of(problem, device, tiling), architecture, "mma")
    found = told.resources
    version = tuple(map(int, re.findall(r"\d+", _nvrtc.compiler())[:2]))
    assert found.spill_stores is not None
    assert found.spill_stores <= (0 if version >= (13, 5) or tiling["WM"] * tiling["WN"] < 64 * 64 else 36), tiling
    for listing in (each for each in told.listings if "MMA" in each.text):
        accesses = [each.text for each in hot_loop(sass.parse(listing.text)) if re.search(r"\b(LDL|STL)\b", each.text)]
        assert len(accesses) <= (0 if version >= (13, 5) else 7), accesses
    assert found.registers is not None
    assert found.registers <= 255


@pytest.mark.machine_code
@pytest.mark.every_pair("dtype", (*TYPES, "float32"))
@pytest.mark.every_pair("ops", ["NN", "NT", "TN", "TT"])
@pytest.mark.every_pair("size", [1000, 1001, 1024])
@pytest.mark.every_pair("share", [0, 2])
def test_opencl_s_source_compiles_for_nvidia_s_gpus(
    dtype: str, ops: str, size: int, share: int, tmp_path: Path
) -> None:
    depth, stages = (32, 2) if dtype == "float32" else (64, 3)
    params = {"TSM": 64, "TSN": 64, "TSK": depth, "WM": 32, "WN": 32, "STAGES": stages, "SHARE": share}
    problem = square(size, dtype, ops, beta=1.0, precision="tf32" if dtype == "float32" else "full")
    architecture = "sm_90" if dtype == "float32" else "sm_89" if dtype in FLOAT8S else "sm_80"
    for launch in gp.plan(problem, OPENCL, kernel="mma", params=params).launches:
        if launch.kernel.stem == "mma":
            opencl_for_nvidia.compiled(launch, architecture, tmp_path)


# Shared tiles

SHARED = Sizes(33, 67, 300)
"""4 tiles of 10 steps in each of 3 matrices: fewer than the groups that share them, and with edges along all dimensions."""


def shared_plan(backend: gp.Backend, problem: gp.GemmProblem) -> Plan:
    """A plan in which groups share tiles: the second launch adds up the parts."""
    plan = gp.plan(problem, backend.device, kernel="mma", params={**BASE["mma"], "WM": 32, "WN": 16, "SHARE": 8})
    assert [launch.kernel.function for launch in plan.launches][-1] == "combine"
    return plan


def check_shared(backend: gp.Backend, types: tuple[str, ...] = ("float16", "int8", "float32")) -> None:
    """Shared tiles of a batch, with scalars and edges; rows and columns are read along k and across."""
    for dtype in types:
        for ops in ("NT", "TN"):
            precision = "tf32" if dtype == "float32" else "full"
            problem = problem_of(SHARED, ops, dtype, alpha=2.0, beta=-1.0, batch=3, precision=precision)
            check_plan(backend, shared_plan(backend, problem))


def test_shared_tiles_are_exact(backend: gp.Backend) -> None:
    if reason := MMA.unsupported(square(64), backend.device):
        with pytest.raises(gp.UnsupportedError, match=re.escape(reason)):
            gp.plan(square(64), backend.device, kernel="mma")
    else:
        check_shared(backend)
