"""Which tilings `simt` chooses among for a problem on a device, and which of them the model expects to be the fastest."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from gemmport.contracts.gpu_model import Tiling, clocks, pass_clocks
from gemmport.contracts.kernel import KernelVariant, Parameters, check_limits
from gemmport.contracts.nvidia import is_hopper, multiplies_float64_matrices
from gemmport.core.device import DeviceInfo
from gemmport.core.dtypes import FLOAT64
from gemmport.core.errors import ParameterError
from gemmport.core.problem import GemmProblem, Operand, transposed, transposes
from gemmport.kernels import transpose

MOST_REGISTERS = 255
"""Of a work-item, on NVIDIA's GPUs."""

ADDRESSES = 31
"""Registers of a work-item beside sums and what is read ahead."""

MOST_OF_MEMORY = 1 / 16
"""Of the device's, that operands take that are transposed beforehand: others need it, too."""

LEAST_TERMS = 24
"""Of a product whose operands are transposed beforehand: of fewer it was not measured."""

DOUBT, MATRIX_DOUBT = 1.005, 1.02
"""A product whose operands are transposed beforehand must be expected to gain so much; the latter with the matrix unit, which
asks for more of memory. In turns on an H200, 31 products of 46 were: they gained 0.996 to 1.09, 1.030 in the mean
(benchmarks/results/h200/study/across.json).
"""

NAMES = ("TSM", "TSN", "TSK", "WM", "WN", "WPTM", "WPTN", "SLICES", "STAGES", "GROUPS", "PORTS")
"""The parameters of a tiling, in the order of the tables."""

TILINGS = (
    (128, 256, 8, 32, 128, 8, 16, 1, 3, 1, 1),
    (64, 256, 8, 32, 128, 8, 16, 1, 3, 2, 1),
    (128, 128, 8, 64, 64, 16, 8, 1, 4, 2, 1),
    (128, 128, 8, 32, 64, 8, 8, 1, 4, 2, 0),
    (64, 128, 8, 32, 64, 8, 8, 1, 4, 3, 0),
    (128, 64, 8, 32, 64, 8, 8, 1, 4, 3, 0),
    (64, 128, 16, 32, 64, 8, 8, 2, 3, 1, 1),
    (128, 64, 16, 32, 64, 8, 8, 2, 3, 1, 0),
    (128, 48, 16, 64, 48, 8, 12, 2, 3, 2, 0),
    (128, 96, 8, 32, 96, 8, 12, 1, 4, 2, 0),
    (64, 96, 16, 64, 48, 8, 12, 2, 4, 2, 0),
    (64, 48, 16, 64, 48, 8, 12, 4, 4, 2, 0),
    (128, 32, 8, 64, 32, 8, 8, 1, 4, 6, 0),
    (64, 64, 16, 32, 32, 8, 4, 1, 4, 4, 0),
    (64, 64, 16, 32, 32, 8, 4, 2, 4, 2, 0),
    (64, 64, 16, 32, 32, 8, 4, 4, 4, 1, 0),
    (32, 64, 16, 32, 32, 8, 4, 1, 4, 6, 0),
    (32, 64, 16, 32, 32, 8, 4, 2, 4, 4, 0),
    (32, 64, 16, 32, 32, 8, 4, 4, 4, 2, 0),
    (32, 32, 8, 32, 32, 8, 4, 1, 3, 8, 0),
    (32, 32, 16, 32, 32, 8, 4, 1, 4, 8, 0),
    (32, 32, 16, 32, 32, 8, 4, 2, 4, 4, 0),
    (32, 32, 32, 32, 32, 8, 4, 4, 4, 4, 0),
    (16, 32, 32, 16, 32, 4, 4, 4, 4, 4, 0),
    (16, 128, 16, 16, 64, 4, 8, 1, 3, 4, 0),
    (128, 16, 16, 64, 16, 8, 4, 1, 3, 4, 0),
)
"""By NAMES, those among which the model chooses: large tiles need few loads, small ones and slices fill a chip with small
products. STAGES and GROUPS are the most that are taken: larger types have fewer."""

