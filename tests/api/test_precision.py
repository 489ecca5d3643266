"""Precision is the caller's word: the argument, then the context, then the user's configuration, then the type."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import gemmport as gp
from gemmport.execution import repeated

A = np.random.default_rng(1).standard_normal((19, 33)).astype(np.float32)
B = np.random.default_rng(2).standard_normal((33, 21)).astype(np.float32)


def rounded(x: np.ndarray, precision: str) -> np.ndarray:
    if precision == "full":
        return x.astype(np.float64)
    if precision == "tf32":
        return (
            ((x.view(np.uint32).astype(np.uint64) + 0x1000) & 0xFFFFE000)
            .astype(np.uint32)
            .view(np.float32)
            .astype(float)
        )
    return x.astype({"float16": np.float16, "bfloat16": ml_dtypes.bfloat16}[precision]).astype(np.float64)


def told(c: Any, a: np.ndarray = A, b: np.ndarray = B) -> str:
    """To which precision the operands of a product were rounded: the one whose product it is."""
    c = c.get() if hasattr(c, "get") else np.asarray(c)
    matches = [
        name for name in ("full", "tf32", "bfloat16") if np.abs(c - rounded(a, name) @ rounded(b, name)).max() < 2e-5
    ]
    (found,) = matches
    return found


CALLS: dict[str, Callable[..., Any]] = {"matmul": gp.matmul, "gemm": gp.gemm}
each_call = pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)


@pytest.fixture(params=["NumPy's arrays", "device arrays"])
def operands(request: pytest.FixtureRequest, best_backend: gp.Backend) -> tuple[Any, Any]:
    return (A, B) if request.param == "NumPy's arrays" else (best_backend.asarray(A), best_backend.asarray(B))


@each_call
def test_the_word_of_the_call_counts_each_time(call: Callable[..., Any], operands: tuple[Any, Any]) -> None:
    for _ in range(2):  # the second time what was kept of the first is found
        assert told(call(*operands)) == "full"
        for name in ("tf32", "bfloat16", "full", "TF32"):
            assert told(call(*operands, precision=name)) == name.lower()


@each_call
def test_a_context_counts_where_the_call_says_nothing(call: Callable[..., Any], operands: tuple[Any, Any]) -> None:
    with gp.precision("bfloat16"):
        for _ in range(2):
            assert told(call(*operands)) == "bfloat16"
        assert told(call(*operands, precision="full")) == "full"
        with gp.precision("tf32"):
            assert told(call(*operands)) == "tf32"
        assert told(call(*operands)) == "bfloat16"
    assert told(call(*operands)) == "full"


def test_a_context_ends_with_an_error_too() -> None:
    with pytest.raises(gp.ShapeError), gp.precision("tf32"):
        gp.matmul(A, A)
    assert told(gp.matmul(A, B)) == "full"


def test_a_context_may_be_entered_again_and_decorates_functions() -> None:
    halves = gp.precision("bfloat16")
    with halves, gp.precision("full"), halves:
        assert told(gp.matmul(A, B)) == "bfloat16"
    with halves:
        assert told(gp.matmul(A, B)) == "bfloat16"
    assert told(halves(gp.matmul)(A, B)) == "bfloat16"
    assert told(gp.matmul(A, B)) == "full"


def test_a_context_is_of_its_thread_and_of_its_task() -> None:
    found: dict[str, str] = {}

    def in_a_thread() -> None:
        found["thread"] = told(gp.matmul(A, B))

    async def first(entered: asyncio.Event, done: asyncio.Event) -> None:
        with gp.precision("tf32"):
            entered.set()
            await done.wait()
            found["first"] = told(gp.matmul(A, B))

    async def second(entered: asyncio.Event, done: asyncio.Event) -> None:
        await entered.wait()
        found["second"] = told(gp.matmul(A, B))
        done.set()

    async def both() -> None:
        entered, done = asyncio.Event(), asyncio.Event()
        await asyncio.gather(first(entered, done), second(entered, done))

    with gp.precision("bfloat16"):
        thread = threading.Thread(target=in_a_thread)
        thread.start()
        thread.join()
        asyncio.run(both())
    assert found == {"thread": "full", "first": "tf32", "second": "bfloat16"}


def test_operators_and_contractions_of_device_arrays_are_in_the_context(best_backend: gp.Backend) -> None:
    a, b = best_backend.asarray(A), best_backend.asarray(B)
    with gp.precision("tf32"):
        assert told(a @ b) == told(np.matmul(a, b)) == told(np.einsum("ij,jk->ik", a, b)) == "tf32"
        assert told(np.tensordot(a, b, 1)) == "tf32"
        total = np.einsum("ij->i", a).get()
    assert np.abs(total - A.astype(np.float64).sum(axis=1)).max() < 1e-5, "only products are rounded; this is a sum"


def test_products_of_other_types_do_not_mind_a_context(best_backend: gp.Backend) -> None:
    whole = np.arange(12, dtype=np.int32).reshape(3, 4)
    wide = np.random.default_rng(3).standard_normal((4, 4))
    with gp.precision("bfloat16"):
        assert np.array_equal(gp.matmul(whole, whole.T), whole @ whole.T)
        assert np.allclose(gp.gemm(wide, wide, device=_with_float64()), wide @ wide, rtol=1e-13)
    for operand in (whole, wide, whole > 3):
        for call in CALLS.values():
            with pytest.raises(gp.DtypeError, match=f"precision 'bfloat16' must have .* got {operand.dtype}"):
                call(operand, operand.T, precision="bfloat16", device=_with_float64())


def _with_float64() -> gp.DeviceInfo:
    return next(device for device in gp.devices() if "float64" in device.computes)


def test_a_product_that_is_kept_does_not_hide_a_refusal() -> None:
    whole = np.arange(12, dtype=np.int32).reshape(3, 4)
    with gp.precision("tf32"):
        gp.matmul(whole, whole.T)
        gp.matmul(whole, whole.T)
    with pytest.raises(gp.DtypeError):
        gp.matmul(whole, whole.T, precision="tf32")


@each_call
def test_what_no_device_multiplies_has_no_precision(call: Callable[..., Any]) -> None:
    objects = np.array([[1, 2], [3, 4]], dtype=object)
    with pytest.raises(gp.DtypeError):
        call(objects, objects, precision="tf32")


@each_call
def test_unknown_words_are_refused_with_those_that_there_are(call: Callable[..., Any]) -> None:
    for word in ("fp16", "", 16, ["tf32"], np.zeros(2)):
        with pytest.raises(gp.UnknownNameError, match="full, tf32, float16, bfloat16"):
            call(A, B, precision=word)
    with pytest.raises(gp.UnknownNameError, match="full, tf32, float16, bfloat16"):
        gp.precision("half")


def test_parts_of_complex_numbers_are_rounded() -> None:
    rng = np.random.default_rng(4)
    a, b = (rng.standard_normal((17, 2 * 17)).astype(np.float32).view(np.complex64) for _ in range(2))
    parts = [[rounded(x.view(np.float32), "bfloat16").view(np.complex128) for x in (a, b)] for _ in range(1)]
    ((left, right),) = parts
    assert np.abs(gp.matmul(a, b, precision="bfloat16") - left @ right).max() < 2e-5
    assert np.abs(gp.matmul(a, b) - left @ right).max() > 1e-3


def test_c_is_not_rounded_and_may_be_the_result() -> None:
    c = np.random.default_rng(5).standard_normal((19, 21)).astype(np.float32)
    d = gp.gemm(A, B, c=c, beta=1.0, precision="bfloat16")
    assert np.abs(d - (rounded(A, "bfloat16") @ rounded(B, "bfloat16") + c)).max() < 2e-5
    out = c.copy()
    assert gp.gemm(A, B, c=out, beta=1.0, out=out, precision="bfloat16") is out
    assert np.array_equal(out, d)


def test_operands_keep_their_numbers(best_backend: gp.Backend) -> None:
    a, b = A.copy(), best_backend.asarray(B)
    gp.matmul(best_backend.asarray(a), b, precision="bfloat16")
    gp.matmul(a, B, precision="bfloat16")
    assert np.array_equal(a, A)
    assert np.array_equal(b.get(), B)


@pytest.fixture
def configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """A file of the user's own that says a precision, and perhaps more."""

    def write(text: str, name: str = "mine.yaml") -> Path:
        path = tmp_path / name
        path.write_text(f"schema: 1\n{text}\n", encoding="utf-8")
        path.chmod(0o600)
        monkeypatch.setenv("GEMMPORT_CONFIG_PATH", str(tmp_path))
        return path

    return write


