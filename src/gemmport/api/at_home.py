"""Products of arrays in shards, each part of the result by the device that has it: all is enqueued at once, and awaited once.

A device reads its own shards where they lie. What others have of the operands comes to it, each shard in one copy, on a queue
of its own; products of what is there go first. Sums over several shards are added up in the result (beta = 1), where its type
holds them as they are; else the shards are put together before they are multiplied, so that each sum is rounded once.

One thread enqueues it all for all devices. Nothing waits with the host but the end, where devices copy between each other;
else what travels passes through the host, when the products of what is there are enqueued.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, pairwise
from typing import Any, TypeAlias, cast

import numpy as np

from gemmport.api.placement import Placement
from gemmport.api.product import Choice, Product, enqueue
from gemmport.backends.array import DeviceArray, dense_strides
from gemmport.backends.base import Backend
from gemmport.backends.objects import Memory
from gemmport.backends.segments import is_segmented
from gemmport.core.errors import GemmportError
from gemmport.core.problem import GemmProblem, Op, transposes
from gemmport.execution.copies import copy_strided
from gemmport.execution.sharded import ShardedArray
from gemmport.multidevice.homes import Home, are_even
from gemmport.multidevice.tiles import Room, Span, Tile
from gemmport.outofcore.elsewhere import BUFFER, await_queue, on_queue
from gemmport.planning.schedule import converts

log = logging.getLogger(__name__)

Array: TypeAlias = "DeviceArray | ShardedArray"
Block: TypeAlias = "tuple[Span, ...]"
"""A part of an array: of each dimension from where to where."""


@dataclass(frozen=True)
class AtHome:
    """A part of a result that was computed where it lies: by which device, and in how many seconds."""

    backend: Backend
    tile: Tile
    seconds: float


def compute_at_home(
    homes: Sequence[Home], backends: Sequence[Backend], rooms: Sequence[Room], problem: GemmProblem, product: Product, out: Any,
    choice: Choice,
) -> list[AtHome]:  # fmt: skip
    """Computes parts of a result where they lie, and waits for them.

    Nothing is done where devices are unlike each other or have unlike parts, where an array is in the host's memory, or in
    several allocations, and where a device has no room for what comes to it.

    Args:
        homes: the parts of the result by their device's number. rooms: of each device, for what comes to it.
        out: where the result is written, on devices.

    Returns:
        The parts that are done; none at which a device failed.
    """
    if not homes or product.k == 0 or not are_even(homes, [one.device.identity for one in backends]):
        return []
    arrays = [x for x in (product.a, product.b, product.c, out) if x is not None]
    if not all(isinstance(x, DeviceArray | ShardedArray) for x in arrays) or any(map(is_segmented, _pieces(arrays))):
        return []
    gathers = converts(problem, scaled=product.scales is not None)
    parts: list[_Part] = []
    for number, (backend, room) in enumerate(zip(backends, rooms, strict=True)):
        arrivals = _Arrivals(backend)
        for home in homes:
            if home.owner != number or not home.tile.size:
                continue
            part = _part(number, home.tile, arrivals, product, out, gathers=gathers)
            if part is None or not arrivals.fit(room):
                return []
            parts.append(part)
    return _run(backends, parts, product, replace(choice, precision=problem.precision))


def _run(
    backends: Sequence[Backend], parts: Sequence[_Part], product: Product, choice: Choice
) -> list[AtHome]:  # fmt: skip
    """Enqueues all parts, and waits for them."""
    begun = time.perf_counter()
    failures: dict[int, Exception] = {}

    def each(step: Callable[[_Part], object]) -> None:
        for part in parts:
            if part.number not in failures:
                try:
                    step(part)
                except (GemmportError, MemoryError) as error:
                    failures[part.number] = error

    all_arrivals = list({id(part.arrivals): part.arrivals for part in parts}.values())
    try:
        each(lambda part: part.arrivals.begin())
        each(lambda part: part.enqueue(product, choice, there=True))
        each(lambda part: part.arrivals.end())
        each(lambda part: part.enqueue(product, choice, there=False))
    finally:
        for number, backend in enumerate(backends):
            try:
                backend.synchronize()
            except GemmportError as error:
                failures.setdefault(number, error)
        for arrivals in all_arrivals:
            with suppress(GemmportError):
                if failures:  # which may have left something on its way that no product waits for
                    arrivals.await_all()
                arrivals.release()
    seconds = time.perf_counter() - begun
    for number, failure in failures.items():
        log.warning("%s failed, and its part is dealt again: %s", backends[number].device.label, failure)
    return [AtHome(backends[part.number], part.tile, seconds) for part in parts if part.number not in failures]


@dataclass(frozen=True)
class _Cell:
    """A product of some terms of op(A) and op(B), added to some rows and columns of a part.

    Attributes:
        a, b: make what it reads, when all that comes is enqueued.
        target, c: what it writes, and what it reads of C; None where it adds to what is in the target.
        terms: how many. there: whether all of it lies on the device.
    """

    a: Callable[[], DeviceArray]
    b: Callable[[], DeviceArray]
    target: DeviceArray
    c: DeviceArray | None
    terms: int
    rows: Span
    columns: Span
    there: bool


@dataclass(frozen=True)
class _Part:
    """A part of the result that a device computes where it lies.

    Attributes:
        number: of the device. groups: cells that write the same elements, in order.
    """

    number: int
    tile: Tile
    arrivals: _Arrivals
    groups: Sequence[Sequence[_Cell]]

    def enqueue(self, product: Product, choice: Choice, *, there: bool) -> None:
        """Enqueues its products: of those of what is there, or the others."""
        backend = self.arrivals.backend
        for group in self.groups:
            for number, cell in enumerate(group):
                if cell.there != there:
                    continue
                scales = product.scales
                one = replace(
                    product, a=cell.a(), b=cell.b(), c=cell.target if number else cell.c, beta=1 if number else product.beta,
                    shape=cell.target.shape, k=cell.terms,
                    scales=None if scales is None else scales.part(self.tile.matrices, cell.rows, cell.columns),
                )  # fmt: skip
                place = Placement(backend, awaited=True, queue=backend.as_queue(None))
                enqueue(place, one, cell.target, choice)


def _part(number: int, tile: Tile, arrivals: _Arrivals, product: Product, out: Array, *, gathers: bool) -> _Part | None:
    """A part of the result by what a device has of it; None where C or the result lie elsewhere.

    Args:
        gathers: whether no sum may be added up in the result.
    """
    backend = arrivals.backend
    terms = _cut(Span(0, product.k), [_borders(x, _terms(name, op)) for name, x, op in _operands(product)])
    rows = _cut(tile.rows, [_borders(cast("Array", product.a), _lines("a", product.op_a))])
    columns = _cut(tile.columns, [_borders(cast("Array", product.b), _lines("b", product.op_b))])
    gathered = gathers and len(terms) > 1
    groups: list[list[_Cell]] = []
    for down in rows:
        for across in columns:
            one = replace(tile, rows=down, columns=across)
            target, c = _own(out, one, backend), None if product.c is None else _own(product.c, one, backend)
            if target is None or (product.c is not None and c is None):
                return None
            cells = []
            for each in [Span(0, product.k)] if gathered else terms:
                made = [arrivals.operand(x, _block(x, name, op, one, each)) for name, x, op in _operands(product)]
                if any(x is None for x in made):
                    return None
                (a, a_there), (b, b_there) = cast("Any", made)
                cells.append(_Cell(a, b, target, c, each.size, down, across, a_there and b_there))
            groups.append(sorted(cells, key=lambda cell: not cell.there))
    return _Part(number, tile, arrivals, groups)


class _Arrivals:
    """What comes to a device of what others have: each block once."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self._known: dict[Any, _Arrival | _Gathered] = {}
        self._stage = 0

    def operand(self, x: Array, block: Block) -> tuple[Callable[[], DeviceArray], bool] | None:
        """What makes a block of an operand on the device, and whether it lies there.

        Returns:
            None where it lies in shards along a dimension of the batch.
        """
        found = _shards(x, block)
        if len(found) == 1:
            own, _ = found[0]
            if own.backend is self.backend:
                return lambda: own, True
            return self._kept((id(x), block), lambda: _Arrival(self.backend, own)).array, False
        axis = cast("ShardedArray", x).axis
        if axis < x.ndim - 2:
            return None

        def gathered() -> _Gathered:
            sizes = tuple(span.size for span in block)
            pieces = [(own, inner[axis].start - block[axis].start) for own, inner in found]
            return _Gathered(self.backend, sizes, found[0][0].dtype, pieces, axis)

        return self._kept((id(x), block), gathered).array, False

    def _kept(self, key: Any, made: Callable[[], _Arrival | _Gathered]) -> _Arrival | _Gathered:
        if key not in self._known:
            self._known[key] = made()
        return self._known[key]

    def fit(self, room: Room) -> bool:
        """Whether a device has room for all of it."""
        sizes = [nbytes for each in self._known.values() for nbytes in each.sizes]
        return sum(sizes) <= room.memory and max(sizes, default=0) <= room.allocation

    def begin(self) -> None:
        """Enqueues all copies from devices that the device copies from."""
        if self._stage == 0:
            self._stage = 1
            for each in self._known.values():
                each.begin()

    def end(self) -> None:
        """Brings what comes through the host, and puts in its place what could not arrive there."""
        if self._stage == 1:
            self._stage = 2
            for each in self._known.values():
                each.end()

    def await_all(self) -> None:
        """Waits for what is on its way."""
        for each in self._known.values():
            await_queue(each.array().memory, self.backend, _queue(self.backend, "comes"))

    def release(self) -> None:
        """Gives the memory back to the pool, where the next product finds it."""
        for each in self._known.values():
            each.release()


