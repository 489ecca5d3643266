"""What a key, a match and a signature are made of: nothing is left out of them, part by part.

What is kept under a key that lacks a part is found for something else, and nobody is told: a program of another driver, a plan
of another device, the product of another alpha. No part is without a test: each table must name those that the code has, and
each of its rows must make a difference.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gemmport as gp
from absences import beyond
from gemmport import backends
from gemmport.backends import _compilation, _sass
from gemmport.backends.array import DeviceArray
from gemmport.backends.base import Backend
from gemmport.backends.objects import Memory, Program
from gemmport.core.device import DeviceInfo
from gemmport.core.dtypes import DType
from gemmport.core.errors import ArrayError
from gemmport.core.problem import GemmProblem, Layout
from gemmport.core.quirks import QUIRKS, Quirk
from gemmport.execution import executor, repeated, selection
from gemmport.planning import lookup
from gemmport.planning.schema import Match
from gemmport.runtime import fingerprint
from launched import put_on
from made_up_devices import DEVICES

Patch = pytest.MonkeyPatch


def names_of(kind: type) -> set[str]:
    """The fields of a dataclass."""
    return {field.name for field in fields(kind)}


def another(value: Any) -> Any:
    """A value of the same kind that is not equal."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float | complex):
        return value + 1
    if isinstance(value, DType):
        return replace(value, name=another(value.name))
    if isinstance(value, Layout):
        return replace(value, ld=another(value.ld))
    if isinstance(value, str):
        return f"{value} of another kind"
    if isinstance(value, frozenset):
        return value | {"another"}
    return (*value[:-1], another(value[-1])) if value else (1,)


def changed(whole: Any, name: str) -> Any:
    """A device, or what else has fields, with another value in one of them."""
    return replace(whole, **{name: another(getattr(whole, name))})


# The key of a compiled program


def of_device(name: str) -> Callable[[Backend, Patch], str]:
    def vary(backend: Backend, monkeypatch: Patch) -> str:
        monkeypatch.setattr(backend, "device", changed(backend.device, name))
        return ""

    return vary


def of_source(backend: Backend, monkeypatch: Patch) -> str:
    return "// another"


def of_options(backend: Backend, monkeypatch: Patch) -> str:
    put_on(monkeypatch, backend, "options", lambda: ("-O", "-D ANOTHER"))
    return ""


def of_backend(backend: Backend, monkeypatch: Patch) -> str:
    put_on(monkeypatch, backend, "name", "another")
    return ""


def of_compiler(backend: Backend, monkeypatch: Patch) -> str:
    put_on(monkeypatch, backend, "compiler", lambda: "another")
    return ""


PROGRAM: dict[str, Callable[[Backend, Patch], str]] = {
    "source": of_source,
    "options": of_options,
    "backend": of_backend,
    "compiler": of_compiler,
    "device": of_device("name"),
    "architecture": of_device("architecture"),
    "driver": of_device("driver"),
    "platform": of_device("platform_name"),
    "platform version": of_device("platform_version"),
}
"""What varies each part of a program's key; what it returns is added to the source."""


@contextmanager
def compiling(backend: Backend, monkeypatch: Patch) -> Iterator[Backend]:
    """The device once more, with a compiler that makes nothing, and whose name and options say nothing of the device."""
    with type(backend)(backend.device) as fresh:
        monkeypatch.setattr(fresh, "compiler", lambda: "a compiler")
        monkeypatch.setattr(fresh, "options", lambda: ("-O",))
        monkeypatch.setattr(fresh, "compile", lambda source: Program(None, b"made", source))
        monkeypatch.setattr(fresh, "load", lambda binary, source: Program(None, binary, source))
        yield fresh


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setenv("GEMMPORT_CACHE_DIR", str(tmp_path / "cache"))


def test_every_part_of_a_programs_key_is_varied(best_backend: gp.Backend) -> None:
    assert set(best_backend.program_parts("")) == set(PROGRAM)


