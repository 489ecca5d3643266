"""Schedules of products that pass through a device: their traffic, and what they take of the device."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

import gemmport as gp
from gemmport.contracts.device_model import derived
from gemmport.planning.schedule import BOUND, Residency, Schedule, Traffic, fits, schedule
from made_up_devices import DEVICES

GPU = DEVICES["NVIDIA sm_90 under CUDA"]
MODEL = derived(GPU)


def made(problem: gp.GemmProblem, memory: int, device: gp.DeviceInfo = GPU) -> Schedule:
    return schedule(problem, device, MODEL, memory=memory)


def counted(found: Schedule) -> Traffic:
    """The traffic, counted step by step."""
    counts, step, batch = {"a": 0, "b": 0, "d": 0}, 0, 0
    held = {operand: Residency(found.capacity(operand)) for operand in ("a", "b")}
    for tile in found.tiles():
        for operand, residency in held.items():
            if tile.batch != batch and not (found.is_shared(operand) and found.keeps_all(operand)):
                residency.clear()
        batch = tile.batch
        height, width = tile.rows[1] - tile.rows[0], tile.columns[1] - tile.columns[0]
        for panel in found.order(tile):
            first, last = found.panel(panel)
            for operand, extent in (("a", height), ("b", width)):
                _, brought = held[operand].use(found.key(operand, tile, panel), step)
                counts[operand] += 0 if brought is None else (last - first) * extent
            step += 1
        counts["d"] += height * width
    return Traffic(counts["a"], counts["b"], counts["d"] if found.problem.beta != 0 else 0, counts["d"])


ROOTS, TIMES = (256, 1024), (0.1, 0.7, 1.3, 2, 3)


@pytest.mark.parametrize("root", ROOTS)
def test_the_traffic_is_near_the_least_and_the_device_has_room_whatever_the_shape(root: int) -> None:
    """Of sizes from a tenth to three times the root of what the device holds, and of sums that are longer."""
    memory = 4 * root * root
    for m, n, k in itertools.product(TIMES, TIMES, (0.1, 1, 4)):
        problem = gp.GemmProblem.create(int(m * root) + 1, int(n * root), int(k * root) + 3, beta=int(m > 1))
        found = made(problem, memory)
        assert found.device_bytes <= memory
        assert found.traffic == counted(found), found
        assert found.ratio <= 1.32, found


def test_panels_take_longer_where_the_device_s_model_has_them_begin_slowly() -> None:
    problem = gp.GemmProblem.create(4096, 4096, 4096)
    slow = MODEL.over({"half_length": 10_000.0, "link_bandwidth": 1e15}, "")
    quick = MODEL.over({"link_bandwidth": 1e15}, "")
    seconds = [schedule(problem, GPU, model, memory=2**25).seconds for model in (quick, slow)]
    assert seconds[1] > 2 * seconds[0]


@pytest.mark.parametrize(("memory", "size"), [(2**20, 4608), (2**22, 10007), (2**26, 40000), (2**33, 600_000)])
def test_large_products_move_no_more_than_the_bound_allows(memory: int, size: int) -> None:
    """Of nine times the root of M and more: all traffic within 1.3 of 2mnk/√M."""
    for m, n, k in ((size, size, size), (size, 2 * size, size), (size, size, 3 * size)):
        found = made(gp.GemmProblem.create(m, n, k), memory)
        assert found.traffic.elements <= BOUND * 2 * m * n * k / (memory / 4) ** 0.5
        assert found.device_bytes <= memory


def test_what_d_fills_alone_is_read_half_as_often_again_at_most() -> None:
    """The worst shape: D is just as large as the device's memory, and sums are long."""
    assert made(gp.GemmProblem.create(1024, 1024, 9000), 4 * 1024**2).ratio <= 1.5


def test_a_matrix_that_fits_is_brought_once() -> None:
    found = made(gp.GemmProblem.create(100_000, 64, 64), 2**20)
    assert found.traffic == Traffic(100_000 * 64, 64 * 64, 0, 100_000 * 64)
    shared = gp.GemmProblem.create(512, 64, 64, batch=200, b=gp.Layout(64, 0))
    assert made(shared, 2**18).traffic.b == 64 * 64


