"""A plugin of pytest. The report of a failed test lists the calls that NVIDIA's driver refused during that test.

From CUDA 12.9 on the driver writes each refused call to the file that CUDA_LOG_FILE names. Calls of other threads are there,
too, and calls whose result nobody checks. Nothing else names the call that breaks the capture of a graph off.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Generator
from pathlib import Path

import pytest

VARIABLE = "CUDA_LOG_FILE"
"""Which the driver reads when a process first uses it. Processes that tests start have it, too."""

TITLE = "refused by NVIDIA's driver"
"""Of the section of a test's report."""

LINES = 40
"""That are told, the last ones."""

_OF_NO_INTEREST = ("cuCtxGetDevice", "No CUDA context is current", "cannot be found in library")
"""How PyTorch finds out whether a context is there, and what is in a program."""

_BEGIN = pytest.StashKey[int]()


def pytest_configure(config: pytest.Config) -> None:
    """Gives this process a file of its own, until pytest ends: each worker of pytest-xdist has one."""
    folder = tempfile.TemporaryDirectory(prefix="gemmport-refused-")
    config.add_cleanup(folder.cleanup)
    patch = pytest.MonkeyPatch()
    config.add_cleanup(patch.undo)
    patch.setenv(VARIABLE, str(Path(folder.name) / "log.txt"))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Remembers where the file ends as the test begins."""
    file = Path(os.environ[VARIABLE])
    item.stash[_BEGIN] = file.stat().st_size if file.is_file() else 0


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Adds what was refused since then."""
    report = yield
    if report.failed and (lines := refused(item.stash.get(_BEGIN, 0))):
        report.sections.append((TITLE, "\n".join(lines)))
    return report


def refused(begin: int) -> list[str]:
    """The lines of the file from a place on; all lines where the file is shorter, since another process has begun it anew."""
    file = Path(os.environ[VARIABLE])
    if not file.is_file():
        return []
    text = file.read_bytes()
    lines = text[begin if begin <= len(text) else 0 :].decode("utf-8", "replace").splitlines()
    return [line for line in lines if line and not any(word in line for word in _OF_NO_INTEREST)][-LINES:]
