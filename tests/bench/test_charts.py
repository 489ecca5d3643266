"""Pictures of points: axes with round figures, and a mark and a word for everything."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest

from gemmport.bench.charts import HEIGHT, WIDTH, Axis, Line, Point, Series, around, can_join, drawn


@pytest.mark.parametrize(
    ("axis", "ticks"),
    [
        (Axis("", 64, 512, 2), [64, 128, 256, 512]),
        (Axis("", 1, 2**16, 2), [1, 8, 64, 512, 4096, 32768]),
        (Axis("", 0.4, 3), [0.5, 1, 2]),
        (Axis("", 1, 1000), [1, 3, 10, 30, 100, 300, 1000]),
        (Axis("", 1, 1e6), [10**power for power in range(7)]),
    ],
)
def test_ticks_are_few_and_round(axis: Axis, ticks: list[float]):
    assert axis.ticks() == pytest.approx(ticks)


def test_axes_have_room_for_all_values():
    powers = around("", [70.0, 1000.0], 2)
    assert (powers.low, powers.high) == (64, 1024)
    assert around("", [64.0], 2).high == 128
    axis = around("", [0.5, 2.0], least=1.5)
    assert axis.low < 0.5
    assert axis.high > 2.0
    level = around("", [1.0], least=1.5)
    assert level.high / level.low == pytest.approx(1.5)


def test_a_line_joins_points_that_go_along_the_axis():
    points = [Point(size, 1.0, "") for size in (1.0, 2.0, 4.0)]
    assert can_join(points)
    assert not can_join([*points, points[-1]])
    assert not can_join(points[:1])


def test_each_point_has_a_mark_inside_the_picture_and_is_told_in_words():
    points = [Point(64.0, 0.5, "small <b>"), Point(1024.0, 2.0, "large")]
    series = [Series("× a", points, joined=True), Series("× b", points[:1])]
    x, y = Axis("size", 64, 1024, 2), Axis("ratio", 0.25, 4)
    text = drawn(3, "a & b", "what it shows", series, [Line("peak", (64, 1), (1024, 1))], x, y)
    figure = ET.fromstring(text.replace("class=muted", 'class="muted"'))
    plot = next(one for one in figure.iter("svg") if one.get("class") == "plot")
    assert plot.get("role") == "img"
    named = {one.get("id"): one.text for one in plot if one.get("id")}
    assert [named[name] for name in plot.get("aria-labelledby").split()] == ["a & b", "what it shows"]
    assert [one.text for one in plot.iter("title")][1:] == ["small <b>", "large", "small <b>"]
    for circle in plot.iter("circle"):
        assert 0 < float(circle.get("cx")) < WIDTH
        assert 0 < float(circle.get("cy")) < HEIGHT
    up = [float(circle.get("cy")) for circle in plot.iter("circle")]
    assert up[0] > up[1]  # the larger ratio is higher
    assert len([one for one in plot.iter("path") if one.get("class") == "join"]) == 1
    assert [one.text for one in plot.iter("text") if one.get("class") == "named"] == ["peak"]
