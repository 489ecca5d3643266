"""Which tilings `mma` chooses among for a problem on a device, and how long it expects them to take.

The numbers are published ones, and not fitted to times: no GPU has run the kernel yet.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from gemmport.contracts.device_model import DeviceModel, Prediction, clock
from gemmport.contracts.gpu_model import sharing_of
from gemmport.contracts.kernel import KernelVariant, Parameters, ceil_div
from gemmport.contracts.prediction import facts_of, joined
from gemmport.core.device import DeviceInfo
from gemmport.core.errors import ParameterError
from gemmport.core.plan import ParameterValue
from gemmport.core.problem import GemmProblem, Operand

FITTED = {
    "products": "multiply-adds of 2-byte numbers that a unit's matrix unit does per clock, by mma.sync",
    "read_bytes": "that warps of a unit read from local memory per clock",
    "copy_bytes": "that a unit copies from caches to local memory per clock",
    "step_clocks": "of a step beside its products: counting, waits, the barrier",
    "far_clocks": "a copy takes so long to arrive; the steps whose tiles are in local memory already hide it",
    "part_clocks": "of adding up one more part of a shared tile",
    "most_registers": "of a work-item",
    "addresses": "registers of a work-item beside sums and what is read ahead",
}
"""What a device's model may state for the choice, with its meaning."""

USUAL: Mapping[str, float] = {
    "products": 1024, "read_bytes": 128, "copy_bytes": 64, "step_clocks": 60, "far_clocks": 800, "part_clocks": 200,
    "most_registers": 255, "addresses": 48,
}  # fmt: skip
"""Those of an A100 (NVIDIA A100 Tensor Core GPU Architecture, whitepaper, 2020: 1024 multiply-adds of float16 and 128 bytes of
shared memory per clock of a multiprocessor); latencies by their order of magnitude.
"""

SMALLEST = {"TSM": 32, "TSN": 32, "TSK": 32, "WM": 16, "WN": 32, "STAGES": 4, "GROUPS": 4}
"""Where the device's model has no tiling that fits."""


def considered(mma: KernelVariant, problem: GemmProblem, device: DeviceInfo, model: DeviceModel) -> list[Parameters]:
    """The tilings that fit, shared or not, and with operands laid out anew where some are not aligned, the best first."""
    own = {**USUAL, **model.constants(mma.name)}
    tilings = (*model.tilings.get(mma.name, ()), SMALLEST)
    fitted = [values for tiling in tilings if (values := fit(mma, tiling, problem, device, own))]
    unaligned = problem.alignment("a") % 16 or problem.alignment("b") % 16
    choices = [
        {**values, "SHARE": share, "ANEW": anew}
        for values in fitted
        for share in (0, int(values["GROUPS"]))
        for anew in ((0, 1) if unaligned else (0,))
    ]
    return mma.ranked(choices, problem, device, model)


def fit(
    mma: KernelVariant, tiling: Parameters, problem: GemmProblem, device: DeviceInfo, own: Mapping[str, float]
) -> dict[str, ParameterValue]:
    """A tiling of 2-byte elements for those of the problem, with as many stages as the device has room for; empty where it has
    none for it.
    """
    values = {**tiling, "TSK": int(tiling["TSK"]) * 2 // problem.dtype.itemsize}
    room = device.most_local_memory if device.language == "cuda" else device.local_memory
    stages = int(values["STAGES"])
    while stages > 2 and mma.local_bytes({**values, "STAGES": stages}, problem) > room:
        stages -= 1
    try:
        full = mma.complete({**values, "STAGES": stages})
    except ParameterError:  # no such depth
        return {}
    items = mma.work_group(full)[0]
    registers = mma.registers(full, problem) + int(own["addresses"])
    if (
        mma.local_bytes(full, problem) > room
        or registers > own["most_registers"]
        or items > min(device.max_work_group, device.max_work_item_sizes[0])
        or mma.unfit(full, problem, device)
    ):
        return {}
    groups = max(min(int(full["GROUPS"]), room // mma.local_bytes(full, problem)), 1)
    if device.registers:
        groups = max(min(groups, device.registers // (items * registers)), 1)
    return {**values, "STAGES": stages, "GROUPS": groups}


def predicted(
    problem: GemmProblem,
    device: DeviceInfo,
    model: DeviceModel,
    parameters: Parameters,
    *,
    passes: int,
    pass_bytes: int,
) -> Prediction:
    """What the parts of a product take: waves of tiles, each as many steps as there are terms.

    Args:
        parameters: all of `mma`'s.
        passes, pass_bytes: how many operands are laid out anew beforehand, and what that reads and writes.
    """
    own, hertz = {**USUAL, **model.constants("mma")}, clock(device)
    p = {name: int(value) for name, value in parameters.items()}
    rows, columns, depth, size = p["TSM"], p["TSN"], p["TSK"], problem.dtype.itemsize
    units, resident = max(device.compute_units, 1), p["GROUPS"]
    tiles = ceil_div(problem.m, rows) * ceil_div(problem.n, columns) * problem.batch
    steps = max(ceil_div(problem.effective_k, depth), 1)
    shared, sharers = sharing_of(tiles, steps, p["SHARE"] * units)
    warps = rows // p["WM"] * (columns // p["WN"])
    lines: tuple[tuple[Operand, int], ...] = (("a", rows), ("b", columns))
    pieces = 0.0  # short pieces, and elements, are as many more copies
    for operand, count in lines:
        alignment = min(problem.alignment(operand), 16)
        pieces += count if p["ANEW"] else count * 16 / max(alignment, size)
    # Four sub-partitions multiply, each for its warps: fewer than four leave some idle.
    idle = max(4 / (warps * resident), 1.0)
    step = {
        "multiply-adds": rows * columns * depth * size / 2 / own["products"] * idle,
        "local memory": warps * (p["WM"] + p["WN"]) * depth * size / own["read_bytes"],
        "copies": pieces * depth * size / own["copy_bytes"],
    }
    of_fullest = ceil_div(tiles - shared, units)  # steps of all groups of a unit
    rounds = ceil_div(tiles - shared, units * resident)
    shares = ceil_div(shared * steps, sharers) * ceil_div(sharers, units) if shared else 0
    results = min(rows, problem.m) * min(columns, problem.n) * problem.output.itemsize / own["copy_bytes"]
    parts = {name: (of_fullest * steps + shares) * value / hertz for name, value in step.items()}
    waits = max(own["step_clocks"], own["far_clocks"] / (p["STAGES"] - 1))
    parts["latency"] = (rounds * steps + shares) * waits / hertz
    parts["global memory"] = problem.bytes / model.read_bandwidth
    others = {
        "launches": model.launch * (1 + passes + (2 if shared else 0)),
        "passes": pass_bytes / model.copy_bandwidth,
        "results": (of_fullest + (2 if shared else 0)) * results / hertz,
        "parts": sharers / shared * own["part_clocks"] / hertz if shared else 0.0,
    }
    facts = facts_of(problem, rows, columns, units * resident)
    return Prediction({**parts, **others}, joined(parts) + math.fsum(others.values()), facts)
