"""Computations of JAX's with work of ours within them, of arrays in the host's memory. What gemmport does so on GPUs,
tests/execution/test_interchange.py has.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import time
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import gemmport as gp
from absences import JAX_ON_CPUS, needs
from exact import integers
from gemmport.api.within import Again, keep_within
from gemmport.execution import adapters, jax_calls, repeated

if JAX_ON_CPUS.is_here():
    import jax
    import jax.numpy as jnp

pytestmark = needs(JAX_ON_CPUS)


@pytest.fixture(autouse=True)
def on_the_host() -> Iterator[None]:
    """Also where JAX has a GPU."""
    with jax.default_device(jax.devices("cpu")[0]):
        yield


@dataclass(frozen=True)
class Times:
    """Work: a product, times a number."""

    factor: int = 1

    def __call__(self, *operands: np.ndarray, out: np.ndarray) -> None:
        a, b = operands
        np.copyto(out, self.factor * (a @ b))


@dataclass(frozen=True)
class Fails:
    """Work that does not come to an end."""

    def __call__(self, *_: Any, out: np.ndarray) -> None:
        raise ValueError(f"nothing is written to {out.shape}")


def pair(m: int, k: int, n: int) -> tuple[Any, Any]:
    return jnp.asarray(integers((m, k), np.float32)), jnp.asarray(integers((k, n), np.float32))


def of(work: jax_calls.Work, a: Any, b: Any, dtype: Any = np.float32) -> Any:
    return jax_calls.computation(jax, work, (a, b), (a.shape[0], b.shape[1]), np.dtype(dtype))


def test_work_is_done_within_a_computation() -> None:
    """Each does its own, whatever else was compiled before, and equal ones have one number."""
    a, b = pair(5, 7, 3)
    computations = {factor: of(Times(factor), a, b) for factor in (1, 3)}
    for factor, compute in computations.items():
        for x, y in ((a, b), (a + 1, b - 1)):
            found = compute(x, y)
            assert isinstance(found, jax.Array)
            np.testing.assert_array_equal(found, factor * (np.asarray(x) @ np.asarray(y)))
    before = len(jax_calls._sites)
    of(Times(3), a, b)
    assert len(jax_calls._sites) == before


def test_arrays_with_numbers_are_computed_at_once_where_a_function_is_traced() -> None:
    a, b = pair(2, 3, 4)
    computed = []

    @jax.jit
    def traced(x: Any) -> Any:
        computed.append(of(Times(5), a, b)(a, b))
        return x + computed[0]

    found = traced(1.0)
    assert not isinstance(computed[0], jax.core.Tracer)
    np.testing.assert_array_equal(found, 1 + 5 * (np.asarray(a) @ np.asarray(b)))


def test_nothing_is_converted() -> None:
    """Arrays of 64 bits that were made while JAX had them are not taken for ones of 32: JAX 0.10 takes them as they are."""
    _, b = pair(2, 3, 4)
    jax.config.update("jax_enable_x64", True)
    try:
        wide = jnp.asarray(np.array([[1 / 3, 1e300, 2], [0, 1, 2]]))
        assert of(Times(), wide, b, np.float64) is not None
    finally:
        jax.config.update("jax_enable_x64", False)
    compute = of(Times(), wide, b, np.float64)
    if compute is not None:
        found = compute(wide, b)
        assert found.dtype == np.float64
        np.testing.assert_array_equal(np.asarray(found), np.asarray(wide) @ np.asarray(b))


def test_what_is_elsewhere_is_not_computed_so() -> None:
    a, b = pair(2, 3, 4)
    elsewhere = jax.device_put(a, a.sharding.with_memory_kind("pinned_host"))
    assert of(Times(), elsewhere, b) is None
    np.testing.assert_array_equal(of(Times(2), a, b)(a, b), 2 * (np.asarray(a) @ np.asarray(b)))


@pytest.fixture
def as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """JAX computes products of arrays in the host's memory by itself, as of those on a GPU."""
    monkeypatch.setattr(repeated, "_known_of_libraries", {})
    monkeypatch.setattr(type(adapters.library_of(jnp.ones(1))), "computes", lambda *_: True)


@pytest.mark.parametrize("word", [None, "float16"])
def test_a_product_that_jax_computes_is_the_callers(
    best_backend: gp.Backend, as_on_a_gpu: None, word: str | None
) -> None:
    """Arrays that lie as those before did are computed within JAX, with the options and in the precision of who asked first."""
    rng = np.random.default_rng(3)
    a, b, c = (jnp.asarray(rng.random(shape, np.float32)) for shape in ((5, 7), (7, 3), (5, 3)))
    seen: list[Any] = []

    def product(x: Any, y: Any, z: Any, *, out: Any, **options: Any) -> None:
        seen.append((x.ctypes.data, out.ctypes.data, options))
        gp.gemm(x, y, c=z, out=out, beta=1, device=best_backend.device)

    with gp.precision(word) if word else nullcontext():
        key, _ = repeated.again(a, b, c, None, "some choices")
        keep_within(key, Again.of(product, word, trans_a="N"), c)
    same, found = repeated.again(a, b, c, None, "some choices")
    assert key == same
    assert seen == [(a.unsafe_buffer_pointer(), found.unsafe_buffer_pointer(), {"trans_a": "N"})]
    wanted = gp.gemm(*map(np.asarray, (a, b)), c=np.asarray(c), beta=1, device=best_backend.device, precision=word)
    np.testing.assert_array_equal(found, wanted)
    for x, y, z in ((b, a, c), (a, b, None), (a, b.astype(np.float16), c)):
        assert repeated.again(x, y, z, None, "some choices")[1] is None


