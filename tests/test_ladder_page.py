"""docs/ladder.md tells every step of the three ladders, quotes their sources as they are, and figures that are in a file."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from gemmport import kernels

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "ladder.md").read_text(encoding="utf-8")
RESULTS = ROOT / "benchmarks" / "results"
PASSES = {"The transpose ladder": "transpose", "The reduction ladder": "reduce"}


def sections() -> dict[str, str]:
    """Title → text; of a step, its kernel's name → text."""
    parts = re.split(r"^## (.*)\n", PAGE, flags=re.MULTILINE)[1:]
    return {re.sub(r"`(\w+)`.*", r"\1", title): text for title, text in zip(parts[::2], parts[1::2], strict=True)}


def squeezed(text: str) -> str:
    return re.sub(r"\s+", " ", text)


def test_every_step_has_its_section_in_order() -> None:
    names = [variant.name for variant in kernels.variants()]
    assert [title for title in sections() if title in names] == names
    for title, ladder in PASSES.items():
        for rung in kernels.ladders()[ladder]:
            assert f"| `{rung.name}` |" in sections()[title]


@pytest.mark.parametrize("title", [*(variant.name for variant in kernels.variants()), *PASSES])
def test_a_section_shows_a_drawing_and_the_source_as_it_is(title: str) -> None:
    text = sections()[title]
    source = squeezed((ROOT / "kernels" / "opencl" / f"{PASSES.get(title, title)}.cl").read_text(encoding="utf-8"))
    source = re.sub(r" ?#pragma unroll\b( 1)?", "", source)
    quoted = re.findall(r"^```c\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    assert quoted
    assert re.search(r"^    .*[│─■▒►]", text, flags=re.MULTILINE)
    for block in quoted:
        assert squeezed(block).strip() in source


TABLES = {
    "ladder-h200-gemm-4096-float32.json": ("cuda", 1),
    "ladder-intel-gemm-512-float32.json": ("opencl", 1),
    "ladder-pocl31-gemm-512-float32.json": ("opencl", 6),
}
"""File → backend and column of its figures in the first table of the page whose heading names it."""


@pytest.mark.parametrize("file", TABLES)
def test_figures_are_those_of_the_files(file: str) -> None:
    backend, column = TABLES[file]
    results = json.loads((RESULTS / file).read_text(encoding="utf-8"))["results"]
    heading = "| step | CUDA" if "h200" in file else "| step | Intel"
    table = PAGE[PAGE.index(heading) :].split("\n\n")[0]
    rows = {cells[1].strip(" `"): cells for cells in (line.split("|") for line in table.splitlines()[2:])}
    for result in results:
        if result["backend"] != backend:
            continue
        told = rows[result["step"]][column + 1].strip()
        assert result["verified"] or result["status"] == "unsupported"
        if result["status"] == "unsupported":
            assert told == "unsupported"
        else:
            digits = len(told.partition(".")[2])
            assert told.replace(",", "") == f"{result['gflops']:.{digits}f}"
