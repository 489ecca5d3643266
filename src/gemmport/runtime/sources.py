"""The text that is compiled: definitions, and the kernel's source with the parts of the prelude that it includes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from gemmport.core.errors import CompileError
from gemmport.core.plan import KernelSource

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

PRELUDE = "prelude"
"""The folder, beside the kernels of a language, of the parts that they include."""

# The end of the line before, and the line: found ten times as fast as by `^`.
_INCLUDE = re.compile(r'\n[ \t]*#[ \t]*include[ \t]+"([^"\n]*)"[^\n]*')


def languages() -> tuple[str, ...]:
    """The languages that gemmport's own kernels are written in, which are named like the backends that run them."""
    return tuple(sorted(folder.name for folder in _shipped().iterdir() if (folder / PRELUDE).is_dir()))


def has_source(kernel: KernelSource, language: str) -> bool:
    """Whether a kernel has a source in a language."""
    return _has(kernel.folder, language, kernel.stem)


@cache
def _has(folder: str, language: str, stem: str) -> bool:
    root: Traversable = Path(folder) if folder else _shipped()
    return _file(root / language, stem) is not None


def assemble(kernel: KernelSource, language: str, overrides: Path | str = "") -> str:
    """The specialized source of a kernel in a language (the name of a folder in kernels/), ready for its compiler.

    A line such as `#include "types.cl"` stands for the part of that name, the first time it is asked for, and for nothing
    from then on. Parts include others likewise. A kernel's own parts stand in the folder `prelude` beside it; gemmport's are
    behind them.

    Args:
        overrides: a folder of parts that stand in for all others of the same names; empty: there is none.

    Raises:
        CompileError: there is no part of a name that is included.
        FileNotFoundError: the kernel has no source in this language, or there is no folder `overrides`.
    """
    if overrides and not Path(overrides).is_dir():
        raise FileNotFoundError(
            f"overrides must be a folder of parts; got {overrides}; name a folder, or leave it empty"
        )
    root: Traversable = Path(kernel.folder) if kernel.folder else _shipped()
    places = [root / language / PRELUDE, *([_shipped() / language / PRELUDE] if kernel.folder else [])]
    if overrides:
        places.insert(0, Path(overrides))
    definitions = "".join(f"#define {name} {value}\n" for name, value in kernel.defines)
    return f"{definitions}\n{_with_parts(_read(root / language, kernel.stem), places, set())}"


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


def _with_parts(text: str, places: Sequence[Traversable], included: set[str]) -> str:
    """A source with the parts that it includes.

    Args:
        included: names of the parts that are there already; those that come are added.
    """

    def part(line: re.Match[str]) -> str:
        name = line[1]
        if name in included:
            return ""
        included.add(name)
        return f"\n{_with_parts(_read_part(name, places), places, included)}".removesuffix("\n")

    return _INCLUDE.sub(part, f"\n{text}").removeprefix("\n")


def _read_part(name: str, places: Sequence[Traversable]) -> str:
    """The part of that name, out of the first folder that has it."""
    for place in places:
        with suppress(FileNotFoundError):
            return (place / name).read_text(encoding="utf-8")
    raise CompileError(
        f'#include "{name}" must name a part; there is none in {" or ".join(map(str, places))}: correct the name, or put one '
        "there"
    )


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
