"""The scripts of examples/ for arrays that are too large for one device, at small sizes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.processes
def test_arrays_in_files_are_multiplied() -> None:
    command = [sys.executable, str(EXAMPLES / "larger_than_a_device.py"), "--size", "700", "--device-memory", "1MB"]
    ended = subprocess.run(
        [*command, "--host-memory", "500kB"], capture_output=True, text=True, timeout=300, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert "100%" in ended.stdout
    assert "bound: 2mnk/√M" in ended.stdout
    assert ended.stdout.endswith("row 350 is right\n")


@pytest.mark.processes
def test_a_product_goes_on(tmp_path: Path) -> None:
    command = [sys.executable, str(EXAMPLES / "goes_on.py"), str(tmp_path), "--size", "700", "--device-memory", "1MB"]
    for _ in range(2):
        ended = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        assert ended.returncode == 0, ended.stderr
        assert ended.stdout.endswith("row 350 is right\n")
