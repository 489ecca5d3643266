"""OpenCL through PyOpenCL."""

from __future__ import annotations

import ctypes
import logging
import math
import os
import re
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar, TypeGuard, cast

import numpy as np
import pyopencl as cl
import pyopencl.tools

from gemmport.backends import (
    _addresses,
    _compilation,
    _completion,
    _improvement,
    _openclbuild,
    _opencldriver,
    _runtimes,
    _scripts,
)
from gemmport.backends import _opencldisassembly as disassembly
from gemmport.backends import _opencldiscovery as discovery
from gemmport.backends._openclcontext import Current
from gemmport.backends._ordering import Between
from gemmport.backends._staging import Wait
from gemmport.backends.array import DeviceArray
from gemmport.backends.base import Backend, HostArray, Launcher, Places
from gemmport.backends.objects import Call, Disassembly, Discovery, Event, Memory, Place, Program, Resources
from gemmport.core.device import DeviceInfo
from gemmport.core.errors import (
    ArrayError,
    CompileError,
    DeviceNotFoundError,
    GemmportError,
    InstructionsError,
    LaunchError,
    TensorMapError,
)
from gemmport.core.plan import TensorMap
from gemmport.core.quirks import quirks_of
from gemmport.runtime.kept import keep, last

if TYPE_CHECKING:
    import pyopencl.array

    from gemmport.backends import _cudadriver

log = logging.getLogger(__name__)

# What fills memory byte by byte loses the queue beyond 2³¹ bytes (nvidia-byte-fills): bytes are set by sixteens, a gigabyte at
# a time.
_FILL_BYTES = 2**30

_MOST_QUEUES = 64

_MOST_AHEAD = 256
"""Products that a CPU may be behind its callers, about."""

_LONGEST_WAIT, _LOOKS_AGAIN = 10.0, 2e-4
"""Seconds that a caller waits at most for a CPU that may be waiting for the caller; and from one look at it to the next."""


@dataclass(frozen=True)
class _Program(Program):
    """A program, and those of its kernels whose calls are gone: PyOpenCL takes 0.6 ms to make one.

    Attributes:
        idle: by function and number of arguments.
    """

    idle: dict[tuple[str, int], list[cl.Kernel]] = field(default_factory=dict, repr=False, compare=False)


@dataclass
class _Map:
    """A tensor map that a kernel has as an argument.

    Attributes:
        address: its first word: where the host believes memory to be, or 0.
        others: its other bytes.
    """

    address: int
    others: bytes


@dataclass
class _Call(Call):
    """A call, with its kernel and geometry as C has them. When it is gone, another may have its kernel: what was enqueued has
    its arguments.

    Attributes:
        maps: its arguments that are tensor maps, by number.
        idle: where the kernel goes then.
    """

    maps: dict[int, _Map] = field(default_factory=dict)
    idle: list[cl.Kernel] = field(default_factory=list, init=False, repr=False, compare=False)

    @cached_property
    def in_c(self) -> tuple[object, ...]:
        return _opencldriver.arguments(self.native, self.extent, self.work_group)

    def __del__(self) -> None:
        self.idle.append(self.native)


