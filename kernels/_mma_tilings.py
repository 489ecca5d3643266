"""Which tilings `mma` chooses among for a problem on a device, and how long it expects them to take.

As in `gemmport.contracts.gpu_model` there are waves of groups, each limited by products, copies and how long copies take to
arrive. Its numbers are those of the device's model (configs/nvidia.yaml); what that does not state follows from its rates.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import itemgetter

from gemmport.contracts import occupancy
from gemmport.contracts.device_model import DeviceModel, Prediction, clock, per_clock, usual_matrix_products
from gemmport.contracts.gpu_model import WARP, sharing_of
from gemmport.contracts.kernel import KernelVariant, Parameters, Predictor, ceil_div
from gemmport.contracts.nvidia import MOST_REGISTERS, has_float8_unit
from gemmport.contracts.prediction import crossing, facts_of, joined
from gemmport.core.device import DeviceInfo
from gemmport.core.dtypes import DTYPES, FLOAT8S
from gemmport.core.errors import ParameterError
from gemmport.core.plan import ParameterValue
from gemmport.core.problem import GemmProblem, Operand, transposes

FITTED = {
    "products": "multiply-adds of 2-byte numbers that a unit's matrix unit does per clock, by mma.sync",
    "schedulers": "parts of a unit that multiply, each for warps of its own: fewer warps leave some of them idle",
    "read_bytes": "that warps of a unit read from local memory per clock",
    "copy_bytes": "that a unit copies from caches to local memory per clock",
    "step_clocks": "of a group's step at least, beside its products: counting, waits, the barrier",
    "far_clocks": "a copy takes so long to arrive; the steps whose tiles are in local memory already hide it",
    "turn_clocks": "from the end of a group to the first copy of that which takes its place",
    "alone_clocks": "of a unit, for each step of a group that it holds alone: all of its warps stand at the barrier",
    "part_clocks": "of adding up one more part of a shared tile",
    "combine_clocks": "of the launch that adds up parts, beside them and its start: it waits for the last of all sharers",
    "line_bytes": "of a line of the caches, which they give whole units that ask for it at one time",
    "crossing_bandwidth": "bytes per second that caches give all units, of rows that begin within a line",
    "memory_clocks": "a copy of what no group has read before takes so long to arrive, while memory is busy",
    "most_registers": "of a work-item",
    "addresses": "registers of a work-item beside sums and what is read ahead",
}
"""What a device's model may state for the choice, with its meaning."""

ADDRESSES = 48
"""Registers of a work-item that compilers take beside what is counted: 32 to 63 (NVRTC 13, sm_90)."""

MANY = 64
"""Tiles along a side of D, of which larger ones would be enough: 64 by 64 of them are 4,096."""

USUAL_STAGES = 4
"""Of most tilings that devices' models have, by which waits were fitted, of short products, too."""

SMALLEST = {"TSM": 32, "TSN": 32, "TSK": 32, "WM": 16, "WN": 32, "STAGES": 4, "GROUPS": 4}
"""Where the device's model has no tiling that fits."""


def considered(mma: KernelVariant, problem: GemmProblem, device: DeviceInfo, model: DeviceModel) -> list[Parameters]:
    """The tilings that fit, shared or not, and with operands laid out anew where some are not aligned, the best first."""
    own = constants(device, model)
    tilings = [each for each in model.tilings.get(mma.name, ()) if not _is_tiny(each, problem)]
    fitted = [values for tiling in (*tilings, SMALLEST) if (values := fit(mma, tiling, problem, device, own))]
    unaligned = problem.alignment("a") % 16 or problem.alignment("b") % 16
    choices = [
        {**values, "SHARE": share, "ANEW": anew}
        for values in fitted
        for share in sorted({0, 1, int(values["GROUPS"])})
        for anew in ((0, 1) if unaligned else (0,))
    ]
    return mma.ranked(choices, problem, device, model)


def _is_tiny(tiling: Parameters, problem: GemmProblem) -> bool:
    """Whether D has so many tiles of it along both sides that larger ones fill every device: those spare copies."""
    return problem.m > MANY * int(tiling["TSM"]) and problem.n > MANY * int(tiling["TSN"])


