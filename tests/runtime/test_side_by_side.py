"""Calls at the same time: their results, their errors, and that they are at the same time."""

from __future__ import annotations

import threading

import pytest

from gemmport.runtime.side_by_side import side_by_side


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
