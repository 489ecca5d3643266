"""Which products the matrix unit gets on NVIDIA's GPUs, in which tiling, and how long that is expected to take."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

import gemmport as gp
from gemmport import kernels
from gemmport.contracts.device_model import clock
from gemmport.contracts.named_devices import chip_of, device_of
from gemmport.contracts.nvidia import is_hopper
from gemmport.contracts.prediction import facts_of
from gemmport.core.device import DeviceInfo
from gemmport.core.problem import GemmProblem
from gemmport.planning.planner import make_plan
from made_up_devices import DEVICES
from models import model_of
from test_planner import write

MMA = kernels.variant("mma")
H200 = chip_of("H200") or pytest.fail("the chip is known")
OPENCL = replace(H200, backend="opencl", dynamic_local_memory=0)
RECORD = Path(__file__).parents[2] / "benchmarks" / "results" / "h200" / "study" / "mma.json"
TYPES = ("float16", "bfloat16", "int8", "uint8")
CHOSEN = ("float16", "bfloat16")


def by_unit(device: DeviceInfo) -> set[str]:
    """Kernels by the matrix unit: Hopper has two, of which that is chosen which is expected to take less time."""
    return {"mma", "wgmma"} if is_hopper(device) else {"mma"}


on_both = pytest.mark.every_pair("device", [H200, OPENCL])


@on_both
@pytest.mark.every_pair("dtype", CHOSEN)
@pytest.mark.every_pair("ops", ["NN", "NT", "TN", "TT"])
@pytest.mark.every_pair(
    "sizes", [(4096, 4096, 4096, 1), (1001, 999, 1003, 1), (16, 14336, 4096, 1), (5, 7, 3, 1), (64, 64, 128, 96)]
)
@pytest.mark.every_pair("scalars", [(1, 0), (2, -1), (0, 3)])
def test_the_matrix_unit_multiplies_halves(
    device: DeviceInfo, dtype: str, ops: str, sizes: tuple[int, ...], scalars: tuple[int, int]
) -> None:
    m, n, k, batch = sizes
    problem = GemmProblem.create(
        m, n, k, batch=batch, dtype=dtype, trans_a=ops[0], trans_b=ops[1], alpha=scalars[0], beta=scalars[1]
    )
    assert gp.plan(problem, device).variant in by_unit(device)


@on_both
@pytest.mark.parametrize("dtype", ["int8", "uint8", "float8_e4m3fn", "float8_e5m2"])
def test_the_matrix_unit_multiplies_bytes(device: DeviceInfo, dtype: str) -> None:
    problem = GemmProblem.create(512, 512, 512, dtype=dtype)
    assert gp.plan(problem, device).variant in by_unit(device)
    assert gp.plan(problem, device, kernel="mma").variant == "mma"


@pytest.mark.parametrize("architecture", ["sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"])
def test_it_is_chosen_from_compute_capability_8_0_on(architecture: str) -> None:
    device = device_of(architecture)
    assert gp.plan(GemmProblem.create(512, 512, 512, dtype="float16"), device).variant in by_unit(device)


@pytest.mark.parametrize(
    "device",
    [device_of("sm_75"), *(DEVICES[name] for name in ("NVIDIA sm_70", "AMD gfx90a", "CPU under PoCL"))],
    ids=lambda device: device.architecture,
)
@pytest.mark.parametrize("dtype", TYPES)
def test_no_other_device_gets_it(device: DeviceInfo, dtype: str) -> None:
    assert gp.plan(GemmProblem.create(512, 512, 512, dtype=dtype), device).variant != "mma"


@on_both
@pytest.mark.every_pair(
    ("wanted", "sizes"),
    [
        ("gemv", (1, 14336, 4096, 1)), ("mma", (4, 14336, 4096, 1)), ("mma", (4096, 2, 4096, 1)),
        ("gemv", (1, 2048, 128, 128)), ("mma", (4, 2048, 128, 128)), ("mma", (4, 128, 2048, 128)),
        ("batched", (8, 8, 8, 10_000)), ("wgmma", (2708, 16, 1433, 1)), ("wgmma", (16, 4097, 4096, 1)),
        ("mma", (2708, 16, 1434, 1)), ("mma", (4096, 16, 4095, 2)), ("mma", (200, 16, 1433, 1)),
    ],
)  # fmt: skip
def test_vectors_and_many_tiny_matrices_stay_with_their_own_kernels(
    device: DeviceInfo, wanted: str, sizes: tuple[int, ...]
) -> None:
    m, n, k, batch = sizes
    assert gp.plan(GemmProblem.create(m, n, k, batch=batch, dtype="float16"), device).variant == wanted


@pytest.mark.parametrize("params", [{}, {"TSM": 32, "TSN": 32, "TSK": 32, "WM": 32, "WN": 32, "STAGES": 3}])
def test_an_entry_of_the_user_s_that_names_it_is_followed(params: dict[str, int], tmp_path: Path) -> None:
    configuration = write(tmp_path / "mine.yaml", "mma", dict(params))
    plan = make_plan(GemmProblem.create(2, 3000, 500, dtype="bfloat16"), H200, configuration)
    assert plan.variant == "mma"
    values = {name: choice.value for name, choice in plan.parameters}
    assert {name: values[name] for name in params} == params


# Few rows: what memory bounds


@on_both
@pytest.mark.every_pair("dtype", ["float16", "int8"])
@pytest.mark.every_pair("rows", [5, 16, 32, 64])
@pytest.mark.every_pair(("n", "k"), [(14336, 4096), (4096, 14336), (4096, 4096)])
def test_few_rows_are_bounded_by_memory_and_all_units_read(
    device: DeviceInfo, dtype: str, rows: int, n: int, k: int
) -> None:
    problem = GemmProblem.create(rows, n, k, dtype=dtype, trans_b="T")
    plan = gp.plan(problem, device, kernel="mma")
    reading = [launch for launch in plan.launches if launch.kernel.function == "mma"]
    assert sum(launch.groups[0] for launch in reading) >= 0.9 * device.compute_units
    model = model_of(device)
    values = {name: choice.value for name, choice in plan.parameters}
    prediction = MMA.predicted(problem, device, model, values)
    bytes_seconds = problem.bytes / model.read_bandwidth
    assert prediction.parts["global memory"] == bytes_seconds
    loop = ("multiply-adds", "local memory", "copies", "latency")
    assert all(prediction.parts[name] < bytes_seconds for name in loop)
    if rows < 64:  # of 64, results and parts of sums may take as long as reading
        assert prediction.seconds - prediction.parts["launches"] < 1.6 * bytes_seconds


def test_few_groups_that_read_from_memory_are_expected_to_wait_for_it() -> None:
    """2048 × 8 × 12288 has 128 tiles of 16 rows, one for each unit, which has too little on its way. With tiles that are not
    shared it took 38.0 µs on an H100, and 26.4 with shared ones.
    """
    device, mma = H200, MMA
    problem = GemmProblem.create(2048, 8, 12288, dtype="bfloat16", trans_b="T")
    predict = mma.predictor(problem, device, model_of(device))
    tiling = {"TSM": 16, "TSN": 16, "TSK": 128, "WM": 16, "WN": 16, "STAGES": 6, "GROUPS": 4}
    alone, shared = (predict(mma.complete({**tiling, "SHARE": share})) for share in (0, 4))
    assert alone.parts["global memory"] > problem.bytes / model_of(device).read_bandwidth
    assert shared.parts["global memory"] == problem.bytes / model_of(device).read_bandwidth
    assert alone.seconds > shared.seconds
    assert mma.suggested(problem, device, model_of(device))["SHARE"] > 0


def test_groups_that_begin_anew_for_each_tile_wait_for_the_first_copies() -> None:
    """By groups that stay, as wgmma's, 11520 × 8000 × 24 took 102 µs on an H100, and by mma 117 and more."""
    device, mma = H200, MMA
    problem = GemmProblem.create(11520, 8000, 24, dtype="bfloat16")
    tiling = mma.complete({"TSM": 128, "TSN": 128, "TSK": 32, "WM": 64, "WN": 64, "STAGES": 4, "GROUPS": 2})
    predicted = mma.predicted(problem, device, model_of(device), tiling)
    # 90 × 63 tiles are 21 waves of two groups a unit, of which the first is not hidden, and one of one group.
    waits = (1 + 20 / 2 + 1) * model_of(device).constants("mma")["far_clocks"]
    assert predicted.parts["begins"] == pytest.approx(waits / clock(device))
    assert gp.plan(problem, device).variant == "wgmma"


