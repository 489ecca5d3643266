"""docs/ladder.md tells every step of the three ladders, and quotes their sources as they are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gemmport import kernels

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "ladder.md").read_text(encoding="utf-8")

BEYOND = ("simt", "mma", "wgmma", "gemv")
"""Kernels beyond the ladder that have a section."""

TWINS = ("mma", "wgmma")
"""Kernels of which both languages' sources have what is quoted."""

PASSES = {"The transpose ladder": "transpose", "The reduction ladder": "reduce"}


def sections() -> dict[str, str]:
    """Title → text; of a step, its kernel's name → text."""
    parts = re.split(r"^## (.*)\n", PAGE, flags=re.MULTILINE)[1:]
    return {re.sub(r"`(\w+)`.*", r"\1", title): text for title, text in zip(parts[::2], parts[1::2], strict=True)}


def squeezed(text: str) -> str:
    return re.sub(r"\s+", " ", text)


def source_of(title: str, folder: str, suffix: str) -> str:
    """What a section quotes from, without directives that unroll loops."""
    path = ROOT / "kernels" / folder / f"{PASSES.get(title, title)}.{suffix}"
    return re.sub(r" ?#pragma unroll\b( 1)?", "", squeezed(path.read_text(encoding="utf-8")))


def test_every_step_has_its_section_in_order() -> None:
    names = [variant.name for variant in kernels.ladder()]
    assert [title for title in sections() if title in names] == names
    for title, ladder in PASSES.items():
        for rung in kernels.ladders()[ladder]:
            assert f"| `{rung.name}` |" in sections()[title]


@pytest.mark.parametrize("title", [*(variant.name for variant in kernels.ladder()), *BEYOND, *PASSES])
def test_a_section_shows_a_drawing_and_the_source_as_it_is(title: str) -> None:
    text = sections()[title]
    sources = [source_of(title, "opencl", "cl")]
    if title in TWINS:
        sources.append(source_of(title, "cuda", "cu"))
    quoted = re.findall(r"^```c\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    assert quoted
    assert re.search(r"^    .*[│─■▒►]", text, flags=re.MULTILINE)
    for block in quoted:
        assert all(squeezed(block).strip() in source for source in sources)
