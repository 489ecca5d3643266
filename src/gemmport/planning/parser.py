"""The rules of a configuration file: YAML → entries and models. `gemmport.planning.faults` tells what breaks them in words.

It stands apart from `gemmport.planning.lookup` because most processes read no file: checked entries that gemmport ships come
from the cache, and neither PyYAML nor Pydantic is imported.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
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
    ValidationError,
    model_validator,
)
from pydantic_core import ErrorDetails

from gemmport import kernels
from gemmport.contracts.kernel import Pass
from gemmport.core.device import DeviceType
from gemmport.core.dtypes import INPUTS
from gemmport.core.errors import ConfigError, UnknownNameError
from gemmport.core.names import PLATFORMS, VENDORS, did_you_mean
from gemmport.core.precision import PRECISIONS
from gemmport.core.problem import MAX_EXTENT, OPS, ShapeClass
from gemmport.planning.faults import NotOneOf, in_words, must_be
from gemmport.planning.schema import Entry, Loaded, LoadedEntry, LoadedModel, LoadedPrecision, Match, Model, Source
from gemmport.runtime.sources import languages
from gemmport.runtime.userfile import brief, listed, load_yaml

SCHEMA = 1


def _one_or_many(value: object) -> object:
    return [value] if isinstance(value, str) else value


def _one_of(known: Sequence[str]) -> AfterValidator:
    """A text that is one of these, in either case."""

    def check(text: str) -> str:
        if text.lower() not in known:
            raise NotOneOf(known)
        return text.lower()

    return AfterValidator(check)


def _known_ops(ops: str) -> str:
    if len(ops) != 2 or not set(ops.upper()) <= set(OPS):
        raise ValueError(f"a pair of {', '.join(OPS)}, such as NT")
    return ops


def _version_range(text: str) -> str:
    try:
        SpecifierSet(text)
    except InvalidSpecifier:
        raise ValueError("a range of versions, such as '>=3.1,<4'") from None
    return text


def _calendar_date(value: object) -> object:
    """Not a number, in which pydantic sees seconds since 1970."""
    if isinstance(value, str):
        try:
            return dt.date.fromisoformat(value)
        except ValueError:
            raise ValueError("") from None  # the field's description says what a date is
    if value is not None and not isinstance(value, dt.date):
        raise ValueError("")
    return value


_MANY = BeforeValidator(_one_or_many)
_TEXTS = Field(description="a text, or a list of texts")

Text = Annotated[str, Field(description="a text")]
Names = Annotated[tuple[str, ...], _MANY, _TEXTS]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=False)


class _DeviceMatch(_Strict):
    """The rules of the keys of `gemmport.planning.schema.Match` that are of devices."""

    device: Names = ()
    architecture: Names = ()
    platform: Names = ()
    version: Annotated[Text, AfterValidator(_version_range)] = ""
    vendor: Names = ()
    type: Annotated[tuple[Annotated[str, _one_of(get_args(DeviceType))], ...], _MANY, _TEXTS] = ()
    backend: Annotated[tuple[Annotated[str, _one_of(languages())], ...], _MANY, _TEXTS] = ()


class _Match(_DeviceMatch):
    """Those of all keys."""

    dtype: Annotated[tuple[Annotated[str, _one_of(tuple(INPUTS))], ...], _MANY, _TEXTS] = ()
    ops: Annotated[tuple[Annotated[str, AfterValidator(_known_ops)], ...], _MANY, _TEXTS] = ()
    shape: Annotated[tuple[Annotated[str, _one_of(get_args(ShapeClass))], ...], _MANY, _TEXTS] = ()
    precision: Annotated[tuple[Annotated[str, _one_of(PRECISIONS)], ...], _MANY, _TEXTS] = ()


class _Provenance(_Strict):
    """Those of `gemmport.planning.schema.Provenance`."""

    tuned: Annotated[StrictBool, Field(description="true or false")] = False
    modelled: Annotated[StrictBool, Field(description="true or false")] = False
    date: Annotated[
        dt.date | None, BeforeValidator(_calendar_date), Field(description="a date, such as 2026-11-21")
    ] = None  # fmt: skip
    device: Text = ""
    driver: Text = ""
    runtime: Text = ""
    gemmport: Text = ""
    sizes: Text = ""
    figures: Text = ""
    note: Text = ""

    @model_validator(mode="after")
    def _one_of_both(self) -> _Provenance:
        if self.tuned and self.modelled:
            raise ValueError("tuned or modelled, not both")
        return self


def _number(value: object) -> object:
    """A finite number, which may be written as text, for to YAML 1.1 numbers such as 4.2e12 are words; not a truth value."""
    try:
        number = float(value) if isinstance(value, int | float | str) and not isinstance(value, bool) else math.nan
    except (ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise ValueError("")  # the field's description says what it must be
    return number


_NUMBER = BeforeValidator(_number)
_MATCH = "a mapping of keys to what they must be, such as {platform: pocl}"
_KERNELS = "a mapping of kernels to their parameters, such as {tiled: {TS: 16}}"

_RATE = Field(None, description="a number above 0")

Rate = Annotated[float, _NUMBER, Field(gt=0)]
Constant = Annotated[float, _NUMBER, Field(ge=0)]


class _KernelModel(_Strict):
    """Those of `gemmport.planning.schema.KernelModel`."""

    fitted: dict[str, Constant] = Field(
        {}, description="a mapping of constants to numbers", title="a number that is not negative"
    )
    tilings: tuple[dict[str, Any], ...] = Field((), description="a list of mappings of parameters to values")


class _Model(_Strict):
    """Those of `gemmport.planning.schema.Model`."""

    name: str = Field(min_length=1, description="a text that is not empty")
    match: _DeviceMatch = Field(_DeviceMatch(), description=_MATCH)
    multiply_adds: dict[Literal["float16", "float32", "float64", "int32"], Rate] = Field(
        {}, description="a mapping of float16, float32, float64 or int32 to numbers", title="a number above 0"
    )
    matrix_multiply_adds: dict[Literal["float16", "float64"], Rate] = Field(
        {}, description="a mapping of float16 or float64 to numbers", title="a number above 0"
    )
    read_bandwidth: Rate | None = _RATE
    copy_bandwidth: Rate | None = _RATE
    local_bandwidth: Rate | None = _RATE
    link_bandwidth: Rate | None = _RATE
    latency: Rate | None = _RATE
    launch: Rate | None = _RATE
    group: Rate | None = _RATE
    barrier: Rate | None = _RATE
    half_length: Rate | None = _RATE
    kernels: dict[str, _KernelModel] = Field({}, description="a mapping of kernels to mappings with fitted and tilings")
    provenance: _Provenance = Field(_Provenance(), description="a mapping, such as {tuned: false}")


_EXTENT = Field(description=f"a whole number from 1 to {MAX_EXTENT:,}")
_Extent = Annotated[StrictInt, Field(ge=1, le=MAX_EXTENT)]


class _Trial(_Strict):
    """Those of `gemmport.planning.schema.Trial`."""

    m: _Extent = _EXTENT
    n: _Extent = _EXTENT
    k: _Extent = _EXTENT
    batch: _Extent = Field(1, description=f"a whole number from 1 to {MAX_EXTENT:,}")
    ops: Annotated[str, AfterValidator(_known_ops)] = Field("NN", description="a pair of letters, such as NT")
    dtype: Annotated[str, _one_of(tuple(INPUTS))] = Field("float32", description="the name of a type")
    seconds: dict[str, dict[StrictInt, Rate]] = Field(
        min_length=1,
        description="a mapping of kernels to seconds by the number of a tiling, such as {tiled: {0: 0.001}}",
        title="a mapping of numbers of tilings to seconds above 0",
    )


class _Entry(_Strict):
    """Those of `gemmport.planning.schema.Entry`."""

    name: str = Field(min_length=1, description="a text that is not empty")
    match: _Match = Field(_Match(), description=_MATCH)
    kernels: Any = Field(description=_KERNELS)
    provenance: _Provenance = Field(_Provenance(), description="a mapping, such as {tuned: false}")
    trials: tuple[_Trial, ...] = Field((), description="a list of mappings with m, n, k and seconds")


class _File(_Strict):
    schema_: int = Field(alias="schema", description=f"{SCHEMA}")
    description: Text = ""
    precision: Annotated[str, _one_of(PRECISIONS)] = Field("", description="the name of a precision")
    entries: tuple[_Entry, ...] = Field((), description="a list of entries, each with a name and kernels")
    models: tuple[_Model, ...] = Field((), description="a list of models of devices, each with a name")


def parse(text: str, file: str, source: Source) -> Loaded:
    """The checked entries and models of the text of a file.

    Raises:
        ConfigError: it breaks rules. Each line of the message names file, entry or model, key, value and rule.
    """
    try:
        data = load_yaml(text).data
    except ConfigError as error:
        raise ConfigError(f"{file}: {error}") from None
    if not isinstance(data, dict):
        raise ConfigError(
            f"{file}: {must_be('a configuration', 'a mapping with the keys schema and entries, models or precision', data)}"
        )
    schema = data.get("schema")
    if type(schema) is int and schema > SCHEMA:
        raise ConfigError(
            f"{file}: schema {brief(schema)} is newer than this gemmport, which knows {SCHEMA}: upgrade gemmport"
        )
    if type(schema) is not int or schema != SCHEMA:  # neither 1.0 nor yes, which are equal to 1
        raise ConfigError(f"{file}: {must_be('schema', str(SCHEMA), schema)}; write schema: {SCHEMA}")
    found: list[ErrorDetails] = []
    try:
        parsed = _File.model_validate(data)
    except ValidationError as error:
        found = error.errors()
    if told := listed(f"{file}: {fault}" for fault in _faults(data, found)):
        raise ConfigError(told)
    return Loaded(
        tuple(LoadedEntry(Entry.of(entry.model_dump()), file, source) for entry in parsed.entries),
        tuple(LoadedModel(Model.of(model.model_dump()), file, source) for model in parsed.models),
        (LoadedPrecision(parsed.precision.lower(), file),) if parsed.precision else (),
    )


_LISTS: dict[str, tuple[str, type[_Strict]]] = {"entries": ("entry", _Entry), "models": ("model", _Model)}
"""What a file lists, by its keys: what each is called, and its rules."""


def _faults(data: Mapping[str, Any], found: Sequence[ErrorDetails]) -> Iterator[str]:
    """All faults of a file, in its order: those that pydantic found, and those of names, kernels and parameters.

    One after the other, because a file may have very many, of which few are told.
    """
    own: dict[tuple[int | str, ...], list[ErrorDetails]] = {}
    for fault in found:
        place = fault["loc"]
        inside = len(place) > 1 and place[0] in _LISTS and isinstance(place[1], int)
        own.setdefault(place[:2] if inside else (), []).append(fault)
    for fault in own.get((), []):
        yield in_words(fault, _File, data, fault["loc"])
    if not {*_LISTS, "precision"} & data.keys():
        yield "entries is missing: add a list of entries, each with a name and kernels, or one of models"
    for key, (kind, rules) in _LISTS.items():
        listed_items = data.get(key)
        names: set[str] = set()
        for number, item in enumerate(listed_items if isinstance(listed_items, list) else []):
            name = item.get("name") if isinstance(item, dict) else None
            name = name if isinstance(name, str) else ""
            where = f"{kind} {brief(name)}" if name else f"{kind} number {number + 1}"
            for fault in own.get((key, number), []):
                yield f"{where}: {in_words(fault, rules, item, fault['loc'][2:])}"
            if not isinstance(item, dict):
                continue
            if name and name in names:
                yield f"{where}: name must be unique in the file; got {brief(name)} again: rename one"
            names.add(name)
            if "kernels" in item:
                check = _faults_of_kernels if rules is _Entry else _faults_of_modelled_kernels
                yield from (f"{where}: {fault}" for fault in check(item["kernels"]))
                if rules is _Entry:
                    yield from (f"{where}: {fault}" for fault in _faults_of_trials(item.get("trials"), item["kernels"]))


def _faults_of_kernels(listed_kernels: object) -> Iterator[str]:
    """What is wrong with the kernels of an entry and their parameters."""
    if not isinstance(listed_kernels, dict) or not listed_kernels:
        yield must_be("kernels", _KERNELS, listed_kernels)
        return
    for name, values in listed_kernels.items():
        try:
            variant = kernels.variant(name)
        except UnknownNameError as error:
            yield f"kernels: {error}"
            continue
        if isinstance(values, dict):
            yield from map(str, variant.faults(values))
        elif isinstance(values, list) and values and all(isinstance(tiling, dict) for tiling in values):
            for number, tiling in enumerate(values):
                yield from (f"{fault} (tiling {number})" for fault in variant.faults(tiling))
        else:
            hint = f"; write {name}: {{}} for its defaults" if values is None else ""
            yield must_be(f"kernels.{name}", "a mapping of parameters to values, or a list of such", values) + hint


def _faults_of_trials(trials: object, listed_kernels: object) -> Iterator[str]:
    """Where seconds are of tilings that the entry has not; pydantic finds the rest."""
    if not isinstance(listed_kernels, dict):
        return
    counts = {name: len(each) if isinstance(each, list) else 1 for name, each in listed_kernels.items()}
    for number, trial in enumerate(trials if isinstance(trials, list) else ()):
        seconds = trial.get("seconds") if isinstance(trial, dict) else None
        for kernel, each in seconds.items() if isinstance(seconds, dict) else ():
            for at in each if isinstance(each, dict) else ():
                if isinstance(at, int) and not 0 <= at < counts.get(kernel, 0):
                    yield (
                        f"trials: number {number} has seconds of tiling {at} of {brief(kernel)}; the entry has "
                        f"{counts.get(kernel, 0)}, counted from 0"
                    )


_FOR_TYPES = re.compile(r"(?<=^simt)\.(mma(\.complex128)?|float32|complex64)$")
"""What stands behind `simt`, which alone reads it, where a model has tilings for its matrix unit, those of float64 or of
complex128, and more of float32 or complex64.
"""


def _faults_of_modelled_kernels(stated: object) -> Iterator[str]:
    """What is wrong with the names of a model's kernels and constants, and with its tilings; pydantic finds the rest."""
    for name, own in stated.items() if isinstance(stated, dict) else ():
        try:
            contract = kernels.contract(_FOR_TYPES.sub("", str(name)))
        except UnknownNameError as error:
            yield f"kernels: {error}"
            continue
        fitted, tilings = (own.get("fitted"), own.get("tilings")) if isinstance(own, dict) else (None, None)
        for constant in fitted if isinstance(fitted, dict) else ():
            if constant not in contract.constants:
                has = f"it has {', '.join(contract.constants)}" if contract.constants else "it has none"
                hint = did_you_mean(constant, contract.constants) or f": {has}"
                yield f"{contract.name} has no fitted constant {str(constant)[:100]}{hint}"
        if tilings and isinstance(contract, Pass):
            yield must_be(f"kernels.{name}.tilings", "left out, for nothing chooses among tilings of a pass", tilings)
            continue
        for number, tiling in enumerate(tilings if isinstance(tilings, list) else (), 1):
            if isinstance(tiling, dict):
                yield from (f"{fault} (tiling {number} of the model)" for fault in contract.faults(tiling))


