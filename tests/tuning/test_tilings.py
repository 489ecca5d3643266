"""Which tilings an entry keeps: few, and for each product one that is about as fast as the best."""

from __future__ import annotations

from gemmport.core.problem import GemmProblem
from gemmport.tuning.tilings import Tiling, Times, chosen_tilings, tiling_of

A: Tiling = ("tiled", (("TS", 8),))
B: Tiling = ("tiled", (("TS", 16),))
C: Tiling = ("naive", (("TS", 8),))


def times(**seconds: float) -> Times:
    known = {"a": A, "b": B, "c": C}
    return Times(GemmProblem.create(8, 8, 8), {known[name]: value for name, value in seconds.items()})


def test_one_tiling_that_is_the_best_everywhere_is_enough() -> None:
    assert chosen_tilings([times(a=1.0, b=2.0), times(a=1.0, c=1.1)]) == [A]


def test_the_one_that_saves_most_is_first_and_another_where_it_is_faster() -> None:
    table = [times(a=1.0, b=1.5), times(a=1.0, b=1.5), times(a=1.5, b=1.0, c=1.2)]
    assert chosen_tilings(table) == [A, B]


def test_what_saves_next_to_nothing_is_not_kept() -> None:
    assert chosen_tilings([times(a=1.0, b=1.2), times(a=1.001, b=1.0)]) == [A]


def test_a_product_that_no_kept_tiling_was_tried_for_gets_one() -> None:
    assert chosen_tilings([times(a=1.0), times(a=1.0), times(c=1.0)]) == [A, C]


def test_what_is_needed_is_kept_in_any_case_and_once() -> None:
    assert chosen_tilings([times(a=1.0)], [C, A, C]) == [A, C]
    assert chosen_tilings([], [C]) == [C]
    assert chosen_tilings([]) == []


def test_parameters_are_a_key() -> None:
    assert tiling_of("tiled", {"TS": 8}) == A
