"""What is read of a GPU beside a measurement, from a stand-in for nvidia-smi and made-up devices."""

from __future__ import annotations

import ctypes
import subprocess
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


@pytest.fixture(autouse=True)
def nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the process has learnt of another stand-in."""
    monkeypatch.setattr(environment, "_nvidia_smi", environment._NvidiaSmi())


# Of a machine of two GPUs; it knows each by its number, and by its place as the driver and as nvidia-smi write it.
NVIDIA_SMI = f"""#!{sys.executable}
import sys
from pathlib import Path
with Path(sys.argv[0]).with_name("starts").open("a") as starts:
    starts.write("1")
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


def starts(tmp_path: Path) -> int:
    """How often the stand-in was started."""
    counted = tmp_path / "starts"
    return len(counted.read_text()) if counted.exists() else 0


def test_a_driver_that_does_not_tell_the_power_of_a_moment_tells_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From its second product on at once: of each GPU."""
    for place, wanted in ((FIRST, 2), (FIRST, 3), (SECOND, 5), (FIRST, 6), (SECOND, 7)):
        assert [*of_a_machine_of_two(place, tmp_path, monkeypatch, old=True)] == ASKED
        assert starts(tmp_path) == wanted


def test_a_driver_that_once_did_not_answer_is_asked_again_where_it_has_told_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = of_a_machine_of_two(FIRST, tmp_path, monkeypatch)
    assert told
    known, place = environment._nvidia_smi, tmp_path / "nvidia-smi"
    place.write_text(f"#!{sys.executable}\nimport sys\nsys.exit(255)\n")
    backend: Any = SimpleNamespace(bus_id=lambda: FIRST)
    assert gpu_state(backend) == {}
    assert of_a_machine_of_two(FIRST, tmp_path, monkeypatch) == told
    assert environment._nvidia_smi is known


def test_the_gpu_computes_until_its_clocks_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stand-in takes a hundredth of a second or more to start."""
    moments: list[float] = []

    def keep_busy() -> None:
        moments.append(time.perf_counter())
        time.sleep(1e-3)

    assert of_a_machine_of_two(FIRST, tmp_path, monkeypatch, keep_busy=keep_busy)
    assert moments[-1] - moments[0] > 5e-3


def that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Has nvidia-smi, which is waited for so long, hang as that of a driver that does."""
    tool = tmp_path / "nvidia-smi"
    tool.write_text(
        f"#!{sys.executable}\nimport sys, time\nfrom pathlib import Path\n"
        'with Path(sys.argv[0]).with_name("starts").open("a") as starts:\n    starts.write("1")\ntime.sleep(60)\n'
    )
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(environment, "_MOST_SECONDS", seconds)


@pytest.mark.parametrize("keep_busy", [None, lambda: time.sleep(0.01)], ids=["at rest", "busy"])
def test_what_does_not_come_back_is_ended_and_asked_no_more(
    keep_busy: Callable[[], None] | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither for the other list of fields, nor for another product or GPU."""
    that_hangs(tmp_path, monkeypatch, 1.0)
    before = time.monotonic()
    for place in (FIRST, FIRST, SECOND):
        backend: Any = SimpleNamespace(bus_id=lambda place=place: place)
        assert gpu_state(backend, keep_busy) == {}
    assert time.monotonic() - before < 10
    assert starts(tmp_path) == 1


def test_what_cannot_be_ended_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a process that waits for the driver (state D) when it is killed; here, no signal is sent."""
    that_hangs(tmp_path, monkeypatch, 0.3)
    monkeypatch.setattr(environment, "_KILL_SECONDS", 0.1)
    left: list[subprocess.Popen[str]] = []

    def no_signal(process: subprocess.Popen[str]) -> None:
        left.append(process)

    with monkeypatch.context() as unkillable:
        unkillable.setattr(subprocess.Popen, "kill", no_signal)
        before = time.monotonic()
        assert gpu_state(SimpleNamespace(bus_id=lambda: FIRST)) == {}  # type: ignore[arg-type]
        assert time.monotonic() - before < 10
    (process,) = left
    assert process.poll() is None
    process.kill()
    process.wait()


@pytest.mark.parametrize("error", [OSError("of the work"), subprocess.TimeoutExpired("work", 1.0)], ids=["OS", "time"])
def test_an_error_of_the_work_is_not_taken_for_one_of_the_tool(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def keep_busy() -> None:
        raise error

    with pytest.raises(type(error), match="work"):
        of_a_machine_of_two(FIRST, tmp_path, monkeypatch, keep_busy=keep_busy)
    assert of_a_machine_of_two(FIRST, tmp_path, monkeypatch)


def test_where_the_tool_is_missing_it_is_looked_for_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    looked: list[str] = []
    which = environment.shutil.which

    def watched(name: str) -> str | None:
        looked.append(name)
        return which(name)

    monkeypatch.setattr(environment.shutil, "which", watched)
    for _ in range(2):
        assert gpu_state(SimpleNamespace(bus_id=lambda: FIRST)) == {}  # type: ignore[arg-type]
    assert looked == ["nvidia-smi"]


def test_a_tool_that_cannot_be_started_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/no/such/interpreter\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    for _ in range(2):
        assert gpu_state(SimpleNamespace(bus_id=lambda: FIRST)) == {}  # type: ignore[arg-type]
    assert not environment._nvidia_smi._answers


@pytest.mark.parametrize("status", [0, 6])
@pytest.mark.parametrize("place", [ABSENT, ""], ids=["absent", "not told"])
def test_nothing_is_recorded_where_the_gpu_is_not_known(
    place: str, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other list of fields is tried where an exit status tells that this one may be wrong; and nothing a second time."""
    for _ in range(2):
        assert of_a_machine_of_two(place, tmp_path, monkeypatch, status) == {}
        assert starts(tmp_path) == (0 if not place else 2 if status else 1)
    assert of_a_machine_of_two(SECOND, tmp_path, monkeypatch)


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
