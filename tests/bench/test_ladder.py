"""Ladders: what each step gains, what it is a percentage of, and that a wrong, a refused and an impossible step are told."""

from __future__ import annotations

import csv
import io
import itertools
import json
import sys
from dataclasses import replace
from importlib import import_module

import numpy as np
import pytest

from absences import MATPLOTLIB, beyond, skip_without
from gemmport import cli, kernels
from gemmport.bench import pass_jobs, passes
from gemmport.bench.ladder import Climb, Step, climb_gemm, climbs
from gemmport.bench.pass_jobs import Reduction, Transposition
from gemmport.bench.passes import PassOptions, PassResult, run_passes
from gemmport.bench.products import Options, Result
from gemmport.bench.results import BaselineResult
from gemmport.bench.timing import Timing
from gemmport.checking.verification import Check
from gemmport.cli import plots
from gemmport.contracts.kernel import Rung
from gemmport.core.dtypes import DTYPES
from gemmport.core.errors import DeviceMemoryError
from gemmport.core.problem import GemmProblem
from gemmport.planning.lookup import load_configuration
from made_up_devices import DEVICES
from mutations import NAIVE, planted
from passes import COPY, GROUPS, ITEMS, LADDERS, PLAIN, SECOND, TURN, UNSUPPORTED, Move, Sum

H100, H100_OPENCL = DEVICES["NVIDIA sm_90 under CUDA"], DEVICES["NVIDIA sm_90 under OpenCL"]


def timing(seconds):
    return Timing((0.8 * seconds, 0.9 * seconds, seconds, 1.1 * seconds, 1.2 * seconds), 1)


def product(kernel, seconds, *, device=H100, status="ok", baseline=None):
    problem = GemmProblem.create(1000, 1000, 1000)  # 2 · 10⁹ operations
    beside = (BaselineResult("cublas", version="13.1", timing=timing(baseline)),) if baseline else ()
    checks = (Check("exact", status == "ok", 0.0, 0.0),)
    reason = "" if status == "ok" else f"{kernel} is {status}"
    return Result(
        problem, device, kernel, status, reason, timing=seconds and timing(seconds), checks=checks, baselines=beside
    )


def gains(results, ideas):
    (climb,) = climbs(results, dict.fromkeys(ideas, ""))
    return [step.gain for step in climb.steps]


# Gains and percentages


def test_a_gain_is_over_the_step_before():
    results = [product("a", 4.0), product("b", 2.0), product("c", 2.5)]
    assert gains(results, "abc") == [None, pytest.approx(2.0), pytest.approx(0.8)]


@pytest.mark.parametrize(("seconds", "status"), [(None, "unsupported"), (None, "error"), (0.01, "failed")])
def test_a_step_that_did_not_run_or_is_wrong_neither_gains_nor_is_gained_over(seconds, status):
    results = [product("a", 4.0), product("b", seconds, status=status), product("c", 1.0)]
    assert gains(results, "abc") == [None, None, pytest.approx(4.0)]


def test_steps_come_in_the_order_of_the_ladder_and_once():
    results = [product("c", None, status="unsupported"), product("a", 4.0), product("b", 1.0), product("b", 9.0)]
    (climb,) = climbs(results, {"a": "first", "b": "second", "c": "third"})
    assert [(step.result.name, step.adds) for step in climb.steps] == [("a", "first"), ("b", "second"), ("c", "third")]
    assert climb.steps[1].gain == pytest.approx(4.0)


def test_each_device_has_a_ladder_of_its_own():
    results = [product("a", 4.0), product("b", 2.0), *(product(k, 3.0, device=H100_OPENCL) for k in "ab")]
    first, second = climbs(results, {"a": "", "b": ""})
    assert (first.device, second.device) == (H100, H100_OPENCL)
    assert (first.steps[1].gain, second.steps[1].gain) == (pytest.approx(2.0), pytest.approx(1.0))


def test_a_product_is_told_in_gflops_and_percent_of_peak_and_of_its_baseline():
    result = product("a", 0.5, baseline=0.25)
    told = result.to_dict()
    assert told["gflops"] == pytest.approx(2e9 / 0.5 * 1e-9)
    assert told["peak_percent"] == pytest.approx(100 * 4 / H100.peak_gflops("float32"))
    assert told["baselines"]["cublas"]["ratio"] == pytest.approx(0.5)
    assert told["baselines"]["cublas"]["gflops"] == pytest.approx(8.0)


