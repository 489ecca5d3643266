"""The main loop of a matrix product in an order that the register ports like (see `ports`).

Its FFMAs go term by term of the inner product, and for each along a path through the thread's tile (see `path`). The
other instructions keep their order, and come between. A sum stays in one register; what is loaded, and what is computed
on the way, gets registers anew, and all get barriers anew.
"""

from __future__ import annotations

import logging
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle

from gemmport.backends._sass import encoding as sass
from gemmport.backends._sass import equivalence
from gemmport.backends._sass.cubin import Code, functions, is_cubin
from gemmport.backends._sass.loop import (
    BARRIER_LATENCY,
    ENTRY,
    ENTRY_STALL,
    SETTLED,
    Body,
    Loop,
    NotUnderstoodError,
    Value,
    main_loop,
)
from gemmport.backends._sass.path import Product, in_one_bank, marks, path
from gemmport.backends._sass.ports import Flow, cost

log = logging.getLogger(__name__)

COMPUTE_CAPABILITY = 90  # of which the ports were measured

_APART = 4  # FFMAs between two other instructions
_LOADS_WITHIN = 0.45  # of a step's FFMAs the loads for the next are issued, evenly: they have the others to come

_PATIENCE = 6  # places that an instruction lets pass for one where it costs no more than its cycle

# Between which of a term's FFMAs the loads for the next are issued, as shares. The later, the fewer registers it takes.
_LOADS = (0.0, 0.4), (0.3, 0.65), (0.5, 0.8)

# Instructions after which one of unknown duration has read its operands: for sure, likely, most likely.
_HELD = 150, 80, 40, 16, 4

_BRANCH_STALL = 5  # cycles that the branch back takes at least, before the next pass

_STACK_POINTER = 1  # R1: left alone, though hardly a kernel has a stack

_FFMA_CONTROL = 1 | 1 << 4 | sass.NO_BARRIER << 5 | sass.NO_BARRIER << 8  # a stall of one cycle, no yield, no barriers


_REQUEST = re.compile(r"^#define SCHEDULE_FOR_PORTS (\d+)$", re.MULTILINE)


def asked_for(source: str) -> int:
    """Whether a source asks that its machine code be rescheduled: the work-groups that a multiprocessor shall hold, or 0."""
    request = _REQUEST.search(source)
    return int(request[1]) if request else 0


def rescheduled(binary: bytes, groups: int) -> bytes:
    """A cubin with the main loops of its functions in an order that takes fewer cycles.

    A cubin of another compute capability than 9.0 stays as it is, and so does a loop that is not understood, or another file.

    Args:
        binary: the cubin.
        groups: work-groups for which a multiprocessor's registers shall suffice, if they did.
    """
    if not is_cubin(binary):
        return binary
    for function in functions(binary):
        code = Code(binary, function)
        if code.compute_capability != COMPUTE_CAPABILITY:
            continue
        try:
            loop, words = _proven(code, groups)
        except NotUnderstoodError as reason:
            log.debug("%s stays as it was compiled: %s", function, reason)
            continue
        before, after = (cost(x[loop.first : loop.last + 1]).cycles for x in (code.words, words))
        log.debug("a pass of the main loop of %s takes %d cycles; in another order %d", function, before, after)
        if after < before:
            binary = code.replaced(words)
    return binary


def _proven(code: Code, groups: int) -> tuple[Loop, list[int]]:
    """The function's main loop, and the function with the loop in another order, which does the same.

    Where no order is proven, it is tried once more with care. What leaves the loop then waits for its register. Each register
    of an operand is free by itself. What two opposite predicates write counts as written. A loop that has an order without care
    keeps that one, whose times were measured.

    Raises:
        NotUnderstoodError: nothing came of that either.
    """
    try:
        return _checked(code, groups, careful=False)
    except NotUnderstoodError as reason:
        log.debug("once more with care: %s", reason)
        return _checked(code, groups, careful=True)


def _checked(code: Code, groups: int, *, careful: bool) -> tuple[Loop, list[int]]:
    loop = main_loop(code.words, careful=careful)
    words = _rewritten(code, loop, groups, careful=careful)
    equivalence.check(code.words, words, loop)
    return loop, words


