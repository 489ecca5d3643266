"""Sizes of chunks that suit a device, by its model."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from absences import DASK, needs
from gemmport.contracts.device_model import derived
from gemmport.core.dtypes import FLOAT32
from gemmport.core.errors import ParameterError, ShapeError
from made_up_devices import DEVICES

if DASK.is_here():
    import dask.array as da

    import gemmport.dask as gd
    from gemmport.dask import chunking
    from gemmport.dask.tasks import accumulate

pytestmark = needs(DASK)

LARGE = (10**6, 10**6)


@pytest.mark.parametrize("device", DEVICES.values(), ids=DEVICES)
def test_large_squares_take_what_is_long_for_a_scheduler_and_short_for_memory(device: Any) -> None:
    (rows, depth), (other, columns) = gd.chunks(LARGE, LARGE, device=device, config=[])
    assert other == depth
    items = max(rows * depth, depth * columns, rows * columns)
    assert 4 * 4 * items <= device.memory / chunking.MEMORY_SHARE
    assert 4 * items <= device.max_allocation
    seconds = rows * depth * columns / derived(device).rate(FLOAT32)
    is_bounded = 4 * 4.5 * items > min(device.memory / 16, device.max_allocation)
    assert is_bounded or 0.02 < seconds < 0.5


def test_faster_devices_take_larger_chunks() -> None:
    slow, fast = (
        gd.chunks(LARGE, LARGE, device=DEVICES[name])[0][0] for name in ("CPU under PoCL", "NVIDIA sm_90 under CUDA")
    )
    assert slow < fast


@pytest.mark.parametrize(
    ("a", "b"),
    [((10**7, 100), (100, 100)), ((100, 10**7), (10**7, 100)), ((100, 100), (100, 10**7)), ((10**7,), (10**7, 3))],
)
def test_what_short_sides_leave_long_ones_take(a: Any, b: Any) -> None:
    found = gd.chunks(a, b, device=DEVICES["NVIDIA sm_90 under CUDA"])
    assert max(math.prod(x) for x in found) > 10**6
    for own, shape in zip(found, (a, b), strict=True):
        assert all(1 <= size <= whole for size, whole in zip(own, shape, strict=True))


def test_stacks_of_small_matrices_stay_together() -> None:
    assert gd.chunks((1000, 64, 64), (64, 64), device=DEVICES["NVIDIA sm_90 under CUDA"]) == ((1000, 64, 64), (64, 64))
    (of_a, of_b) = gd.chunks((4, 10**6, 64, 64), (10**6, 64, 64), device=DEVICES["NVIDIA sm_90 under CUDA"])
    assert of_a[0] == 1
    assert of_a[1:] == of_b
    assert 1 < of_b[0] < 10**6


@pytest.mark.parametrize(
    ("a", "b", "wanted"), [((30000, 30000), (30000, 30000), 100), ((200, 10**6), (10**6, 200), 64)]
)
def test_there_is_work_for_each_worker(a: Any, b: Any, wanted: int) -> None:
    of_a, of_b = gd.chunks(a, b, device=DEVICES["NVIDIA sm_90 under CUDA"], workers=50)
    product = gd.matmul(da.zeros(a, chunks=of_a), da.zeros(b, chunks=of_b))
    first = [
        key for key, task in product.dask.layers[product.name].items() if task[0] is accumulate and task[3] is None
    ]
    assert wanted <= len(first) < 3 * wanted


def test_auto_chunks_are_those(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunking, "TASK_SECONDS", 1e-5)
    device = DEVICES["CPU under PoCL"]
    x = da.ones((700, 900), chunks=(3, 900), dtype=np.float32)
    product = gd.matmul(x, x.T, chunks="auto", device=device)
    assert (product.chunks[0][0], product.chunks[1][0]) == (gd.chunks(x.shape, x.T.shape, device=device)[0][0],) * 2
    assert product.numblocks < (234, 234)


def test_shapes_and_counts_are_checked() -> None:
    with pytest.raises(ShapeError):
        gd.chunks((3, 4), (5, 6))
    for none in (0, True, "2"):
        with pytest.raises(ParameterError, match="workers must be a whole number, 1 or more; got"):
            gd.chunks((3, 4), (4, 6), workers=none)  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match=r"memory must be a number of bytes, .*; got 0"):
        gd.chunks((3, 4), (4, 6), memory=0)
    assert gd.chunks((3000, 4000), (4000, 600), memory="1MiB") == gd.chunks((3000, 4000), (4000, 600), memory=2**20)
    assert gd.chunks((0, 4), (4, 0)) == ((1, 4), (4, 1))
