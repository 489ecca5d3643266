"""A run ends with what was not there: every thing, every device's limits, and every reason that nobody has listed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import absences
from absences import THINGS, Thing, beyond, none_of, summary
from import_path import import_path
from made_up_devices import DEVICES

HERE = Thing("An oven", "bread", "buy one", lambda: True)
GONE = Thing("A mill", "flour", "apt-get install mill", lambda: False)


def test_each_thing_that_is_not_here_has_a_line_with_its_command() -> None:
    assert list(summary({}, [HERE, GONE])) == ["not tested: A mill is not here (flour): apt-get install mill"]


def test_tests_that_it_cost_are_counted_in_its_line() -> None:
    assert list(summary({GONE.missing: 3}, [HERE, GONE])) == [f"not tested: {GONE.missing} [3 tests skipped]"]


def test_limits_of_devices_are_one_line_for_each() -> None:
    first, second = DEVICES["Apple"], DEVICES["Intel GPU"]
    skips = {beyond(first, "no float64"): 2, beyond(first, "too small"): 1, beyond(second, "no float64"): 1}
    assert [re.findall(r"\[(\d) test", line) for line in summary(skips, [HERE])] == [["3"], ["1"]]


def test_what_options_left_out_is_one_line() -> None:
    skips = {
        none_of("pocl"): 2,
        "got empty parameter set for (backend, tile)": 1,
        beyond("JAX", "it writes nothing"): 4,
    }
    lines = list(summary(skips, [HERE]))
    assert [re.findall(r"beyond (.*);.*\[(\d) test", line) for line in lines] == [
        [("--backend and --device", "3")],
        [("JAX", "4")],
    ]


def test_an_unknown_reason_is_told_in_full() -> None:
    (line,) = summary({"I did not feel like it": 2}, [HERE])
    assert line.startswith("SKIPPED for a reason that tests/absences.py does not know: I did not feel like it")
    assert "[2 tests skipped]" in line


def test_every_thing_is_named_once_with_what_it_serves_and_how_to_get_it() -> None:
    assert len({thing.missing for thing in THINGS}) == len(THINGS)
    assert all(thing.name and thing.serves and thing.how for thing in THINGS)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_run_ends_with_them_whatever_process_skipped(workers: int, tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "import pytest, absences\n"
        "@pytest.mark.parametrize('x', range(4))\n"
        "def test_planted(x): pytest.skip('a planted reason')\n"
        "def test_browser(): pytest.skip(absences.CHROMIUM.missing)\n",
        encoding="utf-8",
    )
    words = ["-m", "pytest", "-p", "absences", "-p", "no:cacheprovider", "-n", str(workers), "--rootdir", str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": import_path(Path(absences.__file__).parent)}
    for name in [name for name in environment if name.startswith("PYTEST_")]:
        del environment[name]
    done = subprocess.run(
        [sys.executable, *words, str(tmp_path)], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "does not know: a planted reason [4 tests skipped]" in done.stdout
    assert f"not tested: {absences.CHROMIUM.missing} [1 test skipped]" in done.stdout