class _Arrival:
    """A block of another device's, which arrives as it lies there where its elements lie one after another, else packed.

    Attributes:
        into: where it arrives; None for memory of its own.
    """

    def __init__(self, backend: Backend, source: DeviceArray, into: Callable[[], DeviceArray] | None = None) -> None:
        self.backend, self.source, self.into = backend, source, into
        is_dense = _is_dense(source) or (into is None and _is_dense(source.mT))
        self._strides = source.strides if is_dense else dense_strides(source.shape)
        self._packs, self._directly = not is_dense, False
        self._blocks: list[Memory] = []
        self._array: DeviceArray | None = None

    @property
    def sizes(self) -> list[int]:
        """Bytes of its memory on the device."""
        return [self.source.nbytes] if self.into is None else []

    def array(self) -> DeviceArray:
        """It, on the device."""
        if self._array is None:
            source = self.source
            if self.into is None:
                self._blocks.append(memory := self.backend.allocate(source.nbytes))
                self._array = DeviceArray(self.backend, memory, source.shape, source.dtype, self._strides)
            else:
                self._array = self.into()
        return self._array

    def begin(self) -> None:
        """Has what travels come after what was done to it so far, and enqueues the copy where there is a direct one."""
        source, sender, target = self.source, self.source.backend, self.array()
        self._leaving, self._coming = _queue(sender, "leaves"), _queue(self.backend, "comes")
        if self._packs:
            packed = DeviceArray.dense(sender, sender.allocate(source.nbytes), source.shape, source.dtype)
            self._blocks.append(packed.memory)
            copy_strided(source, packed, queue=self._leaving)
            source = packed
        else:
            with sender.ordered(self._leaving, reads=[source.memory]):
                pass
        self._memory, self._first = source.memory, source.offset * source.dtype.itemsize
        with self.backend.ordered(self._coming, writes=[target.memory]):
            self._directly = self.backend.copy_from(
                sender, self._memory, target.memory, source.nbytes, source_offset=self._first,
                offset=target.offset * target.dtype.itemsize, sender=self._leaving, queue=self._coming,
            )  # fmt: skip

    def end(self) -> None:
        """Brings it through the host, where there is no direct copy."""
        if self._directly:
            return
        target, nbytes = self.array(), self.source.nbytes
        staging = np.empty(min(BUFFER, nbytes), np.uint8)
        leaving, coming = on_queue(self._memory, self._leaving), on_queue(target.memory, self._coming)
        for first in range(0, nbytes, BUFFER):
            view = staging[: nbytes - first]
            self.source.backend.download(leaving, view, offset=self._first + first, queue=self._leaving)
            place = target.offset * target.dtype.itemsize + first
            self.backend.upload(coming, view, offset=place, queue=self._coming)

    def release(self) -> None:
        """Gives the memory back."""
        for block in self._blocks:
            block.release()


