"""A test that needs gigabytes keeps those of other workers waiting."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

TAKE = """
import sys
from pathlib import Path
from gemmport.runtime.locks import exclusive
with exclusive(Path(sys.argv[1]), "large", 0.0) as alone:
    print(alone)
"""


@pytest.mark.large
def test_a_large_test_runs_alone() -> None:
    command = [sys.executable, "-c", TAKE, os.environ["GEMMPORT_CACHE_DIR"]]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() == "False"
