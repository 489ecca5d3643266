"""A backend that runs CUDA's sources on the CPU: compiled by the system's C++ compiler, each work-item on a stack of its own.

It shows what is wrong with a source: shared memory starts as NaN, work-items take turns in any order, asynchronous copies come
late, and sanitizers can watch. It needs no GPU, and says nothing about speed.
"""

from __future__ import annotations

import ctypes
import os
import platform
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

import gemmport as gp
import host_compiler
from gemmport.backends._compilation import begins_early
from gemmport.backends.base import Backend, HostArray
from gemmport.backends.objects import Call, Discovery, Event, Memory, Program
from gemmport.contracts.amd import MATRIX_CORES
from gemmport.contracts.nvidia import (
    ASYNC_COPIES,
    BYTE_PRODUCTS,
    CUT_FLOAT8_SUMS,
    EARLY_LAUNCHES,
    FLOAT8_PRODUCTS,
    MATRIX_UNIT,
    READ_ONLY_LOADS,
    TF32_ROUNDING,
    WARP_GROUP_PRODUCTS,
    WARP_PRODUCTS,
)
from gemmport.core.device import DeviceInfo
from gemmport.core.dtypes import as_dtype
from gemmport.core.errors import BackendUnavailableError, CompileError, LaunchError
from gemmport.core.plan import TensorMap
from gemmport.core.problem import ALLOCATION_ALIGNMENT
from tensor_map import tensor_map

ORDERS = {"forward": 0, "reversed": 1, "shuffled": 2}
"""In which work-items take turns, with the runner's numbers."""

MOST_ITEMS = 1024

_running = threading.Lock()
"""The runner has one group at a time."""


def register() -> None:
    """Adds the backend to gemmport's, as another package would."""
    gp.register_backend(Host)


class Host(Backend):
    """This machine's CPU, as if it were a GPU.

    Attributes:
        order: of work-items' turns, one of ORDERS, or shuffled otherwise: "shuffled 7". As HOST_ORDER says where nothing else
            is set.
        seconds: of the processor's time that a launch may take, which a kernel that never ends does. 0: no limit.
    """

    name = "host"
    overrides = str(host_compiler.HERE / "cuda")

    def __init__(self, device: DeviceInfo, context: Any = None) -> None:
        super().__init__(device, context)
        host_compiler.runner()
        self.order = os.environ.get("HOST_ORDER", "forward")
        self.seconds = 600.0

    @classmethod
    def discover(cls) -> Discovery:
        if host_compiler.found() is None:
            raise BackendUnavailableError("the host has no C++ compiler: apt-get install g++")
        return Discovery((_described(),))

    # Memory. Each allocation is one of the C library's, of which AddressSanitizer knows the bounds.

    def _allocate(self, nbytes: int) -> Memory:
        address = ctypes.c_void_p()
        if _C.posix_memalign(ctypes.byref(address), ctypes.c_size_t(ALLOCATION_ALIGNMENT), ctypes.c_size_t(nbytes)):
            raise MemoryError(f"{nbytes} bytes")
        assert address.value is not None
        return Memory(address, address.value, nbytes, partial(_C.free, address))

    def _upload(self, memory: Memory, data: HostArray, offset: int, queue: Any) -> None:
        ctypes.memmove(memory.handle + offset, data.ctypes.data, data.nbytes)

    def _download(self, memory: Memory, out: HostArray, offset: int, queue: Any) -> None:
        ctypes.memmove(out.ctypes.data, memory.handle + offset, out.nbytes)

    def _copy(self, source: Memory, target: Memory, nbytes: int, queue: Any) -> None:
        ctypes.memmove(target.handle, source.handle, nbytes)

    # Programs

    def options(self) -> tuple[str, ...]:
        return host_compiler.options()

    def compiler(self) -> str:
        return f"{host_compiler.version()} {host_compiler.key()}"

    def compile(self, source: str) -> Program:
        return self.load(host_compiler.library(source), source)

    def load(self, binary: bytes, source: str) -> Program:
        try:
            return Program(host_compiler.loaded(binary), binary, source)
        except OSError as error:
            raise CompileError(
                "the program must be a shared library, and the system does not load it; compile it again",
                log=str(error),
                source=source,
            ) from error

    # Execution. It is over when `launch` returns.

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
        try:
            kernel = program.native[f"launch_{function}"]
        except AttributeError as error:
            raise LaunchError(f"{function} cannot be prepared: the program has no such kernel") from error
        kernel.restype = ctypes.c_char_p
        self.check_work_group(function, work_group, MOST_ITEMS)
        bound = _bound(kernel, arguments, groups, work_group, dynamic_local_bytes)
        bound.is_early = begins_early(program.source)
        return Call(program, function, bound, groups, work_group)

    def tensor_map(self, told: TensorMap, memory: Memory) -> np.void:
        return tensor_map(memory.handle, as_dtype(told.dtype).itemsize, told.sizes, told.strides, (*told.tile, 1))

    def set_memory(self, call: Call, places: Sequence[tuple[int, int]], memory: Sequence[Memory]) -> None:
        for number, which in places:
            ctypes.c_void_p.from_buffer(call.native.values[number]).value = memory[which].handle
            call.native.regions[number] = _region(memory[which])

    def launch(self, call: Call, *, queue: Any = None, wait_for: Sequence[Event] = ()) -> None:
        self.check_open()
        self.as_queue(queue)
        self.wait(wait_for)
        bound: _Bound = call.native
        with _running:
            name, _, seed = self.order.partition(" ")
            bound.launch.order = ORDERS[name] + int(seed or 0)
            bound.launch.seconds = self.seconds
            regions = [*bound.regions.values()] if bound.is_early else []
            bound.launch.early, bound.launch.region = len(regions), (_Region * len(regions))(*regions)
            fault = bound.kernel(ctypes.byref(bound.launch))
        if fault is not None:
            raise LaunchError(f"{self.device.label}: {call.function}, work-items {self.order}: {fault.decode()}")

    def synchronize(self) -> None:
        self.check_open()

    @property
    def survives_forks(self) -> bool:
        return True

    def _close(self) -> None:
        self._programs.known.clear()


