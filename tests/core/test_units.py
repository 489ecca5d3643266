"""Quantities for people."""

from __future__ import annotations

import pytest

from gemmport.core.units import quantity, span


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(0.0, "0 ns"), (1.2345e-8, "12.3 ns"), (1e-6, "1 µs"), (2.5e-4, "250 µs"), (0.25, "250 ms"), (75.0, "75 s")],
)
def test_a_span_has_three_digits_and_a_unit_that_fits(seconds: float, told: str) -> None:
    assert span(seconds) == told


@pytest.mark.parametrize(
    ("value", "unit", "told"),
    [
        (0, "B", "0 B"),
        (999, "B", "999 B"),
        (12_582_912, "B", "12.6 MB"),
        (3.35e12, "B/s", "3.35 TB/s"),
        (6.69e13, "FLOPS", "66.9 TFLOPS"),
        (6.87e10, "multiply-adds", "68.7 G multiply-adds"),
        (25, "multiply-adds", "25 multiply-adds"),
        (1.5e18, "FLOP", "1,500,000 TFLOP"),
    ],
)
def test_a_quantity_has_three_digits_and_a_prefix_that_fits(value: float, unit: str, told: str) -> None:
    assert quantity(value, unit) == told
