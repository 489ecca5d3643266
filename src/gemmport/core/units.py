"""Quantities for people: three digits and a unit that fits."""

from __future__ import annotations

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
