"""`run_dealt`: products of several devices, verified, and who computed wrongly."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

import gemmport as gp
from gemmport.bench.dealt import DealtOptions, run_dealt
from gemmport.multidevice.outlook import Placement
from gemmport.outofcore.elsewhere import OnDevice
from pairs import opened_pair


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[gp.Backend]]:
    """Two runtimes, opened for the test alone, between which every product is dealt."""
    with opened_pair(monkeypatch) as found:
        yield found


PROBLEM = gp.GemmProblem.create(300, 200, 50, beta=0.5, alpha=2)


def test_a_product_is_verified_and_timed_beside_each_alone(two: list[gp.Backend]) -> None:
    found = run_dealt(PROBLEM, two, DealtOptions(repeat=1))
    assert found.status == "ok"
    assert found.verified
    assert [check.name for check in found.checks] == ["untouched", "exact", "untouched", "statistical"]
    assert [part.name for part in found.parts] == [one.device.label for one in two]
    assert sum(part.share for part in found.parts) == pytest.approx(1)
    assert all(part.alone is not None for part in found.parts)
    assert found.speedup is not None
    assert found.to_dict()["parts"][1]["alone"]["samples"] == 1


def test_of_devices_of_one_kind_the_first_is_timed_alone(two: list[gp.Backend]) -> None:
    with gp.open_backend(device=two[0].device) as like:
        found = run_dealt(PROBLEM, [*two, like], DealtOptions(repeat=1))
    assert [part.alone is not None for part in found.parts] == [True, True, False]


def test_a_device_that_computes_wrongly_is_named(two: list[gp.Backend]) -> None:
    give_back = two[1].give_back

    def wrong(memory: Any, **options: Any) -> None:
        give_back(memory, **options)
        memory.keeper.reshape(-1)[0] += 1

    two[1].give_back = wrong
    found = run_dealt(PROBLEM, two, DealtOptions(repeat=1))
    assert found.status == "failed"
    assert [bool(part.wrong) for part in found.parts] == [False, True]
    assert two[1].device.label in found.reason


@pytest.mark.sample(placement=["rows"])
@pytest.mark.parametrize("placement", ["rows", "columns", "first"])
def test_arrays_on_the_devices_are_verified_with_what_lies_around_them(
    two: list[gp.Backend], monkeypatch: pytest.MonkeyPatch, placement: Placement
) -> None:
    problem = gp.GemmProblem.create(130, 200, 50, beta=0.5, trans_a="T")
    how = DealtOptions(repeat=1, placement=placement)
    found = run_dealt(problem, two, how)
    assert (found.status, found.not_dealt) == ("ok", "")
    assert sum(part.share for part in found.parts) == pytest.approx(1)
    write = OnDevice.write

    def beyond(array: OnDevice, key: Any, source: Any, *rest: Any) -> Iterator[int]:
        yield from write(array, key, source, *rest)
        whole = array.array
        replace(whole, shape=(whole.memory.nbytes // whole.itemsize,), strides=(1,), offset=0)[-1:].set(7)

    monkeypatch.setattr(OnDevice, "write", beyond)
    found = run_dealt(problem, two, how)
    assert found.status == "failed"
    assert "untouched" in found.reason


def test_where_all_fail_the_result_says_why(two: list[gp.Backend]) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise gp.LaunchError("on fire")

    for one in two:
        one.give_back = fail
    found = run_dealt(PROBLEM, two, DealtOptions(repeat=1))
    assert found.status == "error"
    assert found.reason.count("on fire") == 2
