"""Which devices the tests run on: every one that is found, or those that --backend and --device leave."""

from __future__ import annotations

import os
import shutil
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache

import pytest

import gemmport as gp
from gemmport import backends, kernels, measurement, selection
from gemmport.matrix.cells import SHAPES, Choice, cells

NATIVE = ("float32", "float64")
"""What the fixture `dtype` stands for: types that kernels are tried on with everything else. test_dtypes.py has the rest."""

_FOLDER = pytest.StashKey[str]()


@dataclass(frozen=True)
class _Absent:
    """A backend that has no device here, and why."""

    name: str
    reason: str


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("gemmport")
    group.addoption("--backend", metavar="NAME", help="run device tests on this backend only")
    group.addoption(
        "--device",
        metavar="DESCRIPTION",
        help="run device tests on the devices of this description only: PLATFORM[:DEVICE]",
    )
    group.addoption(
        "--exhaustive",
        action="store_true",
        help="try all combinations on devices that compile slowly too, and large products on CPUs (an hour)",
    )


@pytest.fixture(autouse=True)
def short_turns(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands are tested for what they do: steady figures, for which a CPU's turns wait and warm up, are of no use here."""
    if request.module.__name__ != "test_measurement":
        monkeypatch.setattr(measurement, "CPU_PACE", measurement.Pace(2e-3, 0.0, waits=False))


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "best_of_each_backend: of each backend's devices, run on the best only")
    # Tests say themselves which device and configuration they mean.
    for name in ("GEMMPORT_BACKEND", "GEMMPORT_DEVICE", "GEMMPORT_CONFIG_PATH"):
        os.environ.pop(name, None)
    # JAX would take three quarters of the GPU's memory at its first use.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    # Mesa's OpenCL on the CPU is off by default. It is the poorest device there is: 32 KB of local memory, no float64.
    os.environ.setdefault("RUSTICL_ENABLE", "llvmpipe")
    # The workers of pytest-xdist inherit their parent's folder, and a run its caller's, who says so.
    if not hasattr(config, "workerinput"):
        folder = os.environ.get("TESTS_CACHE_DIR", "")
        if not folder:
            folder = config.stash[_FOLDER] = tempfile.mkdtemp(prefix="gemmport-tests-")
        os.environ["GEMMPORT_CACHE_DIR"] = folder


def pytest_unconfigure(config: pytest.Config) -> None:
    if folder := config.stash.get(_FOLDER, ""):
        shutil.rmtree(folder, ignore_errors=True)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrizes `backend` over all devices; where a test takes them, too, `dtype` over what each device computes in, and
    `cell` over the cells of the matrix.

    A test that says itself over which dtypes it runs is left to it.
    """
    if "backend" not in metafunc.fixturenames:
        return
    found = _devices(metafunc.config)
    if metafunc.definition.get_closest_marker("best_of_each_backend"):
        found = [
            next(device for device in found if device.backend == name) for name in {d.backend: None for d in found}
        ]
    values: list[tuple[object, str]] = [(device, name) for device, name in zip(found, _ids(found), strict=True)]
    values += [(absent, absent.name) for absent in _absent(metafunc.config)] if found else [(None, "no-device")]
    if "dtype" in metafunc.fixturenames and not _parametrizes(metafunc, "dtype"):
        pairs = [
            pytest.param(value, dtype, id=f"{name}-{dtype}")
            for value, name in values
            for dtype in NATIVE
            if not isinstance(value, gp.DeviceInfo) or dtype in value.computes
        ]
        metafunc.parametrize(("backend", "dtype"), pairs, indirect=["backend"], scope="session")
    elif "cell" in metafunc.fixturenames:
        exhaustive = bool(metafunc.config.getoption("--exhaustive"))
        pairs = [
            pytest.param(value, cell, id=f"{name}-{cell}")
            for value, name in values
            for cell in (_cells(value, exhaustive=exhaustive) if isinstance(value, gp.DeviceInfo) else ("none",))
        ]
        metafunc.parametrize(("backend", "cell"), pairs, indirect=["backend"], scope="session")
    else:
        single = [pytest.param(value, id=name) for value, name in values]
        metafunc.parametrize("backend", single, indirect=True, scope="session")


UNTIMED = Choice(shapes=tuple(shape for shape in SHAPES if shape != "large"))

PART_OF_POCL = 4
"""Of the quick cells' programs, PoCL, which takes a second and more for each, compiles one in so many."""


