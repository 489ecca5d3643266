"""The cells of `gemmport matrix` as tests: on CPUs the quick ones of one kernel, since `make matrix` judges those of all; on
GPUs the quick ones; with --exhaustive all on every device, but those that are timed.

    pytest tests/matrix --backend opencl --device intel -k "tiled and float32"

A cell that the device cannot compute is skipped, with the reason. `gemmport matrix` judges the same cells in processes of their
own, times the large ones, and outlives a runtime that crashes.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

import gemmport as gp
import tested
from absences import beyond
from gemmport import kernels
from gemmport.matrix.cells import SHAPES, Cell, Choice, cells
from gemmport.matrix.judge import judge
from tiers import Tier, devices_of, tier_of

REPRESENTATIVE = "tiled"
"""Of the kernels, on CPUs. Others meet their types, ops and edges in test_dtypes.py."""

UNTIMED = tuple(shape for shape in SHAPES if shape != "large")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "cell" in metafunc.fixturenames:
        config = metafunc.config
        found, tier = devices_of(metafunc.definition, config), tier_of(config)
        names = dict(zip(tested.devices(config), tested.ids(tested.devices(config)), strict=True))
        due = [(device, cell) for device in found for cell in due_on(device, tier)]
        ids = [f"{names[device]}-{cell.id}" for device, cell in due]
        metafunc.parametrize(("device", "cell"), due, ids=ids)


def due_on(device: gp.DeviceInfo, tier: Tier) -> Sequence[Cell]:
    """The cells of a device that a tier judges."""
    if tier is Tier.EXHAUSTIVE:
        return cells(device, "full", Choice(shapes=UNTIMED))
    names = [REPRESENTATIVE] if device.type == "cpu" else [variant.name for variant in kernels.variants()]
    return cells(device, "quick", Choice(kernels=names, shapes=UNTIMED))


def test_a_cell_is_right(device: gp.DeviceInfo, cell: Cell) -> None:
    judged = judge(cell, gp.get_backend(device=device))
    if judged.status == "unsupported":
        pytest.skip(beyond(device, judged.reason))
    assert judged.status == "verified", f"{judged.reason}; gemmport matrix --cell {cell.id}"
