"""Host arrays in place: where a device shares the host's memory, a product copies neither its operands nor its result, and the
second of its kind is neither planned nor bound again.
"""

from __future__ import annotations

import gc
import threading
import weakref
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import gemmport as gp
from absences import beyond
from gemmport.core.errors import ArrayError, DeviceMemoryError, LaunchError
from gemmport.core.quirks import quirks_of
from gemmport.execution import executor, prepared, repeated
from gemmport.runtime import kept
from launched import launch_one_by_one

RNG = np.random.default_rng(7)


@dataclass
class Traffic:
    """Copies between the host and a device."""

    up: int = 0
    down: int = 0


@pytest.fixture
def traffic(backend: gp.Backend, monkeypatch: pytest.MonkeyPatch) -> Traffic:
    """What a device that shares the host's memory copies in a test."""
    if backend.device.type != "cpu":
        pytest.skip(beyond(backend.device, "it has a memory of its own"))
    if "rusticl-lost-maps" in {quirk.id for quirk in quirks_of(backend.device)}:
        pytest.skip(beyond(backend.device, "arrays are copied there (quirk rusticl-lost-maps)"))
    counted, kind = Traffic(), type(backend)
    upload, download = kind._upload, kind._download

    def up(self: Any, *given: Any) -> None:
        counted.up += 1
        upload(self, *given)

    def down(self: Any, *given: Any) -> None:
        counted.down += 1
        download(self, *given)

    monkeypatch.setattr(kind, "_upload", up)
    monkeypatch.setattr(kind, "_download", down)
    return counted


