"""How long a GPU takes for a product in tiles: a model of waves, issue slots and bytes, for choosing without a search.

A unit issues one instruction of each of its schedulers per clock, multiply-adds and everything else alike; groups come in
waves, the last of which may leave units idle; copies to local memory pass one pipe. The constants are fitted to times of an
H200: those of all tilings for benchmarks/shapes/regret.csv, for every other of 92 published workloads and for seven
products in float64 (docs/simt.md).
"""

from __future__ import annotations

from dataclasses import dataclass

from gemmport.contracts.kernel import ceil_div
from gemmport.core.device import DeviceInfo
from gemmport.core.problem import GemmProblem, transposes

LANES = 128
"""Instructions of work-items that a unit issues per clock; and its multiply-adds of float32, where the device does not tell."""

RUN_BYTES = 16
"""Of what one instruction copies, reads from local memory or stores, at most."""

WORD_BYTES = 4
"""Of one bank of local memory."""

PORTS_ISSUE = 1.13
"""Clocks for a multiply-add that would take one, where the order of instructions does not fit the register file's ports."""

MATRIX_RATE = 2
"""Multiply-adds of the matrix unit for one of the other units, float64 on Hopper: 66.9 and 33.5 TFLOPS."""

WARP = 32
"""Work-items of a warp."""

MATRIX_TERMS = 4
"""Terms that one instruction of the matrix unit adds up, for which a work-item reads what it else reads for one."""

MATRIX_PRODUCTS = 16
"""Multiply-adds of one instruction of the matrix unit, for each work-item of the warp: 16 × 8 × 4 by 32 of them."""

SCHEDULERS = 4
"""Of a unit, and warps that it needs so that each has one."""

ONE_WARP = 1.09
"""Times as long the matrix unit takes where a scheduler has one warp for it: 60.9 instead of 66.3 TFLOPS of an H200, with all
numbers in registers (benchmarks/results/h200/study/matrix-unit.json).
"""

ALONE_CLOCKS = 60.0
"""Of a unit, for each step of a group that it holds alone: all of its warps stand at the barrier, and nobody feeds the matrix
unit. In turns, tiles of 64 × 128, two groups to a unit, took 0.96 to 0.98 of the time of 128 × 128 at 2048 and 8192
(benchmarks/results/h200/study/matrix-tilings.json).
"""

COPY_ISSUE = 2
"""Instructions of a copy: its own, and its address."""

STEP_ISSUE = 38
"""What a work-item issues for a step beside its terms: counting, waits, the barrier."""

COPY_CLOCKS = 0.2
"""Of a unit's memory pipe, for a copy of one work-item, 6.4 for those of 32: of a run, or of one word, where those of 32
neighbours lie in four pieces of 32 bytes."""

PIECEMEAL = 1.36
"""Times as long, where rows are not aligned and fewer than the tile has: there, each element is asked for by itself."""

TERM_CLOCKS = 26.0
"""A term takes a work-item so long at least: the latency of local memory, from which the next term's numbers come meanwhile."""

FAR_CLOCKS = 450.0
"""A copy takes so long to arrive; the steps whose tiles are in local memory already hide it."""

SHARPNESS = 1.6
"""Of issue slots, copies, latency and single stores none hides another wholly: the powers of their times are added up, of this
exponent."""

STORE_BYTES_PER_CLOCK = 12.6
"""Of a unit, of results on their way out, and of parts and back: 3.3 TB/s over 132 units at 1.98 GHz; an H200's memory was
measured to copy 4.2."""

SINGLE_BYTES_PER_CLOCK = 17.7
"""Of a unit's stores, besides, where rows are not aligned and results are stored one by one."""

READ_CLOCKS = 1750.0
"""Of C, where it is read: memory's latency under load, for each `RUNS_READ` runs of a work-item."""

RUNS_READ = 8
"""Runs of C that a work-item reads before it waits for them, as `simt`'s epilogue does."""

SLICE_CLOCKS = 48.0
"""Of adding up one more slice, for each run of a work-item's sums: they go through local memory, with two barriers."""

MIN_STEPS = 4
"""Steps along k that a sharer has at least: fewer are not worth the parts that are added up after them."""

PART_CLOCKS = 86.0
"""Of adding up one more part of a shared tile, behind those before it."""

LAUNCH_CLOCKS = 4900.0
"""Of each launch."""

