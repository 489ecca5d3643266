"""Products that were computed before, of other numbers: what was decided for the first is kept for the next, which then takes
some microseconds of the host beside its kernels.

Only products that use their operands in place are kept: nothing but the addresses of A, B, C and D, and of scales, differs from
one to the next. Two of one key have one plan: a key is all that a plan depends on.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from gemmport.backends._ordering import IN_ORDER, is_alone
from gemmport.backends.array import DeviceArray, dense_strides
from gemmport.backends.objects import Memory
from gemmport.core.device import DeviceInfo
from gemmport.core.errors import DeviceMemoryError, LaunchError
from gemmport.execution.adapters import Library, address_on_host, library_of_type, views_on_host
from gemmport.execution.jax_calls import Computation, Work
from gemmport.execution.prepared import Prepared
from gemmport.execution.sharded import ShardedArray
from gemmport.runtime.kept import keep

log = logging.getLogger(__name__)

HostArray = npt.NDArray[Any]


@dataclass
class Repeated:
    """A product of arrays that may be computed again: what lies between them and the prepared call.

    Attributes:
        turned: whether the plan computes Dᵀ = Bᵀ · Aᵀ.
        shape, dtype: of the result.
        spans: of arrays on a device, A, B, C where it is read, scales, and the result: the first byte of their memory that they
            touch, and the one after the last.
        adds: whether C is read.
    """

    prepared: Prepared
    turned: bool
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    spans: Sequence[tuple[int, int]] = ()
    adds: bool = False

    @property
    def usable(self) -> bool:
        """As of the prepared call."""
        return self.prepared.usable

    def of_host_arrays(
        self,
        a: HostArray,
        b: HostArray,
        c: HostArray | None,
        out: HostArray | None,
        addresses: tuple[int, ...] | None,
        queue: Any = None,
        scales: Sequence[HostArray] = (),
    ) -> HostArray | None:
        """The product of operands that lie as those before did, of vectors as a scalar; None where one of them, or `out`,
        cannot be used in place.

        Args:
            addresses: of `views_on_host`; of those without scales.
            queue: as `gemm`.
            scales: of rows and of columns, as far as there are any.
        """
        backend = self.prepared.backend
        if addresses is not None and backend.takes_addresses:
            left, right, last, d = addresses
            is_new = out is None
            if out is None:
                out = np.empty(self.shape, self.dtype)
                d = address_on_host(out)
            operands = self._operands(left, right, last if self.adds else d, d)
            if queue is None:
                self.prepared.launch(operands)
                backend.synchronize()
            else:
                backend.give_back(backend.stand_in(d, out.nbytes), queue=self._launch(operands, queue))
            return out if self.shape or not is_new else out[()]
        third, is_new = c if self.adds else None, out is None
        if out is None:
            out = np.empty(self.shape, self.dtype)
        elif not out.flags.writeable or any(
            x is not None and np.may_share_memory(out, x) for x in (a, b, third, *scales)
        ):
            return None
        lent_a, lent_b, lent_d = backend.borrow(a), backend.borrow(b), backend.borrow(out)
        lent_c = lent_d if third is None else backend.borrow(third)
        factors = [memory for x in scales if (memory := backend.borrow(x)) is not None]
        if lent_a is None or lent_b is None or lent_c is None or lent_d is None or len(factors) < len(scales):
            return None
        where = None
        try:
            operands = self._operands(*map(backend.argument, (lent_a, lent_b, lent_c, lent_d)))
            operands += self._in_plans_order([*map(backend.argument, factors)])
            if queue is None:
                self.prepared.launch(operands)
            else:
                where = self._launch(operands, queue)
        finally:
            backend.give_back(lent_d, queue=where)
        return out if self.shape or not is_new else out[()]

    def of_device_arrays(
        self, a: DeviceArray, b: DeviceArray, c: DeviceArray | None, out: DeviceArray | None, queue: Any,
        scales: Sequence[DeviceArray] = (),
    ) -> DeviceArray | None:  # fmt: skip
        """The product of operands that lie as those before did, enqueued; None where `out` cannot be written, or to write it
        might change an operand.

        Args:
            queue: as `gemm`.
            scales: of rows and of columns, as far as there are any.
        """
        backend = self.prepared.backend
        left, right = a.memory, b.memory
        third = c.memory if c is not None and self.adds else None
        reads: tuple[Memory, ...] = (left, right) if third is None else (left, right, third)
        if scales:
            reads += tuple(x.memory for x in scales)
        for memory in reads:
            if not memory.nbytes:  # released
                return None
        if out is None:
            out = self._new()
        elif out.memory.read_only or not self._are_apart(out.memory, reads, c is out):
            return None
        d = out.memory
        where, order = (left.access.writer, IN_ORDER) if queue is None else backend.in_order(queue)
        if where is not None and backend.is_captured(where):
            return None
        argument = backend.argument
        written = argument(d)
        last = written if third is None else argument(third)
        operands = self._operands(argument(left), argument(right), last, written)
        if scales:
            operands += self._in_plans_order([argument(x.memory) for x in scales])
        if order is IN_ORDER and is_alone(where, reads, (d,)):  # in half a microsecond less than by `ordered`
            self.prepared.launch(operands, where)
        else:
            with order, backend.ordered(where, reads=reads, writes=[d]):
                self.prepared.launch(operands, where)
        return out

    def of_library_arrays(
        self, library: Library, memory: tuple[Any, ...], home: Any, a: Any, b: Any, c: Any, out: Any, queue: Any
    ) -> Any:  # fmt: skip
        """The product of another library's arrays that lie as those before did, enqueued; None where to write `out` might
        change an operand, or a graph is captured and the queue is given.

        Args:
            memory, home: of `Library.views`.
            queue: as `gemm`.
        """
        spans = self.spans
        left, right, third, d = memory
        if c is None or not self.adds:
            third = None
        if out is None:
            out = library.empty(a, self.shape, self.dtype)
            d = library.memory(out)
        else:
            low, high = spans[-1]
            apart = library.apart
            if not (apart(left, spans[0], d, low, high) and apart(right, spans[1], d, low, high)):
                return None
            if third is not None and c is not out and not apart(third, spans[2], d, low, high):
                return None
        last, backend = d if third is None else third, self.prepared.backend
        if queue is not None:
            try:
                owner = backend.as_owner(home)
            except (
                LaunchError
            ):  # nothing keeps the library's queue: its handle, which the key has, is that of another now
                return None
            where, order = backend.in_order(queue)
            if backend.is_captured(where) or backend.is_captured(owner):
                return None
            with order, backend.between(owner, where):
                self.prepared.launch(self._operands(left, right, last, d), where)
            if where != owner:
                library.used([a, b, out] if third is None else [a, b, c, out])
            library.written(out, backend, where)
            return out
        if home and backend.is_captured(home):
            lent: list[Any] = []
            self.prepared.capture(
                self._operands(left, right, last, d),
                queue=home,
                allocate=lambda nbytes: _scratch_of(library, a, nbytes, lent),
            )
            if not library.graphs_keep_memory:
                backend.keep_for_graph(home, lent)
            return out
        event = self.prepared.launch(self._operands(left, right, last, d), home, marked=library.marks)
        if event is not None:
            library.written(out, backend, home, event)
        return out

    def _launch(self, operands: tuple[Any, ...], queue: Any) -> Any:
        """Enqueues the product where work on a caller's queue is done, and tells where that is."""
        where, order = self.prepared.backend.in_order(queue)
        with order:
            self.prepared.launch(operands, where)
        return where

    def _operands(self, a: Any, b: Any, c: Any, d: Any) -> tuple[Any, ...]:
        return (b, a, c, d) if self.turned else (a, b, c, d)

    def _in_plans_order(self, scales: Sequence[Any]) -> tuple[Any, ...]:
        """Scales of rows and of columns of the result as the plan has them."""
        return tuple(scales[::-1] if self.turned else scales)

    def _new(self) -> DeviceArray:
        """A new result: `Backend.empty` of what was worked out before."""
        backend = self.prepared.backend
        return DeviceArray(backend, backend.allocate(self._nbytes), self.shape, self.dtype, self._strides)

    @cached_property
    def _nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    @cached_property
    def _strides(self) -> tuple[int, ...]:
        return dense_strides(self.shape)

    def _are_apart(self, written: Memory, reads: Sequence[Memory], updates: bool) -> bool:
        """Whether the span that is written lies beside those of the operands, whatever objects stand for their memory.

        Args:
            updates: whether C is written, and need not be apart.
        """
        spans = self.spans
        if updates and self.adds:
            reads, spans = (*reads[:2], *reads[3:]), (*spans[:2], *spans[3:])
        for memory in reads:
            if memory is written or not memory.pooled:
                break
        else:
            if written.pooled:  # blocks of the pool never overlap
                return True
        address = self.prepared.backend.address
        low, high = spans[-1]
        for memory, (other_low, other_high) in zip(reads, spans, strict=False):
            (block, start), (other, away) = address(written), address(memory)
            away -= start
            if other == block and low < away + other_high and away + other_low < high:
                return False
        return True