def _rewritten(code: Code, loop: Loop, groups: int, *, careful: bool) -> list[int]:
    """The function with the loop in another order."""
    steps = _steps(loop.body)
    order: list[Product] = []
    # Where products have all their operands in one bank, as in the loops of shared tiles, two rows at a time were 3 % slower
    # on an H200 than one, though they read less; large products without were 1.5 % faster (docs/ports.md).
    height = 1 if any(in_one_bank(loop.body, product) for step in steps for product in step) else 2
    for step in steps:
        order += path(loop.body, step, order, height)
    most = code.most_registers(groups)
    sequence, registers = _fitted(loop, order, len(order) // len(steps), most, careful=careful)
    words = list(code.words)
    words[loop.first : loop.last + 1] = _synchronized(_renamed(loop.body, sequence, order, registers), loop.barriers)
    words[loop.first - 1] = sass.STALL.put(
        words[loop.first - 1], max(ENTRY_STALL, sass.STALL.get(words[loop.first - 1]))
    )
    behind = words[loop.last + 1]
    words[loop.last + 1] = sass.WAIT.put(behind, sass.WAIT.get(behind) | sass.waits_for(loop.barriers))
    return words


def _fitted(
    loop: Loop, order: Sequence[Product], size: int, most: int, *, careful: bool
) -> tuple[list[int], dict[Value, int]]:
    """The new order and the registers: loads as early, and operands left alone as long, as there are registers for it."""
    why = NotUnderstoodError("nothing was tried")
    for begin, end in _LOADS:
        sequence = _merged(loop.body, order, size, begin, end, patient=careful)
        for held in _HELD:
            try:
                return sequence, _allocated(loop, sequence, order, most, held, apart=careful)
            except NotUnderstoodError as reason:
                why = reason
    raise why


def _steps(body: Body) -> list[list[Product]]:
    """The products by the term of the inner product to which they belong: their place in the chain of additions to a sum."""
    chain: dict[Value, tuple[int, int]] = {}  # of a sum on its way: its register and the number of terms in it
    steps: dict[int, list[Product]] = defaultdict(list)
    uses = Counter(value for sources in body.sources for value in sources.values())
    for k, word in enumerate(body.words):
        if sass.base(word) != sass.FFMA:
            if any(value in chain for value in body.sources[k].values()):
                raise NotUnderstoodError(f"instruction {k} of the loop, which must be an FFMA, reads a sum")
            continue
        if not sass.is_plain_ffma(word):
            raise NotUnderstoodError(
                f"FFMA {k} of the loop has a predicate, a modifier beside the signs of its factors, or RZ"
            )
        a, b, c = (body.sources[k][f.at, 0] for f in (sass.A, sass.B, sass.C))
        home, terms = chain.get(c, (c[1], 0))
        if a in chain or b in chain or (c not in chain and c[0] != ENTRY) or uses[c] != 1:
            raise NotUnderstoodError(f"FFMA {k} of the loop must add to a sum, and multiply two factors")
        chain[k, 0] = home, terms + 1
        steps[terms].append(Product(k, a, b, home))
    if not steps or len({len(step) for step in steps.values()}) != 1:
        raise NotUnderstoodError("the sums of the loop get no terms, or not as many each")
    for product in steps[0]:
        if chain.get(body.final[product.home]) != (product.home, len(steps)):
            raise NotUnderstoodError(f"the sum that enters the loop in R{product.home} does not leave it there")
    return [steps[terms] for terms in sorted(steps)]


def _merged(body: Body, order: Sequence[Product], size: int, begin: float, end: float, *, patient: bool) -> list[int]:
    """The body's instructions in their new order, by their places in the old: products as given, the others in their order.

    Args:
        body: the loop's body.
        order: its products.
        size: products of a step.
        begin, end: the shares of a step's products between which the loads for the next step are issued.
        patient: whether what leaves the loop waits until products have read what its register has.
    """
    others = [k for k in range(len(body.words) - 1) if sass.base(body.words[k]) != sass.FFMA]
    earliest = _earliest(body, order, size, others, int(begin * size))
    if patient:
        for k, done in _awaiting_registers(body, order, others).items():
            earliest[k] = max(earliest[k], done)
    latest = _latest(body, order, others, size - int(end * size))
    loads = sum(sass.base(body.words[k]) == sass.LDS for k in others)
    loads_apart = int(_LOADS_WITHIN * len(order) / loads)
    apart = min(_APART, len(order) // len(others) - 1)
    products = _products(body, order)
    flow = Flow()
    sequence: list[int] = []
    issued: dict[int, int] = {}
    time, done, last_other, last_load, waits = 0, 0, -SETTLED, -SETTLED, 0
    for k in others:
        word = sass.REUSE.put(body.words[k], 0)
        load, glued = sass.base(word) == sass.LDS, body.glued(k)
        ready = max([issued[i] + cycles for i, cycles in body.distances[k]], default=0)
        while done < len(order):
            product = order[done]
            if any(maker != ENTRY and maker not in issued for maker, _ in (product.row, product.column)):
                break
            if ready <= time and (done >= earliest[k] or glued):
                if glued or done >= latest[k]:
                    break
                if done - last_other > apart and (not load or done - last_load > loads_apart):
                    if waits >= _PATIENCE or _costs_nothing(flow, word, products[done]):
                        break
                    waits += 1
            sequence.append(product.index)
            flow = flow.after(products[done])
            time += 1
            done += 1
        issued[k] = max(time, ready)
        sequence.append(k)
        flow = flow.after(word)
        time = issued[k] + body.least_stall(k)
        last_other = done
        last_load = done if load else last_load
        waits = 0
    sequence += [product.index for product in order[done:]]
    return [*sequence, len(body.words) - 1]


def _latest(body: Body, order: Sequence[Product], others: Sequence[int], latency: int) -> dict[int, int]:
    """The number of products that come before each of the other instructions at most, as far as it can be had.

    Loads need time until what they bring is multiplied; what comes before them has to leave them time.
    """
    needed = dict.fromkeys(body.leaving, len(order))
    for at, product in reversed(list(enumerate(order))):
        needed.update({maker: at for maker, _ in (product.row, product.column)})
    latest = {}
    limit = len(order) - SETTLED  # the first instructions of the next pass may depend on the last
    for k in reversed(others):
        limit -= _APART
        if sass.base(body.words[k]) == sass.LDS and k in needed:
            limit = min(limit, needed[k] - latency)
        latest[k] = limit
    return latest


def _products(body: Body, order: Sequence[Product]) -> list[int]:
    """The products as FFMAs in registers of the right banks, with their marks for reuse."""
    words = []
    for product, reused in zip(order, marks(body, order), strict=True):
        word = sass.A.put(body.words[product.index], body.bank(product.row))
        word = sass.C.put(sass.B.put(word, body.bank(product.column)), product.home)
        words.append(sass.REUSE.put(word, reused))
    return words


def _costs_nothing(flow: Flow, word: int, product: int) -> bool:
    """Whether an instruction before a product takes its own cycle only, and leaves no more to wait for."""
    without, with_it = flow.after(product).ports, flow.after(word).after(product).ports
    more = with_it.cycles - without.cycles - 1 - sass.is_wide_load(word)
    return more + max(with_it.even, with_it.odd) - max(without.even, without.odd) <= 0


def _earliest(body: Body, order: Sequence[Product], size: int, others: Sequence[int], begin: int) -> dict[int, int]:
    """The number of products that come before each of the other instructions at least.

    Loads are not issued more than a step, less `begin`, before that which needs their results, as their registers are needed
    before; those for the next pass of the loop, and barriers, no later than they were.
    """
    steps = len(order) // size
    step_of: dict[int, int] = dict.fromkeys(body.leaving, steps)
    for at, product in reversed(list(enumerate(order))):
        for maker, _ in (product.row, product.column):
            if maker != ENTRY and sass.base(body.words[maker]) != sass.LDS:
                raise NotUnderstoodError("a factor does not come from shared memory")
            step_of[maker] = at // size
    compiled = [0]
    for word in body.words:
        compiled.append(compiled[-1] + (sass.base(word) == sass.FFMA))
    earliest = {}
    limit = len(order)
    for k in reversed(others):
        earliest[k] = SETTLED - (ENTRY_STALL if sass.base(body.words[k]) == sass.LDS else _BRANCH_STALL)
        if sass.base(body.words[k]) == sass.LDS and k in step_of:
            limit = min(limit, (step_of[k] - 1) * size + 1 + begin, compiled[k] if step_of[k] == steps else limit)
            earliest[k] = max(earliest[k], limit)
        elif sass.base(body.words[k]) in (sass.BAR, sass.DEPBAR):
            earliest[k] = max(earliest[k], min((steps - 1) * size + 1, compiled[k]))
    return earliest


def _awaiting_registers(body: Body, order: Sequence[Product], others: Sequence[int]) -> dict[int, int]:
    """The number of products that come before each instruction whose result leaves the loop in a register that they read."""
    # Of a register: who made what products read there, and how many products have come by then.
    read: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for at, product in enumerate(order):
        for maker, part in (product.row, product.column):
            r = part if maker == ENTRY else sass.registers_written(body.words[maker])[part]
            read[r].append((maker, at + 1))
    found = {}
    for k in body.leaving & set(others):
        registers = [r for i, r in enumerate(sass.registers_written(body.words[k])) if body.final[r] == (k, i)]
        found[k] = max((done for r in registers for maker, done in read[r] if maker < k), default=0)
    return found


@dataclass(frozen=True)
class _Lifetime:
    """Where an instruction's results are needed: from its place in the new order to another, of each register's."""

    index: int
    target: sass.Operand
    begin: int
    ends: Sequence[int]

    def meets(self, part: int, others: Sequence[tuple[int, int]]) -> bool:
        """Whether a register shares time with others. A result may take the register of what its instruction reads last."""
        return any(self.begin < end and begin < self.ends[part] for begin, end in others)


def _allocated(
    loop: Loop, sequence: Sequence[int], order: Sequence[Product], most: int, held: int, *, apart: bool
) -> dict[Value, int]:
    """The register of each value that the body makes.

    Args:
        loop: the loop.
        sequence: its instructions in their new order.
        order: its products.
        most: registers that there are.
        held: instructions after which one of unknown duration has read its operands.
        apart: whether each register of an operand is free after its own last use, and not after that of all.
    """
    body = loop.body
    position = {k: at for at, k in enumerate(sequence)}
    end = len(sequence)
    last_use: dict[Value, int] = {}
    for k, at in position.items():
        until = at + held * (sass.base(body.words[k]) in sass.MEMORY)
        for value in body.sources[k].values():
            # What enters the loop leaves its register to what leaves the loop there, which may come soon, and has to wait then.
            used = at if value[0] == ENTRY else until
            if used > last_use.get(value, -1):
                last_use[value] = used
    registers = {(p.index, 0): p.home for p in order}
    whole = set(registers.values()) | {r for k in body.in_place for r in sass.registers_written(body.words[k])}
    busy: dict[int, list[tuple[int, int]]] = defaultdict(list)
    busy[_STACK_POINTER].append((-1, end))
    for r in loop.live_in | loop.live_out | whole:
        if r in whole or (r in loop.live_out and body.final[r] == (ENTRY, r)):
            busy[r].append((-1, end))
        elif r in loop.live_in:
            busy[r].append((-1, last_use.get((ENTRY, r), -1)))

    lifetimes = {}
    leaving = set()
    for k, at in position.items():
        target = None if (k, 0) in registers else sass.writes(body.words[k])
        if target:
            leaves = [body.final[r] == (k, i) and r in loop.live_out for i, r in enumerate(target.registers)]
            ends = [end if leaves[i] else max(at + SETTLED, last_use.get((k, i), 0)) for i in range(target.width)]
            lifetimes[k] = _Lifetime(k, target, at, ends if apart else [max(ends)] * target.width)
            leaving |= {k} if any(leaves) else set()

    free = []
    for bundle, enters in _bundles(body, lifetimes):
        if enters or bundle & (leaving | body.in_place):
            for lifetime in (lifetimes[k] for k in bundle):
                for i, r in enumerate(lifetime.target.registers):
                    if r not in whole and lifetime.meets(i, busy[r]):
                        raise NotUnderstoodError(f"R{r} is needed for two values at a time")
                    busy[r].append((lifetime.begin, lifetime.ends[i]))
                    registers[lifetime.index, i] = r
        else:
            free.append([lifetimes[k] for k in sorted(bundle, key=position.__getitem__)])
    for group in sorted(free, key=lambda group: (-max(x.target.width for x in group), group[0].begin)):
        shift = _shift(group, busy, most)
        for lifetime in group:
            for i, r in enumerate(lifetime.target.registers):
                busy[r + shift].append((lifetime.begin, lifetime.ends[i]))
                registers[lifetime.index, i] = r + shift
    return registers


def _shift(group: Sequence[_Lifetime], busy: dict[int, list[tuple[int, int]]], most: int) -> int:
    """How far to move the registers of a group, as one, so that all are free."""
    lowest = min(x.target.register for x in group)
    top = max(x.target.register + x.target.width for x in group)
    align = 4 if top - lowest > 2 else 2  # a value stays in its bank
    lowest -= lowest % align
    for shift in range(-lowest, most - top + 1, align):
        if not any(x.meets(i, busy[r + shift]) for x in group for i, r in enumerate(x.target.registers)):
            return shift
    raise NotUnderstoodError(f"no {top - lowest} registers are free for instruction {group[0].index} of the loop")


def _bundles(body: Body, makers: dict[int, _Lifetime]) -> list[tuple[set[int], bool]]:
    """Instructions whose results lie beside each other, as one operand, and whether beside values that enter the loop."""
    bundle = {k: {k} for k in makers}
    enters = set()
    for k, word in enumerate(body.words):
        for operand in sass.reads(word):
            if operand.width == 1:
                continue
            found = {body.sources[k][operand.field.at, i][0] for i in range(operand.width)}
            together: set[int] = set().union(*(bundle[maker] for maker in found & makers.keys()))
            for maker in together:
                bundle[maker] = together
            if ENTRY in found:
                enters |= together
    return [(group, bool(group & enters)) for k, group in bundle.items() if k == min(group)]


def _renamed(body: Body, sequence: Sequence[int], order: Sequence[Product], registers: dict[Value, int]) -> list[int]:
    """The instructions in their new order with their new registers, marks for reuse and stalls."""
    product_at = {p.index: p for p in order}
    reused = iter(marks(body, order))

    def register(value: Value) -> int:
        return value[1] if value[0] == ENTRY else registers[value]

    words: list[int] = []
    issued: dict[int, int] = {}
    time = 0
    for k in sequence:
        word = body.words[k]
        if product := product_at.get(k):
            word = sass.CONTROL.put(word, _FFMA_CONTROL)
            places = [(sass.A, product.row), (sass.B, product.column), (sass.C, (k, 0))]
            word = sass.REUSE.put(word, next(reused))
        else:
            word = sass.STALL.put(sass.REUSE.put(word, 0), body.least_stall(k))
            places = [(sass.Field(at, 8), value) for (at, part), value in body.sources[k].items() if part == 0]
        for place, value in places:
            word = place.put(word, register(value))
        if sass.writes(word):
            word = sass.D.put(word, registers[k, 0])
        ready = max([time, *(issued[i] + cycles for i, cycles in body.distances[k])])
        if ready > time:
            words[-1] = sass.STALL.put(words[-1], min(sass.STALL.get(words[-1]) + ready - time, SETTLED))
        issued[k] = ready
        time = ready + sass.STALL.get(word)
        words.append(word)
    return words


def _synchronized(words: Sequence[int], barriers: Sequence[int]) -> list[int]:
    """The instructions with barriers, and waits for them, for those that take an unknown time."""
    *for_loads, for_constants, for_operands = barriers  # who waits for a constant need not wait for the loads since
    turn = cycle(for_loads)
    current = next(turn)
    pending: dict[int, tuple[int, int]] = {}  # of barriers: the registers that are read until then, and those written
    synchronized: list[int] = []
    for word in words:
        base, made, needed = sass.base(word), sass.written_mask(word), sass.read_mask(word)
        waited = {
            barrier
            for barrier, (read, written) in pending.items()
            if written & (needed | made) or read & made or (base == sass.BAR and written)
        }
        if not synchronized:
            waited = set(barriers)
        for barrier in waited:
            pending.pop(barrier, None)
        if current in waited:
            current = next(turn)
        changed = sass.WAIT.put(sass.READ_BARRIER.put(word, sass.NO_BARRIER), sass.waits_for(waited))
        if base != sass.LDGDEPBAR:
            changed = sass.WRITE_BARRIER.put(changed, sass.NO_BARRIER)
        if base in sass.MEMORY and made:
            barrier = for_constants if base == sass.LDC else current
            changed = sass.WRITE_BARRIER.put(changed, barrier)
            read, written = pending.get(barrier, (0, 0))
            pending[barrier] = read | needed, written | made
        elif base == sass.LDGSTS:
            changed = sass.READ_BARRIER.put(changed, for_operands)
            read, written = pending.get(for_operands, (0, 0))
            pending[for_operands] = read | needed, written
        if synchronized and waited & sass.sets(synchronized[-1]):
            before = synchronized[-1]
            synchronized[-1] = sass.STALL.put(before, max(sass.STALL.get(before), BARRIER_LATENCY))
        synchronized.append(changed)
    return synchronized
