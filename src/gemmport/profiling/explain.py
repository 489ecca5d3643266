"""What bounds a launch, by the rules of docs/profile.md."""

from __future__ import annotations

from gemmport.profiling.metrics import NOT_SELECTED, STALLS, Figures, Stall, fma_share

BUSY = 80.0
"""Percent of its peak from which a part of the chip counts as what bounds a launch; Nsight Compute's rule SOLBottleneck has the
same."""

_MEMORIES = (
    ("dram", "the device's memory", "reuse more of what was read: larger tiles"),
    ("l2", "the L2 cache", "reuse more of what was read: larger tiles in shared memory"),
    ("l1", "the L1 cache and shared memory", "fewer and wider loads, no bank conflicts: larger tiles in registers"),
)


def explain(figures: Figures) -> str:
    """One line: what bounds the launch, the figure that says so, and what makes it faster."""
    pipe, issue = figures.get("fma_pipe"), figures.get("issue_active")
    if pipe is not None and pipe >= BUSY:
        return f"bound by arithmetic: the FMA pipe is {pipe:.0f} % used; only fewer operations are faster"
    used = [(value, name, remedy) for key, name, remedy in _MEMORIES if (value := figures.get(key)) is not None]
    if used and max(used)[0] >= BUSY:
        value, name, remedy = max(used)
        return f"bound by {name}: {value:.0f} % of its peak; {remedy}"
    if issue is not None and issue >= BUSY:
        return f"bound by issue: {issue:.0f} % of the issue slots are used{_share(figures)}; more FMA per other instruction"
    stalls = [stall for stall in top_stalls(figures, len(STALLS)) if stall is not NOT_SELECTED]
    if issue is None or not stalls:
        return "not explained: the counters of issue and stalls are n/a"
    stall = stalls[0]
    return (
        f"bound by latency: {issue:.0f} % of the issue slots are used, and per instruction {figures[stall.key]:.1f} warps wait "
        f"for {stall.waits_for} ({stall.reason.replace('_', ' ')}); {stall.remedy}"
    )


def top_stalls(figures: Figures, count: int) -> list[Stall]:
    """The reasons for which most warps issue nothing, the most frequent first; at most `count`, none that does not occur."""
    found = [(value, stall) for stall in STALLS if (value := figures.get(stall.key))]
    found.sort(key=lambda pair: pair[0], reverse=True)
    return [stall for _, stall in found[:count]]


def _share(figures: Figures) -> str:
    share = fma_share(figures)
    return "" if share is None else f", {share:.0f} % of them for FMA"
