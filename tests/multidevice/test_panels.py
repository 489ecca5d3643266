"""Panels of what comes to a device, by made-up seconds: no device is needed."""

from __future__ import annotations

import pytest

from gemmport.multidevice import panels as module
from gemmport.multidevice.panels import ANOTHER, ENQUEUED, panels

LINES = 8192


def ends(sizes: list[int], comes: float, product: float) -> float:
    """Seconds until all panels are multiplied, by a clock that goes on from event to event."""
    arrived, free = 0.0, 0.0
    for number, size in enumerate(sizes, 1):
        arrived = max(arrived, number * 2 * ENQUEUED) + comes * size / LINES
        free = max(free, arrived) + product * size / LINES + ANOTHER
    return free


def chosen(comes: float, product: float, lines: int = LINES) -> list[int]:
    return panels(lines, comes / LINES, lambda size: product * size / LINES, 2)


def test_a_small_panel_goes_first_where_products_take_longer() -> None:
    """Of 8192 halves on two H100s: 0.18 ms over the link, 0.85 ms of product."""
    sizes = chosen(1.8e-4, 8.5e-4)
    assert sizes == [2048, 6144]
    assert ends(sizes, 1.8e-4, 8.5e-4) < 2 * ENQUEUED + 1.8e-4 / 4 + 8.5e-4 + 2 * ANOTHER


def test_panels_are_many_where_the_link_takes_longer() -> None:
    sizes = chosen(1e-1, 2e-2)
    assert len(sizes) > 4
    assert ends(sizes, 1e-1, 2e-2) < 1e-1 + 2e-2 / 10


@pytest.mark.parametrize(("comes", "product"), [(1e-5, 1e-5), (1e-9, 1.0), (0.0, 1e-3)])
def test_one_panel_is_enough_where_nothing_is_gained(comes: float, product: float) -> None:
    assert chosen(comes, product) == [LINES]


@pytest.mark.parametrize("lines", [1, 255, 256, 257, 1000, 8191, 70_000])
def test_panels_have_all_lines_in_whole_multiples(lines: int) -> None:
    for comes, product in ((1e-1, 2e-2), (2e-2, 1e-1), (1.0, 1.0)):
        sizes = chosen(comes, product, lines)
        assert sum(sizes) == lines
        assert all(size > 0 for size in sizes)
        assert all(size % module.GRAIN == 0 for size in sizes[:-1])


def test_what_a_product_of_few_lines_wastes_counts() -> None:
    """A device that takes as long for 2048 lines as for one is not given fewer."""
    sizes = panels(LINES, 1.8e-4 / LINES, lambda size: 2e-4 * -(-size // 2048), 2)
    assert sizes == [2048, 6144]


def test_panels_are_fewer_where_the_host_has_more_devices_to_tell() -> None:
    """Of 8192 halves on eight GPUs the host takes longer for a panel of each than these for all of it."""
    assert panels(LINES, 2e-4 / LINES, lambda size: 1e-4 * size / LINES, 2) != [LINES]
    assert panels(LINES, 2e-4 / LINES, lambda size: 1e-4 * size / LINES, 8) == [LINES]
