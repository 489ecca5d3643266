"""One launch of a plan, compiled and taken apart."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from gemmport.backends import offline
from gemmport.backends.base import Backend
from gemmport.backends.objects import Disassembly, Listing, LoopBound, Resources
from gemmport.contracts import amd, occupancy
from gemmport.contracts.occupancy import Occupancy
from gemmport.core.errors import UnsupportedError
from gemmport.core.plan import Launch, Plan
from gemmport.core.problem import OPERANDS
from gemmport.execution.executor import bind
from gemmport.inspection import amdgcn, gen, ptx, sass, x86
from gemmport.inspection.instructions import Counts, Instruction
from gemmport.inspection.loops import hot_loop
from gemmport.runtime.sources import assemble

_Parser = Callable[[str], list[Instruction]]

_PARSERS: dict[str, _Parser] = {"SASS": sass.parse, "x86-64": x86.parse, "AMDGCN": amdgcn.parse, "Gen": gen.parse}


@dataclass(frozen=True)
class Code:
    """A listing whose language is understood.

    Attributes:
        loop: the instructions of the loop with the most multiply-adds; empty where there is none.
    """

    listing: Listing
    instructions: Sequence[Instruction]
    loop: Sequence[Instruction]

    @property
    def counts(self) -> Counts:
        """Of the whole kernel."""
        return Counts.of(self.instructions)

    @property
    def loop_counts(self) -> Counts:
        """Of the loop."""
        return Counts.of(self.loop)


@dataclass(frozen=True)
class Inspection:
    """What is told of one launch.

    Attributes:
        number: of the launch in the plan, from 1.
        source: as it was compiled.
        listings: what could be had of its code, and what could not.
        codes: those of the listings that are understood, the nearest to the machine last.
        occupancy: where the architecture and the registers are known.
        bound: of a round of the loop that is nearest to the machine, where a model of the processor is there.
        notes: what could not be had, and how to get it.
    """

    plan: Plan
    number: int
    source: str
    listings: tuple[Listing, ...]
    codes: tuple[Code, ...]
    resources: Resources
    occupancy: Occupancy | None
    bound: LoopBound | None
    notes: tuple[str, ...]

    @property
    def launch(self) -> Launch:
        """The launch itself."""
        return self.plan.launches[self.number - 1]


def inspect(plan: Plan, *, backend: Backend | None = None, number: int | None = None) -> Inspection:
    """Compiles a launch of a plan and takes it apart.

    Args:
        backend: the device of the plan, opened; without one the device need not be here, where its backend can do that.
        number: of the launch, from 1; default: the last one of the variant's own kernel.

    Raises:
        UnsupportedError: the plan has no such launch.
        BackendUnavailableError: the plan's backend compiles on the device alone.
        CompileError, LaunchError, DeviceMemoryError: as the backend.
    """
    number = _number(plan, number)
    launch = plan.launches[number - 1]
    if backend is None:
        source = assemble(launch.kernel, plan.device.language)
        found = offline.disassemble(plan.device, source, launch.kernel.function)
    else:
        source = assemble(launch.kernel, backend.language, backend.overrides)
        found = _on_device(plan, backend, number)
    codes, notes = [], []
    for listing in found.listings:
        if listing.note:
            notes.append(f"{listing.language}: {listing.note}")
        # A listing in PTX is of the whole source, others are of the function.
        parsers: dict[str, _Parser] = {"PTX": partial(ptx.parse, function=launch.kernel.function), **_PARSERS}
        if listing.text and listing.language not in parsers:
            notes.append(f"{listing.language}: its instructions are shown, not counted")
        elif listing.text:
            instructions = parsers[listing.language](listing.text)
            codes.append(Code(listing, instructions, hot_loop(instructions)))
    held = _occupancy(plan, launch, found.resources)
    bound = _bound(plan, codes)
    if isinstance(bound, str):
        notes.append(f"the loop's bound: {bound}")
        bound = None
    return Inspection(plan, number, source, found.listings, tuple(codes), found.resources, held, bound, tuple(notes))


def _bound(plan: Plan, codes: Sequence[Code]) -> LoopBound | str | None:
    if not codes or not codes[-1].loop:
        return None
    return offline.loop_bound(plan.device, "\n".join(instruction.text for instruction in codes[-1].loop))


def _number(plan: Plan, number: int | None) -> int:
    count = len(plan.launches)
    if not count:
        raise UnsupportedError(f"{plan.problem} launches nothing: its D has no elements")
    if number is None:
        own = [n for n, launch in enumerate(plan.launches, 1) if launch.kernel.stem.startswith(plan.variant)]
        return own[-1] if own else count
    if not 1 <= number <= count:
        raise UnsupportedError(f"{plan.variant} has no launch {number}: they are numbered from 1 to {count}")
    return number


def _on_device(plan: Plan, backend: Backend, number: int) -> Disassembly:
    problem = plan.problem
    operands = {
        operand: backend.allocate(problem.span(operand) * problem.element_type(operand).itemsize)
        for operand in OPERANDS
    }
    return backend.disassemble(bind(plan, backend, operands).calls[number - 1])


def _occupancy(plan: Plan, launch: Launch, resources: Resources) -> Occupancy | None:
    if resources.registers is None:
        return None
    name = plan.device.architecture
    x, y, z = launch.work_group
    items, local = x * y * z, local_bytes(launch, resources)
    if (limits := occupancy.architecture(name)) is not None:
        return occupancy.occupancy(limits, work_items=items, registers=resources.registers, local_bytes=local)
    if (own := amd.architecture(name)) is not None:
        scalars = resources.scalar_registers
        return amd.occupancy(own, work_items=items, registers=resources.registers, scalars=scalars, local_bytes=local)
    return None


def local_bytes(launch: Launch, resources: Resources) -> int:
    """Local memory of a group, in bytes: what the compiler says that it declares, and what it is given at launch."""
    declared = launch.local_bytes if resources.local_bytes is None else resources.local_bytes
    return declared + launch.dynamic_local_bytes
