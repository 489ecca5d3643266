"""Arrays that are larger than one allocation of their device: in several, which nobody sees who does not ask for an address.

Devices allow little here: limits are made up, and arrays are small.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pyopencl as cl
import pyopencl.array
import pytest

import gemmport as gp
from absences import beyond
from exact import integers
from gemmport.api import parts
from gemmport.backends.segments import SegmentedMemory
from gemmport.core.dtypes import as_dtype
from made_up_devices import DEVICES

LIMIT = 6_000
"""Bytes of an allocation."""


@contextmanager
def allowing(backend: gp.Backend, most: int, **limits: int) -> Iterator[None]:
    """The device, as if it allowed so many bytes in one allocation."""
    device = backend.device
    backend.device = replace(device, max_allocation=most, **limits)
    try:
        yield
    finally:
        backend.device = device


@pytest.fixture
def small(backend: gp.Backend) -> Iterator[gp.Backend]:
    with allowing(backend, LIMIT):
        yield backend


@pytest.fixture
def best(best_backend: gp.Backend) -> Iterator[gp.Backend]:
    with allowing(best_backend, LIMIT):
        yield best_backend


def numbers(*shape: int, dtype: Any = "float32") -> np.ndarray:
    return integers(shape, as_dtype(dtype).name, np.random.default_rng([*shape, 9]))


def wanted(a: Any, b: Any, ops: str = "NN", alpha: Any = 1, beta: Any = 0, c: Any = None) -> np.ndarray:
    """The product in the widest type of the kind, exact where all are small integers."""
    kind = as_dtype(a.dtype).kind
    wide = {"complex": np.complex128, "integer": np.int64}.get(kind, np.float64)
    left, right = (
        x.swapaxes(-1, -2).conj() if op == "C" else x.swapaxes(-1, -2) if op == "T" else x
        for op, x in zip(ops, (a, b), strict=True)
    )
    product = alpha * (left.astype(wide) @ right.astype(wide))
    return (product if c is None else product + beta * c.astype(wide)).astype(a.dtype)


class TestArrays:
    """There and back, in views and other types."""

    @pytest.mark.every_value("shape", [(97, 61), (5, 31, 43), (2, 70, 61), (3, 4001), (9001,)])
    @pytest.mark.sample(shape=[(97, 61)])
    def test_go_there_and_back_through_views(self, small: gp.Backend, shape: tuple[int, ...]) -> None:
        x = numbers(*shape)
        d = small.asarray(x)
        blocks = d.memory.segments if isinstance(d.memory, SegmentedMemory) else ()
        assert d.allocations == len(blocks) >= x.nbytes / LIMIT
        assert sum(block.nbytes for block in blocks) == d.nbytes == x.nbytes
        assert max(block.nbytes for block in blocks) <= LIMIT
        assert repr(d).endswith(f", in {d.allocations} allocations>")
        for view in (np.s_[...], np.s_[3:-2], np.s_[::-2], np.s_[..., 1:7], np.s_[-1], np.s_[..., ::-3]):
            np.testing.assert_array_equal(d[view].get(), x[view])
            np.testing.assert_array_equal(d[view].T.copy().get(), x[view].T)
            np.testing.assert_array_equal(np.asarray(d[view].astype("float16")), x[view].astype("float16"))
        flat = d.reshape(-1)
        flat[100:-100] = 7
        d[..., :2] = np.zeros_like(x[..., :2])
        x.reshape(-1)[100:-100], x[..., :2] = 7, 0
        np.testing.assert_array_equal(d.get(), x)
        d.set(d[::-1])
        np.testing.assert_array_equal(d.get(), x[::-1])

    def test_are_made(self, best: gp.Backend) -> None:
        for made, value in ((best.zeros, 0), (best.ones, 1)):
            assert (made((97, 61), "float32").get() == value).all()
        empty = best.empty((97, 61), "int16")
        empty.fill(-3)
        assert empty.allocations == 2
        assert (empty.get() == -3).all()
        assert best.empty((50, 30), "float32").allocations == 1  # as large as it may be

    def test_wait_and_are_released_as_one(self, best: gp.Backend) -> None:
        d = best.asarray(numbers(97, 61))
        segments = d.memory.segments  # type: ignore[attr-defined]
        assert {id(block.access) for block in segments} == {id(d.memory.access)}
        d.release()
        assert all(block.released for block in segments)
        with pytest.raises(gp.ArrayError, match="must not be used after it was released"):
            d.get()

    def test_beyond_the_memory_of_the_device_are_refused(self, best_backend: gp.Backend) -> None:
        with (
            allowing(best_backend, LIMIT, memory=20_000),
            pytest.raises(
                gp.DeviceMemoryError, match="23,668 bytes in all; the device has 20,000: keep the array on the"
            ),
        ):
            best_backend.empty((97, 61), "float32")


class TestProducts:
    """Of any mixture of arrays in several allocations, in one, and NumPy's."""

    @pytest.mark.every_pair(
        "ops, types, where",
        [(ops, types, where) for ops in ("NN", "NT", "TN", "CT")
         for types in ("float32", "float64", "complex64", "float16", "bfloat16", "int8") for where in ("ab", "a", "b", "out")],
        apart=True,
    )  # fmt: skip
    @pytest.mark.sample(ops=("NN", "TN"), types=("float16",), where=("ab",))
    def test_are_exact(self, backend: gp.Backend, ops: str, types: str, where: str) -> None:
        """What is named has several allocations: the device allows more while the others are made."""
        m, n, k = 130, 70, 90
        a = numbers(*((m, k) if ops[0] == "N" else (k, m)), dtype=types)
        b = numbers(*((k, n) if ops[1] == "N" else (n, k)), dtype=types)
        c = numbers(m, n, dtype=types)
        most = 3_000 * a.itemsize
        lying = {}
        for name, x in (("a", a), ("b", b), ("c", c)):
            with allowing(backend, most if name in where else backend.device.max_allocation):
                lying[name] = backend.asarray(x)
            assert (lying[name].allocations > 1) == (name in where)
        with allowing(backend, most if "out" in where else backend.device.max_allocation):
            out = backend.empty((n, m), a.dtype).T
        how: dict[str, Any] = {"trans_a": ops[0], "trans_b": ops[1]}
        for third in (c, lying["c"]):
            assert gp.gemm(lying["a"], lying["b"], alpha=2, beta=-1, c=third, out=out, **how) is out
            np.testing.assert_array_equal(out.get(), wanted(a, b, ops, 2, -1, c))
        with allowing(backend, most):
            for left, right in ((lying["a"], b), (a, lying["b"])):
                d = gp.gemm(left, right, **how)
                assert d.allocations == 4
                np.testing.assert_array_equal(d.get(), wanted(a, b, ops))
            gp.gemm(lying["a"], lying["b"], beta=1, c=d, out=d, deterministic=True, **how)
        np.testing.assert_array_equal(d.get(), wanted(a, b, ops, 2))

    @pytest.mark.parametrize("of", [np.float16, ml_dtypes.bfloat16])
    def test_sums_of_halves_stay_in_float32_from_the_first_part_to_the_last(
        self, best_backend: gp.Backend, monkeypatch: pytest.MonkeyPatch, of: Any
    ) -> None:
        """Neither type has 4097."""
        a, b = np.ones((30, 8194), of), np.ones((8194, 1), of)
        b[4097:] = -1
        b[-1] = 0
        with allowing(best_backend, 8194):
            left, right = best_backend.asarray(a), best_backend.asarray(b)
            assert right.allocations == 2
            for most in (2**20, 40):  # bytes of sums
                monkeypatch.setattr(parts, "SUMS", most)
                assert (gp.matmul(left, right).get() == 1).all()
                c = best_backend.ones((30, 1), of)
                assert (gp.gemm(left, right, beta=2, c=c).get() == 3).all()

    @pytest.mark.every_value("shapes", [
        ((5, 31, 43), (5, 43, 29)), ((2, 70, 61), (61, 20)), ((61, 61), (3, 61, 40)), ((3, 5, 20, 30), (5, 30, 40)),
        ((2, 4001), (4001,)), ((3, 4001), (4001, 2)), ((2, 4001), (2, 4001, 2)), ((97, 0), (0, 61)), ((0, 61), (61, 97)),
    ])  # fmt: skip
    @pytest.mark.sample(shapes=[((2, 70, 61), (61, 20))])
    def test_batches_and_vectors_are_exact(self, small: gp.Backend, shapes: tuple[tuple[int, ...], ...]) -> None:
        a, b = (numbers(*shape) for shape in shapes)
        found = gp.matmul(small.asarray(a), small.asarray(b))
        np.testing.assert_array_equal(found.get(), np.matmul(a, b))

    @pytest.mark.every_value("key", [np.s_[:, ::-1], np.s_[:, ::2], np.s_[3:50]])
    @pytest.mark.sample(key=[np.s_[3:50]])
    def test_views_of_any_strides_are_exact(self, best_backend: gp.Backend, key: Any) -> None:
        """Matrices that lie in each other's rows, too."""
        a, b, o = numbers(61, 97), numbers(97, 2, 31), np.zeros((61, 2, 31), np.float32)
        with allowing(best_backend, 14_000):
            x, y, out = (best_backend.asarray(each) for each in (a, b, o))
            assert x.allocations == y.allocations == out.allocations == 2
            x, y, out = x[key], y[: a[key].shape[1]].transpose(1, 0, 2), out[: len(a[key])].transpose(1, 0, 2)
            gp.matmul(x, y, out=out)
        expected = np.matmul(a[key], b[: a[key].shape[1]].transpose(1, 0, 2))
        np.testing.assert_array_equal(out.get(), expected)

    def test_no_other_array_is_taken_for_one(self, best_backend: gp.Backend) -> None:
        """A product that is kept for others of its kind is of arrays with addresses."""
        a = numbers(61, 97)
        plain = best_backend.asarray(a)
        for _ in range(2):
            gp.matmul(plain, plain.T)
        with allowing(best_backend, 15_000):
            cut = best_backend.asarray(a)
            assert cut.lies is not plain.lies
            for x, y in ((cut, plain), (plain, cut), (cut, cut)):
                np.testing.assert_array_equal(gp.matmul(x, y.T).get(), a @ a.T)

    def test_out_that_overlaps_an_operand_is_refused(self, best: gp.Backend) -> None:
        square = best.asarray(numbers(61, 61))
        for operand in (square, square[::-1]):
            with pytest.raises(gp.ArrayError, match="out overlaps a"):
                gp.gemm(operand, best.ones((61, 61), "float32"), out=square)

    def test_the_log_tells(self, best: gp.Backend, caplog: pytest.LogCaptureFixture) -> None:
        with caplog.at_level(logging.INFO, "gemmport"):
            gp.matmul(best.asarray(numbers(97, 61)), best.ones((61, 10), "float32"))
        assert "an array of shape (97, 61) and type float32 lies in 5 allocations" in caplog.text
        assert "5 products of parts: A lies in 5 allocations, B in 1, the result in 1" in caplog.text


