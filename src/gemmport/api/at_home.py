"""Products of arrays in shards, each part of the result by the device that has it: all is enqueued at once, and awaited once.

A device reads its own shards where they lie. What others have of the operands comes to it, each shard in one copy, on a queue
of its own; products of what is there go first. Sums over several shards are added up in the result (beta = 1), where its type
holds them as they are, so that each sum is rounded once. Where the product's own type does not, the shards are put together
before they are multiplied; where only that of `out` does not, sums are added up beside it.

One thread enqueues it all for all devices. Nothing waits with the host but the end, where devices copy between each other;
else what travels passes through the host, when the products of what is there are enqueued.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, pairwise
from typing import Any, TypeAlias, cast

import numpy as np

from gemmport.api.placement import Placement
from gemmport.api.product import Choice, Product, copied_bytes, enqueue, written_in_place
from gemmport.api.sharded import line_axis
from gemmport.api.spread import pieces
from gemmport.backends.array import DeviceArray
from gemmport.backends.base import Backend
from gemmport.backends.objects import Memory
from gemmport.backends.segments import is_segmented
from gemmport.core.errors import GemmportError, LaunchError
from gemmport.core.problem import GemmProblem, Op
from gemmport.execution.copies import copy_strided
from gemmport.execution.sharded import ShardedArray
from gemmport.multidevice.crew import FAILURES, lost
from gemmport.multidevice.homes import Home, are_even
from gemmport.multidevice.tiles import Room, Span, Tile
from gemmport.outofcore.elsewhere import BUFFER, gone, is_dense, on_queue
from gemmport.planning.schedule import converts

log = logging.getLogger(__name__)

Array: TypeAlias = "DeviceArray | ShardedArray"
Block: TypeAlias = "tuple[Span, ...]"
"""A part of an array: of each dimension from where to where."""


@dataclass(frozen=True)
class AtHome:
    """What a device computed where it lies: parts of a result, all of them in so many seconds."""

    backend: Backend
    tiles: Sequence[Tile]
    seconds: float


def compute_at_home(
    homes: Sequence[Home], backends: Sequence[Backend], rooms: Mapping[Backend, Room], problem: GemmProblem, product: Product,
    out: Any, choice: Choice,
) -> list[AtHome]:  # fmt: skip
    """Computes parts of a result where they lie, and waits for them.

    Nothing is done where devices are unlike each other or have unlike parts, where an array is in the host's memory, or in
    several allocations, and where a device has no room for what comes to it, is packed to leave it, or is copied there.

    Args:
        homes: the parts of the result by their device's number.
        rooms: of each device, also of those that have arrays alone, for what is not among the arrays.
        out: where the result is written, on devices.

    Returns:
        What is done, but for parts at which a device failed that is not lost.

    Raises:
        ArrayLostError: a device was lost, and with it what lies there. Others, but for `FAILURES`, as `enqueue`.
    """
    if not homes or product.k == 0 or not are_even(homes, [one.device.identity for one in backends]):
        return []
    arrays = [x for x in (product.a, product.b, product.c, out) if x is not None]
    if not all(isinstance(x, DeviceArray | ShardedArray) for x in arrays) or any(map(is_segmented, pieces(arrays))):
        return []
    gathers = converts(problem, scaled=product.scales is not None)
    parts: list[_Part] = []
    needs = _Needs()
    for number, backend in enumerate(backends):
        arrivals = _Arrivals(backend)
        for home in homes:
            if home.owner != number or not home.tile.size:
                continue
            part = _part(home.tile, arrivals, product, out, gathers=gathers)
            if part is None:
                return []
            parts.append(part)
            needs.pass_by(part, product)
        needs.keep(arrivals)
    if (lacking := needs.lacking(rooms)) is not None:
        short, nbytes = lacking
        log.info(
            "%s is dealt: %s has no room beside its arrays for %s bytes that come to it, are packed to leave it, or are copied",
            problem, short.device.label, f"{nbytes:,}",
        )  # fmt: skip
        return []
    return _run(backends, parts, product, replace(choice, precision=problem.precision))


class _Needs:
    """Memory that a product takes of devices beside its arrays."""

    def __init__(self) -> None:
        self._kept: dict[Backend, list[int]] = {}  # until the end
        self._passing: dict[Backend, list[int]] = {}  # of the product whose copies take the most

    def keep(self, arrivals: _Arrivals) -> None:
        """Takes note of what comes to a device, is packed elsewhere for that, and of sums that are added up beside a result."""
        for backend, nbytes in arrivals.takes():
            self._kept.setdefault(backend, []).append(nbytes)

    def pass_by(self, part: _Part, product: Product) -> None:
        """Takes note of copies that a device makes for one product after another."""
        for group in part.groups:
            for number, cell in enumerate(group.cells):
                c = None if number else group.c
                found = copied_bytes(cell.a.like, cell.b.like, c, group.written, product.types)
                self._passing[part.backend] = max(self._passing.get(part.backend, []), found, key=sum)

    def lacking(self, rooms: Mapping[Backend, Room]) -> tuple[Backend, int] | None:
        """A device that has no room, and for how many bytes; None where all have."""
        for backend in self._kept.keys() | self._passing.keys():
            sizes = [*self._kept.get(backend, []), *self._passing.get(backend, [])]
            if sum(sizes) > rooms[backend].memory or max(sizes, default=0) > rooms[backend].allocation:
                return backend, sum(sizes)
        return None


def _run(
    backends: Sequence[Backend], parts: Sequence[_Part], product: Product, choice: Choice
) -> list[AtHome]:  # fmt: skip
    """Enqueues all parts, and waits for them."""
    begun = time.perf_counter()
    failures: dict[Backend, Exception] = {}
    is_over = False

    def each(step: Callable[[_Part], object]) -> None:
        for part in parts:
            if part.backend not in failures:
                try:
                    step(part)
                except FAILURES as error:
                    failures[part.backend] = error

    all_arrivals = list({id(part.arrivals): part.arrivals for part in parts}.values())
    try:
        each(lambda part: part.arrivals.begin())
        each(lambda part: part.enqueue(product, choice, there=True))
        each(lambda part: part.arrivals.end())
        each(lambda part: part.enqueue(product, choice, there=False))
        is_over = True
    finally:
        for backend in backends:
            try:
                backend.synchronize()
            except FAILURES as error:
                failures.setdefault(backend, error)
        for arrivals in all_arrivals:
            if failures or not is_over:  # something may be on its way that no product waits for
                with suppress(GemmportError):
                    arrivals.await_all()
            arrivals.release()
    seconds = time.perf_counter() - begun
    done = [part for part in parts if not {part.backend, *part.senders} & failures.keys()]
    _raise_lost(backends, parts, done)
    for backend, failure in failures.items():
        log.warning("%s failed, and its part is dealt again: %s", backend.device.label, failure)
    tiles = {backend: [part.tile for part in done if part.backend is backend] for backend in backends}
    return [AtHome(backend, each, seconds) for backend, each in tiles.items() if each]


def _raise_lost(backends: Sequence[Backend], parts: Sequence[_Part], done: Sequence[_Part]) -> None:
    """Raises ArrayLostError, with the parts that are not done, where a device was lost, which has arrays."""
    for backend in dict.fromkeys([*backends, *(sender for part in parts for sender in part.senders)]):
        try:
            backend.check_open()
        except LaunchError as error:
            raise lost([part.tile for part in parts if part not in done], gone(backend, error)) from error


@dataclass(frozen=True)
class _Operand:
    """A block of an operand on the device that multiplies it.

    Attributes:
        array: makes it, when all that comes is enqueued.
        like: how it lies there, in whatever memory.
        senders: the devices of which it comes; none where it lies there.
    """

    array: Callable[[], DeviceArray]
    like: DeviceArray
    senders: frozenset[Backend] = frozenset()


@dataclass(frozen=True)
class _Cell:
    """A product of some terms of op(A) and op(B)."""

    a: _Operand
    b: _Operand
    terms: int

    @property
    def there(self) -> bool:
        """Whether all of it lies on the device."""
        return not (self.a.senders or self.b.senders)


@dataclass(frozen=True)
class _Group:
    """Some rows and columns of a part: the sum of cells, in order.

    Attributes:
        target, c: what is written, and what is read of C.
        sums: beside the target, where cells are added up that the target does not hold as they are; None: in the target.
    """

    cells: Sequence[_Cell]
    rows: Span
    columns: Span
    target: DeviceArray
    c: DeviceArray | None
    sums: _Space | None

    @property
    def written(self) -> DeviceArray:
        """As the products of the cells are written."""
        return self.target if self.sums is None else self.sums.like


@dataclass(frozen=True, eq=False)
class _Part:
    """A part of the result that a device computes where it lies."""

    tile: Tile
    arrivals: _Arrivals
    groups: Sequence[_Group]

    @property
    def backend(self) -> Backend:
        """The device."""
        return self.arrivals.backend

    @property
    def senders(self) -> set[Backend]:
        """The devices that have something of what it reads."""
        operands = [x for group in self.groups for cell in group.cells for x in (cell.a, cell.b)]
        return {sender for x in operands for sender in x.senders}

    def enqueue(self, product: Product, choice: Choice, *, there: bool) -> None:
        """Enqueues its products: of those of what is there, or the others."""
        scales = product.scales
        for group in self.groups:
            for number, cell in enumerate(group.cells):
                if cell.there != there:
                    continue
                written = group.target if group.sums is None else group.sums.array()
                one = replace(
                    product, a=cell.a.array(), b=cell.b.array(), c=written if number else group.c,
                    beta=1 if number else product.beta, shape=written.shape, k=cell.terms,
                    scales=None if scales is None else scales.part(self.tile.matrices, group.rows, group.columns),
                )  # fmt: skip
                place = Placement(self.backend, awaited=True, queue=self.backend.as_queue(None))
                enqueue(place, one, written, choice)
                if group.sums is not None and cell is group.cells[-1]:
                    copy_strided(written, group.target)


def _part(tile: Tile, arrivals: _Arrivals, product: Product, out: Array, *, gathers: bool) -> _Part | None:
    """A part of the result by what a device has of it; None where C or the result lie elsewhere.

    Args:
        gathers: whether no sum may be added up in the product's type.
    """
    backend = arrivals.backend
    terms = _cut(Span(0, product.k), [_borders(x, _terms(name, op)) for name, x, op in _operands(product)])
    rows = _cut(tile.rows, [_borders(cast("Array", product.a), line_axis("a", product.op_a))])
    columns = _cut(tile.columns, [_borders(cast("Array", product.b), line_axis("b", product.op_b))])
    if gathers:
        terms = [Span(0, product.k)]
    groups: list[_Group] = []
    for down in rows:
        for across in columns:
            one = replace(tile, rows=down, columns=across)
            target, c = _own(out, one, backend), None if product.c is None else _own(product.c, one, backend)
            if target is None or (product.c is not None and c is None):
                return None
            cells = []
            for each in terms:
                a, b = (arrivals.operand(x, _block(x, name, op, one, each)) for name, x, op in _operands(product))
                if a is None or b is None:
                    return None
                cells.append(_Cell(a, b, each.size))
            apart = len(cells) > 1 and written_in_place(target, product.types.output) is None
            sums = arrivals.sums(target.shape, product.types.output) if apart else None
            groups.append(_Group(sorted(cells, key=lambda cell: not cell.there), down, across, target, c, sums))
    return _Part(tile, arrivals, groups)


class _Arrivals:
    """What comes to a device of what others have, each block once; and sums that are added up there beside a result."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self._known: dict[Any, _Arrival | _Gathered] = {}
        self._sums: list[_Space] = []
        self._stage = 0

    def sums(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> _Space:
        """Memory for sums."""
        self._sums.append(_Space(DeviceArray.dense(self.backend, _NOWHERE, shape, dtype)))
        return self._sums[-1]

    def operand(self, x: Array, block: Block) -> _Operand | None:
        """A block of an operand on the device.

        Returns:
            None where it lies in shards along a dimension of the batch.
        """
        found = _shards(x, block)
        if len(found) == 1:
            own, _ = found[0]
            if own.backend is self.backend:
                return _Operand(lambda: own, own)
            arrival = self._kept((id(x), block), lambda: _Arrival(self.backend, own))
            return _Operand(arrival.array, arrival.space.like, frozenset([own.backend]))
        axis = cast("ShardedArray", x).axis
        if axis < x.ndim - 2:
            return None

        def gathered() -> _Gathered:
            sizes = tuple(span.size for span in block)
            pieces = [(own, inner[axis].start - block[axis].start) for own, inner in found]
            return _Gathered(self.backend, sizes, found[0][0].dtype, pieces, axis)

        whole = self._kept((id(x), block), gathered)
        return _Operand(whole.array, whole.space.like, frozenset(own.backend for own, _ in found))

    def _kept(self, key: Any, made: Callable[[], _Arrival | _Gathered]) -> _Arrival | _Gathered:
        if key not in self._known:
            self._known[key] = made()
        return self._known[key]

    def takes(self) -> Iterator[tuple[Backend, int]]:
        """Bytes of each memory that it takes, and of which device."""
        for each in (*self._known.values(), *self._sums):
            yield from each.takes()

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
        self.backend.wait([self.backend.mark(queue=_queue(self.backend, "comes"))])
        self.backend.synchronize()

    def release(self) -> None:
        """Gives the memory back to the pool, where the next product finds it."""
        for each in (*self._known.values(), *self._sums):
            each.release()


class _Space:
    """Memory for an array on a device, from when it is first needed on.

    Attributes:
        like: how it lies there.
    """

    def __init__(self, like: DeviceArray) -> None:
        self.like = like
        self._memory: Memory | None = None

    def takes(self) -> Iterator[tuple[Backend, int]]:
        """As `_Arrivals.takes`."""
        yield self.like.backend, self.like.nbytes

    def array(self) -> DeviceArray:
        """It, on the device."""
        if self._memory is None:
            self._memory = self.like.backend.allocate(self.like.nbytes)
        return replace(self.like, memory=self._memory)

    def place(self, axis: int, start: int, size: int) -> DeviceArray:
        """Some lines of it along an axis."""
        whole = self.array()
        shape = (*whole.shape[:axis], size, *whole.shape[axis + 1 :])
        return replace(whole, shape=shape, offset=start * whole.strides[axis])

    def release(self) -> None:
        """Gives the memory back."""
        if self._memory is not None:
            self._memory.release()
            self._memory = None


_NOWHERE = Memory(None, 0, 0)
"""Of what is planned, and lies nowhere yet."""


class _Arrival:
    """A block of another device's, which arrives as it lies there where its elements lie one after another, else packed.

    Attributes:
        into: makes where it arrives; None for memory of its own.
        space: that memory.
    """

    def __init__(self, backend: Backend, source: DeviceArray, into: Callable[[], DeviceArray] | None = None) -> None:
        self.backend, self.source, self.into = backend, source, into
        dense = DeviceArray.dense(source.backend, _NOWHERE, source.shape, source.dtype)
        packs = not (is_dense(source) or (into is None and is_dense(source.mT)))
        self._packed = _Space(dense) if packs else None
        strides = dense.strides if packs else source.strides
        self.space = _Space(DeviceArray(backend, _NOWHERE, source.shape, source.dtype, strides))
        self._directly = False

    def takes(self) -> Iterator[tuple[Backend, int]]:
        """As `_Arrivals.takes`."""
        if self.into is None:
            yield from self.space.takes()
        if self._packed is not None:
            yield from self._packed.takes()

    def array(self) -> DeviceArray:
        """It, on the device."""
        return self.space.array() if self.into is None else self.into()

    def begin(self) -> None:
        """Has what travels come after what was done to it so far, and enqueues the copy where there is a direct one."""
        source, sender, target = self.source, self.source.backend, self.array()
        self._leaving, self._coming = _queue(sender, "leaves"), _queue(self.backend, "comes")
        if self._packed is not None:
            packed = self._packed.array()
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
        self.space.release()
        if self._packed is not None:
            self._packed.release()


class _Gathered:
    """A block that lies in shards, in one piece.

    Attributes:
        space: its memory.
    """

    def __init__(
        self, backend: Backend, shape: tuple[int, ...], dtype: np.dtype[Any], pieces: Sequence[tuple[DeviceArray, int]],
        axis: int,
    ) -> None:  # fmt: skip
        """Of pieces along an axis, each with where it begins."""
        self.space = _Space(DeviceArray.dense(backend, _NOWHERE, shape, dtype))
        self._axis = axis
        self._own: list[tuple[DeviceArray, int]] = []
        self._others: list[tuple[_Arrival, int]] = []
        for piece, start in pieces:
            if piece.backend is backend:
                self._own.append((piece, start))
                continue
            place = partial(self.space.place, axis, start, piece.shape[axis])
            in_place = all(size == 1 for size in shape[:axis])  # else its rows lie apart
            self._others.append((_Arrival(backend, piece, place if in_place else None), start))

    def takes(self) -> Iterator[tuple[Backend, int]]:
        """As `_Arrivals.takes`."""
        yield from self.space.takes()
        for each, _ in self._others:
            yield from each.takes()

    def array(self) -> DeviceArray:
        """It, on the device."""
        return self.space.array()

    def begin(self) -> None:
        """As `_Arrival.begin`; and copies what lies on the device."""
        for each, _ in self._others:
            each.begin()
        for piece, start in self._own:
            place = self.space.place(self._axis, start, piece.shape[self._axis])
            # Beside what arrives, which is written elsewhere.
            copied(piece, replace(place, memory=on_queue(place.memory, None)))

    def end(self) -> None:
        """As `_Arrival.end`."""
        for each, start in self._others:
            each.end()
            if each.into is None:
                copied(each.array(), self.space.place(self._axis, start, each.source.shape[self._axis]))

    def release(self) -> None:
        """Gives the memory back."""
        for each, _ in self._others:
            each.release()
        self.space.release()


def copied(source: DeviceArray, target: DeviceArray) -> None:
    """Enqueues a copy between arrays of one device and type, on its own queue."""
    backend, size = source.backend, source.dtype.itemsize
    if is_dense(source) and is_dense(target):
        blocks = [backend.part(x.memory, x.offset * size) for x in (source, target)]
        if all(block is not None for block in blocks):
            backend.copy(cast("Memory", blocks[0]), cast("Memory", blocks[1]), source.nbytes)
            return
    copy_strided(source, target)


# How arrays lie


def _operands(product: Product) -> tuple[tuple[str, Any, Op], tuple[str, Any, Op]]:
    return ("a", product.a, product.op_a), ("b", product.b, product.op_b)


def _terms(name: str, op: Op) -> int:
    """Of an operand, the dimension that is summed over, counted from the last."""
    return -3 - line_axis(name, op)


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
    own = (lines, terms) if line_axis(name, op) == -2 else (terms, lines)
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


def _queue(backend: Backend, what: str) -> Any:
    """A queue beside the backend's own, for what leaves the device or comes to it; kept as long as it is open."""
    key = "queue of shards", what
    if key not in backend.kept:
        backend.kept[key] = backend.as_queue(backend.new_queue())
    return backend.kept[key]
