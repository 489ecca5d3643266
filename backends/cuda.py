"""CUDA through PyCUDA (devices, contexts, the pool of memory), the driver itself (all else) and NVRTC (compilation)."""

from __future__ import annotations

import struct
import threading
import weakref
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, cast

import numpy as np
import pycuda
import pycuda.driver as cu
import pycuda.tools

from gemmport.backends import (
    _compilation,
    _cudadriver,
    _cudahost,
    _fork,
    _improvement,
    _nvrtc,
    _sass,
    _scripts,
    _tensormaps,
)
from gemmport.backends import _cudadiscovery as discovery
from gemmport.backends import _cudagraphs as graphs
from gemmport.backends import _cudamodules as modules
from gemmport.backends import _cudastreams as streams
from gemmport.backends._cudacontext import Current, primary
from gemmport.backends._staging import Wait
from gemmport.backends.array import DeviceArray, dense_strides
from gemmport.backends.base import Backend, HostArray, Launcher, Places
from gemmport.backends.objects import Access, Call, Disassembly, Discovery, Event, Memory, Place, Program
from gemmport.core import dlpack
from gemmport.core.device import DeviceInfo
from gemmport.core.errors import (
    ArrayError,
    CompileError,
    DeviceLostError,
    DeviceNotFoundError,
    LaunchError,
)
from gemmport.core.plan import TensorMap
from gemmport.core.problem import alignment_of
from gemmport.runtime.kept import keep

_MOST_STREAMS = 64
"""That are known by their numbers at a time."""

_NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING: never waits for the legacy stream, as those of PyTorch and CuPy


@dataclass
class _Call(Call):
    """A call, with its geometry and arguments as the driver takes them.

    Attributes:
        native: the kernel.
        enqueue: launches it.
    """

    enqueue: modules.Launch


