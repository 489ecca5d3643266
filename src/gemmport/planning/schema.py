"""Entries and models of a configuration as the planner reads them: plain data; `gemmport.planning.parser` knows the rules."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

from gemmport.contracts.device_model import RATES
from gemmport.core.device import DeviceInfo
from gemmport.core.plan import ParameterValue
from gemmport.core.problem import GemmProblem

Source = Literal["call", "user", "shipped"]


@dataclass(frozen=True)
class Match:
    """Which devices and problems an entry is for. A key that is left out matches everything; a list matches any of its
    members.

    Attributes:
        device: parts of the device's name; case does not matter in any of these.
        architecture: starts of the architecture ("sm_90", "gfx9").
        platform: aliases of the runtime; `version`: its range of versions (PEP 440: ">=3.1,<4").
        vendor, type, backend: as in `gemmport devices`.
        dtype, ops, shape: of the problem: "float32"; "NN"; a shape class.
    """

    device: tuple[str, ...] = ()
    architecture: tuple[str, ...] = ()
    platform: tuple[str, ...] = ()
    version: str = ""
    vendor: tuple[str, ...] = ()
    type: tuple[str, ...] = ()
    backend: tuple[str, ...] = ()
    dtype: tuple[str, ...] = ()
    ops: tuple[str, ...] = ()
    shape: tuple[str, ...] = ()

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Match:
        """The match of plain data that was checked before."""
        read: dict[str, Any] = {key: _read(key, value) for key, value in data.items()}
        return cls(**read)

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

    @property
    def stated(self) -> dict[str, str | tuple[str, ...]]:
        """The keys that are not left out."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if value}


def _read(key: str, value: Any) -> str | tuple[str, ...]:
    if isinstance(value, str):
        return value if key == "version" else (value,)
    return tuple(value)


def _any(wanted: Sequence[str], test: Callable[[str], bool]) -> bool:
    return not wanted or any(test(word.lower()) for word in wanted)


@dataclass(frozen=True)
class Provenance:
    """Where an entry's numbers come from. What does not say so is not tuned."""

    tuned: bool = False
    date: dt.date | None = None
    device: str = ""
    driver: str = ""
    runtime: str = ""
    gemmport: str = ""
    sizes: str = ""
    figures: str = ""
    note: str = ""

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Provenance:
        """The provenance of plain data that was checked before."""
        date = data.get("date")
        return cls(**{**data, "date": dt.date.fromisoformat(date) if isinstance(date, str) else date})

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; `of` reads it back."""
        stated = {field.name: getattr(self, field.name) for field in fields(self)}
        return {**stated, "date": self.date.isoformat() if self.date else None}


@dataclass(frozen=True)
class KernelModel:
    """What a model states of a kernel: constants of its prediction, and parameters among which it chooses."""

    fitted: Mapping[str, float]
    tilings: tuple[Mapping[str, ParameterValue], ...]


@dataclass(frozen=True)
class Model:
    """What a kind of device takes for the parts of a product: what it states of a `DeviceModel`.

    Attributes:
        match: keys of devices alone.
        rates: fields of a `DeviceModel`, by name, that are one number each; `multiply_adds`: by type of arithmetic.
        kernels: by name; with ".mma" behind it, tilings for its matrix unit.
    """

    name: str
    match: Match
    rates: Mapping[str, float]
    multiply_adds: Mapping[str, float]
    kernels: Mapping[str, KernelModel]
    provenance: Provenance

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Model:
        """The model of plain data that was checked before."""
        kernels = {
            name: KernelModel(
                {key: float(value) for key, value in stated.get("fitted", {}).items()},
                tuple(dict(tiling) for tiling in stated.get("tilings", ())),
            )
            for name, stated in data.get("kernels", {}).items()
        }
        return cls(
            name=data["name"],
            match=Match.of(data.get("match", {})),
            rates={name: float(data[name]) for name in RATES if data.get(name) is not None},
            multiply_adds={name: float(value) for name, value in data.get("multiply_adds", {}).items()},
            kernels=kernels,
            provenance=Provenance.of(data.get("provenance", {})),
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; `of` reads it back."""
        kernels = {
            name: {"fitted": dict(stated.fitted), "tilings": [dict(tiling) for tiling in stated.tilings]}
            for name, stated in self.kernels.items()
        }
        return {
            "name": self.name, "match": self.match.stated, **self.rates, "multiply_adds": dict(self.multiply_adds),
            "kernels": kernels, "provenance": self.provenance.to_dict(),
        }  # fmt: skip

    @property
    def stated(self) -> dict[str, Any]:
        """What it states, by the fields of a `DeviceModel`."""
        return {
            **self.rates,
            "multiply_adds": self.multiply_adds,
            "fitted": {name: stated.fitted for name, stated in self.kernels.items() if stated.fitted},
            "tilings": {name: stated.tilings for name, stated in self.kernels.items() if stated.tilings},
        }


@dataclass(frozen=True)
class Entry:
    """Kernels with their parameters, in order of preference, for what `match` describes."""

    name: str
    match: Match
    kernels: Mapping[str, Mapping[str, ParameterValue]]
    provenance: Provenance

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Entry:
        """The entry of plain data that was checked before; a list of one may be written as its only member."""
        return cls(data["name"], Match.of(data.get("match", {})), data["kernels"], Provenance.of(data.get("provenance", {})))

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; `of` reads it back."""
        return {
            "name": self.name, "match": self.match.stated, "kernels": self.kernels, "provenance": self.provenance.to_dict(),
        }  # fmt: skip


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
class LoadedModel:
    """A model, and where it stands."""

    model: Model
    file: str
    source: Source

    @property
    def origin(self) -> str:
        """File and model, for people."""
        return f"{self.file}: {self.model.name}"


@dataclass(frozen=True)
class Loaded:
    """What a file holds, or several."""

    entries: tuple[LoadedEntry, ...] = ()
    models: tuple[LoadedModel, ...] = ()

    def __add__(self, other: Loaded) -> Loaded:
        return Loaded(self.entries + other.entries, self.models + other.models)