def constants(device: DeviceInfo, model: DeviceModel) -> Mapping[str, float]:
    """By the names of `FITTED`, those that a model states, and the others from its rates, as in `gemmport.contracts.gpu_model`:
    copies come from caches half as fast as local memory is read, a part is added up behind barriers, and memory under load
    answers 1.75 times as late as without; an H100 is known to answer later.
    """
    hertz = clock(device)
    read, barrier = per_clock(model.local_bandwidth, device), model.barrier * hertz
    rates = {
        "products": usual_matrix_products(device, model),
        "schedulers": max(per_clock(model.multiply_adds["float32"], device) / WARP, 1.0),
        "read_bytes": read,
        "copy_bytes": read / 2,
        "step_clocks": 2 * barrier,
        "far_clocks": model.latency * hertz,
        "turn_clocks": 3 * model.latency * hertz,
        "alone_clocks": 2 * barrier,
        "part_clocks": 3 * barrier,
        "combine_clocks": 2 * barrier,
        "line_bytes": 1,
        "crossing_bandwidth": math.inf,
        "memory_clocks": 1.75 * model.latency * hertz,
        "most_registers": MOST_REGISTERS,
        "addresses": ADDRESSES,
    }
    return {**rates, **model.constants("mma")}


def fit(
    mma: KernelVariant, tiling: Parameters, problem: GemmProblem, device: DeviceInfo, own: Mapping[str, float]
) -> dict[str, ParameterValue]:
    """A tiling of 2-byte elements for those of the problem, with as many stages as the device has room for, and the product
    steps; empty where the device has none for it.
    """
    depth = int(tiling["TSK"]) * 2 // problem.dtype.itemsize
    values = {**tiling, "TSK": depth}
    room = device.most_local_memory if device.language == "cuda" else device.local_memory
    # With one more than steps all tiles are on their way from the start: what others take has room for another group.
    stages = min(int(values["STAGES"]), _steps(problem, depth) + 1)
    while stages > 2 and mma.local_bytes({**values, "STAGES": stages}, problem) > room:
        stages -= 1
    try:
        full = mma.complete({**values, "STAGES": stages})
    except ParameterError:  # no such depth
        return {}
    items = mma.work_group(full)[0]
    registers = mma.registers(full, problem) + int(own["addresses"]) + _more_registers(problem, device, full)
    if (
        mma.local_bytes(full, problem) > room
        or registers > own["most_registers"]
        or items > min(device.max_work_group, device.max_work_item_sizes[0])
        or mma.unfit(full, problem, device)
    ):
        return {}
    groups = min(int(full["GROUPS"]), resident(mma, {**full, "GROUPS": 1}, problem, device, own) or 1)
    return {**values, "STAGES": stages, "GROUPS": groups}


def _steps(problem: GemmProblem, depth: int) -> int:
    """Of a tile, each of so many terms; one where there are no terms."""
    return max(ceil_div(problem.effective_k, depth), 1)


def _more_registers(problem: GemmProblem, device: DeviceInfo, full: Parameters) -> int:
    """Registers of a work-item that the compiler takes beside, so that nothing is spilled (found by compiling for sm_90).

    Of FP8, where it becomes halves: what is read, as such. Of elements of four bytes: each operand along k, and edges twice,
    for each turn of a step; pieces that come in several copies; and a step of more than 16 terms, without which NVRTC 13.0
    reads what it spilled in every step (13.5 spills nothing). Of bytes, by warps' tiles of 64 × 64, of which NVRTC 13.5
    spills up to 12 words: steps of 128 terms; and tiles with more rows than columns, whose operands both lie along k in rows
    that are not aligned.
    """
    if problem.dtype in FLOAT8S and not has_float8_unit(device):
        return (int(full["WM"]) + int(full["WN"])) // 16 * 16
    depth = int(full["TSK"])
    in_parts = problem.alignment("a") % 16 != 0 or problem.alignment("b") % 16 != 0
    along_k = int(not transposes(problem.trans_a)) + int(transposes(problem.trans_b))
    if problem.dtype.itemsize == 1:
        is_tall = int(full["TSM"]) > int(full["TSN"])
        spills = depth > 64 or (in_parts and along_k == 2 and is_tall)
        return 16 * int(spills and int(full["WM"]) * int(full["WN"]) == 64 * 64)
    if problem.dtype.itemsize != 4:
        return 0
    edges = problem.m % int(full["TSM"]) or problem.n % int(full["TSN"]) or problem.effective_k % depth
    return (along_k + 2 * int(edges != 0)) * depth // 4 + 16 * int(in_parts) + max(depth - 16, 0)