@pytest.mark.parametrize("sizes", [(0, 64, 64), (64, 0, 64), (64, 64, 0)])
def test_nothing_to_store_or_to_add_up_has_a_prediction(sizes: tuple[int, int, int]) -> None:
    problem = GemmProblem.create(*sizes, dtype="float16")
    assert MMA.predicted(problem, H200, model_of(H200), MMA.complete({})).seconds >= 0


def test_a_sum_is_cut_where_few_tiles_would_leave_units_idle() -> None:
    """Of 512 columns even the narrowest tiles are too few."""
    plan = gp.plan(GemmProblem.create(16, 512, 16384, dtype="float16", trans_b="T"), H200)
    assert [launch.kernel.function for launch in plan.launches] == ["mma", "combine"]
    assert plan.launches[0].groups[0] >= 0.9 * H200.compute_units


# Rows that are not aligned


@on_both
@pytest.mark.every_pair("dtype", ["float16", "int8"])
@pytest.mark.every_pair("ops", ["NN", "NT", "TN", "TT"])
@pytest.mark.every_pair("size", [1000, 4096])
def test_unaligned_rows_cost_no_more_than_passes_over_them(device: DeviceInfo, dtype: str, ops: str, size: int) -> None:
    """One more row, column and term: expected besides are the passes that lay operands out anew, and a tile's edge."""
    model = model_of(device)

    def expected(size: int) -> float:
        problem = GemmProblem.create(size, size, size, dtype=dtype, trans_a=ops[0], trans_b=ops[1])
        plan = gp.plan(problem, device, kernel="mma")
        values = {name: choice.value for name, choice in plan.parameters}
        return MMA.predicted(problem, device, model, values).seconds

    operands = 2 * (size + 1) ** 2 * (2 if dtype == "float16" else 1)
    # Bytes are moved one by one.
    passes = 2 * model.launch + (3 if dtype == "float16" else 6) * operands / model.copy_bandwidth
    assert expected(size + 1) < 1.2 * expected(size) + passes