@pytest.mark.parametrize("part", PROGRAM)
def test_a_program_is_compiled_anew_where_a_part_is_another(
    best_backend: gp.Backend, own_cache: None, monkeypatch: Patch, part: str
) -> None:
    """It comes neither from disk nor from memory."""
    with compiling(best_backend, monkeypatch) as first:
        first.program("a source")
        with compiling(best_backend, monkeypatch) as same:
            same.program("a source")
            assert (same.program_counts.compiled, same.program_counts.from_disk) == (0, 1)
        for backend in (first, None):
            with compiling(best_backend, monkeypatch) as fresh:
                other = backend or fresh
                before = other.program_counts.compiled
                with monkeypatch.context() as patch:
                    other.program("a source" + PROGRAM[part](other, patch))
                    assert other.program_counts.compiled == before + (1 if backend else 0)
                    assert other.program_counts.from_disk == (0 if backend else 1)  # what the one before stored


@pytest.mark.parametrize("part", ["rescheduled", "groups", "residency", "version"])
def test_what_code_is_put_through_is_known_by_its_parts(monkeypatch: Patch, part: str) -> None:
    """Of a device whose machine code is rescheduled: the groups, how many are resident, and by which version."""
    device = replace(DEVICES["NVIDIA sm_90 under CUDA"])
    monkeypatch.setattr(_sass, "asked_for", lambda source: ("one",) if "asked" in source else ())
    source = "#define GROUPS 2\n// asked\n"
    before = _compilation.rework(device, source)
    assert len(before) == 4
    if part == "version":
        monkeypatch.setattr(_sass, "VERSION", "another")
    elif part == "groups":
        monkeypatch.setattr(_sass, "asked_for", lambda source: ("one", "other"))
    after = _compilation.rework(
        device if part != "rescheduled" else replace(device, architecture="sm_80"),
        source.replace("GROUPS 2", "GROUPS 3") if part == "residency" else source,
    )
    assert after != before


# The fingerprint of code

CODE = '''
import os
def called(first, second=1, *rest, third: int = 2, **others) -> str:
    """A docstring."""
    for number in range(first):
        while number < second and not rest:
            number += third @ 3
        else:
            break
    with open("a name") as file, file:
        text = f"{file!r:>8} text" if first else [*rest, {1: b"x"}, {2, 3.5}]
    try:
        assert text, "told"
    except (ValueError, KeyError) as error:
        raise RuntimeError from error
    finally:
        del text
    return lambda word: (word := others["key"])[1:2:3]
class Kind(dict, metaclass=type):
    value: int = -1
    async def later(self):
        async with self.value: yield await self
        global known
        known = [x for x in self if x is not None]
'''

_UNTOLD = {"ctx", "kind", "type_comment", "docstring"}