class TestRefusals:
    """What takes one address refuses by name what has several."""

    def test_dlpack_and_the_array_interface(self, best: gp.Backend, monkeypatch: pytest.MonkeyPatch) -> None:
        d = best.asarray(numbers(97, 61))
        monkeypatch.setattr(type(best), "dlpack_device", (2, 0))
        monkeypatch.setattr(type(best), "share", lambda *_: 1)
        with pytest.raises(
            BufferError, match="in 5 allocations> has no address that DLPack could tell: take a view that lies"
        ):
            d.__dlpack__()
        with pytest.raises(AttributeError, match="for it has no address: take a view that lies in one allocation"):
            _ = d.__cuda_array_interface__
        assert d[:10].__dlpack__()
        # The first row of the second segment, which is a memory of its own.
        second = d.memory.segments[1]  # type: ignore[attr-defined]
        assert d[20:40].__cuda_array_interface__["data"][0] == second.handle

    def test_memory(self, best: gp.Backend) -> None:
        memory = best.zeros((97, 61), "float32").memory
        for name in ("native", "handle"):
            with pytest.raises(
                gp.UnsupportedError, match="must be in one allocation to have an address; they are in 5"
            ):
                getattr(memory, name)
        with pytest.raises(AttributeError, match="has no size"):
            _ = memory.size  # type: ignore[attr-defined]

    def test_results_of_libraries_that_take_one(self, best: gp.Backend) -> None:
        if best.name != "opencl":
            pytest.skip(beyond(best.device, "arrays of PyOpenCL are OpenCL's"))
        a = cl.array.to_device(best.queue, numbers(97, 10))
        with pytest.raises(gp.DeviceMemoryError, match="37,636 bytes in one allocation; the device allows 6,000"):
            gp.matmul(a, a.get().T)


