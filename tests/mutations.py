"""Kernels that are wrong on purpose: edits of the shipped sources, told once for both languages, that the checks must notice.

Every edit says how often its pattern occurs. Where a kernel has changed so that it does not any more, planting it fails: no
mutation becomes a mutation of nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal
from unittest import mock

from gemmport import kernels
from gemmport.execution import executor
from gemmport.runtime import sources

NAIVE, TILED, REGISTER_TILED = "naive", "tiled", "register_tiled"
TRANSPOSED_B, PADDED = "transposed_b", "padded"
TRANSPOSE = "transpose"
RELAYOUT = "relayout"
PACKED = "packed"
PREFETCH, DIRECT = "prefetch", "direct"
GEMV, SIMT, BATCHED, MMA, WGMMA = "gemv", "simt", "batched", "mma", "wgmma"
WPT, VECTORIZED, REGISTER_TILED_VECTORIZED = "wpt", "vectorized", "register_tiled_vectorized"

SCALAR = (NAIVE, TILED, WPT, REGISTER_TILED)
"""Kernels that move and compute one element at a time."""

WIDE = (VECTORIZED, REGISTER_TILED_VECTORIZED)
"""Those that move and compute WIDTH at a time."""

WITHOUT_RUNS = (NAIVE, TILED, REGISTER_TILED)
KERNELS = (*WITHOUT_RUNS, VECTORIZED)
"""Those that faults of the prelude are planted in: all of them, but for what the prelude has once more for runs."""

Types = tuple[str, str, str | None]
"""Inputs, output, accumulator (None: the default)."""

FLOAT32: Types = ("float32", "float32", None)
FLOAT16: Types = ("float16", "float16", None)
COMPLEX64: Types = ("complex64", "complex64", None)

ALONE_AND_IN_RUNS = {"opencl": 2, "cuda": 1}
"""How often a sum is rounded to bfloat16: OpenCL C has vectors of them, too."""

NoticedBy = Literal[
    "exact",
    "structures",
    "own columns",
    "statistics",
    "spans",
    "groups",
    "special values",
    "shared tiles",
    "batches",
    "oclgrind",
]
"""The check that must notice.

