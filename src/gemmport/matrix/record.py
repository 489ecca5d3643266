"""The result file of the matrix: JSON lines, each written and flushed when it is known, so that killing anything loses nothing.

The first line says what was asked for (`Header`); then come a line per device (`Tested`), one per cell (`Verdict`), and one per
device that was lost (`{"on": id, "lost": reason}`), in any order. docs/matrix.md describes them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TextIO, get_args

from gemmport.core.device import DeviceInfo
from gemmport.core.errors import RecordError
from gemmport.runtime import files

SCHEMA = 1

Status = Literal["verified", "unsupported", "error", "wrong", "hang", "crash"]
"""From best to worst. verified: computed, and right. unsupported: a rule says why it cannot be. error: an exception that no
rule explains. wrong: another result, or memory changed that is not the result's. hang: no result within the cell's time. crash:
the process died of it."""

STATUSES: tuple[Status, ...] = get_args(Status)

FAILED: tuple[Status, ...] = ("error", "wrong", "hang", "crash")
"""What is a fault of the runtime, the driver or gemmport."""

MERGED = "merged"
"""The scope of a record made of others."""


@dataclass(frozen=True)
class Header:
    """What was asked for, and where it began.

    Attributes:
        gemmport: version. scope: "quick", "full", "cells" (those that were named), or "merged".
        shard: its number, from 1, and how many there are.
        started: date and time (UTC), ISO 8601.
        environment: as `gemmport.bench.environment.host_environment`.
        chosen: what was narrowed down, by option: {"kernels": [...], ...}; empty for everything.
        sources: headers of the records that were merged, as plain data.
    """

    gemmport: str
    scope: str
    shard: tuple[int, int]
    started: str
    environment: Mapping[str, str]
    chosen: Mapping[str, Sequence[str]] = field(default_factory=dict)
    sources: tuple[Mapping[str, Any], ...] = ()

    @property
    def part(self) -> str:
        """What was asked for in one line; equal where the same cells are due on the same device."""
        narrowed = "".join(f" {name}={','.join(values)}" for name, values in sorted(self.chosen.items()))
        return f"{self.scope} {self.shard[0]}/{self.shard[1]}{narrowed}"

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {"schema": SCHEMA, **asdict(self)}


@dataclass(frozen=True)
class Tested:
    """A device, and what is due on it.

    Attributes:
        id: stable and unique: "opencl/intel-2026.22.10.0.01/AMD-EPYC".
        runtime: versions, as the backend tells them.
        environments: of the hosts that it was tested on, as `gemmport.bench.environment.host_environment`.
        cells: how many are due.
        command: runs the matrix on this device alone.
        left: of a merged record: how many cells of each part (`Header.part`) were not done.
        lost: why the device could no longer be used; empty where it could.
    """

    id: str
    device: DeviceInfo
    label: str
    runtime: Mapping[str, str]
    environments: tuple[Mapping[str, str], ...]
    cells: int
    command: str
    left: Mapping[str, int] = field(default_factory=dict)
    lost: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {**asdict(self), "device": self.device.to_dict()}


@dataclass(frozen=True)
class Verdict:
    """What came of a cell on a device.

    Attributes:
        on: id of the device. cell: id of the cell, whose parts `kernel` to `scalars` are.
        m, n, k, batch: sizes that were computed; 0 where there is no problem, since no kernel is to be had.
        check: "exact", bit for bit, or "statistical".
        reason: why it is not "verified"; or how it came to be, where it had to be tried again.
        seconds: in all, by the clock, compilation included.
        command: judges this cell alone.
        quirk: id of the known fault of the runtime that explains the status; empty where none does.
        gflops: of a cell that was timed. baselines: by name, {"gflops", "ratio", "status"}, ratio being our speed over theirs.
    """

    on: str
    cell: str
    kernel: str
    types: str
    ops: str
    shape: str
    scalars: str
    m: int
    n: int
    k: int
    batch: int
    check: str
    status: Status
    reason: str
    seconds: float
    command: str
    quirk: str = ""
    gflops: float | None = None
    baselines: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def failed(self) -> bool:
        """Whether something is at fault."""
        return self.status in FAILED

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; what there is nothing to say of is left out."""
        data = asdict(self)
        return {key: value for key, value in data.items() if key not in _OPTIONAL or value not in ("", None, {})}


