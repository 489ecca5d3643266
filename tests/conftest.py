"""What every test gets: a device, a cache folder of its own, settings that nobody else made.

tiers.py says which tests run when, tested.py on which devices, devices_only.py what is left out where only these matter,
passed.py what is left out where it passed before, one_gpu_each.py which GPU a worker sees, absences.py what was not there,
failures.py what has failed so far, crashed.py where the threads of a worker were that ended, refused.py what NVIDIA's driver
refused meanwhile, away_from_jax.py what runs in a process of its own.
"""

from __future__ import annotations

import gc
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import hypothesis
import pytest

import gemmport as gp
import tested
import tiers
from gemmport.bench import timing
from gemmport.runtime.locks import exclusive

pytest_plugins = [
    "absences",
    "away_from_jax",
    "crashed",
    "devices_only",
    "refused",
    "failures",
    "one_gpu_each",
    "passed",
]

_FOLDER = pytest.StashKey[str]()
_SHARED = pytest.StashKey[Path]()

EXAMPLES = {tiers.Tier.TEST: 20, tiers.Tier.ALL: 30, tiers.Tier.EXHAUSTIVE: 100}
"""Of a property, where it does not say so itself."""


def pytest_addoption(parser: pytest.Parser) -> None:
    tested.add_options(parser)
    tiers.add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    # Tests of one room take what another has: the kernels with the parameters that they are tried with, above all.
    sys.path[:0] = [str(room) for room in sorted(Path(__file__).parent.iterdir()) if room.is_dir()]
    tested.register_own(config)
    for name, meaning in tiers.MARKERS.items():
        config.addinivalue_line("markers", f"{name}: {meaning}")
    # Tests say themselves which device and configuration they mean.
    for name in ("GEMMPORT_BACKEND", "GEMMPORT_DEVICE"):
        os.environ.pop(name, None)
    os.environ["GEMMPORT_CONFIG_PATH"] = ""  # nor the folder of whoever runs them
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
        # Runtimes that keep what they compiled: nothing of an earlier run, and nothing is left behind.
        for name, own in (("POCL_CACHE_DIR", "pocl"), ("MESA_SHADER_CACHE_DIR", "mesa")):
            os.environ[name] = str(Path(folder) / own)
            Path(folder, own).mkdir(parents=True, exist_ok=True)
    config.stash[_SHARED] = Path(os.environ["GEMMPORT_CACHE_DIR"])
    # The same examples in every run: `gemmport fuzz` searches at random.
    examples = EXAMPLES[tiers.tier_of(config)]
    hypothesis.settings.register_profile("tests", derandomize=True, database=None, deadline=None, max_examples=examples)
    hypothesis.settings.load_profile("tests")


def pytest_unconfigure(config: pytest.Config) -> None:
    if folder := config.stash.get(_FOLDER, ""):
        shutil.rmtree(folder, ignore_errors=True)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    tiers.parametrize(metafunc)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    tier = tiers.tier_of(config)
    if dropped := [item for item in items if tiers.is_left_out(item, tier)]:
        gone = set(dropped)
        items[:] = [item for item in items if item not in gone]
        config.hook.pytest_deselected(items=dropped)


def pytest_collection_finish() -> None:
    """Thousands of tests are there to stay: the garbage collector need not look at them each time."""
    gc.collect()
    gc.freeze()


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Which devices are tested, which of this machine are not, and how much."""
    found = tested.devices(config)
    others = [device.label for device in gp.devices() if device not in found]
    return [
        f"devices: {'; '.join(device.label for device in found) or 'none'}",
        *([f"left out by --backend and --device: {'; '.join(others)}"] if others else []),
        f"tier: {tiers.tier_of(config).name.lower()} (tests/tiers.py)",
    ]


@pytest.fixture(autouse=True)
def gigabytes_for_one_at_a_time(request: pytest.FixtureRequest) -> Iterator[None]:
    """Two large tests at once, of two workers of pytest-xdist, may need more memory than the machine has."""
    is_large = request.node.get_closest_marker("large") is not None
    with exclusive(request.config.stash[_SHARED], "large", 600.0) if is_large else nullcontext():
        yield


@pytest.fixture(autouse=True)
def short_turns(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands are tested for what they do: steady figures, for which a CPU's turns wait and warm up, are of no use here."""
    if request.module.__name__ != "test_timing":
        monkeypatch.setattr(timing, "CPU_PACE", timing.Pace(2e-3, 0.0, waits=False))


@pytest.fixture
def backend(request: pytest.FixtureRequest) -> gp.Backend:
    """Each device in turn, open."""
    if request.param is None:
        pytest.fail(tested.nothing_found(request.config))
    return gp.get_backend(device=request.param)


@pytest.fixture(scope="session")
def best_backend(request: pytest.FixtureRequest) -> gp.Backend:
    """The best of the devices, for tests of what does not depend on the device."""
    found = tested.devices(request.config)
    if not found:
        pytest.fail(tested.nothing_found(request.config))
    return gp.get_backend(device=found[0])


@pytest.fixture
def uncollected() -> Iterator[None]:
    """Python's garbage collector frees nothing meanwhile. PyCUDA's memory, CuPy's that is of no pool, and PyTorch's graphs,
    which an earlier test left in a cycle, would end a capture in an error: docs/interchange.md.
    """
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.fixture
def fresh_backend(backend: gp.Backend) -> Iterator[gp.Backend]:
    """The device opened once more, with no program in memory, closed when the test ends."""
    with type(backend)(backend.device) as fresh:
        yield fresh