- exact: products of integers in poisoned memory (`test_dtypes.problems`); structures: the same with tiles of many shapes;
- own columns: a low D, whose macro-tiles lay out B themselves;
- statistics: the engine of `gemmport run`, on random operands; special values: test_special_values;
- spans: operands that lie beyond 2³¹ elements; groups: many large work-groups at once, and Oclgrind's detector of races;
- shared tiles: `simt` and `mma` where every tile is shared along k (`check_shared` of test_simt and test_mma);
- batches: dense matrices in several groups of products (`test_batched.check_batches`);
- oclgrind: Oclgrind alone, of reads and races that change no result for certain.
"""


@dataclass(frozen=True)
class Edit:
    """A pattern that a source has exactly `times`, and what replaces it; each in both languages or by language."""

    pattern: str
    replacement: str | Mapping[str, str]
    times: int | Mapping[str, int] = 1

    def apply(self, text: str, language: str) -> str:
        """The text with the edit.

        Raises:
            AssertionError: the pattern is not there as often as it should be.
        """
        edited, found = self._replaced(text, language)
        times = self._times(language)
        assert found == times, f"{self.pattern!r} is {found} times in the {language} source, not {times}"
        assert edited != text
        return edited

    def apply_to_part(self, text: str, language: str) -> str:
        """A part of the prelude with the edit, which all parts together have to take as often as it says.

        Raises:
            AssertionError: the pattern is not in the parts as often as it should be.
        """
        parts = (Path(kernels.__path__[0]) / language / sources.PRELUDE).iterdir()
        found = sum(self._replaced(part.read_text("utf-8"), language)[1] for part in parts)
        times = self._times(language)
        assert found == times, f"{self.pattern!r} is {found} times in the {language} prelude, not {times}"
        return self._replaced(text, language)[0]

    def _times(self, language: str) -> int:
        return self.times if isinstance(self.times, int) else self.times[language]

    def _replaced(self, text: str, language: str) -> tuple[str, int]:
        new = self.replacement if isinstance(self.replacement, str) else self.replacement[language]
        return re.subn(self.pattern, new, text)


@dataclass(frozen=True)
class Mutation:
    """One fault.

    Attributes:
        name: what the broken kernel does.
        edits: of the parts of the prelude where `prelude` says so, else of the kernel's own source.
        kernels: those it is planted in.
        types, ops: the product on which it shows.
        noticed_by: the check that must notice it; empty for what changes no result.
        why: it changes none.
        structure: where "structures" must, which of the kernel's shapes of tiles is tried first: one that shows it.
    """

    name: str
    edits: tuple[Edit, ...]
    kernels: tuple[str, ...] = SCALAR
    prelude: bool = False
    types: Types = FLOAT32
    ops: str = "NN"
    noticed_by: NoticedBy | Literal[""] = "exact"
    why: str = ""
    structure: int = 0


def of_kernel(
    name: str,
    pattern: str,
    replacement: str | Mapping[str, str],
    *kernels: str,
    ops: str = "NN",
    noticed_by: NoticedBy | Literal[""] = "exact",
    why: str = "",
    structure: int = 0,
) -> Mutation:
    """A mutation of the sources of some kernels (default: all that move one element at a time)."""
    edits = (Edit(pattern, replacement),)
    return Mutation(name, edits, kernels or SCALAR, ops=ops, noticed_by=noticed_by, structure=structure, why=why)


def of_mma(
    name: str, pattern: str, replacement: str, *, ops: str = "NN", noticed_by: NoticedBy = "exact", times: int = 1
) -> Mutation:
    """A mutation of `mma`, which shows on halves."""
    return Mutation(name, (Edit(pattern, replacement, times),), (MMA,), types=FLOAT16, ops=ops, noticed_by=noticed_by)


def of_wgmma(
    name: str, pattern: str, replacement: str, *, ops: str = "NN", noticed_by: NoticedBy = "exact", times: int = 1
) -> Mutation:
    """A mutation of `wgmma`, which CUDA alone has, and which tests/host runs."""
    return Mutation(name, (Edit(pattern, replacement, times),), (WGMMA,), types=FLOAT16, ops=ops, noticed_by=noticed_by)


def of_shares(name: str, pattern: str, replacement: str, *, noticed_by: NoticedBy = "exact") -> Mutation:
    """A mutation of the order of tiles, which a part of the prelude says."""
    return Mutation(name, (Edit(pattern, replacement),), (SIMT,), prelude=True, noticed_by=noticed_by)


def of_panels(name: str, pattern: str, replacement: str) -> Mutation:
    """A mutation of how panels are written, which a part of the prelude says."""
    return Mutation(name, (Edit(pattern, replacement),), ("pack",), prelude=True)


def of_prelude(
    name: str,
    pattern: str,
    replacement: str | Mapping[str, str],
    types: Types = FLOAT32,
    *,
    kernels: tuple[str, ...] = KERNELS,
    ops: str = "NN",
    times: int | Mapping[str, int] = 1,
    noticed_by: NoticedBy | Literal[""] = "exact",
    why: str = "",
) -> Mutation:
    """A mutation of the prelude, of which kernels include the parts that they need."""
    return Mutation(name, (Edit(pattern, replacement, times),), kernels, True, types, ops, noticed_by, why)


_AS_BITS = {"opencl": ("as_float", "as_uint"), "cuda": ("__uint_as_float", "__float_as_uint")}


def rounded(expression: str, precision: int) -> dict[str, str]:
    """A float expression, rounded to so many bits of significand; for replacements."""
    dropped = 24 - precision
    half, mask = 1 << (dropped - 1), 0xFFFFFFFF << dropped & 0xFFFFFFFF
    return {
        language: f"return {number}(({bits}({expression}) + {half:#x}) & {mask:#x});"
        for language, (number, bits) in _AS_BITS.items()
    }


_LOAD = r"return (?:TO_SUM|to<acc_t>::from)\((.*)\);"
_MUL_ADD = r"return a \* b \+ sum;"

TF32_LOAD = of_prelude("loads TF32", _LOAD, rounded(r"\1", 11), noticed_by="statistics")
BFLOAT16_LOAD = of_prelude("loads bfloat16", _LOAD, rounded(r"\1", 8), noticed_by="statistics")

DOUBLES: Types = ("float64", "float64", None)
COMPLEX_DOUBLES: Types = ("complex128", "complex128", None)
_STORED = r"return (PASTE\(STORED_AS_, OUT\)|to<out_t>::from)\(value\);"
_AS_FLOATS = {
    "opencl": r"return \1(convert_double2(convert_float2(value)));",
    "cuda": r"return \1(to<acc_t>::from(to<float2>::from(value)));",
}

IN_SINGLE_PRECISION = (
    of_prelude(
        "sums doubles in single precision",
        _MUL_ADD,
        "return (float)(a * b + sum);",
        DOUBLES,
        kernels=WITHOUT_RUNS,
        noticed_by="statistics",
    ),
    of_prelude(
        "sums complex doubles in single precision",
        r"sum\.y \+= a\.y \* b\.x;",
        r"sum.y += a.y * b.x; sum.x = (float)sum.x; sum.y = (float)sum.y;",
        COMPLEX_DOUBLES,
        kernels=WITHOUT_RUNS,
        noticed_by="statistics",
    ),
    of_prelude(
        "rounds doubles to single precision",
        _STORED,
        r"return \1((acc_t)(float)value);",
        DOUBLES,
        noticed_by="statistics",
    ),
    of_prelude(
        "rounds complex doubles to single precision", _STORED, _AS_FLOATS, COMPLEX_DOUBLES, noticed_by="statistics"
    ),
)
"""What computes float64 and complex128 as float32 would, in its sums or in its results."""

_OF_ALL_KERNELS = (
    of_kernel("skips the last row", r"i < m\b", "i < m - 1", *SCALAR, *WIDE),
    of_kernel("skips the last column", r"j < n\)", "j < n - 1)"),
    of_kernel("forgets the edge below", r"i < m && j < n\)", "j < n)"),
    of_kernel("forgets the edge at the right", r"i < m && j < n\)", "i < m)"),
    of_kernel("reads C as D lies", r"C \+ i \* ld_c", "C + i * ld_d", *SCALAR, *WIDE),
    of_kernel("writes D as C lies", r"D \+ i \* ld_d", "D + i * ld_c", *SCALAR, *WIDE),
    of_kernel("reads C of the next column", r"i \* ld_c \+ j,", "i * ld_c + j + 1,"),
    of_kernel("writes the next column", r"i \* ld_d \+ j,", "i * ld_d + j + 1,"),
    of_kernel(
        "multiplies A with itself",
        r"mul_add\((LOAD_A\(i, p\)|a_tile\[y\]\[p\]|a_tile\[w \* RTS \+ y\]\[p\]|a\[r\]), .*, sum",
        r"mul_add(\1, \1, sum",
    ),
    of_kernel("forgets the sum so far", r"= mul_add\((.*), sum(\[\w\])*\);", r"= mul_add(\1, ACC_ZERO);"),
    of_kernel(
        "writes D by 32-bit indices",
        r"D \+ i \* ld_d",
        "D + (int)((unsigned)i * (unsigned)ld_d)",
        *SCALAR,
        *WIDE,
        noticed_by="spans",
    ),
    of_kernel(
        "reads C by 32-bit indices",
        r"C \+ i \* ld_c",
        "C + (int)((unsigned)i * (unsigned)ld_c)",
        *SCALAR,
        *WIDE,
        noticed_by="spans",
    ),
)

_OF_NAIVE = (
    of_kernel("drops the last term", r"p < k\b", "p < k - 1", NAIVE),
    of_kernel("drops the first term", r"int p = 0", "int p = 1", NAIVE),
    of_kernel("reads the row below", r"LOAD_A\(i, p\)", "LOAD_A(i + 1, p)", NAIVE),
    of_kernel("reads the wrong column", r"LOAD_B\(p, j\)", "LOAD_B(p, (j + 1) % n)", NAIVE),
    of_kernel("reads the next term of B", r"LOAD_B\(p, j\)", "LOAD_B(p + 1, j)", NAIVE),
    of_kernel("writes beyond the edge", r"j < n\)", "j < n + 1)", NAIVE),
    of_kernel("exchanges rows and columns", r"tile\.row \+ (.*;\n.*)tile\.column", r"tile.column + \1tile.row", NAIVE),
)

# Kernels with tiles that move one element at a time.
TILES = (TILED, WPT, REGISTER_TILED)

_OF_TILES = (
    of_kernel(
        "waits for no complete tile",
        r"(barrier\(CLK_LOCAL_MEM_FENCE\)|__syncthreads\(\)); // the tiles",
        "// the tiles",
        *TILES,
        *WIDE,
        noticed_by="groups",
    ),
    of_kernel(
        "overwrites tiles in use",
        r"(barrier\(CLK_LOCAL_MEM_FENCE\)|__syncthreads\(\)); // nobody",
        "// nobody",
        *TILES,
        *WIDE,
        noticed_by="groups",
    ),
    of_kernel(
        "skips the last partial tile",
        r"\(start \+= (\w+)\) < k\)",
        r"(start += \1) + \1 <= k)",
        *TILES,
        *WIDE,
    ),
    of_kernel("drops the last term of a tile", r"p < (TSK?); \+\+p", r"p < \1 - 1; ++p", *TILES, *WIDE),
    of_kernel("steps too far", r"start \+= (TSK?)", r"start += \1 + 1", *TILES),
    of_kernel(
        "loads the row below", r"LOAD_(RUN_)?A\(tile\.row \+ (\w+),", r"LOAD_\1A(tile.row + \2 + 1,", *TILES, *WIDE
    ),
    of_kernel(
        "loads the column before",
        r"tile\.column \+ (\w+)\) : ACC_ZERO",
        r"tile.column + \1 - 1) : ACC_ZERO",
        *TILES,
    ),
    of_kernel("loads the next term of A", r"(LOAD_A\(.*start \+ \w+)\)", r"\1 + 1)", *TILES),
    of_kernel("forgets the end of the sum in A", r"(row < m) && start \+ \w+ < k\)", r"\1)", *TILES),
    of_kernel("forgets the end of the sum in B", r"start \+ \w+ < k && (tile\.column)", r"\1", *TILES),
    of_kernel("reads rows beyond A", r"tile\.row \+ \w+ < m && (start)", r"\1", *TILES, noticed_by="oclgrind"),
    of_kernel(
        "reads columns beyond B",
        r"(< k) && tile\.column \+ \w+ < n\)",
        r"\1)",
        *TILES,
        ops="TT",
        noticed_by="oclgrind",
    ),
)

_OF_TILED = (
    of_kernel("reads the tile of A transposed", r"a_tile\[y\]\[p\]", "a_tile[p][y]", TILED),
    of_kernel(
        "brings part of a tile only",
        r"a_tile\[a_row\]\[a_term\] =",
        "if (a_row) a_tile[a_row][a_term] =",
        TILED,
        noticed_by="oclgrind",
    ),
    of_kernel("confuses rows and terms of B", r"b_tile\[b_term\]\[b_column\]", "b_tile[b_column][b_term]", TILED),
)

_OF_REGISTER_TILED = (
    of_kernel(
        "takes the rows of another item", r"a_tile\[p\]\[ROW_OF\(y, r\)\]", "a_tile[p][ROW_OF(0, r)]", REGISTER_TILED
    ),
    of_kernel("confuses x and y", r"b_tile\[p\]\[COLUMN_OF\(x, c\)\]", "b_tile[p][COLUMN_OF(y, c)]", REGISTER_TILED),
    of_kernel(
        "brings too few elements",
        r"\(\(\(elements\) \+ THREADS - 1\) / THREADS\)",
        "((elements) / THREADS)",
        REGISTER_TILED,
        noticed_by="structures",
        structure=5,
    ),
    of_kernel("brings more than the tile of A", r"e >= TSM \* TSK\)", "0)", REGISTER_TILED, noticed_by="oclgrind"),
    of_kernel(
        "divides by the wrong extent",
        r"A_RUNS_ALONG_K \? e / TSK : e % TSM",
        "A_RUNS_ALONG_K ? e / TSK : e % TSK",
        REGISTER_TILED,
        ops="TN",
    ),
)

_OF_TRANSPOSED_B_AND_PADDED = (
    *(
        replace(each, name=f"{each.name}, prepared", kernels=(TRANSPOSED_B, PADDED))
        for each in _OF_ALL_KERNELS
        if "mul_add" not in each.edits[0].pattern
    ),
    of_kernel(
        "waits for no complete tile, prepared",
        r"(barrier\(CLK_LOCAL_MEM_FENCE\)|__syncthreads\(\)); // the tiles",
        "// the tiles",
        TRANSPOSED_B,
        PADDED,
        noticed_by="groups",
    ),
    of_kernel(
        "overwrites tiles in use, prepared",
        r"(barrier\(CLK_LOCAL_MEM_FENCE\)|__syncthreads\(\)); // nobody",
        "// nobody",
        TRANSPOSED_B,
        PADDED,
        noticed_by="groups",
    ),
    of_kernel(
        "drops the last term of a tile, prepared", r"p < (TSD?K); \+\+p", r"p < \1 - 1; ++p", TRANSPOSED_B, PADDED
    ),
    of_kernel("steps too far, prepared", r"start \+= (TSD?K)", r"start += \1 + 1", TRANSPOSED_B, PADDED),
    of_kernel("loads the row below, prepared", r"LOAD_A\(tile\.row \+", r"LOAD_A(tile.row + 1 +", TRANSPOSED_B, PADDED),
    of_kernel("loads the next term of B, prepared", r"LOAD_B\(start \+", "LOAD_B(start + 1 +", TRANSPOSED_B, PADDED),
    of_kernel(
        "stores rows in another order",
        r"i = tile\.row \+ r \* RTS(M?) \+ y",
        r"i = tile.row + (r + 1) % WPT\1 * RTS\1 + y",
        TRANSPOSED_B,
        PADDED,
    ),
)

_OF_TRANSPOSED_B = (
    of_kernel(
        "skips the last partial tile of TSDK", r"\(start \+= TSDK\) < k", "(start += TSDK) + TSDK <= k", TRANSPOSED_B
    ),
    of_kernel("multiplies B with itself", r"mul_add\(a_tile\[.*\]\[p\], b, sum", "mul_add(b, b, sum", TRANSPOSED_B),
    of_kernel("forgets the sum so far of a row", r"b, sum\[r\]\)", "b, ACC_ZERO)", TRANSPOSED_B),
    of_kernel(
        "adds all rows up in one sum",
        r"sum\[r\] = mul_add\((.*), sum\[r\]",
        r"sum[0] = mul_add(\1, sum[0]",
        TRANSPOSED_B,
    ),
    of_kernel("takes rows of another item", r"a_tile\[r \* RTS \+ y\]", "a_tile[r * RTS]", TRANSPOSED_B),
    of_kernel("takes columns of another item", r"b_tile\[x\]\[p\]", "b_tile[y][p]", TRANSPOSED_B),
    of_kernel(
        "takes a transposed A for one along k",
        r"A_RUNS_ALONG_K \? e / TSDK : e % TS;",
        "A_RUNS_ALONG_K ? e / TSDK : e / TSDK;",
        TRANSPOSED_B,
        ops="TN",
    ),
    of_kernel("confuses columns and terms of B", r"column = e / TSDK", "column = e % TS", TRANSPOSED_B),
    of_kernel("forgets the end of the sum in A of TSDK", r"(row < m) && start \+ a_term < k\)", r"\1)", TRANSPOSED_B),
    of_kernel("forgets the end of the sum in B of TSDK", r"start \+ b_term < k && (tile\.column)", r"\1", TRANSPOSED_B),
    of_kernel(
        "brings too few terms",
        r"\(\(TS \* TSDK \+ THREADS - 1\) / THREADS\)",
        "(TS * TSDK / THREADS)",
        TRANSPOSED_B,
        noticed_by="structures",
        structure=2,
    ),
    of_kernel("brings more than the tiles", r"e >= TS \* TSDK\)", "0)", TRANSPOSED_B, noticed_by="oclgrind"),
    of_kernel(
        "reads rows beyond A in the last tile",
        r"tile\.row \+ row < m && (start)",
        r"\1",
        TRANSPOSED_B,
        noticed_by="oclgrind",
    ),
    of_kernel(
        "reads columns beyond the transposed B",
        r"(b_term < k) && tile\.column \+ column < n\)",
        r"\1)",
        TRANSPOSED_B,
        noticed_by="oclgrind",
    ),
)

_OF_WPT = (
    of_kernel("forgets the last row of an item", r"w < WPT(; \+\+w\) \{\n *const int i)", r"w < WPT - 1\1", WPT),
    of_kernel("writes the rows of another item", r"(tile\.row \+ w \* RTS \+) y", r"\1 (y + 1) % RTS", WPT),
    of_kernel("multiplies the rows of one item", r"a_tile\[w \* RTS \+ y\]", "a_tile[w * RTS]", WPT),
    of_kernel("multiplies neighbouring rows", r"a_tile\[w \* RTS \+ y\]", "a_tile[y * WPT + w]", WPT),
    of_kernel("multiplies by one column of B", r"b_tile\[p\]\[x\]", "b_tile[p][0]", WPT),
    of_kernel("adds up the rows of an item", r"p\], b, sum\[w\]\)", "p], b, sum[0])", WPT),
    of_kernel("brings too few lines", r"const int line = w \* RTS \+ y", "const int line = w + y", WPT),
    of_kernel("brings a tile transposed", r"b_tile\[b_term\]\[b_column\] =", "b_tile[b_column][b_term] =", WPT),
    of_kernel("reads the tile of A by terms", r"a_tile\[w \* RTS \+ y\]\[p\]", "a_tile[p][w * RTS + y]", WPT),
)

# Of both kernels that move runs. What begins inside of a run would be read whole from where nothing is aligned, which devices
# may answer by ending the process: these faults go from run to run.
_OF_WIDE = (
    of_kernel("skips the last column of runs", r"n - j\)", "n - j - 1)", *WIDE),
    of_kernel("writes runs below the edge", r"PRESENT\(i < m, n - j\)", "PRESENT(1, n - j)", *WIDE),
    of_kernel("writes runs across the edge", r"PRESENT\(i < m, n - j\)", "PRESENT(i < m, WIDTH)", *WIDE),
    of_kernel("reads C of the next run", r"i \* ld_c \+ j,", "i * ld_c + j + WIDTH,", *WIDE),
    of_kernel("writes the next run", r"i \* ld_d \+ j,", "i * ld_d + j + WIDTH,", *WIDE),
    of_kernel("steps a run too far", r"start \+= (TSK?)", r"start += \1 + WIDTH", *WIDE),
    of_kernel("loads the next run of A", r"(LOAD_RUN_A\(.*start \+ \w+)\)", r"\1 + WIDTH)", *WIDE),
    of_kernel("loads the run before of B", r"(LOAD_RUN_B\(.*tile\.column \+ \w+)\)", r"\1 - WIDTH)", *WIDE),
    of_kernel(
        "multiplies by one number of a run",
        r"(a_tile\[y\]\[p / WIDTH\]|a\[r / WIDTH\]), \w % WIDTH\)(, b)",
        r"\1, 0)\2",
        *WIDE,
    ),
    of_kernel(
        "forgets the sums so far", r"= wide_mul_add\((.*), sum(\[\w\])*\);", r"= wide_mul_add(\1, WIDE_ZERO);", *WIDE
    ),
)

_OF_VECTORIZED = (
    of_kernel(
        "spreads a run of A backwards", r"a_tile\[a_row \+ w\]", "a_tile[a_row + WIDTH - 1 - w]", VECTORIZED, ops="TN"
    ),
    of_kernel(
        "spreads a run of B backwards", r"b_tile\[b_term \+ w\]", "b_tile[b_term + WIDTH - 1 - w]", VECTORIZED, ops="NT"
    ),
    of_kernel(
        "lays runs of A from the right", r"a_tile\[a_row\]\[x\]", "a_tile[a_row][TS / WIDTH - 1 - x]", VECTORIZED
    ),
    of_kernel(
        "lays runs of B from the right", r"b_tile\[b_term\]\[x\]", "b_tile[b_term][TS / WIDTH - 1 - x]", VECTORIZED
    ),
    of_kernel("multiplies by one run of B", r"b_tile\[p\]\[x\]", "b_tile[p][0]", VECTORIZED),
    of_kernel("multiplies one row of A", r"a_tile\[y\]\[p / WIDTH\]", "a_tile[0][p / WIDTH]", VECTORIZED),
    of_kernel(
        "brings every other run of B only",
        r"if \(!B_RUNS_ALONG_K\)\n",
        "if (x % 2 == 1)\n            ;\n        else if (!B_RUNS_ALONG_K)\n",
        VECTORIZED,
        noticed_by="oclgrind",
    ),
)

_OF_PADDED = (
    of_kernel("skips the last panel", r"\(start \+= TSK\) < k", "(start += TSK) + TSK < k", PADDED),
    of_kernel("multiplies rows of A with themselves", r"mul_add\(a\[r\], b\[c\]", "mul_add(a[r], a[r]", PADDED),
    of_kernel("forgets the sum so far of a block", r"sum\[r\]\[c\]\);\n", "ACC_ZERO);\n", PADDED),
    of_kernel("takes the rows of the first item", r"a_tile\[p\]\[r \* RTSM \+ y\]", "a_tile[p][r * RTSM]", PADDED),
    of_kernel("takes columns by y", r"b_tile\[p\]\[c \* RTSN \+ x\]", "b_tile[p][c * RTSN + y]", PADDED),
    of_kernel("brings part of A's tile", r"l < LPTA", "l < LPTA - 1", PADDED),
    of_kernel("gives B the loads of A", r"l < LPTB", "l < LPTA", PADDED),
    of_kernel(
        "gives A's loader the columns of B's",
        r"a_tile\[e / TSM\]\[e % TSM\]",
        "a_tile[e / TSM][e % TSN % TSM]",
        PADDED,
        noticed_by="structures",
        structure=1,
    ),
    of_kernel("repeats the first term of A", r"e % TSM, start \+ e / TSM", "e % TSM, start", PADDED),
    of_kernel("repeats the first columns of B", r"tile\.column \+ e % TSN", "e % TSN", PADDED),
    of_kernel("has no loop", r"#if TERMS", "#if 0", PADDED),
    of_kernel("reads panels that are not there", r"#if TERMS", "#if 1", PADDED),
)
_SHUFFLE = "shuffle"

_OF_SHUFFLE = (
    of_kernel("reads lanes of the first team", r"this_lane\(\) - x \+ \(e\) % RTSN\)", "(e) % RTSN)", _SHUFFLE),
    of_kernel("reads the next lane", r"\(e\) % RTSN\)", "((e) + 1) % RTSN)", _SHUFFLE),
    of_kernel("reads the first register", r"held\[\(e\) / RTSN\]", "held[0]", _SHUFFLE),
    of_kernel("holds elements across memory", r"int e = h \* RTSN \+ x", "int e = x * HELD + h", _SHUFFLE),
    of_kernel("confuses rows and terms of a team", r"\(\(row\) \* TSK \+ \(term\)\)", "((term) * TSK + (row))", _SHUFFLE),
    of_kernel(
        "takes the terms of a transposed A for its rows",
        r"#define ROW_OF\(e\) \(\(e\) % WPTM\)",
        "#define ROW_OF(e) ((e) / TSK)",
        _SHUFFLE,
        ops="TN",
    ),
    of_kernel("loads the rows of the first team", r"y \* WPTM \+ ROW_OF\(e\)", "ROW_OF(e)", _SHUFFLE),
    of_kernel("loads a team's next term", r"(LOAD_A\(.*start \+ term)\)", r"\1 + 1)", _SHUFFLE),
    of_kernel("forgets the end of a team's terms", r"(row < m) && start \+ term < k\)", r"\1)", _SHUFFLE),
    of_kernel(
        "reads a team's rows beyond A", r"tile\.row \+ row < m && (start)", r"\1", _SHUFFLE, noticed_by="oclgrind"
    ),
    of_kernel("forgets the end of the terms of B", r"start \+ term < k && (tile\.column)", r"\1", _SHUFFLE),
    of_kernel(
        "reads beyond the columns of B", r"(< k) && tile\.column \+ column < n\)", r"\1)", _SHUFFLE, ops="TT",
        noticed_by="oclgrind",
    ),
    of_kernel("brings too little of B", r"\(\(\(elements\) \+ ITEMS - 1\) / ITEMS\)", "((elements) / ITEMS)", _SHUFFLE),
    of_kernel(
        "multiplies before B is complete", r"(barrier\(CLK_LOCAL_MEM_FENCE\)|__syncthreads\(\)); // the tiles",
        "// the tiles", _SHUFFLE, noticed_by="groups",
    ),
    of_kernel(
        "overwrites B in use", r"(barrier\(CLK_LOCAL_MEM_FENCE\)|__syncthreads\(\)); // nobody", "// nobody", _SHUFFLE,
        noticed_by="groups",
    ),
    of_kernel("skips the last part of the sum", r"\(start \+= TSK\) < k\)", "(start += TSK) + TSK <= k)", _SHUFFLE),
    of_kernel("drops the last term of a step", r"p < TSK;", "p < TSK - 1;", _SHUFFLE),
    of_kernel("reads columns by a team's number", r"\[c \* RTSN \+ x\]", "[c * RTSN + y % RTSN]", _SHUFFLE),
    of_kernel("writes the rows of the first team", r"tile\.row \+ y \* WPTM \+ r", "tile.row + r", _SHUFFLE),
    of_kernel("passes on part of A only", r"a_tile\[y\]\[e\] =", "if (x) a_tile[y][e] =", _SHUFFLE, noticed_by="oclgrind"),
)  # fmt: skip
# Of kernels that move runs, faults go from run to run: what is read across them whole may end the process.
_OF_PREFETCH_AND_DIRECT = (
    of_kernel("skips the last row of runs", r"PRESENT\(i < m,", "PRESENT(i < m - 1,", PREFETCH, DIRECT),
    of_kernel("writes runs beyond the row", r"n - j\)\);", "n - j + 1));", PREFETCH, DIRECT),
    of_kernel("writes runs of the row below", r"PRESENT\(i < m,", "PRESENT(i <= m,", PREFETCH, DIRECT),
    of_kernel("reads runs of C as D lies", r"C \+ i \* ld_c", "C + i * ld_d", PREFETCH, DIRECT),
    of_kernel("writes runs of D as C lies", r"D \+ i \* ld_d", "D + i * ld_c", PREFETCH, DIRECT),
    of_kernel("forgets the sums of the steps before", r", sum\[r\]\[c\]\);", ", WIDE_ZERO);", PREFETCH, DIRECT),
    of_kernel(
        "writes runs of D by 32-bit indices",
        r"D \+ i \* ld_d",
        "D + (int)((unsigned)i * (unsigned)ld_d)",
        PREFETCH,
        DIRECT,
        noticed_by="spans",
    ),
)

_OF_PREFETCH = (
    of_kernel(
        "computes tiles that have not arrived",
        r"(barrier\(CLK_LOCAL_MEM_FENCE\)|__syncthreads\(\)); // the next tiles",
        "// the next tiles",
        PREFETCH,
        noticed_by="groups",
    ),
    of_kernel(
        "overwrites the tiles that are computed",
        r"stage = \(stage \+ 1\) % STAGES",
        "stage = 0",
        PREFETCH,
        noticed_by="structures",
    ),
    of_kernel(
        "does not wait with one stage",
        r"(barrier\(CLK_LOCAL_MEM_FENCE\)|__syncthreads\(\)); // nobody",
        "// nobody",
        PREFETCH,
        noticed_by="structures",
        structure=11,
    ),
    of_kernel(
        "does not compute the last partial tile", r"\(start \+= TSK\) < k\)", "(start += TSK) + TSK <= k)", PREFETCH
    ),
    Mutation("does not fetch the last partial tile", (Edit(r"next < k\b", "next + TSK <= k", times=2),), (PREFETCH,)),
    of_kernel("steps beyond the next tile", r"start \+= TSK", "start += TSK + WIDTH", PREFETCH),
    of_kernel("begins with the second tile", r"start = -TSK", "start = 0", PREFETCH),
    of_kernel("drops the last term that was read ahead", r"p < TSK; \+\+p", "p < TSK - 1; ++p", PREFETCH),
    of_kernel("reads a term less ahead", r"p \+ REG_PREFETCH < TSK\)", "p + REG_PREFETCH < TSK - 1)", PREFETCH),
    of_kernel("multiplies the next term of A", r"ELEMENT\(a\[0\]", "ELEMENT(a[REG_PREFETCH]", PREFETCH),
    of_kernel("keeps the first term of B", r"b\[0\]\[c\] = ", "if (p < 0) b[0][c] = ", PREFETCH),
    of_kernel("takes the runs of another row of items", r"\[ROW_RUN_OF\(y, r\)\]", "[ROW_RUN_OF(0, r)]", PREFETCH),
    of_kernel("confuses x and y of runs", r"\[COLUMN_RUN_OF\(x, c\)\]", "[COLUMN_RUN_OF(y, c)]", PREFETCH),
    of_kernel("computes the stage that was", r"(b_tile\[)stage(\]\[p)", r"\1(stage + 1) % STAGES\2", PREFETCH),
    of_kernel("puts A into the first stage", r"put_run\(a_tile\[stage\]", "put_run(a_tile[0]", PREFETCH),
    of_kernel("fetches the rows after", r"FETCH_RUN_A\(tile\.row \+", "FETCH_RUN_A(tile.row + WIDTH +", PREFETCH),
    of_kernel("fetches later terms of B", r"FETCH_RUN_B\(next \+", "FETCH_RUN_B(next + WIDTH +", PREFETCH),
    of_kernel("divides by the wrong runs", r"run % line_runs", "run % TERM_RUNS", PREFETCH, ops="TN"),
    of_kernel("puts all of a run into one term", r"tile\[w \* pitch\]", "tile[0]", PREFETCH),
    of_kernel("puts runs of B without their padding", r"\(TSN \+ PAD\) / WIDTH, place", "TSN / WIDTH, place", PREFETCH),
    of_kernel(
        "brings too few runs ahead",
        r"\(\(\(runs\) \+ THREADS - 1\) / THREADS\)",
        "((runs) / THREADS)",
        PREFETCH,
        noticed_by="structures",
        structure=3,
    ),
    of_kernel(
        "brings more runs than there are",
        r"#define IS_RUN\(run, runs\) .*",
        "#define IS_RUN(run, runs) 1",
        PREFETCH,
        noticed_by="oclgrind",
    ),
)

_OF_DIRECT = (
    of_kernel("drops the terms of the last partial step", r"start < k; start", "start + RK <= k; start", DIRECT),
    of_kernel("begins with the second step", r"int start = 0", "int start = RK", DIRECT),
    of_kernel("steps beyond the next terms", r"start \+= RK", "start += RK + WIDTH", DIRECT),
    of_kernel(
        "drops the last term of RK",
        r"p < RK; (\+\+p\)\n +#pragma unroll\n +for \(int r = 0; r < RY; \+\+r\))",
        r"p < RK - 1; \1",
        DIRECT,
    ),
    Mutation(
        "reads the next runs of rows",
        (Edit(r"ROW_OF\(y, r\), start", "ROW_OF(y, r) + WIDTH, start", times=2),),
        (DIRECT,),
    ),
    Mutation(
        "reads the next runs of columns",
        (Edit(r"tile\.column \+ COLUMN_OF\(x, c\)\)", "tile.column + COLUMN_OF(x, c) + WIDTH)", times=2),),
        (DIRECT,),
    ),
    of_kernel("turns no run of A", r"a\[p \+ w\]", "a[p]", DIRECT),
    of_kernel("turns no run of B", r"b\[p \+ w\]", "b[p]", DIRECT, ops="NT"),
    of_kernel("repeats the first element of a run", r"(c % WIDTH\) = ELEMENT\(run,) w\)", r"\1 0)", DIRECT, ops="NT"),
    of_kernel(
        "writes the runs of rows of another item", r"i = tile\.row \+ ROW_OF\(y,", "i = tile.row + ROW_OF(0,", DIRECT
    ),
    of_kernel("multiplies the first row of a run only", r"r % WIDTH\), b\[p\]", "0), b[p]", DIRECT),
    of_kernel("multiplies the first run of columns only", r", b\[p\]\[c\],", ", b[p][0],", DIRECT),
    of_kernel("multiplies terms that do not belong together", r"ELEMENT\(a\[p\]\[r", "ELEMENT(a[RK - 1 - p][r", DIRECT),
)

_OF_PACKED = (
    of_kernel("drops the last of KC terms", r"\bp < end;", "p < end - 1;", PACKED),
    of_kernel("skips the first step", r"int start = 0", "int start = KC", PACKED),
    of_kernel("leaves out a term between steps", r"start \+= KC", "start += KC + 1", PACKED),
    of_kernel("adds C in every step", r"start \? ACC_ONE : beta", "beta", PACKED),
    of_kernel("forgets the steps before", r"start \? d : C", "C", PACKED),
    of_kernel("multiplies the first terms of A in every step", r"\(index_t\)start \* LINES_A", "0", PACKED),
    of_kernel("multiplies the first terms of B in every step", r"\(index_t\)start \* COLUMNS", "0", PACKED),
    of_kernel("takes the first panel of A for all", r"\(i\) / ROWS \* ld_a", "0 * ld_a", PACKED),
    of_kernel("takes the first panel of B for all", r"\(j\) / COLUMNS \* ld_b", "0 * ld_b", PACKED),
    of_kernel("multiplies the first line of a panel only", r"add_products\(a\[r\]", "add_products(a[0]", PACKED),
    of_kernel(
        "multiplies the first vector of B only",
        r"a\[r\], b_##v",
        "a[r], b_0",
        PACKED,
        noticed_by="structures",
        structure=1,
    ),
    of_kernel(
        "reads lines closer than they lie",
        r"a \+= NUMBERS \* LINES_A",
        "a += MR",
        PACKED,
        noticed_by="structures",
        structure=1,
    ),
    of_kernel("writes the sums of the first line only", r"sums\[NUMBERS \* r\]", "sums[0]", PACKED),
    of_kernel("leaves out the last row of D", r"i \+ r < m\)", "i + r < m - 1)", PACKED),
    of_kernel(
        "leaves out the last column of D",
        r"start \? ACC_ONE : beta, PRESENT\(row < m, n - column",
        "start ? ACC_ONE : beta, PRESENT(row < m, n - 1 - column",
        PACKED,
    ),
    of_kernel("reads rows of C as those of D lie", r"d : C \+ row \* ld_c", "d : C + row * ld_d", PACKED),
    of_kernel("writes rows of D as those of C lie", r"d = D \+ row \* ld_d", "d = D + row * ld_c", PACKED),
    of_kernel("multiplies the first A of the batch only", r"\)A \+ tile\.batch \* stride_a", ")A", PACKED),
    of_kernel(
        "reads the first rows that it laid out for all",
        r"\(\(i\) - tile\.row\) / ROWS",
        "0",
        PACKED,
        noticed_by="structures",
        structure=7,
    ),
    of_kernel(
        "reads the first columns that it laid out for all",
        r"\(\(j\) - tile\.column\) / COLUMNS",
        "0",
        PACKED,
        noticed_by="own columns",
    ),
    of_kernel("lays out the first A of the batch only", r"offset_a \+ tile\.batch \* stride_a", "offset_a", PACKED),
    of_kernel("lays out the first B of the batch only", r"offset_b \+ tile\.batch \* stride_b", "offset_b", PACKED),
    of_kernel(
        "lays out the first terms of A in every step",
        r"PACK_A\((.*) i, first, min\(first \+ (.*), end\)",
        r"PACK_A(\1 i, first - start, min(first + \2, end) - start",
        PACKED,
    ),
    of_kernel(
        "lays out the first terms of B in every step",
        r"PACK_B\((.*) j, first, min\(first \+ (.*), end\)",
        r"PACK_B(\1 j, first - start, min(first + \2, end) - start",
        PACKED,
    ),
    of_kernel(
        "lays terms of B over each other", r"\(first - start\) \* COLUMNS", "0", PACKED, noticed_by="own columns"
    ),
    Mutation(
        "joins no imaginary parts",
        (Edit(r"NUMBERS \* r \+ NUMBERS - 1", "NUMBERS * r"),),
        (PACKED,),
        types=COMPLEX64,
    ),
)

OF_PACK = (
    of_panels("turns nothing", r" +turn\(x\); +\\\n", ""),
    of_panels(
        "drops the last terms of A and B",
        r"(for \(; )p < \(end\)(; \+\+p\) +\\\n +for \(int line = 0; line < \(LINES\); \+\+line)",
        r"\1p < (end) - 1\2",
    ),
    of_kernel("packs the first terms only", r"piece \* DEPTH", "0", "pack"),
    of_kernel("packs the first A of the batch only", r"offset_a \+ matrix \* stride_a", "offset_a", "pack"),
    of_kernel("packs the first B of the batch only", r"offset_b \+ matrix \* stride_b", "offset_b", "pack"),
    of_kernel("packs the first panels of A twice", r"panel \* ROWS,", "panel / 2 * ROWS,", "pack"),
    of_kernel("packs the first panels of B twice", r"panel \* COLUMNS,", "panel / 2 * COLUMNS,", "pack"),
    of_panels("repeats the first run of a panel", r"RUN\(\(first\) \+ line, p\)", "RUN(first, p)"),
    of_panels("writes terms over each other", r"\(p - \(start\) \+ w\) \* \(LINES\)", "(p - (start)) * (LINES)"),
)
"""Of the pass before `packed`, whose products show them."""

_OF_REGISTER_TILED_VECTORIZED = (
    of_kernel(
        "takes the runs of rows of another item",
        r"a_tile\[p\]\[ROW_RUN_OF\(y, r\)\]",
        "a_tile[p][ROW_RUN_OF(0, r)]",
        REGISTER_TILED_VECTORIZED,
    ),
    of_kernel(
        "takes the runs of columns of item y",
        r"b_tile\[p\]\[COLUMN_RUN_OF\(x, c\)\]",
        "b_tile[p][COLUMN_RUN_OF(y, c)]",
        REGISTER_TILED_VECTORIZED,
    ),
    of_kernel(
        "brings too few runs",
        r"\(\(\(runs\) \+ THREADS - 1\) / THREADS\)",
        "((runs) / THREADS)",
        REGISTER_TILED_VECTORIZED,
        noticed_by="structures",
        structure=3,
    ),
    of_kernel(
        "brings more runs than those of A",
        r"e >= ROW_RUNS \* TSK\)",
        "0)",
        REGISTER_TILED_VECTORIZED,
        noticed_by="oclgrind",
    ),
    of_kernel(
        "divides by the runs of terms",
        r"(A_RUNS_ALONG_K \? e / TERM_RUNS : e %) ROW_RUNS",
        r"\1 TERM_RUNS",
        REGISTER_TILED_VECTORIZED,
        ops="TN",
    ),
    of_kernel(
        "turns a run of A around", r"a_tile\[term \+ w\]", "a_tile[term + WIDTH - 1 - w]", REGISTER_TILED_VECTORIZED
    ),
    of_kernel(
        "turns a run of B around",
        r"b_tile\[term \+ w\]",
        "b_tile[term + WIDTH - 1 - w]",
        REGISTER_TILED_VECTORIZED,
        ops="NT",
    ),
    of_kernel(
        "lays a run of B one further",
        r"b_tile\[term\]\[column / WIDTH\]",
        "b_tile[term][(column / WIDTH + 1) % COLUMN_RUNS]",
        REGISTER_TILED_VECTORIZED,
    ),
    of_kernel(
        "writes one row of a run",
        r"ROW_RUN_OF\(y, r / WIDTH\) \* WIDTH \+ r % WIDTH",
        "ROW_RUN_OF(y, r / WIDTH) * WIDTH",
        REGISTER_TILED_VECTORIZED,
    ),
)

_OF_PRELUDE = (
    of_prelude(
        "forgets every edge",
        r"#define INSIDE\(condition\) \(condition\)",
        "#define INSIDE(condition) 1",
        kernels=WITHOUT_RUNS,
    ),
    of_prelude("reads C though beta is 0", r"if \(!is_zero\(beta\)\)\n( +value = plus)", r"\n\1", kernels=WITHOUT_RUNS),
    of_prelude("never reads C", r"if \(!is_zero\(beta\)\)\n( +value = plus)", r"if (0)\n\1", kernels=WITHOUT_RUNS),
    of_prelude("ignores alpha", r"scaled\(alpha, sum\)", "sum", kernels=WITHOUT_RUNS),
    of_prelude("ignores beta", r"scaled\(beta, (.*)\)\);\n", r"\1);\n"),
    of_prelude("scales C by alpha", r"plus_scaled\(value, beta", "plus_scaled(value, alpha", kernels=WITHOUT_RUNS),
    *(of_prelude(f"ignores the offset of {x}", rf"{x} \+= offset_{x.lower()} \+", f"{x} +=") for x in "ABCD"),
    *(
        of_prelude(f"repeats one {x} of the batch", rf" \+ \(index_t\)\(batch\) \* stride_{x.lower()}", "")
        for x in "ABCD"
    ),
    of_prelude("computes one matrix of the batch", r"\(int\)\(group / across / down\)", "0"),
    of_prelude("takes the wrong row of tiles", r"group / across % down", "group % down"),
    of_prelude("reads A by the rows of B", r"\(i\) \* ld_a", "(i) * ld_b"),
    of_prelude("reads B by the rows of A", r"\(p\) \* ld_b", "(p) * ld_a"),
    of_prelude("reads a transposed A by the rows of B", r"\(p\) \* ld_a", "(p) * ld_b", ops="TN"),
    of_prelude("reads a transposed B by the rows of A", r"\(j\) \* ld_b", "(j) * ld_a", ops="NT"),
    of_prelude("transposes A when it should not", r"#if TRANSPOSE_A\n", "#if !TRANSPOSE_A\n"),
    of_prelude("transposes B when it should not", r"#if TRANSPOSE_B\n", "#if !TRANSPOSE_B\n"),
    of_prelude("transposes A for B", r"#if TRANSPOSE_A\n", "#if TRANSPOSE_B\n", ops="NT"),
    of_prelude(
        "indexes A in 32 bits",
        r"\(\(index_t\)\(i\) \* ld_a \+ \(p\)\)",
        "((int)((unsigned)(i) * (unsigned)ld_a) + (p))",
        noticed_by="spans",
    ),
    of_prelude(
        "indexes B in 32 bits",
        r"\(\(index_t\)\(p\) \* ld_b \+ \(j\)\)",
        "((int)((unsigned)(p) * (unsigned)ld_b) + (j))",
        noticed_by="spans",
    ),
    of_prelude(
        "finds A of the batch in 32 bits",
        r"\(index_t\)\(batch\) \* stride_a",
        "(int)((unsigned)(batch) * (unsigned)stride_a)",
        noticed_by="spans",
    ),
    of_prelude(
        "finds D of the batch in 32 bits",
        r"\(index_t\)\(batch\) \* stride_d",
        "(int)((unsigned)(batch) * (unsigned)stride_d)",
        noticed_by="spans",
    ),
    TF32_LOAD,
    BFLOAT16_LOAD,
    of_prelude(
        "sums halves in half precision",
        _MUL_ADD,
        rounded("a * b + sum", 11),
        ("float16", "float32", None),
        kernels=WITHOUT_RUNS,
        noticed_by="statistics",
    ),
    *IN_SINGLE_PRECISION,
    *(replace(each, name=f"{each.name}, whole numbers", noticed_by="exact") for each in IN_SINGLE_PRECISION),
)

_OF_OTHER_TYPES = (
    of_prelude("conjugates B for A", "#if CONJUGATE_A\n", "#if CONJUGATE_B\n", COMPLEX64, times=2, ops="CN"),
    of_prelude("conjugates A for B", "#if CONJUGATE_B\n", "#if CONJUGATE_A\n", COMPLEX64, times=2, ops="NR"),
    of_prelude("does not conjugate A", "#if CONJUGATE_A\n", "#if 0\n", COMPLEX64, times=2, ops="RN"),
    of_prelude("does not conjugate B", "#if CONJUGATE_B\n", "#if 0\n", COMPLEX64, times=2, ops="NC"),
    of_prelude("conjugates A always", "#if CONJUGATE_A\n", "#if 1\n", COMPLEX64, times=2, ops="NC"),
    of_prelude("has no conjugate", r"-x\.y", "x.y", COMPLEX64, kernels=WITHOUT_RUNS, ops="CN"),
    of_prelude(
        "adds the product of imaginary parts",
        r"sum\.x -= a\.y \* b\.y",
        "sum.x += a.y * b.y",
        COMPLEX64,
        kernels=WITHOUT_RUNS,
    ),
    of_prelude(
        "subtracts an imaginary part",
        r"sum\.y \+= a\.x \* b\.y",
        "sum.y -= a.x * b.y",
        COMPLEX64,
        kernels=WITHOUT_RUNS,
    ),
    of_prelude(
        "confuses parts of a product",
        r"sum\.y \+= a\.y \* b\.x",
        "sum.y += a.y * b.y",
        COMPLEX64,
        kernels=WITHOUT_RUNS,
    ),
    of_prelude("scales with a wrong sign", r"s\.x \* x\.x - s\.y \* x\.y", "s.x * x.x + s.y * x.y", COMPLEX64),
    of_prelude("takes complex scalars for real", r"s\.y == 0", "s.x == s.x", COMPLEX64),
    of_prelude("takes imaginary scalars for zero", r"x\.x == 0 && x\.y == 0", "x.x == 0", COMPLEX64),
    of_prelude("multiplies by an imaginary zero", r"s\.y == 0", "s.x != s.x", COMPLEX64, noticed_by="special values"),
    of_prelude(
        "counts truth values",
        r"(return \{?)\(a(\.value)? & b(\.value)?\) \| sum",
        r"\1(a\2 & b\3) + sum",
        ("bool", "bool", None),
        kernels=WITHOUT_RUNS,
    ),
    of_prelude(
        "cancels truth values",
        r"(return \{?)\(a(\.value)? & b(\.value)?\) \| sum",
        r"\1(a\2 & b\3) ^ sum",
        ("bool", "bool", None),
        kernels=WITHOUT_RUNS,
    ),
    of_prelude(
        "sums integers as floats",
        _MUL_ADD,
        {
            "opencl": "return (acc_t)((float)a * (float)b + (float)sum);",
            "cuda": "return (T)((float)a * (float)b + (float)sum);",
        },
        ("int32", "int32", None),
        kernels=WITHOUT_RUNS,
    ),
    of_prelude(
        "loads bytes without their sign",
        r"return (?:TO_SUM|to<acc_t>::from)\((.*)\);",
        {
            "opencl": r"return TO_SUM((uchar)\1);",
            "cuda": r"return to<acc_t>::from((unsigned char)\1);",
        },
        ("int8", "int32", None),
    ),
    of_prelude(
        "saturates bytes",
        r"#define STORED_AS_int8\(x\) .*|return \(T\)x;",
        {
            "opencl": "#define STORED_AS_int8(x) convert_char_sat((int)(x))",
            "cuda": "return sizeof(T) > 1 ? (T)x : (int)x > 127 ? (T)127 : (int)x < -128 ? (T)-128 : (T)x;",
        },
        ("int8", "int8", None),
    ),
    of_prelude(
        "truncates to bfloat16",
        r"bits \+ 0x7fff \+ \(bits >> 16 & 1\)",
        "bits",
        ("float32", "bfloat16", None),
        times=ALONE_AND_IN_RUNS,
        noticed_by="special values",
    ),
    of_prelude(
        "rounds ties away in bfloat16",
        r"bits \+ 0x7fff \+ \(bits >> 16 & 1\)",
        "bits + 0x8000",
        ("float32", "bfloat16", None),
        times=ALONE_AND_IN_RUNS,
        noticed_by="special values",
    ),
    of_prelude(
        "rounds a NaN in bfloat16",
        r"\(x != x \? bits \| 0x400000 : rounded\)|\(nan \? bits \| 0x400000 : (.*)\) >> 16",
        {"opencl": "rounded", "cuda": r"(\1) >> 16"},
        ("float32", "bfloat16", None),
        times=ALONE_AND_IN_RUNS,
        noticed_by="special values",
    ),
    of_prelude(
        "rounds a double to bfloat16 twice",
        r"\| \((?:uint|unsigned)\)\((?:.* == \(x\)|.* == x)\)",
        "",
        ("float64", "bfloat16", None),
        noticed_by="special values",
    ),
    of_prelude(
        "truncates to half",
        r"vstore_half_rte|cvt\.rn\.f16\.f32",
        {"opencl": "vstore_half_rtz", "cuda": "cvt.rz.f16.f32"},
        ("float32", "float16", None),
        noticed_by="special values",
    ),
    of_prelude(
        "rounds a double to half twice",
        r"#define AT_LEAST_FLOAT_float64\(x\) \(x\)|half_t from\(double x\)\n *\{",
        {
            "opencl": "#define AT_LEAST_FLOAT_float64(x) ((float)(x))",
            "cuda": "half_t from(double x)\n    {\n        return from((float)x);",
        },
        ("float64", "float16", None),
        noticed_by="special values",
    ),
)

# What the prelude has for runs.
_IN_RUNS = (VECTORIZED,)
_OF_RUNS = (
    of_prelude(
        "loads runs backwards", r"ELEMENT\(x, w\) = to_sum", "ELEMENT(x, WIDTH - 1 - w) = to_sum", kernels=_IN_RUNS
    ),
    of_prelude(
        "stores runs backwards",
        r"to_stored\(ELEMENT\(value, w\)\)",
        "to_stored(ELEMENT(value, WIDTH - 1 - w))",
        kernels=_IN_RUNS,
    ),
    of_prelude("repeats the first element of a part", r"\? p\[w\] :", "? p[0] :", kernels=_IN_RUNS),
    of_prelude("reads the rest of a run", r"w < present \? p\[w\] : .*;", "p[w];", kernels=_IN_RUNS),
    of_prelude(
        "loads whole runs across the edge", r"aligned && present >= WIDTH", "aligned && present > 0", kernels=_IN_RUNS
    ),
    of_prelude("loads a run too long by one", r"aligned && present >=", "aligned && present + 1 >=", kernels=_IN_RUNS),
    of_prelude(
        "stores a run too long by one",
        r"end >= WIDTH\)(\n\s+\*\((?:__global )?out_run_t \*\)d)",
        r"end + 1 >= WIDTH)\1",
        kernels=_IN_RUNS,
    ),
    of_prelude(
        "stores one element less of a part",
        r"if \(w \* APART >= begin && w \* APART < end\)\n",
        "if (w * APART >= begin && w * APART + 1 < end)\n",
        kernels=_IN_RUNS,
    ),
    of_prelude(
        "stores whole runs for parts", r"if \(w \* APART >= begin && w \* APART < end\)\n", "\n", kernels=_IN_RUNS
    ),
    of_prelude("stores runs as neighbours", r"d\[w \* APART\] =", "d[w] =", kernels=(SIMT,)),
    of_prelude("reads runs of C as neighbours", r"\? c\[w \* APART\] :", "? c[w] :", kernels=(SIMT,)),
    of_prelude(
        "never reads runs of C",
        r"if \(!LEAVES_C_OUT\(beta\)\)(\n\s+before = read_before)",
        r"if (0)\1",
        kernels=_IN_RUNS,
    ),
    of_prelude(
        "reads runs of C though beta is 0",
        r"if \(!LEAVES_C_OUT\(beta\)\)(\n\s+(?:before = read_before|#pragma unroll\n.*\n.*= plus_scaled\(ELEMENT))",
        r"\1",
        kernels=_IN_RUNS,
        times=2,
    ),
    of_prelude("ignores alpha in runs", r"scaled\(alpha, (ELEMENT\(sum, w\))\)", r"\1", kernels=_IN_RUNS),
    of_prelude("adds one element of C to a run", r"(plus_scaled\(ELEMENT.*), w\)\)", r"\1, 0))", kernels=_IN_RUNS),
    of_prelude("scales runs of C by alpha", r"(plus_scaled\(ELEMENT.*), beta,", r"\1, alpha,", kernels=_IN_RUNS),
    of_prelude("forgets every edge of runs", r"\(\(line_is_inside\) \? \(left\) : 0\)", "WIDTH", kernels=_IN_RUNS),
    of_prelude("counts a term too many of A", r"< m, k - \(p\)\)", "< m, k - (p) + 1)", kernels=_IN_RUNS),
    of_prelude("counts a term too many of B", r"< n, k - \(p\)\)", "< n, k - (p) + 1)", kernels=_IN_RUNS, ops="NT"),
    of_prelude(
        "forgets the end of the sum in runs of A", r"\(p\) < k, (m - \(i\))", r"1, \1", kernels=_IN_RUNS, ops="TN"
    ),
    of_prelude("forgets the end of the sum in runs of B", r"\(p\) < k, (n - \(j\))", r"1, \1", kernels=_IN_RUNS),
    of_prelude(
        "loads runs of rows beyond A", r"\(i\) < m, (k - \(p\))", r"1, \1", kernels=_IN_RUNS, noticed_by="oclgrind"
    ),
    of_prelude(
        "loads runs of columns beyond B",
        r"\(j\) < n, (k - \(p\))",
        r"1, \1",
        kernels=_IN_RUNS,
        ops="TT",
        noticed_by="oclgrind",
    ),
    of_prelude(
        "moves runs of A that are not aligned",
        r"PRESENT_A\(i, p\), ALIGNED_A",
        "PRESENT_A(i, p), 1",
        kernels=_IN_RUNS,
        noticed_by="oclgrind",
    ),
    of_prelude(
        "moves runs of D that are not aligned",
        r"ALIGNED_D && (begin <= 0 && end >= WIDTH\)\n\s+\*\()",
        r"\1",
        kernels=_IN_RUNS,
        noticed_by="oclgrind",
    ),
    of_prelude(
        "does not conjugate runs of A",
        r"#define OF_A\(run\) wide_conjugated\(run\)",
        "#define OF_A(run) run",
        COMPLEX64,
        kernels=_IN_RUNS,
        ops="CN",
    ),
    of_prelude(
        "does not conjugate runs of B",
        r"#define OF_B\(run\) wide_conjugated\(run\)",
        "#define OF_B(run) run",
        COMPLEX64,
        kernels=_IN_RUNS,
        ops="NR",
    ),
    of_prelude(
        "has no conjugate of runs",
        r"x\.odd = -x\.odd|ELEMENT\(x, w\) = conjugated\((.*)\)",
        {"opencl": "x.odd = x.odd", "cuda": r"ELEMENT(x, w) = \1"},
        COMPLEX64,
        kernels=_IN_RUNS,
        ops="CN",
    ),
    of_prelude(
        "multiplies by conjugates of runs",
        r"SUBTRACT_PRODUCT\(sum\.even, a\.y, b\.odd\);\n(.*)\n *sum\.odd \+= a\.y \* b\.even|mul_add\(a, (ELEMENT\(b, w\)),",
        {
            "opencl": r"sum.even += a.y * b.odd;\n    sum.odd -= a.x * b.odd;\n    sum.odd += a.y * b.even",
            "cuda": r"mul_add(a, conjugated(\2),",
        },
        COMPLEX64,
        kernels=_IN_RUNS,
    ),
    of_prelude(
        "counts truth values in runs",
        r"sum = \(a & b\) \| sum(?=[^}]+\}\n\n// sum \+)|mul_add\(a, (ELEMENT\(b, w\)), (ELEMENT\(sum, w\))\)",
        {"opencl": "sum = (a & b) + sum", "cuda": r"truth_t{(a.value & \1.value) + \2.value}"},
        ("bool", "bool", None),
        kernels=_IN_RUNS,
    ),
    of_prelude(
        "subtracts products of runs",
        r"sum = a \* b \+ sum(?=[^}]+\}\n\n// sum \+)|mul_add\(a, (ELEMENT\(b, w\)), (ELEMENT\(sum, w\))\)",
        {"opencl": "sum = sum - a * b", "cuda": r"\2 - a * \1"},
        kernels=_IN_RUNS,
    ),
)

_OF_GEMV = (
    of_kernel("drops the last term of a vector", r"min\(k - begin, depth\)", "min(k - begin - 1, depth)", GEMV),
    of_kernel("gives every group of a sum the first part", r"begin = part \* depth", "begin = 0", GEMV),
    of_kernel("steps too far after runs at once", r"\(p \+= UNROLL \* STEP;", "(p += UNROLL * STEP + STEP;", GEMV),
    of_kernel(
        "multiplies the runs of the step before",
        r"(MULTIPLY\(ahead\[u\]), p \+ .*, WIDTH\);\n( +)READ",
        r"\1, p + u * STEP, WIDTH);\n\2READ",
        GEMV,
        noticed_by="structures",
        structure=1,
    ),
    of_kernel(
        "takes a step that is not whole for one", r">= \(UNROLL - 1\) \* STEP \+ TERMS", "> (UNROLL - 1) * STEP", GEMV
    ),
    of_kernel("forgets the last steps", r"; p < end; p \+= STEP\)", "; p < end - STEP; p += STEP)", GEMV),
    of_kernel("multiplies by the first vector only", r"min\(column \+ v, n - 1\)", "column", GEMV),
    of_kernel("reads all rows of a work-item as its first", r"min\(row \+ r \* RUN_ROWS,", "min(row,", GEMV),
    of_kernel(
        "adds up all lanes but the last",
        r"int w = 1; w < WIDTH; \+\+w\)\n( +of_lanes)",
        r"int w = 1; w < WIDTH - 1; ++w)\n\1",
        GEMV,
    ),
    of_kernel("adds up half of the work-items", r"half_of_them = adders / 2", "half_of_them = adders / 4", GEMV),
    of_kernel("adds up neighbours that are not", r"half_of_them \* apart\]", "half_of_them]", GEMV, ops="TN"),
    of_kernel("puts all parts in one place", r"part_sums\[part \* results \+ \(batch", "part_sums[(batch", GEMV),
    of_kernel("leaves out the last part", r"part < parts; part \+=", "part < parts - 1; part +=", GEMV),
    of_kernel("adds up parts of the first matrix", r"SELECT_BATCH\(result / m / n\);", "SELECT_BATCH(0);", GEMV),
    of_kernel("exchanges rows and columns of parts", r"result / m % n\)", "result % n)", GEMV),
    of_kernel("writes rows beyond the last", r"else if \(i < m\)", "else if (i <= m)", GEMV),
    Mutation(
        "takes A as it is for its conjugate",
        (Edit(r"return OF_A\(", "return (", times=2),),
        (GEMV,),
        types=COMPLEX64,
        ops="CN",
    ),
    of_kernel(
        "adds up before sums are there",
        r"(barrier\(CLK_LOCAL_MEM_FENCE\)|__syncthreads\(\)); // the sums of the step",
        "// the sums of the step",
        GEMV,
        noticed_by="oclgrind",
    ),
    of_kernel(
        "overwrites the sums of the vector before",
        r"(barrier\(CLK_LOCAL_MEM_FENCE\)|__syncthreads\(\)); // the sums of the vector",
        "; // the sums of the vector",
        GEMV,
        noticed_by="oclgrind",
    ),
)

_OF_SIMT = (
    of_kernel("takes the first step for a whole one", r"missing = steps \* TSK - k;", "missing = 0;", SIMT),
    of_kernel(
        "forgets what is missing after the first part",
        r"max\(first \* TSK - missing, 0\)",
        "first * TSK",
        SIMT,
        noticed_by="shared tiles",
    ),
    of_kernel(
        "wraps stages too early",
        r"stage == \(STAGES - 1\) \* STAGE_BYTES(?=.*\n +a_read)",  # not where SOON is
        "stage == (STAGES - 2) * STAGE_BYTES",
        SIMT,
    ),
    of_kernel(
        "leaves out the first column of an edge",
        r"(own_column - \(j\))",
        r"\1 + 1",
        SIMT,
        noticed_by="structures",
        structure=1,
    ),
    of_kernel("brings a tile to the stage that is read", r"BRING\(free, PIECE", "BRING(stage, PIECE", SIMT),
    of_kernel("does not bring the last tile", r"step \+ STAGES - 1 < last", "step + STAGES < last", SIMT),
    of_kernel(
        "multiplies columns of the first stage", r" b_read = BYTES_ON\(b_place, stage\)", " b_read = b_place", SIMT
    ),
    of_kernel("reads the half that is multiplied", r"READ\(\(p / AT_ONCE \+ 1\) % 2", "READ(p / AT_ONCE % 2", SIMT),
    of_kernel("forgets the last term of a step", r"MULTIPLY_LAST\(\);", "", SIMT),
    of_kernel("begins every slice with the first term", r"slice \* TERMS \* PITCH_A", "slice * 0 * PITCH_A", SIMT),
    of_kernel("leaves out the last slice", r"s < SLICES; \+\+s", "s < SLICES - 1; ++s", SIMT),
    of_kernel(
        "forgets the last row of A that is left", r"rows_left = m - tile\.row;", "rows_left = m - tile.row - 1;", SIMT
    ),
    of_kernel(
        "forgets the last column of B that is left",
        r"columns_left = n - tile\.column;",
        "columns_left = n - tile.column - 1;",
        SIMT,
    ),
    of_kernel(
        "exchanges lines and terms along k", r"return along_k \? (\w+) % TSK :", r"return along_k ? \1 / TSK :", SIMT
    ),
    of_kernel(
        "brings every term across as its first",
        r"(\(FURTHER\(c / ACROSS\(lines, along_k\) \+ 1\) - .*\) \* ld);",
        r"along_k ? \1 : 0;",
        SIMT,
        noticed_by="structures",
    ),
    of_kernel("brings columns in their order", r"run \+ w \* apart", "run + w", SIMT),
    of_kernel(
        "begins with the column of a slot's number",
        r"(LINE_OF_B\(\w+\)) LINE_IN\((.*), APART\)",
        r"\1 \2",
        SIMT,
    ),
    of_kernel(
        "brings columns along k in their order",
        r"along_k \? LINE_IN\((.*), apart\) :",
        r"along_k ? \1 :",
        SIMT,
        ops="NT",
    ),
    of_kernel("keeps the order of slots in D", r"return LINE_IN\((.*), APART\);", r"return \1;", SIMT),
    of_shares("exchanges the axes of a band", r"of_band % rows\) \* TSM", "of_band / rows) * TSM"),
    of_shares("takes the last band for a whole one", r"min\(down - band \* height, height\)", "RASTER"),
    of_shares("computes the first band again", r"\(band \* height \+ of_band", "(of_band", noticed_by="structures"),
    of_shares("computes the first matrix only", r"tile\.batch = number / \(across \* down\)", "tile.batch = 0"),
    of_kernel(
        "spreads runs of rows as no one reads them",
        r"r / WIDTH \* LANES_M \+",
        "r / WIDTH +",
        SIMT,
        noticed_by="structures",
        structure=2,
    ),
    of_kernel(
        "multiplies by a run of the first row",
        r"ELEMENT\(a\[r / WIDTH\], r % WIDTH\)",
        "ELEMENT(a[r / WIDTH], 0)",
        SIMT,
    ),
    of_kernel("scales the product by beta", r"sum\[r\]\[c\], alpha, beta", "sum[r][c], beta, beta", SIMT),
    of_kernel(
        "scales the sum of parts by beta", r"sum, alpha, beta", "sum, beta, beta", SIMT, noticed_by="shared tiles"
    ),
    of_kernel(
        "passes over the part behind those that are added at once",
        r"sharer \+= \(count\);",
        "sharer += (count) + 1;",
        SIMT,
        noticed_by="shared tiles",
    ),
    of_kernel(
        "leaves all parts in one of two places",
        r"first == 0, (r, c, place\)\] = sum\[r\])",
        r"1, \1",
        SIMT,
        noticed_by="shared tiles",
    ),
    of_kernel(
        "leaves out the last part of a tile",
        r"sharer <= end;",
        "sharer < end;",
        SIMT,
        noticed_by="shared tiles",
    ),
    of_kernel(
        "leaves out the last of many parts",
        r"sharer \+ x <= end\)",
        "sharer + x < end)",
        SIMT,
        noticed_by="shared tiles",
    ),
    of_kernel(
        "begins a shared tile anew",
        r"first = first_step\(number, sharers, shared, steps\);",
        "first = 0;",
        SIMT,
        noticed_by="shared tiles",
    ),
    of_kernel(
        "takes the part before for a tile's first",
        r"PART\(begin, 1,",
        "PART(begin, 0,",
        SIMT,
        noticed_by="shared tiles",
    ),
    of_kernel(
        "does not wait for the next tile",
        r"(barrier\(CLK_LOCAL_MEM_FENCE\)|__syncthreads\(\)); // the next tile",
        "// the next tile",
        SIMT,
        noticed_by="oclgrind",
    ),
    of_kernel(
        "overwrites the part before",
        r"(barrier\(CLK_LOCAL_MEM_FENCE\)|__syncthreads\(\)); // the tiles of the part",
        "// the tiles of the part",
        SIMT,
        noticed_by="oclgrind",
    ),
)

_OF_BATCHED = (
    of_kernel("leaves out what is left of a run", r"multiply\(sum, .*, TSK % WIDTH\);", "", BATCHED),
    of_kernel("leaves out a term of what is left", r"if \(w < terms\)", "if (w < terms - (terms < WIDTH))", BATCHED),
    of_kernel("multiplies by the first product's A", r"a_tile \+ product \* SIZE_A", "a_tile", BATCHED),
    of_kernel("multiplies by the first product's B", r"b_tile \+ product \* SIZE_B", "b_tile", BATCHED),
    of_kernel(
        "computes the first group only", r"first = tile\.batch \* PRODUCTS", "first = 0", BATCHED, noticed_by="batches"
    ),
    of_kernel(
        "leaves out the last product of a group",
        r"min\(batch - first, PRODUCTS\)",
        "min(batch - first, PRODUCTS - 1)",
        BATCHED,
        noticed_by="batches",
    ),
    of_kernel("brings the first terms of A again", r"A \+= TSK \*", "A += 0 *", BATCHED),
    of_kernel("brings the first terms of B again", r"B \+= TSK \*", "B += 0 *", BATCHED),
    of_kernel(
        "forgets the last row that is left", r"rows_left = m - tile\.row;", "rows_left = m - tile.row - 1;", BATCHED
    ),
    of_kernel(
        "leaves results by columns", r"product \* TSM \+ i\) \* TSN \+ j", "product * TSN + j) * TSM + i", BATCHED
    ),
    of_kernel("adds C of the first product", r"C \+ other \* stride_c", "C", BATCHED),
    of_kernel(
        "puts a run's end beside its line",
        r"IN_TILES\(e \+ w\)",
        "IN_TILES(e) + w",
        BATCHED,
        noticed_by="batches",
    ),
    of_kernel(
        "reads the first of matrices in one row",
        r"flat \? e :",
        "flat ? e % (lines * length) / run * run :",  # aligned: GPUs end a process that reads where no run begins
        BATCHED,
        noticed_by="batches",
    ),
    of_kernel(
        "scales results in one row by beta",
        r"\(numbers \+ e\), alpha, beta",
        "(numbers + e), beta, beta",
        BATCHED,
        noticed_by="batches",
    ),
    of_kernel(
        "multiplies tiles before they are there",
        r"(barrier\(CLK_LOCAL_MEM_FENCE\)|__syncthreads\(\)); // the tiles",
        "// the tiles",
        BATCHED,
        noticed_by="oclgrind",
    ),
    of_kernel(
        "overwrites tiles with results",
        r"(barrier\(CLK_LOCAL_MEM_FENCE\)|__syncthreads\(\)); // they have",
        "// they have",
        BATCHED,
        noticed_by="oclgrind",
    ),
)

_OF_MMA = (
    of_mma("reads terms of the other half", r"of_a \? lane / 16 : lane / 8 % 2", "of_a ? lane / 8 % 2 : lane / 16"),
    of_mma("reads lines of the other eight", r"of_a \? lane / 8 % 2 : lane / 16", "of_a ? lane / 16 : lane / 8 % 2"),
    of_mma(
        "reads pieces where no copy put them",
        r"return PIECE_AT\(row, piece, pieces, along_k\)",
        "return (row * pieces + piece)",
    ),
    of_mma(
        "copies pieces to where nobody reads them",
        r"tile \+ PIECE_AT\(row, piece, pieces, along_k\)",
        "tile + (row * pieces + piece)",
    ),
    of_mma("turns no lines that lie across", r"\n +LOAD_TURNED_MATRICES\(", r"\n            LOAD_MATRICES("),
    of_mma("multiplies the wrong rows", r"a\[r\]\[0\], a\[r\]\[1\]", "a[r][1], a[r][0]", times=2),
    of_mma("multiplies by the wrong columns", r"b\[c / 2\]\[c % 2 \* 2\]", "b[c / 2][2 - c % 2 * 2]", times=2),
    of_mma("multiplies by half of the terms twice", r"b\[c / 2\]\[c % 2 \* 2 \+ 1\]", "b[c / 2][c % 2 * 2]", times=2),
    of_mma("leaves sums in other rows", r"lane / 4 \+ e / 2 \* 8", "lane / 4 * 2 + e / 2"),
    of_mma("leaves sums in other columns", r"lane % 4 \* 2 \+ e % 2", "lane % 4 + e % 2 * 4"),
    of_mma("takes neighbours for a run that lies apart", r"from\[w \* APART\]", "from[w]"),
    of_mma("begins runs that lie apart as others", r"APART > 1 \? 1 : WIDTH", "WIDTH"),
    of_mma("copies what is beyond the edge", r"max\(min\(present, PIECE\), 0\) \* ELEMENT_BYTES", "PIECE_BYTES"),
    of_mma("forgets the last row of tiles of A", r"m - tile\.row, terms_left", "m - tile.row - 1, terms_left"),
    of_mma("brings the terms of the first step again", r"\(along_k \? TSK : TSK \* ld\)", "0"),
    of_mma("forgets terms that are left", r"terms_left = k - first \* TSK", "terms_left = k - 1 - first * TSK"),
    of_mma(
        "multiplies the tile of the step before",
        r"stage == \(STAGES - 1\) \* STAGE_BYTES \? 0",
        "stage == (STAGES - 1) * STAGE_BYTES ? STAGE_BYTES",
        noticed_by="shared tiles",
    ),
    of_mma("waits for too few of its copies", r"WAIT_FOR_COPIES\(STAGES - 2\)", "WAIT_FOR_COPIES(STAGES - 1)", times=2),
    of_mma("leaves every part in one place", r"first == 0, s,", "1, s,", noticed_by="shared tiles"),
    of_mma("leaves out a tile's last part", r"sharer <= end;", "sharer < end;", noticed_by="shared tiles"),
    of_mma("adds up parts of other rows", r"r \* COLUMN_EIGHTS \* 4 \+ s", "s", noticed_by="shared tiles", times=2),
    of_mma(
        "begins each shared tile anew",
        r"first = first_step\(number, sharers, shared, steps\);",
        "first = 0;",
        noticed_by="shared tiles",
    ),
)

OF_SUB_GROUP_MMA = tuple(
    Mutation(name, (Edit(pattern, replacement, times),), ("sub_group_mma",), types=FLOAT16, ops=ops)
    for name, pattern, replacement, ops, times in (
        ("keeps what is beyond the end of a piece of halves", r"\? present : PIECE", "? PIECE : PIECE", "TN", 1),
        ("brings the pieces of other lines", r"chunk / \(TSK / PIECE\) :", "chunk / (TSK / PIECE) / 2 :", "NT", 1),
        ("brings the first terms alone", r"chunk % \(TSK / PIECE\) \* PIECE", "0", "NT", 1),
        ("turns the first of two terms alone", r"const int line = place\.line, term = place\.term \+ p;",
         "const int line = place.line, term = place.term;", "TN", 1),
        ("puts turned words a word further", r"place\.line \+ e\) \+ place\.term \* ELEMENT_BYTES",
         "place.line + e) + (place.term ^ 2) * ELEMENT_BYTES", "TT", 1),
        ("reads the rows of the first lane", r"row \+ lane % UNIT_ROWS", "row", "NT", 1),
        ("reads the first sub-group's columns", r"column \+ c \* UNIT_COLUMNS \+ lane", "c * UNIT_COLUMNS + lane", "NT", 1),
        ("reads the first turn of A in each", r"lane % UNIT_ROWS\) \+ turn \* TURN_BYTES", "lane % UNIT_ROWS)", "NT", 1),
        ("reads the first stage in each step", r"const char \*\)tiles \+ stage", "const char *)tiles", "NT", 1),
        ("leaves sums of halves in other rows", r"own\[SUM_ROW\(lane, s\)", "own[SUM_ROW(lane, s ^ 1)", "NT", 1),
        ("stores the rows of the first sub-group", r"tile\.row \+ row \+ r \*", "tile.row + r *", "NT", 1),
        ("forgets the terms behind the first tile of halves", r"start = next;", "start = k;", "NT", 1),
    )
)  # fmt: skip
"""Of `sub_group_mma`, which OpenCL alone has, and which test_sub_group_mma.py runs."""

OF_WGMMA = (
    of_wgmma("frees a stage that is being read", r"GROUP_WAIT\(1\);", ";"),
    of_wgmma("multiplies what has not come", r"BARRIER_WAIT\(full \+ stage\.number, stage\.parity\);", ";", times=3),
    of_wgmma(
        "brings tiles to where others are read", r"BARRIER_WAIT\(free \+ stage\.number, stage\.parity \^ 1\);", ";"
    ),
    of_wgmma("lets the copy engine see no barrier", r"FENCE_BARRIERS\(\);", ";"),
    of_wgmma("lets the unit see no sums", r"GROUP_FENCE\(\);", ";", times=3),
    of_wgmma("stores sums that are not there", r"GROUP_WAIT\(0\);", ";", times=3),
    of_wgmma(
        "never frees a tile's last stage",
        r"\n                    TELL_FREE\(free \+ before\);\n            }",
        ";\n            }",
        times=2,
    ),
    of_wgmma(
        "frees a stage when one warp is done",
        r"BARRIER_INIT\(free \+ s, FREEING\)",
        "BARRIER_INIT(free + s, 1)",
    ),
    of_wgmma(
        "waits for half of a stage", r"BARRIER_EXPECT\(bar, STAGE_BYTES\)", "BARRIER_EXPECT(bar, STAGE_BYTES / 2)"
    ),
    of_wgmma("stays in the first phase", r"stage\.parity \^= wraps;", ""),
    of_wgmma("keeps the sums of the tile before", r"turn > 0 \|\| step > part\.first", "1"),
    of_wgmma("keeps the sums of the last step alone", r"turn > 0 \|\| step > part\.first", "turn > 0"),
    of_wgmma("reads the first terms in each turn", r"\(along_k\) \? TURN_BYTES", "(along_k) ? 0"),
    of_wgmma("reads the first terms across in each turn", r"TURN_BYTES / ELEMENT_BYTES \* ROW_BYTES", "0"),
    of_wgmma("turns no operand", r"!A_RUNS_ALONG_K, !B_RUNS_ALONG_K\)", "0, 0)"),
    of_wgmma("goes on to the wrong eight lines", r"EIGHT_BYTES \(8 \* ROW_BYTES\)", "EIGHT_BYTES (4 * ROW_BYTES)"),
    of_wgmma("goes on to the wrong 64 lines", r"\(along_k\) \? 16 : BLOCK_BYTES", "16"),
    of_wgmma("brings the first 64 lines for all", r"x \+ line \+ b \* ACROSS_LINES", "x + line"),
    of_wgmma("brings the terms of the first step of A", r"TERM_OF\(step\), BATCHED_A", "0, BATCHED_A"),
    of_wgmma("multiplies by the first matrix of B alone", r"BATCHED_B \* tile\.batch", "0"),
    of_wgmma("begins in the memory's first row", r"x \+ term, y \+ line", "x + term, line", times=2),
    of_wgmma("multiplies the rows of the first four warps", r" \+ group \* ROW_BLOCKS \* BLOCK_BYTES", "", times=3),
    of_wgmma("leaves sums in other rows of the staged", r"STAGED_AT\(lane / 4 \+ h \* 8", "STAGED_AT(lane / 4 * 2 + h"),
    of_wgmma("leaves sums in other columns of the staged", r"x \* 8 \+ lane % 4 \* 2\)", "x * 8 + 6 - lane % 4 * 2)"),
    of_wgmma(
        "stores all warps' rows where the first one's are",
        r"thread % GROUP / WARP \* 16, tile\.column \+ x",
        "0, tile.column + x",
    ),
    of_wgmma("takes neighbours for a run of columns that lies apart", r"column \+ w \* APART\)\]", "column + w)]"),
    of_wgmma("begins runs of columns that lie apart as others", r"APART > 1 \? 1 : WIDTH", "WIDTH"),
    of_wgmma("stores rows that are not complete", r"__syncwarp\(\); // the rows", "// the rows", times=2),
    of_wgmma("overwrites rows that are being stored", r"__syncwarp\(\); // no lane", "// no lane"),
    of_wgmma(
        "leaves all parts in one place", r"part\.first == 0, s, thread", "1, s, thread", noticed_by="shared tiles"
    ),
    of_wgmma(
        "leaves out what the last group has of a tile",
        r"each - 1, end\); \+\+sharer",
        "each - 1, end - 1); ++sharer",
        noticed_by="shared tiles",
    ),
    of_wgmma(
        "adds up parts of other sums", r"piece \* \(STAGED / WARP\) \+ s", "s + 0 * piece", noticed_by="shared tiles"
    ),
    of_wgmma(
        "leaves out what the last warp adds up", r"other < SUMMERS", "other < SUMMERS - 1", noticed_by="shared tiles"
    ),
    of_wgmma(
        "adds up what other warps have not left yet",
        r"__syncthreads\(\); // what the others",
        "// what the others",
        noticed_by="shared tiles",
    ),
    of_wgmma(
        "begins each shared tile at its first step",
        r"const int first = first_step\(number",
        "const int first = 0 * first_step(number",
        noticed_by="shared tiles",
    ),
    of_wgmma(
        "takes the first group's parts for both of a cluster",
        r"sharer \* TOGETHER \+ rank",
        "sharer * TOGETHER",
        noticed_by="shared tiles",
    ),
    of_wgmma(
        "takes the step that is another group's turn",
        r"part\.first\) \* \(sharers / shared\)",
        "part.first)",
        noticed_by="shared tiles",
    ),
    of_wgmma(
        "leaves a turn out where not all groups have one",
        r"steps - turn \+ each - 1\) / each",
        "steps - turn) / each",
        noticed_by="shared tiles",
    ),
)
"""Of a kernel that one language alone has."""

HASTY: Mapping[str, Mutation] = {
    name: Mutation(name, (Edit(rf"({before})\n +AWAIT_BEFORE\(\)", r"\1"),), (kernel,))
    for name, kernel, before in (
        ("copies", "wgmma", r"PREFETCH_MAP\(&map_b\);"),
        ("stores", "wgmma", r"own_tile\(part\.number, m, n\);"),
        ("passes", "relayout", r"LET_NEXT\(\)"),
    )
}
"""What does not wait for the launches before, of one that begins early. Of stores it shows where no copies wait before them."""

EQUIVALENT = (
    of_prelude(
        "brings A along the other index",
        r"(INDEX_A.*ld_a \+ \(p\)\)\n#define A_RUNS_ALONG_K) 1",
        r"\1 0",
        kernels=WITHOUT_RUNS,
        noticed_by="",
        why="another work-item brings each element, more slowly, but every element is brought",
    ),
    of_prelude(
        "checks edges where there are none",
        r"#if defined\(EDGES\) && !EDGES",
        "#if 0",
        times=2,
        noticed_by="",
        why="every condition holds where tiles are whole: checking them only takes time",
    ),
    of_prelude(
        "reads C of integers though beta is 0",
        r"if \(!is_zero\(beta\)\)\n( +value = plus)",
        r"\n\1",
        ("int32", "int32", None),
        noticed_by="",
        why="0 times any integer adds nothing: reading C only takes time (and memory that must be there, as it is)",
    ),
    of_kernel(
        "arranges rows otherwise",
        r"\(\(w\) \* RTSM \+ \(y\)\)",
        "((y) * WPTM + (w))",
        REGISTER_TILED,
        noticed_by="",
        why="loads and stores agree on whose each row is, and all rows are somebody's: only bank conflicts change",
    ),
    of_kernel(
        "arranges columns otherwise",
        r"\(\(c\) / WIDTH \* THREADSX \+ \(x\)\)",
        "((x) * (RX / WIDTH) + (c) / WIDTH)",
        DIRECT,
        noticed_by="",
        why="loads and stores agree on whose each column is, and all are somebody's: only what is read together changes",
    ),
    of_kernel(
        "waits though there is another stage",
        "#if STAGES == 1",
        "#if 1",
        PREFETCH,
        noticed_by="",
        why="with two stages nobody reads where the next tiles are put: waiting only takes time",
    ),
    Mutation(
        "pads no rows",
        (Edit(r" \+ PAD\]", "]", times=2),),
        (TILED, WPT, REGISTER_TILED),
        noticed_by="",
        why="the padding is never read or written: only bank conflicts change",
    ),
    Mutation(
        "pads no rows of runs",
        (Edit(r"\(TS([MN]) \+ PAD\) / WIDTH", r"TS\1 / WIDTH", times=2),),
        (REGISTER_TILED_VECTORIZED,),
        noticed_by="",
        why="the padding is never read or written: only bank conflicts change",
    ),
    of_kernel(
        "arranges runs of rows otherwise",
        r"\(\(r\) \* RTSM \+ \(y\)\)",
        "((y) * (WPTM / WIDTH) + (r))",
        REGISTER_TILED_VECTORIZED,
        noticed_by="",
        why="loads and stores agree on whose each run is, and all runs are somebody's: only bank conflicts change",
    ),
    of_prelude(
        "never moves a run whole",
        r"(present|end) >= WIDTH",
        "0",
        kernels=_IN_RUNS,
        times=3,
        noticed_by="",
        why="all elements of a run are moved, one after another: only more slowly",
    ),
)
"""What no check can notice, because it changes no result, with the reason."""

MUTATIONS = (
    *_OF_ALL_KERNELS,
    *_OF_NAIVE,
    *_OF_TILES,
    *_OF_TILED,
    *_OF_REGISTER_TILED,
    *_OF_TRANSPOSED_B_AND_PADDED,
    *_OF_TRANSPOSED_B,
    *_OF_PADDED,
    *_OF_SHUFFLE,
    *_OF_PREFETCH_AND_DIRECT,
    *_OF_PREFETCH,
    *_OF_DIRECT,
    *_OF_PACKED,
    *_OF_GEMV,
    *_OF_SIMT,
    *_OF_BATCHED,
    *_OF_MMA,
    *_OF_WPT,
    *_OF_WIDE,
    *_OF_VECTORIZED,
    *_OF_REGISTER_TILED_VECTORIZED,
    *_OF_PRELUDE,
    *_OF_OTHER_TYPES,
    *_OF_RUNS,
)

DOES_NOT_COMPILE = of_kernel("does not compile", "acc_t sum =", "no_such_type sum =", NAIVE)

WRITES_FAR_AWAY = of_kernel(
    "writes far away", r"D \+ i \* ld_d \+ j", "D + i * ld_d + j + 100000", TILED, noticed_by="oclgrind"
)
"""Only for Oclgrind, which simulates the memory: on a device it may end the process."""

OF_PASSES = (
    of_kernel("adds up parts before they are there", r"barrier\(CLK_LOCAL_MEM_FENCE\);", "", "times_vector"),
    of_kernel("writes sums beyond the last row", r"ADDER\(item\) == 0 && i < rows", "ADDER(item) == 0", "times_vector"),
    of_kernel("fills beyond the end", r"number >= rows \* columns", "number >= 2 * rows * columns", "fill_random"),
    of_panels("packs lines beyond the last", r"\(first\) \+ line < \(size\) \? ", "1 ? "),
    of_kernel("copies beyond the end", r"if \(i >= total\)\n        return;", "", "copy_strided"),
    of_kernel("makes elements beyond the last", r"line < lines && column < columns", "1", "rescale"),
    Mutation(
        "adds up sums before they are complete",
        (Edit(r"(barrier\(CLK_LOCAL_MEM_FENCE\)|__syncthreads\(\)); // the sums", "// the sums", times=4),),
        ("reduce",),
    ),
    of_kernel("does not wait for other lanes", r"SYNC_SUB_GROUP\(\);", "", "reduce"),
    of_kernel("adds up elements beyond the last", r"i < elements", "1", "reduce"),
    of_kernel("leaves the sum of any item", r"if \(item == 0\)\n", "if (item >= 0)\n", "reduce"),
    of_kernel(
        "reads a tile before it is there",
        r"(barrier\(CLK_LOCAL_MEM_FENCE\)|__syncthreads\(\)); // the tile",
        "// the tile",
        TRANSPOSE,
    ),
    of_kernel("copies beyond the last row", r"row \+ r < padded_rows && column", "column", TRANSPOSE),
    of_kernel(
        "reads a tile before it is complete",
        r"(barrier\(CLK_LOCAL_MEM_FENCE\)|__syncthreads\(\)); // the tile",
        "// the tile",
        RELAYOUT,
    ),
    of_kernel("reads runs behind the last element", r" && first \+ \(.*\) <= end;", ";", RELAYOUT),
)
"""Only for Oclgrind, too."""

OF_RESCALE = (
    of_kernel(
        "takes the scale of the next row", r"row_scale\(scales, row\)", "row_scale(scales, (row + 1) % rows)", "rescale"
    ),
    of_kernel("takes the scales of the first matrix", r"SCALES_OF\(matrix\)", "SCALES_OF(0)", "rescale"),
    of_kernel("scales rows as columns", r"row_scale\(scales, row\)", "row_scale(scales, column % rows)", "rescale"),
    of_kernel("leaves out the scale of the row", r" \* row_scale\(scales, row\)", "", "rescale"),
    of_kernel("scales twice by the column", r"row_scale\(scales, row\)", "column_scale(scales, column)", "rescale"),
    of_kernel("scales C, too", r"sum, alpha, beta\);", "sum, alpha, beta * row_scale(scales, row));", "rescale"),
    of_kernel("skips an element of each item", r"i < EACH;", "i < EACH - 1;", "rescale"),
    of_kernel("leaves out the last row", r"line < lines", "line < lines - 1", "rescale"),
    of_kernel("writes to the first matrix", r"matrix \* stride_d \+ ", "", "rescale"),
)
"""Faults of `rescale` that its exact results must notice."""

OF_REDUCE = {
    of_kernel("drops the last element", r"min\(count - first", "min(count - 1 - first", "reduce"): "reduce_divergent",
    of_kernel("drops one of several elements", r"e < EACH;", "e < EACH - 1;", "reduce"): "reduce_many",
    of_kernel("adds up the first group's elements again", r"source \+= first;", "", "reduce"): "reduce_sequential",
    Mutation(
        "omits the widest step", (Edit(r"apart < ITEMS;", "apart < ITEMS / 2;", times=2),), ("reduce",)
    ): "reduce_interleaved",
    of_kernel("adds up other pairs", r"sums\[left \+ apart\]", "sums[left + 1]", "reduce"): "reduce_interleaved",
    Mutation(
        "omits the first step", (Edit(r"= ITEMS / 2;", "= ITEMS / 4;", times=2),), ("reduce",)
    ): "reduce_first_add",
    Mutation("omits the last step", (Edit(r"_them > 0;", "_them > 1;", times=3),), ("reduce",)): "reduce_unrolled",
    of_kernel("omits a step between", r"_them >= SUB_GROUP;", "_them > SUB_GROUP;", "reduce"): "reduce_unrolled_warp",
    of_kernel("adds up one sub-group", r"s \+ item < SUMS", "s + item < 1", "reduce"): "reduce_shuffle",
    of_kernel("reads another lane", r"(shuffled_down\(sum, half_of_them)\)", r"\1 - 1)", "reduce"): "reduce_shuffle",
}
"""Faults of `reduce` that its exact sums must notice, and a step of the ladder that shows them."""


OF_RELAYOUT = (
    of_kernel("reads the row below", r"at = row \* source_ld", "at = (row + 1) * source_ld", RELAYOUT),
    of_kernel("reads rows beyond the last", r"row < rows \? columns - column : 0", "columns - column", RELAYOUT),
    of_kernel("moves what is beyond the last column", r"(low\[e\] = )first_of\((.*), .*\);", r"\1\2;", RELAYOUT),
    of_kernel("puts runs together from one", r"\(behind\[e\] \? RUN : 0\)", "0", RELAYOUT),
    of_kernel("moves no two words", r"bytes & 8 \?", "0 ?", RELAYOUT),
    of_kernel("moves no one word", r"bytes & 4 \?", "0 ?", RELAYOUT),
    of_kernel("moves no bytes", r" >> bytes % 4 \* 8\)", ")", RELAYOUT),
    of_kernel("leaves out words that are just inside", r"left >= WORD \?", "left > WORD ?", RELAYOUT),
    of_kernel("leaves out the last element", r"w \* WORD \+ e < elements", "w * WORD + e < elements - 1", RELAYOUT),
    of_kernel("puts elements in one place", r"<< e % WORD \* 8", "<< e / 4 * 8", RELAYOUT),
    of_kernel("confuses halves", r"place\[w \* 2 \* ", "place[(w * 2 + 1) * ", RELAYOUT),
    of_kernel("confuses bytes", r"= ODD_BYTES\(u, v\)", "= EVEN_BYTES(u, v)", RELAYOUT),
    of_kernel("confuses rows of bytes", r"y = LOW_HALVES\(low\[e \+ 1\]", "y = LOW_HALVES(low[e + 2]", RELAYOUT),
    of_kernel(
        "reads runs where they were not put",
        r"= staged\[STAGED\(column, run\)\]",
        "= staged[column * TARGET_RUNS + run]",
        RELAYOUT,
    ),
    of_kernel("takes the lines of a row for one", r"/ BLOCKS \* LANES \+", "/ BLOCKS +", RELAYOUT),
    of_kernel("copies beyond the last row", r"row < padded_rows && column", "column", RELAYOUT),
    of_kernel("copies beyond the last column", r"(row < padded_rows) && column < padded_columns", r"\1", RELAYOUT),
    of_kernel("writes a row too many", r"target_row < padded_columns", "target_row <= padded_columns", RELAYOUT),
    of_kernel("writes columns beyond the last", r" && target_column < padded_rows", "", RELAYOUT),
    of_kernel("ignores the offset of the source", r"source_offset \+ tile", "tile", RELAYOUT),
    of_kernel("ignores the offset of the target", r"target_offset \+ tile", "tile", RELAYOUT),
    of_kernel("reads the first matrix only", r" \+ tile\.batch \* source_stride", "", RELAYOUT),
    of_kernel("writes the first matrix only", r" \+ tile\.batch \* target_stride", "", RELAYOUT),
    of_kernel("rounds nothing", r"TAKEN\(low\[e\]\.word\[w\]\)", "low[e].word[w]", RELAYOUT),
)
"""Faults of `relayout` that its exact results must notice."""

OF_ROUNDING = (
    of_kernel(
        "rounds no vector along k",
        r"rounded_numbers\((run_at\(B \+ INDEX_B\(p, j\), present, ALIGNED_B\))\)",
        r"\1",
        GEMV,
    ),
    of_kernel("rounds no vectors across k", r"return rounded_numbers\(x\);", "return x;", GEMV),
    of_kernel(
        "rounds no vector of a matrix across k",
        r"return rounded_number\((LOAD_B\(p, j\))\);",
        r"return \1;",
        GEMV,
        ops="TN",
    ),
    Mutation(
        "rounds no matrix",
        (Edit(r"return OF_A\(rounded_numbers\((.*)\)\);", r"return OF_A(\1);", times=2),),
        (GEMV,),
    ),
)
"""Faults of `gemv` that show where a precision has A and B rounded alone."""

OF_TRANSPOSE = (
    of_kernel("reads the row below", r"source \+ row \* source_ld", "source + (row + 1) * source_ld", TRANSPOSE),
    of_kernel("reads by the rows of the target", r"source \+ row \* source_ld", "source + row * target_ld", TRANSPOSE),
    Mutation("reads one row after another", (Edit(r"from \+= ROWS \* ", "from += ", times=2),), (TRANSPOSE,)),
    Mutation("reads beyond the last row", (Edit(r"row \+ r < rows && ", "", times=2),), (TRANSPOSE,)),
    Mutation("reads beyond the last column", (Edit(r" && column < columns \?", " ?", times=2),), (TRANSPOSE,)),
    of_kernel("skips the last row straight", r"row \+ r < padded_rows", "row + r < padded_rows - 1", TRANSPOSE),
    of_kernel(
        "skips the last column straight", r"column < padded_columns\)", "column < padded_columns - 1)", TRANSPOSE
    ),
    of_kernel("writes straight beyond the last column", r" && column < padded_columns\)", ")", TRANSPOSE),
    of_kernel(
        "skips the last row of tiles", r"target_row \+ r < target_rows", "target_row + r < target_rows - 1", TRANSPOSE
    ),
    of_kernel("writes tiles beyond the last column", r" && target_column < target_columns", "", TRANSPOSE),
    of_kernel("limits tiles as if none were turned", r"TRANSPOSE \? padded_columns : ", "", TRANSPOSE),
    of_kernel("writes tiles one row after another", r"to \+= ROWS \* target_ld\)", "to += target_ld)", TRANSPOSE),
    of_kernel("turns no tile", r"TRANSPOSE \? staged\[x\]\[r \+ y\] : ", "", TRANSPOSE),
    of_kernel("turns what it should copy", r"(staged\[x\]\[r \+ y\]) : staged\[r \+ y\]\[x\]", r"\1 : \1", TRANSPOSE),
    of_kernel("puts tiles where they were", r"TRANSPOSE \? tile\.column : tile\.row", "tile.row", TRANSPOSE),
    of_kernel("transposes nothing straight", r"TRANSPOSE \? column \* target_ld \+ row : ", "", TRANSPOSE),
    of_kernel("steps down what it turns straight", r"TRANSPOSE \? ROWS : ", "", TRANSPOSE),
    of_kernel("ignores the offset of the source", r"source_offset \+ tile", "tile", TRANSPOSE),
    of_kernel("ignores the offset of the target", r"target_offset \+ tile", "tile", TRANSPOSE),
    of_kernel("reads the first matrix only", r" \+ tile\.batch \* source_stride", "", TRANSPOSE),
    of_kernel("writes the first matrix only", r" \+ tile\.batch \* target_stride", "", TRANSPOSE),
    of_kernel("confuses rows and columns of the grid", r"number % down\) \* TS", "number % across) * TS", TRANSPOSE),
    of_kernel("takes tiles of a diagonal twice", r"\(number / down \+ number % down\)", "number", TRANSPOSE),
    of_kernel("moves half a word", r"#if SIXTEEN_BYTES", "#if 0", TRANSPOSE),
    of_kernel(
        "reads by 32-bit indices",
        r"row \* source_ld",
        "(int)((unsigned)row * (unsigned)source_ld)",
        TRANSPOSE,
        noticed_by="spans",
    ),
    of_kernel(
        "finds matrices in 32 bits",
        r"tile\.batch \* source_stride",
        "(int)((unsigned)tile.batch * (unsigned)source_stride)",
        TRANSPOSE,
        noticed_by="spans",
    ),
    of_kernel(
        "writes tiles by 32-bit indices",
        r"target_row \* target_ld",
        "(int)((unsigned)target_row * (unsigned)target_ld)",
        TRANSPOSE,
        noticed_by="spans",
    ),
    of_kernel(
        "writes straight by 32-bit indices",
        r"\? column \* target_ld",
        "? (int)((unsigned)column * (unsigned)target_ld)",
        TRANSPOSE,
        noticed_by="spans",
    ),
)
"""What test_transpose.py must notice: by the table of its cases, or by operands that lie beyond 2³¹ elements."""


_INCLUDES = r'(?:#include ".*"\n)+'
"""All that a kernel includes: what is planted behind it may change it."""


def _redefined(condition: str, name: str, parameters: str, value: str) -> Edit:
    """Defines a macro of the prelude anew under a condition, behind what a kernel includes."""
    text = f"#if {condition}\n#undef {name}\n#define {name}{parameters} {value}\n#endif\n"
    return Edit(_INCLUDES, rf"\g<0>{text}")


_ROUNDED = {"opencl": "PASTE(NUMBER_, OUT)(to_stored(sum))", "cuda": "to<acc_t>::from(to_stored(sum))"}

OF_FEW_PROBLEMS = (
    of_kernel(
        "skips the last row of a tile that lacks one",
        r"INSIDE\(i < m && j < n\)",
        "INSIDE(i < m - (m % TSM == TSM - 1) && j < n)",
        REGISTER_TILED,
    ),
    of_kernel("counts matrices in 16 bits", r"SELECT_BATCH\(tile\.batch\)", "SELECT_BATCH(tile.batch & 0xffff)", WPT),
    of_kernel("counts terms in 15 bits", r"p < k\b", "p < (k & 0x7fff)", NAIVE),
    Mutation(
        "does not conjugate a transposed B of complex128",
        (
            _redefined(
                "CONJUGATE_B && TRANSPOSE_B", "LOAD_B", "(p, j)",
                "(sizeof(in_t) == 16 ? load(B + INDEX_B(p, j)) : conjugated(load(B + INDEX_B(p, j))))",
            ),
        ),
        (TILED,),
    ),
    of_kernel(
        "ignores beta where rows of C lie apart",
        r"sum\[r\], alpha, beta\)",
        "sum[r], alpha, ld_c > n ? ACC_ZERO : beta)",
        TRANSPOSED_B,
    ),
    Mutation(
        "rounds a half twice",
        (
            Edit(
                r"store\((.*), sum\[r\]\[c\], alpha",
                r"store(\1, HALVED(sum[r][c]), alpha",
            ),
            Edit(
                _INCLUDES,
                {
                    language: "\\g<0>#if defined(REAL_ARITHMETIC)\n"
                    f"#define HALVED(sum) (sizeof(out_t) == 2 ? {rounded} : (sum))\n"
                    "#else\n#define HALVED(sum) (sum)\n#endif\n"
                    for language, rounded in _ROUNDED.items()
                },
            ),
        ),
        (PADDED,),
    ),
    Mutation(
        "takes the rows of a transposed A for its leading dimension",
        (_redefined("TRANSPOSE_A && TRANSPOSE_B", "INDEX_A", "(i, p)", "((index_t)(p) * m + (i))"),),
        (DIRECT,),
    ),
)  # fmt: skip
"""Each shows on few problems only, for which `gemmport fuzz` must look early: edges, batches beyond 2¹⁶, sums beyond 2¹⁵ terms,
one type with one op, one layout, halves, and one combination of ops with gaps.
"""


def mutation(name: str) -> Mutation:
    """The mutation of that name."""
    (found,) = [
        each
        for each in (*MUTATIONS, *OF_WGMMA, DOES_NOT_COMPILE, WRITES_FAR_AWAY, *OF_PASSES, *OF_FEW_PROBLEMS)
        if each.name == name
    ]
    return found


@contextmanager
def planted(fault: Mutation | str, kernel: str) -> Iterator[None]:
    """Every program of the kernel that is assembled inside has the fault; all else is the shipped path."""
    fault = mutation(fault) if isinstance(fault, str) else fault
    assert kernel in fault.kernels, f"{fault.name} must be a fault of one of {fault.kernels}; got {kernel}"
    read, read_part, languages = sources._read, sources._read_part, {".cl": "opencl", ".cu": "cuda"}

    def edited(folder, stem):  # type: ignore[no-untyped-def]  # as the original
        text = read(folder, stem)
        if stem == kernel and not fault.prelude:
            for edit in fault.edits:
                text = edit.apply(text, folder.name)
        return text

    def edited_part(name, places):  # type: ignore[no-untyped-def]  # as the original
        text = read_part(name, places)
        if fault.prelude:
            for edit in fault.edits:
                text = edit.apply_to_part(text, languages[Path(name).suffix])
        return text

    calls = mock.patch.object(executor, "_LAUNCHES", f"calls with {fault.name}")  # what was bound before has no fault
    with mock.patch.object(sources, "_read", edited), mock.patch.object(sources, "_read_part", edited_part), calls:
        yield
