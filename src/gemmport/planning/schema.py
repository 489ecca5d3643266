"""Entries and models of a configuration as the planner reads them: plain data; `gemmport.planning.parser` knows the rules."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

from gemmport.contracts.device_model import RATES
from gemmport.core.device import DeviceInfo
from gemmport.core.plan import ParameterValue
from gemmport.core.problem import GemmProblem

Source = Literal["call", "user", "shipped"]


PRECEDENCE = (
    "device", "architecture", "platform", "version", "vendor", "type", "backend", "precision", "dtype", "shape", "ops",
)  # fmt: skip
"""Keys of a match, from the most specific on: an entry that has one goes before all that have only later ones."""


@dataclass(frozen=True)
class Unmet:
    """A key of a match that does not hold for a device or a problem.

    Attributes:
        wanted: the words one of which it asks for. got: what the device or the problem has; empty where it does not tell.
    """

    key: str
    wanted: tuple[str, ...]
    got: str

    def __str__(self) -> str:
        wanted = " or ".join(self.wanted)
        return (
            f"{self.key} is {self.got}, not {wanted}" if self.got else f"{self.key} is not known, and must be {wanted}"
        )


@dataclass(frozen=True)
class Match:
    """Which devices and problems an entry is for. A key that is left out matches everything; a list matches any of its
    members.

    Attributes:
        device: parts of the device's name; case does not matter in any of these.
        architecture: starts of the architecture ("sm_90", "gfx9").
        platform: aliases of the runtime; `version`: its range of versions (PEP 440: ">=3.1,<4").
        vendor, type, backend: as in `gemmport devices`.
        dtype, ops, shape, precision: of the problem: "float32"; "NN"; a shape class; "tf32".
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
    precision: tuple[str, ...] = ()

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Match:
        """The match of plain data that was checked before."""
        read: dict[str, Any] = {key: _read(key, value) for key, value in data.items()}
        return cls(**read)

    def device_matches(self, device: DeviceInfo) -> bool:
        """Whether the entry is for this device."""
        return next(self._unmet_by_device(device), None) is None

    def problem_matches(self, problem: GemmProblem) -> bool:
        """Whether the entry is for this problem."""
        return next(self._unmet_by_problem(problem), None) is None

    def unmet(self, device: DeviceInfo, problem: GemmProblem) -> tuple[Unmet, ...]:
        """The keys that keep the entry from matching, the device's before the problem's; empty where it matches."""
        return (*self._unmet_by_device(device), *self._unmet_by_problem(problem))

    def _unmet_by_device(self, device: DeviceInfo) -> Iterator[Unmet]:
        yield from _unmet("device", self.device, device.name, lambda part, name: part in name)
        yield from _unmet(
            "architecture", self.architecture, device.architecture, lambda start, name: name.startswith(start)
        )
        yield from _unmet("platform", self.platform, device.platform, str.__eq__)
        if not device.has_version(self.version):
            yield Unmet("version", (self.version,), device.platform_version)
        yield from _unmet("vendor", self.vendor, device.vendor, str.__eq__)
        yield from _unmet("type", self.type, device.type, str.__eq__)
        yield from _unmet("backend", self.backend, device.backend, str.__eq__)

    def _unmet_by_problem(self, problem: GemmProblem) -> Iterator[Unmet]:
        yield from _unmet("precision", self.precision, problem.precision, str.__eq__)
        yield from _unmet("dtype", self.dtype, problem.dtype.name, str.__eq__)
        yield from _unmet("shape", self.shape, problem.shape_class, str.__eq__)
        yield from _unmet("ops", self.ops, problem.ops, str.__eq__)

    @property
    def specificity(self) -> tuple[bool, ...]:
        """Orders entries: by whether they have the first key of `PRECEDENCE`, then the second, …"""
        return tuple(bool(getattr(self, key)) for key in PRECEDENCE)

    @property
    def stated(self) -> dict[str, str | tuple[str, ...]]:
        """The keys that are not left out."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if value}


def _read(key: str, value: Any) -> str | tuple[str, ...]:
    if isinstance(value, str):
        return value if key == "version" else (value,)
    return tuple(value)


def _tilings(stated: Any) -> Tilings:
    return (stated,) if isinstance(stated, Mapping) else tuple(stated)


def _unmet(
    key: str, wanted: Sequence[str], got: str, holds: Callable[[str, str], bool]
) -> Iterator[Unmet]:  # fmt: skip
    """The key, where none of the wanted words holds for what is there; case does not matter."""
    if wanted and not any(holds(word.lower(), got.lower()) for word in wanted):
        yield Unmet(key, tuple(wanted), got)


@dataclass(frozen=True)
class Provenance:
    """Where an entry's numbers come from. What does not say so is not tuned; `modelled` says that a model chose the tiles, by
    what the compiler makes of them.
    """

    tuned: bool = False
    modelled: bool = False
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

    @property
    def how(self) -> str:
        """How the tiles were chosen, for people."""
        return "tuned" if self.tuned else "modelled, not tuned" if self.modelled else "not tuned"


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
        rates: fields of a `DeviceModel`, by name, that are one number each; `multiply_adds`, `matrix_multiply_adds`: by type.
        kernels: by name; with ".float32" or ".complex64" behind `simt`, more tilings for that type; with ".mma", tilings for
            its matrix unit in float64; with ".mma.complex128", in that type.
    """

    name: str
    match: Match
    rates: Mapping[str, float]
    multiply_adds: Mapping[str, float]
    matrix_multiply_adds: Mapping[str, float]
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
            **{
                field: {name: float(value) for name, value in data.get(field, {}).items()}
                for field in ("multiply_adds", "matrix_multiply_adds")
            },
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
            "matrix_multiply_adds": dict(self.matrix_multiply_adds),
            "kernels": kernels, "provenance": self.provenance.to_dict(),
        }  # fmt: skip

    @property
    def stated(self) -> dict[str, Any]:
        """What it states, by the fields of a `DeviceModel`."""
        return {
            **self.rates,
            "multiply_adds": self.multiply_adds,
            "matrix_multiply_adds": self.matrix_multiply_adds,
            "fitted": {name: stated.fitted for name, stated in self.kernels.items() if stated.fitted},
            "tilings": {name: stated.tilings for name, stated in self.kernels.items() if stated.tilings},
        }


