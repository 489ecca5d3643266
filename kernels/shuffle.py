"""`shuffle`: as `register_tiled`, but A passes from register to register inside a sub-group, and not through local memory."""

from __future__ import annotations

from dataclasses import replace

from gemmport.contracts import sub_groups
from gemmport.contracts.kernel import Constraint, Parameter, Parameters, Steps, ceil_div
from gemmport.contracts.nvidia import loads_read_only
from gemmport.contracts.register_tiles import WHOLE_BLOCKS, RegisterTiles, padding, tile_parameters
from gemmport.core.device import DeviceInfo
from gemmport.core.problem import GemmProblem

LANES = (16, 32)
"""Widths of sub-groups that every choice of parameters fits: those of `gemmport.contracts.sub_groups.shuffle_defines`."""


class Shuffle(RegisterTiles):
    """A group computes TSM × TSN of D, a work-item WPTM × WPTN of them, stepping along k by TSK.

    The TSN / WPTN work-items that share WPTM rows are a team: lanes side by side of one sub-group. Each loads its part of
    those rows' elements of A from global memory into registers, and they read each other's by shuffles. B is staged in local
    memory. With USE_SHUFFLE = 0, A is passed on through local memory too, and nothing else changes.
    """

    name = "shuffle"
    function = "shuffling"
    summary = "registers exchanged inside a sub-group: A without local memory"
    parameters = (
        *tile_parameters(),
        padding(1),
        Parameter("USE_LDG", 0, "1: loads through the read-only path of NVIDIA's GPUs", choices=(0, 1)),
        Parameter("USE_SHUFFLE", 1, "0: elements of A are passed on through local memory", choices=(0, 1)),
    )
    constraints = (
        *WHOLE_BLOCKS,
        Constraint(
            f"{min(LANES)} % (TSN / WPTN) = 0: a team lies in one sub-group, however wide",
            lambda TSN, WPTN: min(LANES) % (TSN // WPTN) == 0,
        ),
        Constraint(
            f"(TSM / WPTM) · (TSN / WPTN) % {max(LANES)} = 0: sub-groups are full, however wide",
            lambda TSM, TSN, WPTM, WPTN: TSM // WPTM * (TSN // WPTN) % max(LANES) == 0,
        ),
        Constraint(
            "WPTM · TSK % (TSN / WPTN) = 0: a team's elements of A are shared out evenly",
            lambda TSN, TSK, WPTM, WPTN: WPTM * TSK % (TSN // WPTN) == 0,
        ),
        Constraint(
            "WPTM · WPTN + WPTM · TSK / (TSN / WPTN) ≤ 256, the sums and elements of A of one work-item",
            lambda TSN, TSK, WPTM, WPTN: WPTM * WPTN + _held(TSN, TSK, WPTM, WPTN) <= 256,
        ),
        Constraint(
            "WPTM · WPTN · TSK ≤ 4096, the multiply-adds of a step, which are written out",
            lambda TSK, WPTM, WPTN: WPTM * WPTN * TSK <= 4096,
        ),
    )

    def work_group(self, parameters: Parameters) -> tuple[int, int, int]:
        p = {name: int(parameters[name]) for name in ("TSM", "TSN", "WPTM", "WPTN")}
        return p["TSM"] // p["WPTM"] * (p["TSN"] // p["WPTN"]), 1, 1

    def local_bytes(self, parameters: Parameters, problem: GemmProblem) -> int:
        p = {name: int(parameters[name]) for name in ("TSM", "TSN", "TSK", "WPTM", "PAD", "USE_SHUFFLE")}
        elements = p["TSK"] * (p["TSN"] + p["PAD"])
        if not p["USE_SHUFFLE"]:
            elements += p["TSM"] // p["WPTM"] * (p["WPTM"] * p["TSK"] + p["PAD"])
        return elements * problem.accumulator.sum_bytes

    def registers(self, parameters: Parameters, problem: GemmProblem) -> int:
        p = {name: int(parameters[name]) for name in ("TSN", "TSK", "WPTM", "WPTN")}
        numbers = p["WPTM"] * p["WPTN"] + p["WPTM"] + p["WPTN"] + _held(**p)
        return ceil_div(numbers * problem.accumulator.sum_bytes, 4)

    def unsupported(self, problem: GemmProblem, device: DeviceInfo) -> str | None:
        if reason := super().unsupported(problem, device) or sub_groups.unsupported(device):
            return reason
        if (lanes := sub_groups.shuffle_defines(device)["SUB_GROUP"]) not in LANES:
            return f"its sub-groups have {lanes} lanes: {self.name} is made for {' or '.join(map(str, LANES))}"
        return None

    def unfit(self, parameters: Parameters, problem: GemmProblem, device: DeviceInfo) -> str | None:
        if parameters["USE_LDG"] and not loads_read_only(device):
            return "USE_LDG = 1: only NVIDIA's GPUs have a read-only path; elsewhere, it must be 0"
        return None

    def steps(self, problem: GemmProblem, device: DeviceInfo, parameters: Parameters) -> Steps:
        defines = {**self.defines(parameters, problem), **sub_groups.shuffle_defines(device)}
        return Steps([replace(self.product(problem, parameters), kernel=self.source(defines))])


def _held(TSN: int, TSK: int, WPTM: int, WPTN: int) -> int:
    """Elements of A in the registers of one work-item."""
    return WPTM * TSK // (TSN // WPTN)


VARIANT = Shuffle()
