"""What `gemmport calls` measures: what is timed, what is judged first, and what ratios are made of it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import gemmport as gp
from absences import JAX_ON_CPUS, TORCH, beyond, skip_without
from gemmport.bench import call_times, calls, libraries
from gemmport.bench.call_times import Caller, CallPace, measure_calls
from gemmport.bench.calls import SHOWN, Beside, Called, check_called, floor_of, reaching, run_calls, summaries
from gemmport.bench.standings import Workload
from gemmport.bench.timing import Timing
from gemmport.core.device import DeviceInfo
from gemmport.core.dtypes import DTYPES
from gemmport.core.errors import LibraryUnavailableError, UnknownNameError, UnsupportedError
from gemmport.core.problem import GemmProblem
from launched import put_on

QUICK = CallPace(warm_up_seconds=0.0, seconds=0.0, waits=False, run_seconds=0.0)

DEVICE = DeviceInfo("opencl", "Processor", "pocl", type="cpu")

ON_CPUS = ("numpy", "device", "torch", "pyopencl", "jax")
"""Libraries whose arrays reach CPUs."""


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "CPU_CALLS", QUICK)
    monkeypatch.setattr(calls, "GPU_CALLS", QUICK)


def measured(backend: gp.Backend, name: str, *problems: GemmProblem) -> list[Called]:
    library = libraries.load(name, backend)
    return list(run_calls([Workload(x) for x in problems], [library], turns=1, seed=0))


# Times


class Clock:
    """A clock that goes on where something is done, and what was done."""

    def __init__(self, call: float, wait: float) -> None:
        self.now, self.done = 0.0, ""
        self.caller = Caller(lambda: self._do("c", call), lambda _: self._do("w", wait))

    def _do(self, what: str, seconds: float) -> None:
        self.done += what
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float, float], Clock]:
    def made(call: float, wait: float) -> Clock:
        found = Clock(call, wait)
        monkeypatch.setattr(call_times.time, "perf_counter", lambda: found.now)
        return found

    return made


def test_each_way_times_its_own_part_of_calls(clock: Callable[[float, float], Clock]) -> None:
    made = clock(2e-6, 1e-4)
    pace = CallPace(warm_up_seconds=0.0, seconds=1e-2, waits=False)
    found = measure_calls({"one": made.caller}, pace, turns=2)["one"]
    assert found["host"].median == pytest.approx(2e-6)
    assert found["back_to_back"].median == pytest.approx(2e-6 + 1e-4 / 100)
    assert found["awaited"].median == pytest.approx(2e-6 + 1e-4)
    assert {way: timing.calls_per_sample for way, timing in found.items()} == {
        "host": 32, "back_to_back": 100, "awaited": 1,
    }  # fmt: skip
    assert {len(timing.samples) for timing in found.values()} == {2}
    runs = [len(run) for run in made.done.split("w")]
    assert {1, 32, 100} == {*runs[:-1]}


def test_long_calls_are_fewer_before_a_wait(clock: Callable[[float, float], Clock]) -> None:
    made = clock(0.1, 0.15)
    pace = CallPace(warm_up_seconds=0.0, seconds=0.0, waits=False)
    found = measure_calls({"one": made.caller}, pace, turns=1)["one"]
    assert {way: timing.calls_per_sample for way, timing in found.items()} == {
        "host": 1, "back_to_back": 4, "awaited": 1,
    }  # fmt: skip


def test_callers_take_turns_of_which_the_first_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []

    def turn(caller: Caller, *_: Any) -> dict[str, float]:
        order.append(caller.call())
        return dict.fromkeys(call_times.WAYS, float(len(order)))

    monkeypatch.setattr(call_times, "_turn", turn)
    callers = {name: Caller(lambda name=name: name, lambda _: None) for name in ("a", "b")}
    found = measure_calls(callers, QUICK, turns=2)
    assert order == ["a", "b"] * 3
    assert found["a"]["host"].samples == (3.0, 5.0)
    assert found["b"]["awaited"].samples == (4.0, 6.0)


def test_a_turn_on_a_cpu_begins_when_others_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[None] = []
    monkeypatch.setattr(call_times, "wait_until_quiet", lambda: waited.append(None))
    caller = {"one": Caller(lambda: None, lambda _: None)}
    measure_calls(caller, QUICK, turns=1)
    assert not waited
    measure_calls(caller, CallPace(0.0, 0.0, call_times.CPU_CALLS.waits), turns=1)
    assert len(waited) == 2


# Ratios


def times(host: float, back_to_back: float, awaited: float) -> dict[str, Timing]:
    seconds = {"host": host, "back_to_back": back_to_back, "awaited": awaited}
    return {way: Timing((0.5 * x, x, 4 * x), 1) for way, x in seconds.items()}


def called(own: dict[str, Any], other: dict[str, Any], size: int = 64, **about: Any) -> Called:
    beside = Beside("numpy.matmul", "2", **{"verified": True, "times": other, **about})
    return Called(Workload(GemmProblem.create(size, size, size)), DEVICE, "numpy", "ok", times=own, beside=beside)


def test_a_ratio_is_our_speed_over_the_others_of_the_same_way_and_result() -> None:
    one = called({"out": times(1, 2, 3), "new": times(4, 5, 6)}, {"out": times(2, 6, 12), "new": times(1, 10, 3)})
    assert [one.ratio(way, "out") for way in call_times.WAYS] == [2, 3, 4]
    assert [one.ratio(way, "new") for way in call_times.WAYS] == [0.25, 2, 0.5]
    told = one.to_dict()["baselines"]["numpy.matmul"]["ratios"]
    assert told == {
        "out": {"host": 2, "back_to_back": 3, "awaited": 4}, "new": {"host": 0.25, "back_to_back": 2, "awaited": 0.5},
    }  # fmt: skip


def test_there_is_no_ratio_to_what_is_wrong_or_was_not_measured() -> None:
    own, other = {"new": times(1, 1, 1)}, {"out": times(1, 1, 1), "new": times(1, 1, 1)}
    assert called(own, other).ratio("host", "out") is None
    assert called(own, other).ratio("host", "new") == 1
    assert called(own, other, verified=False).ratio("host", "new") is None
    assert called(own, {}).ratio("host", "new") is None
    assert summaries([called(own, other, verified=False)]) == []


def test_a_summary_has_the_geometric_mean_and_the_worst_of_each_ratio() -> None:
    found = summaries(
        [called({"out": times(1, 1, 1)}, {"out": times(x, 4 * x, 1)}, int(64 * x)) for x in (4, 1, 2)]
    )  # fmt: skip
    means = {(one.way, one.result): one.geometric_mean for one in found}
    assert means == pytest.approx({("host", "out"): 2, ("back_to_back", "out"): 8, ("awaited", "out"): 1})
    worst = {one.way: one.to_dict()["worst"] for one in found}
    assert worst["host"] == {"name": "float32 NN 64×64×64", "ratio": 1}
    assert worst["back_to_back"] == {"name": "float32 NN 64×64×64", "ratio": 4}


def test_people_are_shown_new_results_of_arrays_that_are_not_written() -> None:
    jax = called({"new": times(1, 1, 1)}, {"new": times(1, 1, 1)})
    assert [jax.first_of(results) for _, _, results in SHOWN] == [None, "new", "new", "new"]


# Calls


def skip_unless_reached(name: str, backend: gp.Backend) -> None:
    """Skips a test of a library that is not here, or of which no array is on a device."""
    if name not in ("torch", "jax"):
        return
    skip_without(TORCH if name == "torch" else JAX_ON_CPUS)
    if backend.name != "cuda" and backend.device.type != "cpu":
        pytest.skip(beyond(backend.device, f"arrays of {name} do not reach it"))


@pytest.mark.parametrize("name", ON_CPUS)
def test_arrays_of_each_library_are_multiplied_right_and_timed(backend: gp.Backend, name: str) -> None:
    skip_unless_reached(name, backend)
    if name == "pyopencl" and backend.name != "opencl":
        pytest.skip(beyond(backend.device, "arrays of PyOpenCL are not on it"))
    (found,), missing = reaching(backend, [name])
    assert not missing
    problems = [GemmProblem.create(20, 12, 7, batch=3, trans_a="T"), GemmProblem.create(5, 9, 8, trans_b="T")]
    for one in run_calls([Workload(x) for x in problems], [found], turns=1, seed=3):
        assert (one.status, one.reason) == ("ok", "")
        assert set(one.times) == ({"out", "new"} if found.writes else {"new"})
        assert {check.name: check.passed for check in one.checks} == dict.fromkeys(one.times, True)
        assert one.plan is not None
        assert one.plan.problem.batch == one.workload.problem.batch
        if name in ("device", "pyopencl") and backend.device.type == "cpu":  # on a GPU torch.matmul stands beside
            assert one.beside is None
        else:
            assert one.beside is not None
            assert one.beside.reason == ""
            assert all((one.ratio(way, result) or 0) > 0 for way in call_times.WAYS for result in one.times)


@pytest.mark.parametrize(("seconds", "together"), [(0.3, 3), (10.0, 1), (1e-3, 100)])
def test_clocks_are_read_under_as_many_calls_as_are_timed_together(
    best_backend: gp.Backend, monkeypatch: pytest.MonkeyPatch, seconds: float, together: int
) -> None:
    """100 long ones would be waited for after nvidia-smi has told."""
    ran: list[int] = []

    def state(backend: gp.Backend, keep_busy: Callable[[], None]) -> dict[str, str]:
        keep_busy()
        return {"calls": str(ran[-1])}

    def counted(caller: Caller, calls: int) -> list[float]:
        ran.append(calls)
        caller.wait(caller.call())
        return [seconds]

    monkeypatch.setattr(calls, "gpu_state", state)
    monkeypatch.setattr(call_times, "_awaited", lambda caller, _: [seconds])
    monkeypatch.setattr(call_times, "_back_to_back", counted)
    monkeypatch.setattr(calls, "pace_of", lambda device: CallPace(0.0, 0.0, waits=False))
    (found,) = measured(best_backend, "numpy", GemmProblem.create(8, 8, 8))
    assert found.clocks == {"calls": str(together)}
    assert found.times["out"]["back_to_back"].calls_per_sample == together


@pytest.mark.parametrize("name", ["numpy", "device"])
def test_a_wrong_product_is_refused_before_it_is_timed(
    best_backend: gp.Backend, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    def wrong(a: Any, b: Any, out: Any = None, **options: Any) -> Any:
        found = gp.matmul(a, b, out=out, **options)
        if out is None:  # the fault: one element of a new result
            found[0, 0] = 1e3
        return found

    monkeypatch.setattr(calls, "matmul", wrong)
    monkeypatch.setattr(calls, "measure_calls", lambda *_: pytest.fail("was timed"))
    (found,) = measured(best_backend, name, GemmProblem.create(16, 16, 16))
    assert found.status == "failed"
    assert found.reason.startswith("new: ")
    assert (found.times, found.to_dict()["verified"]) == ({}, False)


def test_an_out_that_is_not_written_is_refused(best_backend: gp.Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        calls, "matmul", lambda a, b, out=None, **options: gp.matmul(a, b, **options) if out is None else out
    )
    monkeypatch.setattr(calls, "_plan_of", lambda arrays: gp.plan(arrays.problem, arrays.library.backend.device))
    (found,) = measured(best_backend, "numpy", GemmProblem.create(16, 16, 16))
    assert (found.status, found.reason.partition(":")[0]) == ("failed", "out")


@pytest.fixture
def numpy_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """NumPy's product stands beside NumPy's arrays, on an NVIDIA GPU with PyTorch, too."""
    monkeypatch.setattr(libraries._NumPy, "beside", property(lambda own: own))


@pytest.mark.usefixtures("numpy_alone")
def test_a_library_that_multiplies_imprecisely_has_no_ratio(
    best_backend: gp.Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    def in_halves(a: Any, b: Any, out: Any = None) -> Any:
        return np.matmul(a.astype("float16"), b.astype("float16"), out=out, dtype="float32")

    monkeypatch.setattr(libraries._NumPy, "product", staticmethod(in_halves))
    (found,) = measured(best_backend, "numpy", GemmProblem.create(64, 64, 64))
    assert found.status == "ok"
    assert found.beside is not None
    assert found.beside.verified is False
    assert "out" in found.beside.reason
    assert found.ratio("host", "new") is None


@pytest.mark.usefixtures("numpy_alone")
def test_a_library_that_refuses_its_own_product_says_why(
    best_backend: gp.Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise TypeError("no such loop")

    monkeypatch.setattr(libraries._NumPy, "product", refuse)
    (found,) = measured(best_backend, "numpy", GemmProblem.create(8, 8, 8))
    assert found.status == "ok"
    assert found.beside == Beside("numpy.matmul", np.__version__, reason="TypeError: no such loop")


def test_a_product_that_gemmport_refuses_is_a_result(best_backend: gp.Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise gp.LaunchError("the device is busy")

    monkeypatch.setattr(calls, "matmul", refuse)
    (found,) = measured(best_backend, "device", GemmProblem.create(8, 8, 8))
    assert (found.status, found.reason, found.times) == ("error", "the device is busy", {})


def test_a_product_of_which_the_host_has_no_room_is_a_result_and_the_next_is_measured(best_backend: gp.Backend) -> None:
    (found,), _ = reaching(best_backend, ["device"])
    edge = 10**9  # no machine has 4 EB
    problems = [GemmProblem.create(edge, edge, edge), GemmProblem.create(8, 8, 8)]
    large, small = run_calls([Workload(x) for x in problems], [found], turns=1, seed=0)
    assert (large.status, large.times) == ("error", {})
    assert large.reason.startswith(f"the host is out of memory for {problems[0]}: ")
    assert small.status == "ok"


def test_the_floor_is_one_work_item_that_is_launched_and_awaited(
    best_backend: gp.Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[Any] = []
    launch, synchronize = best_backend.launch, best_backend.synchronize
    put_on(monkeypatch, best_backend, "launch", lambda call: (done.append((call.function, call.extent)), launch(call)))
    put_on(monkeypatch, best_backend, "synchronize", lambda: (done.append("awaited"), synchronize()))
    turns = 3
    found = floor_of(best_backend, turns)
    # Two calls tell how long one takes; each turn, and one before them, has one to warm up and one for each way.
    assert done == [("nothing", (1, 1, 1)), "awaited"] * (2 + (turns + 1) * (1 + len(call_times.WAYS)))
    assert (len(found.samples), found.calls_per_sample) == (turns, 1)
    assert min(found.samples) > 0


@pytest.mark.parametrize(
    "fields",
    [
        {"trans_a": "C"},
        {"dtype": "float16", "output": "float32"},
        {"accumulator": "float64"},
    ],
    ids=str,
)
def test_what_is_not_called_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedError, match="must be a product with N or T and of one type"):
        check_called(GemmProblem.create(8, 8, 8, **fields))


@pytest.mark.parametrize("shape", [{}, {"batch": 3}, {"trans_b": "T"}], ids=str)
@pytest.mark.parametrize("scalars", [{"alpha": -1, "beta": 1}, {"alpha": 2}], ids=str)
def test_products_with_alpha_and_beta_are_called_as_gemm(
    best_backend: gp.Backend, shape: dict[str, Any], scalars: dict[str, Any]
) -> None:
    (found,) = measured(best_backend, "device", GemmProblem.create(20, 30, 40, **shape, **scalars))
    assert found.status == "ok", found.reason
    assert found.plan is not None
    assert (found.plan.problem.alpha, found.plan.problem.beta) == (scalars["alpha"], scalars.get("beta", 0))
    assert found.ratio("host", "out") is None or found.beside is not None


def test_torch_has_alpha_and_beta_too(best_backend: gp.Backend) -> None:
    skip_unless_reached("torch", best_backend)
    for scalars in ({"alpha": -1, "beta": 1}, {"alpha": 2}):
        for shape in ({}, {"batch": 3}):
            (found,) = measured(best_backend, "torch", GemmProblem.create(20, 30, 40, **shape, **scalars))
            assert found.beside is not None
            assert found.beside.verified, found.beside.reason


# Libraries


def test_a_library_that_is_not_installed_is_missing_by_name(
    best_backend: gp.Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "pyopencl" if best_backend.name == "opencl" else "jax"  # whose arrays would reach the device
    monkeypatch.setitem(sys.modules, name, None)
    found, missing = reaching(best_backend, ["numpy", name])
    assert [library.name for library in found] == ["numpy"]
    assert missing[name].startswith(f"{name} must be installed to measure calls of its arrays; got ")
    assert missing[name].endswith(f"pip install {name}")


def test_a_library_whose_arrays_do_not_reach_the_device_is_not_imported(
    best_backend: gp.Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = "pyopencl" if best_backend.name == "cuda" else "cupy"
    monkeypatch.setattr(libraries, "_imported", lambda package: pytest.fail(f"{package} was imported"))
    with pytest.raises(LibraryUnavailableError, match=f"arrays of {other} must reach .*; they do not"):
        libraries.load(other, best_backend)


def test_an_unknown_library_is_told_with_those_that_there_are(best_backend: gp.Backend) -> None:
    with pytest.raises(UnknownNameError, match="numpy, device, torch, cupy, pyopencl, jax; got 'numpie'"):
        libraries.load("numpie", best_backend)


GPU = DeviceInfo("cuda", "NVIDIA H200", "nvidia", (0, 1), vendor="nvidia")


def made_up_torch(*names: str) -> Any:
    """A PyTorch that sees these GPUs."""
    cuda = SimpleNamespace(
        is_available=lambda: bool(names), device_count=lambda: len(names), get_device_name=lambda number: names[number]
    )
    return SimpleNamespace(cuda=cuda, __version__="2")


def on_a_gpu(device: DeviceInfo) -> Any:
    return SimpleNamespace(device=device, name=device.backend)


@pytest.mark.parametrize("backend_name", ["cuda", "opencl"])
def test_pytorch_stands_beside_device_arrays_and_numpys_on_the_same_gpu_alone(
    monkeypatch: pytest.MonkeyPatch, backend_name: str
) -> None:
    own, numpys = (libraries.load(name, on_a_gpu(replace(GPU, backend=backend_name))) for name in ("device", "numpy"))
    monkeypatch.setitem(sys.modules, "torch", made_up_torch("NVIDIA A100", "NVIDIA H200"))
    beside = own.beside
    assert beside is not None
    assert (beside.product_name, beside._device) == ("torch.matmul", "cuda:1")
    copying = numpys.beside
    assert copying is not None
    assert (copying.product_name, copying._device) == ("torch.matmul with copies", "cuda:1")
    for others in ((), ("NVIDIA H200",), ("NVIDIA H200", "NVIDIA A100")):
        monkeypatch.setitem(sys.modules, "torch", made_up_torch(*others))
        assert (own.beside, numpys.beside) == (None, numpys)
    monkeypatch.setitem(sys.modules, "torch", None)
    assert (own.beside, numpys.beside) == (None, numpys)


def test_nothing_stands_beside_device_arrays_of_a_cpu_and_nothing_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libraries, "_imported", lambda package: pytest.fail(f"{package} was imported"))
    assert libraries.load("device", on_a_gpu(DEVICE)).beside is None


def test_pytorch_takes_numpys_arrays_and_gives_them_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU they are copied; here PyTorch's arrays in the host's memory stand for those."""
    skip_without(TORCH)
    monkeypatch.setattr(libraries._TorchOfHostArrays, "_place", lambda *_: "cpu")
    found = libraries._TorchOfHostArrays(on_a_gpu(GPU))
    for dtype in ("float32", "bfloat16"):
        a, b = (np.arange(6).reshape(shape).astype(DTYPES[dtype].numpy) for shape in ((2, 3), (3, 2)))
        out = np.zeros((2, 2), a.dtype)
        assert found.product(found.array(a), found.array(b), out) is out
        for result in (out, found.product(a, b), found.update(a, b, None, alpha=1, beta=0)):
            assert isinstance(result, np.ndarray)
            assert np.array_equal(result, a @ b)


