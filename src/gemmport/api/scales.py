"""Scales of a product: numbers become part of alpha, and arrays a number for each row of op(A) and each column of op(B)."""

from __future__ import annotations

import cmath
import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from gemmport.api.arguments import Given, HostArray, Types
from gemmport.api.collections import room_of
from gemmport.api.views import Array, broadcast_to, joined
from gemmport.backends.array import DeviceArray
from gemmport.core.dtypes import FLOAT32, as_dtype, default_accumulator
from gemmport.core.errors import ArrayError, DtypeError, ShapeError
from gemmport.core.problem import Scalar, as_number
from gemmport.execution.copies import dense_copy
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

    def part(self, matrices: tuple[int, int], rows: tuple[int, int], columns: tuple[int, int]) -> Scales:
        """Those of a part of D, from first to last (exclusive)."""
        of_each = [
            None if x is None else x[(slice(*matrices), slice(*lines)) if x.ndim > 1 else slice(*lines)]
            for x, lines in ((self.rows, rows), (self.columns, columns))
        ]
        return Scales(*of_each)

    def on_host(self) -> tuple[HostArray | None, HostArray | None]:
        """Of rows and columns, as arrays of float32 of the host's that nobody else writes."""
        rows, columns = (None if x is None else _copied(x) for x in (self.rows, self.columns))
        return rows, columns


def taken(alpha: Scalar, scale_a: Any, scale_b: Any) -> tuple[Scalar, GivenScales]:
    """Alpha times what of the scales are numbers on the host, and the others.

    A number stays a scale where a float32 does not hold the product with alpha, or it would hide a NaN in A and B, as alpha = 0
    does. With alpha = 0 no scale is read, as A and B are not.

    Raises:
        DtypeError: one is not a real number, or of a type whose numbers float32 does not have.
        ShapeError, ArrayError: one is not an array.
    """
    left: dict[str, Given] = {}
    for name, value in (("scale_a", scale_a), ("scale_b", scale_b)):
        if value is None:
            continue
        if (room := room_of(value)) is not None:
            raise ArrayError(f"{name} must be in memory; got {room.TITLE}: call compute() first")
        is_number = isinstance(value, int | float | complex | np.generic)
        given = None if is_number else Given.of(name, value)
        if given is not None and any(isinstance(x, Sliced) for x in given.arrays):
            raise ArrayError(
                f"{name} must be in memory; got a {type(value).__name__}, which is read in slices: copy it"
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


def with_scales(choices: Hashable, scales: GivenScales) -> tuple[Hashable, tuple[Any, ...]]:
    """A caller's choices with the names of those that are arrays, and these."""
    return (choices, "scaled", *scales), values_of(scales)


def values_of(scales: GivenScales | None) -> tuple[Any, ...]:
    """Arrays, as they were passed; those of the host as NumPy's."""
    return tuple(
        x.value if x.on_device or isinstance(x.value, np.ndarray) else x.arrays[0] for x in (scales or {}).values()
    )


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


def of_rows(x: Array, batch: tuple[int, ...], m: int) -> Array:
    """Scales of the rows of op(A), as they were passed, for each row of each matrix: a view of shape (…, m).

    Args:
        batch: dimensions of the result before its matrices.

    Raises:
        ShapeError, DtypeError: they do not fit.
    """
    return broadcast_to(fitting("scale_a", x, (*batch, m)), (*batch, m))


def of_columns(x: Array, batch: tuple[int, ...], n: int) -> Array:
    """Likewise those of the columns of op(B), (…, n)."""
    return broadcast_to(fitting("scale_b", x, (*batch, n)), (*batch, n))


def fitting(name: str, x: Any, shape: tuple[int, ...]) -> Any:
    """Scales as they broadcast to a shape, (…, m) or (…, n): the array, of any library, or it without the dimension of size 1
    that stands for D's other one.

    Raises:
        ShapeError, DtypeError: they do not fit.
    """
    of_rows = name == "scale_a"
    if not np.can_cast(x.dtype, FLOAT32.numpy):
        raise DtypeError(
            f"{name} must be of float32, or of a type whose numbers float32 has; got {x.dtype}: convert it"
        )
    column, row = x.shape[-1:] == (1,), x.ndim > 1 and x.shape[-2] == 1
    without = [x[..., 0]] if of_rows and column else [x[..., 0, :]] if row and not of_rows else []
    own = [x] if x.shape in ((), (1,)) or x.shape[-1] == shape[-1] else []
    for candidate in (*without, *own):
        if _fits(candidate.shape, shape):
            return candidate
    told = "(…, m) or (…, m, 1)" if of_rows else "(…, n) or (…, 1, n)"
    size = "m" if of_rows else "n"
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


def _copied(x: Array) -> HostArray:
    return np.array(x.get() if isinstance(x, DeviceArray) else x, FLOAT32.numpy)
