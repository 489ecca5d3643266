"""What devices are expected to take, and whether dealing pays."""

from __future__ import annotations

from dataclasses import replace

import pytest

import gemmport as gp
from gemmport.multidevice import outlook
from gemmport.planning.lookup import load_configuration
from made_up_devices import DEVICES

GPU = replace(DEVICES["NVIDIA sm_90 under CUDA"], compute_units=132, clock_mhz=1980)
MODEL = load_configuration().model(GPU)
CPU = replace(DEVICES["CPU under PoCL"], compute_units=8, clock_mhz=3000, index=(7, 0))


def test_two_alike_share_a_large_product_and_leave_a_small_one_to_one() -> None:
    pair = [GPU, replace(GPU, index=(0, 1))]
    large, small = (gp.explain((n, n, n), devices=pair) for n in (32768, 256))
    assert large.pays
    assert large.shares == pytest.approx((0.5, 0.5))
    assert large.together == pytest.approx(large.fastest.total / 2)
    assert not small.pays
    assert "and must gain 40 ms" in str(small)


def test_transfers_count_of_devices_with_a_memory_of_their_own() -> None:
    found = gp.explain((8192, 8192, 64), devices=[GPU])
    assert found.fastest.transfers == pytest.approx(found.problem.bytes / MODEL.link_bandwidth)
    assert found.reason == "it is the only device"


def test_runtimes_of_one_cpu_gain_nothing_together(monkeypatch: pytest.MonkeyPatch) -> None:
    twins = [CPU, replace(CPU, index=(8, 0))]
    monkeypatch.setattr(outlook, "usable_cores", lambda: 8)
    shared = gp.explain((8192, 8192, 8192), devices=twins)
    assert not shared.pays
    assert "share the 8 cores" in str(shared)
    monkeypatch.setattr(outlook, "usable_cores", lambda: 16)
    assert gp.explain((8192, 8192, 8192), devices=twins).pays


def test_a_slow_device_beside_a_gpu_gets_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outlook, "usable_cores", lambda: 128)
    found = gp.explain((65536, 65536, 65536), devices=[GPU, replace(CPU, compute_units=128)])
    assert found.pays
    assert found.shares[0] > 10 * found.shares[1] > 0
    told = found.to_dict()
    assert [device["share"] for device in told["devices"]] == list(found.shares)
    assert str(found).count("alone") == 2


def test_it_tells_how_the_first_tile_passes_through_each_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outlook, "usable_cores", lambda: 128)
    devices = [GPU, replace(CPU, compute_units=128)]
    passing, in_place = gp.explain((32768, 32768, 16384), devices=devices).passing
    assert in_place is None  # it reads the host's memory
    assert passing is not None
    assert (passing.columns, passing.panels, passing.depth, passing.stays) == (32768, 8, 2048, "b")
    found = gp.explain((65536, 65536, 65536), devices=devices, device_memory="16GiB")
    first, second = found.passing
    assert first is not None
    assert second is not None
    assert first.columns * 65536 * 4 <= 8 * 2**30  # half of it for what stays
    assert f"first {first.rows:,} × {first.columns:,}: op(A) passes by in 8 panels of 8,192 terms" in str(found)
    assert found.to_dict()["devices"][0]["passing"] == first.to_dict()


def test_what_travels_between_devices_that_have_shards() -> None:
    """Of rows each device lacks the other half of B; one that is twice as fast takes rows of the other, and gives them back."""
    pair = [GPU, replace(GPU, index=(0, 1))]
    alike = gp.explain((32768, 16384, 8192), devices=pair, placement="rows")
    half = 8192 * 16384 * 4 // 2
    assert alike.pays
    assert alike.shares == pytest.approx((0.5, 0.5))
    assert [(link.come, link.leave) for link in alike.links] == [(half, half)] * 2
    assert alike.together == pytest.approx(alike.expected[0].seconds / 2 + half / MODEL.link_bandwidth)
    assert "leave, at 50 GB/s directly, by the models" in str(alike)
    assert "537 MB come over links" in str(gp.explain((16384, 16384, 16384), devices=pair, placement="columns"))
    fast, slow = gp.explain((32768, 16384, 8192), devices=[GPU, replace(GPU, compute_units=33)], placement="rows").links
    assert fast.come - half == pytest.approx(slow.leave - half)
    assert slow.come > half
    first = gp.explain((32768, 32768, 32768), devices=pair, placement="first")
    assert sum(first.shares) == pytest.approx(1)
    assert first.shares[0] > first.shares[1] > 0
    assert first.links[0].leave > first.links[1].leave > 0
    assert first.to_dict()["devices"][1]["links"] == {"come": first.links[1].come, "leave": first.links[1].leave}
    with pytest.raises(gp.UnknownNameError, match="one of host, first, rows, columns"):
        gp.explain((5, 5, 5), devices=pair, placement="diagonals")  # type: ignore[call-overload]
    with pytest.raises(gp.UnsupportedError, match="name several with devices="):
        gp.explain((5, 5, 5), GPU, placement="rows")  # type: ignore[call-overload]


def test_what_cannot_be_explained_is_refused() -> None:
    with pytest.raises(gp.ShapeError, match="must have elements"):
        gp.explain((0, 5, 5), devices=[GPU])
    with pytest.raises(gp.UnsupportedError, match="add it to devices"):
        gp.explain((5, 5, 5), GPU, devices=[GPU])
    with pytest.raises(gp.DtypeError, match="float64"):
        gp.explain((5, 5, 5), devices=[replace(GPU, computes=frozenset({"float32"}))], dtype="float64")
