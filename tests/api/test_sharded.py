"""Operands and results in shards on several devices: `ShardedArray`, with two runtimes of one CPU as two devices."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import numpy as np
import pytest

import gemmport as gp
from exact import integers
from gemmport.core.errors import DeviceLostError
from gemmport.outofcore.elsewhere import OnDevice
from gemmport.planning import schedule
from pairs import counting_allocations, opened_pair


@pytest.fixture
def pair(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[gp.Backend]]:
    """Two devices; even small operands pass by in several panels."""
    monkeypatch.setattr(schedule, "LEAST_DEPTH", 8)
    with opened_pair(monkeypatch) as found:
        yield found


def in_shards(x: np.ndarray, backends: list[gp.Backend], axis: int, stops: tuple[int, ...]) -> gp.ShardedArray:
    """Shards that end at some lines, dealt to devices in turns."""
    parts = np.split(x, stops, axis)
    return gp.ShardedArray([backends[n % len(backends)].asarray(part) for n, part in enumerate(parts)], axis)


SHAPES = {"a": (211, 77), "b": (77, 190), "c": (211, 190)}

CUTS: dict[str, tuple[int | None, int | None, int | None, int | None]] = {
    "rows": (0, 0, 0, 0), "columns": (1, 1, 1, 1), "crossed": (0, 1, 1, 0), "sums": (1, 0, 0, None), "b": (None, 1, None, None),
    "a": (0, None, None, 0),
}  # fmt: skip
"""The axis along which A, B, C and out are cut; None for an array in the host's memory, and a result that is left to gemm."""


@pytest.mark.sample(dtype=["float16"], ops=["TC"], cuts=["rows", "sums"])
@pytest.mark.parametrize("cuts", CUTS)
@pytest.mark.parametrize("ops", ["NN", "TC"])
@pytest.mark.parametrize("dtype", ["float16", "complex64", "float64", "int32"])
def test_every_cut_op_and_scalar(pair: list[gp.Backend], cuts: str, ops: str, dtype: str) -> None:
    """Shards are of unequal sizes, one of them empty, and one device has several."""
    arrays = {name: integers(shape, dtype, np.random.default_rng(n)) for n, (name, shape) in enumerate(SHAPES.items())}
    a, b, c = arrays.values()
    stored = [a.T.copy() if ops[0] == "T" else a, b.conj().T.copy() if ops[1] == "C" else b, c]
    x, y, z, out = (
        each if axis is None or each is None else in_shards(each, pair, axis, (20, 20, 61))
        for each, axis in zip([*stored, None if CUTS[cuts][3] is None else np.full_like(c, 7)], CUTS[cuts], strict=True)
    )
    d = gp.gemm(x, y, c=z, alpha=2, beta=3, trans_a=ops[0], trans_b=ops[1], out=out, devices=pair)
    assert out is None or d is out
    found = d.get() if hasattr(d, "get") else d
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, gp.gemm(a, b, c=c, alpha=2, beta=3, device=pair[0].device))
    for given, before in zip((x, y, z), stored, strict=True):
        np.testing.assert_array_equal(np.asarray(given), before)


def test_rounding_is_that_of_the_type(pair: list[gp.Backend]) -> None:
    generator = np.random.default_rng(0)
    a, b = (generator.standard_normal(shape).astype("float32") for shape in ((128, 320), (320, 128)))
    found = gp.matmul(in_shards(a, pair, 0, (64,)), in_shards(b, pair, 0, (100,)), devices=pair).get()
    exact = a.astype("float64") @ b.astype("float64")
    bound = np.linalg.norm(a, axis=1)[:, None] * np.linalg.norm(b, axis=0) * 2.0**-24
    assert (abs(found - exact) <= 8 * bound).all()


@pytest.mark.sample(m=[64])
@pytest.mark.parametrize(("m", "n", "k"), [(1, 1, 1), (2, 503, 7), (503, 2, 7), (64, 64, 0), (0, 5, 3), (131, 127, 1)])
def test_tiny_empty_and_skinny_shapes(pair: list[gp.Backend], m: int, n: int, k: int) -> None:
    a, b = integers((m, k), "float32"), integers((k, n), "float32")
    for axis in (0, 1):
        x, y = (gp.ShardedArray.distribute(each, pair, axis) for each in (a, b))
        np.testing.assert_array_equal(gp.matmul(x, y).get(), a @ b)


