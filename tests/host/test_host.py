"""CUDA's sources on the CPU, by the backend of this folder: each is exact there, and what is wrong with one shows."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

import gemmport as gp
import host_compiler
from absences import CXX, SANITIZERS, needs
from exact import WIDEST_RUN, Sizes, check, check_plan, problem_of, run_plan
from gemmport import kernels
from gemmport.backends.objects import Program
from gemmport.contracts.kernel import Parameters
from gemmport.contracts.nvidia import MATRIX_UNIT, MATRIX_UNIT_OF_8_ROWS
from gemmport.core.errors import LaunchError
from gemmport.kernels.microbenchmarks import F64_8, matrix_units
from host import ORDERS, Host
from mutations import Edit, Mutation, planted
from on_device import check_microbenchmarks
from on_host import (
    BY_MATRIX_CORES,
    BY_MATRIX_UNIT,
    FAULTS,
    HELD_BY_LINE,
    MORE,
    PASSES,
    SCALES,
    SHARED_SLICES,
    VARIANTS,
    fault,
    in_every_order,
    opened,
    product,
    run_pass,
)
from test_dtypes import TYPES, Types
from test_simt import MANY_SUMS
from test_special_values import assert_same, complex_product, with_specials

pytestmark = needs(CXX)

HERE = Path(__file__).parent
SOURCES = Path(kernels.__file__).parent / "cuda"

WAIT = r"(?:__syncthreads|SYNC_SUB_GROUP|END_OF_COPIES|AWAIT_COPIES|COMMIT_COPIES|WAIT_FOR_COPIES)\([^()]*\);"
"""A barrier of a source, a wait for its copies, or what says which copies are waited for."""

WAITS = {path.stem: len(re.findall(WAIT, path.read_text(encoding="utf-8"))) for path in sorted(SOURCES.glob("*.cu"))}


@pytest.fixture(scope="module")
def cpu() -> Host:
    return opened()


def test_every_source_is_run() -> None:
    assert {path.stem for path in SOURCES.glob("*.cu")} == {*VARIANTS, *PASSES}


@pytest.mark.parametrize("ops", ["NN", "TT"])
@pytest.mark.parametrize("kernel", VARIANTS)
def test_products_are_exact_in_every_order(cpu: Host, kernel: str, ops: str) -> None:
    product(cpu, kernel, ops)


@pytest.mark.parametrize("name", PASSES)
def test_passes_are_exact_in_every_order(cpu: Host, name: str) -> None:
    run_pass(cpu, name)


def test_microbenchmarks_of_a_matrix_unit_of_8_rows_are_exact(of_8_rows: Host) -> None:
    assert matrix_units(of_8_rows.device)["float64"] == F64_8
    in_every_order(of_8_rows, lambda: check_microbenchmarks(of_8_rows))


@pytest.mark.planted_fault
@pytest.mark.parametrize(
    ("pattern", "replacement"),
    [
        (r"(?s)(multiply_matrices.*?)s < steps;", r"\1s + UNROLL < steps;"),
        (r"MULTIPLY\(sum\[c\]", "MULTIPLY(sum[0]"),
        (r"MULTIPLY\(sum\[c\], a, b\)", "if (threadIdx.x < 32) MULTIPLY(sum[c], a, b)"),
    ],
    ids=["leaves out the last steps", "adds to one sum only", "one warp alone"],
)
def test_matrix_products_that_are_left_out_are_found(cpu: Host, pattern: str, replacement: str) -> None:
    left_out = fault(pattern, replacement, "microbenchmarks")
    with planted(left_out, "microbenchmarks"), pytest.raises(AssertionError, match="multiply_matrices is wrong"):
        check_microbenchmarks(cpu)


def check_simt_meanwhile(cpu: Host, beta: float = 0.0) -> None:
    """What stands in for a plan's own programs, loops not written out."""
    problem = problem_of(Sizes(19, 67, 83), "TN", "float32", beta=beta)
    plan = gp.plan(problem, cpu.device, kernel="simt", params=MANY_SUMS)
    assert plan.meanwhile
    in_every_order(cpu, lambda: check_plan(cpu, replace(plan, launches=plan.meanwhile)))