_C = ctypes.CDLL(None)

_Indices = ctypes.c_uint * 3


class _Region(ctypes.Structure):
    """`host::Region` of group.h."""

    _fields_ = (("begin", ctypes.c_void_p), ("bytes", ctypes.c_size_t))


class _Launch(ctypes.Structure):
    """`host::Launch` of group.h, up to what the kernel's library adds."""

    _fields_ = (
        ("groups", _Indices),
        ("items", _Indices),
        ("dynamic_bytes", ctypes.c_size_t),
        ("order", ctypes.c_uint),
        ("seconds", ctypes.c_double),
        ("arguments", ctypes.c_uint),
        ("argument", ctypes.POINTER(ctypes.c_void_p)),
        ("argument_bytes", ctypes.POINTER(ctypes.c_size_t)),
        ("early", ctypes.c_size_t),
        ("region", ctypes.POINTER(_Region)),
        ("of_the_library", ctypes.c_void_p * 4),
    )


@dataclass
class _Bound:
    """A kernel, its launch, and the bytes of its arguments, to which that points.

    Attributes:
        regions: by number of an argument, the memory that it is.
        is_early: whether launches begin before those before them have ended.
    """

    kernel: Any
    launch: _Launch
    values: Sequence[Any]
    regions: dict[int, _Region]
    is_early: bool = False


def _region(memory: Memory) -> _Region:
    return _Region(memory.handle, memory.nbytes)


def _bound(
    kernel: Any,
    arguments: Sequence[Memory | np.generic],
    groups: tuple[int, int, int],
    work_group: tuple[int, int, int],
    dynamic_bytes: int,
) -> _Bound:
    raw = [bytes(ctypes.c_void_p(x.handle)) if isinstance(x, Memory) else x.tobytes() for x in arguments]
    values = [ctypes.create_string_buffer(data, len(data)) for data in raw]
    addresses = (ctypes.c_void_p * len(values))(*map(ctypes.addressof, values))
    sizes = (ctypes.c_size_t * len(values))(*map(len, raw))
    launch = _Launch(_Indices(*groups), _Indices(*work_group), dynamic_bytes, 0, 0.0, len(values), addresses, sizes)
    regions = {number: _region(each) for number, each in enumerate(arguments) if isinstance(each, Memory)}
    return _Bound(kernel, launch, values, regions)


def _described() -> DeviceInfo:
    compiler = host_compiler.version()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return DeviceInfo(
        backend=Host.name,
        sources="cuda",
        name=f"work-items on {platform.machine()}",
        platform="host",
        platform_name="C++ compiler of the host",
        platform_version=compiler.rpartition(" ")[2],
        driver=compiler,
        vendor="gnu" if "g++" in compiler else "llvm",
        architecture=platform.machine(),
        type="cpu",
        compute_units=8,
        memory=memory,
        max_allocation=memory // 2,
        max_work_group=MOST_ITEMS,
        max_work_item_sizes=(MOST_ITEMS, MOST_ITEMS, 64),
        local_memory=48 * 2**10,
        sub_group=32,
        computes=frozenset({"float16", "float32", "float64"}),
        extensions=frozenset(
            {
                ASYNC_COPIES,
                BYTE_PRODUCTS,
                CUT_FLOAT8_SUMS,
                EARLY_LAUNCHES,
                FLOAT8_PRODUCTS,
                MATRIX_CORES,
                MATRIX_UNIT,
                READ_ONLY_LOADS,
                TF32_ROUNDING,
                WARP_GROUP_PRODUCTS,
                WARP_PRODUCTS,
            }
        ),
        dynamic_local_memory=227 * 2**10,
    )
