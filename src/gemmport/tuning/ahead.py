"""Candidates whose programs other processes compile while others are tried: a compiler uses one core of many."""

from __future__ import annotations

import time
from collections.abc import Iterable

from gemmport.api.ahead import Pool
from gemmport.core.device import DeviceInfo
from gemmport.core.errors import GemmportError
from gemmport.core.plan import KernelSource, Plan
from gemmport.runtime.cache import check_writable
from gemmport.runtime.host_cpu import usable_cores
from gemmport.runtime.sources import assemble

BATCH = 4
"""Programs in the queue for each core. In a longer queue, better candidates that are found later would wait."""


class Ahead:
    """Compiles what is tried next, each program once, in processes of its own. Leaving the block ends them.

    Nothing is done for CPUs, which would compile what they time at that moment; nor where the cache cannot be written, through
    which programs come to the process that tries candidates.
    """

    def __init__(self, device: DeviceInfo, seconds: float) -> None:
        """Starts none yet.

        Args:
            seconds: that a program may take: what was not done by then compiles, or is cut off, as it is tried.
        """
        self._device, self._seconds = device, seconds
        # One core is left to the process that tries candidates.
        self._jobs = usable_cores() - 1 if device.type != "cpu" else 0
        self._pool: Pool | None = None
        self._compiled: set[KernelSource] = set()
        self._at_work: dict[int, list[KernelSource]] = {}
        self._numbers: dict[str, int] = {}

    def __enter__(self) -> Ahead:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.close()

    @property
    def room(self) -> int:
        """For programs that are worth asking for."""
        return max(BATCH * self._jobs - len(self._at_work), 0)

    def ask(self, plans: Iterable[Plan]) -> None:
        """Has the programs of candidates compiled, the first first, those that were not asked for yet."""
        for plan in plans:
            for launch in plan.launches:
                asked = launch.kernel in self._compiled or any(launch.kernel in each for each in self._at_work.values())
                if self._jobs and not asked:
                    self._start(launch.kernel)

    def has(self, plan: Plan) -> bool:
        """Whether a candidate's programs are compiled, or will not be here."""
        self._hear(0.0)
        return not self._jobs or self._compiled.issuperset(launch.kernel for launch in plan.launches)

    def wait(self, seconds: float) -> None:
        """Waits until one more program is compiled, for so long at most; not at all where none is on its way."""
        self._hear(seconds)

    def _start(self, kernel: KernelSource) -> None:
        try:
            if self._pool is None:
                check_writable()
                self._pool = Pool(self._jobs, self._seconds)
        except (GemmportError, OSError):  # it can be done without
            self._jobs = 0
            return
        source = assemble(kernel, self._device.language)
        number = self._numbers.get(source)
        if number is None:
            number = self._numbers[source] = self._pool.ask({"device": self._device.to_dict(), "source": source})
            self._at_work[number] = [kernel]
        elif number in self._at_work:  # kernels may differ in what is done behind the compiler alone
            self._at_work[number].append(kernel)
        else:
            self._compiled.add(kernel)

    def _hear(self, seconds: float) -> None:
        """Takes note of what is compiled, or refused: that is told as it is tried."""
        end = time.monotonic() + seconds
        while self._at_work and self._pool is not None:
            answer = self._pool.hear(max(end - time.monotonic(), 0.0))
            if answer is None:
                return
            self._compiled.update(self._at_work.pop(answer[0]))
            end = 0.0  # what else there is
