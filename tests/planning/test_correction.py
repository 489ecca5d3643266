"""What trials say of a prediction."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemmport.core.problem import GemmProblem
from gemmport.planning.correction import UNTRIED, Correction, Place, Ratio, Way

TILING, OTHER = {"TS": 8}, {"TS": 16}


def way(kernel: str = "tiled", tiling: dict[str, int] | None = None, whole: tuple[bool, bool] = (True, True)) -> Way:
    return Way(kernel, tiling or TILING, whole)


def factor(at: Place, how: Way, trials: list[Ratio]) -> float:
    return Correction(trials).factor(at, how)


def place(m: int, n: int = 512, k: int = 512, **options: object) -> Place:
    return Place.of(GemmProblem.create(m, n, k, **options))  # type: ignore[arg-type]


def ratio(at: Place, value: float, how: Way | None = None) -> Ratio:
    return Ratio(at, how or way(), value)


def test_without_trials_a_prediction_stays() -> None:
    assert factor(place(512), way(), []) == 1.0


@given(st.floats(0.01, 100), st.integers(1, 4096))
def test_a_constant_error_is_removed_everywhere(value: float, m: int) -> None:
    trials = [ratio(place(size), value) for size in (64, 512, 4096)]
    assert factor(place(m), way(), trials) == pytest.approx(value)


def test_a_product_that_was_tried_has_what_was_measured() -> None:
    trials = [ratio(place(512), 2.0), *(ratio(place(512 + 100 * at), 1.0) for at in range(1, 20))]
    assert factor(place(512), way(), trials) == pytest.approx(2.0, rel=0.01)


def test_the_nearest_trial_counts_most() -> None:
    trials = [ratio(place(64), 4.0), ratio(place(2048), 1.0)]
    near_small, near_large = (factor(place(m), way(), trials) for m in (80, 1500))
    assert near_small > 3.5
    assert near_large < 1.1


@pytest.mark.parametrize(
    ("near", "far"),
    [
        (place(600), place(600, trans_a="T")),
        (place(600), place(600, dtype="float64")),
        (place(600), place(600, batch=16)),
        (place(600), place(600, k=4096)),
    ],
)
def test_ops_type_batch_and_each_size_tell_trials_apart(near: Place, far: Place) -> None:
    assert factor(place(512), way(), [ratio(near, 2.0), ratio(far, 0.5)]) > 1.5


def test_trials_of_the_tiling_count_most_then_those_of_its_kernel() -> None:
    own, kernel, another = (
        ratio(place(600), value, how) for value, how in ((4.0, way()), (1.0, way(tiling=OTHER)), (0.25, way("naive")))
    )
    assert factor(place(512), way(), [own, kernel, another]) > 3.0
    assert 0.8 < factor(place(512), way(tiling={"TS": 4}), [kernel, another]) <= 1.0


@pytest.mark.parametrize("whole", [(False, True), (True, False), (False, False)])
def test_a_trial_across_an_edge_counts_less_than_one_of_whole_tiles_further_away(whole: tuple[bool, bool]) -> None:
    at_an_edge, further = ratio(place(510), 4.0, way(whole=whole)), ratio(place(640), 1.0)
    assert factor(place(512), way(), [at_an_edge, further]) < 1.1
    assert factor(place(509), way(whole=whole), [at_an_edge, further]) > 3.9


@pytest.mark.parametrize(
    ("m", "n", "whole"),
    [
        (64, 64, (True, True)),
        (32, 64, (True, True)),
        (48, 64, (False, True)),
        (64, 96, (True, False)),
        (31, 65, (False, False)),
    ],
)
def test_what_divides_a_product_is_asked_of_its_tiling(m: int, n: int, whole: tuple[bool, bool]) -> None:
    tiling = {"THREADSX": 4, "THREADSY": 4, "RX": 16, "RY": 8, "RK": 8, "WIDTH": 8}  # 32 × 64 of D
    assert Way.of("direct", tiling, GemmProblem.create(m, n, 7)).whole == whole


def test_sizes_that_are_empty_have_a_place() -> None:
    assert factor(place(0), way(), [ratio(place(512), 2.0)]) == pytest.approx(2.0)


def test_trials_may_come_one_after_the_other() -> None:
    correction = Correction()
    assert correction.factor(place(512), way()) == 1.0
    correction.add(ratio(place(600), 2.0))
    assert correction.factor(place(512), way()) == pytest.approx(2.0)
    correction.add(ratio(place(512), 3.0))
    assert correction.factor(place(512), way()) == pytest.approx(3.0, rel=0.01)


def test_what_was_tried_near_a_product_is_not_doubted() -> None:
    correction = Correction([ratio(place(512), 2.0)])
    assert correction.doubt(place(600), way()) == 1
    assert correction.doubt(place(600), way(whole=(False, True))) == 1
    for at, how in ((place(4096), way()), (place(600), way(tiling=OTHER)), (place(600), way("naive"))):
        assert correction.doubt(at, how) == UNTRIED > 1
    assert Correction().doubt(place(512), way()) == 1
