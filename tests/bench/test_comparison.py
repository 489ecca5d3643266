"""Two documents of results side by side, both made by hand: what is worse, what is on one side only, what is refused."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from gemmport.bench.comparison import Ratio, Row, compare, like_devices, read_results, results_of
from gemmport.cli.comparison import comparison_sheet
from gemmport.core.device import DeviceInfo
from gemmport.core.errors import ComparisonError, RecordError

CPU = DeviceInfo(
    "opencl",
    "Processor",
    "pocl",
    platform_version="3.0",
    driver="3.0",
    architecture="znver4",
    type="cpu",
    compute_units=2,
)
GPU = DeviceInfo(
    "cuda", "Board", "nvidia", platform_version="13.0", driver="580.1", architecture="sm_90", compute_units=132
)
HOST = {"date": "2026-01-02", "cpu": "Processor", "cores": "2", "numpy": "2.4", "blas": "openblas 0.3.31"}


def seconds(median, spread=0.0):
    return {"median": median, "first_quartile": median * (1 - spread), "third_quartile": median * (1 + spread)}


def product(ratio=1.0, spread=0.0, *, size=64, device=CPU, kernel="packed", baseline="numpy", **fields):
    """A result of `gemmport run` whose ratio to the baseline has a spread, half of it from either side."""
    beside = {
        "available": True,
        "reason": "",
        "version": "2.4",
        "verified": True,
        "seconds": seconds(ratio, spread / 2),
    }
    return {
        "label": "", "backend": device.backend, "device": device.name,
        "platform": f"{device.platform} {device.platform_version}", "kernel": kernel, "m": size, "n": size, "k": size,
        "batch": 1, "dtype": "float32", "output": "float32", "accumulator": "float32", "trans_a": "N", "trans_b": "N",
        "alpha": 1.0, "beta": 0.0, "status": "ok", "reason": "", "seconds": seconds(1.0, spread / 2),
        "baselines": {baseline: beside}, **fields,
    }  # fmt: skip


def absent(result, name="numpy", reason="not installed"):
    """The result where its baseline is not there."""
    beside = {"available": False, "reason": reason, "version": "", "verified": None, "seconds": None}
    return {**result, "baselines": {name: beside}}


def run_document(*results, devices=(CPU,), **host):
    environment = {**HOST, **host, "devices": {device.label: device.to_dict() for device in devices}}
    return {"schema": 1, "environment": environment, "results": list(results)}


def compared(now, then):
    return compare(results_of(now, "this run"), results_of(then, "then.json"))


def verdicts(now, then):
    return [row.verdict for row in compared(now, then).rows]


@pytest.mark.parametrize(
    ("now", "then", "verdict"),
    [
        (Ratio(0.5, 0.5), Ratio(1.0, 0.25), "same"),  # 0.75 is the end of either
        (Ratio(0.5, 0.4921875), Ratio(1.0, 0.25), "worse"),
        (Ratio(0.5, 0.5), Ratio(1.0, 0.2421875), "worse"),
        (Ratio(1.0, 0.25), Ratio(0.5, 0.5), "same"),
        (Ratio(1.0, 0.2421875), Ratio(0.5, 0.5), "better"),
        (Ratio(1.0, 0.25), Ratio(0.5, 0.4921875), "better"),
        (Ratio(1.0, 0.0), Ratio(1.0, 0.0), "same"),
        (Ratio(0.99, 0.0), Ratio(1.0, 0.0), "worse"),
        (None, Ratio(1.0, 0.0), "missing"),
        (Ratio(1.0, 0.0), None, "new"),
    ],
)
def test_worse_and_better_are_beyond_both_spreads(now, then, verdict):
    row = Row(CPU.label, results_of(run_document(product()), "it").entries[0].task, "packed", "numpy", now, then)
    assert row.verdict == verdict


def test_a_ratio_and_its_spread_come_of_both_timings():
    result = product(seconds=seconds(2.0, 0.03))
    result["baselines"]["numpy"]["seconds"] = seconds(3.0, 0.01)
    (entry,) = results_of(run_document(result), "it").entries
    assert entry.ratio.value == 1.5
    assert entry.ratio.spread == pytest.approx(0.04)


def test_change_is_in_percent_of_the_ratio_then():
    (row,) = compared(run_document(product(0.9)), run_document(product(1.2))).rows
    assert row.change == pytest.approx(-25)
    assert (row.now.value, row.then.value, row.verdict) == (0.9, 1.2, "worse")


def test_another_kernel_of_the_planner_is_the_same_row():
    (row,) = compared(run_document(product(kernel="direct")), run_document(product(kernel="packed"))).rows
    assert (row.kernel, row.verdict) == ("packed → direct", "same")


def test_several_kernels_of_a_task_are_told_apart():
    now = run_document(product(0.5, kernel="direct"), product(1.0, kernel="packed"))
    then = run_document(product(1.0, kernel="packed"), product(1.0, kernel="direct"), product(1.0, kernel="naive"))
    found = {row.kernel: row.verdict for row in compared(now, then).rows}
    assert found == {"direct": "worse", "packed": "same", "naive": "missing"}


@pytest.mark.parametrize(
    "changes",
    [
        {"m": 65}, {"batch": 2}, {"dtype": "float16", "accumulator": "float32"}, {"trans_b": "T"}, {"alpha": 2.0},
        {"beta": 1.0}, {"label": "another"}, {"output": "float64", "accumulator": "float64"},
        {"dtype": "complex64", "output": "complex64", "accumulator": "complex64", "alpha": [1.0, 1.0]},
    ],
    ids=str,
)  # fmt: skip
def test_another_task_is_a_new_row_and_the_old_one_is_missing(changes):
    comparison = compared(run_document(product(**changes)), run_document(product()))
    assert [(row.verdict, row.reason) for row in comparison.rows] == [
        ("new", "not in then.json"),
        ("missing", "not in this run"),
    ]
    with pytest.raises(ComparisonError, match=r"must be in then\.json; got none"):
        comparison.require_common()


def test_one_common_row_is_enough():
    compared(run_document(product(), product(size=65)), run_document(product(), product(size=66))).require_common()


def test_a_baseline_that_is_absent_now_is_told_with_its_reason():
    comparison = compared(run_document(absent(product())), run_document(product()))
    assert [(row.verdict, row.reason) for row in comparison.rows] == [("missing", "not installed")]
    assert "missing: not installed" in comparison_sheet(comparison).notes


def test_a_baseline_that_was_absent_then_is_new():
    assert verdicts(run_document(product()), run_document(absent(product()))) == ["new"]


def test_a_baseline_that_is_absent_on_both_sides_has_no_row():
    assert verdicts(run_document(absent(product())), run_document(absent(product()))) == []


def test_what_is_wrong_now_is_missing_with_its_reason():
    wrong = product(status="failed", reason="exact: off by one")
    refused = product(size=65, status="error", reason="out of memory", seconds=None, baselines={})
    wrong_library = product(size=66)
    wrong_library["baselines"]["numpy"] |= {"verified": False, "reason": "numpy is wrong"}
    now, then = run_document(wrong, refused, wrong_library), run_document(*(product(size=n) for n in (64, 65, 66)))
    found = {(row.verdict, row.reason) for row in compared(now, then).rows}
    assert found == {
        ("missing", "failed: exact: off by one"),
        ("missing", "error: out of memory"),
        ("missing", "numpy is wrong"),
    }


# Devices


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"backend": "cuda"}, "backend must be 'opencl', got 'cuda'"),
        ({"name": "Other"}, "device must be 'Processor', got 'Other'"),
        ({"platform": "intel"}, "platform must be 'pocl', got 'intel'"),
        ({"type": "accelerator"}, "type must be 'cpu', got 'accelerator'"),
        ({"compute_units": 4}, "compute units must be 2, got 4"),
        ({"architecture": "znver5"}, "architecture must be 'znver4', got 'znver5'"),
    ],
)
def test_an_unlike_device_is_refused_and_the_message_names_what_differs(changes, message):
    device = replace(CPU, **changes)
    with pytest.raises(ComparisonError, match=message) as caught:
        compared(run_document(product(device=device), devices=[device]), run_document(product()))
    assert "then.json" in str(caught.value)
    assert device.label in str(caught.value)


@pytest.mark.parametrize(
    ("host", "message"),
    [
        ({"cpu": "Other"}, "CPU must be 'Processor', got 'Other'"),
        ({"cores": "4"}, "cores must be '2', got '4'"),
        ({"blas": "mkl 2025"}, "NumPy's BLAS must be 'openblas', got 'mkl'"),
    ],
)
def test_another_host_is_refused_for_a_cpu_and_not_for_a_gpu(host, message):
    with pytest.raises(ComparisonError, match=message):
        compared(run_document(product(), **host), run_document(product()))
    of_gpu = product(device=GPU, baseline="cublas")
    assert verdicts(run_document(of_gpu, devices=[GPU], **host), run_document(of_gpu, devices=[GPU])) == ["same"]


def test_other_versions_are_compared_and_noted():
    newer = replace(CPU, platform_version="3.1", driver="3.1")
    result = product(device=newer)
    result["baselines"]["numpy"]["version"] = "2.5"
    comparison = compared(run_document(result, devices=[newer], blas="openblas 0.3.32"), run_document(product()))
    assert [row.verdict for row in comparison.rows] == ["same"]
    assert comparison.notes == (
        f"{newer.label}: version was 3.0 and is 3.1",
        f"{newer.label}: driver was 3.0 and is 3.1",
        f"{newer.label}: NumPy's BLAS was openblas 0.3.31 and is openblas 0.3.32",
        "numpy was 2.4 and is 2.5",
    )


def test_of_several_devices_each_is_compared_with_its_like():
    newer = replace(CPU, platform_version="3.1")
    both = [product(1.0), product(2.0, device=newer)]
    then = run_document(*both, product(3.0, device=GPU), devices=[CPU, newer, GPU])
    for order in ([CPU, newer], [newer, CPU]):
        comparison = compared(run_document(*reversed(both), devices=order), then)
        found = {(row.device, row.verdict, row.change) for row in comparison.rows}
        assert found == {(CPU.label, "same", 0), (newer.label, "same", 0), (GPU.label, "missing", None)}
        assert comparison.notes == ()


def test_no_device_of_the_file_serves_two_of_this_run():
    versions = [replace(CPU, platform_version=version) for version in ("3.1", "5.0", "6.0", "7.0")]
    old, new = versions[:2], versions[2:]
    documents = [run_document(*(product(device=one) for one in two), devices=two) for two in (new, old)]
    assert verdicts(*documents) == ["same", "same"]
    with pytest.raises(ComparisonError, match=r"pocl 7\.0.* must be like a device of then\.json"):
        compared(documents[0], run_document(product(), devices=[CPU]))


def test_a_device_that_the_file_lacks_is_refused_before_there_are_results():
    then = results_of(run_document(product()), "then.json")
    with pytest.raises(ComparisonError, match=r"Board .* must be like a device of then\.json"):
        like_devices(results_of(run_document(devices=[CPU, GPU]), "this run"), then)


# Calls


def calls_document(*results, **host):
    """As it was before `gemmport calls`."""
    return {"schema": 2, "environment": {**HOST, **host}, "results": list(results)}


def documented(*results):
    return {**run_document(*results), "schema": 3}


def called(arrays="numpy", size=64, verified=True, **ratios):
    """A result of `gemmport calls`: ways and their ratios, each with `out`."""
    beside = {"version": "2.4", "reason": "", "verified": verified}
    return {
        "label": "", "device": CPU.label, "arrays": arrays, "m": size, "n": size, "k": size, "batch": 1, "dtype": "float32",
        "trans_a": "N", "trans_b": "N", "seconds": {"out": {way: seconds(1.0) for way in ratios}},
        "baselines": {f"{arrays}.matmul": {**beside, "seconds": {"out": {way: seconds(x) for way, x in ratios.items()}}}},
    }  # fmt: skip


def call(ratio=1.0, spread=0.0, size=64, label=CPU.label):
    own, other = seconds(1.0, spread / 2), seconds(ratio, spread / 2)
    return {
        "device": label, "arrays": "numpy", "m": size, "n": size, "k": size, "dtype": "float32", "seconds": own,
        "numpy_seconds": other, "floor_seconds": own, "ratio": ratio,
    }  # fmt: skip


def test_documents_of_calls_are_compared_by_the_same_rules():
    now = calls_document(call(0.8, 0.02), call(1.0, size=128), call(1.0, size=512))
    then = calls_document(call(1.0, 0.02), call(1.0, size=128), call(1.0, size=256))
    found = [(row.task.problem.m, row.verdict, row.baseline) for row in compared(now, then).rows]
    name = "numpy.matmul"
    assert found == [(64, "worse", name), (128, "same", name), (512, "new", name), (256, "missing", name)]


def test_each_way_to_call_is_compared_with_itself():
    now = documented(
        called(host=2.0, awaited=1.0), called("torch", host=0.5), called(size=128, verified=False, host=1.0)
    )
    then = documented(called(host=1.0, awaited=1.0), called("torch", host=1.0), called(size=128, host=1.0))
    found = [(str(row.task), row.baseline, row.verdict) for row in compared(now, then).rows]
    assert found == [
        ("arrays of numpy, out, host float32 NN 64×64×64", "numpy.matmul", "better"),
        ("arrays of numpy, out, awaited float32 NN 64×64×64", "numpy.matmul", "same"),
        ("arrays of torch, out, host float32 NN 64×64×64", "torch.matmul", "worse"),
        ("arrays of numpy, out, host float32 NN 128×128×128", "numpy.matmul", "missing"),
    ]


def test_calls_are_compared_with_awaited_ones_of_before():
    (row,) = compared(documented(called(awaited=0.5)), calls_document(call(1.0))).rows
    assert (row.verdict, row.now.value, row.then.value) == ("worse", 0.5, 1.0)


def test_calls_of_an_unlike_device_are_refused_by_what_their_label_tells():
    for label, host, message in (
        (CPU.label.replace("pocl", "intel"), {}, "platform must be 'pocl', got 'intel'"),
        (CPU.label.replace("Processor", "Other"), {}, "device must be 'Processor', got 'Other'"),
        (CPU.label, {"cores": "4"}, "cores must be '2', got '4'"),
    ):
        with pytest.raises(ComparisonError, match=message):
            compared(calls_document(call(label=label), **host), calls_document(call()))


def test_calls_are_not_compared_with_kernels():
    with pytest.raises(
        ComparisonError, match=r"then\.json must be a document of gemmport run; got one of gemmport calls"
    ):
        compared(run_document(product()), calls_document(call()))


# Files


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("m,n,k\n", "must be a JSON document of results; got"),
        ("[]", "schema of .* must be 1 .gemmport run. or 2 .gemmport calls. or 3 .gemmport calls.; got None"),
        ('{"schema": 4}', "schema of .* must be 1 .*; got 4"),
        ('{"schema": [1]}', "got \\[1\\]"),
        ('{"schema": 1}', "environment of .* must be as gemmport run writes it; got: Field required"),
        (json.dumps(run_document()), "must have a ratio to a baseline; got none"),
        (json.dumps(run_document(absent(product()))), "must have a ratio to a baseline; got none"),
        (json.dumps(run_document(product(m=-1))), "problems of .* must be products; got: m = -1"),
        (json.dumps(run_document(product(seconds=seconds(0.0)))), "results.0.seconds.median of .* greater than 0"),
    ],
)
def test_a_file_that_is_no_such_document_is_refused_by_name(tmp_path, text, message):
    file = tmp_path / "then.json"
    file.write_text(text)
    with pytest.raises(RecordError, match=message) as caught:
        read_results(file)
    assert str(file) in str(caught.value)


def test_a_file_that_is_not_there_is_refused_by_name(tmp_path):
    with pytest.raises(RecordError, match=r"nowhere\.json: cannot be read: No such file"):
        read_results(tmp_path / "nowhere.json")


def test_a_comparison_is_plain_data_and_a_table():
    now = run_document(product(0.5), product(size=65))
    comparison = compared(now, run_document(product(1.0, 0.02), product(size=66)))
    told = json.loads(json.dumps(comparison.to_dict(), allow_nan=False))
    assert (told["with"], told["date"], told["worse"]) == ("then.json", "2026-01-02", 1)
    assert [row["verdict"] for row in told["rows"]] == ["worse", "new", "missing"]
    assert told["rows"][0] == {
        "device": CPU.label, "task": "float32 NN 64×64×64", "kernel": "packed", "baseline": "numpy",
        "now": {"value": 0.5, "spread": 0.0}, "then": {"value": 1.0, "spread": pytest.approx(0.02)},
        "change_percent": -50.0, "hidden_percent": pytest.approx(2), "verdict": "worse", "reason": "",
    }  # fmt: skip
    sheet = comparison_sheet(comparison)
    assert sheet.rows[0][1:] == (
        "float32 NN 64×64×64", "packed", "× numpy", "0.500 ±0.0%", "1.000 ±2.0%", "-50.0", "worse",
    )  # fmt: skip
    assert sheet.notes[:2] == [
        "beside then.json of 2026-01-02: 1 worse, 1 new, 1 missing",
        f"the spreads hide losses of up to 2.0%: float32 NN 64×64×64 × numpy on {CPU.label}",
    ]


@pytest.mark.parametrize(("change", "verdict"), [(-0.01, "same"), (0.01, "worse")])
def test_a_loss_beyond_what_the_spreads_hide_is_worse(change, verdict):
    then = run_document(product(2.0, 0.0625), product(1.0, size=65))
    comparison = compared(run_document(product(2.0, 0.125), product(1.0, size=65)), then)
    assert comparison.coarsest == comparison.rows[0]
    lost = 2.0 * (1 - (comparison.coarsest.hidden + change) / 100)
    assert verdicts(run_document(product(lost, 0.125), product(1.0, size=65)), then) == [verdict, "same"]
