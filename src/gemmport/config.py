"""Configuration: YAML entries that say, for a kind of device and problem, which kernels to prefer and their tile sizes.

Three sources, the first before the second before the third: files named in the call (`--config`, `config=`), the user's own
folders (GEMMPORT_CONFIG_PATH), and the files that gemmport ships. Within one source the most specific matching entry comes
first.
"""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

import yaml
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictInt,
    StrictStr,
    ValidationError,
)

from gemmport import kernels
from gemmport.device import DeviceInfo, DeviceType
from gemmport.dtypes import DTYPES
from gemmport.errors import ConfigError, GemmportError
from gemmport.plan import ParameterValue
from gemmport.problem import OPS, GemmProblem, ShapeClass
from gemmport.sources import languages

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

SCHEMA = 1

Source = Literal["call", "user", "shipped"]


def _one_or_many(value: object) -> object:
    return [value] if isinstance(value, str) else value


def _known_dtype(name: str) -> str:
    if name not in DTYPES:
        raise ValueError(f"{name!r} is none of {', '.join(DTYPES)}")
    return name


def _known_type(name: str) -> str:
    known = get_args(DeviceType)
    if name.lower() not in known:
        raise ValueError(f"{name!r} is none of {', '.join(known)}")
    return name


def _known_backend(name: str) -> str:
    known = languages()
    if name.lower() not in known:
        raise ValueError(f"{name!r} is none of {', '.join(known)}")
    return name


def _known_ops(ops: str) -> str:
    if len(ops) != 2 or not set(ops.upper()) <= set(OPS):
        raise ValueError(f"{ops!r} is no pair of {', '.join(OPS)}")
    return ops


def _version_range(text: str) -> str:
    try:
        SpecifierSet(text)
    except InvalidSpecifier:
        raise ValueError(f"{text!r} is no version range; write e.g. '>=3.1,<4'") from None
    return text


Names = Annotated[tuple[str, ...], BeforeValidator(_one_or_many)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=False)


class Match(_Strict):
    """Which devices and problems an entry is for. A key that is left out matches everything; a list matches any of its
    members.

    Attributes:
        device: parts of the device's name; case does not matter in any of these.
        architecture: starts of the architecture ("sm_90", "gfx9").
        platform: aliases of the runtime; `version`: its range of versions (PEP 440: ">=3.1,<4").
        vendor, type, backend: as in `gemmport devices`.
        dtype, ops, shape: of the problem: "float32"; "NN"; a shape class.
    """

    device: Names = ()
    architecture: Names = ()
    platform: Names = ()
    version: Annotated[str, AfterValidator(_version_range)] = ""
    vendor: Names = ()
    type: Annotated[tuple[Annotated[str, AfterValidator(_known_type)], ...], BeforeValidator(_one_or_many)] = ()
    backend: Annotated[tuple[Annotated[str, AfterValidator(_known_backend)], ...], BeforeValidator(_one_or_many)] = ()
    dtype: Annotated[tuple[Annotated[str, AfterValidator(_known_dtype)], ...], BeforeValidator(_one_or_many)] = ()
    ops: Annotated[tuple[Annotated[str, AfterValidator(_known_ops)], ...], BeforeValidator(_one_or_many)] = ()
    shape: Annotated[tuple[ShapeClass, ...], BeforeValidator(_one_or_many)] = ()

    def device_matches(self, device: DeviceInfo) -> bool:
        """Whether the entry is for this device."""
        return (
            _any(self.device, lambda part: part in device.name.lower())
            and _any(self.architecture, lambda start: device.architecture.lower().startswith(start))
            and _any(self.platform, lambda alias: alias == device.platform.lower())
            and device.has_version(self.version)
            and _any(self.vendor, lambda vendor: vendor == device.vendor.lower())
            and _any(self.type, lambda kind: kind == device.type)
            and _any(self.backend, lambda backend: backend == device.backend)
        )

    def problem_matches(self, problem: GemmProblem) -> bool:
        """Whether the entry is for this problem."""
        return (
            _any(self.dtype, lambda dtype: dtype == problem.dtype.name)
            and _any(self.ops, lambda ops: ops == problem.ops.lower())
            and (not self.shape or problem.shape_class in self.shape)
        )

    @property
    def specificity(self) -> tuple[bool, ...]:
        """Orders entries: device → architecture → platform → vendor → type → backend, then the problem's keys."""
        platform = (bool(self.platform), bool(self.version))
        kind = (bool(self.vendor), bool(self.type), bool(self.backend))
        return (bool(self.device), bool(self.architecture), *platform, *kind,
                bool(self.dtype), bool(self.shape), bool(self.ops))  # fmt: skip


def _any(wanted: Sequence[str], test: Any) -> bool:
    return not wanted or any(test(word.lower()) for word in wanted)


class Provenance(_Strict):
    """Where an entry's numbers come from. An entry without measurements says `tuned: false`."""

    tuned: bool
    date: dt.date | None = None
    device: str = ""
    driver: str = ""
    runtime: str = ""
    gemmport: str = ""
    sizes: str = ""
    figures: str = ""
    note: str = ""


class Entry(_Strict):
    """Kernels with their parameters, in order of preference, for what `match` describes."""

    name: str = Field(min_length=1)
    match: Match = Match()
    kernels: dict[str, dict[str, StrictInt | StrictStr]] = Field(min_length=1)  # strict: YAML's yes is no 1
    provenance: Provenance


class _File(_Strict):
    schema_: int = Field(alias="schema")
    description: str
    entries: tuple[Entry, ...]


