"""--but-passed leaves out what passed in an earlier run and says the same again, and nothing else."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from passed import ROOMS, says_the_same

TESTS = Path(__file__).parent

pytest_plugins = ["pytester"]


def item(place: str, **attributes: Any) -> Any:
    return SimpleNamespace(path=TESTS / place, obj=SimpleNamespace(**attributes))


@pytest.mark.parametrize(
    ("place", "attributes", "same"),
    [
        ("kernels/test_kernels.py", {}, True),
        ("kernels/test_kernels.py", {"is_hypothesis_test": True}, False),  # make test-all draws more examples
        ("diagnose/test_doctor.py", {}, False),  # finds what is installed
        ("test_tiers.py", {}, False),
    ],
)
def test_what_asks_for_more_than_its_devices_is_run_again(place: str, attributes: dict[str, Any], same: bool) -> None:
    assert says_the_same(item(place, **attributes)) == same


def test_a_file_that_is_not_there_is_told(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(f"import sys\nsys.path.append({str(TESTS)!r})\npytest_plugins = ['passed']\n")
    done = pytester.runpytest_subprocess("--but-passed", "nowhere.txt")
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines(["ERROR: --but-passed must be a file that --passed-to wrote; got nowhere.txt: *"])


def test_its_rooms_are_folders_here() -> None:
    assert all((TESTS / room).is_dir() for room in ROOMS)


def test_what_failed_was_skipped_or_is_new_is_run_again(pytester: pytest.Pytester) -> None:
    """Under pytest-xdist, too, where the first process writes and workers read."""
    pytester.makeconftest(f"import sys\nsys.path.append({str(TESTS)!r})\npytest_plugins = ['passed']\n")
    pytester.makepyfile(
        """
        import pytest, passed
        from pathlib import Path
        passed._TESTS, passed.ROOMS = Path(__file__).parent, ("test_what_failed_was_skipped_or_is_new_is_run_again.py",)
        @pytest.mark.parametrize("x", [1, 2])
        def test_passes(x): pass
        def test_fails(): assert False
        def test_skips(): pytest.skip("no")
        @pytest.mark.xfail
        def test_is_expected_to_fail(): assert False
        """
    )
    first = pytester.runpytest_subprocess("-n", "2", "--passed-to", "noted/passed.txt")
    first.assert_outcomes(passed=2, failed=1, skipped=1, xfailed=1)
    again = pytester.runpytest_subprocess("--but-passed", "noted/passed.txt")
    again.assert_outcomes(failed=1, skipped=1, xfailed=1, deselected=2)
    again.stdout.fnmatch_lines(["left out by --but-passed: 2 tests that passed before*"])
    spread = pytester.runpytest_subprocess("-n", "2", "--but-passed", "noted/passed.txt")
    spread.assert_outcomes(failed=1, skipped=1, xfailed=1)
    spread.stdout.fnmatch_lines(["left out by --but-passed: tests that passed before*"])