class _Gathered:
    """A block that lies in shards, in one piece."""

    def __init__(
        self, backend: Backend, shape: tuple[int, ...], dtype: np.dtype[Any], pieces: Sequence[tuple[DeviceArray, int]],
        axis: int,
    ) -> None:  # fmt: skip
        """Of pieces along an axis, each with where it begins."""
        self.backend, self._shape, self._dtype, self._axis = backend, shape, dtype, axis
        self._memory: Memory | None = None
        self._own: list[tuple[DeviceArray, int]] = []
        self._others: list[tuple[_Arrival, int]] = []
        for piece, start in pieces:
            if piece.backend is backend:
                self._own.append((piece, start))
                continue
            place = partial(self._place, start, piece.shape[axis])
            in_place = all(size == 1 for size in shape[:axis])  # else its rows lie apart
            self._others.append((_Arrival(backend, piece, place if in_place else None), start))

    @property
    def sizes(self) -> list[int]:
        """Bytes of its memory on the device."""
        whole = math.prod(self._shape) * self._dtype.itemsize
        return [whole, *(size for each, _ in self._others for size in each.sizes)]

    def array(self) -> DeviceArray:
        """It, on the device."""
        if self._memory is None:
            self._memory = self.backend.allocate(math.prod(self._shape) * self._dtype.itemsize)
        return DeviceArray.dense(self.backend, self._memory, self._shape, self._dtype)

    def _place(self, start: int, size: int) -> DeviceArray:
        whole, axis = self.array(), self._axis
        shape = (*whole.shape[:axis], size, *whole.shape[axis + 1 :])
        return replace(whole, shape=shape, offset=start * whole.strides[axis])

    def begin(self) -> None:
        """As `_Arrival.begin`; and copies what lies on the device."""
        for each, _ in self._others:
            each.begin()
        for piece, start in self._own:
            place = self._place(start, piece.shape[self._axis])
            # Beside what arrives, which is written elsewhere.
            copied(piece, replace(place, memory=on_queue(place.memory, None)))

    def end(self) -> None:
        """As `_Arrival.end`."""
        for each, start in self._others:
            each.end()
            if each.into is None:
                copied(each.array(), self._place(start, each.source.shape[self._axis]))

    def release(self) -> None:
        """Gives the memory back."""
        for each, _ in self._others:
            each.release()
        if self._memory is not None:
            self._memory.release()


