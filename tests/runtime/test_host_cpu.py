"""The caches of the processor and a container's share of it, read from files such as Linux shows."""

from __future__ import annotations

import math
import os
from dataclasses import replace
from pathlib import Path

import pytest

from gemmport import kernels
from gemmport.core.device import DeviceInfo
from gemmport.core.problem import GemmProblem, Layout
from gemmport.runtime import copying, host_cpu
from gemmport.runtime.host_cpu import cpu_quota, data_caches, usable_cores

ZEN_4 = (
    ("1", "Data", "32K", "0"),
    ("1", "Instruction", "64K", "0"),
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
    itemsize, rows = problem.accumulator.itemsize, 7 if dtype == "complex64" else 14
    assert second * 0.49 < tile.depth * (rows + 2 * 64 // itemsize) * itemsize <= second * 0.5
    smallest = (tile.rows, tile.columns) == (14, 32)
    assert (tile.rows + tile.columns) * tile.depth * itemsize <= third * 0.2 or smallest
    assert -(-4096 // tile.rows) * -(-4096 // tile.columns) >= 4 * 64


@pytest.mark.parametrize("caches", [(2**15, 2**20, 2**28)], ids=str)
@pytest.mark.parametrize("size", [512, 1024, 2048])
def test_no_core_waits_long_for_others_where_caches_are_large(caches: tuple[int, ...], size: int) -> None:
    variant = kernels.variant("packed")
    tile = variant.tile(variant.fitted(variant.complete({}), GemmProblem.create(size, size, size), cpu(caches=caches)))
    assert -(-size // tile.rows) * -(-size // tile.columns) >= 2 * 64


def cpu(*, local_memory: int = 2**18, caches: tuple[int, ...] = (2**15, 2**20, 2**24)) -> DeviceInfo:
    return DeviceInfo(
        "opencl",
        "a CPU",
        "pocl",
        type="cpu",
        vector_width=16,
        compute_units=2,
        local_memory=local_memory,
        caches=caches,
    )


@pytest.mark.parametrize("dtype", ["int8", "float16", "float32", "float64", "complex128"])
@pytest.mark.parametrize("local_memory", [2**15, 3 * 2**14, 2**18, 2**20])
@pytest.mark.parametrize(("m", "n", "own"), [(64, 4096, "b"), (4096, 64, "a")])
def test_the_long_operand_of_a_thin_product_is_laid_out_by_its_macro_tiles(
    m: int, n: int, own: str, local_memory: int, dtype: str
) -> None:
    """They span the short side, are enough for all cores, and what they lay out fits local memory and the second level."""
    variant, problem = kernels.variant("packed"), GemmProblem.create(m, n, 4096, dtype=dtype)
    device = cpu(local_memory=local_memory)
    values = variant.fitted(variant.complete({}), problem, device)
    tile, itemsize = variant.tile(values), problem.accumulator.sum_bytes
    assert values["OWN"] == own
    assert (tile.columns >= n) if own == "a" else (tile.rows >= m)
    assert max(-(-m // tile.rows), -(-n // tile.columns)) >= 2 * 32
    assert tile.depth & (tile.depth - 1) == 0
    assert 2 * variant.local_bytes(values, problem) > local_memory or tile.depth * (64 + 64) * itemsize > 2**18
    assert variant.local_bytes(values, problem) <= local_memory
    assert variant.local_bytes(values, problem) + 64 * tile.depth * itemsize <= 2**19
    launch = variant.steps(problem, device, variant.complete({})).launches[-1]
    assert launch.local_bytes == variant.local_bytes(values, problem)


@pytest.mark.parametrize(
    "problem",
    [
        GemmProblem.create(4096, 4096, 64),
        GemmProblem.create(4096, 64, 0),
        GemmProblem.create(4096, 64, 64, batch=2, a=Layout(64)),  # a matrix that the batch shares
    ],
    ids=str,
)
def test_what_several_macro_tiles_read_they_do_not_lay_out_themselves(problem: GemmProblem) -> None:
    variant = kernels.variant("packed")
    values = variant.fitted(variant.complete({}), problem, cpu())
    assert "OWN" not in values
    assert variant.local_bytes(values, problem) == 0


@pytest.mark.parametrize(
    ("m", "dtype", "lines"), [(4096, "float32", 14), (64, "float32", 8), (1, "float64", 2), (5, "complex64", 10)]
)
def test_micro_tiles_are_as_high_as_leaves_little_of_the_last_one_empty(m: int, dtype: str, lines: int) -> None:
    variant = kernels.variant("packed")
    values = variant.fitted(variant.complete({}), GemmProblem.create(m, 4096, 64, dtype=dtype), cpu())
    assert values["MR"] == lines
    assert int(values["MC"]) % lines == 0


@pytest.mark.parametrize(
    ("platform", "target", "lanes", "architecture"),
    [
        ("intel", "core-avx2", 8, "core-avx2"),
        ("intel", "corei7", 4, "corei7"),
        ("intel", "skx", 16, ""),
        ("intel", "", 16, ""),
        ("pocl", "core-avx2", 16, ""),
    ],
)
def test_a_lowered_instruction_set_has_shorter_vectors_and_programs_of_its_own(
    monkeypatch: pytest.MonkeyPatch, platform: str, target: str, lanes: int, architecture: str
) -> None:
    discovery = pytest.importorskip(
        "gemmport.backends._opencldiscovery", reason="PyOpenCL is not installed", exc_type=ImportError
    )
    monkeypatch.setenv("CL_CONFIG_CPU_TARGET_ARCH", target)
    told = discovery.lowered(replace(cpu(), platform=platform))
    assert (told.vector_width, told.architecture) == (lanes, architecture)


# A container's share of the processors


def grouped(folder: Path, told: str, files: dict[str, str]) -> tuple[Path, Path]:
    """The groups of a process, and where they are."""
    (folder / "told").write_text(told)
    for name, text in files.items():
        path = folder / "mounted" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return folder / "told", folder / "mounted"


@pytest.mark.parametrize(
    ("told", "files", "quota"),
    [
        ("0::/\n", {"cpu.max": "150000 100000"}, 1.5),
        ("0::/\n", {"cpu.max": "max 100000"}, math.inf),
        ("0::/\n", {}, math.inf),  # the root of a host has no such file
        ("0::/a/b\n", {"a/b/cpu.max": "max 100000", "a/cpu.max": "200000 100000"}, 2.0),
        ("0::/a/b\n", {"a/b/cpu.max": "50000 100000", "a/cpu.max": "200000 100000"}, 0.5),
        ("0::/of/the/host\n", {"cpu.max": "300000 100000"}, 3.0),
        ("0::/../x\n", {"cpu.max": "300000 100000"}, 3.0),
        (
            "4:memory:/m\n3:cpu,cpuacct:/d\n",
            {"cpu,cpuacct/d/cpu.cfs_quota_us": "400000", "cpu,cpuacct/d/cpu.cfs_period_us": "100000"}, 4.0,
        ),
        ("1:cpu:/of/the/host\n0::/\n", {"cpu/cpu.cfs_quota_us": "25000", "cpu/cpu.cfs_period_us": "50000"}, 0.5),
        ("1:cpu:/\n", {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, math.inf),
        ("2:cpuset:/s\n", {"cpuset/s/cpu.max": "100000 100000"}, math.inf),  # of another controller
        ("0::/\n", {"cpu.max": "100000 0"}, math.inf),
        ("0::/\n", {"cpu.max": "many"}, math.inf),
        ("nonsense\n0::/a:b\n", {"a:b/cpu.max": "100000 100000"}, 1.0),
    ],
)  # fmt: skip
def test_the_time_that_groups_may_take_is_read_from_each_around(
    tmp_path: Path, told: str, files: dict[str, str], quota: float
) -> None:
    assert cpu_quota(*grouped(tmp_path, told, files)) == quota


def test_where_there_are_no_groups_nothing_bounds_it(tmp_path: Path) -> None:
    assert cpu_quota(tmp_path / "none", tmp_path) == math.inf


@pytest.mark.parametrize(
    ("quota", "cores", "threads"), [(math.inf, 12, 6), (4.5, 5, 2), (4.0, 4, 2), (0.5, 1, 1), (64.0, 12, 6)]
)
def test_cores_beyond_a_containers_share_have_no_threads(
    monkeypatch: pytest.MonkeyPatch, quota: float, cores: int, threads: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(12)), raising=False)
    monkeypatch.setattr(os, "process_cpu_count", lambda: 12, raising=False)
    monkeypatch.setattr(host_cpu, "_own_quota", lambda: quota)
    assert usable_cores() == cores
    assert copying.threads() == (1 if copying.in_c is None else threads)


def test_the_affinity_counts_where_python_does_not_tell_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_cpu, "_own_quota", lambda: math.inf)
    monkeypatch.delattr(os, "process_cpu_count", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3, 5}, raising=False)
    assert usable_cores() == 2
    monkeypatch.delattr(os, "sched_getaffinity")
    assert usable_cores() == 64
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert usable_cores() == 1
