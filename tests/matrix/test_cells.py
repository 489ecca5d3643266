"""The cells of `gemmport matrix` as tests: on every device the quick ones, with --exhaustive all but those that are timed.

    pytest tests/matrix --backend opencl --device intel -k "tiled and float32"

A cell that the device cannot compute is skipped, with the reason. `gemmport matrix` judges the same cells in processes of their
own, times the large ones, and outlives a runtime that crashes.
"""

from __future__ import annotations

import pytest

import gemmport as gp
from gemmport.matrix.cells import Cell
from gemmport.matrix.judge import judge


def test_a_cell_is_right(backend: gp.Backend, cell: str) -> None:
    judged = judge(Cell.parse(cell), backend)
    if judged.status == "unsupported":
        pytest.skip(judged.reason)
    assert judged.status == "verified", f"{judged.reason}; gemmport matrix --cell {cell}"
