"""`copy_strided`: a strided array into another of the same shape, from type to type: what gathers a view, and puts one back."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gemmport.contracts.kernel import Pass, ceil_div, type_defines
from gemmport.core.dtypes import FLOAT32, DType, default_accumulator
from gemmport.core.plan import Argument, Buffer, Integer, Launch, Scalar

RANK = 4
"""Dimensions that one launch walks; those before them are walked by launching again."""

WORK_GROUP = 256


@dataclass(frozen=True)
class Strided:
    """Where the elements of one side of a copy lie: strides and the offset of the first, in elements."""

    strides: tuple[int, ...]
    offset: int


class CopyStrided(Pass):
    """Copies element by element, one per work-item; strides may be negative or, in the source, zero.

    Between equal types, words of their size are moved, so that no bit changes and no device needs to compute in the type.
    """

    name = "copy_strided"
    summary = "strided arrays, gathered or put back, with conversion"

    def launches(
        self, shape: Sequence[int], source: Strided, target: Strided, dtype: DType, output: DType, max_work_group: int
    ) -> Iterator[Launch]:
        """The launches that copy "source" to "target", both of this shape.

        Args:
            dtype: of the source. output: of the target, to which numbers are converted as by `numpy.astype`.
            max_work_group: work-items that a group of the device may have.
        """
        sizes, read, written = tuple(shape), source.strides, target.strides
        starts = source.offset, target.offset
        if dtype == output and dtype.itemsize == 16:  # two words of eight bytes
            sizes, read, written = (*sizes, 2), (*(2 * s for s in read), 1), (*(2 * s for s in written), 1)
            starts = 2 * starts[0], 2 * starts[1]
        outer = max(len(sizes) - RANK, 0)
        inner = sizes[outer:]
        missing = RANK - len(inner)
        extents = (*[1] * missing, *inner)
        steps = [(*[0] * missing, *strides[outer:]) for strides in (read, written)]
        total = 1
        for extent in extents:
            total *= extent
        work_group = min(WORK_GROUP, max_work_group)
        sums = default_accumulator(dtype, output)
        if dtype == output:
            word = min(dtype.itemsize, 8)
            defines = {**_ANY_TYPES, "WORD_BYTES": word}
        else:
            defines = type_defines(dtype, sums, output)
        for index in itertools.product(*map(range, sizes[:outer])):
            first = [start + sum(i * s for i, s in zip(index, strides, strict=False))
                     for start, strides in zip(starts, (read, written), strict=True)]  # fmt: skip
            arguments: tuple[Argument, ...] = (
                Buffer("source"), Integer(first[0]), Buffer("target"), Integer(first[1]), Integer(total),
                *map(Integer, extents[1:]), *map(Integer, steps[0]), *map(Integer, steps[1]),
            )  # fmt: skip
            if dtype != output:
                arguments += (Scalar(1, sums.name), Scalar(0, sums.name))
            yield Launch(
                self.source(defines), groups=(ceil_div(total, work_group), 1, 1), work_group=(work_group, 1, 1),
                arguments=arguments,
            )  # fmt: skip


# What the source includes asks for types even where words are moved that have none.
_ANY_TYPES = type_defines(FLOAT32, FLOAT32, FLOAT32)

PASS = CopyStrided()
