"""Tiles of `packed` suit the registers of a CPU."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gemmport.core.problem import GemmProblem
from gemmport.planning.lookup import load_configuration
from gemmport.planning.planner import make_plan
from made_up_devices import DEVICES

POCL = replace(DEVICES["CPU under PoCL"], platform_version="3.1")

REGISTERS = {"haswell": (16, 32), "znver3": (16, 32), "skylake-avx512": (32, 64), "znver4": (32, 64)}
"""Of an architecture: how many vectors, of how many bytes."""


@pytest.mark.parametrize("size", [300, 1000, 4096])
@pytest.mark.parametrize("architecture", REGISTERS)
def test_sums_of_large_products_fit_the_registers(architecture: str, size: int) -> None:
    plan = make_plan(
        GemmProblem.create(size, size, size), replace(POCL, architecture=architecture), load_configuration(())
    )
    count, nbytes = REGISTERS[architecture]
    values = {name: plan.values[name] for name in ("MR", "NR", "VECTOR")}
    assert plan.variant == "packed"
    assert values["VECTOR"] == nbytes
    assert int(values["MR"]) * int(values["NR"]) < count
