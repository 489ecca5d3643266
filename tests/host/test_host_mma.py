"""`mma` on the CPU: its instructions as the PTX ISA has them, products that are exact in every order, faults that show."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import gemmport as gp
import test_mma
from absences import CXX, needs
from exact import Sizes, check, problem_of
from gemmport.backends.objects import Program
from gemmport.bench import products
from gemmport.bench.products import Options, run_benchmark
from gemmport.checking.guarded_run import try_plan
from gemmport.checking.reference import reference, rounded
from gemmport.checking.verification import check_exact, check_random, cut_of, exact_operands, random_operands
from gemmport.contracts.nvidia import TF32_ROUNDING
from gemmport.core.dtypes import as_dtype
from gemmport.core.precision import FORMATS
from gemmport.planning.lookup import load_configuration
from host import ORDERS, Host
from mutations import MUTATIONS, Edit, Mutation, planted
from on_host import MORE, fault, in_every_order, opened, product
from test_dtypes import problems
from test_kernels import BASE, STRUCTURES, check_structure

pytestmark = needs(CXX)

TYPES = {
    "F16": (np.float16, np.float32, 16),
    "BF16": (ml_dtypes.bfloat16, np.float32, 16),
    "TF32": (np.float32, np.float32, 8),
    "E4M3": (ml_dtypes.float8_e4m3fn, np.float32, 32),
    "E5M2": (ml_dtypes.float8_e5m2, np.float32, 32),
    "S8": (np.int8, np.int32, 32),
    "U8": (np.uint8, np.int32, 32),
}
"""By the unit's name: of the operands, of the sums, and the terms that are added up at once."""


@pytest.fixture(scope="module")
def cpu() -> Host:
    return opened()


# The instructions. A warp brings A, 16 lines of 32 bytes, and B, 8 of them, to shared memory, reads them as the matrices that
# ldmatrix is for, and multiplies; then lane 4 · g + t stores its sums, of rows g and g + 8 and columns 2 · t and 2 · t + 1.
PROBES = """
template <class Sum> __device__ void store(Sum *out, Sum d0, Sum d1, Sum d2, Sum d3)
{
    Sum *const upper = out + threadIdx.x / 4 * 8 + threadIdx.x % 4 * 2;
    upper[0] = d0;
    upper[1] = d1;
    upper[64] = d2;
    upper[65] = d3;
}
#define PRODUCT(unit, Sum)                                                                             \\
    extern "C" __global__ void multiply_##unit(Sum *out, const uint4 *a, const uint4 *b)               \\
    {                                                                                                  \\
        __shared__ uint4 tile[48];                                                                     \\
        const int lane = threadIdx.x;                                                                  \\
        tile[lane] = a[lane];                                                                          \\
        if (lane < 16)                                                                                 \\
            tile[32 + lane] = b[lane];                                                                 \\
        __syncthreads();                                                                               \\
        unsigned x[4], y[4];                                                                           \\
        LOAD_MATRICES(x[0], x[1], x[2], x[3], tile + lane % 16 * 2 + lane / 16);                       \\
        LOAD_MATRICES(y[0], y[1], y[2], y[3], tile + 32 + lane % 8 * 2 + lane / 8 % 2);                \\
        Sum d0 = 1, d1 = 2, d2 = 3, d3 = 4;                                                            \\
        WARP_MUL_ADD_##unit(d0, d1, d2, d3, x[0], x[1], x[2], x[3], y[0], y[1]);                       \\
        store(out, d0, d1, d2, d3);                                                                    \\
    }
PRODUCT(F16, float)
PRODUCT(BF16, float)
PRODUCT(TF32, float)
PRODUCT(E4M3, float)
PRODUCT(E5M2, float)
PRODUCT(S8, unsigned)
PRODUCT(U8, unsigned)

extern "C" __global__ void round_each(unsigned *out, const unsigned *bits)
{
    unsigned x = bits[threadIdx.x];
    ROUND_TO_TF32(x);
    out[threadIdx.x] = x;
}

extern "C" __global__ void turn(unsigned *out, const uint4 *a)
{
    __shared__ uint4 tile[32];
    tile[threadIdx.x] = a[threadIdx.x];
    __syncthreads();
    unsigned x[4];
    LOAD_TURNED_MATRICES(x[0], x[1], x[2], x[3], tile + threadIdx.x);
    for (int j = 0; j < 4; ++j)
        out[32 * j + threadIdx.x] = x[j];
}

extern "C" __global__ void between_rows(unsigned *out)
{
    __shared__ uint4 tile[33];
    unsigned x[4];
    LOAD_MATRICES(x[0], x[1], x[2], x[3], (char *)tile + 16 * threadIdx.x + 4);
    out[threadIdx.x] = x[0];
}
"""


