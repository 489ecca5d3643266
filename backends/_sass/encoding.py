"""The machine code of compute capability 9.0: fields of its 128-bit instructions and the registers they read and write.

NVIDIA publishes the names of the instructions (CUDA Binary Utilities), not their encoding: it was read off nvdisasm's listings.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import NamedTuple

BYTES = 16  # of an instruction

decoded = lru_cache(maxsize=2**14)
"""Of what is told of an instruction, which is asked for many times: it is kept, of as many as some programs have."""

ZERO = 255  # RZ, which reads as zero and keeps nothing
ALWAYS = 7  # PT, the predicate that is true

NEVER = 15  # its negation

NO_BARRIER = 7


@dataclass(frozen=True)
class Field:
    """Some bits of an instruction, counted from its lowest."""

    at: int
    bits: int

    def get(self, word: int) -> int:
        """The field of an instruction."""
        return word >> self.at & (1 << self.bits) - 1

    def put(self, word: int, value: int) -> int:
        """The instruction with another value there."""
        return word & ~((1 << self.bits) - 1 << self.at) | value << self.at


OPCODE = Field(0, 12)
BASE = Field(0, 9)  # the opcode without the form of its operands
FORM = Field(9, 3)
GUARD = Field(12, 4)  # the predicate under which the instruction runs; bit 3 negates it
GUARD_PREDICATE, GUARD_NEGATED = Field(12, 3), Field(15, 1)
D, A, B, C = Field(16, 8), Field(24, 8), Field(32, 8), Field(64, 8)  # registers
NEGATED_A, NEGATED_B = Field(72, 1), Field(63, 1)  # of FFMA: the signs of its factors
SIZE = Field(73, 3)  # of a memory operand
FIRST_PREDICATE, SECOND_PREDICATE = Field(81, 3), Field(84, 3)  # that an instruction writes
FIRST_CONDITION, SECOND_CONDITION, THIRD_CONDITION = Field(87, 3), Field(77, 3), Field(68, 3)  # predicates it reads
THIRD_IS_UNIFORM = Field(67, 1)  # of PLOP3: the third is one of the uniform predicates
PREDICATE_MASK = Field(32, 7)  # of P2R and R2P: a bit for each predicate, whichever byte they are moved to
TARGET = Field(34, 48), Field(16, 8)  # of a branch, high and low: in steps of 4 bytes from the instruction behind it
MEETING = Field(16, 4)  # of BSSY and BSYNC: the barrier where threads meet
MEETING_POINT = Field(32, 32)  # of BSSY: in bytes from there

WIDE = Field(80, 1)  # of CS2R: two registers

STALL = Field(105, 4)  # cycles until the warp's next instruction
WRITE_BARRIER = Field(110, 3)  # set until the result is there
READ_BARRIER = Field(113, 3)  # set until the operands were read
WAIT = Field(116, 6)  # one bit for each barrier that must be clear
REUSE = Field(122, 4)  # bit 0, 1, 2: keep operand A, B, C for the next instruction
REUSE_A, REUSE_B, REUSE_C = 1, 2, 4
CONTROL = Field(105, 21)  # all of these, and the hint whether to yield to another warp

# Opcodes without their forms.
FFMA, IMAD, IMAD_WIDE, IMAD_HI, IADD3, LEA, LOP3, SHF, PRMT, HFMA2 = (
    0x023, 0x024, 0x025, 0x027, 0x010, 0x011, 0x012, 0x019, 0x016, 0x035,
)  # fmt: skip
MOV, SEL, ISETP, VIADD, VIMNMX, VIADDMNMX, FMUL, FADD, FSETP, FSEL, FMNMX, IABS, P2R, R2P, PLOP3 = (
    0x002, 0x007, 0x00C, 0x036, 0x048, 0x046, 0x020, 0x021, 0x00B, 0x008, 0x009, 0x013, 0x003, 0x004, 0x01C,
)  # fmt: skip
CS2R, S2R, S2UR, R2UR, MUFU, I2F, F2I, I2F_64, F2I_64, POPC, FLO, SHFL = (
    0x005, 0x119, 0x1C3, 0x0CA, 0x108, 0x106, 0x105, 0x112, 0x111, 0x109, 0x100, 0x189,
)  # fmt: skip
LDC, LDS, LDG, LDL, LDGSTS, STS, STG, STL, LDGDEPBAR, DEPBAR, BAR, MEMBAR = (
    0x182, 0x184, 0x181, 0x183, 0x1AE, 0x188, 0x186, 0x187, 0x1AF, 0x11A, 0x11D, 0x192,
)  # fmt: skip
BRA, CALL, RET, EXIT, BSSY, BSYNC, WARPSYNC, NOP = 0x147, 0x144, 0x150, 0x14D, 0x145, 0x141, 0x148, 0x118
ELSEWHERE = 0x143  # a call of a function of another section, which returns behind it
UMOV, USEL, UISETP, UIADD3, ULEA, ULOP3, USHF, UPLOP3, UIMAD, UIMAD_WIDE, ULDC = (
    0x082, 0x087, 0x08C, 0x090, 0x091, 0x092, 0x099, 0x09C, 0x0A4, 0x0A5, 0x0B9,
)  # fmt: skip
_UNIFORM_WITH_OUTCOMES = {UISETP, UIADD3, ULEA, ULOP3, UPLOP3, UIMAD, UIMAD_WIDE}  # which can write predicates
UNIFORM = {UMOV, USEL, USHF, ULDC, 0x086, 0x0BD, *_UNIFORM_WITH_OUTCOMES}  # on uniform registers alone

BRANCHES = {BRA, BSSY, CALL}
MEMORY = {LDC, LDS, LDGSTS}  # of a loop: done at an unknown time, which a barrier tells
SYNCHRONIZATION = {LDGDEPBAR, DEPBAR, BAR}
# Of a loop: done in a known time.
ARITHMETIC = {
    FFMA, IMAD, IMAD_WIDE, IMAD_HI, IADD3, LEA, LOP3, SHF, PRMT, MOV, SEL, ISETP, VIADD, VIMNMX, VIADDMNMX, IABS,
    PLOP3, P2R, R2P,
}  # fmt: skip

_OF_MEMORY = -1  # as many registers as the instruction's size says

# What instructions read, and in how many registers they write.
_OPERANDS: dict[int, tuple[dict[str, int], int]] = {
    **dict.fromkeys((FFMA, IMAD, IADD3, LEA, LOP3, SHF, PRMT, HFMA2, VIADDMNMX), ({"A": 1, "B": 1, "C": 1}, 1)),
    **dict.fromkeys((SEL, VIADD, VIMNMX, FMUL, FADD, FSEL, FMNMX), ({"A": 1, "B": 1}, 1)),
    **dict.fromkeys((ISETP, FSETP), ({"A": 1, "B": 1}, 0)),
    **dict.fromkeys((MOV, IABS, MUFU), ({"B": 1}, 1)),
    **dict.fromkeys((I2F, F2I, I2F_64, F2I_64), ({"B": 2}, 1)),
    **dict.fromkeys((LDC, LDS, LDL), ({"A": 1}, _OF_MEMORY)),
    S2R: ({}, 1),
    CS2R: ({}, 2),
    **dict.fromkeys((*SYNCHRONIZATION, *UNIFORM, BRA, CALL, EXIT, BSSY, BSYNC, NOP, S2UR, MEMBAR, PLOP3), ({}, 0)),
    IMAD_WIDE: ({"A": 1, "B": 1, "C": 2}, 2),
    IMAD_HI: ({"A": 1, "B": 1, "C": 2}, 1),
    LDGSTS: ({"D": 1, "A": 2}, 0),
    LDG: ({"A": 2}, _OF_MEMORY),
    STG: ({"A": 2, "B": _OF_MEMORY}, 0),
    **dict.fromkeys((STS, STL), ({"A": 1, "B": _OF_MEMORY}, 0)),
    RET: ({"A": 2}, 0),
    R2UR: ({"A": 1}, 0),
    P2R: ({"A": 1}, 1),
    R2P: ({"A": 1}, 0),
}

# Where instructions name the predicates that they write, and those that they read beside their guard. P2R and R2P have a mask.
_PREDICATES_WRITTEN: dict[int, tuple[Field, ...]] = {
    **dict.fromkeys((ISETP, FSETP, PLOP3, IADD3, VIMNMX), (FIRST_PREDICATE, SECOND_PREDICATE)),
    **dict.fromkeys((LEA, LOP3, IMAD, IMAD_WIDE, IMAD_HI, LDG, R2UR), (FIRST_PREDICATE,)),
}
_PREDICATES_READ: dict[int, tuple[Field, ...]] = {
    **dict.fromkeys((LEA, LOP3, IMAD, IMAD_WIDE, IMAD_HI, SEL, FSEL, VIMNMX, VIADDMNMX, FMNMX), (FIRST_CONDITION,)),
    **dict.fromkeys((FSETP, LDGSTS, BRA), (FIRST_CONDITION,)),
    ISETP: (FIRST_CONDITION, THIRD_CONDITION),
    IADD3: (FIRST_CONDITION, SECOND_CONDITION),
    PLOP3: (FIRST_CONDITION, SECOND_CONDITION, THIRD_CONDITION),
}
PREDICATES = frozenset(range(ALWAYS))

# Of these no more is known than that an operand is no wider than what is taken here.
_NARROW = {POPC, FLO, SHFL, WARPSYNC}

_CONSTANT = 4  # FORM: the operand beside A is one

_UNDERSTOOD = {
    code | form << FORM.at
    for code in _OPERANDS
    for form in range(1 << FORM.bits)
    if code not in (P2R, R2P) or form == _CONSTANT
}  # with their forms

_WIDEST = 4  # registers of one operand

_WIDTHS = {4: 1, 5: 2, 6: 4}  # SIZE: registers; smaller ones take a register too


class Operand(NamedTuple):
    """Registers that an instruction reads or writes: where the first is named, its number, and how many there are."""

    field: Field
    register: int
    width: int

    @property
    def registers(self) -> range:
        """All of them."""
        return range(self.register, self.register + self.width)


def base(word: int) -> int:
    """The opcode of an instruction, whatever the form of its operands."""
    return word & 0x1FF


def understood(word: int) -> bool:
    """Whether `reads` and `writes` know the instruction, and the like for predicates."""
    return word & 0xFFF in _UNDERSTOOD


def ordinary(word: int) -> bool:
    """Whether `may_read` knows enough of the instruction."""
    return word & 0xFFF in _UNDERSTOOD or base(word) in _NARROW or base(word) == ELSEWHERE


def _width(word: int, width: int) -> int:
    return _WIDTHS.get(SIZE.get(word), 1) if width == _OF_MEMORY else width


@decoded
def reads(word: int) -> tuple[Operand, ...]:
    """The operands that an understood instruction reads."""
    found = []
    for place, at, width in _read_places(word & 0xFFF):
        register = word >> at & 0xFF
        if register != ZERO:
            found.append(Operand(place, register, width if width > 0 else _width(word, width)))
    return tuple(found)


@cache
def _read_places(opcode: int) -> tuple[tuple[Field, int, int], ...]:
    """Where an understood instruction names what it reads, from which bit on, and in how many registers each is."""
    b, c = _b_and_c(FORM.get(opcode)) if base(opcode) & 0x100 == 0 else (B, C)
    places = {"A": A, "B": b, "C": c, "D": D}
    return tuple(
        (place, place.at, width)
        for name, width in _OPERANDS[base(opcode)][0].items()
        if (place := places[name]) is not None
    )


@decoded
def parts_read(word: int) -> tuple[tuple[tuple[int, int], int], ...]:
    """The registers that an understood instruction reads, each behind its operand's place and its number in that."""
    return tuple([((o.field.at, i), r) for o in reads(word) for i, r in enumerate(o.registers)])


