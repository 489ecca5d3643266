"""Device arrays, their exchange with other libraries, queues and events: in place, in order, and without the host waiting.

Tests with PyTorch, CuPy and JAX on CUDA are skipped, visibly, where one of them or the GPU is missing.
"""

from __future__ import annotations

import gc
import importlib
import itertools
import multiprocessing
import re
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest

import gemmport as gp
import made_up_devices
from absences import CUPY, GPU, JAX, JAX_ON_CPUS, TORCH, beyond, skip_without
from exact import integers
from gemmport import backends, kernels
from gemmport.api import within
from gemmport.core import dlpack
from gemmport.core.dtypes import DTYPES
from gemmport.execution import adapters, repeated
from gemmport.execution.copies import copy_strided, dense_copy
from gemmport.execution.selection import backend_of


def pair(a: tuple[int, ...], b: tuple[int, ...], dtype: Any = np.float32) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng([*a, 77, *b])
    return integers(a, dtype, rng), integers(b, dtype, rng)


def gemm(*operands: Any, **options: Any) -> Any:
    """`gp.gemm` by the kernel that compiles fastest: what is tested here is what surrounds it."""
    return gp.gemm(*operands, **{"kernel": "naive", **options})


# DLPack


class _Capsule:
    """A host array that only DLPack hands over, by our own writer."""

    def __init__(self, host: np.ndarray) -> None:
        self.host = host

    def __dlpack__(self, **_: Any) -> object:
        host = self.host
        strides = [step // host.itemsize for step in host.strides]
        return dlpack.write(host.ctypes.data, (dlpack.CPU, 0), host.dtype, host.shape, strides, host)

    def __dlpack_device__(self) -> tuple[int, int]:
        return dlpack.CPU, 0


HOSTS = {
    "dense": np.arange(12.0).reshape(3, 4),
    "backwards": np.arange(48, dtype=np.int16).reshape(6, 8)[::-1, ::-3],
    "repeated": np.broadcast_to(np.arange(3, dtype=np.uint8), (4, 3)),
    "complex": np.arange(4, dtype=np.complex64),
    "bool": np.array([True, False]),
    "half": np.arange(4, dtype=np.float16),
    "number": np.array(3.0),
    "empty": np.zeros((0, 3)),
}


@pytest.mark.parametrize("host", HOSTS.values(), ids=HOSTS)
class TestCapsules:
    def test_of_numpy_are_read_in_place(self, host: np.ndarray) -> None:
        view = dlpack.as_numpy(host if host.flags.writeable else _Capsule(host))  # NumPy hands over nothing read-only
        assert (view.dtype, view.shape) == (host.dtype, host.shape)
        np.testing.assert_array_equal(view, host)
        assert np.shares_memory(view, host) == bool(host.size)

    def test_of_ours_are_read_by_numpy_in_place(self, host: np.ndarray) -> None:
        view = np.from_dlpack(_Capsule(host))
        assert (view.dtype, view.shape) == (host.dtype, host.shape)
        np.testing.assert_array_equal(view, host)
        assert np.shares_memory(view, host) == bool(host.size)


def test_a_type_that_only_dlpack_knows_comes_through() -> None:
    host = np.arange(5).astype(DTYPES["bfloat16"].numpy)
    view = dlpack.as_numpy(_Capsule(host))
    assert view.dtype == host.dtype
    np.testing.assert_array_equal(view.astype(np.float32), np.arange(5))


def test_a_capsule_of_version_1_is_read_and_tells_whether_it_may_be_written() -> None:
    host = np.arange(6.0)
    try:
        capsule = host.__dlpack__(max_version=(1, 0))
    except TypeError:
        pytest.skip(beyond("this NumPy", "it writes DLPack 0 alone"))
    told = dlpack.read(capsule)
    assert (told.pointer, told.shape, told.strides, told.read_only) == (host.ctypes.data, (6,), (1,), False)
    host.flags.writeable = False
    assert dlpack.read(host.__dlpack__(max_version=(1, 0))).read_only


@pytest.mark.parametrize(
    ("pointer", "shape", "strides"), [(2**40 + 4, (2, 3), (7, -2)), (0, (0, 3), (3, 1))], ids=["somewhere", "nowhere"]
)
def test_a_capsule_of_a_device_tells_which_and_where(
    pointer: int, shape: tuple[int, int], strides: tuple[int, int]
) -> None:
    told = dlpack.read(dlpack.write(pointer, (dlpack.CUDA, 3), np.dtype(np.float32), shape, strides, None))
    assert (told.pointer, told.device, told.shape, told.strides) == (pointer, (dlpack.CUDA, 3), shape, strides)


class _Watched(np.ndarray):
    """An array that can be watched."""


def test_memory_is_given_back_when_the_consumer_has_done() -> None:
    host = np.arange(6.0).view(_Watched)
    seen = weakref.ref(host)
    consumer = np.from_dlpack(_Capsule(host))
    del host
    gc.collect()
    assert seen() is not None
    assert consumer.tolist() == [0, 1, 2, 3, 4, 5]
    del consumer
    assert seen() is None


def test_a_capsule_that_nobody_reads_gives_its_memory_back() -> None:
    host = np.arange(6.0).view(_Watched)
    seen = weakref.ref(host)
    capsule = _Capsule(host).__dlpack__()
    del host
    gc.collect()
    assert seen() is not None
    del capsule
    assert seen() is None


GIVEN_BACK_WHILE_RAISING = """
import importlib, sys
import numpy as np
from gemmport.core import dlpack

class Host(np.ndarray):
    given_back = 0

    def __del__(self):
        Host.given_back += 1

class Capsule:
    def __init__(self):
        self.host = np.ones(4).view(Host)

    def __dlpack__(self, **_):
        host = self.host
        return dlpack.write(host.ctypes.data, (dlpack.CPU, 0), host.dtype, host.shape, (1,), host)

    def __dlpack_device__(self):
        return dlpack.CPU, 0

read = importlib.import_module(sys.argv[1]).from_dlpack if sys.argv[1:] else Capsule.__dlpack__
raised = 0
for _ in range(3000):
    try:
        read(Capsule()) / (1 // 0)  # the exception is raised before the left side is let go
    except ZeroDivisionError:
        raised += 1
print(raised, Host.given_back)
"""


@pytest.mark.parametrize("consumer", ["numpy", "torch", None], ids=str)
def test_memory_is_given_back_while_an_exception_is_raised(consumer: str | None) -> None:
    if consumer == "torch":
        skip_without(TORCH)
    command = [sys.executable, "-c", GIVEN_BACK_WHILE_RAISING, *([consumer] if consumer else [])]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "3000 3000\n", "")


def test_what_is_read_keeps_its_producer_and_lets_it_go() -> None:
    host = np.arange(6.0)
    before = sys.getrefcount(host)
    view = dlpack.as_numpy(host)
    assert sys.getrefcount(host) > before
    part = view[2:]
    del view
    gc.collect()
    assert sys.getrefcount(host) > before
    assert part.tolist() == [2, 3, 4, 5]
    del part
    gc.collect()
    assert sys.getrefcount(host) == before


def test_what_is_no_fresh_capsule_is_refused() -> None:
    capsule = _Capsule(np.arange(6.0)).__dlpack__()
    dlpack.read(capsule)
    for wrong in (capsule, 7, None):
        with pytest.raises(gp.ArrayError, match="DLPack capsule"):
            dlpack.read(wrong)
    with pytest.raises(gp.DtypeError, match="datetime64"):
        dlpack.write(0, (dlpack.CPU, 0), np.dtype("M8[s]"), (), (), None)


# Device arrays


class TestDeviceArray:
    @pytest.mark.parametrize("key", [(), (slice(None, None, 2),), (slice(None), slice(1, 3))], ids=str)
    @pytest.mark.parametrize("shape", [(6, 4), (24,), (2, 3, 4), (-1, 2), (1, 6, 1, 4), (3, -1), (12, 2)], ids=str)
    def test_has_the_views_of_another_shape_that_numpy_has(self, backend: gp.Backend, shape: Any, key: Any) -> None:
        host = np.arange(24, dtype=np.int32).reshape(6, 4)
        x, array = host[key], backend.asarray(host)[key] if key else backend.asarray(host)
        try:
            wanted = x.reshape(shape)
        except ValueError:
            with pytest.raises(gp.ShapeError):
                array.reshape(shape)
            return
        if np.shares_memory(wanted, host):
            view = array.reshape(*shape)
            assert view.memory is array.memory
            np.testing.assert_array_equal(view.get(), wanted)
        else:
            with pytest.raises(gp.ArrayError, match="only a copy"):
                array.reshape(shape)

    @pytest.mark.parametrize(
        "key", [(), (slice(1, 4),), (slice(None), slice(0, 5, 2)), (slice(None, None, -1),), (2,)], ids=str
    )
    def test_is_set_from_the_host_and_nothing_else_is(self, backend: gp.Backend, key: Any) -> None:
        host = np.arange(30, dtype=np.float32).reshape(5, 6)
        array = backend.asarray(host)
        (array[key] if key else array).set(-np.arange(host[key].shape[-1]))
        host[key] = -np.arange(host[key].shape[-1])
        np.testing.assert_array_equal(array.get(), host)

    def test_is_not_set_from_what_does_not_fit(self, backend: gp.Backend) -> None:
        array = backend.zeros((2, 3), np.float32)
        with pytest.raises(gp.ShapeError, match=r"\(2, 2\)"):
            array.set(np.zeros((2, 2)))
        with pytest.raises(gp.DtypeError, match="complex128"):
            array.set(np.zeros((2, 3), complex))

    def test_tells_its_length_and_itself(self, backend: gp.Backend) -> None:
        array = backend.zeros((2, 3), np.float32)
        assert (len(array), array.get().tolist()) == (2, [[0, 0, 0], [0, 0, 0]])
        assert "(2, 3) float32" in repr(array)
        with pytest.raises(TypeError):
            len(backend.zeros((), np.float32))

    def test_is_released_at_the_end_of_its_block(self, backend: gp.Backend) -> None:
        with backend.zeros((2, 3), np.float32) as array:
            assert array.memory.nbytes == 24
        assert array.memory.nbytes == 0

    @pytest.mark.parametrize("shape", [-1, (-1, 3), (3, -2), (2.5, 2), "ab"], ids=str)
    def test_of_a_size_that_is_none_is_refused(self, backend: gp.Backend, shape: Any) -> None:
        for make in (backend.empty, backend.zeros):
            with pytest.raises(gp.ShapeError, match="shape"):
                make(shape, np.float32)
        with pytest.raises(gp.ShapeError, match="-1 bytes"):
            backend.allocate(-1)

    def test_stands_over_a_buffer_of_the_caller(self, backend: gp.Backend) -> None:
        host = np.arange(20, dtype=np.float32)
        owner = backend.asarray(host)
        buffer = owner.memory.native if backend.name == "opencl" else owner.memory.handle
        wrapped = backend.wrap(buffer, (3, 2), np.float32, strides=(5, -1), offset=4, nbytes=80, keeper=owner)
        np.testing.assert_array_equal(wrapped.get(), [[4, 3], [9, 8], [14, 13]])
        for shape, strides, offset in (((5, 5), None, 0), ((2, 2), (1, -2), 1), ((4, 5), None, 1)):
            with pytest.raises(gp.ShapeError, match="reaches from"):
                backend.wrap(buffer, shape, np.float32, strides=strides, offset=offset, nbytes=owner.memory.nbytes)
        with pytest.raises(gp.ShapeError, match="3 strides"):
            backend.wrap(buffer, (2, 2), np.float32, strides=(1, 1, 1), nbytes=80)

    def test_is_ready_when_its_work_is_done(self, backend: gp.Backend) -> None:
        a, b = pair((64, 64), (64, 64))
        product = gemm(backend.asarray(a), backend.asarray(b))
        other = backend.new_queue()
        out = np.empty((64, 64), np.float32)
        backend.wait([product.ready], queue=other)
        backend._download(product.memory, out, 0, other)
        np.testing.assert_array_equal(out, a @ b)
        assert product.queue == backend.queue

    def test_is_handed_over_by_dlpack_on_cuda_alone(self, backend: gp.Backend) -> None:
        array = backend.zeros((2, 3), np.float32)
        if backend.name == "cuda":
            told = dlpack.read(array[:, ::2].__dlpack__())
            assert (told.pointer, told.device) == (array.memory.handle, (dlpack.CUDA, backend.device.index[1]))
            assert (told.shape, told.strides) == ((2, 2), (3, 2))
            assert array.__cuda_array_interface__["data"] == (array.memory.handle, False)
        else:
            with pytest.raises(BufferError, match="DLPack"):
                array.__dlpack_device__()
            with pytest.raises(BufferError, match="DLPack"):
                array.__dlpack__()
            assert not hasattr(array, "__cuda_array_interface__")


