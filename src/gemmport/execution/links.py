"""How fast devices send each other numbers: measured when that is first needed, once for each pair and way.

What CUDA's driver tells of two devices (`cuDeviceGetP2PAttribute`: whether one reaches the other, whether atomics do, a rank)
says no rate, and NVLink is many times as fast as PCI Express.
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass

from gemmport.backends.base import Backend
from gemmport.core.device import DeviceInfo
from gemmport.core.errors import GemmportError
from gemmport.core.units import quantity
from gemmport.planning.lookup import Configuration

log = logging.getLogger(__name__)

SENT = 2**26
"""Bytes that are copied at a time: 150 µs at the 450 GB/s of NVLink between two H100s (NVIDIA's data sheet)."""

ROUNDS = 4
"""The fastest counts: the first enables peer access."""

_measuring = threading.RLock()


@dataclass(frozen=True)
class Between:
    """What lies between two devices.

    Attributes:
        rate: bytes per second, one way.
        directly: whether copies leave the host out.
        measured: whether the rate is; else the models' bandwidths between device and host make it.
    """

    rate: float
    directly: bool
    measured: bool = False

    def __str__(self) -> str:
        way = "directly" if self.directly else "through the host"
        return f"{quantity(self.rate, 'B/s')} {way}, {'measured' if self.measured else 'by the models'}"


def measured_between(sender: Backend, receiver: Backend) -> float | None:
    """Bytes per second of copies from one device to another that leave the host out; None where there are none.

    Raises:
        DeviceMemoryError: a device has no room for 64 MiB. LaunchError: it fails.
    """
    source = sender.allocate(SENT)
    try:
        target = receiver.allocate(SENT)
        try:
            taken = []
            for _ in range(ROUNDS):
                begun = time.perf_counter()
                if not receiver.copy_from(sender, source, target, SENT):
                    return None
                receiver.synchronize()
                taken.append(time.perf_counter() - begun)
            return SENT / max(min(taken), 1e-9)
        finally:
            target.release()
    finally:
        source.release()


def between(sender: Backend, receiver: Backend, configuration: Configuration) -> Between:
    """What lies between two devices that are open: measured, where the receiver reaches the sender's memory and both have room;
    else what the models say of the way through the host.
    """
    key = "link from", sender.device
    with _measuring:
        if key not in receiver.kept:
            receiver.kept[key] = _measured(sender, receiver)
        rate = receiver.kept[key]
    if rate is None:
        return _through_the_host(sender.device, receiver.device, configuration)
    return Between(rate, directly=True, measured=True)


def _measured(sender: Backend, receiver: Backend) -> float | None:
    """As `measured_between`, of devices that reach each other; None, too, where that fails."""
    if not receiver.reaches(sender.device):
        return None
    try:
        rate = measured_between(sender, receiver)
    except (GemmportError, MemoryError) as error:
        log.warning("the link from %s to %s is not measured: %s", sender.device.label, receiver.device.label, error)
        return None
    told = "no copies between them" if rate is None else quantity(rate, "B/s")
    log.info("from %s to %s: %s", sender.device.label, receiver.device.label, told)
    return rate


def expected_between(one: DeviceInfo, other: DeviceInfo, configuration: Configuration) -> Between:
    """What is expected to lie between two devices, which need not be here: those of CUDA are taken to reach each other over
    what links them to the host; between others all numbers go to the host, and from there.
    """
    if one.backend == other.backend == "cuda":
        return Between(min(configuration.model(device).link_bandwidth for device in (one, other)), directly=True)
    return _through_the_host(one, other, configuration)


def _through_the_host(one: DeviceInfo, other: DeviceInfo, configuration: Configuration) -> Between:
    return Between(1 / sum(1 / configuration.model(device).link_bandwidth for device in (one, other)), directly=False)
