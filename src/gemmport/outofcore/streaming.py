"""A product in tiles, carried out: panels are read and sent by threads of their own while the device computes, and results are
taken away while it computes the next.

Three kinds of threads work on queues of their own: one for each of A and B fills slots on the device, the caller's enqueues
products of what is there, one takes finished strips of D away. A slot is filled again after the event of the product that read
it last; a strip is computed anew after it was taken away. Copies are awaited by who makes them.

What comes from pageable memory of the host, or goes there, passes through two halves of pinned memory: a thread copies one of
them to or from the device, while others read or write the other.
"""

from __future__ import annotations

import hashlib
import queue as queues
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Protocol, TypeAlias

import numpy as np

from gemmport.backends.array import DeviceArray
from gemmport.backends.base import Backend
from gemmport.backends.objects import Event, Memory
from gemmport.contracts.scales import ScaleLayout
from gemmport.core.errors import ArrayError, GemmportError, ParameterError
from gemmport.core.problem import GemmProblem, Layout, Operand, transposes
from gemmport.execution.copies import copy_strided
from gemmport.execution.executor import enqueue_launches
from gemmport.kernels import rescale
from gemmport.outofcore.elsewhere import Elsewhere, OnDevice, await_queue, on_queue
from gemmport.outofcore.operands import HostArray, Matrix, Sliced, Span
from gemmport.outofcore.progress import Progress, Tell
from gemmport.planning.schedule import DOUBLE, Residency, Schedule, Tile
from gemmport.runtime import copying

Multiply: TypeAlias = Callable[[GemmProblem, "dict[str, Memory]", Any], object]
"""Enqueues a product of memory on a device, on a queue."""

STAGING = 2**26
"""Bytes of the host's memory through which each operand, and D, pass, where no bound is given."""

GRADED, MOST_GRADES, _LEAST_GRADE = 2**26, 16, 512
"""The first panels of a tile come in parts, each as large as all before it, so that the device begins when the first is there.
That has about so many bytes of both operands, one of so many parts of the panel at most, and so many terms at least.
"""

_TERMS = 64
"""Of which such a part has a multiple."""

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
    """Of a streamed product, on the host; C is None where it is not read. Result and C have the shape of D.

    Attributes:
        scales: of D's rows, (…, m), and of its columns, (…, n): of float32, and None where there are none.
    """

    a: Matrix
    b: Matrix
    c: Matrix | None
    out: Matrix
    scales: tuple[HostArray | None, HostArray | None] = (None, None)

    def of(self, name: str) -> Matrix:
        """One by its name."""
        found = {"a": self.a, "b": self.b, "c": self.c, "d": self.out}[name]
        assert found is not None
        return found

    @property
    def scaled(self) -> bool:
        """Whether there are scales."""
        return any(x is not None for x in self.scales)


