"""`matmul`: the rules of `numpy.matmul` around one call of `gemm`.

Which types, shapes and axes go together is not decided here: NumPy is asked, with stand-ins that have no elements to multiply,
so that every rule and message is that of the installed NumPy. What is decided here is how operands of any number of
dimensions become the matrices, or the one batch of matrices, that `gemm` takes: by views, with no element moved where strides
can say it.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from gemmport.api.gemm import gemm
from gemmport.api.plans import Config, HostArray
from gemmport.backends.array import DeviceArray, check_unmasked, dense_strides
from gemmport.contracts.kernel import Parameters
from gemmport.core.device import DeviceInfo
from gemmport.core.dtypes import DTYPES
from gemmport.core.errors import ArrayError, DtypeError, GemmportError, ShapeError
from gemmport.core.problem import check_size, scalar_key
from gemmport.execution import repeated
from gemmport.execution.adapters import library_of
from gemmport.execution.copies import dense_copy
from gemmport.planning.planner import AUTO

log = logging.getLogger(__name__)

Array: TypeAlias = "HostArray | DeviceArray"

numpy_matmul: Callable[..., Any] = np.matmul

_SCALARS = scalar_key(1.0), scalar_key(0.0)
"""Alpha and beta as `gemm` tells them from others."""


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
    device: str | DeviceInfo | None = None,
    kernel: str = AUTO,
    params: Parameters | None = None,
    config: Config = None,
) -> Any:
    """The matrix product with the rules of `numpy.matmul`: vectors are promoted, the dimensions before the last two broadcast.

    Python objects, long doubles and whatever else NumPy multiplies and no device does are multiplied by NumPy on the host; the
    first product of each such type logs a warning.

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
        backend, device: see `get_backend`; not with device arrays, which say themselves.
        kernel, params, config: see `plan`.

    Returns:
        `out`, or a new array of shape (…, m, n), without m or n where a or b is a vector; for two vectors a scalar. Of the type
        that `numpy.matmul` gives. For device arrays a device array, enqueued and not awaited.

    Raises:
        ShapeError: sizes, dimensions or axes that do not fit together. DtypeError: types that NumPy does not multiply or cast.
        ArrayError: `out` cannot be written to, or an element of `a`, `b` or `out` is masked.
        TypeError: `out` must be an array, `axes` a list. ValueError: no such casting or order.
        Others as `gemm`.
    """
    if (
        (repeated.are_plain(a, b, out) or repeated.are_on_one_device(a, b, None, out)) and a.ndim == b.ndim == 2
        and a.dtype == b.dtype and params is None and config is None
        and axes is None and dtype is None and order == "K" and casting == "same_kind"
    ):  # fmt: skip
        as_gemm = (*_SCALARS, str, "N", str, "N", a.dtype, None, kernel)  # its choices, so that one product has one key
        wanted = repeated.key(a, b, None, out, as_gemm, backend, device)
        if (again := repeated.product(wanted, a, b, None, out, None)) is not None:
            return again
    how: dict[str, Any] = {"backend": backend, "device": device, "kernel": kernel, "params": params, "config": config}
    rules: dict[str, Any] = {} if subok else {"subok": False}  # NumPy's own arguments, where they say something
    rules |= {} if casting == "same_kind" else {"casting": casting}
    rules |= {} if order == "K" else {"order": order}
    rules |= {name: value for name, value in (("dtype", dtype), ("axes", axes)) if value is not None}
    if isinstance(out, tuple):
        if len(out) != 1:
            raise ShapeError(f"The 'out' tuple must have exactly one entry per ufunc output, not {len(out)}")
        (out,) = out
    given = (a, b) if out is None else (a, b, out)
    for name, x in zip(("a", "b", "out"), given, strict=False):
        check_unmasked(name, x)
    if any(library_of(x) is not None for x in given):
        if refused := rules.keys() - {"dtype"}:
            told = ", ".join(sorted(refused))
            raise ArrayError(f"{told}: not for another library's arrays on a device; see Backend.asarray")
        return gemm(a, b, out=out, dtype=dtype, **how)
    if any(isinstance(x, DeviceArray) for x in given):
        return _of_device_arrays(a, b, out, rules, how)
    if own := [type(x).__name__ for x in given if _overrides_ufuncs(x)]:
        log.info("%s multiplies by its own __array_ufunc__: nothing is computed here", own[0])
        return numpy_matmul(*given, **rules)
    return _of_host_arrays(a, b, out, rules, how)


def _of_device_arrays(a: Any, b: Any, out: Any, rules: dict[str, Any], how: dict[str, Any]) -> Any:
    if rules.get("order") == "F":
        raise ArrayError("order = 'F': products of device arrays are row-major; multiply the transposed operands")
    a, b = (x if isinstance(x, DeviceArray) else np.asarray(x) for x in (a, b))
    _check_writable(out)
    dtype, axes = _result_type(a, b, out, rules), rules.get("axes")
    left, right, target = _core_axes_last(a, b, out, axes)
    _check_shapes(left, right, target)
    product = _product(left, right, target, dtype, how)
    return _core_axes_placed(product, axes) if out is None else out


def _common_type(x: HostArray, y: HostArray) -> np.dtype[Any] | None:
    """The type that holds the numbers of both; None of some that NumPy multiplies all the same, such as those of ml_dtypes."""
    try:
        return np.result_type(x, y)
    except TypeError:
        return None


def _of_host_arrays(a: Any, b: Any, out: Any, rules: dict[str, Any], how: dict[str, Any]) -> Any:
    given = (a, b) if out is None else (a, b, out)
    x, y = np.asarray(a), np.asarray(b)
    _check_writable(out)
    dtype, axes = _result_type(x, y, out, rules), rules.get("axes")
    left, right, target = _core_axes_last(x, y, out, axes)
    _check_shapes(left, right, target)
    if dtype.name not in DTYPES:
        _warn_of_the_host(dtype.name)
        return numpy_matmul(*given, **rules)
    _check_sizes(left, right)
    # gemm widens operands of one type as it reads them, and converts others to their common type, once it knows that they fit.
    common = _common_type(x, y)
    if common is None or not np.can_cast(common, dtype) or (x.dtype != y.dtype and common != dtype):
        with np.errstate(all="ignore"):
            left, right = left.astype(dtype, copy=False), right.astype(dtype, copy=False)
    in_place = (
        target if target is not None and target.dtype == dtype and left.ndim == right.ndim == target.ndim == 2 else None
    )
    product = _product(left, right, in_place, dtype, how).view(dtype)  # NumPy tells longlong from the int64 that it is
    if in_place is not None:
        return _presented(out, [out], given)
    if out is not None:
        with np.errstate(all="ignore"):
            np.copyto(target, product, casting="unsafe")  # that it may be cast is part of _result_type
        return _presented(out, [out], given)
    product = _core_axes_placed(product, axes)
    order = rules.get("order")
    if order == "F" or (order == "A" and x.flags.f_contiguous and y.flags.f_contiguous):
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

    Raises:
        DtypeError: NumPy does not multiply these types, or does not cast as asked.
    """
    rules = {name: value for name, value in rules.items() if name not in ("axes", "subok")}
    nothing = [np.empty((0, 0), x.dtype) for x in (a, b)]
    with _in_numpys_words(TypeError, DtypeError):
        if out is not None:
            numpy_matmul(*nothing, np.empty((0, 0), out.dtype), **rules)
        result: np.dtype[Any] = numpy_matmul(*nothing, **rules).dtype
    return result


