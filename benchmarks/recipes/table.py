"""What recipes share: files of results, cells and tables."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import geometric_mean
from typing import Any

ROOT = Path(__file__).resolve().parents[2]

FOLDER = Path("benchmarks") / "results"

Result = Mapping[str, Any]

BACKENDS = {"cuda": "CUDA", "opencl": "OpenCL"}

CPUS = {"intel": "Intel", "pocl31": "PoCL 3.1", "pocl30": "PoCL 3.0"}
"""Folder of the CPU runtimes' results → what pages call them."""

TYPES = ("float32", "float64")

EMPTY = ""


@dataclass(frozen=True)
class Table:
    """A table of a page.

    Attributes:
        head: of each column; a column whose head ends in `>` is flush right.
        rows: with a cell for each column.
    """

    head: Sequence[str]
    rows: Sequence[Sequence[str]]

    def markdown(self) -> str:
        """The table as it stands in a page, a line each.

        Raises:
            ValueError: a row has another number of cells than the head.
        """
        names = [name.removesuffix(">") for name in self.head]
        rules = "|".join("--:" if name.endswith(">") else "---" for name in self.head)
        for row in self.rows:
            if len(row) != len(names):
                raise ValueError(f"a row must have {len(names)} cells; got {len(row)}: {row}")
        return "".join([line(names), f"|{rules}|\n", *map(line, self.rows)])


def line(cells: Iterable[str]) -> str:
    """A line of a table."""
    return f"| {' | '.join(cells)} |\n"


@dataclass
class Files:
    """The files of results below a folder, and which of them were read."""

    root: Path = ROOT
    used: set[str] = field(default_factory=set)

    def document(self, name: str) -> dict[str, Any]:
        """A file of JSON, by its name below benchmarks/results."""
        self.used.add((FOLDER / name).as_posix())
        return dict(json.loads(self.path(name).read_text(encoding="utf-8")))

    def results(self, *names: str) -> list[dict[str, Any]]:
        """The results of files, one behind the other."""
        return [result for name in names for result in self.document(name)["results"]]

    def names(self, pattern: str) -> list[str]:
        """The files of a pattern, by their names."""
        folder = self.root / FOLDER
        return sorted(path.relative_to(folder).as_posix() for path in folder.glob(pattern))

    def path(self, name: str) -> Path:
        """Where a file lies."""
        self.used.add((FOLDER / name).as_posix())
        return self.root / FOLDER / name


Recipe = Callable[[Files], Table]


def one(results: Iterable[Result], **wanted: object) -> Result:
    """The one result that has these values.

    Raises:
        LookupError: none has, or more than one.
    """
    found = some(results, **wanted)
    if len(found) != 1:
        raise LookupError(f"one result must have {wanted}; {len(found)} have")
    return found[0]


def some(results: Iterable[Result], **wanted: object) -> list[Result]:
    """The results that have these values, in order."""
    return [result for result in results if all(result[name] == value for name, value in wanted.items())]


def whole(number: float) -> str:
    """A number without its fraction, with commas."""
    return f"{number:,.0f}"


def hundredths(number: float) -> str:
    """A number with two digits behind the point."""
    return f"{number:.2f}"


def significant(number: float, digits: int = 3) -> str:
    """A number with so many digits that count."""
    return f"{float(f'{number:.{digits}g}'):g}"


def mean(ratios: Iterable[float]) -> float:
    """The geometric mean."""
    return geometric_mean(ratios)


def times(*extents: int) -> str:
    """Extents of a product or of a tile."""
    return " × ".join(f"{extent}" for extent in extents)


def ratio(result: Result, baseline: str) -> float:
    """How many times as fast as the baseline."""
    return float(result["baselines"][baseline]["ratio"])
