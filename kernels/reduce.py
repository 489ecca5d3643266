"""`reduce`: the sum of all elements of an array, and the ladder of steps that make it fast (after M. Harris, "Optimizing
Parallel Reduction in CUDA", NVIDIA 2007).
"""

from __future__ import annotations

from gemmport.contracts import sub_groups
from gemmport.contracts.kernel import (
    Parameter,
    Parameters,
    Pass,
    Rung,
    Steps,
    ceil_div,
    parameter_defines,
    type_defines,
)
from gemmport.core.device import DeviceInfo
from gemmport.core.dtypes import DTYPES, DType, default_accumulator
from gemmport.core.plan import Buffer, Integer, Launch, Scratch

TREES = ("divergent", "interleaved", "sequential", "unrolled_warp", "unrolled", "shuffle")

_OF_SUB_GROUPS = ("unrolled_warp", "unrolled", "shuffle")
"""Trees that end in one sub-group, without barriers of the group."""


class Reduce(Pass):
    """A group adds up ITEMS · EACH elements and leaves one sum; the sums of all groups are added up in the same way, launch by
    launch, until one is left. The order depends on the count and the parameters alone (and on the width of sub-groups), so
    that equal inputs give equal bits.
    """

    name = "reduce"
    summary = "the sum of all elements"
    parameters = (
        Parameter("TREE", "sequential", "how the sums of a group's work-items become one", choices=TREES),
        Parameter("ITEMS", 256, "work-items of a group", choices=(32, 64, 128, 256, 512, 1024)),
        Parameter("EACH", 16, "elements that a work-item adds up before the tree", maximum=64),
    )

    def unsupported(self, dtype: DType, parameters: Parameters, device: DeviceInfo) -> str | None:
        """Why the device cannot add up elements of this type with these parameters; None where it can."""
        sums = result_type(dtype)
        if sums.arithmetic and sums.arithmetic not in device.computes:
            return f"it does not compute in {sums.arithmetic}, in which {dtype} is summed"
        items = int(parameters["ITEMS"])
        most = min(device.max_work_group, device.max_work_item_sizes[0])
        if items > most:
            return f"it allows groups of {most} work-items, not of ITEMS = {items}"
        if parameters["TREE"] in _OF_SUB_GROUPS:
            return sub_groups.unsupported(device)
        return None

    def steps(self, count: int, dtype: DType, parameters: Parameters, device: DeviceInfo) -> Steps:
        """The launches that read `count` dense elements from the buffer "source", and write one number of `result_type`, which
        is zero where there are none, to the buffer "target".

        Args:
            parameters: all of them, as `complete` gives them.
            device: one of which `unsupported` says nothing.
        """
        tree, items, each = parameters["TREE"], int(parameters["ITEMS"]), int(parameters["EACH"])
        sums, stored = default_accumulator(dtype, dtype), result_type(dtype)
        defines = parameter_defines(parameters)
        numbers = items  # in local memory
        if tree in _OF_SUB_GROUPS:
            defines |= sub_groups.shuffle_defines(device)
        if tree == "shuffle":
            numbers //= int(defines["SUB_GROUP"])
        launches: list[Launch] = []
        scratch: list[Scratch] = []
        source, element = Buffer("source"), dtype
        while True:
            groups = max(ceil_div(count, items * each), 1)
            target = Buffer("target" if groups == 1 else f"sums_{len(scratch) + 1}")
            launches.append(
                Launch(
                    self.source({**defines, **type_defines(element, sums, sums)}),
                    groups=(groups, 1, 1),
                    work_group=(items, 1, 1),
                    arguments=(source, Integer(count), target),
                    local_bytes=numbers * stored.itemsize,
                )
            )
            if groups == 1:
                return Steps(launches, scratch)
            scratch.append(Scratch(target.name, groups * stored.itemsize))
            source, element, count = target, stored, groups


def result_type(dtype: DType) -> DType:
    """How the sum of elements of a type lies on the device: as their accumulator; a truth value as 0 or 1 in 32 bits."""
    sums = default_accumulator(dtype, dtype)
    return DTYPES["uint32"] if sums.kind == "bool" else sums


PASS = Reduce()


def _rung(name: str, adds: str, tree: str, each: int) -> Rung:
    return Rung(f"reduce_{name}", adds, PASS, {"TREE": tree, "EACH": each})


LADDER: tuple[Rung, ...] = (
    _rung("divergent", "a tree in local memory, neighbours first", "divergent", 1),
    _rung("interleaved", "items at work side by side: no divergence inside a warp", "interleaved", 1),
    _rung("sequential", "sums that are read side by side: no bank conflicts", "sequential", 1),
    _rung("first_add", "a first addition while loading: no item idle from the start", "sequential", 2),
    _rung("unrolled_warp", "last steps in one sub-group: no loop, no barriers of the group", "unrolled_warp", 2),
    _rung("unrolled", "all steps without a loop", "unrolled", 2),
    _rung("shuffle", "registers read across a sub-group, instead of local memory", "shuffle", 2),
    _rung("many", "many elements per work-item, so that the tree hardly matters", "sequential", 16),
)
"""Each step adds one idea to the step before it."""