def test_sums_are_not_rounded_to_halves_between_panels() -> None:
    assert made(gp.GemmProblem.create(999, 999, 999, dtype="float16"), 2**19).resident.name == "float32"
    assert made(gp.GemmProblem.create(999, 999, 999, dtype="int8"), 2**19).resident.name == "int8"
    wide = gp.GemmProblem.create(999, 999, 999, accumulator="float64")
    assert made(wide, 2**19).resident.name == "float64"


def test_no_allocation_is_larger_than_the_device_allows() -> None:
    device = replace(GPU, max_allocation=2**20)
    found = made(gp.GemmProblem.create(5000, 5000, 5000), 2**24, device)
    assert found.part_rows * found.columns * 4 <= 2**20
    assert max(found.panel_bytes("a"), found.panel_bytes("b")) <= 2**20
    assert found.ratio <= BOUND


def test_tiles_are_made_of_whole_chunks() -> None:
    found = schedule(gp.GemmProblem.create(1000, 1000, 1000), GPU, MODEL, memory=2**19, multiples=(30, 70))
    assert found.rows % 30 == 0 or found.rows == 1000
    assert found.columns % 70 == 0 or found.columns == 1000


def test_scratch_memory_of_the_kernel_has_room() -> None:
    found = schedule(gp.GemmProblem.create(2000, 2000, 2000), GPU, MODEL, memory=2**22, cost=lambda _: (1e-3, 2**20))
    assert found.scratch == 2**20
    assert found.device_bytes <= 2**22


@pytest.mark.parametrize("times", [1, 4, 32])
@pytest.mark.parametrize("share", [0.02, 0.1, 0.5, 0.9])
def test_scratch_memory_that_grows_with_the_tile_has_room(share: float, times: int) -> None:
    """As that of kernels that pack bytes as wider numbers."""
    problem = gp.GemmProblem.create(2000, 2000, 2000, dtype="int8", output="int32")

    def needed(panel: gp.GemmProblem) -> int:
        return times * (panel.m + panel.n) * panel.k

    memory = int(share * (4 + 1 + 1) * 2000**2)
    found = schedule(problem, GPU, MODEL, memory=memory, cost=lambda panel: (1e-3, needed(panel)))
    assert found.scratch >= needed(found.panel_product)
    assert found.device_bytes <= memory


def test_scratch_memory_without_room_is_told() -> None:
    problem = gp.GemmProblem.create(100, 100, 100)
    with pytest.raises(gp.DeviceMemoryError, match="beside 5,000 of scratch memory") as refused:
        schedule(problem, GPU, MODEL, memory=4000, cost=lambda _: (1e-3, 5000))
    allowed = int(str(refused.value).split()[-3].replace(",", ""))
    assert schedule(problem, GPU, MODEL, memory=allowed, cost=lambda _: (1e-3, 5000)).device_bytes <= allowed


def test_a_product_that_has_no_tile_is_refused_by_name() -> None:
    with pytest.raises(gp.DeviceMemoryError, match="has no tile that fits into 8 bytes"):
        made(gp.GemmProblem.create(100, 100, 100), 8)


def test_what_fits_is_known() -> None:
    problem = gp.GemmProblem.create(10, 20, 30)
    whole = 4 * (10 * 30 + 30 * 20 + 10 * 20)
    assert fits(problem, whole, 4 * 600)
    assert not fits(problem, whole - 1, 4 * 600)
    assert not fits(problem, whole, 4 * 600 - 1)


@pytest.mark.parametrize("shape", [(64, 64, 64), (1, 1, 5), (300, 7, 9)])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_who_has_no_room_is_told_how_much_there_must_be(shape: tuple[int, int, int], dtype: str) -> None:
    problem = gp.GemmProblem.create(*shape, dtype=dtype)
    with pytest.raises(gp.DeviceMemoryError, match=r"allow [0-9,]+ or more$") as refused:
        made(problem, 12)
    least = int(str(refused.value).split()[-3].replace(",", ""))
    assert made(problem, least).device_bytes <= least
