"""Where the operands of a product are, and how they lie there: in place where they can be read so, else copied."""

from __future__ import annotations

import logging
import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np

from gemmport.api.arguments import Given, HostArray, backend_of_operands, common_type, queue_of_operands
from gemmport.api.views import swapped
from gemmport.backends.array import DeviceArray
from gemmport.backends.base import Backend
from gemmport.backends.objects import Memory
from gemmport.backends.segments import within_one
from gemmport.core.dtypes import FLOAT32
from gemmport.core.layout import element_strides, readable_in_place
from gemmport.core.problem import Layout, Op, transposed
from gemmport.execution import repeated
from gemmport.execution.adapters import Library, adopted, check_on, library_of
from gemmport.execution.copies import dense_copy, stacked
from gemmport.execution.prepared import Prepared

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Result:
    """Where a product on a device is written.

    Attributes:
        library: that the caller's array is of; None for ours.
        theirs: the array that the caller passed, or that the library made; None where ours goes to the caller.
    """

    array: DeviceArray
    library: Library | None
    theirs: Any = None


@dataclass
class Placement:
    """Where and on which queue a product is computed, and what was borrowed for it: arrays of other libraries on the device,
    and arrays in the host's memory, used in place.

    Attributes:
        awaited: whether the call waits for the product. Only then are arrays in the host's memory used in place: after the call
            they are the caller's again.
        borrowed: of other libraries, each with its library and their array.
        prepared, turned: what computed it, and whether as Dᵀ = op(B)ᵀ · op(A)ᵀ.
        as_given: whether the next of its kind may be so, too: it read the operands, and wrote the result, where they lie.
        scales: that it read, of rows before those of columns.
    """

    backend: Backend
    awaited: bool
    queue: Any = None
    borrowed: list[tuple[Library, Any, DeviceArray]] = field(default_factory=list)
    in_place: list[DeviceArray] = field(default_factory=list)
    prepared: Prepared | None = None
    turned: bool = False
    as_given: bool = False
    scales: list[Memory] = field(default_factory=list)

    @classmethod
    def where(cls, given: Given) -> Placement:
        """Where one argument on a device is, of several that may be on different ones, borrowed there.

        Raises:
            ArrayError: the elements of a list are on different devices.
        """
        place = cls(backend_of_operands([given]), awaited=True)
        place.borrow([given])
        place.queue = place.backend.as_queue(queue_of_operands([given]))
        return place

    def borrow(self, on_device: Iterable[Given]) -> None:
        """Takes arguments on a device as arrays of ours; one object is one array, wherever it is passed.

        Raises:
            ArrayError: one is not on this device.
        """
        known: dict[int, DeviceArray] = {}
        for given in on_device:
            for value in given.values:
                library = library_of(value)
                if id(value) not in known:
                    check_on(self.backend, given.name, library, value)
                if id(value) not in known and library is None:
                    known[id(value)] = self.backend.asarray(value)
                elif id(value) not in known and library is not None:
                    known[id(value)] = adopted(library, value, self.backend)
                    self.borrowed.append((library, value, known[id(value)]))
                given.arrays.append(known[id(value)])

    def borrow_host(self, host: HostArray) -> DeviceArray | None:
        """A host array as one of the device, in place; None where it must be copied."""
        strides = element_strides(host)
        memory = self.backend.borrow(host) if strides and self.awaited else None
        if strides is None or memory is None:
            return None
        self.in_place.append(DeviceArray(self.backend, memory, host.shape, host.dtype, strides, 0))
        return self.in_place[-1]

    def uses(self, *arrays: HostArray) -> bool:
        """Whether all of these are used in place."""
        lent = {id(array.memory.keeper) for array in self.in_place}
        return all(id(array) in lent for array in arrays)

    def result(
        self, given: Mapping[str, Given], shape: tuple[int, ...], dtype: np.dtype[Any], order: str = "C"
    ) -> Result:
        """Where the product of operands of which one is on the device is written: `out`, or a new array of the kind of the
        first of these.
        """
        if "out" in given:
            out = given["out"]
            return Result(cast("DeviceArray", self.of(out)), out.library, out.value)
        first = next(x for x in given.values() if x.on_device)
        library = first.library
        if library is not None:  # which takes one address
            self.backend.check_allocation(math.prod(shape) * dtype.itemsize)
        made = None if library is None else library.empty(first.values[0], shape, dtype, order)
        if library is not None and made is not None:
            array = adopted(library, made, self.backend)
            self.borrowed.append((library, made, array))
            return Result(array, library, made)
        new = self.backend.empty(shape[::-1], dtype).T if order == "F" else self.backend.empty(shape, dtype)
        return Result(new, library)

    def delivered(self, result: Result) -> Any:
        """What the caller gets, of which its library, and those of the operands, know when it is written and read."""
        self.settle()
        if result.library is None:
            return result.array if result.theirs is None else result.theirs
        if result.theirs is None:
            return result.library.result(result.array)
        result.library.written(result.theirs, self.backend, self.queue)
        return result.theirs

    def settle(self) -> None:
        """Has the libraries of what was borrowed know when it is written and read."""
        for library, theirs, array in self.borrowed:
            if array.memory.access.home != self.queue:
                library.used([theirs])
            self.backend.settle(array.memory)

    def keep(
        self, wanted: Hashable, operands: Sequence[Any], result: Result | HostArray, *, elsewhere: bool = False,
        scales: Sequence[Any] = (),
    ) -> bool:  # fmt: skip
        """Keeps a product that was computed as given, for others of its key; of None it keeps none. Returns whether it does.

        Args:
            scales: as they were given.
            elsewhere: whether others of its key are computed on a queue that is given, beside that of the arrays' library.
        """
        if wanted is None or self.prepared is None or not self.as_given or not self._reads(scales):
            return False
        if isinstance(result, Result):
            home = operands[0].memory.access.home if elsewhere else self.queue
            repeated.keep_of_device_arrays(
                wanted, self.prepared, turned=self.turned, operands=operands, result=result.array, library=result.library,
                home=home, scales=scales,
            )  # fmt: skip
        else:
            repeated.keep_of_host_arrays(wanted, self.prepared, turned=self.turned, operands=operands, result=result)
        return True

    def _reads(self, scales: Sequence[Any]) -> bool:
        """Whether these are the scales that were read, where they lie."""
        return len(scales) == len(self.scales) and all(
            used is given.memory if isinstance(given, DeviceArray) else _is_lent(used, given)
            for used, given in zip(self.scales, scales, strict=True)
        )

    def of(self, given: Given) -> DeviceArray | HostArray:
        """An argument as one array: ours on the device, which for a list is a copy, or the host's."""
        if given.on_device and isinstance(given.value, list):
            arrays = cast("list[DeviceArray]", given.arrays)
            return stacked(arrays, common_type(given.dtypes), queue=self.queue)
        return given.arrays[0]


