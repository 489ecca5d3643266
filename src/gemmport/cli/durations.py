"""Times on the command line: 90s, 5m, 1h."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click

UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}

ENDLESS = "none"

if TYPE_CHECKING:
    _Seconds = click.ParamType[float]
else:
    _Seconds = click.ParamType  # generic in newer versions of click alone


class Duration(_Seconds):
    """Seconds, written as 90, 90s, 5m or 1.5h; infinity where "none" may be written and is."""

    name = "time"

    def __init__(self, *, endless: bool = False) -> None:
        self._endless = endless

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The seconds; fails where the text does not say a time."""
        if isinstance(value, float):
            return value
        if self._endless and value == ENDLESS:
            return float("inf")
        found = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)([smh]?)", str(value))
        seconds = float(found.group(1)) * UNITS[found.group(2)] if found else 0.0
        if seconds <= 0:
            other = f", or {ENDLESS}" if self._endless else ""
            self.fail(f"a time must be a number above 0 with s, m or h, such as 5m{other}; got {value!r}", param, ctx)
        return seconds
