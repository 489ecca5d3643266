"""Products that were computed before, of other numbers: what was decided, compiled and bound for the first is kept for the
next, which then takes some microseconds of the host beside its kernels.

Only products that use their operands in place are kept: nothing but the addresses of A, B, C and D differs from one to the
next. Two of one key have one plan: a key is all that a plan depends on.
"""

from __future__ import annotations

import ctypes
import math
import os
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from gemmport import kernels
from gemmport.backends.array import DeviceArray, dense_strides
from gemmport.backends.base import Backend
from gemmport.backends.objects import Memory
from gemmport.contracts.kernel import KernelVariant
from gemmport.core.device import DeviceInfo
from gemmport.core.plan import Plan
from gemmport.core.problem import Operand
from gemmport.execution.adapters import Library, library_of_type
from gemmport.execution.executor import BoundPlan, bind

HostArray = npt.NDArray[Any]

_MOST = 256
"""Products that are remembered, of host arrays, of other libraries' and of the arrays of each device; the oldest is forgotten
first."""

_MOST_SCRATCH = 2**28
"""Bytes of scratch memory that are kept with them, of host arrays and of the arrays of each device; the oldest are forgotten
first. Products that need more take so long that binding them is nothing beside: Intel's runtime takes 1.5 ms to begin with new
kernel objects, of 23 for 1024³ in float64, which needs 18 MB.
"""


@dataclass
class Repeated:
    """A product that may be computed again.

    Attributes:
        turned: whether the plan computes Dᵀ = Bᵀ · Aᵀ.
        shape, dtype: of the result.
        spans: of arrays on a device, A, B, C where it is read, and the result: the first byte of their memory that they touch,
            and the one after the last.
        family: of kernels, among which the plan's was chosen.
        idle: bound plans that no thread is using.
    """

    plan: Plan
    backend: Backend
    turned: bool
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    spans: Sequence[tuple[int, int]] = ()
    family: Mapping[str, KernelVariant] = field(default_factory=kernels.family)
    idle: list[BoundPlan] = field(default_factory=list)

    @property
    def scratch_bytes(self) -> int:
        """Of scratch memory that is kept."""
        return self.plan.scratch_bytes * len(self.idle)

    def of_host_arrays(self, a: HostArray, b: HostArray, out: HostArray | None) -> HostArray | None:
        """The product of operands that lie as those before did; None where one of them, or `out`, cannot be used in place."""
        backend = self.backend
        if out is None:
            out = np.empty(self.shape, self.dtype)
        elif not out.flags.writeable or np.may_share_memory(out, a) or np.may_share_memory(out, b):
            return None
        left, right, d = backend.borrow(a), backend.borrow(b), backend.borrow(out)
        if left is None or right is None or d is None:
            return None
        operands = self._operands(left, right, d, d)
        bound = self._bound(operands)
        try:
            bound.relaunch(operands)
        finally:
            backend.give_back(d)
        self.idle.append(bound)
        return out

    def of_device_arrays(
        self, a: DeviceArray, b: DeviceArray, c: DeviceArray | None, out: DeviceArray | None, queue: Any
    ) -> DeviceArray | None:
        """The product of operands that lie as those before did, enqueued; None where `out` cannot be written, or to write it
        might change an operand.

        Args:
            queue: as `gemm`.
        """
        backend = self.backend
        reads = [a.memory, b.memory]
        if c is not None and len(self.spans) == 4:
            reads.append(c.memory)
        if out is None:
            out = self._new()
        elif out.memory.read_only or not self._are_apart(out.memory, reads[:2] if c is out else reads):
            return None
        d = out.memory
        where = a.memory.access.writer if queue is None else backend.as_queue(queue)
        operands = self._operands(reads[0], reads[1], reads[2] if len(reads) == 3 else d, d)
        bound = self._bound(operands)
        with backend.ordered(where, reads=reads, writes=[d, *bound.memory.values()]):
            bound.relaunch(operands, queue=where)
        self.idle.append(bound)
        return out

    def of_library_arrays(self, library: Library, views: Sequence[int], a: Any, c: Any, out: Any) -> Any:
        """The product of another library's arrays that lie as those before did, enqueued on the stream that is current there;
        None where to write `out` might change an operand.

        Args:
            views: the addresses of A, B, C unless it is None, and `out` unless that is.
        """
        backend = self.backend
        reads = views[:2] if c is None or len(self.spans) == 3 else views[:3]
        if out is None:
            out = library.empty(a, self.shape, self.dtype)
            d = cast("tuple[Any, int]", library.view(out))[1]
        else:
            d = views[-1]
            low, high = self.spans[-1]
            for address, (other_low, other_high) in zip(reads[:2] if c is out else reads, self.spans, strict=False):
                if address + other_low < d + high and d + low < address + other_high:
                    return None
        last = reads[2] if len(reads) == 3 else d
        first, second = (reads[1], reads[0]) if self.turned else (reads[0], reads[1])
        addresses: dict[Operand, int] = {"a": first, "b": second, "c": last, "d": d}
        queue = backend.as_queue(library.stream(a))
        if backend.is_captured(queue):
            # A graph's own: its scratch memory is of the library's pool for the graph, its programs stay as long as the device.
            lent: list[Any] = []
            bound = self._bound_at(addresses, lambda nbytes: _scratch_of(library, a, nbytes, lent))
            bound.relaunch_at(addresses, queue=queue)
            backend.captured.append(bound)
            return out
        try:
            bound = self.idle.pop()
        except IndexError:  # all are at work in other threads
            bound = self._bound_at(addresses)
        if bound.memory:
            with backend.ordered(queue, writes=bound.memory.values()):
                bound.relaunch_at(addresses, queue=queue)
        else:
            bound.relaunch_at(addresses, queue=queue)
        self.idle.append(bound)
        return out

    def _bound_at(self, addresses: Mapping[Operand, int], allocate: Callable[[int], Memory] | None = None) -> BoundPlan:
        """A bound plan whose operands begin at these addresses."""
        most = max(high for _, high in self.spans)
        operands = {name: Memory(None, address, most) for name, address in addresses.items()}
        bound = bind(self.plan, self.backend, operands, allocate)
        bound.let_go()
        return bound

    def _new(self) -> DeviceArray:
        """A new result: `Backend.empty` of what was worked out before."""
        backend = self.backend
        return DeviceArray(backend, backend.allocate(self._nbytes), self.shape, self.dtype, self._strides)

    @cached_property
    def _nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    @cached_property
    def _strides(self) -> tuple[int, ...]:
        return dense_strides(self.shape)

    def _are_apart(self, written: Memory, reads: Sequence[Memory]) -> bool:
        """Whether the span that is written lies beside those of the operands, whatever objects stand for their memory."""
        address = self.backend.address
        low, high = self.spans[-1]
        for memory, (other_low, other_high) in zip(reads, self.spans, strict=False):
            if memory.pooled and written.pooled and memory is not written:
                continue
            (block, start), (other, away) = address(written), address(memory)
            away -= start
            if other == block and low < away + other_high and away + other_low < high:
                return False
        return True

    def _operands(self, a: Memory, b: Memory, c: Memory, d: Memory) -> dict[Operand, Memory]:
        return {"a": b, "b": a, "c": c, "d": d} if self.turned else {"a": a, "b": b, "c": c, "d": d}

    def _bound(self, operands: Mapping[Operand, Memory]) -> BoundPlan:
        """A bound plan, for this thread alone."""
        try:
            return self.idle.pop()
        except IndexError:  # all are at work in other threads
            bound = bind(self.plan, self.backend, operands)
            bound.let_go()
            return bound


