"""The public functions `gemm`, `plan` and `run`. What comes in decides what comes out."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from gemmport import kernels
from gemmport.backends.array import DeviceArray, as_numpy, check_unmasked
from gemmport.backends.base import Backend
from gemmport.backends.objects import Event, Memory
from gemmport.contracts.kernel import KernelVariant, Parameters
from gemmport.core.device import DeviceInfo
from gemmport.core.dtypes import as_dtype
from gemmport.core.errors import ArrayError, ConfigError, DtypeError, ParameterError, ShapeError
from gemmport.core.layout import element_strides, matrices, overlaps_itself, readable_in_place, writable_in_place
from gemmport.core.plan import ParameterValue, Plan
from gemmport.core.problem import (
    GemmProblem,
    Layout,
    Op,
    Operand,
    Scalar,
    as_number,
    as_op,
    check_size,
    scalar_key,
    transposed,
    transposes,
)
from gemmport.execution import repeated
from gemmport.execution.adapters import Library, adopted, home_of, library_of
from gemmport.execution.copies import copy_strided, dense_copy, stacked
from gemmport.execution.executor import BoundPlan, bind, bind_or_choose
from gemmport.execution.selection import get_backend
from gemmport.planning.lookup import Configuration, load_configuration
from gemmport.planning.planner import AUTO, make_plan

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
    without: Collection[str] = (),
) -> Plan:
    """How a problem is computed on a device: the kernel, its parameters and where they came from, every launch.

    Args:
        problem: from `GemmProblem.create`.
        device: from `devices()`, or built by hand.
        kernel: a name from `gemmport kernels`, or "auto".
        params: parameters of the kernel; they go before any configuration.
        config: files that go before the user's and the shipped ones; each is read once per process.
        without: names of kernels that are left out.

    Raises:
        ConfigError, UnknownNameError, ParameterError, UnsupportedError, DtypeError: see `gemmport.planning.planner.make_plan`.
    """
    asked = _asked(params)
    folders = os.environ.get("GEMMPORT_CONFIG_PATH", "")
    left_out = frozenset(without)
    return _cached_plan(problem, device, kernel, asked, left_out, _config_files(config), folders, kernels.variants())


@lru_cache(maxsize=1024)
def _cached_plan(
    problem: GemmProblem,
    device: DeviceInfo,
    kernel: str,
    params: tuple[tuple[str, ParameterValue], ...],
    without: frozenset[str],
    files: tuple[str, ...],
    _folders: str,
    _family: tuple[KernelVariant, ...],  # part of the key: a variant may be registered over another
) -> Plan:
    configuration = _configuration(files, _folders)
    return make_plan(problem, device, configuration, kernel=kernel, params=dict(params), without=without)


@lru_cache(maxsize=16)
def _configuration(files: tuple[str, ...], _folders: str) -> Configuration:
    """The configuration of these files; `_folders`, which it reads from the environment, is here to tell it apart."""
    return load_configuration(files)


def _asked(params: Parameters | None) -> tuple[tuple[str, ParameterValue], ...]:
    """Parameters in a fixed order, as Python's own numbers and words."""
    if not isinstance(params, Mapping | None):
        raise ParameterError(f"params = {params!r} is no mapping of names to values, such as {{'TSM': 64}}")
    plain = {name: value.item() if isinstance(value, np.generic) else value for name, value in (params or {}).items()}
    for name, value in plain.items():
        if not isinstance(name, str) or not isinstance(value, int | str) or isinstance(value, bool):
            raise ParameterError(f"params has {name!r}: {value!r}; names are text, and values whole numbers or words")
    return tuple(sorted(plain.items()))


def _config_files(config: Config) -> tuple[str, ...]:
    files = () if config is None else (config,) if isinstance(config, str | Path) else config
    if not isinstance(files, Sequence) or not all(isinstance(file, str | Path) for file in files):
        raise ConfigError(f"config = {config!r} is neither the path of a file nor a list of them")
    return tuple(str(path) for path in files)


