"""Inspections side by side: the same rows for each, and what differs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, TypeVar

from gemmport.backends.objects import LoopBound
from gemmport.inspection.instructions import Counts, Kind
from gemmport.inspection.report import Code, Inspection, local_bytes

T = TypeVar("T")
V = TypeVar("V")

Value = float | int | str | None

_SIMT = ("PTX", "SASS", "AMDGCN", "Gen")


@dataclass(frozen=True)
class Row:
    """One figure of each inspection; None where nobody tells it."""

    section: str
    name: str
    values: tuple[Value, ...]

    @property
    def difference(self) -> float | int | None:
        """The second figure less the first, of two numbers."""
        match self.values:
            case (int() | float() as left, int() | float() as right):
                return right - left
        return None


def compare(inspections: Sequence[Inspection]) -> list[Row]:
    """All rows that say something of any of the inspections."""
    codes = _comparable(inspections)
    found = [*_resources(inspections)]
    if any(codes):
        told = " | ".join(dict.fromkeys(code.listing.language for code in codes if code))
        found += _counts(f"whole kernel, {told}", _of_each(codes, lambda code: code.counts))
        loops = _of_each(codes, lambda code: code.loop_counts if code.loop else None)
        found += _counts(f"loop with the most multiply-adds, {told}", loops)
        found += _ratios(f"loop with the most multiply-adds, {told}", codes, loops)
        found += _bounds(inspections)
    return [row for row in found if any(value is not None for value in row.values)]


def _comparable(inspections: Sequence[Inspection]) -> list[Code | None]:
    """Of each inspection the code that is counted: in the language nearest to the machine that all have, or its own nearest."""
    languages = [{code.listing.language: code for code in inspection.codes} for inspection in inspections]
    shared = [name for name in languages[0] if all(name in own for own in languages)]
    if shared:
        return [own[shared[-1]] for own in languages]
    return [inspection.codes[-1] if inspection.codes else None for inspection in inspections]


def _of_each(items: Sequence[T | None], figure: Callable[[T], V]) -> list[V | None]:
    """A figure of each item; None of what is not there."""
    return [None if item is None else figure(item) for item in items]


def _resources(inspections: Sequence[Inspection]) -> Iterator[Row]:
    def row(name: str, values: Sequence[Value]) -> Row:
        return Row("resources", name, tuple(values))

    every = [inspection.resources for inspection in inspections]
    held = [inspection.occupancy for inspection in inspections]
    launches = [inspection.launch for inspection in inspections]
    yield row("groups", [math.prod(launch.groups) for launch in launches])
    yield row("work-items of a group", [math.prod(launch.work_group) for launch in launches])
    yield row("most work-items of a group", [own.max_work_items for own in every])
    yield row("registers of a work-item", [own.registers for own in every])
    yield row("scalar registers of a wave", [own.scalar_registers for own in every])
    yield row("spills of a work-item, bytes stored", [own.spill_stores for own in every])
    yield row("spills of a work-item, bytes loaded", [own.spill_loads for own in every])
    yield row("scalar registers of a wave, spilled", [own.scalar_spills for own in every])
    yield row("private memory of a work-item, bytes", [own.private_bytes for own in every])
    yield row("local memory of a group, bytes", [local_bytes(i.launch, i.resources) for i in inspections])
    yield row("numbered barriers of a group", [own.barriers for own in every])
    yield row("groups on a compute unit at once", _of_each(held, lambda own: own.groups))
    yield row("warps or waves of a scheduler at once", _of_each(held, lambda own: own.per_scheduler))
    yield row("occupancy, % of the most of these", _of_each(held, lambda own: own.percent))
    yield row("limited by", _of_each(held, lambda own: " and ".join(own.limited_by)))


def _counts(section: str, counts: Sequence[Counts | None]) -> Iterator[Row]:
    def row(name: str, values: Sequence[Value]) -> Row:
        return Row(section, name, tuple(values))

    yield row("instructions", _of_each(counts, lambda own: own.total))
    for kind in Kind:
        if any(own and own.kinds[kind] for own in counts):
            yield row(kind.value, [None if own is None else own.kinds[kind] for own in counts])
    for access in sorted({access for own in counts if own for access in own.accesses}):
        yield row(f"  {access}", [None if own is None else own.accesses[access] for own in counts])


def _ratios(section: str, codes: Sequence[Code | None], loops: Sequence[Counts | None]) -> Iterator[Row]:
    yield Row(section, "multiply-adds per load", tuple(_of_each(loops, lambda own: own.multiply_adds_per_load)))
    words = [
        own.multiply_adds_per_word if own and code and code.listing.language in _SIMT else None
        for own, code in zip(loops, codes, strict=True)
    ]
    yield Row(section, "multiply-adds per 32 bits loaded", tuple(words))


def _bounds(inspections: Sequence[Inspection]) -> Iterator[Row]:
    """What a model of the processor says of a round of the loop."""
    section = "a round of the loop by llvm-mca, in cycles of an instruction at full rate"
    bounds = [inspection.bound for inspection in inspections]

    def row(name: str, figure: Callable[[LoopBound], float | None]) -> Row:
        return Row(section, name, tuple(_of_each(bounds, figure)))

    yield row("at least: its busiest unit", lambda own: own.busiest)
    for unit in sorted({name for own in bounds if own for name in own.units}):
        yield row(f"  busy: {unit}", partial(_busy, unit))
    yield row("of one wave that waits for nothing", lambda own: own.cycles)
    yield row("of one wave that is alone", lambda own: own.alone)


def _busy(unit: str, bound: LoopBound) -> float | None:
    return bound.units.get(unit)


def headings(inspections: Sequence[Inspection]) -> list[str]:
    """A name for each: its kernel's, and as much more as tells it from the others."""
    plans = [inspection.plan for inspection in inspections]
    devices = [plan.device for plan in plans]
    told = [[plan.variant] for plan in plans]

    def add(values: Sequence[str]) -> None:
        alike = len({tuple(own) for own in told}) < len(told)
        if alike and len(set(values)) > 1:
            for own, value in zip(told, values, strict=True):
                own.append(value)

    add([device.backend for device in devices])
    add([device.platform for device in devices])
    add([device.platform_version for device in devices])
    add([device.architecture for device in devices])
    add([device.name for device in devices])
    add([str(plan.problem.dtype) for plan in plans])
    names = dict.fromkeys(name for plan in plans for name in plan.values)
    different = [name for name in names if len({plan.values.get(name) for plan in plans}) > 1]
    add([" ".join(f"{name}={plan.values[name]}" for name in different if name in plan.values) for plan in plans])
    return [" ".join(own) for own in told]


