"""`gemmport calls`: what it prints, and which libraries and problems it takes."""

from __future__ import annotations

import json
import re
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

import gemmport as gp
from absences import MATPLOTLIB, skip_without
from gemmport.bench import calls
from gemmport.bench.call_times import CallPace
from gemmport.bench.calls import Beside, Called
from gemmport.bench.generated import KINDS, generated
from gemmport.bench.standings import Workload
from gemmport.bench.timing import Timing
from gemmport.cli.plots import ratio_lines
from gemmport.core.device import DeviceInfo
from gemmport.core.problem import GemmProblem

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import figures

DOCUMENT = {
    "schema",
    "seed",
    "command",
    "environment",
    "unavailable",
    "programs",
    "libraries",
    "floors",
    "results",
    "summaries",
}

RESULT = {
    "label", "source", "device", "arrays", "m", "n", "k", "batch", "dtype", "trans_a", "trans_b", "alpha", "beta", "asked",
    "launches", "call_path", "status", "reason", "verified", "checks", "seconds", "baselines", "clocks",
}  # fmt: skip


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    for name in ("CPU_CALLS", "GPU_CALLS"):
        monkeypatch.setattr(calls, name, CallPace(0.0, 0.0, waits=False, run_seconds=0.0))


def small(*arguments):
    return ("calls", "--turns", 1, *(() if "--shapes" in arguments else ("--sizes", 16)), *arguments)


def test_a_row_for_each_library_and_shape_and_the_ratios_summed_up(gemmport_command):
    status, out, _ = gemmport_command("calls", "--turns", 1, "--sizes", "8,16", "--arrays", "numpy,device")
    assert status == 0
    assert out.count("PASS") == 4
    for word in ("host, out", "host, new", "back to back", "awaited", "16×16×16"):
        assert word in out
    assert "numpy.matmul" in out or "torch.matmul with copies" in out  # on an NVIDIA GPU
    assert out.count("geometric mean") in (4, 8)  # arrays on a GPU have a product beside them, too
    assert "awaited with out: geometric mean" in out
    assert " over 2 problems, worst" in out
    assert " over 1 problem, worst" in gemmport_command(*small("--arrays", "numpy"))[1]
    assert "a kernel that does nothing is launched and awaited in" in out


def test_products_that_stand_in_no_file_are_drawn_from_a_seed_that_is_told(gemmport_command, monkeypatch):
    def drawn(count, seed, problem):
        assert len({str(one.problem) for one in generated(count, seed, problem)}) > count / 2
        return [Workload(problem(m=8 + each, n=16, k=8), f"drawn {seed} {each}") for each in range(count)]

    monkeypatch.setattr(import_module("gemmport.cli.calls"), "generated", drawn)
    seeds = []
    for _ in range(2):
        status, out, _ = gemmport_command("calls", "--turns", 1, "--generate", 16, "--arrays", "numpy")
        assert (status, out.count("PASS")) == (0, 16)
        seeds.append(re.search(r"--seed ([0-9]+)", out)[1])
        assert f"drawn {seeds[-1]} 15" in out
    assert seeds[0] != seeds[1]
    status, out, _ = gemmport_command("calls", "--turns", 1, "--generate", 2, "--seed", 7, "--arrays", "numpy")
    assert "drawn 7 1" in out
    assert gemmport_command("calls", "--generate", 2, "--sizes", 8)[0] == 2


def test_float32_that_is_rounded_has_nothing_beside_it_that_is_not(gemmport_command, tmp_path):
    file = tmp_path / "calls.json"
    arguments = small("--arrays", "numpy", "--precision", "tf32", "--format", "json", "--output", file)
    assert gemmport_command(*arguments)[0] == 0
    (result,) = json.loads(file.read_text())["results"]
    assert (result["verified"], result["asked"]["problem"]["precision"]) == (True, "tf32")
    ((name, beside),) = result["baselines"].items()
    rounds = name == "torch.matmul with copies"  # PyTorch's, on an NVIDIA GPU
    wanted = (True, "") if rounds else (None, "it cannot round float32 to tf32")
    assert (beside["verified"], beside["reason"]) == wanted
    assert gemmport_command(*small("--arrays", "numpy", "--dtype", "float64", "--precision", "tf32"))[0] == 2


