"""Quantities for people: three digits and a unit that fits."""

from __future__ import annotations

import math
import re
from numbers import Integral

from gemmport.core.errors import ParameterError

MOST_LETTERS = 5
"""Of a unit that is written behind its prefix without a blank: 68.7 GFLOPS, 68.7 G multiply-adds."""

_PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))


def span(seconds: float) -> str:
    """Seconds, milliseconds, microseconds or nanoseconds."""
    units = ((1.0, "s"), (1e3, "ms"), (1e6, "µs"), (1e9, "ns"))
    scale, unit = next((s, u) for s, u in units if seconds * s >= 1 or u == "ns")
    return f"{seconds * scale:.3g} {unit}"


def quantity(value: float, unit: str) -> str:
    """A number of a unit, in its thousands, millions, …: 3.36 TFLOPS, 12.6 MB, 0 B."""
    scale, prefix = next((scale, prefix) for scale, prefix in _PREFIXES if value >= scale or scale == 1.0)
    shown = value / scale
    between = " " if prefix and len(unit) > MOST_LETTERS else ""
    return f"{shown:.3g} {prefix}{between}{unit}" if shown < 999.5 else f"{shown:,.0f} {prefix}{between}{unit}"


_SIZES = {"": 1, **{f"{p}{i}": (1024 if i else 1000) ** n for n, p in enumerate("kmgtp", 1) for i in ("", "i")}}


def as_bytes(name: str, value: object) -> int:
    """A number of bytes, or a text such as "1GiB", "500MB" or "2e9".

    Raises:
        ParameterError: it is something else, or not above 0.
    """
    found = re.fullmatch(r"([0-9.]+(?:e[0-9]+)?)\s*([kmgtp]?i?)b?", str(value).strip().lower())
    if isinstance(value, Integral) and not isinstance(value, bool) and int(value) > 0:
        return int(value)
    try:
        size = float(found[1]) * _SIZES[found[2]] if isinstance(value, str) and found else math.nan
    except (ValueError, KeyError):
        size = math.nan
    if not 1 <= size < 2**63:
        raise ParameterError(f'{name} must be a number of bytes, such as 1000000 or "1GiB"; got {value!r}')
    return int(size)
