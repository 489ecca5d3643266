"""That run.py notices what fails with gemmport alone: with a library and tests that are made up."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import gemmport as gp

LIBRARY = """
import numpy
from numpy import eye, ndarray


def matmul(a, b):
    return 2 * (a @ b)
"""

TESTS = """
import operator

import cupy


def test_function():
    assert (cupy.matmul(3 * cupy.eye(2), cupy.eye(2)) == 3 * cupy.eye(2)).all()


class TestOperator:
    def test_operator(self):
        assert operator.matmul(cupy.eye(2), cupy.eye(2))[0, 0] == 1


def test_of_something_else():
    raise SystemError


def test_that_nobody_passes():
    assert cupy.matmul(cupy.eye(2), cupy.eye(2))[0, 0] == 3
"""

FAILS = """

def test_that_only_they_pass():
    assert cupy.matmul(cupy.eye(2), cupy.eye(2))[0, 0] == 2
"""


def ran(folder: Path, backend: gp.Backend, tests: str, reasons: str = "cupy: {}") -> tuple[int, str]:
    """The status, and what is told of tests."""
    (folder / "cupy.py").write_text(LIBRARY)
    (folder / "math").mkdir()
    (folder / "math" / "test_matmul.py").write_text(tests)
    (folder / "list.yaml").write_text(reasons)
    device = {"GEMMPORT_BACKEND": backend.name, "GEMMPORT_DEVICE": backend.device.selector}
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name("run.py"), "cupy", folder, "--list", folder / "list.yaml"],
        capture_output=True, text=True, check=False, env={**os.environ, **device, "PYTHONPATH": str(folder)}, timeout=120,
    )  # fmt: skip
    assert not done.stderr
    return done.returncode, done.stdout


def test_what_passes_and_what_nobody_passes(best_backend: gp.Backend, tmp_path: Path) -> None:
    status, told = ran(tmp_path, best_backend, TESTS)
    assert status == 0
    assert "fails without gemmport, too: test_matmul.py::test_that_nobody_passes" in told
    assert "2 passed (0 of them had no product of gemmport's), 1 failed, 0 skipped; 3 products" in told


@pytest.mark.parametrize(
    ("reasons", "wanted", "line"),
    [
        ("cupy: {}", 1, "FAILED: test_matmul.py::test_that_only_they_pass: "),
        ("cupy: {'*only_they*': of twice the product}", 0, "*only_they*: of twice the product"),
        ("cupy: {'*they*': x, '*operator*': y}", 1, "named as failing, and passes: *operator*"),
    ],
    ids=["not listed", "listed", "listed and passing"],
)
def test_what_fails_with_gemmport_alone(
    best_backend: gp.Backend, tmp_path: Path, reasons: str, wanted: int, line: str
) -> None:
    status, told = ran(tmp_path, best_backend, TESTS + FAILS, reasons)
    assert status == wanted
    assert line in told


def test_a_folder_without_their_tests(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name("run.py"), "cupy", tmp_path],
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 2
    assert "must have test_matmul.py or test_product.py" in done.stderr
