"""Of many combinations few are chosen, and no value or pair of values is lost."""

from __future__ import annotations

import itertools

import pytest

from gemmport.fuzz.covering import EACH_PAIR, EACH_VALUE, covering

KERNELS, TYPES, OPS = range(15), range(20), range(4)
PRODUCT = [{"kernel": k, "types": t, "ops": o} for k, t, o in itertools.product(KERNELS, TYPES, OPS)]


def met(rows: list[dict[str, int]], strength: int) -> set[tuple[tuple[str, int], ...]]:
    return {each for row in rows for each in itertools.combinations(row.items(), strength)}


@pytest.mark.parametrize(("strength", "most"), [(EACH_VALUE, 20), (EACH_PAIR, 320)])
def test_all_combinations_are_met_by_few_rows(strength: int, most: int) -> None:
    chosen = [PRODUCT[number] for number in covering(PRODUCT, strength)]
    assert met(chosen, strength) == met(PRODUCT, strength)
    assert len(chosen) <= most


def test_what_does_not_go_together_is_not_asked_for() -> None:
    rows = [row for row in PRODUCT if row["kernel"] != 3 or row["ops"] == 0]
    chosen = [rows[number] for number in covering(rows, EACH_PAIR)]
    assert met(chosen, EACH_PAIR) == met(rows, EACH_PAIR)


def test_the_first_of_equals_is_taken() -> None:
    rows = [{"device": device, "kernel": kernel} for device in ("fast", "slow") for kernel in KERNELS]
    assert [rows[number]["device"] for number in covering(rows, EACH_VALUE)].count("slow") == 1


def test_rows_of_one_value_are_all_taken_once() -> None:
    assert covering([{"kernel": 1}, {"kernel": 2}, {"kernel": 1}], EACH_PAIR) == [0, 1]


def test_of_nothing_nothing_is_taken() -> None:
    assert covering([], EACH_PAIR) == []
