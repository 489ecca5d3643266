"""The rules of a configuration file, and what breaks them in words: YAML → entries and models.

It stands apart from `gemmport.planning.lookup` because most processes read no file: checked entries that gemmport ships come
from the cache, and neither PyYAML nor Pydantic is imported.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Literal, get_args

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
from gemmport.core.errors import ConfigError, GemmportError, UnknownNameError
from gemmport.core.problem import OPS, ShapeClass
from gemmport.planning.schema import Entry, Loaded, LoadedEntry, LoadedModel, Model, Source
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


class _DeviceMatch(_Strict):
    """The rules of the keys of `gemmport.planning.schema.Match` that are of devices."""

    device: Names = ()
    architecture: Names = ()
    platform: Names = ()
    version: Annotated[str, AfterValidator(_version_range)] = ""
    vendor: Names = ()
    type: Annotated[tuple[Annotated[str, AfterValidator(_known_type)], ...], BeforeValidator(_one_or_many)] = ()
    backend: Annotated[tuple[Annotated[str, AfterValidator(_known_backend)], ...], BeforeValidator(_one_or_many)] = ()


class _Match(_DeviceMatch):
    """Those of all keys."""

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


def _number(value: object) -> object:
    """Not a truth value, which is a number to Python; as text, for to YAML 1.1 numbers such as 4.2e12 are words."""
    if value is True or value is False:
        raise ValueError("must be a number")
    return float(value) if isinstance(value, str) else value


Number = Annotated[float, BeforeValidator(_number), Field(gt=0, allow_inf_nan=False)]
Constant = Annotated[float, BeforeValidator(_number), Field(ge=0, allow_inf_nan=False)]


class _KernelModel(_Strict):
    """Those of `gemmport.planning.schema.KernelModel`."""

    fitted: dict[str, Constant] = {}
    tilings: tuple[dict[str, StrictInt | StrictStr], ...] = ()


class _Model(_Strict):
    """Those of `gemmport.planning.schema.Model`."""

    name: str = Field(min_length=1)
    match: _DeviceMatch = _DeviceMatch()
    multiply_adds: dict[Literal["float16", "float32", "float64", "int32"], Number] = {}
    read_bandwidth: Number | None = None
    copy_bandwidth: Number | None = None
    local_bandwidth: Number | None = None
    latency: Number | None = None
    launch: Number | None = None
    group: Number | None = None
    barrier: Number | None = None
    kernels: dict[str, _KernelModel] = {}
    provenance: _Provenance


class _Entry(_Strict):
    """Those of `gemmport.planning.schema.Entry`."""

    name: str = Field(min_length=1)
    match: _Match = _Match()
    kernels: dict[str, dict[str, StrictInt | StrictStr]] = Field(min_length=1)  # strict: YAML's yes is no 1
    provenance: _Provenance


class _File(_Strict):
    schema_: int = Field(alias="schema")
    description: str
    entries: tuple[_Entry, ...] = ()
    models: tuple[_Model, ...] = ()


def parse(text: str, file: str, source: Source) -> Loaded:
    """The checked entries and models of the text of a file.

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
    if "entries" not in data and "models" not in data:
        raise ConfigError(f"{file}: entries: missing key; a configuration has entries, models or both")
    for what, named in (("entries", parsed.entries), ("models", parsed.models)):
        names: set[str] = set()
        for one in named:
            if one.name in names:
                told = brief(one.name)
                raise ConfigError(f"{file}: there are two {what} named {told}: names are unique in a file")
            names.add(one.name)
    for entry in parsed.entries:
        for kernel, values in entry.kernels.items():
            with _told(f"{file}: entry {brief(entry.name)}"):
                kernels.variant(kernel).complete(values)
    for model in parsed.models:
        for kernel, stated in model.kernels.items():
            with _told(f"{file}: model {brief(model.name)}"):
                _check(kernel, stated)
    return Loaded(
        tuple(LoadedEntry(Entry.of(entry.model_dump()), file, source) for entry in parsed.entries),
        tuple(LoadedModel(Model.of(model.model_dump()), file, source) for model in parsed.models),
    )


@contextmanager
def _told(where: str) -> Iterator[None]:
    try:
        yield
    except GemmportError as error:
        raise ConfigError(listed([f"{where}: {error}"])) from error


def _check(kernel: str, stated: _KernelModel) -> None:
    """Raises ParameterError or UnknownNameError where a kernel has no such constant, or cannot have such a tiling."""
    variant = kernels.variant(kernel.removesuffix(".mma"))
    for name in stated.fitted:
        if name not in variant.constants:
            has = f"it has {', '.join(variant.constants)}" if variant.constants else "it has none"
            raise UnknownNameError(f"{variant.name} has no fitted constant {name}: {has}")
    for tiling in stated.tilings:
        variant.complete(tiling)


_NAMED = {"entries": "entry", "models": "model"}


def _explain(error: ValidationError, data: dict[str, Any]) -> Iterator[str]:
    """One line for each fault: the entry by its name, the key, the value, the rule."""
    for fault in error.errors():
        place: list[object] = list(fault["loc"])
        where, what = "", "entry"
        if len(place) > 1 and place[0] in _NAMED and isinstance(place[1], int):
            what = _NAMED[str(place[0])]
            entry = data[place[0]][place[1]]
            name = entry.get("name") if isinstance(entry, dict) else None
            where, place = f"{what} {brief(name or place[1])}: ", place[2:]
        rule = {"extra_forbidden": "unknown key", "missing": "missing key"}.get(fault["type"], fault["msg"])
        value = "" if fault["type"] == "missing" else f" (value {brief(fault['input'])})"
        yield f"{where}{'.'.join(map(str, place)) or 'the ' + what}: {rule}{value}"
