"""Products of host arrays that several devices compute: what `devices=` does."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, cast

import numpy as np

from gemmport.api.arguments import Given, HostArray
from gemmport.api.at_home import routine_at_home
from gemmport.api.host import result_of
from gemmport.api.overlap import overlap
from gemmport.api.placement import Placement
from gemmport.api.plans import configuration_of, plan
from gemmport.api.product import Choice, Product, check_written, enqueue, problem_of_arrays
from gemmport.api.routine import AtHome, Routine
from gemmport.api.sharded import line_axis
from gemmport.api.spread import Spread, labels, pieces
from gemmport.api.streamed import Bounds, problem_of, run_streamed, streamed_result
from gemmport.backends.array import DeviceArray
from gemmport.backends.base import Backend
from gemmport.core.device import DeviceInfo
from gemmport.core.errors import ArrayError, DtypeError, GemmportError, ShapeError, UnsupportedError
from gemmport.core.layout import element_strides, readable_in_place
from gemmport.core.plan import Plan
from gemmport.core.problem import GemmProblem
from gemmport.execution.copies import dense_copy
from gemmport.execution.links import Between, between, expected_between
from gemmport.execution.selection import devices as known_devices
from gemmport.execution.selection import get_backend
from gemmport.execution.sharded import ShardedArray
from gemmport.multidevice.crew import FAILURES, compute, failed
from gemmport.multidevice.deal import Deal, Member
from gemmport.multidevice.outlook import Outlook, Passing, home_parts, outlook, placed
from gemmport.multidevice.outlook import Placement as ArraysPlacement
from gemmport.multidevice.selection import Devices, chosen_backends, chosen_devices
from gemmport.multidevice.tiles import Needs, Room, Tile
from gemmport.outofcore.elsewhere import BUFFER, Elsewhere, OnDevice, OnDevices
from gemmport.outofcore.operands import Matrix, Sliced, may_share
from gemmport.outofcore.streaming import Kept, Operands
from gemmport.planning.lookup import Configuration
from gemmport.planning.schedule import DOUBLE, Schedule, converts, one_pass, resident_type

log = logging.getLogger(__name__)

MEMORY = 0.8
"""Of a device's memory, what tiles may take: the rest is for scratch memory, programs and other users. A device that is short
of it all the same gets smaller tiles."""

PACKED = 0.1
"""Likewise, what all devices together may take to pack rows in that do not lie one after another, before they travel."""


@dataclass(frozen=True)
class Dealt:
    """A product that several devices computed.

    Attributes:
        result: in `out`, where that is written in place, else a new array.
        backends: the devices that can compute it, in the order in which they were given.
        members: what each of these did; one alone where dealing was not expected to pay.
        outlook: what was expected; None where there was nothing to compute, or each device computed what it has.
        routine: by which each did; None where it does not serve for other arrays that lie alike.
    """

    result: HostArray
    backends: Sequence[Backend]
    members: Sequence[Member]
    outlook: Outlook | None
    routine: Routine | None = None

    @property
    def names(self) -> list[str]:
        """Of the devices, as of members."""
        return labels(self.backends)


def dealt_product(
    devices: Devices, backend: str | None, product: Product, given: Mapping[str, Given], choice: Choice, bounds: Bounds,
    alone: Callable[[Backend], HostArray], out: DeviceArray | ShardedArray | None = None,
) -> Dealt:  # fmt: skip
    """The product by several devices of arrays in the host's memory and on devices; awaited.

    Args:
        alone: computes it by one device, where all arrays are in the host's memory.
        out: on a device, or in shards on several, where to write; None where that is in the host's memory.

    Raises:
        UnsupportedError: `choice` asks for the same bits each time.
        DevicesFailedError: every device has failed; the result may hold anything then.
        ArrayLostError: one has failed on which an operand or the result lies, which the others could not do without.
        Others as `gemmport.multidevice.selection.chosen_backends`, and as `gemm` where there is no plan for a device that was
            named. Of "all", those without one are left out.
    """
    if choice.deterministic:
        raise UnsupportedError(
            "deterministic must be False with devices: which device computes an element is decided while they work, and each "
            "adds up in its own order; name one with device="
        )
    backends: Sequence[Backend] = chosen_backends(devices, backend)
    problem = problem_of_arrays(product, choice)
    present = [x for x in (product.a, product.b, product.c, out) if x is not None]
    lying = pieces(present)
    if problem.empty and lying:
        empty: Any = _result(product, given)[0] if out is None else out
        return Dealt(empty, backends, [], None)
    if problem.empty:
        return _alone(backends, backends, product, given, alone, None)
    configuration = configuration_of(choice.config)
    spread = Spread(problem, product, out, backends, configuration)
    begun = time.perf_counter()
    apart: Product | None = None
    done: Sequence[AtHome] = ()
    if spread.homes and out is not None and not bounds.asked:
        apart = _apart(product, out)
        lies = pieces([apart.a, apart.b, apart.c, out])
        everyone = [*dict.fromkeys([*backends, *(x.backend for x in lies)])]
        rooms = dict(zip(everyone, _rooms(everyone, bounds, lies), strict=True))
        routine = routine_at_home(spread.homes, backends, rooms, problem, apart, out, choice, configuration)
        if routine is not None:
            done = routine.run({"a": apart.a, "b": apart.b, "c": apart.c, "out": out})
            if sum(len(each.tiles) for each in done) == sum(1 for home in spread.homes if home.tile.size):
                lasts = apart is product and product.scales is None
                return _at_home(problem, backends, out, done, routine if lasts else None)
    found = _plans([each.device for each in backends], problem, choice, named=not isinstance(devices, str))
    backends, plans = zip(*[(each, plan) for each, plan in zip(backends, found, strict=True) if plan], strict=True)
    if len(backends) < len(found):
        spread = Spread(problem, product, out, backends, configuration)
    transfers = [spread.transfers(number) for number in range(len(backends))] if lying else None
    expected = outlook(problem, plans, configuration, transfers)
    totals = dict(zip(map(id, backends), (each.total for each in expected.expected), strict=True))
    fastest_first = sorted(backends, key=lambda each: totals[id(each)])
    fastest = fastest_first[0]
    there = out is not None and all(isinstance(x, DeviceArray) and x.backend is fastest for x in present)
    # Of what else lies on a device, those that would be the last to end leave it to the others.
    if not expected.pays and (there or not (lying or (len(backends) == 1 and expected.overlaps))):
        if len(backends) > 1:
            log.info("%s is not dealt: %s computes it alone: %s", problem, fastest.device.label, expected.reason)
        if not there:
            return _alone(fastest_first, backends, product, given, alone, expected)
        written = cast("DeviceArray", out)
        return _alone([fastest], backends, product, given, partial(_computed_there, product, choice, written), expected)
    if out is None:
        result, update = _result(product, given)
    else:
        product, result, update = apart or _apart(product, out), out, False
    return _by_deal(problem, product, result, backends, expected, spread, done, begun, choice, bounds, update=update)


def _by_deal(
    problem: GemmProblem, product: Product, result: Any, backends: Sequence[Backend], expected: Outlook, spread: Spread,
    done: Sequence[AtHome], begun: float, choice: Choice, bounds: Bounds, *, update: bool,
) -> Dealt:  # fmt: skip
    """A product in tiles.

    Args:
        done: what needs not be dealt. begun: when work on the product has, by `time.perf_counter`.
        update: whether C is the result, in the host's memory.
    """
    whole = Tile.whole(problem.batch, problem.m, problem.n)
    members = _members(backends, problem, expected, spread, bounds)
    scaled = product.scales is not None
    needs = _needs(problem, *(cast("HostArray", x).ndim == 3 for x in (product.a, product.b)), scaled=scaled)
    deal = Deal(whole, members, needs, spread.along, spread.homes)
    if bounds.host_memory is not None:
        bounds = replace(bounds, host_memory=bounds.host_memory // len(members))
    for each in done:
        deal.at_home(members[[*backends].index(each.backend)], each.tiles, each.seconds)
    works = [
        _Work(one, member, deal, product, result, choice, bounds, update=update)
        for one, member in zip(backends, members, strict=True)
    ]
    try:
        compute(deal, works)
    finally:
        for work in works:
            work.kept.close(work.backend)
    _tell(problem, members, time.perf_counter() - begun)
    return Dealt(result, backends, members, expected)


def _members(
    backends: Sequence[Backend], problem: GemmProblem, expected: Outlook, spread: Spread, bounds: Bounds
) -> list[Member]:
    """The devices as they take part in a deal."""
    elements = problem.batch * problem.m * problem.n
    named = zip(labels(backends), backends, expected.rates, _rooms(backends, bounds, spread.lying), strict=True)
    return [
        Member(name, elements * rate, room, spread.abroad(number), one.device.identity)
        for number, (name, one, rate, room) in enumerate(named)
    ]


def _at_home(
    problem: GemmProblem, backends: Sequence[Backend], out: DeviceArray | ShardedArray, done: Sequence[AtHome],
    routine: Routine | None,
) -> Dealt:  # fmt: skip
    """A product of which each device has computed what it has."""
    members = [Member(name, 0.0, Room(0, 0)) for name in labels(backends)]
    for each in done:
        member = members[[*backends].index(each.backend)]
        member.tiles, member.seconds = [*each.tiles], each.seconds
    _tell(problem, members, max(member.seconds for member in members))
    return Dealt(cast("Any", out), backends, members, None, routine)


def _tell(problem: GemmProblem, members: Sequence[Member], seconds: float) -> None:
    """Tells the log of each device's share."""
    for member in members:
        log.info(
            "%s: %s computed %.1f %% in %d tiles, at work for %.3g of %.3g s", problem, member.name,
            100 * member.elements / (problem.batch * problem.m * problem.n), len(member.tiles), member.seconds, seconds,
        )  # fmt: skip