@each_call
def test_a_users_configuration_is_the_default(
    call: Callable[..., Any], configured: Callable[..., Path], operands: tuple[Any, Any]
) -> None:
    assert told(call(*operands)) == "full"
    configured("precision: tf32")
    for _ in range(2):
        assert told(call(*operands)) == "tf32"
    assert told(call(*operands, precision="full")) == "full"
    with gp.precision("bfloat16"):
        assert told(call(*operands)) == "bfloat16"
    whole = np.arange(12, dtype=np.int32).reshape(3, 4)
    assert np.array_equal(call(whole, whole.T), whole @ whole.T)


def test_a_file_of_the_call_goes_before_the_users(configured: Callable[..., Path], tmp_path: Path) -> None:
    configured("precision: tf32")
    other = tmp_path / "elsewhere"
    other.mkdir()
    file = other / "call.yaml"
    file.write_text("schema: 1\nprecision: bfloat16\n", encoding="utf-8")
    assert told(gp.matmul(A, B, config=file)) == "bfloat16"
    assert told(gp.matmul(A, B, config=file, precision="full")) == "full"


def test_an_entry_may_be_for_a_precision_alone(configured: Callable[..., Path]) -> None:
    configured("entries: [{name: mine, match: {precision: tf32}, kernels: {naive: {}}}]")
    device = gp.devices()[0]
    plans = {
        name: gp.plan(gp.GemmProblem.create(64, 64, 64, precision=name), device) for name in ("full", "tf32", "float16")
    }
    assert plans["tf32"].entry.endswith("mine.yaml: mine")
    assert all("mine" not in plans[name].entry for name in ("full", "float16"))