@dataclass
class _Lane:
    """A queue on which copies are made, and the memory of the host through which they pass.

    Attributes:
        copying: the thread that copies between the device and a half of that memory, while the lane's own reads or writes the
            other half; None where the lane's does both.
    """

    backend: Backend
    queue: Any
    staging: HostArray
    copying: ThreadPoolExecutor | None = None

    def bring(self, target: _Rows, matrix: Matrix, fill: Callable[[Span, HostArray], object]) -> Iterator[int]:
        """Brings rows to the device, and waits for it; gives the bytes of each part.

        Args:
            matrix: that they are of. fill: reads some rows into memory of the host.
        """
        halves = self._halves(target, matrix)
        coming: list[Callable[[], object]] = [lambda: None] * halves
        for number, (span, view) in enumerate(self._parts(target, matrix, halves)):
            coming[number % halves]()
            fill(span, view)
            coming[number % halves] = self._beside(
                self.backend.upload, target.memory, view, offset=target.begins(span), queue=self.queue
            )
            yield view.nbytes
        for each in coming:
            each()

    def take(self, source: _Rows, matrix: Matrix) -> Iterator[tuple[Span, HostArray]]:
        """Takes rows from the device: gives some at a time, in memory of the host that is used again.

        Args:
            matrix: that they are of.
        """
        halves = self._halves(source, matrix)
        coming: deque[tuple[Span, HostArray, Callable[[], object]]] = deque()
        for span, view in self._parts(source, matrix, halves):
            arrived = self._beside(
                self.backend.download, source.memory, view, offset=source.begins(span), queue=self.queue
            )
            coming.append((span, view, arrived))
            if len(coming) == halves:
                yield _arrived(*coming.popleft())
        while coming:
            yield _arrived(*coming.popleft())

    def copy(self, source: HostArray, target: HostArray) -> None:
        """Copies rows within the host's memory, converted to the target's type."""
        if self.copying is None:  # the device computes with the host's cores
            copying.convert(source, target)
        else:
            copying.copy_rows(source, target)

    def _beside(self, work: Callable[..., object], *arguments: Any, **named: Any) -> Callable[[], object]:
        """Has a copy made, by the thread that copies where there is one; what is given waits for it."""
        if self.copying is not None:
            return self.copying.submit(work, *arguments, **named).result
        work(*arguments, **named)
        return lambda: None

    def _halves(self, rows: _Rows, matrix: Matrix) -> int:
        """In how many parts of the memory rows pass: two where each has room for one, and nothing is better read whole."""
        apart = self.copying is not None and not isinstance(matrix.array, Sliced)
        return 2 if apart and 2 * rows.row_bytes <= self.staging.nbytes else 1

    def _parts(self, rows: _Rows, matrix: Matrix, halves: int) -> Iterator[tuple[Span, HostArray]]:
        """Rows that pass at a time, and the memory through which they do."""
        # What is read in slices is another array each time, beside the staging memory.
        room = self.staging.nbytes // (2 if isinstance(matrix.array, Sliced) else halves)
        at_once, multiple = max(room // max(rows.row_bytes, 1), 1), matrix.multiple[0]
        at_once = max(at_once // multiple * multiple, min(at_once, multiple))
        for number, start in enumerate(range(0, rows.count if rows.row_bytes else 0, at_once)):
            span = start, min(start + at_once, rows.count)
            begins, nbytes = number % halves * at_once * rows.row_bytes, (span[1] - start) * rows.row_bytes
            yield span, self.staging[begins : begins + nbytes].view(rows.dtype).reshape(-1, rows.width)

    def memory(self, block: Memory) -> Memory:
        """A block as this lane copies it: in the order of its own queue, and after the events that it is told."""
        return on_queue(block, self.queue)


def _arrived(span: Span, view: HostArray, arrival: Callable[[], object]) -> tuple[Span, HostArray]:
    arrival()
    return span, view


@dataclass(frozen=True)
class _Rows:
    """Dense rows on the device: so many, in a memory from a byte on."""

    memory: Memory
    offset: int
    count: int
    width: int
    dtype: np.dtype[Any]

    @property
    def row_bytes(self) -> int:
        """Of one of them."""
        return self.width * self.dtype.itemsize

    def begins(self, span: Span) -> int:
        """The byte at which some of them begin."""
        return self.offset + span[0] * self.row_bytes


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
        brought: of A and B, up to which step their panels are on the device, and how many parts of that step's.
        enqueued: the last step whose products are enqueued. events: after the products of steps.
        taken: strips that have left the device.
        over: threads that have ended.
        failure: of a thread; all others end then.
    """

    turn: threading.Condition = field(default_factory=threading.Condition)
    brought: dict[str, tuple[int, int]] = field(default_factory=lambda: {"a": (-1, 0), "b": (-1, 0)})
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
    the device, memory there, and the host's memory through which copies pass.

    Attributes:
        of: what tells the panels from others: products that name the same find them.
        grades: the parts in which the first panel lies there.
        blocks: of the device's memory, by what they are for; panels that stay by the operand's name.
        staging: by operand.
    """

    of: Hashable = None
    held: Residency | None = None
    grades: Sequence[Span] = ()
    blocks: dict[str, list[Memory]] = field(default_factory=dict)
    staging: dict[str, HostArray] = field(default_factory=dict)

    def forget(self) -> None:
        """Gives the device's memory back."""
        self.of, self.held = None, None
        for name in [*self.blocks]:
            self._release(name)

    def close(self, backend: Backend) -> None:
        """Gives all memory back, but pinned memory, which the next product on the device takes."""
        self.forget()
        if backend.device.type != "cpu":
            spare = backend.kept.setdefault(_PINNED, {})
            spare.update((id(buffer), buffer) for buffer in self.staging.values())
            for buffer in sorted([*spare.values()], key=lambda buffer: -buffer.nbytes)[_MOST_PINNED:]:
                spare.pop(id(buffer), None)
        self.staging.clear()

    def take(
        self, backend: Backend, needs: Mapping[str, tuple[int, int]], stays: str | None, most: int
    ) -> Mapping[str, list[Memory]]:  # fmt: skip
        """Blocks of the device's memory: those of the product before, where they are enough.

        Args:
            needs: by what they are for, bytes of each block, and how many.
            stays: of these, what holds panels. most: bytes of all, for which others that are larger than needed are given back.
        """
        for name, (size, _) in needs.items():
            if any(block.nbytes < size for block in self.blocks.get(name, [])):
                self._release(name)
        held = sum(block.nbytes for own in self.blocks.values() for block in own)
        missing = sum(size * max(count - len(self.blocks.get(name, [])), 0) for name, (size, count) in needs.items())
        if held + missing > most:
            for name in [*self.blocks]:
                if name != stays:
                    self._release(name)
        for name, (size, count) in needs.items():
            own = self.blocks.setdefault(name, [])
            while len(own) < count:
                own.append(backend.allocate(size))
        return {name: self.blocks[name][:count] for name, (_, count) in needs.items()}

    def _release(self, name: str) -> None:
        for block in self.blocks.pop(name, []):
            block.release()


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
        self.kept, self._closes = (Kept(), True) if kept is None else (kept, False)
        self._held_before, self._held_after = self.kept.held, self.kept.held
        self.lent = {
            name: (lend or isinstance(operands.of(name).array, OnDevice))
            and record is None
            and self._is_lent(operands.of(name), name)
            for name in ("a", "b")
        }
        self.stays = None if stays is None or self.lent[stays] else stays
        if self.kept.held is None:
            self.kept.grades = self._graded()
        self.grades = self.kept.grades
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

    def _graded(self) -> list[Span]:
        """The terms of the first panel, in the parts in which it comes."""
        first, last = self.schedule.panel(0)
        nbytes = sum(0 if lent else self.schedule.panel_bytes(name) for name, lent in self.lent.items())
        count = 1
        while self.record is None and count < MOST_GRADES and nbytes > count * GRADED:
            count *= 2
        while (unit := (last - first) // count // _TERMS * _TERMS) < _LEAST_GRADE and count > 1:
            count //= 2
        stops = [first + unit * 2**power for power in range(count.bit_length() - 1)]
        return [*pairwise([first, *stops, last])]

    def _parts_of(self, panel: int) -> Sequence[Span]:
        """The terms of a panel, in the parts in which it comes."""
        return self.grades if panel == 0 else [self.schedule.panel(panel)]

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
        try:
            with ExitStack() as stack:
                self._take_blocks()
                yield self._lanes(stack)
        finally:
            if self._closes:
                self.kept.close(self.backend)

    def _take_blocks(self) -> None:
        """Memory of the device for panels, the tile, and strips that are converted."""
        backend, schedule = self.backend, self.schedule
        needs = {
            name: (0 if self.lent[name] else schedule.panel_bytes(name), schedule.capacity(name)) for name in ("a", "b")
        }
        needs["parts"] = schedule.part_rows * schedule.columns * schedule.resident.itemsize, schedule.parts
        needs["strips"] = schedule.strip_bytes // DOUBLE, DOUBLE if schedule.converts else 0
        blocks = self.kept.take(backend, needs, self.stays, schedule.memory)
        owned = [block for each in blocks.values() for block in each]
        # What was done to it before is done; and when it is given back, what is done to it here.
        for queue in _queues(backend, len(self.staging)):
            with backend.ordered(queue, reads=owned):
                pass
        with backend.ordered(self.queue, writes=owned):
            pass
        for name in ("a", "b"):
            array = self.operands.of(name).array
            if self.lent[name] and isinstance(array, OnDevice):
                self.backend.wait([backend.mark(queue=array.queue)], queue=self.queue)
        used = {name: [on_queue(block, self.queue) for block in each] for name, each in blocks.items()}
        self._slots = {name: used[name] for name in ("a", "b")}
        self._starts = {name: [0] * len(each) for name, each in self._slots.items()}
        self._parts, self._strips = used["parts"], used["strips"]
        self._free_at = [0] * len(self._strips)  # how many strips have left when each may be written again
        self._read_at: list[list[Event]] = [[] for _ in self._strips]

    def _lanes(self, stack: ExitStack) -> Mapping[str, _Lane]:
        """A lane for each operand and the result. On a CPU, which computes with all cores, each has one thread."""
        lanes = {}
        *queues, self._queue_of_scales = _queues(self.backend, len(self.staging) + 1)
        for name, queue in zip(self.staging, queues, strict=True):
            lanes[name] = _Lane(self.backend, queue, self._host_buffer(name))
            if self.backend.device.type != "cpu" and not isinstance(self.operands.of(name).array, Elsewhere):
                lanes[name].copying = stack.enter_context(ThreadPoolExecutor(1))
        return lanes

    def _host_buffer(self, name: str) -> HostArray:
        """Memory of the host through which an operand or D passes; of a product before, where it is enough."""
        known, size = self.kept.staging.get(name), self.staging[name]
        if known is None or known.nbytes < size:
            known = self.kept.staging[name] = _pinned(self.backend, size)
        return known[:size]

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
            parts = self._parts_of(panel)
            if last is not None and last >= 0:
                state.wait(lambda last=last: state.enqueued >= last)  # type: ignore[misc]
            if last is not None and not self.lent[name]:
                self.backend.wait(state.after(last) if last >= 0 else (), queue=lane.queue)
                for number, terms in enumerate(parts):
                    self._bring(name, lane, tile, panel, terms, self._slots[name][slot])
                    self._brought(name, step, number + 1)
                continue
            if last is not None:
                self._lend(name, tile, panel, slot)
            self._brought(name, step, len(parts))

    def _brought(self, name: str, step: int, parts: int) -> None:
        """Tells that so many parts of a step's panel are on the device."""
        self.state.tell(lambda: self.state.brought.__setitem__(name, (step, parts)))

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

    def _layout(self, name: str, slot: int, rows: int, ld: int, before: int, lines: int) -> Layout:
        """How a part of a panel lies in its slot, from a row of op(A) or a column of op(B) on.

        Args:
            ld: where it is dense. before: terms of the panel before the part. lines: rows of op(A), or columns of op(B).
        """
        memory, matrix = self._slots[name][slot], self.operands.of(name)
        if self.lent[name] and isinstance(matrix.array, np.ndarray):
            ld = matrix.array.strides[-2] // matrix.array.itemsize
        elif self.lent[name] and isinstance(matrix.array, OnDevice) and matrix.array.shape[-2] > 1:
            ld = matrix.array.array.strides[-2]
        across = transposes(matrix.op) == (name == "a")
        each = (ld if across else 1) if self.lent[name] else lines  # each part is dense by itself
        offset = self._starts[name][slot] + rows * (1 if across else ld) + before * each
        return Layout(ld=max(ld, 1), offset=offset, base_alignment=memory.alignment)

    def _bring(self, name: str, lane: _Lane, tile: Tile, panel: int, terms: Span, slot: Memory) -> None:
        """Brings some terms of a panel to its slot."""
        matrix, dtype = self.operands.of(name), self.schedule.problem.dtype.numpy
        key = self.schedule.key(name, tile, panel)
        rows, columns = stored_block(matrix, name, tile, terms)
        first, last = tile.rows if name == "a" else tile.columns
        before = (terms[0] - self.schedule.panel(panel)[0]) * (last - first)
        digest = None if self.record is None or self.record.knows(name, key) else hashlib.blake2b(digest_size=16)
        width, memory = columns[1] - columns[0], lane.memory(slot)
        if isinstance(matrix.array, Elsewhere):
            target = DeviceArray(self.backend, memory, (rows[1] - rows[0], width), dtype, (width, 1), before)
            self._read(matrix, key[0], rows, columns, target, lane)
            return

        def fill(span: Span, view: HostArray) -> None:
            lane.copy(matrix.block(key[0], (rows[0] + span[0], rows[0] + span[1]), columns), view)
            if digest is not None:
                digest.update(_content(view))

        there = _Rows(memory, before * dtype.itemsize, rows[1] - rows[0], width, dtype)
        for nbytes in lane.bring(there, matrix, fill):
            self._count(nbytes)
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
            count, scales = schedule.panels, self._scales_of(tile)
            for number in range(count):
                (step, _, panel, a_slot, _), (_, _, _, b_slot, _) = next(uses)
                grades = self._parts_of(panel)
                for grade, terms in enumerate(grades):
                    state.wait(lambda come=(step, grade + 1): min(state.brought.values()) >= come)  # type: ignore[misc]
                    begins, ends = number == grade == 0, number == count - 1 and grade == len(grades) - 1
                    # What comes and leaves strip by strip, and what waits for that.
                    in_strips = ends or (begins and (c_lane is not None or (left > 0 and not schedule.converts)))
                    for part, (top, strips) in enumerate(parts):
                        pieces = strips if in_strips else [(top, strips[-1][1])]
                        for index, rows in enumerate(pieces):
                            is_last = part == len(parts) - 1 and index == len(pieces) - 1
                            if begins:
                                needed = (
                                    left
                                    if width != width_before and not schedule.converts
                                    else where.get((part, index), 0)
                                )
                                state.wait(lambda needed=needed: state.taken >= needed)  # type: ignore[misc]
                                if c_lane is not None and not schedule.scaled:
                                    self._bring_c(c_lane, tile, part, top, rows, is_last=is_last)
                            self._enqueue(tile, panel, terms, rows, part, top, a_slot, b_slot, begins=begins)
                            if ends:
                                left += 1
                                if schedule.scaled:
                                    self._scale(c_lane, tile, part, top, rows, left, scales, is_last=is_last)
                                else:
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
        self, tile: Tile, panel: int, span: Span, rows: Span, part: int, top: int, a_slot: int, b_slot: int, *, begins: bool
    ) -> None:  # fmt: skip
        """Enqueues the product of some rows of a panel of A with a panel of B, of some terms, added to a part of a tile."""
        schedule, problem = self.schedule, self.schedule.problem
        before, terms = span[0] - schedule.panel(panel)[0], span[1] - span[0]
        height, width = tile.rows[1] - tile.rows[0], tile.columns[1] - tile.columns[0]
        turned_a, turned_b = transposes(problem.trans_a), transposes(problem.trans_b)
        item, sums = problem.dtype.itemsize, schedule.resident.itemsize
        layout = self._layout("a", a_slot, rows[0], height if turned_a else terms, before, height)
        a_memory, a = self._begun(self._slots["a"][a_slot], layout, item)
        layout = self._layout("b", b_slot, 0, terms if turned_b else width, before, width)
        b_memory, b = self._begun(self._slots["b"][b_slot], layout, item)
        layout = Layout(ld=max(width, 1), offset=(rows[0] - top) * width)
        d_memory, d = self._begun(self._parts[part], layout, sums)
        beta = 0.0 if schedule.scaled else problem.beta
        product = schedule.product(
            rows[1] - rows[0], width, terms, beta=(beta if begins else 1), a=a, b=b, c=d, d=d
        )  # fmt: skip
        self.multiply(product, {"a": a_memory, "b": b_memory, "c": d_memory, "d": d_memory}, self.queue)

    def _begun(self, memory: Memory, layout: Layout, itemsize: int) -> tuple[Memory, Layout]:
        """A memory from the first element of an operand on: products of strips and panels of one shape are then of one kind,
        wherever these lie, and are planned and bound once.
        """
        found = self.backend.part(memory, layout.offset * itemsize)
        if found is None:
            return memory, layout
        return found, replace(layout, offset=0, base_alignment=found.alignment)

    # C and D

    def _bring_c(self, lane: _Lane, tile: Tile, part: int, top: int, rows: Span, *, is_last: bool) -> None:
        """Brings rows of C to where D is computed."""
        schedule, width = self.schedule, tile.columns[1] - tile.columns[0]
        if not schedule.converts:
            offset = (rows[0] - top) * width * schedule.problem.output.itemsize
            self._read_c(lane, tile, rows, self._parts[part], offset, is_last=is_last)
            return
        place = self._next_strip()
        self.backend.wait(self._read_at[place], queue=lane.queue)
        self._read_c(lane, tile, rows, self._strips[place], 0, is_last=is_last)
        self._convert(self._strip_array(place, rows, width), self._part_array(part, top, rows, width))
        self._read_at[place] = [self.backend.mark(queue=self.queue)]

    def _read_c(self, lane: _Lane, tile: Tile, rows: Span, target: Memory, offset: int, *, is_last: bool) -> None:
        """Brings rows of C to so many bytes into a memory."""
        matrix, width, start = self.operands.c, tile.columns[1] - tile.columns[0], tile.rows[0] + rows[0]
        assert matrix is not None
        memory, taken = lane.memory(target), (start, start + rows[1] - rows[0])
        if isinstance(matrix.array, Elsewhere):
            dtype = self.schedule.problem.output.numpy
            there = _rows_of(self.backend, memory, rows[1] - rows[0], width, dtype, offset)
            self._read(matrix, tile.batch, taken, tile.columns, there, lane)
        else:
            self._upload_c(lane, matrix, tile.batch, taken, tile.columns, memory, offset)
        if is_last and self.record is not None:
            self.record.read("c", tile.place, self._c_digest.hexdigest())
            self._c_digest = hashlib.blake2b(digest_size=16)

    def _upload_c(
        self, lane: _Lane, matrix: Matrix, batch: int, rows: Span, columns: Span, memory: Memory, offset: int
    ) -> None:
        """Brings rows of C from the host."""
        dtype, width = self.schedule.problem.output.numpy, columns[1] - columns[0]

        def fill(span: Span, view: HostArray) -> None:
            lane.copy(matrix.block(batch, (rows[0] + span[0], rows[0] + span[1]), columns), view)
            self._c_digest.update(_content(view))

        for nbytes in lane.bring(_Rows(memory, offset, rows[1] - rows[0], width, dtype), matrix, fill):
            self._count(nbytes)

    def _leave(self, tile: Tile, part: int, top: int, rows: Span, number: int, *, is_last: bool) -> None:
        """Has rows of a tile taken away when they are computed."""
        schedule, width = self.schedule, tile.columns[1] - tile.columns[0]
        if schedule.converts:
            place = self._next_strip()
            self._convert(self._part_array(part, top, rows, width), self._strip_array(place, rows, width))
            self._leave_by(place, tile, rows, number, is_last=is_last)
            return
        offset = (rows[0] - top) * width * schedule.resident.itemsize
        event = self.backend.mark(queue=self.queue)
        self.leaving.put(_Strip(tile, rows, self._parts[part], offset, event, is_last))

    def _leave_by(self, place: int, tile: Tile, rows: Span, number: int, *, is_last: bool) -> None:
        """Has what is in a strip taken away when it is computed."""
        self._free_at[place] = number
        event = self.backend.mark(queue=self.queue)
        self.leaving.put(_Strip(tile, rows, self._strips[place], 0, event, is_last))

    def _scales_of(self, tile: Tile) -> tuple[DeviceArray | None, DeviceArray | None]:
        """The scales of a tile's rows, and of its columns, on the device."""
        found: list[DeviceArray | None] = []
        for x, lines in zip(self.operands.scales, (tile.rows, tile.columns), strict=True):
            if x is None:
                found.append(None)
                continue
            own = np.ascontiguousarray((x[tile.batch] if x.ndim > 1 else x)[slice(*lines)])
            there = self.backend.empty(own.shape, own.dtype)
            self.backend.upload(there.memory, own, queue=self._queue_of_scales)
            found.append(there)
        return found[0], found[1]

    def _scale(
        self, c_lane: _Lane | None, tile: Tile, part: int, top: int, rows: Span, number: int,
        scales: tuple[DeviceArray | None, DeviceArray | None], *, is_last: bool,
    ) -> None:  # fmt: skip
        """Has rows of a tile taken away when their sums are scaled and C is added."""
        whole, width, place = self.schedule.problem, tile.columns[1] - tile.columns[0], self._next_strip()
        if c_lane is not None:
            self._read_c(c_lane, tile, rows, self._strips[place], 0, is_last=is_last)
        dense = Layout(max(width, 1))
        problem = GemmProblem.create(
            rows[1] - rows[0], width, 0, dtype=whole.dtype, output=whole.output, accumulator=whole.accumulator,
            alpha=whole.alpha, beta=whole.beta, c=dense, d=dense,
        )  # fmt: skip
        strip = self._strips[place]
        used = {"sums": self._parts[part], "c": strip, "d": strip}
        used |= {
            name: x.memory for name, x in zip(("row_scales", "column_scales"), scales, strict=True) if x is not None
        }
        of_rows, of_columns = (
            None if x is None else ScaleLayout(first, 1) for x, first in zip(scales, (rows[0], 0), strict=True)
        )
        most, before = self.backend.device.max_work_group, (rows[0] - top) * width
        launch = rescale.PASS.launch(problem, (of_rows, of_columns), most, before)
        enqueue_launches([launch], self.backend, used, writes=("d",), queue=self.queue)
        self._leave_by(place, tile, rows, number, is_last=is_last)

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
        for (first, last), view in lane.take(_Rows(memory, strip.offset, height, width, dtype), matrix):
            matrix.write(tile.batch, (start + first, start + last), tile.columns, view, lane.copy)
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


_PINNED = "pinned memory for copies"

_MOST_PINNED = 4
"""Blocks of it that a device keeps between products: one for A, B, C and D each. To pin 64 MiB takes tens of milliseconds."""


def _pinned(backend: Backend, size: int) -> HostArray:
    """Memory of the host for copies: the least that a product before has left, and that is enough."""
    spare: dict[int, HostArray] = backend.kept.get(_PINNED, {})
    for found in sorted([*spare.values()], key=lambda buffer: buffer.nbytes):
        if found.nbytes >= size and spare.pop(id(found), None) is not None:  # else another thread was faster
            return found
    return backend.host_buffer(size)


def _queues(backend: Backend, count: int) -> list[Any]:
    """Queues beside the backend's own, which are kept as long as it is open."""
    known = backend.kept.setdefault("queues of copies", [])
    while len(known) < count:
        known.append(backend.as_queue(backend.new_queue()))
    return list(known[:count])


def _content(x: HostArray) -> memoryview:
    """The bytes of a dense array."""
    return x.reshape(-1).view(np.uint8).data


def digest_of_array(x: HostArray) -> str:
    """The digest of a small array."""
    return hashlib.blake2b(_content(np.ascontiguousarray(x)), digest_size=16).hexdigest()


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
