"""`gemmport profile`: how Nsight Compute is found and called, what is read from its report, and what is said of it.

A script stands in for Nsight Compute; reports/ncu-raw.csv is one of its reports, from an H200. The last test runs
the real one, where it and a CUDA device are there.
"""

from __future__ import annotations

import csv
import importlib
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gemmport as gp
from absences import GPU, beyond, skip_without
from extensions import split_k
from gemmport import cli, kernels
from gemmport.core.errors import ProfileError, ToolUnavailableError, UnsupportedError
from gemmport.core.plan import Plan
from gemmport.core.problem import GemmProblem
from gemmport.execution import selection
from gemmport.planning.lookup import load_configuration
from gemmport.planning.planner import make_plan
from gemmport.profiling import ncu
from gemmport.profiling.explain import explain, top_stalls
from gemmport.profiling.metrics import METRICS, STALLS, fma_share, metrics_for
from gemmport.profiling.profile import Profile, profile_plans
from gemmport.profiling.report import parse_report
from gemmport.profiling.target import WARM_UPS, run_plans
from launched import launch_one_by_one, put_on
from made_up_devices import DEVICES

COMMAND = importlib.import_module("gemmport.cli.profile")  # as an attribute of gemmport.cli, it is the command itself
H100 = DEVICES["NVIDIA sm_90 under CUDA"]
RAW = (Path(__file__).parents[1] / "reports" / "ncu-raw.csv").read_text(encoding="utf-8")
FLOAT32 = metrics_for("float32")
DOCS = (Path(__file__).parents[2] / "docs" / "profile.md").read_text(encoding="utf-8")


def plan(kernel: str = "naive", device: gp.DeviceInfo = H100, size: int = 64, **shape: Any) -> Plan:
    return make_plan(GemmProblem.create(size, size, size, **shape), device, load_configuration(), kernel=kernel)


@pytest.fixture
def several_launches(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Plan]:
    """Makes plans of `split_k`: four launches of one kernel, and one of another."""
    monkeypatch.setattr(kernels, "_FAMILY", {**kernels._FAMILY})
    kernels.register(split_k.SplitK())
    return lambda **more: plan("split_k", **more)


# The report


def test_launches_are_read_in_order_with_si_units() -> None:
    rows = parse_report(RAW, FLOAT32)
    assert [row.function for row in rows] == ["naive", "tiled", "register_tiled"]
    assert rows[0].figures["duration"] == pytest.approx(2.745536e-3)
    assert rows[2].figures["dram_read"] == pytest.approx(66.99189482418e9)
    assert rows[1].figures["shared_load_conflicts"] == 173005
    assert rows[1].figures["stall_mio_throttle"] == 16.75


def lacking(report: str) -> str:
    """The report of a chip that does not count two things: one is "n/a", one is not there at all."""
    said, header, rest = report.partition('"ID"')
    rows = list(csv.reader(io.StringIO(header + rest)))
    absent = rows[0].index("launch__occupancy_limit_warps")
    uncounted = rows[0].index("smsp__average_warps_issue_stalled_drain_per_issue_active.ratio")
    for row in rows[2:]:
        row[uncounted] = "n/a"
    text = io.StringIO()
    csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(
        row[:absent] + row[absent + 1 :] for row in rows
    )
    return said + text.getvalue()


def test_what_the_chip_does_not_count_is_none_and_zero_is_zero() -> None:
    row = parse_report(lacking(RAW), FLOAT32)[0]
    assert row.figures.keys() == {metric.key for metric in FLOAT32}
    assert row.figures["stall_drain"] is None  # "n/a" in the report
    assert row.figures["limit_warps"] is None  # not in the report
    assert row.figures["shared_loads"] == 0


@pytest.mark.parametrize(
    ("cell", "unit", "value"),
    [
        ("12,345,678", "ns", 12.345678e-3), ("1,234.50", "nsecond", 1.2345e-6), ("12.5", "us", 12.5e-6),
        ("3.25", "msecond", 3.25e-3), ("2", "s", 2.0), ("1.5", "Tbyte/s", 1.5e12), ("2.00", "Gbyte/second", 2e9),
        ("7", "byte/s", 7.0), ("45.1", "%", 45.1), ("1,024", "inst", 1024.0), ("n/a", "", None), ("", "ns", None),
        ("nan", "%", None), ("inf", "%", None),
    ],
)  # fmt: skip
def test_a_cell_is_read_with_its_unit(cell: str, unit: str, value: float | None) -> None:
    text = f'"ID","Kernel Name","gpu__time_duration.sum"\n"","","{unit}"\n"0","naive","{cell}"\n'
    (row,) = parse_report(text, FLOAT32[:1])
    assert row.figures["duration"] == (None if value is None else pytest.approx(value))