@pytest.mark.parametrize("beta", [0.0, 0.5])
def test_what_simt_launches_meanwhile_is_exact(cpu: Host, beta: float) -> None:
    check_simt_meanwhile(cpu, beta)


@pytest.mark.planted_fault
@pytest.mark.parametrize(
    ("pattern", "replacement"),
    [
        (r"(?s)(#if SOON.*?for \(int step.*?)__syncthreads\(\);", r"\1"),
        (r"coming == 0 \? TSK - missing : TSK", "TSK"),
        (r"(sum\[)\(y - 1\)( / COLUMN_RUNS\]\[)\(y - 1\)( % COLUMN_RUNS\] = )", r"\1y\2y\3"),
    ],
    ids=["no barrier", "terms beyond the edge", "one run alone"],
)
def test_faults_of_what_simt_launches_meanwhile_are_found(cpu: Host, pattern: str, replacement: str) -> None:
    with planted(fault(pattern, replacement, "simt"), "simt"), pytest.raises(AssertionError):
        check_simt_meanwhile(cpu)


@pytest.fixture(scope="module")
def of_8_rows(cpu: Host) -> Iterator[Host]:
    """As `cpu`, with the matrix unit of compute capability 8.0."""
    with Host(replace(cpu.device, extensions=cpu.device.extensions - {MATRIX_UNIT} | {MATRIX_UNIT_OF_8_ROWS})) as own:
        yield own


@pytest.mark.parametrize("ops", ["NN", "TT"])
def test_the_matrix_unit_s_products_are_exact(cpu: Host, ops: str) -> None:
    product(cpu, "simt", ops, BY_MATRIX_UNIT, "float64")


BY_LINE: list[Parameters] = [
    {"SHARE": 0},
    {"SLICES": 2, "SHARE": 1},
    {"TSK": 32, "SLICES": 2, "SHARE": 0, "STAGES": 2, "LINES": 2},
]


@pytest.mark.sample(held=["a-NN", "b-TT"], more=[BY_LINE[1]])
@pytest.mark.parametrize("held", ["a-NN", "a-NT", "b-TT", "b-NT"])
@pytest.mark.parametrize("more", BY_LINE, ids=str)
def test_products_of_what_is_held_by_line_are_exact(cpu: Host, held: str, more: Parameters) -> None:
    by_line(cpu, held, more)


@pytest.mark.sample(held=["a-NT"], more=[BY_LINE[2]])
@pytest.mark.parametrize("held", ["a-NN", "a-NT", "b-TT", "b-NT"])
@pytest.mark.parametrize("more", BY_LINE, ids=str)
def test_products_of_8_rows_of_what_is_held_by_line_are_exact(of_8_rows: Host, held: str, more: Parameters) -> None:
    by_line(of_8_rows, held, more)


def by_line(cpu: Host, held: str, more: Parameters) -> None:
    """A product with edges whose first step is short, of an operand that a tile holds by line."""
    operand, ops = held.split("-")
    problem = problem_of(Sizes(19, 67, 84), ops, "float64", multiple=WIDEST_RUN, batch=2, alpha=2.0, beta=-1.0)
    in_every_order(cpu, lambda: check(cpu, problem, "simt", {**HELD_BY_LINE[operand], **more}))


@pytest.mark.planted_fault
@pytest.mark.parametrize(
    ("pattern", "replacement"),
    [
        (r"ELEMENT\(a\[r / WIDTH\], part\)", "ELEMENT(a[r / WIDTH], 1 - part)"),
        (r"first_term \^ PAIR_IN", "first_term + 0 * PAIR_IN"),
        (r"a\[0\]\[x\] = a\[NEXT_HALF\]", "a[0][x] = a[0]"),
        (r"from \+= terms - COPIES_OF", "from += 2 * terms - COPIES_OF"),
    ],
    ids=["takes the other term", "does not exchange pairs", "keeps runs", "goes on too far"],
)
def test_faults_of_what_is_held_by_line_show(cpu: Host, pattern: str, replacement: str) -> None:
    with planted(Mutation(pattern, (Edit(pattern, replacement),), ("simt",)), "simt"), pytest.raises(AssertionError):
        by_line(cpu, "a-NN", {"SLICES": 2, "SHARE": 1})


