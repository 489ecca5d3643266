"""Standard output and error as they are: of any encoding, or closed. What is written there holds no control characters that a
file, a path or a driver brought.
"""

from __future__ import annotations

import codecs
import io
import logging
import os
import re
import sys
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from textwrap import TextWrapper
from typing import Any

import click
from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderHook
from rich.segment import Segment

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")  # all but tab and line feed

_IN_ASCII = {
    "✓": "+", "✗": "x", "–": "-", "—": "-", "−": "-", "×": "x", "·": "*", "µ": "u", "±": "+-", "→": "->", "≤": "<=", "≥": ">=",
    "←": "<-", "█": "#",
}  # fmt: skip

UNLIMITED = 1_000_000
"""Columns of what is laid out already, which rich shall not do again."""

_DEGRADED = "gemmport-degraded"
_ASCII = "gemmport-ascii"


def prepare() -> None:
    """Makes both streams take every text, and be there.

    What an encoding lacks is written in letters that it has. What is written to a closed one goes nowhere, and no file is
    opened in its place, to which a runtime would write.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest number, which is this one
    codecs.register_error(_DEGRADED, _degraded)
    codecs.register(_ascii)
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 - until the process ends
        elif isinstance(stream, io.TextIOWrapper):
            plain = codecs.lookup(stream.encoding).name == "ascii"
            stream.reconfigure(encoding=_ASCII if plain else None, errors=_DEGRADED)


def _degraded(error: UnicodeError) -> tuple[str, int]:
    """What stands for characters that an encoding lacks, and where to go on."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lacking = error.object[error.start : error.end]
    return "".join(_IN_ASCII.get(c) or _letters(c) or "?" for c in lacking), error.end


def _letters(character: str) -> str:
    """A character without what is above, below or around it; empty where nothing of ASCII is left."""
    return unicodedata.normalize("NFKD", character).encode("ascii", "ignore").decode()


def _ascii(name: str) -> codecs.CodecInfo | None:
    """ASCII by another name: Click writes UTF-8 to a stream that says it is ASCII."""
    if name.replace("_", "-") != _ASCII:
        return None
    found = codecs.lookup("ascii")
    return codecs.CodecInfo(
        found.encode, found.decode, found.streamreader, found.streamwriter,
        found.incrementalencoder, found.incrementaldecoder, name=_ASCII,
    )  # fmt: skip


def shown(text: str) -> str:
    """A text with its control characters written as Python writes them, but tabs and line feeds."""
    return _CONTROL.sub(lambda found: f"\\x{ord(found.group()):02x}", text)


def echo(text: str, *, err: bool = False) -> None:
    """Writes a line that may hold anything."""
    click.echo(shown(text), err=err)


def tell(text: str) -> None:
    """Writes prose to standard error: on a terminal in lines that end between words."""
    on = console(stderr=True)
    print_lines(on, text, on.width if sys.stderr.isatty() else None)


def console(**options: Any) -> Console:
    """A console of rich's; what it prints may hold anything."""
    made = Console(**options)
    made.push_render_hook(_ShowsControls())
    return made


def page(*, to_terminal: bool) -> Console:
    """A console for text that is laid out already, for standard output; or for a file, which has no colours."""
    if to_terminal:
        return console(width=UNLIMITED)
    return console(width=UNLIMITED, file=io.StringIO(), force_terminal=False)


def terminal_width() -> int | None:
    """Columns of the terminal that standard output is, or what COLUMNS says of it; None where it is something else.

    Nothing is assumed of a pipe, whatever COLUMNS says, and where FORCE_COLOR asks for the colours of a terminal.
    """
    return Console().width if sys.stdout.isatty() else None


def print_lines(on: Console, text: str, width: int | None, *, indent: int = 0, style: str | None = None) -> None:
    """Prints a text of which lines end between words in that width, and go on behind blanks; as it is where there is no width.

    Words are not broken: paths and commands are copied from there.
    """
    lines = shown(text).split("\n")
    if width is not None:
        wrapping = TextWrapper(
            width, subsequent_indent=" " * min(indent, width // 2), replace_whitespace=False, break_long_words=False,
            break_on_hyphens=False,
        )  # fmt: skip
        lines = [part for line in lines for part in wrapping.wrap(line) or [""]]
    for line in lines:
        on.print(line, highlight=False, markup=False, emoji=False, soft_wrap=True, style=style)


class Prose:
    """Prints lines of prose on standard output: on a terminal they end between words and go on behind blanks."""

    def __init__(self, indent: int = 0) -> None:
        self._console = console()
        self._indent = indent
        self._width = terminal_width()

    def __call__(self, text: str, style: str | None = None) -> None:
        print_lines(self._console, text, self._width, indent=self._indent, style=style)


class _ShowsControls(RenderHook):
    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        return [_Shown(each) for each in renderables]


@dataclass(frozen=True)
class _Shown:
    """Something of which the text is shown, and the colours are rich's."""

    inside: ConsoleRenderable

    def __rich_console__(self, on: Console, options: ConsoleOptions) -> Iterator[Segment]:
        for segment in on.render(self.inside, options):
            yield segment if segment.control else Segment(shown(segment.text), segment.style)


class Formatter(logging.Formatter):
    """Of lines of a log that may hold anything."""

    def format(self, record: logging.LogRecord) -> str:
        return shown(super().format(record))
