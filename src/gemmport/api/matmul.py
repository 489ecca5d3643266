"""`matmul`: the rules of `numpy.matmul` around one call of `gemm`.

Which types, shapes and axes go together is not decided here: NumPy is asked, with stand-ins that have no elements to multiply,
so that every rule and message is that of the installed NumPy. What is decided here is how operands of any number of
dimensions become the matrices, or the one batch of matrices, that `gemm` takes: by views, with no element moved where strides
can say it.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, partial
from os import PathLike
from typing import TYPE_CHECKING, Any, cast, overload

import numpy as np
import numpy.typing as npt

from gemmport.api.arguments import (
    Given,
    HostArray,
    backend_of_operands,
    check_library_writes,
    check_present,
    is_on_device,
    queue_of_operands,
)
from gemmport.api.collections import room_of
from gemmport.api.copied import nothing
from gemmport.api.gemm import Computed, computed
from gemmport.api.overlap import overlap
from gemmport.api.placement import Placement, Result
from gemmport.api.plans import Config
from gemmport.api.precision import current
from gemmport.api.product import Choice, check_writable
from gemmport.api.scales import GivenScales, flat, of_columns, of_rows, taken, values_of, with_scales
from gemmport.api.sharded import Places, devices_of, place_of, put
from gemmport.api.sharded import with_axis as with_axis_of_any
from gemmport.api.streamed import NO_BOUNDS, Bounds
from gemmport.api.views import Array, broadcast, broadcast_to, is_column_major, joined, moved, view, with_axis
from gemmport.api.within import Again, keep_within
from gemmport.backends.array import DeviceArray, as_numpy, check_plain, dense_strides
from gemmport.contracts.kernel import Parameters
from gemmport.core.device import DeviceInfo
from gemmport.core.dtypes import DTYPES, FLOAT8S, FLOAT32, HALVES, INPUTS, as_dtype
from gemmport.core.errors import ArrayError, DtypeError, GemmportError, ShapeError, UnsupportedError
from gemmport.core.precision import FULL
from gemmport.core.problem import Scalar, check_size, scalar_key
from gemmport.execution import repeated
from gemmport.execution.adapters import is_traced, library_of, untraced
from gemmport.execution.copies import assign, dense_copy
from gemmport.multidevice.selection import Devices
from gemmport.outofcore.operands import Sliced, is_sliced
from gemmport.outofcore.progress import Tell
from gemmport.planning.planner import AUTO

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from gemmport.api.signatures import MatmulOptions, OnDevice, OnHost, Operand, Other, Written

log = logging.getLogger(__name__)

numpy_matmul: Callable[..., Any] = np.matmul

MOST_DIMENSIONS = 34
"""Of an operand: those of a matrix, and before them as many as NumPy broadcasts."""


@overload
def matmul(a: OnHost, b: OnHost, /, out: None = None, **options: Unpack[MatmulOptions]) -> HostArray: ...
@overload
def matmul(a: OnDevice, b: Operand, /, out: None = None, **options: Unpack[MatmulOptions]) -> DeviceArray: ...
@overload
def matmul(a: OnHost, b: OnDevice, /, out: None = None, **options: Unpack[MatmulOptions]) -> DeviceArray: ...
@overload
def matmul(a: Other, b: Operand, /, out: None = None, **options: Unpack[MatmulOptions]) -> Any: ...
@overload
def matmul(a: OnHost, b: Other, /, out: None = None, **options: Unpack[MatmulOptions]) -> Any: ...
@overload
def matmul(a: Operand, b: Operand, /, out: Written | tuple[Written], **options: Unpack[MatmulOptions]) -> Written: ...
def matmul(
    a: Any,
    b: Any,
    /,
    out: Any = None,
    *,
    casting: str = "same_kind",
    order: str = "K",
    dtype: npt.DTypeLike | None = None,
    axes: list[Any] | None = None,
    subok: bool = True,
    backend: str | None = None,
    device: str | int | DeviceInfo | None = None,
    devices: Devices | None = None,
    kernel: str = AUTO,
    params: Parameters | None = None,
    config: Config = None,
    deterministic: bool = False,
    precision: str | None = None,
    scale_a: Any = None,
    scale_b: Any = None,
    device_memory: int | str | None = None,
    host_memory: int | str | None = None,
    checkpoint: str | PathLike[str] | None = None,
    progress: Tell | None = None,
) -> Any:
    """The matrix product with the rules of `numpy.matmul`: vectors are promoted, the dimensions before the last two broadcast.

    Python objects, long doubles and whatever else NumPy multiplies and no device does are multiplied by NumPy on the host; the
    first product of each such type logs a warning. Dask arrays are multiplied by `gemmport.dask.matmul`, when Dask is asked to.

    Args:
        a, b: of one dimension (k), or of two or more (…, m, k) and (…, k, n); of any strides. What `numpy.asarray` takes, or
            device arrays of one device.
        out: where to write: an array, or a tuple of one. A NumPy array may have any strides and may overlap a and b, of which
            the values before the call count; a device array has the result's shape, and overlaps neither.
        casting, dtype: the type to compute in and give, and how freely inputs are cast to it and it to `out`.
        order: of the result in memory: "F" is column-major, "A" so where both operands are, others row-major. Results on
            devices are row-major.
        axes: a list of three: where the matrices of a, b and the result have their dimensions, the last two by default.
        subok: False gives a plain array where an operand is of a subclass.
        backend, device, devices: as `gemm`.
        kernel, params, config: see `plan`.
        scale_a, scale_b: as `gemm`; an array of shape (…, m) or (…, m, 1), and (…, n) or (…, 1, n), whose dimensions before
            m and n broadcast to those of the result.
        deterministic, precision, device_memory, host_memory, checkpoint, progress: as `gemm`.

    Returns:
        `out`, or a new array of shape (…, m, n), without m or n where a or b is a vector; for two vectors a scalar. Of the type
        that `numpy.matmul` gives. For device arrays a device array, enqueued and not awaited.

    Raises:
        ShapeError: sizes, dimensions or axes that do not fit together. DtypeError: types that NumPy does not multiply or cast.
        ArrayError: `out` cannot be written to, or an element of `a`, `b` or `out` is masked.
        TypeError: `out` must be an array, `axes` a list. ValueError: no such casting or order.
        Others as `gemm`.
    """
    if is_traced():
        return untraced(matmul)(
            a, b, out, casting=casting, order=order, dtype=dtype, axes=axes, subok=subok, backend=backend, device=device,
            devices=devices, kernel=kernel, params=params, config=config, deterministic=deterministic,
            device_memory=device_memory, host_memory=host_memory, checkpoint=checkpoint, progress=progress,
            precision=precision, scale_a=scale_a, scale_b=scale_b,
        )  # fmt: skip
    wanted: Hashable = None
    alpha: Scalar = 1.0
    scales: GivenScales | None = None
    room: Any = None
    if scale_a is not None or scale_b is not None:
        room = room_of(a, b, out, scale_a, scale_b)
        alpha, scales = taken(alpha, scale_a, scale_b) if room is None else (alpha, None)
    bounds = NO_BOUNDS
    within = current() if precision is None else None
    plain = axes is None and dtype is None and order == "K" and casting == "same_kind"
    if device_memory is not None or host_memory is not None or checkpoint is not None or progress is not None:
        bounds = Bounds.of(device_memory, host_memory, checkpoint, progress)
    elif plain and params is None and config is None and devices is None and room is None:
        choices: Hashable = ("matmul", kernel) if precision is within else ("matmul", kernel, precision, within)
        if deterministic is not False:
            choices = choices, deterministic
        if scales is None:
            wanted, product = repeated.again(a, b, None, out, choices, backend, device)
        else:
            choices, arrays = with_scales((choices, scalar_key(alpha)), scales)
            wanted, product = repeated.again(a, b, None, out, choices, backend, device, scales=arrays)
        if product is not None:
            return product
    if (room := room or room_of(a, b, out)) is not None:
        others = {
            "out": out is not None,
            "casting": casting != "same_kind",
            "order": order != "K",
            "axes": axes is not None,
            "devices": devices is not None,
            "bounds of memory, checkpoint or progress": bounds.asked,
        }
        if told := [name for name, is_given in others.items() if is_given]:
            raise UnsupportedError(
                f"a product of {room.TITLE} must be without {' and '.join(told)}; got {told[0]}: leave it out"
            )
        return room.matmul(
            a, b, dtype=dtype, backend=backend, device=device, kernel=kernel, params=params, config=config,
            deterministic=deterministic, precision=precision, scale_a=scale_a, scale_b=scale_b,
        )  # fmt: skip
    choice = Choice(kernel, params, config, None, deterministic, precision, within)
    how: dict[str, Any] = {"backend": backend, "device": device, "choice": choice, "bounds": bounds}
    how |= {} if devices is None else {"devices": devices}
    how |= {} if scales is None else {"scales": scales, "alpha": alpha}
    rules: dict[str, Any] = {} if subok else {"subok": False}  # NumPy's own arguments, where they say something
    rules |= {} if casting == "same_kind" else {"casting": casting}
    rules |= {} if order == "K" else {"order": order}
    rules |= {name: value for name, value in (("dtype", dtype), ("axes", axes)) if value is not None}
    if isinstance(out, tuple):
        if len(out) != 1:
            raise ShapeError(f"The 'out' tuple must have exactly one entry per ufunc output, not {len(out)}")
        (out,) = out
    return product_by_rules(a, b, out, rules, how, wanted)


def product_by_rules(
    a: Any, b: Any, out: Any, rules: dict[str, Any], how: dict[str, Any], wanted: Hashable = None
) -> Any:
    """The product with NumPy's rules, planned anew where it was not computed before.

    Args:
        rules: arguments of `numpy.matmul`, where they say something. how: arguments of `computed`, with scales as `matmul` has
            them.
        wanted: the key that it is kept under, if its operands are read, and its result is written, where they lie.
    """
    given = (a, b) if out is None else (a, b, out)
    check_present(a, b)
    for name, x in zip(("a", "b", "out"), given, strict=False):
        check_plain(name, x)
    scales = how.get("scales", {})
    if "devices" not in how and (spread := devices_of(a, b, out, *(x.value for x in scales.values()))) is not None:
        how = {**how, "devices": spread}
    on_device = any(is_on_device(x) for x in given) or any(x.on_device for x in scales.values())
    if any(is_sliced(x) for x in given) or ("devices" in how and on_device):
        return _of_matrices(a, b, out, rules, how, wanted)
    if on_device:
        return _on_a_device(a, b, out, rules, how, wanted)
    if any(library_of(x) is not None for x in given):
        return _of_host_arrays_of_libraries(a, b, out, rules, how, wanted)
    if own := [type(x).__name__ for x in given if _overrides_ufuncs(x)]:
        if "scales" in how:
            raise UnsupportedError(
                f"{own[0]} multiplies by its own __array_ufunc__, which knows no scales: scale the result"
            )
        log.info("%s multiplies by its own __array_ufunc__: nothing is computed here", own[0])
        return numpy_matmul(*given, **rules)
    return _of_host_arrays(a, b, out, rules, how, wanted)


def described(a: Any, b: Any) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Shape and type of the product of arrays of which nothing but theirs is known.

    Raises:
        ShapeError, DtypeError: as `matmul`, and where no device computes in the type.
    """
    shape, dtype, _ = described_in_pieces(a, b)
    _check_sizes(a, b)
    return shape, dtype


