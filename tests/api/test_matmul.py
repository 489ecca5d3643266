"""`matmul` beside `numpy.matmul`: the same values, types, shapes and errors, for any operands; and how it gets there."""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import gemmport as gp
from absences import beyond
from drawn import arrays, check, outcome, shapes
from gemmport.backends.array import DeviceArray
from gemmport.core.dtypes import DTYPES

MODULE = sys.modules["gemmport.api.matmul"]  # the package's attribute of that name is the function

few = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
many = settings(few, max_examples=2 * settings().max_examples)

ON_DEVICES = [name for name in DTYPES if name != "bfloat16"]
ALL_TYPES = [*ON_DEVICES, "longdouble", "clongdouble", "object"]


@pytest.fixture(scope="module")
def matmul(best_backend: gp.Backend) -> Callable[..., Any]:
    """`gemmport.matmul` on the best device."""
    if "float64" not in best_backend.device.computes:
        pytest.skip(beyond(best_backend.device, "it does not compute in float64, to which NumPy's rules promote"))

    def call(*arguments: Any, **options: Any) -> Any:
        return gp.matmul(*arguments, device=best_backend.device, **options)

    return call


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, Any]]:
    """The operands that reach what `gemm` is, too."""
    seen: list[tuple[Any, Any]] = []
    computed = MODULE.computed

    def watched(a: Any, b: Any, *rest: Any, **options: Any) -> Any:
        seen.append((a, b))
        return computed(a, b, *rest, **options)

    monkeypatch.setattr(MODULE, "computed", watched)
    monkeypatch.setattr(MODULE.repeated, "_known", {})  # what was computed before does not reach it
    return seen


