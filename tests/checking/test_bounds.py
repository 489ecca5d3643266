"""The bounds are what they say: for each type of sums, a fault of three times the bound fails and one of a third passes.

The bounds are stated here once more, in numbers, so that one that is made wider, or narrower, or no longer asked for somewhere,
shows. The types are those of `ACCUMULATORS`, with all inputs that go with them: a type that is added is tried at once.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import gemmport as gp
from absences import beyond
from gemmport.bench.pass_jobs import Reduction
from gemmport.checking import verification as verify
from gemmport.checking.device_check import check_freivalds_on, check_rows_on
from gemmport.checking.reference import applied, reference
from gemmport.core.dtypes import ACCUMULATORS, DTYPES, check_types
from gemmport.core.errors import DtypeError
from gemmport.core.problem import GemmProblem, Operand
from gemmport.kernels.times_vector import Sums
from on_device import placed

Array = np.ndarray
Operands = dict[Operand, Array]

WIDE = {"real": np.longdouble, "complex": np.clongdouble}


def goes_with(dtype: str, sums: str) -> bool:
    """Whether such inputs are added up in such sums; and, where those round, are numbers of random sign themselves."""
    try:
        check_types(DTYPES[dtype], DTYPES[sums], DTYPES[sums])
    except DtypeError:
        return False
    return bool(DTYPES[dtype].precision) == bool(DTYPES[sums].precision)


TYPES = [(dtype, sums) for sums, dtype in itertools.product(ACCUMULATORS, DTYPES) if goes_with(dtype, sums)]
ROUNDED = [(dtype, sums) for dtype, sums in TYPES if DTYPES[sums].precision]
WHOLE = [(dtype, sums) for dtype, sums in TYPES if not DTYPES[sums].precision]

SHAPES = {16: (2, 17, 19), 1000: (1, 5, 7), 100_000: (1, 3, 4)}
"""Batch, m and n by k: of few elements, float64's are all summed exactly."""


def test_every_type_of_sums_is_tried() -> None:
    assert {sums for _, sums in TYPES} == set(ACCUMULATORS)
    assert {dtype for dtype, _ in TYPES} == set(DTYPES)


def problem_of(dtype: str, sums: str, k: int, **scalars: Any) -> GemmProblem:
    batch, m, n = SHAPES[k]
    return GemmProblem.create(m, n, k, batch=batch, dtype=dtype, output=sums, accumulator=sums, trans_b="T", **scalars)


def scalars_of(sums: str) -> dict[str, complex]:
    return {"alpha": 1 - 2j, "beta": 0.5j} if DTYPES[sums].kind == "complex" else {"alpha": -1.5, "beta": 0.5}


def roundoff(sums: str) -> float:
    """u, by NumPy's account of the type."""
    return float(np.finfo(sums).eps) / 2


def factors(problem: GemmProblem, operands: Operands) -> tuple[Array, Array]:
    """op(A) and op(B)."""
    return applied(operands["a"], problem.trans_a), applied(operands["b"], problem.trans_b)


def exactly(problem: GemmProblem, operands: Operands) -> Array:
    """D in numbers that are more precise than any of ours."""
    wide = WIDE[problem.accumulator.kind]  # type: ignore[index]  # of what rounds
    left, right = (x.astype(wide) for x in factors(problem, operands))
    d = problem.alpha * np.matmul(left, right)
    return d + problem.beta * operands["c"].astype(wide) if problem.beta != 0 else d


def norms(x: Array, axis: int) -> Array:
    """Euclidean, in float64 or wider."""
    wide = np.clongdouble if np.iscomplexobj(x) else np.longdouble
    return np.sqrt((np.abs(x.astype(wide)) ** 2).sum(axis=axis))