@decoded
def places_read(word: int) -> tuple[tuple[int, int], ...]:
    """The registers that an understood instruction reads, each with the place where its operand is named."""
    return tuple([(operand.field.at, r) for operand in reads(word) for r in operand.registers if r != ZERO])


@decoded
def registers_read(word: int) -> tuple[int, ...]:
    """The registers that an understood instruction reads, in the order of its operands."""
    return tuple([register for operand in reads(word) for register in operand.registers])


@decoded
def writes(word: int) -> Operand | None:
    """What an understood instruction writes."""
    register, width = word >> 16 & 0xFF, _OPERANDS[word & 0x1FF][1]
    return Operand(D, register, _width(word, width)) if width and register != ZERO else None


def registers_written(word: int) -> Sequence[int]:
    """The registers that an understood instruction writes."""
    operand = writes(word)
    return operand.registers if operand else ()


def _b_and_c(form: int) -> tuple[Field | None, Field | None]:
    """Where the registers B and C are named: in five forms one of the two is a constant or a uniform register."""
    if form == 1:
        return B, C
    return (None, C) if form in (4, 5, 6) else (C, None)


@decoded
def may_read(word: int) -> frozenset[int]:
    """Every register that an instruction, understood or not, can read: at least those."""
    if understood(word):
        return frozenset(registers_read(word))
    if base(word) == ELSEWHERE:
        return frozenset(range(ZERO))
    return frozenset(f.get(word) + i for f in (D, A, B, C) for i in range(_WIDEST))