_OPTIONAL = ("quirk", "gflops", "baselines")


@dataclass
class Record:
    """A result file in memory.

    Attributes:
        devices: by id. verdicts: by id of device and cell, in the order in which they came.
    """

    header: Header
    devices: dict[str, Tested] = field(default_factory=dict)
    verdicts: dict[tuple[str, str], Verdict] = field(default_factory=dict)

    def add(self, item: Tested | Verdict) -> None:
        """Takes in a device or a verdict, in the place of an earlier one of the same."""
        if isinstance(item, Tested):
            self.devices[item.id] = item
        else:
            self.verdicts[item.on, item.cell] = item

    def on(self, device: str) -> list[Verdict]:
        """The verdicts of a device, in the order in which they came."""
        return [verdict for verdict in self.verdicts.values() if verdict.on == device]

    def lines(self) -> Iterator[str]:
        """The lines of its file."""
        yield _line(self.header.to_dict())
        for tested in self.devices.values():
            yield _line(tested.to_dict())
        for verdict in self.verdicts.values():
            yield _line(verdict.to_dict())

    def to_dict(self) -> dict[str, Any]:
        """One JSON document, as docs/matrix.md describes it."""
        return {
            **self.header.to_dict(),
            "devices": [tested.to_dict() for tested in self.devices.values()],
            "cells": [verdict.to_dict() for verdict in self.verdicts.values()],
        }

    def write(self, path: Path) -> None:
        """Writes all of it to a file, which is there whole or not at all."""
        files.write_text(path, "".join(self.lines()))


def read(path: Path) -> Record:
    """The record of a file. A torn last line, which a killed process leaves, is passed over.

    Raises:
        RecordError: it cannot be read, is not a result file of this schema, or is damaged before its last line.
    """
    return _parsed(path)[0]


def _parsed(path: Path) -> tuple[Record, int]:
    """The record of a file, and how many of its bytes are whole lines."""
    try:
        content = files.read_bytes(path)
    except OSError as error:
        raise RecordError(f"{path}: cannot be read: {error.strerror or error}") from error
    whole = content.rfind(b"\n") + 1
    lines = content[:whole].decode("utf-8", errors="replace").split("\n")[:-1]
    if not lines:
        raise RecordError(f"{path} must be a result file of gemmport matrix; it holds no line")
    record: Record | None = None
    for number, line in enumerate(lines, 1):
        try:
            data = json.loads(line)
            if record is None:
                record = Record(_header(data))
            elif "device" in data:
                record.add(_tested(data))
            elif "lost" in data:
                record.add(replace(record.devices[data["on"]], lost=data["lost"]))
            else:
                record.add(_verdict(data, record))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise RecordError(
                f"{path}, line {number}: no line of a result file of gemmport matrix, schema {SCHEMA}: {error}"
            ) from error
    assert record is not None
    return record, whole


def _header(data: dict[str, Any]) -> Header:
    if data.pop("schema", None) != SCHEMA:
        raise ValueError(f"the first line must say schema {SCHEMA}")
    return Header(**{**data, "shard": tuple(data["shard"]), "sources": tuple(data["sources"])})


def _tested(data: dict[str, Any]) -> Tested:
    device = DeviceInfo.from_dict(data["device"])
    return Tested(**{**data, "device": device, "environments": tuple(data["environments"])})


def _verdict(data: dict[str, Any], record: Record) -> Verdict:
    verdict = Verdict(**data)
    if verdict.on not in record.devices:
        raise ValueError(f"a cell on {verdict.on}, of which no line before it tells")
    if verdict.status not in STATUSES:
        raise ValueError(f"a status must be one of {', '.join(STATUSES)}; got {verdict.status!r}")
    return verdict


