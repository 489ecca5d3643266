"""`batched`: batches of small products, several of them for each group, their operands whole in local memory."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

from gemmport.contracts.device_model import DeviceModel, Prediction
from gemmport.contracts.kernel import (
    Constraint,
    KernelVariant,
    Parameter,
    Parameters,
    Rankings,
    Tile,
    ceil_div,
    gemm_arguments,
    run_defines,
)
from gemmport.contracts.prediction import USUAL_ITEMS, facts_of, joined
from gemmport.core.device import DeviceInfo
from gemmport.core.plan import Integer, Launch, ParameterValue
from gemmport.core.problem import OPERANDS, GemmProblem, Operand, transposes

RUN_BYTES = 16
"""Bytes of sums that a work-item reads at once from local memory: the most that one instruction moves."""

MOST_WIDTH = 4
"""Numbers of a run at most: a work-item has whole runs of its rows and columns."""

FITTED = {
    "most_items": "work-items of a group: several small ones overlap better than few large ones",
    "most_bytes": "of a group's local memory: several groups share a compute unit",
    "most_extent": "rows, columns and terms of the products that it is chosen for: larger ones are worth a group of their own",
    "most_numbers": "of A, B and D of a product that it is chosen for",
    "read_share": "of the bandwidth of memory, that it reaches",
    "share": "of a CPU's multiply-adds and local memory, that it reaches: its runtime makes vectors of work-items",
    "least_per_unit": "products of a batch for each compute unit that it is chosen for. `simt`'s groups, of one product each, "
    "run side by side as long as they are few, and are done sooner; more of them take turns",
}

USUAL = {
    "most_items": 160,
    "most_bytes": 40960,
    "most_extent": 32,
    "most_numbers": 768,
    "least_per_unit": 6,
    "read_share": 1.0,
    "share": 0.035,
}
"""Where the device's model states nothing: defaults. Those of Hopper, which were measured, are in its model."""

ALIGNED_FROM = MOST_WIDTH
"""So many dense matrices of any size, and every larger power of two of them, are whole runs. With two in a group, 30,000
products of 21 × 25 × 1, 25 × 25 × 2 and 23 × 29 × 1 in float32 took 1.1, 1.6 and 1.2 times as long as `simt` on an H200; with
four, of 4 × 8 per work-item, 0.68, 1.04 and 0.78 times (benchmarks/results/h200/study/batched-few.json).
"""

_POWERS = (256, 128, 64, 32, 16, 8, 4, 2, 1)