def _scratch_of(library: Library, like: Any, nbytes: int, lent: list[Any]) -> Memory:
    """Memory beside a library's array, in the order of its stream, as long as `lent` is."""
    lent.append(library.empty(like, (nbytes,), np.dtype(np.uint8)))
    return Memory(None, cast("tuple[Any, int]", library.view(lent[-1]))[1], nbytes)


_known: dict[Hashable, Repeated] = {}
"""Products of host arrays. Those of a device's arrays are kept by its backend."""

_known_of_libraries: dict[Hashable, Repeated] = {}
"""Products of other libraries' arrays on devices."""


def are_plain(a: object, b: object, out: object) -> bool:
    """Whether these are arrays of NumPy's own type, and `out` is one or None."""
    return type(a) is np.ndarray and type(b) is np.ndarray and (out is None or type(out) is np.ndarray)


def are_on_one_device(a: Any, b: Any, c: Any, out: Any) -> bool:
    """Whether these are our own arrays on one device; C and `out` may be None."""
    return (
        type(a) is DeviceArray
        and type(b) is DeviceArray
        and a.backend is b.backend
        and (c is None or (type(c) is DeviceArray and c.backend is a.backend))
        and (out is None or (type(out) is DeviceArray and out.backend is a.backend))
    )


def key(a: Any, b: Any, c: Any, out: Any, choices: Hashable, backend: Any, device: Any) -> Hashable:
    """What a product depends on, beside its numbers and their addresses; None where it is none that is kept.

    Args:
        choices: whatever else the caller decides by, beside the place.
        backend, device: of `gemm`.
    """
    if are_plain(a, b, out) and c is None:
        operands: Hashable = a.dtype, a.shape, a.strides, b.dtype, b.shape, b.strides, out is None or _lies(out)
        place: Hashable = backend, device
        if not isinstance(device, DeviceInfo):
            place = backend, device, _variable(b"GEMMPORT_BACKEND"), _variable(b"GEMMPORT_DEVICE")
    elif are_on_one_device(a, b, c, out) and backend is None and device is None:
        operands = (
            _lies_on_device(a), _lies_on_device(b), c is None or _lies_on_device(c), out is None or _lies_on_device(out)
        )  # fmt: skip
        place = None
    else:
        return None
    return operands, place, choices, _variable(b"GEMMPORT_CONFIG_PATH")


