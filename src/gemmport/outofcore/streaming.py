"""A product in tiles, carried out: panels are read and sent by threads of their own while the device computes, and results are
taken away while it computes the next.

Three kinds of threads work on queues of their own: one for each of A and B fills slots on the device, the caller's enqueues
products of what is there, one takes finished strips of D away. A slot is filled again after the event of the product that read
it last; a strip is computed anew after it was taken away. Copies are awaited by who makes them.
"""

from __future__ import annotations

import hashlib
import queue as queues
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import numpy as np

from gemmport.backends.array import DeviceArray
from gemmport.backends.base import Backend
from gemmport.backends.objects import Event, Memory
from gemmport.core.errors import ArrayError, GemmportError, ParameterError
from gemmport.core.problem import GemmProblem, Layout, Operand, transposes
from gemmport.execution.copies import copy_strided
from gemmport.outofcore.elsewhere import Elsewhere, OnDevice, await_queue, on_queue
from gemmport.outofcore.operands import HostArray, Matrix, Sliced, Span
from gemmport.outofcore.progress import Progress, Tell
from gemmport.planning.schedule import DOUBLE, Residency, Schedule, Tile

Multiply: TypeAlias = Callable[[GemmProblem, "dict[Operand, Memory]", Any], object]
"""Enqueues a product of memory on a device, on a queue."""

STAGING = 2**26
"""Bytes of the host's memory through which each operand, and D, pass, where no bound is given."""

_MOST_EVENTS = 64
"""Of products that were enqueued last; who waits for an older one waits for the oldest of these."""

Panel: TypeAlias = "tuple[int, int, int]"


class Record(Protocol):
    """What keeps the state of a product, so that it can go on after its process was killed."""

    def is_finished(self, tile: Tile) -> bool:
        """Whether a tile need not be computed."""

    def knows(self, operand: str, panel: Panel) -> bool:
        """Whether the digest of a panel is on record."""

    def read(self, operand: str, panel: Panel, digest: str) -> None:
        """Takes note of a panel that was read for the first time, before a product of it is finished."""

    def finish(self, tile: Tile, digest: str) -> None:
        """Takes note of a tile that was written."""


@dataclass(frozen=True)
class Operands:
    """Of a streamed product, on the host; C is None where it is not read. Result and C have the shape of D."""

    a: Matrix
    b: Matrix
    c: Matrix | None
    out: Matrix

    def of(self, name: str) -> Matrix:
        """A or B by its name."""
        return self.a if name == "a" else self.b


