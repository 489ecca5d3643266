"""Configuration: YAML entries that say, for a kind of device and problem, which kernels to prefer and their tile sizes; and
models that say what a kind of device takes for the parts of a product.

Three sources, the first before the second before the third: files named in the call (`--config`, `config=`), the user's own
folders (those of GEMMPORT_CONFIG_PATH, then `user_folder`), and the files that gemmport ships. Within one source the most
specific matching entry comes first.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any

from gemmport.contracts.device_model import DeviceModel, derived
from gemmport.core.device import DeviceInfo
from gemmport.core.errors import ConfigError, UntrustedError
from gemmport.core.precision import FULL
from gemmport.core.problem import GemmProblem
from gemmport.planning import verdicts
from gemmport.planning.schema import Entry, Loaded, LoadedEntry, LoadedModel, LoadedPrecision, Model, Source
from gemmport.runtime import trust
from gemmport.runtime.cache import load_text, program_key, store_text, user_config_folder

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Configuration:
    """All entries and models of all sources, the first source first.

    Attributes:
        refused: why folders of the user's, or files in them, were passed over: somebody else may change them.
        precisions: that the call's and the user's files state.
    """

    entries: tuple[LoadedEntry, ...]
    refused: tuple[str, ...] = ()
    models: tuple[LoadedModel, ...] = ()
    precisions: tuple[LoadedPrecision, ...] = ()

    @property
    def precision(self) -> str:
        """What operands of float32 and complex64 are rounded to where neither a call nor its context says."""
        return self.precisions[0].name if self.precisions else FULL

    def with_first(self, *entries: LoadedEntry) -> Configuration:
        """The same with entries before all others."""
        return replace(self, entries=(*entries, *self.entries))

    def of_models(self) -> Configuration:
        """The same without any entry."""
        return replace(self, entries=()) if self.entries else self

    def without(self, source: Source) -> Configuration:
        """The same without the entries of one source."""
        return replace(self, entries=tuple(loaded for loaded in self.entries if loaded.source != source))

    def matching(self, device: DeviceInfo, problem: GemmProblem | None = None) -> list[LoadedEntry]:
        """Entries for a device (and a problem), in the order in which they are tried."""
        if device not in self._of_devices:
            found = [loaded for loaded in self.entries if loaded.entry.match.device_matches(device)]
            found.sort(
                key=lambda loaded: loaded.entry.match.specificity, reverse=True
            )  # stable: ties keep their file's order
            found.sort(key=lambda loaded: _RANK[loaded.source])
            self._of_devices[device] = found
        every = self._of_devices[device]
        return [loaded for loaded in every if problem is None or loaded.entry.match.problem_matches(problem)]

    def model(self, device: DeviceInfo) -> DeviceModel:
        """What a device takes for the parts of a product: of each number what the first of the matching models states, in the
        order of entries; where none does, what the device tells.
        """
        if device not in self._models:
            self._models[device] = self._model(device)
        return self._models[device]

    def _model(self, device: DeviceInfo) -> DeviceModel:
        found = [loaded for loaded in self.models if loaded.model.match.device_matches(device)]
        found.sort(key=lambda loaded: loaded.model.match.specificity, reverse=True)
        found.sort(key=lambda loaded: _RANK[loaded.source])
        model = derived(device)
        for loaded in reversed(found):
            model = model.over(loaded.model.stated, loaded.origin)
        return replace(model, verdicts=verdicts.known(device))

    @cached_property
    def _of_devices(self) -> dict[DeviceInfo, list[LoadedEntry]]:
        """The entries for those that were asked for, in their order."""
        return {}

    @cached_property
    def _models(self) -> dict[DeviceInfo, DeviceModel]:
        """Those that were asked for."""
        return {}


_RANK: dict[Source, int] = {"call": 0, "user": 1, "shipped": 2}


PATH = "GEMMPORT_CONFIG_PATH"
"""The variable that names the user's folders; set to nothing, it leaves out `user_folder`, too."""


def user_folder() -> Path | None:
    """The folder for configurations of the user's own that are read by default, which need not be there; None where an empty
    GEMMPORT_CONFIG_PATH leaves it out.
    """
    return None if os.environ.get(PATH) == "" else user_config_folder("gemmport")


