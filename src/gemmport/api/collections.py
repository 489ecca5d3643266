"""Collections: arrays of other libraries whose products are graphs of products of their chunks, in rooms above this one."""

from __future__ import annotations

from importlib import import_module
from typing import Any

_ROOMS = {"dask.array": "gemmport.dask"}
"""By the package of a collection's type, the module that multiplies such. It is imported when one appears."""


def room_of(*operands: Any) -> Any | None:
    """The module that multiplies the first collection among the operands; None where there is none."""
    for x in operands:
        kind = type(x)
        if kind.__name__ == "Array" and (room := _ROOMS.get(".".join(kind.__module__.split(".")[:2]))) is not None:
            return import_module(room)
    return None