@pytest.fixture(autouse=True)
def nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test begins with products that were never computed."""
    monkeypatch.setattr(repeated, "_known", {})


def numbers(*shape: int, dtype: str = "float32") -> np.ndarray:
    """Small whole numbers, whose products are exact in every type."""
    values = RNG.integers(-4, 5, shape)
    if dtype.startswith("complex"):
        values = values + 1j * RNG.integers(-4, 5, shape)
    return np.abs(values).astype(dtype) if dtype.startswith(("uint", "bool")) else values.astype(dtype)


def read_only(x: np.ndarray) -> np.ndarray:
    x.flags.writeable = False
    return x


def inside(x: np.ndarray) -> np.ndarray:
    """The same numbers as a view into a larger array."""
    around = np.full((*x.shape[:-2], x.shape[-2] + 3, x.shape[-1] + 5), 9, x.dtype)
    around[..., 1:-2, 2:-3] = x
    return around[..., 1:-2, 2:-3]


LYING = {
    "rows": lambda x: x,
    "columns": lambda x: np.asfortranarray(x) if x.ndim == 2 else x.swapaxes(-1, -2).copy().swapaxes(-1, -2),
    "a view": inside,
    "a transposed view": lambda x: inside(x.swapaxes(-1, -2).copy()).swapaxes(-1, -2),
    "read-only": lambda x: read_only(x.copy()),
    "repeated": lambda x: x,
}


class TestNothingIsCopied:
    @pytest.mark.parametrize("lies", LYING)
    @pytest.mark.parametrize("shape", [(), (3,)], ids=["matrix", "batch"])
    def test_however_the_operands_lie(
        self, backend: gp.Backend, traffic: Traffic, lies: str, shape: tuple[int, ...]
    ) -> None:
        a, b = (LYING[lies](numbers(*shape, *size)) for size in ((17, 33), (33, 21)))
        for _ in range(2):  # the second is a repeated one
            np.testing.assert_array_equal(gp.matmul(a, b, device=backend.device), np.matmul(a, b))
        assert traffic == Traffic(0, 0)

    @pytest.mark.sample(dtype=["float32", "complex64", "int8"])
    @pytest.mark.every_value(
        "dtype",
        ["float16", "float32", "float64", "complex64", "complex128", "int8", "int32", "int64", "uint16", "bool"],
    )
    def test_whatever_the_type(self, backend: gp.Backend, traffic: Traffic, dtype: str) -> None:
        if dtype in ("float64", "complex128") and "float64" not in backend.device.computes:
            pytest.skip(beyond(backend.device, f"it does not compute in {dtype}"))
        a, b = numbers(9, 12, dtype=dtype), numbers(12, 7, dtype=dtype)
        for _ in range(2):
            result = gp.matmul(a, b, device=backend.device)
            np.testing.assert_array_equal(result, np.matmul(a, b))
            assert result.dtype == a.dtype
        assert traffic == Traffic(0, 0)

    @pytest.mark.parametrize("lies", ["rows", "columns", "a view"])
    def test_of_a_result_that_is_given(self, backend: gp.Backend, traffic: Traffic, lies: str) -> None:
        a, b = numbers(17, 33), numbers(33, 21)
        for function in (gp.matmul, gp.gemm):
            out = LYING[lies](np.full((17, 21), np.nan, np.float32))
            around = out if out.base is None else out.base
            before = around.copy()
            for _ in range(2):
                assert function(a, b, out=out, device=backend.device) is out
            np.testing.assert_array_equal(out, a @ b)
            if lies == "a view":
                out[...] = np.nan
                np.testing.assert_array_equal(around, before)  # nothing beside it was written
        assert traffic == Traffic(0, 0)

    @pytest.mark.parametrize("update", [False, True], ids=["c", "out is c"])
    def test_of_c(self, backend: gp.Backend, traffic: Traffic, update: bool, monkeypatch: pytest.MonkeyPatch) -> None:
        borrow, borrowed = type(backend).borrow, []
        monkeypatch.setattr(type(backend), "borrow", lambda self, x: borrowed.append(x) or borrow(self, x))
        a, b, c = numbers(17, 33), numbers(33, 21), numbers(17, 21)
        kept, out = c.copy(), c if update else None
        result = gp.gemm(a, b, alpha=2.0, beta=3.0, c=c, out=out, device=backend.device)
        np.testing.assert_array_equal(result, 2 * (a @ b) + 3 * kept)
        assert (result is c) == update
        assert len(borrowed) == (3 if update else 4)  # one array is one memory: two over it are undefined to write
        if not update:
            np.testing.assert_array_equal(c, kept)
        assert traffic == Traffic(0, 0)

    def test_of_one_array_for_both(self, backend: gp.Backend, traffic: Traffic) -> None:
        a = numbers(24, 24)
        for _ in range(2):
            np.testing.assert_array_equal(gp.matmul(a, a, device=backend.device), a @ a)
            np.testing.assert_array_equal(gp.matmul(a, a.T, device=backend.device), a @ a.T)
            upper, lower = a[:13, 3:], a[3:, 2:9]  # both lie partly in the other's memory
            np.testing.assert_array_equal(gp.matmul(upper, lower, device=backend.device), upper @ lower)
        assert traffic == Traffic(0, 0)


class TestWhatCannotBeUsedInPlace:
    @pytest.mark.parametrize("function", [gp.matmul, gp.gemm], ids=["matmul", "gemm"])
    @pytest.mark.parametrize("where", ["a", "b", "both"])
    def test_a_result_over_an_operand_is_that_of_the_values_before(
        self, backend: gp.Backend, function: Any, where: str
    ) -> None:
        for _ in range(2):
            store = numbers(40, 20)
            a, b, out = store[:20], store[20:], {"a": store[:20], "b": store[20:], "both": store[10:30]}[where]
            expected = a @ b
            function(a, b, out=out, device=backend.device)
            np.testing.assert_array_equal(out, expected)

    @pytest.mark.parametrize("where", ["a", "b"])
    def test_a_result_over_an_operand_after_one_beside_it(self, backend: gp.Backend, where: str) -> None:
        """Their layouts are the same, and nothing else tells the second from a repeated one."""
        a, b = numbers(20, 20), numbers(20, 20)
        gp.matmul(a, b, out=np.zeros((20, 20), np.float32), device=backend.device)
        expected, out = a @ b, {"a": a, "b": b}[where]
        gp.matmul(a, b, out=out, device=backend.device)
        np.testing.assert_array_equal(out, expected)

    @pytest.mark.parametrize("dtype", ["float32", "complex64"])
    def test_memory_that_is_not_aligned(self, backend: gp.Backend, dtype: str) -> None:
        a, b = numbers(9, 12, dtype=dtype), numbers(12, 7, dtype=dtype)
        for shift in (1, 4):
            text = b"x" * shift + a.tobytes()
            crooked = np.frombuffer(text, np.uint8)[shift:].view(dtype).reshape(9, 12)
            for _ in range(2):
                np.testing.assert_array_equal(gp.matmul(crooked, b, device=backend.device), a @ b)

    def test_steps_that_no_kernel_follows(self, backend: gp.Backend) -> None:
        a, b = numbers(18, 66), numbers(33, 21)
        for x in (a[::2, ::2], a[8::-1, ::2], a[:9, ::-1][:, :33]):
            for _ in range(2):
                np.testing.assert_array_equal(gp.matmul(x, b, device=backend.device), x @ b)

    def test_a_result_that_is_read_only_is_refused_also_the_second_time(self, backend: gp.Backend) -> None:
        a, out = numbers(8, 8), np.zeros((8, 8), np.float32)
        gp.gemm(a, a, out=out, device=backend.device)
        with pytest.raises(ArrayError, match="read-only"):
            gp.gemm(a, a, out=read_only(out), device=backend.device)

    @pytest.mark.parametrize(
        "why", ["empty", "not aligned", "half aligned", "backwards", "between elements", "byte order"]
    )
    def test_what_is_never_borrowed(self, backend: gp.Backend, why: str) -> None:
        """Kernels read vectors, and complex numbers, that are aligned to their size; and forwards, whole elements at a time."""
        text = bytearray(4096)
        start = -np.frombuffer(text, np.uint8).__array_interface__["data"][0] % 64
        aligned = np.frombuffer(text, np.uint8)[start : start + 2048]
        never = {
            "empty": np.zeros((0, 3), np.float32),
            "not aligned": aligned[1:1025].view(np.float32),
            "half aligned": aligned[4:1028].view(np.complex64),
            "backwards": aligned.view(np.float32).reshape(16, 32)[:, ::-1],
            "between elements": np.lib.stride_tricks.as_strided(aligned[:1024].view(np.float32), (8, 8), (34, 4)),
            "byte order": np.zeros((4, 4), np.dtype(np.float32).newbyteorder()),
        }
        assert backend.borrow(never[why]) is None

    def test_more_than_one_allocation_may_have_is_refused(self, backend: gp.Backend, traffic: Traffic) -> None:
        most = backend.device.max_allocation
        if most > 2**46:
            pytest.skip(beyond(backend.device, "no array is as large as what it allocates"))
        endless = np.lib.stride_tricks.as_strided(np.zeros(2, np.int8), (most + 1,), (1,))  # never touched
        with pytest.raises(DeviceMemoryError, match=f"{most + 1:,} bytes in one allocation"):
            backend.borrow(endless)

    def test_of_a_closed_device_is_refused(self, fresh_backend: gp.Backend) -> None:
        fresh_backend.close()
        with pytest.raises(LaunchError, match="was closed"):
            fresh_backend.borrow(np.zeros(4, np.float32))


class TestADeviceWithMemoryOfItsOwn:
    """Or one that is taken for such."""

    @pytest.fixture(autouse=True)
    def received(self, backend: gp.Backend, monkeypatch: pytest.MonkeyPatch) -> list[np.ndarray]:
        """The arrays that the device's memory was copied to."""
        found: list[np.ndarray] = []
        download = type(backend)._download

        def notes(own: gp.Backend, memory: Any, out: np.ndarray, offset: int, queue: Any) -> None:
            found.append(out)
            download(own, memory, out, offset, queue)

        monkeypatch.setattr(type(backend), "_borrow", lambda *_: None)
        monkeypatch.setattr(type(backend), "_download", notes)
        return found

    @pytest.mark.parametrize("out", ["dense", "with steps", "column-major", "wider", "an operand", "c"])
    def test_results_go_straight_to_an_out_in_one_piece(
        self, backend: gp.Backend, received: list[np.ndarray], out: str
    ) -> None:
        a, b, c = numbers(12, 12), numbers(12, 12), numbers(12, 12)
        expected = a @ b + (2 * c if out == "c" else 0)
        written = {
            "dense": np.full((12, 12), np.nan, np.float32), "with steps": np.full((12, 24), np.nan, np.float32)[:, ::2],
            "column-major": np.full((12, 12), np.nan, np.float32).T, "wider": np.full((12, 12), np.nan), "an operand": a,
            "c": c,
        }[out]  # fmt: skip
        given = {"c": c, "beta": 2} if out == "c" else {}
        assert gp.gemm(a, b, out=written, device=backend.device, **given) is written
        np.testing.assert_array_equal(written, expected)
        straight = any(np.shares_memory(each, written) for each in received)
        assert straight == (out in ("dense", "c"))


