"""What backends deal in: memory, programs, calls, events, compiled code taken apart, and what was found on a machine."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import TracebackType
from typing import Any, ClassVar, NoReturn, SupportsIndex

from gemmport.core.device import DeviceInfo
from gemmport.core.errors import CopyError
from gemmport.core.problem import ALLOCATION_ALIGNMENT


class NoCopy:
    """What stands for something on an open device: a copy would stand for the same thing, and another process has none."""

    instead: ClassVar[str]
    """What to do where a copy is wanted."""

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        """Refuses `copy.copy`, `copy.deepcopy` and `pickle`.

        Raises:
            CopyError: always.
        """
        name = type(self).__name__.lstrip("_")
        raise CopyError(
            f"{name} objects must not be copied or pickled, as each stands for something on a device; pass it as it is, or "
            f"{self.instead}"
        )


@dataclass(eq=False)
class Access:
    """Which queues touched a memory last; None stands for the backend's own. See `Backend` on queues.

    Attributes:
        home: the queue in whose order the memory's owner reuses it: the backend's own for memory of its pool, the current
            stream of the library for foreign memory.
        writer: the queue that wrote it last. readers: those that have read it since.
        shared: whether another library has the memory. Its work is unknown here.
    """

    home: Any = None
    writer: Any = None
    readers: list[Any] = field(default_factory=list)
    shared: bool = False

    @property
    def at_home(self) -> bool:
        """Whether no queue but the owner's touched it last."""
        home = self.home
        return self.writer is home and all(reader is home for reader in self.readers)


@dataclass(eq=False)
class Memory(NoCopy):
    """A block of device memory. Released when it is collected, at the end of a `with`, or by `release`.

    Attributes:
        native: the runtime's own object, or foreign memory that must be kept alive.
        handle: what a C library takes: a device pointer (CUDA) or a cl_mem (OpenCL).
        nbytes: its size.
        free: gives it back, where that takes more than dropping `native`.
        alignment: bytes to which its start is aligned; a power of two.
        access: which queues use it.
        keeper: what else must live as long as it is used.
        read_only: whether its owner forbids writing.
        located: what `Backend.address` found.
        pooled: whether it is a block of the backend's pool. Two of these never overlap.
    """

    instead: ClassVar[str] = (
        "allocate another and fill it with Backend.copy; what an array holds goes to the host with get()"
    )

    native: Any
    handle: int
    nbytes: int
    free: Callable[[], object] = lambda: None
    alignment: int = ALLOCATION_ALIGNMENT
    access: Access = field(default_factory=Access)
    keeper: object = None
    read_only: bool = False
    located: tuple[int, int] | None = None
    pooled: bool = field(default=False, init=False)  # so that a copy, which would overlap, is none

    @property
    def released(self) -> bool:
        """Whether it was given back."""
        return self.native is None and not self.handle and not self.nbytes

    def release(self) -> None:
        """Gives the memory back to the pool. It must not be used again; work already enqueued is not disturbed."""
        self.free()
        self.native, self.handle, self.nbytes, self.located = None, 0, 0, None

    def __enter__(self) -> Memory:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


@dataclass(frozen=True)
class Program(NoCopy):
    """A compiled source on a device.

    Attributes:
        native: the runtime's module or program.
        binary: what `Backend.load` makes it of again; empty where the runtime itself keeps what it compiled.
    """

    instead: ClassVar[str] = "give its source to Backend.program"

    native: Any
    binary: bytes
    source: str


@dataclass
class Call(NoCopy):
    """A kernel with its geometry and arguments bound, ready to be launched any number of times, by one thread at a time.

    Attributes:
        function: the kernel's name in the program.
        native: the runtime's kernel.
    """

    instead: ClassVar[str] = "make another with Backend.prepare"

    program: Program
    function: str
    native: Any
    groups: tuple[int, int, int]
    work_group: tuple[int, int, int]

    @cached_property
    def extent(self) -> tuple[int, int, int]:
        """Work-items along each dimension of the grid."""
        (gx, gy, gz), (wx, wy, wz) = self.groups, self.work_group
        return gx * wx, gy * wy, gz * wz


