"""Which tests run when. There are three tiers:

- `pytest` (`make test`): minutes. Every promise has a test in it.
- `pytest --all` (`make test-all`): all that is promised, on each runtime's newest version; older ones: `gemmport matrix`.
- `pytest --exhaustive`: every combination, which takes CPUs hours.

What a tier takes of a test is decided by the test's markers, which say what the test needs or proves:

| marker | `make test` | `make test-all` | `--exhaustive` |
|---|---|---|---|
| none | on the fastest CPU runtime | on each CPU runtime's newest version | on every device |
| `every_runtime`: each runtime must be asked itself | on every device | on every device | on every device |
| `every_pair(names, values)`: these meet each other and the devices | every value once | every pair of values | all |
| `every_value(names, values)`: these say nothing of each other | every value once | every value once | all |
| `sample(name=values)`: these stand for the rest | these values, all of them | as without it | as without it |
| `LONG`: takes long for what it says | its `sample`, or nothing | as without it | as without it |

Names that are given together have one value together, or, `apart`, one each, of which the combinations that are listed are all
there are. `where` says which combinations there are.

GPUs compile in milliseconds: they run every combination in every tier, and `pytest --backend cuda` is at least `--all`. What a
device cannot compute is not tested on it. A kernel of `OF_GPUS` runs on the best CPU runtime alone; the matrix asks the others.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from enum import IntEnum
from functools import cache
from typing import Any

import pytest

import gemmport as gp
import tested
from gemmport import kernels
from gemmport.fuzz.covering import EACH_PAIR, EACH_VALUE, covering
from gemmport.matrix.cells import parse_types

NATIVE = ("float32", "float64")
"""What the parameter `dtype` stands for: types that kernels are tried on with everything else. test_dtypes.py has the rest."""

LONG = {
    "planted_fault": "a check notices a broken kernel",
    "large": "needs gigabytes, or many operations",
    "simulated": "runs in Oclgrind, a simulator",
    "many_draws": "looks at hundreds of random problems",
    "processes": "starts processes that run for seconds",
    "machine_code": "NVIDIA's compiler and what is made of its code, for the largest kernels",
    "mutants": "that the record of mutation testing belongs to the modules as they are",
    "of_numpy": "a test of NumPy's that multiplies for the sake of something else",
}
"""Markers of what make test runs a sample of, at most."""

MARKERS = {
    **LONG,
    "best_of_each_backend": "of each backend's devices, run on the best only",
    "every_runtime": "each runtime must be asked itself, in make test too",
    "every_pair(names, values, where, apart)": "as parametrize; of the combinations, make test-all takes every pair of values",
    "every_value(names, values, where, apart)": "as parametrize; of the combinations, make test-all takes every value once",
    "sample(name=values)": "in make test, these values stand for all",
}

OF_GPUS = ("simt", "mma", "wgmma", "sub_group_mma")
"""Kernels that no CPU's configuration chooses, and that CPUs' runtimes take many seconds to compile."""

STRENGTHS = {"every_pair": EACH_PAIR, "every_value": EACH_VALUE}

Row = Mapping[str, Any]


class Tier(IntEnum):
    """How much is run."""

    TEST = 1
    ALL = 2
    EXHAUSTIVE = 3


def add_options(parser: pytest.Parser) -> None:
    """--all and --exhaustive."""
    group = parser.getgroup("gemmport")
    group.addoption("--all", action="store_true", help="what make test-all runs: every pair of values on every device")
    group.addoption("--exhaustive", action="store_true", help="every combination on every device (hours on CPUs)")


def tier_of(config: pytest.Config) -> Tier:
    """What the command line asks for; where GPUs alone are tested, everything that it does not call exhaustive."""
    if config.getoption("--exhaustive"):
        return Tier.EXHAUSTIVE
    found = tested.devices(config)
    gpus_alone = bool(found) and all(device.type != "cpu" for device in found)
    return Tier.ALL if config.getoption("--all") or gpus_alone else Tier.TEST


def devices_of(definition: pytest.Item, config: pytest.Config) -> Sequence[gp.DeviceInfo]:
    """The devices that a test runs on, the best first."""
    found, tier = tested.devices(config), tier_of(config)
    if definition.get_closest_marker("best_of_each_backend"):
        return tested.best_of_each_backend(found)
    if tier is Tier.EXHAUSTIVE or definition.get_closest_marker("every_runtime"):
        return found
    if tier is Tier.TEST:
        best = tested.best_cpu(config)
        return [device for device in found if device.type != "cpu" or device == best]
    return tested.newest_of_each_runtime(found)


def parametrize(metafunc: pytest.Metafunc) -> None:
    """Gives a test its devices, its types, and the combinations of what its markers name that its tier takes."""
    axes = list(_axes(metafunc))
    if not axes:
        return
    wheres = [mark.kwargs["where"] for mark in _marks(metafunc.definition) if "where" in mark.kwargs]
    every = [
        row
        for combination in itertools.product(*(rows for _, rows in axes))
        if _computes(row := {name: value for part in combination for name, value in part.items()})
        and not _left_to_the_matrix(row, metafunc)
        and all(where(row) for where in wheres)
    ]
    rows = _taken(every, metafunc)
    names = [name for own, _ in axes for name in own]
    ids = tested.ids(tested.devices(metafunc.config))
    labels = dict(zip(tested.devices(metafunc.config), ids, strict=True))
    metafunc.parametrize(
        names,
        [[row[name] for name in names] for row in rows],
        ids=["-".join(_id(row[name], labels) for name in names) for row in rows],
        indirect=["backend"] if "backend" in names else False,
    )


def is_left_out(item: pytest.Item, tier: Tier) -> bool:
    """Whether make test does without a test."""
    parameters = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
    device = parameters.get("backend")
    if tier is not Tier.TEST or (isinstance(device, gp.DeviceInfo) and device.type != "cpu"):
        return False
    if sample := item.get_closest_marker("sample"):
        return any(parameters[name] not in values for name, values in sample.kwargs.items())
    return any(item.get_closest_marker(name) for name in LONG)


def _axes(metafunc: pytest.Metafunc) -> list[tuple[Sequence[str], list[Row]]]:
    """Names that go together, with the rows of their values."""
    marks = _marks(metafunc.definition)
    own = {name for mark in [*metafunc.definition.iter_markers("parametrize"), *marks] for name in _names(mark)}
    axes: list[tuple[Sequence[str], list[Row]]] = []
    if "backend" in metafunc.fixturenames and "backend" not in own:
        found = devices_of(metafunc.definition, metafunc.config) or [None]
        axes.append((["backend"], [{"backend": device} for device in found]))
        if "dtype" in metafunc.fixturenames and "dtype" not in own:
            axes.append((["dtype"], [{"dtype": dtype} for dtype in NATIVE]))
    for mark in reversed(marks):
        names, values = _names(mark), mark.args[1]
        rows = [dict(zip(names, value if len(names) > 1 else (value,), strict=True)) for value in values]
        axes.append((names, rows))
    return axes


def _taken(every: Sequence[Row], metafunc: pytest.Metafunc) -> Sequence[Row]:
    """The combinations that the tier takes: all of GPUs'."""
    marks, tier = _marks(metafunc.definition), tier_of(metafunc.config)
    sampled = metafunc.definition.get_closest_marker("sample") is not None
    if not marks or tier is Tier.EXHAUSTIVE or (tier is Tier.TEST and sampled):
        return every
    on_gpus = [row for row in every if (device := row.get("backend")) is not None and device.type != "cpu"]
    others = [row for row in every if (device := row.get("backend")) is None or device.type == "cpu"]
    strength = EACH_VALUE if tier is Tier.TEST else max(STRENGTHS[mark.name] for mark in marks)
    together = [_names(mark) for mark in marks if len(_names(mark)) > 1 and not mark.kwargs.get("apart")]
    single = set(every[0] if every else ()) - {name for names in together for name in names}
    values = [*together, *([name] for name in sorted(single))]
    facets = [{names[0]: tuple(_facet(row[name]) for name in names) for names in values} for row in others]
    return [*on_gpus, *(others[number] for number in sorted(covering(facets, strength)))]


