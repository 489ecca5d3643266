"""How long a GPU takes for a product in tiles: a model of waves, issue slots and bytes, for choosing without a search.

A unit issues one instruction of each of its schedulers per clock, multiply-adds and everything else alike; groups come in
waves, the last of which may leave units idle; copies to local memory pass one pipe. The numbers are those of the device's model
(`gemmport.contracts.device_model`): where it states none of its own for `simt`, they come from its rates.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gemmport.contracts.device_model import DeviceModel, clock
from gemmport.contracts.kernel import ceil_div
from gemmport.contracts.prediction import SHARPNESS
from gemmport.core.device import DeviceInfo
from gemmport.core.problem import GemmProblem, transposes

RUN_BYTES = 16
"""Of what one instruction copies, reads from local memory or stores, at most."""

WORD_BYTES = 4
"""Of one bank of local memory."""

WARP = 32
"""Work-items of a warp tile."""

MATRIX_TERMS = 4
"""Terms that one instruction of the matrix unit adds up, for which a work-item reads what it else reads for one."""

MATRIX_PRODUCTS = 16
"""Multiply-adds of one instruction of the matrix unit, for each work-item of the warp: 16 × 8 × 4 by 32 of them."""

RUNS_READ = 8
"""Runs of C that a work-item reads before it waits for them, as `simt`'s epilogue does."""

NEIGHBOURS = 8
"""Work-items of a warp side by side, whose runs are a line of 128 bytes, and whose single elements are a sector of 32."""

FEW_SUMS = 64
"""Of a work-item: with so many, a unit's registers hold 16 warps."""

CONDITIONS = 7
"""Of a work-item, for which there are registers on NVIDIA's GPUs: P0 to P6."""

MIN_STEPS = 4
"""Steps along k that a sharer has at least: fewer are not worth the parts that are added up after them."""

FITTED = {
    "issue": "instructions of work-items that a unit issues per clock",
    "ports_issue": "clocks for a multiply-add that would take one, where the order of instructions does not fit the register "
    "file's ports",
    "matrix_rate": "multiply-adds of the matrix unit for one of the other units, where the model states no "
    "`matrix_multiply_adds`: float64, and of AMD's float32, too",
    "double_issue": "times as long multiply-adds of float64 take outside the matrix unit: their operands ask twice as much of "
    "the register file",
    "schedulers": "of a unit, and warps that it needs so that each has one",
    "one_warp": "times as long the matrix unit takes where a scheduler has one warp for it",
    "eight_terms": "times as long, with however many warps, where an instruction adds up eight terms, not four",
    "alone_clocks": "of a unit, for each step of a group that it holds alone: all of its warps stand at the barrier",
    "copy_issue": "instructions of a copy: its own, and its address",
    "step_issue": "what a work-item issues for a step beside its terms: counting, waits, the barrier",
    "copy_clocks": "of a unit's memory pipe, for a copy of one work-item: of a run, or of one word, where those of 32 "
    "neighbours lie in four pieces of 32 bytes",
    "piecemeal": "times as long, where rows are not aligned and fewer than the tile has: each element is asked for by itself",
    "term_clocks": "a term, or as many as the matrix unit adds up at once, take a work-item so long at least: the latency of "
    "local memory, from which the next one's numbers come meanwhile",
    "far_clocks": "a copy takes so long to arrive; the steps whose tiles are in local memory already hide it",
    "sharpness": "of issue slots, copies, latency and single stores none hides another wholly: the powers of their times are "
    "added up, of this exponent",
    "store_bytes_per_clock": "of a unit, of results on their way out, and of parts and back",
    "single_bytes_per_clock": "of a unit's stores, besides, where rows are not aligned and results are stored one by one",
    "short_rows": f"times as long these take where fewer than {NEIGHBOURS} work-items of a warp lie side by side",
    "short_runs": "of the time of single stores, that the matrix unit's runs take, of which so few lie side by side",
    "many_sums": f"share of a group's results that nothing hides at the end of few steps, for each {FEW_SUMS} sums of a "
    f"work-item beyond {FEW_SUMS}: as many warps fewer store",
    "few_steps": "of which half of that share is left: the groups of a unit drift apart, and one stores while others multiply",
    "read_clocks": f"of C, where it is read: memory's latency under load, for each {RUNS_READ} runs of a work-item",
    "slice_clocks": "of adding up one more slice, for each run of a work-item's sums: through local memory, with two barriers",
    "part_clocks": "of adding up one more part of a shared tile, behind those before it",
    "launch_clocks": "of each launch",
    "pass_bytes_per_clock": "of a unit, of an operand that is transposed beforehand, read and written",
    "wait_clocks": "of sharers for the whole tiles before them, the last of which not all units finish at one time",
    "in_step": "waves of two groups with a warp for each scheduler that end together, so that tiles of the last wave come to "
    "units in pairs; behind more waves than these the two have drifted apart; 0: never",
}
"""What a device's model may state for this one, with its meaning; `Constants` has them."""


