"""An explanation: its facts are those of the plan, the model and the configuration, and its page tells them."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest

from gemmport.core.device import DeviceInfo
from gemmport.core.errors import ParameterError
from gemmport.core.problem import GemmProblem
from gemmport.kernels._simt_tilings import FOR_CORES
from gemmport.planning import parser
from gemmport.planning.explanation import Explanation, Measured, explain
from gemmport.planning.explanation_page import WIDTH
from gemmport.planning.explanation_page import page as page_of
from gemmport.planning.lookup import Configuration, load_configuration
from gemmport.planning.planner import candidates, make_plan
from made_up_devices import DEVICES

HOPPER = DEVICES["NVIDIA sm_90 under CUDA"]
GFX90A = DEVICES["AMD gfx90a"]
CPU = DEVICES["CPU under PoCL"]
SQUARE = GemmProblem.create(1024, 1024, 1024)
SECTIONS = ("device", "roofline", "plan", "prediction", "candidates", "entries")


def configuration(text: str) -> Configuration:
    loaded = parser.parse(text, "mine.yaml", "shipped")
    return Configuration(loaded.entries, models=loaded.models)


RATES = configuration(
    """
    schema: 1
    models:
    - {name: round, multiply_adds: {float32: 1.0e+12, float64: 5.0e+11, int32: 2.5e+11}, read_bandwidth: 1.0e+11}
    entries:
    - {name: first, match: {type: gpu}, kernels: {gemv: {}, tiled: {TS: 16}, naive: {TS: 16}}}
    - {name: second, kernels: {register_tiled: {}}}
    - {name: elsewhere, match: {vendor: arm}, kernels: {naive: {}}}
    """
)
"""Round figures, and entries of which the first serves a GPU."""


def section(found: Explanation, name: str) -> str:
    """What the page tells of a section, its lines joined."""
    lines = str(found).splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith(name))
    told = [lines[first][len(name) :].strip()]
    for line in lines[first + 1 :]:
        if not line.startswith(" "):
            break
        told.append(line.strip())
    return " ".join(told)


# The roofline


@pytest.mark.parametrize(
    ("problem", "peak", "bound", "seconds"),
    [
        (GemmProblem.create(1000, 1000, 1000), 2e12, "multiply-adds", 1e-3),
        (GemmProblem.create(1000, 1000, 1000, dtype="float64"), 1e12, "multiply-adds", 2e-3),
        (GemmProblem.create(1000, 1000, 1000, dtype="complex64"), 2e12, "multiply-adds", 4e-3),
        (GemmProblem.create(1000, 1000, 1000, dtype="int32"), 5e11, "multiply-adds", 4e-3),
        (GemmProblem.create(1, 1000, 1000), 2e12, "memory", 4 * 1_002_000 / 1e11),
        (GemmProblem.create(1, 1000, 1000, batch=3), 2e12, "memory", 3 * 4 * 1_002_000 / 1e11),
    ],
    ids=str,
)
def test_the_roof_is_the_models_rate_and_bandwidth(
    problem: GemmProblem, peak: float, bound: str, seconds: float
) -> None:
    """A complex multiply-add is four real ones, and eight operations."""
    roof = explain(problem, HOPPER, RATES).roofline
    assert (roof.operations, roof.nbytes, roof.bandwidth) == (problem.flops, problem.bytes, 1e11)
    assert roof.peak == pytest.approx(peak)
    assert roof.bound == bound
    assert roof.seconds == pytest.approx(seconds)
    assert roof.ridge == pytest.approx(peak / 1e11)
    assert roof.attainable(roof.intensity) == pytest.approx(problem.flops / seconds)


UNITS = configuration(
    """
    schema: 1
    models:
    - name: round
      multiply_adds: {float32: 1.0e+12, float64: 5.0e+11, int32: 2.5e+11}
      read_bandwidth: 1.0e+13
      kernels:
        simt: {fitted: {matrix_rate: 2}}
        mma: {fitted: {products: 500}}
        wgmma: {fitted: {products: 1000}}
        sub_group_mma: {fitted: {products: 500, products_of_bytes: 800}}
    """
)

TILES: dict[str, dict[str, int]] = {
    "NVIDIA's": {"MMA": 1, "PAD": 0, "TSM": 32, "TSN": 32, "WM": 32, "WN": 16, "WPTM": 4, "WPTN": 4},
    "AMD's": dict(FOR_CORES["float64"][0]),
}
"""Of `simt`, by whose matrix unit multiplies."""


@pytest.mark.parametrize(
    ("device", "kernel", "problem", "per_clock", "told"),
    [
        (HOPPER, "wgmma", {"dtype": "float16"}, 1000, "float16"),
        (HOPPER, "wgmma", {"dtype": "float8_e4m3fn"}, 2000, "float8_e4m3fn"),
        (HOPPER, "wgmma", {"dtype": "float32", "precision": "tf32"}, 500, "tf32"),
        (HOPPER, "mma", {"dtype": "float32", "precision": "bfloat16"}, 500, "bfloat16"),
        (HOPPER, "mma", {"dtype": "float8_e4m3fn"}, 500, "float8_e4m3fn"),  # as halves, on Hopper
        (HOPPER, "mma", {"dtype": "int8"}, 1000, "int8"),
        (HOPPER, "simt", {"dtype": "float64"}, 0, "float64"),
        (HOPPER, "simt", {"dtype": "complex128"}, 0, "complex128"),
        (GFX90A, "simt", {"dtype": "float64"}, 0, "float64"),
        (GFX90A, "sub_group_mma", {"dtype": "float16"}, 500, "float16"),
        (GFX90A, "sub_group_mma", {"dtype": "int8", "output": "int32"}, 800, "int8"),
    ],
    ids=lambda value: value.architecture if isinstance(value, DeviceInfo) else str(value),
)
def test_the_roof_of_what_the_matrix_unit_multiplies_is_its_rate(
    device: DeviceInfo, kernel: str, problem: dict[str, str], per_clock: float, told: str
) -> None:
    own = GemmProblem.create(4096, 4096, 4096, **problem)
    params = TILES["NVIDIA's" if device is HOPPER else "AMD's"] if kernel == "simt" else {}
    found = explain(own, device, UNITS, kernel=kernel, params=params)
    clocks = device.compute_units * (device.clock_mhz or 0) * 1e6
    assert found.roofline.by_unit
    # A complex multiply-add is four of real numbers, and eight operations.
    assert found.roofline.peak == pytest.approx(2 * per_clock * clocks or 2 * 2 * 5e11)
    assert f" {told} by the matrix unit, reads 10 TB/s" in section(found, "device")
    assert section(found, "roofline").endswith("FLOPS by the matrix unit")
    plain = explain(replace(own, precision="full"), device, UNITS, kernel="naive")
    assert not plain.roofline.by_unit
    assert "by the matrix unit" not in str(plain)


@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_the_roof_of_rounded_operands_is_that_of_what_they_become(precision: str) -> None:
    """A kernel that takes them in the narrow type has no instruction for float32."""
    device, own = DEVICES["AMD gfx90a"], GemmProblem.create(4096, 4096, 4096, precision=precision)
    found = explain(own, device, RATES, kernel="sub_group_mma")
    halves = GemmProblem.create(4096, 4096, 4096, dtype=precision, output="float32")
    assert found.roofline.by_unit
    assert found.roofline.peak == explain(halves, device, RATES, kernel="sub_group_mma").roofline.peak
    assert section(found, "roofline").endswith("FLOPS by the matrix unit")


def test_the_page_tells_the_roof() -> None:
    told = section(explain(GemmProblem.create(1000, 1000, 1000), HOPPER, RATES), "roofline")
    assert told == (
        "2 GFLOP over 12 MB at least: 167 FLOP/B; the ridge is at 20: bound by multiply-adds at best 1 ms, 2 TFLOPS"
    )


# The plan and its prediction


def test_the_plan_is_the_planners_and_the_prediction_the_kernels() -> None:
    found = explain(SQUARE, HOPPER, load_configuration())
    assert found.plan == make_plan(SQUARE, HOPPER, load_configuration())
    assert found.model == load_configuration().model(HOPPER)
    assert found.prediction is not None
    assert found.prediction.seconds >= found.roofline.seconds
    told = section(found, "plan")
    for launch in found.plan.launches:
        assert f"{launch.kernel.function}, {launch.groups[0]:,} groups of {launch.work_group[0]:,} work-items" in told
    for name, choice in found.plan.parameters:
        assert f"{name}={choice.value}" in told
        assert choice.origin in told
    for scratch in found.plan.scratch:
        assert f"scratch {scratch.name}: " in told


def test_the_longest_part_has_the_longest_bar() -> None:
    found = explain(SQUARE, HOPPER, load_configuration())
    assert found.prediction is not None
    bars = {
        line.strip().split("  ")[0]: line.count("█")
        for line in str(found).splitlines()
        if line.startswith(f"{'':16}") and "█" in line
    }
    parts = found.prediction.parts
    assert bars
    assert max(bars, key=lambda name: bars[name]) == max(parts, key=lambda name: parts[name])
    for name, length in bars.items():
        assert length == round(30 * parts[name] / max(parts.values()))


def test_what_is_beyond_the_edge_is_told() -> None:
    assert "more in tiles beyond the edge" in section(explain(GemmProblem.create(65, 65, 64), CPU, RATES), "prediction")


def test_nothing_is_predicted_of_a_product_of_nothing() -> None:
    found = explain(GemmProblem.create(0, 5, 5), HOPPER, RATES)
    assert found.prediction is None
    assert section(found, "prediction") == "nothing: the result has no elements"
    assert "\ncandidates" not in str(found)
    assert section(explain(GemmProblem.create(5, 5, 0), HOPPER, RATES), "roofline").startswith("nothing to multiply")


# Candidates and entries


def verdicts(found: Explanation) -> dict[tuple[str, str], str]:
    return {(each.kernel, each.origin): each.verdict for each in found.considered}


def test_every_candidate_is_there_once_and_told_why_it_is_not_the_plan() -> None:
    found = explain(SQUARE, HOPPER, RATES)
    first, second = "mine.yaml: first", "mine.yaml: second"
    told = verdicts(found)
    assert told["tiled", first] == ""
    assert told["gemv", first].startswith("it reads the matrix once for 4 vectors at most")
    assert told["naive", first] == "its entry prefers tiled"
    assert told["register_tiled", second] == f"of {second}, which lost"
    assert [verdict for (kernel, _), verdict in told.items() if kernel == "wpt"] == ["in no entry, tried last"]
    assert [each.kernel for each in found.considered if each.chosen] == ["tiled"]
    assert {each.kernel for each in found.considered if each.passed_over} >= {"gemv", "packed"}
    keys = [(each.kernel, *sorted(each.parameters.items())) for each in found.considered]
    assert len(keys) == len(set(keys))
    assert {key[0] for key in keys} == {each.kernel for each in candidates(SQUARE, HOPPER, RATES)}


def test_of_tilings_the_model_chooses_and_the_others_say_so() -> None:
    found = explain(SQUARE, HOPPER, load_configuration())
    of_simt = [each for each in found.considered if (each.kernel, each.origin) == ("simt", found.plan.entry)]
    assert len(of_simt) > 10
    (own,) = (each for each in of_simt if each.chosen)
    assert own.seconds is not None
    for each in of_simt:
        assert each.seconds is not None
        if not each.chosen:
            slower = each.seconds >= own.seconds
            assert each.verdict == (
                "the plan is expected to be faster" if slower else "so small a gain is not counted on"
            )


def test_without_entries_the_model_chooses_among_kernels() -> None:
    found = explain(SQUARE, CPU, Configuration(()))
    assert found.precedence.winner is None
    others = [each for each in found.considered if not each.chosen and not each.passed_over]
    assert others
    assert {each.verdict for each in others} <= {
        "the plan is expected to be faster",
        "so small a gain is not counted on",
    }


@pytest.mark.parametrize(
    ("asked", "verdict"),
    [({"kernel": "naive"}, "naive was asked for"), ({"kernel": "naive", "params": {"TS": 4}}, "naive with --set was asked for"),
     ({"params": {"TS": 8}}, "--set was asked for")],
    ids=str,
)  # fmt: skip
def test_what_was_asked_for_is_the_reason(asked: dict[str, Any], verdict: str) -> None:
    found = explain(SQUARE, HOPPER, RATES, params_origin="--set", **asked)
    (own,) = (each for each in found.considered if each.chosen)
    assert (own.kernel, own.parameters) == (found.plan.variant, found.plan.values)
    fitting = [each for each in found.considered if not each.chosen and not each.passed_over]
    assert {each.verdict for each in fitting} == {verdict}


def test_the_entries_that_lost_are_told() -> None:
    assert section(explain(SQUARE, HOPPER, RATES), "entries") == (
        "mine.yaml: first: serves mine.yaml: second: lost on type: the winner asks for gpu, this one for none 1 more does not "
        "match: gemmport configs --explain says by which key"
    )


def test_an_entry_whose_kernels_do_not_fit_is_told_with_their_reasons() -> None:
    mine = configuration(
        """
        schema: 1
        entries:
        - {name: large, match: {type: gpu}, kernels: {gemv: {}, tiled: {TS: 32}}}
        - {name: small, kernels: {tiled: {TS: 8}}}
        """
    )
    told = section(explain(SQUARE, DEVICES["AMD gfx90a"], mine), "entries")
    assert told.startswith("mine.yaml: small: serves mine.yaml: large: passed over: gemv: it reads the matrix once for")
    assert "; tiled: tiled with TS = 32, PAD = " in told
    assert "needs 1,024 work-items per group; " in told
    asked = section(explain(SQUARE, HOPPER, RATES, kernel="register_tiled"), "entries")
    assert "mine.yaml: first: passed over: it does not list register_tiled 1 more" in asked


TRIED = configuration(
    """
    schema: 1
    entries:
    - name: tuned
      kernels: {tiled: [{TS: 32}, {TS: 16}], naive: {TS: 16}}
      trials:
      - {m: 1024, n: 1024, k: 1024, seconds: {tiled: {0: 0.004, 1: 0.002}, naive: {0: 0.001}}}
    """
)
"""Trials that turn around what a model expects."""


def test_what_trials_say_is_what_was_compared_and_both_numbers_are_told() -> None:
    """The model expects less of the plan than of another candidate, which the trials know to be slower."""
    found = explain(SQUARE, HOPPER, TRIED)
    of_entry = {
        (each.kernel, each.parameters["TS"]): each for each in found.considered if each.origin == found.plan.entry
    }
    own, other = of_entry["naive", 16], of_entry["tiled", 32]
    assert own.chosen
    assert own.seconds is not None
    assert other.seconds is not None
    assert own.seconds > other.seconds  # by the model alone, the page would contradict the choice
    assert own.compared == pytest.approx(0.001, rel=0.01)  # the product that was tried has the time that was measured
    assert other.compared == pytest.approx(0.004, rel=0.01)
    assert of_entry["tiled", 16].compared == pytest.approx(0.002, rel=0.01)
    assert {each.verdict for each in of_entry.values()} == {"", "the plan is expected to be faster"}
    told = section(found, "candidates")
    assert told.startswith("1 ms  1.00×  naive  ")
    assert " by the model; the plan " in told
    assert re.search(r" 2 ms +2\.00× +tiled +[0-9.]+ [mµ]s by the model; the plan is expected", told)
    assert f"trials of mine.yaml: tuned multiply it by {own.factor:.3g}: 1 ms was compared" in section(
        found, "prediction"
    )
    data = found.to_dict()
    assert data["prediction"]["compared"] == own.compared
    assert [one["compared"] for one in data["candidates"] if one["chosen"]] == [own.compared]


def test_a_candidate_that_was_not_tried_nearby_is_doubted() -> None:
    far = GemmProblem.create(64, 8192, 64)
    found = explain(far, HOPPER, TRIED)
    own = found.chosen
    assert own.doubt > 1
    assert own.seconds is not None
    assert own.compared == pytest.approx(own.seconds * own.factor * own.doubt)
    fitting = [each for each in found.considered if not each.passed_over and each.origin == found.plan.entry]
    assert own.compared == min(each.compared for each in fitting if each.compared is not None)
    assert f"and by {own.doubt:.3g} as none is near" in section(found, "prediction")


def test_without_trials_what_the_model_predicts_is_compared() -> None:
    found = explain(SQUARE, HOPPER, RATES)
    assert all(each.compared == each.seconds for each in found.considered)
    assert "compared" not in str(found)
    assert "by the model" not in str(found)


# What was measured


def test_what_was_measured_stands_beside_what_was_predicted() -> None:
    found = explain(SQUARE, HOPPER, RATES)
    assert "\nmeasured" not in str(found)
    assert found.prediction is not None
    twice = Measured(2 * found.prediction.seconds, 0.01, True, found.plan)
    told = section(replace(found, measured=twice), "measured")
    assert "±1.0 %" in told
    assert told.endswith("verified predicted: 0.50 of that")
    assert "WRONG" in section(replace(found, measured=replace(twice, verified=False)), "measured")
    assert "not verified" in section(replace(found, measured=replace(twice, verified=None)), "measured")
    other = make_plan(SQUARE, HOPPER, RATES, kernel="naive")
    assert "what ran is another plan, naive TS=16" in section(
        replace(found, measured=replace(twice, plan=other)), "measured"
    )


# On all devices


def test_candidates_that_take_much_longer_stand_in_the_same_columns() -> None:
    found = explain(SQUARE, DEVICES["CPU under PoCL"], load_configuration())
    slow = tuple(each if each.chosen else replace(each, doubt=1000.0) for each in found.considered)
    lines = [line for line in str(replace(found, considered=slow)).splitlines() if re.search(r" [0-9.]+×  ", line)]
    assert len(lines) > 5
    assert len({line.index("×  ") for line in lines}) == 1


@pytest.mark.parametrize("device", DEVICES.values(), ids=DEVICES)
@pytest.mark.parametrize(
    "problem",
    [GemmProblem.create(1, 1000, 1000), GemmProblem.create(100, 100, 100, batch=8, dtype="int8"), SQUARE,
     GemmProblem.create(4096, 4096, 64, dtype="complex64", trans_a="C", beta=1), GemmProblem.create(0, 1, 1),
     GemmProblem.create(7, 7, 0)],
    ids=str,
)  # fmt: skip
def test_every_device_and_problem_is_explained_on_a_page_and_as_data(device: DeviceInfo, problem: GemmProblem) -> None:
    found = explain(problem, device, load_configuration())
    page = str(found).splitlines()
    assert len(page) < 80
    assert page[0] == f"{problem} ({problem.shape_class}) on {device.label}"
    assert all(len(line) <= WIDTH for line in page if " " in line.strip())
    narrow = page_of(found, 60).splitlines()[1:]
    assert all(len(line) <= 60 for line in narrow if " " in line.strip() and "█" not in line)
    assert " ".join(" ".join(narrow).split()) == " ".join(" ".join(page[1:]).split())
    assert page_of(found, 1000).splitlines() == page
    named = [line.split()[0] for line in page[1:] if line and not line.startswith(" ")]
    assert named == [name for name in SECTIONS if name != "candidates" or not problem.empty]
    data = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert data["plan"]["kernel"] == found.plan.variant
    assert data["roofline"]["operations"] == problem.flops
    assert len(data["candidates"]) == len(found.considered)
    assert data["measured"] is None
    assert (data["prediction"] is None) == problem.empty


def test_what_the_planner_refuses_is_refused() -> None:
    with pytest.raises(ParameterError, match="TS = 99"):
        explain(SQUARE, HOPPER, RATES, kernel="tiled", params={"TS": 99})
