"""Which forms are taken, how long they are made, when measuring ends, and what is left out; by made-up times."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import gemmport as gp
from gemmport.bench.timing import Timing
from gemmport.calibration import measuring
from gemmport.calibration.benchmarks import Benchmark, MultiplyAdds, MultiplyMatrices, PassRound, Start
from gemmport.calibration.measuring import calibrate
from gemmport.calibration.suite import absent, large_bytes, suite
from gemmport.core.errors import CalibrationError, CompileError, LaunchError
from gemmport.kernels.microbenchmarks import F16, F64_16, MatrixUnit
from made_up_devices import DEVICES

TRIES = 5

FORM = {"ITEMS": 4, "WIDTH": 1, "CHAINS": 2}


class Clock:
    """Seconds that pass when somebody says so."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


class MadeUp:
    """Takes the place of `Bound`: times are those of `seconds_of`, and nothing is launched."""

    seconds_of: dict[str, float]
    refuses: dict[int, Exception]
    half_takes = 0.5
    start_takes = 0.0
    released: list[Benchmark]

    def __init__(self, benchmark: Benchmark, backend: Any, rng: Any) -> None:
        if benchmark.items in self.refuses:
            raise self.refuses[benchmark.items]
        self.benchmark, self.backend = benchmark, backend

    def __enter__(self) -> MadeUp:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        self.released.append(self.benchmark)

    def check(self, name: str) -> None: ...

    def enqueue(self) -> None: ...

    def seconds(self, *, half: bool = False) -> float:
        b = self.benchmark
        return self.start_takes + b.amount / b.items * 1e-9 * (self.half_takes if half else 1)