def gemm(
    a: Any,
    b: Any,
    *,
    alpha: complex = 1.0,
    beta: complex = 0.0,
    c: Any = None,
    trans_a: Op | bool = "N",
    trans_b: Op | bool = "N",
    out: Any = None,
    dtype: npt.DTypeLike | None = None,
    accumulator: npt.DTypeLike | None = None,
    queue: Any = None,
    wait_for: Iterable[Any] = (),
    backend: str | None = None,
    device: str | DeviceInfo | None = None,
    kernel: str = AUTO,
    params: Parameters | None = None,
    config: Config = None,
) -> Any:
    """alpha · op(A) · op(B) + beta · C, as BLAS defines it.

    Operands may be NumPy arrays and what NumPy makes arrays of, `DeviceArray`s, and device arrays of PyTorch, CuPy, JAX,
    PyOpenCL and any library with DLPack or `__cuda_array_interface__`, of any strides. What is on a device stays there, and the
    host does not wait for it: the work is enqueued when this returns. docs/interchange.md says which stream it is enqueued on.

    Thread-safe, with one queue or several; threads that write to one array, or one of which reads what another writes, decide
    themselves who goes first.

    Args:
        a, b: matrices, or batches of matrices with the batch as first dimension; a single matrix serves a whole batch. A list
            of matrices of one shape is a batch. Different types are computed in their common type, as NumPy's.
        alpha, beta: with beta = 0, C is not read; with alpha = 0, A and B are not.
        c: of the result's shape; read, never changed (unless it is also `out`). Needed where beta is not 0.
        trans_a, trans_b: "N", "T", "C" (conjugate transpose) or "R" (conjugate); or True for "T".
        out: where to write: any view whose elements do not overlap; may be `c`. It must not overlap A or B on a device. The
            result is cast to its type within a kind (NumPy's "same_kind").
        dtype: of the result; default that of `numpy.result_type` of the operands. It may be wider than that of A and B.
        accumulator: type of the sums, e.g. "float16" for half arithmetic; default: at least float32.
        queue: the queue or stream to work on, in the runtime's type; default: the current one of the library whose arrays are
            given, else that on which a device array was written last, else the backend's own.
        wait_for: events of gemmport or of the runtime that the work waits for.
        backend, device: see `get_backend`; not with device arrays, which say themselves.
        kernel, params, config: see `plan`.

    Returns:
        `out`, or a new array of the kind of the first operand on a device: a PyTorch tensor, a CuPy, JAX or PyOpenCL array,
        else a `DeviceArray`. Where all are on the host: a NumPy array, or one of PyTorch or JAX where an operand is.

    Raises:
        ShapeError, DtypeError, ArrayError: operands that do not fit together, or have masked elements.
        ConfigError, UnknownNameError, ParameterError, UnsupportedError: see `plan`.
        BackendUnavailableError, DeviceNotFoundError, AmbiguousDeviceError: see `get_backend`.
        CompileError, LaunchError, DeviceMemoryError: the device refused.
        WorkGroupError: a kernel, compiled with parameters that were asked for, runs in smaller groups only. Where they were not
            asked for, others are taken, or another kernel.
    """
    alpha, beta = as_number("alpha", alpha), as_number("beta", beta)
    wanted = None
    if wait_for == () and params is None and config is None and (queue is None or type(a) is DeviceArray):
        choices = (
            scalar_key(alpha),
            scalar_key(beta),
            type(trans_a),
            trans_a,
            type(trans_b),
            trans_b,
            dtype,
            accumulator,
            kernel,
        )
        wanted = repeated.key(a, b, c, out, choices, backend, device)
        if (again := repeated.product(wanted, a, b, c, out, queue)) is not None:
            return again
    op_a, op_b = as_op(trans_a), as_op(trans_b)
    _check_present(a, b, c, out, beta)
    given = {name: _Given.of(name, x) for name, x in (("a", a), ("b", b), ("c", c), ("out", out)) if x is not None}
    on_device = [x for x in given.values() if x.on_device]
    if on_device and (backend is not None or device is not None):
        raise ArrayError("backend= and device= are not for device arrays: they are where they are")
    if on_device and out is not None and not given["out"].on_device:
        raise ArrayError("out must be a device array where an operand is one")
    place = _Placement(_backend_of(on_device), awaited=False) if on_device else None
    if place is not None:
        place.borrow(on_device)
    types = _types(given, dtype)
    shape, k = _result_shape(given, op_a, op_b)
    if out is not None:
        _check_out(given["out"], shape, types.output)
    if place is None:
        place = _Placement(get_backend(backend, device), awaited=True)
    target = place.backend
    where = place.queue = target.as_queue(queue if queue is not None else _queue_of(on_device))
    if not isinstance(wait_for, Iterable):
        raise ArrayError(f"wait_for = {wait_for!r} is no list of events")
    target.wait([x if isinstance(x, Event) else Event(x) for x in wait_for], queue=where)
    placed = {name: place.of(x) for name, x in given.items() if name in ("a", "b") or (name == "c" and beta != 0)}
    first = next((x for x in on_device if x.name != "out"), None)
    product = _Product(placed["a"], placed["b"], placed.get("c"), alpha, beta, op_a, op_b, types, shape, k)
    choice = _Choice(kernel, params, config, accumulator)
    if not on_device:
        return _on_host(_host_product(place, product, given, choice, wanted), given, out)
    made = None
    if out is not None:
        result = place.of(given["out"])
    elif first is not None and first.library is not None:
        made = first.library.empty(first.values[0], shape, types.output)
        result = target.empty(shape, types.output) if made is None else adopted(first.library, made, target)
    else:
        result = target.empty(shape, types.output)
    d = _gemm_on(place, product, result, choice)
    place.keep(wanted, placed.values(), d)
    for array in (*place.borrowed, *([d] if made is not None else [])):
        target.settle(array.memory)
    if out is not None:
        if given["out"].library is not None:
            given["out"].library.written(out, target, where)
        return out
    if made is not None and first is not None and first.library is not None:
        first.library.written(made, target, where)
        return made
    return first.library.result(d) if first is not None and first.library is not None else d