@pytest.fixture(scope="module")
def instructions(cpu: Host) -> Program:
    return cpu.program((Path(Host.overrides) / "ptx.cu").read_text(encoding="utf-8") + PROBES)


def run(cpu: Host, program: Program, function: str, out: np.ndarray, *more: np.ndarray) -> np.ndarray:
    """What a warp leaves in `out`."""
    memory = [cpu.asarray(array).memory for array in (out, *more)]
    cpu.launch(cpu.prepare(program, function, (1, 1, 1), (32, 1, 1), memory))
    cpu.download(memory[0], out)
    return out


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("unit", TYPES)
def test_a_warp_multiplies_matrices_as_the_isa_says(cpu: Host, instructions: Program, unit: str, order: str) -> None:
    cpu.order = order
    dtype, sums, terms = TYPES[unit]
    rng = np.random.default_rng(8)
    limits = {np.uint8: (0, 256), ml_dtypes.float8_e4m3fn: (-16, 17), ml_dtypes.float8_e5m2: (-8, 9)}.get(
        dtype, (-128, 128)
    )
    a, b = (rng.integers(*limits, (lines, terms)).astype(dtype) for lines in (16, 8))
    before = np.zeros((16, 8), np.int64)
    before[:8, ::2], before[:8, 1::2], before[8:, ::2], before[8:, 1::2] = 1, 2, 3, 4
    got = run(cpu, instructions, f"multiply_{unit}", np.zeros((16, 8), sums), a.view(np.uint8), b.view(np.uint8))
    assert np.array_equal(got.astype(np.int64), before + a.astype(np.int64) @ b.astype(np.int64).T)


def test_the_unit_of_fp8_cuts_to_14_digits(cpu: Host, instructions: Program) -> None:
    """Half of the terms at once; a product to what the largest leaves of it, to zero, and so the sum."""
    a, b = np.zeros((16, 32), ml_dtypes.float8_e4m3fn), np.ones((8, 32), ml_dtypes.float8_e4m3fn)
    a[0, :2] = 256, -0.0625 - 2.0**-9  # in 2⁻⁵: the latter is two of them, and what is cut off
    a[1, :2] = 256, 2.0**-6  # less than one
    a[2, [0, 16]] = 256, 2.0**-6  # in the other half the sum of the first is as large
    a[3, 1:3] = 2.0**-6, 2.0**-9  # nothing is cut, beside a sum of 1 and 2 in steps of 2⁻¹³
    a[4, :], a[4, 16:] = 448, -448
    got = run(cpu, instructions, "multiply_E4M3", np.zeros((16, 8), np.float32), a.view(np.uint8), b.view(np.uint8))
    assert got[:5, 0].tolist() == [257 - 0.0625, 257, 257, 1 + 2.0**-6 + 2.0**-9, 1]


@pytest.mark.parametrize("order", ORDERS)
def test_turned_matrices_have_columns_for_rows(cpu: Host, instructions: Program, order: str) -> None:
    """Lane 4 · g + t has of matrix j the elements [2 · t, g] and [2 · t + 1, g]."""
    cpu.order = order
    matrices = np.arange(4 * 8 * 8, dtype=np.uint16).reshape(4, 8, 8)
    got = run(cpu, instructions, "turn", np.zeros((4, 32), np.uint32), matrices.view(np.uint8))
    assert np.array_equal(got.view(np.uint16).reshape(4, 8, 4, 2), matrices.transpose(0, 2, 1).reshape(4, 8, 4, 2))


def test_rows_that_are_not_aligned_are_refused(cpu: Host, instructions: Program) -> None:
    with pytest.raises(gp.LaunchError, match="ldmatrix: a row must be aligned to its 16 bytes"):
        run(cpu, instructions, "between_rows", np.zeros(32, np.uint32))


