"""Whatever is multiplied, and however it is asked for: the numbers that come back are those that the device's kernels wrote.

NumPy computes the same products, so that a path that gives its result instead of the device's passes every comparison with it.
Here the device's results have a mark that NumPy's cannot have: every launch that writes D is given twice alpha and beta.
Numbers come back doubled (integers modulo their size), truth values false, since 2 "and" 1 is 0.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

import gemmport as gp
from absences import beyond
from gemmport import cli
from gemmport.bench.products import Options, run_benchmark
from gemmport.core.dtypes import DTYPES
from gemmport.core.plan import Buffer, Launch, Scalar
from gemmport.core.problem import GemmProblem
from gemmport.execution import executor, repeated
from gemmport.fuzz.draw import draw
from gemmport.fuzz.specialization import Specialization, Types
from gemmport.planning.lookup import load_configuration
from launched import launch_one_by_one

Array = np.ndarray
Mark = Callable[[], None]

RNG = np.random.default_rng(5)


def marked(product: Array) -> Array:
    """What comes back where kernels have the mark."""
    return np.zeros_like(product) if product.dtype == bool else product + product


def _marked(launch: Launch) -> Launch:
    """The launch with the mark, if it writes D."""
    if Buffer("d") not in launch.arguments:
        return launch
    twice = (replace(x, value=2 * x.value) if isinstance(x, Scalar) else x for x in launch.arguments)
    return replace(launch, arguments=tuple(twice))


@pytest.fixture
def mark(backend: gp.Backend, monkeypatch: pytest.MonkeyPatch) -> Mark:
    """Gives the mark to all that is bound from the call on. A test begins with products that were never computed."""
    prepare = executor.prepare_launch

    def begin() -> None:
        monkeypatch.setattr(repeated, "_known", {})
        monkeypatch.setattr(repeated, "_known_of_libraries", {})
        monkeypatch.setattr(backend, "kept", {})
        monkeypatch.setattr(backend, "prepared", {})

    def set_mark() -> None:
        begin()
        monkeypatch.setattr(executor, "prepare_launch", lambda launch, *rest: prepare(_marked(launch), *rest))

    begin()
    return set_mark


@dataclass(frozen=True)
class Place:
    """Where a path takes its operands, and in which type."""

    backend: gp.Backend
    dtype: Any = np.float32

    def numbers(self, *shape: int) -> Array:
        """1, 2 and 3, or true: no sum of products is zero."""
        return RNG.integers(1, 4, shape).astype(self.dtype)

    def pair(self) -> tuple[Array, Array]:
        """Two matrices that go together, or one beside its transpose."""
        return self.numbers(6, 5), self.numbers(5, 7)

    def on_device(self, *hosts: Array) -> list[Any]:
        return [self.backend.asarray(host) for host in hosts]

    def gemm(self, *operands: Any, **options: Any) -> Array:
        return gp.gemm(*operands, **{"device": self.backend.device, "kernel": "naive", **options})

    def matmul(self, *operands: Any, **options: Any) -> Array:
        return gp.matmul(*operands, **{"device": self.backend.device, "kernel": "naive", **options})


def product(a: Array, b: Array) -> Array:
    """NumPy's product, also of bfloat16, which it does not multiply."""
    wide = np.float64 if a.dtype.kind not in "biuc" else a.dtype
    return np.matmul(a.astype(wide), b.astype(wide)).astype(a.dtype)


Path = Callable[[Place], tuple[Any, Array]]
"""What comes back, on the host or on the device, and what NumPy says."""

PATHS: dict[str, Path] = {}


def path(told: str) -> Callable[[Path], Path]:
    """Enters a path under what a test's name says of it."""

    def entered(function: Path) -> Path:
        PATHS[told] = function
        return function

    return entered


# gemm of host arrays


@path("gemm")
def _(at: Place) -> tuple[Any, Array]:
    a, b = at.pair()
    return at.gemm(a, b), product(a, b)


@path("gemm by the kernel that is chosen")
def _(at: Place) -> tuple[Any, Array]:
    a, b = at.pair()
    return at.gemm(a, b, kernel="auto"), product(a, b)


@path("gemm with params")
def _(at: Place) -> tuple[Any, Array]:
    a, b = at.pair()
    return at.gemm(a, b, params={"TS": 4}), product(a, b)