# Copies on the device


KEYS = [
    (), (slice(None, None, -1),), (slice(None), slice(None, None, 2)), (slice(3, None, -2), slice(None, None, -1)),
    (Ellipsis, slice(1, 2)), (2,),
]  # fmt: skip


@pytest.mark.parametrize("key", KEYS, ids=str)
@pytest.mark.parametrize("name", ["int8", "float16", "float32", "float64", "complex128"])
def test_a_gathered_view_has_the_bits_of_the_view(backend: gp.Backend, name: str, key: Any) -> None:
    rng = np.random.default_rng(3)
    host = np.frombuffer(rng.bytes(4 * 5 * 3 * 6 * 16), np.uint8)[: 4 * 5 * 3 * 6 * np.dtype(name).itemsize].view(name)
    host = host.reshape(4, 5, 3, 6)
    array = backend.asarray(host)
    x, view = host[key], array[key] if key else array
    order = rng.permutation(x.ndim)
    x = x.transpose(order)
    view = gp.DeviceArray(backend, view.memory, x.shape, view.dtype, tuple(view.strides[i] for i in order), view.offset)
    copied = dense_copy(view, host.dtype).get()
    assert np.ascontiguousarray(x).tobytes() == copied.tobytes()


def test_more_dimensions_than_a_launch_walks_and_repeated_elements_are_copied(backend: gp.Backend) -> None:
    host = np.arange(2**6, dtype=np.int32).reshape([2] * 6)
    array = backend.asarray(host)
    order = (5, 3, 1, 4, 2, 0)
    turned = gp.DeviceArray(backend, array.memory, (2,) * 6, array.dtype, tuple(array.strides[i] for i in order))
    np.testing.assert_array_equal(dense_copy(turned, host.dtype).get(), host.transpose(order))
    repeated = gp.DeviceArray(backend, array.memory, (3, 4, 5), array.dtype, (0, 2, 0), 1)
    wanted = np.broadcast_to(host.reshape(-1)[1:9:2][None, :, None], (3, 4, 5))
    np.testing.assert_array_equal(dense_copy(repeated, host.dtype).get(), wanted)


@pytest.mark.parametrize("name", ["float32", "complex128", "uint8"])
def test_a_copy_into_a_view_writes_nothing_else(backend: gp.Backend, name: str) -> None:
    host, whole = np.arange(12).astype(name).reshape(3, 4), np.full((7, 9), 9, name)
    array = backend.asarray(whole)
    copy_strided(backend.asarray(host), array[::-3, 1:8:2])
    whole[::-3, 1:8:2] = host
    np.testing.assert_array_equal(array.get(), whole)


PROMOTIONS = [
    (source, target)
    for source, target in itertools.permutations(DTYPES, 2)
    if "bfloat16" not in (source, target) and np.result_type(source, target) == target
]
NARROWED = [("float64", "float16"), ("float64", "bfloat16"), ("float32", "bfloat16"), ("complex128", "complex64"),
            ("int64", "int8"), ("bfloat16", "float32"), ("int8", "bfloat16")]  # fmt: skip


@pytest.mark.parametrize(("source", "target"), [*PROMOTIONS, *NARROWED])
def test_types_are_converted_as_numpy_does(best_backend: gp.Backend, source: str, target: str) -> None:
    needed = {DTYPES[name].arithmetic for name in (source, target)} - {"", "float16"}
    if not needed <= best_backend.device.computes:
        pytest.skip(beyond(best_backend.device, f"it does not compute in {needed}"))
    host = np.array([0, 1, 3, 100, -1, -7], np.float64)
    host = (np.abs(host) if source.startswith(("u", "b")) and source != "bfloat16" else host).astype(
        DTYPES[source].numpy
    )
    with np.errstate(all="ignore"):
        wanted = host.astype(DTYPES[target].numpy)
    got = dense_copy(best_backend.asarray(host)[::-1], DTYPES[target].numpy).get()
    np.testing.assert_array_equal(got.view(np.uint8), wanted[::-1].copy().view(np.uint8))


# Views as operands and as out


