"""Every kernel is exact on every device: small integers, compared bit for bit with NumPy, in poisoned memory (see exact.py).

A program is specialized by kernel, parameters, data type, ops and whether tiles cross edges, and compiling it takes far longer
than running it at these sizes: so each test runs many problems through few programs.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import gemmport as gp
from absences import beyond
from exact import WIDEST_RUN, Sizes, check, problem_of
from gemmport import kernels
from gemmport.checking.reference import reference
from gemmport.contracts.matrix_instructions import instruction_of
from gemmport.contracts.nvidia import multiplies_matrices_by_warp_groups, multiplies_matrices_by_warps
from gemmport.core.dtypes import DTYPES, as_dtype
from gemmport.core.problem import OPERANDS, Operand
from gemmport.execution.executor import bind

Parameters = dict[str, int | str]

OPS = ("NN", "NT", "TN", "TT")

# Small tiles, which compile quickly and have many edges; no two extents alike where the kernel lets them differ.
BASE: dict[str, Parameters] = {
    "naive": {"TS": 8},
    "tiled": {"TS": 8, "PAD": 1},
    "wpt": {"TS": 8, "WPT": 4, "PAD": 1},
    "vectorized": {"TS": 8, "WIDTH": 4},
    "register_tiled": {"TSM": 8, "TSN": 16, "TSK": 4, "WPTM": 2, "WPTN": 4, "ARRANGE": "strided", "PAD": 1},
    "transposed_b": {"TS": 8, "WPT": 2, "TSDK": 4, "PAD": 1},
    "padded": {"TSM": 8, "TSN": 16, "TSK": 4, "WPTM": 2, "WPTN": 4, "PADDINGX": 8, "PADDINGY": 4},
    "shuffle": {"TSM": 24, "TSN": 12, "TSK": 4, "WPTM": 3, "WPTN": 3, "PAD": 1, "USE_LDG": 0, "USE_SHUFFLE": 1},
    "prefetch": {
        "TSM": 8,
        "TSN": 16,
        "TSK": 4,
        "WPTM": 2,
        "WPTN": 4,
        "WIDTH": 2,
        "STAGES": 2,
        "REG_PREFETCH": 1,
        "PAD": 2,
    },
    "direct": {"THREADSX": 4, "THREADSY": 2, "RX": 4, "RY": 2, "RK": 2, "WIDTH": 2},
    "gemv": {"ITEMS": 16, "SIDE": 4, "RUN": 8, "RUNS": 2, "UNROLL": 2, "VECTORS": 3, "SPLIT": 2},
    "packed": {"MR": 4, "NR": 1, "VECTOR": 16, "MC": 8, "NC": 16, "KC": 8},
    "batched": {"TSM": 8, "TSN": 12, "TSK": 6, "WPTM": 4, "WPTN": 4, "PRODUCTS": 3},
    "register_tiled_vectorized": {"TSM": 8, "TSN": 16, "TSK": 4, "WPTM": 2, "WPTN": 4, "WIDTH": 2, "PAD": 2},
    "simt": {
        "TSM": 16,
        "TSN": 32,
        "TSK": 8,
        "WM": 16,
        "WN": 32,
        "WPTM": 4,
        "WPTN": 4,
        "SLICES": 2,
        "STAGES": 3,
        "RASTER": 3,
        "SHARE": 3,
        "PAD": 4,
    },
    "wgmma": {"TSM": 64, "TSN": 64, "WM": 64, "STAGES": 2, "RASTER": 3, "SHARE": 1},
    "sub_group_mma": {"TSM": 32, "TSN": 64, "TSK": 64, "WM": 16, "WN": 32, "LANES": 32, "RASTER": 3},
    "mma": {"TSM": 32, "TSN": 64, "TSK": 32, "WM": 16, "WN": 32, "STAGES": 3, "RASTER": 3, "SHARE": 3},
}
VARIANTS = tuple(variant.name for variant in kernels.variants())
WITH_WIDTH = tuple(
    variant.name for variant in kernels.variants() if "WIDTH" in {own.name for own in variant.parameters}
)
"""Kernels that move WIDTH elements at once where rows are aligned, and are specialized by it."""

WIDE = (*WITH_WIDTH, "gemv", "simt", "batched", "mma", "wgmma", "sub_group_mma")
"""Kernels that move runs whole where rows are aligned."""

PADS_K = ("padded", "packed", "simt")
"""Kernels that pad their operands, or begin with what is left over, so that the product's loop meets no edge along k."""

SCALARS = tuple(itertools.product((0.0, 1.0, -1.0, 2.0), (0.0, 1.0, -1.0, 0.5)))


LYING: dict[str, dict[str, Any]] = {
    "apart": {"alpha": 2.0, "beta": -1.0},
    "together": {"gap": 0},
    "aligned": {"gap": 0, "multiple": WIDEST_RUN, "beta": 0.5},
}
"""How rows lie in memory, and scalars to go with it."""


