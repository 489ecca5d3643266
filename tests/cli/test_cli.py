"""The command line: exit statuses, messages without tracebacks, formats."""

from __future__ import annotations

import csv
import io
import json
import re
import subprocess
import sys
from dataclasses import replace
from importlib import import_module

import numpy as np
import pytest

import gemmport
from gemmport import backends, baselines, cli
from gemmport.bench.products import Result
from gemmport.bench.results import BaselineResult
from gemmport.bench.timing import Timing
from gemmport.cli.output import tunings
from gemmport.cli.run import slower_than_numpy
from gemmport.core.problem import GemmProblem
from gemmport.core.quirks import quirk
from gemmport.execution import selection
from gemmport.runtime.cache import CacheUse, program_key, store_program
from mutations import NAIVE, planted

DOCUMENTED_KEYS = {
    "label", "source", "backend", "device", "platform", "selector", "kernel", "parameters", "entry", "asked", "m", "n", "k",
    "batch", "dtype", "output", "accumulator", "precision", "trans_a", "trans_b", "alpha", "beta", "launches", "status",
    "reason", "verified", "checks", "seconds", "gflops", "peak_percent", "baselines", "clocks",
}  # fmt: skip


def small(*arguments):
    size = () if "--sizes" in arguments else ("--size", 32)
    return ("run", *size, "--repeat", 1, "--baseline", "none", *arguments)


def results_of(outcome):
    status, out, _ = outcome
    return status, json.loads(out)["results"]


def test_a_verified_run_exits_with_0_and_prints_a_row(gemmport_command):
    status, out, _ = gemmport_command(*small("--baseline", "numpy", "--kernel", "register_tiled"))
    assert status == 0
    for word in ("register_tiled", "GFLOPS", "× numpy", "error/bound", "PASS", "configs/", "32×32×32"):
        assert word in out


def test_json_has_the_documented_keys_and_nothing_else_is_on_standard_output(gemmport_command):
    names = ("naive", "tiled", "shuffle")
    options = ("--format", "json", "--baseline", "numpy", "--kernel", ",".join(names))
    status, results = results_of(gemmport_command(*small(*options)))
    assert status == 0
    refused = [result["kernel"] for result in results if result["status"] == "unsupported"]  # is told first
    others = [name for name in names if name not in refused]
    assert [result["kernel"] for result in results] == [*refused, *others]
    for result in results:
        if result["status"] == "unsupported":
            continue
        assert result["verified"] is True
        assert result["baselines"]["numpy"]["gflops"] > 0
        assert result["baselines"]["numpy"]["ratio"] == pytest.approx(
            result["gflops"] / result["baselines"]["numpy"]["gflops"]
        )
        assert set(result) == DOCUMENTED_KEYS


def test_json_tells_the_command_what_was_asked_for_and_what_was_launched(gemmport_command, tmp_path):
    shapes = tmp_path / "some.csv"
    shapes.write_text("m,n,k\n8,8,8\n")
    file = tmp_path / "results.json"
    options = ("run", "--shapes", shapes, "--set", "TS=4", "--kernel", "tiled", "--baseline", "none", "--repeat", 1)
    gemmport_command(*options, "--format", "json", "--output", file)
    document = json.loads(file.read_text())
    assert document["command"] == (
        "gemmport run --shapes some.csv --set TS=4 --kernel tiled --baseline none --repeat 1 --format json"
    )
    (result,) = document["results"]
    assert result["asked"] == {"kernel": "tiled", "parameters": {"TS": 4}}
    (launch,) = result["launches"]
    assert launch["function"] == "tiled"
    assert re.fullmatch("[0-9a-f]{16}", launch["digest"])


def test_programs_are_counted_for_each_command_and_told(gemmport_command, best_backend):
    counts = []
    for _ in range(2):
        _, out, _ = gemmport_command(*small("--format", "json", "--kernel", "tiled", "--set", "TS=2"))
        counts.append(json.loads(out)["programs"][best_backend.device.label])
    first, second = counts
    assert first["compiled"] + first["from_disk"] == 1
    assert (second["compiled"], second["from_disk"]) == (0, 0)
    assert second["from_memory"] == sum(first.values())
    _, out, _ = gemmport_command(*small("--kernel", "tiled", "--set", "TS=2"))
    assert f"programs on {best_backend.device.label}: 0 compiled, 0 from the cache on disk" in out


def test_csv_has_a_line_for_each_result(gemmport_command):
    status, out, _ = gemmport_command(*small("--format", "csv", "--kernel", "naive,tiled"))
    rows = list(csv.DictReader(io.StringIO(out)))
    assert status == 0
    assert [(row["kernel"], row["verified"], row["m"]) for row in rows] == [
        ("naive", "True", "32"),
        ("tiled", "True", "32"),
    ]


@pytest.mark.parametrize(
    ("name", "given", "begins"),
    [
        ("r.json", (), "{"),
        ("r.CSV", (), "label,"),
        ("r.txt", (), "device"),
        ("r.json", ("--format", "table"), "device"),
    ],
)
def test_the_ending_of_the_file_says_its_form_where_nothing_else_does(gemmport_command, tmp_path, name, given, begins):
    status, _, _ = gemmport_command(*small("--output", tmp_path / name, *given))
    assert status == 0
    assert (tmp_path / name).read_text("utf-8").startswith(begins)


