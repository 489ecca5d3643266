"""`fill_random`: matrices of random numbers made on the device, for problems that the host cannot hold.

The numbers are a function of the seed and of the element's place alone, and `predicted` is that function in NumPy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gemmport.contracts.kernel import Pass, ceil_div, type_defines
from gemmport.core.dtypes import DTYPES, DType
from gemmport.core.plan import Buffer, Integer, Launch, Scalar
from gemmport.core.problem import Layout

ITEMS, EACH = 256, 16
"""Work-items of a group, and elements that each fills."""

# SplitMix64 (Steele, Lea & Flood, OOPSLA 2014), with the constants of S. Vigna's splitmix64.c, in the public domain.
_GAMMA, _FIRST, _SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


@dataclass(frozen=True)
class Whole:
    """Whole numbers, all about equally likely.

    Attributes:
        low: the smallest.
        count: how many there are, at most 2³²; 0 for all of a type of 64 bits.
    """

    low: int
    count: int

    @classmethod
    def all_of(cls, dtype: DType) -> Whole:
        """Every number of an integer type; both truth values."""
        if dtype.kind == "bool":
            return cls(0, 2)
        limits = np.iinfo(dtype.numpy)
        return cls(int(limits.min), 0 if dtype.itemsize == 8 else int(limits.max) - int(limits.min) + 1)


class FillRandom(Pass):
    """Element number l of all matrices, counted row by row, is made of the outputs 2l and 2l + 1 of SplitMix64: a normal number
    by Box and Muller's transform (1958), a whole number from the upper half of the first output. The parts of a complex
    normal number are the cosine and the sine of one transform, those of a whole one belong to the two outputs.
    """

    name = "fill_random"
    summary = "matrices of N(0, 1) or whole numbers, by a counter"

    def launch(
        self, dtype: DType, rows: int, columns: int, batch: int, layout: Layout, seed: int, whole: Whole | None
    ) -> Launch:
        """The launch that fills the buffer "matrix" with N(0, 1), or with `whole` numbers, and leaves the gaps alone.

        Args:
            dtype, layout: of the matrices; rows and columns as they are stored.

        Raises:
            ValueError: normal numbers of a type that has none.
        """
        if not dtype.precision:
            if whole is None:
                raise ValueError(f"there are no normal numbers in {dtype}: give the range of whole numbers")
            sums, stored = DTYPES["int64"], DTYPES["uint8"] if dtype.kind == "bool" else dtype
        else:
            part = "float64" if dtype.part_bits == 64 else "float32"
            sums = DTYPES[f"complex{2 * DTYPES[part].part_bits}" if dtype.kind == "complex" else part]
            stored = dtype
        numbers = whole or Whole(0, 0)
        defines = {
            "ITEMS": ITEMS,
            "EACH": EACH,
            **type_defines(stored, sums, stored),
            "REAL": f"float{sums.part_bits}" if sums.precision else "int64",
            "DIGITS": sums.precision,
            "PARTS": 2 if dtype.kind == "complex" else 1,
            "NORMAL": int(whole is None),
        }
        return Launch(
            self.source(defines),
            groups=(ceil_div(rows * columns * batch, ITEMS * EACH), 1, 1),
            work_group=(ITEMS, 1, 1),
            arguments=(
                Buffer("matrix"), Integer(layout.offset), Integer(layout.ld), Integer(layout.batch_stride),
                Integer(rows), Integer(columns), Integer(batch),
                Scalar(seed, "int64"), Scalar(numbers.low, "int64"), Scalar(numbers.count, "int64"),
                Scalar(1, sums.name), Scalar(0, sums.name),
            ),
        )  # fmt: skip


def predicted(dtype: DType, numbers: npt.ArrayLike, seed: int, whole: Whole | None) -> npt.NDArray[Any]:
    """The elements of these numbers, counted row by row over all matrices: whole ones bit for bit, normal ones but for the last
    bits, in which devices' functions differ.
    """
    first, second = (_outputs(seed, 2 * np.asarray(numbers, np.uint64) + np.uint64(step)) for step in (0, 1))
    if whole is not None:
        parts = [_whole(bits, whole) for bits in (first, second)]
        if dtype.kind != "complex":
            return parts[0].astype(dtype.numpy)
    else:
        wide = 64 if dtype.part_bits == 64 else 32
        digits = DTYPES[f"float{wide}"].precision
        radius = np.sqrt(-2 * np.log(_uniform(first, digits)))
        angle = 2 * np.pi * _uniform(second, digits)
        parts = [radius * np.cos(angle), radius * np.sin(angle)]
        if dtype.kind != "complex":
            return parts[0].astype(f"float{wide}").astype(dtype.numpy)
    return (parts[0] + 1j * parts[1]).astype(dtype.numpy)


def _outputs(seed: int, number: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """SplitMix64's outputs of these numbers, from 0, when it is started with the seed."""
    with np.errstate(over="ignore"):
        z = np.uint64(seed % 2**64) + (number + np.uint64(1)) * np.uint64(_GAMMA)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(_FIRST)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(_SECOND)
        return z ^ (z >> np.uint64(31))


def _uniform(bits: npt.NDArray[np.uint64], digits: int) -> npt.NDArray[Any]:
    """Numbers in (0, 1] from the upper digits."""
    uniform: npt.NDArray[Any] = ((bits >> np.uint64(64 - digits)) + np.uint64(1)) * 2.0**-digits
    return uniform


def _whole(bits: npt.NDArray[np.uint64], whole: Whole) -> npt.NDArray[np.int64]:
    chosen = ((bits >> np.uint64(32)) * np.uint64(whole.count)) >> np.uint64(32) if whole.count else bits
    with np.errstate(over="ignore"):
        return (chosen + np.uint64(whole.low % 2**64)).view(np.int64)


PASS = FillRandom()