@path("gemm with alpha, beta and c")
def _(at: Place) -> tuple[Any, Array]:
    (a, b), c = at.pair(), at.numbers(6, 7)
    return at.gemm(a, b, alpha=2, beta=3, c=c), 2 * product(a, b) + 3 * c


@path("gemm without terms")
def _(at: Place) -> tuple[Any, Array]:
    c = at.numbers(6, 7)
    return at.gemm(at.numbers(6, 0), at.numbers(0, 7), beta=3, c=c), 3 * c


@path("gemm with alpha = 0")
def _(at: Place) -> tuple[Any, Array]:
    (a, b), c = at.pair(), at.numbers(6, 7)
    return at.gemm(a, b, alpha=0, beta=3, c=c), 3 * c


@path("gemm transposed")
def _(at: Place) -> tuple[Any, Array]:
    a, b = at.pair()
    return at.gemm(a.T.copy(), b.T.copy(), trans_a="T", trans_b=True), product(a, b)


@path("gemm to out")
def _(at: Place) -> tuple[Any, Array]:
    (a, b), out = at.pair(), np.zeros((6, 7), at.dtype)
    assert at.gemm(a, b, out=out) is out
    return out, product(a, b)


@path("gemm to out that is c")
def _(at: Place) -> tuple[Any, Array]:
    (a, b), c = at.pair(), at.numbers(6, 7)
    expected = product(a, b) + 2 * c
    return at.gemm(a, b, beta=2, c=c, out=c), expected


@path("gemm to out that overlaps a")
def _(at: Place) -> tuple[Any, Array]:
    a, b = at.numbers(6, 6), at.numbers(6, 6)
    expected = product(a, b)
    return at.gemm(a, b, out=a), expected


@path("gemm to out in columns")
def _(at: Place) -> tuple[Any, Array]:
    (a, b), out = at.pair(), np.zeros((7, 6), at.dtype).T
    return at.gemm(a, b, out=out), product(a, b)


@path("gemm to out of every second element")
def _(at: Place) -> tuple[Any, Array]:
    (a, b), out = at.pair(), np.zeros((6, 14), at.dtype)[:, ::2]
    return at.gemm(a, b, out=out), product(a, b)


@path("gemm to out of another type")
def _(at: Place) -> tuple[Any, Array]:
    (a, b), out = at.pair(), np.zeros((6, 7), np.float16)
    return at.gemm(a, b, out=out), product(a, b).astype(np.float16)


@path("gemm to a wider type")
def _(at: Place) -> tuple[Any, Array]:
    a, b = at.pair()
    return at.gemm(a.astype(np.int8), b.astype(np.int8), dtype="int32"), product(a, b).astype(np.int32)


@path("gemm of two types")
def _(at: Place) -> tuple[Any, Array]:
    a, b = at.pair()
    return at.gemm(a.astype(np.int16), b), product(a, b)


@path("gemm of views")
def _(at: Place) -> tuple[Any, Array]:
    a, b = at.numbers(9, 12)[1:7, 2:7], at.numbers(7, 5).T
    return at.gemm(a, b), product(a, b)


@path("gemm of what runs backwards")
def _(at: Place) -> tuple[Any, Array]:
    a, b = at.numbers(6, 5)[::-1, ::-1], at.numbers(5, 14)[:, ::2]
    return at.gemm(a, b), product(a, b)


@path("gemm of unaligned and swapped bytes")
def _(at: Place) -> tuple[Any, Array]:
    a, b = at.pair()
    unaligned = np.zeros(a.nbytes + 1, np.uint8)[1:].view(a.dtype).reshape(a.shape)
    unaligned[...] = a
    return at.gemm(unaligned, b.astype(b.dtype.newbyteorder())), product(a, b)


@path("gemm of a batch")
def _(at: Place) -> tuple[Any, Array]:
    a, b = at.numbers(3, 6, 5), at.numbers(3, 5, 7)
    return at.gemm(a, b), product(a, b)


@path("gemm of a batch and one matrix")
def _(at: Place) -> tuple[Any, Array]:
    a, b = at.numbers(6, 5), at.numbers(3, 5, 7)
    return at.gemm(a, b), product(a, b)


@path("gemm of lists")
def _(at: Place) -> tuple[Any, Array]:
    a, b = at.numbers(2, 6, 5), at.numbers(2, 5, 7)
    return at.gemm(list(a), list(b)), product(a, b)


