"""NumPy's rules of matmul for arrays of every library, on devices and in the host's memory: values, types, shapes, errors."""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import gemmport as gp
from absences import JAX_ON_CPUS, TORCH, beyond, skip_without
from drawn import arrays, check, outcome, shapes

few = settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])

NUMPYS = ("bool", "int8", "int16", "int32", "int64", "uint8", "float32", "float64", "complex64", "complex128")
"""Types of NumPy's and of all libraries here."""


class Library(ABC):
    """Arrays of one library, made of NumPy's and read again."""

    types: ClassVar[Sequence[str]] = NUMPYS
    writable: ClassVar[bool] = True

    def __init__(self, device: gp.Backend) -> None:
        self.device = device

    @abstractmethod
    def dense(self, host: np.ndarray) -> Any:
        """A row-major array of these numbers."""

    def array(self, host: np.ndarray) -> Any:
        """An array of these numbers, with its dimensions in memory as NumPy's has them."""
        order = sorted(range(host.ndim), key=lambda axis: -abs(host.strides[axis]))
        return self.transposed(self.dense(host.transpose(order).copy()), np.argsort(order).tolist())

    def transposed(self, array: Any, order: Sequence[int]) -> Any:
        return array.transpose(tuple(order)) if order else array

    def numpy(self, array: Any) -> np.ndarray:
        return np.asarray(array.get())

    def multiply(self, *arguments: Any, **options: Any) -> Any:
        """`gemmport.matmul`, and the result as NumPy's; or the error."""
        found = outcome(gp.matmul, *arguments, **options)
        if isinstance(found, Exception):
            return found
        assert type(found) is type(arguments[0]), type(found)
        result = self.numpy(found)
        return result if result.ndim or "out" in options else result[()]


class Own(Library):
    def dense(self, host: np.ndarray) -> Any:
        return self.device.asarray(host)


class PyOpenCL(Library):
    types = tuple(name for name in NUMPYS if name != "bool")

    def dense(self, host: np.ndarray) -> Any:
        array = importlib.import_module("pyopencl.array")
        made = array.empty(self.device.queue, host.shape, host.dtype.newbyteorder("="))
        if host.size:
            made.set(host.astype(made.dtype))
        return made

    def numpy(self, array: Any) -> np.ndarray:
        return self.device.asarray(array).get()  # PyOpenCL's own get() takes dense arrays alone


class Torch(Library):
    types = (*NUMPYS, "float16")

    def __init__(self, device: gp.Backend) -> None:
        super().__init__(device)
        skip_without(TORCH)
        self.torch = importlib.import_module("torch")

    def dense(self, host: np.ndarray) -> Any:
        return self.torch.from_numpy(host.astype(host.dtype.newbyteorder("="), copy=True))

    def transposed(self, array: Any, order: Sequence[int]) -> Any:
        return array.permute(*order) if order else array

    def numpy(self, array: Any) -> np.ndarray:
        found: np.ndarray = array.numpy()
        return found


class OfJAX(Library):
    types = tuple(name for name in NUMPYS if name not in ("int64", "float64", "complex128"))  # off unless asked for
    writable = False

    def __init__(self, device: gp.Backend) -> None:
        super().__init__(device)
        skip_without(JAX_ON_CPUS)
        self.jax = importlib.import_module("jax")

    def dense(self, host: np.ndarray) -> Any:
        return self.jax.numpy.asarray(host.astype(host.dtype.newbyteorder("=")))

    def numpy(self, array: Any) -> np.ndarray:
        return np.asarray(array)


LIBRARIES: dict[str, Callable[[gp.Backend], Library]] = {
    "gemmport": Own, "pyopencl": PyOpenCL, "torch": Torch, "jax": OfJAX,
}  # fmt: skip


