"""The public functions: `matmul`, `gemm`, `plan`, `run`. NumPy in, NumPy out; device arrays in, device arrays out."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from gemmport import kernels
from gemmport.backends.array import DeviceArray
from gemmport.backends.base import Backend, Memory
from gemmport.config import Configuration, load_configuration
from gemmport.device import DeviceInfo
from gemmport.dtypes import as_dtype
from gemmport.errors import ArrayError, DtypeError, ShapeError
from gemmport.executor import bind
from gemmport.layout import element_strides, matrices, readable_in_place
from gemmport.plan import ParameterValue, Plan
from gemmport.planner import AUTO, make_plan
from gemmport.problem import GemmProblem, Layout, Op, Operand, as_op
from gemmport.selection import get_backend
from gemmport.variant import KernelVariant, Parameters

log = logging.getLogger(__name__)

HostArray: TypeAlias = npt.NDArray[Any]
Config: TypeAlias = "str | Path | Sequence[str | Path] | None"


def plan(
    problem: GemmProblem,
    device: DeviceInfo,
    *,
    kernel: str = AUTO,
    params: Parameters | None = None,
    config: Config = None,
) -> Plan:
    """How a problem is computed on a device: the kernel, its parameters and where they came from, every launch.

    Args:
        problem: from `GemmProblem.create`.
        device: from `devices()`, or built by hand.
        kernel: a name from `gemmport kernels`, or "auto".
        params: parameters of the kernel; they go before any configuration.
        config: files that go before the user's and the shipped ones; each is read once per process.

    Raises:
        ConfigError, UnknownNameError, ParameterError, UnsupportedError, DtypeError: see `gemmport.planner.make_plan`.
    """
    asked = tuple(sorted((params or {}).items()))
    folders = os.environ.get("GEMMPORT_CONFIG_PATH", "")
    return _cached_plan(problem, device, kernel, asked, _config_files(config), folders, kernels.variants())


@lru_cache(maxsize=1024)
def _cached_plan(
    problem: GemmProblem,
    device: DeviceInfo,
    kernel: str,
    params: tuple[tuple[str, ParameterValue], ...],
    files: tuple[str, ...],
    _folders: str,
    _family: tuple[KernelVariant, ...],  # part of the key: a variant may be registered over another
) -> Plan:
    return make_plan(problem, device, _configuration(files, _folders), kernel=kernel, params=dict(params))


@lru_cache(maxsize=16)
def _configuration(files: tuple[str, ...], _folders: str) -> Configuration:
    """The configuration of these files; `_folders`, which it reads from the environment, is here to tell it apart."""
    return load_configuration(files)


def _config_files(config: Config) -> tuple[str, ...]:
    if config is None:
        return ()
    return (str(config),) if isinstance(config, str | Path) else tuple(str(path) for path in config)


def gemm(
    a: Any,
    b: Any,
    *,
    alpha: float = 1.0,
    beta: float = 0.0,
    c: Any = None,
    trans_a: Op | bool = "N",
    trans_b: Op | bool = "N",
    out: Any = None,
    backend: str | None = None,
    device: str | DeviceInfo | None = None,
    kernel: str = AUTO,
    params: Parameters | None = None,
    config: Config = None,
) -> Any:
    """alpha · op(A) · op(B) + beta · C, as BLAS defines it.

    Args:
        a, b: matrices, or batches of matrices with the batch as first dimension; a single matrix serves a whole batch.
            NumPy arrays, or device arrays of one device. float32 or float64.
        alpha, beta: with beta = 0, C is not read; with alpha = 0, A and B are not.
        c: of the result's shape; read, never changed (unless it is also `out`). Needed where beta is not 0.
        trans_a, trans_b: "N", "T" or "C"; or True for "T".
        out: where to write; may be `c`. It must not overlap A or B.
        backend, device: see `get_backend`; not with device arrays, which say themselves.
        kernel, params, config: see `plan`.

    Returns:
        `out`, or a new array: NumPy for NumPy in, a device array (not yet computed: work is enqueued) for device arrays.

    Raises:
        ShapeError, DtypeError, ArrayError: operands that do not fit together.
        ConfigError, UnknownNameError, ParameterError, UnsupportedError: see `plan`.
        BackendUnavailableError, DeviceNotFoundError, AmbiguousDeviceError: see `get_backend`.
        CompileError, LaunchError, DeviceMemoryError: the device refused.
    """
    if beta != 0 and c is None:
        raise ArrayError(f"beta = {beta} needs c, the matrix it scales")
    on_device = [x for x in (a, b, c, out) if isinstance(x, DeviceArray)]
    if on_device:
        target = on_device[0].backend
        a, b, c = (np.asarray(x) if isinstance(x, list | tuple) else x for x in (a, b, c))
        if backend is not None or device is not None:
            raise ArrayError("backend= and device= are not for device arrays: they are where they are")
        if out is not None and not isinstance(out, DeviceArray):
            raise ArrayError("out must be a device array where an operand is one")
    else:
        a, b, c = np.asarray(a), np.asarray(b), None if c is None else np.asarray(c)
        common = np.result_type(a, b) if c is None else np.result_type(a, b, c)
        a, b, c = (
            a.astype(common, copy=False),
            b.astype(common, copy=False),
            None if c is None else c.astype(common, copy=False),
        )
        as_dtype(common)
        target = get_backend(backend, device)
    result = _gemm_on(
        target, a, b, c if beta != 0 else None, alpha, beta, as_op(trans_a), as_op(trans_b),
        out if isinstance(out, DeviceArray) else None, c_shape=None if c is None else c.shape,
        kernel=kernel, params=params, config=config,
    )  # fmt: skip
    if on_device:
        return result
    return _to_host(result, out)


def matmul(
    a: Any,
    b: Any,
    *,
    out: Any = None,
    backend: str | None = None,
    device: str | DeviceInfo | None = None,
    kernel: str = AUTO,
    params: Parameters | None = None,
    config: Config = None,
) -> Any:
    """The matrix product with the rules of `numpy.matmul`: vectors are promoted, the dimensions before the last two broadcast.

    Args and errors as `gemm`. Device arrays have two dimensions, or three with equal batches.
    """
    options: dict[str, Any] = {
        "backend": backend,
        "device": device,
        "kernel": kernel,
        "params": params,
        "config": config,
    }
    if isinstance(a, DeviceArray) or isinstance(b, DeviceArray):
        return gemm(a, b, out=out, **options)
    a, b = np.asarray(a), np.asarray(b)
    if a.ndim == 0 or b.ndim == 0:
        raise ShapeError("matmul: an operand has no dimensions; use * to scale by a number")
    rows = a[np.newaxis, :] if a.ndim == 1 else a
    columns = b[:, np.newaxis] if b.ndim == 1 else b
    if rows.shape[-1] != columns.shape[-2]:
        raise ShapeError(f"matmul: {a.shape} and {b.shape} do not match: {rows.shape[-1]} ≠ {columns.shape[-2]}")
    try:
        batch = np.broadcast_shapes(rows.shape[:-2], columns.shape[:-2])
    except ValueError as error:
        raise ShapeError(f"matmul: batch dimensions of {a.shape} and {b.shape} do not broadcast") from error
    flat = gemm(_as_batch(rows, batch), _as_batch(columns, batch), **options)
    shape = (*batch, *(() if a.ndim == 1 else (rows.shape[-2],)), *(() if b.ndim == 1 else (columns.shape[-1],)))
    result = flat.reshape(shape)
    if out is not None:
        return _into(out, result)
    return result if shape else result[()]


def run(plan: Plan, a: Any, b: Any, c: Any = None) -> HostArray:
    """Runs a plan on NumPy arrays, laid out in memory as the plan's problem says.

    Args:
        a, b, c: of the shapes that the problem stores, with the batch as first dimension where it is not 1.

    Returns:
        D, of shape (m, n) or (batch, m, n).

    Raises:
        ShapeError: an operand of another shape. ArrayError: C is missing where beta is not 0.
        Others as `gemm`.
    """
    problem = plan.problem
    backend = get_backend(device=plan.device)
    given: dict[Operand, Any] = {"a": a, "b": b} if problem.beta == 0 else {"a": a, "b": b, "c": c}
    if problem.beta != 0 and c is None:
        raise ArrayError(f"beta = {problem.beta} needs c, the matrix it scales")
    memory: dict[Operand, Memory] = {}
    for operand, value in given.items():
        rows, columns = problem.stored_shape(operand)
        flat = np.zeros(max(problem.span(operand), 1), problem.element_type(operand).numpy)
        view = matrices(flat, problem.layout(operand), rows, columns, problem.batch)
        array = np.asarray(value)
        if array.shape not in {view.shape, *([view.shape[1:]] if problem.batch == 1 else [])}:
            raise ShapeError(f"{operand} has shape {array.shape}; the plan is for {view.shape}")
        if view.size:
            view[...] = array
        memory[operand] = backend.allocate(flat.nbytes)
        backend.upload(memory[operand], flat)
    result = np.zeros(max(problem.span("d"), 1), problem.output.numpy)
    memory["d"] = backend.allocate(result.nbytes)
    bind(plan, backend, memory).enqueue()
    backend.download(memory["d"], result)
    d = matrices(result, problem.d, problem.m, problem.n, problem.batch).copy()
    return d[0] if problem.batch == 1 else d


def _gemm_on(
    backend: Backend,
    a: Any,
    b: Any,
    c: Any,
    alpha: float,
    beta: float,
    trans_a: Op,
    trans_b: Op,
    out: DeviceArray | None,
    *,
    c_shape: tuple[int, ...] | None,
    kernel: str,
    params: Parameters | None,
    config: Config,
) -> DeviceArray:
    """The product on one device; enqueued, not awaited."""
    m, k = _shape_after("a", a, trans_a)
    k_of_b, n = _shape_after("b", b, trans_b)
    if k != k_of_b:
        raise ShapeError(
            f"op(A) is {m} × {k} and op(B) is {k_of_b} × {n}: the inner sizes {k} and {k_of_b} must be equal"
        )
    batches = {x.shape[0] for x in (a, b) if x.ndim == 3}
    if len(batches) > 1:
        raise ShapeError(
            f"a has a batch of {a.shape[0]} and b one of {b.shape[0]}: they must be equal, or one a single matrix"
        )
    shape = (*batches, m, n)
    for name, other in (("c", c_shape), ("out", out.shape if out else None)):
        if other is not None and other != shape:
            raise ShapeError(f"{name} has shape {other}; the product has {shape}")
    a_array, a_layout, trans_a = _operand(backend, a, trans_a)
    b_array, b_layout, trans_b = _operand(backend, b, trans_b)
    dtype = as_dtype(a_array.dtype)
    d_array = backend.empty(shape, dtype.numpy) if out is None else backend.asarray(out)
    for name, array in (("b", b_array), ("out", d_array)):
        if array.dtype != a_array.dtype:
            raise DtypeError(f"a is {a_array.dtype} and {name} is {array.dtype}: on a device they must be the same")
    d_layout = _written(d_array)
    c_array, c_layout = d_array, d_layout
    if c is not None:
        c_array, c_layout, op_c = _operand(backend, c, "N")
        if op_c != "N":
            c_array, c_layout, _ = _operand(backend, _dense_copy(backend, c_array), "N")
    if c_array.dtype != a_array.dtype:
        raise DtypeError(f"a is {a_array.dtype} and c is {c_array.dtype}: on a device they must be the same")
    if out is not None:
        _check_overlap(out, a_array, b_array, c_array if c is not None else None)
    problem = GemmProblem.create(
        m, n, k, batch=next(iter(batches), 1), dtype=dtype, trans_a=trans_a, trans_b=trans_b, alpha=alpha, beta=beta,
        a=a_layout, b=b_layout, c=c_layout, d=d_layout,
    )  # fmt: skip
    made = plan(problem, backend.device, kernel=kernel, params=params, config=config)
    bind(made, backend, {"a": a_array.memory, "b": b_array.memory, "c": c_array.memory, "d": d_array.memory}).enqueue()
    return d_array


def _shape_after(name: str, x: Any, op: Op) -> tuple[int, int]:
    if x.ndim not in (2, 3):
        raise ShapeError(f"{name} has shape {x.shape}: gemm takes matrices, or a batch of them with the batch first")
    return (x.shape[-2], x.shape[-1]) if op == "N" else (x.shape[-1], x.shape[-2])


def _operand(backend: Backend, x: Any, op: Op) -> tuple[DeviceArray, Layout, Op]:
    """An operand on the device, its layout, and its op as it is stored there."""
    if isinstance(x, np.ndarray):
        strides = element_strides(x)
        found = readable_in_place(x.shape, strides) if strides else None
        # Stored transposed (column-major): sent as it lies, so that nothing is rearranged on the host.
        lies = x.swapaxes(-1, -2) if found is not None and found[1] else x
        array = backend.asarray(lies)
        x = array if lies is x else _swapped(array)
    else:
        x = backend.asarray(x)
    found = _lies(x)
    if found is None:
        log.info("an operand of shape %s and strides %s cannot be read in place: it is copied", x.shape, x.strides)
        x = _dense_copy(backend, x)
        found = _lies(x)
        if found is None:
            raise ArrayError(f"an operand of shape {x.shape} cannot be laid out as matrices")
    layout, transposed = found
    if not transposed:
        return x, layout, op
    return x, layout, "T" if op == "N" else "N"


def _lies(x: DeviceArray) -> tuple[Layout, bool] | None:
    """The layout of a device array that can be read in place, and whether it is stored transposed."""
    return readable_in_place(x.shape, x.strides, x.offset, base_alignment=x.memory.alignment)


def _swapped(x: DeviceArray) -> DeviceArray:
    """The array with its last two dimensions exchanged."""

    def swap(values: tuple[int, ...]) -> tuple[int, ...]:
        return (*values[:-2], values[-1], values[-2])

    return DeviceArray(x.backend, x.memory, swap(x.shape), x.dtype, swap(x.strides), x.offset)


def _dense_copy(backend: Backend, x: DeviceArray) -> DeviceArray:
    return backend.asarray(np.ascontiguousarray(x.get()))


def _written(d: DeviceArray) -> Layout:
    found = _lies(d)
    if found is None or found[1]:
        raise ArrayError(
            f"out of shape {d.shape} and strides {d.strides} is not row-major: its last dimension must be contiguous"
        )
    return found[0]


def _check_overlap(out: DeviceArray, a: DeviceArray, b: DeviceArray, c: DeviceArray | None) -> None:
    """Raises ArrayError where writing D would change an operand while it is read."""
    for name, other in (("a", a), ("b", b), ("c", c)):
        if other is None or other.memory.handle != out.memory.handle or not _spans_meet(out, other):
            continue
        if name == "c" and (other.offset, other.strides) == (out.offset, out.strides):
            continue  # the in-place update: each element of C is read by who writes it
        raise ArrayError(f"out overlaps {name}: the result would depend on the order of the work; use another array")


def _spans_meet(x: DeviceArray, y: DeviceArray) -> bool:
    def span(array: DeviceArray) -> tuple[int, int]:
        steps = [(n - 1) * s for n, s in zip(array.shape, array.strides, strict=True)]
        return array.offset + sum(s for s in steps if s < 0), array.offset + sum(s for s in steps if s > 0)

    (x_low, x_high), (y_low, y_high) = span(x), span(y)
    return x.size > 0 and y.size > 0 and x_low <= y_high and y_low <= x_high


def _as_batch(x: HostArray, batch: tuple[int, ...]) -> HostArray:
    """A stack of matrices as one batch of three dimensions; a single matrix stays single, to be broadcast on the device."""
    if x.ndim == 2 and x.shape[:-2] == () and batch:
        return x if int(np.prod(batch)) > 0 else np.broadcast_to(x, (0, *x.shape))
    if not batch:
        return x
    return np.broadcast_to(x, (*batch, *x.shape[-2:])).reshape(-1 if x.size else int(np.prod(batch)), *x.shape[-2:])


def _to_host(result: DeviceArray, out: Any) -> HostArray:
    host = result.get()
    return host if out is None else _into(out, host)


def _into(out: Any, result: HostArray) -> HostArray:
    if not isinstance(out, np.ndarray) or out.shape != result.shape:
        raise ShapeError(f"out must be a NumPy array of shape {result.shape}")
    if not np.can_cast(result.dtype, out.dtype, "same_kind"):
        raise DtypeError(f"out is {out.dtype}, to which {result.dtype} is not cast")
    np.copyto(out, result, casting="same_kind")
    return cast("HostArray", out)