@path("gemm of a row and of a column")
def _(at: Place) -> tuple[Any, Array]:
    a, b = at.numbers(1, 9), at.numbers(9, 1)
    return at.gemm(a, b), product(a, b)


@path("a plan that is run")
def _(at: Place) -> tuple[Any, Array]:
    (a, b), c = at.pair(), at.numbers(6, 7)
    problem = GemmProblem.create(6, 7, 5, dtype=at.dtype, beta=2)
    return gp.run(gp.plan(problem, at.backend.device, kernel="naive"), a, b, c), product(a, b) + 2 * c


# matmul of host arrays


@path("matmul")
def _(at: Place) -> tuple[Any, Array]:
    a, b = at.pair()
    return at.matmul(a, b), product(a, b)


@path("matmul after gemm")
def _(at: Place) -> tuple[Any, Array]:
    a, b = at.pair()
    at.gemm(b.T, a.T)
    at.gemm(a, b, dtype=np.dtype(at.dtype))  # under the key of the next
    return at.matmul(a, b), product(a, b)


@path("matmul of a vector and a matrix")
def _(at: Place) -> tuple[Any, Array]:
    a, b = at.numbers(5), at.numbers(5, 7)
    return at.matmul(a, b), product(a, b)


@path("matmul of a matrix and a vector")
def _(at: Place) -> tuple[Any, Array]:
    a, b = at.numbers(6, 5), at.numbers(5)
    return at.matmul(a, b), product(a, b)


@path("matmul of two vectors")
def _(at: Place) -> tuple[Any, Array]:
    a, b = at.numbers(5), at.numbers(5)
    return at.matmul(a, b), product(a, b)


@path("matmul of a stack and one matrix")
def _(at: Place) -> tuple[Any, Array]:
    a, b = at.numbers(2, 3, 6, 5), at.numbers(5, 7)
    return at.matmul(a, b), product(a, b)


@path("matmul of stacks that broadcast")
def _(at: Place) -> tuple[Any, Array]:
    a, b = at.numbers(2, 1, 6, 5), at.numbers(3, 5, 7)
    return at.matmul(a, b), product(a, b)


@path("matmul of a stack and vectors")
def _(at: Place) -> tuple[Any, Array]:
    a, b = at.numbers(3, 6, 5), at.numbers(5)
    return at.matmul(a, b), product(a, b)


@path("matmul to out")
def _(at: Place) -> tuple[Any, Array]:
    (a, b), out = at.pair(), np.zeros((6, 7), at.dtype)
    assert at.matmul(a, b, out=(out,)) is out
    return out, product(a, b)


@path("matmul to out that overlaps both")
def _(at: Place) -> tuple[Any, Array]:
    a = at.numbers(6, 6)
    expected = product(a, a.T)
    return at.matmul(a, a.T, out=a), expected


@path("matmul to out of a stack")
def _(at: Place) -> tuple[Any, Array]:
    a, b, out = at.numbers(3, 6, 5), at.numbers(5, 7), np.zeros((3, 6, 7), np.float16)
    return at.matmul(a, b, out=out), product(a, b).astype(np.float16)


@path("matmul in another type")
def _(at: Place) -> tuple[Any, Array]:
    a, b = at.pair()
    return at.matmul(a.astype(np.int16), b.astype(np.int16), dtype=at.dtype), product(a, b)


@path("matmul in columns")
def _(at: Place) -> tuple[Any, Array]:
    a, b = at.pair()
    return at.matmul(a, b, order="F"), product(a, b)


@path("matmul along axes")
def _(at: Place) -> tuple[Any, Array]:
    a, b = at.numbers(5, 6, 3), at.numbers(3, 5, 7)
    wanted = product(np.moveaxis(a, 2, 0).swapaxes(1, 2), b)
    return at.matmul(a, b, axes=[(1, 0), (1, 2), (2, 1)]), wanted.swapaxes(1, 2)


@path("matmul of a subclass")
def _(at: Place) -> tuple[Any, Array]:
    class Mine(np.ndarray):
        """An array of another class."""

    a, b = at.pair()
    result = at.matmul(a.view(Mine), b)
    assert type(result) is Mine
    return result.view(np.ndarray), product(a, b)


# Arrays on a device


@path("gemm on the device")
def _(at: Place) -> tuple[Any, Array]:
    a, b = at.pair()
    return at.gemm(*at.on_device(a, b), device=None), product(a, b)