def _check_present(a: Any, b: Any, c: Any, out: Any, beta: Scalar) -> None:
    """Raises ArrayError where an operand is missing, or `out` is no array."""
    for name, x in (("a", a), ("b", b)):
        if x is None:
            raise ArrayError(f"{name} is None: it must be an array")
    if beta != 0 and c is None:
        raise ArrayError(f"beta = {beta} needs c, the matrix it scales")
    if out is not None and isinstance(out, list | tuple):
        raise ArrayError("out is a list: it must be an array, in which the result is written")


def run(plan: Plan, a: Any, b: Any, c: Any = None) -> HostArray:
    """Runs a plan on NumPy arrays, laid out in memory as the plan's problem says.

    Args:
        a, b, c: of the shapes that the problem stores, with the batch as first dimension where it is not 1.

    Returns:
        D, of shape (m, n) or (batch, m, n).

    Raises:
        ShapeError: an operand of another shape. ArrayError: C is missing where beta is not 0.
        DtypeError: an operand of another kind, which would lose a part: of complex numbers, or behind the point.
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
        check_unmasked(operand, value)
        array = np.asarray(value)
        if array.shape not in {view.shape, *([view.shape[1:]] if problem.batch == 1 else [])}:
            raise ShapeError(f"{operand} has shape {array.shape}; the plan is for {view.shape}")
        if not np.can_cast(array.dtype, view.dtype, "same_kind"):
            raise DtypeError(f"{operand} must be of the plan's kind, {view.dtype}; got {array.dtype}: convert it first")
        if view.size:
            with np.errstate(all="ignore"):
                view[...] = array
        memory[operand] = backend.allocate(flat.nbytes)
        backend.upload(memory[operand], flat)
    result = np.zeros(max(problem.span("d"), 1), problem.output.numpy)
    memory["d"] = backend.allocate(result.nbytes)
    bind(plan, backend, memory).enqueue()
    backend.download(memory["d"], result)
    d = matrices(result, problem.d, problem.m, problem.n, problem.batch).copy()
    return d[0] if problem.batch == 1 else d


@dataclass(frozen=True)
class _Given:
    """An argument as it came.

    Attributes:
        value: what was passed.
        library: that it, or its first element, came from; None for NumPy and for ours.
        arrays: the same as our arrays on the device, from `_Placement.borrow` on, or as one host array; several for a list.
    """

    name: str
    value: Any
    library: Library | None
    on_device: bool
    arrays: list[DeviceArray | HostArray] = field(default_factory=list)

    @classmethod
    def of(cls, name: str, value: Any) -> _Given:
        """Sorts an argument, and brings what is in the host's memory to NumPy.

        Raises:
            ShapeError, ArrayError: it is no array.
        """
        if isinstance(value, list | tuple) and any(_is_on_device(x) for x in value):
            if not all(_is_on_device(x) for x in value):
                raise ArrayError(f"{name} is a list of arrays, of which only some are on a device")
            return cls(name, list(value), library_of(value[0]), on_device=True)
        library = library_of(value)
        if _is_on_device(value):
            return cls(name, value, library, on_device=True)
        if library is not None:
            return cls(name, value, library, on_device=False, arrays=[library.to_host(value)])
        check_unmasked(name, value)
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


def _is_on_device(value: Any) -> bool:
    if isinstance(value, DeviceArray):
        return True
    library = library_of(value)
    return library is not None and not library.on_host(value)


@dataclass(frozen=True)
class _Types:
    """Of A and B, and of the result."""

    inputs: np.dtype[Any]
    output: np.dtype[Any]


def _types(given: Mapping[str, _Given], dtype: npt.DTypeLike | None) -> _Types:
    """The types that a product is computed in, by NumPy's rules of promotion.

    Raises:
        DtypeError: there is no common type, or gemmport does not compute in it.
    """
    pair = [*given["a"].dtypes, *given["b"].dtypes]
    all_of_them = [*pair, *given["c"].dtypes] if "c" in given else pair
    output = _common(all_of_them) if dtype is None else as_dtype(dtype).numpy
    return _Types(_common(pair), output)


def _common(dtypes: Sequence[np.dtype[Any]]) -> np.dtype[Any]:
    try:
        return as_dtype(np.result_type(*dtypes)).numpy
    except TypeError as error:
        if isinstance(error, DtypeError):
            raise
        told = " and ".join(dict.fromkeys(map(str, dtypes)))
        raise DtypeError(f"{told} have no common type: convert one to the other's") from None


def _result_shape(given: Mapping[str, _Given], op_a: Op, op_b: Op) -> tuple[tuple[int, ...], int]:
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


def _shape_after(x: _Given, op: Op) -> tuple[int, int]:
    if len(x.shape) not in (2, 3):
        raise ShapeError(f"{x.name} has shape {x.shape}: gemm takes matrices, or a batch of them with the batch first")
    return (x.shape[-1], x.shape[-2]) if transposes(op) else (x.shape[-2], x.shape[-1])


def _check_out(out: _Given, shape: tuple[int, ...], output: np.dtype[Any]) -> None:
    """Raises ArrayError or DtypeError where a result cannot be written to `out`, before any work."""
    if out.library is not None and not out.library.writable:
        raise ArrayError(f"out is a {out.library.name} array, which never changes: take the result that is returned")
    kind = out.dtypes[0]
    if kind != output and not np.can_cast(output, kind, "same_kind"):
        raise DtypeError(f"out is {kind}, to which {output} is not cast")
    if out.on_device:
        return
    host = cast("HostArray", out.arrays[0])
    if not host.flags.writeable:
        raise ArrayError(f"out of shape {shape} is read-only: use another array")
    if overlaps_itself(host.shape, host.strides):
        raise ArrayError(f"out of shape {shape} and byte strides {host.strides} overlaps itself: use another array")


def _backend_of(on_device: Sequence[_Given]) -> Backend:
    """The backend of the operands: that of our own arrays, else that which reaches another library's."""
    for x in on_device:
        if isinstance(x.values[0], DeviceArray):
            return x.values[0].backend
    first = on_device[0]
    return home_of(cast("Library", first.library), first.values[0])