def _leaves(tree: ast.AST) -> Iterator[tuple[ast.AST, str, Any]]:
    """Names, constants and operators of code, and where each stands; imports and docstrings do not count."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom | ast.alias):
            continue
        for name, value in ast.iter_fields(node):
            if name in _UNTOLD or value == "A docstring.":
                continue
            if isinstance(value, str | bytes | int | float | ast.operator | ast.unaryop | ast.cmpop):
                yield node, name, value


def test_a_fingerprint_tells_every_word_of_code(tmp_path: Path) -> None:
    file = tmp_path / "code.py"

    def of(text: str) -> str:
        file.write_text(text, encoding="utf-8")
        return fingerprint.of_code([file])

    plain = of(ast.unparse(ast.parse(CODE)))
    count = len(list(_leaves(ast.parse(CODE))))
    assert count > 60
    for number in range(count):
        tree = ast.parse(CODE)
        node, name, value = list(_leaves(tree))[number]
        if isinstance(value, ast.operator):
            new: Any = ast.Sub()
        elif isinstance(value, ast.unaryop):
            new = ast.Invert()
        elif isinstance(value, ast.cmpop):
            new = ast.GtE()
        elif isinstance(value, bytes):
            new = b"other"
        else:
            new = value + ("_" if isinstance(value, str) else 1)
        if (isinstance(node, ast.FormattedValue) and name == "conversion") or name in ("simple", "is_async"):
            continue  # numbers that stand for what has no other here
        setattr(node, name, new)
        assert of(ast.unparse(tree)) != plain, (type(node).__name__, name, value)


# What an entry of the configuration matches

PROBLEM = GemmProblem.create(2048, 2048, 2048, trans_b="T")

MATCH: dict[str, tuple[str, Callable[[DeviceInfo], str]]] = {
    "device": ("a part of it", lambda device: device.name),
    "architecture": ("its start", lambda device: device.architecture),
    "platform": ("all of it", lambda device: device.platform),
    "version": ("a range", lambda device: device.platform_version),
    "vendor": ("all of it", lambda device: device.vendor),
    "type": ("all of it", lambda device: device.type),
    "backend": ("all of it", lambda device: device.backend),
    "dtype": ("all of it", lambda device: PROBLEM.dtype.name),
    "ops": ("all of it", lambda device: PROBLEM.ops),
    "shape": ("all of it", lambda device: PROBLEM.shape_class),
    "precision": ("all of it", lambda device: PROBLEM.precision),
}
"""Of each key of `Match`: how much of the device's or problem's own word it must be, and that word."""


def matches(own: DeviceInfo, **keys: Any) -> bool:
    stated = {key: x if key == "version" or isinstance(x, tuple) else (x,) for key, x in keys.items()}
    match = Match(**stated)
    return match.device_matches(own) and match.problem_matches(PROBLEM)


def misspelt(word: str) -> Iterator[str]:
    """The word with one letter that is another, at each place in turn, or one more."""
    for place in range(len(word)):
        yield f"{word[:place]}{'y' if word[place] in 'xX' else 'x'}{word[place + 1 :]}"
    yield f"{word}x"


def test_every_key_of_a_match_is_tried() -> None:
    assert set(MATCH) == names_of(Match)


@pytest.mark.parametrize("key", [key for key in MATCH if key != "version"])
def test_a_key_matches_its_word_and_no_other(key: str) -> None:
    needed, word_of = MATCH[key]
    tried = 0
    for device in DEVICES.values():
        word = word_of(device)
        if not word:
            continue
        tried += 1
        assert matches(device, **{key: word})
        assert matches(device, **{key: ("another", word)})
        assert matches(device, **{key: word[:-1]}) == (needed != "all of it")
        assert matches(device, **{key: word[1:]}) == (needed == "a part of it")
        assert not any(matches(device, **{key: other}) for other in misspelt(word))
        if key != "shape":
            assert matches(device, **{key: word.upper()})
    assert tried > 5


def test_a_version_matches_its_range() -> None:
    for device in DEVICES.values():
        own = device.platform_version
        for version, is_in in ((f"=={own}", True), (f">={own}", True), (f"<={own}", True), (f"<{own}", False),
                               (f">{own}", False), (f"!={own}", False)):  # fmt: skip
            assert matches(device, version=version) == is_in, (device.label, version)


@pytest.mark.parametrize("key", MATCH)
def test_an_entry_needs_each_of_its_keys(key: str) -> None:
    for device in DEVICES.values():
        own = {name: word_of(device) for name, (_, word_of) in MATCH.items() if word_of(device)}
        own["version"] = f"=={own['version']}"
        if key in own:
            assert matches(device, **own)
            assert not matches(device, **{**own, key: "<0" if key == "version" else "another"})


@pytest.mark.parametrize("key", MATCH)
def test_an_entry_that_states_a_key_is_more_specific(key: str) -> None:
    assert Match(**{key: ">0" if key == "version" else ("x",)}).specificity > Match().specificity


# Which devices have a quirk

CONDITIONS = {"backend", "platform", "device", "versions", "architecture"}
TOLD = {"id", "symptom", "effect", "where", "evidence", "limits"}
"""What says nothing about which device has it."""

VERSIONS = (
    "0.1",
    "1.5.3",
    "1.6",
    "2.12",
    "3.0",
    "3.0-rc2",
    "3.1",
    "4.0",
    "5.0",
    "6.0",
    "7.1",
    "22.3.6",
    "99.0",
    "2026.2",
)


def test_every_condition_of_a_quirk_is_tried() -> None:
    assert names_of(Quirk) == CONDITIONS | TOLD


@pytest.mark.parametrize("quirk", QUIRKS, ids=lambda quirk: quirk.id)
def test_a_quirk_needs_each_of_its_conditions(quirk: Quirk) -> None:
    every = [
        DeviceInfo(
            quirk.backend,
            f"The {quirk.device} device",
            quirk.platform,
            platform_version=version,
            architecture=quirk.architecture,
        )
        for version in VERSIONS
    ]
    having = [device for device in every if quirk.applies_to(device)]
    assert having
    assert (len(having) < len(every)) == bool(quirk.versions)
    for device in having:
        others = {"backend": "backend", "platform": "platform", **({"device": "name"} if quirk.device else {})}
        for field in others.values():
            wrong = replace(device, **{field: "another"})
            assert not quirk.applies_to(wrong)
            assert not quirk.of_runtime(wrong)
        assert quirk.applies_to(replace(device, architecture="another")) == (not quirk.architecture)


# Which device is which

IDENTITY = {"backend", "platform_name", "platform_version", "name", "driver"}
"""What tells a kind of device from another; the rest follows from it, or is this device's alone."""


