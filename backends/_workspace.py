"""Scratch memory: each queue has its own, which all products on it share, one after the other.

What runs on a queue runs in order, so that the next product may write where the one before has finished reading. Threads that
enqueue on one queue take turns: a product holds the workspace until its last launch is enqueued.

A thread may come to a product while it launches another: by a handler of signals or of the log, or by a finalizer. The inner
one has scratch memory of its own, whatever queue it is on. That of the outer one is still to be read. A thread that waited for
one queue's while it holds another's could wait for ever, for a thread that does the same the other way round.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any

from gemmport.backends.objects import Memory

if TYPE_CHECKING:
    from gemmport.backends.base import Backend

_MOST = 64
"""Queues of a device that have one: twice as many as PyTorch has streams in a pool."""


class Holder(threading.local):
    """A thread.

    Attributes:
        workspace: whose lock it holds, or waits for. While it is set, the thread waits for no other.
    """

    workspace: Workspace | None = None


this_thread = Holder()


class Workspace:
    """The scratch memory of one queue.

    Attributes:
        lock: held by the thread that uses it, from `take` to the last launch. A thread notes the workspace in `this_thread`
            before it waits for the lock.
        blocks: one for each piece of scratch memory that a product may have, as large as was ever asked for.
    """

    def __init__(self, queue: Any) -> None:
        self.lock = threading.RLock()
        self.blocks: tuple[Memory, ...] = ()
        self._queue = queue

    def for_now(self, backend: Backend, sizes: Sequence[int]) -> tuple[Memory, ...]:
        """Blocks of at least so many bytes each, to be named by what is bound now; when it is launched, there may be others.

        Raises:
            DeviceMemoryError: there is no room.
        """
        if this_thread.workspace is not None:
            return self.apart(backend, sizes)
        this_thread.workspace = self
        try:
            with self.lock:
                return self.take(backend, sizes)
        finally:
            this_thread.workspace = None

    def apart(self, backend: Backend, sizes: Sequence[int]) -> tuple[Memory, ...]:
        """Blocks that are the caller's alone, for a product in the middle of another; errors as `take`."""
        return tuple(self._allocated(backend, size) for size in sizes)

    def take(self, backend: Backend, sizes: Sequence[int]) -> tuple[Memory, ...]:
        """Blocks of at least so many bytes each: the same tuple as long as none is replaced. This thread must hold the lock.

        Raises:
            DeviceMemoryError: there is no room.
        """
        blocks = self.blocks
        if len(blocks) >= len(sizes) and all(
            size <= block.nbytes for size, block in zip(sizes, blocks, strict=False)
        ):  # fmt: skip
            return blocks
        grown = list(blocks)
        for number, size in enumerate(sizes):
            if number == len(grown):
                grown.append(self._allocated(backend, size))
            elif grown[number].nbytes < size:
                # What it held is given back in the order of this queue; what is there from now on is no larger.
                grown[number].release()
                self.blocks = ()
                grown[number] = self._allocated(backend, size)
        self.blocks = tuple(grown)
        return self.blocks

    def _allocated(self, backend: Backend, nbytes: int) -> Memory:
        block = backend.allocate(nbytes)
        with backend.ordered(self._queue, writes=[block]):
            pass  # from now on it is this queue's
        return block

    def release(self, *, wait: bool) -> bool:
        """Gives the memory back, when the work on it is done. The queue may be gone by then: the device is awaited.

        Args:
            wait: for other threads that use it; else nothing is given back then. Nothing is where this thread uses it. A thread
                that holds another queue's does not wait.

        Returns:
            Whether there was some.
        """
        held = this_thread.workspace
        if held is self:
            return False
        this_thread.workspace = held or self
        try:
            if not self.lock.acquire(blocking=wait and held is None):
                return False
            try:
                blocks, self.blocks = self.blocks, ()
            finally:
                self.lock.release()
        finally:
            this_thread.workspace = held
        for block in blocks:
            block.access.shared = self._queue is not None
            block.release()
        return bool(blocks)


class Workspaces:
    """Those of a device, by queue. The oldest is given back where there are many."""

    def __init__(self) -> None:
        self._known: OrderedDict[Hashable, Workspace] = OrderedDict()
        self._lock = threading.RLock()

    def of(self, queue: Any) -> Workspace:
        """That of a queue of `Backend.as_queue`, which it keeps alive where that is in Python's hands."""
        found = self._known.get(queue)
        if found is not None:
            return found
        with self._lock:
            found = self._known.setdefault(queue, Workspace(queue))
            oldest = self._known.popitem(last=False) if len(self._known) > _MOST else None
        if oldest is not None:
            key, workspace = oldest
            if not workspace.release(wait=True) and workspace.blocks:  # another thread uses it
                with self._lock:
                    self._known.setdefault(key, workspace)
        return found

    def release(self, *, wait: bool) -> bool:
        """Gives all of them back; as `Workspace.release`."""
        with self._lock:
            known = list(self._known.values())
        given_back = [workspace.release(wait=wait) for workspace in known]
        return any(given_back)
