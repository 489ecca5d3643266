"""Products of host arrays: computed in place where the device reads the host's memory, and waited for."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np

from gemmport.api.arguments import Given, HostArray
from gemmport.api.overlap import is_same_on_host
from gemmport.api.placement import Placement
from gemmport.api.product import Choice, Product, enqueue
from gemmport.backends.array import DeviceArray
from gemmport.core.errors import DtypeError, ShapeError
from gemmport.core.layout import element_strides, writable_in_place


def host_product(place: Placement, product: Product, given: Mapping[str, Given], choice: Choice) -> HostArray:
    """The product of host arrays, which was awaited: in `out`, where that is written in place, else in a new array."""
    out = given["out"].arrays[0] if "out" in given else None
    place.backend.check_allocation(math.prod(product.shape) * product.types.output.itemsize)
    result, update = result_of(product, given)
    lent = place.borrow_host(result)
    if lent is None:
        computed = enqueue(place, product, None, choice)
        place.as_given = False
        return _received(computed, result)
    if update:
        product = replace(product, c=lent)
    try:
        enqueue(place, product, lent, choice)
    finally:
        place.backend.give_back(lent.memory, queue=place.queue)
    used = [given[name] for name in ("a", "b", "c") if name != "c" or product.c is not None]
    # NumPy's arrays as they were given, if they were used so: not what was made of them.
    operands: list[Any] = [x.value if x.library is None else x.arrays[0] for x in used]
    in_place = not update and place.uses(*operands) and (out is None or out is result)
    place.as_given = place.as_given and in_place
    return result


def _received(computed: DeviceArray, result: HostArray) -> HostArray:
    """What was computed on a device, on the host: in the array for it, where that lies in one piece, without another copy."""
    if not computed.size or not result.flags.c_contiguous:
        return computed.get()
    computed.backend.download(computed.memory, result, queue=computed.queue)
    return result


def result_of(product: Product, given: Mapping[str, Given]) -> tuple[HostArray, bool]:
    """Where the product of host arrays is written: `out`, where that is done in place, else a new array; and whether C is
    there, which is updated: each element of C is read by who writes it.
    """
    out, c = cast("HostArray | None", given["out"].arrays[0] if "out" in given else None), product.c
    update = isinstance(c, np.ndarray) and out is not None and is_same_on_host(c, out)
    scales = () if product.scales is None else product.scales.arrays.values()
    others = [x for x in (product.a, product.b, None if update else c, *scales) if isinstance(x, np.ndarray)]
    if out is not None and _takes(out, product.types.output, others):
        return out, update
    return np.empty(product.shape, product.types.output), False


def _takes(out: HostArray, output: np.dtype[Any], others: Sequence[HostArray]) -> bool:
    """Whether a result is written to a host array as it lies: the operands must keep their values until they are read."""
    strides = element_strides(out)
    return (
        out.dtype == output
        and strides is not None
        and writable_in_place(out.shape, strides) is not None
        and not any(np.may_share_memory(out, x) for x in others)
    )


def deliver(result: HostArray, given: Mapping[str, Given], out: Any) -> Any:
    """A result for arrays in the host's memory, as `out` or as an array of the library of A."""
    if out is not None:
        if result is not given["out"].arrays[0]:
            _into(given["out"].arrays[0], result)
        return out
    library = next((x.library for x in given.values() if x.library is not None), None)
    return result if library is None else library.from_host(result)


def _into(out: Any, result: HostArray) -> HostArray:
    if not isinstance(out, np.ndarray) or out.shape != result.shape:
        raise ShapeError(f"out must be a NumPy array of shape {result.shape}")
    if not np.can_cast(result.dtype, out.dtype, "same_kind"):
        raise DtypeError(f"out is {out.dtype}, to which {result.dtype} is not cast")
    with np.errstate(all="ignore"):
        np.copyto(out, result, casting="same_kind")
    return cast("HostArray", out)