def test_output_goes_to_the_file(gemmport_command, tmp_path):
    file = tmp_path / "out.json"
    status, out, _ = gemmport_command(*small("--format", "json", "--output", file))
    assert (status, out) == (0, "")
    assert json.loads(file.read_text())["schema"] == 1


def committed(file, gemmport_command, change=lambda document: None):
    """A document of a run in a file, changed by hand."""
    assert gemmport_command(*small("--baseline", "numpy", "--format", "json", "--output", file))[0] == 0
    document = json.loads(file.read_text())
    change(document)
    file.write_text(json.dumps(document))
    return file


def baseline_seconds_times(factor):
    def change(document):
        for result in document["results"]:
            timed = result["baselines"]["numpy"]["seconds"]
            for key in ("median", "first_quartile", "third_quartile"):
                timed[key] *= factor

    return change


@pytest.mark.parametrize(("factor", "verdict", "status"), [(1e-6, "better", 0), (1e6, "worse", 1)])
def test_compare_sets_a_run_beside_a_file_and_exits_with_1_where_one_is_worse(
    gemmport_command, tmp_path, factor, verdict, status
):
    file = committed(tmp_path / "then.json", gemmport_command, baseline_seconds_times(factor))
    found, out, _ = gemmport_command(*small("--baseline", "numpy", "--repeat", 2, "--compare", file))
    assert (found, f"1 {verdict}" in out) == (status, True)
    found, out, _ = gemmport_command(
        *small("--baseline", "numpy", "--repeat", 2, "--compare", file, "--format", "json")
    )
    comparison = json.loads(out)["comparison"]
    assert (found, [row["verdict"] for row in comparison["rows"]]) == (status, [verdict])
    assert comparison["with"] == str(file)


def test_compare_refuses_a_file_or_a_device_before_anything_is_measured(gemmport_command, tmp_path, monkeypatch):
    def other_device(document):
        for device in document["environment"]["devices"].values():
            device["compute_units"] += 1

    file = committed(tmp_path / "then.json", gemmport_command, other_device)
    shapes = tmp_path / "shapes.json"
    shapes.write_text("m,n,k")
    monkeypatch.setattr(import_module("gemmport.cli.run"), "run_benchmark", None)  # would fail
    for arguments, message in (
        (("--compare", file), "compute units must be"),
        (("--compare", shapes), f"{shapes} must be a JSON document"),
        (("--compare", file, "--format", "csv"), "use --format table or json"),
    ):
        status, out, err = gemmport_command(*small(*arguments))
        assert (status, out) == (2, "")
        assert message in err


def test_compare_with_nothing_in_common_is_an_error_after_the_results(gemmport_command, tmp_path):
    file = committed(tmp_path / "then.json", gemmport_command)
    status, out, err = gemmport_command("run", "--size", 33, "--repeat", 1, "--baseline", "numpy", "--compare", file)
    assert status == 2
    assert "33×33×33" in out
    assert f"must be in {file}; got none" in err


def test_sizes_include_their_stop_and_a_given_size_stays(gemmport_command):
    _, results = results_of(gemmport_command(*small("--sizes", "16:48:16", "-k", 5, "--format", "json")))
    assert [(r["m"], r["n"], r["k"]) for r in results] == [(16, 16, 5), (32, 32, 5), (48, 48, 5)]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("shapes.yaml", "- {m: 3, n: 4, k: 5}\n- {m: 6, n: 7, k: 8, batch: 2, trans_a: T, beta: 0.5}\n"),
        ("shapes.csv", "m,n,k,batch,trans_a,beta\n3,4,5,,,\n6,7,8,2,T,0.5\n"),
    ],
)
def test_shapes_come_from_a_file(gemmport_command, tmp_path, name, text):
    (tmp_path / name).write_text(text)
    arguments = ("run", "--shapes", tmp_path / name, "--repeat", 1, "--baseline", "none", "--format", "json")
    status, results = results_of(gemmport_command(*arguments))
    assert status == 0
    assert [(r["m"], r["n"], r["k"], r["batch"], r["trans_a"], r["beta"]) for r in results] == [
        (3, 4, 5, 1, "N", 0.0),
        (6, 7, 8, 2, "T", 0.5),
    ]


def test_every_option_of_a_product_arrives(gemmport_command):
    arguments = ("-m", 9, "-n", 8, "-k", 7, "--trans-a", "--trans-b", "C", "--alpha", 2, "--beta", -1, "--batch", 3)
    _, (result,) = results_of(
        gemmport_command(*small(*arguments, "--kernel", "register_tiled", "--set", "TSM=16", "--format", "json"))
    )
    told = {key: result[key] for key in ("m", "n", "k", "trans_a", "trans_b", "alpha", "beta", "batch")}
    assert told == {"m": 9, "n": 8, "k": 7, "trans_a": "T", "trans_b": "C", "alpha": 2.0, "beta": -1.0, "batch": 3}
    assert result["parameters"]["TSM"] == {"value": 16, "origin": "--set"}
    assert result["verified"] is True


def test_without_verification_nothing_is_called_verified(gemmport_command):
    status, (result,) = results_of(gemmport_command(*small("--no-verify", "--format", "json")))
    assert status == 0
    assert result["verified"] is None