@pytest.fixture(params=LIBRARIES)
def library(best_backend: gp.Backend, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Library:
    """A library with arrays that the best device reaches."""
    if request.param == "pyopencl" and best_backend.name != "opencl":
        pytest.skip(beyond(best_backend.device, "PyOpenCL's arrays are not on it"))
    monkeypatch.setenv("GEMMPORT_BACKEND", best_backend.name)  # for arrays on the host
    monkeypatch.setenv("GEMMPORT_DEVICE", best_backend.device.selector)
    return LIBRARIES[request.param](best_backend)


@few
@given(data=st.data())
def test_any_shapes_strides_and_types(library: Library, data: st.DataObject) -> None:
    a_shape, b_shape = data.draw(shapes())
    a_type, b_type = (data.draw(st.sampled_from(library.types)) for _ in range(2))
    a, b = data.draw(arrays(a_shape, a_type)), data.draw(arrays(b_shape, b_type))
    wanted = outcome(np.matmul, a, b)
    if not isinstance(wanted, Exception) and wanted.dtype.name not in library.types:
        return
    check(library.multiply(library.array(a), library.array(b)), wanted)


@few
@given(data=st.data())
def test_any_out(library: Library, data: st.DataObject) -> None:
    """Of other types and shapes, and with gaps between its matrices."""
    a_shape, b_shape = data.draw(shapes())
    dtype, out_dtype = (
        data.draw(st.sampled_from([name for name in library.types if name != "bool"])) for _ in range(2)
    )
    a, b = data.draw(arrays(a_shape, dtype)), data.draw(arrays(b_shape, dtype))
    plain = outcome(np.matmul, a, b)
    shape = (2, 2) if isinstance(plain, Exception) else np.shape(plain)
    change = data.draw(st.sampled_from(["", "", "repeat", "drop", "one", "other"]))
    shape = {"repeat": (2, *shape), "drop": shape[1:], "one": (1, *shape[1:]), "other": (*shape[:-1], 3)}.get(
        change, shape
    )
    if len(shape) < (a.ndim > 1) + (b.ndim > 1):  # see TestOut.test_has_the_dimensions_of_the_matrices
        return
    casting = data.draw(st.sampled_from(["same_kind", "same_kind", "safe"]))
    filled = data.draw(arrays(shape, out_dtype)).astype(out_dtype)  # in the byte order of devices
    out = library.array(filled)
    wanted = outcome(np.matmul, a, b, out=filled, casting=casting)
    if not library.writable:
        with pytest.raises(gp.ArrayError, match="never changes"):
            gp.matmul(library.array(a), library.array(b), out=out)
        return
    check(library.multiply(library.array(a), library.array(b), out=out, casting=casting), wanted)
    np.testing.assert_array_equal(library.numpy(out), filled)


def test_an_out_that_overlaps_an_operand(library: Library) -> None:
    """The values of before the call count."""
    if not library.writable:
        pytest.skip(beyond("JAX", "its arrays never change"))
    host = np.arange(-8, 8, dtype=np.float32).reshape(4, 4)
    wanted = host @ host.T
    x = library.dense(host)
    assert gp.matmul(x, library.transposed(x, (1, 0)), out=x) is x
    np.testing.assert_array_equal(library.numpy(x), wanted)


@pytest.mark.parametrize(
    "axes", [[(0, 1), (0, 1), (1, 0)], [(-1, 0), (0, 2), (2, 1)], [(0, 1), (0, 1)], [(0, 3), (0, 1), (0, 1)]]
)
def test_any_axes(library: Library, axes: Any) -> None:
    a, b = (np.arange(-12, 12, dtype=np.float32).reshape(shape) for shape in ((3, 4, 2), (4, 3, 2)))
    wanted = outcome(np.matmul, a, b, axes=axes)
    check(library.multiply(library.dense(a), library.dense(b), axes=axes), wanted)


@pytest.mark.parametrize("rules", [{"dtype": "float32"}, {"dtype": "int32"}, {"dtype": "int32", "casting": "unsafe"}])
def test_a_type_to_compute_in(library: Library, rules: dict[str, Any]) -> None:
    """Operands are converted to it first: 1.75 is 1."""
    a = np.array([[1.75, -2.5], [3.25, 4]], np.float32)
    check(library.multiply(library.dense(a), library.dense(a), **rules), outcome(np.matmul, a, a, **rules))


@pytest.mark.parametrize("order", ["C", "F", "A", "K"])
def test_the_order_in_memory(library: Library, order: str) -> None:
    """Column-major where it is asked for, or both operands are; JAX does not tell."""
    a = np.arange(12, dtype=np.float32).reshape(3, 4)
    for columns in (False, True):
        x, y = (library.array(np.asfortranarray(host) if columns else host) for host in (a, a.T.copy()))
        product = gp.matmul(x, y, order=order)
        np.testing.assert_array_equal(library.numpy(product), a @ a.T)
        if hasattr(product, "strides"):
            steps = product.strides
        elif hasattr(product, "stride"):
            steps = product.stride()
        else:
            continue
        assert (steps[0] < steps[1]) == (order == "F" or (order == "A" and columns))


def test_bfloat16_stays_what_it_is(library: Library) -> None:
    """NumPy alone would give float32."""
    ml_dtypes = pytest.importorskip("ml_dtypes")
    host = np.array([[1.5, 2], [0.25, -3]], np.float32)
    if isinstance(library, Torch):
        x: Any = library.dense(host).to(library.torch.bfloat16)
        product = gp.matmul(x, x)
        assert product.dtype == library.torch.bfloat16
        np.testing.assert_array_equal(product.float().numpy(), host @ host)
    elif isinstance(library, PyOpenCL):
        pytest.skip(beyond("PyOpenCL", "it has no bfloat16"))
    else:
        x = library.dense(host.astype(ml_dtypes.bfloat16))
        product = library.multiply(x, x)
        assert product.dtype == ml_dtypes.bfloat16
        np.testing.assert_array_equal(product.astype(np.float32), host @ host)


def test_numbers_of_the_other_byte_order_on_a_device_are_refused(best_backend: gp.Backend) -> None:
    """No device reads them; on the host they are converted."""
    if best_backend.name != "opencl":
        pytest.skip(beyond(best_backend.device, "PyOpenCL's arrays are not on it"))
    x = PyOpenCL(best_backend).dense(np.ones((2, 2), np.int16))
    x.dtype = x.dtype.newbyteorder()
    with pytest.raises(gp.DtypeError, match="byte order"):
        gp.matmul(x, x)


def test_one_operand_in_the_hosts_memory(library: Library) -> None:
    a = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(library.numpy(gp.matmul(library.dense(a), a.T)), a @ a.T)
    np.testing.assert_array_equal(library.numpy(gp.matmul(a, library.transposed(library.dense(a), (1, 0)))), a @ a.T)
