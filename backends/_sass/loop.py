"""The main loop of a kernel's machine code, and the values that flow through one pass of it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cache, cached_property
from itertools import pairwise

from gemmport.backends._sass import encoding as sass
from gemmport.backends._sass.symbolic import State, Symbol, Symbols

ENTRY = -1  # the maker of the values that are there before the body; their part is the register

Value = tuple[int, int]  # the instruction that makes it, and which of its registers

SETTLED = 15  # cycles after which any result of known duration is there: the longest stall that can be written
FFMA_LATENCY = 6  # cycles that the result of an FFMA takes at most: NVIDIA's compilers leave four or five
ENTRY_STALL = 11  # cycles after which FFMAs can follow on what was computed before the loop

BARRIERS = 6  # of a warp
BARRIER_LATENCY = 2  # cycles until a barrier that an instruction sets can be waited for: compilers never leave fewer

_SLOT = 256  # bits: one for each register
_NEGATED = 8  # bit of a guard

_TURNS = {sass.BRA, sass.CALL, sass.RET, sass.EXIT, sass.BSSY}  # those behind which something else follows, or is told

_OF_A_LOOP = sass.ARITHMETIC | sass.MEMORY | sass.SYNCHRONIZATION | sass.UNIFORM | {sass.BRA}


class NotUnderstoodError(Exception):
    """Why a kernel's machine code is left as it is."""


class Body:
    """One pass of the loop: straight-line code that ends with the branch back.

    Attributes:
        words: its instructions.
        sources: for each instruction the values that it reads, by the operand's place and which of its registers.
        final: the value in each register at the end.
        leaving: instructions with a result that is needed after the body.
        in_place: instructions that, under a predicate, replace a value which is needed where they do not run.
    """

    def __init__(self, words: Sequence[int], live_out: set[int]) -> None:
        """Raises NotUnderstoodError where an instruction is not known, or replaces what the body made and needs in part."""
        self.words = list(words)
        self.sources: list[dict[tuple[int, int], Value]] = []
        self.final: dict[int, Value] = {r: (ENTRY, r) for r in range(sass.ZERO)}
        state = State(Symbols())
        made_under: dict[int, Symbol] = {}
        replaced: dict[int, set[Value]] = {}
        seen_under: dict[Value, set[Symbol]] = defaultdict(set)
        for k, word in enumerate(self.words):
            known = sass.base(word) in _OF_A_LOOP and sass.understood(word)
            if not known or (sass.base(word) == sass.BRA) != (k == len(self.words) - 1):
                raise NotUnderstoodError(f"opcode {sass.OPCODE.get(word):#x} in the loop")
            if sass.base(word) in sass.ARITHMETIC and sass.sets(word):
                raise NotUnderstoodError(f"opcode {sass.OPCODE.get(word):#x} takes an unknown time in the loop")
            guard = state.guard(word)
            sources = {part: self.final[r] for part, r in sass.parts_read(word)}
            self.sources.append(sources)
            for value in sources.values():
                seen_under[value].add(guard)
            state.run(word)
            if target := sass.registers_written(word):
                made_under[k], replaced[k] = guard, {self.final[r] for r in target}
                self.final.update({r: (k, i) for i, r in enumerate(target)})
        self.leaving = {self.final[r][0] for r in live_out} - {ENTRY}
        self.in_place: set[int] = set()
        for k, guard in made_under.items():
            elsewhere = any(seen_under[k, i] - {guard} for i in range(len(replaced[k])))
            if sass.GUARD.get(self.words[k]) != sass.ALWAYS and (elsewhere or k in self.leaving):
                if any(maker != ENTRY for maker, _ in replaced[k]):
                    raise NotUnderstoodError(f"instruction {k} of the loop replaces a part of what the loop made")
                self.in_place.add(k)

    @cached_property
    def times(self) -> list[int]:
        """The cycle in which each instruction is issued at the earliest."""
        times = [0]
        for word in self.words[:-1]:
            times.append(times[-1] + max(1, sass.STALL.get(word)))
        return times

    @cached_property
    def distances(self) -> list[list[tuple[int, int]]]:
        """For each instruction, those on which it depends, FFMAs aside, and the cycles that must lie between.

        These are as many as the compiler left, which knows how long each instruction takes; but no more than `SETTLED`.
        """
        found: list[list[tuple[int, int]]] = []
        others: list[int] = []
        times = self.times
        for k, word in enumerate(self.words):
            needs = []
            if sass.base(word) != sass.FFMA:
                makers = {maker for maker, _ in self.sources[k].values()}
                needs = [
                    (i, min(times[k] - times[i], SETTLED))
                    for i in others
                    if i in makers or depends_beside_registers(self.words[i], word)
                ]
                others.append(k)
            found.append(needs)
        return found

    def bank(self, value: Value) -> int:
        """A register in the bank in which a value lies, whichever it gets: those of a load of four stay four in a row."""
        maker, part = value
        return part if maker == ENTRY else sass.D.get(self.words[maker]) + part

    def glued(self, k: int) -> bool:
        """Whether an instruction must follow on that before it: NVIDIA's compilers put loads that never run before a copy."""
        return k > 0 and sass.base(self.words[k - 1]) == sass.LDS and sass.GUARD.get(self.words[k - 1]) == sass.NEVER

    def least_stall(self, k: int) -> int:
        """The stall that the compiler gave an instruction, or always gives before what may follow in another order."""
        if sass.base(self.words[k]) == sass.LDS:
            return 1  # a barrier tells of its result, whatever the stall
        always = {sass.IMAD: 2, sass.IMAD_WIDE: 4, sass.BAR: 6}.get(sass.base(self.words[k]), 1)
        return max(always, sass.STALL.get(self.words[k]))


