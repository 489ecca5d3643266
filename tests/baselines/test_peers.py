"""Baselines of Python packages: what they are given, where stand-ins take the place of packages that need an NVIDIA GPU."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import gemmport as gp
from absences import TORCH, skip_without
from gemmport import baselines
from gemmport.backends.base import Backend
from gemmport.backends.objects import Memory
from gemmport.baselines import mkl
from gemmport.baselines._packages import on_device
from gemmport.baselines.base import HostArray
from gemmport.checking.reference import reference
from gemmport.checking.verification import laid_out
from gemmport.core.errors import BaselineUnavailableError, LaunchError
from gemmport.core.problem import Operand
from made_up_devices import DEVICES

M, N, K = 5, 7, 3


@pytest.fixture(autouse=True)
def nothing_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A registry that has loaded no library yet, and a PyTorch without CUDA."""
    monkeypatch.setattr(baselines, "_loaded", {})
    monkeypatch.setitem(sys.modules, "torch", None)


def problem_of(batch: int = 1, **options: Any) -> gp.GemmProblem:
    """A problem whose stored rows have gaps but in D."""
    return gp.GemmProblem.create(
        M, N, K, batch=batch, trans_a="T", a=gp.Layout(M + 2, K * (M + 2) + 1, offset=4), **options
    )


def operands(problem: gp.GemmProblem, backend: Backend) -> tuple[dict[Operand, HostArray], dict[Operand, Memory]]:
    """Small integers as stored, (batch, rows, columns), and in the device's memory."""
    rng = np.random.default_rng(1)
    host: dict[Operand, HostArray] = {
        operand: rng.integers(-4, 5, (problem.batch, *problem.stored_shape(operand))).astype(np.float32)
        for operand in ("a", "b", "d")
    }
    memory: dict[Operand, Memory] = {}
    for operand, values in host.items():
        flat = laid_out(problem, operand, values)
        memory[operand] = backend.allocate(flat.nbytes)
        backend.upload(memory[operand], flat)
    return host, memory


@pytest.mark.parametrize("batch", [1, 3])
def test_operands_are_seen_where_they_lie_after_their_ops(best_backend: Backend, batch: int) -> None:
    problem = problem_of(batch)
    host, memory = operands(problem, best_backend)
    arrays = on_device(problem, best_backend, memory)
    seen = {operand: array.get() for operand, array in arrays.items()}
    expected = {"a": host["a"].swapaxes(1, 2), "b": host["b"], "d": host["d"]}
    for operand, values in expected.items():
        np.testing.assert_array_equal(seen[operand], values if batch > 1 else values[0])
    assert all(array.memory is memory[operand] for operand, array in arrays.items())


class Device:
    """A CUDA device, a stream or what else is entered."""

    id = 2
    entered = 0

    def __enter__(self) -> None:
        Device.entered += 1

    def __exit__(self, *_: object) -> None:
        Device.entered -= 1


class Array:
    """An array of CuPy's over a device array of ours, of which it keeps the values."""

    def __init__(self, source: gp.DeviceArray) -> None:
        self.values = source.get()
        self.flags = SimpleNamespace(c_contiguous=source.strides[-1] == 1 and source.strides[-2] == source.shape[-1])
        self.device = Device()


def cupy(streams: list[Any]) -> SimpleNamespace:
    """A stand-in for CuPy; it computes inside of a device and a stream alone."""

    def stream(handle: int, device_id: int) -> Device:
        streams.append((handle, device_id))
        return Device()

    def matmul(a: Array, b: Array, out: Array) -> None:
        assert Device.entered == 2
        out.values = a.values @ b.values

    return SimpleNamespace(
        __name__="cupy",
        __version__="14.2.0",
        from_dlpack=Array,
        matmul=matmul,
        cuda=SimpleNamespace(ExternalStream=stream),
    )


