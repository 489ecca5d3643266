"""The arguments of a product: sorted, checked against each other, and what they make of the result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from gemmport.backends.array import DeviceArray, as_numpy, check_plain
from gemmport.backends.base import Backend
from gemmport.core.dtypes import FLOAT8S, FLOAT16, FLOAT32, INPUTS, as_dtype
from gemmport.core.errors import ArrayError, DtypeError, ShapeError
from gemmport.core.layout import overlaps_itself
from gemmport.core.problem import Op, Scalar, check_size, transposes
from gemmport.execution.adapters import Library, home_of, library_of
from gemmport.execution.sharded import ShardedArray
from gemmport.outofcore.operands import Sliced, is_sliced

HostArray: TypeAlias = npt.NDArray[Any]


@dataclass(frozen=True)
class Given:
    """An argument as it came.

    Attributes:
        value: what was passed.
        library: that it, or its first element, came from; None for NumPy and for ours.
        arrays: the same as our arrays on the device, from `Placement.borrow` on, or as one host array; several for a list.
            What is read in slices is a `Sliced`, which only streamed products take; what is in shards is a `ShardedArray`.
    """

    name: str
    value: Any
    library: Library | None
    on_device: bool
    arrays: list[DeviceArray | HostArray] = field(default_factory=list)

    @classmethod
    def of(cls, name: str, value: Any) -> Given:
        """Sorts an argument, and brings what is in the host's memory to NumPy.

        Raises:
            ShapeError, ArrayError: it is not an array.
        """
        if isinstance(value, list | tuple) and is_on_device(value):
            if not all(_is_on_device(x) for x in value):
                raise ArrayError(f"{name} is a list of arrays, of which only some are on a device")
            return cls(name, list(value), library_of(value[0]), on_device=True)
        if isinstance(value, ShardedArray):
            return cls(name, value, None, on_device=True)
        library = library_of(value)
        if is_on_device(value):
            return cls(name, value, library, on_device=True)
        if library is not None:
            return cls(name, value, library, on_device=False, arrays=[library.to_host(value)])
        if isinstance(value, Sliced) or is_sliced(value):
            sliced = value if isinstance(value, Sliced) else Sliced(value)
            return cls(name, value, None, on_device=False, arrays=[cast("HostArray", sliced)])
        check_plain(name, value)
        return cls(name, value, None, on_device=False, arrays=[as_numpy(name, value)])

    @property
    def values(self) -> list[Any]:
        """What was passed, as the list of device arrays that it is."""
        return self.value if isinstance(self.value, list) else [self.value]

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the operand; a list is a batch.

        Raises:
            ShapeError: matrices of a list differ in shape.
        """
        shapes = {tuple(array.shape) for array in self.arrays}
        if len(shapes) > 1:
            told = " and ".join(map(str, sorted(shapes)))
            raise ShapeError(f"{self.name} is a list of matrices of shapes {told}: a batch has matrices of one shape")
        return (*([len(self.arrays)] if self.on_device and isinstance(self.value, list) else []), *shapes.pop())

    @property
    def dtypes(self) -> list[np.dtype[Any]]:
        """Of its arrays."""
        return [array.dtype for array in self.arrays]


def is_on_device(value: Any) -> bool:
    """Whether an argument is an array on a device, or a list in which one is."""
    if isinstance(value, list | tuple):
        return any(type(x) is not list and _is_on_device(x) for x in value)  # not its rows, one by one
    return _is_on_device(value)


def _is_on_device(value: Any) -> bool:
    if isinstance(value, DeviceArray | ShardedArray):
        return True
    library = library_of(value)
    return library is not None and not library.on_host(value)


@dataclass(frozen=True)
class Types:
    """Of A and B, and of the result."""

    inputs: np.dtype[Any]
    output: np.dtype[Any]


def types_of(given: Mapping[str, Given], dtype: npt.DTypeLike | None) -> Types:
    """The types that a product is computed in, by NumPy's rules of promotion.

    Raises:
        DtypeError: there is no common type, or gemmport does not compute in it.
    """
    pair = [*given["a"].dtypes, *given["b"].dtypes]
    of_c = given["c"].dtypes if "c" in given else []
    if dtype is not None:
        output = as_dtype(dtype).numpy
    elif all(map(is_float8, pair)):
        output = common_type(of_c or [FLOAT32.numpy])
    else:
        output = common_type([*pair, *of_c])
    return Types(common_type(pair), output)


def common_type(dtypes: Sequence[np.dtype[Any]]) -> np.dtype[Any]:
    """The type that holds the numbers of several: NumPy's. A float8, which NumPy promotes to no other or promotes others to, is
    held by each larger floating-point type: beside others that is theirs, or at least float16.

    Raises:
        DtypeError: there is none, or gemmport does not compute in it.
    """
    if any(map(is_float8, dtypes)) and len(set(dtypes)) > 1:
        others = [dtype for dtype in dtypes if not is_float8(dtype)]
        widest = common_type(others) if others else FLOAT16.numpy
        return widest if as_dtype(widest).precision else common_type([widest, FLOAT16.numpy])
    try:
        return as_dtype(np.result_type(*dtypes)).numpy
    except TypeError as error:
        if isinstance(error, DtypeError):
            raise
        told = " and ".join(dict.fromkeys(map(str, dtypes)))
        raise DtypeError(f"{told} have no common type: convert one to the other's") from None


