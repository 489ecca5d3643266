"""`wgmma`: who has the instructions, what the copy engine is told, what is laid out anew for it, and what is compiled."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gemmport as gp
import opencl_for_nvidia
from absences import CUDA_COMPILER, beyond, needs
from exact import Sizes, check_plan, problem_of, run_plan
from gemmport import kernels
from gemmport.backends import _compilation, _nvrtc
from gemmport.bench.sweeps import Swept, read_sweep
from gemmport.checking.verification import random_operands
from gemmport.contracts.kernel import Parameters
from gemmport.contracts.scales import ScaleLayout, ScaleLayouts, with_scales
from gemmport.core.plan import Argument, Buffer, Integer, Plan, TensorMap
from gemmport.planning import verdicts
from gemmport.planning.lookup import load_configuration
from gemmport.planning.planner import candidates, make_plan
from gemmport.runtime.sources import assemble
from made_up_devices import DEVICES
from models import model_of
from on_device import check_scales_of_kernel
from test_kernels import BASE
from test_planner import SHIPPED

WGMMA = kernels.variant("wgmma")
RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
CUDA = DEVICES["NVIDIA sm_90 under CUDA"]
OPENCL = DEVICES["NVIDIA sm_90 under OpenCL"]
HALVES = replace(CUDA, computes=CUDA.computes | {"float16"})
TYPES = ("float16", "bfloat16")
ALONG_K: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "int8": ("m64n128k32.s32.s8.s8", {"output": "int32"}),
    "uint8": ("m64n128k32.s32.u8.u8", {}),
    "float32": ("m64n128k8.f32.tf32.tf32", {"precision": "tf32"}),
    "float8_e4m3fn": ("m64n128k32.f32.e4m3.e4m3", {}),
    "float8_e5m2": ("m64n128k32.f32.e5m2.e5m2", {"output": "bfloat16"}),
}
"""Types that the unit takes along k alone, each with its instruction and what else a product of it says."""

FEWER: Parameters = {"TSM": 128, "TSN": 128, "WM": 64, "STAGES": 4}
"""Sums than there may be, so that registers hold those of a step, too."""
LAYOUTS = ("NN", "NT", "TN", "TT")

TILINGS = [dict(each) for each in model_of(CUDA).tilings["wgmma"]]
LARGE, TALL = TILINGS[:2]


def square(size: int, dtype: str = "float16", ops: str = "NN", **more: object) -> gp.GemmProblem:
    return gp.GemmProblem.create(size, size, size, dtype=dtype, trans_a=ops[0], trans_b=ops[1], **more)


def more_of(dtype: str) -> Mapping[str, str]:
    return ALONG_K[dtype][1] if dtype in ALONG_K else {}


def plan(problem: gp.GemmProblem, params: Parameters | None = None) -> Plan:
    return gp.plan(problem, CUDA, kernel="wgmma", params=params)


# Who takes it


@pytest.mark.parametrize(
    ("device", "types", "reason"),
    [
        (CUDA, {"dtype": "float64"}, "wgmma computes bfloat16, float16, .*, not float64"),
        (CUDA, {"dtype": "float32"}, "the matrix unit multiplies float32 as tf32: precision must say so; it is full"),
        (CUDA, {"dtype": "int8", "accumulator": "int64", "output": "int64"}, "adds up int8 in int32, not in int64"),
        (HALVES, {"dtype": "float16", "accumulator": "float16"}, "adds up float16 in float32, not in float16"),
        (replace(CUDA, architecture="sm_100"), {"dtype": "float16"}, "only GPUs of compute capability 9.0 .* sm_100"),
        (replace(CUDA, architecture="sm_89"), {"dtype": "float16"}, "only GPUs of compute capability 9.0 .* sm_89"),
        (
            replace(OPENCL, architecture="sm_89"),
            {"dtype": "float16"},
            "only GPUs of compute capability 9.0 have it; .* sm_89 under opencl",
        ),
        (DEVICES["AMD gfx90a"], {"dtype": "float16"}, "only GPUs of compute capability 9.0 .* gfx90a"),
    ],
)
def test_what_it_cannot_compute_is_told(device: gp.DeviceInfo, types: Mapping[str, str], reason: str) -> None:
    with pytest.raises(gp.UnsupportedError, match=f"^wgmma on .*{reason}"):
        gp.plan(gp.GemmProblem.create(64, 64, 64, **types), device, kernel="wgmma")


@pytest.mark.sample(dtype=["float16", "float32"])
@pytest.mark.parametrize("dtype", [*TYPES, *ALONG_K])
def test_it_is_chosen_where_it_is_expected_to_take_less_time_than_mma(dtype: str) -> None:
    """Large products, and small ones where launches begin early; else these have `mma`, as few rows have. Vectors: `gemv`."""
    more = more_of(dtype)
    small = "mma" if dtype == "float32" else "wgmma"
    for size, chosen in ((64, small), (4095, "wgmma"), (4096, "wgmma"), (8192, "wgmma")):
        problem = square(size, dtype, **more)
        assert gp.plan(problem, CUDA).variant == chosen
        assert gp.plan(problem, OPENCL).variant == ("mma" if size == 64 else "wgmma")
        own = [each for each in candidates(problem, CUDA, SHIPPED) if each.kernel == "wgmma"]
        assert len(own) >= (4 if "float8" in dtype else len(TILINGS))
        assert all(("mma is expected to take" in each.reason) == (chosen == "mma") for each in own)
    for rows, chosen in ((1, "gemv"), (16, "mma")):
        assert gp.plan(gp.GemmProblem.create(rows, 4096, 4096, dtype=dtype, **more), CUDA).variant == chosen
    assert gp.plan(square(64, dtype, **more), CUDA, kernel="wgmma").variant == "wgmma"


@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_float32_that_is_stored_as_halves_is_multiplied_by_it(precision: str) -> None:
    found = gp.plan(square(4096, "float32", precision=precision), CUDA)
    assert [launch.kernel.stem for launch in found.launches] == ["convert", "wgmma"]
    assert gp.plan(square(4096, "float32"), CUDA).variant == "simt"


@pytest.mark.parametrize("dtype", ["float16", "int8", "float32", "float8_e4m3fn"])
def test_rows_that_are_not_aligned_are_no_cliff(dtype: str) -> None:
    """Passes lay them out anew: at 1023, where two launches count, a multiply-add takes less than twice as long."""

    def expected(size: int) -> float:
        """Seconds of a multiply-add."""
        problem = square(size, dtype, **more_of(dtype))
        best = next(each for each in candidates(problem, CUDA, SHIPPED) if not each.reason)
        assert best.prediction is not None
        return best.prediction.seconds / size**3

    for odd, even, most in ((1023, 1024, 2.0), (2047, 2048, 1.5), (4095, 4096, 1.3)):
        assert expected(odd) < most * expected(even)


def timed(document: Mapping[str, Any]) -> Iterator[tuple[gp.GemmProblem, Parameters, float]]:
    """Products, tilings and times of `benchmarks/mma.py`, and of `benchmarks/parameters.py`, where FP8 makes bfloat16.

    Not float32, which had passes then that it has no more.
    """
    for one in document["results"]:
        if "trials" in one:
            output = "bfloat16" if "float8" in one["dtype"] else one["dtype"]
            problem = square(one["m"], one["dtype"], one["trans_a"] + one["trans_b"], output=output)
            for trial in one["trials"]:
                yield problem, WGMMA.complete(trial["parameters"]), trial["seconds"]["median"]
        elif one["dtype"] != "float32":
            problem = square(one["m"], one["dtype"], one["ops"], output=one["output"])
            values = {parameter: choice["value"] for parameter, choice in one["parameters"].items()}
            yield problem, WGMMA.complete(values), one["seconds"]["median"]


@pytest.mark.parametrize(
    ("name", "chosen_were_timed"),
    [
        ("halves", {"float16", "bfloat16"}),
        ("others", {"int8"}),
        ("fp8", {"float8_e4m3fn"}),
        ("early", {"bfloat16"}),
    ],
)
def test_predictions_are_near_the_times_on_file_and_the_choice_is_near_the_fastest(
    name: str, chosen_were_timed: set[str]
) -> None:
    """Of an H100. In the first two, no launch began early; FP8 has other tilings since, which the third has."""
    document = json.loads((RESULTS / "h100" / "study" / f"wgmma-{name}.json").read_text("utf-8"))
    (described,) = document["environment"]["devices"].values()
    device = gp.DeviceInfo.from_dict({each.name: described[each.name] for each in fields(gp.DeviceInfo)})
    ratios, times = [], defaultdict(list)
    for problem, values, seconds in timed(document):
        prediction = WGMMA.predicted(problem, device, model_of(device), values)
        ratios.append(prediction.seconds / seconds)
        times[problem].append((seconds, values))
    assert sum(1 / 1.25 <= ratio <= 1.25 for ratio in ratios) > 0.9 * len(ratios)
    matched = set()
    for problem, found in times.items():
        chosen = gp.plan(problem, device)
        assert chosen.variant == "wgmma"
        values = {parameter: choice.value for parameter, choice in chosen.parameters}
        for seconds, full in found:
            if full == {**values, "EARLY": full["EARLY"]}:
                matched.add(problem.dtype.name)
                assert seconds < 1.1 * min(each for each, others in found if others["EARLY"] == full["EARLY"])
    assert matched == chosen_were_timed


def swept(label: str) -> tuple[gp.DeviceInfo, Swept]:
    """A product of the sweep in bfloat16 on an H100."""
    sweep = read_sweep(RESULTS / "h100" / "sweep" / "halves.jsonl")
    (found,) = (each for each in sweep.swept if label in each.workload.label)
    return sweep.device, found


def test_rows_that_begin_within_lines_of_caches_are_not_read_as_fast_by_small_tiles() -> None:
    """At 1000, where rows have 2000 bytes, the fastest tile is larger than at 1024, of rows of whole lines."""
    chosen = []
    for label in ("square 1000", "square 1024"):
        device, found = swept(label)
        values = WGMMA.suggested(found.workload.problem, device, model_of(device))
        fastest = found.timed[0].parameters
        assert [values[name] for name in ("TSM", "TSN")] == [fastest[name] for name in ("TSM", "TSN")]
        chosen.append(values["TSM"] * values["TSN"])
    assert chosen[0] > chosen[1]
    predictions = [
        WGMMA.predicted(square(1000), CUDA, model_of(CUDA), WGMMA.complete({**LARGE, "SHARE": 0, "CLUSTER": each}))
        for each in ("none", "a", "b")
    ]
    alone, of_a, of_b = (each.parts["caches"] for each in predictions)
    assert alone == pytest.approx((0.875 * 1000 * 4 + 0.875 * 1000 * 8) * 1000 * 2 / 4.7e12)
    assert of_a == pytest.approx((0.875 * 1000 * 2 + 0.875 * 1000 * 8) * 1000 * 2 / 4.7e12)
    assert of_b == pytest.approx((0.875 * 1000 * 4 + 0.875 * 1000 * 4) * 1000 * 2 / 4.7e12)
    assert WGMMA.predicted(square(1024), CUDA, model_of(CUDA), WGMMA.complete(LARGE)).parts["caches"] == 0


@pytest.mark.parametrize("name", ["early", "fp8"])
def test_a_launch_that_begins_early_is_expected_to_take_as_much_less_as_it_took(name: str) -> None:
    """At 512 to 2048: larger products' times vary by more."""
    document = json.loads((RESULTS / "h100" / "study" / f"wgmma-{name}.json").read_text("utf-8"))
    times: dict[tuple[object, ...], dict[int, float]] = defaultdict(dict)
    for problem, values, seconds in timed(document):
        if problem.m <= 2048:
            key = (problem, *(value for parameter, value in values.items() if parameter != "EARLY"))
            times[key][int(values["EARLY"])] = seconds
    saved = [seconds[0] - seconds[1] for seconds in times.values() if len(seconds) == 2]
    late, early = (
        WGMMA.predicted(
            square(1024), CUDA, model_of(CUDA), WGMMA.complete({**LARGE, "SHARE": 0, "EARLY": early})
        ).seconds
        for early in (0, 1)
    )
    assert saved
    assert all(0.75 < one / (late - early) < 1.25 for one in saved)


