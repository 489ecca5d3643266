"""Copies within the host's memory that threads share."""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest

from gemmport.runtime import copying


def test_bytes_are_copied_together_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """By helpers that sleep, that are busy with another caller's copy, and that stayed behind at a fork."""
    monkeypatch.setattr(copying, "threads", lambda: 4)
    copying._started.cache_clear()  # three more
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


@pytest.mark.skipif(copying.in_c is None, reason="copies are one thread's without the module in C")
def test_helpers_take_part_and_no_more_than_may(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is a thread of its own: where cores are busy, one may come too late for some copies, but not for all."""
    monkeypatch.setattr(copying, "threads", lambda: 3)
    copying._started.cache_clear()  # two more, at least
    source, target = np.random.default_rng(1).integers(0, 256, 2**24, np.uint8), np.zeros(2**24, np.uint8)
    assert copying.in_c is not None

    def shared_by(helpers: int) -> int:
        target[:] = 0
        pieces = copying.in_c.copy(target.ctypes.data, source.ctypes.data, source.nbytes, 1, 0, 0, helpers)  # type: ignore[union-attr]
        assert np.array_equal(target, source)
        return int(pieces)

    assert copying.helpers() == 2
    assert [shared_by(0) for _ in range(20)] == [0] * 20
    end = time.monotonic() + 60
    while not (found := shared_by(2)) and time.monotonic() < end:
        pass
    assert 0 < found <= source.nbytes // 2**18


@pytest.mark.parametrize(
    ("rows", "columns", "across"),
    [
        (1, 400_000, 400_000),
        (700, 301, 512),
        (3, 150_001, 150_016),
        (70_000, 1, 2),
        (65_536, 8, 8),
        (5, 65_536, 65_540),
    ],
)
def test_rows_are_copied_and_nothing_between_them(
    monkeypatch: pytest.MonkeyPatch, rows: int, columns: int, across: int
) -> None:
    """Of matrices that lie in larger ones, by several threads each, for several callers at a time."""
    monkeypatch.setattr(copying, "threads", lambda: 4)
    copying._started.cache_clear()
    source = np.random.default_rng(0).random((rows, across), np.float32)

    def copies(caller: int) -> bool:
        right = True
        for turn in range(20):
            target = np.full((rows, across + caller), -1, np.float32)
            copying.copy_rows(source[:, :columns], target[:, :columns])
            right &= np.array_equal(target[:, :columns], source[:, :columns]) and bool(
                (target[:, columns:] == -1).all()
            )
            dense = np.full((rows, columns), turn, np.float32)
            copying.copy_rows(target[:, :columns], dense)
            right &= np.array_equal(dense, source[:, :columns])
        return right

    with ThreadPoolExecutor(3) as callers:
        assert [*callers.map(copies, range(3))] == [True] * 3


@pytest.mark.skipif(copying.in_c is None, reason="copies are one thread's without the module in C")
def test_rows_are_shared_where_they_are_dense_and_of_one_type(monkeypatch: pytest.MonkeyPatch) -> None:
    shared: list[int] = []
    monkeypatch.setattr(copying.in_c, "copy", lambda *given: shared.append(given[3]))
    large = np.zeros((600, 600), np.float32)
    copying.copy_rows(large[:, :500], large.copy()[:, :500])
    assert shared == [600]
    copying.copy_rows(large.T[:500], np.ones((600, 500), np.float32).T)  # columns
    assert shared == [600, 600]
    others = (
        large.T, large[::-1], large[:, ::2], large.astype(np.float64), large[:40], large.reshape(60, 10, 600)
    )  # fmt: skip
    for source in others:
        target = np.ones(source.shape, np.float32)
        copying.copy_rows(source, target)
        assert not target.any()
    assert shared == [600, 600]


@pytest.mark.skipif(copying.in_c is None, reason="columns are NumPy's to copy without the module in C")
def test_columns_are_copied_as_rows_are() -> None:
    source = np.random.default_rng(0).random((700, 900), np.float32).T
    target = np.full((800, 1000), -1, np.float32).T
    copying.copy_rows(source[:850, :650], target[:850, :650])
    np.testing.assert_array_equal(target[:850, :650], source[:850, :650])
    assert (target[850:] == -1).all()
    assert (target[:, 650:] == -1).all()


def test_what_is_converted_is_shared_by_threads_of_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there are cores for them."""
    convert, by = copying.convert, set()

    def noted(source: np.ndarray, target: np.ndarray) -> None:
        by.add(threading.current_thread().name.rpartition("_")[0])
        convert(source, target)

    monkeypatch.setattr(copying, "convert", noted)
    source = np.random.default_rng(0).random((1031, 1037))
    for cores, names in ((16, {"gemmport-convert"}), (2, {""})):
        monkeypatch.setattr(copying, "usable_cores", lambda cores=cores: cores)
        copying._pool.cache_clear()
        by.clear()
        for target in (np.zeros(source.shape, np.float32), np.zeros(source.shape[::-1]).T):
            copying.copy_rows(source, target)
            np.testing.assert_array_equal(target, source.astype(target.dtype))
        assert by == names
    copying._pool.cache_clear()


def test_callers_that_come_together_start_helpers_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copying, "threads", lambda: 4)
    copying._started.cache_clear()
    meet, callers = threading.Barrier(6), []

    def serve() -> None:
        time.sleep(0.05)
        callers.append(1)

    if copying.in_c is not None:
        monkeypatch.setattr(copying, "in_c", SimpleNamespace(serve=serve))

    def comes(_: int) -> int:
        meet.wait()
        return copying.helpers()

    with ThreadPoolExecutor(6) as together:
        found = set(together.map(comes, range(6)))
    time.sleep(0.5)
    assert found == {0 if copying.in_c is None else 3}
    assert len(callers) == (0 if copying.in_c is None else 3)
    copying._started.cache_clear()


def test_more_callers_than_jobs_copy_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copying, "threads", lambda: 3)
    copying._started.cache_clear()
    source = np.random.default_rng(0).integers(0, 256, 2**21, np.uint8)

    def copies(number: int) -> bool:
        targets = [np.zeros_like(source) for _ in range(4)]
        for target in targets:
            copying.copy_shared(source, target)
        return all(np.array_equal(target, source) for target in targets)

    with ThreadPoolExecutor(24) as callers:
        assert all(callers.map(copies, range(48)))


@pytest.mark.parametrize(("cores", "threads"), [(1, 1), (3, 1), (8, 4), (200, 16)])
def test_threads_go_by_the_cores(monkeypatch: pytest.MonkeyPatch, cores: int, threads: int) -> None:
    monkeypatch.setattr(copying, "usable_cores", lambda: cores)
    assert copying.threads() == (1 if copying.in_c is None else threads)


def test_without_the_module_in_c_one_thread_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copying, "in_c", None)
    copying._started.cache_clear()
    target = np.zeros((2, 3), np.int16)
    copying.copy_shared(np.arange(6, dtype=np.int16).reshape(2, 3), target)
    assert np.array_equal(target.reshape(-1), np.arange(6))
    assert (copying.threads(), copying.helpers()) == (1, 0)
    copying._started.cache_clear()
