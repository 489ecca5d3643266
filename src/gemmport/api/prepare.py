"""`prepare`: what the first call of a process waits for, done ahead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import numpy as np

from gemmport.api.arguments import HostArray, Types
from gemmport.api.placement import Placement
from gemmport.api.plans import Config, check_device, check_problem
from gemmport.api.product import Choice, Product, enqueue
from gemmport.backends.array import DeviceArray
from gemmport.backends.base import Backend
from gemmport.contracts.kernel import Parameters
from gemmport.core.device import DeviceInfo
from gemmport.core.layout import matrices
from gemmport.core.plan import Plan
from gemmport.core.problem import GemmProblem, Operand
from gemmport.execution.prepared import Prepared
from gemmport.execution.selection import get_backend
from gemmport.planning.planner import AUTO


def prepare(
    problem: GemmProblem,
    device: DeviceInfo,
    *,
    kernel: str = AUTO,
    params: Parameters | None = None,
    config: Config = None,
) -> tuple[Plan, ...]:
    """Plans, compiles and computes a product of zeros, so that later calls find its programs, in this process and on disk.

    A call finds them where its product is this problem: in types, sizes, ops and scalars, and in how its arrays lie. They are
    all on the device, or all on the host. Where a better program than the compiler's is made in the background, it is waited
    for. The product is computed because some runtimes compile a kernel when it is launched.

    Args:
        problem: from `GemmProblem.create`.
        device: from `devices()`.
        kernel, params, config: see `plan`.

    Returns:
        The plans that were carried out: of arrays on the host, where the device reads these in place, and of its own.

    Raises:
        ConfigError, UnknownNameError, ParameterError, UnsupportedError, DtypeError, ShapeError: see `plan`.
        BackendUnavailableError, DeviceNotFoundError: see `get_backend`.
        CompileError, InstructionsError, LaunchError, WorkGroupError, TensorMapError, DeviceMemoryError: the device refused, as
            in `gemm`.
    """
    check_problem(problem)
    check_device(device)
    backend = get_backend(device=device)
    choice = Choice(kernel, params, config, problem.accumulator.numpy, precision=problem.precision, hurries=False)
    operands: list[Operand] = ["a", "b", "d"] if problem.beta == 0 else ["a", "b", "c", "d"]
    for operand in operands:
        backend.check_allocation(problem.span(operand) * problem.element_type(operand).itemsize)
    reads_host = backend.borrow(np.zeros(1)) is not None
    # The host's go first: when they are freed, their memory is the system's again, and that of the device's is the pool's.
    plans = [_computed_on_host(problem, backend, operands, choice)] if reads_host else []
    return (*plans, _computed_on_device(problem, backend, operands, choice))


def _computed_on_host(problem: GemmProblem, backend: Backend, operands: list[Operand], choice: Choice) -> Plan:
    arrays = {operand: _host_array(problem, operand) for operand in operands}
    place = Placement(backend, awaited=True)
    out = place.borrow_host(arrays["d"])
    try:
        return _computed(problem, place, arrays, out, choice)
    finally:
        if out is not None:  # it has elements
            backend.give_back(out.memory)


def _computed_on_device(problem: GemmProblem, backend: Backend, operands: list[Operand], choice: Choice) -> Plan:
    arrays = {operand: _device_array(problem, operand, backend) for operand in operands}
    plan = _computed(problem, Placement(backend, awaited=False), arrays, arrays["d"], choice)
    backend.settle_programs()
    backend.synchronize()
    return plan


def _computed(
    problem: GemmProblem,
    place: Placement,
    arrays: Mapping[Operand, DeviceArray | HostArray],
    out: DeviceArray | None,
    choice: Choice,
) -> Plan:
    """The plan by which `gemm` computes it."""
    product = Product(
        arrays["a"], arrays["b"], arrays.get("c"), problem.alpha, problem.beta, problem.trans_a, problem.trans_b,
        Types(problem.dtype.numpy, problem.output.numpy), arrays["d"].shape, problem.k,
    )  # fmt: skip
    enqueue(place, product, out, choice)
    return cast("Prepared", place.prepared).plan


def _host_array(problem: GemmProblem, operand: Operand) -> HostArray:
    """Zeros that lie as the problem says; a batch of one is a matrix."""
    flat = np.zeros(problem.span(operand), problem.element_type(operand).numpy)
    batch = matrices(flat, problem.layout(operand), *problem.stored_shape(operand), problem.batch)
    return batch[0] if problem.batch == 1 else batch


def _device_array(problem: GemmProblem, operand: Operand, backend: Backend) -> DeviceArray:
    """Likewise on the device."""
    layout, flat = problem.layout(operand), backend.zeros(problem.span(operand), problem.element_type(operand).numpy)
    shape, strides = (problem.batch, *problem.stored_shape(operand)), (layout.batch_stride, layout.ld, 1)
    batch = DeviceArray(backend, flat.memory, shape, flat.dtype, strides, layout.offset)
    return batch[0] if problem.batch == 1 else batch