@dataclass(frozen=True)
class Constants:
    """The numbers of a device, by the names of `FITTED`; clocks are those of a compute unit.

    Attributes:
        units: compute units.
        lanes: multiply-adds of a unit per clock, of float32 and of float64; matrix_lanes: of its matrix unit.
    """

    units: int
    lanes: Mapping[str, float]
    matrix_lanes: Mapping[str, float]
    issue: float
    ports_issue: float
    double_issue: float
    schedulers: float
    one_warp: float
    eight_terms: float
    alone_clocks: float
    copy_issue: float
    step_issue: float
    copy_clocks: float
    piecemeal: float
    term_clocks: float
    far_clocks: float
    sharpness: float
    store_bytes_per_clock: float
    single_bytes_per_clock: float
    short_rows: float
    short_runs: float
    many_sums: float
    few_steps: float
    read_clocks: float
    slice_clocks: float
    part_clocks: float
    launch_clocks: float
    pass_bytes_per_clock: float
    wait_clocks: float
    in_step: float

    @classmethod
    def of(cls, device: DeviceInfo, model: DeviceModel) -> Constants:
        """Those that the model states for `simt`, and the others from its rates.

        Instructions are counted in the kernel's code. Copies come from caches half as fast as local memory is read. A barrier
        is counted with a word's way through local memory, which takes half of it; memory under load answers three times as
        late as without. What is fitted to one device's times (ports, float64 outside the matrix unit, one warp of a scheduler,
        copies of single elements) is taken to cost nothing elsewhere, and a matrix unit of which no rate is known to be no
        faster than the others.
        """
        hertz, units = clock(device), max(device.compute_units, 1)
        per_unit = 1 / (units * hertz)
        issue = model.multiply_adds["float32"] * per_unit
        barrier, latency, copied = model.barrier * hertz, model.latency * hertz, model.copy_bandwidth * per_unit
        values = {
            "issue": issue,
            "ports_issue": 1.0,
            "double_issue": 1.0,
            "schedulers": max(issue / WARP, 1.0),
            "one_warp": 1.0,
            "eight_terms": 1.0,
            "alone_clocks": barrier,
            "copy_issue": 2.0,
            "step_issue": 38.0,
            "copy_clocks": 2 * RUN_BYTES / (model.local_bandwidth * per_unit),
            "piecemeal": 1.0,
            "term_clocks": barrier / 2,
            "far_clocks": latency,
            "sharpness": SHARPNESS,
            "store_bytes_per_clock": copied,
            "single_bytes_per_clock": copied,
            "short_rows": 1.0,
            "short_runs": 0.0,
            "many_sums": 0.0,
            "few_steps": 1.0,
            "read_clocks": 3 * latency,
            "slice_clocks": barrier,
            "part_clocks": 3 * barrier,
            "launch_clocks": model.launch * hertz,
            "pass_bytes_per_clock": copied,
            "wait_clocks": 3 * latency,
            "in_step": 0.0,
        }
        stated, types = model.constants("simt"), ("float32", "float64")
        return cls(
            units=units,
            lanes={name: model.multiply_adds[name] * per_unit for name in types},
            matrix_lanes={name: _matrix_rate(name, model) * per_unit for name in types},
            **{name: stated.get(name, value) for name, value in values.items()},
        )


