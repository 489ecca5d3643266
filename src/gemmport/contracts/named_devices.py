"""Devices that need not be here, by the names of their architectures: "sm_90" of NVIDIA's, "gfx90a" of AMD's, "dg2" of
Intel's.
"""

from __future__ import annotations

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
