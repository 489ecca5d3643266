"""What trials say of a prediction."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemmport.core.problem import GemmProblem
from gemmport.planning.correction import UNTRIED, Correction, Place, Ratio

TILING, OTHER = {"TS": 8}, {"TS": 16}


def factor(at: Place, kernel: str, tiling: dict[str, int], trials: list[Ratio]) -> float:
    return Correction(trials).factor(at, kernel, tiling)


def place(m: int, n: int = 512, k: int = 512, **options: object) -> Place:
    return Place.of(GemmProblem.create(m, n, k, **options))  # type: ignore[arg-type]


def ratio(at: Place, value: float, kernel: str = "tiled", tiling: dict[str, int] | None = None) -> Ratio:
    return Ratio(at, kernel, tiling or TILING, value)


def test_without_trials_a_prediction_stays() -> None:
    assert factor(place(512), "tiled", TILING, []) == 1.0


@given(st.floats(0.01, 100), st.integers(1, 4096))
def test_a_constant_error_is_removed_everywhere(value: float, m: int) -> None:
    trials = [ratio(place(size), value) for size in (64, 512, 4096)]
    assert factor(place(m), "tiled", TILING, trials) == pytest.approx(value)


def test_a_product_that_was_tried_has_what_was_measured() -> None:
    trials = [ratio(place(512), 2.0), *(ratio(place(512 + 100 * at), 1.0) for at in range(1, 20))]
    assert factor(place(512), "tiled", TILING, trials) == pytest.approx(2.0, rel=0.01)


def test_the_nearest_trial_counts_most() -> None:
    trials = [ratio(place(64), 4.0), ratio(place(2048), 1.0)]
    near_small, near_large = (factor(place(m), "tiled", TILING, trials) for m in (80, 1500))
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
    assert factor(place(512), "tiled", TILING, [ratio(near, 2.0), ratio(far, 0.5)]) > 1.5


def test_trials_of_the_tiling_count_most_then_those_of_its_kernel() -> None:
    own, kernel, another = (
        ratio(place(600), 4.0), ratio(place(600), 1.0, tiling=OTHER), ratio(place(600), 0.25, "naive")
    )  # fmt: skip
    assert factor(place(512), "tiled", TILING, [own, kernel, another]) > 3.0
    assert 0.8 < factor(place(512), "tiled", {"TS": 4}, [kernel, another]) <= 1.0


def test_sizes_that_are_empty_have_a_place() -> None:
    assert factor(place(0), "tiled", TILING, [ratio(place(512), 2.0)]) == pytest.approx(2.0)


def test_trials_may_come_one_after_the_other() -> None:
    correction = Correction()
    assert correction.factor(place(512), "tiled", TILING) == 1.0
    correction.add(ratio(place(600), 2.0))
    assert correction.factor(place(512), "tiled", TILING) == pytest.approx(2.0)
    correction.add(ratio(place(512), 3.0))
    assert correction.factor(place(512), "tiled", TILING) == pytest.approx(3.0, rel=0.01)


def test_what_was_tried_near_a_product_is_not_doubted() -> None:
    correction = Correction([ratio(place(512), 2.0)])
    assert correction.doubt(place(600), "tiled", TILING) == 1
    for at, kernel, tiling in (
        (place(4096), "tiled", TILING),
        (place(600), "tiled", OTHER),
        (place(600), "naive", TILING),
    ):
        assert correction.doubt(at, kernel, tiling) == UNTRIED > 1
    assert Correction().doubt(place(512), "tiled", TILING) == 1
