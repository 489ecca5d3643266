"""`gemmport.jax.matmul`: its numbers, shapes and types, inside of jax.jit and outside."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import gemmport as gp
from absences import JAX_ON_CPUS, needs
from exact import integers

if JAX_ON_CPUS.is_here():
    import jax
    import jax.numpy as jnp

    import gemmport.jax as gj
    from gemmport.execution import xla
    from gemmport.jax import handlers

pytestmark = needs(JAX_ON_CPUS)

SHAPES = [
    ((5, 7), (7, 3)),
    ((7,), (7, 3)),
    ((5, 7), (7,)),
    ((7,), (7,)),
    ((4, 5, 7), (7, 3)),
    ((5, 7), (4, 7, 3)),
    ((4, 5, 7), (4, 7, 3)),
    ((2, 1, 5, 7), (3, 7, 3)),
    ((4, 5, 7), (7,)),
    ((0, 7), (7, 3)),
    ((5, 0), (0, 3)),
]

TYPES = (
    "float32", "float64", "float16", "bfloat16", "complex64", "complex128", "bool", "int8", "int16", "int32", "int64", "uint8",
    "uint16", "uint32", "uint64",
)  # fmt: skip

EACH_WAY = pytest.mark.parametrize("way", ["jit", "eager"])


def by(way: str) -> Callable[..., Any]:
    return jax.jit(gj.matmul) if way == "jit" else gj.matmul


@contextmanager
def wide() -> Iterator[None]:
    """JAX with types of 64 bits."""
    jax.config.update("jax_enable_x64", True)
    try:
        yield
    finally:
        jax.config.update("jax_enable_x64", False)


def place(array: Any) -> int:
    """The address of an array of XLA's: NumPy's over the host's memory, or one on a GPU."""
    return array.ctypes.data if isinstance(array, np.ndarray) else array.pointer


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, Any, Any]]:
    """The products that XLA asked for in a test: A, B and where they were written; see `place`."""
    found: list[Any] = []
    multiply = handlers.matmul

    def counted(a: Any, b: Any, *, out: Any, **how: Any) -> None:
        found.append((a, b, out))
        multiply(a, b, out=out, **how)

    monkeypatch.setattr(handlers, "matmul", counted)
    return found


@EACH_WAY
@pytest.mark.sample(a=[(5, 7), (2, 1, 5, 7)])
@pytest.mark.parametrize(("a", "b"), SHAPES, ids=str)
def test_any_shapes(a: tuple[int, ...], b: tuple[int, ...], way: str) -> None:
    x, y = integers(a, np.float32), integers(b, np.float32)
    found = by(way)(jnp.asarray(x), jnp.asarray(y))
    assert isinstance(found, jax.Array)
    assert found.shape == np.matmul(x, y).shape
    np.testing.assert_array_equal(found, np.matmul(x, y))


@pytest.mark.sample(dtype=["float64", "bfloat16", "bool"])
@pytest.mark.parametrize("dtype", TYPES)
def test_any_types(dtype: str) -> None:
    with wide():
        x = jnp.asarray(np.arange(-6, 6).reshape(3, 4) % 5).astype(dtype)
        found = jax.jit(gj.matmul)(x, x.T)
        wanted = gp.matmul(np.asarray(x), np.asarray(x.T))
        assert found.dtype == wanted.dtype == x.dtype
        np.testing.assert_array_equal(np.asarray(found), wanted)


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2"])
def test_products_of_8_bit_floats_are_float32(dtype: str) -> None:
    x = np.arange(-6, 6).reshape(3, 4).astype(jnp.dtype(dtype))
    found = jax.jit(gj.matmul)(x, x.T)
    assert found.dtype == gp.matmul(x, x.T).dtype == np.float32
    np.testing.assert_array_equal(np.asarray(found), x.astype(np.float32) @ x.T.astype(np.float32))


@pytest.mark.sample(left=["int32"])
@pytest.mark.parametrize("x64", [False, True], ids=["32", "64"])
@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("float16", "float32"),
        ("bfloat16", "float32"),
        ("int8", "int32"),
        ("int32", "float32"),
        ("float32", "complex64"),
    ],
)
def test_types_are_promoted_as_by_matmul(left: str, right: str, x64: bool) -> None:
    """To what JAX has of that: without 64 bits, int32 and float32 are float32."""
    x, y = np.arange(6).reshape(2, 3), np.arange(12).reshape(3, 4)
    a, b = x.astype(jnp.dtype(left)), y.astype(jnp.dtype(right))
    wanted = gp.matmul(a, b)
    jax.config.update("jax_enable_x64", x64)
    try:
        found = jax.jit(gj.matmul)(a, b)
        assert found.dtype == jax.dtypes.canonicalize_dtype(wanted.dtype)
    finally:
        jax.config.update("jax_enable_x64", False)
    np.testing.assert_array_equal(np.asarray(found), x @ y)


def test_lists_and_numpys_arrays_go_in() -> None:
    assert gj.matmul([[1.0, 2.0]], np.array([[3.0], [4.0]])).tolist() == [[11.0]]