def test_tf32_is_rounded_as_the_pass_rounds_it(cpu: Host, instructions: Program) -> None:
    """Ties, carries, subnormal numbers and what is beyond the largest; NaN may be another one."""
    rng = np.random.default_rng(1)
    chosen = [0, 1, 0xFFF, 0x1000, 0x1001, 0x3000, 0x7FF000, 0x3F801000, 0x3F803000, 0x3F801001, 0x7F7FF000, 0x7F800000]
    bits = np.array([*chosen, *rng.integers(0, 0x7F800000, 52)], np.uint32)
    bits[1::2] |= np.uint32(0x80000000)
    wanted = rounded(bits.view(np.float32), FORMATS["tf32"]).view(np.uint32)
    for first in range(0, bits.size, 32):
        part = bits[first : first + 32]
        got = run(cpu, instructions, "round_each", np.zeros(32, np.uint32), part)
        assert np.array_equal(got, wanted[first : first + 32])
    nan = run(cpu, instructions, "round_each", np.zeros(32, np.uint32), np.full(32, 0x7F800001, np.uint32))
    assert np.isnan(nan.view(np.float32)).all()


def test_numbers_that_were_not_rounded_are_refused(cpu: Host, instructions: Program) -> None:
    a, b = np.ones((16, 8), np.float32), np.ones((8, 8), np.float32)
    a[5, 3] += 2.0**-11
    with pytest.raises(gp.LaunchError, match="must hold a number of TF32"):
        run(cpu, instructions, "multiply_TF32", np.zeros((16, 8), np.float32), a.view(np.uint8), b.view(np.uint8))


# Products


@pytest.mark.sample(dtype=["int8", "bfloat16"], ops=["NT"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "int8", "uint8"])
@pytest.mark.parametrize("ops", ["NN", "NT", "TN", "TT"])
def test_products_of_every_type_are_exact_in_every_order(cpu: Host, dtype: str, ops: str) -> None:
    product(cpu, "mma", ops, dtype=dtype)
    product(cpu, "mma", ops, {**MORE["mma"], "ANEW": 1}, dtype)


FLOAT8S = ("float8_e4m3fn", "float8_e5m2")


@pytest.mark.sample(dtype=["float8_e5m2"], output=["float16"])
@pytest.mark.parametrize("dtype", FLOAT8S)
@pytest.mark.parametrize("output", ["float32", "float16", "bfloat16"])
def test_every_pair_of_fp8_is_multiplied_exactly(cpu: Host, dtype: str, output: str) -> None:
    """Subnormal numbers, infinities and NaN among them; what no output holds is rounded once."""
    numbers = np.arange(256, dtype=np.uint8).view(as_dtype(dtype).numpy)
    problem = gp.GemmProblem.create(256, 256, 1, dtype=dtype, output=output)
    operands = {"a": numbers.reshape(1, 256, 1), "b": numbers.reshape(1, 1, 256)}
    found = try_plan(cpu, gp.plan(problem, cpu.device, kernel="mma", params=BASE["mma"]), operands)
    assert not found.stray
    with np.errstate(all="ignore"):
        wanted = np.multiply.outer(numbers.astype(np.float32), numbers.astype(np.float32)).astype(found.d.dtype)
    np.testing.assert_array_equal(found.d[0].astype(np.float32), wanted.astype(np.float32))


SMALL_TILE = {"TSM": 16, "TSN": 16, "TSK": 64, "WM": 16, "WN": 16, "STAGES": 2, "SHARE": 0}


def check_long_sums(cpu: Host, dtype: str = "float8_e4m3fn", output: str = "float32", share: int = 0) -> None:
    """N(0, 1) operands, many terms, by the bound of sums of so many terms that a unit cuts."""
    problem = problem_of(Sizes(17, 30, 16_384), "NT", dtype, output=output, beta=-1.0)
    plan = gp.plan(problem, cpu.device, kernel="mma", params={**SMALL_TILE, "SHARE": share})
    assert (plan.launches[-1].kernel.function == "combine") == bool(share)
    operands = random_operands(problem, 1)
    found = try_plan(cpu, plan, operands)
    assert not found.stray
    check = check_random(problem, operands, found.d, cut=cut_of(plan))
    assert check.passed, f"wrong: {check.detail}"