def _queue_of(on_device: Sequence[_Given]) -> Any:
    """The queue on which operands are: another library's current one, else that on which ours were written last."""
    for x in on_device:
        if x.library is not None and (queue := x.library.queue(x.values[0])) is not None:
            return queue
    return next((x.values[0].queue for x in on_device if isinstance(x.values[0], DeviceArray)), None)


@dataclass
class _Placement:
    """Where and on which queue a product is computed, and what was borrowed for it: arrays of other libraries on the device,
    and arrays in the host's memory, used in place.

    Attributes:
        awaited: whether the call waits for the product. Only then are arrays in the host's memory used in place: after the call
            they are the caller's again.
        bound, turned: what computed it, and whether as Dᵀ = op(B)ᵀ · op(A)ᵀ.
        as_given: whether it read the operands, and wrote the result, where they lie.
    """

    backend: Backend
    awaited: bool
    queue: Any = None
    borrowed: list[DeviceArray] = field(default_factory=list)
    in_place: list[DeviceArray] = field(default_factory=list)
    bound: BoundPlan | None = None
    turned: bool = False
    as_given: bool = False

    def borrow(self, on_device: Iterable[_Given]) -> None:
        """Takes arguments on a device as arrays of ours; one object is one array, wherever it is passed.

        Raises:
            ArrayError: one is not on this device.
        """
        known: dict[int, DeviceArray] = {}
        for given in on_device:
            for value in given.values:
                library = library_of(value)
                if id(value) not in known and library is None:
                    known[id(value)] = self.backend.asarray(value)
                elif id(value) not in known and library is not None:
                    known[id(value)] = adopted(library, value, self.backend)
                    self.borrowed.append(known[id(value)])
                given.arrays.append(known[id(value)])

    def borrow_host(self, host: HostArray) -> DeviceArray | None:
        """A host array as one of the device, in place; None where it must be copied."""
        strides = element_strides(host)
        memory = self.backend.borrow(host) if strides and self.awaited else None
        if strides is None or memory is None:
            return None
        self.in_place.append(DeviceArray(self.backend, memory, host.shape, host.dtype, strides, 0))
        return self.in_place[-1]

    def uses(self, *arrays: HostArray) -> bool:
        """Whether all of these are used in place."""
        lent = {id(array.memory.keeper) for array in self.in_place}
        return all(id(array) in lent for array in arrays)

    def keep(self, wanted: Hashable, operands: Iterable[Any], result: DeviceArray) -> None:
        """Keeps a product of device arrays that was computed as given, for others of its key."""
        if wanted is not None and self.bound is not None and self.as_given:
            given = list(operands)
            repeated.keep_of_device_arrays(wanted, self.bound, turned=self.turned, operands=given, result=result)

    def of(self, given: _Given) -> DeviceArray | HostArray:
        """An argument as one array: ours on the device, which for a list is a copy, or the host's."""
        if given.on_device and isinstance(given.value, list):
            arrays = cast("list[DeviceArray]", given.arrays)
            return stacked(arrays, _common(given.dtypes), queue=self.queue)
        return given.arrays[0]