@pytest.mark.sample(dtype=["float64"], ops=["TN"])
@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize("ops", ["NN", "TN", "CT"])
def test_products_of_its_8_rows_are_exact(of_8_rows: Host, dtype: str, ops: str) -> None:
    product(of_8_rows, "simt", ops, SHARED_SLICES, dtype)


@pytest.mark.sample(ops=["CR"], params=[SHARED_SLICES])
@pytest.mark.parametrize("ops", list(map("".join, itertools.product("NTCR", repeat=2))))
@pytest.mark.parametrize("params", [BY_MATRIX_UNIT, SHARED_SLICES], ids=["whole", "shared"])
def test_its_complex_products_are_exact(cpu: Host, ops: str, params: Parameters) -> None:
    product(cpu, "simt", ops, params, "complex128")


@pytest.mark.sample(op=["C"])
@pytest.mark.parametrize("op", ["N", "C"])
def test_infinities_nan_and_zeros_of_its_complex_products_are_ieee_s(cpu: Host, op: str) -> None:
    """Sums that cancel are positive zeros, those that are conjugated in the end, too."""
    a, b = complex_specials(19, 37, 1), complex_specials(37, 67, 2)
    problem = problem_of(Sizes(19, 67, 37), f"{op}N", "complex128")
    plan = gp.plan(problem, cpu.device, kernel="simt", params=BY_MATRIX_UNIT)
    got = run_plan(cpu, plan, {"a": a.conj().T if op == "C" else a, "b": b})[0]
    wanted = complex_product(a, b)
    assert ((wanted.imag == 0) & ~np.signbit(wanted.imag)).any()
    assert_same(got, wanted, problem)


def complex_specials(rows: int, columns: int, seed: int) -> npt.NDArray[np.complex128]:
    found = np.empty((rows, columns), np.complex128)
    found.real, found.imag = with_specials(rows, columns, seed), with_specials(rows, columns, seed + 2)
    return found


@pytest.mark.parametrize("ops", ["NN", "TT"])
@pytest.mark.parametrize("dtype", list(BY_MATRIX_CORES))
def test_products_of_matrix_cores_are_exact(cpu: Host, ops: str, dtype: str) -> None:
    product(cpu, "simt", ops, BY_MATRIX_CORES[dtype], dtype)


@pytest.mark.parametrize("dtype", list(BY_MATRIX_CORES))
@pytest.mark.parametrize(
    ("pattern", "replacement"),
    [
        (r"(#define CORE_ROW_float\d+\(item\)) .*", r"\1 ((item) % 8 * 2 + (item) % 16 / 8)"),
        (r"(#define CORE_TERM\(item\)) .*", r"\1 ((item) % 4)"),
        (r"CORE_MUL_ADD\(SUM\(0\), SUM\(1\)", r"CORE_MUL_ADD(SUM(1), SUM(0)"),
    ],
    ids=["has other rows", "has other terms", "takes the sums of other rows"],
)
def test_faults_of_where_matrix_cores_have_numbers_show(cpu: Host, pattern: str, replacement: str, dtype: str) -> None:
    count = 2 if "ROW" in pattern else 1
    with (
        planted(Mutation(pattern, (Edit(pattern, replacement, count),), ("simt",)), "simt"),
        pytest.raises(AssertionError),
    ):
        product(cpu, "simt", "TN", BY_MATRIX_CORES[dtype], dtype)


BY_WORDS: Parameters = {"ITEMS": 32, "SIDE": 4, "RUNS": 2, "UNROLL": 2, "VECTORS": 2, "SPLIT": 2, "DOTS": 1}
"""Of `gemv`: two steps at once, single ones, and one that is not whole, in two parts."""


