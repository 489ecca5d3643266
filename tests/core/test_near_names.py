"""Which name was meant."""

from __future__ import annotations

import pytest

from gemmport.core.names import did_you_mean

KNOWN = ("TSM", "TSN", "naive", "register_tiled", "register_tiled_vectorized")


@pytest.mark.parametrize(
    ("name", "meant"),
    [("tsm", "TSM"), ("TSMM", "TSM"), ("naiv", "naive"), ("Register-Tiled", "register_tiled"),
     ("register_tiled_vectorised", "register_tiled_vectorized")],
)  # fmt: skip
def test_the_nearest_known_name_is_told_in_its_own_spelling(name: str, meant: str) -> None:
    assert did_you_mean(name, KNOWN) == f"; did you mean {meant}?"


@pytest.mark.parametrize("name", ["WIDTH", "", 5, None, "x" * 10**6])
def test_where_none_is_near_nothing_is_told(name: object) -> None:
    assert did_you_mean(name, KNOWN) == ""
    assert did_you_mean(name, ()) == ""