@pytest.mark.parametrize(
    ("whole", "name"),
    [(whole, name) for whole in (PROBLEM, PROBLEM.a, PROBLEM.dtype) for name in sorted(names_of(type(whole)))],
    ids=lambda part: part if isinstance(part, str) else type(part).__name__,
)
def test_a_problem_that_differs_in_anything_is_another(whole: Any, name: str) -> None:
    """Plans are kept by problem and device."""
    same = replace(whole)
    assert (same, hash(same)) == (whole, hash(whole))
    assert changed(whole, name) != whole


@pytest.mark.parametrize("name", sorted(names_of(DeviceInfo)))
def test_a_device_that_differs_in_anything_is_another(name: str) -> None:
    device = DEVICES["AMD gfx90a"]
    other = changed(device, name)
    assert other != device
    assert (other.identity != device.identity) == (name in IDENTITY)


@pytest.mark.parametrize("name", sorted(IDENTITY))
def test_a_plan_runs_on_its_own_kind_of_device_alone(best_backend: gp.Backend, name: str) -> None:
    plan = gp.plan(GemmProblem.create(8, 8, 8), best_backend.device, kernel="naive")
    with pytest.raises(ArrayError, match="plan again"):
        executor.bind(replace(plan, device=changed(plan.device, name)), best_backend, {})


WORDS = {
    "platform": ("pocl", "intel", "intel"),
    "platform_name": ("One Platform", "Other Platform", "other platform"),
    "platform_version": ("3.0", "3.1", "3.1"),
    "name": ("One GPU", "Other GPU", "other gpu"),
    "index": ((0, 0), (1, 0), "1"),
    "index of the device": ((0, 0), (0, 1), "0:1"),
    "name behind a colon": ("One GPU", "Other GPU", "0:other"),
}
"""What two devices differ in, and the description that means the second."""


@pytest.mark.parametrize("told", WORDS)
def test_every_part_of_a_description_is_looked_at(told: str) -> None:
    one, other, description = WORDS[told]
    name = told.partition(" ")[0]
    base = DeviceInfo("opencl", "GPU", "any", platform_name="Any", platform_version="1.0")
    pair = [replace(base, **{name: value}) for value in (one, other)]
    assert selection.match_devices(description, pair) == pair[1:]


@pytest.mark.parametrize("part", ["backend", "index", "context"])
def test_an_open_device_is_shared_by_nothing_else(monkeypatch: Patch, part: str) -> None:
    class Opened:
        """A backend that is open."""

        closed = False

        def __init__(self, device: DeviceInfo, context: Any = None) -> None:
            self.device = device

    monkeypatch.setattr(backends, "load", lambda name: Opened)
    monkeypatch.setattr(selection, "_open", {})
    device = DEVICES["AMD gfx90a"]
    first = selection._opened(device, None)
    assert selection._opened(device, None) is first
    other = device if part == "context" else changed(device, part)
    assert selection._opened(other, "a context" if part == "context" else None) is not first


# The signature of a call


