"""How long a product takes on a cluster of alike devices: time, traffic and memory of each, by schedules that are known.

All schedules are of one form: devices stand in a grid of rows, columns and layers. Each computes a brick of the product: its
rows and columns of C over its layer's terms. In each layer, panels of A go along rows of the grid and panels of B along its
columns, a few terms at a time (SUMMA: R. van de Geijn, J. Watts, Concurrency: Practice and Experience 9(4), 1997). At the end,
layers add up their sums of C (2.5-D: E. Solomonik, J. Demmel, Euro-Par 2011). At first and at last, A, B and C are spread
evenly over all devices, as they are computed with.

- 1-D: the grid is one line, along rows, columns or terms: one operand moves.
- 2-D: one layer.
- 2.5-D: as many layers as are the fastest, also one.

What moves is counted as each device receives it; bandwidths alone are modelled, no delays. A node fetches each element once, by
the connections of all of its devices, which then exchange it inside of the node.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Any

from gemmport import kernels
from gemmport.contracts.device_model import DeviceModel
from gemmport.contracts.kernel import Parameters
from gemmport.core.device import DeviceInfo
from gemmport.core.errors import DeviceMemoryError, ParameterError, ShapeError
from gemmport.core.plan import Plan
from gemmport.core.problem import GemmProblem
from gemmport.core.units import quantity
from gemmport.planning import preparation
from gemmport.planning.explanation import operations_per_multiply_add, roofline
from gemmport.planning.lookup import Configuration
from gemmport.planning.planner import AUTO, make_plan

SCHEMA = 1
"""Of `ClusterExplanation.to_dict`; docs/explain.md describes it."""

PANEL = 4096
"""Terms of a panel, at most: so many that to read and write C for each panel takes a small part of the time."""

MOST_DEVICES = 2**17
"""Of a cluster that is explained."""

SCHEDULES = ("1-D", "2-D", "2.5-D")

KEYS = {
    "nodes": "how many there are",
    "gpus": "devices of each",
    "link": "bytes per second that a device receives from the others of its node",
    "net": "bytes per second that a device receives from other nodes",
    "memory": "bytes of a device; without it, as the device tells",
}
"""What a description of a cluster may state."""

_UNITS = {
    **{f"{prefix}B": 10.0**power for prefix, power in zip(("", "k", "M", "G", "T"), range(0, 15, 3), strict=True)},
    **{f"{prefix}iB": 1024.0**power for power, prefix in enumerate(("K", "M", "G", "T"), 1)},
    **{f"{prefix}b": 10.0**power / 8 for prefix, power in zip(("", "k", "M", "G", "T"), range(0, 15, 3), strict=True)},
}
"""Bytes of a unit; with a small b, of bits."""


@dataclass(frozen=True)
class Cluster:
    """Alike devices, in nodes.

    Attributes:
        nodes: how many. gpus: devices of each.
        link: bytes per second that a device receives from others of its node, while it sends as many; 0 where there are none.
        net: likewise from other nodes.
        memory: bytes of a device; 0: as the device tells.
    """

    nodes: int
    gpus: int = 1
    link: float = 0.0
    net: float = 0.0
    memory: int = 0

    def __post_init__(self) -> None:
        if min(self.nodes, self.gpus) < 1 or self.devices > MOST_DEVICES:
            raise ParameterError(
                f"nodes and gpus must be 1 or more, and at most {MOST_DEVICES:,} devices in all; got nodes={self.nodes}, "
                f"gpus={self.gpus}"
            )
        for name, needed, between in (("link", self.gpus > 1, "devices of a node"), ("net", self.nodes > 1, "nodes")):
            rate = getattr(self, name)
            if not math.isfinite(rate) or rate < 0 or (needed and not rate):
                got = quantity(rate, "B/s") if rate else "none"
                raise ParameterError(f"{name} must be the bandwidth between {between}, such as 50GB/s; got {got}")
        if self.memory < 0:
            raise ParameterError(f"memory must be a number of bytes, such as 80GB; got {self.memory}")

    @property
    def devices(self) -> int:
        """All of them."""
        return self.nodes * self.gpus

    def __str__(self) -> str:
        return f"{self.nodes:,} node{'' if self.nodes == 1 else 's'} of {self.gpus:,}"

    @classmethod
    def parse(cls, text: str) -> Cluster:
        """A cluster by a description, "nodes=64,gpus=8,link=450GB/s,net=50GB/s": the keys are those of `KEYS`.

        Raises:
            ParameterError: it does not describe one.
        """
        found: dict[str, Any] = {}
        for part in filter(None, (each.strip() for each in text.split(","))):
            key, equals, value = (each.strip() for each in part.partition("="))
            if not equals or key not in KEYS:
                raise ParameterError(f"a cluster must be described by KEY=VALUE of {', '.join(KEYS)}; got {part!r}")
            if key in found:
                raise ParameterError(f"a cluster must state {key} once; got {text!r}")
            found[key] = _count(key, value) if key in ("nodes", "gpus") else _bytes(key, value)
        if "nodes" not in found:
            raise ParameterError(
                f"a cluster must state nodes, such as nodes=64,gpus=8,link=450GB/s,net=50GB/s; got {text!r}"
            )
        return cls(**{**found, "memory": int(found.get("memory", 0))})


def _count(key: str, value: str) -> int:
    if not re.fullmatch("[0-9]{1,9}", value):
        raise ParameterError(f"{key} must be a whole number from 1 to {MOST_DEVICES:,}; got {value!r}")
    return int(value)


def _bytes(key: str, value: str) -> float:
    unit_of = "80GB" if key == "memory" else "50GB/s"
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)\s*([A-Za-z]*)(/s)?", value)
    if match is None or (match[2] or "B") not in _UNITS or (match[3] and key == "memory"):
        raise ParameterError(f"{key} must be a number with a unit, such as {unit_of}; got {value!r}")
    return float(match[1]) * _UNITS[match[2] or "B"]


@dataclass(frozen=True)
class Grid:
    """How devices stand: their number along rows of C, its columns, and terms."""

    rows: int = 1
    columns: int = 1
    layers: int = 1

    @property
    def devices(self) -> int:
        """All of them."""
        return self.rows * self.columns * self.layers

    def __str__(self) -> str:
        return f"{self.rows} × {self.columns}" + (f" × {self.layers}" if self.layers > 1 else "")


@dataclass(frozen=True)
class Moved:
    """Bytes that the device with most of them receives: of an operand, from other nodes and from its own."""

    by_net: float = 0.0
    by_link: float = 0.0

    @property
    def nbytes(self) -> float:
        """From all other devices."""
        return self.by_net + self.by_link

    def seconds(self, cluster: Cluster) -> float:
        """Both ways are used at once."""
        by_net = self.by_net / cluster.net if self.by_net else 0.0
        return max(by_net, self.by_link / cluster.link if self.by_link else 0.0)

    def __add__(self, other: Moved) -> Moved:
        return Moved(self.by_net + other.by_net, self.by_link + other.by_link)


@dataclass(frozen=True)
class Layout:
    """A product in bricks: what each device has, gets and keeps, of the device with most of it.

    Attributes:
        grid: of all devices. node: of those of one node, which divides it.
    """

    problem: GemmProblem
    grid: Grid
    node: Grid

    @property
    def brick(self) -> tuple[int, int, int]:
        """Rows, columns and terms."""
        sizes = (self.problem.m, self.problem.n, self.problem.k)
        rows, columns, terms = (
            -(-size // parts)
            for size, parts in zip(sizes, (self.grid.rows, self.grid.columns, self.grid.layers), strict=True)
        )
        return rows, columns, terms

    @property
    def panel(self) -> int:
        """Terms that are multiplied at once: all where nothing moves along them."""
        terms = self.brick[2]
        return min(terms, PANEL) if self.grid.rows * self.grid.columns > 1 else terms

    @property
    def steps(self) -> int:
        """Panels, one after the other."""
        return -(-self.brick[2] // self.panel)

    def moved(self) -> dict[str, Moved]:
        """What a device receives of A and B, panel by panel, and of sums of C in the end."""
        rows, columns, terms = self.brick
        size, sums = self.problem.dtype.itemsize, self.problem.accumulator.sum_bytes
        return {
            "A": _gathered(rows * terms * size, self.grid.columns, self.node.columns),
            "B": _gathered(terms * columns * size, self.grid.rows, self.node.rows),
            "C": _reduced(rows * columns * sums, self.grid.layers, self.node.layers),
        }

    def memory(self) -> dict[str, float]:
        """Bytes of a device: its part of A and B, its sums of C, two panels of each operand that moves, and of C what another
        layer sent.
        """
        rows, columns, terms = self.brick
        size, sums = self.problem.dtype.itemsize, self.problem.accumulator.sum_bytes
        grid = self.grid
        return {
            "A": rows * terms * size / grid.columns,
            "B": terms * columns * size / grid.rows,
            "C": rows * columns * sums,
            "panels": 2 * self.panel * size * ((rows if grid.columns > 1 else 0) + (columns if grid.rows > 1 else 0)),
            "sums of others": rows * columns * sums / grid.layers if grid.layers > 1 else 0.0,
        }

    @property
    def nbytes(self) -> float:
        """Of a device, in all."""
        return sum(self.memory().values())


def _gathered(nbytes: float, parts: int, on_node: int) -> Moved:
    """What each of so many devices receives that end with all of what they have a part of, so many of them on each node."""
    by_net = nbytes * (1 - on_node / parts) / on_node
    return Moved(by_net, nbytes * (1 - 1 / parts) - by_net)


def _reduced(nbytes: float, parts: int, on_node: int) -> Moved:
    """What each of so many devices receives of which each ends with a part of the sums of all: first inside of nodes."""
    return Moved(nbytes * (1 / on_node - 1 / parts), nbytes * (1 - 1 / on_node))


@dataclass(frozen=True)
class Bound:
    """The least that a device receives and keeps, of elements: no schedule of multiply-adds does with less.

    Kwasniewski et al., "Red-Blue Pebbling Revisited: Near Optimal Parallel Matrix-Matrix Multiplication" (SC 2019,
    doi:10.1145/3295500.3356181), Theorem 2: of V = mnk/p multiply-adds of each of p devices with S elements of memory, a device
    touches at least 2V/√S + S elements of A, B and C where S < V^⅔, and 3V^⅔ where it has more memory. Its own
    (mk + kn + mn)/p of these may be there from the start; the rest must come.
    """

    touched: float
    own: float

    @property
    def elements(self) -> float:
        """That a device receives, at least."""
        return max(self.touched - self.own, 0.0)

    @classmethod
    def of(cls, problem: GemmProblem, devices: int, memory: float) -> Bound:
        """Of a product on so many devices.

        Args:
            memory: elements that a device has room for.
        """
        m, n, k = problem.m, problem.n, problem.k
        work = m * n * k / devices
        used = min(memory, work ** (2 / 3))
        touched = 2 * work / math.sqrt(used) + used if used else 0.0
        return cls(touched, (m * k + k * n + m * n) / devices)


@dataclass(frozen=True)
class Schedule:
    """A schedule with its best grid, and what it takes; seconds, and bytes of the device with most of them.

    Attributes:
        name: of `SCHEDULES`. node: the part of the grid that is one node's.
        moved: received, by operand; "C" are sums that layers add up.
        memory: by what is kept there.
        computing: of all panels. moving: of A and B, meanwhile. filling: of the first panels, which nothing hides.
        adding: of C.
        nodes_needed: the least number of nodes whose memory would do; None where this one's does, and 0 where none would.
    """

    name: str
    grid: Grid
    node: Grid
    brick: tuple[int, int, int]
    panel: int
    kernel: str
    moved: Mapping[str, Moved]
    memory: Mapping[str, float]
    computing: float
    moving: float
    filling: float
    adding: float
    nodes_needed: int | None = None

    @property
    def seconds(self) -> float:
        """Of the whole."""
        return max(self.computing, self.moving) + self.filling + self.adding

    @property
    def traffic(self) -> Moved:
        """All that a device receives."""
        return sum(self.moved.values(), Moved())

    @property
    def nbytes(self) -> float:
        """Of memory."""
        return sum(self.memory.values())


@dataclass(frozen=True)
class ClusterExplanation:
    """A product on a cluster: what each schedule takes, beside the least that any moves.

    Attributes:
        memory: bytes of a device.
        peak: operations per second of a device, by its model: of the matrix unit, where the kernel of a brick multiplies by it.
        by_unit: whether the peak is the matrix unit's.
        schedules: in the order of `SCHEDULES`; those whose memory does not suffice among them.
    """

    problem: GemmProblem
    cluster: Cluster
    device: DeviceInfo
    model: DeviceModel
    memory: int
    peak: float
    by_unit: bool
    bound: Bound
    schedules: tuple[Schedule, ...]

    @property
    def best(self) -> Schedule:
        """The fastest that fits; of equally fast ones, the first."""
        return min((each for each in self.schedules if each.nodes_needed is None), key=lambda each: each.seconds)

    @property
    def bound_bytes(self) -> float:
        """That a device receives, at least."""
        return self.bound.elements * self.problem.dtype.itemsize

    @property
    def at_best(self) -> float:
        """Seconds at the devices' peak."""
        return self.problem.flops / (self.peak * self.cluster.devices)

    def __str__(self) -> str:
        from gemmport.planning.cluster_page import page  # noqa: PLC0415 - it is told in the words of that module

        return page(self)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; docs/explain.md describes it."""
        return {
            "schema": SCHEMA,
            "problem": self.problem.to_dict(),
            "cluster": {**asdict(self.cluster), "devices": self.cluster.devices, "memory": self.memory},
            "device": self.device.to_dict(),
            "model": self.model.origin,
            "peak": self.peak,
            "by_unit": self.by_unit,
            "at_best": self.at_best,
            "bound": {
                "touched": self.bound.touched, "own": self.bound.own, "elements": self.bound.elements,
                "bytes": self.bound_bytes,
            },
            "schedules": [
                {
                    "name": each.name,
                    "fits": each.nodes_needed is None,
                    "nodes_needed": each.nodes_needed,
                    "grid": asdict(each.grid),
                    "node": asdict(each.node),
                    "brick": each.brick,
                    "panel": each.panel,
                    "kernel": each.kernel,
                    "seconds": each.seconds,
                    "parts": {
                        "computing": each.computing, "moving": each.moving, "filling": each.filling, "adding": each.adding,
                    },
                    "traffic": {"bytes": each.traffic.nbytes, **asdict(each.traffic)},
                    "moved": {name: moved.nbytes for name, moved in each.moved.items()},
                    "memory": {"bytes": each.nbytes, **each.memory},
                    "of_bound": each.traffic.nbytes / self.bound_bytes if self.bound_bytes else None,
                }
                for each in self.schedules
            ],
            "best": self.best.name,
        }  # fmt: skip


def explain_cluster(
    problem: GemmProblem,
    cluster: Cluster,
    device: DeviceInfo,
    configuration: Configuration,
    *,
    kernel: str = AUTO,
    params: Parameters | None = None,
    params_origin: str = "params=",
) -> ClusterExplanation:
    """What a product takes on a cluster of such devices, none of which need be here.

    Args:
        problem: one product, of D = op(A) · op(B); alpha, beta and C are not looked at.
        kernel, params, params_origin: of the products of bricks, as `gemmport.planning.planner.make_plan`.

    Raises:
        ShapeError: a batch, or a product of nothing.
        DeviceMemoryError: no schedule has room; it says how many nodes are needed.
        GemmportError: as `make_plan`.
    """
    if problem.batch != 1 or not min(problem.m, problem.n, problem.k):
        raise ShapeError(
            f"on a cluster, a product must be one, and of 1 or more rows, columns and terms; got {problem}"
        )
    model = configuration.model(device)
    memory = cluster.memory or device.memory
    size = problem.dtype.itemsize

    def plan_of(layout: Layout) -> Plan:
        rows, columns, _ = layout.brick
        part = GemmProblem.create(
            rows, columns, layout.panel, dtype=problem.dtype.name, output=problem.accumulator.name,
            accumulator=problem.accumulator.name, trans_a=problem.trans_a, trans_b=problem.trans_b,
            beta=1.0 if layout.steps > 1 else 0.0, precision=problem.precision,
        )  # fmt: skip
        return make_plan(part, device, configuration, kernel=kernel, params=params, params_origin=params_origin)

    if all(_least(name, problem, cluster).nbytes > memory for name in SCHEDULES):
        raise _too_small(problem, cluster, device, memory)
    roof = roofline(plan_of(_least(SCHEDULES[0], problem, cluster)), model)
    rate = roof.peak / operations_per_multiply_add(problem)

    def schedule(name: str) -> Schedule:
        fitting = _best(name, problem, cluster, memory, rate)
        layout = fitting or _least(name, problem, cluster)
        plan = plan_of(layout)
        seconds = preparation.predicted(kernels.variant(plan.variant), plan.problem, device, model, plan.values).seconds
        moved = layout.moved()
        moving = (moved["A"] + moved["B"]).seconds(cluster)
        needed = None if fitting else nodes_needed(name, problem, cluster, memory)
        return Schedule(
            name, layout.grid, layout.node, layout.brick, layout.panel, plan.variant, moved, layout.memory(),
            computing=seconds * layout.brick[2] / layout.panel, moving=moving, filling=moving / layout.steps,
            adding=moved["C"].seconds(cluster), nodes_needed=needed,
        )  # fmt: skip

    return ClusterExplanation(
        problem, cluster, device, model, memory, roof.peak, roof.by_unit,
        Bound.of(problem, cluster.devices, memory / size), tuple(map(schedule, SCHEDULES)),
    )  # fmt: skip


def _too_small(problem: GemmProblem, cluster: Cluster, device: DeviceInfo, memory: int) -> DeviceMemoryError:
    needed = {name: nodes_needed(name, problem, cluster, memory) for name in SCHEDULES}
    least = min(_least(name, problem, cluster).nbytes for name in SCHEDULES)
    enough = {name: nodes for name, nodes in needed.items() if nodes}
    told = "no number of nodes would do"
    if enough:
        name = min(enough, key=lambda each: enough[each])
        told = f"{enough[name]:,} nodes would do, {name}"
    return DeviceMemoryError(
        f"{problem} on {cluster} × {device.name} must have {quantity(least, 'B')} of memory a device; got "
        f"{quantity(memory, 'B')}: {told}"
    )


def nodes_needed(name: str, problem: GemmProblem, cluster: Cluster, memory: int) -> int:
    """The least number of nodes, beyond those that there are, with which a schedule has room; 0 where none is found.

    Numbers with few divisors have no good grid; it is looked at each of the first few, and then at powers of two and one and a
    half times those.
    """

    wired = replace(cluster, net=cluster.net or 1.0)  # a single node need not state it
    most = MOST_DEVICES // cluster.gpus
    first = max(cluster.nodes + 1, math.ceil(problem.bytes / (cluster.gpus * memory)))
    rough = sorted({int(part * 2**power) for power in range(18) for part in (1, 1.5)})
    tried = [*range(first, min(first + 16, most + 1)), *(nodes for nodes in rough if first + 16 <= nodes <= most)]
    fitting = (nodes for nodes in tried if _least(name, problem, replace(wired, nodes=nodes)).nbytes <= memory)
    return next(fitting, 0)


def _best(name: str, problem: GemmProblem, cluster: Cluster, memory: int, rate: float) -> Layout | None:
    """The fastest grid that fits, by bandwidths and the devices' peak; of equally fast ones, the one that moves least, and
    keeps least.
    """

    def cost(layout: Layout) -> tuple[float, float, float]:
        rows, columns, terms = layout.brick
        moved = layout.moved()
        moving = (moved["A"] + moved["B"]).seconds(cluster)
        seconds = max(rows * columns * terms / rate, moving) + moving / layout.steps + moved["C"].seconds(cluster)
        return seconds, sum(each.nbytes for each in moved.values()), layout.nbytes

    return min((each for each in layouts(name, problem, cluster) if each.nbytes <= memory), key=cost, default=None)


def _least(name: str, problem: GemmProblem, cluster: Cluster) -> Layout:
    """The grid that needs the least memory."""
    return min(layouts(name, problem, cluster), key=lambda layout: layout.nbytes)


def layouts(name: str, problem: GemmProblem, cluster: Cluster) -> Iterator[Layout]:
    """All grids of a schedule, with all ways in which nodes divide them."""
    for grid in grids(name, cluster.devices):
        for node in _grids(cluster.gpus):
            if not (grid.rows % node.rows or grid.columns % node.columns or grid.layers % node.layers):
                yield Layout(problem, grid, node)


def grids(name: str, devices: int) -> Iterator[Grid]:
    """All grids of a schedule."""
    for grid in _grids(devices):
        lines = sum(extent > 1 for extent in (grid.rows, grid.columns, grid.layers))
        if name == "2.5-D" or (name == "2-D" and grid.layers == 1) or (name == "1-D" and lines <= 1):
            yield grid


@lru_cache(maxsize=256)
def _grids(devices: int) -> tuple[Grid, ...]:
    divisors = [number for number in range(1, devices + 1) if devices % number == 0]
    return tuple(
        Grid(rows, columns, devices // (rows * columns))
        for rows, columns in itertools.product(divisors, divisors)
        if devices % (rows * columns) == 0
    )
