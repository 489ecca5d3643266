"""The record of mutation testing is that of the checkers as they are, and nothing in them goes unnoticed without a reason."""

from __future__ import annotations

import pytest

import checkers
from checkers import CHECKERS, COMMAND, LEAST_SCORE, Checker, Survivor, why_harmless

pytestmark = pytest.mark.mutants


@pytest.fixture(scope="module")
def record() -> dict[str, checkers.Mutated]:
    return checkers.read()


def test_every_checker_is_on_record_and_no_other_module(record: dict[str, checkers.Mutated]) -> None:
    assert list(record) == [checker.module for checker in CHECKERS]


@pytest.mark.parametrize("checker", CHECKERS, ids=lambda checker: checker.module)
class TestChecker:
    def test_has_not_changed_since_it_was_mutated(self, checker: Checker, record: dict[str, checkers.Mutated]) -> None:
        assert record[checker.module].digest == checker.digest, (
            f"{checker.module} or its tests changed since their record: run {COMMAND}, and commit tests/mutation/record.json"
        )

    def test_is_judged_well_enough(self, checker: Checker, record: dict[str, checkers.Mutated]) -> None:
        outcome = record[checker.module]
        assert outcome.mutants > 0
        assert outcome.score >= LEAST_SCORE, [survivor for survivor in outcome.survivors if not survivor.reason]


@pytest.mark.parametrize(
    ("was", "becomes", "harmless"),
    [
        ('raise ValueError(f"k = {k}")', "raise ValueError(None)", True),
        ('raise ValueError(f"k = {k}")', "raise TypeError()", False),
        ("raise", "pass", False),
        ('f"{d} elements differ"', 'f"{e} elements differ"', True),
        ('"another device"', "None", True),
        ('"float32",', '"FLOAT32",', False),
        ('"" if same(a, b) else "it was changed"', '"" if same(a, a) else "it was changed"', False),
        ('log.info("%s", name)', "log.info(None, name)", True),
        ('log.info("%s", name)', "pass", False),
        ('with np.errstate(over="ignore"):', "with np.errstate(over=None):", True),
        ("zip(a, b, strict=True)", "zip(a, b, )", True),
        ("zip(a, b, strict=True)", "zip(a, a, strict=True)", False),
        ("x.astype(wide, copy=False)", "x.astype(wide, copy=None)", True),
        ("x.astype(wide, copy=False)", "x.astype(None, copy=False)", False),
    ],
)
def test_kinds_of_mutants_that_are_no_fault_of_a_checker(was: str, becomes: str, harmless: bool) -> None:
    assert bool(why_harmless(Survivor("function", was, becomes))) == harmless