# Predictions beside times


def trials() -> list[tuple[DeviceInfo, GemmProblem, dict[str, Any], float]]:
    """The record of an H200: device, product, parameters and seconds of each trial."""
    document = json.loads(RECORD.read_text("utf-8"))
    names = {field.name for field in fields(DeviceInfo)}
    devices = {
        each["backend"]: DeviceInfo.from_dict({name: value for name, value in each.items() if name in names})
        for each in document["environment"]["devices"].values()
    }
    found = []
    for each in document["results"]:
        types = {name: each[name] for name in ("dtype", "output", "trans_a", "trans_b")}
        problem = GemmProblem.create(each["m"], each["n"], each["k"], **types)
        values = {name: choice["value"] for name, choice in each["parameters"].items()}
        found.append((devices[each["backend"]], problem, values, each["seconds"]["median"]))
    return found


def test_all_predictions_are_within_a_quarter_of_the_times_on_file() -> None:
    found = trials()
    ratios = [MMA.predicted(problem, device, model_of(device), p).seconds / t for device, problem, p, t in found]
    assert len(ratios) == 66
    assert all(1 / 1.25 < ratio < 1.25 for ratio in ratios)


def test_the_tiling_that_was_the_fastest_is_expected_to_be() -> None:
    timed: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    for device, problem, values, seconds in trials():
        predicted = MMA.predicted(problem, device, model_of(device), values).seconds
        timed[device.backend, problem.ops].append((predicted, seconds))
    assert len(timed) == 4
    for found in timed.values():
        assert min(found)[1] == min(seconds for _, seconds in found)


def test_a_unit_without_half_of_the_matrix_unit_is_expected_to_take_longer() -> None:
    problem = GemmProblem.create(4096, 4096, 4096, dtype="float16")
    seconds = []
    for architecture in ("sm_80", "sm_86"):
        device = replace(device_of(architecture), compute_units=100, clock_mhz=1500)
        best = MMA.complete(MMA.suggested(problem, device, model_of(device)))
        seconds.append(MMA.predicted(problem, device, model_of(device), best).parts["multiply-adds"])
    assert seconds[1] == pytest.approx(2 * seconds[0], rel=0.2)


def test_facts_are_those_of_the_tiling() -> None:
    problem = GemmProblem.create(300, 300, 300, dtype="float16")
    values = MMA.complete({"TSM": 64, "TSN": 64, "GROUPS": 2})
    prediction = MMA.predicted(problem, H200, model_of(H200), values)
    assert prediction.facts["padded"] == facts_of(problem, 64, 64, 1)["padded"]