@dataclass
class Place:
    """Where the operands of a call are: on the host, or on a device."""

    backend: gp.Backend
    on_device: bool
    folder: Path

    def array(self, host: np.ndarray) -> Any:
        return self.backend.asarray(host) if self.on_device else host

    def numbers(self, *shape: int, dtype: Any = np.float32) -> Any:
        """Whole numbers, the same for one shape, of which every part of a larger array has others."""
        return self.array(np.random.default_rng(sum(shape)).integers(-4, 5, shape).astype(dtype))


Options = dict[str, Any]
Variation = Callable[[Place], tuple[Options, Options]]
"""What a call is given beside a, b and the kernel; and what another is given, which must not have the product of the first."""


def value(name: str, other: Callable[[Place], Any] | Any, base: Callable[[Place], Options] | None = None) -> Variation:
    """One argument that is another one."""

    def varied(at: Place) -> tuple[Options, Options]:
        options = base(at) if base is not None else {}
        return options, {**options, name: other(at) if callable(other) else other}

    return varied


def with_c(at: Place) -> Options:
    return {"beta": 1.0, "c": at.numbers(8, 8)}


def named(at: Place) -> Options:
    """The place by its names; arrays on a device say themselves where they are."""
    return {} if at.on_device else {"backend": at.backend.name, "device": at.backend.device.selector}


def file_of(at: Place) -> str:
    path = at.folder / "mine.yaml"
    match = "match: {dtype: float32}, provenance: {tuned: false}"
    path.write_text(
        f"schema: 1\ndescription: x\nentries: [{{name: mine, kernels: {{naive: {{TS: 2}}}}, {match}}}]",
        encoding="utf-8",
    )
    return str(path)


OF_BOTH: dict[str, Variation] = {
    "a": value("a", lambda at: at.numbers(8, 8).T),
    "b": value("b", lambda at: at.numbers(8, 8).T),
    "out": value("out", lambda at: at.numbers(8, 8)),
    "dtype": value("dtype", "float16"),
    "backend": value("backend", "no such backend", named),
    "device": value("device", "no such device", named),
    "kernel": value("kernel", "tiled"),
    "params": value("params", {"TS": 4}),
    "config": value("config", file_of),
    "precision": value("precision", "bfloat16"),
    "scale_a": value("scale_a", 2.0),
    "scale_b": value("scale_b", np.full(1, 0.5)),
    "devices": value("devices", ["no such device"]),
    "device_memory": value("device_memory", "no size"),
    "host_memory": value("host_memory", "no size"),
    "checkpoint": value("checkpoint", 3.5),
    "progress": value("progress", "no function"),
}

SIGNATURES: dict[str, dict[str, Variation]] = {
    "gemm": {
        **OF_BOTH,
        "alpha": value("alpha", 2.0),
        "beta": value("beta", 2.0, with_c),
        "c": value("c", lambda at: at.numbers(8, 8).T, with_c),
        "trans_a": value("trans_a", "T"),
        "trans_b": value("trans_b", True),
        "accumulator": value("accumulator", "float64"),
        "queue": value("queue", "no queue"),
        "wait_for": value("wait_for", ["no event"]),
    },
    "matmul": {
        **OF_BOTH,
        "casting": value("casting", "no such casting"),
        "order": value("order", "F"),
        "axes": value("axes", [(1, 0), (0, 1), (0, 1)]),
        "subok": value("subok", False, lambda at: {"a": np.arange(64.0, dtype=np.float32).reshape(8, 8).view(Mine)}),
    },
}
"""By function and argument."""


class Mine(np.ndarray):
    """Arrays of another class."""


ENVIRONMENT = {
    "GEMMPORT_BACKEND": "no such backend",
    "GEMMPORT_DEVICE": "no such device",
    "GEMMPORT_CONFIG_PATH": "no/folder",
}
"""Variables that a product depends on, each with a value that is refused."""

WITHOUT_ROOM = {"deterministic"}
"""Arguments that count where memory is short: test_repeated.py, `TestWorkspace`."""

ELSEWHERE = {"GEMMPORT_CACHE_DIR", "GEMMPORT_CLBLAS", "GEMMPORT_CLBLAST", "GEMMPORT_CLBLAST_TUNING"}
"""Those that change no product."""