def typed(kernel: str, dtype: str) -> str:
    """A type that the kernel computes, in the place of float32 and float64: matrix units multiply halves."""
    return (
        {"float32": "float16", "float64": "bfloat16"}[dtype] if kernel in ("mma", "wgmma", "sub_group_mma") else dtype
    )


def parameters(kernel: str) -> Parameters:
    return BASE.get(kernel, {})


def tile(kernel: str, params: Parameters) -> Sizes:
    """The tile; the depth of a kernel that has none is 1."""
    variant = kernels.variant(kernel)
    return Sizes(*variant.tile(variant.complete(params)))


def sizes_of(t: Sizes) -> dict[str, list[Sizes]]:
    """Sizes at which kernels go wrong: nothing, one, primes, a whole tile, one less and one more, along each dimension. Whole
    tiles have a program of their own.
    """
    whole = [t, Sizes(2 * t.m, 3 * t.n, 2 * t.k), Sizes(2 * t.m, t.n, 0)]
    around = [
        Sizes(t.m + dm, t.n + dn, t.k + dk)
        for dm, dn, dk in ((1, 1, 1), (-1, -1, -1), (1, 0, 0), (0, 1, 0), (0, 0, 1), (-1, 1, 1))
    ]
    thin = [Sizes(1, 1, 1), Sizes(1, 37, 11), Sizes(37, 1, 11), Sizes(19, 23, 1), Sizes(1, 1, 67)]
    primes = [Sizes(17, 31, 13), Sizes(53, 29, 41), Sizes(2 * t.m + 1, 101, 2 * t.k + 1)]
    nothing = [Sizes(17, 31, 0), Sizes(0, 31, 13), Sizes(17, 0, 13), Sizes(0, 0, 0)]
    return {"whole": whole, "with edges": [*around, *thin, *primes, *nothing]}


@pytest.mark.every_pair("ops", OPS)
@pytest.mark.every_pair("kernel", VARIANTS)
class TestProducts:
    @pytest.mark.sample(dtype=["float32"], ops=["NN", "TT"], lying=["apart"])
    @pytest.mark.every_pair("lying", LYING)
    @pytest.mark.every_pair("tiles", ["whole", "with edges"])
    def test_of_any_size_are_exact(
        self, backend: gp.Backend, dtype: str, kernel: str, ops: str, lying: str, tiles: str
    ) -> None:
        params = parameters(kernel)
        for sizes in sizes_of(tile(kernel, params))[tiles]:
            check(backend, problem_of(sizes, ops, typed(kernel, dtype), **LYING[lying]), kernel, params)

    @pytest.mark.every_pair("tiles", ["whole", "with edges"])
    def test_scale_with_alpha_and_beta_and_read_nothing_they_cancel(
        self, backend: gp.Backend, dtype: str, kernel: str, ops: str, tiles: str
    ) -> None:
        """With beta = 0, C is NaN and must not be read; with alpha = 0, A and B are."""
        params = parameters(kernel)
        sizes = tile(kernel, params) if tiles == "whole" else Sizes(17, 31, 13)
        for alpha, beta in SCALARS:
            check(backend, problem_of(sizes, ops, typed(kernel, dtype), alpha=alpha, beta=beta), kernel, params)

    @pytest.mark.every_pair("tiles", ["whole", "with edges"])
    @pytest.mark.every_pair("multiple", (1, WIDEST_RUN))
    def test_update_c_in_place(
        self, backend: gp.Backend, dtype: str, kernel: str, ops: str, tiles: str, multiple: int
    ) -> None:
        params = parameters(kernel)
        own = [tile(kernel, params)] if tiles == "whole" else [Sizes(17, 31, 13), Sizes(17, 31, 0)]
        for sizes in own:
            for alpha, beta in ((1.0, 1.0), (2.0, 0.5), (0.0, -1.0), (-1.0, 0.0)):
                problem = problem_of(
                    sizes, ops, typed(kernel, dtype), in_place=True, alpha=alpha, beta=beta, batch=2, multiple=multiple
                )
                check(backend, problem, kernel, params, in_place=True)

    def test_without_terms_scale_c(self, backend: gp.Backend, dtype: str, kernel: str, ops: str) -> None:
        params = parameters(kernel)
        for beta in (0.0, 1.0, 0.5):
            check(
                backend,
                problem_of(Sizes(17, 31, 0), ops, typed(kernel, dtype), alpha=2.0, beta=beta, batch=2),
                kernel,
                params,
            )

    @pytest.mark.every_pair("share_a", [False, True])
    def test_of_a_batch_are_each_their_own(
        self, backend: gp.Backend, dtype: str, kernel: str, ops: str, share_a: bool
    ) -> None:
        params = parameters(kernel)
        for sizes, batch in (
            (Sizes(17, 31, 13), 3),
            (tile(kernel, params), 3),
            (Sizes(1, 1, 1), 7),
            (Sizes(17, 31, 13), 0),
            (Sizes(9, 20, 0), 3),
        ):
            problem = problem_of(sizes, ops, typed(kernel, dtype), share_a=share_a, batch=batch, alpha=-1.0, beta=2.0)
            check(backend, problem, kernel, params)

    def test_have_no_edges_where_tiles_are_whole(self, backend: gp.Backend, dtype: str, kernel: str, ops: str) -> None:
        """The specialization of the product without bounds checks is chosen where, and only where, every tile is whole."""
        params = parameters(kernel)
        t = tile(kernel, params)
        for dm, dn, dk in itertools.product((0, 1), repeat=3):
            problem = problem_of(Sizes(t.m + dm, t.n + dn, t.k + dk), ops, typed(kernel, dtype))
            *_, product = gp.plan(problem, backend.device, kernel=kernel, params=params).launches
            beyond = (dm or dn) and kernel != "simt"  # whose tiles begin earlier there
            has_edges = bool(beyond or (dk and t.k > 1 and kernel not in PADS_K))
            if kernel != "gemv":  # whose runs are as long as the rows allow
                defines = dict(product.kernel.defines)
                assert defines["EDGES"] == int(has_edges)
                assert defines.get("OVERLAP", 0) == int(kernel == "simt" and bool(dm or dn))


