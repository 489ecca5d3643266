"""Calls at the same time: their results, their errors, and that they are at the same time."""

from __future__ import annotations

import threading

import pytest

from gemmport.runtime import side_by_side as module
from gemmport.runtime.side_by_side import in_blocks, side_by_side


def test_results_are_in_order() -> None:
    meeting = threading.Barrier(3)

    def meet(number: int) -> int:
        meeting.wait(60)  # which all three come to, or none gets past
        return number * number

    assert side_by_side(meet, [3, 1, 2]) == [9, 1, 4]
    assert side_by_side(meet, []) == []


def test_the_first_error_is_raised_when_all_are_done() -> None:
    done = []

    def fail(number: int) -> None:
        done.append(number)
        if number:
            raise ValueError(number)

    with pytest.raises(ValueError, match="1"):
        side_by_side(fail, [0, 1, 2])
    assert sorted(done) == [0, 1, 2]


def test_where_no_thread_starts_the_caller_does_all(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert side_by_side(lambda number: (number, threading.current_thread()), [1, 2]) == [
        (1, threading.current_thread()), (2, threading.current_thread()),
    ]  # fmt: skip


def test_blocks_cover_a_range_in_order_and_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "usable_cores", lambda: 3)
    meeting = threading.Barrier(3)

    def meet(place: slice) -> tuple[int, int]:
        meeting.wait(60)
        if place.start == 8:
            raise ValueError(place.stop)
        return place.start, place.stop

    assert in_blocks(meet, 6, 2) == [(0, 2), (2, 4), (4, 6)]
    with pytest.raises(ValueError, match="9"):
        in_blocks(meet, 9, 4)
    assert in_blocks(lambda _: threading.current_thread(), 2, 2) == [threading.current_thread()]
    assert in_blocks(meet, 0, 2) == []
