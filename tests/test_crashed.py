"""The report of a test that ended its worker says where the worker's threads were, and no other report does."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import crashed
from import_path import import_path

TESTS = """
import ctypes, os, threading, pytest

def test_before(): pass

def in_a_runtime(): ctypes.string_at(0)

def test_that_faults(): in_a_runtime()

def for_ever(): threading.Event().wait()

@pytest.mark.timeout(3)
def test_that_waits_for_a_thread():
    beside = threading.Thread(target=for_ever, daemon=True)
    beside.start()
    beside.join()

@pytest.mark.timeout(3)
def test_that_keeps_the_lock(): ctypes.PyDLL(None).sleep(90)

@pytest.mark.timeout(3)
def test_in_time(): pass

def test_that_is_killed(): os.kill(os.getpid(), 9)

def test_that_fails(): assert False
"""


def told(folder: Path, failures: Path) -> dict[str, str]:
    """What the report of each failed test says, by its name.

    Args:
        failures: where to write each as it fails.
    """
    (folder / "test_it.py").write_text(TESTS, "utf-8")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    words = ["-m", "pytest", "-p", "crashed", "-p", "failures", "-p", "no:cacheprovider", "-n2"]
    done = subprocess.run(
        [sys.executable, *words, f"--failures={failures}", "--rootdir", folder, folder],
        env=environment | {"PYTHONPATH": import_path(Path(__file__).parent)},
        capture_output=True, text=True, check=False, timeout=80,
    )  # fmt: skip
    assert "5 failed, 2 passed" in done.stdout
    assert "Fatal Python error" not in done.stderr
    _, *reports = re.split(r"^___+ .* ___+$", done.stdout.partition("= short test summary")[0], flags=re.MULTILINE)
    return {match[0]: report for report in reports if (match := re.search(r"test_\w+(?='|\(\))", report))}


def test_a_worker_that_ends_has_said_where_its_threads_were(tmp_path: Path) -> None:
    failures = tmp_path / "failures.txt"
    found = told(tmp_path, failures)
    fault, waits, keeps, killed = (
        found[f"test_that_{name}"].partition(crashed.TITLE)[2]
        for name in ("faults", "waits_for_a_thread", "keeps_the_lock", "is_killed")
    )
    assert "Segmentation fault" in fault
    assert re.search(r"in string_at\n.*in in_a_runtime\n.*in test_that_faults\n", fault)
    assert re.search(r"Timeout.*in for_ever\n.*in join\n.*in test_that_waits_for_a_thread\n", waits, flags=re.DOTALL)
    assert re.search(r"Timeout.*in test_that_keeps_the_lock\n", keeps, flags=re.DOTALL)
    assert crashed.NOTHING in killed
    assert not any("pluggy" in each for each in (fault, waits, keeps, killed))
    assert re.search(r"in in_a_runtime\n.*in test_that_faults\n", failures.read_text("utf-8"))
    assert "assert False" in found["test_that_fails"]
    assert crashed.TITLE not in found["test_that_fails"]
