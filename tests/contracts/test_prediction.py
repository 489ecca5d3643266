"""What kernels' predictions share: by hand."""

from __future__ import annotations

import pytest

import gemmport as gp
from gemmport.contracts.prediction import crossing, stored_singly
from made_up_devices import DEVICES
from models import model_of

MODEL = model_of(DEVICES["NVIDIA sm_90 under CUDA"])


@pytest.mark.parametrize(
    ("pitch", "line", "share"),
    [(256, 128, 0.0), (192, 128, 0.5), (1568, 128, 0.75), (2000, 128, 0.875), (46, 128, 126 / 128), (46, 1, 0.0)],
)
def test_rows_cross_lines_as_often_as_they_begin_within_one(pitch: int, line: float, share: float) -> None:
    assert crossing(pitch, line) == share


@pytest.mark.parametrize(("n", "times"), [(200, 0), (197, 1), (196, 1)])
def test_results_that_are_not_aligned_write_a_sector_more_for_each_store(n: int, times: int) -> None:
    problem = gp.GemmProblem.create(64, n, 32, dtype="bfloat16", batch=3)
    assert stored_singly(problem, MODEL, 8) == pytest.approx(times * 3 * 64 * n * 32 / MODEL.copy_bandwidth)