@pytest.mark.parametrize(
    ("params", "told"),
    [
        ({"TSM": 64, "WM": 128}, "TSM % WM = 0"),
        ({"TSM": 256, "TSN": 256, "WM": 128}, "WM · TSN ≤ 16384"),
        ({"TSM": 256, "TSN": 64, "WM": 64}, "TSM / WM ≤ 2, and 8192 where it is 3"),
        ({"TSM": 192, "TSN": 192, "WM": 64}, "8192 where it is 3"),
        ({"TSM": 128, "TSN": 128, "WM": 64, "GROUPS": 2}, "4096 where TSM / WM = 2"),
        ({"TSM": 64, "CLUSTER": "a"}, "TSM % 128 = 0 with CLUSTER = a"),
        ({"TSN": 192, "CLUSTER": "b"}, "TSN % 128 = 0 with CLUSTER = b"),
        ({"TSN": 256, "CLUSTER": "d"}, "with CLUSTER = d, WM · TSN ≤ 8192"),
        ({"SHARE": 1, "CLUSTER": "d"}, "SHARE = 0 with CLUSTER = d"),
        ({"SHARE": 1, "EARLY": 1}, "SHARE = 0 with EARLY = 1"),
    ],
)
def test_a_rule_that_is_broken_is_told(params: Parameters, told: str) -> None:
    with pytest.raises(gp.ParameterError, match=re.escape(told)):
        WGMMA.complete(params)


