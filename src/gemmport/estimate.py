"""How long a GPU takes for a product in tiles: a model of waves, issue slots and bytes, for choosing without a search.

A unit issues one instruction of each of its schedulers per clock, multiply-adds and everything else alike; groups come in
waves, the last of which may leave units idle; and what tiles read comes through the second-level cache. The constants are
fitted to the times of an H200, of products large and small.
"""

from __future__ import annotations

from dataclasses import dataclass

from gemmport.device import DeviceInfo
from gemmport.problem import GemmProblem, Operand, transposes
from gemmport.variant import ceil_div

LANES = 128
"""Instructions of work-items that a unit issues per clock; and its multiply-adds of float32, where the device does not tell."""

RUN_BYTES = 16
"""Of what one instruction copies, reads from local memory or stores, at most."""

ISSUE = 1.35
"""Clocks for what would take one, if all issue slots were used."""

ISSUE_IN_ORDER = 1.05
"""The same where the order of instructions fits the register file's ports."""

BYTES_PER_CLOCK = 13.0
"""Of a unit, from the second-level cache and from memory: 3.4 TB/s over 132 units at 1.98 GHz; an H200's memory was measured to
copy 4.2."""

MIN_STEPS = 4
"""Steps along k that a sharer has at least: fewer are not worth the parts that are added up after them."""

TERM_CLOCKS = 14.0
"""A term takes a work-item so long at least: the latency of local memory, from which the next term's numbers come meanwhile."""

MATRIX_RATE = 2
"""Multiply-adds of the matrix unit for one of the other units, float64 on Hopper: 66.9 and 33.5 TFLOPS."""

MATRIX_TERMS = 4
"""Terms that one instruction of the matrix unit adds up, for which a work-item reads what it else reads for one."""

COPY_ISSUE = 11.0
"""Instructions for which a copy's own stands: with its address, and with reads from local memory, which wait behind it."""

STEP_ISSUE = 14.0
"""What a work-item issues for a step beside its terms: copies' addresses, counting, the barrier."""

STEP_CLOCKS = 25.0
"""Of a step: its barrier and the wait for copies, where no other group fills the time."""

SHARPNESS = 4.0
"""Of issue slots, latency and bytes none hides another wholly: the powers of their times are added up, of this exponent."""

TILE_CLOCKS = 130.0
"""Of a tile: the first copies from memory."""

STORE_BYTES_PER_CLOCK = 50.0
"""Of a unit, of results in runs."""

SINGLY = 4.0
"""Times as long, where rows are not aligned and results are stored one by one."""

SLICE_CLOCKS = 430.0
"""Of adding up the sums of one more slice."""

PART_CLOCKS = 130.0
"""Of adding up one more part of a shared tile, behind those before it."""

LAUNCH_CLOCKS = 3400.0
"""Of each launch after another."""


@dataclass(frozen=True)
class Tiling:
    """What the model reads of a kernel's parameters.

    Attributes:
        rows, columns, depth: of a group's tile, and the terms of a step.
        item_rows, item_columns: of a work-item.
        resident: groups that one unit holds at a time.
        slices: sets of work-items that share the terms of a step.
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
    total = LAUNCH_CLOCKS + waves * _wave(problem, device, tiling, tiling.resident, steps)
    if rest:
        total += _wave(problem, device, tiling, ceil_div(rest, units), steps)
    if shared:
        part = ceil_div(shared * steps, sharers)
        parts = 2 if sharers % shared else 1  # of different tiles, of most sharers
        total += _wave(problem, device, tiling, ceil_div(sharers, units), part, parts)
        moved = 2 * (sharers + shared) * tiling.rows * tiling.columns * problem.dtype.itemsize
        total += (2 if whole else 1) * LAUNCH_CLOCKS
        total += sharers / shared * PART_CLOCKS + moved / (BYTES_PER_CLOCK * units)
    return total


def _wave(
    problem: GemmProblem, device: DeviceInfo, tiling: Tiling, groups: int, steps: int, tiles: int = 1
) -> float:  # fmt: skip
    """Clocks of one unit for so many groups at once, of so many steps each, which belong to so many tiles."""
    complex_parts = 4 if problem.dtype.kind == "complex" else 1
    items = tiling.rows * tiling.columns // (tiling.item_rows * tiling.item_columns)  # of a slice
    lanes = _lanes(problem, device) * (MATRIX_RATE if tiling.matrix else 1)
    terms = MATRIX_TERMS if tiling.matrix else 1
    size = problem.dtype.itemsize

    products = tiling.item_rows * tiling.item_columns * complex_parts  # of a work-item, per term
    reads = (tiling.item_rows + tiling.item_columns) * size / RUN_BYTES / terms
    copied_rows = tiling.rows * _copies(problem, "a", along=not transposes(problem.trans_a))
    copied_columns = tiling.columns * _copies(problem, "b", along=transposes(problem.trans_b))
    others = reads + COPY_ISSUE * (copied_rows + copied_columns) / items + STEP_ISSUE / tiling.depth
    issue = ISSUE_IN_ORDER if tiling.in_order else ISSUE
    slots = issue * items * (products / lanes + others / LANES) * tiling.depth  # of the unit, for a step of one group
    own = max(issue * (products * LANES / lanes + others), TERM_CLOCKS / terms)  # of a work-item, for a term
    latency = own * tiling.depth / tiling.slices + STEP_CLOCKS
    results = tiling.rows * tiling.columns * size
    moved = groups * (steps * (tiling.rows + tiling.columns) * tiling.depth * size + results) / BYTES_PER_CLOCK
    limits = (groups * steps * slots, steps * latency, moved)
    stored = results * (1 if problem.alignment("d") % RUN_BYTES == 0 else SINGLY) / STORE_BYTES_PER_CLOCK
    ends = TILE_CLOCKS + (tiling.slices - 1) * SLICE_CLOCKS + stored
    joined: float = sum(limit**SHARPNESS for limit in limits) ** (1 / SHARPNESS)
    return joined + tiles * ends


def _copies(problem: GemmProblem, operand: Operand, *, along: bool) -> float:
    """Instructions that copy an element of a tile: those along k are copied one by one, as are those that are not aligned."""
    size = problem.dtype.itemsize
    return 1 if along or problem.alignment(operand) % RUN_BYTES else size / RUN_BYTES


def _lanes(problem: GemmProblem, device: DeviceInfo) -> float:
    parts = "float64" if problem.accumulator.name in ("float64", "complex128") else "float32"
    peak = device.peak_gflops(parts)
    if peak is None or not device.clock_mhz:
        return LANES / (2 if parts == "float64" else 1)
    return peak / (device.compute_units * device.clock_mhz * 2e-3)
