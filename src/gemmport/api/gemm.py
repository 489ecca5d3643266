"""`gemm`, of arrays of any library and on any device: what comes in decides what comes out."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from os import PathLike
from typing import TYPE_CHECKING, Any, cast, overload

import numpy as np
import numpy.typing as npt

from gemmport.api.arguments import (
    Given,
    HostArray,
    backend_of_operands,
    check_out,
    check_present,
    is_float8,
    queue_of_operands,
    result_shape,
    types_of,
)  # fmt: skip
from gemmport.api.collections import room_of
from gemmport.api.copied import otherwise
from gemmport.api.dealt import Dealt, check_dealt, dealt_product
from gemmport.api.host import deliver, host_product
from gemmport.api.placement import Placement, Result, begins_where
from gemmport.api.plans import Config
from gemmport.api.precision import current
from gemmport.api.product import Choice, Product, enqueue
from gemmport.api.scales import GivenScales, Scales, check_types, of_columns, of_rows, taken, values_of, with_scales
from gemmport.api.sharded import AnyPlace, devices_of, place_of, put
from gemmport.api.streamed import NO_BOUNDS, Bounds, is_streamed, streamed_product
from gemmport.api.views import Array
from gemmport.api.within import Again, keep_within
from gemmport.backends.array import DeviceArray
from gemmport.backends.base import Backend
from gemmport.backends.objects import Event
from gemmport.contracts.kernel import Parameters
from gemmport.core.device import DeviceInfo
from gemmport.core.errors import ArrayError, DeviceMemoryError
from gemmport.core.problem import Op, as_number, as_op, scalar_key
from gemmport.execution import repeated
from gemmport.execution.adapters import is_traced, untraced
from gemmport.execution.selection import get_backend, is_meant
from gemmport.multidevice.selection import Devices
from gemmport.outofcore.operands import Sliced
from gemmport.outofcore.progress import Tell
from gemmport.planning.planner import AUTO

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from gemmport.api.signatures import GemmOptions, OnDevice, OnHost, Operand, Other, Written

log = logging.getLogger(__name__)

_NO_EVENTS = ()

_PLAIN_NUMBERS = {scalar_key(0.0), scalar_key(1.0)}


@overload
def gemm(
    a: OnHost, b: OnHost, *, c: OnHost | None = None, out: None = None, **options: Unpack[GemmOptions]
) -> HostArray: ...
@overload
def gemm(a: OnHost, b: OnHost, *, c: OnDevice, out: None = None, **options: Unpack[GemmOptions]) -> DeviceArray: ...
@overload
def gemm(
    a: OnDevice, b: Operand, *, c: Operand | None = None, out: None = None, **options: Unpack[GemmOptions]
) -> DeviceArray: ...
@overload
def gemm(
    a: OnHost, b: OnDevice, *, c: Operand | None = None, out: None = None, **options: Unpack[GemmOptions]
) -> DeviceArray: ...
@overload
def gemm(
    a: Other, b: Operand, *, c: Operand | None = None, out: None = None, **options: Unpack[GemmOptions]
) -> Any: ...
@overload
def gemm(a: OnHost, b: Other, *, c: Operand | None = None, out: None = None, **options: Unpack[GemmOptions]) -> Any: ...
@overload
def gemm(a: OnHost, b: OnHost, *, c: Other, out: None = None, **options: Unpack[GemmOptions]) -> Any: ...
@overload
def gemm(
    a: Operand, b: Operand, *, c: Operand | None = None, out: Written, **options: Unpack[GemmOptions]
) -> Written: ...
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
    wait_for: Any = _NO_EVENTS,
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
    """alpha · op(A) · op(B) + beta · C, as BLAS defines it; rows of op(A) and columns of op(B) may have scales.

    Operands may be NumPy arrays and what NumPy makes arrays of, `DeviceArray`s, and device arrays of PyTorch, CuPy, JAX,
    PyOpenCL and any library with DLPack or `__cuda_array_interface__`, of any strides. What is on a device stays there, and the
    host does not wait for it: the work is enqueued when this returns. docs/interchange.md says which stream it is enqueued on.

    Thread-safe, with one queue or several; threads that write to one array, or one of which reads what another writes, decide
    themselves who goes first.

    Args:
        a, b: matrices, or batches of matrices with the batch as first dimension; a single matrix serves a whole batch. A list
            of matrices of one shape is a batch; a `ShardedArray` is spread over devices. Different types are computed in their
            common type, as NumPy's.
        alpha, beta: with beta = 0, C is not read; with alpha = 0, A and B are not.
        c: of the result's shape; read, never changed (unless it is also `out`). Needed where beta is not 0.
        trans_a, trans_b: "N", "T", "C" (conjugate transpose) or "R" (conjugate); or True for "T".
        out: where to write: any view whose elements do not overlap; may be `c`. It must not overlap A or B on a device. The
            result is cast to its type within a kind (NumPy's "same_kind").
        dtype: of the result; default that of `numpy.result_type` of the operands. It may be wider than that of A and B.
        accumulator: type of the sums, e.g. "float16" for half arithmetic; default: at least float32.
        queue: the queue or stream to work on, in the runtime's type; default: the current one of the library whose arrays are
            given, else that on which a device array was written last, else the backend's own. One of OpenCL's that runs out of
            order waits for the backend's own, which works in its place, and is waited for.
        wait_for: an event of gemmport or of the runtime, or a list of them, that the work waits for.
        backend, device: see `get_backend`. Device arrays say themselves where they are: what means another device is an error.
        devices: several devices that compute the product together: "all", or a list of what `device` takes and of open
            backends; default: those of arrays in shards. Each computes tiles of the result, as many as it is fast; of arrays in
            the host's memory, what is too small for that, one computes. Arrays may lie on any devices, each on another, or as a
            `ShardedArray` on several. The result is where `out` is, else where the first of them is. It is in shards where
            each shard of that array has rows, columns or matrices of it. The host waits for it. docs/scale.md has the rest.
        kernel, params, config: see `plan`.
        deterministic: one product has the same bits each time. Else a plan that needs less memory is taken where the device is
            short of it, with a warning in the log; it may add up in another order.
        precision: "tf32", "float16" or "bfloat16": A and B, of float32 or complex64, are rounded to it, to nearest, before they
            are multiplied; sums stay in float32. "full": they are multiplied as they are. Default: what `gemmport.precision`
            says, then the user's configuration, then "full".
        scale_a, scale_b: of products that are summed in float32, such as those of float8: a number, or an array of one for each
            row of op(A), of shape (m), (m, 1), (batch, m) or (batch, m, 1), and for each column of op(B), (n), (1, n),
            (batch, n) or (batch, 1, n). On the device of the other arrays, or on the host. They multiply the sums, in float32,
            before C is added and the result is rounded (docs/types.md). A number on the host costs nothing, an array another
            pass over the result.
        device_memory, host_memory: bytes that a product of arrays on the host may take on the device, and on the host beside
            operands and result: a number, or a text such as "1GiB". What does not fit passes through the device in tiles, as it
            does without them where the device has no room (docs/scale.md).
        checkpoint: a folder in which the state of such a product is kept, so that the same call goes on after its process was
            killed. `out` must be on disk; without it the result is in the folder.
        progress: is called with a `gemmport.outofcore.progress.Progress` as such a product goes on, by threads in turns.

    Returns:
        `out`, or a new array of the kind of the first operand on a device: a PyTorch tensor, a CuPy, JAX or PyOpenCL array,
        else a `DeviceArray`. Where all are on the host: a NumPy array, or one of PyTorch or JAX where an operand is.

    Raises:
        ShapeError, DtypeError, ArrayError: operands or scales that do not fit together, have masked elements, or are of a type
            that is not rounded to the precision, or has no scales.
        ConfigError, UnknownNameError, ParameterError, UnsupportedError: see `plan`; UnknownNameError, of a precision, too.
        BackendUnavailableError, DeviceNotFoundError, AmbiguousDeviceError: see `get_backend`.
        DevicesFailedError: each of `devices` has failed; `out` may hold anything then.
        ArrayLostError: one of several devices has failed, on which an array lies that the others cannot do without.
        CompileError, LaunchError, DeviceMemoryError: the device refused, or has no memory for what `deterministic` asks for.
        CheckpointError: the checkpoint is of another product, or this one cannot be kept.
        WorkGroupError: a kernel, compiled with parameters that were asked for, runs in smaller groups only. Where they were not
            asked for, others are taken, or another kernel.
        TensorMapError, InstructionsError: the driver refuses a map, or the instructions, that the kernel needs which was asked
            for. Where none was, another is taken.
    """
    if is_traced():
        return untraced(gemm)(
            a, b, alpha=alpha, beta=beta, c=c, trans_a=trans_a, trans_b=trans_b, out=out, dtype=dtype, accumulator=accumulator,
            queue=queue, wait_for=wait_for, backend=backend, device=device, devices=devices, kernel=kernel, params=params,
            config=config, deterministic=deterministic, device_memory=device_memory, host_memory=host_memory,
            checkpoint=checkpoint, progress=progress, precision=precision, scale_a=scale_a, scale_b=scale_b,
        )  # fmt: skip
    alpha, beta = as_number("alpha", alpha), as_number("beta", beta)
    scales: GivenScales | None = None
    if scale_a is not None or scale_b is not None:
        alpha, scales = taken(alpha, scale_a, scale_b)
    wanted, bounds = None, NO_BOUNDS
    within = current() if precision is None else None
    if device_memory is not None or host_memory is not None or checkpoint is not None or progress is not None:
        bounds = Bounds.of(device_memory, host_memory, checkpoint, progress)
    elif wait_for is _NO_EVENTS and params is None and config is None and devices is None:
        # To ask for the type that a product has anyway is to ask for nothing; one of 8 bits none has.
        plain = (
            c is None and type(a) in (np.ndarray, DeviceArray) and type(a) is type(b) and type(dtype) is not np.ndarray
            and dtype == a.dtype == b.dtype and not is_float8(a.dtype)
        )  # fmt: skip
        choices: Hashable = (
            scalar_key(alpha), scalar_key(beta), type(trans_a), trans_a, type(trans_b), trans_b,
            None if plain else dtype, accumulator, kernel if precision is within else (kernel, precision, within),
        )  # fmt: skip
        if deterministic is not False:
            choices = choices, deterministic
        if scales is None:
            wanted, result = repeated.again(a, b, c, out, choices, backend, device, queue)
        else:
            choices, arrays = with_scales(choices, scales)
            wanted, result = repeated.again(a, b, c, out, choices, backend, device, queue, arrays)
        if result is not None:
            return result
    choice = Choice(kernel, params, config, accumulator, deterministic, precision, within)
    product = computed(
        a, b, c, out, alpha=alpha, beta=beta, trans_a=trans_a, trans_b=trans_b, dtype=dtype, queue=queue, wait_for=wait_for,
        backend=backend, device=device, devices=devices, choice=choice, bounds=bounds, scales=scales,
    )  # fmt: skip
    is_kept = product.keep(wanted, elsewhere=queue is not None, scales=values_of(scales))
    if wanted is not None and not is_kept and type(a) is np.ndarray and c is None and scales is None:
        again = partial(
            gemm, alpha=alpha, beta=beta, trans_a=trans_a, trans_b=trans_b, dtype=dtype, accumulator=accumulator,
            backend=backend, device=device, kernel=kernel, deterministic=True, precision=precision,
        )  # fmt: skip
        product.keep_by_copies(wanted, again, a, b, out)
    # A library compiles numbers into its computation, which takes longer than this call.
    if scales is None and queue is None and {scalar_key(alpha), scalar_key(beta)} <= _PLAIN_NUMBERS:
        written = Again.of(
            _of_three, within, alpha=alpha, beta=beta, trans_a=trans_a, trans_b=trans_b, dtype=dtype,
            accumulator=accumulator, kernel=kernel, deterministic=deterministic, precision=precision,
        )  # fmt: skip
        keep_within(wanted, written, product.given)
    return product.given


def _of_three(a: Any, b: Any, c: Any = None, **options: Any) -> None:
    gemm(a, b, c=c, **options)


@dataclass(frozen=True)
class Computed:
    """A product that was computed, or enqueued.

    Attributes:
        given: what the caller gets.
        operands: A, B and, where it is read, C, as they were given, on the device or on the host.
        result: where it was written, on the device or on the host.
        dealt: how several devices computed it; None where nobody asked for several.
    """

    given: Any
    place: Placement
    operands: Sequence[DeviceArray | HostArray]
    result: Result | HostArray
    dealt: Dealt | None = None

    def keep(self, wanted: Hashable, *, elsewhere: bool, scales: Sequence[Any] = ()) -> bool:
        """Keeps it under a key, for others of its kind; None for none. Returns whether it does."""
        if self.dealt is not None and self.dealt.routine is not None:
            repeated.keep_in_shards(wanted, cast("Any", self.operands[0]), self.dealt.routine)
            return True
        return self.place.keep(wanted, self.operands, self.result, elsewhere=elsewhere, scales=scales)

    def keep_by_copies(
        self, wanted: Hashable, again: Callable[..., Any], a: HostArray, b: HostArray, out: HostArray | None,
        batch: tuple[int, ...] | None = None, converted: np.dtype[Any] | None = None,
    ) -> None:  # fmt: skip
        """Keeps how others of its kind are found from copies of what is not used where it lies. Copies are of no use where the
        device uses nothing in place.

        Args:
            again, batch, converted: of `copied.otherwise`.
        """
        if not self.place.in_place:
            return
        used = cast("Sequence[HostArray]", self.operands)
        in_place = [self.place.uses(own) and begins_where(x, own) for x, own in zip((a, b), used, strict=True)]
        lands = out is None or begins_where(cast("HostArray", self.result), out)
        found = otherwise(again, a, b, out, in_place=in_place, lands=lands, batch=batch, converted=converted)
        repeated.keep_otherwise(wanted, found)

    def reads(self, a: DeviceArray | HostArray, b: DeviceArray | HostArray) -> bool:
        """Whether it reads operands that begin where these do."""
        return all(begins_where(x, used) for x, used in zip((a, b), self.operands, strict=False))


def computed(
    a: Any,
    b: Any,
    c: Any = None,
    out: Any = None,
    *,
    choice: Choice,
    alpha: complex = 1.0,
    beta: complex = 0.0,
    trans_a: Op | bool = "N",
    trans_b: Op | bool = "N",
    dtype: npt.DTypeLike | None = None,
    queue: Any = None,
    wait_for: Any = (),
    backend: str | None = None,
    device: str | int | DeviceInfo | None = None,
    devices: Devices | None = None,
    bounds: Bounds = NO_BOUNDS,
    scales: GivenScales | None = None,
) -> Computed:
    """The product of `gemm`, found anew; of the same arguments.

    Args:
        scales: of `taken`, whose alpha is the other; None where the caller has none, not even a number.
    """
    op_a, op_b = as_op(trans_a), as_op(trans_b)
    check_present(a, b, c, out, beta)
    if (room := room_of(a, b, c, out)) is not None:
        raise ArrayError(
            f"operands must be in memory; got {room.TITLE}: use {room.__name__}.matmul, or call compute() first"
        )
    given = {name: Given.of(name, x) for name, x in (("a", a), ("b", b), ("c", c), ("out", out)) if x is not None}
    arrays = scales or {}
    on_device = [x for x in (*given.values(), *arrays.values()) if x.on_device]
    if devices is None:
        devices = devices_of(a, b, c, out, *(x.value for x in arrays.values()))
    if devices is not None:
        check_dealt(device, bounds, queue, wait_for)
    if devices is None and on_device and out is not None and not given["out"].on_device:
        where = backend_of_operands(on_device).device.label
        raise ArrayError(
            f"out must be on {where}, where an operand is; got an array in the host's memory: copy the result"
        )
    place: Placement | None = None
    places: dict[str, AnyPlace] = {}
    if devices is not None:
        places = {x.name: place_of(x) for x in on_device}
    elif on_device:
        place = Placement(backend_of_operands(on_device), awaited=False)
        _check_place(place.backend.device, on_device[0].name, backend, device)
        _check_in_memory(given, bounds)
        place.borrow(on_device)
    types = types_of(given, dtype)
    if scales is not None:
        check_types(types, choice.accumulator)
    shape, k = result_shape(given, op_a, op_b)
    if out is not None:
        check_out(given["out"], shape, types.output)
    if devices is not None:
        used = {
            name: places[name].of(x) if name in places else x.arrays[0]
            for name, x in given.items()
            if name in ("a", "b") or (name == "c" and beta != 0)
        }
        there = {
            name: cast("HostArray", cast("DeviceArray", places[name].of(x)).get() if name in places else x.arrays[0])
            for name, x in arrays.items()
        }
        product = Product(
            used["a"], used["b"], used.get("c"), alpha, beta, op_a, op_b, types, shape, k, _spread(there, shape, copied=True)
        )  # fmt: skip
        return _by_several(devices, backend, product, given, places, choice, bounds)
    if place is None:
        place = Placement(get_backend(backend, device), awaited=True)
    target = place.backend
    place.queue, order = target.in_order(queue if queue is not None else queue_of_operands(on_device))
    with order:
        target.wait(_events(wait_for), queue=place.queue)
        placed = {name: place.of(x) for name, x in given.items() if name in ("a", "b") or (name == "c" and beta != 0)}
        factors = _spread({name: place.of(x) for name, x in arrays.items()}, shape)
        product = Product(
            placed["a"], placed["b"], placed.get("c"), alpha, beta, op_a, op_b, types, shape, k, factors
        )  # fmt: skip
        if not on_device:
            result = _on_host(place, product, given, choice, bounds)
            operands = [given[name].arrays[0] for name in placed]
            return Computed(deliver(result, given, out), place, operands, result)
        written = place.result({**given, **arrays}, shape, types.output)
        enqueue(place, product, written.array, choice)
        return Computed(place.delivered(written), place, [*placed.values()], written)


def _spread(scales: Mapping[str, Array], shape: tuple[int, ...], *, copied: bool = False) -> Scales | None:
    """Scales of the rows and columns of a result of this shape; None where there are none.

    Args:
        copied: whether they are copied to the host: several devices read them, while one of these may write `out` there.
    """
    if not scales:
        return None
    x, y = scales.get("scale_a"), scales.get("scale_b")
    *batch, m, n = shape
    found = Scales(
        None if x is None else of_rows(x, tuple(batch), m), None if y is None else of_columns(y, tuple(batch), n)
    )  # fmt: skip
    return Scales(*found.on_host()) if copied else found


def _by_several(
    devices: Devices, backend: str | None, product: Product, given: Mapping[str, Given], places: Mapping[str, AnyPlace],
    choice: Choice, bounds: Bounds,
) -> Computed:  # fmt: skip
    """The product by several devices, which was awaited.

    Args:
        places: of the arguments that are on a device.
    """
    out = given["out"].value if "out" in given else None
    operands_there = {name: places[name] for name in given if name in places}
    written = put(operands_there, given, product.op_a, product.op_b, product.shape, product.types.output)

    def alone(one: Backend) -> HostArray:
        return _on_host(Placement(one, awaited=True), product, given, choice, bounds)

    dealt = dealt_product(
        devices, backend, product, given, choice, bounds, alone, None if written is None else written.array
    )
    for each in places.values():
        each.settle()
    operands = [product.a, product.b]
    if written is not None:
        return Computed(written.delivered(), written.place, operands, written.each[0][1], dealt)
    on_host = Placement(dealt.backends[0], awaited=True)
    return Computed(deliver(dealt.result, given, out), on_host, operands, dealt.result, dealt)


def _on_host(
    place: Placement, product: Product, given: Mapping[str, Given], choice: Choice, bounds: Bounds
) -> HostArray:
    """The product of arrays on the host, at once where the device has room for them."""
    streamed = is_streamed(place.backend, product, given, bounds)
    if not streamed:
        try:
            return host_product(place, product, given, choice)
        except DeviceMemoryError as error:
            # C may be written by now, where it is out.
            if choice.deterministic or product.c is not None:
                raise
            log.info("%s: it passes through the device in tiles", error)
    place.as_given = False
    return cast("HostArray", streamed_product(place, product, given, choice, bounds))


def _check_in_memory(given: Mapping[str, Given], bounds: Bounds) -> None:
    """Raises ArrayError where a product of arrays on a device is to pass through it in tiles."""
    for x in given.values():
        if not x.on_device and isinstance(x.arrays[0], Sliced):
            raise ArrayError(
                f"{x.name} is read in slices, and another operand is on a device: copy that to the host with get()"
            )
    if bounds.asked:
        raise ArrayError(
            "device_memory, host_memory, checkpoint and progress are for products of arrays on the host; an operand is on a "
            "device: leave them out, or copy it to the host with get()"
        )


def _events(given: Any) -> list[Event]:
    """One event, several, or None, as ours."""
    several = given if isinstance(given, Iterable) else [] if given is None else [given]
    return [event if isinstance(event, Event) else Event(event) for event in several]


def _check_place(found: DeviceInfo, name: str, backend: str | None, device: str | int | DeviceInfo | None) -> None:
    """Raises ArrayError where device arrays are on another device than is asked for."""
    if (backend is None and device is None) or is_meant(found, backend, device):
        return
    asked = {"backend": backend, "device": device.label if isinstance(device, DeviceInfo) else device}
    told = " and ".join(f"{word}={value!r}" for word, value in asked.items() if value is not None)
    raise ArrayError(
        f"{told} must mean the device of {name}, which is {found.label}: leave it out, or copy {name} to the host with get()"
    )