@pytest.mark.sample(axis=[0])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_batches(pair: list[gp.Backend], axis: int) -> None:
    a, b = integers((5, 64, 64), "float32"), integers((5, 64, 64), "float32")
    x, y = (in_shards(each, pair, axis, (2,)) for each in (a, b))
    np.testing.assert_array_equal(gp.matmul(x, y).get(), a @ b)
    np.testing.assert_array_equal(gp.matmul(x, b[0]).get(), a @ b[0])


def test_the_result_is_in_shards_like_the_operands(pair: list[gp.Backend]) -> None:
    a, b = integers((192, 64), "float32"), integers((64, 192), "float32")
    rows, columns = in_shards(a, pair, 0, (128,)), in_shards(b, pair[::-1], 1, (64,))
    for x, y, axis, sizes, first in (
        (rows, in_shards(b, pair, 0, (9,)), 0, [128, 64], pair[0]), (a, columns, 1, [64, 128], pair[1]),
        (in_shards(a, pair, 1, (9,)), columns, 1, [64, 128], pair[1]),
    ):  # fmt: skip
        found = gp.matmul(x, y)
        assert isinstance(found, gp.ShardedArray)
        assert found.axis == axis
        assert [shard.shape[axis] for shard in found.shards] == sizes
        assert found.shards[0].backend is first
        np.testing.assert_array_equal(found.get(), a @ b)
    whole = gp.matmul(rows.T, rows)  # which sums over what is spread
    assert isinstance(whole, gp.DeviceArray)
    assert whole.backend is pair[0]
    np.testing.assert_array_equal(whole.get(), a.T @ a)
    wide = gp.matmul(rows, b.astype("float64"))
    assert wide.dtype == "float64"
    np.testing.assert_array_equal(wide.get(), a @ b)


def test_views_and_products_are_as_numpys(pair: list[gp.Backend]) -> None:
    host = integers((11, 6), "float32")
    keys: list[Any] = [
        5, -1, slice(3, 9), slice(None, None, 4), slice(1, None, 3), slice(4, 4), (slice(2, 8, 2), slice(1, None)),
        (..., slice(0, 2)), (3, 2), (slice(None), 2), (slice(1, None, 2), -1), (2, slice(1, None, 2)),
        (slice(None), slice(None, None, -1)), (slice(8, None), slice(2, 3)),
    ]  # fmt: skip
    for axis in (0, 1):
        x = gp.ShardedArray.distribute(host, pair, axis)
        assert (len(x), x.size, x.nbytes, x.ndim) == (11, 66, host.nbytes, 2)
        for key in keys:
            view = key if axis == 0 or key not in (5, -1) else (slice(None), key)
            if axis == 1 and isinstance(key, tuple) and key[-1] == slice(None, None, -1):
                view = key[::-1]
            np.testing.assert_array_equal(x[view].get(), host[view])
        assert isinstance(x @ host.T, gp.ShardedArray) == (axis == 0)
        np.testing.assert_array_equal(np.asarray(x @ host.T), host @ host.T)
        np.testing.assert_array_equal(np.asarray(host.T @ x), host.T @ host)
        assert f"in shards of {'columns' if axis else 'rows'}: {3 if axis else 6} on opencl" in repr(x)
        assert "264 bytes" in x._repr_html_()
    x = gp.ShardedArray.distribute(host, pair)
    assert [row.device for row in x] == [pair[0].device] * 6 + [pair[1].device] * 5
    assert len(x[7:].shards) == 1
    x[2:8].shards[1].fill(7)
    assert (x.get()[6:8] == 7).all(), "views are of the same memory"
    for key, told in ((11, "an index of axis 0 must be from -11 to 10; got 11"), (-12, "got -12"),
                      (slice(None, None, -1), "steps of 1"), (None, "integers"),
                      ((0, 0, 0), "2 dimensions"), (True, "integers")):  # fmt: skip
        with pytest.raises(IndexError, match=told):
            x[key]
    batch = gp.ShardedArray.distribute(integers((2, 7, 3), "float32"), pair, 1)
    np.testing.assert_array_equal(batch[1, 2:].get(), batch.get()[1, 2:])


