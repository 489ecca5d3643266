"""A measured model as an entry of a configuration (`models:`, docs/configuration.md), with its provenance."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping
from typing import Any

import yaml
from packaging.version import InvalidVersion, Version

from gemmport.bench.environment import host_environment
from gemmport.calibration.figures import is_multiply_adds
from gemmport.calibration.measuring import Measured
from gemmport.core.device import DeviceInfo

SCHEMA = 1
"""Of a configuration file."""


def model_entry(measured: Measured, environment: Mapping[str, str]) -> dict[str, Any]:
    """The entry: what was measured, rounded to four digits; what was left out is derived, as without it.

    Args:
        environment: "date" (ISO) and "gemmport" (its version), as `host_environment` tells them.
    """
    device = measured.device
    numbers = {figure.name: float(f"{figure.value:.3e}") for figure in measured.figures}
    rates: dict[str, dict[str, float]] = {}
    for name, value in numbers.items():
        if is_multiply_adds(name):
            field, _, dtype = name.rpartition(" ")
            rates.setdefault(re.sub("[ -]", "_", field), {})[dtype] = value
    others = {name: value for name, value in numbers.items() if not is_multiply_adds(name)}
    return {
        "name": f"{device.name}, {device.platform} {device.platform_version}, measured".replace("  ", " "),
        "match": _match(device),
        **rates,
        **others,
        "provenance": _provenance(measured, environment),
    }


def file_text(measured: Measured) -> str:
    """A whole configuration file with that entry."""
    document = {
        "schema": SCHEMA,
        "description": f"What {measured.device.label} takes for the parts of a product, by gemmport calibrate.",
        "models": [model_entry(measured, host_environment())],
    }
    return yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)


def file_name(device: DeviceInfo) -> str:
    """Of the file in a folder of configurations: one for each device of each runtime."""
    told = f"model {device.backend} {device.platform} {device.platform_version} {device.name}"
    return f"{re.sub(r'[^a-z0-9.]+', '-', told.lower()).strip('-.')}.yaml"


def _match(device: DeviceInfo) -> dict[str, str]:
    """The device of its runtime. Of CPUs the runtime is the compiler, so that its version counts."""
    match = {"backend": device.backend, "platform": device.platform, "device": device.name}
    if device.type == "cpu":
        try:
            major, minor, *_ = (*Version(device.platform_version).release, 0)
        except InvalidVersion:
            return match
        match["version"] = f"=={major}.{minor}.*"
    return match


def _provenance(measured: Measured, environment: Mapping[str, str]) -> dict[str, Any]:
    device = measured.device
    spreads = ", ".join(f"{figure.name} {100 * figure.spread:.1f} %" for figure in measured.figures)
    rounds = max((len(figure.samples) for figure in measured.figures), default=0)
    left_out = "; ".join(f"{name} is derived: {reason}" for name, reason in measured.left_out.items())
    return {
        "tuned": True,
        "date": dt.date.fromisoformat(environment["date"]),
        "device": f"{device.name}, {device.compute_units} compute units",
        "driver": device.driver or "unknown",
        "runtime": f"{device.platform_name or device.platform} {device.platform_version}".strip(),
        "gemmport": environment["gemmport"],
        "figures": f"medians of {rounds} rounds by gemmport calibrate, in {measured.seconds:.0f} s; spread (half the distance "
        f"of the quartiles): {spreads}",
        **({"note": left_out[:1000]} if left_out else {}),
    }


class _Dumper(yaml.SafeDumper):
    """Writes numbers as people do, and so that YAML 1.1 reads numbers: 4.2e+12."""


def _written(dumper: yaml.SafeDumper, value: float) -> yaml.ScalarNode:
    mantissa, _, exponent = f"{value:.3e}".partition("e")
    digits = mantissa.rstrip("0")
    return dumper.represent_scalar("tag:yaml.org,2002:float", f"{digits}{'0' * digits.endswith('.')}e{exponent}")


_Dumper.add_representer(float, _written)
