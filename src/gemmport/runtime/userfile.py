"""Files that people write, read within bounds: size, depth, what aliases stand for, the length of what is told of a fault.

Whatever stands in such a file, `ConfigError` alone is raised. Control characters are refused, so that what a file says may be
shown on a terminal.
"""

from __future__ import annotations

import re
import reprlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import yaml

from gemmport.core.errors import ConfigError

MOST_BYTES = 4 * 2**20
"""Of a file. The shipped configurations have some thousands."""

MOST_CHARACTERS = 2000
"""Of a text or a number. What is not decimal has then fewer than the 4300 decimal digits that Python writes at most."""

MOST_DEPTH = 32
"""Of nested lists and mappings; libyaml's composer takes the stack of C for each. A configuration has 5."""

_TOO_DEEP = f"lists and mappings must nest at most {MOST_DEPTH} deep; write it flatter"

MOST_NODES = 2**18
"""Texts, lists and mappings, each alias counted as all that it stands for."""

MOST_FAULTS = 20
"""That are told of a file."""

MOST_TOLD = 500
"""Characters of each."""

_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")  # all but tab, line feed and carriage return


@dataclass(frozen=True)
class Document:
    """What stands in a YAML file.

    Attributes:
        data: as Python's own values. node: the same with its places in the file; None where it is empty.
    """

    data: Any
    node: yaml.Node | None


def read_text(path: str | Path) -> str:
    """The text of a file in UTF-8, with or without a byte order mark.

    Raises:
        ConfigError: it cannot be read, or is larger than `MOST_BYTES`.
    """
    try:
        with open(path, "rb") as file:
            content = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or error}") from None
    except ValueError as error:  # a path with a null character
        raise ConfigError(f"{path}: cannot be read: {error}") from None
    return text_of(content, path)


def text_of(content: bytes, path: str | Path) -> str:
    """The text of a file that was read, in UTF-8, with or without a byte order mark.

    Raises:
        ConfigError: it is not UTF-8, or larger than `MOST_BYTES`.
    """
    if len(content) > MOST_BYTES:
        raise ConfigError(f"{path}: cannot be read: it must have at most {MOST_BYTES:,} bytes; split it")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        reason = f"{error.reason} at byte {error.start + 1}"
        raise ConfigError(f"{path}: cannot be read: it must be a text in UTF-8; got {reason}") from None


def check_text(text: str) -> None:
    """Raises ConfigError where a text is longer than `MOST_CHARACTERS`, or has control characters other than blanks."""
    if len(text) > MOST_CHARACTERS:
        told = f"{brief(text)} has {len(text):,}"
        raise ConfigError(f"a text must have at most {MOST_CHARACTERS:,} characters; {told}: shorten it")
    if found := _CONTROL.search(text):
        raise ConfigError(f"texts must have no control characters; got {found.group()!r}: remove it")


def load_yaml(text: str) -> Document:
    """The one document of a YAML text.

    Raises:
        ConfigError: it is not YAML, a key stands twice in a mapping, or it is beyond a bound of this module.
    """
    try:
        _check_bounds(text)
        loader = _UniqueKeys(text)
        try:
            node = loader.get_single_node()
            return Document(None if node is None else loader.construct_document(node), node)
        finally:
            loader.dispose()
    except ConfigError:
        raise
    except yaml.YAMLError as error:
        raise ConfigError(f"this is not YAML: {_cut(_told(error))}") from None
    except (ValueError, ArithmeticError) as error:  # a date that no calendar has, a number that Python does not take
        raise ConfigError(f"this is not YAML: {_cut(str(error))}") from None


def _told(error: yaml.YAMLError) -> str:
    """Where the fault is and what it is, in one line."""
    if not isinstance(error, yaml.MarkedYAMLError) or error.problem is None:
        return " ".join(str(error).replace('in "<unicode string>", ', "at ").split())
    mark, around = error.problem_mark, error.context_mark
    place = "" if mark is None else f"line {mark.line + 1}, column {mark.column + 1}: "
    within = f" {error.context}" if error.context else ""
    since = f", which begins in line {around.line + 1}" if within and around is not None else ""
    return f"{place}{error.problem}{within}{since}"


def brief(value: object) -> str:
    """A value in few words, for a message."""
    try:
        return _brief.repr(value)
    except ValueError:  # Python writes no number of so many digits
        return "a number of too many digits"


