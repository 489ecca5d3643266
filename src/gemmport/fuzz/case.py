"""What every random problem is: a pure function of (seed, index), which can be judged on a device."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, Protocol

import numpy as np

from gemmport import kernels
from gemmport.backends.base import Backend
from gemmport.checking import verification as verify
from gemmport.checking.reference import reference
from gemmport.checking.verification import HostArray
from gemmport.contracts.kernel import Cut, Parameters, ceil_div
from gemmport.core.device import DeviceInfo
from gemmport.core.dtypes import DTYPES, FLOAT32, DType
from gemmport.core.errors import DtypeError, GemmportError, ParameterError, UnsupportedError
from gemmport.core.problem import GemmProblem, Layout, Operand, Scalar, transposed, transposes
from gemmport.fuzz.specialization import Specialization
from gemmport.planning.planner import AUTO
from gemmport.planning.preparation import as_taken

Data = Literal["whole numbers", "random numbers", "special values"]
"""whole numbers: small, exact in any order of summation, or of the whole range where nothing rounds. random numbers: N(0, 1),
within the statistical bound. special values: whole numbers with NaN and infinities among them, whose products no order
changes."""

Outcomes = frozenset[type[GemmportError] | None]
"""Errors with which a device may refuse a problem; None among them where it may compute it."""

Factor = Literal["0", "1", "other"]
"""What alpha or beta is."""

SPECIAL = (np.nan, np.inf, -np.inf)

_LONG = 4096
"""Terms."""

_ALIGNED = 128
"""Elements."""


@dataclass(frozen=True)
class Facts:
    """What the summary counts a problem under.

    Attributes:
        kind: "plan", "gemm", "matmul" or "device arrays": through which door.
        features: what is special about it: "batch", "in place", "negative strides", …
    """

    kind: str
    kernel: str
    types: str
    ops: str
    features: tuple[str, ...]


class Case(Protocol):
    """A random problem."""

    @property
    def problem(self) -> GemmProblem:
        """What is to be computed; its layouts are those of the operands only where a plan is run."""

    @property
    def specialization(self) -> Specialization:
        """The kernel and its parameters."""

    @property
    def facts(self) -> Facts:
        """What the summary counts it under."""

    def outcomes(self, device: DeviceInfo) -> Outcomes:
        """What may come of it on the device by gemmport's rules."""

    def judge(self, backend: Backend) -> str:
        """Computes it; what is wrong with the result, for people; empty where nothing is.

        Raises:
            GemmportError: it was refused.
        """


def refusal(
    problem: GemmProblem, device: DeviceInfo, kernel: str = AUTO, params: Parameters | None = None
) -> type[GemmportError] | None:
    """The error with which a device must refuse a problem: types that it lacks, sums too long for it, parameters beyond it.

    How many groups that takes is not asked: devices of 64 bits allow 2³¹ − 1.
    """
    arithmetic = problem.accumulator.arithmetic
    if arithmetic and arithmetic not in device.computes:
        return DtypeError
    if device.max_terms and problem.effective_k > device.max_terms:
        return UnsupportedError
    if not params:
        return None
    variant = kernels.variant(kernel)
    problem = as_taken(variant, problem)
    if variant.unsupported(problem, device):
        return UnsupportedError
    if variant.unfit(params, problem, device):
        return ParameterError
    if problem.empty:
        return None
    group = variant.work_group(params)
    fits = (
        math.prod(group) <= device.max_work_group
        and all(items <= most for items, most in zip(group, device.max_work_item_sizes, strict=True))
        and variant.local_bytes(params, problem) <= variant.most_local_bytes(device)
        and (not device.registers or variant.registers(params, problem) * math.prod(group) <= device.registers)
    )
    return None if fits else ParameterError


def outcomes_of_call(problem: GemmProblem, device: DeviceInfo, specialization: Specialization) -> Outcomes:
    """What may come of a product of arrays. It is planned by how they lie: transposed or not, aligned or not.
    What a kernel needs may depend on that, and then the device may have it or not.
    """
    params = dict(specialization.params)
    if not params:
        return frozenset({refusal(problem, device, specialization.kernel)})
    return frozenset(refusal(each, device, specialization.kernel, params) for each in _arrangements(problem))


