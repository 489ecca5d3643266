"""Which tilings `simt` chooses among for a problem on a device, and which of them the model expects to be the fastest."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from gemmport.contracts.device_model import DeviceModel, Prediction, clock
from gemmport.contracts.gpu_model import FEW_SUMS, NEIGHBOURS, WARP, Constants, Tiling, clocks, pass_clocks, phases
from gemmport.contracts.kernel import KernelVariant, Parameters, check_limits
from gemmport.contracts.nvidia import MOST_REGISTERS, copies_asynchronously, float64_matrix_rows, is_hopper
from gemmport.contracts.prediction import facts_of
from gemmport.core.device import DeviceInfo
from gemmport.core.dtypes import FLOAT32, FLOAT64
from gemmport.core.errors import ParameterError
from gemmport.core.plan import ParameterValue
from gemmport.core.problem import GemmProblem, Operand, transposed, transposes
from gemmport.kernels import transpose

MOST_OF_MEMORY = 1 / 16
"""Of the device's, that operands take that are transposed beforehand: others need it, too."""

FITTED = {
    "most_registers": "of a work-item",
    "addresses": "registers of a work-item beside sums and what is read ahead",
    "across_terms": "of a product whose operands are transposed beforehand, at least: of fewer it was not measured; 0: never",
    "across_doubt": "a product whose operands are transposed beforehand must be expected to gain so much",
    "across_matrix_doubt": "likewise with the matrix unit, which asks for more of memory",
    "read_share": "of memory's bandwidth, that tiles reach at most: between waves, and at both ends, nothing is on its way",
    "piece_share": "of that, of operands along k whose tiles have less than a line of the caches of each row",
    "line_stages": "tiles at once with LINES, at least: with fewer the unit waits for copies, which no prediction knows",
}
"""What a device's model may state for the choice, beside the constants of `gemmport.contracts.gpu_model`, with its meaning."""

USUAL = {
    "most_registers": 128, "addresses": 31, "across_terms": 0, "across_doubt": 1.0, "across_matrix_doubt": 1.0,
    "read_share": 0.85, "piece_share": 1.0, "line_stages": 3,
}  # fmt: skip
"""Where it states nothing: registers that most GPUs have, and NVIDIA's more; defaults; nothing that was not measured."""

SMALLEST = {
    "TSM": 16, "TSN": 32, "TSK": 8, "WM": 16, "WN": 32, "WPTM": 4, "WPTN": 4, "SLICES": 1, "STAGES": 2, "GROUPS": 8, "PORTS": 0,
}  # fmt: skip
"""Where local memory or registers have room for no other: 14 KB, and more than 128 registers, of complex128."""

_EXTENTS = (16, 32, 64, 128)

_ITEM_TILES = ((8, 8), (8, 4), (4, 4))

_LARGE_EXTENTS, _LARGE_ITEM_TILES = (64, 128, 256), ((8, 16), (16, 8))
"""Of work-items with many sums, where they may have the registers: so many multiply-adds for each read of local memory."""

MANY_SUMS = 128
"""Of a work-item of these."""

_LEAST_LARGE_ITEMS = 4 * WARP
"""Of a group of these, without slices: a warp for each of a unit's four schedulers, which NVIDIA's GPUs have since Maxwell, or
of AMD's four SIMDs. Smaller groups and slices took 1.4 to 1.9 times as long as the model expects on an H100, the one GPU that
has run both (benchmarks/results/h100/tuning/kriging-cuda.json, kriging-opencl.json).
"""

_MOST_ITEMS = 256

USUAL_STAGES, STAGES_OF_COPIES = 3, 4
"""Where tiles pass through registers, and where they are copied meanwhile. A fourth costs registers where they pass through
them, and spills on Intel's GPUs (ocloc, dg2).
"""

_USUAL_ITEMS = 512
"""Work-items of a compute unit that hide each other's waits."""

_FEW_ITEMS = 256
"""Work-items of a compute unit that have all registers that one may have, on NVIDIA's GPUs."""


