"""Calls of one function at the same time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from gemmport.runtime.host_cpu import usable_cores

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


def in_blocks(call: Callable[[slice], R], length: int, block: int) -> list[R]:
    """What a function makes of each block of a range, in order, by as many threads as this process has cores; of a single block
    in this thread. NumPy lets other threads run while it computes.

    Args:
        block: the length of each but the last, at least 1.

    Raises:
        The error of the first block that has one.
    """
    blocks = [slice(start, min(start + block, length)) for start in range(0, length, block)]
    if len(blocks) < 2:
        return [call(each) for each in blocks]
    with ThreadPoolExecutor(min(usable_cores(), len(blocks))) as threads:
        return list(threads.map(call, blocks))
