"""Straight-line code run on symbols: what is in a register or a predicate is named by how it came about."""

from __future__ import annotations

from gemmport.backends._sass import encoding as sass

Symbol = int


class Symbols:
    """Numbers for terms, equal for equal terms only."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[object, ...], Symbol] = {}

    def of(self, *term: object) -> Symbol:
        """The number of a term, whose operands are numbers."""
        return self._numbers.setdefault(term, len(self._numbers))


class State:
    """Registers and predicates on the way through straight-line code of understood instructions, as symbols.

    Attributes:
        actions: the symbols of the instructions so far, plain FFMAs aside.
    """

    def __init__(self, symbols: Symbols) -> None:
        self._symbols = symbols
        self._registers: dict[int, Symbol] = {}
        self._predicates: dict[int, Symbol] = {}
        self._partial: dict[int, tuple[Symbol, Symbol]] = {}  # a guard, and what is in a register where it held
        self._uniform, self._uniform_predicates = 0, 0  # instructions that have changed the one or the other
        self.actions: list[Symbol] = []

    def register(self, number: int) -> Symbol:
        """What is in a register."""
        found = self._registers.get(number)
        return self._symbols.of("register", number) if found is None else found

    def predicate(self, number: int) -> Symbol:
        """What is in a predicate."""
        found = self._predicates.get(number)
        return self._symbols.of("predicate", number) if found is None else found

    def guard(self, word: int) -> Symbol:
        """Whether the next instruction runs: equal for two only if both do, or neither."""
        return self._symbols.of("guard", sass.GUARD_NEGATED.get(word), self.predicate(sass.GUARD_PREDICATE.get(word)))

    def run(self, word: int) -> None:
        """Goes past an instruction."""
        if sass.is_plain_ffma(word):
            self._add(word)
            return
        guard = self.guard(word)
        action = self._action(word, [self._seen(r, guard) for r in sass.registers_read(word)])
        self.actions.append(action)
        for place, p in sass.predicates_written(word):
            self._predicates[p] = self._where(
                word, guard, self._symbols.of("outcome", place, action), self.predicate(p)
            )
        self._uniform += sass.base(word) in sass.UNIFORM
        self._uniform_predicates += sass.may_write_uniform_predicates(word)
        for i, r in enumerate(sass.registers_written(word)):
            result = self._symbols.of("result", i, action)
            self._registers[r] = self._where(word, guard, result, self.register(r))
            self._partial.pop(r, None)
            if sass.GUARD.get(word) != sass.ALWAYS:
                self._partial[r] = guard, result

    def _add(self, word: int) -> None:
        """Goes past a plain FFMA, which always runs."""
        a, b, c = map(self.register, sass.registers_read(word))
        target = sass.D.get(word)
        negated = sass.NEGATED_A.get(word) ^ sass.NEGATED_B.get(word)
        self._registers[target] = self._symbols.of("sum", negated, min(a, b), max(a, b), c)
        self._partial.pop(target, None)

    def _seen(self, register: int, guard: Symbol) -> Symbol:
        """What is in a register where a guard holds."""
        partial = self._partial.get(register)
        return partial[1] if partial is not None and partial[0] == guard else self.register(register)

    def _action(self, word: int, operands: list[Symbol]) -> Symbol:
        """An instruction on values. One in a loop that does nothing but compute is the same wherever it stands."""
        conditions = [self.predicate(p) for p in sass.predicates_read(word)]
        if sass.base(word) not in sass.ARITHMETIC:
            place = len(self.actions)
        else:
            place = self._uniform_predicates if sass.base(word) == sass.PLOP3 else self._uniform
        return self._symbols.of("action", place, sass.without_operands(word), *operands, "where", *conditions)

    def _where(self, word: int, guard: Symbol, new: Symbol, old: Symbol) -> Symbol:
        if sass.GUARD.get(word) == sass.ALWAYS:
            return new
        return self._symbols.of("either", guard, new, old)
