"""How far a streamed product has come."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True)
class Progress:
    """What was done of a streamed product.

    Attributes:
        moved, total: bytes between the host and the device.
        tiles, all_tiles: of the result, finished.
    """

    moved: int
    total: int
    tiles: int
    all_tiles: int


Tell: TypeAlias = Callable[[Progress], object]
