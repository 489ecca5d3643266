"""How the operands of a product are rounded before they are multiplied, where the caller asks for less than their type holds.

Each format is that of a type that matrix units multiply; a product of two of its numbers is exact in float32, in which they are
summed. Operands stay float32 where they lie: what is rounded is a copy, or what a kernel holds in registers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from gemmport.core.dtypes import DType
from gemmport.core.errors import DtypeError, UnknownNameError
from gemmport.core.names import did_you_mean


@dataclass(frozen=True)
class Format:
    """A binary floating-point format, with subnormal numbers, infinities and NaN.

    Attributes:
        precision: bits of the significand, the implicit bit included.
        exponent_bits: of its exponent, whose bias is half of its range.
    """

    name: str
    precision: int
    exponent_bits: int

    @property
    def unit_roundoff(self) -> float:
        """u = 2⁻ᵖ: the largest relative error of rounding to nearest, of normal numbers."""
        return math.ldexp(1.0, -self.precision)

    @property
    def least_exponent(self) -> int:
        """Of the smallest normal number."""
        return 2 - (1 << (self.exponent_bits - 1))

    @property
    def smallest_subnormal(self) -> float:
        """The distance of its smallest numbers."""
        return math.ldexp(1.0, self.least_exponent - self.precision + 1)

    def holds(self, dtype: DType) -> bool:
        """Whether it has every number of a type, so that nothing is rounded."""
        exponent_bits = dtype.part_bits - dtype.precision
        return 0 < dtype.precision <= self.precision and exponent_bits <= self.exponent_bits


FULL = "full"
"""The word for operands that are multiplied as they are."""

FORMATS: dict[str, Format] = {
    each.name: each for each in (Format("tf32", 11, 8), Format("float16", 11, 5), Format("bfloat16", 8, 8))
}
"""TF32: "NVIDIA A100 Tensor Core GPU Architecture" (2020). float16: IEEE 754-2019, table 3.5. bfloat16: the upper half of a
float32.
"""

PRECISIONS: tuple[str, ...] = (FULL, *FORMATS)

_ROUNDED = ("float32", "complex64")
"""The types whose numbers, or parts of numbers, are rounded."""


def as_precision(word: object) -> str:
    """The precision that a word in either case stands for.

    Raises:
        UnknownNameError: there is none of that name.
    """
    name = word.lower() if isinstance(word, str) else ""
    if name not in PRECISIONS:
        hint = did_you_mean(word, PRECISIONS)
        raise UnknownNameError(f"precision must be one of {', '.join(PRECISIONS)}; got {str(word)[:100]!r}{hint}")
    return name


def rounded_to(word: object, dtype: DType) -> str:
    """The precision to which operands of a type are rounded where a caller asks for this one: "full" where it has them all.

    Raises:
        UnknownNameError: as `as_precision`.
        DtypeError: operands of the type are not rounded to it.
    """
    name = as_precision(word)
    if name == FULL or FORMATS[name].holds(dtype):
        return FULL
    if dtype.name in _ROUNDED:
        return name
    if not dtype.precision:
        reason = "products of integers and bool are exact"
    elif dtype.precision > 24:
        reason = f"sums of {dtype} are kept in {dtype}, those of {name} in float32"
    else:
        reason = f"{dtype} is as narrow, and has other numbers"
    raise DtypeError(
        f"precision {name!r} must have operands of float32 or complex64; got {dtype} ({reason}): convert them first, or leave "
        "precision out"
    )


def default_for(name: str, dtype: DType) -> str:
    """The precision to which operands of a type are rounded where this one is the default for all products: of types that it is
    not for, they are multiplied as they are.
    """
    return name if dtype.name in _ROUNDED else FULL
