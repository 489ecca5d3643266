"""Large copies by way of pinned blocks: on memory of the host's, where each part is seen, and forced on each device."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import gemmport as gp
from gemmport.backends import _staging
from gemmport.backends.objects import Memory
from gemmport.core.errors import DeviceMemoryError
from gemmport.runtime import copying
from test_strangers import DEVICE, Stranger

LEAST = _staging.LEAST


class Staged(Stranger):
    """Each copy is noted: its bytes, and whether it came from or went to a pinned block."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.pinned: list[np.ndarray] = []
        self.copied: list[tuple[int, bool]] = []

    def host_buffer(self, nbytes: int) -> np.ndarray:
        self.pinned.append(np.zeros(nbytes, np.uint8))
        return self.pinned[-1]

    def _is_pageable(self, data: np.ndarray) -> bool:
        return not self._is_pinned(data)

    def _is_pinned(self, data: np.ndarray) -> bool:
        return any(np.may_share_memory(data, block) for block in list(self.pinned))

    def _upload(self, memory: Memory, data: np.ndarray, offset: int, queue: Any) -> None:
        self.copied.append((data.nbytes, self._is_pinned(data)))
        super()._upload(memory, data, offset, queue)

    def _download(self, memory: Memory, out: np.ndarray, offset: int, queue: Any) -> None:
        self.copied.append((out.nbytes, self._is_pinned(out)))
        flat = out.reshape(-1).view(np.uint8)
        flat[...] = memory.native[offset : offset + out.nbytes]


@pytest.fixture
def staged(monkeypatch: pytest.MonkeyPatch) -> Iterator[Staged]:
    """On a host with cores for four threads."""
    monkeypatch.setattr(copying, "threads", lambda: 4)
    with Staged(DEVICE) as opened:
        yield opened


def numbers(nbytes: int) -> np.ndarray:
    """Bytes of which neighbours, and those of neighbouring parts, differ."""
    return np.random.default_rng(nbytes).integers(0, 256, nbytes, np.uint8)


def goes_there_and_back(backend: gp.Backend, nbytes: int, offset: int = 0) -> bool:
    data, out = numbers(nbytes), np.zeros(nbytes, np.uint8)
    with backend.allocate(offset + nbytes) as memory:
        backend.upload(memory, data, offset=offset)
        backend.download(memory, out, offset=offset)
    return np.array_equal(out, data)


def test_a_large_copy_passes_through_pinned_blocks_and_a_small_one_does_not(staged: Staged) -> None:
    assert goes_there_and_back(staged, LEAST - 1)
    assert staged.copied == [(LEAST - 1, False)] * 2
    staged.copied.clear()
    assert goes_there_and_back(staged, 5 * _staging.BLOCK + 7, offset=3)
    assert all(pinned for _, pinned in staged.copied)
    sizes = sorted(nbytes for nbytes, _ in staged.copied)
    assert sizes == [7] * 2 + [_staging.BLOCK] * 10
    assert len(staged.pinned) == _staging.RING
    staged.release_workspaces()
    assert not staged._staging._idle


def test_pinned_memory_goes_straight(staged: Staged) -> None:
    own = staged.host_buffer(2 * LEAST)
    staged.copied.clear()
    with staged.allocate(own.nbytes) as memory:
        staged.upload(memory, own[1:])
        staged.download(memory, own[:LEAST])
    assert staged.copied == [(2 * LEAST - 1, True), (LEAST, True)]


def test_strided_and_converted_arrays_are_laid_out_on_their_way(staged: Staged) -> None:
    host = np.random.default_rng(1).integers(-9, 10, (61, 301, 203)).astype(np.float32)
    for view, dtype in (
        (host[:, ::2, 1:], np.float32),
        (host, np.float64),
        (host.T, np.int16),
        (host[:, ::-1], np.int64),
    ):
        staged.copied.clear()
        assert np.array_equal(staged.asarray(view, dtype).get(), view)
        assert all(pinned for _, pinned in staged.copied)
    array = staged.zeros((1201, 903), np.float32)
    staged.copied.clear()
    array[:] = np.float16(3)
    assert all(pinned for _, pinned in staged.copied)
    assert (array.get() == 3).all()


