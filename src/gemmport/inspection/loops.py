"""Loops of a piece of code, found in its jumps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gemmport.inspection.instructions import Counts, Instruction, Kind


def hot_loop(instructions: Sequence[Instruction]) -> tuple[Instruction, ...]:
    """The loop with the most multiply-adds, those of matrices and floating point before those of integers; where there are
    none, the longest. Loops inside of a loop are not counted to it, so that its instructions run at most once per round.

    Returns:
        Its instructions, in order; empty where there is no loop.
    """

    def weight(loop: Sequence[int]) -> tuple[int, int, int]:
        kinds = Counts.of(instructions[number] for number in loop).kinds
        return kinds[Kind.MATRIX] + kinds[Kind.FMA], kinds[Kind.INTEGER_FMA], len(loop)

    hottest = max(loops(instructions), key=weight, default=())
    return tuple(instructions[number] for number in hottest)


def loops(instructions: Sequence[Instruction]) -> list[tuple[int, ...]]:
    """The natural loops, by the numbers of their instructions, each without the loops inside of it.

    Not the order in the text decides what goes back, but that in which instructions are reached: slow paths that compilers put
    behind the end, and that jump back into the middle, make no loop so. Loops that begin with the same instruction are one.
    """
    following = _successors(instructions)
    order = _reverse_postorder(following)
    place = {number: position for position, number in enumerate(order)}
    before: dict[int, list[int]] = {number: [] for number in order}
    for number in order:
        for successor in following[number]:
            before[successor].append(number)
    bodies: dict[int, set[int]] = {}
    for number in order:
        for head in following[number]:
            if place[head] <= place[number]:
                bodies.setdefault(head, {head}).update(_body(head, number, before))
    own = []
    for head, body in bodies.items():
        inner = [other for inside, other in bodies.items() if inside != head and other < body]
        own.append(tuple(sorted(body.difference(*inner))))
    return own


def _successors(instructions: Sequence[Instruction]) -> list[list[int]]:
    """Which instructions may run after each."""
    places = {label: number for number, instruction in enumerate(instructions) for label in instruction.labels}
    following = []
    for number, instruction in enumerate(instructions):
        successors = [] if instruction.ends or number + 1 == len(instructions) else [number + 1]
        if instruction.target in places and places[instruction.target] not in successors:
            successors.append(places[instruction.target])
        following.append(successors)
    return following


def _reverse_postorder(following: Sequence[Sequence[int]]) -> list[int]:
    """The instructions that can be reached from the first, each before those that follow it, but for those of loops."""
    order: list[int] = []
    seen = {0}
    stack = [(0, iter(following[0]))] if following else []
    while stack:
        number, successors = stack[-1]
        new = next((successor for successor in successors if successor not in seen), None)
        if new is None:
            order.append(number)
            stack.pop()
        else:
            seen.add(new)
            stack.append((new, iter(following[new])))
    return order[::-1]


def _body(head: int, last: int, before: Mapping[int, Sequence[int]]) -> set[int]:
    """What leads to the jump back without passing the head."""
    body = {head}
    todo = [last]
    while todo:
        number = todo.pop()
        if number not in body:
            body.add(number)
            todo += before[number]
    return body
