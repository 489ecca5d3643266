"""The checks on the device judge as those on the host do, and the numbers made there are those that NumPy tells."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import gemmport as gp
from absences import beyond
from exact import Sizes, problem_of
from gemmport.checking import verification as verify
from gemmport.checking.device_check import check_freivalds_on, check_rows_on, fill_random_on
from gemmport.checking.reference import reference
from gemmport.checking.verification import poison
from gemmport.contracts.kernel import Cut
from gemmport.core.dtypes import DTYPES, FLOAT8S, FLOAT32, INPUTS, as_dtype
from gemmport.core.layout import matrices
from gemmport.core.plan import Scalar
from gemmport.core.problem import GemmProblem, Layout, Op, Operand
from gemmport.execution.executor import enqueue_launches
from gemmport.kernels import fill_random
from gemmport.kernels.fill_random import Whole, predicted
from gemmport.kernels.times_vector import Sums
from on_device import RANGES, check_wide_sums, filled, placed
from test_verification import product, rounded_to

HostArray = npt.NDArray[Any]

HONEST: dict[str, dict[str, Any]] = {
    "float32": {"dtype": "float32", "alpha": -2, "beta": 0.5},
    "float16-float32": {"dtype": "float16", "output": "float32"},
    "bfloat16": {"dtype": "bfloat16"},
    "complex64": {"dtype": "complex64", "alpha": 2 - 1j, "beta": 1j},
    "float32-complex64": {"dtype": "float32", "output": "complex64", "alpha": 1j},
    "float64": {"dtype": "float64", "beta": -1},
    "complex128": {"dtype": "complex128", "alpha": 1 - 1j},
    "int8-int32": {"dtype": "int8", "output": "int32", "alpha": 3, "beta": -2},
    "uint8": {"dtype": "uint8", "alpha": -1},
    "int64": {"dtype": "int64", "beta": 5},
}
each_type = pytest.mark.parametrize("types", HONEST)


def problem_on(backend: gp.Backend, types: str, ops: str, sizes: Sizes) -> GemmProblem:
    """A problem with gaps everywhere, on a device that computes it."""
    problem = problem_of(sizes, ops, batch=2, **HONEST[types])
    arithmetic = problem.accumulator.arithmetic
    if arithmetic and arithmetic not in backend.device.computes:
        pytest.skip(beyond(backend.device, f"it does not compute in {arithmetic}"))
    return problem


def d_of(problem: GemmProblem, operands: Mapping[Operand, HostArray]) -> HostArray:
    """What an honest kernel computes."""
    return product(problem, operands) if verify.rounds(problem) else reference(problem, operands)


@pytest.mark.parametrize("ops", ["NN", "TT", "CR"])
@each_type
def test_an_honest_product_passes_by_the_host_s_own_figures(backend: gp.Backend, types: str, ops: str) -> None:
    problem = problem_on(backend, types, ops, Sizes(67, 41, 129))
    operands = verify.random_operands(problem, 1)
    d = d_of(problem, operands)
    memory = placed(backend, problem, operands, d)
    own, host = check_freivalds_on(backend, problem, memory, 7), verify.check_freivalds(problem, operands, d, 7)
    assert own.passed
    assert own.name == host.name == "freivalds"
    if problem.accumulator.precision == 53:  # the error is as small as what the check itself rounds
        assert own.error_over_bound < 0.3
        assert own.bound == pytest.approx(host.bound, rel=0.5)
    else:
        assert own.error_over_bound == pytest.approx(host.error_over_bound, rel=1e-3)
    rows = check_rows_on(backend, problem, memory, 7)
    assert rows.passed
    assert rows.error_over_bound < 0.5 or problem.output.precision < problem.accumulator.precision


@each_type
def test_a_wrong_element_fails(backend: gp.Backend, types: str) -> None:
    problem = problem_on(backend, types, "NN", Sizes(67, 41, 129))
    operands = verify.random_operands(problem, 2)
    d = d_of(problem, operands)
    d[1, 66, 40] += d.dtype.type(64 if verify.rounds(problem) else 1)
    memory = placed(backend, problem, operands, d)
    freivalds, rows = check_freivalds_on(backend, problem, memory, 0), check_rows_on(backend, problem, memory, 0)
    assert not freivalds.passed
    assert "batch 1 row 66" in freivalds.detail
    assert not rows.passed
    assert "column 40" in rows.detail


@pytest.mark.parametrize("name", ["float32", "complex64"])
def test_a_trifle_in_one_element_of_many_fails_where_nothing_is_tolerated(backend: gp.Backend, name: str) -> None:
    problem = GemmProblem.create(1000, 900, 40, dtype=name, trans_a="T")
    operands = verify.exact_operands(problem, 3)
    d = reference(problem, operands).astype(problem.output.numpy)
    assert check_freivalds_on(backend, problem, placed(backend, problem, operands, d), 0, exact=True).passed
    d[0, 777, 555] += 2**-8
    assert check_freivalds_on(backend, problem, placed(backend, problem, operands, d), 0).passed
    check = check_freivalds_on(backend, problem, placed(backend, problem, operands, d), 0, exact=True)
    assert not check.passed
    assert "row 777" in check.detail


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_an_element_that_is_no_number_fails(backend: gp.Backend, value: float) -> None:
    problem = GemmProblem.create(40, 30, 20)
    operands = verify.random_operands(problem, 4)
    d = product(problem, operands)
    d[0, 39, 4] = value
    memory = placed(backend, problem, operands, d)
    assert not check_freivalds_on(backend, problem, memory, 0).passed
    assert not check_rows_on(backend, problem, memory, 0).passed


@pytest.mark.parametrize("fault", ["dropped term", "TF32"])
def test_faults_of_precision_fail(backend: gp.Backend, fault: str) -> None:
    problem = GemmProblem.create(200, 300, 1000)
    operands = verify.random_operands(problem, 5)
    wrong = {name: rounded_to(x, 11) for name, x in operands.items()} if fault == "TF32" else dict(operands)
    if fault == "dropped term":
        wrong["a"] = operands["a"].copy()
        wrong["a"][:, :, -1] = 0
    memory = placed(backend, problem, operands, reference(problem, wrong).astype(np.float32))
    assert not check_freivalds_on(backend, problem, memory, 0).passed
    assert not check_rows_on(backend, problem, memory, 0).passed


def test_what_a_unit_cut_passes_where_the_plan_says_so(backend: gp.Backend) -> None:
    problem, cut = GemmProblem.create(40, 30, 64), Cut(digits=14, terms=32)
    operands = verify.random_operands(problem, 6)
    memory = placed(backend, problem, operands, (reference(problem, operands) + 1e-3).astype(np.float32))
    for check in (check_freivalds_on, check_rows_on):
        assert not check(backend, problem, memory, 0).passed
        assert check(backend, problem, memory, 0, cut=cut).passed
        assert not check(backend, problem, memory, 0, cut=cut, exact=True).passed


def test_a_float32_product_fails_as_float64(backend: gp.Backend) -> None:
    problem = problem_on(backend, "float64", "NN", Sizes(40, 30, 50))
    operands = verify.random_operands(problem, 6)
    memory = placed(backend, problem, operands, product(problem, operands, np.dtype("float32")))
    assert not check_freivalds_on(backend, problem, memory, 0).passed
    assert not check_rows_on(backend, problem, memory, 0).passed


def test_a_wrong_conjugate_fails(backend: gp.Backend) -> None:
    problem = GemmProblem.create(20, 30, 40, dtype="complex64", trans_a="R")
    operands = verify.random_operands(problem, 7)
    wrong = GemmProblem.create(20, 30, 40, dtype="complex64", trans_b="R")
    memory = placed(backend, problem, operands, reference(wrong, operands))
    assert not check_freivalds_on(backend, problem, memory, 0).passed
    assert not check_rows_on(backend, problem, memory, 0).passed


@pytest.mark.parametrize(("m", "n", "k", "alpha"), [(0, 5, 5, 1), (5, 0, 5, 1), (5, 5, 0, 1), (5, 5, 5, 0)])
def test_nothing_to_sum_is_checked_too(backend: gp.Backend, m: int, n: int, k: int, alpha: float) -> None:
    """With alpha = 0, A and B are NaN: not read."""
    problem = GemmProblem.create(m, n, k, alpha=alpha, beta=2.0)
    operands = verify.random_operands(problem, 8)
    d = 2 * operands["c"]
    if alpha == 0:
        operands["a"].fill(np.nan)
    memory = placed(backend, problem, operands, d)
    assert check_freivalds_on(backend, problem, memory, 0).passed
    assert check_rows_on(backend, problem, memory, 0).passed
    if d.size:
        assert not check_rows_on(backend, problem, placed(backend, problem, operands, d + 1), 0).passed


def test_rows_of_truth_values_are_checked_and_freivalds_is_refused(backend: gp.Backend) -> None:
    problem = problem_of(Sizes(30, 40, 50), "NT", "bool", batch=2, beta=1)
    operands = verify.random_operands(problem, 9)
    d = reference(problem, operands)
    memory = placed(backend, problem, operands, d)
    assert check_rows_on(backend, problem, memory, 0).passed
    with pytest.raises(ValueError, match="ring"):
        check_freivalds_on(backend, problem, memory, 0)
    d[1, 29, 39] ^= True
    assert not check_rows_on(backend, problem, placed(backend, problem, operands, d), 0).passed


def test_an_update_in_place_needs_the_c_from_before(backend: gp.Backend) -> None:
    problem = GemmProblem.create(5, 6, 7, beta=0.5)
    operands = verify.random_operands(problem, 10)
    memory = placed(backend, problem, operands, product(problem, operands))
    with pytest.raises(gp.ArrayError, match="copy of C"):
        check_freivalds_on(backend, problem, {**memory, "c": memory["d"]}, 0)
    del memory["c"]
    with pytest.raises(gp.ArrayError, match="operand c"):
        check_rows_on(backend, problem, memory, 0)


@pytest.mark.every_pair("pairs", [False, True])
@pytest.mark.every_pair("op", ["N", "T", "C", "R"])
@pytest.mark.every_pair("name", ["float32", "complex64"])
def test_wide_sums_are_as_precise_as_they_say(backend: gp.Backend, name: str, op: Op, pairs: bool) -> None:
    """Double-float is tried on every device."""
    kind = as_dtype(name).kind
    sums = Sums(FLOAT32, kind == "complex", pairs=True) if pairs else Sums.on(backend.device, kind)
    for rows, columns in ((1, 1), (33, 130), (70, 33)):
        check_wide_sums(backend, sums, name, op, rows, columns)


# Random numbers


FILLED = [(name, how) for name, dtype in INPUTS.items() for how in (RANGES if dtype.precision else ("all",))]


@pytest.mark.parametrize(("name", "how"), FILLED)
def test_random_numbers_are_those_that_numpy_tells(backend: gp.Backend, name: str, how: str) -> None:
    if (arithmetic := as_dtype(name).arithmetic) == "float64" and arithmetic not in backend.device.computes:
        pytest.skip(beyond(backend.device, f"it does not compute in {arithmetic}"))
    layout = Layout(50, 50 * 101 + 6, offset=3)
    flat, wanted = filled(backend, name, how, layout, 101, 43, 2, seed=5)
    got = matrices(flat, layout, 101, 43, 2)
    if how == "normal":
        wide = np.complex128 if as_dtype(name).kind == "complex" else np.float64
        error = np.abs(got.astype(wide) - wanted.astype(wide))
        # A radius of up to 6 (8.6 in float64) times a sine of an angle of up to 2π, of functions that are off by a few units.
        if (dtype := as_dtype(name)) not in FLOAT8S:
            assert np.all(error <= 100 * dtype.unit_roundoff)
        else:  # which round that away, but where two numbers of theirs are about as near
            assert np.mean(error > 0) < 1e-3
            assert np.all(
                error <= np.maximum(2 * dtype.unit_roundoff * np.abs(wanted, dtype=wide), dtype.smallest_subnormal)
            )
    else:
        np.testing.assert_array_equal(got, wanted)
    outside = np.ones(flat.size, bool)
    matrices(outside, layout, 101, 43, 2)[...] = False
    before = poison(flat.size, name).view(np.uint8).reshape(flat.size, -1)
    assert np.array_equal(flat.view(np.uint8).reshape(flat.size, -1)[outside], before[outside]), "a gap was written"


SCALES = [1.0, 2.0**-10, 2.0**-17, 2.0**-40, 3.0, 2.0**40]
"""By which whole numbers are normal, of half the distance of subnormal ones, all but nothing, and too large."""


@pytest.mark.every_pair("scale", SCALES)
@pytest.mark.every_pair("name", [dtype.name for dtype in FLOAT8S])
def test_numbers_of_8_bits_are_rounded_as_numpy_rounds_them(backend: gp.Backend, name: str, scale: float) -> None:
    """Bit for bit: ties, subnormal numbers and what is too large."""
    dtype, whole, rows, columns = as_dtype(name), Whole(-700, 1401), 101, 67
    launch = fill_random.PASS.launch(dtype, rows, columns, 1, Layout(columns), 3, whole)
    *others, _, nothing = launch.arguments
    launch = replace(launch, arguments=(*others, Scalar(scale, "float32"), nothing))
    memory, got = backend.allocate(rows * columns), np.empty(rows * columns, dtype.numpy)
    enqueue_launches([launch], backend, {"matrix": memory}, writes=("matrix",))
    backend.download(memory, got)
    numbers = predicted(DTYPES["int32"], np.arange(rows * columns), 3, whole)
    with np.errstate(over="ignore", invalid="ignore"):
        wanted = (numbers.astype(np.float32) * np.float32(scale)).astype(dtype.numpy)
    np.testing.assert_array_equal(got.astype(np.float32), wanted.astype(np.float32))
    assert np.array_equal(np.signbit(got), np.signbit(wanted))


def test_the_first_outputs_are_those_of_splitmix64() -> None:
    """As Vigna's splitmix64.c prints them when it is started with 1234567."""
    outputs = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431]
    uint64 = DTYPES["uint64"]
    # Elements are made of every other output; the ones between belong to a start one step later.
    assert predicted(uint64, [0, 1], 1234567, Whole.all_of(uint64)).tolist() == outputs[::2]
    later = 1234567 + 0x9E3779B97F4A7C15
    assert predicted(uint64, [0, 1], later, Whole.all_of(uint64)).tolist() == outputs[1::2]