@pytest.mark.every_value("ops", ["NN", "TT"])
@pytest.mark.every_value("kernel", WITH_WIDTH)
def test_runs_are_moved_whole_where_and_only_where_all_of_an_operand_are_aligned(
    backend: gp.Backend, kernel: str, ops: str
) -> None:
    """One place at a time is off by an element: a row, a matrix of the batch, the first element. C and D go together."""
    params = parameters(kernel)
    aligned = problem_of(Sizes(17, 31, 13), ops, "float32", multiple=WIDEST_RUN, batch=2, alpha=2.0, beta=-1.0)
    cases: list[tuple[str, gp.GemmProblem]] = [("", aligned)]
    for operand, field in itertools.product(OPERANDS, ("ld", "batch_stride", "offset")):
        layout = aligned.layout(operand)
        moved = {field: getattr(layout, field) + 1}
        if field == "ld":
            moved["batch_stride"] = layout.batch_stride + 4 * WIDEST_RUN  # room for longer rows
        off = {operand: replace(layout, **moved)}
        cases.append(("D" if operand == "c" else operand.upper(), replace(aligned, **off)))
    for unaligned, problem in cases:
        defines = dict(gp.plan(problem, backend.device, kernel=kernel, params=params).launches[-1].kernel.defines)
        assert {x: defines[f"ALIGNED_{x}"] for x in "ABD"} == {x: int(x != unaligned) for x in "ABD"}, str(problem)
        check(backend, problem, kernel, params)


@pytest.mark.every_pair("ops", OPS)
@pytest.mark.every_pair("kernel", ["packed"])
def test_long_panels_are_packed_in_pieces(backend: gp.Backend, kernel: str, dtype: str, ops: str) -> None:
    params: Parameters = {"MR": 6, "NR": 2, "VECTOR": 32, "MC": 12, "NC": 32, "KC": 4096}
    for k in (512, 777):
        check(backend, problem_of(Sizes(35, 67, k), ops, dtype, batch=2, beta=0.5), kernel, params)


@pytest.mark.every_pair("ops", OPS)
@pytest.mark.every_pair(("sizes", "own"), [(Sizes(67, 13, 77), "A"), (Sizes(11, 131, 77), "B")])
@pytest.mark.every_pair("kernel", ["packed"])
def test_long_operands_are_laid_out_by_macro_tiles(
    backend: gp.Backend, kernel: str, sizes: Sizes, own: str, dtype: str, ops: str
) -> None:
    """Several panels, in several steps, some terms at a time."""
    params: Parameters = {"MR": 6, "NR": 1, "VECTOR": 32, "MC": 18, "NC": 48, "KC": 32}
    problem = problem_of(sizes, ops, dtype, batch=2, beta=0.5)
    if backend.device.type == "cpu" and not backend.device.max_terms:
        launches = gp.plan(problem, backend.device, kernel=kernel, params=params).launches
        assert dict(launches[-1].kernel.defines)[f"OWN_{own}"] == 1
    check(backend, problem, kernel, params)


def test_conjugates_of_real_numbers_are_transposes(backend: gp.Backend, dtype: str) -> None:
    check(backend, problem_of(Sizes(17, 31, 13), "CC", dtype), "naive", BASE["naive"])


