"""Products that pass through a device in tiles: right whatever the shape, type and op, within their memory."""

from __future__ import annotations

import threading
import tracemalloc
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import gemmport as gp
from absences import ZARR, skip_without
from gemmport.backends.base import Backend
from gemmport.core.dtypes import as_dtype
from gemmport.outofcore import streaming
from gemmport.outofcore.progress import Progress
from gemmport.outofcore.streaming import Streamed, _State
from gemmport.planning.schedule import Residency
from launched import put_on

HostArray = npt.NDArray[Any]

MEMORY = 120_000
"""Bytes of the device, into which the products of these tests do not fit."""

SHAPES = [(97, 131, 211), (301, 203, 67), (17, 1999, 5), (1999, 3, 301), (3, 5, 9001), (257, 129, 0), (1, 1, 40_009)]


def whole(shape: tuple[int, ...], dtype: str, seed: int) -> HostArray:
    """Small integers, whose products and sums are exact."""
    rng, kind = np.random.default_rng(seed), as_dtype(dtype)
    values = rng.integers(-3, 4, shape) if kind.kind != "bool" else rng.integers(0, 2, shape)
    if kind.kind == "complex":
        values = values + 1j * rng.integers(-3, 4, shape)
    return values.astype(kind.numpy)


def op(x: HostArray, name: str) -> HostArray:
    turned = x.swapaxes(-1, -2) if name in "TC" else x
    return turned.conj() if name in "CR" else turned


def wanted(
    a: HostArray, b: HostArray, ops: str, alpha: Any = 1, beta: Any = 0, c: HostArray | None = None
) -> HostArray:
    """The product by NumPy, exact where all are small integers."""
    wide = np.complex128 if a.dtype.kind == "c" else np.int64 if a.dtype.kind in "iu" else np.float64
    product = alpha * (op(a.astype(wide), ops[0]) @ op(b.astype(wide), ops[1]))
    added = product if c is None else product + beta * c.astype(wide)
    return added.astype(a.dtype)


def operands(
    m: int, n: int, k: int, dtype: str, ops: str = "NN", batch: tuple[int, ...] = ()
) -> tuple[HostArray, HostArray]:
    a = whole((*batch, *((k, m) if ops[0] in "TC" else (m, k))), dtype, 1)
    return a, whole((n, k) if ops[1] in "TC" else (k, n), dtype, 2)


