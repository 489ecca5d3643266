"""Products of arrays in shards, each part of the result by the device that has it: what is done, and in which order.

A device reads its own shards where they lie. What others have of the operands comes to it, each block in one copy, on a queue
of its own; products of what is there go first, then each as what it reads has come. Sums over several shards are added up in
the result (beta = 1), where its type holds them as they are, so that each sum is rounded once. Where the product's own type
does not, the shards are put together before they are multiplied; where only that of `out` does not, sums are added up beside
it. A device that has nothing to multiply by itself begins with a panel of what comes (`gemmport.multidevice.panels`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Any, TypeAlias, cast

from gemmport.api.plans import plan
from gemmport.api.product import Choice, Product, copied_bytes, problem_of_arrays, written_in_place
from gemmport.api.routine import (
    Beside,
    Laid,
    Multiplied,
    Order,
    Part,
    Routine,
    Sent,
    Slot,
    Stage,
    Step,
    Table,
    number_of,
    shards_of,
)  # fmt: skip
from gemmport.api.sharded import line_axis
from gemmport.api.spread import pieces
from gemmport.backends.array import DeviceArray, is_dense
from gemmport.backends.base import Backend
from gemmport.backends.objects import Memory
from gemmport.backends.segments import is_segmented
from gemmport.core.problem import GemmProblem, Op
from gemmport.execution.links import between
from gemmport.execution.sharded import ShardedArray
from gemmport.multidevice.homes import Home, Lines, are_even
from gemmport.multidevice.outlook import expected_seconds
from gemmport.multidevice.panels import panels
from gemmport.multidevice.tiles import Room, Span, Tile
from gemmport.planning.lookup import Configuration
from gemmport.planning.schedule import converts

log = logging.getLogger(__name__)

Array: TypeAlias = "DeviceArray | ShardedArray"
Block: TypeAlias = "tuple[Span, ...]"
"""A part of an array: of each dimension from where to where."""


def routine_at_home(
    homes: Sequence[Home], backends: Sequence[Backend], rooms: Mapping[Backend, Room], problem: GemmProblem, product: Product,
    out: Any, choice: Choice, configuration: Configuration,
) -> Routine | None:  # fmt: skip
    """What computes parts of a result where they lie.

    Args:
        homes: the parts of the result by their device's number.
        rooms: of each device, also of those that have arrays alone, for what is not among the arrays.
        out: where the result is written, on devices.
        configuration: with the devices' models.

    Returns:
        None where devices are unlike each other or have unlike parts, where an array is in the host's memory, or in several
        allocations, and where a device has no room for what comes to it, is packed to leave it, or is copied there.

    Raises:
        As `gemmport.api.plans.plan`.
    """
    if not homes or product.k == 0 or not are_even(homes, [one.device.identity for one in backends]):
        return None
    arrays = [x for x in (product.a, product.b, product.c, out) if x is not None]
    if not all(isinstance(x, DeviceArray | ShardedArray) for x in arrays) or any(map(is_segmented, pieces(arrays))):
        return None
    draft = _Draft(
        backends, rooms, product, cast("Array", out), replace(choice, precision=problem.precision), configuration
    )
    gathers = converts(problem, scaled=product.scales is not None)
    for number, backend in enumerate(backends):
        for home in homes:
            if home.owner == number and home.tile.size and not draft.add(backend, home.tile, gathers=gathers):
                return None
    if (lacking := draft.lacking()) is not None:
        short, nbytes = lacking
        log.info(
            "%s is dealt: %s has no room beside its arrays for %s bytes that come to it, are packed to leave it, or are copied",
            problem, short.device.label, f"{nbytes:,}",
        )  # fmt: skip
        return None
    return draft.routine()


@dataclass(frozen=True, eq=False)
class _Operand:
    """A block of an operand on the device that multiplies it.

    Attributes:
        array: over a stand-in.
        sent: what comes of other devices. packed: on these, of what is sent.
        beside: what lies on the device, and where it is laid beside what comes, or beside other shards there.
    """

    array: DeviceArray
    sent: Sequence[Sent] = ()
    packed: Sequence[Laid] = ()
    beside: Sequence[tuple[DeviceArray, DeviceArray]] = ()

    @property
    def is_made(self) -> bool:
        """Whether something is to be done before it is read."""
        return bool(self.sent or self.beside)


@dataclass(frozen=True)
class _Cell:
    """A product of some terms of op(A) and op(B)."""

    a: _Operand
    b: _Operand
    terms: int

    @property
    def made(self) -> list[_Operand]:
        """The operands for which something is to be done before."""
        return [x for x in (self.a, self.b) if x.is_made]

    @property
    def senders(self) -> list[Backend]:
        """The devices of which something comes."""
        return [sent.source.backend for x in self.made for sent in x.sent]


class _Visit:
    """What one device does: products of what lies there, and then stage by stage.

    Attributes:
        stages: what is on its way, or laid together, each stage with what other devices pack for it.
        work: of no stage, and of each, what is enqueued when it is there.
        senders: the devices of which something comes.
        known: blocks of operands on the device.
    """

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.stages: list[tuple[Stage, Sequence[Laid]]] = []
        self.work: list[list[Callable[[Table], object]]] = [[]]
        self.senders: set[Backend] = set()
        self.known: dict[Any, _Operand] = {}
        self._begun: set[Any] = set()

    def reach(self, cell: _Cell, order: Order) -> list[Callable[[Table], object]]:
        """The work of the stage with which all is there that a cell reads.

        Args:
            order: of the device.
        """
        if not cell.made:
            return self.work[0]
        new = [x for x in cell.made if x not in self._begun]
        if new:
            # At first the device's own queue has nothing else to do; then it multiplies.
            what: Beside | None = "comes" if self.stages else None
            laid = [Laid(*pair, what) for x in new for pair in x.beside]
            if what is not None:
                order.use(what, *(each.source for each in laid))
            stage = Stage(self.backend, [sent for x in new for sent in x.sent], laid)
            self.stages.append((stage, [each for x in new for each in x.packed]))
            self.work.append([])
            self._begun.update(new)
            self.senders.update(cell.senders)
        return self.work[-1]


class _Draft:
    """A routine in the making.

    Attributes:
        given, out: as of `Routine`. product: of arrays over stand-ins.
    """

    def __init__(
        self, backends: Sequence[Backend], rooms: Mapping[Backend, Room], product: Product, out: Array, choice: Choice,
        configuration: Configuration,
    ) -> None:  # fmt: skip
        self._backends, self._rooms, self._choice, self._configuration = backends, rooms, choice, configuration
        self._count = 0
        arrays = {"a": product.a, "b": product.b, "c": product.c, "out": out}
        stood: dict[str, Any] = {name: self._stood_in(cast("Array", x)) for name, x in arrays.items() if x is not None}
        self.given, self.out = [*stood], stood["out"]
        self.product = replace(product, a=stood["a"], b=stood["b"], c=stood.get("c"))
        self._operands: Sequence[tuple[str, Array, Op]] = (
            ("a", stood["a"], product.op_a), ("b", stood["b"], product.op_b)
        )  # fmt: skip
        self._visits = {backend: _Visit(backend) for backend in backends}
        self._tiles: list[tuple[Backend, Tile]] = []
        self._orders: dict[Backend, Order] = {}
        self._packed: dict[Any, tuple[DeviceArray, Laid]] = {}
        self._blocks: list[_Block] = []
        self._passing: dict[Backend, list[int]] = {}

    def routine(self) -> Routine:
        """It, when all parts are added."""
        parts = [Part(tile, backend, frozenset(self._visits[backend].senders)) for backend, tile in self._tiles]
        blocks = [(each.backend, each.nbytes) for each in self._blocks]
        return Routine(self._backends, self.given, self.out, blocks, [*self._steps()], parts)

    def _steps(self) -> Iterator[Step]:
        """What is done first of all devices, and then stage by stage: each comes while the one before is multiplied, and is
        enqueued after its products.
        """
        visits = [*self._visits.values()]
        packed: set[int] = set()

        def begun(number: int) -> Iterator[Step]:
            for visit, needs in zip(visits, all_needs, strict=True):
                if number < len(visit.stages):
                    stage, packs = visit.stages[number]
                    for laid in packs:
                        if id(laid) not in packed:
                            packed.add(id(laid))
                            yield Step(laid.source.backend, frozenset([laid.source.backend]), laid)
                    yield Step(visit.backend, needs, stage.begin)

        all_needs = [frozenset([visit.backend, *visit.senders]) for visit in visits]
        yield from (Step(backend, frozenset([backend]), order) for backend, order in self._orders.items())
        yield from begun(0)
        for number in range(max(len(visit.work) for visit in visits)):
            for visit, needs in zip(visits, all_needs, strict=True):
                if 0 < number <= len(visit.stages):
                    yield Step(visit.backend, needs, visit.stages[number - 1][0].end)
                if number < len(visit.work):
                    yield from (Step(visit.backend, needs, work) for work in visit.work[number])
            if number:
                yield from begun(number)

    def lacking(self) -> tuple[Backend, int] | None:
        """A device that has no room for what is taken beside the arrays, and bytes of that; None where all have."""
        sizes = {backend: [*found] for backend, found in self._passing.items()}
        for block in self._blocks:
            sizes.setdefault(block.backend, []).append(block.nbytes)
        for backend, found in sizes.items():
            room = self._rooms[backend]
            if sum(found) > room.memory or max(found, default=0) > room.allocation:
                return backend, sum(found)
        return None

    def add(self, backend: Backend, tile: Tile, *, gathers: bool) -> bool:
        """Adds a part of the result, and says whether it can be computed by a device with what that has of C and the result.

        Args:
            gathers: whether no sum may be added up in the product's type.
        """
        product, visit = self.product, self._visits[backend]
        terms, rows, columns = self._cuts(backend, tile, gathers=gathers)
        for down in rows:
            for across in columns:
                one = replace(tile, rows=down, columns=across)
                target, c = _own(self.out, one, backend), None if product.c is None else _own(product.c, one, backend)
                if target is None or (product.c is not None and c is None):
                    return False
                cells = []
                for each in terms:
                    a, b = (self._operand(visit, x, _block(x, name, op, one, each)) for name, x, op in self._operands)
                    if a is None or b is None:
                        return False
                    cells.append(_Cell(a, b, each.size))
                cells.sort(key=lambda cell: self._when(backend, cell))
                self._add_cells(visit, one, cells, target, c)
        self._tiles.append((backend, tile))
        return True

    def _add_cells(
        self, visit: _Visit, tile: Tile, cells: Sequence[_Cell], target: DeviceArray, c: DeviceArray | None
    ) -> None:
        """Adds products whose sum is a tile of the result, in order."""
        product, backend = self.product, visit.backend
        apart = len(cells) > 1 and written_in_place(target, product.types.output) is None
        written = (
            self._space(DeviceArray.dense(backend, _NOWHERE, target.shape, product.types.output)) if apart else target
        )
        scales = None if product.scales is None else product.scales.part(tile.matrices, tile.rows, tile.columns)
        for number, cell in enumerate(cells):
            one = replace(
                product, a=cell.a.array, b=cell.b.array, c=written if number else c, beta=1 if number else product.beta,
                shape=target.shape, k=cell.terms, scales=scales,
            )  # fmt: skip
            visit.reach(cell, self._order(backend)).append(Multiplied(backend, one, written, self._choice))
            copies = copied_bytes(cell.a.array, cell.b.array, cast("Any", one.c), written, product.types)
            self._passing[backend] = max(self._passing.get(backend, []), copies, key=sum)
        if apart:
            visit.reach(cells[-1], self._order(backend)).append(Laid(written, target))

    def _cuts(self, backend: Backend, tile: Tile, *, gathers: bool) -> tuple[list[Span], list[Span], list[Span]]:
        """Between which terms, rows and columns a part is computed by products of its own."""
        (_, a, op_a), (_, b, op_b) = self._operands
        whole = Span(0, self.product.k)
        terms = [whole] if gathers else _cut(whole, [_borders(x, _terms(name, op)) for name, x, op in self._operands])
        rows = _cut(tile.rows, [_borders(a, line_axis("a", op_a))])
        columns = _cut(tile.columns, [_borders(b, line_axis("b", op_b))])
        for each in terms:
            for down in rows:
                for across in columns:
                    one = replace(tile, rows=down, columns=across)
                    if not any(
                        self._away(backend, x, _block(x, name, op, one, each)) for name, x, op in self._operands
                    ):
                        return terms, rows, columns  # it has something to multiply at once
        if self._away(backend, b, _block(b, "b", op_b, tile, whole)):
            return terms, rows, self._panels(backend, tile, "columns") if len(columns) == 1 else columns
        return terms, self._panels(backend, tile, "rows") if len(rows) == 1 else rows, columns

    def _panels(self, backend: Backend, tile: Tile, along: Lines) -> list[Span]:
        """The columns, with the panels of B, or rows, with those of A, that are multiplied one after another."""
        name, x, op = self._operands[along == "columns"]
        lines: Span = getattr(tile, along)
        away = self._away(backend, x, _block(x, name, op, tile, Span(0, self.product.k)))
        seconds = sum(piece.nbytes / between(piece.backend, backend, self._configuration).rate for piece in away)
        choice, device = self._choice, backend.device

        def problem(size: int) -> GemmProblem:
            one = replace(tile, **{along: Span(0, size)})
            shape = (one.matrices.size, one.rows.size, one.columns.size)[-len(self.product.shape) :]
            return problem_of_arrays(replace(self.product, shape=shape), choice)

        found = plan(problem(lines.size), device, kernel=choice.kernel, params=choice.params, config=choice.config)
        sizes = panels(
            lines.size,
            seconds / max(lines.size, 1),
            lambda size: expected_seconds(problem(size), found, self._configuration),
            len(self._backends),
        )
        return [Span(*pair) for pair in pairwise([lines.start, *(lines.start + stop for stop in accumulate(sizes))])]

    def _away(self, backend: Backend, x: Array, block: Block) -> list[DeviceArray]:
        """What other devices have of a block."""
        return [piece for piece, _ in _shards(x, block) if piece.backend is not backend]

    def _when(self, backend: Backend, cell: _Cell) -> tuple[bool, int]:
        """Which cells go first: those of what lies on the device, then as they come."""
        return bool(cell.made), min([self._turn(backend, sender) for sender in cell.senders], default=0)

    def _turn(self, backend: Backend, sender: Backend) -> int:
        """When something comes of a device: all begin with another one."""
        order = [*self._backends, sender]
        return (order.index(sender) - order.index(backend)) % len(order)

    # Where blocks of operands are

    def _operand(self, visit: _Visit, x: Array, block: Block) -> _Operand | None:
        """A block on a device; None where it lies in shards along a dimension of the batch."""
        key, backend = (id(x), block), visit.backend
        if key not in visit.known:
            found = _shards(x, block)
            if len(found) == 1 and found[0][0].backend is backend:
                return _Operand(found[0][0])
            axis = x.axis if isinstance(x, ShardedArray) else 0
            if len(found) > 1 and axis < x.ndim - 2:
                return None
            if len(found) == 1:
                visit.known[key] = self._arrival(backend, found[0][0])
            else:
                visit.known[key] = self._gathered(backend, found, block, axis)
        return visit.known[key]

    def _arrival(self, backend: Backend, piece: DeviceArray) -> _Operand:
        """What one device has: it arrives as it lies there where its elements lie one after another, else packed."""
        source, packed = self._leaving(piece, turned=True)
        target = self._space(DeviceArray(backend, _NOWHERE, piece.shape, piece.dtype, source.strides))
        return _Operand(target, [self._sent(source, target)], packed)

    def _gathered(
        self, backend: Backend, found: Sequence[tuple[DeviceArray, Block]], block: Block, axis: int
    ) -> _Operand:
        """What several devices have, in one piece."""
        shape, dtype = tuple(span.size for span in block), found[0][0].dtype
        whole = self._space(DeviceArray.dense(backend, _NOWHERE, shape, dtype))
        in_place = all(size == 1 for size in shape[:axis])  # else the rows of what comes lie apart
        sent: list[Sent] = []
        packed: list[Laid] = []
        beside: list[tuple[DeviceArray, DeviceArray]] = []
        for piece, inner in sorted(found, key=lambda each: self._turn(backend, each[0].backend)):
            place = whole[tuple(slice(i.start - o.start, i.stop - o.start) for i, o in zip(inner, block, strict=True))]
            if piece.backend is backend:
                beside.append((piece, place))
                continue
            source, packs = self._leaving(piece)
            packed += packs
            if in_place:
                sent.append(self._sent(source, place))
            else:
                arrived = self._space(DeviceArray.dense(backend, _NOWHERE, piece.shape, dtype))
                sent.append(self._sent(source, arrived, Laid(arrived, place, "comes")))
        return _Operand(whole, sent, packed, beside)

    def _sent(self, source: DeviceArray, target: DeviceArray, then: Laid | None = None) -> Sent:
        self._order(source.backend).use("leaves")
        self._order(target.backend).use("comes")
        return Sent(source, target, then)

    def _leaving(self, piece: DeviceArray, *, turned: bool = False) -> tuple[DeviceArray, list[Laid]]:
        """A piece as it leaves: packed, once for all devices, where its elements do not lie one after another.

        Args:
            turned: whether they may do so in the order of its columns.
        """
        self._order(piece.backend).use("leaves", piece)
        if is_dense(piece) or (turned and is_dense(piece.mT)):
            return piece, []
        key = number_of(piece), piece.shape, piece.strides, piece.offset
        if key not in self._packed:
            target = self._space(DeviceArray.dense(piece.backend, _NOWHERE, piece.shape, piece.dtype))
            self._packed[key] = target, Laid(piece, target, "leaves")
        source, laid = self._packed[key]
        return source, [laid]

    def _order(self, backend: Backend) -> Order:
        return self._orders.setdefault(backend, Order(backend))

    def _space(self, like: DeviceArray) -> DeviceArray:
        """An array that lies as another in memory that each run takes, and gives back: in one block of a device, or more where
        one allocation has no room.
        """
        backend = like.backend
        block = next((each for each in reversed(self._blocks) if each.backend is backend), None)
        first = 0 if block is None else -(-block.nbytes // _ALIGNED) * _ALIGNED
        if block is None or first + like.nbytes > self._rooms[backend].allocation:
            block, first = _Block(backend, self._next_slot(_NOWHERE)), 0
            self._blocks.append(block)
        block.nbytes = first + like.nbytes
        return replace(like, memory=block.slot, offset=first // like.itemsize)

    def _stood_in(self, x: Array) -> Array:
        shards = [replace(shard, memory=self._next_slot(shard.memory)) for shard in shards_of(x)]
        return ShardedArray(shards, x.axis) if isinstance(x, ShardedArray) else shards[0]

    def _next_slot(self, memory: Memory) -> Slot:
        """The next stand-in. Those of what is given come first."""
        self._count += 1
        return Slot.like(memory, self._count - 1)


@dataclass
class _Block:
    """Memory that a run takes of a device, of so many bytes."""

    backend: Backend
    slot: Slot
    nbytes: int = 0


_ALIGNED = 512
"""Bytes at multiples of which arrays begin in a block: no less than where memory of its own begins."""

_NOWHERE = Memory(None, 0, 0)
"""Of what is planned, and lies nowhere yet."""


# How arrays lie


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
