"""Points over logarithmic axes as SVG, for a page: its colours are the page's, and each picture says in words what it shows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from gemmport.pages.assembly import escape

WIDTH, HEIGHT = 460.0, 300.0
"""Of a picture, in units that are a pixel where it is as wide: text is read on a phone, too."""

LEFT, RIGHT, TOP, BOTTOM = 66.0, 20.0, 12.0, 42.0
"""Between the picture's edges and its axes."""

MOST_TICKS = 8

COLOURS = 6
"""In page.css: series of a picture beyond them begin anew with the first, and have another mark."""

_MARKS = ("circle", "square", "diamond", "triangle")

_TICKS = ((1, 2, 5), (1, 3), (1,), (1,))
"""Of a decade, from the closest on; the last is every other decade."""


@dataclass(frozen=True)
class Point:
    """Something measured.

    Attributes:
        x, y: above 0.
        told: what it is, for people who point at it.
    """

    x: float
    y: float
    told: str


@dataclass(frozen=True)
class Series:
    """Points of one colour and mark.

    Attributes:
        about: what follows the name in the legend.
        joined: whether a line leads from each point to the next.
    """

    name: str
    points: Sequence[Point]
    about: str = ""
    joined: bool = False


@dataclass(frozen=True)
class Line:
    """A straight line over the logarithmic axes, from end to end; it may have no name."""

    name: str
    start: tuple[float, float]
    end: tuple[float, float]


@dataclass(frozen=True)
class Axis:
    """A logarithmic axis.

    Attributes:
        low, high: above 0, low below high.
        base: 2 where its figures are powers of two, as sizes are.
    """

    name: str
    low: float
    high: float
    base: int = 10

    def place(self, value: float) -> float:
        """From 0 at its low end to 1 at its high one."""
        return math.log(value / self.low) / math.log(self.high / self.low)

    def ticks(self) -> list[float]:
        """A few round numbers on it."""
        first, last = (math.floor(math.log(end, self.base)) for end in (self.low, self.high))
        if self.base == 2:
            powers = [2.0**power for power in range(first, last + 2)]
            inside = [tick for tick in powers if self._has(tick)]
            return inside[:: max(1, math.ceil(len(inside) / MOST_TICKS))]
        for number, digits in enumerate(_TICKS):
            step = 2 if number == len(_TICKS) - 1 else 1
            ticks = [digit * 10.0**power for power in range(first, last + 2, step) for digit in digits]
            inside = [tick for tick in ticks if self._has(tick)]
            if len(inside) <= MOST_TICKS:
                break
        return inside

    def _has(self, value: float) -> bool:
        return self.low * 0.999 <= value <= self.high * 1.001


def around(name: str, values: Sequence[float], base: int = 10, *, least: float = 1.2) -> Axis:
    """An axis with some room around values: of base 2 to the next power, else a sixth of it.

    Args:
        least: times the low end, the high one is at least.
    """
    low, high = min(values), max(values)
    if base == 2:
        low, high = 2.0 ** math.floor(math.log2(low * 1.001)), 2.0 ** math.ceil(math.log2(high * 0.999))
        return Axis(name, low, max(high, 2 * low), 2)
    room = max((high / low) ** (1 / 12), least**0.5)
    return Axis(name, low / room, high * room, base)


def drawn(
    number: int, title: str, described: str, series: Sequence[Series], lines: Sequence[Line], x: Axis, y: Axis
) -> str:
    """A figure: its title, the picture, and what its colours mean.

    Args:
        number: of the picture on its page. described: what it shows, for people who do not see it.
    """
    parts = [*_grid(x, y), *(_line(line, x, y) for line in lines)]
    parts += [_points(one, index, x, y) for index, one in enumerate(series)]
    parts += [_label(line, x, y) for line in lines if line.name]
    legend = "".join(
        f'<li><svg class="key" viewBox="-6 -6 12 12" aria-hidden="true">'
        f'<g class="s{index % COLOURS}">{_mark(index, 0, 0)}</g></svg>'
        f"{escape(one.name)}{f' <span class=muted>{escape(one.about)}</span>' if one.about else ''}</li>"
        for index, one in enumerate(series)
    )
    return (
        f'<figure class="card chart"><figcaption>{escape(title)}</figcaption>'
        f'<svg class="plot" viewBox="0 0 {WIDTH:g} {HEIGHT:g}" role="img" '
        f'aria-labelledby="chart-{number}-title chart-{number}-about">'
        f'<title id="chart-{number}-title">{escape(title)}</title><desc id="chart-{number}-about">{escape(described)}</desc>'
        f'{"".join(parts)}</svg><ul class="key-list">{legend}</ul></figure>'
    )


