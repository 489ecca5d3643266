"""OpenCL through PyOpenCL."""

from __future__ import annotations

import ctypes
import logging
import math
import os
import re
import sys
import threading
import uuid
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache, cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeGuard, cast

import numpy as np
import pyopencl as cl
import pyopencl.tools

from gemmport.backends import _compilation, _fork, _machinecode, _opencldriver, _runtimes
from gemmport.backends.array import DeviceArray
from gemmport.backends.base import Backend, HostArray
from gemmport.backends.objects import Call, Disassembly, Discovery, Event, Listing, Memory, Place, Program, Resources
from gemmport.core.device import DeviceInfo, DeviceType
from gemmport.core.errors import (
    ArrayError,
    BackendUnavailableError,
    CompileError,
    DeviceNotFoundError,
    LaunchError,
)
from gemmport.core.quirks import quirks_of, within_limits
from gemmport.runtime.host_cpu import data_caches

if TYPE_CHECKING:
    import pyopencl.array

log = logging.getLogger(__name__)

HOW_TO_GET_A_RUNTIME = (
    "install one, e.g. pip install 'gemmport[pocl]' or 'gemmport[intel]' (any x86-64 CPU), "
    "Debian's pocl-opencl-icd, or the OpenCL driver of your GPU"
)

# The platform's name in its own words → the alias people use.
_ALIASES = {
    "portable computing language": "pocl",
    "intel": "intel",
    "rusticl": "rusticl",
    "oclgrind": "oclgrind",
    "nvidia": "nvidia",
    "amd": "amd",
    "apple": "apple",
    "arm": "arm",
    "clover": "clover",
}

# What fills memory byte by byte loses the queue beyond 2³¹ bytes (nvidia-byte-fills): bytes are set by sixteens, a gigabyte at
# a time.
_FILL_BYTES = 2**30


# Why a runtime gives no machine code.
_NO_CODE = {
    "oclgrind": "it interprets LLVM's intermediate code, and has none",
    "rusticl": "its program binary is SPIR-V, which Mesa compiles at each launch",
}

# float32 lanes of the instruction sets that Intel's runtime for CPUs can be held to (OpenCL Developer Guide for Intel Core and
# Intel Xeon Processors, "Targeting a Different CPU Architecture").
_INTEL_LANES = {"core-avx2": 8, "corei7-avx": 8, "corei7": 4}

_POCL_SMALL_GRID = 2**16 - 1
"""Work-items along a dimension from which on PoCL's CPU devices compute indices in 64 bits."""


@dataclass(frozen=True)
class _Program(Program):
    """A program, and those of its kernels whose calls are gone: PyOpenCL takes 0.6 ms to make one.

    Attributes:
        idle: by function and number of arguments.
    """

    idle: dict[tuple[str, int], list[cl.Kernel]] = field(default_factory=dict, repr=False, compare=False)