def of_bytes(dtype: str, sizes: Sizes, multiple: int) -> gp.GemmProblem:
    return problem_of(sizes, "NT", dtype, output="int32", multiple=multiple, batch=2, alpha=2.0, beta=-1.0)


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("multiple", [4, 16])
@pytest.mark.parametrize("sizes", [Sizes(19, 3, 363), Sizes(1, 19, 363)], ids=str)
def test_bytes_that_are_multiplied_four_at_once_are_exact(cpu: Host, dtype: str, multiple: int, sizes: Sizes) -> None:
    in_every_order(cpu, lambda: check(cpu, of_bytes(dtype, sizes, multiple), "gemv", BY_WORDS))


def test_vectors_of_bytes_need_no_alignment(cpu: Host) -> None:
    problem = of_bytes("int8", Sizes(19, 3, 363), 16)
    check(cpu, replace(problem, b=gp.Layout(ld=365, batch_stride=3 * 365, offset=1)), "gemv", BY_WORDS)


@pytest.mark.planted_fault
@pytest.mark.parametrize(
    ("pattern", "replacement"),
    [
        (r"DOT\(sum, WORD\(a, w\)", "DOT(sum, WORD(a, 0)"),
        (r"w \* 4 \+ e < present", "w * 4 + e <= present"),
        (r"<< e \* 8", "<< e * 4"),
        (r"\(unsigned char\)p", "p"),
    ],
    ids=[
        "takes the first word for all",
        "reads a byte too many",
        "puts bytes into each other",
        "spreads a byte's sign",
    ],
)
def test_faults_of_bytes_that_are_multiplied_four_at_once_show(cpu: Host, pattern: str, replacement: str) -> None:
    with planted(fault(pattern, replacement, "gemv"), "gemv"), pytest.raises(AssertionError):
        check(cpu, of_bytes("int8", Sizes(19, 3, 363), 16), "gemv", BY_WORDS)


@pytest.mark.parametrize("dtype", ["int8", "int16", "float32", "float64", "complex128"])
def test_products_by_read_only_loads_are_exact(cpu: Host, dtype: str) -> None:
    product(cpu, "shuffle", "NT", {"USE_LDG": 1}, dtype)


def test_copies_that_work_items_make_themselves_are_exact(cpu: Host) -> None:
    with Host(replace(cpu.device, extensions=frozenset())) as without:
        product(without, "simt", "TN")


@pytest.mark.sample(types=[("complex64", "complex64", None)])
@pytest.mark.parametrize(
    ("kernel", "types"), [(VARIANTS[5 * number % len(VARIANTS)], types) for number, types in enumerate(TYPES)]
)
def test_products_of_every_type_are_exact(cpu: Host, kernel: str, types: Types) -> None:
    dtype, output, accumulator = types
    product(cpu, kernel, "NT", dtype=dtype, output=output, accumulator=accumulator)


@pytest.mark.planted_fault
@pytest.mark.sample(name=["tiled"])
@pytest.mark.parametrize("name", [name for name, waits in WAITS.items() if waits])
def test_each_barrier_and_wait_that_is_dropped_is_missed(cpu: Host, name: str) -> None:
    for number in range(WAITS[name]):
        dropped = fault(rf"(?s)\A((?:.*?{WAIT}){{{number}}}.*?){WAIT}", r"\1", name)
        with planted(dropped, name):
            assert is_wrong(cpu, name), f"{name} is exact without its barrier or wait number {number}"


@pytest.mark.planted_fault
@pytest.mark.parametrize(
    ("pattern", "replacement"),
    [
        (r"AWAIT_COPIES\(STAGES - 2\)", "AWAIT_COPIES(STAGES - 1)"),
        (r"thread % AT_ONCE, row_of", "(thread ^ 1) % AT_ONCE, row_of"),
        (
            r"ELEMENT\(sum\[r\]\[c \+ 1\], w\), ELEMENT\(sum\[r \+ 1\]\[c\], w\)",
            "ELEMENT(sum[r + 1][c], w), ELEMENT(sum[r][c + 1], w)",
        ),
    ],
    ids=["waits for too few copies", "reads other terms than its lane has", "takes the sums of other rows"],
)
def test_faults_of_simt_s_instructions_show(cpu: Host, pattern: str, replacement: str) -> None:
    with planted(Mutation(pattern, (Edit(pattern, replacement),), ("simt",)), "simt"), pytest.raises(AssertionError):
        product(cpu, "simt", "TN", BY_MATRIX_UNIT, "float64")


