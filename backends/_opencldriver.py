"""OpenCL's launches, made without PyOpenCL: without an event, and several with their arguments at once.

PyOpenCL 2026.1 has the runtime make an event for each launch, and drops it. On a queue that takes times, as ours does, it costs
3.5 µs of the device's time between kernels on an H200 (driver 580.159.04): 256³ takes 8.3 µs with, 4.8 without, 4.7 in CUDA.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence

import pyopencl as cl

from gemmport.backends import _scripts

SUCCESS = 0
"""What `enqueue` returns where all is well."""

_OTHERWISE = -1
_NOTHING = ctypes.c_void_p()
_NO_EVENTS = ctypes.c_uint(0)
_DIMENSIONS = ctypes.c_uint(3)
_Sizes = ctypes.c_size_t * 3


def arguments(
    kernel: cl.Kernel, extent: tuple[int, int, int], work_group: tuple[int, int, int]
) -> tuple[object, ...]:  # fmt: skip
    """What clEnqueueNDRangeKernel takes behind the queue, as C has it: made once, since that takes as long as the launch.

    Args:
        kernel: must outlive what is returned.
        extent: work-items along each dimension. work_group: those of a group.
    """
    handle = ctypes.c_void_p(kernel.int_ptr)
    return handle, _DIMENSIONS, _NOTHING, _Sizes(*extent), _Sizes(*work_group), _NO_EVENTS, _NOTHING, _NOTHING


def _loaded(name: str) -> Callable[..., int] | None:
    """A function of the loader that PyOpenCL is linked with; None where it is not found from there.

    What a system is asked for in a library it looks for in those which that needs, too; Windows does not. The interpreter's
    lock is held, as by PyOpenCL: to get it back may take longer than the launch.
    """
    try:
        function: Callable[..., int] = ctypes.PyDLL(str(cl._cl.__file__))[name]
    except (OSError, AttributeError):
        return None
    return function


_FUNCTIONS = [
    _loaded(name) for name in ("clSetKernelArg", "clSetKernelArgSVMPointer", "clEnqueueNDRangeKernel", "clReleaseEvent")
]

_ASKED = [_loaded(name) for name in ("clGetMemObjectInfo", "clGetEventInfo")]

enqueue = _FUNCTIONS[2] or (lambda *_: _OTHERWISE)
"""Launches a kernel: takes the queue's handle and the kernel's `arguments`; what is not SUCCESS did nothing."""


def asked_of_arrays() -> tuple[int, int, type] | None:
    """What `gemmport.execution._views` asks PyOpenCL's arrays by: where clGetMemObjectInfo and clGetEventInfo are, and the type
    of what has a cl_mem. None where the loader's functions are not found.
    """
    if None in _ASKED:
        return None
    of_memory, of_event = map(_scripts.address_of, _ASKED)
    return of_memory, of_event, cl.MemoryObjectHolder


def script(
    launches: Sequence[tuple[cl.Kernel, tuple[int, int, int], tuple[int, int, int], Sequence[tuple[int, int]]]],
    *,
    events: bool = False,
) -> bytes:
    """Kernels with extent, work-group and the places of their memory, as `_launching.opencl` takes them. They must outlive it.

    Args:
        events: whether each launch has an event, which is dropped, as by PyOpenCL.

    Returns:
        Nothing where the loader's functions are not found.
    """
    if None in _FUNCTIONS:
        return b""
    *others, release = map(_scripts.address_of, _FUNCTIONS)
    words = [*others, release if events else 0, len(launches)]
    for kernel, extent, work_group, places in launches:
        words += kernel.int_ptr, *extent, *work_group, len(places)
        words += [word for place in places for word in place]
    return _scripts.written(words)