def test_a_failed_verification_exits_with_1(gemmport_command):
    with planted("drops the last term", NAIVE):
        status, out, _ = gemmport_command(*small("--kernel", NAIVE))
    assert status == 1
    assert "FAIL" in out
    assert "exact" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--kernel", "nope"), "no kernel 'nope': there are naive, tiled, "),
        (("--kernel", "tild"), "; did you mean tiled?"),
        (("--kernel", "tiled", "--set", "ts=8"), "tiled has no such parameter, only PAD, TS; did you mean TS?"),
        (("--baseline", "cublass"), "; did you mean cublas?"),
        (("--backend", "vulkan"), f"no backend 'vulkan': there are {', '.join(backends.names())}"),
        (("--baseline", "blis"), "no baseline 'blis'"),
        (("--dtype", "float8"), "dtype float8 is not supported"),
        (("-m", "-3"), "m = -3 is negative"),
        (("--trans-a", "X"), "transposition 'X' is not known"),
        (("--set", "TSM"), "write NAME=VALUE"),
        (("--kernel", "naive", "--set", "TSM=8"), "naive has no such parameter"),
        (("--kernel", "register_tiled", "--set", "TSM=100", "--set", "WPTM=8"), "TSM = 100, WPTM = 8: the rule is"),
        (("--kernel", "naive", "--set", "TS=wide"), "TS = 'wide' is not allowed"),
        (("--sizes", "8:4:1"), "write START:STOP:STEP"),
        (("--sizes", "8:16:0"), "write START:STOP:STEP"),
        (("--config", "/no/such.yaml"), "/no/such.yaml: cannot be read"),
        (("--shapes", "/no/such.yaml"), "--shapes gives all sizes"),
        (("--sizes", "8:16:4", "--size", "4"), "--size and --sizes exclude each other"),
        (("--output", "/no/such/folder/x"), "No such file"),
        (("--alpha", "nan"), "alpha must be finite in float32; got nan"),
        (("--beta", "1e39"), "beta must be finite in float32; got 1e+39"),
        (("--sizes", "1:9999999999:1"), "at most 10000 sizes"),
        (("--kernel", "all", "--set", "TS=999"), "TS = 999 is not allowed"),
        (("--repeat", "0"), "0 is not in the range"),
        (("--threshold", "nan"), "it must be a number above 0; got nan"),
        (("--frobnicate",), "No such option"),
    ],
    ids=lambda value: " ".join(map(str, value)) if isinstance(value, tuple) else "",
)
def test_bad_usage_exits_with_2_and_names_the_value_and_the_rule(gemmport_command, arguments, message):
    status, out, err = gemmport_command(*small(*arguments))
    assert status == 2
    assert message in err
    assert out == ""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("entries: [", "this is not YAML"),
        ("schema: 9\ndescription: x\nentries: []\n", "schema 9 is newer"),
        ("schema: 1\ndescription: x\nentries:\n- {name: e, kernels: {naive: {TS: 99}}, provenance: {tuned: false}}\n",
         "entry 'e': naive: TS = 99 is not allowed"),
    ],
)  # fmt: skip
def test_a_bad_configuration_exits_with_2(gemmport_command, tmp_path, text, message):
    (tmp_path / "bad.yaml").write_text(text)
    for arguments in (small("--config", tmp_path / "bad.yaml"), ("configs", "--check", tmp_path / "bad.yaml")):
        status, _, err = gemmport_command(*arguments)
        assert status == 2
        assert message in err


