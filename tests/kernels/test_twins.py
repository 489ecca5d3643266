"""The two sources of a kernel, and of most parts of the prelude, are one text in the words of two languages: line by line the
same, but for what is listed.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from gemmport import kernels
from gemmport.runtime.sources import PRELUDE

Words = Mapping[str, str]

OPENCL: Words = {
    r'^#include "(\w+)\.cl"$': r"#include \1",
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
    r" __attribute__\(\(aligned\(\d+\)\)\)": "",
    r"typedef struct \{(.*)\} (\w+);": r"struct \2 {\1};",
    r"get_num_groups\(0\)": "GRID.x", r"(?<!define )WARP_SYNC\(\)": "SYNC()",
    r"(?<=[0-9])ul\b": "ull",
    r"SHARED_ADDRESS\(\((\w+)\)\)": r"SHARED_ADDRESS(\1)",
    r"volatile\(LATER ": "volatile(",
    r"(^#define \w+\(|, )d, a, b, scale(, turn_a, turn_b)?\)(?=$| GROUP| LINES_MUL_ADD_\d+\(\")": r"\1ALL)",
}  # fmt: skip
"""Patterns of OpenCL C, in their order, and what both languages call it here. Blanks and comments are gone by then."""

CUDA: Words = {
    r'^#include "(\w+)\.cu"$': r"#include \1",
    r'^extern "C" __global__( __launch_bounds__\([^()]*\))?': "KERNEL",
    r"^__shared__( __align__\(\w+\))? ": "SHARED ",
    r"threadIdx\.": "ITEM.", r"blockIdx\.": "GROUP.", r"blockDim\.": "ITEMS.",
    r"__syncthreads\(\)": "BARRIER()",
    r"__device__ __forceinline__": "ALWAYS_INLINE", r"__device__ ": "",
    r"\bthread\b": "item",
    r"\bbool\b": "int", r"\btrue\b": "1", r"\bfalse\b": "0",
    r"__restrict__": "restrict",
    r"__float_as_uint": "as_uint", r"__uint_as_float": "as_float",
    r"^typedef unsigned long long bits_t;$": "", r"\bunsigned long long\b": "bits_t",
    r"\(unsigned\)__cvta_generic_to_shared\(to\)": "ADDRESS(to)",
    r"gridDim\.": "GRID.", r"__syncwarp\(\)": "SYNC()",
    r"struct alignas\(\d+\)": "struct",
    r"(^#define \w+\(|, )(\.\.\.|__VA_ARGS__)\)": r"\1ALL)",
}  # fmt: skip

APART: dict[str, tuple[str, list[str]]] = {
    "gemv": (
        (
            "OpenCL C counts groups in size_t, and CUDA C++ in 32 bits; a CPU's compiler takes seconds for 128 rows; "
            "CUDA C++ has a zero of every type in its braces; words of OpenCL C are a vector"
        ),
        [
            "-typedef PASTE(MOVE_, WIDTH) words_t;",
            "-#define WORD(run, w) ((unsigned *)&(run))[w]",
            "+struct alignas(WIDTH) words_t { unsigned word[WIDTH / 4]; };",
            "+#define WORD(run, w) (run).word[w]",
            "-RUN_ELEMENT(in_t, run, w) = w < present ? B[INDEX_B(p + w, j)] : (in_t)0;",
            "+RUN_ELEMENT(in_t, run, w) = w < present ? B[INDEX_B(p + w, j)] : in_t{};",
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
    "mma": (
        "a launch of CUDA brings more shared memory than can be declared",
        [
            "+#if GIVEN",
            "+extern __shared__ __align__(128) acc_t tiles[];",
            "+#else",
            "+#endif",
        ],
    ),
    "simt": (
        "likewise; OpenCL C has no word for how many groups a unit is to have",
        [
            "+#if GIVEN",
            "+extern __shared__ __align__(16) acc_t tiles[];",
            "+#else",
            "+#endif",
            "+#if PARTS_READ > 1",
            "+#define COMBINERS SLICE_THREADS, 1",
            "+#else",
            "+#define COMBINERS SLICE_THREADS",
            "+#endif",
        ],
    ),
    "early": (
        "OpenCL begins no launch early",
        [
            "+#include ptx",
            "+#if EARLY",
            "+#define LET_NEXT() LET_NEXT_BEGIN();",
            "+#define AWAIT_BEFORE() AWAIT_LAUNCHES();",
            "+#define UNALIASED",
            "+#else",
            "+#endif",
        ],
    ),
    "hopper": (
        (
            "OpenCL's compiler leaves instructions of sm_90a for later, and declares no more than 48 KB of local memory; its "
            "host knows no addresses, so that kernels put them into maps in global memory, and launches no clusters"
        ),
        [
            '-#define LATER "',
            "-#define DECLARE_LOCAL(place, bytes) \\",
            (
                '-asm volatile(".shared .align 1024 .b8 local_memory[%1]; mov.u64 %0, local_memory;" : "=l"(place) '
                ': "n"(bytes))'
            ),
            "-#define FENCE_MAPS(map, other) \\",
            (
                '-asm volatile("fence.proxy.tensormap::generic.release.gpu; '
                'fence.proxy.tensormap::generic.acquire.gpu [%0], 128; " \\'
            ),
            '-"fence.proxy.tensormap::generic.acquire.gpu [%1], 128;" ::"l"(map), "l"(other) : "memory")',
            (
                '-#define PARAMETER_PLACE(place, name) asm volatile("{ .reg .b64 p; mov.b64 p, " name "; '
                'cvta.param.u64 %0, p; }" : "=l"(place))'
            ),
            (
                '+#define CLUSTER_BARRIER() asm volatile("barrier.cluster.arrive.relaxed; '
                'barrier.cluster.wait.acquire;" ::: "memory")'
            ),
            '+#define CLUSTER_END() asm volatile("barrier.cluster.arrive.release; barrier.cluster.wait.acquire;" ::: "memory")',
            "+#define CLUSTER_ARRIVE(bar, rank) \\",
            (
                '+asm volatile("{ .reg .b32 there; mapa.shared::cluster.u32 there, %0, %1; '
                'mbarrier.arrive.shared::cluster.b64 _, [there]; }" ::"r"( \\'
            ),
            "+SHARED_ADDRESS(bar)), \\",
            '+"r"(rank) \\',
            '+: "memory")',
            "+#define CLUSTER_ADDRESS(there, place, rank) \\",
            (
                '+asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(SHARED_ADDRESS(place)), '
                '"r"(rank))'
            ),
            "+#define CLUSTER_STORE_4(type, sort, there, x, bar) \\",
            (
                '+asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4" type " [%0], {%1, '
                '%2, %3, %4}, [%5];" ::"r"(there), \\'
            ),
            '+sort((x)[0]), sort((x)[1]), sort((x)[2]), sort((x)[3]), "r"(bar) : "memory")',
            '+#define CLUSTER_STORE(there, x, bar) CLUSTER_STORE_4(".f32", "f", there, x, bar)',
            '+#define CLUSTER_STORE_WHOLE(there, x, bar) CLUSTER_STORE_4(".s32", "r", there, x, bar)',
            "+#define COPY_TILE_TO(ranks, to, map, bar, x, y, z) \\",
            (
                "+asm "
                'volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster '
                '[%0], " \\'
            ),
            '+"[%1, {%2, %3, %4}], [%5], %6;" \\',
            (
                '+::"r"(SHARED_ADDRESS(to)), "l"(map), "r"(x), "r"(y), "r"(z), "r"(SHARED_ADDRESS(bar)), '
                '"h"((short)(ranks)) : "memory")'
            ),
        ],
    ),
    "wgmma": (
        "as of hopper: OpenCL's kernel declares its local memory, puts addresses into maps, and is in no cluster",
        [
            "-#define LOCAL_BYTES (STAGES * (STAGE_BYTES + 16) + MULTIPLIERS / WARP * STAGED * 4)",
            "+#define STORE_SUMS CLUSTER_STORE_WHOLE",
            "+#define STORE_SUMS CLUSTER_STORE",
            "+#if CLUSTER_D",
            "+struct four_t { acc_t sum[4]; };",
            "+#endif",
            "-#define HAS_ADDRESS(map, begin) ((map).word[0] == (bits_t)(begin))",
            "-ALWAYS_INLINE void place_map(map_t *to, map_t map, const in_t *begin)",
            "-{",
            "-map.word[0] = (bits_t)begin;",
            "-*to = map;",
            "-}",
            "+#if CLUSTER_A || CLUSTER_B",
            "+ALWAYS_INLINE void bring_half(",
            (
                "+char *to, const map_t *map, barrier_t *bar, int lines, int along_k, int x, int y, int line, int "
                "term, int batch)"
            ),
            "+{",
            "+const int half = lines / 2, first = OWN_RANK * half;",
            "+to += first * ROW_BYTES;",
            "+if (along_k)",
            "+COPY_TILE_TO(3, to, map, bar, x + term, y + line + first, batch);",
            "+else",
            "+#pragma unroll",
            "+for (int b = 0; b < half / ACROSS_LINES; ++b)",
            "+COPY_TILE_TO(3, to + b * ACROSS_BYTES, map, bar, x + line + first + b * ACROSS_LINES, y + term, batch);",
            "+}",
            "+#endif",
            "-acc_t *own, const acc_t *sum, int lane, int row, int column, out_t *d, index_t ld_d, const out_t *c,",
            "-index_t ld_c, acc_t alpha, acc_t beta, int m, int n, scales_t scales)",
            (
                "+acc_t *own, const acc_t *sum, int lane, int row, int column, out_t *d, index_t ld_d, const out_t "
                "*c, index_t ld_c, acc_t alpha,"
            ),
            "+acc_t beta, int m, int n, scales_t scales)",
            (
                "-*(pair_t *)(own + STAGED_AT(lane / 4 + h * 8, x * 8 + lane % 4 * 2)) = (pair_t)(sum[x * 4 + h * "
                "2], sum[x * 4 + h * 2 + 1]);"
            ),
            (
                "+*(pair_t *)(own + STAGED_AT(lane / 4 + h * 8, x * 8 + lane % 4 * 2)) = {sum[x * 4 + h * 2], "
                "sum[x * 4 + h * 2 + 1]};"
            ),
            "+#if CLUSTER_D",
            "+struct finished_t { acc_t sum[STAGED / WARP]; };",
            "+ALWAYS_INLINE finished_t finished(const acc_t *own, const four_t *left)",
            "+{",
            "+finished_t whole;",
            "+#pragma unroll",
            "+for (int s = 0; s < STAGED / WARP; ++s)",
            "+whole.sum[s] = sum_of(own[s], left[s / 4 * WARP].sum[s % 4]);",
            "+return whole;",
            "+}",
            "+#endif",
            (
                "-const map_t map_a, const map_t map_b, GEMM_ARGUMENTS, int x_a, int y_a, int x_b, int y_b, acc_t "
                "*parts, int whole, int shared,"
            ),
            "-int sharers, map_t *maps SCALE_ARGUMENTS)",
            "-{",
            "-char *tiles;",
            "-DECLARE_LOCAL(tiles, LOCAL_BYTES);",
            (
                "+const __grid_constant__ map_t map_a, const __grid_constant__ map_t map_b, GEMM_ARGUMENTS, int "
                "x_a, int y_a, int x_b, int y_b,"
            ),
            "+acc_t *parts, int whole, int shared, int sharers SCALE_ARGUMENTS)",
            "+{",
            "+extern __shared__ __align__(1024) char tiles[];",
            "+#if CLUSTER_D",
            "+barrier_t *const left = free + STAGES;",
            "+barrier_t *const taken = left + 1;",
            "+four_t *const lent = (four_t *)(taken + 1);",
            "+const int other = !OWN_RANK;",
            "+int turn = 0;",
            "+#endif",
            "-int group;",
            "-WARP_SHUFFLE(group, item / GROUP, 0);",
            "+const int group = __shfl_sync(0xffffffff, item / GROUP, 0);",
            "-const int known = HAS_ADDRESS(map_a, A) && HAS_ADDRESS(map_b, B);",
            "-map_t *const own_a = maps + GROUP.x * 2;",
            "-map_t *const own_b = own_a + 1;",
            "-if (item == MULTIPLIERS && !known) {",
            "-place_map(own_a, map_a, A);",
            "-place_map(own_b, map_b, B);",
            "-}",
            "+#if CLUSTER_D",
            "+BARRIER_INIT(left, 1);",
            "+BARRIER_INIT(taken, MULTIPLIERS / WARP / 2);",
            "+#endif",
            "-const map_t *a = own_a, *b = own_b;",
            "-if (known) {",
            '-PARAMETER_PLACE(a, "wgmma_param_0");',
            '-PARAMETER_PLACE(b, "wgmma_param_1");',
            "-} else",
            "-FENCE_MAPS(own_a, own_b);",
            "-PREFETCH_MAP(a);",
            "-PREFETCH_MAP(b);",
            "+PREFETCH_MAP(&map_a);",
            "+PREFETCH_MAP(&map_b);",
            "-BRING_A(to, a, bar, TSM, A_RUNS_ALONG_K, x_a, y_a, tile.row, TERM_OF(step), BATCHED_A * tile.batch);",
            "+BRING_A(to, &map_a, bar, TSM, A_RUNS_ALONG_K, x_a, y_a, tile.row, TERM_OF(step), BATCHED_A * tile.batch);",
            "-to + TILE_A_BYTES, b, bar, TSN, B_RUNS_ALONG_K, x_b, y_b, tile.column, TERM_OF(step),",
            "+to + TILE_A_BYTES, &map_b, bar, TSN, B_RUNS_ALONG_K, x_b, y_b, tile.column, TERM_OF(step),",
            "+#if CLUSTER_D",
            "+four_t *const place = lent + item / WARP / 2 * (SUMS / 4 * WARP) + lane;",
            "+if (item / WARP % 2 == other) {",
            "+unsigned there, told;",
            "+CLUSTER_ADDRESS(there, place, other);",
            "+CLUSTER_ADDRESS(told, left, other);",
            "+BARRIER_WAIT(taken, turn ^ 1);",
            "+#pragma unroll",
            "+for (int s = 0; s < SUMS; s += 4)",
            "+STORE_SUMS(there + s * WARP * 4, sum[s / BLOCK_SUMS] + s % BLOCK_SUMS, told);",
            "+turn ^= 1;",
            "+continue;",
            "+}",
            "+if (item == !other * WARP)",
            "+BARRIER_EXPECT(left, TSM * TSN / 2 * 4);",
            "+BARRIER_WAIT(left, turn);",
            "+turn ^= 1;",
            "+#endif",
            "+#if CLUSTER_D",
            "+if (lane == 0 && next_part(part, steps).left > 0)",
            "+CLUSTER_ARRIVE(taken, other);",
            "+#endif",
            "-SHARED acc_t staged[SUMMERS * STAGED];",
            "+extern __shared__ __align__(1024) char tiles[];",
            "+acc_t *const staged = (acc_t *)tiles;",
        ],
    ),
    "convert": (
        "a parameter of CUDA's kernel is called like the template that makes what is stored",
        [
            "-#define CONVERTED(x) PASTE(STORED_AS_, OUT)(rounded_to_precision(x))",
            "+inline out_t narrow(float x) { return to<out_t>::from(x); }",
            "+#define CONVERTED(x) narrow(rounded_to_precision(x))",
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
    "tiles": (
        (
            "OpenCL C counts groups in size_t, and CUDA C++ in 32 bits; how many groups shall be resident, "
            "OpenCL C cannot say"
        ),
        [
            "-#define RESIDENT(items, groups) __attribute__((reqd_work_group_size(items, 1, 1)))",
            "+#define RESIDENT(threads, blocks) __launch_bounds__(threads, blocks)",
            "-const size_t across = ((size_t)n + columns - 1) / columns;",
            "-const size_t down = ((size_t)m + rows - 1) / rows;",
            "-const size_t group = GROUP.x;",
            "+const unsigned across = ((unsigned)n + columns - 1) / columns;",
            "+const unsigned down = ((unsigned)m + rows - 1) / rows;",
            "+const unsigned group = GROUP.x;",
        ],
    ),
    "runs": (
        "CUDA C++ has a zero of every type in its braces; OpenCL C, which runs on CPUs, converts vectors of halves at once",
        [
            "-RUN_ELEMENT(in_t, run, w) = w < present ? p[w] : (in_t)0;",
            "+RUN_ELEMENT(in_t, run, w) = w < present ? p[w] : in_t{};",
            "-#if defined(LOADS_HALVES)",
            "-return WIDENED(IN, run);",
            "-#else",
            "-#endif",
            "-RUN_ELEMENT(out_t, run, w) = w * APART >= begin && w * APART < end ? c[w * APART] : (out_t)0;",
            "+RUN_ELEMENT(out_t, run, w) = w * APART >= begin && w * APART < end ? c[w * APART] : out_t{};",
            "-#if defined(STORES_HALVES)",
            "-value = alpha * sum;",
            "-if (!LEAVES_C_OUT(beta))",
            "-value += beta * WIDENED(OUT, before);",
            "-run = ROUNDED(OUT, value);",
            "-#else",
            "-#endif",
            "-out_run_t before = ;",
            "+out_run_t before = {};",
        ],
    ),
    "panels": (
        "CUDA C++ finds out by itself which memory a pointer points to",
        [
            "-#define PACK(space, target, LINES, first, size, start, end, ALONG_K, RUN, NUMBER) \\",
            "+#define PACK(target, LINES, first, size, start, end, ALONG_K, RUN, NUMBER) \\",
            "-*(space wide_t *)((target) + (index_t)(p - (start) + w) * (LINES) + line) = x[w]; \\",
            "+*(wide_t *)((target) + (index_t)(p - (start) + w) * (LINES) + line) = x[w]; \\",
            "-*(space wide_t *)((target) + (index_t)(p - (start)) * (LINES) + line) = RUN((first) + line, p); \\",
            "+*(wide_t *)((target) + (index_t)(p - (start)) * (LINES) + line) = RUN((first) + line, p); \\",
            (
                "-#define PACK_A(space, target, i, start, end) PACK(space, target, LINES_A, i, m, start, end, "
                "A_RUNS_ALONG_K, RUN_OF_A, LOAD_A)"
            ),
            (
                "-#define PACK_B(space, target, j, start, end) PACK(space, target, COLUMNS, j, n, start, end, "
                "B_RUNS_ALONG_K, RUN_OF_B, NUMBER_OF_B)"
            ),
            (
                "+#define PACK_A(target, i, start, end) PACK(target, LINES_A, i, m, start, end, A_RUNS_ALONG_K, "
                "RUN_OF_A, LOAD_A)"
            ),
            (
                "+#define PACK_B(target, j, start, end) PACK(target, COLUMNS, j, n, start, end, B_RUNS_ALONG_K, "
                "RUN_OF_B, NUMBER_OF_B)"
            ),
        ],
    ),
    "ptx": (
        (
            "each language takes the instructions that it has no word for, or whose compiler makes another of it: OpenCL C has "
            "halves, and CUDA C++ has functions for lanes and for loads through the read-only cache, and a negation"
        ),
        [
            (
                '-#define WARP_SHUFFLE(y, x, lane) asm volatile("shfl.sync.idx.b32 %0, %1, %2, 31, 0xffffffff;" '
                ': "=r"(y) : "r"(x), "r"(lane))'
            ),
            (
                '-#define WARP_SHUFFLE_DOWN(y, x, up) asm volatile("shfl.sync.down.b32 %0, %1, %2, 31, '
                '0xffffffff;" : "=r"(y) : "r"(x), "r"(up))'
            ),
            '-#define WARP_SYNC() asm volatile("bar.warp.sync 0xffffffff;" ::: "memory")',
            '-#define LOAD_READ_ONLY_1(r, p) asm("ld.global.nc.u8 %0, [%1];" : "=r"(r[0]) : "l"(p))',
            '-#define LOAD_READ_ONLY_2(r, p) asm("ld.global.nc.u16 %0, [%1];" : "=r"(r[0]) : "l"(p))',
            '-#define LOAD_READ_ONLY_4(r, p) asm("ld.global.nc.u32 %0, [%1];" : "=r"(r[0]) : "l"(p))',
            (
                '-#define LOAD_READ_ONLY_8(r, p) asm("ld.global.nc.v2.u32 {%0, %1}, [%2];" : "=r"(r[0]), '
                '"=r"(r[1]) : "l"(p))'
            ),
            "-#define LOAD_READ_ONLY_16(r, p) \\",
            (
                '-asm("ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), '
                '"=r"(r[3]) : "l"(p))'
            ),
            '+#define HALF_MUL_ADD(r, x, y, z) asm("fma.rn.f16 %0, %1, %2, %3;" : "=h"(r) : "h"(x), "h"(y), "h"(z))',
            '+#define HALF_MUL(r, x, y) asm("mul.rn.f16 %0, %1, %2;" : "=h"(r) : "h"(x), "h"(y))',
            '+#define HALF_ADD(r, x, y) asm("add.rn.f16 %0, %1, %2;" : "=h"(r) : "h"(x), "h"(y))',
            '+#define HALF_TO_FLOAT(r, x) asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(x))',
            '+#define FLOAT_TO_HALF(r, x) asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r) : "f"(x))',
            '+#define DOUBLE_TO_HALF(r, x) asm("cvt.rn.f16.f64 %0, %1;" : "=h"(r) : "d"(x))',
            "+#define LOAD_READ_ONLY_1(r, p) r[0] = __ldg((const unsigned char *)p)",
            "+#define LOAD_READ_ONLY_2(r, p) r[0] = __ldg((const unsigned short *)p)",
            "+#define LOAD_READ_ONLY_4(r, p) r[0] = __ldg((const unsigned *)p)",
            "+#define LOAD_READ_ONLY_8(r, p) *(uint2 *)r = __ldg((const uint2 *)p)",
            "+#define LOAD_READ_ONLY_16(r, p) *(uint4 *)r = __ldg((const uint4 *)p)",
            '-#define NEGATE(y, x) asm("neg.f32 %0, %1;" : "=f"(y) : "f"(x))',
            '+#define LET_NEXT_BEGIN() asm volatile("griddepcontrol.launch_dependents;" ::: "memory")',
            '+#define AWAIT_LAUNCHES() asm volatile("griddepcontrol.wait;" ::: "memory")',
        ],
    ),
}
"""Lines that differ, "-" in OpenCL C and "+" in CUDA C++, and why they have to."""

NO_TWINS = {
    "clusters": "OpenCL launches no clusters: its words are those of a group by itself",
    "types": "OpenCL C has halves and vectors, and macros choose a conversion; CUDA C++ has structs and overloads",
    "arithmetic": "OpenCL C has operators for vectors, and macros choose an arithmetic; CUDA C++ has overloads",
    "vectors": "a wide_t is a vector of OpenCL C, and an array in CUDA C++",
    "unaligned": "OpenCL C, which runs on CPUs, moves a vector that begins anywhere in two ways; CUDA C++ moves elements",
    "sub_groups": "OpenCL C has an extension of Intel's, and takes NVIDIA's instructions; CUDA C++ has functions",
}
"""Parts of the prelude that say what one language lacks, and why their texts cannot be one."""


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


FOLDER = Path(kernels.__path__[0])


def source(name: str, language: str) -> str:
    """The text of a kernel or of a part of the prelude."""
    file = f"{name}.{ {'opencl': 'cl', 'cuda': 'cu'}[language] }"
    return (FOLDER / language / (PRELUDE if name in PARTS else "") / file).read_text("utf-8")


PARTS = sorted(path.stem for path in (FOLDER / "opencl" / PRELUDE).iterdir())
CONTRACTS = [contract.name for contract in (*kernels.variants(), *kernels.passes())]
ALONE = ("matrix_instructions", "sub_group_mma")
"""Of instructions that CUDA does not reach."""

NAMES = [*(name for name in CONTRACTS if (FOLDER / "opencl" / f"{name}.cl").is_file()), *PARTS]


@pytest.mark.parametrize("name", [name for name in NAMES if name not in (*NO_TWINS, *ALONE)])
def test_twins_are_one_text_in_two_languages(name: str) -> None:
    why, listed = APART.get(name, ("", []))
    assert differences(source(name, "opencl"), source(name, "cuda")) == listed, why


def test_what_is_apart_has_a_reason() -> None:
    assert APART.keys() <= {*NAMES} - NO_TWINS.keys()
    assert all(why and listed for why, listed in APART.values())


@pytest.mark.parametrize("name", NO_TWINS)
def test_what_cannot_be_one_text_is_a_part_and_is_not_one(name: str) -> None:
    opencl, cuda = source(name, "opencl"), source(name, "cuda")
    assert name in PARTS
    assert len(differences(opencl, cuda)) > len(lines(cuda, CUDA)) / 2, "list the lines in APART"


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
