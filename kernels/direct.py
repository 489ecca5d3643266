"""`direct`: no local memory: each work-item reads runs of A and B straight into its registers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

from gemmport.contracts.device_model import DeviceModel, Prediction, clock
from gemmport.contracts.kernel import (
    Constraint,
    KernelVariant,
    Parameter,
    Parameters,
    Rankings,
    Tile,
    ceil_div,
    half_defines,
    run_defines,
)
from gemmport.contracts.prediction import SHARE, WAKE, of_tiles_on_cpu
from gemmport.core.device import DeviceInfo
from gemmport.core.dtypes import FLOAT32, FLOAT64, HALVES
from gemmport.core.plan import ParameterValue
from gemmport.core.problem import GemmProblem

WHOLE_OF_HALVES = 32, 64, 8
"""Rows, columns and terms of which products of halves on a CPU are multiples: of the tile that configs/ has for CPUs. What
crosses its edges takes Intel's runtime five seconds and more to compile, beside one in float32 and half a one of `packed`.
"""

SMALL = 1024
"""Elements of D at most, of such products: half a tile of what configs/ has for CPUs."""


FITTED = {
    "share": SHARE,
    "far": "as much of it is left where B is not in the second cache, whose rows lie far apart",
    "transposed": "as much of it is left where an operand is transposed in registers",
    "item_seconds": "to begin a work-item, and to store its sums",
    "edges": "as much of it is left where tiles cross the edges of D",
    "piecemeal": "as much of it is left where rows are not aligned for runs, and elements are read one by one",
    "wake": WAKE,
    "most_of_a_batch": "products of a batch of small ones that it is chosen for: its tiles are those of large products, and "
    "mostly edge here, which a group computes for nothing",
    "most_of_halves": "multiply-adds of a product of halves that it is chosen for: each work-item converts its elements anew",
}
"""What the model of a CPU may state, with its meaning."""

USUAL = {
    "share": 0.9, "far": 0.35, "transposed": 0.5, "edges": 0.55, "piecemeal": 0.4, "wake": 0.0,
    "most_of_a_batch": 7, "most_of_halves": 64**3,
}  # fmt: skip
"""Where it states nothing: defaults."""

ITEM_CLOCKS = 330.0
"""Of `item_seconds`, where it states none: a default, of the order of magnitude alone."""


class Direct(KernelVariant):
    """A group of THREADSX × THREADSY work-items computes THREADSY · RY × THREADSX · RX of D, a work-item RY × RX of them,
    stepping along k by RK.

    Work-items that share rows or columns read the same elements; the caches must hold them. Runs of WIDTH neighbours lie along
    rows of A, columns of B or terms, as the ops say, so that WIDTH divides the number of each.
    """

    name = "direct"
    summary = "no local memory: runs of A and B straight from global memory into registers"
    parameters = (
        Parameter("THREADSX", 16, "work-items of a group along the columns of D", maximum=64),
        Parameter("THREADSY", 8, "work-items of a group along the rows of D", maximum=64),
        Parameter("RX", 4, "columns per work-item", maximum=16),
        Parameter("RY", 4, "rows per work-item", maximum=16),
        Parameter("RK", 4, "terms of the sum per step", maximum=16),
        Parameter("WIDTH", 4, "elements moved and computed at once", choices=(1, 2, 4, 8)),
    )
    constants: ClassVar = FITTED
    constraints = (
        Constraint("RX % WIDTH = 0, whole runs of columns", lambda RX, WIDTH: RX % WIDTH == 0),
        Constraint("RY % WIDTH = 0, whole runs of rows", lambda RY, WIDTH: RY % WIDTH == 0),
        Constraint("RK % WIDTH = 0, whole runs of terms", lambda RK, WIDTH: RK % WIDTH == 0),
        Constraint(
            "RX · RY · RK ≤ 1024, the multiply-adds that a step is written out to",
            lambda RX, RY, RK: RX * RY * RK <= 1024,
        ),
    )

    def tile(self, parameters: Parameters) -> Tile:
        p = {name: int(parameters[name]) for name in ("THREADSX", "THREADSY", "RX", "RY", "RK")}
        return Tile(p["THREADSY"] * p["RY"], p["THREADSX"] * p["RX"], p["RK"])

    def work_group(self, parameters: Parameters) -> tuple[int, int, int]:
        return int(parameters["THREADSX"]), int(parameters["THREADSY"]), 1

    def registers(self, parameters: Parameters, problem: GemmProblem) -> int:
        rows, columns, terms = (int(parameters[name]) for name in ("RY", "RX", "RK"))
        return ceil_div((rows * columns + terms * (rows + columns)) * problem.accumulator.sum_bytes, 4)

    def declined(
        self, problem: GemmProblem, device: DeviceInfo, model: DeviceModel, rankings: Rankings | None = None
    ) -> str | None:
        own = {**USUAL, **model.constants(self.name)}
        most_of_halves, most_of_a_batch = int(own["most_of_halves"]), int(own["most_of_a_batch"])
        halves = problem.dtype in HALVES and problem.accumulator == FLOAT32
        if device.type == "cpu" and not halves and problem.dtype not in (FLOAT32, FLOAT64):
            return f"on CPUs, runtimes take long to compile its tiles where vectors have no elements of {problem.dtype}"
        terms = problem.m * problem.n * problem.effective_k
        if device.type == "cpu" and halves and terms > most_of_halves:
            return (
                f"on CPUs it is for {most_of_halves:,} multiply-adds at most where A and B are {problem.dtype}, which each "
                f"work-item converts anew, and these are {terms:,}"
            )
        sizes = problem.m, problem.n, problem.effective_k
        if device.type == "cpu" and halves and any(x % y for x, y in zip(sizes, WHOLE_OF_HALVES, strict=True)):
            return (
                f"on CPUs, runtimes take long to compile its edges in {problem.dtype}, and {problem.m} × {problem.n} × "
                f"{problem.k} is not a multiple of {' × '.join(map(str, WHOLE_OF_HALVES))}"
            )
        elements = problem.m * problem.n
        if device.type == "cpu" and problem.batch > most_of_a_batch and elements <= SMALL:
            return (
                f"on CPUs it is for {most_of_a_batch} products at most where D has no more than {SMALL:,} elements, and these "
                f"are {problem.batch} with {elements:,}"
            )
        return None

    def considered(self, problem: GemmProblem, device: DeviceInfo, model: DeviceModel) -> Sequence[Parameters]:
        """On CPUs, where whole vectors are what a work-item computes, those of the device's model, or else tiles of as many
        vectors as it has registers for; in the order of their predictions.
        """
        own = model.tilings.get(self.name) or (_for_cpu(device) if device.type == "cpu" else ())
        return self.ranked(own, problem, device, model)

    def predicted(
        self, problem: GemmProblem, device: DeviceInfo, model: DeviceModel, parameters: Parameters
    ) -> Prediction:
        if device.type != "cpu":
            return super().predicted(problem, device, model, parameters)
        own = {**USUAL, "item_seconds": ITEM_CLOCKS / clock(device), **model.constants(self.name)}
        tile, size = self.tile(parameters), problem.dtype.itemsize
        share = own["share"]
        if problem.trans_a != "N" or problem.trans_b != "N":
            share *= own["transposed"]
        if problem.effective_k * (problem.n + tile.rows) * size > (
            device.caches[1] if len(device.caches) > 1 else 2**18
        ):
            share *= own["far"]
        if any(problem.alignment(operand) % (int(parameters["WIDTH"]) * size) for operand in ("a", "b", "d")):
            share *= own["piecemeal"]
        items = math.prod(self.work_group(parameters))
        return of_tiles_on_cpu(
            problem, device, model, tile=tile, share=share, edges=own["edges"], items_seconds=items * own["item_seconds"],
            wake=own["wake"],
        )  # fmt: skip

    def defines(self, parameters: Parameters, problem: GemmProblem) -> dict[str, ParameterValue]:
        width = int(parameters["WIDTH"])
        return {**super().defines(parameters, problem), **run_defines(problem, width), **half_defines(problem, width)}


def _for_cpu(device: DeviceInfo) -> list[Parameters]:
    """Tiles of a work-item of two or four of the device's vectors in width, and groups for large and for small products."""
    lanes = max(device.vector_width, 4)
    columns, rows, width = (16, 8, 8) if lanes >= 16 else (16, 4, 4) if lanes == 8 else (8, 4, 4)
    return [
        {"THREADSX": side, "THREADSY": side, "RX": columns, "RY": rows, "RK": width, "WIDTH": width} for side in (4, 1)
    ]


VARIANT = Direct()