def described_in_pieces(
    a: Any, b: Any, dtype: npt.DTypeLike | None = None
) -> tuple[tuple[int, ...], np.dtype[Any], np.dtype[Any] | None]:
    """As `described`, of arrays of any size, which are multiplied piece by piece; and the type to convert them to first.

    Args:
        dtype: the type to compute in, as of `matmul`.

    Returns:
        None as the last where pieces are read as they are.
    """
    wanted = _result_type(a, b, None, {} if dtype is None else {"dtype": dtype})
    _check_shapes(a, b, None)
    is_converted = _is_converted(a, b, wanted)
    as_dtype(wanted if is_converted else np.result_type(a.dtype, b.dtype))
    return _product_shape(a, b), wanted, wanted if is_converted else None


def _given(a: Any, b: Any, out: Any) -> dict[str, Given]:
    return {name: Given.of(name, x) for name, x in (("a", a), ("b", b), ("out", out)) if x is not None}


def _of_host_arrays_of_libraries(
    a: Any, b: Any, out: Any, rules: dict[str, Any], how: dict[str, Any], wanted: Hashable
) -> Any:
    """The product of arrays in the host's memory of which other libraries have one, read and written in place as NumPy's."""
    given = _given(a, b, out)
    if out is not None:
        check_library_writes(given["out"])
    x, y, target = (given[name].arrays[0] if name in given else None for name in ("a", "b", "out"))
    product = None
    if wanted is None:
        wanted, product = _again_on_host(x, y, target, rules, how)
    if product is None:
        product = _of_host_arrays(x, y, target, rules, how, wanted)
    if out is not None:
        return out
    library = next(x.library for x in given.values() if x.library is not None)
    return library.from_host(np.asarray(product))


