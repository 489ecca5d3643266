"""Backends and devices by name: what a description means, what the environment sets, and what is said where nothing answers."""

from __future__ import annotations

import functools
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gemmport import backends
from gemmport.core.device import DeviceInfo
from gemmport.core.errors import (
    AmbiguousDeviceError,
    ArrayError,
    BackendUnavailableError,
    DeviceNotFoundError,
    ForkError,
    UnknownNameError,
)
from gemmport.execution import selection
from gemmport.execution.selection import (
    BackendStatus,
    backend_of,
    get_backend,
    match_devices,
    open_backend,
    parse_backends,
    select_device,
    share_backend,
)
from made_up_devices import DEVICES

V100 = replace(DEVICES["NVIDIA sm_70"], index=(0, 1))
H100 = DEVICES["NVIDIA sm_90 under CUDA"]
H100_CL = replace(DEVICES["NVIDIA sm_90 under OpenCL"], index=(0, 0))
ARC = DEVICES["Intel GPU"]
OLD_POCL = DeviceInfo(
    "opencl", "cpu-skylake-Intel(R) Xeon(R) Gold 6230", "pocl", index=(2, 0), platform_name="Portable Computing Language",
    platform_version="1.8", vendor="intel", type="cpu", clock_mhz=2100, compute_units=40, vector_width=16,
)  # fmt: skip
NEW_POCL = replace(OLD_POCL, index=(3, 0), platform_version="6.0")
XEON = replace(
    OLD_POCL, name="Intel(R) Xeon(R) Gold 6230", platform="intel", platform_name="Intel(R) OpenCL", index=(4, 0),
    platform_version="2024.2",
)  # fmt: skip
OPENCL = (OLD_POCL, ARC, XEON, NEW_POCL, H100_CL)
CUDA = (V100, H100)


@pytest.fixture(autouse=True)
def reached(monkeypatch: pytest.MonkeyPatch) -> dict[str, BackendStatus]:
    """What the backends reach in these tests; a test may change it. Nothing of this machine is looked at."""
    found = {"cuda": BackendStatus("cuda", CUDA), "opencl": BackendStatus("opencl", OPENCL)}

    def status(name: str) -> BackendStatus:
        if name not in found:
            raise UnknownNameError(f"no backend {name!r}: there are {', '.join(found)}")
        return found[name]

    monkeypatch.setattr(selection, "backend_status", status)
    monkeypatch.setattr(backends, "names", lambda: tuple(found))
    monkeypatch.delenv("GEMMPORT_BACKEND", raising=False)
    monkeypatch.delenv("GEMMPORT_DEVICE", raising=False)
    selection._tell_choice.cache_clear()
    return found


# Descriptions


@pytest.mark.parametrize(
    ("description", "device"),
    [
        ("pocl 6", NEW_POCL),
        ("pocl 1.8", OLD_POCL),
        ("6.0 POCL", NEW_POCL),
        ("2024.2", XEON),
        ("intel:arc", ARC),
        ("intel graphics", ARC),
        ("Intel:Xeon", XEON),
        ("intel 2024", XEON),
        ("1", ARC),
        ("1:0", ARC),
        ("4:0", XEON),
        (" 1 : 0 ", ARC),
        (":arc", ARC),
        ("arc", ARC),
        ("a770", ARC),
        ("nvidia", H100_CL),
        ("nvidia:h100", H100_CL),
        ("nvidia:0", H100_CL),
        ("NVIDIA CUDA", H100_CL),
        ("h100 pcie", H100_CL),
        ("nvidia-h100", H100_CL),
        ("2:sky xe", OLD_POCL),
        ("2:skylake-intel", OLD_POCL),
        ("GPU", H100_CL),
        (" cpu ", XEON),
    ],
)
def test_a_description_means_one_device(description: str, device: DeviceInfo) -> None:
    assert select_device(description, "opencl") == device


@pytest.mark.parametrize("device", OPENCL, ids=lambda device: device.label)
def test_the_selector_of_a_device_means_that_device(device: DeviceInfo) -> None:
    assert match_devices(device.selector, OPENCL) == [device]


def test_a_word_of_a_platform_goes_before_the_same_word_in_a_devices_name() -> None:
    """PoCL's device name says Intel too."""
    assert match_devices("intel", OPENCL) == [ARC, XEON]


