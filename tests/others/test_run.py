"""That run.py notices what fails with gemmport alone: with a library and tests that are made up."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import gemmport as gp
from absences import EXPECTTEST, TORCH, needs
from import_path import import_path

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


def ran(folder: Path, backend: gp.Backend, tests: str, reasons: str = "cupy: {}", *options: str) -> tuple[int, str]:
    """The status, and what is told of tests."""
    (folder / "cupy.py").write_text(LIBRARY)
    (folder / "math").mkdir()
    (folder / "math" / "test_matmul.py").write_text(tests)
    (folder / "list.yaml").write_text(reasons)
    device = {"GEMMPORT_BACKEND": backend.name, "GEMMPORT_DEVICE": backend.device.selector}
    environment = {**os.environ, **device, "PYTHONPATH": import_path(folder)}
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name("run.py"), "cupy", folder, "--list", folder / "list.yaml", *options],
        capture_output=True, text=True, check=False, env=environment, timeout=120,
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


@pytest.mark.parametrize(("part", "counted"), [("1/2", "1 passed"), ("2/2", "1 passed"), ("3/3", "0 passed")])
def test_parts_have_every_test_between_them(best_backend: gp.Backend, tmp_path: Path, part: str, counted: str) -> None:
    """Of two that pass and, in the end, one that does not."""
    status, told = ran(tmp_path, best_backend, TESTS, "cupy: {}", "--part", part)
    assert status == 0
    assert f"{counted} (" in told
    assert ("test_that_nobody_passes" in told) == (part in ("1/2", "3/3"))


@pytest.mark.parametrize("part", ["0/2", "3/2", "a/b"])
def test_a_part_that_there_is_not(tmp_path: Path, part: str) -> None:
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name("run.py"), "cupy", tmp_path, "--part", part],
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 2
    assert f"must be NUMBER/PARTS, as 1/4; got {part}" in done.stderr


OF_AN_OLDER_RELEASE = """
import torch
from torch.testing._internal.common_device_type import instantiate_device_type_tests
from torch.testing._internal.common_utils import TestCase


class TestLinalg(TestCase):
    def setUp(self):
        super(self.__class__, self).setUp()
        self.ready = True

    def test_product(self, device):
        a = 2 * torch.eye(3, device=device)
        self.assertTrue(self.ready)
        self.assertEqual(a @ a, 2 * a)


instantiate_device_type_tests(TestLinalg, globals())
"""


@pytest.mark.processes
@needs(TORCH, EXPECTTEST)
def test_pytorchs_tests_of_an_older_release(best_backend: gp.Backend, tmp_path: Path) -> None:
    """In which a class's setUp asks for that of the class behind `self.__class__`."""
    (tmp_path / "test_linalg.py").write_text(OF_AN_OLDER_RELEASE, "utf-8")
    device = {"GEMMPORT_BACKEND": best_backend.name, "GEMMPORT_DEVICE": best_backend.device.selector}
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name("run.py"), "torch", tmp_path],
        capture_output=True, text=True, check=False, env={**os.environ, **device}, timeout=120,
    )  # fmt: skip
    assert "1 passed (0 of them had no product of gemmport's), 0 failed, 0 skipped; 1 products" in done.stdout


def test_a_module_that_their_tests_need_is_named_with_what_brings_it(tmp_path: Path) -> None:
    (tmp_path / "test_matmul.py").write_text("")
    (tmp_path / "cupy.py").write_text("import expecttest_of_nobody")
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name("run.py"), "cupy", tmp_path],
        capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": import_path(tmp_path)}, timeout=120,
    )  # fmt: skip
    assert done.returncode == 2
    told = "cupy's tests need expecttest_of_nobody, which is not installed: pip install expecttest_of_nobody\n"
    assert done.stderr == told


def test_a_folder_without_their_tests(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name("run.py"), "cupy", tmp_path],
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 2
    assert "must have test_matmul.py or test_product.py" in done.stderr
