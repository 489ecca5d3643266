"""--gpus lets each worker see one of several GPUs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from one_gpu_each import VISIBLE, seen_by

ASKS = """
import os
VISIBLE = os.environ.get("CUDA_VISIBLE_DEVICES", "all")
"""
"""A plugin that asks while pytest loads it."""

TELLS = """
import os
from asks import VISIBLE
def test_what_is_seen():
    with open(os.environ["SEEN"], "a") as file:
        file.write(VISIBLE + " ")
def test_so_that_the_other_worker_has_one():
    test_what_is_seen()
"""


@pytest.mark.parametrize(
    ("worker", "gpus", "visible", "seen"),
    [
        (0, 4, None, "0"), (5, 4, None, "1"), (1, 2, "6,7", "7"), (2, 2, "6,7,8", "6"), (3, 8, "5", "5"), (1, 2, "", ""),
    ],
)  # fmt: skip
def test_workers_take_turns(worker: int, gpus: int, visible: str | None, seen: str) -> None:
    """At those that are visible; where none is, none."""
    assert seen_by(worker, gpus, {} if visible is None else {VISIBLE: visible}) == seen


@pytest.mark.processes
@pytest.mark.parametrize(
    ("options", "told"), [(["--gpus", "2", "-n", "2", "--dist", "each"], {"0", "1"}), ([], {"all"})]
)
def test_each_worker_sees_its_own(tmp_path: Path, options: list[str], told: set[str]) -> None:
    (tmp_path / "test_seen.py").write_text(TELLS)
    (tmp_path / "asks.py").write_text(ASKS)
    environment = {name: value for name, value in os.environ.items() if name != VISIBLE and "XDIST" not in name}
    rooms = os.pathsep.join([str(Path(__file__).parent), str(tmp_path)])
    environment |= {"SEEN": str(tmp_path / "seen"), "PYTHONPATH": rooms}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "asks", "-p", "one_gpu_each"]
    command += ["-c", os.devnull, "--rootdir", str(tmp_path), *options, str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert set((tmp_path / "seen").read_text().split()) == told


def test_none_is_refused(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    command = [sys.executable, "-m", "pytest", "-p", "one_gpu_each", "-c", os.devnull, "--gpus", "0", str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 4
    assert "--gpus must be 1 or more; got 0" in done.stdout + done.stderr