class TestIsNumpys:
    @many
    @given(data=st.data())
    def test_for_any_shapes_strides_and_types(self, matmul: Callable[..., Any], data: st.DataObject) -> None:
        a_shape, b_shape = data.draw(shapes())
        one_type = data.draw(st.booleans())
        a_dtype = data.draw(st.sampled_from(ALL_TYPES))
        b_dtype = a_dtype if one_type else data.draw(st.sampled_from(ALL_TYPES))
        a, b = data.draw(arrays(a_shape, a_dtype)), data.draw(arrays(b_shape, b_dtype))
        check(outcome(matmul, a, b), outcome(np.matmul, a, b))

    @many
    @given(data=st.data())
    def test_for_any_out(self, matmul: Callable[..., Any], data: st.DataObject) -> None:
        a_shape, b_shape = data.draw(shapes())
        dtype, out_dtype = (data.draw(st.sampled_from(ON_DEVICES)) for _ in range(2))
        a, b = data.draw(arrays(a_shape, dtype)), data.draw(arrays(b_shape, dtype))
        plain = outcome(np.matmul, a, b)
        shape = (2, 2) if isinstance(plain, Exception) else np.shape(plain)
        change = data.draw(st.sampled_from(["", "", "", "repeat", "drop", "one", "other"]))
        shape = {
            "repeat": (2, *shape), "drop": shape[1:], "one": (1, *shape[1:]), "other": (*shape[:-1], 3),
        }.get(change, shape)  # fmt: skip
        out = data.draw(arrays(shape, out_dtype))
        out = out if out.flags.writeable else out.copy()
        casting = data.draw(st.sampled_from(["same_kind", "same_kind", "safe", "no"]))
        filled = out.copy()
        numpys = outcome(np.matmul, a, b, out=filled, casting=casting)
        ours = outcome(matmul, a, b, out=out, casting=casting)
        assert isinstance(ours, Exception) or ours is out
        if out.ndim >= (a.ndim > 1) + (b.ndim > 1):  # see TestOut.test_has_the_dimensions_of_the_matrices
            check(ours, numpys)

    @many
    @given(data=st.data())
    def test_for_any_axes(self, matmul: Callable[..., Any], data: st.DataObject) -> None:
        a_shape, b_shape = data.draw(shapes())
        a, b = data.draw(arrays(a_shape, "float32")), data.draw(arrays(b_shape, "float32"))
        plain = outcome(np.matmul, a, b)

        def entry(ndim: int, count: int) -> Any:
            if not data.draw(st.integers(0, 9)):
                count = data.draw(st.integers(0, 2))
            axes = [data.draw(st.integers(-ndim - 1, ndim)) if ndim else 0 for _ in range(count)]
            if data.draw(st.integers(0, 3)) and len({axis % max(ndim, 1) for axis in axes}) < count:
                axes = list(range(-count, 0))
            return axes[0] if count == 1 and data.draw(st.booleans()) else tuple(axes)

        core = (a.ndim > 1) + (b.ndim > 1)
        axes = [entry(a.ndim, min(a.ndim, 2)), entry(b.ndim, min(b.ndim, 2)), entry(np.ndim(plain), core)]
        check(outcome(matmul, a, b, axes=axes), outcome(np.matmul, a, b, axes=axes))

    @pytest.mark.parametrize("axes", [(), 1, [], [0], [(0, 1)] * 3, [(0.0, 1), (0, 1), (0, 1)], [None, (0, 1), (0, 1)]])
    def test_for_axes_that_are_none(self, matmul: Callable[..., Any], axes: Any) -> None:
        a = np.ones((3, 3), np.float32)
        check(outcome(matmul, a, a, axes=axes), outcome(np.matmul, a, a, axes=axes))

    @pytest.mark.filterwarnings("ignore")  # both warn where a cast drops imaginary parts
    @few
    @given(data=st.data())
    def test_for_any_dtype_and_casting(self, matmul: Callable[..., Any], data: st.DataObject) -> None:
        a_type, b_type, dtype = (data.draw(st.sampled_from(ALL_TYPES)) for _ in range(3))
        a, b = data.draw(arrays((2, 3), a_type)), data.draw(arrays((3, 2), b_type))
        rules = {"dtype": dtype, "casting": data.draw(st.sampled_from(["no", "equiv", "safe", "same_kind", "unsafe"]))}
        check(outcome(matmul, a, b, **rules), outcome(np.matmul, a, b, **rules))

    @pytest.mark.parametrize(
        "rules", [{"casting": "any"}, {"order": "Z"}, {"dtype": "no_such"}, {"dtype": "U3"}], ids=str
    )
    def test_for_rules_that_are_none(self, matmul: Callable[..., Any], rules: dict[str, Any]) -> None:
        a = np.ones((3, 3), np.float32)
        check(outcome(matmul, a, a, **rules), outcome(np.matmul, a, a, **rules))

    def test_for_lists(self, matmul: Callable[..., Any]) -> None:
        for a, b in (
            ([[1.0, 2.0]], [[3.0], [4.0]]),
            ([1, 2], [3.0, 4.0]),
            ([2**70, 1], [1, 2]),
            ((True, False), [[1], [0]]),
        ):
            check(matmul(a, b), np.matmul(a, b))

    @pytest.mark.parametrize("other", [3, "x", ["a", "b"], np.zeros(2, "M8[s]"), np.zeros(2, "i4, i4")])
    def test_for_operands_that_are_no_matrices(self, matmul: Callable[..., Any], other: Any) -> None:
        a = np.ones((2, 2))
        check(outcome(matmul, a, other), outcome(np.matmul, a, other))
        check(outcome(matmul, other, a), outcome(np.matmul, other, a))

    @pytest.mark.parametrize(
        ("other", "told"), [(None, "is None: it must"), ([[1], [1, 2]], "must be an array, or a list")]
    )
    def test_for_what_is_no_array_in_our_words(self, matmul: Callable[..., Any], other: Any, told: str) -> None:
        a = np.ones((2, 2))
        for name, operands in (("b", (a, other)), ("a", (other, a))):
            error = outcome(matmul, *operands)
            assert isinstance(error, ValueError), error
            assert isinstance(outcome(np.matmul, *operands), ValueError)
            assert str(error).startswith(f"{name} {told}")

    @many
    @given(data=st.data())
    def test_for_an_out_that_overlaps_the_operands(self, matmul: Callable[..., Any], data: st.DataObject) -> None:
        base = np.random.default_rng(5).integers(-3, 4, 24).astype(np.float32)
        again = base.copy()

        def window() -> Callable[[np.ndarray], np.ndarray]:
            start, turned, back = data.draw(st.integers(0, 24 - 9)), data.draw(st.booleans()), data.draw(st.booleans())
            turn = {True: lambda x: x.T, False: lambda x: x}[turned]
            return lambda x: turn(x[start : start + 9].reshape(3, 3)[:: -1 if back else 1])

        a, b, out = window(), window(), window()
        result = matmul(a(base), b(base), out=out(base))
        np.matmul(a(again), b(again), out=out(again))
        np.testing.assert_array_equal(base, again)
        np.testing.assert_array_equal(result, out(base))

    @pytest.mark.parametrize("order", ["C", "F", "A", "K"])
    @pytest.mark.parametrize("columns", ["", "a", "b", "ab"])
    def test_for_the_order_in_memory(self, matmul: Callable[..., Any], order: Any, columns: str) -> None:
        a, b = np.ones((2, 3, 4), np.float32), np.ones((4, 5), np.float32)
        a, b = (np.asfortranarray(x) if name in columns else x for name, x in (("a", a), ("b", b)))
        ours, numpys = matmul(a, b, order=order), np.matmul(a, b, order=order)
        assert ours.flags.f_contiguous == numpys.flags.f_contiguous
        assert ours.swapaxes(1, 2).flags.c_contiguous == numpys.swapaxes(1, 2).flags.c_contiguous