def test_the_other_byte_order_arrives_as_numbers_and_its_bytes_as_they_are(staged: Staged) -> None:
    host = np.random.default_rng(2).integers(-9, 10, (1201, 903)).astype(">f4")
    for view in (host, host.T, host[:, 1:]):
        staged.copied.clear()
        array = staged.asarray(view)
        assert array.dtype == np.dtype(np.float32)
        np.testing.assert_array_equal(array.get(), view)
        array[:] = -view
        np.testing.assert_array_equal(array.get(), -view)
        assert all(pinned for _, pinned in staged.copied)
    with staged.allocate(host.nbytes) as memory:
        staged.upload(memory, host)
        out = np.zeros_like(host)
        staged.download(memory, out)
    assert out.tobytes() == host.tobytes()


def test_read_only_arrays_are_read_and_not_written(staged: Staged) -> None:
    host = np.random.default_rng(3).integers(-9, 10, (1201, 903)).astype(np.float32)
    host.flags.writeable = False
    np.testing.assert_array_equal(staged.asarray(host).get(), host)
    np.testing.assert_array_equal(staged.asarray(host[:, 1:], np.float64).get(), host[:, 1:])
    assert all(pinned for _, pinned in staged.copied)
    with staged.allocate(host.nbytes) as memory:
        staged.fill(memory, 0)
        staged.copied.clear()
        for out in (host, host[:2]):
            before = out.copy()
            with pytest.raises(gp.ArrayError, match=r"^out of shape \(\d+, 903\) is read-only: use another array$"):
                staged.download(memory, out)
            np.testing.assert_array_equal(out, before)
    assert staged.copied == []


@pytest.mark.parametrize("pinned", [True, False])
def test_numbers_that_a_type_does_not_hold_are_nobodys_error(
    staged: Staged, monkeypatch: pytest.MonkeyPatch, *, pinned: bool
) -> None:
    """Whatever the caller has NumPy do with such; as in `numpy.astype` without it."""
    if not pinned:
        monkeypatch.setattr(staged._staging, "_take", lambda pin: None)
    host = np.full((1201, 903), 1e300)
    host[0, :3] = np.nan, 1, 1e-300
    with np.errstate(all="ignore"):
        wanted = host.astype(np.float32)
    with np.errstate(all="raise"):
        array = staged.asarray(host, np.float32)
        array[1:] = host[1:]
        assert np.geterr() == dict.fromkeys(("divide", "over", "under", "invalid"), "raise")
    np.testing.assert_array_equal(array.get(), wanted)
    assert {told for _, told in staged.copied} == {pinned}


def test_a_queue_that_is_captured_has_no_copies_beside_it(staged: Staged, monkeypatch: pytest.MonkeyPatch) -> None:
    """To wait for a block would break the capture off."""
    asked: list[Any] = []
    monkeypatch.setattr(staged, "as_queue", lambda queue: queue)
    monkeypatch.setattr(staged, "is_captured", lambda queue: asked.append(queue) or queue == "captured")
    data, out = numbers(2 * LEAST), np.zeros(2 * LEAST, np.uint8)
    with staged.allocate(data.nbytes) as memory:
        staged.upload(memory, data, queue="captured")
        staged.upload(memory, data.view(">u4"), queue="captured", dtype=np.dtype("<u4"))
        staged.download(memory, out, queue="captured")
        assert not any(pinned for _, pinned in staged.copied)
        assert len(staged.copied) == 3
        staged.copied.clear()
        staged.download(memory, out)
        assert all(pinned for _, pinned in staged.copied)
    assert {"captured", None} <= set(asked)


