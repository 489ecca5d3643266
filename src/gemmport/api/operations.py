"""What device arrays compute: products, views and copies that NumPy's functions are asked for. Others are refused by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from gemmport.api import array_api, contractions
from gemmport.api.matmul import matmul
from gemmport.api.overlap import overlap
from gemmport.api.views import moved
from gemmport.backends import _operations
from gemmport.backends.array import DeviceArray
from gemmport.core.errors import ArrayError, UnsupportedError
from gemmport.execution import copies


class ArrayOperations:
    """`gemmport.backends._operations.Operations`."""

    def matmul(self, a: Any, b: Any, /) -> Any:
        return matmul(a, b)

    def assign(self, source: DeviceArray, target: DeviceArray) -> None:
        if target.memory.read_only:
            raise ArrayError(f"an array of shape {target.shape} is read-only: set another")
        if source.backend is not target.backend:
            target.set(source.get())
            return
        if overlap(source, target):
            source = copies.dense_copy(source, source.dtype, queue=source.queue)
        copies.assign(source, target, queue=target.queue)

    def ufunc(self, ufunc: Any, method: str, inputs: tuple[Any, ...], options: Mapping[str, Any]) -> Any:
        if method == "__call__" and (own := _ufuncs().get(ufunc)) is not None:
            return own(*inputs, **options)
        if any(_multiplies_itself(x) for x in (*inputs, *options.get("out", ()))):
            return NotImplemented
        name = f"numpy.{ufunc.__name__}"
        raise _refusal(name if method == "__call__" else f"{name}.{method}")

    def function(self, function: Callable[..., Any], arguments: tuple[Any, ...], options: Mapping[str, Any]) -> Any:
        if (own := _functions().get(function)) is None:
            raise _refusal(f"{function.__module__}.{function.__name__}")
        return own(*arguments, **options)

    def namespace(self) -> Any:
        return array_api


def _multiplies_itself(x: object) -> bool:
    """Whether an operand of a ufunc is another library's, which may know what to do."""
    return not isinstance(x, np.ndarray | DeviceArray) and hasattr(type(x), "__array_ufunc__")


def _refusal(name: str) -> UnsupportedError:
    return UnsupportedError(f"{name} must have arrays on the host; got one on a device: copy it with get()")


def _of_numpy(functions: Mapping[str, Callable[..., Any]], *spaces: Any) -> dict[Any, Callable[..., Any]]:
    """By NumPy's own functions, of which older versions lack some."""
    return {getattr(space, name): own for name, own in functions.items() for space in spaces if hasattr(space, name)}


@cache
def _ufuncs() -> dict[Any, Callable[..., Any]]:
    named: dict[str, Callable[..., Any]] = {
        "matmul": matmul,
        "vecdot": contractions.vecdot,
        "matvec": contractions.matvec,
        "vecmat": contractions.vecmat,
    }
    return _of_numpy(named, np)


@cache
def _functions() -> dict[Any, Callable[..., Any]]:
    products: dict[str, Callable[..., Any]] = {
        name: _of_two(getattr(contractions, name)) for name in ("dot", "inner", "outer", "vdot", "tensordot", "vecdot")
    }
    products["einsum"] = contractions.einsum
    views: dict[str, Callable[..., Any]] = {
        "transpose": lambda a, axes=None: a.transpose() if axes is None else a.transpose(axes),
        "matrix_transpose": lambda x: x.mT,
        "swapaxes": lambda a, axis1, axis2: moved(a, (axis1, axis2), (axis2, axis1)),
        "moveaxis": array_api.moveaxis,
        "reshape": lambda a, shape: contractions.reshaped(a, _full(a, shape)),
        "ravel": lambda a: contractions.reshaped(a, (a.size,)),
        "expand_dims": array_api.expand_dims,
    }
    told: dict[str, Callable[..., Any]] = {
        "shape": lambda a: a.shape,
        "ndim": lambda a: a.ndim,
        "size": lambda a: a.size,
        "iscomplexobj": lambda x: x.dtype.kind == "c",
        "isrealobj": lambda x: x.dtype.kind != "c",
        "result_type": array_api.result_type,
        "shares_memory": _share,
        "may_share_memory": _share,
    }
    made: dict[str, Callable[..., Any]] = {
        "copy": lambda a: a.copy(),
        "copyto": _copyto,
        "empty_like": lambda prototype, dtype=None: prototype.backend.empty(prototype.shape, dtype or prototype.dtype),
        "zeros_like": lambda a, dtype=None: a.backend.zeros(a.shape, dtype or a.dtype),
        "ones_like": lambda a, dtype=None: a.backend.ones(a.shape, dtype or a.dtype),
        "full_like": lambda a, fill_value, dtype=None: a.backend.full(a.shape, fill_value, dtype or a.dtype),
    }
    # What compares numbers, shows or saves them reads a copy.
    read = {name: _on_the_host(getattr(np, name)) for name in _READING}
    own: dict[str, Callable[..., Any]] = {**products, **views, **told, **made, **read, "matmul": matmul}
    return _of_numpy(own, np, np.linalg)


_READING = ("allclose", "array_equal", "array_equiv", "array_repr", "array_str", "array2string", "save", "savetxt")


def _of_two(function: Callable[..., Any]) -> Callable[..., Any]:
    def applied(a: Any, b: Any, *arguments: Any, **options: Any) -> Any:
        return function(contractions.as_operand(a), contractions.as_operand(b), *arguments, **options)

    return applied


def _on_the_host(function: Callable[..., Any]) -> Callable[..., Any]:
    def applied(*arguments: Any, **options: Any) -> Any:
        return function(*(x.get() if isinstance(x, DeviceArray) else x for x in arguments), **options)

    return applied


def _full(a: DeviceArray, shape: Any) -> tuple[int, ...]:
    """A shape of which one size may be -1, as sizes."""
    full: tuple[int, ...] = np.broadcast_to(np.int8(0), a.shape).reshape(shape).shape
    return full


def _share(a: Any, b: Any) -> bool:
    if not (isinstance(a, DeviceArray) and isinstance(b, DeviceArray)):
        return False
    return a.backend is b.backend and overlap(a, b)


def _copyto(dst: Any, src: npt.ArrayLike) -> None:
    if not isinstance(dst, DeviceArray):
        raise ArrayError("numpy.copyto to the host must have its source there; got one on a device: copy it with get()")
    dst.set(src)


_operations.lend(ArrayOperations())
