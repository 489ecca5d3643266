"""The interface between gemmport and a device. It knows memory, programs and order; it knows no GEMM.

A new backend is one file beside this one, and a folder of kernel sources of the same name in kernels/.
"""

from __future__ import annotations

import logging
import math
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from gemmport import cache
from gemmport.backends.array import DeviceArray
from gemmport.device import DeviceInfo
from gemmport.errors import ArrayError, CompileError, DeviceMemoryError, LaunchError
from gemmport.problem import ALLOCATION_ALIGNMENT
from gemmport.sources import numbered_excerpt

log = logging.getLogger(__name__)

HostArray = npt.NDArray[Any]


@dataclass
class Memory:
    """A block of device memory. Released when it is collected, at the end of a `with`, or by `release`.

    Attributes:
        native: the runtime's own object, or foreign memory that must be kept alive.
        handle: what a C library takes: a device pointer (CUDA) or a cl_mem (OpenCL).
        nbytes: its size.
        free: gives it back, where that takes more than dropping `native`.
        alignment: bytes to which its start is aligned; a power of two.
    """

    native: Any
    handle: int
    nbytes: int
    free: Callable[[], object] = lambda: None
    alignment: int = ALLOCATION_ALIGNMENT

    def release(self) -> None:
        """Gives the memory back to the pool. It must not be used again; work already enqueued is not disturbed."""
        self.free()
        self.native, self.handle, self.nbytes = None, 0, 0

    def __enter__(self) -> Memory:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


@dataclass(frozen=True)
class Program:
    """A compiled source on a device: the runtime's module or program, and its binary."""

    native: Any
    binary: bytes
    source: str


@dataclass
class Call:
    """A kernel with its geometry and arguments bound, ready to be launched any number of times, by one thread at a time."""

    native: Any
    groups: tuple[int, int, int]
    work_group: tuple[int, int, int]
    arguments: Sequence[Any] = ()
    dynamic_local_bytes: int = 0


@dataclass(frozen=True)
class Event:
    """A point in a queue. `seconds` is set where the runtime has no clock of its own and the host's was read instead."""

    native: Any
    seconds: float | None = None


@dataclass(frozen=True)
class Discovery:
    """What a backend found: devices, and what is missing or failed to start, as "what is wrong; how to mend it"."""

    devices: tuple[DeviceInfo, ...]
    notes: tuple[str, ...] = ()


@dataclass
class ProgramCounts:
    """How programs came to be, since the backend was opened."""

    compiled: int = 0
    from_disk: int = 0
    from_memory: int = 0


@dataclass
class _Programs:
    known: dict[str, Program] = field(default_factory=dict)
    counts: ProgramCounts = field(default_factory=ProgramCounts)
    lock: threading.RLock = field(default_factory=threading.RLock)