@pytest.mark.parametrize(
    ("job", "rate", "percent"),
    [
        (Transposition(1000, 500, DTYPES["float64"]), 2 * 4e6 / 0.5 * 1e-9, 50.0),  # both read and write
        (Reduction(500_000, DTYPES["float64"]), 4e6 / 0.5 * 1e-9, 25.0),  # it reads, the copy also writes
    ],
)
def test_a_pass_is_told_in_gb_per_second_and_percent_of_the_copy(job, rate, percent):
    told = PassResult(job, TURN, H100, "ok", timing=timing(0.5), copy=timing(0.25), turns=2).to_dict()
    assert told["gb_per_second"] == pytest.approx(rate)
    assert told["copy"]["gb_per_second"] == pytest.approx(2 * 4e6 / 0.25 * 1e-9)
    assert told["copy_percent"] == pytest.approx(percent)


# Products


def climb(backend, **options):
    options = {"baselines": (), "repeat": 1, **options}
    (found,) = climb_gemm(
        GemmProblem.create(33, 21, 17), [backend.device], Options(load_configuration(), **options)
    )  # fmt: skip
    return found


def test_the_ladder_of_products_is_the_family_in_its_order(best_backend):
    found = climb(best_backend, kernels=("naive",))
    assert [step.result.name for step in found.steps] == [variant.name for variant in kernels.ladder()]
    assert [step.adds for step in found.steps] == [variant.summary for variant in kernels.ladder()]
    ran = [step for step in found.steps if step.result.status != "unsupported"]
    assert all(step.result.verified for step in ran)
    medians = [step.result.timing.median for step in ran]
    assert [step.gain for step in ran[1:]] == [pytest.approx(slow / fast) for slow, fast in itertools.pairwise(medians)]


def test_a_kernel_that_the_device_cannot_run_is_a_step_with_the_reason(best_backend, monkeypatch):
    monkeypatch.setattr(type(kernels.variant("tiled")), "unsupported", lambda self, problem, device: "it has no tiles")
    steps = {step.result.name: step for step in climb(best_backend).steps}
    assert (steps["tiled"].result.status, steps["tiled"].gain) == ("unsupported", None)
    assert "it has no tiles" in steps["tiled"].result.reason
    order = [variant.name for variant in kernels.ladder()]
    naive, after = steps["naive"].result.timing.median, steps[order[order.index("tiled") + 1]]
    assert after.gain == pytest.approx(naive / after.result.timing.median)


def test_a_device_without_memory_makes_every_step_an_error(best_backend, monkeypatch):
    def full(*_):
        raise DeviceMemoryError("full")

    monkeypatch.setattr(type(best_backend), "allocate", full)
    # Not those that the device has no means for.
    assert {step.result.status for step in climb(best_backend).steps} - {"unsupported"} == {"error"}


# Passes


def run(job, rungs, backend, **options):
    options = {"baselines": (), "repeat": 1, **options}
    return list(run_passes(job, rungs, [backend.device], PassOptions(**options)))


@pytest.fixture
def few_buffers(monkeypatch):
    """Turns cost time, and what they are for is tested by itself."""
    monkeypatch.setattr(passes, "MOST_TURNS", 3)


@pytest.mark.usefixtures("few_buffers")
@pytest.mark.parametrize(("rows", "columns"), [(37, 19), (1, 100), (64, 64)])
def test_copies_and_transpositions_are_exact_in_every_type(backend, dtype, rows, columns):
    for result in run(Transposition(rows, columns, DTYPES[dtype]), (COPY, TURN), backend):
        assert result.status == "ok", result.reason
        assert {check.name for check in result.checks} == {"untouched", "exact"}
        assert result.timing.median > 0
        assert result.percent > 0


@pytest.mark.usefixtures("few_buffers")
@pytest.mark.parametrize("element", DTYPES)
def test_sums_are_verified_in_every_type(best_backend, element):
    job = Reduction(4001, DTYPES[element])
    if job.sums.arithmetic and job.sums.arithmetic not in best_backend.device.computes:
        pytest.skip(beyond(best_backend.device, f"it does not compute in {job.sums.arithmetic}"))
    first, impossible, last = run(job, (PLAIN, UNSUPPORTED, SECOND), best_backend)
    for result in (first, last):
        assert result.status == "ok", result.reason
        names = {"untouched", "exact", "statistical"} if job.sums.precision else {"untouched", "exact"}
        assert {check.name for check in result.checks} == names
    assert (impossible.status, impossible.timing) == ("unsupported", None)
    assert impossible.reason == f"{best_backend.device.name} cannot do the impossible"