@dataclass(frozen=True)
class _Product:
    """What is computed of what; C is None where it is not read."""

    a: DeviceArray | HostArray
    b: DeviceArray | HostArray
    c: DeviceArray | HostArray | None
    alpha: complex
    beta: complex
    op_a: Op
    op_b: Op
    types: _Types
    shape: tuple[int, ...]
    k: int


@dataclass(frozen=True)
class _Choice:
    """How it is computed, as the caller asked."""

    kernel: str
    params: Parameters | None
    config: Config
    accumulator: npt.DTypeLike | None


def _host_product(
    place: _Placement, product: _Product, given: Mapping[str, _Given], choice: _Choice, wanted: Hashable
) -> HostArray:
    """The product of host arrays, for which the host has waited: in `out`, where that is written in place, else in a new array.

    Args:
        wanted: the key under which it is kept to be repeated, if it can be; None for none.
    """
    out, c = cast("HostArray | None", given["out"].arrays[0] if "out" in given else None), product.c
    # As an update in place: each element of C is read by who writes it.
    update = isinstance(c, np.ndarray) and out is not None and _is_same_host(c, out)
    others = [x for x in (product.a, product.b, None if update else c) if isinstance(x, np.ndarray)]
    result = out if out is not None and _takes(out, product.types.output, others) else None
    if result is None:
        place.backend.check_allocation(math.prod(product.shape) * product.types.output.itemsize)
        result, update = np.empty(product.shape, product.types.output), False
    lent = place.borrow_host(result)
    if lent is None:
        return _gemm_on(place, product, None, choice).get()
    if update:
        product = replace(product, c=lent)
    try:
        _gemm_on(place, product, lent, choice)
    finally:
        place.backend.give_back(lent.memory, queue=place.queue)
    operands = (given["a"].value, given["b"].value)
    if wanted is not None and place.bound is not None and place.uses(*operands) and (out is None or out is result):
        repeated.keep_of_host_arrays(wanted, place.bound, turned=place.turned, result=result)
    return result


