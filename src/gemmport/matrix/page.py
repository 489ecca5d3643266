"""One HTML file that shows a record to a person: it filters and sorts, needs no network, and states on what it was made.

The page is page.html, page.css and page.js beside this module, and what all pages share (`gemmport.pages`). Its data are
packed: a column is a list of values and, for each cell, the number of its value. The browser does the rest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gemmport import kernels
from gemmport.core.problem import OPS
from gemmport.core.quirks import QUIRKS, quirks_of
from gemmport.matrix.cells import SCALARS, SHAPES, TYPES
from gemmport.matrix.record import FAILED, MERGED, STATUSES, Header, Record, Tested, Verdict
from gemmport.matrix.summary import Summary, summarize
from gemmport.pages.assembly import assembled, escape

LONGEST_REASON = 600
"""Characters of a reason that the page keeps. A compiler may write thousands, and the record has them."""

_WORST_FIRST = FAILED[::-1]


def render(record: Record) -> str:
    """The page of a record: some 60 KB, and 50 bytes for a usual cell. It reaches nothing outside itself (`assembled`)."""
    summaries = summarize(record)
    mood, symbol, verdict = _verdict(summaries)
    texts = {
        "title": escape(f"{symbol} {verdict} · gemmport matrix"),
        "mood": mood,
        "symbol": symbol,
        "verdict": escape(verdict),
        "counts": escape(_counts(summaries)),
        "made": escape(_made(record.header)),
        "summary": _summary(summaries),
    }
    return assembled("gemmport.matrix", texts, _packed(record, summaries))


# What is told in words


def _verdict(summaries: Sequence[Summary]) -> tuple[str, str, str]:
    """Mood (a class of page.css), symbol and sentence."""
    verified = sum(summary.counts["verified"] for summary in summaries)
    failed = sum(len(summary.failures) for summary in summaries)
    lost = sum(bool(summary.tested.lost) for summary in summaries)
    left = sum(summary.left for summary in summaries)
    losses = f"{_number(lost, 'device')} lost"
    if failed:
        told = f"{failed:,} of {_number(verified + failed, 'cell')} failed"
        return "bad", "✗", f"{told}, {losses}" if lost else told
    told = f"{_number(verified, 'cell')} verified, none failed"
    if lost:
        return "bad", "✗", f"{losses}; {told}"
    if left:
        return "idle", "…", f"{told}, {left:,} not run"
    return ("good", "✓", told) if verified else ("idle", "–", "Nothing was verified")


def _number(count: int, name: str) -> str:
    return f"{count:,} {name}" if count == 1 else f"{count:,} {name}s"


def _counts(summaries: Sequence[Summary]) -> str:
    """All cells by status, in one line."""
    counts: Counter[str] = Counter()
    for summary in summaries:
        counts.update(summary.counts)
        counts["not run"] += summary.left
    names = [name for name in ("verified", *_WORST_FIRST, "unsupported", "not run") if counts[name]]
    return " · ".join([_number(len(summaries), "device"), *(f"{counts[name]:,} {name}" for name in names)])


def _made(header: Header) -> str:
    """With what, when, which part of the matrix, and where, in one line."""
    told = [f"gemmport {header.gemmport}", f"begun {header.started[:16].replace('T', ' ')} UTC"]
    if header.scope == MERGED:
        return " · ".join([*told, f"merged from {_number(len(header.sources), 'record')}"])
    shard = f", shard {header.shard[0]} of {header.shard[1]}" if header.shard[1] > 1 else ""
    chosen = [f"{name}: {', '.join(values)}" for name, values in header.chosen.items()]
    host = [header.environment[name] for name in ("cpu", "system") if header.environment.get(name)]
    return " · ".join([*told, f"scope {header.scope}{shard}", *chosen, *host])


def _summary(summaries: Sequence[Summary]) -> str:
    """The counts as a plain table, for readers without scripts."""
    statuses = STATUSES[::-1]
    head = "".join(f'<th scope="col">{name}</th>' for name in ("device", *statuses, "not run", "verdict"))
    lines = []
    for summary in summaries:
        cells = [*(f"{summary.counts[status]:,}" for status in statuses), f"{summary.left:,}", summary.verdict]
        row = "".join(f"<td>{cell}</td>" for cell in cells)
        lines.append(f'<tr><th scope="row">{escape(summary.tested.label)}</th>{row}</tr>')
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>"


# Data


def _packed(record: Record, summaries: Sequence[Summary]) -> dict[str, Any]:
    """What page.js reads."""
    verdicts = list(record.verdicts.values())
    names = _names(list(record.devices.values()))
    axes = {
        "kernel": [variant.name for variant in kernels.variants()],
        "types": TYPES,
        "ops": [one + other for one in OPS for other in OPS],
        "shape": SHAPES,
        "scalars": list(SCALARS),
        "check": (),
        "status": STATUSES[::-1],
        "quirk": (),
        "command": (),
    }
    retried = {(verdict.on, verdict.cell) for summary in summaries for verdict in summary.retried}
    columns: dict[str, Iterable[Any]] = {
        **{name: [getattr(verdict, name) for verdict in verdicts] for name in axes},
        "device": [verdict.on for verdict in verdicts],
        "size": [(v.m, v.n, v.k, v.batch) for v in verdicts],
        "reason": [_shortened(verdict.reason) for verdict in verdicts],
        "command": [_around(verdict.command, verdict.cell) for verdict in verdicts],
        "retried": ["yes" if (verdict.on, verdict.cell) in retried else "" for verdict in verdicts],
    }
    return {
        "failed": _WORST_FIRST,
        "devices": [_device(summary, names[summary.tested.id]) for summary in summaries],
        "columns": {name: _column(values, axes.get(name, ())) for name, values in columns.items()},
        "seconds": [round(verdict.seconds, 2) for verdict in verdicts],
        "timed": [_timed(row, verdict) for row, verdict in enumerate(verdicts) if verdict.gflops is not None],
        "quirks": _quirks(list(record.devices.values()), verdicts),
    }


def _column(values: Iterable[Any], order: Sequence[str]) -> dict[str, list[Any]]:
    """Each value there is, once, in a given order and others after it as they come; and the number of every cell's value."""
    told = list(values)
    there = dict.fromkeys(told)
    distinct = [value for value in order if value in there]
    distinct += [value for value in there if value not in order]
    numbers = {value: number for number, value in enumerate(distinct)}
    return {"values": distinct, "rows": [numbers[value] for value in told]}