PASS_BYTES_PER_CLOCK = 13.2
"""Of a unit, of an operand that is transposed beforehand, read and written: 3.46 TB/s over 132 units at 1.98 GHz
(benchmarks/results/h200/ladder/transpose-16384.json).
"""

WAIT_CLOCKS = 2700.0
"""Of sharers for the whole tiles before them, the last of which not all units finish at one time."""


@dataclass(frozen=True)
class Tiling:
    """What the model reads of a kernel's parameters.

    Attributes:
        rows, columns, depth: of a group's tile, and the terms of a step.
        item_rows, item_columns: of a work-item.
        resident: groups that one unit holds at a time.
        slices: sets of work-items that share the terms of a step.
        stages: tiles in local memory, of which one is multiplied and the others are on their way.
        share: groups per unit that share the tiles behind the last whole wave; 0 where nobody does.
        matrix: whether the matrix unit multiplies.
        in_order: whether the order of instructions is made for the register file's ports.
    """

    rows: int
    columns: int
    depth: int
    item_rows: int
    item_columns: int
    resident: int
    slices: int = 1
    stages: int = 2
    share: int = 0
    matrix: bool = False
    in_order: bool = False


def sharing_of(tiles: int, steps: int, groups: int) -> tuple[int, int]:
    """How many of so many tiles, of so many steps each, are shared, and by how many of so many groups: those behind the last
    whole round of all groups; none, by nobody, where there are no groups for it, or each would have no less to do than a tile.
    """
    shared = tiles % groups if groups else 0
    sharers = min(groups, shared * steps // MIN_STEPS)
    return (shared, sharers) if sharers > shared else (0, 0)


def clocks(problem: GemmProblem, device: DeviceInfo, tiling: Tiling) -> float:
    """Clocks that a product takes from its first group to its last."""
    units = max(device.compute_units, 1)
    tiles = ceil_div(problem.m, tiling.rows) * ceil_div(problem.n, tiling.columns) * problem.batch
    steps = max(ceil_div(problem.effective_k, tiling.depth), 1)
    shared, sharers = sharing_of(tiles, steps, tiling.share * units)
    whole = tiles - shared

    # All units hold as many groups as they can, but in the last wave, which is as long as that of the fullest unit.
    waves, rest = divmod(whole, tiling.resident * units)
    total = LAUNCH_CLOCKS + waves * _whole_wave(problem, device, tiling, tiling.resident, steps)
    if rest:
        total += _whole_wave(problem, device, tiling, ceil_div(rest, units), steps)
    if shared:
        part = ceil_div(shared * steps, sharers)
        parts = 2 if sharers % shared else 1  # of different tiles, of most sharers
        groups = ceil_div(sharers, units)
        total += _loop(problem, device, tiling, groups, part) + parts * _ends(problem, tiling, groups)
        moved = (sharers * parts + shared) * tiling.rows * tiling.columns * problem.dtype.itemsize
        total += LAUNCH_CLOCKS + sharers / shared * PART_CLOCKS + moved / (STORE_BYTES_PER_CLOCK * units)
        if whole:
            total += LAUNCH_CLOCKS + WAIT_CLOCKS
    return total


def pass_clocks(nbytes: int, device: DeviceInfo) -> float:
    """Clocks of a pass that lays so many bytes out anew."""
    return LAUNCH_CLOCKS + 2 * nbytes / (PASS_BYTES_PER_CLOCK * max(device.compute_units, 1))


def _whole_wave(problem: GemmProblem, device: DeviceInfo, tiling: Tiling, groups: int, steps: int) -> float:
    """Clocks of one unit for so many groups at once, each with a tile of its own."""
    results = _results(problem, tiling)
    stored = results / STORE_BYTES_PER_CLOCK
    if problem.reads("c"):
        stored += ceil_div(_runs(problem, tiling), RUNS_READ) * READ_CLOCKS
    singly = groups * results / SINGLE_BYTES_PER_CLOCK if problem.alignment("d") % RUN_BYTES else 0.0
    return _loop(problem, device, tiling, groups, steps, singly) + _ends(problem, tiling, groups) + stored


def _loop(
    problem: GemmProblem, device: DeviceInfo, tiling: Tiling, groups: int, steps: int, beside: float = 0.0
) -> float:  # fmt: skip
    """Clocks of one unit for so many steps of so many groups at once, and for what it does beside them."""
    complex_parts = 4 if problem.dtype.kind == "complex" else 1
    items = tiling.rows * tiling.columns // (tiling.item_rows * tiling.item_columns)  # of a slice
    products = items * tiling.item_rows * tiling.item_columns * tiling.depth * complex_parts
    at_once, terms = (MATRIX_PRODUCTS, MATRIX_TERMS) if tiling.matrix else (1, 1)
    # The matrix unit's columns are spread over twice as many work-items.
    read = tiling.item_rows + tiling.item_columns / (2 if tiling.matrix else 1)
    reads = items * read * tiling.depth / terms * problem.dtype.itemsize / RUN_BYTES
    multiplied = products / at_once * (1.0 if tiling.in_order else PORTS_ISSUE)
    issued = multiplied + reads + COPY_ISSUE * _copies(problem, tiling) + STEP_ISSUE * items * tiling.slices
    computed = products / _lanes(problem, device)
    if tiling.matrix:
        one_warp = groups * items * tiling.slices <= SCHEDULERS * WARP
        computed *= (ONE_WARP if one_warp else 1.0) / MATRIX_RATE
    slots = max(issued / LANES, computed)
    if tiling.matrix and tiling.resident == 1:
        slots += ALONE_CLOCKS
    latency = max(TERM_CLOCKS * tiling.depth / tiling.slices, FAR_CLOCKS / (tiling.stages - 1))
    limits = (groups * steps * slots, groups * steps * _copy_clocks(problem, tiling), steps * latency, beside)
    joined: float = sum(limit**SHARPNESS for limit in limits) ** (1 / SHARPNESS)
    return joined


def _ends(problem: GemmProblem, tiling: Tiling, groups: int) -> float:
    """Clocks of one unit for the first copies of so many groups at once, and for adding up their slices."""
    return groups * _copy_clocks(problem, tiling) + (tiling.slices - 1) * _runs(problem, tiling) * SLICE_CLOCKS


def _runs(problem: GemmProblem, tiling: Tiling) -> int:
    """Runs of a work-item's sums."""
    return ceil_div(tiling.item_rows * tiling.item_columns * problem.dtype.itemsize, RUN_BYTES)


def _results(problem: GemmProblem, tiling: Tiling) -> int:
    """Bytes of a tile's results, of the fullest tile."""
    return min(tiling.rows, problem.m) * min(tiling.columns, problem.n) * problem.dtype.itemsize


def _copies(problem: GemmProblem, tiling: Tiling) -> float:
    """Instructions that copy the tiles of a step."""
    size = problem.dtype.itemsize
    return tiling.depth * sum(
        lines if singly else lines * size / RUN_BYTES for lines, singly in _operands(problem, tiling)
    )


def _copy_clocks(problem: GemmProblem, tiling: Tiling) -> float:
    """Clocks of one unit's memory pipe for the copies of a step; larger elements, one by one, lie in more pieces of memory."""
    size = problem.dtype.itemsize
    copies = tiling.depth * sum(
        lines * (size / WORD_BYTES) ** 0.5 if singly else lines * size / RUN_BYTES
        for lines, singly in _operands(problem, tiling)
    )
    few = problem.m < tiling.rows or problem.n < tiling.columns
    piecemeal = few and any(problem.alignment(operand) % RUN_BYTES for operand in ("a", "b", "d"))
    return copies * COPY_CLOCKS * (PIECEMEAL if piecemeal else 1.0)


def _operands(problem: GemmProblem, tiling: Tiling) -> tuple[tuple[int, bool], tuple[int, bool]]:
    """Lines of a tile of A and of B, and whether their elements are copied one by one, as they are along k, and where they are
    not aligned.
    """
    a = not transposes(problem.trans_a) or problem.alignment("a") % RUN_BYTES != 0
    b = transposes(problem.trans_b) or problem.alignment("b") % RUN_BYTES != 0
    return (tiling.rows, a), (tiling.columns, b)


def _lanes(problem: GemmProblem, device: DeviceInfo) -> float:
    parts = "float64" if problem.accumulator.name in ("float64", "complex128") else "float32"
    peak = device.peak_gflops(parts)
    if peak is None or not device.clock_mhz:
        return LANES / (2 if parts == "float64" else 1)
    return peak / (device.compute_units * device.clock_mhz * 2e-3)
