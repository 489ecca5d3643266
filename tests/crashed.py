"""A plugin of pytest. The report of a test that ended its worker of pytest-xdist says where the worker's threads were.

A fault in a runtime ends it, or the time limit. pytest and pytest-timeout write the threads to the worker's standard error, far
from the report. Without workers that is where one looks, and nothing is done here.
"""

from __future__ import annotations

import faulthandler
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

TITLE = "where the worker's threads were"
"""Of the section of the report."""

NOTHING = "It does not say: it was killed, as Linux does where memory is short, or it ended itself."
"""Where there was no time to write anything."""

OF_LIMIT = 0.98
"""Of a test's time, after which it ends the worker. At the limit pytest-timeout would, which needs Python's lock for it: what
hangs may have that."""

_NAME = "written by faulthandler"
"""Of what the process that collects the results tells a worker."""

_FOLDER = pytest.StashKey[Path]()
_OF_PYTEST = re.compile(r"/site-packages/(_pytest|pluggy|xdist|execnet|pytest_timeout)\b|^  File \"<string>\"")


def pytest_configure(config: pytest.Config) -> None:
    """Prepares a folder for what workers write, or, as a worker, to write."""
    if hasattr(config, "workerinput"):
        config.pluginmanager.register(_Worker(Path(config.workerinput[_NAME])))
        return
    folder = tempfile.TemporaryDirectory(prefix="gemmport-crashed-")
    config.add_cleanup(folder.cleanup)
    config.stash[_FOLDER] = Path(folder.name)


@pytest.hookimpl(optionalhook=True)  # of pytest-xdist
def pytest_configure_node(node: Any) -> None:
    """Tells a worker where to write, before it starts."""
    node.workerinput[_NAME] = str(_file_of(node))


@pytest.hookimpl(optionalhook=True)  # of pytest-xdist
def pytest_handlecrashitem(report: Any) -> None:
    """Adds what the worker wrote."""
    file = _file_of(report.node)
    written = file.read_text("utf-8", "replace") if file.is_file() else ""
    report.sections.append((TITLE, "\n\n".join(_told(written)) or NOTHING))


def _file_of(node: Any) -> Path:
    folder: Path = node.config.stash[_FOLDER]
    return folder / f"{node.gateway.id}.txt"


def _told(written: str) -> Iterator[str]:
    """What faulthandler wrote, a thread at a time, without what every test has in common and threads that have nothing else."""
    for thread in written.split("\n\n"):
        lines = [line for line in thread.splitlines() if not _OF_PYTEST.search(line)]
        if lines and (len(lines) > 1 or "most recent call first" not in lines[0]):
            yield "\n".join(lines)


class _Worker:
    """The plugin of a worker."""

    def __init__(self, path: Path) -> None:
        self.file = path.open("wb", buffering=0)

    def pytest_sessionstart(self) -> None:
        """Takes faults over from pytest, whose own plugin has them written elsewhere till it is unconfigured."""
        faulthandler.enable(self.file)

    @pytest.hookimpl(optionalhook=True, tryfirst=True)  # of pytest-timeout
    def pytest_timeout_set_timer(self, settings: Any) -> None:
        """A test begins that has a limit."""
        faulthandler.dump_traceback_later(OF_LIMIT * settings.timeout, file=self.file, exit=True)

    @pytest.hookimpl(optionalhook=True, tryfirst=True)  # of pytest-timeout
    def pytest_timeout_cancel_timer(self) -> None:
        """It has ended."""
        faulthandler.cancel_dump_traceback_later()