@dataclass(frozen=True)
class Otherwise:
    """A product of two host arrays that is found without a prepared call of its own: from copies, or from nothing. It has no C,
    no scales, and no queue that is given.

    Attributes:
        compute: gives the product of A and B, in `out` where there is one.
    """

    compute: Callable[[HostArray, HostArray, HostArray | None], HostArray]
    usable = True

    def product(self, a: HostArray, b: HostArray, out: HostArray | None) -> HostArray | None:
        """The product of operands that lie as those before did; None where `out` cannot be written."""
        return None if out is not None and not out.flags.writeable else self.compute(a, b, out)


@dataclass
class WithinTheirs:
    """A product that a library computes in a computation of its own, in which the work is ours.

    The library compiles that for the second of a kind: it takes longer than a product from outside.

    Attributes:
        shape, dtype: of the result.
    """

    work: Work
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    _compute: Computation | None = None
    _is_refused: bool = False
    usable = True

    def of_library_arrays(
        self, library: Library, memory: tuple[Any, ...], home: Any, a: Any, b: Any, c: Any, out: Any, queue: Any
    ) -> Any:  # fmt: skip
        """The product of arrays that lie as those before did, enqueued; None where the library does not compute it, or not now.

        Args:
            memory, home: of `Library.views`; not used.
            out, queue: must be None, for the library decides of both.
        """
        if self._is_refused or out is not None or queue is not None:
            return None
        operands = (a, b) if c is None else (a, b, c)
        if self._compute is None:
            try:
                self._compute = library.computation(self.work, operands, self.shape, self.dtype)
            except (ValueError, RuntimeError) as refused:
                log.info("%s compiles no product now: %s", library.name, refused)
                return None
            if self._compute is None:
                self._is_refused = True
                return None
        return self._compute(*operands)


