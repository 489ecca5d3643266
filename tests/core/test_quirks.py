"""What runtimes get wrong is told completely, referred to where it is met, and noticed when it is mended."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import get_args

import pytest
from packaging.specifiers import SpecifierSet

import gemmport as gp
from absences import BASELINES, GPU, OPENCL_RUNTIMES, Thing, beyond, none_of, skip_without
from gemmport import baselines
from gemmport.core import quirks
from gemmport.core.device import DeviceInfo
from gemmport.core.quirks import QUIRKS, Quirk
from gemmport.execution import selection
from gemmport.matrix import simulator
from made_up_devices import DEVICES
from runtimes import RUNTIMES
from symptoms import BY_CHANCE, BY_PROCESSOR, CANNOT, END_THE_PROCESS, GONE, NEVER_END, SHOWN, SYMPTOMS

ROOT = Path(__file__).parents[2]

NOT_SHOWN = {
    "clblas-threads": "wrong only where threads meet by chance; told by the library's source",
    "clblast-cache-race": "wrong only where threads meet by chance; told by the library's list of changes",
    "pocl-unknown-cpu": "devices that have it are not listed: test_a_device_whose_compiler_refuses_every_program_is_not_listed",
    "rusticl-lost-maps": "where threads meet by chance: not in 20,000 maps by four threads alone; seen in soaks (test_soak.py)",
}
"""Quirks without a symptom of their own in symptoms.py, and why."""

LIMIT = 240
"""Seconds for a symptom; NVIDIA's runtime fills for a minute before it fails."""

PATIENCE = 20
"""Seconds after which something never ends."""

each_quirk = pytest.mark.parametrize("quirk", QUIRKS, ids=lambda quirk: quirk.id)


# The table


@each_quirk
def test_an_entry_is_complete(quirk: Quirk) -> None:
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)+", quirk.id)
    assert quirk.id.startswith(quirk.platform)
    assert quirk.backend in gp.backends.names()
    assert quirk.platform in PLATFORMS | set(baselines.names())
    SpecifierSet(quirk.versions)
    assert quirk.effect in get_args(quirks.Effect)
    for text in (quirk.symptom, quirk.evidence):
        assert len(text) > 8
        assert not text.endswith(".")
    assert set(quirk.limits) <= set(DeviceInfo.__dataclass_fields__)
    assert quirk.where


PLATFORMS = {"pocl", "intel", "rusticl", "oclgrind", "nvidia", "amd", "apple", "arm"}


def test_names_are_unique() -> None:
    assert len({quirk.id for quirk in QUIRKS}) == len(QUIRKS)
    assert set(SYMPTOMS) | set(NOT_SHOWN) == {quirk.id for quirk in QUIRKS}
    assert not set(SYMPTOMS) & set(NOT_SHOWN)


@pytest.mark.parametrize("place", sorted({place for quirk in QUIRKS for place in quirk.where}))
def test_what_it_points_at_is_there(place: str) -> None:
    path, _, word = place.partition(": ")
    assert word
    assert word in (ROOT / path).read_text("utf-8")


def test_loops_with_barriers_that_may_be_skipped_are_in_the_list() -> None:
    """Every kernel whose comment names the quirk, and no other."""
    sources = sorted(
        path.name for path in (ROOT / "kernels/opencl").glob("*.cl") if "pocl-skipped-loop" in path.read_text()
    )
    listed = quirks.quirk("pocl-skipped-loop").where
    assert sorted(place.partition(":")[0].removeprefix("kernels/opencl/") for place in listed) == sources


def test_every_name_in_the_code_is_in_the_table() -> None:
    """In comments and messages, a name stands in brackets, and may have the word in front."""
    names = {quirk.id for quirk in QUIRKS}
    platforms = "|".join(sorted({quirk.platform for quirk in QUIRKS}))
    mentioned = set()
    for folder, pattern in (
        ("backends", "*.py"),
        ("src", "**/*.py"),
        ("kernels", "**/*.cl"),
        ("tests", "contract/**/*.cl"),
    ):
        for path in (ROOT / folder).glob(pattern):
            mentioned |= set(re.findall(rf"\((?:quirk )?((?:{platforms})-[a-z0-9-]+)\)", path.read_text("utf-8")))
    assert {"pocl-skipped-loop", "nvidia-groups-of-256", "rusticl-loop-rounds"} <= mentioned <= names