@dataclass
class _Lane:
    """A queue on which copies are made, and the memory of the host through which they pass."""

    backend: Backend
    queue: Any
    staging: HostArray

    def chunks(self, rows: int, row_bytes: int, matrix: Matrix) -> Iterator[Span]:
        """Rows that pass at a time."""
        # What is read in slices is another array each time, beside the staging memory.
        room = self.staging.nbytes // (2 if isinstance(matrix.array, Sliced) else 1)
        at_once, multiple = max(room // max(row_bytes, 1), 1), matrix.multiple[0]
        at_once = max(at_once // multiple * multiple, min(at_once, multiple))
        for start in range(0, rows, at_once):
            yield start, min(start + at_once, rows)

    def view(self, rows: int, columns: int, dtype: np.dtype[Any]) -> HostArray:
        """Staging memory as a matrix."""
        return self.staging[: rows * columns * dtype.itemsize].view(dtype).reshape(rows, columns)

    def memory(self, block: Memory) -> Memory:
        """A block as this lane copies it: in the order of its own queue, and after the events that it is told."""
        return on_queue(block, self.queue)


@dataclass(frozen=True)
class _Strip:
    """Rows of a tile that leave the device, when an event has come."""

    tile: Tile
    rows: Span
    memory: Memory
    offset: int
    event: Event
    is_last: bool


@dataclass
class _State:
    """What the threads tell each other, under one condition.

    Attributes:
        brought: of A and B, up to which step their panels are on the device.
        enqueued: the last step whose products are enqueued. events: after the products of steps.
        taken: strips that have left the device.
        over: threads that have ended.
        failure: of a thread; all others end then.
    """

    turn: threading.Condition = field(default_factory=threading.Condition)
    brought: dict[str, int] = field(default_factory=lambda: {"a": -1, "b": -1})
    enqueued: int = -1
    events: OrderedDict[int, Event] = field(default_factory=OrderedDict)
    taken: int = 0
    over: int = 0
    moved: int = 0
    tiles: int = 0
    failure: BaseException | None = None
    ended: bool = False

    def wait(self, condition: Callable[[], bool]) -> None:
        """Waits until a condition holds.

        Raises:
            _EndedError: another thread failed, or the caller was interrupted.
        """
        with self.turn:
            self.turn.wait_for(lambda: self.ended or condition())
            if self.ended:
                raise _EndedError

    def tell(self, change: Callable[[], object]) -> None:
        """Changes something, and wakes the others."""
        with self.turn:
            change()
            self.turn.notify_all()

    def end(self, failure: BaseException | None) -> None:
        """Ends all threads."""
        with self.turn:
            self.failure, self.ended = self.failure or failure, True
            self.turn.notify_all()

    def after(self, step: int) -> list[Event]:
        """An event that comes when the products of a step are done."""
        with self.turn:
            if step in self.events:
                return [self.events[step]]
            return [next(iter(self.events.values()))] if self.events else []


class _EndedError(Exception):
    """Another thread failed."""


@dataclass
class Kept:
    """What stays from one product to the next, of those that pass through a device one after another: panels of an operand on
    the device, and the host's memory through which copies pass.

    Attributes:
        of: what tells the panels from others: products that name the same find them.
    """

    of: Hashable = None
    slots: list[Memory] = field(default_factory=list)
    held: Residency | None = None
    staging: dict[str, HostArray] = field(default_factory=dict)

    def forget(self) -> None:
        """Gives the panels' memory back."""
        self.of, self.held = None, None
        self.slots.clear()


class Streamed:
    """One product that passes through a device."""

    def __init__(
        self, backend: Backend, queue: Any, schedule: Schedule, operands: Operands, multiply: Multiply, *,
        host_memory: int | None = None, tell: Tell | None = None, record: Record | None = None, lend: bool = False,
        stays: Operand | None = None, kept: Kept | None = None,
    ) -> None:  # fmt: skip
        """Of a product of the schedule's problem, whose ops are those of the operands.

        Args:
            queue: of `Backend.as_queue`, on which it is computed.
            host_memory: bytes of the host's memory that copies pass through.
            lend: whether panels of A and B are read where they lie, where the device shares the host's memory. What lies on the
                device is read there.
            stays: A or B, of which all panels are on the device at a time; with `kept` they stay there after the product.

        Raises:
            ParameterError: `host_memory` has no room for a row of a panel or tile.
        """
        self.backend, self.queue, self.schedule, self.operands = backend, queue, schedule, operands
        self.multiply, self.told, self.record = multiply, tell, record
        self.state = _State()
        self.tiles = [tile for tile in schedule.tiles() if record is None or not record.is_finished(tile)]
        self.state.tiles = schedule.count - len(self.tiles)
        self._telling = threading.Lock()
        self._c_digest = hashlib.blake2b(digest_size=16)
        self.kept = Kept() if kept is None else kept
        self._held_before, self._held_after = self.kept.held, self.kept.held
        self.lent = {
            name: (lend or isinstance(operands.of(name).array, OnDevice))
            and record is None
            and self._is_lent(operands.of(name), name)
            for name in ("a", "b")
        }
        self.stays = None if stays is None or self.lent[stays] else stays
        self.leaving: queues.SimpleQueue[_Strip | None] = queues.SimpleQueue()
        names = ("a", "b", "d", *(("c",) if operands.c is not None else ()))
        self.staging = self._staging(names, host_memory)

    def _is_lent(self, matrix: Matrix, name: str) -> bool:
        """Whether panels of an operand are read where they lie: each is within one allocation."""
        array, dtype = matrix.array, self.schedule.problem.dtype.numpy
        tile = next(iter(self.tiles), None)
        if isinstance(array, OnDevice):
            return array.is_local and array.dtype == dtype and array.is_readable
        if tile is None or isinstance(array, Sliced | Elsewhere) or array.dtype != dtype or not array.dtype.isnative:
            return False
        down, across = array.strides[-2:]
        rows, columns = stored_block(matrix, name, tile, self.schedule.panel(0))
        if across != dtype.itemsize or down % dtype.itemsize or down < array.shape[-1] * dtype.itemsize:
            return False
        if (rows[1] - rows[0]) * down > self.backend.device.max_allocation:
            return False
        return self.backend.borrow(matrix.block(0, rows, columns)) is not None

    def _staging(self, names: tuple[str, ...], host_memory: int | None) -> dict[str, int]:
        schedule, problem = self.schedule, self.schedule.problem
        rows = {"d": schedule.columns * problem.output.itemsize, "c": schedule.columns * problem.output.itemsize}
        whole = dict.fromkeys(("c", "d"), schedule.strip_rows * rows["d"])
        for name in ("a", "b"):
            along, across = schedule.depth, schedule.rows if name == "a" else schedule.columns
            turned = transposes(self.operands.of(name).op) == (name == "a")
            rows[name] = (across if turned else along) * problem.dtype.itemsize
            whole[name] = along * across * problem.dtype.itemsize
        matrices = {"a": self.operands.a, "b": self.operands.b, "c": self.operands.c, "d": self.operands.out}
        doubled = {name: 2 if (m := matrices[name]) and isinstance(m.array, Sliced) else 1 for name in names}
        share = STAGING if host_memory is None else host_memory // sum(doubled.values())
        least = max(rows[name] for name in names)
        if host_memory is not None and share < least:
            raise ParameterError(
                f"host_memory must be at least {least * sum(doubled.values()):,} bytes, for rows of {least:,} bytes of each "
                f"operand; got {host_memory:,}: allow more, or less device_memory, for smaller tiles"
            )
        return {name: max(min(share, whole[name]), rows[name], 1) * doubled[name] for name in names}

    def run(self) -> None:
        """Computes all tiles, and waits for them.

        Raises:
            DeviceMemoryError: the device has no room. Others as the operands, the backend and the products.
        """
        if not self.tiles:
            self._tell()
            return
        self.kept.held = None  # where this run fails, the slots hold no whole panels
        with self._memory() as lanes:
            works = [
                (self._bring_all, "a", lanes["a"]),
                (self._bring_all, "b", lanes["b"]),
                (self._take_all, lanes["d"]),
            ]
            begun: list[threading.Thread] = []
            is_done = False
            try:
                for work in works:
                    thread = threading.Thread(target=self._guarded, args=work, daemon=True)
                    thread.start()
                    begun.append(thread)
                self._compute(lanes.get("c"))
                self.leaving.put(None)
                # Not by `join`: a thread passes for ended where that is interrupted (Python 3.12 and before).
                self.state.wait(lambda: self.state.over == len(works))
                is_done = True
            except _EndedError:
                pass
            finally:
                self.state.end(None)
                self.leaving.put(None)
                for thread in begun:
                    thread.join()
                if not is_done:
                    self._settle()
        if self.state.failure is not None:
            raise self.state.failure
        self.kept.held = self._held_after

    @contextmanager
    def _memory(self) -> Iterator[Mapping[str, _Lane]]:
        """What it takes of the device and of the host."""
        backend, schedule = self.backend, self.schedule
        lanes = {name: _Lane(backend, queue, self._host_buffer(name))
                 for name, queue in zip(self.staging, _queues(backend, len(self.staging)), strict=True)}  # fmt: skip
        width, size = schedule.columns, schedule.resident.itemsize
        with ExitStack() as stack:

            def allocate(nbytes: int) -> Memory:
                return stack.enter_context(backend.allocate(nbytes))

            sizes = {name: 0 if self.lent[name] else schedule.panel_bytes(name) for name in ("a", "b")}
            slots = {
                name: [allocate(size) for _ in range(schedule.capacity(name))]
                for name, size in sizes.items()
                if name != self.stays
            }
            if self.stays is not None:
                slots[self.stays] = self._kept_slots(sizes[self.stays], schedule.capacity(self.stays))
            parts = [allocate(schedule.part_rows * width * size) for _ in range(schedule.parts)]
            strips = [allocate(schedule.strip_bytes // DOUBLE) for _ in range(DOUBLE if schedule.converts else 0)]
            owned = [*slots["a"], *slots["b"], *parts, *strips]
            # What was done to it before is done; and when it is given back, what is done to it here.
            for lane in lanes.values():
                with backend.ordered(lane.queue, reads=owned):
                    pass
            with backend.ordered(self.queue, writes=owned):
                pass
            for name in ("a", "b"):
                array = self.operands.of(name).array
                if self.lent[name] and isinstance(array, OnDevice):
                    self.backend.wait([backend.mark(queue=array.queue)], queue=self.queue)
            self._slots = {name: [on_queue(block, self.queue) for block in each] for name, each in slots.items()}
            self._starts = {name: [0] * len(each) for name, each in slots.items()}
            self._parts = [on_queue(block, self.queue) for block in parts]
            self._strips = [on_queue(block, self.queue) for block in strips]
            self._free_at = [0] * len(strips)  # how many strips have left when each may be written again
            self._read_at: list[list[Event]] = [[] for _ in strips]
            yield lanes

    def _host_buffer(self, name: str) -> HostArray:
        """Memory of the host through which an operand or D passes; of the product before, where it is enough."""
        known, size = self.kept.staging.get(name), self.staging[name]
        if known is None or known.nbytes < size:
            known = self.kept.staging[name] = self.backend.host_buffer(size)
        return known[:size]

    def _kept_slots(self, size: int, count: int) -> list[Memory]:
        """The memory of panels that stay."""
        while len(self.kept.slots) < count:
            self.kept.slots.append(self.backend.allocate(size))
        return self.kept.slots

    def _settle(self) -> None:
        """Waits for products that nobody took: they may read panels where they lie, which the caller may drop next."""
        for name in ("a", "b"):
            memory = self._slots[name][0]
            with suppress(GemmportError):  # what failed first is raised
                if isinstance(self.operands.of(name).array, OnDevice):  # no more of it is asked for than a byte
                    await_queue(memory, self.backend, self.queue)
                elif self.lent[name]:
                    self.backend.give_back(memory, queue=self.queue)

    def _guarded(self, work: Callable[..., None], *arguments: Any) -> None:
        try:
            work(*arguments)
        except _EndedError:
            pass
        except BaseException as error:  # noqa: BLE001 - the caller raises it
            self.state.end(error)
        finally:
            self.state.tell(lambda: setattr(self.state, "over", self.state.over + 1))

    # A and B

    def _bring_all(self, name: str, lane: _Lane) -> None:
        """Brings the panels of an operand, in the order in which they are used."""
        state = self.state
        for step, tile, panel, slot, last in self._uses(name):
            if last is not None:
                if last >= 0:
                    state.wait(lambda last=last: state.enqueued >= last)  # type: ignore[misc]
                if self.lent[name]:
                    self._lend(name, tile, panel, slot)
                else:
                    self.backend.wait(state.after(last) if last >= 0 else (), queue=lane.queue)
                    self._bring(name, lane, tile, panel, self._slots[name][slot])
            state.tell(lambda step=step: state.brought.__setitem__(name, step))  # type: ignore[misc]

    def _uses(self, name: str) -> Iterator[tuple[int, Tile, int, int, int | None]]:
        """Every step's panel of an operand: the step, its tile, its number, its slot, and what `Residency.use` tells."""
        schedule, step, batch = self.schedule, 0, -1
        found = self._held_before if name == self.stays else None
        held = Residency(schedule.capacity(name)) if found is None else found.again()
        for tile in self.tiles:
            if batch not in (-1, tile.batch) and not (schedule.is_shared(name) and schedule.keeps_all(name)):
                held.clear()
            batch = tile.batch
            for panel in schedule.order(tile):
                yield step, tile, panel, *held.use(schedule.key(name, tile, panel), step)
                step += 1
        if name == self.stays:
            self._held_after = held

    def _lend(self, name: str, tile: Tile, panel: int, slot: int) -> None:
        """Has a slot be the panel itself. What was in it is the caller's, and stays until the product is done."""
        matrix = self.operands.of(name)
        rows, columns = stored_block(matrix, name, tile, self.schedule.panel(panel))
        if isinstance(matrix.array, OnDevice):
            block_there = matrix.array.array[matrix.key(tile.batch, rows, columns)]
            self._slots[name][slot] = on_queue(block_there.memory, self.queue)
            self._starts[name][slot] = block_there.offset
            return
        block = matrix.block(tile.batch, rows, columns)
        memory = self.backend.borrow(block)
        if memory is None:
            raise ArrayError(f"{name} cannot be read where it lies, as its first panel could: copy it first")
        memory.access.home = memory.access.writer = self.queue
        self._slots[name][slot] = memory
        self._count(block.nbytes)

    def _layout(self, name: str, slot: int, rows: int, ld: int) -> Layout:
        """How a panel lies in its slot, from a row of op(A) or a column of op(B) on.

        Args:
            ld: where it is dense.
        """
        memory, matrix = self._slots[name][slot], self.operands.of(name)
        if self.lent[name] and isinstance(matrix.array, np.ndarray):
            ld = matrix.array.strides[-2] // matrix.array.itemsize
        elif self.lent[name] and isinstance(matrix.array, OnDevice) and matrix.array.shape[-2] > 1:
            ld = matrix.array.array.strides[-2]
        across = transposes(matrix.op) == (name == "a")
        offset = self._starts[name][slot] + rows * (1 if across else ld)
        return Layout(ld=max(ld, 1), offset=offset, base_alignment=memory.alignment)

    def _bring(self, name: str, lane: _Lane, tile: Tile, panel: int, slot: Memory) -> None:
        matrix, dtype = self.operands.of(name), self.schedule.problem.dtype.numpy
        key = self.schedule.key(name, tile, panel)
        rows, columns = stored_block(matrix, name, tile, self.schedule.panel(panel))
        digest = None if self.record is None or self.record.knows(name, key) else hashlib.blake2b(digest_size=16)
        width, memory = columns[1] - columns[0], lane.memory(slot)
        if isinstance(matrix.array, Elsewhere):
            shape = rows[1] - rows[0], width
            self._read(matrix, key[0], rows, columns, DeviceArray.dense(self.backend, memory, shape, dtype), lane)
            return
        for first, last in lane.chunks(rows[1] - rows[0], width * dtype.itemsize, matrix) if width else ():
            view = lane.view(last - first, width, dtype)
            with np.errstate(all="ignore"):
                block = matrix.block(key[0], (rows[0] + first, rows[0] + last), columns)
                np.copyto(view, block, casting="unsafe")
            if digest is not None:
                digest.update(_content(view))
            self.backend.upload(memory, view, offset=first * width * dtype.itemsize, queue=lane.queue)
            self._count(view.nbytes)
        if digest is not None and self.record is not None:
            self.record.read(name, key, digest.hexdigest())

    def _read(
        self, matrix: Matrix, batch: int, rows: Span, columns: Span, target: DeviceArray, lane: _Lane
    ) -> None:  # fmt: skip
        """Brings a block of what lies on a device."""
        assert isinstance(matrix.array, Elsewhere)
        for nbytes in matrix.array.read(matrix.key(batch, rows, columns), target, lane.staging, lane.queue):
            self._count(nbytes)

    # Products

    def _compute(self, c_lane: _Lane | None) -> None:
        """Enqueues the products of all tiles."""
        schedule, state = self.schedule, self.state
        uses = zip(self._uses("a"), self._uses("b"), strict=True)
        left, width_before = 0, 0  # strips that left, or will; and the width of the tile before
        where: dict[tuple[int, int], int] = {}  # of each strip, how many have left when it has
        for tile in self.tiles:
            parts, width = schedule.strips_of(tile), tile.columns[1] - tile.columns[0]
            count = schedule.panels
            for number in range(count):
                (step, _, panel, a_slot, _), (_, _, _, b_slot, _) = next(uses)
                state.wait(lambda step=step: min(state.brought.values()) >= step)  # type: ignore[misc]
                begins, ends = number == 0, number == count - 1
                for part, (top, strips) in enumerate(parts):
                    pieces = strips if begins or ends else [(top, strips[-1][1])]
                    for index, rows in enumerate(pieces):
                        is_last = part == len(parts) - 1 and index == len(pieces) - 1
                        if begins:
                            needed = (
                                left if width != width_before and not schedule.converts else where.get((part, index), 0)
                            )
                            state.wait(lambda needed=needed: state.taken >= needed)  # type: ignore[misc]
                            if c_lane is not None:
                                self._bring_c(c_lane, tile, part, top, rows)
                                if is_last and self.record is not None:
                                    self.record.read("c", tile.place, self._c_digest.hexdigest())
                                    self._c_digest = hashlib.blake2b(digest_size=16)
                        self._enqueue(tile, panel, rows, part, top, a_slot, b_slot, begins=begins)
                        if ends:
                            left += 1
                            self._leave(tile, part, top, rows, left, is_last=is_last)
                            where[part, index] = 0 if schedule.converts else left
                event = self.backend.mark(queue=self.queue)
                state.tell(lambda step=step, event=event: self._enqueued(step, event))  # type: ignore[misc]
            width_before = width

    def _enqueued(self, step: int, event: Event) -> None:
        state = self.state
        state.enqueued = step
        state.events[step] = event
        while len(state.events) > _MOST_EVENTS:
            state.events.popitem(last=False)

    def _enqueue(
        self, tile: Tile, panel: int, rows: Span, part: int, top: int, a_slot: int, b_slot: int, *, begins: bool
    ) -> None:
        """Enqueues the product of some rows of a panel of A with a panel of B, added to a part of a tile."""
        schedule, problem = self.schedule, self.schedule.problem
        first, last = schedule.panel(panel)
        height, width, terms = tile.rows[1] - tile.rows[0], tile.columns[1] - tile.columns[0], last - first
        turned_a, turned_b = transposes(problem.trans_a), transposes(problem.trans_b)
        d = Layout(ld=max(width, 1), offset=(rows[0] - top) * width)
        product = schedule.product(
            rows[1] - rows[0], width, terms, beta=(problem.beta if begins else 1),
            a=self._layout("a", a_slot, rows[0], height if turned_a else terms),
            b=self._layout("b", b_slot, 0, terms if turned_b else width),
            c=d, d=d,
        )  # fmt: skip
        tile_memory = self._parts[part]
        memory: dict[Operand, Memory] = {
            "a": self._slots["a"][a_slot], "b": self._slots["b"][b_slot], "c": tile_memory, "d": tile_memory,
        }  # fmt: skip
        self.multiply(product, memory, self.queue)

    # C and D

    def _bring_c(self, lane: _Lane, tile: Tile, part: int, top: int, rows: Span) -> None:
        """Brings rows of C to where D is computed."""
        schedule, matrix = self.schedule, self.operands.c
        assert matrix is not None
        dtype, (left, right) = schedule.problem.output.numpy, tile.columns
        width = right - left
        target, offset, place = self._parts[part], (rows[0] - top) * width * dtype.itemsize, 0
        if schedule.converts:
            place = self._next_strip()
            target, offset = self._strips[place], 0
            self.backend.wait(self._read_at[place], queue=lane.queue)
        memory, batch, start = lane.memory(target), tile.batch, tile.rows[0] + rows[0]
        if isinstance(matrix.array, Elsewhere):
            there = _rows_of(self.backend, memory, rows[1] - rows[0], width, dtype, offset)
            self._read(matrix, batch, (start, start + rows[1] - rows[0]), tile.columns, there, lane)
        else:
            self._read_c(lane, matrix, batch, (start, start + rows[1] - rows[0]), tile.columns, memory, offset)
        if schedule.converts:
            self._convert(self._strip_array(place, rows, width), self._part_array(part, top, rows, width))
            self._read_at[place] = [self.backend.mark(queue=self.queue)]

    def _read_c(
        self, lane: _Lane, matrix: Matrix, batch: int, rows: Span, columns: Span, memory: Memory, offset: int
    ) -> None:
        """Brings rows of C from the host."""
        dtype, width = self.schedule.problem.output.numpy, columns[1] - columns[0]
        for first, last in lane.chunks(rows[1] - rows[0], width * dtype.itemsize, matrix):
            view = lane.view(last - first, width, dtype)
            with np.errstate(all="ignore"):
                np.copyto(view, matrix.block(batch, (rows[0] + first, rows[0] + last), columns), casting="unsafe")
            self.backend.upload(memory, view, offset=offset + first * width * dtype.itemsize, queue=lane.queue)
            self._c_digest.update(_content(view))
            self._count(view.nbytes)

    def _leave(self, tile: Tile, part: int, top: int, rows: Span, number: int, *, is_last: bool) -> None:
        """Has rows of a tile taken away when they are computed."""
        schedule, width = self.schedule, tile.columns[1] - tile.columns[0]
        memory, offset = self._parts[part], (rows[0] - top) * width * schedule.resident.itemsize
        if schedule.converts:
            place = self._next_strip()
            self._convert(self._part_array(part, top, rows, width), self._strip_array(place, rows, width))
            self._free_at[place] = number
            memory, offset = self._strips[place], 0
        event = self.backend.mark(queue=self.queue)
        self.leaving.put(_Strip(tile, rows, memory, offset, event, is_last))

    def _next_strip(self) -> int:
        """What a strip is converted in, when it has left: that which was used least lately."""
        place, state = self._turn, self.state
        self._turn = (place + 1) % len(self._strips)
        state.wait(lambda: state.taken >= self._free_at[place])
        return place

    _turn = 0

    def _part_array(self, part: int, top: int, rows: Span, width: int) -> DeviceArray:
        whole = DeviceArray.dense(
            self.backend, self._parts[part], (self.schedule.part_rows, width), self.schedule.resident.numpy
        )
        return whole[rows[0] - top : rows[1] - top]

    def _strip_array(self, place: int, rows: Span, width: int) -> DeviceArray:
        shape = rows[1] - rows[0], width
        return DeviceArray.dense(self.backend, self._strips[place], shape, self.schedule.problem.output.numpy)

    def _convert(self, source: DeviceArray, target: DeviceArray) -> None:
        copy_strided(source, target, queue=self.queue)

    def _take_all(self, lane: _Lane) -> None:
        """Takes strips away, in the order in which they are computed, and writes them to the result."""
        state = self.state
        digest = hashlib.blake2b(digest_size=16)
        while (strip := self.leaving.get()) is not None:
            self._take(strip, lane, digest)
            if strip.is_last:
                if self.record is not None:
                    self.record.finish(strip.tile, digest.hexdigest())
                    digest = hashlib.blake2b(digest_size=16)
                state.tell(lambda: setattr(state, "tiles", state.tiles + 1))
                self._tell()
            state.tell(lambda: setattr(state, "taken", state.taken + 1))
            if state.ended:
                return

    def _take(self, strip: _Strip, lane: _Lane, digest: Any) -> None:
        """Takes a strip away, and writes it to the result."""
        matrix, dtype, tile = self.operands.out, self.schedule.problem.output.numpy, strip.tile
        memory, height = lane.memory(strip.memory), strip.rows[1] - strip.rows[0]
        width, start = tile.columns[1] - tile.columns[0], tile.rows[0] + strip.rows[0]
        if isinstance(matrix.array, Elsewhere):
            there = _rows_of(self.backend, memory, height, width, dtype, strip.offset)
            key = matrix.key(tile.batch, (start, start + height), tile.columns)
            for nbytes in matrix.array.write(key, there, lane.staging, lane.queue, [strip.event]):
                self._count(nbytes)
            return
        self.backend.wait([strip.event], queue=lane.queue)
        for first, last in lane.chunks(height, width * dtype.itemsize, matrix):
            view = lane.view(last - first, width, dtype)
            self.backend.download(memory, view, offset=strip.offset + first * width * dtype.itemsize, queue=lane.queue)
            matrix.write(tile.batch, (start + first, start + last), tile.columns, view)
            if self.record is not None:
                digest.update(_content(view))
            self._count(view.nbytes)

    def _count(self, nbytes: int) -> None:
        with self.state.turn:
            self.state.moved += nbytes
        self._tell()

    def _tell(self) -> None:
        if self.told is not None:
            state, schedule = self.state, self.schedule
            with self._telling:
                self.told(Progress(state.moved, schedule.moved_bytes, state.tiles, schedule.count))


def stored_block(matrix: Matrix, name: str, tile: Tile, terms: Span) -> tuple[Span, Span]:
    """Rows and columns of a panel of A or B as it is stored."""
    across = tile.rows if name == "a" else tile.columns
    return (terms, across) if transposes(matrix.op) == (name == "a") else (across, terms)


def _rows_of(
    backend: Backend, memory: Memory, rows: int, columns: int, dtype: np.dtype[Any], offset: int
) -> DeviceArray:
    """Dense rows in a memory from a number of bytes on."""
    return DeviceArray(backend, memory, (rows, columns), dtype, (columns, 1), offset // dtype.itemsize)


def _queues(backend: Backend, count: int) -> list[Any]:
    """Queues beside the backend's own, which are kept as long as it is open."""
    known = backend.kept.setdefault("queues of copies", [])
    while len(known) < count:
        known.append(backend.as_queue(backend.new_queue()))
    return list(known[:count])


def _content(x: HostArray) -> memoryview:
    """The bytes of a dense array."""
    return x.reshape(-1).view(np.uint8).data


def digest_of(matrix: Matrix, rows: Span, columns: Span, batch: int, dtype: np.dtype[Any]) -> str:
    """The digest of a block, as it is taken where the block is brought or taken away."""
    digest = hashlib.blake2b(digest_size=16)
    width = columns[1] - columns[0]
    at_once = max(STAGING // max(width * dtype.itemsize, 1), 1)
    for first in range(rows[0], rows[1] if width else rows[0], at_once):
        with np.errstate(all="ignore"):
            block = matrix.block(batch, (first, min(first + at_once, rows[1])), columns).astype(dtype, order="C")
        digest.update(_content(block))
    return digest.hexdigest()
