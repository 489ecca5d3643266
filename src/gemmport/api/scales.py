"""Scales of a product: numbers become part of alpha, and arrays a number for each row of op(A) and each column of op(B)."""

from __future__ import annotations

import cmath
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gemmport.api.arguments import Given, Types
from gemmport.api.views import Array, broadcast_to, joined, view
from gemmport.backends.array import DeviceArray
from gemmport.core.dtypes import FLOAT32, as_dtype, default_accumulator
from gemmport.core.errors import ArrayError, DtypeError, ShapeError, UnsupportedError
from gemmport.core.problem import Scalar, as_number
from gemmport.execution.copies import dense_copy
from gemmport.execution.sharded import ShardedArray
from gemmport.outofcore.operands import Sliced

GivenScales = Mapping[str, Given]
"""Scales that did not become part of alpha, by the names of the arguments: "scale_a" and "scale_b"."""


@dataclass(frozen=True)
class Scales:
    """Of the rows of D, and of its columns: arrays of the shape of D without the other dimension; None: no scale."""

    rows: Array | None
    columns: Array | None

    @property
    def swapped(self) -> Scales:
        """Those of D transposed."""
        return Scales(self.columns, self.rows)

    @property
    def arrays(self) -> dict[str, Array]:
        """By the names of the arguments."""
        both = {"scale_a": self.rows, "scale_b": self.columns}
        return {name: x for name, x in both.items() if x is not None}


def taken(alpha: Scalar, scale_a: Any, scale_b: Any) -> tuple[Scalar, GivenScales]:
    """Alpha times what of the scales are numbers on the host, and the others.

    A number stays a scale where a float32 does not hold the product with alpha, or it would hide a NaN in A and B, as alpha = 0
    does. With alpha = 0 no scale is read, as A and B are not.

    Raises:
        DtypeError: one is no real number, or of a type whose numbers float32 does not have.
        ShapeError, ArrayError: one is not an array.
    """
    left: dict[str, Given] = {}
    for name, value in (("scale_a", scale_a), ("scale_b", scale_b)):
        if value is None:
            continue
        is_number = isinstance(value, int | float | complex | np.generic)
        given = None if is_number else Given.of(name, value)
        if given is not None and any(isinstance(x, Sliced | ShardedArray) for x in (given.value, *given.arrays)):
            raise ArrayError(
                f"{name} must be an array in one piece in memory; got a {type(given.value).__name__}: copy it"
            )
        if given is None or (not given.on_device and np.size(given.arrays[0]) == 1):
            number = as_number(name, value if given is None else np.asarray(given.arrays[0]))
            if isinstance(number, complex):
                raise DtypeError(f"{name} must be real; got {number}: scale the complex result")
            product = alpha * number
            if alpha == 0 or _is_kept(product) or not math.isfinite(number):
                alpha = product if alpha != 0 else alpha
                continue
            with np.errstate(over="ignore"):
                given = Given.of(name, np.float32(number).reshape(()))
        left[name] = given
    return alpha, left if alpha != 0 else {}


def _is_kept(alpha: Scalar) -> bool:
    """Whether a float32 holds a number with all its digits."""
    limits = np.finfo(np.float32)
    return cmath.isfinite(alpha) and float(limits.tiny) <= abs(alpha) <= float(limits.max)


def check_types(types: Types, accumulator: object) -> None:
    """Raises DtypeError where a product of these types has no scales: where its sums are not kept in float32."""
    inputs, output = as_dtype(types.inputs), as_dtype(types.output)
    sums = default_accumulator(inputs, output) if accumulator is None else as_dtype(accumulator)
    if not inputs.kind == output.kind == "real" or sums != FLOAT32:
        raise DtypeError(
            f"scale_a and scale_b are for products of real numbers that are summed in float32, such as those of float8; got "
            f"{inputs}, summed in {sums}, with a result of {output}: scale A, B or the result"
        )


def check_alone(scales: Iterable[str], where: str) -> None:
    """Raises UnsupportedError where there are scales that are no part of alpha, which a product has none of in this way."""
    for name in scales:
        raise UnsupportedError(
            f"{name} must be a number, which float32 holds, where {where}; got an array, or zero: scale the result"
        )


def of_rows(x: Array, batch: tuple[int, ...], m: int) -> Array:
    """Scales of the rows of op(A), as they were passed, for each row of each matrix: a view of shape (…, m).

    Args:
        batch: dimensions of the result before its matrices.

    Raises:
        ShapeError, DtypeError: they do not fit.
    """
    return _spread("scale_a", x, (*batch, m), [view(x, x.shape[:-1], x.strides[:-1])] if x.shape[-1:] == (1,) else [])


def of_columns(x: Array, batch: tuple[int, ...], n: int) -> Array:
    """Likewise those of the columns of op(B), (…, n)."""
    with_rows = x.ndim > 1 and x.shape[-2] == 1
    without = [view(x, (*x.shape[:-2], x.shape[-1]), (*x.strides[:-2], x.strides[-1]))] if with_rows else []
    return _spread("scale_b", x, (*batch, n), without)


def _spread(name: str, x: Array, shape: tuple[int, ...], views: Sequence[Array]) -> Array:
    """The first of some views of an array, and of the array itself, that fits, repeated to a shape."""
    if not np.can_cast(x.dtype, FLOAT32.numpy):
        raise DtypeError(
            f"{name} must be of float32, or of a type whose numbers float32 has; got {x.dtype}: convert it"
        )
    own = [x] if x.shape in ((), (1,)) or x.shape[-1] == shape[-1] else []
    for candidate in (*views, *own):
        if _fits(candidate.shape, shape):
            return broadcast_to(candidate, shape)
    told = "(…, m) or (…, m, 1)" if name == "scale_a" else "(…, n) or (…, 1, n)"
    size = "m" if name == "scale_a" else "n"
    batch = f", and dimensions before it that broadcast to {shape[:-1]}" if shape[:-1] else ""
    if not batch and x.ndim > 1:
        batch = ", and no dimension before it that is not 1"
    raise ShapeError(f"{name} must be one number, or have shape {told} with {size} = {shape[-1]}{batch}; got {x.shape}")


def _fits(own: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    try:
        return bool(np.broadcast_shapes(own, shape) == shape)
    except ValueError:
        return False


def flat(x: Array, count: int) -> Array:
    """Scales with their first `count` dimensions as one, expanded where no stride says that."""
    found = joined(x, count)
    if found is not None:
        return found
    shape = (math.prod(x.shape[:count]), *x.shape[count:])
    return (
        dense_copy(x, x.dtype).reshape(shape) if isinstance(x, DeviceArray) else np.ascontiguousarray(x).reshape(shape)
    )


def on_device(x: Array, backend: Any, queue: Any) -> DeviceArray:
    """Scales of `of_rows` or `of_columns` as float32 on a device; those of the host are copied, and may change afterwards."""
    if isinstance(x, DeviceArray):
        return x if x.dtype == FLOAT32.numpy else dense_copy(x, FLOAT32.numpy, queue=queue)
    placed: DeviceArray = backend.asarray(np.array(x, FLOAT32.numpy))
    return placed