_ALL = (1 << ZERO) - 1


@decoded
def read_mask(word: int) -> int:
    """`may_read`, a bit for each register."""
    if not understood(word):
        return _mask(may_read(word))
    found = 0
    for _, at, width in _read_places(word & 0xFFF):
        register = word >> at & 0xFF
        if register != ZERO:
            found |= (1 << (width if width > 0 else _width(word, width))) - 1 << register
    return found & _ALL


@decoded
def written_mask(word: int) -> int:
    """`may_write`, a bit for each register."""
    if not understood(word):
        return _mask(may_write(word))
    register, width = word >> 16 & 0xFF, _OPERANDS[word & 0x1FF][1]
    return (1 << _width(word, width)) - 1 << register & _ALL if width and register != ZERO else 0


def _mask(registers: Iterable[int]) -> int:
    return sum(1 << register for register in registers if register < ZERO)


@decoded
def is_wide_load(word: int) -> bool:
    """Whether an instruction loads 16 bytes from shared memory."""
    return base(word) == LDS and (target := writes(word)) is not None and target.width == _WIDEST


def surely_writes(word: int) -> int:
    """Registers whose old values end with an instruction, if it runs, at most those; a bit for each."""
    if not understood(word):
        return 0
    made = written_mask(word)
    return made & -made if base(word) == CS2R and not WIDE.get(word) else made


