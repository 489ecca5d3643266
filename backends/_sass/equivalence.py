"""Proof that a loop in another order, with other registers, does what it did.

Both bodies are run on symbols: what is in a register is named by how it came about. They do the same where their instructions
other than FFMAs are the same, in the same order, on the same values, and where each register that is needed afterwards ends
with the same value. Beside this no instruction of the new one may come too early: not before the results that it reads are
there, nor before what it overwrites has been read.
"""

from __future__ import annotations

from collections.abc import Sequence

from gemmport.backends._sass import encoding as sass
from gemmport.backends._sass.loop import (
    BARRIER_LATENCY,
    BARRIERS,
    ENTRY_STALL,
    FFMA_LATENCY,
    SETTLED,
    Loop,
    NotUnderstoodError,
    depends_beside_registers,
)
from gemmport.backends._sass.symbolic import State, Symbols


def check(before: Sequence[int], after: Sequence[int], loop: Loop) -> None:
    """Whether a function does what it did, given the loop of `before` that alone may differ.

    Raises:
        NotUnderstoodError: that is not proven.
    """
    if len(before) != len(after):
        raise NotUnderstoodError("the function's size has changed")
    inside = range(loop.first, loop.last + 1)
    for i, words in enumerate(zip(before, after, strict=True)):
        if i not in inside and words[0] != words[1] and len({sass.CONTROL.put(word, 0) for word in words}) > 1:
            raise NotUnderstoodError(f"instruction {i}, outside of the loop, has changed")
    symbols = Symbols()
    was, now = State(symbols), State(symbols)
    for state, code in ((was, before), (now, after)):
        for i in inside:
            state.run(code[i])
    if was.actions != now.actions:
        raise NotUnderstoodError("the loop's instructions other than FFMAs, or their operands, are not what they were")
    for register in loop.live_out:
        if was.register(register) != now.register(register):
            raise NotUnderstoodError(f"R{register} ends with another value")
    for predicate in sass.PREDICATES:
        if was.predicate(predicate) != now.predicate(predicate):
            raise NotUnderstoodError(f"P{predicate} ends with another value")
    _check_barriers(after, loop)
    _check_marks(after[loop.first : loop.last + 1])
    _check_distances(before, after, loop)


def _check_barriers(after: Sequence[int], loop: Loop) -> None:
    """Whether no instruction uses a register before those that load it, or are still to read it, are done.

    Each pass, and the code behind the loop, begins with the loop's barriers clear, so that one pass is all to look at.
    """
    for at in (loop.first, loop.last + 1):
        if any(not sass.WAIT.get(after[at]) >> barrier & 1 for barrier in loop.barriers):
            raise NotUnderstoodError(f"instruction {at} does not wait for all barriers of the loop")
    copies = {*range(BARRIERS)} - {*loop.barriers}
    pending: dict[int, tuple[int, int]] = {}  # of barriers: the registers that are read until then, and those written
    time = 0
    set_at: dict[int, int] = {}
    for word in (*after[loop.first : loop.last + 1], after[loop.first]):
        code, wait, barriers = sass.base(word), sass.WAIT.get(word), sass.sets(word)
        if wait and any(wait >> barrier & 1 and time - then < BARRIER_LATENCY for barrier, then in set_at.items()):
            raise NotUnderstoodError("an instruction of the loop waits for a barrier before it is set")
        set_at.update(dict.fromkeys(barriers, time))
        time += max(1, sass.STALL.get(word))
        needed, made = sass.read_mask(word), sass.written_mask(word)
        if wait:
            pending = {barrier: masks for barrier, masks in pending.items() if not wait >> barrier & 1}
        if any(written & (needed | made) or read & made for read, written in pending.values()):
            raise NotUnderstoodError("an instruction of the loop does not wait for one before it")
        if code == sass.BAR and any(written for _, written in pending.values()):
            raise NotUnderstoodError("a block's threads meet before what they may overwrite then has been read")
        if code == sass.FFMA and sass.REUSE.get(word) and made & needed != 1 << sass.C.get(word):
            raise NotUnderstoodError("an FFMA of the loop marks what it overwrites for reuse")
        if wait and any(wait >> barrier & 1 for barrier in copies):
            raise NotUnderstoodError("an instruction of the loop waits for asynchronous copies by their barrier")
        if code == sass.LDGDEPBAR:
            continue
        if code in sass.MEMORY and (made or code == sass.LDGSTS):
            barrier = sass.READ_BARRIER.get(word) if code == sass.LDGSTS else sass.WRITE_BARRIER.get(word)
            if barrier == sass.NO_BARRIER:
                raise NotUnderstoodError("an instruction of unknown duration has no barrier")
            read, written = pending.get(barrier, (0, 0))
            pending[barrier] = read | needed, written | made
        elif barriers:
            raise NotUnderstoodError("an instruction of known duration has a barrier")
        if barriers & copies:
            raise NotUnderstoodError("an instruction of the loop sets the barrier of asynchronous copies")


