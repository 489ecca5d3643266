"""Products whose memory or grid no 32-bit index can count, on devices that hold them.

Operands are made on the device and results are checked there. What a device has too little memory for is skipped, with what it
needs. Backends are fresh, so that their pools do not hold the memory of one test in the next.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import gemmport as gp
from absences import beyond
from exact import Sizes, check, integers, problem_of
from gemmport import kernels
from gemmport.backends.objects import Memory
from gemmport.checking import verification as verify
from gemmport.checking.device_check import check_freivalds_on, check_rows_on, fill_random_on
from gemmport.checking.reference import reference
from gemmport.core.plan import Plan
from gemmport.core.problem import OPERANDS, GemmProblem, Layout, Operand
from gemmport.execution.executor import bind, bind_or_choose
from gemmport.kernels.fill_random import Whole
from test_kernels import BASE, narrowest

VARIANTS = [variant.name for variant in kernels.variants()]
Needs = Callable[[GemmProblem], None]

each_kernel = pytest.mark.every_value("kernel", VARIANTS)
each_kernel_and_element = pytest.mark.every_value(
    ("kernel", "element"),
    [
        (name, element)
        for name in VARIANTS
        for element in ("int8", "float32")
        if element in kernels.variant(name).dtypes
    ],
)

ON_A_CPU = 5e11
"""Flops that a test may take on a CPU with --exhaustive: minutes; without it, a five-hundredth of that."""


@pytest.fixture
def needs(backend: gp.Backend, request: pytest.FixtureRequest) -> Needs:
    """Skips the test where the device cannot hold the operands of a problem, or is a CPU and would take too long."""
    device, exhaustive = backend.device, request.config.getoption("--exhaustive")

    def check_needs(problem: GemmProblem) -> None:
        used = [operand for operand in OPERANDS if operand != "c" or problem.beta != 0]
        sizes = [problem.span(operand) * problem.element_type(operand).itemsize for operand in used]
        if max(sizes) > device.max_allocation:
            needed = f"{max(sizes):,} bytes in one allocation ({max(sizes) / 2**30:.1f} GiB)"
            pytest.skip(beyond(device, f"{needed}; it allows {device.max_allocation:,}"))
        if sum(sizes) * 1.05 > device.memory:
            pytest.skip(beyond(device, f"{sum(sizes) / 2**30:.1f} GiB of memory; it has {device.memory / 2**30:.1f}"))
        if device.max_terms and max(problem.k, problem.n) > device.max_terms:
            terms = max(problem.k, problem.n)
            pytest.skip(beyond(device, f"sums of {terms:,} terms; it adds up {device.max_terms:,}"))
        if device.type == "cpu" and problem.flops > (ON_A_CPU if exhaustive else ON_A_CPU / 500):
            further = ", or --exhaustive" if problem.flops <= ON_A_CPU else ""
            pytest.skip(beyond(device, f"{problem.flops:.1e} operations, for which it takes a GPU{further}"))

    return check_needs


class Filled:
    """Operands of random numbers on the device, and D of NaN."""

    def __init__(self, backend: gp.Backend, problem: GemmProblem, whole: Whole | None) -> None:
        self.backend, self.problem = backend, problem
        self.memory: dict[Operand, Memory] = {}
        for seed, operand in enumerate((*verify.inputs(problem), "d")):
            element, layout = problem.element_type(operand), problem.layout(operand)
            self.memory[operand] = backend.allocate(problem.span(operand) * element.itemsize)
            if operand == "d":
                backend.fill(self.memory["d"], verify.POISON[problem.output.kind])
                continue
            rows, columns = problem.stored_shape(operand)
            fill_random_on(
                backend, self.memory[operand], element, layout, rows, columns, problem.batch, seed=seed, whole=whole
            )

    def __enter__(self) -> Filled:
        return self

    def __exit__(self, *_: object) -> None:
        self.backend.synchronize()
        for memory in self.memory.values():
            memory.release()

    def compute(self, kernel: str) -> None:
        """D by a kernel, or by the one that the configuration chooses."""
        plan = gp.plan(self.problem, self.backend.device, kernel=kernel)
        bind(plan, self.backend, self.memory).enqueue()

    def change(self, row: int, column: int, by: float) -> None:
        """Adds to one element of D."""
        element = np.empty(1, self.problem.output.numpy)
        at = (self.problem.d.offset + row * self.problem.d.ld + column) * element.itemsize
        self.backend.download(self.memory["d"], element, offset=at)
        self.backend.upload(self.memory["d"], element + element.dtype.type(by), offset=at)


def assert_right(product: Filled, *, exact: bool) -> None:
    for verdict in (
        check_freivalds_on(product.backend, product.problem, product.memory, 1, exact=exact),
        check_rows_on(product.backend, product.problem, product.memory, 1, exact=exact),
    ):
        assert verdict.passed, verdict.detail


@pytest.mark.large
@pytest.mark.parametrize("numbers", ["whole", "normal"])
@pytest.mark.parametrize("k", [64, 32768])
def test_one_wrong_element_in_32768_squared_is_found(
    fresh_backend: gp.Backend, needs: Needs, k: int, numbers: str
) -> None:
    """Of whole numbers, off by one; of normal ones, off by the standard deviation of an element."""
    problem = GemmProblem.create(32768, 32768, k)
    needs(problem)
    exact = numbers == "whole"
    with Filled(fresh_backend, problem, Whole(-3, 7) if exact else None) as product:
        product.compute("auto")
        assert_right(product, exact=exact)
        product.change(23456, 31234, 1 if exact else math.sqrt(k))
        verdict = check_freivalds_on(fresh_backend, problem, product.memory, 1, exact=exact)
        assert not verdict.passed
        assert "row 23456" in verdict.detail


@pytest.mark.large
@each_kernel_and_element
def test_d_of_50_000_squared(fresh_backend: gp.Backend, needs: Needs, kernel: str, element: str) -> None:
    """2.5 · 10⁹ elements: more than 2³¹."""
    problem = GemmProblem.create(50_000, 50_000, 5, dtype=element)
    needs(problem)
    with Filled(fresh_backend, problem, Whole(-3, 7)) as product:
        product.compute(kernel)
        assert_right(product, exact=True)
        product.change(49_999, 49_998, 1)
        assert not check_freivalds_on(fresh_backend, problem, product.memory, 1, exact=True).passed


@pytest.mark.large
@each_kernel_and_element
@pytest.mark.every_value("ops", ["NN", "TN"])
def test_a_of_2_to_the_32_and_7_elements(
    fresh_backend: gp.Backend, needs: Needs, kernel: str, element: str, ops: str
) -> None:
    """61751 · 69553 = 2³² + 7, as A or stored transposed."""
    problem = GemmProblem.create(61_751, 24, 69_553, dtype=element, trans_a=ops[0])
    assert problem.span("a") == 2**32 + 7
    needs(problem)
    with Filled(fresh_backend, problem, Whole(-3, 7)) as product:
        product.compute(kernel)
        assert_right(product, exact=True)


@pytest.mark.large
@pytest.mark.every_pair("kernel", VARIANTS)
@pytest.mark.every_pair("operand", OPERANDS)
@pytest.mark.every_pair("far", ["leading dimension", "offset", "batch stride"])
def test_elements_beyond_2_to_the_31_are_reached(
    fresh_backend: gp.Backend, needs: Needs, kernel: str, operand: Operand, far: str
) -> None:
    """A tiny product, of bytes where the kernel takes them, some or all of which lies beyond 2³¹ elements."""
    dtype = narrowest(kernel)
    m, n, k, batch = 3, 3, 3, 3
    layouts: dict[str, Any] = {
        operand: {
            "leading dimension": Layout(2**30 + 5, batch_stride=3),
            "offset": Layout(3, 9, offset=2**31 + 11),
            "batch stride": Layout(3, 2**30 + 7),
        }[far]
    }
    problem = GemmProblem.create(m, n, k, batch=batch, dtype=dtype, beta=1, **layouts)
    assert problem.span(operand) > 2**31
    needs(problem)
    host = {each: integers((batch, 3, 3), dtype, np.random.default_rng(at)) for at, each in enumerate(OPERANDS)}
    memory = {each: fresh_backend.allocate(problem.span(each) * dtype.itemsize) for each in OPERANDS}
    try:
        for each in ("a", "b", "c", "d"):
            for at, row in rows_of(problem, each):
                fresh_backend.upload(memory[each], host[each][row], offset=at)
        plan = gp.plan(problem, fresh_backend.device, kernel=kernel, params=BASE.get(kernel, {}))
        bind(plan, fresh_backend, memory).enqueue()
        got = np.zeros_like(host["d"])
        for at, row in rows_of(problem, "d"):
            fresh_backend.download(memory["d"], got[row], offset=at)
    finally:
        fresh_backend.synchronize()
        for block in memory.values():
            block.release()
    np.testing.assert_array_equal(got, reference(problem, {each: host[each] for each in ("a", "b", "c")}))


def rows_of(problem: GemmProblem, operand: Operand) -> list[tuple[int, tuple[int, int]]]:
    """Offset of each row of each matrix, in bytes, and its place in the batch."""
    lies, size = problem.layout(operand), problem.element_type(operand).itemsize
    return [((lies.offset + x * lies.batch_stride + i * lies.ld) * size, (x, i)) for x in range(3) for i in range(3)]


@pytest.mark.large
@pytest.mark.sample(kernel=["tiled"])
@each_kernel
@pytest.mark.every_value("along", ["rows and columns", "batch"])
def test_more_than_65_535_groups(backend: gp.Backend, kernel: str, along: str) -> None:
    """CUDA's limit on the second and third dimension of a grid."""
    tile = kernels.variant(kernel).tile(kernels.variant(kernel).complete(BASE[kernel]))
    if along == "batch":
        products = int(BASE[kernel].get("PRODUCTS", 1))
        problem = problem_of(Sizes(3, 2, 2), "NT", "float32", batch=65_600 * products)
    else:
        problem = problem_of(Sizes(tile.rows * 257, tile.columns * 257, 2), "NT", "float32")
    assert gp.plan(problem, backend.device, kernel=kernel, params=BASE[kernel]).launches[-1].groups[0] > 65_535
    check(backend, problem, kernel, BASE[kernel])