def test_explain_tells() -> None:
    device = replace(DEVICES["CPU under PoCL"], memory=2**36, max_allocation=2**32)
    found = gp.explain((65536, 32768, 1024), device)
    assert found.to_dict()["allocations"] == found.allocations == {"a": 1, "b": 1, "d": 2}
    assert "arrays on the device: A in 1, B in 1, D in 2, since one has 4.29 GB at most" in " ".join(str(found).split())
    assert gp.explain((65536, 32768, 1024), replace(device, memory=2**32)).allocations == {}
    assert "arrays on the device" not in str(gp.explain((64, 64, 64), device))


MOST = 12 * 2**30
"""Bytes of an array that a test makes on a device: more would take a CPU minutes."""


@pytest.mark.large
def test_an_array_beyond_the_runtimes_own_limit(fresh_backend: gp.Backend) -> None:
    """By a gigabyte: blocks of rows are alike but for their first column, which tells them apart."""
    device, k, rows = fresh_backend.device, 2**16, 2**10
    block = rows * k * 4
    m = -(-(device.max_allocation + 2**30) // block) * rows
    needed = m * k * 4
    room = min(int(0.9 * device.memory), MOST, *([int(0.9 * free_memory())] if device.type == "cpu" else []))
    if needed + block > room:
        pytest.skip(beyond(device, f"an array of {needed / 2**30:.1f} GiB; {room / 2**30:.1f} are there for it"))
    one, b, v = numbers(rows, k), numbers(k, 4), numbers(k)
    marks = np.arange(m, dtype="float32") % 509
    x = fresh_backend.empty((m, k), "float32")
    assert x.allocations >= 2
    source = fresh_backend.asarray(one)
    for first in range(0, m, rows):
        x[first : first + rows] = source
    x[:, :1] = marks[:, np.newaxis]
    one[:, 0] = 0
    sums = one.astype("float64") @ np.column_stack([b, v])
    expected = np.tile(sums, (m // rows, 1)) + np.outer(marks, [*b[0], v[0]])
    assert abs(expected).max() < 2**24, "exact in float32"
    np.testing.assert_array_equal(gp.matmul(x, b).get(), expected[:, :4])
    np.testing.assert_array_equal(gp.matmul(x, v).get(), expected[:, 4])


def free_memory() -> int:
    """Bytes of the host's memory that programs may still take."""
    told = dict(line.split(":") for line in Path("/proc/meminfo").read_text("ascii").splitlines())
    return 1024 * int(told["MemAvailable"].split()[0])