def _check_marks(body: Sequence[int]) -> None:
    """Whether what FFMAs mark for reuse is not overwritten while a later one may find it instead of reading it.

    What is marked is kept until an FFMA has another register of its bank in that place, or, which no loop here has told, the
    same without a mark. So nothing is kept from one pass to the next, or behind the loop.
    """
    marks = {sass.A.at: sass.REUSE_A, sass.B.at: sass.REUSE_B, sass.C.at: sass.REUSE_C}
    kept: dict[tuple[int, int], int] = {}  # by place and bank
    for word in body:
        if sass.base(word) == sass.FFMA:
            for at, register in sass.places_read(word):
                kept.pop((at, register & 1), None)
                if sass.REUSE.get(word) & marks[at]:
                    kept[at, register & 1] = register
        elif sass.REUSE.get(word):
            raise NotUnderstoodError("an instruction of the loop other than FFMAs marks an operand for reuse")
        if not sass.may_write(word).isdisjoint(kept.values()):
            raise NotUnderstoodError("what an FFMA of the loop marks for reuse is overwritten before it is read again")
    if kept:
        raise NotUnderstoodError("what an FFMA of the loop marks for reuse is still kept behind it")


def _check_distances(before: Sequence[int], after: Sequence[int], loop: Loop) -> None:
    """Whether no instruction follows sooner than it did on one on which it depends, by less than any result takes.

    What is looked at is the code just before the loop, two passes of it, and the code just behind it.
    """
    around = [
        range(loop.first - SETTLED, loop.first),
        *[range(loop.first, loop.last + 1)] * 2,
        range(loop.last + 1, loop.last + 1 + SETTLED),
    ]
    was, now = (
        _distances([code[i] for part in around for i in part if 0 <= i < len(code)]) for code in (before, after)
    )
    for pair, cycles in now.others.items():
        if cycles < min(was.others.get(pair, SETTLED), SETTLED):
            raise NotUnderstoodError(
                f"an instruction of the loop comes {cycles} cycles after one on which it depends: too soon"
            )
    if now.after_ffma < FFMA_LATENCY or now.before_ffma < ENTRY_STALL:
        raise NotUnderstoodError(
            f"results are read {now.after_ffma} cycles after FFMAs, or {now.before_ffma} by FFMAs after others: too soon"
        )


class _Distances:
    """Cycles between instructions that depend on each other.

    Attributes:
        others: where neither is an FFMA: by the numbers of both among the other instructions.
        after_ffma, before_ffma: the fewest where the earlier one is, and where the later one is but not the earlier.
    """

    def __init__(self) -> None:
        self.others: dict[tuple[int, int], int] = {}
        self.after_ffma = self.before_ffma = SETTLED


def _distances(code: Sequence[int]) -> _Distances:
    """The distances in straight-line code, those through memory and barriers aside."""
    found = _Distances()
    maker: dict[int, tuple[int, int | None]] = {}  # of a register: when, and its number; None for an FFMA
    recent: list[tuple[int, int, int]] = []  # when, number and word of instructions other than FFMAs
    time = number = 0
    for word in code:
        is_ffma = sass.base(word) == sass.FFMA
        for register in sass.may_read(word) & maker.keys():
            then, by = maker[register]
            if by is None:
                found.after_ffma = min(found.after_ffma, time - then)
            elif is_ffma:
                found.before_ffma = min(found.before_ffma, time - then)
            else:
                found.others[by, number] = min(found.others.get((by, number), SETTLED), time - then)
        if not is_ffma:
            recent = [entry for entry in recent if time - entry[0] < SETTLED]
            for then, by, earlier in recent:
                if depends_beside_registers(earlier, word):
                    found.others[by, number] = time - then
            recent.append((time, number, word))
        for register in sass.may_write(word):
            maker.pop(register, None)
            if sass.base(word) not in sass.MEMORY:
                maker[register] = time, None if is_ffma else number
        number += not is_ffma
        time += max(1, sass.STALL.get(word))
    return found
