"""How the arrays of a dealt product are spread over devices: what has a home where, and how long the rest takes to come."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from gemmport.api.product import Product
from gemmport.api.sharded import lines_of
from gemmport.backends.array import DeviceArray
from gemmport.backends.base import Backend
from gemmport.core.problem import GemmProblem
from gemmport.execution.links import between
from gemmport.execution.sharded import ShardedArray
from gemmport.multidevice.homes import Cut, Lines, homes
from gemmport.multidevice.tiles import Tile
from gemmport.planning.lookup import Configuration

_LINES: dict[int, Lines] = {-3: "matrices", -2: "rows", -1: "columns"}


def pieces(arrays: Iterable[Any]) -> list[DeviceArray]:
    """Of some arrays all that lies on devices, shards one by one."""
    found: list[DeviceArray] = []
    for x in arrays:
        found += x.shards if isinstance(x, ShardedArray) else [x] if isinstance(x, DeviceArray) else []
    return found


def labels(backends: Sequence[Backend]) -> list[str]:
    """Names of devices for people: their labels, with a number where several have one."""
    found = [backend.device.label for backend in backends]
    seen: Counter[str] = Counter()
    names = []
    for label in found:
        seen[label] += 1
        names.append(f"{label} #{seen[label]}" if found.count(label) > 1 else label)
    return names


class Spread:
    """Where the arrays of one product are.

    Attributes:
        lying: all that is on devices.
        along, homes: as of `gemmport.multidevice.homes.homes`, owners being numbers of the backends; no homes where nothing is
            spread.
    """

    def __init__(
        self,
        problem: GemmProblem,
        product: Product,
        out: Any,
        backends: Sequence[Backend],
        configuration: Configuration,
    ) -> None:
        self.problem, self.backends, self._configuration = problem, backends, configuration
        self.arrays = {name: x for name, x in (("a", product.a), ("b", product.b), ("c", product.c), ("out", out))
                       if isinstance(x, DeviceArray | ShardedArray)}  # fmt: skip
        self.lying = pieces(self.arrays.values())
        cuts = {name: cut for name in self.arrays if (cut := self._cut(name, product)) is not None}
        whole = Tile.whole(problem.batch, problem.m, problem.n)
        self.along, parts = homes(whole, [*cuts.values()])
        self.homes = parts if self.along else []
        self._at_home = [name for name, cut in cuts.items() if cut.along == self.along]

    def _cut(self, name: str, product: Product) -> Cut | None:
        """How an array in shards is spread that the product reads or writes line by line."""
        x = self.arrays[name]
        axis = lines_of(name, x.axis - x.ndim, product.op_a, product.op_b) if isinstance(x, ShardedArray) else None
        if axis is None or not isinstance(x, ShardedArray):
            return None
        owners = [next((n for n, one in enumerate(self.backends) if one is shard.backend), None) for shard in x.shards]
        line = sum(shard.nbytes for shard in x.shards) // max(x.shape[x.axis], 1)
        return Cut(_LINES[axis], [shard.shape[x.axis] for shard in x.shards], owners, line)

    def _has_home(self, number: int) -> bool:
        return any(part.owner == number for part in self.homes)

    def transfers(self, number: int) -> float:
        """Seconds in which what a device needs for all parts of the result is expected to come to it, and to leave it: but for
        a device with a home what the parts are made of that others have.
        """
        backend = self.backends[number]
        skipped = self._at_home if self._has_home(number) else []
        travels = pieces(x for name, x in self.arrays.items() if name not in skipped)
        seconds = sum(self._link_seconds(backend, x) for x in travels)
        if backend.device.type != "cpu":
            link = self._configuration.model(backend.device).link_bandwidth
            seconds += max(self.problem.bytes - sum(x.nbytes for x in self.lying), 0) / link
        return seconds

    def abroad(self, number: int) -> float:
        """Seconds per element of the result that a device with a home takes longer where another has its home."""
        if not self._has_home(number):
            return 0.0
        away = [part.tile.size for part in self.homes if part.owner != number]
        seconds = sum(
            self._link_seconds(self.backends[number], x) for x in pieces(self.arrays[name] for name in self._at_home)
        )
        return seconds / sum(away) if away else 0.0

    def _link_seconds(self, backend: Backend, x: DeviceArray) -> float:
        """Seconds in which an array is expected to come to a device, or from it."""
        return 0.0 if x.backend is backend else x.nbytes / between(x.backend, backend, self._configuration).rate