def _reader() -> Callable[[bytes], bytes | None]:
    """Reads a variable of the environment, as every call does.

    By C's getenv, which `os.environ` keeps in step on POSIX: 0.4 µs. `os.environ.get` takes 1.3 where the variable is not set,
    for it raises and catches two errors.
    """
    if os.name == "posix":
        with suppress(OSError, AttributeError):
            getenv = ctypes.PyDLL(None).getenv
            getenv.restype, getenv.argtypes = ctypes.c_char_p, [ctypes.c_char_p]
            return getenv
    return lambda name: os.fsencode(os.environ.get(os.fsdecode(name), "")) or None


_variable = _reader()


def _lies(x: HostArray) -> Hashable:
    return x.dtype, x.shape, x.strides


def _lies_on_device(x: DeviceArray) -> Hashable:
    memory = x.memory
    return x.dtype, x.shape, x.strides, x.offset, memory.alignment, memory.nbytes


def product(wanted: Hashable, a: Any, b: Any, c: Any, out: Any, queue: Any) -> Any:
    """The product of a key; None where there was none before whose device is still open, or it cannot be repeated."""
    if wanted is None:
        return None
    on_device = type(a) is DeviceArray
    found = _found(a.backend.kept if on_device else _known, wanted)
    if found is None:
        return None
    return found.of_device_arrays(a, b, c, out, queue) if on_device else found.of_host_arrays(a, b, out)


def _found(known: dict[Hashable, Any], wanted: Hashable) -> Repeated | None:
    try:
        found: Repeated | None = known.get(wanted)
    except TypeError:  # a choice cannot be a key, such as an array for alpha
        return None
    if found is None or found.family is not kernels.family():
        return None
    if found.backend.closed:
        known.pop(wanted, None)
        return None
    return found


class OfLibrary(NamedTuple):
    """A product of arrays of one library, all on one device and read as they lie there.

    Attributes:
        key: what it depends on, beside its numbers and their addresses.
        addresses: of A, B, C unless it is None, and `out` unless that is.
    """

    library: Library
    key: Hashable
    addresses: Sequence[int]

    def again(self, a: Any, c: Any, out: Any) -> Any:
        """The product; None where there was none before whose device is still open, or it cannot be repeated."""
        found = _found(_known_of_libraries, self.key)
        return None if found is None else found.of_library_arrays(self.library, self.addresses, a, c, out)


def of_library(a: Any, b: Any, c: Any, out: Any, choices: Hashable) -> OfLibrary | None:
    """A product whose operands are all of one library; None where they are not, or must be looked at more closely.

    Args:
        choices: whatever else the caller decides by; no place is chosen beside arrays on a device.
    """
    library = library_of_type(type(a))
    if library is None or library_of_type(type(b)) is not library:
        return None
    lying: list[Hashable] = []
    addresses: list[int] = []
    for x in (a, b, c, out):
        if x is None:
            lying.append(None)
            continue
        view = library.view(x) if x is a or library_of_type(type(x)) is library else None
        if view is None:
            return None
        lying.append(view[0])
        addresses.append(view[1])
    return OfLibrary(library, (*lying, choices, _variable(b"GEMMPORT_CONFIG_PATH")), addresses)


def keep_of_host_arrays(wanted: Hashable, bound: BoundPlan, *, turned: bool, result: HostArray) -> None:
    """Keeps a product of host arrays that was computed, for others of its key."""
    _keep(_known, wanted, Repeated(bound.plan, bound.backend, turned, result.shape, result.dtype, idle=[bound]))


def keep_of_device_arrays(
    wanted: Hashable,
    bound: BoundPlan,
    *,
    turned: bool,
    operands: Sequence[DeviceArray],
    result: DeviceArray,
    library: Library | None = None,
) -> None:
    """Keeps a product of a device's arrays that was enqueued, for others of its key.

    Args:
        operands: A, B and, where it is read, C.
        library: that the arrays are of; None for ours.
    """
    spans = [(low * x.dtype.itemsize, high * x.dtype.itemsize) for x in (*operands, result) for low, high in (x.reach,)]
    # Where one array was two operands, two arrays may be so in the next.
    if sum(x.memory.nbytes for x in (*operands, result)) + bound.plan.scratch_bytes <= bound.plan.device.memory:
        found = Repeated(bound.plan, bound.backend, turned, result.shape, result.dtype, spans, idle=[bound])
        _keep(bound.backend.kept if library is None else _known_of_libraries, wanted, found)


def _keep(known: dict[Hashable, Any], wanted: Hashable, found: Repeated) -> None:
    try:
        hash(wanted)
    except TypeError:
        return
    short = found.plan.device.max_allocation < found.backend.device.max_allocation  # of memory, for the plan of before
    if wanted is None or short or found.plan.scratch_bytes > _MOST_SCRATCH:
        return
    for oldest in tuple(known):  # a copy: other threads keep and forget products meanwhile
        if len(known) < _MOST and _scratch_bytes(known) + found.scratch_bytes <= _MOST_SCRATCH:
            break
        known.pop(oldest, None)
    for bound in found.idle:
        bound.let_go()
    known[wanted] = found


def _scratch_bytes(known: Mapping[Hashable, Repeated]) -> int:
    return sum(each.scratch_bytes for each in tuple(known.values()))
