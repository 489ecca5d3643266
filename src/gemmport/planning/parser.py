"""The rules of a configuration file, and what breaks them in words: YAML → entries.

It stands apart from `gemmport.planning.lookup` because most processes read no file: checked entries that gemmport ships come
from the cache, and neither PyYAML nor Pydantic is imported.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Annotated, Any, get_args

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    StrictInt,
    StrictStr,
    ValidationError,
)

from gemmport import kernels
from gemmport.core.device import DeviceType
from gemmport.core.dtypes import DTYPES
from gemmport.core.errors import ConfigError, GemmportError
from gemmport.core.problem import OPS, ShapeClass
from gemmport.planning.schema import Entry, LoadedEntry, Source
from gemmport.runtime.sources import languages
from gemmport.runtime.userfile import brief, listed, load_yaml

SCHEMA = 1


def _one_or_many(value: object) -> object:
    return [value] if isinstance(value, str) else value


def _known_dtype(name: str) -> str:
    if name not in DTYPES:
        raise ValueError(f"a type must be one of {', '.join(DTYPES)}; got {name!r}")
    return name


def _known_type(name: str) -> str:
    known = get_args(DeviceType)
    if name.lower() not in known:
        raise ValueError(f"a type of device must be one of {', '.join(known)}; got {name!r}")
    return name


def _known_backend(name: str) -> str:
    known = languages()
    if name.lower() not in known:
        raise ValueError(f"a backend must be one of {', '.join(known)}; got {name!r}")
    return name


def _known_ops(ops: str) -> str:
    if len(ops) != 2 or not set(ops.upper()) <= set(OPS):
        raise ValueError(f"ops must be a pair of {', '.join(OPS)}; got {ops!r}")
    return ops


def _version_range(text: str) -> str:
    try:
        SpecifierSet(text)
    except InvalidSpecifier:
        raise ValueError(f"version must be a range, e.g. '>=3.1,<4'; got {text!r}") from None
    return text


def _calendar_date(value: object) -> object:
    """Not a number, in which pydantic sees seconds since 1970."""
    if isinstance(value, str):
        return dt.date.fromisoformat(value)
    if value is not None and not isinstance(value, dt.date):
        raise ValueError("a date is written as 2026-11-21")
    return value


Names = Annotated[tuple[str, ...], BeforeValidator(_one_or_many)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=False)


class _Match(_Strict):
    """The rules of `gemmport.planning.schema.Match`."""

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


class _Provenance(_Strict):
    """Those of `gemmport.planning.schema.Provenance`."""

    tuned: StrictBool
    date: Annotated[dt.date | None, BeforeValidator(_calendar_date)] = None
    device: str = ""
    driver: str = ""
    runtime: str = ""
    gemmport: str = ""
    sizes: str = ""
    figures: str = ""
    note: str = ""


class _Entry(_Strict):
    """Those of `gemmport.planning.schema.Entry`."""

    name: str = Field(min_length=1)
    match: _Match = _Match()
    kernels: dict[str, dict[str, StrictInt | StrictStr]] = Field(min_length=1)  # strict: YAML's yes is no 1
    provenance: _Provenance


class _File(_Strict):
    schema_: int = Field(alias="schema")
    description: str
    entries: tuple[_Entry, ...]


def parse(text: str, file: str, source: Source) -> Iterator[LoadedEntry]:
    """The checked entries of the text of a file.

    Raises:
        ConfigError: it breaks a rule; the message names file, entry, value and rule.
    """
    try:
        data = load_yaml(text).data
    except ConfigError as error:
        raise ConfigError(f"{file}: {error}") from error
    if not isinstance(data, dict):
        raise ConfigError(f"{file}: a configuration is a mapping with schema, description and entries")
    schema = data.get("schema")
    if type(schema) is int and schema > SCHEMA:
        raise ConfigError(
            f"{file}: schema {brief(schema)} is newer than this gemmport, which knows {SCHEMA}: upgrade gemmport"
        )
    if type(schema) is not int or schema != SCHEMA:  # neither 1.0 nor yes, which are equal to 1
        raise ConfigError(f"{file}: schema is {brief(schema)}: it must be {SCHEMA}")
    try:
        parsed = _File.model_validate(data)
    except ValidationError as error:
        raise ConfigError(listed(f"{file}: {line}" for line in _explain(error, data))) from None
    names: set[str] = set()
    for entry in parsed.entries:
        if entry.name in names:
            raise ConfigError(f"{file}: there are two entries named {brief(entry.name)}: names are unique in a file")
        names.add(entry.name)
        for kernel, values in entry.kernels.items():
            try:
                kernels.variant(kernel).complete(values)
            except GemmportError as error:
                raise ConfigError(listed([f"{file}: entry {brief(entry.name)}: {error}"])) from error
        yield LoadedEntry(Entry.of(entry.model_dump()), file, source)


def _explain(error: ValidationError, data: dict[str, Any]) -> Iterator[str]:
    """One line for each fault: the entry by its name, the key, the value, the rule."""
    for fault in error.errors():
        place: list[object] = list(fault["loc"])
        where = ""
        if len(place) > 1 and place[0] == "entries" and isinstance(place[1], int):
            entry = data["entries"][place[1]]
            name = entry.get("name") if isinstance(entry, dict) else None
            where, place = f"entry {brief(name or place[1])}: ", place[2:]
        rule = {"extra_forbidden": "unknown key", "missing": "missing key"}.get(fault["type"], fault["msg"])
        value = "" if fault["type"] == "missing" else f" (value {brief(fault['input'])})"
        yield f"{where}{'.'.join(map(str, place)) or 'the entry'}: {rule}{value}"
