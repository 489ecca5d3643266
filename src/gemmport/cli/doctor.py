"""`gemmport doctor`: what works here, what does not, and how to mend it."""

from __future__ import annotations

import json
from dataclasses import asdict

import click
from rich.table import Table
from rich.text import Text

from gemmport.cli import streams
from gemmport.cli.options import POSITIVE
from gemmport.cli.output import progress_on_terminal, write
from gemmport.diagnose.doctor import Diagnosis, Status, examine

_STYLES: dict[Status, tuple[str, str]] = {
    "ok": ("✓", "green"),
    "warning": ("–", "yellow"),
    "problem": ("✗", "bold red"),
}


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON, for programs and for reports.")
@click.option(
    "--timeout",
    type=POSITIVE,
    default=120.0,
    show_default=True,
    metavar="SECONDS",
    help="The longest that one look at a runtime may take.",
)
def doctor(as_json: bool, timeout: float) -> int:
    """Say what works here, what does not, and how to mend it.

    Looks at versions, environment variables, your configuration files, the cache, each backend's pieces, and the baselines, and
    computes a small verified product on every device found. What of its matrix instructions nobody has run for gemmport yet is
    tried there: what is right is chosen from then on. Every look at a runtime has a process of its own, side by side with
    others: a runtime that crashes or hangs is told like any other fault.

    ✓ works; – is missing, but nothing depends on it; ✗ is broken. → says what to do.

    Exit status: 0 what you asked for works; 1 a device computes wrongly; 2 a setting of yours is broken; 3 no device computes
    right, or the one that is taken where none is named does not.
    """
    with progress_on_terminal() as tell:
        diagnosis = examine(timeout=timeout, progress=tell)
    if as_json:
        streams.echo(json.dumps({**asdict(diagnosis), "exit_status": diagnosis.exit_status}, indent=2))
    else:
        _print(diagnosis)
    return diagnosis.exit_status


def _print(diagnosis: Diagnosis) -> None:
    console = streams.console(highlight=False, markup=False, width=streams.terminal_width() or streams.UNLIMITED)
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    area = ""
    for finding in diagnosis.findings:
        if finding.area != area:
            area = finding.area
            table.add_row("", Text(area, "bold underline"))
        mark, style = _STYLES[finding.status]
        text = Text.assemble((finding.subject, style), "  ", finding.detail)
        if finding.remedy:
            text.append(f"\n→ {finding.remedy}", "bold")
        table.add_row(Text(mark, style), text)
    with console.capture() as capture:
        console.print(table)
    write("\n".join(line.rstrip() for line in capture.get().splitlines()) + "\n", None)
    problems = sum(finding.status == "problem" for finding in diagnosis.findings)
    devices = len(diagnosis.right)
    told = f"{devices} device{'s' if devices != 1 else ''} compute{'s' if devices == 1 else ''} right"
    console.print(
        f"{told}, {len(diagnosis.wrong)} wrongly; {problems} problem{'s' if problems != 1 else ''}", style="bold"
    )
