"""`gp.explain`: sizes or a problem, and a device in any form."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from pathlib import Path

import pytest

import gemmport as gp
from gemmport.core.errors import DeviceNotFoundError, ShapeError
from made_up_devices import DEVICES

DEVICE = DEVICES["AMD gfx90a"]


def test_sizes_are_a_problem() -> None:
    found = gp.explain((300, 200, 100), DEVICE, dtype="float64", trans_a="T", batch=3)
    problem = gp.GemmProblem.create(300, 200, 100, dtype="float64", trans_a="T", batch=3)
    assert found == gp.explain(problem, DEVICE)
    assert found.plan == gp.plan(problem, DEVICE)
    assert str(found).startswith(f"{problem} (")
    with pytest.raises(FrozenInstanceError):
        found.plan = None  # type: ignore[misc, assignment]


def test_a_device_may_be_described(best_backend: gp.Backend) -> None:
    device = best_backend.device
    found = gp.explain((8, 8, 8), device.selector, backend=device.backend, kernel="tiled", params={"TS": 4})
    assert found == gp.explain((8, 8, 8), device, kernel="tiled", params={"TS": 4})
    assert found.plan.values["TS"] == 4


def test_a_file_of_the_call_is_read(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("schema: 1\nentries: [{name: mine, kernels: {naive: {TS: 4}}}]\n")
    found = gp.explain((8, 8, 8), DEVICE, config=tmp_path / "mine.yaml")
    assert found.plan.entry == f"{tmp_path / 'mine.yaml'}: mine"


def test_sizes_are_of_the_precision_that_a_product_would_be(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("schema: 1\nprecision: tf32\n")

    def told(**described: object) -> str:
        return gp.explain((64, 64, 64), DEVICE, **described).problem.precision

    assert (told(), told(config=file), told(config=file, precision="full")) == ("full", "tf32", "full")
    assert told(config=file, dtype="float64") == "full"
    with gp.precision("bfloat16"):
        assert (told(config=file), told(precision="tf32")) == ("bfloat16", "tf32")


@pytest.mark.parametrize("sizes", [(1, 2), (1, 2, 3, 4), "123"], ids=str)
def test_sizes_are_three(sizes: object) -> None:
    with pytest.raises(ShapeError, match=r"problem must be a GemmProblem or its sizes \(m, n, k\); got"):
        gp.explain(sizes, DEVICE)  # type: ignore[arg-type]


def test_a_problem_is_not_described_twice() -> None:
    with pytest.raises(ShapeError, match="a GemmProblem says all of itself: pass no dtype"):
        gp.explain(gp.GemmProblem.create(1, 1, 1), DEVICE, dtype="float64")


def test_a_device_of_another_backend_is_refused() -> None:
    with pytest.raises(DeviceNotFoundError):
        gp.explain((1, 1, 1), DEVICE, backend="cuda")