def _takes(out: HostArray, output: np.dtype[Any], others: Sequence[HostArray]) -> bool:
    """Whether a result is written to a host array as it lies: the operands must keep their values until they are read."""
    strides = element_strides(out)
    return (
        out.dtype == output
        and strides is not None
        and writable_in_place(out.shape, strides) is not None
        and not any(np.may_share_memory(out, x) for x in others)
    )


def _is_same_host(x: HostArray, y: HostArray) -> bool:
    """Whether two host arrays are one, whatever objects stand for it."""
    starts = (x.__array_interface__["data"][0], y.__array_interface__["data"][0])
    return starts[0] == starts[1] and (x.dtype, x.shape, x.strides) == (y.dtype, y.shape, y.strides)


def _gemm_on(place: _Placement, product: _Product, out: Any, choice: _Choice) -> DeviceArray:
    """The product on one device; enqueued, not awaited.

    Args:
        out: where to write; None for a new array.
    """
    backend, queue, types, shape = place.backend, place.queue, product.types, product.shape
    d = backend.empty(shape, types.output) if out is None else cast("DeviceArray", out)
    if out is not None:
        _check_written(d, product)
    found = writable_in_place(d.shape, d.strides, d.offset, base_alignment=d.memory.alignment)
    written = d
    if found is None or d.dtype != types.output:
        log.info("out of shape %s, strides %s and type %s is not written in place", d.shape, d.strides, d.dtype)
        written = backend.empty(shape, types.output)
        found = Layout(max(shape[-1], 1), shape[-2] * shape[-1] if len(shape) == 3 else 0), False
    d_layout, turned = found
    a, b = (_readable(place, x, types.inputs) for x in (product.a, product.b))
    op_a, op_b, c = product.op_a, product.op_b, product.c
    place.as_given = a is product.a and b is product.b and written is d
    if turned:  # D is stored transposed: Dᵀ = op(B)ᵀ · op(A)ᵀ
        a, b, op_a, op_b = b, a, transposed(op_b), transposed(op_a)
        c = None if c is None else _swapped(c)
    a_layout, op_a = _as_stored(a, op_a)
    b_layout, op_b = _as_stored(b, op_b)
    c_array, c_layout = written, d_layout
    if c is not None:
        c_array = _readable(place, c, types.output)
        if _lies(c_array)[1]:  # no op is applied to C
            c_array = dense_copy(c_array, types.output, queue=queue)
        c_layout = _lies(c_array)[0]
        place.as_given = place.as_given and c_array is c
    m, n = (shape[-1], shape[-2]) if turned else (shape[-2], shape[-1])
    problem = GemmProblem.create(
        m, n, product.k, batch=shape[0] if len(shape) == 3 else 1, dtype=types.inputs, output=types.output,
        accumulator=choice.accumulator, trans_a=op_a, trans_b=op_b, alpha=product.alpha, beta=product.beta,
        a=a_layout, b=b_layout, c=c_layout, d=d_layout,
    )  # fmt: skip

    def chosen(device: DeviceInfo, without: Collection[str] = ()) -> Plan:
        return plan(problem, device, kernel=choice.kernel, params=choice.params, config=choice.config, without=without)

    memory: dict[Operand, Memory] = {"a": a.memory, "b": b.memory, "c": c_array.memory, "d": written.memory}
    place.bound = bind_or_choose(chosen(backend.device), chosen, backend, memory)
    place.turned = turned
    place.bound.enqueue(queue=queue)
    if written is not d:
        copy_strided(written, d, queue=queue)
    return d