@pytest.mark.planted_fault
@pytest.mark.parametrize(
    ("pattern", "replacement"),
    [
        (r": -NUMBER\(a\[r\], IMAGINARY\)", ": NUMBER(a[r], IMAGINARY)"),
        (r"real, imaginary, NUMBER", "imaginary, real, NUMBER"),
        (r"NUMBER\(b\[c / JOINED\], part\)", "NUMBER(b[c / JOINED], IMAGINARY - part)"),
        (
            r"NUMBER\(sum\[r\]\[c \+ 1\], REAL\), NUMBER\(sum\[r\]\[c\], IMAGINARY\)",
            "NUMBER(sum[r][c], IMAGINARY), NUMBER(sum[r][c + 1], REAL)",
        ),
        (r"thread % AT_ONCE, row_of", "(thread ^ 1) % AT_ONCE, row_of"),
        (r"CONJUGATE_A != CONJUGATE_B", "CONJUGATE_A"),
        (r"IMAGINARY\) = 0 - ", "IMAGINARY) = 0 + "),
    ],
    ids=[
        "has the other sign", "swaps the parts of A", "swaps the parts of B", "takes the sums of the other part",
        "reads other terms", "does not conjugate B", "does not conjugate sums",
    ],
)  # fmt: skip
def test_faults_of_simt_s_complex_products_show(cpu: Host, pattern: str, replacement: str) -> None:
    with planted(Mutation(pattern, (Edit(pattern, replacement),), ("simt",)), "simt"), pytest.raises(AssertionError):
        product(cpu, "simt", "CR", SHARED_SLICES, "complex128")


@pytest.mark.planted_fault
def test_a_row_that_its_8_rows_take_for_another_shows(of_8_rows: Host) -> None:
    row = fault(r"MATRIX_MUL_ADD_8\(d10, d11, a1, b\)", "MATRIX_MUL_ADD_8(d10, d11, a0, b)", "simt")
    with planted(row, "simt"), pytest.raises(AssertionError):
        product(of_8_rows, "simt", "TN", BY_MATRIX_UNIT, "float64")


def is_wrong(cpu: Host, name: str) -> bool:
    """Whether what is tried of a kernel or pass fails in some order."""
    try:
        if name in PASSES:
            run_pass(cpu, name)
        else:
            product(cpu, name, "TN")
            product(cpu, name, "TN", MORE.get(name))
            if name == "simt":
                check_simt_meanwhile(cpu)
    except (AssertionError, LaunchError):  # what it computes, or what the runner saw of it, is wrong
        return True
    return False


# The runner itself

PROBES = """
extern "C" __global__ void turns(int *out, int *counter)
{
    out[threadIdx.x] = (*counter)++;
    __syncthreads();
    out[blockDim.x + threadIdx.x] = (*counter)++;
}

extern "C" __global__ void unwritten(float *out)
{
    __shared__ float declared[64];
    extern __shared__ float sized[];
    out[threadIdx.x] = declared[threadIdx.x];
    out[64 + threadIdx.x] = sized[threadIdx.x];
    __syncthreads();
    declared[threadIdx.x] = sized[threadIdx.x] = 0;
}

extern "C" __global__ void lanes(unsigned *out)
{
    if (threadIdx.x == 7)
        return;
    out[threadIdx.x] = __shfl_sync(0xffffffff, threadIdx.x, (int)(threadIdx.x ^ 1));
    out[64 + threadIdx.x] = __shfl_down_sync(0xffffffff, 100 + threadIdx.x, 4);
}

extern "C" __global__ void parted(int *out)
{
    if (threadIdx.x < 40)
        __syncthreads();
    else
        __syncthreads();
}

extern "C" __global__ void left_alone(int *out)
{
    if (threadIdx.x < 40)
        __syncthreads();
    else
        __syncwarp();
}
"""


