"""Products whose operands have no room on a device: in which tiles, and in which order, they are computed there.

A tile of D stays on the device while panels of A and B pass by, and each adds a product to it. Tiles are visited row by row (or
column by column), back and forth, and panels forth and back, so that what the last tile read last is there for the next. Tiles
as near to squares as fit make the traffic the least: T. M. Smith et al., "A Tight I/O Lower Bound for Matrix Multiplication"
(arXiv 1702.02017, 2019) shows that none has less than about 2mnk/√M elements, where the device holds M.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

from gemmport.contracts.device_model import DeviceModel
from gemmport.core.device import DeviceInfo
from gemmport.core.dtypes import FLOAT32, DType
from gemmport.core.errors import DeviceMemoryError
from gemmport.core.problem import GemmProblem, Operand

Cost = Callable[[GemmProblem], tuple[float, int]]
"""Seconds that a product of operands on the device is expected to take, and the scratch memory that it takes, in bytes."""

BOUND = 1.3
"""Times what no schedule can do without: schedules with more traffic are taken only where none has less."""

MOST_STRIPS, LEAST_STRIP = 8, 256
"""Strips of rows in which a tile is brought and taken away, while others are computed; and rows of a strip at least."""

_STRIP_GRAIN = 128
"""Rows of which strips have whole multiples: kernels' tiles divide it, so that none computes rows beyond a strip in vain."""

DOUBLE = 2
"""Panels of an operand that are on the device at least: one is read by a product while the next arrives."""

MOST_PANELS, LEAST_DEPTH = 8, 1024
"""Panels in which an operand passes by a tile that is the only one, and terms of such a panel at least: a product of so many
reads and writes its sums in a few percent of its time.
"""

_SHRINK, _EQUAL_TILES = 0.8, 16
"""Numbers of rows that are tried: equal shares up to a number of tiles, and then each of these times the one before."""

_LARGE, _FIRST = 2**28, 0.75
"""Bytes from which on a tile that would be the only one becomes two, and the share of the rows that the first of these has. It
takes the host's cores longer to take a tile away than a device to multiply the last panel.

Orders of magnitude, for every device: no chip's rates are in them. At the 10 to 50 GB/s of today's links so many bytes take 5
to 25 ms, beside which the launches of one more tile, microseconds, do not count; the last quarter is what nothing hides.
"""

_ROUNDS = 12
"""Of making room for scratch memory. The first few find it, mostly; the others halve what is left."""


@dataclass(frozen=True)
class Traffic:
    """Elements that are moved between the host and a device.

    Attributes:
        a, b, c: of operands, brought to the device. d: of the result, taken from it.
    """

    a: int
    b: int
    c: int
    d: int

    @property
    def elements(self) -> int:
        """All of them."""
        return self.a + self.b + self.c + self.d


@dataclass(frozen=True)
class Tile:
    """A tile of D, from first to last row and column (exclusive), of one product of a batch.

    Attributes:
        batch, row, column: its place among the tiles.
        forth: whether its panels are visited from the first to the last.
    """

    batch: int
    row: int
    column: int
    rows: tuple[int, int]
    columns: tuple[int, int]
    forth: bool

    @property
    def place(self) -> tuple[int, int, int]:
        """What tells it from the others."""
        return self.batch, self.row, self.column