def depends_beside_registers(before: int, word: int) -> bool:
    """Whether an instruction must not come before an earlier one because of a predicate, or of a uniform register.

    It may read a predicate that the earlier one writes, or write one that this reads or writes.
    """
    if sass.base(before) in sass.UNIFORM:
        return True
    made, taken = sass.predicate_masks(before)
    made_later, taken_later = sass.predicate_masks(word)
    return bool(made & taken_later or (made | taken) & made_later)


class Loop:
    """A loop of one basic block in a kernel.

    Attributes:
        first, last: the indices of its first instruction and of its branch back.
        live_in, live_out: registers whose values are needed at the start of the body, and at its end.
        body: one pass of it.
        barriers: those at its disposal: all but that of its asynchronous copies.
    """

    def __init__(self, words: Sequence[int], first: int, last: int, *, careful: bool = False) -> None:
        """Raises NotUnderstoodError as `Body`."""
        self.first, self.last = first, last
        self.live_in, behind = _needed(words, first, last + 1, opposite=careful)
        self.live_out = behind | self.live_in
        self.body = Body(words[first : last + 1], self.live_out)
        copies = {sass.WRITE_BARRIER.get(word) for word in self.body.words if sass.base(word) == sass.LDGDEPBAR}
        self.barriers = sorted(set(range(BARRIERS)) - copies)


def main_loop(words: Sequence[int], *, careful: bool = False) -> Loop:
    """The loop of one basic block with the most FFMAs.

    Args:
        words: of its function.
        careful: whether it is looked for what two opposite predicates write, which is then not needed before.

    Raises:
        NotUnderstoodError: there is none, or the function has an instruction that is not known.
    """
    for index, word in enumerate(words):
        if not sass.ordinary(word):
            raise NotUnderstoodError(f"opcode {sass.OPCODE.get(word):#x} at instruction {index}")
    codes = [sass.base(word) for word in words]
    branches = [(sass.target(words[i], i), i) for i, code in enumerate(codes) if code in sass.BRANCHES]
    loops = [
        (first, last)
        for first, last in branches
        if 0 < first < last
        and codes[last] == sass.BRA
        and sass.FFMA in codes[first:last]
        and not any(first <= at < last or (first <= to <= last and at != last) for to, at in branches)
    ]
    if not loops:
        raise NotUnderstoodError("there is no loop of one block with FFMAs")
    return Loop(words, *max(loops, key=lambda loop: codes[slice(*loop)].count(sass.FFMA)), careful=careful)


def _needed(words: Sequence[int], *starts: int, opposite: bool = False) -> list[set[int]]:
    """The registers that are needed before each of these instructions, which begin blocks: at least those.

    They are those that some instruction, on some way from there, may read, and none before it surely wrote: under no predicate,
    or under that of the reader, which has kept its value in between; or, with `opposite`, one under a predicate and another
    under its negation.
    """
    exposed = list(_exposed(words))
    made = [sass.surely_writes(word) << sass.GUARD.get(word) * _SLOT for word in words]
    lost = [_conditional_on(sass.writes_predicates(word)) for word in words]
    successors = _successors(words)
    found = []
    for start in starts:
        # What was surely written on every way to an instruction: registers, in a slot for each predicate that it was under.
        written = {start: 0}
        needed, ahead = 0, [start]
        while ahead:
            i = ahead.pop()
            if i == len(words):
                continue
            known = written[i]
            if exposed[i]:
                there = known >> sass.ALWAYS * _SLOT | known >> sass.GUARD.get(words[i]) * _SLOT
                if opposite:
                    there |= _under_both(known)
                needed |= exposed[i] & ~there
            behind = (known | made[i]) & ~lost[i] if lost[i] else known | made[i]
            for j in successors[i]:
                both = written[j] & behind if j in written else behind
                if written.get(j) != both:
                    written[j] = both
                    ahead.append(j)
        found.append({r for r in range(sass.ZERO) if needed >> r & 1})
    return found


