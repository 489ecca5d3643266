"""This run beside a committed one, as a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gemmport.bench.comparison import Comparison, Ratio, Results, compare, like_devices, read_results, results_of
from gemmport.cli.output import Column, Conditions, Sheet, document_of, number


class Committed:
    """A file of an earlier run, and what comes of setting this run beside it.

    Attributes:
        comparison: there when both were compared.

    Raises:
        ComparisonError: the file does not come from a run.
    """

    comparison: Comparison

    def __init__(self, file: Path) -> None:
        self._then = read_results(file)

    def check(self, conditions: Conditions, content: Mapping[str, Any] | None = None) -> None:
        """Raises ComparisonError where the devices are others.

        Args:
            content: of the command's JSON document before anything is measured. Default: that of `gemmport run`.
        """
        like_devices(_this_run({"results": [], **(content or {})}, conditions), self._then)

    def compare(self, content: Mapping[str, Any], conditions: Conditions) -> None:
        """Sets the ratios to baselines in the content of this command's JSON document beside those of the file."""
        self.comparison = compare(_this_run(content, conditions), self._then)

    def sheet(self) -> Sheet:
        """The table of `comparison_sheet`."""
        return comparison_sheet(self.comparison)

    def status(self) -> int:
        """1: a ratio is worse than it was; 0: none is, or none was compared.

        Raises:
            ComparisonError: there was nothing to compare.
        """
        self.comparison.require_common()
        return 1 if self.comparison.worse else 0


def _this_run(content: Mapping[str, Any], conditions: Conditions) -> Results:
    """The ratios in this command's JSON document."""
    return results_of(document_of(dict(content), conditions), "this run")


def comparison_sheet(comparison: Comparison) -> Sheet:
    """A row for each ratio, and under them how many are worse, why some are on one side only, and which versions differ."""
    columns = (
        Column("device", dispensable=3), Column("task"), Column("kernel", dispensable=2), Column("baseline", dispensable=1),
        Column("now", numbers=True, dispensable=4), Column("then", numbers=True, dispensable=5),
        Column("change %", numbers=True), Column("verdict"),
    )  # fmt: skip
    rows = [
        (
            row.device, str(row.task), row.kernel, f"× {row.baseline}", _cell(row.now), _cell(row.then),
            number(row.change, 1), row.verdict,
        )
        for row in comparison.rows
    ]  # fmt: skip
    counts = Counter(row.verdict for row in comparison.rows)
    told = (
        f"beside {comparison.name} of {comparison.date}: {', '.join(f'{n} {verdict}' for verdict, n in counts.items())}"
    )
    reasons = dict.fromkeys(f"{row.verdict}: {row.reason}" for row in comparison.rows if row.reason)
    return Sheet(columns, rows, [told, *_told_hidden(comparison), *reasons, *comparison.notes])


def _told_hidden(comparison: Comparison) -> list[str]:
    """What the spreads hide, so that nobody takes a noisy run for a good one."""
    row = comparison.coarsest
    if row is None:
        return []
    return [f"the spreads hide losses of up to {row.hidden:.1f}%: {row.task} × {row.baseline} on {row.device}"]


def _cell(ratio: Ratio | None) -> str:
    """A ratio and its spread in a cell of a table."""
    return "" if ratio is None else f"{ratio.value:.3f} ±{100 * ratio.spread:.1f}%"
