"""Products of arrays on the host that have no room on the device: they pass through it in tiles."""

from __future__ import annotations

import logging
import os
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np

from gemmport import kernels
from gemmport.api.arguments import Given, HostArray
from gemmport.api.overlap import is_same_on_host
from gemmport.api.placement import Placement
from gemmport.api.plans import configuration_of, plan
from gemmport.api.product import Choice, Product, enqueue_memory, kind_of
from gemmport.backends.base import Backend
from gemmport.contracts.kernel import KernelVariant
from gemmport.core.device import DeviceInfo
from gemmport.core.dtypes import FLOAT32, as_dtype
from gemmport.core.errors import ArrayError, DeviceMemoryError, ParameterError
from gemmport.core.problem import GemmProblem, Layout, Op
from gemmport.core.units import as_bytes
from gemmport.outofcore.checkpoint import Checkpoint
from gemmport.outofcore.operands import Matrix, Sliced, may_share
from gemmport.outofcore.progress import Tell
from gemmport.outofcore.streaming import Kept, Operands, Streamed, digest_of_array
from gemmport.planning import preparation
from gemmport.planning.schedule import USUAL_SHARE, Cost, Schedule, schedule, usual_memory
from gemmport.runtime.kept import keep

log = logging.getLogger(__name__)

_LEAST = 2**22
"""Bytes of a device with which no less is tried."""


@dataclass(frozen=True)
class Bounds:
    """How much memory a product may take, and what else is asked of one that passes through the device in tiles.

    Attributes:
        device_memory, host_memory: bytes.
        checkpoint: a folder.
    """

    device_memory: int | None = None
    host_memory: int | None = None
    checkpoint: Path | None = None
    progress: Tell | None = None

    @classmethod
    def of(cls, device_memory: Any, host_memory: Any, checkpoint: Any, progress: Tell | None) -> Bounds:
        """Of the arguments of `gemm`.

        Raises:
            ParameterError: one is not a number of bytes, a path or a function, as it must be.
        """
        on_device = None if device_memory is None else as_bytes("device_memory", device_memory)
        on_host = None if host_memory is None else as_bytes("host_memory", host_memory)
        # "", as of a variable that is not set, would be the folder of whoever calls.
        if checkpoint is not None and not (isinstance(checkpoint, str | os.PathLike) and os.fspath(checkpoint)):
            raise ParameterError(
                f'checkpoint must be the path of a folder; got {checkpoint!r}: name one, such as "state"'
            )
        if progress is not None and not callable(progress):
            raise ParameterError(f"progress must be a function that takes a Progress; got {progress!r}")
        return cls(on_device, on_host, None if checkpoint is None else Path(checkpoint), progress)

    @property
    def asked(self) -> bool:
        """Whether any is given."""
        return any(
            value is not None for value in (self.device_memory, self.host_memory, self.checkpoint, self.progress)
        )


NO_BOUNDS = Bounds()


def usable_memory(backend: Backend, *, always: bool = False) -> int:
    """Bytes of a device that a streamed product takes where no bound is given.

    Args:
        always: whether it must be the same each time, whatever else is on the device.
    """
    usual = usual_memory(backend.device)
    return usual if always else min(usual, int(USUAL_SHARE * backend.free_memory))


def is_streamed(backend: Backend, product: Product, given: Mapping[str, Given], bounds: Bounds) -> bool:
    """Whether a product of host arrays passes through the device in tiles."""
    if bounds.checkpoint is not None or bounds.host_memory is not None:
        return True
    if any(isinstance(x, Sliced) for each in given.values() for x in each.arrays):
        return True
    memory = backend.device.memory if bounds.device_memory is None else min(bounds.device_memory, backend.device.memory)
    out = product.types.output.itemsize
    sizes = [_bytes(x, product.types.inputs) for x in (product.a, product.b)]
    sizes.append(out * int(np.prod(product.shape, dtype=object)))
    if product.scales is not None:
        sizes.append(FLOAT32.itemsize * int(np.prod(product.shape, dtype=object)))
    return sum(sizes) > memory or max(sizes) > backend.device.max_allocation


def _bytes(x: Any, dtype: np.dtype[Any]) -> int:
    return int(np.prod(x.shape, dtype=object)) * dtype.itemsize


