"""Candidates whose programs other processes compile before they are tried: a compiler uses one core of many."""

from __future__ import annotations

from collections.abc import Iterable

from gemmport.api.ahead import compile_without
from gemmport.core.device import DeviceInfo
from gemmport.core.plan import Plan
from gemmport.runtime.host_cpu import usable_cores
from gemmport.runtime.sources import assemble

BATCH = 4
"""Candidates for each core, that are compiled at once: so that starting the processes takes a small part of it."""


class Ahead:
    """Compiles what is tried next, each program once. Nothing is done for CPUs: some of their runtimes compile at the first
    call.

    Attributes:
        size: candidates that are worth compiling at once; 0 where none are.
    """

    def __init__(self, device: DeviceInfo) -> None:
        self._device = device
        self._known: set[str] = set()
        self.size = BATCH * usable_cores() if device.type != "cpu" and usable_cores() > 1 else 0

    def misses(self, plan: Plan) -> bool:
        """Whether there is a program of a candidate that was not to be compiled yet."""
        return self.size > 0 and not self._known.issuperset(self._sources(plan))

    def compile(self, plans: Iterable[Plan], seconds: float) -> None:
        """Has the programs of candidates compiled, for so long at most: what is not done by then compiles as it is tried."""
        sources = dict.fromkeys(source for plan in plans for source in self._sources(plan))
        missing = [source for source in sources if source not in self._known]
        self._known.update(missing)
        compile_without(self._device, missing, seconds)

    def _sources(self, plan: Plan) -> list[str]:
        return [assemble(launch.kernel, self._device.language) for launch in plan.launches]