@pytest.mark.usefixtures("few_buffers")
@pytest.mark.parametrize(
    ("fault", "check", "told"),
    [("SKIPS", "exact", "1 of 703 elements differ"), ("STRAYS", "untouched", "beyond the end of the target"),
     ("SPOILS", "untouched", "the source was changed")],
)  # fmt: skip
@pytest.mark.parametrize("transpose", [0, 1])
def test_a_wrong_transposition_is_told(backend, fault, check, told, transpose):
    wrong = Rung("wrong", "", Move(), {"TRANSPOSE": transpose, fault: 1})
    right, result = run(Transposition(37, 19, DTYPES["float32"]), (TURN, wrong), backend)
    assert (right.status, result.status) == ("ok", "failed")
    assert {each.name for each in result.checks if not each.passed} == {check}
    assert told in result.reason


@pytest.mark.usefixtures("few_buffers")
def test_a_copy_in_place_of_a_transposition_is_wrong(backend):
    lies = Rung("lies", "", type("Lies", (Move,), {"steps": _always_copies})(), {})
    (result,) = run(Transposition(37, 19, DTYPES["float32"]), (lies,), backend)
    assert result.status == "failed"


def _always_copies(self, rows, columns, dtype, parameters, device):
    return Move.steps(self, rows, columns, dtype, {**parameters, "TRANSPOSE": 0}, device)


@pytest.mark.usefixtures("few_buffers")
@pytest.mark.parametrize("element", ["float32", "float16", "complex64", "uint8", "bool"])
@pytest.mark.parametrize(("fault", "check"), [("SKIPS", "exact"), ("STRAYS", "untouched")])
def test_a_wrong_sum_is_told(backend, element, fault, check):
    wrong = Rung("wrong", "", Sum(), {fault: 1})
    (result,) = run(Reduction(4001, DTYPES[element]), (wrong,), backend)
    assert result.status == "failed"
    assert check in {each.name for each in result.checks if not each.passed}


@pytest.mark.usefixtures("few_buffers")
def test_a_pass_that_does_not_compile_is_an_error_and_the_others_go_on(backend):
    broken = Rung("broken", "", Move(), {"BREAKS": 1})
    first, result, last = run(Transposition(5, 6, DTYPES["float32"]), (COPY, broken, TURN), backend)
    assert (first.status, result.status, last.status) == ("ok", "error", "ok")
    assert "as it was told to" in result.reason


def test_without_verification_no_pass_is_called_verified(best_backend):
    (result,) = run(Transposition(5, 6, DTYPES["float32"]), (TURN,), best_backend, verify=False)
    assert (result.status, result.verified) == ("ok", None)


@pytest.mark.usefixtures("few_buffers")
@pytest.mark.parametrize("job", [Transposition(70, 90, DTYPES["float32"]), Reduction(5000, DTYPES["bfloat16"])])
def test_numpy_stands_beside_passes(best_backend, job):
    rung = TURN if isinstance(job, Transposition) else PLAIN
    (result,) = run(job, (rung,), best_backend, baselines=("numpy",))
    (baseline,) = result.baselines
    assert (baseline.name, baseline.version) == ("numpy", np.__version__)
    assert result.ratio(baseline) == pytest.approx(baseline.timing.median / result.timing.median)


def test_automatic_baselines_are_those_of_the_host(best_backend):
    (result,) = run(Transposition(5, 6, DTYPES["float32"]), (TURN,), best_backend, baselines=("auto",))
    assert [baseline.name for baseline in result.baselines] == (
        ["numpy"] if best_backend.device.type == "cpu" else []
    )  # fmt: skip


def test_buffers_take_turns_until_no_cache_holds_them(best_backend, monkeypatch):
    copied, prepared, launched = [], {}, []
    monkeypatch.setattr(passes, "PAST_CACHES", 50_000)
    kind = type(best_backend)
    real_copy, real_launch, real_prepare = kind.copy, kind.launch, passes.prepare_launch

    def copy(self, source, target, nbytes, **_):
        copied.append((source.handle, target.handle))
        real_copy(self, source, target, nbytes)

    def prepare(launch, backend, memory):
        call = real_prepare(launch, backend, memory)
        prepared[id(call)] = (memory["source"].handle, memory["target"].handle)
        return call

    def launch(self, call, **_):
        launched.append(prepared[id(call)])
        real_launch(self, call)

    monkeypatch.setattr(kind, "copy", copy)
    monkeypatch.setattr(kind, "launch", launch)
    monkeypatch.setattr(passes, "prepare_launch", prepare)
    (result,) = run(Transposition(25, 50, DTYPES["float32"]), (TURN,), best_backend, repeat=3, verify=False)
    pairs = list(prepared.values())
    assert (result.turns, len(set(pairs))) == (5, 5)  # of 10,000 bytes each
    assert launched == list(itertools.islice(itertools.cycle(pairs), len(launched)))
    copied = copied[4:]  # the first fill the sources
    assert copied == list(itertools.islice(itertools.cycle(pairs), len(copied)))
    assert min(len(launched), len(copied)) >= 5
    assert "cache" not in result.about_yardstick