_brief = reprlib.Repr()
_brief.maxstring = _brief.maxother = _brief.maxlong = 100


def listed(faults: Iterable[str]) -> str:
    """Faults, one a line: the first `MOST_FAULTS`, each cut to `MOST_TOLD` characters, and whether there are more."""
    told = [_cut(fault) for fault in islice(faults, MOST_FAULTS + 1)]
    return "\n".join([*told[:MOST_FAULTS], *(["…, and more faults"] if len(told) > MOST_FAULTS else [])])


def _cut(text: str) -> str:
    return text if len(text) <= MOST_TOLD else text[:MOST_TOLD] + "…"


class _UniqueKeys(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]  # libyaml's is ten times as fast
    """YAML demands that a mapping's keys are unique; PyYAML keeps the last one without a word."""

    def get_single_node(self) -> yaml.Node | None:
        root: yaml.Node | None = super().get_single_node()
        waiting, seen = [root], {id(root)}
        while waiting:
            node = waiting.pop()
            if isinstance(node, yaml.MappingNode):
                _check_unique(node)
            found = node.value if isinstance(node, yaml.CollectionNode) else ()
            inside = [child for item in found for child in (item if isinstance(item, tuple) else (item,))]
            waiting += [child for child in inside if id(child) not in seen]
            seen.update(map(id, inside))
        return root


def _check_unique(node: yaml.MappingNode) -> None:
    seen: set[str] = set()
    for key, _ in node.value:
        if isinstance(key, yaml.ScalarNode):
            if key.value in seen:
                raise yaml.MarkedYAMLError(problem=f"key {brief(key.value)} stands twice", problem_mark=key.start_mark)
            seen.add(key.value)


@dataclass
class _Open:
    """A list or mapping that has begun, and how many nodes it has so far."""

    anchor: str | None
    nodes: int = 0


@dataclass
class _Bounds:
    """What is open, the file first, and how many nodes each anchor stands for. What is told of may be beyond a bound."""

    open: list[_Open] = field(default_factory=lambda: [_Open(None)])
    anchored: dict[str, int] = field(default_factory=dict)

    def tell(self, event: yaml.Event) -> None:
        """Tells the next event.

        Raises:
            ConfigError: it is beyond a bound.
        """
        if isinstance(event, yaml.CollectionEndEvent):
            closed = self.open.pop()
            if closed.anchor is not None:
                self.anchored[closed.anchor] = closed.nodes
        elif isinstance(event, yaml.AliasEvent):
            if any(each.anchor == event.anchor for each in self.open):
                raise ConfigError(f"alias {brief(event.anchor)} must not stand within what it stands for")
            self._add(self.anchored.get(str(event.anchor), 1))
        elif isinstance(event, yaml.ScalarEvent | yaml.CollectionStartEvent):
            if event.tag is not None:
                raise ConfigError(f"values must have no tag, such as !!str; got {brief(event.tag)}: remove it")
            self._add(1)
            if isinstance(event, yaml.ScalarEvent):
                check_text(event.value)
                if event.anchor is not None:
                    self.anchored[event.anchor] = 1
            else:
                self.open.append(_Open(event.anchor, 1))
                if len(self.open) - 1 > MOST_DEPTH:
                    raise ConfigError(_TOO_DEEP)

    def _add(self, nodes: int) -> None:
        for each in self.open:
            each.nodes += nodes
        if self.open[0].nodes > MOST_NODES:
            raise ConfigError(f"must have at most {MOST_NODES:,} values, aliases written out; split the file")


def _check_bounds(text: str) -> None:
    """Reads a text event by event, of which nothing grows with depth or aliases.

    Raises:
        ConfigError: it is beyond a bound; with the line. yaml.YAMLError: it is not YAML.
    """
    bounds = _Bounds()
    try:
        for event in yaml.parse(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
            try:
                bounds.tell(event)
            except ConfigError as error:
                raise ConfigError(_at_line(event.start_mark.line if event.start_mark else 0, str(error))) from None
    except yaml.MarkedYAMLError as error:
        # PyYAML 6.0.4's scanner has a bound of its own, 1000, and reads ahead of the events.
        if "maximum nesting depth" not in (error.problem or ""):
            raise
        raise ConfigError(_at_line(error.problem_mark.line if error.problem_mark else 0, _TOO_DEEP)) from None


def _at_line(line: int, fault: str) -> str:
    """A fault with its line, counted from 0."""
    return f"line {line + 1}: {fault}"
