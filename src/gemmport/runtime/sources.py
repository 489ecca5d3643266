"""The text that is compiled: definitions, the language's prelude, the kernel."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from gemmport.core.plan import KernelSource

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

PRELUDE = "prelude"


def languages() -> tuple[str, ...]:
    """The languages that gemmport's own kernels are written in, which are named like the backends that run them."""
    folders = (folder for folder in _shipped().iterdir() if folder.is_dir())
    return tuple(sorted(f.name for f in folders if any(file.name.startswith(f"{PRELUDE}.") for file in f.iterdir())))


def has_source(kernel: KernelSource, language: str) -> bool:
    """Whether a kernel has a source in a language."""
    return _has(kernel.folder, language, kernel.stem)


@cache
def _has(folder: str, language: str, stem: str) -> bool:
    root: Traversable = Path(folder) if folder else _shipped()
    return _file(root / language, stem) is not None


def assemble(kernel: KernelSource, language: str) -> str:
    """The specialized source of a kernel in a language (the name of a folder in kernels/), ready for its compiler.

    Raises:
        FileNotFoundError: the kernel has no source in this language.
    """
    root: Traversable = Path(kernel.folder) if kernel.folder else _shipped()
    definitions = "".join(f"#define {name} {value}\n" for name, value in kernel.defines)
    return f"{definitions}\n{_read(_shipped() / language, PRELUDE)}\n{_read(root / language, kernel.stem)}"


@cache
def _shipped() -> Traversable:
    """The folder of gemmport's own kernels."""
    return files("gemmport.kernels")


def _read(folder: Traversable, stem: str) -> str:
    file = _file(folder, stem)
    if file is None:
        raise FileNotFoundError(f"no source {stem}.* in {folder}")
    return file.read_text(encoding="utf-8")


def _file(folder: Traversable, stem: str) -> Traversable | None:
    files = folder.iterdir() if folder.is_dir() else ()
    return next((file for file in files if file.name.rpartition(".")[0] == stem), None)


def numbered_excerpt(source: str, log: str, *, around: int = 2) -> str:
    """The lines of a source that a compiler's log speaks of, numbered, each with a few around it.

    Line numbers are looked for as compilers write them: `name:12:5: error`, `name(12): error`.
    """
    lines = source.splitlines()
    spoken = {int(a or b) for a, b in re.findall(r":(\d+):\d+|\((\d+)\)\s*:", log)}
    wanted = {n for line in spoken for n in range(line - around, line + around + 1) if 1 <= n <= len(lines)}
    text: list[str] = []
    for number in sorted(wanted):
        if text and number - 1 not in wanted:
            text.append("     ⋮")
        text.append(f"{'>' if number in spoken else ' '}{number:5d} | {lines[number - 1]}")
    return "\n".join(text)