def test_turns_end_at_half_the_device_and_at_the_most_and_small_ones_are_told(best_backend, monkeypatch):
    (result,) = run(Transposition(25, 50, DTYPES["float32"]), (TURN,), best_backend)
    assert result.turns == passes.MOST_TURNS
    assert "buffers in turn, 640 kB, which a cache may hold: choose a larger --size" in result.about_yardstick
    small = replace(best_backend.device, memory=70_000)
    monkeypatch.setattr(best_backend, "device", small)
    (result,) = run(Transposition(25, 50, DTYPES["float32"]), (TURN,), best_backend)
    assert result.turns == 3


def test_a_matrix_that_the_device_cannot_hold_makes_every_step_an_error(best_backend):
    results = run(Transposition(2**20, 2**20, DTYPES["float64"]), (COPY, TURN), best_backend)
    assert [result.status for result in results] == ["error", "error"]
    assert f"{2 * 2**43:,} bytes" in results[0].reason


# What is checked of sums


def judged_sums(count, element, target):
    """The checks of what a function makes of each source, as of the steps of PLAIN; of several of a name, one that failed."""
    job = Reduction(count, DTYPES[element])
    steps = PLAIN.own.steps(count, job.dtype, PLAIN.own.complete({}), H100)
    checks = [trial.check(target(job, trial.source), PLAIN, steps) for trial in job.trials(job.random_source(3), 3)]
    return {check.name: check for check in sorted(checks, key=lambda check: not check.passed)}


def in_pairs(job, source):
    return job.on_host(source)()


def one_by_one(job, source):
    return np.array([np.cumsum(source, dtype=job.target_type)[-1]])


@pytest.mark.parametrize("element", ["float16", "bfloat16", "float32", "float64", "complex64", "complex128"])
def test_sums_in_any_order_are_within_their_bound(element):
    for add in (in_pairs, one_by_one):
        checks = judged_sums(5000, element, add)
        assert {name: check.passed for name, check in checks.items()} == {"exact": True, "statistical": True}


def test_a_sum_in_halves_is_not_within_the_bound_of_float32():
    def in_halves(job, source):
        return source.astype(np.float16).sum(dtype=np.float16, keepdims=True).astype(np.float32)

    assert not judged_sums(100_000, "float32", in_halves)["statistical"].passed


def test_numbers_rounded_to_tf32_are_not_within_the_bound_of_float32():
    def of_tf32(job, source):
        return np.array([((source.view(np.uint32) + 0x1000) & 0xFFFFE000).view(np.float32).sum()])

    assert not judged_sums(100_000, "float32", of_tf32)["statistical"].passed


@pytest.mark.parametrize("element", ["float32", "float64", "complex64", "int8", "uint64"])
@pytest.mark.parametrize("place", [0, -1, 17])
def test_a_number_that_is_left_out_shows(element, place):
    def leaves_out(job, source):
        return job.on_host(np.delete(source, place))()

    assert any(not check.passed for check in judged_sums(5000, element, leaves_out).values())


@pytest.mark.parametrize("place", [0, -1])
def test_a_truth_value_that_is_left_out_at_either_end_shows(place):
    def leaves_out(job, source):
        return job.on_host(np.delete(source, place))()

    assert not judged_sums(5000, "bool", leaves_out)["exact"].passed
    assert judged_sums(5000, "bool", in_pairs)["exact"].passed


def test_sums_of_very_many_whole_numbers_stay_exact_and_have_something_to_lose_at_both_ends():
    count = 2**25
    job = Reduction(count, DTYPES["float32"])
    whole = next(job.trials(np.zeros(1, np.float32), 0)).source
    assert whole.size == count
    assert np.abs(whole).sum(dtype=np.float64) < 2**24
    assert whole[0] != 0
    assert whole[-1] != 0
    assert np.count_nonzero(whole) > count // 10


def test_poison_is_never_a_sum():
    def poison(job, source):
        return np.full(1, np.nan, job.target_type)

    assert not any(check.passed for check in judged_sums(50, "float32", poison).values())


