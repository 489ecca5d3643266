"""What a record says, in numbers: per device, per kernel and types, failures first. For tables, pages and JUnit alike."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from gemmport.matrix.record import FAILED, Record, Status, Tested, Verdict

Axis = str
"""What cells are told apart by: "kernel", "types", "ops", "shape" or "scalars"."""


@dataclass(frozen=True)
class Rate:
    """What was timed of a kernel and types.

    Attributes:
        gflops: 10⁹ operations per second. ratios: our speed over that of each baseline that was measured beside it.
    """

    kernel: str
    types: str
    ops: str
    m: int
    n: int
    k: int
    status: Status
    gflops: float
    ratios: dict[str, float]


@dataclass
class Summary:
    """What came of a device.

    Attributes:
        counts: cells by status.
        left: cells that are due and were not judged.
        failures: what is at fault, the worst first; each with its reason and command.
        unsupported: how many cells each reason keeps from being computed, the most frequent first.
        rates: what was timed, in the order of the record.
        retried: cells that were judged again in a process of their own, since the process died or hung on them.
        quirks: how many cells each known fault of the runtime explains.
    """

    tested: Tested
    verdicts: list[Verdict] = field(repr=False)
    counts: Counter[Status]
    left: int
    failures: list[Verdict]
    unsupported: list[tuple[str, int]]
    rates: list[Rate]
    retried: list[Verdict]
    quirks: Counter[str]

    @property
    def failed(self) -> bool:
        """Whether anything is at fault, or the device was lost."""
        return bool(self.failures or self.tested.lost)

    @property
    def done(self) -> int:
        """How many cells were judged."""
        return sum(self.counts.values())

    @property
    def verdict(self) -> str:
        """In a word or two: "all verified", "3 failed", "lost", "12 left", "nothing verified"."""
        if self.failures:
            return f"{len(self.failures):,} failed"
        if self.tested.lost:
            return "lost"
        if self.left:
            return f"{self.left:,} left"
        return "all verified" if self.counts["verified"] else "nothing verified"

    def grid(self, rows: Axis = "kernel", columns: Axis = "types") -> dict[tuple[str, str], Counter[Status]]:
        """Cells by status for each pair of values of two axes, in the order of the record."""
        found: dict[tuple[str, str], Counter[Status]] = {}
        for verdict in self.verdicts:
            key = (getattr(verdict, rows), getattr(verdict, columns))
            found.setdefault(key, Counter())[verdict.status] += 1
        return found


def summarize(record: Record) -> list[Summary]:
    """A summary for each device, in the order of the record."""
    return [_of(tested, record.on(tested.id)) for tested in record.devices.values()]


def exit_status(summaries: Sequence[Summary]) -> int:
    """Of the command: 0 all judged cells are right; 1 a cell failed, or a device was lost; 4 cells are left."""
    if any(summary.failed for summary in summaries):
        return 1
    return 4 if any(summary.left for summary in summaries) else 0


def _of(tested: Tested, verdicts: list[Verdict]) -> Summary:
    reasons = Counter(verdict.reason for verdict in verdicts if verdict.status == "unsupported")
    failures = [verdict for verdict in verdicts if verdict.failed]
    rates = [
        Rate(
            v.kernel, v.types, v.ops, v.m, v.n, v.k, v.status, v.gflops,
            {name: each["ratio"] for name, each in v.baselines.items() if each.get("ratio") is not None},
        )
        for v in verdicts
        if v.gflops is not None
    ]  # fmt: skip
    return Summary(
        tested=tested,
        verdicts=verdicts,
        counts=Counter(verdict.status for verdict in verdicts),
        left=max(tested.cells - len(verdicts), 0),
        failures=sorted(failures, key=lambda verdict: -FAILED.index(verdict.status)),
        unsupported=reasons.most_common(),
        rates=rates,
        retried=[verdict for verdict in verdicts if verdict.status == "verified" and verdict.reason],
        quirks=Counter(verdict.quirk for verdict in verdicts if verdict.quirk),
    )