def dealt_outlook(
    problem: GemmProblem, devices: Devices, backend: str | None, choice: Choice, device_memory: int | None = None,
    placement: ArraysPlacement = "host",
) -> Outlook:  # fmt: skip
    """What the devices of `devices=`, which need not be here, are expected to take of arrays that are placed so.

    Raises:
        ShapeError: there is nothing to compute. Others as `dealt_product`.
    """
    if problem.empty:
        raise ShapeError(f"a product that is dealt to devices must have elements; got {problem}")
    chosen = chosen_devices(devices, backend)
    infos = [each.device if isinstance(each, Backend) else each for each in chosen]
    plans = _plans(infos, problem, choice, named=not isinstance(devices, str))
    configuration = configuration_of(choice.config)
    found = outlook(problem, [plan for plan in plans if plan is not None], configuration)
    if placement != "host":
        found = placed(found, placement, partial(_between, configuration, chosen))
    return replace(found, passing=_passing(found, device_memory))


def _between(
    configuration: Configuration, chosen: Sequence[DeviceInfo | Backend], one: DeviceInfo, other: DeviceInfo
) -> Between:
    """What lies between two devices, from the first to the second: measured, where both are here and one may reach another."""
    expected = expected_between(one, other, configuration)
    given = {each.device: each for each in chosen if isinstance(each, Backend)}
    if not expected.directly or not all(each in given or each in known_devices() for each in (one, other)):
        return expected
    sender, receiver = (given.get(each) or get_backend(device=each) for each in (one, other))
    return between(sender, receiver, configuration)