def test_the_longest_chain_is_the_share_of_an_item_and_the_tree_of_its_group():
    steps = PLAIN.own.steps(100_000, DTYPES["float32"], PLAIN.own.complete({}), H100)
    share = -(-100_000 // (ITEMS * GROUPS))
    assert pass_jobs._longest_chain(steps, 100_000) == share + ITEMS.bit_length() + GROUPS + 1


# The command


@pytest.fixture
def ladder_command(monkeypatch, capfd, best_backend):
    """Runs `gemmport ladder` on the best device, with the small ladders; gives (exit status, standard output, its error)."""
    monkeypatch.setenv("GEMMPORT_BACKEND", best_backend.device.backend)
    monkeypatch.setenv("GEMMPORT_DEVICE", best_backend.device.selector)
    monkeypatch.setattr(kernels, "ladders", lambda: LADDERS)
    monkeypatch.setattr(passes, "MOST_TURNS", 3)

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["gemmport", "ladder", *map(str, arguments)])
        capfd.readouterr()
        status = cli._run_command()
        captured = capfd.readouterr()
        assert "Traceback" not in captured.err + captured.out
        return status, captured.out, captured.err

    return run


SMALL = {
    "gemm": ("gemm", "--size", 32, "--repeat", 2, "--baseline", "none"),
    "transpose": ("transpose", "--rows", 40, "--columns", 30, "--repeat", 2, "--baseline", "none"),
    "reduce": ("reduce", "--size", 1000, "--repeat", 2, "--baseline", "none"),
}
STEPS = {"gemm": [variant.name for variant in kernels.ladder()], "transpose": ["copy", "turn"],
         "reduce": ["plain", "impossible", "second"]}  # fmt: skip
each_ladder = pytest.mark.parametrize("name", SMALL)

OF_EVERY_STEP = {
    "step", "adds", "gain", "backend", "device", "platform", "selector", "parameters", "dtype", "status", "reason", "verified",
    "launches", "checks", "seconds", "baselines", "clocks",
}  # fmt: skip
OF_PASSES = {"pass", "gb_per_second", "copy_percent", "copy", "turns"}
DOCUMENTED_KEYS = {
    "gemm": {"kernel", "entry", "asked", "m", "n", "k", "batch", "output", "accumulator", "trans_a", "trans_b", "alpha", "beta",
             "precision", "gflops", "peak_percent"},
    "transpose": {*OF_PASSES, "rows", "columns"},
    "reduce": {*OF_PASSES, "count"},
}  # fmt: skip


@each_ladder
def test_a_table_has_a_row_for_each_step_and_says_with_what_it_was_measured(ladder_command, best_backend, name):
    status, out, _ = ladder_command(*SMALL[name])
    assert status == 0
    lines = out.splitlines()
    unit, yardstick = ("GFLOPS", "peak") if name == "gemm" else ("GB/s", "copy")
    for heading in ("step", "parameters", "time", unit, f"% {yardstick}", "gain", "result"):
        assert heading in lines[0]
    assert [line.split()[0] for line in lines[1 : 1 + len(STEPS[name])]] == STEPS[name]
    assert out.count("PASS") == len(STEPS[name]) - out.count(": unsupported: ")
    notes = "\n".join(lines[1 + len(STEPS[name]) :])
    for told in (
        best_backend.device.label,
        "driver",
        "gemmport 0.",
        f"numpy {np.__version__}",
        "programs on",
        "compiled",
    ):
        assert told in notes


@each_ladder
def test_json_has_the_documented_keys(ladder_command, best_backend, name):
    status, out, _ = ladder_command(*SMALL[name], "--format", "json")
    document = json.loads(out)
    assert status == 0
    assert set(document) == {"schema", "command", "environment", "unavailable", "programs", "ladder", "results"}
    assert (document["schema"], document["ladder"]) == (1, name)
    assert set(document["programs"][best_backend.device.label]) == {"compiled", "from_disk", "from_memory"}
    assert [result["step"] for result in document["results"]] == STEPS[name]
    for result in document["results"]:
        assert set(result) == OF_EVERY_STEP | DOCUMENTED_KEYS[name]
        assert result["verified"] is (True if result["seconds"] else None)
    medians = [result["seconds"]["median"] for result in document["results"] if result["seconds"]]
    told = [result["gain"] for result in document["results"] if result["gain"]]
    assert told == [pytest.approx(slow / fast) for slow, fast in itertools.pairwise(medians)]