def test_cupy_computes_on_the_backends_stream(best_backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    streams: list[Any] = []
    made: list[Array] = []
    module = cupy(streams)
    module.from_dlpack = lambda source: made.append(Array(source)) or made[-1]  # type: ignore[func-returns-value]
    monkeypatch.setitem(sys.modules, "cupy", module)  # type: ignore[arg-type]
    library, problem = baselines.load("cupy"), problem_of(3)
    host, memory = operands(problem, best_backend)
    bound = library.bind(problem, best_backend, memory, host)
    bound.enqueue()
    assert (bound.clock, bound.result) == ("device", None)
    assert streams == [(best_backend.queue_handle, 2)]
    np.testing.assert_array_equal(made[-1].values, reference(problem, host))
    assert library.version == "14.2.0"
    assert "has no alpha and beta" in str(library.unsupported(problem_of(alpha=2.0)))
    assert "does not conjugate" in str(
        library.unsupported(gp.GemmProblem.create(M, N, K, dtype="complex64", trans_a="C"))
    )
    gaps = problem_of(c=gp.Layout(N + 1), d=gp.Layout(N + 1))
    assert "without gaps" in str(library.unsupported(gaps))
    many = problem_of(3)
    assert library.unsupported(many) is None
    assert "without gaps" in str(library.unsupported(replace(many, d=gp.Layout(N, batch_stride=M * N + 1))))


def test_nvmath_plans_once_and_computes_in_place_on_the_backends_stream(
    best_backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Any] = []

    class Matmul:
        def __init__(self, a: Array, b: Array, c: Array, **options: Any) -> None:
            if options["alpha"] == 13:
                raise ValueError("unlucky")
            told.append((a.values @ b.values, c.values, options))

        def plan(self, stream: int) -> None:
            told.append(("plan", stream))

        def execute(self, stream: int) -> None:
            told.append(("execute", stream))

        def free(self) -> None:
            told.append("free")

    for name, module in {
        "cupy": cupy([]),
        "nvmath": SimpleNamespace(__version__="1.0.0"),
        "nvmath.linalg.advanced": SimpleNamespace(Matmul=Matmul),
    }.items():
        monkeypatch.setitem(sys.modules, name, module)  # type: ignore[arg-type]
    library, problem = baselines.load("nvmath"), problem_of(alpha=2.0, beta=0.5)
    host, memory = operands(problem, best_backend)
    bound = library.bind(problem, best_backend, memory, host)
    bound.enqueue()
    bound.enqueue()
    bound.close()
    handle = best_backend.queue_handle
    product, c, options = told.pop(0)
    np.testing.assert_array_equal(product, host["a"][0].T @ host["b"][0])
    np.testing.assert_array_equal(c, host["d"][0])
    assert options == {"alpha": 2.0, "beta": 0.5, "options": {"inplace": True}, "stream": handle}
    assert told == [("plan", handle), ("execute", handle), ("execute", handle), "free"]
    assert "in tensors of PyTorch alone" in str(library.unsupported(problem_of(dtype="bfloat16")))
    with pytest.raises(LaunchError, match=r"nvmath-python refuses .*: unlucky"):
        library.bind(problem_of(alpha=13.0), best_backend, memory, host)


def test_pytorch_is_not_timed_on_the_host_beside_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    skip_without(TORCH)
    device = DEVICES["NVIDIA sm_90 under OpenCL"]
    backend: Any = SimpleNamespace(name="opencl", device=device)
    with pytest.raises(
        BaselineUnavailableError, match=r"torch computes on CUDA's memory and on the host, not on .*--backend all"
    ):
        baselines.load("torch").bind(problem_of(), backend, {}, {})


@pytest.mark.parametrize(
    ("name", "modules", "how"),
    [
        ("torch", ["torch"], "pip install torch"),
        ("cupy", ["cupy"], "pip install cupy-cuda13x"),
        ("nvmath", ["nvmath"], "pip install 'nvmath-python"),
        ("openblas", ["scipy_openblas32"], "pip install scipy-openblas32"),
    ],
)
def test_a_package_that_is_not_installed_is_told_with_its_command(
    name: str, modules: list[str], how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in modules:
        monkeypatch.setitem(sys.modules, module, None)  # type: ignore[arg-type]
    with pytest.raises(BaselineUnavailableError, match=f"is not installed: .*; {how}"):
        baselines.load(name)


def test_mkl_that_is_not_installed_is_told_with_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Mapping[str, str]:
        raise mkl.PackageNotFoundError(name)

    monkeypatch.setattr(mkl, "files", missing)
    with pytest.raises(BaselineUnavailableError, match=r"oneMKL is not installed: .*; pip install mkl"):
        baselines.load("mkl")