def test_one_seed_gives_one_list_and_every_kind_is_drawn() -> None:
    create = GemmProblem.create
    first, again, other = (generated(40, seed, create) for seed in (3, 3, 4))
    assert first == again != other
    assert {one.label.rpartition(" ")[0] for one in first} == set(KINDS)
    assert generated(8, 3, create) == first[:8]


def test_json_has_the_documented_keys(gemmport_command, tmp_path):
    file = tmp_path / "calls.json"
    arguments = small("--arrays", "numpy,device", "--format", "json", "--dtype", "float32,float64", "--output", file)
    assert gemmport_command(*arguments)[0] == 0
    document = json.loads(file.read_text())
    assert set(document) == DOCUMENT
    assert document["schema"] == 3
    assert document["command"] == (
        "gemmport calls --turns 1 --sizes 16 --arrays numpy,device --format json --dtype float32,float64"
    )
    assert document["libraries"] == {"numpy": np.__version__}
    assert list(document["floors"]) == list(document["environment"]["devices"])
    assert [(x["arrays"], x["dtype"]) for x in document["results"]] == [
        ("numpy", "float32"), ("device", "float32"), ("numpy", "float64"), ("device", "float64"),
    ]  # fmt: skip
    for result in document["results"]:
        assert set(result) == RESULT
        assert result["verified"] is True
        for way in ("host", "back_to_back", "awaited"):
            assert result["seconds"]["out"][way]["median"] > 0
    own = document["results"][0]
    (beside,) = own["baselines"].values()
    assert set(beside) == {"version", "verified", "reason", "seconds", "ratios"}
    assert beside["ratios"]["new"]["host"] == pytest.approx(
        beside["seconds"]["new"]["host"]["median"] / own["seconds"]["new"]["host"]["median"]
    )
    assert set(document["summaries"][0]) == {
        "device", "arrays", "baseline", "way", "result", "geometric_mean", "worst", "count",
    }  # fmt: skip


def test_the_launches_on_file_are_those_that_are_planned_today(gemmport_command, tmp_path, best_backend):
    file = tmp_path / "calls.json"
    arrays = "numpy,device,pyopencl" if best_backend.name == "opencl" else "numpy,device"
    gemmport_command(*small("--arrays", arrays, "--format", "json", "--output", file))
    assert list(figures.stale(file)) == []
    document = json.loads(file.read_text())
    document["results"][0]["launches"][0]["digest"] = "0" * 16
    file.write_text(json.dumps(document))
    assert len(list(figures.stale(file))) == 1


def test_a_library_that_was_asked_for_and_is_missing_is_an_error_by_name(gemmport_command, monkeypatch, best_backend):
    name = "pyopencl" if best_backend.name == "opencl" else "jax"  # whose arrays would reach the device
    monkeypatch.setitem(sys.modules, name, None)
    status, out, err = gemmport_command(*small("--arrays", f"numpy,{name}"))
    assert (status, out) == (3, "")
    assert f"gemmport: {name} must be installed to measure calls of its arrays; got" in err


def test_a_library_that_was_not_asked_for_and_is_missing_is_told(gemmport_command, monkeypatch, tmp_path):
    monkeypatch.setenv("GEMMPORT_CACHE_DIR", str(tmp_path))  # in which nothing was told yet
    for name in ("jax", "torch", "cupy"):
        monkeypatch.setitem(sys.modules, name, None)
    status, out, err = gemmport_command(*small())
    assert status == 0
    assert "numpy" in out
    for name in ("jax", "torch", "cupy"):
        assert f"{name} is left out: " in err


def test_a_wrong_product_exits_with_1(gemmport_command, monkeypatch):
    def wrong(a, b, out=None, **options):
        found = gp.matmul(a, b, out=out, **options)
        found[0, 0] = 1e3
        return found

    monkeypatch.setattr(calls, "matmul", wrong)
    status, out, _ = gemmport_command(*small("--arrays", "numpy"))
    assert status == 1
    assert "FAIL" in out
    assert "numpy, float32 NN 16×16×16: failed: out: " in out