def _again_on_host(a: Any, b: Any, out: Any, rules: dict[str, Any], how: dict[str, Any]) -> tuple[Hashable, Any]:
    """As `repeated.again`, of NumPy's arrays that were made of the arguments. Nothing is kept of products with rules,
    parameters, a configuration, scales, several devices or bounds.
    """
    choice: Choice = how["choice"]
    if rules or choice.params is not None or choice.config is not None or {"scales", "devices"} & how.keys():
        return None, None
    if how.get("bounds", NO_BOUNDS).asked:
        return None, None
    is_within = choice.precision is choice.within
    chosen = ("matmul", choice.kernel) if is_within else ("matmul", choice.kernel, choice.precision, choice.within)
    return repeated.again(a, b, None, out, chosen, how.get("backend"), how.get("device"))


def _again_by(how: dict[str, Any]) -> Callable[..., Any]:
    """`matmul` of other operands, with all that is asked of a product that is kept: see `copied.otherwise`."""
    choice: Choice = how["choice"]
    return partial(
        matmul, backend=how.get("backend"), device=how.get("device"), kernel=choice.kernel, precision=choice.precision,
        deterministic=True,
    )  # fmt: skip


def _of_matrices(
    a: Any, b: Any, out: Any, rules: dict[str, Any], how: dict[str, Any], wanted: Hashable
) -> Any:  # fmt: skip
    """The product of operands that have no views of all shapes: in slices, or on devices beside which others compute."""
    for name in ("axes", "order", "subok"):
        if name in rules:
            raise ArrayError(
                f"{name} must be left out where an operand is read in slices, or is on a device and devices= names others; "
                f"got {rules[name]!r}"
            )
    given = _given(a, b, out)
    there = {name: place_of(each) for name, each in given.items() if "devices" in how and each.on_device}
    arrays = {
        name: there[name].of(each) if name in there else next(iter(each.arrays), None) for name, each in given.items()
    }
    x, y, target = (cast("Any", arrays.get(name)) for name in ("a", "b", "out"))
    dtype = _result_type(x, y, target, rules)
    _check_shapes(x, y, target)
    as_dtype(dtype)
    x, y = (each[:] if isinstance(each, Sliced) and each.ndim == 1 else each for each in (x, y))
    row, column = x.ndim == 1, y.ndim == 1
    if column:
        y, target = with_axis_of_any(y, 1), None if target is None else with_axis_of_any(target, target.ndim)
        there = {name: at.as_column() if name == "b" and isinstance(at, Places) else at for name, at in there.items()}
    if row:
        x, target = with_axis_of_any(x, 0), None if target is None else with_axis_of_any(target, target.ndim - 1)
    if max(x.ndim, y.ndim) > 3 or (target is not None and target.ndim != max(x.ndim, y.ndim)):
        raise ShapeError(
            "arrays in slices, or on a device where devices= names others, must be matrices, or one batch of them; got shapes "
            f"{a.shape} and {b.shape}: multiply parts"
        )
    is_converted = _is_converted(x, y, dtype)
    if is_converted:
        x, y = (each.astype(dtype) for each in (x, y))
    has_views = row or column
    written = put(there, given, "N", "N", _product_shape(x, y), dtype) if out is None or has_views else None
    if written is None:
        found = computed(x, y, None, target if has_views else out, dtype=dtype, **how)
        product = found.given
    else:
        found = computed(x, y, None, written.array if out is None else target, dtype=dtype, **how)
        product = written.delivered()
    if not (has_views or is_converted):
        found.keep(wanted, elsewhere=False)
    if out is not None:
        return out
    product = product[..., 0, :] if row else product
    product = product[..., 0] if column else product
    return product[()] if isinstance(product, np.ndarray) and not product.ndim else product


