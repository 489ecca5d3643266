"""This run beside a committed one: each ratio to a baseline then and now, both with their spread, and whether it is worse.

Documents are plain data: those of `gemmport run`, `gemmport ladder gemm` and `gemmport calls` (docs/results.md).
Ratios are compared, and not seconds: both sides of a ratio are measured in turn, so what slows a machine down is in both.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gemmport.core.errors import ComparisonError, GemmportError, RecordError
from gemmport.core.precision import FULL
from gemmport.core.problem import GemmProblem
from gemmport.runtime import files

Verdict = Literal["better", "same", "worse", "missing", "new"]


@dataclass(frozen=True)
class Ratio:
    """Our speed over a baseline's: its median time over ours.

    Attributes:
        spread: a fraction of the value: half the distance between the quartiles over the median, ours and the baseline's
            added.
    """

    value: float
    spread: float

    @property
    def low(self) -> float:
        """The value less its spread."""
        return self.value * (1 - self.spread)

    @property
    def high(self) -> float:
        """The value and its spread."""
        return self.value * (1 + self.spread)


@dataclass(frozen=True)
class Task:
    """What was computed: products are the same task where label and problem are equal."""

    label: str
    problem: GemmProblem

    def __str__(self) -> str:
        problem = self.problem
        scalars = "" if (problem.alpha, problem.beta) == (1, 0) else f" alpha={problem.alpha:g} beta={problem.beta:g}"
        return f"{self.label} {problem}{scalars}".strip()


@dataclass(frozen=True)
class Entry:
    """A kernel beside a baseline in one document.

    Attributes:
        device: its label. kernel: empty where the document does not tell it.
        reason: why the ratio is missing; empty where there is one.
    """

    device: str
    task: Task
    kernel: str
    baseline: str
    ratio: Ratio | None
    reason: str = ""


@dataclass(frozen=True)
class Machine:
    """A device and its host.

    Attributes:
        facts: must be the same where two runs are compared. versions: may differ, which is noted. Of both, what a document
            does not tell is left out.
    """

    facts: Mapping[str, str | int]
    versions: Mapping[str, str]


@dataclass(frozen=True)
class Results:
    """The ratios of a document.

    Attributes:
        name: the file, or "this run". author: what writes such documents. date: as the document has it.
        machines: by the label of the device.
        libraries: version of each baseline.
        refused: device and task, and why nothing was measured.
    """

    name: str
    author: str
    date: str
    machines: Mapping[str, Machine]
    libraries: Mapping[str, str]
    entries: Sequence[Entry]
    refused: Mapping[tuple[str, Task], str]


@dataclass(frozen=True)
class Row:
    """A kernel beside a baseline, now and then.

    Attributes:
        device: label of the device now, or then where it was not measured now.
        kernel: "a → b" where the task has one row, whose kernel was a and is b.
        now, then: None where the ratio is missing; one of them at least is there.
        reason: why not; empty where there are both.
    """

    device: str
    task: Task
    kernel: str
    baseline: str
    now: Ratio | None
    then: Ratio | None
    reason: str = ""

    @property
    def verdict(self) -> Verdict:
        """worse, better: beyond both spreads; same: within them; missing, new: the ratio of one side is absent."""
        if self.now is None:
            return "missing"
        if self.then is None:
            return "new"
        if self.now.high < self.then.low:
            return "worse"
        return "better" if self.now.low > self.then.high else "same"

    @property
    def change(self) -> float | None:
        """Percent that the ratio is now more than it was; None where one is missing."""
        return 100 * (self.now.value / self.then.value - 1) if self.now and self.then else None

    @property
    def hidden(self) -> float | None:
        """A loss of less than so many percent is within the spreads; None where a ratio is missing."""
        return 100 * (1 - (1 - self.then.spread) / (1 + self.now.spread)) if self.now and self.then else None

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON, as docs/results.md describes it."""
        return {
            "device": self.device,
            "task": str(self.task),
            "kernel": self.kernel,
            "baseline": self.baseline,
            "now": asdict(self.now) if self.now else None,
            "then": asdict(self.then) if self.then else None,
            "change_percent": self.change,
            "hidden_percent": self.hidden,
            "verdict": self.verdict,
            "reason": self.reason,
        }


