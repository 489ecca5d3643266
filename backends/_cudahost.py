"""The host's memory that CUDA's driver has pinned, from and to which copies are the fastest."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import numpy.typing as npt

from gemmport.backends import _cudadriver


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
