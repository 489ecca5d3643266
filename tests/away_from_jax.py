"""A plugin of pytest. Tests marked `away_from_jax` run in another process where JAX is at work on a GPU in this one: all of a
file, once the first of them is due.

A thread of JAX's waits for its streams every five seconds, by which CUDA breaks off a capture of its default mode
(docs/interchange.md). It does so until the process ends, also after `jax.extend.backend.clear_backends()`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

MARKER = "away_from_jax"

RESULTS = "GEMMPORT_RESULTS_FILE"
"""The variable by which the other process knows the file for what comes of its tests."""

_FILE = pytest.StashKey[str]()

_CAME = pytest.StashKey[dict[Path, dict[str, tuple[str, str]]]]()
"""Of each file's tests, by their names: how they ended, and what there is to say."""

_UNTOLD = ""
"""In place of the name of a test that did not run."""


def pytest_configure(config: pytest.Config) -> None:
    """Registers the marker."""
    config.addinivalue_line("markers", f"{MARKER}: must not share its process with JAX on a GPU")
    config.stash[_CAME] = {}
    config.stash[_FILE] = os.environ.pop(RESULTS, "")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> object:
    """Writes down how a test ended, in the other process."""
    report = yield
    file = item.config.stash[_FILE]
    if file and (report.when == "call" or not report.passed):
        text = report.longrepr[2].removeprefix("Skipped: ") if report.skipped else report.longreprtext
        with open(file, "a", encoding="utf-8") as results:
            results.write(json.dumps([report.nodeid, report.outcome, text]) + "\n")
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Ends a test as it ended elsewhere; nothing where it may run here."""
    if pyfuncitem.get_closest_marker(MARKER) is None or not is_jax_at_work():
        return None
    config = pyfuncitem.config
    came = config.stash[_CAME]
    if pyfuncitem.path not in came:
        came[pyfuncitem.path] = _elsewhere(config, pyfuncitem.path)
    outcome, text = came[pyfuncitem.path].get(pyfuncitem.nodeid, came[pyfuncitem.path][_UNTOLD])
    if outcome == "skipped":
        pytest.skip(text)
    if outcome != "passed":
        pytest.fail(f"away from JAX: {text}", pytrace=False)
    return True


def _elsewhere(config: pytest.Config, file: Path) -> dict[str, tuple[str, str]]:
    """What comes of a file's marked tests in a process of their own."""
    words = [f"--{name}={value}" for name in ("backend", "device") if (value := config.getoption(name, None))]
    words += [f"--{name}" for name in ("all", "exhaustive") if config.getoption(name, None)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_XDIST")}
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / "results.jsonl"
        results.touch()
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-m", MARKER, *words, str(file)],
            cwd=config.rootpath, env=environment | {RESULTS: str(results)}, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        lines = results.read_text("utf-8").splitlines()
    untold = ("failed", f"it did not run: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return {_UNTOLD: untold} | {name: (outcome, text) for name, outcome, text in map(json.loads, lines)}


def is_jax_at_work() -> bool:
    """Whether JAX has been imported and computes on a GPU."""
    jax = sys.modules.get("jax")
    return jax is not None and jax.default_backend() == "gpu"