def test_what_jax_refuses_is_left_to_who_asked(as_on_a_gpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = pair(2, 3, 4)
    key, _ = repeated.again(a, b, None, None, "some choices")
    repeated.keep_within(key, Times(), (2, 4), np.dtype(np.float32))
    wanted = np.asarray(a) @ np.asarray(b)
    for _ in range(2):
        with jax.disable_jit():
            assert repeated.again(a, b, None, None, "some choices")[1] is None
        np.testing.assert_array_equal(repeated.again(a, b, None, None, "some choices")[1], wanted)
    elsewhere = jax.device_put(a, a.sharding.with_memory_kind("pinned_host"))
    key, _ = repeated.again(elsewhere, b, None, None, "some choices")
    repeated.keep_within(key, Times(), (2, 4), np.dtype(np.float32))
    assert repeated.again(elsewhere, b, None, None, "some choices")[1] is None
    repeated._known_of_libraries.clear()
    asked = []
    monkeypatch.setattr(jax_calls, "computation", lambda *_: asked.append(True))
    for _ in range(3):
        assert repeated.again(elsewhere, b, None, None, "some choices")[1] is None
        repeated.keep_within(key, Times(), (2, 4), np.dtype(np.float32))  # as after a product from outside
    assert len(asked) == 1


def test_what_the_work_refuses_is_no_refusal_of_jaxs(as_on_a_gpu: None) -> None:
    a, b = pair(2, 3, 4)
    key, _ = repeated.again(a, b, None, None, "some choices")
    repeated.keep_within(key, Fails(), (2, 4), np.dtype(np.float32))
    for _ in range(2):
        with pytest.raises(ValueError, match="nothing is written"):
            repeated.again(a, b, None, None, "some choices")


def test_products_in_the_hosts_memory_are_not_left_to_jax(best_backend: gp.Backend) -> None:
    a, b = pair(5, 6, 7)
    before = len(jax_calls._sites)
    for product in (gp.matmul, gp.gemm):
        for _ in range(3):
            np.testing.assert_array_equal(product(a, b), np.asarray(a) @ np.asarray(b))
    assert len(jax_calls._sites) == before


@pytest.mark.parametrize("product", [gp.matmul, gp.gemm])
def test_arrays_that_were_deleted_are_refused(product: Any) -> None:
    a, b = pair(3, 3, 3)
    gone = a + 1
    gone.delete()
    for x, y in ((gone, b), (a, gone)):
        with pytest.raises(gp.ArrayError, match=r"was deleted, or donated"):
            product(x, y)


def test_computations_run_where_the_operands_are() -> None:
    """Whatever the context says in which they are made: a default device, or a mesh, in which JAX makes none."""
    script = """
import jax, jax.numpy as jnp, numpy as np
from gemmport.execution import jax_calls

class Sum:
    def __call__(self, a, b, *, out): out[...] = a + b

devices, a = jax.devices(), jnp.ones((2, 2), np.float32)
assert len(devices) == 3
with jax.default_device(devices[2]):
    made = jax_calls.computation(jax, Sum(), (a, a), a.shape, a.dtype)
    assert made(a, a).devices() == {devices[0]}
assert made(a, a).devices() == {devices[0]}
b = jax.device_put(a, devices[1])
assert jax_calls.computation(jax, Sum(), (b, b), a.shape, a.dtype)(b, b).devices() == {devices[1]}
if hasattr(jax, "set_mesh"):
    with jax.set_mesh(jax.make_mesh((3,), ("x",))):
        assert jax_calls.stream_of(jax, devices[0]) is None
        try:
            made = jax_calls.computation(jax, Sum(), (a, a), a.shape, a.dtype)
        except ValueError as error:
            assert "incompatible devices" in str(error)
        else:
            assert made(a, a).sharding == a.sharding
print("all there")
"""
    environment = {
        **os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=3",
    }  # fmt: skip
    told = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert told.stdout == "all there\n", told.stderr


def test_what_fails_is_raised_by_the_call() -> None:
    a, b = pair(2, 3, 4)
    with pytest.raises(ValueError, match=r"^nothing is written to \(2, 4\)") as told:
        of(Fails(), a, b)(a, b).block_until_ready()
    assert isinstance(told.value.__cause__, jax.errors.JaxRuntimeError)
    np.testing.assert_array_equal(of(Times(), a, b)(a, b), np.asarray(a) @ np.asarray(b))


def test_operands_are_let_go() -> None:
    a, b = pair(2, 3, 4)
    compute = of(Times(), a, b)
    compute(a, b).block_until_ready()
    gone = [weakref.ref(x) for x in (a, b)]
    del a, b
    gc.collect()
    assert [x() for x in gone] == [None, None]


def test_the_host_has_no_stream() -> None:
    assert jax_calls.stream_of(jax, jax.devices("cpu")[0]) is None


def test_threads_may_be_the_first_together(monkeypatch: pytest.MonkeyPatch) -> None:
    registered: list[str] = []
    monkeypatch.setattr(jax_calls, "_sites", [])
    monkeypatch.setattr(jax_calls, "_numbers", {})
    monkeypatch.setattr(jax_calls, "TARGET", "gemmport_work_of_a_test")
    register = jax.ffi.register_ffi_target

    def slowly(*given: Any, **how: Any) -> None:
        time.sleep(0.05)
        registered.append(how["platform"])
        register(*given, **how)

    monkeypatch.setattr(jax.ffi, "register_ffi_target", slowly)
    a, b = pair(2, 3, 4)
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(lambda factor: of(Times(factor), a, b)(a, b) / factor, range(1, 5)):
            np.testing.assert_allclose(found, np.asarray(a) @ np.asarray(b), rtol=1e-6)
    assert registered == ["cpu", "CUDA"]
