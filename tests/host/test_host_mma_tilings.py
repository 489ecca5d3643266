"""Every tiling of `mma` that a device's model lists, on the CPU: products are exact, with edges along all dimensions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

import gemmport as gp
from absences import CXX, needs
from exact import Sizes, check_plan, problem_of
from gemmport import kernels
from gemmport.contracts.named_devices import device_of
from gemmport.kernels import _mma_tilings
from host import Host
from models import model_of
from on_host import opened

pytestmark = needs(CXX)

MMA = kernels.variant("mma")
MODEL = model_of(device_of("sm_90"))
LISTED = [*MODEL.tilings["mma"], _mma_tilings.SMALLEST]

DEEPEST = max(next(each.choices for each in MMA.parameters if each.name == "TSK"))
"""Terms of a step: of bytes, a listed tiling takes twice as many as it says."""


def is_taken(row: Mapping[str, Any]) -> bool:
    return row["dtype"] != "int8" or 2 * row["tiling"]["TSK"] <= DEEPEST


@pytest.fixture(scope="module")
def cpu() -> Host:
    return opened()


@pytest.mark.sample(tiling=LISTED[14:15])  # for few rows
@pytest.mark.every_pair("tiling", LISTED)
@pytest.mark.every_pair(("dtype", "ops"), [("float16", "NN"), ("float16", "TT"), ("int8", "NT")])
@pytest.mark.every_pair("share", [0, 1], where=is_taken)
def test_each_listed_tiling_is_exact(cpu: Host, tiling: dict[str, int], dtype: str, ops: str, share: int) -> None:
    rows, columns = int(tiling["TSM"]) + 5, int(tiling["TSN"]) + 3
    problem = problem_of(Sizes(rows, columns, 4 * int(tiling["TSK"]) + 7), ops, dtype, alpha=2.0, beta=-1.0)
    # Here work-items have as many registers as they need.
    own = {**_mma_tilings.constants(cpu.device, MODEL), "most_registers": 512}
    fitted = _mma_tilings.fit(MMA, tiling, problem, cpu.device, own)
    assert fitted
    check_plan(cpu, gp.plan(problem, cpu.device, kernel="mma", params={**fitted, "SHARE": share}))