@decoded
def may_write(word: int) -> frozenset[int]:
    """Every register that an instruction, understood or not, can write: at least those."""
    if understood(word):
        return frozenset(registers_written(word))
    if base(word) == ELSEWHERE:
        return frozenset(range(ZERO))
    return frozenset(D.get(word) + i for i in range(_WIDEST))


_PLAIN_FFMA = FORM.put(GUARD.put(FFMA, ALWAYS), 1)
_FREE_IN_FFMA = sum((1 << f.bits) - 1 << f.at for f in (D, A, B, C, NEGATED_A, NEGATED_B, CONTROL))


@decoded
def is_plain_ffma(word: int) -> bool:
    """Whether an instruction is d = ± a · b + c of four registers, under no predicate, with no rounding mode."""
    return word & ~_FREE_IN_FFMA == _PLAIN_FFMA and all(f.get(word) != ZERO for f in (D, A, B, C))


@decoded
def without_operands(word: int) -> int:
    """An understood instruction without what names its registers and predicates, and without its control."""
    named = tuple([operand.field for operand in reads(word)]) + predicate_fields(word)
    return word & ~_bits((*named, D, CONTROL) if writes(word) else (*named, CONTROL))


@cache
def _bits(fields: tuple[Field, ...]) -> int:
    found = 0
    for f in fields:
        found |= (1 << f.bits) - 1 << f.at
    return found


