"""The register ports of compute capability 9.0: how many cycles a sequence of instructions takes at least.

Measured on an H200 with loops of chosen instructions on chosen registers: a multiprocessor's four register files have
two banks each, of the even and of the odd registers, and a bank delivers one register of a warp per cycle. An FFMA
reads three. An operand that an instruction marks for reuse stays for the next that has it in the same place. It is
kept by place and bank: what comes between ends that only with another register of that bank in that place, and what
goes to memory not even then. So a sequence takes as many cycles as it has instructions, or reads of either bank,
whichever is more. One read may wait while the next instruction is issued: of several FFMAs in a row that read two
registers of one bank, the first costs no cycle more. Behind a load of 16 bytes from shared memory a cycle passes
before anything that reads registers is issued, in which the banks deliver what waits. NVIDIA does not document this.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from gemmport.backends._sass import encoding as sass

_DEPTH = 2  # reads that a bank may have before it: one that it delivers, and one that waits

_MARKS = {sass.A.at: sass.REUSE_A, sass.B.at: sass.REUSE_B, sass.C.at: sass.REUSE_C}


@dataclass(frozen=True)
class Ports:
    """A sequence of instructions so far.

    Attributes:
        even, odd: reads that wait at the banks.
        cycles: one for each instruction, and those in which none could be issued.
    """

    even: int = 0
    odd: int = 0
    cycles: int = 0

    def after(self, registers: Iterable[int], pause: int = 0) -> Ports:
        """What it is after one more instruction, which reads these, so many cycles later than it might be issued."""
        waiting = [max(0, self.even - 1 - pause), max(0, self.odd - 1 - pause)]
        for register in registers:
            waiting[register & 1] += 1
        late = max(0, max(waiting) - _DEPTH)
        even, odd = (max(0, number - late) for number in waiting)
        return Ports(even, odd, self.cycles + 1 + pause + late)


@dataclass(frozen=True)
class Flow:
    """A sequence of instructions so far, and the operands that it leaves.

    Attributes:
        ports: what waits there.
        kept: operands that need not be read again: the place of each, and the register.
        reads: registers that were read.
        paused: whether the next instruction, if it reads registers, has to wait for a cycle.
    """

    ports: Ports = field(default_factory=Ports)
    kept: frozenset[tuple[int, int]] = frozenset()
    reads: tuple[int, int] = (0, 0)
    paused: bool = False

    def after(self, word: int) -> Flow:
        """What it is after one more instruction."""
        in_memory = sass.base(word) in sass.MEMORY
        operands = [(o.field.at, r) for o in sass.reads(word) for r in o if r != sass.ZERO]
        read = [r for place, r in operands if in_memory or (place, r) not in self.kept]
        kept = self.kept
        if not in_memory:
            replaced = {(place, r & 1) for place, r in operands}
            marks = sass.REUSE.get(word)
            kept = frozenset(
                [entry for entry in kept if (entry[0], entry[1] & 1) not in replaced]
                + [entry for entry in operands if marks & _MARKS.get(entry[0], 0)]
            )
        ports = self.ports.after(read, int(self.paused and bool(operands)))
        odd = sum(r & 1 for r in read)
        return Flow(ports, kept, (self.reads[0] + len(read) - odd, self.reads[1] + odd), sass.is_wide_load(word))


@dataclass(frozen=True)
class Cost:
    """What the ports make of a sequence of instructions.

    Attributes:
        instructions: all of them.
        ffma: FFMAs among them.
        reads: registers that are read from the banks.
        bound: cycles that it takes at least: the number of instructions, or of the reads of either bank.
        cycles: cycles that it takes as one read can wait.
    """

    instructions: int
    ffma: int
    reads: int
    bound: int
    cycles: int


def cost(code: Iterable[int]) -> Cost:
    """What the ports make of instructions in their order."""
    flow = Flow()
    instructions = ffma = 0
    for word in code:
        flow = flow.after(word)
        instructions += 1
        ffma += sass.base(word) == sass.FFMA
    return Cost(instructions, ffma, sum(flow.reads), max(instructions, *flow.reads), flow.ports.cycles)