def _scratch_of(library: Library, like: Any, nbytes: int, lent: list[Any]) -> Memory:
    """Memory beside a library's array, in the order of its stream, as long as `lent` is."""
    lent.append(library.empty(like, (nbytes,), np.dtype(np.uint8)))
    return Memory(None, library.memory(lent[-1]), nbytes)


class InShards(Protocol):
    """A product of arrays in shards that may be computed again."""

    @property
    def usable(self) -> bool:
        """Whether it may."""

    def again(self, a: ShardedArray, b: Any, c: Any, out: Any) -> ShardedArray | None:
        """The product of arrays that lie as those before did; None where it must be computed anew."""


_known: dict[Hashable, Repeated | Otherwise] = {}
"""Products of host arrays. Those of a device's arrays are kept by its backend."""

_known_of_libraries: dict[Hashable, Repeated | WithinTheirs] = {}
"""Products of other libraries' arrays on devices."""


def again(
    a: Any, b: Any, c: Any, out: Any, choices: Hashable, backend: Any = None, device: Any = None, queue: Any = None,
    scales: tuple[Any, ...] = (),
) -> tuple[Hashable, Any]:  # fmt: skip
    """A product, where one of its kind was computed before; else what it is kept under when it is.

    Args:
        a, b, c, out, backend, device, queue: of `gemm`.
        choices: whatever else the caller decides by.
        scales: arrays, of rows and of columns, as far as there are any; which there are is among the choices.

    Returns:
        The key of what it depends on, beside its numbers and their addresses, or None where that is not kept; and the
        result, or None where it must be computed anew.
    """
    kind = type(a)
    key: Hashable
    if kind is DeviceArray:
        if not _are_on_one_device(a, b, c, out) or backend is not None or device is not None:
            return None, None
        key = a.lies, b.lies, c is None or c.lies, out is None or out.lies, choices, _variable(_CONFIG_PATH)
        if scales:
            if not all(type(x) is DeviceArray and x.backend is a.backend for x in scales):
                return None, None
            key = (*key, *(x.lies for x in scales))
        found: Repeated | None = _found(a.backend.kept, key)
        if found is None:
            return key, None
        try:
            return key, found.of_device_arrays(a, b, c, out, queue, scales)
        except DeviceMemoryError as short:  # a plan that takes less of it is found on the way of the first
            log.info("planned anew: %s", short)
            return key, None
    if kind is np.ndarray:
        for x in (b, c, out):
            if x is not None and type(x) is not np.ndarray:
                return None, None
        place: Hashable = (backend, device)
        if not isinstance(device, DeviceInfo):
            place = backend, device, _variable(_BACKEND), _variable(_DEVICE)
        lying, addresses = views_on_host(a, b, c, out)
        key = lying, place, choices, _variable(_CONFIG_PATH)
        if scales:
            if not all(type(x) is np.ndarray for x in scales):
                return None, None
            key, addresses = (*key, *((x.dtype, x.shape, x.strides) for x in scales)), None
        found = _found(_known, key)
        if found is None:
            return key, None
        try:
            if type(found) is Otherwise:
                return key, found.product(a, b, out) if queue is None else None
            return key, found.of_host_arrays(a, b, c, out, addresses, queue, scales)
        except DeviceMemoryError as short:  # a plan that takes less of it is found on the way of the first
            log.info("planned anew: %s", short)
            return key, None
    if kind is ShardedArray:
        if backend is not None or device is not None or queue is not None or scales:
            return None, None
        return _again_in_shards(a, b, c, out, choices)
    library = library_of_type(kind)
    if library is None or scales:
        return None, None
    for x in (b, c, out):
        if x is not None and type(x) is not kind and library_of_type(type(x)) is not library:
            return None, None
    views = library.views(a, b, c, out)
    if views is None:
        on_host = library.views_on_host(a, b, c, out)
        if on_host is None:
            return None, None
        key, product = again(*on_host, choices, backend, device, queue)
        if product is None or out is not None:
            return key, product if product is None else out
        return key, library.from_host(np.asarray(product))
    if backend is not None or device is not None:
        return None, None
    lying, memory, home = views
    # What is kept of a queue that is given need not be in order on the library's own, which may have no order.
    key = (
        (lying, choices, _variable(_CONFIG_PATH))
        if queue is None
        else (lying, choices, _variable(_CONFIG_PATH), "queue")
    )
    found = _found(_known_of_libraries, key)
    if found is None:
        return key, None
    try:
        return key, found.of_library_arrays(library, memory, home, a, b, c, out, queue)
    except DeviceMemoryError as short:  # a plan that takes less of it is found on the way of the first
        log.info("planned anew: %s", short)
        return key, None


