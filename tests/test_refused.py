"""The report of a failed test lists what NVIDIA's driver refused during that test, and no other report does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from import_path import import_path

TESTS = """
import os, pathlib, pytest

def log(text):
    with open(os.environ["CUDA_LOG_FILE"], "a") as file: file.write(text + "\\n")

def test_before(): log("[CUDA][E] Returning 2 (of a test that passes) from cuMemAlloc_v2")

@pytest.mark.parametrize("begun_anew", [False, True])
def test_that_fails(begun_anew):
    if begun_anew: pathlib.Path(os.environ["CUDA_LOG_FILE"]).unlink(missing_ok=True)
    log("[CUDA][E] No CUDA context is current to the calling thread")
    log("[CUDA][E] Returning 900 (CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED) from cuMemFree_v2")
    assert False

def test_of_which_nothing_was_refused(): assert False
"""


@pytest.mark.parametrize("options", [[], ["-n2"]], ids=["alone", "workers"])
def test_what_was_refused_stands_with_the_test_that_failed(options: list[str], tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(TESTS, "utf-8")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    failures = tmp_path / "failures.txt"
    words = ["-m", "pytest", "-p", "refused", "-p", "failures", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [sys.executable, *words, *options, f"--failures={failures}", "--rootdir", tmp_path, tmp_path],
        env=environment | {"PYTHONPATH": import_path(Path(__file__).parent)},
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    told = [line for line in done.stdout.splitlines() if "refused by" in line or line.startswith("[CUDA]")]
    assert "3 failed, 1 passed" in done.stdout
    assert len(told) == 4
    assert {*told[::2]} == {told[0]}
    assert "refused by NVIDIA's driver" in told[0]
    assert {*told[1::2]} == {"[CUDA][E] Returning 900 (CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED) from cuMemFree_v2"}
    assert failures.read_text("utf-8").count("\n    [CUDA][E] Returning 900") == 2


def test_a_run_that_does_not_begin_says_only_why(tmp_path: Path) -> None:
    """Another plugin refuses its option before this one is configured, or after."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "one_gpu_each", "-p", "refused", "--gpus", "0", "--rootdir", tmp_path, tmp_path],
        env=os.environ | {"PYTHONPATH": import_path(Path(__file__).parent)},
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert "--gpus must be 1 or more; got 0" in done.stderr
    assert "Traceback" not in done.stdout + done.stderr