def matrix_rate(problem: GemmProblem, model: DeviceModel) -> float:
    """Multiply-adds per second of the matrix unit by which `simt` multiplies; complex ones count four."""
    return _matrix_rate(_part(problem), model) / _products(problem)


def _matrix_rate(arithmetic: str, model: DeviceModel) -> float:
    """Likewise of a type of real numbers: as it was measured, or else as many times those of the other units as is stated."""
    times = model.constants("simt").get("matrix_rate", 1.0)
    return model.matrix_multiply_adds.get(arithmetic, times * model.multiply_adds[arithmetic])


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
        side_by_side: work-items of a warp in one row.
        by_line: "", "a", "b" or "ab": operands that lie along k and are copied in runs nevertheless.
        exchanged: whether the matrix unit's columns are rows of A, and not columns of B.
        eight_terms: whether an instruction of the matrix unit adds up eight terms.
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
    side_by_side: int = NEIGHBOURS
    by_line: str = ""
    exchanged: bool = False
    eight_terms: bool = False


def sharing_of(tiles: int, steps: int, groups: int) -> tuple[int, int]:
    """How many of so many tiles, of so many steps each, are shared, and by how many of so many groups: those behind the last
    whole round of all groups; none, by nobody, where there are no groups for it, or each would have no less to do than a tile.
    """
    shared = tiles % groups if groups else 0
    sharers = min(groups, shared * steps // MIN_STEPS)
    return (shared, sharers) if sharers > shared else (0, 0)


def clocks(problem: GemmProblem, constants: Constants, tiling: Tiling) -> float:
    """Clocks that a product takes from its first group to its last."""
    return sum(phase.clocks(constants) for phase in phases(problem, constants, tiling))


def pass_clocks(nbytes: int, constants: Constants) -> float:
    """Clocks of a pass that lays so many bytes out anew."""
    return constants.launch_clocks + 2 * nbytes / (constants.pass_bytes_per_clock * constants.units)


@dataclass(frozen=True)
class Phase:
    """What a unit does before what comes next can begin; clocks of one of its waves.

    Attributes:
        waves: one after the other.
        groups: at once, of the fullest unit.
        multiply_adds, copies, latency, stores: limits of the loop, each of which hides the others in part. Stores are those of
            single elements, beside the loop.
        others: what nothing hides, by the name of a part of a prediction.
    """

    waves: int
    groups: int
    multiply_adds: float
    copies: float
    latency: float
    stores: float
    others: Mapping[str, float]

    def clocks(self, constants: Constants) -> float:
        """Of all of its waves."""
        limits = (self.multiply_adds, self.copies, self.latency, self.stores)
        joined: float = sum(limit**constants.sharpness for limit in limits) ** (1 / constants.sharpness)
        return self.waves * (joined + sum(self.others.values()))


def phases(problem: GemmProblem, constants: Constants, tiling: Tiling) -> list[Phase]:
    """What a product consists of: waves that fill the device, the last one, shared tiles."""
    units = constants.units
    tiles = ceil_div(problem.m, tiling.rows) * ceil_div(problem.n, tiling.columns) * problem.batch
    steps = max(ceil_div(problem.effective_k, tiling.depth), 1)
    shared, sharers = sharing_of(tiles, steps, tiling.share * units)
    whole, copied = tiles - shared, _Copied.of(problem, constants, tiling)

    # All units hold as many groups as they can, but in the last wave, which is as long as that of the fullest unit.
    waves, rest = divmod(whole, tiling.resident * units)
    fullest = min(tiling.resident, rest) if _in_step(waves, constants, tiling) else ceil_div(rest, units)
    found = [_launch(constants.launch_clocks)]
    if waves:
        found.append(_whole_wave(problem, constants, tiling, copied, waves, tiling.resident, steps))
    if rest:
        found.append(_whole_wave(problem, constants, tiling, copied, 1, fullest, steps))
    if shared:
        part = ceil_div(shared * steps, sharers)
        parts = 2 if sharers % shared else 1  # of different tiles, of most sharers
        groups = ceil_div(sharers, units)
        moved = (sharers * parts + shared) * tiling.rows * tiling.columns * problem.dtype.itemsize
        added = sharers / shared * constants.part_clocks + moved / (constants.store_bytes_per_clock * units)
        others = {"latency": parts * _ends(problem, constants, tiling, copied, groups), "parts": added}
        loop = _loop(problem, constants, tiling, copied, 1, groups, part, others, shared=True)
        found += [loop, _launch(constants.launch_clocks)]
        if whole:
            found.append(_launch(constants.launch_clocks + constants.wait_clocks))
    return found


def _in_step(waves: int, constants: Constants, tiling: Tiling) -> bool:
    """Whether units have two places at one time behind so many waves: of two groups, neither has more than a warp for each
    scheduler, nor do they multiply by the matrix unit.
    """
    pair = tiling.resident == 2 and _items(tiling) * tiling.slices <= constants.schedulers * WARP
    return pair and not tiling.matrix and 0 < waves <= constants.in_step


def _launch(clocks: float) -> Phase:
    return Phase(1, 0, 0.0, 0.0, 0.0, 0.0, {"launches": clocks})


@dataclass(frozen=True)
class _Copied:
    """What a group has copied to local memory for a step.

    Attributes:
        instructions: that do so.
        clocks: of one unit's memory pipe; larger elements, one by one, lie in more pieces of memory.
    """

    instructions: float
    clocks: float

    @classmethod
    def of(cls, problem: GemmProblem, constants: Constants, tiling: Tiling) -> _Copied:
        size, operands = problem.dtype.itemsize, _operands(problem, tiling)
        instructions = tiling.depth * sum(lines if singly else lines * size / RUN_BYTES for lines, singly in operands)
        copies = tiling.depth * sum(
            lines * (size / WORD_BYTES) ** 0.5 if singly else lines * size / RUN_BYTES for lines, singly in operands
        )
        piecemeal = _narrower(problem, tiling) and any(
            problem.alignment(operand) % RUN_BYTES for operand in ("a", "b", "d")
        )
        return cls(instructions, copies * constants.copy_clocks * (constants.piecemeal if piecemeal else 1.0))


def _whole_wave(
    problem: GemmProblem, constants: Constants, tiling: Tiling, copied: _Copied, waves: int, groups: int, steps: int
) -> Phase:
    """One unit with so many groups at once, each with a tile of its own."""
    results = _results(problem, tiling)
    stored = results / constants.store_bytes_per_clock
    if problem.reads("c"):
        stored += ceil_div(_runs(problem, tiling), RUNS_READ) * constants.read_clocks
    more = max(tiling.item_rows * tiling.item_columns / FEW_SUMS - 1, 0.0)
    left = more * constants.many_sums / (1 + (steps / constants.few_steps) ** 2)
    stored += left * groups * results / constants.store_bytes_per_clock
    short, aligned = tiling.side_by_side < NEIGHBOURS, problem.alignment("d") % RUN_BYTES == 0
    runs, rows = (constants.short_runs, constants.short_rows) if short else (0.0, 1.0)
    share = (runs if tiling.matrix else 0.0) if aligned else rows
    singly = share * groups * results / constants.single_bytes_per_clock
    others = {"latency": _ends(problem, constants, tiling, copied, groups), "results": stored}
    return _loop(problem, constants, tiling, copied, waves, groups, steps, others, singly)


def _loop(
    problem: GemmProblem, constants: Constants, tiling: Tiling, copied: _Copied, waves: int, groups: int, steps: int,
    others: Mapping[str, float], beside: float = 0.0, *, shared: bool = False,
) -> Phase:  # fmt: skip
    """One unit with so many steps of so many groups at once, and with what it does beside them."""
    items = _items(tiling)
    products = items * tiling.item_rows * tiling.item_columns * tiling.depth * _products(problem)
    at_once, terms = (MATRIX_PRODUCTS, MATRIX_TERMS) if tiling.matrix else (1, 1)
    # What a work-item reads of local memory for a step, one after the other.
    awaited = tiling.depth / (2 * terms if tiling.eight_terms else terms)
    # The matrix unit's columns, of D or of D turned, are spread over twice as many work-items.
    rows_shared, columns_shared = (2, 1) if tiling.exchanged else (1, 2 if tiling.matrix else 1)
    read = tiling.item_rows / rows_shared + tiling.item_columns / columns_shared
    reads = items * read * tiling.depth / terms * problem.dtype.itemsize / RUN_BYTES
    multiplied = products / at_once * (1.0 if _keeps_order(problem, tiling, shared) else constants.ports_issue)
    overhead = constants.copy_issue * copied.instructions + constants.step_issue * items * tiling.slices
    computed = products / (constants.matrix_lanes if tiling.matrix else constants.lanes)[_part(problem)]
    if tiling.matrix:
        one_warp = groups * items * tiling.slices <= constants.schedulers * WARP
        longer = constants.eight_terms if tiling.eight_terms else constants.one_warp if one_warp else 1.0
        computed *= longer
    elif _part(problem) == "float64":
        computed *= constants.double_issue
    slots = max((multiplied + reads + overhead) / constants.issue, computed)
    if tiling.matrix and tiling.resident == 1:
        slots += constants.alone_clocks
    return Phase(
        waves=waves,
        groups=groups,
        multiply_adds=groups * steps * slots,
        copies=groups * steps * copied.clocks,
        latency=steps
        * max(constants.term_clocks * awaited / tiling.slices, constants.far_clocks / (tiling.stages - 1)),
        stores=beside,
        others=others,
    )


def _narrower(problem: GemmProblem, tiling: Tiling) -> bool:
    """Whether a product has fewer rows or columns than a tile, so that each copy asks whether its line is there."""
    return problem.m < tiling.rows or problem.n < tiling.columns


def _keeps_order(problem: GemmProblem, tiling: Tiling, shared: bool) -> bool:
    """Whether the loop comes in the order that is made for the register file's ports. Where work-items with many sums have more
    conditions for their copies than there are registers for them, most loops of shared tiles stay as they were compiled, and
    those of three groups, whose work-items spill; most others do not (docs/simt.md).
    """
    has_room = tiling.item_rows * tiling.item_columns <= FEW_SUMS or not (shared or tiling.resident > 2)
    if not tiling.in_order or has_room or not _narrower(problem, tiling):
        return tiling.in_order
    extents = zip(_operands(problem, tiling), (problem.m, problem.n), strict=True)
    conditions = tiling.depth * sum(lines for (lines, singly), extent in extents if singly and extent % lines)
    return conditions <= CONDITIONS * _items(tiling) * tiling.slices


def _items(tiling: Tiling) -> int:
    """Work-items of a slice."""
    return tiling.rows * tiling.columns // (tiling.item_rows * tiling.item_columns)


def _ends(problem: GemmProblem, constants: Constants, tiling: Tiling, copied: _Copied, groups: int) -> float:
    """Clocks of one unit for the first copies of so many groups at once, and for adding up their slices."""
    added = (tiling.slices - 1) * _runs(problem, tiling) * constants.slice_clocks
    return groups * copied.clocks + added


def _runs(problem: GemmProblem, tiling: Tiling) -> int:
    """Runs of a work-item's sums."""
    return ceil_div(tiling.item_rows * tiling.item_columns * problem.dtype.itemsize, RUN_BYTES)


def _results(problem: GemmProblem, tiling: Tiling) -> int:
    """Bytes of a tile's results, of the fullest tile."""
    return min(tiling.rows, problem.m) * min(tiling.columns, problem.n) * problem.dtype.itemsize


def _operands(problem: GemmProblem, tiling: Tiling) -> tuple[tuple[int, bool], tuple[int, bool]]:
    """Lines of a tile of A and of B, and whether their elements are copied one by one, as they are along k, and where they are
    not aligned.
    """
    a = not transposes(problem.trans_a) or problem.alignment("a") % RUN_BYTES != 0
    b = transposes(problem.trans_b) or problem.alignment("b") % RUN_BYTES != 0
    return (tiling.rows, a and "a" not in tiling.by_line), (tiling.columns, b and "b" not in tiling.by_line)


def _products(problem: GemmProblem) -> int:
    """Of real numbers, for one of the product's."""
    return 4 if problem.dtype.kind == "complex" else 1


def _part(problem: GemmProblem) -> str:
    """The type of arithmetic of the product's numbers."""
    return "float64" if problem.accumulator.name in ("float64", "complex128") else "float32"