class OpenCL(Backend):
    """One OpenCL device, in a context of its own or of another library."""

    name = "opencl"
    runtime_error: ClassVar[type[Exception]] = cl.Error
    memory_error: ClassVar[type[Exception]] = cl.MemoryError

    def __init__(self, device: DeviceInfo, context: Any = None) -> None:
        super().__init__(device, context)
        _runtimes.spare_caches_of_pyopencl()
        platform, number = device.index
        self._quirks = {known.id for known in quirks_of(device)}
        with self._errors:
            if context is not None:
                self._device = next(d for d in context.devices if discovery.described(d) == device)
            else:
                try:
                    self._device = discovery.platforms()[platform].get_devices()[number]
                except IndexError:
                    raise DeviceNotFoundError(
                        f"{device.label} is gone: OpenCL has no device {device.selector} now"
                    ) from None
            # Kept as long as the queue, which may not do it (intel-queue-context).
            self.context = context or cl.Context([self._device])
            profiling = cl.command_queue_properties.PROFILING_ENABLE
            self.queue = cl.CommandQueue(self.context, self._device, properties=profiling)
            self._current = Current(device, self.queue, self.lose)
            self._queues: dict[Any, None] = {}  # of callers, known to be right; kept, since handles are used again
            self._recent: Any = None  # the one of these that was given last
            self._queue_in_c = ctypes.c_void_p(self.queue.int_ptr)
            # An event for each launch holds a GPU's queue up (_opencldriver). It costs a CPU nothing, and ctypes half a µs.
            self._launches_without_events = device.type != "cpu"
            self._ahead = 0  # products that were enqueued since a CPU was last waited for, about
            # Events from outside that our own queue waits for, and that had not come when they were last looked at.
            self._from_outside: list[cl.Event] = []
            self._pool_lock = threading.RLock()
            # A CPU's runtime reads and writes the host's memory where it lies; some take its addresses as they are. To give
            # it back, it is mapped (rusticl-lost-maps).
            unified = device.type == "cpu" and bool(self._device.host_unified_memory)
            self._shares_memory = unified and "rusticl-lost-maps" not in self._quirks
            self._takes_addresses = bool(
                discovery.optional(self._device, "svm_capabilities") & cl.device_svm_capabilities.FINE_GRAIN_SYSTEM
            )
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # "expect non-deferred semantics": see _free below
                self._pool = cl.tools.MemoryPool(
                    cl.tools.ImmediateAllocator(self.queue)
                    if "pocl-first-use" in self._quirks
                    else cl.tools.DeferredAllocator(self.context)
                )

    # Devices

    @classmethod
    def discover(cls) -> Discovery:
        return discovery.discover()

    def environment(self) -> dict[str, str]:
        return {
            "pyopencl": cl.VERSION_TEXT,
            "platform": f"{self._device.platform.name} {self._device.platform.version}",
            "driver": self._device.driver_version,
        }

    def bus_id(self) -> str:
        return discovery.bus_id(self._device)

    @classmethod
    def locate(cls, foreign: Any) -> Place | None:
        if not _is_array(foreign):
            return None
        devices = [foreign.queue.device] if foreign.queue is not None else cast("cl.Context", foreign.context).devices
        if len(devices) > 1:
            raise ArrayError(
                f"this pyopencl array is in a context of {len(devices)} devices and has no queue that says on which it is: "
                "give it one (Array.with_queue)"
            )
        return Place(discovery.described(devices[0]), foreign.context)

    # Memory

    def _allocate(self, nbytes: int) -> Memory:
        with self.current(), self._pool_lock:
            block = self._pool.allocate(nbytes)
        return Memory(block, block.int_ptr, nbytes, partial(_free, self._pool_lock, block))

    def _use_first(self, foreign: cl.MemoryObjectHolder) -> None:
        """Has another library's buffer be used before our own threads are two who do so at once (pocl-first-use)."""
        if "pocl-first-use" in self._quirks:
            with self.current(), self._pool_lock:
                buffer = cast("cl.Buffer", cl.Buffer.from_int_ptr(foreign.int_ptr))  # what is of a pool is no cl.Buffer
                cl.enqueue_migrate_mem_objects(self.queue, [buffer])

    def _wrap(self, foreign: Any, home: Any) -> DeviceArray | None:
        if not _is_array(foreign):
            return None
        if foreign.context != self.context:
            raise ArrayError(f"this pyopencl array is in another context; make it in that of {self!r} (its .context)")
        if not foreign.size:
            return DeviceArray.dense(self, self._allocate(1), foreign.shape, foreign.dtype)
        buffer = foreign.base_data
        if not isinstance(buffer, cl.MemoryObjectHolder):
            raise ArrayError(f"this pyopencl array is in a {type(buffer).__name__}: only buffers are read in place")
        self._use_first(buffer)
        memory = Memory(buffer, buffer.int_ptr, buffer.size)
        memory.access.home = memory.access.writer = self.as_owner(foreign.queue if home is None else home)
        if foreign.events:
            self.wait([Event(event) for event in foreign.events], queue=memory.access.home)
        size = foreign.dtype.itemsize
        strides = tuple(s // size for s in foreign.strides)
        return DeviceArray(self, memory, foreign.shape, foreign.dtype, strides, foreign.offset // size)

    def _wrap_buffer(self, buffer: Any, nbytes: int, keeper: object) -> Memory:
        if not isinstance(buffer, cl.MemoryObjectHolder):
            raise ArrayError(f"buffer must be a pyopencl.Buffer; got {buffer!r}")
        if buffer.context != self.context:
            raise ArrayError(f"this buffer is in another context; make it in that of {self!r} (its .context)")
        self._use_first(buffer)
        return Memory(buffer, buffer.int_ptr, buffer.size, keeper=keeper)

    def _borrow(self, data: HostArray) -> Memory | None:
        if not self._shares_memory:
            return None
        read_only = not data.flags.writeable
        if self._takes_addresses and not read_only:  # PyOpenCL asks for memory that may be written
            shared = cl.SVM(data)  # which asks nothing of the runtime
            return Memory(shared, shared.svm_ptr, data.nbytes, alignment=data.itemsize)
        use = cl.mem_flags.READ_ONLY if read_only else cl.mem_flags.READ_WRITE
        with self.current():
            buffer = cl.Buffer(self.context, use | cl.mem_flags.USE_HOST_PTR, hostbuf=data)
        return Memory(buffer, buffer.int_ptr, data.nbytes, alignment=data.itemsize, read_only=read_only)

    def give_back(self, memory: Memory, *, queue: Any = None) -> None:
        with self.current():
            queue = queue or self.queue
            if isinstance(memory.native, cl.SVM):
                queue.finish()
                return
            size, byte = (memory.nbytes,), np.dtype(np.uint8)
            mapped, _ = cl.enqueue_map_buffer(queue, memory.native, cl.map_flags.READ, 0, size, byte)
            cast("cl.MemoryMap", mapped.base).release(queue)

    def _upload(self, memory: Memory, data: HostArray, offset: int, queue: Any) -> None:
        with self.current():
            cl.enqueue_copy(queue or self.queue, memory.native, data, dst_offset=offset, is_blocking=True)

    def _download(self, memory: Memory, out: HostArray, offset: int, queue: Any) -> None:
        with self.current():
            cl.enqueue_copy(queue or self.queue, out, memory.native, src_offset=offset, is_blocking=True)

    def _copy(self, source: Memory, target: Memory, nbytes: int, queue: Any) -> None:
        with self.current():
            cl.enqueue_copy(queue or self.queue, target.native, source.native, byte_count=nbytes)

    def _part(self, memory: Memory, offset: int) -> Memory | None:
        nbytes = memory.nbytes - offset
        if isinstance(memory.native, cl.SVM):
            return Memory(_shared(memory.handle + offset, nbytes), memory.handle + offset, nbytes)
        if offset * 8 % self._device.mem_base_addr_align:
            return None
        with self.current():
            whole = cast("cl.Buffer", cl.Buffer.from_int_ptr(memory.handle))
            if whole.get_info(cl.mem_info.ASSOCIATED_MEMOBJECT) is not None:  # a part has no parts
                return None
            native = whole.get_sub_region(offset, nbytes)
        return Memory(native, native.int_ptr, nbytes)

    def _fill(self, memory: Memory, byte: int, queue: Any) -> None:
        with self.current():
            queue, native = queue or self.queue, memory.native
            pattern = np.full(16, byte, np.uint8)
            rest = memory.nbytes % pattern.size
            whole = memory.nbytes - rest
            for start in range(0, whole, _FILL_BYTES):
                cl.enqueue_fill_buffer(queue, native, pattern, start, min(_FILL_BYTES, whole - start))
            if rest and whole:  # a copy: single bytes beyond 2³¹ are lost, too (nvidia-byte-fills)
                cl.enqueue_copy(queue, native, native, byte_count=rest, src_offset=0, dst_offset=whole)
            elif rest:
                cl.enqueue_fill_buffer(queue, native, pattern[:1], 0, rest)

    def host_buffer(self, nbytes: int) -> HostArray:
        if self.device.type == "cpu":
            return super().host_buffer(nbytes)
        flags = cast("cl.map_flags", cl.map_flags.READ | cl.map_flags.WRITE)
        with self.current():
            buffer = cl.Buffer(self.context, cl.mem_flags.READ_WRITE | cl.mem_flags.ALLOC_HOST_PTR, max(nbytes, 1))
            mapped, _ = cl.enqueue_map_buffer(self.queue, buffer, flags, 0, (max(nbytes, 1),), np.dtype(np.uint8))
        return cast("HostArray", mapped)[:nbytes]  # unmapped when nothing refers to it

    def _is_pageable(self, data: HostArray) -> bool:
        if self.device.platform != "nvidia":  # others were not measured
            return False
        owner: Any = data
        while isinstance(owner, np.ndarray):
            owner = owner.base
        return not isinstance(owner, cl.MemoryMap)  # of `host_buffer`

    def _begin_upload(self, memory: Memory, data: HostArray, offset: int, queue: Any) -> Wait:
        with self.current():
            queue = queue or self.queue
            sent = cl.enqueue_copy(queue, memory.native, data, dst_offset=offset, is_blocking=False)
            queue.flush()
        return partial(self._await, sent)

    def _begin_download(self, memory: Memory, out: HostArray, offset: int, queue: Any) -> Wait:
        with self.current():
            queue = queue or self.queue
            arrived = cl.enqueue_copy(queue, out, memory.native, src_offset=offset, is_blocking=False)
            queue.flush()
        return partial(self._await, arrived)

    def _await(self, event: cl.Event) -> None:
        with self.current():
            event.wait()

    def _address(self, memory: Memory) -> tuple[int, int]:
        with self.current():
            buffer = memory.native
            if buffer is None:  # released
                return 0, 0
            if isinstance(buffer, cl.SVM):
                return memory.handle, 0
            whole = buffer.get_info(cl.mem_info.ASSOCIATED_MEMOBJECT)
            if whole is None:
                return int(buffer.int_ptr), 0
            return int(whole.int_ptr), int(buffer.get_info(cl.mem_info.OFFSET))  # a part of another buffer

    # Programs

    def compiler(self) -> str:
        return f"{self.device.platform_name} {self.device.driver}"

    def compile(self, source: str) -> Program:
        if _compilation.SPECIFIC in source:
            return self._completed(source)
        program = self._build(source)
        return _Program(program, b"" if self._keeps_programs() else disassembly.binary_of(program), source)

    def _completed(self, source: str) -> Program:
        """A program with the instructions that the compiler left for later, without which it never runs.

        OpenCL's own linker makes machine code of it. CUDA's refuses more than 48 KB of local memory in a program
        (driver 580.159.04: CUDA_ERROR_INVALID_SOURCE).
        """
        try:
            ptx = disassembly.binary_of(self._build(source))
            return self.load(_with_residency(_completion.completed(ptx, source), source), source)
        except InstructionsError:
            raise
        except CompileError as error:
            raise InstructionsError(
                f"this driver's OpenCL refuses a program with the instructions of sm_90a: {error}; choose another kernel",
                log=error.log,
                source=error.source,
            ) from error

    @cached_property
    def _cuda(self) -> _cudadriver.PrimaryContext:
        """What makes programs and tensor maps of an NVIDIA device here.

        Raises:
            ValueError: OpenCL's driver does not tell the device's architecture.
        """
        from gemmport.backends import _cudadriver  # noqa: PLC0415 - for NVIDIA's devices alone

        context = _cudadriver.PrimaryContext(_capability(self.device), self.bus_id())
        weakref.finalize(self, context.release).atexit = False  # the process's end gives it back sooner
        return context

    def _reworked(self, program: Program) -> bytes:
        """The cubin that CUDA's linker makes of a program of NVIDIA's runtime, whose binary is PTX; for as many groups to a
        compute unit as the source says, and rescheduled, where it asks that its code be rescheduled. The PTX where it cannot.
        """
        from gemmport.backends import _cudadriver, _sass  # noqa: PLC0415 - for NVIDIA's devices alone

        groups, ptx = _sass.asked_for(program.source), program.binary
        try:
            cubin = _cudadriver.linked(_with_residency(ptx, program.source) if groups else ptx, self._cuda)
        except (OSError, ValueError, LaunchError) as error:
            log.warning("%s: the program stays as the driver makes it: %s", self.device.label, error)
            return ptx
        return _improvement.rescheduled(cubin, groups) if groups else cubin

    @property
    def compiles_at_once(self) -> bool:
        # Its driver takes several programs at a time, each in a thread (580.159.04, docs/startup.md).
        return self.device.platform == "nvidia"

    @property
    def compiles_beside(self) -> bool:
        return self.compiles_at_once

    @property
    def _compiles_after_callers(self) -> bool:
        # Its driver has a lock (580.159.04): they took up to twice as long (docs/startup.md).
        return self.device.platform == "nvidia"

    def _compiled_beside(self, source: str) -> Program:
        return self.compile(source)

    def load(self, binary: bytes, source: str) -> Program:
        with self.current():
            program = _openclbuild.from_binary(self.context, self._device, binary, source, self.options())
        return _Program(program, binary, source)

    def _keeps_programs(self) -> bool:
        # PoCL has a cache of its own unless it is told not to. Asked for a program's binary, it compiles every kernel once
        # more, for groups of any size: up to a second, for what no launch uses.
        return self.device.platform == "pocl" and os.environ.get("POCL_KERNEL_CACHE") != "0"

    def _build(self, source: str, *options: str) -> Any:
        with self.current():
            return _openclbuild.from_source(self.context, self._device, source, [*self.options(), *options])

    # Execution

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
        native = [a.native if isinstance(a, Memory) else a for a in arguments]
        native += [cl.LocalMemory(dynamic_local_bytes)] if dynamic_local_bytes else []
        with self.current():
            try:
                # A kernel object keeps its arguments and is not thread-safe: each call has its own.
                idle = cast("_Program", program).idle.setdefault((function, len(native)), [])
                kernel = last(idle) or cl.Kernel(program.native, function)
                # One by one: set_args would write, compile and cache a function of Python for it.
                for number, value in enumerate(native):
                    kernel.set_arg(number, value)
                most = self._most_work_items(kernel)
            except (cl.Error, TypeError) as error:
                raise LaunchError(f"{self.device.label}: {function} cannot be prepared: {error}") from error
        self.check_work_group(function, work_group, most)
        maps = {
            number: _Map(int.from_bytes(value.tobytes()[:8], "little"), value.tobytes()[8:])
            for number, value in enumerate(native)
            if isinstance(value, np.void)
        }
        call = _Call(program, function, kernel, groups, work_group, maps)
        call.idle = idle
        return call

    def _most_work_items(self, kernel: cl.Kernel) -> int:
        ask = cl.kernel_work_group_info
        most = int(kernel.get_work_group_info(ask.WORK_GROUP_SIZE, self._device))
        if "rusticl-group-limit" in self._quirks:
            multiple = kernel.get_work_group_info(ask.PREFERRED_WORK_GROUP_SIZE_MULTIPLE, self._device)
            return self.device.max_work_group if most == multiple else most
        if "nvidia-groups-of-256" in self._quirks:
            # Registers are shared out for the group that the source requires: in that it runs (nvidia-groups-of-256).
            return max(most, math.prod(kernel.get_work_group_info(ask.COMPILE_WORK_GROUP_SIZE, self._device)))
        return most

    def tensor_map(self, told: TensorMap, memory: Memory) -> np.void:
        if self.device.platform != "nvidia":
            return super().tensor_map(told, memory)
        from gemmport.backends import _tensormaps  # noqa: PLC0415 - for NVIDIA's devices alone

        try:
            with self._cuda.current():
                return np.void(_tensormaps.encoded(told, 0))
        except (OSError, ValueError) as error:
            raise TensorMapError(f"tensor maps need CUDA's driver: {error}; choose another kernel") from error

    @staticmethod
    def argument(memory: Memory) -> Any:
        return memory.handle if isinstance(memory.native, cl.SVM) else memory.native

    @property
    def takes_addresses(self) -> bool:
        return self._takes_addresses

    def stand_in(self, argument: Any, nbytes: int) -> Memory:
        if isinstance(argument, int):
            return Memory(_shared(argument, nbytes), argument, nbytes)
        return Memory(argument, argument.int_ptr, nbytes)

    def set_memory(self, call: Call, places: Places, memory: Sequence[Any]) -> None:
        maps = cast("_Call", call).maps
        for number, operand in places:
            given = memory[operand]
            if number in maps:
                self._place(call, number, self._guesses.address(given))
            else:
                call.native.set_arg(number, _shared(given, 1) if isinstance(given, int) else given)

    def _place(self, call: Call, number: int, address: int) -> None:
        """Puts an address into a tensor map: kernels look whether it is that of their memory."""
        placed = cast("_Call", call).maps[number]
        if placed.address != address:
            call.native.set_arg(number, np.void(address.to_bytes(8, "little") + placed.others))
            placed.address = address

    @cached_property
    def _guesses(self) -> _addresses.Addresses:
        """Where memory is."""
        try:
            program = self.program(_addresses.SOURCE).native
        except GemmportError as error:  # kernels find it out by themselves, and take longer
            log.warning("%s: it is not found out where memory lies: %s", self.device.label, error)
            program = None
        return _addresses.Addresses(self.context, self._device, program)

    def launch(self, call: Call, *, queue: Any = None, wait_for: Sequence[Event] = ()) -> None:
        if wait_for:
            self.wait(wait_for, queue=queue)
        with self.current():
            if self._launches_without_events:
                handle = self._queue_in_c if queue is None else ctypes.c_void_p(queue.int_ptr)
                if _opencldriver.enqueue(handle, *cast("_Call", call).in_c) == _opencldriver.SUCCESS:
                    return
            # Where the former failed, PyOpenCL collects garbage if memory is short, tries again, and says what is wrong.
            cl.enqueue_nd_range_kernel(queue or self.queue, call.native, call.extent, call.work_group)

    def launcher(self, calls: Sequence[tuple[Call, Places]]) -> Launcher:
        maps, others = [], []
        for call, places in calls:
            mapped = cast("_Call", call).maps
            maps += [(call, *place) for place in places if place[0] in mapped]
            others.append([place for place in places if place[0] not in mapped])
        launches = [
            (call.native, call.extent, call.work_group, own) for (call, _), own in zip(calls, others, strict=True)
        ]
        script = _opencldriver.script(launches, events=not self._launches_without_events)
        if _scripts.launching is None or not script:
            return super().launcher(calls)
        run, own, count = _scripts.launching.opencl, int(self.queue.int_ptr), len(calls)
        outruns = self.device.type == "cpu"

        def launch(memory: tuple[Any, ...], queue: Any, marked: bool) -> Event | None:
            if self.closed:
                self.check_open()
            where = self.as_queue(queue)
            for call, number, operand in maps:
                self._place(call, number, self._guesses.guess(memory[operand]))
            made, last = run(script, own if where is None else where.int_ptr, memory, marked)
            if outruns:
                self._catch_up(where)
            for call, places in calls[made:] if made < count else ():
                self.set_memory(call, places, memory)
                self.launch(call, queue=where)  # or it says what is wrong
            if not marked:
                return None
            return Event(cl.Event.from_int_ptr(last, retain=False)) if last else self.mark(queue=where)

        return launch

    def _catch_up(self, queue: Any) -> None:
        """Waits now and then for products that a CPU has not computed yet, which nobody else has waited for.

        Launches in C outrun a busy CPU. clFinish of Intel's runtime (2026.22) waits for what other threads enqueue meanwhile,
        too, and so for ever. On our own queue the work itself is waited for, however long it takes. Where it may wait for an
        event that the caller sets later, the wait ends: on a caller's queue, and on ours for events from outside.
        """
        self._ahead += 1
        if self._ahead > _MOST_AHEAD:
            self._ahead = 0
            with self.current():
                reached = cl.enqueue_marker(queue or self.queue)
                (queue or self.queue).flush()
            end = time.monotonic() + _LONGEST_WAIT
            while _is_to_come(reached) and (time.monotonic() < end or (queue is None and not self._waits_for_others())):
                time.sleep(_LOOKS_AGAIN)

    def _waits_for_others(self) -> bool:
        """Whether our own queue waits for an event from outside."""
        self._from_outside = [event for event in self._from_outside if _is_to_come(event)]
        return bool(self._from_outside)

    def disassemble(self, call: Call) -> Disassembly:
        ask = cl.kernel_work_group_info
        if self.device.platform == "pocl":  # it compiles a kernel for the size of its groups when it is launched
            self.launch(call)
            self.synchronize()
        with self.current():
            resources = Resources(
                private_bytes=int(call.native.get_work_group_info(ask.PRIVATE_MEM_SIZE, self._device)),
                local_bytes=int(call.native.get_work_group_info(ask.LOCAL_MEM_SIZE, self._device)),
                max_work_items=self._most_work_items(call.native),
            )
        return disassembly.disassembled(call, resources, self.device, self._device, self._build)

    def record(self, *, queue: Any = None) -> Event:
        with self.current():
            if "rusticl-event-clock" in self._quirks:
                (queue or self.queue).finish()
                return super().record()
            return Event(cl.enqueue_marker(queue or self.queue))

    def mark(self, *, queue: Any = None) -> Event:
        with self.current():
            marker = cl.enqueue_marker(queue or self.queue)
            (queue or self.queue).flush()  # what waits for it on another queue would not start it
            return Event(marker)

    def wait(self, events: Sequence[Event], *, queue: Any = None) -> None:
        natives = [event.native for event in events if event.native is not None]
        for native in natives:
            if not isinstance(native, cl.Event):
                raise LaunchError(f"event must be one of gemmport or PyOpenCL; got {native!r}")
        if natives:
            with self.current():
                cl.enqueue_barrier(queue or self.queue, wait_for=natives)
            if self.device.type == "cpu" and (queue is None or queue == self.queue):
                if len(self._from_outside) > _MOST_AHEAD:
                    self._waits_for_others()  # which forgets those that came
                self._from_outside += natives

    def new_queue(self) -> Any:
        profiling = cl.command_queue_properties.PROFILING_ENABLE
        with self.current():
            return cl.CommandQueue(self.context, self._device, properties=profiling)

    def as_queue(self, queue: Any) -> Any:
        if queue is self._recent:  # as usual: to compare objects takes less than to ask them for their handles
            return queue
        if isinstance(queue, cl.CommandQueue) and queue in self._queues:
            self._recent = queue
            return queue
        queue = self.as_owner(queue)
        if queue is None:
            return None
        if _has_no_order(queue):
            raise LaunchError("queue must run its commands in order; got one that does not: pass another")
        keep(self._queues, queue, None, _MOST_QUEUES)
        return queue

    def as_owner(self, queue: Any) -> Any:
        if queue is None:
            return None
        if not isinstance(queue, cl.CommandQueue):
            raise LaunchError(f"queue must be a pyopencl.CommandQueue of {self.device.label}; got {queue!r}")
        if queue == self.queue:
            return None
        with self.current():  # whose context may be gone (intel-queue-context)
            ours = queue.context == self.context and queue.device == self._device
        if not ours:
            raise LaunchError(f"this queue is of another context or device; make it with the .context of {self!r}")
        return queue

    def in_order(self, queue: Any) -> tuple[Any, AbstractContextManager[None]]:
        if queue is not self._recent and isinstance(queue, cl.CommandQueue) and _has_no_order(queue):
            return None, Between(self, self.as_owner(queue), None)
        return super().in_order(queue)

    def elapsed(self, start: Event, end: Event) -> float:
        if start.seconds is not None:
            return super().elapsed(start, end)
        with self.current():
            end.native.wait()
            return float(end.native.profile.end - start.native.profile.end) * 1e-9

    def synchronize(self) -> None:
        with self.current():
            self.queue.finish()

    def current(self) -> AbstractContextManager[Any]:
        self.check_open()
        return self._current

    @property
    def survives_forks(self) -> bool:
        return self.device.platform == "intel" and self.device.type == "cpu"

    @property
    def queue_handle(self) -> int:
        return int(self.queue.int_ptr)

    def _close(self) -> None:
        with self._current:
            try:
                self.queue.finish()
            finally:
                self._programs.known.clear()
                self._queues.clear()
                self.__dict__.pop("_guesses", None)
                if (context := self.__dict__.get("_cuda")) is not None:
                    context.release()
                with self._pool_lock:
                    self._pool.stop_holding()


def _has_no_order(queue: cl.CommandQueue) -> bool:
    """Whether a queue runs its commands in any order."""
    return bool(queue.properties & cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE)


def _is_to_come(event: cl.Event) -> bool:
    """Whether what an event stands for is neither done nor has failed."""
    return bool(event.command_execution_status > cl.command_execution_status.COMPLETE)


def _shared(address: int, nbytes: int) -> cl.SVM[Any]:
    """Memory of the host's that kernels take by its address."""
    return cl.SVM((ctypes.c_char * nbytes).from_address(address))


# PyOpenCL does not say that its pool is thread-safe: a lock keeps threads apart, whoever drops the last reference. The pool's
# allocator is the deferred one. The immediate one also uses new memory, and does not wait for that: NVIDIA's runtime crashes
# (nvidia-immediate-allocator), and PoCL 3.0 needs it (pocl-first-use). The price of the deferred one is that a device that is
# out of memory says so at the first use of what was allocated.


def _free(lock: threading.RLock, block: Any) -> None:
    with lock:
        block.release()


def _is_array(foreign: Any) -> TypeGuard[cl.array.Array]:
    """Whether it is an array of PyOpenCL's, whose module was then imported by whoever made it."""
    module = sys.modules.get("pyopencl.array")
    return module is not None and isinstance(foreign, module.Array)


def _capability(device: DeviceInfo) -> int:
    """The compute capability, times ten.

    Raises:
        ValueError: the driver does not tell the device's architecture.
    """
    return int(device.architecture.removeprefix("sm_"))


def _with_residency(ptx: bytes, source: str) -> bytes:
    """PTX that says how many groups a compute unit shall hold, if the source does: RESIDENT of the prelude, with GROUPS."""
    groups = _compilation.residency(source)
    if not groups:
        return ptx
    return re.sub(rb"^(\.reqntid [^\n]*)$", rb"\1\n.minnctapersm " + groups.encode(), ptx, flags=re.MULTILINE)