RUSTICL = DeviceInfo("opencl", "llvmpipe (LLVM 15.0.6, 256 bits)", "rusticl", platform_version="22.3.6", type="cpu")
POCL = replace(DEVICES["CPU under PoCL"], platform_version="3.1")


def test_versions_devices_and_platforms_decide() -> None:
    def names(device: DeviceInfo) -> set[str]:
        return {quirk.id for quirk in quirks.quirks_of(device)}

    assert "rusticl-loop-rounds" in names(RUSTICL)
    assert "rusticl-loop-rounds" not in names(replace(RUSTICL, name="Radeon RX 7900"))
    assert not names(replace(RUSTICL, backend="cuda"))
    assert "pocl-vector-stores" in names(replace(POCL, platform_version="3.0-rc2"))
    assert "pocl-vector-stores" not in names(POCL)
    assert "pocl-skipped-loop" in names(POCL)
    assert "pocl-skipped-loop" not in names(replace(POCL, platform_version="7.1"))
    assert "pocl-local-memory" in names(replace(POCL, platform_version="6.0"))
    assert not names(DEVICES["Apple"])


def test_a_device_whose_compiler_refuses_every_program_is_not_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    discovery = pytest.importorskip(
        "gemmport.backends._opencldiscovery", reason="PyOpenCL is not installed", exc_type=ImportError
    )
    known = replace(POCL, platform_version="3.0-rc2", architecture="znver3")
    unknown = replace(known, architecture="generic")
    platform = SimpleNamespace(name=POCL.platform_name, get_devices=lambda: [known, unknown, POCL])
    monkeypatch.setattr(discovery, "platforms", lambda: [platform])
    monkeypatch.setattr(discovery, "_describe", lambda platform, device, index: device)
    found = discovery.discover()
    assert found.devices == (known, POCL)
    (note,) = (note for note in found.notes if POCL.platform_version not in note)
    assert quirks.named_in(note) == "pocl-unknown-cpu"
    assert "; use another runtime: pip install 'gemmport[intel]'" in note


def test_limits_bound_what_a_runtime_tells() -> None:
    assert quirks.within_limits(replace(POCL, local_memory=2**20)).local_memory == 2**18
    assert quirks.within_limits(replace(POCL, local_memory=2**15)).local_memory == 2**15
    assert quirks.within_limits(RUSTICL).max_terms == 2**15
    assert quirks.within_limits(DEVICES["Apple"]) == DEVICES["Apple"]


def test_refusals_name_the_quirk() -> None:
    with pytest.raises(gp.UnsupportedError) as terms:
        gp.plan(gp.GemmProblem.create(3, 3, 2**15 + 1), quirks.within_limits(RUSTICL))
    assert quirks.named_in(str(terms.value)) == "rusticl-loop-rounds"
    params = {"TSM": 256, "TSN": 256, "TSK": 128, "WPTM": 16, "WPTN": 16, "ARRANGE": "strided", "PAD": 1}
    with pytest.raises(gp.ParameterError) as memory:
        gp.plan(
            gp.GemmProblem.create(300, 300, 300), quirks.within_limits(POCL), kernel="register_tiled", params=params
        )
    assert quirks.named_in(str(memory.value)) == "pocl-local-memory"
    with pytest.raises(gp.UnsupportedError) as own:  # no runtime's fault
        gp.plan(gp.GemmProblem.create(3, 3, 7), replace(DEVICES["Apple"], max_terms=6))
    assert quirks.named_in(str(own.value)) == ""


def test_only_quirks_of_the_table_are_read_from_messages() -> None:
    assert quirks.named_in("it is (quirk pocl-skipped-loop): …") == "pocl-skipped-loop"
    assert quirks.named_in("a quirk of mine, quirk my-own") == ""