def test_tensors_reach_a_gpu_under_cuda_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", made_up_torch("NVIDIA A100", "NVIDIA H200"))
    library = libraries.load("torch", on_a_gpu(GPU))
    assert (library._device, library.options) == ("cuda:1", {})
    with pytest.raises(LibraryUnavailableError, match="arrays of torch must reach"):
        libraries.load("torch", on_a_gpu(replace(GPU, backend="opencl")))


def test_cupy_works_on_the_gpu_of_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    made = SimpleNamespace(use=lambda: done.append("use"), synchronize=lambda: done.append("synchronize"))
    cupy = SimpleNamespace(
        cuda=SimpleNamespace(Device=lambda number: done.append(f"device {number}") or made), __version__="13",
        asarray=np.array, asnumpy=np.asarray, matmul=np.matmul,
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    library = libraries.load("cupy", on_a_gpu(GPU))
    a = library.array(np.eye(3, dtype="float32"))
    library.wait(library.product(a, library.transposed(a), None))
    assert done == ["device 1", "use", "synchronize"]


def test_a_library_that_does_not_start_on_the_device_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_number: int) -> Any:
        raise RuntimeError("no driver")

    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=SimpleNamespace(Device=refuse)))
    _, missing = reaching(on_a_gpu(GPU), ["cupy"])
    assert missing["cupy"].startswith("cupy must start on NVIDIA H200 (cuda, nvidia); got no driver")


