"""Products of types of 8 bits: every number decoded exactly, on every runtime, and the types of what comes out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

import gemmport as gp
from gemmport.core import dlpack
from gemmport.core.dtypes import FLOAT8S
from gemmport.execution.copies import dense_copy

NAMES = tuple(dtype.name for dtype in FLOAT8S)
E4M3FN, E5M2 = (dtype.numpy for dtype in FLOAT8S)
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)

Array = npt.NDArray[Any]


def numbers(shape: tuple[int, ...], dtype: np.dtype[Any], seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def product(a: Array, b: Array) -> npt.NDArray[np.float64]:
    return a.astype(np.float64) @ b.astype(np.float64)


def every(name: str) -> Array:
    """All numbers of a type, by their bits."""
    return np.arange(256, dtype=np.uint8).view(gp.GemmProblem.create(0, 0, 0, dtype=name).dtype.numpy)


@pytest.mark.every_runtime
@pytest.mark.parametrize("name", NAMES)
def test_every_pattern_is_read_as_ml_dtypes_reads_it(backend: gp.Backend, name: str) -> None:
    """As an element of A, and of B; one of both shapes is a vector, and one is not."""
    x = every(name)
    ones = {1: np.ones((1, 1), x.dtype), 8: np.eye(8, dtype=x.dtype)}
    wanted = x.astype(np.float32)
    assert np.isnan(wanted).sum() == {"float8_e4m3fn": 2, "float8_e5m2": 6}[name]
    for got in (
        gp.gemm(x[:, np.newaxis], ones[1], device=backend.device)[:, 0],
        gp.gemm(ones[1], x[np.newaxis, :], device=backend.device)[0],
    ):
        np.testing.assert_array_equal(got, wanted)
    finite = np.where(np.isfinite(wanted), x, np.zeros_like(x)).reshape(32, 8)
    np.testing.assert_array_equal(gp.gemm(finite, ones[8], device=backend.device), finite.astype(np.float32))


@pytest.mark.parametrize("name", NAMES)
def test_every_pattern_is_copied_to_larger_types(best_backend: gp.Backend, name: str) -> None:
    x = best_backend.asarray(every(name))
    for wide in (np.dtype(np.float16), BFLOAT16, np.dtype(np.float32)):
        got = dense_copy(x, wide).get().astype(np.float32)
        wanted = every(name).astype(np.float32)
        np.testing.assert_array_equal(got, wanted, err_msg=str(wide))
        is_nan = np.isnan(wanted)
        np.testing.assert_array_equal(np.signbit(got[~is_nan]), np.signbit(wanted[~is_nan]), err_msg=str(wide))


@pytest.mark.parametrize("name", NAMES)
def test_infinities_and_nan_pass_through_a_product(best_backend: gp.Backend, name: str) -> None:
    dtype = every(name).dtype
    a, b = numbers((20, 30), dtype), numbers((30, 9), dtype, 1)
    a[3, 7], a[5, 2] = np.nan, np.inf  # which E4M3FN stores as a NaN
    b[11, 4] = -np.inf
    with np.errstate(invalid="ignore"):
        wanted = product(a, b)
    got = gp.gemm(a, b, device=best_backend.device)
    for same in (np.isnan, np.isposinf, np.isneginf):
        np.testing.assert_array_equal(same(got), same(wanted))
    assert np.isnan(got).any()
    assert np.isinf(got).any() == (name == "float8_e5m2")


@pytest.mark.parametrize("name", NAMES)
def test_outputs_are_float32_unless_another_is_asked_for(best_backend: gp.Backend, name: str) -> None:
    dtype = every(name).dtype
    a, b = numbers((17, 40), dtype), numbers((40, 11), dtype, 1)
    wanted = product(a, b)
    asked: Mapping[Any, float] = {None: 2**-22, np.float16: 2**-10, BFLOAT16: 2**-7}
    for output, error in asked.items():
        for got in (
            gp.gemm(a, b, dtype=output, device=best_backend.device),
            gp.matmul(a, b, dtype=output, device=best_backend.device),
        ):
            assert got.dtype == np.dtype(output or np.float32)
            np.testing.assert_allclose(got.astype(np.float64), wanted, rtol=error, atol=error * np.abs(wanted).max())


def test_c_has_the_type_of_the_result(best_backend: gp.Backend) -> None:
    a, b = numbers((6, 8), E4M3FN), numbers((8, 5), E4M3FN, 1)
    for kind in (np.float32, np.float16, BFLOAT16):
        got = gp.gemm(a, b, c=np.ones((6, 5), kind), beta=2, device=best_backend.device)
        assert got.dtype == np.dtype(kind)
        np.testing.assert_allclose(got.astype(np.float64), product(a, b) + 2, rtol=2**-7, atol=2**-4)
    with pytest.raises(gp.DtypeError, match="must be one of float32, float16, bfloat16; got float64"):
        gp.gemm(a, b, dtype=np.float64, device=best_backend.device)
    with pytest.raises(gp.DtypeError, match="a type of A and B alone"):
        gp.gemm(a, b, dtype=E4M3FN, device=best_backend.device)


@pytest.mark.parametrize("name", NAMES)
def test_a_result_of_8_bits_is_refused_after_a_call_without_a_type_too(best_backend: gp.Backend, name: str) -> None:
    """On the host and on the device: what is kept of the second call is not taken for a product of another type."""
    a, b = numbers((6, 8), every(name).dtype), numbers((8, 5), every(name).dtype, 1)
    for x, y in ((a, b), (best_backend.asarray(a), best_backend.asarray(b))):
        device = None if isinstance(x, gp.DeviceArray) else best_backend.device
        for _ in range(3):
            assert gp.gemm(x, y, device=device).dtype == np.float32
        for wanted in (a.dtype, name):
            with pytest.raises(gp.DtypeError, match="a type of A and B alone"):
                gp.gemm(x, y, dtype=wanted, device=device)


@pytest.mark.parametrize("multiply", [gp.gemm, gp.matmul])
def test_one_of_each_type_is_a_product_of_a_larger_one(best_backend: gp.Backend, multiply: Any) -> None:
    """Of weights and gradients, say. Halves have all numbers of both, and float32 is what comes out."""
    a, b = numbers((17, 33), E4M3FN), numbers((33, 9), E5M2, 1)
    for x, y in ((a, b), (b.T, a.T)):
        got = multiply(x, y, device=best_backend.device)
        assert got.dtype == np.float32
        np.testing.assert_allclose(got, product(x, y), rtol=1e-5, atol=1e-4)


def test_beside_larger_types_they_are_those(best_backend: gp.Backend) -> None:
    a = numbers((5, 12), E5M2)
    for other, wanted in (
        (np.float16, np.float16),
        (BFLOAT16, BFLOAT16),
        (np.float64, np.float64),
        (np.int8, np.float16),
    ):
        b = np.ones((12, 3), other)
        got = gp.gemm(a, b, device=best_backend.device)
        assert got.dtype == np.dtype(wanted)
        np.testing.assert_allclose(got.astype(np.float64), product(a, b), rtol=2**-7, atol=2**-4)


@pytest.mark.parametrize("name", NAMES)
def test_arrays_on_a_device_keep_the_type_and_any_strides(best_backend: gp.Backend, name: str) -> None:
    host = numbers((12, 20), every(name).dtype)
    x = best_backend.asarray(host)
    assert x.dtype == host.dtype
    for view in (x, x.T, x[::2, 3:], x[::-1]):
        assert view.get().dtype == host.dtype
    np.testing.assert_array_equal(x[::2, ::3].get().view(np.uint8), host[::2, ::3].view(np.uint8))
    assert best_backend.empty((2, 3), name).dtype == host.dtype
    got = gp.matmul(x[:, ::2], x.T[::2])
    assert got.dtype == np.float32
    np.testing.assert_allclose(got.get(), product(host[:, ::2], host.T[::2]), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("name", NAMES)
def test_torch_hands_its_tensors_over(best_backend: gp.Backend, name: str) -> None:
    torch = pytest.importorskip("torch")
    a, b = (torch.randn(shape).to(getattr(torch, name)) for shape in ((9, 16), (16, 4)))
    assert dlpack.as_numpy(a).dtype == every(name).dtype
    np.testing.assert_array_equal(dlpack.as_numpy(a).view(np.uint8), a.view(torch.uint8).numpy())
    got = gp.gemm(a, b, device=best_backend.device)
    assert isinstance(got, torch.Tensor)
    assert got.dtype == torch.float32
    torch.testing.assert_close(got, a.float() @ b.float())
    halves = gp.gemm(a, b, dtype="bfloat16", device=best_backend.device)
    assert halves.dtype == torch.bfloat16
    torch.testing.assert_close(halves.float(), a.float() @ b.float(), rtol=2**-7, atol=2**-4)