@dataclass(frozen=True)
class Listing:
    """The code of a kernel in one language, as text.

    Attributes:
        language: "PTX", "SASS", "x86-64", …
        text: empty where it could not be had.
        note: why it could not, and how to get it; or else what is to be known of it.
    """

    language: str
    text: str = ""
    note: str = ""


@dataclass(frozen=True)
class Resources:
    """What a compiled kernel takes of the device; None for what the runtime does not tell.

    Attributes:
        registers: 32-bit, of a work-item.
        scalar_registers: 32-bit, of a wave as one. scalar_spills: of these, kept elsewhere for want of them.
        spill_stores, spill_loads: bytes per work-item, written to memory and read back for want of registers.
        private_bytes: memory of a work-item beside its registers: its stack, spills included.
        local_bytes: declared local memory of a group.
        barriers: that the hardware numbers, of a group.
        max_work_items: of a group, that the compiled kernel can run with.
    """

    registers: int | None = None
    spill_stores: int | None = None
    spill_loads: int | None = None
    private_bytes: int | None = None
    local_bytes: int | None = None
    barriers: int | None = None
    max_work_items: int | None = None
    scalar_registers: int | None = None
    scalar_spills: int | None = None


@dataclass(frozen=True)
class LoopBound:
    """What a model of the processor says of one round of a loop. Its cycle is what an instruction of a wave takes at full rate.

    Attributes:
        cycles: that the instructions of one wave take to be issued, where none waits for another.
        alone: that a wave takes which nobody is beside, so that it waits for whatever it asks for.
        units: cycles for which each unit of the processor is busy, by its name.
    """

    cycles: float
    alone: float
    units: Mapping[str, float]

    @property
    def busiest(self) -> float:
        """Cycles of the unit that is busy for longest: a wave takes so long at least, however many are beside it."""
        return max(self.units.values(), default=0.0)


@dataclass(frozen=True)
class Disassembly:
    """A compiled kernel taken apart.

    Attributes:
        listings: its code, the nearest to the source first, the nearest to the machine last; at least one.
    """

    listings: tuple[Listing, ...]
    resources: Resources


@dataclass(frozen=True)
class Event(NoCopy):
    """A point in a queue. `seconds` is set where the runtime has no clock of its own and the host's was read instead."""

    instead: ClassVar[str] = "make another with Backend.record"

    native: Any
    seconds: float | None = None


@dataclass(frozen=True)
class Place:
    """Where another library's array is.

    Attributes:
        device: as `Backend.discover` describes it.
        context: the runtime's context that the array belongs to; None where all libraries share one per device.
    """

    device: DeviceInfo
    context: Hashable = None


@dataclass(frozen=True)
class Discovery:
    """What a backend found: devices, and what is missing or failed to start, as "what is wrong; how to mend it"."""

    devices: tuple[DeviceInfo, ...]
    notes: tuple[str, ...] = ()


@dataclass
class ProgramCounts:
    """How programs came to be, since the backend was opened.

    Attributes:
        compiled: by the runtime, which may have a cache of its own.
        from_disk: from gemmport's cache. from_memory: as they were made before.
    """

    compiled: int = 0
    from_disk: int = 0
    from_memory: int = 0

    def __add__(self, other: ProgramCounts) -> ProgramCounts:
        """What both count."""
        return ProgramCounts(
            self.compiled + other.compiled,
            self.from_disk + other.from_disk,
            self.from_memory + other.from_memory,
        )

    def __sub__(self, earlier: ProgramCounts) -> ProgramCounts:
        """What came after the earlier counts."""
        return ProgramCounts(
            self.compiled - earlier.compiled, self.from_disk - earlier.from_disk, self.from_memory - earlier.from_memory
        )
