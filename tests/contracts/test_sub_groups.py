"""Lanes of a sub-group exchange numbers of every type of sums; a device whose lanes cannot says why."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import gemmport as gp
from absences import beyond
from gemmport.contracts import sub_groups
from gemmport.contracts.kernel import type_defines
from gemmport.core.dtypes import ACCUMULATORS, DTYPES
from gemmport.core.plan import Buffer, KernelSource, Launch
from gemmport.execution.executor import prepare_launch
from made_up_devices import DEVICES

ITEMS = 128

# Each item tells what it reads of the lanes in reverse, of the lane four further on, and, in local memory, of its neighbour.
KERNEL = """#include "sub_groups.{suffix}"
{kernel}({memory} const acc_t *source, {memory} acc_t *reversed, {memory} acc_t *further, {memory} acc_t *neighbour,
         {memory} int *lanes)
{{
    {local} acc_t left[ITEMS];
    const int item = this_item();
    reversed[item] = shuffled(source[item], SUB_GROUP - 1 - this_lane());
    further[item] = shuffled_down(source[item], 4);
    left[item] = source[item];
    SYNC_SUB_GROUP();
    neighbour[item] = left[item ^ 1];
    lanes[item] = this_sub_group() * SUB_GROUP + this_lane();
}}
"""
LANGUAGES = {
    "opencl": {
        "suffix": "cl",
        "kernel": "__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) SUB_GROUP_KERNEL void exchange",
        "memory": "__global",
        "local": "__local",
    },
    "cuda": {
        "suffix": "cu",
        "kernel": 'extern "C" __global__ __launch_bounds__(ITEMS) SUB_GROUP_KERNEL void exchange',
        "memory": "",
        "local": "__shared__",
    },
}


@pytest.mark.parametrize("name", ACCUMULATORS)
def test_lanes_read_each_other_s_numbers(backend: gp.Backend, name: str, tmp_path: Path) -> None:
    device, sums = backend.device, DTYPES[name]
    if reason := sub_groups.unsupported(device):
        pytest.skip(beyond(device, reason))
    if sums.arithmetic and sums.arithmetic not in device.computes:
        pytest.skip(beyond(device, f"it does not compute in {sums.arithmetic}"))
    folder = tmp_path / backend.name
    folder.mkdir()
    (folder / "exchange.txt").write_text(KERNEL.format(**LANGUAGES[backend.name]))
    defines = {**type_defines(sums, sums, sums), **sub_groups.shuffle_defines(device), "ITEMS": ITEMS}
    width = int(defines["SUB_GROUP"])
    kernel = KernelSource("exchange", "exchange", tuple(sorted(defines.items())), str(tmp_path))

    stored = np.dtype(np.uint32) if name == "bool" else sums.numpy
    numbers = np.random.default_rng(3).integers(0, 256, ITEMS * stored.itemsize, np.uint8).view(stored)
    memory = {"source": backend.allocate(numbers.nbytes)}
    backend.upload(memory["source"], numbers)
    results = {buffer: np.zeros_like(numbers) for buffer in ("reversed", "further", "neighbour")}
    results["lanes"] = np.zeros(ITEMS, np.int32)
    for buffer, empty in results.items():
        memory[buffer] = backend.allocate(empty.nbytes)
        backend.upload(memory[buffer], empty)
    arguments = tuple(Buffer(buffer) for buffer in ("source", *results))
    backend.launch(prepare_launch(Launch(kernel, (1, 1, 1), (ITEMS, 1, 1), arguments), backend, memory))
    for buffer, got in results.items():
        backend.download(memory[buffer], got)

    item = np.arange(ITEMS)
    lane = item % width
    assert np.array_equal(results["lanes"], item)
    wanted = {"reversed": numbers[item - lane + width - 1 - lane], "neighbour": numbers[item ^ 1]}
    for buffer, right in wanted.items():
        assert results[buffer].tobytes() == right.tobytes(), buffer
    inside = lane < width - 4
    assert results["further"][inside].tobytes() == numbers[np.flatnonzero(inside) + 4].tobytes(), "further"


INTEL = replace(
    DEVICES["Intel GPU"], extensions=frozenset({"cl_intel_subgroups", "cl_intel_required_subgroup_size", "cl_khr_fp16"})
)


@pytest.mark.parametrize(
    ("device", "width", "way"),
    [
        (DEVICES["NVIDIA sm_90 under CUDA"], 32, "SHUFFLE_CUDA"),
        (DEVICES["NVIDIA sm_90 under OpenCL"], 32, "SHUFFLE_PTX"),
        (INTEL, 16, "SHUFFLE_INTEL"),
    ],
    ids=lambda value: value.name if isinstance(value, gp.DeviceInfo) else value,
)
def test_the_way_is_the_device_s(device: gp.DeviceInfo, width: int, way: str) -> None:
    assert sub_groups.unsupported(device) is None
    assert sub_groups.shuffle_defines(device) == {"SUB_GROUP": width, way: 1}


@pytest.mark.parametrize("missing", ["cl_intel_subgroups", "cl_intel_required_subgroup_size"])
def test_a_device_without_a_way_says_what_it_lacks(missing: str) -> None:
    device = replace(INTEL, extensions=INTEL.extensions - {missing})
    assert (sub_groups.unsupported(device) or "").endswith(f"does not announce {missing}")
    with pytest.raises(ValueError, match=missing):
        sub_groups.shuffle_defines(device)


def test_a_width_alone_is_no_way() -> None:
    for name in ("AMD gfx90a", "Arm Mali", "Apple"):
        assert sub_groups.unsupported(DEVICES[name])