def _cells(device: gp.DeviceInfo, *, exhaustive: bool) -> list[str]:
    """The cells of the matrix that are judged on a device, by their ids."""
    if exhaustive:
        return [cell.id for cell in cells(device, "full", UNTIMED)]
    part = (1, PART_OF_POCL) if device.platform == "pocl" else (1, 1)
    left_out = FOR_GPUS if device.type == "cpu" else ()
    names = [variant.name for variant in kernels.variants() if variant.name not in left_out]
    return [cell.id for cell in cells(device, "quick", replace(UNTIMED, kernels=names), part)]


def _parametrizes(metafunc: pytest.Metafunc, name: str) -> bool:
    """Whether a test has its own values for a parameter."""
    told = [mark.args[0] for mark in metafunc.definition.iter_markers("parametrize")]
    return any(name in (names.replace(" ", "").split(",") if isinstance(names, str) else names) for names in told)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of the tests that a backend without devices would skip, keeps one, so that its absence is told once. Leaves out, on CPUs,
    what `_is_slow` says.
    """
    told: set[str] = set()
    dropped: list[pytest.Item] = []
    slow = [] if config.getoption("--exhaustive") else [item for item in items if _is_slow(item)]
    dropped += slow
    for item in items:
        absent = (
            item.callspec.params.get("backend")
            if isinstance(item, pytest.Function) and hasattr(item, "callspec")
            else None
        )
        if isinstance(absent, _Absent):
            if absent.name in told:
                dropped.append(item)
            told.add(absent.name)
    for item in items:
        if reason := _unsupported(item):
            item.add_marker(pytest.mark.skip(reason=reason))
    if dropped:
        gone = set(dropped)
        items[:] = [item for item in items if item not in gone]
        config.hook.pytest_deselected(items=dropped)


def _unsupported(item: pytest.Item) -> str:
    """Why the device cannot run the kernel of a test; empty where it can. test_kernels.py says which devices must."""
    params = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
    device, kernel = params.get("backend"), params.get("kernel")
    if not isinstance(device, gp.DeviceInfo) or kernel not in {variant.name for variant in kernels.variants()}:
        return ""
    reason = kernels.variant(kernel).unsupported(gp.GemmProblem.create(1, 1, 1), device)
    return f"{kernel} is unsupported on {device.label}: {reason}" if reason else ""


REPRESENTATIVES = ("tiled", "direct")
"""Kernels that CPUs run every test of: one of work-items that meet in local memory, one of those that do not. Runtimes that
take a second and more for a program run all tests of the first."""

OF_EVERY_KERNEL = (
    "test_of_any_size_are_exact",
    "test_update_c_in_place",
    "test_the_parameters_of_the_configuration_are_exact",
)
"""What runtimes that take a second and more for a program run of all other kernels, in float32."""

FOR_GPUS = ("batched",)
"""Kernels that no configuration gives to a CPU: CPUs run of them what slow runtimes do, a part of their faults, and their
own module."""

PART_OF = ("test_dtypes", "test_special_values", "test_large", "test_mutations", "test_reduce", "test_transpose")
"""Modules of which CPUs run an eighth for all other kernels, always the same: types and kernels meet in turn."""


def _is_slow(item: pytest.Item) -> bool:
    """Whether a test is left to --exhaustive and to GPUs, which compile and run all of them in minutes."""
    params = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
    device, kernel = params.get("backend"), params.get("kernel")
    if not isinstance(device, gp.DeviceInfo) or device.type != "cpu":
        return False
    slow = device.platform in ("pocl", "rusticl")
    if kernel in (REPRESENTATIVES[:1] if slow else REPRESENTATIVES):
        return False
    if item.get_closest_marker("one_kernel_where_slow") is not None and device.platform == "pocl" and kernel:
        return True
    module = item.path.stem
    if (slow or (kernel in FOR_GPUS and module != "test_mutations")) and kernel:
        plain = params.get("dtype", "float32") == "float32" and params.get("ops", "NN") in ("NN", "TT")
        return not (plain and getattr(item, "originalname", "") in OF_EVERY_KERNEL)
    wide_types = module == "test_kernels" and params.get("dtype") == "float64"
    return (module in PART_OF or wide_types) and bool(kernel or slow) and zlib.crc32(item.name.encode()) % 8 != 0


@pytest.fixture(scope="session")
def backend(request: pytest.FixtureRequest) -> gp.Backend:
    """Each device in turn, open."""
    if isinstance(request.param, _Absent):
        pytest.skip(request.param.reason)
    if request.param is None:
        pytest.fail(_nothing_found(request.config))
    return gp.get_backend(device=request.param)


@pytest.fixture(scope="session")
def best_backend(request: pytest.FixtureRequest) -> gp.Backend:
    """The best of the devices, for tests of what does not depend on the device."""
    found = _devices(request.config)
    if not found:
        pytest.fail(_nothing_found(request.config))
    return gp.get_backend(device=found[0])


@pytest.fixture
def fresh_backend(backend: gp.Backend) -> Iterator[gp.Backend]:
    """The device opened once more, with no program in memory, closed when the test ends."""
    with type(backend)(backend.device) as fresh:
        yield fresh


def _names(config: pytest.Config) -> Sequence[str]:
    wanted = config.getoption("--backend")
    return (wanted,) if wanted else backends.names()


@cache
def _devices(config: pytest.Config) -> list[gp.DeviceInfo]:
    found = [device for name in _names(config) for device in gp.devices(name)]
    found.sort(key=gp.devices().index)
    description = config.getoption("--device")
    if description:
        return selection.match_devices(description, found)
    return found if config.getoption("--exhaustive") else _without_older_versions(found)


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Which devices are tested, and which of this machine are not, so that what is left out is seen."""
    tested = _devices(config)
    left_out = [device.label for device in gp.devices() if device not in tested]
    return [
        f"devices: {'; '.join(device.label for device in tested) or 'none'}",
        *(
            [f"not tested: {'; '.join(left_out)} (older version, --backend or --device; see --exhaustive)"]
            if left_out
            else []
        ),
        *(
            []
            if config.getoption("--exhaustive") or all(device.type != "cpu" for device in tested)
            else [
                f"on CPUs: all tests of {' and '.join(REPRESENTATIVES)}, a part of those of other kernels (see --exhaustive)"
            ]
        ),
    ]