def test_pytorch_has_no_tf32_while_it_is_measured_and_gets_its_setting_back(best_backend: gp.Backend) -> None:
    skip_unless_reached("torch", best_backend)
    import torch  # noqa: PLC0415 - not always installed

    settings = torch.backends.cuda.matmul
    before = settings.allow_tf32
    try:
        settings.allow_tf32 = True
        with libraries.load("torch", best_backend).precise():
            assert settings.allow_tf32 is False
        assert settings.allow_tf32 is True
    finally:
        settings.allow_tf32 = before


def test_jax_is_precise_while_it_is_measured_and_gets_its_settings_back(best_backend: gp.Backend) -> None:
    skip_unless_reached("jax", best_backend)
    import jax  # noqa: PLC0415 - not always installed

    before = jax.config.jax_default_matmul_precision, jax.config.jax_enable_x64
    with libraries.load("jax", best_backend).precise():
        assert (jax.config.jax_default_matmul_precision, jax.config.jax_enable_x64) == ("highest", True)
    assert (jax.config.jax_default_matmul_precision, jax.config.jax_enable_x64) == before


@pytest.mark.parametrize("name", ["numpy", "torch", "jax", "device"])
def test_bfloat16_and_float64_come_through_libraries_as_they_are(best_backend: gp.Backend, name: str) -> None:
    skip_unless_reached(name, best_backend)
    library = libraries.load(name, best_backend)
    with library.precise():
        for dtype in ("bfloat16", "float64"):
            host = np.arange(6.0).reshape(2, 3).astype(DTYPES[dtype].numpy)
            found = library.to_host(library.transposed(library.array(host)))
            assert found.dtype == host.dtype
            np.testing.assert_array_equal(found.astype(np.float64), host.T.astype(np.float64))
