"""How each table of README.md and docs/ is made of the files of results: a recipe for each, by the name in its comment."""

from __future__ import annotations

from recipes import calls, cpu, fuzz, gpu, ladders, ports, studies, tuned
from recipes.table import Recipe

RECIPES: dict[str, Recipe] = {
    **calls.RECIPES, **cpu.RECIPES, **fuzz.RECIPES, **gpu.RECIPES, **ladders.RECIPES, **ports.RECIPES, **studies.RECIPES,
    **tuned.RECIPES,
}  # fmt: skip
"""Name → recipe."""