class TestRepeated:
    @pytest.fixture
    def bound(self, backend: gp.Backend, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
        """Plans that are bound in a test."""
        made: list[Any] = []
        bind = executor.bind

        def counted(plan: Any, *given: Any, **options: Any) -> Any:
            made.append(plan)
            return bind(plan, *given, **options)

        monkeypatch.setattr(executor, "bind", counted)
        monkeypatch.setattr(prepared, "bind", counted)
        monkeypatch.setattr(backend, "prepared", {})
        return made

    def test_products_are_bound_once(self, backend: gp.Backend, traffic: Traffic, bound: list[Any]) -> None:
        for _ in range(4):
            a, b = numbers(16, 24), numbers(24, 8)
            np.testing.assert_array_equal(gp.matmul(a, b, device=backend.device), a @ b)
        assert len(bound) == 1

    def test_products_to_which_another_array_is_added_are_bound_once(
        self, backend: gp.Backend, traffic: Traffic, bound: list[Any]
    ) -> None:
        for _ in range(3):
            a, b, c = numbers(16, 24), numbers(24, 8), numbers(16, 8)
            product = gp.gemm(a, b, beta=-2, c=c, device=backend.device)
            np.testing.assert_array_equal(product, a @ b - 2 * c)
        assert (len(bound), len(repeated._known)) == (1, 1)
        assert (traffic.up, traffic.down) == (0, 0)
        gp.gemm(a, b, beta=0, c=c, device=backend.device)  # which is not read then
        np.testing.assert_array_equal(gp.gemm(a, b, beta=0, c=c * np.nan, device=backend.device), a @ b)

    def test_what_is_added_is_read_before_it_is_written(self, backend: gp.Backend, bound: list[Any]) -> None:
        """`out` may be C, or have a part of it."""
        a, b = numbers(8, 8), numbers(8, 8)
        for place in ("another", "the same", "across", "transposed", "transposed", "another", "the same"):
            whole = numbers(16, 8)
            c, out = whole[:8], whole[8:]
            out = {"the same": c, "across": whole[4:12], "transposed": np.empty_like(c)}.get(place, out)
            c = c.T if place == "transposed" else c
            wanted = a @ b + 3 * c
            np.testing.assert_array_equal(gp.gemm(a, b, beta=3, c=c, out=out, device=backend.device), wanted)

    def test_what_differs_is_bound_anew(self, backend: gp.Backend, traffic: Traffic, bound: list[Any]) -> None:
        a, b, out = numbers(16, 16), numbers(16, 16), np.zeros((16, 16), np.float32)
        wide = inside(a)
        different: list[tuple[Any, Any, dict[str, Any], Any]] = [
            (a, b, {}, a @ b),
            (a[:8], b, {}, a[:8] @ b),
            (a.T, b, {}, a.T @ b),
            (wide, b, {}, a @ b),
            (a, b, {"alpha": 2.0}, 2 * (a @ b)),
            (a, b, {"trans_b": "T"}, a @ b.T),
            (a, b, {"trans_a": True}, a.T @ b),
            (a, b, {"out": out}, a @ b),
            (a, b, {"kernel": "naive"}, a @ b),
            (a, b, {"kernel": "naive", "params": {"TS": 4}}, a @ b),
            (a.astype(np.int32), b.astype(np.int32), {}, a @ b),
        ]
        for count in (1, 2):
            for x, y, choices, expected in different:
                np.testing.assert_array_equal(gp.gemm(x, y, device=backend.device, **choices), expected)
            # To be written to, and to be transposed by a word, is of no other plan. With params= nothing is kept.
            assert len(bound) == len(different) - 2 + count - 1

    def test_a_device_of_the_environment_is_asked_for_each_time(
        self, backend: gp.Backend, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        a = numbers(16, 16)
        monkeypatch.setenv("GEMMPORT_BACKEND", backend.name)
        monkeypatch.setenv("GEMMPORT_DEVICE", backend.device.selector)
        np.testing.assert_array_equal(gp.matmul(a, a), a @ a)
        monkeypatch.setenv("GEMMPORT_DEVICE", "no such device")
        with pytest.raises(gp.DeviceNotFoundError):
            gp.matmul(a, a)

    def test_operands_are_let_go(self, backend: gp.Backend, traffic: Traffic) -> None:
        a, b = numbers(16, 16), numbers(16, 16)
        for _ in range(2):
            result = gp.matmul(a, b, device=backend.device)
        alive = [weakref.ref(x) for x in (a, b, result)]
        del a, b, result
        gc.collect()
        assert [x() for x in alive] == [None, None, None]

    def test_what_is_bound_to_a_device_that_was_closed_is_forgotten(
        self, fresh_backend: gp.Backend, traffic: Traffic, backend: gp.Backend
    ) -> None:
        a = numbers(16, 16)
        gp.matmul(a, a, device=backend.device)
        (known,) = repeated._known.values()
        known.prepared.backend = fresh_backend
        fresh_backend.close()
        np.testing.assert_array_equal(gp.matmul(a, a, device=backend.device), a @ a)
        (again,) = repeated._known.values()
        assert again.prepared.backend is backend

    def test_threads_do_not_share_what_is_bound(self, backend: gp.Backend, traffic: Traffic) -> None:
        given = [(numbers(48, 40), numbers(40, 56)) for _ in range(8)]
        wrong: list[int] = []

        def work(number: int) -> None:
            a, b = given[number]
            expected = a @ b
            for _ in range(60):
                if not np.array_equal(gp.matmul(a, b, device=backend.device), expected):
                    wrong.append(number)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(len(given))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong

    def test_what_is_at_work_is_not_bound_to_others(
        self, backend: gp.Backend, traffic: Traffic, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        a, b, c = (
            numbers(4, 4) for _ in range(3)
        )  # without scratch memory, for which a product waits until another is enqueued
        launch_one_by_one(backend, monkeypatch)
        gp.matmul(a, b, device=backend.device)
        assert not any(known.prepared.plan.scratch for known in repeated._known.values())
        launch, between = type(backend).launch, [c]

        def interrupted(self: Any, call: Any, **given: Any) -> None:
            if between:
                x = between.pop()
                np.testing.assert_array_equal(gp.matmul(x, x, device=backend.device), x @ x)
            launch(self, call, **given)

        monkeypatch.setattr(type(backend), "launch", interrupted)
        np.testing.assert_array_equal(gp.matmul(a, b, device=backend.device), a @ b)
        assert not between

    def test_the_oldest_are_forgotten(
        self, backend: gp.Backend, traffic: Traffic, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(kept, "MOST", 2)
        for size in (4, 5, 6):
            a = numbers(size, size)
            np.testing.assert_array_equal(gp.matmul(a, a, device=backend.device), a @ a)
        assert [known.shape for known in repeated._known.values()] == [(5, 5), (6, 6)]


def test_scalars_that_differ_in_the_sign_of_a_zero_are_told_apart(backend: gp.Backend) -> None:
    """Also where the product of the first is kept: zeros in the result have the sign of alpha."""
    a, b = numbers(8, 8), numbers(8, 8)
    for alpha in (0.0, -0.0, 0.0):
        product = gp.gemm(a, b, alpha=alpha, kernel="naive", device=backend.device)
        np.testing.assert_array_equal(np.signbit(product), np.signbit(np.full((8, 8), alpha)))
