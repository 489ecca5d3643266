"""Products of device arrays that were computed before are neither planned nor bound again, and nothing else is different."""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import gemmport as gp
from absences import beyond
from gemmport import kernels
from gemmport.api import copied, plans, product
from gemmport.backends import _scripts
from gemmport.contracts.kernel import KernelVariant
from gemmport.core.errors import ArrayError, DeviceMemoryError, LaunchError
from gemmport.execution import adapters, executor, prepared, repeated
from gemmport.runtime import kept
from launched import launch_one_by_one

RNG = np.random.default_rng(11)


@pytest.fixture
def bound(backend: gp.Backend, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Plans that are bound in a test, which begins with products that were never computed."""
    made: list[Any] = []
    bind = executor.bind

    def counted(plan: Any, *given: Any, **options: Any) -> Any:
        made.append(plan)
        return bind(plan, *given, **options)

    monkeypatch.setattr(executor, "bind", counted)
    monkeypatch.setattr(prepared, "bind", counted)
    monkeypatch.setattr(backend, "kept", {})
    monkeypatch.setattr(backend, "prepared", {})
    return made


def numbers(*shape: int) -> np.ndarray:
    """Small whole numbers, whose products are exact."""
    return RNG.integers(-4, 5, shape).astype(np.float32)


def over_the_same(array: gp.DeviceArray, kind: str) -> gp.DeviceArray:
    """An array over the same memory, for which another object stands."""
    memory = array.memory
    if kind == "copied":
        return replace(array, memory=replace(memory, free=lambda: None))
    buffer = memory.native if array.backend.name == "opencl" else memory.handle
    return array.backend.wrap(buffer, array.shape, array.dtype, nbytes=memory.nbytes)


def gemm(*operands: Any, **options: Any) -> Any:
    """`gp.gemm` by the kernel that compiles fastest."""
    return gp.gemm(*operands, **{"kernel": "naive", **options})


def test_products_are_bound_once(backend: gp.Backend, bound: list[Any]) -> None:
    for _ in range(4):
        a, b = numbers(16, 24), numbers(24, 8)
        x, y, out = backend.asarray(a), backend.asarray(b), backend.empty((16, 8), np.float32)
        np.testing.assert_array_equal(gemm(x, y).get(), a @ b)
        assert gemm(x, y, out=out) is out
        np.testing.assert_array_equal(out.get(), a @ b)
    assert len(bound) == 1


SHAPES = {
    "matrices": ((5, 8), (8, 7)),
    "stacks": ((3, 5, 8), (3, 8, 7)),
    "stacks of stacks": ((2, 3, 5, 8), (2, 3, 8, 7)),
    "a stack by a matrix": ((3, 5, 8), (8, 7)),
    "a matrix by a stack": ((5, 8), (3, 8, 7)),
    "a stack of one by a stack": ((1, 5, 8), (3, 8, 7)),
    "a matrix by a vector": ((5, 8), (8,)),
    "a vector by a matrix": ((8,), (8, 7)),
    "a vector by a stack": ((8,), (3, 8, 7)),
    "vectors": ((8,), (8,)),
}


@pytest.mark.parametrize("out", [False, True], ids=["new", "out"])
@pytest.mark.parametrize("name", SHAPES)
def test_products_of_all_dimensions_are_kept(
    backend: gp.Backend, bound: list[Any], monkeypatch: pytest.MonkeyPatch, name: str, out: bool
) -> None:
    given = [[numbers(*shape) for shape in SHAPES[name]] for _ in range(3)]
    for number, (a, b) in enumerate(given):
        expected = a @ b
        result = backend.empty(expected.shape, np.float32) if out else None
        if number:  # NumPy's rules were asked, and it was planned, for the first
            monkeypatch.setattr(sys.modules["gemmport.api.matmul"], "product_by_rules", None)
        product = gp.matmul(backend.asarray(a), backend.asarray(b), out=result, kernel="naive")
        assert product.shape == expected.shape
        assert not out or product is result
        np.testing.assert_array_equal(product.get(), expected)
    assert len(bound) == 1


WHICH = {"both": (True, True), "rows": (True, False), "columns": (False, True)}


@pytest.mark.sample(which=["both"], where=["device"])
@pytest.mark.parametrize("where", ["device", "host"])
@pytest.mark.parametrize("which", WHICH)
def test_products_with_scales_are_kept(
    backend: gp.Backend, bound: list[Any], monkeypatch: pytest.MonkeyPatch, which: str, where: str
) -> None:
    """With C, with results of both orders, by `matmul`, too; other scales of the same places are read each time."""
    monkeypatch.setattr(repeated, "_known", {})
    place = backend.asarray if where == "device" else lambda x: x
    how = {"kernel": "naive"} if where == "device" else {"kernel": "naive", "device": backend.device}
    in_place = where == "device" or backend.borrow(np.zeros(1)) is not None
    kinds: list[int] = []
    for number in range(3):
        if number and in_place:  # everything was decided, and bound, for the first
            monkeypatch.setattr(sys.modules["gemmport.api.gemm"], "computed", None)
            monkeypatch.setattr(sys.modules["gemmport.api.matmul"], "product_by_rules", None)
        a, b, c = numbers(16, 24), numbers(24, 8), numbers(16, 8)
        rows, columns = (np.exp2(RNG.integers(-3, 4, size)).astype(np.float32) for size in (16, 8))
        of_rows, of_columns = WHICH[which]
        scales = ({"scale_a": rows} if of_rows else {}) | ({"scale_b": columns} if of_columns else {})
        sums = (a @ b) * (rows[:, np.newaxis] if of_rows else 1) * (columns if of_columns else 1)
        x, y, z = map(place, (a, b, c))
        there = {name: place(scale) for name, scale in scales.items()}
        out = place(np.empty((8, 16), np.float32)).T
        for found, wanted in (
            (gp.gemm(x, y, alpha=2, **there, **how), 2 * sums),
            (gp.gemm(x, y, c=z, beta=3, **there, **how), sums + 3 * c),
            (gp.gemm(x, y, out=out, **there, **how), sums),
            (gp.matmul(x, y, **there, **how), sums),
        ):
            np.testing.assert_array_equal(found.get() if where == "device" else found, wanted)
        kinds.append(len(bound))
    assert kinds[0] >= 2
    assert kinds == kinds[:1] * 3


def test_a_product_with_scales_that_are_sent_is_planned_once(backend: gp.Backend, bound: list[Any]) -> None:
    """Scales of the host beside operands on a device, and of other types: they are copied, and nothing is bound again."""
    for _ in range(3):
        a, b, rows = numbers(16, 24), numbers(24, 8), np.exp2(RNG.integers(-3, 4, 16)).astype(np.float16)
        x, y = backend.asarray(a), backend.asarray(b)
        for scale in (rows, rows.astype(np.float32), backend.asarray(rows)):
            np.testing.assert_array_equal(gemm(x, y, scale_a=scale).get(), (a @ b) * rows[:, np.newaxis])
    assert len(bound) == 1


def test_a_result_over_scales_is_refused_also_the_second_time(backend: gp.Backend, bound: list[Any]) -> None:
    x, y = backend.asarray(numbers(8, 8)), backend.asarray(numbers(8, 8))
    for _ in range(2):
        apart, out = backend.asarray(numbers(8)), backend.zeros((8, 8), np.float32)
        gemm(x, y, scale_a=apart, out=out)
        gemm(x, y, scale_a=apart, c=out, beta=1, out=out)
        with pytest.raises(ArrayError, match="out overlaps scale_a"):
            gemm(x, y, scale_a=out[3], out=out)
        with pytest.raises(ArrayError, match="out overlaps scale_a"):
            gemm(x, y, scale_a=out[3], c=out, beta=1, out=out)
    apart.memory.release()
    with pytest.raises(ArrayError, match="released"):
        gemm(x, y, scale_a=apart, out=out)
    host = np.ones((8, 8), np.float32)
    for _ in range(3):
        a, b, host[2] = numbers(8, 8), numbers(8, 8), 2.0
        wanted = 2 * (a @ b)
        gemm(a, b, scale_b=host[2], out=host, device=backend.device)
        np.testing.assert_array_equal(host, wanted)
    assert len(bound) <= 4


@pytest.mark.parametrize("name", ["repeated between others", "steps backwards"])
def test_products_of_copies_are_computed_anew(backend: gp.Backend, name: str) -> None:
    for _ in range(3):
        a, b = (numbers(3, 1, 5, 8), numbers(1, 4, 8, 7)) if name == "repeated between others" else (numbers(5, 8),) * 2
        x, y = backend.asarray(a), backend.asarray(b)
        if name == "steps backwards":
            x, y, a, b = x[::-1, ::2], y.T[::2], a[::-1, ::2], b.T[::2]
        np.testing.assert_array_equal(gp.matmul(x, y, kernel="naive").get(), a @ b)


def steps_backwards(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return a[:, ::-1], np.flipud(b)


COPIES: dict[str, Callable[[np.ndarray, np.ndarray], tuple[Any, Any]]] = {
    "steps backwards": steps_backwards,
    "steps along both axes": lambda a, b: (np.repeat(np.repeat(a, 2, 0), 3, 1)[::2, ::3], b),
    "one as it lies": lambda a, b: (np.asfortranarray(a), b[:, ::-1]),
    "two types": lambda a, b: (a.astype(np.float64), b),
    "integers and float32": lambda a, b: (a.astype(np.int8), b),
    "the other byte order": lambda a, b: (a.astype(a.dtype.newbyteorder()), b.astype(b.dtype.newbyteorder())),
    "repeated between others": lambda a, b: (np.stack([a, 2 * a])[:, None], np.stack([b, 3 * b, b])[None]),
    "a stack with gaps": lambda a, b: (np.broadcast_to(a, (3, 4, *a.shape)).copy()[:, ::3], np.stack([b, 2 * b])),
    "a vector backwards": lambda a, b: (a[0, ::-1], b),
    "lists": lambda a, b: (a.tolist(), b.astype(np.float64)),
}
OUTS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "of another type": lambda d: np.empty(d.shape, np.complex128),
    "with steps": lambda d: np.empty((*d.shape[:-1], 2 * d.shape[-1]), d.dtype)[..., ::2],
    "upside down": lambda d: np.empty(d.shape, d.dtype)[::-1],
    "of more dimensions": lambda d: np.empty((2, *d.shape), d.dtype),
}


@pytest.fixture
def on_host(backend: gp.Backend, monkeypatch: pytest.MonkeyPatch) -> gp.Backend:
    """A device that uses the host's memory in place, of which no product is kept yet."""
    if backend.borrow(np.zeros(1)) is None:
        pytest.skip(beyond(backend.device, "only CPUs use the host's memory in place"))
    monkeypatch.setattr(repeated, "_known", {})
    return backend


@pytest.fixture
def found_anew(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """How many products were found anew, by NumPy's rules or `gemm`'s, since it was asked before."""
    asked: list[str] = []
    for module, name in (("matmul", "product_by_rules"), ("gemm", "computed")):
        home = sys.modules[f"gemmport.api.{module}"]
        found = getattr(home, name)
        monkeypatch.setattr(home, name, lambda *a, found=found, name=name, **k: asked.append(name) or found(*a, **k))

    def count() -> int:
        number = len(asked)
        asked.clear()
        return number

    return count


class TestHostArraysThatAreCopied:
    @pytest.mark.sample(name=["steps backwards", "two types", "repeated between others"])
    @pytest.mark.parametrize("name", COPIES)
    def test_are_found_again_from_copies(self, on_host: gp.Backend, found_anew: Callable[[], int], name: str) -> None:
        for number in range(5):
            a, b = COPIES[name](numbers(4, 6), numbers(6, 5))
            found = gp.matmul(a, b, kernel="naive", device=on_host.device)
            wanted = np.matmul(a, b)
            assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
            np.testing.assert_array_equal(found, wanted)
            if number > 1:  # the first is computed as any other, and so is the first of the copies
                assert found_anew() == (name == "lists"), number  # which NumPy makes arrays of each time
            found_anew()

    @pytest.mark.sample(name=["with steps"])
    @pytest.mark.parametrize("name", OUTS)
    def test_are_so_for_results(self, on_host: gp.Backend, found_anew: Callable[[], int], name: str) -> None:
        for number in range(5):
            a, b = numbers(4, 6), numbers(6, 5)
            out = OUTS[name](a @ b)
            assert gp.matmul(a, b, out=out, kernel="naive", device=on_host.device) is out
            np.testing.assert_array_equal(out, np.broadcast_to(a @ b, out.shape))
            if number > 1:
                assert not found_anew()
            found_anew()

    def test_are_so_in_gemm(self, on_host: gp.Backend, found_anew: Callable[[], int]) -> None:
        for number in range(5):
            a, b, out = numbers(6, 4)[:, ::-1], numbers(6, 5).astype(np.float64), np.empty((4, 10))[:, ::2]
            found = gemm(a, b, alpha=2, trans_a=True, device=on_host.device)
            assert gemm(a, b, trans_a=True, out=out, device=on_host.device) is out
            np.testing.assert_array_equal(found, 2 * (a.T @ b))
            np.testing.assert_array_equal(out, a.T @ b)
            if number > 1:
                assert not found_anew()
            found_anew()

    @pytest.mark.parametrize("first", ["over an operand", "apart"])
    def test_a_result_over_an_operand_does_not_decide_for_others(
        self, on_host: gp.Backend, found_anew: Callable[[], int], first: str
    ) -> None:
        for number in range(6):
            a, b = numbers(6, 6), numbers(6, 6)
            over = (number % 2 == 0) == (first == "over an operand")
            out, wanted = (a if over else np.empty((6, 6), np.float32)), a @ b
            assert gp.matmul(a, b, out=out, kernel="naive", device=on_host.device) is out
            np.testing.assert_array_equal(out, wanted)
            if number > 1:
                assert (found_anew() > 0) == over
            found_anew()

    @pytest.mark.parametrize("name", ["matmul", "gemm"])
    def test_where_memory_is_short_the_caller_decides_and_not_the_first(
        self, on_host: gp.Backend, monkeypatch: pytest.MonkeyPatch, name: str
    ) -> None:
        """Copies are multiplied by the plan that has the same bits each time, or the product is found like the first."""
        module, inner = ("matmul", "product_by_rules") if name == "matmul" else ("gemm", "computed")
        home, asked = sys.modules[f"gemmport.api.{module}"], []
        found = getattr(home, inner)

        def short_for_copies(a: Any, b: Any, *given: Any, **options: Any) -> Any:
            choice = options["choice"] if name == "gemm" else given[2]["choice"]
            asked.append((b.flags.c_contiguous, choice.deterministic))
            if b.flags.c_contiguous:
                raise DeviceMemoryError("it is full")
            return found(a, b, *given, **options)

        monkeypatch.setattr(home, inner, short_for_copies)
        a, b = numbers(4, 6), numbers(6, 5)[:, ::-1]
        for deterministic in (False, False, True, True):
            product = getattr(gp, name)(a, b, kernel="naive", device=on_host.device, deterministic=deterministic)
            np.testing.assert_array_equal(product, a @ b)
        first, next_one = [(False, False)], [(True, True), (False, False)]
        assert asked == [*first, *next_one, *((is_copy, True) for is_copy, _ in (*first, *next_one))]

    def test_a_result_that_became_read_only_is_refused(self, on_host: gp.Backend) -> None:
        a, b, out = numbers(4, 6), numbers(6, 5), np.zeros((4, 10), np.float32)[:, ::2]
        for _ in range(3):
            gp.matmul(a, b, out=out, kernel="naive", device=on_host.device)
        out.flags.writeable = False
        with pytest.raises(ArrayError, match="read-only"):
            gp.matmul(a, b, out=out, kernel="naive", device=on_host.device)

    def test_large_ones_are_found_anew(
        self, on_host: gp.Backend, found_anew: Callable[[], int], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """They may be multiplied in parts."""
        monkeypatch.setattr(copied, "MOST_BYTES", 95)
        for _ in range(3):
            a, b = steps_backwards(numbers(4, 6), numbers(6, 5))
            np.testing.assert_array_equal(gp.matmul(a, b, kernel="naive", device=on_host.device), a @ b)
            assert found_anew()

    def test_are_not_copied_for_a_device_that_uses_nothing_in_place(
        self, on_host: gp.Backend, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(type(on_host), "_borrow", lambda *_: None)
        for _ in range(3):
            a, b = np.asfortranarray(numbers(4, 6)), numbers(6, 5)[:, ::-1]
            np.testing.assert_array_equal(gp.matmul(a, b, kernel="naive", device=on_host.device), a @ b)
        assert not repeated._known


def test_a_product_of_vectors_on_the_host_is_kept(on_host: gp.Backend, found_anew: Callable[[], int]) -> None:
    """A scalar of NumPy's, and no array."""
    for number in range(3):
        x, y, out = numbers(8), numbers(8), np.empty((), np.float32)
        found = gp.matmul(x, y, kernel="naive", device=on_host.device)
        assert type(found) is np.float32
        assert found == x @ y
        assert gp.matmul(x, y, out=out, kernel="naive", device=on_host.device) is out
        assert out == x @ y
        if number:
            assert not found_anew()
        found_anew()


@pytest.mark.parametrize(("a", "b"), [((0, 4), (4, 3)), ((2, 0, 4), (4, 3)), ((0, 0), (0,))])
def test_a_product_without_elements_on_the_host_is_kept(
    on_host: gp.Backend, found_anew: Callable[[], int], a: tuple[int, ...], b: tuple[int, ...]
) -> None:
    x, y = np.empty(a, np.float32), np.empty(b, np.float32)
    for number in range(3):
        out = np.ones(np.matmul(x, y).shape, np.float32)
        found = gp.matmul(x, y, device=on_host.device)
        assert (found.shape, found.dtype) == (out.shape, out.dtype)
        assert gp.matmul(x, y, out=out, device=on_host.device) is out
        if number:
            assert not found_anew()
        found_anew()


def test_products_are_kept_where_there_was_no_compiler(
    backend: gp.Backend, bound: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repeated, "_known", {})
    monkeypatch.setattr(adapters, "in_c", None)
    monkeypatch.setattr(_scripts, "launching", None)
    out = backend.empty((5, 7), np.float32)
    for _ in range(3):
        a, b, result = numbers(5, 8), numbers(8, 7), np.empty((5, 7), np.float32)
        for found in (
            gp.matmul(backend.asarray(a), backend.asarray(b), out=out, kernel="naive").get(),
            gp.matmul(a, b, kernel="naive", device=backend.device),
            gp.matmul(a, b, out=result, kernel="naive", device=backend.device),
        ):
            np.testing.assert_array_equal(found, a @ b)
    assert len(bound) <= 2  # host arrays are aligned to their elements alone


def test_matmul_shares_what_gemm_bound(backend: gp.Backend, bound: list[Any]) -> None:
    a, b = numbers(16, 24), numbers(24, 8)
    x, y, out = backend.asarray(a), backend.asarray(b), backend.empty((16, 8), np.float32)
    gemm(x, y)
    gemm(x, y, out=out)
    np.testing.assert_array_equal(gp.matmul(x, y, kernel="naive").get(), a @ b)
    assert gp.matmul(x, y, out=out, kernel="naive") is out
    np.testing.assert_array_equal(out.get(), a @ b)
    assert len(bound) == 1


def test_what_differs_is_bound_anew(backend: gp.Backend, bound: list[Any]) -> None:
    a, b, c = numbers(16, 16), numbers(16, 16), numbers(16, 16)
    x, y, z = (backend.asarray(host) for host in (a, b, c))
    wide_host = numbers(20, 24)
    wide = backend.asarray(wide_host)
    out = backend.empty((16, 16), np.float32)
    different: list[tuple[Any, Any, dict[str, Any], np.ndarray]] = [
        (x, y, {}, a @ b),
        (x[:8], y, {}, a[:8] @ b),
        (x.T, y, {}, a.T @ b),
        (wide[:16, :16], y, {}, wide_host[:16, :16] @ b),
        (wide[3:19, 4:20], y, {}, wide_host[3:19, 4:20] @ b),
        (x, y, {"alpha": 2.0}, 2 * (a @ b)),
        (x, y, {"alpha": 2.0, "beta": 3.0, "c": z}, 2 * (a @ b) + 3 * c),
        (x, y, {"beta": 1.0, "c": z.T}, a @ b + c.T),
        (x, y, {"trans_b": "T"}, a @ b.T),
        (x, y, {"out": out.T}, a @ b),
        (x, y, {"kernel": "tiled"}, a @ b),
    ]
    for _ in range(2):
        for left, right, choices, expected in different:
            np.testing.assert_array_equal(gemm(left, right, **choices).get(), expected)
    assert len(bound) == len(different)


class _Kind:
    """A data type as NumPy takes it, which cannot be hashed."""

    dtype = np.dtype(np.float32)
    __hash__ = None  # type: ignore[assignment]


def test_a_choice_that_is_no_key_is_taken_all_the_same(backend: gp.Backend, bound: list[Any]) -> None:
    a, b = numbers(8, 8), numbers(8, 8)
    x, y = backend.asarray(a), backend.asarray(b)
    for _ in range(2):
        np.testing.assert_array_equal(gemm(x, y, accumulator=_Kind()).get(), a @ b)
    assert len(bound) == 1
    assert not backend.kept


@pytest.mark.parametrize("two", [np.array(2.0), np.float16(2), Fraction(2), 2, 2.0, 2 + 0j], ids=repr)
def test_one_scalar_is_one_key_however_it_is_written(backend: gp.Backend, bound: list[Any], two: Any) -> None:
    a, b = numbers(8, 8), numbers(8, 8)
    x, y = backend.asarray(a), backend.asarray(b)
    for _ in range(2):
        np.testing.assert_array_equal(gemm(x, y, alpha=two).get(), 2 * (a @ b))
    assert len(bound) == 1


def bits(x: np.ndarray) -> bytes:
    return x.view(np.uint8).tobytes()


@pytest.mark.parametrize("name", ["alpha", "beta"])
@pytest.mark.parametrize(
    "scalars",
    [
        (0.0, -0.0, 0, 0.0),
        (0j, complex(-0.0, -0.0), complex(0.0, -0.0)),
        (1 + 0j, complex(1.0, -0.0), complex(-0.0, 1.0)),
    ],
    ids=["real", "complex", "one part"],
)
def test_scalars_that_differ_in_the_sign_of_a_zero_are_told_apart(
    backend: gp.Backend, bound: list[Any], monkeypatch: pytest.MonkeyPatch, name: str, scalars: Any
) -> None:
    """As if each were the first. That it matters is asserted of real ones."""
    dtype = np.complex64 if isinstance(scalars[0], complex) else np.float32
    x, y, z = (backend.asarray(numbers(8, 8).astype(dtype)) for _ in range(3))
    given: list[dict[str, Any]] = [{"alpha": 2.0, "c": z, name: scalar} for scalar in scalars]
    afterwards = [bits(gemm(x, y, **options).get()) for options in given]
    first = []
    for options in given:
        monkeypatch.setattr(backend, "kept", {})
        monkeypatch.setattr(backend, "prepared", {})
        plans._cached_plan.cache_clear()
        first.append(bits(gemm(x, y, **options).get()))
    assert afterwards == first
    if name == "alpha" and dtype == np.float32:
        assert len(set(first)) == 2


def test_nan_is_one_scalar(backend: gp.Backend, bound: list[Any]) -> None:
    x, y = backend.asarray(numbers(8, 8)), backend.asarray(numbers(8, 8))
    for nan in (float("nan"), float("nan"), np.float32("nan")):
        assert np.isnan(gemm(x, y, alpha=nan).get()).all()
    assert len(bound) == 1


class TestOut:
    def test_over_an_operand_is_refused_also_the_second_time(self, backend: gp.Backend, bound: list[Any]) -> None:
        store = numbers(48, 16)
        whole = backend.asarray(store)
        first, second, third = whole[:16], whole[16:32], whole[32:]
        gemm(first, second, out=third)
        np.testing.assert_array_equal(whole.get()[32:], store[:16] @ store[16:32])
        apart, overlapping = backend.empty((48, 16), np.float32), whole[24:40]
        kept = len(backend.kept)
        gemm(first, second, out=apart[24:40])  # of the key of the next, which is refused
        for left, right in ((first, second), (second, first)):
            with pytest.raises(ArrayError, match="overlaps"):
                gemm(left, right, out=overlapping)
        assert len(backend.kept) == kept + 1

    def test_that_is_c_is_updated_whatever_object_stands_for_it(self, backend: gp.Backend, bound: list[Any]) -> None:
        a, b, c = numbers(16, 16), numbers(16, 16), numbers(16, 16)
        x, y, z = (backend.asarray(host) for host in (a, b, c))
        for same in (z, z, z[:], z):
            c = a @ b + c
            gemm(x, y, beta=1.0, c=same, out=z)
            np.testing.assert_array_equal(z.get(), c)

    def test_over_a_part_of_c_is_refused(self, backend: gp.Backend, bound: list[Any]) -> None:
        x, whole = backend.asarray(numbers(16, 16)), backend.asarray(numbers(48, 16))
        gemm(x, x, beta=1.0, c=whole[:16], out=backend.empty((48, 16), np.float32)[8:24])
        with pytest.raises(ArrayError, match="overlaps c"):
            gemm(x, x, beta=1.0, c=whole[:16], out=whole[8:24])

    @pytest.mark.parametrize("kind", ["wrapped", "copied"])
    def test_over_an_operand_for_which_another_object_stands_is_refused(
        self, backend: gp.Backend, bound: list[Any], kind: str
    ) -> None:
        x, y, other = (backend.asarray(numbers(16, 16)) for _ in range(3))
        gemm(x, y, out=over_the_same(other, kind))
        gemm(over_the_same(x, kind), y, out=other)
        with pytest.raises(ArrayError, match="overlaps a"):
            gemm(x, y, out=over_the_same(x, kind))  # of the key of the first
        with pytest.raises(ArrayError, match="overlaps a"):
            gemm(over_the_same(x, kind), y, out=x)  # of that of the second

    def test_that_is_read_only_is_refused(self, backend: gp.Backend, bound: list[Any]) -> None:
        x, out = backend.asarray(numbers(8, 8)), backend.empty((8, 8), np.float32)
        gemm(x, x, out=out)
        out.memory.read_only = True
        with pytest.raises(ArrayError, match="read-only"):
            gemm(x, x, out=out)


def test_released_operands_are_refused(backend: gp.Backend, bound: list[Any]) -> None:
    x, y = backend.asarray(numbers(8, 8)), backend.asarray(numbers(8, 8))
    gemm(x, y)
    y.release()
    with pytest.raises(ArrayError, match="must not be used after it was released"):
        gemm(x, y)


@pytest.mark.usefixtures("bound", "uncollected")
@pytest.mark.parametrize("where", ["device", "host"])
def test_operands_and_results_go_with_their_last_reference(
    backend: gp.Backend, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """No cycle holds them until garbage is collected: neither after the first product of a kind nor after the next."""
    monkeypatch.setattr(repeated, "_known", {})
    on: dict[str, Any] = {"device": backend.device} if where == "host" else {}
    for _ in range(2):
        arrays = [numbers(16, 16) for _ in range(3)]
        if where == "device":
            arrays = [backend.asarray(array) for array in arrays]
        x, y, out = arrays
        arrays += [gemm(x, y, **on), gemm(x, y, out=out, **on)]
        if where == "device":
            arrays += [array.memory for array in arrays]
        alive = [weakref.ref(array) for array in arrays]
        del x, y, out, arrays
        assert [array() is None for array in alive] == [True] * len(alive)


def test_what_is_kept_goes_with_the_device(fresh_backend: gp.Backend) -> None:
    x = fresh_backend.asarray(numbers(8, 8))
    gemm(x, x)
    (known,) = fresh_backend.kept.values()
    alive = weakref.ref(known)
    del known
    fresh_backend.close()
    gc.collect()
    assert alive() is None
    with pytest.raises(LaunchError, match="was closed"):
        gemm(x, x)


class TestWhatThePlanDependedOn:
    def test_kernels_that_are_registered(
        self, backend: gp.Backend, bound: list[Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        family: Mapping[str, KernelVariant] = kernels.family()
        monkeypatch.setattr(kernels, "_FAMILY", family)  # and so it is again after the test
        x = backend.asarray(numbers(8, 8))
        gemm(x, x)
        kernels.register(kernels.variant("naive"))
        assert kernels.family() is not family
        for _ in range(2):
            gemm(x, x)
        assert len(bound) == 2

    def test_the_folder_of_configurations(
        self, backend: gp.Backend, bound: list[Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Any
    ) -> None:
        x = backend.asarray(numbers(8, 8))
        gemm(x, x)
        monkeypatch.setenv("GEMMPORT_CONFIG_PATH", str(tmp_path))
        for _ in range(2):
            gemm(x, x)
        assert len(bound) == 2

    def test_the_alignment_of_memory(self, backend: gp.Backend, bound: list[Any]) -> None:
        a = numbers(8, 8)
        x = backend.asarray(a)
        gemm(x, x)
        less = replace(x, memory=replace(x.memory, alignment=4, free=lambda: None))
        for _ in range(2):
            np.testing.assert_array_equal(gemm(less, x).get(), a @ a)
        assert len(bound) == 2


def test_threads_do_not_share_what_is_bound(backend: gp.Backend, bound: list[Any]) -> None:
    given = [(numbers(48, 40), numbers(40, 56)) for _ in range(8)]
    wrong: list[int] = []

    def work(number: int) -> None:
        a, b = given[number]
        x, y = backend.asarray(a), backend.asarray(b)
        for _ in range(30):
            if not np.array_equal(gemm(x, y).get(), a @ b):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(given))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_what_is_at_work_is_not_bound_to_others(
    backend: gp.Backend, bound: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b, c = (numbers(16, 16) for _ in range(3))
    x, y, z = (backend.asarray(host) for host in (a, b, c))
    out = [backend.zeros((16, 16), np.float32) for _ in range(3)]
    launch_one_by_one(backend, monkeypatch)
    gemm(x, y, out=out[0])
    launch, between = type(backend).launch, [z]

    def interrupted(self: Any, call: Any, **given: Any) -> None:
        if between:
            other = between.pop()
            np.testing.assert_array_equal(gemm(other, other, out=out[1]).get(), c @ c)
        launch(self, call, **given)

    monkeypatch.setattr(type(backend), "launch", interrupted)
    np.testing.assert_array_equal(gemm(x, y, out=out[2]).get(), a @ b)
    assert not between


def test_the_oldest_are_forgotten(backend: gp.Backend, bound: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "MOST", 2)
    for size in (4, 5, 6):
        x = backend.asarray(numbers(size, size))
        gemm(x, x)
    assert [known.shape for known in backend.kept.values()] == [(5, 5), (6, 6)]
    assert [known.plan.problem.m for known in backend.prepared.values()] == [5, 6]


def test_threads_may_keep_and_forget_at_once(backend: gp.Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    x = backend.asarray(numbers(4, 4))
    gemm(x, x)
    found = next(iter(backend.kept.values()))
    known, errors = dict[Any, Any](), list[Exception]()

    def keep() -> None:
        try:
            for _ in range(3000):
                kept.keep(known, object(), found)
        except (RuntimeError, KeyError, IndexError) as error:  # of a dictionary that another thread changed
            errors.append(error)

    monkeypatch.setattr(kept, "MOST", 4)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=keep) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert not errors
    assert len(known) <= 4 + len(threads)


@pytest.mark.parametrize("short", [False, True])
def test_what_was_chosen_for_want_of_memory_is_not_kept(
    backend: gp.Backend, bound: list[Any], monkeypatch: pytest.MonkeyPatch, short: bool
) -> None:
    """There may be more of it at the next call."""
    choose, less = product.bind_or_choose, backend.device.max_allocation - 1

    def chosen(plan: Any, *given: Any, **options: Any) -> Any:
        bound = choose(plan, *given, **options)
        if short:
            bound.plan = replace(bound.plan, device=replace(plan.device, max_allocation=less))
        return bound

    monkeypatch.setattr(product, "bind_or_choose", chosen)
    x = backend.asarray(np.ones((8, 8), np.float32))
    gemm(x, x)
    assert [len(backend.kept), len(backend.prepared)] == ([0, 0] if short else [1, 1])


class TestWorkspace:
    """Scratch memory is the queue's: all products on it share it."""

    @pytest.fixture
    def kernel(self, backend: gp.Backend) -> str:
        """One that has scratch memory on this device."""
        for name in ("packed", "simt", "reduce"):
            with suppress(gp.GemmportError):
                if gp.plan(gp.GemmProblem.create(64, 64, 4096), backend.device, kernel=name).scratch:
                    return name
        pytest.skip(beyond(backend.device, "no kernel has scratch memory there"))

    def of(self, backend: gp.Backend, k: int, kernel: str) -> None:
        """A product that needs the more scratch memory the larger k is."""
        a, b = numbers(64, k), numbers(k, 64)
        x, y = backend.asarray(a), backend.asarray(b)
        for _ in range(2):
            np.testing.assert_array_equal(gp.gemm(x, y, kernel=kernel).get(), a @ b)

    def test_is_shared_by_products(self, fresh_backend: gp.Backend, kernel: str) -> None:
        self.of(fresh_backend, 4096, kernel)
        blocks = fresh_backend.workspace().blocks
        assert blocks
        self.of(fresh_backend, 2048, kernel)
        assert fresh_backend.workspace().blocks is blocks

    def test_grows_and_is_given_back(self, fresh_backend: gp.Backend, kernel: str) -> None:
        self.of(fresh_backend, 2048, kernel)
        before = fresh_backend.workspace().blocks
        sizes = [block.nbytes for block in before]
        fresh_backend.workspace().take(fresh_backend, [2 * size for size in sizes])
        grown = fresh_backend.workspace().blocks
        assert [block.nbytes for block in grown] == [2 * size for size in sizes]
        assert all(block.released for block in before)
        self.of(fresh_backend, 2048, kernel)
        fresh_backend.release_workspaces()
        assert fresh_backend.workspace().blocks == ()
        assert all(block.released for block in grown)
        self.of(fresh_backend, 2048, kernel)
        assert fresh_backend.workspace().blocks

    def test_is_given_back_for_what_does_not_fit_beside_it(
        self, fresh_backend: gp.Backend, kernel: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.of(fresh_backend, 2048, kernel)
        blocks, allocate = fresh_backend.workspace().blocks, type(fresh_backend)._allocate

        def short(backend: gp.Backend, nbytes: int) -> Any:
            if not all(block.released for block in blocks):
                raise DeviceMemoryError("no room")
            return allocate(backend, nbytes)

        monkeypatch.setattr(type(fresh_backend), "_allocate", short)
        assert fresh_backend.allocate(64).nbytes == 64
        assert fresh_backend.workspace().blocks == ()

    def test_a_product_without_room_for_it_takes_another_kernel(
        self, fresh_backend: gp.Backend, kernel: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        a, b = numbers(64, 4096), numbers(4096, 64)
        x, y, out = fresh_backend.asarray(a), fresh_backend.asarray(b), fresh_backend.zeros((64, 64), np.float32)
        gp.gemm(x, y, out=out)
        (known,) = fresh_backend.prepared.values()
        if not known.plan.scratch:
            pytest.skip(beyond(fresh_backend.device, "this product needs no scratch memory there"))
        fresh_backend.release_workspaces()

        def refused(*_: Any) -> Any:
            raise DeviceMemoryError("no room")

        monkeypatch.setattr(type(fresh_backend), "_allocate", refused)
        for forget in (False, True):
            if forget:
                fresh_backend.prepared.clear()
            with pytest.raises(DeviceMemoryError):
                gp.gemm(x, y, out=out, deterministic=True)
            caplog.clear()
            gp.gemm(x, y, out=out)
            assert "for want of memory" in caplog.text
            if not forget:
                assert list(fresh_backend.prepared.values()) == [known]  # there may be room at the next call
        np.testing.assert_array_equal(out.get(), a @ b)
        assert not fresh_backend.prepared

    def test_each_queue_has_its_own(self, fresh_backend: gp.Backend, kernel: str) -> None:
        other = fresh_backend.new_queue()
        if other is None:
            pytest.skip(beyond(fresh_backend.device, "one queue alone"))
        a, b = numbers(64, 2048), numbers(2048, 64)
        x, y = fresh_backend.asarray(a), fresh_backend.asarray(b)
        results = [gp.gemm(x, y, kernel=kernel, queue=queue) for queue in (fresh_backend.queue, other)]
        for result in results:
            np.testing.assert_array_equal(result.get(), a @ b)
        own, others = (fresh_backend.workspace(fresh_backend.as_queue(each)).blocks for each in (None, other))
        assert own
        assert {id(block) for block in own}.isdisjoint(id(block) for block in others)

    def test_threads_on_one_queue_take_turns(self, fresh_backend: gp.Backend, kernel: str) -> None:
        given = [(numbers(64, 1024 + 64 * n), numbers(1024 + 64 * n, 64)) for n in range(4)]
        wrong: list[int] = []

        def work(number: int) -> None:
            a, b = given[number]
            x, y = fresh_backend.asarray(a), fresh_backend.asarray(b)
            results = [gp.gemm(x, y, kernel=kernel) for _ in range(25)]
            wrong.extend(number for result in results if not np.array_equal(result.get(), a @ b))

        before = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)
        try:
            threads = [threading.Thread(target=work, args=(number,)) for number in range(len(given))]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        finally:
            sys.setswitchinterval(before)
        assert not wrong