def _on_a_device(
    a: Any, b: Any, out: Any, rules: dict[str, Any], how: dict[str, Any], wanted: Hashable
) -> Any:  # fmt: skip
    """The product of operands of which one is on a device, or that is written there: enqueued, not awaited."""
    given = _given(a, b, out)
    if out is not None:
        check_library_writes(given["out"])
        if not given["out"].on_device:
            where = backend_of_operands([x for x in given.values() if x.on_device]).device.label
            raise ArrayError(
                f"out must be on {where}, where an operand is; got an array in the host's memory: copy the result"
            )
    scales = how.get("scales", {})
    on_device = [x for x in (*given.values(), *scales.values()) if x.on_device]
    place = Placement(backend_of_operands(on_device), awaited=False)
    place.borrow(on_device)
    place.queue = place.backend.as_queue(queue_of_operands(on_device))
    x, y = (place.of(given[name]) for name in ("a", "b"))
    target = None if out is None else place.of(given["out"])
    dtype, axes = _result_type(x, y, target, rules), rules.get("axes")
    left, right, target = _core_axes_last(x, y, target, axes)
    _check_shapes(left, right, target)
    how = {**how, "queue": place.backend.queue if place.queue is None else place.queue}
    if scales:
        how["scales"] = {name: Given.of(name, place.of(each)) for name, each in scales.items()}
    if _is_converted(x, y, dtype):
        left, right = (_as_type(each, dtype, place.queue) for each in (left, right))
    order = _order_of_result(x, y, rules)
    if out is None and on_device[0].library is None and order == "C":
        found, product = _product(left, right, None, dtype, how)
        if found.reads(x, y):
            found.place.keep(wanted, (x, y), Result(product, None), scales=values_of(scales))
        return _core_axes_placed(product, axes)
    shape = _product_shape(left, right)
    placed = _core_axes_placed(np.broadcast_to(np.int8(0), shape), axes)
    result = place.result({**given, **scales}, placed.shape, dtype, order)
    written = result.array if axes is None else moved(result.array, _core(axes[2]), _last(axes[2]))
    target = cast("DeviceArray", written)
    if _takes(target, left, right, shape, dtype):
        found, _ = _product(left, right, target, dtype, how)
        if found.reads(x, y):
            found.place.keep(wanted, (x, y), result, scales=values_of(scales))
    else:
        check_writable(target)
        log.info("matmul: out of shape %s, strides %s and type %s is written by a copy", *_told(target))
        product = place.backend.empty(shape, dtype)
        _product(left, right, product, dtype, how)
        assign(cast("DeviceArray", broadcast_to(product, target.shape)), target, queue=place.queue)
    delivered = place.delivered(result)
    if not scales:
        choice: Choice = how["choice"]
        again = Again.of(
            matmul, choice.within, kernel=choice.kernel, precision=choice.precision, deterministic=choice.deterministic
        )
        keep_within(wanted, again, delivered)
    return delivered


