"""Nsight Compute's report, as `ncu --csv --page raw` writes it → figures.

Lines that begin with == are messages. Of the table, the first row names the columns, the second has their units, and each of
the others is a launch, in the order of execution.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from gemmport.core.errors import ProfileError
from gemmport.profiling.metrics import Metric

_FUNCTION = "Kernel Name"

_PREFIXES = {"": 1.0, "n": 1e-9, "u": 1e-6, "m": 1e-3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_SCALED = re.compile(r"([numKMGT]?)(?:s|second|byte/s|byte/second)")
"""Units that are scaled; older versions spell them out."""


@dataclass(frozen=True)
class Row:
    """A launch in the report: the kernel's name, and figures by the keys of their metrics."""

    function: str
    figures: dict[str, float | None]


def parse_report(text: str, metrics: Sequence[Metric]) -> list[Row]:
    """The launches of a report in their order, each with a value, or None, for every metric.

    Raises:
        ProfileError: there is no table of launches in it.
    """
    table = list(csv.reader(line for line in text.splitlines() if line.startswith('"')))
    if len(table) < 2 or _FUNCTION not in table[0]:
        raise ProfileError(f"Nsight Compute's report holds no table of launches: {messages(text) or 'it is empty'}")
    columns = {name: number for number, name in enumerate(table[0])}
    units, *launches = table[1:]
    return [
        Row(
            cells[columns[_FUNCTION]],
            {
                metric.key: _number(cells[column], units[column])
                if (column := columns.get(metric.counter)) is not None
                else None
                for metric in metrics
            },
        )
        for cells in launches
    ]


def messages(text: str) -> str:
    """The errors and warnings of a report, in one line; empty where there are none."""
    return "; ".join(re.findall(r"^==(?:ERROR|WARNING)== *(.+?) *$", text, re.MULTILINE))


def _number(cell: str, unit: str) -> float | None:
    """A value in seconds, bytes per second, or as it is; thousands may be set off by commas. None for "n/a", blanks and NaN."""
    try:
        value = float(cell.replace(",", ""))
    except ValueError:
        return None
    if not math.isfinite(value):
        return None
    scaled = _SCALED.fullmatch(unit)
    return value * _PREFIXES[scaled.group(1)] if scaled else value