def _readable(place: _Placement, x: DeviceArray | HostArray, dtype: np.dtype[Any]) -> DeviceArray:
    """An operand on the device, in a type, and so that it is read in place."""
    if isinstance(x, DeviceArray):
        if x.dtype == dtype and _found(x) is not None:
            return x
        log.info("an operand of shape %s, strides %s and type %s is copied to %s", x.shape, x.strides, x.dtype, dtype)
        return dense_copy(x, dtype, queue=place.queue)
    host = x
    if x.dtype != dtype:
        place.backend.check_allocation(x.size * dtype.itemsize)
        with np.errstate(all="ignore"):
            host = x.astype(dtype)
    strides = element_strides(host)
    found = readable_in_place(host.shape, strides) if strides else None
    if found is not None and (lent := place.borrow_host(host)) is not None:
        return lent
    if (
        found is not None and found[1]
    ):  # stored transposed (column-major): sent as it lies, and not rearranged on the host
        return cast("DeviceArray", _swapped(place.backend.asarray(_swapped(host))))
    return place.backend.asarray(host)


def _found(x: DeviceArray) -> tuple[Layout, bool] | None:
    return readable_in_place(x.shape, x.strides, x.offset, base_alignment=x.memory.alignment)


def _lies(x: DeviceArray) -> tuple[Layout, bool]:
    """The layout of an array of `_readable`, and whether it is stored transposed."""
    return cast("tuple[Layout, bool]", _found(x))


def _as_stored(x: DeviceArray, op: Op) -> tuple[Layout, Op]:
    """The layout of an array of `_readable`, and its op as it is stored."""
    layout, stored_transposed = _lies(x)
    return layout, transposed(op) if stored_transposed else op


def _swapped(x: DeviceArray | HostArray) -> DeviceArray | HostArray:
    """The array with its last two dimensions exchanged."""
    if not isinstance(x, DeviceArray):
        return x.swapaxes(-1, -2)

    def swap(values: tuple[int, ...]) -> tuple[int, ...]:
        return (*values[:-2], values[-1], values[-2])

    return DeviceArray(x.backend, x.memory, swap(x.shape), x.dtype, swap(x.strides), x.offset)


def _check_written(out: DeviceArray, product: _Product) -> None:
    """Raises ArrayError where `out` cannot be written, or writing it would change an operand while it is read."""
    if out.memory.read_only:
        raise ArrayError(f"out of shape {out.shape} is read-only: use another array")
    if overlaps_itself(out.shape, out.strides):
        raise ArrayError(f"out of shape {out.shape} and strides {out.strides} overlaps itself: use another array")
    for name, other in (("a", product.a), ("b", product.b), ("c", product.c)):
        if not isinstance(other, DeviceArray) or not _overlap(out, other):
            continue
        if name == "c" and _is_same(out, other):
            continue  # the in-place update: each element of C is read by who writes it
        raise ArrayError(f"out overlaps {name}: the result would depend on the order of the work; use another array")


def _is_same(x: DeviceArray, y: DeviceArray) -> bool:
    """Whether two arrays are one, whatever objects stand for it."""
    (block_x, start_x), (block_y, start_y) = _start(x), _start(y)
    return (block_x, start_x, x.dtype, x.strides) == (block_y, start_y, y.dtype, y.strides)


def _start(x: DeviceArray) -> tuple[int, int]:
    """The block of memory of an array, and the address of its first element in it."""
    block, start = x.backend.address(x.memory)
    return block, start + x.offset * x.dtype.itemsize


_MOST_WORK = 10_000
"""Of `numpy.shares_memory`, in candidates; what takes more counts as overlapping."""


def _overlap(x: DeviceArray, y: DeviceArray) -> bool:
    """Whether two arrays have an element's memory in common."""
    if x.size == 0 or y.size == 0 or _start(x)[0] != _start(y)[0]:
        return False
    try:
        return np.shares_memory(np.asarray(_StandIn(x)), np.asarray(_StandIn(y)), max_work=cast("Any", _MOST_WORK))
    except RuntimeError:  # too hard to tell
        return True


class _StandIn:
    """A device array as NumPy sees one; its elements are never touched."""

    def __init__(self, x: DeviceArray) -> None:
        size = x.dtype.itemsize
        self.__array_interface__ = {
            "shape": x.shape,
            "typestr": f"|V{size}",
            "data": (_start(x)[1] + 2**20, False),  # never a null pointer, which NumPy takes for none
            "strides": tuple(s * size for s in x.strides),
            "version": 3,
        }


def _on_host(result: HostArray, given: Mapping[str, _Given], out: Any) -> Any:
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