def _arrangements(problem: GemmProblem) -> Iterator[GemmProblem]:
    """The product as it may be planned."""
    for op_of_a, op_of_b in itertools.product(*((op, transposed(op)) for op in (problem.trans_a, problem.trans_b))):
        columns_of_a = problem.m if transposes(op_of_a) else problem.k
        columns_of_b = problem.k if transposes(op_of_b) else problem.n
        for a, b in zip(_layouts(columns_of_a), _layouts(columns_of_b), strict=True):
            yield replace(problem, trans_a=op_of_a, trans_b=op_of_b, a=a, b=b)


def _layouts(columns: int) -> tuple[Layout, ...]:
    """Rows one after another, rows that are aligned to all that kernels use, and rows that are not aligned."""
    ld = max(columns, 1)
    return Layout(ld), Layout(ceil_div(ld, _ALIGNED) * _ALIGNED), Layout(ld, offset=1)


def draw_factor(rng: np.random.Generator, *, none: float) -> Factor:
    """What alpha or beta is: 0 with the chance `none`, 1 as often, or another number."""
    chance = rng.random()
    return "other" if chance >= 2 * none else "0" if chance < none else "1"


def scalar_of(rng: np.random.Generator, factor: Factor, kind: str) -> Scalar:
    """Alpha or beta: 0, 1, or a small number of the kind that sums are of, of which powers of two would hide a rounding; truth
    values have no other than 1.
    """
    if factor != "other" or kind == "bool":
        return 0 if factor == "0" else 1
    choices: tuple[Scalar, ...] = {
        "integer": (-1, 2, 3, -7),
        "real": (-1, 3, -3, 1.5),
        "complex": (-1, 3, 1.5, 1j, 2 - 1j, -1 + 2j),
    }[kind]
    return choices[int(rng.integers(len(choices)))]


def draw_data(rng: np.random.Generator, dtype: DType) -> Data:
    """What the operands hold. What is computed in few digits rounds in many more ways than whole numbers show."""
    chance = rng.random()
    if chance < 0.08:
        return "special values"
    return "random numbers" if chance < (0.5 if is_half(dtype) else 0.25) else "whole numbers"


def judgeable(data: Data, problem: GemmProblem) -> Data:
    """The data, or whole numbers where it could not be judged.

    Random integers in floating-point sums have no sign to average out, and no bound; NaN in a complex number has no one result;
    long sums are seldom added up exactly (`verify.exact_dots`), which takes seconds.
    """
    long = problem.k > _LONG and problem.accumulator.precision > FLOAT32.precision
    if not verify.rounds(problem) or problem.dtype.kind not in ("real", "complex"):
        return "whole numbers"
    if data == "special values" and problem.accumulator.kind != "real":
        return "whole numbers"
    return "whole numbers" if data == "random numbers" and long else data


def is_half(dtype: DType) -> bool:
    """Whether numbers of the type have 16 bits, of which few are digits."""
    return 0 < dtype.precision <= DTYPES["float16"].precision


def shortened(k: int, accumulator: str) -> int:
    """So many terms that small whole numbers are summed exactly in the type: any number here, but in float16."""
    return min(k, 64) if is_half(DTYPES[accumulator]) else k


def operands_of(problem: GemmProblem, data: Data, seed: int) -> dict[Operand, HostArray]:
    """A, B and C as they are stored, (batch, rows, columns), whether they are read or not."""
    every = problem.with_scalars(problem.alpha, problem.beta if problem.beta != 0 else 1)  # C, too
    if data == "random numbers" or not verify.rounds(problem):
        return verify.random_operands(every, seed)
    operands = verify.exact_operands(every, seed)
    if data == "special values":
        rng = np.random.default_rng([seed, 1])
        for operand in operands.values():
            if operand.size:
                for _ in range(int(rng.integers(1, 4))):
                    at = tuple(int(rng.integers(extent)) for extent in operand.shape)
                    operand[at] = SPECIAL[int(rng.integers(3))]
    return operands


def fault_of(
    problem: GemmProblem, operands: dict[Operand, HostArray], data: Data, d: HostArray, cut: Cut | None = None
) -> str:
    """What is wrong with D, for people; empty where nothing is.

    Args:
        cut: as in `verification.check_random`.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        if data == "random numbers":
            return verify.check_random(problem, operands, d, cut=cut).detail
        expected = reference(problem, operands)
        if data == "special values":
            both = np.isnan(d.astype(np.float64)) & np.isnan(expected)
            if both.any():  # NaN compares unequal to itself: where both are NaN, both are right
                d, expected = np.where(both, d.dtype.type(0), d), np.where(both, 0, expected)
        return verify.check_exact(expected, d).detail
