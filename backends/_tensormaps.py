"""Tensor maps, by which the copy engine of NVIDIA's GPUs finds tiles (CUDA Driver API, `cuTensorMapEncodeTiled`).

A map is 128 bytes of the driver's own making, for which a context must be current. Kernels take it by value, and from one
launch to the next its address alone changes. That this is the first word the driver does not say: it is seen from what it
makes of two addresses, before a map is used, and where it is not so, maps are refused.
"""

from __future__ import annotations

import ctypes

from gemmport.backends import _cudadriver
from gemmport.core.errors import DeviceLostError, LaunchError, TensorMapError
from gemmport.core.plan import TensorMap

NBYTES, _ALIGNMENT = 128, 64

# CUtensorMapDataType and others, of cuda.h
_BYTES = 0
_TYPES = {
    "float16": 6,
    "bfloat16": 9,
    "float32": 7,
    **dict.fromkeys(("int8", "uint8", "float8_e4m3fn", "float8_e5m2"), _BYTES),
}
_NOT_INTERLEAVED, _SWIZZLE_128, _PROMOTE_TO_256, _ZEROS = 0, 3, 3, 0
_ADDRESSES = 0x7F12_3456_7000, 0x10_0EDC_BA00
"""Two that differ in most bits, and are aligned."""


def encoded(told: TensorMap, address: int) -> bytes:
    """A map of memory at an address, as kernels take it.

    Raises:
        TensorMapError: the driver refuses it, knows no such maps, or makes those in which the address is not the first word.
    """
    try:
        made = _encoded(told, _ADDRESSES[0])
        begins = _begins_with_address(told, made)
    except AttributeError as error:
        raise TensorMapError(
            "tensor maps need a driver of CUDA 12.0 or newer; this one has none: update it, or choose another kernel"
        ) from error
    except DeviceLostError:
        raise
    except LaunchError as error:
        raise TensorMapError(
            f"the driver refuses the tensor map of {told.name}: {error}; {told.dtype}, sizes {told.sizes}, strides "
            f"{told.strides} bytes, tiles of {told.tile}; choose another kernel"
        ) from error
    if not begins:
        raise TensorMapError("this driver's tensor maps do not begin with the address: choose another kernel")
    return address.to_bytes(8, "little") + made[8:]


def _begins_with_address(told: TensorMap, made: bytes) -> bool:
    """Whether maps of two addresses are these addresses, and the same bytes behind them."""
    other = _encoded(told, _ADDRESSES[1])
    first, second = (address.to_bytes(8, "little") for address in _ADDRESSES)
    return made[:8] == first and other[:8] == second and made[8:] == other[8:]


def _encoded(told: TensorMap, address: int) -> bytes:
    room = (ctypes.c_char * (NBYTES + _ALIGNMENT))()
    start = -ctypes.addressof(room) % _ALIGNMENT
    made = (ctypes.c_char * NBYTES).from_buffer(room, start)
    _cudadriver.check(
        "cuTensorMapEncodeTiled",
        ctypes.byref(made),
        ctypes.c_int(_TYPES[told.dtype]),
        ctypes.c_uint32(len(told.sizes)),
        ctypes.c_void_p(address),
        (ctypes.c_uint64 * 3)(*told.sizes),
        (ctypes.c_uint64 * 2)(*told.strides),
        (ctypes.c_uint32 * 3)(*told.tile, 1),
        (ctypes.c_uint32 * 3)(1, 1, 1),
        ctypes.c_int(_NOT_INTERLEAVED),
        ctypes.c_int(_SWIZZLE_128),
        ctypes.c_int(_PROMOTE_TO_256),
        ctypes.c_int(_ZEROS),
    )
    return made.raw
