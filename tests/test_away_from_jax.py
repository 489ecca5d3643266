"""Tests that are marked so run in another process where JAX is at work on a GPU, and here where it is not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from import_path import import_path

TESTS = """
import os, sys, types, pytest

@pytest.fixture(scope="module", autouse=True)
def jax():
    if "{platform}" and "{name}" not in os.environ:  # what this process starts knows nothing of it
        os.environ["{name}"] = "set"
        sys.modules["jax"] = types.SimpleNamespace(default_backend=lambda: "{platform}")

def tell(name):
    with open(os.environ["TOLD"], "a") as file: file.write(f"{{name}} {{os.getpid()}}\\n")

def test_not_marked(): tell("not marked")

@pytest.mark.away_from_jax
@pytest.mark.parametrize("ends", ["passes", "fails, and says why", "skips"])
def test_marked(ends):
    tell(ends)
    if ends == "skips": pytest.skip("of no use")
    assert ends == "passes"
"""


@pytest.mark.parametrize(
    ("platform", "processes"), [("gpu", 2), ("cpu", 1), ("", 1)], ids=["gpu", "cpu", "not imported"]
)
def test_marked_tests_run_elsewhere_where_jax_is_at_work(platform: str, processes: int, tmp_path: Path) -> None:
    """And pass, fail and skip as they do there."""
    (tmp_path / "test_it.py").write_text(TESTS.format(platform=platform, name="GEMMPORT_OF_A_TEST"), "utf-8")
    told = tmp_path / "told.txt"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-rs", "--rootdir", tmp_path, tmp_path],
        env=environment | {
            "PYTHONPATH": import_path(Path(__file__).parent), "PYTEST_PLUGINS": "away_from_jax", "TOLD": str(told)
        },
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert "1 failed, 2 passed, 1 skipped" in done.stdout, done.stdout + done.stderr
    assert "assert 'fails, and says why' == 'passes'" in done.stdout
    assert "of no use" in done.stdout
    ran = dict(line.rsplit(" ", 1) for line in told.read_text("utf-8").splitlines())
    assert [*ran] == ["not marked", "passes", "fails, and says why", "skips"]
    assert len({*ran.values()}) == processes