def to_dict(inspection: Inspection) -> dict[str, Any]:
    """An inspection as plain data, for JSON."""
    plan, launch, held = inspection.plan, inspection.launch, inspection.occupancy
    return {
        "kernel": plan.variant,
        "parameters": plan.values,
        "entry": plan.entry,
        "problem": plan.problem.to_dict(),
        "device": plan.device.to_dict(),
        "launch": {
            "number": inspection.number,
            "of": len(plan.launches),
            "function": launch.kernel.function,
            "groups": launch.groups,
            "work_group": launch.work_group,
            "local_bytes": local_bytes(launch, inspection.resources),
        },
        "resources": asdict(inspection.resources),
        "occupancy": held and {**asdict(held), "per_scheduler": held.per_scheduler, "percent": held.percent},
        "bound": inspection.bound and asdict(inspection.bound),
        "code": [
            {
                "language": code.listing.language,
                "kernel": _counts_to_dict(code.counts),
                "loop": _counts_to_dict(code.loop_counts) if code.loop else None,
            }
            for code in inspection.codes
        ],
        "notes": inspection.notes,
    }


def _counts_to_dict(counts: Counts) -> dict[str, Any]:
    return {
        "instructions": counts.total,
        "kinds": {kind.name.lower(): counts.kinds[kind] for kind in Kind if counts.kinds[kind]},
        "accesses": [{**asdict(access), "count": counts.accesses[access]} for access in sorted(counts.accesses)],
        "multiply_adds_per_load": counts.multiply_adds_per_load,
    }
