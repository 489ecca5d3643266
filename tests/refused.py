"""A plugin of pytest: with a test that fails it tells what NVIDIA's driver refused meanwhile.

From CUDA 12.9 on the driver writes each call that fails to the file of CUDA_LOG_FILE: also one that nobody looked at, or that
another thread made. What breaks the capture of a graph off is told nowhere else; the capture's end only says that it was.
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
_FOLDER = pytest.StashKey[tempfile.TemporaryDirectory[str]]()


def pytest_configure(config: pytest.Config) -> None:
    """Gives this process a file of its own: each worker of pytest-xdist has one."""
    folder = config.stash[_FOLDER] = tempfile.TemporaryDirectory(prefix="gemmport-refused-")
    os.environ[VARIABLE] = str(Path(folder.name) / "log.txt")


def pytest_unconfigure(config: pytest.Config) -> None:
    """Removes it."""
    config.stash[_FOLDER].cleanup()


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
    """What stands in the file from a place on; from its own begin where another process has begun it anew."""
    file = Path(os.environ[VARIABLE])
    if not file.is_file():
        return []
    text = file.read_bytes()
    lines = text[begin if begin <= len(text) else 0 :].decode("utf-8", "replace").splitlines()
    return [line for line in lines if line and not any(word in line for word in _OF_NO_INTEREST)][-LINES:]