def test_a_host_with_few_cores_has_no_threads_for_it(staged: Staged, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(copying, "usable_cores", lambda: 3)
    assert goes_there_and_back(staged, 2 * LEAST)
    assert staged.copied == [(2 * LEAST, False)] * 2


@pytest.mark.every_value("nbytes, offset", [(LEAST, 0), (LEAST + 1, 1), (2 * LEAST - 1, 64), (9 * LEAST + 4095, 5)])
def test_odd_sizes_arrive(staged: Staged, nbytes: int, offset: int) -> None:
    assert goes_there_and_back(staged, nbytes, offset)


def test_threads_that_copy_at_once_find_no_more_blocks_than_there_may_be(staged: Staged) -> None:
    """What finds none goes without: nobody waits for another's work."""
    right: list[bool] = []
    callers = [
        threading.Thread(target=lambda n=n: right.append(goes_there_and_back(staged, 4 * LEAST + n)), daemon=True)
        for n in range(6)
    ]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(60)
    assert right == [True] * 6
    assert len(staged.pinned) <= _staging.MOST_BLOCKS


def test_where_nothing_can_be_pinned_copies_go_without(staged: Staged, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(nbytes: int) -> np.ndarray:
        raise DeviceMemoryError("no more")

    monkeypatch.setattr(staged, "host_buffer", refuse)
    assert goes_there_and_back(staged, 3 * LEAST)
    assert staged.copied
    assert not any(pinned for _, pinned in staged.copied)


def test_an_error_of_one_part_ends_the_copy_and_gives_its_blocks_up(
    staged: Staged, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others may still be on their way from them."""
    inner = staged._upload

    def fail_in_the_middle(memory: Memory, data: np.ndarray, offset: int, queue: Any) -> None:
        if offset == 2 * _staging.BLOCK:
            raise gp.LaunchError("lost")
        inner(memory, data, offset, queue)

    monkeypatch.setattr(staged, "_upload", fail_in_the_middle)
    with staged.allocate(8 * _staging.BLOCK) as memory, pytest.raises(gp.LaunchError, match="lost"):
        staged.upload(memory, numbers(8 * _staging.BLOCK))
    assert not staged._staging._idle
    assert goes_there_and_back(staged, LEAST)


class Late(Staged):
    """Copies are made only when they are waited for, and in any case in their order, as on a queue."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.due: list[tuple[Any, ...]] = []

    def _begin_upload(self, *copy: Any) -> Any:
        return self._enqueued(self._upload, *copy)

    def _begin_download(self, *copy: Any) -> Any:
        return self._enqueued(self._download, *copy)

    def _enqueued(self, *copy: Any) -> Any:
        self.due.append(copy)
        number = len(self.due)

        def wait() -> None:
            for at, made in enumerate(self.due[:number]):
                if made:
                    made[0](*made[1:])
                    self.due[at] = ()

        return wait


def test_a_block_is_used_again_only_when_its_copy_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copying, "threads", lambda: 4)
    with Late(DEVICE) as late:
        assert goes_there_and_back(late, 11 * LEAST + 1)
        assert not any(late.due)


def test_products_and_views_are_right_on_a_device(fresh_backend: gp.Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU: parts are enqueued one after another, from pinned memory where the runtime has it."""
    monkeypatch.setattr(copying, "threads", lambda: 4)
    monkeypatch.setattr(_staging, "LEAST", 2**12)
    monkeypatch.setattr(_staging, "LEAST_PART", 2**12)
    monkeypatch.setattr(_staging, "BLOCK", 2**14)
    monkeypatch.setattr(fresh_backend, "_is_pageable", lambda data: True)
    monkeypatch.setattr(fresh_backend, "_borrow", lambda data: None)
    host = np.random.default_rng(7).integers(-4, 5, (211, 307)).astype(np.float32)
    for view in (host, host.T, host[::2, 3:], host[::-1]):
        np.testing.assert_array_equal(fresh_backend.asarray(view).get(), view)
    np.testing.assert_array_equal(fresh_backend.asarray(host[:, 1:], np.float64).get(), host[:, 1:])
    array = fresh_backend.asarray(host)
    np.testing.assert_array_equal(array[5:150, 7:300].get(), host[5:150, 7:300])
    array[17:190].set(host[:173])
    np.testing.assert_array_equal(array.get(), np.concatenate([host[:17], host[:173], host[190:]]))
    queue = fresh_backend.new_queue()
    fresh_backend.upload(array.memory, host, queue=queue)
    np.testing.assert_array_equal(gp.matmul(array, fresh_backend.asarray(host.T)).get(), host @ host.T)
    assert fresh_backend._staging._idle
