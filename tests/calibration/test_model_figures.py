"""What times say of a device, and which of them no device takes."""

from __future__ import annotations

import re

import pytest

from gemmport.calibration.benchmarks import (
    Benchmark,
    Chase,
    CopyGlobal,
    MultiplyAdds,
    MultiplyMatrices,
    PassRound,
    ReadGlobal,
    Start,
)
from gemmport.calibration.figures import COUNTED_RATIO, Figure, check_possible, figures, is_counted
from gemmport.core.dtypes import DTYPES
from gemmport.core.errors import CalibrationError
from gemmport.kernels.microbenchmarks import F16, F64_8, F64_16
from made_up_devices import DEVICES

CPU = DEVICES["CPU under PoCL"]  # of 16 units
FORM = {"ITEMS": 2, "WIDTH": 4, "CHAINS": 3}


def value(name: str, benchmark: Benchmark, *seconds: float) -> Figure:
    (found,) = figures(CPU, {name: (benchmark, seconds)})
    return found


def test_rates_are_what_a_launch_does_in_a_second() -> None:
    assert value("multiply-adds float32", MultiplyAdds(10, 100, FORM), 1e-3).value == 10 * 100 * 2 * 4 * 3 * 1e3
    assert value("read_bandwidth", ReadGlobal(10, 100, FORM), 1e-3).value == 10 * 100 * 2 * 4 * 3 * 4 * 1e3
    assert value("copy_bandwidth", CopyGlobal(10, 100, FORM), 1e-3).value == 2 * 10 * 100 * 2 * 4 * 3 * 4 * 1e3


def test_a_product_of_matrices_counts_all_of_its_multiply_adds() -> None:
    form = {"ITEMS": 64, "WIDTH": 1, "CHAINS": 3}
    for unit, products in ((F64_16, 16 * 8 * 4), (F64_8, 8 * 8 * 4), (F16, 16 * 8 * 16)):
        benchmark = MultiplyMatrices(10, 100, form, unit=unit)
        figure = value("matrix multiply-adds float64", benchmark, 1e-3)
        assert figure.value == pytest.approx(10 * 2 * 3 * 100 * products * 1e3)


def test_delays_are_the_seconds_of_one() -> None:
    assert value("latency", Chase(1, 1000, FORM, memory=512), 1e-4).value == pytest.approx(1e-7)
    assert value("barrier", PassRound(16, 1000, FORM), 1e-4).value == pytest.approx(1e-7)
    assert value("launch", Start(1, 1, FORM), 1e-6).value == pytest.approx(1e-6)


def test_the_median_of_rounds_counts_and_the_spread_is_told() -> None:
    figure = value("launch", Start(1, 1, FORM), 1e-6, 9e-6, 2e-6)
    assert figure.value == 2e-6
    assert figure.spread == pytest.approx((5.5e-6 - 1.5e-6) / 2 / 2e-6)


def test_a_group_takes_what_it_adds_to_a_launch_of_one_round_by_round() -> None:
    measured = {"launch": (Start(1, 1, FORM), [1e-6, 2e-6]), "group": (Start(161, 1, FORM), [11e-6, 12e-6])}
    found = {figure.name: figure for figure in figures(CPU, measured)}
    assert found["group"].samples == pytest.approx((1e-6, 1e-6))  # 16 units start ten each
    assert not figures(CPU, {"group": measured["group"]})


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("multiply-adds float32", 16 * 2.1e12), ("multiply-adds float64", 16 * 1.1e12),
        ("matrix multiply-adds float64", 16 * 1.7e13), ("matrix multiply-adds float16", 16 * 6.5e13),
        ("read_bandwidth", 16 * 4.1e12),
        ("copy_bandwidth", float("nan")), ("local_bandwidth", float("inf")), ("latency", 0.9e-10), ("launch", 0.0),
        ("group", -1e-6), ("barrier", float("nan")),
    ],
)  # fmt: skip
def test_what_no_device_can_do_is_refused_by_name(name: str, number: float) -> None:
    with pytest.raises(CalibrationError, match=rf"^{re.escape(name)} must .* got "):
        check_possible(Figure(name, (number,)), CPU)


def test_what_the_fastest_devices_do_is_believed() -> None:
    h100 = DEVICES["NVIDIA sm_90 under CUDA"]
    for name, number in (
        ("multiply-adds float16", 6.7e13), ("multiply-adds float32", 3.4e13), ("matrix multiply-adds float64", 3.4e13),
        ("matrix multiply-adds float16", 5e14), ("read_bandwidth", 4.8e12),
        ("local_bandwidth", 3.3e13), ("latency", 5e-7), ("launch", 1e-6), ("group", 2e-8), ("barrier", 1e-8),
    ):  # fmt: skip
        check_possible(Figure(name, (number,)), h100)


def test_a_removed_loop_is_beyond_what_is_possible() -> None:
    benchmark = MultiplyAdds(16, 16384, {"ITEMS": 64, "WIDTH": 16, "CHAINS": 12}, DTYPES["float32"])
    with pytest.raises(CalibrationError, match="leaves something out"):
        value("multiply-adds float32", benchmark, 5e-6)


def test_half_the_work_must_take_less_by_the_least_and_by_the_median() -> None:
    assert is_counted([0.5, 0.6, 9.0], [1.0, 1.1, 3.0])
    assert not is_counted([COUNTED_RATIO, 0.8, 9.0], [1.0, 1.1, 3.0])
    assert not is_counted([0.5, 1.0, 1.0], [1.0, 1.1, 1.1])
