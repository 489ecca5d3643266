"""Order between queues that use the same memory: who waits for whom, and who is told. The rules stand at `Backend`."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import TYPE_CHECKING, Any

from gemmport.backends.objects import Memory

if TYPE_CHECKING:
    from gemmport.backends.base import Backend

IN_ORDER: AbstractContextManager[None] = nullcontext()


def is_alone(queue: Any, reads: Collection[Memory], writes: Collection[Memory]) -> bool:
    """Whether no other queue matters to this memory, so that `ordered` has nothing to do.

    A reader on the queue that wrote last need not be known: what waits for that queue waits for both.
    """
    for memory in reads:
        if memory.access.writer is not queue:
            return False
    for memory in writes:
        access = memory.access
        if access.writer is not queue:
            return False
        for reader in access.readers:
            if reader is not queue:
                return False
    return True


class Ordered:
    """`Backend.ordered`, on a queue of `as_queue`. No generator: it stands around every product."""

    def __init__(self, backend: Backend, queue: Any, reads: Collection[Memory], writes: Collection[Memory]) -> None:
        self.backend, self.queue, self.reads, self.writes = backend, queue, reads, writes

    def __enter__(self) -> None:
        queue, others = self.queue, []
        with self.backend._access_lock:
            for memory in self.reads:
                if (writer := memory.access.writer) is not queue:
                    others.append(writer)
            for memory in self.writes:
                access = memory.access
                if access.writer is not queue:
                    others.append(access.writer)
                if access.readers:
                    others += access.readers
        if others:
            self.backend._follow(queue, others)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        queue = self.queue
        with self.backend._access_lock:
            for memory in self.reads:
                if queue not in (readers := memory.access.readers):
                    readers.append(queue)
            for memory in self.writes:
                access = memory.access
                access.writer, access.readers = queue, []


class Between:
    """`Backend.between`, of a queue of `as_queue` and one of `as_owner`."""

    def __init__(self, backend: Backend, owner: Any, queue: Any) -> None:
        self.backend, self.owner, self.queue = backend, owner, queue

    def __enter__(self) -> None:
        self.backend._follow(self.queue, [self.owner])

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.backend._follow(self.owner, [self.queue])
