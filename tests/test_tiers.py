"""Which combinations each tier takes: the same in every run, and none that a device cannot compute."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

import gemmport as gp
import tested
from made_up_devices import DEVICES
from tiers import Tier, is_left_out, parametrize, tier_of

FAST = replace(DEVICES["CPU under PoCL"], index=(0, 0), platform_version="1.0")
SLOW = replace(DEVICES["CPU under PoCL"], index=(1, 0), platform="rusticl", computes=frozenset({"float32"}))
GPU = replace(DEVICES["NVIDIA sm_90 under CUDA"], index=(2, 0))

OPTION = {Tier.TEST: "", Tier.ALL: "--all", Tier.EXHAUSTIVE: "--exhaustive"}

every_pair, every_value = pytest.mark.every_pair, pytest.mark.every_value
KERNELS, TYPES, OPS = ["naive", "tiled", "wpt"], ["float32", "float64", "int8"], ["NN", "NT", "TN", "TT"]
PRODUCT = [every_pair("ops", OPS), every_pair("types", TYPES), every_pair("kernel", KERNELS)]

Row = dict[str, Any]
RowsOf = Callable[..., list[Row]]


def asked_for(tier: Tier) -> Any:
    """A configuration of pytest whose options are those of a tier."""
    return SimpleNamespace(getoption=lambda option: option == OPTION[tier])


@pytest.fixture
def rows_of(monkeypatch: pytest.MonkeyPatch) -> RowsOf:
    """The combinations that a tier takes of a test with markers, on devices."""

    def rows(tier: Tier, *marks: pytest.MarkDecorator, devices: tuple[gp.DeviceInfo, ...] = (FAST, SLOW)) -> list[Row]:
        monkeypatch.setattr(tested, "devices", lambda config: devices)
        taken: list[Row] = []

        def told(names: list[str], values: list[list[Any]], ids: list[str], indirect: object) -> None:
            assert len(ids) == len(values)
            taken.extend(dict(zip(names, value, strict=True)) for value in values)

        own = [mark.mark for mark in marks]
        definition = SimpleNamespace(
            iter_markers=lambda name=None: [mark for mark in own if name in (None, mark.name)],
            get_closest_marker=lambda name: next((mark for mark in own if mark.name == name), None),
        )
        metafunc = SimpleNamespace(
            definition=definition, config=asked_for(tier), fixturenames=["backend"], parametrize=told
        )
        parametrize(metafunc)  # type: ignore[arg-type]
        return taken

    return rows


def pairs(rows: list[Row], one: str, other: str) -> set[tuple[Any, Any]]:
    return {(row[one], row[other]) for row in rows}


def test_make_test_asks_the_fastest_cpu_runtime(rows_of: RowsOf) -> None:
    assert rows_of(Tier.TEST) == [{"backend": FAST}]
    assert rows_of(Tier.TEST, devices=(GPU, FAST, SLOW)) == [{"backend": GPU}, {"backend": FAST}]
    assert rows_of(Tier.TEST, pytest.mark.every_runtime) == [{"backend": FAST}, {"backend": SLOW}]
    assert rows_of(Tier.ALL) == [{"backend": FAST}, {"backend": SLOW}]


def test_make_test_all_asks_older_versions_only_what_each_runtime_must_be_asked(rows_of: RowsOf) -> None:
    older = replace(FAST, index=(3, 0), platform_version="0.1")
    devices = (GPU, FAST, older, SLOW)
    assert [row["backend"] for row in rows_of(Tier.ALL, devices=devices)] == [GPU, FAST, SLOW]
    assert {row["backend"] for row in rows_of(Tier.ALL, *PRODUCT, devices=devices)} == {GPU, FAST, SLOW}
    for tier, marks in ((Tier.EXHAUSTIVE, PRODUCT), (Tier.ALL, (pytest.mark.every_runtime,))):
        assert {row["backend"] for row in rows_of(tier, *marks, devices=devices)} == set(devices)


def test_make_test_takes_every_value_once(rows_of: RowsOf) -> None:
    rows = rows_of(Tier.TEST, *PRODUCT)
    assert len(rows) == len(OPS)
    for name, values in (("kernel", KERNELS), ("types", TYPES), ("ops", OPS)):
        assert {row[name] for row in rows} == set(values)


def test_make_test_all_takes_every_pair(rows_of: RowsOf) -> None:
    rows, every = rows_of(Tier.ALL, *PRODUCT), rows_of(Tier.EXHAUSTIVE, *PRODUCT)
    assert len(rows) < len(every) // 2
    names = ("backend", "kernel", "types", "ops")
    assert all(pairs(rows, one, other) == pairs(every, one, other) for one in names for other in names)
    assert rows == rows_of(Tier.ALL, *PRODUCT)


def test_what_says_nothing_of_the_others_is_taken_once(rows_of: RowsOf) -> None:
    marks = [every_value("kernel", KERNELS), every_value("alpha", range(5))]
    assert len(rows_of(Tier.ALL, *marks)) == 5
    assert len(rows_of(Tier.EXHAUSTIVE, *marks)) == 2 * 3 * 5


def test_gpus_take_everything(rows_of: RowsOf, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = rows_of(Tier.TEST, *PRODUCT, devices=(GPU,))
    assert len(rows) == len(KERNELS) * len(TYPES) * len(OPS)
    assert tier_of(asked_for(Tier.TEST)) is Tier.ALL
    monkeypatch.setattr(tested, "devices", lambda config: (GPU, FAST))
    assert tier_of(asked_for(Tier.TEST)) is Tier.TEST


def test_what_a_device_does_not_compute_is_no_test_of_it(rows_of: RowsOf) -> None:
    rows = rows_of(Tier.EXHAUSTIVE, *PRODUCT)
    assert (SLOW, "float64") not in pairs(rows, "backend", "types")
    assert (FAST, "float64") in pairs(rows, "backend", "types")
    gpus = rows_of(Tier.EXHAUSTIVE, every_pair("kernel", ["packed", "tiled"]), devices=(GPU,))
    assert [row["kernel"] for row in gpus] == ["tiled"]


def test_names_go_together_and_a_condition_is_kept(rows_of: RowsOf) -> None:
    marks = [
        every_pair(("m", "n"), [(1, 2), (3, 4)]),
        every_pair("half", (0, 1), where=lambda row: row["half"] < row["m"]),
    ]
    assert pairs(rows_of(Tier.EXHAUSTIVE, *marks), "m", "half") == {(1, 0), (3, 0), (3, 1)}
    assert pairs(rows_of(Tier.EXHAUSTIVE, *marks), "m", "n") == {(1, 2), (3, 4)}


def test_names_apart_are_values_of_their_own(rows_of: RowsOf) -> None:
    listed = [(m, n) for m in range(4) for n in range(4) if m != n]
    kernel = every_pair("kernel", range(10))
    assert len(rows_of(Tier.ALL, every_pair(("m", "n"), listed), kernel, devices=(FAST,))) == len(listed) * 10
    rows = rows_of(Tier.ALL, every_pair(("m", "n"), listed, apart=True), kernel, devices=(FAST,))
    assert pairs(rows, "m", "n") == set(listed)
    assert len(pairs(rows, "m", "kernel")) == len(pairs(rows, "n", "kernel")) == 4 * 10
    assert len(rows) < len(listed) * 10 // 2


@pytest.mark.parametrize(
    ("marks", "kernel", "left_out"),
    [
        ([pytest.mark.planted_fault], "tiled", True),
        ([pytest.mark.planted_fault, pytest.mark.sample(kernel=["tiled"])], "tiled", False),
        ([pytest.mark.planted_fault, pytest.mark.sample(kernel=["tiled"])], "naive", True),
        ([], "naive", False),
    ],
)
def test_make_test_takes_a_sample_of_what_is_long(
    marks: list[pytest.MarkDecorator], kernel: str, left_out: bool
) -> None:
    def item(device: gp.DeviceInfo) -> Any:
        own = {mark.name: mark.mark for mark in marks}
        made = pytest.Function.__new__(pytest.Function)
        made.callspec = SimpleNamespace(params={"backend": device, "kernel": kernel})  # type: ignore[assignment]
        made.get_closest_marker = own.get  # type: ignore[method-assign, assignment]
        return made

    assert is_left_out(item(FAST), Tier.TEST) == left_out
    assert not is_left_out(item(FAST), Tier.ALL)
    assert not is_left_out(item(GPU), Tier.TEST)


def test_kernels_of_gpus_run_on_the_best_cpu_runtime_alone(rows_of: RowsOf) -> None:
    marks = [every_pair("kernel", ["simt", "tiled"])]
    met = {(row["kernel"], row["backend"]) for row in rows_of(Tier.ALL, *marks, devices=(GPU, FAST, SLOW))}
    assert met == {("simt", GPU), ("simt", FAST), ("tiled", GPU), ("tiled", FAST), ("tiled", SLOW)}
    everywhere = rows_of(Tier.EXHAUSTIVE, *marks, devices=(GPU, FAST, SLOW))
    assert {row["backend"] for row in everywhere if row["kernel"] == "simt"} == {GPU, FAST, SLOW}
