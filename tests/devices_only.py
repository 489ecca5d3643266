"""A plugin of pytest, `--devices-only`: it leaves out tests that are the same under every --backend, for they use no device.

On a machine with a GPU they compile, simulate and start processes on cores that tests of the GPU wait for. A test is left out
if it takes no device, as a fixture or as a parameter, and stands in a room of `ROOMS`; a test of another room may find its
device itself, and stays. Every run, with the option or without, holds the rooms to that: a test that would be left out fails
where it loads a program on a device.
"""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

import gemmport as gp
import tested
from gemmport.execution import selection

FIXTURES = frozenset({"backend", "best_backend", "fresh_backend"})
"""Those that are a device."""

ROOMS = (
    "bench", "calibration", "checking", "contracts", "core", "host", "inspection", "kernels", "matrix", "mutation", "planning",
    "runtime", "tuning", "backends/test_cuda_compile.py", "backends/test_gpu_compile.py", "backends/test_sass.py", ".",
)  # fmt: skip
"""Folders and files here, without subfolders, in which whoever uses a device takes one."""

_TESTS = Path(__file__).parent


def pytest_addoption(parser: pytest.Parser) -> None:
    """--devices-only."""
    group = parser.getgroup("gemmport")
    group.addoption("--devices-only", action="store_true", help="leave out tests that use no device")


def pytest_report_header(config: pytest.Config) -> list[str]:
    """What is left out."""
    return [told()] if config.getoption("--devices-only") else []


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Likewise, behind what was not there: -q shows no header."""
    if config.getoption("--devices-only"):
        terminalreporter.line(told())


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves them out."""
    if config.getoption("--devices-only"):
        dropped = [item for item in items if uses_no_device(item)]
        gone = set(dropped)
        items[:] = [item for item in items if item not in gone]
        config.hook.pytest_deselected(items=dropped)


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Fails a test that would be left out wrongly."""
    before = programs_used(pyfuncitem.config)
    result = yield
    if programs_used(pyfuncitem.config) > before and uses_no_device(pyfuncitem):
        pytest.fail(
            "it uses a device, and --devices-only would leave it out: take best_backend, or strike its room from ROOMS"
        )
    return result


def told() -> str:
    """What is left out, in a line."""
    return f"left out by --devices-only: what uses no device, in {', '.join(ROOMS[:-1])} and the top of tests"


def uses_no_device(item: pytest.Item) -> bool:
    """Whether a test is the same under every --backend."""
    place = item.path.relative_to(_TESTS)
    if not {str(place), str(place.parent)}.intersection(ROOMS) or FIXTURES.intersection(
        getattr(item, "fixturenames", ())
    ):
        return False
    parameters = item.callspec.params.values() if hasattr(item, "callspec") else ()
    return not any(isinstance(value, gp.DeviceInfo) and value in gp.devices() for value in parameters)


def programs_used(config: pytest.Config) -> int:
    """How often a program was asked for on the devices that are tested."""
    counts = [own.program_counts for own in selection._open.values() if own.device in tested.devices(config)]
    return sum(each.compiled + each.from_disk + each.from_memory for each in counts)
