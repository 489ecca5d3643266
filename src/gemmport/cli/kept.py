"""What a command measured product by product is told in the form that was asked for, where it is ended early, too."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from gemmport.cli import streams, termination

Found = TypeVar("Found")


@dataclass(frozen=True)
class Task:
    """A product that is to be measured.

    Attributes:
        where: its device or devices, and what else tells it from others of its name; as in JSON.
    """

    name: str
    where: dict[str, Any]


def keep(
    tasks: Sequence[Task], coming: Generator[Found, None, None], tell: Callable[[Sequence[Found], dict[str, Any]], int]
) -> int:  # fmt: skip
    """Has a command tell what it measured, until the end or until a signal; the exit status.

    Args:
        coming: what came of each task, in their order.
        tell: is given this, and what the JSON document says of tasks that are missing; empty where none is.

    Raises:
        KeyboardInterrupt: a signal ended it. What was measured by then has been told.
    """

    def tell_all(found: Sequence[Found]) -> int:
        left = tasks[len(found) :]
        if left and not found:
            streams.tell("interrupted before a product was measured: nothing is written; compiled programs are kept")
            return termination.EXIT_INTERRUPTED
        if left:
            streams.tell(f"interrupted: {len(left)} of {len(tasks)} products are missing")
        told = [{"name": task.name, **task.where, "reason": "interrupted"} for task in left]
        return tell(found, {"left": told} if told else {})

    with termination.gathered(coming, tell_all) as came:
        return tell_all(came.found)