@pytest.fixture
def no_transfers(backend: gp.Backend, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A block in which nothing may pass between host and device, and the host may not wait."""

    @contextmanager
    def block() -> Iterator[None]:
        def refuse(*_: Any, **__: Any) -> None:
            pytest.fail("the host transferred data, or waited, where work was only to be enqueued")

        with monkeypatch.context() as patch:
            for name in ("_upload", "_download", "synchronize", "_finish", "elapsed"):
                patch.setattr(type(backend), name, refuse)
            yield

    return block


def as_view(backend: gp.Backend, x: np.ndarray, rng: np.random.Generator) -> tuple[gp.DeviceArray, gp.DeviceArray]:
    """The values as a view of any strides in device memory, and the whole of that memory, which is 55 elsewhere."""
    order = [int(i) for i in rng.permutation(x.ndim)]
    steps = [int(step) for step in rng.choice([-2, -1, 1, 1, 2], x.ndim)]
    stored = [x.shape[i] for i in order]
    whole = np.full([n * abs(step) + 2 for n, step in zip(stored, steps, strict=True)], 55, x.dtype)
    keys = tuple(
        slice(1, None, step) if step > 0 else slice(n * -step, None, step)
        for n, step in zip(stored, steps, strict=True)
    )
    inner = tuple(slice(0, n) for n in stored)
    back = [int(i) for i in np.argsort(order)]
    whole[keys][inner].transpose(back)[...] = x
    array = backend.asarray(whole)
    view = array[keys][inner]
    turned = gp.DeviceArray(
        backend, array.memory, x.shape, x.dtype, tuple(view.strides[i] for i in back), view.offset
    )  # fmt: skip
    return turned, array


@pytest.mark.parametrize("seed", range(25))
def test_any_views_go_in_and_out_without_the_host(backend: gp.Backend, no_transfers: Any, seed: int) -> None:
    rng = np.random.default_rng(seed)
    batch = (int(rng.integers(1, 4)),) if seed % 2 else ()
    m, n, k = (int(x) for x in rng.integers(1, 9, 3))
    ops = rng.choice(["N", "T"], 2)
    a = integers((*batch, *((m, k) if ops[0] == "N" else (k, m))), np.float32, rng)
    b = integers((*batch, *((k, n) if ops[1] == "N" else (n, k))), np.float32, rng)
    c = integers((*batch, m, n), np.float32, rng)
    wanted = 2 * (a if ops[0] == "N" else a.swapaxes(-1, -2)) @ (b if ops[1] == "N" else b.swapaxes(-1, -2)) - c
    x, y, z, out = (as_view(backend, value, rng) for value in (a, b, c, np.zeros_like(c)))
    np.testing.assert_array_equal(x[0].get(), a)
    with no_transfers():
        for where in (out[0], z[0]):
            options = {"trans_a": ops[0], "trans_b": ops[1]}
            gemm(x[0], y[0], alpha=2, beta=-1, c=z[0], out=where, **options)
    for view, whole in (out, z):
        np.testing.assert_array_equal(view.get(), wanted)
        assert np.count_nonzero(whole.get() == 55) >= whole.size - view.size


def test_a_column_major_out_is_written_in_place(best_backend: gp.Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = pair((5, 7), (7, 3), np.complex64)
    a, b = a + 1j * a[::-1], b - 2j * b[::-1]
    x, y = best_backend.asarray(a), best_backend.asarray(np.ascontiguousarray(b.T))
    out = best_backend.zeros((3, 5), np.complex64)
    monkeypatch.setattr("gemmport.api.product.copy_strided", lambda *_, **__: pytest.fail("a result was copied"))
    gemm(x, y, trans_b="C", out=out.T)
    np.testing.assert_array_equal(out.get().T, a @ b.conj())
    gemm(x.T, y.T, trans_a="C", trans_b="R", out=out.T)
    np.testing.assert_array_equal(out.get().T, a.conj() @ b.conj())


MIXED = [
    ("int8", "int32"), ("float32", "int16"), ("bool", "float32"), ("float16", "float32"), ("float32", "complex64"),
]  # fmt: skip


@pytest.mark.parametrize(("left", "right"), MIXED)
def test_mixed_types_are_promoted_as_by_numpy(backend: gp.Backend, no_transfers: Any, left: str, right: str) -> None:
    a, b = integers((5, 7), left), integers((7, 3), right)
    wanted = a @ b
    x, y = backend.asarray(a), backend.asarray(b)
    with no_transfers():
        product = gemm(x, y)
    assert product.dtype == wanted.dtype
    np.testing.assert_array_equal(product.get(), wanted)


def test_the_type_of_the_result_and_of_the_sums_can_be_chosen(backend: gp.Backend) -> None:
    a, b = np.full((3, 500), 100, np.int8), np.full((500, 2), 100, np.int8)
    for x, y in ((a, b), (backend.asarray(a), backend.asarray(b))):
        options = {} if isinstance(x, gp.DeviceArray) else {"device": backend.device}
        wide = gemm(x, y, dtype="int32", **options)
        assert wide.dtype == np.int32
        assert np.all((wide.get() if isinstance(wide, gp.DeviceArray) else wide) == 5_000_000)
        narrow = gemm(x, y, **options)
        assert np.all(
            (narrow.get() if isinstance(narrow, gp.DeviceArray) else narrow) == np.int64(5_000_000).astype(np.int8)
        )
    ones = np.ones((1, 4096), np.float16)
    assert gemm(ones, ones.T, device=backend.device)[0, 0] == 4096
    if "float16" in backend.device.computes:
        assert (
            gemm(ones, ones.T, accumulator="float16", device=backend.device)[0, 0] == 2048
        )  # 2048 + 1 is 2048 in halves
    with pytest.raises(gp.DtypeError, match="sums"):
        gemm(ones, ones.T, accumulator="int32", device=backend.device)


def test_out_of_another_type_is_converted_within_a_kind(backend: gp.Backend) -> None:
    a, b = pair((5, 7), (7, 3))
    out = backend.zeros((5, 3), np.float16)
    assert gemm(backend.asarray(a), backend.asarray(b), out=out) is out
    np.testing.assert_array_equal(out.get(), (a @ b).astype(np.float16))
    with pytest.raises(gp.DtypeError, match="int32"):
        gemm(backend.asarray(a), backend.asarray(b), out=backend.zeros((5, 3), np.int32))


# Overlap


class TestOverlap:
    def test_is_seen_through_other_handles_of_the_same_memory(self, backend: gp.Backend) -> None:
        owner = backend.asarray(integers((10, 8), np.float32))
        if backend.name == "opencl":
            import pyopencl as cl  # noqa: PLC0415 - only where the backend is there

            whole = cl.Buffer(backend.context, cl.mem_flags.READ_WRITE, 4096)
            buffers = [whole, whole.get_sub_region(0, 2048), whole.get_sub_region(2048, 2048)]
            out, first, second = (backend.wrap(buffer, (8, 8), np.float32) for buffer in buffers)
        else:
            address = owner.memory.handle
            out, first = (backend.wrap(address, (8, 8), np.float32, nbytes=320, keeper=owner) for _ in range(2))
            second = backend.zeros((8, 8), np.float32)
        with pytest.raises(gp.ArrayError, match="out overlaps b"):
            gemm(second, first, out=out)
        gemm(second, second, out=out)
        gemm(second, second, beta=1, c=out, out=out)

    def test_of_interwoven_views_that_share_nothing_is_no_false_alarm(self, backend: gp.Backend) -> None:
        host = integers((8, 16), np.float32)
        array = backend.asarray(host)
        gemm(array[:, ::2], array[:, ::2], out=array[:, 1::2])
        np.testing.assert_array_equal(array.get()[:, 1::2], host[:, ::2] @ host[:, ::2])
        np.testing.assert_array_equal(array.get()[:, ::2], host[:, ::2])

    def test_of_out_with_itself_is_refused(self, backend: gp.Backend) -> None:
        a, out = backend.zeros((3, 3), np.float32), backend.zeros((3,), np.float32)
        repeated = gp.DeviceArray(backend, out.memory, (3, 3), out.dtype, (0, 1))
        with pytest.raises(gp.ArrayError, match="overlaps itself"):
            gemm(a, a, out=repeated)


# Lists


class TestLists:
    def test_of_device_arrays_are_one_batch(self, backend: gp.Backend, no_transfers: Any) -> None:
        a, b = pair((4, 5, 7), (4, 7, 3))
        x, y = [backend.asarray(m) for m in a], [backend.asarray(np.asfortranarray(m)) for m in b]
        with no_transfers():
            product = gemm(x, y)
        assert isinstance(product, gp.DeviceArray)
        np.testing.assert_array_equal(product.get(), a @ b)

    def test_of_host_arrays_are_one_batch(self, best_backend: gp.Backend) -> None:
        a, b = pair((4, 5, 7), (4, 7, 3))
        np.testing.assert_array_equal(gemm(list(a), list(b), device=best_backend.device), a @ b)

    def test_of_different_shapes_are_refused(self, best_backend: gp.Backend) -> None:
        a = [np.zeros((2, 3), np.float32), np.zeros((3, 3), np.float32)]
        for given in (a, [best_backend.asarray(m) for m in a]):
            with pytest.raises(gp.ShapeError, match="one shape"):
                gemm(given, given)
        with pytest.raises(gp.ArrayError, match="only some"):
            gemm([best_backend.asarray(a[0]), a[0]], a[0])


# Queues and events


def blocked_queue(backend: gp.Backend) -> tuple[Any, Any]:
    """An OpenCL queue that starts nothing before the user event is set."""
    if backend.name != "opencl":
        pytest.skip(beyond(backend.device, "the host cannot hold back a stream without CUDA's newer driver calls"))
    import pyopencl as cl  # noqa: PLC0415 - only where the backend is there

    queue, gate = backend.new_queue(), cl.UserEvent(backend.context)
    cl.enqueue_barrier(queue, wait_for=[gate])
    return queue, gate


def loose_queue(backend: gp.Backend) -> Any:
    """A queue of OpenCL's that runs its commands in any order."""
    if backend.name != "opencl":
        pytest.skip(beyond(backend.device, "CUDA's streams run in order alone"))
    import pyopencl as cl  # noqa: PLC0415 - only where the backend is there

    out_of_order = cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE
    if not backend.queue.device.queue_properties & out_of_order:
        pytest.skip(beyond(backend.device, "its queues run in order alone"))
    return cl.CommandQueue(backend.context, properties=out_of_order)


def let_run(queue: Any) -> None:
    """Gives a queue the time to do whatever it may do."""
    queue.flush()
    time.sleep(0.2)


class TestQueues:
    @pytest.mark.parametrize("view", ["dense", "gathered", "put back"])
    def test_gemm_returns_while_its_queue_is_held_back(self, backend: gp.Backend, no_transfers: Any, view: str) -> None:
        import pyopencl as cl  # noqa: PLC0415 - only where the backend is there

        a, b = pair((16, 32), (16, 32))
        key = (slice(None), slice(None, None, 2))
        x, y, out = backend.asarray(a), backend.asarray(b), backend.zeros((16, 32), np.float32)
        x, y, out = (x, y, None) if view == "dense" else (x[key], y[key], out[key] if view == "put back" else None)
        wanted = a @ b.T if view == "dense" else a[key] @ b[key].T
        gemm(x, y, trans_b="T")  # compiled
        queue, gate = blocked_queue(backend)
        with no_transfers():
            product = gemm(x, y, trans_b="T", out=out, queue=queue)
            after = cl.enqueue_marker(queue)
            let_run(queue)
        running = after.command_execution_status != cl.command_execution_status.COMPLETE
        gate.set_status(cl.command_execution_status.COMPLETE)
        assert running
        assert product.queue == queue
        np.testing.assert_array_equal(product.get(), wanted)

    def test_an_operand_written_on_another_queue_is_waited_for(self, backend: gp.Backend) -> None:
        a, b = pair((16, 16), (16, 16))
        x, y = backend.asarray(a), backend.asarray(b)
        gemm(y, x)
        queue, gate = blocked_queue(backend)
        first = gemm(x, y, queue=queue)
        second = gemm(first, y, queue=backend.queue)  # its own queue is free, but must wait
        assert second.queue == backend.queue
        let_run(backend.queue)
        gate.set_status(0)
        np.testing.assert_array_equal(second.get(), a @ b @ b)

    def test_a_writer_waits_for_readers_on_other_queues(self, backend: gp.Backend) -> None:
        a, b = pair((16, 16), (16, 16))
        x, y, z = backend.asarray(a), backend.asarray(b), backend.asarray(b)
        gemm(x, y)
        queue, gate = blocked_queue(backend)
        read = gemm(x, y, queue=queue)
        gemm(z, z, out=x, queue=backend.queue)  # must not overwrite x before it is read
        let_run(backend.queue)
        gate.set_status(0)
        np.testing.assert_array_equal(read.get(), a @ b)
        np.testing.assert_array_equal(x.get(), b @ b)

    def test_released_memory_is_not_reused_before_other_queues_have_done(self, backend: gp.Backend) -> None:
        a, b = pair((16, 16), (16, 16))
        x, y = backend.asarray(a), backend.asarray(b)
        gemm(x, y)
        queue, gate = blocked_queue(backend)
        product = gemm(x, y, queue=queue)
        handle = x.memory.handle
        x.release()
        again = [backend.empty((16, 16), np.float32) for _ in range(4)]  # the pool hands the block out again
        assert handle in {array.memory.handle for array in again}
        for array in again:
            array.backend._fill(array.memory, 0xFF, None)
        let_run(backend.queue)
        gate.set_status(0)
        np.testing.assert_array_equal(product.get(), a @ b)

    @pytest.mark.parametrize("alone", [True, False])
    def test_work_waits_for_events(self, backend: gp.Backend, alone: bool) -> None:
        a, b = pair((16, 16), (16, 16))
        x, y = backend.asarray(a), backend.asarray(b)
        _, gate = blocked_queue(backend)
        for event in (gate, gemm(x, y).ready):
            product = gemm(x, y, wait_for=event if alone else [event])
            if event is gate:
                let_run(backend.queue)
                assert product.ready.native.command_execution_status != 0
                gate.set_status(0)
            np.testing.assert_array_equal(product.get(), a @ b)

    def test_that_do_not_fit_are_refused(self, backend: gp.Backend, fresh_backend: gp.Backend) -> None:
        x = backend.zeros((4, 4), np.float32)
        with pytest.raises(gp.LaunchError, match="'no queue'"):
            gemm(x, x, queue="no queue")
        if backend.name == "opencl":
            import pyopencl as cl  # noqa: PLC0415 - only where the backend is there

            with pytest.raises(gp.LaunchError, match="another context"):
                gemm(x, x, queue=fresh_backend.queue)
            out_of_order = cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE
            if backend.queue.device.queue_properties & out_of_order:
                with pytest.raises(gp.LaunchError, match="in order"):
                    backend.copy(x.memory, x.memory, 4, queue=cl.CommandQueue(backend.context, properties=out_of_order))
                with pytest.raises(gp.LaunchError, match="another context"):
                    gemm(x, x, queue=cl.CommandQueue(fresh_backend.context, properties=out_of_order))

    @pytest.mark.parametrize("of", ["gemmport", "pyopencl", "numpy"])
    def test_without_an_order_wait_and_are_awaited(self, backend: gp.Backend, of: str, planned: list[Any]) -> None:
        """As a whole, also where the product is one of those that are kept: the second and third of their kind."""
        loose = loose_queue(backend)
        import pyopencl as cl  # noqa: PLC0415 - only where the backend is there
        import pyopencl.array  # noqa: PLC0415

        queue, (a, b) = cl.CommandQueue(backend.context), pair((17, 13), (13, 11))
        make, device = backend.asarray, {"device": backend.device} if of == "numpy" else {}
        if of != "gemmport":
            make = np.copy if of == "numpy" else partial(cl.array.to_device, queue)
        large = cl.Buffer(backend.context, cl.mem_flags.READ_WRITE, 2**28)
        for number in range(3):
            x, y, out = make(a), make(b), make(np.zeros((17, 11), np.float32))
            backend.synchronize()
            if of == "numpy":  # the host waits for the product, and so for what is before it
                cl.enqueue_fill_buffer(loose, large, np.float32(2), 0, large.size)
                before = cl.enqueue_marker(loose)
                np.testing.assert_array_equal(gemm(x, y, queue=loose, out=out, **device), a @ b)
                assert before.command_execution_status == 0
                continue
            gate, seen = cl.UserEvent(backend.context), np.zeros((17, 11), np.float32)
            memory = (lambda each: each.memory.native) if of == "gemmport" else (lambda each: each.base_data)
            cl.enqueue_barrier(loose, wait_for=[gate])
            cl.enqueue_fill_buffer(loose, memory(x), np.float32(2), 0, a.nbytes)
            product = gemm(x, y, queue=loose, out=out if number else None)
            copied = cl.enqueue_copy(loose, seen, memory(product), is_blocking=False)
            cl.enqueue_fill_buffer(loose, memory(x), np.float32(99), 0, a.nbytes)
            let_run(loose)
            assert not seen.any()
            gate.set_status(0)
            copied.wait()
            np.testing.assert_array_equal(seen, np.full_like(a, 2) @ b)
        if of != "numpy" or backend.device.type == "cpu":
            assert len(planned) < 3

    def test_may_be_given_with_host_arrays(self, backend: gp.Backend) -> None:
        a, b = pair((16, 16), (16, 16))
        np.testing.assert_array_equal(gemm(a, b, device=backend.device, queue=backend.new_queue()), a @ b)


# Products of a kind that was computed before


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The products of a test that were not found among those that were computed before: none was, when it begins."""
    found: list[Any] = []
    module = sys.modules["gemmport.api.product"]
    enqueue = module.enqueue
    for user in ("gemmport.api.gemm", "gemmport.api.host", "gemmport.api.matmul"):
        if hasattr(sys.modules[user], "enqueue"):
            monkeypatch.setattr(sys.modules[user], "enqueue", lambda *given: found.append(given[1]) or enqueue(*given))
    monkeypatch.setattr(repeated, "_known_of_libraries", {})
    monkeypatch.setattr(repeated, "_known", {})
    return found


class _OnHost:
    """A library's arrays in the host's memory."""

    def __init__(self, name: str) -> None:
        skip_without({"torch": TORCH, "jax": JAX_ON_CPUS}[name])
        self.name, self.module = name, importlib.import_module(name)

    def array(self, host: np.ndarray) -> Any:
        if self.name == "torch":
            return self.module.from_numpy(host.copy())
        return self.module.device_put(host, self.module.devices("cpu")[0])  # a JAX with CUDA takes the GPU by itself


@pytest.mark.parametrize("name", ["torch", "jax"])
class TestLibrariesOnTheHost:
    @pytest.mark.parametrize("multiply", [gp.gemm, gp.matmul])
    def test_are_planned_once(self, best_backend: gp.Backend, planned: list[Any], name: str, multiply: Any) -> None:
        library = _OnHost(name)
        how = {"kernel": "naive", "device": best_backend.device}
        for number in range(3):
            a, b = pair((9, 5), (5, 7))
            product = multiply(library.array(a + number), library.array(b), **how)
            assert type(product) is type(library.array(b))
            np.testing.assert_array_equal(np.asarray(product), (a + number) @ b)
        assert len(planned) == (1 if best_backend.borrow(np.ones(1)) is not None else 3)

    def test_on_a_queue_that_is_named(self, best_backend: gp.Backend, planned: list[Any], name: str) -> None:
        library, queue = _OnHost(name), best_backend.new_queue()
        a, b = pair((9, 5), (5, 7))
        for _ in range(3):
            product = gemm(library.array(a), library.array(b), device=best_backend.device, queue=queue)
            np.testing.assert_array_equal(np.asarray(product), a @ b)
        assert len(planned) == (1 if best_backend.borrow(np.ones(1)) is not None else 3)

    def test_are_read_anew_where_they_lie_otherwise(self, best_backend: gp.Backend, name: str) -> None:
        library = _OnHost(name)
        a, b = pair((9, 5), (9, 7))
        for _ in range(2):
            product = gemm(library.array(a).T, library.array(b), device=best_backend.device)
            np.testing.assert_array_equal(np.asarray(product), a.T @ b)
            product = gemm(library.array(a), library.array(b), trans_a="T", device=best_backend.device)
            np.testing.assert_array_equal(np.asarray(product), a.T @ b)


def test_numpys_arrays_on_a_queue_that_is_named_are_planned_once(backend: gp.Backend, planned: list[Any]) -> None:
    queue = backend.new_queue()
    a, b = pair((16, 12), (12, 8))
    for given in (None, np.zeros((16, 8), np.float32)):
        for _ in range(3):
            product = gemm(a, b, out=given, device=backend.device, queue=queue)
            np.testing.assert_array_equal(product, a @ b)
            if given is not None:
                assert product is given
                given.fill(7)
    assert len(planned) == (2 if backend.borrow(np.ones(1)) is not None else 6)


class TestTorchOnTheHost:
    """What is more than its memory is told each time, also after one of its kind was computed."""

    def test_a_tensor_that_requires_grad(self, best_backend: gp.Backend) -> None:
        torch = _OnHost("torch").module
        x = torch.ones(4, 4)
        for tensor in (x, x.clone().requires_grad_(), x):
            if tensor.requires_grad:
                with pytest.raises(gp.ArrayError, match="detach"):
                    gemm(tensor, x, device=best_backend.device)
            else:
                assert gemm(tensor, x, device=best_backend.device).tolist() == (x @ x).tolist()

    def test_a_conjugated_tensor(self, best_backend: gp.Backend) -> None:
        torch = _OnHost("torch").module
        z = torch.tensor([[1 + 2j, 3 - 1j], [2j, 1]], dtype=torch.complex64)
        for tensor in (z, z.conj(), z, z.conj()):
            assert gemm(tensor, z, device=best_backend.device).tolist() == (tensor @ z).tolist()

    def test_bfloat16(self, best_backend: gp.Backend) -> None:
        torch = _OnHost("torch").module
        x = torch.eye(4, dtype=torch.bfloat16) * 3
        for _ in range(2):
            product = gemm(x, x, device=best_backend.device)
            assert product.dtype == torch.bfloat16
            assert product.tolist() == (x @ x).tolist()

    def test_an_out_over_an_operand(self, best_backend: gp.Backend) -> None:
        torch = _OnHost("torch").module
        for _ in range(2):
            whole = torch.arange(40, dtype=torch.float32).reshape(10, 4)
            x, y = whole[:4].clone(), whole[4:8].clone()
            out = torch.zeros(4, 4)
            assert gemm(x, y, out=out, device=best_backend.device) is out
            assert out.tolist() == (x @ y).tolist()
            wanted = whole[:4] @ y
            assert gemm(whole[:4], y, out=whole[2:6], device=best_backend.device) is not None
            assert whole[2:6].tolist() == wanted.tolist()


def test_torch_is_told_of_its_own_stream_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which waits for the queue that was given. PyTorch records an event on whatever it was told of when a tensor is freed: the
    process ends where that is gone by then.
    """
    recorded: list[tuple[str, Any]] = []

    class Tensor:
        device = "cuda:1"

        def __init__(self, name: str) -> None:
            self.name = name

        def record_stream(self, stream: Any) -> None:
            recorded.append((self.name, stream))

    made = SimpleNamespace(cuda=SimpleNamespace(current_stream=lambda device: ("PyTorch's own", device)))
    monkeypatch.setitem(sys.modules, "torch", made)
    adapters._LIBRARIES["torch"].used([Tensor("a"), Tensor("out")])
    own = "PyTorch's own", "cuda:1"
    assert recorded == [("a", own), ("out", own)]


# PyOpenCL's arrays


class TestHostArraysBesideDeviceArrays:
    """They are the caller's again when the call returns, which does not wait for the product."""

    @pytest.fixture
    def held(self, backend: gp.Backend) -> Iterator[tuple[Any, Any]]:
        """A queue, and an event that nobody brings about before the end of a test's calls."""
        if backend.name != "opencl":
            pytest.skip(beyond(backend.device, "it has no events of users"))
        cl = pytest.importorskip("pyopencl")
        event = cl.UserEvent(backend.context)
        yield cl.CommandQueue(backend.context), event
        if event.command_execution_status != cl.command_execution_status.COMPLETE:
            event.set_status(cl.command_execution_status.COMPLETE)

    @pytest.mark.parametrize("kind", ["rows", "columns", "c", "both"])
    def test_may_be_changed_when_the_call_returns(self, backend: gp.Backend, held: tuple[Any, Any], kind: str) -> None:
        queue, event = held
        host = np.ones((24, 24), np.float32, order="F" if kind == "columns" else "C")
        on_device, out = backend.asarray(np.ones((24, 24), np.float32)), backend.zeros((24, 24), np.float32)
        how: dict[str, Any] = {"queue": queue, "wait_for": [event]}
        if kind == "c":
            result = gp.gemm(on_device, on_device, beta=1.0, c=host, **how)
        elif kind == "both":
            result = gp.gemm(host, host, out=out, **how)
        else:
            result = gp.gemm(on_device, host, **how)
        host[...] = 7
        event.set_status(0)  # complete
        np.testing.assert_array_equal(result.get(), np.full((24, 24), 25 if kind == "c" else 24))


class TestPyOpenCL:
    @pytest.fixture(params=["own context", "foreign context"])
    def queue(self, backend: gp.Backend, request: pytest.FixtureRequest) -> Iterator[Any]:
        if backend.name != "opencl":
            pytest.skip(beyond(backend.device, "pyopencl's arrays are in OpenCL's memory"))
        import pyopencl as cl  # noqa: PLC0415 - only where the backend is there
        import pyopencl.array  # noqa: PLC0415

        context = backend.context if request.param == "own context" else cl.Context([backend.queue.device])
        yield cl.CommandQueue(context)
        del context  # Intel's queues do not keep theirs (intel-queue-context)

    def test_give_their_own_kind_on_their_queue(self, backend: gp.Backend, queue: Any) -> None:
        import pyopencl as cl  # noqa: PLC0415

        a, b = pair((17, 13), (13, 11))
        pool = cl.tools.MemoryPool(cl.tools.ImmediateAllocator(queue))
        x, y = (cl.array.to_device(queue, value, allocator=pool) for value in (a, b))
        for _ in range(2):  # the second is made of what is known of the first
            product = gemm(x, y)
            assert type(product) is cl.array.Array
            assert (product.queue, product.context, product.allocator) == (queue, queue.context, pool)
            assert isinstance(product.base_data, cl.tools.PooledBuffer)
            np.testing.assert_array_equal((product + product).get(), 2 * (a @ b))
        out = cl.array.zeros(queue, (17, 11), np.float32)
        assert gemm(x, y, out=out) is out
        np.testing.assert_array_equal(out.get(), a @ b)

    def test_may_be_views_and_mixed_with_host_arrays(self, backend: gp.Backend, queue: Any) -> None:
        import pyopencl as cl  # noqa: PLC0415

        host = integers((12, 14), np.float32)
        x = cl.array.to_device(queue, host)
        np.testing.assert_array_equal(gemm(x[::2, 1:8], host[:7]).get(), host[::2, 1:8] @ host[:7])
        np.testing.assert_array_equal(gemm(x.T, x[:, ::2]).get(), host.T @ host[:, ::2])
        with pytest.raises(gp.ArrayError, match="out overlaps a"):
            gemm(x[:4, :4], x[4:8, :4], out=x[2:6, :4])

    def test_work_stays_on_their_queue_and_waits_for_their_events(self, backend: gp.Backend, queue: Any) -> None:
        import pyopencl as cl  # noqa: PLC0415

        a, b = pair((17, 13), (13, 11))
        x, y = (cl.array.to_device(queue, value) for value in (a, b))
        gemm(x, y)
        gate = cl.UserEvent(queue.context)
        x.add_event(gate)
        product = gemm(x, y)
        after = cl.enqueue_marker(queue)
        let_run(queue)
        held = after.command_execution_status != 0
        gate.set_status(0)
        assert held
        np.testing.assert_array_equal(product.get(), a @ b)

    def test_a_queue_without_an_order_waits_and_is_awaited(self, backend: gp.Backend, queue: Any) -> None:
        """Neither their own work before nor that after is known by an event."""
        import pyopencl as cl  # noqa: PLC0415

        out_of_order = cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE
        if not queue.device.queue_properties & out_of_order:
            pytest.skip(beyond(backend.device, "its queues run in order alone"))
        loose = cl.CommandQueue(queue.context, properties=out_of_order)
        a, b = pair((170, 130), (130, 110))
        x, y = (cl.array.to_device(loose, value) for value in (a, b))
        out = cl.array.zeros(loose, (170, 110), np.float32)
        loose.finish()
        for array in (x, y, out):
            array.events.clear()
        for _ in range(2):  # the second of a kind that is kept elsewhere
            gate, seen = cl.UserEvent(queue.context), np.empty_like(a[:, :110])
            cl.enqueue_fill_buffer(loose, x.base_data, np.float32(2), 0, x.nbytes, wait_for=[gate])
            assert gp.matmul(x, y, out=out) is out
            threading.Timer(0.1, gate.set_status, [0]).start()
            cl.enqueue_copy(loose, seen, out.base_data)
            np.testing.assert_array_equal(seen, np.full_like(a, 2) @ b)

    def test_callers_that_the_work_waits_for_go_on(
        self, backend: gp.Backend, queue: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A CPU that is far behind is waited for, but not for ever."""
        import pyopencl as cl  # noqa: PLC0415

        most = getattr(sys.modules[type(backend).__module__], "_MOST_AHEAD")  # noqa: B009 - of the backend's own module
        monkeypatch.setattr(sys.modules[type(backend).__module__], "_LONGEST_WAIT", 0.2)
        a, b = pair((20, 20), (20, 20))
        x, y = (cl.array.to_device(queue, value) for value in (a, b))
        out = cl.array.zeros(queue, (20, 20), np.float32)
        gp.matmul(x, y, out=out)
        queue.finish()
        gate = cl.UserEvent(queue.context)
        cl.enqueue_marker(queue, wait_for=[gate])
        for _ in range(most + 1):
            gp.matmul(x, y, out=out)
        gate.set_status(0)
        np.testing.assert_array_equal(out.get(), a @ b)

    @pytest.mark.parametrize("multiply", [gp.gemm, gp.matmul])
    @pytest.mark.parametrize("out", ["with events", "without a queue", "new, without a queue"])
    def test_who_waits_for_the_events_of_a_result_sees_it(
        self, backend: gp.Backend, queue: Any, out: str, multiply: Any
    ) -> None:
        import pyopencl as cl  # noqa: PLC0415

        a, b = pair((17, 13), (13, 11))
        x, y = (cl.array.to_device(queue, value) for value in (a, b))
        given = None
        if out == "with events":
            given = cl.array.empty(queue, (17, 11), np.float32)
            given.fill(0)
        elif out == "without a queue":
            given = cl.array.empty(queue.context, (17, 11), np.float32)
        else:
            queue.finish()
            x, y = x.with_queue(None), y.with_queue(None)
        gate, other = cl.UserEvent(queue.context), cl.CommandQueue(queue.context)
        x.add_event(gate)
        product = multiply(x, y, out=given, kernel="naive")
        seen, copied = product.get_async(queue=other)
        let_run(other)
        held = copied.command_execution_status != cl.command_execution_status.COMPLETE
        gate.set_status(cl.command_execution_status.COMPLETE)
        copied.wait()
        assert held
        np.testing.assert_array_equal(seen, a @ b)

    @pytest.mark.parametrize("out", [False, True], ids=["new", "out"])
    def test_a_result_has_the_event_of_its_product(
        self, backend: gp.Backend, queue: Any, out: bool, planned: list[Any]
    ) -> None:
        """One alone, however often it is written, also where the product is one of those that are kept."""
        import pyopencl as cl  # noqa: PLC0415

        a, b = pair((17, 13), (13, 11))
        x, y = (cl.array.to_device(queue, value) for value in (a, b))
        given = cl.array.empty(queue, (17, 11), np.float32) if out else None
        for _ in range(3):
            gate, other = cl.UserEvent(queue.context), cl.CommandQueue(queue.context)
            cl.enqueue_barrier(queue, wait_for=[gate])
            product = gp.matmul(x, y, out=given, kernel="naive")
            (event,) = product.events
            seen, copied = product.get_async(queue=other)
            queue.flush()
            let_run(other)
            held = copied.command_execution_status != cl.command_execution_status.COMPLETE
            gate.set_status(cl.command_execution_status.COMPLETE)
            copied.wait()
            assert held
            assert event.command_queue == queue
            np.testing.assert_array_equal(seen, a @ b)
            product.finish()  # which forgets the events, also the one of the other queue
            product.fill(0)
        assert len(planned) == 1

    def test_an_event_may_outlive_its_queue(self, queue: Any) -> None:
        import pyopencl as cl  # noqa: PLC0415

        a, b = pair((17, 13), (13, 11))
        x, y = (cl.array.to_device(queue, value) for value in (a, b))
        for _ in range(2):
            x.get_async(queue=cl.CommandQueue(queue.context))
            np.testing.assert_array_equal(gp.matmul(x, y).get(), a @ b)

    @pytest.mark.parametrize("kind", ["new", "out", "without an order"])
    def test_on_another_queue_are_ordered_both_ways(
        self, backend: gp.Backend, queue: Any, kind: str, planned: list[Any]
    ) -> None:
        """Also where the product is one of those that are kept: the second and third of their kind."""
        import pyopencl as cl  # noqa: PLC0415

        if kind == "without an order":
            out_of_order = cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE
            if not queue.device.queue_properties & out_of_order:
                pytest.skip(beyond(backend.device, "its queues run in order alone"))
            queue = cl.CommandQueue(queue.context, properties=out_of_order)
        a, b = pair((17, 13), (13, 11))
        other = cl.CommandQueue(queue.context)
        for gates in ("theirs, ours", "theirs, ours", "ours, theirs"):
            x, y = (cl.array.to_device(queue, value) for value in (a, b))
            given = cl.array.empty(queue, (17, 11), np.float32) if kind == "out" else None
            queue.finish()
            for array in (x, y):
                array.events.clear()
            theirs, ours = (cl.UserEvent(queue.context) for _ in range(2))
            cl.enqueue_fill_buffer(
                queue, x.base_data, np.float32(2), 0, x.nbytes, wait_for=[theirs]
            )  # before the product
            cl.enqueue_barrier(other, wait_for=[ours])
            product = gemm(x, y, queue=other, out=given)
            assert product is given or kind != "out"
            cl.enqueue_fill_buffer(queue, x.base_data, np.float32(99), 0, x.nbytes)  # after it
            first, second = (theirs, ours) if gates == "theirs, ours" else (ours, theirs)
            first.set_status(0)
            queue.flush()
            let_run(other)
            second.set_status(0)
            np.testing.assert_array_equal(product.get(), np.full_like(a, 2) @ b)
        assert len(planned) == 1

    def test_on_their_own_queue_that_is_named(self, backend: gp.Backend, queue: Any, planned: list[Any]) -> None:
        import pyopencl as cl  # noqa: PLC0415

        a, b = pair((17, 13), (13, 11))
        x, y = (cl.array.to_device(queue, value) for value in (a, b))
        for _ in range(3):
            np.testing.assert_array_equal(gemm(x, y, queue=queue).get(), a @ b)
        assert len(planned) == 1

    def test_a_queue_of_another_context_is_refused_each_time(self, backend: gp.Backend, queue: Any) -> None:
        import pyopencl as cl  # noqa: PLC0415

        a, b = pair((17, 13), (13, 11))
        x, y = (cl.array.to_device(queue, value) for value in (a, b))
        other, context = cl.CommandQueue(queue.context), cl.Context([queue.device])
        for _ in range(2):
            with pytest.raises(gp.LaunchError, match="another context"):
                gemm(x, y, queue=cl.CommandQueue(context))
            np.testing.assert_array_equal(gemm(x, y, queue=other).get(), a @ b)

    def test_are_told_who_else_uses_them(
        self, backend: gp.Backend, queue: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As PyTorch must be. On their own queue nobody else does."""
        import pyopencl as cl  # noqa: PLC0415

        told: list[int] = []
        library = type(adapters._LIBRARIES["pyopencl"])
        monkeypatch.setattr(library, "used", lambda _, arrays: told.extend(map(id, arrays)))
        x, y, z, out = (cl.array.to_device(queue, np.ones((8, 8), np.float32)) for _ in range(4))
        other = cl.CommandQueue(queue.context)
        for _ in range(2):
            gemm(x, y, beta=1, c=z, out=out, queue=other)
            assert sorted(told) == sorted(map(id, (x, y, z, out)))
            told.clear()
            gemm(x, y, beta=1, c=z, out=out, queue=queue)
            gemm(x, y, beta=1, c=z, out=out)
            assert not told

    def test_of_one_context_share_one_backend(self, backend: gp.Backend, queue: Any) -> None:
        import pyopencl as cl  # noqa: PLC0415

        x, y = (cl.array.zeros(queue, (2, 2), np.float32) for _ in range(2))
        assert backend_of("opencl", x) is backend_of("opencl", y)
        assert backend_of("opencl", x).context == queue.context
        if queue.context == backend.context:
            assert backend_of("opencl", x) is backend
            assert isinstance(gemm(backend.zeros((2, 2), np.float32), x), gp.DeviceArray)
        else:
            with pytest.raises(gp.ArrayError, match="another context"):
                gemm(backend.zeros((2, 2), np.float32), x)


# Two devices


class TestTwoDevices:
    """Both are named, and what to do: by whichever library's arrays they are reached."""

    @pytest.fixture
    def two(self, best_backend: gp.Backend) -> tuple[gp.Backend, gp.Backend]:
        others = [device for device in gp.devices("opencl") if device.index != best_backend.device.index]
        if best_backend.name != "opencl" or not others:
            pytest.skip(beyond(best_backend.device, "there is no other device of OpenCL"))
        return best_backend, gp.get_backend(device=others[0])

    @staticmethod
    def array(kind: str, backend: gp.Backend) -> Any:
        host = np.ones((4, 4), np.float32)
        if kind == "ours":
            return backend.asarray(host)
        array = importlib.import_module("pyopencl.array")
        return array.to_device(backend.new_queue(), host)

    @staticmethod
    def calls(x: Any, y: Any) -> dict[str, Any]:
        return {
            "a": lambda: gp.matmul(y, x),  # of which b is on another device than a
            "b": lambda: gp.matmul(x, y),
            "out": lambda: gp.matmul(x, x, out=y),
            "b of gemm": lambda: gemm(x, y),
            "out of gemm": lambda: gemm(x, x, out=y),
            "c": lambda: gemm(x, x, beta=1, c=y),
            "a, a list": lambda: gemm([x, y], x),
        }

    @pytest.mark.parametrize("second", ["ours", "pyopencl"])
    @pytest.mark.parametrize("first", ["ours", "pyopencl"])
    def test_are_an_error_that_names_both(self, two: tuple[gp.Backend, gp.Backend], first: str, second: str) -> None:
        x, y = self.array(first, two[0]), self.array(second, two[1])
        gp.matmul(x, x)  # one of the kind is known
        for name, call in self.calls(x, y).items():
            with pytest.raises(gp.ArrayError, match=r"must be on .* copy it there with") as told:
                call()
            assert all(backend.device.label in str(told.value) for backend in two)
            if first == second or (first == "ours" and name != "a"):  # where a product is computed, ours decide
                assert str(told.value).split(" must ")[0] == re.split(r"\W", "b" if name == "a" else name)[0]

    def test_devices_of_one_name_are_told_apart(self) -> None:
        (one, other) = (replace(next(iter(made_up_devices.DEVICES.values())), index=(0, number)) for number in (0, 1))
        here: Any = SimpleNamespace(device=one)
        with pytest.raises(gp.ArrayError, match=r"\[0:0\].*\[0:1\]"):
            adapters.check_on(here, "b", None, SimpleNamespace(backend=SimpleNamespace(device=other)))

    @pytest.mark.parametrize("second", ["ours", "pyopencl"])
    def test_two_contexts_of_one_device_are_an_error_that_says_so(self, best_backend: gp.Backend, second: str) -> None:
        if best_backend.name != "opencl":
            pytest.skip(beyond(best_backend.device, "it has one context"))
        cl = importlib.import_module("pyopencl")
        context = cl.Context([best_backend.queue.device])
        x = importlib.import_module("pyopencl.array").to_device(cl.CommandQueue(context), np.ones((4, 4), np.float32))
        y = self.array(second, best_backend)
        for call in self.calls(x, y).values():
            with pytest.raises(gp.ArrayError, match=r"must be in the context of .* another context: make it") as told:
                call()
            assert best_backend.device.label in str(told.value)

    @pytest.mark.parametrize("kind", ["ours", "pyopencl"])
    def test_a_result_on_the_host_is_refused(self, best_backend: gp.Backend, kind: str) -> None:
        skip_without(TORCH)
        if best_backend.name != "opencl":
            pytest.skip(beyond(best_backend.device, "PyOpenCL's arrays are not on it"))
        x, out = self.array(kind, best_backend), importlib.import_module("torch").zeros(4, 4)
        for multiply in (gp.gemm, gp.matmul):
            with pytest.raises(gp.ArrayError, match=r"out must be on .* host's memory: copy the result") as told:
                multiply(x, x, out=out)
            assert best_backend.device.label in str(told.value)


# PyTorch, CuPy and JAX on CUDA


def cuda_backend() -> gp.Backend:
    """CUDA's backend; skips where there is no GPU."""
    skip_without(GPU)
    return gp.get_backend("cuda")


class _Kind:
    """How a library makes arrays, reads them, and works on a stream."""

    def __init__(self, name: str) -> None:
        cuda_backend()
        skip_without({"torch": TORCH, "cupy": CUPY, "jax": JAX}[name])
        self.name, self.module = name, importlib.import_module(name)
        if name == "torch" and not self.module.cuda.is_available():
            pytest.skip(beyond("this PyTorch", "it reaches no GPU"))
        if name == "jax" and not any(device.platform == "gpu" for device in self.module.devices()):
            pytest.skip(beyond("this JAX", "it reaches no GPU"))

    def array(self, host: np.ndarray) -> Any:
        if self.name == "torch":
            return self.module.from_numpy(host.copy()).cuda()
        return self.module.asarray(host) if self.name == "cupy" else self.module.numpy.asarray(host)

    def get(self, array: Any) -> np.ndarray:
        if self.name == "torch":
            return array.cpu().numpy()
        return array.get() if self.name == "cupy" else np.asarray(array)

    @contextmanager
    def stream(self) -> Iterator[Any]:
        """A stream of its own, made current."""
        if self.name == "torch":
            stream = self.module.cuda.Stream()
            with self.module.cuda.stream(stream):
                yield stream
        elif self.name == "cupy":
            with self.module.cuda.Stream(non_blocking=True) as stream:
                yield stream
        else:
            pytest.skip(beyond("JAX", "it chooses its streams itself"))

    def is_own(self, array: Any) -> bool:
        kinds = {"torch": "Tensor", "cupy": "ndarray", "jax": "Array"}
        return isinstance(array, getattr(self.module, kinds[self.name]))

    def delay(self) -> None:
        """Keeps the current stream busy for about a tenth of a second, without the host waiting."""
        if self.name == "torch":
            self.module.cuda._sleep(200_000_000)
        else:
            numbers = self.module.numpy if self.name == "jax" else self.module
            x = numbers.ones((4096, 4096), np.float32)
            for _ in range(30):
                x = x @ x * np.float32(1e-4)


@pytest.fixture(params=["torch", "cupy", "jax"])
def kind(request: pytest.FixtureRequest) -> _Kind:
    return _Kind(request.param)


@pytest.fixture
def never_waits(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A block in which the host may neither wait for the GPU nor transfer."""
    backend = cuda_backend()

    @contextmanager
    def block() -> Iterator[None]:
        def refuse(*_: Any, **__: Any) -> None:
            pytest.fail("the host waited for the GPU, or transferred data")

        with monkeypatch.context() as patch:
            for name in ("_upload", "_download", "synchronize", "_finish", "elapsed"):
                patch.setattr(type(backend), name, refuse)
            patch.setattr("gemmport.backends._cudastreams.synchronize", refuse)
            yield

    return block


class TestCudaLibraries:
    def test_give_their_own_kind_without_waiting(self, kind: _Kind, never_waits: Any) -> None:
        a, b = pair((65, 33), (33, 17))
        x, y = kind.array(a), kind.array(b)
        gemm(x, y)
        with never_waits():
            product = gemm(x, y, alpha=2)
        assert kind.is_own(product)
        np.testing.assert_array_equal(kind.get(product), 2 * (a @ b))

    def test_work_on_their_current_stream(self, kind: _Kind, never_waits: Any) -> None:
        a, b = pair((256, 256), (256, 256))
        x, y = kind.array(np.zeros_like(a)), kind.array(b)
        gemm(x, y)
        new = kind.array(a)
        cuda_backend().synchronize()
        for _ in range(5):
            with kind.stream() as stream, never_waits():
                kind.delay()
                x[...] = new  # late: a product on another stream, that does not wait, would see zeros
                product = gemm(x, y)
                twice = product + product  # on their stream: must see the product
            stream.synchronize()
            np.testing.assert_array_equal(kind.get(twice), 2 * (a @ b))
            x[...] = 0

    def test_views_go_in_and_out(self, kind: _Kind, never_waits: Any) -> None:
        a, b = pair((40, 60), (60, 40))
        x, y = kind.array(a), kind.array(b)
        products = []
        with never_waits():
            products = [
                gemm(x[::2, 1:31], y[30:, ::2]),
                gemm(x.T, y.T),
                gemm(x[:, :40], x[:, 20:], trans_b="T"),
            ]
        wanted = [a[::2, 1:31] @ b[30:, ::2], a.T @ b.T, a[:, :40] @ a[:, 20:].T]
        for product, right in zip(products, wanted, strict=True):
            np.testing.assert_array_equal(kind.get(product), right)
        if kind.name == "jax":
            with pytest.raises(gp.ArrayError, match="never changes"):
                gemm(x, y, out=x[:, :40])
            return
        whole = kind.array(np.full((90, 90), 7, np.float32))
        for out in (whole[1:81:2, 3:43], whole.T[2:42, 1:81:2]):
            assert gemm(x, y, out=out) is out
            np.testing.assert_array_equal(kind.get(out), a @ b)

    def test_products_that_lie_alike_are_planned_once(self, kind: _Kind, monkeypatch: pytest.MonkeyPatch) -> None:
        if kind.name == "jax":
            pytest.skip(beyond("JAX", "its arrays are not written: TestJAXComputesTheNext"))
        planned: list[Any] = []
        product = sys.modules["gemmport.api.product"]
        choose = product.bind_or_choose
        monkeypatch.setattr(
            product, "bind_or_choose", lambda *given, **how: planned.append(given[0]) or choose(*given, **how)
        )
        monkeypatch.setattr(repeated, "_known_of_libraries", {})

        def of(m: int, k: int, n: int, compute: Any, *stacked: int) -> None:
            a, b = pair((*stacked, m, k), (*stacked, k, n))
            x, y, out = (kind.array(each) for each in (a, b, np.full((*stacked, m, n), 7, np.float32)))
            np.testing.assert_array_equal(kind.get(compute(x, y, out)), a @ b)

        for compute in (lambda x, y, out: gp.matmul(x, y, out=out), lambda x, y, _: gp.matmul(x, y)):
            monkeypatch.setattr(cuda_backend(), "prepared", {})
            for stacked in ((6,), (2, 3)):  # of which the second is the first to a kernel
                for _ in range(3):
                    of(33, 45, 17, compute, *stacked)
                assert len(planned) == 1
            planned.clear()
            for _ in range(4):
                of(33, 45, 17, compute)
            assert len(planned) == 1
            of(33, 45, 18, compute)
            assert len(planned) == 2
            planned.clear()
        of(33, 45, 17, lambda x, y, out: gp.gemm(x, y, out=out))  # what matmul bound, gemm finds
        assert not planned
        of(33, 45, 17, lambda x, y, out: gp.gemm(x, y, out=out, c=out, beta=0.0))  # nor is C read there
        assert not planned

    def test_an_out_over_an_operand_is_told_apart_each_time(self, kind: _Kind) -> None:
        if kind.name == "jax":
            pytest.skip(beyond("JAX", "its arrays never change"))
        a, b = pair((32, 32), (32, 32))
        for _ in range(3):
            x, y = kind.array(a), kind.array(b)
            np.testing.assert_array_equal(kind.get(gp.matmul(x, y, out=kind.array(a))), a @ b)
            with pytest.raises(gp.ArrayError, match="out overlaps a"):
                gemm(x, y, out=x)
            assert gp.matmul(x, y, out=x) is x  # as NumPy's: of the values before the call
            np.testing.assert_array_equal(kind.get(x), a @ b)
        whole = kind.array(np.zeros((48, 32), np.float32))
        whole[:32] = kind.array(a)
        assert gp.matmul(whole[:32], y, out=whole[16:]) is not None
        np.testing.assert_array_equal(kind.get(whole)[16:], a @ b)

    def test_memory_freed_and_allocated_again_is_not_mixed_up(self, kind: _Kind, never_waits: Any) -> None:
        """Results, temporaries and scratch of many products on several streams, none of which is waited for."""
        hosts = [pair((96, 128), (64, 96)) for _ in range(4)]
        device = [(kind.array(a + i), kind.array(b - i)) for i, (a, b) in enumerate(hosts)]
        gemm(device[0][0][:, ::2], device[0][1])
        results = []
        with never_waits():
            for round_ in range(12):
                i = round_ % 4
                with kind.stream() as stream:
                    x, y = device[i]
                    temporary = gemm(x[:, ::2], y)  # gathered: a temporary of the pool, freed at once
                    results.append((i, gemm(temporary, x), stream))
                    del temporary
        for i, product, stream in results:
            stream.synchronize()
            a, b = hosts[i][0] + i, hosts[i][1] - i
            np.testing.assert_array_equal(kind.get(product), (a[:, ::2] @ b) @ a)

    def test_a_queue_may_be_given(self, kind: _Kind, never_waits: Any) -> None:
        a, b = pair((128, 128), (128, 128))
        x, y = kind.array(a), kind.array(b)
        gemm(x, y)
        backend = cuda_backend()
        backend.synchronize()
        kept = []  # to release what JAX had takes a wait
        for queue in (backend.queue, backend.new_queue()):
            with never_waits():
                product = gemm(x, y, queue=queue)
                twice = product + product  # their stream waits for the queue
                kept.append(product)
            np.testing.assert_array_equal(kind.get(twice), 2 * (a @ b))
        with kind.stream() as stream:
            ours = gemm(backend.asarray(a), backend.asarray(b), queue=stream)
        np.testing.assert_array_equal(ours.get(), a @ b)

    def test_read_our_arrays_in_place(self, kind: _Kind) -> None:
        a, b = pair((64, 32), (32, 16))
        backend = cuda_backend()
        product = gemm(backend.asarray(a), backend.asarray(b))
        theirs = (kind.module.dlpack if kind.name == "jax" else kind.module).from_dlpack(product)
        np.testing.assert_array_equal(kind.get(theirs), a @ b)
        memory = product.memory.handle
        del product
        gc.collect()
        others = [backend.zeros((64, 16), np.float32) for _ in range(4)]
        assert memory not in {other.memory.handle for other in others}  # their view keeps it
        np.testing.assert_array_equal(kind.get(theirs), a @ b)

    def test_mixed_with_host_arrays_and_with_ours(self, kind: _Kind) -> None:
        a, b = pair((64, 32), (32, 16))
        x, y = kind.array(a), kind.array(b)
        np.testing.assert_array_equal(kind.get(gemm(x, b)), a @ b)
        assert kind.is_own(gemm(a, y))
        ours = gemm(cuda_backend().asarray(a), y)
        assert isinstance(ours, gp.DeviceArray)
        np.testing.assert_array_equal(ours.get(), a @ b)

    def test_overlap_is_seen(self, kind: _Kind) -> None:
        if kind.name == "jax":
            pytest.skip(beyond("JAX", "its arrays are never written"))
        x = kind.array(integers((20, 10), np.float32))
        with pytest.raises(gp.ArrayError, match="out overlaps a"):
            gemm(x[:10], x[10:], out=x[5:15])
        gemm(x[:10], x[:10], beta=1, c=x[10:], out=x[10:])


class _Untold:
    """PyTorch's tensor, as of a library that says nothing of its streams."""

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor

    def __dlpack_device__(self) -> Any:
        return self.tensor.__dlpack_device__()

    def __dlpack__(self, *, stream: int, **_: Any) -> object:
        return self.tensor.__dlpack__(stream=stream)


def test_memory_of_a_library_that_tells_no_stream_is_given_back_when_it_is_read() -> None:
    """The library may use it again at once, on a stream of its own."""
    torch, backend = _Kind("torch").module, cuda_backend()
    large = backend.zeros((4096, 4096), np.float32)
    with torch.cuda.stream(torch.cuda.Stream()):
        identity = torch.eye(1024, device="cuda")
        gemm(_Untold(identity), _Untold(identity))
        for _ in range(3):
            results = []
            for number in range(8):
                gemm(large, large)  # what the product waits for
                x = torch.full((1024, 1024), float(number), device="cuda")
                results.append(gemm(_Untold(x), _Untold(identity)))
                del x
            for number, found in enumerate(results):
                np.testing.assert_array_equal(found.get(), np.full((1024, 1024), number, np.float32))


class TestJAXComputesTheNext:
    """Products of JAX's arrays that lie as those before did are computed by JAX, with ours inside."""

    PRODUCTS: ClassVar[dict[str, Callable[..., Any]]] = {
        "matmul": lambda x, y, _: gp.matmul(x, y),
        "named": lambda x, y, _: gp.matmul(x, y, kernel="naive", precision="full", deterministic=True),
        "gemm": lambda x, y, _: gp.gemm(y, x, trans_a=True, trans_b="T"),
        "added": lambda x, y, z: gp.gemm(x, y, c=z, beta=1.0),
    }

    @pytest.fixture(autouse=True)
    def nothing_is_kept(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(repeated, "_known_of_libraries", {})

    @pytest.mark.parametrize("name", PRODUCTS)
    def test_and_give_the_same(self, name: str, never_waits: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        jax, product = _Kind("jax"), self.PRODUCTS[name]
        kept = []  # to release what JAX had takes a wait
        for dtype in (np.float32, np.float16, "bfloat16"):
            for number in range(4):
                a, b, c = (integers(shape, np.float32) + number for shape in ((33, 45), (45, 17), (33, 17)))
                x, y, z = (jax.array(each).astype(dtype) for each in (a, b, c))
                wanted = (a @ b).T if name == "gemm" else a @ b + (c if name == "added" else 0)
                with monkeypatch.context() as patch, never_waits() if number else nullcontext():
                    if (
                        number > 1
                    ):  # the first is enqueued from outside, and JAX's first looks at its arrays more closely
                        patch.setattr(type(cuda_backend()), "adopt", lambda *_, **__: pytest.fail("looked at anew"))
                    found = product(x, y, z)
                kept.append(found)
                assert jax.is_own(found)
                assert found.dtype == x.dtype
                np.testing.assert_array_equal(
                    jax.get(found).astype(np.float32), wanted.astype(x.dtype).astype(np.float32)
                )

    def test_in_the_precision_of_the_caller(self) -> None:
        jax, own = _Kind("jax"), cuda_backend()
        a, b = (np.random.default_rng(5).random(shape, np.float32) for shape in ((64, 96), (96, 32)))
        x, y = jax.array(a), jax.array(b)
        for word in ("tf32", "full", "tf32"):
            wanted = gp.matmul(own.asarray(a), own.asarray(b), precision=word).get()
            for _ in range(3):
                with gp.precision(word):
                    np.testing.assert_array_equal(jax.get(gp.matmul(x, y)), wanted)
                np.testing.assert_array_equal(jax.get(gp.matmul(x, y, precision=word)), wanted)

    @pytest.mark.parametrize("alpha", [1.0, 2.0], ids=["by JAX", "from outside"])
    def test_memory_is_used_again_in_order(self, alpha: float) -> None:
        """Operands that are let go, and what JAX then puts where they were, while products are still to come."""
        jax = _Kind("jax")
        numbers, shape = jax.module.numpy, (1024, 1024)
        identity = numbers.eye(shape[0], dtype=np.float32)
        gemm(identity, identity, alpha=alpha)
        for _ in range(3):
            results = []
            jax.delay()
            for number in range(24):
                x = numbers.full(shape, number, np.float32)
                results.append(gemm(x, identity, alpha=alpha))
                del x
            for number, found in enumerate(results):
                np.testing.assert_array_equal(jax.get(found), np.full(shape, alpha * number, np.float32))

    def test_what_is_deleted_is_refused(self) -> None:
        jax = _Kind("jax")
        x, y = (jax.array(each) for each in pair((40, 24), (24, 8)))
        for _ in range(3):
            gp.matmul(x, y)
        y.delete()
        with pytest.raises(gp.ArrayError, match="was deleted, or donated"):
            gp.matmul(x, y)

    def test_what_fails_then_names_its_error(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def refused(*_: Any, **__: Any) -> None:
            raise gp.UnsupportedError("refused")

        jax = _Kind("jax")
        a, b = pair((40, 24), (24, 8))
        x, y = jax.array(a), jax.array(b)
        for _ in range(2):
            gp.matmul(x, y)
        with monkeypatch.context() as patch:
            patch.setattr(within.Again, "__call__", refused)
            with pytest.raises((gp.UnsupportedError, jax.module.errors.JaxRuntimeError), match="refused"):
                gp.matmul(x, y).block_until_ready()
        np.testing.assert_array_equal(jax.get(gp.matmul(x, y)), a @ b)

    def test_by_threads_at_once(self) -> None:
        jax = _Kind("jax")
        a, b = pair((128, 64), (64, 128))

        def several(number: int) -> None:
            x, y = jax.array(a + number), jax.array(b)
            for found in [gp.matmul(x, y) for _ in range(50)]:
                np.testing.assert_array_equal(jax.get(found), (a + number) @ b)

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(several, range(16)))


def test_all_libraries_share_one_context() -> None:
    torch, cupy = _Kind("torch"), _Kind("cupy")
    a, b = pair((64, 32), (32, 16))
    product = gemm(torch.array(a), cupy.array(b))
    assert torch.is_own(product)
    np.testing.assert_array_equal(torch.get(product), a @ b)
    again = gemm(cupy.array(a), product, trans_a="T")
    assert cupy.is_own(again)
    np.testing.assert_array_equal(cupy.get(again), a.T @ (a @ b))


GRAPHS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "float16": ("float16", "float16", {}),
    "bfloat16": ("bfloat16", "bfloat16", {}),
    "int8": ("int8", "int32", {"dtype": "int32"}),
    "float8": ("float8_e4m3fn", "float32", {}),
    "float8, scales": ("float8_e4m3fn", "bfloat16", {"dtype": "bfloat16", "scale_a": 0, "scale_b": 1}),
    "tf32": ("float32", "float32", {"precision": "tf32"}),
    "float32 in bfloat16": ("float32", "float32", {"precision": "bfloat16"}),
    "complex64": ("complex64", "complex64", {}),
    "complex128": ("complex128", "complex128", {}),
}
"""Types of the operands and the result, and options of `matmul`; of a scale, the dimension of its operand's that it has."""


def drawn(torch: Any, shape: tuple[int, ...], dtype: str) -> Any:
    """Whole numbers on the GPU, whose sums are exact."""
    kind, values = getattr(torch, dtype), torch.randint(-3, 4, shape, device="cuda").double()
    return (torch.complex(values, values.flip(-1)) if kind.is_complex else values).to(kind)


def scales_of(torch: Any, options: dict[str, Any], operands: Any) -> dict[str, Any]:
    """Powers of two, by which exact sums stay exact."""
    return {
        name: torch.randint(-3, 4, (x.shape[options[name]],), device="cuda").float().exp2()
        for name, x in zip(("scale_a", "scale_b"), operands, strict=True)
        if name in options
    }


def dropped_backend(torch: Any, stream: Any) -> Any:
    """A device that is garbage, with memory in its pool."""
    opened: Any = gp.open_backend("cuda")
    opened.zeros(2**20, np.float32).release()
    opened.kept["itself"] = opened
    return gc.collect


def closed_backend(torch: Any, stream: Any) -> Any:
    opened = gp.open_backend("cuda")
    opened.zeros(2**20, np.float32).release()
    return opened.close


def array_of_a_closed_backend(torch: Any, stream: Any) -> Any:
    opened = gp.open_backend("cuda")
    array = opened.zeros(2**20, np.float32)
    opened.close()
    return array.release


def array_that_the_stream_used(torch: Any, stream: Any) -> Any:
    array = cuda_backend().asarray(np.ones((64, 64), np.float32))
    gemm(array, array, queue=stream)
    return array.release


def array_that_torch_has(torch: Any, stream: Any) -> Any:
    kept = [torch.from_dlpack(cuda_backend().asarray(np.ones((64, 64), np.float32)))]
    return kept.clear


def times(torch: Any, stream: Any) -> Any:
    backend = cuda_backend()
    return lambda: backend.elapsed(backend.record(), backend.record())


def queues(torch: Any, stream: Any) -> Any:
    kept = [cuda_backend().new_queue()]
    return lambda: (kept.append(cuda_backend().new_queue()), kept.clear())


def memory(torch: Any, stream: Any) -> Any:
    backend = cuda_backend()
    return lambda: (backend.host_buffer(2**20), backend.zeros(2**24, np.float32).release(), backend.free_memory)


def new_backend(torch: Any, stream: Any) -> Any:
    return lambda: gp.open_backend("cuda").close()


MEANWHILE = (
    dropped_backend, closed_backend, array_of_a_closed_backend, array_that_the_stream_used, array_that_torch_has, times, queues,
    memory, new_backend,
)  # fmt: skip
"""What a program may do while a graph is captured: each makes ready, and gives what does it."""

IN_ANY_THREAD = tuple(each for each in MEANWHILE if each is not array_that_torch_has)
"""What another library has may be at work on any stream, and nobody tells on which ones other threads capture graphs."""


WITH_SCRATCH = ((64, 64, 8192), (1280, 1280, 1280))
"""Products, one split along k and one packed, of which one or the other has scratch memory on every GPU of today's."""


def assert_some_have_scratch() -> None:
    problems = [gp.GemmProblem.create(*sizes) for sizes in WITH_SCRATCH]
    assert any(gp.plan(problem, cuda_backend().device).scratch for problem in problems)


@pytest.mark.away_from_jax
@pytest.mark.usefixtures("uncollected")
class TestTorch:
    def test_bfloat16_goes_in_and_comes_out(self) -> None:
        kind = _Kind("torch")
        torch, (a, b) = kind.module, pair((64, 32), (32, 16))
        x, y = kind.array(a).bfloat16(), kind.array(b).bfloat16()
        product = gemm(x, y)
        assert product.dtype == torch.bfloat16
        np.testing.assert_array_equal(kind.get(product.float()), kind.get((x.float() @ y.float()).bfloat16().float()))
        assert gemm(x, y, dtype="float32").dtype == torch.float32

    def test_conjugated_tensors_and_those_that_require_grad(self) -> None:
        kind = _Kind("torch")
        a, b = pair((8, 4), (4, 6), np.complex64)
        a = a + 1j * a[::-1]
        np.testing.assert_array_equal(kind.get(gemm(kind.array(a).conj(), kind.array(b))), a.conj() @ b)
        x = kind.array(a.real.copy()).requires_grad_()
        with pytest.raises(gp.ArrayError, match="detach"):
            gemm(x, x.detach().T)
        assert gemm(x.detach(), x.detach().T).shape == (8, 8)

    def test_graphs_have_their_own_scratch_memory(self) -> None:
        """Two graphs from one stream, replayed at once on two, with a larger product on a third between."""
        torch = _Kind("torch").module

        def numbers(*shape: int) -> Any:
            return torch.randint(-3, 4, shape, device="cuda").float()

        stream, graphs = torch.cuda.Stream(), []
        for m, n, k in WITH_SCRATCH:
            x, y, out = numbers(m, k), numbers(k, n), torch.zeros(m, n, device="cuda")
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                for _ in range(2):
                    gp.matmul(x, y, out=out)
            stream.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=stream):
                gp.matmul(x, y, out=out)
            graphs.append((graph, x, y, out, torch.cuda.Stream()))
        assert_some_have_scratch()
        large = numbers(1500, 3000)
        repeated._known_of_libraries.clear()  # what graphs launch is theirs
        torch.cuda.empty_cache()
        for _ in range(10):
            for _, x, _, out, _ in graphs:
                x.copy_(numbers(*x.shape))
                out.zero_()
            torch.cuda.synchronize()
            for graph, *_, beside in graphs:
                with torch.cuda.stream(beside):
                    graph.replay()
            eager = gp.matmul(large, large.T)
            torch.cuda.synchronize()
            for _, x, y, out, _ in graphs:
                assert torch.equal(out.double(), x.double() @ y.double())
            assert torch.equal(eager.double(), large.double() @ large.double().T)

    @pytest.mark.parametrize("way", ["first", "queue", "params"])
    def test_scratch_memory_of_ours_is_the_graphs(self, way: str) -> None:
        """That of a product without a prepared call: exact beside others, kept while the graph runs, and let go after that."""
        torch, backend = _Kind("torch").module, cuda_backend()
        backend.release_workspaces()
        before, (m, n, k) = len(backend._in_graphs), WITH_SCRATCH[0]
        k += {"first": 3, "queue": 5, "params": 6}[way]  # first of its kind
        assert gp.plan(gp.GemmProblem.create(m, n, k), backend.device).scratch
        x, y = (torch.randint(-3, 4, shape, device="cuda").float() for shape in ((m, k), (k, n)))
        out, stream, graph = torch.zeros(m, n, device="cuda"), torch.cuda.Stream(), torch.cuda.CUDAGraph()
        given: dict[str, Any] = {"first": {}, "queue": {"queue": stream}, "params": {"params": {}}}[way]
        if given:  # whose programs are there, then
            gp.matmul(x, y, out=out)
        torch.cuda.synchronize()
        with torch.cuda.graph(graph, stream=stream):
            gp.gemm(x, y, out=out, **given)
        backend.release_workspaces()
        assert len(backend._in_graphs) == before + 1
        for _ in range(3):
            x.copy_(torch.randint(-3, 4, (m, k), device="cuda"))
            out.zero_()
            torch.cuda.synchronize()
            with torch.cuda.stream(stream):
                graph.replay()
            others = [gp.matmul(x, y) for _ in range(3)]
            torch.cuda.synchronize()
            for each in (out, *others):
                assert torch.equal(each.double(), x.double() @ y.double())
        x.copy_(torch.randint(-3, 4, (m, k), device="cuda"))
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            torch.cuda._sleep(2 * 10**9)
            graph.replay()
        graph.reset()  # while it is to run
        for _ in range(20):
            assert not backend._let_graphs_go()
            time.sleep(0.01)
        assert not stream.query()
        torch.cuda.synchronize()
        assert torch.equal(out.double(), x.double() @ y.double())
        end = time.monotonic() + 10
        while len(backend._in_graphs) > before and time.monotonic() < end:
            backend.release_workspaces()
        assert len(backend._in_graphs) == before

    def test_a_stream_of_ours_in_a_graph_is_joined(self) -> None:
        """A CUDA graph captures the product, since nothing in it waits or allocates outside."""
        kind = _Kind("torch")
        torch, (a, b) = kind.module, pair((64, 32), (32, 16))
        x, y = kind.array(a), kind.array(b)
        out = kind.array(np.zeros((64, 16), np.float32))
        gemm(x, y, out=out)
        torch.cuda.synchronize()
        out.zero_()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            gemm(x, y, out=out)
        graph.replay()
        torch.cuda.synchronize()
        np.testing.assert_array_equal(kind.get(out), a @ b)

    def test_a_graph_takes_a_product_that_is_not_kept(self) -> None:
        """A kernel that is named, on a stream of the graph's own: gemmport may not ask the driver for that stream's number."""
        kind = _Kind("torch")
        torch, (a, b) = kind.module, pair((64, 32), (32, 16))
        x, y = kind.array(a), kind.array(b)
        out = kind.array(np.zeros((64, 16), np.float32))
        gemm(x, y, out=out, kernel="tiled")  # whose program is there, then
        torch.cuda.synchronize()
        out.zero_()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(2):
                gemm(x, y, out=out, kernel="tiled")
        assert not out.any()
        graph.replay()
        torch.cuda.synchronize()
        np.testing.assert_array_equal(kind.get(out), a @ b)

    @pytest.mark.parametrize("sizes", [(65, 33, 129), (512, 384, 256)], ids=str)
    @pytest.mark.parametrize("name", GRAPHS)
    def test_graphs_compute_every_type(self, name: str, sizes: tuple[int, int, int]) -> None:
        """Of the numbers that the operands, and scales, hold when the graph is replayed."""
        torch, (dtype, result, options), (m, n, k) = _Kind("torch").module, GRAPHS[name], sizes
        operands = x, y = drawn(torch, (m, k), dtype), drawn(torch, (k, n), dtype)
        given = {**options, **(factors := scales_of(torch, options, operands))}
        out = torch.zeros(m, n, device="cuda", dtype=getattr(torch, result))
        stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(2):
                gp.matmul(x, y, out=out, **given)
            out.zero_()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph, stream=stream):
            gp.matmul(x, y, out=out, **given)
        assert not out.any()
        wide = torch.complex128 if x.is_complex() else torch.float64
        for _ in range(2):
            for operand in operands:
                operand.copy_(drawn(torch, tuple(operand.shape), dtype))
            for scale in factors.values():
                scale.copy_(torch.randint(-3, 4, tuple(scale.shape), device="cuda").float().exp2())
            graph.replay()
            torch.cuda.synchronize()
            wanted = x.to(wide) @ y.to(wide)
            if factors:
                wanted = factors["scale_a"].double()[:, None] * wanted * factors["scale_b"].double()
            assert torch.equal(out, wanted.to(out.dtype))

    @pytest.mark.parametrize("options", [{}, {"kernel": "wgmma"}], ids=["kept", "named"])
    def test_tensor_maps_of_a_graph_are_its_own(self, options: dict[str, str]) -> None:
        """Between capture and replay `wgmma` makes products of the same shape at other addresses, and of other shapes."""
        torch, device = _Kind("torch").module, cuda_backend().device
        shapes = [(256, 384, 512), (256, 384, 512), (512, 256, 384), (128, 640, 1024)]
        problems = [gp.GemmProblem.create(*sizes, dtype="bfloat16") for sizes in shapes]
        if reason := kernels.variant("wgmma").unsupported(problems[0], device):
            pytest.skip(beyond(device, reason))
        assert {gp.plan(problem, device).variant for problem in problems} == {"wgmma"}
        captured, *others = (
            (
                drawn(torch, (m, k), "bfloat16"),
                drawn(torch, (k, n), "bfloat16"),
                torch.zeros(m, n, device="cuda").bfloat16(),
            )
            for m, n, k in shapes
        )
        x, y, out = captured
        for _ in range(2):
            gp.matmul(x, y, out=out, **options)
        torch.cuda.synchronize()
        out.zero_()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            gp.matmul(x, y, out=out, **options)
        assert not out.any()
        for left, right, result in 2 * others:
            gp.matmul(left, right, out=result, **options)
        x.copy_(drawn(torch, tuple(x.shape), "bfloat16"))
        graph.replay()
        torch.cuda.synchronize()
        for left, right, result in (captured, *others):
            assert torch.equal(result, (left.double() @ right.double()).to(result.dtype))

    @pytest.mark.parametrize(
        ("make_ready", "elsewhere"),
        [*((each, False) for each in MEANWHILE), *((each, True) for each in IN_ANY_THREAD)],
        ids=lambda each: each.__name__ if callable(each) else "in_another_thread" if each else "here",
    )
    def test_what_is_done_meanwhile_breaks_no_graph(self, make_ready: Any, elsewhere: bool) -> None:
        kind = _Kind("torch")
        gc.collect()  # what other tests left is not what is tested
        torch, (a, b) = kind.module, pair((64, 32), (32, 16))
        x, y = kind.array(a), kind.array(b)
        out = kind.array(np.zeros((64, 16), np.float32))
        stream, graph, backend = torch.cuda.Stream(), torch.cuda.CUDAGraph(), cuda_backend()
        gemm(x, y, out=out)
        does = make_ready(torch, stream)
        torch.cuda.synchronize()
        out.zero_()
        with torch.cuda.graph(graph, stream=stream):
            gemm(x, y, out=out)
            if elsewhere:
                thread = threading.Thread(target=does)
                thread.start()
                thread.join()
            else:
                does()
        assert not out.any()
        graph.replay()
        torch.cuda.synchronize()
        np.testing.assert_array_equal(kind.get(out), a @ b)
        backend.empty(1, np.float32)
        assert not backend._postponed

    @pytest.mark.parametrize("rows", [7, 4099], ids=["small", "through_pinned_blocks"])
    def test_copies_in_another_thread_break_no_graph(self, rows: int) -> None:
        """Nor do products of arrays in the host's memory, which wait for what they compute."""
        kind = _Kind("torch")
        torch, (a, b) = kind.module, pair((64, 32), (32, 16))
        x, y = kind.array(a), kind.array(b)
        out = kind.array(np.zeros((64, 16), np.float32))
        host, right = pair((rows, 1024), (1024, 8))
        gemm(x, y, out=out)
        gemm(host, right, backend="cuda")  # whose programs are there, then
        torch.cuda.synchronize()
        out.zero_()
        arrived: list[np.ndarray] = []

        def copies() -> None:
            there = gp.get_backend("cuda").asarray(host)
            arrived.append(there.get())
            arrived.append(gemm(host, right, backend="cuda"))

        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            gemm(x, y, out=out)
            thread = threading.Thread(target=copies)
            thread.start()
            thread.join()
        np.testing.assert_array_equal(arrived[0], host)
        np.testing.assert_array_equal(arrived[1], host @ right)
        assert not out.any()
        graph.replay()
        torch.cuda.synchronize()
        np.testing.assert_array_equal(kind.get(out), a @ b)

    def test_on_the_cpu_give_tensors(self, best_backend: gp.Backend) -> None:
        skip_without(TORCH)
        torch, (a, b) = importlib.import_module("torch"), pair((8, 4), (4, 6))
        x, y = torch.from_numpy(a), torch.from_numpy(b)
        product = gemm(x, y, device=best_backend.device)
        assert isinstance(product, torch.Tensor)
        assert product.tolist() == (a @ b).tolist()
        out = torch.zeros((6, 8)).T
        assert gemm(x, y, out=out, device=best_backend.device) is out
        assert out.tolist() == (a @ b).tolist()


@pytest.mark.usefixtures("uncollected")
class TestCuPy:
    def test_graphs_have_their_own_scratch_memory(self) -> None:
        """As PyTorch's: two from one stream, replayed at once on two, with a larger product between, and memory given back."""
        kind, rng = _Kind("cupy"), np.random.default_rng(5)
        cupy = kind.module
        stream, graphs = cupy.cuda.Stream(non_blocking=True), []
        for m, n, k in WITH_SCRATCH:
            x, y, out = (kind.array(integers(shape, np.float32, rng)) for shape in ((m, k), (k, n), (m, n)))
            cupy.cuda.Device().synchronize()
            with stream:
                for _ in range(2):
                    gp.matmul(x, y, out=out)
                stream.synchronize()
                stream.begin_capture()
                gp.matmul(x, y, out=out)
                graph = stream.end_capture()
            graphs.append((graph, x, y, out, cupy.cuda.Stream(non_blocking=True)))
        assert_some_have_scratch()
        large = integers((1500, 3000), np.float32, rng)
        beside_them = kind.array(large)
        repeated._known_of_libraries.clear()  # what graphs launch is theirs
        cupy.get_default_memory_pool().free_all_blocks()
        for _ in range(10):
            for _, x, _, out, _ in graphs:
                x.set(integers(x.shape, np.float32, rng))
                out.set(np.zeros(out.shape, np.float32))
            cupy.cuda.Device().synchronize()
            for graph, *_, beside in graphs:
                graph.launch(stream=beside)
            eager = gp.matmul(beside_them, beside_them.T)
            cupy.cuda.Device().synchronize()
            for _, x, y, out, _ in graphs:
                np.testing.assert_array_equal(kind.get(out), kind.get(x) @ kind.get(y))
            np.testing.assert_array_equal(kind.get(eager), large @ large.T)


# Refusals


class TestRefusals:
    @pytest.mark.parametrize("name", ["a", "b"])
    def test_an_operand_that_is_missing_is_named(self, best_backend: gp.Backend, name: str) -> None:
        operands = {"a": np.ones((2, 2)), "b": np.ones((2, 2)), name: None}
        with pytest.raises(gp.ArrayError, match=f"{name} is None"):
            gemm(**operands, device=best_backend.device)

    def test_there_may_be_no_events(self, best_backend: gp.Backend) -> None:
        for nothing in (None, (), []):
            assert (
                gemm(np.eye(2), np.eye(2), wait_for=nothing, device=best_backend.device).tolist() == np.eye(2).tolist()
            )

    @pytest.mark.parametrize("events", [3, [3.5], ["event"]], ids=str)
    def test_what_is_no_event_is_told(self, best_backend: gp.Backend, events: object) -> None:
        with pytest.raises((gp.ArrayError, gp.LaunchError), match="event"):
            gemm(np.ones((2, 2)), np.ones((2, 2)), wait_for=events, device=best_backend.device)

    @pytest.mark.parametrize("name", ["alpha", "beta"])
    @pytest.mark.parametrize("value", ["2", None, object, [1, 2], np.zeros(3)], ids=str)
    def test_a_scalar_that_is_no_number_is_told(self, best_backend: gp.Backend, name: str, value: Any) -> None:
        x = np.zeros((2, 2), np.float32)
        with pytest.raises(gp.DtypeError, match=name):
            gemm(x, x, c=x, device=best_backend.device, **{name: value})

    def test_a_read_only_out_is_told_before_any_work(self, best_backend: gp.Backend) -> None:
        x, out = np.zeros((2, 2), np.float32), np.zeros((2, 2), np.float32)
        out.flags.writeable = False
        for wrong in (out, np.broadcast_to(np.zeros(2, np.float32), (2, 2))):
            with pytest.raises(gp.ArrayError, match="read-only"):
                gemm(x, x, out=wrong, device="no such device")

    @pytest.mark.parametrize("params", ["TS=8", [("TS", 8)], {"TS": 1.5}, {"TS": True}, {1: 2}], ids=str)
    def test_params_of_a_wrong_type_are_told(self, best_backend: gp.Backend, params: Any) -> None:
        with pytest.raises(gp.ParameterError, match="params"):
            gp.plan(gp.GemmProblem.create(2, 2, 2), best_backend.device, kernel="tiled", params=params)

    @pytest.mark.parametrize("config", [7, [7], object()], ids=["number", "numbers", "object"])
    def test_a_config_of_a_wrong_type_is_told(self, best_backend: gp.Backend, config: Any) -> None:
        with pytest.raises(gp.ConfigError, match="config"):
            gp.plan(gp.GemmProblem.create(2, 2, 2), best_backend.device, config=config)

    def test_params_may_be_numbers_of_numpy(self, best_backend: gp.Backend) -> None:
        made = gp.plan(gp.GemmProblem.create(2, 2, 2), best_backend.device, kernel="tiled", params={"TS": np.int32(8)})
        assert made.values["TS"] == 8
        assert gp.Plan.from_json(made.to_json()) == made

    def test_a_device_of_another_backend_is_told(self, best_backend: gp.Backend) -> None:
        other = next(name for name in backends.names() if name != best_backend.name)
        with pytest.raises(gp.DeviceNotFoundError, match=other):
            gp.get_backend(other, device=best_backend.device)
        assert gp.get_backend(best_backend.name, device=best_backend.device) is best_backend


# Threads and processes


def _products(device: gp.DeviceInfo, number: int, rounds: int = 8) -> list[bool]:
    """Exact products of several sizes and types, from host and device arrays."""
    backend, right = gp.get_backend(device=device), []
    for round_ in range(rounds):
        dtype = ["float32", "int32", "int64", "complex64", "int8", "float16", "uint16", "bool"][(number + round_) % 8]
        m, n, k = 20 + number, 30 + round_, 10 + number * round_
        rng = np.random.default_rng([number, round_])
        a, b = (np.abs(integers(shape, np.int64, rng)).astype(dtype) for shape in ((m, k), (k, n)))
        wanted = (a.astype(np.float32) @ b.astype(np.float32)).astype(dtype) if dtype == "float16" else a @ b
        x, y = backend.asarray(a), backend.asarray(b[::-1])[::-1]
        right.append(np.array_equal(gemm(x, y).get(), wanted) and np.array_equal(gemm(a, b, device=device), wanted))
    return right


def test_threads_on_one_device_compute_right(backend: gp.Backend) -> None:
    barrier = threading.Barrier(8)

    def one(number: int) -> list[bool]:
        barrier.wait()
        return _products(backend.device, number)

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(one, range(8))) == [[True] * 8] * 8


def _in_a_process(device: dict[str, Any], number: int, folder: str) -> list[bool]:
    import os  # noqa: PLC0415 - set before the first use, in a process of its own

    os.environ["GEMMPORT_CACHE_DIR"] = folder
    return _products(gp.DeviceInfo.from_dict(device), number, rounds=2)


def test_processes_that_share_an_empty_cache_compute_right(
    best_backend: gp.Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POCL_KERNEL_CACHE", "0")  # which would be used instead of ours
    device = best_backend.device.to_dict()
    with multiprocessing.get_context("spawn").Pool(4) as pool:
        given = [(device, number, str(tmp_path)) for number in range(4)]
        assert pool.starmap(_in_a_process, given) == [[True] * 2] * 4
    assert any((tmp_path / "programs").rglob("*"))


def test_a_copy_that_loses_a_kind_is_refused(backend: gp.Backend) -> None:
    """The kernel sums whole numbers without signs: it would make 4 of -4.0."""
    source = backend.asarray(np.full(3, -4, np.float32))
    for dtype in (np.int32, np.bool_):
        with pytest.raises(gp.DtypeError, match="must keep the kind"):
            copy_strided(source, backend.zeros(3, dtype))