@dataclass(frozen=True)
class Trial:
    """What tilings of an entry took for one problem.

    Attributes:
        m, n, k, batch, ops, dtype: of the problem.
        seconds: by kernel, and by the number of the tiling in the entry's list for that kernel, counted from 0.
    """

    m: int
    n: int
    k: int
    seconds: Mapping[str, Mapping[int, float]]
    batch: int = 1
    ops: str = "NN"
    dtype: str = "float32"

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Trial:
        """The trial of plain data that was checked before; JSON has numbers of tilings as text."""
        seconds = {kernel: {int(at): took for at, took in each.items()} for kernel, each in data["seconds"].items()}
        return cls(**{**data, "seconds": seconds})

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; `of` reads it back."""
        sizes = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "seconds"}
        return {**sizes, "seconds": self.seconds}


Tilings = tuple[Mapping[str, ParameterValue], ...]
"""Parameters that an entry has for a kernel: one set of them, or several, of which the planner chooses for each problem."""


@dataclass(frozen=True)
class Entry:
    """Kernels with their parameters, in order of preference, for what `match` describes.

    Attributes:
        kernels: by name.
        trials: what of it took how long; the planner corrects its predictions by them. Empty where nobody says so.
    """

    name: str
    match: Match
    kernels: Mapping[str, Tilings]
    provenance: Provenance
    trials: tuple[Trial, ...] = ()

    @property
    def is_searched(self) -> bool:
        """Whether the planner chooses among what it has for each problem, instead of taking the first that fits."""
        return bool(self.trials) or any(len(each) > 1 for each in self.kernels.values())

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Entry:
        """The entry of plain data that was checked before; a list of one may be written as its only member."""
        kernels = {name: _tilings(stated) for name, stated in data["kernels"].items()}
        trials = tuple(Trial.of(trial) for trial in data.get("trials", ()))
        provenance = Provenance.of(data.get("provenance", {}))
        return cls(data["name"], Match.of(data.get("match", {})), kernels, provenance, trials)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; `of` reads it back."""
        kernels = {name: each[0] if len(each) == 1 else list(each) for name, each in self.kernels.items()}
        trials = {"trials": [trial.to_dict() for trial in self.trials]} if self.trials else {}
        return {
            "name": self.name, "match": self.match.stated, "kernels": kernels, "provenance": self.provenance.to_dict(),
            **trials,
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

    def tilings(self, kernel: str) -> Tilings:
        """Sets of parameters that it states for a kernel; empty where it does not list the kernel."""
        return self.entry.kernels.get(kernel, ())


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
class LoadedPrecision:
    """What products are rounded to by default, and where that stands."""

    name: str
    file: str


@dataclass(frozen=True)
class Loaded:
    """What a file holds, or several."""

    entries: tuple[LoadedEntry, ...] = ()
    models: tuple[LoadedModel, ...] = ()
    precisions: tuple[LoadedPrecision, ...] = ()

    def __add__(self, other: Loaded) -> Loaded:
        return Loaded(
            self.entries + other.entries, self.models + other.models, self.precisions + other.precisions
        )  # fmt: skip
