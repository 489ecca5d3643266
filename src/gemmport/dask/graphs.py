"""The graph of a product: for each tile of the result one chain of tasks, or several that are added up."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import dask
import dask.array as da
import numpy as np
from dask.base import tokenize
from dask.highlevelgraph import HighLevelGraph

from gemmport.core.dtypes import as_dtype, default_accumulator
from gemmport.dask.chunking import Label, Sizes, aligned, chain_count, panels_per_task, parts
from gemmport.dask.tasks import Side, Step, accumulate, add


@dataclass(frozen=True)
class Types:
    """Of a product.

    Attributes:
        inputs: that operands are converted to first; None where they are read as they are.
        common: of the operands, as they are read.
    """

    inputs: np.dtype[Any] | None
    common: np.dtype[Any]
    output: np.dtype[Any]

    @property
    def sums(self) -> np.dtype[Any]:
        """In which unfinished tiles are held: nothing is rounded before the last panel. Integers wrap around in any type."""
        output = as_dtype(self.output)
        return (
            output.numpy
            if output.kind in ("integer", "bool")
            else default_accumulator(as_dtype(self.common), output).numpy
        )


@dataclass(frozen=True)
class Contraction:
    """A sum of products over labelled dimensions, as of `gemmport.api.contractions`; the result's are batch, rows, columns.

    Attributes:
        batch: labels of the result that are not one operand's alone; one of size 1 in an operand repeats.
        row_scales, column_scales: for each row of each matrix of the result, (…, m), and each column, (…, n); None without.
    """

    a: da.Array
    labels_a: tuple[Label, ...]
    b: da.Array
    labels_b: tuple[Label, ...]
    batch: tuple[Label, ...] = ()
    row_scales: da.Array | None = None
    column_scales: da.Array | None = None

    @property
    def rows(self) -> tuple[Label, ...]:
        return tuple(label for label in self.labels_a if label not in (*self.batch, *self.labels_b))

    @property
    def columns(self) -> tuple[Label, ...]:
        return tuple(label for label in self.labels_b if label not in (*self.batch, *self.labels_a))

    @property
    def along(self) -> tuple[Label, ...]:
        return tuple(label for label in self.labels_a if label in self.labels_b and label not in self.batch)

    def aligned(self) -> Contraction:
        """With the same chunks along what the operands share."""
        a, b = aligned(self.a, self.labels_a, self.b, self.labels_b)
        found = replace(self, a=a, b=b)
        return replace(
            found,
            row_scales=found._cut(self.row_scales, self.rows),
            column_scales=found._cut(self.column_scales, self.columns),
        )

    def _cut(self, scales: da.Array | None, own: tuple[Label, ...]) -> da.Array | None:
        """Scales in chunks like those of the result; what has neither rows nor columns has one scale."""
        of = self.chunks()
        return (
            None
            if scales is None
            else scales.rechunk((*(of[label] for label in self.batch), of[own[0]] if own else (1,)))
        )

    def chunks(self) -> dict[Label, Sizes]:
        """Of each label; of one that repeats in an operand those of the other."""
        found: dict[Label, Sizes] = {}
        for labels, x in ((self.labels_a, self.a), (self.labels_b, self.b)):
            for label, own in zip(labels, x.chunks, strict=True):
                if label not in found or found[label] == (1,):
                    found[label] = own
        return found

    def sides(self) -> tuple[Side, Side]:
        """How chunks of A and of B become matrices."""
        return (
            _side(self.labels_a, self.batch, self.rows, self.along),
            _side(self.labels_b, self.batch, self.along, self.columns),
        )


def _side(labels: Sequence[Label], batch: Sequence[Label], rows: Sequence[Label], columns: Sequence[Label]) -> Side:
    ordered = (*(label for label in batch if label in labels), *rows, *columns)
    return Side(tuple(labels.index(label) for label in ordered), tuple(label in labels for label in batch), len(rows))


def product(
    contraction: Contraction,
    types: Types,
    how: Mapping[str, Any],
    *,
    name: str,
    chains: int | None,
    resources: Mapping[str, float] | None,
) -> da.Array:
    """The array of a product, of which nothing is computed yet.

    Args:
        how: arguments of `gemm`. name: of the tasks, for people.
        chains: in how many each tile's sum is computed; None for as many as `chain_count` says.
        resources: that a worker must have, and that a task takes of it while it runs.
    """
    found = contraction.aligned()
    step = Step(*found.sides(), types.inputs, types.sums, types.output, dict(how))
    of = found.chunks()
    kept = (*found.batch, *found.rows, *found.columns)
    token = tokenize(
        found.a, found.b, found.labels_a, found.labels_b, found.batch, types, sorted(how.items(), key=str), chains,
        found.row_scales, found.column_scales,
    )  # fmt: skip
    names = Names(f"gemmport-{name}-{token}", f"gemmport-panels-{token}", f"gemmport-add-{token}")
    layer = dict(_tasks(found, of, step, names, chains))
    read = [x for x in (found.a, found.b, found.row_scales, found.column_scales) if x is not None]
    with dask.annotate(**({"resources": dict(resources)} if resources else {})):
        graph = HighLevelGraph.from_collections(names.result, layer, dependencies=read)
    sizes = tuple(of[label] for label in kept)
    return da.Array(graph, names.result, sizes, meta=_meta(found.a, found.b, len(sizes), types.output))


@dataclass(frozen=True)
class Names:
    """Of tasks: those that finish a tile, those that do not, and sums of these."""

    result: str
    panels: str
    sums: str


def _tasks(
    found: Contraction, of: Mapping[Label, Sizes], step: Step, names: Names, chains: int | None
) -> Iterator[tuple[Any, Any]]:
    """Keys and tasks, tile by tile, those of one row of C next to each other: they share a row of A."""
    kept = (*found.batch, *found.rows, *found.columns)
    panels = list(itertools.product(*(range(len(of[label])) for label in found.along)))
    panel_bytes = sum(_largest(x) for x in (found.a, found.b))
    tile_bytes = math.prod(max(of[label], default=0) for label in kept) * step.sums.itemsize
    tiles = math.prod(len(of[label]) for label in kept)
    count = chain_count(tiles, len(panels), panel_bytes, tile_bytes) if chains is None else min(chains, len(panels))
    size = panels_per_task(panel_bytes)
    for tile in itertools.product(*(range(len(of[label])) for label in kept)):
        at = dict(zip(kept, tile, strict=True))
        shape = [of[label][index] for label, index in at.items()]
        scales = [_key_of_scales(found.row_scales, found.rows, found, at),
                  _key_of_scales(found.column_scales, found.columns, found, at)]  # fmt: skip
        ends = []
        for number, part in enumerate(parts(len(panels), count)):
            starts = range(part.start, part.stop, size)
            last: Any = None
            for begin in starts:
                group = [
                    {**at, **dict(zip(found.along, panels[p], strict=True))}
                    for p in range(begin, min(begin + size, part.stop))
                ]
                lefts, rights = (
                    [_key(x, labels, where) for where in group]
                    for x, labels in ((found.a, found.labels_a), (found.b, found.labels_b))
                )
                is_end = count == 1 and begin == starts[-1]
                key = (names.result, *tile) if is_end else (names.panels, *tile, number, begin)
                yield key, (accumulate, lefts, rights, last, step, shape if is_end else None, *scales)
                last = key
            ends.append(last)
        yield from _added(ends, tile, step, names, shape)


def _added(
    ends: list[Any], tile: tuple[int, ...], step: Step, names: Names, shape: Sequence[int]
) -> Iterator[tuple[Any, Any]]:
    """The sums of the chains of one tile, two by two: as many at a time as there are workers."""
    level = 0
    while len(ends) > 1:
        pairs, rest = [ends[i : i + 2] for i in range(0, len(ends) - 1, 2)], ends[len(ends) // 2 * 2 :]
        sums = []
        for number, (x, y) in enumerate(pairs):
            is_end = len(ends) == 2
            key = (names.result, *tile) if is_end else (names.sums, *tile, level, number)
            yield key, (add, x, y, step, shape if is_end else None)
            sums.append(key)
        ends, level = [*sums, *rest], level + 1


def _key(x: da.Array, labels: Sequence[Label], where: Mapping[Label, int]) -> tuple[Any, ...]:
    """Of a chunk; along a dimension that repeats it is the first."""
    return (x.name, *(0 if len(own) == 1 else where[label] for label, own in zip(labels, x.chunks, strict=True)))


def _key_of_scales(
    x: da.Array | None, own: tuple[Label, ...], found: Contraction, at: Mapping[Label, int]
) -> tuple[Any, ...] | None:
    """Of the chunk of a tile."""
    return None if x is None else (x.name, *(at[label] for label in found.batch), at[own[0]] if own else 0)


def _largest(x: da.Array) -> int:
    return int(math.prod(max(own, default=0) for own in x.chunks) * x.dtype.itemsize)


def _meta(a: da.Array, b: da.Array, ndim: int, dtype: np.dtype[Any]) -> Any:
    """An empty array of the kind that chunks of the result are: NumPy's where both operands' are."""
    like = b._meta if isinstance(a._meta, np.ndarray) else a._meta
    return da.utils.meta_from_array(like, ndim=ndim, dtype=dtype)
