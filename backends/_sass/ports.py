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
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from gemmport.backends._sass import encoding as sass

DEPTH = 2  # reads that a bank may have before it: one that it delivers, and one that waits

_MARKS = {sass.A.at: sass.REUSE_A, sass.B.at: sass.REUSE_B, sass.C.at: sass.REUSE_C}


class Ports(NamedTuple):
    """A sequence of instructions so far.

    Attributes:
        even, odd: reads that wait at the banks.
        cycles: one for each instruction, and those in which none could be issued.
    """

    even: int = 0
    odd: int = 0
    cycles: int = 0

    def after(self, even: int, odd: int, pause: int = 0) -> Ports:
        """What it is after one more instruction; arguments as of `issue`."""
        waiting = issue(self.even, self.odd, even, odd, pause)
        return Ports(waiting.even, waiting.odd, self.cycles + waiting.cycles)


@cache
def issue(even_before: int, odd_before: int, even: int, odd: int, pause: int = 0) -> Ports:
    """What an instruction alone makes of reads that wait at the banks.

    Args:
        even_before, odd_before: these.
        even, odd: registers that it reads from either bank.
        pause: cycles that it comes later than it might be issued.
    """
    even += max(0, even_before - 1 - pause)
    odd += max(0, odd_before - 1 - pause)
    late = max(0, even - DEPTH, odd - DEPTH)
    return Ports(max(0, even - late), max(0, odd - late), 1 + pause + late)


_SLOTS = {at: 2 * i for i, at in enumerate(_MARKS)}  # of places: where in `Flow.kept` their even bank is

_NOTHING = (sass.ZERO,) * (2 * len(_MARKS))


class Flow(NamedTuple):
    """A sequence of instructions so far, and the operands that it leaves.

    Attributes:
        ports: what waits there.
        kept: registers that need not be read again: of each place that of the even bank and that of the odd one.
        reads: registers that were read, of either bank.
        paused: whether the next instruction, if it reads registers, has to wait for a cycle.
    """

    ports: Ports = Ports()
    kept: tuple[int, ...] = _NOTHING
    reads: tuple[int, int] = (0, 0)
    paused: bool = False

    def after(self, word: int) -> Flow:
        """What it is after one more instruction."""
        even = odd = 0
        kept = self.kept
        operands = _operands(word)
        for slot, register, _ in operands:
            if slot < 0 or kept[slot] != register:
                if register & 1:
                    odd += 1
                else:
                    even += 1
        if operands and operands[0][0] >= 0:
            left = list(kept)
            for slot, register, is_marked in operands:
                left[slot] = register if is_marked else sass.ZERO
            kept = tuple(left)
        ports = self.ports.after(even, odd, int(self.paused and bool(operands)))
        return Flow(ports, kept, (self.reads[0] + even, self.reads[1] + odd), sass.is_wide_load(word))


@sass.decoded
def _operands(word: int) -> tuple[tuple[int, int, bool], ...]:
    """The registers that an instruction reads: where in `Flow.kept` each may be, or -1 of one that goes to memory; its number;
    and whether it is marked to be kept.
    """
    if sass.base(word) in sass.MEMORY:
        return tuple([(-1, register, False) for _, register in sass.places_read(word)])
    marks = sass.REUSE.get(word)
    return tuple([(_SLOTS[at] + (r & 1), r, bool(marks & _MARKS[at])) for at, r in sass.places_read(word)])


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
