"""Between arrays of any strides and the row-major layouts that kernels read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from gemmport.core.problem import ALLOCATION_ALIGNMENT, Layout

HostArray = npt.NDArray[Any]


def readable_in_place(
    shape: Sequence[int], strides: Sequence[int], offset: int = 0, *, base_alignment: int = ALLOCATION_ALIGNMENT
) -> tuple[Layout, bool] | None:
    """The layout of a (batch of) matrices with these strides in elements, and whether it is stored transposed.

    None where a kernel cannot read it in place: neither of the last two dimensions is contiguous, the other one overlaps
    itself, or a stride is negative.

    Args:
        shape, strides: of two dimensions, or three with the batch first.
    """
    if 0 in shape:  # nothing to read; NumPy gives such arrays strides of 0
        return Layout(max(shape[-1], 1), 0, offset, base_alignment), False
    batch_stride = strides[0] if len(shape) == 3 else 0
    (rows, columns), (down, across) = shape[-2:], strides[-2:]
    if len(shape) == 3 and shape[0] > 1 and batch_stride < 0:
        return None
    batch_stride = max(batch_stride, 0)
    if (across == 1 or columns <= 1) and (down >= max(columns, 1) or rows <= 1):
        return Layout(
            max(down, columns, 1) if rows > 1 else max(columns, 1), batch_stride, offset, base_alignment
        ), False
    if (down == 1 or rows <= 1) and (across >= max(rows, 1) or columns <= 1):
        return Layout(max(across, rows, 1) if columns > 1 else max(rows, 1), batch_stride, offset, base_alignment), True
    return None


def writable_in_place(
    shape: Sequence[int], strides: Sequence[int], offset: int = 0, *, base_alignment: int = ALLOCATION_ALIGNMENT
) -> tuple[Layout, bool] | None:
    """As `readable_in_place`, for a result: None too where matrices of the batch overlap, or lie in each other's rows in a way
    that no layout of a result describes.
    """
    found = readable_in_place(shape, strides, offset, base_alignment=base_alignment)
    if found is None or 0 in shape or len(shape) == 2 or shape[0] == 1:
        return found
    layout, transposed = found
    rows, columns = (shape[-1], shape[-2]) if transposed else (shape[-2], shape[-1])
    one_after_another = layout.batch_stride >= (rows - 1) * layout.ld + columns
    side_by_side = layout.batch_stride >= columns and (shape[0] - 1) * layout.batch_stride + columns <= layout.ld
    return found if one_after_another or side_by_side else None


def overlaps_itself(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether two indices of an array may lead to one element. Never missed; interwoven dimensions may raise a false alarm."""
    reach = 0
    for step, extent in sorted((abs(s), n) for n, s in zip(shape, strides, strict=True) if n > 1):
        if step <= reach:
            return 0 not in shape
        reach += (extent - 1) * step
    return False


def element_strides(array: HostArray) -> tuple[int, ...] | None:
    """Strides of a NumPy array in elements; None where one is not a whole number of elements."""
    size = array.itemsize
    if any(stride % size for stride in array.strides):
        return None
    return tuple(stride // size for stride in array.strides)


def matrices(flat: HostArray, layout: Layout, rows: int, columns: int, batch: int) -> HostArray:
    """The (batch, rows, columns) view of a flat buffer that lies in a layout.

    Raises:
        ValueError: the buffer is too short.
    """
    if layout.span(rows, columns, batch) > flat.size:
        raise ValueError(f"{layout} of {batch} × {rows} × {columns} needs more than {flat.size} elements")
    strides = [flat.itemsize * step for step in (layout.batch_stride, layout.ld, 1)]
    return strided(flat[layout.offset :], (batch, rows, columns), strides)


def strided(x: HostArray, shape: Sequence[int], strides: Sequence[int]) -> HostArray:
    """`numpy.lib.stride_tricks.as_strided`, of types too for which NumPy's array interface has no name, such as float8_e5m2.

    Args:
        strides: in bytes.
    """
    if x.dtype.isbuiltin == 1:
        return np.lib.stride_tricks.as_strided(x, shape, strides)
    bits = np.lib.stride_tricks.as_strided(x.view(f"V{x.itemsize}"), shape, strides)
    return bits.view(x.dtype)
