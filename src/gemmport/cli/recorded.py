"""Devices of documents that gemmport wrote, which need not be here."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

from gemmport.core.device import DeviceInfo
from gemmport.core.errors import AmbiguousDeviceError, DeviceNotFoundError, RecordError
from gemmport.execution.selection import words_begin
from gemmport.runtime.userfile import read_text

_KNOWN = {field.name for field in fields(DeviceInfo)}


def recorded_device(path: Path, description: str | None, backend: str | None) -> DeviceInfo:
    """The device of a JSON document of `gemmport devices` or `gemmport run`.

    Args:
        description: its selector, or words of its label, or their beginnings; backend: its own. Where they are None, the
            document must have one device.

    Raises:
        ConfigError: the file cannot be read. RecordError: it holds another document.
        DeviceNotFoundError, AmbiguousDeviceError: it has none, or several, of that description.
    """
    text = read_text(path)
    try:
        found = [*dict.fromkeys(_devices(json.loads(text)))]
    except json.JSONDecodeError as error:
        raise RecordError(f"{path} must be a JSON document of gemmport devices or run; got no JSON: {error}") from None
    except (ValueError, TypeError, KeyError, AttributeError, IndexError):
        raise RecordError(
            f"{path} must be a JSON document of gemmport devices or run; got another: gemmport devices --format json writes one"
        ) from None
    words = (description or "").replace(":", " ")
    own = [device for device in found if backend is None or backend.lower() in ("auto", device.backend)]
    asked = [device for device in own if device.selector == description]
    asked = asked or [device for device in own if words_begin(words, device.label)]
    labels = ", ".join(device.label for device in asked or found)
    if not asked:
        raise DeviceNotFoundError(f"{path} has no device {description or backend or ''}: there are {labels or 'none'}")
    if len(asked) > 1:
        raise AmbiguousDeviceError(f"{path} has several devices: choose one of {labels} by --device and --backend")
    return asked[0]


def _devices(document: Any) -> Iterator[DeviceInfo]:
    """Those in `environment.devices` of a run, and in `devices` of each backend."""
    if "environment" in document:
        described = [*document["environment"]["devices"].values()]
    else:
        described = [device for backend in document.values() for device in backend["devices"]]
    for one in described:
        yield DeviceInfo.from_dict({key: value for key, value in one.items() if key in _KNOWN})