def _is_lent(memory: Memory, host: HostArray) -> bool:
    """Whether a memory is that of a host array, used in place."""
    return isinstance(memory.keeper, np.ndarray) and begins_where(memory.keeper, host)


def begins_where(x: DeviceArray | HostArray, other: DeviceArray | HostArray) -> bool:
    """Whether the first elements of two arrays lie at one place."""
    if isinstance(x, DeviceArray) and isinstance(other, DeviceArray):
        return x.memory is other.memory and x.offset == other.offset
    if isinstance(x, DeviceArray) or isinstance(other, DeviceArray):
        return False
    return bool(x.ctypes.data == other.ctypes.data)


def readable(place: Placement, x: DeviceArray | HostArray, dtype: np.dtype[Any]) -> DeviceArray:
    """An operand on the device, in a type, and so that it is read in place."""
    if isinstance(x, DeviceArray):
        if is_read_in_place(x, dtype):
            return x
        log.info("an operand of shape %s, strides %s and type %s is copied to %s", x.shape, x.strides, x.dtype, dtype)
        return dense_copy(x, dtype, queue=place.queue)
    host = x
    if x.dtype != dtype:
        place.backend.check_room(x.size * dtype.itemsize)
        with np.errstate(all="ignore"):
            host = x.astype(dtype)
    strides = element_strides(host)
    found = readable_in_place(host.shape, strides) if strides else None
    if found is not None and (lent := place.borrow_host(host)) is not None:
        return lent
    # What is stored transposed (column-major) is sent as it lies, and not rearranged on the host.
    if found is not None and found[1]:
        return cast("DeviceArray", swapped(place.backend.asarray(swapped(host))))
    return place.backend.asarray(host)


def readable_scales(place: Placement, x: DeviceArray | HostArray) -> DeviceArray:
    """Scales of rows or columns as float32 in one allocation of the device; the host's are copied, or used in place."""
    if isinstance(x, DeviceArray):
        found = within_one(x) if x.dtype == FLOAT32.numpy else None
        return dense_copy(x, FLOAT32.numpy, queue=place.queue) if found is None else found
    lent = place.borrow_host(x) if x.dtype == FLOAT32.numpy and x.size else None
    return place.backend.asarray(np.array(x, FLOAT32.numpy)) if lent is None else lent


def is_read_in_place(x: DeviceArray, dtype: np.dtype[Any]) -> bool:
    """Whether a product of a type reads an operand as it lies."""
    return x.dtype == dtype and _found(x) is not None


def _found(x: DeviceArray) -> tuple[Layout, bool] | None:
    return readable_in_place(x.shape, x.strides, x.offset, base_alignment=x.memory.alignment)


def layout_of(x: DeviceArray) -> tuple[Layout, bool]:
    """The layout of an array of `readable`, and whether it is stored transposed."""
    return cast("tuple[Layout, bool]", _found(x))


def as_stored(x: DeviceArray, op: Op) -> tuple[Layout, Op]:
    """The layout of an array of `readable`, and its op as it is stored."""
    layout, stored_transposed = layout_of(x)
    return layout, transposed(op) if stored_transposed else op