def stated(problem: GemmProblem, operands: Operands, expected: Array) -> Array:
    """8 u |alpha| ‖a‖ ‖b‖, and the roundings of alpha · sum, beta · C, their sum and the output; √2 times that if complex."""
    u = roundoff(problem.accumulator.name)
    left, right = factors(problem, operands)
    bound = 8 * u * abs(problem.alpha) * norms(left, 2)[:, :, np.newaxis] * norms(right, 1)[:, np.newaxis, :]
    bound = bound + 3 * u * np.abs(expected)
    if problem.beta != 0:
        bound = bound + 2 * u * abs(problem.beta) * np.abs(operands["c"].astype(expected.dtype))
    return bound * (math.sqrt(2) if problem.accumulator.kind == "complex" else 1)


def freivalds(problem: GemmProblem, operands: Operands, expected: Array, *, own: float) -> Array:
    """What D · x may be off by in each row, in sums whose own roundoff is known."""
    u = roundoff(problem.accumulator.name)
    left, right = factors(problem, operands)
    whole = norms(norms(right, 1), 1)[:, np.newaxis]
    bound = 8 * (u + 2 * own) * abs(problem.alpha) * norms(left, 2) * whole + 8 * (3 * u + own) * norms(expected, 2)
    return bound * (math.sqrt(2) if problem.accumulator.kind == "complex" else 1)