def _takes(out: DeviceArray, a: Array, b: Array, shape: tuple[int, ...], dtype: np.dtype[Any]) -> bool:
    """Whether a product is written to a device array as it lies: the operands must keep their values until they are read."""
    batch = len(np.broadcast_shapes(a.shape[:-2], b.shape[:-2]))
    return (
        out.shape == shape
        and np.can_cast(dtype, out.dtype, "same_kind")
        and joined(out, batch) is not None
        and not any(isinstance(x, DeviceArray) and overlap(out, x) for x in (a, b))
    )


def _takes_on_host(out: HostArray, a: Array, b: Array, dtype: np.dtype[Any]) -> bool:
    """Whether a product is given an array in the host's memory to be written to."""
    batch = len(np.broadcast_shapes(a.shape[:-2], b.shape[:-2]))
    return out.dtype == dtype and out.shape == _product_shape(a, b) and joined(out, batch) is not None


def _order_of_result(a: Array, b: Array, rules: dict[str, Any]) -> str:
    """ "F" where the result is to be column-major, else "C"."""
    order = rules.get("order")
    return "F" if order == "F" or (order == "A" and all(map(is_column_major, (a, b)))) else "C"


def _as_type(x: Array, dtype: np.dtype[Any], queue: Any) -> Array:
    if x.dtype == dtype:
        return x
    if isinstance(x, DeviceArray):
        return dense_copy(x, dtype, queue=queue)
    with np.errstate(all="ignore"):
        return x.astype(dtype)


def _told(x: Array) -> tuple[object, ...]:
    return x.shape, x.strides, x.dtype


def _is_converted(a: Array, b: Array, dtype: np.dtype[Any]) -> bool:
    """Whether operands are converted to the type of the result first. Those of one type `gemm` widens as it reads them, and
    others it converts to their common type, once it knows that they fit.
    """
    if a.dtype == b.dtype and INPUTS.get(a.dtype.name) in FLOAT8S:
        return DTYPES.get(dtype.name) not in (FLOAT32, *HALVES)
    try:
        common = np.result_type(a.dtype, b.dtype)
    except TypeError:  # of some types that NumPy multiplies all the same, such as those of ml_dtypes
        return True
    return not np.can_cast(common, dtype) or (a.dtype != b.dtype and common != dtype)


