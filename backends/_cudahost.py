"""The host's memory that CUDA's driver has pinned, from and to which copies are the fastest."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import numpy.typing as npt

from gemmport.backends import _cudadriver

_ATTRIBUTE_MEMORY_TYPE = 2


class _Pinned:
    """Pinned memory as NumPy takes it; freed with the last array over it."""

    def __init__(self, nbytes: int, context: Any) -> None:
        start = ctypes.c_void_p()
        with _cudadriver.Relaxed():
            _cudadriver.check("cuMemHostAlloc", ctypes.byref(start), ctypes.c_size_t(nbytes), ctypes.c_uint(0))
        _cudadriver.given_back(self, context, "cuMemFreeHost", start)
        self.__array_interface__ = {"version": 3, "shape": (nbytes,), "typestr": "|u1", "data": (start.value, False)}


def pinned(nbytes: int, context: Any) -> npt.NDArray[Any]:
    """Bytes, at least one, pinned in the current context, which is given, too, as PyCUDA has it.

    Raises:
        DeviceMemoryError: the host has too little memory that can be pinned.
    """
    return np.asarray(_Pinned(nbytes, context))


def is_pageable(data: npt.NDArray[Any]) -> bool:
    """Whether the driver knows nothing of the memory at the ends of a contiguous array: nobody has pinned it all."""
    start = data.ctypes.data
    return not all(_is_known(address) for address in (start, start + data.nbytes - 1))


def _is_known(address: int) -> bool:
    """Whether the driver knows of the memory at an address. cuPointerGetAttribute would answer with an error where it does not,
    which compute-sanitizer reports; this leaves the attribute 0.
    """
    kind, attribute = ctypes.c_uint(), ctypes.c_int(_ATTRIBUTE_MEMORY_TYPE)
    result = _cudadriver.driver().cuPointerGetAttributes(
        ctypes.c_uint(1), ctypes.byref(attribute), ctypes.byref(ctypes.c_void_p(ctypes.addressof(kind))),
        ctypes.c_uint64(address),
    )  # fmt: skip
    return result == 0 and kind.value != 0