def _without_older_versions(devices: Sequence[gp.DeviceInfo]) -> list[gp.DeviceInfo]:
    """Of CPUs under several versions of one runtime, the newest: compiling on one takes minutes."""

    def key(device: gp.DeviceInfo) -> tuple[str, ...]:
        return device.backend, device.platform, *([device.selector] if device.type != "cpu" else [])

    newest = {key(device): device for device in sorted(devices, key=lambda device: device.platform_version)}
    return [device for device in devices if newest[key(device)] is device]


def _ids(devices: Sequence[gp.DeviceInfo]) -> list[str]:
    """Backend and platform; the number of a GPU; and what else tells two devices apart."""
    names = [f"{d.backend}-{d.platform}" + (f"-{d.index[1]}" if d.type == "gpu" else "") for d in devices]
    versions = [
        f"{name}-{d.platform_version}" if names.count(name) > 1 else name
        for name, d in zip(names, devices, strict=True)
    ]
    return [
        f"{name}-{d.selector}" if versions.count(name) > 1 else name for name, d in zip(versions, devices, strict=True)
    ]


def _absent(config: pytest.Config) -> list[_Absent]:
    statuses = [selection.backend_status(name) for name in _names(config)]
    return [_Absent(s.name, s.error or "; ".join(s.notes)) for s in statuses if not s.devices]


def _nothing_found(config: pytest.Config) -> str:
    statuses = [selection.backend_status(name) for name in _names(config)]
    reasons = [reason for status in statuses for reason in (status.error, *status.notes) if reason]
    listed = "; ".join(f"{device.selector} = {device.label}" for device in gp.devices()) or "none at all"
    return f"no device of --backend and --device to test on: {'; '.join(reasons)} (there are: {listed})"