@dataclass(frozen=True)
class Comparison:
    """This run beside a committed one.

    Attributes:
        name, date: of the committed one.
        notes: what differs and may differ: versions of runtimes, drivers and baselines.
    """

    name: str
    date: str
    rows: tuple[Row, ...]
    notes: tuple[str, ...]

    @property
    def coarsest(self) -> Row | None:
        """The row whose spreads hide the largest loss; None where nothing was compared."""
        return max(
            (row for row in self.rows if row.hidden is not None), key=lambda row: row.hidden or 0.0, default=None
        )

    @property
    def worse(self) -> tuple[Row, ...]:
        """The rows that are worse beyond both spreads."""
        return tuple(row for row in self.rows if row.verdict == "worse")

    def require_common(self) -> None:
        """Raises ComparisonError where no row has a ratio on both sides."""
        if all(row.change is None for row in self.rows):
            raise ComparisonError(
                f"at least one task and baseline of this run must be in {self.name}; got none; run the problems, types and "
                "baselines that the file has"
            )

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON, as docs/results.md describes it."""
        return {
            "with": self.name,
            "date": self.date,
            "worse": len(self.worse),
            "rows": [row.to_dict() for row in self.rows],
            "notes": list(self.notes),
        }


def compare(now: Results, then: Results) -> Comparison:
    """Every ratio of either side in a row: first those of this run, in its order, then those that only the other has.

    Raises:
        ComparisonError: as `like_devices`.
    """
    devices = like_devices(now, then)
    changed = [
        (f"{label}: {name}", old, now.machines[label].versions.get(name, old))
        for label, other in devices.items()
        for name, old in then.machines[other].versions.items()
    ]
    changed += [(name, old, now.libraries.get(name, old)) for name, old in then.libraries.items()]
    notes = tuple(f"{name} was {old} and is {new}" for name, old, new in changed if new != old)
    return Comparison(then.name, then.date, tuple(_rows(now, then, {old: new for new, old in devices.items()})), notes)


def like_devices(now: Results, then: Results) -> dict[str, str]:
    """The label of each device's like in a committed run, by its own: that of the same label, or the one that is most alike.

    Raises:
        ComparisonError: the documents are not of one kind, or a device of this run has none like it; the message names what
            differs.
    """
    if now.author != then.author:
        raise ComparisonError(
            f"{then.name} must be a document of {now.author}; got one of {then.author}; compare kernels with kernels and "
            "calls with calls"
        )
    found: dict[str, str] = {}
    for label, machine in now.machines.items():
        taken = {*now.machines, *found.values()}
        free = [label] if label in then.machines else [other for other in then.machines if other not in taken]
        unlike = {other: _differences(machine, then.machines[other]) for other in free}
        nearest = min(free, key=lambda other: len(unlike[other]), default=None)
        if nearest is None or unlike[nearest]:
            faults = "; ".join(unlike[nearest]) if nearest else f"it must be one of {', '.join(then.machines)}"
            raise ComparisonError(
                f"{label} must be like a device of {then.name}: {faults}; compare with a file that was measured on this device"
            )
        found[label] = nearest
    return found


def _differences(now: Machine, then: Machine) -> list[str]:
    """The facts that both tell differently, as rules."""
    return [
        f"{fact} must be {value!r}, got {now.facts[fact]!r}"
        for fact, value in then.facts.items()
        if now.facts.get(fact, value) != value
    ]


def _rows(now: Results, then: Results, names: Mapping[str, str]) -> Iterator[Row]:
    """The rows of both; `names` gives the label now of a device then."""
    ours, theirs = _grouped(now, {}), _grouped(then, names)
    for key in dict.fromkeys([*ours, *theirs]):
        device, task, baseline = key
        refused = now.refused.get((device, task), "not in this run")
        for new, old in _pairs(ours.get(key, []), theirs.get(key, [])):
            ratio, before = new.ratio if new else None, old.ratio if old else None
            if ratio or before:
                reason = "" if ratio and before else (old.reason if old else f"not in {then.name}")
                if ratio is None:
                    reason = new.reason if new else refused
                yield Row(device, task, _kernel(new, old), baseline, ratio, before, reason)


def _grouped(results: Results, names: Mapping[str, str]) -> dict[tuple[str, Task, str], list[Entry]]:
    groups: dict[tuple[str, Task, str], list[Entry]] = {}
    for entry in results.entries:
        groups.setdefault((names.get(entry.device, entry.device), entry.task, entry.baseline), []).append(entry)
    return groups


def _pairs(now: Sequence[Entry], then: Sequence[Entry]) -> Iterator[tuple[Entry | None, Entry | None]]:
    """Entries of one task and baseline: one on each side belong together whatever the kernel, several by their kernels."""
    if len(now) == len(then) == 1:
        yield now[0], then[0]
        return
    for kernel in dict.fromkeys(entry.kernel for entry in (*now, *then)):
        yield from zip_longest(*([entry for entry in side if entry.kernel == kernel] for side in (now, then)))


def _kernel(now: Entry | None, then: Entry | None) -> str:
    return " → ".join(dict.fromkeys(entry.kernel for entry in (then, now) if entry))


def read_results(path: Path) -> Results:
    """The ratios of a file.

    Raises:
        RecordError: it cannot be read, is another kind of document, or holds no ratio; the message names the file.
    """
    try:
        document = json.loads(files.read_bytes(path))
    except OSError as error:
        raise RecordError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{path} must be a JSON document of results; got {error}; {_REMEDY}") from error
    results = results_of(document, str(path))
    if not any(entry.ratio for entry in results.entries):
        raise RecordError(f"{path} must have a ratio to a baseline; got none; {_REMEDY}")
    return results


def results_of(document: Any, name: str) -> Results:
    """The ratios of a document.

    Args:
        document: that of `gemmport run` or `gemmport calls`, as docs/results.md describes it.
        name: of the document in messages.

    Raises:
        RecordError: it is of another schema.
    """
    schema = document.get("schema") if isinstance(document, dict) else None
    form = _FORMS.get(schema) if isinstance(schema, int) else None
    if form is None:
        known = " or ".join(f"{number} ({form.author})" for number, form in _FORMS.items())
        raise RecordError(f"schema of {name} must be {known}; got {schema!r}; {_REMEDY}")
    try:
        return form.model_validate(document).results_named(name)
    except ValidationError as error:
        fault = error.errors()[0]
        place = ".".join(map(str, fault["loc"]))
        raise RecordError(
            f"{place} of {name} must be as {form.author} writes it; got: {fault['msg']}; {_REMEDY}"
        ) from error
    except GemmportError as error:
        raise RecordError(f"the problems of {name} must be products; got: {error}; {_REMEDY}") from error


_REMEDY = "name a file that gemmport run --format json wrote"


# What is read of documents; other keys are left alone.


class _Part(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class _Seconds(_Part):
    median: float = Field(gt=0)
    first_quartile: float
    third_quartile: float

    @property
    def spread(self) -> float:
        return (self.third_quartile - self.first_quartile) / 2 / self.median


def _ratio(own: _Seconds, baseline: _Seconds) -> Ratio:
    return Ratio(baseline.median / own.median, own.spread + baseline.spread)


class _Host(_Part):
    date: str = ""
    cpu: str = ""
    cores: str = ""
    blas: str = ""

    def machine(self) -> Machine:
        """The host's keys: a CPU's runtime and NumPy share its cores."""
        facts = {"CPU": self.cpu, "cores": self.cores, "NumPy's BLAS": self.blas.partition(" ")[0]}
        versions = {"NumPy's BLAS": self.blas}
        return Machine(*({name: text for name, text in told.items() if text} for told in (facts, versions)))


class _Device(_Part):
    backend: str
    name: str
    platform: str
    platform_version: str = ""
    driver: str = ""
    architecture: str = ""
    type: str
    compute_units: int
    runtime: Mapping[str, str] = Field(default_factory=dict)


class _Environment(_Host):
    devices: Mapping[str, _Device]

    def machines(self) -> dict[str, Machine]:
        return {label: self._machine(device) for label, device in self.devices.items()}

    def _machine(self, device: _Device) -> Machine:
        host = self.machine() if device.type == "cpu" else Machine({}, {})
        facts: dict[str, str | int] = {
            "backend": device.backend, "device": device.name, "platform": device.platform, "type": device.type,
            "compute units": device.compute_units, "architecture": device.architecture,
        }  # fmt: skip
        versions = {"version": device.platform_version, **device.runtime, "driver": device.driver}
        return Machine({**facts, **host.facts}, {**versions, **host.versions})


class _Beside(_Part):
    reason: str = ""
    version: str = ""
    verified: bool | None = None
    seconds: _Seconds | None = None


class _Product(_Part):
    label: str = ""
    backend: str
    device: str
    platform: str
    kernel: str
    m: int
    n: int
    k: int
    batch: int
    dtype: str
    output: str
    accumulator: str
    precision: str = FULL
    trans_a: str
    trans_b: str
    alpha: int | float | tuple[float, float]
    beta: int | float | tuple[float, float]
    status: str
    reason: str
    seconds: _Seconds | None
    baselines: Mapping[str, _Beside]

    @property
    def where(self) -> str:
        """The label of the device: `DeviceInfo.label`."""
        return f"{self.device} ({self.backend}, {self.platform})"

    def task(self) -> Task:
        alpha, beta = (complex(*value) if isinstance(value, tuple) else value for value in (self.alpha, self.beta))
        problem = GemmProblem.create(
            self.m, self.n, self.k, batch=self.batch, dtype=self.dtype, output=self.output, accumulator=self.accumulator,
            trans_a=self.trans_a, trans_b=self.trans_b, alpha=alpha, beta=beta, precision=self.precision,
        )  # fmt: skip
        return Task(self.label, problem)

    def entries(self) -> Iterator[Entry]:
        for name, beside in self.baselines.items():
            ratio, reason = None, beside.reason or "nothing was timed"
            if self.status != "ok":
                reason = f"{self.status}: {self.reason}"
            elif self.seconds and beside.seconds and beside.verified is not False:
                ratio, reason = _ratio(self.seconds, beside.seconds), ""
            yield Entry(self.where, self.task(), self.kernel, name, ratio, reason)


class _OfRun(_Part):
    """The document of `gemmport run`."""

    author: ClassVar = "gemmport run"

    environment: _Environment
    results: Sequence[_Product]

    def results_named(self, name: str) -> Results:
        libraries = {name: beside.version for one in self.results for name, beside in one.baselines.items()}
        return Results(
            name,
            self.author,
            self.environment.date,
            self.environment.machines(),
            {name: version for name, version in libraries.items() if version},
            [entry for one in self.results for entry in one.entries()],
            {(one.where, one.task()): f"{one.status}: {one.reason}" for one in self.results if one.status != "ok"},
        )


class _Multiplied(_Part):
    version: str = ""
    reason: str = ""
    verified: bool | None = None
    seconds: Mapping[str, Mapping[str, _Seconds]]

    def ratio(self, own: Mapping[str, Mapping[str, _Seconds]], result: str, way: str) -> Ratio | None:
        found = result in own and result in self.seconds and self.verified
        return _ratio(own[result][way], self.seconds[result][way]) if found else None


class _Called(_Part):
    label: str = ""
    device: str
    arrays: str
    m: int
    n: int
    k: int
    batch: int
    dtype: str
    trans_a: str
    trans_b: str
    seconds: Mapping[str, Mapping[str, _Seconds]]
    baselines: Mapping[str, _Multiplied]

    def entries(self) -> Iterator[Entry]:
        problem = GemmProblem.create(
            self.m, self.n, self.k, batch=self.batch, dtype=self.dtype, trans_a=self.trans_a, trans_b=self.trans_b
        )  # fmt: skip
        for name, beside in self.baselines.items():
            for result, ways in self.seconds.items():
                for way in ways:
                    ratio = beside.ratio(self.seconds, result, way)
                    task = Task(f"{self.label} {_told_call(self.arrays, result, way)}".strip(), problem)
                    yield Entry(self.device, task, "", name, ratio, "" if ratio else beside.reason or "not measured")


def _told_call(arrays: str, result: str, way: str) -> str:
    return f"arrays of {arrays}, {result}, {way.replace('_', ' ')}"


class _OfCalls(_Part):
    """The document of `gemmport calls`."""

    author: ClassVar = "gemmport calls"

    environment: _Environment
    results: Sequence[_Called]

    def results_named(self, name: str) -> Results:
        libraries = {name: beside.version for one in self.results for name, beside in one.baselines.items()}
        return Results(
            name,
            self.author,
            self.environment.date,
            self.environment.machines(),
            libraries,
            [entry for one in self.results for entry in one.entries()],
            {},
        )


class _EarlierEnvironment(_Host):
    numpy: str = ""


class _EarlierCall(_Part):
    device: str
    m: int
    n: int
    k: int
    dtype: str
    seconds: _Seconds | None = None
    numpy_seconds: _Seconds | None = None

    def entry(self) -> Entry:
        ratio = _ratio(self.seconds, self.numpy_seconds) if self.seconds and self.numpy_seconds else None
        problem = GemmProblem.create(self.m, self.n, self.k, dtype=self.dtype)
        task = Task(_told_call("numpy", "out", "awaited"), problem)
        return Entry(self.device, task, "", "numpy.matmul", ratio, "" if ratio else "NumPy was not timed beside it")


class _OfEarlierCalls(_Part):
    """The document of what was before `gemmport calls`, which describes a device by its label and versions alone."""

    author: ClassVar = "gemmport calls"

    environment: _EarlierEnvironment
    results: Sequence[_EarlierCall]

    def results_named(self, name: str) -> Results:
        host = self.environment.machine()
        machines = {one.device: Machine({**_of_label(one.device), **host.facts}, host.versions) for one in self.results}
        libraries = {"numpy.matmul": self.environment.numpy} if self.environment.numpy else {}
        entries = [one.entry() for one in self.results]
        return Results(name, self.author, self.environment.date, machines, libraries, entries, {})


def _of_label(label: str) -> dict[str, str]:
    """The facts that the label of a device tells."""
    found = re.fullmatch(r"(?P<device>.*) \((?P<backend>\w+), (?P<platform>\S+).*\)", label)
    return found.groupdict() if found else {"device": label}


_FORMS: dict[int, type[_OfRun] | type[_OfEarlierCalls] | type[_OfCalls]] = {1: _OfRun, 2: _OfEarlierCalls, 3: _OfCalls}
"""By the schema of the document."""
