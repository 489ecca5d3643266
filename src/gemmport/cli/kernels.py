"""`gemmport kernels`: the family, with parameters and rules."""

from __future__ import annotations

import json

import click

from gemmport import kernels as family
from gemmport.cli import completion, streams


@click.command(short_help="List the kernels, or show one.")
@click.argument("name", required=False, shell_complete=completion.kernel_names)
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
    tell = streams.Prose(indent=11)
    for variant in chosen:
        tell(f"{variant.name}  {variant.summary}; {', '.join(sorted(variant.dtypes))}", style="bold")
        for p in variant.parameters:
            tell(f"  {p.name:8} {p.meaning}: {p.range}; default {p.default}")
        for constraint in variant.constraints:
            tell(f"  rule     {constraint.rule}")
