"""`gemmport bench`: which suites there are, what it prints and writes, and what it does with a budget and an interruption."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import click
import pytest

from gemmport import baselines
from gemmport.bench import calls, ceilings, suites
from gemmport.bench.call_times import CallPace
from gemmport.bench.calls import check_called
from gemmport.cli import bench
from gemmport.cli.durations import Duration
from gemmport.cli.shapes import read_shapes
from gemmport.cli.suites import Suite, known_suites, suite_of
from gemmport.core.problem import GemmProblem

SHAPES = Path(__file__).parents[2] / "benchmarks" / "shapes"

DOCUMENT = {
    "schema", "command", "environment", "unavailable", "programs", "suites", "left", "ceilings", "results", "standings",
}  # fmt: skip


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(ceilings, "COPY_BYTES", 2**16)
    for name in ("CPU_CALLS", "GPU_CALLS"):
        monkeypatch.setattr(calls, name, CallPace(0.0, 0.0, waits=False, run_seconds=0.0))


@pytest.fixture
def tiny(tmp_path):
    """A file of three products, the dearest first."""
    file = tmp_path / "tiny.csv"
    file.write_text("label,m,n,k,trans_b\nlarge,32,32,32,\nsmall,8,8,8,\nmiddle,16,16,16,T\n")
    return file


def measured(*arguments):
    return ("bench", *arguments, "--repeat", 1, "--baseline", "numpy")


def test_the_suites_are_those_that_are_promised_and_their_shapes_are_installed():
    known = known_suites()
    assert list(known) == ["squares", "odd", "skinny", "workloads", "batches", "calls"]
    for suite in known.values():
        workloads = suite.workloads(GemmProblem.create)
        assert len(workloads) >= 10
        assert len({one.problem for one in workloads}) == len({one.name for one in workloads}) == len(workloads)
        assert suite.about
    assert [name for name, suite in known.items() if suite.as_called] == ["calls"]
    assert all(check_called(one.problem) for one in known["calls"].workloads(GemmProblem.create))
    assert known["workloads"].workloads(GemmProblem.create) == read_shapes(SHAPES / "workloads.csv", GemmProblem.create)
    assert [one.problem.m for one in known["squares"].workloads(GemmProblem.create)] == [
        64, 128, 256, 512, 1000, 1024, 2048, 4096, 8192, 16384,
    ]  # fmt: skip


def test_a_file_of_shapes_is_a_suite_and_its_results_stand_in_its_order(gemmport_command, tiny, best_backend):
    status, out, err = gemmport_command(*measured(tiny, "--format", "json", "--dtype", "float32,float64"))
    assert (status, err) == (0, "")
    document = json.loads(out)
    assert set(document) == DOCUMENT
    assert document["schema"] == 1
    assert document["suites"] == [{"name": "tiny", "about": "the shapes of tiny.csv", "problems": 6}]
    assert document["left"] == []
    own = document["ceilings"][best_backend.device.label]
    assert set(own) == {"gflops", "gb_per_second"}
    assert own["gb_per_second"] > 0
    assert [(one["suite"], one["label"], one["dtype"]) for one in document["results"]] == [
        ("tiny", label, dtype) for dtype in ("float32", "float64") for label in ("large", "small", "middle")
    ]
    assert all(one["verified"] and one["baselines"]["numpy"]["ratio"] > 0 for one in document["results"])
    assert [(one["suite"], one["dtype"], set(one["ratios"])) for one in document["standings"]] == [
        ("tiny", dtype, {"large", "small", "middle"}) for dtype in ("float32", "float64")
    ]


def test_the_table_has_the_suites_and_what_they_come_to(gemmport_command, tiny, tmp_path):
    other = tmp_path / "other.csv"
    other.write_text("m,n,k\n4,4,4\n5,5,5\n")
    page = tmp_path / "page.html"
    status, out, _ = gemmport_command(*measured(tiny, other, "--html", page, "-o", tmp_path / "table.txt"))
    assert (status, out) == (0, "")
    table = (tmp_path / "table.txt").read_text()
    assert table.splitlines()[0].split()[:2] == ["suite", "device"]
    assert table.count("PASS") == 5
    assert re.search(r"tiny, float32: × numpy, auto on .*: geometric mean [0-9.]+ over 3 problems", table)
    assert re.search(r"other, float32: × numpy, auto on .*: geometric mean [0-9.]+ over 2 problems", table)
    assert "gemmport bench" in page.read_text()


def test_what_the_budget_has_no_room_for_is_told_and_not_begun(gemmport_command, tiny, monkeypatch):
    begun = []

    class Hasty(suites.Budget):
        def has_room(self, seconds):
            return len(begun) < 2

    def run(problems, devices, options, progress):
        begun.append(problems[0].m)
        return real(problems, devices, options, progress=progress)

    real = suites.run_benchmark
    monkeypatch.setattr(bench, "Budget", Hasty)
    monkeypatch.setattr(suites, "run_benchmark", run)
    status, out, _ = gemmport_command(*measured(tiny, "--budget", "1h"))
    assert status == 0
    assert begun == [8, 16]
    assert re.search(r"tiny: large left out on .*: .*the budget of 3,600 s", out)


def test_what_was_measured_before_an_interruption_is_kept(gemmport_command, tiny, tmp_path, monkeypatch):
    begun = []

    def run(problems, devices, options, progress):
        begun.append(problems[0].m)
        if len(begun) > 1:
            raise KeyboardInterrupt
        return real(problems, devices, options, progress=progress)

    real = suites.run_benchmark
    monkeypatch.setattr(suites, "run_benchmark", run)
    file, page = tmp_path / "kept.json", tmp_path / "kept.html"
    status, _, err = gemmport_command(*measured(tiny, "--format", "json", "--output", file, "--html", page))
    assert status == 130
    assert "interrupted" in err
    document = json.loads(file.read_text())
    assert [one["label"] for one in document["results"]] == ["small"]
    assert [(one["name"], one["reason"]) for one in document["left"]] == [
        ("middle", "interrupted"), ("large", "interrupted"),
    ]  # fmt: skip
    assert "interrupted (2×)" in re.sub("<.*?>", "", page.read_text())
    begun[:] = [0]
    assert gemmport_command(*measured(tiny))[:2] == (130, "")  # nothing was measured


def test_each_ratio_stands_beside_that_of_an_earlier_run(gemmport_command, tiny, tmp_path):
    then, page = tmp_path / "then.json", tmp_path / "page.html"
    gemmport_command(*measured(tiny, "--format", "json", "--output", then))
    document = json.loads(then.read_text())
    for result in document["results"]:  # so fast that today's are worse whatever the machine does
        for key in ("median", "first_quartile", "third_quartile"):
            result["seconds"][key] = 1e-12
    then.write_text(json.dumps(document))
    status, out, _ = gemmport_command(*measured(tiny, "--compare", then, "--format", "json", "--html", page))
    assert status == 1
    told = json.loads(out)["comparison"]
    assert (told["worse"], len(told["rows"])) == (3, 3)
    assert "3 worse" in page.read_text()


def test_products_as_they_are_called_have_the_document_of_calls(gemmport_command, tmp_path, monkeypatch):
    file, then, page = tmp_path / "shapes.csv", tmp_path / "then.json", tmp_path / "page.html"
    file.write_text("m,n,k\n16,16,16\n8,8,8\n")
    monkeypatch.setattr(bench, "suite_of", lambda name: Suite(name, "as called", (file,), as_called=True))
    options = ("bench", "calls", "--repeat", 1, "--format", "json", "--output", then)
    assert gemmport_command(*options)[0] == 0
    document = json.loads(then.read_text())
    assert document["schema"] == 3
    assert document["floors"]
    assert {(one["suite"], one["m"]) for one in document["results"]} == {("calls", 16), ("calls", 8)}
    assert {"numpy", "device"} <= {one["arrays"] for one in document["results"]}
    assert document["results"][0]["m"] == 16
    assert all(one["count"] == 2 for one in document["summaries"])
    status, out, _ = gemmport_command("bench", "calls", "--repeat", 1, "--compare", then, "--html", page)
    assert status in (0, 1)  # ratios of one sample each
    assert "beside " in out
    told = page.read_text()
    assert "numpy.matmul" in told or "torch.matmul with copies" in told  # on an NVIDIA GPU


def test_a_baseline_that_is_not_installed_is_told_once(gemmport_command, tiny, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setattr(baselines, "_loaded", {})
    status, out, err = gemmport_command("bench", tiny, "--repeat", 1, "--baseline", "numpy,torch")
    assert status == 3  # for it was named
    assert out.count("pip install torch") == 1
    assert "error: baseline torch was named, and there is none here: " in err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("squars",), "one of squares, odd, skinny, workloads, batches, calls, all, or a file of shapes; got 'squars'; did"),
        (("squares", "calls"), "calls stands alone"),
        (("calls", "--kernel", "tiled"), "calls measures products as they are called"),
        (("squares", "--budget", "soon"), "a time must be a number above 0 with s, m or h, such as 5m, or none; got 'soon'"),
        (("squares", "--budget", "0s"), "got '0s'"),
        ((), "Missing argument 'SUITE...'"),
    ],
)  # fmt: skip
def test_what_cannot_be_measured_is_refused(gemmport_command, arguments, told):
    status, out, err = gemmport_command("bench", *arguments)
    assert (status, out) == (2, "")
    assert told in err


def test_budgets_have_units():
    duration = Duration(endless=True)
    told = [duration.convert(text, None, None) for text in ("90", "90s", "1.5m", "2h", "none")]
    assert told == [90, 90, 90, 7200, float("inf")]
    with pytest.raises(
        click.BadParameter, match="a time must be a number above 0 with s, m or h, such as 5m; got 'none'"
    ):
        Duration().convert("none", None, None)


def test_all_suites_are_all_but_calls():
    assert [suite.name for suite in bench._suites(["all"])] == ["squares", "odd", "skinny", "workloads", "batches"]
    assert bench._suites(["odd", "odd"]) == [suite_of("odd")]
