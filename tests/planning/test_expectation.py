"""Entries of several tilings and of trials: which of them the planner takes for a problem."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from gemmport.contracts.kernel import Rankings
from gemmport.core.device import DeviceInfo
from gemmport.core.errors import ConfigError, ParameterError
from gemmport.core.problem import GemmProblem
from gemmport.planning import expectation, parser
from gemmport.planning.correction import UNTRIED
from gemmport.planning.lookup import Configuration, load_configuration
from gemmport.planning.planner import make_plan
from gemmport.planning.schema import Entry
from made_up_devices import DEVICES

DEVICE = DEVICES["NVIDIA sm_90 under CUDA"]
SMALL, LARGE = GemmProblem.create(64, 64, 64), GemmProblem.create(2048, 2048, 2048)


def configuration(kernels: dict[str, Any], trials: list[dict[str, Any]] | None = None) -> Configuration:
    entry = {
        "name": "mine",
        "kernels": kernels,
        "provenance": {"tuned": True},
        **({"trials": trials} if trials else {}),
    }
    text = yaml.safe_dump({"schema": 1, "description": "of a test", "entries": [entry]}, sort_keys=False)
    return Configuration(parser.parse(text, "mine.yaml", "call").entries)


def trial(m: int, n: int, k: int, **seconds: dict[int, float]) -> dict[str, Any]:
    return {"m": m, "n": n, "k": k, "seconds": seconds}


@pytest.fixture
def predictions(monkeypatch: pytest.MonkeyPatch) -> dict[tuple[str, int], float]:
    """Seconds by kernel and TS; 1 of those that nobody names."""
    found: dict[tuple[str, int], float] = {}

    def predict(kernel: str, stated: Any, problem: GemmProblem, device: DeviceInfo, *_: Any) -> float:
        return found.get((kernel, stated.get("TS", 0)), 1.0)

    monkeypatch.setattr(expectation, "predict", predict)
    return found


def chosen(found: Configuration, problem: GemmProblem, **options: Any) -> tuple[str, Any]:
    plan = make_plan(problem, DEVICE, found, **options)
    return plan.variant, plan.values["TS"]


def test_of_several_tilings_the_one_is_taken_that_the_model_expects_most_of(
    predictions: dict[tuple[str, int], float],
) -> None:
    found = configuration({"tiled": [{"TS": 8}, {"TS": 16}, {"TS": 32}], "naive": {"TS": 8}})
    predictions.update({("tiled", 8): 3.0, ("tiled", 16): 1.0, ("tiled", 32): 2.0, ("naive", 8): 0.1})
    assert chosen(found, SMALL) == ("tiled", 16)  # kernels stay in their order
    assert chosen(found, SMALL, kernel="naive") == ("naive", 8)


def test_trials_correct_the_model_across_kernels(predictions: dict[tuple[str, int], float]) -> None:
    found = configuration(
        {"tiled": [{"TS": 8}, {"TS": 16}], "naive": {"TS": 8}},
        [
            trial(64, 64, 64, tiled={0: 3.0, 1: 2.0}, naive={0: 1.0}),
            trial(2048, 2048, 2048, tiled={0: 1.0, 1: 2.0}, naive={0: 3.0}),
        ],
    )  # fmt: skip
    assert chosen(found, SMALL) == ("naive", 8)
    assert chosen(found, LARGE) == ("tiled", 8)
    assert chosen(found, GemmProblem.create(100, 80, 50)) == ("naive", 8)
    assert chosen(found, GemmProblem.create(1500, 3000, 2000)) == ("tiled", 8)
    assert chosen(found, SMALL, kernel="tiled") == ("tiled", 16)


def test_the_model_tells_products_apart_that_no_trial_is_near(predictions: dict[tuple[str, int], float]) -> None:
    found = configuration({"tiled": [{"TS": 8}, {"TS": 16}]}, [trial(64, 64, 64, tiled={0: 2.0, 1: 2.0})])
    predictions.update({("tiled", 8): 2.0, ("tiled", 16): 2.1})
    assert chosen(found, LARGE) == ("tiled", 8)


def test_a_tiling_that_the_device_does_not_take_is_passed_over(predictions: dict[tuple[str, int], float]) -> None:
    large = {"TSM": 512, "TSN": 512, "TSK": 128, "WPTM": 16, "WPTN": 16}
    found = configuration({"register_tiled": [large, {"TSM": 32, "TSN": 32}]})
    assert make_plan(SMALL, DEVICE, found).values["TSM"] == 32
    with pytest.raises(ParameterError, match="TSM = 512"):
        make_plan(SMALL, DEVICE, configuration({"register_tiled": large}))


def test_a_kernel_that_does_not_run_here_is_passed_over(predictions: dict[tuple[str, int], float]) -> None:
    found = configuration({"tiled": [{"TS": 8}, {"TS": 16}], "naive": {"TS": 8}})
    assert chosen(found, SMALL, without=["tiled"]) == ("naive", 8)


def test_an_empty_tiling_is_what_the_model_suggests() -> None:
    problem = GemmProblem.create(1, 4096, 4096)
    found = configuration({"gemv": [{}, {"ITEMS": 64, "SIDE": 1}]}, [trial(1, 4096, 4096, gemv={0: 1.0, 1: 2.0})])
    plan = make_plan(problem, DEVICE, found)
    assert plan.values == make_plan(problem, DEVICE, Configuration(()), kernel="gemv").values


@pytest.mark.parametrize(
    ("kernels", "trials", "told"),
    [
        ({"tiled": []}, None, "kernels.tiled must be a mapping of parameters to values, or a list of such"),
        ({"tiled": [{"TS": 8}, {"TS": 99}]}, None, "TS = 99"),
        ({"tiled": {"TS": 8}}, [trial(8, 8, 8, tiled={1: 1.0})], "number 0 has seconds of tiling 1 of 'tiled'; the entry has"),
        ({"tiled": {"TS": 8}}, [trial(8, 8, 8, naive={0: 1.0})], "tiling 0 of 'naive'; the entry has 0"),
        ({"tiled": {"TS": 8}}, [trial(8, 8, 8, tiled={0: -1.0})], "trials.seconds.tiled"),
        ({"tiled": {"TS": 8}}, [trial(0, 8, 8, tiled={0: 1.0})], "trials.m must be a whole number from 1 to"),
        ({"tiled": {"TS": 8}}, [{**trial(8, 8, 8, tiled={0: 1.0}), "ops": "XY"}], "XY"),
    ],
)  # fmt: skip
def test_a_fault_in_tilings_or_trials_is_told(kernels: Any, trials: Any, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        configuration(kernels, trials)
    assert told in str(caught.value)
    assert "entry 'mine'" in str(caught.value)


def test_an_entry_comes_back_from_plain_data() -> None:
    (loaded,) = configuration(
        {"tiled": [{"TS": 8}, {"TS": 16}], "naive": {}},
        [trial(8, 8, 8, tiled={0: 1.0}), trial(9, 8, 8, naive={0: 2.0})],
    ).entries
    assert Entry.of(loaded.entry.to_dict()) == loaded.entry
    assert loaded.tilings("naive") == ({},)
    assert loaded.entry.trials[0].seconds == {"tiled": {0: 1.0}}


def test_a_configuration_is_asked_without_a_source(tmp_path: Path) -> None:
    shipped = load_configuration()
    assert shipped.entries
    assert shipped.without("shipped").entries == ()
    (own,) = configuration({"tiled": {}}).entries
    assert shipped.with_first(own).entries == (own, *shipped.entries)


@pytest.mark.parametrize(("size", "doubt"), [(248, 1.0), (240, UNTRIED)])
def test_a_trial_is_of_the_tiling_that_the_model_suggested_then(size: int, doubt: float) -> None:
    """The only trial is of 256 cubed. The model suggests the same tile for 248 cubed, and a smaller one for 240."""
    device = DEVICES["CPU under PoCL"]
    (loaded,) = configuration({"direct": {}}, [trial(256, 256, 256, direct={0: 1e-3})]).entries
    rankings = Rankings(device, load_configuration(()).model(device))
    near, far = GemmProblem.create(256, 256, 256), GemmProblem.create(size, size, size)
    tilings = [expectation.resolved("direct", {}, problem, rankings) for problem in (near, far)]
    assert (tilings[0] == tilings[1]) == (doubt == 1.0)
    (choice,) = expectation.ordered(loaded.entry, far, rankings)
    assert choice.doubt == doubt