@pytest.mark.every_pair("sizes", [Sizes(5, 1, 0), Sizes(17, 31, 0), Sizes(16, 16, 9)])
@pytest.mark.every_pair(
    ("kernel", "params"),
    [
        ("tiled", {"TS": 8, "PAD": 0}),
        ("register_tiled", {"TSM": 8, "TSN": 4, "TSK": 3, "WPTM": 2, "WPTN": 4, "ARRANGE": "strided", "PAD": 0}),
        ("register_tiled", {"TSM": 4, "TSN": 8, "TSK": 2, "WPTM": 4, "WPTN": 4, "ARRANGE": "strided", "PAD": 0}),
        ("transposed_b", {"TS": 8, "WPT": 8, "TSDK": 3, "PAD": 0}),
        ("padded", {"TSM": 4, "TSN": 8, "TSK": 2, "WPTM": 4, "WPTN": 4}),
        ("prefetch", BASE["prefetch"]),
        ("wpt", {"TS": 8, "WPT": 8, "PAD": 0}),
        ("vectorized", {"TS": 4, "WIDTH": 4}),
        ("register_tiled_vectorized", {"TSM": 4, "TSN": 8, "TSK": 2, "WPTM": 4, "WPTN": 4, "WIDTH": 2, "PAD": 0}),
    ],
)
def test_c_is_scaled_once_in_place_without_terms(
    backend: gp.Backend, kernel: str, params: Parameters, sizes: Sizes
) -> None:
    """`gemmport fuzz` found a runtime that went twice through what follows a loop with barriers that is left out."""
    check(
        backend, problem_of(sizes, "NN", "float32", in_place=True, alpha=0.0, beta=2.0), kernel, params, in_place=True
    )


STRUCTURES: list[tuple[str, Parameters]] = [
    ("naive", {"TS": 16}),
    ("tiled", {"TS": 5, "PAD": 0}),
    ("tiled", {"TS": 8, "PAD": 0}),
    ("tiled", {"TS": 16, "PAD": 0}),
    ("tiled", {"TS": 16, "PAD": 1}),
]
STRUCTURES += [
    ("register_tiled", dict(zip(("TSM", "TSN", "TSK", "WPTM", "WPTN", "ARRANGE", "PAD"), values, strict=True)))
    for values in (
        (16, 16, 8, 4, 4, "strided", 0),
        (16, 16, 8, 4, 4, "quads", 1),
        (32, 16, 4, 8, 4, "contiguous", 1),
        (8, 48, 4, 4, 8, "quads", 0),
        # 168 elements of A and 280 of B, brought by 60 work-items: neither comes out even.
        (24, 40, 7, 4, 4, "strided", 1),
        (24, 40, 7, 4, 4, "contiguous", 0),
        (24, 40, 7, 4, 4, "quads", 1),
        # Fewer elements than work-items.
        (32, 24, 1, 4, 4, "contiguous", 1),
        # One work-item.
        (4, 8, 3, 4, 8, "strided", 0),
        # Work per item that quads cannot have.
        (20, 12, 7, 2, 3, "contiguous", 1),
        (15, 7, 2, 5, 1, "strided", 3),
    )
]
STRUCTURES += [
    ("shuffle", dict(zip(("TSM", "TSN", "TSK", "WPTM", "WPTN", "PAD", "USE_SHUFFLE"), values, strict=True)))
    for values in (
        # A team is a sub-group of 16 lanes, or half of one of 32.
        (32, 32, 16, 4, 2, 0, 1),
        (32, 32, 16, 4, 2, 1, 1),
        (32, 32, 16, 4, 2, 1, 0),
        (32, 32, 16, 4, 2, 0, 0),
        # A work-item is a team by itself.
        (64, 4, 3, 2, 4, 1, 1),
        (64, 4, 3, 2, 4, 0, 0),
        # Of 5 rows dealt out to 8 lanes, no two terms lie alike.
        (40, 8, 8, 5, 1, 2, 1),
        (40, 8, 8, 5, 1, 2, 0),
        (40, 8, 16, 5, 1, 0, 1),
        # 80 elements of B, brought by 32 work-items: that does not come out even.
        (24, 20, 4, 3, 5, 1, 1),
        (24, 20, 4, 3, 5, 0, 0),
        # Fewer elements than work-items.
        (32, 12, 1, 4, 3, 0, 1),
    )
]