def test_a_letter_within_a_word_means_nothing() -> None:
    """A newcomer's "x" opened PoCL on a CPU with avx512."""
    pocl = replace(OLD_POCL, name="pthread-skylake-avx512-AMD EPYC")
    assert match_devices("x", [pocl]) == []
    for text in ("epyc", "amd ep", "avx", "avx512-amd", "PTHREAD"):
        assert match_devices(text, [pocl]) == [pocl]


def test_a_type_means_the_best_device_of_it(
    reached: dict[str, BackendStatus], caplog: pytest.LogCaptureFixture
) -> None:
    """Though names say it too: those of PoCL begin with "cpu". With several answers nothing is ambiguous."""
    assert match_devices("cpu", selection.devices()) == [XEON, NEW_POCL, OLD_POCL]
    with caplog.at_level("INFO", "gemmport"):
        assert (select_device("cpu"), select_device("gpu"), select_device("gpu", "opencl")) == (XEON, H100, H100_CL)
    assert any(message.startswith(f"{XEON.label} is taken before 3:0 = ") for message in caplog.messages)
    assert selection.is_meant(OLD_POCL, None, "cpu")
    assert not selection.is_meant(OLD_POCL, None, "gpu")
    reached["opencl"] = BackendStatus("opencl", (replace(XEON, type="accelerator"),))
    assert select_device("accelerator").index == XEON.index


@pytest.mark.parametrize("device", ["all", "All"])
def test_all_devices_are_not_one(device: str) -> None:
    with pytest.raises(
        DeviceNotFoundError, match=rf"^device must be one; got '{device}': write devices='all' .*; there are "
    ):
        select_device(device)


def test_an_ambiguous_description_lists_the_candidates_with_their_selectors() -> None:
    with pytest.raises(AmbiguousDeviceError) as caught:
        select_device("pocl", "opencl")
    assert str(caught.value) == (
        f"device 'pocl' is ambiguous; it may be 3:0 = {NEW_POCL.label}; 2:0 = {OLD_POCL.label}"
    )


@pytest.mark.parametrize(
    "description",
    [
        "rusticl", "9", "9:0", "1:9", "pocl 7", "intel:h100", "nvidia:arc", "accelerator", "nvidia:gpu",
        "ocl 6", "eon", "pcie 00", "intel:ake", "1.80", "h100-nvidia", "-",  # no beginnings of words
    ],
)  # fmt: skip
def test_where_no_device_answers_those_that_are_there_are_listed(description: str) -> None:
    with pytest.raises(DeviceNotFoundError, match=f"no device '{description}'; there are ") as caught:
        select_device(description, "opencl")
    assert all(f"{device.selector} = {device.label}" in str(caught.value) for device in OPENCL)


def test_what_is_missing_is_told_where_no_device_answers(reached: dict[str, BackendStatus]) -> None:
    reached["opencl"] = BackendStatus("opencl", (XEON,), ("PoCL is left out; mend it",))
    for backend in ("opencl", None):
        with pytest.raises(DeviceNotFoundError, match=r"no device 'pocl'; there are .*; PoCL is left out; mend it$"):
            select_device("pocl", backend)


# Backends


def test_the_same_chip_under_two_backends_is_no_ambiguity() -> None:
    assert select_device("h100") == H100
    assert select_device("h100", "opencl") == H100_CL


def test_two_chips_under_one_backend_are_one() -> None:
    with pytest.raises(AmbiguousDeviceError, match=r"0:0 = NVIDIA H100 .*; 0:1 = Tesla V100"):
        select_device("nvidia")