@pytest.mark.sample(axis=[0])
@pytest.mark.parametrize("axis", [0, 1])
def test_vectors_are_multiplied_by_numpys_rules(pair: list[gp.Backend], axis: int) -> None:
    """Beside arrays in shards, and in shards themselves, on the host and on a device; `out` too."""
    host, left, right = integers((300, 77), "float32"), integers((300,), "float32"), integers((77,), "float32")
    x = gp.ShardedArray.distribute(host, pair, axis)
    for place in (lambda v: v, pair[0].asarray, lambda v: gp.ShardedArray.distribute(v, pair[::-1])):
        for found, expected in ((x @ place(right), host @ right), (place(left) @ x, left @ host)):
            assert found.shape == expected.shape
            np.testing.assert_array_equal(np.asarray(found), expected)
        for out in (np.zeros(300, "float32"), pair[1].zeros(300, "float32"),
                    gp.ShardedArray.distribute(np.zeros(300, "float32"), pair)):  # fmt: skip
            assert gp.matmul(x, place(right), out, devices=pair) is out
            np.testing.assert_array_equal(np.asarray(out), host @ right)
        spread = gp.ShardedArray.distribute(right, pair)
        found = gp.matmul(spread, place(right))
        assert found.shape == ()
        assert np.asarray(found) == right @ right
    assert isinstance(x @ right, gp.ShardedArray) == (axis == 0)
    batch = integers((3, 40, 77), "float32")
    y = gp.ShardedArray.distribute(batch, pair, axis)
    np.testing.assert_array_equal(np.asarray(y @ right), batch @ right)
    np.testing.assert_array_equal(np.asarray(batch[0, :, 0] @ y), batch[0, :, 0] @ batch)
    spread = gp.ShardedArray.distribute(right, pair)
    assert "(77,) float32 in shards of elements: 39 on opencl" in repr(spread)
    np.testing.assert_array_equal(spread[5:50:3].get(), right[5:50:3])
    assert spread[40].get() == right[40]
    np.testing.assert_array_equal(spread.T.get(), right)


def test_shards_of_a_library_give_shards_of_it(pair: list[gp.Backend]) -> None:
    arrays = import_module("pyopencl.array")
    a, b = integers((192, 64), "float32"), integers((64, 64), "float32")
    shards = [arrays.to_device(one.queue, part) for one, part in zip(pair, np.split(a, [64]), strict=True)]
    for multiply in (gp.gemm, gp.matmul):
        found = multiply(gp.ShardedArray(shards), b)
        assert all(isinstance(shard, arrays.Array) for shard in found.shards)
        np.testing.assert_array_equal(np.concatenate([shard.get() for shard in found.shards]), a @ b)
    np.testing.assert_array_equal(
        np.concatenate([shard.get() for shard in (gp.ShardedArray(shards) @ b[0]).shards]), a @ b[0]
    )
    vector = gp.ShardedArray([arrays.zeros(one.queue, 96, "float32") for one in pair])
    assert gp.matmul(a, b[0], vector) is vector
    np.testing.assert_array_equal(np.concatenate([shard.get() for shard in vector.shards]), a @ b[0])
    out = gp.ShardedArray([arrays.zeros(one.queue, (96, 64), "float32") for one in pair])
    assert gp.matmul(a, b, out) is out
    np.testing.assert_array_equal(np.concatenate([shard.get() for shard in out.shards]), a @ b)


def test_c_in_shards_is_updated_in_place(pair: list[gp.Backend]) -> None:
    a, b, c = (integers((128, 128), "float32", np.random.default_rng(n)) for n in range(3))
    x, z = gp.ShardedArray.distribute(a, pair), in_shards(c, pair, 0, (64,))
    assert gp.gemm(x, b, c=z, beta=2, out=z) is z
    np.testing.assert_array_equal(z.get(), a @ b + 2 * c)


