"""How long a product in tiles is expected to take: what every kernel is held to where it has no model of its own."""

from __future__ import annotations

import math
from collections.abc import Mapping

from gemmport.contracts.device_model import DeviceModel, Prediction
from gemmport.core.device import DeviceInfo
from gemmport.core.problem import GemmProblem

SHARPNESS = 2.0
"""Of parts none hides another wholly: the powers of their times are added up, of this exponent."""

USUAL_ITEMS = 512
"""Work-items of a GPU's compute unit that hide each other's waits."""

REREAD = 4.0
"""Times as fast as memory the caches are, from which groups read again what others have read."""

SHARE = "of the device's multiply-adds, as much as its inner loop reaches where nothing else is in its way"

CPU_EDGES = 0.3
"""Of a CPU's share, as much is left where tiles cross the edges of D: work-items do not fill whole vectors there."""

ON_A_CPU = 0.05
"""The share of kernels that leave it to a CPU's runtime to make vectors of work-items: 0.01 to 0.2 under PoCL, 0.1 to 0.5 under
Intel's runtime (benchmarks/results/{pocl30,pocl31,intel}/sweep/512.csv).
"""


def facts_of(problem: GemmProblem, rows: int, columns: int, at_once: int) -> dict[str, float]:
    """What a product in tiles of so many rows and columns consists of, so many of which are computed at once.

    Returns:
        "multiply-adds" of the product; "padded": of the tiles, edges included; "bytes": the least that are moved; "groups",
        "waves", and "tail": the share of the last wave that is idle.
    """
    tiles = -(-problem.m // rows) * -(-problem.n // columns) * problem.batch
    waves, rest = divmod(tiles, max(at_once, 1))
    terms = max(problem.effective_k, 1)
    return {
        "multiply-adds": problem.m * problem.n * terms * problem.batch,
        "padded": tiles * rows * columns * terms,
        "bytes": problem.bytes,
        "groups": tiles,
        "waves": waves + bool(rest),
        "tail": 1 - rest / at_once if rest else 0.0,
    }


def joined(parts: Mapping[str, float], sharpness: float = SHARPNESS) -> float:
    """The time of parts that overlap."""
    longest = max(parts.values(), default=0.0)
    if not longest:
        return 0.0
    return float(longest * sum([(part / longest) ** sharpness for part in parts.values()]) ** (1 / sharpness))


def crossing(pitch: int, line_bytes: float) -> float:
    """The share of rows, of so many bytes from one to the next, that begin within a line of the caches: as much as one holds of
    such a row is on two lines.
    """
    line = int(line_bytes)
    return 1 - math.gcd(pitch, line) / line


WAKE = "seconds until another core takes part in a launch: so much less does each of them do meanwhile"


def waking(groups: float, of_fullest: float, group_seconds: float, units: int, wake: float) -> float:
    """Seconds that a launch takes longer because the other cores of a CPU take part only when they are awake.

    The first core does meanwhile what would be theirs: at most all of it.

    Args:
        groups: of the launch; `of_fullest`: of the core that has most of them, were all there from the start.
        group_seconds: of a core for one of them.
    """
    return min((groups - of_fullest) * group_seconds, wake * (units - 1) / units)


def of_tiles_on_cpu(
    problem: GemmProblem, device: DeviceInfo, model: DeviceModel, *,
    tile: tuple[int, int, int], share: float, edges: float, items_seconds: float = 0.0, launches: int = 1, wake: float = 0.0,
) -> Prediction:  # fmt: skip
    """A product of which a core computes tile by tile.

    Args:
        tile: as `of_tiles`.
        share: of the device's multiply-adds, that the inner loop reaches; `edges`: as much of it is left where tiles cross the
            edges of D.
        items_seconds: to begin and end the work-items of a group.
        wake: seconds until another core takes part in a launch.
    """
    rows, columns, depth = tile
    units, terms = max(device.compute_units, 1), max(problem.effective_k, 1)
    facts = facts_of(problem, rows, columns, units)
    of_fullest = math.ceil(facts["groups"] / units)
    whole = problem.m % rows == 0 and problem.n % columns == 0 and problem.k % depth == 0
    results = problem.m * problem.n * problem.batch * problem.output.itemsize
    in_caches = problem.bytes <= units * sum(device.caches)
    rate = share * (1.0 if whole else edges) * model.rate(problem.accumulator)
    parts = {
        "launches": launches * model.launch,
        "groups": of_fullest * (model.group + items_seconds),
        "multiply-adds": of_fullest * units * rows * columns * terms / rate,
        "global memory": 0.0 if in_caches else (problem.bytes - results) / model.read_bandwidth,
        "results": 0.0 if in_caches else 2 * results / model.copy_bandwidth,  # lines are read before they are written
    }
    of_group = (parts["groups"] + parts["multiply-adds"]) / of_fullest
    parts["waking"] = waking(facts["groups"], of_fullest, of_group, units, wake)
    return Prediction(parts, sum(parts.values()), facts)


def of_tiles(
    problem: GemmProblem, device: DeviceInfo, model: DeviceModel, *,
    tile: tuple[int, int, int], work_group: tuple[int, int, int], local: bool, share: float, term_reads: float | None = None,
) -> Prediction:  # fmt: skip
    """A product of which a group computes a tile, and each of its work-items as much of it as any other.

    Args:
        tile: rows and columns of a group's tile, and the terms of a step. work_group: its work-items.
        local: whether the tiles of a step are in local memory, so that a group reads them once.
        share: of the device's multiply-adds, that the inner loop reaches.
        term_reads: bytes of a term that the work-items of a group read, all together; None: each its part of the tile's sides.
    """
    if device.type == "cpu":
        return of_tiles_on_cpu(problem, device, model, tile=tile, share=share, edges=CPU_EDGES)
    rows, columns, depth = tile
    items, units = math.prod(work_group), max(device.compute_units, 1)
    resident = max(USUAL_ITEMS // items, 1)
    facts = facts_of(problem, rows, columns, units * resident)
    groups, terms, size = facts["groups"], max(problem.effective_k, 1), problem.dtype.itemsize
    of_fullest = math.ceil(groups / units)
    # Few work-items leave a unit's multiply-adders waiting for each other's results.
    filled = min(1.0, items * min(of_fullest, resident) / USUAL_ITEMS)
    multiplied = of_fullest * rows * columns * terms * units / (share * model.rate(problem.accumulator))
    if term_reads is None:
        term_reads = items * (max(rows // work_group[1], 1) + max(columns // work_group[0], 1)) * size
    item_reads = term_reads * terms
    group_reads = (rows + columns) * terms * size
    results = problem.m * problem.n * problem.batch * problem.output.itemsize * (2 if problem.beta != 0 else 1)
    steps = math.ceil(terms / depth)
    overlapping = {
        "multiply-adds": multiplied / filled,
        "local memory": of_fullest * item_reads * units / model.local_bandwidth,
        "global memory": (problem.bytes - results) / model.read_bandwidth
        + groups * (group_reads if local else item_reads / 4) / (REREAD * model.read_bandwidth),
        "latency": math.ceil(of_fullest / resident) * steps * (model.latency + (2 * model.barrier if local else 0.0)),
    }
    others = {
        "launches": model.launch,
        "groups": of_fullest * model.group,
        "results": results / model.copy_bandwidth,
    }
    return Prediction({**overlapping, **others}, sum(others.values()) + joined(overlapping), facts)