def generated(width: int = WARP, stages: int = USUAL_STAGES, *, ports: bool = False) -> tuple[Mapping[str, int], ...]:
    """Tilings for a device of which no file has any.

    Large tiles need few loads; small ones, and slices, fill a device with small products. Extents are powers of two. A side is
    at most four times the other. A group has one to eight warps. A unit has as many groups as hide each other's waits, or half
    as many: then fewer groups share the tiles of the last wave, and fewer parts are added up.

    Args:
        width: of the device's own warps, wavefronts or sub-groups, which a group consists of; 0 where it is not known. A warp
            of 32 work-items is here no more than a part of the tile.
        stages: as many as hide memory's latency.
        ports: whether there is an order of instructions for the register file's ports: those with the registers for it come
            in that order, too, and first.
    """
    found = []
    for rows, columns, item_rows, item_columns in _tiles():
        items = rows * columns // (item_rows * item_columns)
        warp = _warp_tile(rows, columns, item_rows, item_columns)
        if warp is None or max(rows, columns) > 4 * min(rows, columns):
            continue
        sums = item_rows * item_columns
        many = sums >= MANY_SUMS
        for slices in (1, 2, 4):
            if items * slices > _MOST_ITEMS or (slices > 1 and items > 128) or items * slices % max(width, 1):
                continue
            if many and (slices > 1 or items < _LEAST_LARGE_ITEMS):
                continue
            depth = 32 if slices == 4 else 8 if items > 128 or many else 16
            if slices > 1 and rows * columns > USUAL_STAGES * depth * (rows + columns):  # sums go where the tiles were
                continue
            most = min(max(_USUAL_ITEMS // (items * slices), 1), 8)
            found += [
                {
                    "TSM": rows, "TSN": columns, "TSK": depth,
                    "WM": warp[0], "WN": warp[1], "WPTM": item_rows, "WPTN": item_columns, "SLICES": slices,
                    "STAGES": stages, "GROUPS": groups, "PORTS": order,
                }
                for groups in sorted({most, max(most // 2, 1)})
                for order in ((1, 0) if ports and sums >= FEW_SUMS and groups * items * slices <= _FEW_ITEMS else (0,))
            ]  # fmt: skip
    return tuple(found)


def _tiles() -> Iterator[tuple[int, int, int, int]]:
    """Rows and columns of tiles, and those of a work-item."""
    for extents, item_tiles in ((_EXTENTS, _ITEM_TILES), (_LARGE_EXTENTS, _LARGE_ITEM_TILES)):
        for rows, columns in itertools.product(extents, extents):
            for item_rows, item_columns in item_tiles:
                yield rows, columns, item_rows, item_columns


RUN_BYTES = 16
"""What a work-item reads and copies at once: the most that one instruction moves."""

MATRIX_ROWS = 16
"""Of a product of NVIDIA's matrix unit from Hopper on."""

MATRIX_SIDE_BY_SIDE = 4
"""Work-items of a warp that have its sums of one row, of 8 columns (PTX ISA, mma.m16n8k4 and mma.m8n8k4)."""

_MATRIX_ITEM_TILES = ((8, 8), (4, 16), (4, 8), (4, 4))

_LEAST_MATRIX_ITEMS = 128
"""Work-items of a group that multiplies by the matrix unit: a warp for each of a unit's four schedulers."""


def generated_for_matrix_unit() -> tuple[Mapping[str, int], ...]:
    """Likewise by NVIDIA's matrix unit, which spreads a tile over a warp in its own way: of one with WPTM × WPTN per work-item,
    8 · WPTM rows and 4 · WPTN columns. Each slice has whole pairs of its 4 terms.
    """
    found = []
    for rows, columns in itertools.product(_EXTENTS[1:], _EXTENTS[1:]):
        for item_rows, item_columns in _MATRIX_ITEM_TILES:
            warp = 8 * item_rows, 4 * item_columns
            if rows % warp[0] or columns % warp[1]:
                continue
            for slices in (1, 2, 4):
                items = rows * columns // (item_rows * item_columns) * slices
                sums_fit = slices == 1 or rows * columns <= 3 * 8 * slices * (rows + columns)  # where the tiles were
                if not (sums_fit and _LEAST_MATRIX_ITEMS <= items <= _MOST_ITEMS):
                    continue
                most = min(max(_USUAL_ITEMS // items, 1), 8)
                found += [
                    {
                        "TSM": rows, "TSN": columns, "TSK": 8 * slices, "WM": warp[0], "WN": warp[1], "WPTM": item_rows,
                        "WPTN": item_columns, "SLICES": slices, "STAGES": STAGES_OF_COPIES, "GROUPS": groups, "PORTS": 0,
                        "MMA": 1, "PAD": 0,
                    }
                    for groups in sorted({most, max(most // 2, 1)})
                ]  # fmt: skip
    return tuple(found)


_LINE_ITEM_TILES = ((8, 8), (16, 4), (8, 4))
"""Of a work-item, by the unit's columns and rows."""


def generated_by_line(operand: Operand) -> tuple[Mapping[str, int], ...]:
    """Likewise of float64, with an operand that lies along k copied by line: that of the unit's columns, of which a warp has 4
    work-items side by side, and 8 of the other. Of 8 terms, each slice has pairs.
    """
    found = []
    for lines, others in itertools.product(_EXTENTS[1:], _EXTENTS[1:]):
        for item_lines, item_others in _LINE_ITEM_TILES:
            warp = 4 * item_lines, 8 * item_others
            if lines % warp[0] or others % warp[1]:
                continue
            for slices in (1, 2):
                items = lines * others // (item_lines * item_others) * slices
                depth = 16 * slices
                sums_fit = slices == 1 or lines * others <= 3 * depth * (lines + others)
                if not (sums_fit and _LEAST_MATRIX_ITEMS <= items <= _MOST_ITEMS):
                    continue
                sides = ((lines, others), warp, (item_lines, item_others))
                (rows, columns), (down, across), (item_rows, item_columns) = (
                    sides if operand == "a" else tuple(side[::-1] for side in sides)
                )
                found.append({
                    "TSM": rows, "TSN": columns, "TSK": depth, "WM": down, "WN": across, "WPTM": item_rows,
                    "WPTN": item_columns, "SLICES": slices, "STAGES": 4, "GROUPS": min(max(_USUAL_ITEMS // items, 1), 8),
                    "PORTS": 0, "MMA": 1, "PAD": 0, "LINES": 2,
                })  # fmt: skip
    return tuple(found)


# AMD's matrix cores spread a tile of 4 · WPTM rows and 16 · WPTN columns over a wave.
_OF_CORES = {"SLICES": 1, "STAGES": 2, "GROUPS": 1, "PORTS": 0, "MMA": 2, "PAD": 4}
FOR_CORES: Mapping[str, tuple[Mapping[str, int], ...]] = {
    "float32": tuple(
        {"TSM": rows, "TSN": columns, "TSK": 16, "WM": 64, "WN": 64, "WPTM": 16, "WPTN": 4, **_OF_CORES}
        for rows, columns in ((64, 64), (64, 128), (128, 64), (128, 128))
    ),
    "float64": tuple(
        {"TSM": rows, "TSN": columns, "TSK": 8, "WM": 32, "WN": 64, "WPTM": 8, "WPTN": 4, **_OF_CORES}
        for rows, columns in ((32, 64), (32, 128), (64, 64), (64, 128))
    ),
}
"""Tilings for them, by type, of which a wave has 64 sums and 32 for each work-item, and spills nothing (clang 19, gfx90a)."""


INPUTS: tuple[Operand, ...] = ("a", "b")


def of_columns(parameters: Parameters) -> Operand:
    """The operand of the matrix unit's columns, of which a warp has 4 work-items side by side."""
    return "b" if int(parameters["WN"]) == MATRIX_SIDE_BY_SIDE * int(parameters["WPTN"]) else "a"


def by_line(parameters: Parameters, problem: GemmProblem) -> str:
    """The operands that a tiling copies in runs along k: "", "a", "b" or "ab".

    With LINES this is the operand of the matrix unit's columns, if it lies along k, its rows are aligned to runs, and its terms
    are whole runs. With LINES = 2 it is the other operand, too, if that one lies so.
    """
    if not parameters.get("LINES"):
        return ""
    able = "".join(operand for operand in INPUTS if lies_by_line(problem, operand))
    own = of_columns(parameters)
    if own not in able:
        return ""
    return able if parameters["LINES"] == 2 else own


def lies_by_line(problem: GemmProblem, operand: Operand) -> bool:
    """Whether an operand lies along k, in whole runs that are aligned."""
    along = not transposes(problem.trans_a) if operand == "a" else transposes(problem.trans_b)
    whole = problem.k % (RUN_BYTES // problem.dtype.itemsize) == 0
    return along and whole and problem.alignment(operand) % RUN_BYTES == 0


def by_cores(dtype: str) -> str:
    """The name of the form that multiplies numbers of a type with AMD's matrix cores."""
    return f"{dtype} with MMA = 2"


TRIED_BY_8_ROWS: Mapping[str, int] = {
    "TSM": 64, "TSN": 64, "TSK": 8, "WM": 32, "WN": 32, "WPTM": 4, "WPTN": 8, "SLICES": 1, "STAGES": 3, "GROUPS": 1, "PORTS": 0,
    "MMA": 1, "PAD": 0,
}  # fmt: skip
"""With which `gemmport doctor` tries the matrix unit of NVIDIA's GPUs before Hopper: the largest tile of complex128."""


def by_8_rows(dtype: str) -> str:
    """The name of the form that multiplies numbers of a type with that unit, which has 8 rows at once."""
    return f"{dtype} with MMA = 1"


def _warp_tile(rows: int, columns: int, item_rows: int, item_columns: int) -> tuple[int, int] | None:
    """Rows and columns of a warp's tile, nearly square, with whole lines of work-items side by side where it can be; None where
    none divides the tile.
    """
    found = [
        (item_rows * side, item_columns * (WARP // side))
        for side in (1, 2, 4, 8, 16, 32)
        if rows % (item_rows * side) == 0 and columns % (item_columns * (WARP // side)) == 0
    ]
    return min(found, key=lambda tile: (tile[1] < NEIGHBOURS * item_columns, abs(tile[0] - tile[1])), default=None)


def considered(
    simt: KernelVariant, problem: GemmProblem, device: DeviceInfo, model: DeviceModel
) -> list[tuple[float, Parameters]]:
    """The tilings that fit, shared or not, or as they state, and the best of them with operands across, with the clocks that
    `gemmport.contracts.gpu_model` expects of them, in this order; empty where none fits.
    """
    constants, own = Constants.of(device, model), _own(device, model)
    sums = problem.accumulator.name
    cores = FOR_CORES[sums] if model.has_verified(simt.name, by_cores(sums)) else ()
    by_unit = (*_by_matrix_unit(problem, device, model), *cores)
    of_type = model.tilings.get(f"{simt.name}.{problem.dtype.name}", ())
    stages = STAGES_OF_COPIES if copies_asynchronously(device) else USUAL_STAGES
    ports = has_known_ports(device) and problem.accumulator.precision == FLOAT32.precision
    generic = model.tilings.get(simt.name) or generated(device.sub_group, stages, ports=ports)
    tilings = (*by_unit, *of_type, *generic)
    fitted = [values for tiling in tilings if (values := fit(simt, tiling, problem, device, own))]
    if not fitted and (values := fit(simt, SMALLEST, problem, device, {**own, "most_registers": math.inf})):
        fitted = [values]
    choices = [
        {**values, "SHARE": share, "ACROSS": 0}
        for values in fitted
        for share in ((values["SHARE"],) if "SHARE" in values else (0, values["GROUPS"]))
    ]
    expected = [(clocks(problem, constants, tiling_of(choice, problem)), choice) for choice in choices]
    turned, made = across(problem)
    measured = 0 < own["across_terms"] <= problem.effective_k
    by_element = [each for each in expected if not each[1].get("LINES")]
    if by_element and made and measured and _fit(made.values(), device):
        # In the tiling that is best without: of others the model expects too much.
        best = min(by_element, key=_first)[1]
        passes = sum(pass_clocks(each.scratch.nbytes, constants) for each in made.values())
        doubt = own["across_matrix_doubt" if best.get("MMA") else "across_doubt"]
        expected.append(((clocks(turned, constants, tiling_of(best)) + passes) * doubt, {**best, "ACROSS": 1}))
    whole = _reading_seconds(problem, LINE_BYTES, own, model) * clock(device)
    reading = {
        depth: _reading_seconds(problem, depth, own, model) * clock(device)
        for depth in {int(choice["TSK"]) for choice in choices}
    }

    def beside_memory(each: tuple[float, Parameters]) -> tuple[float, float]:
        """Of those that wait as long for memory, the one that takes the least without. Transposed, rows are whole lines."""
        found, choice = each
        return max(found, whole if choice["ACROSS"] else reading[int(choice["TSK"])]), found

    return sorted(expected, key=beside_memory)


def _own(device: DeviceInfo, model: DeviceModel) -> Mapping[str, float]:
    """The constants of `FITTED`."""
    told = {"most_registers": MOST_REGISTERS} if device.platform == "nvidia" else {}
    return {**USUAL, **told, **model.constants("simt")}


def _by_matrix_unit(problem: GemmProblem, device: DeviceInfo, model: DeviceModel) -> Sequence[Parameters]:
    """The tilings by NVIDIA's matrix unit that may be chosen without being asked for: of float64, with 16 rows at once; of
    complex128 on Hopper, where it was verified; with 8 rows at once, where `gemmport doctor` has found them right.
    """
    if problem.accumulator == FLOAT64 and float64_matrix_rows(device) == MATRIX_ROWS:
        by_line = [each for operand in INPUTS if lies_by_line(problem, operand) for each in generated_by_line(operand)]
        return model.tilings.get("simt.mma") or (*generated_for_matrix_unit(), *by_line)
    if problem.accumulator.name == "complex128" and is_hopper(device):
        return model.tilings.get("simt.mma.complex128") or generated_for_matrix_unit()
    if float64_matrix_rows(device) == MATRIX_ROWS // 2 and model.has_verified(
        "simt", by_8_rows(problem.accumulator.name)
    ):
        return generated_for_matrix_unit()
    return ()


def fit(
    simt: KernelVariant, tiling: Parameters, problem: GemmProblem, device: DeviceInfo, own: Mapping[str, float]
) -> dict[str, ParameterValue]:
    """A tiling with as many stages and groups as the device has room for; empty where it has none for it.

    Args:
        own: constants by the names of `FITTED`.
    """
    values = {**{each.name: each.default for each in simt.parameters if each.name in SMALLEST}, **tiling}
    stages = int(values["STAGES"])
    # A CUDA launch may bring more local memory than a kernel may declare. Tilings without LINES were found by trial without it.
    given = values.get("LINES") and device.language == "cuda"
    room = device.most_local_memory if given else device.local_memory
    while stages > 2 and simt.local_bytes({"PAD": 4, **values, "STAGES": stages}, problem) > room:
        stages -= 1
    if values.get("LINES") and stages < min(int(values["STAGES"]), int(own["line_stages"])):
        return {}
    try:
        full = simt.complete({**values, "STAGES": stages})
    except ParameterError:  # the sums of slices no longer fit
        return {}
    items = simt.work_group(full)[0]
    registers = simt.registers(full, problem) + int(own["addresses"])
    if (
        simt.local_bytes(full, problem) > room
        or registers > own["most_registers"]
        or items > min(device.max_work_group, device.max_work_item_sizes[0])
        or simt.unfit(full, problem, device)
    ):
        return {}
    groups = int(full["GROUPS"])
    if device.registers:
        groups = min(groups, device.registers // (items * registers))
    if given:  # a unit has hardly more than a group may have
        groups = min(groups, room // simt.local_bytes(full, problem))
    return {**values, "STAGES": stages, "GROUPS": max(groups, 1)}


def has_known_ports(device: DeviceInfo) -> bool:
    """Whether the device's compiler leaves undone what `gemmport.backends` then does: an order of instructions in which the
    register files' banks deliver what the multiply-adds ask for. Measured for NVIDIA's compute capability 9.0 alone.
    """
    return is_hopper(device)


def across(problem: GemmProblem) -> tuple[GemmProblem, dict[Operand, transpose.Prepared]]:
    """The product of operands of which none lies along k, and those that are transposed for it."""
    made: dict[Operand, transpose.Prepared] = {}
    if problem.effective_k:
        if not transposes(problem.trans_a):
            made["a"] = transpose.prepare(problem, "a", "a_across", {})
            problem = replace(problem, trans_a=transposed(problem.trans_a), a=made["a"].layout)
        if transposes(problem.trans_b):
            made["b"] = transpose.prepare(problem, "b", "b_across", {})
            problem = replace(problem, trans_b=transposed(problem.trans_b), b=made["b"].layout)
    return problem, made


def _fit(made: Collection[transpose.Prepared], device: DeviceInfo) -> bool:
    """Whether the device has room for operands that are transposed beforehand, and groups for it."""
    sizes = [each.scratch.nbytes for each in made]
    if sum(sizes) > MOST_OF_MEMORY * device.memory or max(sizes) > device.max_allocation:
        return False
    try:
        for each in made:
            check_limits(transpose.PASS.name, each.launch, {}, device)
    except ParameterError:
        return False
    return True


def _first(expected: tuple[float, Parameters]) -> float:
    return expected[0]


def tiling_of(parameters: Parameters, problem: GemmProblem | None = None) -> Tiling:
    """A tiling as the model knows it, of a problem, where one is given."""
    p = {name: int(value) for name, value in parameters.items()}
    return Tiling(
        rows=p["TSM"],
        columns=p["TSN"],
        depth=p["TSK"],
        item_rows=p["WPTM"],
        item_columns=p["WPTN"],
        resident=p["GROUPS"],
        slices=p["SLICES"],
        stages=p["STAGES"],
        share=p["SHARE"],
        matrix=bool(p.get("MMA", 0)),
        in_order=bool(p["PORTS"]),
        side_by_side=p["WN"] // p["WPTN"],
        by_line=by_line(parameters, problem) if problem is not None else "",
        exchanged=p.get("MMA") == 1 and of_columns(parameters) == "a",
        eight_terms=p.get("LINES") == 2,
    )


LINE_BYTES = 128
"""Of a line of the caches."""


def _reading_seconds(problem: GemmProblem, depth: int, own: Mapping[str, float], model: DeviceModel) -> float:
    """What memory takes for a product in steps of so many terms; more where most of it comes in pieces of rows."""
    nbytes = float(problem.bytes)
    if depth * problem.dtype.itemsize < LINE_BYTES:
        rows = (0 if transposes(problem.trans_a) else problem.m) + (problem.n if transposes(problem.trans_b) else 0)
        in_pieces = rows * problem.effective_k * problem.dtype.itemsize * problem.batch
        if 2 * in_pieces > problem.bytes:
            nbytes += in_pieces * (1 / own["piece_share"] - 1)
    return nbytes / (own["read_share"] * model.read_bandwidth)


def predicted(problem: GemmProblem, device: DeviceInfo, model: DeviceModel, parameters: Parameters) -> Prediction:
    """What `gemmport.contracts.gpu_model` expects of all parameters of `simt`."""
    constants, tiling, passes = Constants.of(device, model), tiling_of(parameters, problem), 0.0
    facts = facts_of(problem, tiling.rows, tiling.columns, constants.units * tiling.resident)
    if parameters["ACROSS"]:
        problem, made = across(problem)
        passes = sum(pass_clocks(each.scratch.nbytes, constants) for each in made.values())
    found = phases(problem, constants, tiling)
    parts = {
        "multiply-adds": sum(phase.waves * phase.multiply_adds for phase in found),
        "copies": sum(phase.waves * phase.copies for phase in found),
        "latency": sum(phase.waves * phase.latency for phase in found),
        "stores": sum(phase.waves * phase.stores for phase in found),
        "passes": passes,
    }
    for phase in found:
        for name, value in phase.others.items():
            parts[name] = parts.get(name, 0.0) + phase.waves * value
    hertz = clock(device)
    seconds = {name: value / hertz for name, value in parts.items()}
    total = (passes + sum(phase.clocks(constants) for phase in found)) / hertz
    seconds["global memory"] = _reading_seconds(problem, tiling.depth, _own(device, model), model)
    return Prediction(seconds, max(total, seconds.get("launches", 0.0) + seconds["global memory"]), facts)
