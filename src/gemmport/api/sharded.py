"""Arguments and results in shards: where each shard is, and where the result of a dealt product is put."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, cast

import numpy as np

from gemmport.api import views
from gemmport.api.arguments import Given, backend_of_operands
from gemmport.api.placement import Placement, Result
from gemmport.backends.array import DeviceArray
from gemmport.backends.base import Backend
from gemmport.core.problem import Op, transposes
from gemmport.execution.sharded import ShardedArray


@dataclass(frozen=True)
class Places:
    """Where the shards of one argument are, each with the shard as an argument of its own.

    Attributes:
        axis: of the shards, counted from the last dimension.
    """

    each: Sequence[tuple[Placement, Given]]
    axis: int

    @classmethod
    def where(cls, given: Given) -> Places:
        """Borrows the shards, each on its device; the argument is then an array in shards that are ours.

        Raises:
            ArrayError: a shard is on a device that no backend reaches.
        """
        value = cast("ShardedArray", given.value)
        shards = [Given.of(f"{given.name}.shards[{number}]", shard) for number, shard in enumerate(value.shards)]
        each = [(Placement.where(shard), shard) for shard in shards]
        given.arrays.append(cast("Any", ShardedArray([shard.arrays[0] for shard in shards], value.axis)))
        return cls(each, value.axis - value.ndim)

    def of(self, given: Given) -> Any:
        """The argument as an array in shards that are ours."""
        return given.arrays[0]

    def as_column(self) -> Places:
        """Those of a vector that is multiplied as a matrix of one column."""
        return replace(self, axis=-2)

    def settle(self) -> None:
        """As `Placement.settle`."""
        for place, _ in self.each:
            place.settle()


AnyPlace: TypeAlias = Placement | Places


def with_axis(x: Any, position: int) -> Any:
    """As `gemmport.api.views.with_axis`, of an array in shards, too."""
    if isinstance(x, ShardedArray):
        return ShardedArray([views.with_axis(shard, position) for shard in x.shards], x.axis + (position <= x.axis))
    return views.with_axis(x, position)


def place_of(given: Given) -> AnyPlace:
    """Where an argument on a device, or in shards on several, is; borrowed there."""
    return Places.where(given) if isinstance(given.value, ShardedArray) else Placement.where(given)


def devices_of(*arguments: Any) -> list[Backend] | None:
    """The devices of all arguments in shards, each once, which compute where nobody names others; None without such."""
    found: list[Backend] = []
    sharded = [x for x in arguments if isinstance(x, ShardedArray)]
    for x in sharded:
        for number, shard in enumerate(x.shards):
            backend = backend_of_operands([Given.of(f"shards[{number}]", shard)])
            if all(backend is not known for known in found):
                found.append(backend)
    return found if sharded else None


@dataclass(frozen=True)
class Put:
    """Where the result of a dealt product is put.

    Attributes:
        array: ours, or one in shards that are ours.
        each: it, or its shards, and where these are. axis: of the shards; None where it is in one piece.
        value: `out`, as it was given.
    """

    array: DeviceArray | ShardedArray
    each: Sequence[tuple[Placement, Result]]
    axis: int | None
    value: Any

    @property
    def place(self) -> Placement:
        """Where it, or its first shard, is."""
        return self.each[0][0]

    def delivered(self) -> Any:
        """What the caller gets; as `Placement.delivered`."""
        arrays = [place.delivered(result) for place, result in self.each]
        if self.value is not None:
            return self.value
        return arrays[0] if self.axis is None else ShardedArray(arrays, self.axis)


def put(
    places: Mapping[str, AnyPlace], given: Mapping[str, Given], op_a: Op, op_b: Op, shape: tuple[int, ...],
    dtype: np.dtype[Any],
) -> Put | None:  # fmt: skip
    """Where the result is put: in `out`, or in a new array of the kind of the first operand on a device; None for the host.

    Where that operand is in shards, the result is in shards like those of the first that has rows, columns or matrices of the
    result in each; where none has, it is in one piece, on the device of the first shard.
    """
    if "out" in given:
        if "out" not in places:
            return None
        name, axis = "out", places["out"].axis if isinstance(places["out"], Places) else None
    else:
        name = next((name for name in ("a", "b", "c") if name in places), "")
        if not name:
            return None
        axis = None
        if isinstance(places[name], Places):
            axes = {each: lines_of(each, at.axis, op_a, op_b) for each, at in places.items() if isinstance(at, Places)}
            name = next((each for each in ("a", "b", "c") if axes.get(each) is not None), name)
            axis = axes[name]
    place = places[name]
    value = given["out"].value if name == "out" else None
    if isinstance(place, Placement):
        written = place.result({name: given[name]}, shape, dtype)
        return Put(written.array, [(place, written)], None, value)
    if axis is None:
        first, shard = place.each[0]
        written = first.result({name: shard}, shape, dtype)
        return Put(written.array, [(first, written)], None, value)
    each = []
    for one, shard in place.each:
        sizes = list(shape)
        sizes[axis] = shard.arrays[0].shape[place.axis]
        each.append((one, one.result({name: shard}, tuple(sizes), dtype)))
    return Put(ShardedArray([written.array for _, written in each], axis), each, axis, value)


def lines_of(name: str, axis: int, op_a: Op, op_b: Op) -> int | None:
    """The dimension of the result along which shards of an argument hold its lines; None where they are summed over.

    Args:
        axis: of the shards; like what is returned counted from the last dimension.
    """
    if axis == -3 or name in ("c", "out"):
        return axis
    return {"a": -2, "b": -1}[name] if axis == line_axis(name, op_a if name == "a" else op_b) else None


def line_axis(name: str, op: Op) -> int:
    """The dimension of A or B that is not summed over, counted from the last."""
    return -1 if (name == "b") != transposes(op) else -2
