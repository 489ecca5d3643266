"""The pass that rounds A and B: every bit of every number, wherever it lies, and no other."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import gemmport as gp
from absences import beyond
from gemmport import kernels
from gemmport.backends import _nvrtc
from gemmport.backends.objects import Memory
from gemmport.checking.guarded_run import try_plan
from gemmport.checking.reference import as_multiplied, reference
from gemmport.checking.verification import check_exact, exact_operands, laid_out
from gemmport.contracts.kernel import Steps
from gemmport.core.dtypes import DTYPES, DType
from gemmport.core.layout import matrices
from gemmport.core.precision import FORMATS, FULL
from gemmport.core.problem import GemmProblem, Layout, Operand
from gemmport.execution.executor import enqueue_launches
from gemmport.kernels import convert, transpose
from gemmport.runtime.sources import assemble, languages
from made_up_devices import DEVICES
from mutations import OF_ROUNDING, Mutation, planted
from test_cuda_compile import is_cubin
from test_reference import bits, by_definition

each_precision = pytest.mark.every_value("precision", list(FORMATS))
MMA = kernels.variant("mma")
FACTORS: tuple[Operand, ...] = ("a", "b")


def converted(
    backend: gp.Backend, problem: GemmProblem, hosts: dict[Operand, np.ndarray], stored: DType | None = None
) -> dict[Operand, np.ndarray]:
    """What the pass writes for memory of A and B, in its layouts; NaN where it writes nothing."""
    steps = convert.PASS.before(problem, Steps([]), backend.device.max_work_group, stored)
    memory: dict[str, Memory] = {}
    for operand, flat in hosts.items():
        memory[operand] = backend.allocate(flat.nbytes)
        backend.upload(memory[operand], flat)
    for scratch in steps.scratch:
        memory[scratch.name] = backend.allocate(scratch.nbytes)
        backend.upload(memory[scratch.name], np.full(scratch.nbytes, 0xFF, np.uint8))
    enqueue_launches(steps.launches, backend, memory, writes=[scratch.name for scratch in steps.scratch])
    found: dict[Operand, np.ndarray] = {}
    for operand, scratch in zip(FACTORS, steps.scratch, strict=True):
        element = stored or problem.dtype
        found[operand] = np.empty(scratch.nbytes // element.itemsize, element.numpy)
        backend.download(memory[scratch.name], found[operand])
    return found


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@each_precision
def test_every_bit_is_right(backend: gp.Backend, precision: str) -> None:
    numbers = bits(precision).view(np.float32)
    problem = GemmProblem.create(1, 1, numbers.size, precision=precision)
    found = converted(backend, problem, {"a": numbers, "b": numbers})
    wanted = by_definition(numbers, precision)
    for operand in FACTORS:
        got = found[operand]
        nan = np.isnan(wanted)
        assert np.array_equal(np.isnan(got), nan)
        assert (got.view(np.uint32)[nan] & 0x400000).all(), "a NaN is quiet"
        wrong = np.flatnonzero((got.view(np.uint32) != wanted.view(np.uint32)) & ~nan)
        assert not wrong.size, (
            f"{wrong.size} wrong: {numbers[wrong[0]]!r} became {got[wrong[0]]!r}, not {wanted[wrong[0]]!r}"
        )


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("across", [0, 1])
@each_precision
def test_gemv_rounds_as_it_reads(backend: gp.Backend, precision: str, across: int) -> None:
    """A column of all kinds of numbers times what is rounded to 1, alone and as one of eight terms: every bit is right. What is
    below the least normal number a device may take for zero, and a sum of 0 and −0 is 0.
    """
    numbers = bits(precision).view(np.float32)
    terms = 1 if across else 8
    if terms > 1:  # among terms of zero, by which infinity is not a number
        numbers = numbers[np.isfinite(numbers) & (np.abs(numbers) < 1e38)]
    matrix = np.zeros((numbers.size, terms), np.float32)
    matrix[:, 5 % terms] = numbers
    vector = np.zeros((terms, 1), np.float32)
    vector[5 % terms] = np.nextafter(np.float32(1), np.float32(2))
    got = gp.matmul(matrix, vector, device=backend.device, precision=precision, kernel="gemv")[:, 0]
    assert_bits(got, numbers, by_definition(numbers, precision))


def assert_bits(got: np.ndarray, numbers: np.ndarray, wanted: np.ndarray) -> None:
    """Of what became of numbers, but for the sign of zeros and for what is below the least normal number."""
    nan, normal = np.isnan(wanted), np.abs(wanted) >= np.finfo(np.float32).tiny
    assert np.array_equal(np.isnan(got), nan)
    wrong = np.flatnonzero((got.view(np.uint32) != wanted.view(np.uint32)) & normal & ~nan)
    assert not wrong.size, (
        f"{wrong.size} wrong: {numbers[wrong[0]]!r} became {got[wrong[0]]!r}, not {wanted[wrong[0]]!r}"
    )
    assert (np.abs(got[~normal & ~nan]) <= np.abs(wanted[~normal & ~nan])).all()


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("across", [0, 1])
@each_precision
def test_gemv_rounds_its_vector_as_it_reads(backend: gp.Backend, precision: str, across: int) -> None:
    """All kinds of numbers, 64 at a time, times what is rounded to the unit matrix, whose runs lie along k or across."""
    numbers = bits(precision).view(np.float32)
    numbers = numbers[np.isfinite(by_definition(numbers, precision))]  # infinity times zero is not a number
    numbers = numbers[: numbers.size // 64 * 64]
    unit = np.diag(np.full(64, np.nextafter(np.float32(1), np.float32(2))))
    problem = GemmProblem.create(
        64, 1, 64, batch=numbers.size // 64, a=Layout(64, 0), precision=precision, trans_a="T" if across else "N"
    )
    operands: dict[Operand, np.ndarray] = {
        "a": np.broadcast_to(unit, (problem.batch, 64, 64)), "b": numbers.reshape(-1, 64, 1),
    }  # fmt: skip
    trial = try_plan(backend, gp.plan(problem, backend.device, kernel="gemv"), operands)
    assert not trial.stray
    assert_bits(trial.d.ravel(), numbers, by_definition(numbers, precision))


def check_gemv(backend: gp.Backend, precision: str, types: tuple[str, str], vectors: int, ops: str) -> None:
    """An exact product of a matrix and vectors, all of which need rounding; of six, the last group is not whole."""
    dtype, accumulator = types
    problem = GemmProblem.create(
        45, vectors, 133, dtype=dtype, accumulator=accumulator, precision=precision, trans_a=ops[0], trans_b=ops[1]
    )
    operands = exact_operands(problem, 1)
    plan = gp.plan(problem, backend.device, kernel="gemv")
    assert all(launch.kernel.stem == "gemv" for launch in plan.launches)
    trial = try_plan(backend, plan, operands)
    assert not trial.stray
    check = check_exact(reference(problem, operands), trial.d)
    assert check.passed, check.detail


OPS = ("NN", "NT", "TN", "TT")

SUMS = (("float32", "float32"), ("float32", "float64"), ("complex64", "complex64"), ("complex64", "complex128"))
"""Types of what is rounded, and of sums."""


@pytest.mark.every_pair("precision", list(FORMATS))
@pytest.mark.every_pair("types", SUMS)
@pytest.mark.every_pair("vectors", [1, 6])
@pytest.mark.every_pair("ops", OPS)
def test_gemv_multiplies_what_is_rounded_wherever_it_lies(
    backend: gp.Backend, precision: str, types: tuple[str, str], vectors: int, ops: str
) -> None:
    if (
        GemmProblem.create(1, 1, 1, dtype=types[0], accumulator=types[1]).accumulator.arithmetic
        not in backend.device.computes
    ):
        pytest.skip(beyond(backend.device, f"it does not compute in {types[1]}"))
    check_gemv(backend, precision, types, vectors, ops)


@pytest.mark.best_of_each_backend
@pytest.mark.planted_fault
@pytest.mark.every_value("types", [types for types in SUMS if types[0] == types[1]])
@pytest.mark.every_value("fault", OF_ROUNDING)
def test_a_gemv_that_does_not_round_is_noticed(backend: gp.Backend, fault: Mutation, types: tuple[str, str]) -> None:
    """Each fault concerns some layouts alone."""

    def check_all() -> None:
        for vectors, ops in itertools.product((1, 6), OPS):
            check_gemv(backend, "tf32", types, vectors, ops)

    check_all()
    with planted(fault, "gemv"), pytest.raises(AssertionError, match="elements differ"):
        check_all()


@pytest.mark.parametrize("fault", OF_ROUNDING, ids=lambda fault: fault.name.replace(" ", "-"))
def test_faults_of_rounding_are_planted_in_both_languages(fault: Mutation) -> None:
    problem = GemmProblem.create(45, 6, 133, precision="tf32", trans_a=fault.ops[0])
    kernel = gp.plan(problem, DEVICES["NVIDIA sm_90 under CUDA"], kernel="gemv").launches[0].kernel
    shipped = {language: assemble(kernel, language) for language in languages()}
    with planted(fault, "gemv"):
        broken = {language: assemble(kernel, language) for language in languages()}
    assert all(broken[language] != text for language, text in shipped.items())
    if _nvrtc.nvrtc() is not None:
        assert is_cubin(_nvrtc.compile_cuda(broken["cuda"], "sm_90"))


def test_gemv_takes_no_pass_that_rounds() -> None:
    for name in ("NVIDIA sm_90 under CUDA", "NVIDIA sm_90 under OpenCL"):
        for dtype in ("float32", "complex64"):
            problem = GemmProblem.create(1, 4096, 4096, dtype=dtype, precision="tf32", trans_b="T")
            assert {launch.kernel.function for launch in gp.plan(problem, DEVICES[name]).launches} <= {
                "gemv",
                "add_parts",
            }


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("turned", [0, 1])
@each_precision
def test_what_is_laid_out_anew_is_rounded_on_the_way(backend: gp.Backend, precision: str, turned: int) -> None:
    """By `transpose`, for `wgmma`; in lines of 61 numbers, to which three zeros are added."""
    numbers = bits(precision).view(np.float32)
    numbers = np.resize(numbers, (-(-numbers.size // 61), 61))
    rows = len(numbers)
    problem = GemmProblem.create(rows, 1, 61, precision=precision)
    padded = (61, rows) if turned else (rows, 64)
    made = transpose.prepare(problem, "a", "anew", {"TRANSPOSE": turned}, padded, precision)
    memory: dict[str, Memory] = {"a": backend.allocate(numbers.nbytes), "anew": backend.allocate(made.scratch.nbytes)}
    backend.upload(memory["a"], numbers)
    enqueue_launches([made.launch], backend, memory, writes=["anew"])
    got = np.empty(padded, np.float32)
    backend.download(memory["anew"], got)
    wanted = np.zeros(padded, np.float32)
    rounded = by_definition(numbers.ravel(), precision).reshape(numbers.shape)
    wanted[...] = rounded.T if turned else np.pad(rounded, ((0, 0), (0, 3)))
    nan = np.isnan(wanted)
    assert np.array_equal(np.isnan(got), nan)
    assert np.array_equal(got.view(np.uint32)[~nan], wanted.view(np.uint32)[~nan])


NARROW = ("float16", "bfloat16")


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("precision", NARROW)
def test_every_bit_is_right_in_the_type_of_the_precision(backend: gp.Backend, precision: str) -> None:
    numbers = bits(precision).view(np.float32)
    problem = GemmProblem.create(1, 1, numbers.size, precision=precision)
    found = converted(backend, problem, {"a": numbers, "b": numbers}, DTYPES[precision])
    wanted = by_definition(numbers, precision)
    for operand in FACTORS:
        assert found[operand].dtype == DTYPES[precision].numpy
        got = found[operand][: numbers.size].astype(np.float32)
        nan = np.isnan(wanted)
        assert np.array_equal(np.isnan(got), nan)
        assert np.array_equal(got.view(np.uint32)[~nan], wanted.view(np.uint32)[~nan])


LAYOUTS: dict[str, dict[str, Any]] = {
    "dense": {},
    "gaps": {"a": Layout(45, 0, 3), "b": Layout(37, 0, 1)},
    "long rows with gaps": {"k": 301, "n": 1100, "a": Layout(309, 0, 2), "b": Layout(1101, 0, 0)},
    "a batch": {"batch": 3},
    "a batch with gaps": {"batch": 3, "a": Layout(45, 31 * 45 + 7, 3), "b": Layout(37, 41 * 37 + 1)},
    "a shared matrix": {"batch": 3, "b": Layout(29, 0)},
    "side by side": {"batch": 2, "a": Layout(82, 41), "b": Layout(58, 29)},
    "columns": {"n": 1, "k": 1000},
    "transposed": {"trans_a": "T", "trans_b": "T"},
}


@pytest.mark.every_pair("lies", LAYOUTS)
@pytest.mark.every_pair(("dtype", "stored"), [("float32", None), ("float32", DTYPES["bfloat16"]), ("complex64", None)])
def test_matrices_are_found_wherever_they_lie(backend: gp.Backend, lies: str, dtype: str, stored: DType | None) -> None:
    given = {"m": 31, "n": 29, "k": 41, "dtype": dtype, "precision": "bfloat16", **LAYOUTS[lies]}
    problem = GemmProblem.create(**given)
    rng = np.random.default_rng(3)
    operands: dict[Operand, np.ndarray] = {}
    for operand in FACTORS:
        shape = (problem.batch, *problem.stored_shape(operand), *([2] if dtype == "complex64" else []))
        values = rng.standard_normal(shape, np.float32).view(problem.dtype.numpy).reshape(shape[:3])
        operands[operand] = (
            values if problem.layout(operand).batch_stride else np.broadcast_to(values[:1], values.shape)
        )
    hosts = {operand: laid_out(problem, operand, values) for operand, values in operands.items()}
    found = converted(backend, problem, hosts, stored)
    after = convert.converted(problem, stored)
    _, wanted = as_multiplied(problem, operands)
    for operand in FACTORS:
        view = matrices(found[operand], after.layout(operand), *after.stored_shape(operand), after.batch)
        view = view.astype(problem.dtype.numpy)
        assert np.array_equal(view, np.broadcast_to(wanted[operand][: len(view)], view.shape)), operand
        assert not np.array_equal(view, np.broadcast_to(operands[operand][: len(view)], view.shape)), (
            "nothing was rounded"
        )


@pytest.mark.every_pair("precision", list(FORMATS))
@pytest.mark.every_pair("dtype", ["float32", "complex64"])
def test_a_product_is_that_of_rounded_operands_and_writes_nowhere_else(
    backend: gp.Backend, precision: str, dtype: str
) -> None:
    problem = GemmProblem.create(
        37, 41, 133, batch=2, dtype=dtype, precision=precision, trans_a="T", alpha=2, beta=-1, b=Layout(43),
        d=Layout(44, 44 * 37, 5),
    )  # fmt: skip
    operands = exact_operands(problem, 1)
    operands["b"] = np.broadcast_to(operands["b"][:1], operands["b"].shape)
    trial = try_plan(backend, gp.plan(problem, backend.device), operands)
    assert not trial.stray
    check = check_exact(reference(problem, operands), trial.d)
    assert check.passed, check.detail


@pytest.mark.parametrize(
    "idle", [{"alpha": 0, "beta": 2}, {"k": 0, "beta": 2}, {"m": 0}], ids=["alpha is 0", "no terms", "no elements"]
)
def test_what_is_not_read_is_not_converted(idle: dict[str, Any]) -> None:
    problem = GemmProblem.create(**{"m": 8, "n": 8, "k": 8, "precision": "tf32", **idle})
    assert not convert.converts(problem)
    assert convert.moved_bytes(problem) == 0
    plan = gp.plan(problem, DEVICES["Apple"])
    assert all(launch.kernel.stem != "convert" for launch in plan.launches)
    assert plan.problem == problem


def test_without_a_precision_a_plan_is_what_it_was() -> None:
    problem = GemmProblem.create(300, 300, 300)
    assert convert.converted(problem) is problem
    for device in DEVICES.values():
        plan, rounds = (gp.plan(replace(problem, precision=name), device) for name in (FULL, "tf32"))
        if rounds.variant in ("mma", "wgmma"):  # which multiply TF32 alone
            continue
        assert plan.variant == rounds.variant
        assert rounds.launches[0].kernel.stem == "convert"
        assert len(rounds.launches) == len(plan.launches) + 1
        assert [x.name for x in rounds.scratch[:2]] == ["a_converted", "b_converted"]


@pytest.mark.parametrize("name", ["NVIDIA sm_90 under CUDA", "NVIDIA sm_90 under OpenCL"])
@pytest.mark.parametrize("precision", NARROW)
def test_the_matrix_unit_gets_operands_in_the_type_of_the_precision(name: str, precision: str) -> None:
    problem = GemmProblem.create(1000, 1200, 1100, batch=2, precision=precision, trans_b="T", alpha=2.0, beta=1.0)
    assert gp.plan(problem, DEVICES[name]).variant in ("mma", "wgmma")
    plan = gp.plan(problem, DEVICES[name], kernel="mma")
    assert plan.problem == problem
    assert {launch.kernel.stem for launch in plan.launches[1:]} == {"mma"}
    first, product = (dict(launch.kernel.defines) for launch in plan.launches[:2])
    assert plan.launches[0].kernel.stem == "convert"
    assert (first["IN"], first["OUT"]) == ("float32", precision)
    assert (product["IN"], product["ACC"], product["OUT"]) == (precision, "float32", "float32")
    assert (product["ALIGNMENT_A"], product["ALIGNMENT_B"]) == (16, 16)
    taken = convert.converted(problem, DTYPES[precision])
    assert [x.nbytes for x in plan.scratch[:2]] == [2 * taken.span("a"), 2 * taken.span("b")]
    assert convert.moved_bytes(problem, DTYPES[precision]) == 6 * 2 * 1100 * (1000 + 1200)


@pytest.mark.parametrize("dtype", ["float32", "complex64"])
@pytest.mark.parametrize("precision", ["tf32", *NARROW])
def test_whom_the_matrix_unit_does_not_serve_gets_float32(precision: str, dtype: str) -> None:
    """Complex numbers, and GPUs before compute capability 8.0."""
    for device in (DEVICES["NVIDIA sm_90 under CUDA"], DEVICES["NVIDIA sm_70"]):
        if dtype == "complex64" or device.architecture == "sm_70":
            first, *rest = gp.plan(GemmProblem.create(300, 300, 300, dtype=dtype, precision=precision), device).launches
            assert dict(first.kernel.defines)["OUT"] == "float32"
            assert {dict(launch.kernel.defines)["IN"] for launch in rest} == {dtype}


@pytest.mark.parametrize("precision", NARROW)
def test_a_product_by_the_matrix_unit_is_that_of_rounded_operands(backend: gp.Backend, precision: str) -> None:
    """Where a device has one; others say so."""
    problem = GemmProblem.create(
        37, 41, 133, batch=2, precision=precision, trans_a="T", alpha=2, beta=-1, b=Layout(43), d=Layout(44, 44 * 37, 5)
    )
    if MMA.unsupported(convert.converted(problem, DTYPES[precision]), backend.device):
        with pytest.raises(gp.UnsupportedError, match=r"from sm_80 on"):
            gp.plan(problem, backend.device, kernel="mma")
        return
    operands = exact_operands(problem, 1)
    operands["b"] = np.broadcast_to(operands["b"][:1], operands["b"].shape)
    trial = try_plan(backend, gp.plan(problem, backend.device, kernel="mma"), operands)
    assert not trial.stray
    check = check_exact(reference(problem, operands), trial.d)
    assert check.passed, check.detail


def test_matrices_of_one_number_a_row_take_no_more_room_than_they_had() -> None:
    problem = GemmProblem.create(1_000_000, 1, 1, precision="tf32")
    (launch, *_) = gp.plan(problem, DEVICES["Apple"]).launches
    assert launch.groups[0] < 1_000_000 / convert.ITEMS + 2
    assert convert.converted(problem).span("a") == 1_000_000
