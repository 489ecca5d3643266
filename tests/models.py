"""The models of devices that gemmport ships, as plans see them."""

from __future__ import annotations

from gemmport.contracts.device_model import DeviceModel
from gemmport.core.device import DeviceInfo
from gemmport.planning.lookup import load_configuration
from made_up_devices import DEVICES


def model_of(device: DeviceInfo) -> DeviceModel:
    """The model of a device; files of the user are not read in tests."""
    return load_configuration().model(device)


HOPPER = model_of(DEVICES["NVIDIA sm_90 under CUDA"])
"""That of the chip on which `simt`'s numbers were fitted."""

TILINGS, MATRIX_TILINGS = ([{name: int(value) for name, value in each.items()} for key in keys for each in HOPPER.tilings[key]]
                           for keys in (("simt", "simt.float32"), ("simt.mma",)))  # fmt: skip
"""Those among which `simt` chooses there, in float32 and by the matrix unit."""
