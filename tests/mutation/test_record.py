"""The record of mutation testing is that of the checkers as they are, and nothing in them goes unnoticed without a reason."""

from __future__ import annotations

import checkers
import pytest
from checkers import CHECKERS, COMMAND, LEAST_SCORE, Checker

pytestmark = pytest.mark.mutants


@pytest.fixture(scope="module")
def record() -> dict[str, checkers.Outcome]:
    return checkers.read()


def test_every_checker_is_on_record_and_no_other_module(record: dict[str, checkers.Outcome]) -> None:
    assert list(record) == [checker.module for checker in CHECKERS]


@pytest.mark.parametrize("checker", CHECKERS, ids=lambda checker: checker.module)
class TestChecker:
    def test_has_not_changed_since_it_was_mutated(self, checker: Checker, record: dict[str, checkers.Outcome]) -> None:
        assert record[checker.module].digest == checker.digest, (
            f"{checker.module} or its tests changed since their record: run {COMMAND}, and commit tests/mutation/record.json"
        )

    def test_is_judged_well_enough(self, checker: Checker, record: dict[str, checkers.Outcome]) -> None:
        outcome = record[checker.module]
        assert outcome.mutants > 0
        assert outcome.score >= LEAST_SCORE, [survivor for survivor in outcome.survivors if not survivor.reason]
