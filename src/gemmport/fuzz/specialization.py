"""What programs are compiled for. Compiling one takes a hundred times as long as running it on a small problem, so that the
problems of a block share a few of them: a pool that grows by `POOL` per `BLOCK` of problems.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from gemmport import kernels
from gemmport.dtypes import ACCUMULATORS, DTYPES, DType, check_types, default_accumulator
from gemmport.errors import DtypeError, ParameterError
from gemmport.plan import ParameterValue
from gemmport.planner import AUTO
from gemmport.problem import OPS, GemmProblem, Op
from gemmport.variant import KernelVariant

BLOCK = 1000
"""Problems that share a pool."""

POOL = 4
"""Specializations of a block."""

_AS_CONFIGURED = 1 / 16
"""How often "auto" is drawn beside named kernels: its tiles are the largest, and take some compilers half a minute each."""

_TRIES = 1000
"""Parameters that are drawn before a kernel's defaults are taken: most of what is drawn breaks a rule."""

_POOL_STREAM = 1
"""Tells the random numbers of a pool from those of a problem."""


@dataclass(frozen=True)
class Types:
    """The types of a product, by name."""

    dtype: str
    output: str
    accumulator: str

    def __str__(self) -> str:
        text = self.dtype if self.output == self.dtype else f"{self.dtype}→{self.output}"
        usual = default_accumulator(DTYPES[self.dtype], DTYPES[self.output]).name
        return text if self.accumulator == usual else f"{text} in {self.accumulator}"


@dataclass(frozen=True)
class Specialization:
    """One kernel with its parameters, types and ops.

    Attributes:
        params: all of them; none with "auto", which takes those of the configuration.
        whole: its problems are whole tiles, which are computed without bounds checks.
    """

    kernel: str
    params: tuple[tuple[str, ParameterValue], ...]
    types: Types
    ops: tuple[Op, Op]
    whole: bool

    def __str__(self) -> str:
        told = " ".join(f"{name}={value}" for name, value in self.params)
        return f"{self.kernel} ({told or 'as configured'})"


@lru_cache(maxsize=8)
def pool(seed: int, block: int, names: tuple[str, ...]) -> tuple[Specialization, ...]:
    """The specializations of a block, of the kernels of these names; see `all_kernels`."""
    rng = np.random.default_rng([seed, block, _POOL_STREAM])
    drawn = []
    named = [name for name in names if name != AUTO]
    for _ in range(POOL):
        automatic = AUTO in names and (not named or rng.random() < _AS_CONFIGURED)
        kernel = AUTO if automatic else named[int(rng.integers(len(named)))]
        params = () if kernel == AUTO else draw_parameters(rng, kernels.variant(kernel))
        types = draw_types(rng)
        ops = OPS if DTYPES[types.dtype].kind == "complex" else ("N", "T")
        pair = (ops[rng.integers(len(ops))], ops[rng.integers(len(ops))])
        drawn.append(Specialization(kernel, params, types, pair, bool(kernel != AUTO and rng.random() < 0.25)))
    return tuple(drawn)


def all_kernels() -> tuple[str, ...]:
    """Every kernel that there is, and "auto"."""
    return (*(variant.name for variant in kernels.variants()), AUTO)


def draw_types(rng: np.random.Generator) -> Types:
    """Any inputs; an output that is another type in one of three; an accumulator that is not the default in one of five."""
    dtype = _one(rng, list(DTYPES.values()))
    fitting = [
        output
        for output in DTYPES.values()
        if any(_go_together(dtype, DTYPES[accumulator], output) for accumulator in ACCUMULATORS)
    ]
    output = _one(rng, fitting) if rng.random() < 1 / 3 else dtype
    accumulator = default_accumulator(dtype, output)
    if rng.random() < 0.2:
        accumulator = _one(rng, [DTYPES[x] for x in ACCUMULATORS if _go_together(dtype, DTYPES[x], output)])
    return Types(dtype.name, output.name, accumulator.name)


def _go_together(dtype: DType, accumulator: DType, output: DType) -> bool:
    try:
        check_types(dtype, accumulator, output)
    except DtypeError:
        return False
    return True


def _one(rng: np.random.Generator, values: Sequence[DType]) -> DType:
    return values[int(rng.integers(len(values)))]


def draw_parameters(rng: np.random.Generator, variant: KernelVariant) -> tuple[tuple[str, ParameterValue], ...]:
    """Parameters that keep the kernel's rules, mostly within what every device allows: groups of 256, 32 KB of local memory,
    and as many registers as compile quickly.
    """
    problem = GemmProblem.create(1, 1, 1)
    generous = rng.random() < 0.1
    most_items, most_local, most_registers = (1024, 48 << 10, 128) if generous else (256, 32 << 10, 64)
    for _ in range(_TRIES):
        drawn = {parameter.name: _draw_value(rng, parameter.choices, parameter.minimum, parameter.maximum)
                 for parameter in variant.parameters}  # fmt: skip
        try:
            values = variant.complete(drawn)
        except ParameterError:
            continue
        if (
            math.prod(variant.work_group(values)) <= most_items
            and variant.local_bytes(values, problem) <= most_local
            and variant.registers(values, problem) <= most_registers
        ):
            return tuple(values.items())
    return tuple(variant.complete({}).items())


def _draw_value(
    rng: np.random.Generator, choices: Sequence[ParameterValue], minimum: int, maximum: int
) -> ParameterValue:
    """One of the choices; or a whole number, by its logarithm, every other time a power of two."""
    if choices:
        return choices[int(rng.integers(len(choices)))]
    if minimum < 1:
        return int(rng.integers(minimum, maximum, endpoint=True))
    value = math.exp(rng.uniform(math.log(minimum), math.log(maximum + 1)))
    if rng.random() < 0.5:
        value = 2.0 ** math.floor(math.log2(value))
    return min(max(int(value), minimum), maximum)