@pytest.mark.parametrize(
    "text",
    [
        "- {m: 3, n: 4}\n",
        "- {m: 3, n: 4, k: x}\n",
        "- {m: 3, n: 4, k: yes}\n",
        "- {m: 2026-13-45, n: 4, k: 4}\n",
        "- {m: 3, n: 4, k: 5, o: 6}\n",
        "- {m: 3, n: 4, k: 5, k: 6}\n",
        "7\n",
        "",
    ],
)
def test_a_bad_file_of_shapes_exits_with_2(gemmport_command, tmp_path, text):
    (tmp_path / "bad.yaml").write_text(text)
    status, _, err = gemmport_command("run", "--shapes", tmp_path / "bad.yaml")
    assert status == 2
    assert "bad.yaml" in err


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("b.yaml", "- {m: 3, n: 4, k: 5}\n# -\n- {m: 3, n: 4}\n", ["b.yaml, line 3: k: missing key"]),
        ("b.yaml", "- {m: 3, n: 4, k: 5}\n- {m: x, n: 4, k: 5, o: 6}\n",
         ["b.yaml, line 2: m: Input should be a valid integer, unable", "b.yaml, line 2: o: unknown key (value 6)"]),
        ("b.yaml", "- {m: 3, n: 4, k: 5}\n- 7\n- {m: 1, n: 1, k: -1}\n",
         ["b.yaml, line 2: the shape: ", "b.yaml, line 3: k = -1 is negative"]),
        ("b.yaml", "- m: 3\n  n: 4\n  k: 5\n- m: 3\n  n: 4\n  k: 5\n  beta: .nan\n",
         ["b.yaml, line 4: beta must be finite in float32; got nan"]),
        ("b.yaml", "- m: 3\n  n: 4\n  k: 5\n  m: 6\n", ["key 'm' stands twice", "line 4"]),
        ("b.csv", "m,n,k,m\n1,2,3,4\n", ["b.csv: cannot be read: line 1: column 'm' stands twice"]),
        ("b.csv", "m,n,k\n\n1,2,3\n1,2\n", ["b.csv, line 4: k: missing key"]),
        ("b.csv", "m,n,k\n1,2,3\n1,2,3,4\n", ["b.csv: cannot be read: line 3: 4 cells, but the header has 3"]),
        ("b.csv", "m,n,k,dtype\n1,2,3,float8\n", ["b.csv, line 2: dtype float8 is not supported"]),
        ("b.csv", "m,n,k,trans_a\n1,2,3,Z\n", ["b.csv, line 2: transposition 'Z' is not known"]),
        ("b.csv", "m,n,k,label\n1,2,3,x\n1,2,4,y\n1,2,5,x\n", ["b.csv, line 4: label 'x' stands in line 2 already"]),
        ("b.csv", "m,n,k\n", ["a file of shapes is a list"]),
        ("b.csv", "", ["a file of shapes is a list"]),
        ("b.csv", "m,n,k,label\n1,2,3,\x1b[31m\n", [r"line 2: texts must have no control characters; got '\x1b': remove it"]),
        ("b.csv", f"m,n,k,label\n1,2,3,{'x' * 2001}\n", ["line 2: a text must have at most 2,000 characters; 'xxx"]),
        ("b.csv", f"m,n,k,dtype\n1,2,3,{'9' * 2000}\n", ["line 2: dtype 9999", "is not supported"]),
        ("b.yaml", "- {m: 1, n: 1, k: 1, dtype: 1+2j}\n", ["line 1: dtype 1+2j is not supported"]),
        ("b.yaml", '- {m: 1, n: 1, k: 1, label: "\\e[31m"}\n', [r"line 1: texts must have no control characters"]),
        ("b.yaml", "- {m: 1, n: 1, k: !!int x}\n", ["line 1: values must have no tag"]),
        ("b.yaml", "[" * 50_000, ["line 1: lists and mappings must nest at most 32 deep"]),
        ("b.yaml", "- [" + "1, " * 9 + "]\n" + "- x\n" * 10_000, ["line 20: the shape: ", "\n…, and more faults\n"]),
    ],
    ids=lambda value: value[:30] if isinstance(value, str) else "",
)  # fmt: skip
def test_a_fault_in_a_file_of_shapes_is_told_with_file_line_key_and_value(gemmport_command, tmp_path, name, text, told):
    (tmp_path / name).write_text(text)
    status, _, err = gemmport_command("run", "--shapes", tmp_path / name)
    assert status == 2
    for words in told:
        assert words in err


def test_a_spreadsheets_marks_and_blanks_do_not_matter(gemmport_command, tmp_path):
    (tmp_path / "s.csv").write_bytes(b'\xef\xbb\xbfm , n, k ,trans_a\r\n 3 ,4, "5" , T \r\n,,,\r\n6,7,8,\r\n')
    arguments = ("run", "--shapes", tmp_path / "s.csv", "--repeat", 1, "--baseline", "none", "--format", "json")
    status, results = results_of(gemmport_command(*arguments, "--kernel", "naive"))
    assert status == 0
    assert [(r["m"], r["n"], r["k"], r["trans_a"]) for r in results] == [(3, 4, 5, "T"), (6, 7, 8, "N")]


def test_labels_and_sources_of_shapes_stay_with_their_results(gemmport_command, tmp_path):
    (tmp_path / "s.csv").write_text("source,label,m,n,k\nBook,first of two,3,4,5\n,,6,7,8\n")
    arguments = ("run", "--shapes", tmp_path / "s.csv", "--repeat", 1, "--baseline", "none")
    status, results = results_of(gemmport_command(*arguments, "--format", "json"))
    assert status == 0
    assert [(r["m"], r["label"], r["source"]) for r in results] == [(3, "first of two", "Book"), (6, "", "")]
    assert "first of two" in gemmport_command(*arguments)[1]


def test_several_problems_are_summed_up_beside_each_baseline(gemmport_command, best_backend):
    arguments = small("--sizes", "16:48:16", "--baseline", "numpy", "--kernel", "naive,tiled", "--threshold", 1e9)
    document = json.loads(gemmport_command(*arguments, "--format", "json")[1])
    results = document["results"]
    for standing, kernel in zip(document["standings"], ("naive", "tiled"), strict=True):
        ratios = [r["baselines"]["numpy"]["ratio"] for r in results if r["kernel"] == kernel]
        assert (standing["kernel"], standing["baseline"]) == (kernel, "numpy")
        assert standing["timed_on"] == standing["device"] == best_backend.device.label
        assert list(standing["ratios"].values()) == sorted(ratios)
        assert standing["geometric_mean"] == pytest.approx(np.prod(ratios) ** (1 / 3))
        assert standing["worst"]["ratio"] == min(ratios)
        assert (standing["threshold"], standing["below"], standing["missing"]) == (1e9, 3, {})
    out = gemmport_command(*arguments)[1]
    assert re.search(r"× numpy, naive on .*: geometric mean [0-9.]+ over 3 problems, worst .*, 3 below 1e\+09", out)


def test_a_bad_file_of_a_sweep_exits_with_2(gemmport_command, tmp_path):
    (tmp_path / "bad.jsonl").write_text('{"schema": 1}\n{}\n')
    for file, message in (("bad.jsonl", "line 1 must be a line of a sweep"), ("none.jsonl", "cannot be read")):
        status, out, err = gemmport_command("regret", tmp_path / file)
        assert (status, out) == (2, "")
        assert file in err
        assert message in err