def load_configuration(extra: Sequence[str | Path] = ()) -> Configuration:
    """The configuration: `extra` files of this call, then the user's folders, then what gemmport ships.

    Of the user's folders, and of the files in them, those are read that nobody else may change (`gemmport.runtime.trust`). The
    others are warned of, once. Files of the call may stand anywhere.

    Raises:
        ConfigError: a file cannot be read or breaks a rule; the message names file, entry, value and rule.
    """
    found = sum((load_file(path) for path in extra), Loaded())
    refused: list[str] = []
    for folder in filter(None, os.environ.get(PATH, "").split(os.pathsep)):
        if not Path(folder).is_dir():
            raise ConfigError(f"{PATH} must name folders; got {folder}")
        found += sum(_found_in(Path(folder), refused), Loaded())
    own = user_folder()
    if own is not None and own.is_dir():
        found += sum(_found_in(own, refused), Loaded())
    found += _shipped()
    return Configuration(found.entries, tuple(refused), found.models, found.precisions)


def load_file(path: str | Path) -> Loaded:
    """The checked entries and models of one file, which the call names. What is doubtful in them is warned of, once.

    Raises:
        ConfigError: as `load_configuration`.
    """
    loaded, doubts = check_file(path)
    for doubt in doubts:
        _warn_once(doubt)
    return loaded


def check_file(path: str | Path) -> tuple[Loaded, list[str]]:
    """What is in one file, which the call names, and what is doubtful in it: no fault, but perhaps a mistake.

    Raises:
        ConfigError: as `load_configuration`.
    """
    from gemmport.planning import parser  # noqa: PLC0415  # see there
    from gemmport.runtime import userfile  # noqa: PLC0415  # see there

    loaded = parser.parse(userfile.read_text(path), str(path), "call")
    return loaded, [*parser.doubts(loaded)]


def _found_in(folder: Path, refused: list[str]) -> Iterator[Loaded]:
    """What is in each of the files in a folder of the user's; what is not trusted is added to `refused`."""
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
            loaded = parser.parse(userfile.text_of(content, path), str(path), "user")
            for doubt in parser.doubts(loaded):
                _warn_once(doubt)
            yield loaded


def _refuse(path: Path, error: Exception, refused: list[str]) -> None:
    if not isinstance(error, UntrustedError):
        raise ConfigError(f"{path}: cannot be read: {error}") from None
    refused.append(str(error))
    _warn_once(
        f"configuration: {error}. It is not read: a file of --config (config=) is, wherever it stands"
    )  # fmt: skip


@cache
def _warn_once(text: str) -> None:
    log.warning("%s", text)


_STORED = "configs"
"""The name in the cache of what gemmport ships."""

_FORM = "2"
"""Counts the forms in which it was stored there."""


@cache
def _shipped() -> Loaded:
    """The entries and models that gemmport ships. They are read once per machine, and from then on from the cache.

    The tests have checked them: here they are checked only where they cannot be read, to say why.
    """
    named = sorted((file.name, file) for file in files("gemmport.configs").iterdir() if file.name.endswith(".yaml"))
    texts = {f"configs/{name}": file.read_text("utf-8") for name, file in named}
    key = program_key(_FORM, *texts, *texts.values())
    stored = load_text(_STORED, key)
    if stored is not None:
        return sum((_read(file, data) for file, data in json.loads(stored)), Loaded())
    each = [_unchecked(file, text) for file, text in texts.items()]
    store_text(_STORED, key, json.dumps([(file, _data(loaded)) for file, loaded in zip(texts, each, strict=True)]))
    return sum(each, Loaded())


def _data(loaded: Loaded) -> dict[str, Any]:
    """Plain data for JSON; `_read` reads it back."""
    return {
        "entries": [one.entry.to_dict() for one in loaded.entries],
        "models": [one.model.to_dict() for one in loaded.models],
    }


def _read(file: str, data: Mapping[str, Any]) -> Loaded:
    entries = data.get("entries", ()) if "models" in data else data["entries"]
    return Loaded(
        tuple(LoadedEntry(Entry.of(entry), file, "shipped") for entry in entries),
        tuple(LoadedModel(Model.of(model), file, "shipped") for model in data.get("models", ())),
    )


def _unchecked(file: str, text: str) -> Loaded:
    import yaml  # noqa: PLC0415  # where nothing is stored yet

    try:
        return _read(file, yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader)))
    except (AttributeError, KeyError, TypeError, ValueError, yaml.YAMLError):
        from gemmport.planning import parser  # noqa: PLC0415

        return parser.parse(text, file, "shipped")