class CUDA(Backend):
    """One CUDA device, in its primary context, which PyTorch, CuPy and JAX use too."""

    name = "cuda"
    runtime_error: ClassVar[type[Exception]] = cu.Error
    memory_error: ClassVar[type[Exception]] = cu.MemoryError

    def __init__(self, device: DeviceInfo, context: Any = None) -> None:
        super().__init__(device, context)
        number = device.index[1]
        with self._errors:
            discovery.initialize()
            if number >= cu.Device.count():
                raise DeviceNotFoundError(f"{device.label} is gone: CUDA has no device {device.selector} now")
            self.context = context or primary(number)
            self._context_handle = int(self.context.handle)
            self._current = Current(device, self.context, self.lose)
            self._streams: dict[int, streams.Stream] = {}  # that were told by a number, without whoever keeps them
            with self.current():
                self.queue = streams.created(self.context)
                self._queue_handle = int(self.queue.handle)
                self._pool_lock = threading.RLock()
                self._pool = pycuda.tools.DeviceMemoryPool()
        self._draining = weakref.finalize(self, _drain, self.context, self._pool)

    # Devices

    @classmethod
    def discover(cls) -> Discovery:
        return discovery.discover()

    def environment(self) -> dict[str, str]:
        return {
            "pycuda": pycuda.VERSION_TEXT,
            "platform": f"CUDA {self.device.platform_version}",
            "driver": self.device.driver,
            "compiler": self.compiler(),
        }

    def bus_id(self) -> str:
        with self._errors:
            return str(cu.Device(self.device.index[1]).pci_bus_id())

    @classmethod
    def locate(cls, foreign: Any) -> Place | None:
        discovery.initialize()
        if _on_gpu(foreign):
            number = dlpack.device_of(foreign)[1]
        elif (told := _interface(foreign)) is not None:
            pointer = int(told["data"][0])  # that of an empty array may point nowhere
            number = _cudadriver.pointer_device(pointer) if pointer else 0
        else:
            return None
        return Place(discovery.described(number))

    # Memory

    def _allocate(self, nbytes: int) -> Memory:
        with self.current(), self._pool_lock, _cudadriver.Relaxed():
            block = self._pool.allocate(nbytes)
        return Memory(block, int(block), nbytes, partial(self._free, block))

    def _free(self, block: Any) -> None:
        self.context.push()
        with self._pool_lock:
            if self.closed:  # the pool holds nothing any more: it has the driver free the block
                with _cudadriver.Relaxed():
                    block.free()
            else:
                block.free()
        cu.Context.pop()

    def _wrap(self, foreign: Any, home: Any) -> DeviceArray | None:
        stream, is_told = None if home is None else self.as_queue(home), True
        if (told := _interface(foreign)) is not None:
            if home is None and told.get("stream") is not None:
                stream = self.as_queue(int(told["stream"]))
            elif home is None:
                stream = self.as_queue(streams.LEGACY_HANDLE)
            dtype, shape = np.dtype(told["typestr"]), tuple(told["shape"])
            given = told.get("strides")
            if given is not None and any(step % dtype.itemsize for step in given):
                raise ArrayError(
                    f"strides must be multiples of the {dtype.itemsize} bytes of {dtype}; got {given}: copy the array first"
                )
            strides = dense_strides(shape) if given is None else tuple(step // dtype.itemsize for step in given)
            (pointer, read_only), owner, writer = told["data"], foreign, stream
        elif _on_gpu(foreign):
            # The producer makes the stream that it is given wait; where its own is known, memory's order does.
            told_of = dlpack.read(foreign.__dlpack__(stream=-1 if home is not None else self.queue_handle))
            pointer, dtype, shape, strides = told_of.pointer, told_of.dtype, told_of.shape, told_of.strides
            read_only, owner, writer = told_of.read_only, told_of.owner, stream
            if home is None:
                stream, writer, is_told = self.as_queue(streams.LEGACY_HANDLE), None, streams.is_on_legacy(foreign)
        else:
            return None
        if pointer % dtype.itemsize:
            raise ArrayError(f"the array starts at {pointer:#x}, which is not aligned to {dtype}: copy it first")
        array = DeviceArray(self, Memory(owner, 0, 0), shape, dtype, strides)
        low, high = array.reach
        start = pointer + low * dtype.itemsize
        nbytes = (high - low) * dtype.itemsize
        memory = Memory(owner, start, nbytes, alignment=alignment_of(start), read_only=read_only)
        memory.access.home, memory.access.writer = stream, writer
        memory.access.shared = not is_told  # its owner may use it again on any stream
        if pointer:
            self._check_pointer(pointer)
        return DeviceArray(self, memory, shape, dtype, strides, -low)

    def _wrap_buffer(self, buffer: Any, nbytes: int, keeper: object) -> Memory:
        pointer = int(buffer)
        self._check_pointer(pointer)
        return Memory(buffer, pointer, nbytes, alignment=pointer & -pointer, keeper=keeper)

    def _check_pointer(self, pointer: int) -> None:
        """Raises ArrayError where a pointer is not this device's, in the context that libraries share."""
        with self.current():
            number, context = _cudadriver.pointer_device(pointer), _cudadriver.pointer_context(pointer)
        if number != self.device.index[1]:
            raise ArrayError(f"this array is on CUDA device {number}, not on {self.device.label}")
        if context not in (0, self._context_handle):
            raise ArrayError(
                "this array is in a CUDA context of its own, which other libraries do not share; make it in the device's "
                "primary context (with PyCUDA: import pycuda.autoprimaryctx instead of pycuda.autoinit)"
            )

    def _upload(self, memory: Memory, data: HostArray, offset: int, queue: Any) -> None:
        with self.current():
            streams.upload(memory.handle + offset, data, self._handle(queue))

    def _download(self, memory: Memory, out: HostArray, offset: int, queue: Any) -> None:
        with self.current():
            streams.download(memory.handle + offset, out, self._handle(queue))

    def _copy(self, source: Memory, target: Memory, nbytes: int, queue: Any) -> None:
        with self.current():
            streams.copy(source.handle, target.handle, nbytes, self._handle(queue))

    def _part(self, memory: Memory, offset: int) -> Memory | None:
        return Memory(memory.native, memory.handle + offset, memory.nbytes - offset)

    def _fill(self, memory: Memory, byte: int, queue: Any) -> None:
        with self.current():
            streams.fill(memory.handle, byte, memory.nbytes, self._handle(queue))

    def host_buffer(self, nbytes: int) -> HostArray:
        with self.current():
            return _cudahost.pinned(max(nbytes, 1), self.context)[:nbytes]

    def _is_pageable(self, data: HostArray) -> bool:
        with self.current():
            return _cudahost.is_pageable(data)

    def _begin_upload(self, memory: Memory, data: HostArray, offset: int, queue: Any) -> Wait:
        with self.current():
            stream = self._handle(queue)
            streams.enqueue_upload(memory.handle + offset, data, stream)
            return partial(self._await, streams.record(stream))

    def _begin_download(self, memory: Memory, out: HostArray, offset: int, queue: Any) -> Wait:
        with self.current():
            stream = self._handle(queue)
            streams.enqueue_download(memory.handle + offset, out, stream)
            return partial(self._await, streams.record(stream))

    def _await(self, event: streams.StreamEvent) -> None:
        with self.current():
            streams.await_event(event)

    @property
    def free_memory(self) -> int:
        with self.current(), _cudadriver.Relaxed():
            return int(cu.mem_get_info()[0])

    @property
    def dlpack_device(self) -> tuple[int, int] | None:
        return dlpack.CUDA, self.device.index[1]

    def share(self, memory: Memory, stream: int | None) -> int:
        writer = self._handle(memory.access.writer)
        with self.current():
            if stream != -1:
                streams.join(streams.LEGACY_HANDLE if stream in (None, 0, 1) else int(stream or 0), writer)
        memory.access.shared = True
        return writer or 1  # in the array interface 0 is not allowed, and 1 is the legacy stream

    def reaches(self, other: DeviceInfo) -> bool | None:
        if other.backend != self.name:
            return None
        with self._errors:
            return bool(cu.Device(self.device.index[1]).can_access_peer(cu.Device(other.index[1])))

    def copy_from(
        self, other: Backend, source: Memory, target: Memory, nbytes: int, *, source_offset: int = 0, offset: int = 0,
        sender: Any = None, queue: Any = None,
    ) -> bool:  # fmt: skip
        if not isinstance(other, CUDA):
            return False
        self.wait([other.mark(queue=sender)], queue=queue)
        with self.current():
            if other.device.index not in (reached := self.kept.setdefault("devices that it reaches", set())):
                reached.add(other.device.index)
                streams.let_reach(other._context_handle)
            streams.copy_between(
                source.handle + source_offset, other._context_handle, target.handle + offset, self._context_handle, nbytes,
                self._handle(queue),
            )  # fmt: skip
        return True

    # Programs

    def compiler(self) -> str:
        return _nvrtc.compiler()

    def compile(self, source: str) -> Program:
        return self.load(_nvrtc.compile_cuda(source, self.device.architecture), source)

    def _reworked(self, program: Program) -> bytes:
        return _improvement.rescheduled(program.binary, _sass.asked_for(program.source))

    @property
    def compiles_at_once(self) -> bool:
        return True

    @property
    def compiles_beside(self) -> bool:
        return True

    def _compiled_beside(self, source: str) -> Program:
        return self.load(_improvement.compiled(source, self.device.architecture), source)

    def _left(self, compiled: str, better: str, source: str, architecture: str = "") -> _improvement.Left:
        left = source if architecture else ""
        return _improvement.Left(compiled, better, _sass.asked_for(source), left, architecture)

    def load(self, binary: bytes, source: str) -> Program:
        with self.current():
            try:
                module = modules.Module(binary, self.context)
            except DeviceLostError:
                raise
            except LaunchError as error:
                raise CompileError("the CUDA driver refuses the program", log=str(error), source=source) from error
        return Program(module, binary, source)

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
        packed, offsets = _packed(arguments)
        with self.current():
            try:
                kernel = program.native.function(function)
                if dynamic_local_bytes > self.device.local_memory:
                    kernel.allow_shared(dynamic_local_bytes)
                most = kernel.attribute(modules.MAX_THREADS_PER_BLOCK)
            except DeviceLostError:
                raise
            except LaunchError as error:
                raise LaunchError(f"{function} cannot be prepared: {error}") from error
        self.check_work_group(function, work_group, most)
        early = _compilation.begins_early(program.source)
        launch = modules.Launch(kernel, groups, work_group, packed, offsets, dynamic_local_bytes, early=early)
        return _Call(program, function, kernel, groups, work_group, launch)

    def tensor_map(self, told: TensorMap, memory: Memory) -> np.void:
        with self.current():
            return np.void(_tensormaps.encoded(told, memory.handle))

    def pin(self, program: Program) -> None:
        program.native.pin()

    @staticmethod
    def argument(memory: Memory) -> int:
        return memory.handle

    def stand_in(self, argument: Any, nbytes: int) -> Memory:
        return Memory(None, argument, nbytes)

    def set_memory(self, call: Call, places: Places, memory: Sequence[Any]) -> None:
        launch = cast("_Call", call).enqueue
        for number, operand in places:
            launch.words[launch.places[number]] = memory[operand]

    def launch(self, call: Call, *, queue: Any = None, wait_for: Sequence[Event] = ()) -> None:
        if wait_for:
            self.wait(wait_for, queue=queue)
        with self.current():
            cast("_Call", call).enqueue(self._handle(queue))

    def launcher(self, calls: Sequence[tuple[Call, Places]]) -> Launcher:
        if _scripts.launching is None:
            return super().launcher(calls)
        run = _scripts.launching.cuda
        launches = [(cast("_Call", call).enqueue, places) for call, places in calls]
        script = modules.script(launches, self._context_handle)

        # The script has addresses in what the launches hold: they stay as long as this.
        def launch(memory: tuple[int, ...], queue: Any, marked: bool, _held: object = launches) -> Event | None:
            if self.closed:
                self.check_open()
            stream = queue if type(queue) is int else self._handle(queue)
            result = run(script, stream, memory)  # in a program that uses PyTorch or CuPy, the context is current
            if result:
                with self.current():
                    result = run(script, stream, memory) if result == _scripts.ELSEWHERE else result
                    if result:
                        _cudadriver.fail(modules.LAUNCH, result)
            return self.mark(queue=queue) if marked else None

        return launch

    def disassemble(self, call: Call) -> Disassembly:
        told = _nvrtc.disassemble(call.program.source, self.device.architecture, call.function)
        with self.current():  # the driver knows also what it compiled itself, from PTX
            resources = replace(
                told.resources,
                registers=call.native.attribute(modules.REGISTERS),
                private_bytes=call.native.attribute(modules.LOCAL_BYTES),
                local_bytes=call.native.attribute(modules.SHARED_BYTES),
                max_work_items=call.native.attribute(modules.MAX_THREADS_PER_BLOCK),
            )
        return Disassembly(told.listings, resources)

    def record(self, *, queue: Any = None) -> Event:
        with self.current():
            return Event(streams.record(self._handle(queue), timed=True))

    def mark(self, *, queue: Any = None) -> Event:
        with self.current():
            return Event(streams.record(self._handle(queue)))

    def wait(self, events: Sequence[Event], *, queue: Any = None) -> None:
        with self.current():
            for event in events:
                if isinstance(event.native, cu.Event):
                    _join_event(self._handle(queue), event.native)
                else:
                    streams.wait(self._handle(queue), streams.event_handle(event.native))

    def new_queue(self) -> Any:
        with self.current():
            return streams.created(self.context)

    def as_queue(self, queue: Any) -> Any:
        if queue is None or queue is self.queue:
            return None
        if type(queue) is int and queue == streams.LEGACY_HANDLE:  # PyTorch's and CuPy's, mostly
            return streams.LEGACY
        if isinstance(queue, streams.Stream):
            return queue
        known = self._streams.get(queue) if type(queue) is int else None
        if (
            known is not None
            and not self.is_captured(queue)
            and known.number == streams.asked_at_once(streams.IDENTITY, queue)
        ):  # handles are used again
            return known
        handle = streams.stream_handle(queue)
        if handle is None:
            raise LaunchError(
                f"queue must be a stream of {self.device.label}: of PyCUDA, PyTorch or CuPy, with __cuda_stream__, or the "
                f"number of a CUstream; got {queue!r}"
            )
        if handle == self._queue_handle:
            return None
        if handle in (streams.LEGACY_HANDLE, 1):
            return streams.LEGACY
        with self.current():
            stream = streams.Stream(handle, None if isinstance(queue, int) else queue)
        if type(queue) is int and stream.number != streams.CAPTURED:
            keep(self._streams, queue, stream, _MOST_STREAMS)
        return stream

    def is_captured(self, queue: Any) -> bool:
        handle = queue if type(queue) is int else self._handle(queue)
        if handle in (streams.LEGACY_HANDLE, 1):  # which is never captured
            return False
        told = streams.asked_at_once(streams.CAPTURING, handle)
        if told is not None:
            return told != 0
        with self.current():
            return streams.is_capturing(handle)

    def _may_be_captured(self, access: Access) -> bool:
        """What another library has, its work on any stream may use: its current ones are asked, of this thread."""
        used: list[Any] = [access.writer, *access.readers]
        if access.shared:
            used += streams.current_of_libraries()
        return any(self.is_captured(queue) for queue in used if queue is not None)

    def _until_gone(self, queue: Any) -> Callable[[], bool]:
        with self.current():
            return graphs.until_gone(self._handle(queue))

    def _handle(self, queue: Any) -> int:
        """A caller's queue as a C library takes it."""
        if queue is None:
            return self._queue_handle
        if type(queue) is int:
            return queue
        known = self.as_queue(queue)
        if known is None:
            return self._queue_handle
        if known.handle == streams.PER_THREAD_HANDLE and known.number != streams.CAPTURED:
            here = self.as_queue(streams.PER_THREAD_HANDLE)
            if here.number not in (known.number, streams.CAPTURED):  # another thread's, which no handle reaches
                return streams.LEGACY_HANDLE  # waits for all threads' own, and they for it
        return int(known.handle)

    def elapsed(self, start: Event, end: Event) -> float:
        with self.current():
            return streams.elapsed(start.native, end.native)

    def synchronize(self) -> None:
        with self.current():
            streams.synchronize(self._queue_handle)

    def current(self) -> AbstractContextManager[Any]:
        self.check_open()
        return self._current

    @property
    def queue_handle(self) -> int:
        return self._queue_handle

    def _finish(self) -> None:
        with self.current(), _cudadriver.Relaxed():
            cu.Context.synchronize()

    def _close(self) -> None:
        with self._current:
            try:
                streams.synchronize(self._queue_handle)
            finally:
                self._programs.known.clear()
                with self._pool_lock, _cudadriver.Relaxed():
                    self._pool.stop_holding()
                self._draining.detach()


# PyCUDA's pool can be freed into, and emptied, only while its context is current; finalizers see to that wherever the last
# reference is dropped, and also at the end of the process. A lock keeps threads apart, as in the OpenCL backend.


def _drain(context: Any, pool: Any) -> None:
    """Empties a pool, of a backend that may be garbage: no graph that is captured just then is broken off."""
    if _fork.is_inherited(CUDA.name):
        return
    context.push()
    with _cudadriver.Relaxed():
        pool.stop_holding()
    cu.Context.pop()


def _join_event(stream: int, event: cu.Event) -> None:
    """Makes a stream wait for an event of PyCUDA's, which does not tell its handle: by way of a stream of PyCUDA's.

    That one is gone when this returns, while its context is current: elsewhere PyCUDA could not destroy it.
    """
    between = cu.Stream(_NON_BLOCKING)
    between.wait_for_event(event)
    streams.join(stream, int(between.handle))


_POINTER = struct.Struct("P")


def _packed(arguments: Sequence[Memory | np.generic]) -> tuple[bytearray, list[int]]:
    """A kernel's arguments in memory as in a C structure, and where each begins."""
    packed, offsets = bytearray(), []
    for argument in arguments:
        data = _POINTER.pack(argument.handle) if isinstance(argument, Memory) else argument.tobytes()
        # A tensor map begins with an address, too.
        alignment = _POINTER.size if isinstance(argument, Memory | np.void) else argument.dtype.alignment
        packed += bytes(-len(packed) % alignment)
        offsets.append(len(packed))
        packed += data
    packed += bytes(-len(packed) % modules.WORD)
    return packed, offsets


def _interface(foreign: Any) -> dict[str, Any] | None:
    """The array interface of another library's array. PyTorch's lacks types, and JAX's names no stream: they have DLPack."""
    if type(foreign).__module__.partition(".")[0] in ("torch", "jax", "jaxlib"):
        return None
    found: dict[str, Any] | None = getattr(foreign, "__cuda_array_interface__", None)
    if found is not None and found.get("mask") is not None:
        raise ArrayError("the array has a mask, which is not read: fill its elements first")
    return found


def _on_gpu(foreign: Any) -> bool:
    return dlpack.device_of(foreign)[0] in (dlpack.CUDA, dlpack.CUDA_MANAGED)
