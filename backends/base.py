"""The interface between gemmport and a device. It knows memory, programs and order; it knows no GEMM.

A backend has what is abstract here; what it does not override refuses by name. docs/adding-a-backend.md says how to add one.
The file is long, since the interface is one class: who adds a backend reads all of it in one place, and what takes more than a
few lines stands in modules of its own.
"""

from __future__ import annotations

import logging
import math
import operator
import threading
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Hashable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from types import TracebackType
from typing import Any, ClassVar, NoReturn, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from gemmport.backends import _compilation, _ending, _fork, _staging, _transfers
from gemmport.backends._errors import RuntimeErrors
from gemmport.backends._improvement import Left
from gemmport.backends._ordering import IN_ORDER, Between, Ordered, is_alone
from gemmport.backends._ownership import disown, owned
from gemmport.backends._programs import Programs, User
from gemmport.backends._workspace import Workspace, Workspaces
from gemmport.backends.array import DeviceArray, as_numpy, check_plain, dense_strides, element_type, sizes_of
from gemmport.backends.objects import (
    Access,
    Call,
    Disassembly,
    Discovery,
    Event,
    Listing,
    Memory,
    NoCopy,
    Place,
    Program,
    ProgramCounts,
    Resources,
)
from gemmport.backends.segments import SegmentedMemory
from gemmport.core.device import DeviceInfo
from gemmport.core.errors import (
    ArrayError,
    CompileError,
    DeviceLostError,
    DeviceMemoryError,
    DtypeError,
    GemmportError,
    LaunchError,
    ShapeError,
    TensorMapError,
    WorkGroupError,
)
from gemmport.core.plan import TensorMap
from gemmport.core.problem import alignment_of
from gemmport.core.segments import segment_sizes
from gemmport.runtime import cache
from gemmport.runtime.kept import last
from gemmport.runtime.sources import numbered_excerpt

log = logging.getLogger(__name__)

HostArray = npt.NDArray[Any]

_FILLED_AT_ONCE = 2**26
"""Bytes that `Backend._fill` copies at a time, unless a backend has its own."""

Places: TypeAlias = Sequence[tuple[int, int]]
"""Of arguments of a call that are memory, the number of each, and which of the caller's memory it is."""

Launcher: TypeAlias = Callable[[tuple[Any, ...], Any, bool], Event | None]
"""Enqueues calls: takes what `Backend.argument` makes of the memory that `Places` count, a queue or its handle, and whether the
event of the last call is wanted, which is then returned."""