def _again_in_shards(a: ShardedArray, b: Any, c: Any, out: Any, choices: Hashable) -> tuple[Hashable, Any]:
    """As `again`, of arrays in shards, which their devices multiply."""
    lying = [_lies_on_devices(x) for x in (a, b, c, out)]
    if None in lying:
        return None, None
    key: Hashable = (*lying, choices, _variable(_CONFIG_PATH))
    found: InShards | None = _found(a.shards[0].backend.kept, key)
    return key, None if found is None else found.again(a, b, c, out)


def _lies_on_devices(x: Any) -> Hashable:
    """How an array, or each shard of it, lies on which device; True for none, None where it is another library's."""
    if x is None:
        return True
    if type(x) is DeviceArray:
        return x.backend, x.lies
    if type(x) is not ShardedArray or any(type(shard) is not DeviceArray for shard in x.shards):
        return None
    return x.axis, *((shard.backend, shard.lies) for shard in x.shards)


def _are_on_one_device(a: DeviceArray, b: Any, c: Any, out: Any) -> bool:
    backend = a.backend
    return (
        type(b) is DeviceArray
        and b.backend is backend
        and (c is None or (type(c) is DeviceArray and c.backend is backend))
        and (out is None or (type(out) is DeviceArray and out.backend is backend))
    )


