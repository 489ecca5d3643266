"""Views of arrays, of NumPy's and of devices alike: another shape, the same memory.

NumPy counts strides in bytes and device arrays in elements. What is done here only compares, joins and exchanges them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TypeAlias

from gemmport.api.arguments import HostArray
from gemmport.backends.array import DeviceArray, dense_strides
from gemmport.core.layout import strided

Array: TypeAlias = "HostArray | DeviceArray"


def view(x: Array, shape: Sequence[int], strides: Sequence[int]) -> Array:
    """The same memory from the same first element on."""
    if (x.shape, x.strides) == (tuple(shape), tuple(strides)):
        return x
    if isinstance(x, DeviceArray):
        return replace(x, shape=tuple(shape), strides=tuple(strides))
    return strided(x, shape, strides)


def is_column_major(x: Array) -> bool:
    """Whether its elements lie one after another, the first dimension's first."""
    if isinstance(x, DeviceArray):
        return x.strides == dense_strides(x.shape[::-1])[::-1]
    return x.flags.f_contiguous


def with_axis(x: Array, position: int) -> Array:
    """With one more dimension, of size 1, before a position."""
    shape, strides = list(x.shape), list(x.strides)
    shape.insert(position, 1)
    strides.insert(position, 0)
    return view(x, shape, strides)


def permuted(x: Array, order: Sequence[int]) -> Array:
    """With its dimensions in another order; each is named once."""
    return view(x, [x.shape[axis] for axis in order], [x.strides[axis] for axis in order])


def moved(x: Array, source: Sequence[int], destination: Sequence[int]) -> Array:
    """As `numpy.moveaxis`."""
    source, destination = ([axis % x.ndim for axis in axes] for axes in (source, destination))
    order = [axis for axis in range(x.ndim) if axis not in source]
    for place, axis in sorted(zip(destination, source, strict=True)):
        order.insert(place, axis)
    return permuted(x, order)


def swapped(x: Array) -> Array:
    """With its last two dimensions exchanged."""
    return permuted(x, [*range(x.ndim - 2), x.ndim - 1, x.ndim - 2])


def broadcast_to(x: Array, shape: tuple[int, ...]) -> Array:
    """As `numpy.broadcast_to`, of a shape that it fits; what is repeated has stride 0."""
    own = [0 if n == 1 else step for n, step in zip(x.shape, x.strides, strict=True)]
    return view(x, shape, (*(0,) * (len(shape) - len(own)), *own))


def broadcast(x: Array, batch: tuple[int, ...]) -> Array:
    """A stack of matrices with these dimensions before the last two; what is repeated has stride 0."""
    return broadcast_to(x, (*batch, *x.shape[-2:]))


def joined(x: Array, count: int) -> Array | None:
    """The first `count` dimensions as one; None where their elements are not evenly spaced."""
    spaced = [(n, step) for n, step in zip(x.shape[:count], x.strides[:count], strict=True) if n != 1]
    size = math.prod(n for n, _ in spaced)
    if size and any(outer != n * inner for (_, outer), (n, inner) in pairwise(spaced)):
        return None
    stride = spaced[-1][1] if spaced else 0
    return view(x, (size, *x.shape[count:]), (stride, *x.strides[count:]))
