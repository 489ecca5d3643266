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
from gemmport.contracts.kernel import KernelVariant
from gemmport.core.dtypes import ACCUMULATORS, DTYPES, INPUTS, DType, check_types, default_accumulator, default_output
from gemmport.core.errors import DtypeError, ParameterError
from gemmport.core.plan import ParameterValue
from gemmport.core.problem import OPS, GemmProblem, Op
from gemmport.planning.planner import AUTO

BLOCK = 1000
"""Problems that share a pool."""

POOL = 4
"""Specializations of a block."""

_AS_CONFIGURED = 1 / 16
"""How often "auto" is drawn beside named kernels: its tiles are the largest, and take some compilers half a minute each."""

_TRIES = 1000
"""Parameters that are drawn before those are taken that ask for the least: most of what is drawn breaks a rule."""

_CHANGED = 0.4
"""How often a parameter is drawn where the others are the defaults."""

_POOL_STREAM = 1
"""Tells the random numbers of a pool from those of a problem."""


@dataclass(frozen=True)
class Limits:
    """What parameters may ask of a device at most: work-items of a group, bytes of its local memory, registers of an item."""

    items: int
    local: int
    registers: int


WITHIN_ALL = Limits(256, 32 << 10, 64)
"""What every device has, and registers that compile quickly."""

GENEROUS = Limits(1024, 48 << 10, 128)

SOON_COMPILED = Limits(256, 32 << 10, 20)
"""Loops that compilers unroll are what they take long for."""


@dataclass(frozen=True)
class Types:
    """The types of a product, by name."""

    dtype: str
    output: str
    accumulator: str

    def __str__(self) -> str:
        usual_output = default_output(INPUTS[self.dtype]).name
        text = self.dtype if self.output == usual_output else f"{self.dtype}→{self.output}"
        usual = default_accumulator(INPUTS[self.dtype], DTYPES[self.output]).name
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
def pool(seed: int, block: int, names: tuple[str, ...], dtypes: tuple[str, ...] = ()) -> tuple[Specialization, ...]:
    """The specializations of a block, of the kernels of these names and inputs of these types; see `all_kernels`, `inputs`."""
    rng = np.random.default_rng([seed, block, _POOL_STREAM])
    drawn = []
    named = [name for name in names if name != AUTO]
    for _ in range(POOL):
        automatic = AUTO in names and (not named or rng.random() < _AS_CONFIGURED)
        kernel = AUTO if automatic else named[int(rng.integers(len(named)))]
        params = () if kernel == AUTO else draw_parameters(rng, kernels.variant(kernel))
        types = draw_types(rng, dtypes)
        drawn.append(
            Specialization(kernel, params, types, draw_ops(rng, types), bool(kernel != AUTO and rng.random() < 0.25))
        )
    return tuple(drawn)


def all_kernels() -> tuple[str, ...]:
    """Every kernel that there is, and "auto"."""
    return (*(variant.name for variant in kernels.variants()), AUTO)


def draw_ops(rng: np.random.Generator, types: Types) -> tuple[Op, Op]:
    """Any two; a number without an imaginary part has no conjugate of its own."""
    ops: tuple[Op, ...] = OPS if INPUTS[types.dtype].kind == "complex" else ("N", "T")
    return ops[int(rng.integers(len(ops)))], ops[int(rng.integers(len(ops)))]


def inputs(dtypes: tuple[str, ...]) -> list[DType]:
    """Types of A and B by their names; none for all."""
    return [dtype for name, dtype in INPUTS.items() if not dtypes or name in dtypes]


def draw_types(rng: np.random.Generator, dtypes: tuple[str, ...] = (), *, other: bool | None = None) -> Types:
    """Any inputs; an output that is another type in one of three; an accumulator that is not the default in one of five.

    Args:
        dtypes: of `inputs`. other: whether output or accumulator are others than usual.
    """
    dtype = _one(rng, inputs(dtypes))
    own = default_output(dtype)
    usual = default_accumulator(dtype, own)
    if other is False:
        return Types(dtype.name, own.name, usual.name)
    fitting = [
        output
        for output in DTYPES.values()
        if any(_go_together(dtype, DTYPES[accumulator], output) for accumulator in ACCUMULATORS)
    ]
    output = _one(rng, fitting) if rng.random() < 1 / 3 else own
    accumulator = default_accumulator(dtype, output)
    if rng.random() < 0.2:
        accumulator = _one(rng, [DTYPES[x] for x in ACCUMULATORS if _go_together(dtype, DTYPES[x], output)])
    if other and (output, accumulator) == (own, usual):
        return draw_types(rng, dtypes, other=True)
    return Types(dtype.name, output.name, accumulator.name)


def _go_together(dtype: DType, accumulator: DType, output: DType) -> bool:
    try:
        check_types(dtype, accumulator, output)
    except DtypeError:
        return False
    return True


def _one(rng: np.random.Generator, values: Sequence[DType]) -> DType:
    return values[int(rng.integers(len(values)))]


def draw_parameters(
    rng: np.random.Generator, variant: KernelVariant, *, limits: Limits | None = None, most_work: int = 0
) -> tuple[tuple[str, ParameterValue], ...]:
    """Parameters that keep the kernel's rules, and where there are such, the limits.

    Args:
        limits: mostly `WITHIN_ALL`, where they are not given.
        most_work: multiplications of a group for a step along k, where there is such a choice; 0: any.
    """
    problem = GemmProblem.create(1, 1, 1)
    limits = limits or (GENEROUS if rng.random() < 0.1 else WITHIN_ALL)
    best, least = variant.complete({}), math.inf
    for number in range(_TRIES):
        # Every other time only some of the defaults are changed: few of all values keep the rules of some kernels.
        drawn = {parameter.name: _draw_value(rng, parameter.choices, parameter.minimum, parameter.maximum)
                 for parameter in variant.parameters if number % 2 == 0 or rng.random() < _CHANGED}  # fmt: skip
        try:
            values = variant.complete(drawn)
        except ParameterError:
            continue
        if math.prod(variant.work_group(values)) > limits.items or variant.local_bytes(values, problem) > limits.local:
            continue
        asked = variant.registers(values, problem) / limits.registers
        if most_work:
            asked = max(asked, math.prod(variant.tile(values)) / most_work)
        if asked < least:
            best, least = values, asked
        if asked <= 1:
            break
    return tuple(best.items())


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
