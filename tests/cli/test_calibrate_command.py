"""`gemmport calibrate`: what it prints, what it writes, and what it refuses to write."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import gemmport.cli.calibrate as command
from gemmport.calibration.benchmarks import ReadGlobal, Start
from gemmport.calibration.figures import Figure
from gemmport.calibration.measuring import Measured
from gemmport.core.errors import CalibrationError
from gemmport.planning import lookup
from gemmport.planning.lookup import load_configuration

FORM = {"ITEMS": 1, "WIDTH": 4, "CHAINS": 8}


@pytest.fixture(autouse=True)
def measured(monkeypatch, best_backend):
    """What is measured, without measuring."""
    result = Measured(
        best_backend.device,
        (Figure("read_bandwidth", (3.5e10, 2.0e10, 2.1e10)), Figure("launch", (5.1234567e-6,))),
        {"read_bandwidth": ReadGlobal(8, 16, FORM), "launch": Start(1, 1, FORM)},
        {"latency": "no time was left"},
        3.2,
    )
    monkeypatch.setattr(command, "calibrate", lambda backend, *, progress: result)
    return result


@pytest.fixture
def own_folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.delenv("GEMMPORT_CONFIG_PATH", raising=False)
    monkeypatch.setattr(lookup, "user_config_folder", lambda name: tmp_path / "config" / name)
    return tmp_path / "config" / "gemmport"


def test_a_table_shows_each_number_beside_what_held_before(gemmport_command, best_backend):
    status, out, _ = gemmport_command("calibrate")
    assert status == 0
    assert "read bandwidth" in out
    assert "21 GB/s" in out
    assert "5.12 µs" in out
    assert f"before: {load_configuration().model(best_backend.device).origin}" in " ".join(out.split())
    assert "disturbed: read_bandwidth; let nothing else run" in out
    assert "latency is left out, and derived: no time was left" in out
    assert "written nowhere" in out


def test_a_file_is_written_that_holds_from_then_on(gemmport_command, tmp_path, best_backend):
    file = tmp_path / "model.yaml"
    status, out, _ = gemmport_command("calibrate", "-o", file)
    assert status == 0
    assert f"written to {file}" in out
    model = load_configuration([file]).model(best_backend.device)
    assert (model.read_bandwidth, model.launch) == (2.1e10, 5.123e-6)
    assert gemmport_command("configs", "--check", file)[0] == 0


def test_an_installed_model_is_read_by_default(gemmport_command, own_folder, best_backend):
    status, _, _ = gemmport_command("calibrate", "--install")
    assert status == 0
    (file,) = own_folder.iterdir()
    assert load_configuration().model(best_backend.device).read_bandwidth == 2.1e10
    assert str(file) in load_configuration().model(best_backend.device).origin


def test_json_has_the_model_and_every_sample(gemmport_command):
    status, out, _ = gemmport_command("calibrate", "--format", "json")
    document = json.loads(out)
    assert status == 0
    assert document["model"]["read_bandwidth"] == 2.1e10
    assert document["figures"][0]["samples"] == [3.5e10, 2.0e10, 2.1e10]
    assert document["figures"][0]["function"] == "read_global"
    assert document["left_out"] == {"latency": "no time was left"}


def test_two_places_and_an_empty_path_are_refused(gemmport_command, tmp_path, monkeypatch):
    status, _, err = gemmport_command("calibrate", "-o", tmp_path / "a.yaml", "--install")
    assert status == 2
    assert "name one of them" in err
    monkeypatch.setenv("GEMMPORT_CONFIG_PATH", "")
    status, _, err = gemmport_command("calibrate", "--install")
    assert status == 2
    assert "leaves your configuration folder out" in err


def test_a_benchmark_that_leaves_work_out_writes_nothing(gemmport_command, tmp_path, monkeypatch):
    def fails(backend, *, progress):
        raise CalibrationError("latency must take at least 1e-10 s; got 0")

    monkeypatch.setattr(command, "calibrate", fails)
    status, out, err = gemmport_command("calibrate", "-o", tmp_path / "model.yaml")
    assert (status, out) == (1, "")
    assert "latency must take at least" in err
    assert not (tmp_path / "model.yaml").exists()