class Watched:
    """Calls, with the plans that they run."""

    def __init__(self, place: Place, monkeypatch: Patch) -> None:
        self.place, self.monkeypatch, self.plans = place, monkeypatch, []
        self._watch("relaunch", executor.BoundPlan.relaunch)
        self.forget()

    def _watch(self, name: str, run: Callable[..., None]) -> None:
        def watched(bound: executor.BoundPlan, *given: Any, **options: Any) -> None:
            self.plans.append(bound.plan)
            run(bound, *given, **options)

        self.monkeypatch.setattr(executor.BoundPlan, name, watched)

    def forget(self) -> None:
        """Begins with products that were never computed."""
        self.monkeypatch.setattr(repeated, "_known", {})
        self.monkeypatch.setattr(self.place.backend, "kept", {})
        self.monkeypatch.setattr(self.place.backend, "prepared", {})

    def outcome(self, function: str, options: Mapping[str, Any]) -> Any:
        """All that tells one call from another: what it returns, or raises, and the plan that it runs."""
        at = self.place
        how = {"a": at.numbers(8, 8), "b": at.numbers(8, 8, dtype=np.float32), "kernel": "naive", **options}
        if not at.on_device:
            how.setdefault("device", at.backend.device)
        a, b = how.pop("a"), how.pop("b")
        self.plans.clear()
        try:
            result = getattr(gp, function)(a, b, **how)
        except (gp.GemmportError, TypeError, ValueError, LookupError) as error:
            return type(error), str(error)
        numbers = result.get() if hasattr(result, "get") else result
        told = (
            numbers.tobytes(),
            numbers.dtype,
            numbers.shape,
            numbers.strides,
            type(numbers),
            result is how.get("out"),
        )
        return told, [(plan.problem, plan.variant, plan.parameters, plan.entry) for plan in self.plans]

    def check_told_apart(self, function: str, base: Options, other: Options) -> None:
        """That a call has the outcome that it has at first after another, too, whose product may be kept."""
        at_first = self.outcome(function, other)
        self.forget()
        before = self.outcome(function, base)
        assert self.outcome(function, other) == at_first
        self.forget()
        assert before != at_first, "the variation makes no difference"


