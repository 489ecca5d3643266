"""The two sources of a kernel are one text in the words of two languages: line by line the same, but for what is listed."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from gemmport import kernels

Words = Mapping[str, str]

OPENCL: Words = {
    r"^__kernel( __attribute__\(\(reqd_work_group_size\([^()]*\)\)\))?": "KERNEL",
    r"^__local (?!const)(?=[^;(]*\[[^;]*;)": "SHARED ",  # an array of the group; elsewhere it says where a pointer points
    r"\b__(global|local)\b,? ?": "",
    r"get_local_id\(0\)": "ITEM.x", r"get_local_id\(1\)": "ITEM.y", r"get_group_id\(0\)": "GROUP.x",
    r"get_global_id\(0\)": "GROUP.x * ITEMS.x + ITEM.x",
    r"barrier\(CLK_LOCAL_MEM_FENCE\)": "BARRIER()",
    r"\b__asm__\b": "asm",
    r"inline __attribute__\(\(always_inline\)\)": "ALWAYS_INLINE",
    r"\buchar\b": "unsigned char", r"\bushort\b": "unsigned short", r"\buint\b": "unsigned",
    r"\bulong(?=\d)": "ulonglong", r"\bulong\b": "bits_t", r"\(long\)": "(long long)", r"(?<=[0-9a-f])UL\b": "ULL",
    r"\(word_t\)0": "word_t()", r"\(out_run_t\)0": "",
    r"\(unsigned\)\(size_t\)to": "ADDRESS(to)",
    r"typedef struct \{(.*)\} (\w+);": r"struct \2 {\1};",
    r" __attribute__\(\(aligned\(16\)\)\)": "",
}  # fmt: skip
"""Patterns of OpenCL C, in their order, and what both languages call it here. Blanks and comments are gone by then."""

CUDA: Words = {
    r'^extern "C" __global__( __launch_bounds__\([^()]*\))?': "KERNEL",
    r"^__shared__( __align__\(\w+\))? ": "SHARED ",
    r"threadIdx\.": "ITEM.", r"blockIdx\.": "GROUP.", r"blockDim\.": "ITEMS.",
    r"__syncthreads\(\)": "BARRIER()",
    r"__device__ __forceinline__": "ALWAYS_INLINE", r"__device__ ": "",
    r"\bthread\b": "item",
    r"\bbool\b": "int", r"\btrue\b": "1", r"\bfalse\b": "0",
    r"__restrict__": "restrict",
    r"^typedef unsigned long long bits_t;$": "", r"\bunsigned long long\b": "bits_t",
    r"\(unsigned\)__cvta_generic_to_shared\(to\)": "ADDRESS(to)",
}  # fmt: skip

APART: dict[str, tuple[str, list[str]]] = {
    "shuffle": (
        "CUDA C++ has a function for loads through the read-only cache, OpenCL C takes the instruction itself",
        [
            '-asm("ld.global.nc.u8 %0, [%1];" : "=r"(x.words[0]) : "l"(p));',
            "+x.words[0] = __ldg((const unsigned char *)p);",
            '-asm("ld.global.nc.u16 %0, [%1];" : "=r"(x.words[0]) : "l"(p));',
            "+x.words[0] = __ldg((const unsigned short *)p);",
            '-asm("ld.global.nc.u32 %0, [%1];" : "=r"(x.words[0]) : "l"(p));',
            "+x.words[0] = __ldg((const unsigned *)p);",
            '-asm("ld.global.nc.v2.u32 {%0, %1}, [%2];" : "=r"(x.words[0]), "=r"(x.words[1]) : "l"(p));',
            "+*(uint2 *)x.words = __ldg((const uint2 *)p);",
            '-asm("ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];"',
            '-: "=r"(x.words[0]), "=r"(x.words[1]), "=r"(x.words[2]), "=r"(x.words[3]) : "l"(p));',
            "+*(uint4 *)x.words = __ldg((const uint4 *)p);",
        ],
    ),
    "gemv": (
        "OpenCL C counts groups in size_t, and CUDA C++ in 32 bits; a CPU's compiler takes seconds for 128 rows",
        [
            "-const size_t number = GROUP.x / parts;",
            "-const size_t down = ((size_t)m + GROUP_ROWS - 1) / GROUP_ROWS;",
            "-const size_t across = ((size_t)n + VECTORS - 1) / VECTORS;",
            "+const unsigned number = GROUP.x / parts;",
            "+const unsigned down = ((unsigned)m + GROUP_ROWS - 1) / GROUP_ROWS;",
            "+const unsigned across = ((unsigned)n + VECTORS - 1) / VECTORS;",
            "-#pragma unroll 16",
            "+#pragma unroll",
        ],
    ),
    "batched": (
        "PoCL mistakes an unrolled loop (quirk pocl-left-rounds)",
        [
            "-#ifdef POCL_DEVICE_ADDRESS_BITS",
            "-#pragma unroll 1",
            "-#else",
            "-#endif",
        ],
    ),
    "times_vector": (
        "CUDA C++ names operations that round by themselves; OpenCL C forbids contraction, and counts groups in size_t",
        [
            "-#pragma OPENCL FP_CONTRACT OFF",
            "-inline wide_t widened(float x) { return (wide_t)(x, 0); }",
            "+inline wide_t widened(float x) { return {x, 0}; }",
            "-const float s = a + b;",
            "-return (wide_t)(s, b - (s - a));",
            "+const float s = __fadd_rn(a, b);",
            "+return {s, __fsub_rn(b, __fsub_rn(s, a))};",
            "-const float s = a + b, t = s - a;",
            "-return (wide_t)(s, (a - (s - t)) + (b - t));",
            "+const float s = __fadd_rn(a, b), t = __fsub_rn(s, a);",
            "+return {s, __fadd_rn(__fsub_rn(a, __fsub_rn(s, t)), __fsub_rn(b, t))};",
            "-inline float high_half(float x) { return as_float(as_uint(x) & 0xfffff000); }",
            "-const volatile float p = a * b;",
            "-const float a_high = high_half(a), b_high = high_half(b), a_low = a - a_high, b_low = b - b_high;",
            "-return (wide_t)(p, ((a_high * b_high - p) + a_high * b_low + a_low * b_high) + a_low * b_low);",
            "+const float p = __fmul_rn(a, b);",
            "+return {p, __fmaf_rn(a, b, -p)};",
            "-const wide_t s = two_sum(a.x, b.x), t = two_sum(a.y, b.y), r = fast_two_sum(s.x, s.y + t.x);",
            "-return fast_two_sum(r.x, t.y + r.y);",
            "+const wide_t s = two_sum(a.x, b.x), t = two_sum(a.y, b.y), r = fast_two_sum(s.x, __fadd_rn(s.y, t.x));",
            "+return fast_two_sum(r.x, __fadd_rn(t.y, r.y));",
            "-const wide_t p = two_product(a, x.x), r = fast_two_sum(p.x, a * x.y);",
            "-return plus(sum, fast_two_sum(r.x, p.y + r.y));",
            "+const wide_t p = two_product(a, x.x), r = fast_two_sum(p.x, __fmul_rn(a, x.y));",
            "+return plus(sum, fast_two_sum(r.x, __fadd_rn(p.y, r.y)));",
            "-inline number_t conjugate_number(acc_t a)",
            "-{",
            "-number_t x;",
            "-x.value[0] = widened(a.x);",
            "-x.value[1] = widened(-a.y);",
            "-return x;",
            "-}",
            "+inline number_t conjugate_number(acc_t a) { return {{widened(a.x), widened(-a.y)}}; }",
            "-sum.value[0] = plus_product(sum.value[0], a, x.value[0]);",
            "-return sum;",
            "+return {{plus_product(sum.value[0], a, x.value[0])}};",
            "-inline number_t conjugate_number(acc_t a)",
            "-{",
            "-number_t x;",
            "-x.value[0] = widened(a);",
            "-return x;",
            "-}",
            "+inline number_t conjugate_number(acc_t a) { return {{widened(a)}}; }",
            "-const size_t groups = ((size_t)rows + RESULTS - 1) / RESULTS;",
            "-const size_t batch = GROUP.x / groups;",
            "+const unsigned groups = ((unsigned)rows + RESULTS - 1) / RESULTS;",
            "+const unsigned batch = GROUP.x / groups;",
        ],
    ),
    "fill_random": (
        "OpenCL C has vectors of its own",
        [
            "-const acc_t value = (acc_t)(x, y);",
            "+const acc_t value = {x, y};",
        ],
    ),
}
"""Lines that differ, "-" in OpenCL C and "+" in CUDA C++, and why they have to."""


def lines(text: str, words: Words) -> list[str]:
    """A source in common words, without comments, blanks and empty lines."""
    found = []
    for line in text.splitlines():
        plain = " ".join(line.partition("//")[0].split())
        for pattern, word in words.items():
            plain = re.sub(pattern, word, plain)
        if plain.strip():
            found.append(" ".join(plain.split()))
    return found


def differences(opencl: str, cuda: str) -> list[str]:
    """Lines that one source alone has, as a difference tells them."""
    told = difflib.unified_diff(lines(opencl, OPENCL), lines(cuda, CUDA), n=0, lineterm="")
    return [line for line in [*told][2:] if not line.startswith("@@")]


def source(name: str, language: str) -> str:
    """The text of a kernel."""
    suffix = {"opencl": "cl", "cuda": "cu"}[language]
    return (Path(kernels.__path__[0]) / language / f"{name}.{suffix}").read_text("utf-8")


NAMES = [contract.name for contract in (*kernels.variants(), *kernels.passes())]


@pytest.mark.parametrize("name", NAMES)
def test_twins_are_one_text_in_two_languages(name: str) -> None:
    why, listed = APART.get(name, ("", []))
    assert differences(source(name, "opencl"), source(name, "cuda")) == listed, why


def test_what_is_apart_has_a_reason() -> None:
    assert APART.keys() <= {*NAMES}
    assert all(why and listed for why, listed in APART.values())


@pytest.mark.parametrize(
    ("was", "becomes"),
    [
        ("__syncthreads();", ""),
        ("__shared__ acc_t b_tile", "acc_t b_tile"),
        ("+ PAD]", "]"),
        ("mul_add(a_tile[y][p]", "mul_add(a_tile[p][y]"),
        ("p < TS", "p <= TS"),
    ],
)
def test_a_difference_between_twins_is_found(was: str, becomes: str) -> None:
    text = source("tiled", "cuda")
    assert was in text
    assert differences(source("tiled", "opencl"), text.replace(was, becomes, 1))
