"""What was found as entries of a configuration: as YAML, in a file or in the user's own folder."""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import yaml

from gemmport.core.device import DeviceInfo
from gemmport.core.errors import ConfigError
from gemmport.core.plan import ParameterValue
from gemmport.planning.lookup import PATH, load_file, user_folder
from gemmport.planning.parser import SCHEMA
from gemmport.planning.schema import Entry, Match, Provenance, Trial
from gemmport.runtime import trust
from gemmport.tuning.tilings import Tiling, Times

DIGITS = 4
"""Significant ones, of seconds in a file."""


def match_of(device: DeviceInfo, dtype: str, classes: Sequence[str]) -> Match:
    """Problems of a type and of some shape classes, on the device with this version of its runtime."""
    found = re.match(r"\d+(\.\d+)?", device.platform_version)
    range_of_versions = f"=={found.group()}.*" if found else ""
    return Match(
        device=(device.name,), platform=(device.platform,),
        version=range_of_versions if device.has_version(range_of_versions) else "",
        backend=(device.backend,), dtype=(dtype,), shape=tuple(classes),
    )  # fmt: skip


def entry_of(device: DeviceInfo, dtype: str, table: Sequence[Times], kept: Sequence[Tiling], tried: int) -> Entry:
    """An entry for a type: the tilings that are kept, those of one kernel together, and what they took.

    Args:
        tried: how many candidates there were.
    """
    table = [times for times in table if times.seconds]
    kernels: dict[str, list[Mapping[str, ParameterValue]]] = {}
    places: dict[Tiling, int] = {}
    for kernel, values in kept:
        places[kernel, values] = len(kernels.setdefault(kernel, []))
        kernels[kernel].append(dict(values))
    classes = tuple(dict.fromkeys(times.problem.shape_class for times in table))
    sizes = [f"{times.problem.m}×{times.problem.n}×{times.problem.k}" for times in table]
    provenance = Provenance(
        tuned=True,
        date=dt.datetime.now(dt.timezone.utc).date(),
        device=device.name,
        driver=device.driver,
        runtime=f"{device.platform_name} {device.platform_version}".strip(),
        gemmport=version("gemmport"),
        sizes=", ".join(sizes[:8]) + (f" and {len(sizes) - 8} more" if len(sizes) > 8 else ""),
        note=f"gemmport tune: {tried:,} candidates for {len(table)} products",
    )
    trials = tuple(trial for times in table if (trial := _trial(times, places)).seconds)
    stated = {name: tuple(each) for name, each in kernels.items()}
    return Entry(f"{device.label}, {dtype}", match_of(device, dtype, classes), stated, provenance, trials)


def _trial(times: Times, places: Mapping[Tiling, int]) -> Trial:
    problem = times.problem
    seconds: dict[str, dict[int, float]] = {}
    for tiling, place in places.items():
        if tiling in times.seconds:
            seconds.setdefault(tiling[0], {})[place] = float(f"{times.seconds[tiling]:.{DIGITS}g}")
    return Trial(problem.m, problem.n, problem.k, seconds, problem.batch, problem.ops, problem.dtype.name)


def to_yaml(entries: Sequence[Entry], description: str) -> str:
    """A configuration file with these entries."""
    document = {"schema": SCHEMA, "description": description, "entries": [_told(entry) for entry in entries]}
    return yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=math.inf)


class _Row(dict[Any, Any]):
    """A mapping that is written in one line."""


class _Dumper(yaml.SafeDumper):
    """Writes a list's members further in than the list, as the shipped files do."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


_Dumper.add_representer(
    _Row, lambda dumper, row: dumper.represent_mapping("tag:yaml.org,2002:map", row, flow_style=True)
)


def _told(entry: Entry) -> dict[str, Any]:
    told = entry.to_dict()
    match = {
        key: value if isinstance(value, str) or len(value) > 1 else value[0] for key, value in told["match"].items()
    }
    kernels = {
        name: _Row(each[0]) if len(each) == 1 else [_Row(values) for values in each]
        for name, each in entry.kernels.items()
    }
    provenance = {key: value for key, value in told["provenance"].items() if value not in ("", None)}
    provenance["date"] = entry.provenance.date
    match = {key: list(value) if isinstance(value, tuple) else value for key, value in match.items()}
    trials = [_Row({key: _flat(value) for key, value in trial.items()}) for trial in told.get("trials", ())]
    found = {"name": entry.name, "match": _Row(match), "kernels": kernels, "provenance": provenance}
    return {**found, **({"trials": trials} if trials else {})}


def _flat(value: Any) -> Any:
    return _Row({key: _flat(inner) for key, inner in value.items()}) if isinstance(value, Mapping) else value


def check_installable() -> None:
    """Raises ConfigError where an empty GEMMPORT_CONFIG_PATH leaves out the folder that `install` writes to."""
    if user_folder() is None:
        raise ConfigError(
            f"{PATH} must not be empty for --install: it leaves out the folder that the entries would go to"
        )


def install(entries: Sequence[Entry], device: DeviceInfo, description: str) -> Path:
    """Puts entries into a file of the user's own folder, in the place of those of the same names that are in it.

    Raises:
        ConfigError: an empty GEMMPORT_CONFIG_PATH leaves the folder out, or the file that is there is none that can be read.
        OSError, UntrustedError: it cannot be written, or somebody else may change the folder.
    """
    check_installable()
    folder = user_folder()
    assert folder is not None
    path = trust.make_folder(folder) / f"tuned-{_slug(device)}.yaml"
    new = {entry.name for entry in entries}
    old = [loaded.entry for loaded in load_file(path).entries if loaded.entry.name not in new] if path.exists() else []
    trust.write_file(path, to_yaml([*entries, *old], description).encode())
    return path


def _slug(device: DeviceInfo) -> str:
    """A device and its runtime as a part of the name of a file."""
    words = re.findall(
        r"[a-z0-9]+", f"{device.backend} {device.platform} {device.platform_version} {device.name}".lower()
    )
    return "-".join(words)