def _of_host_arrays(
    a: Any, b: Any, out: Any, rules: dict[str, Any], how: dict[str, Any], wanted: Hashable = None
) -> Any:
    given = (a, b) if out is None else (a, b, out)
    x, y = as_numpy("a", a), as_numpy("b", b)
    _check_writable(out)
    if wanted is None and {type(one) for one in given} <= {np.ndarray, list, tuple}:  # the result is a plain array, too
        wanted, product = _again_on_host(x, y, out, rules, how)
        if product is not None:
            return product
    dtype, axes = _result_type(x, y, out, rules), rules.get("axes")
    left, right, target = _core_axes_last(x, y, out, axes)
    _check_shapes(left, right, target)
    if dtype.name not in DTYPES:
        choice, kept = how["choice"], how.get("bounds", NO_BOUNDS).checkpoint
        if choice.precision not in (None, FULL) or kept is not None or "scales" in how:
            # NumPy knows no precision, no kept call and no scales: this raises an error that names the types there are.
            as_dtype(dtype)
        _warn_of_the_host(dtype.name)
        return numpy_matmul(*given, **rules)
    _check_sizes(left, right)
    if _is_converted(x, y, dtype):
        with np.errstate(all="ignore"):
            left, right = left.astype(dtype, copy=False), right.astype(dtype, copy=False)
    in_place = target if target is not None and _takes_on_host(target, left, right, dtype) else None
    found, product = _product(left, right, in_place, dtype, how)
    product = product.view(dtype)  # NumPy tells longlong from the int64 that it is
    is_kept = (
        (out is None or in_place is not None)
        and found.reads(x, y)
        and found.place.keep(wanted, (x, y), product, scales=values_of(how.get("scales")))
    )
    if wanted is not None and not is_kept and "scales" not in how:
        if not product.size:
            repeated.keep_otherwise(wanted, nothing(product.shape, dtype))
        else:
            batch = np.broadcast_shapes(x.shape[:-2], y.shape[:-2])
            converted = dtype if _is_converted(x, y, dtype) else None
            found.keep_by_copies(wanted, _again_by(how), x, y, out, batch, converted)
    if in_place is not None:
        return _presented(out, [out], given)
    if out is not None:
        with np.errstate(all="ignore"):
            np.copyto(target, product, casting="unsafe")  # that it may be cast is part of _result_type
        return _presented(out, [out], given)
    product = _core_axes_placed(product, axes)
    if _order_of_result(x, y, rules) == "F":
        product = np.asarray(product, order="F")
    product = _presented(product, [a, b] if rules.get("subok", True) else [], given)
    return product[()] if type(product) is np.ndarray and not product.ndim else product


# Whose arrays they are


def _overrides_ufuncs(x: Any) -> bool:
    numpys = np.ndarray.__array_ufunc__
    return getattr(type(x), "__array_ufunc__", numpys) is not numpys


def _presented(result: HostArray, candidates: Sequence[Any], given: tuple[Any, ...]) -> Any:
    """The result as the candidate of the highest priority wraps it, as after any ufunc of NumPy's."""
    wrapping = [x for x in candidates if type(x) is not np.ndarray and hasattr(x, "__array_wrap__")]
    if not wrapping:
        return result
    first = max(wrapping, key=lambda x: float(getattr(x, "__array_priority__", 0)))
    if isinstance(first, np.ma.MaskedArray):  # it would join the masks of the operands, unlike in shape
        return first.__array_wrap__(result)
    return first.__array_wrap__(result, (numpy_matmul, given, 0))


@cache  # said once per type
def _warn_of_the_host(dtype: str) -> None:
    log.warning("matmul: no device computes %s: its products are computed by NumPy on the host", dtype)


# What NumPy would say


@contextmanager
def _in_numpys_words(error: type[Exception], ours: type[GemmportError]) -> Iterator[None]:
    try:
        yield
    except error as said:
        raise ours(str(said)) from None


def _check_writable(out: Any) -> None:
    if out is None or isinstance(out, DeviceArray):
        return
    if not isinstance(out, np.ndarray):
        raise TypeError(f"return arrays must be of ArrayType: out is a {type(out).__name__}; pass an array")
    if not out.flags.writeable:
        raise ArrayError(f"output array is read-only: out, of shape {out.shape}, cannot be written to; pass another")


