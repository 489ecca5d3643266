"""The data types of a product, and what each layer needs to know of them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from gemmport.core.errors import DtypeError
from gemmport.core.names import did_you_mean

Kind = Literal["bool", "integer", "real", "complex"]


@dataclass(frozen=True)
class DType:
    """A type of the elements of a matrix, or of the sums that make one.

    Attributes:
        name: NumPy's name for it (ml_dtypes' for bfloat16 and those of 8 bits), which is also the name in YAML, on the command
            line and in the preludes.
        itemsize: bytes per element.
        kind: integers wrap around; bool is the "or" of "and"s.
        precision: bits of the significand of a real number or of each part of a complex one, the implicit bit included
            (IEEE 754-2019, table 3.5); 0 where nothing is rounded.
    """

    name: str
    itemsize: int
    kind: Kind
    precision: int = 0

    @property
    def unit_roundoff(self) -> float:
        """u = 2⁻ᵖ: the largest relative error of one rounding to nearest; 0 where nothing is rounded."""
        return math.ldexp(1.0, -self.precision) if self.precision else 0.0

    @property
    def smallest_subnormal(self) -> float:
        """The smallest positive number of this type, the error of one underflow; 0 where nothing is rounded."""
        if not self.precision:
            return 0.0
        exponent_bits = self.part_bits - self.precision
        return math.ldexp(1.0, 3 - (1 << (exponent_bits - 1)) - self.precision)

    @property
    def sum_bytes(self) -> int:
        """Bytes in which kernels keep a sum of this type: truth values are summed as 32-bit numbers."""
        return 4 if self.kind == "bool" else self.itemsize

    @property
    def part_bits(self) -> int:
        """Bits of a number, or of one part of a complex number."""
        return self.itemsize * 8 // (2 if self.kind == "complex" else 1)

    @property
    def arithmetic(self) -> str:
        """The floating-point type that a device must compute in for this one; empty for integers, which all compute in."""
        return f"float{self.part_bits}" if self.precision else ""

    @cached_property
    def numpy(self) -> np.dtype[Any]:
        """The NumPy dtype."""
        if self.name in _OF_ML_DTYPES:
            import ml_dtypes  # noqa: PLC0415 - registers the type with NumPy, which few programs need

            registered: np.dtype[Any] = np.dtype(getattr(ml_dtypes, self.name))
            return registered
        return np.dtype(self.name)

    def __str__(self) -> str:
        return self.name


FLOAT16 = DType("float16", 2, "real", precision=11)
BFLOAT16 = DType("bfloat16", 2, "real", precision=8)
FLOAT32 = DType("float32", 4, "real", precision=24)
FLOAT64 = DType("float64", 8, "real", precision=53)

DTYPES: dict[str, DType] = {
    dtype.name: dtype
    for dtype in (
        FLOAT16,
        BFLOAT16,
        FLOAT32,
        FLOAT64,
        DType("complex64", 8, "complex", precision=24),
        DType("complex128", 16, "complex", precision=53),
        *(DType(f"{sign}int{bits}", bits // 8, "integer") for sign in ("", "u") for bits in (8, 16, 32, 64)),
        DType("bool", 1, "bool"),
    )
}

HALVES = (FLOAT16, BFLOAT16)
"""Types of 16 bits, which become float32 wherever they are summed in that."""

FLOAT8_E4M3FN = DType("float8_e4m3fn", 1, "real", precision=4)
FLOAT8_E5M2 = DType("float8_e5m2", 1, "real", precision=3)

FLOAT8S = (FLOAT8_E4M3FN, FLOAT8_E5M2)
"""Types of 8 bits that A and B have, and no other operand (Micikevicius et al., FP8 Formats for Deep Learning, 2022). E5M2 is
the upper half of a float16. E4M3FN has no infinities and one NaN of each sign; its largest number is 448.
"""

INPUTS: dict[str, DType] = {**{dtype.name: dtype for dtype in FLOAT8S}, **DTYPES}
"""All types that A and B may have."""

_OF_ML_DTYPES = frozenset(dtype.name for dtype in (BFLOAT16, *FLOAT8S))

ACCUMULATORS = ("float16", "float32", "float64", "complex64", "complex128", "int32", "int64", "bool")
"""Types of sums. Integers are summed modulo 2³² or 2⁶⁴, which is right for signed and unsigned ones alike."""

KINDS: tuple[Kind, ...] = ("bool", "integer", "real", "complex")
"""Each holds the numbers of those before it."""


def as_dtype(spec: object) -> DType:
    """The `DType` that a name in either case, a NumPy dtype or a scalar type stands for.

    Raises:
        DtypeError: gemmport does not compute in it.
    """
    if isinstance(spec, DType):
        return spec
    if isinstance(spec, str) and (known := INPUTS.get(spec.lower())) is not None:
        return known
    try:
        given = np.dtype(spec)  # type: ignore[call-overload]  # any object: what NumPy refuses, we refuse
    except (TypeError, ValueError, SyntaxError):  # NumPy raises these for texts that name no type
        given = None
    if given is not None and given.name in INPUTS:
        return INPUTS[given.name]
    # A text as it was written: "float32,float64" is a record to NumPy, whose name for it is void96.
    told = (spec if isinstance(spec, str) else str(spec if given is None else given))[:100]
    raise DtypeError(
        f"dtype {told or repr(told)} is not supported: gemmport computes in {', '.join(INPUTS)}; convert the input"
        f"{did_you_mean(told, INPUTS)}"
    )


def is_named_by_ml_dtypes(spec: object) -> bool:
    """Whether a text is the name of a type that NumPy itself does not have."""
    return isinstance(spec, str) and spec in _OF_ML_DTYPES


def default_output(dtype: DType) -> DType:
    """The type of C and D where none is asked for: that of A and B, or float32 where those have 8 bits of floating point."""
    return FLOAT32 if dtype in FLOAT8S else dtype


def default_accumulator(dtype: DType, output: DType) -> DType:
    """The type of the sums where none is asked for: at least float32, and as wide as the output."""
    if output.kind == "bool":
        return DTYPES["bool"]
    if output.kind == "integer":
        return DTYPES["int64" if output.itemsize == 8 else "int32"]
    widest = max((dtype, output, FLOAT32), key=lambda each: each.precision)
    return DTYPES[f"complex{2 * widest.part_bits}" if output.kind == "complex" else f"float{widest.part_bits}"]


def check_types(dtype: DType, accumulator: DType, output: DType, *, asked: object = None) -> None:
    """Refuses types that do not go together.

    Args:
        asked: the accumulator as it was written, which messages repeat: "int" is int64.

    Raises:
        DtypeError: inputs that the output cannot hold by kind, an accumulator of another kind than the output, or one that
            rounds inputs or drops bits of the output; or types that do not go with those of `FLOAT8S`.
    """
    if output in FLOAT8S or accumulator in FLOAT8S:
        raise DtypeError(f"{output if output in FLOAT8S else accumulator} is a type of A and B alone: take float32")
    if dtype in FLOAT8S:
        narrow = (FLOAT32, *HALVES)
        if output not in narrow:
            told = ", ".join(map(str, narrow))
            raise DtypeError(
                f"the result of a product of {dtype} must be one of {told}; got {output}: convert it afterwards"
            )
        if accumulator != FLOAT32:
            raise DtypeError(f"sums of {dtype} must be kept in float32; got {accumulator}: leave the accumulator out")
    if KINDS.index(dtype.kind) > KINDS.index(output.kind):
        kinds = " or ".join(KINDS[KINDS.index(dtype.kind) :])
        raise DtypeError(
            f"the result of a product of {dtype} must be {kinds}; got {output}: that would drop what only {dtype} holds"
        )
    told = _told(accumulator, asked)
    fitting = " or ".join(name for name in ACCUMULATORS if _holds(dtype, DTYPES[name], output))
    if accumulator.name not in ACCUMULATORS or accumulator.kind != output.kind:
        raise DtypeError(f"sums for {output} cannot be kept in {told}: choose {fitting}")
    if accumulator.kind == "integer" and accumulator.itemsize < output.itemsize:
        raise DtypeError(f"sums for {output} must be kept in int64: {told} would drop their upper half")
    if accumulator.precision < dtype.precision:
        raise DtypeError(f"sums of {dtype} in {told} would round the inputs: choose {fitting}")


def _holds(dtype: DType, accumulator: DType, output: DType) -> bool:
    """Whether sums for an output, of products of a type, may be kept in a type of sums."""
    whole = accumulator.kind != "integer" or accumulator.itemsize >= output.itemsize
    return accumulator.kind == output.kind and whole and accumulator.precision >= dtype.precision


def _told(accumulator: DType, asked: object) -> str:
    """A type of sums, as it was written where that is another text."""
    if not isinstance(asked, str) or asked.lower() == accumulator.name:
        return accumulator.name
    return f"{asked!r}, which is {accumulator}"
