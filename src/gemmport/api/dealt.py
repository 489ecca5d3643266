"""Products of host arrays that several devices compute: what `devices=` does."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from gemmport.api.arguments import Given, HostArray
from gemmport.api.host import result_of
from gemmport.api.placement import Placement, readable
from gemmport.api.plans import configuration_of, plan
from gemmport.api.product import Choice, Product, enqueue
from gemmport.backends.array import DeviceArray
from gemmport.backends.base import Backend
from gemmport.core.device import DeviceInfo
from gemmport.core.dtypes import as_dtype
from gemmport.core.errors import ArrayError, CompileError, DtypeError, LaunchError, ShapeError, UnsupportedError
from gemmport.core.layout import element_strides, readable_in_place
from gemmport.core.plan import Plan
from gemmport.core.problem import GemmProblem, Op, transposes
from gemmport.multidevice.crew import compute, failed
from gemmport.multidevice.deal import Deal, Member
from gemmport.multidevice.outlook import Outlook, outlook
from gemmport.multidevice.panels import Panels
from gemmport.multidevice.selection import Devices, chosen_backends, chosen_devices
from gemmport.multidevice.tiles import Needs, Room, Tile

log = logging.getLogger(__name__)

MEMORY = 0.8
"""Of a device's memory, what tiles may take: the rest is for scratch memory, programs and other users. A device that is short
of it all the same gets smaller tiles."""


@dataclass(frozen=True)
class Dealt:
    """A product that several devices computed.

    Attributes:
        result: in `out`, where that is written in place, else a new array.
        backends: the devices that can compute it, in the order in which they were given.
        members: what each of these did; one alone where dealing was not expected to pay.
        outlook: what was expected; None where there was nothing to compute.
    """

    result: HostArray
    backends: Sequence[Backend]
    members: Sequence[Member]
    outlook: Outlook | None

    @property
    def names(self) -> list[str]:
        """Of the devices, as of members."""
        return _names(self.backends)


def dealt_product(
    devices: Devices, backend: str | None, product: Product, given: Mapping[str, Given], choice: Choice,
    alone: Callable[[Backend], HostArray],
) -> Dealt:  # fmt: skip
    """The product of host arrays by several devices; awaited.

    Args:
        alone: computes it by one device.

    Raises:
        UnsupportedError: `choice` asks for the same bits each time.
        DevicesFailedError: every device has failed; the result may hold anything then.
        Others as `gemmport.multidevice.selection.chosen_backends`, and as `gemm` where there is no plan for a device that was
            named. Of "all", those without one are left out.
    """
    if choice.deterministic:
        raise UnsupportedError(
            "deterministic must be False with devices: which device computes an element is decided while they work, and each "
            "adds up in its own order; name one with device="
        )
    backends: Sequence[Backend] = chosen_backends(devices, backend)
    problem = _problem(product, choice)
    if problem.empty:
        return _alone(backends, backends, product, given, alone, None)
    found = _plans([each.device for each in backends], problem, choice, named=not isinstance(devices, str))
    backends, plans = zip(*[(each, plan) for each, plan in zip(backends, found, strict=True) if plan], strict=True)
    expected = outlook(problem, plans, configuration_of(choice.config))
    if not expected.pays:
        totals = dict(zip(map(id, backends), (each.total for each in expected.expected), strict=True))
        fastest_first = sorted(backends, key=lambda each: totals[id(each)])
        if len(backends) > 1:
            log.info(
                "%s is not dealt: %s computes it alone: %s", problem, fastest_first[0].device.label, expected.reason
            )
        return _alone(fastest_first, backends, product, given, alone, expected)
    result, update = result_of(product, given)
    product = replace(product, a=_as_read(product.a, product), b=_as_read(product.b, product))
    whole = Tile.whole(problem.batch, problem.m, problem.n)
    needs = _needs(product)
    members = [
        Member(name, whole.size * rate, Room(int(MEMORY * one.device.memory), one.device.max_allocation))
        for name, one, rate in zip(_names(backends), backends, expected.rates, strict=True)
    ]
    deal = Deal(whole, members, needs)
    works = [
        _Work(one, member, deal, product, result, choice, update=update)
        for one, member in zip(backends, members, strict=True)
    ]
    started = time.perf_counter()
    compute(deal, works)
    seconds = time.perf_counter() - started
    for member in members:
        log.info(
            "%s: %s computed %.1f %% in %d tiles, at work for %.3g of %.3g s", problem, member.name,
            100 * member.elements / whole.size, len(member.tiles), member.seconds, seconds,
        )  # fmt: skip
    return Dealt(result, backends, members, expected)


def dealt_outlook(problem: GemmProblem, devices: Devices, backend: str | None, choice: Choice) -> Outlook:
    """What the devices of `devices=`, which need not be here, are expected to take.

    Raises:
        ShapeError: there is nothing to compute. Others as `dealt_product`.
    """
    if problem.empty:
        raise ShapeError(f"a product that is dealt to devices must have elements; got {problem}")
    chosen = chosen_devices(devices, backend)
    infos = [each.device if isinstance(each, Backend) else each for each in chosen]
    plans = _plans(infos, problem, choice, named=not isinstance(devices, str))
    return outlook(problem, [plan for plan in plans if plan is not None], configuration_of(choice.config))


def check_dealt(
    on_device: Sequence[Given], device: object, queue: object = None, wait_for: object = ()
) -> None:  # fmt: skip
    """Raises ArrayError or UnsupportedError where a product cannot be dealt to devices as it was asked for."""
    if device is not None:
        raise UnsupportedError(f"device must be None where devices are named; got {device!r}: add it to devices")
    if on_device:
        first = on_device[0]
        raise ArrayError(
            f"{first.name} is on a device, and devices= deals arrays that are in the host's memory: leave devices out, which "
            f"computes where {first.name} is, or copy it to the host with get(); arrays that lie on several devices are not "
            "multiplied where they are"
        )
    if queue is not None or wait_for not in ((), None, []):
        raise UnsupportedError(
            "queue and wait_for must be left out with devices: each device works on its own queue, awaited"
        )


def _problem(product: Product, choice: Choice) -> GemmProblem:
    shape, types = product.shape, product.types
    return GemmProblem.create(
        shape[-2], shape[-1], product.k, batch=shape[0] if len(shape) == 3 else 1, dtype=types.inputs, output=types.output,
        accumulator=choice.accumulator, trans_a=product.op_a, trans_b=product.op_b, alpha=product.alpha, beta=product.beta,
        precision=choice.precision_of(as_dtype(types.inputs)),
    )  # fmt: skip


def _plans(
    devices: Sequence[DeviceInfo], problem: GemmProblem, choice: Choice, *, named: bool
) -> list[Plan | None]:  # fmt: skip
    """The plan of each device; None of those that cannot compute the problem.

    Args:
        named: whether each was asked for, so that none is left out.
    """
    plans: list[Plan | None] = []
    refusal: DtypeError | UnsupportedError | None = None
    for device in devices:
        try:
            plans.append(plan(problem, device, kernel=choice.kernel, params=choice.params, config=choice.config))
        except (DtypeError, UnsupportedError) as error:
            if named:
                raise
            log.info("%s is left out: %s", device.label, error)
            plans.append(None)
            refusal = error
    if refusal is not None and not any(plans):
        raise refusal
    return plans


def _alone(
    order: Sequence[Backend], backends: Sequence[Backend], product: Product, given: Mapping[str, Given],
    compute_by: Callable[[Backend], HostArray], expected: Outlook | None,
) -> Dealt:  # fmt: skip
    """The product by one device: the first of an order that does not fail."""
    reasons: dict[str, Exception] = {}
    overwritten = product.c is not None and "out" in given  # C may be gone when a device has failed
    for name, backend in zip(_names(order), order, strict=True):
        started = time.perf_counter()
        try:
            result = compute_by(backend)
        except (MemoryError, LaunchError, CompileError) as error:
            if len(order) == 1 or overwritten:
                raise
            log.warning("%s failed, and another device computes: %s", name, error)
            reasons[name] = error
            continue
        shape = product.shape
        whole = Tile.whole(shape[0] if len(shape) == 3 else 1, *shape[-2:])
        member = Member(name, 0.0, Room(0, 0), tiles=[whole], seconds=time.perf_counter() - started)
        return Dealt(result, backends, [member], expected)
    raise failed(reasons)


def _names(backends: Sequence[Backend]) -> list[str]:
    """Labels, with a number where several devices have one."""
    labels = [backend.device.label for backend in backends]
    seen: Counter[str] = Counter()
    names = []
    for label in labels:
        seen[label] += 1
        names.append(f"{label} #{seen[label]}" if labels.count(label) > 1 else label)
    return names


def _as_read(x: DeviceArray | HostArray, product: Product) -> HostArray:
    """An operand in the type in which it is read, and so that its panels are read in place: converted once, not per tile."""
    host = cast("HostArray", x)
    if host.dtype != product.types.inputs:
        with np.errstate(all="ignore"):
            return host.astype(product.types.inputs)
    strides = element_strides(host)
    return host if strides is not None and readable_in_place(host.shape, strides) else np.ascontiguousarray(host)


def _needs(product: Product) -> Needs:
    inputs, output = product.types.inputs.itemsize, product.types.output.itemsize
    line = max(product.k, 1) * inputs
    batched_a, batched_b = (cast("HostArray", x).ndim == 3 for x in (product.a, product.b))
    return Needs(line, line, output * (1 if product.c is None else 2), batched_a, batched_b)


class _Work:
    """One device at work: computes tiles of a product from views of the host's arrays, to their end."""

    def __init__(
        self, backend: Backend, member: Member, deal: Deal, product: Product, result: HostArray, choice: Choice, *, update: bool
    ) -> None:  # fmt: skip
        self.backend = backend
        self.member = member
        self.deal = deal
        self.product = product
        self.result = result
        self.choice = choice
        self.update = update
        self.in_place = backend.borrow(np.zeros(1)) is not None
        # Not awaited, so that nothing is used in place: panels stay on the device after their tile.
        self.panels = Panels(lambda host: readable(Placement(backend, awaited=False), host, host.dtype))

    def __call__(self, tile: Tile) -> float | None:
        """Computes a tile, as `gemmport.multidevice.crew.Work`."""
        stays = "b" if self.deal.along == "rows" else "a"
        programs, sent = self._programs(), self.panels.seconds.get(stays, 0.0)
        started = time.perf_counter()
        try:
            self._compute(tile)
        except MemoryError:
            self.panels.clear()
            raise
        if self._programs() != programs:
            return None
        return time.perf_counter() - started - (self.panels.seconds.get(stays, 0.0) - sent)

    def _programs(self) -> int:
        """That were made so far: a tile for which one was says nothing of the next."""
        counts = self.backend.program_counts
        return counts.compiled + counts.from_disk

    def _compute(self, tile: Tile) -> None:
        product, place = self.product, Placement(self.backend, awaited=True)
        place.queue = self.backend.as_queue(None)
        view = _part_of(self.result, tile)
        one = replace(
            product, a=self._operand("a", tile), b=self._operand("b", tile), shape=view.shape,
            c=None if product.c is None else _part_of(cast("HostArray", product.c), tile),
        )  # fmt: skip
        lent = place.borrow_host(view) if self._is_used_in_place(view) and not self.update else None
        if lent is not None:
            try:
                enqueue(place, one, lent, self.choice)
            finally:
                self.backend.give_back(lent.memory, queue=place.queue)
            return
        computed = enqueue(place, one, None, self.choice)
        if view.flags.c_contiguous and not self.update and view.size:
            self.backend.download(computed.memory, view)
        else:  # C is read to its end before it is written, so that a tile that fails is computed again
            view[...] = computed.get()

    def _operand(self, name: str, tile: Tile) -> DeviceArray | HostArray:
        """The panel of an operand that a tile reads: in place where the device reads the host's memory, else sent."""
        host = cast("HostArray", getattr(self.product, name))
        lines, op = (tile.rows, self.product.op_a) if name == "a" else (tile.columns, self.product.op_b)
        axis = _axis(name, op)
        matrices = tile.matrices if host.ndim == 3 else None
        view = host if matrices is None else host[matrices.slice]
        view = view[..., lines.slice, :] if axis == -2 else view[..., lines.slice]
        if self._is_used_in_place(view):
            return view
        result = self.deal.needs.element * tile.size
        return self.panels.get(
            name, host, matrices=matrices, axis=axis, lines=lines, memory=self.member.room.memory - result
        )

    def _is_used_in_place(self, view: HostArray) -> bool:
        """Whether the device uses a part of the host's memory, which may not be larger than one allocation, as it lies."""
        reach = sum((n - 1) * abs(step) for n, step in zip(view.shape, view.strides, strict=True)) + view.itemsize
        return self.in_place and reach <= self.backend.device.max_allocation


def _axis(name: str, op: Op) -> int:
    """Of an operand, the dimension that is not summed over."""
    return -1 if (name == "b") != transposes(op) else -2


def _part_of(x: HostArray, tile: Tile) -> Any:
    """A tile's part of an array of the result's shape."""
    part = x[tile.matrices.slice] if x.ndim == 3 else x
    return part[..., tile.rows.slice, tile.columns.slice]