def _result_type(a: Array, b: Array, out: Array | None, rules: dict[str, Any]) -> np.dtype[Any]:
    """The type that NumPy computes in.

    NumPy would give the product of two bfloat16 as float32, for it knows nothing of their kind. It is asked of float16 instead,
    and bfloat16 stays bfloat16, as in `gemm` and in the libraries that have it. Two float8 it multiplies as
    float32, too, which is right, but it casts them to no other type: where one is wanted, it is asked of float16.

    Raises:
        DtypeError: NumPy does not multiply these types, or does not cast as asked.
    """
    rules = {name: value for name, value in rules.items() if name not in ("axes", "subok")}
    brief = _is_bfloat16(rules.get("dtype") if "dtype" in rules else a.dtype if a.dtype == b.dtype else None)
    if brief and "dtype" in rules:
        rules["dtype"] = np.float16

    def nothing(x: Array) -> HostArray:
        stands_in = (brief and _is_bfloat16(x.dtype)) or ("dtype" in rules and INPUTS.get(x.dtype.name) in FLOAT8S)
        return np.empty((0, 0), np.float16 if stands_in else x.dtype)

    with _in_numpys_words(TypeError, DtypeError):
        if out is not None:
            numpy_matmul(nothing(a), nothing(b), nothing(out), **rules)
        result: np.dtype[Any] = numpy_matmul(nothing(a), nothing(b), **rules).dtype
    return DTYPES["bfloat16"].numpy if brief else result


def _is_bfloat16(dtype: Any) -> bool:
    """Of a type, or its name; asked without importing ml_dtypes, which brings the type."""
    name = getattr(dtype, "name", getattr(dtype, "__name__", dtype))
    return isinstance(name, str) and name == "bfloat16"


def _core_axes_last(a: Any, b: Any, out: Any, axes: list[Any] | None) -> list[Any]:
    """Views of the operands, and of `out` where there is one, with the dimensions of their matrices last.

    Raises:
        ShapeError: the axes do not fit the operands. TypeError: they must be a list of integers and of tuples of integers.
    """
    operands = [a, b, out]
    if axes is None:
        return operands
    with _in_numpys_words(ValueError, ShapeError):
        numpy_matmul(*(None if x is None else np.empty((0,) * x.ndim) for x in operands), axes=axes)
    return [
        None if x is None else moved(x, _core(entry), _last(entry)) for x, entry in zip(operands, axes, strict=True)
    ]


def _core_axes_placed(product: Any, axes: list[Any] | None) -> Any:
    """A view of the product with the dimensions of its matrices where axes wants them."""
    return product if axes is None else moved(product, _last(axes[2]), _core(axes[2]))


def _core(entry: Any) -> tuple[int, ...]:
    """An entry of axes, which may be an integer where it names one dimension."""
    return entry if isinstance(entry, tuple) else (entry,)


def _last(entry: Any) -> tuple[int, ...]:
    return tuple(range(-len(_core(entry)), 0))


def _check_shapes(a: Array, b: Array, out: Array | None) -> None:
    """Raises ShapeError, in NumPy's words, where the shapes do not fit together."""
    shapes = [x.shape for x in (a, b, out) if x is not None]
    if (most := max(map(len, shapes))) > MOST_DIMENSIONS:
        raise ShapeError(f"operands and out must have at most {MOST_DIMENSIONS} dimensions; got {most}: reshape them")
    if _fit(*shapes):
        return
    with _in_numpys_words(ValueError, ShapeError):
        numpy_matmul(*(np.lib.stride_tricks.as_strided(np.zeros(()), shape, (0,) * len(shape)) for shape in shapes))
    # NumPy also takes matrices for rows of vectors where `out` has too few dimensions and their sizes happen to allow it.
    raise ShapeError(f"out has shape {shapes[-1]}: it needs the dimensions of the product of {a.shape} and {b.shape}")


def _check_sizes(a: Array, b: Array) -> None:
    """Raises ShapeError where a size of the product is beyond what kernels count, before any operand is converted."""
    sizes = {"m": a.shape[-2:-1], "k": a.shape[-1:], "n": b.shape[-1:] if b.ndim > 1 else ()}
    for name, size in sizes.items():
        for one in size:  # none for a vector
            check_size(name, one)


def _fit(a: tuple[int, ...], b: tuple[int, ...], out: tuple[int, ...] | None = None) -> bool:
    if not a or not b or a[-1] != b[-2:][0]:
        return False
    core = (*a[-2:-1], *(b[-1:] if len(b) > 1 else ()))
    try:
        batch = np.broadcast_shapes(a[:-2], b[:-2])
        if out is None:
            return True
        # The product may be repeated to fill `out`, and may have more dimensions of size 1 before its matrices.
        out_batch, out_core = out[: len(out) - len(core)], out[len(out) - len(core) :]
        out_batch = (1,) * (len(batch) - len(out_batch)) + out_batch
        return out_core == core and out_batch == np.broadcast_shapes(batch, out_batch)
    except ValueError:  # the dimensions before the matrices do not broadcast
        return False


