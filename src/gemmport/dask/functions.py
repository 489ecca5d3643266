"""`matmul` and `tensordot` of Dask arrays."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from numbers import Real
from typing import Any

import dask
import dask.array as da
import numpy as np
import numpy.typing as npt

from gemmport.api.arguments import Types as ApiTypes
from gemmport.api.contractions import summed_pairs
from gemmport.api.matmul import described_in_pieces
from gemmport.api.plans import Config
from gemmport.api.precision import current
from gemmport.api.scales import check_types, fitting, taken
from gemmport.backends.array import DeviceArray
from gemmport.contracts.kernel import Parameters
from gemmport.core.device import DeviceInfo
from gemmport.core.dtypes import as_dtype
from gemmport.core.errors import ArrayError, ParameterError, ShapeError, UnsupportedError
from gemmport.core.precision import default_for, rounded_to
from gemmport.dask.chunking import Described, Label, check_known, suited
from gemmport.dask.graphs import Contraction, Types, product
from gemmport.execution.adapters import library_of
from gemmport.planning.planner import AUTO

log = logging.getLogger(__name__)


def matmul(
    a: Any,
    b: Any,
    /,
    *,
    dtype: npt.DTypeLike | None = None,
    backend: str | None = None,
    device: str | int | DeviceInfo | None = None,
    kernel: str = AUTO,
    params: Parameters | None = None,
    config: Config = None,
    deterministic: bool = False,
    precision: str | None = None,
    scale_a: Any = None,
    scale_b: Any = None,
    chunks: str | None = None,
    chains: int | None = None,
    resources: Mapping[str, float] | None = None,
) -> da.Array:
    """The product of Dask arrays, by the rules of `gemmport.matmul`. Nothing is computed before Dask is asked to.

    Each tile of the result, a chunk of rows of A by a chunk of columns of B, is summed along k in the order of the chunks, with
    beta = 1, in the type of the sums: halves are rounded once, in the end. The bits depend on the chunks, and on the devices
    that compute; not on the number of workers, nor on which of them fail.

    Args:
        a, b: Dask arrays whose chunks are NumPy's or CuPy's, of which one may be what NumPy makes an array of; of one dimension
            (k), or of two or more (…, m, k) and (…, k, n), whose first dimensions broadcast.
        dtype: the type to compute in and give.
        backend, device: where a worker computes chunks in its host's memory, as of `gemmport.get_backend`: asked on the worker.
            Default: what `WorkerDevice` chose for it, else its GEMMPORT_BACKEND and GEMMPORT_DEVICE, else its best device.
        kernel, params, config: see `gemmport.plan`; files of `config` are read by the workers.
        deterministic, precision: as of `gemmport.gemm`; the context is that in which this is called.
        scale_a, scale_b: as of `gemmport.matmul`; arrays may be Dask's, and are cut as the result is. They multiply each
            product of chunks, in float32, before it is added to the others.
        chunks: "auto" gives both operands the chunks that `gemmport.dask.chunks` proposes; default: theirs. Where these differ
            along k, the operand that has fewer takes the other's.
        chains: how many tasks may add up one tile at the same time; default: 1, and more where tiles are small beside what is
            summed and fewer than 64: as many as make 64 tasks.
        resources: that a worker must have, as {"gemmport": 1}, and that each task takes of it; see docs/scale.md.

    Returns:
        A Dask array of shape (…, m, n), without m or n where a or b is a vector, of the type that `numpy.matmul` gives.

    Raises:
        ShapeError: shapes that do not fit together, or chunks of unknown size.
        DtypeError: types that NumPy does not multiply, or no device computes, such as objects.
        ArrayError: an operand is on a device, or its chunks are neither NumPy's nor CuPy's.
        UnsupportedError: Dask's query planning of arrays is on.
        ParameterError: `chunks`, `chains` or `resources` is not as above.
        What a worker finds, such as a missing device, is raised when the result is computed.
    """
    x, y = _operands(a, b)
    types = _types(x, y, dtype)
    numbers, arrays = _scales(x, y, types, scale_a, scale_b)
    if chunks is not None:
        if chunks != "auto":
            raise ParameterError(f"chunks must be 'auto' or None; got {chunks!r}: use rechunk for others")
        x, y = suited(x, y, {"device": device, "backend": backend, "config": config})
    k: Label = "k"
    of_a: tuple[Label, ...] = (*_of_batch(x.ndim), "m", k) if x.ndim > 1 else (k,)
    of_b: tuple[Label, ...] = (*_of_batch(y.ndim), k, "n") if y.ndim > 1 else (k,)
    found = Contraction(x, of_a, y, of_b, _of_batch(max(x.ndim, y.ndim)), *arrays)
    how: dict[str, Any] = {
        "backend": backend, "device": device, "kernel": kernel, "params": params, "config": config,
    }  # fmt: skip
    how |= {"deterministic": deterministic, "precision": _precision(precision, types), **numbers}
    return _product(found, types, how, "matmul", chains, resources)


def tensordot(
    a: Any,
    b: Any,
    axes: Any = 2,
    *,
    backend: str | None = None,
    device: str | int | DeviceInfo | None = None,
    kernel: str = AUTO,
    params: Parameters | None = None,
    config: Config = None,
    deterministic: bool = False,
    precision: str | None = None,
    chains: int | None = None,
    resources: Mapping[str, float] | None = None,
) -> da.Array:
    """As `numpy.tensordot`, of Dask arrays: a sum over all chunks of the dimensions that `axes` names.

    Args:
        a, b: as of `matmul`, of any number of dimensions.
        axes: how many of the last dimensions of A and of the first of B are summed over; or a pair of lists of dimensions.
        Others as `matmul`.

    Raises:
        ShapeError: axes that the operands do not have, or of unlike sizes. Others as `matmul`.
    """
    x, y = _operands(a, b)
    pairs = summed_pairs(x, y, axes)
    labels_a: list[Label] = [("a", i) for i in range(x.ndim)]
    labels_b: list[Label] = [("b", j) for j in range(y.ndim)]
    for number, (i, j) in enumerate(pairs):
        labels_a[i] = labels_b[j] = number
        if x.shape[i] != y.shape[j]:
            raise ShapeError(
                f"dimension {i} of a and {j} of b must be of one size; got {x.shape[i]} and {y.shape[j]}, of shapes "
                f"{x.shape} and {y.shape}"
            )
    types = _types(Described((0,), x.dtype), Described((0,), y.dtype), None)
    found = Contraction(x, tuple(labels_a), y, tuple(labels_b))
    how: dict[str, Any] = {
        "backend": backend, "device": device, "kernel": kernel, "params": params, "config": config,
    }  # fmt: skip
    how |= {"deterministic": deterministic, "precision": _precision(precision, types)}
    return _product(found, types, how, "tensordot", chains, resources)


def _types(a: Any, b: Any, dtype: npt.DTypeLike | None) -> Types:
    """Of a product of operands; raises what `described_in_pieces` does."""
    _, output, inputs = described_in_pieces(a, b, dtype)
    return Types(inputs, np.result_type(a.dtype, b.dtype) if inputs is None else inputs, output)


def _scales(
    a: da.Array, b: da.Array, types: Types, scale_a: Any, scale_b: Any
) -> tuple[dict[str, Any], tuple[da.Array | None, da.Array | None]]:
    """What of the scales are numbers, by the names of the arguments, and arrays for each row and column of the result.

    Raises:
        DtypeError: these types have no scales. Others as `gemmport.gemm`.
    """
    numbers: dict[str, Any] = {}
    arrays: dict[str, da.Array] = {}
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    lines = {"scale_a": a.shape[-2] if a.ndim > 1 else 1, "scale_b": b.shape[-1] if b.ndim > 1 else 1}
    for name, value in (("scale_a", scale_a), ("scale_b", scale_b)):
        if value is None:
            continue
        if isinstance(value, da.Array):
            check_known(name, value)
            x = value
        else:
            _, left = taken(1.0, value, None) if name == "scale_a" else taken(1.0, None, value)
            if name not in left or left[name].value is not value:
                numbers[name] = value if np.ndim(value) == 0 else np.asarray(value).reshape(())[()]
                continue
            if left[name].on_device:
                raise ArrayError(f"{name} must be on the host beside Dask arrays; got an array on a device: copy it")
            x = da.from_array(np.array(left[name].arrays[0]))
        shape = (*batch, lines[name])
        arrays[name] = da.broadcast_to(fitting(name, x, shape), shape)
    if numbers or arrays:
        check_types(ApiTypes(types.common, types.output), None)
    return numbers, (arrays.get("scale_a"), arrays.get("scale_b"))


def _precision(word: str | None, types: Types) -> str | None:
    """What the workers are told; None where their own configurations decide."""
    dtype = as_dtype(types.common)
    if word is not None:
        return rounded_to(word, dtype)
    within = current()
    return None if within is None else default_for(within, dtype)


def _of_batch(ndim: int) -> tuple[Label, ...]:
    """Labels of the dimensions before a matrix's, counted from the last: those that broadcast have one."""
    return tuple(range(2 - ndim, 0))