def _core_axes_last(a: Any, b: Any, out: Any, axes: list[Any] | None) -> list[Any]:
    """Views of the operands, and of `out` where there is one, with the dimensions of their matrices last.

    Raises:
        ShapeError: the axes do not fit the operands. TypeError: they are no list of integers and of tuples of integers.
    """
    operands = [a, b, out]
    if axes is None:
        return operands
    with _in_numpys_words(ValueError, ShapeError):
        numpy_matmul(*(None if x is None else np.empty((0,) * x.ndim) for x in operands), axes=axes)
    return [
        None if x is None else _moved(x, _core(entry), _last(entry)) for x, entry in zip(operands, axes, strict=True)
    ]


def _core_axes_placed(product: Any, axes: list[Any] | None) -> Any:
    """A view of the product with the dimensions of its matrices where axes wants them."""
    return product if axes is None else _moved(product, _last(axes[2]), _core(axes[2]))


def _core(entry: Any) -> tuple[int, ...]:
    """An entry of axes, which may be an integer where it names one dimension."""
    return entry if isinstance(entry, tuple) else (entry,)


def _last(entry: Any) -> tuple[int, ...]:
    return tuple(range(-len(_core(entry)), 0))


def _check_shapes(a: Array, b: Array, out: Array | None) -> None:
    """Raises ShapeError, in NumPy's words, where the shapes do not fit together."""
    shapes = [x.shape for x in (a, b, out) if x is not None]
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


