"""Devices that need not be here, by the names of their architectures: "sm_90" of NVIDIA's, "gfx90a" of AMD's, "dg2" of
Intel's; and by the names of chips that configs/ has a model of.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gemmport.contracts import amd, intel, occupancy
from gemmport.core.device import DeviceInfo
from gemmport.core.errors import DeviceNotFoundError


def device_of(name: str) -> DeviceInfo:
    """A device of an architecture: what a plan must know of it. Its backend is the one that compiles without the device.

    Raises:
        DeviceNotFoundError: no such architecture is known.
    """
    if (limits := occupancy.architecture(name)) is not None:
        return occupancy.device_of(name, limits)
    if name in amd.ARCHITECTURES:
        return amd.device_of(name)
    if name in intel.ARCHITECTURES:
        return intel.device_of(name)
    families = (occupancy.ARCHITECTURES, amd.ARCHITECTURES, intel.ARCHITECTURES)
    known = "; ".join(", ".join(names) for names in families)
    raise DeviceNotFoundError(f"architecture must be one that is known; got {name!r}; there are {known}")


CHIPS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "H200": (
        "sm_90",
        {"name": "NVIDIA H200", "compute_units": 132, "clock_mhz": 1980, "memory": 150_109_880_320,
         "max_allocation": 150_109_880_320},
    ),
}  # fmt: skip
"""By the name that a shipped model matches: the architecture, and what the chip told of itself when it was measured."""


def chip_of(name: str) -> DeviceInfo | None:
    """A chip that need not be here, as its driver tells of it under CUDA; None where none of that name is known."""
    known = CHIPS.get(name.upper())
    return None if known is None else replace(device_of(known[0]), **known[1])
