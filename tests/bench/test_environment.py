"""What is read of a GPU beside a measurement, from a stand-in for nvidia-smi and made-up devices."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pyopencl as cl
import pytest

import gemmport as gp
from gemmport.backends import _opencldiscovery
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


@pytest.mark.parametrize("status", [0, 6])
@pytest.mark.parametrize("place", [ABSENT, ""], ids=["absent", "not told"])
def test_nothing_is_recorded_where_the_gpu_is_not_known(
    place: str, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert of_a_machine_of_two(place, tmp_path, monkeypatch, status) == {}


class _OpenCLDevice:
    """Tells some of its numbers; of others the runtime says that it does not know them, as PyOpenCL does."""

    def __init__(self, **told: int) -> None:
        self._told = told

    def __getattr__(self, name: str) -> int:
        if name not in self._told:
            raise cl.LogicError("clGetDeviceInfo failed: INVALID_VALUE")
        return self._told[name]


def test_nvidias_opencl_tells_where_a_gpu_is() -> None:
    first = _OpenCLDevice(pci_domain_id_nv=0, pci_bus_id_nv=0x0F, pci_slot_id_nv=0)
    later = _OpenCLDevice(pci_domain_id_nv=0x10001, pci_bus_id_nv=0xA1, pci_slot_id_nv=0x1F << 3 | 5)
    assert _opencldiscovery.bus_id(first) == FIRST.lower()
    assert _opencldiscovery.bus_id(later) == "10001:a1:1f.5"


def test_a_part_of_the_place_is_not_taken_for_it() -> None:
    """A bus number alone would name a GPU of the first domain."""
    assert _opencldiscovery.bus_id(_OpenCLDevice(pci_bus_id_nv=0, pci_slot_id_nv=0)) == ""