@pytest.mark.parametrize(
    ("dtype", "params", "told"),
    [
        ("float8_e5m2", LARGE, "(WM + 64) · TSN must be at most 24,576 with GROUPS = 1 and TSM / WM = 2; it is 32,768"),
        ("float32", TALL, "WM · (TSN + 64) must be at most 20,480 with GROUPS = 1 and TSM / WM = 2; it is 24,576"),
    ],
)
def test_registers_hold_more_than_sums_of_some_types(dtype: str, params: Parameters, told: str) -> None:
    with pytest.raises(gp.ParameterError, match=re.escape(told)):
        plan(square(4096, dtype, **more_of(dtype)), params)
    plan(square(4096, dtype, **more_of(dtype)), TALL if params is LARGE else LARGE)


# What the copy engine is told


def told_of(problem: gp.GemmProblem) -> dict[str, tuple[TensorMap, int, int]]:
    """By operand, its map, and x and y of where it begins there."""
    arguments: tuple[Argument, ...] = plan(problem, BASE["wgmma"]).launches[-3].arguments
    a, b = arguments[:2]
    numbers = [each.value for each in arguments[-8:-4] if isinstance(each, Integer)]
    assert isinstance(a, TensorMap)
    assert isinstance(b, TensorMap)
    return {"a": (a, numbers[0], numbers[1]), "b": (b, numbers[2], numbers[3])}


