"""A product of arrays that lie in several allocations each, cut where these end: into products of arrays that lie in one."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gemmport.backends.array import DeviceArray
from gemmport.backends.segments import cuts_of, within_one
from gemmport.core.problem import Op, transposes
from gemmport.core.segments import Span, spans

SUMS = 2**28
"""Bytes of sums, at most, that wait to be converted to the type of the result."""


@dataclass(frozen=True)
class Part:
    """A part of the result, and the spans of terms whose products are added up there.

    Attributes:
        matrices: of the batch. rows, columns: of the result.
        terms: columns of op(A), which are rows of op(B).
    """

    matrices: Span
    rows: Span
    columns: Span
    terms: Sequence[Span]

    def of_result(self, x: DeviceArray) -> DeviceArray:
        """What lies here of the result, or of C."""
        return _block(x, self.matrices, self.rows, self.columns)

    def of_a(self, x: DeviceArray, op: Op, terms: Span) -> DeviceArray:
        """What is read of A for some of the terms."""
        return _block(x, self.matrices, *((terms, self.rows) if transposes(op) else (self.rows, terms)))

    def of_b(self, x: DeviceArray, op: Op, terms: Span) -> DeviceArray:
        """What is read of B for some of the terms."""
        return _block(x, self.matrices, *((self.columns, terms) if transposes(op) else (terms, self.columns)))


def in_parts(
    a: DeviceArray,
    b: DeviceArray,
    c: DeviceArray | None,
    d: DeviceArray,
    op_a: Op,
    op_b: Op,
    resident: np.dtype[np.generic],
    *,
    scaled: bool = False,
) -> Iterator[Part]:
    """The parts of a product: what each reads for a span of terms, and writes, lies in one allocation.

    Args:
        a, b, c: read in place. d: of the result's shape.
        resident: the type of sums. Where it is not that of d, a part with several spans of terms has `SUMS` bytes of these at
            most, and one allocation.
        scaled: whether rows and columns of d have scales, so that each part has sums.
    """
    most = max(min(d.backend.device.max_allocation, SUMS) // resident.itemsize, 1)
    arrays = [x for x in (a, b, c, d) if x is not None]
    (m, n), k = d.shape[-2:], a.shape[-2 if transposes(op_a) else -1]
    for matrices in _matrices(arrays, d.shape[0] if d.ndim == 3 else 1):
        (a_rows, a_columns), (b_rows, b_columns), *others = (
            _cuts(_block(x, matrices, (0, x.shape[-2]), (0, x.shape[-1]))) for x in (a, b, *arrays[2:])
        )
        if transposes(op_a):
            a_rows, a_columns = a_columns, a_rows
        if transposes(op_b):
            b_rows, b_columns = b_columns, b_rows
        rows = sorted(a_rows.union(*(found for found, _ in others)))
        columns = sorted(b_columns.union(*(found for _, found in others)))
        terms = spans(k, sorted(a_columns | b_rows))
        for down in spans(m, rows):
            for across in spans(n, columns):
                part = Part(matrices, down, across, terms)
                converts = scaled or (len(terms) > 1 and resident != d.dtype)
                yield from _no_larger(part, most) if converts else [part]


def _block(x: DeviceArray, matrices: Span, rows: Span, columns: Span) -> DeviceArray:
    """A part of a matrix, or of each matrix of a part of a batch; of the one allocation in which it lies, where it does."""
    key = slice(*rows), slice(*columns)
    found = x[(slice(*matrices), *key) if x.ndim == 3 else key]
    lying = within_one(found)
    return found if lying is None else lying


def _matrices(arrays: Sequence[DeviceArray], batch: int) -> Iterator[Span]:
    """Matrices of a batch that are computed together: each array of them lies in one allocation, or it is one matrix."""
    batched = [x for x in arrays if x.ndim == 3]
    for first, last in spans(batch, sorted({index for x in batched for index in cuts_of(x, 0)})):
        if all(within_one(x[first:last]) is not None for x in batched):
            yield first, last
        else:
            yield from ((number, number + 1) for number in range(first, last))


def _cuts(x: DeviceArray) -> tuple[set[int], set[int]]:
    """Where rows and columns are cut, so that each block between these lies in one allocation."""
    if within_one(x) is not None:
        return set(), set()
    down, across = (0 if size == 1 else abs(step) for size, step in zip(x.shape[-2:], x.strides[-2:], strict=True))
    if down < across:
        of_columns, of_rows = _cuts(x.mT)
        return of_rows, of_columns
    rows = cuts_of(x, -2)
    lines = [x[..., first:last, :] for first, last in spans(x.shape[-2], rows)]
    return set(rows), {at for line in lines if within_one(line) is None for at in cuts_of(line, -1)}


def _no_larger(part: Part, most: int) -> Iterator[Part]:
    """A part of the result, in parts of no more elements."""
    sizes = {name: last - first for name, (first, last) in
             (("matrices", part.matrices), ("rows", part.rows), ("columns", part.columns))}  # fmt: skip
    if math.prod(sizes.values()) <= most:
        yield part
        return
    name = next(name for name, size in sizes.items() if size > 1)
    first, last = getattr(part, name)
    middle = (first + last) // 2
    for half in ((first, middle), (middle, last)):
        yield from _no_larger(replace(part, **{name: half}), most)