def _line(data: Mapping[str, Any]) -> str:
    return json.dumps(data, ensure_ascii=False, allow_nan=False) + "\n"


class Journal:
    """A record that grows, and its file, where there is one: each line is there when the call that adds it returns."""

    def __init__(self, header: Header, path: Path | None = None) -> None:
        """Begins a record, or goes on with that of the file.

        Raises:
            RecordError: the file is a record of something else, or none at all.
            OSError: it cannot be written.
        """
        self.record = Record(header)
        self._file: TextIO | None = None
        if path is None:
            return
        begun = path.exists() and path.stat().st_size > 0
        if begun:
            self.record, whole = _parsed(path)
            _check_same(path, self.record.header, header)
            with path.open("rb+") as file:
                file.truncate(whole)
        self._file = path.open("a", encoding="utf-8")
        if not begun:
            self._write(header.to_dict())

    def add(self, item: Tested | Verdict) -> None:
        """Adds a device or a verdict."""
        known = self.record.devices.get(item.id) if isinstance(item, Tested) else None
        self.record.add(item)
        if item != known:
            self._write(item.to_dict())

    def lose(self, device: str, reason: str) -> None:
        """Notes that a device can no longer be used."""
        self.record.add(replace(self.record.devices[device], lost=reason))
        self._write({"on": device, "lost": reason})

    def close(self) -> None:
        """Closes the file."""
        if self._file is not None:
            self._file.close()

    def _write(self, data: Mapping[str, Any]) -> None:
        if self._file is not None:
            self._file.write(_line(data))
            self._file.flush()


def _check_same(path: Path, found: Header, wanted: Header) -> None:
    """Raises RecordError where a file's cells are not those that are wanted now."""
    for what, theirs, ours in (
        ("by gemmport", found.gemmport, wanted.gemmport),
        ("for", found.part, wanted.part),
    ):
        if theirs != ours:
            raise RecordError(
                f"{path} was begun {what} {theirs}, and this is {ours}: "
                "say the same again to go on with it, or name another file"
            )


def merge(records: Iterable[Record]) -> Record:
    """One record of several: the union of their devices and of their cells. Of two verdicts on a cell, the worse stays.

    Raises:
        RecordError: there is none.
    """
    every = list(records)
    if not every:
        raise RecordError("there is nothing to merge: name at least one result file")
    first = every[0].header
    sources = [own for record in every for own in (record.header.sources or (record.header.to_dict(),))]
    versions = dict.fromkeys(record.header.gemmport for record in every)
    merged = Record(
        Header(
            gemmport=", ".join(versions), scope=MERGED, shard=(1, 1), started=min(r.header.started for r in every),
            environment=first.environment, sources=tuple(sources),
        )
    )  # fmt: skip
    for record in every:
        for key, verdict in record.verdicts.items():
            known = merged.verdicts.get(key)
            if known is None or STATUSES.index(verdict.status) > STATUSES.index(known.status):
                merged.verdicts[key] = verdict
    for tested in (tested for record in every for tested in _with_what_is_left(record)):
        known_device = merged.devices.get(tested.id)
        merged.add(tested if known_device is None else _together(known_device, tested))
    for tested in list(merged.devices.values()):
        done = len(merged.on(tested.id))
        merged.add(replace(tested, cells=done + sum(tested.left.values())))
    return merged


def _with_what_is_left(record: Record) -> Iterator[Tested]:
    for tested in record.devices.values():
        left = tested.left if record.header.sources else {record.header.part: tested.cells - len(record.on(tested.id))}
        yield replace(tested, left=left)


def _together(one: Tested, other: Tested) -> Tested:
    """A device that two records tell of. What one of two runs of a part left, the other may have done."""
    left = dict(one.left)
    for part, count in other.left.items():
        left[part] = min(count, left.get(part, count))
    environments = tuple({str(e): e for e in (*one.environments, *other.environments)}.values())
    return replace(one, left=left, environments=environments, lost=one.lost or other.lost)