def _passing(found: Outlook, device_memory: int | None) -> tuple[Passing | None, ...]:
    """How the first tile of each device passes through it, by what is predicted of all."""
    problem, infos = found.problem, [each.device for each in found.expected]
    whole = Tile.whole(problem.batch, problem.m, problem.n)
    bounds = Bounds(device_memory)
    members = [
        Member(device.label, whole.size * rate, _room(device, bounds), kind=device.identity)
        for device, rate in zip(infos, found.rates, strict=True)
    ]
    batched = [problem.batch > 1 and problem.layout(name).batch_stride != 0 for name in ("a", "b")]
    deal = Deal(whole, members, _needs(problem, *batched), *home_parts(problem, found.placement, len(members)))
    stays = _stays(deal)
    told: list[Passing | None] = []
    for device, member in zip(infos, members, strict=True):
        tile = deal.take(member, 0.0)
        if not isinstance(tile, Tile) or (device.type == "cpu" and device_memory is None):
            told.append(None)
            continue
        part = GemmProblem.create(
            tile.rows.size, tile.columns.size, problem.k, dtype=problem.dtype, output=problem.output,
            accumulator=problem.accumulator, alpha=problem.alpha,
        )  # fmt: skip
        one = one_pass(part, stays=stays, memory=member.room.memory, allocation=member.room.allocation)
        told.append(Passing(tile.rows.size, tile.columns.size, one.panels, one.depth, stays))
    return tuple(told)


