"""A plugin of pytest for two runs of one commit on one machine: `--passed-to=FILE` notes what passes in the first, and
`--but-passed=FILE` leaves out of the second what would say the same again.

`.ci/run` tests a commit as a newcomer does, and then with every runtime there is. The same test, with the same parameters,
says the same again if it stands in a room of `ROOMS`, whose tests ask the machine for compilers and for the devices that they
take. Tests that draw examples stay: `make test-all` draws more.
"""

from __future__ import annotations

from pathlib import Path

import pytest

ROOMS = ("api", "backends", "checking", "contracts", "core", "execution", "host", "kernels", "planning", "tuning")
"""Folders here."""

_TESTS = Path(__file__).parent
_LEFT_OUT = pytest.StashKey[int]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """--passed-to and --but-passed."""
    group = parser.getgroup("gemmport")
    group.addoption("--passed-to", metavar="FILE", type=Path, help="write the name of each test that passes to FILE")
    group.addoption(
        "--but-passed",
        metavar="FILE",
        type=Path,
        help="leave out what passed in the run that wrote FILE, and is the same",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Checks what is named. Workers tell their results to the process that started them, and that one writes."""
    given = config.getoption("--but-passed")
    if given is not None and not given.is_file():
        raise pytest.UsageError(
            f"--but-passed must be a file that --passed-to wrote; got {given}: run with --passed-to={given} first"
        )
    path = config.getoption("--passed-to")
    if path is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Passed(path))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out what passed before."""
    path = config.getoption("--but-passed")
    if path is None:
        return
    passed = frozenset(path.read_text("utf-8").splitlines())
    dropped = [item for item in items if item.nodeid in passed and says_the_same(item)]
    gone = set(dropped)
    items[:] = [item for item in items if item not in gone]
    config.stash[_LEFT_OUT] = len(dropped)
    config.hook.pytest_deselected(items=dropped)


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """How many: -q shows no header. Under pytest-xdist workers alone know."""
    if path := config.getoption("--but-passed"):
        count = config.stash.get(_LEFT_OUT, None)
        told = "tests" if count is None else f"{count} tests"
        terminalreporter.line(f"left out by --but-passed: {told} that passed before, as {path} says")


def says_the_same(item: pytest.Item) -> bool:
    """Whether a second run of a test on the same machine tells nothing new, whatever was installed since."""
    room = item.path.relative_to(_TESTS).parts[0]
    return room in ROOMS and not getattr(getattr(item, "obj", None), "is_hypothesis_test", False)


class Passed:
    """The plugin of pytest that writes the file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("", "utf-8")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A test that ran to its end; what comes after it may still fail, which fails the run."""
        if report.when == "call" and report.passed and not hasattr(report, "wasxfail"):
            with self.path.open("a", encoding="utf-8") as file:
                file.write(f"{report.nodeid}\n")
