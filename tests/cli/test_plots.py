"""What `gemmport run --plot` draws: rates and ratios of what is right, over sizes or names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from absences import MATPLOTLIB, skip_without
from gemmport.bench.products import Result
from gemmport.bench.results import BaselineResult
from gemmport.bench.standings import Measured, Workload
from gemmport.bench.timing import Timing
from gemmport.cli import plots
from gemmport.core.problem import GemmProblem
from made_up_devices import DEVICES

DEVICE = DEVICES["CPU under PoCL"]


def measured(size: int, seconds: float, kernel: str = "naive", *, n: int | None = None, status: Any = "ok") -> Measured:
    problem = GemmProblem.create(size, n or size, size)
    beside = BaselineResult("numpy", timing=Timing((2 * seconds,), 1))
    return Measured(
        Workload(problem), Result(problem, DEVICE, kernel, status, timing=Timing((seconds,), 1), baselines=(beside,))
    )


def test_a_line_has_the_rates_of_all_sizes_and_another_the_ratios() -> None:
    several = [measured(64, 1e-3), measured(128, 1e-3)]
    places = plots.Places.among(several)
    assert (dict(places.of), places.names) == ({"float32 NN 64×64×64": 64, "float32 NN 128×128×128": 128}, ())
    (panel,) = plots.panels(several, places)
    assert panel.rates[plots.OWN] == {size: pytest.approx(2 * size**3 * 1e-6) for size in (64, 128)}
    assert panel.rates["numpy"] == {size: pytest.approx(size**3 * 1e-6) for size in (64, 128)}
    assert panel.ratios == {"÷ numpy": {64: pytest.approx(2.0), 128: pytest.approx(2.0)}}


def test_several_kernels_have_a_line_each_and_what_is_wrong_none() -> None:
    several = [measured(64, 1e-3), measured(64, 2e-3, "tiled"), measured(64, 1e-3, "wpt", status="failed")]
    (panel,) = plots.panels(several, plots.Places.among(several))
    assert list(panel.rates) == ["naive", "numpy", "tiled"]
    assert list(panel.ratios) == ["naive ÷ numpy", "tiled ÷ numpy"]


def test_problems_that_are_not_square_stand_one_after_the_other() -> None:
    places = plots.Places.among([measured(64, 1e-3), measured(64, 1e-3, n=3)])
    assert list(places.of.values()) == [0, 1]
    assert places.names == ["float32 NN 64×64×64", "float32 NN 64×3×64"]


def test_run_draws_a_picture(gemmport_command: Any, tmp_path: Path) -> None:
    skip_without(MATPLOTLIB)
    job = ("run", "--sizes", "8:24:8", "--repeat", 1, "--kernel", "naive", "--baseline", "numpy")
    assert gemmport_command(*job, "--plot", tmp_path / "run.svg")[0] == 0
    text = (tmp_path / "run.svg").read_text()
    assert text.count("<path") > 10
    status, out, err = gemmport_command(*job, "--plot", tmp_path / "run.gif")
    assert (status, out) == (2, "")
    assert "the name must end in .png, .svg, .pdf" in err
