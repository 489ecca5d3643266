"""What is read of a GPU beside a measurement, from a stand-in for nvidia-smi and made-up devices."""

from __future__ import annotations

import ctypes
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import gemmport as gp
from gemmport.backends import _opencldiscovery
from gemmport.bench import environment
from gemmport.bench.environment import gpu_state

# Of a machine of two GPUs; it knows each by its number, and by its place as the driver and as nvidia-smi write it.
NVIDIA_SMI = f"""#!{sys.executable}
import sys
asked = dict(word[2:].split("=", 1) for word in sys.argv[1:])
gpus = {{"00000000:0f:00.0": ("345 MHz", "75.00 W"), "00000000:a1:00.0": ("1980 MHz", "690.12 W")}}
found = {{**dict(zip("01", gpus)), **{{place[4:]: place for place in gpus}}}}.get(asked["id"].lower())
if found is None:
    print("No devices were found")
    sys.exit(EXIT)
told = dict(zip(("clocks.sm", "power.draw"), gpus[found]))
names = asked["query-gpu"].split(",")
if OLD and "power.draw.instant" in names:
    print('Field "power.draw.instant" is not a valid field to query.')
    sys.exit(2)
print(", ".join(told.get(name, name) for name in names))
"""

ASKED = ["driver_version", "clocks.sm", "clocks.mem", "power.draw", "temperature.gpu"]

FIRST, SECOND, ABSENT = "0000:0F:00.0", "0000:A1:00.0", "0000:B2:00.0"


def of_a_machine_of_two(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int = 6, *,
    old: bool = False, keep_busy: Callable[[], None] | None = None,
) -> dict[str, str]:  # fmt: skip
    """What is recorded of a device at a place, which has number 0 in this process."""
    tool = tmp_path / "nvidia-smi"
    tool.write_text(NVIDIA_SMI.replace("EXIT", str(status)).replace("OLD", str(old)))
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    device = gp.DeviceInfo("cuda", "NVIDIA H100", "nvidia", vendor="nvidia")
    return gpu_state(SimpleNamespace(device=device, bus_id=lambda: place), keep_busy)  # type: ignore[arg-type]


@pytest.mark.parametrize(("place", "clock", "power"), [(FIRST, "345 MHz", "75.00 W"), (SECOND, "1980 MHz", "690.12 W")])
def test_clocks_are_those_of_the_gpu_that_computes(
    place: str, clock: str, power: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = of_a_machine_of_two(place, tmp_path, monkeypatch)
    assert [*told] == [*ASKED, "power.draw.instant"]
    assert (told["clocks.sm"], told["power.draw"]) == (clock, power)


def test_a_driver_that_does_not_tell_the_power_of_a_moment_tells_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert [*of_a_machine_of_two(FIRST, tmp_path, monkeypatch, old=True)] == ASKED


def test_the_gpu_computes_until_its_clocks_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stand-in takes a hundredth of a second or more to start."""
    moments: list[float] = []

    def keep_busy() -> None:
        moments.append(time.perf_counter())
        time.sleep(1e-3)

    assert of_a_machine_of_two(FIRST, tmp_path, monkeypatch, keep_busy=keep_busy)
    assert moments[-1] - moments[0] > 5e-3


def test_what_does_not_come_back_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As nvidia-smi of a driver that hangs."""
    tool = tmp_path / "nvidia-smi"
    tool.write_text(f"#!{sys.executable}\nimport time\ntime.sleep(60)\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(environment, "_MOST_SECONDS", 0.3)
    backend: Any = SimpleNamespace(bus_id=lambda: FIRST)
    for keep_busy in (None, lambda: time.sleep(0.01)):
        before = time.monotonic()
        assert gpu_state(backend, keep_busy) == {}
        assert time.monotonic() - before < 10


@pytest.mark.parametrize("status", [0, 6])
@pytest.mark.parametrize("place", [ABSENT, ""], ids=["absent", "not told"])
def test_nothing_is_recorded_where_the_gpu_is_not_known(
    place: str, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert of_a_machine_of_two(place, tmp_path, monkeypatch, status) == {}


@pytest.mark.parametrize(
    ("told", "place"),
    [((0, 0x0F, 0, 0), FIRST), ((0x10001, 0xA1, 0x1F, 5), "10001:a1:1f.5"), ((0, 0, 9, 0), "0000:00:09.0"), ((), "")],
    ids=["a bus of its own", "all parts", "one bus for all", "not told"],
)
def test_opencl_tells_where_a_gpu_is(told: tuple[int, ...], place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The place has a domain, a bus, a device and a function. It is empty where the device does not answer."""
    asked = []

    def numbers(device: object, what: int, *_: object) -> tuple[int, ...]:
        asked.append(what)
        return told

    monkeypatch.setattr(_opencldiscovery, "_numbers", numbers)
    assert _opencldiscovery.bus_id(object()) == place.lower()  # type: ignore[arg-type]
    assert asked == [0x410F]


def test_numbers_of_a_device_are_as_many_as_it_tells() -> None:
    """Of a real one: CL_DEVICE_MAX_WORK_ITEM_SIZES, and what no device knows."""
    device = _opencldiscovery.platforms()[0].get_devices()[0]
    assert [*_opencldiscovery._numbers(device, 0x1005, ctypes.c_size_t, 16)] == device.max_work_item_sizes
    assert _opencldiscovery._numbers(device, 0xFFFF, ctypes.c_uint, 4) == ()