@pytest.mark.every_value("shape", SHAPES)
def test_every_shape_is_exact(backend: Backend, shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    a, b = operands(m, n, k, "float32")
    c = whole((m, n), "float32", 3)
    got = gp.gemm(a, b, alpha=2, beta=-1, c=c, device=backend.device, device_memory=20_000)
    np.testing.assert_array_equal(got, wanted(a, b, "NN", 2, -1, c))


OPS = ("NN", "NT", "TN", "TC", "CN", "RN", "TR")
TYPES = ("float32", "float64", "complex64", "complex128", "float16", "bfloat16", "int8", "bool")


@pytest.mark.every_pair("ops, types", [(o, t) for o in OPS for t in TYPES], apart=True)
@pytest.mark.sample(types=("bfloat16", "complex128"), ops=("TC", "RN"))
def test_every_op_and_type_is_exact(backend: Backend, ops: str, types: str) -> None:
    a, b = operands(97, 131, 211, types, ops)
    kind, c = as_dtype(types).kind, whole((97, 131), types, 3)
    alpha, beta = {"bool": (1, 1), "complex": (3 - 1j, -2 + 5j)}.get(kind, (3, -2))
    expected = (op(a, ops[0]) @ op(b, ops[1])) | c if kind == "bool" else wanted(a, b, ops, alpha, beta, c)
    memory = 8_000 if types in ("int8", "bool") else 40_000
    told: list[Progress] = []
    got = gp.gemm(
        a, b, alpha=alpha, beta=beta, c=c, trans_a=ops[0], trans_b=ops[1], device=backend.device, device_memory=memory,
        progress=told.append,
    )  # fmt: skip
    np.testing.assert_array_equal(got, expected)
    assert told[-1].all_tiles > 1


@pytest.mark.sample(ops=["NT"], bound=[40_000])
@pytest.mark.parametrize("bound", [40_000, 200_000])
@pytest.mark.parametrize("ops", ["NN", "NT", "TN", "CT"])
def test_the_first_panel_comes_in_parts_that_grow(
    best_backend: Backend, monkeypatch: pytest.MonkeyPatch, ops: str, bound: int
) -> None:
    for name, value in (("GRADED", 1), ("MOST_GRADES", 8), ("_LEAST_GRADE", 1), ("_TERMS", 1)):
        monkeypatch.setattr(streaming, name, value)
    enqueue, spans = Streamed._enqueue, set()

    def noted(self: Streamed, tile: Any, panel: int, span: Any, *rest: Any, begins: bool) -> None:
        spans.add((panel, *span))
        enqueue(self, tile, panel, span, *rest, begins=begins)

    monkeypatch.setattr(Streamed, "_enqueue", noted)
    a, b = operands(97, 131, 409, "complex64", ops)
    c = whole((97, 131), "complex64", 3)
    how = {"trans_a": ops[0], "trans_b": ops[1], "device": best_backend.device, "device_memory": bound}
    np.testing.assert_array_equal(gp.gemm(a, b, beta=2, c=c, **how), wanted(a, b, ops, 1, 2, c))
    sizes = [last - first for panel, first, last in sorted(spans) if panel == 0]
    assert len(sizes) > 2
    assert sizes[0] == sizes[1]
    assert sizes[2:-1] == [sum(sizes[:place]) for place in range(2, len(sizes) - 1)]
    assert len(spans) > len(sizes), "other panels come whole"


def test_halves_are_summed_in_float32_from_the_first_panel_to_the_last(best_backend: Backend) -> None:
    """2049 ones have no half: a sum that were one between panels would stay at 2048."""
    a, b = np.ones((64, 8192), np.float16), np.ones((8192, 64), np.float16)
    b[:, 1] = -1
    b[:4096, 2] = -1
    a[:, 8191] = 3
    got = gp.gemm(a, b, device=best_backend.device, device_memory=60_000)
    assert got.dtype == np.float16
    assert got[0, 0] == np.float16(8194)
    assert got[5, 2] == 2


def test_random_numbers_are_as_near_as_at_once(best_backend: Backend) -> None:
    rng = np.random.default_rng(5)
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((301, 509), (509, 203)))
    got = gp.matmul(a, b, device=best_backend.device, device_memory=MEMORY)
    bound = 8 * 2.0**-24 * np.linalg.norm(a, axis=1)[:, None] * np.linalg.norm(b, axis=0)
    assert np.all(np.abs(got - a.astype(float) @ b.astype(float)) <= bound)


@pytest.mark.parametrize("shared", [True, False])
def test_a_batch_is_a_sequence_of_products(best_backend: Backend, shared: bool) -> None:
    a, b = operands(70, 90, 110, "float32", batch=(3,))
    b = b if shared else np.stack([b, b + 1, b - 1])
    got = gp.matmul(a, b, device=best_backend.device, device_memory=40_000)
    np.testing.assert_array_equal(got, wanted(a, b, "NN"))


def test_operands_and_result_may_lie_as_they_like(best_backend: Backend) -> None:
    a, b = operands(150, 130, 170, "float32")
    out = np.zeros((2 * 150, 130), np.float64, order="F")[::2]
    result = gp.gemm(
        np.asfortranarray(a), b[::-1][::-1], out=out, device=best_backend.device, device_memory=MEMORY
    )  # fmt: skip
    assert result is out
    np.testing.assert_array_equal(out, wanted(a, b, "NN"))


def test_out_may_be_c_or_an_operand(best_backend: Backend) -> None:
    a, b = operands(150, 150, 150, "float32")
    c = whole((150, 150), "float32", 3)
    expected = wanted(a, b, "NN", 1, 2, c)
    assert gp.gemm(a, b, beta=2, c=c, out=c, device=best_backend.device, device_memory=MEMORY) is c
    np.testing.assert_array_equal(c, expected)
    expected = wanted(a, b, "NN")
    gp.matmul(a, b, out=a, device=best_backend.device, device_memory=MEMORY)
    np.testing.assert_array_equal(a, expected)