class Backend(ABC):
    """One device, opened.

    Thread-safe: allocation, transfers, `program`, `prepare`. A `Call` belongs to one thread at a time. Work is enqueued on
    `queue`, in order, or on the native queue or stream that is passed; nothing but `download`, `elapsed` and
    `synchronize` waits for the device.
    """

    name: ClassVar[str]
    """Of the backend; also the folder of its sources in kernels/."""

    def __init__(self, device: DeviceInfo) -> None:
        self.device = device
        self.closed = False
        self._programs = _Programs()

    # Devices

    @classmethod
    @abstractmethod
    def discover(cls) -> Discovery:
        """All devices this backend reaches on this machine.

        Raises:
            BackendUnavailableError: the runtime is missing or does not start; the message says how to get it.
        """

    @abstractmethod
    def environment(self) -> dict[str, str]:
        """Versions of everything between Python and the device, for results."""

    # Memory

    @abstractmethod
    def _allocate(self, nbytes: int) -> Memory:
        """Memory from the pool; at least one byte."""

    @abstractmethod
    def _wrap(self, foreign: Any) -> DeviceArray | None:
        """The array over another library's memory, not copied; None where it is none that this backend knows."""

    @abstractmethod
    def upload(self, memory: Memory, data: HostArray, *, offset: int = 0, queue: Any = None) -> None:
        """Copies a C-contiguous host array to `offset` bytes into the memory; the host array may be reused on return."""

    @abstractmethod
    def download(self, memory: Memory, out: HostArray, *, offset: int = 0, queue: Any = None) -> None:
        """Fills a C-contiguous host array from `offset` bytes into the memory, and waits for it."""

    @abstractmethod
    def copy(self, source: Memory, target: Memory, nbytes: int, *, queue: Any = None) -> None:
        """Copies the first bytes of one memory of this device to another."""

    @abstractmethod
    def fill(self, memory: Memory, byte: int, *, queue: Any = None) -> None:
        """Sets every byte of a memory."""

    # Programs

    @abstractmethod
    def options(self) -> tuple[str, ...]:
        """Options for the compiler on this device."""

    @abstractmethod
    def compiler(self) -> str:
        """Name and version of the compiler: part of the key of a cached program."""

    @abstractmethod
    def compile(self, source: str) -> bytes:
        """The binary of a source for this device.

        Raises:
            CompileError: with the compiler's log.
        """

    @abstractmethod
    def load(self, binary: bytes, source: str) -> Program:
        """A program from a binary that this device's `compile` made.

        Raises:
            CompileError: the runtime refuses the binary.
        """

    @abstractmethod
    def disassemble(self, program: Program) -> str:
        """The device code of a program as text, as close to the machine as the runtime gives it."""

    # Execution

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
            LaunchError: no such function, or it cannot run with so many work-items.
        """

    @abstractmethod
    def launch(self, call: Call, *, queue: Any = None, wait_for: Sequence[Event] = ()) -> None:
        """Enqueues a call, after the given events of any queue of this device.

        Raises:
            LaunchError: the runtime refuses it.
        """

    @abstractmethod
    def record(self, *, queue: Any = None) -> Event:
        """The point in the queue after everything enqueued so far."""

    @abstractmethod
    def elapsed(self, start: Event, end: Event) -> float:
        """Seconds of device time between two recorded events; waits for the second."""

    @abstractmethod
    def synchronize(self) -> None:
        """Waits for everything enqueued on the backend's own queue."""

    @abstractmethod
    def current(self) -> AbstractContextManager[None]:
        """Makes the device current to C libraries (CUDA's contexts are per thread), and the runtime's errors ours."""

    @property
    @abstractmethod
    def queue(self) -> Any:
        """The backend's own queue or stream, in the runtime's type."""

    @property
    @abstractmethod
    def queue_handle(self) -> int:
        """The same as a C library takes it: a CUstream or a cl_command_queue."""

    @abstractmethod
    def _close(self) -> None:
        """Waits for the device and frees the pool, the programs and the context."""

    # What all backends share

    def allocate(self, nbytes: int) -> Memory:
        """Uninitialized device memory. A request for nothing gets a byte, so that it can be passed to a kernel.

        Raises:
            DeviceMemoryError: more than one allocation may have, or more than is left. OpenCL may find the latter out only
                where the memory is first used.
        """
        self.check_open()
        if nbytes > self.device.max_allocation:
            raise DeviceMemoryError(
                f"{self.device.label}: {nbytes:,} bytes in one allocation; the device allows {self.device.max_allocation:,}"
            )
        return self._allocate(max(nbytes, 1))

    def empty(self, shape: Sequence[int], dtype: npt.DTypeLike) -> DeviceArray:
        """An uninitialized C-contiguous array on the device."""
        kind = np.dtype(dtype)
        memory = self.allocate(math.prod(shape) * kind.itemsize)
        return DeviceArray.dense(self, memory, tuple(shape), kind)

    def asarray(self, data: Any) -> DeviceArray:
        """An array on this device: a copy of a host array, or another library's device array, not copied.

        Raises:
            ArrayError: an array of another device, or of a type this backend does not know.
        """
        if isinstance(data, DeviceArray):
            if data.backend is not self:
                raise ArrayError(f"this array is on {data.backend.device.label}, not on {self.device.label}")
            return data
        if (wrapped := self._wrap(data)) is not None:
            return wrapped
        host = np.asarray(data)
        if host.dtype.hasobject:
            raise ArrayError(f"{type(data).__name__} is no array of numbers and no device array that {self.name} knows")
        host = host.astype(
            host.dtype.newbyteorder("="), copy=False
        )  # devices read numbers in the host's own byte order
        array = self.empty(host.shape, host.dtype)
        if host.size:
            self.upload(array.memory, np.ascontiguousarray(host))
        return array

    def check_work_group(self, function: str, work_group: tuple[int, int, int], most: int) -> None:
        """Raises LaunchError where a compiled kernel cannot run with so many work-items per group."""
        if math.prod(work_group) > most:
            raise LaunchError(
                f"{self.device.label}: {function} was compiled to run with at most {most} work-items per group, not "
                f"{math.prod(work_group)}: it needs too many registers or too much local memory; choose a smaller tile"
            )

    @property
    def program_counts(self) -> ProgramCounts:
        """How many programs were compiled, and how many came from a cache."""
        return self._programs.counts

    def program(self, source: str) -> Program:
        """The program of a source: from memory, from disk, or compiled now.

        Raises:
            CompileError: with the log, and the numbered lines it speaks of.
        """
        self.check_open()
        device = self.device
        key = cache.program_key(
            source, *self.options(), self.name, self.compiler(), device.name, device.architecture,
            device.driver, device.platform_name, device.platform_version,
        )  # fmt: skip
        with self._programs.lock:
            counts = self._programs.counts
            if key in self._programs.known:
                counts.from_memory += 1
                return self._programs.known[key]
            program = self._load_cached(key, source)
            if program is not None:
                counts.from_disk += 1
            else:
                program = self._compile_and_load(source)
                counts.compiled += 1
                cache.store_program(key, program.binary)
            self._programs.known[key] = program
            return program

    def _load_cached(self, key: str, source: str) -> Program | None:
        binary = cache.load_program(key)
        if binary is None:
            return None
        try:
            return self.load(binary, source)
        except CompileError as error:
            log.warning("%s refuses a cached program, compiling again: %s", self.device.label, error)
            return None

    def _compile_and_load(self, source: str) -> Program:
        try:
            return self.load(self.compile(source), source)
        except CompileError as error:
            excerpt = numbered_excerpt(source, error.log)
            raise CompileError(
                "\n".join(filter(None, (f"{self.device.label}: {error}", error.log.strip(), excerpt))),
                log=error.log,
                source=source,
            ) from error

    def close(self) -> None:
        """Frees everything on the device. The backend and its arrays must not be used again; `get_backend` opens a new one."""
        if not self.closed:
            self._close()
            self.closed = True

    def check_open(self) -> None:
        """Raises LaunchError where the backend was closed."""
        if self.closed:
            raise LaunchError(f"{self.device.label} was closed, and its arrays with it: open it again with get_backend")

    def __enter__(self) -> Backend:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.device.label}>"
