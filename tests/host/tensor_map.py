"""Tensor maps as the simulated copy engine knows them."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np


class _TensorMap(ctypes.Structure):
    """`host::TensorMap` of group.h."""

    _fields_ = (
        ("address", ctypes.c_ulonglong),
        ("mark", ctypes.c_char * 8),
        ("sizes", ctypes.c_ulonglong * 3),
        ("strides", ctypes.c_ulonglong * 2),
        ("box", ctypes.c_uint * 3),
        ("element_bytes", ctypes.c_uint),
    )


def tensor_map(
    address: int, element_bytes: int, sizes: Sequence[int], strides: Sequence[int], box: Sequence[int]
) -> np.void:
    """What a kernel gets for its 128 bytes of a tensor map, as an argument.

    Args:
        sizes: of the matrices' rows, in elements; how many rows; how many matrices.
        strides: bytes from a row, and from a matrix, to the next.
        box: the sizes of a tile, whose rows have 128 bytes, which are swizzled.
    """
    own = _TensorMap(
        address, b"tilemap", (ctypes.c_ulonglong * 3)(*sizes), (ctypes.c_ulonglong * 2)(*strides),
        (ctypes.c_uint * 3)(*box), element_bytes,
    )  # fmt: skip
    return np.void(bytes(own).ljust(128, b"\0"))
