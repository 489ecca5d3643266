"""Rebuilds every table and plot of README.md and docs/ that is made of files of results.

python benchmarks/tables.py            # writes them
python benchmarks/tables.py --check    # exit 1, and what differs, where a page is not what this would write

A table of figures stands behind a comment with the name of its recipe (benchmarks/recipes/):

    <!-- table: squares in float32 -->

The comment about the figures (benchmarks/figures.py), above it, must name every file that the recipe reads.
"""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import click
import plot
import ratios
from figures import ROOT, Section, pages, sections
from recipes import RECIPES
from recipes.calls import calls_of
from recipes.table import CPUS, FOLDER, Files, Recipe

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_TABLE = re.compile(r"^<!-- table: (?P<name>.*?) -->\n\n?(?P<table>(?:\|.*\n)*)", re.MULTILINE)


def _over_size(root: Path) -> Figure:
    names = (f"{x}/run/{kind}-{dtype}.json" for dtype in ("float32", "float64") for x in CPUS
             for kind in ("squares", "large-squares"))  # fmt: skip
    return plot.figure_of(plot.panels(tuple(root / FOLDER / name for name in names)))


def _first_page(root: Path) -> Figure:
    files = Files(root)
    kernels = files.results("h200/run/squares-float32.json")
    return ratios.figure_of(ratios.ratios([kernels, *(calls_of(files, f"{x}/calls/float32.json") for x in CPUS)]))


PLOTS: Mapping[str, Callable[[Path], Figure]] = {"docs/cpu.svg": _over_size, "docs/ratios.svg": _first_page}
"""Picture → how it is drawn."""


def rebuilt(text: str, files: Files, recipes: Mapping[str, Recipe] = RECIPES) -> str:
    """A page with its tables made anew; as they are where there is no such recipe."""

    def made(found: re.Match[str]) -> str:
        if found["name"] not in recipes:
            return found[0]
        end = "" if found["table"] else "\n"  # of a table that was not there yet: what follows stays apart
        return f"<!-- table: {found['name']} -->\n\n{recipes[found['name']](files).markdown()}{end}"

    return _TABLE.sub(made, text)


def faults(page: Path, root: Path = ROOT, recipes: Mapping[str, Recipe] = RECIPES) -> Iterator[str]:
    """What is wrong with the tables of a page, one line each."""
    text, name = page.read_text("utf-8"), page.relative_to(root)
    files = Files(root)
    new = rebuilt(text, files, recipes)
    yield from difflib.unified_diff(text.splitlines(), new.splitlines(), str(name), "its files", lineterm="", n=0)
    for section in sections(text):
        yield from (f"{name}:{fault}" for fault in _of_section(section, root, text.splitlines(), recipes))


def _of_section(section: Section, root: Path, lines: list[str], recipes: Mapping[str, Recipe]) -> Iterator[str]:
    for number in section.tables:
        marker = max((x for x in section.markers if x.line < number), key=lambda x: x.line, default=None)
        if marker is None or marker.none:
            continue
        above = "\n".join(lines[marker.line - 1 : number - 1])
        found = re.search(r"<!-- table: (.*?) -->\s*$", above)
        if found and found[1] not in recipes:
            yield f"{number}: the comment must name a recipe; got {found[1]!r}; write one of {', '.join(sorted(recipes))}"
        elif found:
            files = Files(root)
            recipes[found[1]](files)
            for file in sorted(files.used):
                if not any(PurePosixPath(file).match(pattern) for pattern in marker.files):
                    yield f"{marker.line}: the comment must name {file}, of which the table is made; it does not"
        else:
            yield f"{number}: a table of figures must have a recipe; got none; write <!-- table: NAME --> above it"


def points(svg: str) -> list[str]:
    """What the lines of a picture go through: versions of matplotlib differ in the rest."""
    return re.findall(r'<path d="(M [^"]*)" clip-path', svg)


def stale_plots(root: Path = ROOT) -> Iterator[str]:
    """The pictures that are not those of their files."""
    with TemporaryDirectory() as folder:
        for name, drawn in PLOTS.items():
            output = Path(folder) / "plot.svg"
            plot.save(drawn(root), output)
            if points(output.read_text("utf-8")) != points((root / name).read_text("utf-8")):
                yield name


@click.command()
@click.option("--check", is_flag=True, help="Write nothing: tell what differs.")
def main(*, check: bool) -> None:
    """Rebuilds tables and plots from files of results."""
    if check:
        found = [fault for page in pages() for fault in faults(page)]
        found += [f"{picture} is not what its files say" for picture in stale_plots()]
        click.echo("".join(f"{line}\n" for line in found), nl=False)
        sys.exit(1 if found else 0)
    for page in pages():
        page.write_text(rebuilt(page.read_text("utf-8"), Files()), encoding="utf-8")
    for picture in list(stale_plots()):
        plot.save(PLOTS[picture](ROOT), ROOT / picture)


if __name__ == "__main__":
    main()