# What does not fit is said before anything runs


def test_an_operand_beyond_one_allocation_is_an_error_with_the_numbers(backend: gp.Backend) -> None:
    most = backend.device.max_allocation
    with pytest.raises(gp.DeviceMemoryError, match=f"{most + 1:,} bytes in one allocation; the device allows {most:,}"):
        backend.allocate(most + 1)


def test_operands_beyond_the_memory_in_all_are_an_error_with_the_numbers(backend: gp.Backend) -> None:
    problem = GemmProblem.create(10, 10, 10)
    plan = gp.plan(problem, backend.device, kernel="naive")
    memory = {operand: backend.allocate(400) for operand in ("a", "b", "d")}
    assert bind(replace(plan, device=replace(plan.device, memory=1200)), backend, memory)
    with pytest.raises(gp.DeviceMemoryError, match=r"hold 1,200 bytes and .* takes 0; the device has 1,199 in all"):
        bind(replace(plan, device=replace(plan.device, memory=1199)), backend, memory)


def test_without_room_for_scratch_memory_another_plan_is_chosen(
    fresh_backend: gp.Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For a device with less of it; where there is none, or the plan needs none, it is an error."""
    problem, device = GemmProblem.create(10, 10, 10), fresh_backend.device
    padded, tiled = (gp.plan(problem, device, kernel=kernel) for kernel in ("padded", "tiled"))
    sizes = {scratch.nbytes for scratch in padded.scratch}
    memory: dict[Operand, Memory] = {operand: fresh_backend.allocate(400) for operand in ("a", "b", "d")}
    allocate, asked_for = fresh_backend.allocate, list[gp.DeviceInfo]()

    def full(nbytes: int) -> Memory:
        if nbytes in sizes:
            raise gp.DeviceMemoryError("the first")
        return allocate(nbytes)

    def choose(device: gp.DeviceInfo, without: Collection[str]) -> Plan:
        asked_for.append(device)
        return tiled

    def refuse(device: gp.DeviceInfo, without: Collection[str]) -> Plan:
        raise gp.UnsupportedError("the second")

    monkeypatch.setattr(fresh_backend, "allocate", full)
    assert bind_or_choose(padded, choose, fresh_backend, memory).plan == tiled
    assert asked_for == [replace(device, max_allocation=max(sizes) - 1)]
    with pytest.raises(gp.DeviceMemoryError, match="the first"):
        bind_or_choose(padded, refuse, fresh_backend, memory)
    small = replace(tiled, device=replace(device, memory=1199))
    with pytest.raises(gp.DeviceMemoryError, match="1,199 in all"):
        bind_or_choose(small, refuse, fresh_backend, memory)