def test_only_shapes_and_types_are_asked_for_without_a_product(computed: list[Any]) -> None:
    told = jax.eval_shape(gj.matmul, jax.ShapeDtypeStruct((2, 3, 4), jnp.int8), jax.ShapeDtypeStruct((4, 5), jnp.int16))
    assert (told.shape, told.dtype) == ((2, 3, 5), jnp.int16)
    assert not computed


def test_operands_and_result_are_used_where_they_lie(best_backend: gp.Backend, computed: list[Any]) -> None:
    x, y = (jnp.asarray(integers(shape, np.float32)) for shape in ((33, 20), (20, 17)))
    found = jax.jit(gj.matmul)(x, y).block_until_ready()
    ((a, b, out),) = computed
    places = [place(each) for each in (a, b, out)]
    assert places == [each.unsafe_buffer_pointer() for each in (x, y, found)]


def test_a_device_may_be_named(best_backend: gp.Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEMMPORT_DEVICE", "no such device")
    x = jnp.asarray(integers((8, 8), np.float32))
    where = {"backend": best_backend.name, "device": best_backend.device.selector}
    np.testing.assert_array_equal(jax.jit(lambda x: gj.matmul(x, x, **where))(x), np.asarray(x) @ np.asarray(x))


class TestRefusals:
    def test_shapes_that_do_not_fit_are_told_while_a_function_is_traced(self) -> None:
        with pytest.raises(gp.ShapeError):
            jax.jit(gj.matmul)(jnp.ones((2, 3)), jnp.ones((4, 5)))
        with pytest.raises(gp.ShapeError):
            gj.matmul(jnp.ones(()), jnp.ones((4, 5)))

    def test_types_without_a_product_are_told_while_a_function_is_traced(self) -> None:
        x = jnp.ones((2, 2), jnp.float8_e4m3b11fnuz)
        with pytest.raises(gp.DtypeError):
            jax.jit(gj.matmul)(x, x)

    @pytest.mark.parametrize("name", ["backend", "device"])
    def test_a_place_is_text(self, name: str) -> None:
        with pytest.raises(gp.ArrayError, match=f"{name} must be one line of text"):
            gj.matmul(jnp.ones((2, 2)), jnp.ones((2, 2)), **{name: 0})

    def test_what_fails_as_it_is_computed_is_an_error_of_jax_with_the_message(self) -> None:
        """Which is another one where JAX's arrays have a device already."""
        product = jax.jit(lambda x: gj.matmul(x, x, device="no such device"))
        error = "DeviceNotFoundError" if jnp.ones(1).device.platform == "cpu" else "ArrayError"
        for _ in range(2):
            with pytest.raises(jax.errors.JaxRuntimeError, match=rf"{error}: .*no such device"):
                product(jnp.ones((2, 2))).block_until_ready()
        np.testing.assert_array_equal(gj.matmul(jnp.ones((2, 2)), jnp.ones((2, 2))), np.full((2, 2), 2))

    def test_matmul_names_it_to_who_traces_gp_matmul(self) -> None:
        with pytest.raises(gp.ArrayError, match=r"traced.*gemmport\.jax\.matmul"):
            jax.jit(gp.matmul)(jnp.ones((2, 2)), jnp.ones((2, 2)))


def test_on_cuda_the_stream_is_the_one_that_xla_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """No GPU is here: what XLA hands over is made up, and what would be multiplied is looked at."""
    import ctypes  # noqa: PLC0415 - of this test alone

    seen: list[Any] = []

    def told(address: int) -> None:
        given = xla._StreamArguments.from_address(address)
        assert given.context == 77
        given.stream = 4096

    function = xla._Function(told)
    api = xla._Api(stream=ctypes.cast(function, ctypes.c_void_p).value)
    bfloat16, kind = 16, jnp.dtype("bfloat16")
    arrays = [
        ctypes.pointer(xla._Buffer(dtype=bfloat16, data=pointer, rank=2, dims=(ctypes.c_int64 * 2)(*shape)))
        for pointer, shape in ((16, (3, 2)), (None, (3, 4)), (64, (2, 4)))
    ]
    text = handlers.Choices(trans_a=True).written().encode()
    held = ctypes.create_string_buffer(text)
    how = ctypes.pointer(xla._Text(start=ctypes.addressof(held), length=len(text)))
    buffer = ctypes.POINTER(xla._Buffer)
    frame = xla._Frame(
        api=ctypes.pointer(api),
        context=77,
        arguments=xla._Buffers(count=2, values=(buffer * 2)(*arrays[:2])),
        results=xla._Buffers(count=1, values=(buffer * 1)(arrays[2])),
        attributes=xla._Attributes(count=1, values=(ctypes.POINTER(xla._Text) * 1)(how)),
    )
    monkeypatch.setattr(handlers, "matmul", lambda *operands, out, **_: seen.extend((*operands, out)))
    handlers._on_cuda(xla.Call(frame))
    assert [(each.pointer, each.shape, each.strides, each.dtype, each.stream) for each in seen] == [
        (16, (2, 3), (1, 2), kind, 4096),
        (64, (3, 4), (4, 1), kind, 4096),  # what has no memory lies where the result does
        (64, (2, 4), (4, 1), kind, 4096),
    ]
    told_of = seen[0].__cuda_array_interface__
    assert (told_of["data"], np.dtype(told_of["typestr"]), told_of["strides"]) == ((16, False), kind, (2, 4))