_CONFIG_PATH, _BACKEND, _DEVICE = b"GEMMPORT_CONFIG_PATH", b"GEMMPORT_BACKEND", b"GEMMPORT_DEVICE"


def _reader() -> Callable[[bytes], object]:
    """Reads a variable of the environment, as every call does.

    On POSIX in the dictionary that `os.environ` keeps, in 0.1 µs: `os.environ.get` takes 1.3 where the variable is not set, for
    it raises and catches two errors.
    """
    kept = getattr(os.environ, "_data", None)
    if os.name == "posix" and isinstance(kept, dict):
        return kept.get
    return lambda name: os.environ.get(os.fsdecode(name))


_variable = _reader()


def _found(known: dict[Hashable, Any], wanted: Hashable) -> Any:
    try:
        found = known.get(wanted)
    except TypeError:  # a choice cannot be a key, such as an array for alpha
        return None
    if found is None:
        return None
    if not found.usable:
        known.pop(wanted, None)
        return None
    return found


def keep_of_host_arrays(
    wanted: Hashable, prepared: Prepared, *, turned: bool, operands: Sequence[HostArray], result: HostArray
) -> None:
    """Keeps a product of host arrays A, B and, where it is read, C, that was computed, for others of its key."""
    _keep(_known, wanted, Repeated(prepared, turned, result.shape, result.dtype, adds=len(operands) == 3))


def keep_of_device_arrays(
    wanted: Hashable,
    prepared: Prepared,
    *,
    turned: bool,
    operands: Sequence[DeviceArray],
    result: DeviceArray,
    library: Library | None = None,
    home: Any = None,
    scales: Sequence[DeviceArray] = (),
) -> None:
    """Keeps a product of a device's arrays that was enqueued, for others of its key.

    Args:
        operands: A, B and, where it is read, C.
        library: that the arrays are of; None for ours.
        home: the queue that the library is to work on, on all of them, for the product to be kept.
    """
    if library is not None and not library.writable:
        return  # its next result is not written from outside
    used = (*operands, *scales, result)
    spans = [(low * x.dtype.itemsize, high * x.dtype.itemsize) for x in used for low, high in (x.reach,)]
    if library is not None and any(x.memory.access.home != home for x in used):
        return  # who waits for whom is to be told each time
    # Where one array was two operands, two arrays may be so in the next.
    if sum(x.memory.nbytes for x in used) + prepared.plan.scratch_bytes <= prepared.plan.device.memory:
        known = prepared.backend.kept if library is None else _known_of_libraries
        adds = len(operands) == 3
        _keep(known, wanted, Repeated(prepared, turned, result.shape, result.dtype, spans, adds))


def keep_otherwise(wanted: Hashable, found: Otherwise | None) -> None:
    """Keeps how products of host arrays of a key are found; of None it keeps none."""
    if found is not None:
        _keep(_known, wanted, found)


def keep_within(wanted: Hashable, work: Work, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    """Keeps that a library computes products of a key by itself, with some work of ours within; once, for it may refuse.

    Args:
        shape, dtype: of the result.
    """
    if _found(_known_of_libraries, wanted) is None:
        _keep(_known_of_libraries, wanted, WithinTheirs(work, shape, dtype))


def keep_in_shards(wanted: Hashable, a: ShardedArray, found: InShards) -> None:
    """Keeps a product of arrays in shards, of which A was one, for others of its key; of None it keeps none."""
    if wanted is not None:
        _keep(a.shards[0].backend.kept, wanted, found)


def _keep(known: dict[Hashable, Any], wanted: Hashable, found: Repeated | Otherwise | WithinTheirs | InShards) -> None:
    with suppress(TypeError):  # a choice cannot be a key
        hash(wanted)
        keep(known, wanted, found)