@dataclass(frozen=True)
class LoadedEntry:
    """An entry, and where it stands."""

    entry: Entry
    file: str
    source: Source

    @property
    def origin(self) -> str:
        """File and entry, for people."""
        return f"{self.file}: {self.entry.name}"

    @property
    def asked_for(self) -> bool:
        """Whether the user chose it, so that a limit of the device is an error and not a reason to pass it over."""
        return self.source != "shipped"

    def parameters(self, kernel: str) -> dict[str, ParameterValue] | None:
        """Parameters it states for a kernel; None where it does not list the kernel."""
        found = self.entry.kernels.get(kernel)
        return None if found is None else dict(found)


@dataclass(frozen=True)
class Configuration:
    """All entries of all sources, the first source first."""

    entries: tuple[LoadedEntry, ...]

    def matching(self, device: DeviceInfo, problem: GemmProblem | None = None) -> list[LoadedEntry]:
        """Entries for a device (and a problem), in the order in which they are tried."""
        found = [
            loaded for loaded in self.entries
            if loaded.entry.match.device_matches(device)
            and (problem is None or loaded.entry.match.problem_matches(problem))
        ]  # fmt: skip
        rank: dict[Source, int] = {"call": 0, "user": 1, "shipped": 2}
        found.sort(
            key=lambda loaded: loaded.entry.match.specificity, reverse=True
        )  # stable: ties keep their file's order
        found.sort(key=lambda loaded: rank[loaded.source])
        return found


def load_configuration(extra: Sequence[str | Path] = ()) -> Configuration:
    """The configuration: `extra` files of this call, then the user's folders, then what gemmport ships.

    Raises:
        ConfigError: a file cannot be read or breaks a rule; the message names file, entry, value and rule.
    """
    entries = [loaded for path in extra for loaded in load_file(path, "call")]
    for folder in filter(None, os.environ.get("GEMMPORT_CONFIG_PATH", "").split(os.pathsep)):
        if not Path(folder).is_dir():
            raise ConfigError(f"GEMMPORT_CONFIG_PATH names {folder}, which is no folder")
        entries += [loaded for path in sorted(Path(folder).glob("*.y*ml")) for loaded in load_file(path, "user")]
    return Configuration((*entries, *_shipped()))


def load_file(path: str | Path, source: Source = "call") -> list[LoadedEntry]:
    """The checked entries of one file.

    Raises:
        ConfigError: as `load_configuration`.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error
    return list(_parse(text, str(path), source))


@cache
def _shipped() -> tuple[LoadedEntry, ...]:
    folder: Traversable = files("gemmport.configs")
    named = sorted((file for file in folder.iterdir() if file.name.endswith(".yaml")), key=lambda file: file.name)
    return tuple(
        entry for file in named for entry in _parse(file.read_text("utf-8"), f"configs/{file.name}", "shipped")
    )


class UniqueKeys(yaml.SafeLoader):
    """YAML demands that a mapping's keys are unique; PyYAML keeps the last one without a word."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    raise yaml.MarkedYAMLError(problem=f"key {key.value!r} stands twice", problem_mark=key.start_mark)
                seen.add(key.value)
        return node


def _parse(text: str, file: str, source: Source) -> Iterator[LoadedEntry]:
    try:
        data = yaml.load(text, UniqueKeys)
    except (yaml.YAMLError, ValueError) as error:  # ValueError: a date that no calendar has
        raise ConfigError(f"{file}: this is not YAML: {error}") from error
    if not isinstance(data, dict):
        raise ConfigError(f"{file}: a configuration is a mapping with schema, description and entries")
    schema = data.get("schema")
    if type(schema) is int and schema > SCHEMA:
        raise ConfigError(
            f"{file}: schema {schema} is newer than this gemmport, which knows {SCHEMA}: upgrade gemmport"
        )
    if type(schema) is not int or schema != SCHEMA:  # neither 1.0 nor yes, which are equal to 1
        raise ConfigError(f"{file}: schema is {schema!r}: it must be {SCHEMA}")
    try:
        parsed = _File.model_validate(data)
    except ValidationError as error:
        raise ConfigError("\n".join(f"{file}: {line}" for line in _explain(error, data))) from error
    names: set[str] = set()
    for entry in parsed.entries:
        if entry.name in names:
            raise ConfigError(f"{file}: there are two entries named {entry.name!r}: names are unique in a file")
        names.add(entry.name)
        for kernel, values in entry.kernels.items():
            try:
                kernels.variant(kernel).complete(values)
            except GemmportError as error:
                raise ConfigError(f"{file}: entry {entry.name!r}: {error}") from error
        yield LoadedEntry(entry, file, source)


def _explain(error: ValidationError, data: dict[str, Any]) -> Iterator[str]:
    """One line for each fault: the entry by its name, the key, the value, the rule."""
    for fault in error.errors():
        place: list[object] = list(fault["loc"])
        where = ""
        if len(place) > 1 and place[0] == "entries" and isinstance(place[1], int):
            entry = data["entries"][place[1]]
            name = entry.get("name") if isinstance(entry, dict) else None
            where, place = f"entry {name or place[1]!r}: ", place[2:]
        rule = {"extra_forbidden": "unknown key", "missing": "missing key"}.get(fault["type"], fault["msg"])
        value = "" if fault["type"] == "missing" else f" (value {fault['input']!r})"
        yield f"{where}{'.'.join(map(str, place)) or 'the entry'}: {rule}{value}"