@each_ladder
def test_programs_are_counted_for_each_command(ladder_command, best_backend, name):
    counts = []
    for _ in range(2):
        _, out, _ = ladder_command(*SMALL[name], "--format", "json")
        counts.append(json.loads(out)["programs"][best_backend.device.label])
    first, second = counts
    assert sum(first.values()) == sum(second.values()) > 0
    assert (second["compiled"], second["from_disk"]) == (0, 0)


def test_json_tells_which_parameters_make_a_step(ladder_command):
    _, out, _ = ladder_command(*SMALL["transpose"], "--format", "json")
    copy = json.loads(out)["results"][0]["parameters"]
    assert copy["TRANSPOSE"] == {"value": 0, "origin": "copy"}
    assert copy["SKIPS"] == {"value": 0, "origin": "the defaults of move"}


@each_ladder
def test_csv_has_a_line_for_each_step(ladder_command, name):
    status, out, _ = ladder_command(*SMALL[name], "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert status == 0
    assert [row["step"] for row in rows] == STEPS[name]
    assert all(float(row["seconds.median"]) > 0 for row in rows if row["status"] == "ok")


@each_ladder
def test_markdown_is_a_table_with_numbers_to_the_right_and_the_environment_below(ladder_command, best_backend, name):
    status, out, _ = ladder_command(*SMALL[name], "--format", "markdown")
    heading, rule, *rest = out.splitlines()
    assert status == 0
    cells = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in (heading, rule, *rest) if line[:1] == "|"
    ]
    assert cells[0][:3] == ["step", "parameters", "time"]
    assert dict(zip(cells[0], cells[1], strict=True)) == {
        name: "---" if name in ("step", "parameters", "result") else "---:" for name in cells[0]
    }
    assert [row[0] for row in cells[2:]] == STEPS[name]
    assert {len(row) for row in cells} == {len(cells[0])}
    after = rest[len(STEPS[name]) :]
    assert after[0] == ""
    assert best_backend.device.label in after[1]
    assert "\n\n".join(line for line in after if line) == "\n".join(after[1:])


def test_the_unsupported_step_is_a_row_with_its_reason_below(ladder_command, best_backend):
    _, out, _ = ladder_command(*SMALL["reduce"])
    (row,) = (line for line in out.splitlines() if line.startswith("impossible "))
    assert row.split()[-1] == "unsupported"
    assert f"unsupported: {best_backend.device.name} cannot do the impossible" in out


def test_a_wrong_kernel_is_told_and_the_status_is_1(ladder_command):
    with planted("drops the last term", NAIVE):
        status, out, _ = ladder_command(*SMALL["gemm"])
    assert status == 1
    assert ("FAIL" in out, out.count("PASS")) == (True, len(STEPS["gemm"]) - 1 - out.count(": unsupported: "))


@pytest.mark.parametrize(("name", "own"), [("transpose", Move()), ("reduce", Sum())])
def test_a_wrong_pass_is_told_and_the_status_is_1(ladder_command, monkeypatch, name, own):
    wrong = Rung("wrong", "", own, {"SKIPS": 1})
    monkeypatch.setattr(kernels, "ladders", lambda: {name: (*LADDERS[name], wrong)})
    status, out, _ = ladder_command(*SMALL[name])
    assert status == 1
    (row,) = (line for line in out.splitlines() if line.startswith("wrong "))
    assert row.split()[-1] == "FAIL"
    assert "wrong, " in out


def test_a_pass_that_the_compiler_refuses_makes_the_status_3(ladder_command, monkeypatch):
    monkeypatch.setattr(kernels, "ladders", lambda: {"transpose": (COPY, Rung("broken", "", Move(), {"BREAKS": 1}))})
    status, out, _ = ladder_command(*SMALL["transpose"])
    assert status == 3
    assert "as it was told to" in out


def test_options_of_a_product_arrive(ladder_command, monkeypatch):
    monkeypatch.setattr(kernels, "ladder", lambda: [kernels.variant(name) for name in ("tiled", "register_tiled")])
    arguments = ("gemm", "-m", 9, "-n", 8, "-k", 7, "--dtype", "float16", "--trans-a", "--trans-b", "T", "--no-verify",
                 "--set", "TSM=16", "--baseline", "numpy", "--repeat", 1, "--format", "json")  # fmt: skip
    status, out, _ = ladder_command(*arguments)
    results = json.loads(out)["results"]
    assert status == 0
    assert [r["step"] for r in results] == ["tiled", "register_tiled"]
    assert {tuple(r[key] for key in ("m", "n", "k", "dtype", "trans_a", "trans_b", "verified")) for r in results} == {
        (9, 8, 7, "float16", "T", "T", None)
    }
    assert next(r for r in results if r["step"] == "register_tiled")["parameters"]["TSM"] == {
        "value": 16,
        "origin": "--set",
    }
    assert all(r["baselines"]["numpy"]["ratio"] > 0 and r["seconds"]["samples"] == 1 for r in results)