def test_a_map_has_the_operand_s_rows_and_where_it_begins() -> None:
    """A of 1000 × 2048, along k, begins at row 3 and column 8 of memory with rows of 2064; B, 2048 × 1008, lies across k."""
    a, b = gp.Layout(2064, 2064 * 1010, 3 * 2064 + 8), gp.Layout(1008)
    problem = gp.GemmProblem.create(1000, 1008, 2048, batch=3, dtype="float16", a=a, b=b)
    told = told_of(problem)
    assert told["a"] == (TensorMap("a", "float16", (2056, 1003, 3), (4128, 4128 * 1010), (64, 64)), 8, 3)
    assert told["b"] == (TensorMap("b", "float16", (1008, 2048, 1), (2016, 2016 * 2048), (64, 64)), 0, 0)


@pytest.mark.parametrize(
    "layout",
    [
        gp.Layout(1001),  # rows that are not aligned
        gp.Layout(1008, base_alignment=8),
        gp.Layout(1008, 1008 * 1000 + 1),
        gp.Layout(1008, 1008 * 1000 + 8),  # a stride between multiples of the one before
        gp.Layout(1008, 1008 * 8),  # matrices that overlap
        gp.Layout(1008, offset=16),  # rows that reach into the next one's
        gp.Layout(1008, 1008 * 1000, offset=1),  # copies would begin between multiples of 16 bytes
    ],
    ids=["rows", "memory", "matrices", "stride", "overlap", "offset", "beginning"],
)
@pytest.mark.parametrize("operand", ["a", "b"])
def test_what_the_copy_engine_cannot_address_is_laid_out_anew(operand: str, layout: gp.Layout) -> None:
    problem = gp.GemmProblem.create(1000, 1000, 1000, batch=2, dtype="float16", **{operand: layout})
    made = plan(problem, BASE["wgmma"])
    assert [each.name for each in made.scratch if each.name != "parts"] == [f"{operand}_anew"]
    assert made.launches[0].kernel.stem == "relayout"
    found = told_of(problem)[operand][0]
    assert (found.name, found.strides[0]) == (f"{operand}_anew", 2048)


@pytest.mark.parametrize(("size", "tiles", "even"), [(784, 49, True), (2048, 256, False)])
def test_where_all_tiles_are_shared_each_has_as_many_sharers(size: int, tiles: int, *, even: bool) -> None:
    """So that they go along k in step, and take the steps in turns."""
    problem = gp.GemmProblem.create(size, size, 60000, dtype="bfloat16")
    (shares,) = (
        launch
        for launch in plan(problem, {"TSM": 128, "TSN": 128, "STAGES": 6, "SHARE": 1}).launches
        if ("SHARES", 1) in launch.kernel.defines and launch.kernel.function == "wgmma"
    )
    whole, shared, sharers = (x.value for x in shares.arguments[-3:] if isinstance(x, Integer))
    assert whole + shared == tiles
    assert (whole, sharers % shared) == (0, 0) if even else whole > 0
    assert dict(shares.kernel.defines)["IN_TURNS"] == even
    assert shared < sharers <= CUDA.compute_units