def _shortened(reason: str) -> str:
    over = f"… ({len(reason):,} characters; the record has them all)"
    return reason if len(reason) <= LONGEST_REASON else reason[: LONGEST_REASON - len(over)] + over


def _around(command: str, cell: str) -> tuple[str, str | None]:
    """What stands before and after a cell's id in its command, which is the same for thousands of cells."""
    before, found, after = command.rpartition(cell)
    return (before, after) if found else (command, None)


def _timed(row: int, verdict: Verdict) -> tuple[int, float | None, Mapping[str, Any]]:
    return row, verdict.gflops, verdict.baselines


def _names(devices: Sequence[Tested]) -> dict[str, str]:
    """Short names, by id: the runtime, with the backend or the hardware where another one is called the same."""
    choices = {}
    for tested in devices:
        device = tested.device
        runtime = f"{device.platform} {device.platform_version}".strip()
        choices[tested.id] = (runtime, f"{runtime} ({device.backend})", f"{runtime}, {device.name}")
    taken = [Counter(level) for level in zip(*choices.values(), strict=True)]
    return {
        name: next((choice for choice, count in zip(own, taken, strict=True) if count[choice] == 1), name)
        for name, own in choices.items()
    }


def _quirks(devices: Sequence[Tested], verdicts: Sequence[Verdict]) -> list[dict[str, Any]]:
    """The quirks of these devices, and those that verdicts refer to, of which another version may know more than this one."""
    on: dict[str, list[str]] = {}
    for tested in devices:
        for quirk in quirks_of(tested.device):
            on.setdefault(quirk.id, []).append(tested.id)
    for verdict in verdicts:
        if verdict.quirk and verdict.on not in on.setdefault(verdict.quirk, []):
            on[verdict.quirk].append(verdict.on)
    known = {q.id: {"symptom": q.symptom, "effect": q.effect, "evidence": q.evidence} for q in QUIRKS}
    return [{"id": name, "devices": ids, **known.get(name, {})} for name, ids in on.items()]


def _device(summary: Summary, name: str) -> dict[str, Any]:
    tested = summary.tested
    return {
        "id": tested.id,
        "name": name,
        "label": tested.label,
        "hardware": tested.device.name,
        "backend": tested.device.backend,
        "left": summary.left,
        "lost": tested.lost,
        "command": tested.command,
        "facts": _facts(tested),
    }


def _facts(tested: Tested) -> list[tuple[str, list[tuple[str, str]]]]:
    """Titled lists of what a maintainer asks for first; what the runtime does not tell is left out."""
    device = tested.device
    hardware = {
        "device": device.name,
        "kind": f"{device.vendor} {device.type}".strip(),
        "architecture": device.architecture,
        "compute units": device.compute_units,
        "clock": device.clock_mhz and f"{device.clock_mhz:,} MHz",
        "memory": f"{device.memory / 2**30:,.1f} GiB",
        "local memory": f"{device.local_memory / 2**10:,.0f} KiB per group",
        "groups": f"up to {device.max_work_group:,} work-items",
        "sub-groups": device.sub_group and f"of {device.sub_group}",
        "computes in": ", ".join(sorted(device.computes)),
    }
    runtime = {
        "runtime": f"{device.platform_name or device.platform} {device.platform_version}".strip(),
        **tested.runtime,
        "driver": device.driver,
    }
    hosts = [("Host" if number == 1 else f"Host {number}", host) for number, host in enumerate(tested.environments, 1)]
    quirks = {quirk.id: quirk.effect for quirk in quirks_of(device)}
    titled: list[tuple[str, Mapping[str, object]]]
    titled = [("Hardware", hardware), ("Runtime", runtime), *hosts, ("Quirks", quirks)]
    return [(title, [(name, str(fact)) for name, fact in facts.items() if fact]) for title, facts in titled if facts]