def check_dealt(device: object, bounds: Bounds, queue: object = None, wait_for: object = ()) -> None:
    """Raises UnsupportedError where a product cannot be dealt to devices as it was asked for."""
    if device is not None:
        raise UnsupportedError(f"device must be None where devices are named; got {device!r}: add it to devices")
    for name in ("checkpoint", "progress"):
        if getattr(bounds, name) is not None:
            raise UnsupportedError(
                f"{name} must be left out with devices: which tiles there are is decided while they work; name one with device="
            )
    if queue is not None or wait_for not in ((), None, []):
        raise UnsupportedError(
            "queue and wait_for must be left out with devices: each device works on its own queue, awaited"
        )


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
    for name, backend in zip(labels(order), order, strict=True):
        started = time.perf_counter()
        try:
            result = compute_by(backend)
        except FAILURES as error:
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


def _computed_there(product: Product, choice: Choice, out: DeviceArray | None, backend: Backend) -> Any:
    """The product by the device on which all of it lies; awaited."""
    written = enqueue(Placement(backend, awaited=True), product, out, choice)
    backend.synchronize()
    return written


def _result(product: Product, given: Mapping[str, Given]) -> tuple[Any, bool]:
    """Where tiles are written, and whether C is there, which is updated."""
    if not any(isinstance(x, Sliced) for each in given.values() for x in each.arrays):
        return result_of(product, given)
    out = streamed_result(product, given)
    c = cast("Any", product.c)
    if c is None or not may_share(c, out):
        return out, False
    if isinstance(out, Sliced):
        raise ArrayError(
            "out must not be c where it is written in slices and devices are named: a device would read chunks that another "
            "writes; write to another array"
        )
    return out, True


def _room(device: DeviceInfo, bounds: Bounds, lying: Sequence[DeviceArray] = ()) -> Room:
    """Of a device, for tiles, beside the arrays that lie there."""
    taken = {id(x.memory): x.memory.nbytes for x in lying}
    memory = max(device.memory - sum(taken.values()), 0)
    if bounds.device_memory is not None:
        memory = min(memory, bounds.device_memory)
    return Room(int(MEMORY * memory), device.max_allocation)


def _rooms(backends: Sequence[Backend], bounds: Bounds, lying: Sequence[DeviceArray]) -> list[Room]:
    """Of each device, beside what lies there."""
    return [_room(one.device, bounds, [x for x in lying if x.backend is one]) for one in backends]


def _needs(problem: GemmProblem, batched_a: bool, batched_b: bool, *, scaled: bool = False) -> Needs:
    resident, output = resident_type(problem, scaled=scaled), problem.output
    line = max(problem.k, 1) * problem.dtype.itemsize
    element = resident.itemsize + (DOUBLE * output.itemsize if converts(problem, scaled=scaled) else 0)
    return Needs(line, line, element, batched_a, batched_b)