STRUCTURES += [
    ("transposed_b", dict(zip(("TS", "WPT", "TSDK", "PAD"), values, strict=True)))
    for values in (
        (16, 4, 8, 1),
        (8, 1, 16, 0),
        # 30 elements of either operand, brought by 12 work-items: that does not come out even.
        (6, 3, 5, 2),
        # Fewer elements than work-items.
        (8, 2, 1, 0),
        (8, 8, 3, 1),
        # One work-item.
        (1, 1, 7, 0),
    )
]
STRUCTURES += [
    ("padded", dict(zip(("TSM", "TSN", "TSK", "WPTM", "WPTN", "PADDINGX", "PADDINGY"), values, strict=True)))
    for values in (
        (16, 16, 8, 4, 4, 16, 16),
        (32, 8, 4, 8, 2, 8, 4),
        (8, 48, 6, 4, 8, 32, 1),
        # Sizes other than powers of two; the passes' tiles cross those of the product.
        (24, 40, 15, 4, 4, 5, 5),
        (15, 6, 6, 5, 3, 7, 1),
        # One work-item.
        (4, 8, 3, 4, 8, 4, 2),
    )
]
STRUCTURES += [
    (
        "prefetch",
        dict(zip(("TSM", "TSN", "TSK", "WPTM", "WPTN", "WIDTH", "STAGES", "REG_PREFETCH", "PAD"), values, strict=True)),
    )
    for values in (
        (16, 16, 8, 4, 4, 4, 2, 1, 4),
        (16, 32, 4, 4, 8, 4, 1, 1, 0),
        (8, 48, 4, 4, 8, 2, 2, 0, 2),
        # 24 runs of A and 40 of B, brought by 15 work-items: neither comes out even.
        (12, 20, 8, 4, 4, 4, 2, 1, 0),
        (12, 20, 8, 4, 4, 4, 1, 0, 4),
        # Fewer runs than work-items; terms that end a tile where the next begins.
        (32, 24, 2, 4, 4, 2, 2, 1, 0),
        (12, 15, 1, 3, 5, 1, 2, 1, 1),
        # One work-item.
        (4, 8, 4, 4, 8, 4, 2, 1, 4),
        # The widest.
        (16, 8, 8, 8, 8, 8, 2, 1, 8),
        # Runs of one element, in numbers that no other width could have.
        (20, 12, 7, 2, 3, 1, 1, 1, 1),
        (15, 7, 2, 5, 1, 1, 2, 0, 3),
        # Many warps, where one stage must be waited for.
        (64, 64, 4, 4, 4, 2, 1, 0, 0),
    )
]
STRUCTURES += [
    ("direct", dict(zip(("THREADSX", "THREADSY", "RX", "RY", "RK", "WIDTH"), values, strict=True)))
    for values in (
        (8, 4, 4, 4, 4, 4),
        (3, 5, 8, 4, 4, 4),
        (5, 2, 4, 6, 8, 2),
        # Runs of one element, in numbers that no other width could have.
        (5, 3, 3, 5, 7, 1),
        (7, 1, 1, 9, 1, 1),
        # One work-item, and the widest.
        (1, 1, 8, 8, 8, 8),
        (2, 3, 16, 8, 8, 8),
    )
]
STRUCTURES += [
    ("packed", dict(zip(("MR", "NR", "VECTOR", "MC", "NC", "KC", "MOVES"), values, strict=True)))
    for values in (
        # Every number of lines and of vectors, moved in both ways.
        (2, 1, 16, 2, 16, 1, "vload"),
        (6, 2, 16, 12, 32, 7, "struct"),
        (8, 3, 32, 8, 48, 16, "vload"),
        (10, 4, 32, 20, 64, 5, "struct"),
        (12, 2, 64, 24, 32, 64, "struct"),
        (14, 2, 64, 28, 64, 40, "vload"),
        # A macro-tile of an odd number of micro-tiles; one that also spans D and lays out several panels of A itself.
        (6, 1, 32, 18, 48, 4096, "vload"),
        (2, 1, 16, 6, 48, 8, "struct"),
    )
]
STRUCTURES += [
    ("gemv", dict(zip(("ITEMS", "SIDE", "RUN", "RUNS", "UNROLL", "VECTORS", "SPLIT"), values, strict=True)))
    for values in (
        (64, 8, 16, 1, 4, 4, 1),
        # All work-items side by side, and one after the other.
        (32, 32, 8, 1, 3, 2, 5),
        (32, 1, 8, 1, 2, 1, 1),
        # One work-item, whose runs need not be aligned.
        (1, 1, 16, 2, 2, 2, 3),
        # More groups for each sum than there are steps.
        (8, 4, 4, 3, 1, 5, 100),
    )
]
STRUCTURES += [
    (
        "simt",
        dict(
            zip(
                ("TSM", "TSN", "TSK", "WM", "WN", "WPTM", "WPTN", "SLICES", "STAGES", "RASTER", "SHARE", "PAD"),
                values,
                strict=True,
            )
        ),
    )
    for values in (
        # A warp; two stages, which take turns.
        (16, 32, 8, 16, 32, 4, 4, 1, 2, 1, 0, 0),
        # Several runs of rows and of columns for each work-item; warps side by side and one below the other.
        (64, 32, 8, 32, 16, 4, 4, 1, 3, 2, 0, 4),
        (32, 64, 16, 32, 32, 8, 4, 2, 3, 8, 0, 4),
        (32, 32, 8, 16, 32, 4, 4, 1, 4, 1, 2, 4),
        # More work-items than runs of a tile.
        (16, 32, 32, 16, 32, 4, 4, 4, 2, 1, 1, 4),
        # 96 work-items, by which neither operand comes out even.
        (96, 16, 16, 32, 16, 4, 4, 1, 3, 2, 0, 0),
    )
]
STRUCTURES += [
    ("mma", dict(zip(("TSM", "TSN", "TSK", "WM", "WN", "STAGES", "RASTER", "SHARE", "ANEW"), values, strict=True)))
    for values in (
        # A warp, and one turn of the unit for each step; two stages, which take turns.
        (16, 16, 32, 16, 16, 2, 1, 0, 0),
        # Blocks of rows and of columns one below the other; as many pieces of a row as 128 bytes hold, and more.
        (64, 32, 64, 32, 16, 2, 2, 1, 1),
        (64, 128, 32, 32, 64, 3, 8, 0, 0),
        (128, 32, 128, 64, 32, 2, 8, 2, 1),
        # More work-items than pieces of a tile.
        (32, 32, 32, 16, 16, 4, 1, 0, 0),
    )
]
STRUCTURES += [
    ("wgmma", dict(zip(("TSM", "TSN", "WM", "STAGES", "RASTER", "GROUPS", "SHARE"), values, strict=True)))
    for values in (
        # Two warp groups, and all of their columns in one product of the unit.
        (128, 256, 64, 2, 2, 1, 0),
        # Two row blocks of each.
        (256, 128, 128, 3, 1, 1, 1),
        # Three of them.
        (192, 128, 64, 2, 8, 1, 0),
        # One, beside another group of work-items.
        (64, 64, 64, 5, 3, 2, 2),
        (128, 192, 64, 3, 8, 1, 1),
    )
]
STRUCTURES += [
    ("batched", dict(zip(("TSM", "TSN", "TSK", "WPTM", "WPTN", "PRODUCTS"), values, strict=True)))
    for values in (
        # More work-items than runs; whole runs along k, and what is left of one.
        (16, 12, 4, 4, 4, 5),
        (5, 13, 7, 8, 4, 2),
        # One work-item, whose block is larger than the tile.
        (3, 1, 2, 4, 8, 1),
        # Runs of rows and columns that lie across k.
        (20, 8, 9, 8, 8, 1),
    )
]
STRUCTURES += [
    ("wpt", dict(zip(("TS", "WPT", "PAD"), values, strict=True)))
    for values in ((5, 5, 0), (6, 3, 1), (8, 1, 0), (9, 3, 2), (16, 4, 1), (32, 8, 1))
]
STRUCTURES += [
    ("vectorized", dict(zip(("TS", "WIDTH"), values, strict=True)))
    for values in ((5, 1), (6, 2), (4, 4), (12, 4), (8, 8), (16, 8))
]
STRUCTURES += [
    ("register_tiled_vectorized", dict(zip(("TSM", "TSN", "TSK", "WPTM", "WPTN", "WIDTH", "PAD"), values, strict=True)))
    for values in (
        (16, 16, 8, 4, 4, 4, 0),
        (32, 16, 4, 8, 4, 4, 4),
        (8, 48, 4, 4, 8, 2, 2),
        # 48 runs of A and 80 of B, brought by 60 work-items, and 24 and 40 by 15: neither comes out even.
        (24, 40, 8, 4, 4, 4, 4),
        (12, 20, 4, 4, 4, 2, 0),
        # Fewer runs than work-items.
        (32, 24, 2, 4, 4, 2, 0),
        # One work-item.
        (4, 8, 4, 4, 8, 4, 0),
        # The widest.
        (16, 8, 8, 8, 8, 8, 8),
        # Runs of one element, in numbers that no other width could have.
        (20, 12, 7, 2, 3, 1, 1),
        (15, 7, 2, 5, 1, 1, 3),
    )
]