@pytest.mark.parametrize("text", ["", '"just","text"\n"and","more"\n', '"ID","Kernel Name"\n'])
def test_a_report_without_launches_is_an_error(text: str) -> None:
    with pytest.raises(ProfileError, match="no table of launches: it is empty"):
        parse_report(text, FLOAT32)


def test_the_error_of_a_report_without_launches_repeats_what_nsight_compute_said() -> None:
    said = "==PROF== Connected to process 1\n==WARNING== No kernels were profiled.\n==ERROR== The application crashed\n"
    with pytest.raises(ProfileError, match=re.escape("launches: No kernels were profiled.; The application crashed")):
        parse_report(said, FLOAT32)


# The metrics


@pytest.mark.parametrize("arithmetic", ["float16", "float32", "float64", ""])
def test_a_problem_is_asked_each_figure_once_and_that_of_its_own_arithmetic(arithmetic: str) -> None:
    asked = metrics_for(arithmetic)
    keys = [metric.key for metric in asked]
    assert len(set(keys)) == len(keys)
    assert {metric.arithmetic for metric in asked} <= {"", arithmetic}
    assert ("fma" in keys) == bool(arithmetic)


def test_every_metric_is_a_counter_with_a_meaning_and_stands_in_the_documentation() -> None:
    counters = [metric.counter for metric in METRICS]
    assert len(set(counters)) == len(counters)
    for metric in METRICS:
        assert re.fullmatch(r"[a-z0-9]+__[a-z0-9_]+(\.[a-z_]+)*", metric.counter)
        assert metric.meaning
        if metric.key not in {stall.key for stall in STALLS}:
            assert f"`{metric.key}`" in DOCS, metric.key
            assert f"`{metric.counter}`" in DOCS, metric.counter
    for stall in STALLS:
        assert f"| {stall.reason.replace('_', ' ')} | {stall.waits_for} | {stall.remedy} |" in DOCS


def test_the_share_of_multiply_adds_counts_warps_of_32_threads() -> None:
    assert fma_share({"fma": 3200.0, "instructions": 400.0}) == pytest.approx(25.0)
    assert fma_share({"fma": 3200.0}) is None
    assert fma_share({"fma": None, "instructions": 400.0}) is None
    assert fma_share({"fma": 0.0, "instructions": 0.0}) is None


# What bounds a launch

BALANCED: dict[str, float | None] = {
    "fma_pipe": 50.0, "dram": 30.0, "l2": 40.0, "l1": 60.0, "issue_active": 50.0, "fma": 3200.0, "instructions": 200.0,
    "stall_long_scoreboard": 2.5, "stall_barrier": 1.0, "stall_not_selected": 9.0, "stall_drain": None,
}  # fmt: skip


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({}, "bound by latency: 50 % of the issue slots are used, and per instruction 2.5 warps wait for data from"),
        ({"stall_barrier": 3.0}, "3.0 warps wait for the other warps of the group at a barrier (barrier)"),
        ({"issue_active": 80.0}, "bound by issue: 80 % of the issue slots are used, 50 % of them for FMA"),
        ({"issue_active": 79.9}, "bound by latency"),
        ({"issue_active": 85.0, "fma": None}, "bound by issue: 85 % of the issue slots are used; more FMA"),
        ({"l1": 80.0}, "bound by the L1 cache and shared memory: 80 % of its peak"),
        ({"l1": 79.9}, "bound by latency"),
        ({"l2": 95.0, "l1": 85.0}, "bound by the L2 cache: 95 % of its peak"),
        ({"dram": 92.0, "l2": None, "l1": None}, "bound by the device's memory: 92 % of its peak"),
        ({"l1": 90.0, "issue_active": 95.0}, "bound by the L1 cache"),
        ({"fma_pipe": 80.0, "l1": 99.0, "issue_active": 99.0}, "bound by arithmetic: the FMA pipe is 80 % used"),
        ({"fma_pipe": 79.9}, "bound by latency"),
        ({"issue_active": None}, "not explained: the counters of issue and stalls are n/a"),
        ({"stall_long_scoreboard": None, "stall_barrier": 0.0}, "not explained"),
    ],
)  # fmt: skip
def test_a_launch_is_explained_by_the_first_rule_that_holds(changed: dict[str, float | None], told: str) -> None:
    assert told in explain({**BALANCED, **changed})