def test_without_a_description_the_best_device_is_meant(reached: dict[str, BackendStatus]) -> None:
    """A GPU before a CPU, the faster before the slower, CUDA before the same chip under OpenCL."""
    assert selection.devices()[:3] == [H100, H100_CL, V100]
    assert select_device() == H100
    reached["cuda"] = BackendStatus("cuda", error="no driver")
    assert select_device() == H100_CL
    reached["opencl"] = BackendStatus("opencl", (OLD_POCL, XEON))
    assert select_device() == XEON


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        ({"platform_version": "3.1"}, {"platform_version": "3.0-rc2"}),
        ({"platform_version": "10.0"}, {"platform_version": "9.9"}),
        ({"platform_version": "6.0.1"}, {"platform_version": "6.0"}),
        ({"platform_version": "3.0", "vector_width": 4}, {"platform_version": "1.8", "vector_width": 16}),
        ({"platform_version": "1.8"}, {"platform_version": ""}),
        ({"platform": "intel", "platform_version": "2023.1"}, {"platform_version": "6.0"}),
        ({"platform": "pocl", "platform_version": "1.8"}, {"platform": "rusticl", "platform_version": "25.1"}),
        ({"platform": "rusticl"}, {"platform": "oclgrind"}),
    ],
)
def test_of_runtimes_for_one_cpu_the_fastest_is_taken_and_told(
    reached: dict[str, BackendStatus], caplog: pytest.LogCaptureFixture, better: dict[str, str], worse: dict[str, str]
) -> None:
    first, second = replace(OLD_POCL, **better), replace(OLD_POCL, index=(3, 0), **worse)  # type: ignore[arg-type]
    reached["cuda"] = BackendStatus("cuda", error="no driver")
    for order in ((first, second), (second, first)):
        reached["opencl"] = BackendStatus("opencl", order)
        selection._tell_choice.cache_clear()
        caplog.clear()
        with caplog.at_level("INFO", "gemmport"):
            for _ in range(2):  # said once
                assert select_device() == first
        assert caplog.messages == [
            f"{first.label} is taken before {second.selector} = {second.label}; device= or GEMMPORT_DEVICE takes another"
        ]


def test_a_platform_without_a_name_is_ranked_too(reached: dict[str, BackendStatus]) -> None:
    reached["opencl"] = BackendStatus("opencl", (DeviceInfo("opencl", "any", "any"),))
    assert len(selection.devices("opencl")) == 1


def test_a_number_counts_the_devices_of_a_backend_from_the_best() -> None:
    """Not those of a platform, as the text "1" does: `devices(backend)[number]`."""
    for backend in ("cuda", "opencl", None):
        listed = selection.devices(backend or "auto")
        assert [select_device(number, backend) for number in range(len(listed))] == listed
    assert select_device(np.int64(1), "cuda") == V100  # type: ignore[arg-type]
    assert (select_device("4", "opencl"), select_device(4, "opencl")) == (XEON, OLD_POCL)


@pytest.mark.parametrize("number", [-1, 2, 2**70])
def test_a_number_that_no_device_has_is_told_with_those_that_there_are(number: int) -> None:
    with pytest.raises(DeviceNotFoundError) as caught:
        select_device(number, "cuda")
    assert str(caught.value) == f"no device number {number}; there are 0 = {H100.label}; 1 = {V100.label}"