def streamed_product(
    place: Placement, product: Product, given: Mapping[str, Given], choice: Choice, bounds: Bounds
) -> HostArray | Sliced:
    """The product of host arrays, which was awaited: in `out`, where that is given, else in a new array.

    Raises:
        CheckpointError: it cannot be kept, or not be gone on with. DeviceMemoryError: no tile has room.
        ArrayError: `out` has elements of A, B or C in a file.
        Others as `gemm`.
    """
    backend = place.backend
    a, b = (Matrix(name, cast("Any", x), op) for name, x, op in
            (("a", product.a, product.op_a), ("b", product.b, product.op_b)))  # fmt: skip
    c = None if product.c is None else Matrix("c", cast("Any", product.c))
    problem = problem_of(product, choice, a.op, b.op)
    scales = (None, None) if product.scales is None else product.scales.on_host()
    if bounds.checkpoint is None:
        out = streamed_result(product, given)
        _stream(place, problem, Operands(a, b, c, Matrix("out", out), scales), choice, bounds)
        return out
    with Checkpoint(bounds.checkpoint) as checkpoint:
        kept = _written(given) if "out" in given else checkpoint.result(product.shape, product.types.output)
        operands = Operands(a, b, c, Matrix("out", kept), scales)
        found = scheduled(
            problem, backend.device, choice, bounds.device_memory or usable_memory(backend, always=True),
            operands.out.multiple, scaled=operands.scaled,
        )  # fmt: skip
        made = plan(
            found.panel_product, backend.device, kernel=choice.kernel, params=choice.params, config=choice.config
        )
        told = {
            "problem": {name: value for name, value in problem.to_dict().items() if name not in ("a", "b", "c", "d")},
            "device": backend.device.label,
            "plan": {
                "tile": [found.rows, found.columns], "depth": found.depth, "by_rows": found.by_rows,
                "kernel": made.variant, "parameters": made.values,
            },
            **{name: digest_of_array(x) for name, x in zip(("scale_a", "scale_b"), scales, strict=True) if x is not None},
        }  # fmt: skip
        checkpoint.begin(found, operands, told)
        run_streamed(place, found, operands, choice, bounds, checkpoint)
        return kept


def _stream(place: Placement, problem: GemmProblem, operands: Operands, choice: Choice, bounds: Bounds) -> None:
    """Streams a product, with less of the device's memory where there is less than it told."""
    backend = place.backend
    memory = bounds.device_memory or usable_memory(backend, always=choice.deterministic)
    while True:
        try:
            found = scheduled(problem, backend.device, choice, memory, operands.out.multiple, scaled=operands.scaled)
            run_streamed(place, found, operands, choice, bounds)
        except DeviceMemoryError as error:
            # What was written is written again; only C must not have been. Other tiles may have other bits.
            again = operands.c is None or not may_share(operands.c.array, operands.out.array)
            again = again and not choice.deterministic
            if bounds.device_memory is not None or memory // 2 < _LEAST or not again:
                raise
            log.warning("%s: %s: tried again with %s bytes", backend.device.label, error, f"{memory // 2:,}")
            memory //= 2
        else:
            return


def run_streamed(
    place: Placement, found: Schedule, operands: Operands, choice: Choice, bounds: Bounds, checkpoint: Checkpoint | None = None,
    *, lend: bool | None = None, stays: Literal["a", "b"] | None = None, kept: Kept | None = None,
) -> None:  # fmt: skip
    """Has a product pass through a device by its schedule, and waits for it; arguments as of `Streamed`.

    Args:
        lend: default: where no bound is given.
    """
    backend = place.backend
    if lend is None:
        lend = bounds.device_memory is None and bounds.host_memory is None
    log.log(
        logging.INFO if kept is None else logging.DEBUG,  # of one product, and of each tile of one
        "%s passes through %s in %s tiles of %s × %s, %s terms at a time", found.problem, backend.device.label,
        found.count, found.rows, found.columns, found.depth,
    )  # fmt: skip

    def multiply(problem: GemmProblem, memory: dict[str, Any], queue: Any) -> None:
        enqueue_memory(problem, choice, backend, memory, queue)

    Streamed(
        backend, place.queue, found, operands, multiply, host_memory=bounds.host_memory, tell=bounds.progress,
        record=checkpoint, lend=lend, stays=stays, kept=kept,
    ).run()  # fmt: skip