class TestOut:
    @pytest.mark.parametrize("wrapped", [lambda out: out, lambda out: (out,)], ids=["array", "tuple"])
    def test_is_returned(self, matmul: Callable[..., Any], wrapped: Callable[[Any], Any]) -> None:
        a, out = np.eye(2, dtype=np.float32), np.zeros((2, 2), np.float32)
        assert matmul(a, a, wrapped(out)) is out
        assert matmul(a, a, out=wrapped(out)) is out
        assert matmul(a, a, out=(None,)).tolist() == out.tolist() == a.tolist()

    @pytest.mark.parametrize("out", [(), (None, None), [], "x", 3], ids=str)
    def test_is_one_array(self, matmul: Callable[..., Any], out: Any) -> None:
        a = np.eye(2, dtype=np.float32)
        check(outcome(matmul, a, a, out=out), outcome(np.matmul, a, a, out=out))

    def test_has_the_dimensions_of_the_matrices(self, matmul: Callable[..., Any]) -> None:
        """NumPy takes the matrices for vectors where `out` is smaller and the sizes happen to allow it."""
        for a_shape, b_shape, shape in (((1, 2), (1, 2), ()), ((1, 1), (1, 1), (1,)), ((1,), (1, 1), ())):
            a, b, out = (np.ones(each, np.float32) for each in (a_shape, b_shape, shape))
            assert np.matmul(a, b, out=out) is out
            with pytest.raises(gp.ShapeError, match=r"out has shape .*: it needs the dimensions of the product"):
                matmul(a, b, out=out)

    def test_is_refused_before_any_work_where_it_is_read_only(self) -> None:
        a, out = np.eye(2, dtype=np.float32), np.zeros((2, 2), np.float32)
        out.flags.writeable = False
        with pytest.raises(gp.ArrayError, match="output array is read-only"):
            gp.matmul(a, a, out=out, device="no-such-chip")

    @pytest.mark.parametrize(
        ("a", "options", "error", "told"),
        [
            (np.eye(2), {"out": np.zeros((2, 2), np.int32)}, gp.DtypeError, "Cannot cast ufunc 'matmul' output"),
            (np.eye(2), {"out": np.zeros((2, 3))}, gp.ShapeError, "matmul: Output operand 0 has a mismatch"),
            (np.ones((3, 2, 2)), {"out": np.zeros((1, 2, 2))}, gp.ShapeError, "non-broadcastable output operand"),
            (
                np.ones((2, 3)),
                {},
                gp.ShapeError,
                r"matmul: Input operand 1 has a mismatch in its core dimension 0, .* \(size",
            ),
            (np.eye(2), {"axes": [(0, 2), (0, 1), (0, 1)]}, gp.ShapeError, "axis 2 is out of bounds"),
            (np.array([["x"]]), {}, gp.DtypeError, "did not contain a loop"),
        ],
    )
    def test_and_all_else_is_refused_before_any_work(self, a: Any, options: Any, error: Any, told: str) -> None:
        with pytest.raises(error, match=told):
            gp.matmul(a, a, **options, device="no-such-chip")