@pytest.fixture
def place(backend: gp.Backend, request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return Place(backend, request.param == "on the device", tmp_path)


each_place = pytest.mark.parametrize("place", ["on the host", "on the device"], indirect=True)


@pytest.mark.parametrize("function", SIGNATURES)
def test_every_argument_is_tried(function: str) -> None:
    assert set(SIGNATURES[function]) | WITHOUT_ROOM == set(inspect.signature(getattr(gp, function)).parameters)


@each_place
@pytest.mark.parametrize(("function", "name"), [(each, name) for each, table in SIGNATURES.items() for name in table])
def test_what_is_kept_is_of_the_same_arguments(place: Place, monkeypatch: Patch, function: str, name: str) -> None:
    place = replace(
        place, on_device=place.on_device and name != "subok"
    )  # no array on a device is of a subclass of NumPy's
    base, other = SIGNATURES[function][name](place)
    Watched(place, monkeypatch).check_told_apart(function, base, other)


OF_HOST_ARRAYS: dict[str, Callable[[Place], tuple[Any, Any]]] = {
    "dtype": lambda at: (at.numbers(8, 8), at.numbers(8, 8, dtype=np.int32)),
    "shape": lambda at: (at.numbers(16, 8)[:8], at.numbers(16, 8)[:9]),
    "strides": lambda at: (at.numbers(16, 8)[:8], at.numbers(16, 8)[::2]),
}
"""What a plan depends on of an array: two that differ in nothing else."""

OF_DEVICE_ARRAYS: dict[str, Callable[[Place], tuple[Any, Any]]] = {
    **OF_HOST_ARRAYS,
    "offset": lambda at: (at.numbers(16, 8)[:8], at.numbers(16, 8)[1:9]),
    "memory": lambda at: (at.numbers(8, 8), in_memory(at.numbers(8, 8), alignment=4)),
    "backend": lambda at: (at.numbers(8, 8), elsewhere(at)),
}
"""Of `DeviceArray`, by its fields."""

OF_MEMORY = {"alignment": 4, "nbytes": 8}
"""Of `Memory`, with values that make a difference: rows that begin anywhere, and less than the array takes."""

OF_ONE_MEMORY = {"native", "handle", "free", "access", "keeper", "located", "pooled"}
"""What is another one of each memory, and no plan depends on."""

OF_WRITTEN_MEMORY = {"read_only"}


def in_memory(array: DeviceArray, **values: Any) -> DeviceArray:
    """The array in a memory of which something else is told."""
    return replace(array, memory=replace(array.memory, free=lambda: None, keeper=array.memory, **values))


def elsewhere(at: Place) -> DeviceArray:
    """The same numbers on the device once more, where B is not."""
    other = type(at.backend)(at.backend.device)
    return other.asarray(at.numbers(8, 8).get())


def test_every_field_of_an_array_is_tried() -> None:
    assert set(OF_DEVICE_ARRAYS) == names_of(DeviceArray)
    assert set(OF_MEMORY) | OF_ONE_MEMORY | OF_WRITTEN_MEMORY == names_of(Memory)


@pytest.mark.parametrize("place", ["on the host"], indirect=True)
@pytest.mark.parametrize("operand", ["a", "b", "c", "out"])
@pytest.mark.parametrize("field", OF_HOST_ARRAYS)
def test_what_is_kept_is_of_host_arrays_that_lie_alike(
    place: Place, monkeypatch: Patch, operand: str, field: str
) -> None:
    one, other = OF_HOST_ARRAYS[field](place)
    rest = {"beta": 1.0} if operand == "c" else {}
    Watched(place, monkeypatch).check_told_apart("gemm", {operand: one, **rest}, {operand: other, **rest})


@pytest.mark.parametrize("place", ["on the device"], indirect=True)
@pytest.mark.parametrize("operand", ["a", "b", "c", "out"])
@pytest.mark.parametrize("field", OF_DEVICE_ARRAYS)
def test_what_is_kept_is_of_arrays_on_a_device_that_lie_alike(
    place: Place, monkeypatch: Patch, operand: str, field: str
) -> None:
    if field == "dtype" and "float64" not in place.backend.device.computes:
        pytest.skip(beyond(place.backend.device, "int32 and float32 meet in float64"))
    one, other = OF_DEVICE_ARRAYS[field](place)
    rest = {"beta": 1.0} if operand == "c" else {}
    Watched(place, monkeypatch).check_told_apart("gemm", {operand: one, **rest}, {operand: other, **rest})


@pytest.mark.parametrize("place", ["on the device"], indirect=True)
@pytest.mark.parametrize("operand", ["a", "b", "c", "out"])
@pytest.mark.parametrize("field", OF_MEMORY)
def test_what_is_kept_is_of_memory_that_is_alike(place: Place, monkeypatch: Patch, operand: str, field: str) -> None:
    array = place.numbers(8, 8)
    other = in_memory(array, **{field: OF_MEMORY[field]})
    rest = {"beta": 1.0} if operand == "c" else {}
    Watched(place, monkeypatch).check_told_apart("gemm", {operand: array, **rest}, {operand: other, **rest})


def test_every_variable_is_tried() -> None:
    root = Path(gp.__file__).parent
    found = {word for path in root.rglob("*.py") for word in _variables(path.read_text("utf-8"))}
    assert found == set(ENVIRONMENT) | ELSEWHERE


def _variables(text: str) -> Iterator[str]:
    """Names of variables, as whole texts of the code."""
    for node in ast.walk(ast.parse(text)) if "GEMMPORT_" in text else ():
        if isinstance(node, ast.Constant) and isinstance(node.value, str | bytes):
            word = node.value if isinstance(node.value, str) else node.value.decode(errors="replace")
            if word.startswith("GEMMPORT_") and word.isupper() and " " not in word and len(word) > len("GEMMPORT_"):
                yield word


@pytest.mark.parametrize("place", ["on the host"], indirect=True)
@pytest.mark.parametrize("variable", ENVIRONMENT)
def test_what_is_kept_is_of_the_same_environment(place: Place, monkeypatch: Patch, variable: str) -> None:
    watched = Watched(place, monkeypatch)
    monkeypatch.setenv("GEMMPORT_BACKEND", place.backend.name)
    monkeypatch.setenv("GEMMPORT_DEVICE", place.backend.device.selector)
    before = watched.outcome("gemm", {"device": None})
    assert isinstance(before[1], list)
    monkeypatch.setenv(variable, ENVIRONMENT[variable])
    kind, told = watched.outcome("gemm", {"device": None})
    assert issubclass(kind, gp.GemmportError)
    assert ENVIRONMENT[variable] in told


@pytest.mark.parametrize("place", ["on the device"], indirect=True)
def test_what_is_kept_on_a_device_is_of_the_same_folders(place: Place, monkeypatch: Patch) -> None:
    watched = Watched(place, monkeypatch)
    watched.outcome("gemm", {})
    monkeypatch.setenv("GEMMPORT_CONFIG_PATH", ENVIRONMENT["GEMMPORT_CONFIG_PATH"])
    assert watched.outcome("gemm", {})[0] is gp.ConfigError


# Plans that were made before

PLAN: dict[str, Callable[[Path], Options]] = {
    "problem": lambda folder: {"problem": PROBLEM},
    "device": lambda folder: {"device": DEVICES["16 KB of local memory"]},
    "kernel": lambda folder: {"kernel": "naive"},
    "params": lambda folder: {"params": {"TSK": 8}},
    "config": lambda folder: {"config": file_of(Place(None, False, folder))},  # type: ignore[arg-type]
    "without": lambda folder: {"without": ("tiled",)},
}
"""Other arguments of `plan` than those of a plan that was made."""


def test_every_argument_of_a_plan_is_tried() -> None:
    assert set(PLAN) == set(inspect.signature(gp.plan).parameters)


@pytest.mark.parametrize("name", PLAN)
def test_a_plan_that_is_kept_is_of_the_same_arguments(tmp_path: Path, name: str) -> None:
    base = {"problem": GemmProblem.create(64, 64, 64), "device": DEVICES["work-groups of 256"], "kernel": "tiled"}
    base = {**base, "kernel": "auto"} if name in ("config", "without") else base
    base = {**base, "params": {"TS": 8}, "kernel": "naive"} if name == "params" else base
    other = {**base, **(PLAN[name](tmp_path) if name != "params" else {"params": {"TS": 4}})}
    first = gp.plan(**base)
    if name == "without":
        other["without"] = (first.variant,)
    assert gp.plan(**base) is first
    made = gp.plan(**other)
    assert made != first
    assert (made.problem, made.device) == (other["problem"], other["device"])


# The shipped configuration, as it is kept

SHIPPED = ("form", "name", "text")


@pytest.mark.parametrize("part", SHIPPED)
def test_shipped_entries_are_read_anew_where_a_part_is_another(
    part: str, tmp_path: Path, own_cache: None, monkeypatch: Patch
) -> None:
    folder = tmp_path / "configs"
    folder.mkdir()
    text = "schema: 1\ndescription: x\nentries: [{name: NAME, kernels: {naive: {}}, provenance: {tuned: false}}]"
    (folder / "one.yaml").write_text(text.replace("NAME", "one"), encoding="utf-8")
    monkeypatch.setattr(lookup, "files", lambda package: folder)
    read: list[str] = []
    unchecked = lookup._unchecked
    monkeypatch.setattr(lookup, "_unchecked", lambda file, text: read.append(file) or unchecked(file, text))
    for _ in range(2):
        lookup._shipped.__wrapped__()
    assert read == ["configs/one.yaml"]
    if part == "form":
        monkeypatch.setattr(lookup, "_FORM", "another")
    elif part == "name":
        (folder / "one.yaml").rename(folder / "other.yaml")
    else:
        (folder / "one.yaml").write_text(text.replace("NAME", "other"), encoding="utf-8")
    (loaded,) = lookup._shipped.__wrapped__().entries
    assert len(read) == 2
    assert (
        loaded.origin
        == {"form": "configs/one.yaml: one", "name": "configs/other.yaml: one", "text": "configs/one.yaml: other"}[part]
    )