def test_one_problem_is_not_summed_up(gemmport_command):
    arguments = small("--baseline", "numpy")
    assert json.loads(gemmport_command(*arguments, "--format", "json")[1])["standings"] == []
    assert "geometric mean" not in gemmport_command(*arguments)[1]


def test_a_device_that_does_not_exist_exits_with_3(gemmport_command):
    status, _, err = gemmport_command(*small("--device", "no such device"))
    assert status == 3
    assert "no device 'no such device'; there are" in err


@pytest.mark.parametrize(
    "command", [small(), ("matrix", "--kernel", "naive"), ("inspect", "naive"), ("profile", "naive")], ids=str
)
@pytest.mark.parametrize(("name", "expected"), [("GEMMPORT_BACKEND", 2), ("GEMMPORT_DEVICE", 3)])
def test_what_the_environment_names_in_vain_is_told_to_be_of_it(gemmport_command, monkeypatch, command, name, expected):
    monkeypatch.setenv("GEMMPORT_BACKEND", "opencl")
    monkeypatch.setenv(name, "foo")
    status, _, err = gemmport_command(*command)
    assert status == expected
    assert f"{name}='foo': no " in err
    assert f"unset {name}" in err or "unset GEMMPORT_BACKEND GEMMPORT_DEVICE" in err


def test_what_an_option_names_in_vain_is_not_told_to_be_of_the_environment(gemmport_command, monkeypatch):
    monkeypatch.setenv("GEMMPORT_BACKEND", "metal")
    status, _, err = gemmport_command(*small("--backend", "foo"))
    assert status == 2
    assert "gemmport: no backend 'foo': there are" in err


def test_a_parameter_without_its_kernel_is_told_with_the_kernels_that_have_it(gemmport_command):
    status, _, err = gemmport_command(*small("--set", "TS=8"))
    assert status == 2
    assert "--set must name parameters of the kernel that computes; got TS, and " in err
    assert "--kernel tiled" in err


@pytest.mark.parametrize(
    "command", [("run", "--size", 8, "--kernel", "naive"), ("ladder", "gemm", "--size", 8)], ids=str
)
def test_a_baseline_that_is_named_and_computes_on_no_device_here_exits_with_3(gemmport_command, best_backend, command):
    name, backend = ("clblast", "opencl") if best_backend.name == "cuda" else ("cublas", "cuda")
    status, out, err = gemmport_command(*command, "--repeat", 1, "--baseline", f"numpy,{name}")
    assert status == 3
    assert "PASS" in out  # all else is measured
    told = f"it computes on devices of backend {backend} alone"
    assert f"baseline {name}: {told}" in out
    usual = ",".join(baselines.for_device(best_backend.device))
    assert (
        f"error: baseline {name} was named, and there is none here: {told}; choose such a device, or name others: "
        in err
    )
    assert f"--baseline {usual}" in err
    assert "pip install" not in out + err