class _Sub(np.ndarray):
    pass


class _Higher(_Sub):
    __array_priority__ = 5.0


class _Own:
    """Multiplies itself."""

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        return ufunc, method, len(inputs), options


class _No:
    __array_ufunc__ = None


class TestClasses:
    @pytest.mark.parametrize("kind_b", [np.ndarray, _Sub, _Higher, np.ma.MaskedArray, np.matrix])
    @pytest.mark.parametrize("kind_a", [np.ndarray, _Sub, _Higher, np.ma.MaskedArray, np.matrix])
    @pytest.mark.parametrize("subok", [True, False])
    def test_of_the_result_is_numpys(self, matmul: Callable[..., Any], kind_a: Any, kind_b: Any, subok: bool) -> None:
        a, b = (np.arange(4, dtype=np.float32).reshape(2, 2).view(kind) for kind in (kind_a, kind_b))
        check(matmul(a, b, subok=subok), np.matmul(a, b, subok=subok))
        check(matmul(a[0], b[0].T, subok=subok), np.matmul(a[0], b[0].T, subok=subok))

    def test_of_out_is_kept(self, matmul: Callable[..., Any]) -> None:
        a = np.eye(2, dtype=np.float32)
        for out in (np.zeros((2, 2), np.float32).view(_Sub), np.ma.zeros((2, 2), np.float32)):
            assert matmul(a.view(_Higher), a, out=out) is out
            np.testing.assert_array_equal(out, a)

    def test_that_multiply_themselves_do(self, matmul: Callable[..., Any]) -> None:
        a = np.eye(2, dtype=np.float32)
        assert matmul(a, _Own()) == (np.matmul, "__call__", 2, {})
        assert matmul(_Own(), a, out=a, dtype=np.float32) == (
            np.matmul,
            "__call__",
            2,
            {"out": (a,), "dtype": np.float32},
        )
        with pytest.raises(TypeError, match="does not support ufuncs"):
            matmul(a, _No())

    def test_in_memory_that_numpy_does_not_read_are_left_to_a_backend(self, monkeypatch: pytest.MonkeyPatch) -> None:
        class Foreign:
            shape, dtype, __cuda_array_interface__ = (2, 2), np.dtype(np.float32), ()

            def __array__(self) -> None:
                raise AssertionError("this memory is not the host's")

        def reached(on_device: Any) -> None:
            raise LookupError([given.value for given in on_device])

        monkeypatch.setattr(MODULE, "backend_of_operands", reached)
        foreign = Foreign()
        with pytest.raises(LookupError) as told:
            gp.matmul(foreign, foreign)
        assert told.value.args == ([foreign, foreign],)


class TestTypes:
    @pytest.mark.parametrize("dtype", ["object", "longdouble", "clongdouble"])
    def test_that_no_device_computes_are_computed_by_numpy_and_said_once(
        self, matmul: Callable[..., Any], caplog: pytest.LogCaptureFixture, dtype: str
    ) -> None:
        MODULE._warn_of_the_host.cache_clear()
        a = np.arange(4).reshape(2, 2).astype(dtype)
        with caplog.at_level(logging.WARNING, "gemmport"):
            for _ in range(2):
                check(matmul(a, a), np.matmul(a, a))
        (told,) = caplog.messages
        assert np.dtype(dtype).name in told
        assert "on the host" in told

    @pytest.mark.parametrize("dtype", ON_DEVICES)
    def test_that_devices_compute_are_computed_there(
        self, matmul: Callable[..., Any], calls: list[Any], caplog: pytest.LogCaptureFixture, dtype: str
    ) -> None:
        MODULE._warn_of_the_host.cache_clear()
        a = np.arange(4).reshape(2, 2).astype(dtype)
        with caplog.at_level(logging.WARNING, "gemmport"):
            check(matmul(a, a), np.matmul(a, a))
        assert len(calls) == 1
        assert not caplog.messages

    def test_bfloat16_stays_what_it_is(self, matmul: Callable[..., Any], calls: list[Any]) -> None:
        """NumPy, which knows nothing of it, gives float32."""
        bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
        a = np.arange(4).reshape(2, 2).astype(bfloat16)
        check(matmul(a, a), np.matmul(a, a).astype(bfloat16))
        assert [x.dtype for pair in calls for x in pair] == [bfloat16, bfloat16]

    def test_that_the_result_can_hold_are_not_converted_first(
        self, matmul: Callable[..., Any], calls: list[Any]
    ) -> None:
        a = np.arange(4, dtype=np.float32).reshape(2, 2)
        check(matmul(a, a, dtype=np.float64), np.matmul(a, a, dtype=np.float64))
        ((left, right),) = calls
        assert left.dtype == right.dtype == np.float32

    def test_that_the_result_cannot_hold_are_converted_first(
        self, matmul: Callable[..., Any], calls: list[Any]
    ) -> None:
        a = np.arange(4, dtype=np.float64).reshape(2, 2) + 2.0**-40
        check(matmul(a, a, dtype=np.float32), np.matmul(a, a, dtype=np.float32))
        ((left, right),) = calls
        assert left.dtype == right.dtype == np.float32