@pytest.mark.sample(kernel=["tiled"])
@pytest.mark.every_value(("kernel", "params"), STRUCTURES)
def test_tiles_of_any_shape_are_exact(backend: gp.Backend, kernel: str, params: Parameters) -> None:
    check_structure(backend, kernel, params)


def check_structure(backend: gp.Backend, kernel: str, params: Parameters) -> None:
    """Ops alternate, so that tiles are read along both of their dimensions; runs are moved whole and element by element."""
    t = tile(kernel, params)
    ops = OPS[STRUCTURES.index((kernel, params)) % 4]
    for sizes, multiple in (
        (Sizes(t.m + 1, t.n + 1, t.k + 1), 1),
        (Sizes(17, 31, 13), WIDEST_RUN),
        (Sizes(2 * t.m - 1, 2 * t.n + 3, 3 * t.k), 1),
        (Sizes(2 * t.m, 2 * t.n, 2 * t.k + 1), WIDEST_RUN),
    ):
        problem = problem_of(sizes, ops, typed(kernel, "float32"), alpha=2.0, beta=-1.0, batch=2, multiple=multiple)
        check(backend, problem, kernel, params)


MAY_BE_UNSUPPORTED = {
    "shuffle": "exchange registers: ",
    "packed": "one work-item computes a whole macro-tile, which is for CPUs|loops are left after too many rounds",
    "mma": "NVIDIA's GPUs have the matrix unit's instructions from sm_80 on",
    "wgmma": "only GPUs of compute capability 9.0 have it",
    "sub_group_mma": "have instructions for it under OpenCL",
}
"""Kernels that a device may lack something for, and how that is told."""