def _apart(product: Product, out: DeviceArray | ShardedArray) -> Product:
    """A product whose operands keep their values while `out` is written: C is copied where it is also that.

    Raises:
        ArrayError: `out` cannot be written, has shards that overlap each other, or overlaps A or B.
        DeviceMemoryError: a device has no room for a copy of C.
    """
    written, c = pieces([out]), product.c
    for number, piece in enumerate(written):
        if any(overlap(piece, other) for other in written[:number]):
            raise ArrayError(
                f"out must be in shards that do not overlap; shards[{number}] overlaps another: use other arrays"
            )
        for name in ("a", "b", "c"):
            for other in pieces([getattr(product, name)]):
                check_written(piece, {name: other})
    if isinstance(c, ShardedArray):
        shards = [_apart_from(shard, written) for shard in c.shards]
        copied = any(shard is not given for shard, given in zip(shards, c.shards, strict=True))
        return replace(product, c=cast("Any", ShardedArray(shards, c.axis))) if copied else product
    if isinstance(c, DeviceArray) and (copy := _apart_from(c, written)) is not c:
        return replace(product, c=copy)
    return product


def _apart_from(x: DeviceArray, written: Sequence[DeviceArray]) -> DeviceArray:
    """An array, or a copy of it where some of its elements are written."""
    return dense_copy(x, x.dtype, queue=x.queue) if any(overlap(x, each) for each in written) else x


def _stays(deal: Deal) -> Literal["a", "b"]:
    """The operand whose panels the tiles of a device have in common."""
    return "b" if deal.along == "rows" else "a"