class TestOneCallOfGemm:
    """Each stack of matrices reaches gemm in one call, as a view of the operand wherever strides can say it."""

    @pytest.mark.parametrize(
        ("a", "b", "left", "right"),
        [
            ((6, 7), (7, 5), (6, 7), (7, 5)),
            ((7,), (7, 5), (1, 7), (7, 5)),
            ((6, 7), (7,), (6, 7), (7, 1)),
            ((7,), (7,), (1, 7), (7, 1)),
            ((4, 6, 7), (4, 7, 5), (4, 6, 7), (4, 7, 5)),
            ((2, 4, 6, 7), (2, 4, 7, 5), (8, 6, 7), (8, 7, 5)),
            ((4, 6, 7), (7, 5), (24, 7), (7, 5)),
            ((2, 4, 6, 7), (1, 7, 5), (48, 7), (7, 5)),
            ((2, 4, 6, 7), (7,), (48, 7), (7, 1)),
            ((6, 7), (4, 7, 5), (6, 7), (4, 7, 5)),
            ((1, 6, 7), (2, 4, 7, 5), (6, 7), (8, 7, 5)),
            ((7,), (2, 4, 7, 5), (1, 7), (8, 7, 5)),
            ((1, 1, 6, 7), (1, 7, 5), (6, 7), (7, 5)),
        ],
    )
    def test_without_a_copy(
        self, matmul: Callable[..., Any], calls: list[Any], a: Any, b: Any, left: Any, right: Any
    ) -> None:
        x, y = np.ones(a, np.float32), np.ones(b, np.float32)
        matmul(x, y)
        ((to_a, to_b),) = calls
        assert (to_a.shape, to_b.shape) == (left, right)
        assert np.shares_memory(to_a, x)
        assert np.shares_memory(to_b, y)

    def test_of_a_repeated_matrix_as_that_matrix(self, matmul: Callable[..., Any], calls: list[Any]) -> None:
        b = np.arange(35, dtype=np.float32).reshape(7, 5)
        matmul(np.ones((3, 2, 6, 7), np.float32), np.broadcast_to(b, (3, 2, 7, 5)))
        assert calls[0][1].shape == (7, 5)

    def test_of_no_matrices_as_none(self, matmul: Callable[..., Any], calls: list[Any]) -> None:
        nothing = np.lib.stride_tricks.as_strided(np.zeros(0, np.float32), (0, 7, 5), (0, 20, 4))
        assert matmul(np.ones((6, 7), np.float32), nothing).shape == (0, 6, 5)
        assert calls[0][1].size == 0

    @pytest.mark.parametrize("change", [lambda x: x[..., :6, :], lambda x: x.swapaxes(1, 2)], ids=["rows", "columns"])
    def test_of_rows_that_are_not_evenly_spaced_as_a_batch(
        self, matmul: Callable[..., Any], calls: list[Any], change: Callable[[Any], Any]
    ) -> None:
        a = change(np.ones((4, 7, 7), np.float32))
        matmul(a, np.ones((7, 5), np.float32))
        ((to_a, to_b),) = calls
        assert (to_a.shape, to_a.strides, to_b.shape) == (a.shape, a.strides, (7, 5))

    def test_expands_only_what_is_repeated_between(self, matmul: Callable[..., Any], calls: list[Any]) -> None:
        a, b = np.ones((3, 1, 6, 7), np.float32), np.ones((1, 4, 7, 5), np.float32)
        assert matmul(a, b).shape == (3, 4, 6, 5)
        ((to_a, to_b),) = calls
        assert (to_a.shape, to_b.shape) == ((12, 6, 7), (12, 7, 5))


