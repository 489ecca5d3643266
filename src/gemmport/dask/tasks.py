"""What workers run: products of chunks, added up along k.

A task takes some panels of one tile's sum: chunks of A beside chunks of B. It computes C += A · B for each in turn (beta = 1),
starting from what the task before it has made, so that a tile is held once, not once per panel. Chunks are NumPy's, or any
library's whose arrays `gemm` takes and that have NumPy's methods `transpose`, `reshape` and `astype`.

Nothing here changes an argument: Dask may run a task again with the same ones.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gemmport.api.arguments import is_on_device
from gemmport.api.gemm import gemm
from gemmport.api.precision import PrecisionContext
from gemmport.backends.array import DeviceArray
from gemmport.execution.selection import get_backend

CHOSEN: dict[str, dict[str, Any]] = {}
"""By the address of a Dask worker in this process, what `WorkerDevice` chose for it: `backend` and `device`."""


@dataclass(frozen=True)
class Side:
    """How a chunk becomes matrices.

    Attributes:
        order: its dimensions: those of the batch, then the rows', then the columns'.
        batch: for each dimension of the batch whether the chunk has it.
        rows: how many dimensions are the rows'.
    """

    order: tuple[int, ...]
    batch: tuple[bool, ...]
    rows: int

    def matrices(self, chunk: Any) -> Any:
        """A view where strides allow it: (…, rows, columns), with 1 for each dimension of the batch that it lacks."""
        moved = chunk.transpose(self.order)
        count = sum(self.batch)
        own = iter(moved.shape[:count])
        batch = [next(own) if has else 1 for has in self.batch]
        rest = moved.shape[count:]
        return moved.reshape((*batch, math.prod(rest[: self.rows]), math.prod(rest[self.rows :])))


@dataclass(frozen=True)
class Step:
    """What the tasks of a product have in common.

    Attributes:
        inputs: the type that chunks are converted to first; None where they are read as they are.
        sums: the type that unfinished tiles are held in.
        output: of finished ones.
        how: arguments of `gemm`: backend, device, kernel, params, config, deterministic.
    """

    left: Side
    right: Side
    inputs: np.dtype[Any] | None
    sums: np.dtype[Any]
    output: np.dtype[Any]
    how: Mapping[str, Any] = field(default_factory=dict)


def accumulate(
    lefts: Sequence[Any], rights: Sequence[Any], total: Any, step: Step, shape: Sequence[int] | None = None,
    row_scales: Any = None, column_scales: Any = None,
) -> Any:  # fmt: skip
    """total + Σ left · right, in order; rows and columns of the products have their scales, (…, m) and (…, n).

    Args:
        lefts, rights: chunks of A and B, in pairs.
        total: (…, m, n), what earlier tasks have added up; None for nothing. It is read, never changed.
        shape: of the finished tile; None where it is not finished yet.
    """
    # Chunks on a device, such as CuPy's, say themselves where they are multiplied.
    on_device = is_on_device([lefts[0], rights[0]])
    how = {**step.how, **({} if on_device else _place(step.how))}
    resident = len(lefts) > 1 and not on_device and isinstance(lefts[0], np.ndarray) and _keeps_on_device(how)
    is_own = False
    for left, right in zip(lefts, rights, strict=True):
        x, y = (
            side.matrices(chunk if step.inputs is None else _converted(chunk, step.inputs))
            for side, chunk in ((step.left, left), (step.right, right))
        )
        if resident and not is_own:
            backend = get_backend(how["backend"], how["device"])
            total, x = None if total is None else backend.asarray(total), backend.asarray(x)
        scales = {name: s for name, s in (("scale_a", row_scales), ("scale_b", column_scales)) if s is not None}
        total = _added(x, y, total, step.sums, {**how, **scales}, in_place=is_own)
        is_own = True
    if isinstance(total, DeviceArray) and not isinstance(lefts[0], DeviceArray):
        total = total.get()
    return total if shape is None else _finished(total, step, shape)


def add(x: Any, y: Any, step: Step, shape: Sequence[int] | None = None) -> Any:
    """The sum of two parts of a tile; `shape` as of `accumulate`."""
    total = x + y
    return total if shape is None else _finished(total, step, shape)


def _finished(total: Any, step: Step, shape: Sequence[int]) -> Any:
    return _converted(total, step.output).reshape(tuple(shape))[()]  # of a tile without dimensions, its number


def _converted(chunk: Any, dtype: np.dtype[Any]) -> Any:
    with np.errstate(all="ignore"):
        return chunk if chunk.dtype == dtype else chunk.astype(dtype)


def _added(a: Any, b: Any, total: Any, sums: np.dtype[Any], how: Mapping[str, Any], *, in_place: bool) -> Any:
    """total + A · B of stacks of matrices (…, m, k) and (…, k, n), of which those of one matrix serve all.

    Args:
        in_place: whether the total may be written to.
    """
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    m, n = a.shape[-2], b.shape[-1]
    scales = {name: how[name] for name in ("scale_a", "scale_b") if np.ndim(how.get(name, 0))}
    is_tall = math.prod(b.shape[:-2]) == 1 and a.shape[:-2] == batch and not (scales and math.prod(batch) > 1)
    if is_tall:  # the rows of all matrices of A by one B: a tall product
        left, right = a.reshape((math.prod(batch) * m, a.shape[-1])), _one(b)
    else:
        left = _one(a) if math.prod(a.shape[:-2]) == 1 else _stack(a, batch)
        right = _one(b) if math.prod(b.shape[:-2]) == 1 else _stack(b, batch)
    lines = (-1,) if left.ndim == right.ndim == 2 else (math.prod(batch), -1)
    more: dict[str, Any] = {name: x.reshape(lines) for name, x in scales.items()}
    if total is not None:
        shape = (left.shape[0], n) if left.ndim == right.ndim == 2 else (math.prod(batch), m, n)
        flat = total.reshape(shape)
        more |= {"c": flat, "beta": 1.0, "out": flat if in_place else None}
    with PrecisionContext(None):  # that of the call which made the graph is in `how`
        return gemm(left, right, dtype=sums, **{**how, **more}).reshape((*batch, m, n))


def _one(x: Any) -> Any:
    return x.reshape(x.shape[-2:])


def _stack(x: Any, batch: tuple[int, ...]) -> Any:
    """A stack with all its matrices, and one dimension for the batch."""
    whole = x if x.shape[:-2] == batch else np.broadcast_to(x, (*batch, *x.shape[-2:]))
    return whole.reshape((math.prod(batch), *x.shape[-2:]))


# Which device


def _place(how: Mapping[str, Any]) -> Mapping[str, Any]:
    """What `WorkerDevice` chose for the worker that runs this, where the product does not say itself where it is computed."""
    if not CHOSEN or how["backend"] is not None or how["device"] is not None:
        return {}
    try:
        worker = sys.modules["distributed"].get_worker()
    except ValueError:  # another scheduler of Dask's runs this
        return {}
    return CHOSEN.get(worker.address, {})


def _keeps_on_device(how: Mapping[str, Any]) -> bool:
    """Whether a device has a memory of its own: a tile stays there until its last panel."""
    return get_backend(how["backend"], how["device"]).borrow(np.zeros(1)) is None
