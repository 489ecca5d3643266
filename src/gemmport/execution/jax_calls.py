"""Work of ours within computations of JAX: on its arrays, and on a GPU on the stream that is JAX's own.

JAX tells its stream to nobody but the functions that its compiler calls. There operands are ready, the result has memory, and
JAX uses both again in the order of that stream. So nobody waits for anybody, and nothing is copied.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any, Protocol

import numpy as np

from gemmport.backends.array import dense_strides
from gemmport.execution.xla import Buffer, Call, GPUArray, handler

log = logging.getLogger(__name__)

TARGET = "gemmport_work"
"""XLA's name of the function that does it."""


class Work(Hashable, Protocol):
    """Writes what it makes of operands; on a GPU it enqueues that on their stream. Equal ones do the same."""

    def __call__(self, *operands: Any, out: Any) -> object:
        """Operands and `out` are NumPy's arrays, or `GPUArray`s, as long as this lasts."""


@dataclass(frozen=True)
class _Site:
    """What is done at a call in a computation, and shape and type of each operand and of the result there.

    Attributes:
        failed: what the work raised last.
    """

    work: Work
    arrays: tuple[tuple[tuple[int, ...], np.dtype[Any]], ...]
    failed: list[BaseException] = field(default_factory=list, compare=False)

    @cached_property
    def strides(self) -> list[tuple[int, ...]]:
        """Of each array, in elements."""
        return [dense_strides(shape) for shape, _ in self.arrays]

    @cached_property
    def is_empty(self) -> bool:
        """Whether the result has no elements."""
        return 0 in self.arrays[-1][0]

    def do(self, *arrays: Any) -> None:
        """Does the work on the operands and, last, the result."""
        try:
            self.work(*arrays[:-1], out=arrays[-1])
        except BaseException as error:
            self.failed.append(error)
            raise


_sites: list[_Site] = []
"""Their numbers have been compiled into computations, which JAX may keep: so they stay."""

_numbers: dict[_Site, int] = {}
_lock = threading.Lock()


@dataclass(frozen=True)
class Computation:
    """A computation of JAX's, with work of ours within it, for operands like those that it was made for."""

    site: _Site
    made: Callable[..., Any]

    def __call__(self, *operands: Any) -> Any:
        """The result, as an array of JAX's, which is enqueued; None where JAX does not take these operands, or runs no such
        computation now.

        Raises:
            What the work raises, if JAX reports it at the call. If JAX reports it later, waiting for the result raises JAX's
            error.
        """
        self.site.failed.clear()
        try:
            return self.made(*operands)
        except ValueError as refused:  # what the work raises is another error of JAX's
            log.info("JAX computes no such product now: %s", refused)
            return None
        except RuntimeError as error:
            if self.site.failed:
                raise self.site.failed.pop() from error
            raise


def computation(
    jax: Any, work: Work, operands: Sequence[Any], shape: tuple[int, ...], dtype: np.dtype[Any]
) -> Computation | None:
    """A computation of JAX's in which some work is done for operands like these. It runs where they are.

    Args:
        jax: the module, which whoever has its arrays has imported.
        operands: arrays of JAX's.
        shape, dtype: of the result.

    Returns:
        None where JAX (before 0.5) calls nobody, where it would convert an operand or the result, and where an operand is on
        several devices, or not in a device's own memory.

    Raises:
        What JAX raises where it compiles nothing now, as in the context of a mesh of other devices.
    """
    shardings = [x.sharding for x in operands]
    if not hasattr(jax, "ffi") or any(
        len(each.device_set) > 1 or each.memory_kind not in _MEMORY for each in shardings
    ):
        return None
    types = [*(x.dtype for x in operands), dtype]
    site, number = _numbered(jax, work, tuple(zip((*(x.shape for x in operands), shape), types, strict=True)))
    call = jax.ffi.ffi_call(TARGET, jax.ShapeDtypeStruct(shape, dtype))
    lowered = jax.jit(
        lambda *given: call(*given, how=str(number)), in_shardings=tuple(shardings), out_shardings=shardings[0]
    ).lower(*(jax.ShapeDtypeStruct(x.shape, x.dtype) for x in operands))
    if types != [x.dtype for x in (*lowered.in_avals[0], lowered.out_info)]:
        return None
    return Computation(site, lowered.compile())


_MEMORY = (None, "device", "unpinned_host")
"""Names of the memory in which a GPU, or a CPU, computes."""


def _numbered(jax: Any, work: Work, arrays: tuple[tuple[tuple[int, ...], np.dtype[Any]], ...]) -> tuple[_Site, int]:
    """The site of some work on arrays, and its number, by which JAX's compiler, who knows of it, tells it."""
    site = _Site(work, arrays)
    with _lock:
        if not _sites:  # two at once would be two functions of one name
            for platform, address in _addresses():
                jax.ffi.register_ffi_target(TARGET, jax.ffi.pycapsule(address), platform=platform)
        number = _numbers.get(site)
        if number is None:
            number = _numbers[site] = len(_sites)
            _sites.append(site)
        return _sites[number], number


@cache
def _addresses() -> list[tuple[str, int]]:
    """Of the functions that XLA calls, by its names for platforms."""
    return [("cpu", handler(_on_cpu)), ("CUDA", handler(_on_cuda))]


def _on_cpu(call: Call) -> None:
    site = _sites[int(call.attribute)]
    site.do(*(Buffer(each, *array).on_host() for each, array in zip(call.pointers, site.arrays, strict=True)))


def _on_cuda(call: Call) -> None:
    site = _sites[int(call.attribute)]
    if site.is_empty:
        return
    stream, arrays = call.stream, zip(call.pointers, site.arrays, site.strides, strict=True)
    site.do(*(GPUArray(pointer, shape, dtype, strides, stream) for pointer, (shape, dtype), strides in arrays))


_streams: dict[Hashable, int] = {}
"""By JAX's devices."""


def stream_of(jax: Any, device: Any) -> int | None:
    """The CUstream on which JAX computes on one of its devices, a GPU; None where it tells it to nobody, or not now.

    It waits, once, for what JAX has enqueued there.

    Args:
        jax: as of `computation`.
    """
    if device not in _streams and hasattr(jax, "ffi"):
        try:
            with jax.ensure_compile_time_eval():
                one = jax.device_put(np.uint8(0), device)
            asked = computation(jax, _Asked(device), (one,), one.shape, one.dtype)
            if asked is not None:
                asked(one).block_until_ready()
        except (ValueError, RuntimeError) as refused:
            log.info("JAX does not tell the stream of %s now: %s", device, refused)
    return _streams.get(device)


@dataclass(frozen=True)
class _Asked:
    """Work that only looks on which stream it is, on a device of JAX's."""

    device: Hashable

    def __call__(self, *_: Any, out: Any) -> None:
        if isinstance(out, GPUArray):
            _streams[self.device] = out.stream
