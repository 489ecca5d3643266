"""nvmath-python: its stateful product of cuBLASLt, planned once, on CUDA's memory."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from gemmport.backends.base import Backend
from gemmport.backends.objects import Memory
from gemmport.baselines._packages import conjugates, imported, on_device
from gemmport.baselines.base import Baseline, BoundBaseline, HostArray
from gemmport.core.errors import BaselineUnavailableError, LaunchError
from gemmport.core.problem import GemmProblem, Operand

_TYPES = ("float16", "bfloat16", "float32", "float64", "complex64", "complex128")


class NVMath(Baseline):
    """nvmath.linalg.advanced.Matmul in place on the backend's stream: tensors of PyTorch or arrays of CuPy over the operands'
    own memory are what it takes. It computes float32 in float32 unless it is told otherwise.
    """

    name = "nvmath"
    backends = frozenset({"cuda"})
    how_to_get = "pip install 'nvmath-python[cu13]' torch, or with cupy-cuda13x in the place of torch"

    def __init__(self) -> None:
        self._nvmath = imported("nvmath", "nvmath-python", self.how_to_get)
        self._advanced = imported("nvmath.linalg.advanced", "nvmath-python", self.how_to_get)
        self._arrays = _arrays(self.how_to_get)

    @property
    def version(self) -> str:
        """Of nvmath-python."""
        return str(self._nvmath.__version__)

    def unsupported(self, problem: GemmProblem) -> str | None:
        """Why it cannot compute a problem; None where it can."""
        if problem.types not in _TYPES:
            return f"nvmath-python computes {', '.join(_TYPES)}, not {problem.types}"
        if problem.dtype.name == "bfloat16" and self._arrays.__name__ == "cupy":
            return "nvmath-python takes bfloat16 in tensors of PyTorch alone"
        if conjugates(problem):
            return f"nvmath-python's product is of matrices that are not conjugated ({problem.ops})"
        return None

    def bind(
        self,
        problem: GemmProblem,
        backend: Backend,
        operands: Mapping[Operand, Memory],
        host: Mapping[Operand, HostArray],
    ) -> BoundBaseline:
        """Plans a product; `close` gives back what it holds.

        Raises:
            LaunchError: nvmath-python refuses it.
        """
        arrays = on_device(problem, backend, operands)
        a, b, d = (self._arrays.from_dlpack(arrays[operand]) for operand in ("a", "b", "d"))
        stream = backend.queue_handle
        try:
            product = self._advanced.Matmul(
                a, b, d, alpha=problem.alpha, beta=problem.beta, options={"inplace": True}, stream=stream
            )
            product.plan(stream=stream)
        except (RuntimeError, TypeError, ValueError) as error:  # what it raises, the library's own errors among them
            raise LaunchError(f"{backend.device.label}: nvmath-python refuses {problem}: {error}") from error
        return BoundBaseline(self.name, partial(product.execute, stream=stream), "device", close=product.free)


def _arrays(how_to_get: str) -> Any:
    """PyTorch where it has CUDA, or else CuPy.

    Raises:
        BaselineUnavailableError: neither is here.
    """
    try:
        torch = imported("torch", "PyTorch", how_to_get)
        if torch.cuda.is_available():
            return torch
    except BaselineUnavailableError:
        pass
    return imported("cupy", "CuPy, or PyTorch with CUDA,", how_to_get)