class Batched(KernelVariant):
    """A group computes a tile of TSM × TSN of each of PRODUCTS neighbouring products of the batch, stepping along k by TSK; a
    work-item WPTM × WPTN of one product. Tiles may have any size, best that of the matrices: where these are dense, a group
    reads and writes neighbours of the batch as one row of memory.
    """

    name = "batched"
    summary = "batches of small products: several of them for each group, whole in local memory"
    parameters = (
        Parameter("TSM", 16, "rows of the tile", maximum=256),
        Parameter("TSN", 16, "columns of the tile", maximum=256),
        Parameter("TSK", 16, "depth of the tile: terms of the sum per step", maximum=512),
        Parameter("WPTM", 4, "rows per work-item", choices=(4, 8)),
        Parameter("WPTN", 4, "columns per work-item", choices=(4, 8)),
        Parameter("PRODUCTS", 4, "products of a group", maximum=256),
    )
    constants: ClassVar = FITTED
    constraints = (
        Constraint(
            "⌈TSM / WPTM⌉ · ⌈TSN / WPTN⌉ · PRODUCTS ≤ 1024, the work-items of a group",
            lambda TSM, TSN, WPTM, WPTN, PRODUCTS: ceil_div(TSM, WPTM) * ceil_div(TSN, WPTN) * PRODUCTS <= 1024,
        ),
    )

    def tile(self, parameters: Parameters) -> Tile:
        return Tile(int(parameters["TSM"]), int(parameters["TSN"]), int(parameters["TSK"]))

    def work_group(self, parameters: Parameters) -> tuple[int, int, int]:
        tile = self.tile(parameters)
        blocks = ceil_div(tile.rows, int(parameters["WPTM"])) * ceil_div(tile.columns, int(parameters["WPTN"]))
        return blocks * int(parameters["PRODUCTS"]), 1, 1

    def local_bytes(self, parameters: Parameters, problem: GemmProblem) -> int:
        """The tiles of all products, and later their results, in whole runs."""
        tile, products, width = self.tile(parameters), int(parameters["PRODUCTS"]), _width(problem)
        along_a, along_b = not transposes(problem.trans_a), transposes(problem.trans_b)
        operands = _numbers(tile.rows, tile.depth, width, along_a) + _numbers(tile.columns, tile.depth, width, along_b)
        results = ceil_div(products * tile.rows * tile.columns, width) * width
        return max(products * operands, results) * problem.accumulator.sum_bytes

    def registers(self, parameters: Parameters, problem: GemmProblem) -> int:
        """Of sums, and of a term of each row and column."""
        rows, columns = int(parameters["WPTM"]), int(parameters["WPTN"])
        return ceil_div((rows * columns + rows + columns) * problem.accumulator.sum_bytes, 4)

    def declined(
        self, problem: GemmProblem, device: DeviceInfo, model: DeviceModel, rankings: Rankings | None = None
    ) -> str | None:
        m, n, k = problem.m, problem.n, problem.effective_k
        own = _constants(model)
        least, most = own["least_per_unit"] * device.compute_units, own["most_extent"]
        if max(m, n, k) > most or problem.batch < least:
            return (
                f"it is for {least} products or more, {own['least_per_unit']} for each compute unit, of at most {most} rows, "
                f"columns and terms, and these are {problem.batch} of {m} × {n} × {k}"
            )
        numbers = m * k + k * n + m * n
        if numbers > own["most_numbers"]:
            return (
                f"it is for products of at most {own['most_numbers']} numbers in A, B and D, and those of {m} × {n} × {k} have "
                f"{numbers:,}"
            )
        products = (rankings or Rankings(device, model)).suggested(self, problem).get("PRODUCTS", 0)
        if int(products) < ALIGNED_FROM:
            return (
                f"it is for groups of {ALIGNED_FROM} products or more; one has room for {products} of {m} × {n} × {k}"
            )
        return None

    def considered(self, problem: GemmProblem, device: DeviceInfo, model: DeviceModel) -> Sequence[Parameters]:
        """Tiles of the size of the matrices, of as many products as a group has room for, but not of so many that compute
        units have none; empty where the matrices are too large. Their number is a power of two, for the sake of alignment.
        Where fewer than ALIGNED_FROM fit, a work-item computes 4 × 8 instead of 4 × 4.
        """
        own = _constants(model)
        if max(problem.m, problem.n) > own["most_extent"]:
            return []
        small, wide = (self._fitting(problem, device, own, {**_whole(problem), "WPTN": columns}) for columns in (4, 8))
        best = wide if small.get("PRODUCTS", 0) < min(ALIGNED_FROM, wide.get("PRODUCTS", 0)) else small
        return [best] if best else []

    def predicted(
        self, problem: GemmProblem, device: DeviceInfo, model: DeviceModel, parameters: Parameters
    ) -> Prediction:
        own, units = {**USUAL, **model.constants(self.name)}, max(device.compute_units, 1)
        tile, products = self.tile(parameters), int(parameters["PRODUCTS"])
        rows, columns = (int(parameters[name]) for name in ("WPTM", "WPTN"))
        items, terms = self.work_group(parameters)[0], max(problem.effective_k, 1)
        tiles = ceil_div(problem.m, tile.rows) * ceil_div(problem.n, tile.columns)
        groups = tiles * ceil_div(problem.batch, products)
        resident = max(
            min(USUAL_ITEMS * 2 // items, device.local_memory // max(self.local_bytes(parameters, problem), 1)), 1
        )
        of_fullest = math.ceil(groups / units)
        waves = math.ceil(of_fullest / resident)
        size = problem.accumulator.sum_bytes
        # On a GPU, few work-items leave a unit waiting for each other's results.
        hidden = min(1.0, items * min(of_fullest, resident) / USUAL_ITEMS)
        if device.type == "cpu":
            hidden = own["share"]
        overlapping = {
            "multiply-adds": of_fullest
            * items
            * rows
            * columns
            * terms
            * units
            / (model.rate(problem.accumulator) * hidden),
            "local memory": of_fullest
            * items
            * (rows + columns)
            * terms
            * size
            * units
            / (model.local_bandwidth * hidden),
            "global memory": problem.bytes / (own["read_share"] * model.read_bandwidth),
            "latency": waves * ceil_div(terms, tile.depth) * (2 * model.latency + 3 * model.barrier),
        }
        others = {"launches": model.launch, "groups": of_fullest * model.group if device.type == "cpu" else 0.0}
        facts = facts_of(problem, tile.rows, tile.columns, units * resident * products)
        return Prediction({**overlapping, **others}, sum(others.values()) + joined(overlapping), facts)

    def _fitting(
        self, problem: GemmProblem, device: DeviceInfo, own: Mapping[str, int], tile: dict[str, int]
    ) -> dict[str, int]:
        """The tile with the most products that a group has room for; empty where it has none."""
        most_items = min(device.max_work_group, device.max_work_item_sizes[0], own["most_items"])
        most_bytes = min(device.local_memory, own["most_bytes"])
        for products in _POWERS:
            values = {**tile, "PRODUCTS": products}
            full = self.complete({**values, "PRODUCTS": 1})
            items, nbytes = self.work_group(full)[0], self.local_bytes({**full, "PRODUCTS": products}, problem)
            fills = products <= ALIGNED_FROM or products * device.compute_units <= problem.batch
            if items * products <= most_items and nbytes <= most_bytes and fills:
                return values
        return {}

    def defines(self, parameters: Parameters, problem: GemmProblem) -> dict[str, ParameterValue]:
        width = _width(problem)
        runs: dict[str, ParameterValue] = {}
        for operand in OPERANDS:
            flat, aligned = self._lies(operand, parameters, problem)
            runs |= {f"FLAT_{operand.upper()}": int(flat), f"RUN_{operand.upper()}": width if aligned else 1}
        for name in ("FLAT", "RUN"):  # C and D go together
            runs[f"{name}_D"] = min(int(runs[f"{name}_D"]), int(runs.pop(f"{name}_C")))
        of_runs = run_defines(problem, width)
        return {
            **super().defines(parameters, problem),
            **{
                name: of_runs[name]
                for name in ("IN_RUN_BYTES", "OUT_RUN_BYTES", "SUM_LANES", "LOADS_SUMS", "STORES_SUMS")
            },
            **runs,
            "ALIGNED_D": 1,
            "WIDTH": width,
        }

    def _lies(self, operand: Operand, parameters: Parameters, problem: GemmProblem) -> tuple[bool, bool]:
        """Whether the tiles of a batch follow each other in memory without a gap, and whether they are moved in runs."""
        tile, width = self.tile(parameters), _width(problem)
        rows, columns = {"a": (tile.rows, tile.depth), "b": (tile.depth, tile.columns)}.get(operand, tile[:2])
        if operand in ("a", "b") and transposes(problem.trans_a if operand == "a" else problem.trans_b):
            rows, columns = columns, rows
        layout, size = problem.layout(operand), problem.element_type(operand).itemsize
        whole = replace(problem, k=problem.effective_k).stored_shape(operand) == (rows, columns)
        if whole and layout.ld == columns and layout.batch_stride == rows * columns:
            of_group = replace(layout, ld=0, batch_stride=int(parameters["PRODUCTS"]) * layout.batch_stride)
            return True, of_group.alignment(size) % (width * size) == 0
        return False, operand in ("a", "b") and columns % width == 0 and layout.alignment(size) % (width * size) == 0

    def product(
        self, problem: GemmProblem, parameters: Parameters, prepared: Mapping[Operand, str] | None = None
    ) -> Launch:
        tile = self.tile(parameters)
        tiles = ceil_div(problem.m, tile.rows) * ceil_div(problem.n, tile.columns)
        return Launch(
            self.source(self.defines(parameters, problem)),
            groups=(tiles * ceil_div(problem.batch, int(parameters["PRODUCTS"])), 1, 1),
            work_group=self.work_group(parameters),
            arguments=(*gemm_arguments(problem, prepared), Integer(problem.batch, bits=32)),
            local_bytes=self.local_bytes(parameters, problem),
        )


def _constants(model: DeviceModel) -> Mapping[str, int]:
    """Numbers by which products are chosen and tiled."""
    stated = {**USUAL, **model.constants("batched")}
    return {name: int(value) for name, value in stated.items() if name not in ("read_share", "share")}


def _whole(problem: GemmProblem) -> dict[str, int]:
    """Tiles of the size of the matrices, as deep as a tile may be."""
    return {"TSM": max(problem.m, 1), "TSN": max(problem.n, 1), "TSK": min(max(problem.effective_k, 1), 512)}


def _width(problem: GemmProblem) -> int:
    """Elements of a run."""
    return min(RUN_BYTES // problem.accumulator.sum_bytes, MOST_WIDTH)


def _numbers(lines: int, terms: int, width: int, along: bool) -> int:
    """Numbers of local memory for one product's tile of an operand: an odd number of runs, as is each of its lines along k."""
    runs = lines * (ceil_div(terms, width) | 1) if along else terms * ceil_div(lines, width)
    return (runs | 1) * width


VARIANT = Batched()
