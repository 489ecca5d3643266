"""The file of a sweep: what every candidate took on each workload. JSON lines: a sweep that is cut short keeps what it has.

The first line says on what device (`header`); then comes a line for each workload (`Swept`). docs/shapes.md describes them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from gemmport.bench.standings import Workload
from gemmport.core.device import DeviceInfo
from gemmport.core.errors import GemmportError, RecordError
from gemmport.core.plan import ParameterValue
from gemmport.core.problem import GemmProblem
from gemmport.runtime import files

SCHEMA = 1

Read = TypeVar("Read")


@dataclass(frozen=True)
class Timed:
    """A candidate: a kernel with all its parameters, and what it took.

    Attributes:
        seconds: per call, the median of the samples.
        verified: whether every check passed; None where none was made.
    """

    kernel: str
    parameters: Mapping[str, ParameterValue]
    seconds: float
    verified: bool | None = None


@dataclass(frozen=True)
class Swept:
    """A workload, and what was timed on it."""

    workload: Workload
    timed: tuple[Timed, ...]

    @property
    def best(self) -> Timed | None:
        """The fastest candidate that was not found wrong; None where there is none."""
        return min((one for one in self.timed if one.verified is not False), key=lambda one: one.seconds, default=None)

    def to_line(self) -> str:
        """A line of the file."""
        workload = self.workload
        return _line(
            label=workload.label,
            source=workload.source,
            problem=workload.problem.to_dict(),
            timed=[asdict(one) for one in self.timed],
        )


@dataclass(frozen=True)
class Sweep:
    """What a file holds.

    Attributes:
        environment: of the host, as `gemmport.bench.environment.host_environment`.
    """

    device: DeviceInfo
    environment: Mapping[str, str]
    swept: tuple[Swept, ...] = field(repr=False)


def header(device: DeviceInfo, environment: Mapping[str, str]) -> str:
    """The first line of the file."""
    return _line(schema=SCHEMA, environment=environment, device=device.to_dict())


def read_sweep(path: Path) -> Sweep:
    """What a file holds; without its last line, if that was cut off while it was written.

    Raises:
        RecordError: the file cannot be read, is not of this schema, or holds no workload; the message names the line.
    """
    try:
        lines = files.read_bytes(path).decode("utf-8").split("\n")[:-1]
    except OSError as error:
        raise RecordError(f"{path}: cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise RecordError(f"{path}: cannot be read: {error}") from error
    if len(lines) < 2:
        raise RecordError(f"{path}: no workload is in it: a sweep has a line for its device, and one for each workload")
    device, environment = _read(path, 1, lines[0], _header)
    swept = tuple(_read(path, number, line, _swept) for number, line in enumerate(lines[1:], 2))
    return Sweep(device, environment, swept)


def _read(path: Path, number: int, line: str, meaning: Callable[[Any], Read]) -> Read:
    try:
        return meaning(json.loads(line))
    except json.JSONDecodeError as error:
        raise RecordError(
            f"{path}, line {number} must be a line of a sweep; got no JSON; name a file that gemmport tune or "
            "benchmarks/sweep.py wrote"
        ) from error
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, GemmportError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise RecordError(f"{path}, line {number} must be a line of a sweep: {reason}") from error


def _header(data: Mapping[str, Any]) -> tuple[DeviceInfo, Mapping[str, str]]:
    if data["schema"] != SCHEMA:
        raise ValueError(f"schema {data['schema']} is not {SCHEMA}, which this gemmport writes")
    return DeviceInfo.from_dict(data["device"]), data["environment"]


def _swept(data: Mapping[str, Any]) -> Swept:
    workload = Workload(GemmProblem.from_dict(data["problem"]), data["label"], data["source"])
    timed = tuple(Timed(**one) for one in data["timed"])
    if any(one.seconds <= 0 for one in timed):
        raise ValueError("a candidate took no time")
    return Swept(workload, timed)


def _line(**content: Any) -> str:
    return json.dumps(content, allow_nan=False, ensure_ascii=False) + "\n"