@dataclass(frozen=True)
class Schedule:
    """How a product passes through a device.

    Attributes:
        problem: the whole; its layouts say only which operands serve a whole batch (batch stride 0).
        rows, columns: of a tile of D. depth: terms of a panel of A (rows × depth) and of B (depth × columns).
        a_panels, b_panels: that are on the device at a time.
        by_rows: whether tiles are visited row by row; else column by column.
        parts: allocations of a tile, each of as many rows; `strips`: of rows of each part.
        memory: bytes of the device that it was made for. scratch: of these, left for scratch memory of kernels.
        seconds: that are expected.
        scaled: whether rows and columns of D have scales: a tile leaves, and C comes, where they multiply its sums.
    """

    problem: GemmProblem
    rows: int
    columns: int
    depth: int
    a_panels: int
    b_panels: int
    by_rows: bool
    parts: int
    strips: int
    memory: int
    scratch: int = 0
    seconds: float = 0.0
    scaled: bool = False

    @cached_property
    def resident(self) -> DType:
        """The type in which a tile stays on the device: that of the sums where it is finer than that of D, so that no sum is
        rounded between panels. Integers wrap around in either.
        """
        return resident_type(self.problem, scaled=self.scaled)

    @property
    def converts(self) -> bool:
        """Whether a tile is converted, or scaled, before it leaves, or after it comes."""
        return converts(self.problem, scaled=self.scaled)

    @property
    def terms(self) -> int:
        """Terms of each sum."""
        return self.problem.effective_k

    @property
    def row_tiles(self) -> int:
        """Tiles in a column."""
        return _tiles(self.problem.m, self.rows)

    @property
    def column_tiles(self) -> int:
        """Tiles in a row."""
        return _tiles(self.problem.n, self.columns)

    @property
    def panels(self) -> int:
        """Panels that each tile takes of A, and of B; one where there is nothing to sum."""
        return max(_tiles(self.terms, self.depth), 1)

    @property
    def count(self) -> int:
        """All tiles."""
        return 0 if self.problem.empty else self.problem.batch * self.row_tiles * self.column_tiles

    def panel(self, number: int) -> tuple[int, int]:
        """The first term of a panel, and the one after its last."""
        start = number * self.depth
        return start, min(start + self.depth, self.terms)

    def tiles(self) -> Iterator[Tile]:
        """All tiles in order."""
        problem = self.problem
        outer, inner = self.row_tiles, self.column_tiles
        if not self.by_rows:
            outer, inner = inner, outer
        for batch in range(problem.batch if self.count else 0):
            forth = True
            for first in range(outer):
                for second in range(inner) if first % 2 == 0 else reversed(range(inner)):
                    row, column = (first, second) if self.by_rows else (second, first)
                    yield Tile(
                        batch,
                        row,
                        column,
                        _extent(row, self.rows, problem.m),
                        _extent(column, self.columns, problem.n),
                        forth,
                    )
                    forth = not forth

    def order(self, tile: Tile) -> Iterable[int]:
        """The numbers of a tile's panels in the order in which it takes them."""
        return range(self.panels) if tile.forth else reversed(range(self.panels))

    def strips_of(self, tile: Tile) -> list[tuple[int, list[tuple[int, int]]]]:
        """For each part of a tile its first row, and the strips of rows in it, counted from the tile's first row."""
        height = tile.rows[1] - tile.rows[0]
        part, strip = self.part_rows, self.strip_rows
        return [
            (
                first,
                [
                    (start, min(start + strip, first + part, height))
                    for start in range(first, min(first + part, height), strip)
                ],
            )
            for first in range(0, height, part)
        ]

    def key(self, operand: str, tile: Tile, panel: int) -> tuple[int, int, int]:
        """What tells a panel of A or B from the others: its matrix, its place along the tiles, its place along the terms."""
        batch = 0 if self.is_shared(operand) else tile.batch
        return batch, tile.row if operand == "a" else tile.column, panel

    def is_shared(self, operand: str) -> bool:
        """Whether one matrix, A or B, serves a whole batch."""
        return self.problem.batch > 1 and self.problem.layout(operand).batch_stride == 0  # type: ignore[arg-type]

    def capacity(self, operand: str) -> int:
        """Panels of A or B on the device."""
        return self.a_panels if operand == "a" else self.b_panels

    def keeps_all(self, operand: str) -> bool:
        """Whether all panels of a matrix are on the device at a time."""
        return self.capacity(operand) >= self.panels * (self.row_tiles if operand == "a" else self.column_tiles)

    def panel_bytes(self, operand: str) -> int:
        """Of a panel of A or B."""
        return self.depth * (self.rows if operand == "a" else self.columns) * self.problem.dtype.itemsize

    @property
    def tile_bytes(self) -> int:
        """Of a tile as it stays on the device."""
        return self.rows * self.columns * self.resident.itemsize

    @property
    def part_rows(self) -> int:
        """Rows of a part of a tile."""
        return -(-self.rows // self.parts)

    @property
    def strip_rows(self) -> int:
        """Rows of a strip."""
        rows = -(-self.part_rows // self.strips)
        return rows if rows < 2 * _STRIP_GRAIN else min(-(-rows // _STRIP_GRAIN) * _STRIP_GRAIN, self.part_rows)

    @property
    def strip_bytes(self) -> int:
        """Of what a strip is converted in; 0 where nothing is."""
        return DOUBLE * self.strip_rows * self.columns * self.problem.output.itemsize if self.converts else 0

    @property
    def device_bytes(self) -> int:
        """Memory of the device that it takes."""
        panels = sum(self.capacity(operand) * self.panel_bytes(operand) for operand in ("a", "b"))
        scales = DOUBLE * (self.rows + self.columns) * FLOAT32.itemsize if self.scaled else 0
        return self.tile_bytes + panels + self.strip_bytes + scales + self.scratch

    @cached_property
    def traffic(self) -> Traffic:
        """What all tiles move."""
        problem = self.problem
        results = problem.m * problem.n * problem.batch
        if not results:
            return Traffic(0, 0, 0, 0)
        loaded = {}
        for operand in ("a", "b"):
            once = self._loaded(operand)
            again = 1 if self.is_shared(operand) and self.keeps_all(operand) else problem.batch
            loaded[operand] = once * again
        return Traffic(loaded["a"], loaded["b"], results if problem.beta != 0 else 0, results)

    def _loaded(self, operand: str) -> int:
        """Elements of a matrix that are brought for one product."""
        extent, size = (self.problem.m, self.rows) if operand == "a" else (self.problem.n, self.columns)
        others = self.column_tiles if operand == "a" else self.row_tiles
        own, panels, kept, k, depth = _tiles(extent, size), self.panels, self.capacity(operand), self.terms, self.depth
        if not k:
            return 0
        if (operand == "a") == self.by_rows:  # a row of tiles takes the same panels, forth and back
            if kept >= panels:
                return extent * k
            missing = ((panels - kept) * depth, k - kept * depth)  # after a tile that went forth, and back
            # The transitions within a row follow tiles that go forth and back in turns; which is first depends on the row.
            evens, odds = (
                others // 2,
                (others - 1) // 2,
            )  # of others - 1 transitions: after the 1st, 3rd, …; after the others
            total = extent * k
            for parity in (0, 1):
                width = size * len(range(parity, own, 2)) - (own * size - extent if (own - 1) % 2 == parity else 0)
                first = parity * others % 2
                total += width * (evens * missing[first] + odds * missing[1 - first])
            return total
        kept_after = [self._kept(extent, size, parity, kept) for parity in (0, 1)]
        return extent * k * others - sum(kept_after[parity] * len(range(parity, others - 1, 2)) for parity in (0, 1))

    def _kept(self, extent: int, size: int, row: int, kept: int) -> int:
        """Elements of the panels that were read last in a row of tiles, of the operand that changes from tile to tile.

        Args:
            row: its number, of which only the parity matters.
        """
        own, panels, k, depth = _tiles(extent, size), self.panels, self.terms, self.depth
        if kept >= own * panels:
            return extent * k
        whole, rest = divmod(kept, panels)
        if row % 2 == 0:  # the last tiles
            first, last = own - 1 - whole, extent - max(own - whole, 0) * size if whole else 0
        else:
            first, last = whole, min(whole * size, extent)
        number = row * own + own - 1 - whole  # of the tile, of which only some panels are kept
        some = k - (panels - rest) * depth if number % 2 == 0 else rest * depth
        return last * k + (min(size, extent - first * size) * some if rest else 0)

    @property
    def fast_elements(self) -> int:
        """M: elements of D's sums for which the device has room."""
        return max(self.memory // self.resident.itemsize, 1)

    @property
    def bound(self) -> float:
        """2mnk/√M, for each product of a batch."""
        problem = self.problem
        return problem.batch * 2 * problem.m * problem.n * self.terms / math.sqrt(self.fast_elements)

    @property
    def least(self) -> float:
        """Elements that no schedule does without: D once, C once where it is read, and of A and B the larger of 2mnk/√M (G.
        Kwasniewski et al., "Red-Blue Pebbling Revisited", SC 2019: beside D) and all that they have.
        """
        problem = self.problem
        results = problem.m * problem.n * problem.batch * (2 if problem.beta != 0 else 1)
        whole = self.terms * sum(
            extent * (1 if self.is_shared(operand) else problem.batch)
            for operand, extent in (("a", problem.m), ("b", problem.n))
        )
        return 0 if problem.empty else results + max(self.bound, whole)

    @property
    def ratio(self) -> float:
        """The traffic over the least."""
        return self.traffic.elements / self.least if self.least else 1.0

    @property
    def excess(self) -> float:
        """0 where the traffic is within `BOUND` of 2mnk/√M, or of all operands where these are more; 1 where it is within that
        of the least; else more, in tenths.
        """
        problem, elements = self.problem, self.traffic.elements
        results = problem.m * problem.n * problem.batch * (2 if problem.beta != 0 else 1)
        if elements <= BOUND * max(self.bound, self.least - self.bound, results):
            return 0.0
        return 1.0 if self.ratio <= BOUND else round(self.ratio, 1)

    @property
    def moved_bytes(self) -> int:
        """The traffic in bytes."""
        traffic, problem = self.traffic, self.problem
        return (traffic.a + traffic.b) * problem.dtype.itemsize + (traffic.c + traffic.d) * problem.output.itemsize

    @property
    def panel_product(self) -> GemmProblem:
        """The product that most panels take: of a part of a tile, added to what is there."""
        return self.product(self.part_rows, self.columns, self.depth, beta=1)

    def product(self, m: int, n: int, k: int, *, beta: Any, **layouts: Any) -> GemmProblem:
        """A product of parts of panels, added to a part of a tile; with scales alpha multiplies later, too."""
        whole, alpha = self.problem, 1.0 if self.scaled else self.problem.alpha
        return GemmProblem.create(
            m, n, k, dtype=whole.dtype, output=self.resident, accumulator=whole.accumulator, trans_a=whole.trans_a,
            trans_b=whole.trans_b, alpha=alpha, beta=beta, precision=whole.precision, **layouts,
        )  # fmt: skip

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "tile": [self.rows, self.columns],
            "depth": self.depth,
            "panels": [self.a_panels, self.b_panels],
            "by_rows": self.by_rows,
            "tiles": self.count,
            "resident": self.resident.name,
            "memory": self.memory,
            "device_bytes": self.device_bytes,
            "traffic": {**asdict(self.traffic), "elements": self.traffic.elements, "bytes": self.moved_bytes},
            "fast_elements": self.fast_elements,
            "bound": self.bound,
            "least": self.least,
            "seconds": self.seconds,
        }


class Residency:
    """Which slots of the device hold which panels: the panel that was used least lately gives way."""

    def __init__(self, capacity: int) -> None:
        self._held: OrderedDict[Hashable, tuple[int, int]] = OrderedDict()
        self._free = [(slot, -1) for slot in reversed(range(capacity))]

    def use(self, key: Hashable, step: int) -> tuple[int, int | None]:
        """Uses a panel at a step.

        Returns:
            Its slot; and, where the panel must be brought, the last step at which the slot was used for another, else None.
        """
        if key in self._held:
            slot, _ = self._held.pop(key)
            self._held[key] = slot, step
            return slot, None
        if self._free:
            slot, last = self._free.pop()
        else:
            _, (slot, last) = self._held.popitem(last=False)
        self._held[key] = slot, step
        return slot, last

    def clear(self) -> None:
        """Forgets what is held."""
        self._free += self._held.values()
        self._held.clear()

    def again(self) -> Residency:
        """The same slots with the same panels, before the first step of another product."""
        begun = Residency(0)
        begun._held.update((key, (slot, -1)) for key, (slot, _) in self._held.items())
        begun._free = [(slot, -1) for slot, _ in self._free]
        return begun


def resident_type(problem: GemmProblem, *, scaled: bool = False) -> DType:
    """See `Schedule.resident`; scales multiply sums in their own type."""
    finer = problem.accumulator.precision > problem.output.precision
    return problem.accumulator if scaled or finer else problem.output


def converts(problem: GemmProblem, *, scaled: bool) -> bool:
    """See `Schedule.converts`."""
    return scaled or resident_type(problem) != problem.output


def operand_shapes(problem: GemmProblem) -> dict[Operand, tuple[int, int, int]]:
    """Matrices, rows and columns of each operand as a product on the device holds it; C is D."""
    operands: tuple[Operand, ...] = ("a", "b", "d")
    return {
        operand: (
            problem.batch if operand == "d" or problem.layout(operand).batch_stride else 1,
            *problem.stored_shape(operand),
        )
        for operand in operands
    }


def operand_bytes(problem: GemmProblem) -> dict[Operand, int]:
    """Bytes of each of these."""
    return {
        operand: math.prod(shape) * problem.element_type(operand).itemsize
        for operand, shape in operand_shapes(problem).items()
    }


def fits(problem: GemmProblem, memory: int, allocation: int) -> bool:
    """Whether a device has room for all operands at a time, each in one allocation."""
    sizes = operand_bytes(problem).values()
    return sum(sizes) <= memory and max(sizes) <= allocation


USUAL_SHARE = 0.85
"""Of a device's memory, that is used where no bound is given: runtimes and other programs need some."""

_MOST_ON_CPU = 2**31
"""Bytes that are used on a CPU, whose memory is the host's."""


def usual_memory(device: DeviceInfo) -> int:
    """Bytes of a device that a schedule takes where no bound is given, and nothing else is on the device."""
    if device.type == "cpu":
        return min(device.memory // 4, _MOST_ON_CPU)
    return int(USUAL_SHARE * device.memory)


def schedule(
    problem: GemmProblem,
    device: DeviceInfo,
    model: DeviceModel,
    *,
    memory: int | None = None,
    cost: Cost | None = None,
    multiples: tuple[int, int] = (1, 1),
    scaled: bool = False,
) -> Schedule:
    """The schedule that is expected to be the fastest, of those whose traffic is within `BOUND` of the least, if there is one.

    Args:
        memory: bytes of the device that it may take; default: all.
        cost: of products on the device; default: what the model says of multiply-adds and of what a tile is read and written.
        multiples: of which a tile has its rows and columns, unless it has all of D's.
        scaled: as of `Schedule`.

    Raises:
        DeviceMemoryError: there is no room for the least tile.
    """
    limit = device.memory if memory is None else memory
    scratch, too_little, too_much = 0, 0, limit
    least = math.inf  # of what tiles were seen to need
    for _ in range(_ROUNDS):
        try:
            found = _best(problem, device, model, limit, scratch, cost, multiples, scaled=scaled)
        except DeviceMemoryError:
            if scratch == 0:
                raise
            needed = too_much = scratch
        else:
            needed = cost(found.panel_product)[1] if cost is not None and found.count else 0
            if needed <= scratch:
                return found
            too_little, least = scratch, min(least, needed)
        # Smaller tiles mostly need less scratch memory: what the last one needs may be more than there is.
        scratch = needed if needed < too_much else (too_little + too_much) // 2
    raise _no_room(problem, device, limit, int(least), multiples, scaled=scaled)


def one_pass(problem: GemmProblem, *, stays: Operand, memory: int, allocation: int, scaled: bool = False) -> Schedule:
    """The schedule of a product whose panels of one operand pass by once, while those of the other stay.

    It is one tile, or two where B stays and that is large: the first, of most of the rows, leaves while the other is computed.

    Args:
        stays: A or B, of which all panels stay on the device.
        memory: bytes of the device that it may take; what it needs is not checked. allocation: bytes in one allocation.
        scaled: as of `Schedule`.
    """
    rows, columns, k = max(problem.m, 1), max(problem.n, 1), problem.effective_k
    if stays == "b" and problem.batch == 1 and rows * columns * problem.output.itemsize >= _LARGE:
        rows = _rounded(int(_FIRST * rows), rows, rows, 1)
    count = min(MOST_PANELS, max(k // LEAST_DEPTH, 1))
    depth = max(_rounded(-(-k // count), k, k, 1), 1)
    sums = resident_type(problem, scaled=scaled).itemsize
    parts = min(max(_tiles(rows * columns * sums, allocation), 1), rows)
    strips = min(MOST_STRIPS, max(rows // LEAST_STRIP, 1))
    made = Schedule(
        problem, rows, columns, depth, 1, 1, stays == "b", parts, max(strips // parts, 1), memory, scaled=scaled
    )  # fmt: skip
    passing = min(DOUBLE, made.panels * (1 if problem.batch == 1 else DOUBLE))
    if stays == "a":
        return replace(made, a_panels=made.panels, b_panels=passing)
    return replace(made, a_panels=passing, b_panels=made.panels)


def _no_room(
    problem: GemmProblem, device: DeviceInfo, limit: int, scratch: int, multiples: tuple[int, int], *, scaled: bool
) -> DeviceMemoryError:
    least = max(_least(problem, multiples, scaled=scaled) + scratch, limit + 1)
    return DeviceMemoryError(
        f"{device.label}: {problem} has no tile that fits into {limit:,} bytes of the device, beside {scratch:,} of scratch "
        f"memory: allow {least:,} or more"
    )


def _best(
    problem: GemmProblem, device: DeviceInfo, model: DeviceModel, limit: int, scratch: int, cost: Cost | None,
    multiples: tuple[int, int], *, scaled: bool,
) -> Schedule:  # fmt: skip
    by_depth: dict[int, tuple[tuple[float, float], Schedule]] = {}  # of each depth the best, and how good it is
    for found in _candidates(problem, limit, scratch, device.max_allocation, multiples, scaled=scaled):
        seconds = _seconds(found, device, model, _usual_cost(found, model))
        key = found.excess, seconds
        if found.depth not in by_depth or key < by_depth[found.depth][0]:
            by_depth[found.depth] = key, found
    if not by_depth:
        raise _no_room(problem, device, limit, scratch, multiples, scaled=scaled)
    near = sorted(by_depth.values(), key=lambda each: each[0])
    rated = []
    for (excess, usual), each in near:
        told = cost is not None and each.count > 0
        seconds = _seconds(each, device, model, cost(each.panel_product)[0] * each.parts) if told and cost else usual
        rated.append((excess, seconds, each.depth, each))
    _, seconds, _, found = min(rated, key=lambda each: each[:3])
    return replace(found, seconds=seconds)


def _candidates(
    problem: GemmProblem, limit: int, scratch: int, allocation: int, multiples: tuple[int, int], *, scaled: bool
) -> Iterator[Schedule]:
    """Tiles and panels for which there is room."""
    item, sums = problem.dtype.itemsize, resident_type(problem, scaled=scaled).itemsize
    out = problem.output.itemsize if converts(problem, scaled=scaled) else 0
    factor = FLOAT32.itemsize if scaled else 0
    room = limit - scratch
    m, n, k = max(problem.m, 1), max(problem.n, 1), problem.effective_k
    for rows in _extents(m, multiples[0]):
        strips = min(MOST_STRIPS, max(rows // LEAST_STRIP, 1))
        for depth in _depths(k):
            doubled = DOUBLE if depth < k or rows < m else 1
            per_column = rows * sums + DOUBLE * (depth * item + -(-rows // strips) * out + factor)
            most = (room - rows * (doubled * depth * item + DOUBLE * factor)) // per_column
            most = min(most, allocation // max(depth * item, 1), n)
            if most < 1 or rows * depth * item > allocation:
                continue
            tiles = _tiles(n, most)
            for count in dict.fromkeys((tiles, tiles + 1, 2 * tiles)):
                columns = _rounded(-(-n // count), n, most, multiples[1])
                if not columns:
                    continue
                parts = max(_tiles(rows * columns * sums, allocation), 1)
                if parts > rows:
                    continue
                for by_rows in (True, False):
                    made = Schedule(
                        problem,
                        rows,
                        columns,
                        depth,
                        DOUBLE,
                        DOUBLE,
                        by_rows,
                        parts,
                        max(strips // parts, 1),
                        limit,
                        scratch,
                        scaled=scaled,
                    )
                    filled = _filled(made, room + scratch)
                    if filled is not None:
                        yield filled


def _least(problem: GemmProblem, multiples: tuple[int, int], *, scaled: bool) -> int:
    """Bytes of the least tile that is tried, with its panels."""
    (rows, columns), resident = multiples, resident_type(problem, scaled=scaled)
    strips = DOUBLE * problem.output.itemsize if converts(problem, scaled=scaled) else 0
    panels = DOUBLE * min(_depths(problem.effective_k)) * (rows + columns) * problem.dtype.itemsize
    scales = DOUBLE * (rows + columns) * FLOAT32.itemsize if scaled else 0
    return rows * columns * (resident.itemsize + strips) + panels + scales


def _filled(made: Schedule, limit: int) -> Schedule | None:
    """The schedule with as many panels on the device as are of use; None where there is no room for it."""
    own = {"a": made.row_tiles, "b": made.column_tiles}
    least = {operand: min(DOUBLE, made.panels * own[operand]) for operand in own}
    made = replace(made, a_panels=least["a"], b_panels=least["b"])
    left = limit - made.device_bytes
    if left < 0:
        return None
    first, second = ("a", "b") if made.by_rows else ("b", "a")
    counts = dict(least)
    most = {first: made.panels if own[second] > 1 else 0, second: made.panels * own[second] if own[first] > 1 else 0}
    for operand in (first, second):
        if made.is_shared(operand):
            most[operand] = made.panels * own[operand]
        size = max(made.panel_bytes(operand), 1)
        more = max(min(most[operand] - counts[operand], left // size), 0)
        counts[operand] += more
        left -= more * size
    return replace(made, a_panels=counts["a"], b_panels=counts["b"])


def _extents(extent: int, multiple: int) -> list[int]:
    """Numbers of rows that are tried."""
    found = {_rounded(-(-extent // count), extent, extent, multiple): None for count in range(1, _EQUAL_TILES + 1)}
    size = min(found)
    while size > multiple:
        size = int(size * _SHRINK)
        found[_rounded(size, extent, extent, multiple)] = None
    return [size for size in found if size]


def _depths(k: int) -> list[int]:
    """Terms of a panel that are tried."""
    powers = [2**power for power in range(3, 15) if 2**power < k]
    return [*powers, max(k, 1)] if k else [1]


def _rounded(size: int, extent: int, most: int, multiple: int) -> int:
    """A number of rows or columns like this one, of which kernels have whole tiles; 0 where there is none up to `most`."""
    if size >= extent <= most:
        return extent
    step = math.lcm(128 if size >= 2048 else 16 if size >= 256 else 1, multiple)
    if step > most:
        step = multiple
    up = -(-size // step) * step
    return min(up, extent) if up <= most or most >= extent else most // step * step


def _seconds(found: Schedule, device: DeviceInfo, model: DeviceModel, panel: float) -> float:
    """What a schedule is expected to take, where the product of a panel and a tile takes so long."""
    problem, traffic, link = found.problem, found.traffic, model.link_bandwidth
    share = problem.m * problem.n / max(found.rows * found.columns * found.row_tiles * found.column_tiles, 1)
    extents = found.part_rows, found.columns, found.depth
    reached = math.prod(extent / (extent + model.half_length) for extent in extents)
    computed = found.count * found.panels * share * panel / reached
    brought = ((traffic.a + traffic.b) * problem.dtype.itemsize + traffic.c * problem.output.itemsize) / link
    taken = traffic.d * problem.output.itemsize / link
    if device.type == "cpu":  # its cores copy, too
        return computed + brought + taken
    strip = found.rows * found.columns / (found.parts * found.strips) * problem.output.itemsize / link
    begin = (found.panel_bytes("a") + found.panel_bytes("b")) / link
    return max(computed, brought, taken) + begin + strip


def _usual_cost(found: Schedule, model: DeviceModel) -> float:
    """Seconds of a product of a panel and a tile, by the rates of the device alone."""
    multiplied = found.rows * found.columns * found.depth / model.rate(found.problem.accumulator)
    return multiplied + 2 * found.tile_bytes / model.copy_bandwidth + found.parts * model.launch


def _tiles(extent: int, size: int) -> int:
    return -(-extent // max(size, 1))


def _extent(number: int, size: int, whole: int) -> tuple[int, int]:
    return number * size, min((number + 1) * size, whole)