class TestDeviceArrays:
    @pytest.fixture
    def stays(self, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
        """Nothing comes back from the device until this is called."""
        get = DeviceArray.get

        def refuse(self: DeviceArray) -> None:
            raise AssertionError("a device array was copied to the host")

        monkeypatch.setattr(DeviceArray, "get", refuse)
        return lambda: monkeypatch.setattr(DeviceArray, "get", get)

    @pytest.mark.parametrize(
        ("a_shape", "b_shape"),
        [
            ((5, 7), (7, 3)), ((7,), (7, 3)), ((5, 7), (7,)), ((7,), (7,)),
            ((4, 5, 7), (4, 7, 3)), ((4, 5, 7), (7, 3)), ((5, 7), (4, 7, 3)), ((1, 5, 7), (4, 7, 3)), ((4, 5, 7), (1, 7, 3)),
            ((2, 4, 5, 7), (2, 4, 7, 3)), ((2, 4, 5, 7), (7, 3)), ((2, 4, 5, 7), (7,)), ((7,), (2, 4, 7, 3)),
            ((0, 7), (7, 3)), ((5, 0), (0, 3)), ((0,), (0,)), ((0, 5, 7), (7, 3)), ((5, 7), (2, 0, 7, 3)),
        ],
        ids=str,
    )  # fmt: skip
    def test_multiply_where_they_are(
        self, backend: gp.Backend, stays: Callable[[], None], a_shape: tuple[int, ...], b_shape: tuple[int, ...]
    ) -> None:
        rng = np.random.default_rng(3)
        a, b = (rng.integers(-3, 4, shape).astype(np.float32) for shape in (a_shape, b_shape))
        wanted = np.matmul(a, b)
        on_device = backend.asarray(a), backend.asarray(b)
        product = gp.matmul(*on_device)
        out = backend.asarray(np.full(wanted.shape, np.nan, np.float32))
        assert gp.matmul(*on_device, out=out) is out
        stays()
        assert product.shape == wanted.shape
        for result in (product, out):
            np.testing.assert_array_equal(result.get(), wanted)

    def test_are_views_where_they_can_be(self, backend: gp.Backend, stays: Callable[[], None]) -> None:
        a = np.random.default_rng(4).integers(-3, 4, (4, 6, 8)).astype(np.float32)
        x = backend.asarray(a)
        products = [gp.matmul(x[1:, ::2, :5], x[0, :5]), gp.matmul(x, x, axes=[(2, 1), (1, 2), (0, 2)])]
        stays()
        np.testing.assert_array_equal(products[0].get(), np.matmul(a[1:, ::2, :5], a[0, :5]))
        np.testing.assert_array_equal(products[1].get(), np.matmul(a, a, axes=[(2, 1), (1, 2), (0, 2)]))

    def test_are_copied_and_said_to_be_where_they_are_repeated_between(
        self, backend: gp.Backend, caplog: pytest.LogCaptureFixture
    ) -> None:
        a, b = np.full((3, 1, 5, 7), 2, np.float32), np.full((1, 4, 7, 3), 3, np.float32)
        with caplog.at_level(logging.INFO, "gemmport.api.matmul"):
            product = gp.matmul(backend.asarray(a), backend.asarray(b))
        np.testing.assert_array_equal(product.get(), np.matmul(a, b))
        assert "uneven steps: it is copied" in caplog.text

    def test_write_to_an_out_of_any_even_spacing(self, backend: gp.Backend) -> None:
        a = np.arange(2 * 5 * 7, dtype=np.float32).reshape(2, 5, 7)
        x = backend.asarray(a)
        for b, shape, key in (
            (a[0].T, (2, 9, 5), (slice(None), slice(2, 7))),  # a gap between the matrices: no tall product
            (a[0].T, (2, 5, 8), (slice(None), slice(None), slice(1, 6))),
            (a[0, 0], (2, 9), (slice(None), slice(2, 7))),
        ):
            whole = backend.asarray(np.full(shape, 9, np.float32))
            gp.matmul(x, backend.asarray(b), out=whole[key])
            wanted = np.full(shape, 9, np.float32)
            wanted[key] = np.matmul(a, b)
            np.testing.assert_array_equal(whole.get(), wanted)

    def test_multiply_by_what_is_on_the_host(self, backend: gp.Backend) -> None:
        a = np.arange(35, dtype=np.float32).reshape(5, 7)
        np.testing.assert_array_equal(gp.matmul(backend.asarray(a), a[0]).get(), a @ a[0])

    def test_are_refused_as_numpy_refuses_arrays(self, backend: gp.Backend) -> None:
        a = np.zeros((5, 7), np.float32)
        x = backend.asarray(a)
        for other, out in ((a, None), (a[0, :5], None), (np.zeros((), np.float32), None), (a.T, a), (a.T, a[:5, :4])):
            outs = ({}, {}) if out is None else ({"out": backend.asarray(out)}, {"out": out})
            check(outcome(gp.matmul, x, backend.asarray(other), **outs[0]), outcome(np.matmul, a, other, **outs[1]))

    def test_write_to_any_other_out_by_a_copy(self, backend: gp.Backend, caplog: pytest.LogCaptureFixture) -> None:
        """One that repeats the product, and one whose matrices are not evenly spaced."""
        a = np.arange(2 * 3 * 5 * 7, dtype=np.float32).reshape(2, 3, 5, 7) % 9
        repeated, gaps = np.zeros((3, 5, 5), np.float32), np.zeros((2, 9, 5, 5), np.float32)
        for x, out, key in ((a[0, 0], repeated, ...), (a, gaps, (slice(None), slice(3)))):
            on_device = backend.asarray(out)
            with caplog.at_level(logging.INFO, "gemmport.api.matmul"):
                gp.matmul(backend.asarray(x), backend.asarray(a[0, 0].T), out=on_device[key])
            np.matmul(x, a[0, 0].T, out=out[key])
            np.testing.assert_array_equal(on_device.get(), out)
        assert caplog.text.count("is written by a copy") == 2


def test_conversions_on_the_host_say_nothing_and_raise_nothing(best_backend: gp.Backend) -> None:
    """Too large is infinite, as in the product itself, whatever `numpy.seterr` says."""
    device, large = best_backend.device, np.full((3, 3), 1e200)
    with warnings.catch_warnings(), np.errstate(all="raise"):
        warnings.simplefilter("error")
        for product in (gp.matmul, gp.gemm):
            for out in (np.zeros((3, 3), np.float32), np.zeros((6, 6), np.float32)[::2, ::2]):
                assert np.isposinf(product(large, large, out=out, device=device)).all()
        assert np.isposinf(gp.matmul(large, large, dtype="float32", device=device)).all()
        ones = np.ones((3, 3), np.float32)
        assert np.isposinf(gp.gemm(ones, ones, beta=1.0, c=large, dtype="float32", device=device)).all()
        array = best_backend.zeros((3, 3), np.float32)
        array.set(large)
        assert np.isposinf(array.get()).all()
        assert np.isposinf(gp.run(gp.plan(gp.GemmProblem.create(3, 3, 3), device), large, ones)).all()


def test_types_without_a_common_one_are_multiplied_as_numpy_does(best_backend: gp.Backend) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    a, b = np.full((2, 3), 1.5, ml_dtypes.float8_e4m3fn), np.full((3, 2), 2, np.int32)
    wanted, product = np.matmul(a, b), gp.matmul(a, b, device=best_backend.device)
    assert product.dtype == wanted.dtype
    np.testing.assert_array_equal(product, wanted)
