"""How products of host arrays that are not read, or not written, where they lie are found again: from copies that are.

The first of a kind is found like any other. For the next, arrays that a device cannot follow are copied, row-major and in the
type in which they are multiplied, and the product of the copies is one of those that `repeated` keeps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from gemmport.api.arguments import HostArray, common_type
from gemmport.execution.repeated import Otherwise

MOST_BYTES = 2**26
"""Of an operand or a result, for a product to be kept: what is larger takes longer than all else anyway, and may be multiplied
in parts.
"""


def otherwise(
    product: Callable[..., Any],
    a: HostArray,
    b: HostArray,
    out: HostArray | None,
    *,
    in_place: Sequence[bool],
    lands: bool,
    batch: tuple[int, ...] | None,
    converted: np.dtype[Any] | None,
) -> Otherwise | None:
    """How the next product is found, of arrays that lie as these; None where copies do not help.

    Args:
        product: computes that of two operands, and of `out` where that is given. It refuses where memory is short, since the
            caller of a later product may have asked for the same bits each time: that one is found like the first then.
        in_place: whether A, and B, are read where they lie.
        lands: whether the product is written to `out`, or to a new array, and not copied there.
        batch: the dimensions before the last two, to which stacks are broadcast; None where they are not.
        converted: the type to which operands are converted before they are multiplied; None for their common type.
    """
    if max(each.nbytes for each in (a, b, out) if each is not None) > MOST_BYTES:
        return None
    if not lands and any(np.may_share_memory(out, x) for x in (a, b)):  # which others of its kind may not
        return None
    dtype = converted or (a.dtype.newbyteorder("=") if a.dtype == b.dtype else common_type([a.dtype, b.dtype]))
    shapes = [x.shape if batch is None or x.ndim == 1 else (*batch, *x.shape[-2:]) for x in (a, b)]
    copied = [  # not where a copy would lie as the array does
        not is_read and (x.dtype != dtype or x.shape != shape or not x.flags.c_contiguous)
        for x, shape, is_read in zip((a, b), shapes, in_place, strict=True)
    ]
    if lands and not any(copied):
        return None
    wanted = [shape if is_copied else None for shape, is_copied in zip(shapes, copied, strict=True)]
    return Otherwise(partial(_of_copies, product, dtype, wanted, lands))


def _of_copies(
    product: Callable[..., Any], dtype: np.dtype[Any], shapes: Sequence[tuple[int, ...] | None], lands: bool,
    a: HostArray, b: HostArray, out: HostArray | None,
) -> Any:  # fmt: skip
    """The product, of copies where there are shapes for them.

    Args:
        shapes: to which operands are broadcast, and copied; None for what is read as it lies.
    """
    with np.errstate(all="ignore"):
        x, y = (
            each if shape is None else np.ascontiguousarray(np.broadcast_to(each, shape), dtype)
            for each, shape in zip((a, b), shapes, strict=True)
        )
    if out is None or lands:
        return product(x, y, out=out)
    found = product(x, y)
    with np.errstate(all="ignore"):
        np.copyto(out, found, casting="unsafe")  # the first product of these types was cast, too
    return out


def nothing(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Otherwise:
    """How products without elements are found."""
    return Otherwise(lambda _a, _b, out: np.empty(shape, dtype) if out is None else out)