def waits_for(barriers: Iterable[int]) -> int:
    """The field WAIT for some barriers."""
    return sum(1 << barrier for barrier in barriers)


def sets(word: int) -> set[int]:
    """The barriers that an instruction sets."""
    both = word >> WRITE_BARRIER.at & 0x3F
    return {both & 7, both >> 3} - {NO_BARRIER} if both != 0x3F else set()


def predicate_fields(word: int) -> tuple[Field, ...]:
    """Where an understood instruction names predicates, but those that it names by a mask."""
    return (*_predicates_written(word), *_predicates_read(word))


@decoded
def predicates_written(word: int) -> Sequence[tuple[int, int]]:
    """The predicates that an understood instruction writes, each with its place among the outcomes."""
    if base(word) == R2P:
        return [(p, p) for p in _masked(word)]
    fields = _predicates_written(word)
    return [(i, f.get(word)) for i, f in enumerate(fields) if f.get(word) != ALWAYS] if fields else ()


@decoded
def predicates_read(word: int) -> Sequence[int]:
    """The predicates that an understood instruction reads, in the order of its fields, and that which is always true."""
    return [*(f.get(word) for f in _predicates_read(word)), *(_masked(word) if base(word) == P2R else ())]


@decoded
def writes_predicates(word: int) -> frozenset[int]:
    """The predicates that an instruction writes; of one that is not understood, all."""
    return frozenset(p for _, p in predicates_written(word)) if understood(word) else PREDICATES


@decoded
def reads_predicates(word: int) -> frozenset[int]:
    """The predicates that an instruction reads, its guard among them; of one that is not understood, all."""
    return PREDICATES.intersection(predicates_read(word)) if understood(word) else PREDICATES


@decoded
def predicate_masks(word: int) -> tuple[int, int]:
    """The predicates that an instruction writes and those that it reads, a bit for each."""
    return sum(1 << p for p in writes_predicates(word)), sum(1 << p for p in reads_predicates(word))


def _predicates_written(word: int) -> tuple[Field, ...]:
    return _PREDICATES_WRITTEN.get(base(word), ())


def _predicates_read(word: int) -> tuple[Field, ...]:
    conditions = _PREDICATES_READ.get(base(word), ())
    if base(word) == PLOP3 and THIRD_IS_UNIFORM.get(word):
        conditions = conditions[:-1]
    return (GUARD_PREDICATE, *conditions)


def _masked(word: int) -> list[int]:
    """The predicates that P2R or R2P moves."""
    mask = PREDICATE_MASK.get(word)
    return [p for p in sorted(PREDICATES) if mask >> p & 1]


def may_write_uniform_predicates(word: int) -> bool:
    """Whether an instruction may write a predicate of the uniform ones."""
    if base(word) not in UNIFORM - {UMOV, USEL, USHF, ULDC}:
        return False
    return base(word) not in _UNIFORM_WITH_OUTCOMES or any(
        f.get(word) != ALWAYS for f in (FIRST_PREDICATE, SECOND_PREDICATE)
    )


def target(word: int, index: int) -> int:
    """The index of the instruction to which the branch at an index goes."""
    if base(word) == BSSY:
        distance, bits = MEETING_POINT.get(word), MEETING_POINT.bits
    else:
        high, low = TARGET
        distance, bits = (high.get(word) << low.bits | low.get(word)) * 4, high.bits + low.bits + 2
    if distance >> bits - 1:
        distance -= 1 << bits
    return index + 1 + distance // BYTES
