"""What a product takes on a cluster, as one page of text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from gemmport.core.units import quantity, span
from gemmport.planning.explanation_page import in_units

if TYPE_CHECKING:
    from gemmport.planning.cluster import ClusterExplanation, Schedule

_MARGIN = 11

HEADINGS = ("", "grid", "time", "computing", "moving", "adding up", "received", "by net", "of the bound", "memory")


def page(found: ClusterExplanation) -> str:
    """The cluster, the bound, each schedule, and the best in words."""
    cluster, device = found.cluster, found.device
    lines = [f"{found.problem} on {cluster} × {device.name}"]
    for name, section in (
        ("cluster", _cluster(found)),
        ("bound", _bound(found)),
        ("schedules", _schedules(found)),
        ("best", _best(found)),
    ):
        told = [*section]
        lines += ["", f"{name:{_MARGIN}}{told[0]}", *(f"{'':{_MARGIN}}{line}" for line in told[1:])]
    return "\n".join(line.rstrip() for line in lines)


def _cluster(found: ClusterExplanation) -> Iterator[str]:
    cluster = found.cluster
    ways = [
        f"{quantity(rate, 'B/s')} from {where}"
        for rate, where, there in (
            (cluster.link, "its node", cluster.gpus > 1),
            (cluster.net, "other nodes", cluster.nodes > 1),
        )
        if there
    ]
    receives = f"; each receives {' and '.join(ways)}" if ways else ""
    yield f"{cluster.devices:,} device{'' if cluster.devices == 1 else 's'} of {quantity(found.memory, 'B')}{receives}"
    units = in_units(found.problem, by_unit=found.by_unit)
    yield f"model from {found.model.origin}: {quantity(found.peak, 'FLOPS')} a device {units}"
    yield f"at best {span(found.at_best)}, all devices at their peak"


def _bound(found: ClusterExplanation) -> Iterator[str]:
    size = found.problem.dtype.itemsize
    touched, own = (quantity(elements * size, "B") for elements in (found.bound.touched, found.bound.own))
    yield f"{quantity(found.bound_bytes, 'B')} to each device at least (Kwasniewski et al. 2019):"
    yield f"it touches {touched}, of which {own} may be its own"


def _schedules(found: ClusterExplanation) -> Iterator[str]:
    rows = [HEADINGS, *(_row(found, each) for each in found.schedules)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(
            cell.rjust(width) if at > 1 else cell.ljust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
    for each in found.schedules:
        if each.nodes_needed is not None:
            from_on = (
                f"it has from {each.nodes_needed:,} nodes on" if each.nodes_needed else "no number of nodes would do"
            )
            yield f"{each.name} has no room: {quantity(each.nbytes, 'B')} of {quantity(found.memory, 'B')}; {from_on}"


def _row(found: ClusterExplanation, each: Schedule) -> Sequence[str]:
    ratio = f"{each.traffic.nbytes / found.bound_bytes:.2f}×" if found.bound_bytes else ""
    return (
        each.name, str(each.grid), "no room" if each.nodes_needed is not None else span(each.seconds), span(each.computing),
        span(each.moving), span(each.adding), quantity(each.traffic.nbytes, "B"), quantity(each.traffic.by_net, "B"), ratio,
        quantity(each.nbytes, "B"),
    )  # fmt: skip


def _best(found: ClusterExplanation) -> Iterator[str]:
    best = found.best
    rows, columns, terms = best.brick
    of_peak = found.at_best / best.seconds
    yield f"{best.name}, {best.grid}, {best.node} of it on a node: {span(best.seconds)}, {of_peak:.0%} of the peak"
    meanwhile = ", while the next panels come" if best.moving else ""
    at_once = f", {best.panel:,} at a time, by {best.kernel}{meanwhile}"
    yield f"a device computes {rows:,} × {columns:,} of C over {terms:,} terms{at_once}"
    yield "memory: " + ", ".join(f"{name} {quantity(nbytes, 'B')}" for name, nbytes in best.memory.items() if nbytes)