@pytest.fixture(scope="module")
def probes(cpu: Host) -> Program:
    return cpu.program(PROBES)


def run(cpu: Host, probes: Program, function: str, out: np.ndarray, *more: np.ndarray, groups: int = 1) -> np.ndarray:
    """What a kernel of 64 work-items leaves in `out`."""
    memory = [cpu.asarray(array).memory for array in (out, *more)]
    cpu.launch(cpu.prepare(probes, function, (groups, 1, 1), (64, 1, 1), memory, dynamic_local_bytes=256))
    cpu.download(memory[0], out)
    return out


@pytest.mark.parametrize("order", ORDERS)
def test_work_items_take_turns_in_the_order_that_is_asked_for(cpu: Host, probes: Program, order: str) -> None:
    cpu.order = order
    before, after = run(cpu, probes, "turns", np.zeros(128, np.int32), np.zeros(1, np.int32)).reshape(2, 64)
    assert sorted(before) == [*range(64)]
    assert sorted(after) == [*range(64, 128)]
    assert (before.tolist() == [*range(64)]) == (order == "forward")
    assert (before.tolist() == [*range(63, -1, -1)]) == (order == "reversed")
    assert order != "shuffled" or (before != after - 64).any()


def test_each_group_finds_poison_in_shared_memory(cpu: Host, probes: Program) -> None:
    assert np.isnan(run(cpu, probes, "unwritten", np.zeros(128, np.float32), groups=2)).all()


@pytest.mark.parametrize("order", ORDERS)
def test_lanes_read_each_other(cpu: Host, probes: Program, order: str) -> None:
    """A lane that ended shows nothing; where no lane is so far up, each reads itself; lanes are counted modulo 32."""
    cpu.order = order
    crossed, down = run(cpu, probes, "lanes", np.zeros(128, np.uint32)).reshape(2, 64).astype(np.int64)
    numbers = np.arange(64)
    wanted = np.where(numbers == 6, 0xFFFFFFFF, numbers ^ 1), np.where(numbers % 32 < 28, numbers + 104, numbers + 100)
    there = numbers != 7
    assert np.array_equal(crossed[there], wanted[0][there])
    assert np.array_equal(np.delete(down, [3, 7]), np.delete(wanted[1], [3, 7]))
    assert down[3] == 0xFFFFFFFF


@pytest.fixture(scope="module")
def instructions(cpu: Host) -> Program:
    return cpu.program((Path(Host.overrides) / "ptx.cu").read_text(encoding="utf-8") + INSTRUCTIONS)


INSTRUCTIONS = """
extern "C" __global__ void widen(float *out, const unsigned short *x)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    HALF_TO_FLOAT(out[i], x[i]);
}

extern "C" __global__ void narrow(unsigned short *out, const double *x)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    DOUBLE_TO_HALF(out[i], x[i]);
}

extern "C" __global__ void multiply_add(unsigned short *out, const unsigned short *x)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    HALF_MUL_ADD(out[i], x[3 * i], x[3 * i + 1], x[3 * i + 2]);
}

extern "C" __global__ void copy(float *out, const float *from)
{
    __shared__ float to[2][64];
    COPY_SIZE(&to[0][threadIdx.x], from + threadIdx.x, 1, 4);
    COMMIT_COPIES();
    WAIT_FOR_COPIES(3);
    to[1][threadIdx.x] = 5;
    COPY_SIZE_OF(&to[1][threadIdx.x], from + threadIdx.x, 1, 4, threadIdx.x % 2 * 4);
    COMMIT_COPIES();
    WAIT_FOR_COPIES(1);
    out[threadIdx.x] = to[0][threadIdx.x];
    out[64 + threadIdx.x] = to[1][threadIdx.x];
    WAIT_FOR_COPIES(0);
    out[128 + threadIdx.x] = to[1][threadIdx.x];
}

extern "C" __global__ void multiply_matrices(double *out, const double *a, const double *b)
{
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    double *const upper = out + g * 8 + 2 * t, *const lower = upper + 64;
    double d00 = upper[0], d01 = upper[1], d10 = lower[0], d11 = lower[1];
    MATRIX_MUL_ADD_16(d00, d01, d10, d11, a[g * 4 + t], a[(g + 8) * 4 + t], b[t * 8 + g]);
    __syncthreads();
    if (threadIdx.x < 32) {
        upper[0] = d00;
        upper[1] = d01;
        lower[0] = d10;
        lower[1] = d11;
    }
}
"""


