"""Configuration: YAML entries that say, for a kind of device and problem, which kernels to prefer and their tile sizes.

Three sources, the first before the second before the third: files named in the call (`--config`, `config=`), the user's own
folders (GEMMPORT_CONFIG_PATH), and the files that gemmport ships. Within one source the most specific matching entry comes
first.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path

from gemmport.core.device import DeviceInfo
from gemmport.core.errors import ConfigError, UntrustedError
from gemmport.core.problem import GemmProblem
from gemmport.planning.schema import Entry, LoadedEntry, Source
from gemmport.runtime import trust
from gemmport.runtime.cache import load_text, program_key, store_text

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Configuration:
    """All entries of all sources, the first source first.

    Attributes:
        refused: why folders of the user's, or files in them, were passed over: somebody else may change them.
    """

    entries: tuple[LoadedEntry, ...]
    refused: tuple[str, ...] = ()

    def matching(self, device: DeviceInfo, problem: GemmProblem | None = None) -> list[LoadedEntry]:
        """Entries for a device (and a problem), in the order in which they are tried."""
        found = [
            loaded for loaded in self.entries
            if loaded.entry.match.device_matches(device)
            and (problem is None or loaded.entry.match.problem_matches(problem))
        ]  # fmt: skip
        rank: dict[Source, int] = {"call": 0, "user": 1, "shipped": 2}
        found.sort(
            key=lambda loaded: loaded.entry.match.specificity, reverse=True
        )  # stable: ties keep their file's order
        found.sort(key=lambda loaded: rank[loaded.source])
        return found


def load_configuration(extra: Sequence[str | Path] = ()) -> Configuration:
    """The configuration: `extra` files of this call, then the user's folders, then what gemmport ships.

    Of the user's folders, and of the files in them, those are read that nobody else may change (`gemmport.runtime.trust`). The
    others are warned of, once. Files of the call may stand anywhere.

    Raises:
        ConfigError: a file cannot be read or breaks a rule; the message names file, entry, value and rule.
    """
    entries = [loaded for path in extra for loaded in load_file(path)]
    refused: list[str] = []
    for folder in filter(None, os.environ.get("GEMMPORT_CONFIG_PATH", "").split(os.pathsep)):
        if not Path(folder).is_dir():
            raise ConfigError(f"GEMMPORT_CONFIG_PATH must name folders; got {folder}")
        entries += _found_in(Path(folder), refused)
    return Configuration((*entries, *_shipped()), tuple(refused))


def load_file(path: str | Path) -> list[LoadedEntry]:
    """The checked entries of one file, which the call names.

    Raises:
        ConfigError: as `load_configuration`.
    """
    from gemmport.planning import parser  # noqa: PLC0415  # see there
    from gemmport.runtime import userfile  # noqa: PLC0415  # see there

    return list(parser.parse(userfile.read_text(path), str(path), "call"))


def _found_in(folder: Path, refused: list[str]) -> Iterator[LoadedEntry]:
    """The checked entries of the files in a folder of the user's; what is not trusted is added to `refused`."""
    from gemmport.planning import parser  # noqa: PLC0415  # see there
    from gemmport.runtime import userfile  # noqa: PLC0415  # see there

    try:
        trust.check_folder(folder)
        paths = sorted(folder.glob("*.y*ml"))
    except OSError as error:
        _refuse(folder, error, refused)
        return
    for path in paths:
        try:
            content = trust.read_file(trust.real_path(path), userfile.MOST_BYTES)
        except OSError as error:
            _refuse(path, error, refused)
        else:
            yield from parser.parse(userfile.text_of(content, path), str(path), "user")


def _refuse(path: Path, error: Exception, refused: list[str]) -> None:
    if not isinstance(error, UntrustedError):
        raise ConfigError(f"{path}: cannot be read: {error}") from error
    refused.append(str(error))
    _warn_once(str(error))


@cache
def _warn_once(reason: str) -> None:
    log.warning("GEMMPORT_CONFIG_PATH: %s. It is not read: a file of --config (config=) is, wherever it stands", reason)


_STORED = "configs"
"""The name in the cache of the entries that gemmport ships."""

_FORM = "1"
"""Counts the forms in which they were stored there."""


@cache
def _shipped() -> tuple[LoadedEntry, ...]:
    """The entries that gemmport ships. They are read once per machine, and from then on from the cache.

    The tests have checked them: here they are checked only where they cannot be read, to say why.
    """
    named = sorted((file.name, file) for file in files("gemmport.configs").iterdir() if file.name.endswith(".yaml"))
    texts = {f"configs/{name}": file.read_text("utf-8") for name, file in named}
    key = program_key(_FORM, *texts, *texts.values())
    stored = load_text(_STORED, key)
    if stored is not None:
        return tuple(LoadedEntry(Entry.of(data), file, "shipped") for file, data in json.loads(stored))
    entries = [loaded for file, text in texts.items() for loaded in _unchecked(file, text)]
    store_text(_STORED, key, json.dumps([(loaded.file, loaded.entry.to_dict()) for loaded in entries]))
    return tuple(entries)


def _unchecked(file: str, text: str) -> list[LoadedEntry]:
    import yaml  # noqa: PLC0415  # where nothing is stored yet

    try:
        data = yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        return [LoadedEntry(Entry.of(entry), file, "shipped") for entry in data["entries"]]
    except (AttributeError, KeyError, TypeError, ValueError, yaml.YAMLError):
        from gemmport.planning import parser  # noqa: PLC0415

        return list(parser.parse(text, file, "shipped"))