def test_kernels_are_left_out_only_where_the_device_lacks_what_they_need(backend: gp.Backend) -> None:
    """tiers.py leaves out what is unsupported: here, no more than it must."""
    device = backend.device
    problems = {kernel: gp.GemmProblem.create(17, 31, 13, dtype=typed(kernel, "float32")) for kernel in VARIANTS}
    left_out = {kernel for kernel in VARIANTS if kernels.variant(kernel).unsupported(problems[kernel], device)}
    assert ("packed" in left_out) == (device.type != "cpu" or bool(device.max_terms))
    assert ("mma" in left_out) != multiplies_matrices_by_warps(device)
    assert ("wgmma" in left_out) != multiplies_matrices_by_warp_groups(device)
    assert ("sub_group_mma" in left_out) == (instruction_of(DTYPES["float16"], device) is None)
    others = left_out - {"packed", "mma", "wgmma", "sub_group_mma"}
    assert others <= (set() if device.platform in ("nvidia", "intel") else {"shuffle"})
    for kernel in left_out:
        with pytest.raises(gp.UnsupportedError, match=MAY_BE_UNSUPPORTED[kernel]):
            gp.plan(problems[kernel], device, kernel=kernel)


@pytest.mark.every_runtime
@pytest.mark.every_pair("kernel", VARIANTS)
def test_the_parameters_of_the_configuration_are_exact(backend: gp.Backend, kernel: str) -> None:
    for sizes in (Sizes(65, 129, 33), Sizes(1, 200, 7)):
        check(backend, problem_of(sizes, "NN", typed(kernel, "float32"), beta=1.0), kernel)


@pytest.mark.every_value("kernel", VARIANTS)
def test_long_sums_have_all_their_terms_or_are_refused(backend: gp.Backend, kernel: str) -> None:
    most = backend.device.max_terms
    dtype = typed(kernel, "float32")
    check(backend, problem_of(Sizes(3, 2, most or 600_001), "NN", dtype), kernel, parameters(kernel))
    if most:
        with pytest.raises(gp.UnsupportedError, match=f"known to add up wrongly beyond {most:,} terms"):
            check(backend, problem_of(Sizes(3, 2, most + 1), "NN", dtype), kernel, parameters(kernel))


@pytest.mark.large
@pytest.mark.sample(kernel=["tiled"])
@pytest.mark.every_value("kernel", VARIANTS)
def test_many_large_groups_wait_for_all_of_their_items(backend: gp.Backend, kernel: str) -> None:
    check_many_groups(backend, kernel)


def check_many_groups(backend: gp.Backend, kernel: str) -> None:
    """Many steps along k, in groups of many warps, more than run at once; where it is not sure that a device runs them, in
    those of the configuration.
    """
    most: dict[str, Parameters] = {
        "tiled": {"TS": 32},
        "wpt": {"TS": 64, "WPT": 4},
        "vectorized": {"TS": 64, "WIDTH": 4},
        "transposed_b": {"TS": 32, "WPT": 1},
        "register_tiled": {"TSM": 128, "TSN": 128, "TSK": 16, "WPTM": 4, "WPTN": 4},
        "register_tiled_vectorized": {"TSM": 128, "TSN": 128, "TSK": 16, "WPTM": 4, "WPTN": 4, "WIDTH": 4},
        "shuffle": {"TSM": 128, "TSN": 64, "TSK": 16, "WPTM": 2, "WPTN": 4},
        "prefetch": {"TSM": 128, "TSN": 128, "TSK": 8, "WPTM": 4, "WPTN": 4, "WIDTH": 4},
        "padded": {"TSM": 128, "TSN": 128, "TSK": 16, "WPTM": 4, "WPTN": 4},
    }
    large = backend.name == "cuda"
    problem = problem_of(Sizes(517, 523, 509), "NN", typed(kernel, "float32"))
    check(backend, problem, kernel, most.get(kernel) if large else None)


@pytest.mark.large
@pytest.mark.every_value("kernel", VARIANTS)
def test_elements_beyond_32_bits_are_reached(fresh_backend: gp.Backend, kernel: str) -> None:
    device, needed = fresh_backend.device, SPAN * narrowest(kernel).itemsize
    if device.max_allocation < needed or device.memory < needed:
        pytest.skip(beyond(device, f"{needed:,} bytes in one allocation; it allows {device.max_allocation:,}"))
    check_spans(fresh_backend, kernel)


def narrowest(kernel: str) -> np.dtype[Any]:
    """The type of which most elements fit the memory, of those that a kernel computes exactly."""
    return np.dtype(np.int8 if "int8" in kernels.variant(kernel).dtypes else np.float32)


SPAN = 2**32 + 2**12
"""Elements of the memory that `check_spans` uses little of."""


