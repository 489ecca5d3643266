"""examples/several_devices.py, as a user runs it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "several_devices.py"


@pytest.mark.processes
@pytest.mark.sample(option=[()])
@pytest.mark.parametrize("option", [(), ("--on-devices",)])
def test_the_example_computes_right_and_tells_what_is_dealt(option: tuple[str, ...]) -> None:
    done = subprocess.run(
        [sys.executable, EXAMPLE, "--size", "300", *option], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    assert ("not dealt" in done.stdout) == (not option)  # what is explained is of arrays on the host
    assert "the rows that were checked are right" in done.stdout