# The symptoms


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Every symptom on every device of its runtime, whether or not its version is in the range of the quirk."""
    if "symptom" not in metafunc.fixturenames:
        return
    cases = [
        pytest.param(quirk, device, id=f"{quirk.id}-{device.platform_version}" if device else quirk.id)
        for quirk in QUIRKS
        if quirk.id in SYMPTOMS
        for device in _devices(quirk, metafunc.config) or [None]
    ]
    metafunc.parametrize(("symptom", "device"), cases)


def _devices(quirk: Quirk, config: pytest.Config) -> list[DeviceInfo]:
    if config.getoption("--backend") not in (None, quirk.backend):
        return []
    found = [*gp.devices(quirk.backend), *(simulated() if quirk.platform == "oclgrind" else ())]
    if description := config.getoption("--device"):
        found = selection.match_devices(description, found)
    if quirk.platform in baselines.names():
        return found[:1]
    return [device for device in found if quirk.of_runtime(device)]


def simulated() -> list[DeviceInfo]:
    if not _SIMULATED and simulator.installed():
        _SIMULATED.extend(simulator.devices())
    return _SIMULATED


_SIMULATED: list[DeviceInfo] = []


@pytest.mark.processes
def test_a_symptom_shows_where_the_table_says_so_and_nowhere_else(
    symptom: Quirk, device: DeviceInfo | None, tmp_path: Path
) -> None:
    if device is None:
        skip_without(what_has(symptom.platform))
        pytest.skip(none_of(symptom.platform))
    version = device.platform_version
    if symptom.platform in baselines.names():
        skip_without(*BASELINES[symptom.platform])
        version = baselines.load(symptom.platform).version
    came = what_came_of(symptom, device, tmp_path)
    if came == GONE and symptom.id in BY_CHANCE:
        pytest.skip(beyond(device, "it did not show this time, which says nothing of a race"))
    if came == GONE and symptom.id in BY_PROCESSOR:
        pytest.skip(beyond(device, "it does not show on this processor, which says nothing of others"))
    expected = symptom.platform in baselines.names() or device.has_version(symptom.versions)
    assert came != GONE or not expected, f"mended in {version}: narrow the range of {symptom.id}"
    assert came == GONE or expected, f"shown in {version}, too: widen the range of {symptom.id}"


def what_has(platform: str) -> Thing:
    """What brings a device of a runtime; a GPU where nothing else does."""
    own = (thing for runtime, thing in zip(RUNTIMES, OPENCL_RUNTIMES, strict=True) if runtime.platform == platform)
    return next(own, GPU)


def what_came_of(symptom: Quirk, device: DeviceInfo, folder: Path) -> str:
    """What the process of a symptom says, `SHOWN` or `GONE`; any other end of it is no answer."""
    log = folder / "log"
    under = simulator.command(log) if device.platform == "oclgrind" else []
    own_folder = Path(__file__).parents[1]
    words = [*under, sys.executable, str(own_folder / "symptoms.py"), symptom.id, device.selector, str(log)]
    environment = {
        **{
            name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"
        },  # it imports what is beside it
        "GEMMPORT_CACHE_DIR": str(folder),
        "PYOPENCL_NO_CACHE": "1",
        "POCL_CACHE_DIR": str(folder),
        # LLVM takes and gives back large blocks as long as it tries; glibc would ask the system for each, for minutes.
        "MALLOC_MMAP_MAX_": "0",
        "MALLOC_TRIM_THRESHOLD_": str(2**40),
    }
    limit = PATIENCE if symptom.id in NEVER_END else LIMIT
    try:
        done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False, timeout=limit)
    except subprocess.TimeoutExpired:
        assert symptom.id in NEVER_END, f"{symptom.id} did not end within {limit} s"
        return SHOWN
    if done.returncode < 0 and symptom.id in END_THE_PROCESS:
        return SHOWN
    answer = (done.stdout.splitlines() or [""])[-1]
    if answer == SHOWN:  # whatever a runtime that lost its queue did in the end
        return SHOWN
    assert done.returncode == 0, done.stderr
    if answer.startswith(CANNOT):
        pytest.skip(beyond(device, answer))
    assert answer == GONE, done.stdout + done.stderr
    return GONE
