"""CUDA through PyCUDA (devices, memory, streams, launches) and NVRTC (compilation)."""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from gemmport.backends import _nvrtc
from gemmport.backends.array import DeviceArray, dense_strides
from gemmport.backends.base import Backend, Call, Discovery, Event, HostArray, Memory, Program
from gemmport.device import DeviceInfo
from gemmport.errors import (
    BackendUnavailableError,
    CompileError,
    DeviceMemoryError,
    DeviceNotFoundError,
    GemmportError,
    LaunchError,
)
from gemmport.problem import ALLOCATION_ALIGNMENT

try:
    import pycuda
    import pycuda.driver as cu
    import pycuda.tools
except ModuleNotFoundError:
    raise
except ImportError as error:  # installed, but libcuda.so is not there
    raise BackendUnavailableError(f"PyCUDA does not start: {error}; install NVIDIA's driver") from error

log = logging.getLogger(__name__)

HOW_TO_GET_A_DEVICE = "this needs an NVIDIA GPU and its driver"


class CUDA(Backend):
    """One CUDA device, in its primary context, which PyTorch, CuPy and JAX use too."""

    name = "cuda"

    def __init__(self, device: DeviceInfo) -> None:
        super().__init__(device)
        number = device.index[1]
        with _errors(device):
            _initialize()
            if number >= cu.Device.count():
                raise DeviceNotFoundError(f"{device.label} is gone: CUDA has no device {device.selector} now")
            self.context = cu.Device(number).retain_primary_context()
            with self.current():
                self._queue = cu.Stream()
                self._pool_lock = threading.RLock()
                self._pool = pycuda.tools.DeviceMemoryPool()
        weakref.finalize(self, _drain, self.context, self._pool)

    # Devices

    @classmethod
    def discover(cls) -> Discovery:
        _initialize()
        devices = tuple(_describe(cu.Device(d), d) for d in range(cu.Device.count()))
        return Discovery(devices, () if devices else (f"CUDA has no device; {HOW_TO_GET_A_DEVICE}",))

    def environment(self) -> dict[str, str]:
        return {
            "pycuda": pycuda.VERSION_TEXT,
            "platform": f"CUDA {self.device.platform_version}",
            "driver": self.device.driver,
            "compiler": self.compiler(),
        }

    # Memory

    def _allocate(self, nbytes: int) -> Memory:
        with self.current(), self._pool_lock:
            block = self._pool.allocate(nbytes)
        memory = Memory(block, int(block), nbytes)
        memory.free = weakref.finalize(memory, _free, self.context, self._pool_lock, block)
        return memory

    def _wrap(self, foreign: Any) -> DeviceArray | None:
        interface = getattr(foreign, "__cuda_array_interface__", None)
        if interface is None:
            return None
        dtype = np.dtype(interface["typestr"])
        shape = tuple(interface["shape"])
        strides = interface.get("strides")
        elements = dense_strides(shape) if strides is None else tuple(s // dtype.itemsize for s in strides)
        span = 1 + sum((n - 1) * s for n, s in zip(shape, elements, strict=True)) if 0 not in shape else 0
        pointer = int(interface["data"][0])
        memory = Memory(foreign, pointer, span * dtype.itemsize, alignment=pointer & -pointer or ALLOCATION_ALIGNMENT)
        return DeviceArray(self, memory, shape, dtype, elements)

    def upload(self, memory: Memory, data: HostArray, *, offset: int = 0, queue: Any = None) -> None:
        with self.current():
            cu.memcpy_htod_async(memory.handle + offset, data, queue or self._queue)
            (queue or self._queue).synchronize()

    def download(self, memory: Memory, out: HostArray, *, offset: int = 0, queue: Any = None) -> None:
        with self.current():
            cu.memcpy_dtoh_async(out, memory.handle + offset, queue or self._queue)
            (queue or self._queue).synchronize()

    def copy(self, source: Memory, target: Memory, nbytes: int, *, queue: Any = None) -> None:
        with self.current():
            cu.memcpy_dtod_async(target.handle, source.handle, nbytes, queue or self._queue)

    def fill(self, memory: Memory, byte: int, *, queue: Any = None) -> None:
        with self.current():
            cu.memset_d8_async(memory.handle, byte, memory.nbytes, queue or self._queue)

    # Programs

    def options(self) -> tuple[str, ...]:
        return _nvrtc.OPTIONS

    def compiler(self) -> str:
        return _nvrtc.compiler()

    def compile(self, source: str) -> bytes:
        return _nvrtc.compile_cuda(source, self.device.architecture)

    def load(self, binary: bytes, source: str) -> Program:
        try:
            with self.current():
                return Program(cu.module_from_buffer(binary), binary, source)
        except LaunchError as error:
            raise CompileError("the CUDA driver refuses the program", log=str(error), source=source) from error

    def disassemble(self, program: Program) -> str:
        try:
            return _nvrtc.disassemble_cubin(program.binary)
        except FileNotFoundError as error:
            raise GemmportError(f"{self.device.label}: {error}") from error

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
        native = [a.handle if isinstance(a, Memory) else a for a in arguments]
        types = ["P" if isinstance(a, Memory) else a.dtype.char for a in arguments]
        try:
            with self.current():
                # A function object keeps its argument types: each call gets its own.
                kernel = program.native.get_function(function)
                kernel.prepare(types)
                if dynamic_local_bytes > self.device.local_memory:
                    kernel.set_attribute(cu.function_attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES, dynamic_local_bytes)
                most = kernel.max_threads_per_block
        except LaunchError as error:
            raise LaunchError(f"{function} cannot be prepared: {error}") from error
        self.check_work_group(function, work_group, most)
        return Call(kernel, groups, work_group, native, dynamic_local_bytes)

    def launch(self, call: Call, *, queue: Any = None, wait_for: Sequence[Event] = ()) -> None:
        stream = queue or self._queue
        with self.current():
            for event in wait_for:
                stream.wait_for_event(event.native)
            call.native.prepared_async_call(
                call.groups, call.work_group, stream, *call.arguments, shared_size=call.dynamic_local_bytes
            )

    def record(self, *, queue: Any = None) -> Event:
        with self.current():
            return Event(cu.Event().record(queue or self._queue))

    def elapsed(self, start: Event, end: Event) -> float:
        with self.current():
            end.native.synchronize()
            return float(start.native.time_till(end.native)) * 1e-3

    def synchronize(self) -> None:
        with self.current():
            self._queue.synchronize()

    @contextmanager
    def current(self) -> Iterator[None]:
        self.check_open()
        with _errors(self.device):
            self.context.push()
            try:
                yield
            finally:
                cu.Context.pop()

    @property
    def queue(self) -> Any:
        return self._queue

    @property
    def queue_handle(self) -> int:
        return int(self._queue.handle)

    def _close(self) -> None:
        with self.current():
            self._queue.synchronize()
            self._programs.known.clear()
            with self._pool_lock:
                self._pool.stop_holding()
        del self._queue, self.context  # which is released with the last memory in it


# PyCUDA's pool can be freed into, and emptied, only while its context is current; finalizers see to that wherever the last
# reference is dropped, and also at the end of the process. A lock keeps threads apart, as in the OpenCL backend.


def _free(context: Any, lock: threading.RLock, block: Any) -> None:
    context.push()
    with lock:
        block.free()
    cu.Context.pop()


def _drain(context: Any, pool: Any) -> None:
    context.push()
    pool.stop_holding()
    cu.Context.pop()


@contextmanager
def _errors(device: DeviceInfo) -> Iterator[None]:
    """Turns the runtime's errors into ours."""
    try:
        yield
    except (cu.MemoryError, MemoryError) as error:
        raise DeviceMemoryError(
            f"{device.label} is out of memory ({device.memory:,} bytes in all): use smaller or fewer arrays; {error}"
        ) from error
    except cu.Error as error:
        raise LaunchError(f"{device.label}: {error}") from error


def _initialize() -> None:
    try:
        cu.init()
    except cu.Error as error:
        raise BackendUnavailableError(f"CUDA does not start: {error}; {HOW_TO_GET_A_DEVICE}") from error


def _describe(device: Any, number: int) -> DeviceInfo:
    def attribute(name: str) -> int:
        return int(device.get_attribute(getattr(cu.device_attribute, name)))

    major, minor = device.compute_capability()
    driver = cu.get_driver_version()
    limits = ("MAX_BLOCK_DIM_X", "MAX_BLOCK_DIM_Y", "MAX_BLOCK_DIM_Z")
    return DeviceInfo(
        backend="cuda",
        index=(0, number),
        name=device.name(),
        platform="nvidia",
        platform_name="NVIDIA CUDA",
        platform_version=f"{driver // 1000}.{driver % 1000 // 10}",
        driver=_kernel_driver() or str(driver),
        vendor="nvidia",
        architecture=f"sm_{major}{minor}",
        type="gpu",
        compute_units=attribute("MULTIPROCESSOR_COUNT"),
        clock_mhz=attribute("CLOCK_RATE") // 1000,
        memory=device.total_memory(),
        max_allocation=device.total_memory(),
        max_work_group=attribute("MAX_THREADS_PER_BLOCK"),
        max_work_item_sizes=(attribute(limits[0]), attribute(limits[1]), attribute(limits[2])),
        max_groups=attribute("MAX_GRID_DIM_X"),
        local_memory=attribute("MAX_SHARED_MEMORY_PER_BLOCK"),
        local_memory_is_dedicated=True,
        sub_group=attribute("WARP_SIZE"),
        registers=attribute("MAX_REGISTERS_PER_MULTIPROCESSOR"),
        computes=frozenset({"float16", "float32", "float64"}),
    )


def _kernel_driver() -> str:
    """The version of NVIDIA's kernel driver as it tells it on Linux; empty elsewhere."""
    try:
        with open("/proc/driver/nvidia/version", encoding="ascii", errors="replace") as file:
            words = file.readline().split()
    except OSError:
        return ""
    return next((word for word in words if word[:1].isdigit() and "." in word), "")
