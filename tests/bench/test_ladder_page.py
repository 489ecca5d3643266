"""docs/ladder.md tells every step of the three ladders, quotes their sources as they are, and figures that are in a file."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from gemmport import kernels

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "ladder.md").read_text(encoding="utf-8")
RESULTS = ROOT / "benchmarks" / "results"
Column: TypeAlias = "dict[str, str | float]"
"""Step → what the files say of it."""

BEYOND = ("simt", "gemv")
"""Kernels beyond the ladder that have a section."""

PASSES = {"The transpose ladder": "transpose", "The reduction ladder": "reduce"}


def sections() -> dict[str, str]:
    """Title → text; of a step, its kernel's name → text."""
    parts = re.split(r"^## (.*)\n", PAGE, flags=re.MULTILINE)[1:]
    return {re.sub(r"`(\w+)`.*", r"\1", title): text for title, text in zip(parts[::2], parts[1::2], strict=True)}


def squeezed(text: str) -> str:
    return re.sub(r"\s+", " ", text)


def test_every_step_has_its_section_in_order() -> None:
    names = [variant.name for variant in kernels.ladder()]
    assert [title for title in sections() if title in names] == names
    for title, ladder in PASSES.items():
        for rung in kernels.ladders()[ladder]:
            assert f"| `{rung.name}` |" in sections()[title]


@pytest.mark.parametrize("title", [*(variant.name for variant in kernels.ladder()), *BEYOND, *PASSES])
def test_a_section_shows_a_drawing_and_the_source_as_it_is(title: str) -> None:
    text = sections()[title]
    source = squeezed((ROOT / "kernels" / "opencl" / f"{PASSES.get(title, title)}.cl").read_text(encoding="utf-8"))
    source = re.sub(r" ?#pragma unroll\b( 1)?", "", source)
    quoted = re.findall(r"^```c\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    assert quoted
    assert re.search(r"^    .*[│─■▒►]", text, flags=re.MULTILINE)
    for block in quoted:
        assert squeezed(block).strip() in source


def rates(file: str, backend: str, measure: str, *baselines: str) -> list[Column]:
    """A column of a ladder's rates and one of each ratio to a baseline, or of the percentage of the copy."""

    def shown(result: dict[str, Any], baseline: str | None) -> str | float:
        if result["status"] == "unsupported":
            return "" if baseline else "unsupported"
        assert result["verified"]
        if baseline == "copy":
            return float(result["copy_percent"])
        return float(result["baselines"][baseline]["ratio"] if baseline else result[measure])

    results = [result for result in read(file)["results"] if result["backend"] == backend]
    return [{result["step"]: shown(result, baseline) for result in results} for baseline in (None, *baselines)]


def counters(key: str) -> Column:
    """Of the product, which is the last launch of its kernel."""
    return {launch["kernel"]: launch["figures"][key] for launch in read("h200/profile/4096.json")["launches"]}


def fma_shares() -> Column:
    launches = read("h200/profile/4096.json")["launches"]
    return {own["kernel"]: 100 * own["figures"]["fma"] / 32 / own["figures"]["instructions"] for own in launches}


def multiply_adds_per_load() -> Column:
    codes = {own["kernel"]: own["code"][-1] for own in read("sm_90/inspect/4096.json")["inspections"]}
    assert {code["language"] for code in codes.values()} == {"SASS"}
    return {kernel: code["loop"]["multiply_adds_per_load"] for kernel, code in codes.items()}


def read(file: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((RESULTS / file).read_text(encoding="utf-8"))
    return document


def columns_of(heading: str) -> list[Column]:
    """What the files say of the columns of the table under a heading, from the second one on."""
    if heading.startswith("| step | CUDA, GFLOPS"):
        single, double = (f"h200/ladder/gemm-4096-{dtype}.json" for dtype in ("float32", "float64"))
        return [
            *rates(single, "cuda", "gflops", "cublas"),
            *rates(single, "opencl", "gflops", "clblast", "clblas"),
            *rates(double, "cuda", "gflops", "cublas"),
            *rates(double, "opencl", "gflops", "clblast"),
        ]
    if heading.startswith("| step | registers"):
        figures = [counters(key) for key in ("registers", "occupancy", "issue_active", "shared")]
        return [*figures[:3], fma_shares(), figures[3], multiply_adds_per_load()]
    if heading.startswith("| step | Intel"):
        return [
            column
            for device in ("intel", "pocl31")
            for dtype, baselines in (("float32", ("numpy", "clblast")), ("float64", ("numpy",)))
            for column in rates(f"{device}/ladder/gemm-512-{dtype}.json", "opencl", "gflops", *baselines)
        ]
    on_gpu, on_cpu = heading.split()
    return [
        column
        for file, backend in (
            (f"h200/ladder/{on_gpu}.json", "cuda"),
            (f"h200/ladder/{on_gpu}.json", "opencl"),
            (f"intel/ladder/{on_cpu}.json", "opencl"),
            (f"pocl31/ladder/{on_cpu}.json", "opencl"),
        )
        for column in rates(file, backend, "gb_per_second", "copy")
    ]


def table_after(start: str, heading: str) -> dict[str, list[str]]:
    """Step → cells after it, of the first table under `heading` after `start`."""
    text = PAGE[PAGE.index(start) :]
    lines = text[text.index(heading) :].split("\n\n")[0].splitlines()[2:]
    rows = [[cell.strip(" `") for cell in line.split("|")[1:-1]] for line in lines]
    return {row[0]: row[1:] for row in rows}


@pytest.mark.parametrize(
    ("start", "heading", "columns"),
    [
        ("## Figures", "| step | CUDA, GFLOPS", "| step | CUDA, GFLOPS"),
        ("## Figures", "| step | registers", "| step | registers"),
        ("## Figures", "| step | Intel", "| step | Intel"),
        ("## The transpose ladder", "| step | CUDA, GB/s", "transpose-16384 transpose-4096"),
        ("## The reduction ladder", "| step | CUDA, GB/s", "reduce reduce"),
    ],
    ids=["H200", "counters", "CPUs", "transpose", "reduce"],
)
def test_figures_are_those_of_the_files(start: str, heading: str, columns: str) -> None:
    rows = table_after(start, heading)
    for column, figures in enumerate(columns_of(columns)):
        assert rows.keys() == figures.keys()
        for step, figure in figures.items():
            told = rows[step][column]
            digits = len(told.partition(".")[2])
            assert told.replace(",", "") == (figure if isinstance(figure, str) else f"{figure:.{digits}f}"), (
                step,
                column,
            )


def test_the_largest_stalls_are_those_of_the_file() -> None:
    rows = table_after("## Figures", "| step | registers")
    for launch in read("h200/profile/4096.json")["launches"][::-1]:
        if cells := rows.pop(launch["kernel"], None):
            stalls = {
                key.removeprefix("stall_").replace("_", " "): figure
                for key, figure in launch["figures"].items()
                if key.startswith("stall_") and key != "stall_not_selected" and figure
            }
            largest = max(stalls, key=stalls.__getitem__)
            assert cells[-1] == f"{stalls[largest]:.1f} {largest}"
    assert not rows
