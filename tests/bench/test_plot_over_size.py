"""benchmarks/plot.py draws what the files of results say, and names those that say nothing."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from click.testing import CliRunner, Result

from absences import MATPLOTLIB, skip_without

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "plot.py"


@pytest.fixture(scope="module")
def plot() -> ModuleType:
    spec = importlib.util.spec_from_file_location("benchmarks_plot", SCRIPT)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def result(size: int, gflops: float | None, *, k: int | None = None, **baselines: float | None) -> dict[str, Any]:
    return {
        "m": size, "n": size, "k": size if k is None else k, "dtype": "float32", "platform": "pocl 3.1",
        "gflops": gflops, "baselines": {name: {"gflops": rate} for name, rate in baselines.items()},
    }  # fmt: skip


def written(path: Path, *results: dict[str, Any]) -> Path:
    path.write_text(json.dumps({"schema": 1, "results": results}), encoding="utf-8")
    return path


def drawn(plot: ModuleType, output: Path, *files: Path) -> Result:
    return CliRunner().invoke(plot.main, [*map(str, files), "--output", str(output)])


def test_a_panel_has_the_figures_of_all_files_of_a_runtime_and_type(plot: ModuleType, tmp_path: Path) -> None:
    small = written(tmp_path / "small.json", result(64, 10.0, numpy=20.0, clblast=1.0), result(64, 9.0, k=4096))
    large = written(tmp_path / "large.json", result(4096, 200.0, numpy=190.0, clblast=None))
    wide = written(tmp_path / "wide.json", {**result(64, 5.0), "dtype": "float64"})
    found = plot.panels((large, small, wide))
    assert found["float32", "pocl 3.1"].lines == {
        "gemmport": {64: 10.0, 4096: 200.0}, "numpy": {64: 20.0, 4096: 190.0}, "clblast": {64: 1.0},
    }  # fmt: skip
    assert found["float64", "pocl 3.1"].lines == {"gemmport": {64: 5.0}}


def test_the_picture_is_a_small_svg_without_background_and_the_same_each_time(plot: ModuleType, tmp_path: Path) -> None:
    skip_without(MATPLOTLIB)
    file = written(tmp_path / "run.json", result(64, 10.0, numpy=20.0), result(128, 30.0, numpy=40.0))
    for name in ("one.svg", "two.svg"):
        assert drawn(plot, tmp_path / name, file).exit_code == 0
    text = (tmp_path / "one.svg").read_text(encoding="utf-8")
    assert text == (tmp_path / "two.svg").read_text(encoding="utf-8")
    assert "pocl 3.1, float32" in text
    assert ">numpy<" in text
    assert "#ffffff" not in text
    assert len(text) < 50_000


def test_all_figures_of_a_row_are_in_view(plot: ModuleType, tmp_path: Path) -> None:
    skip_without(MATPLOTLIB)
    slow = written(tmp_path / "slow.json", result(64, 10.0), result(128, 30.0))
    fast = written(tmp_path / "fast.json", {**result(64, 10.0, numpy=400.0), "platform": "intel"})
    axes = plot.figure_of(plot.panels((slow, fast))).axes
    assert [(low, high >= 400) for low, high in (panel.get_ylim() for panel in axes)] == [(0, True), (0, True)]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "no result of"),
        ('{"results": [{"m": 1}]}', "no result of"),
        (json.dumps({"results": [result(64, None)]}), "no figure of a square product"),
        (json.dumps({"results": [result(64, 1.0, k=65)]}), "no figure of a square product"),
    ],
)
def test_a_file_without_figures_is_named(plot: ModuleType, tmp_path: Path, text: str, reason: str) -> None:
    fine, poor = written(tmp_path / "fine.json", result(64, 1.0)), tmp_path / "poor.json"
    poor.write_text(text, encoding="utf-8")
    told = drawn(plot, tmp_path / "out.svg", fine, poor)
    assert told.exit_code == 1
    assert f"poor.json: {reason}" in told.output
    assert not (tmp_path / "out.svg").exists()


def test_two_figures_of_one_product_are_refused(plot: ModuleType, tmp_path: Path) -> None:
    files = [written(tmp_path / name, result(64, 1.0)) for name in ("a.json", "b.json")]
    told = drawn(plot, tmp_path / "out.svg", *files)
    assert told.exit_code == 1
    assert "a.json" in told.output
    assert "b.json" in told.output
    twice = written(tmp_path / "twice.json", result(64, 1.0), result(64, 2.0))
    assert drawn(plot, tmp_path / "out.svg", twice).exit_code == 1
