"""`gemmport kernels`: the family, with parameters and rules."""

from __future__ import annotations

import json

import click

from gemmport import kernels as family
from gemmport.cli import streams


@click.command()
@click.argument("name", required=False)
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
def kernels(name: str | None, form: str) -> None:
    """List the kernels with their parameters and rules, or NAME alone."""
    chosen = (family.variant(name),) if name else family.variants()
    if form == "json":
        document = {
            variant.name: {
                "summary": variant.summary,
                "dtypes": sorted(variant.dtypes),
                "parameters": {
                    p.name: {"default": p.default, "range": p.range, "meaning": p.meaning} for p in variant.parameters
                },
                "constraints": [constraint.rule for constraint in variant.constraints],
            }
            for variant in chosen
        }
        streams.echo(json.dumps(document, indent=2, ensure_ascii=False))
        return
    console = streams.console(highlight=False, markup=False, soft_wrap=True)
    for variant in chosen:
        console.print(variant.name, style="bold", end="")
        console.print(f"  {variant.summary}; {', '.join(sorted(variant.dtypes))}")
        for p in variant.parameters:
            console.print(f"  {p.name:8} {p.meaning}: {p.range}; default {p.default}")
        for constraint in variant.constraints:
            console.print(f"  rule     {constraint.rule}")