def test_shapes_come_from_a_file_and_those_with_their_own_type_once(gemmport_command, tmp_path):
    file = tmp_path / "shapes.csv"
    file.write_text("m,n,k,batch,trans_b,dtype,label\n6,5,4,3,T,,many\n7,5,4,,,float64,wide\n")
    arguments = small("--shapes", file, "--arrays", "numpy", "--dtype", "float32,float64", "--format", "json")
    results = json.loads(gemmport_command(*arguments)[1])["results"]
    assert [(x["label"], x["dtype"], x["batch"], x["trans_b"]) for x in results] == [
        ("many", "float32", 3, "T"), ("wide", "float64", 1, "N"), ("many", "float64", 3, "T"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--sizes", "8:16:8"), "--sizes '8:16:8': write sizes with commas"),
        (("--sizes", "8", "--shapes", "shapes.csv"), "--shapes gives all sizes"),
        (("--arrays", "numpie"), "arrays must be of numpy, device, torch, cupy, pyopencl, jax; got 'numpie'"),
        (("--dtype", "float31"), "float31"),
        (("--shapes", "shapes.csv"), "shapes.csv, line 2: float32 CN 8×8×8 must be a product with N or T"),
        (("--plot", "calls.txt"), "--plot calls.txt: the name must end in"),
    ],
)
def test_bad_usage_exits_with_2(gemmport_command, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    Path("shapes.csv").write_text("m,n,k,trans_a\n8,8,8,C\n")
    monkeypatch.setattr(calls, "_called", lambda *_: pytest.fail("was measured"))
    status, out, err = gemmport_command("calls", *arguments)
    assert (status, out) == (2, "")
    assert message in err


def test_several_devices_are_measured_one_after_the_other(gemmport_command, best_backend):
    device = best_backend.device
    arguments = small(
        "--device", device.selector, "--device", device.platform, "--arrays", "device", "--format", "json"
    )
    if len([x for x in gp.devices(device.backend) if x.platform == device.platform]) > 1:
        arguments = small("--device", device.selector, "--arrays", "device", "--format", "json")
    results = json.loads(gemmport_command(*arguments)[1])["results"]
    assert [x["device"] for x in results] == [device.label]  # one device, however often it is named


# The picture


def measured(size, ratio, results=("out", "new")):
    ways = ("host", "back_to_back", "awaited")
    own, other = ({way: Timing((seconds,), 1) for way in ways} for seconds in (1.0, ratio))
    return Called(
        Workload(GemmProblem.create(size, size, size)), DeviceInfo("opencl", "Processor", "pocl", type="cpu"), "numpy",
        "ok", times=dict.fromkeys(results, own), beside=Beside("numpy.matmul", "2", True, times=dict.fromkeys(results, other)),
    )  # fmt: skip


def test_a_line_goes_through_the_ratios_of_a_library_over_the_problems():
    found = [measured(8, 0.5), measured(16, 2.0, ("new",)), measured(32, 3.0)]
    label = "numpy ÷ numpy.matmul, Processor (opencl, pocl)"
    assert ratio_lines(found, "host", ("out",)) == {label: ([0, 2], [0.5, 3.0])}
    assert ratio_lines(found, "awaited", ("out", "new")) == {label: ([0, 1, 2], [0.5, 2.0, 3.0])}


def test_the_picture_is_drawn(gemmport_command, tmp_path):
    skip_without(MATPLOTLIB)
    file = tmp_path / "calls.svg"
    assert gemmport_command(*small("--arrays", "numpy", "--plot", file))[0] == 0
    assert "<svg" in file.read_text()


@pytest.mark.parametrize("count", [0, 1])
def test_an_interruption_tells_what_was_measured(count, gemmport_command, monkeypatch, tmp_path):
    module = import_module("gemmport.cli.calls")
    measure = module.run_calls

    def interrupted(*given, **options):
        yield from (one for one, _ in zip(measure(*given, **options), range(count), strict=False))
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "run_calls", interrupted)
    path = tmp_path / "calls.json"
    words = ("--arrays", "device", "--format", "json", "--output", path)
    status, _, err = gemmport_command("calls", "--turns", 1, "--sizes", "8,16", *words)
    assert status == 130
    assert path.exists() == bool(count)
    assert ("before a product was measured" in err) == (not count)
    if count:
        assert [one["m"] for one in json.loads(path.read_text())["results"]] == [8]
