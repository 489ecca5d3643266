"""Arrays of every stride over memory that is poison wherever it is not theirs, on the host and on a device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gemmport.backends.array import DeviceArray
from gemmport.backends.base import Backend
from gemmport.checking.guarded_run import same_bits
from gemmport.checking.verification import HostArray, poison

KINDS = ("dense", "Fortran", "gaps", "steps", "negative strides", "zero strides")
"""How an array lies: C-contiguous; its last two dimensions exchanged; a part of larger rows; every other element; backwards;
one row for all."""

WRITABLE = ("dense", "gaps", "steps", "negative strides")
"""How an array may lie that is written to."""


@dataclass(frozen=True)
class View:
    """An array, the memory that it is a view of, and what that memory held at first.

    Attributes:
        array: what is passed; a host array, or a device array.
        base: the whole memory, of the same kind.
        index: array = base[index], after the last two dimensions were exchanged where `exchanged`.
        before: the elements of the base.
    """

    array: Any
    base: Any
    index: tuple[Any, ...]
    exchanged: bool
    before: HostArray

    def now(self) -> HostArray:
        """The base's elements, on the host."""
        return self.base.get() if isinstance(self.base, DeviceArray) else self.base

    def stray(self, *, written: bool) -> str:
        """What changed and must not have, for people; empty where nothing did. Where `written`, the array itself may have."""
        now = np.array(self.now(), copy=True)
        if written:
            _of(now, self.index, exchanged=self.exchanged)[...] = _of(self.before, self.index, exchanged=self.exchanged)
        return (
            "" if same_bits(now.reshape(-1), self.before.reshape(-1)) else "memory was changed that is not the result's"
        )


def constant_along_rows(values: HostArray, kind: str) -> HostArray:
    """The values that a view of the kind can hold: where rows repeat, the first of them."""
    if kind != "zero strides" or values.ndim < 2 or not values.shape[-2]:
        return values
    return np.broadcast_to(values[..., :1, :], values.shape)


def view_of(values: HostArray, kind: str, backend: Backend | None = None) -> View:
    """An array of the given elements that lies as `kind` says; on a device where a backend is given.

    A device array is exchanged only where it is a single matrix.
    """
    exchanged = kind == "Fortran" and values.ndim >= 2 and (backend is None or values.ndim == 2)
    shape = (*values.shape[:-2], values.shape[-1], values.shape[-2]) if exchanged else values.shape
    every = slice(None)
    match kind:
        case "gaps":
            base_shape = (*shape[:-1], shape[-1] + 5)
            index: tuple[Any, ...] = (*[every] * (len(shape) - 1), slice(2, 2 + shape[-1]))
        case "steps":
            base_shape = tuple(2 * extent + 1 for extent in shape)
            index = tuple(slice(1, None, 2) for _ in shape)
        case "negative strides":
            base_shape, index = shape, tuple(slice(None, None, -1) for _ in shape)
        case "zero strides" if len(shape) >= 2 and shape[-2] and backend is None:
            base_shape, index = (*shape[:-2], 1, shape[-1]), tuple(every for _ in shape)
        case _:
            base_shape, index = shape, tuple(every for _ in shape)
    base = poison(int(np.prod(base_shape)), values.dtype).reshape(base_shape)
    target = _of(base, index, exchanged=exchanged)
    target[...] = values[..., : target.shape[-2], :] if values.ndim >= 2 else values
    before = base.copy()
    if backend is not None:
        on_device = backend.asarray(base)
        array = on_device[index]
        return View(array.T if exchanged else array, on_device, index, exchanged, before)
    spread = np.broadcast_to(target, values.shape) if target.shape != values.shape else target
    return View(spread, base, index, exchanged, before)


def _of(base: HostArray, index: tuple[Any, ...], *, exchanged: bool) -> HostArray:
    view: HostArray = base[index]
    return view.swapaxes(-1, -2) if exchanged else view