@pytest.mark.parametrize("name", ["float32", "complex64"])
def test_normal_numbers_have_the_moments_of_n_0_1(backend: gp.Backend, name: str) -> None:
    flat, _ = filled(backend, name, "normal", Layout(1000), 400, 1000, 1, seed=6)
    dense = flat[:400_000]
    for part in (dense.real, dense.imag) if name == "complex64" else (dense,):
        x = part.astype(np.float64)
        moments = [(x**power).mean() for power in (1, 2, 3, 4)]
        # Five standard deviations of each mean: those of x to x⁴ are 1, √2, √15, √96.
        assert moments == pytest.approx([0, 1, 0, 3], abs=5 * 96**0.5 / x.size**0.5)
        assert abs(moments[0]) < 5 / x.size**0.5
        assert abs(np.corrcoef(x[:-1], x[1:])[0, 1]) < 5 / x.size**0.5
        assert 4 < np.abs(x).max() < 6
    if name == "complex64":
        assert abs(np.corrcoef(dense.real, dense.imag)[0, 1]) < 5 / dense.size**0.5


def test_seeds_give_other_numbers_and_the_same_seed_the_same(backend: gp.Backend) -> None:
    first, again, other = (filled(backend, "int32", "all", Layout(50), 20, 50, 1, seed)[0][:1000] for seed in (1, 1, 2))
    assert np.array_equal(first, again)
    assert np.mean(first == other) < 0.01


def test_what_cannot_be_filled_is_an_error(backend: gp.Backend) -> None:
    memory = backend.allocate(100)
    with pytest.raises(ValueError, match="no normal numbers in int8"):
        fill_random_on(backend, memory, DTYPES["int8"], Layout(5), 5, 5, seed=0)
    with pytest.raises(gp.ArrayError, match="take 120 bytes; the memory has 100"):
        fill_random_on(backend, memory, FLOAT32, Layout(6), 5, 6, seed=0)
    if "float64" not in backend.device.computes:
        with pytest.raises(gp.DtypeError, match="does not compute in float64"):
            fill_random_on(backend, memory, DTYPES["float64"], Layout(2), 2, 2, seed=0)