class Nothing:
    """A backend that is not asked for anything but its device."""

    device = DEVICES["CPU under PoCL"]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Each round of measuring takes ten seconds, and preparing one benchmark one."""
    own = Clock()

    def measure(backend: Any, contestants: Any, *, repeat: int) -> dict[str, Timing]:
        own.now += 10
        return {each.name: Timing((1e-3 if each.name != "launch" else 1e-5,), 1) for each in contestants}

    made_up = type("Own", (MadeUp,), {"refuses": {}, "released": []})
    monkeypatch.setattr(measuring, "measure", measure)
    monkeypatch.setattr(measuring, "Bound", made_up)
    own.bound = made_up  # type: ignore[attr-defined]
    return own


def run(clock: Clock, **more: Any) -> measuring.Measured:
    def tell(text: str) -> None:
        clock.now += text.startswith("preparing")

    return calibrate(Nothing(), clock=clock, progress=tell, **more)  # type: ignore[arg-type]


def test_rounds_end_with_the_time(clock: Clock) -> None:
    measured = run(clock, limit=50.0)
    rounds = {len(figure.samples) for figure in measured.figures}
    assert rounds == {4}  # 10 of 50 s prepare, and the fourth round begins at 40
    assert measured.seconds == 50
    assert not measured.left_out
    assert [figure.name for figure in measured.figures] == list(suite(Nothing.device))


def test_rounds_are_no_more_than_asked_for(clock: Clock) -> None:
    assert {len(figure.samples) for figure in run(clock, limit=1e9, rounds=3).figures} == {3}


def test_what_there_is_no_time_to_prepare_is_left_out_by_name(clock: Clock) -> None:
    measured = run(clock, limit=5.0)
    names = list(suite(Nothing.device))
    assert list(measured.left_out) == names[4:]
    assert measured.left_out["read_bandwidth"] == "no time was left of 5 s"
    assert [figure.name for figure in measured.figures] == names[:4]


def test_all_memory_is_given_back(clock: Clock) -> None:
    run(clock, rounds=1)
    released = clock.bound.released  # type: ignore[attr-defined]
    assert len(released) == sum(len(forms) + 1 for forms in suite(Nothing.device).values())


def test_the_form_that_does_most_is_taken_and_made_long_enough(clock: Clock) -> None:
    forms = [MultiplyAdds(2, 64, {**FORM, "ITEMS": items}) for items in (2, 8, 4)]
    bound = measuring._fastest("multiply-adds float32", forms, Nothing(), 0)  # type: ignore[arg-type]
    assert bound.benchmark.items == 8
    assert bound.seconds() >= measuring.TARGET_SECONDS["cpu"] > bound.seconds() - 2 * forms[1].amount / 8 * 1e-9


def test_a_form_that_the_device_refuses_is_passed_over_and_the_last_reason_is_told(clock: Clock) -> None:
    clock.bound.refuses[2] = CompileError("no")  # type: ignore[attr-defined]
    forms = [MultiplyAdds(2, 64, {**FORM, "ITEMS": items}) for items in (2, 4)]
    assert measuring._fastest("x", forms, Nothing(), 0).benchmark.items == 4  # type: ignore[arg-type]
    clock.bound.refuses[4] = LaunchError("never")  # type: ignore[attr-defined]
    with pytest.raises(LaunchError, match="never"):
        measuring._fastest("x", forms, Nothing(), 0)  # type: ignore[arg-type]
    clock.bound.refuses[1] = LaunchError("not one")  # type: ignore[attr-defined]
    clock.bound.refuses[64] = LaunchError("not many")  # type: ignore[attr-defined]
    measured = run(clock)
    assert measured.left_out["barrier"] == "not many"
    assert measured.left_out["latency"] == "not one"
    assert not measured.figures


def test_steps_are_no_more_than_a_runtime_takes(clock: Clock) -> None:
    grown = measuring._fastest("barrier", [PassRound(1, 257, FORM)], Nothing(), 0)  # type: ignore[arg-type]
    assert measuring.MOST_STEPS - 257 < grown.benchmark.steps <= measuring.MOST_STEPS


def test_half_the_work_in_the_same_time_is_refused_by_name(clock: Clock) -> None:
    clock.bound.half_takes = 0.95  # type: ignore[attr-defined]
    with pytest.raises(CalibrationError, match=r"group on .* must take longer with more to do; half of it took 0\.0"):
        measuring._fastest("group", [Start(64, 1, FORM)], Nothing(), 0)  # type: ignore[arg-type]
    with pytest.raises(CalibrationError):
        run(clock)


def test_where_the_start_of_a_launch_takes_longer_than_its_work_more_is_done(clock: Clock) -> None:
    form = PassRound(256, 2, FORM)
    clock.bound.start_takes = 5e-6  # type: ignore[attr-defined]
    assert measuring._fastest("barrier", [form], Nothing(), 0).benchmark.steps == measuring.MOST_STEPS  # type: ignore[arg-type]
    clock.bound.start_takes = 1e-4  # type: ignore[attr-defined]
    with pytest.raises(CalibrationError, match=r"barrier on .* must take longer with more to do"):
        measuring._fastest("barrier", [form], Nothing(), 0)  # type: ignore[arg-type]


@pytest.mark.parametrize("device", DEVICES.values(), ids=DEVICES)
def test_every_device_has_a_suite_within_its_limits(device: gp.DeviceInfo) -> None:
    every = suite(device)
    assert {"read_bandwidth", "latency", "launch", "group", "barrier", "multiply-adds int32"} <= every.keys()
    assert ("multiply-adds float64" in every) == ("float64" in device.computes)
    for forms in every.values():
        for form in forms:
            launch = form.launch
            assert launch.work_group[0] <= min(device.max_work_group, device.max_work_item_sizes[0])
            assert launch.local_bytes <= device.local_memory
            assert max(form.source_bytes, form.target_bytes) <= device.max_allocation
    assert 4 * large_bytes(device) <= device.memory
    if device.type == "cpu" and device.caches:
        assert large_bytes(device) > max(device.caches) * device.compute_units


@pytest.mark.parametrize(
    ("device", "units"),
    [
        ("NVIDIA sm_90 under CUDA", {"float64": F64_16, "float16": F16}),
        ("NVIDIA sm_90 under OpenCL", {"float64": F64_16, "float16": F16}),
        ("NVIDIA sm_70", {}),
        ("AMD gfx90a", {}),
        ("CPU under PoCL", {}),
    ],
)
def test_matrix_units_are_measured_by_the_instructions_that_kernels_take(
    device: str, units: dict[str, MatrixUnit]
) -> None:
    """A GPU that has none of them says so by name."""
    every, own = suite(DEVICES[device]), DEVICES[device]
    found = {name: forms for name, forms in every.items() if name.startswith("matrix")}
    assert list(found) == [f"matrix multiply-adds {name}" for name in units]
    for (form,), unit in zip(found.values(), units.values(), strict=True):
        assert isinstance(form, MultiplyMatrices)
        assert form.unit == unit
        assert form.items % 32 == 0
    told = {f"matrix multiply-adds {name}" for name in ("float64", "float16") if name not in units}
    assert set(absent(own)) == (told if own.type == "gpu" else set())


def test_what_a_gpu_has_not_is_left_out_by_name(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Nothing, "device", DEVICES["NVIDIA sm_70"])
    measured = run(clock, rounds=1)
    told = "no instruction for matrices of float64 on sm_70 is measured"
    assert measured.left_out["matrix multiply-adds float64"] == told
    assert "matrix multiply-adds float64" not in measured.forms


def of_one_type(device: gp.DeviceInfo) -> dict[str, list[Benchmark]]:
    """The first forms of those micro-benchmarks."""
    others = [f"multiply-adds {name}" for name in ("float16", "float64", "int32")]
    return {name: [*forms[:1]] for name, forms in suite(device).items() if name not in others}


@contextmanager
def small(device: gp.DeviceInfo, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """One form of each benchmark, and none of them longer than a busy machine needs; one type for all. A CPU reads less memory
    than ever, but so much that reading takes many times as long as starting; a GPU as much as ever, for the same reason.
    """
    with monkeypatch.context() as patch:
        if device.type == "cpu":
            patch.setattr("gemmport.calibration.suite.PAST_CACHES", 2**25)
        patch.setattr(measuring, "suite", of_one_type)
        patch.setattr(measuring, "TARGET_SECONDS", dict.fromkeys(("cpu", "gpu", "accelerator"), 2e-3))
        yield


def measured_on(backend: gp.Backend) -> measuring.Measured:
    """What is measured, in one of several tries: where other work takes the cores, a launch may hide what it computes, and a
    number is refused, as it should be.
    """
    for _ in range(TRIES - 1):
        try:
            return calibrate(backend, rounds=5)
        except CalibrationError as error:
            assert "leaves something out" in str(error)  # noqa: PT017  # all else is a fault
            time.sleep(1)
    return calibrate(backend, rounds=5)


def test_a_device_is_measured(best_backend: gp.Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    with small(best_backend.device, monkeypatch):
        measured = measured_on(best_backend)
    assert measured.left_out == absent(best_backend.device)
    assert [figure.name for figure in measured.figures] == list(of_one_type(best_backend.device))
    assert all(figure.value > 0 for figure in measured.figures)