def test_a_default_that_is_none_is_told_with_file_and_names(configured: Callable[..., Path]) -> None:
    path = configured("precision: tf23")
    with pytest.raises(gp.ConfigError, match=rf"{path}: precision must be one of full, .*tf23.*did you mean tf32"):
        gp.matmul(A, B)


def test_a_plan_that_was_prepared_is_that_of_the_call(best_backend: gp.Backend) -> None:
    problem = gp.GemmProblem.create(19, 21, 33, precision="tf32")
    with gp.precision("bfloat16"):  # the problem says all of itself
        plans = gp.prepare(problem, best_backend.device)
        plain = gp.prepare(gp.GemmProblem.create(19, 21, 33), best_backend.device)
    assert {plan.problem.precision for plan in plans} == {"tf32"}
    assert {plan.problem.precision for plan in plain} == {"full"}


def test_the_key_of_a_call_without_a_word_did_not_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    keys: list[Any] = []

    def again(a: Any, b: Any, c: Any, out: Any, choices: Any, *rest: Any) -> tuple[None, np.ndarray]:
        keys.append(choices)
        return None, np.zeros(1)

    monkeypatch.setattr(repeated, "again", again)
    gp.matmul(A, B)
    gp.gemm(A, B)
    assert keys[0] == ("matmul", "auto")
    assert keys[1][-1] == "auto"


def test_several_devices_round_as_one_does() -> None:
    device = gp.devices()[0]
    with gp.precision("tf32"):
        assert told(gp.matmul(A, B, devices=[device])) == "tf32"
    assert told(gp.gemm(A, B, devices=[device], precision="bfloat16")) == "bfloat16"
    assert told(gp.matmul(A, B, devices=[device])) == "full"


def test_a_product_that_passes_in_tiles_is_rounded_as_a_whole_one_is(tmp_path: Path) -> None:
    """In every tile, and also where a sum is continued."""
    with gp.precision("bfloat16"):
        assert told(gp.matmul(A, B, host_memory="1MB")) == "bfloat16"
    assert told(gp.gemm(A, B, host_memory="1MB", precision="tf32")) == "tf32"
    assert told(gp.matmul(A, B, host_memory="1MB")) == "full"
    assert told(gp.matmul(A, B, checkpoint=tmp_path / "kept", precision="tf32")) == "tf32"