def test_a_baseline_that_is_named_and_not_installed_exits_with_3(gemmport_command, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setattr(baselines, "_loaded", {})
    job = ("run", "--size", 8, "--kernel", "naive", "--repeat", 1, "--baseline")
    status, out, err = gemmport_command(*job, "numpy,torch")
    assert (status, "PASS" in out) == (3, True)
    assert "error: baseline torch was named, and there is none here: " in err
    assert "pip install torch" in err
    assert (gemmport_command(*job, "numpy")[0], gemmport_command(*job, "auto")[0]) == (0, 0)


def test_a_known_backend_that_is_not_usable_exits_with_3(gemmport_command, monkeypatch):
    unusable = selection.BackendStatus("cuda", error="backend cuda is not installed: pip install 'gemmport[cuda]'")
    real = selection.backend_status
    monkeypatch.setattr(selection, "backend_status", lambda name: unusable if name == "cuda" else real(name))
    status, _, err = gemmport_command(*small("--backend", "cuda"))
    assert status == 3
    assert "pip install 'gemmport[cuda]'" in err


def test_all_backends_run_side_by_side_and_an_unusable_one_is_named(gemmport_command, monkeypatch, best_backend):
    monkeypatch.delenv("GEMMPORT_DEVICE")
    unusable = selection.BackendStatus("cuda", error="backend cuda is not installed: pip install 'gemmport[cuda]'")
    real = selection.backend_status
    monkeypatch.setattr(selection, "backend_status", lambda name: unusable if name == "cuda" else real(name))
    status, out, _ = gemmport_command(*small("--backend", "all", "--format", "json"))
    document = json.loads(out)
    assert status == 0
    assert "cuda" in document["unavailable"]
    assert {result["backend"] for result in document["results"]} == set(backends.names()) - {"cuda"}


@pytest.mark.parametrize(
    "command",
    [small("--dtype", "FLOAT32"), ("configs", "--dtype", "Float32"), ("inspect", "naive", "--dtype", "FLOAT32")],
    ids=lambda command: command[0],
)
def test_names_of_backends_and_types_may_be_in_either_case(gemmport_command, best_backend, command):
    for backend in (best_backend.name.upper(), best_backend.name.title()):
        status, out, err = gemmport_command(*command, "--backend", backend)
        assert (status, err) == (0, "")
        assert "float32" in out


def test_auto_and_all_may_be_in_either_case(gemmport_command, monkeypatch, best_backend):
    monkeypatch.setattr(backends, "names", lambda: (best_backend.name,))
    for word in ("AUTO", "All"):
        status, results = results_of(gemmport_command(*small("--backend", word, "--format", "json")))
        assert (status, results[0]["backend"]) == (0, best_backend.name)
    candidates = import_module("gemmport.cli.matrix")._devices(
        best_backend.name.upper(), [best_backend.device.selector]
    )
    assert candidates == [best_backend.device]


def test_which_runtime_was_taken_is_told_where_none_is_named(gemmport_command, monkeypatch, best_backend):
    monkeypatch.delenv("GEMMPORT_DEVICE", raising=False)
    slower = replace(best_backend.device, index=(9, 9), type="cpu", platform="oclgrind", platform_version="1")
    both = selection.BackendStatus("opencl", (slower, best_backend.device))
    monkeypatch.setattr(
        selection, "backend_status", lambda name: both if name == "opencl" else selection.BackendStatus(name)
    )
    monkeypatch.setattr(import_module("gemmport.cli.devices"), "backend_status", selection.backend_status)
    told = f"{best_backend.device.label} is taken before {slower.label}"
    assert told in gemmport_command(*small("--backend", "opencl"))[1]
    assert told not in gemmport_command(*small("--backend", "opencl", "--device", best_backend.device.selector))[1]
    listed = [line for line in gemmport_command("devices")[1].splitlines() if "taken where none is named" in line]
    assert [line.split()[0] for line in listed] == [best_backend.device.selector]


def test_an_ambiguous_device_exits_with_2_and_lists_the_candidates(gemmport_command, monkeypatch, best_backend):
    two = selection.BackendStatus("opencl", (best_backend.device, best_backend.device))
    monkeypatch.setattr(selection, "backend_status", lambda name: two)
    status, _, err = gemmport_command(*small("--backend", "opencl", "--device", best_backend.device.platform))
    assert status == 2
    assert "is ambiguous; it may be" in err


def test_a_compile_error_exits_with_3_and_shows_numbered_lines(gemmport_command):
    with planted("does not compile", NAIVE):
        status, out, _ = gemmport_command(*small("--kernel", NAIVE))
    assert status == 3
    assert "no_such_type sum" in out


def test_a_type_that_the_device_lacks_is_named(gemmport_command, monkeypatch, best_backend):
    poor = replace(best_backend.device, computes=frozenset({"float32"}))
    monkeypatch.setattr(selection, "backend_status", lambda name: selection.BackendStatus(name, (poor,)))
    status, _, err = gemmport_command(*small("--dtype", "float64"))
    assert status == 2
    assert "does not compute in float64" in err


def test_devices_lists_every_backend(gemmport_command, best_backend):
    status, out, _ = gemmport_command("devices")
    assert status == 0
    assert best_backend.device.name in out
    for name in backends.names():
        assert name in out
    _, text, _ = gemmport_command("devices", "--format", "json")
    found = json.loads(text)[best_backend.device.backend]["devices"]
    assert best_backend.device in [gemmport.DeviceInfo.from_dict(device) for device in found]


def test_devices_tells_the_quirks_of_a_runtime(gemmport_command, best_backend, monkeypatch):
    poor = replace(best_backend.device, backend="opencl", platform="pocl", platform_version="3.1")
    monkeypatch.setattr(
        import_module("gemmport.cli.devices"), "backend_status", lambda name: selection.BackendStatus(name, (poor,))
    )
    status, out, _ = gemmport_command("devices")
    assert status == 0
    for known in ("pocl-skipped-loop (workaround)", "pocl-local-memory (refusal)"):
        assert f"quirk {known}: {quirk(known.partition(' ')[0]).symptom}" in out
    assert "pocl-vector-stores" not in out


def test_kernels_lists_parameters_and_rules(gemmport_command):
    status, out, _ = gemmport_command("kernels")
    assert status == 0
    for word in ("naive", "tiled", "register_tiled", "TSM", "TSN % WPTN = 0", "one of strided, contiguous, quads"):
        assert word in out
    _, text, _ = gemmport_command("kernels", "tiled", "--format", "json")
    assert set(json.loads(text)["tiled"]["parameters"]) == {"TS", "PAD"}


def test_configs_shows_what_serves_and_why(gemmport_command, tmp_path):
    mine = tmp_path / "mine.yaml"
    mine.write_text(
        "schema: 1\ndescription: x\nentries:\n"
        "- {name: big, kernels: {naive: {TS: 4}}, match: {shape: large}, provenance: {tuned: false}}\n"
        "- {name: other, kernels: {naive: {TS: 2}}, provenance: {tuned: false}}\n"
    )
    status, out, _ = gemmport_command("configs", "--config", mine, "-m", 100)
    assert status == 0
    assert "mine.yaml: other" in out
    assert "mine.yaml: big" not in out
    assert f"kernel naive, from {mine}: other" in out
    assert gemmport_command("configs", "--check", mine)[0] == 0


def test_configs_explains_which_entry_wins_and_on_which_key_the_others_lost(gemmport_command, tmp_path):
    mine = tmp_path / "mine.yaml"
    mine.write_text(
        "schema: 1\nentries:\n- {name: big, kernels: {naive: {TS: 4}}, match: {shape: large}}\n"
        "- {name: any, kernels: {tiled: {TS: 2}}}\n- {name: mine, kernels: {gemv: {}, naive: {TS: 2}}, match: {ops: NN}}\n"
    )
    status, out, _ = gemmport_command("configs", "--config", mine, "-m", 100, "--explain")
    assert status == 0
    won, _, rest = out.partition("match too, and lost:\n")
    lost, _, others = rest.partition("do not match:\n")
    assert f"the winner:\n  {mine}: mine  (not tuned; matches ops NN)\n    gemv   ✗ " in won
    assert "    naive TS=2  ← chosen\n" in won
    assert lost.startswith(
        f"  {mine}: any  (matches everything)  lost on ops: the winner asks for NN, this one for none\n"
    )
    assert (
        "  configs/default.yaml: any device  (matches everything)  lost on its source: files of the call go before"
        in lost
    )
    assert f"  {mine}: big: shape is medium, not large\n" in others


def test_configs_checks_every_file_and_tells_all_faults_of_all(gemmport_command, tmp_path):
    texts = {
        "fine": "{name: a, kernels: {naive: {}}}",
        "doubtful": "{name: b, kernels: {naive: {}}, match: {platform: pokl}}",
        "bad": "{name: c, kernels: {naiv: {}}, mach: {}}",
        "worse": "{name: d, kernels: {tiled: {TS: 99, PAD: x}}}",
    }
    files = {name: tmp_path / f"{name}.yaml" for name in texts}
    for name, text in texts.items():
        files[name].write_text(f"schema: 1\nentries: [{text}]\n")

    def check(*names):
        return gemmport_command("configs", *(word for name in names for word in ("--check", files[name])))

    status, out, err = check("fine", "doubtful")
    assert (status, err) == (0, "")
    assert out.splitlines()[0] == f"{files['fine']}: 1 entry, no fault"
    assert out.splitlines()[1].startswith(f"warning: {files['doubtful']}: entry 'b': match.platform 'pokl' is unknown")
    for order in (("bad", "fine", "worse"), ("worse", "bad", "fine")):
        status, out, err = check(*order)
        assert status == 2
        assert out == f"{files['fine']}: 1 entry, no fault\n"
        for name, told in (
            ("bad", "no kernel 'naiv'"), ("bad", "mach is an unknown key"), ("worse", "TS = 99"), ("worse", "PAD = 'x'"),
        ):  # fmt: skip
            assert any(str(files[name]) in line and told in line for line in err.splitlines())


@pytest.mark.parametrize("sizes", [("-m", 0), ("-n", 0), ("-k", 0), ("-m", 0, "-n", 0, "-k", 0)], ids=str)
def test_configs_of_a_product_of_nothing_are_shown(gemmport_command, sizes):
    status, out, err = gemmport_command("configs", *sizes)
    assert (status, err) == (0, "")
    assert "(empty) on " in out


def test_configs_of_sizes_that_are_none_exit_with_2(gemmport_command):
    for sizes, told in ((("-m", -1), "m = -1 is negative"), (("-k", 2**31), "k = 2147483648 is too large")):
        status, out, err = gemmport_command("configs", *sizes)
        assert (status, out) == (2, "")
        assert told in err


# NumPy on the host


def result(device, seconds, numpy_seconds, *, m=8, kernel="naive"):
    baseline = BaselineResult("numpy", timing=numpy_seconds and Timing((numpy_seconds,), 1))
    problem = GemmProblem.create(m, 8, 8)
    return Result(problem, device, kernel, "ok", timing=Timing((seconds,), 1), baselines=(baseline,))


def test_a_device_that_is_slower_than_numpy_is_told_with_how_often_and_how_much(best_backend):
    device, other = best_backend.device, replace(best_backend.device, name="other", index=(7, 7))
    results = [
        result(device, 4.0, 1.0, m=1), result(device, 2.0, 1.0, m=2), result(device, 1.0, 2.0, m=3),
        result(other, 1.0, 2.0), result(other, 1.0, None, m=9),
    ]  # fmt: skip
    (line,) = slower_than_numpy(results)
    assert line.startswith(f"{device.label} is slower than NumPy on this host at 2 of 3 problems, at worst 0.25 of its")
    assert "device=" in line


def test_what_a_librarys_tuner_found_is_told_once(best_backend):
    own = result(best_backend.device, 1.0, 1.0)
    tuned = replace(own, baselines=(BaselineResult("clblast", tuning={"Xgemm": {"MWG": 64}, "Copy": {"COPY_VW": 4}}),))
    told = f"baseline clblast on {best_backend.device.label}: with what its tuner found for Xgemm, Copy"
    assert tunings([tuned, own, tuned]) == [told]
    assert tunings([own]) == []


def test_the_best_kernel_of_a_problem_counts(best_backend):
    device = best_backend.device
    slow, fast = result(device, 4.0, 1.0), result(device, 0.5, 1.0, kernel="tiled")
    assert len(slower_than_numpy([slow])) == 1
    assert slower_than_numpy([slow, fast]) == slower_than_numpy([fast, slow]) == []


@pytest.mark.parametrize("form", ["table", "json", "csv"])
def test_the_warning_goes_to_standard_error_and_to_nothing_else(gemmport_command, monkeypatch, form):
    monkeypatch.setattr(
        import_module("gemmport.cli.run"), "slower_than_numpy", lambda results: [f"{len(results)} slow"]
    )
    status, out, err = gemmport_command(*small("--format", form))
    assert (status, err) == (0, "warning: 1 slow\n")
    assert "slow" not in out


# Logs and caches


def test_verbose_says_which_kernel_was_chosen_from_where(gemmport_command, best_backend):
    command = [
        sys.executable,
        "-c",
        "from gemmport.cli import main; main()",
        "-v",
        *map(str, small("--kernel", "tiled")),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert re.search(
        r"INFO gemmport\.planning\.planner: float32 NN 32×32×32 on .*: tiled from configs/.*\.yaml: ", done.stderr
    )


def test_the_cache_is_told_and_emptied(gemmport_command, monkeypatch, tmp_path):
    monkeypatch.setenv("GEMMPORT_CACHE_DIR", str(tmp_path))
    assert gemmport_command("cache") == (0, f"{tmp_path}: 0 programs, 0.0 MB\n", "")
    store_program(program_key("one"), bytes(3_000_000))
    store_program(program_key("two"), bytes(2_000_000))
    for arguments in (("cache",), ("cache", "info")):
        assert gemmport_command(*arguments) == (0, f"{tmp_path}: 2 programs, 5.0 MB\n", "")
    assert gemmport_command("cache", "clear") == (0, f"{tmp_path}: removed 2 programs, 5.0 MB\n", "")
    assert gemmport_command("cache", "info") == (0, f"{tmp_path}: 0 programs, 0.0 MB\n", "")


def test_a_cache_that_cannot_be_emptied_exits_with_2(gemmport_command, monkeypatch, tmp_path):
    monkeypatch.setattr(import_module("gemmport.cli.cache"), "clear_cache", lambda: (CacheUse(1, 10), 3))
    status, _, err = gemmport_command("cache", "clear")
    assert status == 2
    assert "3 could not be removed" in err
    (tmp_path / "programs").write_text("a file stands where the folder should be")
    monkeypatch.setenv("GEMMPORT_CACHE_DIR", str(tmp_path))
    status, _, err = gemmport_command("cache", "info")
    assert status == 2
    assert "the cache cannot be read" in err


@pytest.mark.parametrize(
    "command",
    [
        (),
        *((name,) for section in cli.SECTIONS.values() for name in section),
        ("cache", "info"),
        ("cache", "clear"),
        ("cache", "warm"),
    ],
)
def test_every_command_explains_itself_and_its_options(gemmport_command, command):
    status, out, _ = gemmport_command(*command, "--help")
    assert status == 0
    assert len(out.splitlines()) >= 6
    assert f"Usage: {' '.join(('gemmport', *command))}" in out


def test_version(gemmport_command):
    status, out, _ = gemmport_command("--version")
    assert (status, out) == (0, f"gemmport {gemmport.__version__}\n")


def test_the_installed_command_runs_in_a_process_of_its_own(best_backend):
    command = [sys.executable, "-c", "from gemmport.cli import main; main()", "run", "--size", "16", "--repeat", "1"]
    command += [
        "--backend",
        best_backend.device.backend,
        "--device",
        best_backend.device.selector,
        "--baseline",
        "none",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "PASS" in done.stdout


def test_python_runs_the_command_as_a_module_too():
    done = subprocess.run([sys.executable, "-m", "gemmport", "--version"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"gemmport {gemmport.__version__}\n"


def test_a_precision_is_that_of_the_products_and_stands_in_the_results(gemmport_command, tmp_path):
    options = ("--kernel", "naive", "--baseline", "numpy", "--format", "json")
    status, (result,) = results_of(gemmport_command(*small(*options, "--precision", "TF32")))
    assert (status, result["precision"], result["verified"]) == (0, "tf32", True)
    assert [launch["function"] for launch in result["launches"]] == ["convert", "naive"]
    assert result["baselines"]["numpy"]["verified"] is True
    own = tmp_path / "own.yaml"
    own.write_text("schema: 1\nprecision: bfloat16\n")
    for more, precision in (((), "bfloat16"), (("--precision", "full"), "full"), (("--dtype", "int32"), "full")):
        _, (result,) = results_of(gemmport_command(*small(*options, "--config", str(own), *more)))
        assert result["precision"] == precision


def test_scales_are_those_of_the_products(gemmport_command):
    options = ("--kernel", "naive", "--baseline", "numpy", "--format", "json", "--dtype", "float8_e4m3fn")
    status, (result,) = results_of(gemmport_command(*small(*options, "--scales", "rows", "--output-dtype", "float32")))
    assert (status, result["scales"], result["alpha"], result["verified"]) == (0, "rows", 1.0, True)
    assert [launch["function"] for launch in result["launches"]] == ["naive", "rescale"]
    status, (result,) = results_of(
        gemmport_command(*small(*options, "--scales", "tensor", "--output-dtype", "float32"))
    )
    assert (status, "scales" in result, result["verified"]) == (0, False, True)
    assert result["alpha"] != 1.0
    for more, told in (
        (("--dtype", "float64"), "scale_a and scale_b are for products of real numbers"),
        (("--device-memory", "1MiB"), "--scales must stand without --device-memory"),
    ):
        status, _, said = gemmport_command(*small("--kernel", "naive", "--scales", "rows", *more))
        assert (status, told in said) == (2, True)