@path("gemm on the device, transposed, with c")
def _(at: Place) -> tuple[Any, Array]:
    a, b, c = at.numbers(5, 6), at.numbers(7, 5), at.numbers(6, 7)
    x, y, z = at.on_device(a, b, c)
    return at.gemm(x.T, y, trans_b="T", alpha=2, beta=3, c=z, device=None), 2 * product(a.T, b.T) + 3 * c


@path("gemm on the device to out")
def _(at: Place) -> tuple[Any, Array]:
    a, b = at.pair()
    x, y, out = at.on_device(a, b, np.zeros((6, 7), at.dtype))
    assert at.gemm(x, y, out=out, device=None) is out
    return out, product(a, b)


@path("gemm on the device to out that is c")
def _(at: Place) -> tuple[Any, Array]:
    (a, b), c = at.pair(), at.numbers(6, 7)
    x, y, z = at.on_device(a, b, c)
    return at.gemm(x, y, beta=2, c=z, out=z, device=None), product(a, b) + 2 * c


@path("gemm on the device to out of every second element")
def _(at: Place) -> tuple[Any, Array]:
    a, b = at.pair()
    x, y, whole = at.on_device(a, b, np.zeros((6, 14), at.dtype))
    return at.gemm(x, y, out=whole[:, ::2], device=None), product(a, b)


@path("gemm on the device of what must be copied")
def _(at: Place) -> tuple[Any, Array]:
    a, b = at.numbers(6, 10), at.numbers(5, 7)
    x, y = at.on_device(a, b)
    return at.gemm(x[:, ::2], y, device=None), product(a[:, ::2], b)


@path("gemm on the device of a batch")
def _(at: Place) -> tuple[Any, Array]:
    a, b = at.numbers(3, 6, 5), at.numbers(5, 7)
    return at.gemm(*at.on_device(a, b), device=None), product(a, b)


@path("gemm on the device of lists")
def _(at: Place) -> tuple[Any, Array]:
    a, b = at.numbers(2, 6, 5), at.numbers(2, 5, 7)
    return at.gemm(at.on_device(*a), at.on_device(*b), device=None), product(a, b)


@path("gemm of a host array beside one on the device")
def _(at: Place) -> tuple[Any, Array]:
    a, b = at.pair()
    return at.gemm(a, *at.on_device(b), device=None), product(a, b)


@path("gemm of PyOpenCL's arrays")
def _(at: Place) -> tuple[Any, Array]:
    if at.backend.name != "opencl":
        pytest.skip(beyond(at.backend.device, "PyOpenCL does not reach it"))
    import pyopencl.array  # noqa: PLC0415 - only where the backend is there

    a, b = at.pair()
    x, y = (pyopencl.array.to_device(at.backend.queue, host) for host in (a, b))
    return at.gemm(x, y, device=None), product(a, b)


@path("matmul on the device")
def _(at: Place) -> tuple[Any, Array]:
    a, b = at.pair()
    return at.matmul(*at.on_device(a, b), device=None), product(a, b)


@path("matmul on the device of a stack and a vector")
def _(at: Place) -> tuple[Any, Array]:
    a, b = at.numbers(2, 3, 6, 5), at.numbers(5)
    return at.matmul(*at.on_device(a, b), device=None), product(a, b)


@path("matmul on the device to out of a stack")
def _(at: Place) -> tuple[Any, Array]:
    a, b = at.numbers(3, 6, 5), at.numbers(3, 5, 7)
    x, y, out = at.on_device(a, b, np.zeros((3, 6, 7), at.dtype))
    return at.matmul(x, y, out=out, device=None), product(a, b)


def on_host(result: Any) -> Array:
    """What came back, wherever it is."""
    return np.asarray(result.get() if hasattr(result, "get") else result)


def check_paths(paths: Sequence[str], at: Place, mark: Mark) -> None:
    """That paths give NumPy's products without the mark, and the device's with it; the second time from what was kept of the
    first, where something is.
    """
    for has_mark in (False, True):
        for told in (*paths, *paths):
            result, expected = PATHS[told](at)
            numbers = on_host(result)
            np.testing.assert_array_equal(numbers, marked(expected) if has_mark else expected, err_msg=told)
            assert not has_mark or not (numbers == expected).any()
        mark()


@pytest.mark.parametrize("told", PATHS)
def test_every_path_gives_the_devices_numbers(backend: gp.Backend, mark: Mark, told: str) -> None:
    check_paths([told], Place(backend), mark)