def check_spans(backend: gp.Backend, kernel: str) -> None:
    """Rows, and matrices of the batch, that begin at 2³¹, 3 · 2³⁰ and 2³² elements: all operands in one memory, far apart.

    An index that wrapped around would be in this memory too, at another element.
    """
    dtype = narrowest(kernel)
    memory = backend.allocate(SPAN * dtype.itemsize)
    rng = np.random.default_rng(2)
    for m, batch in ((3, 1), (1, 3)):
        lies = {
            operand: gp.Layout(2**30, 0 if operand == "b" else 2**30 * m, 2**31 + 2**10 * number)
            for number, operand in enumerate(OPERANDS)
        }
        problem = gp.GemmProblem.create(m, 3, 3, batch=batch, dtype=dtype, beta=1, **lies)
        values: dict[Operand, Any] = {}
        for operand in OPERANDS:
            own = 1 if operand == "b" else batch
            values[operand] = rng.integers(-9, 10, (own, *problem.stored_shape(operand))).astype(dtype)
        starts = {
            (operand, matrix, row): lies[operand].offset + matrix * lies[operand].batch_stride + row * lies[operand].ld
            for operand in OPERANDS
            for matrix, row in np.ndindex(*values[operand].shape[:2])
        }
        for start in starts.values():  # where wrapped indices would point, is something else
            for wrapped in (start % 2**31, start % 2**32):
                backend.upload(memory, rng.integers(-9, 10, 3).astype(dtype), offset=wrapped * dtype.itemsize)
        for (operand, matrix, row), start in starts.items():
            backend.upload(memory, values[operand][matrix, row], offset=start * dtype.itemsize)
        bind(gp.plan(problem, backend.device, kernel=kernel), backend, dict.fromkeys(OPERANDS, memory)).enqueue()
        wanted = reference(problem, values)
        for matrix, row in np.ndindex(batch, m):
            got = np.empty(3, dtype)
            backend.download(memory, got, offset=starts["d", matrix, row] * dtype.itemsize)
            assert got.tolist() == wanted[matrix, row].tolist(), f"{kernel}: row {row} of matrix {matrix} is wrong"


@pytest.mark.sample(kernel=["tiled"])
@pytest.mark.every_value("kernel", VARIANTS)
@settings(
    max_examples=20,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_random_problems_are_exact(backend: gp.Backend, kernel: str, data: st.DataObject) -> None:
    """Any sizes, ops, scalars and layouts at once. Operands of the batch may lie anywhere, but for D's, which may not meet."""
    draw = data.draw
    m, n, k = (draw(st.integers(0, 70), label=name) for name in "mnk")
    ops = draw(st.sampled_from(OPS), label="ops")
    batch = draw(st.integers(0, 4), label="batch")
    alpha, beta = draw(st.sampled_from(SCALARS), label="alpha and beta")
    in_place = draw(st.booleans(), label="in place")

    def lies(name: str, rows: int, columns: int) -> gp.Layout:
        multiple = draw(st.sampled_from((1, WIDEST_RUN)), label=f"rows of {name} begin at multiples of")

        def up(elements: int) -> int:
            return -(-elements // multiple) * multiple

        ld = up(max(columns, 1) + draw(st.integers(0, 9), label=f"gap of {name}"))
        least = rows * ld if name in ("c", "d") else 0
        apart = draw(st.one_of(st.just(least), st.integers(rows * ld, rows * ld + 9)), label=f"batch stride of {name}")
        return gp.Layout(ld, up(apart), up(draw(st.integers(0, 9), label=f"offset of {name}")))

    layouts = {
        "a": lies("a", *((m, k) if ops[0] == "N" else (k, m))),
        "b": lies("b", *((k, n) if ops[1] == "N" else (n, k))),
        "d": lies("d", m, n),
    }
    layouts["c"] = layouts["d"] if in_place else lies("c", m, n)
    problem = gp.GemmProblem.create(
        m,
        n,
        k,
        batch=batch,
        dtype=typed(kernel, "float32"),
        trans_a=ops[0],
        trans_b=ops[1],
        alpha=alpha,
        beta=beta,
        **layouts,
    )
    check(backend, problem, kernel, parameters(kernel), in_place=in_place, seed=m * 5041 + n * 71 + k)


@pytest.mark.every_value("kernel", VARIANTS)
def test_equal_inputs_give_equal_bits(backend: gp.Backend, dtype: str, kernel: str) -> None:
    """Random reals, whose sums are rounded: always in the same order."""
    rng = np.random.default_rng(1)
    own = as_dtype(typed(kernel, dtype)).numpy
    a, b = (backend.asarray(rng.standard_normal((67, 67)).astype(own)) for _ in range(2))
    results = [gp.gemm(a, b, kernel=kernel, params=parameters(kernel)).get() for _ in range(3)]
    assert all(np.array_equal(result, results[0]) for result in results)