def scheduled(
    problem: GemmProblem, device: DeviceInfo, choice: Choice, memory: int, multiples: tuple[int, int] = (1, 1), *,
    scaled: bool = False,
) -> Schedule:  # fmt: skip
    """The schedule of a product with a kernel that is chosen for its panels; the same is found once, of thousands.

    Args:
        multiples: of which a tile has its rows and columns, where there is room.
        scaled: whether rows and columns of the result have scales.

    Raises:
        DeviceMemoryError: as `gemmport.planning.schedule.schedule`.
    """
    kind, family = kind_of(problem, choice), kernels.family()
    key = None if kind is None else (kind, device, memory, multiples, scaled)
    known = _schedules.get(key)
    if key is not None and known is not None and known[0] is family:
        return known[1]
    model = configuration_of(choice.config).model(device)
    cost = panel_cost(device, choice)
    try:
        found = schedule(problem, device, model, memory=memory, cost=cost, multiples=multiples, scaled=scaled)
    except DeviceMemoryError:
        if multiples == (1, 1):
            raise
        found = schedule(problem, device, model, memory=memory, cost=cost, scaled=scaled)
    if key is not None:
        keep(_schedules, key, (family, found))
    return found


_schedules: dict[Hashable, tuple[Mapping[str, KernelVariant], Schedule]] = {}
"""By all that they depend on, with the kernels that were there."""


def panel_cost(device: DeviceInfo, choice: Choice) -> Cost:
    """What the plans of products take on a device."""
    model = configuration_of(choice.config).model(device)

    def cost(problem: GemmProblem) -> tuple[float, int]:
        made = plan(problem, device, kernel=choice.kernel, params=choice.params, config=choice.config)
        if problem.empty:
            return 0.0, 0
        seconds = preparation.predicted(kernels.variant(made.variant), problem, device, model, made.values).seconds
        return seconds, made.scratch_bytes

    return cost


def problem_of(product: Product, choice: Choice, op_a: Op, op_b: Op) -> GemmProblem:
    """The problem of a product whose operands are stored with these ops."""
    batch = product.shape[0] if len(product.shape) == 3 else 1
    layouts = {}
    for name, x in (("a", product.a), ("b", product.b)):
        rows, columns = x.shape[-2:]
        layouts[name] = Layout(max(rows, columns, 1), 0 if x.ndim == 2 else rows * columns)
    return GemmProblem.create(
        product.shape[-2], product.shape[-1], product.k, batch=batch, dtype=product.types.inputs,
        output=product.types.output, accumulator=choice.accumulator, trans_a=op_a, trans_b=op_b, alpha=product.alpha,
        beta=product.beta, precision=choice.precision_of(as_dtype(product.types.inputs)), **layouts,
    )  # fmt: skip


def streamed_result(product: Product, given: Mapping[str, Given]) -> HostArray | Sliced:
    """Where tiles are written: `out`, or a new array where `out` has elements that are still read."""
    if "out" not in given:
        return _new(product)
    out = cast("Any", _written(given))
    for name, x in (("a", product.a), ("b", product.b), ("c", product.c)):
        if x is None or not may_share(cast("Any", x), out):
            continue
        if name == "c" and _is_one(x, out):
            continue  # each tile of C is read before it is written
        if isinstance(out, Sliced) or not np.may_share_memory(cast("Any", x), out):
            raise ArrayError(f"out must not have elements of {name}, which lie in the same file: write to another")
        return _new(product)
    return cast("HostArray", out)


def _new(product: Product) -> HostArray:
    dtype = product.types.output
    try:
        return np.empty(product.shape, dtype)
    except (MemoryError, ValueError):
        raise DeviceMemoryError(
            f"the result takes {int(np.prod(product.shape, dtype=object)) * dtype.itemsize:,} bytes, for which the host has no "
            "room: pass out=, such as a memory map"
        ) from None


def _written(given: Mapping[str, Given]) -> HostArray | Sliced:
    return cast("HostArray", given["out"].arrays[0])


def _is_one(c: Any, out: Any) -> bool:
    if isinstance(c, Sliced) or isinstance(out, Sliced):
        return isinstance(c, Sliced) and isinstance(out, Sliced)
    return is_same_on_host(c, out)
