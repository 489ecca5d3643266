"""Calls of one function at the same time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def side_by_side(call: Callable[[T], R], given: Sequence[T]) -> list[R]:
    """What a function makes of each, in order: of the last in this thread, of each other in one of its own.

    Raises:
        The error of the first that has one, when all are done.
    """
    made: dict[int, R] = {}
    errors: dict[int, BaseException] = {}

    def run(number: int) -> None:
        try:
            made[number] = call(given[number])
        except BaseException as error:  # noqa: BLE001 - it is raised in the end
            errors[number] = error

    threads = []
    for number in range(len(given)):
        thread = threading.Thread(target=run, args=(number,), daemon=True)
        try:
            if number == len(given) - 1:
                run(number)
            else:
                thread.start()
                threads.append(thread)
        except RuntimeError:  # Python is at its end, or there are no more threads
            run(number)
    for thread in threads:
        thread.join()
    for number in sorted(errors):
        raise errors[number]
    return [made[number] for number in range(len(given))]