def places(problem: GemmProblem) -> Iterator[tuple[int, int, int]]:
    """The corners, the middle, and one drawn at random."""
    shape = (problem.batch, problem.m, problem.n)
    yield from itertools.product(*({0, extent - 1} for extent in shape))
    yield (shape[0] // 2, shape[1] // 2, shape[2] // 2)
    yield tuple(int(x) for x in np.random.default_rng(17).integers(1, [extent + 1 for extent in shape]) - 1)  # type: ignore[misc]


def off_by(expected: Array, error: Array, problem: GemmProblem, seed: int = 0) -> Array:
    """D with errors of a size and of any sign or direction."""
    angles = np.random.default_rng(seed).uniform(0, 2 * np.pi, expected.shape)
    complexes = problem.accumulator.kind == "complex"
    directions = np.exp(1j * angles) if complexes else np.where(angles < np.pi, -1.0, 1.0)
    return (expected + directions * error).astype(problem.output.numpy)


@pytest.mark.sample(k=[16])
@pytest.mark.parametrize("k", SHAPES)
@pytest.mark.parametrize(("dtype", "sums"), ROUNDED)
class TestOfSumsThatRound:
    @pytest.mark.parametrize("scaled", [False, True], ids=["plain", "with alpha and C"])
    def test_three_times_the_bound_fails_anywhere_and_a_third_passes(
        self, dtype: str, sums: str, k: int, scaled: bool
    ) -> None:
        problem = problem_of(dtype, sums, k, **(scalars_of(sums) if scaled else {}))
        operands = verify.random_operands(problem, k)
        expected = exactly(problem, operands)
        bound = stated(problem, operands, expected)
        nearly = off_by(expected, bound / 3, problem)
        check = verify.check_random(problem, operands, nearly)
        assert check.passed, check.detail
        far = off_by(expected, 3 * bound, problem)
        everywhere = sorted(set(places(problem)))
        for planted in (
            ([place] for place in everywhere) if k == min(SHAPES) else [everywhere]
        ):  # long sums take their time
            d = nearly.copy()
            for place in planted:
                d[place] = far[place]
            check = verify.check_random(problem, operands, d)
            assert not check.passed
            assert check.detail.startswith(f"{len(planted)} of ")
            assert any("batch {} row {} column {},".format(*place) in check.detail for place in planted)

    def test_of_very_large_products_too(self, dtype: str, sums: str, k: int, monkeypatch: pytest.MonkeyPatch) -> None:
        """In whole rows: the first, the last, and those between, of which some are taken."""
        monkeypatch.setattr(verify, "FULL_REFERENCE_FLOPS", 0)
        problem = problem_of(dtype, sums, k)
        operands = verify.random_operands(problem, k)
        expected = exactly(problem, operands)
        bound = stated(problem, operands, expected)
        nearly, far = (off_by(expected, times * bound, problem) for times in (1 / 3, 3))
        assert verify.check_random(problem, operands, nearly).passed
        for rows in (slice(0, 1), slice(-1, None), slice(1, -1)):
            d = nearly.copy()
            d[:, rows, 1:-1] = far[:, rows, 1:-1]
            assert not verify.check_random(problem, operands, d).passed

    def test_of_freivalds_check(self, dtype: str, sums: str, k: int) -> None:
        problem = problem_of(dtype, sums, k, **scalars_of(sums))
        operands = verify.random_operands(problem, k)
        expected = exactly(problem, operands)
        tolerance = freivalds(problem, operands, expected, own=2.0**-53)
        for batch, row, column in places(problem):
            for times, passes in ((1 / 3, True), (3, False)):
                error = np.zeros(expected.shape)
                error[batch, row, column] = times * tolerance[batch, row]
                check = verify.check_freivalds(problem, operands, off_by(expected, error, problem), 0)
                assert check.passed == passes, (times, check.detail)

    def test_what_rounds_on_its_way_is_within_the_bound(self, dtype: str, sums: str, k: int) -> None:
        """A sum of one term after the other, and one of NumPy's, in the type itself."""
        problem = problem_of(dtype, sums, k)
        operands = verify.random_operands(problem, k + 1)
        left, right = (x.astype(problem.accumulator.numpy) for x in factors(problem, operands))
        one_by_one = np.zeros((problem.batch, problem.m, problem.n), problem.accumulator.numpy)
        for p in range(k):
            one_by_one += left[:, :, p, np.newaxis] * right[:, np.newaxis, p]
        assert verify.check_random(problem, operands, one_by_one).passed
        if sums != "float16":  # whose products NumPy adds up in another way than it says
            assert verify.check_random(problem, operands, np.matmul(left, right)).passed


@pytest.mark.parametrize("sums", [sums for sums in ACCUMULATORS if DTYPES[sums].precision > 24])
def test_between_the_corners_some_elements_are_compared_with_exact_sums(sums: str) -> None:
    """Once and a half the bound is within that of the two sums, of which neither is more precise, that others are held to."""
    problem = problem_of(sums, sums, 16)
    operands = verify.random_operands(problem, 1)
    expected = exactly(problem, operands)
    bound = stated(problem, operands, expected)
    d, beyond = (off_by(expected, times * bound, problem) for times in (1 / 3, 1.5))
    inner = (slice(None), slice(1, -1), slice(1, -1))
    d[inner] = beyond[inner]
    assert not verify.check_random(problem, operands, d).passed


@pytest.mark.sample(sums=["float64"])
@pytest.mark.parametrize("sums", [sums for sums in ACCUMULATORS if DTYPES[sums].precision])
def test_of_the_checks_on_a_device(backend: gp.Backend, sums: str) -> None:
    if DTYPES[sums].arithmetic not in backend.device.computes:
        pytest.skip(beyond(backend.device, f"it does not compute in {sums}"))
    problem = problem_of(sums, sums, 16, **scalars_of(sums))
    operands = verify.random_operands(problem, 2)
    expected = exactly(problem, operands)
    bound = stated(problem, operands, expected)
    nearly, far = (off_by(expected, times * bound, problem) for times in (1 / 3, 3))
    assert check_rows_on(backend, problem, placed(backend, problem, operands, nearly), 0).passed
    for row in (0, -1):
        d = nearly.copy()
        d[:, row, 5] = far[:, row, 5]
        check = check_rows_on(backend, problem, placed(backend, problem, operands, d), 0)
        assert check.detail.startswith(f"{problem.batch} of ")
    tolerance = freivalds(problem, operands, expected, own=Sums.on(backend.device, problem.output.kind).unit_roundoff)
    for times, passes in ((1 / 3, True), (3, False)):
        error = np.zeros(expected.shape)
        error[0, 3, 4] = times * tolerance[0, 3]
        memory = placed(backend, problem, operands, off_by(expected, error, problem))
        assert check_freivalds_on(backend, problem, memory, 0).passed == passes


@pytest.mark.parametrize(("dtype", "sums"), WHOLE)
@pytest.mark.parametrize("k", [16, 1000])
def test_a_whole_number_that_is_off_by_one_fails_anywhere(dtype: str, sums: str, k: int) -> None:
    problem = problem_of(dtype, sums, k)
    operands = verify.random_operands(problem, k)
    right = reference(problem, operands)
    assert verify.check_random(problem, operands, right).passed
    for place in places(problem):
        d = right.copy()
        d[place] ^= 1
        check = verify.check_random(problem, operands, d)
        assert not check.passed
        assert check.detail.startswith("1 of ")
        if sums != "bool":
            assert not verify.check_freivalds(problem, operands, d, 0).passed


NARROW = {"float64": np.float32, "complex128": np.complex64}


@pytest.mark.sample(k=[16, 17, 1000])
@pytest.mark.parametrize("k", [16, 17, 1000, 100_000])
@pytest.mark.parametrize("sums", NARROW)
def test_sums_in_float32_are_none_in_float64(sums: str, k: int) -> None:
    """Nor are sums in float64 that are rounded to float32: of random operands, and of whole numbers."""
    problem, narrow = GemmProblem.create(3, 4, k, dtype=sums), NARROW[sums]
    for exact in (False, True):
        operands = verify.exact_operands(problem, k) if exact else verify.random_operands(problem, k)
        expected = reference(problem, operands)
        in_float32 = np.matmul(*(operands[name].astype(narrow) for name in ("a", "b"))).astype(sums)
        for d, passes in ((expected, True), (in_float32, False), (expected.astype(narrow).astype(sums), False)):
            check = verify.check_exact(expected, d) if exact else verify.check_random(problem, operands, d)
            assert check.passed == passes, check.name
            assert verify.check_freivalds(problem, operands, d, 0, exact=exact).passed == passes
            if not passes and exact:  # of all elements but a few that need no more bits
                assert np.mean(d != expected) > 0.9


@pytest.mark.sample(count=[16, 1000])
@pytest.mark.parametrize("count", [16, 1000, 100_000])
@pytest.mark.parametrize("dtype", DTYPES)
def test_of_reductions(dtype: str, count: int) -> None:
    """Of one work-item, which adds one after the other: the bound is 8 u √(additions) ‖x‖."""
    job = Reduction(count, DTYPES[dtype])
    alone = SimpleNamespace(launches=[SimpleNamespace(work_group=(1, 1, 1), groups=(1, 1, 1))])
    source = job.random_source(count)
    names = set()
    for trial in job.trials(source, count):
        exact = job.on_host(trial.source)()[0] if not job.sums.precision else _sum(trial.source)

        def verdict(error: Any, trial: Any = trial, exact: Any = exact) -> Any:
            return trial.check((np.array([exact]) + error).astype(job.target_type), None, alone)

        whole = verdict(0)
        assert whole.passed, whole.detail
        names.add(whole.name)
        if whole.name == "exact":
            assert not verdict(np.array([1]).astype(job.target_type)).passed
            continue
        bound = 8 * roundoff(job.sums.name) * math.sqrt(count + 1) * float(norms(trial.source[np.newaxis], 1)[0])
        for sign in (-1, 1, 1j) if job.sums.kind == "complex" else (-1, 1):
            assert verdict(sign * bound / 3).passed
            assert not verdict(sign * bound * 3).passed
    assert names == ({"exact", "statistical"} if job.sums.precision else {"exact"})


def _sum(source: Array) -> Any:
    wide = np.clongdouble if np.iscomplexobj(source) else np.longdouble
    return source.astype(wide).sum()