@pytest.mark.sample(dtype=["float64", "complex64", "int8", "bool"])
@pytest.mark.every_value("dtype", [*DTYPES])
def test_every_type_is_the_devices(backend: gp.Backend, mark: Mark, dtype: str) -> None:
    paths = ["gemm", "gemm to out", "gemm on the device", *(["matmul"] if dtype != "bfloat16" else [])]
    check_paths(paths, Place(backend, DTYPES[dtype].numpy), mark)


def test_zeros_are_the_devices_too(backend: gp.Backend, mark: Mark, monkeypatch: pytest.MonkeyPatch) -> None:
    """Products without terms: no number tells where it comes from, but that something was launched."""
    launched: Counter[str] = Counter()
    launch = type(backend).launch

    def counted(self: Any, call: Any, **given: Any) -> None:
        launched[call.function] += 1
        launch(self, call, **given)

    monkeypatch.setattr(type(backend), "launch", counted)
    launch_one_by_one(backend, monkeypatch)
    at = Place(backend)
    for count, told in enumerate((at.gemm, at.matmul, at.gemm, at.matmul), 1):
        assert not told(at.numbers(6, 0), at.numbers(0, 7)).any()
        assert launched["naive"] == count


class Own(np.ndarray):
    """An array that multiplies by its own rules."""

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        return getattr(ufunc, method)(*(np.asarray(x) for x in inputs), **options)


ON_THE_HOST: dict[str, Callable[[Array], Array]] = {
    "no device computes long doubles": lambda x: x.astype(np.longdouble),
    "no device computes Python's objects": lambda x: x.astype(object),
    "what has an __array_ufunc__ of its own multiplies by it": lambda x: x.view(Own),
}
"""All that matmul has NumPy compute, by the reason; gemm refuses it, or takes it for a plain array."""


@pytest.mark.parametrize("reason", ON_THE_HOST)
def test_what_numpy_computes_is_named_here(backend: gp.Backend, mark: Mark, reason: str) -> None:
    mark()
    a, b = (ON_THE_HOST[reason](x) for x in Place(backend).pair())
    np.testing.assert_array_equal(gp.matmul(a, b, device=backend.device), np.matmul(a, b))


@pytest.mark.sample(dtype=["float32"])
@pytest.mark.every_value("dtype", [*DTYPES])
def test_run_fails_with_the_mark(backend: gp.Backend, mark: Mark, dtype: str) -> None:
    options = Options(load_configuration(), kernels=("naive",), baselines=(), repeat=1)
    problem = GemmProblem.create(9, 8, 7, dtype=dtype)
    for status in ("ok", "failed"):
        (result,) = run_benchmark([problem], [backend.device], options)
        assert result.status == status, result.reason
        mark()
    failed = {check.name for check in result.checks if not check.passed}
    assert failed == {check.name for check in result.checks} - {"untouched"}


def test_the_command_says_fail_of_the_mark(
    backend: gp.Backend, mark: Mark, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    place = ["--backend", backend.name, "--device", backend.device.selector]
    words = ["gemmport", "run", *place, "--kernel", "naive", "--size", "9", "--repeat", "1", "--baseline", "none"]
    monkeypatch.setattr(sys, "argv", words)
    for status, word in ((0, "PASS"), (1, "FAIL")):
        assert cli._run_command() == status
        assert word in capfd.readouterr().out
        mark()


def test_the_fuzz_campaign_finds_the_mark_through_every_door(
    backend: gp.Backend, mark: Mark, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two problems of each kind, in one program, whose results are not zero anyway."""
    only = Specialization("naive", (("TS", 8),), Types("float32", "float32", "float32"), ("N", "N"), whole=False)
    monkeypatch.setattr(sys.modules["gemmport.fuzz.draw"], "pool", lambda *drawn_from: (only,))
    cases: dict[str, list[Any]] = {kind: [] for kind in ("plan", "gemm", "matmul", "device arrays")}
    index = 0
    while any(len(found) < 2 for found in cases.values()):
        case = draw(3, index, ("naive",))
        index += 1
        is_told = not case.problem.empty and case.problem.effective_k and "special values" not in case.facts.features
        if is_told and None in case.outcomes(backend.device):
            cases[case.facts.kind].append(case)
    for is_found in (False, True):
        for found in cases.values():
            for case in found[:2]:
                assert bool(case.judge(backend)) == is_found, case
        mark()
