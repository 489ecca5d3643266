"""`gemmport explain`: a page, JSON or a picture of a plan, with what it takes beside what is predicted."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest

import gemmport as gp
from absences import MATPLOTLIB, skip_without
from gemmport.cli import plots
from gemmport.planning.explanation import Measured, explain
from gemmport.planning.lookup import load_configuration
from gemmport.runtime import files

H200 = Path(__file__).parents[2] / "benchmarks" / "results" / "h200" / "run" / "squares-float32.json"


def test_the_page_is_that_of_the_library(gemmport_command, best_backend):
    status, out, err = gemmport_command("explain", 100, 200, 300, "--dtype", "float64", "--trans-b", "--batch", 2)
    assert (status, err) == (0, "")
    problem = gp.GemmProblem.create(100, 200, 300, dtype="float64", trans_b="T", batch=2)
    assert out == f"{explain(problem, best_backend.device, load_configuration())}\n"


def test_json_has_the_facts(gemmport_command, tmp_path):
    status, out, _ = gemmport_command("explain", 64, 64, 64, "--kernel", "tiled", "--set", "TS=8", "--format", "json")
    assert status == 0
    found = json.loads(out)
    assert found["plan"]["parameters"]["TS"] == {"value": 8, "origin": "--set"}
    assert gemmport_command("explain", 64, 64, 64, "--format", "json", "--output", tmp_path / "x.json")[1] == ""
    assert json.loads((tmp_path / "x.json").read_text())["problem"]["m"] == 64


def test_a_configuration_is_explained(gemmport_command, tmp_path):
    mine = tmp_path / "mine.yaml"
    mine.write_text(
        "schema: 1\nentries: [{name: mine, kernels: {naive: {TS: 4}}}]\nmodels: [{name: slow, launch: 0.5}]\n"
    )
    status, out, _ = gemmport_command("explain", 64, 64, 64, "--config", mine)
    assert status == 0
    told = " ".join(out.split())
    for text in (f"naive, from {mine}: mine", f"{mine}: mine: serves", f"model from {mine}: slow", "a launch 500 ms"):
        assert text in told


CLUSTER = ("--cluster", "nodes=4,gpus=2,link=100GB/s,net=10GB/s")


def test_a_cluster_is_explained_of_a_device_of_a_file_and_of_a_chip_by_name(gemmport_command):
    status, out, err = gemmport_command("explain", *CLUSTER, "--size", 16384, "--device", "h200")
    assert (status, err) == (0, "")
    assert out == f"{gp.explain_cluster((16384, 16384, 16384), CLUSTER[1], 'H200')}\n"
    recorded = ("--recorded", H200, "--backend", "cuda", "--format", "json")
    status, text, _ = gemmport_command("explain", 16384, 8192, 4096, *CLUSTER, *recorded)
    found = json.loads(text)
    assert (status, found["problem"]["n"], found["cluster"]["devices"]) == (0, 8192, 8)
    assert found["device"]["name"] == "NVIDIA H200"
    assert [each["name"] for each in found["schedules"]] == ["1-D", "2-D", "2.5-D"]
    status, out, _ = gemmport_command("explain", *CLUSTER, "--size", 512)  # on the device that is here
    assert status == 0
    assert " on 4 nodes of 2 × " in out


@pytest.mark.parametrize(
    ("words", "status", "told"),
    [
        (["--cluster", "nodes=4", "--size", 64], 2, "net must be the bandwidth between nodes"),
        ([*CLUSTER, "--size", 64, "--measure"], 2, "leave out --measure, --plot and --device-memory"),
        ([*CLUSTER, "--size", 64, "--device-memory", "1GiB"], 2, "leave out --measure, --plot and --device-memory"),
        (["--devices", "0:0,,1:0", "--size", 64], 2, "--devices '0:0,,1:0': write PLATFORM"),
        (["--devices", "all,cpu", "--size", 64], 2, "--devices all is every device"),
        ([*CLUSTER, 64, 64, 64, "--size", 64], 2, "leave out one or the other"),
        ([64, 64], 2, "M, N and K must be three numbers, or --size one"),
        ([*CLUSTER, "--size", 64, "--batch", 2], 2, "a product must be one"),
        ([*CLUSTER, "--size", 2**20, "--device", "H200"], 3, "nodes would do"),
        ([*CLUSTER, "--size", 64, "--device", "H300"], 3, "; of chips that need not be here there are H200"),
    ],
    ids=str,
)
def test_what_is_no_cluster_and_what_has_no_room_on_one_is_told(gemmport_command, words, status, told):
    found, out, err = gemmport_command("explain", *words)
    assert (found, out) == (status, "")
    assert told in " ".join(err.split())


def test_a_size_stands_for_three(gemmport_command):
    one, three = (gemmport_command("explain", *words)[1] for words in (("--size", 48), (48, 48, 48)))
    assert one == three


def test_what_is_measured_is_verified_and_stands_beside_the_prediction(gemmport_command):
    status, out, err = gemmport_command("explain", 64, 64, 64, "--measure", "--repeat", 2)
    assert (status, err) == (0, "")
    assert "; verified\n" in out
    assert "predicted: " in out
    _, text, _ = gemmport_command("explain", 64, 64, 64, "--measure", "--repeat", 2, "--format", "json")
    measured = json.loads(text)["measured"]
    assert measured["verified"] is True
    assert measured["seconds"] > 0


def test_a_product_of_nothing_is_not_measured(gemmport_command):
    status, out, _ = gemmport_command("explain", 0, 64, 64, "--measure")
    assert status == 0
    assert "\nmeasured" not in out


def test_what_is_wrong_exits_with_1(gemmport_command, monkeypatch):
    def wrong(found, *_, **__):
        return replace(found, measured=Measured(1.0, 0.0, False, found.plan))

    monkeypatch.setattr(import_module("gemmport.cli.explain"), "measured", wrong)
    status, out, _ = gemmport_command("explain", 64, 64, 64, "--measure")
    assert status == 1
    assert "WRONG: its result failed verification" in out


@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_the_roofline_is_drawn(gemmport_command, tmp_path, suffix):
    skip_without(MATPLOTLIB)
    file = tmp_path / f"roof.{suffix}"
    status, out, _ = gemmport_command("explain", 64, 64, 64, "--measure", "--repeat", 2, "--plot", file)
    assert status == 0
    assert "roofline" in out
    assert file.read_bytes().startswith({"png": b"\x89PNG", "svg": b"<?xml"}[suffix])


def test_the_picture_shows_roof_prediction_and_measurement(best_backend, tmp_path, monkeypatch):
    skip_without(MATPLOTLIB)
    from matplotlib.figure import Figure  # noqa: PLC0415 - not always installed

    figures: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *_, **__: figures.append(figure))
    found = explain(gp.GemmProblem.create(512, 512, 512), best_backend.device, load_configuration())
    assert found.prediction is not None
    plots.plot_roofline(replace(found, measured=Measured(0.5, 0.0, True, found.plan)), tmp_path / "x.png")
    (axes,) = figures[0].axes
    drawn = {str(line.get_label()).split(":")[0]: line.get_xydata() for line in axes.lines}
    roof = found.roofline
    assert drawn["roof"][1].tolist() == pytest.approx([roof.ridge, roof.peak * 1e-9])
    for name, seconds in (("predicted", found.prediction.seconds), ("measured", 0.5)):
        assert drawn[name][0].tolist() == pytest.approx([roof.intensity, roof.operations / seconds * 1e-9])


# Devices that are not here


def test_a_recorded_device_need_not_be_here(gemmport_command):
    status, out, err = gemmport_command(
        "explain", 4096, 4096, 4096, "--recorded", H200, "--device", "h200", "--backend", "cuda"
    )
    assert (status, err) == (0, "")
    assert out.startswith("float32 NN 4096×4096×4096 (large) on NVIDIA H200 (cuda, nvidia 13.0)\n")
    assert "model from configs/nvidia.yaml: " in out


def test_the_list_of_devices_is_a_record_too(gemmport_command, best_backend, tmp_path):
    (tmp_path / "devices.json").write_text(gemmport_command("devices", "--format", "json")[1])
    chosen = ("--device", best_backend.device.label, "--backend", best_backend.device.backend)
    status, out, _ = gemmport_command("explain", 64, 64, 64, "--recorded", tmp_path / "devices.json", *chosen)
    assert status == 0
    assert out == gemmport_command("explain", 64, 64, 64)[1]
    by_number = ("--device", best_backend.device.selector, "--backend", best_backend.device.backend.upper())
    assert gemmport_command("explain", 64, 64, 64, "--recorded", tmp_path / "devices.json", *by_number)[1] == out


@pytest.mark.parametrize(
    ("arguments", "status", "told"),
    [
        (
            ("--recorded", H200, "--device", "h200"),
            2,
            "has several devices: choose one of NVIDIA H200 (cuda, nvidia 13.0), ",
        ),
        (("--recorded", H200, "--device", "mi300"), 3, "has no device mi300: there are NVIDIA H200 (cuda"),
        (("--recorded", H200, "--device", "200"), 3, "has no device 200: there are NVIDIA H200 (cuda"),
        (
            ("--device", "voodoo"),
            3,
            "; a device that is not here is explained with --recorded FILE (gemmport devices --format",
        ),
        (("--device", "voodoo"), 3, ", and of the chips H200 with --cluster nodes=1,gpus=8,link="),
        (("--recorded", H200, "--measure"), 2, "--measure runs on a device that is here: leave out --recorded"),
        (("--recorded", "/no/such.json"), 2, "gemmport: /no/such.json: cannot be read"),
        (("--plot", "x.gif"), 2, "the name must end in .png, .svg, .pdf"),
        (("--plot", "/no/such/x.png"), 2, "--plot /no/such/x.png: No such file"),
        (("--output", "/no/such/x"), 2, "--output /no/such/x: No such file"),
        (("--kernel", "tild"), 2, "did you mean tiled?"),
        (("--beta", "inf"), 2, "beta must be finite"),
        (("--batch", -1), 2, "batch = -1 is negative"),
    ],
    ids=str,
)
def test_bad_usage_is_told(gemmport_command, tmp_path, monkeypatch, arguments, status, told):
    monkeypatch.chdir(tmp_path)
    found, out, err = gemmport_command("explain", 64, 64, 64, *arguments)
    assert (found, out) == (status, "")
    assert told in err


@pytest.mark.parametrize(
    "text", ["", "5", "[1]", '{"a": 1}', "{}", '{"environment": {}}', '{"cuda": {"devices": [{"name": "x"}]}}', "\x00"]
)
def test_a_file_that_is_no_record_is_told(gemmport_command, tmp_path, text):
    files.write_text(tmp_path / "x.json", text)
    status, out, err = gemmport_command("explain", 64, 64, 64, "--recorded", tmp_path / "x.json")
    assert (status in (2, 3), out) == (True, ""), err
    assert "x.json must be a JSON document of gemmport devices or run" in err or "x.json has no device" in err
    assert "object" not in err  # Python's words about what it found


def test_the_page_of_the_document_has_the_sections_of_today(gemmport_command):
    """Its figures are of the model as it was when it was written."""
    text = (H200.parents[4] / "docs" / "explain.md").read_text("utf-8")
    words = (
        next(line for line in text.splitlines() if line.startswith("`gemmport explain 4096")).split("`")[1].split()[1:]
    )
    place = words.index("--recorded") + 1
    words[place] = str(H200.parents[4] / words[place])
    _, out, _ = gemmport_command(*words)
    sample = text.partition("```text\n")[2].partition("```")[0]

    def shape(page: str) -> list[str]:
        lines = page.splitlines()
        return [lines[0], *(line.split()[0] for line in lines[1:] if line[:1].strip())]

    assert shape(sample) == shape(out)
