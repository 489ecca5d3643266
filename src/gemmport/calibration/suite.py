"""Which micro-benchmarks a device's model takes, and in which forms each is tried."""

from __future__ import annotations

from collections.abc import Sequence

from gemmport.bench.passes import PAST_CACHES
from gemmport.calibration.benchmarks import (
    Benchmark,
    Chase,
    CopyGlobal,
    MultiplyAdds,
    MultiplyMatrices,
    PassRound,
    ReadGlobal,
    ReadLocal,
    Start,
)
from gemmport.contracts.kernel import Parameters
from gemmport.core.device import DeviceInfo
from gemmport.core.dtypes import DTYPES, DType
from gemmport.kernels.microbenchmarks import WARP, matrix_units

ARITHMETIC = ("float16", "float32", "float64", "int32")
"""Types of which a model has the rate of multiply-adds."""

OF_MATRICES = "matrix multiply-adds"

RUN_BYTES = 16
"""Of what a GPU's work-item reads at once: the most that one instruction moves."""

VECTOR_ELEMENTS = 16
"""Of OpenCL's vectors, the most."""

SHARE_BYTES = 2**18
"""Of a large memory, that a group reads: so much that its start does not count."""

TIMES_CACHES = 4
"""As large as a CPU's caches are the memories that shall not come from them, in so many times."""

SHARE_OF_MEMORY = 8
"""Each of four such memories is at most such a part of the device's."""

ROUND_STEPS = 257
"""That words go round a group: no multiple of its size, however often, after which they would be where they were."""

FEW_STEPS, MANY_STEPS = 1024, 16384
"""Multiply-adds of each sum: float16 holds no more exactly; a CPU's group of one work-item takes more to be worth its start."""


def suite(device: DeviceInfo) -> dict[str, Sequence[Benchmark]]:
    """The forms of each micro-benchmark by its name, small at first: of "multiply-adds TYPE", "matrix multiply-adds TYPE",
    "local_bandwidth", "latency", "launch" (one group), "group" (many) and "barrier"; last those that may take long,
    "read_bandwidth" and "copy_bandwidth".
    """
    units, large = max(device.compute_units, 1), large_bytes(device)
    types = [DTYPES[name] for name in ARITHMETIC if not DTYPES[name].precision or name in device.computes]
    found: dict[str, Sequence[Benchmark]] = {
        f"multiply-adds {dtype}": [
            MultiplyAdds(4 * units, _steps(device, dtype), form, dtype) for form in _of_rates(device, dtype)
        ]
        for dtype in types
    }
    for name, unit in matrix_units(device).items():
        items = _items(device, 256) // WARP * WARP
        found[f"{OF_MATRICES} {name}"] = [MultiplyMatrices(4 * units, FEW_STEPS, _form(items, 1, 4), unit=unit)]
    runs = _of_memory(device)
    found["local_bandwidth"] = [ReadLocal(4 * units, FEW_STEPS, form) for form in runs]
    item, group = _form(1, 1, 1), _form(1 if device.type == "cpu" else _items(device, 256), 1, 1)
    found["latency"] = [Chase(1, FEW_STEPS, item, memory=large)]
    found["launch"] = [Start(1, 1, group)]
    found["group"] = [Start(64 * units, 1, group)]
    found["barrier"] = [PassRound(units, ROUND_STEPS, _form(_items(device, 64 if device.type == "cpu" else 256), 1, 1))]
    found["read_bandwidth"] = [ReadGlobal(*_shares(large, form), form) for form in runs]
    found["copy_bandwidth"] = [CopyGlobal(*_shares(large, form), form) for form in runs]
    return found


def absent(device: DeviceInfo) -> dict[str, str]:
    """Why a GPU has no such micro-benchmark, by its name."""
    if device.type != "gpu":
        return {}
    found = matrix_units(device)
    return {
        f"{OF_MATRICES} {name}": f"no instruction for matrices of {name} on {device.architecture or device.name} is measured"
        for name in ("float64", "float16")
        if name not in found
    }


def large_bytes(device: DeviceInfo) -> int:
    """Of a memory that does not come from a cache, as far as the device has room for it."""
    own = max(device.caches, default=0) * max(device.compute_units, 1)
    wanted = TIMES_CACHES * own if device.type == "cpu" and own else PAST_CACHES
    room = min(device.max_allocation, device.memory // SHARE_OF_MEMORY)
    return max(min(wanted, PAST_CACHES, room) // SHARE_BYTES, 1) * SHARE_BYTES


def _form(items: int, width: int, chains: int) -> Parameters:
    return {"ITEMS": items, "WIDTH": width, "CHAINS": chains}


def _items(device: DeviceInfo, wanted: int) -> int:
    return min(wanted, device.max_work_group, device.max_work_item_sizes[0])


def _of_rates(device: DeviceInfo, dtype: DType) -> list[Parameters]:
    """A GPU's work-items compute numbers. On a CPU one computes vectors, as `packed` does, or many are what the runtime makes
    vectors of; of vectors, some CPUs compute those of half the width as fast.
    """
    if device.type != "cpu":
        return [_form(_items(device, 256), 1, 8)]
    vector = min(max(device.vector_width * 4 // dtype.itemsize, 1), VECTOR_ELEMENTS)
    widths = sorted({vector, max(vector // 2, 1)}, reverse=True)
    return [*(_form(1, width, 12) for width in widths), _form(_items(device, 64), 1, 8)]


def _of_memory(device: DeviceInfo) -> list[Parameters]:
    """Likewise, for runs of float32."""
    usual = _form(_items(device, 256), RUN_BYTES // 4, 4)
    if device.type != "cpu":
        return [usual]
    return [_form(1, min(max(device.vector_width, 1), VECTOR_ELEMENTS), 8), {**usual, "ITEMS": _items(device, 64)}]


def _steps(device: DeviceInfo, dtype: DType) -> int:
    return MANY_STEPS if device.type == "cpu" and dtype.precision != DTYPES["float16"].precision else FEW_STEPS


def _shares(large: int, form: Parameters) -> tuple[int, int]:
    """Groups and steps of a memory's shares."""
    step = int(form["ITEMS"]) * int(form["WIDTH"]) * int(form["CHAINS"]) * 4
    steps = max(SHARE_BYTES // step, 2)
    return max(large // (steps * step), 1), steps