def test_rows_are_computed_where_they_lie(pair: list[gp.Backend]) -> None:
    """Of a product in shards of rows nothing of A and of the result travels, and of B what a device has not got, once."""
    first, second = pair
    a, b = integers((256, 64), "float32"), integers((64, 128), "float32")
    x, y = (gp.ShardedArray.distribute(each, pair) for each in (a, b))
    moved = {one: [0, 0] for one in pair}

    def counted(one: gp.Backend) -> None:
        upload, download = one._upload, one._download

        def uploads(memory: Any, data: np.ndarray, *rest: Any) -> None:
            moved[one][0] += data.nbytes
            upload(memory, data, *rest)

        def downloads(memory: Any, data: np.ndarray, *rest: Any) -> None:
            moved[one][1] += data.nbytes if data.nbytes > 1 else 0  # a byte is what is waited for
            download(memory, data, *rest)

        one._upload, one._download = uploads, downloads

    for one in pair:
        counted(one)
    out = gp.ShardedArray([one.empty((128, 128), "float32") for one in pair])
    before = threading.Barrier(2, timeout=60)
    enqueue = import_module("gemmport.api.streamed").enqueue_memory
    begun: set[int] = set()

    def together(problem: Any, choice: Any, backend: gp.Backend, *rest: Any) -> Any:
        if id(backend) not in begun:  # so that neither computes what is the other's
            begun.add(id(backend))
            before.wait()
        return enqueue(problem, choice, backend, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gemmport.api.streamed.enqueue_memory", together)
        patch.setattr("gemmport.multidevice.deal.SHORTEST", 1e6)  # all that is at home in one tile
        gp.gemm(x, y, out=out)
    half = b.nbytes // 2
    assert moved == {first: [half, half], second: [half, half]}
    np.testing.assert_array_equal(out.get(), a @ b)


def test_a_device_without_shards_helps_where_it_is_free(
    pair: list[gp.Backend], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "gemmport.api.dealt")
    a = integers((1024, 64), "float32")
    x = in_shards(a, pair[:1], 0, (640,))
    np.testing.assert_array_equal(gp.matmul(x, a.T, devices=pair).get(), a @ a.T)
    told = [record.getMessage() for record in caplog.records]
    assert any(pair[1].device.label in line and "computed 0.0 %" not in line for line in told)


@pytest.mark.parametrize("bound", [None, 300_000])
def test_each_device_takes_no_more_memory_than_is_allowed(pair: list[gp.Backend], bound: int | None) -> None:
    """Tiles, and what rows are packed in where columns are spread; beside the arrays, and what is waited for."""
    a, b = integers((400, 200), "float32"), integers((200, 500), "float32")
    x, y = in_shards(a, pair, 1, (90,)), in_shards(b, pair, 1, (300,))
    out = in_shards(np.empty((400, 500), "float32"), pair, 1, (130,))
    most = counting_allocations(pair).most
    gp.gemm(x, y, out=out, device_memory=bound)
    np.testing.assert_array_equal(out.get(), a @ b)
    assert all(0 < most[one] <= (bound or 2**28) for one in pair)


def test_what_does_not_fit_is_refused_by_name(pair: list[gp.Backend]) -> None:
    first, second = pair
    x, y = first.zeros((4, 6), "float32"), second.zeros((3, 6), "float32")
    for shards, axis, error, told in (
        ([x, y], 1, gp.ShapeError, r"alike in all sizes but that of axis 1; got \(4, 6\) and, for shards\[1\], \(3, 6\)"),
        ([x, y.astype("float64")], 0, gp.DtypeError, "of one type"), ([x, y], 2, gp.ShapeError, "axis must be one of 2"),
        ([x, np.zeros((3, 6), "float32")], 0, gp.ArrayError, r"got ndarray for shards\[1\]"),
        ([], 0, gp.ShapeError, "a list of one array"), ([first.zeros((), "int8")], 0, gp.ShapeError, "must be vectors"),
    ):  # fmt: skip
        with pytest.raises(error, match=told):
            gp.ShardedArray(shards, axis)
    whole = gp.ShardedArray([x, y])
    assert whole.shape == (7, 6)
    with pytest.raises(gp.ShapeError, match="must be equal"):
        gp.gemm(whole, whole)
    with pytest.raises(gp.ShapeError):
        gp.matmul(whole, whole)
    with pytest.raises(gp.ShapeError, match="out has shape"):
        gp.gemm(whole, whole, trans_b="T", out=gp.ShardedArray([first.zeros((7, 6), "float32")]))
    with pytest.raises(gp.UnsupportedError, match="add it to devices"):
        gp.gemm(whole, whole, trans_b="T", device=first.device)
    with pytest.raises(gp.ShapeError, match="mismatch in its core dimension"):
        gp.matmul(whole, np.zeros(7, "float32"))
    with pytest.raises(gp.ShapeError, match="Output operand 0 has a mismatch"):
        gp.matmul(whole, np.zeros(6, "float32"), first.zeros((7, 1), "float32"))
    with pytest.raises(gp.ShapeError, match="takes matrices"):
        gp.gemm(whole, gp.ShardedArray([x[0]]))
    square = first.zeros((8, 6), "float32")
    with pytest.raises(gp.ArrayError, match=r"out must be in shards that do not overlap; shards\[1\]"):
        gp.matmul(gp.ShardedArray([x, x]), np.zeros((6, 6), "float32"), gp.ShardedArray([square[:4], square[3:7]]))
    with pytest.raises(gp.ArrayError, match="out overlaps a"):
        gp.matmul(gp.ShardedArray([x, x]), np.zeros((6, 6), "float32"), gp.ShardedArray([x, square[4:]]))
    with pytest.raises(gp.DeviceNotFoundError, match="list of one device"):
        gp.ShardedArray.distribute(np.zeros((3, 3)), [])


def test_what_lies_on_a_device_that_is_lost_is_named_and_all_else_is_right(
    pair: list[gp.Backend], monkeypatch: pytest.MonkeyPatch
) -> None:
    """B is in the host's memory, so that the rows of the other device can be computed to their end."""
    first, second = pair
    write, gone = OnDevice.write, threading.Event()

    def fails(array: OnDevice, key: Any, source: Any, *rest: Any) -> Iterator[int]:
        if source.backend is first:
            assert gone.wait(60)
        yield from write(array, key, source, *rest)
        if source.backend is second and not gone.is_set():
            with pytest.raises(DeviceLostError):
                second.lose(DeviceLostError("a bus fell off"))
            gone.set()
            raise DeviceLostError("a bus fell off")

    monkeypatch.setattr(OnDevice, "write", fails)
    a, b = integers((600, 90), "float32"), integers((90, 200), "float32")
    x = in_shards(a, pair, 0, (400,))
    out = gp.ShardedArray([first.zeros((400, 200), "float32"), second.zeros((200, 200), "float32")])
    with pytest.raises(gp.ArrayLostError, match=f"{pair[1].device.platform}.*not computed: rows 4"):
        gp.matmul(x, b, out)
    np.testing.assert_array_equal(out.shards[0].get(), (a @ b)[:400])


def test_a_device_that_fails_and_keeps_its_memory_costs_no_result(
    pair: list[gp.Backend], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    write, failed = OnDevice.write, threading.Event()

    def fails(array: OnDevice, key: Any, source: Any, *rest: Any) -> Iterator[int]:
        if source.backend is pair[0]:
            assert failed.wait(60)
        yield from write(array, key, source, *rest)
        if source.backend is pair[1]:
            failed.set()
            raise gp.LaunchError("out of order")

    monkeypatch.setattr(OnDevice, "write", fails)
    a, c = integers((512, 64), "float32"), integers((512, 512), "float32", np.random.default_rng(1))
    x, z = (gp.ShardedArray.distribute(each, pair) for each in (a, c))
    gp.gemm(x, x, trans_b="T", c=z, beta=2, out=z)
    np.testing.assert_array_equal(z.get(), a @ a.T + 2 * c)
    assert "out of order" in caplog.text
