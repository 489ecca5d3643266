"""A plugin of pytest, `--failures=FILE`: it writes each failed test as it fails, for runs that are interrupted or that break.

FILE is written anew. Under pytest-xdist the process that collects the results writes it: it knows of tests that ended a
worker, too. The last line says that the run came to its end; where it is missing, not all tests were run.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import crashed
import refused

LINES = 12
"""Of a test's output, the last ones: the error, and where it was raised."""

WHOLE = (crashed.TITLE, refused.TITLE)
"""The sections of a report that are written, too."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """--failures."""
    group = parser.getgroup("gemmport")
    group.addoption("--failures", metavar="FILE", type=Path, help="write each failed test to FILE as it fails")


def pytest_configure(config: pytest.Config) -> None:
    """Begins the file, if the command line asks for one. A worker tells what it found to the process that started it."""
    path = config.getoption("--failures")
    if path is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Failures(path))


class Failures:
    """The plugin of pytest that writes the file."""

    def __init__(self, path: Path) -> None:
        self.path, self.number = path, 0
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("", "utf-8")

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A module that cannot be imported."""
        if report.failed:
            self._tell(f"{report.nodeid} (collect)", report.longreprtext)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A test, or what comes before or after it."""
        if report.failed:
            whole = [f"{title}:\n{text}" for title, text in report.sections if title in WHOLE]
            self._tell(f"{report.nodeid} ({report.when})", report.longreprtext, *whole)

    def pytest_internalerror(self, excrepr: object) -> None:
        """What ends pytest itself."""
        self._tell("pytest", str(excrepr))

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Writes the last line, unless `-x` or `--maxfail` ended the run early, whose status is that of failed tests."""
        ended = pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED
        if exitstatus in ended and not (session.shouldfail or session.shouldstop):
            self._append(f"{self.number} failed in a run that came to its end\n")

    def _tell(self, name: str, reason: str, *whole: str) -> None:
        self.number += 1
        lines = reason.rstrip().splitlines()[-LINES:] + [line for text in whole for line in text.splitlines()]
        self._append("".join([f"{name}\n", *(f"    {line}\n" for line in lines)]))

    def _append(self, text: str) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(text)