def copied(source: DeviceArray, target: DeviceArray) -> None:
    """Enqueues a copy between arrays of one device and type, on its own queue."""
    backend, size = source.backend, source.dtype.itemsize
    if _is_dense(source) and _is_dense(target):
        blocks = [backend.part(x.memory, x.offset * size) for x in (source, target)]
        if all(block is not None for block in blocks):
            backend.copy(cast("Memory", blocks[0]), cast("Memory", blocks[1]), source.nbytes)
            return
    copy_strided(source, target)


# How arrays lie


def _operands(product: Product) -> tuple[tuple[str, Any, Op], tuple[str, Any, Op]]:
    return ("a", product.a, product.op_a), ("b", product.b, product.op_b)


def _lines(name: str, op: Op) -> int:
    """Of an operand, the dimension that is not summed over, counted from the last."""
    return -1 if (name == "b") != transposes(op) else -2


def _terms(name: str, op: Op) -> int:
    return -3 - _lines(name, op)


def _pieces(arrays: Sequence[Any]) -> Iterator[DeviceArray]:
    for x in arrays:
        yield from x.shards if isinstance(x, ShardedArray) else [x]


def _borders(x: Array, axis: int) -> list[int]:
    """Where shards begin and end along a dimension, counted from the last."""
    if not isinstance(x, ShardedArray) or x.axis - x.ndim != axis:
        return []
    return [*accumulate(shard.shape[axis] for shard in x.shards)]


def _cut(whole: Span, borders: Sequence[Sequence[int]]) -> list[Span]:
    """What is between all borders within a span."""
    inner = {stop for each in borders for stop in each if whole.start < stop < whole.stop}
    return [Span(*pair) for pair in pairwise(sorted({whole.start, whole.stop} | inner))]


def _block(x: Any, name: str, op: Op, tile: Tile, terms: Span) -> Block:
    """The part of an operand that a product of some terms reads for a tile."""
    lines = tile.rows if name == "a" else tile.columns
    own = (lines, terms) if _lines(name, op) == -2 else (terms, lines)
    return (tile.matrices, *own) if x.ndim == 3 else own


def _own(x: Any, tile: Tile, backend: Backend) -> DeviceArray | None:
    """A tile's part of an array of the result's shape, where one array of the device has it."""
    block = (tile.matrices, tile.rows, tile.columns) if x.ndim == 3 else (tile.rows, tile.columns)
    found = _shards(x, block)
    return found[0][0] if len(found) == 1 and found[0][0].backend is backend else None


def _shards(x: Array, block: Block) -> list[tuple[DeviceArray, Block]]:
    """The parts of a block by the shards in which they lie, and which part each is."""
    if isinstance(x, DeviceArray):
        return [(_part_of(x, block), block)]
    found, start, asked = [], 0, block[x.axis]
    for shard in x.shards:
        size = shard.shape[x.axis]
        first, last = max(asked.start, start), min(asked.stop, start + size)
        if first < last:
            inner = (*block[: x.axis], Span(first, last), *block[x.axis + 1 :])
            within = (*block[: x.axis], Span(first - start, last - start), *block[x.axis + 1 :])
            found.append((_part_of(shard, within), inner))
        start += size
    return found


def _part_of(x: DeviceArray, block: Block) -> DeviceArray:
    if all(span.size == size for span, size in zip(block, x.shape, strict=True)):
        return x
    return x[tuple(span.slice for span in block)]


def _is_dense(x: DeviceArray) -> bool:
    return x.strides == dense_strides(x.shape) or x.size <= 1


def _queue(backend: Backend, what: str) -> Any:
    """A queue beside the backend's own, for what leaves the device or comes to it; kept as long as it is open."""
    key = "queue of shards", what
    if key not in backend.kept:
        backend.kept[key] = backend.as_queue(backend.new_queue())
    return backend.kept[key]