def test_options_of_passes_arrive(ladder_command):
    arguments = ("--dtype", "complex128", "--no-verify", "--repeat", 1, "--baseline", "numpy", "--format", "json")
    for name, sizes in (("transpose", {"rows": 7, "columns": 30}), ("reduce", {"count": 1000})):
        status, out, _ = ladder_command(
            name, *(("--rows", 7, "--size", 30) if name == "transpose" else ("--size", 1000)), *arguments
        )
        assert status == 0
        for result in (r for r in json.loads(out)["results"] if r["status"] == "ok"):
            assert {key: result[key] for key in sizes} == sizes
            assert (result["dtype"], result["verified"], result["seconds"]["samples"]) == ("complex128", None, 1)
            assert set(result["baselines"]) == {"numpy"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((*SMALL["gemm"], "--set", "TSX=3"), "all has no such parameter"),
        ((*SMALL["gemm"], "--baseline", "atlas"), "no baseline 'atlas'"),
        ((*SMALL["gemm"], "--dtype", "float8"), "dtype float8 is not supported"),
        ((*SMALL["transpose"], "--dtype", "float8"), "dtype float8 is not supported"),
        ((*SMALL["transpose"], "--baseline", "clblast"), "no baseline 'clblast': there are numpy, auto and none"),
        ((*SMALL["transpose"], "--rows", "0"), "0 is not in the range"),
        ((*SMALL["transpose"], "--rows", 2**31), "2147483648 is not in the range"),
        ((*SMALL["reduce"], "--backend", "vulkan"), "no backend 'vulkan'"),
        ((*SMALL["reduce"], "--plot", "ladder.gif"), "the name must end in .png, .svg, .pdf"),
        ((*SMALL["reduce"], "--plot", "/no/such/folder/x.png"), "--plot /no/such/folder/x.png: No such file"),
        ((*SMALL["reduce"], "--output", "/no/such/folder/x"), "--output /no/such/folder/x: No such file"),
        (("climb",), "No such command 'climb'"),
    ],
    ids=lambda value: " ".join(map(str, value[-2:])) if isinstance(value, tuple) else "",
)
def test_bad_usage_exits_with_2_and_names_the_value_and_the_rule(ladder_command, arguments, message):
    status, out, err = ladder_command(*arguments)
    assert (status, out) == (2, "")
    assert message in err


def test_output_goes_to_the_file(ladder_command, tmp_path):
    file = tmp_path / "ladder.md"
    assert ladder_command(*SMALL["transpose"], "--format", "markdown", "--output", file)[:2] == (0, "")
    assert file.read_text(encoding="utf-8").startswith("| step | parameters |")


def test_two_backends_stand_side_by_side(ladder_command, monkeypatch):
    """Of two devices: the figures in one row, and parameters once where they are the same."""
    found = [
        Climb(H100, (Step(product("a", 0.5, baseline=0.25), "", None), Step(product("b", 0.25), "", 2.0))),
        Climb(H100_OPENCL, (
            Step(product("a", 1.0, device=H100_OPENCL), "", None),
            Step(product("b", None, device=H100_OPENCL, status="unsupported"), "", None),
        )),
    ]  # fmt: skip
    module = import_module("gemmport.cli.ladder")
    monkeypatch.setattr(module, "climb_gemm", lambda *_, **__: found)
    status, out, _ = ladder_command(*SMALL["gemm"], "--format", "markdown")
    lines = out.splitlines()
    assert status == 0
    assert lines[0] == (
        "| step | parameters | cuda time | cuda GFLOPS | cuda % peak | cuda % cublas | cuda gain | cuda result "
        "| opencl time | opencl GFLOPS | opencl % peak | opencl gain | opencl result |"
    )
    peak = H100.peak_gflops("float32")
    share = f"{400 / peak:.1f}", f"{800 / peak:.1f}", f"{200 / peak:.1f}"
    assert (
        lines[2]
        == f"| a |  | 500 ms ±10.0% | 4.0 | {share[0]} | 50.0 |  | PASS | 1 s ±10.0% | 2.0 | {share[2]} |  | PASS |"
    )
    assert lines[3] == f"| b |  | 250 ms ±10.0% | 8.0 | {share[1]} |  | 2.00× | PASS |  |  |  |  | unsupported |"
    assert f"peak of {H100.label}: {peak:,.0f} GFLOPS, estimated" in out
    assert "cublas 13.1" in out