_IMPOSSIBLE = re.compile(
    r"sm[^_]|sm_[^0-9]|gfx[^0-9]|compute|cc[0-9]|[0-9]|.*\s"
    r"|(volta|turing|ampere|ada|hopper|blackwell|rdna|cdna)\d*$",
    re.IGNORECASE,
)
"""Starts of architectures' names that no device tells: NVIDIA's are written sm_90, AMD's gfx90a."""


def doubts(loaded: Loaded) -> Iterator[str]:
    """What entries and models match that gemmport does not know: mistakes, or names of what is new to it."""
    for entry in loaded.entries:
        yield from _doubts_of_match(f"{entry.file}: entry {brief(entry.entry.name)}: match", entry.entry.match)
    for model in loaded.models:
        yield from _doubts_of_match(f"{model.file}: model {brief(model.model.name)}: match", model.model.match)


def _doubts_of_match(place: str, match: Match) -> Iterator[str]:
    for key, told, known in (("platform", match.platform, PLATFORMS), ("vendor", match.vendor, VENDORS)):
        for name in told:
            yield from _doubts_of_name(f"{place}.{key}", name, known.values())
    for start in match.architecture:
        if _IMPOSSIBLE.match(start):
            yield (
                f"{place}.architecture {brief(start)} must be the start of an architecture's name: they are written sm_90, "
                "gfx90a, znver4 (gemmport devices --format json tells them)"
            )


def _doubts_of_name(place: str, name: str, known: Collection[str]) -> Iterator[str]:
    names = list(dict.fromkeys(known))
    if name.lower() not in names:
        hint = did_you_mean(name, names)
        yield f"{place} {brief(name)} is unknown: there are {', '.join(names)}{hint}"