@dataclass
class _Call(Call):
    """A call, with its kernel and geometry as C has them. When it is gone, another may have its kernel: what was enqueued has
    its arguments.

    Attributes:
        idle: where the kernel goes then.
    """

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
                self._device = next(d for d in context.devices if _described(d) == device)
            else:
                try:
                    self._device = _platforms()[platform].get_devices()[number]
                except IndexError:
                    raise DeviceNotFoundError(
                        f"{device.label} is gone: OpenCL has no device {device.selector} now"
                    ) from None
            # Kept as long as the queue, which may not do it (intel-queue-context).
            self.context = context or cl.Context([self._device])
            profiling = cl.command_queue_properties.PROFILING_ENABLE
            self.queue = cl.CommandQueue(self.context, self._device, properties=profiling)
            self._queue_in_c = ctypes.c_void_p(self.queue.int_ptr)
            # An event for each launch holds a GPU's queue up (_opencldriver). It costs a CPU nothing, and ctypes half a µs.
            self._launches_without_events = device.type != "cpu"
            self._pool_lock = threading.RLock()
            # A CPU's runtime reads and writes the host's memory where it lies; some take its addresses as they are. To give
            # it back, it is mapped (rusticl-lost-maps).
            unified = device.type == "cpu" and bool(self._device.host_unified_memory)
            self._shares_memory = unified and "rusticl-lost-maps" not in self._quirks
            self._takes_addresses = bool(
                _optional(self._device, "svm_capabilities") & cl.device_svm_capabilities.FINE_GRAIN_SYSTEM
            )
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # "expect non-deferred semantics": see _free below
                self._pool = cl.tools.MemoryPool(cl.tools.DeferredAllocator(self.context))

    # Devices

    @classmethod
    def discover(cls) -> Discovery:
        devices: list[DeviceInfo] = []
        platforms = _platforms()
        refused = _runtimes.prepare()
        notes = list(refused.values())
        for p, platform in enumerate(platforms):
            if _alias(platform) in refused:
                continue
            try:
                found = platform.get_devices()
            except cl.Error as error:
                notes.append(f"platform {platform.name} does not start: {error}")
                continue
            devices += [_describe(platform, device, (p, d)) for d, device in enumerate(found)]
            if not found:
                hint = "; to use it on the CPU: export RUSTICL_ENABLE=llvmpipe" if _alias(platform) == "rusticl" else ""
                notes.append(f"platform {platform.name} has no device{hint}")
        return Discovery(tuple(devices), tuple(notes))

    def environment(self) -> dict[str, str]:
        return {
            "pyopencl": cl.VERSION_TEXT,
            "platform": f"{self._device.platform.name} {self._device.platform.version}",
            "driver": self._device.driver_version,
        }

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
        return Place(_described(devices[0]), foreign.context)

    # Memory

    def _allocate(self, nbytes: int) -> Memory:
        with self.current(), self._pool_lock:
            block = self._pool.allocate(nbytes)
        return Memory(block, block.int_ptr, nbytes, partial(_free, self._pool_lock, block))

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
        memory = Memory(buffer, buffer.int_ptr, buffer.size)
        memory.access.home = memory.access.writer = self.as_queue(foreign.queue if home is None else home)
        if foreign.events:
            self.wait([Event(event) for event in foreign.events], queue=memory.access.home)
        size = foreign.dtype.itemsize
        strides = tuple(s // size for s in foreign.strides)
        return DeviceArray(self, memory, foreign.shape, foreign.dtype, strides, foreign.offset // size)

    def _wrap_buffer(self, buffer: Any, nbytes: int, keeper: object) -> Memory:
        if not isinstance(buffer, cl.MemoryObjectHolder):
            raise ArrayError(f"{buffer!r} is no pyopencl.Buffer")
        if buffer.context != self.context:
            raise ArrayError(f"this buffer is in another context; make it in that of {self!r} (its .context)")
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
        program = self._built(cl.Program(self.context, source), source, *self.options())
        made = _Program(program, b"" if self._keeps_programs() else _binary(program), source)
        return self._linked(made) if self.device.platform == "nvidia" else made

    def _linked(self, program: Program) -> Program:
        """A program of NVIDIA's runtime, whose binary is PTX: from a cubin as CUDA's linker makes it, rescheduled or not, where
        its source asks for that and nothing fails; else itself.
        """
        from gemmport.backends import _cudadriver, _sass  # noqa: PLC0415 - for NVIDIA's devices alone

        groups, as_it_is = _sass.asked_for(program.source), _compilation.LINKED in program.source
        if not groups and not as_it_is:
            return program
        try:
            # ValueError where the driver does not tell it.
            capability = int(self.device.architecture.removeprefix("sm_"))
            if as_it_is:
                return self.load(_cudadriver.linked(program.binary, capability), program.source)
            cubin = _cudadriver.linked(_with_residency(program.binary, program.source), capability)
            rescheduled = _sass.rescheduled(cubin, groups)
            return program if rescheduled == cubin else self.load(rescheduled, program.source)
        except (OSError, ValueError, LaunchError, CompileError) as error:
            log.warning("%s: the program stays as the driver makes it: %s", self.device.label, error)
            return program

    def load(self, binary: bytes, source: str) -> Program:
        try:
            program = cl.Program(self.context, [self._device], [binary])
        except cl.Error as error:
            raise CompileError("the OpenCL runtime refuses the program", log=str(error), source=source) from error
        return _Program(self._built(program, source, *self.options()), binary, source)

    def _keeps_programs(self) -> bool:
        # PoCL has a cache of its own unless it is told not to. Asked for a program's binary, it compiles every kernel once
        # more, for groups of any size: up to a second, for what no launch uses.
        return self.device.platform == "pocl" and os.environ.get("POCL_KERNEL_CACHE") != "0"

    def _built(self, program: cl.Program, source: str, *options: str) -> Any:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", cl.CompilerWarning)  # a build log that is not empty is no news
                program.build(options=list(options), cache_dir=cast("str", False))  # no cache but ours
        except (cl.Error, OSError) as error:
            # PyOpenCL writes a refused source to a temporary file. Without a folder for that it raises OSError.
            told = error if isinstance(error, cl.Error) else error.__context__
            raise CompileError("the OpenCL compiler refuses the source", log=str(told), source=source) from error
        return program

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
        try:
            # A kernel object keeps its arguments and is not thread-safe: each call has its own.
            idle = cast("_Program", program).idle.setdefault((function, len(native)), [])
            kernel = _last(idle) or cl.Kernel(program.native, function)
            # One by one: set_args would write, compile and cache a function of Python for it.
            for number, value in enumerate(native):
                kernel.set_arg(number, value)
            most = self._most_work_items(kernel)
        except (cl.Error, TypeError) as error:
            raise LaunchError(f"{self.device.label}: {function} cannot be prepared: {error}") from error
        self.check_work_group(function, work_group, most)
        call = _Call(program, function, kernel, groups, work_group)
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

    def set_memory(self, call: Call, places: Sequence[tuple[int, str]], memory: Mapping[Any, Memory]) -> None:
        for number, name in places:
            call.native.set_arg(number, memory[name].native)

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

    def disassemble(self, call: Call) -> Disassembly:
        ask = cl.kernel_work_group_info
        with self.current():
            resources = Resources(
                private_bytes=int(call.native.get_work_group_info(ask.PRIVATE_MEM_SIZE, self._device)),
                local_bytes=int(call.native.get_work_group_info(ask.LOCAL_MEM_SIZE, self._device)),
                max_work_items=self._most_work_items(call.native),
            )
        binary = call.program.binary
        if self.device.platform == "nvidia":
            from gemmport.backends import _sass  # noqa: PLC0415 - for NVIDIA's devices alone

            told = asdict(self._ptxas_resources(call))
            resources = replace(resources, **{name: value for name, value in told.items() if value is not None})
            listing = (
                _machinecode.sass(binary, call.function)
                if _sass.is_cubin(binary)
                else Listing("PTX", binary.decode(errors="replace").rstrip("\0"), "the driver does not tell its SASS")
            )
        elif self.device.platform == "pocl":
            listing = self._pocl_code(call)
        elif code := _machinecode.section(binary, ".ocl.obj"):  # Intel's runtime for CPUs
            # Beside the kernel for one work-item stands, where it was vectorized, the one for several, named as in vector ABIs.
            listing = _machinecode.host_code(code, rf"_ZGV\w+_{call.function}", call.function)
        else:
            why = _NO_CODE.get(self.device.platform, "its program binary is not documented")
            listing = Listing("machine code", note=f"{self.device.platform_name} does not tell it: {why}")
        return Disassembly((listing,), resources)

    def _ptxas_resources(self, call: Call) -> Resources:
        # The driver keeps what it compiled, without the log: a source that it never saw is compiled anew.
        source = f"{call.program.source}\n__constant int never_seen_{uuid.uuid4().hex} = 0;\n"
        program = self._built(cl.Program(self.context, source), source, *self.options(), "-cl-nv-verbose")
        log = str(program.get_build_info(self._device, cl.program_build_info.LOG))
        return _machinecode.ptxas_resources(log, call.function)

    def _pocl_code(self, call: Call) -> Listing:
        # PoCL compiles a kernel for the size of its groups when it is launched. The binary of a program that is built after
        # that holds what it made: shared objects, in folders named by that size and, of small grids, so.
        self.launch(call)
        self.synchronize()
        source = call.program.source
        binary = _binary(self._built(cl.Program(self.context, source), source, *self.options()))
        folder = "-".join(map(str, call.work_group))
        extent = max(call.extent)
        objects = dict(_pocl_objects(binary, call.function, folder))
        small = extent < _POCL_SMALL_GRID
        wanted = next((name for name in objects if name.endswith("-smallgrid") == small), None)
        if wanted is None:
            return Listing("machine code", note=f"PoCL's binary holds no code for groups of {folder}")
        return _machinecode.host_code(objects[wanted], f"_pocl_kernel_{call.function}_workgroup")

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
                raise LaunchError(f"{native!r} is no event: pass one of gemmport or PyOpenCL")
        if natives:
            with self.current():
                cl.enqueue_barrier(queue or self.queue, wait_for=natives)

    def new_queue(self) -> Any:
        profiling = cl.command_queue_properties.PROFILING_ENABLE
        with self.current():
            return cl.CommandQueue(self.context, self._device, properties=profiling)

    def as_queue(self, queue: Any) -> Any:
        if queue is None or queue == self.queue:
            return None
        if not isinstance(queue, cl.CommandQueue):
            raise LaunchError(f"{queue!r} is no queue of {self.device.label}: pass a pyopencl.CommandQueue")
        if queue.context != self.context or queue.device != self._device:
            raise LaunchError(f"this queue is of another context or device; make it with the .context of {self!r}")
        if queue.properties & cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE:
            raise LaunchError("this queue runs its commands out of order: pass one that runs them in order")
        return queue

    def elapsed(self, start: Event, end: Event) -> float:
        if start.seconds is not None:
            return super().elapsed(start, end)
        with self.current():
            end.native.wait()
            return float(end.native.profile.end - start.native.profile.end) * 1e-9

    def synchronize(self) -> None:
        with self.current():
            self.queue.finish()

    @property
    def survives_forks(self) -> bool:
        return self.device.platform == "intel" and self.device.type == "cpu"

    @property
    def queue_handle(self) -> int:
        return int(self.queue.int_ptr)

    def _close(self) -> None:
        self.queue.finish()
        self._programs.known.clear()
        with self._pool_lock:
            self._pool.stop_holding()
        del self.queue, self.context


def _last(idle: list[cl.Kernel]) -> cl.Kernel | None:
    """A kernel of a call that is gone, if there is one."""
    try:
        return idle.pop()
    except IndexError:  # also where another thread was faster
        return None


# PyOpenCL does not say that its pool is thread-safe: a lock keeps threads apart, whoever drops the last reference. The pool's
# allocator is the deferred one: the immediate one enqueues a write to new memory and does not wait for it, which crashes
# (nvidia-immediate-allocator). The price is that a device that is out of memory says so at the first use of what was allocated.


def _free(lock: threading.RLock, block: Any) -> None:
    with lock:
        block.release()


def _is_array(foreign: Any) -> TypeGuard[cl.array.Array]:
    """Whether it is an array of PyOpenCL's, whose module was then imported by whoever made it."""
    module = sys.modules.get("pyopencl.array")
    return module is not None and isinstance(foreign, module.Array)


def _with_residency(ptx: bytes, source: str) -> bytes:
    """PTX that says how many groups a compute unit shall hold, if the source does: RESIDENT of the prelude, with GROUPS."""
    groups = _compilation.residency(source)
    if not groups:
        return ptx
    return re.sub(rb"^(\.reqntid [^\n]*)$", rb"\1\n.minnctapersm " + groups.encode(), ptx, flags=re.MULTILINE)


def _binary(program: cl.Program) -> bytes:
    """The binary of a program that was built for one device."""
    (binary,) = cast("list[bytes]", program.get_info(cl.program_info.BINARIES))
    return bytes(binary)


def _pocl_objects(binary: bytes, function: str, work_group: str) -> Iterator[tuple[str, bytes]]:
    """Folder and contents of a kernel's shared objects for a size of groups, in PoCL's binary.

    Its files are written as two strings, path and contents, each after its length of 32 bits.
    """
    for found in re.finditer(rf"/{function}/({work_group}(?:-[a-z0-9-]*)?)/{function}\.so".encode(), binary):
        size = int.from_bytes(binary[found.end() : found.end() + 4], "little")
        yield found.group(1).decode(), binary[found.end() + 4 : found.end() + 4 + size]


def _platforms() -> list[cl.Platform]:
    _fork.started(OpenCL.name)
    _runtimes.prepare()
    try:
        return cl.get_platforms()
    except cl.Error as error:  # what the loader raises where there is no ICD
        raise BackendUnavailableError(f"no OpenCL runtime is installed ({error}); {HOW_TO_GET_A_RUNTIME}") from error


def _alias(platform: cl.Platform) -> str:
    name = platform.name.lower()
    return next((alias for start, alias in _ALIASES.items() if name.startswith(start)), name)


@cache
def _described(device: cl.Device) -> DeviceInfo:
    """The description of a device of any context; what is no device of its platform, such as a part of one, has no number."""
    platforms = _platforms()
    number = platforms.index(device.platform)
    devices = device.platform.get_devices()
    return _describe(device.platform, device, (number, devices.index(device) if device in devices else len(devices)))


def _describe(platform: cl.Platform, device: cl.Device, index: tuple[int, int]) -> DeviceInfo:
    extensions = frozenset(device.extensions.split())
    items = device.max_work_item_sizes
    kind: DeviceType = "accelerator"
    if device.type & cl.device_type.GPU:
        kind = "gpu"
    elif device.type & cl.device_type.CPU:
        kind = "cpu"
    computes = {"float32"}
    if "cl_khr_fp64" in extensions and device.double_fp_config:
        computes.add("float64")
    if "cl_khr_fp16" in extensions:
        computes.add("float16")
    told = DeviceInfo(
        backend="opencl",
        index=index,
        name=device.name.strip(),
        platform=_alias(platform),
        platform_name=platform.name.strip(),
        platform_version=_version(platform, device),
        driver=device.driver_version,
        vendor=_vendor(device),
        architecture=_architecture(device),
        type=kind,
        compute_units=device.max_compute_units,
        clock_mhz=device.max_clock_frequency or (_host_clock_mhz() if kind == "cpu" else 0),
        memory=device.global_mem_size,
        max_allocation=device.max_mem_alloc_size,
        max_work_group=device.max_work_group_size,
        max_work_item_sizes=(items[0], items[1], items[2]),
        max_groups=2**31 - 1 if device.address_bits == 64 else 2**24,
        local_memory=device.local_mem_size,
        local_memory_is_dedicated=device.local_mem_type == cl.device_local_mem_type.LOCAL,
        sub_group=_optional(device, "warp_size_nv", "wavefront_width_amd"),
        registers=_optional(device, "registers_per_block_nv"),
        computes=frozenset(computes),
        vector_width=device.native_vector_width_float if kind == "cpu" else 1,
        caches=data_caches() if kind == "cpu" else (),
        extensions=extensions,
    )
    return within_limits(lowered(told))


def lowered(told: DeviceInfo) -> DeviceInfo:
    """A device as it is where CL_CONFIG_CPU_TARGET_ARCH lowers the instruction set that Intel's runtime for CPUs compiles to:
    that goes on telling the vectors of the processor, which are then several of the compiler's.
    """
    target = os.environ.get("CL_CONFIG_CPU_TARGET_ARCH", "")
    if told.platform != "intel" or told.type != "cpu" or target not in _INTEL_LANES:
        return told
    return replace(told, architecture=target, vector_width=min(told.vector_width, _INTEL_LANES[target]))


def _optional(device: cl.Device, *names: str) -> int:
    """A number that only some vendors' devices tell; 0 where it is not told."""
    for name in names:
        try:
            return int(getattr(device, name))
        except (AttributeError, cl.Error):
            continue
    return 0


def _version(platform: cl.Platform, device: cl.Device) -> str:
    """The runtime's own version: "3.1" of PoCL, "22.3.6" of Mesa, "580.65.6" of NVIDIA's driver."""
    told = re.search(r"PoCL (\S+)|\(Oclgrind (\S+)\)", platform.version)
    text = next(filter(None, told.groups())) if told else device.driver_version
    number = re.search(r"\d+(\.\d+)*(-?rc\d+)?", text)
    return number.group() if number else ""


def _vendor(device: cl.Device) -> str:
    # Both the vendor and the device are read: PoCL names itself or the CPU's maker as vendor, and the CPU as device.
    text = f"{device.vendor} {device.name}".lower()
    names = ("nvidia", "amd", "advanced micro devices", "intel", "arm", "mali", "apple", "qualcomm")
    found = next((name for name in names if name in text), "")
    return {"advanced micro devices": "amd", "mali": "arm"}.get(found, found)


def _architecture(device: cl.Device) -> str:
    if major := _optional(device, "compute_capability_major_nv"):
        return f"sm_{major}{_optional(device, 'compute_capability_minor_nv')}"
    # AMD's device name is its architecture ("gfx90a:sramecc+"); PoCL's device version ends in it ("…-linux-gnu-znver3").
    if found := re.match(r"gfx\w+", device.name):
        return found.group()
    if found := re.search(r"PoCL .*-linux-gnu-(\S+)$", device.version):
        return found.group(1)
    return ""


def _host_clock_mhz() -> int:
    """The host's clock as Linux tells it, for CPU runtimes that tell none; 0 where it is not known."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace")
    except OSError:
        return 0
    found = re.search(r"cpu MHz\s*:\s*(\d+)", text)
    return int(found.group(1)) if found else 0
