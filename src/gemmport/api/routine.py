"""Products of arrays in shards that lie alike, each part by the device that has it: worked out once, and done again with other
memory.

A routine is a list of steps. One thread takes them all, for all devices, and nothing waits with the host but the end, where
devices copy between each other; else what travels passes through the host, when the products of what is there are enqueued.
Each device has two queues beside its own: on one what others ask for is packed, and leaves it, on the other things come. A
product waits, on the device, for what it reads alone.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias, cast, get_args

import numpy as np

from gemmport.api.placement import Placement
from gemmport.api.product import Choice, Product, enqueue
from gemmport.backends.array import DeviceArray
from gemmport.backends.base import Backend
from gemmport.backends.objects import Event, Memory
from gemmport.core.errors import DeviceMemoryError, GemmportError, LaunchError
from gemmport.execution.copies import PreparedCopy
from gemmport.execution.prepared import Prepared
from gemmport.execution.sharded import ShardedArray
from gemmport.multidevice.crew import FAILURES, lost
from gemmport.multidevice.tiles import Tile
from gemmport.outofcore.elsewhere import BUFFER, gone, on_queue

log = logging.getLogger(__name__)

Table: TypeAlias = "Sequence[Memory]"
"""The memory of one run, by the numbers of slots."""

Beside: TypeAlias = Literal["leaves", "comes"]
"""What a queue beside a device's own is for."""

_BESIDE: tuple[Beside, ...] = get_args(Beside)


@dataclass(eq=False)
class Slot(Memory):
    """Stands for a memory which each run has its own of.

    Attributes:
        number: its place in a table.
    """

    number: int = 0

    @classmethod
    def like(cls, memory: Memory, number: int) -> Slot:
        """One for memory of the size and alignment of another."""
        return cls(None, 0, max(memory.nbytes, 1), alignment=memory.alignment, number=number)


def number_of(x: DeviceArray) -> int:
    """The slot of an array over a stand-in."""
    return cast("Slot", x.memory).number


def _in(table: Table, x: DeviceArray) -> DeviceArray:
    """An array over a stand-in, in the memory of a run."""
    return replace(x, memory=table[number_of(x)])


def queue_beside(backend: Backend, what: Beside) -> Any:
    """A queue beside the backend's own; kept as long as it is open."""
    key = "queue of shards", what
    if key not in backend.kept:
        backend.kept[key] = backend.as_queue(backend.new_queue())
    return backend.kept[key]


@dataclass(frozen=True)
class AtHome:
    """What a device computed where it lies: parts of a result, all of them in so many seconds."""

    backend: Backend
    tiles: Sequence[Tile]
    seconds: float


@dataclass(frozen=True, eq=False)
class Part:
    """A part of the result: the device that computes it, and those that have something of what it reads."""

    tile: Tile
    backend: Backend
    senders: frozenset[Backend]


@dataclass(frozen=True)
class Step:
    """Something that is enqueued.

    Attributes:
        backend: the device that has failed where it fails. needs: devices without which it is left out.
    """

    backend: Backend
    needs: frozenset[Backend]
    take: Callable[[Table], object]