def resident(
    mma: KernelVariant, parameters: Parameters, problem: GemmProblem, device: DeviceInfo, own: Mapping[str, float]
) -> int:
    """Groups that a unit holds at once: GROUPS, for which the compiler saves registers, or more where it has room for them; 0
    where it has room for none.

    Args:
        parameters: all of `mma`'s.
    """
    items, asked = mma.work_group(parameters)[0], int(parameters["GROUPS"])
    registers = (
        mma.registers(parameters, problem) + int(own["addresses"]) + _more_registers(problem, device, parameters)
    )
    registers = min(registers, int(own["most_registers"]))
    local_bytes = mma.local_bytes(parameters, problem)
    limits = occupancy.architecture(device.architecture)
    if limits is None:  # no more is known of it than what one group may have
        by_memory = device.most_local_memory // local_bytes
        by_registers = (device.registers or occupancy.REGISTERS) // (items * registers)
        return min(by_memory, max(asked, by_registers))
    saved = min(registers, occupancy.REGISTERS // (items * asked))
    return occupancy.occupancy(limits, work_items=items, registers=saved, local_bytes=local_bytes).groups


def unit_rate(problem: GemmProblem, device: DeviceInfo, model: DeviceModel) -> float:
    """Multiply-adds per second of the matrix unit, by mma.sync, of the numbers that a problem has multiplied."""
    multiplied = DTYPES.get(problem.precision, problem.dtype)  # TF32 takes 4 bytes
    nbytes = multiplied.itemsize * (2 if _multiplied_as_halves(problem, device) else 1)
    return constants(device, model)["products"] * 2 / nbytes * max(device.compute_units, 1) * clock(device)


def _multiplied_as_halves(problem: GemmProblem, device: DeviceInfo) -> bool:
    return problem.dtype in FLOAT8S and not has_float8_unit(device)


@dataclass(frozen=True)
class Passes:
    """What is done to operands before the product.

    Attributes:
        count: of passes. seconds: that they take besides their launches.
        pitches: bytes from one row of A, and of B, to the next, as the kernel reads them.
    """

    count: int
    seconds: float
    pitches: tuple[int, int]

    def crossing_bytes(self, problem: GemmProblem, down: int, beside: int, line_bytes: float) -> float:
        """That tiles read of rows that begin within a line: of A for each tile beside another, of B for each below."""
        a, b = (crossing(pitch, line_bytes) for pitch in self.pitches)
        lines = a * problem.m * beside + b * problem.n * down
        return lines * problem.effective_k * problem.dtype.itemsize * problem.batch


@dataclass(frozen=True)
class _Step:
    """What one step of a group asks of its unit, in clocks.

    Attributes:
        products: of the matrix unit, were all of it busy. warps: of the group.
        reads: of local memory. copies: to local memory. stages: tiles in local memory, or `USUAL_STAGES` where these are more
            than steps: then all are on their way from the start.
    """

    products: float
    warps: int
    reads: float
    copies: float
    stages: int

    @classmethod
    def of(cls, problem: GemmProblem, device: DeviceInfo, parameters: Parameters, own: Mapping[str, float]) -> _Step:
        p = {name: int(value) for name, value in parameters.items()}
        rows, columns, size = p["TSM"], p["TSN"], problem.dtype.itemsize
        line_bytes = p["TSK"] * size
        warps = rows // p["WM"] * (columns // p["WN"])
        lines: tuple[tuple[Operand, int], ...] = (("a", rows), ("b", columns))
        pieces = 0.0  # short pieces, and elements, are as many more copies
        for operand, count in lines:
            alignment = min(problem.alignment(operand), 16)
            pieces += count if p["ANEW"] else count * 16 / max(alignment, size)
        as_halves = _multiplied_as_halves(problem, device)
        return cls(
            products=rows * columns * line_bytes / (1 if as_halves else 2) / own["products"],
            warps=warps,
            reads=warps * (p["WM"] + p["WN"]) * line_bytes / own["read_bytes"],
            copies=pieces * line_bytes / own["copy_bytes"],
            stages=max(p["STAGES"], USUAL_STAGES) if p["STAGES"] > _steps(problem, p["TSK"]) else p["STAGES"],
        )

    def streaming_clocks(self, steps: int, own: Mapping[str, float]) -> float:
        """Of so many steps, one after the other, whose tiles come from memory: those that are on their way hide its latency."""
        return steps * own["memory_clocks"] / (self.stages - 1)

    def clocks(self, steps: int, groups: int, own: Mapping[str, float]) -> dict[str, float]:
        """Of a unit with so many groups at once, each of so many steps, by what limits it; "alone" is not hidden by others."""
        products = groups * self.products * max(own["schedulers"] / (self.warps * groups), 1.0)
        # A tile sets out during a step, and is waited for STAGES - 2 steps after that: with two stages, at its end.
        least = max(self.products, own["step_clocks"])
        waits = least + own["far_clocks"] if self.stages == 2 else own["far_clocks"] / (self.stages - 2)
        return {
            "multiply-adds": steps * products,
            "local memory": steps * groups * self.reads,
            "copies": steps * groups * self.copies,
            "latency": steps * max(waits, own["step_clocks"]),
            "alone": steps * own["alone_clocks"] if groups == 1 else 0.0,
        }


def stores_neighbours(parameters: Parameters) -> bool:
    """Whether neighbouring work-items store neighbouring elements where rows of D are not aligned: registers with the most sums
    spill.
    """
    return int(parameters["WM"]) * int(parameters["WN"]) < 64 * 64


def width(problem: GemmProblem) -> int:
    """Elements of D that a work-item stores at once where they are aligned."""
    return max(min(16 // problem.output.itemsize, 8), 1)


_of_a_unit = itemgetter("TSM", "TSN", "TSK", "WM", "WN", "STAGES", "GROUPS")
"""The parameters on which it depends how many groups a unit holds; with ANEW, what a step asks of it."""


def predictor(
    mma: KernelVariant,
    problem: GemmProblem,
    device: DeviceInfo,
    model: DeviceModel,
    passes: Callable[[ParameterValue], Passes],
) -> Predictor:
    """What the parts of a product take: waves of groups, each of as many steps as there are terms; then shared tiles.

    Args:
        passes: by ANEW, those that there are beforehand.
    """
    own, hertz, units = constants(device, model), clock(device), max(device.compute_units, 1)
    of_memory = problem.bytes / model.read_bandwidth
    held: dict[tuple[ParameterValue, ...], int] = {}
    asked: dict[tuple[ParameterValue, ...], _Step] = {}

    def predicted(parameters: Parameters) -> Prediction:
        tiling = _of_a_unit(parameters)
        if tiling not in held:
            held[tiling] = max(resident(mma, parameters, problem, device, own), 1)
        at_once, key = held[tiling], (*tiling, parameters["ANEW"])
        if key not in asked:
            asked[key] = _Step.of(problem, device, parameters, own)
        step = asked[key]
        rows, columns = int(parameters["TSM"]), int(parameters["TSN"])
        down, beside = ceil_div(problem.m, rows), ceil_div(problem.n, columns)
        tiles = down * beside * problem.batch
        steps = _steps(problem, int(parameters["TSK"]))
        shared, sharers = sharing_of(tiles, steps, int(parameters["SHARE"]) * units)
        whole, added = tiles - shared, 0.0
        before = passes(parameters["ANEW"])

        # Waves: how often, steps of each group, and groups of the fullest unit at once.
        waves, rest = divmod(whole, at_once * units)
        phases = [(waves, steps, at_once), (1, steps, ceil_div(rest, units))]
        if shared:
            rounds, left = divmod(ceil_div(sharers, units), at_once)
            part = ceil_div(shared * steps, sharers)
            phases += [(rounds, part, at_once), (1, part, left)]
            # Most sharers have parts of two tiles, but where each tile has as many sharers. All are written and read again.
            moved = 2 * (sharers + (shared if sharers % shared else 0)) * rows * columns * problem.accumulator.sum_bytes
            added = (own["combine_clocks"] + sharers / shared * own["part_clocks"]) / hertz
            added += moved / model.copy_bandwidth
        parts: dict[str, float] = {}
        looped = streamed = begun = turned = 0.0
        for times, of_group, groups in phases:
            if times and groups:
                found = step.clocks(of_group, groups, own)
                for name, clocks in found.items():
                    parts[name] = parts.get(name, 0.0) + times * clocks / hertz
                alone = found.pop("alone")
                wave = joined(found) + alone
                looped += times * wave / hertz
                streamed += times * step.streaming_clocks(of_group, own) / hertz
                # Groups of the first wave wait at one time; later ones, while the others of their unit multiply. Those of few
                # steps all wait once more: a wave takes as long as one of them.
                later = times if begun else times - 1
                begun += (times - later) + later / groups
                if later:
                    life = own["turn_clocks"] + own["far_clocks"] + max(found["latency"], wave / groups)
                    turned += later * max(life - own["far_clocks"] / groups - wave, 0.0)
        results = min(rows, problem.m) * min(columns, problem.n) * problem.output.itemsize / own["copy_bytes"]
        others = {
            "launches": model.launch * (before.count + (whole > 0) + (2 if shared else 0)),
            "passes": before.seconds,
            "begins": begun * own["far_clocks"] / hertz,
            "turns": turned / hertz,
            "results": (ceil_div(whole, units) + (2 if shared else 0)) * results / hertz,
            "parts": added,
        }
        # One operand is read by more tiles than the other: of its steps, all but one in so many find it in a cache.
        memory = max(of_memory, streamed / max(min(down, beside), 1))
        caches = before.crossing_bytes(problem, down, beside, own["line_bytes"]) / own["crossing_bandwidth"]
        reads = {"global memory": memory, "caches": caches}
        seconds = joined({"loop": looped, **reads}) + math.fsum(others.values())
        return Prediction({**parts, **reads, **others}, seconds, facts_of(problem, rows, columns, units * at_once))

    return predicted
