"""What Python code says, as a short text that differs where the code does: comments, docstrings, imports, layout and the names
of files do not count. All versions of Python tell the same of code that all of them read.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path

from gemmport.runtime.cache import program_key

LENGTH = 16
"""Of a fingerprint, in hexadecimal digits."""


def of_texts(*texts: str) -> str:
    """A fingerprint that differs where any of the texts does, or their order."""
    return program_key(*texts)[:LENGTH]


def of_code(files: Iterable[Path]) -> str:
    """A fingerprint of modules, in whichever order; those in C are taken as they are.

    Raises:
        OSError: a file cannot be read. SyntaxError: it is not Python.
    """
    texts = ((file.suffix, file.read_text(encoding="utf-8")) for file in files)
    return of_texts(*sorted(_said(text) if suffix == ".py" else text for suffix, text in texts))


@lru_cache(maxsize=256)
def _said(text: str) -> str:
    """A digest of a module."""
    digest = hashlib.sha256()
    for piece in _pieces(ast.parse(text)):
        digest.update(piece.encode() + b"\0")
    return digest.hexdigest()


def _pieces(node: object) -> Iterator[str]:
    """A tree in order. What is empty is left out: versions of Python differ in how they say that there is nothing."""
    if isinstance(node, ast.AST):
        yield f"({type(node).__name__}"
        for name, value in ast.iter_fields(node):
            if name not in ("ctx", "kind", "type_comment") and value is not None and value != []:
                yield f".{name}"
                yield from _pieces(_without_docstring(value) if name == "body" else value)
        yield ")"
    elif isinstance(node, list):
        for item in node:
            if not isinstance(item, ast.Import | ast.ImportFrom):
                yield from _pieces(item)
    else:
        yield repr(node)


def _without_docstring(body: object) -> object:
    """The statements of a body without texts: docstrings, also those of attributes."""
    if not isinstance(body, list):
        return body  # of a lambda
    return [
        statement
        for statement in body
        if not (
            isinstance(statement, ast.Expr)
            and isinstance(statement.value, ast.Constant)
            and isinstance(statement.value.value, str)
        )
    ]
