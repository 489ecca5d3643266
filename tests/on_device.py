"""Operands on a device, and what becomes of them there: what tests of the checks on the device share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

import gemmport as gp
from gemmport.backends.objects import Memory
from gemmport.calibration.benchmarks import (
    Benchmark,
    Chase,
    CopyGlobal,
    MultiplyAdds,
    MultiplyMatrices,
    PassRound,
    ReadGlobal,
    ReadLocal,
    Start,
)
from gemmport.calibration.bound import Bound
from gemmport.checking import guarded_run
from gemmport.checking.device_check import fill_random_on
from gemmport.checking.guarded_run import changed, same_bits
from gemmport.checking.reference import applied, reference, rounded
from gemmport.checking.verification import exact_operands, laid_out, poison
from gemmport.contracts.kernel import Parameters
from gemmport.contracts.scales import ScaleLayout, ScaleLayouts
from gemmport.core.dtypes import DTYPES, as_dtype
from gemmport.core.errors import CalibrationError
from gemmport.core.layout import matrices
from gemmport.core.precision import FORMATS, FULL
from gemmport.core.problem import GemmProblem, Layout, Op, Operand, transposes
from gemmport.execution.executor import bind, prepare_launch
from gemmport.kernels import reduce, relayout, rescale, times_vector, transpose
from gemmport.kernels.fill_random import Whole, predicted
from gemmport.kernels.microbenchmarks import matrix_units
from gemmport.kernels.times_vector import Sums
from gemmport.planning import rescaling

HostArray = npt.NDArray[Any]

RANGES = {"normal": None, "whole": Whole(-3, 7)}
"""Ranges of random numbers, by name; "all" is the whole range of an integer type."""


def placed(
    backend: gp.Backend, problem: GemmProblem, operands: Mapping[Operand, HostArray], d: HostArray
) -> dict[Operand, Memory]:
    """Operands and result on the device, in their layouts, the gaps full of NaN."""
    memory: dict[Operand, Memory] = {}
    for operand, values in (*operands.items(), ("d", d)):
        flat = laid_out(problem, operand, values)
        memory[operand] = backend.allocate(flat.nbytes)
        backend.upload(memory[operand], flat)
    return memory


def exactly(left: HostArray, right: HostArray) -> HostArray:
    """Dot products of rows with rows, each part rounded once or twice."""

    def dot(a: HostArray, b: HostArray) -> float:
        return float(sum(Fraction(float(x)) * Fraction(float(y)) for x, y in zip(a, b, strict=True)))

    dots = np.zeros(left.shape[:2], left.dtype)
    for at in np.ndindex(*dots.shape):
        a, b = left[at], right[at]
        dots[at] = dot(a.real, b.real)
        if np.iscomplexobj(left):
            dots[at] += -dot(a.imag, b.imag) + 1j * (dot(a.real, b.imag) + dot(a.imag, b.real))
    return dots


def check_wide_sums(backend: gp.Backend, sums: Sums, name: str, op: Op, rows: int, columns: int) -> None:
    """Asserts the precision of `times_vector`: terms are of very different sizes and cancel, and every matrix has its own
    vector.
    """
    rng = np.random.default_rng(11)

    def numbers(*shape: int) -> HostArray:
        sizes = 10.0 ** rng.integers(-3, 4, shape)
        values: HostArray = rng.standard_normal(shape) * sizes
        return values + 1j * rng.standard_normal(shape) * sizes if sums.complex else values

    stored = numbers(2, *((columns, rows) if transposes(op) else (rows, columns))).astype(name)
    matrix = applied(stored, op).astype(sums.host)
    vector = sums.from_device(sums.to_device(numbers(2, columns)).view(np.uint8)).reshape(2, columns)
    down, across = stored.shape[1:]
    layout = Layout(across + 5, down * (across + 5) + 3, offset=7)
    flat = poison(layout.span(down, across, 2), name)
    matrices(flat, layout, down, across, 2)[...] = stored
    result = poison(2 * rows * sums.itemsize, "uint8")
    memory = {}
    for buffer, data in (("matrix", flat), ("vector", sums.to_device(vector)), ("result", result)):
        memory[buffer] = backend.allocate(data.nbytes)
        backend.upload(memory[buffer], data)
    for squares in (False, True):
        launch = times_vector.PASS.launch(
            sums, as_dtype(name), op, rows, columns, 2, layout, shared=False, squares=squares
        )
        backend.launch(prepare_launch(launch, backend, memory))
        backend.download(memory["result"], result)
        right = matrix.conj() if squares else np.broadcast_to(vector[:, np.newaxis], matrix.shape)
        error = np.abs(sums.from_device(result).reshape(2, rows) - exactly(matrix, right))
        assert np.all(error <= 8 * sums.unit_roundoff * (np.abs(matrix) * np.abs(right)).sum(axis=2))


def filled(
    backend: gp.Backend, dtype: str, how: str, layout: Layout, rows: int, columns: int, batch: int, seed: int
) -> tuple[HostArray, HostArray]:
    """The memory that was filled, and the numbers that NumPy tells for the matrices."""
    element = as_dtype(dtype)
    whole = Whole.all_of(element) if how == "all" else RANGES[how]
    flat = poison(layout.span(rows, columns, batch) + 9, dtype)
    memory = backend.allocate(flat.nbytes)
    backend.upload(memory, flat)
    fill_random_on(backend, memory, element, layout, rows, columns, batch, seed=seed, whole=whole)
    backend.download(memory, flat)
    numbers = np.arange(batch * rows * columns).reshape(batch, rows, columns)
    return flat, predicted(element, numbers, seed, whole)


def summed(backend: gp.Backend, values: HostArray, parameters: Parameters, guard: int = 1031) -> HostArray:
    """The sum of values by the pass `reduce`: one number, as it lies on the device.

    Asserts that nothing else is written. What is not to be read is poison.

    Args:
        guard: elements of poison behind the values, and numbers behind every sum.
    """
    dtype = as_dtype(values.dtype)
    result = reduce.result_type(dtype)
    steps = reduce.PASS.steps(values.size, dtype, reduce.PASS.complete(parameters), backend.device)
    sums = {each.name: each.nbytes // result.itemsize for each in steps.scratch} | {"target": 1}
    data = {name: poison(count + guard, result) for name, count in sums.items()}
    data["source"] = poison(values.size + guard, dtype)
    data["source"][: values.size] = values
    memory = {name: backend.allocate(max(flat.nbytes, 1)) for name, flat in data.items()}
    for name, flat in data.items():
        backend.upload(memory[name], flat)
    for launch in steps.launches:
        backend.launch(prepare_launch(launch, backend, memory))
    for name, flat in data.items():
        after = np.empty_like(flat)
        backend.download(memory[name], after)
        own = sums.get(name, 0)
        assert same_bits(flat[own:], after[own:]), (
            f"{name} is wrong: written outside, at {changed(flat[own:], after[own:])}"
        )
        if name == "target":
            total = after[:1]
    return total


def scales_with_gaps(
    problem: GemmProblem, scaled: str, rng: np.random.Generator
) -> tuple[dict[str, HostArray], ScaleLayouts, HostArray]:
    """Powers of two in memory, poison between them: where they lie, and what they make of each element of D.

    Args:
        scaled: "rows", "columns" or "rows, columns"; each row of each matrix has its own scale, in the order of memory or
            against it.
    """
    flat: dict[str, HostArray] = {}
    factors = np.ones((problem.batch, problem.m, problem.n))
    layouts: dict[str, ScaleLayout] = {}
    for name, size, step in (("rows", problem.m, 3), ("columns", problem.n, -2)):
        scales = np.exp2(rng.integers(-3, 4, (problem.batch, size))).astype(np.float32)
        lying = poison(5 + scales.size * abs(step), "float32")
        gaps = lying[2:][: scales.size * abs(step)].reshape(problem.batch, size, abs(step))
        (gaps if step > 0 else gaps[:, ::-1])[..., 0] = scales
        flat[f"{name.removesuffix('s')}_scales"] = lying
        if name in scaled:
            first = 2 + (0 if step > 0 else (size - 1) * -step)
            layouts[name] = ScaleLayout(first, step, size * abs(step))
            factors *= scales[:, :, np.newaxis] if name == "rows" else scales[:, np.newaxis, :]
    return flat, (layouts.get("rows"), layouts.get("columns")), factors


def check_scales_of_kernel(
    backend: gp.Backend, kernel: str, problem: GemmProblem, params: Parameters, scaled: str = "rows, columns"
) -> None:
    """A kernel that takes scales multiplies by them itself, each sum by its own: exactly, of small whole numbers. In D's memory
    nothing else is written. So do the launches for the time being, where there are any.

    Args:
        scaled: as in `scales_with_gaps`.
    """
    flat, layouts, factors = scales_with_gaps(problem, scaled, np.random.default_rng(problem.n))
    plan = rescaling.scaled(lambda each: gp.plan(each, backend.device, kernel=kernel, params=params), problem, layouts)
    assert "rescale" not in {launch.kernel.stem for launch in plan.launches}
    operands = exact_operands(problem, 7)
    shape = (problem.batch, problem.m, problem.n)
    before = laid_out(problem, "d", None, 9)
    memory: dict[str, Memory] = dict(placed(backend, problem, operands, np.zeros(shape, problem.output.numpy)))
    for name, each in {**flat, "d": before}.items():
        memory[name] = backend.allocate(each.nbytes)
        backend.upload(memory[name], each)
    got, wanted = np.empty_like(before), before.copy()
    d = reference(replace(problem, beta=0.0), operands) * factors
    if problem.beta != 0:
        d += problem.beta * operands["c"].astype(np.float64)
    matrices(wanted, problem.d, problem.m, problem.n, problem.batch)[...] = d
    for launches in filter(None, (plan.launches, plan.meanwhile)):
        backend.upload(memory["d"], before)
        bind(replace(plan, launches=launches), backend, memory).enqueue()
        backend.download(memory["d"], got)
        wrong = np.flatnonzero(got.view(f"u{got.itemsize}") != wanted.view(f"u{got.itemsize}"))
        assert wrong.size == 0, f"{wrong.size} elements of D's memory are wrong, the first at {wrong[0]}"


def rescaled(
    backend: gp.Backend, problem: GemmProblem, scaled: str, *, in_place: bool = False
) -> tuple[HostArray, HostArray]:
    """D's memory after the pass `rescale`, and what it should be, of numbers that the pass computes exactly.

    What is not to be read is poison: gaps between scales, between rows and between matrices, and C with beta = 0.

    Args:
        scaled: as in `scales_with_gaps`.
    """
    rng = np.random.default_rng(problem.m)
    shape = (problem.batch, problem.m, problem.n)
    sums = rng.integers(-99, 100, shape).astype(np.float32)
    flat, layouts, factors = scales_with_gaps(problem, scaled, rng)
    flat["sums"] = np.concatenate([sums.ravel(), poison(9, "float32")])
    c = rng.integers(-99, 100, shape).astype(problem.output.numpy)
    flat["c"] = laid_out(problem, "c", c if problem.beta != 0 else None, 9)
    flat["d"] = flat["c"].copy() if in_place else laid_out(problem, "d", None, 9)
    memory = {name: backend.allocate(each.nbytes) for name, each in flat.items()}
    if in_place:
        memory["c"] = memory["d"]
    for name, each in flat.items():
        backend.upload(memory[name], each)
    launch = rescale.PASS.launch(problem, layouts, backend.device.max_work_group)
    backend.launch(prepare_launch(launch, backend, memory))
    got, wanted = np.empty_like(flat["d"]), flat["d"]
    backend.download(memory["d"], got)
    d = problem.alpha * factors * sums
    if problem.beta != 0:
        d += problem.beta * c.astype(np.float64)
    matrices(wanted, problem.d, problem.m, problem.n, problem.batch)[...] = d
    return got, wanted


def moved(
    backend: gp.Backend,
    dtype: str,
    rows: int,
    columns: int,
    parameters: Parameters,
    *,
    batch: int = 2,
    gap: int = 1,
    padded: tuple[int, int] | None = None,
    own: transpose.Transpose = transpose.PASS,
    precision: str = FULL,
    guard: int | None = None,
) -> tuple[HostArray, HostArray]:
    """All bytes of the target after `transpose`, or another pass of its kind, moved matrices to it, and what they must be.
    Elements are any bits; so is what lies between them, which is neither moved nor written.

    Args:
        guard: elements of either memory behind the last matrix; default: those of `guarded_run`, which simulators set to 0.
    """
    guard = guarded_run.DEFAULT_GUARD if guard is None else guard
    element = as_dtype(dtype)
    values = own.complete(parameters)
    turned = bool(values["TRANSPOSE"])
    run = relayout.RUN_BYTES // element.itemsize if own is relayout.PASS else 1  # elements of the least piece of a row
    whole = (rows + -rows % run, columns) if turned else (rows, columns + -columns % run)
    down, across = padded or whole
    shapes = {"source": (rows, columns), "target": (across, down) if turned else (down, across)}
    rng = np.random.default_rng(rows * columns)
    memory, flat, views, sides = {}, {}, {}, {}
    for number, (name, shape) in enumerate(shapes.items()):
        step = gap * (run if name == "target" else 1)
        ld = shape[1] + step * (3 + number)
        layout = Layout(ld, shape[0] * ld + step * (2 + 5 * number), offset=step * (5 + 2 * number))
        size = (layout.span(*shape, batch) + guard) * element.itemsize
        flat[name] = np.frombuffer(rng.bytes(size), f"V{element.itemsize}").copy()
        views[name] = matrices(flat[name], layout, *shape, batch)
        memory[name] = backend.allocate(flat[name].nbytes)
        backend.upload(memory[name], flat[name])
        sides[name] = transpose.Matrices(name, layout)
    launch = own.launch(
        sides["source"], sides["target"], rows, columns, element, values,
        batch=batch, padded=(down, across), precision=precision,
    )  # fmt: skip
    backend.launch(prepare_launch(launch, backend, memory))
    got = np.empty_like(flat["target"])
    backend.download(memory["target"], got)
    grown = np.zeros((batch, down, across), flat["source"].dtype)
    grown[:, :rows, :columns] = views["source"]
    if precision != FULL:
        grown = rounded(grown.view(np.float32), FORMATS[precision]).view(grown.dtype)
    views["target"][...] = grown.transpose(0, 2, 1) if turned else grown
    return got.view(np.uint8), flat["target"].view(np.uint8)


def microbenchmarks(device: gp.DeviceInfo) -> list[Benchmark]:
    """Each function once, and `multiply_adds` in every type that the device computes: small, of several groups and runs."""
    form = {"ITEMS": 3, "WIDTH": 4, "CHAINS": 3}
    types = [dtype for dtype in map(DTYPES.get, ("float16", "float32", "float64", "int32")) if dtype is not None]
    return [
        *(MultiplyAdds(3, 16, form, dtype) for dtype in types if not dtype.precision or dtype.name in device.computes),
        *(
            MultiplyMatrices(3, 16, {**form, "ITEMS": 64, "WIDTH": 1}, unit=unit)
            for unit in matrix_units(device).values()
        ),
        ReadGlobal(9, 4, form),
        CopyGlobal(9, 4, form),
        ReadLocal(3, 40, form),
        Chase(1, 70, {"ITEMS": 1, "WIDTH": 1, "CHAINS": 1}, memory=50 * 256),
        Start(5, 1, form),
        PassRound(3, 7, form),
    ]


def check_microbenchmarks(backend: gp.Backend) -> None:
    """Asserts that every micro-benchmark writes what it must."""
    for benchmark in microbenchmarks(backend.device):
        with Bound(benchmark, backend, np.random.default_rng(0)) as bound:
            try:
                bound.check(benchmark.function)
            except CalibrationError as error:
                raise AssertionError(f"{benchmark.function} is wrong: {error}") from error
