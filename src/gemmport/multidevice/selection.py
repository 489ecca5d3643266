"""Which devices a product is dealt to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from gemmport.backends.base import Backend
from gemmport.core.device import DeviceInfo
from gemmport.core.errors import BackendUnavailableError, DeviceNotFoundError
from gemmport.execution.selection import ALL, asked_backend, devices, get_backend, select_device

Described: TypeAlias = str | int | DeviceInfo | Backend
"""One device: as `get_backend` takes it, or open."""

Devices: TypeAlias = str | Sequence[Described]
"""Several, or "all"."""


def chosen_backends(given: Devices, backend: str | None = None) -> list[Backend]:
    """The devices of `devices=`, open, each once; errors as `chosen_devices`, and as `get_backend`."""
    opened = [
        each if isinstance(each, Backend) else get_backend(device=each) for each in chosen_devices(given, backend)
    ]
    return [each for number, each in enumerate(opened) if all(each is not other for other in opened[:number])]


def chosen_devices(given: Devices, backend: str | None = None) -> Sequence[DeviceInfo | Backend]:
    """The devices of `devices=`; what is a `DeviceInfo` need not be here.

    Args:
        given: "all", which is `distinct` of those of `backend`; or a list of descriptions, as of `get_backend`, of
            `DeviceInfo`s and of open backends.
        backend: name of the backend whose devices are meant; default GEMMPORT_BACKEND, or every one.

    Raises:
        DeviceNotFoundError: it is neither "all" nor a list of one or more, or names a device that is not here.
        BackendUnavailableError: none is here.
        Others as `select_device`.
    """
    if isinstance(given, str):
        if given.lower() != ALL:
            raise DeviceNotFoundError(f"devices must be 'all' or a list; got {given!r}: write [{given!r}], or device=")
        found = distinct(devices(asked_backend(backend)))
        if not found:
            raise BackendUnavailableError("no device: gemmport doctor says what is missing")
        return found
    if not isinstance(given, Sequence) or not given:
        raise DeviceNotFoundError(f"devices must be 'all' or a list of one device or more; got {given!r}")
    return [each if isinstance(each, Backend) else select_device(_named(each), backend) for each in given]


def _named(device: str | int | DeviceInfo) -> str | int | DeviceInfo:
    """The name of a device, which must be given."""
    if device is None or device == "":
        raise DeviceNotFoundError(f"each of devices must be a description, a DeviceInfo or a Backend; got {device!r}")
    return device


def distinct(found: Sequence[DeviceInfo]) -> list[DeviceInfo]:
    """Of devices, the best first, each chip once: of several runtimes for it the first.

    All runtimes for CPUs have the host's. GPUs of one vendor and name are of one kind, all of which a runtime reaches.
    """
    runtimes: dict[tuple[str, ...], tuple[str, int]] = {}
    kept = []
    for device in found:
        kind = (device.type,) if device.type == "cpu" else (device.type, device.vendor, device.name)
        if runtimes.setdefault(kind, (device.backend, device.index[0])) == (device.backend, device.index[0]):
            kept.append(device)
    return kept
