"""A run tells what failed as it fails; and no other plugin of pytest takes a name of ours for its own."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from import_path import import_path

FOLDER = Path(__file__).parent

TESTS = """
import os, pathlib, pytest

def told():
    return pathlib.Path(os.environ["TOLD"]).read_text()

def test_that_passes(): pass

def test_that_fails(): assert 1 + 1 == 3, "a planted reason"

@pytest.fixture
def broken(): raise OSError("a planted fixture")

def test_of_a_broken_fixture(broken): pass
"""

AT_ONCE = """
def test_that_comes_later(): assert "test_that_fails (call)" in told() and "came to its end" not in told()
"""

DIES = """
def test_that_ends_its_process(): os._exit(3)
"""

NOT_PYTHON = "def test_("

BREAKS = """
import pytest

@pytest.hookimpl
def pytest_runtest_makereport(item):
    if item.name == "test_that_comes_later": raise RuntimeError("a plugin's fault")
"""


def ran(folder: Path, *options: str, **files: str) -> str:
    """What a run over test files has told in the end."""
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text, "utf-8")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    told = folder / "told"
    environment |= {"PYTHONPATH": import_path(FOLDER), "TOLD": str(told)}
    words = ["-m", "pytest", "-p", "failures", "-p", "no:cacheprovider", "--failures", told, "--rootdir", folder]
    subprocess.run(
        [sys.executable, *words, *options, folder],
        env=environment, capture_output=True, check=False, timeout=120,
    )  # fmt: skip
    return told.read_text("utf-8")


def test_each_failure_is_told_as_it_happens(tmp_path: Path) -> None:
    told = ran(tmp_path, test_it=TESTS + AT_ONCE)
    assert "test_it.py::test_that_fails (call)\n" in told
    assert "AssertionError: a planted reason" in told
    assert "test_it.py::test_of_a_broken_fixture (setup)\n" in told
    assert "a planted fixture" in told
    assert "test_that_comes_later" not in told
    assert told.endswith("\n2 failed in a run that came to its end\n")


def test_workers_tell_each_failure_once_even_one_that_ends_its_process(tmp_path: Path) -> None:
    told = ran(tmp_path, "-n2", "--max-worker-restart=2", test_it=TESTS + DIES)
    assert told.count("test_that_fails (call)") == told.count("test_of_a_broken_fixture (setup)") == 1
    assert "test_that_ends_its_process" in told
    assert told.endswith("\n3 failed in a run that came to its end\n")


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"test_it": NOT_PYTHON}, "test_it.py (collect)\n"),
        ({"test_it": TESTS + AT_ONCE, "conftest": BREAKS}, "RuntimeError: a plugin's fault"),
    ],
    ids=["cannot be read", "a plugin breaks"],
)
def test_a_run_that_breaks_says_why_and_does_not_come_to_its_end(
    files: dict[str, str], said: str, tmp_path: Path
) -> None:
    told = ran(tmp_path, **files)
    assert said in told
    assert "came to its end" not in told


@pytest.mark.parametrize("options", [["-x"], ["-x", "-n1"]], ids=["alone", "workers"])
def test_a_run_that_stops_at_a_failure_does_not_come_to_its_end(options: list[str], tmp_path: Path) -> None:
    told = ran(tmp_path, *options, test_it=TESTS)
    assert "test_that_fails (call)\n" in told
    assert "came to its end" not in told


OF_PLUGINS = {
    "pytest-benchmark": {"benchmark", "benchmark_weave"},
    "pytest-mock": {"mocker", "class_mocker", "module_mocker", "package_mocker", "session_mocker"},
    "pytest-cov": {"cov", "no_cover"},
    "pytest-asyncio": {"event_loop", "event_loop_policy", "unused_tcp_port", "unused_udp_port"},
    "anyio": {"anyio_backend", "anyio_backend_name", "anyio_backend_options", "free_tcp_port", "free_udp_port"},
    "pytest-xdist": {"worker_id", "testrun_uid"},
}
"""Fixtures of plugins that machines may have. pytest-benchmark ends the run at a parameter of its fixture's name."""


def parameters(path: Path) -> set[str]:
    """Those of the tests and fixtures of a module, and the fixtures' own names."""
    found = set[str]()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.FunctionDef):
            fixture = any("fixture" in ast.unparse(decorator) for decorator in node.decorator_list)
            if fixture or node.name.startswith("test_"):
                found |= {*([node.name] if fixture else []), *(argument.arg for argument in node.args.args)}
    return found


def test_no_parameter_or_fixture_is_named_like_one_of_a_plugin() -> None:
    names = {path: parameters(path) for path in FOLDER.rglob("*.py")}
    assert {"tmp_path", "best_backend"} <= set().union(*names.values())
    clashes = {(path.name, name) for path, own in names.items() for name in own & set().union(*OF_PLUGINS.values())}
    assert not clashes
