"""Which tilings an entry keeps: few, and for each product one that is about as fast as the best."""

from __future__ import annotations

from gemmport.core.problem import GemmProblem
from gemmport.tuning.tilings import MOST_TILINGS, Tiling, Times, chosen_tilings, nearby, tiling_of

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


def test_what_is_expected_to_serve_products_nearby_is_kept_for_them() -> None:
    """B is the best for none that was tuned, and expected to be for most of those around them."""
    seen, near = times(a=1.0, b=1.01), Times(GemmProblem.create(10, 10, 10), {}, {A: 1.5, B: 1.0})
    assert chosen_tilings([seen]) == [A]
    assert chosen_tilings([seen, near, near]) == [B, A]


def test_no_expectation_makes_a_measured_time_worse() -> None:
    """That A was measured to be the best stays, however much is expected of B."""
    assert chosen_tilings([Times(GemmProblem.create(8, 8, 8), {A: 1.0}, {B: 0.5})]) == [A]


def test_no_more_are_kept_than_planners_compare() -> None:
    tilings: list[Tiling] = [("tiled", (("TS", at),)) for at in range(1, 40)]
    assert (
        len(chosen_tilings([Times(GemmProblem.create(8, 8, 8), {tiling: 1.0}) for tiling in tilings])) == MOST_TILINGS
    )


def test_products_nearby_are_a_bit_smaller_and_larger_in_the_same_layouts() -> None:
    problem = GemmProblem.create(100, 1, 1000, batch=3, trans_a="T", dtype="float64")
    found = list(nearby(problem))
    assert [(one.m, one.n, one.k) for one in found] == [(80, 1, 800), (125, 1, 1250)]
    assert all((one.batch, one.ops, one.dtype) == (3, "TN", problem.dtype) for one in found)
    assert list(nearby(GemmProblem.create(1, 2, 3))) == []


def test_parameters_are_a_key() -> None:
    assert tiling_of("tiled", {"TS": 8}) == A