MATRIX_TILINGS = (
    (128, 128, 8, 64, 32, 8, 8, 1, 3, 1, 0),
    (64, 128, 8, 32, 64, 4, 16, 1, 4, 2, 0),
    (64, 128, 8, 32, 32, 4, 8, 1, 4, 2, 0),
    (64, 64, 8, 32, 32, 4, 8, 1, 4, 3, 0),
    (64, 64, 16, 32, 32, 4, 8, 2, 3, 2, 0),
    (32, 64, 16, 32, 32, 4, 8, 2, 4, 3, 0),
    (32, 64, 32, 32, 16, 4, 4, 4, 2, 1, 0),
    (32, 32, 32, 32, 16, 4, 4, 4, 3, 2, 0),
    (128, 16, 16, 32, 16, 4, 4, 1, 2, 3, 0),
)
"""Likewise of products by the matrix unit."""

SMALLEST = (16, 32, 8, 16, 32, 4, 4, 1, 2, 8, 0)
"""Where local memory has room for none of those: 14 KB of complex128."""


def considered(simt: KernelVariant, problem: GemmProblem, device: DeviceInfo) -> Sequence[Parameters]:
    """The tilings that fit, shared or not, and the best of them with operands across, by the time that
    `gemmport.contracts.gpu_model` expects of them; empty where none fits.
    """
    tilings = [dict(zip(NAMES, tiling, strict=True)) for tiling in TILINGS]
    if problem.accumulator == FLOAT64 and multiplies_float64_matrices(device):
        of_matrices = [dict(zip(NAMES, tiling, strict=True)) for tiling in MATRIX_TILINGS]
        tilings = [{**tiling, "MMA": 1, "PAD": 0} for tiling in of_matrices] + tilings
    fitted = [values for tiling in tilings if (values := _fitted(simt, tiling, problem, device))]
    if not fitted and (values := _fitted(simt, dict(zip(NAMES, SMALLEST, strict=True)), problem, device)):
        fitted = [values]
    choices = [{**values, "SHARE": share, "ACROSS": 0} for values in fitted for share in (0, values["GROUPS"])]
    expected = [(clocks(problem, device, tiling_of(choice)), choice) for choice in choices]
    turned, made = across(problem)
    if expected and made and transposing_is_measured(problem, device) and _fit(made.values(), device):
        # In the tiling that is best without: of others the model expects too much.
        best = min(expected, key=_first)[1]
        passes = sum(pass_clocks(each.scratch.nbytes, device) for each in made.values())
        doubt = MATRIX_DOUBT if best.get("MMA") else DOUBT
        expected.append(((clocks(turned, device, tiling_of(best)) + passes) * doubt, {**best, "ACROSS": 1}))
    return [choice for _, choice in sorted(expected, key=_first)]


def _fitted(simt: KernelVariant, values: dict[str, int], problem: GemmProblem, device: DeviceInfo) -> dict[str, int]:
    """A tiling with as many stages and groups as the device has room for; empty where it has none for it."""
    while values["STAGES"] > 2 and simt.local_bytes({"PAD": 4, **values}, problem) > device.local_memory:
        values["STAGES"] -= 1
    try:
        full = simt.complete(values)
    except ParameterError:  # the sums of slices no longer fit
        return {}
    items = simt.work_group(full)[0]
    registers = simt.registers(full, problem) + ADDRESSES
    if (
        simt.local_bytes(full, problem) > device.local_memory
        or registers > MOST_REGISTERS
        or items > min(device.max_work_group, device.max_work_item_sizes[0])
    ):
        return {}
    if device.registers:
        values["GROUPS"] = max(min(values["GROUPS"], device.registers // (items * registers)), 1)
    return values


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


def transposing_is_measured(problem: GemmProblem, device: DeviceInfo) -> bool:
    """Whether what the model expects of operands that are transposed beforehand was measured on such a device: what the passes
    cost, by its memory, and what the loop gains are those of NVIDIA's compute capability 9.0.
    """
    return is_hopper(device) and problem.effective_k >= LEAST_TERMS


def _first(expected: tuple[float, dict[str, int]]) -> float:
    return expected[0]


def tiling_of(parameters: Parameters) -> Tiling:
    """A tiling as the model knows it."""
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
    )