def test_stalls_are_told_most_frequent_first_and_without_those_that_do_not_occur() -> None:
    figures = {**BALANCED, "stall_wait": 0.0}
    assert [stall.reason for stall in top_stalls(figures, 9)] == ["not_selected", "long_scoreboard", "barrier"]
    assert [stall.reason for stall in top_stalls(figures, 1)] == ["not_selected"]


# Nsight Compute is found


def executable(path: Path, text: str = "#!/bin/sh\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)
    return path


def test_the_path_goes_first_then_the_toolkit_that_is_named_then_the_newest_installed(tmp_path: Path) -> None:
    on_path = executable(tmp_path / "path" / "ncu")
    of_toolkit = executable(tmp_path / "toolkit" / "bin" / "ncu")
    for older in ("2024.3.2", "2025.3.1"):
        executable(tmp_path / "opt" / older / "ncu")
    newest = executable(tmp_path / "opt" / "2025.10.0" / "ncu")
    places = [str(tmp_path / "opt" / "*")]
    environment = {"PATH": str(on_path.parent), "CUDA_HOME": str(tmp_path / "toolkit")}
    assert ncu.find_ncu(environment, places) == on_path
    environment["PATH"] = str(tmp_path)
    assert ncu.find_ncu(environment, places) == of_toolkit
    assert ncu.find_ncu({"CUDA_PATH": str(tmp_path / "toolkit")}, places) == of_toolkit
    assert ncu.find_ncu({}, places) == newest


def test_where_there_is_none_the_error_says_how_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(ToolUnavailableError, match=r"install it.*developer\.nvidia\.com/nsight-compute"):
        ncu.find_ncu({"PATH": str(tmp_path), "CUDA_HOME": str(tmp_path)}, [f"{tmp_path}/*"])


# Nsight Compute is called


def options(command: list[str]) -> dict[str, str]:
    """Of a command line, the value after each option."""
    return {name: value for name, value in pairwise(command) if name.startswith("-")}


def test_the_launches_that_warm_up_are_passed_over(several_launches: Callable[..., Plan]) -> None:
    plans = {Path("/a.json"): plan("naive"), Path("/b.json"): several_launches()}
    command = ncu.command(Path("/x/ncu"), Path("/y.csv"), plans, FLOAT32)
    told = options(command)
    assert command[0] == "/x/ncu"
    assert told["--launch-skip"] == str(WARM_UPS * 6)
    assert told["--launch-count"] == "6"
    assert told["--kernel-name"] == "regex:^(naive|split_k|sum_parts)$"
    assert told["--kernel-name-base"] == told["--print-kernel-base"] == "function"
    assert told["--metrics"].split(",") == [metric.counter for metric in FLOAT32]
    assert (told["--page"], told["--print-units"], told["--log-file"]) == ("raw", "base", "/y.csv")
    assert told["--clock-control"] == "none"
    assert "--csv" in command
    assert command[-5:] == [sys.executable, "-m", "gemmport.profiling.target", "/a.json", "/b.json"]


FAKE = """#!{python}
import json, os, sys, time
from pathlib import Path
here = Path(__file__).parent
if "--version" in sys.argv:
    print("NVIDIA (R) Nsight Compute Command Line Profiler\\nVersion 2025.3.1.0 (build 36398880) (public-release)")
    sys.exit()
words = sys.argv[1:]
plans = [json.loads(Path(word).read_text()) for word in words[words.index("gemmport.profiling.target") + 1:]]
told = {{"words": words, "plans": plans, "locale": os.environ.get("LC_ALL"), "pid": os.getpid()}}
(here / "called.json").write_text(json.dumps(told))
Path(words[words.index("--log-file") + 1]).write_text((here / "report.csv").read_text())
print((here / "said").read_text())
time.sleep({seconds})
sys.exit({status})
"""


@pytest.fixture
def fake_ncu(tmp_path: Path) -> Callable[..., Path]:
    """Makes a program that takes Nsight Compute's place: it writes a report, says something, and tells how it was called."""

    def make(report: str = RAW, said: str = "", status: int = 0, seconds: float = 0.0) -> Path:
        folder = tmp_path / "bin"
        program = executable(folder / "ncu", FAKE.format(python=sys.executable, status=status, seconds=seconds))
        (folder / "report.csv").write_text(report, encoding="utf-8")
        (folder / "said").write_text(said, encoding="utf-8")
        return program

    return make


def called(program: Path) -> dict[str, Any]:
    told: dict[str, Any] = json.loads((program.parent / "called.json").read_text(encoding="utf-8"))
    return told


def report_of(*functions: str) -> str:
    """A report of launches, the duration of each of which is its number in nanoseconds."""
    rows = "".join(f'"{number}","{name}","{number}"\n' for number, name in enumerate(functions))
    return f'==PROF== Connected\n"ID","Kernel Name","gpu__time_duration.sum"\n"","","ns"\n{rows}==PROF== Disconnected\n'


def test_plans_are_handed_over_and_their_launches_come_back(fake_ncu: Callable[..., Path]) -> None:
    program = fake_ncu()
    plans = [plan(name) for name in ("naive", "tiled", "register_tiled")]
    profiles = profile_plans(plans, program)
    assert [Plan.from_json(json.dumps(told)) for told in called(program)["plans"]] == plans
    assert called(program)["locale"] == "C.UTF-8"
    assert [(profile.plan, profile.title) for profile in profiles] == [(made, made.variant) for made in plans]
    assert profiles[2].figures["duration"] == pytest.approx(501.408e-6)
    assert [profile.bound.partition(":")[0] for profile in profiles] == [
        "bound by latency", "bound by the L1 cache and shared memory", "bound by latency",
    ]  # fmt: skip


def test_each_launch_of_a_plan_has_figures_of_its_own(
    fake_ncu: Callable[..., Path], several_launches: Callable[..., Plan]
) -> None:
    program = fake_ncu(report_of(*["split_k"] * 4, "sum_parts", "naive"))
    profiles = profile_plans([several_launches(), plan("naive")], program)
    assert [profile.title for profile in profiles] == [
        *(f"split_k {number}/5 split_k" for number in (1, 2, 3, 4)), "split_k 5/5 sum_parts", "naive",
    ]  # fmt: skip
    assert [profile.figures["duration"] for profile in profiles] == pytest.approx([n * 1e-9 for n in range(6)])


@pytest.mark.parametrize("functions", [["tiled"], ["naive", "naive"], []])
def test_other_launches_than_those_of_the_plans_are_an_error(
    functions: list[str], fake_ncu: Callable[..., Path]
) -> None:
    with pytest.raises(ProfileError, match=r"launches of (tiled|naive, naive|nothing); the plans launch naive"):
        profile_plans([plan()], fake_ncu(report_of(*functions)))


def test_without_permission_the_error_says_the_remedy(fake_ncu: Callable[..., Path]) -> None:
    said = (
        "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters on the "
        "target device 0.\n"
    )
    with pytest.raises(ToolUnavailableError, match=r"NVreg_RestrictProfilingToAdminUsers=0.*developer\.nvidia\.com"):
        profile_plans([plan()], fake_ncu(said, status=1))


def test_a_failure_is_told_with_what_nsight_compute_and_the_process_said(fake_ncu: Callable[..., Path]) -> None:
    report = "==PROF== Connected\n==ERROR== The application returned an error code (1).\n"
    program = fake_ncu(report, said="DeviceMemoryError: too large", status=1)
    with pytest.raises(ProfileError, match=r"status 1: The application .* code \(1\)\.; DeviceMemoryError: too large"):
        profile_plans([plan()], program)


def test_one_that_does_not_end_is_ended(fake_ncu: Callable[..., Path]) -> None:
    program = fake_ncu(seconds=60)
    with pytest.raises(ProfileError, match="did not end within 2 seconds"):
        profile_plans([plan()], program, timeout=2)
    with pytest.raises(ProcessLookupError):
        os.kill(called(program)["pid"], 0)


def test_kernels_under_opencl_are_not_profiled(fake_ncu: Callable[..., Path]) -> None:
    program = fake_ncu()
    with pytest.raises(UnsupportedError, match="Nsight Compute reads the counters of CUDA kernels only"):
        profile_plans([plan(device=DEVICES["NVIDIA sm_90 under OpenCL"])], program)
    assert not (program.parent / "called.json").exists()


def test_an_empty_product_is_not_profiled(fake_ncu: Callable[..., Path]) -> None:
    with pytest.raises(UnsupportedError, match="nothing to profile"):
        profile_plans([plan(size=0)], fake_ncu())


# The process that is watched


def test_the_plans_run_in_turn_on_random_data_and_nothing_else_is_launched(
    best_backend: gp.Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    uploaded, launched = [], []
    upload, launch = best_backend.upload, best_backend.launch
    put_on(monkeypatch, best_backend, "upload", lambda memory, host: (uploaded.append(host), upload(memory, host)))
    put_on(monkeypatch, best_backend, "launch", lambda call, **how: (launched.append(call.groups), launch(call, **how)))
    launch_one_by_one(best_backend, monkeypatch)
    plans = [plan(name, best_backend.device, 96, beta=1.0) for name in ("naive", "register_tiled")]
    assert plans[0].launches[0].groups != plans[1].launches[0].groups
    run_plans(best_backend, plans)
    assert launched == [made.launches[0].groups for made in plans] * (WARM_UPS + 1)
    assert len(uploaded) == 3  # A, B and, beta not being 0, C
    for host in uploaded:
        assert host.size == 96 * 96
        assert np.std(host) == pytest.approx(1, abs=0.1)


def run_target(*files: Path) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "gemmport.profiling.target", *map(str, files)]
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=120)