@pytest.mark.parametrize("dtype", ALONG_K)
def test_what_lies_across_k_is_transposed_and_float32_rounded(dtype: str) -> None:
    """1024 × 2048 by 2048 × 512: a map has lines of 128 bytes, and of 2048 terms. A of float32 is read as it lies, and rounded
    in registers; B by the pass.
    """
    size = 4 if dtype == "float32" else 1
    for ops in LAYOUTS:
        problem = gp.GemmProblem.create(1024, 512, 2048, dtype=dtype, trans_a=ops[0], trans_b=ops[1], **more_of(dtype))
        made = plan(problem, {**FEWER, "SHARE": 0})
        across = {"a": ops[0] == "T", "b": ops[1] == "N"}
        stems = [launch.kernel.stem for launch in made.launches]
        anew = {"a": across["a"] and size == 1, "b": across["b"] or size == 4}
        assert stems == ["relayout"] * sum(anew.values()) + ["wgmma"]
        rounds = [dict(launch.kernel.defines)["ROUNDS"] for launch in made.launches[:-1]]
        assert rounds == [int(size == 4)] * len(rounds)
        assert dict(made.launches[-1].kernel.defines)["ROUNDS_A"] == int(size == 4)
        maps = [each for each in made.launches[-1].arguments if isinstance(each, TensorMap)]
        assert [each.name for each in maps] == [f"{x}_anew" if anew[x] else x for x in across]
        as_it_lies = across["a"] and not anew["a"]
        assert [each.sizes for each in maps] == [(1024, 2048, 1) if as_it_lies else (2048, 1024, 1), (2048, 512, 1)]
        assert [each.tile for each in maps] == [(32, 32) if as_it_lies else (128 // size, 128), (128 // size, 128)]
        assert [each.strides[0] for each in maps] == [(1024 if as_it_lies else 2048) * size, 2048 * size]


@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_a_narrow_precision_is_stored_in_its_type(precision: str) -> None:
    made = plan(square(512, "float32", precision=precision), {**FEWER, "SHARE": 0})
    assert [launch.kernel.stem for launch in made.launches] == ["convert", "wgmma"]
    assert [(each.name, each.dtype) for each in made.launches[-1].arguments if isinstance(each, TensorMap)] == [
        ("a_converted", precision),
        ("b_converted", precision),
    ]


def test_without_terms_nothing_is_laid_out_and_nothing_read() -> None:
    for problem in (square(65, alpha=0.0, beta=2.0), gp.GemmProblem.create(65, 65, 0, dtype="float16")):
        (launch,) = plan(problem, {**BASE["wgmma"], "SHARE": 0}).launches
        assert [each.name for each in launch.arguments if isinstance(each, TensorMap)] == ["d", "d"]


def test_groups_stay_and_take_one_tile_after_the_other() -> None:
    few, many = (plan(square(size), {**LARGE, "SHARE": 0}).launches[-1] for size in (1024, 8192))
    assert (few.groups[0], many.groups[0]) == (8 * 4, CUDA.compute_units)


def test_shared_tiles_have_a_launch_and_their_parts_another() -> None:
    made = plan(square(2048), {**LARGE, "SHARE": 1})
    assert [launch.kernel.function for launch in made.launches] == ["wgmma", "wgmma", "combine"]
    assert [launch.groups[0] for launch in made.launches] == [114, 8 * 14, 8 * 4 * 14]  # as many steps for each
    assert Buffer("parts") in made.launches[-1].arguments


@pytest.mark.parametrize("size", [1, 100, 1001, 8192])
def test_what_is_considered_fits_and_the_first_is_expected_to_be_the_fastest(size: int) -> None:
    problem, model = square(size), model_of(CUDA)
    found = WGMMA.considered(problem, CUDA, model)
    seconds = [WGMMA.predicted(problem, CUDA, model, WGMMA.complete(each)).seconds for each in found]
    assert seconds == sorted(seconds)
    assert 0 < seconds[0] < 1
    for each in found:
        plan(problem, each)


# Clusters, and launches that begin early

IN_CLUSTERS: Mapping[str, Parameters] = {
    "a": {"TSM": 128, "TSN": 256, "WM": 64, "STAGES": 4, "GROUPS": 1, "CLUSTER": "a"},
    "b": {"TSM": 256, "TSN": 128, "WM": 128, "STAGES": 4, "GROUPS": 1, "CLUSTER": "b"},
    "d": {"TSM": 128, "TSN": 128, "WM": 64, "STAGES": 4, "GROUPS": 1, "CLUSTER": "d"},
}
"""By what two groups share, the largest tiles."""


@pytest.mark.parametrize(
    ("shared", "groups", "boxes"),
    [
        ("a", 2 * 8 * 2, [(64, 64), (64, 64)]),
        ("b", 2 * 2 * 7, [(64, 256), (64, 64)]),
        ("d", 2 * 8 * 7, [(64, 128), (64, 64)]),
    ],
)
def test_clusters_have_two_groups_and_copy_halves_of_what_they_share(
    shared: str, groups: int, boxes: list[tuple[int, int]]
) -> None:
    """Of 900 × 800, in tiles of 128 × 256, 256 × 128 and 128 × 128; a group may be there without a tile of its own."""
    problem = gp.GemmProblem.create(900, 800, 512, dtype="float16")
    (launch,) = plan(problem, IN_CLUSTERS[shared]).launches
    assert launch.groups == (min(groups, CUDA.compute_units), 1, 1)
    assert [each.tile for each in launch.arguments if isinstance(each, TensorMap)] == boxes
    turned = plan(replace(problem, trans_b="T", b=gp.Layout(512)), IN_CLUSTERS[shared]).launches[0]
    assert [each.tile for each in turned.arguments if isinstance(each, TensorMap)][1] == (
        64,
        64 if shared == "b" else LINES[shared],
    )


LINES = {"a": 256, "d": 128}
"""Of a tile of B."""


def test_a_cluster_is_launched_where_there_are_few_compute_units() -> None:
    for units in (1, 3):
        (launch,) = gp.plan(
            square(1024), replace(CUDA, compute_units=units), kernel="wgmma", params=IN_CLUSTERS["b"]
        ).launches
        assert launch.groups == (2, 1, 1)


@pytest.mark.parametrize("params", [{"CLUSTER": "d"}, {"EARLY": 1}])
def test_opencl_launches_no_clusters_and_nothing_early(params: Parameters) -> None:
    with pytest.raises(gp.ParameterError, match="CLUSTER must be none, and EARLY 0"):
        gp.plan(square(1024), OPENCL, kernel="wgmma", params=params)


def test_a_source_says_that_its_launches_begin_early() -> None:
    for early in (0, 1):
        (launch,) = plan(square(1024), {**LARGE, "SHARE": 0, "EARLY": early}).launches
        assert _compilation.begins_early(assemble(launch.kernel, "cuda")) == bool(early)


def test_clusters_are_for_those_who_ask_elsewhere_and_launches_begin_early_where_they_may() -> None:
    for device in (CUDA, OPENCL):
        for size in (512, 1024, 4096):
            for each in WGMMA.considered(square(size), device, model_of(device)):
                full = WGMMA.complete(each)
                assert full["CLUSTER"] == "none" or (device is CUDA and full["SHARE"] and size < 4096)
                assert full["EARLY"] == int(device is CUDA and full["SHARE"] == 0)


def test_clusters_are_considered_where_they_share_all_tiles_and_none_is_beyond_d() -> None:
    few = gp.GemmProblem.create(384, 376, 147456, dtype="bfloat16")  # two rows of 192, three columns of 128
    found = [WGMMA.complete(each) for each in WGMMA.considered(few, CUDA, model_of(CUDA))]
    assert found[0]["CLUSTER"] == "b"
    clusters = [each for each in found if each["CLUSTER"] != "none"]
    assert {(each["TSM"], each["TSN"], each["CLUSTER"]) for each in clusters} >= {(192, 128, "b"), (128, 192, "a")}
    for each in clusters:
        size, extent = {"a": (each["TSN"], 376), "b": (each["TSM"], 384)}[str(each["CLUSTER"])]
        assert -(-extent // int(size)) % 2 == 0
        assert [launch.kernel.function for launch in plan(few, each).launches] == ["wgmma", "combine"]
    tiny = gp.GemmProblem.create(64, 64, 64, dtype="float16")
    for problem, device in ((few, OPENCL), (tiny, CUDA)):
        for each in WGMMA.considered(problem, device, model_of(device)):
            assert WGMMA.complete(each)["CLUSTER"] == "none"


def test_passes_before_begin_early_too() -> None:
    for early in (0, 1):
        made = plan(square(1001), {**LARGE, "SHARE": 0, "EARLY": early})
        assert [launch.kernel.stem for launch in made.launches] == ["relayout", "relayout", "wgmma"]
        assert all(
            _compilation.begins_early(assemble(launch.kernel, "cuda")) == bool(early) for launch in made.launches
        )


@needs(CUDA_COMPILER)
@pytest.mark.sample(shared=["a"], dtype=["bfloat16"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn"])
@pytest.mark.parametrize("shared", IN_CLUSTERS)
def test_clusters_keep_their_sums_in_registers_too(shared: str, dtype: str) -> None:
    problem = square(4099, dtype, "NT", output="float32", beta=1.0)
    params = {**IN_CLUSTERS[shared], "EARLY": 1}
    if WGMMA.unfit(WGMMA.complete(params), problem, CUDA):
        params |= {"TSM": 128, "TSN": 128, "WM": 64}
    check_registers(problem, params)
    made = compiled(problem, params).ptx
    assert ".reqnctapercluster 2, 1, 1" in made
    assert ("multicast::cluster" in made) == (shared != "d")
    assert "griddepcontrol.wait" in made


# What is compiled


def compiled(problem: gp.GemmProblem, params: Parameters, scales: ScaleLayouts | None = None) -> _nvrtc.Compiled:
    """The product itself, of what is not shared, with what the compiler says."""
    launch = plan(problem, {**params, "SHARE": 0}).launches[-1]
    source = assemble((launch if scales is None else with_scales(launch, scales)).kernel, "cuda")
    return _nvrtc._compile(source, "sm_90", (*_nvrtc.CUDA_OPTIONS, *_nvrtc._verbose()))


@needs(CUDA_COMPILER)
@pytest.mark.sample(dtype=["bfloat16"], ops=["NN"])
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("ops", LAYOUTS)
def test_products_are_those_of_four_warps(dtype: str, ops: str) -> None:
    """Four a step, each of 16 terms; tiles come by the copy engine; an operand that lies across k is turned."""
    ptx = compiled(square(4096, dtype, ops), LARGE).ptx
    unit = {"float16": "m64n256k16.f32.f16.f16", "bfloat16": "m64n256k16.f32.bf16.bf16"}[dtype]
    across = (int(ops[0] == "T"), int(ops[1] == "N"))
    turns = re.findall(rf"wgmma\.mma_async\.sync\.aligned\.{unit} [^;]*p, 1, 1, (\d), (\d)", ptx)
    assert len(turns) % 4 == 0
    assert {*turns} == {tuple(map(str, across))}
    copies = ptx.count("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes")
    assert copies % sum(blocks if lies else 1 for blocks, lies in zip((2, 4), across, strict=True)) == 0
    assert ".target sm_90a" in ptx


@needs(CUDA_COMPILER)
@pytest.mark.sample(dtype=["float8_e4m3fn"])
@pytest.mark.parametrize("dtype", ALONG_K)
def test_products_of_what_lies_along_k_are_those_of_their_type(dtype: str) -> None:
    """Four a step; a step's sums of 8-bit floats begin anew, and are added to others outside of the unit."""
    ptx = compiled(square(4096, dtype, **more_of(dtype)), FEWER).ptx
    found = re.findall(rf"wgmma\.mma_async\.sync\.aligned\.{ALONG_K[dtype][0]} [^;]*p(, 1, 1)?;", ptx)
    assert found
    assert len(found) % 4 == 0
    assert {*found} == {", 1, 1" if ".f32." in ALONG_K[dtype][0] else ""}
    assert ptx.count("wgmma.mma_async") == len(found)
    assert (ptx.count("add.f32") >= 64) == ("float8" in dtype)


@needs(CUDA_COMPILER)
@pytest.mark.sample(number=[4], odd=[True], dtype=["float8_e4m3fn", "int8"])
@pytest.mark.every_pair("dtype", [*ALONG_K])
@pytest.mark.every_pair("number", range(len(TILINGS)))
@pytest.mark.every_pair("odd", [False, True])
def test_all_tilings_of_other_types_keep_their_sums_in_registers(dtype: str, number: int, odd: bool) -> None:
    for output in {"int8": ("int8", "int32"), "uint8": ("uint8", "int32")}.get(dtype, ("float32",)):
        more = {**more_of(dtype), "output": output, "beta": 1.0}
        problem = square(4099 if odd else 4096, dtype, LAYOUTS[number % 4], **more)
        if WGMMA.unfit(WGMMA.complete(TILINGS[number]), problem, CUDA) is None:
            check_registers(problem, TILINGS[number])


@needs(CUDA_COMPILER)
@pytest.mark.sample(number=[0], odd=[True])
@pytest.mark.parametrize("number", range(len(TILINGS)))
@pytest.mark.parametrize("odd", [False, True])
def test_all_tilings_keep_their_sums_in_registers_and_wait_for_no_product_too_early(number: int, odd: bool) -> None:
    """ptxas says so where a product waits for the one before (C7510 to C7520), and where it leaves out setmaxnreg (C7508). The
    count of registers at entry is the whole of what setmaxnreg shares out.
    """
    check_registers(square(4099 if odd else 4096, ops=LAYOUTS[number % 4], output="float32", beta=1.0), TILINGS[number])


@needs(CUDA_COMPILER)
@pytest.mark.sample(number=[0], odd=[True], dtype=["float8_e4m3fn"])
@pytest.mark.every_value("dtype", ["float8_e4m3fn", "float8_e5m2", "float16", "float32"])
@pytest.mark.every_value("number", range(len(TILINGS)))
@pytest.mark.every_value("odd", [False, True])
def test_scales_leave_sums_in_registers(dtype: str, number: int, odd: bool) -> None:
    output = "float32" if dtype == "float32" else "bfloat16" if "float8" in dtype else dtype
    problem = square(4099 if odd else 4096, dtype, "NT", **{**more_of(dtype), "output": output, "beta": 1.0})
    if WGMMA.unfit(WGMMA.complete(TILINGS[number]), problem, CUDA) is None:
        check_registers(problem, TILINGS[number], (ScaleLayout(0, 1, 4096), ScaleLayout(0, 1, 4096)))


def check_registers(problem: gp.GemmProblem, params: Parameters, scales: ScaleLayouts | None = None) -> None:
    log = compiled(problem, params, scales).log
    assert not re.findall(r"\(C\d+\)", log), log
    assert re.findall(r"(\d+) bytes spill stores", log) == ["0"]
    (used,) = map(int, re.findall(r"Used (\d+) registers", log))
    items = WGMMA.work_group(WGMMA.complete(params))[0]
    many = int(WGMMA.defines(WGMMA.complete(params), problem)["MANY_REGISTERS"])
    few = int(WGMMA.defines(WGMMA.complete(params), problem)["FEW_REGISTERS"])
    assert used * items * int(params["GROUPS"]) <= 65536
    assert not many or few * 128 + many * (items - 128) <= used * items


@needs(CUDA_COMPILER)
def test_machine_code_is_told_without_a_device() -> None:
    told = _nvrtc.disassemble(assemble(plan(square(4096), LARGE).launches[0].kernel, "cuda"), "sm_90", "wgmma")
    sass = told.listings[-1].text
    if sass:
        assert sass.count("HGMMA.64x256x16.F32") % 4 == 0
        assert "UTMALDG.3D" in sass
        assert not re.search(r"\b(LDL|STL|HMMA)\b", sass)


# OpenCL


def test_opencl_s_kernel_declares_its_local_memory_and_completes_two_maps_for_each_group() -> None:
    for size, params, groups in ((2048, {**LARGE, "SHARE": 1}, 114), (1024, {**LARGE, "SHARE": 0}, 32)):
        cuda = plan(square(size), params).launches
        made = gp.plan(square(size), OPENCL, kernel="wgmma", params=params)
        (maps,) = (each for each in made.scratch if each.name == "maps")
        assert maps.nbytes == groups * 2 * 128
        for own, launch in zip(made.launches, cuda, strict=True):
            assert own.kernel == launch.kernel
            if own.kernel.function == "wgmma":
                assert own.arguments == (*launch.arguments, Buffer("maps"))
                assert (own.local_bytes, own.dynamic_local_bytes) == (launch.dynamic_local_bytes, 0)
        for own, soon in zip(made.launches, made.meanwhile, strict=True):
            assert soon == replace(own, kernel=soon.kernel)
            assert dict(soon.kernel.defines) == {**dict(own.kernel.defines), "SOON": 1, "READS_C": 0}


def test_opencl_takes_it_where_doctor_has_not_found_it_wrong(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GEMMPORT_CACHE_DIR", str(tmp_path))
    forms = {each.name: each for each in verdicts.forms(OPENCL) if each.kernel == "wgmma"}
    assert {each.dtype for each in forms.values()} == {"float16", "bfloat16", "int8"}
    assert WGMMA.forms(CUDA) == ()

    def chosen(dtype: str) -> str:
        return make_plan(square(4096, dtype), OPENCL, load_configuration()).variant

    for share in (0, 1):
        assert chosen("float16") == "wgmma"
        verdicts.note(forms[f"float16 with SHARE = {share}"], OPENCL, right=share == 0)
    assert (chosen("float16"), chosen("bfloat16")) == ("mma", "wgmma")
    verdicts.note(forms["float16 with SHARE = 1"], OPENCL, right=True)
    assert chosen("float16") == "wgmma"


@pytest.mark.machine_code
@pytest.mark.sample(number=[0], dtype=["float16"])
@pytest.mark.parametrize("number", range(len(TILINGS)))
@pytest.mark.parametrize("dtype", [*TYPES, *ALONG_K])
def test_opencl_s_source_is_completed_and_waits_for_no_product_too_early(
    dtype: str, number: int, tmp_path: Path
) -> None:
    """As under CUDA, of what clang makes of it; with scales, where sums are floats, of every second tiling. So is what is
    launched meanwhile, whose loops are not written out.
    """
    params = {**TILINGS[number], "SHARE": number % 2}
    scales = (ScaleLayout(0, 1), ScaleLayout(3, -1)) if number % 4 < 2 and "int" not in dtype else None
    problem = square(1001, dtype, LAYOUTS[number % 4], beta=1.0, **more_of(dtype))
    if WGMMA.unfit(WGMMA.complete(params), problem, OPENCL) is None:
        made = gp.plan(problem, OPENCL, kernel="wgmma", params=params)
        for pair in zip(made.launches, made.meanwhile, strict=True):
            if pair[0].kernel.function == "wgmma":
                whole = pair if scales is None else [with_scales(launch, scales) for launch in pair]
                own, meanwhile = (
                    opencl_for_nvidia.compiled(launch, "sm_90", tmp_path).count("wgmma.mma_async") for launch in whole
                )
                # Of float32 the loop is written out, since A passes through registers.
                assert 0 < meanwhile == (own if dtype == "float32" else own // 4)


@pytest.mark.sample(dtype=["float8_e4m3fn"], share=[0])
@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "bfloat16", "float32"])
@pytest.mark.parametrize("share", [0, 1])
def test_sums_are_scaled_as_they_are_stored(backend: gp.Backend, dtype: str, share: int) -> None:
    """On a GPU that has the unit; tests/host has it in the simulator."""
    output = "float32" if dtype == "float32" else "bfloat16"
    problem = problem_of(
        Sizes(300, 520, 680), "NT", dtype, multiple=16, batch=2,
        **{**more_of(dtype), "output": output, "alpha": 2.0, "beta": -1.0},
    )  # fmt: skip
    if WGMMA.unsupported(problem, backend.device):
        pytest.skip(beyond(backend.device, "it has no groups of warps that multiply"))
    check_scales_of_kernel(backend, "wgmma", problem, {**FEWER, "SHARE": share})


@pytest.mark.sample(dtype=["float16"], beta=[0.0])
@pytest.mark.parametrize("dtype", ["float16", "int8", "float32", "float8_e4m3fn"])
@pytest.mark.parametrize("beta", [0.0, 0.5])
def test_what_is_launched_meanwhile_writes_the_same_bits(backend: gp.Backend, dtype: str, beta: float) -> None:
    """On a GPU that has the unit; tests/host has it in the simulator. C is poison where beta is 0."""
    more = {**more_of(dtype), "beta": 2 * beta if dtype == "int8" else beta}
    problem = problem_of(Sizes(300, 520, 680), "NT", dtype, multiple=16, **more)
    if WGMMA.unsupported(problem, backend.device):
        pytest.skip(beyond(backend.device, "it has no groups of warps that multiply"))
    for share in (0, 1):
        own = gp.plan(problem, backend.device, kernel="wgmma", params={**FEWER, "SHARE": share})
        soon = replace(own, launches=own.meanwhile)
        assert soon.launches
        check_plan(backend, soon)
        values = random_operands(problem, 5)
        np.testing.assert_array_equal(run_plan(backend, soon, values), run_plan(backend, own, values))