def test_every_half_is_the_float_that_it_is(cpu: Host, instructions: Program) -> None:
    halves = np.arange(2**16, dtype=np.uint16)
    got = run(cpu, instructions, "widen", np.zeros(2**16, np.float32), halves, groups=2**10)
    assert np.array_equal(got, halves.view(np.float16).astype(np.float32), equal_nan=True)


def test_numbers_become_the_nearest_half(cpu: Host, instructions: Program) -> None:
    """Every half, what lies half way to the next, and what lies next to that; infinities, NaN and what is too large."""
    halves = np.arange(0x7BFF, dtype=np.uint16).view(np.float16).astype(np.float64)
    ties = (halves[:-1] + halves[1:]) / 2
    special = [65504, 65519.99, 65520, 1e300, np.inf, np.nan, 5e-324]
    sizes = np.concatenate([halves, ties, np.nextafter(ties, 0), np.nextafter(ties, 1e6), special])
    numbers = np.concatenate([sizes, -sizes])
    numbers = np.pad(numbers, (0, -len(numbers) % 64))
    got = run(cpu, instructions, "narrow", np.zeros(len(numbers), np.uint16), numbers, groups=len(numbers) // 64)
    with np.errstate(over="ignore"):
        wanted = numbers.astype(np.float16)
    assert np.array_equal(got.view(np.float16), wanted, equal_nan=True)
    assert np.array_equal(np.signbit(got.view(np.float16))[numbers == 0], np.signbit(numbers[numbers == 0]))


def test_a_product_and_a_sum_of_halves_are_rounded_once(cpu: Host, instructions: Program) -> None:
    """Against exact fractions, whose nearest half NumPy finds; where it would be a tie, every bit decides."""
    rng = np.random.default_rng(5)
    bits = rng.integers(0, 2**16, (2**13, 3), np.uint16)
    bits[bits & 0x7C00 == 0x7C00] &= 0x83FF  # no NaN, no infinity
    bits[::2, 2] = bits[::2, 2] & 0x83FF | 0x0400 * rng.integers(1, 31, 2**12, np.uint16)
    got = run(cpu, instructions, "multiply_add", np.zeros(2**13, np.uint16), bits, groups=2**7).view(np.float16)
    for x, y, z, own in zip(*bits.view(np.float16).astype(np.float64).T, got, strict=True):
        exact = Fraction(x) * Fraction(y) + Fraction(z)
        assert abs(exact) >= 65520 if np.isinf(own) else is_nearest(own, exact), (x, y, z)


def is_nearest(half: np.float16, exact: Fraction) -> bool:
    """Whether no other half is nearer, and of two that are as near, this one is even."""
    off = abs(Fraction(float(half)) - exact)
    beside = [np.nextafter(half, np.float16(to)) for to in (-np.inf, np.inf)]
    others = [abs(Fraction(float(other)) - exact) for other in beside if np.isfinite(other)]
    even = half.view(np.uint16) % 2 == 0
    return all(off < other or (off == other and even) for other in others)


@pytest.mark.parametrize("order", ORDERS)
def test_copies_come_when_they_are_awaited(cpu: Host, instructions: Program, order: str) -> None:
    cpu.order = order
    numbers = np.arange(64, dtype=np.float32)
    first, early, late = run(cpu, instructions, "copy", np.zeros(192, np.float32), numbers).reshape(3, 64)
    assert np.array_equal(first, numbers)
    assert np.isnan(early).all()
    assert np.array_equal(late, numbers * (numbers % 2))


@pytest.mark.parametrize("order", ORDERS)
def test_matrices_are_spread_over_lanes_as_the_isa_says(cpu: Host, instructions: Program, order: str) -> None:
    cpu.order = order
    rng = np.random.default_rng(6)
    a, b, c = (rng.integers(-9, 10, shape).astype(np.float64) for shape in ((16, 4), (4, 8), (16, 8)))
    assert np.array_equal(run(cpu, instructions, "multiply_matrices", c.copy(), a, b), c + a @ b)


@pytest.mark.parametrize(
    ("function", "told"),
    [
        ("parted", r"work-items of one group wait at different barriers, in lines 30 and 32"),
        ("left_alone", r"work-item 0 waits in line 38 for others that never come there"),
    ],
)
def test_barriers_that_not_all_reach_are_told_with_their_lines(
    cpu: Host, probes: Program, function: str, told: str
) -> None:
    with pytest.raises(gp.LaunchError, match=told):
        run(cpu, probes, function, np.zeros(64, np.int32))


def test_arguments_that_are_not_the_kernel_s_are_refused(cpu: Host, probes: Program) -> None:
    memory = cpu.allocate(512)
    for arguments, told in (((memory, memory), "number of arguments"), ((np.int32(0),), "size")):
        with pytest.raises(gp.LaunchError, match=told):
            cpu.launch(cpu.prepare(probes, "lanes", (1, 1, 1), (64, 1, 1), arguments))


# In processes of their own


def tried(*arguments: str, environment: dict[str, str], folder: Path) -> subprocess.CompletedProcess[str]:
    """on_host.py in an environment; its libraries lie in a folder."""
    command = [sys.executable, str(HERE / "on_host.py"), *arguments]
    return subprocess.run(
        command, env={**environment, "TMPDIR": str(folder)}, capture_output=True, text=True, timeout=300, check=False
    )


@needs(SANITIZERS)
@pytest.mark.processes
def test_no_source_reads_or_writes_out_of_bounds(tmp_path: Path) -> None:
    done = tried(environment=host_compiler.sanitized(os.environ), folder=tmp_path)
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.split() == [*VARIANTS, *PASSES, SCALES]


@needs(SANITIZERS)
@pytest.mark.processes
@pytest.mark.parametrize(
    ("planted_fault", "told"),
    [
        ("reads beyond a matrix", r"heap-buffer-overflow[^#]*READ of size 4"),
        ("writes beyond shared memory", r"global-buffer-overflow[^#]*WRITE of size 4"),
        ("reads runs that are not aligned", r"misaligned address"),
        ("overflows", r"signed integer overflow"),
        ("reads scales beyond the last row", r"heap-buffer-overflow[^#]*READ of size 4"),
        ("reads scales beyond the last column", r"heap-buffer-overflow[^#]*READ of size 4"),
    ],
)
def test_what_is_out_of_bounds_or_undefined_is_found(planted_fault: str, told: str, tmp_path: Path) -> None:
    (kernel,) = [SCALES] if "scales" in planted_fault else FAULTS[planted_fault].kernels
    environment = host_compiler.sanitized(os.environ)
    done = tried("--fault", planted_fault, kernel, environment=environment, folder=tmp_path)
    assert done.returncode != 0
    assert re.search(told, done.stderr), done.stderr[-4000:]


@pytest.mark.processes
def test_work_items_need_no_switch_of_our_own(tmp_path: Path) -> None:
    """Processors that runner.cpp has none for take the C library's."""
    done = tried("tiled", "shuffle", environment={**os.environ, "HOST_FLAGS": "-DWITH_UCONTEXT"}, folder=tmp_path)
    assert done.returncode == 0, done.stderr[-4000:]


@pytest.mark.processes
def test_the_backend_keeps_its_contract(tmp_path: Path) -> None:
    suite = HERE.parent / "backends" / "test_backend_contract.py"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--backend", "host", str(suite)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout[-4000:]
