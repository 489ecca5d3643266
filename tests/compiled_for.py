"""NVIDIA's architectures that tests compile for without a GPU, from the first with matrix units for halves and float64 on."""

from __future__ import annotations

from dataclasses import replace

import pytest

import gemmport as gp
from gemmport.backends import _nvrtc
from gemmport.contracts.named_devices import device_of

FROM_SM_80 = (
    "sm_80", "sm_86", "sm_87", "sm_88", "sm_89", "sm_90", "sm_100", "sm_103", "sm_107", "sm_110", "sm_120", "sm_121",
)  # fmt: skip
"""All of them that NVRTC 13.5 compiles for."""

STANDS_FOR = {"sm_107": "sm_103"}
"""`gemmport.contracts.occupancy` does not know the limits of the first: those of the second stand for them."""


def any_of(architecture: str) -> gp.DeviceInfo:
    """A device of an architecture, for which the compiler makes machine code; skips where it does not."""
    if int(architecture.removeprefix("sm_")) not in _nvrtc.architectures():
        pytest.skip(f"{_nvrtc.compiler()} does not compile for {architecture}")
    return replace(device_of(STANDS_FOR.get(architecture, architecture)), architecture=architecture)