def test_parameters_that_differ_between_devices_are_told_for_each():
    text = import_module("gemmport.cli.ladder")._parameters
    job = Transposition(5, 6, DTYPES["float32"])
    steps = [
        Step(PassResult(job, Rung("a", "", Move(), {"SKIPS": skips}), device, "ok"), "", None)
        for skips, device in ((0, H100), (1, H100_OPENCL))
    ]
    rest = "STRAYS=0 SPOILS=0 BREAKS=0"
    assert text(steps, ["cuda ", "opencl "]) == f"cuda: TRANSPOSE=1 SKIPS=0 {rest}\nopencl: TRANSPOSE=1 SKIPS=1 {rest}"
    assert text(steps[:1], [""]) == f"TRANSPOSE=1 SKIPS=0 {rest}"


# Pictures


@pytest.mark.parametrize(("suffix", "start"), [(".png", b"\x89PNG"), (".svg", b"<?xml"), (".pdf", b"%PDF")])
def test_a_picture_is_of_the_kind_that_its_name_says(ladder_command, tmp_path, suffix, start):
    skip_without(MATPLOTLIB)
    file = tmp_path / f"ladder{suffix}"
    status, out, _ = ladder_command(*SMALL["reduce"], "--plot", file)
    assert status == 0
    assert "PASS" in out
    assert file.read_bytes().startswith(start)
    if suffix == ".svg":
        for told in ("plain", "impossible", "GB/s", "unsupported", "gemmport ladder reduce: 1,000 float32"):
            assert f"<!-- {told}" in file.read_text(encoding="utf-8")


def test_a_picture_has_a_bar_for_each_step_and_device_and_a_line_for_each_baseline(tmp_path, monkeypatch):
    skip_without(MATPLOTLIB)
    from matplotlib.figure import Figure  # noqa: PLC0415 - not always installed

    figures = []
    monkeypatch.setattr(Figure, "savefig", lambda self, *_, **__: figures.append(self))
    ideas = {"a": "", "b": ""}
    found = climbs([product("a", 0.5, baseline=0.25), product("b", 0.25, baseline=0.25)], ideas)
    found += climbs(
        [product("a", 1.0, device=H100_OPENCL), product("b", 0.1, device=H100_OPENCL, status="failed")], ideas
    )  # fmt: skip
    plots.plot_ladder(found, "gemm", tmp_path / "x.png")
    (axes,) = figures[0].axes
    assert [[bar.get_height() for bar in bars] for bars in axes.containers if hasattr(bars, "patches")] == [
        [pytest.approx(4.0), pytest.approx(8.0)],
        [pytest.approx(2.0), pytest.approx(20.0)],
    ]
    lines = {line.get_label(): line.get_ydata()[0] for line in axes.lines if "beside" in str(line.get_label())}
    assert lines == {"cublas beside cuda": pytest.approx(8.0)}
    assert [bar.get_hatch() for bar in axes.patches] == [None, None, None, "xx"]
    assert [text.get_text() for text in axes.texts] == ["failed"]
    assert axes.get_ylabel() == "GFLOPS"


def test_the_picture_of_passes_has_a_line_for_the_copy():
    job = Transposition(1000, 500, DTYPES["float64"])
    numpy = BaselineResult("numpy", timing=timing(0.1))
    result = PassResult(job, TURN, H100, "ok", timing=timing(0.5), baselines=(numpy,), copy=timing(0.25), turns=2)
    lines = plots._lines(Climb(H100, (Step(result, "", None),)))
    assert lines == {"copy of the runtime": pytest.approx(0.032), "numpy": pytest.approx(0.08)}


def test_whiskers_reach_from_quartile_to_quartile():
    step = Step(product("a", 0.5), "", None)
    down, up = plots._whiskers([step, Step(product("b", None, status="unsupported"), "", None)])
    assert down == [pytest.approx(4.0 - 2.0 / 0.55), 0.0]
    assert up == [pytest.approx(2.0 / 0.45 - 4.0), 0.0]


def test_without_matplotlib_a_picture_is_refused_before_the_work_with_what_to_install(
    ladder_command, monkeypatch, tmp_path
):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setattr(import_module("gemmport.cli.ladder"), "climb_passes", lambda *_, **__: pytest.fail("it worked"))
    status, out, err = ladder_command(*SMALL["reduce"], "--plot", tmp_path / "x.png")
    assert (status, out) == (2, "")
    assert "pip install 'gemmport[plot]'" in err
