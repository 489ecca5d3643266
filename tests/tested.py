"""The devices that tests run on: all that are found, or those that --backend and --device leave."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from functools import cache

import pytest

import gemmport as gp
from gemmport import backends
from gemmport.execution import selection


def add_options(parser: pytest.Parser) -> None:
    """--backend and --device."""
    group = parser.getgroup("gemmport")
    group.addoption("--backend", metavar="NAME", help="run device tests on this backend only")
    group.addoption(
        "--device",
        metavar="DESCRIPTION",
        help="run device tests on the devices of this description only: PLATFORM[:DEVICE]",
    )


def register_own(config: pytest.Config) -> None:
    """Adds the backend of tests/host, which is slow, where the command line asks for it."""
    if config.getoption("--backend") == "host":
        importlib.import_module("host").register()


@cache
def devices(config: pytest.Config) -> Sequence[gp.DeviceInfo]:
    """What is tested, the best first."""
    found = [device for device in gp.devices() if device.backend in _backends(config)]
    description = config.getoption("--device")
    return selection.match_devices(description, found) if description else found


def best_of_each_backend(found: Sequence[gp.DeviceInfo]) -> list[gp.DeviceInfo]:
    """The first device of every backend."""
    return list({device.backend: device for device in reversed(found)}.values())[::-1]


def best_cpu(config: pytest.Config) -> gp.DeviceInfo | None:
    """The best CPU runtime that is tested."""
    return next((device for device in devices(config) if device.type == "cpu"), None)


def newest_of_each_runtime(found: Sequence[gp.DeviceInfo]) -> list[gp.DeviceInfo]:
    """Without the CPU under older versions of a runtime."""
    newest = {device.platform: device for device in sorted(found, key=lambda device: device.platform_version)}
    return [device for device in found if device.type != "cpu" or device is newest[device.platform]]


def ids(found: Sequence[gp.DeviceInfo]) -> list[str]:
    """Backend and platform; the number of a GPU; and what else tells two devices apart."""
    names = [f"{d.backend}-{d.platform}" + (f"-{d.index[1]}" if d.type == "gpu" else "") for d in found]
    versions = [
        f"{name}-{d.platform_version}" if names.count(name) > 1 else name for name, d in zip(names, found, strict=True)
    ]
    return [
        f"{name}-{d.selector}" if versions.count(name) > 1 else name for name, d in zip(versions, found, strict=True)
    ]


def nothing_found(config: pytest.Config) -> str:
    """Why there is no device to test on."""
    statuses = [selection.backend_status(name) for name in _backends(config)]
    reasons = [reason for status in statuses for reason in (status.error, *status.notes) if reason]
    listed = "; ".join(f"{device.selector} = {device.label}" for device in gp.devices()) or "none at all"
    return f"no device of --backend and --device to test on: {'; '.join(reasons)} (there are: {listed})"


def _backends(config: pytest.Config) -> Sequence[str]:
    wanted = config.getoption("--backend")
    return (wanted,) if wanted else backends.names()