@pytest.mark.sample(dtype=["float8_e4m3fn"], output=["float32"], share=[0])
@pytest.mark.parametrize("dtype", FLOAT8S)
@pytest.mark.parametrize("output", ["float32", "bfloat16"])
@pytest.mark.parametrize("share", [0, 1])
def test_long_sums_of_fp8_are_promoted(cpu: Host, dtype: str, output: str, share: int) -> None:
    check_long_sums(cpu, dtype, output, share)


@pytest.mark.sample(huge=[False])
@pytest.mark.parametrize("huge", [False, True])
def test_who_verifies_what_it_times_knows_of_the_cut(cpu: Host, huge: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """`gemmport run`, of small products and of huge ones."""
    monkeypatch.setattr(products, "get_backend", lambda **_: cpu)
    monkeypatch.setattr(products.verify, "FULL_REFERENCE_FLOPS", 0 if huge else 1e30)
    problem = gp.GemmProblem.create(20, 30, 96, dtype="float8_e4m3fn")
    options = Options(load_configuration(), kernels=("mma",), params=SMALL_TILE, baselines=(), repeat=1)
    (result,) = run_benchmark([problem], [cpu.device], options)
    assert result.status == "ok", result.reason


PART = r"acc_t part\[4\] = \{ACC_ZERO, ACC_ZERO, ACC_ZERO, ACC_ZERO\};"
ADDS = r"sum_of\(sum\[r\]\[c\]\[e\], part\[e\]\)"
FP8_FAULTS = {
    "does not promote": (
        Edit(PART, "acc_t part[4] = {sum[r][c][0], sum[r][c][1], sum[r][c][2], sum[r][c][3]};"), Edit(ADDS, "part[e]")
    ),
    "keeps the sums of the last turn alone": (Edit(ADDS, "part[e]"),),
    "promotes the sums of another row": (Edit(ADDS, "sum_of(sum[r][c][e], part[(e + 2) % 4])"),),
}  # fmt: skip


@pytest.mark.planted_fault
@pytest.mark.sample(name=["does not promote"])
@pytest.mark.parametrize("name", FP8_FAULTS)
def test_each_fault_of_promotion_shows(cpu: Host, name: str) -> None:
    with planted(Mutation(name, FP8_FAULTS[name], ("mma",)), "mma"), pytest.raises(AssertionError, match="wrong"):
        check_long_sums(cpu)


TF32_PARAMS = {**BASE["mma"], "TSK": 16}


def check_tf32(backend: Host, ops: str = "TN", *, device: gp.DeviceInfo | None = None) -> None:
    """Operands that show each fault of rounding (docs/verification.md), and nothing but D is written."""
    problem = problem_of(Sizes(37, 70, 133), ops, "float32", batch=2, alpha=2.0, beta=-1.0, precision="tf32")
    plan = gp.plan(problem, device or backend.device, kernel="mma", params=TF32_PARAMS)
    assert any(launch.kernel.stem == "convert" for launch in plan.launches) == (device is not None)
    operands = exact_operands(problem, 1)
    trial = try_plan(backend, plan, operands)
    assert not trial.stray
    check = check_exact(reference(problem, operands), trial.d)
    assert check.passed, f"wrong: {check.detail}"


@pytest.mark.sample(ops=["NN", "TT"])
@pytest.mark.parametrize("ops", ["NN", "NT", "TN", "TT"])
def test_products_of_tf32_are_those_of_rounded_operands(cpu: Host, ops: str) -> None:
    """Rounded as they are read, and by a pass beforehand."""
    without = replace(cpu.device, extensions=cpu.device.extensions - {TF32_ROUNDING})
    in_every_order(cpu, lambda: check_tf32(cpu, ops))
    check_tf32(cpu, ops, device=without)


@pytest.mark.sample(ops=["TN"])
@pytest.mark.parametrize("ops", ["NN", "NT", "TN", "TT"])
def test_products_of_tf32_are_exact_in_tiles_of_any_shape(cpu: Host, ops: str) -> None:
    for tile in ((16, 16, 16, 16, 16), (64, 32, 32, 32, 16), (32, 128, 64, 32, 64)):
        params = dict(zip(("TSM", "TSN", "TSK", "WM", "WN"), tile, strict=True))
        for sizes, multiple in ((Sizes(33, 65, 67), 1), (Sizes(2 * tile[0], 2 * tile[1], 2 * tile[2]), 4)):
            for anew in (0, 1):
                problem = problem_of(sizes, ops, "float32", precision="tf32", multiple=multiple, beta=2.0)
                check(cpu, problem, "mma", {**params, "ANEW": anew})


TF32_FAULTS = {
    "rounds no rows": (r"ROUND_EACH\(a\[r\]\);", ""),
    "rounds no columns": (r"ROUND_EACH\(b\[c / 2\]\);", ""),
    "cuts off": (r"ROUND_TO_TF32\(number\[x\]\)", "number[x] &= 0xffffe000u"),
    "rounds ties away from zero": (
        r"ROUND_TO_TF32\(number\[x\]\)", "number[x] = (number[x] + 0x1000u) & 0xffffe000u"
    ),
    "reads terms of the other half": (r"of_a \? number / 2 : number % 2", "of_a ? number % 2 : number / 2"),
    "reads lines of the other eight": (r"of_a \? number % 2 : number / 2", "of_a ? number / 2 : number % 2"),
    "reads another term": (r"PIECE_AT\(lane % 4, 0", "PIECE_AT(lane / 8, 0"),
    "reads another line": (r"PIECE \+ line \+ lane / 4;", "PIECE + line + lane / 8;"),
    "parts no terms where they are copied": (
        r"tile \+ PIECE_AT\(row, piece, pieces, along_k\)", "tile + PIECE_AT(row, piece, pieces, true)"
    ),
}  # fmt: skip


@pytest.mark.planted_fault
@pytest.mark.sample(name=["cuts off"])
@pytest.mark.parametrize("name", TF32_FAULTS)
def test_each_fault_of_tf32_shows(cpu: Host, name: str) -> None:
    with planted(fault(*TF32_FAULTS[name], "mma"), "mma"), pytest.raises((AssertionError, gp.LaunchError)) as found:
        check_tf32(cpu)
    assert re.search("wrong|stray|a number of TF32", str(found.value))


@pytest.mark.parametrize("multiple", [1, 2, 4, 8, 16])
def test_rows_of_every_alignment_are_exact(cpu: Host, multiple: int) -> None:
    """Aligned to 1 to 16 bytes, and those of halves to twice as many."""
    for dtype, ops in (("int8", "NT"), ("float16", "TN")):
        for sizes in (Sizes(33, 65, 67), Sizes(1, 1, 1)):
            check(cpu, problem_of(sizes, ops, dtype, batch=2, multiple=multiple), "mma", BASE["mma"])


@pytest.mark.sample(number=[0])
@pytest.mark.parametrize("number", range(5))
def test_tiles_of_any_shape_are_exact_here(cpu: Host, number: int) -> None:
    own = [(kernel, params) for kernel, params in STRUCTURES if kernel == "mma"]
    check_structure(cpu, *own[number])


def test_what_a_launch_brings_of_shared_memory_is_used(cpu: Host) -> None:
    params = {"TSM": 128, "TSN": 128, "TSK": 64, "WM": 64, "WN": 64, "STAGES": 3}
    problem = problem_of(Sizes(130, 100, 200), "NT", "float16", multiple=8)
    assert gp.plan(problem, cpu.device, kernel="mma", params=params).launches[-1].dynamic_local_bytes == 98304
    check(cpu, problem, "mma", params)


@pytest.mark.sample(dtype=["float16"])
@pytest.mark.parametrize("dtype", ["float16", "float8_e5m2", "int8", "float32"])
def test_shared_tiles_are_exact_here(cpu: Host, dtype: str) -> None:
    test_mma.check_shared(cpu, (dtype,))


# Faults

OWN = [each for each in MUTATIONS if "mma" in each.kernels]


@pytest.mark.planted_fault
@pytest.mark.sample(mutation=[each for each in OWN if each.name == "reads terms of the other half"])
@pytest.mark.parametrize("mutation", OWN, ids=lambda mutation: mutation.name.replace(" ", "-"))
def test_each_fault_shows(cpu: Host, mutation: Mutation) -> None:
    with planted(mutation, "mma"), pytest.raises(AssertionError, match=r"wrong|written outside|elements"):
        check_against(cpu, mutation)


def check_against(cpu: Host, mutation: Mutation) -> None:
    """The check that must notice it."""
    if mutation.noticed_by == "shared tiles":
        test_mma.check_shared(cpu, (mutation.types[0],))
    for problem in problems("mma", mutation.types, mutation.ops):
        check(cpu, problem, "mma", BASE["mma"])
