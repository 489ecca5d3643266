"""benchmarks/predictions.py sets predictions beside recorded times."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from click.testing import CliRunner

from gemmport.planning.lookup import load_configuration

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
RESULTS = BENCHMARKS / "results" / "intel"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("benchmarks_predictions", BENCHMARKS / "predictions.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_a_share_is_of_those_within_the_factor_on_both_sides(script: ModuleType) -> None:
    assert script.share([0.79, 0.8, 1.0, 1.25, 1.26], 1.25) == pytest.approx(3 / 5)


def test_the_halves_are_all_products_and_have_none_in_common(script: ModuleType) -> None:
    command = ["--config", str(BENCHMARKS / "models" / "zen4.yaml"), str(RESULTS / "run" / "squares-float32.json")]

    def times(*more: Any) -> int:
        done = CliRunner().invoke(script.main, [*command, *more], catch_exceptions=False)
        (row,) = [line.split() for line in done.output.splitlines() if " as chosen " in line]
        return int(row[-5])

    assert times() == 6
    assert 0 < times("--fit", "half") == 6 - times("--fit", "held")


def test_both_kinds_of_documents_are_read(script: ModuleType, tmp_path: Path) -> None:
    kills = tmp_path / "kills.json"
    kills.write_text('{"environment": {"devices": {}}, "lost": 0}')
    files = [str(kills), str(RESULTS / "tuning" / "unseen.json"), str(RESULTS / "run" / "batches-float32.json")]
    done = CliRunner().invoke(script.main, [*files, "--each"], catch_exceptions=False)
    assert done.exit_code == 0
    assert "direct" in done.output
    assert " µs × " in done.output


def test_a_device_under_two_backends_is_that_of_the_result(script: ModuleType) -> None:
    """A GPU has one selector under CUDA and OpenCL."""
    document = json.loads((RESULTS / "run" / "squares-float32.json").read_text(encoding="utf-8"))
    (own,) = document["environment"]["devices"].values()
    document["environment"]["devices"] = {"another": {**own, "backend": "cuda"}, "this": own}
    assert {one.device.backend for one in script.timed_in(document)} == {"opencl"}


@pytest.mark.parametrize("backend", ["cuda", "opencl"])
def test_choices_on_hopper_are_predicted_within_a_quarter(script: ModuleType, backend: str) -> None:
    """By the shipped model, as docs/tuning-studies.md says: all choices, and those for products to which nothing was fitted."""
    file = BENCHMARKS / "results" / "h100" / "tuning" / f"unseen-{backend}.json"
    configuration, document = load_configuration(()), json.loads(file.read_text(encoding="utf-8"))

    def share() -> tuple[int, float]:
        times = list(script.timed_in(document))
        ratios = [one.predicted(configuration).seconds / one.seconds for one in times]
        return len(times), script.share(ratios, 1.25)

    of_all = {"cuda": (80, 0.96), "opencl": (88, 0.977)}[backend]
    assert share() == (of_all[0], pytest.approx(of_all[1], abs=0.005))
    unseen = [one for one in document["results"] if one["source"] == "unseen"]
    document["results"] = [{"problem": one["problem"], "shipped": one["shipped"]} for one in unseen]
    assert share() == (20, {"cuda": 1.0, "opencl": 0.95}[backend])


def test_what_was_rounded_is_predicted_with_the_pass_that_rounds(script: ModuleType) -> None:
    document = json.loads((RESULTS / "run" / "squares-float32.json").read_text(encoding="utf-8"))
    plain, *_ = script.timed_in(document)
    for one in document["results"]:
        one["precision"] = "tf32"
    rounded, *_ = script.timed_in(document)
    configuration = load_configuration(())
    assert "conversion" not in plain.predicted(configuration).parts
    assert rounded.predicted(configuration).parts["conversion"] > 0


def test_what_nobody_verified_counts_where_it_is_asked_for_and_what_is_wrong_never(script: ModuleType) -> None:
    document = json.loads((RESULTS / "run" / "squares-float32.json").read_text(encoding="utf-8"))
    first, second, *_ = document["results"]
    first["verified"], second["verified"] = None, False
    of_all = len(document["results"])
    assert [len(list(script.timed_in(document, unverified=each))) for each in (False, True)] == [of_all - 2, of_all - 1]


def test_workloads_on_an_h200_are_predicted_within_a_quarter(script: ModuleType) -> None:
    """The file is of a run with --no-verify: the command takes it where that is asked for."""
    command = [str(BENCHMARKS / "results" / "h200" / "run" / "workloads-float32.json"), "--unverified"]
    done = CliRunner().invoke(script.main, command, catch_exceptions=False)
    rows = [line.split() for line in done.output.splitlines() if " as chosen " in line]
    assert [row[-5:-3] for row in rows] == [["92", "92%"], ["92", "92%"]]
