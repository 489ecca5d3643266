"""Why one entry of a configuration serves a problem on a device, and all others do not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gemmport.core.device import DeviceInfo
from gemmport.core.plan import Plan
from gemmport.core.problem import GemmProblem
from gemmport.planning.lookup import Configuration
from gemmport.planning.schema import PRECEDENCE, LoadedEntry, Source, Unmet

_SOURCES: dict[Source, str] = {
    "call": "files of the call",
    "user": "files of the user's folders",
    "shipped": "files that gemmport ships",
}


@dataclass(frozen=True)
class Standing:
    """How an entry stands beside the one that serves a plan.

    Attributes:
        unmet: the keys of its match that do not hold; empty where it matches.
        lost: why the one that serves goes before it; empty for that one itself, for those that were tried before it, and for
            those that do not match.
    """

    loaded: LoadedEntry
    unmet: tuple[Unmet, ...] = ()
    lost: str = ""


@dataclass(frozen=True)
class Precedence:
    """All entries of a configuration, as they stand for a plan.

    Attributes:
        winner: the entry that the plan's kernel is from; None where that has its own defaults.
        passed_over: that match and were tried before the winner: none of their kernels fits.
        behind: that match too, in the order in which they would be tried.
        others: that do not match, in the order of their files.
    """

    winner: LoadedEntry | None
    passed_over: tuple[Standing, ...]
    behind: tuple[Standing, ...]
    others: tuple[Standing, ...]


def precedence(plan: Plan, configuration: Configuration) -> Precedence:
    """How the entries of the configuration that a plan was made with stand for it."""
    problem, device = plan.problem, plan.device
    matching = configuration.matching(device, problem)
    number = next((i for i, loaded in enumerate(matching) if loaded.origin == plan.entry), len(matching))
    winner = matching[number] if number < len(matching) else None
    return Precedence(
        winner,
        tuple(Standing(loaded) for loaded in matching[:number]),
        tuple(Standing(loaded, lost=_lost(loaded, winner)) for loaded in matching[number + 1 :] if winner),
        tuple(_others(configuration.entries, device, problem)),
    )


def _others(entries: Sequence[LoadedEntry], device: DeviceInfo, problem: GemmProblem) -> list[Standing]:
    standings = [Standing(loaded, loaded.entry.match.unmet(device, problem)) for loaded in entries]
    return [standing for standing in standings if standing.unmet]


def _lost(loser: LoadedEntry, winner: LoadedEntry) -> str:
    """On what an entry that matches lost against the one before it."""
    if loser.source != winner.source:
        return f"lost on its source: {_SOURCES[winner.source]} go before {_SOURCES[loser.source]}"
    ours, theirs = loser.entry.match, winner.entry.match
    for key in PRECEDENCE:
        if getattr(theirs, key) and not getattr(ours, key):
            wanted = theirs.stated[key]
            told = wanted if isinstance(wanted, str) else " or ".join(wanted)
            return f"lost on {key}: the winner asks for {told}, this one for none"
    return "lost by its place: it asks for the same keys, and stands behind the winner"