class Order:
    """Has queues beside a device's own come after what was done so far to the memory that they use."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.reads: dict[Beside, set[int]] = {}

    def use(self, what: Beside, *given: DeviceArray) -> None:
        """Takes note that a queue is used, and reads arrays that the caller has given."""
        self.reads.setdefault(what, set()).update(map(number_of, given))

    def __call__(self, table: Table) -> None:
        """Enqueues the waits: all for the device's own queue, in whose order a run's own memory is."""
        mark = self.backend.mark()
        for what, numbers in self.reads.items():
            queue = queue_beside(self.backend, what)
            self.backend.wait([mark], queue=queue)
            others = [table[number] for number in numbers if table[number].access.writer is not None]
            with self.backend.ordered(queue, reads=others):
                pass


class Laid:
    """A copy on a device, on a queue beside its own, which comes after an `Order`; or on its own."""

    def __init__(self, source: DeviceArray, target: DeviceArray, what: Beside | None = None) -> None:
        self.source, self.target, self._what = source, target, what
        self._numbers = number_of(source), number_of(target)
        self._copy = PreparedCopy(source, target)

    def __call__(self, table: Table) -> None:
        """Enqueues it."""
        source, target = self._numbers
        if self._what is None:
            self._copy.enqueue(table[source], table[target])
            return
        queue = queue_beside(self.source.backend, self._what)
        self._copy.enqueue(on_queue(table[source], queue), on_queue(table[target], queue), queue=queue)


class Sent:
    """Bytes that come from another device, one after another.

    Attributes:
        then: what is done with them on the queue on which they come.
    """

    def __init__(self, source: DeviceArray, target: DeviceArray, then: Laid | None = None) -> None:
        self.source, self.target, self.then = source, target, then
        self._directly = False

    def begin(self, table: Table) -> None:
        """Enqueues the copy where there is a direct one."""
        source, target = self.source, self.target
        sender, receiver, size = source.backend, target.backend, source.dtype.itemsize
        self._directly = receiver.copy_from(
            sender, table[number_of(source)], table[number_of(target)], source.nbytes, source_offset=source.offset * size,
            offset=target.offset * size, sender=queue_beside(sender, "leaves"), queue=queue_beside(receiver, "comes"),
        )  # fmt: skip
        if self._directly and self.then is not None:
            self.then(table)

    def end(self, table: Table) -> bool:
        """Brings them through the host, where there was no direct copy, and says whether it did."""
        if self._directly:
            return False
        source, target, nbytes = self.source, self.target, self.source.nbytes
        leaving, coming = queue_beside(source.backend, "leaves"), queue_beside(target.backend, "comes")
        there, here = on_queue(table[number_of(source)], leaving), on_queue(table[number_of(target)], coming)
        staging = np.empty(min(BUFFER, nbytes), np.uint8)
        for first in range(0, nbytes, BUFFER):
            view = staging[: nbytes - first]
            begins, place = (x.offset * x.dtype.itemsize + first for x in (source, target))
            source.backend.download(there, view, offset=begins, queue=leaving)
            target.backend.upload(here, view, offset=place, queue=coming)
        if self.then is not None:
            self.then(table)
        return True


class Stage:
    """What some products of a device need of others: on its way, then there."""

    def __init__(self, backend: Backend, sent: Sequence[Sent], laid: Sequence[Laid]) -> None:
        """Of what comes of others, and what is laid beside it."""
        self.backend, self.sent, self.laid = backend, sent, laid
        self._marks: list[Event] = []

    def begin(self, table: Table) -> None:
        """Has it come."""
        for each in self.sent:
            each.begin(table)
        for laid in self.laid:
            laid(table)
        self._mark()

    def end(self, table: Table) -> None:
        """Has the products that are enqueued from now on come after it."""
        through_host = [each.end(table) for each in self.sent]
        if any(through_host):
            self._mark()
        self.backend.wait(self._marks)
        self._marks = []

    def _mark(self) -> None:
        self._marks = [self.backend.mark(queue=queue_beside(self.backend, "comes"))]


class Multiplied:
    """A product of a device, on its own queue. Done again with other memory, what was prepared for it is launched."""

    def __init__(self, backend: Backend, product: Product, written: DeviceArray, choice: Choice) -> None:
        """Of operands, and written, over stand-ins."""
        self.backend, self.product, self.written, self.choice = backend, product, written, choice
        self._reads = [cast("DeviceArray", x) for x in (product.a, product.b, product.c) if x is not None]
        self._numbers, self._written = [*map(number_of, self._reads)], number_of(written)
        self._prepared: Prepared | None = None
        self._turned = False

    def __call__(self, table: Table) -> None:
        """Enqueues it."""
        backend = self.backend
        if self._prepared is None or not self._prepared.usable:
            place = Placement(backend, awaited=True, queue=backend.as_queue(None))
            arrays: dict[str, Any] = dict(zip("abc", (_in(table, x) for x in self._reads), strict=False))
            enqueue(place, replace(self.product, **arrays), _in(table, self.written), self.choice)
            if place.as_given and self.product.scales is None:
                self._prepared, self._turned = place.prepared, place.turned
            return
        reads, d = [table[number] for number in self._numbers], table[self._written]
        if self._turned:
            reads[:2] = reads[1::-1]
        operands = tuple(
            backend.argument(x) for x in (*reads, *[d] * (3 - len(reads)), d)
        )  # C is D where it is not read
        with backend.ordered(None, reads=reads, writes=[d]):
            self._prepared.launch(operands, None)


class Routine:
    """What is done for a product of arrays that lie alike.

    Attributes:
        given: names of the arrays whose memory comes first in a table, shard by shard: "a", "b", "c" where it is read, "out".
        out: the result, over stand-ins.
    """

    def __init__(
        self, backends: Sequence[Backend], given: Sequence[str], out: DeviceArray | ShardedArray,
        blocks: Sequence[tuple[Backend, int]], steps: Sequence[Step], parts: Sequence[Part],
    ) -> None:  # fmt: skip
        """Of steps in order.

        Args:
            blocks: bytes of memory that a run takes of devices, and gives back: next in a table.
        """
        self.backends, self.given, self.out = backends, given, out
        self._blocks, self._steps, self._parts = blocks, steps, parts
        self._everyone = [*dict.fromkeys([*backends, *(sender for part in parts for sender in part.senders)])]
        self._turn = threading.Lock()

    @property
    def usable(self) -> bool:
        """Whether all devices are open."""
        return not any(backend.closed for backend in self._everyone)

    def run(self, arrays: Mapping[str, Any]) -> list[AtHome]:
        """Does it, and waits for it.

        Args:
            arrays: by the names of `given`, which lie as those of which it was made.

        Returns:
            What is done: all but parts at which a device failed that is not lost.

        Raises:
            ArrayLostError: a device was lost, and with it what lies there. Others, but for `FAILURES`, as `enqueue`.
        """
        with self._turn:
            return self._run(self._memory(arrays, self.given))

    def again(self, a: Any, b: Any, c: Any, out: Any) -> Any:
        """The product of other arrays that lie as those before did; None where another thread is at it, where the result might
        be written over an operand, or where a device fails that is not lost: nothing of the operands has changed then.

        Args:
            out: where to write; None for new arrays.
        """
        used = self._memory({"a": a, "b": b, "c": c}, self.given[:-1])
        if not self._turn.acquire(blocking=False):
            return None
        try:
            written = self._new() if out is None else out
            targets = self._memory({"out": written}, ["out"])
            if not _are_apart(used, targets):
                return None
            done = self._run([*used, *targets])
        except DeviceMemoryError:  # of the result's
            return None
        finally:
            self._turn.release()
        return written if sum(len(each.tiles) for each in done) == len(self._parts) else None

    def _memory(self, arrays: Mapping[str, Any], names: Sequence[str]) -> list[Memory]:
        return [shard.memory for name in names for shard in shards_of(arrays[name])]

    def _new(self) -> ShardedArray:
        out = cast("ShardedArray", self.out)
        return ShardedArray([like.backend.empty(like.shape, like.dtype) for like in out.shards], out.axis)

    def _run(self, given: Sequence[Memory]) -> list[AtHome]:
        begun = time.perf_counter()
        table, failures, is_over = [*given], dict[Backend, Exception](), False

        def tried(backend: Backend, work: Callable[..., Any], *arguments: Any) -> Any:
            try:
                return work(*arguments)
            except FAILURES as error:
                failures.setdefault(backend, error)
                return None

        try:
            for backend, nbytes in self._blocks:
                table.append(tried(backend, backend.allocate, nbytes) or Memory(None, 0, 0))
            for step in self._steps:
                if not failures or step.needs.isdisjoint(failures):
                    tried(step.backend, step.take, table)
            is_over = True
        finally:
            for backend in self.backends:
                tried(backend, backend.synchronize)
            if failures or not is_over:  # something may be on its way that no product waits for
                self._await_all()
            for memory in table[len(given) :]:
                memory.release()
        return self._done(failures, time.perf_counter() - begun)

    def _await_all(self) -> None:
        """Waits for what is on its way between devices that have not failed."""
        for backend in self._everyone:
            for what in _BESIDE:
                with suppress(GemmportError):
                    backend.wait([backend.mark(queue=queue_beside(backend, what))])
            with suppress(GemmportError):
                backend.synchronize()

    def _done(self, failures: dict[Backend, Exception], seconds: float) -> list[AtHome]:
        done = [part for part in self._parts if failures.keys().isdisjoint({part.backend, *part.senders})]
        for backend in self._everyone:
            try:
                backend.check_open()
            except LaunchError as error:
                missing = [part.tile for part in self._parts if part not in done]
                raise lost(missing, gone(backend, error)) from error
        for backend, failure in failures.items():
            log.warning("%s failed, and what needs it is computed again: %s", backend.device.label, failure)
        tiles = {backend: [part.tile for part in done if part.backend is backend] for backend in self.backends}
        return [AtHome(backend, each, seconds) for backend, each in tiles.items() if each]


def shards_of(x: DeviceArray | ShardedArray) -> Sequence[DeviceArray]:
    """The shards of an array, or itself."""
    return x.shards if isinstance(x, ShardedArray) else [x]


def _are_apart(used: Collection[Memory], written: Sequence[Memory]) -> bool:
    """Whether what is written may be written, and lies in blocks of pools in which nothing else does."""
    everything = (*used, *written)
    return (
        all(memory.pooled and memory.nbytes for memory in everything)
        and not any(memory.read_only for memory in written)
        and len({*map(id, written)}) == len(written)
        and {*map(id, used)}.isdisjoint(map(id, written))
    )
