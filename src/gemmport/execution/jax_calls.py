"""Work of ours within computations of JAX: on its arrays, and on a GPU on the stream that is JAX's own.

JAX tells its stream to nobody but the functions that its compiler calls. There operands are ready, the result has memory, and
JAX uses both again in the order of that stream. So nobody waits for anybody, and nothing is copied.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, Protocol

import numpy as np

from gemmport.backends.array import dense_strides
from gemmport.execution.xla import Buffer, Call, GPUArray, handler

TARGET = "gemmport_work"
"""XLA's name of the function that does it."""


class Work(Hashable, Protocol):
    """Writes what it makes of operands; on a GPU it enqueues that on their stream. Equal ones do the same."""

    def __call__(self, *operands: Any, out: Any) -> object:
        """Operands and `out` are NumPy's arrays, or `GPUArray`s, as long as this lasts."""


@dataclass(frozen=True)
class _Site:
    """What is done at a call in a computation, and shape and type of each operand and of the result there."""

    work: Work
    arrays: tuple[tuple[tuple[int, ...], np.dtype[Any]], ...]

    @cached_property
    def strides(self) -> list[tuple[int, ...]]:
        """Of each array, in elements."""
        return [dense_strides(shape) for shape, _ in self.arrays]

    @cached_property
    def is_empty(self) -> bool:
        """Whether the result has no elements."""
        return 0 in self.arrays[-1][0]


_sites: list[_Site] = []
"""Their numbers have been compiled into computations, which JAX may keep: so they stay."""

_numbers: dict[_Site, int] = {}
_lock = threading.Lock()


def computation(jax: Any, work: Work, operands: Sequence[Any], shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    """A computation of JAX's in which some work is done for operands like these.

    Args:
        jax: the module, which whoever has its arrays has imported.
        operands: arrays of JAX's, each on one device.
        shape, dtype: of the result.

    Returns:
        What takes such operands and returns an array of JAX's; None where JAX (before 0.5) calls nobody, where it would convert
        an operand or the result, and where an operand is not in the device's own memory.
    """
    if not hasattr(jax, "ffi"):
        return None
    _register(jax)
    if any(len(x.devices()) > 1 or x.sharding.memory_kind not in _MEMORY for x in operands):
        return None
    types = [*(x.dtype for x in operands), dtype]
    site = _Site(work, tuple(zip((*(x.shape for x in operands), shape), types, strict=True)))
    with _lock:
        number = _numbers.get(site)
        if number is None:
            number = _numbers[site] = len(_sites)
            _sites.append(site)
    call = jax.ffi.ffi_call(TARGET, jax.ShapeDtypeStruct(shape, dtype))
    with jax.ensure_compile_time_eval():
        made = jax.jit(lambda *given: call(*given, how=str(number))).lower(*operands).compile()
    return made if types == [x.dtype for x in (*made.in_avals[0], made.out_info)] else None


_MEMORY = (None, "device", "unpinned_host")
"""Names of the memory in which a GPU, or a CPU, computes."""


@cache
def _register(jax: Any) -> None:
    """Makes the function known to JAX's compiler."""
    for platform, work in (("cpu", _on_cpu), ("CUDA", _on_cuda)):
        jax.ffi.register_ffi_target(TARGET, jax.ffi.pycapsule(handler(work)), platform=platform)


def _on_cpu(call: Call) -> None:
    site = _sites[int(call.attribute)]
    *operands, out = (Buffer(each, *array).on_host() for each, array in zip(call.pointers, site.arrays, strict=True))
    site.work(*operands, out=out)


def _on_cuda(call: Call) -> None:
    site = _sites[int(call.attribute)]
    if site.is_empty:
        return
    pointers, stream = call.pointers, call.stream
    # An operand without elements has no address: it lies where the result does.
    *operands, out = (
        GPUArray(pointer or pointers[-1], shape, dtype, strides, stream)
        for pointer, (shape, dtype), strides in zip(pointers, site.arrays, site.strides, strict=True)
    )
    site.work(*operands, out=out)


_streams: dict[Hashable, int] = {}
"""By JAX's devices."""


def stream_of(jax: Any, device: Any) -> int | None:
    """The CUstream on which JAX computes on one of its devices, a GPU; None where it tells it to nobody.

    Args:
        jax: as of `computation`.
    """
    if device not in _streams:
        with jax.ensure_compile_time_eval():
            one = jax.device_put(np.uint8(0), device)
        asked = computation(jax, _Asked(device), (one,), one.shape, one.dtype)
        if asked is not None:
            asked(one).block_until_ready()
    return _streams.get(device)


@dataclass(frozen=True)
class _Asked:
    """Work that only looks on which stream it is, on a device of JAX's."""

    device: Hashable

    def __call__(self, *_: Any, out: Any) -> None:
        _streams[self.device] = out.stream