def is_float8(dtype: np.dtype[Any]) -> bool:
    """Whether a type is one of those that A and B alone have."""
    return INPUTS.get(dtype.name) in FLOAT8S


def result_shape(given: Mapping[str, Given], op_a: Op, op_b: Op) -> tuple[tuple[int, ...], int]:
    """(m, n) or (batch, m, n), and k.

    Raises:
        ShapeError: the operands do not fit together.
    """
    m, k = _shape_after(given["a"], op_a)
    k_of_b, n = _shape_after(given["b"], op_b)
    if k != k_of_b:
        raise ShapeError(
            f"op(A) is {m} × {k} and op(B) is {k_of_b} × {n}: the inner sizes {k} and {k_of_b} must be equal"
        )
    batches = [x.shape[0] for x in (given["a"], given["b"]) if len(x.shape) == 3]
    if len(set(batches)) > 1:
        raise ShapeError(
            f"a has a batch of {batches[0]} and b one of {batches[1]}: they must be equal, or one a single matrix"
        )
    for size_name, size in zip(("m", "n", "k", "batch"), (m, n, k, *batches[:1]), strict=False):
        check_size(size_name, size)  # before anything is copied
    shape = (*batches[:1], m, n)
    for name in ("c", "out"):
        if name in given and given[name].shape != shape:
            raise ShapeError(f"{name} has shape {given[name].shape}; the product has {shape}")
    return shape, k


def _shape_after(x: Given, op: Op) -> tuple[int, int]:
    if len(x.shape) not in (2, 3):
        raise ShapeError(f"{x.name} has shape {x.shape}: gemm takes matrices, or a batch of them with the batch first")
    return (x.shape[-1], x.shape[-2]) if transposes(op) else (x.shape[-2], x.shape[-1])


def check_library_writes(out: Given) -> None:
    """Raises ArrayError where `out` is of a library whose arrays never change."""
    shards = out.value.shards if isinstance(out.value, ShardedArray) else ()
    for library in (out.library, *map(library_of, shards)):
        if library is not None and not library.writable:
            raise ArrayError(f"out is a {library.name} array, which never changes: take the result that is returned")


def check_out(out: Given, shape: tuple[int, ...], output: np.dtype[Any]) -> None:
    """Raises ArrayError or DtypeError where a result cannot be written to `out`, before any work."""
    check_library_writes(out)
    kind = out.dtypes[0]
    if kind != output and not np.can_cast(output, kind, "same_kind"):
        raise DtypeError(f"out is {kind}, to which {output} is not cast")
    if out.on_device:
        return
    host = cast("HostArray", out.arrays[0])
    if isinstance(host, Sliced):
        return
    if not host.flags.writeable:
        raise ArrayError(f"out of shape {shape} is read-only: use another array")
    if (
        out.library is None and host.size and not np.may_share_memory(host, np.asarray(out.value))
    ):  # a table of several types, say
        raise ArrayError(
            f"out must be an array that NumPy writes in place; got a {type(out.value).__name__}, which it copies: use another"
        )
    if overlaps_itself(host.shape, host.strides):
        raise ArrayError(f"out of shape {shape} and byte strides {host.strides} overlaps itself: use another array")


def check_present(a: Any, b: Any, c: Any = None, out: Any = None, beta: Scalar = 0.0) -> None:
    """Raises ArrayError where an operand is missing, or `out` is not an array."""
    for name, x in (("a", a), ("b", b)):
        if x is None:
            raise ArrayError(f"{name} is None: it must be an array")
    if beta != 0 and c is None:
        raise ArrayError(f"beta = {beta} needs c, the matrix it scales")
    if out is not None and isinstance(out, list | tuple):
        raise ArrayError(f"out must be an array, in which the result is written; got a {type(out).__name__}")


def backend_of_operands(on_device: Sequence[Given]) -> Backend:
    """The backend of the operands: that of our own arrays, else that which reaches another library's."""
    for x in on_device:
        if isinstance(x.values[0], DeviceArray):
            return x.values[0].backend
    first = on_device[0]
    return home_of(cast("Library", first.library), first.values[0])


def queue_of_operands(on_device: Sequence[Given]) -> Any:
    """The queue on which operands are: another library's current one, else that on which ours were written last."""
    for x in on_device:
        if x.library is not None and (queue := x.library.queue(x.values[0])) is not None:
            return queue
    return next((x.values[0].queue for x in on_device if isinstance(x.values[0], DeviceArray)), None)