# Arguments


def _operands(a: Any, b: Any) -> tuple[da.Array, da.Array]:
    if da.array_expr_enabled():
        raise UnsupportedError(
            "array.query-planning must be off in Dask's configuration; got on: gemmport.dask makes graphs, not expressions"
        )
    return _operand("a", a), _operand("b", b)


def _operand(name: str, x: Any) -> da.Array:
    """What was passed, as a Dask array."""
    if not isinstance(x, da.Array):
        if isinstance(x, DeviceArray) or library_of(x) is not None:
            raise ArrayError(
                f"{name} must be a Dask array, or NumPy's, beside one; got {type(x).__name__}: pass dask.array.from_array of "
                "its elements on the host"
            )
        host = np.asarray(x)
        as_dtype(host.dtype)
        return da.from_array(host)
    check_known(name, x)
    meta = x._meta
    is_plain = isinstance(meta, np.ndarray) and not isinstance(meta, np.ma.MaskedArray | np.matrix)
    if not is_plain and (library_of(meta) is None or not hasattr(meta, "astype")):
        raise ArrayError(
            f"{name} must have chunks of NumPy's or CuPy's arrays; got {type(meta).__module__}.{type(meta).__qualname__}: "
            f"convert them with {name}.map_blocks"
        )
    return x


