"""The caches of the processor, read from files such as Linux shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from gemmport import kernels
from gemmport.device import DeviceInfo
from gemmport.problem import GemmProblem
from gemmport.processor import data_caches

ZEN_4 = (
    ("1", "Data", "32K", "0"),
    ("1", "Instruction", "32K", "0"),
    ("2", "Unified", "1024K", "0"),
    ("3", "Unified", "32M", "0-5,12-13"),
)


def written(folder: Path, caches: tuple[tuple[str, ...], ...]) -> Path:
    for number, values in enumerate(caches):
        cache = folder / f"index{number}"
        cache.mkdir()
        for name, value in zip(("level", "type", "size", "shared_cpu_list"), values, strict=True):
            (cache / name).write_text(value + "\n")
    return folder


def test_caches_of_data_are_told_with_the_part_of_one_core(tmp_path: Path) -> None:
    assert data_caches(written(tmp_path, ZEN_4)) == (2**15, 2**20, 2**22)


@pytest.mark.parametrize("value", ["", "K", "32X", "many"])
def test_what_is_not_understood_is_not_told(tmp_path: Path, value: str) -> None:
    assert data_caches(written(tmp_path, (("1", "Data", value, "0"),))) == ()


def test_where_there_are_no_such_files_nothing_is_told(tmp_path: Path) -> None:
    assert data_caches(tmp_path) == ()


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64"])
@pytest.mark.parametrize("caches", [(), (2**15, 2**18), (2**15, 2**20, 2**22)], ids=str)
def test_tiles_of_packed_fit_the_caches_and_there_are_enough_of_them(caches: tuple[int, ...], dtype: str) -> None:
    variant, problem = kernels.variant("packed"), GemmProblem.create(4096, 4096, 4096, dtype=dtype)
    device = DeviceInfo("opencl", "a CPU", "pocl", type="cpu", vector_width=16, compute_units=4, caches=caches)
    tile = variant.tile(variant.fitted(variant.complete({}), problem, device))
    second, third = (*caches, *(2**15, 2**18, 2**20)[len(caches) :])[1:]
    itemsize = problem.accumulator.itemsize
    assert tile.depth * (14 + 2 * 64 // itemsize) * itemsize <= second
    assert (tile.rows + tile.columns) * tile.depth * itemsize <= third
    assert -(-4096 // tile.rows) * -(-4096 // tile.columns) >= 4 * 64


def test_a_thin_product_is_split_along_its_long_side() -> None:
    """The short one stays whole where that leaves enough tiles."""
    variant = kernels.variant("packed")
    device = DeviceInfo("opencl", "a CPU", "pocl", type="cpu", vector_width=16, compute_units=2)
    flat, high = (
        variant.tile(variant.fitted(variant.complete({}), GemmProblem.create(m, n, 64), device))
        for m, n in ((64, 4096), (4096, 64))
    )
    assert flat.rows >= 64 > flat.columns
    assert high.rows < 64
