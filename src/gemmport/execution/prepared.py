"""Prepared calls: plans that are compiled and bound, which the next product of their kind launches with other memory."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gemmport import kernels
from gemmport.backends.base import Backend
from gemmport.backends.objects import Event, Memory
from gemmport.contracts.kernel import KernelVariant
from gemmport.core.dtypes import FLOAT32
from gemmport.core.plan import SCALES, Plan
from gemmport.core.problem import OPERANDS
from gemmport.execution.executor import BoundPlan, bind


@dataclass(eq=False)
class Prepared:
    """A product of one kind on one device. Nothing but its numbers, and where they are, differs from one call to the next.

    Any number of threads may launch it at a time.

    Attributes:
        family: of kernels, among which the plan's was chosen.
        idle: bound plans that no thread is using; another list, where a better program has come.
        sources: of its programs.
    """

    plan: Plan
    backend: Backend
    family: Mapping[str, KernelVariant] = field(default_factory=kernels.family)
    idle: list[BoundPlan] = field(default_factory=list)
    sources: Sequence[str] = ()

    @classmethod
    def of(cls, bound: BoundPlan) -> Prepared:
        """That of a plan which is bound already, and forgets its operands."""
        bound.let_go()
        found = cls(bound.plan, bound.backend, idle=[bound], sources=bound.sources)
        bound.backend.follow(found, bound.sources, [call.program for call in bound.calls])
        return found

    @property
    def usable(self) -> bool:
        """Whether its device is open, and the kernels are those that it was chosen among."""
        return not self.backend.closed and self.family is kernels.family()

    def launch(self, operands: tuple[Any, ...], queue: Any = None, *, marked: bool = False) -> Event | None:
        """Enqueues the product. The caller keeps the operands, and orders what others do to them.

        Args:
            operands: what `Backend.argument` makes of the memory of `Plan.operands`, as the plan names them; C is D where it
                is not read.
            queue: of `Backend.as_queue`, or a handle that it takes.
            marked: whether the event of its last launch is wanted.

        Returns:
            The event; None where it is not wanted.

        Raises:
            DeviceMemoryError: there is no room for scratch memory; nothing was enqueued.
            LaunchError: the runtime refuses.
        """
        idle = self.idle
        try:
            bound = idle.pop()
        except IndexError:  # all are at work in other threads
            bound = bind(
                self.plan, self.backend, self._memory(operands), queue=queue, at_once=True, meanwhile=True
            )  # fmt: skip
            bound.let_go()
        event = bound.relaunch(operands, queue=queue, marked=marked)
        idle.append(bound)
        return event

    def renew(self, source: str) -> None:
        """Has the next launch bind anew, if it has a program of this source, of which there is a better one, or none until now.

        What is at work in other threads goes back to a list that nobody looks at any more.
        """
        if source in self.sources:
            self.idle = []

    def capture(self, operands: tuple[Any, ...], *, queue: Any, allocate: Callable[[int], Memory]) -> None:
        """Enqueues the product on a queue that a graph captures. It may be replayed as long as the process lives: its programs
        stay loaded, and its scratch memory is the graph's own.

        Args:
            allocate: gives scratch memory of so many bytes, which belongs to the graph.

        Raises:
            As `launch`.
        """
        bound = bind(self.plan, self.backend, self._memory(operands), queue=queue, allocate=allocate, at_once=True)
        bound.relaunch(operands, queue=queue)
        for call in bound.calls:
            self.backend.pin(call.program)

    def _memory(self, operands: tuple[Any, ...]) -> dict[str, Memory]:
        problem = self.plan.problem
        sizes = {str(name): problem.span(name) * problem.element_type(name).itemsize for name in OPERANDS}
        sizes |= {name: lines * FLOAT32.itemsize for name, lines in zip(SCALES, (problem.m, problem.n), strict=True)}
        return {
            name: self.backend.stand_in(argument, sizes[name])
            for name, argument in zip(self.plan.operands, operands, strict=True)
        }


def find(known: Mapping[Hashable, Prepared], key: Hashable) -> Prepared | None:
    """The prepared call of a key; None where there is none that is usable."""
    found = known.get(key)
    return found if found is not None and found.usable else None
