"""Instructions of any language, as far as counting them goes: what each does, what memory it touches, where it may go next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum


class Kind(Enum):
    """What an instruction does. Each has one kind; arithmetic that reads memory counts as arithmetic."""

    MATRIX = "matrix multiply-adds"
    FMA = "fused multiply-adds"
    FLOAT = "other floating point"
    INTEGER_FMA = "integer multiply-adds"
    INTEGER = "other integers, logic"
    CONVERSION = "conversions"
    MOVE = "moves within registers"
    EXCHANGE = "exchanges between work-items"
    MEMORY = "loads and stores"
    BARRIER = "barriers, waits"
    BRANCH = "branches"
    UNKNOWN = "not classified"


MULTIPLY_ADDS = (Kind.MATRIX, Kind.FMA, Kind.INTEGER_FMA)


@dataclass(frozen=True, order=True)
class Access:
    """A touch of memory.

    Attributes:
        verb: "load", "store", "atomic", or "copy" from global to local memory.
        space: "global", "local", "private" (of a work-item: stack and spills), "constant" (arguments included), "generic"; on
            CPUs, where global and local memory are one, "memory" and "private".
        bits: of one work-item; of one instruction on CPUs. 0 where the text does not tell.
    """

    verb: str
    space: str
    bits: int

    def __str__(self) -> str:
        return f"{self.verb} {self.space}, {self.bits or '?'} bits"


@dataclass(frozen=True)
class Instruction:
    """One instruction.

    Attributes:
        text: as it stands in the listing.
        labels: names under which others may jump to it.
        target: the label that it may jump to.
        ends: whether it never goes on to the next one.
    """

    text: str
    kind: Kind
    accesses: tuple[Access, ...] = ()
    labels: tuple[str, ...] = ()
    target: str | None = None
    ends: bool = False


@dataclass(frozen=True)
class Counts:
    """How often each kind and each access stands in a piece of code. They are counts of its text, not of a run."""

    kinds: Counter[Kind]
    accesses: Counter[Access]

    @classmethod
    def of(cls, instructions: Iterable[Instruction]) -> Counts:
        """The counts of these instructions."""
        known = tuple(instructions)
        return cls(
            Counter(instruction.kind for instruction in known),
            Counter(access for instruction in known for access in instruction.accesses),
        )

    @property
    def total(self) -> int:
        """Instructions in all."""
        return self.kinds.total()

    @property
    def multiply_adds(self) -> int:
        """Instructions of the first kind of multiply-adds that there is: of matrices, of floating point, of integers.

        Integers come last, because addresses are computed with them too.
        """
        return next((self.kinds[kind] for kind in MULTIPLY_ADDS if self.kinds[kind]), 0)

    def _loads(self) -> list[tuple[Access, int]]:
        """Loads of operands: arguments and what is private set aside."""
        return [
            (access, count)
            for access, count in self.accesses.items()
            if access.verb in ("load", "copy") and access.space not in ("constant", "private")
        ]

    @property
    def multiply_adds_per_load(self) -> float | None:
        """Multiply-adds for each load of operands; None without loads."""
        loads = sum(count for _, count in self._loads())
        return self.multiply_adds / loads if loads else None

    @property
    def multiply_adds_per_word(self) -> float | None:
        """Multiply-adds for each 32 bits of operands loaded; None without loads, or where their width is not told."""
        loads = self._loads()
        words = sum(access.bits * count for access, count in loads) / 32
        return self.multiply_adds / words if words and all(access.bits for access, _ in loads) else None
