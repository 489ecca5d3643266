"""Copies within the host's memory that threads share."""

from __future__ import annotations

import multiprocessing
import os
import threading

import numpy as np
import pytest

from gemmport.runtime import copying


def test_bytes_are_copied_together_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """By helpers that sleep, that are busy with another caller's copy, and that stayed behind at a fork."""
    monkeypatch.setattr(copying, "threads", lambda: 4)
    copying.helpers.cache_clear()  # three more
    source = np.random.default_rng(0).integers(0, 256, 3 * 2**20 + 5, np.uint8)

    def copies(count: int) -> bool:
        right = True
        for number in range(count):
            target = np.zeros(source.size + 2, np.uint8)
            copying.copy_shared(source[number:], target[1 : source.size - number + 1])
            right &= np.array_equal(target[1 : source.size - number + 1], source[number:])
            right &= not target[0] and not target[source.size - number + 1 :].any()
        return right

    found: list[bool] = []
    callers = [threading.Thread(target=lambda: found.append(copies(200))) for _ in range(3)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert found == [True] * 3
    child = multiprocessing.get_context("fork").Process(target=lambda: os._exit(not copies(3)))
    child.start()
    child.join(60)
    assert child.exitcode == 0


@pytest.mark.parametrize(("cores", "threads"), [(1, 1), (3, 1), (8, 4), (200, 16)])
def test_threads_go_by_the_cores(monkeypatch: pytest.MonkeyPatch, cores: int, threads: int) -> None:
    monkeypatch.setattr(copying, "usable_cores", lambda: cores)
    assert copying.threads() == (1 if copying.in_c is None else threads)


def test_without_the_module_in_c_one_thread_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copying, "in_c", None)
    copying.helpers.cache_clear()
    target = np.zeros((2, 3), np.int16)
    copying.copy_shared(np.arange(6, dtype=np.int16).reshape(2, 3), target)
    assert np.array_equal(target.reshape(-1), np.arange(6))
    assert (copying.threads(), copying.helpers()) == (1, 0)
    copying.helpers.cache_clear()