@pytest.mark.parametrize("ops", ["NN", "TC"])
def test_what_no_allocation_holds_passes_through_unasked(
    best_backend: Backend, monkeypatch: pytest.MonkeyPatch, ops: str
) -> None:
    """Panels are read where they lie, if the device shares the host's memory and each is in one allocation."""
    monkeypatch.setattr(best_backend, "device", replace(best_backend.device, max_allocation=300_000))
    uploaded: list[int] = []
    upload = best_backend.upload
    put_on(monkeypatch, best_backend, "upload", lambda *given, **o: (uploaded.append(1), upload(*given, **o))[1])
    a, b = operands(3, 8, 20_000, "float32", ops)
    c = whole((3, 8), "float32", 3)
    how: dict[str, Any] = {"trans_a": ops[0], "trans_b": ops[1], "device": best_backend.device}
    np.testing.assert_array_equal(gp.gemm(a, b, **how), wanted(a, b, ops))
    if ops == "NN":
        assert bool(uploaded) == (best_backend.borrow(np.zeros(4)) is None)
    np.testing.assert_array_equal(gp.gemm(a, b, beta=2, c=c, **how), wanted(a, b, ops, 1, 2, c))
    np.testing.assert_array_equal(gp.gemm(a[::-1], b.astype(np.int16), **how), wanted(a[::-1], b, ops))