def _product(
    found: Contraction, types: Types, how: Mapping[str, Any], name: str, chains: int | None,
    resources: Mapping[str, float] | None,
) -> da.Array:  # fmt: skip
    if chains is not None and (isinstance(chains, bool) or not isinstance(chains, int) or chains < 1):
        raise ParameterError(f"chains must be a whole number from 1 on, or None; got {chains!r}")
    if resources is not None:
        if not isinstance(resources, Mapping) or not all(
            isinstance(key, str) and isinstance(value, Real) and value > 0 for key, value in resources.items()
        ):
            raise ParameterError(
                f"resources must map names to numbers above 0; got {resources!r}: write {{'gemmport': 1}}"
            )
        if dask.config.get("optimization.fuse.active", None) is not False:
            raise ParameterError(
                "resources must not be lost, as they are where Dask fuses tasks; got optimization.fuse.active = "
                f"{dask.config.get('optimization.fuse.active', None)}: call "
                "dask.config.set({'optimization.fuse.active': False}) first"
            )
        _tell_of_missing(resources)
    return product(found, types, how, name=name, chains=chains, resources=resources)


def _tell_of_missing(resources: Mapping[str, float]) -> None:
    """Warns where no worker of the cluster in use has them: Dask would wait for one, and say nothing."""
    client = sys.modules.get("distributed.client")
    current = client and client._get_global_client()
    if not current:
        return
    workers = current.scheduler_info(n_workers=-1)["workers"].values()
    if not any(all(own["resources"].get(key, 0) >= value for key, value in resources.items()) for own in workers):
        log.warning(
            "no worker of %s has the resources %s: tasks wait until one comes; start workers with --resources",
            current.scheduler.address, dict(resources),
        )  # fmt: skip