class Backend(NoCopy, ABC):
    """One device, opened.

    Queues. Work is enqueued on the backend's own `queue`, or on the native queue or stream that is passed, in order; only
    `upload`, `download`, `elapsed` and `synchronize` make the host wait. Memory knows which queues used it (`Access`), and
    what uses it on another queue stands inside of `ordered`, which makes that queue wait, on the device, first:
      - A reader waits for the queue that wrote last, a writer also for those that have read since.
      - Memory of the pool is its own queue's: to be allocated and to be released count as writes there. So it may be used on
        any queue at once, and the pool hands it out again only to work that comes after everything it was used for.
      - Foreign memory is likewise its owner's, on the current stream of the library it comes from; `settle` makes that stream
        wait for what gemmport did with it.
      - Memory that another library was shown in place is released only when the device has nothing left to do.
    Queues are kept alive as long as memory that they used is; a queue passed as a bare number must outlive that memory.

    Threads. Every method may be called from any thread at any time, but a `Call` belongs to one thread at a time, and two
    threads that enqueue on one memory decide themselves who goes first.
    """

    name: ClassVar[str]
    """Of the backend, and of its devices' `backend`."""

    overrides: ClassVar[str] = ""
    """A folder of sources that stand in for parts of the same names in kernels/LANGUAGE/prelude/; see `assemble`."""

    runtime_error: ClassVar[type[Exception]] = RuntimeError
    """What the runtime raises, and `current` makes ours of."""

    memory_error: ClassVar[type[Exception]] = MemoryError
    """What it raises where memory is short."""

    context: Any = None
    """The runtime's context that the device was opened in; None of a runtime that has none."""

    queue: Any = None
    """The backend's own queue or stream, as `as_queue` takes it; None of a runtime that has one queue alone."""

    kept: dict[Hashable, Any]
    """What others keep of the device as long as it is open."""

    prepared: dict[Hashable, Any]
    """Likewise, the calls that are prepared on it."""

    shared: bool = False
    """Whether `get_backend` gives it to whoever asks: then a `with` leaves it open, and `close` alone closes it."""

    instead: ClassVar[str] = (
        "open another with open_backend; to another process send its device, for get_backend(device=…)"
    )

    def __init__(self, device: DeviceInfo, context: Any = None) -> None:
        """Opens a device.

        Args:
            context: of the runtime, to work in instead of one of the backend's own.

        Raises:
            ForkError: this process was forked off one that used the runtime, which does not go on here.
        """
        self.device = device
        self._check_fork()
        self.closed = False
        self._lost = ""
        self.kept: dict[Hashable, Any] = {}
        self.prepared: dict[Hashable, Any] = {}
        self._in_graphs: list[tuple[Callable[[], bool], object]] = []  # whether the graph is gone, and what it uses
        self._postponed: list[object] = []
        self._workspaces = Workspaces()
        self._staging = _staging.Staging()
        self._errors = RuntimeErrors(device, self.runtime_error, self.memory_error)
        self._programs = Programs()
        self._access_lock = threading.RLock()
        _fork.opened(self)

    @property
    def language(self) -> str:
        """Of the sources that it compiles: see `DeviceInfo.language`."""
        return self.device.language

    # What each backend must have

    @classmethod
    @abstractmethod
    def discover(cls) -> Discovery:
        """All devices this backend reaches on this machine.

        Raises:
            BackendUnavailableError: the runtime is missing or does not start; the message says how to get it.
        """

    @abstractmethod
    def _allocate(self, nbytes: int) -> Memory:
        """Memory from the pool, at least one byte, whose `free` puts it back."""

    @abstractmethod
    def _upload(self, memory: Memory, data: HostArray, offset: int, queue: Any) -> None:
        """`upload` on a queue that waits already for what it must."""

    @abstractmethod
    def _download(self, memory: Memory, out: HostArray, offset: int, queue: Any) -> None:
        """`download`, likewise."""

    @abstractmethod
    def _copy(self, source: Memory, target: Memory, nbytes: int, queue: Any) -> None:
        """`copy`, likewise."""

    @abstractmethod
    def compiler(self) -> str:
        """Name and version of the compiler: part of the key of a cached program."""

    @abstractmethod
    def compile(self, source: str) -> Program:
        """The program of a source, compiled for this device now.

        Raises:
            CompileError: with the compiler's log.
        """

    @abstractmethod
    def prepare(
        self,
        program: Program,
        function: str,
        groups: tuple[int, int, int],
        work_group: tuple[int, int, int],
        arguments: Sequence[Memory | np.generic],
        *,
        dynamic_local_bytes: int = 0,
    ) -> Call:
        """Binds a kernel to geometry and arguments.

        Raises:
            LaunchError: no such function. WorkGroupError: it cannot run with so many work-items.
        """

    @abstractmethod
    def set_memory(self, call: Call, places: Places, memory: Sequence[Any]) -> None:
        """Puts other memory in the place of arguments that are memory, for the launches that follow.

        Args:
            memory: what `argument` makes of each.
        """

    @abstractmethod
    def launch(self, call: Call, *, queue: Any = None, wait_for: Sequence[Event] = ()) -> None:
        """Enqueues a call, after the given events of any queue of this device.

        Raises:
            LaunchError: the runtime refuses it.
        """

    @abstractmethod
    def synchronize(self) -> None:
        """Waits for everything enqueued on the backend's own queue."""

    @abstractmethod
    def _close(self) -> None:
        """Waits for the device, and frees the programs and what the pool holds.

        `check_open` refuses every other use by then. Calls that began before may still be at work in other threads: what they
        use, such as the queue and the context, must stay as long as the backend does.
        """

    # What a backend may have. As they stand here, these do for a runtime with one queue, which shares nothing.

    def environment(self) -> dict[str, str]:
        """Versions of everything between Python and the device, for results."""
        device = self.device
        return {
            "platform": f"{device.platform_name or device.platform} {device.platform_version}".strip(),
            "driver": device.driver,
            "compiler": self.compiler(),
        }

    def bus_id(self) -> str:
        """Where the device is on PCI, "domain:bus:device.function" in hexadecimal digits, whatever number it has for this
        process; empty where the runtime does not tell.
        """
        return ""

    def current(self) -> AbstractContextManager[None]:
        """Makes the device current to C libraries (CUDA's contexts are per thread), and the runtime's errors ours."""
        self.check_open()
        return self._errors

    @property
    def survives_forks(self) -> bool:
        """Whether the runtime is known to go on in a child of a process in which it was at rest (`gemmport.backends._fork`)."""
        return False

    def _finish(self) -> None:
        """Waits until the device has nothing left to do, on any queue."""
        self.synchronize()

    def _fill(self, memory: Memory, byte: int, queue: Any) -> None:
        """`fill` on a queue that waits already for what it must."""
        for start in range(0, memory.nbytes, _FILLED_AT_ONCE):
            self._upload(memory, np.full(min(_FILLED_AT_ONCE, memory.nbytes - start), byte, np.uint8), start, queue)

    def host_buffer(self, nbytes: int) -> HostArray:
        """Bytes of the host's memory, from and to which copies are the fastest: pinned, where the runtime does that."""
        return np.empty(nbytes, np.uint8)

    def _is_pageable(self, data: HostArray) -> bool:
        """Whether copies from and to a contiguous array of the host's are faster by way of `host_buffer`."""
        return False

    def _begin_upload(self, memory: Memory, data: HostArray, offset: int, queue: Any) -> _staging.Wait:
        """Enqueues `_upload`, of memory of `host_buffer` that stays as it is until what is given has waited for it."""
        self._upload(memory, data, offset, queue)
        return _nothing

    def _begin_download(self, memory: Memory, out: HostArray, offset: int, queue: Any) -> _staging.Wait:
        """`_download`, likewise."""
        self._download(memory, out, offset, queue)
        return _nothing

    @property
    def free_memory(self) -> int:
        """Bytes of the device's memory that are free, as far as the runtime tells; without that, all it has."""
        return self.device.memory

    def _part(self, memory: Memory, offset: int) -> Memory | None:
        """`part`, of a memory in one allocation and an offset within it."""
        return None

    def _address(self, memory: Memory) -> tuple[int, int]:
        """`address`, asked of the runtime. Without that, all memory is in one space of addresses."""
        return 0, memory.handle

    def options(self) -> tuple[str, ...]:
        """Options for the compiler on this device."""
        return _compilation.options(self.device)

    @property
    def compiles_at_once(self) -> bool:
        """Whether its compiler is known to take several sources at the same time, each in a thread."""
        return False

    @property
    def compiles_beside(self) -> bool:
        """Whether a program can be made beside the caller, which goes on and has others compiled: by another process, or by the
        runtime in another thread.
        """
        return False

    def _rework(self, source: str) -> tuple[str, ...]:
        """What is done to the code that the compiler made of a source, with its version; empty: nothing."""
        return _compilation.rework(self.device, source)

    def load(self, binary: bytes, source: str) -> Program:
        """A program from a binary that this device's `compile` made.

        Raises:
            CompileError: the runtime refuses the binary.
        """
        raise CompileError(f"a program of backend {self.name} must be compiled: it loads none", source=source)

    def disassemble(self, call: Call) -> Disassembly:
        """The code of a call's kernel, as close to the machine as the runtime gives it, and what it takes of the device.

        Where the runtime compiles a kernel for its groups only when it is launched, the call is launched.
        """
        note = f"backend {self.name} does not tell it"
        return Disassembly((Listing("machine code", note=note),), Resources())

    def tensor_map(self, told: TensorMap, memory: Memory) -> np.void:
        """A map of a memory as an argument of a kernel. It begins with the memory's address, as `argument` makes it, so that
        `set_memory` puts another one there as it does with arguments that are memory. Where the runtime tells no addresses, it
        begins with 0: `set_memory` and what `launcher` makes put in what they take for the address, and kernels, which compare
        it with that of their memory, put that in where it is another.

        Raises:
            TensorMapError: the runtime has no such maps, or refuses this one.
        """
        raise TensorMapError(
            f"{self.device.label}: backend {self.name} has no tensor maps; choose another kernel than this one"
        )

    @staticmethod
    def argument(memory: Memory) -> Any:
        """A memory as an argument of a kernel, as `set_memory` takes it."""
        return memory

    @property
    def takes_addresses(self) -> bool:
        """Whether the address of an array in the host's memory is an argument of a kernel, which reads and writes it there."""
        return False

    def stand_in(self, argument: Any, nbytes: int) -> Memory:
        """Memory of another library's, which keeps it and orders what is done to it.

        Args:
            argument: as `argument` makes it of memory. nbytes: that are used of it.
        """
        return cast("Memory", argument)

    def pin(self, program: Program) -> None:
        """Keeps a program loaded until the process ends, for a graph that may launch it at any time."""

    def launcher(self, calls: Sequence[tuple[Call, Places]]) -> Launcher:
        """What enqueues calls in order, with other memory in the given places each time, as `set_memory` and `launch`.

        It holds the calls: nobody else need.
        """

        def launch(memory: tuple[Any, ...], queue: Any, marked: bool) -> Event | None:
            for call, places in calls:
                self.set_memory(call, places, memory)
                self.launch(call, queue=queue)
            return self.mark(queue=queue) if marked else None

        return launch

    # Queues that a backend may have beside its own

    @property
    def queue_handle(self) -> int:
        """The backend's own queue as a C library takes it: a CUstream or a cl_command_queue.

        Raises:
            LaunchError: there is none.
        """
        raise LaunchError(f"{self.device.label}: backend {self.name} has no queue that C libraries take")

    def new_queue(self) -> Any:
        """Another queue of the device, as `as_queue` takes it; None where there is one alone."""
        return None

    def as_queue(self, queue: Any) -> Any:
        """A caller's queue as this backend compares them and works on them; None for its own.

        Raises:
            LaunchError: it must be of this backend's device and context, and run in order.
        """
        if queue is not None:
            raise LaunchError(f"queue must be None: {self.device.label} has one queue alone; got {queue!r}")

    def as_owner(self, queue: Any) -> Any:
        """Likewise the queue on which another library works, in whichever order: it waits, and is waited for, as a whole.

        Raises:
            LaunchError: it must be of this backend's device and context.
        """
        return self.as_queue(queue)

    def in_order(self, queue: Any) -> tuple[Any, AbstractContextManager[None]]:
        """Where work on a caller's queue is done in order, as `as_queue` tells queues, and what stands around it there: the
        queue itself, and nothing. A queue without an order waits, and is waited for, as a whole.

        Raises:
            LaunchError: it must be of this backend's device and context.
        """
        return self.as_queue(queue), IN_ORDER

    def is_captured(self, queue: Any) -> bool:
        """Whether what is enqueued on a queue of `as_queue` is not done now, but kept to be done any number of times."""
        return False

    def _may_be_captured(self, access: Access) -> bool:
        """Whether a graph is captured on a queue that used a memory, or may have."""
        return False

    def _until_gone(self, queue: Any) -> Callable[[], bool]:
        """What tells whether the graph is gone that a queue captures now, and all that is made of it: see `keep_for_graph`."""
        return bool  # False

    def record(self, *, queue: Any = None) -> Event:
        """The point in the queue after everything enqueued so far, with its time."""
        self.synchronize()
        return Event(None, seconds=time.perf_counter())

    def mark(self, *, queue: Any = None) -> Event:
        """The point in the queue after everything enqueued so far, for other queues to wait for. Its time is not taken."""
        return self.record(queue=queue)

    def wait(self, events: Sequence[Event], *, queue: Any = None) -> None:
        """Makes a queue wait, on the device, for events of any queue before what is enqueued next."""
        for event in events:
            if event.seconds is None:
                raise LaunchError(f"events must be those of backend {self.name}; got {event.native!r}")

    def elapsed(self, start: Event, end: Event) -> float:
        """Seconds of device time between two recorded events; waits for the second."""
        if start.seconds is None or end.seconds is None:
            raise LaunchError(f"events must be those of backend {self.name}, with their time")
        return end.seconds - start.seconds

    # Memory that a backend may share with other libraries, and with the host

    @classmethod
    def locate(cls, foreign: Any) -> Place | None:  # noqa: ARG003 - overrides look at it
        """Where another library's array is; None where this backend does not reach it.

        Raises:
            ArrayError: it is where only its own library reaches it.
        """
        return None

    def _wrap(self, foreign: Any, home: Any) -> DeviceArray | None:
        """The array over another library's memory, not copied; None where this backend does not know it.

        Args:
            home: the queue on which that library orders its work on the array, if the caller knows.
        """
        return None

    def _wrap_buffer(self, buffer: Any, nbytes: int, keeper: object) -> Memory:
        """The memory of the runtime's own buffer or pointer."""
        raise ArrayError(f"{buffer!r} cannot be wrapped: backend {self.name} has no buffers of a caller's; copy it")

    def _borrow(self, data: HostArray) -> Memory | None:
        """`borrow`, of an array whose elements lie one after another; None where the device has a memory of its own."""
        return None

    def give_back(self, memory: Memory, *, queue: Any = None) -> None:
        """Waits until a borrowed memory holds for the host what was enqueued for it, on the queue that it was used on."""
        raise ArrayError(f"{self.device.label}: no memory of the host's is ever borrowed")

    @property
    def dlpack_device(self) -> tuple[int, int] | None:
        """The device in DLPack's numbers; None where DLPack's consumers do not reach it."""
        return None

    def share(self, memory: Memory, stream: int | None) -> int:
        """Hands memory to another library, whose stream waits for its contents.

        Args:
            stream: in DLPack's numbers; with -1 nothing waits.

        Returns:
            The queue that wrote the memory last, as a C library takes it.

        Raises:
            ArrayError: other libraries cannot be given this backend's memory.
        """
        raise ArrayError(f"{self.device.label}: memory of backend {self.name} is handed to no other library: copy it")

    def reaches(self, other: DeviceInfo) -> bool | None:
        """Whether the device reads another one's memory itself, not through the host; None where the runtime does not tell."""
        return None

    def copy_from(
        self, other: Backend, source: Memory, target: Memory, nbytes: int, *, source_offset: int = 0, offset: int = 0,
        sender: Any = None, queue: Any = None,
    ) -> bool:  # fmt: skip
        """Enqueues a copy of bytes from another device's memory to this one's, not through the host.

        Args:
            sender: a queue of the other device, after whose work so far the bytes are read. queue: of this device, on which
                they are written. The order of neither memory is asked: the caller has whoever writes to the source wait.

        Returns:
            Whether it was enqueued: the runtime may have no such copy between the two.
        """
        return False

    # Queues

    def workspace(self, queue: Any = None) -> Workspace:
        """The scratch memory of a queue of `as_queue`, which all products on it share."""
        return self._workspaces.of(queue)

    def release_workspaces(self) -> None:
        """Gives the scratch memory of all queues back, when the work on it is done, and that of graphs that are gone; and the
        pinned memory through which copies pass. The next product, or copy, allocates its own.
        """
        self.check_open()
        self._let_graphs_go()
        self._workspaces.release(wait=True)
        self._staging.release()

    def keep_for_graph(self, queue: Any, kept: object) -> None:
        """Keeps what a graph uses that a queue captures. It is let go when the graph is gone, with all that was made of it: at
        a later capture, at `release_workspaces`, or where an allocation fails. The end of the device lets all go.

        Raises:
            LaunchError: the runtime refuses.
        """
        self._let_graphs_go()
        found = self._until_gone(queue), kept
        with self._access_lock:
            self._in_graphs.append(found)

    def _let_graphs_go(self) -> bool:
        """Lets go of what graphs used that are gone. Tells whether there was some."""
        gone: list[object] = []
        with self._access_lock:
            known, self._in_graphs = self._in_graphs, []
            for each in known:
                is_gone, _ = each
                (gone if is_gone() else self._in_graphs).append(each)
        return bool(gone)  # what they used is released here, outside the lock

    def ordered(
        self, queue: Any = None, *, reads: Collection[Memory] = (), writes: Collection[Memory] = ()
    ) -> AbstractContextManager[None]:
        """What is enqueued on the queue inside comes after what other queues did to this memory, and before what they will."""
        self.check_open()
        queue = self.as_queue(queue)
        if is_alone(queue, reads, writes) or self.is_captured(queue):
            # A graph is replayed later, after whatever its owner has it wait for; within it there is one queue.
            return IN_ORDER
        return Ordered(self, queue, reads, writes)

    def between(self, owner: Any, queue: Any) -> AbstractContextManager[None]:
        """What is enqueued on the queue inside comes after everything that another library has on its own, and before what it
        will have there. Of memory that the library alone orders.

        Args:
            owner: of `as_owner`. queue: of `as_queue`.
        """
        return IN_ORDER if owner == queue else Between(self, owner, queue)

    def settle(self, memory: Memory) -> None:
        """Makes the queue on which the memory's owner works wait for everything enqueued here on the memory."""
        self._settle(memory.access)

    def _settle(self, access: Access) -> None:
        if access.at_home:
            return
        with self._access_lock:
            others = [access.writer, *access.readers]
            access.writer, access.readers = access.home, []
        self._follow(access.home, others)

    def _follow(self, queue: Any, others: Sequence[Any]) -> None:
        distinct = [other for i, other in enumerate(others) if other != queue and other not in others[:i]]
        if distinct:
            self.wait([self.mark(queue=other) for other in distinct], queue=queue)

    def queue_of(self, memory: Memory) -> Any:
        """The queue on which a memory was last written, as `as_queue` takes it."""
        self.check_open()
        writer = memory.access.writer
        return self.queue if writer is None else writer

    def _release(self, access: Access, free: Callable[[], object], *_alive: object) -> None:
        """Gives memory back to its owner; what is passed beside stays alive until then.

        While a graph is captured it is put off to a later allocation: to wait would break the capture, or become part of it.
        So it is where the wait is interrupted: what used the memory may still do.
        """
        try:
            if not self.closed and (access.shared or not access.at_home):
                if self._may_be_captured(access):
                    self._postpone(access, free, *_alive)
                    return
                if access.shared:
                    self._finish()
                else:
                    self._settle(access)
        except GemmportError as error:  # a queue that is gone has nothing left to do
            if not self.closed:
                log.warning("memory is released without waiting for all that used it: %s", error)
        except BaseException:
            self._postpone(access, free, *_alive)
            raise
        free()

    def _postpone(self, access: Access, free: Callable[[], object], *_alive: object) -> None:
        """Puts a release off to a later allocation."""
        key = object()
        owned[key] = self, partial(self._release, access, free, *_alive)
        self._postponed.append(key)

    def _own(self, memory: Memory) -> Memory:
        """The memory, which is released in order when it is collected, or at the end of the process.

        As `weakref.finalize` would do it, in a third of its time: every new result is such a memory.
        """
        reference = weakref.ref(memory, disown)
        owned[reference] = self, partial(self._release, memory.access, memory.free, memory.native, memory.keeper)
        memory.free = partial(disown, reference)
        return memory

    # Memory and arrays, on all backends

    def upload(
        self, memory: Memory, data: HostArray, *, offset: int = 0, queue: Any = None, dtype: np.dtype[Any] | None = None
    ) -> None:
        """Copies a C-contiguous host array to `offset` bytes into the memory; the host array may be reused on return.

        Args:
            dtype: with which the array may lie in any way: its elements are copied in their (C) order, converted to this type
                as `numpy.astype` does.
        """
        _transfers.upload(self, memory, data, offset, queue, dtype)

    def download(self, memory: Memory, out: HostArray, *, offset: int = 0, queue: Any = None) -> None:
        """Fills a C-contiguous host array from `offset` bytes into the memory, and waits for it.

        Raises:
            ArrayError: the host array is read-only.
        """
        _transfers.download(self, memory, out, offset, queue)

    def borrow(self, data: HostArray) -> Memory | None:
        """The memory that a host array lies in, from its first element on, used in place instead of a copy.

        From the first work on it until `give_back` nobody else may write to it, nor read what that work writes.

        Returns:
            None where a copy is needed: the device has a memory of its own, or the array has no elements, or is not aligned to
            their size, or does not begin at its first one.

        Raises:
            DeviceMemoryError: it is larger than one allocation may be.
        """
        self.check_open()
        plain = _transfers.in_one_piece(data)
        if plain is None:
            return None
        self.check_allocation(plain.nbytes)
        memory = self._borrow(plain)
        if memory is not None:
            memory.keeper = data
        return memory

    def address(self, memory: Memory) -> tuple[int, int]:
        """Where a memory starts: the number of a block, and bytes into it. Memories overlap only within a block; one in several
        allocations starts where the first does.
        """
        if isinstance(memory, SegmentedMemory):
            return self.address(memory.segments[0])
        if memory.located is None:
            memory.located = self._address(memory)
        return memory.located

    def copy(self, source: Memory, target: Memory, nbytes: int, *, queue: Any = None) -> None:
        """Copies the first bytes of one memory of this device to another."""
        with self.ordered(queue, reads=[source], writes=[target]):
            self._copy(source, target, nbytes, queue)

    def part(self, memory: Memory, offset: int) -> Memory | None:
        """A memory from so many bytes on as a memory of its own, over the same bytes and in the same order of work.

        Returns:
            None where no address can be had of what is there: the memory lies in several allocations, or the runtime does not
            let a memory begin there.
        """
        if not offset:
            return memory
        if isinstance(memory, SegmentedMemory) or not 0 < offset < memory.nbytes:
            return None
        found = self._part(memory, offset)
        if found is not None:
            found.alignment = min(memory.alignment, alignment_of(offset))
            found.access, found.keeper, found.read_only = memory.access, memory, memory.read_only
        return found

    def fill(self, memory: Memory, byte: int, *, queue: Any = None) -> None:
        """Sets every byte of a memory."""
        with self.ordered(queue, writes=[memory]):
            for block in memory.segments if isinstance(memory, SegmentedMemory) else [memory]:
                self._fill(block, byte, queue)

    def allocate(self, nbytes: int) -> Memory:
        """Uninitialized device memory. A request for nothing gets a byte, so that it can be passed to a kernel.

        Raises:
            ShapeError: a negative number of bytes.
            DeviceMemoryError: more than one allocation may have, or more than is left. OpenCL may find the latter out only
                where the memory is first used.
        """
        self.check_open()
        if nbytes < 0:
            raise ShapeError(f"{nbytes} bytes cannot be allocated: a size is never negative")
        self.check_allocation(nbytes)
        return self._block(nbytes)

    def _release_postponed(self) -> None:
        """Gives back what was put off, or puts it off again."""
        for _ in range(len(self._postponed)):
            if (key := last(self._postponed)) is not None:
                disown(key)

    def _block(self, nbytes: int, access: Access | None = None) -> Memory:
        """Memory of the pool, with an `access` of its own or one that others have, too."""
        if self._postponed:
            self._release_postponed()
        try:
            memory = self._allocate(max(nbytes, 1))
        except DeviceMemoryError:
            given_back = self._let_graphs_go(), self._workspaces.release(wait=False), self._staging.release()
            if not any(given_back):
                raise
            log.info("%s: scratch memory is given back for %s bytes", self.device.label, f"{nbytes:,}")
            memory = self._allocate(max(nbytes, 1))
        memory.pooled = True
        if access is not None:
            memory.access = access
        return self._own(memory)

    def _segmented(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> SegmentedMemory:
        """Memory in several allocations for a C-contiguous array that is larger than one may be."""
        self.check_open()
        self.check_room(math.prod(shape) * dtype.itemsize)
        sizes, access = segment_sizes(shape, max(self.device.max_allocation // dtype.itemsize, 1)), Access()
        log.info(
            "an array of shape %s and type %s lies in %d allocations: %s allows %s bytes in one", shape, dtype, len(sizes),
            self.device.label, f"{self.device.max_allocation:,}",
        )  # fmt: skip
        return SegmentedMemory([self._block(size * dtype.itemsize, access) for size in sizes])

    def check_room(self, nbytes: int) -> None:
        """Raises DeviceMemoryError where so many bytes are more than the device has."""
        if nbytes > self.device.memory:
            raise DeviceMemoryError(
                f"{self.device.label}: {nbytes:,} bytes in all; the device has {self.device.memory:,}: keep the array on the "
                "host, where products pass through the device in tiles"
            )

    def check_allocation(self, nbytes: int) -> None:
        """Raises DeviceMemoryError where so many bytes are more than one allocation may have."""
        most = self.device.max_allocation
        if nbytes > most:
            raise DeviceMemoryError(
                f"{self.device.label}: {nbytes:,} bytes in one allocation; the device allows {most:,}: keep the array on the "
                "host, where products pass through the device in tiles"
            )

    def empty(self, shape: int | Sequence[int], dtype: npt.DTypeLike) -> DeviceArray:
        """An uninitialized C-contiguous array on the device: in several allocations where it is larger than one may be.

        Raises:
            ShapeError: a size is negative or not a whole number. DtypeError: its elements are not numbers.
            DeviceMemoryError: see `allocate`.
        """
        sizes, kind = sizes_of(shape), element_type(dtype)
        nbytes = math.prod(sizes) * kind.itemsize
        memory = self.allocate(nbytes) if nbytes <= self.device.max_allocation else self._segmented(sizes, kind)
        return DeviceArray.dense(self, memory, sizes, kind)

    def zeros(self, shape: int | Sequence[int], dtype: npt.DTypeLike) -> DeviceArray:
        """A C-contiguous array of zeros on the device; errors as `empty`."""
        array = self.empty(shape, dtype)
        self.fill(array.memory, 0)
        return array

    def full(self, shape: int | Sequence[int], value: Any, dtype: npt.DTypeLike) -> DeviceArray:
        """A C-contiguous array of one number on the device; errors as `empty`, and `DeviceArray.set`."""
        array = self.empty(shape, dtype)
        array.fill(value)
        return array

    def ones(self, shape: int | Sequence[int], dtype: npt.DTypeLike) -> DeviceArray:
        """A C-contiguous array of ones on the device; errors as `empty`."""
        return self.full(shape, 1, dtype)

    def asarray(self, data: Any, dtype: npt.DTypeLike | None = None) -> DeviceArray:
        """An array on this device: a copy of a host array, or another library's device array, not copied.

        Args:
            dtype: to convert numbers to, as `numpy.astype` does; default: their own.

        Raises:
            ArrayError: an array of another device, of a type this backend does not know, or with masked elements.
            DtypeError: its elements are not numbers.
            DeviceMemoryError: see `allocate`; nothing was copied by then.
        """
        if isinstance(data, DeviceArray):
            data.check_held()
            if data.backend is not self:
                raise ArrayError(
                    f"an array must be of this backend, on {self.device.label}; got one of another, on "
                    f"{data.backend.device.label}: copy it, with asarray(x.get())"
                )
            return data if dtype is None else data.astype(element_type(dtype), copy=False)
        if (wrapped := self.adopt(data)) is not None:
            return wrapped if dtype is None else wrapped.astype(element_type(dtype), copy=False)
        check_plain("data", data)
        host = as_numpy("data", data)
        if host.dtype.hasobject:
            raise ArrayError(
                f"data must be an array of numbers or a device array that {self.name} knows; got {type(data).__name__}"
            )
        given = element_type(host.dtype)
        # Devices read numbers in the host's own byte order. `newbyteorder` gives a type that passes for none of NumPy's.
        # What has no room is refused before a copy is made of it.
        array = self.empty(host.shape, np.dtype((given if dtype is None else element_type(dtype)).type))
        if host.size:
            self.upload(array.memory, host, dtype=array.dtype)
        return array

    def adopt(self, foreign: Any, home: Any = None) -> DeviceArray | None:
        """The array over another library's device array, not copied; None where this backend does not know it.

        Args:
            home: the queue on which that library orders its work on the array; default: what the array tells of it.

        Raises:
            ArrayError: the array is on another device or in another context.
            DtypeError: its numbers are not in the byte order of the device.
        """
        self.check_open()
        array = self._wrap(foreign, home)
        if array is not None:
            if not array.dtype.isnative:
                raise DtypeError(
                    f"numbers on a device must be in its byte order; got {array.dtype.str}: convert them first"
                )
            self._own(array.memory)
        return array

    def wrap(
        self,
        buffer: Any,
        shape: int | Sequence[int],
        dtype: npt.DTypeLike,
        *,
        strides: Sequence[int] | None = None,
        offset: int = 0,
        nbytes: int = 0,
        keeper: object = None,
    ) -> DeviceArray:
        """The array over a buffer that the caller allocated in this backend's context.

        Args:
            buffer: a pyopencl.Buffer; or, with CUDA, the device pointer as a number.
            strides: in elements; default C-contiguous. offset: of the first element, in elements.
            nbytes: size of the memory at a pointer; a buffer tells it itself.
            keeper: what must stay alive as long as a pointer is used.

        Raises:
            ShapeError: the array reaches beyond the memory.
            ArrayError: the buffer is of another context or kind.
        """
        self.check_open()
        sizes, kind = sizes_of(shape), element_type(dtype)
        steps = dense_strides(sizes) if strides is None else tuple(operator.index(step) for step in strides)
        if len(steps) != len(sizes):
            raise ShapeError(f"{len(steps)} strides do not go with the {len(sizes)} dimensions of shape {sizes}")
        memory = self._own(self._wrap_buffer(buffer, nbytes, keeper))
        array = DeviceArray(self, memory, sizes, kind, steps, offset)
        low, high = array.reach
        if low < 0 or high * kind.itemsize > memory.nbytes:
            raise ShapeError(
                f"an array of shape {sizes}, strides {steps} and offset {offset} reaches from element {low} to {high}; the "
                f"memory has {memory.nbytes:,} bytes of {kind.itemsize} each"
            )
        return array

    def check_work_group(self, function: str, work_group: tuple[int, int, int], most: int) -> None:
        """Raises WorkGroupError where a compiled kernel cannot run with so many work-items per group."""
        if math.prod(work_group) > most:
            raise WorkGroupError(
                f"{self.device.label}: {function} was compiled to run with at most {most} work-items per group, not "
                f"{math.prod(work_group)}: it needs too many registers or too much local memory; choose a smaller tile",
                most=most,
            )

    @property
    def program_counts(self) -> ProgramCounts:
        """How many programs were compiled, and how many came from a cache."""
        return self._programs.counts

    def program(self, source: str, *, at_once: bool = False) -> Program:
        """The program of a source: from memory, from disk, or compiled now.

        Args:
            at_once: whether it may be the one that the compiler made, where a better one is on its way.

        Raises:
            CompileError: with the log, and the numbered lines it speaks of.
        """
        self.check_open()
        return self._programs.one(self, source, at_once=at_once)

    def programs(self, sources: Sequence[str], *, at_once: bool = False) -> list[Program]:
        """The programs of several sources, as `program`; compiled side by side where the compiler can."""
        return self._programs.several(self, sources, at_once=at_once)

    def make_later(self, sources: Sequence[str]) -> bool:
        """Has those programs of these sources made beside the caller that are neither in memory nor on disk. Users hear of them
        as they do of better ones.

        Returns:
            Whether any is to come. False where all are there, where nothing is compiled beside the caller for this device, and
            where that has failed for one of these: they must be compiled here then.
        """
        return self._programs.make_later(self, sources)

    def settle_programs(self, sources: Sequence[str] | None = None) -> None:
        """Waits until no better program is on its way of any that is in use. The next product of each kind takes it.

        Args:
            sources: whose programs alone are waited for.
        """
        self._programs.settle(self, sources)

    def has_best(self, source: str) -> bool:
        """Whether the program of a source is there, in memory or on disk, and no better one is to be made."""
        return self._programs.has_best(self, source)

    def follow(self, user: User, sources: Sequence[str], bound: Sequence[Program]) -> None:
        """Tells a user of better programs of some sources, as long as it lives.

        It hears at once of those that came while it bound programs.

        Args:
            bound: what it bound for each source; some may serve for the time being, and be of other sources.
        """
        self._programs.follow(self, user, sources, bound)

    def _reworked(self, program: Program) -> bytes:
        """The binary of a program after what `_rework` says; the same where that does not apply. It may take its time."""
        return program.binary

    @property
    def _compiles_after_callers(self) -> bool:
        """Whether what is compiled beside callers holds up what is compiled for them."""
        return False

    def _compiled_beside(self, source: str) -> Program:
        """A program as `compile` makes it, beside the caller.

        Raises:
            LaunchError: that failed, or `compiles_beside` does not say that it can be done.
        """
        raise LaunchError(f"{self.device.label}: nothing is compiled beside the caller for backend {self.name}")

    def _left(self, compiled: str, better: str, source: str, architecture: str = "") -> Left | None:
        """What another process needs to make a better program, where it can.

        Args:
            compiled, better: the keys of both on disk.
            architecture: that it is compiled for, where it is not yet.
        """
        return None

    def program_parts(self, source: str) -> dict[str, str]:
        """All that decides what a source is compiled to, by name: the parts of the key of its program."""
        device = self.device
        return {
            "source": source,
            "options": "\n".join(self.options()),
            "backend": self.name,
            "compiler": self.compiler(),
            "device": device.name,
            "architecture": device.architecture,
            "driver": device.driver,
            "platform": device.platform_name,
            "platform version": device.platform_version,
        }

    def _load_cached(self, key: str, source: str) -> Program | None:
        binary = cache.load_program(key)
        if binary is None:
            return None
        try:
            return self.load(binary, source)
        except CompileError as error:
            log.warning("%s refuses a cached program, compiling again: %s", self.device.label, error)
            return None

    def _compiled(self, source: str) -> Program:
        try:
            return self.compile(source)
        except CompileError as error:
            self.check_open()  # else it failed because it was closed, or lost
            excerpt = numbered_excerpt(source, error.log)
            raise type(error)(
                "\n".join(filter(None, (f"{self.device.label}: {error}", error.log.strip(), excerpt))),
                log=error.log,
                source=source,
            ) from error

    def close(self) -> None:
        """Waits for the device and frees what is on it. The queue goes with the last reference to the backend, and so does a
        context of OpenCL's; the process keeps CUDA's primary one until it ends, as PyTorch, CuPy and JAX do.

        Neither it nor its arrays must be used again; `get_backend` opens a new one. Calls that are at work in other threads end
        as usual, or with a LaunchError.
        """
        if self.closed:  # perhaps by a fork, which may have left the lock with a thread that is not here
            return
        with self._access_lock:
            closed, self.closed = self.closed, True
        if closed:
            return
        self.kept.clear()
        self.prepared.clear()
        self._in_graphs.clear()
        self._programs.replaced.clear()
        self._workspaces = Workspaces()  # what was in the others goes with the pool
        self._staging.release()
        with self._errors:
            self._close()
        self._release_postponed()

    def _check_fork(self) -> None:
        _fork.check(self.name, self.device.label, survives=self.survives_forks)

    def leave(self) -> object:
        """Closes what a process inherited by a fork and cannot use, and has the runtime release nothing.

        Returns:
            What must stay alive until the process ends: the backend, and all memory.
        """
        self.closed = True
        return self, [(known, owned.pop(known)) for known, (owner, _) in list(owned.items()) if owner is self]

    def lose(self, error: DeviceLostError) -> NoReturn:
        """Closes the backend of a device on which nothing runs any more, and frees nothing: that fails, too.

        Args:
            error: what the runtime says.

        Raises:
            DeviceLostError: always, as every use of the backend from now on.
        """
        self._lost = f"{self.device.label} is lost, and nothing runs on it any more ({error}): start a new process"
        self.closed = True
        raise DeviceLostError(self._lost) from error

    def check_open(self) -> None:
        """Raises LaunchError where the backend was closed, DeviceLostError where the device was lost, ForkError where this
        process only inherited it.
        """
        if self.closed:
            _ending.hold()
            self._check_fork()
            if self._lost:
                raise DeviceLostError(self._lost)
            raise LaunchError(f"{self.device.label} was closed, and its arrays with it: open it again with get_backend")

    def __enter__(self) -> Backend:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Closes a backend of one's own; of one that is shared, waits for what is on its queue."""
        if not self.shared:
            self.close()
        elif kind is None and not self.closed:
            self.synchronize()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.device.label}>"


def _nothing() -> None:
    """Waits for what is done already."""