def test_the_environment_does_not_go_before_the_number_0(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEMMPORT_DEVICE", "v100")
    assert select_device(0, "cuda") == H100
    assert select_device("", "cuda") == V100


@pytest.mark.parametrize("written", ["OpenCL", "OPENCL", "opencl"])
def test_a_backend_is_known_in_either_case(written: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert selection.devices(written) == selection.devices("opencl")
    assert select_device("h100", written) == H100_CL
    assert select_device(H100_CL, written) == H100_CL
    assert parse_backends(written) == ("opencl",)
    monkeypatch.setenv("GEMMPORT_BACKEND", written)
    assert select_device() == H100_CL


def test_a_backend_is_taken_as_it_is_written_before_one_in_another_case(reached: dict[str, BackendStatus]) -> None:
    reached["OpenCL"] = BackendStatus("OpenCL", (replace(XEON, backend="OpenCL"),))
    assert {device.backend for device in selection.devices("OpenCL")} == {"OpenCL"}
    assert {device.backend for device in selection.devices("opencl")} == {"opencl"}


@pytest.mark.parametrize(
    ("backend_name", "device", "meant"),
    [
        (None, None, True), ("cuda", None, True), ("CUDA", "h100", True), ("auto", 0, True), (None, H100, True),
        (None, "nvidia", True),  # among others
        ("opencl", None, False), (None, "v100", False), ("cuda", 1, False), (None, H100_CL, False), (None, "nothing", False),
    ],
)  # fmt: skip
def test_a_device_may_be_meant(backend_name: str | None, device: Any, meant: bool) -> None:
    assert selection.is_meant(H100, backend_name, device) is meant


def test_a_number_means_a_device_of_the_backend() -> None:
    assert selection.is_meant(V100, "cuda", 1)
    assert not selection.is_meant(V100, None, 1)


@pytest.mark.parametrize(
    "backend_name", [np.zeros(2), np.array(["cuda"]), np.array([]), [], ["cuda"], {}, 0, False, b"cuda"], ids=repr
)
@pytest.mark.parametrize(
    "asked",
    [
        selection.backend_name, selection.devices, selection.asked_backend, lambda given: selection.is_meant(V100, given, None),
        lambda given: selection.is_meant(V100, given, "nvidia"), lambda given: select_device(None, given),
        lambda given: select_device(V100, given), get_backend, open_backend,
    ],
    ids=["name", "devices", "asked", "meant", "device meant", "select", "selected", "get", "open"],
)  # fmt: skip
def test_what_is_no_text_is_no_backend(asked: Any, backend_name: Any) -> None:
    kind = type(backend_name).__name__
    told = rf"^backend must be the name of one, or 'auto'; got a {kind}: there are {', '.join(backends.names())}$"
    with pytest.raises(UnknownNameError, match=told):
        asked(backend_name)


@pytest.mark.parametrize("backend_name", [None, ""])
def test_a_backend_without_a_name_is_whichever(backend_name: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    assert selection.asked_backend(backend_name) == "auto"
    assert select_device(None, backend_name) == H100
    assert selection.is_meant(ARC, backend_name, None)
    assert selection.is_meant(ARC, backend_name, "arc")
    monkeypatch.setenv("GEMMPORT_BACKEND", "OpenCL")
    assert selection.asked_backend(backend_name) == "opencl"
    assert selection.asked_backend("CUDA") == "cuda"
    assert select_device(None, backend_name) == H100_CL


def test_of_an_unknown_backend_no_device_is_meant_and_it_is_named() -> None:
    with pytest.raises(UnknownNameError, match="no backend 'metal'"):
        selection.is_meant(H100, "metal", None)


@pytest.mark.parametrize("backend_name", ["metal", ""])
def test_an_unknown_backend_is_named(backend_name: str) -> None:
    with pytest.raises(UnknownNameError, match=f"no backend '{backend_name}'"):
        selection.devices(backend_name)


def test_a_backend_that_is_asked_for_and_not_usable_says_why(reached: dict[str, BackendStatus]) -> None:
    reached["cuda"] = BackendStatus("cuda", error="backend cuda is not installed")
    with pytest.raises(BackendUnavailableError, match=r"^backend cuda is not installed$"):
        select_device(backend="cuda")


def test_a_backend_without_devices_tells_its_notes(reached: dict[str, BackendStatus]) -> None:
    reached["opencl"] = BackendStatus("opencl", notes=("install a runtime",))
    with pytest.raises(DeviceNotFoundError, match=r"^no device: install a runtime$"):
        select_device(backend="opencl")


def test_without_any_device_every_backend_tells_why(reached: dict[str, BackendStatus]) -> None:
    reached["cuda"] = BackendStatus("cuda", error="no driver")
    reached["opencl"] = BackendStatus("opencl", notes=("no runtime",))
    with pytest.raises(BackendUnavailableError, match=r"^no device: no driver; no runtime$"):
        select_device()


@pytest.mark.parametrize(("text", "names"), [("all", backends.names()), ("opencl", ("opencl",)), ("auto", ("cuda",))])
def test_backends_by_a_word(text: str, names: tuple[str, ...]) -> None:
    assert parse_backends(text) == parse_backends(text.upper()) == names


def test_an_unknown_word_for_backends_is_named_with_the_known_ones() -> None:
    with pytest.raises(UnknownNameError, match=f"no backend 'gpu': there are {', '.join(backends.names())}, auto, all"):
        parse_backends("gpu")


# The environment


def test_the_environment_sets_the_default_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEMMPORT_BACKEND", "opencl")
    assert select_device() == H100_CL
    assert select_device(backend="cuda") == H100
    assert select_device(backend="auto") == H100


def test_the_environment_sets_the_default_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEMMPORT_DEVICE", "intel:arc")
    assert select_device() == ARC
    assert select_device("nvidia:v100") == V100


def test_empty_variables_of_the_environment_set_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEMMPORT_BACKEND", "")
    monkeypatch.setenv("GEMMPORT_DEVICE", "")
    assert select_device() == H100


@pytest.mark.parametrize("asked", [select_device, selection.asked_backend, get_backend], ids=["device", "name", "open"])
def test_an_unknown_backend_of_the_environment_is_named(asked: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEMMPORT_BACKEND", "metal")
    with pytest.raises(UnknownNameError) as caught:
        asked(None)
    assert str(caught.value) == (
        "GEMMPORT_BACKEND='metal': no backend 'metal': there are cuda, opencl, auto; unset GEMMPORT_BACKEND, or set it to what "
        "is here"
    )


@pytest.mark.parametrize(
    ("device", "error", "told"),
    [
        ("foo", DeviceNotFoundError, "no device 'foo'; there are 0:0 = "),
        ("all", DeviceNotFoundError, "device must be one; got 'all': write devices='all'"),
        ("nvidia", AmbiguousDeviceError, "device 'nvidia' is ambiguous; it may be 0:0 = "),
    ],
)
def test_a_bad_device_of_the_environment_is_told_to_be_of_it(
    device: str, error: type[Exception], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GEMMPORT_DEVICE", device)
    with pytest.raises(error) as caught:
        select_device(backend="cuda")
    assert str(caught.value).startswith(f"GEMMPORT_DEVICE={device!r}: {told}")
    assert str(caught.value).endswith("; unset GEMMPORT_DEVICE, or set it to what is here")
    with pytest.raises(error) as caught:  # as an argument, the environment has nothing to do with it
        select_device(device, "cuda")
    assert str(caught.value).startswith(told)
    assert "GEMMPORT" not in str(caught.value)


def test_both_variables_are_named_where_both_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEMMPORT_BACKEND", "cuda")
    monkeypatch.setenv("GEMMPORT_DEVICE", "arc")
    with pytest.raises(DeviceNotFoundError) as caught:
        select_device()
    assert str(caught.value).startswith("GEMMPORT_BACKEND='cuda' and GEMMPORT_DEVICE='arc': no device 'arc'; ")
    assert str(caught.value).endswith("; unset GEMMPORT_BACKEND GEMMPORT_DEVICE, or set them to what is here")
    with pytest.raises(
        DeviceNotFoundError, match=r"^no device 'arc'; .*; GEMMPORT_BACKEND='cuda' leaves out all other"
    ):
        select_device("arc")


def test_a_backend_of_the_environment_that_is_not_usable_is_told_to_be_of_it(
    reached: dict[str, BackendStatus], monkeypatch: pytest.MonkeyPatch
) -> None:
    reached["cuda"] = BackendStatus("cuda", error="no driver")
    monkeypatch.setenv("GEMMPORT_BACKEND", "cuda")
    with pytest.raises(
        BackendUnavailableError, match=r"^GEMMPORT_BACKEND='cuda': no driver; unset GEMMPORT_BACKEND, or"
    ):
        select_device()
    with pytest.raises(BackendUnavailableError, match=r"^no driver$"):
        select_device(None, "cuda")


# Packages

REAL_STATUS = selection.backend_status.__wrapped__
REAL_NAMES = backends.names


@pytest.fixture
def real_backends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Backends as they are found in their folder, with none of them imported or discovered yet."""
    monkeypatch.setattr(backends, "names", REAL_NAMES)
    monkeypatch.setattr(selection, "backend_status", functools.cache(REAL_STATUS))
    monkeypatch.setattr(selection, "_open", {})
    for name in REAL_NAMES():
        monkeypatch.delitem(sys.modules, f"gemmport.backends.{name}", raising=False)


@pytest.mark.parametrize(
    ("backend_name", "package", "advice"),
    [("cuda", "pycuda", "pip install 'gemmport[cuda]'"), ("opencl", "pyopencl", "pip install pyopencl")],
)
def test_a_backend_whose_package_is_missing_says_how_to_get_it(
    backend_name: str, package: str, advice: str, real_backends: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)  # as if it were not installed
    text = f"backend {backend_name} is not installed: it needs the Python package {package}; {advice}"
    with pytest.raises(BackendUnavailableError) as caught:
        backends.load(backend_name)
    assert str(caught.value) == text
    assert selection.backend_status(backend_name) == BackendStatus(backend_name, error=text)


def test_a_backend_that_does_not_exist_is_named_with_those_that_do(real_backends: None) -> None:
    with pytest.raises(UnknownNameError, match=f"no backend 'base': there are {', '.join(backends.names())}"):
        backends.load("base")


THIRD = """
from gemmport.backends.base import Backend
from gemmport.backends.objects import Discovery
from gemmport.core.device import DeviceInfo

class Third(Backend):
    name = "third"

    @classmethod
    def discover(cls):
        return Discovery((DeviceInfo("third", "Third GPU", "third"),), ("a note",))

    def synchronize(self):
        pass

    def _close(self):
        pass

Third.__abstractmethods__ = frozenset()  # it is opened here, not used
"""


@pytest.fixture
def folder(tmp_path: Path, real_backends: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """One more folder of backends."""
    monkeypatch.setattr(backends, "__path__", [*backends.__path__, str(tmp_path)])
    yield tmp_path
    sys.modules.pop("gemmport.backends.third", None)


def test_a_third_backend_needs_only_its_file(folder: Path) -> None:
    (folder / "third.py").write_text(THIRD)
    assert "third" in backends.names()
    assert selection.backend_status("third").notes == ("a note",)
    device = select_device("third", "third")
    assert device.name == "Third GPU"
    opened = selection.get_backend("third")
    assert (type(opened).__name__, opened.device) == ("Third", device)
    assert selection.get_backend(device=device) is opened


def test_a_backend_that_was_closed_is_opened_anew(folder: Path) -> None:
    (folder / "third.py").write_text(THIRD)
    first = selection.get_backend("third", "third")
    with first, selection.get_backend("third", "third") as same:
        assert same is first
    assert selection.get_backend("third", "third") is first
    first.close()
    assert selection.get_backend("third", "third") is not first


def test_a_backend_whose_discovery_fails_leaves_the_others(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    (folder / "third.py").write_text(THIRD.replace("return Discovery", "raise OSError('no driver') or Discovery"))
    assert selection.backend_status("third").error == "backend third does not discover devices: OSError('no driver')"
    assert "its discovery failed" in caplog.text
    assert {device.backend for device in selection.devices()}.isdisjoint({"third"})
    with pytest.raises(BackendUnavailableError, match="does not discover devices: OSError"):
        selection.get_backend("third", "third")


def test_an_error_of_gemmport_comes_out_of_a_discovery_as_it_is(folder: Path) -> None:
    """Of a runtime that does not survive a fork, say: its words are what to do, and no backend is unusable for good."""
    fails = "from gemmport.core.errors import ForkError\n" + THIRD.replace(
        "return Discovery", "raise ForkError('use spawn') or Discovery"
    )
    (folder / "third.py").write_text(fails)
    for asked in (selection.backend_status, selection.devices, selection.get_backend):
        with pytest.raises(ForkError, match=r"^use spawn$"):
            asked("third")


def test_a_third_backend_whose_package_is_missing_says_which(folder: Path) -> None:
    (folder / "third.py").write_text("import package_of_third.runtime\n" + THIRD)
    with pytest.raises(
        BackendUnavailableError, match=r"needs the Python package package_of_third; pip install package_of"
    ):
        backends.load("third")


def test_a_fault_inside_gemmport_is_no_missing_package(folder: Path) -> None:
    (folder / "third.py").write_text("import gemmport.no_such_module\n" + THIRD)
    with pytest.raises(ModuleNotFoundError, match=r"gemmport\.no_such_module"):
        backends.load("third")


@pytest.mark.parametrize("name", ["array", "base", "_nvrtc", "__init__"])
def test_what_backends_share_is_no_backend(name: str, real_backends: None) -> None:
    assert name not in backends.names()


@pytest.mark.parametrize("statement", ["import gemmport", "import gemmport.cli", "from gemmport import baselines"])
def test_importing_gemmport_imports_no_runtime(statement: str) -> None:
    """Only the first product does, and only the one it needs."""
    code = (
        f"{statement}; import sys; sys.exit(', '.join({{'pycuda', 'pyopencl', 'cuda', 'nvmath'}} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.strip() == ""


# Open backends


class Opened:
    """A backend that was opened over a device, and a context of another library where there is one."""

    name = "cuda"

    made = 0

    def __init__(self, device: DeviceInfo, context: object = None) -> None:
        self.device, self.context, self.closed, self.shared = device, context or "its own", False, False
        Opened.made += 1

    @classmethod
    def locate(cls, array: object) -> object:
        return array if isinstance(array, SimpleNamespace) else None


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> dict[object, object]:
    """The backends that are open: none at first."""
    monkeypatch.setattr(Opened, "made", 0)
    loaded = {"cuda": Opened, "opencl": Opened}
    monkeypatch.setattr(backends, "load", lambda name: loaded[name])
    monkeypatch.setattr(selection, "_open", found := {})
    return found


def place(device: DeviceInfo, context: object = None) -> SimpleNamespace:
    """Where an array is; it is the array, too."""
    return SimpleNamespace(device=device, context=context)


def test_a_backend_is_opened_once_for_each_device(
    opened: dict[object, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    monkeypatch.setattr("gemmport.backends._fork.check", lambda *words, **options: asked.append((words, options)))
    first = get_backend(device=V100)
    assert (first.device, first.context) == (V100, "its own")
    assert get_backend(device=V100) is first
    assert select_device(None, "cuda") == H100
    assert get_backend("cuda", "v100") is first
    assert get_backend(device="h100", backend="opencl").device == H100_CL
    assert asked == [
        ((device.backend, device.label), {"survives": True}) for device in (V100, V100, V100, H100_CL)
    ]  # fmt: skip
    assert len(opened) == Opened.made == 2


@pytest.mark.parametrize(
    ("backend_name", "device", "told"),
    [
        (None, 3.5, "device must be text such as '0:1' or 'nvidia', a number or a DeviceInfo; got 3.5"),
        (None, True, "device must be text such as '0:1' or 'nvidia', a number or a DeviceInfo; got True"),
        ("opencl", V100, f"backend 'opencl' has no device {V100.label}: that is one of cuda"),
    ],
)
def test_what_is_no_device_of_the_backend_is_named(
    backend_name: str | None, device: object, told: str, opened: dict[object, object]
) -> None:
    with pytest.raises(DeviceNotFoundError) as caught:
        get_backend(backend_name, device)  # type: ignore[arg-type]
    assert str(caught.value) == told


def test_a_backend_is_opened_for_the_caller_alone(opened: dict[object, object]) -> None:
    shared = get_backend("cuda", "v100")
    for own in (open_backend("CUDA", "v100"), open_backend(device=V100)):
        assert (own.device, own.shared) == (V100, False)
        assert own is not shared
        assert get_backend(device=V100) is shared
    assert shared.shared
    assert open_backend("cuda", 0).device == H100
    assert open_backend("opencl").device == H100_CL
    assert [*opened.values()] == [shared]


def test_which_device_is_opened_is_told_once(opened: dict[object, object], caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", "gemmport"):
        for _ in range(2):
            get_backend(device=V100)
    assert caplog.messages == [f"{V100.label} is opened, for all of this process"]


def test_a_device_that_is_opened_while_it_is_opened_is_one(
    opened: dict[object, object], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """By a handler of signals, or of the log, that computes a product."""
    within: list[object] = []

    class Interrupted(Opened):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            if not within:
                within.append(None)
                within.append(get_backend(device=V100))

    monkeypatch.setattr(backends, "load", lambda name: Interrupted)
    thread = threading.Thread(target=lambda: within.append(get_backend(device=V100)), daemon=True)
    with caplog.at_level("INFO", "gemmport"):
        thread.start()
        thread.join(60)
    assert not thread.is_alive()
    _, inner, outer = within
    assert inner is outer is get_backend(device=V100)
    assert outer.shared  # type: ignore[attr-defined]
    assert len(caplog.messages) == 1
    inner.closed = True  # type: ignore[attr-defined]
    assert get_backend(device=V100) is not inner


def test_a_shared_backend_is_the_one_of_its_device(opened: dict[object, object]) -> None:
    mine: Any = Opened(V100)
    share_backend(mine)
    assert mine.shared
    assert get_backend(device=V100) is mine
    mine.closed = True
    assert get_backend(device=V100) is not mine


def test_an_array_is_reached_by_the_backend_of_its_device_and_context(opened: dict[object, object]) -> None:
    assert backend_of("cuda", place(V100)).device == V100
    mine: Any = Opened(V100, "mine")
    share_backend(mine)
    assert backend_of("cuda", place(V100)) is mine
    assert backend_of("cuda", place(V100, "mine")) is mine
    other = backend_of("cuda", place(V100, "another"))
    assert other is not mine
    assert (other.device, other.context) == (V100, "another")
    assert backend_of("cuda", place(V100, "another")) is other
    mine.closed = True
    anew = backend_of("cuda", place(V100, "mine"))
    assert anew is not mine
    assert (anew.device, anew.context) == (V100, "mine")
    assert backend_of("cuda", place(H100, "mine")).device == H100


def test_an_array_that_no_backend_reaches_is_named(opened: dict[object, object]) -> None:
    with pytest.raises(ArrayError, match=r"^this list is nowhere that backend cuda reaches: copy it to the host$"):
        backend_of("cuda", [])


def test_of_contexts_of_other_libraries_the_oldest_is_forgotten(opened: dict[object, object]) -> None:
    own = get_backend(device=V100)
    for number in range(8):
        backend_of("cuda", place(V100, f"context {number}"))
    assert len(opened) == 9
    backend_of("cuda", place(V100, "context 8"))
    assert [key[2] for key in opened] == [None, *(f"context {number}" for number in range(1, 9))]  # type: ignore[index]
    assert get_backend(device=V100) is own


# Ranks


def test_one_chip_is_cudas_before_opencls(reached: dict[str, BackendStatus]) -> None:
    reached["cuda"] = BackendStatus("cuda", (replace(H100_CL, backend="cuda"),))
    reached["opencl"] = BackendStatus("opencl", (H100_CL,))
    reached["first"] = BackendStatus("first", (replace(H100_CL, backend="first"),))
    for names in (("cuda", "opencl", "first"), ("opencl", "first", "cuda")):
        for name in names:
            reached[name] = reached.pop(name)
        assert select_device().backend == "cuda"


def test_accelerators_are_between_gpus_and_cpus(reached: dict[str, BackendStatus]) -> None:
    accelerator = replace(XEON, type="accelerator", clock_mhz=10)
    reached["opencl"] = BackendStatus("opencl", (XEON, accelerator, ARC))
    assert selection.devices("opencl") == [ARC, accelerator, XEON]


def test_the_runtime_counts_for_cpus_alone(reached: dict[str, BackendStatus]) -> None:
    """A GPU of Intel is not behind one of another platform for its runtime, or before it; an unknown runtime is behind."""
    platforms = ("intel", "unheard of", "pocl")
    gpus = [replace(H100_CL, platform=platform, clock_mhz=1000 + n) for n, platform in enumerate(platforms)]
    reached["opencl"] = BackendStatus("opencl", tuple(gpus))
    assert selection.devices("opencl") == gpus[::-1]
    other = replace(XEON, platform="unheard of")
    reached["opencl"] = BackendStatus("opencl", (NEW_POCL, other))
    assert selection.devices("opencl") == [NEW_POCL, other]


def test_a_version_that_is_no_number_is_older_than_any() -> None:
    assert sorted(["none", "0.0", "10.2", "9"], key=selection._age) == ["10.2", "9", "0.0", "none"]


def test_what_is_missing_is_told_of_the_backend_that_was_asked_for(reached: dict[str, BackendStatus]) -> None:
    reached["cuda"] = BackendStatus("cuda", CUDA, notes=("of cuda",))
    reached["opencl"] = BackendStatus("opencl", OPENCL, notes=("of opencl",))
    with pytest.raises(DeviceNotFoundError) as caught:
        select_device("voodoo", "opencl")
    assert str(caught.value).endswith("; of opencl")
    assert "of cuda" not in str(caught.value)
    reached["opencl"] = BackendStatus("opencl", notes=("of opencl",))
    with pytest.raises(DeviceNotFoundError) as caught:
        select_device(None, "opencl")
    assert str(caught.value) == "no device: of opencl"


def test_of_one_backend_all_devices_that_answer_are_told(reached: dict[str, BackendStatus]) -> None:
    with pytest.raises(AmbiguousDeviceError):
        select_device("nvidia", "cuda")