def _product(a: Array, b: Array, out: Any, dtype: np.dtype[Any], how: dict[str, Any]) -> Any:
    """The product of operands that fit together; `out`, if any, is a device array."""
    m, n = a.shape[-2:-1], b.shape[-1:] if b.ndim > 1 else ()  # of one size, or of none for a vector
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    shape = (*batch, *m, *n)
    if out is not None:
        if out.shape != shape:
            raise ShapeError(f"out has shape {out.shape}; the product has {shape}")
        out = out if n else _with_axis(out, out.ndim)
        out = out if m else _with_axis(out, out.ndim - 1)
    a = a if m else _with_axis(a, 0)
    b = b if n else _with_axis(b, 1)
    product = _stack_product(_broadcast(a, batch), _broadcast(b, batch), out, dtype=dtype, **how)
    if isinstance(product, DeviceArray):
        return replace(product, shape=shape, strides=dense_strides(shape)) if out is None else product
    return product.reshape(shape)


def _stack_product(a: Array, b: Array, out: Any, **how: Any) -> Any:
    """The product of stacks of matrices of one shape: `out`, or an array of the same elements in fewer dimensions."""
    if _is_one_matrix(b):
        # The rows of all matrices of A against one B: one tall product, where A's rows, and D's, are evenly spaced.
        tall, tall_out = _joined(a, a.ndim - 1), None if out is None else _joined(out, out.ndim - 1)
        if tall is not None and (out is None or tall_out is not None):
            return gemm(tall, _matrix(b), out=tall_out, **how)
    flat_out = None if out is None else _joined(out, out.ndim - 2)
    if out is not None and flat_out is None:
        raise ArrayError(
            f"out of shape {out.shape} and strides {out.strides}: its matrices are not evenly spaced in memory"
        )
    left = _matrix(a) if _is_one_matrix(a) and not _is_one_matrix(b) else _batch(a)
    right = _matrix(b) if _is_one_matrix(b) else _batch(b)
    return gemm(left, right, out=flat_out, **how)


def _is_one_matrix(x: Array) -> bool:
    """Whether a stack holds the same matrix throughout."""
    return all(n == 1 or (n > 1 and step == 0) for n, step in zip(x.shape[:-2], x.strides[:-2], strict=True))


def _matrix(x: Array) -> Array:
    return _view(x, x.shape[-2:], x.strides[-2:])


def _batch(x: Array) -> Array:
    """A stack of matrices with all its dimensions but two as one; expanded where no stride says that."""
    found = _joined(x, x.ndim - 2)
    if found is not None:
        return found
    log.info("matmul: a stack of shape %s and strides %s has uneven steps: it is copied", x.shape, x.strides)
    shape = (math.prod(x.shape[:-2]), *x.shape[-2:])
    return dense_copy(x, x.dtype).reshape(shape) if isinstance(x, DeviceArray) else x.reshape(shape)


# Views, of NumPy's and of device arrays alike: NumPy counts strides in bytes, devices in elements; ratios are the same


def _view(x: Array, shape: Sequence[int], strides: Sequence[int]) -> Array:
    """The same memory from the same first element on."""
    if (x.shape, x.strides) == (tuple(shape), tuple(strides)):
        return x
    if isinstance(x, DeviceArray):
        return replace(x, shape=tuple(shape), strides=tuple(strides))
    return np.lib.stride_tricks.as_strided(x, shape, strides)


def _with_axis(x: Array, position: int) -> Array:
    """With one more dimension, of size 1, before a position."""
    shape, strides = list(x.shape), list(x.strides)
    shape.insert(position, 1)
    strides.insert(position, 0)
    return _view(x, shape, strides)


def _moved(x: Array, source: Sequence[int], destination: Sequence[int]) -> Array:
    """As `numpy.moveaxis`."""
    source, destination = ([axis % x.ndim for axis in axes] for axes in (source, destination))
    order = [axis for axis in range(x.ndim) if axis not in source]
    for place, axis in sorted(zip(destination, source, strict=True)):
        order.insert(place, axis)
    return _view(x, [x.shape[axis] for axis in order], [x.strides[axis] for axis in order])


def _broadcast(x: Array, batch: tuple[int, ...]) -> Array:
    """A stack of matrices with these dimensions before the last two; what is repeated has stride 0."""
    own = [0 if n == 1 else step for n, step in zip(x.shape[:-2], x.strides[:-2], strict=True)]
    return _view(x, (*batch, *x.shape[-2:]), (*(0,) * (len(batch) - len(own)), *own, *x.strides[-2:]))


def _joined(x: Array, count: int) -> Array | None:
    """The first `count` dimensions as one; None where their elements are not evenly spaced."""
    spaced = [(n, step) for n, step in zip(x.shape[:count], x.strides[:count], strict=True) if n != 1]
    size = math.prod(n for n, _ in spaced)
    if size and any(outer != n * inner for (_, outer), (n, inner) in pairwise(spaced)):
        return None
    stride = spaced[-1][1] if spaced else 0
    return _view(x, (size, *x.shape[count:]), (stride, *x.strides[count:]))