def test_the_process_runs_plans_from_files(best_backend: gp.Backend, tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    file.write_text(plan("tiled", best_backend.device).to_json(), encoding="utf-8")
    done = run_target(file)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_process_says_why_it_fails(best_backend: gp.Backend, tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    good = plan("tiled", best_backend.device)
    broken = replace(good.launches[0], kernel=replace(good.launches[0].kernel, function="no_such_function"))
    file.write_text(replace(good, launches=(broken,)).to_json(), encoding="utf-8")
    done = run_target(file)
    assert done.returncode == 1
    assert re.fullmatch(r"\w+Error: .*no_such_function.*\n", done.stderr)


# The command


@pytest.fixture
def gemmport_command(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """Runs `gemmport profile` as on a machine with a CUDA device; gives exit status, standard output, standard error."""
    monkeypatch.setattr(COMMAND, "select_device", lambda *_: H100)

    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["gemmport", "profile", *map(str, arguments)])
        capfd.readouterr()
        status = cli._run_command()
        return (status, *capfd.readouterr())

    return run


@pytest.fixture
def fake_on_path(fake_ncu: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    def make(*report: str) -> Path:
        program = fake_ncu(*report)
        monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
        return program

    return make


def test_the_table_has_a_column_for_each_kernel_and_a_line_that_explains_it(gemmport_command, fake_on_path) -> None:
    fake_on_path(lacking(RAW))
    status, out, err = gemmport_command("naive", "tiled", "register_tiled", "--size", 2048)
    lines = {line.split("  ")[0]: line.split() for line in out.splitlines()}
    assert (status, err) == (0, "")
    assert "2048" in out.splitlines()[0]
    assert "Nsight Compute 2025.3.1.0" in out.splitlines()[0]
    assert out.splitlines()[1].split() == ["naive", "tiled", "register_tiled"]
    assert lines["duration"][1:] == ["2.746", "ms", "1.87", "ms", "501.4", "µs"]
    assert lines["issue slots used"][3:] == ["63.1", "%", "42.3", "%", "68.1", "%"]
    assert lines["DRAM read"][2:] == ["12.2", "GB/s", "18.0", "GB/s", "67.0", "GB/s"]
    assert lines["FMA among instructions"][3:] == ["15.2", "%", "33.0", "%", "76.9", "%"]
    assert lines["registers per thread"][3:] == ["32", "32", "240"]
    assert lines["stall: lg throttle"][3:] == ["8.77", "0.01", "0.00"]
    assert "stall: dispatch stall" not in out  # among the three most frequent of no kernel
    assert "stall: drain" not in out
    assert "groups that warps allow" not in out
    assert "tiled: bound by the L1 cache and shared memory: 91 % of its peak" in out
    missing = next(line for line in out.splitlines() if line.startswith("n/a on this device"))
    assert "launch__occupancy_limit_warps" in missing
    assert "issue_stalled_drain" in missing


def test_markdown_is_a_table_and_a_list(gemmport_command, fake_on_path) -> None:
    fake_on_path(report_of("naive", "tiled"))
    status, out, _ = gemmport_command("naive", "tiled", "--format", "markdown")
    assert status == 0
    assert "| | naive | tiled |\n|---|---:|---:|\n| duration | 0 µs | 0.001 µs |\n" in out
    assert "\n- **naive**: not explained" in out


def test_json_has_every_figure_and_says_what_it_is(gemmport_command, fake_on_path) -> None:
    program = fake_on_path(report_of("naive", "tiled"))
    status, out, _ = gemmport_command(
        "naive",
        "tiled",
        "-m",
        96,
        "--size",
        32,
        "--set",
        "TS=8",
        "--set",
        "PAD=0",
        "--dtype",
        "float64",
        "--format",
        "json",
    )
    document = json.loads(out)
    naive, tiled = document["launches"]
    assert status == 0
    assert document["schema"] == 1
    assert document["environment"]["ncu"] == "2025.3.1.0"
    assert gp.DeviceInfo.from_dict(document["environment"]["device"]) == H100
    assert GemmProblem.from_dict(document["problem"]) == GemmProblem.create(96, 32, 32, dtype="float64")
    assert document["metrics"]["fma_pipe"]["counter"].startswith("sm__inst_executed_pipe_fp64")
    assert naive["figures"].keys() == document["metrics"].keys()
    assert tiled["figures"]["duration"] == pytest.approx(1e-9)
    assert tiled["parameters"]["PAD"] == {"value": 0, "origin": "--set"}
    assert naive["parameters"] == {"TS": {"value": 8, "origin": "--set"}}
    assert (tiled["kernel"], tiled["launch"], tiled["launches"], tiled["function"]) == ("tiled", 1, 1, "tiled")
    assert tiled["work_group"] == [8, 8, 1]
    assert document["unsupported"] == {}
    assert "sm__inst_executed_pipe_fma." not in " ".join(called(program)["words"])


def test_a_kernel_that_cannot_do_it_is_named_and_the_others_are_profiled(
    gemmport_command, fake_on_path, monkeypatch
) -> None:
    program = fake_on_path(report_of("naive"))
    monkeypatch.setattr(type(kernels.variant("tiled")), "dtypes", frozenset({"float64"}))
    status, out, _ = gemmport_command("naive", "tiled")
    assert status == 0
    assert len(called(program)["plans"]) == 1
    assert "tiled: tiled on NVIDIA H100" in out
    status, _, err = gemmport_command("tiled")
    assert status == 2
    assert "tiled computes float64, not float32" in err


@pytest.mark.parametrize(
    ("arguments", "status", "told"),
    [
        ((), 2, "Missing argument 'KERNEL...'"),
        (("no_such",), 2, "no kernel 'no_such'"),
        (("naive", "--set", "TSM=8"), 2, "--set TSM"),
        (("naive", "--set", "TS=64"), 2, "TS = 64 is not allowed"),
        (("naive", "--dtype", "float8"), 2, "float8"),
        (("naive",), 3, "Nsight Compute's ncu is not on the PATH"),
    ],
)
def test_faults_of_the_command_line_are_told(arguments, status, told, gemmport_command, monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(COMMAND, "find_ncu", lambda: ncu.find_ncu({"PATH": str(tmp_path)}, []))
    found, _, err = gemmport_command(*arguments)
    assert (found, told in err) == (status, True), err


def test_under_opencl_the_command_says_why_not(gemmport_command, monkeypatch) -> None:
    monkeypatch.setattr(COMMAND, "select_device", lambda *_: DEVICES["NVIDIA sm_90 under OpenCL"])
    status, _, err = gemmport_command("naive", "--backend", "opencl")
    assert status == 2
    assert "Nsight Compute reads the counters of CUDA kernels only" in err


# The real one


def test_nsight_compute_profiles_kernels_of_this_gpu() -> None:
    skip_without(GPU)
    status = selection.backend_status("cuda")
    try:
        profiles: list[Profile] = profile_plans(
            [plan(name, status.devices[0], 1024) for name in ("naive", "register_tiled")], ncu.find_ncu()
        )
    except ToolUnavailableError as error:
        pytest.skip(beyond(status.devices[0], str(error)))
    naive, tiled = (profile.figures for profile in profiles)
    for figures in (naive, tiled):
        assert 1e-6 < figures["duration"] < 1
        assert 0 < figures["issue_active"] <= 100
        assert figures["fma"] >= 1024**3  # a term of the sum each, and what scales the result
        assert 0 < figures["registers"] <= 255
        assert top_stalls(figures, 3)
    assert naive["shared_loads"] == 0 < tiled["shared_loads"]
    assert naive["instructions"] > tiled["instructions"]
    assert all("bound by" in profile.bound for profile in profiles)
