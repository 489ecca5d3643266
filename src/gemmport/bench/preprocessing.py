"""The tokens of a source after macro expansion, by pcpp, which is Python and needs no compiler.

Sources are mostly one text behind different definitions. pcpp takes most of its time to read text and to copy tokens: here a
text is read once, and tokens are copied without `copy`'s detours.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from functools import lru_cache, partial
from typing import Any

from pcpp import Preprocessor

log = logging.getLogger(__name__)

Token = str


def tokens(source: str, macros: Mapping[str, str]) -> Iterator[Token]:
    """The tokens of a source after macro expansion; a directive that is left, such as a pragma, is one token."""
    preprocessor = _Expander()
    preprocessor.on_error = partial(log.info, "%s:%d: %s")
    preprocessor.on_directive_unknown = lambda *_: None
    for name, value in macros.items():
        preprocessor.define(f"{name} {value}")
    preprocessor.parse(source)
    directive: list[Token] | None = None
    at_start = True
    while (token := preprocessor.token()) is not None:
        kind, text = token.type, token.value
        if kind in preprocessor.t_WS:
            if "\n" in text:
                if directive is not None:
                    yield " ".join(directive)
                directive, at_start = None, True
            continue
        if at_start and text == "#":
            directive = []
        at_start = False
        if directive is None:
            yield text
        else:
            directive.append(text)
    if directive is not None:
        yield " ".join(directive)


class _Lexed:
    """A token that `copy.copy` copies as it would without `__copy__`, in a tenth of the time."""

    def __copy__(self) -> _Lexed:
        return _of(self.__dict__)


def _of(attributes: Mapping[str, Any]) -> _Lexed:
    token = _Lexed()
    token.__dict__.update(attributes)
    return token


class _Expander(Preprocessor):  # type: ignore[misc]  # pcpp has no types
    """Reads the definitions at the top of a source anew, and the text behind them once."""

    def group_lines(self, text: str, source: str | None) -> Iterator[list[_Lexed]]:
        """The tokens of each line, as pcpp's own method gives them."""
        lines = text.splitlines()
        first = next((number for number, line in enumerate(lines) if not line.startswith("#define")), len(lines))
        yield from _read("\n".join(lines[:first]), source, 0)
        yield from _read("\n".join(lines[first:]), source, first)


def _read(text: str, source: str | None, above: int) -> Iterator[list[_Lexed]]:
    """The tokens of the lines of a text that has so many lines above it."""
    for line in _lines(text, source):
        tokens = [_of(attributes) for attributes in line]
        for token in tokens:
            token.__dict__["lineno"] += above
        yield tokens


@lru_cache(maxsize=64)
def _lines(text: str, source: str | None) -> list[list[dict[str, Any]]]:
    """The attributes of the tokens of each line."""
    return [[token.__dict__ for token in line] for line in Preprocessor().group_lines(text, source)]