class _Work:
    """One device at work: computes tiles of a product from parts of the host's arrays, to their end.

    Where the device reads and writes the parts in place, nothing is copied. Else they pass through it
    (`gemmport.outofcore.streaming`), and the panels of the operand that the next tile reads, too, stay.
    """

    def __init__(
        self, backend: Backend, member: Member, deal: Deal, product: Product, result: Any, choice: Choice, bounds: Bounds,
        *, update: bool,
    ) -> None:  # fmt: skip
        self.backend = backend
        self.member = member
        self.deal = deal
        there = {name: x for name in ("a", "b", "c") if pieces([x := getattr(product, name)])}
        lying = pieces([*there.values(), result])
        memory = min([bounds.device_memory or backend.device.memory, *(x.device.memory for x in lying)])
        # Each device packs for each array, and what lies on a device is packed there for each other.
        self.buffer = min(BUFFER, int(PACKED * memory) // max(len(lying) * len(deal.members), 1))
        self.product = replace(product, **{name: self._elsewhere(x, name) for name, x in there.items()})  # type: ignore[arg-type]
        self.result: Any = self._elsewhere(result, "d", written=True) if pieces([result]) else result
        self.choice = choice
        self.bounds = bounds
        self.update = update
        self.shares = bounds.device_memory is None and backend.borrow(np.zeros(1)) is not None
        self.stays = _stays(deal)
        self.kept = Kept()

    def _elsewhere(self, x: DeviceArray | ShardedArray, name: str, *, written: bool = False) -> Elsewhere:
        """What lies on devices, as `_part` takes it."""
        if isinstance(x, DeviceArray):
            return OnDevice(x, self.backend, name, written=written, buffer=self.buffer)
        shards = [OnDevice(each, self.backend, name, written=written, buffer=self.buffer) for each in x.shards]
        return OnDevices(shards, x.axis - x.ndim)

    def __call__(self, tile: Tile) -> float | None:
        """Computes a tile, as `gemmport.multidevice.crew.Work`."""
        programs, held = self._programs(), self.kept.of
        started = time.perf_counter()
        try:
            self._compute(tile)
        except (GemmportError, MemoryError):
            self.kept.forget()
            raise
        if self._programs() != programs or self.kept.of != held:  # the next tile finds its panels there
            return None
        return time.perf_counter() - started

    def _programs(self) -> int:
        """That were made so far: a tile for which one was says nothing of the next."""
        counts = self.backend.program_counts
        return counts.compiled + counts.from_disk

    def _compute(self, tile: Tile) -> None:
        view = _part_of(self.result, tile)
        product = replace(
            self.product, a=self._operand("a", tile), b=self._operand("b", tile), shape=view.shape,
            c=None if self.product.c is None else _part_of(cast("Any", self.product.c), tile),
            scales=None if (x := self.product.scales) is None else x.part(tile.matrices, tile.rows, tile.columns),
        )  # fmt: skip
        place = Placement(self.backend, awaited=True, queue=self.backend.as_queue(None))
        inputs, output = product.types.inputs, product.types.output
        read = [(product.a, inputs), (product.b, inputs), *([] if product.c is None else [(product.c, output)])]
        in_place = not self.update and all(self._is_used_in_place(*each) for each in [*read, (view, output)])
        lent = place.borrow_host(view) if in_place else None
        if lent is None:
            self._stream(place, tile, product, view)
            return
        try:
            enqueue(place, product, lent, self.choice)
        finally:
            self.backend.give_back(lent.memory, queue=place.queue)

    def _stream(self, place: Placement, tile: Tile, product: Product, view: Any) -> None:
        """Computes a tile whose operands pass through the device."""
        out = np.empty(view.shape, product.types.output) if self.update else view
        c = None if product.c is None else Matrix("c", cast("Any", product.c))
        a, b = (Matrix(name, cast("Any", x), op) for name, x, op in
                (("a", product.a, product.op_a), ("b", product.b, product.op_b)))  # fmt: skip
        room = self.member.room
        found = one_pass(
            problem_of(product, self.choice, a.op, b.op),
            stays=self.stays,
            memory=room.memory,
            allocation=room.allocation,
            scaled=product.scales is not None,
        )
        self._keep(tile, found)
        scales = (None, None) if product.scales is None else product.scales.on_host()
        run_streamed(
            place, found, Operands(a, b, c, Matrix("out", out), scales), self.choice, self.bounds, lend=self.shares,
            stays=self.stays, kept=self.kept,
        )  # fmt: skip
        if self.update:  # C is read to its end before it is written, so that a tile that fails is computed again
            view[...] = out

    def _keep(self, tile: Tile, found: Schedule) -> None:
        """Has the panels stay that the tile before has left, if this one reads the same; else gives their memory back."""
        batched = cast("Any", getattr(self.product, self.stays)).ndim == 3
        across = tile.columns if self.stays == "b" else tile.rows
        of = (tile.matrices if batched else None), across, found.depth
        if of != self.kept.of:
            self.kept.forget()
            self.kept.of = of

    def _operand(self, name: str, tile: Tile) -> Any:
        """The part of an operand that a tile reads."""
        x = cast("Any", getattr(self.product, name))
        lines, op = (tile.rows, self.product.op_a) if name == "a" else (tile.columns, self.product.op_b)
        terms = slice(0, self.product.k)
        matrices = (tile.matrices.slice,) if x.ndim == 3 else ()
        return _part(x, (*matrices, *((lines.slice, terms) if line_axis(name, op) == -2 else (terms, lines.slice))))

    def _is_used_in_place(self, view: Any, dtype: np.dtype[Any]) -> bool:
        """Whether the device uses a part of the host's memory, which may not be larger than one allocation, as it lies."""
        if not self.shares or not isinstance(view, np.ndarray) or view.dtype != dtype:
            return False
        strides = element_strides(view)
        if strides is None or readable_in_place(view.shape, strides) is None:
            return False
        reach = sum((n - 1) * abs(step) for n, step in zip(view.shape, view.strides, strict=True)) + view.itemsize
        return reach <= self.backend.device.max_allocation and (not view.size or self.backend.borrow(view) is not None)


def _part_of(x: HostArray | Sliced | Elsewhere, tile: Tile) -> Any:
    """A tile's part of an array of the result's shape."""
    matrices = (tile.matrices.slice,) if x.ndim == 3 else ()
    return _part(x, (*matrices, tile.rows.slice, tile.columns.slice))


def _part(x: HostArray | Sliced | Elsewhere, key: tuple[slice, ...]) -> Any:
    return x[key] if isinstance(x, np.ndarray) else x.part(key)
