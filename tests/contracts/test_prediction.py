"""What kernels' predictions share: by hand."""

from __future__ import annotations

import pytest

from gemmport.contracts.prediction import crossing


@pytest.mark.parametrize(
    ("pitch", "line", "share"),
    [(256, 128, 0.0), (192, 128, 0.5), (1568, 128, 0.75), (2000, 128, 0.875), (46, 128, 126 / 128), (46, 1, 0.0)],
)
def test_rows_cross_lines_as_often_as_they_begin_within_one(pitch: int, line: float, share: float) -> None:
    assert crossing(pitch, line) == share