def test_the_device_gives_no_more_than_is_allowed(best_backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[int] = []
    allocate = best_backend.allocate

    def counting(nbytes: int) -> Any:
        held.append(nbytes)
        return allocate(nbytes)

    put_on(monkeypatch, best_backend, "allocate", counting)
    a, b = operands(301, 303, 407, "float32")
    gp.matmul(a, b, device=best_backend.device, device_memory="300kB", kernel="tiled")
    assert 100_000 < sum(held) <= 300_000


def test_copies_for_a_device_with_a_memory_of_its_own_are_made_by_threads(
    best_backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pinned memory in two halves: one is copied to or from the device while the other is read or written. It stays."""
    monkeypatch.setattr(best_backend, "device", replace(best_backend.device, type="gpu"))
    monkeypatch.delitem(best_backend.kept, streaming._PINNED, raising=False)  # what products before have left
    threads: dict[str, set[str]] = {"upload": set(), "download": set(), "copy": set()}
    made: list[int] = []

    def noting(where: object, name: str, key: str) -> None:
        function = getattr(where, name)

        def noted(*given: Any, **named: Any) -> Any:
            threads[key].add(threading.current_thread().name)
            return function(*given, **named)

        monkeypatch.setitem(vars(where), name, noted)

    noting(best_backend, "upload", "upload")
    noting(best_backend, "download", "download")
    noting(streaming.copying, "copy_rows", "copy")
    host_buffer = best_backend.host_buffer
    put_on(monkeypatch, best_backend, "host_buffer", lambda size: (made.append(size), host_buffer(size))[1])
    a, b = operands(301, 203, 409, "float32")
    c = whole((301, 203), "float32", 3).astype(np.float64)
    for host_memory in (12_000, 100_000, 40_000):
        got = gp.gemm(
            a, b.T.copy(), beta=2, c=c, trans_b="T", device=best_backend.device, device_memory=MEMORY, host_memory=host_memory
        )  # fmt: skip
        np.testing.assert_array_equal(got, wanted(a, b, "NN", 1, 2, c))
    assert len(made) == 8, "the last product takes what the one before has left"
    assert not threads["upload"] & threads["copy"]
    assert all("ThreadPoolExecutor" in name for key in ("upload", "download") for name in threads[key])


def test_memory_maps_are_read_panel_by_panel(best_backend: Backend, tmp_path: Path) -> None:
    a, b = operands(500, 400, 3000, "float32")
    maps = [np.lib.format.open_memmap(tmp_path / name, "w+", x.dtype, x.shape) for name, x in (("a", a), ("b", b))]
    maps[0][...], maps[1][...] = a, b
    out = np.lib.format.open_memmap(tmp_path / "d", "w+", np.float32, (500, 400))
    how: dict[str, Any] = {"device": best_backend.device, "device_memory": 400_000, "host_memory": 100_000}
    gp.matmul(*maps, out=out, **how)  # what is compiled and imported is there from now on
    tracemalloc.start()
    try:
        gp.matmul(*maps, out=out, **how)
        assert tracemalloc.get_traced_memory()[1] < 1_500_000  # A alone has six million bytes
    finally:
        tracemalloc.stop()
    np.testing.assert_array_equal(out, wanted(a, b, "NN"))


class InSlices:
    """An array that gives slices alone."""

    def __init__(self, data: HostArray) -> None:
        self.data = data

    @property
    def shape(self) -> tuple[int, ...]:
        return self.data.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.data.dtype

    def __getitem__(self, key: Any) -> HostArray:
        assert all(part != slice(None) for part in key[-2:]), "read as a whole"
        return self.data[key].copy()


def test_operands_may_come_in_slices(best_backend: Backend) -> None:
    a, b = operands(150, 130, 170, "int32")
    got = gp.matmul(InSlices(a), b.astype(np.float64), device=best_backend.device, device_memory=MEMORY)
    assert got.dtype == np.float64
    np.testing.assert_array_equal(got, wanted(a, b, "NN"))
    with pytest.raises(gp.ArrayError, match=r"^a is read in slices, and another operand is on a device"):
        gp.gemm(InSlices(a), best_backend.asarray(b))


def test_arrays_of_zarr_are_read_and_written(best_backend: Backend, tmp_path: Path) -> None:
    skip_without(ZARR)
    import zarr  # noqa: PLC0415

    a, b = operands(150, 130, 170, "float32")
    stored = [zarr.create_array(tmp_path / name, data=x, chunks=(32, 48)) for name, x in (("a", a), ("b", b))]
    out = zarr.create_array(tmp_path / "d", shape=(150, 130), dtype="float32", chunks=(32, 48))
    how: dict[str, Any] = {"device": best_backend.device, "device_memory": MEMORY}
    assert gp.matmul(*stored, out=out, **how) is out
    np.testing.assert_array_equal(out[...], wanted(a, b, "NN"))
    np.testing.assert_array_equal(gp.gemm(stored[1], stored[0], trans_a="T", trans_b="T", **how), wanted(b, a, "TT"))


def test_progress_ends_with_all_that_was_planned(best_backend: Backend) -> None:
    told: list[Progress] = []
    a, b = operands(301, 203, 409, "float32")
    gp.matmul(a, b, device=best_backend.device, device_memory=MEMORY, progress=told.append)
    assert told[-1].moved == told[-1].total
    assert told[-1].tiles == told[-1].all_tiles > 1
    assert all(x.moved <= y.moved for x, y in pairwise(told))


@pytest.mark.parametrize(
    ("name", "value"), [("device_memory", "much"), ("device_memory", 0), ("host_memory", True), ("progress", 3),
                        ("checkpoint", 3)],
)  # fmt: skip
def test_what_bounds_a_product_is_checked(name: str, value: Any) -> None:
    with pytest.raises(gp.ParameterError, match=f"^{name} must be"):
        gp.matmul(np.ones((2, 2)), np.ones((2, 2)), **{name: value})


def test_memory_of_the_host_has_room_for_a_row(best_backend: Backend) -> None:
    a, b = operands(301, 203, 409, "float32")
    with pytest.raises(gp.ParameterError, match="host_memory must be at least"):
        gp.matmul(a, b, device=best_backend.device, device_memory=MEMORY, host_memory=16)


def test_a_reader_that_fails_ends_the_product(best_backend: Backend) -> None:
    class Broken(InSlices):
        def __getitem__(self, key: Any) -> HostArray:
            if key[0].start > 100:
                raise OSError("the disk is gone")
            return super().__getitem__(key)

    a, b = operands(301, 203, 409, "float32")
    with pytest.raises(OSError, match="the disk is gone"):
        gp.matmul(Broken(a), b, device=best_backend.device, device_memory=MEMORY)


# Planted faults: each must be noticed by the comparison that the tests above make.


def _panel_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    enqueue = Streamed._enqueue

    def skipping(self: Streamed, tile: Any, panel: int, *rest: Any, begins: bool) -> None:
        if panel != 1 or begins:
            enqueue(self, tile, panel, *rest, begins=begins)

    monkeypatch.setattr(Streamed, "_enqueue", skipping)


def _panel_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    enqueue = Streamed._enqueue

    def twice(self: Streamed, tile: Any, panel: int, *rest: Any, begins: bool) -> None:
        enqueue(self, tile, panel, *rest, begins=begins)
        if panel == 1:
            enqueue(self, tile, panel, *rest, begins=False)

    monkeypatch.setattr(Streamed, "_enqueue", twice)


def _beta_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    enqueue = Streamed._enqueue

    def always(self: Streamed, *rest: Any, begins: bool) -> None:
        enqueue(self, *rest, begins=True)

    monkeypatch.setattr(Streamed, "_enqueue", always)


def _wrong_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slot is given to the next panel although the one in it is still needed."""
    use = Residency.use
    monkeypatch.setattr(Residency, "use", lambda self, key, step: (0, use(self, key, step)[1]))


def _too_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """A strip is computed anew before it has left the device."""
    wait = _State.wait

    def impatient(self: _State, condition: Any) -> None:
        if "needed" not in condition.__code__.co_varnames:
            wait(self, condition)

    monkeypatch.setattr(_State, "wait", impatient)
    write = Streamed._take_all

    def late(self: Streamed, lane: Any) -> None:
        wait(self.state, lambda: self.state.enqueued >= 2 * self.schedule.panels - 1)
        self.backend.synchronize()
        write(self, lane)

    monkeypatch.setattr(Streamed, "_take_all", late)


@pytest.mark.parametrize("plant", [_panel_skipped, _panel_twice, _beta_twice, _wrong_slot, _too_early])
def test_a_planted_fault_is_noticed(best_backend: Backend, monkeypatch: pytest.MonkeyPatch, plant: Any) -> None:
    a, b = operands(301, 203, 409, "float32")
    c = whole((301, 203), "float32", 3)
    plant(monkeypatch)
    got = gp.gemm(a, b, beta=2, c=c, device=best_backend.device, device_memory=MEMORY)
    assert not np.array_equal(got, wanted(a, b, "NN", 1, 2, c))


def test_deterministic_products_have_the_same_tiles_or_none(
    best_backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever else is on the device: other tiles may add up in another order."""
    monkeypatch.setattr(best_backend, "device", replace(best_backend.device, max_allocation=10**6))
    a, b = (x.astype(np.float32) for x in operands(64, 8, 20_000, "float32"))
    tiles: list[tuple[int, int, int]] = []

    def note(self: Streamed) -> None:
        tiles.append((self.schedule.memory, self.schedule.rows, self.schedule.depth))
        if len(tiles) == 3:
            raise gp.DeviceMemoryError("it is full")

    monkeypatch.setattr(Streamed, "run", note)
    for free in (2**34, 2**23):
        monkeypatch.setattr(type(best_backend), "free_memory", free)
        gp.matmul(a, b, device=best_backend.device, deterministic=True)
    assert tiles[0] == tiles[1]
    with pytest.raises(gp.DeviceMemoryError, match="it is full"):
        gp.matmul(a, b, device=best_backend.device, deterministic=True)
    assert len(tiles) == 3


# What ends early


@pytest.mark.parametrize("failing", ["progress", "interrupt", "thread"])
def test_what_ends_early_leaves_no_thread_and_no_product_behind(
    best_backend: Backend, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    monkeypatch.setattr(best_backend, "device", replace(best_backend.device, max_allocation=300_000))
    a, b = operands(3, 8, 20_000, "float32")
    waited: list[int] = []
    if (give_back := best_backend.give_back) and best_backend.borrow(np.zeros(4)) is not None:
        put_on(monkeypatch, best_backend, "give_back", lambda *x, **o: (waited.append(1), give_back(*x, **o))[1])
    else:
        waited.append(1)  # nothing is read where it lies

    def stop(*_: Any, **__: Any) -> None:
        raise {"progress": OSError, "interrupt": KeyboardInterrupt, "thread": RuntimeError}[failing]

    how: dict[str, Any] = {"device": best_backend.device}
    if failing == "progress":
        how["progress"] = stop
    elif failing == "interrupt":
        monkeypatch.setattr(Streamed, "_leave", stop)
    else:
        start, begun = threading.Thread.start, list[int]()

        def starting(thread: threading.Thread) -> None:
            begun.append(1)
            start(thread) if len(begun) < 3 else stop()

        monkeypatch.setattr(threading.Thread, "start", starting)
    before = set(threading.enumerate())
    with pytest.raises((OSError, KeyboardInterrupt, RuntimeError)):
        gp.gemm(a, b, **how)
    assert set(threading.enumerate()) == before
    assert waited, "the caller may drop what the device still reads"


def test_parts_of_one_map_are_operands_and_result(best_backend: Backend, tmp_path: Path) -> None:
    one = np.lib.format.open_memmap(tmp_path / "x", "w+", np.float32, (3, 150, 150))
    one[...] = whole(one.shape, "float32", 1)
    gp.matmul(one[0], one[1], out=one[2], device=best_backend.device, device_memory=MEMORY)
    np.testing.assert_array_equal(one[2], wanted(one[0], one[1], "NN"))
    with pytest.raises(gp.ArrayError, match=r"^out must not have elements of a, which lie in the same file"):
        gp.matmul(np.load(tmp_path / "x", mmap_mode="r")[0], one[1], out=one[2], device_memory=MEMORY)