def _marks(definition: pytest.Item) -> list[pytest.Mark]:
    return [mark for mark in definition.iter_markers() if mark.name in STRENGTHS]


def _names(mark: pytest.Mark) -> list[str]:
    names = mark.args[0]
    return names.replace(" ", "").split(",") if isinstance(names, str) else list(names)


def _computes(row: Row) -> bool:
    """Whether the device has what the kernel needs, and computes in the types. test_kernels.py says which devices must."""
    device, kernel = row.get("backend"), row.get("kernel")
    types = row.get("types", (row.get("dtype"), row.get("output"), row.get("accumulator")))
    if device is None:
        return True
    if any(types) and (arithmetic := _arithmetic(types)) and arithmetic not in device.computes:
        return False
    return kernel not in _FAMILY or not _lacks(device, kernel)


_FAMILY = {variant.name for variant in kernels.variants()}


def _left_to_the_matrix(row: Row, metafunc: pytest.Metafunc) -> bool:
    device = row.get("backend")
    if tier_of(metafunc.config) is Tier.EXHAUSTIVE or device is None or device.type != "cpu":
        return False
    return row.get("kernel") in OF_GPUS and device != tested.best_cpu(metafunc.config)


@cache
def _arithmetic(types: str | tuple[str | None, ...]) -> str:
    return parse_types(types if isinstance(types, str) else "-".join(filter(None, types)))[2].arithmetic


@cache
def _lacks(device: gp.DeviceInfo, kernel: str) -> bool:
    own = kernels.variant(kernel)
    problem = gp.GemmProblem.create(1, 1, 1, dtype="float32" if "float32" in own.dtypes else min(own.dtypes))
    return own.unsupported(problem, device) is not None


def _facet(value: Any) -> Any:
    try:
        hash(value)
    except TypeError:
        return repr(value)
    return value


def _id(value: Any, labels: Mapping[gp.DeviceInfo, str]) -> str:
    """How a test's name tells a value."""
    if value is None:
        return "no-device"
    if isinstance(value, gp.DeviceInfo):
        return labels.get(value, value.label).replace(" ", "-")
    if isinstance(value, tuple):
        return "-".join(_id(part, labels) for part in value if part is not None)
    if isinstance(value, Mapping):
        return "-".join(map(str, value.values()))
    return str(getattr(value, "name", value)).replace(" ", "-")