# From any number of dimensions to one batch, and back


def _product_shape(a: Array, b: Array) -> tuple[int, ...]:
    """Of the product of operands that fit together."""
    m, n = a.shape[-2:-1], b.shape[-1:] if b.ndim > 1 else ()  # of one size, or of none for a vector
    return (*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), *m, *n)


def _product(a: Array, b: Array, out: Any, dtype: np.dtype[Any], how: dict[str, Any]) -> tuple[Computed, Any]:
    """The product of operands that fit together, in its shape; `out`, if any, has that, and evenly spaced matrices."""
    shape, batch = _product_shape(a, b), np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    if out is not None:
        out = out if b.ndim > 1 else with_axis(out, out.ndim)
        out = out if a.ndim > 1 else with_axis(out, out.ndim - 1)
    a = a if a.ndim > 1 else with_axis(a, 0)
    b = b if b.ndim > 1 else with_axis(b, 1)
    if scales := how.get("scales"):
        lying = {name: each.arrays[0] if each.arrays else each.value for name, each in scales.items()}
        spread = {"scale_a": (of_rows, a.shape[-2]), "scale_b": (of_columns, b.shape[-1])}
        how = {**how, "scales": {name: spread[name][0](x, batch, spread[name][1]) for name, x in lying.items()}}
    found = _stack_product(broadcast(a, batch), broadcast(b, batch), out, dtype=dtype, **how)
    product = found.given
    if not isinstance(product, DeviceArray):
        return found, product.reshape(shape)
    return found, replace(product, shape=shape, strides=dense_strides(shape)) if out is None else product


def _stack_product(a: Array, b: Array, out: Any, scales: Mapping[str, Array] | None = None, **how: Any) -> Computed:
    """The product of stacks of matrices of one shape: `out`, or an array of the same elements in fewer dimensions.

    Args:
        scales: for each row and column of each matrix.
    """
    of_columns = None if scales is None else scales.get("scale_b")
    if _is_one_matrix(b) and (of_columns is None or _is_one_row(of_columns)):
        # The rows of all matrices of A against one B: one tall product, where A's rows, and D's, are evenly spaced.
        tall, tall_out = joined(a, a.ndim - 1), None if out is None else joined(out, out.ndim - 1)
        if tall is not None and (out is None or tall_out is not None):
            return computed(tall, _matrix(b), None, tall_out, scales=_of_a_tall_product(scales), **how)
    flat_out = None if out is None else joined(out, out.ndim - 2)
    left = _matrix(a) if _is_one_matrix(a) and not _is_one_matrix(b) else _batch(a)
    right = _matrix(b) if _is_one_matrix(b) else _batch(b)
    of_batch = None if scales is None else {name: Given.of(name, flat(x, x.ndim - 1)) for name, x in scales.items()}
    return computed(left, right, None, flat_out, scales=of_batch, **how)


def _of_a_tall_product(scales: Mapping[str, Array] | None) -> GivenScales | None:
    """Scales of a stack whose matrices are one below the other: columns have the same in each."""
    if scales is None:
        return None
    return {
        name: Given.of(name, flat(x, x.ndim) if name == "scale_a" else view(x, x.shape[-1:], x.strides[-1:]))
        for name, x in scales.items()
    }


def _is_one_matrix(x: Array) -> bool:
    """Whether a stack holds the same matrix throughout."""
    return all(n == 1 or (n > 1 and step == 0) for n, step in zip(x.shape[:-2], x.strides[:-2], strict=True))


def _is_one_row(x: Array) -> bool:
    """Whether a stack of rows holds the same throughout."""
    return all(n == 1 or (n > 1 and step == 0) for n, step in zip(x.shape[:-1], x.strides[:-1], strict=True))


def _matrix(x: Array) -> Array:
    return view(x, x.shape[-2:], x.strides[-2:])


def _batch(x: Array) -> Array:
    """A stack of matrices with all its dimensions but two as one; expanded where no stride says that."""
    found = joined(x, x.ndim - 2)
    if found is not None:
        return found
    log.info("matmul: a stack of shape %s and strides %s has uneven steps: it is copied", x.shape, x.strides)
    shape = (math.prod(x.shape[:-2]), *x.shape[-2:])
    return dense_copy(x, x.dtype).reshape(shape) if isinstance(x, DeviceArray) else x.reshape(shape)
