"""Launches that belong to no plan: what is bound for them, and what of it is kept for the next."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from gemmport.backends.objects import Call, Memory, Program
from gemmport.checking.device_check import fill_random_on
from gemmport.core.dtypes import FLOAT32
from gemmport.core.problem import Layout
from gemmport.execution import executor
from gemmport.execution.copies import copy_strided
from test_strangers import DEVICE, Stranger


class Holding(Stranger):
    """A call holds the memory that it was bound to, or set to last, as a runtime's kernel may."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.bound: list[weakref.ref[Call]] = []

    def prepare(self, program: Program, function: str, *given: Any, **more: Any) -> Call:
        call = super().prepare(program, function, *given, **more)
        call.native = {number: a for number, a in enumerate(given[2]) if isinstance(a, Memory)}
        self.bound.append(weakref.ref(call))
        return call

    def set_memory(self, call: Call, places: Sequence[tuple[int, int]], memory: Sequence[Memory]) -> None:
        for number, operand in places:
            call.native[number] = memory[operand]


@pytest.fixture
def holding() -> Iterator[Holding]:
    with Holding(DEVICE) as opened:
        yield opened


def test_a_copy_is_bound_once_for_all_arrays_that_lie_alike(holding: Holding) -> None:
    for _ in range(3):
        a, b = holding.zeros((3, 4), np.float32), holding.zeros((4, 3), np.float32)
        copy_strided(a, b.T)
    assert (len(holding.bound), holding.launched) == (1, 3)
    call = holding.bound[0]()
    assert call is not None
    assert set(call.native.values()) == {a.memory, b.memory}
    copy_strided(a[:, 1:], b.T[:, 1:])
    assert len(holding.bound) == 2


def test_other_launches_leave_nothing_behind(holding: Holding) -> None:
    """No call, and no memory: a seed comes once."""
    for seed in range(3):
        memory = holding.allocate(48)
        fill_random_on(holding, memory, FLOAT32, Layout(4), 3, 4, seed=seed)
        gone = weakref.ref(memory)
        del memory
        assert gone() is None
    assert [call() for call in holding.bound] == [None] * 3


@pytest.mark.parametrize("captured", [False, True])
def test_programs_stay_loaded_for_a_graph_that_is_captured(
    holding: Holding, monkeypatch: pytest.MonkeyPatch, captured: bool
) -> None:
    """Of copies, which are launched anew or again: they are in no plan, and others may take their place."""
    pinned: list[object] = []
    monkeypatch.setattr(holding, "pin", pinned.append)
    monkeypatch.setattr(holding, "is_captured", lambda queue: captured)
    a, b = holding.zeros((3, 4), np.float32), holding.zeros((4, 3), np.float32)
    for _ in range(2):
        copy_strided(a, b.T)
    call = holding.bound[0]()
    assert call is not None
    assert pinned == ([call.program] * 2 if captured else [])


def test_calls_that_are_kept_make_room_the_oldest_first(holding: Holding, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor, "_MOST_LAUNCHES", 2)
    a = holding.zeros((8, 8), np.float32)
    for width in (1, 2, 3):
        copy_strided(a[:4, :width], a[4:, :width])
    assert [call() is None for call in holding.bound] == [True, False, False]
