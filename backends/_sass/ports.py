"""The register ports of compute capability 9.0: how many cycles a sequence of instructions takes at least.

Measured on an H200 with loops of FFMAs on chosen registers: a multiprocessor's four register files have two banks each, of the
even and of the odd registers, and a bank delivers one register of a warp per cycle. An FFMA reads three. Of these, one that the
instruction before it, of the same warp and an FFMA too, had in the same place and marked for reuse, is there already. So a
sequence takes as many cycles as it has instructions, or reads of either bank, whichever is more. One read may wait while the
next instruction is issued: of several FFMAs in a row that read two registers of one bank, the first costs no cycle more.
NVIDIA does not document this.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gemmport.backends._sass import encoding as sass

_DEPTH = 2  # reads that a bank may have before it: one that it delivers, and one that waits


@dataclass(frozen=True)
class Ports:
    """A sequence of instructions so far.

    Attributes:
        even, odd: reads that wait at the banks.
        cycles: one for each instruction, and those in which a bank where many wait let none be issued.
    """

    even: int = 0
    odd: int = 0
    cycles: int = 0

    def after(self, registers: Iterable[int]) -> Ports:
        """What it is after one more instruction, which reads these."""
        waiting = [max(0, self.even - 1), max(0, self.odd - 1)]
        for register in registers:
            waiting[register & 1] += 1
        late = max(0, max(waiting) - _DEPTH)
        even, odd = (max(0, number - late) for number in waiting)
        return Ports(even, odd, self.cycles + 1 + late)


@dataclass(frozen=True)
class Cost:
    """What the ports make of a sequence of instructions.

    Attributes:
        instructions: all of them.
        ffma: FFMAs among them.
        reads: registers that the FFMAs read from the banks.
        bound: cycles that it takes at least: the number of instructions, or of the reads of either bank.
        cycles: cycles that it takes as one read can wait.
    """

    instructions: int
    ffma: int
    reads: int
    bound: int
    cycles: int


def cost(code: Iterable[int]) -> Cost:
    """What the ports make of instructions in their order. Reads of those that are no FFMAs are not counted: they are few."""
    ports = Ports()
    before = None
    instructions, ffma, reads = 0, 0, [0, 0]
    for word in code:
        is_ffma = sass.base(word) == sass.FFMA
        registers = _fresh(word, before) if is_ffma else []
        ports = ports.after(registers)
        instructions += 1
        ffma += is_ffma
        for register in registers:
            reads[register & 1] += 1
        before = word if is_ffma else None
    return Cost(instructions, ffma, sum(reads), max(instructions, *reads), ports.cycles)


def _fresh(word: int, before: int | None) -> list[int]:
    """The registers that an FFMA reads from the banks, after the FFMA `before`; None where there is none."""
    kept = 0 if before is None else sass.REUSE.get(before)
    return [
        f.get(word)
        for i, f in enumerate((sass.A, sass.B, sass.C))
        if f.get(word) != sass.ZERO and not (before is not None and kept >> i & 1 and f.get(before) == f.get(word))
    ]
