"""`gemmport tune`: what it writes is read by the planner and by `gemmport regret`; an interruption loses nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

import gemmport as gp
from gemmport.bench.sweeps import read_sweep
from gemmport.cli.tune import duration
from gemmport.planning import lookup
from gemmport.planning.lookup import load_configuration, load_file
from gemmport.tuning import journal, session, space, tuner

SHAPES = "m,n,k\n96,160,128\n256,256,256\n"

SLOW = "schema: 1\ndescription: x\nentries:\n- {name: slow, kernels: {naive: {TS: 1}}, provenance: {tuned: false}}\n"
"""A current choice that tiles are faster than: groups of one work-item."""


@pytest.fixture
def files(tmp_path, monkeypatch):
    """A folder of shapes and a configuration. The journal of a command that names no file is there, too: two commands exclude
    each other by it, and tests share their cache.
    """
    monkeypatch.setattr(journal, "cache_folder", lambda: tmp_path / "cache")
    (tmp_path / "s.csv").write_text(SHAPES)
    (tmp_path / "slow.yaml").write_text(SLOW)
    return tmp_path


@pytest.fixture(autouse=True)
def few_candidates(monkeypatch):
    """A run in this process ends when it has tried some for each product, and at least one, however fast the machine is."""

    def search(studies, crew, seconds):
        for step in session.search(studies, crew, 300.0):
            yield step
            if all(len(study.tried) >= 3 for study in studies):
                return

    monkeypatch.setattr(tuner, "search", search)


def arguments(files, *more, budget="5m"):
    shapes = ("--shapes", files / "s.csv", "--config", files / "slow.yaml")
    return ("tune", *shapes, "--kernel", "tiled,direct", "--budget", budget, *more)


def test_the_table_has_colours_where_they_are_asked_for(gemmport_command, files, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.delenv("NO_COLOR", raising=False)
    status, out, _ = gemmport_command(*arguments(files, "-o", files / "tuned.yaml"))
    assert status == 0
    assert "\x1b[1mproblem" in out
    assert "\\x1b" not in out


def test_a_kernel_that_computes_nothing_here_is_refused(gemmport_command, files, monkeypatch):
    monkeypatch.setattr(space.Space, "_may_serve", lambda self, variant: variant.name != "naive")
    status, out, err = gemmport_command(*arguments(files, "--kernel", "naive", "-o", files / "tuned.yaml"))
    assert (status, out) == (2, "")
    assert "kernels must compute one of the products on " in err
    assert "; got naive: name others" in err


@pytest.mark.parametrize(("text", "seconds"), [("5m", 300.0), ("90s", 90.0), ("90", 90.0), ("1.5h", 5400.0)])
def test_a_budget_is_written_with_a_unit(text, seconds):
    assert duration(text) == seconds


@pytest.mark.parametrize("text", ["", "0", "-5m", "5x", "m", "nan", "inf"])
def test_a_budget_that_is_no_time_is_refused(gemmport_command, text):
    status, _, err = gemmport_command("tune", "--budget", text)
    assert status == 2
    assert "a time must be a number above 0 with s, m or h" in err


def test_what_is_better_is_written_and_read_by_the_planner_and_the_judge(gemmport_command, files, best_backend):
    output = files / "tuned.yaml"
    status, out, _ = gemmport_command(*arguments(files, "-o", output))
    assert status == 0
    assert "geometric mean" in out
    assert f"entries: {output}" in out
    (entry,) = (loaded.entry for loaded in load_file(output).entries)
    assert entry.provenance.tuned
    device = best_backend.device
    plan = gp.plan(gp.GemmProblem.create(256, 256, 256), device, config=[output])
    assert plan.entry == f"{output}: {entry.name}"
    assert plan.variant in ("tiled", "direct")
    sweep = read_sweep(files / "tuned.jsonl")
    assert sweep.device == device
    assert [one.workload.problem.m for one in sweep.swept] == [96, 256]
    assert all(one.verified for swept in sweep.swept for one in swept.timed)
    assert {one.kernel for swept in sweep.swept for one in swept.timed} <= {"naive", "tiled", "direct"}
    status, out, _ = gemmport_command("regret", files / "tuned.jsonl", "--config", output)
    assert status == 0
    assert "over 2 of 2 workloads" in out


@pytest.mark.processes
def test_the_same_command_goes_on_and_a_tuned_file_is_not_beaten_by_itself(gemmport_command, files):
    output = files / "tuned.yaml"
    gemmport_command(*arguments(files, "-o", output))
    (kept,) = files.glob("*.journal")
    before = read_sweep(files / "tuned.jsonl")
    status, _, _ = gemmport_command(*arguments(files, "-o", output))
    assert status == 0
    assert list(files.glob("*.journal")) == [kept]
    after = read_sweep(files / "tuned.jsonl")
    for earlier, later in zip(before.swept, after.swept, strict=True):
        assert set(map(str, earlier.timed)) <= set(map(str, later.timed))


@pytest.mark.processes
def test_what_is_not_better_is_not_written(gemmport_command, files, monkeypatch):
    monkeypatch.setattr(tuner, "BETTER", 1e9)
    status, out, _ = gemmport_command(*arguments(files, "-o", files / "tuned.yaml"))
    assert status == 0
    assert "no entry is written" in out
    assert not (files / "tuned.yaml").exists()


def test_entries_are_installed_for_all_commands(gemmport_command, files, monkeypatch):
    monkeypatch.setattr(lookup, "user_config_folder", lambda name: files / "config" / name)
    status, _, err = gemmport_command(*arguments(files, "--install"))
    assert status == 2
    assert "GEMMPORT_CONFIG_PATH must not be empty for --install" in err
    monkeypatch.delenv("GEMMPORT_CONFIG_PATH")
    status, out, _ = gemmport_command(*arguments(files, "--install"))
    assert status == 0
    (path,) = (files / "config" / "gemmport").glob("tuned-*.yaml")
    assert f"installed: {path}" in out
    assert [loaded.file for loaded in load_configuration().entries if loaded.source == "user"] == [str(path)]


@pytest.mark.processes
def test_without_a_file_the_entries_are_shown(gemmport_command, files):
    status, out, _ = gemmport_command(*arguments(files))
    assert status == 0
    assert "\nentries:\n" in out


def test_what_excludes_each_other_is_refused(gemmport_command, files):
    status, _, err = gemmport_command("tune", "--suite", "--shapes", files / "s.csv")
    assert status == 2
    assert "--shapes and --suite exclude each other" in err


def test_without_optuna_the_command_that_installs_it_is_told(gemmport_command, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    status, _, err = gemmport_command("tune")
    assert status == 3
    assert "pip install 'gemmport[tune]'" in err


@pytest.mark.processes
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interruption_keeps_what_was_found(files, best_backend, number, status):
    device = best_backend.device
    command = [
        sys.executable, "-m", "gemmport", *map(str, arguments(files, "-o", files / "tuned.yaml", budget="10m")),
        "--backend", device.backend, "--device", device.selector,
    ]  # fmt: skip
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as process:
        end = time.monotonic() + 120
        while not any(b'"tried"' in path.read_bytes() for path in files.glob("*.journal")):
            assert time.monotonic() < end
            assert process.poll() is None, process.stderr.read()
            time.sleep(0.1)
        os.kill(process.pid, number)
        _, told = process.communicate(timeout=60)
        assert process.returncode == status
    assert "the same command goes on" in told
    assert any(one.timed for one in read_sweep(files / "tuned.jsonl").swept)
