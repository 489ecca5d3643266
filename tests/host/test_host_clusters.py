"""`wgmma` in clusters of two groups on the CPU: exact in every order of turns; faults show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

import gemmport as gp
from absences import CXX, needs
from exact import Sizes, check, problem_of
from gemmport.contracts.kernel import Parameters
from host import Host
from mutations import HASTY, Edit, Mutation, planted
from on_host import in_every_order, opened
from test_host_wgmma import ALONE, ALONG_K, addressable

pytestmark = needs(CXX)

CLUSTERS: Mapping[str, Parameters] = {
    "a": {**ALONE, "TSM": 128, "CLUSTER": "a"},
    "b": {**ALONE, "TSN": 128, "CLUSTER": "b"},
    "d": {**ALONE, "CLUSTER": "d"},
}
"""By what two groups share."""


@pytest.fixture(scope="module")
def cpu() -> Host:
    return opened()


@pytest.mark.sample(shared=["b"], ops=["NN"])
@pytest.mark.parametrize("shared", CLUSTERS)
@pytest.mark.parametrize("ops", ["NN", "NT", "TN", "TT"])
def test_products_in_clusters_are_exact_in_every_order(cpu: Host, shared: str, ops: str) -> None:
    """With edges, scaled, of a batch; an odd number of tiles: one group of a cluster has none of its own."""
    problem = addressable(Sizes(67, 131, 201), ops, "float16", batch=2, alpha=2.0, beta=-1.0)
    in_every_order(cpu, lambda: check(cpu, problem, "wgmma", CLUSTERS[shared]))


@pytest.mark.parametrize("shared", CLUSTERS)
@pytest.mark.parametrize(
    "sizes", [Sizes(1, 1, 1), Sizes(300, 390, 128), Sizes(70, 70, 0), Sizes(130, 131, 64)], ids=str
)
def test_clusters_compute_products_of_any_size(cpu: Host, shared: str, sizes: Sizes) -> None:
    """Of one step, of two, and of none: where the terms are shared, a group may have no step."""
    for beta in (0.0, 2.0):
        check(cpu, addressable(sizes, "NN", "float16", batch=2, beta=beta), "wgmma", CLUSTERS[shared])


@pytest.mark.sample(shared=["a"])
@pytest.mark.parametrize("shared", ["a", "b"])
def test_a_tile_that_is_not_there_is_not_stored(cpu: Host, shared: str) -> None:
    """Of whole tiles, where their number is odd: a group of the last cluster has none."""
    check(
        cpu,
        addressable(Sizes(128, 192, 64) if shared == "a" else Sizes(192, 128, 64), "NT", "float16"),
        "wgmma",
        CLUSTERS[shared],
    )


@pytest.mark.parametrize("dtype", ALONG_K)
@pytest.mark.parametrize("shared", CLUSTERS)
def test_clusters_multiply_bytes(cpu: Host, shared: str, dtype: str) -> None:
    problem = addressable(Sizes(130, 150, 500), "NT", dtype, multiple=16, alpha=2.0, beta=-1.0, **ALONG_K[dtype])
    in_every_order(cpu, lambda: check(cpu, problem, "wgmma", CLUSTERS[shared]))


@pytest.mark.parametrize(
    ("shared", "tile"),
    [
        ("a", {"TSM": 128, "TSN": 256}),
        ("b", {"TSM": 128, "TSN": 256, "STAGES": 3}),
        ("a", {"TSM": 256, "TSN": 128, "WM": 128}),
        ("b", {"TSM": 192, "TSN": 128, "RASTER": 1}),
        ("d", {"TSM": 128, "TSN": 128, "WM": 64}),
        ("d", {"TSM": 64, "TSN": 64, "GROUPS": 2, "STAGES": 5}),
    ],
    ids=str,
)
def test_tiles_of_clusters_of_any_shape_are_exact(cpu: Host, shared: str, tile: Parameters) -> None:
    params = {**ALONE, **tile, "CLUSTER": shared}
    for ops, sizes in (("TN", Sizes(300, 280, 129)), ("NT", Sizes(511, 256, 200))):
        check(cpu, addressable(sizes, ops, "bfloat16", beta=1.0, output="float32"), "wgmma", params)


def in_kernel(pattern: str, replacement: str, times: int = 1) -> Mutation:
    return Mutation(pattern, (Edit(pattern, replacement, times),), ("wgmma",))


def in_part(pattern: str, replacement: str) -> Mutation:
    """Likewise, in the part `clusters` of the prelude."""
    return Mutation(pattern, (Edit(pattern, replacement),), ("wgmma",), prelude=True)


FAULTS: Mapping[str, tuple[str, Mutation]] = {
    "no meeting before the first copy": ("b", in_kernel(r"ALL_MEET\(\);", "__syncthreads();")),
    "a group leaves before the other": ("b", in_kernel(r"LEAVE_TOGETHER\(\)", "")),
    "a group arrives where the other has left": (
        "d",
        Mutation(
            "last",
            (Edit(r"LEAVE_TOGETHER\(\)", ""), Edit(r"lane == 0 && next_part\(part, steps\)\.left > 0", "lane == 0")),
            ("wgmma",),
        ),
    ),
    "a stage is freed in the own group alone": ("b", in_part(r"CLUSTER_ARRIVE\(bar, lane\)", "BARRIER_ARRIVE(bar)")),
    "a stage is free once one group is done": ("a", in_part(r"FREEING \(2 \* MULTIPLIERS", "FREEING (MULTIPLIERS")),
    "both bring the same half": ("b", in_kernel(r"first = OWN_RANK \* half", "first = 0")),
    "both halves go to one place": ("b", in_kernel(r"to \+= first \* ROW_BYTES;", "")),
    "a half goes to the own group alone": ("a", in_kernel(r"COPY_TILE_TO\(3,", "COPY_TILE_TO(1 << OWN_RANK,", times=2)),
    "the bytes of the own half are awaited": (
        "b",
        in_kernel(r"(EXPECT\(bar, STAGE_BYTES)\)", r"\1 - TSN * ROW_BYTES / 2)"),
    ),
    "both compute one tile": ("b", in_part(r"2 \* tile\.row \+ rank \* TSM", "2 * tile.row")),
    "tiles stand apart": ("a", in_part(r"2 \* tile\.column", "tile.column")),
    "the next tile is that of groups": ("b", in_part(r"NUMBERS \(\(int\)gridDim\.x / 2\)", "NUMBERS (int)gridDim.x")),
    "one has all steps": ("d", in_part(r"OWN_RANK \? steps : half", "steps")),
    "sums are taken before they are there": ("d", in_kernel(r"BARRIER_WAIT\(left, turn\);", "")),
    "sums are left where others are": ("d", in_kernel(r"BARRIER_WAIT\(taken, turn \^ 1\);", "")),
    "sums are left in the own group": (
        "d",
        Mutation(
            "own",
            (
                Edit(r"\(there, place, other\)", "(there, place, !other)"),
                Edit(r"\(told, left, other\)", "(told, left, !other)"),
            ),
            ("wgmma",),
        ),
    ),
    "a barrier of the own group is told": ("d", in_kernel(r"\(told, left, other\)", "(told, left, !other)")),
    "half of the sums is awaited": ("d", in_kernel(r"TSM \* TSN / 2 \* 4\)", "TSM * TSN / 4 * 4)")),
    "sums are those of the first turn": ("d", in_kernel(r"BARRIER_WAIT\(left, turn\)", "BARRIER_WAIT(left, 0)")),
}
"""Of clusters, by what is shared."""


@pytest.mark.planted_fault
@pytest.mark.sample(name=["a group leaves before the other"])
@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_of_clusters_shows(cpu: Host, name: str) -> None:
    """In some order of turns."""
    shared, mutation = FAULTS[name]
    # So few steps that groups may be several tiles apart.
    problem = addressable(Sizes(300, 390, 128), "NN", "float16", batch=2, beta=-1.0)
    told = r"wrong|waits in line|arrive|product|copy|barrier|has ended"
    with planted(mutation, "wgmma"), pytest.raises((AssertionError, gp.LaunchError), match=told):
        in_every_order(cpu, lambda: check(cpu, problem, "wgmma", {**CLUSTERS[shared], "STAGES": 4}))


# Launches that begin early


def check_early(cpu: Host, ops: str, params: Parameters) -> None:
    """Products whose operands lie as they are read, of no terms, and with passes before."""
    alone = addressable(Sizes(67, 131, 201), ops, "float16", beta=-1.0)
    for problem in (alone, replace(alone, k=0), problem_of(Sizes(67, 131, 201), ops, "float16", beta=-1.0)):
        check(cpu, problem, "wgmma", {**params, "EARLY": 1})


@pytest.mark.parametrize("params", [ALONE, CLUSTERS["d"]], ids=["alone", "in clusters"])
def test_launches_that_begin_early_wait_before_they_read_and_write(cpu: Host, params: Parameters) -> None:
    in_every_order(cpu, lambda: check_early(cpu, "NN", params))


@pytest.mark.planted_fault
@pytest.mark.parametrize("name", HASTY)
def test_a_launch_that_does_not_wait_shows_here(cpu: Host, name: str) -> None:
    told = r"lacks AWAIT_LAUNCHES\(\) before it|elements are wrong"
    with planted(HASTY[name], HASTY[name].kernels[0]), pytest.raises((AssertionError, gp.LaunchError), match=told):
        in_every_order(cpu, lambda: check_early(cpu, "NN", ALONE))