def _under_both(known: int) -> int:
    """The registers that were written under a predicate, and under its negation."""
    both = 0
    for p in range(sass.ALWAYS):
        both |= known >> p * _SLOT & known >> (p | _NEGATED) * _SLOT & (1 << _SLOT) - 1
    return both


@cache
def _conditional_on(predicates: frozenset[int]) -> int:
    """The slots of what is written under these predicates, or their negations."""
    return sum(((1 << _SLOT) - 1) * (1 << p * _SLOT | 1 << (p | _NEGATED) * _SLOT) for p in predicates)


def _exposed(words: Sequence[int]) -> Iterator[int]:
    """What each instruction may read, less what an earlier one of its block wrote under a predicate of the same value; a bit
    for each register.
    """
    starts = {0, len(words)}
    for i, word in enumerate(words):
        if sass.base(word) in sass.BRANCHES:
            starts |= {i + 1, sass.target(word, i)}
        elif not sass.understood(word):
            starts.add(i + 1)
    for first, behind in pairwise(sorted(start for start in starts if 0 <= start <= len(words))):
        block = words[first:behind]
        yield from _exposed_by_numbers(block) or _exposed_by_values(block)


def _exposed_by_numbers(words: Sequence[int]) -> list[int] | None:
    """`_exposed` of a block; None where predicates' numbers do not tell whether their values are the same."""
    exposed = []
    written: dict[
        tuple[int, int], int
    ] = {}  # by the guard, which has a condition, and how often its predicate has changed
    changes = [0] * (sass.ALWAYS + 1)
    for word in words:
        read = sass.read_mask(word)
        if sass.understood(word):
            guard, made = sass.GUARD.get(word), sass.written_mask(word)
            own = guard, changes[guard & sass.ALWAYS]
            if guard != sass.ALWAYS and read:
                if any(read & there for other, there in written.items() if other != own):
                    return None
                read &= ~written.get(own, 0)
            for other in [other for other, there in written.items() if there & made] if written else ():
                written[other] &= ~made
            if made and guard != sass.ALWAYS:
                written[own] = written.get(own, 0) | made
            for _, p in sass.predicates_written(word):
                changes[p] += 1
        exposed.append(read)
    return exposed


def _exposed_by_values(words: Sequence[int]) -> list[int]:
    """`_exposed` of a block."""
    exposed = []
    written: dict[int, Symbol] = {}
    state = State(Symbols())
    for word in words:
        read = sass.read_mask(word)
        if sass.understood(word):
            guard = state.guard(word)
            if sass.GUARD.get(word) != sass.ALWAYS:
                read &= ~sum(1 << r for r in sass.may_read(word) if written.get(r) == guard)
            state.run(word)
            written.update(dict.fromkeys(sass.registers_written(word), guard))
        exposed.append(read)
    return exposed


def _successors(words: Sequence[int]) -> list[list[int]]:
    """The instructions that can follow each.

    A BSYNC is followed by the meeting point of a BSSY that set its barrier last, on whichever way.
    """
    codes = [sass.base(word) for word in words]
    returns = [i + 1 for i, code in enumerate(codes) if code == sass.CALL]
    followed = [{i + 1} for i in range(len(words))]
    meeting = []
    for i, code in enumerate(codes):
        if code not in _TURNS:
            continue
        word = words[i]
        if code in (sass.BRA, sass.EXIT, sass.RET) and sass.GUARD.get(word) == sass.ALWAYS:
            followed[i].clear()
        if code in (sass.BRA, sass.CALL):
            followed[i].add(sass.target(word, i))
        elif code == sass.RET:
            followed[i].update(returns)
        elif code == sass.BSSY:
            meeting.append(i)
    met: dict[int, set[tuple[int, int]]] = defaultdict(set)  # barriers and meeting points, before each
    while meeting:
        i = meeting.pop()
        word, held = words[i], met[i]
        if codes[i] == sass.BSYNC:
            followed[i].update(to for barrier, to in held if barrier == sass.MEETING.get(word))
        elif codes[i] == sass.BSSY:
            own, always = sass.MEETING.get(word), sass.GUARD.get(word) == sass.ALWAYS
            held = {*((b, to) for b, to in held if b != own or not always), (own, sass.target(word, i))}
        for j in followed[i]:
            if j < len(words) and not held <= met[j]:
                met[j] |= held
                meeting.append(j)
    return [sorted(follow) for follow in followed]