def _at(x: Axis, y: Axis, one: tuple[float, float]) -> tuple[float, float]:
    across, up = x.place(one[0]), y.place(one[1])
    return LEFT + across * (WIDTH - LEFT - RIGHT), HEIGHT - BOTTOM - up * (HEIGHT - TOP - BOTTOM)


def _grid(x: Axis, y: Axis) -> list[str]:
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM
    parts = []
    for tick in x.ticks():
        place, _ = _at(x, y, (tick, y.low))
        parts.append(f'<path class="rule" d="M{place:.1f} {TOP}V{bottom}"/>')
        parts.append(f'<text class="tick" x="{place:.1f}" y="{bottom + 15}" text-anchor="middle">{figure(tick)}</text>')
    for tick in y.ticks():
        _, place = _at(x, y, (x.low, tick))
        parts.append(f'<path class="rule" d="M{LEFT} {place:.1f}H{right}"/>')
        parts.append(f'<text class="tick" x="{LEFT - 6}" y="{place + 4:.1f}" text-anchor="end">{figure(tick)}</text>')
    middle = (LEFT + right) / 2
    parts.append(f'<text class="axis" x="{middle:g}" y="{HEIGHT - 6}" text-anchor="middle">{escape(x.name)}</text>')
    middle = (TOP + bottom) / 2
    turned = f'x="13" y="{middle:g}" text-anchor="middle" transform="rotate(-90 13 {middle:g})"'
    parts.append(f'<text class="axis" {turned}>{escape(y.name)}</text>')
    return parts


def _line(line: Line, x: Axis, y: Axis) -> str:
    (left, up), (right, down) = (_at(x, y, end) for end in (line.start, line.end))
    return f'<path class="line" d="M{left:.1f} {up:.1f}L{right:.1f} {down:.1f}"/>'


def _label(line: Line, x: Axis, y: Axis) -> str:
    """The name of a line beside it: above a level one's left end, along a rising one's middle."""
    (left, up), (right, down) = (_at(x, y, end) for end in (line.start, line.end))
    if line.start[1] == line.end[1]:
        return f'<text class="named" x="{left + 4:.1f}" y="{up - 5:.1f}">{escape(line.name)}</text>'
    angle = math.degrees(math.atan2(down - up, right - left))
    place = f"translate({(left + right) / 2:.1f} {(up + down) / 2:.1f}) rotate({angle:.1f})"
    return f'<text class="named" transform="{place}" y="-5" text-anchor="middle">{escape(line.name)}</text>'


def _points(series: Series, index: int, x: Axis, y: Axis) -> str:
    places = [_at(x, y, (point.x, point.y)) for point in series.points]
    marks = [
        f"<g>{_mark(index, *place)}<title>{escape(point.told)}</title></g>"
        for place, point in zip(places, series.points, strict=True)
    ]
    joined = "M" + "L".join(f"{across:.1f} {down:.1f}" for across, down in places) if series.joined and places else ""
    path = f'<path class="join" d="{joined}"/>' if joined else ""
    return f'<g class="s{index % COLOURS}">{path}{"".join(marks)}</g>'


def _mark(index: int, across: float, down: float) -> str:
    mark = _MARKS[index % len(_MARKS)]
    if mark == "circle":
        return f'<circle cx="{across:.1f}" cy="{down:.1f}" r="3.6"/>'
    shapes = {
        "square": "m-3.2-3.2h6.4v6.4h-6.4z",
        "diamond": "m0-4.6l4.6 4.6l-4.6 4.6l-4.6-4.6z",
        "triangle": "m0-4.4l4.4 7.6h-8.8z",
    }
    return f'<path d="M{across:.1f} {down:.1f}{shapes[mark]}"/>'


def figure(value: float) -> str:
    """A number for people, of three digits that count."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def can_join(points: Sequence[Point]) -> bool:
    """Whether points in their order go along the axis, one above another nowhere."""
    return len(points) > 1 and all(one.x * 1.01 < other.x for one, other in pairwise(points))
