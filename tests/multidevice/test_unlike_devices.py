"""One product by unlike devices of OpenCL: a GPU beside a CPU's runtime where both are here, else two runtimes of one CPU."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator

import numpy as np
import pytest

import gemmport as gp
from absences import UNLIKE_DEVICES, needs
from exact import integers
from gemmport.multidevice.outlook import Outlook
from pairs import opened
from runtimes import unlike

pytestmark = needs(UNLIKE_DEVICES)


@pytest.fixture
def devices(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[gp.Backend]]:
    """Two, of which the slower is not left out: the same speed is predicted of both."""
    predicted = Outlook.rates.fget
    monkeypatch.setattr(Outlook, "rates", property(lambda self: (1e9,) * len(predicted(self))))
    with opened(unlike(), monkeypatch) as found:
        yield found


@pytest.mark.parametrize("dtype", ["float16", "float32", "complex64", "int32"])
def test_each_of_two_unlike_devices_computes_a_part_and_all_is_right(
    devices: list[gp.Backend], dtype: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "gemmport.api.dealt")
    a, b = integers((1001, 230), dtype), integers((230, 907), dtype)
    wide = "complex128" if a.dtype.kind == "c" else "float64"
    found = gp.matmul(a, b, devices=devices)
    np.testing.assert_array_equal(found, (a.astype(wide) @ b.astype(wide)).astype(dtype))
    told = " ".join(record.getMessage() for record in caplog.records)
    for one in devices:
        assert re.search(rf"{re.escape(one.device.label)} computed (?!0\.0 %)", told), told
