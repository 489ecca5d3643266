"""Quantities for people, and of them."""

from __future__ import annotations

import re

import pytest

from gemmport.core.errors import ParameterError
from gemmport.core.units import as_bytes, quantity, span


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


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (4096, 4096),
        ("4096", 4096),
        ("1GiB", 2**30),
        ("1.5 kB", 1500),
        ("2e9", 2 * 10**9),
        ("3m", 3 * 10**6),
        ("8Ti", 2**43),
    ],
)
def test_bytes_are_read_from_numbers_and_texts(given: object, wanted: int) -> None:
    assert as_bytes("memory", given) == wanted


@pytest.mark.parametrize("given", ["", "GiB", "1.2.3", "-1", "1 byte", "1e99GiB", "nan", 0, -5, 1.5, True, None, "0"])
def test_what_is_no_number_of_bytes_is_refused(given: object) -> None:
    with pytest.raises(ParameterError, match=r"^memory must be a number of bytes, such as .*; got") as refused:
        as_bytes("memory", given)
    for example in re.findall(r'such as (\d\S*) or "(\w+)"', str(refused.value))[0]:
        assert as_bytes("memory", example) > 0  # what is proposed is taken, also as a text
